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
//! **Permits.** The unit is a message. For each entry the broker charges its number of messages less those
//! already acknowledged; the consumer returns a permit when a message is taken, or dropped here (duplicate,
//! before the start, compacted out, corrupt). At any time granted = charged + outstanding, and outstanding
//! may fall below zero by at most one batch less one. All permits lapse when the connection ends. A paused consumer grants
//! none, and one without a queue grants one when it is wanted.
//!
//! * `acks`: acknowledgements that have not been sent
//! * `chunks`: messages in several entries
//! * `entry`: splitting of entries into messages
//! * `dying`: messages at the end of their redeliveries
//! * `recalls`: deliveries that are void, because their entries were requested again or are dead
//! * `unacked`: messages whose acknowledgement has a time limit
//! * `backoff`: delays that grow with the redeliveries of a message
//!
//! The owner polls in this order: [`Consumer::handle_timeout`], [`Consumer::poll_transmit`],
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
use crate::pulsar::schema::{Codec, Wanted, Writers, is_ready};
use crate::pulsar::{hot, pb};
use crate::transmit::Transmit;

mod acks;
mod backoff;
mod chunks;
mod dying;
mod entry;
mod recalls;
mod unacked;

use acks::{AckGroup, Acks, Entry, order};
pub use backoff::Backoff;
pub use chunks::DEFAULT_MAX_CHUNKED;
use chunks::{CHUNK_TIMEOUT, Chunks};
pub use dying::DeadLetter;
use dying::Dying;
use recalls::Recalls;
use unacked::Unacked;

/// Policy for entries that cannot be read: encrypted, damaged, or compressed in an unknown way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unreadable {
    /// Leave them unacknowledged at the broker, and deliver what follows.
    #[default]
    Skip,
    /// Leave them unacknowledged at the broker, and end the consumer.
    Fail,
    /// Acknowledge them with the reason, and deliver what follows.
    Discard,
}

/// Configuration of a consumer.
#[derive(Clone, Debug)]
pub struct Options {
    /// Type of the subscription.
    pub kind: SubType,
    /// Whether the broker keeps the position; otherwise this consumer does.
    pub durable: bool,
    /// Maximum number of messages to prefetch. With 0 a message, or a batch, is asked for when the application waits for it.
    pub receiver_queue: u32,
    /// Maximum size of the messages to prefetch, in bytes, give or take what one permit brings.
    pub receive_buffer: usize,
    /// Permits granted before the size of the messages is known.
    pub first_permits: u32,
    /// Acknowledges single messages of a batch.
    pub batch_index_ack: bool,
    /// Time for which acknowledgements are collected before they are sent.
    pub ack_group_time: Duration,
    /// Number of collected acknowledgements at which they are sent immediately.
    pub ack_group_max: usize,
    /// Delay after which a negatively acknowledged message is requested again.
    pub nack_delay: Backoff,
    /// Time after which a message that the application has and has not acknowledged is requested again; `None` for no
    /// limit.
    pub ack_timeout: Option<Backoff>,
    /// Number of redeliveries after which a message of a Shared or Key_Shared subscription is dead; `None` for no limit.
    pub max_redeliveries: Option<u32>,
    /// Position to start at.
    pub start: Option<MessageId>,
    /// Whether the message at `start` itself is delivered.
    pub start_inclusive: bool,
    /// Full topic name, including the partition.
    pub topic: Arc<str>,
    /// Partition, or -1 for a non-partitioned topic.
    pub partition: i32,
    /// Maximum uncompressed size of a message that is not chunked.
    pub max_message_size: usize,
    /// Maximum size of a chunked message, compressed, and of all incomplete ones together, in bytes.
    pub max_chunked_message: usize,
    /// Policy for entries that cannot be read.
    pub unreadable: Unreadable,
    /// Reader of payloads, if they are not bytes.
    pub codec: Option<Arc<dyn Codec>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            kind: SubType::Exclusive,
            durable: true,
            receiver_queue: 1000,
            receive_buffer: 16 << 20,
            first_permits: FIRST_PERMITS,
            batch_index_ack: true,
            ack_group_time: Duration::from_millis(100),
            ack_group_max: 1000,
            nack_delay: Backoff::fixed(Duration::from_secs(60)),
            ack_timeout: None,
            max_redeliveries: None,
            start: None,
            start_inclusive: false,
            topic: "".into(),
            partition: -1,
            max_message_size: DEFAULT_MAX_MESSAGE_SIZE,
            max_chunked_message: DEFAULT_MAX_CHUNKED,
            unreadable: Unreadable::Skip,
            codec: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Detached,
    Attached,
    Seeking,
}

