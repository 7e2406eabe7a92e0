//! The client's session: outgoing messages, incoming messages and subscriptions. It outlives its
//! connections.
//!
//! ```text
//!              ┌──────────┐  CONNACK: attach   ┌──────────┐
//!  new ───────►│ Detached │───────────────────►│ Attached │
//!              └──────────┘◄───────────────────└──────────┘
//!                          end of the socket: detach
//! ```
//! On attaching, Session Present is authoritative (3.2.2.1.1): if set, the window is resent and the
//! broker still has the confirmed subscriptions; otherwise both are established again.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use bytestring::ByteString;

use crate::connection::Connection;
use crate::consumer::{Consumer, Token};
use crate::packet::{PacketId, Publish, Subscribe, SubscribeOptions, Unsubscribe};
use crate::producer::{Outcome, PacketIds, Producer};
use crate::topic::Filter;
use crate::{Packet, Properties, Property, Reason, Violation};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::random::HashMap;

/// Bit that marks packet identifiers owned by subscriptions; the others belong to publications.
const REQUEST: u64 = 1 << 63;

/// Number of a subscription; in MQTT 5 also its subscription identifier.
pub type SubscriptionId = u32;

/// Events of a session.
#[derive(Debug)]
pub enum Event {
    /// Publications have ended, in one way or another. Unlike the `Stored` of the other protocols,
    /// this also reports what was dropped, refused, or sent with QoS 0, which no broker confirms;
    /// the outcomes of a producer keep one order, so they are one event.
    Published(Outcome),
    /// A message that matches at least one subscription.
    Message {
        /// The PUBLISH as received, with the full topic.
        publish: Publish,
        /// Token for [`Session::ack`].
        token: Token,
    },
    /// A subscription was answered, with one reason per filter, in order.
    Subscribed {
        /// Id passed to [`Session::subscribe`].
        id: SubscriptionId,
        /// The broker's reasons, or the error that prevented the request.
        result: Result<Vec<Reason>>,
    },
    /// A subscription has ended.
    Unsubscribed {
        /// Id passed to [`Session::subscribe`].
        id: SubscriptionId,
        /// The broker's reasons, of which there are none before MQTT 5, or its refusal.
        result: Result<Vec<Reason>>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// SUBSCRIBE is to be sent, or awaits its answer.
    Wanted(Option<PacketId>),
    /// SUBACK has arrived.
    Held,
    /// UNSUBSCRIBE is to be sent, or awaits its answer.
    Unwanted(Option<PacketId>),
}

#[derive(Debug)]
struct Subscription {
    filters: Vec<(Filter, SubscribeOptions)>,
    /// Whether the owner has been told the first answer.
    answered: bool,
    state: State,
}

/// A session, independent of its connection.
#[derive(Debug)]
pub struct Session {
    ids: PacketIds,
    producer: Producer,
    consumer: Consumer,
    subscriptions: BTreeMap<SubscriptionId, Subscription>,
    /// Number of subscriptions that have a filter: hardly ever more than one.
    filters: HashMap<Filter, usize>,
    /// Those that are not [`State::Held`]: each turn asks for them, and there may be ten thousand
    /// others.
    open: BTreeSet<SubscriptionId>,
    /// Packet identifiers of abandoned requests, in use until they are answered [MQTT-2.2.1-3].
    abandoned: Vec<PacketId>,
    /// Whether any subscription has something to send.
    requests: bool,
    attached: bool,
    events: VecDeque<Event>,
}

impl Session {
    /// Creates a session with at most `window` QoS 1 and 2 publications in flight, which accepts up
    /// to `receive_maximum` messages at a time.
    pub fn new(window: u16, receive_maximum: u16) -> Self {
        Self {
            ids: PacketIds::default(),
            producer: Producer::new(window),
            consumer: Consumer::new(receive_maximum),
            subscriptions: BTreeMap::new(),
            filters: HashMap::default(),
            open: BTreeSet::new(),
            abandoned: Vec::new(),
            requests: false,
            attached: false,
            events: VecDeque::new(),
        }
    }

    /// Whether the session has a connection.
    pub fn is_attached(&self) -> bool {
        self.attached
    }

    /// The sending half.
    pub fn producer(&mut self) -> &mut Producer {
        &mut self.producer
    }

    /// Enables records for the sending half: see [`Producer::set_durable`].
    pub fn set_durable(&mut self) {
        self.producer.set_durable();
    }

    /// Restores a publication that was in flight when an earlier process ended: see
    /// [`Producer::restore`].
    pub fn restore(&mut self, owner: u64, publish: Publish, id: PacketId, released: bool) -> Result<()> {
        self.producer.restore(&mut self.ids, owner, publish, id, released)
    }

