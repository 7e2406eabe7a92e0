//! What MQTT's packets cost.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use forebay_broker::auth::TokenKeys;
use forebay_broker::mqtt::{Broker, Settings};
use forebay_broker::protocol::Protocol as _;
use forebay_broker::store::mqtt::Found;
use forebay_mqtt::packet::{Ack, Connect, Publish, Subscribe, SubscribeOptions, Unsubscribe};
use forebay_mqtt::{Packet, Properties, Property, QoS, Sender, Version, frame};

use super::{AFTER, BEFORE, SIZES, assert_cheap, repeat};
use crate::hostile::strangers::mqtt::{encode, kinds, row};
use crate::hostile::strangers::{Credentials, Ids};
use crate::hostile::world::World;
use crate::support::mqtt::settings;

/// Bytes of a packet beyond its list, at most.
const HEAD: usize = 64;

fn world(secured: bool) -> World<Broker> {
    let now = Instant::now();
    let tokens = secured.then(|| Arc::new(TokenKeys::new(&[b'7'; 32]).unwrap()));
    let settings = Settings { tokens, ..settings(now) };
    World::new(Broker::new(settings, Found::default(), None, now), now)
}

fn id(index: usize) -> NonZeroU16 {
    NonZeroU16::new((index % 60_000) as u16 + 1).unwrap()
}

fn bytes(packet: Packet) -> Vec<u8> {
    encode(&packet, Version::V5).to_vec()
}

/// A connected client, on a broker with retained messages and with a subscriber that is gone.
fn known() -> (World<Broker>, u64) {
    let mut world = world(false);
    let client = |world: &mut World<Broker>, name: &str, expiry: u32| {
        let id = world.connect("127.0.0.1:1");
        let properties = Properties::new().with(Property::SessionExpiryInterval(expiry));
        let connect = Connect { properties, ..Connect::new(Version::V5, name) };
        world.tell(id, &bytes(Packet::Connect(Box::new(connect)))).unwrap();
        id
    };
    let other = client(&mut world, "other", u32::MAX);
    let filters = vec![("kept/#".into(), SubscribeOptions::qos(QoS::ExactlyOnce))];
    let subscribe = Subscribe { packet_id: id(0), properties: Properties::new(), filters };
    world.tell(other, &bytes(Packet::Subscribe(subscribe))).unwrap();
    for index in 0..1000 {
        let publish = Publish {
            retain: true,
            topic: format!("retained/{index}").into(),
            payload: vec![7; 100].into(),
            ..Publish::default()
        };
        world.tell(other, &bytes(Packet::Publish(publish))).unwrap();
    }
    world.broker.disconnect(world.now, other);
    let me = client(&mut world, "me", 0);
    world.hear(me);
    (world, me)
}

/// One SUBSCRIBE with as many filters as fit into `size`.
fn subscribe(size: usize, index: usize, filter: impl Fn(usize) -> String) -> Vec<u8> {
    let (mut filters, mut length) = (Vec::new(), HEAD);
    for number in 0.. {
        let text = filter(number);
        length += text.len() + 3;
        if !filters.is_empty() && length > size {
            break;
        }
        filters.push((text.into(), SubscribeOptions::qos(QoS::AtLeastOnce)));
    }
    bytes(Packet::Subscribe(Subscribe { packet_id: id(index), properties: Properties::new(), filters }))
}

fn publish(index: usize, qos: QoS, topic: String, payload: usize) -> Vec<u8> {
    bytes(Packet::Publish(Publish {
        qos,
        topic: topic.into(),
        packet_id: (qos != QoS::AtMostOnce).then(|| id(index)),
        payload: Bytes::from(vec![7; payload]),
        ..Publish::default()
    }))
}

/// A filter of 199 levels that shares nothing with another.
fn deep(number: usize) -> String {
    format!("{number}{}", "/+".repeat(198))
}

