//! Pulsar producers and subscriptions: on a topic, on a topic with three partitions, and on a topic
//! that is deleted and made again. Some subscriptions acknowledge cumulatively, others message by
//! message, within batches, too; all of them seek, by id and by time, and one is deleted and made
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use forebay_broker::protocol::Topics;
use forebay_pulsar::command::Command;
use forebay_pulsar::frame::{Decoder, Frame, Payload};
use forebay_pulsar::{hot, pb};

use crate::node::PULSAR;
use crate::support::chance::Chance;
use crate::support::pulsar::{EXCLUSIVE, SHARED, TOPIC, connect};
use crate::world::World;

/// Messages of a batch. Every third entry is one.
const BATCH: u32 = 3;
/// Publish time of the first entry of a topic, in milliseconds; each later one is a second younger.
const PUBLISHED_MS: u64 = 1_600_000_000_000;

const PARTITIONED: &str = "persistent://public/default/parts";
const PARTITIONS: u32 = 3;
const PASSING: &str = "persistent://public/default/passing";

/// Topics with a log: a plain one, the partitions, and one that is deleted now and then. A
/// producer's id is the topic's place here.
const TOPICS: usize = 5;
const LAST: usize = TOPICS - 1;

fn topic_name(topic: usize) -> String {
    match topic {
        0 => TOPIC.to_owned(),
        LAST => PASSING.to_owned(),
        partition => format!("{PARTITIONED}-partition-{}", partition - 1),
    }
}

/// A subscription's topic, its name, and whether it acknowledges cumulatively. A consumer's id is
/// its place here.
const SUBSCRIPTIONS: [(usize, &str, bool); 7] = [
    (0, "cumulative", true),
    (0, "individual", false),
    (0, "brief", false),
    (1, "s", true),
    (2, "s", false),
    (3, "s", true),
    (LAST, "s", false),
];
/// The subscription that is deleted now and then. It begins behind the last message.
const BRIEF: usize = 2;

/// A message: the number of its entry and its index in it.
type Place = (u64, u32);

fn size(entry: u64) -> u32 {
    if entry % 3 == 2 { BATCH } else { 1 }
}

fn places(entries: Range<u64>) -> impl Iterator<Item = Place> {
    entries.flat_map(|entry| (0..size(entry)).map(move |index| (entry, index)))
}

/// What was acknowledged of a subscription, and what of it was confirmed.
#[derive(Clone, Debug, Default)]
struct Mark {
    asked: BTreeSet<Place>,
    confirmed: BTreeSet<Place>,
}

impl Mark {
    /// A subscription that begins here.
    fn at(place: Place) -> Self {
        let before: BTreeSet<Place> = places(0..place.0 + 1).filter(|earlier| *earlier < place).collect();
        Self { asked: before.clone(), confirmed: before }
    }

    /// The first entry that is not acknowledged as a whole.
    fn below(&self) -> u64 {
        (0..).find(|entry| !places(*entry..entry + 1).all(|place| self.asked.contains(&place))).unwrap()
    }

    /// Compares it with what was delivered of the entries that are there.
    fn check(&self, held: &BTreeSet<Place>, entries: Range<u64>) -> Result<(), String> {
        if let Some(place) = held.iter().find(|place| self.confirmed.contains(place)) {
            return Err(format!("{place:?} was acknowledged"));
        }
        match places(entries).find(|place| !held.contains(place) && !self.asked.contains(place)) {
            Some(place) => Err(format!("{place:?} is lost")),
            None => Ok(()),
        }
    }
}

/// What a request makes of a subscription.
#[derive(Clone, Debug)]
enum Change {
    /// It has a consumer again.
    Opened,
    /// It is here: after a seek, or because it begins.
    Moved(Mark),
    /// It does not exist.
    Gone,
}

/// What a subscription knows.
#[derive(Clone, Debug, Default)]
struct Subscription {
    /// Whether its consumer is connected, or is about to be.
    open: bool,
    /// Messages that were delivered on this connection and are not acknowledged.
    held: BTreeSet<Place>,
    /// What was acknowledged; `None` if the subscription does not exist.
    mark: Option<Mark>,
    /// A request that has no answer yet.
    asked: Option<(u64, Change)>,
    /// Acknowledgements by their requests.
    requests: BTreeMap<u64, Vec<Place>>,
}

