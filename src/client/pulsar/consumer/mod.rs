//! A consumer over the partitions of one or several topics.
//!
//! Each partition is a `PartitionConsumer` (in `part`): the sans-IO machine behind a short lock, and a supervisor
//! that subscribes again whenever its connection ends or the broker closes the consumer. `members` is the set of them, which
//! `growth` changes while the consumer runs: topics get more partitions, and others appear and disappear. `letters` sends messages to
//! the topics of a dead letter policy.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};

use crate::client::events::{ConsumerEvents, Signal};
use crate::client::pulsar::options::ConsumerOptions;
use crate::client::pulsar::shared::Shared;
use crate::client::registry;
use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::pulsar::command::Command;
use crate::pulsar::consumer::{Consumer as Machine, Counts};
use crate::pulsar::pb::command_subscribe::SubType;
use crate::pulsar::schema::Codec;
use crate::pulsar::{Message, MessageId, pb};
use crate::random::{self, HashMap, HashSet};
use crate::sync::Mutex;

mod growth;
mod letters;
mod members;
mod part;
mod topics;
mod watch;

use growth::{Family, Rules};
use letters::{Letters, Undertaker};
use members::{Members, Parts, Place};
pub use part::SeekTo;
use part::{PartitionConsumer, last_message_id};
pub use topics::Topics;
use watch::Listing;

/// A handle that receives. Cheap to clone; all clones are the same consumer.
#[derive(Clone, Debug)]
pub struct Consumer(Arc<Inner>);

#[derive(Debug)]
pub(in crate::client) struct Inner {
    topic: String,
    subscription: String,
    members: Arc<Members>,
    /// The partition that is served first next time, so that none starves.
    next: AtomicUsize,
    signal: Arc<Signal>,
    closed: AtomicBool,
    /// Whether acknowledgements have a time limit.
    limits_acks: bool,
    codec: Option<Arc<dyn Codec>>,
    /// Whether it asks for messages when the application waits for one, and not ahead.
    asks: bool,
    letters: Option<(Arc<Letters>, Undertaker)>,
    /// The task that asks for new partitions and topics, if there may be some.
    growth: Mutex<Option<AbortHandle>>,
}

/// Longest time for which [`Consumer::close`] waits for the receipts of letters.
const LAST_LETTERS: Duration = Duration::from_secs(5);

/// A message of a consumer, named to be acknowledged or refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Full name of its topic, including the partition; empty if unknown.
    pub topic: Arc<str>,
    /// Its id.
    pub id: MessageId,
    /// Number of its redeliveries, 0 if unknown.
    pub redeliveries: u32,
}

impl From<&Message> for Target {
    fn from(message: &Message) -> Self {
        let entry = &message.entry;
        Self { topic: Arc::clone(&entry.topic), id: message.id, redeliveries: entry.redelivery_count }
    }
}

impl From<(Arc<str>, MessageId)> for Target {
    fn from((topic, id): (Arc<str>, MessageId)) -> Self {
        Self { topic, id, redeliveries: 0 }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some((_, undertaker)) = &self.letters {
            undertaker.abort();
        }
        self.stop_growth();
        for part in self.members.close().iter() {
            part.stop();
            part.close_quietly();
        }
        // Those that wait hold no handle, and are told that there is none.
        self.members.ends.changed.notify_waiters();
        self.members.active.changed.notify_waiters();
    }
}

impl Inner {
    fn stop_growth(&self) {
        let task = self.growth.lock().take();
        if let Some(task) = task {
            task.abort();
        }
    }
}

impl registry::Shared for Consumer {
    type Inner = Inner;

    fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    fn from_inner(inner: Arc<Inner>) -> Self {
        Self(inner)
    }
}

