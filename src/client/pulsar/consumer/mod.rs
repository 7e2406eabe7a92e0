//! A consumer over the partitions of one or several topics.
//!
//! Each partition is a `PartitionConsumer` (in `part`): the sans-IO machine behind a short lock,
//! and a supervisor that subscribes again whenever its connection ends or the broker closes the
//! consumer. `members` is the set of them, which `growth` changes while the consumer runs: topics
//! get more partitions, and others appear and disappear. `ready` knows in which of them messages
//! can be taken. `letters` sends messages to the topics of a dead letter policy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::events::{ConsumerEvents, Signal};
use crate::pulsar::options::ConsumerOptions;
use crate::pulsar::shared::Shared;
use crate::receive::{Ahead, Batch, Receive, Received};
use crate::registry;
use crate::together::together;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::random::{self, HashMap, HashSet};
use forebay_base::sync::Mutex;
use forebay_pulsar::consumer::{Consumer as Machine, Counts};
use forebay_pulsar::pattern::Pattern;
use forebay_pulsar::pb::command_subscribe::SubType;
use forebay_pulsar::schema::Codec;
use forebay_pulsar::topic::TopicName;
use forebay_pulsar::{Message, MessageId};

mod acks;
mod growth;
mod letters;
mod members;
mod partition;
mod positions;
mod ready;
mod topics;
mod watch;

use growth::{Rules, TopicPartitions};
use letters::{DeadLetterSender, Letters};
use members::{Members, Opening, Parts, Place};
use partition::PartitionConsumer;
pub use partition::{ActiveChange, SeekTo};
pub use topics::Topics;
use watch::Listing;

/// A handle that receives. Cheap to clone; all clones are the same consumer.
#[derive(Clone, Debug)]
pub struct Consumer(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    topic: String,
    subscription: String,
    members: Arc<Members>,
    signal: Arc<Signal>,
    closed: AtomicBool,
    /// Whether acknowledgements have a time limit.
    limits_acks: bool,
    codec: Option<Arc<dyn Codec>>,
    /// Whether it asks for messages when the application waits for one, and not ahead.
    asks: bool,
    letters: Option<(Arc<Letters>, DeadLetterSender)>,
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
        Self { topic: Arc::clone(entry.topic()), id: message.id, redeliveries: entry.redelivery_count }
    }
}

