//! From a session's queue through its window to the client, and the client's acknowledgements.

use std::time::Duration;

use super::connection::State;
use super::message::{Form, Message, NEVER, Queued};
use super::options::SlowSubscriber;
use super::session::Flight;
use super::{Action, Broker, Due, HOUSEKEEPING, REPLAY_STEPS, RESIDENT};
use crate::log::unreadable;
use crate::store::mqtt::Op;
use forebay_base::error::{Error, Result};
use forebay_mqtt::packet::{Ack, PacketId};
use forebay_mqtt::{Packet, QoS, Reason, Violation};

/// Output bytes queued for a connection beyond which its session stops sending.
pub(super) const OUTPUT_HIGH_WATER: usize = 256 << 10;
/// Limits on the messages, and on their bytes, that are read from the store at a time.
const READ_AHEAD: (usize, usize) = (256, 256 << 10);

impl Broker {
    /// Queues messages that are written.
    pub(super) fn enqueue(&mut self, items: Vec<(u64, Queued)>) {
        for (number, mut item) in items {
            let Some(session) = self.sessions.get_mut(&number) else {
                // Its session ended meanwhile.
                self.hand_over(&item);
                self.forget(&item);
                continue;
            };
            session.pending -= 1;
            let behind = session.connection.is_none() || session.queue.len() > usize::from(u8::MAX);
            if behind && self.resident > RESIDENT && item.sequence.is_some() && item.message.take().is_some()
            {
                self.resident -= item.weight;
            }
            session.next_expiry = session.next_expiry.min(item.expires_run_ms.unwrap_or(0));
            session.queue.push_back(item);
            self.due.insert(number);
            self.expire_later(number);
        }
    }

    /// Sets the timer that drops the expired messages of a session whose client is away: they would
    /// use up its queue and the store.
    pub(super) fn expire_later(&mut self, number: u64) {
        let run_ms = self.run_ms();
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let waits = session.connection.is_none() && ![0, NEVER].contains(&session.next_expiry);
        if !waits {
            return;
        }
        let left = Duration::from_millis(session.next_expiry.saturating_sub(run_ms));
        // Not for each message by itself if many expire one after the other.
        let at = self.now + left.max(HOUSEKEEPING);
        if session.expire_at.is_some_and(|set| set > self.now && set <= at) {
            return;
        }
        session.expire_at = Some(at);
        self.timers.insert((at, Due::Expire(number)));
    }

    /// Drops the messages in the queue of a session that have expired. Of those that were not read
    /// since the broker started, a part is read for it.
    pub(super) fn drop_expired(&mut self, number: u64) {
        let run_ms = self.run_ms();
        if self.sessions.get(&number).is_none_or(|session| session.next_expiry > run_ms) {
            return;
        }
        self.read_expiry(number);
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let (mut gone, mut next) = (Vec::new(), NEVER);
        session.queue.retain(|item| {
            let at = item.expires_run_ms.unwrap_or(0);
            let expired = item.expires_run_ms.is_some_and(|at| at <= run_ms);
            if expired {
                gone.push(item.clone());
            } else {
                next = next.min(at);
            }
            !expired
        });
        session.next_expiry = next;
        self.counters.dropped += gone.len() as u64;
        gone.iter().for_each(|item| self.finish(number, item));
    }

    /// Reads the expiry of queued messages that were restored, up to [`READ_AHEAD`], beginning with
    /// the first whose expiry is unknown.
    fn read_expiry(&mut self, number: u64) {
        let now = self.moment();
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let unread = |item: &Queued| item.expires_run_ms.is_none();
        let Some(at) = session.queue.iter().position(unread) else { return };
        let (Some(first), Some(source)) = (session.queue[at].sequence, &mut self.source) else { return };
        // What cannot be read stays: the session stops at it when its turn comes.
        let entries = source.read(self.log, first, READ_AHEAD.0, READ_AHEAD.1).unwrap_or_default();
        session.queue[at].expires_run_ms = Some(NEVER);
        let mut found = entries.iter().peekable();
        for item in session.queue.iter_mut().skip(at).take(READ_AHEAD.0) {
            let Some(wanted) = item.sequence else { continue };
            while found.next_if(|entry| entry.sequence < wanted).is_some() {}
            if found.peek().is_none() {
                break;
            }
            if let Some(entry) = found.next_if(|entry| entry.sequence == wanted) {
                let message = Message::from_entry(entry, now);
                item.expires_run_ms = message.and_then(|message| message.expires_run_ms).or(Some(NEVER));
            }
        }
    }

