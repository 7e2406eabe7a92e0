//! Checks every packet of the clients, over all connections of a session: identifiers that are
//! free, DUP on repeated packets only, no PUBLISH behind its PUBREC, windows that neither side
//! exceeds, acknowledgements in the order of arrival.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::BytesMut;
use forebay_mqtt::frame::{Decoder, Frame};
use forebay_mqtt::packet::{Connect, PacketId, Publish};
use forebay_mqtt::{Packet, QoS, Sender, Version};

use super::super::network::Tap;

const BEFORE: &str = super::BEFORE;
/// Longest packet of a run.
const MAX_PACKET: usize = 16 << 20;

thread_local! {
    /// What the run's sessions have on their way, by client.
    static SESSIONS: RefCell<BTreeMap<String, Session>> = const { RefCell::new(BTreeMap::new()) };
    /// The clients' own limit on publications in flight.
    static MAX_INFLIGHT: Cell<u16> = const { Cell::new(u16::MAX) };
}

/// Notes the clients' own limit on publications in flight.
pub(super) fn limit(max_inflight: u16) {
    MAX_INFLIGHT.set(max_inflight);
}

/// The use of a packet identifier of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Published(QoS),
    Released,
    Request,
}

#[derive(Default)]
struct Session {
    uses: BTreeMap<PacketId, Use>,
    /// Unacknowledged publications of QoS 1 and 2 on this connection.
    in_flight: BTreeSet<PacketId>,
    window: u16,
    /// The broker's publications, until the acknowledgement is complete.
    incoming: BTreeSet<PacketId>,
    receive_maximum: u16,
    /// In the order of arrival, until PUBACK or PUBREC.
    arrivals: VecDeque<(PacketId, QoS)>,
}

fn holds(condition: bool, wrong: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(wrong()) }
}

impl Session {
    fn begin(&mut self, connect: &Connect) {
        self.in_flight.clear();
        self.incoming.clear();
        self.arrivals.clear();
        self.uses.retain(|_, used| *used != Use::Request);
        self.window = MAX_INFLIGHT.get();
        self.receive_maximum = connect.properties.receive_maximum().copied().unwrap_or(u16::MAX);
    }

