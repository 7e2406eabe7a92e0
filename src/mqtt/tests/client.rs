//! A client without socket or clock, with the broker's end of the connection in the hands of the
//! test.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use crate::connection::{self, Connection};
use crate::frame::Decoder;
use crate::packet::{
    Ack, ConnAck, Connect, Disconnect, PacketId, Publish, SubAck, SubscribeOptions, UnsubAck,
};
use crate::session::{Event, Session};
use crate::topic::Filter;
use crate::{Packet, Properties, Property, QoS, Reason, Sender, Version};
use forebay_base::error::{Error, Result};
use forebay_base::machine::Machine as _;

pub(super) const Q0: QoS = QoS::AtMostOnce;
pub(super) const Q1: QoS = QoS::AtLeastOnce;
pub(super) const Q2: QoS = QoS::ExactlyOnce;
pub(super) const V4: Version = Version::V3_1_1;
pub(super) const V5: Version = Version::V5;
/// Time limit for CONNACK.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(10);
const BUDGET: usize = 1 << 20;

/// A session and its current connection.
pub(super) struct Client {
    pub(super) now: Instant,
    pub(super) session: Session,
    pub(super) connection: Option<Connection>,
    /// Events of the handshake other than packets for the session.
    pub(super) told: Vec<connection::Event>,
    events: Vec<Event>,
}

impl Client {
    /// Creates a client with a window of 100 in both directions.
    pub(super) fn new() -> Self {
        Self::with_windows(100, 100)
    }

    pub(super) fn with_windows(window: u16, receive_maximum: u16) -> Self {
        Self {
            now: Instant::now(),
            session: Session::new(window, receive_maximum),
            connection: None,
            told: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Connects with no negotiated limits.
    pub(super) fn connected(version: Version) -> Self {
        let mut client = Self::new();
        client.stand(version, accepted());
        client
    }

    /// Connects to an MQTT 5 broker with these limits.
    pub(super) fn limited(limits: &[Property]) -> Self {
        let mut client = Self::new();
        client.stand(V5, accepted_with(limits));
        client
    }

    /// Opens a connection and takes its CONNECT.
    pub(super) fn open(&mut self, connect: Connect) -> Packet {
        self.connection = Some(Connection::new(self.now, connect, HANDSHAKE).unwrap());
        let mut said = self.said();
        assert_eq!(said.len(), 1, "CONNECT alone: {said:?}");
        said.remove(0)
    }

    /// Opens a connection that resumes the session if `ack` has it.
    pub(super) fn stand(&mut self, version: Version, ack: ConnAck) {
        self.open(Connect { clean_start: false, ..Connect::new(version, "c") });
        self.hear(Packet::ConnAck(ack)).unwrap();
    }

    /// Reconnects to a broker that kept the session.
    pub(super) fn resume(&mut self, version: Version) {
        self.stand(version, ConnAck { session_present: true, ..accepted() });
    }

    /// Ends the connection.
    pub(super) fn cut(&mut self) {
        self.connection = None;
        self.session.detach();
    }

    pub(super) fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("there is a connection")
    }

    /// Delivers a packet from the broker.
    pub(super) fn hear(&mut self, packet: Packet) -> Result<()> {
        let version = self.connection().version();
        self.hear_bytes(&super::encode(&packet, version))
    }

    pub(super) fn hear_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let mut input = BytesMut::from(bytes);
        let now = self.now;
        let result = self.connection().handle_input(now, &mut input);
        self.handle_events()?;
        result
    }

    fn handle_events(&mut self) -> Result<()> {
        let connection = self.connection.as_mut().expect("there is a connection");
        while let Some(event) = connection.poll_event() {
            match event {
                connection::Event::Packet(packet) => {
                    if let Err(violation) = self.session.handle_packet(self.now, packet, connection) {
                        connection.end_with_violation(self.now, &violation);
                        return Err(violation.into());
                    }
                }
                other => {
                    if let connection::Event::Connected(ack) = &other {
                        self.session.attach(ack.session_present);
                    }
                    self.told.push(other);
                }
            }
        }
        Ok(())
    }

