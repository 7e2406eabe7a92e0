//! CONNECT and DISCONNECT: admission, taking over a session, and the end of a connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;

use super::connection::{Connection, State};
use super::message::{NEVER, Queued};
use super::replay::{REPLAYING, Replay};
use super::routes::Subscription;
use super::session::{Flight, Owner, Session, Will};
use super::{Action, Broker, Due, Passwords, RESERVED, routes};
use crate::permissions::{Access, Client};
use crate::protocol::Work;
use crate::store::mqtt::{self as store, Op};
use crate::tree;
use forebay_base::error::{Error, ErrorKind};
use forebay_base::transmit::Transmit;
use forebay_mqtt::packet::{ConnAck, Connect, Disconnect, PacketId, Publish, SubscribeOptions};
use forebay_mqtt::topic::Filter;
use forebay_mqtt::{Packet, Property, QoS, Reason, Sender, Version, Violation, frame};

/// A session expiry interval that never ends.
const FOR_EVER: u32 = u32::MAX;
/// Times in rows of sessions beyond this one are of stores in which sessions ended by the calendar:
/// milliseconds since 1970. Smaller ones count the time that brokers have run on the store.
const CALENDAR: u64 = 1_000_000_000_000;
/// Refusal after a failure of the store.
const STORE_FAILED: &str = "the store failed: restart the broker";
/// Refusal while the store cannot write, as on a full disk.
const STORE_STALLED: &str = "the store cannot write now: try again later";
/// Refusal of a password or token.
const BAD_PASSWORD: &str = "bad user name or password";

/// The credentials of a client.
enum Credentials {
    /// Good, with the user if the broker asks for credentials.
    Good(Option<Owner>),
    Bad(Reason, &'static str),
    /// A password that another thread has to verify.
    Unverified,
}

fn user_of(connect: &Connect) -> &str {
    connect.user_name.as_deref().unwrap_or_default()
}

fn password_of(connect: &Connect) -> Bytes {
    connect.password.clone().unwrap_or_default()
}

impl Broker {
    pub(super) fn handle_connect(&mut self, id: u64, connect: Box<Connect>) -> Result<(), Violation> {
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        connection.version = connect.version;
        // Also of an answer that refuses.
        connection.limit_packets(&connect.properties);
        let address = connection.address;
        if connect.properties.authentication_method().is_some() {
            let text = "extended authentication is not supported";
            return self.refuse(id, Reason::BadAuthenticationMethod, text);
        }
        match self.authenticate(id, &connect) {
            Credentials::Good(user) => self.open(id, *connect, user),
            Credentials::Bad(reason, text) => self.refuse(id, reason, text),
            Credentials::Unverified => {
                if self.logins.add(self.now, id, connect, address).is_err() {
                    return self.refuse(id, Reason::ServerBusy, "too many logins wait: try again later");
                }
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.state = State::LoggingIn;
                }
                Ok(())
            }
        }
    }

    /// Hands out the logins whose turn has come.
    pub(super) fn start_logins(&mut self) {
        while let Some(login) = self.logins.next(self.now) {
            let id = login.connection;
            if self.connections.get(&id).is_none_or(|connection| connection.state != State::LoggingIn) {
                continue;
            }
            let Some(passwords) = &self.settings.passwords else { continue };
            let (user, password) = (user_of(&login.connect), password_of(&login.connect));
            if passwords.recognise(user, &password) {
                self.log_in(id, *login.connect);
            } else {
                let job = Box::new(passwords.verification(user, password));
                self.works.push_back(Work { id: self.logins.verify(login), job });
            }
        }
        let until = self.logins.poll_timeout(self.now);
        self.timers.extend(until.map(|at| (at, Due::Logins)));
    }

    /// Handles the result of a verification.
    pub(super) fn handle_verified(&mut self, number: u64, good: bool) {
        let Some(login) = self.logins.verified(self.now, number, good) else { return };
        let id = login.connection;
        if good && let Some(passwords) = &mut self.settings.passwords {
            passwords.remember(user_of(&login.connect), &password_of(&login.connect));
        }
        if self.connections.get(&id).is_none_or(|connection| connection.state != State::LoggingIn) {
            return;
        }
        if good {
            self.log_in(id, *login.connect);
        } else {
            self.timers.insert((login.refused_at(self.now), Due::Refuse(id)));
        }
    }