    /// Lets every session send that may.
    pub(super) fn pump(&mut self) {
        if !self.logins.is_empty() {
            self.start_logins();
        }
        while let Some(id) = self.too_slow.pop() {
            if self.session_of(id).is_some() {
                self.counters.evicted += 1;
                self.end_connection(
                    id,
                    Reason::QuotaExceeded,
                    "the subscriber is too slow for its publishers",
                );
            }
        }
        self.replay_steps = REPLAY_STEPS;
        while let Some(number) = self.due.range(self.next_due..).next().or(self.due.first()).copied() {
            self.due.remove(&number);
            let searchable = self.replay_steps > 0;
            while self.step(number) {}
            if searchable && self.replay_steps == 0 {
                // The next turn begins behind it, or its searches would delay those of all others.
                self.next_due = number + 1;
            }
        }
        if !self.settings.stored {
            self.commits.set_used(self.own_bytes());
        }
    }

    /// Sends one message of a session. Returns `false` if there is none, or no room for it.
    fn step(&mut self, number: u64) -> bool {
        let Some(session) = self.sessions.get_mut(&number) else { return false };
        let Some(id) = session.connection else { return false };
        // Nothing is delivered before CONNACK has left.
        let Some(connection) = self
            .connections
            .get_mut(&id)
            .filter(|connection| connection.opened && connection.state != State::Ended)
        else {
            return false;
        };
        let window = connection.window;
        if connection.transmit.len() >= self.high_water {
            connection.starved = true;
            return false;
        }
        // Messages that were in flight on an earlier connection come first, in their order.
        if let Some(flight) = session.flights.get(session.resent) {
            let (packet_id, released) = (flight.packet_id, flight.released);
            // Its packet identifier, or its PUBREC, may not be written yet.
            let written = flight.change <= self.commits.written();
            let on_the_wire = session.flights.iter().take(session.resent).filter(|f| !f.released).count();
            if !released && on_the_wire >= window {
                return false;
            }
            session.resent += 1;
            match (released, written) {
                (true, true) => drop(self.send(id, &mut Packet::PubRel(Ack::new(packet_id)))),
                (true, false) => {
                    self.when_written(Action::Release { session: number, connection: id, packet_id })
                }
                (false, true) => self.send_flight(number, id, packet_id),
                (false, false) => {
                    self.when_written(Action::Send { session: number, connection: id, packet_id })
                }
            }
            return true;
        }
        let full = session.flights.len() >= window;
        let head = session.queue.front().map(|item| item.position);
        if let Some((serial, replay)) = session.replays.first_key_value()
            && head.is_none_or(|position| position > replay.behind)
        {
            let (serial, ready) = (*serial, replay.ready);
            return ready && self.replay(number, id, serial, full);
        }
        if session.replays.is_empty()
            && let Some(item) = session.parked.pop_front()
        {
            session.parked_bytes -= item.weight;
            self.parked -= item.weight;
            session.queue.push_front(item);
            return self.take_off(number, id);
        }
        if head.is_none() || full {
            return false;
        }
        match self.fetch(number) {
            Ok(()) => self.take_off(number, id),
            Err(error) => {
                self.stop_at_damage(number, id, &error);
                false
            }
        }
    }

    /// Reads the message at the head of the queue from the store, and following ones as far as they
    /// come along.
    fn fetch(&mut self, number: u64) -> Result<()> {
        let now = self.moment();
        let Some(session) = self.sessions.get_mut(&number) else { return Ok(()) };
        let Some(first) = session.queue.front().filter(|item| item.message.is_none()) else { return Ok(()) };
        let (Some(sequence), Some(source)) = (first.sequence, &mut self.source) else { return Ok(()) };
        let (limit, bytes) = READ_AHEAD;
        let entries = source.read(self.log, sequence, limit, bytes)?;
        let mut found = entries.iter().peekable();
        for item in session.queue.iter_mut().take(limit) {
            let Some(wanted) = item.sequence.filter(|_| item.message.is_none()) else { continue };
            while found.next_if(|entry| entry.sequence < wanted).is_some() {}
            let Some(entry) = found.next_if(|entry| entry.sequence == wanted) else { break };
            item.message = Message::from_entry(entry, now);
            if let Some(message) = &item.message {
                // The weight of a queue that was loaded at start was unknown.
                let weight = message.weight();
                item.expires_run_ms = message.expires_run_ms.or(Some(NEVER));
                session.bytes += weight.saturating_sub(item.weight);
                item.weight = weight;
                self.resident += weight;
            }
        }
        let read = session.queue.front().is_some_and(|item| item.message.is_some());
        if read { Ok(()) } else { Err(unreadable(sequence, "it is missing, or not a message")) }
    }

