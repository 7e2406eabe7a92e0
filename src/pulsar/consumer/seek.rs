//! The position of a consumer: where it starts, and where a seek moves it.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::acks::{Entry, order};
use super::{Command, Consumer, State, lists_redeliveries};
use crate::message::MessageId;

/// Time after which messages from before a seek are requested again, and time for them to come.
/// Those that were already on their way come at once.
const DROPPED_DELAY: Duration = Duration::from_secs(1);
/// Longest time for which the first of them waits for others.
const DROPPED_LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of entries that are dropped before they are requested again.
const MAX_DROPPED: usize = 1000;

/// Position before which messages are dropped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) id: MessageId,
    inclusive: bool,
    /// Whether a message of its entry or behind it has come.
    pub(super) reached: bool,
    /// Whether entries before it were requested again: if they come, the subscription was moved
    /// back.
    pub(super) earlier_requested: bool,
    /// Whether it is the end of the topic as it was when the consumer subscribed.
    was_end: bool,
}

/// Dropped entries that lie before the position of a seek. A broker may still send what it was
/// reading when it moved the subscription; or another consumer, or an administrator, has moved it
/// back since. Only the broker knows which: it is asked for them again, and sends those that are
/// not acknowledged.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    pub(super) entries: Vec<Entry>,
    /// Messages before the position in the entry of the position itself. They are acknowledged if
    /// no earlier entry comes again.
    heads: BTreeSet<(i32, i32)>,
    /// The entry of the position, which is to be sent again as well.
    again: Option<Entry>,
    /// Whether they were requested again.
    requested: bool,
    /// Whether one was added since `due` was set.
    is_new: bool,
    first: Option<Instant>,
    due: Option<Instant>,
}

impl Dropped {
    pub(super) fn push(&mut self, entry: Entry) {
        if self.entries.last() != Some(&entry) {
            self.entries.push(entry);
        }
        self.is_new = true;
    }

    /// Forgets entries that are delivered as parts of a message behind the position.
    pub(super) fn forget(&mut self, entries: &[Entry]) {
        if !self.entries.is_empty() {
            self.entries.retain(|entry| !entries.contains(entry));
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }
}

/// Target of a seek that named no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sought {
    /// A time in milliseconds since 1970.
    Time(u64),
    /// [`MessageId::EARLIEST`] or [`MessageId::LATEST`].
    Edge(MessageId),
}

impl Start {
    pub(super) fn new(id: MessageId, inclusive: bool) -> Self {
        Self { id, inclusive, reached: false, earlier_requested: false, was_end: false }
    }

    pub(super) fn admits(&self, id: &MessageId) -> bool {
        match order(id.entry_id()).cmp(&order(self.id.entry_id())) {
            Ordering::Less => false,
            Ordering::Greater => true,
            // The id of a whole entry stands for all its messages.
            Ordering::Equal if self.id.batch_index < 0 => self.inclusive,
            Ordering::Equal => {
                id.batch_index > self.id.batch_index
                    || (self.inclusive && id.batch_index == self.id.batch_index)
            }
        }
    }
}

impl Consumer {
    /// Prepares for sending a SEEK: entries that arrive from now on belong to the old position.
    pub fn begin_seek(&mut self) {
        self.forget_dying();
        self.forget_dropped();
        // Messages that the owner has taken are from the old position.
        self.recalls.recall_all();
        self.moves += 1;
        self.was_at_end = std::mem::take(&mut self.at_end);
        self.flush_acks();
        let dropped = self.queue.len() as u32;
        self.queue.clear();
        self.last_arrived = None;
        self.give_back(dropped);
        if self.state == State::Attached {
            self.state = State::Seeking;
        }
    }

    /// Number of seeks that have begun.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Completes a seek to the message after `target`, or to `target` itself if `inclusive`.
    pub fn end_seek(&mut self, target: Option<MessageId>, inclusive: bool) {
        self.acks.clear();
        self.ack_due = None;
        self.immediate.retain(|command| !matches!(command, Command::Ack(_)));
        self.chunks.clear();
        self.settle_all_chunks();
        self.nacks.clear();
        self.forget_unacked();
        self.unreadable = None;
        self.failed = false;
        self.last_taken = None;
        let is_edge = |id: &MessageId| *id == MessageId::EARLIEST || *id == MessageId::LATEST;
        self.start = target.filter(|id| !is_edge(id)).map(|id| Start::new(id, inclusive));
        self.sought = target.filter(is_edge).map(Sought::Edge);
    }

