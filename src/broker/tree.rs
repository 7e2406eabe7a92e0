//! A tree of topic levels: the filters that match a topic.
//!
//! Levels that lead to one filter only share a node (path compression), so a tree has at most twice
//! as many nodes as filters, however many levels they have. A search may look at a bounded number
//! of levels: filters of many `+` can make it look at exponentially many for one topic.
//!
//! Topics and filters have at most [`MAX_LEVELS`] levels, so that the recursion cannot exhaust the
//! stack.

use forebay_base::random::HashMap;

/// Limit on the levels of a topic or filter, as in Mosquitto.
pub const MAX_LEVELS: usize = 200;

/// Whether a topic or filter is within the limit on levels.
pub fn fits(path: &str) -> bool {
    path.bytes().filter(|byte| *byte == b'/').count() < MAX_LEVELS
}

/// Values by filter.
#[derive(Debug)]
pub struct Tree<T> {
    root: Node<T>,
    len: usize,
}

#[derive(Debug)]
struct Node<T> {
    /// Levels behind the first one, which is the node's key in its parent.
    tail: Option<Box<str>>,
    value: Option<T>,
    /// Nodes by their first level.
    children: HashMap<Box<str>, Node<T>>,
}

impl<T> Node<T> {
    fn new(tail: Option<&str>) -> Self {
        Self { tail: tail.map(Into::into), value: None, children: HashMap::default() }
    }
}

impl<T> Default for Tree<T> {
    fn default() -> Self {
        Self { root: Node::new(None), len: 0 }
    }
}

/// Splits off the first level.
fn split(path: &str) -> (&str, Option<&str>) {
    path.split_once('/').map_or((path, None), |(level, rest)| (level, Some(rest)))
}