impl From<(Arc<str>, MessageId)> for Target {
    fn from((topic, id): (Arc<str>, MessageId)) -> Self {
        Self { topic, id, redeliveries: 0 }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some((_, sender)) = &self.letters {
            sender.abort();
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
        // One name for all partitions, as in the official clients: brokers spread the partitions of
        // a Failover subscription over the names of its consumers.
        options.name.get_or_insert_with(|| format!("forebay-{:012x}", random::bits() >> 16));
        let title = topics.title();
        if options.key_shared.is_some() && options.kind != SubType::KeyShared {
            let text = "key_shared is for Key_Shared subscriptions: set type=\"key_shared\", or leave it out";
            return Err(Error::new(ErrorKind::InvalidArgument, text).with_topic(title));
        }
        let letters = letters::check(&topics, &subscription, &options)?;
        let left_out = letters::sent_to(letters.as_ref(), &subscription);
        let is_pattern = matches!(topics, Topics::Matching(_));
        let (mut followed, listing) = match topics {
            Topics::Named(topics) => (find_named(&shared, topics, options.creates_topic).await?, None),
            Topics::Matching(pattern) => {
                let limit = options.pattern_max_topics;
                let (followed, found) = find_matching(&shared, pattern, &title, &left_out, limit).await?;
                (followed, Some(found))
            }
        };
        check_position(&title, is_pattern, &followed, &options)?;
        let several = is_pattern || followed.len() > 1;
        if let Some(retry) = letters.as_ref().and_then(|topics| topics.retry.clone()) {
            followed.push(TopicPartitions::find(Arc::clone(&shared), retry, false, true).await?);
        }
        let is_one =
            matches!(&followed[..], [topic_partitions] if topic_partitions.is_whole()) && !is_pattern;
        if options.receiver_queue == 0 && !is_one {
            let text = "receiver_queue=0 is for a consumer of one topic without partitions: take at least 1, or open a consumer \
                        for each partition by its name (...-partition-N)";
            return Err(Error::new(ErrorKind::InvalidArgument, text).with_topic(title));
        }
        let signal = Arc::new(Signal::new(events));
        let members = Members::new(&shared, several, is_pattern, &subscription, &options, &signal);
        let opening = members.add(followed.iter().flat_map(TopicPartitions::places).collect(), false);
        let letters = letters.zip(options.dead_letter.as_ref()).map(|(topics, policy)| {
            let letters = Letters::new(&shared, topics, policy, &subscription, &options);
            let sender = DeadLetterSender::start(&letters, Arc::clone(&members));
            (letters, sender)
        });
        let consumer = Self(Arc::new(Inner {
            topic: title,
            subscription,
            members: Arc::clone(&members),
            signal,
            closed: AtomicBool::new(false),
            limits_acks: options.ack_timeout.is_some(),
            codec: options.schema.as_ref().map(|schema| Arc::clone(&schema.codec)),
            letters,
            asks: options.receiver_queue == 0,
            growth: Mutex::default(),
        }));
        wait_until_open(&members, opening).await?;
        if !options.durable
            && options.start_inclusive
            && options.position == MessageId::LATEST
            && consumer.parts().iter().all(|part| part.topic.starts_with("persistent:"))
        {
            // At the end of a topic brokers begin behind its last message.
            let to = SeekTo::Id { topic: "".into(), id: MessageId::LATEST, inclusive: true };
            consumer.seek(to).await?;
        }
        let rules = Rules {
            partitions_update_interval: options.partitions_update_interval,
            pattern_update_interval: options.pattern_update_interval,
            pattern_max_topics: options.pattern_max_topics,
            left_out: Box::new(left_out),
        };
        *consumer.0.growth.lock() = growth::start(shared, members, followed, listing, rules);
        Ok(consumer)
    }

    fn parts(&self) -> Arc<Parts> {
        self.0.members.now()
    }

    /// Moves up to `max` messages to `out` and returns their number; 0 when there are none now.
    pub fn take(&self, max: usize, out: &mut Vec<Message>) -> Result<usize> {
        let before = out.len();
        self.take_batch(Batch::of(max), true, out)?;
        Ok(out.len() - before)
    }

    fn take_of_all(&self, max: usize, out: &mut impl Extend<Message>) -> Result<usize> {
        self.check_open()?;
        let parts = self.parts();
        let taken = match &parts[..] {
            [part] => part.change(|machine| machine.take(max, out)),
            _ => {
                if let Some(error) = self.0.signal.ended() {
                    // Other partitions may never run dry.
                    return Err(error);
                }
                self.take_of_several(max, out)
            }
        };
        if taken == 0 {
            if let Some(error) = self.0.signal.ended() {
                return Err(error);
            }
            if self.are_at_end() {
                let text = "the topic was terminated, and every message of it is acknowledged";
                return Err(Error::new(ErrorKind::EndOfTopic, text).with_topic(self.0.topic.as_str()));
            }
        }
        Ok(taken)
    }

    /// The same over the partitions that have messages to be taken.
    fn take_of_several(&self, max: usize, out: &mut impl Extend<Message>) -> usize {
        let ready = &self.0.members.ready;
        let mut taken = 0;
        while taken < max {
            let Some(id) = ready.first() else { break };
            match self.member(id) {
                Some(part) => taken += part.take(max - taken, out),
                // It was taken out, and is no member any more.
                None => ready.remove(id),
            }
        }
        taken
    }

    /// The partition of an id that [`ReadyPartitions`](ready::ReadyPartitions) gave, unless it was
    /// taken out. The members are read after the id: a partition is one of them before it holds a
    /// message.
    fn member(&self, id: u64) -> Option<Arc<PartitionConsumer>> {
        self.parts().of_id(id).map(Arc::clone)
    }

    /// Number of messages that [`Self::take`] would return now.
    pub fn available(&self) -> usize {
        self.0.members.ahead.len() + self.parts().iter().map(|part| part.machine().available()).sum::<usize>()
    }

    /// Whether [`Self::take`] would return a message now.
    pub fn has_ready(&self) -> bool {
        !self.0.members.ahead.is_empty() || self.has_queued()
    }

    /// Whether a machine has a message that can be taken.
    fn has_queued(&self) -> bool {
        if let [part] = &self.parts()[..] {
            return part.machine().has_ready();
        }
        let ready = &self.0.members.ready;
        let is_ready = |id| self.member(id).is_some_and(|part| part.machine().has_ready());
        // As a rule the first tells.
        ready.first().is_some_and(|first| is_ready(first) || ready.all().into_iter().any(is_ready))
    }

    /// Asks for one [`ConsumerEvents::readable`]. Returns false, and asks for nothing, if there is
    /// something to take already: a message or the end.
    pub fn arm(&self) -> bool {
        let has_ready = || self.0.members.ahead.is_ready() || self.has_queued();
        if self.0.asks && !has_ready() {
            self.parts().iter().for_each(|part| part.change(Machine::want));
        }
        self.0.signal.arm(|| has_ready() || self.0.closed.load(Ordering::Acquire) || self.are_at_end())
    }

    /// Whether every topic of the consumer was terminated and has nothing more to receive. A seek
    /// or a message that comes again ends this state.
    pub fn is_at_end(&self) -> bool {
        self.are_at_end() && self.0.members.ahead.is_empty()
    }

    /// The same of the machines.
    fn are_at_end(&self) -> bool {
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

    /// Resolves with a partition, given by its full topic name, that this consumer of a Failover
    /// subscription has become the active one of, or has ceased to be. Changes that were not told
    /// wait, the latest of each partition. Does not keep the consumer open.
    pub fn active_change(&self) -> impl Future<Output = Result<ActiveChange>> + Send + use<> {
        let (consumer, active) = (Arc::downgrade(&self.0), Arc::clone(&self.0.members.active));
        async move { watch(&consumer, &active.changed, |consumer| consumer.0.members.active.next()).await }
    }

    /// Messages that were delivered again, and why.
    pub fn counts(&self) -> Counts {
        let letters = self.0.letters.as_ref().map(|(letters, _)| letters.counts()).unwrap_or_default();
        self.parts().iter().fold(letters + self.0.members.counts(), |sum, part| sum + part.machine().counts())
    }

    /// Full topic names of the partitions of the consumer's topics that have not ended.
    pub fn partition_topics(&self) -> Vec<Arc<str>> {
        let parts = self.parts();
        let own = parts.own().iter().filter(|part| !part.has_ended());
        own.map(|part| Arc::clone(&part.topic)).collect()
    }

    /// Deletes the subscription and closes the consumer. With `force` also if it has other
    /// consumers: the broker closes them, and those that subscribe again make a new one. If that
    /// fails in some partitions, it is deleted in the others, and the consumer stays open.
    pub async fn unsubscribe(&self, force: bool) -> Result<()> {
        self.check_open()?;
        let asked = self.each_part(move |part| async move { part.unsubscribe(force).await });
        asked.await.into_iter().try_for_each(|(_, answer)| answer)?;
        self.close().await
    }

    /// Asks all partitions that have not ended, at the same time. Gives the answers in the order of
    /// the partitions.
    async fn each_part<T: Send + 'static, F>(
        &self,
        ask: impl Fn(Arc<PartitionConsumer>) -> F,
    ) -> Vec<(Arc<PartitionConsumer>, Result<T>)>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let parts: Vec<_> = self.parts().living().map(Arc::clone).collect();
        let answers = together(parts.iter().map(Arc::clone).map(ask)).await;
        let named = |(part, answer): (Arc<PartitionConsumer>, Result<T>)| {
            let answer = answer.map_err(|error| error.with_topic(Arc::clone(&part.topic)));
            (part, answer)
        };
        parts.into_iter().zip(answers).map(named).collect()
    }

