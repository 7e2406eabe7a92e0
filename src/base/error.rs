//! The engine's error type: the kind of failure ([`ErrorKind`]), the party that caused it
//! ([`Blame`]), the topic, and the peer's message, made safe to log. Each kind has a stable `code`
//! that Python exposes.

use std::fmt;
use std::sync::Arc;

/// Result with the engine's error type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Maximum length of a peer's message that is kept, in bytes.
const PEER_TEXT_MAX: usize = 256;

/// Party that caused an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The handle, client or broker was used after it had been closed.
    Closed,
    /// An option or argument that the caller passed.
    Config,
    /// The network or the operating system.
    Io,
    /// A limit or the state of this process.
    Local,
    /// The peer violated the protocol or refused the request.
    Peer,
}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal, $blame:ident, $retriable:literal;)+) => {
        /// Kind of an error. The `code` of each kind is stable across releases.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind { $($(#[doc = $doc])+ $name,)+ }

        impl ErrorKind {
            /// All kinds, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Stable name in snake case.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)+ }
            }

            /// Party that causes errors of this kind.
            pub const fn blame(self) -> Blame {
                match self { $(Self::$name => Blame::$blame,)+ }
            }

            /// Whether the same call may succeed later without any change by the caller.
            pub const fn retriable(self) -> bool {
                match self { $(Self::$name => $retriable,)+ }
            }
        }
    };
}

kinds! {
    /// Credentials are missing or were rejected by the peer.
    Authentication = "authentication", Peer, false;
    /// The client's role does not permit the operation.
    Authorization = "authorization", Peer, false;
    /// The caller stopped waiting; the operation may still take effect.
    Cancelled = "cancelled", Local, false;
    /// A CRC-32C checksum did not match.
    Checksum = "checksum", Peer, true;
    /// The object was used after it had been closed.
    Closed = "closed", Closed, false;
    /// Compressed data are corrupt or exceed the size limit when decompressed.
    Compression = "compression", Peer, false;
    /// No address of the service accepted a connection.
    ConnectFailed = "connect_failed", Io, true;
    /// The subscription already has an exclusive consumer.
    ConsumerBusy = "consumer_busy", Peer, true;
    /// The broker could not assign the consumer.
    ConsumerAssign = "consumer_assign", Peer, true;
    /// The consumer is unknown to the broker.
    ConsumerNotFound = "consumer_not_found", Peer, true;
    /// Messages that were to be read were deleted before.
    DataLost = "data_lost", Peer, false;
    /// The connection was lost.
    Disconnected = "disconnected", Io, true;
    /// The topic was terminated, and every message of it is acknowledged.
    EndOfTopic = "end_of_topic", Peer, false;
    /// A received frame exceeds the negotiated size limit.
    FrameTooLarge = "frame_too_large", Peer, false;
    /// The client was used in a process forked after it was created.
    Fork = "fork", Config, false;
    /// The schema is incompatible with the schema of the topic.
    IncompatibleSchema = "incompatible_schema", Peer, false;
    /// An argument or option is invalid.
    InvalidArgument = "invalid_argument", Config, false;
    /// The topic name is invalid.
    InvalidTopic = "invalid_topic", Config, false;
    /// The state of the transaction does not allow the operation.
    InvalidTransaction = "invalid_transaction", Peer, false;
    /// An input or output operation of the operating system failed.
    Io = "io", Io, true;
    /// A memory limit was reached.
    MemoryLimit = "memory_limit", Local, true;
    /// The message exceeds the broker's size limit.
    MessageTooLarge = "message_too_large", Config, false;
    /// The broker could not read or write its metadata.
    Metadata = "metadata", Peer, true;
    /// The broker does not allow the operation in this state or configuration.
    NotAllowed = "not_allowed", Peer, false;
    /// The broker could not store the data.
    Persistence = "persistence", Peer, true;
    /// A producer of the same name, or an exclusive producer, is already connected.
    ProducerBusy = "producer_busy", Peer, true;
    /// Another producer has taken over. The producer cannot recover.
    ProducerFenced = "producer_fenced", Peer, false;
    /// The peer violated the protocol.
    Protocol = "protocol", Peer, true;
    /// The send window and the overflow queue behind it are full.
    QueueFull = "queue_full", Local, true;
    /// The backlog quota or the size limit of the store was reached.
    QuotaExceeded = "quota_exceeded", Peer, true;
    /// A value or a payload does not fit its schema, or a definition cannot be used.
    Schema = "schema", Config, false;
    /// The broker is not ready for the operation yet.
    ServiceNotReady = "service_not_ready", Peer, true;
    /// Another connection has taken over the client identifier.
    SessionTakenOver = "session_taken_over", Peer, false;
    /// The subscription does not exist.
    SubscriptionNotFound = "subscription_not_found", Peer, false;
    /// The operation exceeded its time limit.
    Timeout = "timeout", Io, true;
    /// TLS setup failed because of a certificate, the host name or the configuration.
    Tls = "tls", Io, false;
    /// The broker asked the client to slow down.
    TooManyRequests = "too_many_requests", Peer, true;
    /// The topic or namespace does not exist.
    TopicNotFound = "topic_not_found", Peer, false;
    /// The topic is terminated and accepts no more messages.
    TopicTerminated = "topic_terminated", Peer, false;
    /// The transaction conflicts with another one.
    TransactionConflict = "transaction_conflict", Peer, false;
    /// The transaction or its coordinator is unknown to the broker.
    TransactionNotFound = "transaction_not_found", Peer, true;
    /// The data ended in the middle of a value.
    Truncated = "truncated", Peer, false;
    /// The broker gave a reason that this version does not know.
    Unknown = "unknown", Peer, true;
    /// The protocol or this build does not support the operation.
    Unsupported = "unsupported", Config, false;
    /// The broker does not support this protocol version.
    UnsupportedVersion = "unsupported_version", Peer, false;
}

