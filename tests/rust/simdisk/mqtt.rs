//! An MQTT publisher and a subscriber with persistent sessions, QoS 1 and 2, and a retained message; and a subscriber that
//! begins a new session now and then.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::BytesMut;
use penstock::mqtt::packet::{Connect, Publish, Subscribe, SubscribeOptions};
use penstock::mqtt::{Packet, Properties, QoS, Reason, Sender, Version, frame};

use crate::node::MQTT;
use crate::support::chance::Chance;
use crate::support::mqtt::{Exchange, Q1, Q2, encode, id, lasting, publish, retained, text};
use crate::world::World;

/// Publications in flight.
const WINDOW: usize = 6;
const RETAINED: &str = "r/last";

/// A client with a session that lasts.
#[derive(Clone, Debug, Default)]
struct Session {
    name: &'static str,
    peer: Option<u64>,
    /// Whether the broker has confirmed something that belongs to the session: a new session without anything is not
    /// missed.
    known: bool,
    /// Whether CONNACK has arrived.
    ready: bool,
    input: BytesMut,
    /// Packets to be sent.
    up: VecDeque<Packet>,
    exchange: Exchange,
    subscribed: bool,
    /// Messages that are gone with the former session once CONNACK says that a new one has begun.
    leaves: Option<BTreeSet<usize>>,
    gone: BTreeSet<usize>,
    /// Messages from this one on are for this session.
    since: Option<usize>,
}

#[derive(Clone, Debug, Default)]
pub struct Client {
    publisher: Session,
    subscriber: Session,
    /// Reads the retained message.
    watcher: Session,
    /// Begins new sessions.
    brief: Session,
    /// Payloads that were published to subscribers, with their QoS.
    sent: Vec<(QoS, String)>,
    /// Retained payloads: the number that were published, and the newest that was acknowledged.
    retained: usize,
    retained_acked: Option<usize>,
    /// Confirmations that have arrived.
    pub told: usize,
}

impl Client {
    fn sessions(&mut self) -> [&mut Session; 4] {
        [&mut self.publisher, &mut self.subscriber, &mut self.watcher, &mut self.brief]
    }

    pub fn peers(&self) -> Vec<u64> {
        [&self.publisher, &self.subscriber, &self.watcher, &self.brief]
            .iter()
            .filter_map(|session| session.peer)
            .collect()
    }

    pub fn hear(&mut self, peer: u64, bytes: BytesMut) {
        let (mut acked, mut confirmed, sent) = (Vec::new(), 0, self.sent.len());
        for session in self.sessions().into_iter().filter(|session| session.peer == Some(peer)) {
            session.input.extend_from_slice(&bytes);
            while let Some(frame) = frame::Decoder::new(usize::MAX).next(&mut session.input).unwrap() {
                let packet = Packet::decode(&frame, Version::V5, Sender::Server).unwrap();
                confirmed += usize::from(matches!(
                    packet,
                    Packet::SubAck(_) | Packet::PubAck(_) | Packet::PubRec(_) | Packet::PubComp(_)
                ));
                acked.extend(session.handle(packet, sent));
            }
        }
        self.told += confirmed;
        for publish in acked.iter().filter(|publish| publish.retain) {
            self.retained_acked = Some(number(&text(publish)));
        }
    }
}