type Case = (&'static str, fn(usize) -> Vec<u8>);

const CASES: &[Case] = &[
    ("one filter again and again in a packet", |size| subscribe(size, 0, |_| "retained/#".into())),
    ("the broker's own topics in a packet", |size| subscribe(size, 0, |_| "$SYS/#".into())),
    ("different filters in a packet", |size| subscribe(size, 0, |number| format!("retained/{number}/#"))),
    ("filters of many levels in a packet", |size| subscribe(size, 0, deep)),
    ("filters of many levels in packets", |size| repeat(size, |index| subscribe(0, index, |_| deep(index)))),
    ("one filter in packets", |size| repeat(size, |index| subscribe(0, index, |_| "retained/#".into()))),
    ("filters of shared subscriptions", |size| {
        subscribe(size, 0, |number| format!("$share/g{number}/kept/#"))
    }),
    ("filters that match and messages", |size| {
        let mut bytes = subscribe(size / 2, 0, |number| {
            (0..14).map(|bit| if number >> bit & 1 == 1 { "/+" } else { "/a" }).collect()
        });
        bytes.extend(repeat(size / 2, |index| publish(index, QoS::AtMostOnce, "/a".repeat(14), 1)));
        bytes
    }),
    ("filters of many levels and messages", |size| {
        let mut bytes = repeat(size / 2, |index| {
            let bits = |bit: usize| if index >> (bit % 14) & 1 == 1 { "/+" } else { "/a" };
            subscribe(0, index, |_| (0..199).map(bits).collect())
        });
        bytes.extend(repeat(size / 2, |index| publish(index, QoS::AtMostOnce, "/a".repeat(199), 1)));
        bytes
    }),
    ("messages for a session that is away", |size| {
        repeat(size, |index| publish(index, QoS::AtLeastOnce, "kept/1".into(), 10))
    }),
    ("messages of QoS 2 that are never released", |size| {
        repeat(size, |index| publish(index, QoS::ExactlyOnce, "kept/1".into(), 10))
    }),
    ("messages of QoS 2, each again", |size| {
        repeat(size, |_| publish(0, QoS::ExactlyOnce, "kept/1".into(), 10))
    }),
    ("retained messages", |size| {
        repeat(size, |index| {
            bytes(Packet::Publish(Publish {
                retain: true,
                topic: format!("new/{index}").into(),
                payload: Bytes::from_static(b"x"),
                ..Publish::default()
            }))
        })
    }),
    ("a large message", |size| publish(0, QoS::AtLeastOnce, "kept/1".into(), size - HEAD)),
    ("user properties", |size| {
        let count = (size - HEAD) / 5;
        let properties = (0..count).map(|_| Property::User("".into(), "".into())).collect();
        let topic = "kept/1".into();
        bytes(Packet::Publish(Publish { topic, properties, ..Publish::default() }))
    }),
    ("topic aliases", |size| {
        repeat(size, |index| {
            let properties = Properties::new().with(Property::TopicAlias(index as u16 % 100 + 1));
            let topic = format!("{index}{}", "/long".repeat(20)).into();
            bytes(Packet::Publish(Publish { topic, properties, ..Publish::default() }))
        })
    }),
    ("filters that are not subscribed", |size| {
        let filters = (0..(size - HEAD) / 8).map(|number| format!("{number:06}").into()).collect();
        bytes(Packet::Unsubscribe(Unsubscribe { packet_id: id(0), properties: Properties::new(), filters }))
    }),
    ("subscribed and left", |size| {
        repeat(size, |index| {
            let mut both = subscribe(0, index, |_| "retained/#".into());
            let filters = vec!["retained/#".into()];
            let packet_id = id(index);
            let leave = Unsubscribe { packet_id, properties: Properties::new(), filters };
            both.extend(bytes(Packet::Unsubscribe(leave)));
            both
        })
    }),
    ("releases of nothing", |size| repeat(size, |index| bytes(Packet::PubRel(Ack::new(id(index)))))),
    ("pings", |size| repeat(size, |_| bytes(Packet::PingReq))),
];

#[test]
fn what_a_client_of_mqtt_says_costs_in_proportion() {
    for (what, case) in CASES {
        for size in SIZES {
            assert_cheap(what, AFTER, &case(size), known);
        }
    }
}

#[test]
fn each_packet_of_mqtt_again_and_again_costs_in_proportion() {
    for kind in kinds() {
        let piece = encode(&row(kind, Version::V5, Credentials::None, Ids::Others).0, Version::V5);
        let bytes = repeat(100_000, |_| piece.to_vec());
        assert_cheap(&format!("{kind:?}"), AFTER, &bytes, known);
        let stranger = || {
            let mut world = world(true);
            let id = world.connect("10.9.8.7:1");
            (world, id)
        };
        assert_cheap(&format!("{kind:?} of a stranger"), BEFORE, &bytes, stranger);
    }
}

#[test]
fn a_connect_of_mqtt_costs_in_proportion_to_its_size() {
    for size in [100, 1000, 10_000, 60_000] {
        let count = (size - HEAD) / 5;
        let connect = |properties| {
            let connect = Connect { properties, ..Connect::new(Version::V5, "c") };
            bytes(Packet::Connect(Box::new(connect)))
        };
        let many = connect((0..count).map(|_| Property::User("".into(), "".into())).collect());
        let long = bytes(Packet::Connect(Box::new(Connect {
            user_name: Some("u".repeat((size - HEAD) / 2).into()),
            password: Some(vec![b'.'; (size - HEAD) / 2].into()),
            ..Connect::new(Version::V5, "c")
        })));
        for (what, bytes) in [("user properties", many), ("a long password", long)] {
            assert_cheap(what, BEFORE, &bytes, || {
                let mut world = world(true);
                let id = world.connect("10.9.8.7:1");
                (world, id)
            });
        }
    }
}

/// A filter of `bits` levels in one of two spellings each, behind `root`, for all topics below it.
fn branch(root: &str, bits: usize, number: usize) -> String {
    let levels = (0..bits).map(|bit| if number >> bit & 1 == 1 { "/+" } else { "/a" });
    format!("{root}{}/#", levels.collect::<String>())
}

/// A topic that 2^`bits` of these filters match.
fn branched(root: &str, bits: usize, index: usize) -> String {
    format!("{root}{}/{index}", "/a".repeat(bits))
}

/// A connected client that has no subscription.
fn newcomer(world: &mut World<Broker>, name: &str) -> u64 {
    let id = world.connect("127.0.0.1:1");
    world.tell(id, &bytes(Packet::Connect(Box::new(Connect::new(Version::V5, name))))).unwrap();
    world.hear(id);
    id
}

/// The acknowledgements among some bytes, by packet identifier.
fn acknowledged(mut heard: BytesMut) -> Vec<u16> {
    let mut ids = Vec::new();
    while let Some(frame) = frame::Decoder::new(usize::MAX).next(&mut heard).unwrap() {
        match Packet::decode(&frame, Version::V5, Sender::Server).unwrap() {
            Packet::PubAck(ack) => ids.push(ack.packet_id.get()),
            other => panic!("{other:?}"),
        }
    }
    ids
}

#[test]
fn publishers_whose_messages_are_dear_to_route_take_turns_and_others_go_on() {
    const BITS: usize = 12;
    const MESSAGES: usize = 60;
    let mut world = world(false);
    let subscriber = newcomer(&mut world, "subscriber");
    for part in 0..64 {
        let filters = 1 << BITS >> 6;
        let all = (0..filters).map(|number| {
            (branch("deep", BITS, part * filters + number).into(), SubscribeOptions::qos(QoS::AtMostOnce))
        });
        let subscribe =
            Subscribe { packet_id: id(part), properties: Properties::new(), filters: all.collect() };
        world.tell(subscriber, &bytes(Packet::Subscribe(subscribe))).unwrap();
    }
    world.hear(subscriber);
    let dear = ["one", "two"].map(|name| newcomer(&mut world, name));
    let neighbour = newcomer(&mut world, "neighbour");
    // Each has topics of its own: the subscribers of recent topics are remembered.
    let mut inputs = ["one", "two"].map(|end| {
        let topic = |index| format!("{}/{end}", branched("deep", BITS, index));
        let messages = (0..MESSAGES).map(|index| publish(index, QoS::AtLeastOnce, topic(index), 1));
        BytesMut::from(&*messages.collect::<Vec<_>>().concat())
    });
    let mut done = dear.map(|_| Vec::new());
    for (place, input) in inputs.iter_mut().enumerate() {
        // Routing one message takes 8,000 steps and more.
        world.feed(dear[place], input).unwrap();
        done[place].extend(acknowledged(world.hear(dear[place])));
        let now = done[place].len();
        assert!((1..=16).contains(&now), "{now} of {MESSAGES} messages in one turn");
        assert!(!world.broker.may_read(dear[place]), "the rest is before what comes");
    }
    let mut turns = 0;
    while done.iter().any(|done| done.len() < MESSAGES) {
        turns += 1;
        assert!(turns < 2 * MESSAGES, "{done:?}");
        // Whoever needs few steps has them at any time.
        world.tell(neighbour, &publish(turns, QoS::AtLeastOnce, format!("flat/{turns}"), 1)).unwrap();
        assert_eq!(acknowledged(world.hear(neighbour)), [id(turns).get()]);
        assert!(world.broker.may_read(neighbour));
        assert!(world.broker.poll_timeout().is_some_and(|at| at <= world.now), "the next turn is due");
        world.broker.handle_timeout(world.now);
        for (place, input) in inputs.iter_mut().enumerate() {
            let before = done[place].len();
            world.feed(dear[place], input).unwrap();
            done[place].extend(acknowledged(world.hear(dear[place])));
            assert!(done[place].len() - before <= 16, "{done:?}");
        }
        let counts = done.each_ref().map(Vec::len);
        assert!(counts[0].abs_diff(counts[1]) <= 32, "{counts:?}: each has its turn");
    }
    let all: Vec<u16> = (0..MESSAGES).map(|index| id(index).get()).collect();
    assert_eq!(done, [all.clone(), all], "in order, each once");
    assert!(dear.iter().all(|id| world.broker.may_read(*id)));
}

#[test]
fn a_connection_that_waits_for_its_turn_is_not_taken_for_a_silent_one() {
    let mut world = world(false);
    let subscriber = newcomer(&mut world, "subscriber");
    for member in 0..101 {
        let filters = vec![("$share/g/wide".into(), SubscribeOptions::qos(QoS::AtMostOnce))];
        let subscribe = Subscribe { packet_id: id(member), properties: Properties::new(), filters };
        let member = newcomer(&mut world, &format!("member{member}"));
        world.tell(member, &bytes(Packet::Subscribe(subscribe))).unwrap();
    }
    world.broker.disconnect(world.now, subscriber);
    let me = world.connect("127.0.0.1:1");
    let connect = Connect { keep_alive: 1, ..Connect::new(Version::V5, "me") };
    world.tell(me, &bytes(Packet::Connect(Box::new(connect)))).unwrap();
    let count = 1500;
    let all = (0..count).map(|index| publish(index, QoS::AtMostOnce, "wide".into(), 1));
    let mut input = BytesMut::from(&*all.collect::<Vec<_>>().concat());
    world.feed(me, &mut input).unwrap();
    assert!(!input.is_empty(), "each message is offered to 101 members");
    assert_eq!(world.broker.session_timeout(me), None);
    world.now += Duration::from_secs(5);
    world.broker.handle_timeout(world.now);
    let patient = |world: &World<Broker>| world.broker.session_timeout(me).is_some_and(|at| at > world.now);
    assert!(patient(&world), "what it has sent meanwhile is not read yet");
    world.feed(me, &mut input).unwrap();
    assert!(input.is_empty() && patient(&world));
}
