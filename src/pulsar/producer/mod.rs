//! A producer, without its connection.
//!
//! ```text
//!   push ──► open batch ──► window: unsent │ in flight ──► receipt ──► Event::Sent
//!              (closes when it holds half as many as are in flight, so at once when nothing is;
//!               when it is full, or when the batch delay is over)
//!
//!   Detached ──attach──► Attached ──detach──► Detached        close: everything pending fails
//!      the window is sent again, byte for byte, before anything new
//! ```
//! Load makes batches and idleness makes latency: one at a time nothing waits; under load messages gather
//! while others are in flight. A share of what is in flight, not each receipt, closes a batch: else a full window
//! ends up as one large entry after one of a single message, each waiting for the other's receipt.
//!
//! At most `max_pending` messages are in flight. [`Producer::push`] takes as many again, which wait their
//! turn; [`Producer::try_push`] does not. Every message that was pushed ends in exactly one event, and the
//! events come in the order of the pushes.
//!
//! * `batch`: from messages to entries

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::compression::Compression;
use crate::error::{Error, ErrorKind, Result};
use crate::machine::earliest;
use crate::pulsar::frame::DEFAULT_MAX_MESSAGE_SIZE;
use crate::pulsar::message::Outgoing;
use crate::pulsar::{hot, pb, server_error};
use crate::transmit::Transmit;

mod batch;

use batch::{Entry, OpenBatch, Sender, single};

/// What a producer is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Several messages in one entry.
    pub batching: bool,
    /// Most messages of a batch.
    pub batch_max_messages: usize,
    /// Most bytes of a batch, before compression.
    pub batch_max_bytes: usize,
    /// Longest wait of a batch while others are in flight.
    pub batch_delay: Duration,
    /// How entries are compressed.
    pub compression: Compression,
    /// From push to receipt; `None` waits for ever. Runs while detached, too.
    pub send_timeout: Option<Duration>,
    /// Most messages in flight.
    pub max_pending: usize,
    /// The first sequence id; otherwise it goes on after the broker's last.
    pub initial_sequence_id: Option<u64>,
    /// Splits messages over the broker's limit.
    pub chunking: bool,
    /// A batch holds neighbours of one key only, for Key_Shared consumers.
    pub key_based: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            batching: true,
            batch_max_messages: 1000,
            batch_max_bytes: 128 << 10,
            batch_delay: Duration::from_millis(1),
            compression: Compression::None,
            send_timeout: Some(Duration::from_secs(30)),
            max_pending: 1000,
            initial_sequence_id: None,
            chunking: false,
            key_based: false,
        }
    }
}

/// How messages ended, in the order they were pushed.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// The broker has them. `u64::MAX:u64::MAX` means that it had them already (deduplication), or that a
    /// non-persistent topic dropped them.
    Sent {
        /// How many.
        count: u32,
        /// Ledger of their entry.
        ledger: u64,
        /// Their entry.
        entry: u64,
        /// Whether the entry is a batch: the messages are its indexes 0, 1, …
        batch: bool,
        /// Sequence id of the first.
        first_sequence: u64,
        /// Bytes of their payloads.
        bytes: usize,
    },
    /// They failed, or nobody knows.
    Failed {
        /// How many.
        count: u32,
        /// Why.
        error: Error,
        /// Bytes of their payloads.
        bytes: usize,
    },
}

#[derive(Debug)]
enum State {
    Detached,
    Attached,
    Closed(Error),
}

/// The producer of one partition.
#[derive(Debug)]
pub struct Producer {
    id: u64,
    options: Options,
    state: State,
    name: String,
    max_message_size: usize,
    next_sequence: u64,
    /// The broker's last or the last pushed, -1 before the first.
    last_sequence: i64,
    named: bool,
    open: Option<OpenBatch>,
    /// Entries without a receipt; the first `in_flight` of them have been written to this connection.
    window: VecDeque<Entry>,
    in_flight: usize,
    in_flight_messages: usize,
    /// The open batch goes out with the next transmit.
    close_open: bool,
    events: VecDeque<Event>,
    pending_messages: usize,
    pending_bytes: usize,
    /// Why the broker last refused an entry that is being sent again: what a timeout is to say.
    refusal: Option<Error>,
}

