//! A producer, independent of its connection.
//!
//! ```text
//!   push ──► open batch ──► window: unsent │ in flight ──► receipt ──► Event::Stored
//!              (closes when it holds half as many messages as are in flight, so at once if none
//!               are; when it is full; or when the batch delay has passed)
//!
//!   Detached ──attach──► Attached ──detach──► Detached        close: fails everything pending
//!      the window is sent again, byte for byte, before any new entry
//! ```
//! Batches form under load and latency stays low without it: a message sent alone does not wait;
//! under load messages collect while others are in flight. A batch is closed by its size relative
//! to the messages in flight, not by each receipt: otherwise a full window degenerates into one
//! large entry after an entry of a single message, each waiting for the other's receipt.
//!
//! At most `max_pending` messages are in flight. [`Producer::push`] accepts as many again, which
//! wait in line; [`Producer::try_push`] does not. Each pushed message ends in exactly one event,
//! and events come in the order of the pushes.
//!
//! * `early`: messages that are pushed before the first connection, or wait for the version of a
//!   schema
//! * `schemas`: versions of the schemas of messages that have one of their own
//! * `batch`: encoding of messages into entries
//! * `open`: the open batches, and the order of outcomes with key-based batching

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::frame::DEFAULT_MAX_MESSAGE_SIZE;
use crate::message::Outgoing;
use crate::{hot, pb, server_error};
use forebay_base::compression::Compression;
use forebay_base::error::{Error, ErrorKind, Result, because};
use forebay_base::machine::earliest;
use forebay_base::transmit::Transmit;

mod batch;
mod early;
mod open;
mod schemas;

use batch::{Entry, Sender, single};
use early::Early;
use open::{Group, Open, Stored};
use schemas::Schemas;

/// Configuration of a producer.
#[derive(Clone, Debug)]
pub struct Options {
    /// Puts several messages into one entry.
    pub batching: bool,
    /// Maximum number of messages in a batch.
    pub batch_max_messages: usize,
    /// Maximum size of a batch in bytes, before compression.
    pub batch_max_bytes: usize,
    /// Maximum time that a batch stays open while other messages are in flight.
    pub batch_delay: Duration,
    /// Compression of entries.
    pub compression: Compression,
    /// Entries with fewer bytes of payload are not compressed.
    pub compression_min_size: usize,
    /// Time limit from push to receipt; `None` for no limit. Also runs while detached.
    pub send_timeout: Option<Duration>,
    /// Maximum number of messages in flight.
    pub max_pending: usize,
    /// Sequence id that counts as published last, -1 for none; if `None`, the broker's last id.
    pub initial_sequence_id: Option<i64>,
    /// Splits messages that exceed the broker's size limit into chunks.
    pub chunking: bool,
    /// Largest chunk in bytes, within the broker's size limit; `None` for as large as that allows.
    pub chunk_max_size: Option<usize>,
    /// Whether messages may be pushed before the first connection; see `early`.
    pub lazy: bool,
    /// Gives each key a batch of its own, as Key_Shared consumers require. All are closed together.
    pub key_based: bool,
    /// Sends an entry at a time, and nothing behind one that was refused: with deduplication, the
    /// sequence ids of what is stored behind it would have the broker drop its messages when they
    /// are sent again. Messages that the broker has of a predecessor of the same name are not sent,
    /// but for the last one; see `known`.
    pub stop_on_refusal: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            batching: true,
            batch_max_messages: 1000,
            batch_max_bytes: 128 << 10,
            batch_delay: Duration::from_millis(1),
            compression: Compression::None,
            compression_min_size: 0,
            send_timeout: Some(Duration::from_secs(30)),
            max_pending: 1000,
            initial_sequence_id: None,
            chunking: false,
            chunk_max_size: None,
            lazy: false,
            key_based: false,
            stop_on_refusal: false,
        }
    }
}

