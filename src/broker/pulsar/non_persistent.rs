//! Non-persistent topics: nothing of them is stored, neither messages nor names, subscriptions and
//! schemas.
//!
//! A message goes to the consumers that have permits and room when it comes, and is dropped and
//! counted for the other subscriptions. Its receipt leaves at once: it waits for no change of the
//! store. A subscription ends with its last consumer, and a topic without users some time later,
//! unless it was created with partitions by the administration.

use std::time::Duration;

use super::Broker;
use super::dispatcher::Dispatcher;
use super::names::{Facts, Name};
use super::produce::{entry, receipt};
use crate::pulsar::topic::NON_PERSISTENT;
use forebay_base::error::Result;
use forebay_pulsar::command::Command;
use forebay_pulsar::frame::Payload;
use forebay_pulsar::hot;

/// Time for which a topic stays without users, as on the real broker.
const IDLE: Duration = Duration::from_secs(60);
/// Cost of a look at a subscription or consumer in a turn, in bytes of output.
const LOOK: usize = 64;

impl Broker {
    /// Hands a message to the consumers that can take it now.
    pub(super) fn pass(
        &mut self,
        id: u64,
        topic: u64,
        send: &hot::Send,
        payload: Payload,
        facts: &Facts,
    ) -> Result<()> {
        // As by the real broker, ahead of the message if the client is its own consumer.
        self.reply(id, &Command::SendReceipt(receipt(send, 0, 0)));
        let now = self.stamps();
        let Some(topic) = self.topics.get_mut(&topic) else { return Ok(()) };
        let entry = entry(facts, payload, now);
        topic.received += u64::from(facts.count);
        self.counters.messages_in += u64::from(facts.count);
        self.counters.bytes_in += entry.body.len() as u64;
        let mut dispatcher = Dispatcher {
            topic: topic.id,
            partition: topic.partition(),
            connections: &mut self.connections,
            high_water: self.high_water,
            wakes: &mut self.wakes,
            counters: &mut self.counters,
        };
        let (mut dropped, mut looks) = (0, 0);
        for subscription in topic.subscriptions.values_mut() {
            dropped += subscription.pass(&entry, &mut dispatcher);
            looks += 1 + subscription.consumers().len();
        }
        self.counters.messages_dropped += dropped;
        if let Some(connection) = self.connections.get_mut(&id) {
            // Others may have subscribed often: then a publisher has fewer messages in a turn.
            connection.work += LOOK * looks;
        }
        Ok(())
    }

    /// Removes the topics that have had no users for a while.
    pub(super) fn remove_idle(&mut self) {
        let now = self.now;
        for (_, topic) in self.topics.range_mut(NON_PERSISTENT..) {
            topic.idle = if topic.is_used() { None } else { topic.idle.or(Some(now)) };
        }
        self.remove_idle_for(IDLE);
    }

    /// Removes the topics that housekeeping has found without users this long.
    pub(super) fn remove_idle_for(&mut self, time: Duration) {
        let now = self.now;
        let idle = |id: &u64| {
            let topic = self.topics.get(id);
            topic.is_some_and(|topic| !topic.is_used() && topic.idle.is_some_and(|since| now >= since + time))
        };
        let mut gone = Vec::new();
        for (_, topic) in self.topics.range(NON_PERSISTENT..).filter(|(id, _)| idle(id)) {
            let parent =
                topic.partition.and_then(|_| Name::parse(&topic.name).ok()).map(|name| name.parent());
            if parent.is_none_or(|parent| !self.parents.contains_key(&parent)) {
                gone.push(topic.name.clone());
            }
        }
        for parent in &self.non_persistent.fleeting {
            let parts = self.parents.get(parent).map_or(0, |(_, partitions)| *partitions);
            let part = |n| self.names.get(format!("{parent}-partition-{n}").as_str());
            if (0..parts).filter_map(part).all(idle) {
                gone.push(parent.clone());
            }
        }
        for name in gone {
            // It was found a moment ago.
            let _ = self.delete_topic(&name);
        }
    }
}