    fn log_in(&mut self, id: u64, connect: Connect) {
        let user: ByteString = user_of(&connect).into();
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.password_of = Some(user.clone());
            connection.heard_at = self.now;
        }
        // What was pipelined behind CONNECT is read now.
        self.wakes.push_back(id);
        if let Err(violation) = self.open(id, connect, Some(Owner { name: user, by_token: false })) {
            self.end_connection(id, violation.reason, &violation.message);
        }
    }

    /// Replaces the users. Connections that were let in by a password that is not valid any more
    /// end.
    pub(super) fn change_users(&mut self, file: &str) -> forebay_base::error::Result<usize> {
        let Some(passwords) = &mut self.settings.passwords else {
            let text = "the broker was started without mqtt_password_file";
            return Err(Error::new(ErrorKind::NotAllowed, text));
        };
        let old = passwords.replace(Passwords::parse(file)?);
        let count = passwords.len();
        let gone = |connection: &Connection| {
            connection.password_of.as_ref().is_some_and(|user| !passwords.agree(&old, user))
        };
        let ended: Vec<u64> =
            self.connections.iter().filter(|(_, connection)| gone(connection)).map(|(id, _)| *id).collect();
        for id in ended {
            self.end_connection(id, Reason::NotAuthorized, "the password is not valid any more");
        }
        self.logins.restart();
        Ok(count)
    }

    /// Opens the session of a client whose credentials are good. `user` is given if the broker asks
    /// for credentials.
    fn open(&mut self, id: u64, mut connect: Connect, user: Option<Owner>) -> Result<(), Violation> {
        let version = connect.version;
        let mut answer = ConnAck::new(Reason::Success);
        let nameless = connect.client_id.is_empty();
        if nameless && (version == Version::V3_1 || !connect.clean_start && version != Version::V5) {
            let text = "a persistent session needs a client identifier";
            return self.refuse(id, Reason::ClientIdentifierNotValid, text);
        }
        if nameless {
            connect.client_id = self.new_client_id();
            answer.properties.push(Property::AssignedClientIdentifier(connect.client_id.clone()));
        }
        if let Some((reason, text)) = self.reason_to_refuse(&connect, user.as_ref()) {
            self.counters.denied += u64::from(reason == Reason::NotAuthorized);
            return self.refuse(id, reason, text);
        }
        let wanted = wanted_expiry(&connect);
        let limits = &self.settings.limits;
        let expiry = wanted.min(limits.max_session_expiry);
        let max_sessions = limits.max_sessions;
        if version == Version::V5 {
            self.announce(&mut answer, wanted, expiry);
        }
        // Checked before the present connection of the session ends.
        let whole = Packet::ConnAck(answer.clone());
        if let Some(connection) = self.connections.get(&id).filter(|connection| connection.exceeds(&whole)) {
            let text = connection.too_large(&whole);
            return self.refuse(id, Reason::PacketTooLarge, &text);
        }

        let mut known = self.clients.get(&connect.client_id).copied();
        let stored = known.and_then(|session| self.sessions.get(&session)).is_some_and(|s| s.durable);
        if self.commits.is_stalled() && (self.settings.stored && expiry > 0 || stored && !connect.clean_start)
        {
            // Its CONNACK would wait. Clients that give up and try again would pile up rows that
            // none is charged for.
            return self.refuse(id, Reason::ServerBusy, STORE_STALLED);
        }
        if let Some(session) = known {
            let may_come = self.other_owner_may_come(session, user.as_ref());
            if may_come == Some(true) {
                let text = "the client identifier belongs to the session of another user";
                return self.refuse(id, Reason::ClientIdentifierNotValid, text);
            }
            // Nor is a session continued whose user does not exist any more.
            let clean_start = connect.clean_start || may_come == Some(false);
            self.take_over(session, clean_start);
            if clean_start {
                self.end_session(session);
            }
            known = self.clients.get(&connect.client_id).copied();
        } else if self.sessions.len() >= max_sessions {
            return self.refuse(id, Reason::QuotaExceeded, "session limit reached (mqtt_max_sessions)");
        }
        let number = known.unwrap_or_else(|| self.new_session(connect.client_id.clone(), expiry));
        if let Some(user) = user {
            self.set_owner(number, user, known.is_some());
        }
        self.attach(id, number, &connect, expiry);

        answer.session_present = known.is_some();
        self.send(id, &mut Packet::ConnAck(answer));
        self.due.insert(number);
        if let Some(session) = self.sessions.get_mut(&number).filter(|session| session.durable) {
            session.unknown = known.is_none();
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.opened = false;
            }
            self.when_written(Action::Open { connection: id });
        }
        Ok(())
    }

    /// Sets the user that a session belongs to. Other rules may hold for another user: the queue is
    /// checked again, and the routes that may lead to a `known` session are found again.
    fn set_owner(&mut self, number: u64, user: Owner, known: bool) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let is_other = session.owner.as_ref().is_none_or(|owner| owner.name != user.name);
        if self.settings.permissions.is_some() && is_other {
            session.uncheck();
            if known {
                self.routes.forget();
            }
        }
        session.owner = Some(user);
    }

    /// Lets the output of a connection leave. If its session could not be stored, it is refused
    /// instead.
    pub(super) fn let_out(&mut self, id: u64) {
        let connection = self.connections.get_mut(&id).filter(|connection| connection.state != State::Ended);
        let Some(connection) = connection else { return };
        connection.opened = true;
        connection.heard_at = self.now;
        self.wakes.push_back(id);
        let Some(session) = connection.session() else { return };
        self.due.insert(session);
        if self.commits.failure().is_none() {
            if let Some(session) = self.sessions.get_mut(&session) {
                session.unknown = false;
            }
            return;
        }
        connection.transmit = Transmit::default();
        self.unsent -= std::mem::take(&mut connection.unsent);
        connection.state = State::Start;
        self.leave(session, id, true);
        let _ = self.refuse(id, Reason::ServerUnavailable, STORE_FAILED);
    }

    /// The reason why a client is refused, if there is one.
    fn reason_to_refuse(&self, connect: &Connect, user: Option<&Owner>) -> Option<(Reason, &'static str)> {
        let no = |reason, text| Some((reason, text));
        if let Some(will) = &connect.will {
            if !tree::fits(&will.topic) {
                return no(Reason::TopicNameInvalid, "the will's topic has more than 200 levels");
            }
            if will.topic.starts_with("$SYS") {
                return no(Reason::NotAuthorized, RESERVED);
            }
            let client = Client { user: user.and_then(Owner::user), id: Some(&connect.client_id) };
            if !self.settings.permit(client, Access::Write, &will.topic) {
                return no(Reason::NotAuthorized, "no permission to publish to the will's topic");
            }
        }
        if self.commits.failure().is_some() {
            return no(Reason::ServerUnavailable, STORE_FAILED);
        }
        None
    }

    fn authenticate(&mut self, id: u64, connect: &Connect) -> Credentials {
        let (passwords, tokens) = (&self.settings.passwords, &self.settings.tokens);
        let entry = self.connections.get(&id).map(|connection| &connection.entry);
        if let Some(user) = entry.and_then(|entry| entry.user.as_ref()) {
            return Credentials::Good(Some(Owner { name: (&**user).into(), by_token: true }));
        }
        let checks = passwords.is_some() || tokens.is_some();
        if !checks && !self.settings.certificates {
            return Credentials::Good(None);
        }
        let nameless = connect.user_name.is_none() && connect.password.is_none();
        if entry.is_some_and(|entry| entry.anonymous) && (nameless || !checks) {
            return Credentials::Good(Some(Owner::anonymous()));
        }
        let Some(password) = &connect.password else {
            return Credentials::Bad(Reason::NotAuthorized, "a password is required");
        };
        let Some(connection) = self.connections.get_mut(&id) else { return Credentials::Unverified };
        let wall_ms = self.settings.clock.wall_ms(self.now);
        // The reason is not sent: it would help an attacker.
        if let Some(claims) = tokens.as_ref().and_then(|tokens| tokens.verify(password, wall_ms).ok()) {
            connection.set_expiry(claims.expires_ms, self.settings.clock, self.now);
            return Credentials::Good(Some(Owner { name: claims.subject.into(), by_token: true }));
        }
        let user = user_of(connect);
        match passwords {
            None => Credentials::Bad(Reason::BadUserNameOrPassword, BAD_PASSWORD),
            Some(passwords) if passwords.recognise(user, password) => {
                connection.password_of = Some(user.into());
                Credentials::Good(Some(Owner { name: user.into(), by_token: false }))
            }
            Some(_) => Credentials::Unverified,
        }
    }

    /// Whether the owner of a session may connect. Of tokens and certificates it is not known who
    /// still gets them.
    fn may_have(&self, owner: &Owner) -> bool {
        owner.by_token && (self.settings.tokens.is_some() || self.settings.certificates)
            || self.settings.passwords.as_ref().is_some_and(|passwords| passwords.has(&owner.name))
    }

    /// Whether the owner of a session may connect, if that is another than `user`. `None` if it is
    /// the same, or if the session or the client has no user.
    fn other_owner_may_come(&self, session: u64, user: Option<&Owner>) -> Option<bool> {
        let owner = self.sessions.get(&session).and_then(|session| session.owner.as_ref());
        let foreign = user.zip(owner).filter(|(user, owner)| user.name != owner.name);
        foreign.map(|(_, owner)| self.may_have(owner))
    }

    pub(super) fn refuse(&mut self, id: u64, reason: Reason, text: &str) -> Result<(), Violation> {
        let mut answer = ConnAck::new(reason);
        answer.properties.push(Property::ReasonString(text.into()));
        // If the answer exceeds the client's Maximum Packet Size, the connection just closes.
        if let Some(connection) = self.connections.get_mut(&id).filter(|c| c.state != State::Ended) {
            connection.send(&mut Packet::ConnAck(answer));
        }
        self.counters.refused += 1;
        self.end_connection(id, reason, text);
        Ok(())
    }

    fn new_client_id(&mut self) -> ByteString {
        // The count makes it unique in this run, the seed makes it differ from those of other runs.
        self.counters.assigned += 1;
        format!("auto-{:016x}-{}", self.settings.seed, self.counters.assigned).into()
    }

    fn new_session(&mut self, client_id: ByteString, expiry: u32) -> u64 {
        let number = self.next_session;
        self.next_session += 1;
        self.clients.insert(client_id.clone(), number);
        self.sessions.insert(number, Session::new(client_id, expiry));
        number
    }

    fn attach(&mut self, id: u64, number: u64, connect: &Connect, expiry: u32) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        session.attach(id);
        if session.queue.is_empty() && session.pending == 0 {
            // No older message waits, so the replays that are left may give what was retained
            // meanwhile.
            session.extend_replays(self.retained.len() as u64, self.retained.stamp());
        }
        session.expiry = expiry;
        session.gets_one_copy = connect.version != Version::V5;
        session.durable |= self.settings.stored && expiry > 0;
        session.will = connect.will.as_ref().map(|will| Will {
            publish: Publish {
                qos: will.qos,
                retain: will.retain,
                topic: will.topic.clone(),
                properties: will
                    .properties
                    .iter()
                    .filter(|property| !matches!(property, Property::WillDelayInterval(_)))
                    .cloned()
                    .collect(),
                payload: will.payload.clone(),
                ..Publish::default()
            },
            delay: will.properties.will_delay_interval().copied().unwrap_or(0),
        });
        let max_inflight = self.settings.limits.max_inflight;
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.state = State::Ready { session: number };
            connection.agree(connect.keep_alive, &connect.properties, max_inflight);
        }
        self.write_session(number, None);
    }

    /// The properties of CONNACK for MQTT 5.
    fn announce(&self, answer: &mut ConnAck, wanted: u32, expiry: u32) {
        let limits = &self.settings.limits;
        let to = &mut answer.properties;
        if expiry != wanted {
            to.push(Property::SessionExpiryInterval(expiry));
        }
        to.push(Property::ReceiveMaximum(limits.receive_maximum));
        to.push(Property::MaximumPacketSize(limits.max_packet_size));
        if limits.topic_alias_maximum > 0 {
            to.push(Property::TopicAliasMaximum(limits.topic_alias_maximum));
        }
    }

    /// Ends the present connection of a session that another one takes over.
    fn take_over(&mut self, number: u64, clean_start: bool) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        if let Some(connection) = session.connection {
            // A delayed will is not published if the session continues.
            if !clean_start && session.expiry > 0 && session.will.as_ref().is_some_and(|will| will.delay > 0)
            {
                session.will = None;
            }
            self.end_connection(connection, Reason::SessionTakenOver, "");
        }
        if !clean_start && let Some(session) = self.sessions.get_mut(&number) {
            session.will = None;
        }
    }

    pub(super) fn handle_disconnect(
        &mut self,
        id: u64,
        number: u64,
        disconnect: &Disconnect,
    ) -> Result<(), Violation> {
        if let Some(expiry) = disconnect.properties.session_expiry_interval()
            && let Some(session) = self.sessions.get_mut(&number)
        {
            if session.expiry == 0 && *expiry > 0 {
                return Err(Violation::protocol("DISCONNECT cannot change a session expiry interval of 0"));
            }
            session.expiry = (*expiry).min(self.settings.limits.max_session_expiry);
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.leave(disconnect);
            self.wakes.push_back(id);
        }
        self.leave(number, id, disconnect.reason != Reason::Success);
        Ok(())
    }

    /// Handles the end of a session's connection.
    pub(super) fn leave(&mut self, number: u64, connection: u64, will: bool) {
        let Some(session) = self.sessions.get_mut(&number).filter(|s| s.connection == Some(connection))
        else {
            return;
        };
        session.connection = None;
        session.stalled = false;
        session.throttling_until = None;
        let throttled = std::mem::take(&mut session.throttled);
        self.release_throttled(throttled);
        let Some(session) = self.sessions.get_mut(&number) else { return };
        // Reported as present at the next CONNECT, an unknown session would let the client continue
        // one that it has lost.
        let (unknown, expiry) = (session.unknown, session.expiry);
        if !will || unknown {
            session.will = None;
        }
        // QoS 0 messages are not kept.
        let gone = std::mem::take(&mut session.parked);
        if session.queue.is_empty() {
            session.next_expiry = NEVER;
        }
        self.parked -= std::mem::take(&mut session.parked_bytes);
        gone.into_iter().for_each(|item| self.finish(number, &item));
        if expiry == 0 || unknown {
            return self.end_session(number);
        }
        self.expire_later(number);
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let in_seconds = |seconds: u32| self.now + Duration::from_secs(seconds.into());
        if expiry != FOR_EVER {
            session.ends_at = Some(in_seconds(expiry));
            self.timers.insert((in_seconds(expiry), Due::End(number)));
        }
        match session.will.as_ref().map(|will| will.delay.min(expiry)) {
            Some(0) => self.publish_will(number),
            Some(delay) => {
                session.will_at = Some(in_seconds(delay));
                self.timers.insert((in_seconds(delay), Due::Will(number)));
            }
            None => {}
        }
        let ends_ms = self.run_ms().saturating_add(u64::from(expiry) * 1000);
        self.write_session(number, Some(ends_ms));
    }

    /// Handles a timer that is due. The session may have changed since it was set.
    pub(super) fn handle_timer(&mut self, at: Instant, due: Due) {
        match due {
            Due::Will(number) if self.sessions.get(&number).is_some_and(|s| s.will_at == Some(at)) => {
                self.publish_will(number);
            }
            Due::End(number) if self.sessions.get(&number).is_some_and(|s| s.ends_at == Some(at)) => {
                self.end_session(number);
            }
            Due::Expire(number) if self.sessions.get(&number).is_some_and(|s| s.expire_at == Some(at)) => {
                self.drop_expired(number);
                self.expire_later(number);
            }
            Due::Will(_) | Due::End(_) | Due::Expire(_) => {}
            Due::Refuse(id) if self.connections.get(&id).is_some_and(|c| c.state == State::LoggingIn) => {
                let _ = self.refuse(id, Reason::BadUserNameOrPassword, BAD_PASSWORD);
            }
            // The turn of a login has come.
            Due::Refuse(_) | Due::Logins => {}
            Due::Pace(_) | Due::Throttle(_) => self.give_up_waiting(at, due),
        }
    }

    pub(super) fn publish_will(&mut self, number: u64) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        session.will_at = None;
        let Some(will) = session.will.take() else { return };
        let ends_at = session.ends_at;
        let connected = session.connection.is_some();
        if !connected {
            let ends_ms = ends_at.map_or(u64::MAX >> 1, |at| {
                self.run_ms() + at.saturating_duration_since(self.now).as_millis() as u64
            });
            self.write_session(number, Some(ends_ms));
        }
        if !self.may_publish_will(number, &will.publish.topic) {
            // The rules have changed since CONNECT.
            self.counters.denied += 1;
            self.counters.dropped += 1;
            return;
        }
        // There is no publisher to be told that the queue is full.
        if self.refusal().is_none() || will.publish.qos == QoS::AtMostOnce && !will.publish.retain {
            let route = self.route(&will.publish.topic);
            self.distribute(will.publish, &route, Some(number));
        } else {
            self.counters.dropped += 1;
        }
    }

    /// Deletes a session.
    pub(super) fn end_session(&mut self, number: u64) {
        self.publish_will(number);
        let Some(mut session) = self.sessions.remove(&number) else { return };
        self.clients.remove(&session.client_id);
        for filter in session.subscriptions.keys() {
            if let Ok(filter) = Filter::parse(filter.clone()) {
                self.routes.remove(number, &filter);
            }
        }
        let sent = session.flights.len();
        self.parked -= std::mem::take(&mut session.parked_bytes);
        for (index, item) in session.drain().into_iter().enumerate() {
            // A QoS 2 message that was sent is for this session only [MQTT-4.8.2-5].
            if index >= sent || item.qos == QoS::AtLeastOnce {
                self.hand_over(&item);
            }
            self.forget(&item);
        }
        if session.durable {
            self.write(Op::DropSession(number));
        }
    }

    /// The current row of the session.
    pub(super) fn write_session(&mut self, number: u64, ends_ms: Option<u64>) {
        let Some(session) = self.sessions.get(&number).filter(|session| session.durable) else { return };
        let will = session.will.as_ref().map(|will| {
            let mut publish = will.publish.clone();
            publish.packet_id = (publish.qos != QoS::AtMostOnce).then_some(PacketId::MIN);
            let mut body = Transmit::default();
            let _ = Packet::Publish(publish).encode(Version::V5, &mut body);
            body.take().freeze()
        });
        let row = store::SessionRow {
            id: number,
            client_id: session.name(),
            expiry: session.expiry,
            ends_ms: ends_ms.filter(|_| session.connection.is_none()).map(|ms| ms.min(i64::MAX as u64)),
            will,
            will_delay: session.will.as_ref().map_or(0, |will| will.delay),
            owner: session.owner.as_ref().map(Owner::to_stored),
        };
        self.write(Op::Session(row));
    }

    /// Restores a session of an earlier run.
    pub(super) fn restore(&mut self, found: store::StoredSession) {
        let store::StoredSession { row, subscriptions, queue, received } = found;
        let number = row.id;
        let mut session = Session::new(row.client_id.to_string().into(), row.expiry);
        session.durable = true;
        session.owner = row.owner.as_deref().map(Owner::from_stored);
        session.received = received.into_iter().filter_map(PacketId::new).collect();
        let unfinished = self.restore_subscriptions(number, &mut session, subscriptions);
        self.restore_queue(&mut session, queue);
        // What was published after the subscription comes from the queue, where a replay's own
        // messages have RETAIN.
        let first = session.queue.iter().find(|item| !item.retain).and_then(|item| item.sequence);
        let stamp = first.map_or(self.retained.stamp(), |sequence| sequence.saturating_sub(1));
        for (filter, subscription) in unfinished {
            let positions = session.reserve(self.retained.len() as u64);
            session.add_replay(Replay::restored(filter, &subscription, positions, stamp));
        }
        session.will = stored_will(&row);
        self.clients.insert(session.client_id.clone(), number);
        self.restore_timers(&mut session, &row);
        self.sessions.insert(number, session);
        let was_connected = row.ends_ms.is_none();
        if was_connected {
            self.write_session(number, Some(self.run_ms() + u64::from(row.expiry) * 1000));
        }
    }

    /// Restores the subscriptions of a session. Returns those whose replay of retained messages has
    /// not ended.
    fn restore_subscriptions(
        &mut self,
        number: u64,
        session: &mut Session,
        found: Vec<(Arc<str>, u8, Option<u32>)>,
    ) -> Vec<(ByteString, Subscription)> {
        let mut unfinished = Vec::new();
        for (filter, byte, id) in found {
            let (Ok(parsed), Ok(options)) = (
                Filter::parse(filter.to_string()),
                SubscribeOptions::from_byte(byte & !REPLAYING, Version::V5),
            ) else {
                continue;
            };
            let subscription = Subscription { options, id };
            self.routes.insert(number, &parsed, subscription);
            session.subscription_bytes += routes::weight(parsed.as_str());
            session.subscriptions.insert(parsed.text(), subscription);
            if byte & REPLAYING != 0 {
                unfinished.push((parsed.text(), subscription));
            }
        }
        unfinished
    }

    /// Restores the queue of a session and its messages in flight.
    fn restore_queue(&mut self, session: &mut Session, found: Vec<store::QueueRow>) {
        for row in found {
            session.set_position(row.position);
            self.need(row.sequence);
            let item = Queued {
                position: row.position,
                sequence: Some(row.sequence),
                qos: QoS::from_bits(row.flags & 3).unwrap_or_default(),
                retain: row.flags & 4 != 0,
                ids: row.ids.into(),
                message: None,
                expires_run_ms: None,
                weight: 0,
                groups: Box::default(),
            };
            match PacketId::new(row.packet_id) {
                Some(packet_id) => {
                    let released = row.released;
                    session.flights.push_back(Flight { packet_id, item, released, sent: true, change: 0 });
                }
                None => {
                    session.next_expiry = 0;
                    session.queue.push_back(item);
                }
            }
        }
    }

    /// Sets the timers for the end of a restored session and for its will.
    fn restore_timers(&mut self, session: &mut Session, row: &store::SessionRow) {
        let (now, expiry_ms) = (self.moment(), u64::from(row.expiry) * 1000);
        // Time since its connection ended.
        let age = match row.ends_ms.map(|ends_ms| ends_ms.saturating_sub(expiry_ms)) {
            // It was connected when the last run ended: its expiry interval starts now.
            None => 0,
            Some(left_at) if left_at > CALENDAR => now.wall_ms.saturating_sub(left_at),
            Some(left_at) => now.run_ms.saturating_sub(left_at),
        };
        let after = |ms: u64| self.now + Duration::from_millis(ms.saturating_sub(age));
        if row.expiry != FOR_EVER {
            let ends_at = after(expiry_ms);
            session.ends_at = Some(ends_at);
            self.timers.insert((ends_at, Due::End(row.id)));
        }
        if let Some(will) = &session.will {
            let at = after(u64::from(will.delay.min(row.expiry)) * 1000);
            session.will_at = Some(at);
            self.timers.insert((at, Due::Will(row.id)));
        }
    }
}

/// The session expiry interval that a client asks for.
fn wanted_expiry(connect: &Connect) -> u32 {
    match connect.version {
        Version::V5 => connect.properties.session_expiry_interval().copied().unwrap_or(0),
        _ if connect.clean_start => 0,
        _ => FOR_EVER,
    }
}

/// The will in a session's row.
fn stored_will(row: &store::SessionRow) -> Option<Will> {
    let mut body = row.will.as_deref().map(BytesMut::from)?;
    if let Ok(Some(frame)) = frame::Decoder::new(usize::MAX).next(&mut body)
        && let Ok(Packet::Publish(mut publish)) = Packet::decode(&frame, Version::V5, Sender::Client)
    {
        publish.packet_id = None;
        return Some(Will { publish, delay: row.will_delay });
    }
    None
}

/// A filter as the store keeps it.
pub(super) fn stored_name(filter: &Filter) -> Arc<str> {
    Arc::from(filter.as_str())
}
