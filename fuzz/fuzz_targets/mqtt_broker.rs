//! Clients' bytes into the embedded MQTT broker, from several connections at once: it answers or ends the connection,
//! and its own packets can be decoded.
#![no_main]

use std::time::{Duration, Instant};

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use penstock::broker::mqtt::{Broker, Limits, Settings};
use penstock::broker::protocol::{Clock, Protocol as _};
use penstock::broker::store::StoreUsage;
use penstock::broker::store::mqtt::Found;
use penstock::mqtt::packet::{Connect, Subscribe, SubscribeOptions};
use penstock::mqtt::{Packet, Properties, Property, QoS, Sender, Version, frame};
use penstock::sqlite::{Outcome, Report};
use penstock::transmit::Transmit;

struct World {
    broker: Broker,
    now: Instant,
    ops: u64,
    peers: [Peer; 3],
}

struct Peer {
    id: u64,
    version: Version,
    /// Whether it speaks that version; if not, its CONNECT is up to the input.
    known: bool,
    input: BytesMut,
}

impl World {
    /// `stored` with a store that only counts.
    fn new(stored: bool) -> Self {
        let now = Instant::now();
        let limits =
            Limits { max_packet_size: 4096, max_queue: 20, receive_maximum: 20, ..Limits::default() };
        let settings = Settings {
            limits,
            clock: Clock::new(now, 1_700_000_000_000),
            stored,
            usage: StoreUsage::default(),
            max_store: 1 << 20,
            seed: 1,
            passwords: None,
            tokens: None,
        };
        let broker = Broker::new(settings, Found::default(), None, now);
        let peers = [Version::V3_1, Version::V3_1_1, Version::V5].map(|version| Peer {
            id: 0,
            version,
            known: false,
            input: BytesMut::new(),
        });
        let mut world = Self { broker, now, ops: 0, peers };
        (0..3).for_each(|index| world.dial(index));
        world
    }

    fn dial(&mut self, index: usize) {
        let version = self.peers[index].version;
        let id = self.broker.connect(self.now, "x");
        self.peers[index] = Peer { id, version, known: true, input: BytesMut::new() };
        let mut connect = Connect::new(version, format!("c{index}"));
        connect.clean_start = false;
        if version == Version::V5 {
            connect.properties.push(Property::SessionExpiryInterval(100));
            connect.properties.push(Property::TopicAliasMaximum(4));
            connect.properties.push(Property::ReceiveMaximum(3));
        }
        let subscribe = Subscribe {
            packet_id: 1.try_into().unwrap(),
            properties: Properties::new(),
            filters: vec![("#".into(), SubscribeOptions::qos(QoS::ExactlyOnce))],
        };
        for packet in [Packet::Connect(Box::new(connect)), Packet::Subscribe(subscribe)] {
            let mut out = Transmit::default();
            packet.encode(version, &mut out).unwrap();
            self.feed(index, &out.take());
        }
    }

    fn feed(&mut self, index: usize, bytes: &[u8]) {
        let peer = &mut self.peers[index];
        peer.input.extend_from_slice(bytes);
        let ended = self.broker.handle_input(self.now, peer.id, &mut peer.input).is_err();
        self.settle();
        self.listen(index);
        if ended || self.broker.finished(self.peers[index].id) {
            self.broker.disconnect(self.now, self.peers[index].id);
            self.settle();
            let id = self.broker.connect(self.now, "x");
            let version = self.peers[index].version;
            self.peers[index] = Peer { id, version, known: false, input: BytesMut::new() };
        }
    }

    fn settle(&mut self) {
        while self.broker.poll_op().is_some() {
            self.ops += 1;
        }
    }

    fn write(&mut self) {
        while self.ops > 0 {
            let jobs = std::mem::take(&mut self.ops);
            self.broker.handle_report(self.now, Report { jobs, outcome: Outcome::Written(0) });
            self.settle();
        }
    }

    /// Decodes the broker's output, which must be MQTT.
    fn listen(&mut self, index: usize) {
        let Peer { id, version, known, .. } = self.peers[index];
        let mut all = BytesMut::new();
        loop {
            let mut out = Transmit::default();
            self.broker.take_output(self.now, id, &mut out);
            self.settle();
            if out.is_empty() {
                break;
            }
            all.extend_from_slice(&out.take());
        }
        while let Some(frame) = frame::Decoder::new(usize::MAX).next(&mut all).expect("a frame") {
            if known {
                Packet::decode(&frame, version, Sender::Server).expect("a packet");
            }
        }
        assert!(all.is_empty(), "half a packet");
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((first, mut rest)) = data.split_first() else { return };
    let mut world = World::new(first & 1 == 1);
    while let Some((op, more)) = rest.split_first() {
        rest = more;
        let index = usize::from(op & 3) % 3;
        match op >> 2 {
            0 => {
                world.broker.disconnect(world.now, world.peers[index].id);
                world.settle();
                world.dial(index);
            }
            1 => world.write(),
            2 => {
                world.now += Duration::from_secs(7);
                world.broker.handle_timeout(world.now);
                world.settle();
            }
            size => {
                let (bytes, more) = rest.split_at(usize::from(size).min(rest.len()));
                rest = more;
                world.feed(index, bytes);
            }
        }
    }
    world.write();
    (0..3).for_each(|index| world.listen(index));
    let stats = world.broker.stats();
    assert!(stats.sessions <= 10 + data.len() / 14, "each session had its CONNECT");
});
