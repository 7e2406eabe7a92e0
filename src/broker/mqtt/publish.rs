//! PUBLISH from clients, and its way to the queues of the subscribers.

use std::rc::Rc;
use std::time::Duration;

use super::message::{Message, NEVER, Queued};
use super::options::{FullQueue, SlowSubscriber};
use super::routes::{DeliveryOptions, Route};
use super::{Action, Broker, Due, GRACE, HOUSEKEEPING, PACE, RESERVED, TOTAL_OUTPUT};
use crate::log::Source;
use crate::logger::{self, Logger};
use crate::permissions::Client;
use crate::store::mqtt::{Op, QueueRow};
use crate::tree;
use forebay_mqtt::packet::{Ack, PacketId, Publish};
use forebay_mqtt::{Packet, Property, QoS, Reason, Version, Violation};
use tracing::Level;

/// Time without a drop after which the next one is told.
const QUIET: Duration = Duration::from_secs(10);

/// The outcome of routing a message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    /// Whether a session, or the retained slot, took it.
    matched: bool,
    taken: bool,
    /// Whether a queue had no room for it.
    full: bool,
    /// Whether one that had no room should have kept it beyond the connection of its session.
    lost: bool,
    /// A connected session that is far behind.
    behind: Option<u64>,
    /// A connection that reads QoS 0 more slowly than it arrives.
    slow: Option<u64>,
}

/// The connection and the session of a client that publishes.
#[derive(Clone, Copy)]
struct Publisher {
    connection: u64,
    session: u64,
}

impl Broker {
    pub(super) fn handle_publish(
        &mut self,
        id: u64,
        number: u64,
        mut publish: Publish,
    ) -> Result<(), Violation> {
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        self.counters.published += 1;
        connection.resolve(&mut publish, self.settings.limits.topic_alias_maximum)?;
        if publish.topic.len() > tree::MAX_LEVELS && !tree::fits(&publish.topic) {
            return Err(Violation {
                reason: Reason::TopicNameInvalid,
                message: format!("the topic has more than {} levels", tree::MAX_LEVELS),
            });
        }
        let own = publish.topic.starts_with("$SYS");
        let denied = own || self.settings.permissions.is_some() && !self.permits(id, number, &publish.topic);
        self.counters.denied += u64::from(denied);
        let route = if denied { None } else { Some(self.route(&publish.topic)) };
        let publisher = Publisher { connection: id, session: number };
        let Some(packet_id) = publish.packet_id else {
            self.publish_unacknowledged(publisher, publish, route.as_deref());
            return Ok(());
        };
        self.publish_acknowledged(publisher, packet_id, publish, route.as_deref())
    }

    /// Handles a PUBLISH of QoS 0. Without a `route`, the client may not publish to the topic.
    #[inline]
    fn publish_unacknowledged(&mut self, publisher: Publisher, publish: Publish, route: Option<&Route>) {
        let number = publisher.session;
        let retained = publish.retain && self.refusal().is_some();
        let Some(route) = route.filter(|route| route.complete && !retained) else {
            self.counters.dropped += 1;
            return;
        };
        if publish.retain {
            self.distribute(publish, route, Some(number));
        } else if let Some(slow) = self.scatter(&publish, route, Some(number)) {
            self.pace(publisher.connection, slow);
        }
    }

