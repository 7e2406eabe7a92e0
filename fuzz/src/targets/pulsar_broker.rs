//! Clients' bytes into the embedded Pulsar broker, from several connections at once, with commands
//! among them that make sense and commands that are sent many times: it answers or ends the
//! connection, its own frames can be decoded, and everything costs in proportion to the bytes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use forebay_broker::auth::TokenKeys;
use forebay_broker::pulsar::Broker;
use forebay_broker::pulsar::options::Settings;
use forebay_broker::store::Found;
use forebay_pulsar::command::Command;
use forebay_pulsar::frame::{Decoder, Frame, Payload};
use forebay_pulsar::{hot, pb};
use crate::hub::{self, Hub, World as _};
use crate::rule::{AFTER, BEFORE};
use crate::script::{Script, repeat};
use crate::settings;

const TOPICS: [&str; 4] = ["orders", "late", "persistent://public/default/split", "no/such/one"];
/// Most messages that a batch may claim. Not the broker's own number: one that believes more is to
/// be noticed.
const BATCH: usize = 1 << 20;
/// Largest frame, about.
const LARGEST: usize = 64 << 10;

struct World {
    hub: Hub<Broker>,
    secured: bool,
    /// Entries that were sent and received.
    sent: u64,
    /// Commands so far.
    number: u64,
}

impl World {
    fn new(flags: u8) -> Self {
        let (stored, secured, large) = (flags & 1 == 1, flags & 4 != 0, flags & 8 != 0);
        let now = Instant::now();
        let mut settings = Settings {
            stored,
            deduplicate: flags & 2 != 0,
            retention: Duration::from_secs(10),
            retention_bytes: 1 << 10,
            namespaces: vec!["*".into()],
            ..settings::pulsar(now)
        };
        settings.session.max_message_size = LARGEST;
        settings.session.tokens = secured.then(|| Arc::new(TokenKeys::new(&[b'7'; 32]).unwrap()));
        let mut broker = Broker::new(settings, Found::default(), None, now);
        broker.create_topic("persistent://public/default/orders", 0).unwrap();
        broker.create_topic(TOPICS[2], 2).unwrap();
        let mut world = Self { hub: Hub::new(broker, now, large), secured, sent: 0, number: 0 };
        world.hub.settle();
        world.hub.write();
        (0..3).for_each(|index| world.present(index));
        world
    }
}

impl hub::World for World {
    type Broker = Broker;

    fn hub(&mut self) -> &mut Hub<Broker> {
        &mut self.hub
    }

    fn present(&mut self, index: usize) {
        if !self.secured {
            let connect = pb::CommandConnect {
                client_version: "fuzz".into(),
                protocol_version: Some(21),
                ..Default::default()
            };
            self.feed(index, &bytes(Command::Connect(connect)));
        }
    }

    fn ended(&mut self, index: usize) {
        self.present(index);
    }

    /// Decodes the broker's output, which must be Pulsar.
    fn listen(&mut self, index: usize) {
        let (mut all, mut decoder) = (self.hub.listen(index), Decoder::new(usize::MAX >> 1));
        while let Some(frame) = decoder.next(&mut all).expect("a frame") {
            match frame.command {
                Command::Message(_) => assert!(frame.payload.is_some(), "a delivery without an entry"),
                Command::SendReceipt(_) => self.sent += 1,
                _ => {}
            }
        }
        assert!(all.is_empty(), "half a frame");
    }

    fn step(&mut self, index: usize, kind: u8, script: &mut Script<'_>) {
        match kind {
            3 => {
                let (kind, what, count) = (script.byte(), script.byte(), script.count());
                let first = self.number;
                let many = repeat(count, self.hub.room(), |step| command(kind, what, first + step as u64));
                self.number += count as u64;
                self.hub.charge(many.len());
                self.feed(index, &many);
            }
            4..22 => {
                self.number += 1;
                // A frame that is not whole yet would take it in.
                if !self.hub.is_amid(index) {
                    let command = command(kind - 4, script.byte(), self.number);
                    self.feed(index, &command);
                }
            }
            size => self.feed(index, script.take(usize::from(size) - 21)),
        }
    }
}

fn bytes(command: Command) -> Vec<u8> {
    Frame { command, payload: None }.to_bytes().to_vec()
}

