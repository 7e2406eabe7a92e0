//! A consumer over the partitions of one or several topics.
//!
//! Each partition is a `PartitionConsumer` (in `part`): the sans-IO machine behind a short lock, and a supervisor
//! that subscribes again whenever its connection ends or the broker closes the consumer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::client::events::{ConsumerEvents, Signal};
use crate::client::pulsar::options::ConsumerOptions;
use crate::client::pulsar::part::supervise;
use crate::client::pulsar::shared::Shared;
use crate::client::registry;
use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::pulsar::command::Command;
use crate::pulsar::consumer::Consumer as Machine;
use crate::pulsar::topic::TopicName;
use crate::pulsar::{Message, MessageId, pb};
use crate::random::{self, HashMap};

mod part;

pub use part::SeekTo;
use part::{Others, PartitionConsumer, Supervisor, last_message_id};

/// A handle that receives. Cheap to clone; all clones are the same consumer.
#[derive(Clone, Debug)]
pub struct Consumer(Arc<Inner>);

#[derive(Debug)]
pub(in crate::client) struct Inner {
    topic: String,
    subscription: String,
    parts: Vec<Arc<PartitionConsumer>>,
    by_topic: HashMap<Arc<str>, usize>,
    /// The partition that is served first next time, so that none starves.
    next: AtomicUsize,
    signal: Arc<Signal>,
    closed: AtomicBool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        for part in &self.parts {
            part.stop();
            part.close_quietly();
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
        topics: Vec<TopicName>,
        subscription: String,
        mut options: ConsumerOptions,
        events: Arc<dyn ConsumerEvents>,
    ) -> Result<Self> {
        // One name for all partitions, as in the official clients: brokers spread the partitions of a Failover
        // subscription over the names of its consumers.
        options.name.get_or_insert_with(|| format!("penstock-{:012x}", random::bits() >> 16));
        let title = topics.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let mut names: Vec<(String, i32)> = Vec::new();
        for topic in &topics {
            let name = topic.to_string();
            let count =
                if topic.partition().is_some() { 0 } else { shared.lookup.partitions(&name, true).await? };
            if count == 0 {
                names.push((name, topic.partition().map_or(-1, |p| p as i32)));
            }
            names.extend((0..count).map(|p| (topic.with_partition(p).to_string(), p as i32)));
        }
        check_position(&title, &names, &options)?;
        let signal = Arc::new(Signal::new(events));
        let others = Others::new(topics.len(), names.len(), &shared.ended_topics);
        let mut parts = Vec::with_capacity(names.len());
        let mut by_topic = HashMap::with_capacity_and_hasher(names.len(), Default::default());
        let mut opening = Vec::with_capacity(names.len());
        for (topic, partition) in names {
            let (signal, others) = (Arc::clone(&signal), Arc::clone(&others));
            let part =
                PartitionConsumer::new(&shared, topic, partition, &subscription, &options, signal, others);
            let part = Arc::new(part);
            let (ready, opened) = oneshot::channel();
            let supervisor = Supervisor::new(Arc::clone(&shared), Arc::clone(&part), options.clone());
            part.start(tokio::spawn(supervise(supervisor, shared.options.clone(), ready)));
            by_topic.insert(Arc::clone(&part.topic), parts.len());
            parts.push(part);
            opening.push(opened);
        }
        let consumer = Self(Arc::new(Inner {
            topic: title,
            subscription,
            parts,
            by_topic,
            next: AtomicUsize::new(0),
            signal,
            closed: AtomicBool::new(false),
        }));
        for opened in opening {
            opened.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Closed, "the consumer was closed")))?;
        }
        Ok(consumer)
    }

    /// Moves up to `max` messages to `out` and returns their number; 0 when there are none now.
    pub fn take<M: From<Message>>(&self, max: usize, out: &mut Vec<M>) -> Result<usize> {
        self.check_open()?;
        let count = self.0.parts.len();
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
            let part = &self.0.parts[(first + i) % count];
            taken += part.change(|machine| machine.take(max - taken, out));
        }
        if taken == 0
            && let Some(error) = self.0.signal.ended()
        {
            return Err(error);
        }
        Ok(taken)
    }

    /// Number of messages that [`Self::take`] would return now.
    pub fn available(&self) -> usize {
        self.0.parts.iter().map(|part| part.machine().available()).sum()
    }

    /// Asks for one [`ConsumerEvents::readable`]. Returns false, and asks for nothing, if there is something to take
    /// already: a message or the end.
    pub fn arm(&self) -> bool {
        self.0.signal.arm(|| self.available() > 0 || self.0.closed.load(Ordering::Acquire))
    }

    /// Acknowledges messages, each by its topic and id. Acknowledgements are gathered for the acknowledgement group
    /// time.
    pub fn ack(&self, messages: &[(Arc<str>, MessageId)]) -> Result<()> {
        self.each(messages, |machine, now, id| {
            machine.check_ack(id)?;
            machine.ack(now, id);
            Ok(())
        })
    }

    /// Acknowledges this message and all before it in its partition.
    pub fn ack_cumulative(&self, topic: &Arc<str>, id: MessageId) -> Result<()> {
        self.each(&[(Arc::clone(topic), id)], |machine, now, id| machine.ack_cumulative(now, id))
    }

    /// Acknowledges and waits for the broker's receipt.
    pub async fn ack_receipt(&self, messages: &[(Arc<str>, MessageId)], cumulative: bool) -> Result<()> {
        self.check_open()?;
        let mut by_part: HashMap<usize, Vec<MessageId>> = HashMap::default();
        for (topic, id) in messages {
            by_part.entry(self.part_index(topic, id)?).or_default().push(*id);
        }
        for (index, ids) in by_part {
            let part = &self.0.parts[index];
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
    pub fn nack(&self, messages: &[(Arc<str>, MessageId)], delay: Option<Duration>) -> Result<()> {
        self.each(messages, |machine, now, id| {
            machine.nack(now, id, delay);
            Ok(())
        })
    }

    /// Asks the broker to deliver again everything that is not acknowledged.
    pub fn redeliver_unacknowledged(&self) -> Result<()> {
        self.check_open()?;
        for part in &self.0.parts {
            part.change(|machine| machine.redeliver_unacknowledged());
        }
        Ok(())
    }

    /// Moves the subscription. Resolves when the consumer is subscribed again at the new position.
    pub async fn seek(&self, to: SeekTo) -> Result<()> {
        self.check_open()?;
        // The topics that have ended cannot be moved past an entry that could not be read.
        for part in self.0.parts.iter().filter(|part| part.has_ended()) {
            self.0.signal.resume(part.id);
        }
        if let Some(part) = self.sought(&to)? {
            return part.seek(to).await;
        }
        let mut seeks = JoinSet::new();
        for part in self.living() {
            let (part, to) = (Arc::clone(part), to.clone());
            seeks.spawn(async move { part.seek(to).await });
        }
        let mut first = Ok(());
        while let Some(sought) = seeks.join_next().await {
            let ended = |_| Err(Error::new(ErrorKind::Cancelled, "the engine has ended"));
            first = first.and(sought.unwrap_or_else(ended));
        }
        first
    }

    /// The partition that a seek moves; `None` if it moves all.
    fn sought(&self, to: &SeekTo) -> Result<Option<&Arc<PartitionConsumer>>> {
        match to {
            SeekTo::Id { topic, id, .. } if *id != MessageId::EARLIEST && *id != MessageId::LATEST => {
                self.part_index(topic, id).map(|index| Some(&self.0.parts[index]))
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
        self.0.by_topic.get(topic).map_or(0, |index| self.0.parts[*index].machine().moves())
    }

    /// Deletes the subscription and closes the consumer.
    pub async fn unsubscribe(&self) -> Result<()> {
        self.check_open()?;
        for part in self.living() {
            let consumer_id = part.id;
            part.attached()
                .await?
                .request(|request_id| {
                    Command::Unsubscribe(pb::CommandUnsubscribe { consumer_id, request_id, force: None })
                })
                .await
                .map_err(|error| error.with_topic(Arc::clone(&part.topic)))?;
        }
        self.close().await
    }

    /// Sends gathered acknowledgements and closes the consumer at the broker. Messages that were taken and not
    /// acknowledged are delivered again, to this or another consumer.
    pub async fn close(&self) -> Result<()> {
        if self.0.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        for part in &self.0.parts {
            part.stop();
            part.close().await;
        }
        self.0.signal.end(Error::new(ErrorKind::Closed, "the consumer is closed"));
        Ok(())
    }

    /// Topic and id of the last message of each partition; -1:-1 when there is none.
    pub async fn last_message_ids(&self) -> Result<Vec<(Arc<str>, MessageId)>> {
        self.check_open()?;
        let mut ids = Vec::with_capacity(self.0.parts.len());
        for part in self.living() {
            let response = last_message_id(&*part.attached().await?, part.id)
                .await
                .map_err(|error| error.with_topic(Arc::clone(&part.topic)))?;
            let id = MessageId::from(&response.last_message_id).in_partition(part.partition);
            ids.push((Arc::clone(&part.topic), id));
        }
        Ok(ids)
    }

    /// The topics as they were requested, joined by commas.
    pub fn topic(&self) -> &str {
        &self.0.topic
    }

    /// The subscription.
    pub fn subscription(&self) -> &str {
        &self.0.subscription
    }

    /// Whether every partition of a Failover subscription is served by this consumer.
    pub fn is_active(&self) -> bool {
        self.living().all(|part| part.is_active())
    }

    /// The partitions without those of topics that have ended.
    fn living(&self) -> impl Iterator<Item = &Arc<PartitionConsumer>> {
        self.0.parts.iter().filter(|part| !part.has_ended())
    }

    fn each(
        &self,
        messages: &[(Arc<str>, MessageId)],
        mut act: impl FnMut(&mut Machine, Instant, &MessageId) -> Result<()>,
    ) -> Result<()> {
        self.check_open()?;
        let now = clock::now();
        let mut rest = messages;
        // Neighbours mostly come from one partition: one lock for each run of them.
        while let Some((topic, id)) = rest.first() {
            let same = |(other, other_id): &&(Arc<str>, MessageId)| {
                other == topic && other_id.partition == id.partition
            };
            let run = rest.iter().take_while(same).count();
            let part = &self.0.parts[self.part_index(topic, id)?];
            part.change(|machine| rest[..run].iter().try_for_each(|(_, id)| act(machine, now, id)))
                .map_err(|error| error.with_topic(Arc::clone(topic)))?;
            rest = &rest[run..];
        }
        Ok(())
    }

    /// Index of the partition that a message came from. An id without a topic is found by its partition, if there is
    /// one of that number only.
    fn part_index(&self, topic: &Arc<str>, id: &MessageId) -> Result<usize> {
        let parts = &self.0.parts;
        let fits = |part: &PartitionConsumer| id.partition < 0 || part.partition == id.partition;
        if !topic.is_empty() {
            let index = if parts.len() == 1 && *topic == parts[0].topic {
                Some(0)
            } else {
                self.0.by_topic.get(topic).copied()
            };
            return index.filter(|index| fits(&parts[*index])).ok_or_else(|| {
                let text =
                    format!("the message id {id} is of {topic}, which is not a topic of this consumer");
                Error::new(ErrorKind::InvalidArgument, text)
            });
        }
        let mut of_partition = (0..parts.len()).filter(|index| fits(&parts[*index]));
        match (of_partition.next(), of_partition.next()) {
            (Some(index), None) => Ok(index),
            (Some(_), Some(_)) => Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "the message id {id} does not say which of the {} partitions of this consumer it is of: pass the \
                     message itself or its id, which have the topic, or seek to a time",
                    parts.len()
                ),
            )),
            (None, _) => Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "the message id {id} is of partition {}, which this consumer does not have",
                    id.partition
                ),
            )),
        }
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

/// Checks that a start position is of the one partition that is opened: a message is of one partition only.
fn check_position(title: &str, names: &[(String, i32)], options: &ConsumerOptions) -> Result<()> {
    let id = options.position;
    if id == MessageId::EARLIEST || id == MessageId::LATEST {
        return Ok(());
    }
    let refused = |text: String| Err(Error::new(ErrorKind::InvalidArgument, text).with_topic(title));
    let [(topic, partition)] = names else {
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
