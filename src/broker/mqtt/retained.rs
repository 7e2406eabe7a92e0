//! Retained messages: the last one of each topic that was published with RETAIN. All of them are in memory.

use std::rc::Rc;

use super::message::Message;
use super::tree::Tree;

/// The message of a topic.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) message: Rc<Message>,
    /// Its number in the store; `None` if it is not there.
    pub(super) sequence: Option<u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Retained {
    tree: Tree<Option<Slot>>,
    bytes: usize,
    /// How many have an end to their life.
    expiring: usize,
}

impl Retained {
    /// Number of messages.
    pub(super) fn len(&self) -> usize {
        self.tree.len()
    }

    /// About what they weigh.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the topic has one.
    pub(super) fn contains(&self, topic: &str) -> bool {
        self.tree.get(topic).is_some()
    }

    /// Takes the place of what was there, which is given back.
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

    /// The topic has none any more.
    pub(super) fn clear(&mut self, topic: &str) -> Option<Slot> {
        self.tree.remove(topic).flatten().inspect(|slot| self.forget(slot))
    }

    /// Messages whose topic is matched by `filter`, in the order they came.
    pub(super) fn find(&self, filter: &str) -> Vec<Slot> {
        let mut found = Vec::new();
        self.tree.matched_by(filter, &mut |slot| found.extend(slot.clone()));
        found.sort_by(|a, b| {
            (a.message.received_ms, a.message.topic()).cmp(&(b.message.received_ms, b.message.topic()))
        });
        found
    }

    /// Topics whose message nobody wants any more.
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
