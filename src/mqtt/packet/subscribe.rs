//! SUBSCRIBE, UNSUBSCRIBE and their answers (3.8 to 3.11).

use bytes::{BufMut, BytesMut};
use bytestring::ByteString;

use super::{Fields, PacketId, properties_len, put_properties};
use crate::data::put_binary;
use crate::topic::Filter;
use crate::{Properties, QoS, Reason, Version, Violation};

/// Condition for sending retained messages to a new subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RetainHandling {
    /// 0: on every SUBSCRIBE.
    #[default]
    Always,
    /// 1: only if the subscription did not exist.
    IfNew,
    /// 2: never.
    Never,
}

/// Options of a filter in SUBSCRIBE (3.8.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubscribeOptions {
    /// Maximum QoS of delivered messages.
    pub qos: QoS,
    /// Excludes messages that this client published itself. MQTT 5 only, like the following
    /// options.
    pub no_local: bool,
    /// Whether delivered messages keep the RETAIN flag that they were published with.
    pub retain_as_published: bool,
    /// Condition for sending retained messages.
    pub retain_handling: RetainHandling,
}

impl SubscribeOptions {
    /// Creates options with a QoS only, which is all that MQTT 3 supports.
    pub const fn qos(qos: QoS) -> Self {
        Self { qos, no_local: false, retain_as_published: false, retain_handling: RetainHandling::Always }
    }

    /// Encodes the options as a byte.
    pub const fn to_byte(self, version: Version) -> u8 {
        let qos = self.qos as u8;
        match version {
            Version::V3_1 | Version::V3_1_1 => qos,
            Version::V5 => {
                qos | (self.no_local as u8) << 2
                    | (self.retain_as_published as u8) << 3
                    | (self.retain_handling as u8) << 4
            }
        }
    }

    /// Decodes the options from a byte; reserved bits must be zero.
    pub fn from_byte(byte: u8, version: Version) -> Result<Self, Violation> {
        let reserved = if version == Version::V5 { 0b1100_0000 } else { 0b1111_1100 };
        if byte & reserved != 0 {
            return Err(Violation::malformed(format!(
                "the subscription options {byte:08b} have a reserved bit set (3.8.3.1)"
            )));
        }
        let qos = QoS::from_bits(byte & 3)
            .ok_or_else(|| Violation::malformed("the subscription options have QoS 3 (3.8.3.1)"))?;
        let retain_handling = match byte >> 4 {
            0 => RetainHandling::Always,
            1 => RetainHandling::IfNew,
            2 => RetainHandling::Never,
            _ => {
                return Err(Violation::protocol("the subscription options have retain handling 3 (3.8.3.1)"));
            }
        };
        Ok(Self {
            qos,
            no_local: byte & 0b100 != 0,
            retain_as_published: byte & 0b1000 != 0,
            retain_handling,
        })
    }
}

/// SUBSCRIBE: requests subscriptions. The filters are not validated; the receiver rejects an
/// invalid one with a reason in SUBACK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe {
    /// Packet identifier of the answer.
    pub packet_id: PacketId,
    /// Properties (MQTT 5).
    pub properties: Properties,
    /// Filters and their options; at least one.
    pub filters: Vec<(ByteString, SubscribeOptions)>,
}

impl Subscribe {
    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self, Violation> {
        let packet_id = fields.packet_id()?;
        let properties = fields.properties()?;
        let mut filters = Vec::new();
        while !fields.reader.is_empty() {
            let filter = fields.text()?;
            let options = SubscribeOptions::from_byte(fields.reader.u8()?, fields.version)?;
            let shared = Filter::parse(filter.clone()).is_ok_and(|filter| filter.group().is_some());
            if options.no_local && shared {
                return Err(Violation::protocol(
                    "a shared subscription has the No Local option set (3.8.3.1)",
                ));
            }
            filters.push((filter, options));
        }
        if filters.is_empty() {
            return Err(Violation::protocol("SUBSCRIBE has no topic filter (3.8.3)"));
        }
        Ok(Self { packet_id, properties, filters })
    }

    pub(super) fn remaining_length(&self, version: Version) -> usize {
        let filters: usize = self.filters.iter().map(|(filter, _)| 3 + filter.len()).sum();
        2 + properties_len(&self.properties, version) + filters
    }

