//! Received messages, and the client side of a consumer: the queue of its messages.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::mpsc::UnboundedSender;

use crate::events::{ConsumerEvents, Signal};
use crate::mqtt::options::ConsumerOptions;
use crate::receive::{self, Ahead};
use crate::traffic::Traffic;
use forebay_base::clock::wall_ms;
use forebay_base::error::{Error, Result};
use forebay_base::random;
use forebay_base::sync::{Mutex, Rank};
use forebay_mqtt::packet::{Publish, SubscribeOptions};
use forebay_mqtt::topic::{Filter, overlap};
use forebay_mqtt::{Properties, Property, QoS, Reason};

/// A received message. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Message(Arc<Received>);

#[derive(Debug)]
struct Received {
    publish: Publish,
    /// Names it to the session; 0 with QoS 0.
    token: u64,
    /// The consumers that it was delivered to.
    consumers: Arc<[Arc<Subscription>]>,
    /// Number of those that have neither acknowledged it nor given it back.
    unacknowledged: AtomicUsize,
    /// Whether a consumer has acknowledged it.
    acknowledged: AtomicBool,
    received_ms: u64,
}

/// A message that the application has dropped and not acknowledged.
#[derive(Debug)]
pub(super) struct Abandoned {
    pub(super) publish: Publish,
    pub(super) token: u64,
    pub(super) consumers: Arc<[Arc<Subscription>]>,
    /// Whether one of the consumers has acknowledged it.
    pub(super) acknowledged: bool,
}

impl Drop for Received {
    /// Only passes it on: this runs wherever the last reference happens to end, under any lock.
    fn drop(&mut self) {
        if self.token == 0 || *self.unacknowledged.get_mut() == 0 {
            return;
        }
        if let Some(consumer) = self.consumers.first() {
            let _ = consumer.abandoned.send(Abandoned {
                publish: std::mem::take(&mut self.publish),
                token: self.token,
                consumers: Arc::clone(&self.consumers),
                acknowledged: *self.acknowledged.get_mut(),
            });
        }
    }
}

impl Message {
    pub(super) fn new(publish: Publish, token: u64, consumers: Arc<[Arc<Subscription>]>) -> Self {
        Self(Arc::new(Received {
            publish,
            token,
            unacknowledged: AtomicUsize::new(consumers.len()),
            consumers,
            acknowledged: AtomicBool::new(false),
            received_ms: wall_ms(),
        }))
    }

    /// The PUBLISH packet as received.
    pub fn publish(&self) -> &Publish {
        &self.0.publish
    }

    /// Time of arrival in milliseconds since 1970.
    pub fn received_ms(&self) -> u64 {
        self.0.received_ms
    }

    pub(super) fn weight(&self) -> usize {
        self.0.publish.weight()
    }

    /// One more consumer is done with it. Returns the token to acknowledge if that was the last
    /// one.
    pub(super) fn done(&self) -> Option<u64> {
        self.0.acknowledged.store(true, Ordering::Release);
        self.less().then_some(self.0.token)
    }

    /// A consumer that closes has not handed it out. The last one either returns the token to
    /// acknowledge, because another consumer has, or the message, which is then of no consumer.
    pub(super) fn give_back(self) -> Option<Result<u64, (Publish, u64)>> {
        if !self.less() {
            return None;
        }
        if self.0.acknowledged.load(Ordering::Acquire) {
            return Some(Ok(self.0.token));
        }
        Some(Err((self.0.publish.clone(), self.0.token)))
    }

    fn less(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.0.unacknowledged.fetch_update(Ordering::AcqRel, Ordering::Acquire, less) == Ok(1)
    }

    /// Whether there is something to acknowledge: not with QoS 0.
    pub(super) fn needs_ack(&self) -> bool {
        self.0.token != 0
    }
}

impl receive::Received for Message {
    #[inline]
    fn size(&self) -> usize {
        self.0.publish.payload.len()
    }

