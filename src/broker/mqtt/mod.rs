//! MQTT's side of the broker, sans-IO: MQTT 3.1, 3.1.1 and 5.
//!
//! * `connect`: CONNECT and DISCONNECT, the lives of sessions, wills
//! * `publish`: PUBLISH from clients, and its way to the subscribers
//! * `subscribe`: SUBSCRIBE and UNSUBSCRIBE; `replay`, `replaying`: retained messages for new
//!   subscriptions
//! * `deliver`: from a session's queue through its window, and the client's acknowledgements
//! * `connection`: state of one connection; `session`: state that outlives it
//! * `routes`: the subscriptions that match a topic; `retained`: the retained messages that match a
//!   filter
//! * `message`: a message and its form in the store
//! * `passwords`, `password_hash`: users; `permitted`: what they may do; `logins`: clients that
//!   wait for the verification of their password; `status`, `counters`: `$SYS`; `web`: sessions and
//!   retained messages over HTTP; [`options`]; `service`: for the server
//!
//! A [`Broker`] has no sockets, disk or clock; [`crate::protocol`] describes the poll order, and
//! `protocol` is this one's side of it.
//!
//! Everything that a client could miss after a kill is on disk before it is acknowledged: messages
//! for sessions that outlive their connection, retained messages, and the QoS 2 packet identifiers
//! of such sessions. Messages that only connected sessions without expiry receive are not written.
//! No QoS 1 or 2 message overtakes one that waits for the disk; QoS 0 does not wait. Where the
//! standard leaves a choice, the broker does as Mosquitto does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use bytestring::ByteString;

use crate::log::{Source, unreadable};
use crate::pending_writes::PendingWrites;
use crate::protocol::{Clock, OUTPUT_LIMIT, Protocol, Work};
use crate::stats::ProtocolStats;
use crate::store::Op as StoreOp;
use crate::store::mqtt::{Found, Op};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::machine::earliest;
use forebay_base::random::HashMap;
use forebay_base::transmit::Transmit;
use forebay_mqtt::packet::{Ack, ConnAck, PacketId};
use forebay_mqtt::{Packet, Properties, Property, Reason, Sender, Version, Violation, frame};
use forebay_sqlite::Report;

mod connect;
mod connection;
mod counters;
mod deliver;
mod logins;
mod message;
pub mod options;
mod password_hash;
mod passwords;
mod permitted;
mod protocol;
mod publish;
mod replay;
mod replaying;
mod retained;
mod routes;
pub(super) mod service;
mod session;
mod status;
mod subscribe;
mod web;

use connection::{Connection, FIRST_PACKET, State};
use counters::Counters;
use logins::Logins;
use message::{Message, Moment, Queued};
use retained::Retained;
use routes::Routes;
use session::Session;

pub use options::{FullQueue, Limits, Settings, SlowSubscriber};
pub(super) use password_hash::forget_memory;
pub use password_hash::hash_password;
pub use passwords::Passwords;

/// Output bytes queued for a connection beyond which clients that publish QoS 0 to it are slowed
/// down.
const PACE: usize = 1 << 20;
/// Bytes of QoS 0 that wait for all connections, as output or behind replays, beyond which QoS 0 is
/// dropped.
const TOTAL_OUTPUT: usize = 256 << 20;
/// Weight of queued messages that stay in memory. Beyond it, stored messages are read again when
/// they are sent.
const RESIDENT: usize = 64 << 20;
/// Size of a batch of changes in bytes, give or take one packet.
const BATCH: usize = 64 << 10;
/// Time for which publishers wait for a subscriber that is behind, if they do not
/// [wait](SlowSubscriber::Wait) for as long as it takes messages: a burst is no loss to a
/// subscriber that keeps up, nor is a short pause of its process.
const GRACE: Duration = Duration::from_millis(250);
/// Messages of QoS 1 and 2 that a subscriber must take in [`GRACE`] for its publishers to wait on.
/// A sender of a bulk is faster than any subscriber, so being behind alone does not make one slow.
const KEEPS_UP: u64 = 250;
/// Output bytes below which a slow connection has caught up.
const CAUGHT_UP: usize = PACE / 4;
/// Retained messages that are looked at for new subscriptions before other work gets a turn.
const REPLAY_STEPS: usize = 2000;
/// Steps of routing ([`Routes::take_spent`]) that a connection may take in a turn beside others:
/// more than a read of messages takes that few subscribers receive and few filters have to be
/// compared with.
const OWN_STEPS: usize = 5000;
/// Steps beyond these that all connections together may take before the others get a turn: a few
/// milliseconds. A connection whose messages need more waits with the rest of its input.
const SHARED_STEPS: usize = 100_000;
/// Refusal of messages below `$SYS`.
const RESERVED: &str = "topics below $SYS are reserved for the broker";
/// Interval of housekeeping.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// An action that waits for the store.
#[derive(Debug)]
enum Action {
    /// Queues messages for sessions.
    Deliver(Vec<(u64, Queued)>),
    /// Sends an acknowledgement. `behind` is a session whose backlog was large when the message
    /// came.
    Answer { connection: u64, packet: Packet, behind: Option<u64> },
    /// Sends a PUBLISH whose packet identifier had to be written first.
    Send { session: u64, connection: u64, packet_id: PacketId },
    /// Begins the replay of retained messages to a session.
    Replay { session: u64, serial: u64 },
    /// Lets the output of a connection leave: its session's row is written.
    Open { connection: u64 },
    /// Sends a PUBREL whose PUBREC had to be written first.
    Release { session: u64, connection: u64, packet_id: PacketId },
}

