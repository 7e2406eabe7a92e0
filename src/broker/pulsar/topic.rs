//! A topic or partition: its log, its subscriptions and its producers, with the rules of exclusive
//! access and the highest sequence id of each producer for deduplication.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use crate::log::{self, Log, Source};
use crate::pulsar::subscription::Subscription;
use crate::store::Op;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::random::HashMap;

/// The number from which the topics are not persistent. A store has fewer.
pub const NON_PERSISTENT: u64 = 1 << 63;

/// Part of a topic's entries that [`Topic::release`] removes at a time.
const RELEASED_PART: u64 = 16;

/// Whether the topic of this number may have rows in the store.
pub fn is_stored(topic: u64) -> bool {
    topic < NON_PERSISTENT
}

/// Numbers of non-persistent topics, and which of the partitioned ones may go.
#[derive(Debug, Default)]
pub struct NonPersistent {
    /// Number of topics so far.
    count: u64,
    /// Partitioned topics that were created by their first use.
    pub fleeting: BTreeSet<Arc<str>>,
}

impl NonPersistent {
    /// The number of a new topic.
    pub fn next_id(&mut self) -> u64 {
        self.count += 1;
        NON_PERSISTENT + self.count
    }
}

/// Identifies a producer: its connection, and its id there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerKey {
    /// Connection.
    pub session: u64,
    /// Id that the client chose.
    pub id: u64,
}

/// State of a producer that outlives its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerState {
    /// Highest sequence id that was received, written or not.
    pub last: i64,
    /// How long brokers had run on the store then, in milliseconds.
    pub touched_ms: u64,
    /// The user that the name belongs to.
    pub owner: Option<Arc<str>>,
}

/// Access mode of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Shared with other producers.
    Shared,
    /// Exclusive; refused if the topic has a producer.
    Exclusive,
    /// Exclusive; waits until the other producers have closed.
    WaitForExclusive,
    /// Exclusive; fences the other producers.
    Fencing,
}

/// A producer that asks for admission.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Connection and id.
    pub key: ProducerKey,
    /// Name.
    pub name: Arc<str>,
    /// The user that the name belongs to.
    pub owner: Option<Arc<str>>,
    /// Access mode.
    pub access: Access,
    /// Counts the connections of the producer.
    pub epoch: u64,
    /// Topic epoch that a reconnecting producer had.
    pub topic_epoch: Option<u64>,
}

/// The outcome of an admission.
#[derive(Debug, PartialEq, Eq)]
pub enum Admission {
    /// The producer may write; those in the list are fenced.
    Ready(Vec<ProducerKey>),
    /// The producer waits.
    Waiting,
}

/// The oldest entry of a topic. One that cannot be read counts as infinitely old.
#[derive(Clone, Copy, Debug, Default)]
struct Oldest {
    sequence: u64,
    /// Its [`Entry::run_ms`](log::Entry::run_ms).
    run_ms: u64,
    /// Its [`log::weight`].
    bytes: usize,
}

/// A topic or partition, as the [module](self) describes.
#[derive(Debug)]
pub struct Topic {
    /// Topic id, which is the ledger id of its message ids.
    pub id: u64,
    /// Full name.
    pub name: Arc<str>,
    /// Index among the partitions of its parent.
    pub partition: Option<u32>,
    /// Entries.
    pub log: Log,
    /// Subscriptions by name; the order makes runs repeatable.
    pub subscriptions: BTreeMap<Arc<str>, Subscription>,
    /// Producers whose messages were received lately, connected or not.
    pub sequences: HashMap<Arc<str>, ProducerState>,
    /// Epoch of the exclusive producer.
    pub epoch: u64,
    /// Messages received since the start.
    pub received: u64,
    /// Whether it takes no more messages.
    pub terminated: bool,
    /// Non-persistent: since when housekeeping has found it without producers and subscriptions.
    pub idle: Option<Instant>,
    /// The oldest entry, cached so that housekeeping does not read the disk each time.
    oldest: Option<Oldest>,
    producers: BTreeMap<ProducerKey, Candidate>,
    waiting: VecDeque<Candidate>,
    exclusive: bool,
}

