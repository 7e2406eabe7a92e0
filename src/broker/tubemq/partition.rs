//! A topic and its partitions: logs, positions of groups, and the clients that hold them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use crate::log::{Entry, Log, Source};
use forebay_base::random::HashSet;
use forebay_tubemq::Code;
use forebay_tubemq::topic::TopicShare;

/// Number of this broker.
pub(super) const BROKER: u32 = 1;
/// Units of a client's offset for each message: clients take offsets for positions in an index of
/// 28 bytes for each.
pub(super) const OFFSET_UNIT: u64 = 28;

/// Messages at the front of a partition that may be unreadable before their age is given up.
const UNREADABLE: usize = 100;

/// Why a call is refused: the code and text of its response.
pub(super) type Refusal = (Code, String);

/// A topic.
#[derive(Debug)]
pub(super) struct Topic {
    /// Number in the store.
    pub(super) id: u64,
    /// Numbers of the partitions, in order.
    pub(super) partitions: Vec<u64>,
}

impl Topic {
    /// The topic's place on this broker.
    pub(super) fn share(&self) -> TopicShare {
        TopicShare { broker: BROKER, stores: 1, partitions: self.partitions.len() as u32 }
    }
}

/// A partition of a topic.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) log: Log,
    /// Position of each group.
    pub(super) offsets: BTreeMap<Arc<str>, Position>,
    /// Holder of the partition in each group.
    pub(super) leases: BTreeMap<Arc<str>, Lease>,
    /// Messages received since the start.
    pub(super) received: u64,
}

/// Position of a group in a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    /// Next message.
    pub(super) next: u64,
    /// How long brokers had run on the store when the position was last written, in milliseconds.
    pub(super) touched_ms: u64,
}

/// A partition held by one client of a group.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) client: String,
    /// User of the client; no other may renew or release the lease under its id.
    pub(super) user: Arc<str>,
    /// Latest connection on which the client registered, sent a heartbeat or, without users, read.
    /// Calls on earlier ones are late. Where there are users, gets and commits come on this one
    /// only: the client id alone proves nothing.
    pub(super) connection: u64,
    pub(super) expires: Instant,
    /// Message types that the client consumes; all if empty.
    pub(super) filters: HashSet<String>,
    /// End of the messages that were delivered and are not acknowledged.
    pub(super) pack: Option<u64>,
    /// Messages delivered.
    pub(super) delivered: u64,
    /// Whether the group's offset is for this client only: it is not stored, holds no messages
    /// back, and ends with the lease.
    pub(super) passing: bool,
    /// Entries read ahead from the store.
    pub(super) ahead: VecDeque<Entry>,
}

impl Partition {
    /// A partition without groups.
    pub(super) fn new(log: Log) -> Self {
        Self { log, offsets: BTreeMap::new(), leases: BTreeMap::new(), received: 0 }
    }

    /// Moves a group, or adds it. The caller writes the offset.
    pub(super) fn set_offset(&mut self, group: &Arc<str>, next: u64) {
        self.offsets.entry(group.clone()).or_insert(Position { next, touched_ms: 0 }).next = next;
    }

    /// Moves a group for an operator. What its client has and did not confirm, it cannot confirm
    /// any more: its next get is for the messages from here. The caller writes the offset.
    pub(super) fn reset(&mut self, group: &Arc<str>, next: u64) {
        if let Some(lease) = self.leases.get_mut(group) {
            lease.pack = None;
        }
        self.set_offset(group, next);
    }

    /// Ends the lease of a group.
    pub(super) fn release(&mut self, group: &str) {
        if self.leases.remove(group).is_some_and(|lease| lease.passing) {
            self.offsets.remove(group);
        }
    }

    /// Ends the leases that have expired.
    pub(super) fn expire(&mut self, now: Instant) {
        let Self { leases, offsets, .. } = self;
        leases.retain(|group, lease| {
            let keep = lease.expires > now;
            if !keep && lease.passing {
                offsets.remove(group);
            }
            keep
        });
    }

