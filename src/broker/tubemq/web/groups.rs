//! Groups of consumers, and which of them may consume a restricted topic.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::object::dated;
use super::parameters::{CONSUME_GROUP, CREATE_USER, ENABLE, GROUP, MODIFY_USER, Parameters, TOPIC};
use super::{Checked, LACKING, NOT_FOUND, Object, Outcome, listed};
use crate::broker::tubemq::Broker;
use crate::broker::tubemq::balance::{Group, Mode};
use crate::broker::tubemq::partition::BROKER;
use crate::broker::tubemq::records::{Edit, Grant, History, MAX_GRANTS, Record};

/// Makers of a grant.
pub(super) fn granted(grant: &Grant) -> Object {
    dated(&grant.history)
}

impl Broker {
    /// Groups with members, and their topics.
    pub(super) fn list_groups(&self, given: &Parameters) -> Checked<Object> {
        let mut names = given.texts(GROUP)?;
        if names.is_empty() {
            names = given.texts(CONSUME_GROUP)?;
        }
        let topics = given.texts(TOPIC)?;
        let wanted = |(name, group): &(&Arc<str>, &Group)| {
            (names.is_empty() || names.contains(&***name))
                && (topics.is_empty() || group.topics().iter().any(|topic| topics.contains(topic.as_str())))
        };
        let object = |(name, group): (&Arc<str>, &Group)| {
            Object::default()
                .with("consumeGroup", &**name)
                .with("topicSet", group.topics().iter().cloned().collect::<Vec<String>>())
                .with("consumerNum", group.members())
        };
        Ok(listed(&self.groups.iter().filter(wanted).map(object).collect::<Vec<_>>()))
    }

    /// A group with its members and the partitions that they hold. A group without members has none of these.
    pub(super) fn describe_group(&self, given: &Parameters) -> Checked<Object> {
        let name = match given.text(GROUP)? {
            Some(name) => name,
            None => given.required(CONSUME_GROUP)?,
        };
        let group = self.groups.get(name);
        let topics: Vec<String> = group.into_iter().flat_map(Group::topics).cloned().collect();
        let filters: serde_json::Map<String, Value> = group
            .into_iter()
            .flat_map(|group| &group.spec().filters)
            .map(|(topic, types)| (topic.clone(), types.iter().cloned().collect::<Vec<String>>().into()))
            .collect();
        let mode = match group.map(|group| group.spec().mode) {
            Some(Mode::Client) => "client-rebalance",
            Some(Mode::Server) | None => "unbound",
        };
        let mut held = self.held_partitions(name);
        let members: Vec<Object> = group
            .into_iter()
            .flat_map(Group::clients)
            .map(|client| {
                let partitions = held.remove(client).unwrap_or_default();
                Object::default()
                    .with("consumerId", client)
                    .with("parCount", partitions.len())
                    .list("parInfo", &partitions)
            })
            .collect();
        Ok(Object::default()
            .with("result", true)
            .with("errCode", 0)
            .with("errMsg", "OK")
            .with("count", members.len())
            .with("topicSet", topics)
            .with("consumeGroup", name)
            .with("isBandConsume", mode)
            .with("filterConds", filters)
            .list("data", &members))
    }

    /// The partitions that each client of a group holds.
    fn held_partitions(&self, group: &str) -> BTreeMap<&str, Vec<Object>> {
        let mut held: BTreeMap<&str, Vec<Object>> = BTreeMap::new();
        for (name, topic) in &self.topics {
            for (index, id) in topic.partitions.iter().enumerate() {
                let lease = self.partitions.get(id).and_then(|partition| partition.leases.get(group));
                let Some(lease) = lease else { continue };
                let (host, port) = &self.settings.address;
                let partition = Object::default()
                    .with("partId", index)
                    .with("brokerAddr", format!("{BROKER}:{host}:{port}"))
                    .with("topicName", &**name);
                held.entry(&lease.client).or_default().push(partition);
            }
        }
        held
    }

    /// Whether topics are restricted to some groups, and which groups were named for them.
    pub(super) fn list_controls(&self, given: &Parameters) -> Checked<Object> {
        let (creator, modifier) = (given.text(CREATE_USER)?, given.text(MODIFY_USER)?);
        let names = given.texts(TOPIC)?;
        let mut found = Vec::new();
        for (name, topic) in &self.topics {
            let (record, History { created, modified }) = (&topic.record, &topic.record.control);
            let by = |wanted: Option<&str>, edit: &Edit| wanted.is_none_or(|wanted| wanted == &*edit.user);
            let wanted = names.is_empty() || names.contains(&**name);
            if !wanted || !by(creator, created) || !by(modifier, modified) {
                continue;
            }
            let groups: Vec<Object> = record
                .grants
                .iter()
                .map(|(group, grant)| {
                    Object::default()
                        .with("topicName", &**name)
                        .with("groupName", &**group)
                        .and(&granted(grant))
                })
                .collect();
            found.push(
                Object::default()
                    .with("topicName", &**name)
                    .with("isEnable", record.restricted)
                    .and(&dated(&record.control))
                    .list("authConsumeGroup", &groups)
                    .with("groupCount", groups.len()),
            );
        }
        Ok(listed(&found))
    }

    pub(super) fn set_controls(&mut self, given: &Parameters) -> Checked<Object> {
        let (created, modified) = given.creation(None, &self.date())?;
        let names = given.required_texts(TOPIC)?;
        let restricted = given.flag(ENABLE)?.unwrap_or(false);
        let history = History { created, modified };
        Ok(listed(
            &names.into_iter().map(|name| self.control(name, restricted, &history)).collect::<Vec<_>>(),
        ))
    }

