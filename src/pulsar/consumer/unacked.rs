//! Messages that the application has and has not acknowledged, for the acknowledgement timeout.
//!
//! An entry is redelivered as a whole, so its time runs from the last of its messages that was
//! handed out. Entries are in buckets by the time at which they are due, a sixteenth of the timeout
//! wide: there are at most sixteen wake-ups in a timeout, whatever the number of messages. What is
//! acknowledged leaves its bucket at once. Entries are in a tree in the order of the topic, because
//! a cumulative acknowledgement ends the times of a range.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::acks::{Entry, order};
use super::backoff::Backoff;
use crate::MessageId;
use forebay_base::random::HashSet;

/// Buckets in the shortest timeout.
const BUCKETS: u32 = 16;

/// Messages handed out and not acknowledged.
#[derive(Debug)]
pub(super) struct Unacked {
    timeout: Backoff,
    width: Duration,
    /// Start of bucket 0.
    origin: Option<Instant>,
    buckets: BTreeMap<u32, HashSet<Entry>>,
    /// By the order of the topic.
    entries: BTreeMap<(i64, i64), Open>,
}

/// Messages of an entry that are not acknowledged.
#[derive(Debug, Default)]
struct Open {
    bucket: u32,
    /// Those with index below 64, or the only one.
    first: u64,
    more: Vec<u64>,
}

