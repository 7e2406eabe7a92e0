//! A broker's deliveries into a client's consumer, among calls of its user: what is delivered was
//! sent, an acknowledgement names what was delivered, permits are not granted twice, and memory is
//! bounded by what came.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use forebay_pulsar::command::Command;
use forebay_pulsar::consumer::{ChunkLimits, Consumer, Options, Unreadable};
use forebay_pulsar::frame::{DEFAULT_MAX_MESSAGE_SIZE, Decoder, Payload};
use forebay_pulsar::message::{Message, Outgoing};
use forebay_pulsar::pb::command_subscribe::SubType;
use forebay_pulsar::{hot, pb};
use forebay_base::transmit::Transmit;
use crate::meter::Meter;
use crate::rule::AFTER;
use crate::script::Script;

/// Messages to prefetch.
const WINDOW: u32 = 20;
/// Limit on a message.
const LARGEST: usize = 1 << 16;
/// Most permits that an entry may cost.
const MOST: i32 = 1 << 20;

struct World {
    consumer: Consumer,
    /// Whether the broker delivers only what it has permits for.
    fair: bool,
    /// Permits that the broker has.
    permits: i64,
    /// The most that an entry cost since the consumer was attached.
    largest: i64,
    now: Instant,
    meter: Meter,
    taken: Vec<Message>,
    /// Entries that came, and of how many messages.
    entries: BTreeSet<u64>,
    sent: usize,
    got: usize,
}

