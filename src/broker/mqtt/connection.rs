//! One connection: the results of its handshake, and the state that ends with it.
//!
//! ```text
//! Start --CONNECT accepted--> Ready --DISCONNECT, violation, takeover, timeout--> Ended
//!   +--CONNECT with a password to verify--> LoggingIn --right--> Ready                ^
//!   |                                           +--wrong, 10 s------------------------+
//!   +--anything else, 10 s------------------------------------------------------------+
//! ```

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use bytestring::ByteString;

use super::message::{Form, Message};
use crate::logger;
use crate::permissions::Decisions;
use crate::protocol::{Clock, Entry};
use forebay_base::random::HashMap;
use forebay_base::transmit::Transmit;
use forebay_mqtt::packet::{Ack, Disconnect, Publish, SubAck, UnsubAck};
use forebay_mqtt::{Packet, Properties, Property, Reason, Version, Violation};

/// Time limit for CONNECT after the connection was accepted.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Packet size limit before CONNECT is accepted.
pub(super) const FIRST_PACKET: usize = 64 << 10;
/// Limit on the topic aliases that the broker assigns to one client.
const ALIASES_OUT: u16 = 64;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Start,
    /// The password is verified on another thread. Input waits.
    LoggingIn,
    Ready {
        session: u64,
    },
    /// Queued output is written; input is ignored.
    Ended,
}

/// State of a connection, as the [module](self) describes.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    pub(super) entry: Entry,
    /// Address that pays for wrong passwords.
    pub(super) address: IpAddr,
    /// The user whose password let it in.
    pub(super) password_of: Option<ByteString>,
    pub(super) version: Version,
    pub(super) transmit: Transmit,
    /// When the last packet was received, or the client was let in.
    pub(super) heard_at: Instant,
    /// Time without a packet after which the connection ends: one and a half times the keep-alive.
    pub(super) patience: Option<Duration>,
    /// The reason for which it ends, if the broker knows one.
    farewell: Option<Box<str>>,
    /// When the client's token expires, in milliseconds since 1970.
    expires_ms: Option<u64>,
    /// Timer of the expiry, which may be due too early: a timer reaches a day, and the calendar may
    /// be set.
    expires_at: Option<Instant>,
    /// Whether the output may leave: the row of the session is written.
    pub(super) opened: bool,
    /// When output was taken last.
    pub(super) taken_at: Option<Instant>,
    /// Whether any packet may have a reason string (Request Problem Information).
    problem_information: bool,
    /// Maximum packet size of the client.
    pub(super) max_packet_size: usize,
    /// Receive maximum of the client.
    pub(super) window: usize,
    /// Number of QoS 1 and 2 PUBLISH packets from the client that are not fully acknowledged.
    pub(super) unanswered: usize,
    /// Whether its input waits for steps of routing.
    pub(super) stepping: bool,
    /// Whether the session stopped sending because the output was full.
    pub(super) starved: bool,
    /// Acknowledgements held back until a slow subscriber has caught up.
    pub(super) held: VecDeque<Packet>,
    /// The subscriber's connection that this one waits for before it is read from again.
    pub(super) paced_by: Option<u64>,
    /// Connections that wait for this one.
    pub(super) pacing: BTreeSet<u64>,
    /// Number of times that the output was taken: now, and at the last check.
    pub(super) progress: (u64, u64),
    /// When publishers stop waiting for this connection, if some do.
    pub(super) pacing_until: Option<Instant>,
    /// Whether it was too slow. Publishers do not wait for a stalled connection.
    pub(super) stalled: bool,
    /// When a message was dropped last, as its output was not taken.
    pub(super) told_of_drops: Option<Instant>,
    /// Bytes of QoS 0 in `transmit`.
    pub(super) unsent: usize,
    /// Topics that the client may publish to.
    pub(super) decisions: Decisions,
    aliases_in: HashMap<u16, ByteString>,
    aliases_out: HashMap<ByteString, u16>,
    alias_limit: u16,
    /// Bytes of the topics that have an alias.
    alias_bytes: usize,
}

