//! Reassembly of messages that were split over several entries.
//!
//! ```text
//!         first chunk           last chunk
//!   ─────────────────► Open ─────────────────► complete
//!                       │
//!                       ├── others need the room ──► dropped: comes again after a reconnect
//!                       │
//!                       └── no chunk in time ──────► expired: requested again with its next chunk
//! ```
//! With [`Limits::ack`] the chunks of both are acknowledged instead, and so are those that come
//! later.
//!
//! Number, size and age of incomplete messages are bounded: a peer that never completes a message
//! costs a limited amount of memory for a limited time. The owner gives a time that stands still
//! while the broker may not deliver.
//!
//! The first chunk of an incomplete message must not be acknowledged by a cumulative
//! acknowledgement of later messages: after a redelivery the other chunks would be useless without
//! it. Such a hold survives the loss of the connection, unlike the chunks themselves, and expires
//! with the message.
//!
//! The beginning of a message may be gone: passed over by a seek, or trimmed. Where entries come in
//! order, its other chunks are orphans, which no one would ever acknowledge. They are acknowledged
//! if the beginning does not come in the same time; until then it may come with a redelivery that
//! is under way. A beginning that was dropped here makes no orphans: it comes again with the next
//! connection.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use crate::consumer::acks::{Entry, order};
use crate::message::MessageId;
use crate::pb;
use forebay_base::random::{HashMap, HashSet};

/// Maximum number of chunks of a message.
const MAX_CHUNKS: i32 = crate::MAX_CHUNKS as i32;
/// Limit on what the incomplete messages of a consumer take beside their bytes: with none on their
/// number this bounds it.
const MAX_NAMES: usize = 16 << 20;
/// Memory of an incomplete message beside its bytes and its id.
const NAME: usize = 256;
/// In effect no limit of time.
const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Maximum number of first chunks held at a time.
const MAX_HOLDS: usize = 1000;
/// Maximum number of orphans known at a time. Those beyond it stay unacknowledged, and come again
/// with the next connection.
const MAX_ORPHANS: usize = 1000;
/// Maximum length of the id of a message whose chunks can be orphans, in bytes.
const MAX_UUID: usize = 1024;
/// Maximum number of messages known whose beginning was dropped here. Beyond it no chunk is taken
/// for an orphan.
const MAX_DROPPED: usize = 1000;
/// Maximum number of messages known that have expired, and of their chunks. What is forgotten
/// counts as dropped.
const MAX_EXPIRED: usize = 1000;
/// Maximum number of messages known that were given up for other reasons than time.
const MAX_LOST: usize = 100;
const MAX_EXPIRED_CHUNKS: usize = 2 * MAX_CHUNKS as usize;

/// Limits on the incomplete messages of a consumer, with the defaults of the Java client where that
/// has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a chunked message, compressed, and of all incomplete ones together, in
    /// bytes.
    pub bytes: usize,
    /// Maximum number of incomplete messages; 0 for no limit.
    pub messages: usize,
    /// Time that an incomplete message waits for its next chunk; zero for no limit.
    pub timeout: Duration,
    /// Whether the chunks of a message that is given up are acknowledged.
    pub ack: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 128 << 20, messages: 10, timeout: Duration::from_secs(60), ack: false }
    }
}

/// Why an incomplete message was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Others needed its room.
    Room,
    /// Its next chunk did not come in time.
    Time,
    /// A chunk that came was not its next one, or contradicts the others.
    Gap,
}

/// An incomplete message that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// Its first chunk.
    pub first: MessageId,
    /// Number of its chunks that had come.
    pub chunks: usize,
    /// Why.
    pub reason: Reason,
    /// Whether its chunks were acknowledged.
    pub acknowledged: bool,
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, chunks, reason, acknowledged } = self;
        let why = match reason {
            Reason::Room => "because others needed its room",
            Reason::Time => "because its next chunk did not come in time",
            Reason::Gap => "because a chunk that came does not continue it",
        };
        let fate = match (acknowledged, reason) {
            (true, _) => "its chunks were acknowledged",
            (false, Reason::Time) => "its chunks are requested again if another one comes",
            (false, _) => "its chunks come again with the next connection",
        };
        write!(f, "the incomplete message {first} was given up after {chunks} chunks {why}; {fate}")
    }
}

