//! The sending half of a session: what is published, in order, until it is answered.
//!
//! ```text
//!             push                 window has room, connected          PUBACK
//!   ──────────────► queued ────────────────────────────► Published(QoS 1) ──────► done
//!                     │                                  Published(QoS 2) ──────► Released ──────► done
//!                     │ QoS 0                                            PUBREC → PUBREL    PUBCOMP
//!                     └──────────────► written ──────► done
//! ```
//! A packet identifier is given on entering the window, not before, so that the queue may be longer than there
//! are identifiers. Outcomes come in the order of the pushes, for each QoS by itself: an answer that overtakes
//! others waits for them.
//!
//! When the connection ends everything in the window stays. If the broker kept the session it is sent again in
//! the original order, with DUP, and PUBREL where PUBREC had come (4.4). If it did not, QoS 1 is published anew;
//! whether QoS 2 got through cannot be known then, and it fails saying so.
//!
//! A durable producer ([`Producer::set_durable`]) outlives its process, with the help of whoever writes its
//! [`Record`]s down: the packet identifier of QoS 2 before PUBLISH is sent, its PUBREC before PUBREL is. When the
//! broker lost the session, what had no PUBREC goes out anew, for it has been promised.

use std::collections::VecDeque;
use std::time::Instant;

use crate::error::{Error, ErrorKind, Result};
use crate::mqtt::connection::Connection;
use crate::mqtt::packet::{Ack, PacketId, Publish};
use crate::mqtt::{Packet, Property, QoS, Reason, Version, Violation};

/// Packet identifiers: one space for PUBLISH, SUBSCRIBE and UNSUBSCRIBE (2.2.1). Each use is remembered with
/// a number of its owner's.
#[derive(Debug, Default)]
pub struct PacketIds {
    /// By identifier; grows to the highest in use.
    owners: Vec<Option<u64>>,
    last: u16,
    used: usize,
}

impl PacketIds {
    /// How many identifiers go round before one is used again. Far more than any window, and small enough that
    /// the table stays small.
    const ROUND: u16 = 8192;

    /// A free identifier.
    pub fn take(&mut self, owner: u64) -> Option<PacketId> {
        if self.used == usize::from(u16::MAX) {
            return None;
        }
        // Beyond the round only while the round is full.
        let round = if self.used < usize::from(Self::ROUND) { Self::ROUND } else { u16::MAX };
        loop {
            self.last = if self.last >= round { 1 } else { self.last + 1 };
            let index = usize::from(self.last);
            if self.owners.len() <= index {
                self.owners.resize(index + 1, None);
            }
            if self.owners[index].is_none() {
                self.owners[index] = Some(owner);
                self.used += 1;
                return PacketId::new(self.last);
            }
        }
    }

    /// The owner's number of an identifier in use.
    pub fn owner(&self, id: PacketId) -> Option<u64> {
        self.owners.get(usize::from(id.get())).copied().flatten()
    }

    /// Takes a certain identifier, if it is free.
    pub fn claim(&mut self, id: PacketId, owner: u64) -> bool {
        let index = usize::from(id.get());
        if self.owners.len() <= index {
            self.owners.resize(index + 1, None);
        }
        let free = self.owners[index].is_none();
        if free {
            self.owners[index] = Some(owner);
            self.used += 1;
        }
        free
    }

    /// Gives an identifier back.
    pub fn release(&mut self, id: PacketId) {
        if let Some(owner) = self.owners.get_mut(usize::from(id.get())) {
            self.used -= usize::from(owner.take().is_some());
        }
    }
}

/// How publications of one owner ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Whose they are.
    pub owner: u64,
    /// Their QoS.
    pub qos: QoS,
    /// How many, in the order they were pushed; 0 if only bytes are free.
    pub count: u32,
    /// Bytes of their payloads and topics, which are free again.
    pub bytes: usize,
    /// The broker's reason, or why it failed.
    pub result: Result<Reason>,
}

/// Something to be written down. Counted from 1 in the order they are polled, for
/// [`Producer::handle_recorded`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The owner's publication of QoS 2 has this packet identifier. It is sent after this is written.
    Sent(u64, PacketId),
    /// PUBREC has come for it: PUBREL is sent after this is written.
    Released(u64),
    /// It has no packet identifier any more.
    Queued(u64),
}

