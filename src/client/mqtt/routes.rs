//! Finds the consumers of a message.
//!
//! A server has one subscription for a filter, however many consumers of the client have it: the
//! last SUBSCRIBE replaces the one before it (3.8.4), with the identifier that messages then carry.
//! What it had queued before keeps the identifier of that time. So each filter has all identifiers
//! that its consumers have given it, those of closed consumers included, for as long as one of them
//! is open or the server keeps the subscription.
//!
//! A message is for the consumers with one of its identifiers whose filters it matches. Filters of
//! a consumer that overlap have an identifier each, by which it knows the copies of a message.
//! Copies for the filters of a closed consumer have no consumer. Those with an identifier of
//! another process, whose session was resumed, are matched by topic.

use std::ops::Range;
use std::sync::Arc;

use bytestring::ByteString;

use crate::mqtt::subscription::Subscription;
use forebay_base::error::Result;
use forebay_base::random::{self, HashMap};
use forebay_mqtt::Reason;
use forebay_mqtt::packet::Publish;
use forebay_mqtt::topic::Filter;

/// Limit on topics, and on identifiers, whose consumers are cached.
const REMEMBERED: usize = 4096;
/// Limit on the identifiers of closed consumers that a filter keeps.
const LEFT: usize = 64;
/// Largest identifier of MQTT (3.8.2.1.2).
const LARGEST: u32 = (1 << 28) - 1;
/// Limit on the first identifier: half of those that MQTT has.
const FIRST_BELOW: u64 = 1 << 27;

type Consumers = Arc<[Arc<Subscription>]>;

/// The consumers of a client.
#[derive(Debug)]
pub(super) struct Routes {
    /// By each of their subscription identifiers.
    consumers: HashMap<u32, Arc<Subscription>>,
    filters: HashMap<Filter, Holders>,
    /// Consumers by topic, cached until the consumers change.
    matched: HashMap<ByteString, Consumers>,
    /// Consumers by an identifier in a message, cached until the consumers change.
    named: HashMap<u32, Vec<Named>>,
    /// The first identifier: at random, since a session may still have those of an earlier process.
    first: u32,
    /// The next one.
    next: u32,
    /// Whether they have begun again.
    wrapped: bool,
}

/// The consumers of a filter, and its identifiers.
#[derive(Debug, Default)]
struct Holders {
    /// In the order in which they were given.
    ids: Vec<u32>,
    /// Number of open consumers.
    consumers: usize,
}

/// A consumer for which an identifier may stand.
#[derive(Debug)]
struct Named {
    consumer: Arc<Subscription>,
    /// Whether none of its filters has another identifier.
    is_alone: bool,
}

impl Default for Routes {
    fn default() -> Self {
        let first = 1 + (random::bits() % FIRST_BELOW) as u32;
        Self {
            consumers: HashMap::default(),
            filters: HashMap::default(),
            matched: HashMap::default(),
            named: HashMap::default(),
            first,
            next: first,
            wrapped: false,
        }
    }
}

impl Routes {
    /// The first of `count` numbers for subscriptions that no consumer has.
    pub(super) fn next_ids(&mut self, count: u32) -> u32 {
        let mut id = self.next;
        loop {
            if id > LARGEST - (count - 1) {
                (id, self.wrapped) = (1, true);
            }
            match (id..id + count).rev().find(|id| self.consumers.contains_key(id)) {
                Some(taken) => id = taken + 1,
                None => break,
            }
        }
        self.next = id + count;
        id
    }

    /// Adds a consumer, and returns the identifiers that it gets.
    pub(super) fn insert(&mut self, consumer: &Arc<Subscription>) -> Range<u32> {
        let ids = consumer.identify(|count| self.next_ids(count));
        for (id, (filter, _)) in consumer.identified() {
            let holders = self.filters.entry(filter.clone()).or_default();
            holders.ids.push(id);
            holders.consumers += 1;
            if holders.ids.len() > LEFT + holders.consumers {
                let is_left = |other: &u32| *other != id && !self.consumers.contains_key(other);
                if let Some(oldest) = holders.ids.iter().position(is_left) {
                    holders.ids.remove(oldest);
                }
            }
        }
        self.consumers.extend(ids.clone().map(|id| (id, Arc::clone(consumer))));
        self.forget_cached();
        ids
    }

    fn forget_cached(&mut self) {
        self.matched.clear();
        self.named.clear();
    }

    pub(super) fn get(&self, id: u32) -> Option<Arc<Subscription>> {
        self.consumers.get(&id).cloned()
    }

