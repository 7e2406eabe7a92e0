//! A consumer, independent of its connection.
//!
//! ```text
//!            attach: one full FLOW          begin_seek
//!   Detached ─────────────────────► Attached ─────────► Seeking
//!      ▲                              │  ▲  abort_seek     │ end_seek: new filter
//!      └──────────────────────────────┘  └─────────────────┤
//!                 detach: queue dropped, permits void      │
//!      ▲────────────────────────────────────────────────────┘
//! ```
//! **Permits.** The unit is a message. For each entry the broker charges its number of messages
//! less those already acknowledged; the consumer returns a permit when a message is taken, or
//! dropped here (duplicate, before the start, compacted out, corrupt). At any time granted =
//! charged + outstanding, and outstanding may fall below zero by at most one batch less one. All
//! permits lapse when the connection ends. A paused consumer grants none, and one without a queue
//! grants one when it is wanted.
//!
//! * `acks`: acknowledgements that have not been sent
//! * `chunks`: messages in several entries; `chunked`: their acknowledgement
//! * `permits`: how many messages the broker may deliver
//! * `seek`: the position
//! * `entry`: splitting of entries into messages
//! * `expired`: messages at the end of their redeliveries
//! * `recalls`: deliveries that are revoked, because their entries were requested again or are dead
//! * `unacked`: messages whose acknowledgement has a time limit
//! * `backoff`: delays that grow with the redeliveries of a message
//!
//! The owner polls in this order: [`Consumer::handle_timeout`], [`Consumer::poll_transmit`],
//! [`Consumer::poll_timeout`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::command::Command;
use crate::frame::{Payload, encode_command};
use crate::message::{Message, MessageId, Origin};
use crate::pb::command_subscribe::SubType;
use crate::schema::{Wanted, Writers, is_ready};
use crate::{hot, pb};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::machine::earliest;
use forebay_base::transmit::Transmit;

mod acks;
mod backoff;
mod chunked;
mod chunks;
mod entry;
mod expired;
mod options;
mod permits;
mod recalls;
mod seek;
mod unacked;

use acks::{AckGroup, Acks, Entry, order};
pub use backoff::Backoff;
use chunks::Chunks;
pub use chunks::{GivenUp, Limits as ChunkLimits, Reason};
pub use expired::DeadLetter;
use expired::ExpiredDeliveries;
pub use options::{Counts, Options, Unreadable};
pub use permits::FIRST_PERMITS;
use permits::{Permits, Stopwatch, Window};
use recalls::Recalls;
use seek::{Dropped, Sought, Start};
use unacked::Unacked;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Detached,
    Attached,
    Seeking,
}

/// Consumer of one partition.
#[derive(Debug)]
pub struct Consumer {
    id: u64,
    options: Options,
    state: State,
    start: Option<Start>,
    dropped: Dropped,
    queue: VecDeque<Message>,
    permits: Permits,
    window: Window,
    stopwatch: Stopwatch,
    /// Whether no permits are granted.
    paused: bool,
    /// Whether the application waits for a message. Of interest without a queue.
    wanted: bool,
    acks: Acks,
    ack_due: Option<Instant>,
    chunks: Chunks,
    /// Other entries of each chunked message, by its last entry.
    chunked: BTreeMap<Entry, Vec<Entry>>,
    /// The same of the latest that were acknowledged or negatively acknowledged.
    settled: VecDeque<(Entry, Vec<Entry>)>,
    nacks: BTreeMap<Instant, BTreeSet<Entry>>,
    /// Messages that the application has, if their acknowledgement has a time limit.
    unacked: Option<Unacked>,
    /// Messages at the end of their redeliveries, if these have a limit.
    expired: Option<ExpiredDeliveries>,
    recalls: Recalls,
    counts: Counts,
    /// First entry that could not be read and stays unacknowledged.
    unreadable: Option<Entry>,
    /// Whether an entry that could not be read has ended the consumer.
    failed: bool,
    /// Number of seeks.
    moves: u64,
    /// Counts the requests for everything again, on Exclusive and Failover subscriptions. The
    /// broker states the last that it has seen with each message: one with an older number was on
    /// its way before, and comes again.
    epoch: u64,
    /// Whether the broker has closed the consumer since it was attached.
    closed: bool,
    /// Whether the broker has told that the topic has ended.
    at_end: bool,
    /// Whether it was when the latest seek began.
    was_at_end: bool,
    /// Commands to be written as they are.
    immediate: VecDeque<Command>,
    last_taken: Option<MessageId>,
    /// The latest entry that has arrived on this connection and from this position, whatever became
    /// of it.
    last_arrived: Option<Entry>,
    /// Target of the latest seek, if it named no message.
    sought: Option<Sought>,
    /// Origin of the last entry.
    last_origin: Arc<Origin>,
    /// Schemas of the messages, if they are read by them.
    writers: Option<Writers>,
}