    /// Number of publications without an outcome.
    pub fn pending_messages(&self) -> usize {
        self.producer.pending_messages()
    }

    /// Number of messages delivered and not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.consumer.unacknowledged()
    }

    /// The message that holds up the server: see [`Consumer::holds_up`].
    pub fn holds_up(&self) -> Option<(Token, Instant)> {
        self.consumer.holds_up()
    }

    /// Number of messages that may still come: see [`Consumer::room`].
    pub fn room(&self) -> usize {
        self.consumer.room()
    }

    /// Whether an answer of the broker is outstanding, so that reading must continue.
    pub fn awaits_answers(&self) -> bool {
        self.awaits_acknowledgements() || self.awaits_subscriptions()
    }

    /// Whether a subscription is awaiting its SUBACK or UNSUBACK.
    pub fn awaits_subscriptions(&self) -> bool {
        let is_open = |(id, subscription): (&SubscriptionId, &Subscription)| {
            (subscription.state != State::Held) == self.open.contains(id)
        };
        debug_assert!(self.subscriptions.iter().all(is_open) && self.open.len() <= self.subscriptions.len());
        !self.open.is_empty()
    }

    /// Whether publications are awaiting their acknowledgement.
    pub fn awaits_acknowledgements(&self) -> bool {
        self.producer.pending_messages() > 0
    }

    /// Requests a subscription. `id` must not be in use. Of a filter that another subscription has,
    /// the broker keeps the last SUBSCRIBE alone (3.8.4): it asks for what all of them need.
    pub fn subscribe(&mut self, id: SubscriptionId, filters: Vec<(Filter, SubscribeOptions)>) {
        debug_assert!(!filters.is_empty() && id > 0);
        self.insert(id, Subscription { filters, answered: false, state: State::Wanted(None) });
    }

    fn insert(&mut self, id: SubscriptionId, subscription: Subscription) {
        for (filter, _) in &subscription.filters {
            *self.filters.entry(filter.clone()).or_default() += 1;
        }
        self.subscriptions.insert(id, subscription);
        self.open.insert(id);
        self.requests = true;
    }

    /// Ends a subscription. Filters shared with another subscription remain subscribed at the
    /// broker.
    pub fn unsubscribe(&mut self, id: SubscriptionId) {
        if let Some(subscription) = self.subscriptions.get_mut(&id) {
            if let State::Wanted(Some(packet)) | State::Unwanted(Some(packet)) = subscription.state {
                self.abandoned.push(packet);
            }
            subscription.state = State::Unwanted(None);
            self.open.insert(id);
            self.requests = true;
        }
    }

    /// Ends the subscription to a filter that no subscription of this session object has: an
    /// earlier process made it, or it was dropped. `id` must not be in use.
    pub fn unsubscribe_filter(&mut self, id: SubscriptionId, filter: Filter) {
        let filters = vec![(filter, SubscribeOptions::default())];
        self.insert(id, Subscription { filters, answered: true, state: State::Unwanted(None) });
    }

    /// Drops a subscription without notifying the broker.
    pub fn drop_subscription(&mut self, id: SubscriptionId) {
        if let Some(subscription) = self.remove(id)
            && let State::Wanted(Some(packet)) | State::Unwanted(Some(packet)) = subscription.state
        {
            self.abandoned.push(packet);
        }
    }

    /// Handles CONNACK; `session_present` is the flag that it carried.
    pub fn attach(&mut self, session_present: bool) {
        self.attached = true;
        self.producer.attach(&mut self.ids, session_present);
        self.consumer.attach(session_present);
        self.abandoned.drain(..).for_each(|packet| self.ids.release(packet));
        for (id, subscription) in &mut self.subscriptions {
            match subscription.state {
                State::Held if session_present => {}
                State::Held => {
                    subscription.state = State::Wanted(None);
                    self.open.insert(*id);
                }
                State::Wanted(packet) | State::Unwanted(packet) => {
                    if let Some(packet) = packet {
                        self.ids.release(packet);
                    }
                    subscription.state = match subscription.state {
                        State::Unwanted(_) => State::Unwanted(None),
                        _ => State::Wanted(None),
                    };
                }
            }
        }
        self.requests = true;
        self.collect();
    }

    /// Handles the end of the connection.
    pub fn detach(&mut self) {
        self.attached = false;
        self.producer.detach();
        self.consumer.detach();
        self.collect();
    }

