//! A subscription of a topic: its consumers and the entries that they hold; in `dispatch`, which
//! entry goes to whom, and in `pass`, where one of a non-persistent topic does.
//!
//! | type | delivered to | redelivered |
//! |---|---|---|
//! | Exclusive, Failover | the active consumer, in order | everything not acknowledged, from the mark on |
//! | Shared | a consumer with permits, in turn, lowest priority number first; the chunks of a message all to one | entries that a leaving consumer held, or that a consumer named |
//! | Key_Shared | the owner of the key's slot | likewise; an entry never overtakes another of its slot |
//!
//! Permits: an entry costs its messages less those acknowledged already, and is sent while permits
//! are above zero. So they may fall below zero, by one message less than a batch.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::log::cursor::{Cursor, Properties};
use crate::log::{Entry, Log, Source};
use crate::pulsar::key_ranges::HashRanges;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::random::HashMap;

mod dispatch;
mod pass;

/// Limit on the unacknowledged messages of a consumer of a shared type, as in the real broker.
pub const MAX_UNACKED: i64 = 50_000;
/// Time without an acknowledgement after which consumers are told that the next entry cannot be
/// read, although they have not acknowledged those before it.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that the acknowledgements that are read at once may read from the store, to learn the size
/// of batches.
pub const PEEKS: usize = 4 << 20;
/// Least cost of reading an entry, in bytes.
const PEEK_BYTES: usize = 4 << 10;

/// The type of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One consumer; others are refused.
    Exclusive,
    /// All consumers in turn.
    Shared,
    /// One consumer; others stand by.
    Failover,
    /// All consumers by key.
    KeyShared,
}

impl Kind {
    /// Converts the protocol's number. An unknown number becomes the strictest type.
    pub fn from_number(number: i32) -> Self {
        match number {
            1 => Self::Shared,
            2 => Self::Failover,
            3 => Self::KeyShared,
            _ => Self::Exclusive,
        }
    }

    /// Name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "Exclusive",
            Self::Shared => "Shared",
            Self::Failover => "Failover",
            Self::KeyShared => "Key_Shared",
        }
    }

    fn single(self) -> bool {
        matches!(self, Self::Exclusive | Self::Failover)
    }
}

/// Identifies a consumer: its connection, and its id there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerKey {
    /// Connection.
    pub session: u64,
    /// Id that the client chose.
    pub id: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    left: u32,
    hash: u16,
}

/// A consumer of a subscription.
#[derive(Debug)]
pub struct Consumer {
    /// Connection and id.
    pub key: ConsumerKey,
    /// Name.
    pub name: Arc<str>,
    /// Priority level; lower levels come first.
    pub priority: i32,
    /// Messages that may still be sent; below zero after a batch larger than the remaining permits.
    pub permits: i64,
    /// Epoch that is returned with each delivery, by which clients tell new deliveries from old
    /// ones.
    pub epoch: Option<u64>,
    /// Hash ranges that the consumer asked for.
    pub ranges: Option<Vec<(u32, u32)>>,
    /// Key_Shared: whether a slot may move to another consumer before its entries are acknowledged.
    pub out_of_order: bool,
    /// Messages delivered.
    pub delivered: u64,
    /// Whether it was told that the topic has ended.
    told_end: bool,
    /// Failover: what it was told last, whether it is the active one.
    told_active: Option<bool>,
    unacked: i64,
    pending: BTreeMap<u64, Pending>,
}

impl Consumer {
    /// A consumer without permits.
    pub fn new(key: ConsumerKey, name: Arc<str>, priority: i32) -> Self {
        Self {
            key,
            name,
            priority,
            permits: 0,
            epoch: None,
            ranges: None,
            out_of_order: false,
            delivered: 0,
            told_end: false,
            told_active: None,
            unacked: 0,
            pending: BTreeMap::new(),
        }
    }

