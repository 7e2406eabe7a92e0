//! Apache InLong TubeMQ, sans-IO.
//!
//! * [`frame`]: encoding and decoding of frames, independent of how the peer splits them into
//!   blocks
//! * [`command`]: the RPC envelope, the methods with their requests and responses, exceptions
//! * [`message`]: payloads with attributes, checksums, filters by message type
//! * [`topic`]: names, partitions, and the text formats in which clients, master and brokers
//!   exchange them
//! * [`connection`]: calls and their responses
//! * [`master`]: registration and metadata of a producer at the master
//! * [`balance`]: a member of a consumer group at the master, and the partitions assigned to it
//! * [`producer`]: messages on their way to the brokers
//! * [`send`]: the request of a message, which is encoded by hand
//! * [`consumer`]: one partition at its broker
//! * [`range`]: the messages between two offsets of a partition
//! * [`flow`]: flow control rules, which slow consumers down
//!
//! The module has no dependency on sockets, clocks, tasks or Python.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

use forebay_base::error::{Error, ErrorKind};

pub mod balance;
pub mod command;
pub mod connection;
pub mod consumer;
pub mod flow;
pub mod frame;
pub mod master;
pub mod message;
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::doc_markdown)]
#[rustfmt::skip]
pub mod pb;
pub mod producer;
pub mod range;
pub mod send;
pub mod topic;

#[cfg(test)]
mod tests;

pub use command::{Call, Exception, Method, Reply, Request, Response, Service};
pub use frame::Frame;
pub use topic::Partition;

/// Protocol version that this crate implements: the one whose exceptions are classes of
/// `org.apache.inlong`.
pub const PROTOCOL_VERSION: i32 = 3;

/// Value for "undefined" in all identifiers and checksums of the protocol.
pub const UNDEFINED: i64 = -2;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal, $wire:literal, $kind:ident;)+) => {
        /// Codes returned by a master or broker. Codes that the official client uses only
        /// internally (402, 405 to 408, 420 to 423, 440 to 445, 599) are omitted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(i32)]
        pub enum Code { $($(#[doc = $doc])+ $name = $code,)+ }

        impl Code {
            /// All codes, in numerical order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Looks up a code by its number; a newer server may send unknown ones.
            pub const fn from_number(number: i32) -> Option<Self> {
                match number { $($code => Some(Self::$name),)+ _ => None }
            }

            /// Name of the code in the protocol.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $wire,)+ }
            }

            /// Kind of the error that the code becomes. [`Code::Success`] is not an error; its kind
            /// is that of a response which carries the code but did not succeed.
            pub const fn kind(self) -> ErrorKind {
                match self { $(Self::$name => ErrorKind::$kind,)+ }
            }
        }
    };
}

codes! {
    /// The method succeeded.
    Success = 200, "SUCCESS", Protocol;
    /// The master has no news yet; earlier information remains valid.
    NotReady = 201, "NOT_READY", ServiceNotReady;
    /// The resource is not available here or not at the moment; the request should be repeated.
    Moved = 301, "MOVED", ServiceNotReady;
    /// A field is missing or invalid.
    BadRequest = 400, "BAD_REQUEST", InvalidArgument;
    /// The client does not hold the partition.
    Unauthorized = 401, "UNAUTHORIZED", ConsumerNotFound;
    /// The topic is closed, its partition is gone, or a checksum is wrong; metadata should be
    /// refreshed.
    Forbidden = 403, "FORBIDDEN", NotAllowed;
    /// There is nothing to read.
    NotFound = 404, "NOT_FOUND", ServiceNotReady;
    /// Another client holds the partition.
    PartitionOccupied = 410, "PARTITION_OCCUPIED", ConsumerBusy;
    /// The server does not know the client, which must register again.
    NoNode = 411, "HB_NO_NODE", ConsumerNotFound;
    /// Another registration of the same client holds the partition.
    DuplicatePartition = 412, "DUPLICATE_PARTITION", ConsumerBusy;
    /// Credentials or visit token were rejected.
    CertificateFailure = 415, "CERTIFICATE_FAILURE", Authentication;
    /// The broker's memory block is full; the message should be sent elsewhere or later.
    ReceiveOverflow = 419, "SERVER_RECEIVE_OVERFLOW", TooManyRequests;
    /// The group's members use another kind of balancing.
    InconsistentConsumeType = 424, "CLIENT_INCONSISTENT_CONSUMETYPE", ConsumerAssign;
    /// The group's members subscribe to other topics.
    InconsistentTopicSet = 425, "CLIENT_INCONSISTENT_TOPICSET", ConsumerAssign;
    /// The group's members use other filters.
    InconsistentFilterSet = 426, "CLIENT_INCONSISTENT_FILTERSET", ConsumerAssign;
    /// The group's members use another session key.
    InconsistentSessionKey = 427, "CLIENT_INCONSISTENT_SESSIONKEY", ConsumerAssign;
    /// The group's members use another rule for choosing between offsets.
    InconsistentSelectBig = 428, "CLIENT_INCONSISTENT_SELECTBIG", ConsumerAssign;
    /// The group's members state another number of members.
    InconsistentSourceCount = 429, "CLIENT_INCONSISTENT_SOURCECOUNT", ConsumerAssign;
    /// Another member of the group has the same node id.
    DuplicateIndexId = 430, "CLIENT_DUPLICATE_INDEXID", ConsumerBusy;
    /// No broker has the topic.
    TopicNotDeployed = 431, "TOPIC_NOT_DEPLOYED", TopicNotFound;
    /// The group is not allowed to consume.
    ConsumeGroupForbidden = 450, "CONSUME_GROUP_FORBIDDEN", Authorization;
    /// The broker limits the consumption rate; the response states the time to wait.
    ConsumeSpeedLimit = 452, "SERVER_CONSUME_SPEED_LIMIT", TooManyRequests;
    /// The group is not allowed to consume with these filters.
    ConsumeContentForbidden = 455, "CONSUME_CONTENT_FORBIDDEN", Authorization;
    /// The server failed.
    InternalServerError = 500, "INTERNAL_SERVER_ERROR", Unknown;
    /// The server is temporarily not in service.
    ServiceUnavailable = 503, "SERVICE_UNAVAILABLE", ServiceNotReady;
    /// The broker found no data where it expected some.
    MessageSetNull = 510, "INTERNAL_SERVER_ERROR_MSGSET_NULL", Unknown;
}

/// Converts a server's error code and message into a typed error. A code that only a newer server
/// knows becomes `Unknown`.
pub fn server_error(code: i32, text: &str) -> Error {
    let (kind, name) = match Code::from_number(code) {
        Some(code) => (code.kind(), code.name().to_owned()),
        None => (ErrorKind::Unknown, format!("error {code}")),
    };
    Error::new(kind, format!("the server returned {name}")).with_peer_text(text)
}
