//! Topics: list, add, change, and delete in two steps, the first of which can be taken back.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::groups::granted;
use super::object::dated;
use super::parameters::{
    BROKER_ID, BROKER_PORT, CREATE_USER, MODIFY_USER, Parameters, STATUS_ID, Settings, TOPIC, policy_of,
};
use super::{
    BROKER, Checked, EXISTS, LACKING, NOT_FOUND, Object, Outcome, STORE_FAILED, UNCHANGED, WRONG_STATUS,
    WRONG_VALUE, listed,
};
use crate::broker::tubemq::Broker;
use crate::broker::tubemq::partition::Topic;
use crate::broker::tubemq::records::{Edit, History, Record, Status};
use crate::error::{Error, ErrorKind};

/// Bytes of the unit of message sizes.
const MEGABYTE: usize = 1 << 20;
/// Status that matches any other.
const ANY_STATUS: i32 = -2;

/// Which topics a query is about.
struct Filter<'g> {
    names: BTreeSet<&'g str>,
    brokers: BTreeSet<i32>,
    port: Option<i32>,
    status: i32,
    create_user: Option<&'g str>,
    modify_user: Option<&'g str>,
    settings: Settings,
}

impl<'g> Filter<'g> {
    fn read(given: &'g Parameters) -> Checked<Self> {
        let status = given.number(STATUS_ID, ANY_STATUS, i32::MAX)?.unwrap_or(ANY_STATUS);
        if !(0..=3).contains(&status) && status != ANY_STATUS {
            let text = format!("The value of field topicStatusId invalid:unknown topic status code {status}");
            return Err(text);
        }
        Ok(Self {
            create_user: given.text(CREATE_USER)?,
            modify_user: given.text(MODIFY_USER)?,
            names: given.texts(TOPIC)?,
            brokers: given.numbers(BROKER_ID)?,
            port: given.number(BROKER_PORT, 1, i32::MAX)?,
            settings: given.settings()?,
            status,
        })
    }

    fn matches(&self, broker: &Broker, name: &str, topic: &Topic) -> bool {
        let Record { status, accept_publish, accept_subscribe, history, .. } = &topic.record;
        let Settings { stores, partitions, policy, publish, subscribe } = &self.settings;
        let named = |wanted: Option<&str>, edit: &Edit| wanted.is_none_or(|wanted| wanted == &*edit.user);
        (self.names.is_empty() || self.names.contains(name))
            && (self.brokers.is_empty() || self.brokers.contains(&(BROKER as i32)))
            && self.port.is_none_or(|port| port == i32::from(broker.settings.address.1))
            && [ANY_STATUS, status.number()].contains(&self.status)
            && named(self.create_user, &history.created)
            && named(self.modify_user, &history.modified)
            && stores.is_none_or(|stores| stores == 1)
            && partitions.is_none_or(|partitions| partitions as usize == topic.partitions.len())
            && policy.as_ref().is_none_or(|policy| *policy == broker.policy())
            && publish.is_none_or(|publish| publish == *accept_publish)
            && subscribe.is_none_or(|subscribe| subscribe == *accept_subscribe)
    }
}

/// The key of a topic on this broker.
fn key(topic: &str) -> String {
    format!("{BROKER}:{topic}")
}

fn no_broker(id: i32) -> Outcome {
    let text = format!(
        "Not found broker configure record by brokerId={id}, please create the broker's configure first!"
    );
    Outcome::refused(NOT_FOUND, text)
}

fn still_accepts(topic: &str) -> Outcome {
    let text = format!(
        "The values of acceptPublish and acceptSubscribe must be false before change status of \
         brokerId-topicName({}) record!",
        key(topic)
    );
    Outcome::refused(WRONG_STATUS, text)
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::InvalidArgument | ErrorKind::InvalidTopic => WRONG_VALUE,
            ErrorKind::TopicNotFound => NOT_FOUND,
            ErrorKind::TooManyRequests => LACKING,
            _ => STORE_FAILED,
        };
        Self::refused(code, error.message())
    }
}

