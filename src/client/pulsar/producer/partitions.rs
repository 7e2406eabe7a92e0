//! The partitions of a producer, which only ever become more: a list to which generations are
//! added.
//!
//! A slot never changes its partition, and looking one up takes no lock.

use std::sync::{Arc, OnceLock};

use super::partition::PartitionProducer;

/// Partitions that were opened together, and those that followed.
#[derive(Debug)]
pub(super) struct Parts {
    own: Vec<Arc<PartitionProducer>>,
    next: OnceLock<Box<Parts>>,
}

impl Parts {
    pub(super) fn new(own: Vec<Arc<PartitionProducer>>) -> Self {
        Self { own, next: OnceLock::new() }
    }

    /// Whether there is one partition only.
    pub(super) fn is_single(&self) -> bool {
        self.own.len() == 1 && self.next.get().is_none()
    }

    /// Number of partitions.
    pub(super) fn len(&self) -> usize {
        self.generations().map(|generation| generation.own.len()).sum()
    }

    /// The partition of a slot, which must exist.
    pub(super) fn get(&self, mut slot: usize) -> &Arc<PartitionProducer> {
        let mut generation = self;
        while slot >= generation.own.len() {
            slot -= generation.own.len();
            generation = generation.next.get().expect("a slot that was given out exists");
        }
        &generation.own[slot]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<PartitionProducer>> {
        self.generations().flat_map(|generation| &generation.own)
    }

    /// Appends partitions. One caller at a time.
    pub(super) fn add(&self, more: Vec<Arc<PartitionProducer>>) {
        let last = self.generations().last().expect("there is a first one");
        // A second caller at the same time would lose its partitions, and close them.
        let _ = last.next.set(Box::new(Self::new(more)));
    }

    fn generations(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |generation| generation.next.get().map(|next| &**next))
    }
}
