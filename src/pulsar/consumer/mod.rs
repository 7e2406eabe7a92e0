//! A consumer, without its connection.
//!
//! ```text
//!            attach: one full FLOW          begin_seek
//!   Detached ─────────────────────► Attached ─────────► Seeking
//!      ▲                              │  ▲  abort_seek     │ end_seek: new filter
//!      └──────────────────────────────┘  └─────────────────┤
//!                 detach: queue dropped, permits void      │
//!      ▲────────────────────────────────────────────────────┘
//! ```
//! **Permits.** The unit is a message. The broker charges an entry its size less the messages of it that
//! are already acknowledged; the consumer gives a permit back when a message is taken, or dropped here
//! (a duplicate, before the start, compacted out, broken). At any time granted = charged + outstanding, and
//! outstanding may be below zero by one batch less one. All of it is void when the connection ends.
//!
//! * `acks`: what is acknowledged and not yet sent
//! * `chunks`: messages in several entries
//! * `entry`: from entries to messages
//!
//! Poll order of the owner: [`Consumer::handle_timeout`], [`Consumer::poll_transmit`],
//! [`Consumer::poll_timeout`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result};
use crate::machine::earliest;
use crate::pulsar::command::Command;
use crate::pulsar::frame::{DEFAULT_MAX_MESSAGE_SIZE, Payload, encode_command};
use crate::pulsar::message::{Message, MessageId};
use crate::pulsar::pb::command_subscribe::SubType;
use crate::pulsar::{hot, pb};
use crate::transmit::Transmit;

mod acks;
mod chunks;
mod entry;

use acks::{AckGroup, Acks, Entry, order};
use chunks::{Chunks, PATIENCE};

/// What a consumer is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Type of the subscription.
    pub kind: SubType,
    /// Whether the broker keeps the position; if not, this consumer does.
    pub durable: bool,
    /// Messages fetched ahead.
    pub receiver_queue: u32,
    /// Acknowledges single messages of a batch.
    pub batch_index_ack: bool,
    /// How long acknowledgements are gathered.
    pub ack_group_time: Duration,
    /// How many are gathered at most.
    pub ack_group_max: usize,
    /// When a nacked message is asked for again.
    pub nack_delay: Duration,
    /// The message to start at.
    pub start: Option<MessageId>,
    /// Whether `start` itself is given.
    pub start_inclusive: bool,
    /// Full name of the topic, with its partition.
    pub topic: Arc<str>,
    /// The partition, -1 for a plain topic.
    pub partition: i32,
    /// Largest message, uncompressed, that is not chunked.
    pub max_message_size: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            kind: SubType::Exclusive,
            durable: true,
            receiver_queue: 1000,
            batch_index_ack: true,
            ack_group_time: Duration::from_millis(100),
            ack_group_max: 1000,
            nack_delay: Duration::from_secs(60),
            start: None,
            start_inclusive: false,
            topic: "".into(),
            partition: -1,
            max_message_size: DEFAULT_MAX_MESSAGE_SIZE,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Detached,
    Attached,
    Seeking,
}

/// Messages before this one are not given.
#[derive(Clone, Copy, Debug)]
struct Start {
    id: MessageId,
    inclusive: bool,
}

impl Start {
    fn admits(&self, id: &MessageId) -> bool {
        match order(id.entry_id()).cmp(&order(self.id.entry_id())) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Greater => true,
            // The id of a whole entry stands for all messages in it.
            std::cmp::Ordering::Equal if self.id.batch_index < 0 => self.inclusive,
            std::cmp::Ordering::Equal => {
                id.batch_index > self.id.batch_index
                    || (self.inclusive && id.batch_index == self.id.batch_index)
            }
        }
    }
}

/// Permits of one connection.
#[derive(Debug, Default)]
struct Permits {
    granted: u64,
    charged: u64,
    /// Given back by taking or dropping, not granted anew yet.
    returned: u32,
}