impl Subscription {
    /// Compares it with what was delivered of the entries that are there, with and without the
    /// request that has no answer.
    fn check(&self, entries: Range<u64>) -> Result<(), String> {
        let fits = |mark: Option<&Mark>| match mark {
            Some(mark) => mark.check(&self.held, entries.clone()),
            None if self.held.is_empty() => Ok(()),
            None => Err(format!("{:?} came to a subscription that had been deleted", self.held.first())),
        };
        fits(self.mark.as_ref()).or_else(|error| match &self.asked {
            Some((_, Change::Moved(mark))) => fits(Some(mark)),
            Some((_, Change::Gone)) => fits(None),
            _ => Err(error),
        })
    }
}

/// What is known of a topic with a log.
#[derive(Clone, Debug, Default)]
struct Topic {
    /// How often it was deleted.
    life: u64,
    /// The change of the store with which it is deleted once more.
    deleting: Option<u64>,
    /// Whether the producer is there, or is about to be, and its request that has no answer yet.
    open: bool,
    asked: Option<u64>,
    /// Entries that were sent, and those with a receipt. An entry has its number as sequence id.
    sent: u64,
    stored: u64,
    /// Highest sequence id of the producer when it was opened.
    last_sequence_id: i64,
    /// The topic's ledger, which clients give back as they got it, and those of its earlier lives.
    ledger: Option<u64>,
    former: BTreeSet<u64>,
    /// Entries that all subscriptions had acknowledged at some time, and that may have been deleted
    /// then.
    needed_from: u64,
}

impl Topic {
    fn body(&self, topic: usize, entry: u64) -> Vec<u8> {
        format!("{topic}.{}.{entry} ", self.life).into_bytes().repeat(1 + entry as usize * 37 % 150)
    }

    fn set_ledger(&mut self, ledger: u64) {
        assert!(!self.former.contains(&ledger), "a ledger of a deleted topic");
        assert!(self.ledger.replace(ledger).is_none_or(|before| before == ledger), "another ledger");
    }

    /// The topic after its deletion.
    fn next_life(&mut self) {
        let mut former = std::mem::take(&mut self.former);
        former.extend(self.ledger);
        *self = Self { life: self.life + 1, former, ..Self::default() };
    }
}