    fn says(&mut self, packet: &Packet) -> Result<(), String> {
        match packet {
            Packet::Publish(Publish { packet_id: Some(id), qos, dup, .. }) => {
                // A packet that the last connection was about to write is a repeated one.
                let used = self.uses.insert(*id, Use::Published(*qos));
                let fits = used.is_none() || *dup && used == Some(Use::Published(*qos));
                holds(fits, || format!("PUBLISH {id} with DUP {dup}, which is {used:?}"))?;
                holds(self.in_flight.insert(*id), || format!("PUBLISH {id} twice on a connection"))?;
                holds(self.in_flight.len() <= usize::from(self.window), || {
                    format!("{:?} in a window of {}", self.in_flight, self.window)
                })
            }
            Packet::PubRel(ack) => {
                let (id, used) = (ack.packet_id, self.uses.get(&ack.packet_id));
                self.in_flight.insert(id);
                holds(used == Some(&Use::Released), || format!("PUBREL {id}, which is {used:?}"))
            }
            Packet::Subscribe(subscribe) => self.asks(subscribe.packet_id),
            Packet::Unsubscribe(unsubscribe) => self.asks(unsubscribe.packet_id),
            Packet::PubAck(ack) => {
                self.incoming.remove(&ack.packet_id);
                self.acknowledges(ack.packet_id, QoS::AtLeastOnce)
            }
            Packet::PubRec(ack) => self.acknowledges(ack.packet_id, QoS::ExactlyOnce),
            Packet::PubComp(ack) => {
                self.incoming.remove(&ack.packet_id);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn asks(&mut self, id: PacketId) -> Result<(), String> {
        let used = self.uses.insert(id, Use::Request);
        holds(used.is_none(), || format!("a request {id}, which is {used:?}"))
    }

    fn acknowledges(&mut self, id: PacketId, qos: QoS) -> Result<(), String> {
        let first = self.arrivals.pop_front();
        holds(first == Some((id, qos)), || format!("{id} of {qos:?} is acknowledged before {first:?}"))
    }

    fn hears(&mut self, packet: &Packet) -> Result<(), String> {
        match packet {
            Packet::ConnAck(ack) if !ack.reason.is_error() => {
                let theirs = ack.properties.receive_maximum().copied().unwrap_or(u16::MAX);
                self.window = self.window.min(theirs);
                if !ack.session_present {
                    self.uses.clear();
                }
            }
            Packet::PubAck(ack) | Packet::PubComp(ack) => self.ends(ack.packet_id),
            Packet::PubRec(ack) if ack.reason.is_error() => self.ends(ack.packet_id),
            Packet::PubRec(ack) => drop(self.uses.insert(ack.packet_id, Use::Released)),
            Packet::SubAck(ack) => drop(self.uses.remove(&ack.packet_id)),
            Packet::UnsubAck(ack) => drop(self.uses.remove(&ack.packet_id)),
            Packet::Publish(Publish { packet_id: Some(id), qos, .. }) => {
                self.arrivals.push_back((*id, *qos));
                self.incoming.insert(*id);
                return holds(self.incoming.len() <= usize::from(self.receive_maximum), || {
                    format!("{:?} of at most {} come in", self.incoming, self.receive_maximum)
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn ends(&mut self, id: PacketId) {
        self.uses.remove(&id);
        self.in_flight.remove(&id);
    }
}

/// Follows the packets of a connection and knows the last one that the client sent.
#[derive(Default)]
pub(super) struct Watch {
    input: [BytesMut; 2],
    last: Option<u8>,
    /// Whether the broker sent DISCONNECT.
    ended: bool,
    version: Option<Version>,
    client: String,
}

impl Watch {
    fn packet(&mut self, up: bool, frame: &Frame) -> Result<(), String> {
        let kind = frame.first >> 4;
        let sender = if up { Sender::Client } else { Sender::Server };
        let version = self.version.unwrap_or(Version::V5);
        let packet = Packet::decode(frame, version, sender).map_err(|violation| violation.message)?;
        if up {
            let connects = matches!(packet, Packet::Connect(_));
            holds(self.last.is_none() == connects, || format!("packet {kind} behind {:?}", self.last))?;
            self.last = Some(kind);
        } else {
            holds(!self.ended, || format!("packet {kind} behind DISCONNECT of the broker"))?;
            self.ended = matches!(packet, Packet::Disconnect(_));
        }
        if let Packet::Connect(connect) = &packet {
            self.version = Some(connect.version);
            self.client = connect.client_id.to_string();
        }
        let checked = SESSIONS.with_borrow_mut(|sessions| {
            let session = sessions.entry(self.client.clone()).or_default();
            match &packet {
                Packet::Connect(connect) => {
                    session.begin(connect);
                    Ok(())
                }
                packet if up => session.says(packet),
                packet => session.hears(packet),
            }
        });
        checked.map_err(|wrong| format!("{}: {wrong}", self.client))
    }
}

impl Tap for Watch {
    fn see(&mut self, up: bool, bytes: &[u8]) -> Result<(), String> {
        self.input[usize::from(up)].extend_from_slice(bytes);
        loop {
            let frame = Decoder::new(MAX_PACKET).next(&mut self.input[usize::from(up)]);
            let Some(frame) = frame.map_err(|violation| violation.message)? else { return Ok(()) };
            self.packet(up, &frame)?;
        }
    }

    fn state(&self) -> &'static str {
        const NAMES: [&str; 16] = [
            "0",
            "CONNECT",
            "CONNACK",
            "PUBLISH",
            "PUBACK",
            "PUBREC",
            "PUBREL",
            "PUBCOMP",
            "SUBSCRIBE",
            "SUBACK",
            "UNSUBSCRIBE",
            "UNSUBACK",
            "PINGREQ",
            "PINGRESP",
            "DISCONNECT",
            "AUTH",
        ];
        self.last.map_or(BEFORE, |last| NAMES[usize::from(last)])
    }
}
