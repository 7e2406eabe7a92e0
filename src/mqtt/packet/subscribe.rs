//! SUBSCRIBE, UNSUBSCRIBE and their answers (3.8 to 3.11).

use bytes::{BufMut, BytesMut};
use bytestring::ByteString;

use super::{Fields, PacketId, properties_len, put_binary, put_properties};
use crate::mqtt::topic::Filter;
use crate::mqtt::{Properties, QoS, Reason, Version, Violation};

/// When retained messages are sent for a new subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RetainHandling {
    /// 0: at each SUBSCRIBE.
    #[default]
    Always,
    /// 1: when there was no such subscription.
    IfNew,
    /// 2: never.
    Never,
}

/// Options of one filter of a SUBSCRIBE (3.8.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubscribeOptions {
    /// Highest QoS of what is delivered.
    pub qos: QoS,
    /// Not what this client published itself. 5.0 only, as what follows.
    pub no_local: bool,
    /// Whether RETAIN is kept as published.
    pub retain_as_published: bool,
    /// When retained messages are sent.
    pub retain_handling: RetainHandling,
}

impl SubscribeOptions {
    /// Only a QoS: what 3.x has.
    pub const fn qos(qos: QoS) -> Self {
        Self { qos, no_local: false, retain_as_published: false, retain_handling: RetainHandling::Always }
    }

    /// The byte on the wire.
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

    /// Reads the byte; reserved bits are an error.
    pub fn from_byte(byte: u8, version: Version) -> Result<Self, Violation> {
        let reserved = if version == Version::V5 { 0b1100_0000 } else { 0b1111_1100 };
        if byte & reserved != 0 {
            return Err(Violation::malformed(format!("subscription options {byte:08b} with a reserved bit")));
        }
        let qos =
            QoS::from_bits(byte & 3).ok_or_else(|| Violation::malformed("a subscription with QoS 3"))?;
        let retain_handling = match byte >> 4 {
            0 => RetainHandling::Always,
            1 => RetainHandling::IfNew,
            2 => RetainHandling::Never,
            _ => return Err(Violation::protocol("a subscription with retain handling 3")),
        };
        Ok(Self {
            qos,
            no_local: byte & 0b100 != 0,
            retain_as_published: byte & 0b1000 != 0,
            retain_handling,
        })
    }
}

/// Asks for subscriptions. The filters are as received: the receiver answers a bad one with a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe {
    /// Of the answer.
    pub packet_id: PacketId,
    /// Properties of 5.0.
    pub properties: Properties,
    /// At least one.
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
                return Err(Violation::protocol("no local on a shared subscription"));
            }
            filters.push((filter, options));
        }
        if filters.is_empty() {
            return Err(Violation::protocol("SUBSCRIBE without a filter"));
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

/// Answers a SUBSCRIBE, a reason for each filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubAck {
    /// Of the SUBSCRIBE.
    pub packet_id: PacketId,
    /// Properties of 5.0.
    pub properties: Properties,
    /// In the order of the filters.
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
                return Err(Violation::malformed(format!("SUBACK with return code {}", reason.code())));
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

/// Ends subscriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsubscribe {
    /// Of the answer.
    pub packet_id: PacketId,
    /// Properties of 5.0.
    pub properties: Properties,
    /// At least one.
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
            return Err(Violation::protocol("UNSUBSCRIBE without a filter"));
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

/// Answers an UNSUBSCRIBE, in 5.0 a reason for each filter, in 3.x none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsubAck {
    /// Of the UNSUBSCRIBE.
    pub packet_id: PacketId,
    /// Properties of 5.0.
    pub properties: Properties,
    /// In the order of the filters; empty in 3.x.
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