    /// Sends gathered acknowledgements and closes the consumer at the broker. Messages that were
    /// taken and not acknowledged are delivered again, to this or another consumer.
    pub async fn close(&self) -> Result<()> {
        if self.0.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.0.members.ahead.close();
        self.0.stop_growth();
        if let Some((letters, sender)) = &self.0.letters {
            sender.stop();
            let _ = tokio::time::timeout(LAST_LETTERS, letters.settle()).await;
            sender.abort();
            letters.close().await;
        }
        let parts: Vec<_> = self.0.members.close().iter().map(Arc::clone).collect();
        let closing = parts.into_iter().map(|part| async move {
            part.stop();
            part.close().await;
            Ok(())
        });
        together(closing).await;
        self.0.signal.end(Error::new(ErrorKind::Closed, "the consumer is closed"));
        self.0.members.ends.changed.notify_waiters();
        self.0.members.active.changed.notify_waiters();
        Ok(())
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

    fn check_open(&self) -> Result<()> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(
                Error::new(ErrorKind::Closed, "the consumer is closed").with_topic(self.0.topic.as_str())
            );
        }
        Ok(())
    }
}

impl Receive for Consumer {
    type Message = Message;

    fn topic(&self) -> &str {
        self.topic()
    }

    fn arm(&self) -> bool {
        self.arm()
    }