/// A timer of a session or a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Will(u64),
    End(u64),
    /// A message in the queue of this session expires.
    Expire(u64),
    /// Publishers have waited for this connection long enough.
    Pace(u64),
    /// Publishers have waited for this session long enough.
    Throttle(u64),
    /// The password of this connection was wrong.
    Refuse(u64),
    /// A password may be verified.
    Logins,
}

/// MQTT's broker, as the [module](self) describes.
#[derive(Debug)]
pub struct Broker {
    settings: Settings,
    source: Option<Box<dyn Source>>,
    /// The first message that could not be read from the store.
    damage: Option<String>,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    sessions: BTreeMap<u64, Session>,
    clients: HashMap<ByteString, u64>,
    next_session: u64,
    routes: Routes,
    retained: Retained,
    /// Topic id of the log in the store.
    log: u64,
    next_sequence: u64,
    /// Number of queues and slots that need each stored message.
    needed: HashMap<u64, u32>,
    /// Changes that are written together. The changes of one packet must not be separated by a
    /// kill, or a QoS 2 message could be stored without its packet identifier.
    batch: Vec<Op>,
    batch_bytes: usize,
    commits: PendingWrites<Action>,
    wakes: VecDeque<u64>,
    /// Sessions that may have something to send now.
    due: BTreeSet<u64>,
    /// The session at which the next turn begins.
    next_due: u64,
    /// Sessions whose search for retained messages goes on in the next turn.
    searching: BTreeSet<u64>,
    /// Connections whose input waits for steps of routing, the next one first.
    stepping: VecDeque<u64>,
    /// Remainder of [`SHARED_STEPS`].
    shared_steps: usize,
    /// Connections of subscribers to be disconnected.
    too_slow: Vec<u64>,
    /// Session and serial number of the replays that the present SUBSCRIBE has started.
    replays_begun: Vec<(u64, u64)>,
    /// Remainder of [`REPLAY_STEPS`] in this turn.
    replay_steps: usize,
    timers: BTreeSet<(Instant, Due)>,
    logins: Logins,
    /// Passwords to be verified.
    works: VecDeque<Work>,
    housekeeping_at: Instant,
    /// When the time that brokers have run on the store is to be noted.
    run_at: Instant,
    /// Weight of all queued messages in memory.
    resident: usize,
    /// Weight of the messages of QoS 1 and 2 that only memory has, and of their places in queues.
    transient: usize,
    /// The share of each session in the limit on them, and when it was computed.
    share: Option<(Instant, usize)>,
    /// Output bytes of QoS 0 queued for all connections.
    unsent: usize,
    /// Bytes of output queued for a connection beyond which it gets no more from its queue.
    high_water: usize,
    /// Weight of what is parked in all sessions.
    parked: usize,
    now: Instant,
    counters: Counters,
}

