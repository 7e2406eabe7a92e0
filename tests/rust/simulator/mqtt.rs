//! Scripted MQTT clients against the embedded broker without sockets and clock, on a real database.
//!
//! The network delays and cuts, each side detects a cut by itself, and the broker is killed between
//! its commits.
//!
//! Publishers and subscribers have persistent sessions. At rest, each acknowledged message of QoS 1
//! was delivered at least once and each of QoS 2 exactly once, in order, and the store is empty:
//! which `engine` does not check, and its clients are the library's own.
//!
//! Each run follows from its seed: `SIMULATOR_SEED=n` replays one run, `SIMULATOR_SEEDS=n` sets the
//! number of runs.

use std::collections::{BTreeMap, VecDeque};

use forebay_broker::protocol::Protocol as _;
use forebay_mqtt::packet::Connect;
use forebay_mqtt::{Packet, Properties, Property, QoS, Reason, Version};

use crate::support::chance::Chance;
use crate::support::mqtt::*;
use crate::support::seeds::{self, play, trace};

const STEPS: usize = 400;
/// Messages that a publisher has in flight.
const WINDOW: usize = 8;

#[derive(Default)]
struct Client {
    name: String,
    version: Option<Version>,
    receive_maximum: u16,
    peer: Option<Peer>,
    /// Whether CONNACK has arrived.
    ready: bool,
    up: VecDeque<Packet>,
    down: VecDeque<Packet>,
    published: u32,
    exchange: Exchange,
}

impl Client {
    fn connect(&self) -> Connect {
        let version = self.version.unwrap();
        let properties = Properties::new()
            .with(Property::SessionExpiryInterval(u32::MAX))
            .with(Property::ReceiveMaximum(self.receive_maximum));
        let properties = if version == Version::V5 { properties } else { Properties::new() };
        Connect { version, properties, ..lasting(&self.name) }
    }

    fn publish(&mut self, chance: &mut Chance) {
        if self.exchange.outgoing.len() >= WINDOW {
            return;
        }
        let packet_id = self.exchange.free_id();
        let qos = if chance.percent(50) { Q1 } else { Q2 };
        self.published += 1;
        let payload = format!("{} {}", self.name, self.published);
        let publish = publish(&format!("t/{}", self.name), qos, packet_id, &payload);
        self.exchange.send(&publish);
        if self.ready {
            self.up.push_back(Packet::Publish(publish));
        }
    }

    fn hear(&mut self, packet: Packet) {
        trace(format_args!("{} hears {packet:?}", self.name));
        match packet {
            Packet::ConnAck(ack) => {
                assert_eq!(ack.reason, Reason::Success, "{}", self.name);
                assert!(ack.session_present, "{}: the session is lost", self.name);
                self.ready = true;
                self.up.extend(self.exchange.again());
            }
            packet => drop(self.exchange.hear(packet, &mut self.up)),
        }
    }
}

