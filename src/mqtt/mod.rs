//! MQTT 3.1, 3.1.1 and 5.0, sans-IO. One tree for the three versions: the version is an argument.
//!
//! * [`frame`]: bytes to control packets by their fixed header
//! * [`packet`]: the fifteen control packets and their fields
//! * [`property`]: the properties of 5.0, by packet and direction
//! * [`reason`]: reason codes, and the return codes of 3.x as some of them
//! * [`topic`]: topic names, filters, matching, shared subscriptions
//! * [`connection`]: the client's side of a socket: handshake, keep-alive, limits, topic aliases
//! * [`producer`] and [`consumer`]: the halves of a session, which outlive a socket
//! * [`session`]: both halves and the subscriptions
//!
//! Nothing here knows a socket, a clock, a task or Python.

use crate::error::{Error, ErrorKind};
use crate::wire::UnexpectedEnd;

pub mod connection;
pub mod consumer;
pub mod frame;
pub mod packet;
pub mod producer;
pub mod property;
pub mod reason;
pub mod session;
pub mod topic;

#[cfg(test)]
mod tests;

pub use packet::Packet;
pub use property::{Properties, Property};
pub use reason::Reason;

/// Version of the protocol, in the order of their age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 3.1: protocol name `MQIsdp`, level 3.
    V3_1,
    /// 3.1.1: protocol name `MQTT`, level 4.
    V3_1_1,
    /// 5.0: protocol name `MQTT`, level 5.
    V5,
}

impl Version {
    /// Protocol level of CONNECT.
    pub const fn level(self) -> u8 {
        match self {
            Self::V3_1 => 3,
            Self::V3_1_1 => 4,
            Self::V5 => 5,
        }
    }

    /// Protocol name of CONNECT.
    pub const fn protocol_name(self) -> &'static str {
        match self {
            Self::V3_1 => "MQIsdp",
            Self::V3_1_1 | Self::V5 => "MQTT",
        }
    }
}

/// Quality of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QoS {
    /// 0: at most once, without an answer.
    #[default]
    AtMostOnce,
    /// 1: at least once, answered by PUBACK.
    AtLeastOnce,
    /// 2: exactly once, PUBREC, PUBREL, PUBCOMP.
    ExactlyOnce,
}

impl QoS {
    /// From the two bits on the wire; 3 is none.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::AtMostOnce),
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::ExactlyOnce),
            _ => None,
        }
    }
}

/// Which side sent a packet: some packets, properties and reason codes are for one side alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sender {
    /// A client.
    Client,
    /// A server.
    Server,
}

/// Why bytes are not MQTT, with the reason code that 5.0 has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What a DISCONNECT or CONNACK of 5.0 says.
    pub reason: Reason,
    /// What was wrong.
    pub message: String,
}

impl Violation {
    /// Bytes that cannot be parsed.
    pub fn malformed(message: impl Into<String>) -> Self {
        Self { reason: Reason::MalformedPacket, message: message.into() }
    }

    /// Bytes that can be parsed and may not be sent.
    pub fn protocol(message: impl Into<String>) -> Self {
        Self { reason: Reason::ProtocolError, message: message.into() }
    }
}

impl From<UnexpectedEnd> for Violation {
    fn from(_: UnexpectedEnd) -> Self {
        Self::malformed("the packet ends before its fields do")
    }
}

impl From<Violation> for Error {
    fn from(violation: Violation) -> Self {
        let kind = match violation.reason {
            Reason::PacketTooLarge => ErrorKind::FrameTooLarge,
            Reason::UnsupportedProtocolVersion => ErrorKind::UnsupportedVersion,
            _ => ErrorKind::Protocol,
        };
        Self::new(kind, violation.message)
    }
}
