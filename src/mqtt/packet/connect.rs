//! CONNECT, CONNACK, DISCONNECT and AUTH (3.1, 3.2, 3.14, 3.15).

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use bytestring::ByteString;

use super::publish::{outcome_len, put_outcome};
use super::{Fields, Place, check_published_topic, properties_len, put_properties};
use crate::data::put_binary;
use crate::{Properties, QoS, Reason, Sender, Version, Violation};

const CLEAN_START: u8 = 1 << 1;
const WILL: u8 = 1 << 2;
const WILL_RETAIN: u8 = 1 << 5;
const PASSWORD: u8 = 1 << 6;
const USER_NAME: u8 = 1 << 7;

/// CONNECT: opens a session.
#[derive(Clone, PartialEq, Eq)]
pub struct Connect {
    /// Protocol version for the connection.
    pub version: Version,
    /// Whether to discard an earlier session: Clean Session in MQTT 3, Clean Start in MQTT 5.
    pub clean_start: bool,
    /// Keep Alive in seconds (3.1.2.10); 0 disables it.
    pub keep_alive: u16,
    /// Properties (MQTT 5).
    pub properties: Properties,
    /// Client identifier; if empty, the server assigns one.
    pub client_id: ByteString,
    /// Message that the server publishes if the connection ends without DISCONNECT.
    pub will: Option<Will>,
    /// User name.
    pub user_name: Option<ByteString>,
    /// Password; omitted from debug output.
    pub password: Option<Bytes>,
}

/// Will message, published by the server on behalf of a client that has disconnected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Will {
    /// Quality of service.
    pub qos: QoS,
    /// Whether the will is published as a retained message.
    pub retain: bool,
    /// Properties (MQTT 5), including the will delay.
    pub properties: Properties,
    /// Topic to publish to.
    pub topic: ByteString,
    /// Payload.
    pub payload: Bytes,
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect")
            .field("version", &self.version)
            .field("clean_start", &self.clean_start)
            .field("keep_alive", &self.keep_alive)
            .field("client_id", &self.client_id)
            .field("will", &self.will)
            .field("user_name", &self.user_name)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .finish_non_exhaustive()
    }
}

