//! Records of the broker's log: the fields of all that are about a client, and a limit on those
//! that peers can cause as often as they like.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_base::clock;
use forebay_base::error::sanitise;
use tracing::Level;

/// Records of a logger and a level in a second.
const PER_SECOND: u32 = 10;

/// Characters of a text of a peer that are kept.
const LONGEST: usize = 256;

/// A record. Its text never holds a secret. What a peer has chosen, such as its name, is quoted, so
/// that it cannot look like another record; the fields have the same for programs.
#[derive(Debug, Default)]
pub(super) struct Record {
    text: String,
    fields: Vec<(&'static str, String)>,
}

impl Record {
    /// A record without fields.
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), fields: Vec::new() }
    }

    /// With another field, one of those that [`loggers`] lists; one without a value is left out.
    /// Long values, which peers may have chosen, are cut.
    #[must_use]
    pub(super) fn with(mut self, name: &'static str, value: impl AsRef<str>) -> Self {
        debug_assert!(FIELDS.contains(&name), "{name} would be left out of the record");
        let value = value.as_ref();
        if !value.is_empty() {
            self.fields.push((name, cut(value)));
        }
        self
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|field| field.0 == name).map(|field| &*field.1)
    }
}

/// The beginning of a text that a peer may have chosen. In the text of a record it has to be quoted
/// as well.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Loggers, and the fields that their records may have: `tracing` wants all names when it is
/// compiled.
macro_rules! loggers {
    ($($(#[$doc:meta])* $name:ident = $target:literal),*; [$($field:ident),*]) => {
        const FIELDS: &[&str] = &[$(stringify!($field)),*];

        loggers! { @enum [$($(#[$doc])* $name = $target),*] [$($field),*] }
    };
    (@enum [$($(#[$doc:meta])* $name:ident = $target:literal),*] $fields:tt) => {
        /// Logger of a part of the broker.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Logger {
            $($(#[$doc])* $name),*
        }

        impl Logger {
            fn wants(self, level: Level) -> bool {
                match self {
                    $(Self::$name => match level {
                        Level::WARN => tracing::event_enabled!(target: $target, Level::WARN),
                        Level::INFO => tracing::event_enabled!(target: $target, Level::INFO),
                        _ => tracing::event_enabled!(target: $target, Level::DEBUG),
                    }),*
                }
            }

            fn emit(self, level: Level, record: &Record) {
                match self {
                    $(Self::$name => match level {
                        Level::WARN => event!(WARN, $target, record, $fields),
                        Level::INFO => event!(INFO, $target, record, $fields),
                        _ => event!(DEBUG, $target, record, $fields),
                    }),*
                }
            }
        }
    };
}

macro_rules! event {
    ($level:ident, $target:literal, $record:ident, [$($field:ident),*]) => {
        tracing::event!(
            target: $target,
            Level::$level,
            $($field = $record.field(stringify!($field)),)*
            "{}",
            $record.text
        )
    };
}

loggers! {
    /// The broker as a whole.
    Broker = "forebay.broker",
    /// Clients that come, leave and are refused.
    Connection = "forebay.broker.connection",
    /// Messages that are dropped.
    Delivery = "forebay.broker.delivery",
    /// Requests over HTTP.
    Http = "forebay.broker.http",
    /// Operations that the rules do not allow.
    Permissions = "forebay.broker.permissions",
    /// The store and its disk.
    Store = "forebay.broker.store";
    [
        event, protocol, client, user, address, reason, operation, name, method, path, status, group, topic,
        algorithms, omitted
    ]
}

/// Writes a record. It is made only if it is wanted.
pub(super) fn write(level: Level, logger: Logger, make: impl FnOnce() -> Record) {
    if logger.wants(level) {
        logger.emit(level, &make());
    }
}

/// A second, and the records in it.
struct Window {
    since: Instant,
    records: u32,
    omitted: u64,
}

impl Window {
    /// Counts a record. Gives the number of those before it that were left out, or `None` if this
    /// one is.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_duration_since(self.since) >= Duration::from_secs(1) {
            (self.since, self.records) = (now, 0);
        }
        if self.records == PER_SECOND {
            self.omitted += 1;
            OMITTED.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.records += 1;
        Some(std::mem::take(&mut self.omitted))
    }
}

/// Records that were left out in this process.
static OMITTED: AtomicU64 = AtomicU64::new(0);

/// Number of the records that were left out since the process began.
pub(super) fn omitted() -> u64 {
    OMITTED.load(Ordering::Relaxed)
}

thread_local! {
    /// One for each logger and level, of which there are a few.
    static WINDOWS: RefCell<Vec<(Logger, Level, Window)>> = const { RefCell::new(Vec::new()) };
}

/// A record about a client: its user, if the broker has verified one, and the name that it has
/// given itself. What is empty is left out.
pub(super) fn about(event: &str, protocol: &str, user: &str, client: &str, text: String) -> Record {
    Record::new(text)
        .with("event", event)
        .with("protocol", protocol)
        .with("client", client)
        .with("user", user)
}

/// Tells that a peer that has no name yet was refused.
pub(super) fn refused(logger: Logger, protocol: &str, address: &str, reason: &str) {
    write_limited(Level::WARN, logger, || {
        let reason = sanitise(reason);
        about("refused", protocol, "", "", format!("{protocol} {address} refused: {reason}"))
            .with("address", address)
            .with("reason", reason)
    });
}

/// [`write`] for what a peer can cause as often as it likes: of a logger and a level at most ten in
/// a second are written, and the next one tells how many were left out.
pub(super) fn write_limited(level: Level, logger: Logger, make: impl FnOnce() -> Record) {
    if !logger.wants(level) {
        return;
    }
    let now = clock::now();
    let admitted = WINDOWS.with_borrow_mut(|windows| {
        let of_kind = |(name, at, _): &(Logger, Level, Window)| (*name, *at) == (logger, level);
        let place = windows.iter().position(of_kind).unwrap_or_else(|| {
            windows.push((logger, level, Window { since: now, records: 0, omitted: 0 }));
            windows.len() - 1
        });
        windows[place].2.admit(now)
    });
    let Some(omitted) = admitted else { return };
    write(level, logger, || {
        let mut record = make();
        if omitted > 0 {
            record.text += &format!(" ({omitted} records before this one were left out)");
            record = record.with("omitted", omitted.to_string());
        }
        record
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_without_a_value_are_left_out_and_long_ones_are_cut() {
        let record =
            Record::new("text").with("user", "").with("topic", "x".repeat(100_000)).with("name", "b");
        let lengths: Vec<_> = record.fields.iter().map(|(name, value)| (*name, value.len())).collect();
        assert_eq!(lengths, [("topic", 256 + "…".len()), ("name", 1)]);
    }

    #[test]
    fn of_a_flood_ten_a_second_are_written_and_the_others_counted() {
        let start = clock::now();
        let mut window = Window { since: start, records: 0, omitted: 0 };
        let admitted =
            |window: &mut Window, now| (0..100).filter_map(|_| window.admit(now)).collect::<Vec<_>>();
        assert_eq!(admitted(&mut window, start), [0; 10]);
        assert_eq!(admitted(&mut window, start + Duration::from_millis(999)), [0; 0]);
        let next = admitted(&mut window, start + Duration::from_secs(1));
        assert_eq!((next.len(), next[0], next[1]), (10, 190, 0));
    }
}