    /// Handles a PUBLISH of QoS 1 or 2. Without a `route`, the client may not publish to the topic.
    #[inline]
    fn publish_acknowledged(
        &mut self,
        Publisher { connection: id, session: number }: Publisher,
        packet_id: PacketId,
        publish: Publish,
        route: Option<&Route>,
    ) -> Result<(), Violation> {
        let limits = &self.settings.limits;
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        let (qos, version) = (publish.qos, connection.version);
        let repeated = qos == QoS::ExactlyOnce
            && self.sessions.get(&number).is_some_and(|session| session.received.contains(&packet_id));
        if !repeated {
            connection.unanswered += 1;
            if connection.unanswered > usize::from(limits.receive_maximum) && version == Version::V5 {
                return Err(Violation {
                    reason: Reason::ReceiveMaximumExceeded,
                    message: format!("more than {} messages in flight", limits.receive_maximum),
                });
            }
        }
        let bytes = publish.weight() + 64;
        let mut ack = Ack::new(packet_id);
        let mut behind = None;
        if repeated {
            // Sent again because our PUBREC was lost: acknowledge it again without a second
            // delivery.
        } else if let Some(route) = route {
            if let Some((reason, text)) = self.refusal().or_else(|| (!route.complete).then(too_many_filters))
            {
                if version != Version::V5 {
                    // MQTT 3.x cannot refuse a PUBLISH: the client keeps its message and sends it
                    // again.
                    return Err(Violation { reason, message: text });
                }
                ack.reason = reason;
                ack.properties.push(Property::ReasonString(text.into()));
            } else {
                let outcome = self.distribute(publish, route, Some(number));
                behind = outcome.behind;
                if let Some(slow) = outcome.slow {
                    self.pace(id, slow);
                }
                ack.reason = self.outcome_reason(outcome, version)?;
                if qos == QoS::ExactlyOnce && !ack.reason.is_error() {
                    self.receive(number, packet_id);
                }
            }
        } else {
            self.deny(&mut ack, &publish.topic, version);
        }
        let packet = if qos == QoS::ExactlyOnce { Packet::PubRec(ack) } else { Packet::PubAck(ack) };
        let answer = Action::Answer { connection: id, packet, behind };
        if let Some(action) = self.commits.when_written_charging(id, bytes, answer) {
            self.act(action);
        }
        Ok(())
    }

    /// Says in the acknowledgement that the client may not publish to the topic. MQTT 3.x cannot
    /// refuse a PUBLISH, and a client would send it again and again: its message is dropped.
    fn deny(&mut self, ack: &mut Ack, topic: &str, version: Version) {
        if version != Version::V5 {
            self.counters.dropped += 1;
            return;
        }
        ack.reason = Reason::NotAuthorized;
        let own = topic.starts_with("$SYS");
        let text = if own { RESERVED } else { "no permission to publish to this topic" };
        ack.properties.push(Property::ReasonString(text.into()));
    }

    /// The reason that the acknowledgement of a routed message gives.
    #[inline]
    fn outcome_reason(&self, outcome: Outcome, version: Version) -> Result<Reason, Violation> {
        Ok(match outcome {
            Outcome { taken: false, full: true, .. } if version == Version::V5 => Reason::QuotaExceeded,
            Outcome { matched: false, .. } if version == Version::V5 => Reason::NoMatchingSubscribers,
            // MQTT 3.x cannot say it: the client keeps its message and sends it again.
            Outcome { taken: false, lost: true, .. }
                if version != Version::V5 && self.settings.limits.full_queue == FullQueue::Refuse =>
            {
                let message = "no queue has room for the message (mqtt_max_queue, mqtt_max_queue_bytes)";
                return Err(Violation { reason: Reason::QuotaExceeded, message: message.into() });
            }
            _ => Reason::Success,
        })
    }

    /// Publishes a message for an operator. Gives whether it has subscribers, or the reason of a
    /// refusal.
    pub(super) fn publish_for_operator(&mut self, publish: Publish) -> Result<bool, (Reason, String)> {
        if publish.topic.starts_with("$SYS") {
            return Err((Reason::NotAuthorized, RESERVED.to_owned()));
        }
        if !tree::fits(&publish.topic) {
            let text = format!("the topic has more than {} levels", tree::MAX_LEVELS);
            return Err((Reason::TopicNameInvalid, text));
        }
        let route = self.route(&publish.topic);
        if !route.complete {
            return Err(too_many_filters());
        }
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        let limits = &self.settings.limits;
        let (limit, bytes) = (limits.max_retained, limits.max_retained_bytes);
        let kept = publish.retain && !publish.payload.is_empty();
        if kept && self.retained.is_full(&publish.topic, publish.weight(), limit, bytes) {
            let text = format!(
                "a limit on retained messages is reached: {limit} of them, or {} MiB of memory",
                bytes >> 20
            );
            return Err((Reason::QuotaExceeded, text));
        }
        self.counters.published += 1;
        let outcome = self.distribute(publish, &route, None);
        if outcome.full && !outcome.taken {
            return Err((Reason::QuotaExceeded, "no queue has room for the message".to_owned()));
        }
        Ok(outcome.matched)
    }