/// Maximum number of chunked messages whose entries are known after an acknowledgement.
const MAX_SETTLED: usize = 100;

/// Position before which messages are dropped.
#[derive(Clone, Copy, Debug)]
struct Start {
    id: MessageId,
    inclusive: bool,
    /// Whether a message of its entry or behind it has come.
    reached: bool,
}

impl Start {
    fn new(id: MessageId, inclusive: bool) -> Self {
        Self { id, inclusive, reached: false }
    }

    fn admits(&self, id: &MessageId) -> bool {
        match order(id.entry_id()).cmp(&order(self.id.entry_id())) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Greater => true,
            // The id of a whole entry stands for all its messages.
            std::cmp::Ordering::Equal if self.id.batch_index < 0 => self.inclusive,
            std::cmp::Ordering::Equal => {
                id.batch_index > self.id.batch_index
                    || (self.inclusive && id.batch_index == self.id.batch_index)
            }
        }
    }
}

/// Permits that a consumer grants before it knows the size of its messages, over all partitions.
pub const FIRST_PERMITS: u32 = 32;

/// Messages of a consumer that were delivered again, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that came again.
    pub redelivered: u64,
    /// Messages that were not acknowledged in time.
    pub ack_timeouts: u64,
    /// Messages that were sent to the dead letter topic.
    pub dead_letters: u64,
    /// Attempts to send a message there that have failed.
    pub dead_letters_failed: u64,
    /// Messages that were sent to the topic of retries.
    pub retried: u64,
    /// Chunks that were acknowledged because the beginning of their message is gone.
    pub orphaned_chunks: u64,
}

impl std::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            redelivered: self.redelivered + other.redelivered,
            ack_timeouts: self.ack_timeouts + other.ack_timeouts,
            dead_letters: self.dead_letters + other.dead_letters,
            dead_letters_failed: self.dead_letters_failed + other.dead_letters_failed,
            retried: self.retried + other.retried,
            orphaned_chunks: self.orphaned_chunks + other.orphaned_chunks,
        }
    }
}

/// Permits of the current connection.
#[derive(Debug, Default)]
struct Permits {
    granted: u64,
    charged: u64,
    /// Permits of messages that were taken or dropped.
    returned: u64,
}

/// Number of messages that may be held or under way.
#[derive(Debug)]
struct Window {
    size: u32,
    /// Limit at first: grows with each message that comes.
    pace: u32,
    /// Average size of the latest messages in bytes; 0 if unknown.
    average: usize,
}

impl Window {
    fn new(options: &Options) -> Self {
        let mut window = Self { size: 0, pace: options.first_permits.max(1), average: 0 };
        window.update(options);
        window
    }

    fn update(&mut self, options: &Options) {
        let fit = options.receive_buffer.checked_div(self.average).unwrap_or(usize::MAX);
        let fit = u32::try_from(fit).unwrap_or(u32::MAX);
        self.size = options.receiver_queue.min(fit).min(self.pace).max(1);
    }

    /// An entry of `bytes` has come for `permits`.
    fn arrived(&mut self, options: &Options, bytes: usize, permits: u32) {
        let each = bytes / permits.max(1) as usize;
        // Large messages count at once, so that not many more are under way.
        self.pace = self.pace.saturating_add(permits);
        self.average = if each > self.average { each } else { (self.average * 7 + each) / 8 };
        self.update(options);
    }
}

