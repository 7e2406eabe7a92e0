//! Acknowledgements waiting to be sent together, and the state of partly acknowledged batches.
//!
//! A batch is one entry. It is acknowledged at the broker once all its messages are or, with
//! batch-index acknowledgement, by a bit set of the messages that are not (1 = not yet
//! acknowledged).

use std::collections::{BTreeMap, BTreeSet};

use crate::MessageId;
use crate::hot::IdData;
use forebay_base::error::{Error, ErrorKind, Result};

/// Ledger and entry.
pub(super) type Entry = (u64, u64);

/// Maximum number of partly acknowledged batches. A batch that another consumer of the subscription
/// finishes would otherwise stay here for ever.
const MAX_BATCHES: usize = 10_000;

/// Values of `CommandAck.AckType`.
const INDIVIDUAL: i32 = 0;
const CUMULATIVE: i32 = 1;

/// Messages of a batch that are not yet acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Batch {
    words: Vec<u64>,
    left: u32,
}

impl Batch {
    fn new(size: u32) -> Self {
        let mut words = vec![u64::MAX; size.div_ceil(64) as usize];
        if let Some(last) = words.last_mut().filter(|_| !size.is_multiple_of(64)) {
            *last = (1 << (size % 64)) - 1;
        }
        Self { words, left: size }
    }

    fn is_open(&self, index: u32) -> bool {
        self.words.get(index as usize / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    fn acknowledge(&mut self, index: u32) -> bool {
        let open = self.is_open(index);
        if open {
            self.words[index as usize / 64] &= !(1 << (index % 64));
            self.left -= 1;
        }
        open
    }

    /// Encodes the set like Java's `BitSet.toLongArray`: lowest bits first, without trailing empty
    /// words.
    fn to_ack_set(&self) -> Vec<i64> {
        let used = self.words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        self.words[..used].iter().map(|word| *word as i64).collect()
    }
}

/// One ACK to be sent: its type and its ids.
#[derive(Debug, PartialEq)]
pub(super) struct AckGroup {
    pub(super) ack_type: i32,
    pub(super) ids: Vec<IdData>,
}

/// Acknowledgements of one consumer.
#[derive(Debug, Default)]
pub(super) struct Acks {
    index_ack: bool,
    /// Batches of which some, but not all, messages are acknowledged.
    batches: BTreeMap<Entry, Batch>,
    /// Entries to be acknowledged as a whole.
    whole: BTreeSet<Entry>,
    /// Batches whose bit set has changed since it was last sent.
    partial: BTreeSet<Entry>,
    /// Position up to which everything is acknowledged.
    through: Option<MessageId>,
    /// Whether `through` has moved since it was last sent.
    through_changed: bool,
    /// First entry that must stay unacknowledged at the broker, regardless of `through`.
    hold: Option<Entry>,
    /// Whether `hold` limited the last cumulative acknowledgement sent for `through`.
    held_back: bool,
    /// Last whole entry that was sent as a cumulative acknowledgement.
    last_sent: Option<Entry>,
}

impl Acks {
    pub(super) fn new(index_ack: bool) -> Self {
        Self { index_ack, ..Self::default() }
    }

    /// Number of ids waiting to be sent.
    pub(super) fn waiting(&self) -> usize {
        self.whole.len() + self.partial.len() + usize::from(self.through_changed)
    }

    /// Whether a cumulative acknowledgement is waiting for the limit set by [`Self::hold`] to be
    /// lifted.
    pub(super) fn is_held_back(&self) -> bool {
        self.held_back
    }

    /// Limits cumulative acknowledgements to the entry before `first` from now on. Acknowledgements
    /// held back by the previous limit are sent as far as the new one allows.
    pub(super) fn hold(&mut self, first: Option<Entry>) {
        if self.hold != first {
            self.hold = first;
            self.through_changed |= std::mem::take(&mut self.held_back);
        }
    }

    /// Whether the message has been acknowledged here and must not be delivered again.
    pub(super) fn contains(&self, id: &MessageId) -> bool {
        if self.whole.contains(&id.entry_id()) || self.through.is_some_and(|through| covers(&through, id)) {
            return true;
        }
        id.batch_index >= 0
            && self.batches.get(&id.entry_id()).is_some_and(|batch| !batch.is_open(id.batch_index as u32))
    }

    /// Whether the size of the message's batch is known here.
    pub(super) fn knows_batch(&self, id: &MessageId) -> bool {
        self.batches.contains_key(&id.entry_id()) || self.whole.contains(&id.entry_id())
    }

    /// Acknowledges one message.
    pub(super) fn individual(&mut self, id: &MessageId) {
        let entry = id.entry_id();
        if id.batch_index < 0 || id.batch_size == 1 {
            self.batches.remove(&entry);
            self.partial.remove(&entry);
            self.whole.insert(entry);
            return;
        }
        // Without the batch size (in an id parsed from text) nothing is known about the other
        // messages of the batch; acknowledging the entry would lose them.
        if id.batch_size <= 0 && !self.batches.contains_key(&entry) {
            return;
        }
        if self.whole.contains(&entry) {
            return;
        }
        if !self.batch(entry, id.batch_size as u32).acknowledge(id.batch_index as u32) {
            return;
        }
        let Some(batch) = self.batches.get(&entry) else { return };
        if batch.left == 0 {
            self.batches.remove(&entry);
            self.partial.remove(&entry);
            self.whole.insert(entry);
        } else if self.index_ack {
            self.partial.insert(entry);
        }
    }

    /// Acknowledges this message and all before it.
    pub(super) fn cumulative(&mut self, id: &MessageId) -> Result<()> {
        if id.batch_index >= 0 && id.batch_size <= 0 {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the message id lacks the batch size, which a cumulative acknowledgement needs: use the message itself or an id stored with to_bytes()",
            ));
        }
        if self.through.is_none_or(|through| !covers(&through, id)) {
            self.through = Some(*id);
            self.through_changed = true;
            let before = |entry: &Entry| order(*entry) < order(id.entry_id());
            self.whole.retain(|entry| !before(entry));
            self.partial.retain(|entry| !before(entry));
            self.batches.retain(|entry, _| !before(entry));
            self.cover_head_of_batch(id);
        }
        Ok(())
    }

