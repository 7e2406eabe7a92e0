//! Figures of Pulsar's side.

use super::Broker;
use super::names::Name;
use crate::stats::{ConsumerStats, ProtocolStats, SubscriptionStats, TopicStats};
use forebay_base::error::{Error, ErrorKind, Result};

impl Broker {
    /// Figures of all topics.
    pub fn stats(&self) -> ProtocolStats {
        ProtocolStats {
            connections: self.connections.len(),
            topics: self.topics.len(),
            subscriptions: self.topics.values().map(|topic| topic.subscriptions.len()).sum(),
            producers: self.connections.values().map(|connection| connection.producers.len()).sum(),
            consumers: self.connections.values().map(|connection| connection.consumers.len()).sum(),
            messages_in: self.counters.messages_in,
            messages_out: self.counters.messages_out,
            bytes_in: self.counters.bytes_in,
            bytes_out: self.counters.bytes_out,
            messages_dropped: self.counters.messages_dropped,
            messages_redelivered: self.counters.messages_redelivered,
            duplicates: self.counters.duplicates,
            denied: self.counters.denied,
            failure: self.commits.failure().map(ToString::to_string),
            stalled: self.commits.stalled(),
            damage: self.damage.clone(),
            ..ProtocolStats::default()
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

    /// Figures of a topic.
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
        let mut stats =
            TopicStats { name: name.full.to_string(), partitions, terminated: true, ..TopicStats::default() };
        for log in logs {
            let Some(topic) = self.names.get(log.as_str()).and_then(|id| self.topics.get(id)) else {
                continue;
            };
            stats.terminated &= topic.terminated;
            stats.entries += topic.log.committed() - topic.log.first();
            stats.messages_in += topic.received;
            stats.producers.extend(topic.producers().map(|producer| producer.name.to_string()));
            for subscription in topic.subscriptions.values() {
                let consumers = subscription.consumers().iter().map(|consumer| ConsumerStats {
                    name: consumer.name.to_string(),
                    address: self
                        .connections
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
                    owner: subscription.owner.as_ref().map(ToString::to_string),
                    backlog: subscription.backlog(&topic.log),
                    delayed: subscription.delayed(),
                    replaying: subscription.replaying(),
                    dropped: subscription.dropped,
                    properties: subscription
                        .properties
                        .iter()
                        .map(|(name, value)| (name.to_string(), value.to_string()))
                        .collect(),
                    consumers: consumers.collect(),
                });
            }
        }
        Ok(stats)
    }
}
