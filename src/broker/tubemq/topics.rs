//! Topics and their partitions. In the store, a topic has a row with its number of partitions, and
//! each partition has a row of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::partition::{BROKER, Partition, Position, Topic, row_name};
use super::{Broker, DOMAIN, PREFIX, too_many};
use crate::log::cursor::Cursor;
use crate::log::{Log, TopicIds};
use crate::store::{Found, Op, StoredCursor};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_tubemq::topic::{Broker as Address, ConsumerTopic, ProducerTopic, STORE_BASE, check_topic};

/// Status of a topic that can be consumed.
const READABLE: i32 = 1;

/// Offsets of a held partition are rewritten after this fraction of the offset retention.
const HELD_SHARE: u64 = 20;

impl Broker {
    /// Restores the stored topics.
    pub(super) fn restore(&mut self, found: Found) {
        let (parents, rows): (Vec<_>, Vec<_>) = found.topics.into_iter().partition(|t| t.partitions > 0);
        let mut numbers = BTreeMap::new();
        for row in rows {
            let log = Log::new(row.id, self.settings.stored, row.first, row.next, row.next_index, row.last);
            let mut partition = Partition::new(log);
            for StoredCursor { subscription, cursor, touched_ms, owner, .. } in row.cursors {
                let position = Position { next: cursor.below(), touched_ms };
                // A broker without users may have added offsets to the group.
                let known = self.owners.entry(subscription.clone()).or_default();
                *known = known.take().or(owner);
                partition.offsets.insert(subscription, position);
            }
            self.partitions.insert(row.id, partition);
            numbers.insert(row.name, row.id);
        }
        for parent in parents {
            // As many as there are in a row, whatever the number in the store: each keeps its own.
            let partitions = (0..parent.partitions as usize)
                .map_while(|index| numbers.get(&row_name(&parent.name, index)).copied())
                .collect();
            self.topics.insert(parent.name, Topic { id: parent.id, partitions });
        }
    }

    /// The topic id of a partition.
    pub(super) fn find_partition(&self, topic: &str, id: i32) -> Option<u64> {
        let index = usize::try_from(id).ok()?;
        self.topics.get(topic)?.partitions.get(index).copied()
    }

    /// Creates a topic that a client uses for the first time, if `auto_create` is set.
    pub(super) fn ensure_topic(&mut self, name: &str) {
        if self.settings.auto_create && !self.topics.contains_key(name) {
            // An invalid name, or a topic beyond the limit, stays unknown: that is what its client
            // is told.
            let _ = self.make_topic(name, self.settings.partitions);
        }
    }

    fn make_topic(&mut self, name: &str, partitions: u32) -> Result<()> {
        check_topic(name)?;
        if self.topics.contains_key(name) {
            return Err(Error::new(ErrorKind::NotAllowed, format!("topic {PREFIX}{name} already exists")));
        }
        self.check_room(partitions, partitions)?;
        let id = self.settings.topic_ids.next();
        self.commits.write(Op::CreateTopic { id, domain: DOMAIN, name: name.into(), partitions });
        let partitions = (0..partitions as usize).map(|index| self.add_partition(name, index)).collect();
        self.topics.insert(name.into(), Topic { id, partitions });
        self.balance_topic(name);
        Ok(())
    }

