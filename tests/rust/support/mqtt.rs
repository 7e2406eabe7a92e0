//! An MQTT broker without socket and clock, on a real database, driven by hand.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::transmit::Transmit;
use forebay_broker::log::{Source, TopicIds};
use forebay_broker::mqtt::{Broker, Settings};
use forebay_broker::protocol::{Clock, Protocol as _};
use forebay_broker::store::{self, Directory, Op, Stored, prepare};
use forebay_mqtt::packet::{
    Ack, ConnAck, Connect, Disconnect, PacketId, Publish, SubAck, Subscribe, SubscribeOptions, Unsubscribe,
};
use forebay_mqtt::{Packet, Properties, Property, QoS, Reason, Sender, Version, frame};
use forebay_sqlite::{Connection, Job, Outcome, Report, Sync};

pub use super::settings::mqtt as settings;

pub const Q0: QoS = QoS::AtMostOnce;
pub const Q1: QoS = QoS::AtLeastOnce;
pub const Q2: QoS = QoS::ExactlyOnce;

/// A broker, its store and its time.
pub struct Bench {
    pub broker: Broker,
    pub start: Instant,
    pub now: Instant,
    /// Whether the store holds its reports back.
    pub held: bool,
    ops: VecDeque<Op>,
    pub db: Connection,
    directory: tempfile::TempDir,
    settings: Settings,
}