/// What a durable producer has to be written down.
#[derive(Debug, Default)]
struct Records {
    new: VecDeque<Record>,
    asked: u64,
    written: u64,
    /// PUBRECs in the order they came, and the record that their PUBREL waits for.
    owed: VecDeque<(u64, PacketId)>,
}

impl Records {
    fn push(&mut self, record: Record) -> u64 {
        self.new.push_back(record);
        self.asked += 1;
        self.asked
    }
}

#[derive(Debug)]
struct Queued {
    owner: u64,
    publish: Publish,
    /// When 5.0's message expiry is over, for a message that waits here.
    expires: Option<Instant>,
}

#[derive(Debug)]
enum State {
    /// PUBLISH has been sent.
    Published,
    /// PUBREC has come: PUBREL has been sent, or is owed.
    Released,
    /// Answered, and waiting for those before it.
    Done(Result<Reason>),
}

#[derive(Debug)]
struct InFlight {
    owner: u64,
    id: PacketId,
    publish: Publish,
    state: State,
    /// Sent on this connection.
    sent: bool,
    /// Sent on any connection.
    tried: bool,
    /// The record that has to be written before it is sent.
    waits: u64,
}

/// A publication of QoS 0 that is queued on the connection, or could not be and waits for its turn to say so.
#[derive(Debug)]
struct Unwritten {
    mark: u64,
    owner: u64,
    bytes: usize,
    result: Result<Reason>,
}

/// Publications that made room for newer ones, and wait to say so until those before them have ended.
#[derive(Debug)]
struct Dropped {
    /// Number of the first of the window that came later.
    behind: u64,
    owner: u64,
    qos: QoS,
    count: u32,
}

/// The sending half of a session.
#[derive(Debug)]
pub struct Producer {
    /// QoS 0, which no window holds back.
    at_most_once: VecDeque<Queued>,
    queue: VecDeque<Queued>,
    window: VecDeque<InFlight>,
    /// Number of the first of the window since the beginning: what packet identifiers are owned by.
    first: u64,
    /// Most in flight, whatever the server takes.
    own_maximum: u16,
    /// In flight on this connection: sent and not answered.
    unanswered: u16,
    /// Everything before this in the window has been sent on this connection.
    resumed: usize,
    /// QoS 0 by the number of bytes that have to be written before it has ended.
    unwritten: VecDeque<Unwritten>,
    dropped: VecDeque<Dropped>,
    outcomes: VecDeque<Outcome>,
    pending: usize,
    /// Of a durable producer.
    records: Option<Records>,
}

impl Producer {
    /// With at most `own_maximum` publications of QoS 1 and 2 in flight.
    pub fn new(own_maximum: u16) -> Self {
        Self {
            at_most_once: VecDeque::new(),
            queue: VecDeque::new(),
            window: VecDeque::new(),
            first: 0,
            own_maximum: own_maximum.max(1),
            unanswered: 0,
            resumed: 0,
            unwritten: VecDeque::new(),
            dropped: VecDeque::new(),
            outcomes: VecDeque::new(),
            pending: 0,
            records: None,
        }
    }

    /// From here on asks for [`Record`]s. Each owner has one publication of QoS 1 or 2.
    pub fn set_durable(&mut self) {
        self.records = Some(Records::default());
    }

    /// Takes over what was in flight when an earlier process ended, in its order, before anything else.
    pub fn restore(
        &mut self,
        ids: &mut PacketIds,
        owner: u64,
        publish: Publish,
        id: PacketId,
        released: bool,
    ) -> Result<()> {
        debug_assert!(self.queue.is_empty(), "it comes first");
        if !ids.claim(id, self.first + self.window.len() as u64) {
            return Err(Error::new(
                ErrorKind::Persistence,
                format!("two publications with the packet identifier {id}"),
            ));
        }
        let state = if released { State::Released } else { State::Published };
        let publish = Publish { packet_id: Some(id), ..publish };
        self.pending += 1;
        self.window.push_back(InFlight { owner, id, publish, state, sent: false, tried: true, waits: 0 });
        Ok(())
    }

    /// What has to be written next.
    pub fn poll_record(&mut self) -> Option<Record> {
        self.records.as_mut()?.new.pop_front()
    }

    /// The first `written` records are written.
    pub fn handle_recorded(&mut self, written: u64) {
        if let Some(records) = &mut self.records {
            debug_assert!(written <= records.asked);
            records.written = written;
        }
    }

