//! The log of one topic or partition: entries in a dense sequence, the newest of them cached in
//! memory.
//!
//! An entry gets its number when it is appended, and can be read once it is committed. Without a
//! [`Source`] the log keeps every retained entry in memory. With one it caches the last
//! [`CACHE_BYTES`] and reads the rest.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use forebay_base::error::{Error, ErrorKind, Result};

mod blocks;
pub mod cursor;

use blocks::Blocks;

/// Bytes of the end of a stored log that stay in memory.
pub const CACHE_BYTES: usize = 4 << 20;

/// Assigns ids to topics, shared by all protocols. No id is used twice.
#[derive(Clone, Debug)]
pub struct TopicIds(Arc<AtomicU64>);

impl TopicIds {
    /// Topics that a store can have in its life: an entry's key has 23 bits for the topic.
    const STORED: u64 = 1 << 23;

    /// Starts with `first`.
    pub fn new(first: u64) -> Self {
        Self(Arc::new(AtomicU64::new(first.max(1))))
    }

    /// Whether the store has keys for `count` more topics.
    pub fn has_room(&self, count: u64) -> bool {
        self.0.load(Ordering::Relaxed) + count <= Self::STORED
    }

    /// The error when there is none left.
    pub fn exhausted() -> Error {
        let text = format!(
            "the store has no number for another topic: {} were created in its life: begin a new data folder",
            Self::STORED
        );
        Error::new(ErrorKind::TooManyRequests, text)
    }

    /// The next id.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Flag of a Pulsar entry in the batch format, even with a single message.
pub const BATCH: u32 = 1;
/// Flag of a Pulsar entry that is one chunk of several of its message.
pub const CHUNK: u32 = 2;

/// A message, or a batch of messages, stored as its producer sent it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Number in the topic.
    pub sequence: u64,
    /// Number of the last message, counting messages instead of entries.
    pub last_index: u64,
    /// When the broker received the entry, in milliseconds since 1970.
    pub stored_ms: u64,
    /// How long brokers had run on the store then, in milliseconds: what its age is counted from.
    pub run_ms: u64,
    /// When the producer published the entry, by the producer's clock.
    pub publish_ms: u64,
    /// Earliest delivery time; 0 delivers immediately.
    pub deliver_ms: u64,
    /// Number of messages, at least 1.
    pub count: u32,
    /// [`BATCH`] and [`CHUNK`], or TubeMQ's flag as received.
    pub flags: u32,
    /// Hash slot of the key, for Key_Shared subscriptions.
    pub hash: u16,
    /// Checksum as received.
    pub checksum: Option<u32>,
    /// Metadata and payload as received.
    pub body: Bytes,
}

/// The error of an entry in the store that cannot be read.
pub fn unreadable(sequence: u64, why: impl std::fmt::Display) -> Error {
    let text = format!(
        "entry {sequence} cannot be read from the store: {why}; `forebay check` lists all such entries"
    );
    Error::new(ErrorKind::Persistence, text)
}

/// A reader of entries that are not cached.
pub trait Source {
    /// Reads committed entries of `topic` in order, from number `from`: at most `limit`, stopping
    /// once they have `bytes`, and before an entry that cannot be read. If that is the first one,
    /// its error is returned.
    fn read(&mut self, topic: u64, from: u64, limit: usize, bytes: usize) -> Result<Vec<Entry>>;
}

/// Facts about the last entry, cached or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    /// Number of the entry.
    pub sequence: u64,
    /// Number of messages.
    pub count: u32,
    /// Whether the entry has the batch format.
    pub batch: bool,
}

impl From<&Entry> for Last {
    fn from(entry: &Entry) -> Self {
        Self { sequence: entry.sequence, count: entry.count, batch: entry.flags & BATCH != 0 }
    }
}

/// A log, as the [module](self) describes.
#[derive(Debug, Default)]
pub struct Log {
    topic: u64,
    first: u64,
    committed: u64,
    next: u64,
    next_index: u64,
    last: Option<Last>,
    /// The newest entries; the cache ends at `next`.
    cache: Blocks<Entry>,
    cache_bytes: usize,
    /// Whether committed entries may leave the cache.
    stored: bool,
}