impl Connect {
    /// Creates a CONNECT of `version` with a client identifier and defaults otherwise.
    pub fn new(version: Version, client_id: impl Into<ByteString>) -> Self {
        Self {
            version,
            clean_start: true,
            keep_alive: 0,
            properties: Properties::new(),
            client_id: client_id.into(),
            will: None,
            user_name: None,
            password: None,
        }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self, Violation> {
        let name = fields.binary()?;
        let level = fields.reader.u8()?;
        let version = match (&name[..], level) {
            (b"MQIsdp", 3) => Version::V3_1,
            (b"MQTT", 4) => Version::V3_1_1,
            (b"MQTT", 5) => Version::V5,
            (b"MQIsdp" | b"MQTT", _) => {
                return Err(Violation {
                    reason: Reason::UnsupportedProtocolVersion,
                    message: format!(
                        "CONNECT has protocol level {level}; 3, 4 and 5 are supported (3.1.2.2)"
                    ),
                });
            }
            _ => return Err(Violation::malformed("CONNECT has an unknown protocol name (3.1.2.1)")),
        };
        fields.version = version;
        let flags = fields.reader.u8()?;
        // 3.1 has no rule for the reserved bit.
        if flags & 1 != 0 && version != Version::V3_1 {
            return Err(Violation::malformed("CONNECT has its reserved flag set (3.1.2.3)"));
        }
        let keep_alive = fields.reader.u16()?;
        let properties = fields.properties()?;
        let client_id = fields.text()?;
        let will = Self::decode_will(flags, fields)?;
        // In 3.1 the remaining length overrides the flags: older clients set flags for fields that
        // they omit.
        let lenient = version == Version::V3_1;
        let missing = |fields: &Fields<'_>| lenient && fields.reader.is_empty();
        let user_name = if flags & USER_NAME != 0 && !missing(fields) { Some(fields.text()?) } else { None };
        if flags & PASSWORD != 0 && flags & USER_NAME == 0 && version != Version::V5 {
            return Err(Violation::malformed(
                "CONNECT has a password without a user name (MQTT 3.1.1, 3.1.2.9)",
            ));
        }
        let password = if flags & PASSWORD != 0 && !missing(fields) { Some(fields.binary()?) } else { None };
        let clean_start = flags & CLEAN_START != 0;
        Ok(Self { version, clean_start, keep_alive, properties, client_id, will, user_name, password })
    }

    fn decode_will(flags: u8, fields: &mut Fields<'_>) -> Result<Option<Will>, Violation> {
        let qos = QoS::from_bits(flags >> 3 & 3)
            .ok_or_else(|| Violation::malformed("CONNECT has a will with QoS 3 (3.1.2.6)"))?;
        let retain = flags & WILL_RETAIN != 0;
        if flags & WILL == 0 {
            if qos != QoS::AtMostOnce || retain {
                return Err(Violation::malformed(
                    "CONNECT has a will QoS or will retain flag without a will (3.1.2.6, 3.1.2.7)",
                ));
            }
            return Ok(None);
        }
        let properties = match fields.version {
            Version::V5 => fields.properties_of(Place::Will)?,
            Version::V3_1 | Version::V3_1_1 => Properties::new(),
        };
        let topic = fields.text()?;
        check_published_topic(&topic)?;
        let payload = fields.binary()?;
        Ok(Some(Will { qos, retain, properties, topic, payload }))
    }

    pub(super) fn fits(&self) -> bool {
        let short = |bytes: &[u8]| bytes.len() <= usize::from(u16::MAX);
        short(self.client_id.as_bytes())
            && self.properties.fit()
            && self.user_name.as_ref().is_none_or(|name| short(name.as_bytes()))
            && self.password.as_ref().is_none_or(|password| short(password))
            && self.will.as_ref().is_none_or(|will| {
                will.properties.fit() && short(will.topic.as_bytes()) && short(&will.payload)
            })
    }

    pub(super) fn remaining_length(&self) -> usize {
        let will = self.will.as_ref().map_or(0, |will| {
            properties_len(&will.properties, self.version) + 4 + will.topic.len() + will.payload.len()
        });
        2 + self.version.protocol_name().len()
            + 4
            + properties_len(&self.properties, self.version)
            + 2
            + self.client_id.len()
            + will
            + self.user_name.as_ref().map_or(0, |name| 2 + name.len())
            + self.password.as_ref().map_or(0, |password| 2 + password.len())
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        put_binary(out, self.version.protocol_name().as_bytes());
        out.put_u8(self.version.level());
        let mut flags = 0;
        if self.clean_start {
            flags |= CLEAN_START;
        }
        if let Some(will) = &self.will {
            flags |= WILL | (will.qos as u8) << 3;
            if will.retain {
                flags |= WILL_RETAIN;
            }
        }
        if self.password.is_some() {
            flags |= PASSWORD;
        }
        if self.user_name.is_some() {
            flags |= USER_NAME;
        }
        out.put_u8(flags);
        out.put_u16(self.keep_alive);
        put_properties(&self.properties, self.version, out);
        put_binary(out, self.client_id.as_bytes());
        if let Some(will) = &self.will {
            put_properties(&will.properties, self.version, out);
            put_binary(out, will.topic.as_bytes());
            put_binary(out, &will.payload);
        }
        if let Some(name) = &self.user_name {
            put_binary(out, name.as_bytes());
        }
        if let Some(password) = &self.password {
            put_binary(out, password);
        }
    }
}

/// CONNACK: answers CONNECT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnAck {
    /// Whether the server has a session for the client.
    pub session_present: bool,
    /// Result. A return code of MQTT 3 is converted to the corresponding reason.
    pub reason: Reason,
    /// Properties (MQTT 5).
    pub properties: Properties,
}