impl Consumer {
    pub(super) async fn open(
        shared: Arc<Shared>,
        topics: Topics,
        subscription: String,
        mut options: ConsumerOptions,
        events: Arc<dyn ConsumerEvents>,
    ) -> Result<Self> {
        // One name for all partitions, as in the official clients: brokers spread the partitions of a Failover
        // subscription over the names of its consumers.
        options.name.get_or_insert_with(|| format!("penstock-{:012x}", random::bits() >> 16));
        let title = topics.title();
        if options.key_shared.is_some() && options.kind != SubType::KeyShared {
            let text = "key_shared is for Key_Shared subscriptions: set type=\"key_shared\", or leave it out";
            return Err(Error::new(ErrorKind::InvalidArgument, text).with_topic(title));
        }
        let letters = letters::check(&topics, &subscription, &options)?;
        let left_out = letters::sent_to(letters.as_ref(), &subscription);
        let is_pattern = matches!(topics, Topics::Matching(_));
        let (mut families, mut listing) = (Vec::new(), None);
        match topics {
            Topics::Named(topics) => {
                for topic in topics {
                    families.push(Family::find(&shared, topic, true).await?);
                }
            }
            Topics::Matching(pattern) => {
                let found = Listing::find(&shared, pattern).await?;
                let all = |_: &_, error| Err(error);
                families = growth::families_of(&shared, &found, &HashSet::default(), &left_out, all).await?;
                let (count, limit) = (growth::places_of(&families), options.pattern_max_topics);
                if count > limit {
                    let text = format!(
                        "the pattern {title:?} matches {count} topics and partitions, and pattern_max_topics is {limit}: narrow the \
                         pattern, or raise the limit"
                    );
                    return Err(Error::new(ErrorKind::NotAllowed, text));
                }
                listing = Some(found);
            }
        }
        check_position(&title, is_pattern, &families, &options)?;
        let several = is_pattern || families.len() > 1;
        if let Some(retry) = letters.as_ref().and_then(|topics| topics.retry.clone()) {
            families.push(Family::find(&shared, retry, false).await?);
        }
        let is_one = matches!(&families[..], [family] if family.is_whole()) && !is_pattern;
        if options.receiver_queue == 0 && !is_one {
            let text = "receiver_queue=0 is for a consumer of one topic without partitions: take at least 1, or open a consumer \
                        for each partition by its name (...-partition-N)";
            return Err(Error::new(ErrorKind::InvalidArgument, text).with_topic(title));
        }
        let signal = Arc::new(Signal::new(events));
        let members = Members::new(&shared, several, is_pattern, &subscription, &options, &signal);
        let opening = members.add(families.iter().flat_map(Family::places).collect(), false);
        let letters = letters.zip(options.dead_letter.as_ref()).map(|(topics, policy)| {
            let letters = Letters::new(&shared, topics, policy, &subscription, &options);
            let undertaker = Undertaker::start(&letters, Arc::clone(&members));
            (letters, undertaker)
        });
        let consumer = Self(Arc::new(Inner {
            topic: title,
            subscription,
            members: Arc::clone(&members),
            next: AtomicUsize::new(0),
            signal,
            closed: AtomicBool::new(false),
            limits_acks: options.ack_timeout.is_some(),
            codec: options.schema.as_ref().map(|schema| Arc::clone(&schema.codec)),
            letters,
            asks: options.receiver_queue == 0,
            growth: Mutex::default(),
        }));
        for (part, opened) in opening {
            let opened = opened.await;
            match opened.unwrap_or_else(|_| Err(Error::new(ErrorKind::Closed, "the consumer was closed"))) {
                // Deleted since it was listed.
                Err(error) if !part.creates_topic && error.kind() == ErrorKind::TopicNotFound => {
                    members.remove(&part, error);
                }
                opened => opened?,
            }
        }
        let rules = Rules {
            partitions_update_interval: options.partitions_update_interval,
            pattern_update_interval: options.pattern_update_interval,
            pattern_max_topics: options.pattern_max_topics,
            left_out: Box::new(left_out),
        };
        *consumer.0.growth.lock() = growth::start(shared, members, families, listing, rules);
        Ok(consumer)
    }

    fn parts(&self) -> Arc<Parts> {
        self.0.members.now()
    }

    /// Moves up to `max` messages to `out` and returns their number; 0 when there are none now.
    pub fn take<M: From<Message>>(&self, max: usize, out: &mut Vec<M>) -> Result<usize> {
        self.check_open()?;
        let parts = self.parts();
        let count = parts.len();
        if count > 1
            && let Some(error) = self.0.signal.ended()
        {
            // Other partitions may never run dry.
            return Err(error);
        }
        let first = if count > 1 { self.0.next.fetch_add(1, Ordering::Relaxed) % count } else { 0 };
        let mut taken = 0;
        for i in 0..count {
            if taken >= max {
                break;
            }
            let part = &parts[(first + i) % count];
            taken += part.change(|machine| machine.take(max - taken, out));
        }
        if taken == 0 {
            if let Some(error) = self.0.signal.ended() {
                return Err(error);
            }
            if self.is_at_end() {
                let text = "the topic was terminated, and every message of it is acknowledged";
                return Err(Error::new(ErrorKind::EndOfTopic, text).with_topic(self.0.topic.as_str()));
            }
        }
        Ok(taken)
    }