    /// Unacknowledged messages, for shared types.
    pub fn unacked(&self) -> i64 {
        self.unacked
    }
}

/// The delivery of an entry to a consumer.
#[derive(Debug)]
pub struct Delivery<'a> {
    /// Receiving consumer.
    pub consumer: ConsumerKey,
    /// Delivered entry.
    pub entry: &'a Entry,
    /// Number of earlier deliveries.
    pub redelivery_count: u32,
    /// Bits of the messages that are not acknowledged; empty for all.
    pub ack_set: Vec<i64>,
    /// Epoch of the consumer.
    pub epoch: Option<u64>,
}

/// Takes deliveries.
pub trait Sink {
    /// Whether the consumer's connection has room for more. After `false`, the connection triggers
    /// the next dispatch.
    fn room(&mut self, consumer: ConsumerKey) -> bool;
    /// Sends a delivery.
    fn deliver(&mut self, delivery: Delivery<'_>);
}

/// The parts of the topic that dispatch reads.
#[derive(Debug)]
pub struct Reading<'a> {
    /// Log of the topic.
    pub log: &'a Log,
    /// Reads entries that are not cached.
    pub source: &'a mut Option<Box<dyn Source>>,
    /// Bytes that acknowledgements of parts of batches may still read: clients may name as many as
    /// they like.
    pub peeks: &'a mut usize,
    /// Current time in milliseconds since 1970.
    pub wall_ms: u64,
}

impl std::fmt::Debug for dyn Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Source")
    }
}

/// An entry that cannot be read.
#[derive(Debug)]
pub struct Damage {
    /// Number of the entry.
    pub sequence: u64,
    /// Why it cannot be read.
    pub error: Error,
    /// When the consumers came to it, or last acknowledged something before it.
    pub since: Option<Instant>,
    /// Whether the consumers were told.
    stopped: bool,
}

/// A subscription, as the [module](self) describes.
#[derive(Debug)]
pub struct Subscription {
    /// Name.
    pub name: Arc<str>,
    /// Type; changes only while no consumer is connected.
    pub kind: Kind,
    /// Whether the subscription outlives its consumers and the process.
    pub durable: bool,
    /// Acknowledgements.
    pub cursor: Cursor,
    /// Properties that the client which created it has stored with it.
    pub properties: Properties,
    /// The user that made it, if it is durable and there are users.
    pub owner: Option<Arc<str>>,
    /// Whether `cursor` has changes that are not written.
    pub dirty: bool,
    /// When a non-durable subscription lost its last consumer to a seek, after which it may come
    /// back.
    pub abandoned: Option<Instant>,
    /// Non-persistent: messages for which no consumer had permits and room.
    pub dropped: u64,
    /// The entry that could not be read, at which dispatch has ended.
    pub damage: Option<Damage>,
    /// The next entry to read.
    read: u64,
    consumers: Vec<Consumer>,
    /// Entries to be sent again, or that were read past, with their hash slots.
    replay: BTreeMap<u64, u16>,
    redeliveries: HashMap<u64, u32>,
    delayed: BinaryHeap<Reverse<(u64, u64, u16)>>,
    ahead: VecDeque<Entry>,
    ring: HashRanges<ConsumerKey>,
    /// Key_Shared: the consumer that holds unacknowledged entries of a slot, and their number.
    holders: HashMap<u16, (ConsumerKey, u32)>,
    active: Option<ConsumerKey>,
    /// Failover: the consumer that was active before and is still connected, and when the new one
    /// takes over. Until then no consumer gets entries, so that what the former one acknowledges is
    /// not delivered twice.
    switch: Option<(ConsumerKey, Instant)>,
    rotation: usize,
    /// Shared: who gets the remaining chunks of a message, by the hash of its id, and the message's
    /// first entry.
    chunked: HashMap<u64, (ConsumerKey, u64)>,
    /// Shared: chunks that wait for permits of the consumer that has the others of their message,
    /// with their hash slots.
    parked: BTreeMap<ConsumerKey, BTreeMap<u64, u16>>,
}