    #[inline]
    fn is_redelivered(&self) -> bool {
        self.0.publish.dup
    }
}

/// Number of messages that a consumer remembers to know their copies.
const REMEMBERED: usize = 64;
/// Number of filters above which no two have an identifier of their own: each is compared with all.
const COMPARED: usize = 256;

/// A message that a consumer has taken, and the SUBSCRIBE packets that its copies were sent for.
#[derive(Debug)]
struct Taken {
    content: u64,
    qos: QoS,
    packets: Vec<u32>,
}

/// Number of the SUBSCRIBE of each filter, beginning with 0: filters that overlap have different
/// ones. A job of a shared subscription has no copies.
fn packets(filters: &[(Filter, SubscribeOptions)]) -> Box<[u32]> {
    let mut packets: Vec<u32> = Vec::with_capacity(filters.len());
    let mut wild = Vec::new();
    for (at, (filter, _)) in filters.iter().enumerate() {
        let behind = |other: usize| {
            let (before, _) = &filters[other];
            let is_plain = before.group().is_none() && filter.group().is_none();
            (is_plain && overlap(before.pattern(), filter.pattern())).then(|| packets[other] + 1)
        };
        let same = filters[..at].iter().position(|(other, _)| other == filter);
        // Two filters without a wildcard do not overlap.
        let packet = if let Some(same) = same {
            Some(packets[same])
        } else if filter.has_wildcard() {
            (0..at).filter_map(behind).max()
        } else {
            wild.iter().copied().filter_map(behind).max()
        };
        packets.push(packet.unwrap_or_default());
        if filter.has_wildcard() {
            wild.push(at);
        }
    }
    packets.into()
}

/// Properties that are the same in all copies of a message.
fn content(properties: &Properties) -> Vec<&Property> {
    let is_same = |property: &&Property| {
        !matches!(
            property,
            Property::SubscriptionIdentifier(_)
                | Property::MessageExpiryInterval(_)
                | Property::TopicAlias(_)
        )
    };
    properties.iter().filter(is_same).collect()
}

/// Client side of a consumer: its filters and the queue of its messages.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) options: ConsumerOptions,
    /// Number of the SUBSCRIBE of each filter.
    packets: Box<[u32]>,
    /// The identifier of the first SUBSCRIBE; those of the others follow it.
    id: OnceLock<u32>,
    /// The last messages that it has taken, if filters overlap.
    taken: Mutex<VecDeque<Taken>>,
    hash: random::Hash,
    queue: Mutex<VecDeque<Message>>,
    /// Messages that are to be handed out next.
    pub(super) ahead: Ahead<Message>,
    /// Messages that the application has dropped and not acknowledged: they are held until the
    /// consumer is closed.
    dropped: Mutex<Vec<Abandoned>>,
    /// The channel that passes such messages on.
    abandoned: UnboundedSender<Abandoned>,
    pub(super) signal: Signal,
    pub(super) closed: AtomicBool,
    /// Bytes that have not been taken, over all consumers of the client.
    unread: Arc<AtomicUsize>,
    /// The application has been warned that other consumers wait for this one.
    pub(super) holds_up: AtomicBool,
}

impl Subscription {
    /// `split`: filters that overlap have an identifier each.
    pub(super) fn new(
        options: ConsumerOptions,
        split: bool,
        events: Arc<dyn ConsumerEvents>,
        unread: Arc<AtomicUsize>,
        abandoned: UnboundedSender<Abandoned>,
        traffic: &Arc<Traffic>,
    ) -> Self {
        let one = || vec![0; options.filters.len()].into();
        Self {
            packets: if split && options.filters.len() <= COMPARED {
                packets(&options.filters)
            } else {
                one()
            },
            id: OnceLock::new(),
            taken: Mutex::leaf(VecDeque::new()),
            hash: random::Hash::default(),
            options,
            queue: Mutex::new(Rank::Queue, VecDeque::new()),
            ahead: Ahead::new(traffic),
            dropped: Mutex::default(),
            abandoned,
            signal: Signal::new(events),
            closed: AtomicBool::new(false),
            unread,
            holds_up: AtomicBool::new(false),
        }
    }

