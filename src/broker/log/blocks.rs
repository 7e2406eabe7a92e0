//! A queue that moves at most one block of what is in it.

use std::collections::VecDeque;

/// Items of a block.
const BLOCK: usize = 512;

/// A queue in blocks. Unlike a [`VecDeque`], which copies all its items when it grows, it costs the
/// same for each item, however many there are; and it gives memory back when it becomes shorter.
#[derive(Debug)]
pub(super) struct Blocks<T> {
    /// No block is empty. All but the first and the last are full; the first has lost items at its
    /// front, and the last has room at its end.
    blocks: VecDeque<VecDeque<T>>,
}

impl<T> Default for Blocks<T> {
    fn default() -> Self {
        Self { blocks: VecDeque::new() }
    }
}

impl<T> Blocks<T> {
    /// Adds an item at the end, and gives it back.
    pub(super) fn push(&mut self, item: T) -> &T {
        if self.blocks.back().is_none_or(|last| last.len() == BLOCK) {
            // Short queues, of which there may be many, have short blocks.
            let room = if self.blocks.is_empty() { 0 } else { BLOCK };
            self.blocks.push_back(VecDeque::with_capacity(room));
        }
        let last = self.blocks.back_mut().expect("just added");
        last.push_back(item);
        last.back().expect("just pushed")
    }

    /// The item at the front.
    pub(super) fn front(&self) -> Option<&T> {
        self.blocks.front()?.front()
    }

    /// Removes the item at the front.
    pub(super) fn pop(&mut self) -> Option<T> {
        let first = self.blocks.front_mut()?;
        let item = first.pop_front();
        if first.is_empty() {
            self.blocks.pop_front();
        }
        item
    }

    /// The item at a place, counted from the front.
    pub(super) fn get(&self, place: usize) -> Option<&T> {
        let first = self.blocks.front()?;
        match place.checked_sub(first.len()) {
            None => first.get(place),
            Some(behind) => self.blocks.get(1 + behind / BLOCK)?.get(behind % BLOCK),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_has_what_a_plain_queue_has(steps in prop::collection::vec((any::<bool>(), 0..3 * BLOCK), 1..40)) {
            let (mut blocks, mut plain) = (Blocks::default(), VecDeque::new());
            let mut next = 0;
            for (pushes, count) in steps {
                for _ in 0..count {
                    if pushes {
                        plain.push_back(next);
                        prop_assert_eq!(blocks.push(next), &next);
                        next += 1;
                    } else {
                        prop_assert_eq!(blocks.pop(), plain.pop_front());
                    }
                }
                prop_assert_eq!(blocks.front(), plain.front());
                for place in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, plain.len() / 2, plain.len().wrapping_sub(1), plain.len()] {
                    prop_assert_eq!(blocks.get(place), plain.get(place));
                }
                prop_assert!(blocks.blocks.iter().all(|block| !block.is_empty()));
            }
        }
    }
}
