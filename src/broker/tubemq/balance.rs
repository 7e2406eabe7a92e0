//! Groups of consumers, and the assignment of partitions to their members by the master.
//!
//! ```text
//!   join, leave, silence, a new topic
//!        │ rebalance
//!        ▼
//!   events: DISCONNECT to members with too many
//!        │ done by all
//!        ▼
//!   rebalance ──► CONNECT to members with too few
//! ```
//! A member gets one event at a time, with the response to a heartbeat, and confirms it with a
//! later heartbeat. Partitions are not assigned while an event is open. A response may be lost with
//! its event: it is sent again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use forebay_tubemq::Code;
use forebay_tubemq::topic::Condition;

/// A topic and the number of a partition.
pub type Place = (String, u32);

/// Time after which an unconfirmed event is sent again.
const REPEAT: Duration = Duration::from_secs(15);
/// Interval at which members get partitions while others have not done what they were asked for.
const AGAIN: Duration = Duration::from_secs(1);
/// Limit on the partitions of one event, whose text repeats client and group for each. The others
/// follow with the next event.
const MAX_PLACES: usize = 1000;

/// Side that assigns partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The master.
    Server,
    /// Each member for itself.
    Client,
}

/// The configuration that all members of a group must share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    /// Side that assigns partitions.
    pub mode: Mode,
    /// Consumed topics.
    pub topics: BTreeSet<String>,
    /// Message types, by topic.
    pub filters: BTreeMap<String, BTreeSet<String>>,
    /// Expected number of members, if they state one.
    pub sources: i32,
}

impl GroupSpec {
    /// Parses the texts of a request; a condition is `topic#type,type`.
    pub fn new(mode: Mode, topics: Vec<String>, conditions: &[String], sources: i32) -> Self {
        let conditions = conditions.iter().filter_map(|condition| Condition::parse(condition).ok());
        let filters = conditions.map(|one| (one.topic, one.types.into_iter().collect())).collect();
        Self { mode, topics: topics.into_iter().collect(), filters, sources }
    }

    /// The first difference to the configuration of `group`.
    fn differ(&self, group: &Self) -> Option<(Code, &'static str)> {
        if self.mode != group.mode {
            Some((
                Code::InconsistentConsumeType,
                "the other members of the group use another way of balancing",
            ))
        } else if self.topics != group.topics {
            Some((Code::InconsistentTopicSet, "the other members of the group have other topics"))
        } else if self.filters != group.filters {
            Some((Code::InconsistentFilterSet, "the other members of the group have other filters"))
        } else if self.sources != group.sources {
            Some((
                Code::InconsistentSourceCount,
                "the other members of the group state another number of members",
            ))
        } else {
            None
        }
    }
}

/// An assignment event for a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Id, above 0, never reused.
    pub id: i64,
    /// Whether to take the partitions, or to release them.
    pub connect: bool,
    /// Partitions.
    pub places: Vec<Place>,
}

#[derive(Debug)]
struct Member {
    expires: Instant,
    node: i32,
    held: BTreeSet<Place>,
    event: Option<Event>,
    /// When the event was sent.
    given: Option<Instant>,
}

/// A group of consumers, as the [module](self) describes.
#[derive(Debug)]
pub struct Group {
    spec: GroupSpec,
    members: BTreeMap<String, Member>,
    /// When the members without an event are looked at again while others have one.
    again_at: Option<Instant>,
}

impl Group {
    /// A group without members.
    pub fn new(spec: GroupSpec) -> Self {
        Self { spec, members: BTreeMap::new(), again_at: None }
    }

    /// Consumed topics.
    pub fn topics(&self) -> &BTreeSet<String> {
        &self.spec.topics
    }

    /// Number of members.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// Adds a member, or replaces its registration. Its configuration must match that of the other
    /// members.
    pub fn join(
        &mut self,
        client: &str,
        spec: GroupSpec,
        node: i32,
        held: BTreeSet<Place>,
        expires: Instant,
    ) -> Result<(), (Code, &'static str)> {
        if self.members.keys().all(|other| other == client) {
            self.spec = spec;
        } else if let Some(difference) = spec.differ(&self.spec) {
            return Err(difference);
        }
        if node >= 0 && self.members.iter().any(|(other, member)| other != client && member.node == node) {
            return Err((Code::DuplicateIndexId, "another member of the group has the same node id"));
        }
        self.members.insert(client.to_owned(), Member { expires, node, held, event: None, given: None });
        Ok(())
    }

    /// Removes a member. Returns whether it was one.
    pub fn leave(&mut self, client: &str) -> bool {
        self.members.remove(client).is_some()
    }

    /// Renews the registration of a member. Returns whether it is one. A report states the
    /// partitions that it holds.
    pub fn beat(&mut self, client: &str, report: Option<BTreeSet<Place>>, expires: Instant) -> bool {
        let Some(member) = self.members.get_mut(client) else { return false };
        member.expires = expires;
        if let Some(held) = report {
            member.held = held;
        }
        true
    }

