//! The client side of a socket: handshake, extended authentication, keep-alive, the server's
//! limits, topic aliases.
//!
//! ```text
//!        CONNECT queued by new()
//!                    │
//!             ┌──────▼──────┐ AUTH continue → event, answered by [`Connection::authenticate`]
//!             │ Handshaking │◄──────────┐
//!             └──────┬──────┴───────────┘
//!   CONNACK success  │        │ CONNACK with a refusal, anything else, deadline
//!             ┌──────▼──────┐ │
//!             │    Ready    │ │
//!             └──────┬──────┘ │
//!  DISCONNECT, PINGRESP missed│
//!      broken packet │        │
//!             ┌──────▼────────▼┐
//!             │ error: the driver writes what is queued, then closes the socket │
//!             └────────────────┘
//! ```
//! A connection ends with its socket, and with it the limits and the aliases: none of them carry
//! over to the next connection. The state that outlives it is in [`crate::session::Session`].

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use bytestring::ByteString;

use crate::frame::{Decoder, MAX_FIXED_HEADER, MAX_REMAINING_LENGTH};
use crate::packet::{Auth, ConnAck, Connect, Disconnect, Publish};
use crate::{Packet, Property, QoS, Reason, Sender, Version, Violation};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::machine::{Machine, TimerTable};
use forebay_base::random::HashMap;
use forebay_base::transmit::Transmit;

const HANDSHAKE: usize = 0;
const KEEP_ALIVE: usize = 1;
const PING: usize = 2;

/// Maximum time to wait for PINGRESP, or for any other byte in its place. A shorter keep-alive
/// limits it too.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of topic aliases that we assign, even if the server accepts more: finding the
/// least recently used one takes time proportional to their number.
const MAX_ALIASES: u16 = 256;

/// Maximum number of QoS 2 publications in flight to a server that cannot state a limit, as MQTT 3
/// has no Receive Maximum. It is the limit of Mosquitto's default configuration, and the default of
/// other clients. Mosquitto confirms QoS 2 publications beyond its limit, but does not deliver
/// them.
const EXACTLY_ONCE_MAXIMUM: u16 = 20;
/// Bytes of acknowledgements that may wait. All that a lawful broker can ask for are half of it.
const MAX_ANSWERS: usize = 1 << 20;

/// Capabilities and limits of the server on this connection (3.2.2.3). Before CONNACK, and for
/// properties that CONNACK omits, they have the defaults of the standard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of unacknowledged QoS 1 and 2 publications.
    pub receive_maximum: u16,
    /// Maximum number of QoS 2 publications without PUBCOMP, in addition to `receive_maximum`.
    pub exactly_once_maximum: u16,
    /// Highest QoS that we may publish with.
    pub maximum_qos: QoS,
    /// Whether the server supports retained messages.
    pub retain_available: bool,
    /// Maximum packet size in bytes.
    pub maximum_packet_size: usize,
    /// Highest topic alias that we may use.
    pub topic_alias_maximum: u16,
    /// Whether filters may contain wildcards.
    pub wildcard_subscription: bool,
    /// Whether subscriptions may have identifiers.
    pub subscription_identifiers: bool,
    /// Whether shared subscriptions are supported.
    pub shared_subscription: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            receive_maximum: u16::MAX,
            exactly_once_maximum: u16::MAX,
            maximum_qos: QoS::ExactlyOnce,
            retain_available: true,
            maximum_packet_size: MAX_FIXED_HEADER + MAX_REMAINING_LENGTH,
            topic_alias_maximum: 0,
            wildcard_subscription: true,
            subscription_identifiers: true,
            shared_subscription: true,
        }
    }
}

