//! The sending half of a session: publications, in order, until they are answered.
//!
//! ```text
//!        push             window has room, connected          PUBACK
//!   ─────────► queued ────────────────────────────► Published(QoS 1) ──────► done
//!                │                                  Published(QoS 2) ──────► Released ──────► done
//!                │ QoS 0                                      PUBREC → PUBREL    PUBCOMP
//!                └──────────────► written ──────► done
//! ```
//! A packet identifier is assigned when a publication enters the window, not before, so that the
//! queue can be longer than the space of identifiers. Outcomes are reported in the order of the
//! pushes, separately for each QoS: an answer that arrives early waits for its predecessors.
//!
//! When the connection ends, the window is kept. If the broker kept the session, the window is
//! resent in the original order, with DUP set, and with PUBREL where PUBREC had arrived (4.4). If
//! it did not, QoS 1 is published again as new; for QoS 2 it is unknown whether the message was
//! delivered, and its error says so.
//!
//! A durable producer ([`Producer::set_durable`]) survives its process. The caller stores its
//! [`Record`]s: the packet identifier of a QoS 2 publication before PUBLISH is sent, its PUBREC
//! before PUBREL is sent. If the broker lost the session, publications without PUBREC are sent
//! again as new, because they were promised to be delivered.

use std::collections::VecDeque;
use std::time::Instant;

use crate::connection::{Connection, Limits};
use crate::packet::{Ack, PacketId, Publish};
use crate::{Packet, Property, QoS, Reason, Version, Violation};
use forebay_base::error::{Error, ErrorKind, Result};

/// Packet identifiers, which PUBLISH, SUBSCRIBE and UNSUBSCRIBE share (2.2.1). Each identifier in
/// use is stored with a number chosen by its owner.
#[derive(Debug, Default)]
pub struct PacketIds {
    /// Owner of each identifier; as long as the highest identifier used so far requires.
    owners: Vec<Option<u64>>,
    last: u16,
    used: usize,
}

impl PacketIds {
    /// Number of identifiers that are cycled through before one is reused. Much larger than any
    /// window, and small enough to keep the table small.
    const ROUND: u16 = 8192;

    /// Takes a free identifier.
    pub fn take(&mut self, owner: u64) -> Option<PacketId> {
        if self.used == usize::from(u16::MAX) {
            return None;
        }
        // Identifiers beyond ROUND are used only while all those below are taken.
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

    /// Owner's number of an identifier in use.
    pub fn owner(&self, id: PacketId) -> Option<u64> {
        self.owners.get(usize::from(id.get())).copied().flatten()
    }

    /// Takes the identifier `id` if it is free, and returns whether it was.
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

    /// Frees an identifier.
    pub fn release(&mut self, id: PacketId) {
        if let Some(owner) = self.owners.get_mut(usize::from(id.get())) {
            self.used -= usize::from(owner.take().is_some());
        }
    }
}

/// Outcome of one or more publications of one owner.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Owner of the publications.
    pub owner: u64,
    /// QoS of the publications.
    pub qos: QoS,
    /// Number of publications, in the order of the pushes; 0 if the outcome only frees bytes.
    pub count: u32,
    /// Size of their payloads and topics in bytes, which is now free.
    pub bytes: usize,
    /// The broker's reason, or the error.
    pub result: Result<Reason>,
}

/// State change that a durable producer needs stored. Records are numbered from 1 in the order in
/// which they are polled; see [`Producer::handle_recorded`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The owner's QoS 2 publication was assigned this packet identifier. PUBLISH is sent once this
    /// is stored.
    Sent(u64, PacketId),
    /// PUBREC has arrived. PUBREL is sent once this is stored.
    Released(u64),
    /// The publication no longer has a packet identifier.
    Queued(u64),
}

/// Records of a durable producer.
#[derive(Debug, Default)]
struct Records {
    new: VecDeque<Record>,
    requested: u64,
    written: u64,
    /// Packet identifiers of PUBRECs, in the order of arrival, with the record that each PUBREL
    /// waits for.
    pubrels_due: VecDeque<(u64, PacketId)>,
}

impl Records {
    fn push(&mut self, record: Record) -> u64 {
        self.new.push_back(record);
        self.requested += 1;
        self.requested
    }
}

#[derive(Debug)]
struct Queued {
    owner: u64,
    publish: Publish,
    /// Time at which the message expires (MQTT 5) if it is still in the queue.
    expires: Option<Instant>,
}

