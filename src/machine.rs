//! The contract between a sans-IO core and its driver.
//!
//! A [`Machine`] is one protocol session on one socket. It knows neither sockets nor clocks nor tasks: the
//! driver hands in bytes and the time, and polls for what must be done next, in this order:
//!
//! 1. [`Machine::handle_input`] when bytes arrived, [`Machine::handle_timeout`] when the time that
//!    [`Machine::poll_timeout`] gave has come;
//! 2. [`Machine::poll_event`] until it is `None`;
//! 3. write what [`Machine::transmit`] holds;
//! 4. sleep until [`Machine::poll_timeout`], new bytes, or a wake-up.
//!
//! The same inputs give the same outputs, so a failing run replays for ever.

use std::time::Instant;

use bytes::BytesMut;

use crate::error::Error;
use crate::transmit::Transmit;

/// A protocol session without its socket.
pub trait Machine {
    /// What the session tells the layer above.
    type Event;

    /// Takes all complete frames out of `input` and leaves the rest. An error ends the session: the
    /// driver writes what is queued (a last word to the peer), then closes.
    fn handle_input(&mut self, now: Instant, input: &mut BytesMut) -> Result<(), Error>;

    /// Tells the session that `now` has reached the time of [`Self::poll_timeout`]. An error ends it.
    fn handle_timeout(&mut self, now: Instant) -> Result<(), Error>;

    /// When the session next wants [`Self::handle_timeout`].
    fn poll_timeout(&self) -> Option<Instant>;

    /// The next event, oldest first.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// The bytes to be written.
    fn transmit(&mut self) -> &mut Transmit;
}

/// A fixed table of timers, one slot per variant of a session's timer enum. No heap, no tasks.
#[derive(Clone, Debug)]
pub struct TimerTable<const N: usize> {
    due: [Option<Instant>; N],
}

impl<const N: usize> Default for TimerTable<N> {
    fn default() -> Self {
        Self { due: [None; N] }
    }
}

impl<const N: usize> TimerTable<N> {
    /// Sets timer `index`.
    pub fn set(&mut self, index: usize, at: Instant) {
        self.due[index] = Some(at);
    }

    /// Stops timer `index`.
    pub fn stop(&mut self, index: usize) {
        self.due[index] = None;
    }

    /// When timer `index` is due.
    pub fn get(&self, index: usize) -> Option<Instant> {
        self.due[index]
    }

    /// The earliest of all.
    pub fn next(&self) -> Option<Instant> {
        self.due.iter().flatten().min().copied()
    }

    /// Stops timer `index` and says true if it was due.
    pub fn expire(&mut self, index: usize, now: Instant) -> bool {
        let due = self.due[index].is_some_and(|at| at <= now);
        if due {
            self.due[index] = None;
        }
        due
    }
}

/// The earlier of two optional times.
pub fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