impl Consumer {
    /// Creates a consumer that has id `consumer_id` on every connection.
    pub fn new(consumer_id: u64, options: Options) -> Self {
        Self {
            id: consumer_id,
            state: State::Detached,
            start: options.start.map(|id| Start::new(id, options.start_inclusive)),
            dropped: Dropped::default(),
            queue: VecDeque::new(),
            permits: Permits::default(),
            window: Window::new(&options),
            stopwatch: Stopwatch::default(),
            paused: false,
            wanted: false,
            acks: Acks::new(options.batch_index_ack),
            ack_due: None,
            chunks: Chunks::new(options.chunked, !lists_redeliveries(options.kind)),
            chunked: BTreeMap::new(),
            settled: VecDeque::new(),
            nacks: BTreeMap::new(),
            unacked: options.ack_timeout.map(Unacked::new),
            expired: options
                .max_redeliveries
                .filter(|_| lists_redeliveries(options.kind))
                .map(|max| ExpiredDeliveries::new(max, options.receive_buffer)),
            recalls: Recalls::default(),
            counts: Counts::default(),
            unreadable: None,
            failed: false,
            moves: 0,
            epoch: 0,
            closed: false,
            at_end: false,
            was_at_end: false,
            immediate: VecDeque::new(),
            last_taken: None,
            last_arrived: None,
            sought: None,
            last_origin: Arc::new(Origin { topic: Arc::clone(&options.topic), producer_name: "".into() }),
            writers: options.codec.as_deref().map(Writers::new),
            options,
        }
    }

    /// Handles the subscription's success: grants permits for a full queue, once. Acknowledgements
    /// that wait go ahead of them, so that the broker does not deliver those messages again.
    ///
    /// After [`Self::closed_by_broker`] all acknowledgements are forgotten instead. What the broker
    /// does not say is why: the position may have been moved back, and then a cumulative
    /// acknowledgement of before would move it forward again, past messages that are to be
    /// delivered. If it was for another reason, what was not written is delivered again.
    pub fn attach(&mut self) {
        if std::mem::take(&mut self.closed) {
            self.acks.clear();
            self.ack_due = None;
        }
        if let Some(writers) = &mut self.writers {
            writers.clear();
        }
        self.state = State::Attached;
        self.permits = Permits::default();
        if let Some(expired) = &mut self.expired {
            expired.attached();
        }
        self.flush_acks();
        let due = self.due_permits();
        if due > 0 {
            self.grant(due);
        }
    }

    /// [`Self::attach`] for a topic that another broker has served until now. If that broker closed
    /// the consumer, it was to unload the topic: the position is where it was, and the
    /// acknowledgements are kept.
    pub fn attach_elsewhere(&mut self) {
        self.closed = false;
        self.attach();
    }

    /// Handles the end of the connection. Messages not taken or not acknowledged will be
    /// redelivered; acknowledgements that were not written are kept. Without a durable
    /// subscription, what was taken counts as read.
    pub fn detach(&mut self) {
        self.state = State::Detached;
        self.at_end = false;
        let first = self.queue.front().map(|message| Start::new(message.id, true));
        self.queue.clear();
        self.last_arrived = None;
        self.chunks.drop_pieces();
        self.permits = Permits::default();
        for command in std::mem::take(&mut self.immediate) {
            // One with a reason is for an entry that is judged again when it comes again.
            if let Command::Ack(ack) = command
                && ack.validation_error.is_none()
            {
                self.acks.put_back(ack.ack_type, &ack.message_ids);
            }
        }
        // The broker redelivers everything by itself; requesting it as well would deliver it twice.
        self.nacks.clear();
        self.forget_unacked();
        self.forget_dropped();
        if let Some(expired) = &mut self.expired {
            expired.all_come_again();
        }
        if !self.options.durable {
            self.start = self.read().or(first);
            return;
        }
        // What was taken and not handed out comes again.
        self.recalls.recall_all();
        self.last_taken = None;
        if self.start.is_some_and(|start| start.reached) {
            // From now on the broker has the position, wherever others may move it.
            self.start = None;
        }
    }

    /// Handles a CLOSE_CONSUMER. The broker closes the consumers of a subscription whose position
    /// is moved, by another consumer or by an administrator, and those of a topic that is unloaded.
    pub fn closed_by_broker(&mut self) {
        self.detach();
        self.closed = true;
    }

