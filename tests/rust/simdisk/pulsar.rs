//! A Pulsar producer and two subscriptions: one acknowledges cumulatively, one message by message, within batches, too.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use penstock::pulsar::command::Command;
use penstock::pulsar::frame::{Decoder, Frame, Payload};
use penstock::pulsar::{hot, pb};

use crate::node::PULSAR;
use crate::support::chance::Chance;
use crate::support::pulsar::{EXCLUSIVE, SHARED, TOPIC, connect};
use crate::world::World;

const PRODUCER: u64 = 1;
const CUMULATIVE: u64 = 1;
const INDIVIDUAL: u64 = 2;
/// Messages of a batch. Every third entry is one.
const BATCH: u32 = 3;

/// A message: the number of its entry and its index in it.
type Place = (u64, u32);

fn size(entry: u64) -> u32 {
    if entry % 3 == 2 { BATCH } else { 1 }
}

fn places(entries: Range<u64>) -> impl Iterator<Item = Place> {
    entries.flat_map(|entry| (0..size(entry)).map(move |index| (entry, index)))
}

fn body(entry: u64) -> Vec<u8> {
    format!("m{entry} ").into_bytes().repeat(1 + entry as usize * 37 % 150)
}

/// What a subscription knows.
#[derive(Clone, Debug, Default)]
struct Subscription {
    /// Messages that were delivered on this connection and are not acknowledged.
    held: BTreeSet<Place>,
    /// Messages whose acknowledgement was sent, and those whose acknowledgement was confirmed.
    asked: BTreeSet<Place>,
    confirmed: BTreeSet<Place>,
    /// Acknowledgements by their requests.
    requests: BTreeMap<u64, Vec<Place>>,
}

#[derive(Clone, Debug, Default)]
pub struct Client {
    peer: Option<u64>,
    requests: u64,
    /// Entries that were sent, and those with a receipt. An entry has its number as sequence id.
    sent: u64,
    stored: u64,
    /// Highest sequence id of the producer when it was opened.
    last_sequence_id: Option<i64>,
    /// The topic's ledger, which clients give back as they got it.
    ledger: u64,
    subscriptions: BTreeMap<u64, Subscription>,
    /// Answers that somebody waits for.
    answers: Vec<Command>,
    input: BytesMut,
    /// Confirmations that have arrived.
    pub told: usize,
}

impl Client {
    pub fn peers(&self) -> Vec<u64> {
        self.peer.into_iter().collect()
    }

    pub fn hear(&mut self, bytes: BytesMut) {
        self.input.extend_from_slice(&bytes);
        while let Some(frame) = Decoder::new(6 << 20).next(&mut self.input).unwrap() {
            self.handle(frame);
        }
    }

    fn handle(&mut self, Frame { command, payload }: Frame) {
        self.told += usize::from(matches!(command, Command::SendReceipt(_) | Command::AckResponse(_)));
        match command {
            Command::SendReceipt(receipt) => {
                assert_eq!(receipt.sequence_id, self.stored, "receipts have the order of the messages");
                let entry = receipt.message_id.unwrap().entry_id;
                assert_eq!(entry, self.stored, "a message has the number of its turn");
                self.stored += 1;
            }
            Command::Message(delivery) => {
                let entry = delivery.message_id.entry_id;
                self.ledger = delivery.message_id.ledger_id;
                assert!(entry < self.sent, "altered: entry {entry} was never sent");
                let payload = payload.unwrap();
                assert!(payload.checksum_ok(), "altered: entry {entry}");
                assert_eq!(payload.body().unwrap(), body(entry), "altered: entry {entry}");
                let left = delivery.ack_set.first().map_or(!0, |set| *set as u64);
                let held = &mut self.subscriptions.get_mut(&delivery.consumer_id).unwrap().held;
                for place in places(entry..entry + 1).filter(|(_, index)| left >> index & 1 == 1) {
                    assert!(held.insert(place), "{place:?} was delivered twice");
                }
            }
            Command::AckResponse(response) => {
                assert_eq!(response.error, None);
                for subscription in self.subscriptions.values_mut() {
                    let acked = subscription.requests.remove(&response.request_id.unwrap());
                    subscription.confirmed.extend(acked.into_iter().flatten());
                }
            }
            Command::ProducerSuccess(success) => {
                self.last_sequence_id = Some(success.last_sequence_id.unwrap_or(-1));
            }
            Command::ActiveConsumerChange(_) => {}
            answer @ (Command::Connected(_) | Command::Success(_)) => self.answers.push(answer),
            other => panic!("{other:?}"),
        }
    }

    fn request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }
}

fn tell(world: &mut World, frame: &Frame) {
    let peer = world.clients.pulsar.peer.unwrap();
    world.send(PULSAR, peer, &frame.to_bytes());
}

fn ask(world: &mut World, command: Command) {
    tell(world, &Frame::simple(command));
    world.settle();
}

fn answered(world: &mut World) {
    assert!(world.clients.pulsar.answers.pop().is_some(), "no answer");
}