    /// All consumers.
    pub(super) fn consumers(&self) -> impl Iterator<Item = &Arc<Subscription>> {
        let first = |(id, consumer): &(&u32, &Arc<Subscription>)| **id == consumer.ids().start;
        self.consumers.iter().filter(first).map(|(_, consumer)| consumer)
    }

    /// Whether a consumer has `filter`.
    pub(super) fn has(&self, filter: &Filter) -> bool {
        self.filters.get(filter).is_some_and(|holders| holders.consumers > 0)
    }

    /// Handles the answer to a SUBSCRIBE: the filters that were refused never had the identifier.
    pub(super) fn answered(&mut self, id: u32, answer: &Result<Vec<Reason>>) {
        let Some(consumer) = self.get(id) else { return };
        for (at, (filter, _)) in consumer.filters(id).enumerate() {
            let granted =
                answer.as_ref().is_ok_and(|reasons| reasons.get(at).is_some_and(|reason| !reason.is_error()));
            if !granted && let Some(holders) = self.filters.get_mut(filter) {
                holders.ids.retain(|other| *other != id);
                self.named.clear();
            }
        }
    }

    /// Removes a consumer. `kept`: the server keeps its subscription.
    pub(super) fn remove(&mut self, consumer: &Subscription, kept: bool) {
        if consumer.ids().filter_map(|id| self.consumers.remove(&id)).count() == 0 {
            return;
        }
        self.forget_cached();
        for (filter, _) in &consumer.options.filters {
            let Some(holders) = self.filters.get_mut(filter) else { continue };
            holders.consumers = holders.consumers.saturating_sub(1);
            if holders.consumers == 0 && !kept {
                self.filters.remove(filter);
            }
        }
    }

    /// Removes and returns all consumers.
    pub(super) fn take(&mut self) -> Vec<Arc<Subscription>> {
        self.forget_cached();
        self.filters.clear();
        let consumers = self.consumers().cloned().collect();
        self.consumers.clear();
        consumers
    }

    /// The consumers of `publish`, with each member of a shared subscription: see
    /// [`one_of_each_group`]. `None` if it is a copy of a message that they have.
    pub(super) fn of(&mut self, publish: &Publish) -> Option<Consumers> {
        let ids = || publish.properties.subscription_identifiers();
        if ids().next().is_none() {
            return Some(self.matched(&publish.topic));
        }
        let named = self.named(publish);
        if named.is_empty() {
            let is_own = ids().all(|id| self.is_own(id));
            return Some(if is_own { Consumers::default() } else { self.matched(&publish.topic) });
        }
        let new: Vec<_> =
            named.into_iter().filter(|(consumer, packets)| !consumer.is_copy(publish, packets)).collect();
        (!new.is_empty()).then(|| new.into_iter().map(|(consumer, _)| consumer).collect())
    }

    /// The consumers with a filter that matches `topic`.
    fn matched(&mut self, topic: &ByteString) -> Consumers {
        if let Some(matched) = self.matched.get(topic) {
            return Arc::clone(matched);
        }
        let matched: Consumers =
            self.consumers().filter(|consumer| consumer.matches(topic)).cloned().collect();
        if self.matched.len() >= REMEMBERED {
            self.matched.clear();
        }
        self.matched.insert(topic.clone(), Arc::clone(&matched));
        matched
    }

    /// The consumers of the subscriptions that the server names, each once: of two filters that
    /// match, it may name each (3.3.4). With the numbers of the SUBSCRIBE packets of those that are
    /// named, if the consumer has several.
    fn named(&mut self, publish: &Publish) -> Vec<(Arc<Subscription>, Vec<u32>)> {
        let mut found: Vec<(Arc<Subscription>, Vec<u32>)> = Vec::with_capacity(1);
        for id in publish.properties.subscription_identifiers() {
            if !self.named.contains_key(&id) {
                if self.named.len() >= REMEMBERED {
                    self.named.clear();
                }
                self.named.insert(id, self.named_by(id));
            }
            for Named { consumer, is_alone } in &self.named[&id] {
                let has_id = |filter: &Filter| {
                    *is_alone || self.filters.get(filter).is_some_and(|all| all.ids.contains(&id))
                };
                let mut packets = consumer.packets(&publish.topic, has_id).peekable();
                if packets.peek().is_none() {
                    continue;
                }
                let at =
                    found.iter().position(|(other, _)| Arc::ptr_eq(other, consumer)).unwrap_or(found.len());
                if at == found.len() {
                    found.push((Arc::clone(consumer), Vec::new()));
                }
                if consumer.has_copies() {
                    found[at].1.extend(packets);
                }
            }
        }
        found
    }

