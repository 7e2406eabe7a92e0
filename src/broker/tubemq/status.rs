//! Figures of TubeMQ's side.

use super::partition::Position;
use super::{Broker, PREFIX};
use crate::stats::{ConsumerStats, ProtocolStats, SubscriptionStats, TopicStats};
use forebay_base::error::{Error, ErrorKind, Result};

impl Broker {
    /// Current figures.
    pub fn stats(&self) -> ProtocolStats {
        ProtocolStats {
            connections: self.connections.len(),
            topics: self.topics.len(),
            subscriptions: self.groups.len(),
            producers: self.producers.len(),
            consumers: self.groups.values().map(|group| group.members()).sum(),
            messages_in: self.counters.messages_in,
            messages_out: self.counters.messages_out,
            denied: self.counters.denied,
            bytes_in: self.counters.bytes_in,
            bytes_out: self.counters.bytes_out,
            failure: self.commits.failure().map(ToString::to_string),
            stalled: self.commits.stalled(),
            damage: self.damage.clone(),
            ..ProtocolStats::default()
        }
    }

    /// Figures of a topic, with its groups as subscriptions. `name` has no prefix.
    pub fn topic_stats(&self, name: &str) -> Result<TopicStats> {
        let Some(topic) = self.topics.get(name) else {
            return Err(Error::new(ErrorKind::TopicNotFound, format!("topic {PREFIX}{name} does not exist")));
        };
        let mut stats = TopicStats {
            name: format!("{PREFIX}{name}"),
            partitions: topic.partitions.len() as u32,
            ..TopicStats::default()
        };
        let partitions = topic.partitions.iter().filter_map(|id| self.partitions.get(id));
        for (index, partition) in partitions.enumerate() {
            let (first, end) = (partition.log.first(), partition.log.committed());
            stats.entries += end - first;
            stats.messages_in += partition.received;
            for (group, Position { next, .. }) in &partition.offsets {
                let consumers = partition.leases.get(group).map(|lease| ConsumerStats {
                    name: lease.client.clone(),
                    address: String::new(),
                    permits: 0,
                    unacked: lease.pack.map_or(0, |pack| pack.saturating_sub(*next) as i64),
                    delivered: lease.delivered,
                    active: true,
                });
                stats.subscriptions.push(SubscriptionStats {
                    topic: format!("{PREFIX}{name}:{index}"),
                    name: group.to_string(),
                    kind: "group".into(),
                    durable: true,
                    owner: self.owner_of(group).map(|owner| owner.to_string()),
                    backlog: end - (*next).clamp(first, end),
                    delayed: 0,
                    replaying: 0,
                    dropped: 0,
                    properties: Vec::new(),
                    consumers: consumers.into_iter().collect(),
                });
            }
        }
        Ok(stats)
    }
}