    /// Handles a packet from the broker.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        packet: Packet,
        connection: &mut Connection,
    ) -> Result<(), Violation> {
        match packet {
            Packet::Publish(publish) => {
                if let Some(token) = self.consumer.handle_publish(now, &publish, connection)? {
                    self.events.push_back(Event::Message { publish, token });
                }
            }
            Packet::PubRel(ack) => self.consumer.handle_pubrel(now, ack.packet_id, connection),
            Packet::PubAck(ack) => self.producer.handle_puback(&mut self.ids, &ack)?,
            Packet::PubRec(ack) => self.producer.handle_pubrec(now, &mut self.ids, &ack, connection)?,
            Packet::PubComp(ack) => self.producer.handle_pubcomp(&mut self.ids, &ack)?,
            Packet::SubAck(ack) => self.subscribed(ack.packet_id, ack.reasons)?,
            Packet::UnsubAck(ack) => self.unsubscribed(ack.packet_id, ack.reasons),
            other => {
                return Err(Violation::protocol(format!(
                    "the broker sent {:?}, which only a client may send",
                    other.kind()
                )));
            }
        }
        self.collect();
        Ok(())
    }

    /// Handles the writing of the first `written` bytes queued on the connection.
    pub fn handle_written(&mut self, written: u64) {
        self.producer.handle_written(written);
        self.collect();
    }

    /// Records the application's acknowledgement of a message.
    pub fn ack(&mut self, now: Instant, token: Token, connection: Option<&mut Connection>) {
        self.consumer.ack(now, token, connection);
    }

    /// Sends what may be sent, about `budget` bytes; returns whether there is more.
    pub fn poll_transmit(&mut self, now: Instant, connection: &mut Connection, budget: usize) -> bool {
        if self.requests {
            self.requests = false;
            self.send_requests(now, connection);
        }
        self.consumer.release(now, connection);
        let more = self.producer.poll_transmit(now, &mut self.ids, connection, budget);
        self.collect();
        more
    }

    /// Returns the next event, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Fails all outstanding operations.
    pub fn close(&mut self, error: &Error) {
        self.attached = false;
        self.producer.close(&mut self.ids, error);
        self.open.clear();
        self.filters.clear();
        for (id, subscription) in std::mem::take(&mut self.subscriptions) {
            match subscription.state {
                State::Unwanted(_) => {
                    self.events.push_back(Event::Unsubscribed { id, result: Err(error.clone()) });
                }
                _ if !subscription.answered => {
                    self.events.push_back(Event::Subscribed { id, result: Err(error.clone()) });
                }
                _ => {}
            }
        }
        self.collect();
    }

    fn remove(&mut self, id: SubscriptionId) -> Option<Subscription> {
        self.open.remove(&id);
        let removed = self.subscriptions.remove(&id)?;
        for (filter, _) in &removed.filters {
            if let Entry::Occupied(mut count) = self.filters.entry(filter.clone()) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
        Some(removed)
    }

    fn collect(&mut self) {
        while let Some(outcome) = self.producer.poll_event() {
            self.events.push_back(Event::Published(outcome));
        }
    }

    fn send_requests(&mut self, now: Instant, connection: &mut Connection) {
        let is_due = |id: &&SubscriptionId| {
            matches!(self.subscriptions[id].state, State::Wanted(None) | State::Unwanted(None))
        };
        let todo: Vec<SubscriptionId> = self.open.iter().filter(is_due).copied().collect();
        for id in todo {
            let Some(packet_id) = self.ids.take(REQUEST | u64::from(id)) else {
                self.requests = true;
                return;
            };
            let unwanted = matches!(self.subscriptions[&id].state, State::Unwanted(_));
            let sent = if unwanted {
                self.send_unsubscribe(now, id, packet_id, connection)
            } else {
                self.send_subscribe(now, id, packet_id, connection)
            };
            if let Err(error) = sent {
                self.ids.release(packet_id);
                self.remove(id);
                self.events.push_back(if unwanted {
                    Event::Unsubscribed { id, result: Err(error) }
                } else {
                    Event::Subscribed { id, result: Err(error) }
                });
            }
        }
    }

    fn send_subscribe(
        &mut self,
        now: Instant,
        id: SubscriptionId,
        packet_id: PacketId,
        connection: &mut Connection,
    ) -> Result<()> {
        let limits = connection.limits();
        let filters = &self.subscriptions[&id].filters;
        for (filter, _) in filters {
            let lacks = if filter.has_wildcard() && !limits.wildcard_subscription {
                "wildcards in topic filters"
            } else if filter.group().is_some() && !limits.shared_subscription {
                "shared subscriptions"
            } else {
                continue;
            };
            return Err(Error::new(ErrorKind::Unsupported, format!("this broker does not support {lacks}"))
                .with_topic(filter.as_str()));
        }
        let mut properties = Properties::new();
        if limits.subscription_identifiers {
            properties.push(Property::SubscriptionIdentifier(id));
        }
        let filters: Vec<(ByteString, SubscribeOptions)> = filters
            .iter()
            .map(|(filter, options)| (filter.text(), self.for_all(id, filter, *options)))
            .collect();
        self.subscriptions.get_mut(&id).expect("it was there").state = State::Wanted(Some(packet_id));
        connection.send(now, Packet::Subscribe(Subscribe { packet_id, properties, filters }))
    }

    /// The options that a filter needs for all subscriptions that have it.
    fn for_all(&self, id: SubscriptionId, filter: &Filter, own: SubscribeOptions) -> SubscribeOptions {
        self.others(id, filter).fold(own, |all, (_, options)| SubscribeOptions {
            qos: all.qos.max(options.qos),
            no_local: all.no_local && options.no_local,
            retain_as_published: all.retain_as_published || options.retain_as_published,
            retain_handling: all.retain_handling,
        })
    }

    /// The same filter of other subscriptions that have not ended.
    fn others<'a>(
        &'a self,
        id: SubscriptionId,
        filter: &'a Filter,
    ) -> impl Iterator<Item = &'a (Filter, SubscribeOptions)> {
        let is_alone = self.filters.get(filter).is_none_or(|count| *count < 2);
        let all = (!is_alone).then(|| self.subscriptions.iter()).into_iter().flatten();
        all.filter(move |(other, subscription)| {
            **other != id && !matches!(subscription.state, State::Unwanted(_))
        })
        .flat_map(|(_, subscription)| &subscription.filters)
        .filter(move |(other, _)| other == filter)
    }

    fn send_unsubscribe(
        &mut self,
        now: Instant,
        id: SubscriptionId,
        packet_id: PacketId,
        connection: &mut Connection,
    ) -> Result<()> {
        let filters: Vec<ByteString> = self.subscriptions[&id]
            .filters
            .iter()
            .filter(|(filter, _)| self.others(id, filter).next().is_none())
            .map(|(filter, _)| filter.text())
            .collect();
        if filters.is_empty() {
            // Other subscriptions still need all of its filters.
            self.ids.release(packet_id);
            self.remove(id);
            self.events.push_back(Event::Unsubscribed { id, result: Ok(Vec::new()) });
            return Ok(());
        }
        self.subscriptions.get_mut(&id).expect("the subscription is to be sent").state =
            State::Unwanted(Some(packet_id));
        let packet = Unsubscribe { packet_id, properties: Properties::new(), filters };
        connection.send(now, Packet::Unsubscribe(packet))
    }

    fn subscribed(&mut self, packet_id: PacketId, reasons: Vec<Reason>) -> Result<(), Violation> {
        self.answer_abandoned(packet_id);
        let Some(id) = self.request(packet_id) else { return Ok(()) };
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return Ok(()) };
        if subscription.state != State::Wanted(Some(packet_id)) {
            return Ok(());
        }
        if reasons.len() != subscription.filters.len() {
            return Err(Violation::protocol(format!(
                "the broker sent SUBACK with {} reasons for {} filters (3.9.3)",
                reasons.len(),
                subscription.filters.len()
            )));
        }
        self.ids.release(packet_id);
        subscription.state = State::Held;
        subscription.answered = true;
        self.open.remove(&id);
        self.events.push_back(Event::Subscribed { id, result: Ok(reasons) });
        Ok(())
    }

    fn unsubscribed(&mut self, packet_id: PacketId, reasons: Vec<Reason>) {
        self.answer_abandoned(packet_id);
        let Some(id) = self.request(packet_id) else { return };
        let unwanted = self.subscriptions.get(&id).map(|subscription| subscription.state);
        if unwanted != Some(State::Unwanted(Some(packet_id))) {
            return;
        }
        self.ids.release(packet_id);
        self.remove(id);
        let refusal = reasons.iter().find(|reason| reason.is_error());
        let result = match refusal {
            Some(reason) => Err(reason.error("UNSUBSCRIBE")),
            None => Ok(reasons),
        };
        self.events.push_back(Event::Unsubscribed { id, result });
    }

    fn answer_abandoned(&mut self, packet_id: PacketId) {
        if let Some(index) = self.abandoned.iter().position(|packet| *packet == packet_id) {
            self.abandoned.swap_remove(index);
            self.ids.release(packet_id);
        }
    }

    /// The subscription that may have this packet identifier: its state tells whether it has.
    fn request(&self, packet_id: PacketId) -> Option<SubscriptionId> {
        Some((self.ids.owner(packet_id)? & !REQUEST) as SubscriptionId)
    }
}
