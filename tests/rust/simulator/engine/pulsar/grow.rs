//! A topic that gets more partitions.

use std::rc::Rc;
use std::time::Duration;

use super::super::host;
use super::super::trace;
use super::World;
use crate::support::chance::Chance;

impl World {
    /// Adds one or two partitions to a topic that has some.
    pub(super) async fn grow(self: Rc<Self>, mut chance: Chance) {
        let Some((topic, before)) = self.plan.topics.iter().find(|(_, partitions)| *partitions > 0) else {
            return;
        };
        for partitions in before + 1..=before + chance.within(1, 3) as u32 {
            tokio::time::sleep(chance.micros(10_000_000)).await;
            // A consumer that is just being opened may have counted the partitions, and is on none
            // yet: the new one would not have its subscription, as with Apache Pulsar, and would
            // trim what the others have acknowledged.
            while !host::is_violated() && !self.ledger.borrow().subscriptions.iter().all(|one| one.is_open) {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            // A broker that ends does not say whether it has done it: it is asked again.
            while !host::is_violated() && !self.has_partitions(topic, partitions).await {
                tokio::time::sleep(chance.micros(1_000_000)).await;
            }
        }
    }

    async fn has_partitions(&self, topic: &str, partitions: u32) -> bool {
        let Some(broker) = self.host.broker() else { return false };
        let grown = tokio::time::timeout(Duration::from_secs(10), broker.grow_topic(topic, partitions)).await;
        trace::event(format_args!("{topic} grows to {partitions}: {grown:?}"));
        match grown {
            Ok(Ok(())) => true,
            _ => {
                let stored = tokio::time::timeout(Duration::from_secs(10), broker.topics()).await;
                matches!(stored, Ok(Ok(topics)) if topics.iter().any(|(name, has)| name == topic && *has >= partitions))
            }
        }
    }
}