/// The consumer of one partition.
#[derive(Debug)]
pub struct Consumer {
    id: u64,
    options: Options,
    state: State,
    start: Option<Start>,
    queue: VecDeque<Message>,
    permits: Permits,
    acks: Acks,
    ack_due: Option<Instant>,
    chunks: Chunks,
    /// The other entries of a chunked message, by its last.
    chunked: BTreeMap<Entry, Vec<Entry>>,
    nacks: BTreeMap<Instant, BTreeSet<Entry>>,
    /// To be written as they are.
    immediate: VecDeque<Command>,
    last_taken: Option<MessageId>,
    /// Name of the producer of the last entry.
    last_producer: Arc<str>,
}

impl Consumer {
    /// A consumer that `consumer_id` names on every connection.
    pub fn new(consumer_id: u64, options: Options) -> Self {
        Self {
            id: consumer_id,
            state: State::Detached,
            start: options.start.map(|id| Start { id, inclusive: options.start_inclusive }),
            queue: VecDeque::new(),
            permits: Permits::default(),
            acks: Acks::new(options.batch_index_ack),
            ack_due: None,
            chunks: Chunks::default(),
            chunked: BTreeMap::new(),
            nacks: BTreeMap::new(),
            immediate: VecDeque::new(),
            last_taken: None,
            last_producer: "".into(),
            options,
        }
    }

    /// The broker has subscribed it: grants a full queue, once.
    pub fn attach(&mut self, _now: Instant) {
        self.state = State::Attached;
        self.permits = Permits::default();
        self.grant(self.options.receiver_queue.max(1));
    }

    /// The connection ended or the broker closed the consumer. What was not taken comes again, what was
    /// not acknowledged too; acknowledgements that wait are kept.
    pub fn detach(&mut self) {
        self.state = State::Detached;
        self.queue.clear();
        self.chunks.drop_pieces();
        self.permits = Permits::default();
        self.immediate.clear();
        // The broker gives everything out again by itself: asking later would bring it twice.
        self.nacks.clear();
        if !self.options.durable
            && let Some(id) = self.last_taken
        {
            self.start = Some(Start { id, inclusive: false });
        }
    }

    /// Whether it is subscribed.
    pub fn is_attached(&self) -> bool {
        self.state != State::Detached
    }

    /// Where a consumer whose position the broker does not keep goes on.
    pub fn resume_position(&self) -> Option<MessageId> {
        if self.options.durable { None } else { self.last_taken.or(self.start.map(|start| start.id)) }
    }

    /// Takes an entry. An error means that it was broken: it has been put away at the broker.
    pub fn handle_message(&mut self, now: Instant, delivery: hot::Delivery, payload: Payload) -> Result<()> {
        let result = self.take_entry(now, delivery, payload);
        if self.acks.is_cut() {
            self.hold_acks(now);
        }
        // Some of it may have been acknowledged before.
        self.arm_acks(now);
        result
    }

    /// Moves up to `max` messages to `out` and gives their number.
    pub fn take<M: From<Message>>(&mut self, max: usize, out: &mut Vec<M>) -> usize {
        let n = max.min(self.queue.len());
        if n > 0 {
            self.last_taken = Some(self.queue[n - 1].id);
            out.extend(self.queue.drain(..n).map(M::from));
            self.give_back(n as u32);
        }
        n
    }

    /// Number of messages that can be taken.
    pub fn available(&self) -> usize {
        self.queue.len()
    }

    /// Acknowledges one message.
    pub fn ack(&mut self, now: Instant, id: &MessageId) {
        self.acknowledge(id);
        if self.acks.is_cut() {
            self.hold_acks(now);
        }
        self.arm_acks(now);
    }

    fn acknowledge(&mut self, id: &MessageId) {
        for first in self.chunked.remove(&id.entry_id()).into_iter().flatten() {
            self.acks.individual(&MessageId::new(first.0, first.1));
        }
        self.acks.individual(id);
    }

    /// Acknowledges this message and all before it. A chunked message that begins before it and ends behind it is
    /// not touched: while it is incomplete or unacknowledged, the broker is told only of what is before it.
    pub fn ack_cumulative(&mut self, now: Instant, id: &MessageId) -> Result<()> {
        self.check_cumulative()?;
        self.acks.cumulative(id)?;
        self.chunked.retain(|entry, _| order(*entry) > order(id.entry_id()));
        self.hold_acks(now);
        self.arm_acks(now);
        Ok(())
    }

