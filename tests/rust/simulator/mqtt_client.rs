//! The MQTT client's state machines against the embedded broker's, without sockets and clock.
//!
//! The network delays, cuts packets anywhere, drops bytes in flight and reports a cut late or
//! never. The broker is killed between its commits, and sessions get lost.
//!
//! A tap on each client's wire checks every packet: free identifiers, DUP on repeated packets only,
//! no PUBLISH after its PUBREC, windows that neither side exceeds, acknowledgements in order of
//! arrival: `engine` follows no packet, and its sessions are never lost. At rest every publication
//! has ended, and each acknowledged one was delivered: QoS 1 at least once, QoS 2 exactly once, in
//! the order of its topic.
//!
//! Each run follows from its seed: `SIMULATOR_SEED=n` replays one run, `SIMULATOR_SEEDS=n` sets the
//! number of runs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use forebay_base::error::{Error, ErrorKind};
use forebay_base::machine::Machine as _;
use forebay_base::transmit::Transmit;
use forebay_broker::protocol::Protocol as _;
use forebay_mqtt::connection::{Connection, Event};
use forebay_mqtt::packet::{Connect, PacketId, Publish, SubscribeOptions};
use forebay_mqtt::session::{self, Session};
use forebay_mqtt::topic::Filter;
use forebay_mqtt::{Packet, Properties, Property, QoS, Sender, Version, frame};

use crate::support::chance::Chance;
use crate::support::link::Link;
use crate::support::mqtt::*;
use crate::support::seeds::{self, play, trace};

const STEPS: usize = 300;
/// Steps within which the run must come to rest.
const PATIENCE: usize = 20_000;
/// Publications that a publisher has open.
const OPEN: usize = 12;
const KEEP_ALIVE: u16 = 5;
const HANDSHAKE: Duration = Duration::from_secs(3);

/// The use of a packet identifier of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Published(QoS),
    Released,
    Request,
}

/// Checks every packet of one client.
#[derive(Default)]
struct Tap {
    heard: BytesMut,
    uses: BTreeMap<PacketId, Use>,
    /// Unacknowledged publications of QoS 1 and 2 on this connection.
    in_flight: BTreeSet<PacketId>,
    window: u16,
    /// The server's publications, until our acknowledgement is complete.
    incoming: BTreeSet<PacketId>,
    receive_maximum: usize,
    /// In the order of arrival, until PUBACK or PUBREC.
    arrivals: VecDeque<(PacketId, QoS)>,
}

impl Tap {
    fn says(&mut self, packet: &Packet) {
        match packet {
            Packet::Connect(_) => {
                self.heard.clear();
                self.in_flight.clear();
                self.incoming.clear();
                self.arrivals.clear();
                self.uses.retain(|_, used| *used != Use::Request);
            }
            Packet::Publish(Publish { packet_id: Some(id), qos, dup, .. }) => {
                let expected = if *dup { Some(Use::Published(*qos)) } else { None };
                assert_eq!(self.uses.get(id), expected.as_ref(), "PUBLISH {id} with DUP {dup}");
                self.uses.insert(*id, Use::Published(*qos));
                assert!(self.in_flight.insert(*id), "PUBLISH {id} twice on a connection");
                assert!(self.in_flight.len() <= usize::from(self.window), "{:?}", self.in_flight);
            }
            Packet::PubRel(ack) => {
                assert_eq!(self.uses.get(&ack.packet_id), Some(&Use::Released), "PUBREL {}", ack.packet_id);
                self.in_flight.insert(ack.packet_id);
            }
            Packet::Subscribe(subscribe) => {
                let before = self.uses.insert(subscribe.packet_id, Use::Request);
                assert_eq!(before, None, "SUBSCRIBE {}", subscribe.packet_id);
            }
            Packet::PubAck(ack) => {
                assert_eq!(self.arrivals.pop_front(), Some((ack.packet_id, Q1)), "out of order");
                self.incoming.remove(&ack.packet_id);
            }
            Packet::PubRec(ack) => {
                assert_eq!(self.arrivals.pop_front(), Some((ack.packet_id, Q2)), "out of order");
            }
            Packet::PubComp(ack) => drop(self.incoming.remove(&ack.packet_id)),
            Packet::PingReq | Packet::Publish(_) | Packet::Disconnect(_) => {}
            other => panic!("a client says {other:?}"),
        }
    }

