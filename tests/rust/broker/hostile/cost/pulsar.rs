//! What Pulsar's commands cost.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use forebay_broker::auth::TokenKeys;
use forebay_broker::log::cursor::MAX_BATCH;
use forebay_broker::pulsar::Broker;
use forebay_broker::pulsar::options::Settings;
use forebay_broker::store::Found;
use forebay_pulsar::command::Command;
use forebay_pulsar::frame::{Frame, Payload};
use forebay_pulsar::{hot, pb};

use super::{AFTER, BEFORE, SIZES, assert_cheap, repeat};
use crate::hostile::strangers::pulsar::{bytes, row};
use crate::hostile::strangers::{Credentials, Ids};
use crate::hostile::world::World;
use crate::support::pulsar::settings;

const TOPIC: &str = "persistent://public/default/orders";
/// Size of the schema of the topic.
const SCHEMA: usize = 50_000;

fn world(secured: bool) -> World<Broker> {
    let now = Instant::now();
    let tokens = secured.then(|| Arc::new(TokenKeys::new(&[b'7'; 32]).unwrap()));
    let mut settings = Settings { max_topics: 10_000, namespaces: vec!["*".into()], ..settings(now) };
    settings.session.tokens = tokens;
    World::new(Broker::new(settings, Found::default(), None, now), now)
}

/// A connected client with a producer and a consumer, on a broker with many topics, a schema and
/// some messages.
fn known() -> (World<Broker>, u64) {
    let mut world = world(false);
    for index in 0..2000 {
        world.broker.create_topic(&format!("persistent://public/default/topic-{index}"), 0).unwrap();
    }
    world.settle();
    let id = world.connect("127.0.0.1:1");
    let connect = pb::CommandConnect {
        client_version: "test".into(),
        protocol_version: Some(21),
        ..Default::default()
    };
    let schema = pb::Schema {
        name: "n".into(),
        schema_data: vec![b'x'; SCHEMA].into(),
        r#type: pb::schema::Type::ProtobufNative as i32,
        ..Default::default()
    };
    for command in [
        Command::Connect(connect),
        Command::Producer(Box::new(pb::CommandProducer {
            topic: TOPIC.into(),
            producer_id: 1,
            request_id: 1,
            schema: Some(schema),
            ..Default::default()
        })),
        Command::Subscribe(Box::new(pb::CommandSubscribe {
            topic: TOPIC.into(),
            subscription: "s".into(),
            sub_type: 1,
            consumer_id: 1,
            request_id: 2,
            ..Default::default()
        })),
    ] {
        world.tell(id, &bytes(command)).unwrap();
    }
    for sequence in 0..100 {
        // As large a batch as the broker believes.
        world.tell(id, &send(sequence, MAX_BATCH as i32, 100)).unwrap();
    }
    world.hear(id);
    let topic = world.broker.topic_stats(TOPIC).unwrap();
    assert_eq!(topic.entries, 100, "{topic:?}");
    (world, id)
}

/// A message that claims to be a batch of `count`.
fn send(sequence_id: u64, count: i32, size: usize) -> Vec<u8> {
    let metadata = pb::MessageMetadata {
        producer_name: "p".into(),
        sequence_id,
        num_messages_in_batch: Some(count),
        ..Default::default()
    };
    let mut head = BytesMut::new();
    hot::encode_metadata(&metadata, &mut head);
    let payload = Payload::build(&head, &vec![7; size]);
    let command = Command::Send(hot::Send { producer_id: 1, sequence_id, ..Default::default() });
    Frame { command, payload: Some(payload) }.to_bytes().to_vec()
}

/// An acknowledgement of `ids` of the consumer.
fn ack(ids: Vec<pb::MessageIdData>) -> Vec<u8> {
    let ack = hot::Ack { consumer_id: 1, message_ids: ids, request_id: Some(9), ..Default::default() };
    bytes(Command::Ack(ack)).to_vec()
}

fn entry(entry_id: u64) -> pb::MessageIdData {
    // The topic's number in the store follows those of the others.
    pb::MessageIdData { ledger_id: 7 + 2000, entry_id, ..Default::default() }
}

