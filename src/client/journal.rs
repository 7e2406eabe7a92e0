//! The connection events of a client, the same for every protocol: for the application, and as log
//! records.
//!
//! The last [`KEPT`] events are kept, each with a number. A reader asks for the first event from a
//! number on, so that it costs nothing here, and one that is slow misses the oldest and sees by the
//! numbers how many.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::Level;

use crate::until;
use forebay_base::clock::wall_ms;
use forebay_base::error::{Error, ErrorKind};
use forebay_base::sync::Mutex;

/// Events that are kept for readers.
pub const KEPT: usize = 1000;

/// A change of a client's connections.
#[derive(Clone, Debug)]
pub enum ConnectionEvent {
    /// The broker has accepted a connection.
    Connected {
        /// Address of the broker.
        address: Arc<str>,
        /// Number of attempts since there was a connection, this one included.
        attempts: u32,
        /// Whether the server had the session. MQTT only.
        session_present: Option<bool>,
    },
    /// An attempt to connect has failed.
    ConnectFailed {
        /// Address of the broker.
        address: Arc<str>,
        /// Number of attempts since there was a connection, this one included.
        attempts: u32,
        /// The cause.
        error: Error,
        /// Pause before the next attempt, if one is certain to follow.
        retry_in: Option<Duration>,
    },
    /// A connection has ended.
    Disconnected {
        /// Address of the broker.
        address: Arc<str>,
        /// The cause; [`ErrorKind::Closed`] if the client was closed.
        error: Error,
    },
    /// A subscription was made again after it was lost.
    Resubscribed {
        /// The topic, or the filters.
        topic: Arc<str>,
    },
    /// A producer, a consumer or the client has ended, because another attempt cannot succeed.
    GaveUp {
        /// The topic; `None` for the client.
        topic: Option<Arc<str>>,
        /// The cause.
        error: Error,
    },
}

impl ConnectionEvent {
    pub(super) fn level(&self) -> Level {
        match self {
            // The consumer of a topic gets the error, too.
            Self::GaveUp { topic: None, .. } => Level::WARN,
            Self::Disconnected { error, .. } if error.kind() != ErrorKind::Closed => Level::WARN,
            // Many may follow a loss, and a thousand partitions may be opened again at the same
            // time.
            Self::ConnectFailed { .. } | Self::Resubscribed { .. } => Level::DEBUG,
            _ => Level::INFO,
        }
    }
}

impl fmt::Display for ConnectionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { address, attempts, session_present } => {
                write!(f, "connected to {address}")?;
                if *attempts > 1 {
                    write!(f, " after {attempts} attempts")?;
                }
                match session_present {
                    Some(true) => f.write_str("; the server has the session"),
                    Some(false) => f.write_str("; the session is new"),
                    None => Ok(()),
                }
            }
            Self::ConnectFailed { address, attempts, error, retry_in } => {
                match error.message().contains(&**address) {
                    true => write!(f, "attempt {attempts} to connect failed: {error}")?,
                    false => write!(f, "attempt {attempts} to connect to {address} failed: {error}")?,
                }
                match retry_in {
                    Some(pause) => write!(f, "; the next one follows in {pause:.1?}"),
                    None => Ok(()),
                }
            }
            Self::Disconnected { address, error } if error.kind() == ErrorKind::Closed => {
                write!(f, "disconnected from {address}: the client was closed")
            }
            Self::Disconnected { address, error } => {
                write!(f, "the connection to {address} ended: {error}")
            }
            Self::Resubscribed { topic } => write!(f, "subscribed to {topic} again"),
            Self::GaveUp { topic: Some(topic), error } => write!(f, "gave up {topic}: {error}"),
            Self::GaveUp { topic: None, error } => write!(f, "gave up: {error}"),
        }
    }
}

/// Writes the log record of an event.
type Log = fn(&ConnectionEvent);

/// A [`Log`] for a logger. `tracing` wants its name when it is compiled.
macro_rules! log_to {
    ($logger:expr) => {
        |event| match event.level() {
            tracing::Level::WARN => tracing::warn!(target: $logger, "{event}"),
            tracing::Level::INFO => tracing::info!(target: $logger, "{event}"),
            _ => tracing::debug!(target: $logger, "{event}"),
        }
    };
}
pub(super) use log_to;

/// An event with its number and time.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Number of the event, counted from 0.
    pub number: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// The event.
    pub event: ConnectionEvent,
}

#[derive(Debug, Default)]
struct Entries {
    kept: VecDeque<Entry>,
    next: u64,
    ended: bool,
    /// Addresses of the connections that are up, in the order in which they came up.
    up: BTreeMap<u64, Arc<str>>,
    next_line: u64,
}

impl Entries {
    fn push(&mut self, event: ConnectionEvent) {
        if self.ended {
            return;
        }
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        let number = self.next;
        self.next += 1;
        self.kept.push_back(Entry { number, at_ms: wall_ms(), event });
    }
}