    /// Acknowledgements leave out what chunked messages begin with that are incomplete, or complete and not
    /// acknowledged.
    fn hold_acks(&mut self, now: Instant) {
        if self.acks.is_cumulative() {
            let complete = self.chunked.values().flatten().copied();
            let incomplete = self.chunks.first_held(now);
            self.acks.hold(complete.chain(incomplete).min_by_key(|entry| order(*entry)));
        }
    }

    /// Acknowledges `ids` and gives the ACK to be sent for them at once, its request id to be filled in.
    /// `None` when the broker is told of it later: of parts of batches when they are whole, of what is behind the
    /// beginning of a chunked message when that is acknowledged.
    pub fn receipt_ack(
        &mut self,
        now: Instant,
        ids: &[MessageId],
        cumulative: bool,
    ) -> Result<Option<hot::Ack>> {
        if cumulative {
            self.check_cumulative()?;
            for id in ids {
                self.acks.cumulative(id)?;
                self.chunked.retain(|entry, _| order(*entry) > order(id.entry_id()));
            }
            self.hold_acks(now);
        }
        let mut all = ids.to_vec();
        for id in ids {
            let others = self.chunked.remove(&id.entry_id()).into_iter().flatten();
            all.extend(others.map(|(ledger, entry)| MessageId::new(ledger, entry)));
        }
        Ok(self.acks.take_for(&all, cumulative)?.map(|group| self.ack_command(group)))
    }

    /// Gives a message back: its entry comes again after `delay`.
    pub fn nack(&mut self, now: Instant, id: &MessageId, delay: Option<Duration>) {
        let due = now + delay.unwrap_or(self.options.nack_delay);
        let entries = self.nacks.entry(due).or_default();
        entries.insert(id.entry_id());
        // All chunks must come again for the message to.
        let others = self.chunked.remove(&id.entry_id()).unwrap_or_default();
        for entry in &others {
            self.chunks.hold(*entry, due + PATIENCE);
        }
        entries.extend(others);
    }

    /// Asks for everything again that is not acknowledged, what waits in the queue included.
    pub fn redeliver_unacknowledged(&mut self, _now: Instant) {
        self.nacks.clear();
        if self.state == State::Attached {
            self.redeliver(Vec::new());
        }
    }

    /// Sends what is gathered with the next transmit.
    pub fn flush_acks(&mut self) {
        if self.acks.waiting() > 0 {
            self.queue_acks();
        }
    }

    /// A SEEK is being sent: what arrives from now on belongs to the old position.
    pub fn begin_seek(&mut self) {
        self.flush_acks();
        let dropped = self.queue.len() as u32;
        self.queue.clear();
        self.give_back(dropped);
        if self.state == State::Attached {
            self.state = State::Seeking;
        }
    }

    /// The broker has moved the subscription: behind `target`, or with `inclusive` to it.
    pub fn end_seek(&mut self, target: Option<MessageId>, inclusive: bool) {
        self.acks.clear();
        self.ack_due = None;
        self.chunks.clear();
        self.chunked.clear();
        self.nacks.clear();
        self.last_taken = None;
        let exact = target.filter(|id| *id != MessageId::EARLIEST && *id != MessageId::LATEST);
        self.start = exact.map(|id| Start { id, inclusive });
    }

    /// The SEEK failed: what was dropped meanwhile must come again.
    pub fn abort_seek(&mut self) {
        if self.state == State::Seeking {
            self.state = State::Attached;
            self.redeliver(Vec::new());
        }
    }