/// A command of which the input chooses the parts.
fn command(kind: u8, what: u8, number: u64) -> Vec<u8> {
    use Command as C;
    let bit = |place: u8| what >> place & 1 == 1;
    let topic = TOPICS[usize::from(what & 3)].to_owned();
    let request_id = number;
    let (producer_id, consumer_id) = (u64::from(what >> 2 & 1), u64::from(what >> 2 & 3));
    let entry = pb::MessageIdData {
        ledger_id: 7 + u64::from(what >> 7),
        entry_id: number % 16,
        batch_index: bit(6).then_some(i32::from(what & 7)),
        ack_set: if bit(5) { vec![-1; usize::from(what & 31) + 1] } else { Vec::new() },
        batch_size: bit(4).then_some(if bit(3) { i32::MAX } else { 64 }),
        ..Default::default()
    };
    bytes(match kind % 20 {
        0 => C::Producer(Box::new(pb::CommandProducer {
            topic,
            producer_id,
            request_id,
            producer_name: bit(3).then(|| "p".into()),
            schema: bit(4).then(|| schema(usize::from(what) * 200)),
            producer_access_mode: Some(i32::from(what >> 5 & 3)),
            ..Default::default()
        })),
        1 => C::Subscribe(Box::new(pb::CommandSubscribe {
            topic,
            subscription: if bit(7) { format!("s{number}") } else { "s".into() },
            sub_type: i32::from(what >> 5 & 3),
            consumer_id,
            request_id,
            durable: Some(!bit(4)),
            initial_position: Some(i32::from(bit(3))),
            key_shared_meta: bit(3).then(|| pb::KeySharedMeta {
                key_shared_mode: i32::from(bit(4)),
                hash_ranges: (0..number as i32 % 600)
                    .map(|range| pb::IntRange { start: range * 100, end: range * 100 + i32::from(what) })
                    .collect(),
                ..Default::default()
            }),
            ..Default::default()
        })),
        2 | 3 => {
            let metadata = pb::MessageMetadata {
                producer_name: "p".into(),
                sequence_id: number,
                num_messages_in_batch: bit(3).then_some(match (bit(4), kind) {
                    (false, _) => 64,
                    (true, 2) => i32::MAX,
                    (true, _) => BATCH as i32,
                }),
                partition_key: bit(5).then(|| number.to_string()),
                deliver_at_time: bit(6).then_some(1_700_000_005_000),
                ..Default::default()
            };
            let mut head = BytesMut::new();
            hot::encode_metadata(&metadata, &mut head);
            let payload = Payload::build(&head, &vec![7; usize::from(what)]);
            let command = C::Send(hot::Send { producer_id, sequence_id: number, ..Default::default() });
            return Frame { command, payload: Some(payload) }.to_bytes().to_vec();
        }
        4 => C::Flow(hot::Flow { consumer_id, permits: if bit(7) { u32::MAX } else { u32::from(what) } }),
        5 | 6 => C::Ack(hot::Ack {
            consumer_id,
            ack_type: u8::from(bit(2)).into(),
            message_ids: vec![entry; usize::from(what & 3) + 1],
            request_id: bit(7).then_some(request_id),
            ..Default::default()
        }),
        7 => C::RedeliverUnacknowledgedMessages(pb::CommandRedeliverUnacknowledgedMessages {
            consumer_id,
            message_ids: if bit(7) { vec![entry] } else { Vec::new() },
            consumer_epoch: bit(6).then_some(number),
        }),
        8 => C::Seek(Box::new(pb::CommandSeek {
            consumer_id,
            request_id,
            message_publish_time: bit(7).then_some(1_700_000_000_000 + number),
            message_id: (!bit(7)).then_some(entry),
        })),
        9 => C::Unsubscribe(pb::CommandUnsubscribe { consumer_id, request_id, force: Some(bit(7)) }),
        10 => C::CloseProducer(pb::CommandCloseProducer { producer_id, request_id, ..Default::default() }),
        11 => C::CloseConsumer(pb::CommandCloseConsumer { consumer_id, request_id, ..Default::default() }),
        12 => C::GetSchema(pb::CommandGetSchema { request_id, topic, schema_version: None }),
        13 => C::GetTopicsOfNamespace(Box::new(pb::CommandGetTopicsOfNamespace {
            request_id,
            namespace: "public/default".into(),
            topics_pattern: bit(7).then(|| "(a+)+b".into()),
            ..Default::default()
        })),
        14 => C::Lookup(Box::new(pb::CommandLookupTopic { topic, request_id, ..Default::default() })),
        15 => C::PartitionedMetadata(pb::CommandPartitionedTopicMetadata {
            topic: if bit(7) { format!("new{number}") } else { topic },
            request_id,
            ..Default::default()
        }),
        16 => C::GetLastMessageId(pb::CommandGetLastMessageId { consumer_id, request_id }),
        17 => C::GetOrCreateSchema(Box::new(pb::CommandGetOrCreateSchema {
            request_id,
            topic,
            schema: schema(usize::from(what) + number as usize % 1000),
            ..Default::default()
        })),
        18 => C::Producer(Box::new(pb::CommandProducer {
            topic: format!("{}{number}", "long".repeat(usize::from(what))),
            producer_id: number,
            request_id,
            ..Default::default()
        })),
        // Of a batch as large as its sender may claim: all of its words, or as many as a frame can
        // have.
        _ => {
            let words = if bit(7) { LARGEST / 2 - 100 } else { BATCH / 64 };
            C::Ack(hot::Ack {
                consumer_id,
                message_ids: vec![pb::MessageIdData {
                    ledger_id: 7,
                    entry_id: number % 64,
                    ack_set: vec![1; words],
                    batch_size: Some(if bit(4) { i32::MAX } else { BATCH as i32 }),
                    ..Default::default()
                }],
                ..Default::default()
            })
        }
    })
}

fn schema(size: usize) -> pb::Schema {
    pb::Schema {
        name: "n".into(),
        schema_data: vec![b'x'; size].into(),
        r#type: pb::schema::Type::Json as i32,
        ..Default::default()
    }
}

/// Plays one input.
pub fn play(data: &[u8]) {
    let mut script = Script(data);
    let Some(first) = script.next() else { return };
    let mut world = World::new(first);
    hub::play(&mut world, &mut script);
    world.hub.check(if world.secured { BEFORE } else { AFTER });
    let stats = world.hub.broker.stats();
    assert!(stats.messages_in >= world.sent && (!world.secured || stats.messages_in == 0));
}
