//! Tests of the codec: encoded packets decode to the same packets, and forbidden ones are rejected
//! with their reason. The tests of the client's state machines are in the submodules.

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use proptest::prelude::*;

use super::data::{put_varint, varint_len};
use super::frame::{Decoder, Frame, MAX_FIXED_HEADER};
use super::packet::{
    Ack, Auth, ConnAck, Connect, Disconnect, Kind, PacketId, Publish, RetainHandling, SubAck, Subscribe,
    SubscribeOptions, UnsubAck, Unsubscribe, Will,
};
use super::topic::{Filter, check_name, matches};
use super::{Packet, Properties, Property, QoS, Reason, Sender, Version, Violation};
use forebay_base::transmit::Transmit;

mod client;
mod connection;
mod consumer;
mod durable;
mod producer;
mod session;

const VERSIONS: [Version; 3] = [Version::V3_1, Version::V3_1_1, Version::V5];

fn decode_all(bytes: &[u8], version: Version, sender: Sender) -> Result<Packet, Violation> {
    let mut input = BytesMut::from(bytes);
    let frame = Decoder::new(usize::MAX).next(&mut input)?.expect("a whole frame");
    assert!(input.is_empty(), "one frame");
    Packet::decode(&frame, version, sender)
}

fn encode(packet: &Packet, version: Version) -> Bytes {
    let mut out = Transmit::default();
    packet.encode(version, &mut out).expect("it has room");
    out.take().freeze()
}

fn refused(bytes: &[u8], version: Version, sender: Sender) -> Reason {
    decode_all(bytes, version, sender).expect_err("it may not be sent").reason
}

/// [MQTT-1.5.5-1], 2.1.4: the least significant group comes first. 321 is C1 02; MQTT 3.1 prints it
/// wrongly.
#[test]
fn the_remaining_length_is_least_significant_first_and_ends_after_four_bytes() {
    for (value, bytes) in [
        (0, &[0x00][..]),
        (127, &[0x7f]),
        (128, &[0x80, 0x01]),
        (321, &[0xc1, 0x02]),
        (16_383, &[0xff, 0x7f]),
        (16_384, &[0x80, 0x80, 0x01]),
        (2_097_151, &[0xff, 0xff, 0x7f]),
        (268_435_455, &[0xff, 0xff, 0xff, 0x7f]),
    ] {
        let mut out = BytesMut::new();
        put_varint(&mut out, value);
        assert_eq!(&out[..], bytes);
        assert_eq!(varint_len(value), bytes.len());
    }
    let mut endless = BytesMut::from(&[0x30, 0xff, 0xff, 0xff, 0xff, 0x01][..]);
    assert_eq!(Decoder::new(usize::MAX).next(&mut endless).unwrap_err().reason, Reason::MalformedPacket);
}

#[test]
fn a_packet_above_the_maximum_is_refused_when_its_header_has_come() {
    let mut input = BytesMut::from(&[0x30, 0xff, 0xff, 0xff, 0x7f][..]);
    assert_eq!(Decoder::new(2_000_000).next(&mut input).unwrap_err().reason, Reason::PacketTooLarge);
    for first in [0x00, 0x36, 0x38] {
        let mut waiting = BytesMut::from(&[first, 0xff, 0xff, 0x7f][..]);
        assert_eq!(Decoder::new(usize::MAX).next(&mut waiting).unwrap_err().reason, Reason::MalformedPacket);
    }
    let mut exact = BytesMut::from(&[0x30, 0x03, 0, 1, b'a'][..]);
    assert!(Decoder::new(4).next(&mut exact.clone()).is_err());
    assert!(Decoder::new(5).next(&mut exact).unwrap().is_some());
}