    /// Number of messages that [`Self::take`] would return now.
    pub fn available(&self) -> usize {
        self.parts().iter().map(|part| part.machine().available()).sum()
    }

    /// Whether [`Self::take`] would return a message now.
    pub fn has_ready(&self) -> bool {
        self.parts().iter().any(|part| part.machine().has_ready())
    }

    /// Asks for one [`ConsumerEvents::readable`]. Returns false, and asks for nothing, if there is something to take
    /// already: a message or the end.
    pub fn arm(&self) -> bool {
        if self.0.asks && !self.has_ready() {
            self.parts().iter().for_each(|part| part.change(Machine::want));
        }
        self.0.signal.arm(|| self.has_ready() || self.0.closed.load(Ordering::Acquire) || self.is_at_end())
    }

    /// Whether every topic of the consumer was terminated and has nothing more to receive. A seek or a message that
    /// comes again ends this state.
    pub fn is_at_end(&self) -> bool {
        // Of a pattern, other topics may come.
        self.0.members.ends.any.load(Ordering::Acquire) && !self.0.members.endless() && {
            let parts = self.parts();
            parts.living().next().is_some() && parts.living().all(|part| part.machine().is_at_end())
        }
    }

    /// Resolves when [`Self::is_at_end`] becomes true. Does not keep the consumer open.
    pub fn wait_for_end(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let (consumer, ends) = (Arc::downgrade(&self.0), Arc::clone(&self.0.members.ends));
        async move { watch(&consumer, &ends.changed, |consumer| consumer.is_at_end().then_some(())).await }
    }

    /// Resolves with a partition, given by its full topic name, that this consumer of a Failover subscription has become the active one
    /// of, or has ceased to be. Changes that were not asked for wait, the latest of each partition. Does not keep the consumer open.
    pub fn active_change(&self) -> impl Future<Output = Result<(Arc<str>, bool)>> + Send + use<> {
        let (consumer, active) = (Arc::downgrade(&self.0), Arc::clone(&self.0.members.active));
        async move { watch(&consumer, &active.changed, |consumer| consumer.0.members.active.next()).await }
    }

    /// Tells that the application gets messages that were taken: their acknowledgement timeout begins.
    pub fn handed_out(&self, messages: &[Message]) {
        if !self.0.limits_acks {
            return;
        }
        let (now, parts) = (clock::now(), self.parts());
        for run in messages.chunk_by(|a, b| Arc::ptr_eq(&a.entry.topic, &b.entry.topic)) {
            // A topic that is not one of the consumer's has none that would be told.
            if let Ok(part) = parts.find(&run[0].entry.topic, &run[0].id) {
                part.change(|machine| run.iter().for_each(|message| machine.handed_out(now, message)));
            }
        }
    }

    /// Tells that a message was not handed out after all.
    pub fn given_back(&self, message: &Message) {
        if self.0.limits_acks
            && let Ok(part) = self.parts().find(&message.entry.topic, &message.id)
        {
            part.change(|machine| machine.taken_over(&message.id));
        }
    }

    /// Whether deliveries have become void since the last call. Messages that were taken and not handed out are to be dropped if
    /// [`Self::is_recalled`] is true for them: they come again, or are dead.
    pub fn any_recalled(&self) -> bool {
        self.0.members.recalled.load(Ordering::Relaxed)
            && self.0.members.recalled.swap(false, Ordering::AcqRel)
    }

    /// Whether the delivery of a message is void.
    pub fn is_recalled(&self, message: &Message) -> bool {
        let parts = self.parts();
        let part = parts.find(&message.entry.topic, &message.id);
        part.is_ok_and(|part| part.machine().is_recalled(message))
    }

    /// Tells that all messages that were taken have been looked at.
    pub fn forget_recalls(&self) {
        if !self.0.members.recalled.load(Ordering::Acquire) {
            self.parts().iter().for_each(|part| part.machine().forget_recalls());
        }
    }

