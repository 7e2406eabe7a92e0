//! Routing: the subscriptions of all sessions by filter, and a cache of the subscribers of recent
//! topics, which is cleared when a subscription changes.
//!
//! A session with overlapping subscriptions gets one copy with the highest QoS and all subscription
//! identifiers. A shared subscription gives each message to one of its members in turn, to a
//! connected one if possible: with MQTT 5 in a copy of its own.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytestring::ByteString;

use crate::tree::Tree;
use forebay_base::random::HashMap;
use forebay_mqtt::QoS;
use forebay_mqtt::packet::SubscribeOptions;
use forebay_mqtt::topic::Filter;

/// Limits on the topics in the cache and on the bytes of their names.
const CACHED: usize = 20_000;
const CACHED_BYTES: usize = 4 << 20;
/// Levels of filters that are compared with one topic. Each level of a topic doubles the number of
/// those that may have to be, so that it takes a topic of 15 levels, and filters in every
/// combination, to get there.
const MATCH_STEPS: usize = 50_000;
/// Publishers of a topic whose decisions its route remembers.
const PUBLISHERS: usize = 8;
/// Steps that a decision about a subscriber counts for.
const DECISION_STEPS: usize = 25;

/// Memory that a subscription uses beside the bytes of its filter, about.
const SUBSCRIPTION: usize = 256;

/// Memory that a subscription uses, about.
pub(super) fn weight(filter: &str) -> usize {
    filter.len() + SUBSCRIPTION
}

/// A subscription of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subscription {
    pub(super) options: SubscribeOptions,
    /// Subscription identifier (MQTT 5), which is sent with each message.
    pub(super) id: Option<u32>,
}

/// Delivery of messages to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeliveryOptions {
    pub(super) qos: QoS,
    pub(super) retain_as_published: bool,
    pub(super) ids: Rc<[u32]>,
}

/// A session that receives a message.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) session: u64,
    /// Options for messages of other sessions.
    pub(super) delivery: DeliveryOptions,
    /// Options for messages that the session published itself: those without No Local.
    pub(super) own: Option<DeliveryOptions>,
}

/// The subscribers of a topic.
#[derive(Debug, Default)]
pub(super) struct Route {
    pub(super) targets: Vec<Target>,
    /// Shared subscriptions by number.
    pub(super) groups: Vec<u64>,
    /// Members of shared subscriptions that may not read the topic.
    pub(super) barred: BTreeSet<u64>,
    /// Whether these are all: [`MATCH_STEPS`] were enough.
    pub(super) complete: bool,
    /// Sessions that are looked at for each message: subscribers, and members of shared
    /// subscriptions.
    reach: usize,
    /// Sessions that published to the topic, and whether they may.
    publishers: RefCell<Vec<(u64, bool)>>,
}

impl Route {
    /// Whether a session may publish to the topic. `decide` is asked if it did not do so lately.
    pub(super) fn may_publish(&self, session: u64, decide: impl FnOnce() -> bool) -> bool {
        let mut publishers = self.publishers.borrow_mut();
        if let Some((_, decision)) = publishers.iter().find(|(known, _)| *known == session) {
            return *decision;
        }
        let decision = decide();
        if publishers.len() >= PUBLISHERS {
            publishers.remove(0);
        }
        publishers.push((session, decision));
        decision
    }
}

#[derive(Debug, Default)]
struct Leaf {
    sessions: BTreeMap<u64, Subscription>,
    groups: BTreeMap<ByteString, u64>,
}

/// A shared subscription.
#[derive(Debug)]
struct Group {
    /// Members, in the order in which they joined.
    members: Vec<(u64, Subscription)>,
    next: usize,
}

/// The routing table, as the [module](self) describes.
#[derive(Debug, Default)]
pub(super) struct Routes {
    tree: Tree<Leaf>,
    groups: HashMap<u64, Group>,
    next_group: u64,
    cache: HashMap<ByteString, Rc<Route>>,
    cache_bytes: usize,
    /// Steps since [`Self::take_spent`]: levels that were compared and sessions that were looked
    /// at.
    spent: usize,
    /// Number of subscriptions of all sessions.
    pub(super) count: usize,
    /// Sum of their [`weight`]s.
    pub(super) bytes: usize,
}

impl Routes {
    /// Adds or changes a subscription. Returns whether it is new.
    pub(super) fn insert(&mut self, session: u64, filter: &Filter, subscription: Subscription) -> bool {
        self.forget();
        let leaf = self.tree.entry(filter.pattern());
        let new = match filter.group() {
            None => leaf.sessions.insert(session, subscription).is_none(),
            Some(name) => {
                let next = &mut self.next_group;
                let number = *leaf.groups.entry(name.into()).or_insert_with(|| {
                    *next += 1;
                    *next
                });
                let group =
                    self.groups.entry(number).or_insert_with(|| Group { members: Vec::new(), next: 0 });
                match group.members.iter_mut().find(|(member, _)| *member == session) {
                    Some((_, known)) => {
                        *known = subscription;
                        false
                    }
                    None => {
                        group.members.push((session, subscription));
                        true
                    }
                }
            }
        };
        if new {
            self.count += 1;
            self.bytes += weight(filter.as_str());
        }
        new
    }

