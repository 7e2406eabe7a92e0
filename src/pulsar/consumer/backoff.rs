//! Delays that grow with the redeliveries of a message.

use std::time::Duration;

/// Delay that grows with the number of redeliveries, as `MultiplierRedeliveryBackoff` of the Java
/// client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// Delay of a message that has not been redelivered yet.
    pub min: Duration,
    /// Longest delay.
    pub max: Duration,
    /// Factor between two delays.
    pub multiplier: f64,
}

impl Backoff {
    /// Creates a delay that does not grow.
    pub const fn fixed(delay: Duration) -> Self {
        Self { min: delay, max: delay, multiplier: 1.0 }
    }

    /// Delay of a message that has been redelivered `redeliveries` times.
    pub fn delay(&self, redeliveries: u32) -> Duration {
        if redeliveries == 0 || self.min == self.max {
            return self.min;
        }
        let factor = self.multiplier.powi(redeliveries.min(1 << 20) as i32);
        let seconds = self.min.as_secs_f64() * factor;
        // Also when it is infinite, or not a number.
        if seconds < self.max.as_secs_f64() {
            Duration::from_secs_f64(seconds).max(self.min)
        } else {
            self.max
        }
    }
}

impl From<Duration> for Backoff {
    fn from(delay: Duration) -> Self {
        Self::fixed(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_grows_by_the_multiplier_up_to_its_maximum() {
        let secs = Duration::from_secs;
        let backoff = Backoff { min: secs(1), max: secs(60), multiplier: 2.0 };
        let delays = [0, 1, 2, 5, 6, 7, 1000, u32::MAX].map(|count| backoff.delay(count).as_secs());
        assert_eq!(delays, [1, 2, 4, 32, 60, 60, 60, 60]);
        let zero = Backoff { min: Duration::ZERO, max: secs(60), multiplier: 2.0 };
        assert_eq!(zero.delay(u32::MAX), secs(60), "zero times infinity");
        assert_eq!(Backoff::fixed(secs(3)).delay(9), secs(3));
    }
}
