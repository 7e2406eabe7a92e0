//! An MQTT publisher and a subscriber with persistent sessions, QoS 1 and 2, and a retained
//! message, which is cleared now and then; a subscriber that begins new sessions; and one whose
//! session expires while it is away.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::BytesMut;
use forebay_mqtt::packet::{Connect, Disconnect, Subscribe, SubscribeOptions};
use forebay_mqtt::{Packet, Properties, Property, QoS, Reason, Sender, Version, frame};

use crate::node::MQTT;
use crate::support::chance::Chance;
use crate::support::mqtt::{Exchange, Q1, Q2, encode, id, lasting, publish, retained, text};
use crate::world::World;

/// Publications in flight.
const WINDOW: usize = 6;
const RETAINED: &str = "r/last";
/// Expiry interval of the session that expires, in seconds.
const EXPIRY: u32 = 30;

/// The clients. The watcher reads the retained message, the brief one begins new sessions, and the
/// session of the fleeting one expires while it is away.
const NAMES: [&str; 5] = ["publisher", "subscriber", "watcher", "brief", "fleeting"];
const PUBLISHER: usize = 0;
const SUBSCRIBER: usize = 1;
const WATCHER: usize = 2;
const BRIEF: usize = 3;
const FLEETING: usize = 4;

/// A client and its session.
#[derive(Clone, Debug, Default)]
struct Session {
    name: &'static str,
    peer: Option<u64>,
    /// Whether the broker has confirmed something that belongs to the session: a new session
    /// without anything is not missed.
    known: bool,
    /// Whether CONNACK has arrived.
    ready: bool,
    input: BytesMut,
    /// Packets to be sent.
    up: VecDeque<Packet>,
    exchange: Exchange,
    subscribed: bool,
    /// Messages that are gone with the former session if CONNACK says that a new one has begun, and
    /// whether one must.
    leaves: Option<(BTreeSet<usize>, bool)>,
    gone: BTreeSet<usize>,
    /// Messages from this one on are for this session.
    since: Option<usize>,
    /// When the client has left.
    left_at: Option<Duration>,
}

#[derive(Clone, Debug, Default)]
pub struct Client {
    sessions: [Session; NAMES.len()],
    /// Payloads that were published to subscribers, with their QoS.
    sent: Vec<(QoS, String)>,
    /// Retained payloads: the number that were published or cleared, and whether the newest one was
    /// cleared.
    retained: usize,
    cleared: bool,
    /// Time that has passed on the first broker.
    clock: Duration,
    /// Confirmations that have arrived.
    pub told: usize,
}

impl Client {
    pub fn peers(&self) -> Vec<u64> {
        self.sessions.iter().filter_map(|session| session.peer).collect()
    }

    pub fn pass(&mut self, time: Duration) {
        self.clock += time;
    }

    pub fn hear(&mut self, peer: u64, bytes: BytesMut) {
        let (mut confirmed, sent) = (0, self.sent.len());
        for session in self.sessions.iter_mut().filter(|session| session.peer == Some(peer)) {
            session.input.extend_from_slice(&bytes);
            while let Some(frame) = frame::Decoder::new(usize::MAX).next(&mut session.input).unwrap() {
                let packet = Packet::decode(&frame, Version::V5, Sender::Server).unwrap();
                confirmed += usize::from(matches!(
                    packet,
                    Packet::SubAck(_) | Packet::PubAck(_) | Packet::PubRec(_) | Packet::PubComp(_)
                ));
                session.handle(packet, sent);
            }
        }
        self.told += confirmed;
    }

    /// The messages that a session which ends now takes with it: those that the broker has.
    fn leaving(&self) -> BTreeSet<usize> {
        let outgoing = &self.sessions[PUBLISHER].exchange.outgoing;
        let pending: BTreeSet<usize> = outgoing
            .iter()
            .filter(|outgoing| !outgoing.publish.retain)
            .map(|outgoing| number(&text(&outgoing.publish)))
            .collect();
        (0..self.sent.len()).filter(|number| !pending.contains(number)).collect()
    }
}