    pub(super) fn encode(&self, version: Version, out: &mut BytesMut) {
        out.put_u16(self.packet_id.get());
        put_properties(&self.properties, version, out);
        for (filter, options) in &self.filters {
            put_binary(out, filter.as_bytes());
            out.put_u8(options.to_byte(version));
        }
    }
}

/// SUBACK: answers SUBSCRIBE with one reason per filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubAck {
    /// Packet identifier of the SUBSCRIBE.
    pub packet_id: PacketId,
    /// Properties (MQTT 5).
    pub properties: Properties,
    /// Reasons, in the order of the filters.
    pub reasons: Vec<Reason>,
}

impl SubAck {
    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self, Violation> {
        let packet_id = fields.packet_id()?;
        let properties = fields.properties()?;
        let mut reasons = Vec::new();
        while !fields.reader.is_empty() {
            let reason = fields.reason()?;
            if fields.version != Version::V5 && reason.is_error() && reason != Reason::Unspecified {
                return Err(Violation::malformed(format!(
                    "SUBACK has the unknown return code {} (3.9.3)",
                    reason.code()
                )));
            }
            reasons.push(reason);
        }
        Ok(Self { packet_id, properties, reasons })
    }

    pub(super) fn remaining_length(&self, version: Version) -> usize {
        2 + properties_len(&self.properties, version) + self.reasons.len()
    }

    pub(super) fn encode(&self, version: Version, out: &mut BytesMut) {
        out.put_u16(self.packet_id.get());
        put_properties(&self.properties, version, out);
        out.extend(self.reasons.iter().map(|reason| reason.suback_code(version)));
    }
}

/// UNSUBSCRIBE: removes subscriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsubscribe {
    /// Packet identifier of the answer.
    pub packet_id: PacketId,
    /// Properties (MQTT 5).
    pub properties: Properties,
    /// Filters; at least one.
    pub filters: Vec<ByteString>,
}

impl Unsubscribe {
    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self, Violation> {
        let packet_id = fields.packet_id()?;
        let properties = fields.properties()?;
        let mut filters = Vec::new();
        while !fields.reader.is_empty() {
            filters.push(fields.text()?);
        }
        if filters.is_empty() {
            return Err(Violation::protocol("UNSUBSCRIBE has no topic filter (3.10.3)"));
        }
        Ok(Self { packet_id, properties, filters })
    }

    pub(super) fn remaining_length(&self, version: Version) -> usize {
        let filters: usize = self.filters.iter().map(|filter| 2 + filter.len()).sum();
        2 + properties_len(&self.properties, version) + filters
    }

    pub(super) fn encode(&self, version: Version, out: &mut BytesMut) {
        out.put_u16(self.packet_id.get());
        put_properties(&self.properties, version, out);
        for filter in &self.filters {
            put_binary(out, filter.as_bytes());
        }
    }
}

/// UNSUBACK: answers UNSUBSCRIBE, with one reason per filter in MQTT 5 and none in MQTT 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsubAck {
    /// Packet identifier of the UNSUBSCRIBE.
    pub packet_id: PacketId,
    /// Properties (MQTT 5).
    pub properties: Properties,
    /// Reasons, in the order of the filters; empty in MQTT 3.
    pub reasons: Vec<Reason>,
}

impl UnsubAck {
    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self, Violation> {
        let packet_id = fields.packet_id()?;
        let properties = fields.properties()?;
        let mut reasons = Vec::new();
        while fields.version == Version::V5 && !fields.reader.is_empty() {
            reasons.push(fields.reason()?);
        }
        Ok(Self { packet_id, properties, reasons })
    }

    pub(super) fn remaining_length(&self, version: Version) -> usize {
        let reasons = if version == Version::V5 { self.reasons.len() } else { 0 };
        2 + properties_len(&self.properties, version) + reasons
    }

    pub(super) fn encode(&self, version: Version, out: &mut BytesMut) {
        out.put_u16(self.packet_id.get());
        put_properties(&self.properties, version, out);
        if version == Version::V5 {
            out.extend(self.reasons.iter().map(|reason| reason.code()));
        }
    }
}
