//! [`Protocol`]: the sans-IO contract between the broker's I/O tasks and each protocol.
//!
//! A [`Protocol`] is the whole broker of one protocol. Poll order for its driver:
//!
//! 1. [`Protocol::handle_input`] when bytes arrived, [`Protocol::handle_timeout`] when
//!    [`Protocol::poll_timeout`] has passed, [`Protocol::handle_report`] when the store reported;
//! 2. [`Protocol::poll_op`] until it is `None`: changes for the store, to be reported in this
//!    order. Without a store, [`Protocol::handle_report`] at once;
//! 3. [`Protocol::poll_work`] until it is `None`: work for another thread, whose result goes to
//!    [`Protocol::handle_work`];
//! 4. [`Protocol::take_output`] of the connection that was called, and of those that
//!    [`Protocol::poll_wake`] names: they have something to write, or may be read from again.
//!
//! An answer that must not be sent before a change is on disk waits in one queue with the number of
//! that change (`commits`). The store reports in order, so answers leave in order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;

use crate::http::message::{Answer, Request};
use crate::permissions::Permissions;
use crate::stats::{ClientStats, ProtocolStats, TopicStats};
use crate::store::Op;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::transmit::Transmit;
use forebay_sqlite::Report;

/// Output bytes queued for one connection beyond which it is not read from.
pub(super) const OUTPUT_LIMIT: usize = 8 << 20;

/// Part of the output that is queued ahead for a connection when memory is tight.
pub(super) const TIGHT: usize = 16;

/// Longest and shortest interval at which the time that the broker has run is noted in the store.
const RUN_PERIOD: Duration = Duration::from_secs(60);
const FIRST_RUN_PERIOD: Duration = Duration::from_secs(1);

/// A connection before its first byte: its user and its rights by the listener.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// User that the client's certificate names. Other credentials are not looked at then.
    pub user: Option<Arc<str>>,
    /// Whether the listener admits clients without credentials.
    pub anonymous: bool,
    /// Host and port under which the client reached the listener, of TCP.
    pub address: Option<(Arc<str>, u16)>,
}

/// The broker of one protocol, without sockets, disk and clock. The [module](self) describes the
/// poll order.
pub trait Protocol {
    /// Registers an accepted connection and gives its number.
    fn connect(&mut self, now: Instant, address: &str) -> u64;

    /// Takes note of how a connection came in, before its first byte.
    fn enter(&mut self, _id: u64, _entry: Entry) {}

    /// Removes a connection that ended, with everything that depended on it.
    fn disconnect(&mut self, now: Instant, id: u64);

    /// Handles received bytes. An error closes the connection once its queued output is written.
    fn handle_input(&mut self, now: Instant, id: u64, input: &mut BytesMut) -> Result<()>;

    /// Handles the deadline of [`Self::session_timeout`]. An error closes the connection.
    fn handle_session_timeout(&mut self, now: Instant, id: u64) -> Result<()>;

    /// The next deadline of the connection.
    fn session_timeout(&self, id: u64) -> Option<Instant>;

    /// Whether the connection may be read from. After `false`, [`Self::poll_wake`] names it once it
    /// may.
    fn may_read(&mut self, id: u64) -> bool;

    /// Whether the connection is to be closed once its output is written.
    fn finished(&self, id: u64) -> bool;

    /// Moves pending output to `output`, which is empty.
    fn take_output(&mut self, now: Instant, id: u64, output: &mut Transmit);

    /// The next change for the store.
    fn poll_op(&mut self) -> Option<Op>;

    /// The next piece of work that takes long.
    fn poll_work(&mut self) -> Option<Work> {
        None
    }

    /// Handles the result of a [`Work`].
    fn handle_work(&mut self, _now: Instant, _id: u64, _result: bool) {}

    /// Replaces the users by those of a file and gives their number. Connections of users that are
    /// gone, or whose password is another one, end.
    fn set_users(&mut self, _now: Instant, _file: &str) -> Result<usize> {
        Err(Error::new(ErrorKind::Unsupported, "the protocol has no users"))
    }

    /// Replaces the permissions. What clients do at the moment and may not do any more ends, but no
    /// connection does.
    fn set_permissions(&mut self, now: Instant, permissions: Arc<Permissions>);

    /// The next connection that has output or may be read from again.
    fn poll_wake(&mut self) -> Option<u64>;

    /// Handles a report about the oldest changes that have none: they are written, or the store
    /// failed.
    fn handle_report(&mut self, now: Instant, report: Report);

    /// Sets the calendar clock, which moves when the system time is set or the machine was asleep.
    fn set_clock(&mut self, clock: Clock);

    /// When [`Self::handle_timeout`] is due.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Handles the deadline of [`Self::poll_timeout`].
    fn handle_timeout(&mut self, now: Instant);

    /// Prepares the end of the broker: submits changes that were put off and tells clients.
    fn shut_down(&mut self, now: Instant);

    /// Bytes that all protocols use in the store, or in memory without one.
    fn used_bytes(&self) -> u64;

    /// Number of the last change that was submitted to the store.
    fn issued(&self) -> u64;

    /// Number of the last change that the store reported.
    fn written(&self) -> u64;

    /// The store's failure. After one, nothing more is accepted.
    fn failure(&self) -> Option<&Error>;

    /// Figures for the broker's status.
    fn stats(&self) -> ProtocolStats;

    /// The client of a connection, but for its number, address and age.
    fn client(&self, id: u64) -> ClientStats;