impl Producer {
    /// A producer that `producer_id` names on every connection.
    pub fn new(producer_id: u64, options: Options) -> Self {
        Self {
            id: producer_id,
            state: State::Detached,
            name: String::new(),
            max_message_size: DEFAULT_MAX_MESSAGE_SIZE,
            next_sequence: options.initial_sequence_id.unwrap_or(0),
            last_sequence: -1,
            named: false,
            open: None,
            window: VecDeque::new(),
            in_flight: 0,
            in_flight_messages: 0,
            close_open: false,
            events: VecDeque::new(),
            pending_messages: 0,
            pending_bytes: 0,
            refusal: None,
            options,
        }
    }

    /// Takes a message and gives its sequence id. Beyond the window it waits its turn, as many as the
    /// window holds; past that `QueueFull`. `wall_ms` is the publish time.
    pub fn push(&mut self, now: Instant, wall_ms: u64, message: &Outgoing<'_>) -> Result<u64> {
        self.push_within(2 * self.options.max_pending, now, wall_ms, message)
    }

    /// As [`Self::push`], but `QueueFull` as soon as the window is full.
    pub fn try_push(&mut self, now: Instant, wall_ms: u64, message: &Outgoing<'_>) -> Result<u64> {
        self.push_within(self.options.max_pending, now, wall_ms, message)
    }

    fn push_within(
        &mut self,
        limit: usize,
        now: Instant,
        wall_ms: u64,
        message: &Outgoing<'_>,
    ) -> Result<u64> {
        if let State::Closed(error) = &self.state {
            return Err(error.clone());
        }
        if self.pending_messages >= limit {
            return Err(Error::new(
                ErrorKind::QueueFull,
                format!(
                    "{} messages wait for receipts: await some sends or raise max_pending",
                    self.pending_messages
                ),
            ));
        }
        let sequence_id = message.sequence_id.unwrap_or(self.next_sequence);
        // A sequence id that does not grow may be a duplicate, which the broker drops with its whole batch.
        let suspicious = (sequence_id as i64) <= self.last_sequence;
        let alone = !self.options.batching
            || message.deliver_at.is_some()
            || suspicious
            || message.payload.len() + message_overhead(message) > self.batch_limit();
        if alone {
            // Refused before anything changes: a message that is too large leaves no gap.
            let entries = single(&self.sender(), now, wall_ms, message, sequence_id, self.options.chunking)?;
            self.close_batch();
            self.window.extend(entries);
        } else {
            self.push_batched(now, wall_ms, message, sequence_id);
        }
        self.next_sequence = self.next_sequence.max(sequence_id.saturating_add(1));
        self.last_sequence = self.last_sequence.max(sequence_id as i64);
        self.pending_messages += 1;
        self.pending_bytes += message.payload.len();
        self.settle();
        Ok(sequence_id)
    }