/// Outcome of one or more messages, in the order in which they were pushed.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// The broker has stored the messages. `u64::MAX:u64::MAX` means that it already had them
    /// (deduplication) or that a non-persistent topic dropped them.
    Stored {
        /// Number of messages.
        count: u32,
        /// Ledger of the entry.
        ledger: u64,
        /// Entry number.
        entry: u64,
        /// If the entry is a batch, index of the first of these messages in it, and its number of
        /// messages.
        batch: Option<(u32, u32)>,
        /// Ledger and entry of the first chunk, if it is a message in chunks.
        first_chunk: Option<(u64, u64)>,
        /// Total payload size in bytes.
        bytes: usize,
    },
    /// The messages failed, or their outcome is unknown.
    Failed {
        /// Number of messages.
        count: u32,
        /// Reason for the failure.
        error: Error,
        /// Total payload size in bytes.
        bytes: usize,
    },
}

#[derive(Debug)]
enum State {
    Detached,
    Attached,
    Closed(Error),
}

/// Producer of one partition.
#[derive(Debug)]
pub struct Producer {
    id: u64,
    options: Options,
    state: State,
    name: String,
    max_message_size: usize,
    next_sequence: u64,
    /// Highest sequence id pushed, or last one known to the broker; -1 before the first.
    last_sequence: i64,
    /// Highest sequence id with a receipt, or last one known to the broker; -1 before the first.
    last_published: i64,
    /// Sequence id of a message in chunks, and the place of its first one.
    first_chunk: Option<(u64, (u64, u64))>,
    /// Last sequence id that the broker had when the producer was opened; -1 for none. A broker
    /// tells what it has received, and may fail to store the last entry. So with `stop_on_refusal`
    /// the message of this id is sent again, which is answered when all before it are stored, and
    /// nothing is sent after the broker has gone back behind it.
    known: i64,
    named: bool,
    /// Messages that wait for the first connection or for the version of a schema. All others were
    /// pushed before them.
    early: VecDeque<Early>,
    open: Open,
    /// Version of the producer's schema; empty if it has none.
    schema_version: Bytes,
    schemas: Schemas,
    /// Batches that were closed together and have not all ended, in the order of the window.
    groups: VecDeque<Group>,
    /// Entries without a receipt; the first `in_flight` of them have been written to the current
    /// connection.
    window: VecDeque<Entry>,
    in_flight: usize,
    in_flight_messages: usize,
    /// Whether the open batch is closed by the next `poll_transmit`.
    close_open: bool,
    events: VecDeque<Event>,
    pending_messages: usize,
    pending_bytes: usize,
    /// Last error with which the broker refused an entry that is being sent again; reported by its
    /// timeout.
    refusal: Option<Error>,
    /// The refusal behind which nothing is sent any more.
    stopped: Option<Error>,
    /// Why there is no connection; named by timeouts.
    trouble: Option<Error>,
    /// Why a schema could not be registered so far.
    schema_trouble: Option<Error>,
}

impl Producer {
    /// Creates a producer that has id `producer_id` on every connection.
    pub fn new(producer_id: u64, options: Options) -> Self {
        Self {
            id: producer_id,
            state: State::Detached,
            name: String::new(),
            max_message_size: DEFAULT_MAX_MESSAGE_SIZE,
            next_sequence: after(options.initial_sequence_id.unwrap_or(-1)),
            last_sequence: -1,
            last_published: options.initial_sequence_id.unwrap_or(-1),
            first_chunk: None,
            known: -1,
            named: false,
            early: VecDeque::new(),
            open: Open::new(options.key_based),
            schema_version: Bytes::new(),
            schemas: Schemas::default(),
            groups: VecDeque::new(),
            window: VecDeque::new(),
            in_flight: 0,
            in_flight_messages: 0,
            close_open: false,
            events: VecDeque::new(),
            pending_messages: 0,
            pending_bytes: 0,
            refusal: None,
            stopped: None,
            trouble: None,
            schema_trouble: None,
            options,
        }
    }