    /// Lets what is due be sent.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.acks.is_cut() {
            self.hold_acks(now);
            self.arm_acks(now);
        }
        if self.ack_due.is_some_and(|due| due <= now) {
            self.flush_acks();
        }
        if self.state != State::Attached {
            return;
        }
        let mut due = BTreeSet::new();
        while let Some(first) = self.nacks.first_entry()
            && *first.key() <= now
        {
            due.extend(first.remove());
        }
        if !due.is_empty() {
            // The whole entry comes again: once is enough.
            self.nacks.retain(|_, later| {
                later.retain(|entry| !due.contains(entry));
                !later.is_empty()
            });
            // Otherwise the broker would give acknowledged messages of the same batch again.
            self.flush_acks();
            self.redeliver(due.into_iter().collect());
        }
    }

    /// When something is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.state == State::Detached {
            return None;
        }
        let nacks = self.nacks.first_key_value().map(|(due, _)| *due);
        let lapse = if self.acks.is_cut() { self.chunks.next_lapse() } else { None };
        earliest(earliest(self.ack_due, nacks), lapse)
    }

    /// Whether [`Self::poll_transmit`] has something to write.
    pub fn wants_transmit(&self) -> bool {
        self.state != State::Detached && (!self.immediate.is_empty() || self.flow_is_due())
    }

    /// Writes ACK, REDELIVER and FLOW frames that are due.
    pub fn poll_transmit(&mut self, _now: Instant, out: &mut Transmit) {
        if self.state == State::Detached {
            return;
        }
        if self.flow_is_due() {
            let returned = self.permits.returned;
            self.permits.returned = 0;
            self.grant(returned);
        }
        while let Some(command) = self.immediate.pop_front() {
            out.append(|buffer| encode_command(&command, buffer));
        }
    }

    /// Messages granted and not charged yet; below zero by at most a batch less one.
    pub fn outstanding_permits(&self) -> i64 {
        self.permits.granted as i64 - self.permits.charged as i64
    }

    fn flow_is_due(&self) -> bool {
        self.permits.returned > 0 && self.permits.returned >= self.options.receiver_queue / 2
    }

    fn grant(&mut self, permits: u32) {
        self.permits.granted += u64::from(permits);
        self.immediate.push_back(Command::Flow(hot::Flow { consumer_id: self.id, permits }));
    }

    fn give_back(&mut self, count: u32) {
        self.permits.returned += count;
        debug_assert!(
            self.state == State::Detached
                || u64::from(self.permits.returned) + self.queue.len() as u64 <= self.permits.charged,
            "more permits returned than the broker charged"
        );
    }

    fn arm_acks(&mut self, now: Instant) {
        let waiting = self.acks.waiting();
        if waiting == 0 {
            return;
        }
        if waiting >= self.options.ack_group_max {
            self.flush_acks();
        } else if self.ack_due.is_none() {
            self.ack_due = Some(now + self.options.ack_group_time);
        }
    }

    /// Moves the gathered acknowledgements to what is written next. While detached they stay gathered.
    fn queue_acks(&mut self) {
        if self.state == State::Detached {
            return;
        }
        self.ack_due = None;
        for group in self.acks.take() {
            let command = Command::Ack(self.ack_command(group));
            self.immediate.push_back(command);
        }
    }

    fn ack_command(&self, group: AckGroup) -> hot::Ack {
        hot::Ack {
            consumer_id: self.id,
            ack_type: group.ack_type,
            message_ids: group.ids,
            ..hot::Ack::default()
        }
    }

    fn check_cumulative(&self) -> Result<()> {
        match self.options.kind {
            SubType::Exclusive | SubType::Failover => Ok(()),
            SubType::Shared | SubType::KeyShared => Err(Error::new(
                ErrorKind::NotAllowed,
                "a cumulative acknowledgement needs an exclusive or failover subscription",
            )),
        }
    }

    /// Asks for `entries` again; for none in particular means all. Exclusive and Failover subscriptions
    /// know only all: the broker ignores a list there.
    fn redeliver(&mut self, entries: Vec<Entry>) {
        let listed = matches!(self.options.kind, SubType::Shared | SubType::KeyShared) && !entries.is_empty();
        // What waits here comes again with the rest of its entry.
        let before = self.queue.len();
        self.queue.retain(|message| listed && !entries.contains(&message.id.entry_id()));
        self.give_back((before - self.queue.len()) as u32);
        let message_ids = if listed { entries } else { Vec::new() }
            .into_iter()
            .map(|(ledger_id, entry_id)| hot::IdData { ledger_id, entry_id, ..Default::default() })
            .collect();
        self.immediate.push_back(Command::RedeliverUnacknowledgedMessages(
            pb::CommandRedeliverUnacknowledgedMessages {
                consumer_id: self.id,
                message_ids,
                consumer_epoch: None,
            },
        ));
    }
}

#[cfg(test)]
mod tests;