#[derive(Debug)]
enum State {
    /// PUBLISH has been sent.
    Published,
    /// PUBREC has arrived; PUBREL has been sent or is due.
    Released,
    /// Answered, and waiting for its predecessors.
    Done(Result<Reason>),
}

#[derive(Debug)]
struct InFlight {
    owner: u64,
    id: PacketId,
    publish: Publish,
    state: State,
    /// Whether it was sent on this connection.
    sent: bool,
    /// Whether it was ever sent.
    ever_sent: bool,
    /// Record that must be stored before it is sent.
    waits_for: u64,
}

/// A QoS 0 publication that is queued on the connection, or whose failure waits to be reported in
/// order.
#[derive(Debug)]
struct Unwritten {
    mark: u64,
    owner: u64,
    bytes: usize,
    result: Result<Reason>,
}

/// Publications dropped in favour of newer ones, to be reported once their predecessors have ended.
#[derive(Debug)]
struct Dropped {
    /// Number of the first publication in the window that was pushed later.
    behind: u64,
    owner: u64,
    qos: QoS,
    count: u32,
}

/// Numbers of publications sent on this connection and not answered.
#[derive(Clone, Copy, Debug, Default)]
struct Unanswered {
    all: u16,
    /// Those with QoS 2, which are answered by PUBCOMP.
    exactly_once: u16,
}

impl Unanswered {
    fn add(&mut self, qos: QoS) {
        self.all += 1;
        self.exactly_once += u16::from(qos == QoS::ExactlyOnce);
    }

    fn remove(&mut self, qos: QoS) {
        self.all = self.all.saturating_sub(1);
        let exactly_once = u16::from(qos == QoS::ExactlyOnce);
        self.exactly_once = self.exactly_once.saturating_sub(exactly_once);
    }

    /// Whether another one may be sent, if `maximum` may be in flight.
    fn has_room(self, qos: QoS, maximum: u16, limits: &Limits) -> bool {
        self.all < maximum && (qos != QoS::ExactlyOnce || self.exactly_once < limits.exactly_once_maximum)
    }
}

/// The sending half of a session.
#[derive(Debug)]
pub struct Producer {
    /// QoS 0 publications, which the window does not limit.
    at_most_once: VecDeque<Queued>,
    queue: VecDeque<Queued>,
    /// The head of the queue goes ahead of QoS 0, too.
    first_waits: bool,
    window: VecDeque<InFlight>,
    /// Number of the first publication in the window, counted from the start of the session. Packet
    /// identifiers are owned by such numbers.
    first: u64,
    /// Maximum number in flight, in addition to the server's limit.
    own_maximum: u16,
    unanswered: Unanswered,
    /// Number of publications at the head of the window that have been sent on this connection.
    resumed: usize,
    /// QoS 0 publications, each with the number of bytes that must be written before it has ended.
    unwritten: VecDeque<Unwritten>,
    dropped: VecDeque<Dropped>,
    outcomes: VecDeque<Outcome>,
    pending_messages: usize,
    /// Records; set for a durable producer.
    records: Option<Records>,
}

impl Producer {
    /// Creates a producer with at most `own_maximum` QoS 1 and 2 publications in flight.
    pub fn new(own_maximum: u16) -> Self {
        Self {
            at_most_once: VecDeque::new(),
            queue: VecDeque::new(),
            first_waits: false,
            window: VecDeque::new(),
            first: 0,
            own_maximum: own_maximum.max(1),
            unanswered: Unanswered::default(),
            resumed: 0,
            unwritten: VecDeque::new(),
            dropped: VecDeque::new(),
            outcomes: VecDeque::new(),
            pending_messages: 0,
            records: None,
        }
    }

    /// Makes the producer durable: it issues [`Record`]s from now on. Each owner has one QoS 1 or 2
    /// publication.
    pub fn set_durable(&mut self) {
        self.records = Some(Records::default());
    }

    /// Restores a publication that was in flight when an earlier process ended. Called in order,
    /// before any push.
    pub fn restore(
        &mut self,
        ids: &mut PacketIds,
        owner: u64,
        publish: Publish,
        id: PacketId,
        released: bool,
    ) -> Result<()> {
        debug_assert!(self.queue.is_empty(), "restore precedes all pushes");
        if !ids.claim(id, self.first + self.window.len() as u64) {
            return Err(Error::new(
                ErrorKind::Persistence,
                format!("the outbox has two publications with the packet identifier {id}"),
            ));
        }
        let state = if released { State::Released } else { State::Published };
        let publish = Publish { packet_id: Some(id), ..publish };
        self.pending_messages += 1;
        self.window.push_back(InFlight {
            owner,
            id,
            publish,
            state,
            sent: false,
            ever_sent: true,
            waits_for: 0,
        });
        Ok(())
    }

