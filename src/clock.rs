//! The time of day.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970, for publish times, expiry and signatures. The clock may step: order and timeouts use
/// [`Instant`](std::time::Instant).
#[allow(clippy::disallowed_methods, reason = "the one place that reads the time of day")]
pub fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