impl Connection {
    pub(super) fn new(now: Instant, address: IpAddr) -> Self {
        Self {
            state: State::Start,
            entry: Entry::default(),
            address,
            password_of: None,
            version: Version::V3_1_1,
            transmit: Transmit::default(),
            heard_at: now,
            patience: Some(HANDSHAKE),
            farewell: None,
            expires_ms: None,
            expires_at: None,
            opened: true,
            taken_at: None,
            problem_information: true,
            max_packet_size: usize::MAX,
            window: 1,
            unanswered: 0,
            stepping: false,
            starved: false,
            held: VecDeque::new(),
            paced_by: None,
            pacing: BTreeSet::new(),
            progress: (0, 0),
            pacing_until: None,
            stalled: false,
            told_of_drops: None,
            unsent: 0,
            decisions: Decisions::default(),
            aliases_in: HashMap::default(),
            aliases_out: HashMap::default(),
            alias_limit: 0,
            alias_bytes: 0,
        }
    }

    /// Applies the maximum packet size of a CONNECT.
    pub(super) fn limit_packets(&mut self, properties: &Properties) {
        self.max_packet_size = properties.maximum_packet_size().map_or(usize::MAX, |size| *size as usize);
    }

    /// Applies the other settings of a CONNECT.
    pub(super) fn agree(&mut self, keep_alive: u16, properties: &Properties, max_inflight: u16) {
        self.patience = (keep_alive > 0).then(|| Duration::from_millis(u64::from(keep_alive) * 1500));
        self.problem_information = properties.request_problem_information() != Some(&false);
        self.window =
            usize::from(properties.receive_maximum().map_or(max_inflight, |n| max_inflight.min(*n)));
        self.alias_limit = properties.topic_alias_maximum().map_or(0, |limit| ALIASES_OUT.min(*limit));
    }

    /// The session, while the connection has one.
    pub(super) fn session(&self) -> Option<u64> {
        if let State::Ready { session } = self.state { Some(session) } else { None }
    }

    /// Sets the expiry of the client's token.
    pub(super) fn set_expiry(&mut self, expires_ms: Option<u64>, clock: Clock, now: Instant) {
        self.expires_ms = expires_ms;
        self.set_clock(clock, now);
    }

    /// Sets the timer of the expiry by the calendar clock. Returns whether there is one.
    pub(super) fn set_clock(&mut self, clock: Clock, now: Instant) -> bool {
        self.expires_at = self.expires_ms.map(|at| clock.at(now, at));
        self.expires_at.is_some()
    }

    /// Whether the client's token has expired. Sets the timer again if it was due too early.
    pub(super) fn has_expired(&mut self, clock: Clock, now: Instant) -> bool {
        if self.expires_at.is_none_or(|at| at > now) {
            return false;
        }
        let expired = self.expires_ms.is_some_and(|at| at <= clock.wall_ms(now));
        if !expired {
            self.set_clock(clock, now);
        }
        expired
    }

    /// When the keep-alive or the token expires.
    pub(super) fn deadline(&self) -> Option<Instant> {
        // A client without CONNACK waits for the broker, and sends nothing. What another one sent
        // may wait, too.
        let patience = self.patience.filter(|_| self.opened && !self.stepping);
        match self.state {
            State::Ended => None,
            _ => forebay_base::machine::earliest(patience.map(|time| self.heard_at + time), self.expires_at),
        }
    }