/// Splits two paths behind the levels that they have in common: these levels, and what follows in
/// each.
fn common<'a, 'b>(a: &'a str, b: &'b str) -> (Option<&'a str>, Option<&'a str>, Option<&'b str>) {
    let (mut rest_a, mut rest_b) = (Some(a), Some(b));
    while let (Some(path_a), Some(path_b)) = (rest_a, rest_b) {
        let ((level_a, next_a), (level_b, next_b)) = (split(path_a), split(path_b));
        if level_a != level_b {
            break;
        }
        (rest_a, rest_b) = (next_a, next_b);
    }
    let shared = match rest_a {
        None => Some(a),
        // Without the slash between them.
        Some(rest) => a.len().checked_sub(rest.len() + 1).map(|length| &a[..length]),
    };
    (shared, rest_a, rest_b)
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

    /// The value of a filter.
    pub fn get_mut(&mut self, path: &str) -> Option<&mut T> {
        let (mut node, mut rest) = (&mut self.root, Some(path));
        while let Some(path) = rest {
            let (level, after) = split(path);
            node = node.children.get_mut(level)?;
            rest = match node.tail.as_deref() {
                None => after,
                Some(tail) if after == Some(tail) => None,
                Some(tail) => Some(after?.strip_prefix(tail)?.strip_prefix('/')?),
            };
        }
        node.value.as_mut()
    }

    /// The value of a filter, inserted if necessary.
    pub fn entry(&mut self, path: &str) -> &mut T
    where
        T: Default,
    {
        debug_assert!(fits(path));
        let (mut node, mut rest) = (&mut self.root, Some(path));
        while let Some(path) = rest {
            let (level, after) = split(path);
            if !node.children.contains_key(level) {
                node.children.insert(level.into(), Node::new(after));
            }
            node = node.children.get_mut(level).expect("just inserted");
            rest = match (node.tail.take(), after) {
                (None, after) => after,
                (Some(tail), None) => {
                    node.divide(None, &tail);
                    None
                }
                (Some(tail), Some(after)) => {
                    let (shared, of_node, of_path) = common(&tail, after);
                    match of_node {
                        Some(below) => node.divide(shared, below),
                        None => node.tail = Some(tail.clone()),
                    }
                    of_path
                }
            };
        }
        if node.value.is_none() {
            self.len += 1;
        }
        node.value.get_or_insert_default()
    }

    /// Removes the value of a filter, and the nodes that only led to it.
    pub fn remove(&mut self, path: &str) -> Option<T> {
        let removed = Self::remove_at(&mut self.root, path);
        self.len -= usize::from(removed.is_some());
        removed
    }

    fn remove_at(node: &mut Node<T>, path: &str) -> Option<T> {
        let (level, after) = split(path);
        let child = node.children.get_mut(level)?;
        let rest = match child.tail.as_deref() {
            None => after,
            Some(tail) if after == Some(tail) => None,
            Some(tail) => Some(after?.strip_prefix(tail)?.strip_prefix('/')?),
        };
        let removed = match rest {
            Some(rest) => Self::remove_at(child, rest),
            None => child.value.take(),
        };
        if child.value.is_none() {
            match child.children.len() {
                0 => drop(node.children.remove(level)),
                1 => child.absorb(),
                _ => {}
            }
        }
        removed
    }

    /// Visits the values whose filter matches `topic`, and takes one of `steps` for each level that
    /// it looks at. Returns whether they were enough; if not, not all values were visited.
    #[must_use = "the visit may be incomplete"]
    pub fn matching<'a>(&'a self, topic: &str, steps: &mut usize, visit: &mut impl FnMut(&'a T)) -> bool {
        // Wildcards in the first level do not match topics that begin with `$` [MQTT-4.7.2-1].
        Self::below(&self.root, Some(topic), !topic.starts_with('$'), steps, visit)
    }

    /// Visits the matches below a node, for the rest of a topic.
    fn below<'a>(
        node: &'a Node<T>,
        rest: Option<&str>,
        wildcards: bool,
        steps: &mut usize,
        visit: &mut impl FnMut(&'a T),
    ) -> bool {
        if rest.is_none() {
            node.value.iter().for_each(&mut *visit);
        }
        // `sport/#` matches `sport`, too.
        if wildcards {
            node.children.get("#").and_then(|all| all.value.as_ref()).into_iter().for_each(&mut *visit);
        }
        let Some(rest) = rest else { return true };
        let (level, after) = split(rest);
        // A level of a topic is never a wildcard.
        [Some(level), wildcards.then_some("+")]
            .into_iter()
            .flatten()
            .filter_map(|level| node.children.get(level))
            .all(|child| Self::through(child, after, steps, visit))
    }

    /// Follows the levels of a node's tail, and goes on below it.
    fn through<'a>(
        node: &'a Node<T>,
        mut rest: Option<&str>,
        steps: &mut usize,
        visit: &mut impl FnMut(&'a T),
    ) -> bool {
        let mut tail = node.tail.as_deref();
        loop {
            let Some(left) = steps.checked_sub(1) else { return false };
            *steps = left;
            let Some(path) = tail else { return Self::below(node, rest, true, steps, visit) };
            let (wanted, next) = split(path);
            if wanted == "#" {
                node.value.iter().for_each(&mut *visit);
                return true;
            }
            let Some(topic) = rest else { return true };
            let (level, after) = split(topic);
            if wanted != "+" && wanted != level {
                return true;
            }
            (tail, rest) = (next, after);
        }
    }
}

impl<T> Node<T> {
    /// Keeps the levels `shared` in this node and moves everything else to a child behind them.
    fn divide(&mut self, shared: Option<&str>, below: &str) {
        let (level, rest) = split(below);
        let mut child = Self::new(rest);
        child.value = self.value.take();
        child.children = std::mem::take(&mut self.children);
        self.children.insert(level.into(), child);
        self.tail = shared.map(Into::into);
    }