    /// Messages that were delivered again, and why.
    pub fn counts(&self) -> Counts {
        let letters = self.0.letters.as_ref().map(|(letters, _)| letters.counts()).unwrap_or_default();
        self.parts().iter().fold(letters + self.0.members.counts(), |sum, part| sum + part.machine().counts())
    }

    /// Sends a message to the topic of retries, to be delivered again after `delay`, and acknowledges it after the receipt; a
    /// message that has been there as often as the policy allows is sent to the dead letter topic instead. `properties` are added to
    /// its own. If that fails, the message is delivered again after the nack delay. With `receipt` it waits for the broker's receipt of
    /// the acknowledgement too; if that does not come, the acknowledgement is sent again.
    pub async fn reconsume_later(
        &self,
        message: &Message,
        delay: Duration,
        properties: &[(String, String)],
        receipt: bool,
    ) -> Result<()> {
        self.check_open()?;
        let letters = self.0.letters.as_ref().map(|(letters, _)| letters);
        let letters = letters.filter(|letters| letters.retries()).ok_or_else(letters::not_enabled)?;
        let target = Target::from(message);
        let part = Arc::clone(self.parts().find(&target.topic, &target.id)?);
        let _under_way = letters.begin();
        let (moves, first_chunk) = part.change(|machine| {
            machine.taken_over(&target.id);
            (machine.moves(), machine.first_chunk(&target.id))
        });
        let sent = letters.retry(message, first_chunk, delay, properties).await;
        // What a seek has moved away from is not acknowledged.
        let stays = || part.machine().moves() == moves;
        if sent.is_ok()
            && receipt
            && stays()
            && self.ack_receipt(std::slice::from_ref(&target), false).await.is_ok()
        {
            return sent;
        }
        part.change(|machine| {
            if machine.moves() != moves {
            } else if sent.is_ok() {
                machine.ack(clock::now(), &target.id);
            } else {
                machine.nack(clock::now(), &target.id, target.redeliveries, None);
            }
        });
        sent
    }

    /// Acknowledges messages. Acknowledgements are gathered for the acknowledgement group time.
    pub fn ack(&self, messages: &[Target]) -> Result<()> {
        self.each(messages, |machine, now, target| {
            machine.check_ack(&target.id)?;
            machine.ack(now, &target.id);
            Ok(())
        })
    }

    /// Acknowledges this message and all before it in its partition.
    pub fn ack_cumulative(&self, target: &Target) -> Result<()> {
        self.each(std::slice::from_ref(target), |machine, now, target| {
            machine.ack_cumulative(now, &target.id)
        })
    }

    /// Acknowledges and waits for the broker's receipt.
    pub async fn ack_receipt(&self, messages: &[Target], cumulative: bool) -> Result<()> {
        self.check_open()?;
        let parts = self.parts();
        let mut by_part: HashMap<usize, Vec<MessageId>> = HashMap::default();
        for Target { topic, id, .. } in messages {
            match parts.index(topic, id) {
                // The topic has gone, and its messages with it.
                Err(_) if self.0.members.endless() && !topic.is_empty() => {}
                index => by_part.entry(index?).or_default().push(*id),
            }
        }
        for (index, ids) in by_part {
            let part = &parts[index];
            if part.has_ended() {
                return Err(part.ended());
            }
            let connection = part.connection().ok_or_else(|| {
                Error::new(ErrorKind::Disconnected, "not connected: the message will be delivered again")
            })?;
            // `None`: batches that are only partly acknowledged, which the broker hears of later.
            let receipt_ack = |machine: &mut Machine| {
                ids.iter().try_for_each(|id| machine.check_ack(id))?;
                machine.receipt_ack(clock::now(), &ids, cumulative)
            };
            let Some(mut ack) = part.change(receipt_ack)? else {
                continue;
            };
            connection
                .request(|request_id| {
                    ack.request_id = Some(request_id);
                    Command::Ack(ack)
                })
                .await
                .map_err(|error| error.with_topic(Arc::clone(&part.topic)))?;
        }
        Ok(())
    }

    /// Negatively acknowledges messages: they are delivered again after `delay`, or after the consumer's nack delay
    /// when `None`.
    pub fn nack(&self, messages: &[Target], delay: Option<Duration>) -> Result<()> {
        self.each(messages, |machine, now, target| {
            machine.nack(now, &target.id, target.redeliveries, delay);
            Ok(())
        })
    }

