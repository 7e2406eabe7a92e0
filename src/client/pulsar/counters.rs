//! Counters of a client that other protocols do not have. They never fall.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::traffic::{Latencies, LatencyCounts};
use forebay_base::clock;
use forebay_base::error::Result;

/// Counters of lookups.
#[derive(Debug, Default)]
pub(super) struct LookupCounters {
    failed: AtomicU64,
    latencies: Latencies,
}

impl LookupCounters {
    /// Awaits a lookup and counts it.
    pub(super) async fn count<T>(&self, lookup: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let since = clock::now();
        let result = lookup.await;
        match &result {
            Ok(_) => self.latencies.add(clock::now().saturating_duration_since(since)),
            Err(_) => drop(self.failed.fetch_add(1, Ordering::Relaxed)),
        }
        result
    }

    /// The counters now.
    pub(super) fn counts(&self) -> LookupCounts {
        LookupCounts { failed: self.failed.load(Ordering::Relaxed), latencies: self.latencies.counts() }
    }
}

/// Values of the counters of lookups.
#[derive(Clone, Debug, Default)]
pub struct LookupCounts {
    /// Lookups that failed, their repetitions included.
    pub failed: u64,
    /// Latencies of those that succeeded, from the first attempt on.
    pub latencies: LatencyCounts,
}

/// Counters of messages that consumers have sent to other topics.
#[derive(Debug, Default)]
pub(super) struct LetterCounters {
    dead: AtomicU64,
    failed: AtomicU64,
    retried: AtomicU64,
}

impl LetterCounters {
    /// Counts a message for the dead letter topic.
    pub(super) fn dead(&self, sent: bool) {
        let counter = if sent { &self.dead } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a message that was sent to the topic of retries.
    pub(super) fn retried(&self) {
        self.retried.fetch_add(1, Ordering::Relaxed);
    }

    /// The counters now.
    pub(super) fn counts(&self) -> LetterCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LetterCounts { dead: of(&self.dead), failed: of(&self.failed), retried: of(&self.retried) }
    }
}

/// Values of the counters of messages that consumers have sent to other topics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LetterCounts {
    /// Messages that were sent to the dead letter topic.
    pub dead: u64,
    /// Attempts to do so that failed.
    pub failed: u64,
    /// Messages that were sent to the topic of retries.
    pub retried: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::error::{Error, ErrorKind};

    #[tokio::test]
    async fn lookups_are_counted_by_their_outcome() {
        let counters = LookupCounters::default();
        counters.count(async { Ok(()) }).await.unwrap();
        let failed = counters.count::<()>(async { Err(Error::new(ErrorKind::TopicNotFound, "none")) }).await;
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::TopicNotFound);
        let counts = counters.counts();
        assert_eq!((counts.failed, counts.latencies.count()), (1, 1), "a failure has no latency");
    }
}