/// Flags of each packet [MQTT-2.1.3-1], [MQTT-3.8.1-1], [MQTT-3.10.1-1], [MQTT-3.6.1-1].
#[test]
fn reserved_flags_are_malformed() {
    for first in [0x21, 0x41, 0x51, 0x60, 0x64, 0x71, 0x80, 0x8a, 0x91, 0xa0, 0xb1, 0xc1, 0xd1, 0xe1] {
        let sender = match first >> 4 {
            2 | 9 | 11 | 13 => Sender::Server,
            _ => Sender::Client,
        };
        assert_eq!(refused(&[first, 2, 0, 1], Version::V5, sender), Reason::MalformedPacket, "{first:02x}");
    }
    // 3.1 allows DUP on a retry.
    assert!(decode_all(&[0x6a, 2, 0, 1], Version::V3_1, Sender::Client).is_ok());
    assert!(decode_all(&[0x6a, 2, 0, 1], Version::V3_1_1, Sender::Client).is_err());
    assert!(decode_all(&[0xf0, 0], Version::V3_1_1, Sender::Client).is_err(), "AUTH was added in MQTT 5");
    assert!(decode_all(&[0x00, 0], Version::V5, Sender::Client).is_err(), "type 0 is reserved");
}

/// [MQTT-3.3.1-4], [MQTT-3.3.1-2], [MQTT-2.2.1-2], [MQTT-3.3.2-2].
#[test]
fn a_publish_may_not_have_qos_3_dup_with_qos_0_id_0_or_a_wildcard() {
    let client = Sender::Client;
    assert_eq!(refused(&[0x36, 3, 0, 1, b'a'], Version::V3_1_1, client), Reason::MalformedPacket);
    assert_eq!(refused(&[0x38, 3, 0, 1, b'a'], Version::V3_1_1, client), Reason::MalformedPacket);
    assert_eq!(refused(&[0x32, 5, 0, 1, b'a', 0, 0], Version::V3_1_1, client), Reason::ProtocolError);
    assert_eq!(refused(&[0x30, 3, 0, 1, b'#'], Version::V3_1_1, client), Reason::TopicNameInvalid);
    assert_eq!(refused(&[0x30, 2, 0, 0], Version::V3_1_1, client), Reason::MalformedPacket);
    assert_eq!(refused(&[0x30, 3, 0, 0, 0], Version::V5, client), Reason::ProtocolError);
}

/// [MQTT-1.5.4-1], [MQTT-1.5.4-2], [MQTT-1.5.4-3].
#[test]
fn strings_are_utf_8_without_nul_and_a_bom_is_data() {
    for bad in [&[0xed, 0xa0, 0x80][..], &[0xc0, 0x80], &[0xff], &[b'a', 0]] {
        let mut packet = vec![0x30, 2 + bad.len() as u8, 0, bad.len() as u8];
        packet.extend_from_slice(bad);
        assert_eq!(refused(&packet, Version::V3_1_1, Sender::Client), Reason::MalformedPacket);
    }
    let Packet::Publish(publish) =
        decode_all(&[0x30, 6, 0, 4, 0xef, 0xbb, 0xbf, b'a'], Version::V3_1_1, Sender::Client).unwrap()
    else {
        panic!("a PUBLISH");
    };
    assert_eq!(publish.topic, "\u{feff}a");
}

/// Packets that may carry each property (2.2.2.2), and its direction [MQTT-3.3.4-6].
#[test]
fn a_property_stands_where_it_may_and_once() {
    let publish = |properties: &[u8]| {
        let mut packet = vec![0x30, 4 + properties.len() as u8, 0, 1, b'a', properties.len() as u8];
        packet.extend_from_slice(properties);
        packet
    };
    let identifier = publish(&[0x0b, 1, 0x0b, 2]);
    assert_eq!(refused(&identifier, Version::V5, Sender::Client), Reason::ProtocolError);
    let Packet::Publish(packet) = decode_all(&identifier, Version::V5, Sender::Server).unwrap() else {
        panic!("a PUBLISH");
    };
    assert_eq!(packet.properties.subscription_identifiers().collect::<Vec<_>>(), [1, 2]);
    for (bytes, reason) in [
        (&[0x01, 0, 0x01, 0][..], Reason::ProtocolError),
        (&[0x01, 2], Reason::ProtocolError),
        (&[0x11, 0, 0, 0, 1], Reason::ProtocolError),
        (&[0x23, 0, 0], Reason::TopicAliasInvalid),
        (&[0x08, 0, 1, b'#'], Reason::ProtocolError),
        (&[0x04, 0], Reason::MalformedPacket),
        (&[0x02, 0, 0], Reason::MalformedPacket),
        (&[0xa6, 0x00, 0, 0, 0, 0], Reason::MalformedPacket),
    ] {
        assert_eq!(refused(&publish(bytes), Version::V5, Sender::Server), reason, "{bytes:02x?}");
    }
    let mut overrun = publish(&[0x01, 0]);
    overrun[5] = 3;
    assert_eq!(refused(&overrun, Version::V5, Sender::Client), Reason::MalformedPacket);
    // In DISCONNECT only a client may send a session expiry, and only a server a server reference.
    let expiry = [0xe0, 7, 0, 5, 0x11, 0, 0, 0, 1];
    assert!(decode_all(&expiry, Version::V5, Sender::Client).is_ok());
    assert_eq!(refused(&expiry, Version::V5, Sender::Server), Reason::ProtocolError);
}

