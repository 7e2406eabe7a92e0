//! The partitions of a consumer that have messages to be taken.
//!
//! A consumer may have ten thousand partitions. A receive asks only those that are listed here:
//!
//! * A partition is added when a message has come, or the schema that it waited for, and before the
//!   consumer is told that it is readable.
//! * It is removed when a receive leaves no message in it that can be taken. If its messages have
//!   become void, by a seek or with its connection, it stays until a receive finds that out.
//!
//! Both are done under the lock of its machine, so that no message that can be taken is in a
//! partition that is not listed, whichever threads receive. A partition that the consumer no longer
//! has may be removed at any time.
//!
//! A consumer of one partition asks it directly, and removes nothing.

use std::collections::VecDeque;

use forebay_base::sync::Mutex;

/// The ids of partitions, each once, in the order in which they are served.
#[derive(Debug, Default)]
pub(super) struct ReadyPartitions(Mutex<VecDeque<u64>>);

impl ReadyPartitions {
    /// Adds a partition, to be served after the others. It must not be listed.
    pub(super) fn add(&self, id: u64) {
        self.0.lock().push_back(id);
    }

    pub(super) fn remove(&self, id: u64) {
        let mut ids = self.0.lock();
        // That is the first, unless another thread receives as well.
        if let Some(index) = ids.iter().position(|listed| *listed == id) {
            ids.remove(index);
        }
    }

    /// Moves a partition that was served behind the others, so that none starves.
    pub(super) fn move_to_back(&self, id: u64) {
        let mut ids = self.0.lock();
        // Another thread may have moved it.
        if ids.front() == Some(&id) {
            ids.rotate_left(1);
        }
    }

    /// The partition that is served next.
    pub(super) fn first(&self) -> Option<u64> {
        self.0.lock().front().copied()
    }

    pub(super) fn all(&self) -> Vec<u64> {
        self.0.lock().iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_served_by_turns_while_they_hold_messages() {
        let ready = ReadyPartitions::default();
        [1, 2, 3].into_iter().for_each(|id| ready.add(id));
        assert_eq!(ready.first(), Some(1));
        ready.move_to_back(1);
        assert_eq!(ready.all(), [2, 3, 1]);
        // Another thread was quicker.
        ready.move_to_back(1);
        assert_eq!(ready.all(), [2, 3, 1]);
        ready.remove(3);
        ready.remove(3);
        assert_eq!(ready.all(), [2, 1]);
        ready.remove(2);
        ready.remove(1);
        assert_eq!(ready.first(), None);
    }
}