    /// Keeps a QoS 2 packet identifier until PUBREL.
    fn receive(&mut self, number: u64, packet_id: PacketId) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        session.received.insert(packet_id);
        if session.durable {
            self.write(Op::Received(number, packet_id.get()));
        }
    }

    pub(super) fn handle_pubrel(&mut self, id: u64, number: u64, ack: &Ack) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let known = session.received.remove(&ack.packet_id);
        if known && session.durable {
            // Must be written before PUBCOMP allows the client to reuse the identifier.
            self.write(Op::Released(number, ack.packet_id.get()));
        }
        let reason = if known { Reason::Success } else { Reason::PacketIdentifierNotFound };
        let packet = Packet::PubComp(Ack::with_reason(ack.packet_id, reason));
        self.when_written(Action::Answer { connection: id, packet, behind: None });
    }

    /// Pauses reading from a publisher until a QoS 0 subscriber has read its output.
    fn pace(&mut self, id: u64, slow: u64) {
        if let Some(connection) =
            self.connections.get_mut(&slow).filter(|connection| id != slow && !connection.stalled)
        {
            if connection.pacing.is_empty() && self.settings.limits.slow_subscriber != SlowSubscriber::Wait {
                let until = self.now + GRACE;
                connection.pacing_until = Some(until);
                self.timers.insert((until, Due::Pace(slow)));
            }
            connection.pacing.insert(id);
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.paced_by = Some(slow);
            }
        }
    }

    /// Sends a QoS 0 message without RETAIN to the connected subscribers. Returns the connection of
    /// a slow one.
    pub(super) fn scatter(&mut self, publish: &Publish, route: &Route, from: Option<u64>) -> Option<u64> {
        let (mut slow, mut parked) = (None, None);
        let sessions = &self.sessions;
        let connected = |number| {
            let connection = sessions.get(&number)?.connection;
            connection.filter(|_| !route.barred.contains(&number)).map(|_| 1)
        };
        let picked = route.groups.iter().filter_map(|group| {
            let (session, delivery) = self.routes.pick(*group, connected)?;
            Some(SharedCopy { group: *group, session, delivery })
        });
        let mut shared: Vec<SharedCopy> = picked.collect();
        for target in &route.targets {
            let delivery =
                if from == Some(target.session) { target.own.as_ref() } else { Some(&target.delivery) };
            if let Some(delivery) = delivery {
                // All are sent at QoS 0.
                self.join(&mut shared, target.session);
                slow = self.forward(publish, target.session, delivery, &mut parked).or(slow);
            }
        }
        while let Some(SharedCopy { session, delivery, .. }) = shared.pop() {
            self.join(&mut shared, session);
            slow = self.forward(publish, session, &delivery, &mut parked).or(slow);
        }
        slow
    }

    /// Takes out the copies of shared subscriptions that a session does not get beside another one,
    /// and gives their highest QoS and their groups. Clients of MQTT 5 get each: they tell copies
    /// by their subscription identifiers.
    fn join(&self, shared: &mut Vec<SharedCopy>, session: u64) -> Option<(QoS, Vec<u64>)> {
        if shared.is_empty() || !self.sessions.get(&session)?.gets_one_copy {
            return None;
        }
        let own: Vec<_> = shared.extract_if(.., |copy| copy.session == session).collect();
        let qos = own.iter().map(|copy| copy.delivery.qos).max()?;
        Some((qos, own.iter().map(|copy| copy.group).collect()))
    }

    /// Sends a QoS 0 message to one session, if it is connected and not too far behind. Returns its
    /// connection if that is slow. `parked` is the form of the message that waits behind replays.
    fn forward(
        &mut self,
        publish: &Publish,
        number: u64,
        delivery: &DeliveryOptions,
        parked: &mut Option<Rc<Message>>,
    ) -> Option<u64> {
        let session = self.sessions.get(&number)?;
        let id = session.connection?;
        let (replaying, waiting) = (session.replaying(), session.parked_bytes);
        let before = self.connections.get(&id)?.transmit.len();
        let full =
            before + waiting > self.settings.limits.max_output || self.unsent + self.parked > TOTAL_OUTPUT;
        if full || replaying && !self.park(publish, number, delivery, parked) {
            // One that takes its replay is not slow.
            let slow = !replaying || before > self.settings.limits.max_output;
            self.drop_for(number, id, slow);
            return None;
        }
        if replaying {
            return (before + waiting > PACE).then_some(id);
        }
        let connection = self.connections.get_mut(&id)?;
        let mut publish = Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: publish.retain && delivery.retain_as_published,
            topic: publish.topic.clone(),
            packet_id: None,
            properties: publish.properties.clone(),
            payload: publish.payload.clone(),
        };
        if !publish.properties.is_empty() {
            publish.properties.retain(|property| !matches!(property, Property::TopicAlias(_)));
        }
        for id in delivery.ids.iter() {
            publish.properties.push(Property::SubscriptionIdentifier(*id));
        }
        if before == 0 {
            self.wakes.push_back(id);
        }
        if connection.forward(publish) {
            let added = connection.transmit.len() - before;
            connection.unsent += added;
            self.unsent += added;
            self.counters.delivered += 1;
        } else {
            self.counters.dropped += 1;
        }
        (before > PACE).then_some(id)
    }

    /// Drops a QoS 0 message for a subscriber that is too far behind, and is to blame if it is
    /// `slow`.
    fn drop_for(&mut self, number: u64, id: u64, slow: bool) {
        self.counters.dropped += 1;
        let (Some(session), Some(connection)) = (self.sessions.get(&number), self.connections.get_mut(&id))
        else {
            return;
        };
        let told = connection.told_of_drops.replace(self.now);
        if told.is_none_or(|at| self.now.saturating_duration_since(at) > QUIET) {
            note_drops(self.settings.client(session), "it does not take its output");
        }
        if slow && self.settings.limits.slow_subscriber == SlowSubscriber::Disconnect {
            self.too_slow.push(id);
        }
    }

    /// Routes a message to its subscribers and to the retained slot of its topic.
    pub(super) fn distribute(&mut self, publish: Publish, route: &Route, from: Option<u64>) -> Outcome {
        let message = Rc::new(Message::new(publish, self.moment()));
        // Of the messages of clients, the others were refused before. A will has no publisher to be
        // told.
        self.counters.dropped += u64::from(!route.complete);
        let mut to = Distribution { from, ..Distribution::default() };
        if message.publish.retain {
            self.retain(&message, &mut to);
        }
        self.distribute_to(&message, route, &mut to);
        if !to.items.is_empty() {
            self.when_written(Action::Deliver(to.items));
        }
        to.outcome
    }

    fn distribute_to(&mut self, message: &Rc<Message>, route: &Route, to: &mut Distribution) {
        let picked = route.groups.iter().filter_map(|group| {
            let (session, delivery) = self.pick_member(*group, route, message)?;
            Some(SharedCopy { group: *group, session, delivery })
        });
        let mut shared: Vec<SharedCopy> = picked.collect();
        for target in &route.targets {
            let own = to.from == Some(target.session);
            let delivery = if own { target.own.as_ref() } else { Some(&target.delivery) };
            let Some(delivery) = delivery else { continue };
            match self.join(&mut shared, target.session) {
                None => self.assign(message, target.session, delivery, Vec::new(), to),
                Some((qos, groups)) => {
                    let delivery = DeliveryOptions { qos: qos.max(delivery.qos), ..delivery.clone() };
                    self.assign(message, target.session, &delivery, groups, to);
                }
            }
        }
        self.assign_shared(message, shared, to);
    }

    /// Routes a message to the members of shared subscriptions that were picked for it.
    fn assign_shared(&mut self, message: &Rc<Message>, mut shared: Vec<SharedCopy>, to: &mut Distribution) {
        while let Some(SharedCopy { group, session, mut delivery }) = shared.pop() {
            let mut groups = vec![group];
            if let Some((qos, others)) = self.join(&mut shared, session) {
                delivery.qos = qos.max(delivery.qos);
                groups.extend(others);
            }
            self.assign(message, session, &delivery, groups, to);
        }
    }

    /// The member of a shared subscription that is to get a message.
    fn pick_member(
        &mut self,
        group: u64,
        route: &Route,
        message: &Message,
    ) -> Option<(u64, DeliveryOptions)> {
        let (qos, weight) = (message.publish.qos, message.weight());
        if qos != QoS::AtMostOnce {
            let limits = &self.settings.limits;
            let is_full = |number: &u64| {
                let session = self.sessions.get(number);
                session.is_some_and(|s| s.is_full(weight, limits.max_queue, limits.max_queue_bytes))
            };
            let full: Vec<u64> = self.routes.members(group).filter(is_full).collect();
            full.into_iter().for_each(|number| self.drop_expired(number));
        }
        let room = self.memory_of_each(message, weight);
        let (sessions, limits) = (&self.sessions, &self.settings.limits);
        let rank = |number| {
            let session = sessions.get(&number).filter(|_| !route.barred.contains(&number))?;
            let connected = session.connection.is_some();
            if qos == QoS::AtMostOnce {
                return connected.then_some(1);
            }
            let full = !session.durable && session.bytes + weight > room
                || session.is_full(weight, limits.max_queue, limits.max_queue_bytes);
            Some(u8::from(connected) + 2 * u8::from(!full))
        };
        self.routes.pick(group, rank)
    }

    /// Gives a message of shared subscriptions to another member of each: the session that had it
    /// has ended (4.8.2).
    pub(super) fn hand_over(&mut self, item: &Queued) {
        if item.groups.is_empty() {
            return;
        }
        let now = self.moment();
        let read = |source: &mut Box<dyn Source>, sequence| {
            let entry = source.read(self.log, sequence, 1, 1).ok()?.pop();
            let entry = entry.filter(|entry| entry.sequence == sequence);
            entry.as_ref().and_then(|entry| Message::from_entry(entry, now))
        };
        let stored = || read(self.source.as_mut()?, item.sequence?);
        let Some(message) = item.message.clone().or_else(stored) else {
            let text = "a message of a shared subscription, whose session ended, could not be read";
            self.damage.get_or_insert_with(|| text.to_owned());
            self.counters.dropped += 1;
            return;
        };
        let route = self.route(message.topic());
        let live = if message.expired(self.run_ms()) { &[] } else { &item.groups[..] };
        let picked = live.iter().filter_map(|group| {
            let (session, delivery) = self.pick_member(*group, &route, &message)?;
            Some(SharedCopy { group: *group, session, delivery })
        });
        let shared: Vec<SharedCopy> = picked.collect();
        self.counters.dropped += (item.groups.len() - shared.len()) as u64;
        let mut to = Distribution { sequence: item.sequence, ..Distribution::default() };
        self.assign_shared(&message, shared, &mut to);
        if !to.items.is_empty() {
            self.when_written(Action::Deliver(to.items));
        }
    }

    /// Routes a message to one session.
    fn assign(
        &mut self,
        message: &Rc<Message>,
        number: u64,
        delivery: &DeliveryOptions,
        groups: Vec<u64>,
        to: &mut Distribution,
    ) {
        let qos = message.publish.qos.min(delivery.qos);
        let retain = message.publish.retain && delivery.retain_as_published;
        let limits = &self.settings.limits;
        let Some(session) = self.sessions.get_mut(&number) else { return };
        to.outcome.matched = true;
        if qos == QoS::AtMostOnce {
            if session.connection.is_some() {
                to.outcome.taken = true;
                let slow = self.forward(&message.publish, number, delivery, &mut to.parked);
                to.outcome.slow = slow.or(to.outcome.slow);
            }
            return;
        }
        let (weight, max_queue, max_bytes) = (message.weight(), limits.max_queue, limits.max_queue_bytes);
        if session.is_full(weight, max_queue, max_bytes) {
            self.drop_expired(number);
        }
        let room = self.memory_of_each(message, weight);
        let limits = &self.settings.limits;
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let no_memory = !session.durable && session.bytes + weight > room;
        if no_memory || session.is_full(weight, max_queue, max_bytes) {
            to.outcome.full = true;
            to.outcome.lost |= session.expiry > 0;
            self.counters.dropped += 1;
            if !std::mem::replace(&mut session.dropping, true) {
                let why = if no_memory {
                    "the queues of sessions that are not stored have reached their limit in sum"
                } else {
                    "its queue is full"
                };
                note_drops(self.settings.client(session), why);
            }
            if !no_memory && limits.slow_subscriber == SlowSubscriber::Disconnect {
                self.too_slow.extend(session.connection);
            }
            return;
        }
        session.note_room(limits.max_queue, limits.max_queue_bytes);
        to.outcome.taken = true;
        // A client that publishes to itself must not wait for itself.
        if to.from != Some(number) && session.is_overfull(limits.max_queue_bytes) {
            to.outcome.behind = Some(number);
        }
        let item = self.admit(number, message, qos, retain, delivery.ids.clone(), &mut to.sequence);
        to.items.extend(item.map(|item| (number, Queued { groups: groups.into(), ..item })));
    }

    /// Reserves a place in a session's queue; the message is queued there once it is written.
    /// `sequence` is its number in the store, and is set when it gets one.
    pub(super) fn admit(
        &mut self,
        number: u64,
        message: &Rc<Message>,
        qos: QoS,
        retain: bool,
        ids: Rc<[u32]>,
        sequence: &mut Option<u64>,
    ) -> Option<Queued> {
        let session = self.sessions.get_mut(&number)?;
        session.pending += 1;
        let position = session.position();
        self.admit_at(number, position, message, qos, retain, ids, sequence)
    }

    /// Like [`Self::admit`], at a position that was reserved before. The message is not counted as
    /// pending.
    #[allow(clippy::too_many_arguments, reason = "the parts of a row of the queue")]
    pub(super) fn admit_at(
        &mut self,
        number: u64,
        position: u64,
        message: &Rc<Message>,
        qos: QoS,
        retain: bool,
        ids: Rc<[u32]>,
        sequence: &mut Option<u64>,
    ) -> Option<Queued> {
        let session = self.sessions.get_mut(&number)?;
        let weight = message.weight();
        session.bytes += weight;
        self.resident += weight;
        let durable = session.durable && qos != QoS::AtMostOnce;
        let sequence = if durable { Some(self.store(message, sequence)) } else { None };
        if let Some(sequence) = sequence {
            self.need(sequence);
            let flags = qos as u8 | u8::from(retain) << 2;
            let ids = ids.to_vec();
            let row = QueueRow { position, sequence, flags, ids, packet_id: 0, released: false };
            self.write(Op::Enqueue(number, row));
        }
        let expires_run_ms = message.expires_run_ms.or(Some(NEVER));
        let message = Some(message.clone());
        let item = Queued {
            position,
            sequence,
            qos,
            retain,
            ids,
            message,
            expires_run_ms,
            weight,
            groups: Box::default(),
        };
        self.hold(&item);
        Some(item)
    }

    /// The bytes that the queue of each session that is not stored may have with another message of
    /// `weight`. Such queues have one limit in sum, beyond which each still has its share: those of
    /// slow sessions must not take the room of others. A message that is in another queue costs no
    /// more. Without a store, all messages count in `max_store`.
    fn memory_of_each(&mut self, message: &Message, weight: usize) -> usize {
        let added = if message.holders.get() == 0 { weight } else { 0 };
        if !self.settings.stored || self.transient + added <= self.settings.max_transient {
            return usize::MAX;
        }
        // Once a second: there may be many sessions.
        if let Some((at, share)) = self.share
            && self.now < at + HOUSEKEEPING
        {
            return share;
        }
        let holders = self.sessions.values().filter(|session| !session.durable && session.bytes > 0).count();
        let share = self.settings.max_transient / (holders + 1);
        self.share = Some((self.now, share));
        share
    }

    /// Counts a message that only memory has. Its queues share it.
    fn hold(&mut self, item: &Queued) {
        if let Some(message) = item.message.as_ref().filter(|_| item.is_transient()) {
            let holders = message.holders.get();
            message.holders.set(holders + 1);
            self.transient += size_of::<Queued>() + if holders == 0 { message.weight() } else { 0 };
        }
    }

    /// Stops counting a message that only memory has.
    pub(super) fn let_go(&mut self, item: &Queued) {
        if let Some(message) = item.message.as_ref().filter(|_| item.is_transient()) {
            let holders = message.holders.get().saturating_sub(1);
            message.holders.set(holders);
            let freed = size_of::<Queued>() + if holders == 0 { message.weight() } else { 0 };
            self.transient = self.transient.saturating_sub(freed);
        }
    }

    /// The number of a message in the store. Stores the message if necessary.
    fn store(&mut self, message: &Message, sequence: &mut Option<u64>) -> u64 {
        *sequence.get_or_insert_with(|| {
            let next = self.next_sequence;
            self.next_sequence += 1;
            let log = self.log;
            self.write(Op::Append(log, message.to_entry(next)));
            next
        })
    }

    /// Replaces or clears the retained message of the topic.
    fn retain(&mut self, message: &Rc<Message>, to: &mut Distribution) {
        if message.publish.payload.is_empty() {
            self.unretain(message.topic());
            return;
        }
        let limits = &self.settings.limits;
        let (limit, bytes) = (limits.max_retained, limits.max_retained_bytes);
        if self.retained.is_full(message.topic(), message.weight(), limit, bytes) {
            (to.outcome.full, to.outcome.lost) = (true, true);
            self.counters.dropped += 1;
            return;
        }
        to.outcome.taken = true;
        let sequence = self.settings.stored.then(|| self.store(message, &mut to.sequence));
        if let Some(sequence) = sequence {
            self.need(sequence);
            self.write(Op::Retain((&**message.topic()).into(), sequence));
        }
        let before = self.retained.set(message.clone(), sequence);
        if let Some(sequence) = before.and_then(|slot| slot.sequence) {
            self.release(sequence);
        }
    }

    /// Clears the retained message of the topic.
    pub(super) fn unretain(&mut self, topic: &str) {
        let Some(slot) = self.retained.clear(topic) else { return };
        if let Some(sequence) = slot.sequence {
            self.write(Op::Unretain(topic.into()));
            self.release(sequence);
        }
    }
}

/// The refusal of a message whose subscribers cannot all be found in the time that one message may
/// take.
fn too_many_filters() -> (Reason, String) {
    let text = "too many filters have to be compared with this topic: use fewer levels, or fewer wildcards in filters";
    (Reason::QuotaExceeded, text.to_owned())
}

/// Writes to the log that a subscriber begins to lose messages. Each of them is counted.
fn note_drops(client: Client<'_>, why: &str) {
    logger::write_limited(Level::WARN, Logger::Delivery, || {
        let [user, id] = [client.user, client.id].map(|text| logger::cut(text.unwrap_or_default()));
        let text = format!("mqtt: messages for client {id:?} are dropped: {why}");
        logger::about("dropping", "mqtt", &user, &id, text).with("reason", why)
    });
}

/// A copy of a message for a member of a shared subscription.
struct SharedCopy {
    group: u64,
    session: u64,
    delivery: DeliveryOptions,
}

/// A message that is being routed to several sessions.
#[derive(Default)]
struct Distribution {
    from: Option<u64>,
    sequence: Option<u64>,
    items: Vec<(u64, Queued)>,
    /// The form of the message that waits behind replays.
    parked: Option<Rc<Message>>,
    outcome: Outcome,
}
