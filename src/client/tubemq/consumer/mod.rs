//! A consumer: a member of a group, with the partitions that are assigned to it.
//!
//! Each partition is a `PartitionConsumer` (in `partition`): the sans-IO machine behind a short
//! lock, and a task that keeps it connected. The tasks in `member` keep the consumer known to the
//! master and the brokers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::events::{ConsumerEvents, Signal};
use crate::receive::{Ahead, Batch, Receive, Received};
use crate::registry;
use crate::tubemq::options::ConsumerOptions;
use crate::tubemq::shared::{Shared, client_id};
use forebay_base::clock::{self, wall_ms};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_tubemq::Partition;
use forebay_tubemq::balance::{Balance, Member, Options as MemberOptions, check_positions};
use forebay_tubemq::consumer::{INDEX_UNIT, Message, Phase, Start};
use forebay_tubemq::master::{Identity, TopicState};

mod member;
mod partition;
mod reconnect;

use member::{Core, LEAVE, MemberState, Paused, keep_leases, keep_member};
use partition::PartitionConsumer;

/// Target of [`Consumer::seek`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// All partitions.
    All(Start),
    /// One partition.
    One(Partition, i64),
}

/// State of a partition of a consumer.
#[derive(Clone, Debug)]
pub struct PartitionState {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: Partition,
    /// Phase: registering, occupied, reading, paused or leaving.
    pub phase: Phase,
    /// Offset of the last pack, or of the next one.
    pub offset: Option<i64>,
    /// End of the store's index.
    pub max_offset: Option<i64>,
    /// Messages of the store from `offset` to the end; those of its other partitions count too.
    pub lag: Option<i64>,
    /// Bytes of the store behind the end.
    pub lag_bytes: Option<i64>,
}

/// A handle that receives. Cheap to clone; all clones are the same consumer.
#[derive(Clone, Debug)]
pub struct Consumer(Arc<Handle>);

#[derive(Debug)]
pub(crate) struct Handle {
    core: Arc<Core>,
    title: String,
    tasks: [AbortHandle; 2],
    /// The partition that is served first next time, so that none starves.
    next: AtomicUsize,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        let was_closed = self.core.closed.swap(true, Ordering::AcqRel);
        let parts = std::mem::take(&mut *self.core.parts.lock());
        for part in parts.values() {
            part.leave_quietly();
        }
        if !was_closed {
            self.core.leave_quietly();
        }
    }
}

impl registry::Shared for Consumer {
    type Inner = Handle;

    fn inner(&self) -> &Arc<Handle> {
        &self.0
    }

    fn from_inner(inner: Arc<Handle>) -> Self {
        Self(inner)
    }
}

/// With server balance a member is told its own partitions only. What the master tells producers
/// says more, but it may refuse that to a user, and it leaves out what is closed for writing: then
/// a position is not checked.
async fn check_at_master(
    shared: &Arc<Shared>,
    topics: &BTreeSet<String>,
    positions: &BTreeSet<Partition>,
) -> Result<()> {
    if shared.options.username.is_some() {
        return Ok(());
    }
    let mut known = BTreeSet::new();
    for topic in topics {
        let Ok(_published) = shared.known_topic(topic).await else { return Ok(()) };
        if let TopicState::Topic(topic) = shared.session.lock().topic(topic) {
            known.extend(topic.partitions.iter().copied());
        }
    }
    let is_open = |broker: u32| known.iter().any(|partition: &Partition| partition.broker == broker);
    let sure = |position: &&Partition| is_open(position.broker) || shared.broker(position.broker).is_none();
    check_positions(&positions.iter().filter(sure).copied().collect(), topics, &known)
}