/// Result of adding a chunk.
#[derive(Debug, PartialEq)]
pub(super) enum Chunk {
    /// Stored; the message needs more chunks.
    Kept,
    /// Dropped: it does not continue any known message.
    Stray,
    /// Dropped: its message was given up, and its other chunks were acknowledged.
    Late,
    /// Dropped: its message was given up. Carries the entries of it that are to be requested again.
    Again(Vec<Entry>),
    /// Dropped: the message is larger than the limit. Carries its size.
    TooLarge(usize),
    /// The last chunk. Carries the message's bytes, still compressed, and the entries that held
    /// them.
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
    /// Time at which it expires.
    until: Instant,
    /// Publish time of its last chunk, in milliseconds since 1970.
    published: u64,
}

/// Incomplete messages of one consumer.
#[derive(Debug)]
pub(super) struct Chunks {
    limits: Limits,
    open: HashMap<String, Open>,
    /// Ids of the open messages, the oldest first.
    ages: BTreeMap<u64, String>,
    /// The open messages by the time at which they expire.
    due: BTreeSet<(Instant, u64)>,
    /// Bytes of the open messages.
    held: usize,
    /// Memory of the open messages beside that.
    names: usize,
    clock: u64,
    /// First chunks of incomplete messages, in topic order, with the time at which each hold
    /// expires.
    holds: BTreeMap<(i64, i64), Instant>,
    /// Whether the broker delivers entries in order.
    in_order: bool,
    /// Chunks without a beginning, oldest first.
    orphans: VecDeque<Orphan>,
    /// Messages of which chunks that may come again have come on this connection and were dropped
    /// here.
    dropped: HashSet<String>,
    /// Messages that were given up. Those with entries have expired, and the others were
    /// acknowledged.
    given_up: HashMap<String, Option<Vec<Entry>>>,
    /// Number of the entries in `given_up`.
    expired_chunks: usize,
    /// Chunks that were given up and are to be acknowledged.
    acks: Vec<Entry>,
    /// The first message that was given up since the owner asked.
    news: Option<GivenUp>,
    /// First chunks of the latest messages that were given up for other reasons than time.
    lost: VecDeque<Entry>,
    /// Number of messages that made room for others, and of those that waited too long.
    pub(super) counts: (u64, u64),
}

#[derive(Debug)]
struct Orphan {
    uuid: String,
    entry: Entry,
    /// Time at which its beginning is given up.
    until: Instant,
}

impl Chunks {
    pub(super) fn new(limits: Limits, in_order: bool) -> Self {
        Self {
            limits,
            open: HashMap::default(),
            ages: BTreeMap::new(),
            due: BTreeSet::new(),
            held: 0,
            names: 0,
            clock: 0,
            holds: BTreeMap::new(),
            in_order,
            orphans: VecDeque::new(),
            dropped: HashSet::default(),
            given_up: HashMap::default(),
            expired_chunks: 0,
            acks: Vec::new(),
            news: None,
            lost: VecDeque::new(),
            counts: (0, 0),
        }
    }

    /// Time at which something that is renewed now expires.
    pub(super) fn deadline(&self, now: Instant) -> Instant {
        now + if self.limits.timeout.is_zero() { NEVER } else { self.limits.timeout }
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
        if total > self.limits.bytes {
            return Chunk::TooLarge(total);
        }
        let until = self.deadline(now);
        if id == 0 {
            self.begin(metadata, total, entry, until);
        } else if let Some(fate) = self.given_up.get(uuid) {
            if fate.is_none() {
                return Chunk::Late;
            }
            let mut entries = self.forget_given_up(uuid);
            entries.push(entry);
            return Chunk::Again(entries);
        }
        while self.held + body.len() > self.limits.bytes && self.drop_oldest(uuid) {}
        let Some(open) = self.open.get_mut(uuid) else {
            self.adopt(now, uuid, entry);
            return Chunk::Stray;
        };
        self.holds.insert(order(open.first), until);
        self.due.remove(&(open.until, open.age));
        open.until = until;
        open.published = open.published.max(metadata.publish_time);
        self.due.insert((until, open.age));
        if id < open.next {
            // Sent again after a lost receipt: acknowledged together with the message it belongs
            // to.
            if open.entries.len() < 2 * MAX_CHUNKS as usize && !open.entries.contains(&entry) {
                open.entries.push(entry);
            }
            return Chunk::Stray;
        }
        if id > open.next || open.total != total || open.bytes.len() + body.len() > total {
            self.drop_message(uuid, Reason::Gap, false);
            return Chunk::Stray;
        }
        open.bytes.extend_from_slice(body);
        open.entries.push(entry);
        open.next += 1;
        self.held += body.len();
        if open.next < count {
            return Chunk::Kept;
        }
        if open.bytes.len() < total {
            self.drop_message(uuid, Reason::Gap, false);
            return Chunk::Stray;
        }
        let Some(open) = self.forget(uuid) else { return Chunk::Stray };
        for entry in &open.entries {
            self.holds.remove(&order(*entry));
        }
        Chunk::Complete(open.bytes.freeze(), open.entries)
    }

