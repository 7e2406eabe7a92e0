//! Pauses between attempts: 100 ms, doubled up to a limit, each with equal jitter (half of it is
//! random), so that clients that were disconnected in the same second do not reconnect in the same
//! second.

use std::time::Duration;

use forebay_base::random;

const FIRST: Duration = Duration::from_millis(100);

/// Exponential backoff with jitter.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    limit: Duration,
    /// xorshift state.
    random: u64,
}

impl Backoff {
    /// Starts at 100 ms and never exceeds `limit`.
    pub fn new(limit: Duration) -> Self {
        Self { next: FIRST.min(limit), limit, random: random::bits() | 1 }
    }

    /// Returns the pause to make now, and doubles the next one.
    pub fn pause(&mut self) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let whole = self.next;
        self.next = (self.next * 2).min(self.limit);
        whole / 2 + whole.mul_f64((self.random >> 11) as f64 / (1_u64 << 53) as f64 / 2.0)
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
}