impl ConnAck {
    /// Creates a CONNACK with a reason and nothing else.
    pub const fn new(reason: Reason) -> Self {
        Self { session_present: false, reason, properties: Properties::new() }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self, Violation> {
        let flags = fields.reader.u8()?;
        // 3.1 reserves the whole byte and has no rule for its value.
        if flags & !1 != 0 && fields.version != Version::V3_1 {
            return Err(Violation::malformed("CONNACK has a reserved flag set (3.2.2.1)"));
        }
        let session_present = flags & 1 != 0 && fields.version != Version::V3_1;
        // A server without MQTT 5 answers in the form of MQTT 3: two bytes, code 1.
        let old_form = fields.version == Version::V5 && fields.reader.remaining() == 1;
        let reason = if fields.version != Version::V5 || old_form {
            let code = fields.reader.u8()?;
            Reason::from_return_code(code).ok_or_else(|| {
                Violation::malformed(format!(
                    "CONNACK has the unknown return code {code} (MQTT 3.1.1, 3.2.2.3)"
                ))
            })?
        } else {
            fields.reason()?
        };
        if old_form && reason == Reason::Success {
            return Err(Violation::malformed(
                "a successful CONNACK of MQTT 5 lacks the property length (3.2.2.3)",
            ));
        }
        let properties = if old_form { Properties::new() } else { fields.properties()? };
        if session_present && reason != Reason::Success {
            return Err(Violation::protocol(
                "CONNACK refuses the connection but has Session Present set (3.2.2.1.1)",
            ));
        }
        Ok(Self { session_present, reason, properties })
    }

    pub(super) fn remaining_length(&self, version: Version) -> usize {
        2 + properties_len(&self.properties, version)
    }

    pub(super) fn encode(&self, version: Version, out: &mut BytesMut) {
        out.put_u8(u8::from(self.session_present && version != Version::V3_1));
        match version {
            Version::V5 => out.put_u8(self.reason.code()),
            Version::V3_1 | Version::V3_1_1 => out.put_u8(self.reason.return_code()),
        }
        put_properties(&self.properties, version, out);
    }
}

/// DISCONNECT: ends the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// Reason; always success in MQTT 3.
    pub reason: Reason,
    /// Properties (MQTT 5).
    pub properties: Properties,
}

impl Disconnect {
    /// Creates a DISCONNECT with a reason and nothing else.
    pub const fn new(reason: Reason) -> Self {
        Self { reason, properties: Properties::new() }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self, Violation> {
        if fields.version != Version::V5 || fields.reader.is_empty() {
            return Ok(Self::new(Reason::Success));
        }
        let (reason, properties) = decode_outcome(fields)?;
        let client_only = reason == Reason::DisconnectWithWill;
        let server_only = matches!(
            reason,
            Reason::NotAuthorized
                | Reason::ServerBusy
                | Reason::ServerShuttingDown
                | Reason::KeepAliveTimeout
                | Reason::SessionTakenOver
                | Reason::TopicFilterInvalid
                | Reason::RetainNotSupported
                | Reason::QoSNotSupported
                | Reason::UseAnotherServer
                | Reason::ServerMoved
                | Reason::SharedSubscriptionsNotSupported
                | Reason::ConnectionRateExceeded
                | Reason::MaximumConnectTime
                | Reason::SubscriptionIdentifiersNotSupported
                | Reason::WildcardSubscriptionsNotSupported
        );
        if client_only && fields.sender == Sender::Server || server_only && fields.sender == Sender::Client {
            return Err(Violation::protocol(format!(
                "a {:?} must not send DISCONNECT with reason {reason} (3.14.2.1)",
                fields.sender
            )));
        }
        Ok(Self { reason, properties })
    }

    pub(super) fn remaining_length(&self, version: Version) -> usize {
        outcome_len(self.reason, &self.properties, version)
    }

    pub(super) fn encode(&self, version: Version, out: &mut BytesMut) {
        put_outcome(self.reason, &self.properties, version, out);
    }
}

/// AUTH: a step of extended authentication (MQTT 5 only).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// Continue authentication, re-authenticate, or success.
    pub reason: Reason,
    /// Properties, including the authentication method.
    pub properties: Properties,
}

impl Auth {
    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self, Violation> {
        if fields.reader.is_empty() {
            return Ok(Self { reason: Reason::Success, properties: Properties::new() });
        }
        let (reason, properties) = decode_outcome(fields)?;
        let wrong_side = match reason {
            Reason::Success => Sender::Client,
            Reason::ReAuthenticate => Sender::Server,
            _ => return Ok(Self { reason, properties }),
        };
        if fields.sender == wrong_side {
            return Err(Violation::protocol(format!(
                "a {wrong_side:?} must not send AUTH with reason {reason} (3.15.2.1)"
            )));
        }
        Ok(Self { reason, properties })
    }

    pub(super) fn remaining_length(&self) -> usize {
        outcome_len(self.reason, &self.properties, Version::V5)
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        put_outcome(self.reason, &self.properties, Version::V5, out);
    }
}

/// Decodes a reason, and properties if bytes remain.
fn decode_outcome(fields: &mut Fields<'_>) -> Result<(Reason, Properties), Violation> {
    let reason = fields.reason()?;
    let properties = if fields.reader.is_empty() { Properties::new() } else { fields.properties()? };
    Ok((reason, properties))
}