    fn hears(&mut self, packet: &Packet) {
        match packet {
            Packet::ConnAck(ack) => {
                let theirs = ack.properties.receive_maximum().copied().unwrap_or(u16::MAX);
                self.window = self.window.min(theirs);
                if !ack.session_present {
                    self.uses.clear();
                }
            }
            Packet::PubAck(ack) | Packet::PubComp(ack) => {
                self.uses.remove(&ack.packet_id);
                self.in_flight.remove(&ack.packet_id);
            }
            Packet::PubRec(ack) => drop(self.uses.insert(ack.packet_id, Use::Released)),
            Packet::SubAck(ack) => drop(self.uses.remove(&ack.packet_id)),
            Packet::Publish(Publish { packet_id: Some(id), qos, .. }) => {
                self.arrivals.push_back((*id, *qos));
                self.incoming.insert(*id);
                assert!(self.incoming.len() <= self.receive_maximum, "{:?}", self.incoming);
            }
            _ => {}
        }
    }
}

struct Client {
    name: &'static str,
    version: Version,
    window: u16,
    receive_maximum: u16,
    session: Session,
    connection: Option<(Connection, usize)>,
    input: BytesMut,
    dial_at: Instant,
    tap: Tap,
    /// The subscriber's messages that the application has not acknowledged.
    unacked: Vec<u64>,
    /// Publications without an outcome, by QoS.
    open: [VecDeque<String>; 3],
    published: usize,
    acked: Vec<(QoS, String)>,
    failed: usize,
    got: Vec<Publish>,
    subscribed: bool,
    /// The broker has lost its session and not reported that yet.
    robbed: bool,
}

impl Client {
    fn connect(&self) -> Connect {
        let mut connect = lasting(self.name);
        connect.version = self.version;
        connect.keep_alive = KEEP_ALIVE;
        connect.properties.push(Property::ReceiveMaximum(self.receive_maximum));
        connect.properties.push(Property::TopicAliasMaximum(2));
        if self.version != Version::V5 {
            connect.properties = Properties::new();
        }
        connect
    }

    fn publish(&mut self, now: Instant, chance: &mut Chance) {
        if self.open.iter().map(VecDeque::len).sum::<usize>() >= OPEN {
            return;
        }
        self.published += 1;
        let qos = QoS::from_bits(chance.below(3) as u8).expect("below 3");
        let topic = format!("t/{}/{}", self.name, chance.below(4));
        let payload = format!("{} {}", self.name, self.published);
        let padding = if chance.percent(10) { 1500 } else { 0 };
        let publish = Publish {
            packet_id: None,
            retain: false,
            ..publish(&topic, qos, 1, &format!("{payload} {}", "x".repeat(padding)))
        };
        self.session.producer().push(now, 1, publish);
        self.open[qos as usize].push_back(payload);
    }

    fn events(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                session::Event::Published(outcome) => {
                    for _ in 0..outcome.count {
                        let payload = self.open[outcome.qos as usize].pop_front().expect("it was open");
                        match &outcome.result {
                            Ok(_) => self.acked.push((outcome.qos, payload)),
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
                                assert_ne!(outcome.qos, Q1, "QoS 1 always gets there: {error}");
                                self.failed += 1;
                            }
                        }
                    }
                }
                session::Event::Message { publish, token } => {
                    self.got.push(publish);
                    if token > 0 {
                        self.unacked.push(token);
                    }
                }
                session::Event::Subscribed { result, .. } => {
                    assert!(result.unwrap().iter().all(|reason| !reason.is_error()));
                    self.subscribed = true;
                }
                session::Event::Unsubscribed { .. } => panic!("no request was pending"),
            }
        }
    }

    /// Handles received bytes; an error ends the connection.
    fn hear(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Error> {
        let (connection, _) = self.connection.as_mut().expect("it is connected");
        self.tap.heard.extend_from_slice(bytes);
        while let Some(frame) = frame::Decoder::new(usize::MAX).next(&mut self.tap.heard).unwrap() {
            let packet = Packet::decode(&frame, self.version, Sender::Server).unwrap();
            trace(format_args!("    {} hears {packet:?}", self.name));
            self.tap.hears(&packet);
        }
        self.input.extend_from_slice(bytes);
        let result = connection.handle_input(now, &mut self.input);
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Connected(ack) => {
                    // A CONNACK with a session was in flight before the takeover.
                    self.robbed &= ack.session_present;
                    self.session.attach(ack.session_present);
                }
                Event::Packet(packet) => self
                    .session
                    .handle_packet(now, packet, connection)
                    .unwrap_or_else(|violation| panic!("{}: {violation:?}", self.name)),
                Event::Auth(_) => panic!("no authentication was started"),
            }
        }
        if let Err(error) = &result {
            let fault = matches!(error.kind(), ErrorKind::Protocol | ErrorKind::FrameTooLarge);
            assert!(!fault, "{}: the broker broke the protocol: {error}", self.name);
        }
        result
    }

    /// The bytes that it sends now.
    fn turn(&mut self, now: Instant, budget: usize) -> BytesMut {
        let Some((connection, _)) = &mut self.connection else { return BytesMut::new() };
        if connection.is_ready() {
            self.session.poll_transmit(now, connection, budget);
        }
        let bytes = connection.transmit().take();
        self.session.handle_written(connection.queued());
        let mut said = bytes.clone();
        while let Some(frame) = frame::Decoder::new(usize::MAX).next(&mut said).unwrap() {
            let packet = Packet::decode(&frame, self.version, Sender::Client).unwrap();
            trace(format_args!("    {} says {packet:?}", self.name));
            self.tap.says(&packet);
        }
        bytes
    }

    /// Ends the connection.
    fn detach(&mut self, again: Instant) {
        self.connection = None;
        self.input.clear();
        if self.session.is_attached() {
            self.session.detach();
        }
        self.dial_at = again;
    }
}

