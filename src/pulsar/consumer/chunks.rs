//! Reassembly of messages that were split over several entries.
//!
//! Number and size of incomplete messages are bounded: a peer that never completes a message costs a limited
//! amount of memory; then the oldest chunks are dropped, and are redelivered because they are unacknowledged.
//!
//! The first chunk of an incomplete message must not be acknowledged by a cumulative acknowledgement of later
//! messages: after a redelivery the other chunks would be useless without it. Such a hold survives the loss of
//! the connection, unlike the chunks themselves, and expires when no chunk arrives for a minute, since the
//! producer has then given up.
//!
//! The beginning of a message may be gone: passed over by a seek, or trimmed. Where entries come in order, its other chunks
//! are orphans, which no one would ever acknowledge. They are acknowledged if the beginning does not come within a minute;
//! until then it may come with a redelivery that is under way. A beginning that was dropped here makes no orphans: it
//! comes again with the next connection.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use crate::pulsar::consumer::acks::{Entry, order};
use crate::pulsar::pb;
use crate::random::{HashMap, HashSet};

/// Maximum number of messages being reassembled at a time.
const MAX_OPEN: usize = 10;
/// Maximum number of chunks of a message.
const MAX_CHUNKS: i32 = crate::pulsar::MAX_CHUNKS as i32;
/// Default of the maximum total size of the chunks held, in bytes.
pub const DEFAULT_MAX_CHUNKED: usize = 128 << 20;
/// Time that an incomplete message waits for its next chunk, as in the Java client.
pub(super) const CHUNK_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of first chunks held at a time.
const MAX_HOLDS: usize = 1000;
/// Maximum number of orphans known at a time. Those beyond it stay unacknowledged, and come again with the next connection.
const MAX_ORPHANS: usize = 1000;
/// Maximum length of the id of a message whose chunks can be orphans, in bytes.
const MAX_UUID: usize = 1024;
/// Maximum number of messages known whose beginning was dropped here. Beyond it no chunk is taken for an orphan.
const MAX_DROPPED: usize = 1000;

/// Result of adding a chunk.
#[derive(Debug, PartialEq)]
pub(super) enum Chunk {
    /// Stored; the message needs more chunks.
    Kept,
    /// Dropped: it does not continue any known message.
    Stray,
    /// Dropped: the message is larger than the limit. Carries its size.
    TooLarge(usize),
    /// The last chunk. Carries the message's bytes, still compressed, and the entries that held them.
    Complete(Bytes, Vec<Entry>),
}

#[derive(Debug)]
struct Open {
    bytes: BytesMut,
    total: usize,
    next: i32,
    entries: Vec<Entry>,
    /// The first entry, in topic order, of this attempt and of those before it.
    first: Entry,
    /// Creation order; a smaller value is older.
    age: u64,
}

/// Incomplete messages of one consumer.
#[derive(Debug)]
pub(super) struct Chunks {
    /// Maximum size of a message, and of all that are held, in bytes.
    limit: usize,
    open: HashMap<String, Open>,
    held: usize,
    clock: u64,
    /// First chunks of incomplete messages, in topic order, with the time at which each hold expires.
    holds: BTreeMap<(i64, i64), Instant>,
    /// Whether the broker delivers entries in order.
    in_order: bool,
    /// Chunks without a beginning, oldest first.
    orphans: VecDeque<Orphan>,
    /// Messages whose beginning has come on this connection and was dropped here.
    dropped: HashSet<String>,
}

#[derive(Debug)]
struct Orphan {
    uuid: String,
    entry: Entry,
    /// Time at which its beginning is given up.
    until: Instant,
}

impl Chunks {
    pub(super) fn new(limit: usize, in_order: bool) -> Self {
        Self {
            limit,
            open: HashMap::default(),
            held: 0,
            clock: 0,
            holds: BTreeMap::new(),
            in_order,
            orphans: VecDeque::new(),
            dropped: HashSet::default(),
        }
    }