/// An error with its context. Cheap to clone, and the size of one pointer.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Arc<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    message: String,
    topic: Option<Arc<str>>,
    peer_text: Option<String>,
}

impl Error {
    /// Creates an error of `kind`; `message` says what went wrong and what to do about it.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner { kind, message: message.into(), topic: None, peer_text: None }))
    }

    /// Creates an error for a protocol violation by the peer.
    pub fn protocol(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Protocol, message)
    }

    /// Adds the peer's message, shortened and with control characters escaped.
    #[must_use]
    pub fn with_peer_text(mut self, text: &str) -> Self {
        Arc::make_mut(&mut self.0).peer_text = Some(sanitise(text));
        self
    }

    /// Adds to the description.
    #[must_use]
    pub fn with_note(mut self, note: &str) -> Self {
        let message = &mut Arc::make_mut(&mut self.0).message;
        message.push_str("; ");
        message.push_str(note);
        self
    }

    /// Adds the topic that the error concerns.
    #[must_use]
    pub fn with_topic(mut self, topic: impl Into<Arc<str>>) -> Self {
        Arc::make_mut(&mut self.0).topic = Some(topic.into());
        self
    }

    /// Kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Description of the error, without the topic and the peer's message.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Topic that the error concerns, if any.
    pub fn topic(&self) -> Option<&str> {
        self.0.topic.as_deref()
    }

    /// The peer's message, if any.
    pub fn peer_text(&self) -> Option<&str> {
        self.0.peer_text.as_deref()
    }

    /// Whether the same call may succeed later without any change by the caller.
    pub fn retriable(&self) -> bool {
        self.0.kind.retriable()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if let Some(topic) = &self.0.topic {
            write!(f, " (topic {topic})")?;
        }
        if let Some(text) = &self.0.peer_text {
            write!(f, ": the broker says {text:?}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.0.kind.code())
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::new(ErrorKind::Io, error.to_string())
    }
}

impl From<crate::wire::UnexpectedEnd> for Error {
    fn from(_: crate::wire::UnexpectedEnd) -> Self {
        Self::new(ErrorKind::Truncated, "the data ended in the middle of a value")
    }
}

#[cfg(feature = "sqlite")]
impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        let remedy = match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => {
                "; it is damaged, or another program's: choose another place"
            }
            _ => "",
        };
        Self::new(ErrorKind::Persistence, format!("the store failed: {error}{remedy}"))
    }
}

/// Adds to a text about a timeout why there was no connection, if that is known.
pub fn because(text: String, trouble: Option<&Error>) -> String {
    match trouble {
        Some(error) => format!("{text}; there is no connection: {error}"),
        None => text,
    }
}

/// Text of users in an error: in quotes, and without what follows the first 60 characters.
pub fn shown(text: &str) -> String {
    match text.char_indices().nth(60) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

/// Truncates `text` to `PEER_TEXT_MAX` bytes at a character boundary and escapes what ends a line,
/// turns its direction or controls a terminal, so that a peer can neither flood nor forge log
/// entries.
pub fn sanitise(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(PEER_TEXT_MAX));
    for c in text.chars() {
        if out.len() + c.len_utf8() > PEER_TEXT_MAX {
            out.push('…');
            break;
        }
        let turns = matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
        );
        if c.is_control() || turns {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique() {
        let mut codes: Vec<_> = ErrorKind::ALL.iter().map(|k| k.code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), ErrorKind::ALL.len());
    }

    #[test]
    fn text_of_users_is_short() {
        assert_eq!(shown("a\n\"b"), r#""a\n\"b""#);
        assert_eq!(shown(&"é".repeat(60)), format!("\"{}\"", "é".repeat(60)));
        assert_eq!(shown(&"é".repeat(61)), format!("\"{}\"...", "é".repeat(60)));
    }

    #[test]
    fn peer_text_is_bounded_and_escaped() {
        let controls = "\n\x1b[31m\u{9b}\u{85}\u{2028}\u{202e}\u{2066}";
        let error = Error::protocol("x").with_peer_text(&format!("a{controls}{}", "é".repeat(500)));
        let text = error.peer_text().unwrap();
        assert!(text.len() <= PEER_TEXT_MAX + '…'.len_utf8());
        let left = |c: char| !(c.is_ascii_graphic() || "é…".contains(c));
        assert!(!text.contains(left), "{text}");
    }
}