    /// Returns the next record to be stored.
    pub fn poll_record(&mut self) -> Option<Record> {
        self.records.as_mut()?.new.pop_front()
    }

    /// Handles the storing of the first `written` records.
    pub fn handle_recorded(&mut self, written: u64) {
        if let Some(records) = &mut self.records {
            debug_assert!(written <= records.requested);
            records.written = written;
        }
    }

    /// Number of publications without an outcome.
    pub fn pending_messages(&self) -> usize {
        self.pending_messages
    }

    /// Accepts a publication of `owner`. Its packet identifier is assigned later.
    pub fn push(&mut self, now: Instant, owner: u64, publish: Publish) {
        debug_assert!(publish.packet_id.is_none(), "identifiers are assigned on entering the window");
        let expires = publish
            .properties
            .message_expiry_interval()
            .map(|seconds| now + std::time::Duration::from_secs(u64::from(*seconds)));
        self.pending_messages += 1;
        let queue = if publish.qos == QoS::AtMostOnce { &mut self.at_most_once } else { &mut self.queue };
        queue.push_back(Queued { owner, publish, expires });
    }

    /// As [`Self::push`], ahead of all publications that have not been sent.
    pub fn push_first(&mut self, owner: u64, publish: Publish) {
        debug_assert!(publish.packet_id.is_none(), "identifiers are assigned on entering the window");
        self.pending_messages += 1;
        self.first_waits = publish.qos != QoS::AtMostOnce;
        let queue = if self.first_waits { &mut self.queue } else { &mut self.at_most_once };
        queue.push_front(Queued { owner, publish, expires: None });
    }

    /// Fails the oldest unsent publication to make room for a newer one. Its bytes are freed
    /// immediately; its failure is reported after the outcomes of the publications that were in
    /// flight before it. Returns false if none may be dropped.
    pub fn drop_oldest(&mut self) -> bool {
        let durable = self.records.is_some();
        let oldest = self.at_most_once.pop_front();
        let Some(queued) = oldest.or_else(|| if durable { None } else { self.queue.pop_front() }) else {
            return false;
        };
        let (owner, qos) = (queued.owner, queued.publish.qos);
        self.first_waits &= qos == QoS::AtMostOnce;
        self.outcomes.push_back(Outcome {
            owner,
            qos,
            count: 0,
            bytes: queued.publish.weight(),
            result: Ok(Reason::Success),
        });
        let behind = if qos == QoS::AtMostOnce { self.first } else { self.first + self.window.len() as u64 };
        // Many may be dropped while there is no connection, so they are counted rather than stored.
        let same = |other: &&mut Dropped| (other.behind, other.owner, other.qos) == (behind, owner, qos);
        match self.dropped.iter_mut().find(same) {
            Some(dropped) => dropped.count += 1,
            None if behind == self.first => self.dropped.push_front(Dropped { behind, owner, qos, count: 1 }),
            None => self.dropped.push_back(Dropped { behind, owner, qos, count: 1 }),
        }
        self.report_dropped();
        true
    }

    /// Reports the dropped publications whose predecessors have all ended.
    fn report_dropped(&mut self) {
        while self.dropped.front().is_some_and(|dropped| dropped.behind <= self.first) {
            let Dropped { owner, qos, count, .. } = self.dropped.pop_front().expect("checked above");
            self.pending_messages -= count as usize;
            let error = Error::new(
                ErrorKind::QueueFull,
                "the message was dropped in favour of a newer one because the queue was full",
            );
            self.outcomes.push_back(Outcome { owner, qos, count, bytes: 0, result: Err(error) });
        }
    }