    /// Ends the connection of a session whose next message cannot be read. The message stays in the
    /// queue: it was not delivered.
    fn stop_at_damage(&mut self, number: u64, id: u64, error: &Error) {
        let client = self.sessions.get(&number).map(|session| session.client_id.clone()).unwrap_or_default();
        self.damage.get_or_insert_with(|| format!("the queue of client {client:?}: {}", error.message()));
        self.end_connection(id, Reason::Unspecified, error.message());
    }

    /// Sends the message at the head of the queue, or drops it if it has expired.
    pub(super) fn take_off(&mut self, number: u64, id: u64) -> bool {
        let run_ms = self.run_ms();
        let Some(session) = self.sessions.get_mut(&number) else { return false };
        let Some(item) = session.queue.pop_front() else { return false };
        let unchecked = item.position <= session.unchecked;
        let gone = item
            .message
            .as_ref()
            .is_none_or(|message| message.expired(run_ms) || unchecked && !self.may_read(number, message));
        let Some(session) = self.sessions.get_mut(&number) else { return false };
        if gone {
            self.counters.dropped += 1;
            self.finish(number, &item);
            return true;
        }
        let (qos, durable, position) = (item.qos, session.durable, item.position);
        if qos == QoS::AtMostOnce {
            self.transmit(id, &item, None, false);
            self.finish(number, &item);
            return true;
        }
        let packet_id = session.packet_id();
        let flight = Flight { packet_id, item, released: false, sent: false, change: 0 };
        session.flights.push_back(flight);
        session.resent = session.flights.len();
        if durable && qos == QoS::ExactlyOnce {
            self.write(Op::InFlight(number, position, packet_id.get(), false));
            self.stamp(number, packet_id);
            self.when_written(Action::Send { session: number, connection: id, packet_id });
        } else {
            self.send_flight(number, id, packet_id);
        }
        true
    }

    /// Notes the change that a message in flight depends on.
    fn stamp(&mut self, number: u64, packet_id: PacketId) {
        let change = self.commits.issued();
        if let Some(flight) = self.sessions.get_mut(&number).and_then(|session| session.flight(packet_id)) {
            flight.change = change;
        }
    }

    /// Sends a message that is in flight.
    pub(super) fn send_flight(&mut self, number: u64, id: u64, packet_id: PacketId) {
        if self.commits.failure().is_some() {
            return;
        }
        let (log, now) = (self.log, self.moment());
        let Some(session) = self.sessions.get_mut(&number).filter(|s| s.connection == Some(id)) else {
            return;
        };
        let Some(flight) = session.flight(packet_id).filter(|flight| !flight.released) else { return };
        if flight.item.message.is_none()
            && let (Some(sequence), Some(source)) = (flight.item.sequence, &mut self.source)
        {
            let entry = source.read(log, sequence, 1, 1).map(|mut found| found.pop());
            let entry = entry.map(|entry| entry.filter(|entry| entry.sequence == sequence));
            let message = entry.and_then(|entry| {
                let message = entry.as_ref().and_then(|entry| Message::from_entry(entry, now));
                message.ok_or_else(|| unreadable(sequence, "it is missing, or not a message"))
            });
            match message {
                Ok(message) => flight.item.message = Some(message),
                Err(error) => return self.stop_at_damage(number, id, &error),
            }
            flight.item.weight = flight.item.message.as_ref().map_or(0, |message| message.weight());
            session.bytes += flight_weight(session, packet_id);
            self.resident += flight_weight(session, packet_id);
        }
        let Some(flight) = session.flight(packet_id) else { return };
        let dup = std::mem::replace(&mut flight.sent, true);
        let item = flight.item.clone();
        if !self.transmit(id, &item, Some(packet_id), dup)
            && let Some(session) = self.sessions.get_mut(&number)
            && let Some(item) = session.complete_inflight(packet_id, item.qos)
        {
            // Larger than the client accepts: dropped as if it had been delivered [MQTT-3.1.2-25].
            self.counters.dropped += 1;
            self.finish(number, &item);
        }
    }

    fn transmit(&mut self, id: u64, item: &Queued, packet_id: Option<PacketId>, dup: bool) -> bool {
        let run_ms = self.run_ms();
        let (Some(connection), Some(message)) = (self.connections.get_mut(&id), &item.message) else {
            return false;
        };
        if connection.transmit.is_empty() {
            self.wakes.push_back(id);
        }
        let form = Form { dup, qos: item.qos, retain: item.retain, packet_id, ids: &item.ids };
        let sent = connection.publish(message, form, run_ms);
        self.counters.delivered += u64::from(sent);
        self.counters.redelivered += u64::from(sent && dup);
        sent
    }