impl World {
    /// Delivers an entry.
    fn deliver(&mut self, id: u64, ack_set: Vec<i64>, redelivered: u32, entry: Entry) {
        if self.fair && self.permits <= 0 {
            return;
        }
        let bits = ack_set.clone();
        let delivery = hot::Delivery {
            consumer_id: 7,
            message_id: hot::IdData { ledger_id: 1, entry_id: id, ..Default::default() },
            redelivery_count: Some(redelivered),
            ack_set,
            ..Default::default()
        };
        self.entries.insert(id);
        self.sent += entry.messages;
        self.meter.came(entry.expanded.min(DEFAULT_MAX_MESSAGE_SIZE) / AFTER.factor);
        let (consumer, now) = (&mut self.consumer, self.now);
        let (failed, before) = (consumer.has_failed(), consumer.outstanding_permits());
        // Damaged entries are errors.
        let _ = self.meter.run(|| consumer.handle_message(now, delivery, entry.payload));
        let cost = before - consumer.outstanding_permits();
        if let Some(size) = entry.size {
            let left = |bit: &i32| {
                bits.is_empty()
                    || bits.get(*bit as usize / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
            };
            let expected = (0..size.clamp(1, MOST)).filter(left).count() as i64;
            assert_eq!(cost, if failed { 0 } else { expected }, "permits for a batch of {size}");
        }
        self.permits -= cost;
        self.largest = self.largest.max(cost);
        assert!(!self.fair || consumer.outstanding_permits() > -self.largest);
    }

    fn attach(&mut self) {
        self.consumer.attach();
        (self.permits, self.largest) = (0, 1);
    }

    fn take(&mut self, max: usize) {
        let mut out: Vec<Message> = Vec::new();
        let (consumer, meter) = (&mut self.consumer, &mut self.meter);
        meter.run(|| consumer.take(max, &mut out));
        assert!(out.len() <= max);
        self.got += out.len();
        for message in &out {
            assert!(self.entries.contains(&message.id.entry_id().1), "{:?} was not sent", message.id);
        }
        self.taken.append(&mut out);
        if self.taken.len() > 64 {
            let old = self.taken.drain(..32).collect::<Vec<_>>();
            self.meter.run(|| drop(old));
        }
    }

    /// The consumer's commands.
    fn hear(&mut self) {
        let mut out = Transmit::default();
        let consumer = &mut self.consumer;
        // The whole window, and what was delivered in excess: the rest of a batch, if the broker is
        // fair.
        let excess = (-consumer.outstanding_permits()).max(0);
        self.meter.run(|| consumer.poll_transmit(&mut out));
        self.meter.went(out.len());
        let mut bytes = self.meter.run(|| out.take());
        let mut decoder = Decoder::new(1 << 24);
        while let Some(frame) = decoder.next(&mut bytes).expect("a frame") {
            match frame.command {
                Command::Flow(flow) => {
                    let most = i64::from(WINDOW) + excess;
                    assert!((1..=most).contains(&i64::from(flow.permits)), "{flow:?} of {most}");
                    self.permits += i64::from(flow.permits);
                }
                Command::Ack(ack) => {
                    // A cumulative one ends before an entry that it must not cover.
                    let before = u64::from(ack.ack_type == pb::command_ack::AckType::Cumulative as i32);
                    for id in &ack.message_ids {
                        let ids = [id.entry_id, id.entry_id.wrapping_add(before)];
                        let known = ids.iter().any(|id| self.entries.contains(id));
                        assert!(known, "{id:?} was not sent");
                    }
                }
                Command::RedeliverUnacknowledgedMessages(_) => {}
                other => panic!("{other:?}"),
            }
        }
        self.meter.run(|| drop(bytes));
        assert!(self.consumer.outstanding_permits() <= i64::from(WINDOW));
    }
}

struct Entry {
    payload: Payload,
    /// As many messages as its bytes may hold.
    messages: usize,
    /// The number of messages in its metadata, if that is known.
    size: Option<i32>,
    /// Bytes that it claims to have when it is not compressed.
    expanded: usize,
}

/// An entry of `count` messages in the form of a batch, or one message.
fn entry(script: &mut Script<'_>, count: usize) -> Entry {
    let what = script.byte();
    let bit = |place: u8| what >> place & 1 == 1;
    let chunk = (bit(5) && count == 0).then(|| i32::from(script.byte() % 4));
    let size = if bit(2) { count as i32 } else { i32::from(what) << (what & 24) };
    let size = (count > 0 || bit(1)).then_some(size);
    let expanded = bit(3).then(|| u32::from(script.short()) << if bit(4) { 16 } else { 4 });
    let metadata = pb::MessageMetadata {
        producer_name: if bit(0) { "p".into() } else { "q".into() },
        sequence_id: u64::from(what >> 6),
        num_messages_in_batch: size,
        compression: bit(3).then_some(i32::from(what >> 4)),
        uncompressed_size: expanded,
        encryption_algo: (what == 0x13).then(|| "x".into()),
        uuid: chunk.map(|_| format!("u{}", what >> 6)),
        num_chunks_from_msg: chunk.map(|_| 3),
        total_chunk_msg_size: chunk.map(|_| if bit(7) { i32::MAX } else { 300 }),
        chunk_id: chunk,
        ..Default::default()
    };
    let mut head = BytesMut::new();
    hot::encode_metadata(&metadata, &mut head);
    let mut body = BytesMut::new();
    for number in 0..count {
        let outgoing = Outgoing { payload: &[number as u8], ..Default::default() };
        hot::encode_batched(&outgoing, number as u64, &mut body);
    }
    if count == 0 {
        let size = usize::from(script.byte() % 101);
        body.extend_from_slice(script.take(size));
        body.resize(if chunk.is_some() { 100 } else { body.len() }, 7);
    }
    // A body of the input may look like several messages, once it is expanded.
    let messages = if expanded.is_some() {
        DEFAULT_MAX_MESSAGE_SIZE
    } else if count == 0 {
        110
    } else {
        count
    };
    Entry {
        payload: Payload::build(&head, &body),
        messages,
        size: Some(size.unwrap_or(1)),
        expanded: expanded.unwrap_or_default() as usize,
    }
}

/// Plays one input.
pub fn play(data: &[u8]) {
    let mut script = Script(data);
    let Some(first) = script.next() else { return };
    let options = Options {
        kind: [SubType::Exclusive, SubType::Shared, SubType::Failover, SubType::KeyShared]
            [usize::from(first & 3)],
        durable: first & 4 == 0,
        receiver_queue: WINDOW,
        receive_buffer: 10_000,
        ack_group_time: Duration::from_millis(100),
        ack_group_max: 5,
        nack_delay: Duration::from_secs(1).into(),
        max_message_size: LARGEST,
        chunked: ChunkLimits {
            bytes: LARGEST,
            messages: usize::from(first >> 6),
            timeout: Duration::from_secs(u64::from(first >> 5 & 1)),
            ack: first & 128 != 0,
        },
        unreadable: [Unreadable::Skip, Unreadable::Fail, Unreadable::Discard][usize::from(first >> 3) % 3],
        batch_index_ack: first & 64 == 0,
        ..Options::default()
    };
    let mut world = World {
        consumer: Consumer::new(7, options),
        fair: first & 32 == 0,
        permits: 0,
        largest: 1,
        now: Instant::now(),
        meter: Meter::default(),
        taken: Vec::new(),
        entries: BTreeSet::new(),
        sent: 0,
        got: 0,
    };
    world.meter.came(data.len());
    world.attach();
    while let Some(op) = script.next() {
        let (now, what) = (world.now, op >> 4);
        match op & 15 {
            0..4 => {
                let id = u64::from(script.byte() % 64);
                let count = usize::from(what) * usize::from(op & 1);
                let set =
                    if op & 2 == 0 { vec![script.long() as i64; usize::from(what % 3)] } else { Vec::new() };
                let entry = entry(&mut script, count);
                world.deliver(id, set, u32::from(what), entry);
            }
            4 => {
                let (head, body) = (usize::from(script.byte()), usize::from(script.byte()));
                let payload = Payload::build(script.take(head), script.take(body));
                // What its bytes may be compressed from is not known.
                let (messages, expanded) = (DEFAULT_MAX_MESSAGE_SIZE, DEFAULT_MAX_MESSAGE_SIZE);
                let entry = Entry { payload, messages, size: None, expanded };
                world.deliver(u64::from(what), Vec::new(), 0, entry);
            }
            5 => world.take(usize::from(what) + 1),
            6..11 => {
                let Some(message) = world.taken.get(usize::from(script.byte()) % world.taken.len().max(1))
                else {
                    continue;
                };
                let (id, consumer) = (message.id, &mut world.consumer);
                match op & 15 {
                    6 | 7 => world.meter.run(|| consumer.ack(now, &id)),
                    8 => {
                        let _ = world.meter.run(|| consumer.ack_cumulative(now, &id));
                    }
                    9 => {
                        let delay = (what & 1 == 1).then_some(Duration::from_millis(10));
                        world.meter.run(|| consumer.nack(now, &id, 0, delay));
                    }
                    _ => {
                        consumer.begin_seek();
                        if what & 1 == 1 {
                            consumer.end_seek((what & 2 == 2).then_some(id), what & 4 == 4);
                        } else {
                            consumer.abort_seek();
                        }
                    }
                }
            }
            11 => world.hear(),
            12 => {
                world.now += Duration::from_millis(20) * u32::from(what);
                let (consumer, now) = (&mut world.consumer, world.now);
                world.meter.run(|| consumer.handle_timeout(now));
            }
            13 => {
                if what & 1 == 1 {
                    world.consumer.detach();
                } else {
                    world.consumer.closed_by_broker();
                }
                world.attach();
            }
            14 => world.consumer.redeliver_unacknowledged(),
            _ => world.consumer.flush_acks(),
        }
    }
    world.hear();
    world.take(usize::MAX);
    assert!(world.got <= world.sent, "{} messages of {}", world.got, world.sent);
    world.meter.check(AFTER, 1);
}