    /// Adds the chunk that `metadata` describes.
    pub(super) fn take(
        &mut self,
        now: Instant,
        metadata: &pb::MessageMetadata,
        entry: Entry,
        body: &Bytes,
    ) -> Chunk {
        let (uuid, count, id) = (metadata.uuid(), metadata.num_chunks_from_msg(), metadata.chunk_id());
        let Ok(total) = usize::try_from(metadata.total_chunk_msg_size()) else { return Chunk::Stray };
        if !(1..=MAX_CHUNKS).contains(&count) || !(0..count).contains(&id) {
            return Chunk::Stray;
        }
        if total > self.limit {
            return Chunk::TooLarge(total);
        }
        if id == 0 {
            self.hold(entry, now + CHUNK_TIMEOUT);
            self.orphans.retain(|orphan| orphan.uuid != uuid);
            // A known uuid starts again: the receipt was lost or the producer restarted. Its earlier entries are
            // acknowledged together with the message.
            let before = self.forget(uuid).map(|open| open.entries).unwrap_or_default();
            let entries: Vec<_> =
                before.into_iter().filter(|earlier| *earlier != entry).take(MAX_CHUNKS as usize).collect();
            let first = entries
                .iter()
                .copied()
                .fold(entry, |first, other| std::cmp::min_by_key(first, other, |entry| order(*entry)));
            if self.open.len() >= MAX_OPEN {
                self.forget_oldest(uuid);
            }
            self.clock += 1;
            let open = Open { bytes: BytesMut::new(), total, next: 0, entries, first, age: self.clock };
            self.open.insert(uuid.to_owned(), open);
        }
        while self.held + body.len() > self.limit && self.forget_oldest(uuid) {}
        let Some(open) = self.open.get_mut(uuid) else {
            self.adopt(now, uuid, entry);
            return Chunk::Stray;
        };
        self.holds.insert(order(open.first), now + CHUNK_TIMEOUT);
        if id < open.next {
            // Sent again after a lost receipt: acknowledged together with the message it belongs to.
            if open.entries.len() < 2 * MAX_CHUNKS as usize && !open.entries.contains(&entry) {
                open.entries.push(entry);
            }
            return Chunk::Stray;
        }
        if id > open.next || open.total != total || open.bytes.len() + body.len() > total {
            self.drop_message(uuid);
            return Chunk::Stray;
        }
        open.bytes.extend_from_slice(body);
        open.entries.push(entry);
        open.next += 1;
        self.held += body.len();
        if open.next < count {
            return Chunk::Kept;
        }
        let complete = open.bytes.len() == total;
        match self.forget(uuid) {
            Some(open) if complete => {
                for entry in &open.entries {
                    self.holds.remove(&order(*entry));
                }
                Chunk::Complete(open.bytes.freeze(), open.entries)
            }
            _ => Chunk::Stray,
        }
    }

    /// Protects the first chunk of a message from cumulative acknowledgements until the given time.
    pub(super) fn hold(&mut self, first: Entry, until: Instant) {
        self.holds.insert(order(first), until);
        if self.holds.len() > MAX_HOLDS {
            self.holds.pop_first();
        }
    }

    /// Returns the first held entry.
    pub(super) fn first_held(&mut self, now: Instant) -> Option<Entry> {
        while let Some(first) = self.holds.first_entry() {
            if *first.get() > now {
                let (ledger, entry) = *first.key();
                return Some((ledger as u64, entry as u64));
            }
            first.remove();
        }
        None
    }

    /// Time at which the first hold expires.
    pub(super) fn next_lapse(&self) -> Option<Instant> {
        self.holds.first_key_value().map(|(_, until)| *until)
    }

    /// Notes a chunk without a beginning.
    fn adopt(&mut self, now: Instant, uuid: &str, entry: Entry) {
        let is_orphan = self.in_order
            && uuid.len() <= MAX_UUID
            && self.orphans.len() < MAX_ORPHANS
            && self.dropped.len() < MAX_DROPPED
            && !self.dropped.contains(uuid)
            && !self.orphans.iter().any(|orphan| orphan.entry == entry);
        if is_orphan {
            self.orphans.push_back(Orphan { uuid: uuid.to_owned(), entry, until: now + CHUNK_TIMEOUT });
        }
    }

    /// Takes the orphans whose beginning has not come in time.
    pub(super) fn lapsed_orphans(&mut self, now: Instant) -> Vec<Entry> {
        let count = self.orphans.partition_point(|orphan| orphan.until <= now);
        self.orphans.drain(..count).map(|orphan| orphan.entry).collect()
    }