impl Session {
    /// Handles a packet; gives the publication that it acknowledges. So many messages were sent so far.
    fn handle(&mut self, packet: Packet, sent: usize) -> Option<Publish> {
        self.known |= matches!(packet, Packet::SubAck(_) | Packet::PubAck(_) | Packet::PubRec(_));
        match packet {
            // The disk is full.
            Packet::ConnAck(ack) if ack.reason == Reason::ServerBusy && self.leaves.is_some() => {
                self.peer = None
            }
            Packet::ConnAck(ack) => {
                assert_eq!(ack.reason, Reason::Success, "{}", self.name);
                assert!(ack.session_present || !self.known, "{}: the session is lost", self.name);
                self.ready = true;
                if let Some(gone) = self.leaves.take() {
                    assert!(!ack.session_present, "{}: a new session has begun", self.name);
                    *self = Self {
                        gone,
                        since: None,
                        subscribed: false,
                        exchange: Exchange::default(),
                        up: [subscription("t/#")].into(),
                        ..std::mem::take(self)
                    };
                }
                self.up.extend(self.exchange.again());
            }
            Packet::SubAck(_) => {
                self.subscribed = true;
                self.since = Some(sent);
            }
            packet => return self.exchange.hear(packet, &mut self.up),
        }
        None
    }
}

/// The number in a payload.
fn number(payload: &str) -> usize {
    payload.split(' ').nth(1).unwrap().parse().unwrap()
}

fn payload(kind: &str, number: usize) -> String {
    format!("{kind} {number} {}", "x".repeat(number * 53 % 700))
}

fn tell(world: &mut World, peer: u64, packet: Packet) {
    world.send(MQTT, peer, &encode(packet, Version::V5));
}

/// Sends the session's next packet; returns whether there was one.
fn speak(world: &mut World, which: usize) -> bool {
    let session = &mut world.clients.mqtt.sessions().into_iter().nth(which).unwrap();
    let (Some(peer), true) = (session.peer, session.ready) else { return false };
    let Some(packet) = session.up.pop_front() else { return false };
    tell(world, peer, packet);
    true
}

fn connect(world: &mut World, which: usize, name: &'static str) {
    let peer = world.node.connect(MQTT);
    let session = world.clients.mqtt.sessions().into_iter().nth(which).unwrap();
    session.name = name;
    session.peer = Some(peer);
    session.ready = false;
    session.up.clear();
    session.input.clear();
    tell(world, peer, Packet::Connect(Box::new(lasting(name))));
    world.settle();
    assert!(world.clients.mqtt.sessions()[which].ready, "no CONNACK");
}

fn subscribe(world: &mut World, which: usize, filter: &str) {
    let peer = world.clients.mqtt.sessions()[which].peer.unwrap();
    tell(world, peer, subscription(filter));
    world.settle();
    assert!(world.clients.mqtt.sessions()[which].subscribed, "no SUBACK");
}

fn subscription(filter: &str) -> Packet {
    let filters = vec![(filter.into(), SubscribeOptions::qos(Q2))];
    Packet::Subscribe(Subscribe { packet_id: id(9999), properties: Properties::new(), filters })
}

/// The fourth client connects and begins a new session. It does not wait for the answers.
fn begin_again(world: &mut World) {
    let peer = world.node.connect(MQTT);
    let client = &mut world.clients.mqtt;
    let pending: BTreeSet<usize> =
        client.publisher.exchange.outgoing.iter().map(|outgoing| number(&text(&outgoing.publish))).collect();
    let leaves = (0..client.sent.len()).filter(|number| !pending.contains(number)).collect();
    let brief = &mut client.brief;
    // Until the answer comes, either session may be there.
    *brief = Session {
        name: "brief",
        peer: Some(peer),
        leaves: Some(leaves),
        known: false,
        ready: false,
        ..std::mem::take(brief)
    };
    brief.up.clear();
    brief.input.clear();
    tell(world, peer, Packet::Connect(Box::new(Connect { clean_start: true, ..lasting("brief") })));
}

pub fn set_up(world: &mut World) {
    connect(world, 0, "publisher");
    connect(world, 1, "subscriber");
    subscribe(world, 1, "t/#");
}