impl Log {
    /// Creates an empty log, or continues a stored one.
    pub fn new(topic: u64, stored: bool, first: u64, next: u64, next_index: u64, last: Option<Last>) -> Self {
        Self { topic, first, committed: next, next, next_index, last, stored, ..Self::default() }
    }

    /// Number of the oldest retained entry.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// One past the newest committed entry.
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// Number of the next entry.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Number of the next message.
    pub fn next_index(&self) -> u64 {
        self.next_index
    }

    /// The last committed entry, if it is retained.
    pub fn last(&self) -> Option<Last> {
        self.last.filter(|last| last.sequence >= self.first)
    }

    /// Bytes held in memory.
    pub fn cache_bytes(&self) -> usize {
        self.cache_bytes
    }

    /// Appends an entry and numbers it.
    pub fn append(&mut self, mut entry: Entry) -> &Entry {
        entry.sequence = self.next;
        entry.last_index = self.next_index + u64::from(entry.count.max(1)) - 1;
        self.next += 1;
        self.next_index = entry.last_index + 1;
        self.cache_bytes += weight(&entry);
        self.cache.push(entry)
    }

    /// Commits the entries below `end`: they can be read now.
    pub fn commit(&mut self, end: u64) {
        debug_assert!(self.committed <= end && end <= self.next);
        self.committed = end;
        if let Some(entry) = end.checked_sub(1).and_then(|sequence| self.cached(sequence)) {
            self.last = Some(entry.into());
        }
        self.shrink(CACHE_BYTES);
    }

    /// Removes the entries below `first`.
    pub fn trim(&mut self, first: u64) {
        self.first = first.clamp(self.first, self.committed);
        while self.cache.front().is_some_and(|entry| entry.sequence < self.first) {
            self.forget_front();
        }
    }

    /// The entry, if it is cached.
    pub fn cached(&self, sequence: u64) -> Option<&Entry> {
        let start = self.cache.front()?.sequence;
        self.cache.get(usize::try_from(sequence.checked_sub(start)?).ok()?)
    }

    /// The entry, from the cache or from the source; `None` if there is no such entry. `ahead` is
    /// the caller's read-ahead buffer. An entry that should be in the store and cannot be read is
    /// an error that names its number.
    pub fn get(
        &self,
        sequence: u64,
        ahead: &mut VecDeque<Entry>,
        source: &mut Option<Box<dyn Source>>,
    ) -> Result<Option<Entry>> {
        if let Some(entry) = self.cached(sequence) {
            return Ok(Some(entry.clone()));
        }
        while ahead.front().is_some_and(|entry| entry.sequence < sequence) {
            ahead.pop_front();
        }
        if ahead.front().is_none_or(|entry| entry.sequence != sequence) {
            let Some(source) = source.as_mut() else { return Ok(None) };
            *ahead = source.read(self.topic, sequence, 256, 256 << 10)?.into();
        }
        self.found(sequence, ahead.front().filter(|entry| entry.sequence == sequence).cloned())
    }

    /// One entry, without reading ahead.
    pub fn peek(&self, sequence: u64, source: &mut Option<Box<dyn Source>>) -> Result<Option<Entry>> {
        if let Some(entry) = self.cached(sequence) {
            return Ok(Some(entry.clone()));
        }
        let Some(source) = source.as_mut() else { return Ok(None) };
        let entry = source.read(self.topic, sequence, 1, 1)?.pop();
        self.found(sequence, entry.filter(|entry| entry.sequence == sequence))
    }

    /// Checks what was read: there is no gap between the first entry and the last.
    fn found(&self, sequence: u64, entry: Option<Entry>) -> Result<Option<Entry>> {
        if entry.is_none() && (self.first..self.committed).contains(&sequence) {
            return Err(unreadable(sequence, "it is missing"));
        }
        Ok(entry)
    }