impl Broker {
    /// Retention of the messages of all topics, as the text of a policy.
    pub(super) fn policy(&self) -> String {
        policy_of(self.settings.retention.as_millis() as u64)
    }

    pub(super) fn list_topics(&self, given: &Parameters) -> Checked<Object> {
        let filter = Filter::read(given)?;
        let found = self.topics.iter().filter(|(name, topic)| filter.matches(self, name, topic));
        Ok(listed(&found.map(|(name, topic)| self.topic_object(name, topic)).collect::<Vec<_>>()))
    }

    fn topic_object(&self, name: &str, topic: &Topic) -> Object {
        let (record, partitions) = (&topic.record, topic.partitions.len());
        let running = Object::default()
            .with("acceptPublish", record.accept_publish)
            .with("acceptSubscribe", record.accept_subscribe)
            .with("numPartitions", partitions)
            .with("numTopicStores", 1)
            .with("brokerManageStatus", "online");
        let (host, port) = &self.settings.address;
        let deployed = Object::default()
            .with("topicName", name)
            .with("brokerId", BROKER)
            .with("brokerIp", host.as_str())
            .with("brokerPort", *port)
            .with("topicStatusId", record.status.number())
            .and(&self.settings_object(partitions, record.accept_publish, record.accept_subscribe))
            .and(&dated(&record.history))
            .object("runInfo", &running);
        Object::default()
            .with("topicName", name)
            .with("maxMsgSizeInMB", self.settings.max_message_size.div_ceil(MEGABYTE))
            .list("topicInfo", &[deployed])
            .with("infoCount", 1)
            .with("totalCfgNumPart", partitions)
            .with("isSrvAcceptPublish", record.accept_publish)
            .with("isSrvAcceptSubscribe", record.accept_subscribe)
            .with("totalRunNumPartCount", partitions)
            .object("authData", &control_object(record))
    }

    /// The settings of a topic, or of those that are made without any.
    pub(super) fn settings_object(&self, partitions: usize, publish: bool, subscribe: bool) -> Object {
        Object::default()
            .with("numTopicStores", 1)
            .with("numPartitions", partitions)
            .with("acceptPublish", publish)
            .with("acceptSubscribe", subscribe)
            .with("deletePolicy", self.policy())
    }

    /// Changes each of the topics that a request names on each of its brokers.
    fn each_topic(
        &mut self,
        given: &Parameters,
        mut change: impl FnMut(&mut Self, &str) -> Outcome,
    ) -> Checked<Object> {
        let (names, brokers) = (given.required_texts(TOPIC)?, given.required_numbers(BROKER_ID)?);
        let mut done = Vec::new();
        for name in names {
            for &id in &brokers {
                let outcome = if id == BROKER as i32 { change(self, name) } else { no_broker(id) };
                done.push(outcome.describe(topic_on(id, name)));
            }
        }
        Ok(listed(&done))
    }

    pub(super) fn add_topics(&mut self, given: &Parameters) -> Checked<Object> {
        let (created, modified) = given.creation(None, &self.date())?;
        let settings = given.settings()?;
        self.each_topic(given, |broker, name| broker.add_topic(name, &created, &modified, &settings))
    }

    pub(super) fn add_batch(&mut self, given: &Parameters) -> Checked<Object> {
        let now = self.date();
        let default = given.creation(None, &now)?;
        let items = given.items()?;
        let mut topics = Vec::new();
        for item in &items {
            let edits = item.creation(Some(&default), &now)?;
            let name = item.required(TOPIC)?;
            let id = item.required_number(BROKER_ID)?;
            if id != BROKER as i32 {
                let text = format!(
                    "Not found broker configure by brokerId = {id}, please create the broker's configure first!"
                );
                return Err(text);
            }
            topics.push((name, edits, item.settings()?));
        }
        // Of several items with one name, the last one counts.
        let mut names = BTreeSet::new();
        topics.reverse();
        topics.retain(|(name, ..)| names.insert(*name));
        topics.reverse();
        let mut done = Vec::new();
        for (name, (created, modified), settings) in topics {
            let outcome = self.add_topic(name, &created, &modified, &settings);
            done.push(outcome.describe(topic_on(BROKER as i32, name)));
        }
        Ok(listed(&done))
    }

