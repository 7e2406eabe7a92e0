//! A part of a partition, read once, in order and to its end.
//!
//! ```text
//!              there is something to take
//!           ┌──────────────────────────────┐
//!           ▼                              │
//!  open ► Reading ── nothing to take ──► Waiting ── nothing came in time ──► Timeout
//!           │                              │
//!           │ an entry at or behind        │ the broker has nothing more
//!           │ the end has come             ▼
//!           ▼                           DataLost, or Done
//!      passed ── a message that began before the end is not whole ──► waits for its chunks
//!           │
//!           ▼
//!          Done
//! ```
//!
//! A message that was sent in chunks belongs to the range that holds its first chunk. Ranges that
//! lie side by side thus have each message once, wherever they meet: the range of the first chunk
//! is read on until the last one has come, and the next range drops the chunks without a beginning.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::events::ConsumerEvents;
use crate::logger;
use crate::pulsar::consumer::Consumer;
use crate::pulsar::options::ConsumerOptions;
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_pulsar::{Message, MessageId};
use tracing::warn;

/// Time without a message after which the broker is asked whether there is one.
const PAUSE: Duration = Duration::from_millis(200);
/// Time for which a block that is not full waits for more messages.
const LINGER: Duration = Duration::from_millis(20);
/// Messages taken from the consumer at once.
const AT_ONCE: usize = 1000;

/// Beginning of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// With the first message of the partition.
    Earliest,
    /// With this message, or, by the id of an entry, with the first of its messages.
    At(MessageId),
    /// Behind this message, or, by the id of an entry, behind all of its messages.
    Behind(MessageId),
}

/// A part of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The beginning.
    pub from: Begin,
    /// The last message that belongs to it, or, by the id of an entry, the last of its messages.
    pub to: MessageId,
}

impl Range {
    /// The position and whether it is inclusive, for a reader that begins there.
    pub fn position(&self) -> (MessageId, bool) {
        match self.from {
            Begin::Earliest => (MessageId::EARLIEST, false),
            Begin::At(id) => (id, true),
            Begin::Behind(id) => (id, false),
        }
    }

    /// Whether a message that begins at `first` lies before the range.
    fn is_before(&self, first: &MessageId) -> bool {
        match self.from {
            Begin::Earliest => false,
            Begin::At(from) => place(first) < place(&from),
            Begin::Behind(from) => place(first) <= end(&from),
        }
    }

    /// Whether a message that begins at `first` lies behind the range.
    fn is_behind(&self, first: &MessageId) -> bool {
        place(first) > end(&self.to)
    }

    /// Whether a message that begins at `first` belongs to the range.
    fn holds(&self, first: &MessageId) -> bool {
        !self.is_before(first) && !self.is_behind(first)
    }

    /// Whether nothing of the range comes behind the message `id`.
    fn is_last(&self, id: &MessageId) -> bool {
        let last_of_entry = id.batch_size <= 0 || id.batch_index + 1 >= id.batch_size;
        let (here, end) = (place(id), end(&self.to));
        here >= end || here.0 == end.0 && here.1 == end.1 && last_of_entry
    }
}

/// Ledger, entry and index in the batch. All but the last may be -1.
fn place(id: &MessageId) -> (i64, i64, i32) {
    (id.ledger as i64, id.entry as i64, id.batch_index.max(0))
}

/// The same of the last message that an id stands for.
fn end(id: &MessageId) -> (i64, i64, i32) {
    (id.ledger as i64, id.entry as i64, if id.batch_index < 0 { i32::MAX } else { id.batch_index })
}

/// When reading fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Longest time without a message while the broker says that there is one.
    pub timeout: Duration,
    /// Whether it is an error that the broker has nothing more before the end.
    pub fails_on_loss: bool,
}

/// Wakes the task that reads.
#[derive(Debug, Default)]
pub(super) struct Wake(Notify);

impl ConsumerEvents for Wake {
    fn readable(&self) {
        self.0.notify_one();
    }

    fn closed(&self, _error: Error) {
        self.0.notify_one();
    }
}

/// Reads a [`Range`].
#[derive(Debug)]
pub struct RangeReader {
    consumer: Arc<Consumer>,
    wake: Arc<Wake>,
    range: Range,
    rules: Rules,
    /// Longest time for which the next chunk of a message is waited for; zero for no limit.
    chunk_timeout: Duration,
    ahead: VecDeque<Message>,
    /// When something has arrived last, and what.
    alive: (Instant, Option<MessageId>),
    /// When it was seen that the end is reached: by a message, or by an entry without one.
    passed: Option<Instant>,
    done: bool,
}

impl RangeReader {
    pub(super) fn new(
        consumer: Consumer,
        wake: Arc<Wake>,
        range: Range,
        rules: Rules,
        options: &ConsumerOptions,
    ) -> Self {
        Self {
            consumer: Arc::new(consumer),
            wake,
            range,
            rules,
            chunk_timeout: options.chunked_message_timeout,
            ahead: VecDeque::new(),
            alive: (clock::now(), None),
            passed: None,
            done: false,
        }
    }

    /// The consumer. Closing it ends [`Self::next`].
    pub fn consumer(&self) -> &Arc<Consumer> {
        &self.consumer
    }