    /// Notes that a member has completed its event: as reported or, without a report, completely.
    pub fn done(&mut self, client: &str, reported: bool) {
        let Some(member) = self.members.get_mut(client) else { return };
        let Some(event) = member.event.take() else { return };
        member.given = None;
        for place in event.places.into_iter().filter(|_| !reported) {
            if event.connect {
                member.held.insert(place);
            } else {
                member.held.remove(&place);
            }
        }
    }

    /// Assigns `places` to the members that have no open event. A place is given to a member once
    /// no other holds it, or may be taking it. While events are open, this looks at the members
    /// once in `AGAIN`: there may be many, and each call of a client leads here.
    pub fn rebalance(&mut self, places: &[Place], now: Instant, next_event: &mut i64) {
        if self.spec.mode == Mode::Client {
            return;
        }
        if self.members.values().any(|member| member.event.is_some()) {
            if self.again_at.is_some_and(|at| now < at) {
                return;
            }
            self.again_at = Some(now + AGAIN);
        }
        let mut targets: Vec<BTreeSet<Place>> = vec![BTreeSet::new(); self.members.len()];
        if targets.is_empty() {
            return;
        }
        for (index, place) in places.iter().enumerate() {
            let of = index % targets.len();
            targets[of].insert(place.clone());
        }
        let mut give = |member: &mut Member, connect, mut places: Vec<Place>| {
            places.truncate(MAX_PLACES);
            if !places.is_empty() {
                member.event = Some(Event { id: *next_event, connect, places });
                *next_event += 1;
            }
        };
        let taking = |member: &Member| member.event.as_ref().is_some_and(|event| event.connect);
        let events = self.members.values().filter(|member| taking(member)).filter_map(|m| m.event.as_ref());
        let held = self.members.values().flat_map(|member| &member.held);
        let taken: BTreeSet<Place> = held.chain(events.flat_map(|event| &event.places)).cloned().collect();
        for (member, target) in self.members.values_mut().zip(&targets) {
            if member.event.is_some() {
                continue;
            }
            let surplus: Vec<Place> = member.held.difference(target).cloned().collect();
            if surplus.is_empty() {
                give(member, true, target.difference(&taken).cloned().collect());
            } else {
                give(member, false, surplus);
            }
        }
    }

    /// The event to send to a member, unless it was sent recently.
    pub fn event(&mut self, client: &str, now: Instant) -> Option<Event> {
        let member = self.members.get_mut(client)?;
        if member.given.is_some_and(|given| now < given + REPEAT) {
            return None;
        }
        let event = member.event.clone()?;
        member.given = Some(now);
        Some(event)
    }

    /// Whether a member has no open event.
    pub fn is_settled(&self, client: &str) -> bool {
        self.members.get(client).is_some_and(|member| member.event.is_none())
    }