    /// Sends a packet. If it exceeds the client's limit, it is sent without its reason string, or
    /// not at all.
    pub(super) fn send(&mut self, packet: &mut Packet) -> bool {
        if !self.problem_information
            && let Packet::PubAck(Ack { properties, .. })
            | Packet::PubRec(Ack { properties, .. })
            | Packet::PubRel(Ack { properties, .. })
            | Packet::PubComp(Ack { properties, .. })
            | Packet::SubAck(SubAck { properties, .. })
            | Packet::UnsubAck(UnsubAck { properties, .. }) = packet
        {
            properties.retain(|property| !matches!(property, Property::ReasonString(_) | Property::User(..)));
        }
        if self.exceeds(packet) {
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
            if self.exceeds(packet) {
                return false;
            }
        }
        packet.encode(self.version, &mut self.transmit).is_ok()
    }

    /// Whether a packet exceeds the client's limit.
    pub(super) fn exceeds(&self, packet: &Packet) -> bool {
        packet.encoded_len(self.version) > self.max_packet_size
    }

    /// The reason why a packet cannot be sent.
    pub(super) fn too_large(&self, packet: &Packet) -> String {
        format!(
            "{:?} has {} bytes, and the client's Maximum Packet Size is {}",
            packet.kind(),
            packet.encoded_len(self.version),
            self.max_packet_size
        )
    }

    /// Sends a message to the subscriber. Returns `false` if it exceeds the client's limit.
    pub(super) fn publish(&mut self, message: &Message, form: Form<'_>, run_ms: u64) -> bool {
        self.forward(message.outgoing(form, run_ms))
    }

    /// Sends a PUBLISH that has its full topic, using a topic alias if the client accepts them.
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
            self.alias_bytes += topic.len();
            self.aliases_out.insert((&*topic).into(), alias);
        }
        sent
    }

    /// Bytes of the topics that have an alias.
    pub(super) fn aliases(&self) -> usize {
        self.alias_bytes
    }

    /// Replaces a topic alias by its topic.
    pub(super) fn resolve(&mut self, publish: &mut Publish, maximum: u16) -> Result<(), Violation> {
        let Some(alias) = publish.properties.topic_alias().copied() else { return Ok(()) };
        if alias == 0 || alias > maximum {
            return Err(Violation {
                reason: Reason::TopicAliasInvalid,
                message: format!("topic alias {alias} exceeds the topic alias maximum of {maximum}"),
            });
        }
        if publish.topic.is_empty() {
            let topic = self.aliases_in.get(&alias).cloned();
            publish.topic =
                topic.ok_or_else(|| Violation::protocol(format!("topic alias {alias} has no topic")))?;
        } else {
            // Copied, so that it does not keep the read buffer alive.
            let before = self.aliases_in.insert(alias, (&*publish.topic).into());
            self.alias_bytes += publish.topic.len();
            self.alias_bytes -= before.map_or(0, |topic| topic.len());
        }
        Ok(())
    }

    /// Ends the connection. An MQTT 5 client is told the reason; an MQTT 3.x client sees the
    /// connection close.
    pub(super) fn end(&mut self, reason: Reason, text: &str) {
        if self.version == Version::V5 && self.session().is_some() {
            let mut disconnect = Disconnect::new(reason);
            if !text.is_empty() {
                disconnect.properties.push(Property::ReasonString(text.into()));
            }
            self.send(&mut Packet::Disconnect(disconnect));
        }
        self.state = State::Ended;
        let reason = if text.is_empty() { reason.to_string() } else { text.to_owned() };
        self.farewell.get_or_insert(reason.into());
    }

    /// Ends the connection after the client's DISCONNECT.
    pub(super) fn leave(&mut self, disconnect: &Disconnect) {
        self.state = State::Ended;
        let mut text = "the client has left".to_owned();
        if disconnect.reason != Reason::Success {
            text += &format!(": {}", disconnect.reason);
        }
        if let Some(why) = disconnect.properties.reason_string() {
            text += &format!(", {:?}", logger::cut(why));
        }
        self.farewell.get_or_insert(text.into());
    }

    /// The reason for which the connection ended, unless the client closed it without a word.
    pub(super) fn farewell(&self) -> Option<&str> {
        self.farewell.as_deref()
    }
}