/// Counters of a client's connections, which never fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Connections that a broker has accepted.
    pub opened: u64,
    /// Those of them that followed one that was lost.
    pub reconnects: u64,
    /// Connections that have ended.
    pub closed: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Subscriptions that were made again.
    pub resubscribed: u64,
}

#[derive(Debug, Default)]
struct Counters {
    opened: AtomicU64,
    reconnects: AtomicU64,
    closed: AtomicU64,
    failed: AtomicU64,
    resubscribed: AtomicU64,
}

/// The connection events of one client.
#[derive(Debug)]
pub struct Journal {
    log: Log,
    entries: Mutex<Entries>,
    changed: Notify,
    counters: Counters,
}

impl Journal {
    /// A journal whose log records are written by `log`, which [`log_to`] makes.
    pub(super) fn new(log: Log) -> Arc<Self> {
        Arc::new(Self {
            log,
            entries: Mutex::leaf(Entries::default()),
            changed: Notify::new(),
            counters: Counters::default(),
        })
    }

    /// The first event that is kept from `number` on.
    pub fn first_from(&self, number: u64) -> Option<Entry> {
        let entries = self.entries.lock();
        let first = entries.kept.front()?.number;
        let index = number.saturating_sub(first);
        entries.kept.get(usize::try_from(index).ok()?).cloned()
    }

    /// Resolves when there is an event from `number` on, or there will be none.
    pub async fn due(&self, number: u64) {
        until(&self.changed, || {
            let entries = self.entries.lock();
            (entries.next > number || entries.ended).then_some(())
        })
        .await;
    }

    /// Whether there will be no more events.
    pub fn is_ended(&self) -> bool {
        self.entries.lock().ended
    }

    /// Whether a broker has accepted a connection that is still up.
    pub fn is_connected(&self) -> bool {
        !self.entries.lock().up.is_empty()
    }