    /// Completes a seek to a time in milliseconds since 1970.
    pub fn end_seek_to_time(&mut self, ms: u64) {
        self.end_seek(None, true);
        self.sought = Some(Sought::Time(ms));
    }

    /// Position behind the last message that was taken, or, before the first one, at which the
    /// consumer starts.
    pub(super) fn read(&self) -> Option<Start> {
        self.last_taken.map(|id| Start::new(id, false)).or(self.start)
    }

    /// The latest entry that has arrived, if no message that has arrived waits to be taken, and
    /// none has ended the consumer.
    pub fn drained_to(&self) -> Option<MessageId> {
        let (ledger, entry) = self.last_arrived.filter(|_| self.queue.is_empty() && !self.failed)?;
        Some(MessageId::new(ledger, entry).in_partition(self.options.partition))
    }

    /// Position at which a consumer resumes whose position the broker does not keep: the last
    /// message that was taken, or an entry before it with the first chunk of a message that was
    /// not. What is delivered a second time then is before the start, and is dropped.
    pub fn resume_position(&self) -> Option<MessageId> {
        if self.options.durable {
            return None;
        }
        let edge = match self.sought {
            Some(Sought::Edge(id)) => Some(id),
            _ => None,
        };
        let read = self.read();
        let behind = read.map(|read| read.id).or(edge)?;
        let taken = behind.entry_id();
        let is_left = |last: Entry| read.is_none_or(|read| read.admits(&MessageId::new(last.0, last.1)));
        let complete = self.chunked.iter().filter(|(last, _)| is_left(**last));
        let complete = complete.flat_map(|(_, others)| others.iter().copied());
        let first = complete.chain(self.chunks.first_incomplete()).min_by_key(|entry| order(*entry));
        let before = first.filter(|first| order(*first) < order(taken));
        Some(before.map_or(behind, |(ledger, entry)| MessageId::new(ledger, entry)))
    }

    /// Whether such a consumer, opened at `position`, begins at the end of the topic, wherever that
    /// is when it subscribes.
    pub fn begins_at_end(&self, position: MessageId) -> bool {
        let edge = match self.sought {
            Some(Sought::Edge(id)) => Some(id),
            Some(Sought::Time(_)) => None,
            None => Some(position),
        };
        !self.options.durable && self.read().is_none() && edge == Some(MessageId::LATEST)
    }

    /// Tells such a consumer where the end was when it subscribed: it resumes there, and not where
    /// the end is by then.
    pub fn place_behind(&mut self, last: MessageId) {
        // The broker stands before the first entry of a ledger.
        let is_first = last.entry == u64::MAX && last != MessageId::EARLIEST;
        let id = MessageId::new(last.ledger, if is_first { 0 } else { last.entry });
        self.start = Some(Start { was_end: true, ..Start::new(id, is_first) });
    }

    /// Forgets that place, which is of the cluster that the topic has moved away from.
    pub fn forget_place(&mut self) {
        self.start = self.start.filter(|start| !start.was_end);
    }

    /// The time in milliseconds since 1970 that such a consumer must seek to when it resumes: it
    /// has taken no message since it sought there.
    pub fn resume_time(&self) -> Option<u64> {
        match self.sought {
            Some(Sought::Time(ms)) if !self.options.durable && self.last_taken.is_none() => Some(ms),
            _ => None,
        }
    }

    /// Drops a message before the position at which the consumer starts. The broker, which has the
    /// position of a durable subscription, begins with the entry of that position: what is before
    /// it in the same entry would stay in the backlog for ever, and is acknowledged. Earlier
    /// entries are not; nor is that one while it is open whether the subscription was moved back.
    pub(super) fn drop_before_start(&mut self, id: &MessageId) {
        if !self.options.durable {
            return;
        }
        if self.start.is_none_or(|start| start.id.entry_id() != id.entry_id()) {
            self.dropped.push(id.entry_id());
        } else if self.dropped.entries.is_empty() && !self.dropped.requested {
            self.acknowledge(id);
        } else {
            self.dropped.heads.insert((id.batch_index, id.batch_size));
        }
    }

