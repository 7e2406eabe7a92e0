//! Topics and partitions: create, grow, delete, terminate, list.

use hyper::StatusCode;
use serde_json::{Map, json};

use super::{Refusal, Reply, body};
use crate::http::message::{Answer, Request};
use crate::pulsar::Broker;
use crate::pulsar::names::Name;
use crate::pulsar::topic::{Topic, is_stored};
use crate::store::MAX_PARTITIONS;

/// The number of partitions in a body: alone, or among the metadata of a topic.
fn partitions_in(request: &Request) -> Result<u32, Refusal> {
    let body = body(request)?;
    let number = body.as_u64().or_else(|| body["partitions"].as_u64());
    number
        .and_then(|number| u32::try_from(number).ok())
        .filter(|number| (1..=MAX_PARTITIONS).contains(number))
        .ok_or_else(|| {
            let text = match number {
                Some(number) if number > 0 => {
                    format!("Number of partitions should be at most {MAX_PARTITIONS}")
                }
                _ => "Number of partitions should be more than 0".to_owned(),
            };
            Refusal::new(StatusCode::NOT_ACCEPTABLE, text)
        })
}

impl Broker {
    pub(super) fn topics_in(&self, domain: &str, tenant: &str, namespace: &str) -> Reply {
        self.known_namespace(tenant, namespace)?;
        Ok(Answer::json(&json!(self.names_in(domain, &format!("{tenant}/{namespace}")).collect::<Vec<_>>())))
    }

    pub(super) fn partitioned_in(&self, domain: &str, tenant: &str, namespace: &str) -> Reply {
        self.known_namespace(tenant, namespace)?;
        let prefix = format!("{domain}://{tenant}/{namespace}/");
        let names = self.parents.keys().filter(|name| name.starts_with(&prefix));
        Ok(Answer::json(&json!(names.map(|name| &**name).collect::<Vec<_>>())))
    }

    fn known_namespace(&self, tenant: &str, namespace: &str) -> Result<(), Refusal> {
        match self.all_namespaces().contains(&format!("{tenant}/{namespace}")) {
            true => Ok(()),
            false => Err(Refusal::not_found("Namespace does not exist")),
        }
    }

    /// Whether the topic has partitions.
    pub(super) fn is_partitioned(&self, name: &Name) -> bool {
        self.parents.contains_key(&name.full)
    }

    /// The topic, or its partitions.
    pub(super) fn logs_of(&self, name: &Name) -> Result<Vec<u64>, Refusal> {
        let ids: Vec<u64> = match self.parents.get(&name.full) {
            Some((_, partitions)) => (0..*partitions)
                .filter_map(|n| self.names.get(&*format!("{}-partition-{n}", name.full)).copied())
                .collect(),
            None => self.names.get(&name.full).copied().into_iter().collect(),
        };
        if ids.is_empty() {
            return Err(no_topic(name));
        }
        Ok(ids)
    }