/// Consumer of one partition.
#[derive(Debug)]
pub struct Consumer {
    id: u64,
    options: Options,
    state: State,
    start: Option<Start>,
    queue: VecDeque<Message>,
    permits: Permits,
    window: Window,
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
    dying: Option<Dying>,
    recalls: Recalls,
    counts: Counts,
    /// First entry that could not be read and stays unacknowledged.
    unreadable: Option<Entry>,
    /// Whether an entry that could not be read has ended the consumer.
    failed: bool,
    /// Number of seeks.
    moves: u64,
    /// Counts the requests for everything again, on Exclusive and Failover subscriptions. The broker states the last that it has seen
    /// with each message: one with an older number was on its way before, and comes again.
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
    /// Producer name of the last entry.
    last_producer: Arc<str>,
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
            queue: VecDeque::new(),
            permits: Permits::default(),
            window: Window::new(&options),
            paused: false,
            wanted: false,
            acks: Acks::new(options.batch_index_ack),
            ack_due: None,
            chunks: Chunks::new(options.max_chunked_message, !lists_redeliveries(options.kind)),
            chunked: BTreeMap::new(),
            settled: VecDeque::new(),
            nacks: BTreeMap::new(),
            unacked: options.ack_timeout.map(Unacked::new),
            dying: options
                .max_redeliveries
                .filter(|_| lists_redeliveries(options.kind))
                .map(|max| Dying::new(max, options.receive_buffer)),
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
            last_producer: "".into(),
            writers: options.codec.as_deref().map(Writers::new),
            options,
        }
    }

    /// Changes the limit on the size of the messages to prefetch.
    pub fn set_receive_buffer(&mut self, bytes: usize) {
        self.options.receive_buffer = bytes;
        self.window.update(&self.options);
    }

    /// Handles the subscription's success: grants permits for a full queue, once. Acknowledgements that wait go ahead of
    /// them, so that the broker does not deliver those messages again.
    ///
    /// After [`Self::closed_by_broker`] all acknowledgements are forgotten instead. What the broker does not say is why: the
    /// position may have been moved back, and then a cumulative acknowledgement of before would move it forward
    /// again, past messages that are to be delivered. If it was for another reason, what was not written is delivered again.
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
        if let Some(dying) = &mut self.dying {
            dying.attached();
        }
        self.flush_acks();
        let due = self.due_permits();
        if due > 0 {
            self.grant(due);
        }
    }

    /// Stops granting permits, or goes on with it. What was granted before still comes.
    pub fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Tells that the application waits for a message.
    pub fn want(&mut self) {
        self.wanted = true;
    }

    /// [`Self::attach`] for a topic that another broker has served until now. If that broker closed the consumer, it was to
    /// unload the topic: the position is where it was, and the acknowledgements are kept.
    pub fn attach_elsewhere(&mut self) {
        self.closed = false;
        self.attach();
    }

    /// Handles the end of the connection. Messages not taken or not acknowledged will be redelivered; acknowledgements that
    /// were not written are kept.
    pub fn detach(&mut self) {
        self.state = State::Detached;
        self.at_end = false;
        self.queue.clear();
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
        if let Some(dying) = &mut self.dying {
            dying.all_come_again();
        }
        if !self.options.durable {
            self.start = self.last_taken.map(|id| Start::new(id, false)).or(self.start);
        } else if self.start.is_some_and(|start| start.reached) {
            // From now on the broker has the position, wherever others may move it.
            self.start = None;
        }
    }

    /// Handles a CLOSE_CONSUMER. The broker closes the consumers of a subscription whose position is moved, by another consumer
    /// or by an administrator, and those of a topic that is unloaded.
    pub fn closed_by_broker(&mut self) {
        self.detach();
        self.closed = true;
    }

    /// Whether the consumer is subscribed on a connection.
    pub fn is_attached(&self) -> bool {
        self.state != State::Detached
    }

    /// Position at which a consumer resumes whose position the broker does not keep.
    pub fn resume_position(&self) -> Option<MessageId> {
        if self.options.durable { None } else { self.last_taken.or(self.start.map(|start| start.id)) }
    }

    /// Handles an entry. An error means that it cannot be read; the policy says what became of it.
    pub fn handle_message(&mut self, now: Instant, delivery: hot::Delivery, payload: Payload) -> Result<()> {
        if self.failed {
            // Messages behind the entry that ended the consumer are for the next one.
            return Ok(());
        }
        let result = self.take_entry(now, delivery, payload);
        if self.acks.is_held_back() {
            self.hold_acks(now);
        }
        // Some messages may have been acknowledged before.
        self.arm_acks(now);
        result
    }

    /// Moves up to `max` messages to `out` and returns their number.
    pub fn take<M: From<Message>>(&mut self, max: usize, out: &mut Vec<M>) -> usize {
        let n = self.ready(max);
        if n > 0 {
            self.wanted = false;
            self.last_taken = Some(self.queue[n - 1].id);
            out.extend(self.queue.drain(..n).map(M::from));
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

    /// Whether deliveries have become void since the last call: messages for which [`Self::is_recalled`] is true are not to be
    /// handed out.
    pub fn take_recall_news(&mut self) -> bool {
        self.recalls.take_news()
    }

    /// Whether the delivery of a message that was taken is void: the message comes again, or is dead.
    pub fn is_recalled(&self, message: &Message) -> bool {
        self.recalls.covers(message)
    }

    /// Forgets single deliveries that are void: the owner has dropped their messages.
    pub fn forget_recalls(&mut self) {
        self.recalls.forget();
    }

    /// First chunk of a chunked message.
    pub fn first_chunk(&self, id: &MessageId) -> Option<MessageId> {
        let last = id.entry_id();
        let settled = || self.settled.iter().rfind(|(entry, _)| *entry == last).map(|(_, others)| others);
        let (ledger, entry) = *self.chunked.get(&last).or_else(settled)?.first()?;
        Some(MessageId::new(ledger, entry).in_partition(id.partition))
    }

    /// Messages that were delivered again, and why.
    pub fn counts(&self) -> Counts {
        self.counts
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
        if let Some(dying) = &mut self.dying {
            dying.acknowledged(id);
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

    /// A SUBSCRIBE is about to be sent: the broker tells again, maybe before its answer is handled, that the topic has ended.
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

    /// Whether there is a message to be received, when `last` is the last message of the topic (`None` if it has none) and the
    /// subscription has acknowledged everything up to `mark`. As in the Java client: what counts is the last message that was taken,
    /// or, before the first one, where the consumer starts; after a seek to a time, or at the end, only the broker knows that.
    pub fn has_more(&self, last: Option<MessageId>, mark: Option<MessageId>) -> bool {
        let Some(last) = last else { return !self.queue.is_empty() };
        let read = self.last_taken.map(|id| Start::new(id, false)).or(self.start);
        !self.queue.is_empty()
            || match (read, mark) {
                (Some(read), _) => read.admits(&last),
                (None, Some(mark)) => order(mark.entry_id()) < order(last.entry_id()),
                // A broker that does not tell the mark: a subscription that has not begun has everything to read.
                (None, None) => true,
            }
    }

    /// Number of messages that can be taken.
    pub fn available(&self) -> usize {
        self.ready(usize::MAX)
    }

    /// Whether there is a message that can be taken.
    pub fn has_ready(&self) -> bool {
        self.ready(1) == 1
    }

    /// Number of messages up to the first whose schema is not known yet, at most `max`. Looks at no more than these.
    fn ready(&self, max: usize) -> usize {
        if self.writers.is_none() {
            return max.min(self.queue.len());
        }
        self.queue.iter().take(max).take_while(|message| is_ready(message.entry.writer.as_ref())).count()
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

    /// Other entries of a chunked message that is acknowledged or negatively acknowledged. They are kept: the answer may get
    /// lost, and a second acknowledgement of the last entry alone would leave the others in the backlog for ever.
    fn settle_chunks(&mut self, id: &MessageId) -> Vec<Entry> {
        let last = id.entry_id();
        let Some(others) = self.chunked.remove(&last) else {
            let settled = self.settled.iter().rfind(|(entry, _)| *entry == last);
            return settled.map(|(_, others)| others.clone()).unwrap_or_default();
        };
        if self.settled.len() >= MAX_SETTLED {
            self.settled.pop_front();
        }
        self.settled.push_back((last, others.clone()));
        others
    }

    /// Acknowledges this message and all before it. A chunked message that begins before it and ends after it is
    /// not affected: while that is incomplete or unacknowledged, only what precedes it is acknowledged at the
    /// broker.
    pub fn ack_cumulative(&mut self, now: Instant, id: &MessageId) -> Result<()> {
        self.check_cumulative()?;
        self.acks.cumulative(id)?;
        self.settle_unacked_through(id);
        self.chunked.retain(|entry, _| order(*entry) > order(id.entry_id()));
        self.hold_acks(now);
        self.arm_acks(now);
        Ok(())
    }

    /// Limits cumulative acknowledgements to what precedes the first entry that could not be read, and the first chunked
    /// message that is incomplete, or complete and unacknowledged.
    fn hold_acks(&mut self, now: Instant) {
        let complete = self.chunked.values().flatten().copied();
        let incomplete = self.chunks.first_held(now);
        let held = complete.chain(incomplete).chain(self.unreadable);
        self.acks.hold(held.min_by_key(|entry| order(*entry)));
    }

    /// Acknowledges `ids` and returns the ACK to be sent for them immediately; the caller fills in its request id.
    /// `None` if the broker is told later: for parts of a batch when the batch is complete, for what follows the
    /// start of a chunked message when that message is acknowledged.
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

    /// Negatively acknowledges a message that has been redelivered `redeliveries` times: its entry is redelivered after
    /// `delay`.
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
            self.chunks.hold(*entry, due + CHUNK_TIMEOUT);
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

    /// Sends the collected acknowledgements with the next [`Self::poll_transmit`]. While detached they stay collected.
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

    /// Prepares for sending a SEEK: entries that arrive from now on belong to the old position.
    pub fn begin_seek(&mut self) {
        self.forget_dying();
        self.moves += 1;
        self.was_at_end = std::mem::take(&mut self.at_end);
        self.flush_acks();
        let dropped = self.queue.len() as u32;
        self.queue.clear();
        self.give_back(dropped);
        if self.state == State::Attached {
            self.state = State::Seeking;
        }
    }

    /// The number that a SUBSCRIBE states, on types of subscriptions that have it.
    pub fn epoch(&self) -> Option<u64> {
        (!lists_redeliveries(self.options.kind)).then_some(self.epoch)
    }

    /// Number of seeks that have begun.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Completes a seek to the message after `target`, or to `target` itself if `inclusive`.
    pub fn end_seek(&mut self, target: Option<MessageId>, inclusive: bool) {
        self.acks.clear();
        self.ack_due = None;
        self.immediate.retain(|command| !matches!(command, Command::Ack(_)));
        self.chunks.clear();
        self.chunked.clear();
        self.settled.clear();
        self.nacks.clear();
        self.forget_unacked();
        self.unreadable = None;
        self.failed = false;
        self.last_taken = None;
        let exact = target.filter(|id| *id != MessageId::EARLIEST && *id != MessageId::LATEST);
        self.start = exact.map(|id| Start::new(id, inclusive));
    }

    /// Handles a failed SEEK: requests redelivery of the messages dropped meanwhile.
    pub fn abort_seek(&mut self) {
        if self.state == State::Seeking {
            self.state = State::Attached;
            // The broker told it once, and does not tell it again.
            self.at_end |= self.was_at_end;
            self.redeliver(Vec::new());
        }
    }

    /// Processes acknowledgements and redeliveries that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.settle_orphans(now);
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
            self.bury(&mut due);
        }
        if !due.is_empty() {
            // Otherwise the broker would redeliver acknowledged messages of the same batch.
            self.flush_acks();
            self.redeliver(due.into_iter().collect());
        }
    }

    /// Acknowledges the chunks whose message has lost its beginning. Behind an entry that could not be read they stay: that entry
    /// may be the beginning.
    fn settle_orphans(&mut self, now: Instant) {
        if self.state != State::Attached {
            return;
        }
        let orphans = self.chunks.lapsed_orphans(now);
        if orphans.is_empty() {
            return;
        }
        for entry in orphans {
            if self.unreadable.is_none_or(|unreadable| order(entry) < order(unreadable)) {
                self.acks.individual(&MessageId::new(entry.0, entry.1));
                self.counts.orphaned_chunks += 1;
            }
        }
        self.arm_acks(now);
    }

    /// Time at which [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.state == State::Detached {
            return None;
        }
        let nacks = self.nacks.first_key_value().map(|(due, _)| *due);
        // The broker forgets them with the position.
        let unacked = self.unacked.as_ref().and_then(Unacked::next_due);
        let nacks = earliest(nacks, unacked).filter(|_| self.state == State::Attached);
        let lapse = if self.acks.is_held_back() { self.chunks.next_lapse() } else { None };
        let orphan = self.chunks.next_orphan().filter(|_| self.state == State::Attached);
        earliest(earliest(self.ack_due, nacks), earliest(lapse, orphan))
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

    /// Number of messages granted and not yet charged; may fall below zero by at most one batch less one.
    pub fn outstanding_permits(&self) -> i64 {
        self.permits.granted as i64 - self.permits.charged as i64
    }

    /// Permits to be granted now.
    fn due_permits(&self) -> u32 {
        if self.paused {
            return 0;
        }
        if self.options.receiver_queue == 0 {
            // A batch was charged as many permits as it has messages, and brokers owe what exceeds one.
            let owed = 1 - self.outstanding_permits();
            return if self.wanted && self.queue.is_empty() && owed > 0 { owed as u32 } else { 0 };
        }
        let room = self.room();
        if room > 0 && room >= i64::from(self.window.size / 2) { room as u32 } else { 0 }
    }

    /// Permits that may be granted.
    fn room(&self) -> i64 {
        i64::from(self.window.size) - (self.permits.granted as i64 - self.permits.returned as i64)
    }

    fn grant(&mut self, permits: u32) {
        self.permits.granted += u64::from(permits);
        self.immediate.push_back(Command::Flow(hot::Flow { consumer_id: self.id, permits }));
    }

    fn give_back(&mut self, count: u32) {
        self.permits.returned += u64::from(count);
        debug_assert!(
            self.state == State::Detached
                || self.permits.returned + self.queue.len() as u64 <= self.permits.charged,
            "returned more permits than the broker charged"
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

    /// Requests redelivery of `entries`, or of everything if empty. Exclusive and Failover subscriptions only
    /// support everything: the broker ignores a list there.
    fn redeliver(&mut self, entries: Vec<Entry>) {
        let listed = lists_redeliveries(self.options.kind) && !entries.is_empty();
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
        if let Some(dying) = &mut self.dying
            && !listed
        {
            dying.all_come_again();
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