    /// Whether the consumer is subscribed on a connection.
    pub fn is_attached(&self) -> bool {
        self.state != State::Detached
    }

    /// Handles an entry. An error means that it cannot be read; the policy says what became of it.
    pub fn handle_message(&mut self, now: Instant, delivery: hot::Delivery, payload: Payload) -> Result<()> {
        if self.failed {
            // Messages behind the entry that ended the consumer are for the next one.
            return Ok(());
        }
        let epoch = delivery.consumer_epoch;
        let entry = MessageId::from(&delivery.message_id).entry_id();
        if self.state == State::Attached && self.last_arrived.is_none_or(|last| order(last) < order(entry)) {
            self.last_arrived = Some(entry);
        }
        let result = self.take_entry(now, delivery, payload);
        self.arm_dropped(now, epoch);
        self.look_at_permits(now);
        if self.acks.is_held_back() {
            self.hold_acks(now);
        }
        // Some messages may have been acknowledged before.
        self.arm_acks(now);
        result
    }

    /// Moves up to `max` messages to `out` and returns their number. Until the application has
    /// them, [`Self::take_revoked`] says whether to drop some of them.
    pub fn take(&mut self, max: usize, out: &mut impl Extend<Message>) -> usize {
        let n = self.ready(max);
        if n > 0 {
            self.wanted = false;
            self.last_taken = Some(self.queue[n - 1].id);
            out.extend(self.queue.drain(..n));
            self.give_back(n as u32);
        }
        n
    }

    /// Starts the acknowledgement timeout of a message that was taken: the application gets it now.
    pub fn handed_out(&mut self, now: Instant, message: &Message) {
        // After the end of the connection the broker delivers it again by itself.
        if let (Some(unacked), true) = (&mut self.unacked, self.state == State::Attached)
            && !self.acks.contains(&message.id)
        {
            unacked.handed_out(now, &message.id, message.entry.redelivery_count);
        }
    }

    /// Whether deliveries were revoked since the last call: the owner drops messages for which
    /// [`Self::is_revoked`] is true.
    pub fn take_revoked(&mut self) -> bool {
        self.recalls.take_news()
    }

    /// Whether a message came from this partition and its delivery is revoked: the message comes
    /// again, or is dead, or lies before the new position.
    pub fn is_revoked(&self, message: &Message) -> bool {
        self.has_delivered(message) && self.recalls.covers(message)
    }

    /// Whether a message came from this partition.
    pub fn has_delivered(&self, message: &Message) -> bool {
        Arc::ptr_eq(message.entry.topic(), &self.options.topic)
    }

    fn forget_unacked(&mut self) {
        if let Some(unacked) = &mut self.unacked {
            unacked.clear();
        }
    }

    /// Ends the acknowledgement timeout of a message, which is being sent to another topic.
    pub fn taken_over(&mut self, id: &MessageId) {
        self.settle_unacked(id);
    }

    /// Ends what waits for the acknowledgement of a message.
    fn settle(&mut self, id: &MessageId) {
        self.settle_unacked(id);
        if let Some(expired) = &mut self.expired {
            expired.acknowledged(id);
        }
    }

    /// Ends the acknowledgement timeout of a message.
    fn settle_unacked(&mut self, id: &MessageId) {
        if let Some(unacked) = &mut self.unacked {
            unacked.settle(id);
        }
    }

    /// Ends the acknowledgement timeouts of a message and of all before it.
    fn settle_unacked_through(&mut self, id: &MessageId) {
        if let Some(unacked) = &mut self.unacked {
            unacked.settle_through(id);
        }
    }

    /// Whether an entry that could not be read has ended the consumer.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// A SUBSCRIBE is about to be sent: the broker tells again, maybe before its answer is handled,
    /// that the topic has ended.
    pub fn begin_subscribe(&mut self) {
        self.at_end = false;
    }

    /// Handles a REACHED_END_OF_TOPIC: the topic is terminated, and everything acknowledged.
    pub fn reached_end(&mut self) {
        self.at_end = true;
    }

    /// Whether the topic has ended and nothing waits to be taken.
    pub fn is_at_end(&self) -> bool {
        self.at_end && self.queue.is_empty()
    }

    /// Number of messages that can be taken.
    pub fn available(&self) -> usize {
        self.ready(usize::MAX)
    }

    /// Whether there is a message that can be taken.
    pub fn has_ready(&self) -> bool {
        self.ready(1) == 1
    }