    /// Gives it as many identifiers as it needs: `next` returns the first one.
    pub(super) fn identify(&self, next: impl FnOnce(u32) -> u32) -> Range<u32> {
        self.id.get_or_init(|| next(self.count()));
        self.ids()
    }

    /// Number of its SUBSCRIBE packets.
    fn count(&self) -> u32 {
        self.packets.iter().max().map_or(1, |last| last + 1)
    }

    /// Its subscription identifiers; none before [`Self::identify`].
    pub(super) fn ids(&self) -> Range<u32> {
        self.id.get().map_or(0..0, |id| *id..*id + self.count())
    }

    /// The filters with their identifiers.
    pub(super) fn identified(&self) -> impl Iterator<Item = (u32, &(Filter, SubscribeOptions))> {
        let first = self.ids().start;
        self.packets.iter().map(move |packet| first + packet).zip(&self.options.filters)
    }

    /// The filters of one SUBSCRIBE.
    pub(super) fn filters(&self, id: u32) -> impl Iterator<Item = &(Filter, SubscribeOptions)> {
        self.identified().filter(move |(other, _)| *other == id).map(|(_, filter)| filter)
    }

    /// Whether a server may send it several copies of a message.
    pub(super) fn has_copies(&self) -> bool {
        self.packets.iter().any(|packet| *packet > 0)
    }

    /// The numbers of the SUBSCRIBE packets of the filters that match `topic` and are `named`.
    pub(super) fn packets(&self, topic: &str, named: impl Fn(&Filter) -> bool) -> impl Iterator<Item = u32> {
        let filters = self.options.filters.iter().zip(&self.packets);
        filters
            .filter(move |((filter, _), _)| filter.matches(topic) && named(filter))
            .map(|(_, packet)| *packet)
    }

    /// Whether this is another copy of a message that it has taken. A server may send one for each
    /// filter that matches, with the identifier of that filter (3.3.4). `packets` are the numbers
    /// of the SUBSCRIBE packets that it was sent for.
    ///
    /// Copies have the same content, and each is for other filters: what differs in content, or
    /// comes for a filter the second time, is another message. Nothing is left out because a copy
    /// is expected, since servers drop some, and send some to earlier identifiers alone.
    pub(super) fn is_copy(&self, publish: &Publish, packets: &[u32]) -> bool {
        if packets.is_empty() || self.packets(&publish.topic, |_| true).all(|packet| packet == packets[0]) {
            return false;
        }
        let content = self.hash.hash_one((&publish.topic, &publish.payload, content(&publish.properties)));
        let mut taken = self.taken.lock();
        let is_of = |one: &&mut Taken| {
            let is_other = !packets.iter().any(|packet| one.packets.contains(packet));
            one.content == content && one.qos >= publish.qos && is_other
        };
        if let Some(one) = taken.iter_mut().find(is_of) {
            one.packets.extend(packets);
            return true;
        }
        if taken.len() == REMEMBERED {
            taken.pop_front();
        }
        taken.push_back(Taken { content, qos: publish.qos, packets: packets.to_vec() });
        false
    }

    pub(super) fn matches(&self, topic: &str) -> bool {
        self.filter_of(topic).is_some()
    }

    /// Whether it asked for QoS 0: whatever comes for it is not acknowledged.
    pub(super) fn wants_no_ack(&self) -> bool {
        self.options.filters.iter().all(|(_, options)| options.qos == QoS::AtMostOnce)
    }

    /// The filters, separated by commas.
    pub(super) fn topic(&self) -> String {
        let filters: Vec<&str> = self.options.filters.iter().map(|(filter, _)| filter.as_str()).collect();
        filters.join(",")
    }