    /// Sends an acknowledgement again for a message that was redelivered although it is
    /// acknowledged here.
    pub(super) fn redelivered(&mut self, id: &MessageId) {
        let entry = id.entry_id();
        if self.through.is_some_and(|through| covers(&through, id)) {
            self.through_changed = true;
            self.last_sent = None;
        } else if self.index_ack && self.batches.contains_key(&entry) {
            self.partial.insert(entry);
        }
    }

    /// Records which messages of a batch the broker still considers unacknowledged: those in
    /// `ack_set`.
    pub(super) fn expect(&mut self, entry: Entry, size: u32, ack_set: &[i64]) {
        if self.whole.contains(&entry) {
            return;
        }
        let batch = self.batch(entry, size);
        for index in (0..size).filter(|index| !super::entry::is_set(ack_set, *index)) {
            batch.acknowledge(index);
        }
        if batch.left == 0 {
            self.batches.remove(&entry);
            self.partial.remove(&entry);
            self.whole.insert(entry);
        }
    }

    /// Returns the batch, with the messages already marked that a cumulative acknowledgement
    /// covers.
    fn batch(&mut self, entry: Entry, size: u32) -> &mut Batch {
        if self.batches.len() >= MAX_BATCHES && !self.batches.contains_key(&entry) {
            self.forget_oldest();
        }
        let covered = self.through.filter(|through| through.entry_id() == entry);
        self.batches.entry(entry).or_insert_with(|| {
            let mut batch = Batch::new(size);
            for index in (0..size).take_while(|index| covered.is_some_and(|t| *index as i32 <= t.batch_index))
            {
                batch.acknowledge(index);
            }
            batch
        })
    }

    /// Drops the earliest batch, preferring one whose state the broker already knows. The only cost
    /// is possible redelivery of its messages; no unacknowledged message becomes acknowledged.
    fn forget_oldest(&mut self) {
        let known = self.batches.keys().take(100).find(|entry| !self.partial.contains(entry)).copied();
        if let Some(entry) = known.or_else(|| self.batches.keys().next().copied()) {
            self.batches.remove(&entry);
            self.partial.remove(&entry);
        }
    }

