//! Assignment of hashes to consumers in a Key_Shared subscription: 65,536 slots, cut into ranges.
//!
//! Ranges are split and joined so that few keys move when the consumers change: a new consumer
//! takes half of the widest range, and a leaving one gives its range to a neighbour.

/// Number of hash slots.
pub const SLOTS: u32 = 1 << 16;

/// The ranges of the consumers, in order and without gaps, unless the consumers chose them.
#[derive(Clone, Debug)]
pub struct HashRanges<K> {
    /// First slot, last slot and owner of each range.
    ranges: Vec<(u32, u32, K)>,
    /// Whether the consumers choose their ranges.
    chosen: bool,
}

impl<K> Default for HashRanges<K> {
    fn default() -> Self {
        Self { ranges: Vec::new(), chosen: false }
    }
}

impl<K: Copy + PartialEq> HashRanges<K> {
    /// Whether the consumers choose their ranges.
    pub fn is_chosen(&self) -> bool {
        self.chosen
    }

    /// Assigns half of the widest range to `owner`.
    pub fn add(&mut self, owner: K) {
        self.chosen = false;
        let widest = (0..self.ranges.len()).rev().max_by_key(|i| self.ranges[*i].1 - self.ranges[*i].0);
        match widest {
            None => self.ranges.push((0, SLOTS - 1, owner)),
            Some(i) => {
                let (start, end, _) = self.ranges[i];
                let middle = start + (end - start) / 2;
                self.ranges[i].1 = middle;
                self.ranges.insert(i + 1, (middle + 1, end, owner));
            }
        }
    }

    /// Assigns to `owner` the ranges that it asks for, unless they are invalid or taken.
    pub fn add_chosen(&mut self, owner: K, wanted: &[(u32, u32)]) -> Result<(), &'static str> {
        if wanted.is_empty() {
            return Err("Ranges for KeyShared policy must not be empty.");
        }
        if !self.ranges.is_empty() && !self.chosen {
            return Err("The subscription splits the ranges by itself");
        }
        if wanted.iter().any(|&(start, end)| start > end || end >= SLOTS) {
            return Err("A hash range is not within 0..65535");
        }
        // Sorted, each range is compared with its neighbours only: there may be 65,536 of them,
        // here and there.
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        let overlaps = |pair: &[(u32, u32)]| pair[1].0 <= pair[0].1;
        let taken = |&(start, end): &(u32, u32)| {
            let first = self.ranges.partition_point(|range| range.1 < start);
            self.ranges.get(first).is_some_and(|range| range.0 <= end)
        };
        if wanted.windows(2).any(overlaps) || wanted.iter().any(taken) {
            return Err("Range conflict with consumer");
        }
        self.ranges.extend(wanted.into_iter().map(|(start, end)| (start, end, owner)));
        self.ranges.sort_unstable_by_key(|range| range.0);
        self.chosen = true;
        Ok(())
    }

    /// Removes the ranges of `owner`.
    pub fn remove(&mut self, owner: K) {
        if self.chosen {
            self.ranges.retain(|range| range.2 != owner);
            return;
        }
        while let Some(i) = self.ranges.iter().position(|range| range.2 == owner) {
            let (start, end, _) = self.ranges.remove(i);
            if i > 0 {
                self.ranges[i - 1].1 = end;
            } else if let Some(next) = self.ranges.first_mut() {
                next.0 = start;
            }
        }
    }

    /// The owner of a slot.
    pub fn owner(&self, slot: u16) -> Option<K> {
        let slot = u32::from(slot);
        let i = self.ranges.partition_point(|range| range.0 <= slot).checked_sub(1)?;
        let (_, end, owner) = self.ranges[i];
        (slot <= end).then_some(owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_slot_has_a_living_owner(steps in proptest::collection::vec((any::<bool>(), 0_u8..6), 1..40), slots: Vec<u16>) {
            let mut ring = HashRanges::default();
            let mut alive = std::collections::BTreeSet::new();
            for (add, who) in steps {
                if add && alive.insert(who) {
                    ring.add(who);
                } else if !add && alive.remove(&who) {
                    ring.remove(who);
                }
                for slot in slots.iter().copied().chain([0, u16::MAX]) {
                    match ring.owner(slot) {
                        Some(owner) => prop_assert!(alive.contains(&owner)),
                        None => prop_assert!(alive.is_empty()),
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn chosen_ranges_are_taken_if_no_slot_has_two_owners(
            wanted in proptest::collection::vec(proptest::collection::vec((0_u32..40, 0_u32..4), 1..4), 1..12),
        ) {
            let (mut ring, mut owners) = (HashRanges::default(), std::collections::BTreeMap::new());
            for (who, ranges) in wanted.into_iter().enumerate() {
                let ranges: Vec<_> = ranges.into_iter().map(|(start, more)| (start, start + more)).collect();
                let slots: Vec<u32> = ranges.iter().flat_map(|(start, end)| *start..=*end).collect();
                let distinct: std::collections::BTreeSet<_> = slots.iter().copied().collect();
                let free = distinct.len() == slots.len() && distinct.iter().all(|slot| !owners.contains_key(slot));
                prop_assert_eq!(ring.add_chosen(who, &ranges).is_ok(), free);
                if free {
                    owners.extend(distinct.into_iter().map(|slot| (slot, who)));
                }
                for slot in 0..50_u16 {
                    prop_assert_eq!(ring.owner(slot), owners.get(&u32::from(slot)).copied());
                }
            }
        }
    }

    #[test]
    fn chosen_ranges_must_not_overlap_and_leave_gaps_without_owner() {
        let mut ring = HashRanges::default();
        ring.add_chosen('a', &[(0, 99), (200, 299)]).unwrap();
        assert!(ring.add_chosen('b', &[(99, 150)]).is_err());
        assert!(ring.add_chosen('b', &[(5, 1)]).is_err());
        assert!(ring.add_chosen('b', &[(0, 65536)]).is_err());
        ring.add_chosen('b', &[(100, 199)]).unwrap();
        assert_eq!(
            [ring.owner(99), ring.owner(100), ring.owner(250), ring.owner(300)],
            [Some('a'), Some('b'), Some('a'), None]
        );
        ring.remove('a');
        assert_eq!([ring.owner(0), ring.owner(100)], [None, Some('b')]);
    }
}