#[derive(Clone, Debug, Default)]
pub struct Client {
    peer: Option<u64>,
    requests: u64,
    /// Whether the topic with partitions is known to exist.
    created: bool,
    topics: [Topic; TOPICS],
    subscriptions: [Subscription; SUBSCRIPTIONS.len()],
    connected: bool,
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
        self.told += usize::from(matches!(
            command,
            Command::SendReceipt(_) | Command::AckResponse(_) | Command::Success(_)
        ));
        match command {
            Command::Connected(_) => self.connected = true,
            Command::SendReceipt(receipt) => {
                let topic = &mut self.topics[receipt.producer_id as usize];
                assert_eq!(receipt.sequence_id, topic.stored, "receipts have the order of the messages");
                let id = receipt.message_id.unwrap();
                assert_eq!(id.entry_id, topic.stored, "a message has the number of its turn");
                topic.set_ledger(id.ledger_id);
                topic.stored += 1;
            }
            Command::Message(delivery) => {
                let consumer = delivery.consumer_id as usize;
                let number = SUBSCRIPTIONS[consumer].0;
                let topic = &mut self.topics[number];
                topic.set_ledger(delivery.message_id.ledger_id);
                let entry = delivery.message_id.entry_id;
                assert!(entry < topic.sent, "altered: entry {entry} was never sent");
                let payload = payload.unwrap();
                assert!(payload.checksum_ok(), "altered: entry {entry}");
                assert_eq!(payload.body().unwrap(), topic.body(number, entry), "altered: entry {entry}");
                let left = delivery.ack_set.first().map_or(!0, |set| *set as u64);
                let Subscription { held, mark, .. } = &mut self.subscriptions[consumer];
                // A seek goes back to the first entry that is still there.
                if let Some(mark) = mark.as_mut().filter(|_| held.is_empty() && entry <= topic.needed_from) {
                    mark.asked.extend(places(0..entry));
                }
                for place in places(entry..entry + 1).filter(|(_, index)| left >> index & 1 == 1) {
                    assert!(held.insert(place), "{place:?} was delivered twice");
                }
            }
            Command::AckResponse(response) => {
                assert_eq!(response.error, None);
                for subscription in &mut self.subscriptions {
                    let acked = subscription.requests.remove(&response.request_id.unwrap());
                    if let Some(mark) = &mut subscription.mark {
                        mark.confirmed.extend(acked.into_iter().flatten());
                    }
                }
            }
            Command::ProducerSuccess(success) => {
                for topic in self.topics.iter_mut().filter(|topic| topic.asked == Some(success.request_id)) {
                    topic.asked = None;
                    topic.last_sequence_id = success.last_sequence_id.unwrap_or(-1);
                }
            }
            Command::Success(success) => {
                for subscription in &mut self.subscriptions {
                    let answered = subscription.asked.take_if(|(request, _)| *request == success.request_id);
                    match answered {
                        Some((_, Change::Moved(mark))) => subscription.mark = Some(mark),
                        Some((_, Change::Gone)) => {
                            subscription.held.clear();
                            subscription.mark = None;
                        }
                        Some((_, Change::Opened)) | None => {}
                    }
                }
            }
            // The disk is full.
            Command::Error(refused) => {
                for topic in self.topics.iter_mut().filter(|topic| topic.asked == Some(refused.request_id)) {
                    (topic.asked, topic.open) = (None, false);
                }
                for subscription in &mut self.subscriptions {
                    if subscription.asked.take_if(|(request, _)| *request == refused.request_id).is_some() {
                        subscription.open = false;
                    }
                }
            }
            Command::CloseConsumer(close) => {
                let subscription = &mut self.subscriptions[close.consumer_id as usize];
                subscription.held.clear();
                subscription.open = false;
            }
            Command::CloseProducer(close) => self.topics[close.producer_id as usize].open = false,
            Command::ActiveConsumerChange(_) => {}
            other => panic!("{other:?}"),
        }
    }

    fn request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// Notes what may be deleted of a topic.
    fn note_needs(&mut self, number: usize) {
        let marks = self.subscriptions.iter().zip(SUBSCRIPTIONS).filter(|(_, (topic, ..))| *topic == number);
        // One that comes or goes does not count.
        let needs = marks.filter_map(|(subscription, _)| {
            let mark = subscription.mark.as_ref()?.below();
            match &subscription.asked {
                Some((_, Change::Moved(next))) => Some(mark.max(next.below())),
                Some((_, Change::Gone)) => None,
                _ => Some(mark),
            }
        });
        let topic = &mut self.topics[number];
        topic.needed_from = topic.needed_from.max(needs.min().unwrap_or(topic.sent));
    }
}

fn tell(world: &mut World, frame: &Frame) {
    let peer = world.clients.pulsar.peer.unwrap();
    world.send(PULSAR, peer, &frame.to_bytes());
}

fn topics(world: &mut World) -> &mut dyn Topics {
    world.node.protocols[PULSAR].topics_mut().unwrap()
}

/// Opens the consumer of a subscription. One that does not exist begins at the first message, or
/// behind the last one.
fn subscribe(world: &mut World, consumer: usize) {
    let client = &mut world.clients.pulsar;
    let request_id = client.request();
    let (number, name, cumulative) = SUBSCRIPTIONS[consumer];
    let topic = &client.topics[number];
    let subscription = &mut client.subscriptions[consumer];
    let change = match subscription.mark {
        Some(_) => Change::Opened,
        None if consumer == BRIEF => Change::Moved(Mark::at((topic.sent, 0))),
        None => Change::Moved(Mark::default()),
    };
    subscription.asked = Some((request_id, change));
    subscription.open = true;
    subscription.held.clear();
    let subscribe = pb::CommandSubscribe {
        topic: topic_name(number),
        subscription: name.into(),
        sub_type: if cumulative { EXCLUSIVE } else { SHARED },
        consumer_id: consumer as u64,
        request_id,
        initial_position: Some(i32::from(consumer != BRIEF)),
        ..Default::default()
    };
    tell(world, &Frame::simple(Command::Subscribe(Box::new(subscribe))));
}