    /// Handles CONNACK. With `session_present` the window is resent.
    pub fn attach(&mut self, ids: &mut PacketIds, session_present: bool) {
        self.unanswered = Unanswered::default();
        self.resumed = 0;
        if let Some(records) = &mut self.records {
            records.pubrels_due.clear();
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
                    let lost = "the broker lost the session; the message may or may not have been delivered";
                    flight.state = State::Done(Err(Error::new(ErrorKind::Disconnected, lost)));
                }
                _ => (flight.sent, flight.ever_sent) = (false, false),
            }
        }
        self.settle(ids);
    }

    /// Handles the loss of the session for a durable producer.
    fn queue_again(&mut self, ids: &mut PacketIds) {
        let mut again = Vec::new();
        for flight in std::mem::take(&mut self.window) {
            ids.release(flight.id);
            let mut publish = flight.publish;
            match flight.state {
                State::Done(result) => self.end(flight.owner, &publish, result),
                // The broker took responsibility for the message with PUBREC (4.3.3).
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
        }
        for queued in again.into_iter().rev() {
            self.queue.push_front(queued);
        }
    }

    /// Handles the end of the connection. QoS 0 publications that are not known to have been
    /// written fail: sending them again could deliver them twice.
    pub fn detach(&mut self) {
        for Unwritten { owner, bytes, result, .. } in std::mem::take(&mut self.unwritten) {
            let broke = || {
                Error::new(
                    ErrorKind::Disconnected,
                    "the connection ended while the message was being written",
                )
            };
            self.finish(owner, QoS::AtMostOnce, bytes, result.and_then(|_| Err(broke())));
        }
    }

    /// Handles the writing of the first `written` bytes queued on the connection.
    pub fn handle_written(&mut self, written: u64) {
        while self.unwritten.front().is_some_and(|next| next.mark <= written) {
            let Unwritten { owner, bytes, result, .. } = self.unwritten.pop_front().expect("checked above");
            self.finish(owner, QoS::AtMostOnce, bytes, result);
        }
    }

    /// Sends what may be sent, about `budget` bytes; returns whether there is more.
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
        let mut more = false;
        if self.first_waits && !self.queue.is_empty() {
            more = self.fill_window(now, ids, connection, limit);
            if self.first_waits {
                // There is room for it after an answer, and the others wait behind it.
                self.settle(ids);
                return more;
            }
        }
        // QoS 0 gets half of the budget, so that a flood of it does not starve the others.
        self.send_at_most_once(now, connection, connection.queued() + budget as u64 / 2);
        more |= !self.at_most_once.is_empty();
        more |= self.fill_window(now, ids, connection, limit);
        self.settle(ids);
        more
    }

    /// Sends publications of QoS 1 and 2 as far as the window has room; returns whether `limit`
    /// left any unsent.
    fn fill_window(
        &mut self,
        now: Instant,
        ids: &mut PacketIds,
        connection: &mut Connection,
        limit: u64,
    ) -> bool {
        let maximum = self.own_maximum.min(connection.limits().receive_maximum);
        if self.records.is_none() {
            return self.enter_and_send(now, ids, maximum, connection, limit);
        }
        self.enter(now, ids, maximum);
        self.resume(now, connection, limit);
        self.release(now, ids, connection);
        connection.queued() >= limit
    }

    fn send_at_most_once(&mut self, now: Instant, connection: &mut Connection, limit: u64) {
        while connection.queued() < limit
            && let Some(Queued { owner, mut publish, expires }) = self.at_most_once.pop_front()
        {
            let sent = admit(now, &mut publish, expires).and_then(|()| connection.publish(now, &publish));
            let (bytes, result) = (publish.weight(), sent.map(|()| Reason::Success));
            if result.is_err() && self.unwritten.is_empty() {
                self.finish(owner, QoS::AtMostOnce, bytes, result);
            } else {
                self.unwritten.push_back(Unwritten { mark: connection.queued(), owner, bytes, result });
            }
        }
    }

    /// Sends publications as they enter the window; returns whether `limit` left any unsent.
    fn enter_and_send(
        &mut self,
        now: Instant,
        ids: &mut PacketIds,
        maximum: u16,
        connection: &mut Connection,
        limit: u64,
    ) -> bool {
        while self.resumed == self.window.len()
            && let Some(next) = self.queue.front()
            && self.unanswered.has_room(next.publish.qos, maximum, connection.limits())
        {
            if connection.queued() >= limit {
                return true;
            }
            let Some(id) = ids.take(self.first + self.window.len() as u64) else { return false };
            let Queued { owner, mut publish, expires } = self.queue.pop_front().expect("checked above");
            self.first_waits = false;
            publish.packet_id = Some(id);
            let sent = admit(now, &mut publish, expires).and_then(|()| connection.publish(now, &publish));
            if sent.is_ok() {
                self.unanswered.add(publish.qos);
            }
            self.resumed += 1;
            // A failed publication also waits for its predecessors.
            let state = sent.map_or_else(|error| State::Done(Err(error)), |()| State::Published);
            let flight = InFlight { owner, id, publish, state, sent: true, ever_sent: true, waits_for: 0 };
            self.window.push_back(flight);
        }
        false
    }

    /// Lets publications of a durable producer enter the window; each is sent once its record is
    /// stored.
    fn enter(&mut self, now: Instant, ids: &mut PacketIds, maximum: u16) {
        while self.window.len() < usize::from(maximum) && !self.queue.is_empty() {
            let Some(id) = ids.take(self.first + self.window.len() as u64) else { return };
            let Queued { owner, mut publish, expires } = self.queue.pop_front().expect("checked above");
            self.first_waits = false;
            if let Err(error) = admit(now, &mut publish, expires) {
                ids.release(id);
                self.end(owner, &publish, Err(error));
                continue;
            }
            let records = self.records.as_mut().expect("the producer is durable");
            let waits_for = match publish.qos {
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
                ever_sent: false,
                waits_for,
            });
        }
    }

    /// Sends the PUBRELs whose records are stored, in the order of the PUBRECs [MQTT-4.6.0-4].
    fn release(&mut self, now: Instant, ids: &PacketIds, connection: &mut Connection) {
        let Some(records) = &mut self.records else { return };
        let mut due = Vec::new();
        while records.pubrels_due.front().is_some_and(|(record, _)| *record <= records.written) {
            due.extend(records.pubrels_due.pop_front());
        }
        for (_, id) in due {
            if self.flight(ids, id).is_some_and(|flight| matches!(flight.state, State::Released)) {
                // Four bytes fit any limit. Sending fails only while closing; PUBREL is then resent
                // on the next connection.
                let _ = connection.send(now, Packet::PubRel(Ack::new(id)));
            }
        }
    }

    /// Number of records stored.
    fn written(&self) -> u64 {
        self.records.as_ref().map_or(0, |records| records.written)
    }

    /// Resends the window in its original order [MQTT-4.4.0-1], [MQTT-4.6.0-1].
    fn resume(&mut self, now: Instant, connection: &mut Connection, limit: u64) {
        let maximum = connection.limits().receive_maximum;
        let written = self.written();
        while self.resumed < self.window.len() && connection.queued() < limit {
            let flight = &mut self.window[self.resumed];
            let qos = flight.publish.qos;
            let sent = match &flight.state {
                _ if flight.sent => Ok(()),
                State::Done(_) => Ok(()),
                _ if flight.waits_for > written => return,
                State::Released => connection.send(now, Packet::PubRel(Ack::new(flight.id))).inspect(|()| {
                    self.unanswered.add(qos);
                    flight.sent = true;
                }),
                State::Published if !self.unanswered.has_room(qos, maximum, connection.limits()) => return,
                State::Published => {
                    flight.publish.dup = flight.ever_sent;
                    flight.ever_sent = true;
                    connection.publish(now, &flight.publish).inspect(|()| {
                        self.unanswered.add(qos);
                        flight.sent = true;
                    })
                }
            };
            if let Err(error) = sent {
                // The broker's limits are stricter than before, so the message can never be
                // completed.
                flight.state = State::Done(Err(error));
                flight.sent = true;
            }
            self.resumed += 1;
        }
    }

    /// Handles PUBACK.
    pub fn handle_puback(&mut self, ids: &mut PacketIds, ack: &Ack) -> Result<(), Violation> {
        let Some(flight) = self.flight(ids, ack.packet_id) else { return Ok(()) };
        if flight.publish.qos != QoS::AtLeastOnce {
            return Err(Violation::protocol(format!(
                "the broker sent PUBACK {} for a QoS 2 message (4.3.3)",
                ack.packet_id
            )));
        }
        self.answer(ids, ack.packet_id, ack);
        Ok(())
    }

    /// Handles PUBREC, which is answered with PUBREL unless it is a refusal.
    pub fn handle_pubrec(
        &mut self,
        now: Instant,
        ids: &mut PacketIds,
        ack: &Ack,
        connection: &mut Connection,
    ) -> Result<(), Violation> {
        let id = ack.packet_id;
        let Some(flight) = self.flight(ids, id) else {
            // The broker waits to complete a flow that is unknown here (4.3.3, 3.6.2.1).
            let reason = Reason::PacketIdentifierNotFound;
            if !ack.reason.is_error() {
                let _ = connection.send(now, Packet::PubRel(Ack::with_reason(id, reason)));
            }
            return Ok(());
        };
        if flight.publish.qos != QoS::ExactlyOnce {
            return Err(Violation::protocol(format!(
                "the broker sent PUBREC {id} for a QoS 1 message (4.3.2)"
            )));
        }
        if ack.reason.is_error() {
            self.answer(ids, id, ack);
            return Ok(());
        }
        // From here on the message itself is never sent again.
        let again = matches!(std::mem::replace(&mut flight.state, State::Released), State::Released);
        let late = !std::mem::replace(&mut flight.sent, true);
        let (owner, waits_for) = (flight.owner, flight.waits_for);
        if late {
            self.unanswered.add(QoS::ExactlyOnce);
        }
        let Some(records) = &mut self.records else {
            let _ = connection.send(now, Packet::PubRel(Ack::new(id)));
            return Ok(());
        };
        let waits_for = if again { waits_for } else { records.push(Record::Released(owner)) };
        records.pubrels_due.push_back((waits_for, id));
        if let Some(flight) = self.flight(ids, id) {
            flight.waits_for = waits_for;
        }
        Ok(())
    }

    /// Handles PUBCOMP.
    pub fn handle_pubcomp(&mut self, ids: &mut PacketIds, ack: &Ack) -> Result<(), Violation> {
        let Some(flight) = self.flight(ids, ack.packet_id) else { return Ok(()) };
        if !matches!(flight.state, State::Released) {
            return Err(Violation::protocol(format!(
                "the broker sent PUBCOMP {} before PUBREC (4.3.3)",
                ack.packet_id
            )));
        }
        // "Packet identifier not found" also means success: the broker completed the flow earlier.
        self.answer(ids, ack.packet_id, &Ack::new(ack.packet_id));
        Ok(())
    }

    /// Fails all publications without an outcome.
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
            self.report_dropped();
        }
        let waiting: Vec<_> = self.at_most_once.drain(..).chain(self.queue.drain(..)).collect();
        for queued in waiting {
            self.end(queued.owner, &queued.publish, Err(error.clone()));
        }
        self.resumed = 0;
        self.unanswered = Unanswered::default();
    }

    /// Returns the next outcome; for each QoS, in the order of the pushes.
    pub fn poll_event(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    fn flight(&mut self, ids: &PacketIds, id: PacketId) -> Option<&mut InFlight> {
        let index = ids.owner(id)?.checked_sub(self.first)?;
        let flight = self.window.get_mut(usize::try_from(index).ok()?)?;
        (flight.id == id && !matches!(flight.state, State::Done(_))).then_some(flight)
    }

    /// Completes the flow of `id`.
    fn answer(&mut self, ids: &mut PacketIds, id: PacketId, ack: &Ack) {
        let Some(flight) = self.flight(ids, id) else { return };
        let (was_sent, qos) = (flight.sent, flight.publish.qos);
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
        if was_sent {
            self.unanswered.remove(qos);
        }
        self.settle(ids);
    }

    /// Completes the finished publications at the head of the window. Their identifiers are not
    /// freed earlier, because a lookup by a reused identifier would find the old publication.
    fn settle(&mut self, ids: &mut PacketIds) {
        while matches!(self.window.front(), Some(InFlight { state: State::Done(_), .. })) {
            let flight = self.window.pop_front().expect("checked above");
            ids.release(flight.id);
            self.first += 1;
            self.resumed = self.resumed.saturating_sub(1);
            let State::Done(result) = flight.state else { unreachable!("checked above") };
            self.end(flight.owner, &flight.publish, result);
            self.report_dropped();
        }
    }

    fn end(&mut self, owner: u64, publish: &Publish, result: Result<Reason>) {
        self.finish(owner, publish.qos, publish.weight(), result);
    }

    fn finish(&mut self, owner: u64, qos: QoS, bytes: usize, result: Result<Reason>) {
        self.pending_messages -= 1;
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

/// Updates the message expiry to the time that remains, and rejects an expired message.
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

/// Checks that `publish` can be sent in `version`: MQTT 3 has no properties.
pub fn check_version(publish: &Publish, version: Version) -> Result<()> {
    if version == Version::V5 || publish.properties.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        "MQTT 3 does not support message properties: connect with version=5",
    ))
}
