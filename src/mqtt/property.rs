//! The properties of MQTT 5 (2.2.2): their types, and the packets and senders that may carry them.

use bytes::{BufMut, Bytes, BytesMut};
use bytestring::ByteString;

use crate::data::{put_varint, read_binary, read_text, read_varint, varint_len};
use crate::kind::Kind;
use crate::{Sender, Violation};
use forebay_base::wire::{Reader, UnexpectedEnd};

/// Position of properties within a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the variable header.
    Packet(Kind),
    /// In the payload of CONNECT, before the will topic.
    Will,
}

macro_rules! properties {
    ($($(#[doc = $doc:literal])+ $name:ident, $getter:ident, $id:literal, $type:tt;)+) => {
        /// A single property.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Property {
            $($(#[doc = $doc])+ $name(properties!(@type $type)),)+
            /// User property: a name and a value. May be repeated.
            User(ByteString, ByteString),
        }

        impl Property {
            /// Identifier on the wire.
            pub const fn id(&self) -> u8 {
                match self { $(Self::$name(_) => $id,)+ Self::User(..) => USER }
            }

            fn encoded_len(&self) -> usize {
                1 + match self {
                    $(Self::$name(value) => properties!(@len $type, value),)+
                    Self::User(name, value) => 4 + name.len() + value.len(),
                }
            }

            fn encode(&self, out: &mut BytesMut) {
                out.put_u8(self.id());
                match self {
                    $(Self::$name(value) => properties!(@put $type, out, value),)+
                    Self::User(name, value) => {
                        put_block(out, name.as_bytes());
                        put_block(out, value.as_bytes());
                    }
                }
            }

            fn decode(id: u8, reader: &mut Reader<'_>, body: &Bytes) -> Result<Self, Violation> {
                Ok(match id {
                    $($id => Self::$name(properties!(@read $type, reader, body)),)+
                    USER => Self::User(read_text(reader, body)?, read_text(reader, body)?),
                    _ => return Err(Violation::malformed(format!("the packet has the unknown property 0x{id:02X} (2.2.2)"))),
                })
            }

            /// Whether all its strings and binary values have at most 65,535 bytes.
            fn fits(&self) -> bool {
                let limit = usize::from(u16::MAX);
                match self {
                    $(Self::$name(value) => properties!(@size $type, value) <= limit,)+
                    Self::User(name, value) => name.len() <= limit && value.len() <= limit,
                }
            }
        }

        impl Properties {
            $($(#[doc = $doc])+
            pub fn $getter(&self) -> Option<&properties!(@type $type)> {
                self.0.iter().find_map(|property| match property {
                    Property::$name(value) => Some(value),
                    _ => None,
                })
            })+
        }
    };
    (@type flag) => { bool };
    (@type u16) => { u16 };
    (@type u32) => { u32 };
    (@type varint) => { u32 };
    (@type text) => { ByteString };
    (@type binary) => { Bytes };
    (@len flag, $value:ident) => {{ let _ = $value; 1 }};
    (@len u16, $value:ident) => {{ let _ = $value; 2 }};
    (@len u32, $value:ident) => {{ let _ = $value; 4 }};
    (@len varint, $value:ident) => { varint_len(*$value as usize) };
    (@len text, $value:ident) => { 2 + $value.len() };
    (@len binary, $value:ident) => { 2 + $value.len() };
    (@size text, $value:ident) => { $value.len() };
    (@size binary, $value:ident) => { $value.len() };
    (@size $other:tt, $value:ident) => {{ let _ = $value; 0 }};
    (@put flag, $out:ident, $value:ident) => { $out.put_u8(u8::from(*$value)) };
    (@put u16, $out:ident, $value:ident) => { $out.put_u16(*$value) };
    (@put u32, $out:ident, $value:ident) => { $out.put_u32(*$value) };
    (@put varint, $out:ident, $value:ident) => { put_varint($out, *$value as usize) };
    (@put text, $out:ident, $value:ident) => { put_block($out, $value.as_bytes()) };
    (@put binary, $out:ident, $value:ident) => { put_block($out, $value) };
    (@read flag, $reader:ident, $body:ident) => {
        match $reader.u8()? {
            0 => false,
            1 => true,
            value => return Err(Violation::protocol(format!("a property that must be 0 or 1 is {value} (2.2.2)"))),
        }
    };
    (@read u16, $reader:ident, $body:ident) => { $reader.u16()? };
    (@read u32, $reader:ident, $body:ident) => { $reader.u32()? };
    (@read varint, $reader:ident, $body:ident) => { read_varint($reader)? };
    (@read text, $reader:ident, $body:ident) => { read_text($reader, $body)? };
    (@read binary, $reader:ident, $body:ident) => { read_binary($reader, $body)? };
}

const USER: u8 = 0x26;
const SUBSCRIPTION_IDENTIFIER: u8 = 0x0B;

properties! {
    /// Whether the payload is UTF-8 text.
    PayloadFormatIndicator, payload_format_indicator, 0x01, flag;
    /// Lifetime of the message in seconds.
    MessageExpiryInterval, message_expiry_interval, 0x02, u32;
    /// Content type of the payload, defined by the application.
    ContentType, content_type, 0x03, text;
    /// Topic for a response.
    ResponseTopic, response_topic, 0x08, text;
    /// Correlation data that links a response to its request.
    CorrelationData, correlation_data, 0x09, binary;
    /// Subscription identifier, 1 to 268,435,455. A PUBLISH may carry several.
    SubscriptionIdentifier, subscription_identifier, 0x0B, varint;
    /// Time in seconds that the session outlives the connection; `u32::MAX` for no expiry.
    SessionExpiryInterval, session_expiry_interval, 0x11, u32;
    /// Client identifier assigned by the server.
    AssignedClientIdentifier, assigned_client_identifier, 0x12, text;
    /// Keep-alive in seconds imposed by the server.
    ServerKeepAlive, server_keep_alive, 0x13, u16;
    /// Method of extended authentication.
    AuthenticationMethod, authentication_method, 0x15, text;
    /// Data of the authentication method.
    AuthenticationData, authentication_data, 0x16, binary;
    /// Whether answers may carry reason strings and user properties.
    RequestProblemInformation, request_problem_information, 0x17, flag;
    /// Delay in seconds between the end of the connection and the publication of the will.
    WillDelayInterval, will_delay_interval, 0x18, u32;
    /// Whether the client requests response information.
    RequestResponseInformation, request_response_information, 0x19, flag;
    /// Prefix of the topics that responses may use.
    ResponseInformation, response_information, 0x1A, text;
    /// Another server that the client should use.
    ServerReference, server_reference, 0x1C, text;
    /// Human-readable reason.
    ReasonString, reason_string, 0x1F, text;
    /// Maximum number of unacknowledged QoS 1 and 2 publications; 65,535 if absent.
    ReceiveMaximum, receive_maximum, 0x21, u16;
    /// Highest topic alias; none if absent.
    TopicAliasMaximum, topic_alias_maximum, 0x22, u16;
    /// Number that replaces the topic.
    TopicAlias, topic_alias, 0x23, u16;
    /// Highest QoS, 0 or 1; 2 if absent.
    MaximumQoS, maximum_qos, 0x24, flag;
    /// Whether the server supports retained messages; true if absent.
    RetainAvailable, retain_available, 0x25, flag;
    /// Maximum packet size in bytes; unlimited if absent.
    MaximumPacketSize, maximum_packet_size, 0x27, u32;
    /// Whether filters may contain wildcards; true if absent.
    WildcardSubscriptionAvailable, wildcard_subscription_available, 0x28, flag;
    /// Whether subscriptions may have identifiers; true if absent.
    SubscriptionIdentifierAvailable, subscription_identifier_available, 0x29, flag;
    /// Whether shared subscriptions are supported; true if absent.
    SharedSubscriptionAvailable, shared_subscription_available, 0x2A, flag;
}

/// Properties in the order in which they were sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Properties(Vec<Property>);

impl Properties {
    /// Creates an empty list, without allocating.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All properties, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Property> {
        self.0.iter()
    }

    /// Appends a property.
    pub fn push(&mut self, property: Property) {
        self.0.push(property);
    }

    /// Appends a property and returns the list.
    #[must_use]
    pub fn with(mut self, property: Property) -> Self {
        self.0.push(property);
        self
    }

    /// Keeps only the properties for which `keep` returns true.
    pub fn retain(&mut self, keep: impl FnMut(&Property) -> bool) {
        self.0.retain(keep);
    }

    /// User properties, in order.
    pub fn user(&self) -> impl Iterator<Item = (&ByteString, &ByteString)> {
        self.0.iter().filter_map(|property| match property {
            Property::User(name, value) => Some((name, value)),
            _ => None,
        })
    }

    /// All subscription identifiers of a PUBLISH, in order.
    pub fn subscription_identifiers(&self) -> impl Iterator<Item = u32> {
        self.0.iter().filter_map(|property| match property {
            Property::SubscriptionIdentifier(id) => Some(*id),
            _ => None,
        })
    }

    /// Memory that they take, in bytes: more than their encoded size, since most are short.
    pub fn weight(&self) -> usize {
        self.0.len() * size_of::<Property>() + self.body_len()
    }

    /// Encoded size in bytes, without the length prefix.
    pub(crate) fn body_len(&self) -> usize {
        self.0.iter().map(Property::encoded_len).sum()
    }

    /// Encoded size in bytes, including the length prefix.
    pub(crate) fn encoded_len(&self) -> usize {
        if self.0.is_empty() {
            return 1;
        }
        let body = self.body_len();
        varint_len(body) + body
    }

    /// Whether all strings and binary values fit their length fields.
    pub(crate) fn fit(&self) -> bool {
        self.0.iter().all(Property::fits)
    }

    /// Appends the length and the properties.
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        put_varint(out, self.body_len());
        for property in &self.0 {
            property.encode(out);
        }
    }

    /// Decodes properties, and rejects any that `sender` must not send in `place`.
    pub(crate) fn decode(
        reader: &mut Reader<'_>,
        body: &Bytes,
        place: Place,
        sender: Sender,
    ) -> Result<Self, Violation> {
        let length = read_varint(reader)? as usize;
        if length == 0 {
            return Ok(Self::new());
        }
        let block = reader
            .take(length)
            .map_err(|_| Violation::malformed("the property length exceeds the packet (2.2.2.1)"))?;
        let mut reader = Reader::new(block);
        let mut properties = Self::new();
        let mut seen = 0_u64;
        while !reader.is_empty() {
            // Identifiers are variable byte integers; all defined ones fit in one byte.
            let id = u8::try_from(read_varint(&mut reader)?)
                .map_err(|_| Violation::malformed("the packet has an unknown property above 0xFF (2.2.2)"))?;
            if id == USER && properties.0.len() == properties.0.capacity() {
                // A packet full of user properties: room for all, and for none that did not come.
                // Growing step by step would take three times as much.
                let run = user_properties(reader) + 1;
                if run > properties.0.len().max(16) {
                    properties.0.reserve_exact(run);
                }
            }
            let property = Property::decode(id, &mut reader, body)?;
            if !allowed(id, place, sender) {
                return Err(Violation::protocol(format!(
                    "property 0x{id:02X} is not allowed in {place:?} from a {sender:?} (2.2.2.2)"
                )));
            }
            let repeatable =
                id == USER || id == SUBSCRIPTION_IDENTIFIER && place == Place::Packet(Kind::Publish);
            if seen & 1 << id != 0 && !repeatable {
                return Err(Violation::protocol(format!("property 0x{id:02X} occurs twice (2.2.2.2)")));
            }
            seen |= 1 << id;
            check_range(&property, sender)?;
            properties.0.push(property);
        }
        if seen & 1 << 0x16 != 0 && seen & 1 << 0x15 == 0 {
            return Err(Violation::protocol(
                "the packet has authentication data without an authentication method (4.12)",
            ));
        }
        Ok(properties)
    }
}

impl FromIterator<Property> for Properties {
    fn from_iter<T: IntoIterator<Item = Property>>(properties: T) -> Self {
        Self(properties.into_iter().collect())
    }
}

/// Number of further user properties after the name and value at the head of `reader`, up to one of
/// another kind.
fn user_properties(mut reader: Reader<'_>) -> usize {
    let mut skip = || -> Result<u8, UnexpectedEnd> {
        for _ in 0..2 {
            let length = reader.u16()?;
            reader.take(usize::from(length))?;
        }
        reader.u8()
    };
    std::iter::from_fn(|| skip().ok().filter(|id| *id == USER)).count()
}

/// Rejects values that the standard defines as protocol errors.
fn check_range(property: &Property, sender: Sender) -> Result<(), Violation> {
    let zero = match property {
        Property::ReceiveMaximum(0) => "receive maximum",
        Property::MaximumPacketSize(0) => "maximum packet size",
        Property::SubscriptionIdentifier(0) => "subscription identifier",
        Property::TopicAlias(0) => {
            return Err(Violation {
                reason: crate::Reason::TopicAliasInvalid,
                message: "the topic alias is 0 (3.3.2.3.4)".into(),
            });
        }
        Property::ResponseTopic(topic) if topic.contains(['+', '#']) => {
            return Err(Violation::protocol("the response topic contains a wildcard (3.3.2.3.5)"));
        }
        // A server may have passed on what another client sent.
        Property::ResponseTopic(topic) if topic.is_empty() && sender == Sender::Client => {
            return Err(Violation::protocol("the response topic is empty (3.3.2.3.5)"));
        }
        _ => return Ok(()),
    };
    Err(Violation::protocol(format!("the {zero} is 0, which is not allowed (2.2.2.2)")))
}

/// The table in 2.2.2.2, refined by the direction that the text on each packet specifies.
fn allowed(id: u8, place: Place, sender: Sender) -> bool {
    use Kind as K;
    let Place::Packet(kind) = place else {
        return matches!(id, 0x01 | 0x02 | 0x03 | 0x08 | 0x09 | 0x18 | USER);
    };
    match id {
        USER => !matches!(kind, K::PingReq | K::PingResp),
        0x01 | 0x02 | 0x03 | 0x08 | 0x09 | 0x23 => kind == K::Publish,
        SUBSCRIPTION_IDENTIFIER => kind == K::Subscribe || kind == K::Publish && sender == Sender::Server,
        0x11 => matches!(kind, K::Connect | K::ConnAck) || kind == K::Disconnect && sender == Sender::Client,
        0x12 | 0x13 | 0x1A | 0x24 | 0x25 | 0x28 | 0x29 | 0x2A => kind == K::ConnAck,
        0x15 | 0x16 => matches!(kind, K::Connect | K::ConnAck | K::Auth),
        0x17 | 0x19 => kind == K::Connect,
        0x1C => kind == K::ConnAck || kind == K::Disconnect && sender == Sender::Server,
        0x1F => !matches!(
            kind,
            K::Connect | K::Publish | K::Subscribe | K::Unsubscribe | K::PingReq | K::PingResp
        ),
        0x21 | 0x22 | 0x27 => matches!(kind, K::Connect | K::ConnAck),
        _ => false,
    }
}

fn put_block(out: &mut BytesMut, block: &[u8]) {
    out.put_u16(block.len() as u16);
    out.put_slice(block);
}