    /// Marks the messages that a cumulative acknowledgement covers in the middle of a batch, so
    /// that acknowledging the rest one by one completes the entry.
    fn cover_head_of_batch(&mut self, id: &MessageId) {
        let entry = id.entry_id();
        if id.batch_index < 0 || id.batch_index + 1 >= id.batch_size {
            self.batches.remove(&entry);
            self.partial.remove(&entry);
            self.whole.remove(&entry);
            return;
        }
        if self.whole.contains(&entry) {
            return;
        }
        let batch = self.batch(entry, id.batch_size as u32);
        for index in 0..=id.batch_index as u32 {
            batch.acknowledge(index);
        }
        if batch.left == 0 {
            self.batches.remove(&entry);
            self.partial.remove(&entry);
            self.whole.insert(entry);
        }
    }

    /// Takes all waiting acknowledgements.
    pub(super) fn take(&mut self) -> Vec<AckGroup> {
        let mut groups = Vec::new();
        if std::mem::take(&mut self.through_changed)
            && let Some(through) = self.through
            && let Some(id) = self.cumulative_id(&through)
        {
            groups.push(AckGroup { ack_type: CUMULATIVE, ids: vec![id] });
        }
        let whole = std::mem::take(&mut self.whole).into_iter().map(|entry| id_data(entry, Vec::new()));
        let partial = std::mem::take(&mut self.partial);
        let ids: Vec<_> = whole
            .chain(
                partial
                    .iter()
                    .filter_map(|entry| Some(id_data(*entry, self.batches.get(entry)?.to_ack_set()))),
            )
            .collect();
        if !ids.is_empty() {
            groups.push(AckGroup { ack_type: INDIVIDUAL, ids });
        }
        groups
    }

    /// Acknowledges `ids` and takes only what must be sent for them.
    pub(super) fn take_for(&mut self, ids: &[MessageId], cumulative: bool) -> Result<Option<AckGroup>> {
        if cumulative {
            for id in ids {
                self.cumulative(id)?;
            }
            self.through_changed = false;
            let Some(through) = self.through else { return Ok(None) };
            return Ok(self
                .cumulative_id(&through)
                .map(|id| AckGroup { ack_type: CUMULATIVE, ids: vec![id] }));
        }
        let mut entries = BTreeSet::new();
        for id in ids {
            self.individual(id);
            entries.insert(id.entry_id());
        }
        let ids: Vec<_> = entries
            .into_iter()
            .filter_map(|entry| {
                if self.whole.remove(&entry) {
                    Some(id_data(entry, Vec::new()))
                } else if self.partial.remove(&entry) {
                    Some(id_data(entry, self.batches.get(&entry)?.to_ack_set()))
                } else {
                    None
                }
            })
            .collect();
        Ok((!ids.is_empty()).then_some(AckGroup { ack_type: INDIVIDUAL, ids }))
    }

    /// Takes back what [`Self::take`] gave and was not written: it is sent again.
    pub(super) fn put_back(&mut self, ack_type: i32, ids: &[IdData]) {
        if ack_type == CUMULATIVE {
            self.through_changed = self.through.is_some();
            self.last_sent = None;
            return;
        }
        for id in ids {
            let entry = (id.ledger_id, id.entry_id);
            if id.ack_set.is_empty() {
                self.batches.remove(&entry);
                self.partial.remove(&entry);
                self.whole.insert(entry);
            } else if self.batches.contains_key(&entry) {
                // What has been acknowledged since is sent with it.
                self.partial.insert(entry);
            }
        }
    }

    /// Discards all state, after the position was moved.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.index_ack);
    }

    /// The id that acknowledges everything up to and including `through`, or as much of it as the
    /// hold allows. In the middle of a batch without batch-index acknowledgement that is the
    /// preceding entry, which for entry 0 wraps around, as the official clients send it.
    fn cumulative_id(&mut self, through: &MessageId) -> Option<IdData> {
        let entry = through.entry_id();
        if let Some(hold) = self.hold.filter(|hold| order(*hold) <= order(entry)) {
            self.held_back = true;
            // The id of the entry before the first one of a ledger is unknown here. A position that
            // is not beyond `last_sent` is not sent either, because brokers reject moving back.
            let before = (hold.0, hold.1.checked_sub(1)?);
            if self.last_sent.is_some_and(|last| order(before) <= order(last)) {
                return None;
            }
            self.last_sent = Some(before);
            return Some(id_data(before, Vec::new()));
        }
        self.held_back = false;
        if through.batch_index < 0 || through.batch_index + 1 >= through.batch_size {
            self.last_sent = Some(entry);
            return Some(id_data(entry, Vec::new()));
        }
        if self.index_ack {
            let mut batch = Batch::new(through.batch_size as u32);
            for index in 0..=through.batch_index as u32 {
                batch.acknowledge(index);
            }
            return Some(id_data(entry, batch.to_ack_set()));
        }
        Some(id_data((entry.0, entry.1.wrapping_sub(1)), Vec::new()))
    }
}