    fn add_topic(&mut self, name: &str, created: &Edit, modified: &Edit, settings: &Settings) -> Outcome {
        if let Some(topic) = self.topics.get(name) {
            let text = match topic.record.status {
                Status::Normal => format!("Existed record found for brokerId-topicName({})!", key(name)),
                Status::SoftDeleted => format!(
                    "Softly deleted record found for brokerId-topicName({}), please resume or remove it first!",
                    key(name)
                ),
            };
            return Outcome::refused(EXISTS, text);
        }
        if let Err(outcome) = self.check_settings(settings) {
            return outcome;
        }
        let history = History { created: created.clone(), modified: modified.clone() };
        let record = Record {
            accept_publish: settings.publish.unwrap_or(true),
            accept_subscribe: settings.subscribe.unwrap_or(true),
            control: history.clone(),
            history,
            ..Record::default()
        };
        let partitions = settings.partitions.unwrap_or(self.settings.partitions);
        if let Err(error) = self.make_topic(name, partitions, record) {
            return error.into();
        }
        self.write_record(name);
        Outcome::done()
    }

    /// Refuses settings that differ from what all topics of this broker have.
    fn check_settings(&self, settings: &Settings) -> Result<(), Outcome> {
        if settings.stores.is_some_and(|stores| stores != 1) {
            let text = "numTopicStores must be 1: the embedded broker has one store for each topic";
            return Err(Outcome::refused(WRONG_VALUE, text));
        }
        let own = self.policy();
        if settings.policy.as_ref().is_some_and(|policy| *policy != own) {
            let text = format!(
                "deletePolicy must be {own}: the embedded broker keeps the messages of all topics for tubemq_retention"
            );
            return Err(Outcome::refused(WRONG_VALUE, text));
        }
        Ok(())
    }

    pub(super) fn modify_topics(&mut self, given: &Parameters) -> Checked<Object> {
        let edit = given.modification(&self.date())?;
        let settings = given.settings()?;
        self.each_topic(given, |broker, name| {
            broker.modify_topic(name, &edit, &settings).map_or_else(|outcome| outcome, |()| Outcome::done())
        })
    }

    fn modify_topic(&mut self, name: &str, edit: &Edit, settings: &Settings) -> Result<(), Outcome> {
        let Some(topic) = self.topics.get(name) else {
            let text = format!("Not found topic deploy configure for brokerId-topicName({})!", key(name));
            return Err(Outcome::refused(NOT_FOUND, text));
        };
        self.check_settings(settings)?;
        let before = topic.partitions.len() as u32;
        let partitions = settings.partitions.unwrap_or(before);
        let accept = (topic.record.accept_publish, topic.record.accept_subscribe);
        let wanted = (settings.publish.unwrap_or(accept.0), settings.subscribe.unwrap_or(accept.1));
        if (partitions, wanted) == (before, accept) {
            return Err(Outcome::refused(UNCHANGED, "Topic deploy configure not changed!"));
        }
        if partitions < before {
            let text = format!(
                "Partition number less than before, new value is {partitions}, current value is {before}in \
                 brokerId-topicName({}) record!",
                key(name)
            );
            return Err(Outcome::refused(WRONG_VALUE, text));
        }
        if topic.record.status == Status::SoftDeleted {
            let text = format!(
                "Softly deleted record cannot be changed, please resume or hard remove for brokerId-topicName({}) record!",
                key(name)
            );
            return Err(Outcome::refused(WRONG_STATUS, text));
        }
        if partitions > before {
            self.grow_topic(name, partitions)?;
        }
        self.edit_record(name, edit, |record| (record.accept_publish, record.accept_subscribe) = wanted);
        Ok(())
    }