    /// The topic, which has no partitions, and may be one.
    pub(super) fn log_of(&self, name: &Name, what: &str) -> Result<u64, Refusal> {
        if self.is_partitioned(name) {
            let text = format!("{what} on a partitioned topic is not allowed: name one of its partitions");
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, text));
        }
        Ok(self.logs_of(name)?[0])
    }

    fn refuse_existing(&self, name: &Name) -> Result<(), Refusal> {
        if self.names.contains_key(&name.full) || self.is_partitioned(name) {
            return Err(Refusal::new(StatusCode::CONFLICT, "This topic already exists"));
        }
        Ok(self.check_namespace(name)?)
    }

    pub(super) fn put_topic(&mut self, name: &Name) -> Reply {
        self.refuse_existing(name)?;
        self.create_topic(&name.full, 0)?;
        Ok(Answer::done())
    }

    pub(super) fn put_partitions(&mut self, name: &Name, request: &Request) -> Reply {
        let partitions = partitions_in(request)?;
        if name.partition.is_some() {
            let text = "Partitioned Topic Name should not contain '-partition-'";
            return Err(Refusal::new(StatusCode::PRECONDITION_FAILED, text));
        }
        self.refuse_existing(name)?;
        self.create_topic(&name.full, partitions)?;
        Ok(Answer::done())
    }

    pub(super) fn post_partitions(&mut self, name: &Name, request: &Request) -> Reply {
        let partitions = partitions_in(request)?;
        let Some((_, before)) = self.parents.get(&name.full) else {
            let text = format!("Topic {} is not the partitioned topic.", name.full);
            return Err(Refusal::new(StatusCode::CONFLICT, text));
        };
        if partitions < *before {
            let text = format!(
                "Desired partitions {partitions} can't be less than the current partitions {before}."
            );
            return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, text));
        }
        if partitions > *before {
            self.grow_topic(&name.full, partitions)?;
        }
        Ok(Answer::done())
    }

    /// Deletes a topic without partitions, or one with.
    pub(super) fn remove_topic(&mut self, name: &Name, partitioned: bool, request: &Request) -> Reply {
        let ids = self.logs_of(name)?;
        if partitioned != self.is_partitioned(name) {
            let text = match partitioned {
                true => {
                    "a non-partitioned topic. Instead of calling delete-partitioned-topic please call delete."
                }
                false => {
                    "a partitioned topic, instead of calling delete topic, please call delete-partitioned-topic."
                }
            };
            return Err(Refusal::new(StatusCode::CONFLICT, format!("{} is {text}", name.full)));
        }
        let users = |topic: &Topic| {
            let consumers = topic.subscriptions.values().map(|one| one.consumers().len());
            topic.producers().count() + consumers.sum::<usize>()
        };
        let connected: usize = ids.iter().filter_map(|id| self.topics.get(id)).map(users).sum();
        if !request.flag("force") && connected > 0 {
            let text = format!("Topic has {connected} connected producers/consumers");
            return Err(Refusal::new(StatusCode::PRECONDITION_FAILED, text));
        }
        self.delete_topic(&name.full)?;
        Ok(Answer::done())
    }

    /// Terminates a topic without partitions, or all partitions of one with; gives the last message
    /// id of each.
    pub(super) fn end_topic(&mut self, name: &Name, partitioned: bool) -> Reply {
        let ids = self.logs_of(name)?;
        if partitioned != self.is_partitioned(name) {
            let text = match partitioned {
                true => {
                    "Termination of a non-partitioned topic is not allowed using partitioned-terminate, please use terminate commands"
                }
                false => "Termination of a partitioned topic is not allowed",
            };
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, text));
        }
        self.terminate_topic(&name.full)?;
        let last = |id: &u64| {
            let entry = self.topics.get(id).map_or(-1, |topic| topic.log.next() as i64 - 1);
            json!({"ledgerId": id, "entryId": entry, "partitionIndex": -1, "batchIndex": -1, "batchSize": 0})
        };
        if !partitioned {
            return Ok(Answer::json(&last(&ids[0])));
        }
        let all = ids.iter().enumerate().map(|(index, id)| (index.to_string(), last(id)));
        Ok(Answer::json(&all.collect::<Map<_, _>>().into()))
    }

    /// Id of the last message.
    pub(super) fn last_id(&mut self, name: &Name) -> Reply {
        let id = self.plain(name)?;
        let Some(topic) = self.topics.get(&id).filter(|_| is_stored(id)) else {
            let text = "a non-persistent topic has no last message id";
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, text));
        };
        let partition = topic.partition.map_or(-1, i64::from);
        let (entry, batch) = topic.log.last().map_or((-1, -1), |last| {
            (last.sequence as i64, if last.batch { i64::from(last.count) - 1 } else { -1 })
        });
        Ok(Answer::json(
            &json!({"ledgerId": id, "entryId": entry, "partitionIndex": partition, "batchIndex": batch, "batchSize": 0}),
        ))
    }
}

/// The refusal for a topic that does not exist.
pub(super) fn no_topic(name: &Name) -> Refusal {
    Refusal::not_found(format!("Topic {} not found", name.full))
}
