//! Permits: how many messages the broker may deliver.

use std::time::{Duration, Instant};

use super::{Consumer, Options, State};
use crate::command::Command;
use crate::hot;
use forebay_base::error::{Error, Result};

/// Permits that a consumer grants before it knows the size of its messages, over all partitions.
pub const FIRST_PERMITS: u32 = 32;

/// Bytes of entries, and their number, that may come between two grants beyond what was granted.
/// Brokers charge a batch as a whole and read many entries at a time, by default up to 100 of 5 MiB
/// together, so that some come; more is a flood.
const FLOOD_BYTES: usize = 64 << 20;
const FLOOD_ENTRIES: usize = 10_000;

/// Entries that came without a permit since the last grant.
#[derive(Debug, Default)]
pub(super) struct Overrun {
    bytes: usize,
    entries: usize,
}

/// Permits of the current connection.
#[derive(Debug, Default)]
pub(super) struct Permits {
    pub(super) overrun: Overrun,
    pub(super) granted: u64,
    pub(super) charged: u64,
    /// Permits of messages that were taken or dropped.
    pub(super) returned: u64,
}

/// Time in which the broker may deliver. It stands still while that has no permits, as when the
/// application takes no messages: a chunk that does not come then is not late.
#[derive(Debug, Default)]
pub(super) struct Stopwatch {
    now: Option<Instant>,
    stopped: Option<Instant>,
    /// For how long it has stood still.
    lost: Duration,
}

impl Stopwatch {
    /// The time of the watch.
    pub(super) fn read(&mut self, now: Instant) -> Instant {
        self.now = Some(now);
        self.stopped.unwrap_or(now).checked_sub(self.lost).unwrap_or(now)
    }

    /// When the watch will show `time`; `None` while it stands still.
    pub(super) fn when(&self, time: Instant) -> Option<Instant> {
        self.stopped.is_none().then(|| time + self.lost)
    }

    fn stop(&mut self, now: Instant) {
        self.now = Some(now);
        self.stopped.get_or_insert(now);
    }

    fn go_on(&mut self) {
        if let (Some(stopped), Some(now)) = (self.stopped.take(), self.now) {
            self.lost += now.saturating_duration_since(stopped);
        }
    }
}

/// Number of messages that may be held or under way.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) size: u32,
    /// Limit at first: grows with each message that comes.
    pace: u32,
    /// Average size of the latest messages in bytes; 0 if unknown.
    average: usize,
}

impl Window {
    pub(super) fn new(options: &Options) -> Self {
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
    pub(super) fn arrived(&mut self, options: &Options, bytes: usize, permits: u32) {
        let each = bytes / permits.max(1) as usize;
        // Large messages count at once, so that not many more are under way.
        self.pace = self.pace.saturating_add(permits);
        self.average = if each > self.average { each } else { (self.average * 7 + each) / 8 };
        self.update(options);
    }
}

impl Consumer {
    /// Changes the limit on the size of the messages to prefetch.
    pub fn set_receive_buffer(&mut self, bytes: usize) {
        self.options.receive_buffer = bytes;
        self.window.update(&self.options);
    }

    /// Stops granting permits, or goes on with it. What was granted before still comes.
    pub fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Tells that the application waits for a message.
    pub fn want(&mut self) {
        self.wanted = true;
    }

    /// Number of messages granted and not yet charged; may fall below zero by at most one batch
    /// less one.
    pub fn outstanding_permits(&self) -> i64 {
        self.permits.granted as i64 - self.permits.charged as i64
    }

    /// Counts an entry of `bytes` that has come. The first error means that the caller must close
    /// the connection.
    pub fn check_flood(&mut self, bytes: usize) -> Result<()> {
        if self.outstanding_permits() > 0 {
            return Ok(());
        }
        let Overrun { bytes: sum, entries } = &mut self.permits.overrun;
        *sum += bytes;
        *entries += 1;
        let most = FLOOD_BYTES.max(self.options.receive_buffer.saturating_mul(2));
        if *sum <= most && *entries <= FLOOD_ENTRIES {
            return Ok(());
        }
        Err(Error::protocol(format!(
            "the broker sent {entries} entries of {sum} bytes beyond what the consumer asked for"
        )))
    }

    /// Permits to be granted now.
    pub(super) fn due_permits(&self) -> u32 {
        if self.paused {
            return 0;
        }
        if self.options.receiver_queue == 0 {
            // A batch was charged as many permits as it has messages, and brokers owe what exceeds
            // one.
            let owed = 1 - self.outstanding_permits();
            return if self.wanted && self.queue.is_empty() && owed > 0 { owed as u32 } else { 0 };
        }
        let room = self.room();
        if room > 0 && room >= i64::from(self.window.size / 2) { room as u32 } else { 0 }
    }

    /// Stops the watch if the broker can deliver no more.
    pub(super) fn look_at_permits(&mut self, now: Instant) {
        if self.outstanding_permits() <= 0 {
            self.stopwatch.stop(now);
        }
    }

    /// Permits that may be granted.
    fn room(&self) -> i64 {
        i64::from(self.window.size) - (self.permits.granted as i64 - self.permits.returned as i64)
    }

    pub(super) fn grant(&mut self, permits: u32) {
        self.permits.granted += u64::from(permits);
        self.permits.overrun = Overrun::default();
        if self.outstanding_permits() > 0 {
            self.stopwatch.go_on();
        }
        self.immediate.push_back(Command::Flow(hot::Flow { consumer_id: self.id, permits }));
    }

    pub(super) fn give_back(&mut self, count: u32) {
        self.permits.returned += u64::from(count);
        debug_assert!(
            self.state == State::Detached
                || self.permits.returned + self.queue.len() as u64 <= self.permits.charged,
            "returned more permits than the broker charged"
        );
    }
}
