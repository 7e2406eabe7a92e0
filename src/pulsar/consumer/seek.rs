//! The position of a consumer: where it starts, and where a seek moves it.

use std::time::{Duration, Instant};

use super::acks::{Entry, order};
use super::{Command, Consumer, State, lists_redeliveries};
use crate::pulsar::message::MessageId;

/// Time after which messages of before a seek are requested again. Those that the broker had under way come at once.
const DROPPED_DELAY: Duration = Duration::from_secs(1);
/// Maximum number of entries that are dropped before they are requested again.
const MAX_DROPPED: usize = 1000;

/// Position before which messages are dropped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) id: MessageId,
    inclusive: bool,
    /// Whether a message of its entry or behind it has come.
    pub(super) reached: bool,
    /// Whether entries before it were requested again: if they come, the subscription was moved back.
    pub(super) earlier_requested: bool,
}

/// Entries that came before the position of a seek and were dropped. A broker may still send what it was reading when it moved the
/// subscription; or another consumer, or an administrator, has moved it back since. Only the broker knows which: it is asked for
/// them again, and sends those that are not acknowledged.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    entries: Vec<Entry>,
    /// Whether there is one since the time was set.
    is_new: bool,
    due: Option<Instant>,
}

impl Dropped {
    pub(super) fn push(&mut self, entry: Entry) {
        if self.entries.last() != Some(&entry) {
            self.entries.push(entry);
        }
        self.is_new = true;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
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
        Self { id, inclusive, reached: false, earlier_requested: false }
    }

    pub(super) fn admits(&self, id: &MessageId) -> bool {
        match order(id.entry_id()).cmp(&order(self.id.entry_id())) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Greater => true,
            // The id of a whole entry stands for all its messages.
            std::cmp::Ordering::Equal if self.id.batch_index < 0 => self.inclusive,
            std::cmp::Ordering::Equal => {
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
        self.moves += 1;
        self.was_at_end = std::mem::take(&mut self.at_end);
        self.flush_acks();
        let dropped = self.queue.len() as u32;
        self.queue.clear();
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

    /// Position at which a consumer resumes whose position the broker does not keep.
    pub fn resume_position(&self) -> Option<MessageId> {
        if self.options.durable {
            return None;
        }
        let edge = match self.sought {
            Some(Sought::Edge(id)) => Some(id),
            _ => None,
        };
        self.last_taken.or(self.start.map(|start| start.id)).or(edge)
    }

    /// The time in milliseconds since 1970 that such a consumer must seek to when it resumes: it has taken no message since it sought
    /// there.
    pub fn resume_time(&self) -> Option<u64> {
        match self.sought {
            Some(Sought::Time(ms)) if !self.options.durable && self.last_taken.is_none() => Some(ms),
            _ => None,
        }
    }

    pub(super) fn forget_dropped(&mut self) {
        self.dropped = Dropped::default();
    }

    /// Sets the time at which what was dropped is requested again. Where entries come in order, that is before the first message from
    /// the start on is handed out, so that none is repeated.
    pub(super) fn arm_dropped(&mut self, now: Instant) {
        let dropped = &mut self.dropped;
        if dropped.is_empty() {
            return;
        }
        let in_order = !lists_redeliveries(self.options.kind);
        if dropped.entries.len() >= MAX_DROPPED || in_order && self.start.is_some_and(|start| start.reached) {
            dropped.due = Some(now);
            self.expire_dropped(now);
        } else if std::mem::take(&mut dropped.is_new) {
            dropped.due = Some(now + DROPPED_DELAY);
        }
    }

    /// Requests again what was dropped, when it is time.
    pub(super) fn expire_dropped(&mut self, now: Instant) {
        if self.dropped.due.is_none_or(|due| due > now) {
            return;
        }
        let entries = std::mem::take(&mut self.dropped).entries;
        if let Some(start) = &mut self.start {
            start.earlier_requested = true;
        }
        self.flush_acks();
        self.redeliver(entries);
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

    /// Whether there is a message to be received, when `last` is the last message of the topic (`None` if it has none) and the
    /// subscription has acknowledged everything up to `mark`. As in the Java client: what counts is the last message that was taken,
    /// or, before the first one, where the consumer starts; after a seek to a time, or at the end, only the broker knows that.
    pub fn has_more(&self, last: Option<MessageId>, mark: Option<MessageId>) -> bool {
        let Some(last) = last else { return !self.queue.is_empty() };
        let read = self.last_taken.map(|id| Start::new(id, false)).or(self.start);
        !self.queue.is_empty()
            || match (read, mark) {
                (Some(read), _) => read.admits(&last),
                (None, Some(mark)) => order(mark.entry_id()) < order(last.entry_id()),
                // A broker that does not tell the mark: a subscription that has not begun has everything to read.
                (None, None) => true,
            }
    }
}
