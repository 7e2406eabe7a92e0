//! The contract between a sans-IO core and its driver.
//!
//! A [`Machine`] is one protocol session on one socket. It does not depend on sockets, clocks or
//! tasks: the driver passes in bytes and the time, and then polls for the next actions, in this
//! order:
//!
//! 1. [`Machine::handle_input`] when bytes have arrived, [`Machine::handle_timeout`] when the time
//!    returned by [`Machine::poll_timeout`] has come;
//! 2. [`Machine::poll_event`] until it returns `None`;
//! 3. write the contents of [`Machine::transmit`];
//! 4. sleep until [`Machine::poll_timeout`], new bytes, or a wake-up.
//!
//! Equal inputs produce equal outputs, so a failing run can be replayed.

use std::time::Instant;

use bytes::BytesMut;

use crate::error::Error;
use crate::transmit::Transmit;

/// A protocol session without its socket.
pub trait Machine {
    /// Event that the session reports to the layer above.
    type Event;

    /// Consumes all complete frames in `input` and leaves the rest. An error ends the session: the
    /// driver writes the queued bytes (such as a final packet to the peer), then closes the socket.
    fn handle_input(&mut self, now: Instant, input: &mut BytesMut) -> Result<(), Error>;

    /// Tells the session that the time of [`Self::poll_timeout`] has come. An error ends the
    /// session.
    fn handle_timeout(&mut self, now: Instant) -> Result<(), Error>;

    /// Time at which [`Self::handle_timeout`] is due.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Returns the next event, oldest first.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// The output queue, for the driver to write.
    fn transmit(&mut self) -> &mut Transmit;
}

/// A fixed table of timers, one slot per timer of a session. Uses neither heap nor tasks.
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

    /// Time at which timer `index` is due.
    pub fn get(&self, index: usize) -> Option<Instant> {
        self.due[index]
    }

    /// Time at which the next timer is due.
    pub fn next(&self) -> Option<Instant> {
        self.due.iter().flatten().min().copied()
    }

    /// Stops timer `index` if it is due, and returns whether it was.
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