    /// Ends the start of a consumer: an entry before it that was requested again has come.
    pub(super) fn moved_back(&mut self) {
        let start = self.start.take();
        let dropped = std::mem::take(&mut self.dropped);
        if !dropped.heads.is_empty() {
            self.dropped.again = start.map(|start| start.id.entry_id());
        }
    }

    /// Sets the time at which what was dropped is requested again. Where entries come in order,
    /// that is before the first message at or behind the start is handed out, so that none is
    /// repeated. `epoch` is that of a delivery: a broker that states none could not tell those on
    /// their way from those that come again.
    pub(super) fn arm_dropped(&mut self, now: Instant, epoch: Option<u64>) {
        if let Some(entry) = self.dropped.again.take() {
            self.request_again(now, &MessageId::new(entry.0, entry.1));
        }
        let dropped = &mut self.dropped;
        if dropped.requested {
            dropped.due = dropped.due.or(Some(now + DROPPED_DELAY));
            return;
        }
        if dropped.entries.is_empty() {
            return;
        }
        let reached = self.start.is_some_and(|start| start.reached);
        let in_order = !lists_redeliveries(self.options.kind);
        if in_order && epoch.is_none() {
            self.forget_dropped();
        } else if dropped.entries.len() >= MAX_DROPPED || in_order && reached {
            dropped.due = Some(now);
            self.expire_dropped(now);
        } else if std::mem::take(&mut dropped.is_new) {
            let first = *dropped.first.get_or_insert(now);
            dropped.due = Some((now + DROPPED_DELAY).min(first + DROPPED_LIMIT));
        }
    }

    /// Requests again what was dropped, when it is time. If none has come when it is time again,
    /// what was dropped lies behind the subscription.
    pub(super) fn expire_dropped(&mut self, now: Instant) {
        if self.dropped.due.is_none_or(|due| due > now) {
            return;
        }
        if self.dropped.requested {
            let heads = std::mem::take(&mut self.dropped).heads;
            if let Some(start) = self.start {
                for (batch_index, batch_size) in heads {
                    self.acknowledge(&MessageId { batch_index, batch_size, ..start.id });
                }
            }
            self.arm_acks(now);
            return;
        }
        let entries = self.take_dropped();
        self.dropped.due = Some(now + DROPPED_DELAY);
        self.flush_acks();
        self.redeliver(entries);
    }

    /// Takes what was dropped, to be requested again.
    pub(super) fn take_dropped(&mut self) -> Vec<Entry> {
        if let Some(start) = &mut self.start {
            start.earlier_requested = true;
        }
        let Dropped { entries, heads, .. } = std::mem::take(&mut self.dropped);
        self.dropped = Dropped { heads, requested: true, ..Dropped::default() };
        entries
    }

    pub(super) fn forget_dropped(&mut self) {
        self.dropped = Dropped::default();
    }

    /// Ends a seek after which the broker has not closed the consumer.
    pub fn stay(&mut self) {
        if self.state == State::Seeking {
            self.state = State::Attached;
        }
    }

    /// Handles a failed SEEK: requests redelivery of the messages dropped meanwhile.
    pub fn abort_seek(&mut self) {
        if self.state == State::Seeking {
            self.state = State::Attached;
            // The broker told it once, and does not tell it again.
            self.at_end |= self.was_at_end;
            self.redeliver(Vec::new());
        }
    }

    /// Whether there is a message to be received, when `last` is the last message of the topic
    /// (`None` if it has none) and the subscription has acknowledged everything up to `mark`. As in
    /// the Java client: what counts is the last message that was taken, or, before the first one,
    /// where the consumer starts; after a seek to a time, or at the end, only the broker knows
    /// that.
    pub fn has_more(&self, last: Option<MessageId>, mark: Option<MessageId>) -> bool {
        let Some(last) = last else { return !self.queue.is_empty() };
        let read = self.read();
        !self.queue.is_empty()
            || match (read, mark) {
                (Some(read), _) => read.admits(&last),
                (None, Some(mark)) => order(mark.entry_id()) < order(last.entry_id()),
                // A broker that does not tell the mark: a subscription that has not begun has
                // everything to read.
                (None, None) => true,
            }
    }
}
