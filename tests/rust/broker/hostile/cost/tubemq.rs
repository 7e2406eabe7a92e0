//! What TubeMQ's calls cost.

use std::time::Instant;

use bytes::Bytes;
use forebay_broker::store::Found;
use forebay_broker::tubemq::{Broker, Settings, Users};
use forebay_tubemq::command::{Method, Request};
use forebay_tubemq::pb;

use super::{AFTER, BEFORE, SIZES, assert_cheap, repeat};
use crate::hostile::strangers::Ids;
use crate::hostile::strangers::tubemq::{Shown, encode, row};
use crate::hostile::world::World;
use crate::support::tubemq::settings;

fn world(secured: bool) -> World<Broker> {
    let now = Instant::now();
    let settings = Settings {
        partitions: 3,
        max_topics: 10_000,
        users: secured.then(|| Users::parse("alice:her-word\n").unwrap()),
        ..settings(now)
    };
    World::new(Broker::new(settings, Found::default(), None, now), now)
}

fn call(request: Request) -> Vec<u8> {
    encode(vec![request])
}

fn first(method: Method) -> Request {
    row(method, Ids::Others, &Shown::default()).0.remove(0)
}

/// A client that holds a partition with messages, on a broker with many topics.
fn known() -> (World<Broker>, u64) {
    let mut world = world(false);
    for index in 0..300 {
        world.broker.create_topic(&format!("topic_{index}"), 2).unwrap();
    }
    world.settle();
    let id = world.connect("127.0.0.1:1");
    for method in [Method::ProducerRegister, Method::ConsumerRegister, Method::PartitionRegister] {
        world.tell(id, &call(first(method))).unwrap();
    }
    for _ in 0..100 {
        let Request::SendMessage(mut send) = first(Method::SendMessage) else { panic!("a message") };
        send.data = Bytes::from(vec![7; 1000]);
        world.tell(id, &call(Request::SendMessage(send))).unwrap();
    }
    world.hear(id);
    (world, id)
}

fn texts(size: usize, text: impl Fn(usize) -> String) -> Vec<String> {
    let mut left = size;
    (0..)
        .map(text)
        .take_while(|text| {
            let fits = left > text.len() + 4;
            left = left.saturating_sub(text.len() + 4);
            fits
        })
        .collect()
}

type Case = (&'static str, fn(usize) -> Vec<u8>);

/// Bytes that fit into one call.
const CALL: usize = 1 << 20;

const CASES: &[Case] = &[
    ("the same messages again and again", |size| repeat(size, |_| call(first(Method::GetMessages)))),
    ("a heartbeat for partitions that do not exist", |size| {
        let Request::PartitionHeartbeat(mut beat) = first(Method::PartitionHeartbeat) else { panic!() };
        beat.partition_info = texts(size.min(CALL), |number| format!("1:127.0.0.1:8123#none:{number}"));
        call(Request::PartitionHeartbeat(beat))
    }),
    ("a heartbeat for one partition, often", |size| {
        let Request::PartitionHeartbeat(mut beat) = first(Method::PartitionHeartbeat) else { panic!() };
        beat.partition_info = texts(size.min(CALL), |_| "1:127.0.0.1:8123#demo:0".into());
        call(Request::PartitionHeartbeat(beat))
    }),
    ("a heartbeat for short texts", |size| {
        let Request::PartitionHeartbeat(mut beat) = first(Method::PartitionHeartbeat) else { panic!() };
        beat.partition_info = texts(size.min(CALL), |_| String::new());
        call(Request::PartitionHeartbeat(beat))
    }),
    ("a producer of many topics", |size| {
        let request = pb::RegisterRequestP2m {
            client_id: "p".into(),
            topic_list: texts(size.min(CALL), |number| format!("t{number}")),
            host_name: "h".into(),
            ..Default::default()
        };
        call(Request::ProducerRegister(request))
    }),
    ("heartbeats of a producer for every topic", |size| {
        repeat(size, |_| {
            let topic_list = (0..300).map(|index| format!("topic_{index}")).collect();
            let client_id = "alice-producer".into();
            call(Request::ProducerHeartbeat(pb::HeartRequestP2m {
                client_id,
                topic_list,
                ..Default::default()
            }))
        })
    }),
    ("producers", |size| {
        repeat(size, |index| {
            let client_id = format!("p{index}");
            call(Request::ProducerRegister(pb::RegisterRequestP2m { client_id, ..Default::default() }))
        })
    }),
    ("consumers of a group", |size| {
        repeat(size, |index| {
            let Request::ConsumerRegister(mut register) = first(Method::ConsumerRegister) else { panic!() };
            register.client_id = format!("c{index}");
            call(Request::ConsumerRegister(register))
        })
    }),
    ("groups", |size| {
        repeat(size, |index| {
            let Request::ConsumerRegister(mut register) = first(Method::ConsumerRegister) else { panic!() };
            register.group_name = format!("g{index}");
            call(Request::ConsumerRegister(register))
        })
    }),
    ("a consumer with many conditions", |size| {
        let Request::ConsumerRegister(mut register) = first(Method::ConsumerRegister) else { panic!() };
        register.group_name = "new".into();
        register.topic_condition = texts(size.min(CALL), |number| format!("demo#{number},a,b,c,d,e,f"));
        call(Request::ConsumerRegister(register))
    }),
    ("a consumer that holds much", |size| {
        let Request::ConsumerRegister(mut register) = first(Method::ConsumerRegister) else { panic!() };
        register.subscribe_info =
            texts(size.min(CALL), |number| format!("c@g#1:127.0.0.1:8123#demo:{number}"));
        call(Request::ConsumerRegister(register))
    }),
    ("partitions for many groups", |size| {
        repeat(size, |index| {
            let Request::PartitionRegister(mut register) = first(Method::PartitionRegister) else { panic!() };
            register.group_name = format!("g{index}");
            call(Request::PartitionRegister(register))
        })
    }),
    ("messages", |size| repeat(size, |_| call(first(Method::SendMessage)))),
    ("the topics of a group", |size| repeat(size, |_| call(first(Method::PartitionMetadata)))),
];

#[test]
fn what_a_client_of_tubemq_says_costs_in_proportion() {
    for (what, case) in CASES {
        for size in SIZES {
            assert_cheap(what, AFTER, &case(size), known);
        }
    }
}

#[test]
fn each_method_of_tubemq_again_and_again_costs_in_proportion() {
    for method in Method::ALL {
        let piece = encode(row(*method, Ids::Others, &Shown::default()).0);
        let bytes = repeat(100_000, |_| piece.clone());
        assert_cheap(&format!("{method:?}"), AFTER, &bytes, known);
        assert_cheap(&format!("{method:?} of a stranger"), BEFORE, &bytes, || {
            let mut world = world(true);
            let id = world.connect("10.9.8.7:1");
            (world, id)
        });
    }
}