/// 3.4.2.1, 3.14.2.1: the reason may be omitted, and so may the properties after it.
#[test]
fn acknowledgements_and_disconnect_have_short_forms() {
    let id = PacketId::new(7).unwrap();
    for bytes in [&[0x40, 2, 0, 7][..], &[0x40, 3, 0, 7, 0], &[0x40, 4, 0, 7, 0, 0]] {
        let packet = decode_all(bytes, Version::V5, Sender::Server).unwrap();
        assert_eq!(packet, Packet::PubAck(Ack::new(id)));
        assert_eq!(&encode(&packet, Version::V5)[..], [0x40, 2, 0, 7], "the shortest form is sent");
    }
    let refusal = Packet::PubAck(Ack::with_reason(id, Reason::QuotaExceeded));
    assert_eq!(&encode(&refusal, Version::V5)[..], [0x40, 3, 0, 7, 0x97]);
    assert_eq!(&encode(&refusal, Version::V3_1_1)[..], [0x40, 2, 0, 7]);
    let bye = Packet::Disconnect(Disconnect::new(Reason::Success));
    assert_eq!(&encode(&bye, Version::V5)[..], [0xe0, 0]);
    assert_eq!(decode_all(&[0xe0, 1, 0], Version::V5, Sender::Client).unwrap(), bye);
    assert_eq!(refused(&[0xe0, 1, 0x8e], Version::V5, Sender::Client), Reason::ProtocolError);
    assert_eq!(refused(&[0x40, 3, 0, 7, 0x92], Version::V5, Sender::Server), Reason::ProtocolError);
}

/// [MQTT-3.1.2-3], [MQTT-3.1.2-11], [MQTT-3.1.2-13], [MQTT-3.1.2-22] (MQTT 3.1.1).
#[test]
fn the_flags_of_a_connect_agree_with_its_fields() {
    let connect =
        |level: u8, flags: u8| vec![0x10, 12, 0, 4, b'M', b'Q', b'T', b'T', level, flags, 0, 0, 0, 0];
    for flags in [0x01, 0x08, 0x18, 0x20] {
        assert_eq!(refused(&connect(4, flags), Version::V5, Sender::Client), Reason::MalformedPacket);
    }
    let mut password = connect(4, 0x42);
    password[1] += 2;
    password.extend([0, 0]);
    assert_eq!(refused(&password, Version::V5, Sender::Client), Reason::MalformedPacket);
    for level in [0, 3, 6, 0x84] {
        let reason = refused(&connect(level, 2), Version::V5, Sender::Client);
        assert_eq!(reason, Reason::UnsupportedProtocolVersion, "level {level}");
    }
    // The oldest clients set flags for fields that they omit.
    let old = b"\x10\x0f\0\x06MQIsdp\x03\xc2\0\0\0\x01a";
    let Packet::Connect(connect) = decode_all(old, Version::V5, Sender::Client).unwrap() else {
        panic!("a CONNECT");
    };
    assert_eq!((connect.version, connect.user_name, connect.password), (Version::V3_1, None, None));
}

