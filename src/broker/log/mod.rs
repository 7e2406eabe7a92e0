//! The log of one topic: entries in a dense sequence, the newest of them in memory.
//!
//! An entry gets its number when it is taken in and can be read when it is committed, never before. Without a
//! [`Source`] the log keeps all it retains in memory; with one it keeps a tail of [`CACHE_BYTES`] and asks for
//! the rest.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

pub mod cursor;

/// How much of the end of a stored log is kept in memory.
pub const CACHE_BYTES: usize = 4 << 20;

/// Gives topics their numbers, which those of all protocols share: never the same twice.
#[derive(Clone, Debug)]
pub struct TopicIds(Arc<AtomicU64>);

impl TopicIds {
    /// Begins with `first`.
    pub fn new(first: u64) -> Self {
        Self(Arc::new(AtomicU64::new(first.max(1))))
    }

    /// The next one.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Flag of a Pulsar entry that has the batch format, be it of one message.
pub const BATCH: u32 = 1;

/// What a producer handed over and what is given out again unchanged.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its number in the topic.
    pub sequence: u64,
    /// Number of its last message, counting messages instead of entries.
    pub last_index: u64,
    /// When the broker took it, in milliseconds since 1970.
    pub stored_ms: u64,
    /// When the producer made it, by its own clock.
    pub publish_ms: u64,
    /// Not before this time, if not 0.
    pub deliver_ms: u64,
    /// Messages in it, at least 1.
    pub count: u32,
    /// [`BATCH`], or TubeMQ's flag as it came.
    pub flags: u32,
    /// Slot of its key on the ring of Key_Shared.
    pub hash: u16,
    /// Checksum as it came.
    pub checksum: Option<u32>,
    /// Metadata and payload as they came.
    pub body: Bytes,
}

/// Where entries are that memory does not hold.
pub trait Source {
    /// Committed entries of `topic` from number `from`, in order: at most `limit`, and no more once they
    /// have `bytes`.
    fn read(&mut self, topic: u64, from: u64, limit: usize, bytes: usize) -> Vec<Entry>;
}

/// Facts of the last entry, wherever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    /// Its number.
    pub sequence: u64,
    /// Messages in it.
    pub count: u32,
    /// Whether it has the batch format.
    pub batch: bool,
}