impl Broker {
    /// Creates a broker with the sessions and messages that were `found`.
    pub fn new(settings: Settings, found: Found, source: Option<Box<dyn Source>>, now: Instant) -> Self {
        let mut broker = Self {
            source,
            damage: found.damage,
            connections: BTreeMap::new(),
            next_connection: 1,
            sessions: BTreeMap::new(),
            clients: HashMap::default(),
            next_session: found.next_session.max(1),
            routes: Routes::default(),
            retained: Retained::default(),
            log: found.log,
            next_sequence: found.next_sequence.max(1),
            needed: HashMap::default(),
            batch: Vec::new(),
            batch_bytes: 0,
            commits: PendingWrites::new(settings.usage.clone(), settings.stored, found.bytes),
            wakes: VecDeque::new(),
            due: BTreeSet::new(),
            next_due: 0,
            searching: BTreeSet::new(),
            stepping: VecDeque::new(),
            shared_steps: SHARED_STEPS,
            too_slow: Vec::new(),
            replays_begun: Vec::new(),
            replay_steps: 0,
            timers: BTreeSet::new(),
            logins: Logins::default(),
            works: VecDeque::new(),
            housekeeping_at: now + HOUSEKEEPING,
            run_at: settings.clock.note_at(now),
            resident: 0,
            transient: 0,
            share: None,
            unsent: 0,
            high_water: deliver::OUTPUT_HIGH_WATER,
            parked: 0,
            now,
            counters: Counters::new(now),
            settings,
        };
        let moment = broker.moment();
        for entry in &found.retained {
            let Some(message) = Message::from_entry(entry, moment) else {
                let text =
                    || format!("a retained message: {}", unreadable(entry.sequence, "it is not a message"));
                broker.damage.get_or_insert_with(text);
                continue;
            };
            broker.needed.insert(entry.sequence, 1);
            broker.retained.set(message, Some(entry.sequence));
        }
        for session in found.sessions {
            broker.restore(session);
        }
        if broker.settings.permissions.is_some() {
            // The rules may have been others when their queues were filled.
            broker.sessions.values_mut().for_each(Session::uncheck);
        }
        broker.pump();
        broker
    }

    /// How long brokers have run on the store, in milliseconds: messages and sessions end by it.
    fn run_ms(&self) -> u64 {
        self.settings.clock.run_ms(self.now)
    }

    fn moment(&self) -> Moment {
        Moment { wall_ms: self.settings.clock.wall_ms(self.now), run_ms: self.run_ms() }
    }

    /// Notes how long brokers have run on the store, if something in it may end.
    fn note_run(&mut self) {
        self.run_at = self.settings.clock.note_at(self.now);
        let ends = !self.needed.is_empty() || self.sessions.values().any(|session| session.durable);
        if self.settings.stored && ends && self.commits.failure().is_none() && !self.commits.is_stalled() {
            self.close_batch();
            self.commits.write(StoreOp::Run(self.run_ms()));
        }
    }

    /// Adds a change of the store to the batch.
    fn write(&mut self, op: Op) {
        if self.settings.stored {
            if self.batch.is_empty() {
                self.commits.open();
            }
            self.batch_bytes += op.size();
            self.batch.push(op);
        }
    }

    /// Issues the batch as one change.
    fn close_batch(&mut self) {
        if !self.batch.is_empty() {
            self.batch_bytes = 0;
            self.commits.close(StoreOp::Mqtt(std::mem::take(&mut self.batch)));
        }
    }

    /// Runs the action once every change so far is written, after all actions that wait already.
    fn when_written(&mut self, action: Action) {
        if let Some(action) = self.commits.when_written(action) {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Deliver(items) => self.enqueue(items),
            Action::Answer { connection, packet, behind } => self.answer_in_turn(connection, packet, behind),
            Action::Send { session, connection, packet_id } => {
                self.send_flight(session, connection, packet_id)
            }
            Action::Replay { session, serial } => self.begin_replay(session, serial),
            Action::Open { connection } => self.let_out(connection),
            Action::Release { session, connection, packet_id } => {
                let connected = self.sessions.get(&session).is_some_and(|s| s.connection == Some(connection));
                if connected && self.commits.failure().is_none() {
                    self.send(connection, &mut Packet::PubRel(Ack::new(packet_id)));
                }
            }
        }
    }