    /// Asks the broker to deliver again everything that is not acknowledged.
    pub fn redeliver_unacknowledged(&self) -> Result<()> {
        self.check_open()?;
        for part in self.parts().iter() {
            part.change(|machine| machine.redeliver_unacknowledged());
        }
        Ok(())
    }

    /// Moves the subscription. Resolves when the consumer is subscribed again at the new position.
    pub async fn seek(&self, to: SeekTo) -> Result<()> {
        self.check_open()?;
        // The topics that have ended cannot be moved past an entry that could not be read.
        let parts = self.parts();
        for part in parts.iter().filter(|part| part.has_ended()) {
            self.0.signal.resume(part.id);
        }
        if let Some(part) = self.sought(&to)? {
            return part.seek(to).await;
        }
        let parts: Vec<_> = parts.living().map(|part| (Arc::clone(part), to.clone())).collect();
        seek_parts(parts).await
    }

    /// Moves each of these partitions, given by their full topic names, to a position of its own, all at the same time. Nothing is moved
    /// if a position is of another partition.
    pub async fn seek_each(&self, positions: Vec<(Arc<str>, SeekTo)>) -> Result<()> {
        self.check_open()?;
        let now = self.parts();
        let mut parts = Vec::with_capacity(positions.len());
        for (topic, to) in positions {
            let part = now.find(&topic, &MessageId::LATEST)?;
            if let SeekTo::Id { topic: named, id, .. } = &to
                && part::is_exact(*id)
                && (!named.is_empty() && *named != part.topic
                    || id.partition >= 0 && id.partition != part.partition)
            {
                let text = format!(
                    "the position for it is the message {id} of {named:?}, another topic or partition"
                );
                return Err(Error::new(ErrorKind::InvalidArgument, text).with_topic(topic));
            }
            parts.push((Arc::clone(part), to));
        }
        for (part, _) in parts.iter().filter(|(part, _)| part.has_ended()) {
            self.0.signal.resume(part.id);
        }
        parts.retain(|(part, _)| !part.has_ended());
        seek_parts(parts).await
    }

    /// Full topic names of the partitions of the consumer's topics that have not ended.
    pub fn partition_topics(&self) -> Vec<Arc<str>> {
        let parts = self.parts();
        let own = parts.own().iter().filter(|part| !part.has_ended());
        own.map(|part| Arc::clone(&part.topic)).collect()
    }

    /// The partition that a seek moves; `None` if it moves all.
    fn sought(&self, to: &SeekTo) -> Result<Option<Arc<PartitionConsumer>>> {
        match to {
            SeekTo::Id { topic, id, .. } if *id != MessageId::EARLIEST && *id != MessageId::LATEST => {
                self.parts().find(topic, id).map(|part| Some(Arc::clone(part)))
            }
            _ => Ok(None),
        }
    }

    /// Topic of the partition that a seek moves; `None` if it moves all, or fails.
    pub fn sought_topic(&self, to: &SeekTo) -> Option<Arc<str>> {
        self.sought(to).ok().flatten().map(|part| Arc::clone(&part.topic))
    }

    /// Number of seeks that have begun in a partition, given by its full topic name.
    pub fn moves(&self, topic: &Arc<str>) -> u64 {
        self.parts().of_topic(topic).map_or(0, |part| part.machine().moves())
    }

    /// Deletes the subscription and closes the consumer. With `force` also if it has other consumers: the broker closes them, and
    /// those that subscribe again make a new one. If that fails in some partitions, it is deleted in the others, and the consumer stays
    /// open.
    pub async fn unsubscribe(&self, force: bool) -> Result<()> {
        self.check_open()?;
        let asked = self.each_part(move |part| async move {
            let consumer_id = part.id;
            let connection = part.attached().await?;
            let force = force.then_some(true);
            let ask =
                |request_id| Command::Unsubscribe(pb::CommandUnsubscribe { consumer_id, request_id, force });
            connection.request(ask).await
        });
        asked.await.into_iter().try_for_each(|(_, answer)| answer.map(drop))?;
        self.close().await
    }