impl Limits {
    fn of(ack: &ConnAck, version: Version) -> Self {
        let (properties, default) = (&ack.properties, Self::default());
        Self {
            receive_maximum: properties.receive_maximum().copied().unwrap_or(default.receive_maximum),
            exactly_once_maximum: match version {
                Version::V5 => default.exactly_once_maximum,
                Version::V3_1 | Version::V3_1_1 => EXACTLY_ONCE_MAXIMUM,
            },
            maximum_qos: match properties.maximum_qos() {
                Some(false) => QoS::AtMostOnce,
                Some(true) => QoS::AtLeastOnce,
                None => QoS::ExactlyOnce,
            },
            retain_available: properties.retain_available().copied().unwrap_or(true),
            maximum_packet_size: properties
                .maximum_packet_size()
                .map_or(default.maximum_packet_size, |size| *size as usize),
            topic_alias_maximum: properties.topic_alias_maximum().copied().unwrap_or(0),
            wildcard_subscription: properties.wildcard_subscription_available().copied().unwrap_or(true),
            // MQTT 3 cannot carry them.
            subscription_identifiers: version == Version::V5
                && properties.subscription_identifier_available().copied().unwrap_or(true),
            shared_subscription: properties.shared_subscription_available().copied().unwrap_or(true),
        }
    }
}

/// Events of a connection.
#[derive(Debug)]
pub enum Event {
    /// The handshake is complete.
    Connected(ConnAck),
    /// The server's step of extended authentication; success completes a re-authentication.
    Auth(Auth),
    /// A packet for the session.
    Packet(Packet),
}

#[derive(Debug)]
enum State {
    Handshaking,
    Ready,
    /// DISCONNECT has been sent; nothing may follow it.
    Closing,
}

/// A connection to a broker, without its socket.
#[derive(Debug)]
pub struct Connection {
    state: State,
    version: Version,
    /// Enforces the maximum packet size that we announced.
    decoder: Decoder,
    /// Topic alias maximum that we announced.
    own_aliases: u16,
    limits: Limits,
    keep_alive: Duration,
    /// Whether we asked to discard an earlier session.
    clean_start: bool,
    timers: TimerTable<3>,
    /// Time of the last packet sent. Read when the keep-alive timer is due, so that sending need
    /// not reset the timer.
    last_sent: Instant,
    /// Time of the last byte received, or until when reading was paused. Read as `last_sent` is.
    last_heard: Instant,
    /// Bytes that were taken and that the socket has not accepted yet.
    unwritten: usize,
    /// Topics by the alias that the server assigned.
    aliases_in: HashMap<u16, ByteString>,
    aliases_out: Aliases,
    authentication_method: Option<ByteString>,
    events: VecDeque<Event>,
    transmit: Transmit,
    /// Total number of bytes queued so far.
    queued: u64,
    /// Bytes of acknowledgements that were queued before and after `mark`, of those that may not be
    /// written yet.
    answers: [usize; 2],
    /// Bytes queued when the count began again.
    mark: u64,
    /// Number of bytes received of an incomplete packet, or from where publications are held.
    unread: usize,
    /// Number of publications of QoS 1 and 2 that may still be taken out of the input.
    room: usize,
    /// Whether the input begins with a publication for which there was no room.
    held: bool,
}

impl Connection {
    /// Creates a connection and queues `connect`, which must be answered within `timeout`.
    pub fn new(now: Instant, connect: Connect, timeout: Duration) -> Result<Self> {
        let version = connect.version;
        let properties = &connect.properties;
        let own_packet_size = properties
            .maximum_packet_size()
            .map_or(MAX_FIXED_HEADER + MAX_REMAINING_LENGTH, |size| *size as usize);
        let mut connection = Self {
            state: State::Handshaking,
            version,
            decoder: Decoder::new(own_packet_size),
            own_aliases: properties.topic_alias_maximum().copied().unwrap_or(0),
            limits: Limits::default(),
            keep_alive: Duration::from_secs(u64::from(connect.keep_alive)),
            clean_start: connect.clean_start,
            timers: TimerTable::default(),
            last_sent: now,
            last_heard: now,
            unwritten: 0,
            aliases_in: HashMap::default(),
            aliases_out: Aliases::default(),
            authentication_method: properties.authentication_method().cloned(),
            events: VecDeque::new(),
            transmit: Transmit::default(),
            queued: 0,
            answers: [0; 2],
            mark: 0,
            unread: 0,
            room: usize::MAX,
            held: false,
        };
        connection.timers.set(HANDSHAKE, now + timeout);
        connection.queue(now, &Packet::Connect(Box::new(connect)))?;
        Ok(connection)
    }

