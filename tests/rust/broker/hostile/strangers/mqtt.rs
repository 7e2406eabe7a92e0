//! MQTT's control packets.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use forebay_base::transmit::Transmit;
use forebay_broker::auth::TokenKeys;
use forebay_broker::mqtt::{Broker, Settings};
use forebay_broker::protocol::Protocol as _;
use forebay_broker::store::mqtt::Found;
use forebay_mqtt::packet::{
    Ack, Auth, ConnAck, Connect, Disconnect, Kind, Publish, SubAck, Subscribe, SubscribeOptions, UnsubAck,
    Unsubscribe, Will,
};
use forebay_mqtt::{Packet, Properties, Property, QoS, Reason, Version};

use super::{Credentials, ELSEWHERE, Ids, Reach, assert_bounded, assert_shut_out};
use crate::hostile::world::{HELD, PATIENCE, WALL_MS, World, difference};
use crate::support::mqtt::settings;

const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";
const VERSIONS: [Version; 2] = [Version::V3_1_1, Version::V5];
const CLIENT: &str = "till-7f3a";

/// Fields that count connections or follow the time.
const APART: [&str; 6] = ["next_connection", "next_session", "now", "wakes", "counters", "next_due"];

/// The kinds of packets, as the first byte of a packet tells them.
pub(crate) fn kinds() -> impl Iterator<Item = Kind> {
    (0..16_u8).filter_map(|number| Kind::of(number << 4))
}

/// The row of a kind: the packet, and what it reaches. A kind without a row does not compile.
pub(crate) fn row(kind: Kind, version: Version, credentials: Credentials, ids: Ids) -> (Packet, Reach) {
    let number = if ids == Ids::Others { 1 } else { 77 };
    let packet_id = NonZeroU16::new(number).unwrap();
    let topic = if ids == Ids::Others { "orders/1" } else { "hers/1" };
    let (ack, properties) = (Ack::new(packet_id), Properties::new());
    let reach = if matches!(kind, Kind::Publish | Kind::Subscribe) { Reach::Name } else { Reach::Handle };
    let packet = match kind {
        Kind::Connect => {
            let client_id = if ids == Ids::Others { CLIENT } else { "hers" };
            let will = Will {
                qos: QoS::AtMostOnce,
                retain: true,
                properties: Properties::new(),
                topic: topic.into(),
                payload: Bytes::from_static(b"forged"),
            };
            // The will of another user is a publication, which every user may make.
            let will = (credentials != Credentials::Other).then_some(will);
            let clean_start = ids == Ids::Own;
            Packet::Connect(Box::new(Connect {
                will,
                clean_start,
                ..connect(version, client_id, credentials)
            }))
        }
        Kind::ConnAck => Packet::ConnAck(ConnAck::new(Reason::Success)),
        Kind::Publish => Packet::Publish(Publish {
            qos: QoS::AtLeastOnce,
            retain: true,
            topic: topic.into(),
            packet_id: Some(packet_id),
            payload: Bytes::from_static(b"forged"),
            ..Publish::default()
        }),
        Kind::PubAck => Packet::PubAck(ack),
        Kind::PubRec => Packet::PubRec(ack),
        Kind::PubRel => Packet::PubRel(ack),
        Kind::PubComp => Packet::PubComp(ack),
        Kind::Subscribe => Packet::Subscribe(Subscribe {
            packet_id,
            properties,
            filters: vec![(topic.into(), SubscribeOptions::qos(QoS::AtLeastOnce))],
        }),
        Kind::SubAck => Packet::SubAck(SubAck { packet_id, properties, reasons: vec![Reason::Success] }),
        Kind::Unsubscribe => {
            let filters = vec![if ids == Ids::Others { "orders/#" } else { "hers/#" }.into()];
            Packet::Unsubscribe(Unsubscribe { packet_id, properties, filters })
        }
        Kind::UnsubAck => {
            Packet::UnsubAck(UnsubAck { packet_id, properties, reasons: vec![Reason::Success] })
        }
        Kind::PingReq => Packet::PingReq,
        Kind::PingResp => Packet::PingResp,
        Kind::Disconnect => Packet::Disconnect(Disconnect::new(Reason::Success)),
        Kind::Auth => Packet::Auth(Auth { reason: Reason::Success, properties }),
    };
    (packet, reach)
}

fn token(credentials: Credentials) -> Option<String> {
    let key = TokenKeys::new(KEY).unwrap();
    match credentials {
        Credentials::None => None,
        Credentials::Wrong => Some(TokenKeys::new(&[b'9'; 32]).unwrap().sign("alice", None)),
        Credentials::Expired => Some(key.sign("alice", Some(WALL_MS - 1000))),
        Credentials::Other => Some(key.sign("mallory", None)),
    }
}

fn connect(version: Version, client_id: &str, credentials: Credentials) -> Connect {
    let user = if credentials == Credentials::Other { "mallory" } else { "alice" };
    let password = token(credentials).map(Bytes::from);
    let user_name = password.is_some().then(|| user.into());
    Connect { user_name, password, ..Connect::new(version, client_id) }
}

pub(crate) fn encode(packet: &Packet, version: Version) -> BytesMut {
    let mut out = Transmit::default();
    packet.encode(version, &mut out).unwrap();
    out.take()
}