impl Open {
    fn word(&mut self, index: u32) -> &mut u64 {
        match (index / 64) as usize {
            0 => &mut self.first,
            at => {
                if self.more.len() < at {
                    self.more.resize(at, 0);
                }
                &mut self.more[at - 1]
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.first == 0 && self.more.iter().all(|word| *word == 0)
    }

    fn count(&self) -> u64 {
        let more: u32 = self.more.iter().map(|word| word.count_ones()).sum();
        u64::from(self.first.count_ones() + more)
    }
}

/// The place of a message in its entry.
fn index_of(id: &MessageId) -> u32 {
    u32::try_from(id.batch_index).unwrap_or(0)
}

impl Unacked {
    pub(super) fn new(timeout: Backoff) -> Self {
        let width = (timeout.min / BUCKETS).max(Duration::from_millis(1));
        Self { timeout, width, origin: None, buckets: BTreeMap::new(), entries: BTreeMap::new() }
    }

    /// The application gets a message.
    pub(super) fn handed_out(&mut self, now: Instant, id: &MessageId, redeliveries: u32) {
        let origin = *self.origin.get_or_insert(now);
        let due = now.saturating_duration_since(origin) + self.timeout.delay(redeliveries);
        // A message is due at the end of its bucket, never before its time.
        let bucket = u32::try_from(due.as_nanos().div_ceil(self.width.as_nanos())).unwrap_or(u32::MAX);
        let entry = id.entry_id();
        let open = self.entries.entry(order(entry)).or_default();
        *open.word(index_of(id)) |= 1 << (index_of(id) % 64);
        let before = std::mem::replace(&mut open.bucket, bucket);
        if before != bucket {
            leave(&mut self.buckets, before, entry);
            self.buckets.entry(bucket).or_default().insert(entry);
        }
    }

    /// A message was acknowledged, or refused.
    pub(super) fn settle(&mut self, id: &MessageId) {
        let entry = id.entry_id();
        let Some(open) = self.entries.get_mut(&order(entry)) else { return };
        *open.word(index_of(id)) &= !(1 << (index_of(id) % 64));
        if id.batch_index < 0 || open.is_empty() {
            self.forget(entry);
        }
    }

    /// A message and all before it were acknowledged.
    pub(super) fn settle_through(&mut self, id: &MessageId) {
        let last = order(id.entry_id());
        let rest = self.entries.split_off(&last);
        for (key, open) in std::mem::replace(&mut self.entries, rest) {
            leave(&mut self.buckets, open.bucket, (key.0 as u64, key.1 as u64));
        }
        let Some(open) = self.entries.get_mut(&last) else { return };
        for index in 0..=index_of(id) {
            *open.word(index) &= !(1 << (index % 64));
        }
        if id.batch_index < 0 || id.batch_index + 1 >= id.batch_size || open.is_empty() {
            self.forget(id.entry_id());
        }
    }

    /// An entry is requested again.
    pub(super) fn forget(&mut self, entry: Entry) {
        if let Some(open) = self.entries.remove(&order(entry)) {
            leave(&mut self.buckets, open.bucket, entry);
        }
    }

    /// Everything is delivered again.
    pub(super) fn clear(&mut self) {
        self.buckets.clear();
        self.entries.clear();
    }

    /// Takes the entries whose time has run out, in the order of the topic, and the number of their
    /// messages.
    pub(super) fn expire(&mut self, now: Instant) -> (Vec<Entry>, u64) {
        let (mut expired, mut messages) = (Vec::new(), 0);
        while self.next_due().is_some_and(|due| due <= now) {
            let Some((_, entries)) = self.buckets.pop_first() else { break };
            for entry in entries {
                if let Some(open) = self.entries.remove(&order(entry)) {
                    messages += open.count();
                    expired.push(entry);
                }
            }
        }
        expired.sort_unstable_by_key(|entry| order(*entry));
        (expired, messages)
    }

    /// Time at which [`Self::expire`] is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let (bucket, _) = self.buckets.first_key_value()?;
        Some(self.origin? + self.width * *bucket)
    }
}

/// Takes an entry out of its bucket.
fn leave(buckets: &mut BTreeMap<u32, HashSet<Entry>>, bucket: u32, entry: Entry) {
    if let Some(entries) = buckets.get_mut(&bucket) {
        entries.remove(&entry);
        if entries.is_empty() {
            buckets.remove(&bucket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn id(entry: u64) -> MessageId {
        MessageId::new(1, entry)
    }

    #[test]
    fn what_is_not_acknowledged_expires_once_and_not_before_its_time() {
        let now = Instant::now();
        let mut unacked = Unacked::new(Backoff::fixed(SECOND));
        (0..100).for_each(|entry| unacked.handed_out(now, &id(entry), 0));
        (0..100).filter(|entry| *entry != 7).for_each(|entry| unacked.settle(&id(entry)));
        let held: usize = unacked.buckets.values().map(HashSet::len).sum();
        assert_eq!((unacked.entries.len(), held), (1, 1), "what is acknowledged takes no room");
        assert_eq!(unacked.expire(now + SECOND - Duration::from_nanos(1)), (vec![], 0));
        let due = unacked.next_due().unwrap();
        assert!(due >= now + SECOND && due <= now + SECOND * 17 / 16, "{:?}", due - now);
        assert_eq!(unacked.expire(due), (vec![(1, 7)], 1));
        assert_eq!((unacked.expire(due + SECOND * 9), unacked.next_due()), ((vec![], 0), None));
    }

    #[test]
    fn the_time_of_a_batch_runs_from_its_last_message_and_ends_with_its_last_acknowledgement() {
        let now = Instant::now();
        let mut unacked = Unacked::new(Backoff::fixed(SECOND));
        let message = |index| id(3).in_batch(index, 200);
        unacked.handed_out(now, &message(0), 0);
        unacked.handed_out(now + SECOND / 2, &message(150), 0);
        assert_eq!(unacked.expire(now + SECOND * 11 / 10), (vec![], 0));
        unacked.settle(&message(0));
        assert_eq!(unacked.expire(now + SECOND * 2), (vec![(1, 3)], 1));
        unacked.handed_out(now, &message(150), 0);
        unacked.handed_out(now, &message(2), 0);
        unacked.settle(&message(150));
        unacked.settle(&message(2));
        assert!(unacked.entries.is_empty());
        assert_eq!(unacked.expire(now + SECOND * 9), (vec![], 0));
    }

    #[test]
    fn a_cumulative_acknowledgement_covers_what_is_before_it() {
        let now = Instant::now();
        let mut unacked = Unacked::new(Backoff::fixed(SECOND));
        (0..5).for_each(|entry| unacked.handed_out(now, &id(entry), 0));
        (0..4).for_each(|index| unacked.handed_out(now, &id(5).in_batch(index, 4), 0));
        unacked.settle_through(&id(5).in_batch(1, 4));
        assert_eq!(unacked.entries.len(), 1, "what is acknowledged takes no room");
        unacked.settle_through(&id(2));
        assert_eq!(unacked.expire(now + SECOND * 2), (vec![(1, 5)], 2));
        assert!(unacked.buckets.is_empty());
    }

    #[test]
    fn the_time_grows_with_the_redeliveries() {
        let now = Instant::now();
        let mut unacked = Unacked::new(Backoff { min: SECOND, max: SECOND * 60, multiplier: 3.0 });
        unacked.handed_out(now, &id(0), 0);
        unacked.handed_out(now, &id(1), 1);
        unacked.handed_out(now, &id(2), 9);
        assert_eq!(unacked.expire(now + SECOND * 2), (vec![(1, 0)], 1));
        assert_eq!(unacked.expire(now + SECOND * 4), (vec![(1, 1)], 1));
        assert_eq!(unacked.expire(now + SECOND * 59), (vec![], 0));
        assert_eq!(unacked.expire(now + SECOND * 61), (vec![(1, 2)], 1));
    }

    #[test]
    fn buckets_are_few_however_many_messages_there_are() {
        let now = Instant::now();
        let mut unacked = Unacked::new(Backoff::fixed(SECOND));
        (0..10_000).for_each(|entry| unacked.handed_out(now + SECOND * entry as u32 / 10_000, &id(entry), 0));
        assert!(unacked.buckets.len() <= 17, "{}", unacked.buckets.len());
        assert_eq!(unacked.expire(now + SECOND * 3).0.len(), 10_000);
    }
}
