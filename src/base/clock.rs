//! The time of day, and the time that only moves forward.

use std::time::Instant;
#[cfg(not(feature = "simulation"))]
use std::time::{SystemTime, UNIX_EPOCH};

/// The time for order and timeouts: tokio's, which a test can pause.
#[cfg(feature = "simulation")]
#[inline]
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The time for order and timeouts.
#[cfg(not(feature = "simulation"))]
#[allow(clippy::disallowed_methods, reason = "the one place that reads it")]
#[inline]
pub fn now() -> Instant {
    Instant::now()
}

/// Milliseconds since 1970, for publish times, expiry and signatures. The clock may step: order and
/// timeouts use [`now`].
#[cfg(not(feature = "simulation"))]
#[allow(clippy::disallowed_methods, reason = "the one place that reads the time of day")]
pub fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(feature = "simulation")]
pub use simulation::{set_wall_ms, wall_ms};

#[cfg(feature = "simulation")]
mod simulation {
    use std::cell::Cell;
    use std::time::{Instant, SystemTime, UNIX_EPOCH};

    use super::now;

    thread_local! {
        /// The time of day that was set, and when.
        static SET: Cell<Option<(Instant, u64)>> = const { Cell::new(None) };
    }

    /// Sets this thread's time of day, which then moves with [`now`]; `None` gives it the system's
    /// again.
    pub fn set_wall_ms(ms: Option<u64>) {
        SET.set(ms.map(|ms| (now(), ms)));
    }

    /// Milliseconds since 1970.
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the time of day")]
    pub fn wall_ms() -> u64 {
        match SET.get() {
            Some((since, ms)) => ms + now().saturating_duration_since(since).as_millis() as u64,
            None => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
        }
    }
}
