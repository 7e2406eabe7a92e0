//! Which entry goes to which consumer, and when.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Damage, Delivery, Kind, MAX_UNACKED, Pending, Reading, Sink, Subscription};
use crate::log::{CHUNK, Entry};
use crate::pulsar::names::Facts;
use forebay_base::random::HashSet;

/// Number of entries, for each consumer, that a Key_Shared subscription reads past blocked ones.
const LOOK_AHEAD: usize = 2_000;
/// Limit on the messages of a Shared subscription of which some chunks are delivered and others
/// not. Beyond it the rest of the oldest one may go to another consumer.
const MAX_CHUNKED: usize = 10_000;

impl Subscription {
    /// Sends every entry that can be sent now.
    pub fn dispatch(&mut self, reading: &mut Reading<'_>, sink: &mut dyn Sink) {
        match self.kind {
            Kind::Exclusive | Kind::Failover => self.dispatch_single(reading, sink),
            Kind::Shared => self.dispatch_shared(reading, sink),
            Kind::KeyShared => self.dispatch_by_key(reading, sink),
        }
    }

    /// The entry; `None` if there is none, or if it cannot be read and dispatch ends here.
    fn read_entry(&mut self, sequence: u64, reading: &mut Reading<'_>) -> Option<Entry> {
        let known = self.damage.as_ref().is_some_and(|damage| damage.sequence == sequence);
        match reading.log.get(sequence, &mut self.ahead, reading.source) {
            Ok(entry) => {
                if known {
                    self.damage = None;
                }
                entry
            }
            Err(error) => {
                if !known {
                    self.damage = Some(Damage { sequence, error, since: None, stopped: false });
                }
                None
            }
        }
    }

    fn dispatch_single(&mut self, reading: &mut Reading<'_>, sink: &mut dyn Sink) {
        if self.switch.is_some() {
            return;
        }
        let Some(at) = self.consumers.iter().position(|consumer| Some(consumer.key) == self.active) else {
            return;
        };
        while self.consumers[at].permits > 0 && sink.room(self.consumers[at].key) {
            self.read = self.cursor.next_unacked(self.read.max(reading.log.first()));
            if self.read >= reading.log.committed() {
                break;
            }
            let Some(entry) = self.read_entry(self.read, reading) else { break };
            self.read += 1;
            self.send(at, &entry, sink);
        }
    }

    fn dispatch_shared(&mut self, reading: &mut Reading<'_>, sink: &mut dyn Sink) {
        self.wake_delayed(reading.wall_ms);
        self.dispatch_parked(reading, sink);
        while self.parked.values().all(|entries| entries.len() < LOOK_AHEAD)
            && let Some(at) = self.next_consumer(sink)
        {
            let (sequence, again) = match self.replay.first_key_value() {
                Some((sequence, _)) => (*sequence, true),
                None => {
                    self.read = self.cursor.next_unacked(self.read.max(reading.log.first()));
                    (self.read, false)
                }
            };
            if sequence >= reading.log.committed() {
                break;
            }
            if again && (sequence < reading.log.first() || self.cursor.is_acked(sequence)) {
                self.replay.pop_first();
                continue;
            }
            let Some(entry) = self.read_entry(sequence, reading) else { break };
            if again {
                self.replay.pop_first();
            } else {
                self.read += 1;
            }
            if entry.deliver_ms > reading.wall_ms {
                self.delayed.push(Reverse((entry.deliver_ms, sequence, entry.hash)));
                continue;
            }
            if entry.flags & CHUNK != 0 {
                let at = self.owner_of_chunk(&entry, at);
                if self.has_room(at, sink) {
                    self.send(at, &entry, sink);
                } else {
                    let key = self.consumers[at].key;
                    self.parked.entry(key).or_default().insert(sequence, entry.hash);
                }
                continue;
            }
            self.rotation = at + 1;
            self.send(at, &entry, sink);
        }
    }

    /// The consumer for a chunk: the one that has the others of its message, or else the one whose
    /// turn it is. A client puts a message together from chunks of one consumer only.
    fn owner_of_chunk(&mut self, entry: &Entry, turn: usize) -> usize {
        let Facts { uuid, chunk_follows, .. } = Facts::read(&entry.body);
        let known = self.chunked.get(&uuid).map(|(key, _)| *key);
        let at = known.and_then(|key| self.consumers.iter().position(|consumer| consumer.key == key));
        if !chunk_follows {
            self.chunked.remove(&uuid);
        } else if at.is_none() {
            if self.chunked.len() >= MAX_CHUNKED
                && let Some(oldest) =
                    self.chunked.iter().min_by_key(|(_, (_, first))| *first).map(|(u, _)| *u)
            {
                self.chunked.remove(&oldest);
            }
            self.chunked.insert(uuid, (self.consumers[turn].key, entry.sequence));
        }
        at.unwrap_or_else(|| {
            self.rotation = turn + 1;
            turn
        })
    }

