//! The one error of the engine: what happened ([`ErrorKind`]), who is to blame ([`Blame`]), where, and the
//! peer's own words, made safe to log. Every kind has a stable `code` that the Python side exposes.

use std::fmt;
use std::sync::Arc;

/// Result of anything in the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Longest text of a peer that is kept, in bytes.
const PEER_TEXT_MAX: usize = 256;

/// Who caused an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The handle, client or broker had been closed.
    Closed,
    /// An option or argument of the caller.
    Config,
    /// The network or the operating system.
    Io,
    /// A limit or state of this side.
    Local,
    /// The other side broke the protocol or refused.
    Peer,
}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal, $blame:ident, $retriable:literal;)+) => {
        /// What happened. The `code` of each kind is stable across releases.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind { $($(#[doc = $doc])+ $name,)+ }

        impl ErrorKind {
            /// Every kind, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Stable snake-case name.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)+ }
            }

            /// Who causes errors of this kind.
            pub const fn blame(self) -> Blame {
                match self { $(Self::$name => Blame::$blame,)+ }
            }

            /// Whether the same call may succeed later without a change by the caller.
            pub const fn retriable(self) -> bool {
                match self { $(Self::$name => $retriable,)+ }
            }
        }
    };
}

kinds! {
    /// The peer did not accept the credentials, or there were none.
    Authentication = "authentication", Peer, false;
    /// The role may not do this.
    Authorization = "authorization", Peer, false;
    /// The awaiting side gave up; the operation may still take effect.
    Cancelled = "cancelled", Local, false;
    /// A CRC-32C did not match.
    Checksum = "checksum", Peer, true;
    /// Use after close.
    Closed = "closed", Closed, false;
    /// Compressed data are corrupt, or larger than they may become.
    Compression = "compression", Peer, false;
    /// No address of the service could be connected.
    ConnectFailed = "connect_failed", Io, true;
    /// The subscription already has an exclusive consumer.
    ConsumerBusy = "consumer_busy", Peer, true;
    /// The broker could not place the consumer.
    ConsumerAssign = "consumer_assign", Peer, true;
    /// The broker does not know the consumer.
    ConsumerNotFound = "consumer_not_found", Peer, true;
    /// The connection ended.
    Disconnected = "disconnected", Io, true;
    /// A frame is longer than the negotiated limit.
    FrameTooLarge = "frame_too_large", Peer, false;
    /// The process was forked after the client had been made.
    Fork = "fork", Config, false;
    /// The topic has a schema that this one does not fit.
    IncompatibleSchema = "incompatible_schema", Peer, false;
    /// An argument or option is not valid.
    InvalidArgument = "invalid_argument", Config, false;
    /// The topic name is not valid.
    InvalidTopic = "invalid_topic", Config, false;
    /// The transaction is not in a state that allows this.
    InvalidTransaction = "invalid_transaction", Peer, false;
    /// Input or output of the operating system failed.
    Io = "io", Io, true;
    /// A limit on memory is reached.
    MemoryLimit = "memory_limit", Local, true;
    /// The message is larger than the broker takes.
    MessageTooLarge = "message_too_large", Config, false;
    /// The broker could not read or write its metadata.
    Metadata = "metadata", Peer, true;
    /// The broker does not allow this here.
    NotAllowed = "not_allowed", Peer, false;
    /// The broker could not persist.
    Persistence = "persistence", Peer, true;
    /// Another producer with this name, or an exclusive one, is connected.
    ProducerBusy = "producer_busy", Peer, true;
    /// Another producer took over: terminal.
    ProducerFenced = "producer_fenced", Peer, false;
    /// The peer broke the protocol.
    Protocol = "protocol", Peer, true;
    /// The send window and the parking lot behind it are full.
    QueueFull = "queue_full", Local, true;
    /// The backlog quota or the store's size cap is reached.
    QuotaExceeded = "quota_exceeded", Peer, true;
    /// The broker is not ready for this yet.
    ServiceNotReady = "service_not_ready", Peer, true;
    /// Another connection uses the client identifier.
    SessionTakenOver = "session_taken_over", Peer, false;
    /// The subscription does not exist.
    SubscriptionNotFound = "subscription_not_found", Peer, false;
    /// The time limit of the operation passed.
    Timeout = "timeout", Io, true;
    /// TLS could not be set up: certificate, host name or configuration.
    Tls = "tls", Io, false;
    /// The broker asks to slow down.
    TooManyRequests = "too_many_requests", Peer, true;
    /// The topic or namespace does not exist.
    TopicNotFound = "topic_not_found", Peer, false;
    /// The topic is terminated: it takes no more messages.
    TopicTerminated = "topic_terminated", Peer, false;
    /// Two transactions want the same.
    TransactionConflict = "transaction_conflict", Peer, false;
    /// The broker does not know the transaction or its coordinator.
    TransactionNotFound = "transaction_not_found", Peer, true;
    /// Bytes ended before the value did.
    Truncated = "truncated", Peer, false;
    /// The broker gave a reason that is not known here.
    Unknown = "unknown", Peer, true;
    /// The protocol or this build cannot do that.
    Unsupported = "unsupported", Config, false;
    /// The broker does not speak this version.
    UnsupportedVersion = "unsupported_version", Peer, false;
}

/// What went wrong, with its context. Cheap to clone and one word wide.
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
    /// An error of `kind`; `message` names what was wrong and what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner { kind, message: message.into(), topic: None, peer_text: None }))
    }

    /// A violation of the protocol by the peer.
    pub fn protocol(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Protocol, message)
    }

    /// The peer's own words, shortened and with control characters escaped.
    #[must_use]
    pub fn with_peer_text(mut self, text: &str) -> Self {
        Arc::make_mut(&mut self.0).peer_text = Some(sanitise(text));
        self
    }

    /// The topic this is about.
    #[must_use]
    pub fn with_topic(mut self, topic: impl Into<Arc<str>>) -> Self {
        Arc::make_mut(&mut self.0).topic = Some(topic.into());
        self
    }

    /// What happened.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What was wrong, without the topic and the peer's words.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The topic, when the error is about one.
    pub fn topic(&self) -> Option<&str> {
        self.0.topic.as_deref()
    }

    /// The peer's own words, when there are any.
    pub fn peer_text(&self) -> Option<&str> {
        self.0.peer_text.as_deref()
    }

    /// Whether the same call may succeed later without a change by the caller.
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
        Self::new(ErrorKind::Truncated, "the bytes end before the value does")
    }
}

/// Shortens to [`PEER_TEXT_MAX`] on a character boundary and escapes control characters, so that a peer
/// can neither flood nor forge a log.
pub fn sanitise(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(PEER_TEXT_MAX));
    for c in text.chars() {
        if out.len() + c.len_utf8() > PEER_TEXT_MAX {
            out.push('…');
            break;
        }
        if c.is_control() {
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
    fn peer_text_is_bounded_and_escaped() {
        let error = Error::protocol("x").with_peer_text(&format!("a\n\x1b[31m{}", "é".repeat(500)));
        let text = error.peer_text().unwrap();
        assert!(text.len() <= PEER_TEXT_MAX + '…'.len_utf8());
        assert!(!text.contains('\n') && !text.contains('\x1b'));
    }
}