    /// Takes in the only child.
    fn absorb(&mut self) {
        let Some((level, child)) = std::mem::take(&mut self.children).into_iter().next() else { return };
        let tail = [self.tail.as_deref(), Some(&*level), child.tail.as_deref()];
        self.tail = Some(tail.into_iter().flatten().collect::<Vec<_>>().join("/").into());
        self.value = child.value;
        self.children = child.children;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use forebay_mqtt::topic;

    /// Paths of few names and wildcards, so that many match.
    fn path(wildcards: bool) -> impl Strategy<Value = String> {
        let names = if wildcards { vec!["a", "b", "", "+", "$x"] } else { vec!["a", "b", "", "c", "$x"] };
        let levels = proptest::collection::vec(proptest::sample::select(names), 1..6);
        (levels, any::<bool>()).prop_map(move |(levels, open)| {
            let text = levels.join("/");
            if wildcards && open { format!("{text}/#") } else { text }
        })
    }

    fn nodes<T>(node: &Node<T>) -> usize {
        1 + node.children.values().map(nodes).sum::<usize>()
    }

    proptest! {
        #[test]
        fn the_search_agrees_with_the_matching_of_one_filter(
            filters in proptest::collection::btree_set(path(true), 1..14),
            topics in proptest::collection::btree_set(path(false), 1..12),
            gone in 0_usize..14,
        ) {
            let mut tree = Tree::default();
            for filter in &filters {
                *tree.entry(filter) = filter.clone();
                prop_assert_eq!(tree.get_mut(filter).cloned(), Some(filter.clone()));
            }
            prop_assert_eq!(tree.len(), filters.len());
            prop_assert!(nodes(&tree.root) <= 2 * filters.len() + 1, "{:?}", tree);
            let mut left = filters.clone();
            for filter in filters.iter().take(gone) {
                let removed = tree.remove(filter);
                prop_assert_eq!(removed.as_ref(), Some(filter));
                prop_assert!(tree.remove(filter).is_none() && tree.get_mut(filter).is_none());
                left.remove(filter);
            }
            prop_assert!(nodes(&tree.root) <= 2 * left.len() + 1, "{:?}", tree);
            for topic in &topics {
                let mut found = Vec::new();
                prop_assert!(tree.matching(topic, &mut 10_000, &mut |filter: &String| found.push(filter.clone())));
                found.sort();
                let expected: Vec<_> = left.iter().filter(|f| topic::matches(f, topic)).cloned().collect();
                prop_assert_eq!(found, expected, "filters for {}", topic);
            }
            for filter in &left {
                let removed = tree.remove(filter);
                prop_assert_eq!(removed.as_ref(), Some(filter));
            }
            prop_assert!(tree.is_empty() && tree.root.children.is_empty());
        }
    }

    #[test]
    fn a_lone_hash_matches_everything_but_the_brokers_own_topics() {
        let mut tree = Tree::default();
        *tree.entry("#") = 1;
        *tree.entry("$SYS/#") = 2;
        let found = |topic| {
            let mut found = Vec::new();
            assert!(tree.matching(topic, &mut 100, &mut |value: &i32| found.push(*value)));
            found
        };
        assert_eq!((found("a"), found("/"), found("$SYS/x")), (vec![1], vec![1], vec![2]));
    }

    #[test]
    fn the_depth_is_bounded() {
        assert!(fits(&"/".repeat(MAX_LEVELS - 1)));
        assert!(!fits(&"/".repeat(MAX_LEVELS)));
    }

    /// Filters of 199 levels, all of which match one topic, whose first levels differ in every
    /// combination of `a` and `+`.
    fn fan(bits: usize) -> impl Iterator<Item = String> {
        (0..1_usize << bits).map(move |number| {
            let head = (0..bits).map(|bit| if number >> bit & 1 == 1 { "a" } else { "+" });
            let tail = std::iter::repeat_n("a", 199 - bits);
            head.chain(tail).collect::<Vec<_>>().join("/")
        })
    }

    #[test]
    fn a_filter_costs_one_or_two_nodes_whatever_its_levels() {
        let mut tree: Tree<()> = Tree::default();
        fan(11).for_each(|filter| *tree.entry(&filter) = ());
        assert!(nodes(&tree.root) <= 2 * 2048 + 1);
    }

    #[test]
    fn a_search_stops_when_its_steps_are_used_up() {
        let mut tree: Tree<()> = Tree::default();
        fan(11).for_each(|filter| *tree.entry(&filter) = ());
        let topic = vec!["a"; 199].join("/");
        let mut found = 0;
        assert!(tree.matching(&topic, &mut (1 << 20), &mut |()| found += 1));
        assert_eq!(found, 2048);
        found = 0;
        assert!(!tree.matching(&topic, &mut 50_000, &mut |()| found += 1));
        assert!(found < 300, "{found} filters");
    }
}
