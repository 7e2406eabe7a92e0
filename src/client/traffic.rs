//! Counters of messages, which never fall, and latencies.
//!
//! Nothing here takes a lock. What is counted for each message is counted under a lock that its
//! caller holds anyway, so it needs no atomic addition; additions to the totals of a client are
//! made once for each batch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_base::clock;

/// Number of classes of latencies. Each power of two of microseconds has four, up to 67 s: a
/// latency is off by a quarter at most.
const CLASSES: usize = 104;

/// The class of a latency in microseconds.
fn class(micros: u64) -> usize {
    if micros < 4 {
        return micros as usize;
    }
    let power = micros.ilog2();
    let quarter = micros >> (power - 2) & 3;
    ((power as usize - 1) * 4 + quarter as usize).min(CLASSES - 1)
}

/// The microseconds below which the latencies of a class are.
fn bound(class: usize) -> u64 {
    match class {
        0..4 => class as u64 + 1,
        _ => (5 + class as u64 % 4) << (class / 4 - 1),
    }
}

/// Latencies by class, and their sum.
#[derive(Debug)]
pub(super) struct Latencies {
    micros: AtomicU64,
    classes: [AtomicU64; CLASSES],
}

impl Default for Latencies {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self { micros: zero(), classes: std::array::from_fn(|_| zero()) }
    }
}

impl Latencies {
    /// Adds one.
    pub(super) fn add(&self, latency: Duration) {
        let micros = latency.as_micros() as u64;
        self.micros.fetch_add(micros, Ordering::Relaxed);
        self.classes[class(micros)].fetch_add(1, Ordering::Relaxed);
    }

    /// The latencies so far.
    pub(super) fn counts(&self) -> LatencyCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LatencyCounts { micros: of(&self.micros), classes: self.classes.iter().map(of).collect() }
    }
}

/// Latencies at some time.
#[derive(Clone, Debug, Default)]
pub struct LatencyCounts {
    micros: u64,
    classes: Vec<u64>,
}

impl LatencyCounts {
    fn add(&mut self, other: &Self) {
        self.micros += other.micros;
        self.classes.resize(CLASSES, 0);
        self.classes.iter_mut().zip(&other.classes).for_each(|(mine, more)| *mine += more);
    }

    /// How many were measured.
    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// Their sum.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.micros)
    }

    /// Latency that `share` of them did not exceed; `None` without any.
    pub fn percentile(&self, share: f64) -> Option<Duration> {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.classes.iter().position(|messages| {
            seen += messages;
            seen >= wanted
        })?;
        Some(Duration::from_micros(bound(found)))
    }
}

/// Counters of what was sent.
#[derive(Debug, Default)]
pub struct SendCounters {
    acknowledged: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
    latencies: Latencies,
}

impl SendCounters {
    /// Counts messages that the broker has acknowledged.
    pub(super) fn acknowledged(&self, messages: u64, bytes: usize) {
        self.acknowledged.fetch_add(messages, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts messages that failed.
    pub(super) fn failed(&self, messages: u64) {
        self.failed.fetch_add(messages, Ordering::Relaxed);
    }

    /// Adds the latency of one message.
    pub(super) fn latency(&self, latency: Duration) {
        self.latencies.add(latency);
    }

    /// The counters now.
    pub fn counts(&self) -> SendCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SendCounts {
            acknowledged: of(&self.acknowledged),
            bytes: of(&self.bytes),
            failed: of(&self.failed),
            latencies: self.latencies.counts(),
        }
    }
}

/// Values of [`SendCounters`].
#[derive(Clone, Debug, Default)]
pub struct SendCounts {
    /// Messages that the broker has acknowledged.
    pub acknowledged: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Messages that failed.
    pub failed: u64,
    /// Their latencies, of one message at a time.
    pub latencies: LatencyCounts,
}

impl SendCounts {
    /// The sums of both.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.acknowledged += other.acknowledged;
        self.bytes += other.bytes;
        self.failed += other.failed;
        self.latencies.add(&other.latencies);
        self
    }
}

/// Measures the latency of sends whose outcomes come in the order of the pushes, one message at a
/// time: the next one that is pushed after the last one measured has its outcome. So the clock is
/// read twice in a round trip.
#[derive(Debug)]
pub(super) struct Probe {
    base: Instant,
    admitted: AtomicU64,
    completed: AtomicU64,
    /// Number of the message that is measured, 0 for none.
    number: AtomicU64,
    /// Nanoseconds from `base` to its push.
    since: AtomicU64,
}

