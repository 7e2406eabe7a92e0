//! Commands of clients that watch lists of topics, and what they are told.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Broker;
use super::watchers::{PROGRAM, cut, strings, subject};
use crate::permissions::Decisions;
use crate::protocol::OUTPUT_LIMIT;
use forebay_base::machine::Machine as _;
use forebay_pulsar::command::Command;
use forebay_pulsar::pattern::hash_of;
use forebay_pulsar::pb;

/// Limit on the names that are gone through for the hashes of one look. Beyond it they are empty,
/// and clients that ask by them get the whole list.
const HASHED: usize = 20_000;

impl Broker {
    pub(super) fn watch_topics(&mut self, id: u64, command: &pb::CommandWatchTopicList) {
        let answer = match self.watchers.add(id, command) {
            Err(error) => Err(error),
            Ok(regex) => {
                let prefix: Arc<str> = format!("persistent://{}/", command.namespace).into();
                let inside = self.names.range(Arc::clone(&prefix)..).map(|(name, _)| name);
                let inside: Vec<_> = inside.take_while(|name| name.starts_with(&*prefix)).collect();
                let seen = inside.len();
                let matching: Vec<_> =
                    inside.into_iter().filter(|name| regex.is_match(subject(name))).cloned().collect();
                Ok((strings(matching.iter().filter(|name| self.may_see(id, name))), seen))
            }
        };
        let decided = self.work_of_decisions(answer.as_ref().map_or(0, |(_, seen)| *seen));
        if let Some(connection) = self.connections.get_mut(&id) {
            let seen = answer
                .as_ref()
                .map_or(0, |(names, seen)| names.iter().map(String::len).sum::<usize>() + 64 * seen);
            // Compiling costs as much as many names.
            connection.work += seen + PROGRAM + decided;
        }
        match answer {
            Err(error) => self.reply_error(id, command.request_id, &error),
            Ok((topic, _)) => {
                let topics_hash = hash_of(topic.iter().map(String::as_str));
                let known = command.topics_hash.as_ref() == Some(&topics_hash);
                let success = pb::CommandWatchTopicListSuccess {
                    request_id: command.request_id,
                    watcher_id: command.watcher_id,
                    topic: if known { Vec::new() } else { topic },
                    topics_hash,
                };
                self.reply_written(id, Command::WatchTopicListSuccess(success));
            }
        }
    }

    pub(super) fn unwatch_topics(&mut self, id: u64, command: &pb::CommandWatchTopicListClose) {
        self.watchers.remove(id, command.watcher_id);
        self.reply_written(
            id,
            Command::Success(Box::new(pb::CommandSuccess {
                request_id: command.request_id,
                ..Default::default()
            })),
        );
    }

    /// Tells the watchers of what has changed.
    pub(super) fn tell_watchers(&mut self) {
        self.watchers.due = None;
        let changed = std::mem::take(&mut self.watchers.changed);
        let mut hashed = HASHED;
        let mut updates = Vec::new();
        // Bytes of the updates of each connection.
        let mut sizes: BTreeMap<u64, usize> = BTreeMap::new();
        for (key, watched) in &mut self.watchers.patterns {
            let (prefix, regex) = (key.0.as_str(), &watched.regex);
            let matches = |name: &&Arc<str>| name.starts_with(prefix) && regex.is_match(subject(name));
            let (new, deleted): (Vec<_>, Vec<_>) =
                changed.iter().filter(matches).partition(|name| self.names.contains_key(&***name));
            let any = !new.is_empty() || !deleted.is_empty();
            if !any && !watched.watchers.values().any(|missed| *missed) {
                continue;
            }
            let from: Arc<str> = prefix.into();
            let all = || {
                let inside = self.names.range(Arc::clone(&from)..).map(|(name, _)| name);
                inside.take_while(move |name| name.starts_with(prefix)).filter(matches)
            };
            let hash = if hashed >= self.names.len() {
                hashed -= self.names.len();
                hash_of(all().map(|name| &**name))
            } else {
                String::new()
            };
            for ((session, id), missed) in &mut watched.watchers {
                let Some(connection) = self.connections.get_mut(session) else { continue };
                let size = sizes.entry(*session).or_default();
                if connection.session.transmit().len() + *size > OUTPUT_LIMIT {
                    *missed |= any;
                    continue;
                }
                let (new, deleted) = if std::mem::take(missed) {
                    (strings(all()), strings(deleted.iter().copied()))
                } else if any {
                    (strings(new.iter().copied()), strings(deleted.iter().copied()))
                } else {
                    continue;
                };
                *size += new.iter().chain(&deleted).map(String::len).sum::<usize>();
                updates.extend(cut(*id, new, deleted, &hash).into_iter().map(|update| (*session, update)));
            }
        }
        let mut decisions: BTreeMap<u64, Decisions> = BTreeMap::new();
        for (session, mut update) in updates {
            if self.settings.permissions.is_some() {
                let of_session = decisions.entry(session).or_default();
                let mut sees = |name: &String| of_session.recall(name, || self.may_see(session, name));
                update.new_topics.retain(&mut sees);
                update.deleted_topics.retain(&mut sees);
                // The hash is that of a list of which the client may see a part.
                update.topics_hash.clear();
                if update.new_topics.is_empty() && update.deleted_topics.is_empty() {
                    continue;
                }
            }
            self.reply_written(session, Command::WatchTopicUpdate(update));
        }
    }
}