    /// Opens the message of `total` bytes whose first chunk is `entry`, still without the bytes of
    /// that chunk.
    #[inline]
    fn begin(&mut self, metadata: &pb::MessageMetadata, total: usize, entry: Entry, until: Instant) {
        let uuid = metadata.uuid();
        self.hold(entry, until);
        self.orphans.retain(|orphan| orphan.uuid != uuid);
        // A known uuid starts again: the receipt was lost or the producer restarted. Its earlier
        // entries, expired or not, are acknowledged together with the message.
        let expired = self.forget_given_up(uuid);
        let before = self.forget(uuid).map_or(expired, |open| open.entries);
        let entries: Vec<_> =
            before.into_iter().filter(|earlier| *earlier != entry).take(MAX_CHUNKS as usize).collect();
        let first = entries
            .iter()
            .copied()
            .fold(entry, |first, other| std::cmp::min_by_key(first, other, |entry| order(*entry)));
        if self.limits.messages > 0 && self.open.len() >= self.limits.messages {
            self.drop_oldest(uuid);
        }
        self.names += NAME + uuid.len();
        while self.names > MAX_NAMES && self.drop_oldest(uuid) {}
        self.clock += 1;
        let (age, bytes) = (self.clock, BytesMut::new());
        self.ages.insert(age, uuid.to_owned());
        self.due.insert((until, age));
        let published = metadata.publish_time;
        self.open
            .insert(uuid.to_owned(), Open { bytes, total, next: 0, entries, first, age, until, published });
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
        self.lapse(now);
        self.first_incomplete()
    }

    /// Ends expired holds, up to the first one that is still in force.
    fn lapse(&mut self, now: Instant) {
        while self.next_lapse().is_some_and(|until| until <= now) {
            self.holds.pop_first();
        }
    }

    /// The first chunk of all incomplete messages. It may have expired.
    pub(super) fn first_incomplete(&self) -> Option<Entry> {
        self.holds.first_key_value().map(|((ledger, entry), _)| (*ledger as u64, *entry as u64))
    }

