//! Acknowledgement of messages in several entries, complete or given up.

use std::time::Instant;

use super::acks::{Entry, order};
use super::chunks::GivenUp;
use super::{Consumer, Counts, State};
use crate::message::MessageId;

/// Maximum number of chunked messages whose entries are known after an acknowledgement.
const MAX_SETTLED: usize = 100;

impl Consumer {
    /// First chunk of each message that has not come whole and has not been given up, and the
    /// publish time of its last chunk so far, in milliseconds since 1970.
    pub fn incomplete(&self) -> impl Iterator<Item = (MessageId, u64)> + '_ {
        self.chunks.open().map(|((ledger, entry), published)| {
            (MessageId::new(ledger, entry).in_partition(self.options.partition), published)
        })
    }

    /// First chunks of the latest messages that were given up, but not because their next chunk did
    /// not come in time.
    pub fn lost(&self) -> impl Iterator<Item = MessageId> + '_ {
        let id = |(ledger, entry)| MessageId::new(ledger, entry).in_partition(self.options.partition);
        self.chunks.lost().map(id)
    }

    /// Messages that were delivered again or given up, and why.
    pub fn counts(&self) -> Counts {
        let (dropped_chunked_messages, expired_chunked_messages) = self.chunks.counts;
        Counts { dropped_chunked_messages, expired_chunked_messages, ..self.counts }
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.options.topic
    }

    /// Takes the first incomplete message that was given up since the last call.
    pub fn take_given_up(&mut self) -> Option<GivenUp> {
        let mut given_up = self.chunks.take_news()?;
        given_up.acknowledged &= self.unreadable.is_none();
        given_up.first = given_up.first.in_partition(self.options.partition);
        Some(given_up)
    }

    /// Other entries of a chunked message that is acknowledged or negatively acknowledged. They are
    /// kept: the answer may get lost, and a second acknowledgement of the last entry alone would
    /// leave the others in the backlog for ever.
    pub(super) fn settle_chunks(&mut self, id: &MessageId) -> Vec<Entry> {
        let last = id.entry_id();
        let Some(others) = self.chunked.remove(&last) else {
            let settled = self.settled.iter().rfind(|(entry, _)| *entry == last);
            return settled.map(|(_, others)| others.clone()).unwrap_or_default();
        };
        self.remember_settled(last, others.clone());
        others
    }

    fn remember_settled(&mut self, last: Entry, others: Vec<Entry>) {
        if self.settled.len() >= MAX_SETTLED {
            self.settled.pop_front();
        }
        self.settled.push_back((last, others));
    }

    /// The chunked messages that are handed out hold back no acknowledgements any more, as after a
    /// seek. They may still be acknowledged themselves, with all their entries.
    pub(super) fn settle_all_chunks(&mut self) {
        for (last, others) in std::mem::take(&mut self.chunked) {
            self.remember_settled(last, others);
        }
    }

    /// Limits cumulative acknowledgements to what precedes the first entry that could not be read,
    /// and the first chunked message that is incomplete, or complete and unacknowledged.
    pub(super) fn hold_acks(&mut self, now: Instant) {
        let complete = self.chunked.values().flatten().copied();
        let incomplete = self.chunks.first_held(self.stopwatch.read(now));
        let held = complete.chain(incomplete).chain(self.unreadable);
        self.acks.hold(held.min_by_key(|entry| order(*entry)));
    }

    /// Acknowledges the chunks that were given up. With an entry that could not be read they stay:
    /// that entry may be one of the others.
    pub(super) fn settle_given_up(&mut self) {
        let given_up = self.chunks.take_acks();
        if self.unreadable.is_none() {
            given_up.iter().for_each(|entry| self.acks.individual(&MessageId::new(entry.0, entry.1)));
        }
    }

    /// Handles a chunk of a message that was given up and acknowledged.
    pub(super) fn settle_late(&mut self, entry: Entry) {
        if self.unreadable.is_none() {
            self.acks.individual(&MessageId::new(entry.0, entry.1));
            self.counts.orphaned_chunks += 1;
        }
    }

    /// Handles a chunk of a message that has expired: it may be complete now, so all of it is
    /// requested again.
    pub(super) fn fetch_again(&mut self, now: Instant, entries: Vec<Entry>) {
        let until = self.chunks.deadline(now);
        entries.iter().for_each(|entry| self.chunks.hold(*entry, until));
        self.nacks.entry(now).or_default().extend(entries);
    }

    /// Gives up incomplete messages that have waited too long, and acknowledges the chunks whose
    /// message has lost its beginning. Behind an entry that could not be read they stay: that entry
    /// may be the beginning.
    pub(super) fn expire_chunks(&mut self, now: Instant) {
        if self.state != State::Attached {
            return;
        }
        let time = self.stopwatch.read(now);
        self.chunks.expire(time);
        self.settle_given_up();
        for entry in self.chunks.lapsed_orphans(time) {
            if self.unreadable.is_none_or(|unreadable| order(entry) < order(unreadable)) {
                self.acks.individual(&MessageId::new(entry.0, entry.1));
                self.counts.orphaned_chunks += 1;
            }
        }
        self.arm_acks(now);
    }
}
