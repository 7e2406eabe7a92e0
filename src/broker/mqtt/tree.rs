//! A tree of topic levels, for both directions: which filters match a topic, and which topics match a filter.
//!
//! Topics and filters have at most [`MAX_LEVELS`] levels, so that the recursion cannot exhaust the stack.

use std::collections::HashMap;

use bytestring::ByteString;

/// Limit on the levels of a topic or filter, as in Mosquitto.
pub const MAX_LEVELS: usize = 200;

/// Whether a topic or filter is within the limit on levels.
pub fn fits(path: &str) -> bool {
    path.bytes().filter(|byte| *byte == b'/').count() < MAX_LEVELS
}

/// Values by path.
#[derive(Debug)]
pub struct Tree<T> {
    root: Node<T>,
    len: usize,
}

#[derive(Debug)]
struct Node<T> {
    value: Option<T>,
    children: HashMap<ByteString, Node<T>>,
}

impl<T> Default for Node<T> {
    fn default() -> Self {
        Self { value: None, children: HashMap::new() }
    }
}

impl<T> Default for Tree<T> {
    fn default() -> Self {
        Self { root: Node::default(), len: 0 }
    }
}

impl<T> Tree<T> {
    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the tree is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value at `path`.
    pub fn get(&self, path: &str) -> Option<&T> {
        let node = path.split('/').try_fold(&self.root, |node, level| node.children.get(level))?;
        node.value.as_ref()
    }

    /// The value at `path`.
    pub fn get_mut(&mut self, path: &str) -> Option<&mut T> {
        let node = path.split('/').try_fold(&mut self.root, |node, level| node.children.get_mut(level))?;
        node.value.as_mut()
    }

    /// The value at `path`, inserted if necessary.
    pub fn entry(&mut self, path: &str) -> &mut T
    where
        T: Default,
    {
        debug_assert!(fits(path));
        let mut node = &mut self.root;
        for level in path.split('/') {
            if !node.children.contains_key(level) {
                node.children.insert(level.into(), Node::default());
            }
            node = node.children.get_mut(level).expect("just inserted");
        }
        if node.value.is_none() {
            self.len += 1;
        }
        node.value.get_or_insert_default()
    }

    /// Removes the value at `path`, and the levels that only led to it.
    pub fn remove(&mut self, path: &str) -> Option<T> {
        let removed = Self::remove_at(&mut self.root, path);
        self.len -= usize::from(removed.is_some());
        removed
    }

    fn remove_at(node: &mut Node<T>, path: &str) -> Option<T> {
        let (level, rest) = path.split_once('/').map_or((path, None), |(level, rest)| (level, Some(rest)));
        let child = node.children.get_mut(level)?;
        let removed = match rest {
            Some(rest) => Self::remove_at(child, rest),
            None => child.value.take(),
        };
        if child.value.is_none() && child.children.is_empty() {
            node.children.remove(level);
        }
        removed
    }

    /// Visits the values whose path, a filter, matches `topic`.
    pub fn matching<'a>(&'a self, topic: &str, visit: &mut impl FnMut(&'a T)) {
        // Wildcards in the first level do not match topics that begin with `$` [MQTT-4.7.2-1].
        Self::match_filters(&self.root, topic, !topic.starts_with('$'), visit);
    }