    /// Number of messages up to the first whose schema is not known yet, at most `max`. Looks at no
    /// more than these.
    fn ready(&self, max: usize) -> usize {
        if self.writers.is_none() {
            return max.min(self.queue.len());
        }
        self.queue
            .iter()
            .take(max)
            .take_while(|message| is_ready(message.entry.rare().writer.as_ref()))
            .count()
    }

    /// The next version of a schema that the broker is to be asked for.
    pub fn next_wanted(&mut self) -> Option<Wanted> {
        self.writers.as_mut()?.next_wanted()
    }

    /// Checks that a message can be acknowledged by this id.
    pub fn check_ack(&self, id: &MessageId) -> Result<()> {
        if id.batch_index < 0 || id.batch_size > 0 || self.acks.knows_batch(id) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "the message id {id} lacks the batch size, without which its batch cannot be acknowledged in part: use \
                 the message itself or an id stored with to_bytes()"
            ),
        ))
    }

    /// Acknowledges one message.
    pub fn ack(&mut self, now: Instant, id: &MessageId) {
        self.acknowledge(id);
        if self.acks.is_held_back() {
            self.hold_acks(now);
        }
        self.arm_acks(now);
    }

    fn acknowledge(&mut self, id: &MessageId) {
        self.settle(id);
        for first in self.settle_chunks(id) {
            self.acks.individual(&MessageId::new(first.0, first.1));
        }
        self.acks.individual(id);
    }

    /// Acknowledges this message and all before it. A chunked message that begins before it and
    /// ends after it is not affected: while that is incomplete or unacknowledged, only what
    /// precedes it is acknowledged at the broker.
    pub fn ack_cumulative(&mut self, now: Instant, id: &MessageId) -> Result<()> {
        self.check_cumulative()?;
        self.acks.cumulative(id)?;
        self.settle_unacked_through(id);
        self.chunked.retain(|entry, _| order(*entry) > order(id.entry_id()));
        self.hold_acks(now);
        self.arm_acks(now);
        Ok(())
    }

    /// Acknowledges `ids` and returns the ACK to be sent for them immediately; the caller fills in
    /// its request id. `None` if the broker is told later: for parts of a batch when the batch is
    /// complete, for what follows the start of a chunked message when that message is acknowledged.
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
                self.settle_unacked_through(id);
                self.chunked.retain(|entry, _| order(*entry) > order(id.entry_id()));
            }
            self.hold_acks(now);
        }
        let mut all = ids.to_vec();
        for id in ids {
            self.settle(id);
            let others = self.settle_chunks(id);
            all.extend(others.into_iter().map(|(ledger, entry)| MessageId::new(ledger, entry)));
        }
        Ok(self.acks.take_for(&all, cumulative)?.map(|group| self.ack_command(group)))
    }

    /// Negatively acknowledges a message that has been redelivered `redeliveries` times: its entry
    /// is redelivered after `delay`.
    pub fn nack(&mut self, now: Instant, id: &MessageId, redeliveries: u32, delay: Option<Duration>) {
        self.settle_unacked(id);
        self.request_again(now + delay.unwrap_or_else(|| self.options.nack_delay.delay(redeliveries)), id);
    }

    /// Has the entry of a message requested again at `due`.
    fn request_again(&mut self, due: Instant, id: &MessageId) {
        // The message is only redelivered if all its chunks are.
        let others = self.settle_chunks(id);
        let entries = self.nacks.entry(due).or_default();
        entries.insert(id.entry_id());
        for entry in &others {
            self.chunks.hold(*entry, self.chunks.deadline(due));
        }
        entries.extend(others);
    }

    /// Requests redelivery of all unacknowledged messages, including those waiting in the queue.
    pub fn redeliver_unacknowledged(&mut self) {
        self.nacks.clear();
        if self.state == State::Attached {
            self.redeliver(Vec::new());
        }
    }

    /// Sends the collected acknowledgements with the next [`Self::poll_transmit`]. While detached
    /// they stay collected.
    pub fn flush_acks(&mut self) {
        if self.state == State::Detached {
            return;
        }
        self.ack_due = None;
        for group in self.acks.take() {
            let command = Command::Ack(self.ack_command(group));
            self.immediate.push_back(command);
        }
    }

    /// The number that a SUBSCRIBE states, on types of subscriptions that have it.
    pub fn epoch(&self) -> Option<u64> {
        (!lists_redeliveries(self.options.kind)).then_some(self.epoch)
    }

    /// Processes acknowledgements and redeliveries that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.expire_chunks(now);
        if self.acks.is_held_back() {
            self.hold_acks(now);
            self.arm_acks(now);
        }
        if self.ack_due.is_some_and(|due| due <= now) {
            self.flush_acks();
        }
        if self.state != State::Attached {
            return;
        }
        self.expire_dropped(now);
        if let Some(unacked) = &mut self.unacked {
            let (expired, messages) = unacked.expire(now);
            self.counts.ack_timeouts += messages;
            for entry in expired {
                self.request_again(now, &MessageId::new(entry.0, entry.1));
            }
        }
        let mut due = BTreeSet::new();
        while let Some(first) = self.nacks.first_entry()
            && *first.key() <= now
        {
            due.extend(first.remove());
        }
        if !due.is_empty() {
            // The whole entry is redelivered, so one request is enough.
            self.nacks.retain(|_, later| {
                later.retain(|entry| !due.contains(entry));
                !later.is_empty()
            });
            self.move_to_dead(&mut due);
        }
        if !due.is_empty() {
            // Otherwise the broker would redeliver acknowledged messages of the same batch.
            self.flush_acks();
            self.redeliver(due.into_iter().collect());
        }
    }

    /// Time at which [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.state == State::Detached {
            return None;
        }
        let nacks = self.nacks.first_key_value().map(|(due, _)| *due);
        // The broker forgets them with the position.
        let unacked = self.unacked.as_ref().and_then(Unacked::next_due);
        let again = earliest(nacks, self.dropped.due());
        let again = earliest(again, unacked).filter(|_| self.state == State::Attached);
        let lapse = if self.acks.is_held_back() { self.chunks.next_lapse() } else { None };
        let lost = earliest(self.chunks.next_orphan(), self.chunks.next_expiry());
        let lost = lost.filter(|_| self.state == State::Attached);
        let chunks = earliest(lapse, lost).and_then(|time| self.stopwatch.when(time));
        earliest(earliest(self.ack_due, again), chunks)
    }

    /// Whether [`Self::poll_transmit`] has something to write.
    pub fn wants_transmit(&self) -> bool {
        self.state != State::Detached && (!self.immediate.is_empty() || self.due_permits() > 0)
    }

    /// Writes the ACK, REDELIVER and FLOW frames that are due.
    pub fn poll_transmit(&mut self, out: &mut Transmit) {
        if self.state == State::Detached {
            return;
        }
        let due = self.due_permits();
        if due > 0 {
            self.grant(due);
        }
        while let Some(command) = self.immediate.pop_front() {
            out.append(|buffer| encode_command(&command, buffer));
        }
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
                "cumulative acknowledgement needs an Exclusive or Failover subscription: acknowledge messages one by one",
            )),
        }
    }

    /// Requests redelivery of `entries`, or of everything if empty. Exclusive and Failover
    /// subscriptions only support everything: the broker ignores a list there.
    fn redeliver(&mut self, entries: Vec<Entry>) {
        let listed = lists_redeliveries(self.options.kind) && !entries.is_empty();
        if !listed && !self.dropped.entries.is_empty() {
            self.take_dropped();
        }
        self.epoch += u64::from(!lists_redeliveries(self.options.kind));
        if listed {
            entries.iter().for_each(|entry| self.recalls.recall(*entry));
        } else {
            self.recalls.recall_all();
        }
        if let Some(unacked) = &mut self.unacked {
            if listed {
                entries.iter().for_each(|entry| unacked.forget(*entry));
            } else {
                unacked.clear();
            }
        }
        if let Some(expired) = &mut self.expired
            && !listed
        {
            expired.all_come_again();
        }
        // Queued messages are redelivered with the rest of their entry.
        let before = self.queue.len();
        let again: BTreeSet<Entry> = entries.iter().copied().collect();
        self.queue.retain(|message| listed && !again.contains(&message.id.entry_id()));
        self.give_back((before - self.queue.len()) as u32);
        let message_ids = if listed { entries } else { Vec::new() }
            .into_iter()
            .map(|(ledger_id, entry_id)| hot::IdData { ledger_id, entry_id, ..Default::default() })
            .collect();
        self.immediate.push_back(Command::RedeliverUnacknowledgedMessages(
            pb::CommandRedeliverUnacknowledgedMessages {
                consumer_id: self.id,
                message_ids,
                consumer_epoch: self.epoch(),
            },
        ));
    }
}

/// Whether brokers redeliver single entries of a subscription, and count that.
fn lists_redeliveries(kind: SubType) -> bool {
    matches!(kind, SubType::Shared | SubType::KeyShared)
}

#[cfg(test)]
mod tests;