    /// Time at which [`Self::lapsed_orphans`] has the next one.
    pub(super) fn next_orphan(&self) -> Option<Instant> {
        self.orphans.front().map(|orphan| orphan.until)
    }

    /// Discards the chunks, which will be redelivered, but keeps the holds.
    pub(super) fn drop_pieces(&mut self) {
        self.open.clear();
        self.held = 0;
        self.orphans.clear();
        self.dropped.clear();
    }

    /// Discards all state, after a seek.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.limit, self.in_order);
    }

    /// Discards the oldest message other than `uuid`; false if there is none.
    fn forget_oldest(&mut self, uuid: &str) -> bool {
        let others = self.open.iter().filter(|(other, _)| *other != uuid);
        let oldest = others.min_by_key(|(_, open)| open.age).map(|(uuid, _)| uuid.clone());
        oldest.is_some_and(|oldest| self.drop_message(&oldest))
    }

    /// Discards a message that is not complete; false if it is unknown.
    fn drop_message(&mut self, uuid: &str) -> bool {
        if self.dropped.len() < MAX_DROPPED && uuid.len() <= MAX_UUID {
            self.dropped.insert(uuid.to_owned());
        }
        self.forget(uuid).is_some()
    }

    fn forget(&mut self, uuid: &str) -> Option<Open> {
        let open = self.open.remove(uuid)?;
        self.held -= open.bytes.len();
        Some(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(uuid: &str, id: i32, count: i32, total: i32) -> pb::MessageMetadata {
        pb::MessageMetadata {
            uuid: Some(uuid.into()),
            chunk_id: Some(id),
            num_chunks_from_msg: Some(count),
            total_chunk_msg_size: Some(total),
            ..Default::default()
        }
    }

    fn body(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn interleaved_messages_come_together() {
        let (mut chunks, now) = (Chunks::new(DEFAULT_MAX_CHUNKED, true), Instant::now());
        assert_eq!(chunks.take(now, &chunk("a", 0, 2, 4), (1, 0), &body("ab")), Chunk::Kept);
        assert_eq!(chunks.take(now, &chunk("b", 0, 2, 2), (1, 1), &body("x")), Chunk::Kept);
        assert_eq!(
            chunks.take(now, &chunk("a", 1, 2, 4), (1, 2), &body("cd")),
            Chunk::Complete(body("abcd"), vec![(1, 0), (1, 2)])
        );
        assert_eq!(
            chunks.take(now, &chunk("b", 1, 2, 2), (1, 3), &body("y")),
            Chunk::Complete(body("xy"), vec![(1, 1), (1, 3)])
        );
        assert_eq!((chunks.held, chunks.first_held(now)), (0, None));
    }

    #[test]
    fn gaps_repeats_and_lies_are_dropped() {
        let (mut chunks, now) = (Chunks::new(DEFAULT_MAX_CHUNKED, true), Instant::now());
        assert_eq!(chunks.take(now, &chunk("a", 1, 2, 4), (1, 0), &body("ab")), Chunk::Stray, "no beginning");
        chunks.take(now, &chunk("a", 0, 3, 6), (1, 0), &body("ab"));
        assert_eq!(
            chunks.take(now, &chunk("a", 0, 3, 6), (1, 1), &body("ab")),
            Chunk::Kept,
            "it starts again"
        );
        assert_eq!(chunks.take(now, &chunk("a", 2, 3, 6), (1, 2), &body("ef")), Chunk::Stray, "a gap");
        for lie in
            [chunk("c", 0, i32::MAX, 4), chunk("c", 0, 2, -1), chunk("c", -1, 2, 4), chunk("c", 5, 2, 4)]
        {
            assert_eq!(chunks.take(now, &lie, (1, 0), &body("ab")), Chunk::Stray);
        }
        assert_eq!(chunks.take(now, &chunk("d", 0, 1, 1), (1, 0), &body("too long")), Chunk::Stray);
        assert_eq!(chunks.held, 0);
    }

    #[test]
    fn a_message_above_the_limit_is_told_and_others_together_are_held_below_it() {
        let (mut chunks, now) = (Chunks::new(10, true), Instant::now());
        for id in 0..2 {
            assert_eq!(
                chunks.take(now, &chunk("large", id, 2, 11), (1, 0), &body("ab")),
                Chunk::TooLarge(11)
            );
        }
        assert_eq!((chunks.held, chunks.first_held(now)), (0, None));
        chunks.take(now, &chunk("old", 0, 3, 10), (1, 1), &body("abcd"));
        chunks.take(now, &chunk("new", 0, 2, 10), (1, 2), &body("abcd"));
        assert_eq!(
            chunks.take(now, &chunk("new", 1, 2, 10), (1, 3), &body("efghij")),
            Chunk::Complete(body("abcdefghij"), vec![(1, 2), (1, 3)])
        );
        assert_eq!(chunks.take(now, &chunk("old", 1, 3, 10), (1, 4), &body("efgh")), Chunk::Stray);
        assert_eq!(chunks.held, 0);
    }

    #[test]
    fn a_million_beginnings_hold_ten() {
        let (mut chunks, now) = (Chunks::new(DEFAULT_MAX_CHUNKED, true), Instant::now());
        for i in 0..1000 {
            chunks.take(now, &chunk(&i.to_string(), 0, 2, 4), (1, i), &body("ab"));
        }
        assert_eq!((chunks.open.len(), chunks.held), (MAX_OPEN, 2 * MAX_OPEN));
        for i in 1000..10_000 {
            chunks.take(now, &chunk(&i.to_string(), 0, 2, 4), (1, i), &body("ab"));
        }
        assert_eq!(chunks.holds.len(), MAX_HOLDS);
    }

    #[test]
    fn what_was_sent_again_is_acknowledged_with_the_message_once() {
        let (mut chunks, now) = (Chunks::new(DEFAULT_MAX_CHUNKED, true), Instant::now());
        let take =
            |chunks: &mut Chunks, id, entry| chunks.take(now, &chunk("a", id, 3, 6), (1, entry), &body("ab"));
        take(&mut chunks, 0, 0);
        take(&mut chunks, 1, 1);
        // All of it from the beginning, in other entries.
        take(&mut chunks, 0, 2);
        take(&mut chunks, 1, 3);
        assert_eq!(take(&mut chunks, 1, 4), Chunk::Stray, "in another entry");
        assert_eq!(take(&mut chunks, 1, 3), Chunk::Stray, "the same entry");
        let Chunk::Complete(bytes, mut all) = take(&mut chunks, 2, 5) else { panic!("it is complete") };
        assert_eq!(bytes, body("ababab"));
        all.sort_unstable();
        assert_eq!(all, (0..6).map(|entry| (1, entry)).collect::<Vec<_>>());
    }

    #[test]
    fn each_chunk_may_be_sent_twice_and_a_repetition_without_end_is_bounded() {
        let (mut chunks, now) = (Chunks::new(DEFAULT_MAX_CHUNKED, true), Instant::now());
        let (mut entry, count) = (0, 40);
        let mut last = Chunk::Kept;
        for id in (0..count).flat_map(|id| if id == 0 { vec![id] } else { vec![id, id] }) {
            let taken = chunks.take(now, &chunk("a", id, count, 2 * count), (1, entry), &body("ab"));
            entry += 1;
            if let Chunk::Complete(..) = taken {
                last = taken;
                break;
            }
        }
        let Chunk::Complete(_, entries) = last else { panic!("it is complete") };
        assert_eq!(entries.len(), entry as usize, "all of them are acknowledged");

        chunks.take(now, &chunk("b", 0, 3, 6), (1, 0), &body("ab"));
        chunks.take(now, &chunk("b", 1, 3, 6), (1, 1), &body("ab"));
        let known = chunks.open["b"].entries.len();
        chunks.open.get_mut("b").unwrap().entries.resize(2 * MAX_CHUNKS as usize - 1, (2, 0));
        assert!(known < 2 * MAX_CHUNKS as usize);
        for again in 2..5 {
            chunks.take(now, &chunk("b", 1, 3, 6), (1, again), &body("ab"));
        }
        assert_eq!(chunks.open["b"].entries.len(), 2 * MAX_CHUNKS as usize);
    }

    #[test]
    fn the_limit_may_be_reached_and_not_exceeded() {
        let (mut chunks, now) = (Chunks::new(10, true), Instant::now());
        chunks.take(now, &chunk("a", 0, 2, 6), (1, 0), &body("abcd"));
        chunks.take(now, &chunk("b", 0, 2, 8), (1, 1), &body("ghijkl"));
        assert_eq!(
            chunks.take(now, &chunk("b", 1, 2, 8), (1, 2), &body("m")),
            Chunk::Stray,
            "it is too short, and there was no room for the first any more"
        );
        assert_eq!(chunks.take(now, &chunk("a", 1, 2, 6), (1, 3), &body("ef")), Chunk::Stray);
        chunks.take(now, &chunk("a", 0, 2, 4), (1, 4), &body("ab"));
        chunks.take(now, &chunk("b", 0, 2, 10), (1, 5), &body("cdefgh"));
        assert_eq!(
            chunks.take(now, &chunk("a", 1, 2, 4), (1, 6), &body("yz")),
            Chunk::Complete(body("abyz"), vec![(1, 4), (1, 6)])
        );
        assert_eq!(chunks.held, 6);
    }

    #[test]
    fn a_message_whose_chunks_contradict_each_other_is_dropped() {
        let (mut chunks, now) = (Chunks::new(DEFAULT_MAX_CHUNKED, true), Instant::now());
        for (first, last) in [(4, 5), (5, 4)] {
            chunks.take(now, &chunk("size", 0, 2, first), (1, 0), &body("ab"));
            assert_eq!(chunks.take(now, &chunk("size", 1, 2, last), (1, 1), &body("cd")), Chunk::Stray);
        }
        chunks.take(now, &chunk("short", 0, 2, 5), (1, 2), &body("ab"));
        assert_eq!(chunks.take(now, &chunk("short", 1, 2, 5), (1, 3), &body("cd")), Chunk::Stray);
        assert_eq!((chunks.open.len(), chunks.held), (0, 0));
    }

    #[test]
    fn the_oldest_message_makes_room() {
        let (mut chunks, now) = (Chunks::new(DEFAULT_MAX_CHUNKED, true), Instant::now());
        for i in 0..100 {
            chunks.take(now, &chunk(&i.to_string(), 0, 2, 4), (1, i), &body("ab"));
        }
        for i in 90..100 {
            let last = chunks.take(now, &chunk(&i.to_string(), 1, 2, 4), (2, i), &body("cd"));
            assert_eq!(last, Chunk::Complete(body("abcd"), vec![(1, i), (2, i)]));
        }
    }

    #[test]
    fn each_chunk_renews_the_hold_on_the_first() {
        let (mut chunks, now) = (Chunks::new(DEFAULT_MAX_CHUNKED, true), Instant::now());
        let take = |chunks: &mut Chunks, after, id, entry| {
            let now = now + Duration::from_secs(after);
            assert_eq!(chunks.take(now, &chunk("a", id, 4, 8), (1, entry), &body("ab")), Chunk::Kept);
        };
        let held = |chunks: &mut Chunks, after| chunks.first_held(now + Duration::from_secs(after));
        take(&mut chunks, 0, 0, 7);
        take(&mut chunks, 50, 1, 8);
        assert_eq!(held(&mut chunks, 100), Some((1, 7)));
        // Also if the same entries come again.
        take(&mut chunks, 100, 0, 7);
        take(&mut chunks, 150, 1, 8);
        assert_eq!(held(&mut chunks, 200), Some((1, 7)));
        take(&mut chunks, 200, 2, 9);
        assert_eq!(held(&mut chunks, 259), Some((1, 7)));
        assert_eq!(chunks.next_lapse(), Some(now + Duration::from_secs(260)));
        assert_eq!(held(&mut chunks, 260), None);
    }

    #[test]
    fn a_lost_connection_frees_the_pieces_and_a_seek_frees_all() {
        let (mut chunks, now) = (Chunks::new(DEFAULT_MAX_CHUNKED, true), Instant::now());
        chunks.take(now, &chunk("a", 0, 2, 4), (1, 0), &body("ab"));
        chunks.drop_pieces();
        assert_eq!((chunks.held, chunks.first_held(now)), (0, Some((1, 0))));
        assert_eq!(chunks.take(now, &chunk("a", 1, 2, 4), (1, 1), &body("cd")), Chunk::Stray);
        chunks.take(now, &chunk("a", 0, 2, 4), (1, 0), &body("ab"));
        chunks.clear();
        assert_eq!((chunks.held, chunks.first_held(now)), (0, None));
        assert_eq!(chunks.take(now, &chunk("a", 1, 2, 4), (1, 1), &body("cd")), Chunk::Stray);
    }

    #[test]
    fn chunks_whose_beginning_does_not_come_are_orphans() {
        let (mut chunks, now) = (Chunks::new(DEFAULT_MAX_CHUNKED, true), Instant::now());
        let late = now + CHUNK_TIMEOUT;
        for (id, entry) in [(1, 0), (1, 0), (2, 1)] {
            assert_eq!(chunks.take(now, &chunk("a", id, 3, 6), (1, entry), &body("ab")), Chunk::Stray);
        }
        assert_eq!(chunks.next_orphan(), Some(late));
        assert_eq!(chunks.lapsed_orphans(late - Duration::from_millis(1)), []);
        assert_eq!(chunks.lapsed_orphans(late), [(1, 0), (1, 1)], "each once");
        assert_eq!((chunks.lapsed_orphans(late), chunks.next_orphan()), (vec![], None));
    }

    #[test]
    fn chunks_whose_beginning_can_come_again_are_no_orphans() {
        let now = Instant::now();
        let late = now + CHUNK_TIMEOUT;
        let stray = |chunks: &mut Chunks, uuid: &str| {
            assert_eq!(chunks.take(now, &chunk(uuid, 2, 4, 8), (1, 9), &body("ab")), Chunk::Stray);
        };
        let mut out_of_order = Chunks::new(DEFAULT_MAX_CHUNKED, false);
        stray(&mut out_of_order, "a");
        assert_eq!(out_of_order.lapsed_orphans(late), [], "the beginning may be on its way");

        let mut begins = Chunks::new(DEFAULT_MAX_CHUNKED, true);
        stray(&mut begins, "a");
        begins.take(now, &chunk("a", 0, 4, 8), (1, 7), &body("ab"));
        assert_eq!(begins.lapsed_orphans(late), [], "the beginning has come");

        let mut gap = Chunks::new(DEFAULT_MAX_CHUNKED, true);
        gap.take(now, &chunk("a", 0, 4, 8), (1, 7), &body("ab"));
        stray(&mut gap, "a");
        stray(&mut gap, "a");
        assert_eq!(gap.lapsed_orphans(late), [], "the beginning came and was dropped");

        let mut crowded = Chunks::new(DEFAULT_MAX_CHUNKED, true);
        for i in 0..=MAX_OPEN as u64 {
            crowded.take(now, &chunk(&i.to_string(), 0, 4, 8), (1, i), &body("ab"));
        }
        stray(&mut crowded, "0");
        assert_eq!(crowded.lapsed_orphans(late), [], "the beginning made room for another");

        let mut disconnected = Chunks::new(DEFAULT_MAX_CHUNKED, true);
        stray(&mut disconnected, "a");
        disconnected.drop_pieces();
        assert_eq!(disconnected.lapsed_orphans(late), [], "it comes again");
    }

    #[test]
    fn orphans_are_bounded() {
        let (mut chunks, now) = (Chunks::new(DEFAULT_MAX_CHUNKED, true), Instant::now());
        let long = "u".repeat(MAX_UUID + 1);
        chunks.take(now, &chunk(&long, 1, 2, 4), (2, 0), &body("ab"));
        for entry in 0..2 * MAX_ORPHANS as u64 {
            chunks.take(now, &chunk("a", 1, 2, 4), (1, entry), &body("ab"));
        }
        let orphans = chunks.lapsed_orphans(now + CHUNK_TIMEOUT);
        assert_eq!(orphans, (0..MAX_ORPHANS as u64).map(|entry| (1, entry)).collect::<Vec<_>>());
        // Once it is not known what was dropped, nothing is an orphan.
        for i in 0..MAX_DROPPED as u64 {
            chunks.take(now, &chunk(&i.to_string(), 0, 4, 8), (3, i), &body("ab"));
            chunks.take(now, &chunk(&i.to_string(), 2, 4, 8), (3, i), &body("ab"));
        }
        chunks.take(now, &chunk("b", 1, 2, 4), (4, 0), &body("ab"));
        assert_eq!((chunks.dropped.len(), chunks.orphans.len()), (MAX_DROPPED, 0));
    }
}