    /// The counters.
    pub fn counts(&self) -> ConnectionCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ConnectionCounts {
            opened: of(&self.counters.opened),
            reconnects: of(&self.counters.reconnects),
            closed: of(&self.counters.closed),
            failed: of(&self.counters.failed),
            resubscribed: of(&self.counters.resubscribed),
        }
    }

    /// The client has ended because of `error`: no more events follow. Connections that are still
    /// up are reported as down, because a peer that does not read may keep them open for longer
    /// than a reader should wait.
    pub(super) fn end(&self, error: &Error) {
        let events: Vec<_> = {
            let mut entries = self.entries.lock();
            let down = |address| ConnectionEvent::Disconnected { address, error: error.clone() };
            let events: Vec<_> = std::mem::take(&mut entries.up).into_values().map(down).collect();
            events.iter().for_each(|event| entries.push(event.clone()));
            entries.ended = true;
            events
        };
        events.iter().for_each(|event| self.tell(event));
        self.changed.notify_waiters();
    }

    /// Reports an attempt to connect that failed.
    pub(super) fn connect_failed(
        &self,
        address: &str,
        attempts: u32,
        error: &Error,
        retry_in: Option<Duration>,
    ) {
        let (address, error) = (address.into(), error.clone());
        self.note(ConnectionEvent::ConnectFailed { address, attempts, error, retry_in });
    }

    /// Reports a subscription that was made again.
    pub(super) fn resubscribed(&self, topic: &str) {
        self.note(ConnectionEvent::Resubscribed { topic: topic.into() });
    }

    /// Reports the end of a producer or consumer of `topic`, or of the client.
    pub(super) fn gave_up(&self, topic: Option<&str>, error: &Error) {
        self.note(ConnectionEvent::GaveUp { topic: topic.map(Into::into), error: error.clone() });
    }

    fn note(&self, event: ConnectionEvent) {
        self.tell(&event);
        self.entries.lock().push(event);
        self.changed.notify_waiters();
    }

    /// Logs and counts an event.
    fn tell(&self, event: &ConnectionEvent) {
        (self.log)(event);
        let counter = match event {
            ConnectionEvent::Connected { .. } => Some(&self.counters.opened),
            ConnectionEvent::ConnectFailed { .. } => Some(&self.counters.failed),
            ConnectionEvent::Disconnected { .. } => Some(&self.counters.closed),
            ConnectionEvent::Resubscribed { .. } => Some(&self.counters.resubscribed),
            ConnectionEvent::GaveUp { .. } => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Attempts to reach one broker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attempts {
    /// Those that failed since there was a connection.
    failed: u32,
    /// There was a connection before.
    again: bool,
}

impl Attempts {
    /// Counts a failure. Returns the number of attempts since there was a connection.
    pub(super) fn fail(&mut self) -> u32 {
        self.failed = self.failed.saturating_add(1);
        self.failed
    }

    /// Starts over after a success.
    pub(super) fn succeed(&mut self) {
        *self = Self { failed: 0, again: true };
    }
}

/// Reports what becomes of one connection: that it is up, once, and that it is down, if it was up.
#[derive(Debug)]
pub(super) struct Line {
    journal: Arc<Journal>,
    address: Arc<str>,
    attempts: Attempts,
    /// Its number among those of the journal that are up.
    up: Option<u64>,
}

impl Line {
    /// A connection to `address` that follows `attempts`.
    pub(super) fn new(journal: &Arc<Journal>, address: &str, attempts: Attempts) -> Self {
        Self { journal: Arc::clone(journal), address: address.into(), attempts, up: None }
    }

    /// Address of the broker.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The broker has accepted it.
    pub(super) fn up(&mut self, session_present: Option<bool>) {
        if self.up.is_some() {
            return;
        }
        if self.attempts.again {
            self.journal.counters.reconnects.fetch_add(1, Ordering::Relaxed);
        }
        let (address, attempts) = (Arc::clone(&self.address), self.attempts.failed.saturating_add(1));
        let event = ConnectionEvent::Connected { address, attempts, session_present };
        self.journal.tell(&event);
        {
            let mut entries = self.journal.entries.lock();
            let number = entries.next_line;
            entries.next_line += 1;
            entries.up.insert(number, Arc::clone(&self.address));
            entries.push(event);
            self.up = Some(number);
        }
        self.journal.changed.notify_waiters();
    }

    /// It has ended; if it was not up, the attempt has failed.
    pub(super) fn ended(&mut self, error: &Error) {
        if self.up.is_none() && error.kind() != ErrorKind::Closed {
            self.journal.connect_failed(&self.address, self.attempts.failed.saturating_add(1), error, None);
        }
        self.down(error);
    }

    /// It has ended. The end of the journal has reported it already if it came first.
    pub(super) fn down(&mut self, error: &Error) {
        let Some(number) = self.up.take() else { return };
        let event = {
            let mut entries = self.journal.entries.lock();
            let Some(address) = entries.up.remove(&number) else { return };
            let event = ConnectionEvent::Disconnected { address, error: error.clone() };
            entries.push(event.clone());
            event
        };
        self.journal.tell(&event);
        self.journal.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed() -> Error {
        Error::new(ErrorKind::Closed, "the client was closed")
    }

    #[test]
    fn a_slow_reader_misses_the_oldest_events_and_sees_how_many() {
        let journal = Journal::new(|_| {});
        for topic in 0..KEPT + 5 {
            journal.resubscribed(&topic.to_string());
        }
        let first = journal.first_from(0).unwrap();
        assert_eq!(first.number, 5, "the numbers tell how many are missing");
        assert_eq!(first.event.to_string(), "subscribed to 5 again");
        assert_eq!(journal.first_from(first.number + 1).unwrap().number, 6);
        assert!(journal.first_from((KEPT + 5) as u64).is_none());
        assert_eq!(journal.counts().resubscribed, (KEPT + 5) as u64);
    }

    #[test]
    fn a_connection_is_reported_as_down_only_if_it_was_up() {
        let journal = Journal::new(|_| {});
        let mut attempts = Attempts::default();
        Line::new(&journal, "a:1", attempts).down(&closed());
        assert!(journal.first_from(0).is_none());
        assert_eq!((attempts.fail(), attempts.fail()), (1, 2));
        let mut line = Line::new(&journal, "a:1", attempts);
        line.up(Some(false));
        line.up(Some(false));
        line.down(&closed());
        line.down(&closed());
        let text = |number| journal.first_from(number).map(|entry| entry.event.to_string());
        assert_eq!(text(0).as_deref(), Some("connected to a:1 after 3 attempts; the session is new"));
        assert_eq!(text(1).as_deref(), Some("disconnected from a:1: the client was closed"));
        assert_eq!(text(2), None);
        assert_eq!(journal.counts().reconnects, 0, "there was no connection before");
        attempts.succeed();
        Line::new(&journal, "a:1", attempts).up(None);
        assert_eq!(text(2).as_deref(), Some("connected to a:1"));
        let counts = ConnectionCounts { opened: 2, reconnects: 1, closed: 1, ..Default::default() };
        assert_eq!(journal.counts(), counts);
    }

    #[test]
    fn the_end_reports_connections_that_are_still_up_as_down_once() {
        let journal = Journal::new(|_| {});
        let mut lines =
            ["a:1", "b:2", "c:3"].map(|address| Line::new(&journal, address, Attempts::default()));
        lines[0].up(None);
        lines[1].up(None);
        lines[0].down(&Error::new(ErrorKind::Disconnected, "cut"));
        journal.end(&closed());
        journal.end(&closed());
        lines.iter_mut().for_each(|line| line.down(&closed()));
        let last = journal.first_from(3).unwrap();
        assert_eq!(last.event.to_string(), "disconnected from b:2: the client was closed");
        assert!(journal.first_from(4).is_none());
        assert_eq!(journal.counts().closed, 2);
    }

    #[tokio::test]
    async fn the_end_wakes_readers_and_nothing_follows_it() {
        let journal = Journal::new(|_| {});
        let waiting = tokio::spawn({
            let journal = Arc::clone(&journal);
            async move { journal.due(0).await }
        });
        tokio::task::yield_now().await;
        journal.end(&closed());
        waiting.await.unwrap();
        journal.gave_up(None, &closed());
        assert!(journal.is_ended() && journal.first_from(0).is_none());
    }
}