    /// First chunk of each incomplete message that has not been given up, and the publish time of
    /// its last one, in milliseconds since 1970.
    pub(super) fn open(&self) -> impl Iterator<Item = (Entry, u64)> + '_ {
        self.open.values().map(|open| (open.first, open.published))
    }

    /// First chunks of the latest messages that were given up, but not because their next chunk did
    /// not come in time.
    pub(super) fn lost(&self) -> impl Iterator<Item = Entry> + '_ {
        self.lost.iter().copied()
    }

    /// Time at which the first hold expires.
    pub(super) fn next_lapse(&self) -> Option<Instant> {
        self.holds.first_key_value().map(|(_, until)| *until)
    }

    /// Notes a chunk without a beginning.
    fn adopt(&mut self, now: Instant, uuid: &str, entry: Entry) {
        if !self.in_order {
            // Its beginning may come, and does not complete the message.
            self.note_dropped(uuid);
            return;
        }
        let is_orphan = uuid.len() <= MAX_UUID
            && self.orphans.len() < MAX_ORPHANS
            && !self.may_be_dropped(uuid)
            && !self.orphans.iter().any(|orphan| orphan.entry == entry);
        if is_orphan {
            let until = self.deadline(now);
            self.orphans.push_back(Orphan { uuid: uuid.to_owned(), entry, until });
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

    /// Gives up the messages that have waited too long.
    pub(super) fn expire(&mut self, now: Instant) {
        self.lapse(now);
        while let Some((until, age)) = self.due.first().copied()
            && until <= now
        {
            let Some(uuid) = self.ages.get(&age).cloned() else { break };
            // Of a message of which chunks were dropped here too, the rest may be on its way again.
            let ack = self.limits.ack && !self.may_be_dropped(&uuid);
            if !self.drop_message(&uuid, Reason::Time, ack) {
                break;
            }
        }
    }

    /// Time at which [`Self::expire`] is due.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.due.first().map(|(until, _)| *until).filter(|_| !self.limits.timeout.is_zero())
    }

    /// Takes the chunks that were given up and are to be acknowledged.
    pub(super) fn take_acks(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.acks)
    }

    /// Takes the first message that was given up since the last call.
    pub(super) fn take_news(&mut self) -> Option<GivenUp> {
        self.news.take()
    }

    /// Discards the chunks, which will be redelivered, but keeps the holds.
    pub(super) fn drop_pieces(&mut self) {
        self.open.clear();
        self.ages.clear();
        self.due.clear();
        (self.held, self.names) = (0, 0);
        self.orphans.clear();
        self.dropped.clear();
        self.given_up.clear();
        self.expired_chunks = 0;
        self.acks.clear();
    }

    /// Discards all state but the counts, after a seek.
    pub(super) fn clear(&mut self) {
        self.drop_pieces();
        self.holds.clear();
    }

    /// Gives up the oldest message other than `uuid`; false if there is none.
    fn drop_oldest(&mut self, uuid: &str) -> bool {
        let oldest = self.ages.values().find(|other| *other != uuid).cloned();
        oldest.is_some_and(|oldest| self.drop_message(&oldest, Reason::Room, self.limits.ack))
    }

    /// Gives up a message; false if it is unknown.
    fn drop_message(&mut self, uuid: &str, reason: Reason, ack: bool) -> bool {
        let Some(open) = self.forget(uuid) else { return false };
        let (ledger, entry) = open.first;
        let first = MessageId::new(ledger, entry);
        self.news.get_or_insert(GivenUp { first, chunks: open.entries.len(), reason, acknowledged: ack });
        let expires = reason == Reason::Time;
        if !expires {
            if self.lost.len() >= MAX_LOST {
                self.lost.pop_front();
            }
            self.lost.push_back(open.first);
        }
        *if expires { &mut self.counts.1 } else { &mut self.counts.0 } += 1;
        let known = uuid.len() <= MAX_UUID && self.given_up.len() < MAX_EXPIRED;
        if ack {
            for entry in &open.entries {
                self.holds.remove(&order(*entry));
            }
            self.acks.extend(open.entries);
            if known {
                self.given_up.insert(uuid.to_owned(), None);
            }
        } else if expires && known && self.expired_chunks + open.entries.len() <= MAX_EXPIRED_CHUNKS {
            self.expired_chunks += open.entries.len();
            self.given_up.insert(uuid.to_owned(), Some(open.entries));
        } else {
            self.note_dropped(uuid);
        }
        true
    }

    /// Forgets that a message was given up. Returns its chunks, if they are to be requested again.
    fn forget_given_up(&mut self, uuid: &str) -> Vec<Entry> {
        let entries = self.given_up.remove(uuid).flatten().unwrap_or_default();
        self.expired_chunks -= entries.len();
        entries
    }

    fn note_dropped(&mut self, uuid: &str) {
        if self.dropped.len() < MAX_DROPPED && uuid.len() <= MAX_UUID {
            self.dropped.insert(uuid.to_owned());
        }
    }

    /// Whether chunks of a message were dropped here, as far as that is known.
    fn may_be_dropped(&self, uuid: &str) -> bool {
        self.dropped.len() >= MAX_DROPPED || self.dropped.contains(uuid)
    }

    fn forget(&mut self, uuid: &str) -> Option<Open> {
        let open = self.open.remove(uuid)?;
        self.ages.remove(&open.age);
        self.due.remove(&(open.until, open.age));
        self.held -= open.bytes.len();
        self.names -= NAME + uuid.len();
        Some(open)
    }
}

#[cfg(test)]
mod tests;