    /// Asks all partitions that have not ended, at the same time. Gives the answers in the order of the partitions.
    async fn each_part<T: Send + 'static, F>(
        &self,
        ask: impl Fn(Arc<PartitionConsumer>) -> F,
    ) -> Vec<(Arc<PartitionConsumer>, Result<T>)>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let mut asked = JoinSet::new();
        let mut answers = Vec::new();
        for (index, part) in self.parts().living().enumerate() {
            let answer = ask(Arc::clone(part));
            asked.spawn(async move { (index, answer.await) });
            let ended = Err(Error::new(ErrorKind::Cancelled, "the engine has ended"));
            answers.push((Arc::clone(part), ended));
        }
        while let Some(answered) = asked.join_next().await {
            if let Ok((index, answer)) = answered {
                let (part, place) = &mut answers[index];
                *place = answer.map_err(|error| error.with_topic(Arc::clone(&part.topic)));
            }
        }
        answers
    }

    /// Sends gathered acknowledgements and closes the consumer at the broker. Messages that were taken and not
    /// acknowledged are delivered again, to this or another consumer.
    pub async fn close(&self) -> Result<()> {
        if self.0.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.0.stop_growth();
        if let Some((letters, undertaker)) = &self.0.letters {
            undertaker.stop();
            let _ = tokio::time::timeout(LAST_LETTERS, letters.settle()).await;
            undertaker.abort();
            letters.close().await;
        }
        for part in self.0.members.close().iter() {
            part.stop();
            part.close().await;
        }
        self.0.signal.end(Error::new(ErrorKind::Closed, "the consumer is closed"));
        self.0.members.ends.changed.notify_waiters();
        self.0.members.active.changed.notify_waiters();
        Ok(())
    }

    /// Topic and id of the last message of each partition; -1:-1 when there is none.
    pub async fn last_message_ids(&self) -> Result<Vec<(Arc<str>, MessageId)>> {
        self.check_open()?;
        let asked =
            self.each_part(|part| async move { last_message_id(&*part.attached().await?, part.id).await });
        let ids = asked.await.into_iter().map(|(part, answer)| {
            let id = MessageId::from(&answer?.last_message_id).in_partition(part.partition);
            Ok((Arc::clone(&part.topic), id))
        });
        ids.collect()
    }

    /// Whether there is a message to be received: one that has arrived, or one behind the last one that was taken. A message that another
    /// consumer of the subscription has received counts; one that is to come again does not.
    pub async fn has_message_available(&self) -> Result<bool> {
        self.check_open()?;
        if self.has_ready() {
            return Ok(true);
        }
        let asked = self.each_part(|part| async move {
            let response = last_message_id(&*part.attached().await?, part.id).await?;
            let id = |id: &pb::MessageIdData| {
                let exists = id.entry_id != u64::MAX;
                exists.then(|| MessageId::from(id).in_partition(part.partition))
            };
            let mark = response.consumer_mark_delete_position.as_ref().map(MessageId::from);
            Ok(part.machine().has_more(id(&response.last_message_id), mark))
        });
        let answers = asked.await;
        if answers.iter().any(|(_, more)| matches!(more, Ok(true))) {
            return Ok(true);
        }
        answers.into_iter().try_fold(false, |any, (_, more)| Ok(any | more?))
    }

    /// Stops fetching messages, or goes on with it. What was asked for before still comes.
    pub fn set_paused(&self, paused: bool) -> Result<()> {
        self.check_open()?;
        self.0.members.set_paused(paused);
        Ok(())
    }

    /// The topics as they were requested, joined by commas.
    pub fn topic(&self) -> &str {
        &self.0.topic
    }

    /// The bindings' own reader of payloads; `None` if these are bytes.
    pub fn codec(&self) -> Option<&Arc<dyn Codec>> {
        self.0.codec.as_ref()
    }

    /// The subscription.
    pub fn subscription(&self) -> &str {
        &self.0.subscription
    }

    /// Whether brokers serve all its topics and partitions now, without those that have ended.
    pub fn is_connected(&self) -> bool {
        let parts = self.parts();
        let mut open = parts.iter().filter(|part| !part.has_ended());
        self.check_open().is_ok() && open.all(|part| part.is_connected())
    }

    /// Whether every partition of a Failover subscription is served by this consumer.
    pub fn is_active(&self) -> bool {
        self.parts().own().iter().filter(|part| !part.has_ended()).all(|part| part.is_active())
    }

    fn each(
        &self,
        messages: &[Target],
        mut act: impl FnMut(&mut Machine, Instant, &Target) -> Result<()>,
    ) -> Result<()> {
        self.check_open()?;
        let (now, parts) = (clock::now(), self.parts());
        let mut rest = messages;
        // Neighbours mostly come from one partition: one lock for each run of them.
        while let Some(Target { topic, id, .. }) = rest.first() {
            let same = |other: &&Target| other.topic == *topic && other.id.partition == id.partition;
            let run = rest.iter().take_while(same).count();
            let part = match parts.find(topic, id) {
                // The topic has gone, and its messages with it.
                Err(_) if self.0.members.endless() && !topic.is_empty() => {
                    rest = &rest[run..];
                    continue;
                }
                part => part?,
            };
            part.change(|machine| rest[..run].iter().try_for_each(|target| act(machine, now, target)))
                .map_err(|error| error.with_topic(Arc::clone(topic)))?;
            rest = &rest[run..];
        }
        Ok(())
    }

    fn check_open(&self) -> Result<()> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(
                Error::new(ErrorKind::Closed, "the consumer is closed").with_topic(self.0.topic.as_str())
            );
        }
        Ok(())
    }
}