    fn named_by(&self, id: u32) -> Vec<Named> {
        let of = |consumer: &Arc<Subscription>| {
            let holders =
                || consumer.options.filters.iter().filter_map(|(filter, _)| self.filters.get(filter));
            holders().any(|holders| holders.ids.contains(&id)).then(|| Named {
                consumer: Arc::clone(consumer),
                is_alone: holders().all(|holders| holders.ids.iter().all(|other| *other == id)),
            })
        };
        self.consumers().filter_map(of).collect()
    }

    /// Whether this client has given a subscription the identifier.
    fn is_own(&self, id: u32) -> bool {
        self.wrapped || (self.first..self.next).contains(&id)
    }
}

/// Leaves one consumer of each shared subscription, the one with the fewest messages: its server
/// takes all of them for one member.
pub(super) fn one_of_each_group(found: Consumers, topic: &str) -> Consumers {
    if found.len() < 2 {
        return found;
    }
    fn group_of<'a>(consumer: &'a Subscription, topic: &str) -> Option<&'a str> {
        consumer.filter_of(topic).and_then(Filter::group)
    }
    let mut left: Vec<Arc<Subscription>> = Vec::with_capacity(found.len());
    for consumer in found.iter() {
        let group = group_of(consumer, topic);
        match left.iter_mut().find(|other| group.is_some() && group_of(other, topic) == group) {
            Some(other) if consumer.available() < other.available() => *other = Arc::clone(consumer),
            Some(_) => {}
            None => left.push(Arc::clone(consumer)),
        }
    }
    if left.len() == found.len() { found } else { left.into() }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::events::ConsumerEvents;
    use crate::mqtt::options::ConsumerOptions;
    use forebay_base::error::Error;
    use forebay_mqtt::packet::SubscribeOptions;
    use forebay_mqtt::{Property, QoS};

    struct Nothing;

    impl ConsumerEvents for Nothing {
        fn readable(&self) {}
        fn closed(&self, _: Error) {}
    }

    fn subscription(filters: &[&str]) -> Arc<Subscription> {
        let asked = SubscribeOptions::qos(QoS::AtLeastOnce);
        let filters = filters.iter().map(|filter| (Filter::parse(*filter).unwrap(), asked)).collect();
        let options = ConsumerOptions { filters, auto_ack: false };
        let abandoned = mpsc::unbounded_channel().0;
        Arc::new(Subscription::new(
            options,
            true,
            Arc::new(Nothing),
            Arc::default(),
            abandoned,
            &Arc::default(),
        ))
    }

    /// Routes with consumers by a letter, and which of them a message is for.
    #[derive(Default)]
    struct Bench {
        routes: Routes,
        open: Vec<(char, u32, Arc<Subscription>)>,
    }

    impl Bench {
        fn open(&mut self, name: char, filters: &[&str]) -> u32 {
            let consumer = subscription(filters);
            let id = self.routes.insert(&consumer).start;
            self.open.push((name, id, consumer));
            id
        }

        /// Opens a consumer that the server grants all filters.
        fn granted(&mut self, name: char, filters: &[&str]) -> u32 {
            let id = self.open(name, filters);
            let consumer = Arc::clone(&self.open.last().unwrap().2);
            for id in consumer.ids() {
                self.routes.answered(id, &Ok(vec![Reason::GrantedQoS1; consumer.filters(id).count()]));
            }
            id
        }

        fn close(&mut self, id: u32) {
            let at = self.open.iter().position(|(_, other, _)| *other == id).unwrap();
            self.routes.remove(&self.open.remove(at).2, false);
        }

        fn of(&mut self, topic: &str, ids: &[u32]) -> String {
            self.of_payload(topic, ids, b"")
        }

        fn of_payload(&mut self, topic: &str, ids: &[u32], payload: &'static [u8]) -> String {
            let properties = ids.iter().map(|id| Property::SubscriptionIdentifier(*id)).collect();
            let payload = payload.into();
            let publish = Publish { topic: topic.into(), payload, properties, ..Publish::default() };
            let Some(found) = self.routes.of(&publish) else { return "copy".into() };
            let found = one_of_each_group(found, topic);
            let name =
                |consumer| self.open.iter().find(|(.., other)| Arc::ptr_eq(other, consumer)).unwrap().0;
            let mut names: Vec<char> = found.iter().map(name).collect();
            names.sort_unstable();
            names.into_iter().collect()
        }
    }

    #[test]
    fn consumers_of_one_filter_get_what_any_of_them_is_named_for() {
        for closed_first in 0..3 {
            let mut bench = Bench::default();
            let first = bench.granted('a', &["t/#"]);
            let second = bench.open('b', &["t/#"]);
            // The server names either, also after the answer: what it had queued keeps its name.
            assert_eq!((bench.of("t/x", &[first]), bench.of("t/x", &[second])), ("ab".into(), "ab".into()));
            bench.routes.answered(second, &Ok(vec![Reason::GrantedQoS1]));
            let third = bench.granted('c', &["t/#", "u"]);
            assert_eq!(bench.of("t/x", &[third]), "abc");
            assert_eq!(bench.of("u", &[third]), "c");
            let ids = [first, second, third];
            bench.close(ids[closed_first]);
            let left: String =
                "abc".chars().enumerate().filter(|(at, _)| *at != closed_first).map(|(_, c)| c).collect();
            // The subscription of the server goes on with the last identifier.
            assert_eq!(bench.of("t/x", &[third]), left);
            for id in ids {
                assert_eq!(bench.of("t/x", &[id]), left, "whatever was queued, and when");
            }
        }
    }

    #[test]
    fn copies_of_a_closed_consumer_have_no_consumer() {
        let mut bench = Bench::default();
        let wide = bench.granted('a', &["t/#"]);
        let narrow = bench.granted('b', &["t/x"]);
        assert_eq!(bench.of("t/x", &[wide]), "a");
        assert_eq!(bench.of("t/x", &[narrow]), "b");
        assert_eq!(bench.of("t/x", &[wide, narrow]), "ab");
        bench.close(wide);
        assert_eq!(bench.of("t/x", &[wide]), "");
        assert_eq!(bench.of("t/x", &[wide, narrow]), "b");
        // That of another process may be a subscription that the session still has.
        let other = wide.wrapping_sub(1).max(1);
        assert_eq!(bench.of("t/x", &[if other == wide { narrow + 1 } else { other }]), "b");
        assert_eq!(bench.of("t/x", &[]), "b");
    }

    #[test]
    fn a_consumer_gets_one_copy_of_each_message() {
        let mut bench = Bench::default();
        let narrow = bench.granted('a', &["t/x", "t/#"]);
        let wide = narrow + 1;
        for _ in 0..REMEMBERED {
            // A packet for both, one for each, in either order.
            assert_eq!(bench.of("t/x", &[narrow, wide]), "a");
            assert_eq!((bench.of("t/x", &[narrow]), bench.of("t/x", &[wide])), ("a".into(), "copy".into()));
            assert_eq!((bench.of("t/x", &[wide]), bench.of("t/x", &[narrow])), ("a".into(), "copy".into()));
            assert_eq!((bench.of("t/y", &[wide]), bench.of("t/y", &[wide])), ("a".into(), "a".into()));
            assert_eq!((bench.of("t/x", &[]), bench.of("t/x", &[])), ("a".into(), "a".into()));
        }
        // The identifiers of the filters change.
        let second = bench.granted('b', &["t/x"]);
        assert_eq!(bench.of("t/x", &[second, wide]), "ab");
        assert_eq!((bench.of("t/x", &[second]), bench.of("t/x", &[wide])), ("ab".into(), "copy".into()));
        let third = bench.granted('c', &["t/#"]);
        assert_eq!((bench.of("t/x", &[second]), bench.of("t/x", &[third])), ("ab".into(), "c".into()));
        bench.close(narrow);
        assert_eq!((bench.of("t/x", &[second]), bench.of("t/x", &[third])), ("b".into(), "c".into()));
    }

    #[test]
    fn a_message_is_not_left_out_because_a_copy_of_it_is_expected() {
        let mut bench = Bench::default();
        let earlier = bench.granted('z', &["t/#"]);
        bench.routes.remove(&bench.open.pop().unwrap().2, true);
        let narrow = bench.granted('a', &["t/x", "t/#"]);
        let wide = narrow + 1;
        // What a session has queued has the identifier of that time alone.
        for _ in 0..3 {
            assert_eq!(bench.of("t/x", &[earlier]), "a");
        }
        // A server has dropped the other copies, or names one of the filters only.
        for _ in 0..3 {
            assert_eq!(bench.of_payload("t/x", &[wide], b"1"), "a");
            assert_eq!(bench.of_payload("t/x", &[wide], b"2"), "a");
        }
        assert_eq!(bench.of_payload("t/x", &[narrow], b"3"), "a");
        assert_eq!(bench.of_payload("t/x", &[narrow], b"4"), "a");
        // Copies among those of other messages.
        assert_eq!(bench.of_payload("t/x", &[wide], b"3"), "copy");
        assert_eq!(bench.of_payload("t/x", &[wide], b"4"), "copy");
        assert_eq!(bench.of_payload("t/x", &[wide], b"4"), "a");
    }

    #[test]
    fn a_copy_of_another_kind_is_no_other_copy() {
        let mut bench = Bench::default();
        let both = bench.granted('a', &["t/x", "$share/g/t/#"]);
        // A job is sent to one of its group; the filters have one identifier.
        assert_eq!((bench.of("t/x", &[both]), bench.of("t/y", &[both])), ("a".into(), "a".into()));
        let job = bench.granted('b', &["$share/h/u/#", "u/x"]);
        assert_eq!(bench.of("u/x", &[job]), "b");
    }

    #[test]
    fn filters_that_overlap_have_identifiers_of_their_own() {
        let ids = |filters: &[&str]| {
            let consumer = subscription(filters);
            let first = consumer.identify(|_| 0).start;
            consumer.identified().map(|(id, _)| id - first).collect::<Vec<_>>()
        };
        assert_eq!(ids(&["a", "b", "c/+", "d/#"]), [0, 0, 0, 0]);
        assert_eq!(ids(&["t/x", "t/#", "t/x", "t/y"]), [0, 1, 0, 2]);
        assert_eq!(ids(&["a/b", "a/+", "+/c"]), [0, 1, 2]);
        assert_eq!(ids(&["a/#", "a", "a/b/c", "b/#", "#"]), [0, 1, 1, 0, 2]);
        assert_eq!(ids(&["$share/g/a/#", "a/b", "$share/g/a/b"]), [0, 0, 0]);
    }

    #[test]
    fn identifiers_begin_again_without_those_in_use() {
        let mut bench = Bench::default();
        bench.routes.next = LARGEST;
        let last = bench.granted('a', &["a"]);
        assert_eq!(last, LARGEST);
        let first = bench.granted('b', &["b"]);
        assert_eq!(first, 1);
        bench.routes.next = LARGEST;
        let two = bench.granted('c', &["c/#", "c/d"]);
        assert_eq!((two, bench.routes.next), (2, 4));
        assert_eq!(bench.of("c/d", &[two]), "c");
        assert_eq!(bench.of("b", &[first]), "b");
    }

    #[test]
    fn a_refused_subscription_leaves_the_one_before_it() {
        let mut bench = Bench::default();
        let first = bench.granted('a', &["t"]);
        let second = bench.open('b', &["t"]);
        bench.routes.answered(second, &Ok(vec![Reason::NotAuthorized]));
        bench.close(second);
        assert_eq!(bench.of("t", &[first]), "a");
        assert_eq!(bench.routes.filters.values().next().unwrap().ids, [first]);
    }

    #[test]
    fn consumers_that_come_and_go_leave_a_limited_number_of_identifiers() {
        let mut bench = Bench::default();
        let first = bench.granted('a', &["t"]);
        for _ in 0..1000 {
            let other = bench.granted('b', &["t"]);
            assert_eq!(bench.of("t", &[other]), "ab");
            bench.close(other);
            assert_eq!((bench.of("t", &[other]), bench.of("t", &[first])), ("a".into(), "a".into()));
        }
        assert!(bench.routes.filters.values().next().unwrap().ids.len() <= LEFT + 2);
    }

    #[test]
    fn a_subscription_that_the_server_keeps_is_the_next_consumers() {
        let mut bench = Bench::default();
        let first = bench.granted('a', &["t"]);
        bench.routes.remove(&bench.open.pop().unwrap().2, true);
        assert_eq!(bench.of("t", &[first]), "");
        let second = bench.open('b', &["t"]);
        assert_eq!(bench.of("t", &[first]), "b");
        bench.routes.answered(second, &Ok(vec![Reason::GrantedQoS1]));
        // More than a window may have been queued before.
        assert_eq!((bench.of("t", &[second]), bench.of("t", &[first])), ("b".into(), "b".into()));
    }

    #[test]
    fn one_member_of_a_shared_subscription_gets_a_message() {
        let mut bench = Bench::default();
        let first = bench.granted('a', &["$share/g/t"]);
        let second = bench.granted('b', &["$share/g/t"]);
        let plain = bench.granted('c', &["t"]);
        assert_eq!(bench.of("t", &[second]).len(), 1);
        assert_eq!(bench.of("t", &[plain]), "c");
        assert_eq!(bench.of("t", &[]).len(), 2, "one of the group, and the plain one");
        bench.close(second);
        assert_eq!(bench.of("t", &[second]), "a");
        bench.close(first);
        assert_eq!(bench.of("t", &[second]), "");
        assert_eq!(bench.routes.filters.len(), 1);
    }
}