    fn give_back(&self, message: Message) {
        self.take_back(message);
    }

    #[inline]
    fn ahead(&self) -> &Ahead<Message> {
        &self.0.members.ahead
    }

    fn fill(&self, max: usize, out: &mut impl Extend<Message>) -> Result<usize> {
        self.take_of_all(max, out)
    }

    #[inline]
    fn handed_out(&self, messages: &[Message]) {
        if self.0.limits_acks {
            self.begin_ack_timeout(messages);
        }
    }
}

impl Received for Message {
    #[inline]
    fn size(&self) -> usize {
        self.payload.len()
    }

    #[inline]
    fn is_redelivered(&self) -> bool {
        self.entry.redelivery_count > 0
    }
}

/// Finds the partitions of named topics. With `create` the topics are created if the broker allows
/// it.
async fn find_named(
    shared: &Arc<Shared>,
    topics: Vec<TopicName>,
    create: bool,
) -> Result<Vec<TopicPartitions>> {
    let finding =
        topics.into_iter().map(|topic| TopicPartitions::find(Arc::clone(shared), topic, true, create));
    let mut found: Vec<TopicPartitions> = together(finding).await.into_iter().collect::<Result<_>>()?;
    each_once(&mut found);
    Ok(found)
}

/// Leaves each topic and each partition once: two consumers of one would get each other's
/// acknowledgements.
fn each_once(found: &mut Vec<TopicPartitions>) {
    let mut known = HashSet::default();
    found.retain(|topic| known.insert(topic.name().to_string()));
    let partitions: HashMap<_, _> =
        found.iter().map(|topic| (topic.name().to_string(), topic.partitions())).collect();
    found.retain(|topic| {
        let whole = partitions.get(&topic.name().without_partition().to_string());
        topic.name().partition().is_none_or(|partition| whole.is_none_or(|count| partition >= *count))
    });
}

/// Finds the topics that a pattern, whose text is `title`, matches, with their partitions: at most
/// `limit` places.
async fn find_matching(
    shared: &Arc<Shared>,
    pattern: Pattern,
    title: &str,
    left_out: &impl Fn(&TopicName) -> bool,
    limit: usize,
) -> Result<(Vec<TopicPartitions>, Listing)> {
    let found = Listing::find(shared, pattern).await?;
    let all = |_: &_, error| Err(error);
    let followed = growth::families_of(shared, &found, &HashSet::default(), left_out, all).await?;
    let count = growth::places_of(&followed);
    if count > limit {
        let text = format!(
            "the pattern {title:?} matches {count} topics and partitions, and pattern_max_topics is {limit}: narrow the \
             pattern, or raise the limit"
        );
        return Err(Error::new(ErrorKind::NotAllowed, text));
    }
    Ok((followed, found))
}

/// Waits until the partitions that a consumer begins with are open.
async fn wait_until_open(members: &Members, opening: Vec<Opening>) -> Result<()> {
    for (part, opened) in opening {
        let opened = opened.await;
        match opened.unwrap_or_else(|_| Err(Error::new(ErrorKind::Closed, "the consumer was closed"))) {
            // Deleted since it was listed.
            Err(error)
                if members.endless() && !part.creates_topic && error.kind() == ErrorKind::TopicNotFound =>
            {
                members.remove(vec![(part, error)]);
            }
            opened => opened?,
        }
    }
    Ok(())
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

/// Checks that a start position is of the one partition that is opened: a message is of one
/// partition only.
fn check_position(
    title: &str,
    is_pattern: bool,
    followed: &[TopicPartitions],
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
    let names: Vec<_> = followed.iter().flat_map(TopicPartitions::places).collect();
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