    /// Sends the chunks that waited for their consumer.
    fn dispatch_parked(&mut self, reading: &mut Reading<'_>, sink: &mut dyn Sink) {
        if self.parked.is_empty() {
            return;
        }
        for at in 0..self.consumers.len() {
            let key = self.consumers[at].key;
            while let Some((&sequence, _)) = self.parked.get(&key).and_then(BTreeMap::first_key_value) {
                let gone = sequence < reading.log.first() || self.cursor.is_acked(sequence);
                if !gone {
                    if !self.has_room(at, sink) {
                        break;
                    }
                    let Some(entry) = self.read_entry(sequence, reading) else { break };
                    self.send(at, &entry, sink);
                }
                self.parked.get_mut(&key).map(BTreeMap::pop_first);
            }
        }
        self.parked.retain(|_, entries| !entries.is_empty());
    }

    fn dispatch_by_key(&mut self, reading: &mut Reading<'_>, sink: &mut dyn Sink) {
        self.wake_delayed(reading.wall_ms);
        if self.next_consumer(sink).is_none() {
            return;
        }
        let mut blocked = HashSet::default();
        let waiting: Vec<(u64, u16)> =
            self.replay.iter().map(|(sequence, hash)| (*sequence, *hash)).collect();
        for (sequence, hash) in waiting {
            if sequence < reading.log.first() || self.cursor.is_acked(sequence) {
                self.replay.remove(&sequence);
                continue;
            }
            let Some(at) = self.owner_with_permits(hash, &mut blocked, sink) else { continue };
            let Some(entry) = self.read_entry(sequence, reading) else { break };
            self.replay.remove(&sequence);
            self.send_or_delay(at, &entry, reading.wall_ms, sink);
        }
        let look_ahead = LOOK_AHEAD * self.consumers.len();
        while self.replay.len() < look_ahead && self.next_consumer(sink).is_some() {
            self.read = self.cursor.next_unacked(self.read.max(reading.log.first()));
            if self.read >= reading.log.committed() {
                break;
            }
            let Some(entry) = self.read_entry(self.read, reading) else { break };
            self.read += 1;
            match self.owner_with_permits(entry.hash, &mut blocked, sink) {
                Some(at) => self.send_or_delay(at, &entry, reading.wall_ms, sink),
                None => drop(self.replay.insert(entry.sequence, entry.hash)),
            }
        }
    }

    /// The owner of the slot, if an entry of it may be sent now. If not, no entry of the slot may
    /// be sent in this pass, because it would overtake another.
    fn owner_with_permits(
        &self,
        hash: u16,
        blocked: &mut HashSet<u16>,
        sink: &mut dyn Sink,
    ) -> Option<usize> {
        if blocked.contains(&hash) {
            return None;
        }
        let at = self.ring.owner(hash).and_then(|key| self.consumers.iter().position(|c| c.key == key));
        let at = at.filter(|at| {
            let consumer = &self.consumers[*at];
            // After a slot has changed its owner, it waits until the previous owner has
            // acknowledged the entries it holds.
            let drained = consumer.out_of_order
                || self.holders.get(&hash).is_none_or(|(holder, _)| *holder == consumer.key);
            drained && self.has_room(*at, sink)
        });
        if at.is_none() {
            blocked.insert(hash);
        }
        at
    }

    fn send_or_delay(&mut self, at: usize, entry: &Entry, wall_ms: u64, sink: &mut dyn Sink) {
        if entry.deliver_ms > wall_ms {
            self.delayed.push(Reverse((entry.deliver_ms, entry.sequence, entry.hash)));
        } else {
            self.send(at, entry, sink);
        }
    }

    fn send(&mut self, at: usize, entry: &Entry, sink: &mut dyn Sink) {
        let (left, ack_set) = self.cursor.remaining(entry.sequence, entry.count);
        let redelivery_count = self.redeliveries.get(&entry.sequence).copied().unwrap_or(0);
        let consumer = &mut self.consumers[at];
        consumer.permits -= i64::from(left);
        consumer.delivered += u64::from(left);
        if !self.kind.single() {
            consumer.unacked += i64::from(left);
            consumer.pending.insert(entry.sequence, Pending { left, hash: entry.hash });
            if self.kind == Kind::KeyShared && !consumer.out_of_order {
                self.holders.entry(entry.hash).or_insert((consumer.key, 0)).1 += 1;
            }
        }
        sink.deliver(Delivery {
            consumer: consumer.key,
            entry,
            redelivery_count,
            ack_set,
            epoch: consumer.epoch,
        });
    }

    /// The next consumer in turn with permits, of the lowest priority number that has one.
    pub(super) fn next_consumer(&self, sink: &mut dyn Sink) -> Option<usize> {
        let n = self.consumers.len();
        let mut best: Option<usize> = None;
        for step in 0..n {
            let at = (self.rotation + step) % n;
            let consumer = &self.consumers[at];
            if best.is_some_and(|best| self.consumers[best].priority <= consumer.priority) {
                continue;
            }
            if self.has_room(at, sink) {
                best = Some(at);
            }
        }
        best
    }

    /// Whether a consumer of a shared type may be sent more.
    pub(super) fn has_room(&self, at: usize, sink: &mut dyn Sink) -> bool {
        let consumer = &self.consumers[at];
        consumer.permits > 0 && consumer.unacked < MAX_UNACKED && sink.room(consumer.key)
    }

    fn wake_delayed(&mut self, wall_ms: u64) {
        while let Some(Reverse((due, sequence, hash))) = self.delayed.peek().copied() {
            if due > wall_ms {
                break;
            }
            self.delayed.pop();
            self.replay.insert(sequence, hash);
        }
    }
}