    /// Accepts a message and returns its sequence id, `None` before the first connection and while
    /// its schema, or that of a message before it, is being registered. When the window is full the
    /// message waits, up to as many as the window holds; after that the call fails with
    /// `QueueFull`. `wall_ms` is the publish time.
    pub fn push(&mut self, now: Instant, wall_ms: u64, message: &Outgoing<'_>) -> Result<Option<u64>> {
        self.push_within(2 * self.options.max_pending, now, wall_ms, message)
    }

    /// Like [`Self::push`], but fails with `QueueFull` as soon as the window is full.
    pub fn try_push(&mut self, now: Instant, wall_ms: u64, message: &Outgoing<'_>) -> Result<Option<u64>> {
        self.push_within(self.options.max_pending, now, wall_ms, message)
    }

    fn push_within(
        &mut self,
        limit: usize,
        now: Instant,
        wall_ms: u64,
        message: &Outgoing<'_>,
    ) -> Result<Option<u64>> {
        if let State::Closed(error) = &self.state {
            return Err(error.clone());
        }
        if self.pending_messages >= limit {
            return Err(Error::new(
                ErrorKind::QueueFull,
                format!(
                    "{} messages are waiting for receipts: await some sends or raise max_pending",
                    self.pending_messages
                ),
            ));
        }
        let version = message.schema.map(|info| self.schemas.version(info).cloned());
        let waits = self.options.lazy && !self.named || !self.early.is_empty();
        if waits || version == Some(None) {
            self.check_size(now, wall_ms, message)?;
            if let Some(info) = message.schema {
                self.schemas.want(info);
            }
            self.early.push_back(Early::new(now, wall_ms, message));
            self.pending_messages += 1;
            self.pending_bytes += message.payload.len();
            return Ok(None);
        }
        match version.flatten() {
            None => self.accept(now, wall_ms, message),
            Some(version) => {
                self.accept(now, wall_ms, &Outgoing { schema_version: Some(&version), ..*message })
            }
        }
        .map(Some)
    }

    /// Refuses a message that has to wait, and would be found to be too large afterwards.
    fn check_size(&self, now: Instant, wall_ms: u64, message: &Outgoing<'_>) -> Result<()> {
        let may_be_too_large = message.payload.len() + message_overhead(message) > self.max_message_size;
        if self.named && may_be_too_large {
            let sequence_id = message.sequence_id.unwrap_or(self.next_sequence);
            single(&self.sender(), now, wall_ms, message, &self.schema_version, sequence_id)?;
        }
        Ok(())
    }