pub fn id(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

pub fn publish(topic: &str, qos: QoS, packet_id: u16, payload: &str) -> Publish {
    Publish {
        qos,
        topic: topic.into(),
        packet_id: (qos != Q0).then(|| id(packet_id)),
        payload: payload.to_owned().into(),
        ..Publish::default()
    }
}

pub fn retained(topic: &str, qos: QoS, packet_id: u16, payload: &str) -> Publish {
    Publish { retain: true, ..publish(topic, qos, packet_id, payload) }
}

impl Bench {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let now = Instant::now();
        let mut settings = settings(now);
        change(&mut settings);
        let directory = tempfile::tempdir().unwrap();
        let db = Directory::open(directory.path()).unwrap().connect(Sync::Os).unwrap();
        prepare(&db).unwrap();
        let broker = Self::open(&settings, &db, &directory, now);
        Self { broker, start: now, now, held: false, ops: VecDeque::new(), db, directory, settings }
    }

    fn open(settings: &Settings, db: &Connection, directory: &tempfile::TempDir, now: Instant) -> Broker {
        let found = store::mqtt::load(db, &TopicIds::new(1)).unwrap();
        let second = Directory::open(directory.path()).unwrap().connect(Sync::Os).unwrap();
        let source: Box<dyn Source> = Box::new(Stored::new(second));
        Broker::new(settings.clone(), found, Some(source), now)
    }

    /// Writes the first `count` of the pending changes.
    fn apply(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let transaction = self.db.unchecked_transaction().unwrap();
        for op in self.ops.drain(..count) {
            op.apply(&transaction).unwrap();
        }
        transaction.commit().unwrap();
    }

    /// Takes the changes; writes and reports them unless they are held.
    pub fn settle(&mut self) {
        while let Some(work) = self.broker.poll_work() {
            self.broker.handle_work(self.now, work.id, (work.job)());
        }
        while let Some(op) = self.broker.poll_op() {
            self.ops.push_back(op);
        }
        if !self.held {
            self.write(usize::MAX);
        }
    }

    /// Writes and reports up to `count` changes that were held.
    pub fn write(&mut self, count: usize) {
        while !self.ops.is_empty() && count > 0 {
            let jobs = count.min(self.ops.len());
            self.apply(jobs);
            self.broker
                .handle_report(self.now, Report { jobs: jobs as u64, outcome: Outcome::Written(1000) });
            while let Some(op) = self.broker.poll_op() {
                self.ops.push_back(op);
            }
            if count != usize::MAX {
                return;
            }
        }
    }

    pub fn unwritten(&self) -> usize {
        self.ops.len()
    }

    pub fn fail(&mut self) {
        let jobs = self.ops.drain(..).count() as u64;
        let outcome = Outcome::Failed(Error::new(ErrorKind::Persistence, "no space left"));
        self.broker.handle_report(self.now, Report { jobs, outcome });
    }

    /// Kills the process after `written` of the pending changes reached the disk, and starts it
    /// again.
    pub fn kill(&mut self, written: usize) {
        self.kill_with(written, |_| {});
    }

    /// Like [`Self::kill`], but it starts with other settings.
    pub fn kill_with(&mut self, written: usize, change: impl FnOnce(&mut Settings)) {
        change(&mut self.settings);
        while let Some(op) = self.broker.poll_op() {
            self.ops.push_back(op);
        }
        self.apply(written.min(self.ops.len()));
        self.ops.clear();
        let wall_ms = self.settings.clock.wall_ms(self.now);
        let run_ms = store::entries::run_ms(&self.db).unwrap();
        self.settings.clock = Clock::new(self.now, wall_ms).after_run(run_ms);
        self.broker = Self::open(&self.settings, &self.db, &self.directory, self.now);
    }

    /// Stops the broker in order and starts it again.
    pub fn restart(&mut self) {
        self.broker.shut_down(self.now);
        self.settle();
        self.kill(usize::MAX);
    }

    /// Sets the calendar forward or back.
    pub fn set_calendar(&mut self, days: i64) {
        let wall_ms = self.settings.clock.wall_ms(self.now).saturating_add_signed(days * 24 * 3_600_000);
        self.settings.clock = self.settings.clock.set(self.now, wall_ms);
        self.broker.set_clock(self.settings.clock);
    }

    pub fn pass(&mut self, seconds: u64) {
        self.pass_for(Duration::from_secs(seconds));
    }

    pub fn pass_for(&mut self, time: Duration) {
        self.now += time;
        self.broker.handle_timeout(self.now);
        self.settle();
    }

    pub fn open_peer(&mut self) -> u64 {
        self.broker.connect(self.now, "127.0.0.1:1")
    }

    /// The socket is lost.
    pub fn drop_peer(&mut self, peer: u64) {
        self.broker.disconnect(self.now, peer);
        self.settle();
    }

    pub fn bytes(&mut self, peer: u64, bytes: &[u8]) -> Result<()> {
        let mut input = BytesMut::from(bytes);
        let result = self.broker.handle_input(self.now, peer, &mut input);
        self.settle();
        result
    }

    pub fn tell(&mut self, peer: &Peer, packet: Packet) -> Result<()> {
        self.bytes(peer.id, &encode(packet, peer.version))
    }

    /// Packets from the broker since the last call.
    pub fn hear(&mut self, peer: &Peer) -> Vec<Packet> {
        self.hear_as(peer.id, peer.version)
    }

    pub fn hear_as(&mut self, peer: u64, version: Version) -> Vec<Packet> {
        let mut input = BytesMut::new();
        loop {
            let mut output = Transmit::default();
            self.broker.take_output(self.now, peer, &mut output);
            self.settle();
            if output.is_empty() {
                break;
            }
            input.extend_from_slice(&output.take());
        }
        let mut packets = Vec::new();
        while let Some(frame) = frame::Decoder::new(usize::MAX).next(&mut input).unwrap() {
            packets.push(Packet::decode(&frame, version, Sender::Server).unwrap());
        }
        assert!(input.is_empty(), "half a packet");
        packets
    }

    pub fn one(&mut self, peer: &Peer) -> Packet {
        let mut packets = self.hear(peer);
        assert_eq!(packets.len(), 1, "{packets:?}");
        packets.remove(0)
    }

    pub fn ask(&mut self, peer: &Peer, packet: Packet) -> Packet {
        self.tell(peer, packet).unwrap();
        self.one(peer)
    }

    /// Connects and returns the answer with the packets behind it.
    pub fn try_connect(&mut self, connect: Connect) -> (Peer, Vec<Packet>) {
        let peer = Peer { id: self.open_peer(), version: connect.version };
        self.tell(&peer, Packet::Connect(Box::new(connect))).unwrap();
        let heard = self.hear(&peer);
        (peer, heard)
    }

    /// Connects and asserts whether the session is present.
    pub fn connect_with(&mut self, connect: Connect, present: bool) -> Peer {
        let (peer, heard) = self.try_connect(connect);
        let Some(Packet::ConnAck(ack)) = heard.first() else { panic!("{heard:?}") };
        assert_eq!((ack.reason, ack.session_present), (Reason::Success, present));
        assert_eq!(heard.len(), 1, "{heard:?}");
        peer
    }

    /// An MQTT 5.0 client whose session ends with its connection.
    pub fn connect(&mut self, client_id: &str) -> Peer {
        self.connect_with(Connect::new(Version::V5, client_id), false)
    }

    /// An MQTT 5.0 client with an endless session, and the packets behind its CONNACK.
    pub fn resume(&mut self, client_id: &str) -> (Peer, bool, Vec<Packet>) {
        let (peer, mut heard) = self.try_connect(lasting(client_id));
        let Packet::ConnAck(ConnAck { session_present, reason: Reason::Success, .. }) = heard.remove(0)
        else {
            panic!("refused")
        };
        (peer, session_present, heard)
    }

    pub fn subscribe(&mut self, peer: &Peer, filter: &str, qos: QoS) -> Vec<Packet> {
        self.subscribe_with(peer, filter, SubscribeOptions::qos(qos), None)
    }

    pub fn subscribe_with(
        &mut self,
        peer: &Peer,
        filter: &str,
        options: SubscribeOptions,
        identifier: Option<u32>,
    ) -> Vec<Packet> {
        let properties = identifier.into_iter().map(Property::SubscriptionIdentifier).collect();
        let filters = vec![(filter.into(), options)];
        self.tell(peer, Packet::Subscribe(Subscribe { packet_id: id(9999), properties, filters })).unwrap();
        let mut heard = self.hear(peer);
        let Packet::SubAck(SubAck { reasons, .. }) = heard.remove(0) else { panic!("no SUBACK") };
        assert_eq!(reasons, [Reason::granted(options.qos)]);
        heard
    }

    pub fn unsubscribe(&mut self, peer: &Peer, filter: &str) -> Vec<Reason> {
        let unsubscribe =
            Unsubscribe { packet_id: id(9999), properties: Properties::new(), filters: vec![filter.into()] };
        match self.ask(peer, Packet::Unsubscribe(unsubscribe)) {
            Packet::UnsubAck(ack) => ack.reasons,
            other => panic!("{other:?}"),
        }
    }

    /// Publishes with QoS 1 and returns the reason of its PUBACK.
    pub fn send(&mut self, peer: &Peer, topic: &str, payload: &str) -> Reason {
        match self.ask(peer, Packet::Publish(publish(topic, Q1, 1, payload))) {
            Packet::PubAck(ack) => ack.reason,
            other => panic!("{other:?}"),
        }
    }

    /// Messages that arrived since the last call.
    pub fn messages(&mut self, peer: &Peer) -> Vec<Publish> {
        self.hear(peer).into_iter().map(message).collect()
    }

    pub fn payloads(&mut self, peer: &Peer) -> Vec<String> {
        self.messages(peer).iter().map(text).collect()
    }

    pub fn ack(&mut self, peer: &Peer, publish: &Publish) {
        self.tell(peer, Packet::PubAck(Ack::new(publish.packet_id.unwrap()))).unwrap();
    }

    pub fn disconnect(&mut self, peer: &Peer, reason: Reason) {
        self.tell(peer, Packet::Disconnect(Disconnect::new(reason))).unwrap();
        assert!(self.broker.finished(peer.id));
        self.drop_peer(peer.id);
    }

    /// The reason for the end of an MQTT 5.0 connection.
    pub fn ended(&mut self, peer: &Peer) -> Reason {
        let heard = self.hear(peer);
        assert!(self.broker.finished(peer.id));
        match heard.last() {
            Some(Packet::Disconnect(disconnect)) => disconnect.reason,
            other => panic!("{other:?}"),
        }
    }
}

