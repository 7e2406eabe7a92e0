//! Retained messages: the last message of each topic that was published with RETAIN. All of them
//! are kept in memory, in order of their topics.
//!
//! A subscription finds its messages one by one ([`Retained::next`]), from the topic where it
//! stopped, so nothing is collected for it. The search jumps over topics that cannot match: it
//! looks at about as many topics as a walk through a tree of levels would.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;

use bytestring::ByteString;

use super::message::Message;

/// The retained message of a topic.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) message: Rc<Message>,
    /// Number in the store; `None` if it is not stored.
    pub(super) sequence: Option<u64>,
    /// Place in the order in which messages were retained.
    pub(super) stamp: u64,
}

/// Retained messages by topic.
#[derive(Debug, Default)]
pub(super) struct Retained {
    slots: BTreeMap<ByteString, Slot>,
    bytes: usize,
    /// Topics of messages that expire, by their time.
    expiring: BTreeSet<(u64, ByteString)>,
    stamp: u64,
}

/// Result of [`Retained::next`].
#[derive(Debug)]
pub(super) enum Next {
    /// A match. The search stays at it until the place is moved on.
    Found(Slot),
    /// The steps are used up.
    Paused,
    /// There are no more matches.
    End,
}

impl Retained {
    /// Number of messages.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Approximate memory use.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// [`Slot::stamp`] of the message that was retained last.
    pub(super) fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Whether a message of `weight` bytes exceeds the limits on the number and the bytes of
    /// messages when the topic retains it. A smaller message may always replace one.
    pub(super) fn is_full(&self, topic: &str, weight: usize, limit: usize, bytes: usize) -> bool {
        let before = self.slots.get(topic).map(|slot| slot.message.weight());
        let grows = weight > before.unwrap_or(0);
        let full = self.bytes - before.unwrap_or(0) + weight > bytes;
        before.is_none() && self.slots.len() >= limit || grows && full
    }

    /// Whether the topic has a retained message.
    pub(super) fn contains(&self, topic: &str) -> bool {
        self.slots.contains_key(topic)
    }

    /// Replaces the retained message of a topic and returns the old one.
    pub(super) fn set(&mut self, message: Rc<Message>, sequence: Option<u64>) -> Option<Slot> {
        // In a store, the number of a message is its stamp after a restart.
        self.stamp = sequence.unwrap_or(self.stamp + 1).max(self.stamp + 1);
        self.bytes += message.weight();
        if let Some(at) = message.expires_run_ms {
            self.expiring.insert((at, message.topic().clone()));
        }
        let topic = message.topic().clone();
        let before = self.slots.insert(topic, Slot { message, sequence, stamp: self.stamp });
        before.inspect(|slot| self.forget(slot))
    }

    fn forget(&mut self, slot: &Slot) {
        self.bytes -= slot.message.weight();
        let topic = slot.message.topic();
        if let Some(at) = slot.message.expires_run_ms
            && self.slots.get(topic).is_none_or(|new| new.message.expires_run_ms != Some(at))
        {
            self.expiring.remove(&(at, topic.clone()));
        }
    }

    /// Removes the retained message of a topic.
    pub(super) fn clear(&mut self, topic: &str) -> Option<Slot> {
        self.slots.remove(topic).inspect(|slot| self.forget(slot))
    }

    /// The next message whose topic matches `filter`. `place` is moved to it; each topic that is
    /// looked at costs one of `steps`.
    pub(super) fn next(&self, filter: &str, place: &mut Bound<String>, steps: &mut usize) -> Next {
        while *steps > 0 {
            *steps -= 1;
            let range = (place.as_ref().map(String::as_str), Bound::Unbounded);
            let Some((topic, slot)) = self.slots.range::<str, _>(range).next() else { return Next::End };
            *place = match compare(filter, topic) {
                Comparison::Match => {
                    *place = Bound::Included(topic.to_string());
                    return Next::Found(slot.clone());
                }
                Comparison::Next => Bound::Excluded(topic.to_string()),
                Comparison::Seek(target) => {
                    debug_assert!(*target > **topic, "the search goes forward");
                    Bound::Included(target)
                }
                Comparison::End => return Next::End,
            };
        }
        Next::Paused
    }

    /// Topics of messages that have expired.
    pub(super) fn expired(&self, run_ms: u64) -> Vec<ByteString> {
        let due = self.expiring.iter().take_while(|(at, _)| *at <= run_ms);
        due.map(|(_, topic)| topic.clone()).collect()
    }
}

/// The place at which a search for a filter begins.
pub(super) fn start(filter: &str) -> Bound<String> {
    let wildcard = filter.find(['+', '#']).unwrap_or(filter.len());
    // `a/#` matches `a`, too.
    let literal = &filter[..wildcard];
    Bound::Included(literal.strip_suffix('/').unwrap_or(literal).to_owned())
}