    /// The first entry that satisfies `reached`, which must then hold for all later entries. Like
    /// the real broker, this assumes that the clocks of the producers agree.
    pub fn search(
        &self,
        source: &mut Option<Box<dyn Source>>,
        reached: impl Fn(&Entry) -> bool,
    ) -> Result<u64> {
        let (mut low, mut high) = (self.first, self.committed);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.peek(middle, source)? {
                Some(entry) if reached(&entry) => high = middle,
                _ => low = middle + 1,
            }
        }
        Ok(low)
    }

    /// Removes committed entries from the cache of a stored log until `limit` bytes are left.
    pub fn shrink(&mut self, limit: usize) {
        while self.stored
            && self.cache_bytes > limit
            && self.cache.front().is_some_and(|entry| entry.sequence < self.committed)
        {
            self.forget_front();
        }
    }

    /// The oldest cached entry.
    pub fn oldest_cached(&self) -> Option<&Entry> {
        self.cache.front()
    }

    fn forget_front(&mut self) {
        if let Some(entry) = self.cache.pop() {
            self.cache_bytes -= weight(&entry);
        }
    }
}

/// Approximate memory use of an entry.
pub fn weight(entry: &Entry) -> usize {
    entry.body.len() + size_of::<Entry>()
}

/// Bytes that each log may have, so that together they have at most `total`; what one leaves unused
/// goes to the others.
pub fn share(total: usize, used: impl Iterator<Item = usize> + Clone) -> usize {
    if used.clone().sum::<usize>() <= total {
        return total;
    }
    let mut used: Vec<usize> = used.filter(|bytes| *bytes > 0).collect();
    used.sort_unstable();
    let (mut left, count) = (total, used.len());
    for (smaller, bytes) in used.into_iter().enumerate() {
        let part = left / (count - smaller);
        if bytes > part {
            return part;
        }
        left -= bytes;
    }
    total
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn what_a_log_does_not_use_of_its_part_is_for_the_others() {
        let of = |used: &[usize]| share(100, used.iter().copied());
        assert_eq!(of(&[]), 100);
        assert_eq!(of(&[60, 40]), 100, "all fit");
        assert_eq!(of(&[500]), 100);
        assert_eq!(of(&[500, 500, 500, 500]), 25);
        assert_eq!(of(&[500, 0, 0, 0]), 100, "empty ones take nothing");
        assert_eq!(of(&[500, 10, 500]), 45);
        for used in [&[1, 30, 200][..], &[7; 50], &[99, 100, 101]] {
            let each = of(used);
            assert!(used.iter().map(|bytes| each.min(*bytes)).sum::<usize>() <= 100, "{used:?}");
        }
    }

    pub(crate) fn entry(count: u32, publish_ms: u64) -> Entry {
        Entry {
            sequence: 0,
            last_index: 0,
            stored_ms: publish_ms,
            run_ms: publish_ms,
            publish_ms,
            deliver_ms: 0,
            count,
            flags: if count > 1 { BATCH } else { 0 },
            hash: 0,
            checksum: None,
            body: Bytes::from_static(b"body"),
        }
    }

    #[test]
    fn an_entry_can_be_seen_as_last_only_after_its_commit() {
        let mut log = Log::new(1, false, 0, 0, 0, None);
        assert_eq!(log.append(entry(10, 5)).last_index, 9);
        assert_eq!((log.committed(), log.last()), (0, None));
        log.commit(1);
        assert_eq!(log.last(), Some(Last { sequence: 0, count: 10, batch: true }));
        log.append(entry(1, 6));
        log.commit(2);
        log.trim(1);
        assert_eq!(log.first(), 1);
        assert!(
            log.cached(0).is_none() && log.cached(1).is_some(),
            "without a store the cache is all there is"
        );
        log.trim(9);
        assert_eq!((log.first(), log.last(), log.cache_bytes()), (2, None, 0));
    }

    #[test]
    fn entries_are_numbered_and_so_are_the_messages_in_them() {
        let mut log = Log::new(1, false, 3, 5, 20, Some(Last { sequence: 4, count: 2, batch: true }));
        assert_eq!((log.first(), log.next(), log.next_index()), (3, 5, 20));
        for (count, sequence, last_index) in [(10, 5, 29), (1, 6, 30), (0, 7, 31), (3, 8, 34)] {
            let entry = log.append(entry(count, 1));
            assert_eq!((entry.sequence, entry.last_index), (sequence, last_index));
            assert_eq!((log.next(), log.next_index()), (sequence + 1, last_index + 1));
        }
        log.commit(9);
        assert_eq!(log.last(), Some(Last { sequence: 8, count: 3, batch: true }));
        let chunk = Entry { flags: CHUNK, ..entry(1, 1) };
        log.append(chunk);
        log.commit(10);
        assert_eq!(log.last(), Some(Last { sequence: 9, count: 1, batch: false }), "a chunk is no batch");
    }

    #[test]
    fn an_entry_is_no_longer_last_once_it_is_trimmed() {
        let last = Some(Last { sequence: 4, count: 1, batch: false });
        let mut log = Log::new(1, true, 0, 5, 5, last);
        log.trim(4);
        assert_eq!((log.first(), log.last()), (4, last));
        log.trim(2);
        assert_eq!(log.first(), 4, "what is trimmed does not come back");
        log.trim(5);
        assert_eq!((log.first(), log.last()), (5, None));
    }

    #[test]
    fn a_stored_log_keeps_what_is_not_written_and_the_newest_of_the_rest() {
        let mut log = Log::new(1, true, 0, 0, 0, None);
        for _ in 0..4 {
            log.append(entry(1, 1));
        }
        let each = weight(&entry(1, 1));
        assert_eq!((each, log.cache_bytes()), (4 + size_of::<Entry>(), 4 * each));
        log.shrink(0);
        assert_eq!(log.cache_bytes(), 4 * each, "nothing is written yet");
        log.commit(3);
        assert_eq!(log.cache_bytes(), 4 * each, "it is less than what may stay");
        log.shrink(3 * each);
        assert_eq!(log.oldest_cached().map(|entry| entry.sequence), Some(1));
        log.shrink(0);
        assert_eq!(log.oldest_cached().map(|entry| entry.sequence), Some(3), "the last is not written");
        assert_eq!(log.cache_bytes(), each);
        let mut log = Log::new(1, false, 0, 0, 0, None);
        log.append(entry(1, 1));
        log.commit(1);
        log.shrink(0);
        assert!(log.cached(0).is_some(), "without a store the cache is all there is");
    }

    #[test]
    fn a_store_has_numbers_for_so_many_topics_and_gives_none_twice() {
        let ids = TopicIds::new(0);
        assert_eq!((ids.next(), ids.clone().next(), ids.next()), (1, 2, 3));
        let ids = TopicIds::new(TopicIds::STORED - 2);
        assert!(ids.has_room(1) && ids.has_room(2) && !ids.has_room(3));
        ids.next();
        assert!(ids.has_room(1) && !ids.has_room(2));
    }

    #[test]
    fn a_time_finds_the_first_entry_not_before_it() {
        let mut log = Log::new(1, false, 0, 0, 0, None);
        for time in [10, 20, 30] {
            log.append(entry(1, time));
        }
        log.commit(3);
        let at = |time| log.search(&mut None, |entry| entry.publish_ms >= time).unwrap();
        assert_eq!([at(0), at(10), at(11), at(30), at(31)], [0, 0, 1, 2, 3]);
    }

    struct Fixed;

    impl Source for Fixed {
        fn read(&mut self, _: u64, from: u64, limit: usize, _: usize) -> Result<Vec<Entry>> {
            // Entry 60 is lost, and the disk does not give 80.
            let found = (from..from + limit.min(3) as u64).take_while(|n| *n != 80).filter(|n| *n != 60);
            let entries: Vec<_> = found.map(|sequence| Entry { sequence, ..entry(1, sequence) }).collect();
            if from == 80 { Err(unreadable(from, "the disk failed")) } else { Ok(entries) }
        }
    }

    #[test]
    fn what_memory_forgot_comes_from_the_source() {
        let mut log = Log::new(1, true, 0, 100, 100, None);
        log.append(entry(1, 1));
        log.commit(101);
        let mut source: Option<Box<dyn Source>> = Some(Box::new(Fixed));
        let mut ahead = VecDeque::new();
        let mut get = |sequence, source: &mut Option<Box<dyn Source>>| {
            let found = log.get(sequence, &mut ahead, source);
            (found.map(|entry| entry.map(|entry| entry.sequence)), ahead.len())
        };
        assert_eq!(get(7, &mut source), (Ok(Some(7)), 3));
        assert_eq!(get(9, &mut None).0, Ok(Some(9)));
        assert_eq!(get(100, &mut None).0, Ok(Some(100)));
        assert_eq!(get(50, &mut None).0, Ok(None));
        assert_eq!(get(101, &mut None).0, Ok(None));
        let peek = |sequence, source: &mut _| log.peek(sequence, source).unwrap().map(|entry| entry.sequence);
        assert_eq!((peek(7, &mut source), peek(100, &mut None)), (Some(7), Some(100)));
        assert_eq!(peek(7, &mut None), None);
    }

    /// Counts how often it is read from. Entry 5 is lost, and it goes on with the next, as the
    /// store does.
    struct Counted(Arc<AtomicU64>);

    impl Source for Counted {
        fn read(&mut self, topic: u64, from: u64, limit: usize, bytes: usize) -> Result<Vec<Entry>> {
            assert_eq!(topic, 1);
            self.0.fetch_add(1, Ordering::Relaxed);
            let numbers = (from..100).filter(|n| *n != 5).take(limit.min(bytes.div_ceil(4)));
            Ok(numbers.map(|sequence| Entry { sequence, ..entry(1, sequence) }).collect())
        }
    }

    #[test]
    fn a_reader_in_order_reads_ahead_and_does_not_pass_over_a_gap() {
        let log = Log::new(1, true, 0, 100, 100, None);
        let reads = Arc::new(AtomicU64::new(0));
        let mut source: Option<Box<dyn Source>> = Some(Box::new(Counted(reads.clone())));
        let mut ahead = VecDeque::new();
        for sequence in 10..100 {
            let entry = log.get(sequence, &mut ahead, &mut source).unwrap().unwrap();
            assert_eq!(entry.sequence, sequence);
        }
        assert_eq!(reads.load(Ordering::Relaxed), 1);
        assert_eq!(log.get(20, &mut ahead, &mut source).unwrap().unwrap().sequence, 20, "backwards");
        assert!(log.get(5, &mut ahead, &mut source).unwrap_err().message().contains("entry 5"));
        assert!(log.peek(5, &mut source).unwrap_err().message().contains("entry 5"));
    }

    #[test]
    fn an_entry_that_is_lost_or_unreadable_is_an_error_with_its_number() {
        let mut log = Log::new(1, true, 0, 100, 100, None);
        log.commit(100);
        let mut source: Option<Box<dyn Source>> = Some(Box::new(Fixed));
        for (bad, why) in [(60, "it is missing"), (80, "the disk failed")] {
            let mut ahead = VecDeque::new();
            for sequence in bad - 5..bad {
                assert_eq!(log.get(sequence, &mut ahead, &mut source).unwrap().unwrap().sequence, sequence);
            }
            let errors =
                [log.get(bad, &mut ahead, &mut source).unwrap_err(), log.peek(bad, &mut source).unwrap_err()];
            for error in errors {
                assert!(error.message().starts_with(&format!("entry {bad} cannot be read")), "{error}");
                assert!(error.message().contains(why), "{error}");
            }
            assert!(log.search(&mut source, |entry| entry.sequence >= bad).is_err());
            assert_eq!(log.get(bad + 1, &mut ahead, &mut source).unwrap().unwrap().sequence, bad + 1);
        }
    }
}