    /// The next messages, up to `most` or, unless it is one alone, `bytes` with keys and
    /// properties. None are the end.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Timeout`]: the broker has a message, and it does not come.
    /// [`ErrorKind::DataLost`]. Errors that end the consumer.
    pub async fn next(&mut self, most: usize, bytes: usize) -> Result<Vec<Message>> {
        let (mut block, mut size) = (Vec::new(), 0);
        let mut full_by = None;
        while !self.done {
            if self.ahead.is_empty() {
                self.fetch()?;
            }
            if self.ahead.is_empty() {
                if self.passed.is_some() && self.incomplete().is_none() {
                    self.end()?;
                    break;
                }
                if block.is_empty() {
                    self.wait().await?;
                    continue;
                }
                // A table of few rows costs as much as one of many.
                let now = clock::now();
                let by = *full_by.get_or_insert(now + LINGER);
                if now >= by || self.passed.is_some() {
                    break;
                }
                self.readable(by - now).await;
                continue;
            }
            while let Some(message) = self.ahead.front() {
                let first = message.first_chunk().unwrap_or(message.id);
                let wanted = self.range.holds(&first);
                if wanted && !block.is_empty() && (block.len() >= most || size + message.size() > bytes) {
                    return Ok(block);
                }
                if self.range.is_last(&message.id) {
                    self.pass();
                }
                let message = self.ahead.pop_front().expect("looked at");
                if wanted {
                    size += message.size();
                    block.push(message);
                }
            }
        }
        Ok(block)
    }

    /// Takes what has arrived, and looks whether the end has.
    fn fetch(&mut self) -> Result<()> {
        let mut taken = Vec::new();
        match self.consumer.take(AT_ONCE, &mut taken) {
            // A topic that has ended has no message behind its last.
            Err(error) if error.kind() == ErrorKind::EndOfTopic => self.pass(),
            taken => drop(taken?),
        }
        // The end may be a chunk, or an entry that was passed over: no message comes for it.
        let arrived = self.consumer.drained_to();
        if arrived.is_some_and(|entry| self.range.is_last(&entry)) {
            self.pass();
        }
        if !taken.is_empty() || arrived != self.alive.1 {
            self.alive = (clock::now(), arrived);
        }
        self.ahead = taken.into();
        Ok(())
    }

    fn pass(&mut self) {
        self.passed.get_or_insert_with(clock::now);
    }

    /// The latest publish time, in milliseconds since 1970, of the chunks of messages that began in
    /// the range and have not come whole.
    fn incomplete(&self) -> Option<u64> {
        self.consumer.incomplete(|first| self.range.holds(first))
    }

    fn end(&mut self) -> Result<()> {
        self.done = true;
        match self.consumer.lost(|first| self.range.holds(first)) {
            Some(first) => self.lose(&format!("the message in chunks that begins at {first} was given up")),
            None => Ok(()),
        }
    }

    /// An error, or a line in the log.
    fn lose(&self, text: &str) -> Result<()> {
        let error = Error::new(ErrorKind::DataLost, text.to_owned()).with_topic(self.consumer.topic());
        if self.rules.fails_on_loss {
            return Err(error);
        }
        warn!(target: logger::PULSAR_RANGE, "{error}");
        Ok(())
    }

    /// Waits until there may be something to take, for so long at most.
    async fn readable(&self, time: Duration) {
        if self.consumer.arm() {
            let _ = tokio::time::timeout(time, self.wake.0.notified()).await;
        }
    }

    /// Waits for a message. Ends the range if there is none.
    async fn wait(&mut self) -> Result<()> {
        self.readable(PAUSE).await;
        if self.consumer.has_ready() {
            return Ok(());
        }
        if let Some(passed) = self.passed {
            return self.wait_for_chunks(passed).await;
        }
        let waited = clock::now().saturating_duration_since(self.alive.0);
        match self.consumer.has_message_available().await {
            Ok(false) => {
                self.done = true;
                self.lose(&format!(
                    "there is no message any more up to {}, the end of what was to be read: messages were deleted",
                    self.range.to
                ))
            }
            Err(error) if waited > self.rules.timeout => Err(error),
            Ok(true) if waited > self.rules.timeout => {
                let text = format!(
                    "no message has come for {waited:.1?}, though the broker has some before {}, the end of what is read",
                    self.range.to
                );
                Err(Error::new(ErrorKind::Timeout, text).with_topic(self.consumer.topic()))
            }
            Ok(true) | Err(_) => Ok(()),
        }
    }

    /// Waits for the rest of a message that began in the range, behind its end. The consumer gives
    /// it up when its next chunk does not come in time. It is given up at once if its producer has
    /// fallen silent for as long, and the broker has nothing more.
    async fn wait_for_chunks(&mut self, passed: Instant) -> Result<()> {
        let Some(published) = self.incomplete() else { return Ok(()) };
        let limit = if self.chunk_timeout.is_zero() { self.rules.timeout } else { self.chunk_timeout };
        let is_silent = u128::from(clock::wall_ms().saturating_sub(published)) > limit.as_millis();
        let waited = clock::now().saturating_duration_since(passed);
        if is_silent && self.is_drained().await || self.chunk_timeout.is_zero() && waited > limit {
            warn!(
                target: logger::PULSAR_RANGE,
                "{}: a message in chunks that began before {} was not completed, and is left out",
                self.consumer.topic(),
                self.range.to,
            );
            return self.end();
        }
        Ok(())
    }

    /// Whether the broker has nothing behind what was taken.
    async fn is_drained(&self) -> bool {
        let Ok(ids) = self.consumer.last_message_ids().await else { return false };
        let entry = |id: &MessageId| (id.ledger as i64, id.entry as i64);
        let drained = self.consumer.drained_to();
        drained.zip(ids.first()).is_some_and(|(drained, (_, last))| entry(&drained) >= entry(last))
    }
}
