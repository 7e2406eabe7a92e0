//! Control packets (2.1.2, chapter 3): their fields and their encoding in each version.
//!
//! Decoding is strict about reserved bits, UTF-8, lengths and permitted combinations; a
//! [`Violation`] carries the reason code that MQTT 5 defines for it. Strings and payloads share the
//! input buffer. Encoding produces the shortest form.

use std::num::NonZeroU16;

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;

use crate::data::{read_binary, read_text, varint_len};
use crate::frame::{Frame, MAX_REMAINING_LENGTH, put_header};
pub use crate::kind::Kind;
use crate::property::{Place, Properties};
use crate::topic::check_name;
use crate::{Reason, Sender, Version, Violation};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::transmit::Transmit;
use forebay_base::wire::Reader;

mod connect;
mod publish;
mod subscribe;

pub use connect::{Auth, ConnAck, Connect, Disconnect, Will};
pub use publish::{Ack, Publish};
pub use subscribe::{RetainHandling, SubAck, Subscribe, SubscribeOptions, UnsubAck, Unsubscribe};

/// Identifier of a packet that awaits an answer; never 0.
pub type PacketId = NonZeroU16;

/// A control packet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the standard")]
pub enum Packet {
    Connect(Box<Connect>),
    ConnAck(ConnAck),
    Publish(Publish),
    PubAck(Ack),
    PubRec(Ack),
    PubRel(Ack),
    PubComp(Ack),
    Subscribe(Subscribe),
    SubAck(SubAck),
    Unsubscribe(Unsubscribe),
    UnsubAck(UnsubAck),
    PingReq,
    PingResp,
    Disconnect(Disconnect),
    Auth(Auth),
}