/// The CONNECT that the visitor's credentials allow, if any, and then the packet.
fn script(kind: Kind, version: Version, credentials: Credentials, ids: Ids) -> (Vec<u8>, Reach) {
    let (packet, reach) = row(kind, version, credentials, ids);
    let mut script = Vec::new();
    if credentials != Credentials::None && kind != Kind::Connect {
        let connect = Packet::Connect(Box::new(connect(version, "hers", credentials)));
        script.extend_from_slice(&encode(&connect, version));
    }
    script.extend_from_slice(&encode(&packet, version));
    (script, reach)
}

fn empty() -> World<Broker> {
    let now = Instant::now();
    let settings = Settings { tokens: Some(Arc::new(TokenKeys::new(KEY).unwrap())), ..settings(now) };
    World::new(Broker::new(settings, Found::default(), None, now), now)
}

/// A broker with a user's session, a retained message, and a QoS 2 message on its way to the
/// session.
fn full() -> (World<Broker>, u64) {
    let mut world = empty();
    let key = TokenKeys::new(KEY).unwrap();
    let enter = |client_id: &str| Connect {
        user_name: Some("alice".into()),
        password: Some(key.sign("alice", None).into()),
        clean_start: false,
        properties: Properties::new().with(Property::SessionExpiryInterval(u32::MAX)),
        ..Connect::new(Version::V5, client_id)
    };
    let packet_id = NonZeroU16::MIN;
    let alice = world.connect("127.0.0.1:1");
    let mut tell = |packet: Packet| world.tell(alice, &encode(&packet, Version::V5)).unwrap();
    tell(Packet::Connect(Box::new(enter(CLIENT))));
    tell(Packet::Subscribe(Subscribe {
        packet_id,
        properties: Properties::new(),
        filters: vec![("orders/#".into(), SubscribeOptions::qos(QoS::ExactlyOnce))],
    }));
    tell(Packet::Publish(Publish {
        qos: QoS::ExactlyOnce,
        retain: true,
        topic: "orders/1".into(),
        packet_id: Some(packet_id),
        payload: Bytes::from_static(b"card number"),
        ..Publish::default()
    }));
    let heard = world.hear(alice);
    assert!(heard.windows(4).any(|window| window == b"card"), "the message is under way");
    (world, alice)
}

#[test]
fn without_credentials_no_packet_of_mqtt_gets_or_changes_anything() {
    for kind in kinds() {
        for version in VERSIONS {
            if kind == Kind::Auth && version != Version::V5 {
                continue;
            }
            for credentials in Credentials::INVALID {
                for ids in Ids::BOTH {
                    let (script, _) = script(kind, version, credentials, ids);
                    let what = format!("{kind:?} of {version:?}, {credentials:?}, {ids:?}");
                    assert_shut_out(&what, &script, &mut full().0, &mut empty(), &APART);
                }
            }
        }
    }
}

#[test]
fn another_user_reaches_no_session_and_no_packet_identifier_of_it() {
    for kind in kinds() {
        for ids in Ids::BOTH {
            let (script, reach) = script(kind, Version::V5, Credentials::Other, ids);
            let what = format!("{kind:?}, {ids:?}");
            let (mut world, alice) = full();
            let before = world.state(&APART);
            let visit = world.visit(ELSEWHERE, &script);
            assert_bounded(&what, &visit);
            if reach == Reach::Name {
                continue;
            }
            assert!(!world.broker.finished(alice), "{what}: the other connection is ended");
            assert!(world.hear(alice).is_empty(), "{what}: the other connection is told something");
            let after = world.state(&APART);
            assert!(before == after, "{what}: changed the broker: {}", difference(&before, &after));
            assert!(!visit.output.windows(4).any(|window| window == b"card"), "{what}");
        }
    }
}

#[test]
fn a_client_whose_token_has_expired_is_disconnected_at_once() {
    let key = TokenKeys::new(KEY).unwrap();
    for version in VERSIONS {
        let (mut world, _) = full();
        let id = world.connect(ELSEWHERE);
        let password = Some(key.sign("mallory", Some(WALL_MS + 60_000)).into());
        let connect =
            Connect { password, user_name: Some("mallory".into()), ..Connect::new(version, "hers") };
        world.tell(id, &encode(&Packet::Connect(Box::new(connect)), version)).unwrap();
        world.now += Duration::from_secs(60);
        world.tell(id, &encode(&Packet::PingReq, version)).unwrap();
        assert!(world.ends(id, PATIENCE));
    }
}

#[test]
fn a_stranger_to_mqtt_may_not_even_begin_a_large_packet() {
    let mut world = empty();
    // CONNECT and PUBLISH of 128 KiB, 2 MB, and the largest size that there is.
    for first in [0x10, 0x30] {
        for length in [&[0x80_u8, 0x80, 0x08][..], &[0x80, 0x89, 0x7a], &[0xff, 0xff, 0xff, 0x7f]] {
            let id = world.connect(ELSEWHERE);
            let mut input = BytesMut::from(&[first][..]);
            input.extend_from_slice(length);
            let mut refused = false;
            while !refused && input.len() <= HELD {
                input.extend_from_slice(&[0; 1024]);
                refused = world.feed(id, &mut input).is_err();
            }
            assert!(refused, "{first:x} {length:x?}: {} wait", input.len());
        }
    }
}
