//! MQTT 3.1, 3.1.1 and 5, sans-IO. All three versions share one implementation that takes the
//! version as an argument.
//!
//! * `data`: variable byte integers, strings and binary data
//! * `kind`: the types of control packets
//! * [`frame`]: the fixed header, which delimits control packets
//! * [`packet`]: the fifteen control packets and their fields
//! * [`property`]: the properties of MQTT 5, by packet and direction
//! * [`reason`]: reason codes, including those that stand for the return codes of MQTT 3
//! * [`topic`]: topic names, filters, matching, shared subscriptions
//! * [`connection`]: the client side of a socket: handshake, keep-alive, limits, topic aliases
//! * [`producer`] and [`consumer`]: the two halves of a session, which outlive a socket
//! * [`session`]: both halves and the subscriptions
//!
//! The module has no dependency on sockets, clocks, tasks or Python.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

use forebay_base::error::{Error, ErrorKind};
use forebay_base::options::{Shown, Source, Value};
use forebay_base::wire::UnexpectedEnd;

pub mod connection;
pub mod consumer;
mod data;
pub mod frame;
mod kind;
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

/// Protocol version, ordered by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// MQTT 3.1: protocol name `MQIsdp`, level 3.
    V3_1,
    /// MQTT 3.1.1: protocol name `MQTT`, level 4.
    V3_1_1,
    /// MQTT 5: protocol name `MQTT`, level 5.
    V5,
}

impl Version {
    /// Protocol level in CONNECT.
    pub const fn level(self) -> u8 {
        match self {
            Self::V3_1 => 3,
            Self::V3_1_1 => 4,
            Self::V5 => 5,
        }
    }

    /// Protocol name in CONNECT.
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
    /// QoS 0, at most once: not acknowledged.
    #[default]
    AtMostOnce,
    /// QoS 1, at least once: acknowledged with PUBACK.
    AtLeastOnce,
    /// QoS 2, exactly once: PUBREC, PUBREL, PUBCOMP.
    ExactlyOnce,
}

impl QoS {
    /// Converts the two bits on the wire; `None` for 3.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::AtMostOnce),
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::ExactlyOnce),
            _ => None,
        }
    }
}

impl Value for QoS {
    fn shown(&self) -> Shown {
        Shown::Whole(*self as i64)
    }

    fn read<S: Source>(&mut self, source: &S, name: &str) -> Result<(), S::Error> {
        let Some(level) = source.whole(name)? else { return Ok(()) };
        let known = u8::try_from(level).ok().and_then(Self::from_bits);
        *self = known.ok_or_else(|| source.invalid(name, format!("{level}: use 0, 1 or 2")))?;
        Ok(())
    }
}

/// Side that sent a packet. Some packets, properties and reason codes are reserved for one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sender {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// A violation of the standard by the peer, with the reason code that MQTT 5 assigns to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Reason code for a DISCONNECT or CONNACK of MQTT 5.
    pub reason: Reason,
    /// Description of the violation.
    pub message: String,
}

impl Violation {
    /// Creates the violation for bytes that cannot be parsed (Malformed Packet).
    pub fn malformed(message: impl Into<String>) -> Self {
        Self { reason: Reason::MalformedPacket, message: message.into() }
    }

    /// Creates the violation for a packet that can be parsed but is not permitted (Protocol Error).
    pub fn protocol(message: impl Into<String>) -> Self {
        Self { reason: Reason::ProtocolError, message: message.into() }
    }
}

impl From<UnexpectedEnd> for Violation {
    fn from(_: UnexpectedEnd) -> Self {
        Self::malformed("the packet is too short for its fields")
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
