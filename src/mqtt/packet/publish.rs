//! PUBLISH and its answers (3.3 to 3.7).

use bytes::{BufMut, Bytes, BytesMut};
use bytestring::ByteString;

use super::{Fields, Kind, PacketId, check_published_topic, properties_len, put_binary, put_properties};
use crate::mqtt::frame::{publish_flags, put_header};
use crate::mqtt::{Properties, QoS, Reason, Version, Violation};
use crate::transmit::Transmit;

/// A message on its way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publish {
    /// Sent before.
    pub dup: bool,
    /// Quality of service.
    pub qos: QoS,
    /// To be retained, or sent because it was.
    pub retain: bool,
    /// Where to; empty when a topic alias stands for it.
    pub topic: ByteString,
    /// Given when it enters the window; `None` with QoS 0.
    pub packet_id: Option<PacketId>,
    /// Properties of 5.0.
    pub properties: Properties,
    /// The message.
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
                Violation::protocol("PUBLISH with neither topic nor topic alias")
            } else {
                Violation::malformed("PUBLISH without a topic")
            });
        }
        let payload = fields.body.slice_ref(fields.reader.rest());
        Ok(Self { dup, qos, retain: first & 1 != 0, topic, packet_id, properties, payload })
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
    /// Of the PUBLISH.
    pub packet_id: PacketId,
    /// How it went; always success in 3.x.
    pub reason: Reason,
    /// Properties of 5.0.
    pub properties: Properties,
}

impl Ack {
    /// Success.
    pub const fn new(packet_id: PacketId) -> Self {
        Self::with_reason(packet_id, Reason::Success)
    }

    /// With a reason and no properties.
    pub const fn with_reason(packet_id: PacketId, reason: Reason) -> Self {
        Self { packet_id, reason, properties: Properties::new() }
    }

    /// Two bytes mean success; three a reason without properties.
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

/// Length of an optional reason and optional properties behind it.
pub(super) fn outcome_len(reason: Reason, properties: &Properties, version: Version) -> usize {
    match (version, properties.is_empty()) {
        (Version::V5, false) => 1 + properties.encoded_len(),
        (Version::V5, true) if reason != Reason::Success => 1,
        _ => 0,
    }
}

/// Appends a reason and properties, each only if it says something.
pub(super) fn put_outcome(reason: Reason, properties: &Properties, version: Version, out: &mut BytesMut) {
    let length = outcome_len(reason, properties, version);
    if length > 0 {
        out.put_u8(reason.code());
    }
    if length > 1 {
        properties.encode(out);
    }
}