/// A broker of MQTT 3 answers a CONNECT of MQTT 5 in its own form.
#[test]
fn a_connack_of_3_x_says_that_5_0_is_not_spoken() {
    let packet = decode_all(&[0x20, 2, 0, 1], Version::V5, Sender::Server).unwrap();
    assert_eq!(packet, Packet::ConnAck(ConnAck::new(Reason::UnsupportedProtocolVersion)));
    assert_eq!(refused(&[0x20, 3, 1, 0x87, 0], Version::V5, Sender::Server), Reason::ProtocolError);
    assert_eq!(refused(&[0x20, 2, 2, 0], Version::V3_1_1, Sender::Server), Reason::MalformedPacket);
}

/// [MQTT-3.8.3-5], [MQTT-3.8.3-2], [MQTT-3.8.3-4], [MQTT-3.10.3-2].
#[test]
fn a_subscribe_has_filters_and_no_reserved_option() {
    let subscribe = |options: u8, version: Version| {
        let mut packet = vec![0x82, 6, 0, 1, 0, 1, b'a', options];
        if version == Version::V5 {
            packet.insert(4, 0);
            packet[1] = 7;
        }
        refused(&packet, version, Sender::Client)
    };
    assert_eq!(subscribe(0x03, Version::V3_1_1), Reason::MalformedPacket);
    assert_eq!(subscribe(0x04, Version::V3_1_1), Reason::MalformedPacket);
    assert_eq!(subscribe(0x40, Version::V5), Reason::MalformedPacket);
    assert_eq!(subscribe(0x30, Version::V5), Reason::ProtocolError);
    assert_eq!(refused(&[0x82, 2, 0, 1], Version::V3_1_1, Sender::Client), Reason::ProtocolError);
    assert_eq!(refused(&[0xa2, 2, 0, 1], Version::V3_1_1, Sender::Client), Reason::ProtocolError);
    let no_local_shared = b"\x82\x10\0\x01\0\0\x0a$share/g/a\x04";
    assert_eq!(refused(no_local_shared, Version::V5, Sender::Client), Reason::ProtocolError);
}

/// [MQTT-4.7.1-1], [MQTT-4.7.1-2], [MQTT-4.7.3-1], [MQTT-4.8.2-1], [MQTT-4.8.2-2].
#[test]
fn filters_are_checked() {
    for good in ["#", "+", "/", "a//b", "+/+", "/+", "sport/#", "$share/g/#", "$SYS/#", "a/+/b", "$shared"] {
        assert!(Filter::parse(good).is_ok(), "{good}");
    }
    for bad in [
        "",
        "a#",
        "#/a",
        "a+",
        "a/+b/c",
        "$share/",
        "$share/g",
        "$share/g/",
        "$share//a",
        "$share/+/a",
        "a\0",
    ] {
        assert!(Filter::parse(bad).is_err(), "{bad:?}");
    }
    let shared = Filter::parse("$share/group/a/+").unwrap();
    assert_eq!((shared.group(), shared.pattern(), shared.has_wildcard()), (Some("group"), "a/+", true));
    assert!(check_name("a/b").is_ok() && check_name("a/+").is_err() && check_name("").is_err());
}

/// Examples in 4.7.1 and 4.7.2, and [MQTT-4.7.2-1], [MQTT-4.7.3-4].
#[test]
fn filters_match_as_the_standards_examples() {
    for (filter, topic, expected) in [
        ("sport/tennis/player1/#", "sport/tennis/player1", true),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", true),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", true),
        ("sport/#", "sport", true),
        ("#", "a/b", true),
        ("sport/tennis/+", "sport/tennis/player1", true),
        ("sport/tennis/+", "sport/tennis/player1/ranking", false),
        ("sport/+", "sport", false),
        ("sport/+", "sport/", true),
        ("+/+", "/finance", true),
        ("/+", "/finance", true),
        ("+", "/finance", false),
        ("#", "$SYS/x", false),
        ("+/monitor/Clients", "$SYS/monitor/Clients", false),
        ("$SYS/#", "$SYS/monitor/Clients", true),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", true),
        ("ACCOUNTS", "Accounts", false),
        ("a/+/#", "a", false),
    ] {
        assert_eq!(matches(filter, topic), expected, "{filter} {topic}");
    }
}

