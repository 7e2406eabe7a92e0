//! The Apache Pulsar binary protocol, sans-IO.
//!
//! * [`command`]: the commands and their numbers
//! * [`hot`]: hand-written codecs for the commands that every message needs
//! * [`frame`]: encoding and decoding of frames
//! * [`connection`]: the client side of a socket: handshake, keep-alive, request correlation
//! * [`message`]: messages and their ids
//! * [`topic`]: topic names, hashing, routing
//! * [`schema`]: schemas of messages
//! * [`pattern`]: patterns of topics, and the hash of a list of topics
//! * [`producer`] and [`consumer`]: state that outlives a socket
//!
//! The module has no dependency on sockets, clocks, tasks or Python.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod command;
pub mod connection;
pub mod consumer;
pub mod frame;
pub mod hot;
pub mod key_value;
pub mod message;
pub mod pattern;
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::doc_markdown)]
#[rustfmt::skip]
pub mod pb;
pub mod producer;
pub mod schema;
pub mod topic;

pub use message::{EntryInfo, LOCAL_CLUSTER, Message, MessageId, Outgoing, RareInfo};

/// Protocol version that this crate implements (21: schema on Subscribe).
pub const PROTOCOL_VERSION: i32 = 21;

/// `request_id` of commands that answer no request: closes initiated by the broker and handshake
/// errors.
pub const NO_REQUEST: u64 = u64::MAX;

/// Maximum number of chunks of a message.
pub const MAX_CHUNKS: usize = 10_000;

impl From<pb::ServerError> for forebay_base::error::ErrorKind {
    fn from(error: pb::ServerError) -> Self {
        use pb::ServerError as S;
        match error {
            S::UnknownError => Self::Unknown,
            S::MetadataError => Self::Metadata,
            S::PersistenceError => Self::Persistence,
            S::AuthenticationError => Self::Authentication,
            S::AuthorizationError => Self::Authorization,
            S::ConsumerBusy => Self::ConsumerBusy,
            S::ServiceNotReady => Self::ServiceNotReady,
            S::ProducerBlockedQuotaExceededError | S::ProducerBlockedQuotaExceededException => {
                Self::QuotaExceeded
            }
            S::ChecksumError => Self::Checksum,
            S::UnsupportedVersionError => Self::UnsupportedVersion,
            S::TopicNotFound => Self::TopicNotFound,
            S::SubscriptionNotFound => Self::SubscriptionNotFound,
            S::ConsumerNotFound => Self::ConsumerNotFound,
            S::TooManyRequests => Self::TooManyRequests,
            S::TopicTerminatedError => Self::TopicTerminated,
            S::ProducerBusy => Self::ProducerBusy,
            S::InvalidTopicName => Self::InvalidTopic,
            S::IncompatibleSchema => Self::IncompatibleSchema,
            S::ConsumerAssignError => Self::ConsumerAssign,
            S::TransactionCoordinatorNotFound | S::TransactionNotFound => Self::TransactionNotFound,
            S::InvalidTxnStatus => Self::InvalidTransaction,
            S::NotAllowedError => Self::NotAllowed,
            S::TransactionConflict => Self::TransactionConflict,
            S::ProducerFenced => Self::ProducerFenced,
        }
    }
}

/// Converts a broker's numeric error code and message into a typed error. A code that only a newer
/// broker knows becomes `Unknown`.
pub fn server_error(code: i32, text: &str) -> forebay_base::error::Error {
    let (kind, name) = match pb::ServerError::try_from(code) {
        Ok(error) => (error.into(), error.as_str_name().to_owned()),
        Err(_) => (forebay_base::error::ErrorKind::Unknown, format!("error {code}")),
    };
    forebay_base::error::Error::new(kind, format!("the broker returned {name}")).with_peer_text(text)
}
