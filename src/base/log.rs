//! Log records: what happens in the background and belongs to no call of the application, and at the embedded broker what its
//! operator may want to know.
//!
//! A record goes to the logger of a part, as `forebay.pulsar.connection` or `forebay.broker.connection`. Its text never
//! holds a secret: passwords and tokens are not in errors, and a URL has no credentials. What a peer has chosen, such as its
//! name, is quoted, so that it cannot look like another record. The fields have the same for programs.

use std::panic::Location;
use std::sync::OnceLock;

use crate::error::Error;

/// Characters of a text of a peer that are kept.
const LONGEST: usize = 256;

/// Urgency of a record; the numbers are those of Python's `logging`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Each attempt of each partition.
    Debug = 10,
    /// Connections that open, end and are tried again.
    Info = 20,
    /// Messages that were dropped or skipped, refusals, and clients that gave up.
    Warning = 30,
}

/// Receiver of the records of a process.
#[derive(Clone, Copy, Debug)]
pub struct Sink {
    /// Whether records of this level are wanted.
    pub wants: fn(Level) -> bool,
    /// Receives the name of the logger and the record. Called on the engine's thread, possibly under a lock; must neither
    /// block nor call the client.
    pub write: fn(Level, &str, Record),
}

/// A record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The text.
    pub text: String,
    /// Names and values of what is in the text.
    pub fields: Vec<(&'static str, String)>,
}

impl Record {
    /// A record without fields.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), fields: Vec::new() }
    }

    /// With another field; one without a value is left out. Long values, which peers may have chosen, are cut.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl AsRef<str>) -> Self {
        let value = value.as_ref();
        if !value.is_empty() {
            self.fields.push((name, cut(value)));
        }
        self
    }
}

/// The beginning of a text that a peer may have chosen. In the text of a record it has to be quoted as well.
pub fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

static SINK: OnceLock<Sink> = OnceLock::new();

/// Sets the receiver of records for the process. The first call wins; without one they are dropped.
pub fn set_sink(sink: Sink) {
    let _ = SINK.set(sink);
}

/// Writes a record to `logger`. It is made only if it is wanted.
pub fn write(level: Level, logger: &str, make: impl FnOnce() -> Record) {
    if let Some(sink) = wanting(level) {
        (sink.write)(level, logger, make());
    }
}

/// The receiver, if it wants records of this level.
pub fn wanting(level: Level) -> Option<&'static Sink> {
    SINK.get().filter(|sink| (sink.wants)(level))
}

/// Writes a text to `logger`. It is made only if it is wanted.
pub fn record(level: Level, logger: &str, text: impl FnOnce() -> String) {
    write(level, logger, || Record::new(text()));
}

/// Writes a warning to the logger of the part that calls this.
#[track_caller]
pub fn warn(text: &str) {
    record(Level::Warning, &logger_of(Location::caller().file()), || text.to_owned());
}

/// Warns that the files of certificates cannot be used as they are now, if `trouble` says so.
#[track_caller]
pub fn warn_of_certificates(trouble: Option<Error>) {
    if let Some(error) = trouble {
        warn(&format!("the connection uses the certificates as they were: {error}"));
    }
}

/// The logger of a source file: `src/client/pulsar/consumer/part.rs` belongs to `forebay.pulsar.consumer`.
fn logger_of(file: &str) -> String {
    let path = file.replace('\\', "/");
    let part = path.rsplit_once("/client/").map_or("", |(_, part)| part);
    let mut names = part.trim_end_matches(".rs").split('/');
    match (names.next(), names.next()) {
        (Some(name), None) if !name.is_empty() => format!("forebay.{name}"),
        // What the producers and consumers of a client share.
        (Some(protocol), Some("shared" | "part" | "mod")) => format!("forebay.{protocol}"),
        (Some(protocol), Some(name)) => format!("forebay.{protocol}.{name}"),
        _ => "forebay".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_without_a_value_are_left_out_and_long_ones_are_cut() {
        let record = Record::new("text").with("user", "").with("topic", "x".repeat(100_000)).with("a", "b");
        let lengths: Vec<_> = record.fields.iter().map(|(name, value)| (*name, value.len())).collect();
        assert_eq!(lengths, [("topic", 256 + "…".len()), ("a", 1)]);
    }

    #[test]
    fn a_warning_belongs_to_the_logger_of_its_part() {
        for (file, logger) in [
            ("src/client/pulsar/consumer/part.rs", "forebay.pulsar.consumer"),
            ("src/client/pulsar/part.rs", "forebay.pulsar"),
            ("src\\client\\mqtt\\connection.rs", "forebay.mqtt.connection"),
            ("src/client/credentials.rs", "forebay.credentials"),
            ("elsewhere.rs", "forebay"),
        ] {
            assert_eq!(logger_of(file), logger);
        }
    }
}