/// Whether a cumulative acknowledgement of `through` includes `id`.
fn covers(through: &MessageId, id: &MessageId) -> bool {
    match order(id.entry_id()).cmp(&order(through.entry_id())) {
        std::cmp::Ordering::Less => true,
        std::cmp::Ordering::Equal => {
            through.batch_index < 0
                || through.batch_index + 1 >= through.batch_size
                || (id.batch_index >= 0 && id.batch_index <= through.batch_index)
        }
        std::cmp::Ordering::Greater => false,
    }
}

/// Sort key. -1 is `u64::MAX` on the wire but sorts first.
pub(super) fn order((ledger, entry): Entry) -> (i64, i64) {
    (ledger as i64, entry as i64)
}

fn id_data((ledger_id, entry_id): Entry, ack_set: Vec<i64>) -> IdData {
    IdData { ledger_id, entry_id, ack_set, ..IdData::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batched(entry: u64, index: i32, size: i32) -> MessageId {
        MessageId::new(1, entry).in_batch(index, size)
    }

    #[test]
    fn without_index_ack_an_entry_is_acknowledged_with_its_last_message() {
        let mut acks = Acks::new(false);
        acks.individual(&batched(0, 1, 2));
        assert_eq!(acks.take(), []);
        assert!(acks.contains(&batched(0, 1, 2)) && !acks.contains(&batched(0, 0, 2)));
        acks.individual(&batched(0, 0, 2));
        assert_eq!(acks.take(), [AckGroup { ack_type: INDIVIDUAL, ids: vec![id_data((1, 0), vec![])] }]);
    }

    #[test]
    fn with_index_ack_the_bits_of_what_is_left_are_sent() {
        let mut acks = Acks::new(true);
        for index in [0, 64, 65] {
            acks.individual(&batched(0, index, 66));
        }
        let group = acks.take().pop().unwrap();
        assert_eq!(group.ids[0].ack_set, [-2], "bits 1 to 63; the second word is empty and trimmed");
        assert_eq!(group.ids[0].batch_size, None, "no client sends it");
    }

    #[test]
    fn a_cumulative_ack_in_a_batch_is_the_entry_before_or_a_bit_set() {
        let mut acks = Acks::new(false);
        acks.cumulative(&batched(0, 0, 3)).unwrap();
        assert_eq!(acks.take()[0].ids, [id_data((1, u64::MAX), vec![])]);
        let mut acks = Acks::new(true);
        acks.cumulative(&batched(5, 0, 3)).unwrap();
        assert_eq!(acks.take()[0].ids, [id_data((1, 5), vec![0b110])]);
        acks.cumulative(&batched(5, 2, 3)).unwrap();
        assert_eq!(acks.take()[0].ids, [id_data((1, 5), vec![])]);
        acks.cumulative(&batched(4, 0, 3)).unwrap();
        assert_eq!(acks.take(), [], "a lower position changes nothing");
    }

    #[test]
    fn after_a_cumulative_ack_in_a_batch_the_rest_completes_the_entry() {
        for (index_ack, one_by_one_first) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut acks = Acks::new(index_ack);
            if one_by_one_first {
                acks.individual(&batched(5, 2, 3));
            }
            acks.cumulative(&batched(5, 1, 3)).unwrap();
            acks.individual(&batched(5, 2, 3));
            let ids = acks.take().pop().unwrap().ids;
            assert_eq!(ids, [id_data((1, 5), vec![])], "index_ack {index_ack}");
            assert!(acks.batches.is_empty() && acks.partial.is_empty());
        }
    }

    #[test]
    fn the_rest_of_a_batch_completes_it_also_when_it_came_again() {
        for ack_set in [&[][..], &[0b100]] {
            let mut acks = Acks::new(false);
            if ack_set.is_empty() {
                acks.cumulative(&batched(5, 1, 3)).unwrap();
                acks.individual(&batched(5, 2, 3));
                assert_eq!(acks.take().len(), 2);
                acks.redelivered(&batched(5, 0, 3));
                assert_eq!(acks.take()[0].ids, [id_data((1, 4), vec![])]);
            } else {
                acks.expect((1, 5), 3, ack_set);
            }
            acks.individual(&batched(5, 2, 3));
            assert_eq!(acks.take(), [AckGroup { ack_type: INDIVIDUAL, ids: vec![id_data((1, 5), vec![])] }]);
        }
    }

    #[test]
    fn a_cumulative_ack_swallows_individual_ones_before_it() {
        let mut acks = Acks::new(true);
        acks.individual(&MessageId::new(1, 3));
        acks.individual(&MessageId::new(1, 9));
        acks.cumulative(&MessageId::new(1, 5)).unwrap();
        let groups = acks.take();
        assert_eq!(groups[0], AckGroup { ack_type: CUMULATIVE, ids: vec![id_data((1, 5), vec![])] });
        assert_eq!(groups[1].ids, [id_data((1, 9), vec![])]);
        assert!(acks.contains(&MessageId::new(1, 3)), "still known, so that it is not delivered again");
    }

    #[test]
    fn an_index_without_the_size_of_its_batch_acknowledges_nothing_else() {
        let mut acks = Acks::new(true);
        acks.individual(&batched(0, 1, 0));
        assert_eq!(acks.waiting(), 0);
        assert!(acks.cumulative(&batched(0, 1, 0)).is_err());
    }

    #[test]
    fn batches_that_finish_elsewhere_are_forgotten_at_last() {
        for index_ack in [false, true] {
            let mut acks = Acks::new(index_ack);
            let most = MAX_BATCHES as u64;
            for entry in 0..most + 10 {
                acks.individual(&batched(entry, 0, 2));
                if entry % 1000 == 0 {
                    acks.take();
                }
            }
            assert_eq!(acks.batches.len(), MAX_BATCHES);
            // The latest batches complete with their other half. The earliest was dropped and stays
            // unacknowledged.
            acks.take();
            acks.individual(&batched(most + 9, 1, 2));
            acks.individual(&batched(0, 1, 2));
            let ids = acks.take().pop().unwrap().ids;
            assert!(ids.contains(&id_data((1, most + 9), vec![])));
            assert!(!ids.contains(&id_data((1, 0), vec![])));
            assert!(acks.batches.len() <= MAX_BATCHES && acks.partial.is_empty());
        }
    }

    #[test]
    fn an_ack_that_wants_a_receipt_takes_only_its_own_ids() {
        let mut acks = Acks::new(false);
        acks.individual(&MessageId::new(1, 1));
        let group = acks.take_for(&[MessageId::new(1, 2), batched(3, 0, 2)], false).unwrap().unwrap();
        assert_eq!(group.ids, [id_data((1, 2), vec![])]);
        assert_eq!(acks.waiting(), 1);
        assert_eq!(acks.take_for(&[batched(4, 0, 2)], false).unwrap(), None);
    }

    fn cumulative(ids: &[IdData]) -> AckGroup {
        AckGroup { ack_type: CUMULATIVE, ids: ids.to_vec() }
    }

    #[test]
    fn what_a_cumulative_ack_covers_is_acknowledged_and_the_rest_of_its_batch_is_not() {
        let mut acks = Acks::new(true);
        acks.cumulative(&batched(5, 1, 4)).unwrap();
        for covered in [MessageId::new(1, 4), batched(4, 3, 4), batched(5, 0, 4), batched(5, 1, 4)] {
            assert!(acks.contains(&covered), "{covered}");
        }
        for left in [batched(5, 2, 4), batched(5, 3, 4), MessageId::new(1, 5), MessageId::new(1, 6)] {
            assert!(!acks.contains(&left), "{left}");
        }
        for whole in [batched(5, 3, 4), MessageId::new(1, 5)] {
            acks.cumulative(&whole).unwrap();
            assert!(acks.contains(&MessageId::new(1, 5)) && acks.contains(&batched(5, 3, 4)), "{whole}");
        }
    }

    #[test]
    fn a_cumulative_ack_of_a_whole_entry_takes_its_single_ones_along() {
        for through in [MessageId::new(1, 5), batched(5, 2, 3)] {
            for index_ack in [false, true] {
                let mut acks = Acks::new(index_ack);
                acks.individual(&batched(5, 0, 3));
                acks.cumulative(&through).unwrap();
                assert_eq!(acks.take(), [cumulative(&[id_data((1, 5), vec![])])]);
            }
            let mut acks = Acks::new(true);
            acks.individual(&MessageId::new(1, 5));
            acks.cumulative(&through).unwrap();
            assert_eq!(acks.take(), [cumulative(&[id_data((1, 5), vec![])])]);
        }
    }

    #[test]
    fn single_acks_in_a_batch_outlive_a_cumulative_one_before_them() {
        for index_ack in [false, true] {
            for through in 0..2 {
                let mut acks = Acks::new(index_ack);
                acks.individual(&batched(5, 3, 4));
                acks.cumulative(&batched(5, through, 4)).unwrap();
                acks.take();
                for index in through + 1..3 {
                    acks.individual(&batched(5, index, 4));
                }
                let ids = acks.take().pop().unwrap().ids;
                assert_eq!(ids, [id_data((1, 5), vec![])], "index_ack {index_ack}, through {through}");
            }
        }
    }

    #[test]
    fn a_cumulative_ack_leaves_the_parts_of_later_batches_as_they_are() {
        let mut acks = Acks::new(true);
        acks.individual(&batched(3, 0, 2));
        acks.individual(&batched(9, 0, 2));
        acks.cumulative(&MessageId::new(1, 5)).unwrap();
        let single = AckGroup { ack_type: INDIVIDUAL, ids: vec![id_data((1, 9), vec![0b10])] };
        assert_eq!(acks.take(), [cumulative(&[id_data((1, 5), vec![])]), single]);
        assert_eq!(acks.batches.len(), 1, "nothing is kept of what is acknowledged");
    }

    #[test]
    fn an_id_without_the_size_of_its_batch_counts_once_the_batch_is_known() {
        let mut acks = Acks::new(false);
        assert!(!acks.knows_batch(&batched(0, 1, 0)));
        acks.individual(&batched(0, 0, 2));
        assert!(acks.knows_batch(&batched(0, 1, 0)));
        acks.individual(&batched(0, 1, 0));
        assert!(acks.knows_batch(&batched(0, 1, 0)), "all of it is acknowledged");
        assert_eq!(acks.take()[0].ids, [id_data((1, 0), vec![])]);
    }

    #[test]
    fn parts_of_a_batch_are_said_again_only_where_they_are_said_at_all() {
        for (index_ack, said) in [(false, 0), (true, 1)] {
            let mut acks = Acks::new(index_ack);
            acks.individual(&batched(0, 0, 2));
            acks.take();
            acks.redelivered(&batched(0, 0, 2));
            assert_eq!((acks.waiting(), acks.take().len()), (said, said), "index_ack {index_ack}");
        }
    }

    #[test]
    fn a_batch_that_the_broker_has_heard_of_is_forgotten_before_one_it_has_not() {
        let mut acks = Acks::new(true);
        let most = MAX_BATCHES as u64;
        for entry in 0..most {
            acks.individual(&batched(entry, 0, 3));
        }
        acks.take();
        acks.individual(&batched(0, 1, 3));
        acks.individual(&batched(most, 0, 3));
        let ids = acks.take().pop().unwrap().ids;
        assert_eq!(ids, [id_data((1, 0), vec![0b100]), id_data((1, most), vec![0b110])]);
    }

    #[test]
    fn what_is_held_back_is_sent_once_and_goes_on_with_the_limit() {
        let mut acks = Acks::new(false);
        acks.hold(Some((1, 3)));
        acks.cumulative(&MessageId::new(1, 5)).unwrap();
        assert_eq!(acks.take(), [cumulative(&[id_data((1, 2), vec![])])]);
        acks.cumulative(&MessageId::new(1, 6)).unwrap();
        assert_eq!(acks.take(), [], "brokers reject moving back");
        acks.hold(Some((1, 5)));
        assert_eq!(acks.take(), [cumulative(&[id_data((1, 4), vec![])])]);
        acks.hold(None);
        assert_eq!(acks.take(), [cumulative(&[id_data((1, 6), vec![])])]);
    }
}