    /// Removes a subscription. Returns whether it existed.
    pub(super) fn remove(&mut self, session: u64, filter: &Filter) -> bool {
        let Some(leaf) = self.tree.get_mut(filter.pattern()) else { return false };
        let removed = match filter.group() {
            None => leaf.sessions.remove(&session).is_some(),
            Some(name) => {
                let Some(number) = leaf.groups.get(name).copied() else { return false };
                let Some(group) = self.groups.get_mut(&number) else { return false };
                let before = group.members.len();
                group.members.retain(|(member, _)| *member != session);
                let removed = group.members.len() < before;
                if group.members.is_empty() {
                    self.groups.remove(&number);
                    leaf.groups.remove(name);
                }
                removed
            }
        };
        if leaf.sessions.is_empty() && leaf.groups.is_empty() {
            self.tree.remove(filter.pattern());
        }
        if removed {
            self.forget();
            self.count -= 1;
            self.bytes -= weight(filter.as_str());
        }
        removed
    }

    /// The subscribers of `topic`, of those that `may_read` it. What that says has to stay the same
    /// until [`Self::forget`].
    pub(super) fn find(&mut self, topic: &str, may_read: Option<&dyn Fn(u64) -> bool>) -> Rc<Route> {
        if let Some(route) = self.cache.get(topic) {
            self.spent += route.reach;
            return route.clone();
        }
        let (route, steps) = self.compute(topic, may_read);
        self.spent += steps + route.reach;
        let route = Rc::new(route);
        if self.cache.len() >= CACHED || self.cache_bytes >= CACHED_BYTES {
            self.forget();
        }
        self.cache_bytes += topic.len();
        // The name is copied, so that it does not keep the read buffer alive.
        self.cache.insert(topic.into(), route.clone());
        route
    }

    /// The route of a topic, if it is known.
    pub(super) fn known(&self, topic: &str) -> Option<Rc<Route>> {
        self.cache.get(topic).cloned()
    }

    /// Returns what routing has cost since the last call, in steps.
    pub(super) fn take_spent(&mut self) -> usize {
        std::mem::take(&mut self.spent)
    }

    /// Searches for the subscribers of `topic`, and counts the steps.
    fn compute(&self, topic: &str, may_read: Option<&dyn Fn(u64) -> bool>) -> (Route, usize) {
        let mut found: BTreeMap<u64, Vec<Subscription>> = BTreeMap::new();
        let mut groups = Vec::new();
        let mut left = MATCH_STEPS;
        let complete = self.tree.matching(topic, &mut left, &mut |leaf| {
            for (session, subscription) in &leaf.sessions {
                found.entry(*session).or_default().push(*subscription);
            }
            groups.extend(leaf.groups.values().copied());
        });
        let members = |group| self.groups.get(group).map_or(&[][..], |group| &group.members[..]);
        let mut steps = MATCH_STEPS - left;
        let mut barred = BTreeSet::new();
        if let Some(may_read) = may_read {
            let shared: BTreeSet<u64> =
                groups.iter().flat_map(members).map(|(session, _)| *session).collect();
            steps += (found.len() + shared.len()) * DECISION_STEPS;
            found.retain(|session, _| may_read(*session));
            barred = shared.into_iter().filter(|session| !may_read(*session)).collect();
        }
        let targets = found.into_iter().filter_map(|(session, subscriptions)| {
            let own = merge(subscriptions.iter().filter(|s| !s.options.no_local));
            Some(Target { session, delivery: merge(subscriptions.iter())?, own })
        });
        let targets: Vec<Target> = targets.collect();
        let reach = targets.len() + groups.iter().map(|group| members(group).len()).sum::<usize>();
        let publishers = RefCell::default();
        (Route { targets, groups, barred, complete, reach, publishers }, steps)
    }

    /// The next member of a shared subscription, of those that `rank` gives a number: the highest
    /// comes first, and among equals the one that has waited longest.
    pub(super) fn pick(
        &mut self,
        group: u64,
        rank: impl Fn(u64) -> Option<u8>,
    ) -> Option<(u64, DeliveryOptions)> {
        let group = self.groups.get_mut(&group)?;
        let count = group.members.len();
        let turns = (0..count).map(|step| (group.next + step) % count);
        let mut best: Option<(u8, usize)> = None;
        for index in turns {
            let Some(rank) = rank(group.members[index].0) else { continue };
            if best.is_none_or(|(highest, _)| rank > highest) {
                best = Some((rank, index));
            }
        }
        let (_, index) = best?;
        group.next = index + 1;
        let (session, subscription) = group.members[index];
        Some((session, merge(std::iter::once(&subscription))?))
    }