    fn match_filters<'a>(node: &'a Node<T>, topic: &str, wildcards: bool, visit: &mut impl FnMut(&'a T)) {
        let (level, rest) = topic.split_once('/').map_or((topic, None), |(level, rest)| (level, Some(rest)));
        let mut step = |child: &'a Node<T>| match rest {
            Some(rest) => Self::match_filters(child, rest, true, visit),
            None => {
                child.value.iter().for_each(&mut *visit);
                // `sport/#` matches `sport`, too.
                child.children.get("#").and_then(|all| all.value.as_ref()).into_iter().for_each(&mut *visit);
            }
        };
        // A level of a topic is never a wildcard.
        if let Some(child) = node.children.get(level) {
            step(child);
        }
        if wildcards {
            if let Some(child) = node.children.get("+") {
                step(child);
            }
            node.children.get("#").and_then(|all| all.value.as_ref()).into_iter().for_each(&mut *visit);
        }
    }

    /// Visits every value.
    pub fn all<'a>(&'a self, visit: &mut impl FnMut(&'a T)) {
        Self::below(&self.root, visit);
    }

    /// Visits the values whose path, a topic, matches `filter`.
    pub fn matched_by<'a>(&'a self, filter: &str, visit: &mut impl FnMut(&'a T)) {
        Self::match_topics(&self.root, filter, true, visit);
    }

    fn match_topics<'a>(node: &'a Node<T>, filter: &str, first: bool, visit: &mut impl FnMut(&'a T)) {
        let (level, rest) =
            filter.split_once('/').map_or((filter, None), |(level, rest)| (level, Some(rest)));
        let visible = |name: &str| !(first && name.starts_with('$'));
        if level == "#" {
            let children = node.children.iter().filter(|(name, _)| visible(name));
            return children.for_each(|(_, child)| Self::below(child, visit));
        }
        let mut step = |child: &'a Node<T>| match rest {
            Some("#") => Self::below(child, visit),
            Some(rest) => Self::match_topics(child, rest, false, visit),
            None => child.value.iter().for_each(&mut *visit),
        };
        if level == "+" {
            node.children.iter().filter(|(name, _)| visible(name)).for_each(|(_, child)| step(child));
        } else if let Some(child) = node.children.get(level) {
            step(child);
        }
    }

    fn below<'a>(node: &'a Node<T>, visit: &mut impl FnMut(&'a T)) {
        node.value.iter().for_each(&mut *visit);
        node.children.values().for_each(|child| Self::below(child, visit));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mqtt::topic;

    /// Paths of few names and wildcards, so that many match.
    fn path(wildcards: bool) -> impl Strategy<Value = String> {
        let names = if wildcards { vec!["a", "b", "", "+", "$x"] } else { vec!["a", "b", "", "c", "$x"] };
        let levels = proptest::collection::vec(proptest::sample::select(names), 1..5);
        (levels, any::<bool>()).prop_map(move |(levels, open)| {
            let text = levels.join("/");
            if wildcards && open { format!("{text}/#") } else { text }
        })
    }

    proptest! {
        #[test]
        fn both_walks_agree_with_the_matching_of_one_filter(
            filters in proptest::collection::btree_set(path(true), 1..12),
            topics in proptest::collection::btree_set(path(false), 1..12),
        ) {
            let (mut by_filter, mut by_topic) = (Tree::default(), Tree::default());
            for filter in &filters {
                *by_filter.entry(filter) = filter.clone();
            }
            for topic in &topics {
                *by_topic.entry(topic) = topic.clone();
            }
            prop_assert_eq!((by_filter.len(), by_topic.len()), (filters.len(), topics.len()));
            for topic in &topics {
                let mut found = Vec::new();
                by_filter.matching(topic, &mut |filter: &String| found.push(filter.clone()));
                found.sort();
                let expected: Vec<_> = filters.iter().filter(|f| topic::matches(f, topic)).cloned().collect();
                prop_assert_eq!(found, expected, "filters for {}", topic);
            }
            for filter in &filters {
                let mut found = Vec::new();
                by_topic.matched_by(filter, &mut |topic: &String| found.push(topic.clone()));
                found.sort();
                let expected: Vec<_> = topics.iter().filter(|t| topic::matches(filter, t)).cloned().collect();
                prop_assert_eq!(found, expected, "topics for {}", filter);
            }
            for filter in &filters {
                let removed = by_filter.remove(filter);
                prop_assert_eq!(removed.as_ref(), Some(filter));
                prop_assert!(by_filter.remove(filter).is_none());
            }
            prop_assert!(by_filter.is_empty() && by_filter.root.children.is_empty());
        }
    }

    #[test]
    fn a_lone_hash_matches_everything_but_the_brokers_own_topics() {
        let mut tree = Tree::default();
        *tree.entry("#") = 1;
        *tree.entry("$SYS/#") = 2;
        let found = |topic| {
            let mut found = Vec::new();
            tree.matching(topic, &mut |value: &i32| found.push(*value));
            found
        };
        assert_eq!((found("a"), found("/"), found("$SYS/x")), (vec![1], vec![1], vec![2]));
    }

    #[test]
    fn the_depth_is_bounded() {
        assert!(fits(&"/".repeat(MAX_LEVELS - 1)));
        assert!(!fits(&"/".repeat(MAX_LEVELS)));
    }
}
