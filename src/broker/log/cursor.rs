//! The acknowledgements of a subscription: everything below a mark, ranges above it, and single
//! messages of batches above it.

use std::collections::BTreeMap;

use bytes::BytesMut;

use forebay_base::wire::{Reader, UnexpectedEnd, put_varint};

/// Names and values that a client has stored with a subscription.
pub type Properties = Vec<(Box<str>, Box<str>)>;

/// Limit on the ranges that are stored, and on the partly acknowledged batches. Ranges beyond it
/// are lost at a restart, and their entries are redelivered, as by the real broker.
const PERSISTED: usize = 10_000;
/// Limit on the 64-bit words of the partly acknowledged batches of one cursor, 4 MiB. Beyond it,
/// and beyond [`PERSISTED`] batches, an acknowledgement of part of a batch is forgotten: the whole
/// batch is redelivered if it comes to that. 10,000 batches of 3,000 messages fit.
const PARTIAL_WORDS: usize = 1 << 19;
/// Limit on the messages of a batch: a client may claim any number, without sending them.
pub const MAX_BATCH: u32 = 1 << 20;

/// Bytes that are no cursor, in [`Cursor::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

impl From<UnexpectedEnd> for Damaged {
    fn from(_: UnexpectedEnd) -> Self {
        Self
    }
}

/// A set of acknowledged entries, as the [module](self) describes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cursor {
    below: u64,
    /// Start and end (exclusive) of each range; disjoint, not adjacent, all above `below`.
    ranges: BTreeMap<u64, u64>,
    /// Bits of partly acknowledged batches; 1 means not acknowledged.
    partial: BTreeMap<u64, Vec<u64>>,
    /// Words of all of `partial`.
    partial_words: usize,
}

impl Cursor {
    /// A cursor with everything below `below` acknowledged.
    pub fn new(below: u64) -> Self {
        Self { below, ..Self::default() }
    }

    /// The lowest entry that is not acknowledged.
    pub fn below(&self) -> u64 {
        self.below
    }

    /// Whether the whole entry is acknowledged.
    pub fn is_acked(&self, sequence: u64) -> bool {
        sequence < self.below || self.range_end(sequence).is_some()
    }

    /// The lowest entry from `from` on that is not acknowledged.
    pub fn next_unacked(&self, from: u64) -> u64 {
        let from = from.max(self.below);
        self.range_end(from).unwrap_or(from)
    }

    /// Number of acknowledged entries at or above [`Self::below`].
    pub fn acked_past(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }

    /// Acknowledges one entry. Returns `false` if it was acknowledged already.
    pub fn ack(&mut self, sequence: u64) -> bool {
        if self.is_acked(sequence) {
            return false;
        }
        self.forget_partial(sequence);
        let mut start = sequence;
        let mut end = sequence + 1;
        if let Some((&before, &before_end)) = self.ranges.range(..sequence).next_back()
            && before_end == sequence
        {
            start = before;
        }
        if let Some(after_end) = self.ranges.remove(&end) {
            end = after_end;
        }
        self.ranges.insert(start, end);
        self.settle();
        true
    }

    /// Keeps only the bits of `set` unacknowledged, of those that still were. Returns whether the
    /// whole entry is acknowledged now.
    pub fn ack_partial(&mut self, sequence: u64, set: &[i64], count: u32) -> bool {
        if self.is_acked(sequence) {
            return true;
        }
        let mut bits = self.bits(sequence, count, set.len());
        for (i, word) in bits.iter_mut().enumerate() {
            *word &= set.get(i).copied().unwrap_or(0) as u64;
        }
        if bits.iter().all(|word| *word == 0) {
            self.ack(sequence);
            return true;
        }
        self.insert_partial(sequence, bits);
        false
    }

    /// Acknowledges everything below `sequence`.
    pub fn ack_below(&mut self, sequence: u64) -> bool {
        if sequence <= self.below {
            return false;
        }
        self.below = sequence;
        self.settle();
        true
    }

    /// Moves to `sequence` and forgets every acknowledgement above it. A `set` that is not empty
    /// leaves only these messages of the entry itself.
    pub fn reset(&mut self, sequence: u64, set: &[i64]) {
        *self = Self::new(sequence);
        let words: Vec<u64> = set.iter().take(MAX_BATCH as usize / 64).map(|word| *word as u64).collect();
        if words.iter().any(|word| *word != 0) {
            self.insert_partial(sequence, words);
        } else if !set.is_empty() {
            // Nothing is left of the entry.
            self.ack(sequence);
        }
    }

