//! What the applications of a run did and saw, and what must hold of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_pulsar::MessageId;
use tokio::time::Instant;

use super::super::events::Fate;
use super::super::host::violate;
use super::super::trace;
use crate::pulsar::disk::Name;

/// Ledger, entry, and index in the batch.
pub(super) type Position = (u64, u64, i32);

pub(super) fn position(id: MessageId) -> Position {
    (id.ledger, id.entry, id.batch_index.max(0))
}

#[derive(Debug)]
pub(super) struct Push {
    pub(super) fate: Fate,
    /// Messages with the same number keep their order: those of a producer's handle, or, when
    /// batches hold one key, those of a key of it.
    pub(super) order: u32,
    pub(super) at: Instant,
    /// Where it is stored, once that is known.
    pub(super) id: Option<Position>,
    /// Earliest delivery on Shared subscriptions.
    pub(super) due: Option<u64>,
}

#[derive(Default)]
pub(super) struct Subscription {
    /// Readers that have opened it at least once.
    pub(super) is_open: bool,
    pub(super) received: BTreeMap<Name, u32>,
    /// When a receipt confirmed the acknowledgement.
    pub(super) receipted: BTreeMap<Name, Instant>,
    /// What the application has acknowledged, successfully or not.
    pub(super) acknowledged: BTreeSet<Name>,
    pub(super) last: BTreeMap<(Arc<str>, u8, u32), u64>,
    /// Seeks under way. The broker obeys at some time before they end.
    pub(super) seeks: u32,
    /// Whether it was moved, so that messages may come again and in another order.
    pub(super) moved: bool,
    /// What seeks may have passed over: what is below a position of a ledger, and what was pushed
    /// before a time.
    pub(super) passed: BTreeMap<u64, Position>,
    pub(super) passed_before: Option<Instant>,
    /// Whether messages may become dead letters, which are acknowledged without the application.
    pub(super) buries: bool,
}

impl Subscription {
    /// Whether a seek may have passed over a message.
    pub(super) fn may_lack(&self, push: &Push) -> bool {
        self.seeks > 0
            || self.passed_before.is_some_and(|before| push.at < before)
            || match push.id {
                Some(id) => self.passed.get(&id.0).is_some_and(|below| id <= *below),
                None => !self.passed.is_empty(),
            }
    }
}

#[derive(Default)]
pub(super) struct Ledger {
    pub(super) pushes: BTreeMap<Name, Push>,
    pub(super) subscriptions: Vec<Subscription>,
}

impl Ledger {
    /// Notes where a message is stored. It is in one place.
    pub(super) fn locate(&mut self, name: Name, id: MessageId) {
        let Some(push) = self.pushes.get_mut(&name) else {
            return violate(format!("{name:?} was received and never pushed"));
        };
        let at = position(id);
        if push.id.is_none() {
            trace::event(format_args!("{name:?} is at {at:?}"));
        }
        match push.id.replace(at) {
            Some(before) if before != at => violate(format!("{name:?} is at {before:?} and again at {at:?}")),
            _ => {}
        }
    }

    /// Messages that are stored and that a subscription has not received. Those that a policy may
    /// have taken away before the application had them, in deliveries that were cut off, are looked
    /// for among the dead letters.
    pub(super) fn missing(&self) -> Vec<(usize, Name)> {
        let mut missing = Vec::new();
        for (at, subscription) in self.subscriptions.iter().enumerate().filter(|(_, of)| !of.buries) {
            for (name, push) in self.pushes.iter().filter(|(_, push)| push.fate == Fate::Stored) {
                if !subscription.received.contains_key(name) && !subscription.may_lack(push) {
                    missing.push((at, *name));
                }
            }
        }
        missing
    }

    /// Messages that are stored, and that subscriptions acknowledged without the application.
    pub(super) fn buried(&self) -> BTreeSet<Name> {
        let mut buried = BTreeSet::new();
        for subscription in self.subscriptions.iter().filter(|subscription| subscription.buries) {
            for (name, push) in self.pushes.iter().filter(|(_, push)| push.fate == Fate::Stored) {
                if !subscription.acknowledged.contains(name) && !subscription.may_lack(push) {
                    buried.insert(*name);
                }
            }
        }
        buried
    }

    /// The entries below one that is the first of its ledger were trimmed: every subscription has
    /// acknowledged them.
    pub(super) fn trimmed(&self, first: Position) {
        for (at, subscription) in self.subscriptions.iter().enumerate().filter(|(_, of)| !of.buries) {
            for (name, push) in &self.pushes {
                let Some(id) = push.id.filter(|id| id.0 == first.0 && id.1 < first.1) else { continue };
                if !subscription.acknowledged.contains(name) && !subscription.may_lack(push) {
                    violate(format!(
                        "{name:?} at {id:?} was trimmed, up to {first:?}, and subscription {at} has not acknowledged it"
                    ));
                }
            }
        }
    }
}
