//! A consumer over the partitions of one or several topics.
//!
//! Each partition is a `ConsumerPart` (in `part`): the sans-IO machine behind a short lock, and a supervisor
//! that subscribes again whenever its connection ends or the broker closes the consumer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::client::events::{ConsumerEvents, Signal};
use crate::client::pulsar::Shared;
use crate::client::pulsar::options::ConsumerOptions;
use crate::error::{Error, ErrorKind, Result};
use crate::machine::Machine as _;
use crate::pulsar::command::Command;
use crate::pulsar::consumer::Consumer as Machine;
use crate::pulsar::topic::TopicName;
use crate::pulsar::{Message, MessageId, pb};

mod part;

pub(super) use part::ConsumerPart;
use part::{close_command, supervise};

/// Where [`Consumer::seek`] goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// Behind this message, or, with `inclusive`, to it.
    Id {
        /// Of the message.
        id: MessageId,
        /// Whether it is given again.
        inclusive: bool,
    },
    /// To the first message published at or after this time in milliseconds since 1970.
    Time(u64),
}

/// A handle that receives. Cheap to clone; all clones are the same consumer.
#[derive(Clone, Debug)]
pub struct Consumer(Arc<Inner>);

/// Does not keep the consumer alive.
#[derive(Clone, Debug)]
pub struct WeakConsumer(Weak<Inner>);

impl WeakConsumer {
    /// The consumer, unless it is gone.
    pub fn upgrade(&self) -> Option<Consumer> {
        self.0.upgrade().map(Consumer)
    }
}

#[derive(Debug)]
struct Inner {
    topic: String,
    subscription: String,
    parts: Vec<Arc<ConsumerPart>>,
    by_topic: HashMap<Arc<str>, usize>,
    /// The part that is served first next time, so that none starves.
    next: AtomicUsize,
    signal: Arc<Signal>,
    closed: AtomicBool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        for part in &self.parts {
            part.stop();
            part.tell_broker_of_close();
        }
    }
}