#[test]
fn every_reason_reads_back_and_stands_somewhere() {
    for &reason in Reason::ALL {
        assert_eq!(Reason::from_code(reason.code()), Some(reason));
        let kinds = (1..16).filter_map(|kind| Kind::of(kind << 4)).filter(|&kind| reason.allowed_in(kind));
        assert!(kinds.count() > 0, "{reason}");
    }
}

#[test]
fn what_does_not_fit_a_length_field_is_refused_before_a_byte_is_written() {
    let mut out = Transmit::default();
    let long = ByteString::from("x".repeat(65_536));
    let publish = Packet::Publish(Publish { topic: long.clone(), ..Publish::default() });
    assert!(publish.encode(Version::V5, &mut out).is_err());
    let connect = Packet::Connect(Box::new(Connect::new(Version::V5, long)));
    assert!(connect.encode(Version::V5, &mut out).is_err());
    assert!(out.is_empty());
}

#[test]
fn a_password_is_never_printed() {
    let mut connect = Connect::new(Version::V5, "c");
    connect.password = Some(Bytes::from_static(b"hunter2"));
    assert!(!format!("{connect:?}").contains("hunter2"));
}

fn text() -> impl Strategy<Value = ByteString> {
    "[a-zA-Zé/ \u{1F30A}]{0,12}".prop_map(ByteString::from)
}

fn name() -> impl Strategy<Value = ByteString> {
    "[a-z/é]{1,12}".prop_map(ByteString::from)
}

fn binary() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn id() -> impl Strategy<Value = PacketId> {
    (1_u16..).prop_map(|id| PacketId::new(id).expect("not 0"))
}

fn qos() -> impl Strategy<Value = QoS> {
    (0_u8..3).prop_map(|bits| QoS::from_bits(bits).expect("below 3"))
}

/// Any subset of the properties in `candidates`, in any order, together with user properties.
fn properties(candidates: Vec<Property>) -> impl Strategy<Value = Properties> {
    let count = candidates.len();
    let some = proptest::sample::subsequence(candidates, 0..=count).prop_shuffle();
    (some, proptest::collection::vec((text(), text()), 0..3)).prop_map(|(some, user)| {
        let user = user.into_iter().map(|(name, value)| Property::User(name, value));
        some.into_iter().chain(user).collect()
    })
}

fn publish_properties() -> Vec<Property> {
    vec![
        Property::PayloadFormatIndicator(true),
        Property::MessageExpiryInterval(70_000),
        Property::ContentType("text/plain".into()),
        Property::ResponseTopic("answers".into()),
        Property::CorrelationData(Bytes::from_static(b"\0\xff")),
    ]
}

fn with(mut some: Vec<Property>, more: &[Property]) -> Vec<Property> {
    some.extend_from_slice(more);
    some
}

fn will() -> impl Strategy<Value = Will> {
    let properties = properties(with(publish_properties(), &[Property::WillDelayInterval(9)]));
    (qos(), any::<bool>(), properties, name(), binary()).prop_map(
        |(qos, retain, properties, topic, payload)| Will { qos, retain, properties, topic, payload },
    )
}

fn connect() -> impl Strategy<Value = Packet> {
    let properties = properties(vec![
        Property::SessionExpiryInterval(u32::MAX),
        Property::ReceiveMaximum(10),
        Property::MaximumPacketSize(1 << 20),
        Property::TopicAliasMaximum(3),
        Property::RequestResponseInformation(true),
        Property::RequestProblemInformation(false),
        Property::AuthenticationMethod("SCRAM".into()),
    ]);
    let credentials = (proptest::option::of(text()), proptest::option::of(binary()));
    (any::<bool>(), any::<u16>(), properties, text(), proptest::option::of(will()), credentials).prop_map(
        |(clean_start, keep_alive, properties, client_id, will, (user_name, password))| {
            Packet::Connect(Box::new(Connect {
                version: Version::V5,
                clean_start,
                keep_alive,
                properties,
                client_id,
                will,
                // MQTT 3 does not allow a password without a user name.
                password: password.filter(|_| user_name.is_some()),
                user_name,
            }))
        },
    )
}