fn flow(world: &mut World, consumer: usize) {
    let flow = hot::Flow { consumer_id: consumer as u64, permits: 1_000_000 };
    tell(world, &Frame::simple(Command::Flow(flow)));
}

fn open_producer(world: &mut World, number: usize) {
    let request_id = world.clients.pulsar.request();
    let topic = &mut world.clients.pulsar.topics[number];
    (topic.open, topic.asked) = (true, Some(request_id));
    let producer = pb::CommandProducer {
        topic: topic_name(number),
        producer_id: number as u64,
        producer_name: Some("p".into()),
        user_provided_producer_name: Some(true),
        request_id,
        ..Default::default()
    };
    tell(world, &Frame::simple(Command::Producer(Box::new(producer))));
}

/// Connects and opens the producers.
fn begin(world: &mut World) {
    let peer = world.node.connect(PULSAR);
    let client = &mut world.clients.pulsar;
    (client.peer, client.connected) = (Some(peer), false);
    client.input.clear();
    tell(world, &Frame::simple(Command::Connect(connect())));
    for topic in 0..TOPICS {
        open_producer(world, topic);
    }
    world.settle();
    let client = &world.clients.pulsar;
    assert!(client.connected && client.topics.iter().all(|topic| topic.asked.is_none()), "no answer");
}

/// Connects and opens the producers and all subscriptions, which exist from then on.
pub fn set_up(world: &mut World) {
    topics(world).create_topic(PARTITIONED, PARTITIONS).unwrap();
    begin(world);
    world.clients.pulsar.created = true;
    for consumer in 0..SUBSCRIPTIONS.len() {
        subscribe(world, consumer);
        flow(world, consumer);
    }
    world.settle();
    let subscriptions = &world.clients.pulsar.subscriptions;
    assert!(subscriptions.iter().all(|subscription| subscription.asked.is_none()), "no answer");
}

fn send(world: &mut World, number: usize) {
    let topic = &mut world.clients.pulsar.topics[number];
    if !topic.open || topic.asked.is_some() {
        return;
    }
    let entry = topic.sent;
    topic.sent += 1;
    let body = topic.body(number, entry);
    let num_messages = (size(entry) > 1).then_some(BATCH as i32);
    let metadata = pb::MessageMetadata {
        producer_name: "p".into(),
        sequence_id: entry,
        publish_time: PUBLISHED_MS + entry * 1000,
        num_messages_in_batch: num_messages,
        ..Default::default()
    };
    let mut bytes = BytesMut::new();
    hot::encode_metadata(&metadata, &mut bytes);
    let producer_id = number as u64;
    let send = hot::Send { producer_id, sequence_id: entry, num_messages, ..Default::default() };
    let payload = Payload::build(&bytes, &Bytes::from(body));
    tell(world, &Frame { command: Command::Send(send), payload: Some(payload) });
}

/// Bits of the messages of a batch that fit.
fn bits(fits: impl Fn(u32) -> bool) -> Vec<i64> {
    vec![(0..BATCH).filter(|index| fits(*index)).map(|index| 1 << index).sum()]
}

fn acknowledge(world: &mut World, chance: &mut Chance, consumer: usize) {
    let client = &mut world.clients.pulsar;
    let (number, _, cumulative) = SUBSCRIPTIONS[consumer];
    let subscription = &mut client.subscriptions[consumer];
    let held: Vec<Place> = subscription.held.iter().copied().collect();
    let Some(mark) = subscription.mark.as_mut().filter(|_| !held.is_empty()) else { return };
    // Near the front, so that entries are trimmed.
    let (entry, index) = held[chance.below(held.len().min(6))];
    let partial = size(entry) > 1 && chance.percent(60);
    let (mut ack_set, acked): (_, Vec<Place>) = match (cumulative, partial) {
        (true, true) => (
            bits(|other| other > index),
            places(0..entry + 1).filter(|place| *place <= (entry, index)).collect(),
        ),
        (true, false) => (Vec::new(), places(0..entry + 1).collect()),
        (false, true) => (bits(|other| other != index), vec![(entry, index)]),
        (false, false) => (Vec::new(), places(entry..entry + 1).collect()),
    };
    ack_set.retain(|left| *left != 0);
    for place in &acked {
        subscription.held.remove(place);
        mark.asked.insert(*place);
    }
    let request_id = chance.percent(75).then(|| {
        client.requests += 1;
        subscription.requests.insert(client.requests, acked);
        client.requests
    });
    client.note_needs(number);
    let ledger_id = client.topics[number].ledger.unwrap();
    let id = pb::MessageIdData { ledger_id, entry_id: entry, ack_set, ..Default::default() };
    let ack = hot::Ack {
        consumer_id: consumer as u64,
        ack_type: i32::from(cumulative),
        message_ids: vec![id],
        request_id,
        ..Default::default()
    };
    tell(world, &Frame::simple(Command::Ack(ack)));
}