impl Consumer {
    pub(super) async fn open(
        shared: Arc<Shared>,
        topics: Vec<TopicName>,
        subscription: String,
        options: ConsumerOptions,
        events: Arc<dyn ConsumerEvents>,
    ) -> Result<Self> {
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
        let signal = Arc::new(Signal::new(events));
        let mut parts = Vec::with_capacity(names.len());
        let mut by_topic = HashMap::with_capacity(names.len());
        let mut opening = Vec::with_capacity(names.len());
        for (topic, partition) in names {
            let part = Arc::new(ConsumerPart::new(
                &shared,
                topic,
                partition,
                &subscription,
                &options,
                Arc::clone(&signal),
            ));
            let (ready, opened) = oneshot::channel();
            let task =
                tokio::spawn(supervise(Arc::clone(&shared), Arc::clone(&part), options.clone(), ready));
            *part.task.lock() = Some(task.abort_handle());
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

    /// Moves up to `max` messages to `out` and gives their number; 0 when there are none now.
    pub fn take<M: From<Message>>(&self, max: usize, out: &mut Vec<M>) -> Result<usize> {
        self.check_open()?;
        let count = self.0.parts.len();
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

    /// Messages that [`Self::take`] would give now.
    pub fn available(&self) -> usize {
        self.0.parts.iter().map(|part| part.machine().available()).sum()
    }

    /// Asks for one [`ConsumerEvents::readable`]. Gives false, and asks for nothing, if there is
    /// something to take already (a message or the end).
    pub fn arm(&self) -> bool {
        self.0.signal.arm(|| self.available() > 0 || self.0.closed.load(Ordering::Acquire))
    }

    /// Acknowledges messages, each named by the topic it came from and its id. Gathered for the
    /// acknowledgement group time.
    pub fn ack(&self, messages: &[(Arc<str>, MessageId)]) -> Result<()> {
        self.each(messages, |machine, now, id| {
            machine.ack(now, id);
            Ok(())
        })
    }

    /// Acknowledges this message and all before it in its partition.
    pub fn ack_cumulative(&self, topic: &Arc<str>, id: MessageId) -> Result<()> {
        self.each(&[(Arc::clone(topic), id)], |machine, now, id| machine.ack_cumulative(now, id))
    }

    /// Acknowledges and waits until the broker says it has taken note.
    pub async fn ack_receipt(&self, messages: &[(Arc<str>, MessageId)], cumulative: bool) -> Result<()> {
        self.check_open()?;
        let mut by_part: HashMap<usize, Vec<MessageId>> = HashMap::new();
        for (topic, id) in messages {
            by_part.entry(self.part_index(topic, id)?).or_default().push(*id);
        }
        for (index, ids) in by_part {
            let part = &self.0.parts[index];
            let connection = part.connection().ok_or_else(|| {
                Error::new(ErrorKind::Disconnected, "not connected: the message will be given again")
            })?;
            // `None`: batches that are only partly acknowledged, which the broker is told of later.
            let Some(mut ack) =
                part.change(|machine| machine.receipt_ack(Instant::now(), &ids, cumulative))?
            else {
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

    /// Gives messages back: they come again after `delay`, or the consumer's own when `None`.
    pub fn nack(&self, messages: &[(Arc<str>, MessageId)], delay: Option<Duration>) -> Result<()> {
        self.each(messages, |machine, now, id| {
            machine.nack(now, id, delay);
            Ok(())
        })
    }

    /// Asks for everything again that is not acknowledged.
    pub fn redeliver_unacknowledged(&self) -> Result<()> {
        self.check_open()?;
        let now = Instant::now();
        for part in &self.0.parts {
            part.change(|machine| machine.redeliver_unacknowledged(now));
        }
        Ok(())
    }

    /// Moves the subscription. Resolves when the consumer is subscribed again at the new place.
    pub async fn seek(&self, to: SeekTo) -> Result<()> {
        self.check_open()?;
        match to {
            SeekTo::Id { id, .. }
                if id != MessageId::EARLIEST && id != MessageId::LATEST && id.partition >= 0 =>
            {
                let part =
                    self.0.parts.iter().find(|part| part.partition == id.partition).ok_or_else(|| {
                        Error::new(ErrorKind::InvalidArgument, format!("no partition {} here", id.partition))
                    })?;
                part.seek(to).await
            }
            SeekTo::Id { id, .. }
                if id != MessageId::EARLIEST && id != MessageId::LATEST && self.0.parts.len() > 1 =>
            {
                Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "a message id without a partition cannot be sought on several partitions",
                ))
            }
            _ => {
                for part in &self.0.parts {
                    part.seek(to).await?;
                }
                Ok(())
            }
        }
    }

    /// Deletes the subscription and closes the consumer.
    pub async fn unsubscribe(&self) -> Result<()> {
        self.check_open()?;
        for part in &self.0.parts {
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

    /// Sends what is gathered and closes the consumer at the broker. Messages taken but not acknowledged
    /// are given to others, or come again.
    pub async fn close(&self) -> Result<()> {
        if self.0.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        for part in &self.0.parts {
            part.stop();
            part.change(|machine| machine.flush_acks());
            if let Some(connection) = part.connection() {
                {
                    let mut host = connection.session().lock();
                    part.turn(Instant::now(), host.protocol().transmit());
                }
                let id = part.id;
                // The broker forgets the consumer with the connection anyway.
                let _ = connection.request(|request_id| close_command(id, request_id)).await;
            }
            part.leave();
        }
        self.0.signal.end(Error::new(ErrorKind::Closed, "the consumer is closed"));
        Ok(())
    }

    /// Id of the last message of each partition; -1:-1 when there is none.
    pub async fn last_message_ids(&self) -> Result<Vec<MessageId>> {
        self.check_open()?;
        let mut ids = Vec::with_capacity(self.0.parts.len());
        for part in &self.0.parts {
            let consumer_id = part.id;
            let answer = part
                .attached()
                .await?
                .request(|request_id| {
                    Command::GetLastMessageId(pb::CommandGetLastMessageId { consumer_id, request_id })
                })
                .await
                .map_err(|error| error.with_topic(Arc::clone(&part.topic)))?;
            let Command::GetLastMessageIdResponse(response) = answer else {
                return Err(Error::protocol(format!(
                    "GET_LAST_MESSAGE_ID was answered by {}",
                    answer.name()
                )));
            };
            ids.push(MessageId::from(&response.last_message_id).in_partition(part.partition));
        }
        Ok(ids)
    }

    /// The topics, as they were asked for, joined by commas.
    pub fn topic(&self) -> &str {
        &self.0.topic
    }

    /// The subscription.
    pub fn subscription(&self) -> &str {
        &self.0.subscription
    }

    /// Whether every partition of a Failover subscription is served by this consumer.
    pub fn is_active(&self) -> bool {
        self.0.parts.iter().all(|part| part.active.load(Ordering::Acquire))
    }

    pub(super) fn downgrade(&self) -> WeakConsumer {
        WeakConsumer(Arc::downgrade(&self.0))
    }

    fn each(
        &self,
        messages: &[(Arc<str>, MessageId)],
        mut act: impl FnMut(&mut Machine, Instant, &MessageId) -> Result<()>,
    ) -> Result<()> {
        self.check_open()?;
        let now = Instant::now();
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

    /// The part a message came from. An id alone, with an empty topic, is told by its partition.
    fn part_index(&self, topic: &Arc<str>, id: &MessageId) -> Result<usize> {
        let parts = &self.0.parts;
        if parts.len() == 1 && (topic.is_empty() || *topic == parts[0].topic) {
            return Ok(0);
        }
        let found = if topic.is_empty() {
            let mut of_partition = (0..parts.len()).filter(|index| parts[*index].partition == id.partition);
            of_partition.next().filter(|_| of_partition.next().is_none())
        } else {
            self.0.by_topic.get(topic).copied()
        };
        found.ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidArgument,
                format!("{id} of {topic:?} is not from a topic of this consumer; give the message instead of its id"),
            )
        })
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
