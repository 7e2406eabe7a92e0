//! Apache InLong TubeMQ, sans-IO.
//!
//! * [`frame`]: bytes to frames and back, whatever blocks the peer splits them into
//! * [`command`]: the envelope, the methods with their requests and responses, exceptions
//! * [`message`]: payloads with attributes, checksums, filters by message type
//! * [`topic`]: names, partitions, and the texts in which clients, master and brokers tell each other about them
//! * [`connection`]: calls and their answers
//! * [`master`]: a producer at the master
//! * [`balance`]: a member of a consumer group at the master, and which partitions are its own
//! * [`producer`]: messages on their way to the brokers
//! * [`consumer`]: one partition at its broker
//! * [`flow`]: rules by which consumers slow down
//!
//! Nothing here knows a socket, a clock, a task or Python.

use crate::error::{Error, ErrorKind};

pub mod balance;
pub mod command;
pub mod connection;
pub mod consumer;
pub mod flow;
pub mod frame;
pub mod master;
pub mod message;
pub mod producer;
pub mod topic;

#[cfg(test)]
mod tests;

pub use command::{Call, Exception, Method, Reply, Request, Response, Service};
pub use frame::Frame;
pub use topic::Partition;

/// The protocol's messages, generated from `proto/tubemq.proto`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::doc_markdown)]
pub mod pb {
    include!(concat!(env!("OUT_DIR"), "/tubemq.rs"));
}

/// Version of the protocol that is spoken: the one whose exceptions are classes of `org.apache.inlong`.
pub const PROTOCOL_VERSION: i32 = 3;

/// "Undefined" in every identifier and checksum of the protocol.
pub const UNDEFINED: i64 = -2;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal, $wire:literal, $kind:ident;)+) => {
        /// The codes that a master or broker answers. The codes that the official client keeps to itself
        /// (402, 405 to 408, 420 to 423, 440 to 445, 599) are not among them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(i32)]
        pub enum Code { $($(#[doc = $doc])+ $name = $code,)+ }

        impl Code {
            /// Every code, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// From the number on the wire; a newer server may have others.
            pub const fn from_number(number: i32) -> Option<Self> {
                match number { $($code => Some(Self::$name),)+ _ => None }
            }

            /// Its name in the protocol.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $wire,)+ }
            }

            /// The kind of error that it is to whoever asked. [`Code::Success`] is none, and has the kind of
            /// a success that was not one.
            pub const fn kind(self) -> ErrorKind {
                match self { $(Self::$name => ErrorKind::$kind,)+ }
            }
        }
    };
}

codes! {
    /// Done.
    Success = 200, "SUCCESS", Protocol;
    /// The master has nothing to say yet: what was known stays.
    NotReady = 201, "NOT_READY", ServiceNotReady;
    /// Not here, or not now: ask again.
    Moved = 301, "MOVED", ServiceNotReady;
    /// A field is missing or not valid.
    BadRequest = 400, "BAD_REQUEST", InvalidArgument;
    /// The client holds no such partition.
    Unauthorized = 401, "UNAUTHORIZED", ConsumerNotFound;
    /// The topic is closed or its partition gone, or a checksum is wrong: the metadata are to be asked again.
    Forbidden = 403, "FORBIDDEN", NotAllowed;
    /// There is nothing to read.
    NotFound = 404, "NOT_FOUND", ServiceNotReady;
    /// Another client holds the partition.
    PartitionOccupied = 410, "PARTITION_OCCUPIED", ConsumerBusy;
    /// The server has forgotten the client, which is to register again.
    NoNode = 411, "HB_NO_NODE", ConsumerNotFound;
    /// The partition is held by another registration of the same client.
    DuplicatePartition = 412, "DUPLICATE_PARTITION", ConsumerBusy;
    /// Credentials or visit token are not accepted.
    CertificateFailure = 415, "CERTIFICATE_FAILURE", Authentication;
    /// The broker's memory block is full: send elsewhere, or later.
    ReceiveOverflow = 419, "SERVER_RECEIVE_OVERFLOW", TooManyRequests;
    /// The group's members balance in another way.
    InconsistentConsumeType = 424, "CLIENT_INCONSISTENT_CONSUMETYPE", ConsumerAssign;
    /// The group's members have other topics.
    InconsistentTopicSet = 425, "CLIENT_INCONSISTENT_TOPICSET", ConsumerAssign;
    /// The group's members have other filters.
    InconsistentFilterSet = 426, "CLIENT_INCONSISTENT_FILTERSET", ConsumerAssign;
    /// The group's members have another session key.
    InconsistentSessionKey = 427, "CLIENT_INCONSISTENT_SESSIONKEY", ConsumerAssign;
    /// The group's members choose between offsets in another way.
    InconsistentSelectBig = 428, "CLIENT_INCONSISTENT_SELECTBIG", ConsumerAssign;
    /// The group's members say that they are another number.
    InconsistentSourceCount = 429, "CLIENT_INCONSISTENT_SOURCECOUNT", ConsumerAssign;
    /// Another member of the group has the same node id.
    DuplicateIndexId = 430, "CLIENT_DUPLICATE_INDEXID", ConsumerBusy;
    /// No broker has the topic.
    TopicNotDeployed = 431, "TOPIC_NOT_DEPLOYED", TopicNotFound;
    /// The group may not consume.
    ConsumeGroupForbidden = 450, "CONSUME_GROUP_FORBIDDEN", Authorization;
    /// The broker limits the rate: not before the time that it says.
    ConsumeSpeedLimit = 452, "SERVER_CONSUME_SPEED_LIMIT", TooManyRequests;
    /// The group may not consume with these filters.
    ConsumeContentForbidden = 455, "CONSUME_CONTENT_FORBIDDEN", Authorization;
    /// The server failed.
    InternalServerError = 500, "INTERNAL_SERVER_ERROR", Unknown;
    /// The server does not serve now.
    ServiceUnavailable = 503, "SERVICE_UNAVAILABLE", ServiceNotReady;
    /// The broker read nothing where something had to be.
    MessageSetNull = 510, "INTERNAL_SERVER_ERROR_MSGSET_NULL", Unknown;
}

/// The typed error for a server's code and words. A code of a newer server is `Unknown`.
pub fn server_error(code: i32, text: &str) -> Error {
    let (kind, name) = match Code::from_number(code) {
        Some(code) => (code.kind(), code.name().to_owned()),
        None => (ErrorKind::Unknown, format!("error {code}")),
    };
    Error::new(kind, format!("the server answered {name}")).with_peer_text(text)
}