/// A connection and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub id: u64,
    pub version: Version,
}

pub fn encode(packet: Packet, version: Version) -> BytesMut {
    let mut out = Transmit::default();
    packet.encode(version, &mut out).unwrap();
    out.take()
}

/// An MQTT 5.0 CONNECT for an endless session.
pub fn lasting(client_id: &str) -> Connect {
    let properties = Properties::new().with(Property::SessionExpiryInterval(u32::MAX));
    Connect { clean_start: false, properties, ..Connect::new(Version::V5, client_id) }
}

pub fn message(packet: Packet) -> Publish {
    match packet {
        Packet::Publish(publish) => publish,
        other => panic!("{other:?}"),
    }
}

pub fn text(publish: &Publish) -> String {
    String::from_utf8(publish.payload.to_vec()).unwrap()
}

/// A message that is not completed yet.
#[derive(Clone, Debug)]
pub struct Outgoing {
    pub packet_id: PacketId,
    pub publish: Publish,
    /// Whether PUBREC has arrived.
    pub released: bool,
}

/// A client's messages of QoS 1 and 2 in both directions, over all connections of its session.
#[derive(Clone, Debug, Default)]
pub struct Exchange {
    pub outgoing: Vec<Outgoing>,
    /// Payloads in order of arrival, without duplicates that QoS 2 recognised.
    pub got: Vec<(QoS, String)>,
    /// Identifiers of QoS 2 between PUBLISH and PUBREL.
    incoming: BTreeSet<PacketId>,
    last_packet_id: u16,
}