fn send(world: &mut World, chance: &mut Chance) {
    let client = &mut world.clients.mqtt;
    let publisher = &mut client.publisher;
    if publisher.exchange.outgoing.len() >= WINDOW {
        return;
    }
    let packet_id = publisher.exchange.free_id();
    let publish = if chance.percent(15) {
        client.retained += 1;
        retained(RETAINED, Q1, packet_id, &payload("r", client.retained))
    } else {
        let qos = if chance.percent(50) { Q1 } else { Q2 };
        let text = payload("t", client.sent.len());
        client.sent.push((qos, text.clone()));
        publish("t/a", qos, packet_id, &text)
    };
    publisher.exchange.send(&publish);
    let peer = publisher.peer.unwrap();
    tell(world, peer, Packet::Publish(publish));
}

pub fn step(world: &mut World, chance: &mut Chance) {
    match chance.below(100) {
        0..40 => send(world, chance),
        40..58 => drop(speak(world, 0)),
        58..61 => begin_again(world),
        61..78 => drop(speak(world, 3)),
        _ => drop(speak(world, 1)),
    }
}

pub fn verify(world: &mut World) {
    if world.clients.mqtt.publisher.peer.is_none() {
        return;
    }
    connect(world, 0, "publisher");
    connect(world, 1, "subscriber");
    let brief = &mut world.clients.mqtt.brief;
    let (undecided, since) = (brief.leaves.take().is_some(), brief.since);
    connect(world, 3, "brief");
    if !world.clients.mqtt.subscriber.subscribed {
        assert!(world.clients.mqtt.sent.is_empty());
        return;
    }
    finish(world);
    let text = payload("t", world.clients.mqtt.sent.len());
    world.clients.mqtt.sent.push((Q2, text.clone()));
    let publisher = &mut world.clients.mqtt.publisher;
    let packet_id = publisher.exchange.free_id();
    let publish = publish("t/a", Q2, packet_id, &text);
    publisher.exchange.send(&publish);
    let peer = publisher.peer.unwrap();
    tell(world, peer, Packet::Publish(publish));
    finish(world);

    let client = &world.clients.mqtt;
    assert!(
        client.publisher.exchange.outgoing.is_empty(),
        "not answered: {:?}",
        client.publisher.exchange.outgoing
    );
    let mut times = BTreeMap::<&str, usize>::new();
    let mut last = BTreeMap::new();
    for (qos, text) in &client.subscriber.exchange.got {
        let seen = times.entry(text).or_default();
        *seen += 1;
        let expected =
            client.sent.get(number(text)).unwrap_or_else(|| panic!("altered: {text} was never sent"));
        assert_eq!((expected.0, &expected.1), (*qos, text), "altered");
        assert!(*qos == Q1 || *seen == 1, "{text} came twice");
        if *seen == 1 {
            let before = last.insert(*qos as u8, number(text));
            assert!(before < Some(number(text)), "{text} came after number {before:?}");
        }
    }
    let arrived: BTreeSet<_> = client.brief.exchange.got.iter().map(|(_, text)| number(text)).collect();
    let back: Vec<_> = arrived.intersection(&client.brief.gone).collect();
    assert!(back.is_empty(), "{back:?} came to a session that began after them");
    if let (false, Some(since)) = (undecided, since) {
        let lost: Vec<_> = (since..client.sent.len()).filter(|number| !arrived.contains(number)).collect();
        assert!(lost.is_empty(), "{lost:?} are lost for the session that began before them");
    }
    for (_, text) in &client.sent {
        assert!(times.contains_key(&text[..]), "{text} is lost");
    }

    connect(world, 2, "watcher");
    subscribe(world, 2, "r/#");
    let client = &world.clients.mqtt;
    match &client.watcher.exchange.got[..] {
        [] => assert_eq!(client.retained, 0, "the retained message is lost"),
        [(_, text)] => {
            assert!(Some(number(text)) >= client.retained_acked && number(text) <= client.retained, "{text}")
        }
        more => panic!("{more:?}"),
    }
}

/// Both clients go on until nothing is left to be said.
fn finish(world: &mut World) {
    world.settle();
    while speak(world, 0) | speak(world, 1) | speak(world, 3) {
        world.settle();
    }
}
