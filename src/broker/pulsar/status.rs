//! What the broker tells about itself.

use super::Hub;
use super::names::Name;
use crate::error::{Error, ErrorKind, Result};

/// Sums since start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) received: u64,
    pub(super) delivered: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

/// The whole broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HubStats {
    /// Connections.
    pub connections: usize,
    /// Topics and partitions that can hold entries.
    pub topics: usize,
    /// Producers.
    pub producers: usize,
    /// Consumers.
    pub consumers: usize,
    /// Messages taken in since start.
    pub messages_in: u64,
    /// Messages given out since start.
    pub messages_out: u64,
    /// Bytes of entries taken in since start.
    pub bytes_in: u64,
    /// Bytes of entries given out since start.
    pub bytes_out: u64,
    /// Bytes of the store, or of memory without one.
    pub store_bytes: u64,
    /// Why nothing is written any more, if so.
    pub failure: Option<String>,
}

/// A topic, its partitions together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicStats {
    /// In full.
    pub name: String,
    /// 0 for a plain topic.
    pub partitions: u32,
    /// Entries that are retained.
    pub entries: u64,
    /// Messages taken in since start.
    pub messages_in: u64,
    /// Names of the producers.
    pub producers: Vec<String>,
    /// Its subscriptions; of partitions one each.
    pub subscriptions: Vec<SubscriptionStats>,
}

/// A subscription of one topic or partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionStats {
    /// The topic or partition.
    pub topic: String,
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// Whether it outlives its consumers.
    pub durable: bool,
    /// Entries not acknowledged.
    pub backlog: u64,
    /// Entries that wait for their time.
    pub delayed: usize,
    /// Entries that wait to be given out again.
    pub replaying: usize,
    /// Its consumers.
    pub consumers: Vec<ConsumerStats>,
}

/// A consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerStats {
    /// Its name.
    pub name: String,
    /// Where it is connected from.
    pub address: String,
    /// Messages it may be sent.
    pub permits: i64,
    /// Messages it holds, of the shared types.
    pub unacked: i64,
    /// Messages given to it.
    pub delivered: u64,
    /// Whether it is the one that gets entries, of the types with one.
    pub active: bool,
}

impl Hub {
    /// The broker as a whole.
    pub fn stats(&self) -> HubStats {
        HubStats {
            connections: self.seats.len(),
            topics: self.topics.len(),
            producers: self.seats.values().map(|seat| seat.producers.len()).sum(),
            consumers: self.seats.values().map(|seat| seat.consumers.len()).sum(),
            messages_in: self.counters.received,
            messages_out: self.counters.delivered,
            bytes_in: self.counters.bytes_in,
            bytes_out: self.counters.bytes_out,
            store_bytes: self.commits.used(),
            failure: self.commits.failure().map(ToString::to_string),
        }
    }

    /// Names and partition counts of all topics.
    pub fn topics(&self) -> Vec<(String, u32)> {
        let part = |name: &str| {
            Name::parse(name)
                .is_ok_and(|name| name.partition.is_some() && self.parents.contains_key(&name.parent()))
        };
        let plain = self.names.keys().filter(|name| !part(name)).map(|name| (name.to_string(), 0));
        let mut all: Vec<_> =
            plain.chain(self.parents.iter().map(|(name, (_, n))| (name.to_string(), *n))).collect();
        all.sort_unstable();
        all
    }

    /// One topic.
    pub fn topic_stats(&self, topic: &str) -> Result<TopicStats> {
        let name = Name::parse(topic)?;
        let partitions = self.parents.get(&name.full).map_or(0, |(_, partitions)| *partitions);
        let logs: Vec<String> = match partitions {
            0 => vec![name.full.to_string()],
            n => (0..n).map(|partition| format!("{}-partition-{partition}", name.full)).collect(),
        };
        if partitions == 0 && !self.names.contains_key(&name.full) {
            return Err(
                Error::new(ErrorKind::TopicNotFound, "the topic does not exist").with_topic(name.full)
            );
        }
        let mut stats = TopicStats { name: name.full.to_string(), partitions, ..TopicStats::default() };
        for log in logs {
            let Some(topic) = self.names.get(log.as_str()).and_then(|id| self.topics.get(id)) else {
                continue;
            };
            stats.entries += topic.log.committed() - topic.log.first();
            stats.messages_in += topic.received;
            stats.producers.extend(topic.producers().map(|producer| producer.name.to_string()));
            for subscription in topic.subscriptions.values() {
                let consumers = subscription.consumers().iter().map(|consumer| ConsumerStats {
                    name: consumer.name.to_string(),
                    address: self
                        .seats
                        .get(&consumer.key.session)
                        .map(|s| s.address.to_string())
                        .unwrap_or_default(),
                    permits: consumer.permits,
                    unacked: consumer.unacked(),
                    delivered: consumer.delivered,
                    active: subscription.active() == Some(consumer.key),
                });
                stats.subscriptions.push(SubscriptionStats {
                    topic: topic.name.to_string(),
                    name: subscription.name.to_string(),
                    kind: subscription.kind.name().to_owned(),
                    durable: subscription.durable,
                    backlog: subscription.backlog(&topic.log),
                    delayed: subscription.delayed(),
                    replaying: subscription.replaying(),
                    consumers: consumers.collect(),
                });
            }
        }
        Ok(stats)
    }
}