impl Topic {
    /// A topic with this log.
    pub fn new(id: u64, name: Arc<str>, partition: Option<u32>, log: Log) -> Self {
        Self {
            id,
            name,
            partition,
            log,
            subscriptions: BTreeMap::new(),
            sequences: HashMap::default(),
            epoch: 0,
            received: 0,
            terminated: false,
            idle: None,
            oldest: None,
            producers: BTreeMap::new(),
            waiting: VecDeque::new(),
            exclusive: false,
        }
    }

    /// Index among the partitions of its parent, or -1, as message ids have it.
    pub fn partition(&self) -> i32 {
        self.partition.map_or(-1, |partition| partition as i32)
    }

    /// Connected producers.
    pub fn producers(&self) -> impl Iterator<Item = &Candidate> {
        self.producers.values()
    }

    /// The owner of a producer's name: of one that is connected or waits, or of one that was.
    /// `None` if there is no producer of this name.
    pub fn producer_owner(&self, name: &str) -> Option<Option<&Arc<str>>> {
        let connected = self.producers.values().chain(&self.waiting).find(|producer| *producer.name == *name);
        let known = || self.sequences.get(name).map(|state| state.owner.as_ref());
        connected.map(|producer| producer.owner.as_ref()).or_else(known)
    }

    /// Whether it has a producer, one that waits for its turn, or a subscription.
    pub fn is_used(&self) -> bool {
        !(self.producers.is_empty() && self.waiting.is_empty() && self.subscriptions.is_empty())
    }

    /// Ends the topic for good. Returns the producers that wrote and those that waited for their
    /// turn.
    pub fn terminate(&mut self) -> Vec<ProducerKey> {
        self.terminated = true;
        self.take_producers()
    }

