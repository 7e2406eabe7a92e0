//! Figures of topics, with the names of the real broker.

use serde_json::{Map, Value, json};

use super::topics::no_topic;
use super::{Refusal, Reply};
use crate::http::message::{Answer, Request};
use crate::pulsar::Broker;
use crate::pulsar::names::Name;
use crate::pulsar::subscription::Subscription;
use crate::pulsar::topic::Topic;

impl Broker {
    pub(super) fn stats_of(&mut self, name: &Name) -> Reply {
        let id = self.plain(name)?;
        Ok(Answer::json(&self.topics.get(&id).map_or(Value::Null, |topic| self.topic_figures(topic))))
    }

    /// The topic. As on the real broker, figures of the whole of a partitioned one have paths of
    /// their own.
    pub(super) fn plain(&self, name: &Name) -> Result<u64, Refusal> {
        if self.is_partitioned(name) { Err(no_topic(name)) } else { Ok(self.logs_of(name)?[0]) }
    }

    pub(super) fn partitioned_stats_of(&mut self, name: &Name, request: &Request) -> Reply {
        let ids = self.partitions_only(name)?;
        let mut sum = json!({"msgInCounter": 0, "metadata": {"partitions": ids.len(), "deleted": false}});
        let (mut publishers, mut subscriptions) = (Vec::new(), Map::new());
        let mut partitions = Map::new();
        for topic in ids.iter().filter_map(|id| self.topics.get(id)) {
            let mut figures = self.topic_figures(topic);
            add(&mut sum, &figures, "msgInCounter");
            if request.query("perPartition") != Some("false") {
                partitions.insert(topic.name.to_string(), figures.clone());
            }
            if let Value::Array(of) = figures["publishers"].take() {
                publishers.extend(of);
            }
            let Value::Object(of) = figures["subscriptions"].take() else { continue };
            for (name, mut one) in of {
                let Some(to) = subscriptions.get_mut(&name) else {
                    subscriptions.insert(name, one);
                    continue;
                };
                for counter in [
                    "msgBacklog",
                    "msgBacklogNoDelayed",
                    "msgDelayed",
                    "unackedMessages",
                    "msgOutCounter",
                    "msgDropCount",
                ] {
                    add(to, &one, counter);
                }
                if let (Some(all), Value::Array(more)) =
                    (to["consumers"].as_array_mut(), one["consumers"].take())
                {
                    all.extend(more);
                }
            }
        }
        sum["publishers"] = publishers.into();
        sum["subscriptions"] = subscriptions.into();
        sum["partitions"] = partitions.into();
        Ok(Answer::json(&sum))
    }

    fn partitions_only(&self, name: &Name) -> Result<Vec<u64>, Refusal> {
        if !self.is_partitioned(name) {
            return Err(Refusal::not_found(format!("Partitioned Topic {} not found", name.full)));
        }
        self.logs_of(name)
    }

    pub(super) fn internal_stats_of(&mut self, name: &Name) -> Reply {
        let id = self.plain(name)?;
        Ok(Answer::json(&self.topics.get(&id).map_or(Value::Null, internal)))
    }

    pub(super) fn partitioned_internal_stats_of(&mut self, name: &Name) -> Reply {
        let ids = self.partitions_only(name)?;
        let topics = ids.iter().filter_map(|id| self.topics.get(id));
        let partitions: Map<String, Value> =
            topics.map(|topic| (topic.name.to_string(), internal(topic))).collect();
        let metadata = json!({"partitions": ids.len(), "deleted": false});
        Ok(Answer::json(&json!({"metadata": metadata, "partitions": partitions})))
    }

    fn topic_figures(&self, topic: &Topic) -> Value {
        let address = |session: u64| self.connections.get(&session).map(|connection| &*connection.address);
        let publishers: Vec<Value> = topic
            .producers()
            .map(|producer| {
                json!({
                    "producerId": producer.key.id,
                    "producerName": &*producer.name,
                    "address": address(producer.key.session),
                })
            })
            .collect();
        let subscription = |one: &Subscription| {
            let consumers: Vec<Value> = one
                .consumers()
                .iter()
                .map(|consumer| {
                    json!({
                        "consumerName": &*consumer.name,
                        "availablePermits": consumer.permits,
                        "unackedMessages": consumer.unacked(),
                        "msgOutCounter": consumer.delivered,
                        "address": address(consumer.key.session),
                    })
                })
                .collect();
            let active =
                one.active().and_then(|key| one.consumers().iter().find(|consumer| consumer.key == key));
            let mut figures = json!({
                "msgBacklog": one.backlog(&topic.log),
                "msgBacklogNoDelayed": one.backlog(&topic.log).saturating_sub(one.delayed() as u64),
                "msgDelayed": one.delayed(),
                "unackedMessages": one.consumers().iter().map(|consumer| consumer.unacked()).sum::<i64>(),
                "msgOutCounter": one.consumers().iter().map(|consumer| consumer.delivered).sum::<u64>(),
                "msgDropCount": one.dropped,
                "type": one.kind.name(),
                "isDurable": one.durable,
                "isReplicated": false,
                "consumers": consumers,
                "subscriptionProperties":
                    one.properties.iter().map(|(name, value)| (&**name, &**value)).collect::<std::collections::BTreeMap<_, _>>(),
            });
            if let Some(active) = active {
                figures["activeConsumerName"] = (&*active.name).into();
            }
            if let Some(owner) = &one.owner {
                figures["owner"] = (&**owner).into();
            }
            figures
        };
        let subscriptions: Map<String, Value> =
            topic.subscriptions.iter().map(|(name, one)| (name.to_string(), subscription(one))).collect();
        json!({
            "msgInCounter": topic.received,
            "publishers": publishers,
            "subscriptions": subscriptions,
            "replication": {},
            "deduplicationStatus": if self.settings.deduplicate { "Enabled" } else { "Disabled" },
        })
    }
}

fn add(to: &mut Value, from: &Value, name: &str) {
    to[name] = (to[name].as_i64().unwrap_or_default() + from[name].as_i64().unwrap_or_default()).into();
}

/// Positions of a topic's messages and of its subscriptions.
fn internal(topic: &Topic) -> Value {
    let log = &topic.log;
    let position = |entry: u64| format!("{}:{}", topic.id, entry as i64);
    let entries = log.committed().saturating_sub(log.first());
    let cursor = |one: &Subscription| {
        json!({
            "markDeletePosition": position(one.cursor.below().wrapping_sub(1)),
            "readPosition": position(one.cursor.next_unacked(log.first())),
            "cursorLedger": topic.id,
            "state": "Open",
        })
    };
    let cursors: Map<String, Value> = topic
        .subscriptions
        .iter()
        .filter(|(_, one)| one.durable)
        .map(|(name, one)| (name.to_string(), cursor(one)))
        .collect();
    json!({
        "entriesAddedCounter": log.next(),
        "numberOfEntries": entries,
        "currentLedgerEntries": entries,
        "lastConfirmedEntry": position(log.committed().wrapping_sub(1)),
        "state": if topic.terminated { "Terminated" } else { "LedgerOpened" },
        "ledgers": [{"ledgerId": topic.id, "entries": entries}],
        "cursors": cursors,
    })
}
