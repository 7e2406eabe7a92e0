//! One connection: what was agreed in its handshake, and what dies with it.
//!
//! ```text
//! Start --CONNECT accepted--> Ready --DISCONNECT, violation, takeover, silence--> Ended
//!   +--anything else, 10 s-----------------------------------------------------------^
//! ```

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytestring::ByteString;

use super::message::{Form, Message};
use crate::mqtt::packet::{Disconnect, Publish};
use crate::mqtt::{Packet, Properties, Property, Reason, Version, Violation};
use crate::transmit::Transmit;

/// Longest time from the connection to CONNECT.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Largest packet of somebody who has not said who he is.
pub(super) const FIRST_PACKET: usize = 64 << 10;
/// Most aliases given to the topics of one client.
const ALIASES_OUT: u16 = 64;

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Start,
    Ready {
        session: u64,
    },
    /// What is queued is written, nothing is heard any more.
    Ended,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    pub(super) version: Version,
    pub(super) transmit: Transmit,
    /// When the last packet came.
    pub(super) heard_at: Instant,
    /// Longest silence: one and a half times the client's keep-alive.
    pub(super) patience: Option<Duration>,
    /// When its token expires.
    pub(super) expires_at: Option<Instant>,
    /// Largest packet that the client takes.
    pub(super) max_packet_size: usize,
    /// Messages that may be in flight to it.
    pub(super) window: usize,
    /// PUBLISH of QoS 1 and 2 from it without a last answer.
    pub(super) unanswered: usize,
    /// Whether its session had more for it than fits.
    pub(super) starved: bool,
    /// Acknowledgements that wait for a subscriber that is behind.
    pub(super) held: VecDeque<Packet>,
    /// The connection of the subscriber that it waits for before more is read from it.
    pub(super) paced_by: Option<u64>,
    /// Connections that wait for this one.
    pub(super) pacing: BTreeSet<u64>,
    /// How often its output was taken, now and when it was last looked at.
    pub(super) progress: (u64, u64),
    /// Whether it was not taken meanwhile: then nobody waits for it.
    pub(super) stalled: bool,
    /// Bytes of QoS 0 that wait in `transmit`.
    pub(super) unsent: usize,
    aliases_in: HashMap<u16, ByteString>,
    aliases_out: HashMap<ByteString, u16>,
    alias_limit: u16,
}

impl Connection {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            state: State::Start,
            version: Version::V3_1_1,
            transmit: Transmit::default(),
            heard_at: now,
            patience: Some(HANDSHAKE),
            expires_at: None,
            max_packet_size: usize::MAX,
            window: 1,
            unanswered: 0,
            starved: false,
            held: VecDeque::new(),
            paced_by: None,
            pacing: BTreeSet::new(),
            progress: (0, 0),
            stalled: false,
            unsent: 0,
            aliases_in: HashMap::new(),
            aliases_out: HashMap::new(),
            alias_limit: 0,
        }
    }

    /// Takes over what a CONNECT says of the connection.
    pub(super) fn agree(&mut self, keep_alive: u16, properties: &Properties, max_inflight: u16) {
        self.patience = (keep_alive > 0).then(|| Duration::from_millis(u64::from(keep_alive) * 1500));
        self.max_packet_size = properties.maximum_packet_size().map_or(usize::MAX, |size| *size as usize);
        self.window =
            usize::from(properties.receive_maximum().map_or(max_inflight, |n| max_inflight.min(*n)));
        self.alias_limit = properties.topic_alias_maximum().map_or(0, |limit| ALIASES_OUT.min(*limit));
    }

    /// The session, while it is there.
    pub(super) fn session(&self) -> Option<u64> {
        if let State::Ready { session } = self.state { Some(session) } else { None }
    }

    /// When it has been silent for too long, or its token expires.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Ended => None,
            _ => crate::machine::earliest(self.patience.map(|time| self.heard_at + time), self.expires_at),
        }
    }

    /// Sends a packet. What would be too large goes without its words, or not at all.
    pub(super) fn send(&mut self, packet: &mut Packet) -> bool {
        if packet.encoded_len(self.version) > self.max_packet_size {
            let properties = match packet {
                Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubRel(ack) | Packet::PubComp(ack) => {
                    &mut ack.properties
                }
                Packet::SubAck(ack) => &mut ack.properties,
                Packet::UnsubAck(ack) => &mut ack.properties,
                Packet::Disconnect(disconnect) => &mut disconnect.properties,
                Packet::ConnAck(ack) => &mut ack.properties,
                _ => return false,
            };
            properties.retain(|property| !matches!(property, Property::ReasonString(_) | Property::User(..)));
            if packet.encoded_len(self.version) > self.max_packet_size {
                return false;
            }
        }
        packet.encode(self.version, &mut self.transmit).is_ok()
    }

    /// Sends a message to the subscriber; false if it is too large for it.
    pub(super) fn publish(&mut self, message: &Message, form: Form<'_>, wall_ms: u64) -> bool {
        self.forward(message.outgoing(form, wall_ms))
    }

    /// Sends a PUBLISH with its topic in full; an alias stands for it if the client takes one.
    pub(super) fn forward(&mut self, mut publish: Publish) -> bool {
        if self.version != Version::V5 || self.alias_limit == 0 {
            return self.send(&mut Packet::Publish(publish));
        }
        let known = self.aliases_out.get(&publish.topic).copied();
        let new = || {
            let next = self.aliases_out.len() as u16 + 1;
            (next <= self.alias_limit).then_some(next)
        };
        let topic = publish.topic.clone();
        let Some(alias) = known.or_else(new) else { return self.send(&mut Packet::Publish(publish)) };
        publish.properties.push(Property::TopicAlias(alias));
        if known.is_some() {
            publish.topic = ByteString::new();
        }
        let sent = self.send(&mut Packet::Publish(publish));
        if sent && known.is_none() {
            self.aliases_out.insert((&*topic).into(), alias);
        }
        sent
    }

    /// Puts the topic in full where an alias stands for it.
    pub(super) fn resolve(&mut self, publish: &mut Publish, maximum: u16) -> Result<(), Violation> {
        let Some(alias) = publish.properties.topic_alias().copied() else { return Ok(()) };
        if alias == 0 || alias > maximum {
            return Err(Violation {
                reason: Reason::TopicAliasInvalid,
                message: format!("topic alias {alias}; the topic alias maximum is {maximum}"),
            });
        }
        if publish.topic.is_empty() {
            let topic = self.aliases_in.get(&alias).cloned();
            publish.topic = topic
                .ok_or_else(|| Violation::protocol(format!("topic alias {alias} stands for nothing")))?;
        } else {
            // Copied: it must not keep the buffer that it came in.
            self.aliases_in.insert(alias, (&*publish.topic).into());
        }
        Ok(())
    }

    /// Ends the connection. A client of 5.0 is told why, those of 3.x see it close.
    pub(super) fn end(&mut self, reason: Reason, words: &str) {
        if self.version == Version::V5 && self.session().is_some() {
            let mut disconnect = Disconnect::new(reason);
            if !words.is_empty() {
                disconnect.properties.push(Property::ReasonString(words.into()));
            }
            self.send(&mut Packet::Disconnect(disconnect));
        }
        self.state = State::Ended;
    }
}