impl Packet {
    /// Kind of the packet.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Connect(_) => Kind::Connect,
            Self::ConnAck(_) => Kind::ConnAck,
            Self::Publish(_) => Kind::Publish,
            Self::PubAck(_) => Kind::PubAck,
            Self::PubRec(_) => Kind::PubRec,
            Self::PubRel(_) => Kind::PubRel,
            Self::PubComp(_) => Kind::PubComp,
            Self::Subscribe(_) => Kind::Subscribe,
            Self::SubAck(_) => Kind::SubAck,
            Self::Unsubscribe(_) => Kind::Unsubscribe,
            Self::UnsubAck(_) => Kind::UnsubAck,
            Self::PingReq => Kind::PingReq,
            Self::PingResp => Kind::PingResp,
            Self::Disconnect(_) => Kind::Disconnect,
            Self::Auth(_) => Kind::Auth,
        }
    }

    /// Decodes a packet sent by `sender` on a connection of `version`. CONNECT states its own
    /// version.
    pub fn decode(frame: &Frame, version: Version, sender: Sender) -> Result<Self, Violation> {
        let kind = Kind::of(frame.first)
            .ok_or_else(|| Violation::malformed("the packet has the reserved type 0 (2.1.2)"))?;
        if !kind.sent_by(sender) || kind == Kind::Auth && version != Version::V5 {
            return Err(Violation::protocol(format!(
                "the {sender:?} sent {kind:?}, which it must not send in {version:?} (2.1.2)"
            )));
        }
        if kind != Kind::Publish && frame.first & 0x0f != kind.flags() {
            // 3.1 allows DUP on a retried SUBSCRIBE, UNSUBSCRIBE or PUBREL, and gives the flags of
            // all others no meaning (sections 3.1 to 3.14: "not used"). A CONNECT tells its version
            // by its protocol name.
            let v3_1 = match kind {
                Kind::Connect => frame.body.starts_with(b"\0\x06MQIsdp"),
                _ => version == Version::V3_1,
            };
            let allowed = v3_1 && (kind.flags() == 0 || frame.first & 0x0f == 0b1010);
            if !allowed {
                return Err(Violation::malformed(format!(
                    "{kind:?} has invalid flags {:04b} (2.1.3)",
                    frame.first & 0x0f
                )));
            }
        }
        let mut fields =
            Fields { reader: Reader::new(&frame.body), body: &frame.body, version, sender, kind };
        let packet = match kind {
            Kind::Connect => Self::Connect(Box::new(Connect::decode(&mut fields)?)),
            Kind::ConnAck => Self::ConnAck(ConnAck::decode(&mut fields)?),
            Kind::Publish => return Ok(Self::Publish(Publish::decode(frame.first, fields)?)),
            Kind::PubAck => Self::PubAck(Ack::decode(&mut fields)?),
            Kind::PubRec => Self::PubRec(Ack::decode(&mut fields)?),
            Kind::PubRel => Self::PubRel(Ack::decode(&mut fields)?),
            Kind::PubComp => Self::PubComp(Ack::decode(&mut fields)?),
            Kind::Subscribe => Self::Subscribe(Subscribe::decode(&mut fields)?),
            Kind::SubAck => Self::SubAck(SubAck::decode(&mut fields)?),
            Kind::Unsubscribe => Self::Unsubscribe(Unsubscribe::decode(&mut fields)?),
            Kind::UnsubAck => Self::UnsubAck(UnsubAck::decode(&mut fields)?),
            Kind::PingReq => Self::PingReq,
            Kind::PingResp => Self::PingResp,
            Kind::Disconnect => Self::Disconnect(Disconnect::decode(&mut fields)?),
            Kind::Auth => Self::Auth(Auth::decode(&mut fields)?),
        };
        if !fields.reader.is_empty() {
            return Err(Violation::malformed(format!(
                "{kind:?} has {} extra bytes after its fields",
                fields.reader.remaining()
            )));
        }
        Ok(packet)
    }

    /// Size of the packet in bytes, including the fixed header. Maximum Packet Size limits this
    /// value.
    pub fn encoded_len(&self, version: Version) -> usize {
        let length = self.remaining_length(version);
        1 + varint_len(length) + length
    }

    /// Appends the packet. Fails, without appending anything, if a string or the whole packet is
    /// too long for its length field.
    pub fn encode(&self, version: Version, out: &mut Transmit) -> Result<()> {
        self.check_lengths(version)?;
        let length = self.remaining_length(version);
        match self {
            Self::Publish(publish) => publish.encode(version, length, out),
            _ => out.append(|buffer| {
                put_header(buffer, self.kind().first(), length);
                self.encode_body(version, buffer);
            }),
        }
        Ok(())
    }

    fn remaining_length(&self, version: Version) -> usize {
        match self {
            Self::Connect(packet) => packet.remaining_length(),
            Self::ConnAck(packet) => packet.remaining_length(version),
            Self::Publish(packet) => packet.remaining_length(version),
            Self::PubAck(ack) | Self::PubRec(ack) | Self::PubRel(ack) | Self::PubComp(ack) => {
                ack.remaining_length(version)
            }
            Self::Subscribe(packet) => packet.remaining_length(version),
            Self::SubAck(packet) => packet.remaining_length(version),
            Self::Unsubscribe(packet) => packet.remaining_length(version),
            Self::UnsubAck(packet) => packet.remaining_length(version),
            Self::PingReq | Self::PingResp => 0,
            Self::Disconnect(packet) => packet.remaining_length(version),
            Self::Auth(packet) => packet.remaining_length(),
        }
    }

    fn encode_body(&self, version: Version, out: &mut BytesMut) {
        match self {
            Self::Connect(packet) => packet.encode(out),
            Self::ConnAck(packet) => packet.encode(version, out),
            Self::Publish(_) => unreachable!("PUBLISH is encoded separately, because its payload is chained"),
            Self::PubAck(ack) | Self::PubRec(ack) | Self::PubRel(ack) | Self::PubComp(ack) => {
                ack.encode(version, out);
            }
            Self::Subscribe(packet) => packet.encode(version, out),
            Self::SubAck(packet) => packet.encode(version, out),
            Self::Unsubscribe(packet) => packet.encode(version, out),
            Self::UnsubAck(packet) => packet.encode(version, out),
            Self::PingReq | Self::PingResp => {}
            Self::Disconnect(packet) => packet.encode(version, out),
            Self::Auth(packet) => packet.encode(out),
        }
    }

    fn check_lengths(&self, version: Version) -> Result<()> {
        let short = |text: &[u8]| text.len() <= usize::from(u16::MAX);
        let fit = match self {
            Self::Connect(packet) => packet.fits(),
            Self::Publish(packet) => short(packet.topic.as_bytes()) && packet.properties.fit(),
            Self::ConnAck(packet) => packet.properties.fit(),
            Self::PubAck(ack) | Self::PubRec(ack) | Self::PubRel(ack) | Self::PubComp(ack) => {
                ack.properties.fit()
            }
            Self::Subscribe(packet) => {
                packet.filters.iter().all(|(filter, _)| short(filter.as_bytes())) && packet.properties.fit()
            }
            Self::Unsubscribe(packet) => {
                packet.filters.iter().all(|filter| short(filter.as_bytes())) && packet.properties.fit()
            }
            Self::SubAck(SubAck { properties, .. })
            | Self::UnsubAck(UnsubAck { properties, .. })
            | Self::Disconnect(Disconnect { properties, .. })
            | Self::Auth(Auth { properties, .. }) => properties.fit(),
            Self::PingReq | Self::PingResp => true,
        };
        if !fit {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{:?} has a string or binary value longer than 65,535 bytes", self.kind()),
            ));
        }
        let length = self.remaining_length(version);
        if length > MAX_REMAINING_LENGTH {
            return Err(Error::new(
                ErrorKind::MessageTooLarge,
                format!("{:?} has {length} bytes; MQTT allows at most {MAX_REMAINING_LENGTH}", self.kind()),
            ));
        }
        Ok(())
    }
}