    /// Changes the record of a topic, writes it, and lets it take effect.
    fn edit_record(&mut self, name: &str, edit: &Edit, change: impl FnOnce(&mut Record)) {
        let Some(topic) = self.topics.get_mut(name) else { return };
        topic.record.history.modified = edit.clone();
        change(&mut topic.record);
        self.write_record(name);
        self.apply_record(name);
    }

    /// Changes the status of each of the topics.
    fn each_status(
        &mut self,
        given: &Parameters,
        mut change: impl FnMut(&mut Self, &str, &Edit) -> Outcome,
    ) -> Checked<Object> {
        let edit = given.modification(&self.date())?;
        self.each_topic(given, |broker, name| {
            if broker.topics.contains_key(name) {
                return change(broker, name, &edit);
            }
            let text = format!(
                "Not found the topic {name}'s deploy configure in broker={BROKER}, please confirm the configure first!"
            );
            Outcome::refused(NOT_FOUND, text)
        })
    }

    /// The status of a topic, and whether it takes messages or consumers.
    fn state(&self, name: &str) -> (Status, bool) {
        let record = self.topics.get(name).map(|topic| &topic.record);
        record
            .map(|record| (record.status, record.accept_publish || record.accept_subscribe))
            .unwrap_or_default()
    }

    /// Takes topics out of use; their messages stay.
    pub(super) fn soft_delete_topics(&mut self, given: &Parameters) -> Checked<Object> {
        self.each_status(given, |broker, name, edit| {
            match broker.state(name) {
                (Status::Normal, true) => return still_accepts(name),
                (Status::Normal, false) => {
                    broker.edit_record(name, edit, |record| record.status = Status::SoftDeleted);
                }
                (Status::SoftDeleted, _) => {}
            }
            Outcome::done()
        })
    }

    /// Takes back a soft deletion.
    pub(super) fn restore_topics(&mut self, given: &Parameters) -> Checked<Object> {
        self.each_status(given, |broker, name, edit| {
            if broker.state(name).0 == Status::SoftDeleted {
                broker.edit_record(name, edit, |record| record.status = Status::Normal);
            }
            Outcome::done()
        })
    }

    /// Deletes topics that are out of use, with their messages.
    pub(super) fn remove_topics(&mut self, given: &Parameters) -> Checked<Object> {
        self.each_status(given, |broker, name, _| match broker.state(name) {
            (_, true) => still_accepts(name),
            (Status::Normal, false) => {
                let text =
                    format!("Please softly deleted the brokerId-topicName({}) record first!", key(name));
                Outcome::refused(WRONG_STATUS, text)
            }
            (Status::SoftDeleted, false) => {
                broker.delete_topic(name).map_or_else(Outcome::from, |()| Outcome::done())
            }
        })
    }
}

/// The names of a topic and a broker in an answer.
fn topic_on(broker: i32, topic: &str) -> Object {
    Object::default().with("brokerId", broker).with("topicName", topic)
}

/// The part of a topic's description about the groups that may consume it, if only some may.
fn control_object(record: &Record) -> Object {
    if !record.restricted {
        return Object::default();
    }
    let group =
        |(name, grant): (&Arc<str>, _)| Object::default().with("groupName", &**name).and(&granted(grant));
    let groups: Vec<Object> = record.grants.iter().map(group).collect();
    let Edit { user, date } = &record.control.modified;
    Object::default()
        .with("enableAuthControl", true)
        .with("createUser", &**user)
        .with("createDate", &**date)
        .list("authConsumeGroup", &groups)
        .with("groupCount", groups.len())
}