struct World {
    bench: Bench,
    clients: Vec<Client>,
    /// Connections whose end the broker has not detected.
    ghosts: Vec<u64>,
    chance: Chance,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let mut bench = Bench::new();
        let mut clients = Vec::new();
        for name in ["p1", "p2", "s1", "s2"] {
            let version = if chance.percent(50) { Version::V5 } else { Version::V3_1_1 };
            let client = Client {
                name: name.into(),
                version: Some(version),
                receive_maximum: chance.within(1, 6) as u16,
                ..Client::default()
            };
            let peer = bench.connect_with(client.connect(), false);
            match name {
                "s1" => drop(bench.subscribe(&peer, "t/#", Q2)),
                "s2" => drop(bench.subscribe(&peer, "t/+", Q1)),
                _ => {}
            }
            bench.drop_peer(peer.id);
            clients.push(client);
        }
        bench.held = true;
        Self { bench, clients, ghosts: Vec::new(), chance }
    }

    /// Takes the broker's packets to all clients.
    fn collect(&mut self) {
        for client in &mut self.clients {
            if let Some(peer) = client.peer {
                client.down.extend(self.bench.hear(&peer));
            }
        }
    }

    fn dial(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let peer = Peer { id: self.bench.open_peer(), version: client.version.unwrap() };
        client.peer = Some(peer);
        client.up.push_back(Packet::Connect(Box::new(client.connect())));
    }

    /// The client loses its connection and the last bytes in flight.
    fn cut(&mut self, index: usize) {
        self.collect();
        let client = &mut self.clients[index];
        let Some(peer) = client.peer.take() else { return };
        trace(format_args!("{} is cut", client.name));
        let arrives = self.chance.below(client.up.len() + 1);
        let heard = self.chance.below(client.down.len() + 1);
        let up: Vec<Packet> = client.up.drain(..).take(arrives).collect();
        let down: Vec<Packet> = client.down.drain(..).take(heard).collect();
        down.into_iter().for_each(|packet| client.hear(packet));
        client.up.clear();
        client.ready = false;
        for packet in up {
            // Packets that still reach the broker may be answered in vain.
            trace(format_args!("{index} last words {packet:?}"));
            let _ = self.bench.tell(&peer, packet);
        }
        if self.chance.percent(50) {
            self.bench.drop_peer(peer.id);
        } else {
            self.ghosts.push(peer.id);
        }
    }

    fn kill(&mut self) {
        self.collect();
        for client in &mut self.clients {
            let heard = self.chance.below(client.down.len() + 1);
            let down: Vec<Packet> = client.down.drain(..).take(heard).collect();
            down.into_iter().for_each(|packet| client.hear(packet));
            client.up.clear();
            client.ready = false;
            client.peer = None;
        }
        self.ghosts.clear();
        let written = self.chance.below(self.bench.unwritten() + 1);
        trace(format_args!("killed, {written} of {} written", self.bench.unwritten()));
        self.bench.kill(written);
    }

    fn exchange(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if let Some(peer) = client.peer
            && let Some(packet) = client.up.pop_front()
        {
            trace(format_args!("{} says {packet:?}", client.name));
            self.bench.tell(&peer, packet).unwrap_or_else(|error| panic!("{}: {error}", client.name));
        }
        self.collect();
        let client = &mut self.clients[index];
        for _ in 0..self.chance.below(3) {
            if let Some(packet) = client.down.pop_front() {
                client.hear(packet);
            }
        }
        // A connection that was taken over ends.
        if client.peer.is_some_and(|peer| self.bench.broker.finished(peer.id)) {
            panic!("{}: the broker ended the connection", client.name);
        }
    }

    fn run(mut self) {
        for _ in 0..STEPS {
            let index = self.chance.below(self.clients.len());
            match self.chance.below(100) {
                0..2 => self.kill(),
                2..8 => self.cut(index),
                8..10 => {
                    if let Some(ghost) = self.ghosts.pop() {
                        self.bench.drop_peer(ghost);
                    }
                }
                10..25 if self.clients[index].peer.is_none() => self.dial(index),
                25..40 => {
                    let some = self.chance.below(self.bench.unwritten() + 1);
                    self.bench.write(some);
                }
                40..60 if index < 2 => self.clients[index].publish(&mut self.chance),
                _ => self.exchange(index),
            }
        }
        // No more accidents: the run comes to rest.
        self.bench.held = false;
        self.bench.write(usize::MAX);
        for index in 0..self.clients.len() {
            if self.clients[index].peer.is_none() {
                self.dial(index);
            }
        }
        let mut quiet = 0;
        while quiet < 3 {
            self.collect();
            let busy = self.clients.iter().any(|c| !c.up.is_empty() || !c.down.is_empty());
            quiet = if busy { 0 } else { quiet + 1 };
            (0..self.clients.len()).for_each(|index| self.exchange(index));
        }
        self.check();
    }

    fn check(mut self) {
        let mut sent: BTreeMap<String, (QoS, u32)> = BTreeMap::new();
        for publisher in &self.clients[..2] {
            assert!(publisher.exchange.outgoing.is_empty(), "{} was not answered", publisher.name);
            assert!(publisher.published > 0 || publisher.exchange.got.is_empty());
            for number in 1..=publisher.published {
                sent.insert(format!("{} {number}", publisher.name), (Q1, number));
            }
        }
        for subscriber in &self.clients[2..] {
            let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
            let mut last: BTreeMap<(&str, QoS), u32> = BTreeMap::new();
            for (qos, payload) in &subscriber.exchange.got {
                let times = seen.entry(payload).or_default();
                *times += 1;
                assert!(*qos == Q1 || *times == 1, "{}: {payload} twice", subscriber.name);
                let (publisher, number) = payload.split_once(' ').unwrap();
                if *times == 1 {
                    let last = last.entry((publisher, *qos)).or_default();
                    let number: u32 = number.parse().unwrap();
                    assert!(*last < number, "{}: {payload} after {publisher} {last}", subscriber.name);
                    *last = number;
                }
            }
            for payload in sent.keys() {
                assert!(seen.contains_key(&**payload), "{}: {payload} is lost", subscriber.name);
            }
        }
        let look = self.bench.connect("look");
        let heard = self.bench.subscribe(&look, "$SYS/broker/store/messages/count", Q0);
        assert_eq!(text(&message(heard[0].clone())), "0", "the store holds messages without a session");
    }
}

fn play_half(half: u64) {
    seeds::share(300, half, 2).for_each(|seed| play(seed, || World::new(seed).run()));
}

#[test]
fn qos_1_is_not_lost_and_qos_2_comes_exactly_once_in_order_1() {
    play_half(0);
}

#[test]
fn qos_1_is_not_lost_and_qos_2_comes_exactly_once_in_order_2() {
    play_half(1);
}