    /// Removes all producers: those that wrote and those that waited for their turn.
    pub fn take_producers(&mut self) -> Vec<ProducerKey> {
        self.exclusive = false;
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|candidate| candidate.key);
        std::mem::take(&mut self.producers).into_keys().chain(waiting).collect()
    }

    /// Admits a producer.
    pub fn admit(&mut self, candidate: Candidate) -> Result<Admission> {
        if self.terminated {
            return Err(Error::new(ErrorKind::TopicTerminated, "Topic was already terminated"));
        }
        let same = self.producers.values().find(|producer| producer.name == candidate.name);
        if let Some(same) = same {
            // The same producer on a newer connection of its client, before the broker has noticed
            // that the old one is dead.
            if same.key.id != candidate.key.id || same.epoch >= candidate.epoch {
                return Err(Error::new(
                    ErrorKind::ProducerBusy,
                    format!("Producer with name '{}' is already connected to topic", candidate.name),
                ));
            }
            let (old, shared) = (same.key, same.access == Access::Shared);
            if shared && !self.waiting.is_empty() {
                // It wants to be exclusive now. Those that wait already come before it.
                match candidate.access {
                    Access::Exclusive => {
                        let text = "Topic has other producers that wait to be exclusive";
                        return Err(Error::new(ErrorKind::ProducerFenced, text));
                    }
                    Access::WaitForExclusive => {
                        let text =
                            format!("Producer with name '{}' is already connected to topic", candidate.name);
                        return Err(Error::new(ErrorKind::ProducerBusy, text));
                    }
                    Access::Shared | Access::Fencing => {}
                }
            }
            let (replaced, exclusive) = (self.producers.remove(&old), self.exclusive);
            if self.producers.is_empty() {
                self.exclusive = false;
            }
            return match self.admit(candidate) {
                Ok(Admission::Ready(mut out)) => {
                    out.push(old);
                    Ok(Admission::Ready(out))
                }
                Ok(waiting) => Ok(waiting),
                Err(error) => {
                    // The old one stays, or the topic would have no producer whose end lets the
                    // waiting ones in.
                    self.exclusive = exclusive;
                    self.producers.extend(replaced.map(|producer| (old, producer)));
                    Err(error)
                }
            };
        }
        let fenced = |text: &str| Err(Error::new(ErrorKind::ProducerFenced, text));
        if candidate.access != Access::Shared && candidate.topic_epoch.is_some_and(|epoch| epoch < self.epoch)
        {
            return fenced(
                "The topic epoch of the producer is in the past: another one has been exclusive since",
            );
        }
        match candidate.access {
            Access::Shared if self.exclusive || !self.waiting.is_empty() => {
                Err(Error::new(ErrorKind::ProducerBusy, "Topic has an existing exclusive producer"))
            }
            Access::Shared => {
                self.producers.insert(candidate.key, candidate);
                Ok(Admission::Ready(Vec::new()))
            }
            Access::Exclusive if self.exclusive || !self.producers.is_empty() => {
                fenced("Topic has other producers connected")
            }
            Access::WaitForExclusive if self.exclusive || !self.producers.is_empty() => {
                self.waiting.push_back(candidate);
                Ok(Admission::Waiting)
            }
            Access::Fencing => {
                let out = self.take_producers();
                self.begin_term(candidate);
                Ok(Admission::Ready(out))
            }
            Access::Exclusive | Access::WaitForExclusive => {
                self.begin_term(candidate);
                Ok(Admission::Ready(Vec::new()))
            }
        }
    }

    /// Removes a producer. Returns the waiting producer that is admitted in its place.
    pub fn remove_producer(&mut self, key: ProducerKey) -> Option<Candidate> {
        self.waiting.retain(|candidate| candidate.key != key);
        self.producers.remove(&key)?;
        if !self.producers.is_empty() {
            return None;
        }
        self.exclusive = false;
        let next = self.waiting.pop_front()?;
        self.begin_term(next.clone());
        Some(next)
    }

    fn begin_term(&mut self, candidate: Candidate) {
        self.exclusive = true;
        self.epoch = candidate.topic_epoch.map_or(self.epoch + 1, |epoch| epoch.max(self.epoch));
        self.producers.insert(candidate.key, candidate);
    }

    /// The oldest entry that a durable subscription still needs.
    pub fn needed_from(&self) -> u64 {
        let marks = self.subscriptions.values().filter(|s| s.durable).map(|s| s.cursor.below());
        marks.min().unwrap_or(u64::MAX).min(self.log.committed())
    }

    /// Whether a durable subscription says which entries are acknowledged. Without one, all of them
    /// are kept until [`Self::release`] is called.
    pub fn has_durable(&self) -> bool {
        self.subscriptions.values().any(|subscription| subscription.durable)
    }

    /// The first entry to keep, if older ones can be removed: entries that all durable
    /// subscriptions have acknowledged and that were received before `run_before`, or exceed
    /// `limit` bytes of memory.
    pub fn cut(
        &mut self,
        source: &mut Option<Box<dyn Source>>,
        run_before: u64,
        limit: usize,
    ) -> Option<u64> {
        let needed = self.needed_from();
        if needed <= self.log.first() || !self.has_durable() {
            return None;
        }
        let mut cut = self.log.first();
        if self.oldest(source).run_ms < run_before {
            let found = self.log.search(source, |entry| entry.run_ms >= run_before);
            cut = found.map_or(needed, |found| found.min(needed));
        }
        let mut bytes = self.log.cache_bytes();
        while bytes > limit && cut < needed {
            bytes = bytes.saturating_sub(self.log.cached(cut).map_or(0, log::weight));
            cut += 1;
        }
        (cut > self.log.first()).then_some(cut)
    }

    /// Removes the entries before `first`. Returns an estimate of their bytes, by the size of the
    /// oldest one.
    pub fn trim(&mut self, source: &mut Option<Box<dyn Source>>, first: u64) -> u64 {
        let bytes = self.oldest(source).bytes as u64 * first.saturating_sub(self.log.first());
        self.log.trim(first);
        bytes
    }

    /// The change that removes from the store what was trimmed.
    pub fn trimmed(&self) -> Op {
        let log = &self.log;
        Op::Trim { topic: self.id, first: log.first(), next: log.next(), next_index: log.next_index() }
    }

    /// The [`Entry::run_ms`](log::Entry::run_ms) of the oldest entry that [`Self::release`] could
    /// remove.
    pub fn releasable(&mut self, source: &mut Option<Box<dyn Source>>) -> Option<u64> {
        let empty = self.log.first() >= self.log.committed();
        (!empty && !self.has_durable()).then(|| self.oldest(source).run_ms)
    }

    /// Removes the oldest committed entries: at least one, and others that were received until
    /// `run_until`, as long as there are fewer than `bytes`. Returns the number of bytes, which is
    /// an estimate if the entries are on disk: a call removes a part of the entries only.
    pub fn release(&mut self, source: &mut Option<Box<dyn Source>>, run_until: u64, bytes: usize) -> usize {
        let (first, each) = (self.log.first(), self.oldest(source).bytes.max(1));
        let part = (self.log.committed() - first).div_ceil(RELEASED_PART);
        let found = self.log.search(source, |entry| entry.run_ms > run_until).unwrap_or(first);
        let end = found.clamp(first + 1, first + part);
        let (mut cut, mut removed) = (first, 0);
        while cut < end && (removed < bytes || cut == first) {
            removed += self.log.cached(cut).map_or(each, log::weight);
            cut += 1;
        }
        self.log.trim(cut);
        removed
    }

    fn oldest(&mut self, source: &mut Option<Box<dyn Source>>) -> Oldest {
        let sequence = self.log.first();
        if let Some(oldest) = self.oldest.filter(|oldest| oldest.sequence == sequence) {
            return oldest;
        }
        // Nothing older than the first entry that is needed is missed if it cannot be read.
        let found = self.log.peek(sequence, source).ok().flatten();
        let oldest = found.map_or(Oldest { sequence, ..Oldest::default() }, |entry| Oldest {
            sequence,
            run_ms: entry.run_ms,
            bytes: log::weight(&entry),
        });
        *self.oldest.insert(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::cursor::Cursor;
    use crate::pulsar::subscription::Kind;

    fn topic() -> Topic {
        Topic::new(1, "t".into(), None, Log::new(1, false, 0, 0, 0, None))
    }

    fn candidate(session: u64, name: &str, access: Access) -> Candidate {
        Candidate {
            key: ProducerKey { session, id: 1 },
            name: name.into(),
            owner: None,
            access,
            epoch: 0,
            topic_epoch: None,
        }
    }

    #[test]
    fn the_slowest_durable_subscription_decides_what_is_kept() {
        let mut topic = topic();
        for _ in 0..10 {
            topic.log.append(log::tests::entry(1, 5));
        }
        topic.log.commit(10);
        let subscribe = |topic: &mut Topic, name: &str, durable: bool, below: u64| {
            let made = Subscription::new(name.into(), Kind::Shared, durable, Cursor::new(below));
            topic.subscriptions.insert(name.into(), made);
        };
        let all = topic.cut(&mut None, u64::MAX, 0);
        assert_eq!((topic.needed_from(), all), (10, None), "without a subscription, nothing goes");
        subscribe(&mut topic, "fast", true, 8);
        subscribe(&mut topic, "slow", true, 3);
        subscribe(&mut topic, "reader", false, 0);
        assert_eq!(topic.needed_from(), 3);
        assert_eq!(topic.cut(&mut None, u64::MAX, usize::MAX), Some(3), "by age");
        assert_eq!(topic.cut(&mut None, 0, 0), Some(3), "by memory");
    }

    #[test]
    fn entries_are_released_by_age_and_size_a_part_at_a_time() {
        let mut topic = topic();
        for time in 0..32 {
            topic.log.append(log::tests::entry(1, time));
        }
        topic.log.commit(32);
        let each = log::weight(&log::tests::entry(1, 0));
        let mut release = |until, bytes| (topic.release(&mut None, until, bytes), topic.log.first());
        assert_eq!(release(u64::MAX, 1), (each, 1), "by size");
        assert_eq!(release(1, usize::MAX), (each, 2), "by age");
        assert_eq!(release(0, usize::MAX), (each, 3), "the oldest in any case");
        assert_eq!(release(u64::MAX, usize::MAX), (2 * each, 5), "a part");
        assert_eq!(topic.releasable(&mut None), Some(5));
        while topic.releasable(&mut None).is_some() {
            topic.release(&mut None, u64::MAX, usize::MAX);
        }
        assert_eq!((topic.log.first(), topic.log.cache_bytes()), (32, 0));
    }

    fn refused(topic: &mut Topic, candidate: Candidate) -> ErrorKind {
        topic.admit(candidate).unwrap_err().kind()
    }

    #[test]
    fn an_exclusive_producer_is_alone() {
        let mut topic = topic();
        assert_eq!(topic.admit(candidate(1, "a", Access::Exclusive)).unwrap(), Admission::Ready(vec![]));
        assert_eq!(refused(&mut topic, candidate(2, "b", Access::Shared)), ErrorKind::ProducerBusy);
        assert_eq!(refused(&mut topic, candidate(2, "b", Access::Exclusive)), ErrorKind::ProducerFenced);
        assert_eq!(topic.remove_producer(ProducerKey { session: 1, id: 1 }).map(|c| c.key), None);
        assert_eq!(topic.admit(candidate(2, "b", Access::Shared)).unwrap(), Admission::Ready(vec![]));
        assert_eq!(refused(&mut topic, candidate(1, "a", Access::Exclusive)), ErrorKind::ProducerFenced);
    }

    #[test]
    fn who_waits_gets_its_turn() {
        let mut topic = topic();
        topic.admit(candidate(1, "a", Access::Shared)).unwrap();
        assert_eq!(topic.admit(candidate(2, "b", Access::WaitForExclusive)).unwrap(), Admission::Waiting);
        assert_eq!(refused(&mut topic, candidate(3, "c", Access::Shared)), ErrorKind::ProducerBusy);
        assert_eq!(&*topic.remove_producer(ProducerKey { session: 1, id: 1 }).unwrap().name, "b");
        assert_eq!(topic.epoch, 1);
    }

    #[test]
    fn fencing_puts_the_others_out_and_their_term_ends() {
        let mut topic = topic();
        topic.admit(candidate(1, "a", Access::Exclusive)).unwrap();
        let out = topic.admit(candidate(2, "b", Access::Fencing)).unwrap();
        assert_eq!(out, Admission::Ready(vec![ProducerKey { session: 1, id: 1 }]));
        topic.remove_producer(ProducerKey { session: 2, id: 1 });
        let back = Candidate { topic_epoch: Some(1), ..candidate(1, "a", Access::Exclusive) };
        assert_eq!(refused(&mut topic, back), ErrorKind::ProducerFenced);
    }

    #[test]
    fn fencing_puts_out_who_waits_as_well() {
        let mut topic = topic();
        topic.admit(candidate(1, "a", Access::Exclusive)).unwrap();
        topic.admit(candidate(2, "b", Access::WaitForExclusive)).unwrap();
        let out = topic.admit(candidate(3, "c", Access::Fencing)).unwrap();
        let key = |session| ProducerKey { session, id: 1 };
        assert_eq!(out, Admission::Ready(vec![key(1), key(2)]));
        assert!(topic.remove_producer(key(3)).is_none(), "no producer waits any more");
    }

    #[test]
    fn a_refused_change_of_mode_loses_no_producer_and_overtakes_none() {
        let mut topic = topic();
        let key = |session| ProducerKey { session, id: 1 };
        let newer = |access| Candidate { epoch: 1, ..candidate(9, "a", access) };
        topic.admit(candidate(1, "a", Access::Shared)).unwrap();
        topic.admit(candidate(2, "b", Access::WaitForExclusive)).unwrap();
        assert_eq!(refused(&mut topic, newer(Access::Shared)), ErrorKind::ProducerBusy);
        assert_eq!(refused(&mut topic, newer(Access::Exclusive)), ErrorKind::ProducerFenced);
        assert_eq!(refused(&mut topic, newer(Access::WaitForExclusive)), ErrorKind::ProducerBusy);
        assert_eq!(topic.remove_producer(key(1)).map(|next| next.key), Some(key(2)), "its turn has come");
        // The exclusive one may come again on a newer connection, before those that wait.
        topic.admit(candidate(3, "c", Access::WaitForExclusive)).unwrap();
        let again = Candidate { epoch: 1, ..candidate(4, "b", Access::WaitForExclusive) };
        assert_eq!(topic.admit(again).unwrap(), Admission::Ready(vec![key(2)]));
        let late = Candidate { epoch: 2, topic_epoch: Some(0), ..candidate(5, "b", Access::Exclusive) };
        assert_eq!(refused(&mut topic, late), ErrorKind::ProducerFenced);
        assert_eq!(refused(&mut topic, candidate(6, "d", Access::Exclusive)), ErrorKind::ProducerFenced);
        assert_eq!(topic.remove_producer(key(4)).map(|next| next.key), Some(key(3)));
    }

    #[test]
    fn a_name_is_taken_over_only_by_a_newer_epoch_of_the_same_producer() {
        let mut topic = topic();
        topic.admit(candidate(1, "a", Access::Shared)).unwrap();
        assert_eq!(refused(&mut topic, candidate(2, "a", Access::Shared)), ErrorKind::ProducerBusy);
        let newer = Candidate { epoch: 1, ..candidate(2, "a", Access::Shared) };
        assert_eq!(topic.admit(newer).unwrap(), Admission::Ready(vec![ProducerKey { session: 1, id: 1 }]));
    }
}