fn publish() -> impl Strategy<Value = Packet> {
    let properties = properties(with(publish_properties(), &[Property::TopicAlias(4)]));
    (any::<bool>(), qos(), any::<bool>(), name(), id(), properties, binary()).prop_map(
        |(dup, qos, retain, topic, id, properties, payload)| {
            let counted = qos != QoS::AtMostOnce;
            let packet_id = counted.then_some(id);
            Packet::Publish(Publish {
                dup: dup && counted,
                qos,
                retain,
                topic,
                packet_id,
                properties,
                payload,
            })
        },
    )
}

fn ack() -> impl Strategy<Value = (Ack, u8)> {
    let words = properties(vec![Property::ReasonString("so".into())]);
    (id(), any::<bool>(), words, 0_u8..4).prop_map(|(packet_id, fails, properties, which)| {
        let reason = match (fails, which) {
            (false, _) => Reason::Success,
            (true, 0 | 1) => Reason::QuotaExceeded,
            (true, _) => Reason::PacketIdentifierNotFound,
        };
        (Ack { packet_id, reason, properties }, which)
    })
}

fn options() -> impl Strategy<Value = SubscribeOptions> {
    (qos(), any::<bool>(), any::<bool>(), 0..3).prop_map(|(qos, no_local, retain_as_published, handling)| {
        let retain_handling =
            [RetainHandling::Always, RetainHandling::IfNew, RetainHandling::Never][handling as usize];
        SubscribeOptions { qos, no_local, retain_as_published, retain_handling }
    })
}

fn packet() -> impl Strategy<Value = (Packet, Sender)> {
    use Sender::{Client, Server};
    let words = || properties(vec![Property::ReasonString("so".into())]);
    let connack = properties(vec![
        Property::AssignedClientIdentifier("id".into()),
        Property::ServerKeepAlive(5),
        Property::MaximumQoS(true),
        Property::RetainAvailable(false),
        Property::WildcardSubscriptionAvailable(false),
        Property::SubscriptionIdentifierAvailable(false),
        Property::SharedSubscriptionAvailable(false),
        Property::ResponseInformation("r".into()),
        Property::ServerReference("other".into()),
    ]);
    let granted = proptest::sample::select(vec![Reason::Success, Reason::GrantedQoS2, Reason::Unspecified]);
    let ended = proptest::sample::select(vec![Reason::Success, Reason::NoSubscriptionExisted]);
    let identifier = properties(vec![Property::SubscriptionIdentifier(268_435_455)]);
    let auth =
        properties(vec![Property::AuthenticationMethod("m".into()), Property::ReasonString("so".into())]);
    prop_oneof![
        connect().prop_map(|packet| (packet, Client)),
        publish().prop_map(|packet| (packet, Client)),
        ack().prop_map(|(ack, which)| {
            let packet = match which {
                0 => Packet::PubAck(ack),
                1 => Packet::PubRec(ack),
                2 => Packet::PubRel(ack),
                _ => Packet::PubComp(ack),
            };
            (packet, Server)
        }),
        (id(), identifier, proptest::collection::vec((name(), options()), 1..4)).prop_map(
            |(packet_id, properties, filters)| {
                (Packet::Subscribe(Subscribe { packet_id, properties, filters }), Client)
            }
        ),
        (id(), words(), proptest::collection::vec(granted, 0..4)).prop_map(
            |(packet_id, properties, reasons)| {
                (Packet::SubAck(SubAck { packet_id, properties, reasons }), Server)
            }
        ),
        (id(), properties(Vec::new()), proptest::collection::vec(name(), 1..4)).prop_map(
            |(packet_id, properties, filters)| {
                (Packet::Unsubscribe(Unsubscribe { packet_id, properties, filters }), Client)
            }
        ),
        (id(), words(), proptest::collection::vec(ended, 0..4)).prop_map(
            |(packet_id, properties, reasons)| {
                (Packet::UnsubAck(UnsubAck { packet_id, properties, reasons }), Server)
            }
        ),
        (any::<bool>(), connack).prop_map(|(session_present, properties)| {
            (Packet::ConnAck(ConnAck { session_present, reason: Reason::Success, properties }), Server)
        }),
        words().prop_map(|properties| {
            (Packet::Disconnect(Disconnect { reason: Reason::ServerBusy, properties }), Server)
        }),
        auth.prop_map(|properties| {
            (Packet::Auth(Auth { reason: Reason::ContinueAuthentication, properties }), Client)
        }),
        Just((Packet::PingReq, Client)),
        Just((Packet::PingResp, Server)),
    ]
}