impl Consumer {
    pub(super) async fn open(
        shared: Arc<Shared>,
        topics: Vec<String>,
        group: String,
        options: ConsumerOptions,
        events: Arc<dyn ConsumerEvents>,
    ) -> Result<Self> {
        if let Some(topic) = options.filters.keys().find(|topic| !topics.contains(topic)) {
            let text =
                format!("filters names the topic {topic:?}, which this consumer does not subscribe to");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let title = topics.join(",");
        let topics: BTreeSet<String> = topics.into_iter().collect();
        let positions: BTreeSet<Partition> = options.offsets.keys().copied().collect();
        if options.balance == Balance::Server && !positions.is_empty() {
            check_at_master(&shared, &topics, &positions).await.map_err(|e| e.with_topic(title.as_str()))?;
        }
        let client_id = format!("{group}_{}", client_id(&shared.identity.host_name));
        let member = Member::new(
            MemberOptions {
                identity: Identity { client_id: client_id.clone(), ..shared.identity.clone() },
                group: group.clone(),
                topics,
                filters: options.filters.clone(),
                balance: options.balance,
                interval: shared.options.heartbeat_interval,
                started_ms: wall_ms() as i64,
                positions,
            },
            clock::now(),
        );
        let runtime = shared.runtime.clone();
        let core = Arc::new(Core::new(
            shared,
            client_id,
            group,
            title.clone(),
            options,
            member,
            Signal::new(events),
        ));
        let tasks = [
            runtime.spawn(keep_member(Arc::downgrade(&core))).abort_handle(),
            runtime.spawn(keep_leases(Arc::downgrade(&core))).abort_handle(),
        ];
        // From here on dropping it undoes what was done.
        let consumer = Self(Arc::new(Handle { core, title, tasks, next: AtomicUsize::new(0) }));
        consumer.opened().await.map_err(|error| {
            if error.topic().is_some() { error } else { error.with_topic(consumer.0.title.as_str()) }
        })?;
        consumer.0.core.opened.store(true, Ordering::Release);
        Ok(consumer)
    }

    /// Waits until the member is registered, and with client balance until each partition has been
    /// tried.
    async fn opened(&self) -> Result<()> {
        let core = &self.0.core;
        let limit = core.shared.options.operation_timeout;
        let wait = async {
            let server = core.options.balance == Balance::Server;
            let mut state = core.state.subscribe();
            let reached = state.wait_for(|state| match state {
                MemberState::New => false,
                MemberState::Registered => server,
                MemberState::Assigned | MemberState::Closed | MemberState::Refused(_) => true,
            });
            if let Ok(reached) = reached.await
                && let MemberState::Refused(error) = &*reached
            {
                return Err(error.clone());
            }
            let parts: Vec<_> = core.parts.lock().values().cloned().collect();
            for part in parts {
                match part.tried().await {
                    // Another member holds it, or its broker is unreachable: it is tried again.
                    Err(error) if !error.retriable() => return Err(error),
                    _ => {}
                }
            }
            Ok(())
        };
        tokio::time::timeout(limit, wait).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Timeout, format!("the consumer was not registered within {limit:?}")))
        })
    }

    /// Moves up to `max` messages to `out` and returns their number; 0 when there are none now.
    pub fn take(&self, max: usize, out: &mut Vec<Message>) -> Result<usize> {
        let before = out.len();
        self.take_batch(Batch::of(max), true, out)?;
        Ok(out.len() - before)
    }

    /// Number of messages that [`Self::take`] would return now.
    pub fn available(&self) -> usize {
        self.ahead().len() + self.fetched()
    }

    /// Number of messages in the machines.
    fn fetched(&self) -> usize {
        self.0.core.parts.lock().values().map(|part| part.machine().available()).sum()
    }

    /// Asks for one [`ConsumerEvents::readable`]. Returns false, and asks for nothing, if there is
    /// something to take already: a message or the end.
    pub fn arm(&self) -> bool {
        let is_ready = || self.ahead().is_ready() || self.fetched() > 0;
        self.0.core.signal().arm(|| self.0.core.closed.load(Ordering::Acquire) || is_ready())
    }

    /// Acknowledges messages. The broker is told once all messages of a pack are acknowledged.
    pub fn ack<'a>(&self, messages: impl IntoIterator<Item = &'a Message>) -> Result<()> {
        self.check_open()?;
        self.acknowledge(messages);
        Ok(())
    }

    fn acknowledge<'a>(&self, messages: impl IntoIterator<Item = &'a Message>) {
        let now = clock::now();
        let mut messages = messages.into_iter().peekable();
        while let Some(message) = messages.next() {
            let part = self.part(message);
            let same = |other: &&Message| Arc::ptr_eq(&other.pack, &message.pack);
            let rest = std::iter::from_fn(|| messages.next_if(same));
            let Some(part) = part else {
                // Another member holds the partition now, and receives the message again.
                rest.for_each(drop);
                continue;
            };
            part.change(|machine| std::iter::once(message).chain(rest).for_each(|m| machine.ack(now, m)));
        }
    }

    /// Acknowledges a message and all before it in its partition.
    pub fn ack_cumulative(&self, message: &Message) -> Result<()> {
        self.check_open()?;
        if let Some(part) = self.part(message) {
            part.change(|machine| machine.ack_cumulative(clock::now(), message));
        }
        Ok(())
    }

    /// Negatively acknowledges messages: their packs are delivered again after `delay`, without
    /// what was acknowledged.
    pub fn nack<'a>(
        &self,
        messages: impl IntoIterator<Item = &'a Message>,
        delay: Option<Duration>,
    ) -> Result<()> {
        self.check_open()?;
        for message in messages {
            if let Some(part) = self.part(message) {
                part.change(|machine| machine.nack(clock::now(), message, delay));
                part.wake();
            }
        }
        Ok(())
    }

    /// Has everything delivered again that is not acknowledged.
    pub fn redeliver_unacknowledged(&self) -> Result<()> {
        self.check_open()?;
        for part in self.0.core.parts.lock().values() {
            part.change(|machine| machine.redeliver(clock::now()));
        }
        Ok(())
    }

    /// Moves the group in this consumer's partitions. Resolves when their brokers have confirmed.
    pub async fn seek(&self, to: SeekTo) -> Result<()> {
        self.check_open()?;
        let core = &self.0.core;
        let (parts, start): (Vec<Arc<PartitionConsumer>>, Start) = match to {
            SeekTo::All(start) => (core.parts.lock().values().cloned().collect(), start),
            SeekTo::One(partition, offset) => {
                let parts = core.parts.lock();
                let mut own = parts.iter().filter(|((_, known), _)| *known == partition);
                let part = own.next().map(|(_, part)| Arc::clone(part)).ok_or_else(|| {
                    let text = format!(
                        "this consumer does not hold partition {}:{}",
                        partition.broker, partition.id
                    );
                    Error::new(ErrorKind::InvalidArgument, text)
                })?;
                if own.next().is_some() {
                    let text = "several topics have this partition: use a consumer of one topic to seek";
                    return Err(Error::new(ErrorKind::InvalidArgument, text));
                }
                (vec![part], Start::Offset(offset))
            }
        };
        let limit = core.shared.options.operation_timeout;
        let seek = async {
            for part in parts {
                part.seek(start).await?;
            }
            Ok(())
        };
        tokio::time::timeout(limit, seek).await.unwrap_or_else(|_| {
            Err(Error::new(
                ErrorKind::Timeout,
                format!("the brokers did not confirm the seek within {limit:?}"),
            ))
        })
    }

    /// Stops fetching from partitions, or resumes; `None` means all, also those assigned later.
    /// Fetched messages are still delivered, and the partitions stay held.
    pub fn set_paused(&self, partitions: Option<&[Partition]>, paused: bool) -> Result<()> {
        self.check_open()?;
        let core = &self.0.core;
        let parts = core.parts.lock();
        if let Some(strange) = partitions.into_iter().flatten().find(|p| !parts.keys().any(|(_, k)| k == *p))
        {
            let text = format!("this consumer does not hold partition {}:{}", strange.broker, strange.id);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        {
            let mut state = core.paused.lock();
            match partitions {
                None => *state = Paused { all: paused, some: BTreeSet::new() },
                Some(partitions) if paused => state.some.extend(partitions),
                Some(partitions) => {
                    if std::mem::take(&mut state.all) {
                        state.some.extend(parts.keys().map(|(_, partition)| *partition));
                    }
                    state.some.retain(|partition| !partitions.contains(partition));
                }
            }
        }
        for ((_, partition), part) in parts.iter() {
            let paused = core.is_paused(*partition);
            part.change(|machine| machine.set_paused(paused));
            part.wake();
        }
        Ok(())
    }

    /// State of each partition.
    pub fn partitions(&self) -> Vec<PartitionState> {
        let parts = self.0.core.parts.lock();
        let state = |((topic, partition), part): (&(Arc<str>, Partition), &Arc<PartitionConsumer>)| {
            let machine = part.machine();
            let (offset, max_offset) = (machine.offset(), machine.max_offset());
            let lag = offset.zip(max_offset).map(|(offset, max)| ((max - offset) / INDEX_UNIT).max(0));
            PartitionState {
                topic: Arc::clone(topic),
                partition: *partition,
                phase: machine.phase(),
                offset,
                max_offset,
                lag,
                lag_bytes: machine.behind(),
            }
        };
        parts.iter().map(state).collect()
    }

    /// Whether the brokers of all partitions that are assigned to it serve it now; without a
    /// partition, whether the master has it in the group.
    pub fn is_connected(&self) -> bool {
        let core = &self.0.core;
        if core.closed.load(Ordering::Acquire) {
            return false;
        }
        let parts: Vec<_> = core.parts.lock().values().cloned().collect();
        if parts.is_empty() {
            return matches!(*core.state.borrow(), MemberState::Registered | MemberState::Assigned);
        }
        parts.iter().all(|part| part.is_connected())
    }

    /// Leaves the group: other members can take the partitions at once, and receive what was not
    /// acknowledged. All servers together have three seconds to answer, and at most the operation
    /// timeout.
    pub async fn close(&self) -> Result<()> {
        let core = &self.0.core;
        if core.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.ahead().close();
        let until = clock::now() + LEAVE.min(core.shared.options.operation_timeout);
        // The master, which is asked last, gets a part of the time.
        let patience = until.saturating_duration_since(clock::now()).mul_f64(0.8);
        let parts: Vec<_> = std::mem::take(&mut *core.parts.lock()).into_values().collect();
        let mut leaving = tokio::task::JoinSet::new();
        for part in parts {
            leaving.spawn(async move { part.leave(patience).await });
        }
        leaving.join_all().await;
        core.member.lock().close(clock::now());
        core.due.notify_one();
        let mut state = core.state.subscribe();
        let gone = state.wait_for(|state| matches!(state, MemberState::Closed | MemberState::Refused(_)));
        // A master that cannot be reached forgets the member by itself.
        let _ = tokio::time::timeout_at(until.into(), gone).await;
        self.0.tasks.iter().for_each(AbortHandle::abort);
        core.signal().end(Error::new(ErrorKind::Closed, "the consumer is closed"));
        Ok(())
    }

    /// The topics, joined by commas.
    pub fn topic(&self) -> &str {
        &self.0.title
    }

    /// The group.
    pub fn subscription(&self) -> &str {
        &self.0.core.group
    }

    fn part(&self, message: &Message) -> Option<Arc<PartitionConsumer>> {
        let location = &message.pack.location;
        self.0.core.parts.lock().get(&(Arc::clone(&location.topic), location.partition)).cloned()
    }

    fn check_open(&self) -> Result<()> {
        if self.0.core.closed.load(Ordering::Acquire) {
            let error = Error::new(ErrorKind::Closed, "the consumer is closed");
            return Err(error.with_topic(self.0.title.as_str()));
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
        // Another member that holds the partition receives the message again.
        if let Some(part) = self.part(&message) {
            part.change(|machine| {
                let acknowledged = self.0.core.options.auto_ack;
                if machine.has_delivered(&message) && !machine.is_revoked(&message, acknowledged) {
                    // Of a closed consumer, the broker delivers it again.
                    let _ = self.ahead().give_back(message, acknowledged);
                }
            });
        }
    }

    #[inline]
    fn ahead(&self) -> &Ahead<Message> {
        &self.0.core.fetched.ahead
    }

    fn fill(&self, max: usize, out: &mut impl Extend<Message>) -> Result<usize> {
        self.check_open()?;
        let parts = self.0.core.parts.lock();
        let count = parts.len();
        let mut taken = 0;
        if count > 0 {
            let first = self.0.next.fetch_add(1, Ordering::Relaxed) % count;
            for part in parts.values().skip(first).chain(parts.values().take(first)) {
                if taken >= max {
                    break;
                }
                taken += part.change(|machine| machine.take(max - taken, out));
            }
        }
        drop(parts);
        if taken == 0 {
            return self.0.core.signal().ended().map_or(Ok(0), Err);
        }
        Ok(taken)
    }

    #[inline]
    fn handed_out(&self, messages: &[Message]) {
        if self.0.core.options.auto_ack {
            self.acknowledge(messages);
        }
    }

    /// Otherwise no batch could be larger than a pack.
    fn gathered(&self) {
        if self.0.core.options.auto_ack {
            self.acknowledge(&self.ahead().gather(Message::clone));
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
        self.pack.redelivered > 0
    }
}