    /// Sessions of a shared subscription.
    pub(super) fn members(&self, group: u64) -> impl Iterator<Item = u64> {
        self.groups
            .get(&group)
            .into_iter()
            .flat_map(|group| group.members.iter().map(|(session, _)| *session))
    }

    /// Forgets which subscribers topics have.
    pub(super) fn forget(&mut self) {
        self.cache.clear();
        self.cache_bytes = 0;
    }
}

/// Merges overlapping subscriptions into one delivery.
fn merge<'a>(subscriptions: impl Iterator<Item = &'a Subscription>) -> Option<DeliveryOptions> {
    let mut merged: Option<(QoS, bool)> = None;
    let mut ids = Vec::new();
    for Subscription { options, id } in subscriptions {
        let (qos, retain) = merged.unwrap_or_default();
        merged = Some((qos.max(options.qos), retain || options.retain_as_published));
        ids.extend(id);
    }
    let (qos, retain_as_published) = merged?;
    Some(DeliveryOptions { qos, retain_as_published, ids: ids.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscription(qos: QoS, id: u32, no_local: bool) -> Subscription {
        Subscription { options: SubscribeOptions { no_local, ..SubscribeOptions::qos(qos) }, id: Some(id) }
    }

    fn filter(text: &str) -> Filter {
        Filter::parse(text).unwrap()
    }

    #[test]
    fn overlapping_subscriptions_give_one_copy_with_the_highest_qos_and_all_identifiers() {
        let mut routes = Routes::default();
        assert!(routes.insert(1, &filter("a/#"), subscription(QoS::AtMostOnce, 1, false)));
        assert!(routes.insert(1, &filter("a/+"), subscription(QoS::ExactlyOnce, 2, true)));
        assert!(!routes.insert(1, &filter("a/+"), subscription(QoS::AtLeastOnce, 3, true)));
        let route = routes.find("a/b", None);
        assert_eq!(route.targets.len(), 1);
        let target = &route.targets[0];
        assert_eq!((target.delivery.qos, target.delivery.ids.len()), (QoS::AtLeastOnce, 2));
        assert_eq!(target.own.as_ref().unwrap().qos, QoS::AtMostOnce, "the other one is not for its own");
        assert!(routes.remove(1, &filter("a/#")) && !routes.remove(1, &filter("a/#")));
        assert_eq!(routes.find("a/b", None).targets[0].own, None);
        assert!(routes.remove(1, &filter("a/+")));
        assert!(routes.find("a/b", None).targets.is_empty() && routes.tree.is_empty() && routes.count == 0);
    }

    #[test]
    fn members_of_a_shared_subscription_take_turns_and_the_connected_come_first() {
        let mut routes = Routes::default();
        for session in 1..=3 {
            routes.insert(session, &filter("$share/g/a"), subscription(QoS::AtLeastOnce, 1, false));
        }
        let group = routes.find("a", None).groups[0];
        let mut turn =
            |rank: &dyn Fn(u64) -> Option<u8>| routes.pick(group, rank).map(|(session, _)| session);
        assert_eq!([(); 4].map(|()| turn(&|_| Some(1))), [1, 2, 3, 1].map(Some));
        assert_eq!([(); 2].map(|()| turn(&|s| Some(u8::from(s == 1)))), [1, 1].map(Some));
        assert_eq!([(); 2].map(|()| turn(&|s| (s != 2).then_some(0))), [3, 1].map(Some));
        assert_eq!(turn(&|_| None), None);
        for session in 1..=3 {
            assert!(routes.remove(session, &filter("$share/g/a")));
        }
        assert!(routes.find("a", None).groups.is_empty() && routes.groups.is_empty());
    }

    #[test]
    fn only_those_who_may_read_a_topic_are_its_subscribers() {
        let mut routes = Routes::default();
        for session in 1..=3 {
            routes.insert(session, &filter("a"), subscription(QoS::AtLeastOnce, 1, false));
            routes.insert(session, &filter("$share/g/a"), subscription(QoS::AtLeastOnce, 1, false));
        }
        let route = routes.find("a", Some(&|session| session != 2));
        assert_eq!(route.targets.iter().map(|target| target.session).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(route.barred, BTreeSet::from([2]));
        assert_eq!(routes.find("a", Some(&|_| false)).targets.len(), 2, "decided once");
        routes.forget();
        assert_eq!(routes.find("a", Some(&|_| false)).targets.len(), 0);
    }
}