    /// The step that a message in flight waits for, if the identifier belongs to one that was sent.
    /// An acknowledgement of an unknown identifier may be late: it is answered, if it has an
    /// answer, and changes nothing. One of another step is a protocol error, as in Mosquitto.
    fn check_step(
        &mut self,
        number: u64,
        packet_id: PacketId,
        belongs: impl FnOnce(QoS, bool) -> bool,
        name: &str,
    ) -> Result<bool, Violation> {
        let flight = self.sessions.get_mut(&number).and_then(|session| session.flight(packet_id));
        let Some(flight) = flight.filter(|flight| flight.sent) else { return Ok(false) };
        if !belongs(flight.item.qos, flight.released) {
            let qos = flight.item.qos as u8;
            return Err(Violation::protocol(format!(
                "{name} {packet_id} for a message of QoS {qos} out of its turn"
            )));
        }
        Ok(true)
    }

    pub(super) fn handle_puback(&mut self, number: u64, ack: &Ack) -> Result<(), Violation> {
        self.check_step(number, ack.packet_id, |qos, _| qos == QoS::AtLeastOnce, "PUBACK")?;
        let Some(session) = self.sessions.get_mut(&number) else { return Ok(()) };
        if let Some(item) = session.complete_inflight(ack.packet_id, QoS::AtLeastOnce) {
            self.landed(number, &item);
        }
        Ok(())
    }

    pub(super) fn handle_pubrec(&mut self, id: u64, number: u64, ack: &Ack) -> Result<(), Violation> {
        let known = self.check_step(number, ack.packet_id, |qos, _| qos == QoS::ExactlyOnce, "PUBREC")?;
        let Some(session) = self.sessions.get_mut(&number) else { return Ok(()) };
        let durable = session.durable;
        let Some(flight) = session.flight(ack.packet_id).filter(|_| known) else {
            // A PUBREC that refuses ends the exchange (4.3.3).
            if !ack.reason.is_error() {
                self.send(id, &mut Packet::PubRel(Ack::new(ack.packet_id)));
            }
            return Ok(());
        };
        if ack.reason.is_error() && !flight.released {
            if let Some(item) = session.complete_inflight(ack.packet_id, QoS::ExactlyOnce) {
                self.landed(number, &item);
            }
            return Ok(());
        }
        let position = flight.item.position;
        if !std::mem::replace(&mut flight.released, true) && durable {
            self.write(Op::InFlight(number, position, ack.packet_id.get(), true));
            self.stamp(number, ack.packet_id);
        }
        self.when_written(Action::Release { session: number, connection: id, packet_id: ack.packet_id });
        Ok(())
    }

    pub(super) fn handle_pubcomp(&mut self, number: u64, ack: &Ack) -> Result<(), Violation> {
        let belongs = |qos, released| qos == QoS::ExactlyOnce && released;
        if self.check_step(number, ack.packet_id, belongs, "PUBCOMP")?
            && let Some(session) = self.sessions.get_mut(&number)
            && let Some(item) = session.complete_inflight(ack.packet_id, QoS::ExactlyOnce)
        {
            self.landed(number, &item);
        }
        Ok(())
    }

    /// Notes that a client has acknowledged a message: there is room for the next one.
    fn landed(&mut self, number: u64, item: &Queued) {
        self.finish(number, item);
        self.due.insert(number);
        let max_bytes = self.settings.limits.max_queue_bytes;
        let waits = self.settings.limits.slow_subscriber == SlowSubscriber::Wait;
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let room = session.has_room(max_bytes);
        if room || waits {
            session.stalled = false;
        }
        if room && !session.throttled.is_empty() {
            session.throttling_until = None;
            let throttled = std::mem::take(&mut session.throttled);
            self.release_throttled(throttled);
        }
    }

    /// Releases a message that a session no longer needs.
    pub(super) fn finish(&mut self, number: u64, item: &Queued) {
        if let Some(session) = self.sessions.get_mut(&number) {
            session.bytes = session.bytes.saturating_sub(item.weight);
        }
        if item.sequence.is_some() {
            self.write(Op::Dequeue(number, item.position));
        }
        self.forget(item);
    }

    /// Releases a message of a session that was deleted or no longer needs it.
    pub(super) fn forget(&mut self, item: &Queued) {
        self.let_go(item);
        if item.message.is_some() {
            self.resident = self.resident.saturating_sub(item.weight);
        }
        if let Some(sequence) = item.sequence {
            self.release(sequence);
        }
    }
}

fn flight_weight(session: &mut super::Session, packet_id: PacketId) -> usize {
    session.flight(packet_id).map_or(0, |flight| flight.item.weight)
}