    /// Publications without an outcome.
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// Takes a publication over for `owner`. Its packet identifier is given later.
    pub fn push(&mut self, now: Instant, owner: u64, publish: Publish) {
        debug_assert!(publish.packet_id.is_none(), "identifiers are given on entering the window");
        let expires = publish
            .properties
            .message_expiry_interval()
            .map(|seconds| now + std::time::Duration::from_secs(u64::from(*seconds)));
        self.pending += 1;
        let queue = if publish.qos == QoS::AtMostOnce { &mut self.at_most_once } else { &mut self.queue };
        queue.push_back(Queued { owner, publish, expires });
    }

    /// Fails the oldest publication that has not been sent, to make room for a newer one. Its bytes are free at
    /// once; that it failed is told after the outcomes of those that were in flight before it. Gives false when
    /// there is none that may be dropped.
    pub fn drop_oldest(&mut self) -> bool {
        let promised = self.records.is_some();
        let oldest = self.at_most_once.pop_front();
        let Some(queued) = oldest.or_else(|| if promised { None } else { self.queue.pop_front() }) else {
            return false;
        };
        let (owner, qos) = (queued.owner, queued.publish.qos);
        self.outcomes.push_back(Outcome {
            owner,
            qos,
            count: 0,
            bytes: cost(&queued.publish),
            result: Ok(Reason::Success),
        });
        let behind = if qos == QoS::AtMostOnce { self.first } else { self.first + self.window.len() as u64 };
        // Many may be dropped while there is no connection: they are counted.
        let same = |other: &&mut Dropped| (other.behind, other.owner, other.qos) == (behind, owner, qos);
        match self.dropped.iter_mut().find(same) {
            Some(dropped) => dropped.count += 1,
            None if behind == self.first => self.dropped.push_front(Dropped { behind, owner, qos, count: 1 }),
            None => self.dropped.push_back(Dropped { behind, owner, qos, count: 1 }),
        }
        self.tell_dropped();
        true
    }

    /// Tells of the dropped ones that nothing is in flight before any more.
    fn tell_dropped(&mut self) {
        while self.dropped.front().is_some_and(|dropped| dropped.behind <= self.first) {
            let Dropped { owner, qos, count, .. } = self.dropped.pop_front().expect("just seen");
            self.pending -= count as usize;
            let error = Error::new(ErrorKind::QueueFull, "dropped for a newer message: the queue was full");
            self.outcomes.push_back(Outcome { owner, qos, count, bytes: 0, result: Err(error) });
        }
    }

    /// The connection stands. `session_present`: the broker has the session and wants the window again.
    pub fn attach(&mut self, ids: &mut PacketIds, session_present: bool) {
        self.unanswered = 0;
        self.resumed = 0;
        if let Some(records) = &mut self.records {
            records.owed.clear();
        }
        if session_present {
            for flight in &mut self.window {
                flight.sent = false;
            }
            return;
        }
        if self.records.is_some() {
            return self.queue_again(ids);
        }
        for flight in &mut self.window {
            match (&flight.state, flight.publish.qos) {
                (State::Done(_), _) => {}
                (_, QoS::ExactlyOnce) => {
                    let lost = "the broker lost the session: whether the message got through is not known";
                    flight.state = State::Done(Err(Error::new(ErrorKind::Disconnected, lost)));
                }
                _ => (flight.sent, flight.tried) = (false, false),
            }
        }
        self.settle(ids);
    }

    /// The broker lost the session of a durable producer.
    fn queue_again(&mut self, ids: &mut PacketIds) {
        let mut again = Vec::new();
        for flight in std::mem::take(&mut self.window) {
            ids.release(flight.id);
            let mut publish = flight.publish;
            match flight.state {
                State::Done(result) => self.end(flight.owner, &publish, result),
                // The broker had taken it over with PUBREC (4.3.3).
                State::Released => self.end(flight.owner, &publish, Ok(Reason::Success)),
                State::Published => {
                    publish.packet_id = None;
                    publish.dup = false;
                    if let Some(records) = self.records.as_mut().filter(|_| publish.qos == QoS::ExactlyOnce) {
                        records.push(Record::Queued(flight.owner));
                    }
                    again.push(Queued { owner: flight.owner, publish, expires: None });
                }
            }
            self.first += 1;
        }
        for queued in again.into_iter().rev() {
            self.queue.push_front(queued);
        }
    }