impl Exchange {
    /// A packet identifier that is not in use.
    pub fn free_id(&mut self) -> u16 {
        loop {
            self.last_packet_id = self.last_packet_id % 60_000 + 1;
            if self.outgoing.iter().all(|outgoing| outgoing.packet_id.get() != self.last_packet_id) {
                return self.last_packet_id;
            }
        }
    }

    /// Notes a message that is sent for the first time.
    pub fn send(&mut self, publish: &Publish) {
        let packet_id = publish.packet_id.expect("nothing is sent with QoS 0");
        self.outgoing.push(Outgoing { packet_id, publish: publish.clone(), released: false });
    }

    /// Packets that begin a new connection.
    pub fn again(&self) -> impl Iterator<Item = Packet> {
        self.outgoing.iter().map(|outgoing| {
            if outgoing.released {
                Packet::PubRel(Ack::new(outgoing.packet_id))
            } else {
                Packet::Publish(Publish { dup: true, ..outgoing.publish.clone() })
            }
        })
    }

    /// Takes a packet of the exchange and adds the answer to `up`; gives the message that is
    /// completed by it.
    pub fn hear(&mut self, packet: Packet, up: &mut VecDeque<Packet>) -> Option<Publish> {
        let at = |exchange: &Self, ack: &Ack| {
            // PUBREL was repeated, and the answer to the first one is lost.
            let repeated = ack.reason == Reason::PacketIdentifierNotFound;
            assert!(!ack.reason.is_error() || repeated, "{ack:?}");
            let at = exchange.outgoing.iter().position(|outgoing| outgoing.packet_id == ack.packet_id);
            at.unwrap_or_else(|| panic!("an answer to nothing: {ack:?}"))
        };
        match packet {
            Packet::PubAck(ack) => {
                let acked = self.outgoing.remove(at(self, &ack)).publish;
                assert_eq!(acked.qos, Q1, "PUBACK");
                return Some(acked);
            }
            Packet::PubRec(ack) => {
                let at = at(self, &ack);
                assert_eq!(self.outgoing[at].publish.qos, Q2, "PUBREC");
                self.outgoing[at].released = true;
                up.push_back(Packet::PubRel(Ack::new(ack.packet_id)));
            }
            Packet::PubComp(ack) => {
                let acked = self.outgoing.remove(at(self, &ack));
                assert!(acked.released, "PUBCOMP without PUBREC: {ack:?}");
                return Some(acked.publish);
            }
            Packet::Publish(publish) => {
                let packet_id = publish.packet_id.expect("nothing is sent with QoS 0");
                if publish.qos == Q1 {
                    self.got.push((Q1, text(&publish)));
                    up.push_back(Packet::PubAck(Ack::new(packet_id)));
                } else {
                    if self.incoming.insert(packet_id) {
                        self.got.push((Q2, text(&publish)));
                    } else {
                        assert!(publish.dup, "{packet_id} for another message");
                    }
                    up.push_back(Packet::PubRec(Ack::new(packet_id)));
                }
            }
            Packet::PubRel(ack) => {
                self.incoming.remove(&ack.packet_id);
                up.push_back(Packet::PubComp(Ack::new(ack.packet_id)));
            }
            other => panic!("{other:?}"),
        }
        None
    }
}
