//! Clients' bytes into the embedded MQTT broker, from several connections at once, with packets
//! among them that say the same thing many times: it answers or ends the connection, its own
//! packets can be decoded, and everything costs in proportion to the bytes.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use forebay_broker::auth::TokenKeys;
use forebay_broker::mqtt::{Broker, Limits, Settings};
use forebay_broker::store::mqtt::Found;
use forebay_mqtt::packet::{Ack, Connect, Publish, Subscribe, SubscribeOptions, Unsubscribe};
use forebay_mqtt::{Packet, Properties, Property, QoS, Sender, Version, frame};
use forebay_base::transmit::Transmit;
use crate::hub::{self, Hub, World as _};
use crate::rule::{AFTER, BEFORE};
use crate::script::{Script, repeat};
use crate::settings;

const VERSIONS: [Version; 3] = [Version::V3_1, Version::V3_1_1, Version::V5];

struct World {
    hub: Hub<Broker>,
    /// Connections that speak their version; of others, CONNECT is up to the input.
    known: [u64; 3],
    secured: bool,
}

impl World {
    fn new(flags: u8) -> Self {
        let (stored, small, secured) = (flags & 1 == 1, flags & 2 == 0, flags & 4 != 0);
        let large = flags & 8 != 0;
        let now = Instant::now();
        let limits = if small {
            Limits { max_packet_size: 4096, max_queue: 20, receive_maximum: 20, ..Limits::default() }
        } else {
            Limits::default()
        };
        let settings = Settings {
            limits,
            stored,
            max_store: if small { 1 << 20 } else { 1 << 30 },
            tokens: secured.then(|| Arc::new(TokenKeys::new(&[b'7'; 32]).unwrap())),
            ..settings::mqtt(now)
        };
        let broker = Broker::new(settings, Found::default(), None, now);
        let mut world = Self { hub: Hub::new(broker, now, large), known: [0; 3], secured };
        (0..3).for_each(|index| world.present(index));
        world
    }
}

impl hub::World for World {
    type Broker = Broker;

    fn hub(&mut self) -> &mut Hub<Broker> {
        &mut self.hub
    }

    /// Sends CONNECT and a subscription, unless it takes a token.
    fn present(&mut self, index: usize) {
        if self.secured {
            return;
        }
        self.known[index] = self.hub.peers[index].id;
        let mut connect = Connect::new(VERSIONS[index], format!("c{index}"));
        connect.clean_start = false;
        if VERSIONS[index] == Version::V5 {
            connect.properties.push(Property::SessionExpiryInterval(100));
            connect.properties.push(Property::TopicAliasMaximum(4));
            connect.properties.push(Property::ReceiveMaximum(3));
        }
        for packet in [Packet::Connect(Box::new(connect)), subscribe(["#".to_owned()], 100)] {
            self.feed(index, &encode(index, packet));
        }
    }

    /// Decodes the broker's output, which must be MQTT.
    fn listen(&mut self, index: usize) {
        let mut all: BytesMut = self.hub.listen(index);
        while let Some(frame) = frame::Decoder::new(usize::MAX).next(&mut all).expect("a frame") {
            if self.known[index] == self.hub.peers[index].id {
                Packet::decode(&frame, VERSIONS[index], Sender::Server).expect("a packet");
            }
        }
        assert!(all.is_empty(), "half a packet");
    }

    fn step(&mut self, index: usize, kind: u8, script: &mut Script<'_>) {
        if kind == 3 {
            let (kind, what, count) = (script.byte(), script.byte(), script.count());
            let bytes = many(index, kind, what, count, self.hub.room());
            self.hub.charge(bytes.len());
            self.feed(index, &bytes);
        } else {
            self.feed(index, script.take(usize::from(kind)));
        }
    }
}

fn encode(index: usize, packet: Packet) -> Vec<u8> {
    let mut out = Transmit::default();
    packet.encode(VERSIONS[index], &mut out).expect("it is valid");
    out.take().to_vec()
}

fn id(number: usize) -> NonZeroU16 {
    NonZeroU16::new(number as u16 % 60_000 + 1).unwrap()
}

fn subscribe(filters: impl IntoIterator<Item = String>, size: usize) -> Packet {
    let options = SubscribeOptions::qos(QoS::ExactlyOnce);
    let mut length = 0;
    let fits = |filter: &String| {
        length += filter.len() + 3;
        length < size || length == filter.len() + 3
    };
    let filters = filters.into_iter().take_while(fits).map(|filter| (filter.into(), options)).collect();
    Packet::Subscribe(Subscribe { packet_id: id(0), properties: Properties::new(), filters })
}

/// Filters of `levels` levels with two spellings each.
fn branch(levels: usize, number: usize) -> String {
    let level = |bit: usize| if number >> (bit % 16) & 1 == 1 { "+/" } else { "a/" };
    (0..levels).map(level).chain(["#"]).collect()
}

/// Something that a client says many times.
fn many(index: usize, kind: u8, what: u8, count: usize, size: usize) -> Vec<u8> {
    let count = count.max(1);
    let levels = usize::from(what) % 199;
    let publish = |number: usize, qos: QoS, retain: bool, topic: String| {
        let packet_id = (qos != QoS::AtMostOnce).then(|| id(number));
        let payload = Bytes::from(vec![7; usize::from(what)]);
        let publish = Publish { qos, retain, topic: topic.into(), packet_id, payload, ..Publish::default() };
        encode(index, Packet::Publish(publish))
    };
    let topic = |number: usize| format!("{}{number}", "a/".repeat(levels));
    match kind % 10 {
        0 => encode(index, subscribe((0..count).map(|_| branch(levels % 4, 0)), size)),
        1 => encode(index, subscribe((0..count).map(|_| "$SYS/#".into()), size)),
        2 => encode(index, subscribe((0..count).map(|number| branch(levels, number)), size)),
        3 => repeat(count, size, |number| encode(index, subscribe([branch(levels, number)], size))),
        4 => repeat(count, size, |number| publish(number, QoS::AtMostOnce, false, topic(number))),
        5 => repeat(count, size, |number| publish(number, QoS::AtLeastOnce, false, topic(number))),
        6 => repeat(count, size, |number| publish(number, QoS::ExactlyOnce, what & 1 == 1, topic(0))),
        7 => repeat(count, size, |number| publish(number, QoS::AtMostOnce, true, topic(number))),
        8 => {
            let count = count.min(size / 45 + 1);
            let filters = (0..count).map(|number| branch(levels % 20, number).into()).collect();
            let properties = Properties::new();
            encode(index, Packet::Unsubscribe(Unsubscribe { packet_id: id(0), properties, filters }))
        }
        _ => repeat(count, size, |number| {
            let packet = if what & 1 == 1 { Packet::PubRel } else { Packet::PubAck };
            encode(index, packet(Ack::new(id(number))))
        }),
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
    assert!(stats.sessions <= 10 + data.len() / 14, "each session had its CONNECT");
}