impl Default for Probe {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self { base: clock::now(), admitted: zero(), completed: zero(), number: zero(), since: zero() }
    }
}

impl Probe {
    fn now(&self) -> u64 {
        clock::now().saturating_duration_since(self.base).as_nanos() as u64
    }

    /// A message was pushed. The caller holds the lock of the queue it was pushed to, so that its
    /// outcome comes later and no other push at the same time.
    pub(super) fn pushed(&self) {
        let number = self.admitted.load(Ordering::Relaxed) + 1;
        self.admitted.store(number, Ordering::Relaxed);
        if self.number.load(Ordering::Relaxed) == 0 {
            self.since.store(self.now(), Ordering::Relaxed);
            self.number.store(number, Ordering::Release);
        }
    }

    /// The next `count` messages have their outcome. Returns the latency of the one that is
    /// measured if it is among them.
    pub(super) fn ended(&self, count: u64) -> Option<Duration> {
        let completed = self.completed.fetch_add(count, Ordering::AcqRel) + count;
        let number = self.number.load(Ordering::Acquire);
        if number == 0 || completed < number {
            return None;
        }
        let since = self.since.load(Ordering::Relaxed);
        let taken = self.number.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Relaxed);
        taken.ok().map(|_| Duration::from_nanos(self.now().saturating_sub(since)))
    }
}

/// Counters of what was received.
#[derive(Debug, Default)]
pub struct ReceiveCounters {
    messages: AtomicU64,
    bytes: AtomicU64,
    redelivered: AtomicU64,
    acknowledged: AtomicU64,
    refused: AtomicU64,
}

impl ReceiveCounters {
    /// Counts messages that were taken from the engine's queue.
    pub fn received(&self, messages: u64, bytes: u64, redelivered: u64) {
        self.messages.fetch_add(messages, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if redelivered > 0 {
            self.redelivered.fetch_add(redelivered, Ordering::Relaxed);
        }
    }

    /// Counts acknowledgements.
    pub fn acknowledged(&self, messages: u64) {
        self.acknowledged.fetch_add(messages, Ordering::Relaxed);
    }

    /// Counts negative acknowledgements.
    pub fn refused(&self, messages: u64) {
        self.refused.fetch_add(messages, Ordering::Relaxed);
    }

    /// The counters now.
    pub fn counts(&self) -> ReceiveCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ReceiveCounts {
            messages: of(&self.messages),
            bytes: of(&self.bytes),
            redelivered: of(&self.redelivered),
            acknowledged: of(&self.acknowledged),
            refused: of(&self.refused),
        }
    }
}

/// Values of [`ReceiveCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveCounts {
    /// Messages.
    pub messages: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Those of them that the broker marks as delivered before.
    pub redelivered: u64,
    /// Acknowledgements by the application.
    pub acknowledged: u64,
    /// Negative acknowledgements by the application.
    pub refused: u64,
}

/// Totals of a client, over the producers and consumers that it has and had.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Sent by its producers.
    pub sends: SendCounters,
    /// Received by its consumers.
    pub receives: ReceiveCounters,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_off_by_a_quarter_at_most() {
        let mut before = 0;
        for micros in 0..1_000_000 {
            let class = class(micros);
            assert!(class == before || class == before + 1, "{micros}");
            before = class;
            let bound = bound(class);
            assert!(bound > micros && bound <= micros + micros / 4 + 1, "{micros} is below {bound}");
        }
        assert_eq!(class(u64::MAX), CLASSES - 1);
    }

    #[test]
    fn percentiles_are_those_of_the_latencies() {
        let counters = SendCounters::default();
        assert_eq!(counters.counts().latencies.percentile(0.5), None);
        for millis in 1..=100 {
            counters.latency(Duration::from_millis(millis));
        }
        let counts = SendCounts::default().plus(&counters.counts()).latencies;
        let at = |share| counts.percentile(share).unwrap().as_millis();
        assert!((50..=63).contains(&at(0.5)) && (99..=124).contains(&at(0.99)), "{} {}", at(0.5), at(0.99));
        assert_eq!((counts.count(), counts.sum()), (100, Duration::from_millis(5050)));
    }

    #[test]
    fn one_message_at_a_time_is_measured() {
        let probe = Probe::default();
        assert_eq!(probe.ended(0), None);
        (0..3).for_each(|_| probe.pushed());
        assert!(probe.ended(1).is_some(), "the first of three");
        assert!(probe.ended(1).is_none());
        probe.pushed();
        assert!(probe.ended(1).is_none(), "the third was pushed before");
        assert!(probe.ended(1).is_some());
    }
}