struct World {
    bench: Bench,
    clients: Vec<Client>,
    links: Vec<Link>,
    chance: Chance,
    /// Longest delay of a piece, in microseconds.
    slowness: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let (receive_maximum, max_inflight) = (chance.within(1, 8) as u16, chance.within(1, 8) as u16);
        let aliases = chance.below(4) as u16;
        let bench = Bench::with(|settings| {
            settings.limits.receive_maximum = receive_maximum;
            settings.limits.max_inflight = max_inflight;
            settings.limits.topic_alias_maximum = aliases;
        });
        let mut clients = Vec::new();
        for name in ["p1", "p2", "s1", "s2"] {
            let version = if chance.percent(60) { Version::V5 } else { Version::V3_1_1 };
            let (window, receive_maximum) = (chance.within(1, 8) as u16, chance.within(1, 6) as u16);
            let mut session = Session::new(window, receive_maximum);
            let filter = match name {
                "s1" => Some(("t/#", Q2)),
                "s2" => Some(("t/+/+", Q1)),
                _ => None,
            };
            if let Some((filter, qos)) = filter {
                let filter = Filter::parse(filter).unwrap();
                session.subscribe(1, vec![(filter, SubscribeOptions::qos(qos))]);
            }
            clients.push(Client {
                name,
                version,
                window,
                receive_maximum,
                session,
                connection: None,
                input: BytesMut::new(),
                dial_at: bench.now,
                tap: Tap::default(),
                unacked: Vec::new(),
                open: Default::default(),
                published: 0,
                acked: Vec::new(),
                failed: 0,
                got: Vec::new(),
                subscribed: filter.is_none(),
                robbed: false,
            });
        }
        let slowness = chance.within(1, 30_000);
        Self { bench, clients, links: Vec::new(), chance, slowness }
    }

    fn dial(&mut self, index: usize) {
        let now = self.bench.now;
        let peer = self.bench.open_peer();
        let client = &mut self.clients[index];
        let version = client.version;
        client.tap.window = client.window;
        client.tap.receive_maximum = match version {
            Version::V5 => usize::from(client.receive_maximum),
            _ => usize::MAX,
        };
        let connection = Connection::new(now, client.connect(), HANDSHAKE).unwrap();
        client.connection = Some((connection, self.links.len()));
        self.links.push(Link::new(index, (peer, 0)));
        trace(format_args!("{} dials", client.name));
    }

    /// Does everything that is due now.
    fn pump(&mut self) {
        let now = self.bench.now;
        if self.bench.broker.poll_timeout().is_some_and(|due| due <= now) {
            self.bench.broker.handle_timeout(now);
        }
        self.bench.settle();
        for index in 0..self.clients.len() {
            if self.clients[index].connection.is_none() && self.clients[index].dial_at <= now {
                self.dial(index);
            }
            self.serve_client(index);
        }
        for index in 0..self.links.len() {
            self.serve_broker(index);
        }
    }

    fn serve_client(&mut self, index: usize) {
        let now = self.bench.now;
        let client = &mut self.clients[index];
        let Some((_, place)) = client.connection else { return };
        let link = &mut self.links[place];
        let mut bytes = BytesMut::new();
        let mut ended = None;
        if link.down.read(now, &mut bytes) {
            ended = client.hear(now, &bytes).err();
        }
        if ended.is_none()
            && let Some((connection, _)) = &mut client.connection
            && connection.poll_timeout().is_some_and(|due| due <= now)
        {
            ended = connection.handle_timeout(now).err();
        }
        if ended.is_none() && link.client_end.is_some_and(|end| end <= now) {
            ended = Some(Error::new(ErrorKind::Disconnected, "the socket ended"));
        }
        let budget = self.chance.within(1, 3000);
        let said = client.turn(now, budget);
        if !said.is_empty() {
            link.up.write(now, said.freeze(), self.slowness, &mut self.chance);
        }
        if let Some(error) = ended {
            trace(format_args!("{} lets go: {error}", client.name));
            if !link.client_gone {
                link.close_client(now, &mut self.chance);
            }
            client.detach(now + self.chance.micros(500_000));
        }
        client.events();
    }

    fn serve_broker(&mut self, place: usize) {
        let now = self.bench.now;
        let link = &mut self.links[place];
        if link.broker_gone {
            return;
        }
        let peer = link.session.0;
        if self.bench.broker.may_read(peer) && link.up.read(now, &mut link.input) {
            let name = self.clients[link.node].name;
            if let Err(error) = self.bench.broker.handle_input(now, peer, &mut link.input) {
                panic!("{name} broke the protocol: {error}");
            }
            self.bench.settle();
        }
        loop {
            let mut output = Transmit::default();
            self.bench.broker.take_output(now, peer, &mut output);
            self.bench.settle();
            if output.is_empty() {
                break;
            }
            link.down.write(now, output.take().freeze(), self.slowness, &mut self.chance);
        }
        let silent = self.bench.broker.session_timeout(peer).is_some_and(|due| due <= now)
            && self.bench.broker.handle_session_timeout(now, peer).is_err();
        let finished = silent || self.bench.broker.finished(peer);
        if finished || link.broker_end.is_some_and(|end| end <= now) {
            trace(format_args!("the broker lets go of {}", self.clients[link.node].name));
            link.close_broker(now, &mut self.chance);
            self.bench.drop_peer(peer);
        }
    }

    /// Advances to the next event.
    fn advance(&mut self) {
        let links = self.links.iter().filter_map(Link::next);
        let clients = self.clients.iter().filter_map(|client| match &client.connection {
            Some((connection, _)) => connection.poll_timeout(),
            None => Some(client.dial_at),
        });
        let peers = self.links.iter().filter(|link| !link.broker_gone);
        let silence = peers.filter_map(|link| self.bench.broker.session_timeout(link.session.0));
        let due = links.chain(clients).chain(silence).chain(self.bench.broker.poll_timeout()).min();
        let limit = self.bench.now + Duration::from_secs(1);
        self.bench.now = due.map_or(limit, |due| due.clamp(self.bench.now, limit));
    }

    fn cut(&mut self, index: usize) {
        let now = self.bench.now;
        if let Some((_, place)) = self.clients[index].connection {
            trace(format_args!("{} is cut", self.clients[index].name));
            self.links[place].cut(now, &mut self.chance);
        }
    }

    fn kill(&mut self) {
        let now = self.bench.now;
        let written = self.chance.below(self.bench.unwritten() + 1);
        trace(format_args!("killed, {written} of {} written", self.bench.unwritten()));
        for link in self.links.iter_mut().filter(|link| !link.broker_gone) {
            link.close_broker(now, &mut self.chance);
        }
        self.bench.kill(written);
    }

    /// Another client uses the name for a clean session, which discards the broker's state. No
    /// accident happens until our client knows: if its CONNACK were lost, the next would report a
    /// session, that of the first. This gap is in the standard.
    fn steal(&mut self, index: usize) {
        let stands = |link: &Link| link.node != index || link.broker_gone || !link.is_broken();
        if !self.clients[index].session.is_attached() || !self.links.iter().all(stands) {
            return;
        }
        trace(format_args!("{} loses its session", self.clients[index].name));
        self.clients[index].robbed = true;
        let peer = self.bench.open_peer();
        let thief = Connect::new(Version::V5, self.clients[index].name);
        self.bench.tell(&Peer { id: peer, version: Version::V5 }, Packet::Connect(Box::new(thief))).unwrap();
        self.bench.drop_peer(peer);
    }

    fn ack(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if client.unacked.is_empty() {
            return;
        }
        let token = client.unacked.swap_remove(self.chance.below(client.unacked.len()));
        let connection = client.connection.as_mut().map(|(connection, _)| connection);
        client.session.ack(self.bench.now, token, connection.filter(|connection| connection.is_ready()));
    }

    fn step(&mut self) {
        let index = self.chance.below(self.clients.len());
        match self.chance.below(1000) {
            0..6 if self.clients.iter().all(|client| !client.robbed) => self.kill(),
            6..26 if !self.clients[index].robbed => self.cut(index),
            26..30 if index < 2 => self.steal(index),
            30..200 => {
                let some = self.chance.below(self.bench.unwritten() + 1);
                self.bench.write(some);
            }
            200..500 if index < 2 => {
                let now = self.bench.now;
                self.clients[index].publish(now, &mut self.chance);
            }
            200..600 => self.ack(index),
            _ => {
                if self.clients.iter().any(|client| client.robbed) {
                    // CONNACK waits for the disk. After the client's patience it would be as good
                    // as lost.
                    self.bench.write(usize::MAX);
                }
                self.advance();
            }
        }
        self.pump();
    }

    /// Runs without accidents until nothing is left to do.
    fn rest(&mut self) {
        self.bench.held = false;
        self.bench.settle();
        let mut still = 0;
        for _ in 0..PATIENCE {
            self.pump();
            (0..self.clients.len()).for_each(|index| self.ack(index));
            let at_rest = |client: &Client| {
                client.subscribed
                    && client.session.is_attached()
                    && client.session.pending_messages() == 0
                    && client.unacked.is_empty()
            };
            // A broken connection must first be detected by its keep-alive.
            let quiet = |link: &Link| link.next().is_none() && (link.client_gone || !link.is_broken());
            let quiet = self.links.iter().all(quiet);
            // An acknowledgement made just now is in flight the next time.
            still = if quiet && self.clients.iter().all(at_rest) { still + 1 } else { 0 };
            if still == 3 {
                return;
            }
            self.advance();
        }
        panic!("it does not come to rest");
    }

    fn run(mut self) -> (usize, usize) {
        self.rest();
        self.bench.held = true;
        (0..STEPS).for_each(|_| self.step());
        self.rest();
        self.check()
    }

    fn check(mut self) -> (usize, usize) {
        let (mut acked, mut failed) = (0, 0);
        for publisher in &self.clients[..2] {
            assert!(publisher.open.iter().all(VecDeque::is_empty), "{} has no outcome", publisher.name);
            assert_eq!(publisher.acked.len() + publisher.failed, publisher.published);
            acked += publisher.acked.len();
            failed += publisher.failed;
        }
        for subscriber in &self.clients[2..] {
            let mut times: BTreeMap<&str, usize> = BTreeMap::new();
            let mut last: BTreeMap<(&str, QoS), usize> = BTreeMap::new();
            for publish in &subscriber.got {
                let text = std::str::from_utf8(&publish.payload).unwrap();
                let (payload, _) = text.rsplit_once(' ').unwrap();
                let times = times.entry(payload).or_default();
                *times += 1;
                assert!(publish.qos == Q1 || *times == 1, "{}: {payload} twice", subscriber.name);
                let number: usize = payload.split_once(' ').unwrap().1.parse().unwrap();
                let last = last.entry((&publish.topic, publish.qos)).or_default();
                assert!(*times > 1 || *last < number, "{}: {payload} behind {last}", subscriber.name);
                *last = number.max(*last);
            }
            for (qos, payload) in self.clients[..2].iter().flat_map(|publisher| &publisher.acked) {
                let times = times.get(&**payload).copied().unwrap_or(0);
                assert!(*qos == Q0 || times > 0, "{}: {payload} is lost", subscriber.name);
            }
        }
        let look = self.bench.connect("look");
        let heard = self.bench.subscribe(&look, "$SYS/broker/store/messages/count", Q0);
        assert_eq!(text(&message(heard[0].clone())), "0", "the store holds messages without a session");
        (acked, failed)
    }
}

fn play_half(half: u64) {
    const SEEDS: u64 = 500;
    let (mut acked, mut failed) = (0, 0);
    for seed in seeds::share(SEEDS, half, 2) {
        let outcome = play(seed, || World::new(seed).run());
        acked += outcome.0;
        failed += outcome.1;
    }
    if seeds::replayed().is_none() {
        let runs = seeds::count(SEEDS);
        // Accidents without consequences would prove nothing.
        assert!(
            acked as u64 > runs * 10 && failed as u64 > runs / 20,
            "{acked} acknowledged, {failed} failed"
        );
    }
}

#[test]
fn acknowledged_is_not_lost_and_qos_2_comes_exactly_once_in_order_1() {
    play_half(0);
}

#[test]
fn acknowledged_is_not_lost_and_qos_2_comes_exactly_once_in_order_2() {
    play_half(1);
}