    /// Removes and returns the members that were silent for too long.
    pub fn expire(&mut self, now: Instant) -> Vec<String> {
        let (gone, here) =
            std::mem::take(&mut self.members).into_iter().partition(|(_, member)| member.expires <= now);
        self.members = here;
        gone.into_keys().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(mode: Mode) -> GroupSpec {
        GroupSpec::new(mode, vec!["t".into()], &["t#a,b".into()], -1)
    }

    fn places(count: u32) -> Vec<Place> {
        (0..count).map(|id| ("t".to_owned(), id)).collect()
    }

    /// Lets every member do what it is given until nothing is left to do; gives what each holds.
    fn settle(group: &mut Group, count: u32, now: Instant) -> Vec<usize> {
        let mut next = 1;
        for round in 0..10 {
            group.rebalance(&places(count), now + AGAIN * round, &mut next);
            let clients: Vec<String> = group.members.keys().cloned().collect();
            for client in clients {
                if let Some(event) = group.event(&client, now) {
                    if event.connect {
                        let others: Vec<_> = group.members.values().flat_map(|member| &member.held).collect();
                        assert!(
                            event.places.iter().all(|place| !others.contains(&place)),
                            "two would hold it"
                        );
                    }
                    group.done(&client, false);
                }
            }
        }
        group.members.values().map(|member| member.held.len()).collect()
    }

    #[test]
    fn partitions_are_left_before_others_take_them() {
        let now = Instant::now();
        let later = now + Duration::from_secs(30);
        let mut group = Group::new(spec(Mode::Server));
        group.join("a", spec(Mode::Server), -1, BTreeSet::new(), later).unwrap();
        assert_eq!(settle(&mut group, 5, now), [5]);
        group.join("b", spec(Mode::Server), -1, BTreeSet::new(), later).unwrap();
        assert_eq!(settle(&mut group, 5, now), [3, 2]);
        assert_eq!(settle(&mut group, 8, now), [4, 4], "a topic grew");
        assert!(group.leave("a"));
        assert_eq!(settle(&mut group, 8, now), [8]);
        assert_eq!(group.expire(later), ["b"]);
    }

    #[test]
    fn an_open_event_of_one_member_does_not_hold_up_the_others() {
        let now = Instant::now();
        let later = now + Duration::from_secs(300);
        let mut group = Group::new(spec(Mode::Server));
        for member in ["a", "b", "c"] {
            group.join(member, spec(Mode::Server), -1, BTreeSet::new(), later).unwrap();
        }
        assert_eq!(settle(&mut group, 6, now), [2, 2, 2]);
        let mut next = 100;
        // One more comes, and a busy member does not give up what it must.
        group.join("d", spec(Mode::Server), -1, BTreeSet::new(), later).unwrap();
        group.rebalance(&places(6), now, &mut next);
        let asked = group.event("a", now).into_iter().chain(group.event("b", now)).next().unwrap();
        assert!(!asked.connect);
        let busy = if group.event("a", now + REPEAT).is_some() { "a" } else { "b" };
        let held: BTreeSet<Place> = group.members[busy].held.clone();
        // Another one leaves: its partitions go to those who may take them, and no others.
        group.leave("c");
        for round in 1..6 {
            group.rebalance(&places(6), now + AGAIN * round, &mut next);
            let others: Vec<String> = group.members.keys().filter(|name| *name != busy).cloned().collect();
            for other in others {
                if group.event(&other, now + REPEAT * 3).is_some() {
                    group.done(&other, false);
                }
            }
        }
        assert_eq!(group.members[busy].held, held, "it has not answered");
        let mut all: Vec<Place> = group.members.values().flat_map(|member| member.held.clone()).collect();
        all.sort();
        let expected = places(6);
        assert_eq!(all, expected, "nothing lies idle, and nothing is held twice");
    }

    #[test]
    fn many_partitions_are_taken_and_left_by_several_events() {
        let now = Instant::now();
        let later = now + Duration::from_secs(30);
        let mut group = Group::new(spec(Mode::Server));
        group.join("a", spec(Mode::Server), -1, BTreeSet::new(), later).unwrap();
        group.rebalance(&places(2500), now, &mut 1);
        assert_eq!(group.event("a", now).unwrap().places.len(), MAX_PLACES);
        group.done("a", false);
        assert_eq!(settle(&mut group, 2500, now), [2500]);
        group.join("b", spec(Mode::Server), -1, BTreeSet::new(), later).unwrap();
        assert_eq!(settle(&mut group, 2500, now), [1250, 1250]);
    }

    #[test]
    fn an_event_is_given_once_and_again_when_its_answer_seems_lost() {
        let now = Instant::now();
        let mut group = Group::new(spec(Mode::Server));
        group.join("a", spec(Mode::Server), -1, BTreeSet::new(), now + REPEAT * 4).unwrap();
        group.rebalance(&places(2), now, &mut 7);
        let event = group.event("a", now).unwrap();
        assert_eq!((event.id, event.connect, event.places.len()), (7, true, 2));
        assert_eq!(group.event("a", now), None);
        assert!(!group.is_settled("a"));
        assert_eq!(group.event("a", now + REPEAT), Some(event));
        group.beat("a", Some(places(1).into_iter().collect()), now + REPEAT * 4);
        group.done("a", true);
        group.rebalance(&places(2), now, &mut 8);
        let rest = group.event("a", now + REPEAT).unwrap();
        assert_eq!(rest.places, [("t".to_owned(), 1)], "what it could not take");
    }

    #[test]
    fn members_of_a_group_agree() {
        let now = Instant::now();
        let mut group = Group::new(spec(Mode::Client));
        group.join("a", spec(Mode::Client), 0, BTreeSet::new(), now).unwrap();
        let mut join =
            |spec, node| group.join("b", spec, node, BTreeSet::new(), now).map_err(|(code, _)| code);
        let other = |change: fn(&mut GroupSpec)| {
            let mut spec = spec(Mode::Client);
            change(&mut spec);
            spec
        };
        assert_eq!(join(spec(Mode::Server), 1), Err(Code::InconsistentConsumeType));
        let topics = other(|spec| spec.topics.clear());
        assert_eq!(join(topics, 1), Err(Code::InconsistentTopicSet));
        assert_eq!(join(other(|spec| spec.filters.clear()), 1), Err(Code::InconsistentFilterSet));
        assert_eq!(join(other(|spec| spec.sources = 2), 1), Err(Code::InconsistentSourceCount));
        assert_eq!(join(spec(Mode::Client), 0), Err(Code::DuplicateIndexId));
        assert_eq!(join(spec(Mode::Client), 1), Ok(()));
        assert_eq!(group.join("a", spec(Mode::Client), 0, BTreeSet::new(), now), Ok(()), "it comes again");
    }
}