type Case = (&'static str, fn(usize) -> Vec<u8>);

const CASES: &[Case] = &[
    ("the same schema again and again", |size| {
        repeat(size, |index| {
            let request_id = index as u64;
            let get = pb::CommandGetSchema { request_id, topic: TOPIC.into(), schema_version: None };
            bytes(Command::GetSchema(get)).to_vec()
        })
    }),
    ("the list of topics again and again", |size| {
        repeat(size, |index| {
            bytes(Command::GetTopicsOfNamespace(Box::new(pb::CommandGetTopicsOfNamespace {
                request_id: index as u64,
                namespace: "public/default".into(),
                ..Default::default()
            })))
            .to_vec()
        })
    }),
    ("watchers of patterns again and again", |size| {
        repeat(size, |index| {
            bytes(Command::WatchTopicList(pb::CommandWatchTopicList {
                request_id: index as u64,
                watcher_id: index as u64 % 50,
                namespace: "public/default".into(),
                topics_pattern: format!(r"public/default/(topic|{index}).*"),
                topics_hash: None,
            }))
            .to_vec()
        })
    }),
    ("watchers of patterns that are costly to compile", |size| {
        repeat(size, |index| {
            bytes(Command::WatchTopicList(pb::CommandWatchTopicList {
                request_id: index as u64,
                watcher_id: 1,
                namespace: "public/default".into(),
                topics_pattern: format!("(?i){index}{}", r"[^a]\W\S.{9}(ſ|K)*".repeat(10)),
                topics_hash: None,
            }))
            .to_vec()
        })
    }),
    ("topics that appear while many patterns are watched", |size| {
        let mut all: Vec<u8> = (0..100_u64)
            .flat_map(|index| {
                bytes(Command::WatchTopicList(pb::CommandWatchTopicList {
                    request_id: index,
                    watcher_id: index,
                    namespace: "public/default".into(),
                    topics_pattern: format!(".*{index}"),
                    topics_hash: None,
                }))
                .to_vec()
            })
            .collect();
        all.extend(repeat(size, |index| {
            bytes(Command::Producer(Box::new(pb::CommandProducer {
                topic: format!("persistent://public/default/made-{index}"),
                producer_id: 100 + index as u64,
                request_id: index as u64,
                ..Default::default()
            })))
            .to_vec()
        }));
        all
    }),
    ("an acknowledgement of parts of a claimed batch", |size| {
        let words = vec![-1; (size / 12).max(1)];
        ack(vec![pb::MessageIdData { ack_set: words, batch_size: Some(i32::MAX), ..entry(0) }])
    }),
    ("an acknowledgement of parts with short words", |size| {
        let words = vec![1; (size / 3).max(1)];
        ack(vec![pb::MessageIdData { ack_set: words, batch_size: Some(i32::MAX), ..entry(0) }])
    }),
    ("acknowledgements of parts of claimed batches", |size| {
        repeat(size, |index| {
            let words = vec![1; 2000];
            let part =
                pb::MessageIdData { ack_set: words, batch_size: Some(i32::MAX), ..entry(index as u64 % 100) };
            ack(vec![part])
        })
    }),
    ("acknowledgements of parts of batches as large as they may be", |size| {
        repeat(size, |index| {
            let words = vec![1; (1 << 20) / 64];
            ack(vec![pb::MessageIdData { ack_set: words, ..entry(index as u64 % 100) }])
        })
    }),
    ("an acknowledgement of single messages of many batches", |size| {
        let part =
            |number: u64| pb::MessageIdData { ack_set: vec![-2 - number as i64], ..entry(number % 100) };
        ack((0..size as u64 / 24).map(part).collect())
    }),
    ("an acknowledgement of entries that do not exist", |size| {
        ack((0..size as u64 / 12).map(|number| entry(number * 2 + 1_000)).collect())
    }),
    ("an acknowledgement of every entry, often", |size| {
        ack((0..size as u64 / 8).map(|number| entry(number % 100)).collect())
    }),
    ("entries delivered again", |size| {
        let message_ids = (0..size as u64 / 8).map(|number| entry(number % 100)).collect();
        let again =
            pb::CommandRedeliverUnacknowledgedMessages { consumer_id: 1, message_ids, consumer_epoch: None };
        bytes(Command::RedeliverUnacknowledgedMessages(again)).to_vec()
    }),
    ("flow", |size| {
        repeat(size, |_| bytes(Command::Flow(hot::Flow { consumer_id: 1, permits: u32::MAX })).to_vec())
    }),
    ("flow and redelivery", |size| {
        repeat(size, |_| {
            let again = pb::CommandRedeliverUnacknowledgedMessages { consumer_id: 1, ..Default::default() };
            let mut both = bytes(Command::Flow(hot::Flow { consumer_id: 1, permits: 1000 })).to_vec();
            both.extend(bytes(Command::RedeliverUnacknowledgedMessages(again)));
            both
        })
    }),
    ("consumers", |size| {
        repeat(size, |index| {
            bytes(Command::Subscribe(Box::new(pb::CommandSubscribe {
                topic: TOPIC.into(),
                subscription: "s".into(),
                sub_type: 1,
                consumer_id: index as u64 + 10,
                request_id: index as u64,
                ..Default::default()
            })))
            .to_vec()
        })
    }),
    ("consumers of hash ranges", |size| {
        repeat(size, |index| {
            bytes(Command::Subscribe(Box::new(pb::CommandSubscribe {
                topic: TOPIC.into(),
                subscription: "sticky".into(),
                sub_type: 3,
                consumer_id: index as u64 + 10,
                request_id: index as u64,
                key_shared_meta: Some(pb::KeySharedMeta {
                    key_shared_mode: pb::KeySharedMode::Sticky as i32,
                    hash_ranges: (0..20)
                        .map(|range| {
                            let start = (index as i32 * 20 + range) * 2 % 65_000;
                            pb::IntRange { start, end: start }
                        })
                        .collect(),
                    ..Default::default()
                }),
                ..Default::default()
            })))
            .to_vec()
        })
    }),
    ("a consumer of many hash ranges, the last of which is taken", |size| {
        repeat(size, |index| {
            let ranges =
                (0..60_000_i32.min(size as i32 / 20)).map(|range| pb::IntRange { start: range, end: range });
            bytes(Command::Subscribe(Box::new(pb::CommandSubscribe {
                topic: TOPIC.into(),
                subscription: "ranges".into(),
                sub_type: 3,
                consumer_id: index as u64 + 10,
                request_id: index as u64,
                key_shared_meta: Some(pb::KeySharedMeta {
                    key_shared_mode: pb::KeySharedMode::Sticky as i32,
                    hash_ranges: ranges.chain([pb::IntRange::default()]).collect(),
                    ..Default::default()
                }),
                ..Default::default()
            })))
            .to_vec()
        })
    }),
    ("subscriptions", |size| {
        repeat(size, |index| {
            bytes(Command::Subscribe(Box::new(pb::CommandSubscribe {
                topic: TOPIC.into(),
                subscription: format!("s{index}"),
                sub_type: 1,
                consumer_id: index as u64 + 10,
                request_id: index as u64,
                ..Default::default()
            })))
            .to_vec()
        })
    }),
    ("producers of new topics", |size| {
        repeat(size, |index| {
            bytes(Command::Producer(Box::new(pb::CommandProducer {
                topic: format!("persistent://public/default/new-{index}"),
                producer_id: index as u64 + 10,
                request_id: index as u64,
                ..Default::default()
            })))
            .to_vec()
        })
    }),
    ("schemas", |size| {
        repeat(size, |index| {
            bytes(Command::GetOrCreateSchema(Box::new(pb::CommandGetOrCreateSchema {
                request_id: index as u64,
                topic: TOPIC.into(),
                schema: pb::Schema {
                    name: "n".into(),
                    schema_data: Bytes::from(format!("{index:0100}")),
                    r#type: pb::schema::Type::Json as i32,
                    ..Default::default()
                },
                ..Default::default()
            })))
            .to_vec()
        })
    }),
    ("messages that claim large batches", |size| {
        repeat(size, |index| send(1000 + index as u64, i32::MAX, 1))
    }),
    ("a large message", |size| send(1000, 1, size)),
    ("seeks", |size| {
        repeat(size, |index| {
            bytes(Command::Seek(Box::new(pb::CommandSeek {
                consumer_id: 1,
                request_id: index as u64,
                message_id: Some(entry(0)),
                message_publish_time: None,
            })))
            .to_vec()
        })
    }),
    ("statistics", |size| {
        repeat(size, |index| {
            let stats = pb::CommandConsumerStats { request_id: index as u64, consumer_id: 1 };
            bytes(Command::ConsumerStats(stats)).to_vec()
        })
    }),
];

#[test]
fn what_a_client_of_pulsar_says_costs_in_proportion() {
    for (what, case) in CASES {
        for size in SIZES {
            assert_cheap(what, AFTER, &case(size), known);
        }
    }
}

#[test]
fn each_command_of_pulsar_again_and_again_costs_in_proportion() {
    for (_, name) in Command::KNOWN {
        let (command, _) = row(name, Credentials::None, Ids::Others).expect("every command has a row");
        let piece = bytes(command);
        let bytes = repeat(100_000, |_| piece.to_vec());
        assert_cheap(name, AFTER, &bytes, known);
        assert_cheap(&format!("{name} of a stranger"), BEFORE, &bytes, || {
            let mut world = world(true);
            let id = world.connect("10.9.8.7:1");
            (world, id)
        });
    }
}
