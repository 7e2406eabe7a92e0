//! PUBLISH and its acknowledgements (3.3 to 3.7).

use bytes::{BufMut, Bytes, BytesMut};
use bytestring::ByteString;

use super::{Fields, PacketId, check_published_topic, properties_len, put_properties};
use crate::data::put_binary;
use crate::frame::{publish_flags, put_header};
use crate::kind::Kind;
use crate::{Properties, QoS, Reason, Version, Violation};
use forebay_base::transmit::Transmit;

/// PUBLISH: a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publish {
    /// Whether the packet is a retransmission.
    pub dup: bool,
    /// Quality of service.
    pub qos: QoS,
    /// To a server: retain the message. To a client: the message was retained.
    pub retain: bool,
    /// Topic; empty if a topic alias replaces it.
    pub topic: ByteString,
    /// Packet identifier, assigned when the message enters the window; `None` with QoS 0.
    pub packet_id: Option<PacketId>,
    /// Properties (MQTT 5).
    pub properties: Properties,
    /// Payload.
    pub payload: Bytes,
}

impl Publish {
    pub(super) fn decode(first: u8, mut fields: Fields<'_>) -> Result<Self, Violation> {
        let (qos, dup) = publish_flags(first)?;
        let topic = fields.text()?;
        let packet_id = if qos == QoS::AtMostOnce { None } else { Some(fields.packet_id()?) };
        let properties = fields.properties()?;
        if !topic.is_empty() {
            check_published_topic(&topic)?;
        } else if properties.topic_alias().is_none() {
            return Err(if fields.version == Version::V5 {
                Violation::protocol("PUBLISH has neither a topic nor a topic alias (3.3.2.1)")
            } else {
                Violation::malformed("PUBLISH has no topic (3.3.2.1)")
            });
        }
        let payload = fields.body.slice_ref(fields.reader.rest());
        Ok(Self { dup, qos, retain: first & 1 != 0, topic, packet_id, properties, payload })
    }

    /// Memory that it takes, in bytes.
    pub fn weight(&self) -> usize {
        self.payload.len() + self.topic.len() + self.properties.weight()
    }

    pub(super) fn remaining_length(&self, version: Version) -> usize {
        let id = if self.packet_id.is_some() { 2 } else { 0 };
        2 + self.topic.len() + id + properties_len(&self.properties, version) + self.payload.len()
    }

    pub(super) fn encode(&self, version: Version, length: usize, out: &mut Transmit) {
        debug_assert_eq!(self.packet_id.is_some(), self.qos != QoS::AtMostOnce);
        let flags = u8::from(self.dup) << 3 | (self.qos as u8) << 1 | u8::from(self.retain);
        out.append(|buffer| {
            put_header(buffer, Kind::Publish.first() | flags, length);
            put_binary(buffer, self.topic.as_bytes());
            if let Some(id) = self.packet_id {
                buffer.put_u16(id.get());
            }
            put_properties(&self.properties, version, buffer);
        });
        out.push(self.payload.clone());
    }
}

/// PUBACK, PUBREC, PUBREL or PUBCOMP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Packet identifier of the PUBLISH.
    pub packet_id: PacketId,
    /// Result; always success in MQTT 3.
    pub reason: Reason,
    /// Properties (MQTT 5).
    pub properties: Properties,
}

impl Ack {
    /// Creates an acknowledgement of success.
    pub const fn new(packet_id: PacketId) -> Self {
        Self::with_reason(packet_id, Reason::Success)
    }

    /// Creates an acknowledgement with a reason and no properties.
    pub const fn with_reason(packet_id: PacketId, reason: Reason) -> Self {
        Self { packet_id, reason, properties: Properties::new() }
    }

    /// Decodes an acknowledgement. Two bytes mean success; three mean a reason without properties.
    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self, Violation> {
        let packet_id = fields.packet_id()?;
        if fields.version != Version::V5 || fields.reader.is_empty() {
            return Ok(Self::new(packet_id));
        }
        let reason = fields.reason()?;
        let properties = if fields.reader.is_empty() { Properties::new() } else { fields.properties()? };
        Ok(Self { packet_id, reason, properties })
    }

    pub(super) fn remaining_length(&self, version: Version) -> usize {
        2 + outcome_len(self.reason, &self.properties, version)
    }

    pub(super) fn encode(&self, version: Version, out: &mut BytesMut) {
        out.put_u16(self.packet_id.get());
        put_outcome(self.reason, &self.properties, version, out);
    }
}

/// Encoded size of an optional reason followed by optional properties.
pub(super) fn outcome_len(reason: Reason, properties: &Properties, version: Version) -> usize {
    match (version, properties.is_empty()) {
        (Version::V5, false) => 1 + properties.encoded_len(),
        (Version::V5, true) if reason != Reason::Success => 1,
        _ => 0,
    }
}

/// Appends a reason and properties, omitting each if it has no content.
pub(super) fn put_outcome(reason: Reason, properties: &Properties, version: Version, out: &mut BytesMut) {
    let length = outcome_len(reason, properties, version);
    if length > 0 {
        out.put_u8(reason.code());
    }
    if length > 1 {
        properties.encode(out);
    }
}