    /// The connection is gone. QoS 0 of which no byte is known to have been written fails: sending it again
    /// could give it twice.
    pub fn detach(&mut self) {
        for Unwritten { owner, bytes, result, .. } in std::mem::take(&mut self.unwritten) {
            let broke =
                || Error::new(ErrorKind::Disconnected, "the connection broke while the message was written");
            self.finish(owner, QoS::AtMostOnce, bytes, result.and_then(|_| Err(broke())));
        }
    }

    /// The first `written` bytes that were queued on the connection have been written.
    pub fn handle_written(&mut self, written: u64) {
        while self.unwritten.front().is_some_and(|next| next.mark <= written) {
            let Unwritten { owner, bytes, result, .. } = self.unwritten.pop_front().expect("just seen");
            self.finish(owner, QoS::AtMostOnce, bytes, result);
        }
    }

    /// Sends what may be sent, at most about `budget` bytes; says whether there is more.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        ids: &mut PacketIds,
        connection: &mut Connection,
        budget: usize,
    ) -> bool {
        let limit = connection.queued() + budget as u64;
        self.resume(now, connection, limit);
        self.settle(ids);
        // Half of the turn, lest a flood of QoS 0 keep the others out.
        self.send_at_most_once(now, connection, connection.queued() + budget as u64 / 2);
        let mut more = !self.at_most_once.is_empty();
        let maximum = self.own_maximum.min(connection.limits().receive_maximum);
        if self.records.is_some() {
            self.enter(now, ids, maximum);
            self.resume(now, connection, limit);
            self.release(now, ids, connection);
            more |= connection.queued() >= limit;
        } else {
            more |= self.enter_and_send(now, ids, maximum, connection, limit);
        }
        self.settle(ids);
        more
    }

    fn send_at_most_once(&mut self, now: Instant, connection: &mut Connection, limit: u64) {
        while connection.queued() < limit
            && let Some(Queued { owner, mut publish, expires }) = self.at_most_once.pop_front()
        {
            let sent = admit(now, &mut publish, expires).and_then(|()| connection.publish(now, &publish));
            let (bytes, result) = (cost(&publish), sent.map(|()| Reason::Success));
            if result.is_err() && self.unwritten.is_empty() {
                self.finish(owner, QoS::AtMostOnce, bytes, result);
            } else {
                self.unwritten.push_back(Unwritten { mark: connection.queued(), owner, bytes, result });
            }
        }
    }

    /// Lets publications into the window as they are sent; says whether more would go than `limit` allows.
    fn enter_and_send(
        &mut self,
        now: Instant,
        ids: &mut PacketIds,
        maximum: u16,
        connection: &mut Connection,
        limit: u64,
    ) -> bool {
        while self.unanswered < maximum && self.resumed == self.window.len() && !self.queue.is_empty() {
            if connection.queued() >= limit {
                return true;
            }
            let Some(id) = ids.take(self.first + self.window.len() as u64) else { return false };
            let Queued { owner, mut publish, expires } = self.queue.pop_front().expect("not empty");
            publish.packet_id = Some(id);
            let sent = admit(now, &mut publish, expires).and_then(|()| connection.publish(now, &publish));
            self.unanswered += u16::from(sent.is_ok());
            self.resumed += 1;
            // What failed waits as well for those before it.
            let state = sent.map_or_else(|error| State::Done(Err(error)), |()| State::Published);
            let flight = InFlight { owner, id, publish, state, sent: true, tried: true, waits: 0 };
            self.window.push_back(flight);
        }
        false
    }

    /// Lets publications into the window of a durable producer, which are sent when their record is written.
    fn enter(&mut self, now: Instant, ids: &mut PacketIds, maximum: u16) {
        while self.window.len() < usize::from(maximum) && !self.queue.is_empty() {
            let Some(id) = ids.take(self.first + self.window.len() as u64) else { return };
            let Queued { owner, mut publish, expires } = self.queue.pop_front().expect("not empty");
            if let Err(error) = admit(now, &mut publish, expires) {
                ids.release(id);
                self.end(owner, &publish, Err(error));
                continue;
            }
            let records = self.records.as_mut().expect("it is durable");
            let waits = match publish.qos {
                QoS::ExactlyOnce => records.push(Record::Sent(owner, id)),
                _ => 0,
            };
            let publish = Publish { packet_id: Some(id), ..publish };
            self.window.push_back(InFlight {
                owner,
                id,
                publish,
                state: State::Published,
                sent: false,
                tried: false,
                waits,
            });
        }
    }

    /// Sends PUBREL, in the order of the PUBRECs [MQTT-4.6.0-4], where these are written.
    fn release(&mut self, now: Instant, ids: &PacketIds, connection: &mut Connection) {
        let Some(records) = &mut self.records else { return };
        let mut due = Vec::new();
        while records.owed.front().is_some_and(|(record, _)| *record <= records.written) {
            due.extend(records.owed.pop_front());
        }
        for (_, id) in due {
            if self.flight(ids, id).is_some_and(|flight| matches!(flight.state, State::Released)) {
                // Four bytes: the only refusal is a connection that is closing, after which it is sent again.
                let _ = connection.send(now, Packet::PubRel(Ack::new(id)));
            }
        }
    }

    /// How many records are written.
    fn written(&self) -> u64 {
        self.records.as_ref().map_or(0, |records| records.written)
    }

    /// Sends the window again, in its original order [MQTT-4.4.0-1], [MQTT-4.6.0-1].
    fn resume(&mut self, now: Instant, connection: &mut Connection, limit: u64) {
        let maximum = connection.limits().receive_maximum;
        let written = self.written();
        while self.resumed < self.window.len() && connection.queued() < limit {
            let flight = &mut self.window[self.resumed];
            let sent = match &flight.state {
                _ if flight.sent => Ok(()),
                State::Done(_) => Ok(()),
                _ if flight.waits > written => return,
                State::Released => connection.send(now, Packet::PubRel(Ack::new(flight.id))).inspect(|()| {
                    self.unanswered += 1;
                    flight.sent = true;
                }),
                State::Published if self.unanswered >= maximum => return,
                State::Published => {
                    flight.publish.dup = flight.tried;
                    flight.tried = true;
                    connection.publish(now, &flight.publish).inspect(|()| {
                        self.unanswered += 1;
                        flight.sent = true;
                    })
                }
            };
            if let Err(error) = sent {
                // The broker takes less than it did before: the message cannot be brought to its end.
                flight.state = State::Done(Err(error));
                flight.sent = true;
            }
            self.resumed += 1;
        }
    }

    /// PUBACK.
    pub fn handle_puback(&mut self, ids: &mut PacketIds, ack: &Ack) -> Result<(), Violation> {
        let Some(flight) = self.flight(ids, ack.packet_id) else { return Ok(()) };
        if flight.publish.qos != QoS::AtLeastOnce {
            return Err(Violation::protocol(format!("PUBACK for a message of QoS 2, {}", ack.packet_id)));
        }
        self.answer(ids, ack.packet_id, ack);
        Ok(())
    }

    /// PUBREC; answered by PUBREL unless it refuses.
    pub fn handle_pubrec(
        &mut self,
        now: Instant,
        ids: &mut PacketIds,
        ack: &Ack,
        connection: &mut Connection,
    ) -> Result<(), Violation> {
        let id = ack.packet_id;
        let Some(flight) = self.flight(ids, id) else {
            // The broker waits for the end of something we do not know of (4.3.3, 3.6.2.1).
            let reason = Reason::PacketIdentifierNotFound;
            if !ack.reason.is_error() {
                let _ = connection.send(now, Packet::PubRel(Ack::with_reason(id, reason)));
            }
            return Ok(());
        };
        if flight.publish.qos != QoS::ExactlyOnce {
            return Err(Violation::protocol(format!("PUBREC for a message of QoS 1, {id}")));
        }
        if ack.reason.is_error() {
            self.answer(ids, id, ack);
            return Ok(());
        }
        // From here on the message itself is not needed, nor ever sent again.
        let again = matches!(std::mem::replace(&mut flight.state, State::Released), State::Released);
        let late = !std::mem::replace(&mut flight.sent, true);
        let (owner, waits) = (flight.owner, flight.waits);
        self.unanswered += u16::from(late);
        let Some(records) = &mut self.records else {
            let _ = connection.send(now, Packet::PubRel(Ack::new(id)));
            return Ok(());
        };
        let waits = if again { waits } else { records.push(Record::Released(owner)) };
        records.owed.push_back((waits, id));
        if let Some(flight) = self.flight(ids, id) {
            flight.waits = waits;
        }
        Ok(())
    }

    /// PUBCOMP.
    pub fn handle_pubcomp(&mut self, ids: &mut PacketIds, ack: &Ack) -> Result<(), Violation> {
        let Some(flight) = self.flight(ids, ack.packet_id) else { return Ok(()) };
        if !matches!(flight.state, State::Released) {
            return Err(Violation::protocol(format!("PUBCOMP {} before PUBREC", ack.packet_id)));
        }
        // Not found: the broker had finished with it before. It had been received all the same.
        self.answer(ids, ack.packet_id, &Ack::new(ack.packet_id));
        Ok(())
    }

    /// Fails everything that has no outcome.
    pub fn close(&mut self, ids: &mut PacketIds, error: &Error) {
        self.detach();
        for flight in std::mem::take(&mut self.window) {
            ids.release(flight.id);
            self.first += 1;
            let result = match flight.state {
                State::Done(result) => result,
                _ => Err(error.clone()),
            };
            self.end(flight.owner, &flight.publish, result);
            self.tell_dropped();
        }
        let waiting: Vec<_> = self.at_most_once.drain(..).chain(self.queue.drain(..)).collect();
        for queued in waiting {
            self.end(queued.owner, &queued.publish, Err(error.clone()));
        }
        self.resumed = 0;
        self.unanswered = 0;
    }

    /// The next outcome, in the order of the pushes of each QoS.
    pub fn poll_outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    fn flight(&mut self, ids: &PacketIds, id: PacketId) -> Option<&mut InFlight> {
        let index = ids.owner(id)?.checked_sub(self.first)?;
        let flight = self.window.get_mut(usize::try_from(index).ok()?)?;
        (flight.id == id && !matches!(flight.state, State::Done(_))).then_some(flight)
    }

    /// The flow of `id` has ended.
    fn answer(&mut self, ids: &mut PacketIds, id: PacketId, ack: &Ack) {
        let Some(flight) = self.flight(ids, id) else { return };
        let was_sent = flight.sent;
        flight.state = State::Done(if ack.reason.is_error() {
            let error = ack.reason.error("PUBLISH").with_topic(&*flight.publish.topic);
            Err(match ack.properties.reason_string() {
                Some(words) => error.with_peer_text(words),
                None => error,
            })
        } else {
            Ok(ack.reason)
        });
        flight.sent = true;
        self.unanswered -= u16::from(was_sent && self.unanswered > 0);
        self.settle(ids);
    }

    /// Ends what is done at the head of the window. An identifier is not given to another message before: this
    /// one would be found by it.
    fn settle(&mut self, ids: &mut PacketIds) {
        while matches!(self.window.front(), Some(InFlight { state: State::Done(_), .. })) {
            let flight = self.window.pop_front().expect("just seen");
            ids.release(flight.id);
            self.first += 1;
            self.resumed = self.resumed.saturating_sub(1);
            let State::Done(result) = flight.state else { unreachable!("just seen") };
            self.end(flight.owner, &flight.publish, result);
            self.tell_dropped();
        }
    }

    fn end(&mut self, owner: u64, publish: &Publish, result: Result<Reason>) {
        self.finish(owner, publish.qos, cost(publish), result);
    }

    fn finish(&mut self, owner: u64, qos: QoS, bytes: usize, result: Result<Reason>) {
        self.pending -= 1;
        if let (Some(last), Ok(reason)) = (self.outcomes.back_mut(), &result)
            && last.owner == owner
            && last.qos == qos
            && matches!(&last.result, Ok(other) if other == reason)
        {
            last.count += 1;
            last.bytes += bytes;
            return;
        }
        self.outcomes.push_back(Outcome { owner, qos, count: 1, bytes, result });
    }
}

/// Makes the publication what it is now, or refuses it because it has expired.
fn admit(now: Instant, publish: &mut Publish, expires: Option<Instant>) -> Result<()> {
    let Some(expires) = expires else { return Ok(()) };
    let left = expires.saturating_duration_since(now);
    if left.is_zero() {
        return Err(Error::new(ErrorKind::Timeout, "the message expired before it could be sent"));
    }
    let left = left.as_secs_f64().ceil() as u32;
    let others = publish.properties.iter().filter(|p| !matches!(p, Property::MessageExpiryInterval(_)));
    publish.properties = others.cloned().chain([Property::MessageExpiryInterval(left)]).collect();
    Ok(())
}

/// What a publication weighs in a budget.
pub fn cost(publish: &Publish) -> usize {
    publish.payload.len() + publish.topic.len()
}

/// Whether `publish` can be said in `version`: 3.x has no properties.
pub fn check_version(publish: &Publish, version: Version) -> Result<()> {
    if version == Version::V5 || publish.properties.is_empty() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unsupported, "MQTT 3.x has no message properties: connect with version=5"))
}
