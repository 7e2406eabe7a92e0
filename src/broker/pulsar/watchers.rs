//! Watchers of lists of topics: clients that are told which topics of a pattern appear and
//! disappear.
//!
//! Changes are gathered for a moment, so that many cost one look. A connection that does not read
//! its updates gets the whole list once it does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use regex::{Regex, RegexBuilder};

use forebay_base::error::{Error, ErrorKind, Result};
use forebay_pulsar::pattern::without_domain;
use forebay_pulsar::pb;

/// Time for which changes are gathered.
const GATHERED: Duration = Duration::from_millis(50);
/// Limit on the length of a pattern, in bytes.
const MAX_PATTERN: usize = 256;
/// Memory of a compiled pattern, in bytes.
pub(super) const PROGRAM: usize = 64 << 10;
/// Limit on the watchers of a connection.
const MAX_WATCHERS: usize = 100;
/// Limit on the patterns that are watched, which a topic that appears is compared with.
const MAX_PATTERNS: usize = 200;
/// Names in one update.
const NAMES: usize = 1000;

/// Namespace, as the beginning of names, and pattern.
type Key = Arc<(String, String)>;

#[derive(Debug)]
pub(super) struct Watched {
    pub(super) regex: Regex,
    /// Connection and id of each watcher, and whether it has missed updates.
    pub(super) watchers: BTreeMap<(u64, u64), bool>,
}

/// The watchers of a broker.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    pub(super) patterns: BTreeMap<Key, Watched>,
    by_id: BTreeMap<(u64, u64), Key>,
    /// Topics that have appeared or disappeared since the last look.
    pub(super) changed: BTreeSet<Arc<str>>,
    pub(super) due: Option<Instant>,
}

impl Watchers {
    /// Notes that a topic has appeared or disappeared.
    pub(super) fn changed(&mut self, now: Instant, name: &Arc<str>) {
        if !self.patterns.is_empty() {
            self.changed.insert(Arc::clone(name));
            self.due.get_or_insert(now + GATHERED);
        }
    }

    /// Time of the next look.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Ends a watcher.
    pub(super) fn remove(&mut self, session: u64, id: u64) {
        let Some(key) = self.by_id.remove(&(session, id)) else { return };
        if let Some(watched) = self.patterns.get_mut(&key) {
            watched.watchers.remove(&(session, id));
            if watched.watchers.is_empty() {
                self.patterns.remove(&key);
            }
        }
    }

    /// Ends the watchers of a connection.
    pub(super) fn disconnect(&mut self, session: u64) {
        let ids: Vec<u64> =
            self.by_id.range((session, 0)..=(session, u64::MAX)).map(|((_, id), _)| *id).collect();
        ids.into_iter().for_each(|id| self.remove(session, id));
    }

    /// The output of a connection has been taken: those of its watchers that have missed updates
    /// are due.
    pub(super) fn drained(&mut self, now: Instant, session: u64) {
        let mut own = self.by_id.range((session, 0)..=(session, u64::MAX));
        let missed = |(id, key): (&(u64, u64), &Key)| {
            self.patterns.get(key).and_then(|watched| watched.watchers.get(id)).is_some_and(|missed| *missed)
        };
        if self.due.is_none() && own.any(missed) {
            self.due = Some(now + GATHERED);
        }
    }

    /// Adds a watcher. Returns its pattern.
    pub(super) fn add(&mut self, session: u64, command: &pb::CommandWatchTopicList) -> Result<&Regex> {
        let id = (session, command.watcher_id);
        self.remove(session, command.watcher_id);
        let refused = |kind, text: String| Err(Error::new(kind, text));
        if self.by_id.range((session, 0)..=(session, u64::MAX)).count() >= MAX_WATCHERS {
            let text =
                format!("the connection has {MAX_WATCHERS} watchers of topics, the most it may: close one");
            return refused(ErrorKind::TooManyRequests, text);
        }
        let (namespace, pattern) = (&command.namespace, &command.topics_pattern);
        if namespace.len() > MAX_PATTERN || namespace.split('/').filter(|part| !part.is_empty()).count() != 2
        {
            return refused(ErrorKind::InvalidArgument, "the namespace is not TENANT/NAMESPACE".into());
        }
        let key = Key::new((format!("persistent://{namespace}/"), pattern.clone()));
        if !self.patterns.contains_key(&key) {
            if self.patterns.len() >= MAX_PATTERNS {
                let text = format!(
                    "{MAX_PATTERNS} patterns of topics are watched, the most: use GET_TOPICS_OF_NAMESPACE"
                );
                return refused(ErrorKind::TooManyRequests, text);
            }
            let watched = Watched { regex: compile(pattern)?, watchers: BTreeMap::new() };
            self.patterns.insert(Arc::clone(&key), watched);
        }
        self.by_id.insert(id, Arc::clone(&key));
        let Some(watched) = self.patterns.get_mut(&key) else {
            return refused(ErrorKind::NotAllowed, "the pattern cannot be watched".into());
        };
        watched.watchers.insert(id, false);
        Ok(&watched.regex)
    }
}