    fn accept(&mut self, now: Instant, wall_ms: u64, message: &Outgoing<'_>) -> Result<u64> {
        if let Some(error) = &self.stopped {
            return Err(error.clone());
        }
        let sequence_id = message.sequence_id.unwrap_or(self.next_sequence);
        if sequence_id > MAX_SEQUENCE_ID {
            return Err(self.used_up(message.sequence_id));
        }
        if self.options.stop_on_refusal
            && message.sequence_id.is_some_and(|own| self.named && (own as i64) < self.known)
        {
            self.close_batch();
            self.window.push_back(Entry::known(sequence_id, message.payload.len(), now));
            self.pending_messages += 1;
            self.pending_bytes += message.payload.len();
            self.settle();
            return Ok(sequence_id);
        }
        // A sequence id that does not increase may be a duplicate, and the broker drops a
        // duplicate's whole batch.
        let may_be_duplicate = (sequence_id as i64) <= self.last_sequence;
        let alone = !self.options.batching
            || message.deliver_at.is_some()
            // They are of the entry, not of its messages.
            || !message.replicate_to.is_empty()
            || may_be_duplicate
            || self.options.chunking && self.options.chunk_max_size.is_some_and(|most| message.payload.len() > most)
            || message.payload.len() + message_overhead(message) > self.batch_limit();
        if alone {
            // This fails before anything has changed, so a message that is too large leaves no gap.
            let version = message.schema_version.unwrap_or(&self.schema_version);
            let entries = single(&self.sender(), now, wall_ms, message, version, sequence_id)?;
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

    /// The refusal of a sequence id that is too large: the caller's own, or the producer's next.
    #[cold]
    fn used_up(&self, own: Option<u64>) -> Error {
        match own {
            Some(own) => Error::new(
                ErrorKind::InvalidArgument,
                format!("sequence_id is {own}, and the largest is {MAX_SEQUENCE_ID}"),
            ),
            None => Error::new(
                ErrorKind::NotAllowed,
                format!(
                    "the sequence ids of the producer {:?} are used up: the broker has received one from {MAX_SEQUENCE_ID} \
                     on; choose another name for the producer",
                    self.name
                ),
            ),
        }
    }

    fn push_batched(&mut self, now: Instant, wall_ms: u64, message: &Outgoing<'_>, sequence_id: u64) {
        let size = message.payload.len() + message_overhead(message);
        let limit = self.batch_limit();
        let version = message.schema_version.unwrap_or(&self.schema_version);
        // The metadata of an entry state one version for all its messages. Most have none.
        let is_other = |open: &Bytes| !(open.is_empty() && version.is_empty()) && open != version;
        if self.open.size + size > limit || self.open.version().is_some_and(is_other) {
            self.close_batch();
        }
        let version = message.schema_version.unwrap_or(&self.schema_version);
        self.open.push(now, wall_ms, message, version, sequence_id, (size, limit));
        if self.open.count >= self.options.batch_max_messages || self.open.size >= limit {
            self.close_batch();
        }
    }

    /// Version of the producer's schema; empty if it has none, or is not known.
    pub fn schema_version(&self) -> &Bytes {
        &self.schema_version
    }

    /// Handles PRODUCER_SUCCESS: the window is sent again from its start.
    pub fn attach(&mut self, producer_name: &str, last_sequence_id: i64, max_message_size: usize) {
        if matches!(self.state, State::Closed(_)) {
            return;
        }
        if !self.named {
            self.named = true;
            self.name = producer_name.to_owned();
            self.last_sequence = self.last_sequence.max(last_sequence_id);
            self.known = last_sequence_id;
            if self.options.initial_sequence_id.is_none() {
                self.last_published = self.last_published.max(last_sequence_id);
                if self.pending_messages == self.early.len() {
                    self.next_sequence = after(last_sequence_id);
                }
            }
        } else if self.options.stop_on_refusal && last_sequence_id < self.known {
            self.stop(&Error::new(
                ErrorKind::Persistence,
                format!(
                    "the broker had received messages of this producer up to sequence id {}, and has not stored those \
                     behind {last_sequence_id}: open the producer again, and send all messages again",
                    self.known
                ),
            ));
        }
        if max_message_size < self.max_message_size {
            for entry in self.window.iter_mut().filter(|entry| entry.len() > max_message_size + FRAME_ROOM) {
                entry.doomed = Some(Error::new(
                    ErrorKind::MessageTooLarge,
                    format!(
                        "the broker now accepts messages of at most {max_message_size} bytes: split the message or enable chunking"
                    ),
                ));
            }
        }
        self.max_message_size = max_message_size;
        self.trouble = None;
        self.state = State::Attached;
        self.in_flight = 0;
        self.in_flight_messages = 0;
        self.release();
    }

    /// Whether [`Self::attach`] has been called.
    pub fn has_attached(&self) -> bool {
        self.named
    }

    /// Handles the end of the connection or a CLOSE_PRODUCER. Nothing is sent until the next
    /// [`Self::attach`].
    pub fn detach(&mut self) {
        if matches!(self.state, State::Attached) {
            self.state = State::Detached;
        }
        self.in_flight = 0;
        self.in_flight_messages = 0;
    }

    /// Notes why the last attempt to attach failed.
    pub fn note_trouble(&mut self, error: Error) {
        self.trouble = Some(error);
    }

    /// Why there is no connection, if the last attempt failed.
    pub fn trouble(&self) -> Option<&Error> {
        self.trouble.as_ref()
    }

    /// Handles a receipt. An error means that receipts were lost: the caller must close the
    /// connection, so that the window is sent again.
    pub fn handle_receipt(&mut self, receipt: &hot::SendReceipt) -> Result<()> {
        let Some(head) = self.window.front() else { return Ok(()) };
        // Brokers acknowledge a batch by its first or its last id. Ids below the head belong to
        // messages that have timed out or have already been acknowledged.
        if receipt.sequence_id < head.first_sequence {
            return Ok(());
        }
        if self.in_flight == 0 || receipt.sequence_id > head.last_sequence {
            return Err(Error::protocol(format!(
                "the broker sent a receipt for sequence id {} while {} was expected",
                receipt.sequence_id, head.first_sequence
            )));
        }
        let entry = self.pop_head().expect("the window has a head");
        self.refusal = None;
        let (ledger, number) =
            receipt.message_id.as_ref().map_or((u64::MAX, u64::MAX), |id| (id.ledger_id, id.entry_id));
        if entry.count > 0 {
            self.last_published = self.last_published.max(entry.last_sequence as i64);
            let first_chunk =
                self.first_chunk.take_if(|(sequence_id, _)| *sequence_id == entry.last_sequence);
            let first_chunk = first_chunk.map(|(_, first)| first);
            self.end(&entry, Ok(Stored { ledger, entry: number, size: entry.count, first_chunk }));
        } else if receipt.message_id.is_some()
            && self.first_chunk.is_none_or(|(sequence_id, _)| sequence_id != entry.last_sequence)
        {
            self.first_chunk = Some((entry.last_sequence, (ledger, number)));
        }
        self.settle();
        Ok(())
    }

    /// Handles SEND_ERROR. An error return means that the caller must close the connection, so that
    /// the window is sent again. Other errors end only the entry that they name.
    pub fn handle_send_error(&mut self, error: &pb::CommandSendError) -> Result<()> {
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
        // All chunks of a message share its sequence id and fail together.
        for entry in self.window.iter_mut() {
            if (entry.first_sequence..=entry.last_sequence).contains(&sequence_id) && entry.doomed.is_none() {
                entry.doomed = Some(typed.clone());
            }
        }
        self.settle();
        Ok(())
    }

    /// Closes the open batch with the next [`Self::poll_transmit`].
    pub fn flush(&mut self) {
        self.close_open = true;
    }

    /// Closes a batch whose delay has passed, and fails messages that exceeded the send timeout.
    pub fn handle_timeout(&mut self, now: Instant) {
        let timeout = self.options.send_timeout;
        let is_due = |since: Instant| timeout.is_some_and(|timeout| since + timeout <= now);
        let overdue = self.early.front().is_some_and(|first| is_due(first.since));
        // What was pushed before a message that has to fail fails before it.
        if overdue || self.open.since().is_some_and(|since| since + self.options.batch_delay <= now) {
            self.close_batch();
        }
        let Some(timeout) = timeout else { return };
        while let Some(head) = self.window.front()
            && is_due(head.since)
        {
            let error = self.refusal.clone().unwrap_or_else(|| {
                let text = format!(
                    "no receipt within send_timeout ({timeout:?}); the message may or may not have been stored"
                );
                let schema_trouble = head.doubt.as_ref().and(self.schema_trouble.as_ref());
                Error::new(ErrorKind::Timeout, because(text, schema_trouble.or(self.trouble.as_ref())))
            });
            let entry = self.pop_head().expect("the window has a head");
            self.fail(&entry, error);
        }
        while let Some(first) = self.early.front()
            && is_due(first.since)
            && self.window.is_empty()
        {
            let (what, trouble) = if self.named {
                ("the schema of the message, or of one before it, was not registered", &self.schema_trouble)
            } else {
                ("the partition was not opened", &None)
            };
            let text = format!("{what} within send_timeout ({timeout:?}); the message was not sent");
            let error =
                Error::new(ErrorKind::Timeout, because(text, trouble.as_ref().or(self.trouble.as_ref())));
            self.fail_early(error);
        }
        // The message that was waited for may have been among them.
        self.release();
    }

    /// Time at which [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let batch = self.open.since().map(|since| since + self.options.batch_delay);
        let timeout = self.options.send_timeout;
        let since =
            self.window.front().map(|head| head.since).or(self.early.front().map(|first| first.since));
        let send = since.and_then(|since| Some(since + timeout?));
        earliest(batch, send)
    }

    /// Writes about `budget` bytes of what may be sent now; true if more may be sent.
    pub fn poll_transmit(&mut self, out: &mut Transmit, budget: usize) -> bool {
        if !matches!(self.state, State::Attached) {
            return false;
        }
        // Reset in any case: the request to flush does not extend to a later batch.
        let large_enough = self.open.count * 2 >= self.in_flight_messages;
        if std::mem::take(&mut self.close_open) || self.window.is_empty() || large_enough {
            self.close_batch();
            self.settle();
        }
        let mut written = 0;
        while let Some(entry) = self.window.get(self.in_flight) {
            let messages = entry.count as usize;
            let fits = self.in_flight_messages + messages <= self.options.max_pending;
            let room = self.in_flight == 0 || fits && !self.options.stop_on_refusal;
            if !room {
                return false;
            }
            if written >= budget {
                return true;
            }
            if entry.doomed.is_none() {
                if entry.doubt.is_some() {
                    return false;
                }
                written += entry.len();
                entry.write(out);
            }
            self.in_flight += 1;
            self.in_flight_messages += messages;
        }
        false
    }

    /// Returns the next outcome.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Closes the producer: all pending messages and all later pushes fail with `error`.
    pub fn close(&mut self, error: Error) {
        self.close_batch();
        while let Some(entry) = self.pop_head() {
            let error = entry.doomed.clone().unwrap_or_else(|| error.clone());
            self.fail(&entry, error);
        }
        while !self.early.is_empty() {
            self.fail_early(error.clone());
        }
        self.state = State::Closed(error);
        self.check();
    }

    /// Fails all pending messages with `error`, before the first [`Self::attach`]. Later pushes are
    /// accepted.
    pub fn refuse(&mut self, error: &Error) {
        while !self.early.is_empty() {
            self.fail_early(error.clone());
        }
        self.check();
    }

    /// Number of messages without an outcome.
    pub fn pending_messages(&self) -> usize {
        self.pending_messages
    }

    /// Total payload size of the pending messages in bytes.
    pub fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Whether no messages are pending.
    pub fn is_idle(&self) -> bool {
        self.pending_messages == 0
    }

    /// Highest sequence id that has a receipt; before the first, the last one of a predecessor of
    /// the same name, or the initial one of the options; -1 for none.
    pub fn last_sequence_id(&self) -> i64 {
        self.last_published
    }

    fn sender(&self) -> Sender<'_> {
        sender(self.id, &self.name, &self.options, self.max_message_size)
    }