impl Subscription {
    /// A subscription with the acknowledgements of `cursor`.
    pub fn new(name: Arc<str>, kind: Kind, durable: bool, cursor: Cursor) -> Self {
        Self {
            name,
            kind,
            durable,
            read: cursor.below(),
            cursor,
            properties: Properties::new(),
            owner: None,
            dirty: false,
            abandoned: None,
            dropped: 0,
            damage: None,
            consumers: Vec::new(),
            replay: BTreeMap::new(),
            redeliveries: HashMap::default(),
            delayed: BinaryHeap::new(),
            ahead: VecDeque::new(),
            ring: HashRanges::default(),
            holders: HashMap::default(),
            active: None,
            switch: None,
            rotation: 0,
            chunked: HashMap::default(),
            parked: BTreeMap::new(),
        }
    }

    /// Connected consumers.
    pub fn consumers(&self) -> &[Consumer] {
        &self.consumers
    }

    /// A consumer, if it is connected.
    pub fn consumer(&mut self, key: ConsumerKey) -> Option<&mut Consumer> {
        self.consumers.iter_mut().find(|consumer| consumer.key == key)
    }

    /// The active consumer of a single-consumer type: until another one takes over, the former one.
    pub fn active(&self) -> Option<ConsumerKey> {
        self.switch.map(|(former, _)| former).or(self.active)
    }

    /// Number of entries that are not acknowledged.
    pub fn backlog(&self, log: &Log) -> u64 {
        log.committed()
            .saturating_sub(self.cursor.below().max(log.first()))
            .saturating_sub(self.cursor.acked_past())
    }

    /// The consumers that are to be told that a terminated topic has ended, each once: everything
    /// is acknowledged.
    pub fn reached_end(&mut self, log: &Log) -> Vec<ConsumerKey> {
        if log.committed() < log.next() || self.backlog(log) > 0 {
            return Vec::new();
        }
        let untold = self.consumers.iter_mut().filter(|consumer| !consumer.told_end);
        let tell = |consumer: &mut Consumer| {
            consumer.told_end = true;
            consumer.key
        };
        untold.map(tell).collect()
    }

    /// Number of entries that wait for their delivery time.
    pub fn delayed(&self) -> usize {
        self.delayed.len()
    }

    /// Number of entries that wait for redelivery.
    pub fn replaying(&self) -> usize {
        self.replay.len() + self.parked.values().map(BTreeMap::len).sum::<usize>()
    }

    /// When the next delayed entry is due, in milliseconds since 1970.
    pub fn next_due(&self) -> Option<u64> {
        self.delayed.peek().map(|Reverse((due, ..))| *due)
    }

    /// Connects a consumer.
    pub fn attach(&mut self, kind: Kind, consumer: Consumer) -> Result<()> {
        if self.consumers.is_empty() {
            if self.kind != kind {
                self.kind = kind;
                self.dirty = true;
            }
            self.rewind();
        } else if self.kind != kind {
            return Err(Error::new(
                ErrorKind::ConsumerBusy,
                format!("Subscription is of different type: {} instead of {}", self.kind.name(), kind.name()),
            ));
        }
        match kind {
            Kind::Exclusive if !self.consumers.is_empty() => {
                return Err(Error::new(ErrorKind::ConsumerBusy, "Exclusive consumer is already connected"));
            }
            // Half of a chosen range would not be enough for the one, and the keys of gaps would
            // belong to none.
            Kind::KeyShared
                if !self.consumers.is_empty() && self.ring.is_chosen() != consumer.ranges.is_some() =>
            {
                let text = "Subscription is of different key_shared policy: either all consumers choose hash ranges \
                            (sticky) or none";
                return Err(Error::new(ErrorKind::ConsumerBusy, text));
            }
            Kind::KeyShared
                if self.consumers.iter().any(|other| other.out_of_order != consumer.out_of_order) =>
            {
                let text = "Subscription is of different key_shared policy: either all consumers allow delivery out \
                            of order or none";
                return Err(Error::new(ErrorKind::ConsumerBusy, text));
            }
            Kind::KeyShared => match &consumer.ranges {
                None => self.ring.add(consumer.key),
                Some(ranges) => self
                    .ring
                    .add_chosen(consumer.key, ranges)
                    .map_err(|text| Error::new(ErrorKind::ConsumerAssign, text))?,
            },
            _ => {}
        }
        self.abandoned = None;
        self.consumers.push(consumer);
        // The sort is stable: among equals, the earlier consumer stays first.
        self.consumers.sort_by_key(|consumer| consumer.priority);
        Ok(())
    }

