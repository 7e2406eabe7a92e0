//! Pauses between attempts: 100 ms, doubled up to a limit, each with equal jitter (half of it is
//! random), so that clients that were disconnected in the same second do not reconnect in the same
//! second.
//!
//! What was opened is not yet a success: a server may accept each connection and then end it. The
//! pauses start over after a connection that lasted, see [`Backoff::ended`].

use std::time::Duration;

use forebay_base::random;

const FIRST: Duration = Duration::from_millis(100);
/// Bounds of the time for which a connection has to last for the pauses to start over.
const STEADY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// Exponential backoff with jitter.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    /// The last pause.
    last: Duration,
    limit: Duration,
    /// xorshift state.
    random: u64,
}

impl Backoff {
    /// Starts at 100 ms and never exceeds `limit`.
    pub fn new(limit: Duration) -> Self {
        Self { next: FIRST.min(limit), last: Duration::ZERO, limit, random: random::bits() | 1 }
    }

    /// Returns the pause to make now, and doubles the next one.
    pub fn pause(&mut self) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let whole = self.next;
        self.next = (self.next * 2).min(self.limit);
        self.last = whole / 2 + whole.mul_f64((self.random >> 11) as f64 / (1_u64 << 53) as f64 / 2.0);
        self.last
    }

    /// Notes the end of what was opened after the last pause. Starts over, and returns true, if it
    /// lasted for as long as that pause, but for 1 s at least and 10 s at most.
    pub fn ended(&mut self, lasted: Duration) -> bool {
        let steady = lasted >= self.last.clamp(STEADY.0, STEADY.1);
        if steady {
            self.reset();
        }
        steady
    }

    /// Starts over. Call this when the whole operation has succeeded, not just its first step.
    pub fn reset(&mut self) {
        self.next = FIRST.min(self.limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_with_jitter_up_to_the_limit() {
        let mut backoff = Backoff::new(Duration::from_secs(1));
        for whole in [100, 200, 400, 800, 1000, 1000] {
            let pause = backoff.pause().as_millis();
            assert!(pause >= whole / 2 && pause <= whole, "{pause} of {whole}");
        }
        backoff.reset();
        assert!(backoff.pause() <= FIRST);
    }

    #[test]
    fn only_what_lasted_lets_the_pauses_start_over() {
        let mut backoff = Backoff::new(Duration::from_secs(60));
        let mut last = Duration::ZERO;
        for _ in 0..10 {
            last = backoff.pause();
            assert!(!backoff.ended(STEADY.0 - Duration::from_millis(1)));
        }
        assert!(last >= Duration::from_secs(25), "{last:?}");
        // Nor a life that is shorter than the pause before it.
        assert!(!backoff.ended(STEADY.1 - Duration::from_millis(1)));
        assert!(backoff.pause() >= Duration::from_secs(30));
        assert!(backoff.ended(STEADY.1));
        assert!(backoff.pause() <= FIRST);
    }
}
