//! Counters, and when `$SYS` is published next.

use std::time::{Duration, Instant};

use forebay_base::random::HashMap;

/// Interval of the publications on `$SYS`.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);

/// Counters since the start, and the state of the `$SYS` topics.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) started: Instant,
    pub(super) next_at: Instant,
    pub(super) told: HashMap<&'static str, String>,
    pub(super) sockets: u64,
    pub(super) refused: u64,
    /// Subscribers that were disconnected because they were too slow.
    pub(super) evicted: u64,
    /// Client identifiers assigned by the broker.
    pub(super) assigned: u64,
    pub(super) published: u64,
    pub(super) delivered: u64,
    /// Those that were sent again.
    pub(super) redelivered: u64,
    pub(super) dropped: u64,
    /// Requests that the permissions do not allow.
    pub(super) denied: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

impl Counters {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            started: now,
            next_at: now + INTERVAL,
            told: HashMap::default(),
            sockets: 0,
            refused: 0,
            evicted: 0,
            assigned: 0,
            published: 0,
            delivered: 0,
            redelivered: 0,
            dropped: 0,
            denied: 0,
            bytes_in: 0,
            bytes_out: 0,
        }
    }
}