/// Reduces `packet` to what MQTT 3 can express: no properties, no reasons, no options except the
/// QoS.
fn without_5_0(mut packet: Packet, version: Version) -> Option<Packet> {
    match &mut packet {
        Packet::Connect(connect) => {
            connect.version = version;
            connect.properties = Properties::new();
            if let Some(will) = &mut connect.will {
                will.properties = Properties::new();
            }
        }
        Packet::ConnAck(ack) => {
            ack.properties = Properties::new();
            ack.session_present &= version != Version::V3_1;
        }
        Packet::Publish(publish) => publish.properties = Properties::new(),
        Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubRel(ack) | Packet::PubComp(ack) => {
            *ack = Ack::new(ack.packet_id);
        }
        Packet::Subscribe(subscribe) => {
            subscribe.properties = Properties::new();
            for (_, options) in &mut subscribe.filters {
                *options = SubscribeOptions::qos(options.qos);
            }
        }
        Packet::SubAck(ack) => ack.properties = Properties::new(),
        Packet::Unsubscribe(unsubscribe) => unsubscribe.properties = Properties::new(),
        Packet::UnsubAck(ack) => {
            ack.properties = Properties::new();
            ack.reasons.clear();
        }
        Packet::Disconnect(disconnect) => *disconnect = Disconnect::new(Reason::Success),
        Packet::Auth(_) => return None,
        Packet::PingReq | Packet::PingResp => {}
    }
    Some(packet)
}

proptest! {
    #[test]
    fn every_packet_reads_back_in_every_version_and_no_cut_of_it_does((packet, sender) in packet()) {
        for version in VERSIONS {
            let packet = match version {
                Version::V5 => packet.clone(),
                _ => match without_5_0(packet.clone(), version) {
                    Some(packet) => packet,
                    None => continue,
                },
            };
            let bytes = encode(&packet, version);
            prop_assert_eq!(bytes.len(), packet.encoded_len(version));
            prop_assert_eq!(decode_all(&bytes, version, sender), Ok(packet.clone()));
            for cut in 0..bytes.len() {
                let mut input = BytesMut::from(&bytes[..cut]);
                prop_assert_eq!(Decoder::new(usize::MAX).next(&mut input), Ok(None));
            }
            // A shortened body under a matching header is another packet or a violation, and never
            // a panic.
            let mut input = BytesMut::from(&bytes[..]);
            let frame = Decoder::new(usize::MAX).next(&mut input).unwrap().unwrap();
            for cut in 0..frame.body.len() {
                let cut = Frame { first: frame.first, body: frame.body.slice(..cut) };
                let _ = Packet::decode(&cut, version, sender);
            }
        }
    }

    #[test]
    fn whatever_decodes_encodes_to_what_decodes_the_same(
        first: u8,
        body in proptest::collection::vec(any::<u8>(), 0..64),
        which in 0_usize..3,
        server: bool,
    ) {
        let sender = if server { Sender::Server } else { Sender::Client };
        let frame = Frame { first, body: Bytes::from(body) };
        if let Ok(packet) = Packet::decode(&frame, VERSIONS[which], sender) {
            let version = match &packet { Packet::Connect(connect) => connect.version, _ => VERSIONS[which] };
            let again = decode_all(&encode(&packet, version), version, sender);
            prop_assert_eq!(again, Ok(packet));
        }
    }

    #[test]
    fn a_header_never_asks_for_more_than_the_maximum(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
        let mut input = BytesMut::from(&bytes[..]);
        match Decoder::new(10).next(&mut input) {
            Ok(Some(frame)) => prop_assert!(frame.body.len() + 2 <= 10),
            Ok(None) => prop_assert!(bytes.len() < 10.max(MAX_FIXED_HEADER)),
            Err(_) => {}
        }
    }
}