/// Looks at a consumer now and after each change, until that gives something or the consumer ends.
async fn watch<T>(
    consumer: &Weak<Inner>,
    changes: &Notify,
    look: impl Fn(&Consumer) -> Option<T>,
) -> Result<T> {
    let closed = || Error::new(ErrorKind::Closed, "the consumer was closed");
    loop {
        let changed = changes.notified();
        tokio::pin!(changed);
        // From here on no change is missed.
        changed.as_mut().enable();
        {
            let consumer = Consumer(consumer.upgrade().ok_or_else(closed)?);
            consumer.check_open()?;
            if let Some(error) = consumer.0.signal.ended() {
                return Err(error);
            }
            if let Some(seen) = look(&consumer) {
                return Ok(seen);
            }
        }
        changed.await;
    }
}

/// Moves partitions, all at the same time. An error says how many have not moved.
async fn seek_parts(parts: Vec<(Arc<PartitionConsumer>, SeekTo)>) -> Result<()> {
    let (all, mut failures) = (parts.len(), Vec::new());
    let mut seeks = JoinSet::new();
    for (part, to) in parts {
        seeks.spawn(async move { part.seek(to).await });
    }
    while let Some(sought) = seeks.join_next().await {
        let ended = |_| Err(Error::new(ErrorKind::Cancelled, "the engine has ended"));
        failures.extend(sought.unwrap_or_else(ended).err());
    }
    let failed = failures.len();
    match failures.into_iter().next() {
        None => Ok(()),
        Some(error) if all == 1 => Err(error),
        Some(error) => {
            Err(error.with_note(&format!("{failed} of {all} partitions may not have moved, the others have")))
        }
    }
}

/// Checks that a start position is of the one partition that is opened: a message is of one partition only.
fn check_position(
    title: &str,
    is_pattern: bool,
    families: &[Family],
    options: &ConsumerOptions,
) -> Result<()> {
    let id = options.position;
    if id == MessageId::EARLIEST || id == MessageId::LATEST {
        return Ok(());
    }
    let refused = |text: String| Err(Error::new(ErrorKind::InvalidArgument, text).with_topic(title));
    if is_pattern {
        return refused(format!(
            "position is the message {id}, and a pattern stands for many topics: use \"earliest\" or \"latest\""
        ));
    }
    let names: Vec<_> = families.iter().flat_map(Family::places).collect();
    let [Place { topic, partition, .. }] = &names[..] else {
        return refused(format!(
            "position is the message {id}, and {} partitions are opened: open the partition of the message by its name \
             (...-partition-N), or begin at \"earliest\" and seek to a time",
            names.len()
        ));
    };
    let of_other_topic = !options.position_topic.is_empty() && *options.position_topic != **topic;
    if of_other_topic || id.partition >= 0 && id.partition != *partition {
        let from = if of_other_topic {
            options.position_topic.to_string()
        } else {
            format!("partition {}", id.partition)
        };
        return refused(format!(
            "position is the message {id} of {from}: give an id of a message of this topic"
        ));
    }
    Ok(())
}