    /// Refuses a topic with a wrong number of partitions, or more partitions than there may be.
    fn check_room(&self, partitions: u32, more: u32) -> Result<()> {
        if partitions == 0 || partitions > STORE_BASE {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("a TubeMQ topic must have 1 to {STORE_BASE} partitions, not {partitions}"),
            ));
        }
        if let Some(error) = self.commits.failure() {
            return Err(error.clone());
        }
        if self.partitions.len() + more as usize > self.settings.max_topics {
            return Err(too_many(format!(
                "topic limit reached (max_topics is {})",
                self.settings.max_topics
            )));
        }
        if self.settings.stored && !self.settings.topic_ids.has_room(1 + u64::from(more)) {
            return Err(TopicIds::exhausted());
        }
        Ok(())
    }

    /// Makes a partition without messages, and gives its number.
    fn add_partition(&mut self, topic: &str, index: usize) -> u64 {
        let id = self.settings.topic_ids.next();
        let name = row_name(topic, index);
        self.commits.write(Op::CreateTopic { id, domain: DOMAIN, name, partitions: 0 });
        let log = Log::new(id, self.settings.stored, 0, 0, 0, None);
        self.partitions.insert(id, Partition::new(log));
        id
    }

    /// Adds partitions to a topic until it has `partitions`. `name` has no prefix.
    pub fn grow_topic(&mut self, name: &str, partitions: u32) -> Result<()> {
        let Some((name, topic)) = self.topics.get_key_value(name) else {
            return Err(Error::new(ErrorKind::TopicNotFound, format!("topic {PREFIX}{name} does not exist")));
        };
        let (name, id, before) = (name.clone(), topic.id, topic.partitions.len() as u32);
        if partitions <= before {
            let text = format!(
                "topic {PREFIX}{name} has {before} partitions, and {partitions} were asked for: partitions can only be added"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        self.check_room(partitions, partitions - before)?;
        // Before the rows: after a kill in between, the rows that are there count, and the next
        // growth makes the others.
        self.commits.write(Op::Partitions { id, domain: DOMAIN, name: name.clone(), partitions });
        for index in before..partitions {
            let added = self.add_partition(&name, index as usize);
            if let Some(topic) = self.topics.get_mut(&name) {
                topic.partitions.push(added);
            }
        }
        self.balance_topic(&name);
        Ok(())
    }

    /// Creates a topic. `name` has no prefix.
    pub fn create_topic(&mut self, name: &str, partitions: u32) -> Result<()> {
        let partitions = if partitions == 0 { self.settings.partitions } else { partitions };
        self.make_topic(name, partitions)
    }

    /// Deletes a topic with its messages.
    pub fn delete_topic(&mut self, name: &str) -> Result<()> {
        let Some(topic) = self.topics.remove(name) else {
            return Err(Error::new(ErrorKind::TopicNotFound, format!("topic {PREFIX}{name} does not exist")));
        };
        for id in topic.partitions.iter().chain([&topic.id]) {
            self.partitions.remove(id);
            self.dirty.retain(|(partition, _)| partition != id);
            self.commits.write(Op::DeleteTopic { id: *id });
        }
        self.balance_topic(name);
        Ok(())
    }

    /// Names with prefix, and partition counts.
    pub fn topics(&self) -> Vec<(String, u32)> {
        let named =
            |(name, topic): (&Arc<str>, &Topic)| (format!("{PREFIX}{name}"), topic.partitions.len() as u32);
        self.topics.iter().map(named).collect()
    }

    /// The address of this broker, as clients are told.
    pub(super) fn broker(&self) -> Address {
        let (host, port) = self.address();
        Address { id: BROKER, host, port }
    }

    /// Host and port under which the present client reaches this broker.
    pub(super) fn address(&self) -> (String, u16) {
        match self.entry().and_then(|entry| entry.address.as_ref()) {
            Some((host, port)) => (host.to_string(), *port),
            None => self.settings.address.clone(),
        }
    }

    /// `1:host:port`. The real master omits the default port; clients accept both.
    pub(super) fn broker_text(&self) -> String {
        self.broker().to_text(0)
    }

    /// A topic as producers are told, if they may send to it.
    pub(super) fn producer_text(&self, name: &str) -> Option<String> {
        let topic = self.topics.get(name)?;
        Some(ProducerTopic::to_text(name, &[topic.share()], Some(self.settings.max_message_size)))
    }

    /// A topic as consumers with client balancing are told.
    pub(super) fn consumer_text(&self, name: &str) -> Option<String> {
        let topic = self.topics.get(name)?;
        Some(ConsumerTopic::to_text(name, &[(topic.share(), READABLE)]))
    }

    /// Marks a moved offset, which is written soon.
    pub(super) fn mark_dirty(&mut self, partition: u64, group: &Arc<str>) {
        self.dirty.insert((partition, group.clone()));
        self.flush_at.get_or_insert(self.now + super::OFFSET_DELAY);
    }

    /// Writes a moved offset now, unless it ends with its lease.
    pub(super) fn write_offset(&mut self, partition: u64, group: &Arc<str>) {
        self.dirty.remove(&(partition, group.clone()));
        let (touched_ms, owner) = (self.run_ms(), self.owner_of(group));
        let known = self.partitions.get_mut(&partition).filter(|partition| !partition.is_passing(group));
        let offsets = known.map(|partition| &mut partition.offsets);
        let Some(position) = offsets.and_then(|offsets| offsets.get_mut(group)) else { return };
        position.touched_ms = touched_ms;
        let op = Op::Cursor {
            topic: partition,
            subscription: group.clone(),
            kind: 0,
            below: position.next,
            state: Cursor::new(position.next).encode(),
            touched_ms,
            owner,
        };
        self.commits.write(op);
    }

    pub(super) fn flush_offsets(&mut self) {
        self.flush_at = None;
        for (partition, group) in std::mem::take(&mut self.dirty) {
            self.write_offset(partition, &group);
        }
    }

    /// Removes the offsets of groups that have held no partition for the offset retention. The
    /// offsets of held partitions are rewritten from time to time, so that they outlive a long
    /// stop.
    pub(super) fn forget_groups(&mut self) {
        let (run_ms, keep) = (self.run_ms(), self.settings.offset_retention.as_millis() as u64);
        let (mut held, mut gone) = (Vec::new(), Vec::new());
        for (id, partition) in &mut self.partitions {
            let Partition { offsets, leases, .. } = partition;
            offsets.retain(|group, position| {
                let age = run_ms.saturating_sub(position.touched_ms);
                let holds = leases.contains_key(group);
                if holds && age > keep / HELD_SHARE {
                    held.push((*id, group.clone()));
                } else if !holds && age > keep {
                    gone.push((*id, group.clone()));
                    return false;
                }
                true
            });
        }
        held.into_iter().for_each(|(partition, group)| self.write_offset(partition, &group));
        for (topic, subscription) in gone {
            self.commits.write(Op::DropCursor { topic, subscription });
        }
    }
}