    /// Whether some messages of the entry are acknowledged and others not.
    pub fn is_partial(&self, sequence: u64) -> bool {
        self.partial.contains_key(&sequence)
    }

    /// Number of messages of the entry that are not acknowledged, and their bits if some are
    /// acknowledged.
    pub fn remaining(&self, sequence: u64, count: u32) -> (u32, Vec<i64>) {
        match self.partial.get(&sequence) {
            None => (count, Vec::new()),
            Some(bits) => {
                let left: u32 = bits.iter().map(|word| word.count_ones()).sum();
                let mut words: Vec<i64> = bits.iter().map(|word| *word as i64).collect();
                while words.last() == Some(&0) {
                    words.pop();
                }
                (left.min(count), words)
            }
        }
    }

    /// Encodes everything but [`Self::below`] for the store, and the properties of the
    /// subscription.
    pub fn encode_with(&self, properties: &Properties) -> Vec<u8> {
        let mut out = BytesMut::from(&self.encode()[..]);
        for text in properties.iter().flat_map(|(name, value)| [name, value]) {
            put_varint(&mut out, text.len() as u64);
            out.extend_from_slice(text.as_bytes());
        }
        out.to_vec()
    }

    /// Decodes the result of [`Self::encode_with`].
    pub fn decode_with(below: u64, bytes: &[u8]) -> Result<(Self, Properties), Damaged> {
        let mut reader = Reader::new(bytes);
        let cursor = Self::read(below, &mut reader)?;
        let mut properties = Properties::new();
        let text = |reader: &mut Reader<'_>| {
            Ok::<_, UnexpectedEnd>(String::from_utf8_lossy(reader.delimited()?).into_owned().into_boxed_str())
        };
        while !reader.is_empty() {
            let name = text(&mut reader)?;
            properties.push((name, text(&mut reader)?));
        }
        Ok((cursor, properties))
    }

    /// Encodes everything but [`Self::below`] for the store.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = BytesMut::new();
        put_varint(&mut out, self.ranges.len().min(PERSISTED) as u64);
        let mut previous = self.below;
        for (&start, &end) in self.ranges.iter().take(PERSISTED) {
            put_varint(&mut out, start - previous);
            put_varint(&mut out, end - start);
            previous = end;
        }
        put_varint(&mut out, self.partial.len() as u64);
        for (&sequence, bits) in &self.partial {
            put_varint(&mut out, sequence - self.below);
            put_varint(&mut out, bits.len() as u64);
            for word in bits {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        out.to_vec()
    }

    /// Decodes the result of [`Self::encode`].
    pub fn decode(below: u64, bytes: &[u8]) -> Result<Self, Damaged> {
        Self::read(below, &mut Reader::new(bytes))
    }

    fn read(below: u64, reader: &mut Reader<'_>) -> Result<Self, Damaged> {
        let mut cursor = Self::new(below);
        let mut previous = below;
        for _ in 0..reader.varint()? {
            let start = previous.checked_add(reader.varint()?).ok_or(Damaged)?;
            let end = start.checked_add(reader.varint()?).ok_or(Damaged)?;
            // Ranges are not empty, and do not touch each other or what is below them.
            if start == previous || end == start {
                return Err(Damaged);
            }
            cursor.ranges.insert(start, end);
            previous = end;
        }
        for _ in 0..reader.varint()? {
            let sequence = below.checked_add(reader.varint()?).ok_or(Damaged)?;
            let words: Vec<u64> = (0..reader.varint()?).map(|_| reader.u64_le()).collect::<Result<_, _>>()?;
            // An entry without an open message is acknowledged, not partial.
            if cursor.is_acked(sequence) || words.iter().all(|word| *word == 0) {
                return Err(Damaged);
            }
            cursor.insert_partial(sequence, words);
        }
        Ok(cursor)
    }

    fn range_end(&self, sequence: u64) -> Option<u64> {
        self.ranges.range(..=sequence).next_back().map(|(_, end)| *end).filter(|end| sequence < *end)
    }

    /// The entry's bits, in at most as many words as the acknowledgement has. The messages beyond
    /// them are acknowledged, and a batch may claim any number of messages.
    fn bits(&self, sequence: u64, count: u32, words: usize) -> Vec<u64> {
        let mut bits = self.partial.get(&sequence).cloned().unwrap_or_else(|| {
            let count = count.min(MAX_BATCH) as usize;
            let mut bits = vec![u64::MAX; count.div_ceil(64).min(words)];
            if bits.len() * 64 > count
                && let Some(last) = bits.last_mut()
            {
                *last = (1 << (count % 64)) - 1;
            }
            bits
        });
        bits.truncate(words);
        bits
    }

    /// Restores the invariants after `below` moved or a range grew.
    fn settle(&mut self) {
        while let Some((&start, &end)) = self.ranges.first_key_value() {
            if start > self.below {
                break;
            }
            self.ranges.pop_first();
            self.below = self.below.max(end);
        }
        while self.partial.first_key_value().is_some_and(|(sequence, _)| *sequence < self.below) {
            if let Some((_, bits)) = self.partial.pop_first() {
                self.partial_words -= bits.len();
            }
        }
    }

    /// Notes which messages of a batch are left, if there is room for that.
    fn insert_partial(&mut self, sequence: u64, bits: Vec<u64>) {
        self.forget_partial(sequence);
        if self.partial.len() < PERSISTED && self.partial_words + bits.len() <= PARTIAL_WORDS {
            self.partial_words += bits.len();
            self.partial.insert(sequence, bits);
        }
    }

    fn forget_partial(&mut self, sequence: u64) {
        if let Some(bits) = self.partial.remove(&sequence) {
            self.partial_words -= bits.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn acknowledgements_in_any_order_are_a_set(acks in proptest::collection::vec((any::<bool>(), 0_u64..60), 0..80)) {
            let mut cursor = Cursor::default();
            let mut model = BTreeSet::new();
            for (cumulative, sequence) in acks {
                if cumulative {
                    cursor.ack_below(sequence);
                    model.extend(0..sequence);
                } else {
                    prop_assert_eq!(cursor.ack(sequence), model.insert(sequence));
                }
            }
            for sequence in 0..70 {
                prop_assert_eq!(cursor.is_acked(sequence), model.contains(&sequence));
                let expected = (sequence..).find(|s| !model.contains(s)).unwrap();
                prop_assert_eq!(cursor.next_unacked(sequence), expected);
            }
            prop_assert_eq!(Some(cursor.below()), (0..).find(|s| !model.contains(s)));
            prop_assert_eq!(cursor.below() + cursor.acked_past(), model.len() as u64);
            prop_assert_eq!(Cursor::decode(cursor.below(), &cursor.encode()).unwrap(), cursor);
        }
    }

    #[test]
    fn a_batch_is_acknowledged_when_its_last_bit_is() {
        let mut cursor = Cursor::default();
        assert!(!cursor.is_partial(3));
        assert!(!cursor.ack_partial(3, &[0b11_1110_0000], 10));
        assert!(cursor.is_partial(3) && !cursor.is_partial(2));
        assert_eq!(cursor.remaining(3, 10), (5, vec![0b11_1110_0000]));
        assert!(!cursor.ack_partial(3, &[0b00_0001_1111 | 1 << 9], 10));
        assert_eq!(cursor.remaining(3, 10), (1, vec![1 << 9]));
        assert_eq!(Cursor::decode(0, &cursor.encode()).unwrap(), cursor);
        assert!(cursor.ack_partial(3, &[], 10));
        assert!(cursor.is_acked(3) && !cursor.is_acked(2) && !cursor.is_partial(3));
    }

    #[test]
    fn a_batch_has_as_many_messages_as_it_says() {
        for count in [1, 63, 64, 65, 127, 128, 129] {
            let mut cursor = Cursor::default();
            // A client that sets bits beyond the batch leaves only the messages that exist.
            assert!(!cursor.ack_partial(0, &[-1; 3], count));
            assert_eq!(cursor.remaining(0, count).0, count);
            let bits: u32 = cursor.remaining(0, u32::MAX).0;
            assert_eq!(bits, count, "bits of messages that do not exist would keep the batch for ever");
            let mut words = vec![0_i64; count.div_ceil(64) as usize];
            *words.last_mut().unwrap() = 1 << ((count - 1) % 64);
            assert!(!cursor.ack_partial(0, &words, count), "the last message of {count} is left");
            assert_eq!(cursor.remaining(0, count), (1, words.clone()));
            *words.last_mut().unwrap() = 0;
            assert!(cursor.ack_partial(0, &words, count));
        }
    }

    #[test]
    fn a_batch_stays_partly_acknowledged_until_the_cursor_has_passed_it() {
        let mut cursor = Cursor::default();
        for sequence in 0..3 {
            cursor.ack_partial(sequence, &[0b10], 2);
        }
        assert!(cursor.ack_below(1));
        assert_eq!(cursor.remaining(0, 2), (2, vec![]), "it is forgotten with the entry");
        assert_eq!(cursor.remaining(1, 2), (1, vec![0b10]));
        cursor.ack(1);
        assert_eq!(cursor.remaining(2, 2), (1, vec![0b10]));
        assert_eq!(cursor.partial_words, 1);
        assert!(!cursor.ack_below(2) && cursor.ack_below(3));
        assert_eq!((cursor.below(), cursor.partial_words), (3, 0));
        cursor.reset(1, &[0b10]);
        assert_eq!(cursor.remaining(1, 2), (1, vec![0b10]));
        assert!(!cursor.is_acked(1) && !cursor.is_acked(2));
    }

    #[test]
    fn claimed_batches_cost_no_more_than_the_limit_and_are_acknowledged_all_the_same() {
        let mut cursor = Cursor::default();
        let mut set = vec![0; 4_900_000];
        *set.last_mut().unwrap() = 1;
        let mut first = vec![0; 100_000];
        first[0] = 1;
        for sequence in 0..100 {
            assert!(
                cursor.ack_partial(2 * sequence, &set, i32::MAX as u32),
                "no bit is left of what is believed"
            );
            assert!(!cursor.ack_partial(2 * sequence + 1, &first, i32::MAX as u32));
        }
        assert!(cursor.encode().len() <= PARTIAL_WORDS * 8 + 4096, "{}", cursor.encode().len());
        assert_eq!(cursor.partial_words, PARTIAL_WORDS, "as many as there is room for");
        assert_eq!(Cursor::decode(cursor.below(), &cursor.encode()).unwrap(), cursor);
        for sequence in 0..100 {
            cursor.ack(2 * sequence + 1);
        }
        assert_eq!((cursor.below(), cursor.partial_words), (200, 0));
        assert!(!cursor.ack_partial(300, &[0b10], 2), "there is room again");
        assert_eq!(cursor.remaining(300, 2), (1, vec![0b10]));
        set[0] = 1;
        cursor.reset(5, &set);
        assert_eq!(cursor.partial_words, MAX_BATCH as usize / 64);
    }

    #[test]
    fn as_many_parts_of_batches_are_remembered_as_are_stored() {
        let mut cursor = Cursor::default();
        for sequence in 0..100_000 {
            cursor.ack_partial(sequence, &[1], 2);
        }
        assert_eq!(cursor.partial.len(), PERSISTED);
        assert_eq!(Cursor::decode(0, &cursor.encode()).unwrap(), cursor);
        cursor.ack(3);
        cursor.ack_partial(200_000, &[1], 2);
        assert!(cursor.is_partial(200_000), "there is room again");
    }

    #[test]
    fn properties_are_stored_with_the_acknowledgements() {
        let mut cursor = Cursor::new(5);
        cursor.ack(7);
        cursor.ack_partial(9, &[1], 2);
        for properties in [vec![], vec![("a".into(), "b".into()), ("".into(), "\u{e9}".into())]] {
            let bytes = cursor.encode_with(&properties);
            assert_eq!(Cursor::decode_with(5, &bytes).unwrap(), (cursor.clone(), properties));
        }
        assert!(Cursor::decode_with(5, &[cursor.encode(), vec![1]].concat()).is_err());
    }

    #[test]
    fn damaged_state_is_an_error_not_a_panic() {
        for bytes in
            [&[][..], &[1], &[1, 1], &[0, 1, 1, 200, 1], &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]]
        {
            assert!(Cursor::decode(u64::MAX, bytes).is_err());
            assert!(Cursor::decode(0, bytes).is_err());
        }
    }

    #[test]
    fn state_that_no_cursor_has_is_an_error() {
        let word = |word: u64| word.to_le_bytes();
        for (bytes, why) in [
            (vec![1, 0, 1, 0], "a range that begins at the lowest entry"),
            (vec![1, 1, 0, 0], "an empty range"),
            (vec![2, 1, 1, 0, 1, 0], "ranges that touch"),
            (
                [&[1, 1, 1, 1, 1, 1][..], &word(1)].concat(),
                "an acknowledged batch of which something is left",
            ),
            ([&[0, 1, 0, 1][..], &word(0)].concat(), "a batch of which nothing is left"),
        ] {
            assert_eq!(Cursor::decode(5, &bytes), Err(Damaged), "{why}");
        }
    }

    #[test]
    fn a_position_behind_all_messages_of_an_entry_is_the_next_entry() {
        let mut cursor = Cursor::new(9);
        cursor.reset(5, &[0]);
        assert_eq!((cursor.below(), cursor.remaining(6, 3)), (6, (3, vec![])));
    }
}