    fn batch_limit(&self) -> usize {
        self.options.batch_max_bytes.min(self.max_message_size)
    }

    fn close_batch(&mut self) {
        let sender = sender(self.id, &self.name, &self.options, self.max_message_size);
        self.open.close(&sender, &mut self.window, &mut self.groups);
    }

    /// Fails the first of the messages that wait.
    fn fail_early(&mut self, error: Error) {
        if let Some(first) = self.early.pop_front() {
            let bytes = first.bytes();
            self.pending_messages -= 1;
            self.pending_bytes -= bytes;
            self.events.push_back(Event::Failed { count: 1, error, bytes });
        }
    }

    fn pop_head(&mut self) -> Option<Entry> {
        let entry = self.window.pop_front()?;
        if self.in_flight > 0 {
            self.in_flight -= 1;
            self.in_flight_messages -= entry.count as usize;
        }
        Some(entry)
    }

    /// Reports the outcome of an entry, as soon as those of all messages before are reported.
    fn end(&mut self, entry: &Entry, outcome: Result<Stored>) {
        let Self { pending_messages, pending_bytes, events, .. } = self;
        let mut report = |count: u32, bytes: usize, event| {
            *pending_messages -= count as usize;
            *pending_bytes -= bytes;
            events.push_back(event);
        };
        let (count, bytes) = (entry.count, entry.bytes);
        match (entry.place, self.groups.front_mut()) {
            (Some(place), Some(group)) => {
                group.end(place, outcome, report);
                if group.is_done() {
                    self.groups.pop_front();
                }
            }
            _ => report(
                count,
                bytes,
                match outcome {
                    Ok(Stored { ledger, entry: number, size, first_chunk }) => {
                        let batch = entry.batch.then_some((0, size));
                        Event::Stored { count, ledger, entry: number, batch, first_chunk, bytes }
                    }
                    Err(error) => Event::Failed { count, error, bytes },
                },
            ),
        }
    }