    fn push_batched(&mut self, now: Instant, wall_ms: u64, message: &Outgoing<'_>, sequence_id: u64) {
        let size = message.payload.len() + message_overhead(message);
        let limit = self.batch_limit();
        let key_based = self.options.key_based;
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.body.len() + size > limit || (key_based && !open.has_key_of(message)))
        {
            self.close_batch();
        }
        let open = self.open.get_or_insert_with(|| {
            // Room for a burst of messages like this one, so that the buffer rarely grows.
            OpenBatch::new(now, wall_ms, message, sequence_id, (size * 32).clamp(4096, limit.max(4096)))
        });
        open.push(message, sequence_id);
        if open.count as usize >= self.options.batch_max_messages || open.body.len() >= limit {
            self.close_batch();
        }
    }

    /// PRODUCER_SUCCESS came: the window is sent again from its start.
    pub fn attach(
        &mut self,
        _now: Instant,
        producer_name: &str,
        last_sequence_id: i64,
        max_message_size: usize,
    ) {
        if matches!(self.state, State::Closed(_)) {
            return;
        }
        if !self.named {
            self.named = true;
            self.name = producer_name.to_owned();
            self.last_sequence = self.last_sequence.max(last_sequence_id);
            if self.options.initial_sequence_id.is_none() && self.pending_messages == 0 {
                self.next_sequence = last_sequence_id.saturating_add(1).max(0) as u64;
            }
        }
        if max_message_size < self.max_message_size {
            for entry in self.window.iter_mut().filter(|entry| entry.len() > max_message_size + FRAME_ROOM) {
                entry.doomed = Some(Error::new(
                    ErrorKind::MessageTooLarge,
                    format!("the broker now takes messages of at most {max_message_size} bytes"),
                ));
            }
        }
        self.max_message_size = max_message_size;
        self.state = State::Attached;
        self.in_flight = 0;
        self.in_flight_messages = 0;
        self.settle();
    }

    /// The connection ended or the broker closed the producer. Nothing is sent until it is attached again.
    pub fn detach(&mut self) {
        if matches!(self.state, State::Attached) {
            self.state = State::Detached;
        }
        self.in_flight = 0;
        self.in_flight_messages = 0;
    }

    /// Takes a receipt. An error means that receipts were lost: the connection must be closed, so that
    /// everything is sent again.
    pub fn handle_receipt(&mut self, _now: Instant, receipt: &hot::SendReceipt) -> Result<()> {
        let Some(head) = self.window.front() else { return Ok(()) };
        // Brokers answer a batch by its first or its last id. Ids below the head belong to messages that
        // timed out or were answered before.
        if receipt.sequence_id < head.first_sequence {
            return Ok(());
        }
        if self.in_flight == 0 || receipt.sequence_id > head.last_sequence {
            return Err(Error::protocol(format!(
                "a receipt for {} came while {} is due",
                receipt.sequence_id, head.first_sequence
            )));
        }
        let entry = self.pop_head().expect("the head was looked at");
        self.refusal = None;
        let (ledger, number) =
            receipt.message_id.as_ref().map_or((u64::MAX, u64::MAX), |id| (id.ledger_id, id.entry_id));
        if entry.count > 0 {
            self.events.push_back(Event::Sent {
                count: entry.count,
                ledger,
                entry: number,
                batch: entry.batch,
                first_sequence: entry.first_sequence,
                bytes: entry.bytes,
            });
        }
        self.settle();
        Ok(())
    }

    /// Takes a SEND_ERROR. An error means that the connection must be closed, so that everything is sent
    /// again; others end only the entry they name.
    pub fn handle_send_error(&mut self, _now: Instant, error: &pb::CommandSendError) -> Result<()> {
        let typed = server_error(error.error, &error.message);
        let ends_entry = matches!(
            typed.kind(),
            ErrorKind::Checksum
                | ErrorKind::NotAllowed
                | ErrorKind::QuotaExceeded
                | ErrorKind::MessageTooLarge
        );
        if !ends_entry {
            self.refusal = Some(typed.clone());
            return Err(typed);
        }
        let sequence_id = error.sequence_id;
        // All chunks of a message have its sequence id and fail together.
        for entry in self.window.iter_mut() {
            if (entry.first_sequence..=entry.last_sequence).contains(&sequence_id) && entry.doomed.is_none() {
                entry.doomed = Some(typed.clone());
            }
        }
        self.settle();
        Ok(())
    }

    /// Lets the open batch go with the next transmit.
    pub fn flush(&mut self) {
        self.close_open = true;
    }

    /// Closes a batch whose delay is over, fails what waited longer than the send timeout.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.open.as_ref().is_some_and(|open| open.since + self.options.batch_delay <= now) {
            self.close_batch();
        }
        let Some(timeout) = self.options.send_timeout else { return };
        while let Some(head) = self.window.front()
            && head.since + timeout <= now
        {
            let error = self.refusal.clone().unwrap_or_else(|| {
                Error::new(
                    ErrorKind::Timeout,
                    format!("no receipt within {timeout:?}; the broker may have the message or not"),
                )
            });
            let entry = self.pop_head().expect("the head was looked at");
            self.fail(&entry, error);
        }
        self.settle();
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let batch = self.open.as_ref().map(|open| open.since + self.options.batch_delay);
        let timeout = self.options.send_timeout;
        let send = self.window.front().and_then(|head| Some(head.since + timeout?));
        earliest(batch, send)
    }

    /// Writes what may go now, about `budget` bytes of it; true if more may.
    pub fn poll_transmit(&mut self, _now: Instant, out: &mut Transmit, budget: usize) -> bool {
        if !matches!(self.state, State::Attached) {
            return false;
        }
        // Taken in any case: what asked for it has nothing to say about a later batch.
        let ripe = self.open.as_ref().is_some_and(|open| open.count as usize * 2 >= self.in_flight_messages);
        if std::mem::take(&mut self.close_open) || self.window.is_empty() || ripe {
            self.close_batch();
            self.settle();
        }
        let mut written = 0;
        while let Some(entry) = self.window.get(self.in_flight) {
            let messages = entry.count as usize;
            let room = self.in_flight_messages + messages <= self.options.max_pending || self.in_flight == 0;
            if !room {
                return false;
            }
            if written >= budget {
                return true;
            }
            if entry.doomed.is_none() {
                written += entry.len();
                entry.write(out);
            }
            self.in_flight += 1;
            self.in_flight_messages += messages;
        }
        false
    }

    /// The next outcome.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Ends the producer: everything pending fails with `error`, and so does every later push.
    pub fn close(&mut self, error: Error) {
        self.close_batch();
        while let Some(entry) = self.pop_head() {
            let error = entry.doomed.clone().unwrap_or_else(|| error.clone());
            self.fail(&entry, error);
        }
        self.state = State::Closed(error);
        self.check();
    }

    /// Messages without an outcome.
    pub fn pending_messages(&self) -> usize {
        self.pending_messages
    }

    /// Bytes of their payloads.
    pub fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Whether nothing is pending.
    pub fn is_idle(&self) -> bool {
        self.pending_messages == 0
    }

    /// The last sequence id that this producer or, before it, its namesake gave; -1 for none.
    pub fn last_sequence_id(&self) -> i64 {
        self.last_sequence
    }

    fn sender(&self) -> Sender<'_> {
        Sender {
            producer_id: self.id,
            name: &self.name,
            compression: self.options.compression,
            max_message_size: self.max_message_size,
        }
    }

    fn batch_limit(&self) -> usize {
        self.options.batch_max_bytes.min(self.max_message_size)
    }

    fn close_batch(&mut self) {
        if let Some(open) = self.open.take() {
            let entry = open.close(&self.sender());
            self.window.push_back(entry);
        }
    }

    fn pop_head(&mut self) -> Option<Entry> {
        let entry = self.window.pop_front()?;
        if self.in_flight > 0 {
            self.in_flight -= 1;
            self.in_flight_messages -= entry.count as usize;
        }
        self.pending_messages -= entry.count as usize;
        self.pending_bytes -= entry.bytes;
        Some(entry)
    }

    /// Ends the doomed entries at the head.
    fn settle(&mut self) {
        while let Some(error) = self.window.front().and_then(|head| head.doomed.clone()) {
            let entry = self.pop_head().expect("the head was looked at");
            self.fail(&entry, error);
        }
        self.check();
    }

    fn fail(&mut self, entry: &Entry, error: Error) {
        if entry.count > 0 {
            self.events.push_back(Event::Failed { count: entry.count, error, bytes: entry.bytes });
        } else {
            // The message's other chunks are of no use without this one.
            for other in
                self.window.iter_mut().take_while(|other| other.first_sequence == entry.first_sequence)
            {
                other.doomed.get_or_insert_with(|| error.clone());
            }
        }
    }

    /// Messages and bytes admitted = released + held.
    fn check(&self) {
        if cfg!(debug_assertions) {
            let open = self.open.as_ref().map_or((0, 0), |open| (open.count as usize, open.bytes));
            let held = self.window.iter().fold(open, |(messages, bytes), entry| {
                (messages + entry.count as usize, bytes + entry.bytes)
            });
            assert_eq!((self.pending_messages, self.pending_bytes), held, "messages or bytes were lost");
            assert!(self.in_flight <= self.window.len());
        }
    }
}

/// What a frame is longer than the message in it, at most.
const FRAME_ROOM: usize = crate::pulsar::frame::FRAME_PADDING;

/// Bytes that a message takes in a batch beside its payload, from above.
fn message_overhead(message: &Outgoing<'_>) -> usize {
    let properties: usize = message.properties.iter().map(|(key, value)| key.len() + value.len() + 12).sum();
    40 + properties + message.key.map_or(0, str::len) + message.ordering_key.map_or(0, <[u8]>::len)
}

#[cfg(test)]
mod tests;