    /// Protocol version of the connection.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Capabilities and limits of the server.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether packets may be sent.
    pub fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready)
    }

    /// Total number of bytes queued so far, written or not.
    pub fn queued(&self) -> u64 {
        self.queued
    }

    /// Queues a packet. Fails, without queueing anything, if the packet exceeds the server's limit.
    /// Acknowledgements lose their reason string and user properties if they would be too large
    /// with them.
    pub fn send(&mut self, now: Instant, mut packet: Packet) -> Result<()> {
        let limit = self.limits.maximum_packet_size;
        if packet.encoded_len(self.version) > limit {
            if let Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubRel(ack) | Packet::PubComp(ack) =
                &mut packet
            {
                ack.properties
                    .retain(|property| !matches!(property, Property::ReasonString(_) | Property::User(..)));
            }
            let size = packet.encoded_len(self.version);
            if size > limit {
                return Err(too_large(size, limit));
            }
        }
        let before = self.transmit.len();
        self.queue(now, &packet)?;
        if let Packet::PubAck(_) | Packet::PubRec(_) | Packet::PubComp(_) = packet {
            self.answers[1] += self.transmit.len() - before;
        }
        Ok(())
    }

    /// Queues a publication, with a topic alias if the server accepts them.
    pub fn publish(&mut self, now: Instant, publish: &Publish) -> Result<()> {
        self.check(publish)?;
        if self.limits.topic_alias_maximum == 0 {
            return self.queue(now, &Packet::Publish(publish.clone()));
        }
        let mut publish = publish.clone();
        if let Some(alias) = self.aliases_out.lookup(&publish.topic) {
            publish.properties.push(Property::TopicAlias(alias));
            publish.topic = ByteString::new();
            return self.queue(now, &Packet::Publish(publish));
        }
        let alias = self.aliases_out.next_alias(self.limits.topic_alias_maximum);
        publish.properties.push(Property::TopicAlias(alias));
        let topic = publish.topic.clone();
        self.queue(now, &Packet::Publish(publish))?;
        // Only now: the server learns the alias from a packet that has been queued.
        self.aliases_out.assign(alias, topic);
        Ok(())
    }

    /// Checks a publication against the server's limits.
    pub fn check(&self, publish: &Publish) -> Result<()> {
        let limits = &self.limits;
        if publish.qos > limits.maximum_qos {
            return Err(unsupported(format!("QoS {}", publish.qos as u8), Reason::QoSNotSupported));
        }
        if publish.retain && !limits.retain_available {
            return Err(unsupported("retained messages".into(), Reason::RetainNotSupported));
        }
        // Reserves room for the alias that may be added.
        let size = Packet::Publish(publish.clone()).encoded_len(self.version)
            + if limits.topic_alias_maximum > 0 { 4 } else { 0 };
        if size > limits.maximum_packet_size {
            return Err(too_large(size, limits.maximum_packet_size));
        }
        Ok(())
    }

    /// Sends a step of extended authentication: `data` in answer to the server's challenge or, with
    /// `again`, the start of a re-authentication.
    pub fn authenticate(&mut self, now: Instant, data: bytes::Bytes, again: bool) -> Result<()> {
        let Some(method) = self.authentication_method.clone() else {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the connection was opened without an authentication method: set one when connecting",
            ));
        };
        if again && !self.is_ready() {
            return Err(Error::new(
                ErrorKind::Disconnected,
                "the connection is not established yet: re-authenticate after CONNACK",
            ));
        }
        let reason = if again { Reason::ReAuthenticate } else { Reason::ContinueAuthentication };
        let properties = [Property::AuthenticationMethod(method), Property::AuthenticationData(data)]
            .into_iter()
            .collect();
        self.send(now, Packet::Auth(Auth { reason, properties }))
    }

    /// Sends DISCONNECT; nothing may follow it.
    pub fn disconnect(&mut self, now: Instant, disconnect: Disconnect) {
        if self.is_ready() {
            // A DISCONNECT this short fits any limit.
            let _ = self.queue(now, &Packet::Disconnect(disconnect));
        }
        self.state = State::Closing;
    }

    /// Notes that `unwritten` bytes of those that were taken are not written yet.
    pub fn note_unwritten(&mut self, unwritten: usize) {
        self.unwritten = unwritten;
        let waiting = (self.transmit.len() + unwritten) as u64;
        if self.queued.saturating_sub(waiting) >= self.mark {
            self.answers = [self.answers[1], 0];
            self.mark = self.queued;
        }
    }

    /// Whether so many acknowledgements wait that the broker should not be read. A lawful broker
    /// has no more messages on their way than there are packet identifiers.
    pub fn is_behind_with_answers(&self) -> bool {
        self.answers[0] + self.answers[1] > MAX_ANSWERS
    }

    fn queue(&mut self, now: Instant, packet: &Packet) -> Result<()> {
        if matches!(self.state, State::Closing) {
            return Err(Error::new(ErrorKind::Closed, "the connection is closing"));
        }
        let before = self.transmit.len();
        packet.encode(self.version, &mut self.transmit)?;
        self.queued += (self.transmit.len() - before) as u64;
        self.last_sent = now;
        Ok(())
    }

    fn handle_packet(&mut self, packet: Packet) -> Result<(), Ended> {
        match (&self.state, packet) {
            (State::Handshaking, Packet::ConnAck(ack)) => self.connected(ack),
            (State::Handshaking, Packet::Auth(auth)) | (State::Ready, Packet::Auth(auth)) => {
                self.check_method(auth.properties.authentication_method(), "AUTH")?;
                self.events.push_back(Event::Auth(auth));
                Ok(())
            }
            (State::Handshaking, packet) => {
                Err(Violation::protocol(format!("the broker sent {:?} before CONNACK (3.2)", packet.kind()))
                    .into())
            }
            (_, Packet::ConnAck(_)) => {
                Err(Violation::protocol("the broker sent a second CONNACK (3.2)").into())
            }
            (_, Packet::PingResp) => Ok(()),
            (_, Packet::Disconnect(disconnect)) => Err(Ended::Refused(refusal(
                disconnect.reason,
                "the broker ended the connection",
                disconnect.properties.reason_string(),
                disconnect.properties.server_reference(),
            ))),
            (State::Closing, _) => Ok(()),
            (State::Ready, Packet::Publish(mut publish)) => {
                self.resolve_alias(&mut publish)?;
                self.events.push_back(Event::Packet(Packet::Publish(publish)));
                Ok(())
            }
            (State::Ready, packet) => {
                self.events.push_back(Event::Packet(packet));
                Ok(())
            }
        }
    }

    /// [MQTT-4.12.0-5], [MQTT-4.12.0-6]: the authentication method must be that of CONNECT
    /// throughout.
    fn check_method(&self, method: Option<&ByteString>, what: &str) -> Result<(), Violation> {
        if method.is_none() || method != self.authentication_method.as_ref() {
            return Err(Violation::protocol(format!(
                "{what} has an authentication method other than CONNECT's (4.12)"
            )));
        }
        Ok(())
    }

    fn connected(&mut self, ack: ConnAck) -> Result<(), Ended> {
        if ack.reason != Reason::Success {
            return Err(Ended::Refused(refusal(
                ack.reason,
                "the broker refused the connection",
                ack.properties.reason_string(),
                ack.properties.server_reference(),
            )));
        }
        if ack.session_present && self.clean_start {
            // [MQTT-3.2.2-4]: the session is not ours; its acknowledgements would be taken for
            // answers to our packets.
            return Err(Violation::protocol(
                "CONNACK has Session Present set after a clean start (3.2.2.1.1)",
            )
            .into());
        }
        // A CONNACK without a method is permitted and changes nothing.
        if let method @ Some(_) = ack.properties.authentication_method() {
            self.check_method(method, "CONNACK")?;
        }
        self.limits = Limits::of(&ack, self.version);
        if let Some(seconds) = ack.properties.server_keep_alive() {
            self.keep_alive = Duration::from_secs(u64::from(*seconds));
        }
        self.timers.stop(HANDSHAKE);
        if !self.keep_alive.is_zero() {
            self.timers.set(KEEP_ALIVE, self.last_sent + self.keep_alive);
        }
        self.state = State::Ready;
        self.events.push_back(Event::Connected(ack));
        Ok(())
    }

    /// Replaces a topic alias by its topic, and records new aliases (3.3.2.3.4).
    fn resolve_alias(&mut self, publish: &mut Publish) -> Result<(), Violation> {
        let Some(alias) = publish.properties.topic_alias().copied() else { return Ok(()) };
        let bad = |message: String| Violation { reason: Reason::TopicAliasInvalid, message };
        if alias > self.own_aliases {
            return Err(bad(format!(
                "topic alias {alias} exceeds our maximum of {} (3.3.2.3.4)",
                self.own_aliases
            )));
        }
        if publish.topic.is_empty() {
            let topic = self.aliases_in.get(&alias);
            publish.topic = topic.cloned().ok_or_else(|| {
                bad(format!("topic alias {alias} has not been assigned a topic (3.3.2.3.4)"))
            })?;
        } else {
            self.aliases_in.insert(alias, publish.topic.clone());
        }
        publish.properties.retain(|property| !matches!(property, Property::TopicAlias(_)));
        Ok(())
    }

    /// Ends the connection because of a violation by the peer, which MQTT 5 reports in a
    /// DISCONNECT.
    pub fn end_with_violation(&mut self, now: Instant, violation: &Violation) {
        if self.version == Version::V5 && self.is_ready() {
            self.disconnect(now, Disconnect::new(violation.reason));
        }
    }
}