    pub(super) fn drop_controls(&mut self, given: &Parameters) -> Checked<Object> {
        let edit = given.modification(&self.date())?;
        let names = given.required_texts(TOPIC)?;
        let history = History::new(&edit);
        Ok(listed(&names.into_iter().map(|name| self.control(name, false, &history)).collect::<Vec<_>>()))
    }

    /// Restricts a topic to some groups, or opens it to all.
    fn control(&mut self, name: &str, restricted: bool, by: &History) -> Object {
        let outcome = match self.topics.get_mut(name) {
            Some(topic) => {
                let Record { restricted: own, control, .. } = &mut topic.record;
                *own = restricted;
                control.modified = by.modified.clone();
                // The topic came into being without an administrator.
                if control.created == Edit::default() {
                    control.created = by.created.clone();
                }
                self.write_record(name);
                self.apply_record(name);
                Outcome::done()
            }
            None => Outcome::refused(NOT_FOUND, format!("topicName value {name} is not configure!")),
        };
        outcome.describe(Object::default().with("topicName", name))
    }

    /// Groups that may consume topics, or may not.
    pub(super) fn list_grants(&self, given: &Parameters, enabled: bool) -> Checked<Object> {
        let (creator, modifier) = (given.text(CREATE_USER)?, given.text(MODIFY_USER)?);
        let (groups, topics) = (given.texts(GROUP)?, given.texts(TOPIC)?);
        let mut found = Vec::new();
        for (topic, known) in &self.topics {
            for (group, grant) in &known.record.grants {
                let History { created, modified } = &grant.history;
                let by =
                    |wanted: Option<&str>, edit: &Edit| wanted.is_none_or(|wanted| wanted == &*edit.user);
                let wanted = (topics.is_empty() || topics.contains(&**topic))
                    && (groups.is_empty() || groups.contains(&**group));
                if !wanted || grant.enabled != enabled || !by(creator, created) || !by(modifier, modified) {
                    continue;
                }
                let names = Object::default().with("topicName", &**topic).with("groupName", &**group);
                let names = if enabled { names } else { names.with("reason", &*grant.reason) };
                found.push(names.and(&granted(grant)));
            }
        }
        Ok(listed(&found))
    }

    /// Allows groups to consume topics, or forbids it.
    pub(super) fn add_grants(&mut self, given: &Parameters, enabled: bool) -> Checked<Object> {
        let (created, modified) = given.creation(None, &self.date())?;
        let (groups, topics) = (given.required_texts(GROUP)?, given.required_texts(TOPIC)?);
        if let Some(unknown) = topics.iter().find(|topic| !self.topics.contains_key(**topic)) {
            return Err(format!("topicName value {unknown} is not configure, please configure first!"));
        }
        let reason =
            if enabled { "Old API add, enable consume" } else { "Old API add blacklist, disable consume" };
        let history = History { created, modified };
        let mut done = Vec::new();
        for group in groups {
            for &topic in &topics {
                let outcome = self.set_grant(topic, group, enabled, reason, &history);
                done.push(outcome.describe(group_of(group)));
            }
        }
        topics.iter().for_each(|topic| self.apply_record(topic));
        Ok(listed(&done))
    }

    /// Takes back that groups may consume topics, or may not. Without groups, it is about all that were named for them.
    pub(super) fn drop_grants(&mut self, given: &Parameters, enabled: bool) -> Checked<Object> {
        let edit = given.modification(&self.date())?;
        let (topics, groups) = (given.required_texts(TOPIC)?, given.texts(GROUP)?);
        let reason = if enabled {
            "Old API delete, disable consume"
        } else {
            "Old API delete blacklist, enable consume"
        };
        let mut done = Vec::new();
        for topic in topics {
            let known = self.topics.get(topic).map(|topic| &topic.record.grants);
            let named: Vec<Arc<str>> = known.into_iter().flat_map(BTreeMap::keys).cloned().collect();
            for group in named.iter().filter(|group| groups.is_empty() || groups.contains(&***group)) {
                self.set_grant(topic, group, !enabled, reason, &History::new(&edit));
            }
            self.apply_record(topic);
            if groups.is_empty() {
                done.push(Outcome::done().describe(group_of("")));
            }
            done.extend(groups.iter().map(|group| Outcome::done().describe(group_of(group))));
        }
        Ok(listed(&done))
    }

    /// Notes whether a group may consume a topic. [`Broker::apply_record`] is to follow.
    fn set_grant(&mut self, topic: &str, group: &str, enabled: bool, reason: &str, by: &History) -> Outcome {
        let Some(known) = self.topics.get_mut(topic) else { return Outcome::done() };
        let grants = &mut known.record.grants;
        let full = grants.len() >= MAX_GRANTS;
        match grants.get_mut(group) {
            Some(grant) if grant.enabled == enabled => return Outcome::done(),
            Some(grant) => {
                (grant.enabled, grant.reason) = (enabled, reason.into());
                grant.history.modified = by.modified.clone();
            }
            None if full => {
                let text = format!("at most {MAX_GRANTS} groups can be named for a topic");
                return Outcome::refused(LACKING, text);
            }
            None => {
                let grant = Grant { enabled, reason: reason.into(), history: by.clone() };
                grants.insert(group.into(), grant);
            }
        }
        self.write_grant(topic, group);
        Outcome::done()
    }
}

/// The name of a group in an answer.
fn group_of(group: &str) -> Object {
    Object::default().with("groupName", group)
}