    /// Advances the time and handles what is due.
    pub(super) fn pass(&mut self, time: Duration) -> Result<()> {
        let end = self.now + time;
        while let Some(due) = self.connection().poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            let now = self.now;
            self.connection().handle_timeout(now)?;
        }
        self.now = end;
        Ok(())
    }

    /// Packets that the client sends now; all bytes count as written.
    pub(super) fn said(&mut self) -> Vec<Packet> {
        let packets = self.said_unwritten();
        let queued = self.connection().queued();
        self.session.handle_written(queued);
        packets
    }

    /// Packets that the client sends now, while no byte counts as written.
    pub(super) fn said_unwritten(&mut self) -> Vec<Packet> {
        let connection = self.connection.as_mut().expect("there is a connection");
        if connection.is_ready() {
            while self.session.poll_transmit(self.now, connection, BUDGET) {}
        }
        let version = connection.version();
        let mut bytes = connection.transmit().take();
        let mut packets = Vec::new();
        while let Some(frame) = Decoder::new(usize::MAX).next(&mut bytes).unwrap() {
            packets.push(Packet::decode(&frame, version, Sender::Client).unwrap());
        }
        assert!(bytes.is_empty(), "an incomplete packet");
        packets
    }

    /// The only packet that the client sends now.
    pub(super) fn says(&mut self) -> Packet {
        let mut said = self.said();
        assert_eq!(said.len(), 1, "{said:?}");
        said.remove(0)
    }

    /// Reason of the DISCONNECT that the client sends now; nothing may follow it.
    pub(super) fn disconnect_reason(&mut self) -> Reason {
        match self.says() {
            Packet::Disconnect(disconnect) => disconnect.reason,
            other => panic!("{other:?}"),
        }
    }

    /// Publications that the client sends now; it must not send anything else.
    pub(super) fn published(&mut self) -> Vec<Publish> {
        self.said().into_iter().map(publish_of).collect()
    }

    /// Publishes to `t` for owner 1.
    pub(super) fn publish(&mut self, qos: QoS, payload: &str) {
        self.push(message("t", qos, payload));
    }

    pub(super) fn push(&mut self, publish: Publish) {
        self.session.producer().push(self.now, 1, publish);
    }

    pub(super) fn events(&mut self) -> Vec<Event> {
        self.events.extend(std::iter::from_fn(|| self.session.poll_event()));
        std::mem::take(&mut self.events)
    }

    /// Outcomes since the last call, one per publication; other events stay queued.
    pub(super) fn outcomes(&mut self) -> Vec<(QoS, Result<Reason>)> {
        let mut outcomes = Vec::new();
        for event in self.events() {
            match event {
                Event::Published(outcome) => {
                    for _ in 0..outcome.count {
                        outcomes.push((outcome.qos, outcome.result.clone()));
                    }
                }
                other => self.events.push(other),
            }
        }
        outcomes
    }

    /// Error of the only publication that ended since the last call.
    pub(super) fn failed(&mut self) -> Error {
        let mut outcomes = self.outcomes();
        assert_eq!(outcomes.len(), 1, "{outcomes:?}");
        outcomes.remove(0).1.unwrap_err()
    }

    /// Messages delivered since the last call, with their tokens; other events stay queued.
    pub(super) fn messages(&mut self) -> Vec<(Publish, u64)> {
        let mut messages = Vec::new();
        for event in self.events() {
            match event {
                Event::Message { publish, token } => messages.push((publish, token)),
                other => self.events.push(other),
            }
        }
        messages
    }

    /// Acknowledges a message as the application would.
    pub(super) fn ack(&mut self, token: u64) {
        self.session.ack(self.now, token, self.connection.as_mut());
    }

    pub(super) fn disconnect(&mut self, reason: Reason) {
        let now = self.now;
        self.connection().disconnect(now, Disconnect::new(reason));
    }
}

pub(super) fn id(id: u16) -> PacketId {
    PacketId::new(id).expect("not 0")
}

pub(super) fn accepted() -> ConnAck {
    ConnAck::new(Reason::Success)
}

pub(super) fn accepted_with(properties: &[Property]) -> ConnAck {
    ConnAck { properties: properties.iter().cloned().collect(), ..accepted() }
}

/// Creates a publication to be pushed, without a packet identifier.
pub(super) fn message(topic: &str, qos: QoS, payload: &str) -> Publish {
    let payload = Bytes::copy_from_slice(payload.as_bytes());
    Publish { qos, topic: topic.into(), payload, ..Publish::default() }
}

/// Creates a publication from the broker, with a packet identifier unless it has QoS 0.
pub(super) fn delivery(qos: QoS, packet_id: u16, payload: &str) -> Packet {
    let packet_id = (qos != Q0).then(|| id(packet_id));
    Packet::Publish(Publish { packet_id, ..message("t", qos, payload) })
}

/// Creates the same publication with DUP set.
pub(super) fn redelivery(qos: QoS, packet_id: u16, payload: &str) -> Packet {
    match delivery(qos, packet_id, payload) {
        Packet::Publish(publish) => Packet::Publish(Publish { dup: true, ..publish }),
        other => other,
    }
}

pub(super) fn puback(packet_id: PacketId) -> Packet {
    Packet::PubAck(Ack::new(packet_id))
}

pub(super) fn pubrec(packet_id: PacketId) -> Packet {
    Packet::PubRec(Ack::new(packet_id))
}

pub(super) fn pubrel(packet_id: PacketId) -> Packet {
    Packet::PubRel(Ack::new(packet_id))
}

pub(super) fn pubcomp(packet_id: PacketId) -> Packet {
    Packet::PubComp(Ack::new(packet_id))
}

pub(super) fn suback(packet_id: PacketId, reasons: &[Reason]) -> Packet {
    Packet::SubAck(SubAck { packet_id, properties: Properties::new(), reasons: reasons.to_vec() })
}

pub(super) fn unsuback(packet_id: PacketId, reasons: &[Reason]) -> Packet {
    Packet::UnsubAck(UnsubAck { packet_id, properties: Properties::new(), reasons: reasons.to_vec() })
}

pub(super) fn filters(texts: &[&str]) -> Vec<(Filter, SubscribeOptions)> {
    texts.iter().map(|text| (Filter::parse(*text).unwrap(), SubscribeOptions::qos(Q1))).collect()
}

pub(super) fn publish_of(packet: Packet) -> Publish {
    match packet {
        Packet::Publish(publish) => publish,
        other => panic!("not a PUBLISH: {other:?}"),
    }
}

/// Packet identifiers and payloads of publications.
pub(super) fn told(publications: &[Publish]) -> Vec<(u16, &str)> {
    publications
        .iter()
        .map(|publish| {
            let payload = std::str::from_utf8(&publish.payload).expect("text");
            (publish.packet_id.map_or(0, PacketId::get), payload)
        })
        .collect()
}

/// Packet identifier of a publication.
pub(super) fn id_of(publish: &Publish) -> PacketId {
    publish.packet_id.expect("of QoS 1 or 2")
}
