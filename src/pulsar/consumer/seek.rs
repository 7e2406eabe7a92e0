//! The position of a consumer: where it starts, and where a seek moves it.

use super::acks::order;
use super::{Command, Consumer, State};
use crate::pulsar::message::MessageId;

/// Position before which messages are dropped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) id: MessageId,
    inclusive: bool,
    /// Whether a message of its entry or behind it has come.
    pub(super) reached: bool,
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
        Self { id, inclusive, reached: false }
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