/// Cause of the end of a connection.
enum Ended {
    Violated(Violation),
    Refused(Error),
}

impl From<Violation> for Ended {
    fn from(violation: Violation) -> Self {
        Self::Violated(violation)
    }
}

fn unsupported(what: String, reason: Reason) -> Error {
    Error::new(ErrorKind::Unsupported, format!("this broker does not support {what} ({reason})"))
}

fn too_large(size: usize, limit: usize) -> Error {
    Error::new(
        ErrorKind::MessageTooLarge,
        format!("the packet has {size} bytes; the broker accepts at most {limit} (its Maximum Packet Size)"),
    )
}

/// Creates the error for a refusal, with the server's explanation.
fn refusal(reason: Reason, what: &str, words: Option<&ByteString>, server: Option<&ByteString>) -> Error {
    // DISCONNECT with success gives no reason not to reconnect.
    let error = match reason {
        Reason::Success => Error::new(ErrorKind::Disconnected, format!("{what} normally")),
        Reason::SessionTakenOver => {
            Error::new(ErrorKind::SessionTakenOver, format!("{what}: another client uses the client id"))
        }
        _ => reason.error(what),
    };
    match (words, server) {
        (Some(words), _) => error.with_peer_text(words),
        (None, Some(server)) => error.with_peer_text(&format!("use {server}")),
        (None, None) => error,
    }
}

