//! What sockets, disk and clock know of the broker: one contract for every protocol it speaks.
//!
//! A [`Hub`] is the whole broker of one protocol, sans-IO. Poll order of whoever drives it:
//!
//! 1. [`Hub::handle_input`] when bytes arrived, [`Hub::handle_timeout`] when [`Hub::poll_timeout`] has come,
//!    [`Hub::handle_report`] when the store has written;
//! 2. [`Hub::poll_op`] until it is `None`: changes for the store, to be reported in this order. Without a store
//!    [`Hub::handle_report`] at once;
//! 3. [`Hub::take_output`] of the session that was called, and of those that [`Hub::poll_wake`] names: they have
//!    something to write, or may read again.
//!
//! What must not be said before it is on disk waits in one queue with the number of the change it depends on (`commits`);
//! the store reports in order, so answers leave in order.

use std::time::{Duration, Instant};

use bytes::BytesMut;

use crate::broker::store::Op;
use crate::error::Result;
use crate::sqlite::Report;
use crate::transmit::Transmit;

/// Bytes that wait for one connection before no more is read from it.
pub(super) const OUTPUT_LIMIT: usize = 8 << 20;

/// See the module.
pub trait Hub {
    /// A connection was accepted; gives its number.
    fn connect(&mut self, now: Instant, address: &str) -> u64;

    /// A connection ended; everything that hung on it goes.
    fn disconnect(&mut self, now: Instant, id: u64);

    /// Bytes arrived. An error ends the connection, after what is queued for it.
    fn handle_input(&mut self, now: Instant, id: u64, input: &mut BytesMut) -> Result<()>;

    /// The time of [`Self::session_timeout`] has come. An error ends the connection.
    fn handle_session_timeout(&mut self, now: Instant, id: u64) -> Result<()>;

    /// When the connection wants to be called again.
    fn session_timeout(&self, id: u64) -> Option<Instant>;

    /// Whether more may be read from the connection now. After a no, it is woken.
    fn may_read(&mut self, id: u64) -> bool;

    /// Whether the connection is to be closed once everything is written.
    fn finished(&self, id: u64) -> bool;

    /// Moves what is to be written to `output`, which is empty.
    fn take_output(&mut self, now: Instant, id: u64, output: &mut Transmit);

    /// The next change for the store.
    fn poll_op(&mut self) -> Option<Op>;

    /// The next connection that has something to write or may read again.
    fn poll_wake(&mut self) -> Option<u64>;

    /// The store wrote, or could not.
    fn handle_report(&mut self, now: Instant, report: Report);

    /// The calendar was put right, or the machine slept: monotonic time does not notice.
    fn set_clock(&mut self, clock: Clock);

    /// When [`Self::handle_timeout`] is wanted.
    fn poll_timeout(&self) -> Option<Instant>;

    /// The time of [`Self::poll_timeout`] has come.
    fn handle_timeout(&mut self, now: Instant);

    /// The broker is about to end: what was put off goes to the store, and clients hear of it.
    fn shut_down(&mut self, now: Instant);

    /// Bytes of the store, or of memory without one.
    fn used_bytes(&self) -> u64;
}

/// Where monotonic time is in calendar time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: Instant,
    wall_ms: u64,
}

impl Clock {
    /// At `base` it was `wall_ms` after 1970.
    pub fn new(base: Instant, wall_ms: u64) -> Self {
        Self { base, wall_ms }
    }

    /// The time that the calendar was set at.
    pub fn base(&self) -> Instant {
        self.base
    }

    /// Milliseconds since 1970 at `now`.
    pub fn wall_ms(&self, now: Instant) -> u64 {
        self.wall_ms + now.saturating_duration_since(self.base).as_millis() as u64
    }

    /// When it will be `wall_ms`, seen from `now`; a time too far away is a day away.
    pub fn at(&self, now: Instant, wall_ms: u64) -> Instant {
        let wait = wall_ms.saturating_sub(self.wall_ms(now)).min(24 * 3_600_000);
        now + Duration::from_millis(wait)
    }
}