impl Session {
    /// Handles a packet. So many messages were sent so far.
    fn handle(&mut self, packet: Packet, sent: usize) {
        self.known |= matches!(packet, Packet::SubAck(_) | Packet::PubAck(_) | Packet::PubRec(_));
        match packet {
            // The disk is full.
            Packet::ConnAck(ack) if ack.reason == Reason::ServerBusy && self.leaves.is_some() => {
                self.peer = None
            }
            Packet::ConnAck(ack) => {
                assert_eq!(ack.reason, Reason::Success, "{}", self.name);
                assert!(ack.session_present || !self.known, "{}: the session is lost", self.name);
                (self.ready, self.left_at) = (true, None);
                if let Some((gone, must)) = self.leaves.take() {
                    assert!(!ack.session_present || !must, "{}: the session has not ended", self.name);
                    if !ack.session_present {
                        *self = Self {
                            gone,
                            since: None,
                            subscribed: false,
                            exchange: Exchange::default(),
                            ..std::mem::take(self)
                        };
                    }
                    if !self.subscribed {
                        self.up.push_back(subscription("t/#"));
                    }
                }
                self.up.extend(self.exchange.again());
            }
            Packet::SubAck(_) => {
                self.subscribed = true;
                self.since = Some(sent);
            }
            packet => drop(self.exchange.hear(packet, &mut self.up)),
        }
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
    let session = &mut world.clients.mqtt.sessions[which];
    let (Some(peer), true) = (session.peer, session.ready) else { return false };
    let Some(packet) = session.up.pop_front() else { return false };
    tell(world, peer, packet);
    true
}

/// A client connects. It does not wait for the answer.
fn knock(world: &mut World, which: usize, clean_start: bool) {
    let peer = world.node.connect(MQTT);
    let session = &mut world.clients.mqtt.sessions[which];
    session.name = NAMES[which];
    (session.peer, session.ready) = (Some(peer), false);
    session.up.clear();
    session.input.clear();
    let mut connect = Connect { clean_start, ..lasting(NAMES[which]) };
    if which == FLEETING {
        connect.properties = Properties::new().with(Property::SessionExpiryInterval(EXPIRY));
    }
    tell(world, peer, Packet::Connect(Box::new(connect)));
}

fn connect(world: &mut World, which: usize) {
    knock(world, which, false);
    world.settle();
    assert!(world.clients.mqtt.sessions[which].ready, "no CONNACK");
}

fn subscribe(world: &mut World, which: usize, filter: &str) {
    let peer = world.clients.mqtt.sessions[which].peer.unwrap();
    tell(world, peer, subscription(filter));
    world.settle();
    assert!(world.clients.mqtt.sessions[which].subscribed, "no SUBACK");
}

fn subscription(filter: &str) -> Packet {
    let filters = vec![(filter.into(), SubscribeOptions::qos(Q2))];
    Packet::Subscribe(Subscribe { packet_id: id(9999), properties: Properties::new(), filters })
}

/// A client begins a new session. Until the answer comes, either one may be there.
fn begin_again(world: &mut World) {
    world.played("clean start");
    let client = &mut world.clients.mqtt;
    let leaves = client.leaving();
    let brief = &mut client.sessions[BRIEF];
    (brief.leaves, brief.known) = (Some((leaves, true)), false);
    knock(world, BRIEF, true);
}

/// A client goes, with or without a word.
fn leave(world: &mut World, chance: &mut Chance) {
    let client = &mut world.clients.mqtt;
    let fleeting = &mut client.sessions[FLEETING];
    let Some(peer) = fleeting.peer else { return };
    fleeting.ready = false;
    fleeting.left_at = Some(client.clock);
    if chance.percent(50) {
        tell(world, peer, Packet::Disconnect(Disconnect::new(Reason::Success)));
    } else {
        world.note();
    }
    let now = world.node.now;
    world.node.protocols[MQTT].disconnect(now, peer);
    world.clients.mqtt.sessions[FLEETING].peer = None;
    if chance.percent(50) {
        world.pass(Duration::from_secs(chance.within(20, 40) as u64));
    }
}

/// It comes back. If it was away for too long, its session has ended.
fn come_back(world: &mut World) {
    let client = &mut world.clients.mqtt;
    let leaves = client.leaving();
    let away = client.sessions[FLEETING].left_at.map_or(Duration::ZERO, |left_at| client.clock - left_at);
    let over = away > Duration::from_secs(u64::from(EXPIRY));
    let fleeting = &mut client.sessions[FLEETING];
    fleeting.known &= away < Duration::from_secs(u64::from(EXPIRY));
    fleeting.leaves = Some((leaves, over));
    if over {
        world.played("session expired");
    }
    knock(world, FLEETING, false);
}

pub fn set_up(world: &mut World) {
    connect(world, PUBLISHER);
    connect(world, SUBSCRIBER);
    subscribe(world, SUBSCRIBER, "t/#");
}

fn send(world: &mut World, chance: &mut Chance) {
    let client = &mut world.clients.mqtt;
    let publisher = &mut client.sessions[PUBLISHER];
    if publisher.exchange.outgoing.len() >= WINDOW {
        return;
    }
    let packet_id = publisher.exchange.free_id();
    let mut verb = None;
    let publish = if chance.percent(20) {
        client.retained += 1;
        client.cleared = chance.percent(35);
        verb = client.cleared.then_some("retained cleared");
        let text = if client.cleared { String::new() } else { payload("r", client.retained) };
        retained(RETAINED, Q1, packet_id, &text)
    } else {
        let qos = if chance.percent(50) { Q1 } else { Q2 };
        let text = payload("t", client.sent.len());
        client.sent.push((qos, text.clone()));
        publish("t/a", qos, packet_id, &text)
    };
    publisher.exchange.send(&publish);
    let peer = publisher.peer.unwrap();
    verb.into_iter().for_each(|verb| world.played(verb));
    tell(world, peer, Packet::Publish(publish));
}

pub fn step(world: &mut World, chance: &mut Chance) {
    let fleeting = &world.clients.mqtt.sessions[FLEETING];
    match chance.below(100) {
        0..38 => send(world, chance),
        38..54 => drop(speak(world, PUBLISHER)),
        54..57 => begin_again(world),
        57..69 => drop(speak(world, BRIEF)),
        69..74 if fleeting.peer.is_none() => come_back(world),
        69..71 if fleeting.ready => leave(world, chance),
        71..82 => drop(speak(world, FLEETING)),
        _ => drop(speak(world, SUBSCRIBER)),
    }
}

pub fn verify(world: &mut World) {
    if world.clients.mqtt.sessions[PUBLISHER].peer.is_none() {
        return;
    }
    for session in &mut world.clients.mqtt.sessions {
        // The new broker counts its connections from the beginning.
        session.peer = None;
    }
    connect(world, PUBLISHER);
    connect(world, SUBSCRIBER);
    let brief = &mut world.clients.mqtt.sessions[BRIEF];
    let undecided = brief.leaves.take().is_some();
    if undecided {
        brief.since = None;
    }
    connect(world, BRIEF);
    let leaves = world.clients.mqtt.leaving();
    let Client { sessions, clock, .. } = &mut world.clients.mqtt;
    let fleeting = &mut sessions[FLEETING];
    let expired = fleeting.left_at.is_some_and(|at| *clock - at >= Duration::from_secs(u64::from(EXPIRY)));
    // The new broker's clock begins where that of the first one did, so that what has not expired
    // never will.
    fleeting.known &= !expired;
    if fleeting.leaves.replace((leaves, false)).is_some_and(|(_, over)| over) {
        (fleeting.known, fleeting.since) = (false, None);
    }
    connect(world, FLEETING);
    if !world.clients.mqtt.sessions[SUBSCRIBER].subscribed {
        assert!(world.clients.mqtt.sent.is_empty());
        return;
    }
    finish(world);
    let text = payload("t", world.clients.mqtt.sent.len());
    world.clients.mqtt.sent.push((Q2, text.clone()));
    let publisher = &mut world.clients.mqtt.sessions[PUBLISHER];
    let packet_id = publisher.exchange.free_id();
    let publish = publish("t/a", Q2, packet_id, &text);
    publisher.exchange.send(&publish);
    let peer = publisher.peer.unwrap();
    tell(world, peer, Packet::Publish(publish));
    finish(world);

    let client = &world.clients.mqtt;
    let outgoing = &client.sessions[PUBLISHER].exchange.outgoing;
    assert!(outgoing.is_empty(), "not answered: {outgoing:?}");
    let mut times = BTreeMap::<&str, usize>::new();
    let mut last = BTreeMap::new();
    for (qos, text) in &client.sessions[SUBSCRIBER].exchange.got {
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
    for Session { name, exchange, gone, since, .. } in [&client.sessions[BRIEF], &client.sessions[FLEETING]] {
        let arrived: BTreeSet<_> = exchange.got.iter().map(|(_, text)| number(text)).collect();
        let back: Vec<_> = arrived.intersection(gone).collect();
        assert!(back.is_empty(), "{name}: {back:?} came to a session that began after them");
        if let Some(since) = since {
            let lost: Vec<_> =
                (*since..client.sent.len()).filter(|number| !arrived.contains(number)).collect();
            assert!(lost.is_empty(), "{name}: {lost:?} are lost for the session that began before them");
        }
    }
    for (_, text) in &client.sent {
        assert!(times.contains_key(&text[..]), "{text} is lost");
    }

    connect(world, WATCHER);
    subscribe(world, WATCHER, "r/#");
    let client = &world.clients.mqtt;
    match &client.sessions[WATCHER].exchange.got[..] {
        [] => assert!(client.retained == 0 || client.cleared, "the retained message is lost"),
        [(_, text)] => {
            assert!(!client.cleared, "{text} was cleared");
            assert_eq!(number(text), client.retained, "{text}");
        }
        more => panic!("{more:?}"),
    }
}

/// The clients go on until nothing is left to be said.
fn finish(world: &mut World) {
    world.settle();
    while [PUBLISHER, SUBSCRIBER, BRIEF, FLEETING]
        .into_iter()
        .fold(false, |more, which| speak(world, which) | more)
    {
        world.settle();
    }
}