    /// Sends an acknowledgement, unless a subscriber is far behind: then the publisher's window
    /// fills up and the publisher waits, but nothing else on its connection does.
    fn answer_in_turn(&mut self, id: u64, packet: Packet, behind: Option<u64>) {
        let max_bytes = self.settings.limits.max_queue_bytes;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(session) = behind.and_then(|number| self.sessions.get_mut(&number))
            && session.is_overfull(max_bytes)
        {
            if session.throttled.is_empty() && self.settings.limits.slow_subscriber != SlowSubscriber::Wait {
                let until = self.now + GRACE;
                session.throttling_until = Some(until);
                session.progress.1 = session.progress.0;
                self.timers.extend(behind.map(|number| (until, Due::Throttle(number))));
            }
            session.throttled.insert(id);
            connection.held.push_back(packet);
        } else if !connection.held.is_empty() && matches!(packet, Packet::PubAck(_) | Packet::PubRec(_)) {
            // Acknowledgements keep their order.
            connection.held.push_back(packet);
        } else {
            self.answer(id, packet);
        }
    }

    /// Sends the acknowledgements of publishers that waited for a session.
    fn release_throttled(&mut self, throttled: BTreeSet<u64>) {
        for id in throttled {
            let held = self.connections.get_mut(&id).map(|connection| std::mem::take(&mut connection.held));
            held.into_iter().flatten().for_each(|packet| self.answer(id, packet));
        }
    }

    /// Stops waiting for a subscriber that did not catch up in time.
    fn give_up_waiting(&mut self, at: Instant, due: Due) {
        match due {
            Due::Throttle(number) => {
                let session = self.sessions.get_mut(&number).filter(|s| s.throttling_until == Some(at));
                let Some(session) = session else { return };
                let (now, before) = session.progress;
                if now - before >= KEEPS_UP {
                    let until = self.now + GRACE;
                    session.progress.1 = now;
                    session.throttling_until = Some(until);
                    self.timers.insert((until, due));
                    return;
                }
                session.throttling_until = None;
                session.stalled = true;
                let throttled = std::mem::take(&mut session.throttled);
                self.release_throttled(throttled);
            }
            Due::Pace(id) => {
                let connection = self.connections.get_mut(&id).filter(|c| c.pacing_until == Some(at));
                let Some(connection) = connection else { return };
                connection.pacing_until = None;
                connection.stalled = true;
                let pacing = std::mem::take(&mut connection.pacing);
                self.resume_reading(pacing);
            }
            Due::Will(_) | Due::End(_) | Due::Expire(_) | Due::Refuse(_) | Due::Logins => {}
        }
    }

    /// Stops waiting for sessions and connections that made no progress since the last call.
    fn release_stalled(&mut self) {
        if self.settings.limits.slow_subscriber != SlowSubscriber::Wait {
            return;
        }
        let mut released = Vec::new();
        for session in self.sessions.values_mut().filter(|session| !session.throttled.is_empty()) {
            let (now, before) = session.progress;
            session.progress.1 = now;
            if now == before {
                session.stalled = true;
                released.push(std::mem::take(&mut session.throttled));
            }
        }
        released.into_iter().for_each(|throttled| self.release_throttled(throttled));
        let mut paced = Vec::new();
        for connection in self.connections.values_mut().filter(|connection| !connection.pacing.is_empty()) {
            let (now, before) = connection.progress;
            connection.progress.1 = now;
            if now == before {
                connection.stalled = true;
                paced.push(std::mem::take(&mut connection.pacing));
            }
        }
        paced.into_iter().for_each(|pacing| self.resume_reading(pacing));
    }

