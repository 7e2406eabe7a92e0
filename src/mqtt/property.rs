//! The properties of 5.0 (2.2.2): what each is, and which packet of which side may carry it.

use bytes::{BufMut, Bytes, BytesMut};
use bytestring::ByteString;

use crate::mqtt::frame::{put_varint, read_varint, varint_len};
use crate::mqtt::packet::{Kind, read_binary, read_text};
use crate::mqtt::{Sender, Violation};
use crate::wire::Reader;

/// Where properties stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the variable header of a packet.
    Packet(Kind),
    /// Before the will's topic, in the payload of CONNECT.
    Will,
}

macro_rules! properties {
    ($($(#[doc = $doc:literal])+ $name:ident, $getter:ident, $id:literal, $type:tt;)+) => {
        /// One property.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Property {
            $($(#[doc = $doc])+ $name(properties!(@type $type)),)+
            /// A name and a value, of the user's own. May be given more than once.
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
                    _ => return Err(Violation::malformed(format!("there is no property 0x{id:02X}"))),
                })
            }

            /// Whether no string or binary of it is longer than 65,535 bytes.
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
            value => return Err(Violation::protocol(format!("a property of 0 or 1 is {value}"))),
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
    /// What the payload is, by the user's convention.
    ContentType, content_type, 0x03, text;
    /// Where a response is expected.
    ResponseTopic, response_topic, 0x08, text;
    /// What tells one response from another.
    CorrelationData, correlation_data, 0x09, binary;
    /// Number of a subscription, 1 to 268,435,455. A PUBLISH may carry several.
    SubscriptionIdentifier, subscription_identifier, 0x0B, varint;
    /// How long the session outlives the connection, in seconds; `u32::MAX` is for ever.
    SessionExpiryInterval, session_expiry_interval, 0x11, u32;
    /// The client identifier that the server chose.
    AssignedClientIdentifier, assigned_client_identifier, 0x12, text;
    /// The keep-alive that the server wants, in seconds.
    ServerKeepAlive, server_keep_alive, 0x13, u16;
    /// Name of the method of extended authentication.
    AuthenticationMethod, authentication_method, 0x15, text;
    /// What that method sends.
    AuthenticationData, authentication_data, 0x16, binary;
    /// Whether reason strings and user properties are wanted in answers.
    RequestProblemInformation, request_problem_information, 0x17, flag;
    /// Seconds between the end of the connection and the will.
    WillDelayInterval, will_delay_interval, 0x18, u32;
    /// Whether response information is wanted.
    RequestResponseInformation, request_response_information, 0x19, flag;
    /// Start of the topics that responses may use.
    ResponseInformation, response_information, 0x1A, text;
    /// Another server to use.
    ServerReference, server_reference, 0x1C, text;
    /// The reason in words.
    ReasonString, reason_string, 0x1F, text;
    /// Most publications of QoS 1 and 2 at a time; absent means 65,535.
    ReceiveMaximum, receive_maximum, 0x21, u16;
    /// Highest topic alias; absent means none.
    TopicAliasMaximum, topic_alias_maximum, 0x22, u16;
    /// A number in place of the topic.
    TopicAlias, topic_alias, 0x23, u16;
    /// Highest QoS, 0 or 1; absent means 2.
    MaximumQoS, maximum_qos, 0x24, flag;
    /// Whether the server retains; absent means yes.
    RetainAvailable, retain_available, 0x25, flag;
    /// Largest packet in bytes; absent means no limit.
    MaximumPacketSize, maximum_packet_size, 0x27, u32;
    /// Whether filters may have wildcards; absent means yes.
    WildcardSubscriptionAvailable, wildcard_subscription_available, 0x28, flag;
    /// Whether subscriptions may have identifiers; absent means yes.
    SubscriptionIdentifierAvailable, subscription_identifier_available, 0x29, flag;
    /// Whether subscriptions may be shared; absent means yes.
    SharedSubscriptionAvailable, shared_subscription_available, 0x2A, flag;
}

/// Properties in the order they were sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Properties(Vec<Property>);

impl Properties {
    /// No properties; allocates nothing.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Property> {
        self.0.iter()
    }

    /// Adds one behind the others.
    pub fn push(&mut self, property: Property) {
        self.0.push(property);
    }

    /// The same with one more.
    #[must_use]
    pub fn with(mut self, property: Property) -> Self {
        self.0.push(property);
        self
    }

    /// Keeps those that `keep` says true of.
    pub fn retain(&mut self, keep: impl FnMut(&Property) -> bool) {
        self.0.retain(keep);
    }

    /// The user's own properties, in order.
    pub fn user(&self) -> impl Iterator<Item = (&ByteString, &ByteString)> {
        self.0.iter().filter_map(|property| match property {
            Property::User(name, value) => Some((name, value)),
            _ => None,
        })
    }

    /// Every subscription identifier of a PUBLISH, in order.
    pub fn subscription_identifiers(&self) -> impl Iterator<Item = u32> {
        self.0.iter().filter_map(|property| match property {
            Property::SubscriptionIdentifier(id) => Some(*id),
            _ => None,
        })
    }

    /// Number of bytes of the properties without their length.
    pub(crate) fn body_len(&self) -> usize {
        self.0.iter().map(Property::encoded_len).sum()
    }

    /// Number of bytes with the length before them.
    pub(crate) fn encoded_len(&self) -> usize {
        if self.0.is_empty() {
            return 1;
        }
        let body = self.body_len();
        varint_len(body) + body
    }

    /// Whether each string and binary is short enough for its length field.
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

    /// Reads a length and as many properties, all of which `place` may carry when `sender` sends it.
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
            .map_err(|_| Violation::malformed("the properties are longer than their packet"))?;
        let mut reader = Reader::new(block);
        let mut properties = Self::new();
        let mut seen = 0_u64;
        while !reader.is_empty() {
            // Identifiers are variable byte integers, all of one byte so far.
            let id = u8::try_from(read_varint(&mut reader)?)
                .map_err(|_| Violation::malformed("there is no property above 0xFF"))?;
            let property = Property::decode(id, &mut reader, body)?;
            if !allowed(id, place, sender) {
                return Err(Violation::protocol(format!("property 0x{id:02X} may not stand in {place:?}")));
            }
            let repeatable =
                id == USER || id == SUBSCRIPTION_IDENTIFIER && place == Place::Packet(Kind::Publish);
            if seen & 1 << id != 0 && !repeatable {
                return Err(Violation::protocol(format!("property 0x{id:02X} is given twice")));
            }
            seen |= 1 << id;
            check_range(&property)?;
            properties.0.push(property);
        }
        if seen & 1 << 0x16 != 0 && seen & 1 << 0x15 == 0 {
            return Err(Violation::protocol("authentication data without an authentication method"));
        }
        Ok(properties)
    }
}

impl FromIterator<Property> for Properties {
    fn from_iter<T: IntoIterator<Item = Property>>(properties: T) -> Self {
        Self(properties.into_iter().collect())
    }
}

/// Values that the standard calls a protocol error.
fn check_range(property: &Property) -> Result<(), Violation> {
    let zero = match property {
        Property::ReceiveMaximum(0) => "receive maximum",
        Property::MaximumPacketSize(0) => "maximum packet size",
        Property::SubscriptionIdentifier(0) => "subscription identifier",
        Property::TopicAlias(0) => {
            return Err(Violation {
                reason: crate::mqtt::Reason::TopicAliasInvalid,
                message: "a topic alias of 0".into(),
            });
        }
        Property::ResponseTopic(topic) if topic.contains(['+', '#']) => {
            return Err(Violation::protocol("a response topic with a wildcard"));
        }
        _ => return Ok(()),
    };
    Err(Violation::protocol(format!("a {zero} of 0")))
}

/// The table of 2.2.2.2, with the direction that it leaves to the text of each packet.
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