/// Moves a subscription to a message, by its id or its time.
fn seek(world: &mut World, chance: &mut Chance, consumer: usize) {
    let client = &mut world.clients.pulsar;
    let number = SUBSCRIPTIONS[consumer].0;
    let request_id = client.request();
    let topic = &client.topics[number];
    let (Some(ledger_id), true) = (topic.ledger, topic.stored > 0) else { return };
    let entry_id = chance.below(topic.stored as usize) as u64;
    let mut seek = pb::CommandSeek { consumer_id: consumer as u64, request_id, ..Default::default() };
    let index = if chance.percent(40) {
        seek.message_publish_time = Some(PUBLISHED_MS + entry_id * 1000 - chance.below(1000) as u64);
        0
    } else {
        let index = chance.below(size(entry_id) as usize) as u32;
        let ack_set = if index == 0 { Vec::new() } else { bits(|other| other >= index) };
        seek.message_id = Some(pb::MessageIdData { ledger_id, entry_id, ack_set, ..Default::default() });
        index
    };
    client.subscriptions[consumer].asked = Some((request_id, Change::Moved(Mark::at((entry_id, index)))));
    client.note_needs(number);
    world.played(if seek.message_id.is_some() { "seek by id" } else { "seek by time" });
    tell(world, &Frame::simple(Command::Seek(Box::new(seek))));
}

fn unsubscribe(world: &mut World, consumer: usize) {
    let client = &mut world.clients.pulsar;
    let request_id = client.request();
    let subscription = &mut client.subscriptions[consumer];
    (subscription.asked, subscription.open) = (Some((request_id, Change::Gone)), false);
    client.note_needs(SUBSCRIPTIONS[consumer].0);
    world.played("unsubscribe");
    let command = pb::CommandUnsubscribe { consumer_id: consumer as u64, request_id, ..Default::default() };
    tell(world, &Frame::simple(Command::Unsubscribe(command)));
}

/// An administrator deletes the topic that passes.
fn delete(world: &mut World) {
    world.played("delete");
    // A number that is never written, until it is known.
    world.clients.pulsar.topics[LAST].deleting = Some(u64::MAX);
    world.note();
    topics(world).delete_topic(PASSING).unwrap();
    world.clients.pulsar.topics[LAST].deleting = Some(world.node.protocols[PULSAR].issued());
    world.listen();
}

/// The administrator is told once the deletion is written.
fn note_deletion(world: &mut World) {
    let written = world.node.protocols[PULSAR].written();
    if world.clients.pulsar.topics[LAST].deleting.is_some_and(|change| change <= written) {
        end_life(&mut world.clients.pulsar);
        world.note();
    }
}

fn end_life(client: &mut Client) {
    client.topics[LAST].next_life();
    for (subscription, _) in client.subscriptions.iter_mut().zip(SUBSCRIPTIONS).filter(|(_, s)| s.0 == LAST) {
        *subscription = Subscription::default();
    }
}

/// The client opens what was closed.
fn reopen(world: &mut World) {
    for number in 0..TOPICS {
        let topic = &world.clients.pulsar.topics[number];
        if !topic.open && topic.deleting.is_none() {
            open_producer(world, number);
        }
    }
    for (consumer, (number, ..)) in SUBSCRIPTIONS.into_iter().enumerate() {
        let Client { topics, subscriptions, .. } = &world.clients.pulsar;
        let Subscription { open, asked, .. } = &subscriptions[consumer];
        if !open && asked.is_none() && topics[number].deleting.is_none() {
            subscribe(world, consumer);
            flow(world, consumer);
        }
    }
}