    /// Resumes reading from publishers that waited for a subscriber.
    fn resume_reading(&mut self, pacing: BTreeSet<u64>) {
        for id in pacing {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.paced_by = None;
                connection.heard_at = self.now;
                self.wakes.push_back(id);
            }
        }
    }

    /// Sends an acknowledgement, or a refusal if the store has failed meanwhile.
    fn answer(&mut self, id: u64, mut packet: Packet) {
        if let Some(error) = self.commits.failure() {
            let why = error.message().to_owned();
            let v5 = self.connections.get(&id).is_some_and(|connection| connection.version == Version::V5);
            match &mut packet {
                Packet::PubAck(ack) | Packet::PubRec(ack) if v5 => {
                    ack.reason = Reason::Unspecified;
                    ack.properties = Properties::new().with(Property::ReasonString(why.into()));
                }
                Packet::SubAck(ack) => ack.reasons.fill(Reason::Unspecified),
                Packet::UnsubAck(ack) if v5 => ack.reasons.fill(Reason::Unspecified),
                // Without a reason code for failure, close the connection.
                _ => return self.end_connection(id, Reason::Unspecified, &why),
            }
        }
        let done = match &packet {
            Packet::PubAck(_) | Packet::PubComp(_) => true,
            Packet::PubRec(ack) => ack.reason.is_error(),
            _ => false,
        };
        if let Some(connection) = self.connections.get_mut(&id).filter(|_| done) {
            connection.unanswered = connection.unanswered.saturating_sub(1);
        }
        if let Packet::PubRec(ack) = &packet
            && ack.reason.is_error()
            && let Some(session) = self.session_of(id)
            && let Some(known) = self.sessions.get_mut(&session)
        {
            known.received.remove(&ack.packet_id);
        }
        self.send(id, &mut packet);
    }

    /// Sends a packet immediately. An answer that exceeds the client's Maximum Packet Size must not
    /// be sent (3.1.2.11.4), and its client would wait for it, so the connection ends instead.
    fn send(&mut self, id: u64, packet: &mut Packet) -> bool {
        let Some(connection) =
            self.connections.get_mut(&id).filter(|connection| connection.state != State::Ended)
        else {
            return false;
        };
        if connection.transmit.is_empty() {
            self.wakes.push_back(id);
        }
        if connection.send(packet) {
            return true;
        }
        if !matches!(packet, Packet::Publish(_)) {
            let text = connection.too_large(packet);
            self.end_connection(id, Reason::PacketTooLarge, &text);
        }
        false
    }

    fn session_of(&self, connection: u64) -> Option<u64> {
        self.connections.get(&connection)?.session()
    }

    /// The reason why no message can be accepted, if there is one.
    fn refusal(&self) -> Option<(Reason, String)> {
        if let Some(error) = self.commits.failure() {
            let text = format!("{}: restart the broker", error.message());
            return Some((Reason::Unspecified, text));
        }
        let max_store = self.settings.max_store;
        let full = self.used_bytes() >= self.commits.limit(max_store);
        full.then(|| (Reason::QuotaExceeded, self.commits.reason(max_store)))
    }

    /// Bytes of messages in memory.
    fn own_bytes(&self) -> u64 {
        (self.resident + self.retained.bytes()) as u64
    }

    /// Notes that a queue or slot needs the stored message.
    fn need(&mut self, sequence: u64) {
        *self.needed.entry(sequence).or_default() += 1;
    }

    /// Notes that a queue or slot no longer needs the stored message, and removes it after the last
    /// one.
    fn release(&mut self, sequence: u64) {
        let Some(count) = self.needed.get_mut(&sequence) else { return };
        *count -= 1;
        if *count == 0 {
            self.needed.remove(&sequence);
            let log = self.log;
            self.write(Op::Remove(log, sequence));
        }
    }

    /// Charges a connection for what its last packet took of routing, in addition to the `own`
    /// steps of this turn. Returns whether it may go on; if not, it waits for its next turn.
    fn charge(&mut self, id: u64, own: &mut usize) -> bool {
        let spent = self.routes.take_spent();
        let free = OWN_STEPS.saturating_sub(*own);
        *own += spent;
        let beyond = spent.saturating_sub(free);
        self.shared_steps = self.shared_steps.saturating_sub(beyond);
        if beyond == 0 || self.shared_steps > 0 {
            return true;
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.stepping = true;
            self.stepping.push_back(id);
        }
        false
    }

    /// Lets the connection go on that has waited longest for steps of routing.
    fn resume_stepping(&mut self) {
        self.shared_steps = SHARED_STEPS;
        while let Some(id) = self.stepping.pop_front() {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.stepping = false;
                // What it sent meanwhile has not been read.
                connection.heard_at = self.now;
                self.wakes.push_back(id);
                break;
            }
        }
    }

    /// Handles the complete packets in `input`, unless they take so many steps of routing that
    /// others have to have a turn first.
    fn read(&mut self, id: u64, input: &mut BytesMut) -> std::result::Result<(), Violation> {
        let mut own = 0;
        // What others took: wills, messages that were handed over.
        self.routes.take_spent();
        loop {
            let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
            if connection.stepping {
                return Ok(());
            }
            let limit = self.settings.limits.max_packet_size as usize;
            let limit = match connection.state {
                State::Ready { .. } => limit,
                State::Start => limit.min(FIRST_PACKET),
                // The rest is read once the password is verified.
                State::LoggingIn => return Ok(()),
                State::Ended => {
                    input.clear();
                    return Ok(());
                }
            };
            let before = input.len();
            let Some(mut frame) = frame::Decoder::new(limit).next(input)? else { return Ok(()) };
            connection.heard_at = self.now;
            self.counters.bytes_in += (before - input.len()) as u64;
            // A QoS 0 message that is not retained is gone when this returns. Every other packet
            // may stay, and must not keep the whole read buffer alive.
            if frame.first & 0b1111_0111 != 0b0011_0000 {
                message::compact(&mut frame.body);
            }
            let version = connection.version;
            let packet = match Packet::decode(&frame, version, Sender::Client) {
                Ok(packet) => packet,
                Err(violation) => {
                    if connection.state == State::Start {
                        self.refuse_unread(id, &frame, &violation);
                    }
                    return Err(violation);
                }
            };
            self.handle_packet(id, packet)?;
            if self.batch_bytes > BATCH {
                self.close_batch();
            }
            if !self.charge(id, &mut own) {
                return Ok(());
            }
        }
    }

    fn handle_packet(&mut self, id: u64, packet: Packet) -> std::result::Result<(), Violation> {
        let Some(connection) = self.connections.get(&id) else { return Ok(()) };
        let State::Ready { session } = connection.state else {
            return match packet {
                Packet::Connect(connect) => self.handle_connect(id, connect),
                other => Err(Violation::protocol(format!("{:?} before CONNECT", other.kind()))),
            };
        };
        match packet {
            Packet::Publish(publish) => self.handle_publish(id, session, publish),
            Packet::PubAck(ack) => self.handle_puback(session, &ack),
            Packet::PubRec(ack) => self.handle_pubrec(id, session, &ack),
            Packet::PubRel(ack) => {
                self.handle_pubrel(id, session, &ack);
                Ok(())
            }
            Packet::PubComp(ack) => self.handle_pubcomp(session, &ack),
            Packet::Subscribe(subscribe) => self.handle_subscribe(id, session, subscribe),
            Packet::Unsubscribe(unsubscribe) => self.handle_unsubscribe(id, session, &unsubscribe),
            Packet::PingReq => {
                self.send(id, &mut Packet::PingResp);
                Ok(())
            }
            Packet::Disconnect(disconnect) => self.handle_disconnect(id, session, &disconnect),
            Packet::Connect(_) => Err(Violation::protocol("a second CONNECT")),
            Packet::Auth(_) => Err(Violation::protocol("AUTH without an authentication method")),
            other => Err(Violation::protocol(format!("a client sent {:?}", other.kind()))),
        }
    }

    /// Answers a packet that could not be decoded, if it looks like a CONNECT.
    fn refuse_unread(&mut self, id: u64, frame: &frame::Frame, violation: &Violation) {
        // The protocol level follows the protocol name and its length.
        let named = |name: &[u8]| (frame.first == 0x10).then(|| frame.body.strip_prefix(name)).flatten();
        let rest = named(b"\0\x04MQTT").or_else(|| named(b"\0\x06MQIsdp"));
        let level = rest.and_then(|rest| rest.first().copied());
        let unknown = violation.reason == Reason::UnsupportedProtocolVersion;
        let version = match level {
            Some(level) if level == 5 || unknown && level > 5 => Version::V5,
            Some(_) if unknown => Version::V3_1_1,
            _ => return,
        };
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.version = version;
            if violation.reason.allowed_in(forebay_mqtt::packet::Kind::ConnAck) {
                self.wakes.push_back(id);
                connection.send(&mut Packet::ConnAck(ConnAck::new(violation.reason)));
            }
        }
    }

    /// Ends a connection after a protocol violation or a timeout.
    fn end_connection(&mut self, id: u64, reason: Reason, text: &str) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let session = connection.session();
        connection.end(reason, text);
        let pacing = std::mem::take(&mut connection.pacing);
        self.resume_reading(pacing);
        self.wakes.push_back(id);
        if let Some(session) = session {
            self.leave(session, id, true);
        }
    }

    fn housekeeping(&mut self) {
        for topic in self.retained.expired(self.run_ms()) {
            self.unretain(&topic);
        }
        if self.run_at <= self.now {
            self.note_run();
        }
        self.release_stalled();
        self.publish_status();
    }
}