    /// The reason for which a connection ends, if [`Self::handle_input`] gave none: the protocol
    /// ends it, or the client has said that it leaves.
    fn farewell(&self, _id: u64) -> Option<&str> {
        None
    }

    /// Bytes of memory that the protocol keeps for the connection alone: queued output, and what
    /// its client can make as large as it likes.
    fn held(&self, _id: u64) -> usize {
        0
    }

    /// Queues less output ahead for each connection, as all together hold much memory, or as much
    /// as usual again.
    fn set_tight(&mut self, _tight: bool) {}

    /// Tells a client that an operator ends its connection, if the protocol has words for it.
    fn dismiss(&mut self, _now: Instant, _id: u64) {}

    /// Answers a request over HTTP; `None` if its path is not one of the protocol. If it issued
    /// changes, the answer is given once they are written.
    fn handle_http(&mut self, _now: Instant, _request: &Request) -> Option<Answer> {
        None
    }

    /// Administration of topics, if the protocol has topics that exist by themselves.
    fn topics(&self) -> Option<&dyn Topics> {
        None
    }

    /// [`Self::topics`], for changes.
    fn topics_mut(&mut self) -> Option<&mut dyn Topics> {
        None
    }
}

/// Work for another thread, because it takes long.
pub struct Work {
    /// Tells its result apart from others.
    pub id: u64,
    /// The work.
    pub job: Box<dyn FnOnce() -> bool + Send>,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Administration of one protocol's topics.
pub trait Topics {
    /// Creates a topic.
    fn create_topic(&mut self, name: &str, partitions: u32) -> Result<()>;

    /// Adds partitions to a topic until it has `partitions`.
    fn grow_topic(&mut self, name: &str, partitions: u32) -> Result<()>;

    /// Deletes a topic with its messages.
    fn delete_topic(&mut self, name: &str) -> Result<()>;

    /// Terminates a topic: it takes no more messages.
    fn terminate_topic(&mut self, name: &str) -> Result<()> {
        let text = "topics of this protocol cannot be terminated";
        Err(Error::new(ErrorKind::Unsupported, text).with_topic(name))
    }

    /// Names and partition counts; 0 is a plain topic.
    fn list(&self) -> Vec<(String, u32)>;

    /// Contents and users of a topic.
    fn topic_stats(&self, name: &str) -> Result<TopicStats>;
}

/// Maps monotonic time to calendar time, and to the time that brokers have run on the store.
///
/// What is stored ages by that second time. It is kept with the store, stands still while no broker
/// runs, and does not move when the calendar is set: by the calendar, everything on a device
/// without a clock of its own would be 50 years old as soon as the network tells it the date.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: Instant,
    wall_ms: u64,
    started: Instant,
    run_before: u64,
}

impl Clock {
    /// A clock that showed `wall_ms`, in milliseconds since 1970, at `base`.
    pub fn new(base: Instant, wall_ms: u64) -> Self {
        Self { base, wall_ms, started: base, run_before: 0 }
    }

    /// The same clock for a store on which brokers had run for this long, in milliseconds.
    pub fn after_run(self, run_before: u64) -> Self {
        Self { run_before, ..self }
    }

    /// The same clock after the calendar was set to `wall_ms` at `now`.
    pub fn set(self, now: Instant, wall_ms: u64) -> Self {
        Self { base: now, wall_ms, ..self }
    }

    /// Milliseconds that brokers have run on the store until `now`.
    pub fn run_ms(&self, now: Instant) -> u64 {
        self.run_before + now.saturating_duration_since(self.started).as_millis() as u64
    }

    /// The instant after `now` at which [`Self::run_ms`] is to be noted in the store. A kill loses
    /// a second or a tenth of the run, and at most a minute: what a broker that is killed again and
    /// again keeps is to expire all the same.
    pub fn note_at(&self, now: Instant) -> Instant {
        let ran = now.saturating_duration_since(self.started);
        now + (ran / 10).clamp(FIRST_RUN_PERIOD, RUN_PERIOD)
    }

    /// The instant at which the clock was set.
    pub fn base(&self) -> Instant {
        self.base
    }

    /// Milliseconds since 1970 at `now`.
    pub fn wall_ms(&self, now: Instant) -> u64 {
        self.wall_ms + now.saturating_duration_since(self.base).as_millis() as u64
    }

    /// The instant at which the calendar shows `wall_ms`, at most one day after `now`.
    pub fn at(&self, now: Instant, wall_ms: u64) -> Instant {
        let wait = wall_ms.saturating_sub(self.wall_ms(now)).min(24 * 3_600_000);
        now + Duration::from_millis(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_loses_a_second_or_a_tenth_of_the_run_and_at_most_a_minute() {
        let start = Instant::now();
        let clock = Clock::new(start, 0).after_run(1_000_000_000);
        let after = |seconds: u64| clock.note_at(start + Duration::from_secs(seconds)) - start;
        assert_eq!(after(0), Duration::from_secs(1));
        assert_eq!(after(10), Duration::from_secs(11));
        assert_eq!(after(300), Duration::from_secs(330));
        assert_eq!(after(86_400), Duration::from_secs(86_460));
        let (mut now, mut notes) = (start, 0);
        while now < start + Duration::from_secs(600) {
            now = clock.note_at(now);
            notes += 1;
        }
        assert!(notes < 60, "{notes} notes");
    }
}