    /// Disconnects a consumer. The entries that it held are redelivered to the others.
    pub fn detach(&mut self, key: ConsumerKey) -> Option<Consumer> {
        let at = self.consumers.iter().position(|consumer| consumer.key == key)?;
        let mut consumer = self.consumers.remove(at);
        self.ring.remove(key);
        for (sequence, pending) in std::mem::take(&mut consumer.pending) {
            self.release_hash(key, pending.hash);
            self.replay.insert(sequence, pending.hash);
        }
        self.replay.extend(self.parked.remove(&key).into_iter().flatten());
        self.chunked.retain(|_, (consumer, _)| *consumer != key);
        if self.consumers.is_empty() {
            self.rewind();
            (self.active, self.switch) = (None, None);
        }
        Some(consumer)
    }

    /// Failover and Exclusive: elects the active consumer, and returns the consumers to be told
    /// whether they are active. `partition` spreads the partitions of a topic over the consumers. A
    /// new one takes over after `delay`, unless the former one has left.
    pub fn elect(
        &mut self,
        partition: Option<u32>,
        now: Instant,
        delay: Duration,
    ) -> Vec<(ConsumerKey, bool)> {
        if !self.kind.single() {
            return Vec::new();
        }
        let first = self.consumers.first().map(|consumer| consumer.priority);
        let mut equals: Vec<&Consumer> =
            self.consumers.iter().take_while(|consumer| Some(consumer.priority) == first).collect();
        // Every partition has the same order, whichever consumer came first to it.
        if partition.is_some() {
            equals.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let at = partition.map_or(0, |partition| partition as usize % equals.len().max(1));
        let chosen = equals.get(at).map(|consumer| consumer.key);
        self.change_active(chosen, now, delay);
        if self.kind != Kind::Failover {
            return Vec::new();
        }
        let former = self.switch.map(|(former, _)| former);
        // Those that stand by are told too. First who no longer is, then who is.
        let mut told: Vec<_> = self
            .consumers
            .iter_mut()
            .filter_map(|consumer| {
                if former.is_some() && Some(consumer.key) == chosen {
                    return None;
                }
                let is_active = Some(consumer.key) == former.or(chosen);
                let news = consumer.told_active.replace(is_active) != Some(is_active);
                news.then_some((consumer.key, is_active))
            })
            .collect();
        told.sort_by_key(|(_, is_active)| *is_active);
        told
    }

    /// Makes a consumer the active one, now or after `delay`.
    fn change_active(&mut self, chosen: Option<ConsumerKey>, now: Instant, delay: Duration) {
        let before = std::mem::replace(&mut self.active, chosen);
        let (former, at) = match self.switch.take() {
            Some(pending) => pending,
            None => match before.filter(|_| before != chosen) {
                Some(former) => (former, now + delay),
                None if before == chosen => return,
                // The first one.
                None => return self.rewind(),
            },
        };
        if Some(former) == chosen {
            // The one that was to take over has left before: the former one just continues.
            return;
        }
        let attached = self.consumers.iter().any(|consumer| consumer.key == former);
        if self.kind == Kind::Failover && attached && at > now {
            self.switch = Some((former, at));
        } else {
            // The new consumer gets everything that the previous one has not acknowledged.
            self.rewind();
        }
    }

    /// When the elected consumer takes over from the former one, if that is still to come.
    pub fn switch_at(&self) -> Option<Instant> {
        self.switch.map(|(_, at)| at)
    }

    /// Moves to `sequence`. The caller disconnects the consumers.
    pub fn seek(&mut self, sequence: u64, set: &[i64]) {
        self.cursor.reset(sequence, set);
        self.restart();
    }

    /// Skips everything before `sequence`; acknowledgements behind it stay. The caller disconnects
    /// the consumers.
    pub fn skip_to(&mut self, sequence: u64) {
        self.cursor.ack_below(sequence);
        self.restart();
    }

    /// Forgets what was delivered, after the cursor was moved.
    fn restart(&mut self) {
        self.dirty = true;
        self.redeliveries.clear();
        self.holders.clear();
        self.damage = None;
        for consumer in &mut self.consumers {
            consumer.pending.clear();
            consumer.unacked = 0;
        }
        self.rewind();
    }

    /// Acknowledges an entry or, of a batch, all messages except those in `set`.
    pub fn ack(&mut self, key: ConsumerKey, sequence: u64, set: &[i64], reading: &mut Reading<'_>) {
        if sequence >= reading.log.next() || self.cursor.is_acked(sequence) {
            return;
        }
        let done = if set.is_empty() {
            self.cursor.ack(sequence)
        } else {
            let count = self.count_of(sequence, set, reading);
            let done = self.cursor.ack_partial(sequence, set, count);
            if !done {
                let (left, _) = self.cursor.remaining(sequence, count);
                if let Some((consumer, pending)) = self.holder(key, sequence) {
                    consumer.unacked -= i64::from(pending.left) - i64::from(left.min(pending.left));
                    let left = left.min(pending.left);
                    consumer.pending.insert(sequence, Pending { left, ..pending });
                }
            }
            done
        };
        self.dirty = true;
        if done {
            self.release(key, sequence);
        }
    }

    /// Acknowledges everything up to an entry and, of the entry itself, all messages except those
    /// in `set`.
    pub fn ack_cumulative(&mut self, sequence: u64, set: &[i64], reading: &mut Reading<'_>) {
        if sequence >= reading.log.next() || !self.kind.single() {
            // Shared types have no order in which "up to" has a meaning; like the real broker,
            // ignore it.
            return;
        }
        self.dirty |= self.cursor.ack_below(if set.is_empty() { sequence + 1 } else { sequence });
        if !set.is_empty() {
            let count = self.count_of(sequence, set, reading);
            self.cursor.ack_partial(sequence, set, count);
            self.dirty = true;
        }
    }

    /// Number of messages of a batch. If it is not known and cannot be read, as many as the
    /// acknowledgement names.
    fn count_of(&self, sequence: u64, set: &[i64], reading: &mut Reading<'_>) -> u32 {
        let named = (set.len() as u32).saturating_mul(64);
        if self.cursor.is_partial(sequence) || *reading.peeks == 0 {
            return named;
        }
        let entry = reading.log.peek(sequence, reading.source).ok().flatten();
        let cost = PEEK_BYTES.max(entry.as_ref().map_or(0, |entry| entry.body.len()));
        if reading.log.cached(sequence).is_none() {
            *reading.peeks = reading.peeks.saturating_sub(cost);
        }
        entry.map_or(named, |entry| entry.count)
    }

    /// Redelivers entries that a consumer holds: those named, or all if no entry is named. Like the
    /// real broker, single-consumer types ignore the names.
    pub fn redeliver(&mut self, key: ConsumerKey, sequences: &[u64], epoch: Option<u64>) {
        if self.kind.single() {
            // One that stands by counts its epoch up as well, and drops what has an older one once
            // it is active.
            if let Some(consumer) = self.consumer(key) {
                consumer.epoch = epoch.max(consumer.epoch);
            }
            if self.active() == Some(key) {
                self.rewind();
            }
            return;
        }
        let Some(consumer) = self.consumers.iter_mut().find(|consumer| consumer.key == key) else { return };
        let held: Vec<(u64, Pending)> = if sequences.is_empty() {
            std::mem::take(&mut consumer.pending).into_iter().collect()
        } else {
            sequences.iter().filter_map(|s| consumer.pending.remove(s).map(|pending| (*s, pending))).collect()
        };
        for (sequence, pending) in held {
            if let Some(consumer) = self.consumer(key) {
                consumer.unacked -= i64::from(pending.left);
            }
            self.release_hash(key, pending.hash);
            *self.redeliveries.entry(sequence).or_default() += 1;
            self.replay.insert(sequence, pending.hash);
        }
    }

    /// Whether the consumers have come to an entry that cannot be read and are to be told: once
    /// everything before it is acknowledged, or when nothing was acknowledged for [`PATIENCE`], as
    /// by readers. Until then they keep what they have.
    pub fn is_stopped(&mut self, log: &Log, now: Instant) -> bool {
        let needed =
            |damage: &Damage| damage.sequence >= log.first() && !self.cursor.is_acked(damage.sequence);
        if !self.damage.as_ref().is_some_and(needed) {
            self.damage = None;
        }
        let Some(damage) = &mut self.damage else { return false };
        let since = *damage.since.get_or_insert(now);
        let had_all = self.cursor.next_unacked(log.first()) >= damage.sequence;
        damage.stopped |= had_all || now >= since + PATIENCE;
        damage.stopped
    }

    /// Why no consumer may connect: the entry that could not be read, unless it can be read now or
    /// is no longer needed.
    pub fn refusal(&mut self, reading: &mut Reading<'_>) -> Option<&Error> {
        let damage = self.damage.as_ref().filter(|damage| damage.stopped)?;
        let needed = damage.sequence >= reading.log.first() && !self.cursor.is_acked(damage.sequence);
        if !needed || reading.log.peek(damage.sequence, reading.source).is_ok() {
            self.damage = None;
        }
        self.damage.as_ref().map(|damage| &damage.error)
    }

    /// Restarts from the mark.
    fn rewind(&mut self) {
        self.read = self.cursor.below();
        self.replay.clear();
        self.delayed.clear();
        self.ahead.clear();
        self.chunked.clear();
        self.parked.clear();
    }

    /// The consumer that holds an entry. Usually the one that acknowledges it.
    fn holder(&mut self, key: ConsumerKey, sequence: u64) -> Option<(&mut Consumer, Pending)> {
        let holds = |consumer: &Consumer| consumer.pending.contains_key(&sequence);
        let at = self
            .consumers
            .iter()
            .position(|consumer| consumer.key == key && holds(consumer))
            .or_else(|| self.consumers.iter().position(holds))?;
        let consumer = &mut self.consumers[at];
        let pending = consumer.pending.get(&sequence).copied()?;
        Some((consumer, pending))
    }

    fn release(&mut self, key: ConsumerKey, sequence: u64) {
        self.redeliveries.remove(&sequence);
        self.replay.remove(&sequence);
        if let Some((consumer, pending)) = self.holder(key, sequence) {
            consumer.pending.remove(&sequence);
            consumer.unacked -= i64::from(pending.left);
            let key = consumer.key;
            self.release_hash(key, pending.hash);
        }
    }

    fn release_hash(&mut self, key: ConsumerKey, hash: u16) {
        if let Some((holder, count)) = self.holders.get_mut(&hash)
            && *holder == key
        {
            *count -= 1;
            if *count == 0 {
                self.holders.remove(&hash);
            }
        }
    }
}
