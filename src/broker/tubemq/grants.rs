//! Changes of the records of topics: their rows in the store, and what they mean for groups.

use std::sync::Arc;

use super::Broker;
use super::partition::Refusal;
use crate::broker::log::cursor::{Cursor, Properties};
use crate::broker::record;
use crate::broker::store::Op;
use crate::log;
use crate::tubemq::Code;

impl Broker {
    /// Writes the record of a topic, without its grants.
    pub(super) fn write_record(&mut self, topic: &str) {
        let Some(topic) = self.topics.get(topic) else { return };
        let (id, properties) = (topic.id, topic.record.properties());
        self.write_properties(id, "".into(), &properties);
    }

    /// Writes the grant of a group.
    pub(super) fn write_grant(&mut self, topic: &str, group: &str) {
        let Some(topic) = self.topics.get(topic) else { return };
        let Some((group, grant)) = topic.record.grants.get_key_value(group) else { return };
        let (id, group, properties) = (topic.id, group.clone(), grant.properties());
        self.write_properties(id, group, &properties);
    }

    fn write_properties(&mut self, topic: u64, subscription: Arc<str>, properties: &Properties) {
        let state = Cursor::new(0).encode_with(properties);
        let touched_ms = self.run_ms();
        self.commits.write(Op::Cursor {
            topic,
            subscription,
            kind: 0,
            below: 0,
            state,
            touched_ms,
            owner: None,
        });
    }

    /// Refuses a group that an administrator has not allowed to consume one of the topics.
    pub(super) fn check_grants<'t>(
        &mut self,
        group: &str,
        topics: impl IntoIterator<Item = &'t String>,
    ) -> Result<(), Refusal> {
        let forbids = |topic: &&String| {
            self.topics.get(topic.as_str()).is_some_and(|topic| !topic.record.admits(group))
        };
        let Some(topic) = topics.into_iter().find(forbids) else { return Ok(()) };
        self.counters.denied += 1;
        record::write_limited(log::Level::Warning, "forebay.broker.permissions", || {
            let [group, topic] = [group, topic.as_str()].map(log::cut);
            let text = format!("tubemq: the group {group:?} is not allowed to consume {topic:?}");
            record::about("denied", "tubemq", "", &group, text)
                .with("operation", "consume")
                .with("name", topic)
        });
        let text = format!("the administrator has not allowed group {group} to consume topic {topic}");
        Err((Code::ConsumeGroupForbidden, text))
    }

    /// Takes the partitions of a topic from groups that may not hold them any more, and assigns them again.
    pub(super) fn apply_record(&mut self, name: &str) {
        let Some(topic) = self.topics.get(name) else { return };
        for id in &topic.partitions {
            let Some(partition) = self.partitions.get_mut(id) else { continue };
            let record = &topic.record;
            let denied = |group: &&Arc<str>| !record.accept_subscribe || !record.admits(group);
            let groups: Vec<_> = partition.leases.keys().filter(denied).cloned().collect();
            groups.iter().for_each(|group| partition.release(group));
        }
        self.balance_topic(name);
    }
}