/// Input of the field decoders.
struct Fields<'a> {
    reader: Reader<'a>,
    body: &'a Bytes,
    version: Version,
    sender: Sender,
    kind: Kind,
}

impl Fields<'_> {
    fn text(&mut self) -> Result<ByteString, Violation> {
        read_text(&mut self.reader, self.body)
    }

    fn binary(&mut self) -> Result<Bytes, Violation> {
        read_binary(&mut self.reader, self.body)
    }

    fn packet_id(&mut self) -> Result<PacketId, Violation> {
        PacketId::new(self.reader.u16()?)
            .ok_or_else(|| Violation::protocol(format!("{:?} has packet identifier 0 (2.2.1)", self.kind)))
    }

    /// Decodes the properties of an MQTT 5 packet; empty in MQTT 3.
    fn properties(&mut self) -> Result<Properties, Violation> {
        match self.version {
            Version::V5 => self.properties_of(Place::Packet(self.kind)),
            Version::V3_1 | Version::V3_1_1 => Ok(Properties::new()),
        }
    }

    fn properties_of(&mut self, place: Place) -> Result<Properties, Violation> {
        Properties::decode(&mut self.reader, self.body, place, self.sender)
    }

    fn reason(&mut self) -> Result<Reason, Violation> {
        let code = self.reader.u8()?;
        Reason::from_code(code).filter(|reason| reason.allowed_in(self.kind)).ok_or_else(|| {
            Violation::protocol(format!(
                "{:?} has reason code 0x{code:02X}, which is not allowed in it (2.4)",
                self.kind
            ))
        })
    }
}

/// Encoded size of the properties in `version`.
fn properties_len(properties: &Properties, version: Version) -> usize {
    if version == Version::V5 { properties.encoded_len() } else { 0 }
}

fn put_properties(properties: &Properties, version: Version, out: &mut BytesMut) {
    if version == Version::V5 {
        properties.encode(out);
    }
}

/// Validates the topic of a published message: non-empty, without wildcards [MQTT-3.3.2-2].
fn check_published_topic(topic: &str) -> Result<(), Violation> {
    check_name(topic)
        .map_err(|error| Violation { reason: Reason::TopicNameInvalid, message: error.message().into() })
}
