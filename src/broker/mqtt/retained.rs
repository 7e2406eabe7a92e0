//! Retained messages: the last message of each topic that was published with RETAIN. All of them are kept in
//! memory.

use std::rc::Rc;

use super::message::Message;
use super::tree::Tree;

/// The retained message of a topic.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) message: Rc<Message>,
    /// Number in the store; `None` if it is not stored.
    pub(super) sequence: Option<u64>,
}

/// Retained messages by topic.
#[derive(Debug, Default)]
pub(super) struct Retained {
    tree: Tree<Option<Slot>>,
    bytes: usize,
    /// Number of messages that expire.
    expiring: usize,
}

impl Retained {
    /// Number of messages.
    pub(super) fn len(&self) -> usize {
        self.tree.len()
    }

    /// Approximate memory use.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the topic has a retained message.
    pub(super) fn contains(&self, topic: &str) -> bool {
        self.tree.get(topic).is_some()
    }

    /// Replaces the retained message of a topic and returns the old one.
    pub(super) fn set(&mut self, slot: Slot) -> Option<Slot> {
        self.bytes += slot.message.weight();
        self.expiring += usize::from(slot.message.expires_ms.is_some());
        let place = self.tree.entry(&slot.message.topic().clone());
        let before = place.replace(slot);
        before.inspect(|slot| self.forget(slot))
    }

    fn forget(&mut self, slot: &Slot) {
        self.bytes -= slot.message.weight();
        self.expiring -= usize::from(slot.message.expires_ms.is_some());
    }

    /// Removes the retained message of a topic.
    pub(super) fn clear(&mut self, topic: &str) -> Option<Slot> {
        self.tree.remove(topic).flatten().inspect(|slot| self.forget(slot))
    }

    /// Messages whose topic matches `filter`, in order of arrival.
    pub(super) fn find(&self, filter: &str) -> Vec<Slot> {
        let mut found = Vec::new();
        self.tree.matched_by(filter, &mut |slot| found.extend(slot.clone()));
        found.sort_by(|a, b| {
            (a.message.received_ms, a.message.topic()).cmp(&(b.message.received_ms, b.message.topic()))
        });
        found
    }

    /// Messages that have expired.
    pub(super) fn expired(&self, wall_ms: u64) -> Vec<Rc<Message>> {
        let mut found = Vec::new();
        if self.expiring == 0 {
            return found;
        }
        let mut look = |slot: &Option<Slot>| {
            found.extend(slot.iter().filter(|s| s.message.expired(wall_ms)).map(|s| s.message.clone()));
        };
        self.tree.all(&mut look);
        found
    }
}