#[derive(Debug)]
enum Comparison {
    Match,
    /// The topic does not match; the next one may.
    Next,
    /// No topic before this one matches.
    Seek(String),
    /// No later topic matches.
    End,
}

/// Compares a topic with a filter, level by level.
fn compare(filter: &str, topic: &str) -> Comparison {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        // Wildcards in the first level do not match topics that begin with `$` [MQTT-4.7.2-1].
        return Comparison::Seek("%".into());
    }
    // Start of the topic's next level, if there is one.
    let mut place = Some(0);
    for wanted in filter.split('/') {
        if wanted == "#" {
            return Comparison::Match;
        }
        let Some(start) = place else { return Comparison::Next };
        let end = topic[start..].find('/').map(|length| start + length);
        if wanted != "+" && &topic[start..end.unwrap_or(topic.len())] != wanted {
            // In order come: topics that end with this level, topics with levels below it,
            // everything else.
            let exact = format!("{}{wanted}", &topic[..start]);
            if topic < exact.as_str() {
                return Comparison::Seek(exact);
            }
            let below = exact + "/";
            if topic < below.as_str() {
                return Comparison::Seek(below);
            }
            return behind(&topic[..start]);
        }
        place = end.map(|end| end + 1);
    }
    match place {
        None => Comparison::Match,
        Some(start) => behind(&topic[..start]),
    }
}

/// Seeks the first topic behind all that begin with `prefix`, which is empty or ends with a slash.
fn behind(prefix: &str) -> Comparison {
    match prefix.strip_suffix('/') {
        // `0` follows the slash.
        Some(levels) => Comparison::Seek(format!("{levels}0")),
        None => Comparison::End,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::message::Moment;
    use super::*;
    use forebay_mqtt::packet::Publish;
    use forebay_mqtt::topic;

    fn retained<'a>(topics: impl IntoIterator<Item = &'a String>) -> Retained {
        let mut retained = Retained::default();
        for topic in topics {
            let publish = Publish { topic: topic.as_str().into(), ..Publish::default() };
            retained.set(Rc::new(Message::new(publish, Moment::default())), None);
        }
        retained
    }

    /// The matches, and the number of topics that were looked at.
    fn find(retained: &Retained, filter: &str, at_once: usize) -> (Vec<String>, usize) {
        let (mut found, mut place, mut looked) = (Vec::new(), start(filter), 0);
        loop {
            let mut steps = at_once;
            let next = retained.next(filter, &mut place, &mut steps);
            looked += at_once - steps;
            match next {
                Next::Found(slot) => {
                    found.push(slot.message.topic().to_string());
                    place = Bound::Excluded(slot.message.topic().to_string());
                }
                Next::Paused => {}
                Next::End => return (found, looked),
            }
        }
    }

    /// Paths of few names, so that many match; `-` and `0` sort before and after the slash.
    fn path(names: &'static [&'static str], open: bool) -> impl Strategy<Value = String> {
        let levels = proptest::collection::vec(proptest::sample::select(names), 1..5);
        (levels, any::<bool>()).prop_map(move |(levels, hash)| {
            let text = levels.join("/");
            if open && hash { format!("{text}/#") } else { text }
        })
    }

    proptest! {
        #[test]
        fn the_search_agrees_with_the_matching_of_one_filter(
            filter in path(&["a", "b", "", "+", "$x"], true),
            topics in proptest::collection::btree_set(path(&["a", "a-", "a0", "b", "", "$x"], false), 1..20),
            at_once in 1_usize..5,
        ) {
            let expected: Vec<_> = topics.iter().filter(|t| topic::matches(&filter, t)).cloned().collect();
            prop_assert_eq!(find(&retained(&topics), &filter, at_once).0, expected);
        }
    }

    #[test]
    fn topics_that_cannot_match_are_not_looked_at() {
        let deep = (0..1000).map(|n| format!("a/b/{n}/c"));
        let topics: Vec<_> = deep.chain(["a/x".to_owned(), "c".to_owned()]).collect();
        let retained = retained(&topics);
        for (filter, matches) in
            [("+/x", 1), ("a/x", 1), ("c", 1), ("+", 1), ("a/b", 0), ("+/+", 1), ("d/#", 0)]
        {
            let (found, looked) = find(&retained, filter, usize::MAX);
            assert_eq!(found.len(), matches, "{filter}");
            assert!(looked < 10, "{filter} looked at {looked} topics");
        }
        assert_eq!(find(&retained, "a/#", usize::MAX).0.len(), 1001);
    }
}