    /// Whether the offset of a group ends with its lease.
    pub(super) fn is_passing(&self, group: &str) -> bool {
        self.leases.get(group).is_some_and(|lease| lease.passing)
    }

    /// The next message of a group that is still retained.
    pub(super) fn offset(&self, group: &str) -> Option<u64> {
        Some(self.offsets.get(group)?.next.clamp(self.log.first(), self.log.committed()))
    }

    /// The first entry to keep, if older ones can be removed: those received before `run_before`
    /// and, when the store is `short` of space, those that every group has consumed.
    pub(super) fn cut(
        &self,
        source: &mut Option<Box<dyn Source>>,
        run_before: u64,
        short: bool,
    ) -> Option<u64> {
        let first = self.log.first();
        let mut cut = first;
        let old = |entry: &Entry| entry.run_ms < run_before;
        // A message that cannot be read is as old as the next one that can, or older. Without one,
        // its age is unknown and it stays.
        let next = (first..self.log.committed()).take(UNREADABLE);
        let readable = next.filter_map(|at| self.log.peek(at, source).ok().flatten()).next();
        if let Some(entry) = readable.filter(old) {
            cut = self.log.search(source, |entry| !old(entry)).unwrap_or(entry.sequence + 1);
        }
        let consuming = self.offsets.iter().filter(|(group, _)| !self.is_passing(group));
        if short && let Some(had) = consuming.map(|(_, position)| position.next).min() {
            cut = cut.max(had.min(self.log.committed()));
        }
        (cut > first).then_some(cut)
    }
}

/// The lease of a group, if `client` of `user` holds it.
pub(super) fn held<'a>(
    leases: &'a mut BTreeMap<Arc<str>, Lease>,
    group: &str,
    client: &str,
    user: &str,
) -> Result<&'a mut Lease, Refusal> {
    match leases.get_mut(group) {
        Some(lease) if lease.client == client && *lease.user == *user => Ok(lease),
        Some(_) => {
            // Names no client: its id is what a stranger would need next.
            Err((Code::DuplicatePartition, "another client of the group holds the partition".into()))
        }
        None => Err((Code::NoNode, "the client does not hold the partition".into())),
    }
}

/// An offset in the unit of the clients.
pub(super) fn offset_of(sequence: u64) -> i64 {
    (sequence * OFFSET_UNIT) as i64
}

/// Name of a partition's row.
pub(super) fn row_name(topic: &str, index: usize) -> Arc<str> {
    format!("{topic}:{index}").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::entry;

    #[test]
    fn the_slowest_group_decides_what_is_removed_when_space_is_short() {
        let mut partition = Partition::new(Log::new(1, false, 0, 0, 0, None));
        for _ in 0..10 {
            partition.log.append(entry(1, 5));
        }
        partition.log.commit(10);
        assert_eq!(partition.cut(&mut None, 0, true), None, "no group has had anything");
        partition.set_offset(&"fast".into(), 8);
        partition.set_offset(&"slow".into(), 3);
        assert_eq!(partition.cut(&mut None, 0, false), None, "there is space");
        assert_eq!(partition.cut(&mut None, 0, true), Some(3));
        let lease = Lease {
            client: "c".into(),
            user: "".into(),
            connection: 1,
            expires: Instant::now(),
            filters: HashSet::default(),
            pack: None,
            delivered: 0,
            ahead: VecDeque::new(),
            passing: true,
        };
        partition.leases.insert("slow".into(), lease);
        assert_eq!(partition.cut(&mut None, 0, true), Some(8), "what is read in passing holds nothing back");
        partition.release("slow");
        assert!(!partition.offsets.contains_key("slow"));
        assert_eq!(partition.cut(&mut None, 6, false), Some(10), "all are old, consumed or not");
    }
}
