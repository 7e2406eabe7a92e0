//! The Apache Pulsar binary protocol, sans-IO.
//!
//! * [`command`]: the commands and their numbers
//! * [`hot`]: the commands of every message, coded by hand
//! * [`frame`]: bytes to frames and back
//! * [`connection`]: the client's side of a socket: handshake, keep-alive, request correlation
//! * [`message`]: messages and their ids
//! * [`topic`]: topic names, hashing, routing
//! * [`producer`] and [`consumer`]: what outlives a socket
//!
//! Nothing here knows a socket, a clock, a task or Python.

pub mod command;
pub mod connection;
pub mod consumer;
pub mod frame;
pub mod hot;
pub mod message;
pub mod producer;
pub mod topic;

pub use message::{EntryInfo, Message, MessageId, Outgoing};

/// The protocol's messages, generated from `proto/pulsar.proto`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::doc_markdown)]
pub mod pb {
    include!(concat!(env!("OUT_DIR"), "/pulsar.rs"));
}

/// Version of the protocol that is spoken (21: schema on Subscribe).
pub const PROTOCOL_VERSION: i32 = 21;

/// `request_id` of commands that answer nothing: closes by the broker and handshake errors.
pub const NO_REQUEST: u64 = u64::MAX;

impl From<pb::ServerError> for crate::error::ErrorKind {
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

/// The typed error for a broker's numeric code and words. A code of a newer broker is `Unknown`.
pub fn server_error(code: i32, text: &str) -> crate::error::Error {
    let (kind, name) = match pb::ServerError::try_from(code) {
        Ok(error) => (error.into(), error.as_str_name().to_owned()),
        Err(_) => (crate::error::ErrorKind::Unknown, format!("error {code}")),
    };
    crate::error::Error::new(kind, format!("the broker answered {name}")).with_peer_text(text)
}
