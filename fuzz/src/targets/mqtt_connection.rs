//! A broker's bytes into a client's connection and the session behind it: each publication ends
//! once, a message of QoS 2 is delivered once per use of its identifier, no more are in flight than
//! either side allows, and memory, time and output are bounded by input. The first byte chooses the
//! version, the second the time of a cut and reconnect.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use forebay_base::error::{Error, ErrorKind};
use forebay_base::machine::Machine;
use forebay_mqtt::connection::{Connection, Event};
use forebay_mqtt::packet::{Connect, PacketId, Publish, SubscribeOptions};
use forebay_mqtt::session::{self, Session};
use forebay_mqtt::topic::Filter;
use forebay_mqtt::{Packet, Properties, Property, QoS, Sender, Version, frame};
use crate::meter::Meter;
use crate::rule::AFTER;

const PUBLISHED: u32 = 9;
const RECEIVE_MAXIMUM: u16 = 5;
/// Publications in flight, if the broker allows as many.
const WINDOW: u16 = 4;

fn open(now: Instant, version: Version) -> Connection {
    let mut connect = Connect::new(version, "fuzz");
    connect.keep_alive = 10;
    if version == Version::V5 {
        connect.properties = Properties::new()
            .with(Property::ReceiveMaximum(RECEIVE_MAXIMUM))
            .with(Property::TopicAliasMaximum(3))
            .with(Property::MaximumPacketSize(8192))
            .with(Property::AuthenticationMethod("m".into()));
    }
    Connection::new(now, connect, Duration::from_secs(30)).expect("it is short")
}

/// The outcomes of the publications, and the messages that wait to be acknowledged.
#[derive(Default)]
struct Seen {
    ended: u32,
    messages: usize,
    tokens: Vec<u64>,
}

impl Seen {
    fn collect(&mut self, session: &mut Session) {
        while let Some(event) = session.poll_event() {
            match event {
                session::Event::Published(outcome) => self.ended += outcome.count,
                session::Event::Message { publish, token } => {
                    assert!(!publish.topic.is_empty() && publish.properties.topic_alias().is_none());
                    assert_eq!(publish.qos == QoS::AtMostOnce, token == 0);
                    self.messages += 1;
                    self.tokens.push(token);
                }
                session::Event::Subscribed { .. } | session::Event::Unsubscribed { .. } => {}
            }
        }
    }
}

/// What the client has sent on a connection.
#[derive(Default)]
struct Sent {
    bytes: usize,
    /// Publications without an answer.
    open: BTreeSet<PacketId>,
    /// How many there may be.
    window: usize,
}

impl Sent {
    /// Decodes what the client has sent since the last call, which must be MQTT.
    fn listen(&mut self, meter: &mut Meter, connection: &mut Connection, version: Version) {
        meter.went(connection.transmit().len());
        let mut bytes = meter.run(|| connection.transmit().take());
        self.bytes += bytes.len();
        while let Some(frame) = frame::Decoder::new(usize::MAX).next(&mut bytes).expect("a frame") {
            if let Packet::Publish(publish) =
                Packet::decode(&frame, version, Sender::Client).expect("a packet")
            {
                self.open.extend(publish.packet_id);
                assert!(self.open.len() <= self.window, "{} of {}", self.open.len(), self.window);
            }
        }
        assert!(bytes.is_empty(), "half a packet");
        meter.run(|| drop(bytes));
    }

    /// Notes the broker's answers.
    fn hear(&mut self, packet: &Packet) {
        match packet {
            Packet::PubAck(ack) | Packet::PubComp(ack) => drop(self.open.remove(&ack.packet_id)),
            Packet::PubRec(ack) if ack.reason.is_error() => drop(self.open.remove(&ack.packet_id)),
            _ => {}
        }
    }
}

/// Plays one input.
pub fn play(data: &[u8]) {
    let Some((&[which, cut], data)) = data.split_first_chunk::<2>() else { return };
    let version = [Version::V3_1, Version::V3_1_1, Version::V5][usize::from(which % 3)];
    let mut now = Instant::now();
    let mut meter = Meter::default();
    meter.came(data.len());
    let mut session = Session::new(WINDOW, RECEIVE_MAXIMUM);
    session.subscribe(1, vec![(Filter::parse("a/#").expect("a filter"), SubscribeOptions::default())]);
    for number in 0..PUBLISHED {
        let qos = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][number as usize % 3];
        let publish = Publish {
            qos,
            topic: ["a/b", "a/c"][number as usize % 2].into(),
            payload: Bytes::from_static(b"payload"),
            ..Publish::default()
        };
        session.producer().push(now, u64::from(number), publish);
    }
    let (mut seen, mut total) = (Seen::default(), 0);
    // Two connections of the same session.
    for half in {
        let (head, tail) = data.split_at(data.len() * usize::from(cut) / 256);
        [head, tail]
    } {
        let mut connection = open(now, version);
        let mut sent = Sent::default();
        let mut input = BytesMut::new();
        let mut ended = false;
        for piece in half.chunks(61) {
            input.extend_from_slice(piece);
            ended |= meter.run(|| connection.handle_input(now, &mut input)).is_err();
            while let Some(event) = connection.poll_event() {
                match event {
                    Event::Connected(ack) => {
                        sent.window = usize::from(connection.limits().receive_maximum.min(WINDOW));
                        meter.run(|| session.attach(ack.session_present));
                    }
                    Event::Auth(_) => {
                        let _ = connection.authenticate(now, Bytes::from_static(b"data"), false);
                    }
                    Event::Packet(packet) => {
                        sent.hear(&packet);
                        let handled = meter.run(|| session.handle_packet(now, packet, &mut connection));
                        if let Err(violation) = handled {
                            connection.end_with_violation(now, &violation);
                            ended = true;
                        }
                    }
                }
                seen.collect(&mut session);
            }
            if connection.is_ready() && !ended {
                // Out of order, and not all.
                for token in seen.tokens.drain(seen.tokens.len() / 2..) {
                    session.ack(now, token, Some(&mut connection));
                }
                meter.run(|| session.poll_transmit(now, &mut connection, 64));
                session.handle_written(connection.queued());
            }
            seen.collect(&mut session);
            sent.listen(&mut meter, &mut connection, version);
            now += Duration::from_secs(3);
            if connection.poll_timeout().is_some_and(|at| at <= now) {
                ended |= connection.handle_timeout(now).is_err();
            }
            if ended {
                break;
            }
        }
        sent.listen(&mut meter, &mut connection, version);
        total += sent.bytes;
        session.detach();
        seen.collect(&mut session);
        seen.tokens.clear();
    }
    session.close(&Error::new(ErrorKind::Closed, "the end"));
    seen.collect(&mut session);
    assert_eq!(seen.ended, PUBLISHED, "each publication has one outcome");
    assert_eq!(session.pending_messages(), 0);
    assert!(seen.messages <= data.len() / 4, "a PUBLISH has at least four bytes behind its type");
    assert!(total <= 1024 + 64 * data.len(), "{total} bytes for {}", data.len());
    meter.check(AFTER, 1);
}