pub fn step(world: &mut World, chance: &mut Chance) {
    note_deletion(world);
    if chance.percent(50) {
        reopen(world);
    }
    let consumer = chance.below(SUBSCRIPTIONS.len() + 4) % SUBSCRIPTIONS.len();
    let Client { topics, subscriptions, .. } = &world.clients.pulsar;
    let Subscription { open, asked, .. } = &subscriptions[consumer];
    let idle = *open && asked.is_none() && topics[SUBSCRIPTIONS[consumer].0].deleting.is_none();
    match chance.below(100) {
        0..46 => {
            let topic = chance.below(TOPICS + 4) % TOPICS;
            (0..chance.within(1, 4)).for_each(|_| send(world, topic));
        }
        46..53 if idle => seek(world, chance, consumer),
        53..56 if idle && consumer != BRIEF => seek(world, chance, consumer),
        53..64 if idle && consumer == BRIEF => unsubscribe(world, consumer),
        64..67 if topics[LAST].deleting.is_none() && topics[LAST].stored > 0 => delete(world),
        _ if idle => acknowledge(world, chance, consumer),
        _ => {}
    }
}

pub fn verify(world: &mut World) {
    let before = world.clients.pulsar.clone();
    if before.peer.is_none() {
        return;
    }
    for topic in &mut world.clients.pulsar.topics {
        (topic.open, topic.asked) = (false, None);
    }
    let listed = topics(world).list().into_iter().find(|(name, _)| name == PARTITIONED);
    match listed {
        Some((_, partitions)) => assert_eq!(partitions, PARTITIONS),
        None => assert!(!before.created, "the topic with partitions is gone"),
    }
    begin(world);
    let client = &mut world.clients.pulsar;
    let found_of = |topic: &Topic| (topic.last_sequence_id + 1) as u64;
    if client.topics[LAST].deleting.is_some() && found_of(&client.topics[LAST]) == 0 {
        end_life(client);
        client.topics[LAST].last_sequence_id = -1;
        client.topics[LAST].open = true;
    }
    let mut first = [0; TOPICS];
    for (number, first) in first.iter_mut().enumerate() {
        let topic = &world.clients.pulsar.topics[number];
        let found = found_of(topic);
        assert!(
            (topic.stored..=topic.sent).contains(&found),
            "topic {number}: the producer's last sequence id is {}, {} messages were sent and {} confirmed",
            topic.last_sequence_id,
            topic.sent,
            topic.stored
        );
        let needed_from = topic.needed_from;
        let entries = topics(world).topic_stats(&topic_name(number)).unwrap().entries;
        *first = found - entries;
        assert!(*first <= needed_from, "topic {number}: entries are gone up to {first}");
        // It goes on where it was.
        let topic = &mut world.clients.pulsar.topics[number];
        (topic.stored, topic.sent) = (found, found);
    }
    let known = world.clients.pulsar.subscriptions.clone();
    for consumer in 0..SUBSCRIPTIONS.len() {
        // What an earlier broker did not answer is not answered any more.
        subscribe(world, consumer);
        flow(world, consumer);
    }
    world.settle();
    let check = |client: &Client| {
        for (consumer, (number, name, _)) in SUBSCRIPTIONS.into_iter().enumerate() {
            let Subscription { held, asked, .. } = &client.subscriptions[consumer];
            assert!(asked.is_none(), "no answer");
            let as_known = Subscription { held: held.clone(), ..known[consumer].clone() };
            if let Err(error) = as_known.check(first[number]..client.topics[number].stored) {
                panic!("topic {number}, subscription {name}: {error}: {as_known:?}");
            }
        }
    };
    check(&world.clients.pulsar);
    let before = world.clients.pulsar.topics.clone();
    for number in 0..TOPICS {
        send(world, number);
    }
    world.settle();
    for (topic, before) in world.clients.pulsar.topics.iter().zip(before) {
        assert_eq!(topic.stored, before.stored + 1, "no receipt");
    }
    for (consumer, (number, name, _)) in SUBSCRIPTIONS.into_iter().enumerate() {
        let last = world.clients.pulsar.topics[number].stored - 1;
        let held = &world.clients.pulsar.subscriptions[consumer].held;
        assert!(
            places(last..last + 1).all(|place| held.contains(&place)),
            "topic {number}, subscription {name}: the new message does not come"
        );
    }
}