/// Compiles a pattern as brokers do: for whole names without their domain, with classes of
/// characters that are ASCII.
fn compile(pattern: &str) -> Result<Regex> {
    let refused = |why: String| Error::new(ErrorKind::NotAllowed, format!("the pattern of topics {why}"));
    if pattern.len() > MAX_PATTERN {
        return Err(refused(format!("has {} bytes: at most {MAX_PATTERN} are allowed", pattern.len())));
    }
    let name = without_domain(pattern.strip_prefix('^').unwrap_or(pattern));
    let Some(spelled) = with_ascii_classes(name) else {
        let text =
            "has a class of Unicode (\\p), which is too costly to watch for: use GET_TOPICS_OF_NAMESPACE";
        return Err(refused(text.into()));
    };
    RegexBuilder::new(&format!("\\A(?:{spelled})\\z"))
        .size_limit(PROGRAM)
        .dfa_size_limit(PROGRAM)
        .nest_limit(50)
        .build()
        .map_err(|error| {
            let why = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
            refused(format!("cannot be used: {why}"))
        })
}

/// The pattern with its Perl classes spelled out: of ASCII characters, as in Java and RE2, which is
/// also far cheaper. `None` if it has classes of Unicode, a few bytes of which cost megabytes.
fn with_ascii_classes(pattern: &str) -> Option<String> {
    let mut spelled = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            spelled.push(c);
            continue;
        }
        let Some(escaped) = chars.next() else {
            spelled.push(c);
            break;
        };
        match escaped {
            'd' => spelled.push_str("[0-9]"),
            'D' => spelled.push_str("[^0-9]"),
            'w' => spelled.push_str("[0-9A-Za-z_]"),
            'W' => spelled.push_str("[^0-9A-Za-z_]"),
            's' => spelled.push_str(r"[\t\n\f\r ]"),
            'S' => spelled.push_str(r"[^\t\n\f\r ]"),
            'p' | 'P' => return None,
            'b' => spelled.push_str(r"(?-u:\b)"),
            other => spelled.extend(['\\', other]),
        }
    }
    Some(spelled)
}

/// The part of a name that patterns are compared with: without its domain and partition.
pub(super) fn subject(name: &str) -> &str {
    let name = without_domain(name);
    match name.rsplit_once("-partition-") {
        Some((topic, index)) if !index.is_empty() && index.bytes().all(|c| c.is_ascii_digit()) => topic,
        _ => name,
    }
}

pub(super) fn strings<'a>(names: impl Iterator<Item = &'a Arc<str>>) -> Vec<String> {
    names.map(|name| name.to_string()).collect()
}

/// Updates of a limited size. Only the last one has the hash, which is that of the list after all
/// of them.
pub(super) fn cut(
    watcher_id: u64,
    mut new: Vec<String>,
    mut deleted: Vec<String>,
    hash: &str,
) -> Vec<pb::CommandWatchTopicUpdate> {
    let mut updates = Vec::new();
    loop {
        let deleted_topics: Vec<_> = deleted.drain(..deleted.len().min(NAMES)).collect();
        let new_topics: Vec<_> = new.drain(..new.len().min(NAMES - deleted_topics.len())).collect();
        let last = new.is_empty() && deleted.is_empty();
        let topics_hash = if last { hash.to_owned() } else { String::new() };
        updates.push(pb::CommandWatchTopicUpdate { watcher_id, new_topics, deleted_topics, topics_hash });
        if last {
            return updates;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_one_of_java() {
        for (pattern, name, expected) in [
            ("persistent://public/default/a.*", "persistent://public/default/abc", true),
            ("persistent://public/default/a.*", "persistent://public/default/ba", false),
            ("^persistent://public/default/a.*", "persistent://public/default/a", true),
            ("public/default/a|public/default/b", "persistent://public/default/b", true),
            ("public/default/a|public/default/b", "persistent://public/default/ab", false),
            ("public/default/parts", "persistent://public/default/parts-partition-12", true),
            ("public/default/parts", "persistent://public/default/parts-partition-x", false),
            (r"public/default/\w+", "persistent://public/default/a_1", true),
            (r"public/default/\w+", "persistent://public/default/ä", false),
            (r"public/default/[\d.]+", "persistent://public/default/1.2", true),
            (r"public/default/\\w", r"persistent://public/default/\w", true),
            (r"public/default/.", "persistent://public/default/ä", true),
            (r"public/default/a\b.*", "persistent://public/default/a-b", true),
        ] {
            assert_eq!(compile(pattern).unwrap().is_match(subject(name)), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_no_pattern_or_costs_too_much_is_refused() {
        for (pattern, why) in [
            ("(".to_owned(), "cannot be used"),
            ("a(?=b)".into(), "cannot be used"),
            ("a".repeat(MAX_PATTERN + 1), "at most 256"),
            ("(a{1000}){1000}".into(), "cannot be used"),
            (r"\pL".into(), "too costly"),
            (r"(\w{100}){100}".into(), "cannot be used"),
            ("(".repeat(100) + &")".repeat(100), "cannot be used"),
            ("\\".into(), "cannot be used"),
        ] {
            let error = compile(&pattern).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotAllowed);
            assert!(error.message().contains(why), "{error}");
        }
    }

    #[test]
    fn updates_are_cut_and_keep_all_names() {
        let names = |count: usize| (0..count).map(|i| i.to_string()).collect::<Vec<_>>();
        let updates = cut(1, names(2500), names(1500), "h");
        assert!(updates.iter().all(|update| update.new_topics.len() + update.deleted_topics.len() <= NAMES));
        assert_eq!(
            updates.iter().flat_map(|update| update.new_topics.clone()).collect::<Vec<_>>(),
            names(2500)
        );
        assert_eq!(updates.iter().map(|update| update.deleted_topics.len()).sum::<usize>(), 1500);
        let hashes: Vec<_> = updates.iter().map(|update| update.topics_hash.as_str()).collect();
        assert_eq!(hashes, ["", "", "", "h"]);
    }
}