    /// The first filter that matches `topic`.
    pub(super) fn filter_of(&self, topic: &str) -> Option<&Filter> {
        self.options.filters.iter().map(|(filter, _)| filter).find(|filter| filter.matches(topic))
    }

    /// Whether it takes over a message of `topic` that another consumer has left: one of a shared
    /// subscription belongs to that subscription.
    pub(super) fn claims(&self, topic: &str, group: Option<&str>) -> bool {
        let of_group = |filter: &Filter| group.is_none() || filter.group() == group;
        self.options.filters.iter().any(|(filter, _)| of_group(filter) && filter.matches(topic))
    }

    /// Queues a message. Returns it if the consumer is closed.
    pub(super) fn push(&self, message: Message) -> Result<(), Message> {
        {
            let mut queue = self.queue.lock();
            if self.is_closed() {
                return Err(message);
            }
            self.unread.fetch_add(message.weight(), Ordering::AcqRel);
            queue.push_back(message);
        }
        self.signal.ring();
        Ok(())
    }

    /// Whether a message with this token has come and was not handed out.
    pub(super) fn has(&self, token: u64) -> bool {
        let is_it = |message: &Message| message.0.token == token;
        self.ahead.has(is_it) || self.queue.lock().iter().any(is_it)
    }

    /// Number of messages that have not been taken.
    pub(super) fn waiting(&self) -> usize {
        self.queue.lock().len()
    }

    /// Holds a message that the application has dropped until the consumer is closed. Returns it if
    /// it is.
    pub(super) fn hold(&self, message: Abandoned) -> Option<Abandoned> {
        let mut dropped = self.dropped.lock();
        if self.is_closed() {
            return Some(message);
        }
        dropped.push(message);
        None
    }

    /// Removes the messages that the application has dropped.
    pub(super) fn take_dropped(&self) -> Vec<Abandoned> {
        std::mem::take(&mut *self.dropped.lock())
    }

    /// Handles CONNACK: the broker sends messages of QoS 1 again.
    pub(super) fn attached(&self, session_present: bool) {
        let again = |message: &mut Abandoned| session_present && message.publish.qos == QoS::ExactlyOnce;
        let gone: Vec<Abandoned> = self.dropped.lock().extract_if(.., |message| !again(message)).collect();
        drop(gone);
    }

    /// Moves up to `max` messages to `out`. Returns their number and what they cost.
    pub(super) fn take(&self, max: usize, out: &mut impl Extend<Message>) -> (usize, usize) {
        let mut queue = self.queue.lock();
        if self.is_closed() {
            return (0, 0);
        }
        let (taken, mut weight) = (max.min(queue.len()), 0);
        out.extend(queue.drain(..taken).inspect(|message| weight += message.weight()));
        (taken, weight)
    }

    /// The error of the SUBACK to the SUBSCRIBE with `id`, if a filter was refused, and whether
    /// another one was granted.
    pub(super) fn refusal(&self, id: u32, answer: &Result<Vec<Reason>>) -> Option<(Error, bool)> {
        match answer {
            Err(error) => Some((error.clone(), false)),
            Ok(reasons) => {
                let mut refused =
                    reasons.iter().zip(self.filters(id)).filter(|(reason, _)| reason.is_error());
                let (reason, (filter, _)) = refused.next()?;
                let granted = reasons.iter().any(|reason| !reason.is_error());
                Some((reason.error("SUBSCRIBE").with_topic(filter.as_str()), granted))
            }
        }
    }

    /// Number of messages in the queue.
    pub(super) fn available(&self) -> usize {
        self.queue.lock().len()
    }

    /// Removes everything from the queue, after [`Self::closed`] is set.
    pub(super) fn clear(&self) -> VecDeque<Message> {
        std::mem::take(&mut *self.queue.lock())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn end(&self, error: Error) {
        self.signal.end(error);
    }
}