/// Connects and opens the producer and both subscriptions, which exist from then on.
pub fn set_up(world: &mut World) {
    let peer = world.node.connect(PULSAR);
    let client = &mut world.clients.pulsar;
    client.peer = Some(peer);
    client.input.clear();
    client.answers.clear();
    // What an earlier broker did not answer is not answered any more.
    for subscription in client.subscriptions.values_mut() {
        subscription.held.clear();
        subscription.requests.clear();
    }
    ask(world, Command::Connect(connect()));
    answered(world);
    for (consumer_id, name, kind) in
        [(CUMULATIVE, "cumulative", EXCLUSIVE), (INDIVIDUAL, "individual", SHARED)]
    {
        world.clients.pulsar.subscriptions.entry(consumer_id).or_default();
        let subscribe = pb::CommandSubscribe {
            topic: TOPIC.into(),
            subscription: name.into(),
            sub_type: kind,
            consumer_id,
            request_id: world.clients.pulsar.request(),
            initial_position: Some(1),
            ..Default::default()
        };
        ask(world, Command::Subscribe(Box::new(subscribe)));
        answered(world);
    }
    let producer = pb::CommandProducer {
        topic: TOPIC.into(),
        producer_id: PRODUCER,
        producer_name: Some("p".into()),
        user_provided_producer_name: Some(true),
        request_id: world.clients.pulsar.request(),
        ..Default::default()
    };
    ask(world, Command::Producer(Box::new(producer)));
    for consumer_id in [CUMULATIVE, INDIVIDUAL] {
        tell(world, &Frame::simple(Command::Flow(hot::Flow { consumer_id, permits: 1_000_000 })));
    }
}

fn send(world: &mut World) {
    let client = &mut world.clients.pulsar;
    let entry = client.sent;
    client.sent += 1;
    let metadata = pb::MessageMetadata {
        producer_name: "p".into(),
        sequence_id: entry,
        publish_time: 1_700_000_000_000,
        num_messages_in_batch: (size(entry) > 1).then_some(BATCH as i32),
        ..Default::default()
    };
    let mut bytes = BytesMut::new();
    hot::encode_metadata(&metadata, &mut bytes);
    let num_messages = (size(entry) > 1).then_some(BATCH as i32);
    let send = hot::Send { producer_id: PRODUCER, sequence_id: entry, num_messages, ..Default::default() };
    let payload = Payload::build(&bytes, &Bytes::from(body(entry)));
    tell(world, &Frame { command: Command::Send(send), payload: Some(payload) });
}

fn acknowledge(world: &mut World, chance: &mut Chance, consumer_id: u64) {
    let client = &mut world.clients.pulsar;
    let subscription = client.subscriptions.get_mut(&consumer_id).unwrap();
    let held: Vec<Place> = subscription.held.iter().copied().collect();
    if held.is_empty() {
        return;
    }
    // Near the front, so that entries are trimmed.
    let (entry, index) = held[chance.below(held.len().min(6))];
    let cumulative = consumer_id == CUMULATIVE;
    let partial = size(entry) > 1 && chance.percent(60);
    let mut left = 0_u64;
    let acked: Vec<Place> = if cumulative {
        if partial {
            left = (0..BATCH).filter(|i| *i > index).map(|i| 1 << i).sum();
        }
        places(0..entry + 1).filter(|place| !partial || *place <= (entry, index)).collect()
    } else if partial {
        left = (0..BATCH).filter(|i| *i != index).map(|i| 1 << i).sum();
        vec![(entry, index)]
    } else {
        places(entry..entry + 1).collect()
    };
    for place in &acked {
        subscription.held.remove(place);
        subscription.asked.insert(*place);
    }
    let request_id = if chance.percent(75) {
        client.requests += 1;
        subscription.requests.insert(client.requests, acked);
        Some(client.requests)
    } else {
        None
    };
    let ack_set = if left == 0 { Vec::new() } else { vec![left as i64] };
    let id = pb::MessageIdData { ledger_id: client.ledger, entry_id: entry, ack_set, ..Default::default() };
    let ack = hot::Ack {
        consumer_id,
        ack_type: i32::from(cumulative),
        message_ids: vec![id],
        request_id,
        ..Default::default()
    };
    tell(world, &Frame::simple(Command::Ack(ack)));
}

pub fn step(world: &mut World, chance: &mut Chance) {
    match chance.below(100) {
        0..50 => (0..chance.within(1, 4)).for_each(|_| send(world)),
        50..70 => acknowledge(world, chance, CUMULATIVE),
        _ => acknowledge(world, chance, INDIVIDUAL),
    }
}

pub fn verify(world: &mut World) {
    let before = world.clients.pulsar.clone();
    if before.requests == 0 {
        return;
    }
    set_up(world);
    world.settle();
    let client = &world.clients.pulsar;
    let last = client.last_sequence_id.unwrap();
    let found = (last + 1) as u64;
    assert!(
        (before.stored..=before.sent).contains(&found),
        "the producer's last sequence id is {last}, {} messages were sent and {} confirmed",
        before.sent,
        before.stored
    );
    let check = |client: &Client, stored: u64| {
        for (id, subscription) in &client.subscriptions {
            for place in &subscription.held {
                assert!(place.0 < stored, "{place:?} of {stored} entries");
                assert!(
                    !subscription.confirmed.contains(place),
                    "{place:?} was acknowledged by consumer {id}"
                );
            }
            for place in places(0..stored) {
                let known = subscription.held.contains(&place) || subscription.asked.contains(&place);
                assert!(known, "{place:?} is lost for consumer {id}");
            }
        }
    };
    check(client, found);
    // It goes on where it was.
    world.clients.pulsar.stored = found;
    world.clients.pulsar.sent = found;
    send(world);
    world.settle();
    assert_eq!(world.clients.pulsar.stored, found + 1, "no receipt");
    check(&world.clients.pulsar, found + 1);
}