impl From<&Entry> for Last {
    fn from(entry: &Entry) -> Self {
        Self { sequence: entry.sequence, count: entry.count, batch: entry.flags & BATCH != 0 }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Log {
    topic: u64,
    first: u64,
    committed: u64,
    next: u64,
    next_index: u64,
    last: Option<Last>,
    /// Ends at `next`.
    cache: VecDeque<Entry>,
    cache_bytes: usize,
    /// Whether `cache` may forget what is committed.
    stored: bool,
}

impl Log {
    /// An empty log, or the end of a stored one.
    pub fn new(topic: u64, stored: bool, first: u64, next: u64, next_index: u64, last: Option<Last>) -> Self {
        Self { topic, first, committed: next, next, next_index, last, stored, ..Self::default() }
    }

    /// Oldest number that is retained.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// One past the newest number that may be given out.
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// The number of the next entry.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The number of the next message.
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

    /// Takes an entry in and numbers it.
    pub fn append(&mut self, mut entry: Entry) -> &Entry {
        entry.sequence = self.next;
        entry.last_index = self.next_index + u64::from(entry.count.max(1)) - 1;
        self.next += 1;
        self.next_index = entry.last_index + 1;
        self.cache_bytes += weight(&entry);
        self.cache.push_back(entry);
        self.cache.back().expect("just pushed")
    }

    /// Everything below `end` may be given out.
    pub fn commit(&mut self, end: u64) {
        debug_assert!(self.committed <= end && end <= self.next);
        self.committed = end;
        if let Some(entry) = end.checked_sub(1).and_then(|sequence| self.cached(sequence)) {
            self.last = Some(entry.into());
        }
        self.shrink(CACHE_BYTES);
    }

    /// Drops everything below `first`.
    pub fn trim(&mut self, first: u64) {
        self.first = first.clamp(self.first, self.committed);
        while self.cache.front().is_some_and(|entry| entry.sequence < self.first) {
            self.forget_front();
        }
    }

    /// The entry, if memory has it.
    pub fn cached(&self, sequence: u64) -> Option<&Entry> {
        let start = self.cache.front()?.sequence;
        self.cache.get(usize::try_from(sequence.checked_sub(start)?).ok()?)
    }

    /// The entry, from memory or from the source. `ahead` is the reader's own buffer.
    pub fn get(
        &self,
        sequence: u64,
        ahead: &mut VecDeque<Entry>,
        source: &mut Option<Box<dyn Source>>,
    ) -> Option<Entry> {
        if let Some(entry) = self.cached(sequence) {
            return Some(entry.clone());
        }
        while ahead.front().is_some_and(|entry| entry.sequence < sequence) {
            ahead.pop_front();
        }
        if ahead.front().is_none_or(|entry| entry.sequence != sequence) {
            *ahead = source.as_mut()?.read(self.topic, sequence, 256, 256 << 10).into();
        }
        ahead.front().filter(|entry| entry.sequence == sequence).cloned()
    }

    /// One entry, for a look that is not part of reading on.
    pub fn peek(&self, sequence: u64, source: &mut Option<Box<dyn Source>>) -> Option<Entry> {
        match self.cached(sequence) {
            Some(entry) => Some(entry.clone()),
            None => {
                source.as_mut()?.read(self.topic, sequence, 1, 1).pop().filter(|e| e.sequence == sequence)
            }
        }
    }

    /// First number whose entry satisfies `reached`, which must hold for all after it. The clocks of producers
    /// are taken as if they agreed, as the real broker does.
    pub fn search(&self, source: &mut Option<Box<dyn Source>>, reached: impl Fn(&Entry) -> bool) -> u64 {
        let (mut low, mut high) = (self.first, self.committed);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.peek(middle, source) {
                Some(entry) if reached(&entry) => high = middle,
                _ => low = middle + 1,
            }
        }
        low
    }

    /// Forgets committed entries that a source has, until `limit` bytes are left.
    pub fn shrink(&mut self, limit: usize) {
        while self.stored
            && self.cache_bytes > limit
            && self.cache.front().is_some_and(|entry| entry.sequence < self.committed)
        {
            self.forget_front();
        }
    }

    /// The oldest entry in memory.
    pub fn oldest_cached(&self) -> Option<&Entry> {
        self.cache.front()
    }

    fn forget_front(&mut self) {
        if let Some(entry) = self.cache.pop_front() {
            self.cache_bytes -= weight(&entry);
        }
    }
}

/// What an entry costs in memory, about.
pub fn weight(entry: &Entry) -> usize {
    entry.body.len() + size_of::<Entry>()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn entry(count: u32, publish_ms: u64) -> Entry {
        Entry {
            sequence: 0,
            last_index: 0,
            stored_ms: publish_ms,
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
        log.trim(9);
        assert_eq!((log.first(), log.last(), log.cache_bytes()), (2, None, 0));
    }

    #[test]
    fn a_time_finds_the_first_entry_not_before_it() {
        let mut log = Log::new(1, false, 0, 0, 0, None);
        for time in [10, 20, 30] {
            log.append(entry(1, time));
        }
        log.commit(3);
        let at = |time| log.search(&mut None, |entry| entry.publish_ms >= time);
        assert_eq!([at(0), at(10), at(11), at(30), at(31)], [0, 0, 1, 2, 3]);
    }

    struct Fixed;

    impl Source for Fixed {
        fn read(&mut self, _: u64, from: u64, limit: usize, _: usize) -> Vec<Entry> {
            (from..from + limit.min(3) as u64)
                .map(|sequence| Entry { sequence, ..entry(1, sequence) })
                .collect()
        }
    }

    #[test]
    fn what_memory_forgot_comes_from_the_source() {
        let mut log = Log::new(1, true, 0, 100, 100, None);
        log.append(entry(1, 1));
        log.commit(101);
        let mut source: Option<Box<dyn Source>> = Some(Box::new(Fixed));
        let mut ahead = VecDeque::new();
        assert_eq!(log.get(7, &mut ahead, &mut source).unwrap().sequence, 7);
        assert_eq!(ahead.len(), 3);
        assert_eq!(log.get(9, &mut ahead, &mut None).unwrap().sequence, 9);
        assert_eq!(log.get(100, &mut ahead, &mut None).unwrap().sequence, 100);
        assert_eq!(log.get(50, &mut ahead, &mut None), None);
    }
}