impl Machine for Connection {
    type Event = Event;

    fn handle_input(&mut self, now: Instant, input: &mut BytesMut) -> Result<(), Error> {
        // Any byte shows that the server is alive, not only PINGRESP: a large packet may take
        // longer to arrive.
        if input.len() > self.unread {
            self.last_heard = now;
            self.timers.stop(PING);
        }
        loop {
            let acknowledged = input.first().is_some_and(|first| is_acknowledged(*first));
            self.held = acknowledged && self.room == 0;
            if self.held {
                self.unread = input.len();
                return Ok(());
            }
            let packet = match self.decoder.next(input) {
                Ok(None) => {
                    self.unread = input.len();
                    return Ok(());
                }
                Ok(Some(frame)) => {
                    self.room -= usize::from(acknowledged);
                    Packet::decode(&frame, self.version, Sender::Server)
                }
                Err(violation) => Err(violation),
            };
            match packet.map_err(Ended::from).and_then(|packet| self.handle_packet(packet)) {
                Ok(()) => {}
                Err(Ended::Violated(violation)) => {
                    self.end_with_violation(now, &violation);
                    return Err(violation.into());
                }
                Err(Ended::Refused(error)) => return Err(error),
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), Error> {
        if self.timers.expire(HANDSHAKE, now) {
            return Err(Error::new(
                ErrorKind::Timeout,
                "the broker did not answer CONNECT within the time limit",
            ));
        }
        let ping_timeout = PING_TIMEOUT.min(self.keep_alive);
        if self.timers.expire(PING, now) {
            if self.unwritten == 0 {
                return Err(Error::new(
                    ErrorKind::Disconnected,
                    format!("the broker was silent for {ping_timeout:?} after PINGREQ"),
                ));
            }
            // PINGREQ may wait behind what a slow network has not taken. The driver ends a
            // connection that takes nothing.
            self.timers.set(PING, now + ping_timeout);
        }
        if self.timers.expire(KEEP_ALIVE, now) {
            // Sending alone does not show that anyone receives it.
            let due = self.last_sent.min(self.last_heard) + self.keep_alive;
            if due > now {
                self.timers.set(KEEP_ALIVE, due);
            } else if self.is_ready() {
                self.queue(now, &Packet::PingReq)?;
                self.timers.set(KEEP_ALIVE, now + self.keep_alive);
                if self.timers.get(PING).is_none() {
                    self.timers.set(PING, now + ping_timeout);
                }
            }
        }
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.transmit
    }
}

impl Connection {
    /// Suspends the PINGRESP timeout while nothing is read, since the answer cannot be seen.
    pub fn pause_reading(&mut self, now: Instant) {
        self.last_heard = now;
        self.timers.stop(PING);
    }

    /// Limits the number of publications of QoS 1 and 2 taken out of the input from now on. The
    /// next one, and what follows it, stays there: see [`Self::is_holding`].
    pub fn set_room(&mut self, room: usize) {
        self.room = room;
    }

    /// Whether the input begins with a publication for which there was no room. It is not to grow
    /// until there is.
    pub fn is_holding(&self) -> bool {
        self.held
    }
}

/// Whether a packet with this first byte is a PUBLISH of QoS 1 or 2.
fn is_acknowledged(first: u8) -> bool {
    first >> 4 == 3 && first & 0b110 != 0
}

/// Topic aliases that we assigned. The least recently used one is reassigned first.
#[derive(Debug, Default)]
struct Aliases {
    by_topic: HashMap<ByteString, u16>,
    /// Topic and last use of each alias, starting with alias 1.
    assigned: Vec<(ByteString, u64)>,
    clock: u64,
}

impl Aliases {
    /// Alias that the server knows for `topic`.
    fn lookup(&mut self, topic: &ByteString) -> Option<u16> {
        let alias = *self.by_topic.get(topic)?;
        self.clock += 1;
        self.assigned[usize::from(alias) - 1].1 = self.clock;
        Some(alias)
    }

    /// Alias to be assigned next.
    fn next_alias(&self, maximum: u16) -> u16 {
        let count = self.assigned.len() as u16;
        if count < maximum.min(MAX_ALIASES) {
            return count + 1;
        }
        let oldest = self.assigned.iter().enumerate().min_by_key(|(_, (_, used))| *used);
        oldest.map_or(1, |(index, _)| index as u16 + 1)
    }

    /// Records that the server has been told `topic` for `alias`.
    fn assign(&mut self, alias: u16, topic: ByteString) {
        self.clock += 1;
        let index = usize::from(alias) - 1;
        if let Some((before, _)) = self.assigned.get(index) {
            self.by_topic.remove(before);
            self.assigned[index] = (topic.clone(), self.clock);
        } else {
            self.assigned.push((topic.clone(), self.clock));
        }
        self.by_topic.insert(topic, alias);
    }
}