    /// Ends the entries at the head of the window that are not sent.
    fn settle(&mut self) {
        while let Some(head) = self.window.front() {
            let (error, known) = (head.doomed.clone(), head.known);
            if error.is_none() && !known {
                break;
            }
            if self.options.stop_on_refusal
                && self.stopped.is_none()
                && let Some(error) = &error
            {
                let text = format!("nothing is sent behind a message that was refused: {}", error.message());
                self.stop(&Error::new(ErrorKind::Closed, text));
            }
            let entry = self.pop_head().expect("the window has a head");
            match error {
                Some(error) => self.fail(&entry, error),
                None => self.end(
                    &entry,
                    Ok(Stored { ledger: u64::MAX, entry: u64::MAX, size: 1, first_chunk: None }),
                ),
            }
        }
        self.check();
    }

    /// Fails what is pending, each in its turn, and all later pushes.
    fn stop(&mut self, error: &Error) {
        self.stopped = Some(error.clone());
        self.close_batch();
        for entry in &mut self.window {
            entry.doomed.get_or_insert_with(|| error.clone());
        }
    }

    fn fail(&mut self, entry: &Entry, error: Error) {
        if entry.count > 0 {
            self.end(entry, Err(error));
        } else {
            // The message's other chunks are useless without this one.
            for other in
                self.window.iter_mut().take_while(|other| other.first_sequence == entry.first_sequence)
            {
                other.doomed.get_or_insert_with(|| error.clone());
            }
        }
    }

