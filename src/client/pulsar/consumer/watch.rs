//! Topics of a pattern, as far as they are known: the list that the broker gave last, and the
//! watcher that tells of changes.
//!
//! ```text
//!         WATCH_TOPIC_LIST, with the hash         success
//!   Unwatched ───────────────────────────► asked ─────────► Watched ── update ──► the list changes
//!       ▲  ▲                                 │                 │
//!       │  └─────── refused: polled only ────┘                 │ the connection ends
//!       └──────────────────────────────────────────────────────┘ again after a pause
//! ```
//! The list is asked for every now and then, watched or not: with its hash that costs next to
//! nothing, and updates may be lost.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::pulsar::connection::{Connection, WatcherRoute};
use crate::pulsar::shared::Shared;
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::sync::Mutex;
use forebay_pulsar::command::Command;
use forebay_pulsar::pattern::{Pattern, hash_of};
use forebay_pulsar::pb;
use forebay_pulsar::pb::command_get_topics_of_namespace::Mode;
use forebay_pulsar::topic::TopicName;

/// Limit on the names in updates that have not been looked at. With more, the list is asked for.
const MAX_UPDATES: usize = 10_000;
/// Limit on the names of a list: no frame holds more, and updates could.
const MAX_LIST: usize = 1 << 17;

/// Updates that have not been looked at.
#[derive(Debug, Default)]
pub(super) struct TopicListUpdates {
    updates: Mutex<Updates>,
    pub(super) came: Notify,
}

#[derive(Debug, Default)]
struct Updates {
    waiting: Vec<pb::CommandWatchTopicUpdate>,
    names: usize,
    /// Some were dropped.
    lost: bool,
}

impl WatcherRoute for TopicListUpdates {
    fn changed(&self, update: pb::CommandWatchTopicUpdate) {
        let mut updates = self.updates.lock();
        updates.names += 1 + update.new_topics.len() + update.deleted_topics.len();
        if updates.names > MAX_UPDATES {
            updates.waiting.clear();
            updates.lost = true;
        } else {
            updates.waiting.push(update);
        }
        drop(updates);
        self.came.notify_one();
    }
}

/// The watcher at a broker, which is closed when this is dropped.
#[derive(Debug)]
struct Watcher {
    id: u64,
    connection: Arc<Connection>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.connection.close_watcher(self.id);
    }
}

/// The list of a pattern.
#[derive(Debug)]
pub(super) struct Listing {
    shared: Arc<Shared>,
    pub(super) pattern: Pattern,
    /// As the broker gave them, in their order: the hash is of these.
    names: BTreeSet<String>,
    pub(super) list_updates: Arc<TopicListUpdates>,
    watcher: Option<Watcher>,
}

impl Listing {
    /// Asks for the list.
    pub(super) async fn find(shared: &Arc<Shared>, pattern: Pattern) -> Result<Self> {
        let names = shared.lookup.matching(&pattern, None).await?.unwrap_or_default();
        let names = names.into_iter().collect();
        Ok(Self { shared: Arc::clone(shared), pattern, names, list_updates: Arc::default(), watcher: None })
    }

    /// The topics and partitions that the pattern matches.
    pub(super) fn topics(&self) -> impl Iterator<Item = TopicName> {
        let parsed = self.names.iter().filter_map(|name| TopicName::parse(name).ok());
        parsed.filter(|topic| self.pattern.matches(topic))
    }

    /// Asks for the list again. Returns whether it has changed.
    pub(super) async fn poll(&mut self) -> Result<bool> {
        match self.shared.lookup.matching(&self.pattern, Some(&self.hash())).await? {
            Some(names) => Ok(self.replace(names)),
            None => Ok(false),
        }
    }

    /// Asks the broker to tell of changes. Returns false if it cannot.
    pub(super) async fn watch(&mut self) -> Result<bool> {
        let Some(connection) = self.shared.lookup.watchable().await? else { return Ok(false) };
        if self.pattern.domain() != Mode::Persistent || !connection.info().features.supports_topic_watchers()
        {
            return Ok(false);
        }
        let (id, hash) = (self.shared.next_id(), self.hash());
        let route: Arc<dyn WatcherRoute> = Arc::clone(&self.list_updates) as _;
        connection.session().lock().watchers.insert(id, route);
        // Closes it as well if the answer does not come.
        let watcher = Watcher { id, connection: Arc::clone(&connection) };
        let answer = connection
            .request(|request_id| {
                Command::WatchTopicList(pb::CommandWatchTopicList {
                    request_id,
                    watcher_id: id,
                    namespace: self.pattern.namespace().into(),
                    topics_pattern: self.pattern.wire().into(),
                    topics_hash: Some(hash.clone()),
                })
            })
            .await;
        match answer {
            Ok(Command::WatchTopicListSuccess(success)) => {
                self.watcher = Some(watcher);
                if success.topics_hash != hash {
                    self.replace(success.topic);
                }
                Ok(true)
            }
            Ok(other) => Err(Error::protocol(format!("WATCH_TOPIC_LIST was answered by {}", other.name()))),
            Err(error) if error.retriable() || error.kind() == ErrorKind::Disconnected => Err(error),
            // Patterns are switched off there, or this one is too long.
            Err(_) => Ok(false),
        }
    }

    /// Resolves when the watcher is gone; never, if there is none.
    pub(super) async fn unwatched(&self) {
        match &self.watcher {
            Some(watcher) => watcher.connection.ended().await,
            None => std::future::pending().await,
        }
    }

    /// Forgets the watcher.
    pub(super) fn forget_watcher(&mut self) {
        self.watcher = None;
    }

    /// Applies the updates that have come. Returns false if some were lost: the list is to be asked
    /// for.
    pub(super) fn apply_news(&mut self) -> bool {
        let Updates { waiting, lost, .. } = std::mem::take(&mut *self.list_updates.updates.lock());
        for update in waiting {
            for name in &update.deleted_topics {
                self.names.remove(name);
            }
            self.names.extend(update.new_topics);
        }
        !lost && self.names.len() <= MAX_LIST
    }

    fn hash(&self) -> String {
        hash_of(self.names.iter().map(String::as_str))
    }

    fn replace(&mut self, names: Vec<String>) -> bool {
        let names = names.into_iter().collect();
        let changed = self.names != names;
        self.names = names;
        changed
    }
}

impl Connection {
    fn close_watcher(&self, watcher_id: u64) {
        let mut host = self.session().lock();
        let _route = host.watchers.remove(&watcher_id);
        if self.is_alive() {
            host.protocol().request(clock::now(), |request_id| {
                Command::WatchTopicListClose(pb::CommandWatchTopicListClose { request_id, watcher_id })
            });
            drop(host);
            self.session().wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(new: &[&str], deleted: &[&str]) -> pb::CommandWatchTopicUpdate {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        pb::CommandWatchTopicUpdate {
            watcher_id: 1,
            new_topics: names(new),
            deleted_topics: names(deleted),
            topics_hash: String::new(),
        }
    }

    #[test]
    fn updates_that_nothing_looks_at_cost_a_limited_number_of_names() {
        let list_updates = TopicListUpdates::default();
        for _ in 0..3 * MAX_UPDATES {
            list_updates.changed(update(&["a"], &[]));
        }
        let updates = list_updates.updates.lock();
        assert!(updates.lost && updates.waiting.is_empty());
    }
}