    /// Asserts that the messages and bytes admitted equal those released plus those held.
    fn check(&self) {
        if cfg!(debug_assertions) {
            let ended = self.groups.iter().map(Group::held);
            let held = self.window.iter().map(|entry| (entry.count as usize, entry.bytes));
            let early = self.early.iter().map(|message| (1, message.bytes()));
            let held = held
                .chain(early)
                .chain(ended)
                .fold((self.open.count, self.open.bytes), |(messages, bytes), more| {
                    (messages + more.0, bytes + more.1)
                });
            assert_eq!((self.pending_messages, self.pending_bytes), held, "messages or bytes were lost");
            assert!(self.in_flight <= self.window.len());
        }
    }
}

/// A function of the fields, so that the open batches can be changed beside it.
fn sender<'a>(producer_id: u64, name: &'a str, options: &Options, max_message_size: usize) -> Sender<'a> {
    Sender {
        producer_id,
        name,
        compression: options.compression,
        compression_min_size: options.compression_min_size,
        max_message_size,
        chunks: options.chunking.then_some(options.chunk_max_size.unwrap_or(usize::MAX)),
    }
}

/// The sequence id after `last`, which is -1 for none.
fn after(last: i64) -> u64 {
    last.saturating_add(1).max(0) as u64
}

/// The largest sequence id: behind it there is room for those of the messages of a batch. Brokers
/// and clients in Java hold ids in 64 bits with a sign.
pub const MAX_SEQUENCE_ID: u64 = 1 << 62;

/// Upper bound for the frame overhead of a message.
const FRAME_ROOM: usize = crate::frame::FRAME_PADDING;

/// Upper bound for the size of a message in a batch, without its payload.
fn message_overhead(message: &Outgoing<'_>) -> usize {
    let properties: usize = message.properties.iter().map(|(key, value)| key.len() + value.len() + 12).sum();
    40 + properties + message.key.map_or(0, str::len) + message.ordering_key.map_or(0, <[u8]>::len)
}

#[cfg(test)]
mod tests;
