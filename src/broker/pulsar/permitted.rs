//! Permissions of clients. A producer or consumer is decided once, when it is created, and again
//! when the rules change: then those end that may not be there any more. Their clients try again
//! and are told why.
//!
//! A durable subscription belongs to the user that made it, in all partitions of a topic. Other
//! users are refused, unless the rules let them. One that was made by an operator, by a client
//! without a user or by a broker without users is free. The name of a producer belongs to a user in
//! the same way, as long as its last sequence id is kept: a client with the name can use up the
//! ids.

use std::sync::Arc;

use super::Broker;
use super::connection::Reader;
use super::names::Name;
use super::subscription::ConsumerKey;
use super::topic::{ProducerKey, Topic};
use crate::permissions::{Access, Client, Domain, Permissions, note_denial};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_pulsar::command::Command;
use forebay_pulsar::{NO_REQUEST, pb};

/// Request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Produce,
    Consume,
    /// Ask about a topic: for those who may produce or consume.
    LookUp,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::Consume => "consume",
            Self::LookUp => "look up",
        }
    }
}

impl Broker {
    /// The user of a connection.
    pub(super) fn user_of(&self, id: u64) -> Option<&str> {
        self.connections.get(&id)?.session.user()
    }

    /// Whether the rules, if there are some, allow a user the operation. The rules of a partition
    /// are those of its topic.
    pub(super) fn may(&self, user: Option<&str>, operation: Operation, topic: &str) -> bool {
        let Some(rules) = &self.settings.permissions else { return true };
        let client = Client { user, id: None };
        let may = |access| rules.permits(Domain::Pulsar, client, access, topic);
        match operation {
            Operation::Produce => may(Access::Write),
            Operation::Consume => may(Access::Read),
            Operation::LookUp => may(Access::Read) || may(Access::Write),
        }
    }

    /// Refuses what the rules do not allow, and counts it.
    pub(super) fn check_permission(
        &mut self,
        user: Option<&str>,
        operation: Operation,
        name: &Name,
    ) -> Result<()> {
        if self.may(user, operation, &name.parent()) {
            return Ok(());
        }
        self.counters.denied += 1;
        let (operation, topic) = (operation.name(), name.parent());
        let text = format!("Client is not authorized to {operation} on topic {topic}");
        note_denial(Domain::Pulsar, Client { user, id: None }, operation, &topic);
        Err(Error::new(ErrorKind::Authorization, text))
    }

    /// [`Self::check_permission`] of a connection.
    pub(super) fn check_connection(&mut self, id: u64, operation: Operation, name: &Name) -> Result<()> {
        if self.settings.permissions.is_none() {
            return Ok(());
        }
        let user = self.user_of(id).map(str::to_owned);
        self.check_permission(user.as_deref(), operation, name)
    }

    /// Whether a user may use a subscription, which belongs to `owner`, or is free.
    fn may_use(&self, user: Option<&str>, owner: Option<&str>, subscription: &str) -> bool {
        let Some(owner) = owner.filter(|_| self.settings.owners) else { return true };
        let rules = self.settings.permissions.as_ref();
        user == Some(owner) || rules.is_some_and(|rules| rules.shares(Domain::Pulsar, user, subscription))
    }

    /// The partitions of a partition's topic that there are.
    fn siblings_of(&self, name: &Name) -> impl Iterator<Item = &Topic> {
        let parent = name.parent();
        let partitions = name.partition.and_then(|_| self.parents.get(&parent));
        let partitions = partitions.map_or(0, |(_, partitions)| *partitions);
        (0..partitions).filter_map(move |partition| {
            let id = self.names.get(&*format!("{parent}-partition-{partition}"))?;
            self.topics.get(id)
        })
    }

    /// The owner of a subscription in another partition of the topic, if one has it.
    fn owner_elsewhere(&self, name: &Name, subscription: &str) -> Option<Option<Arc<str>>> {
        self.siblings_of(name).find_map(|topic| {
            let found = topic.subscriptions.get(subscription)?;
            found.durable.then(|| found.owner.clone())
        })
    }

    /// The owner that a new durable subscription gets. Partitions are subscribed to one by one:
    /// they have the same owner even if two users come at the same time.
    pub(super) fn owner_of_new(&self, id: u64, name: &Name, subscription: &str) -> Option<Arc<str>> {
        if !self.settings.owners {
            return None;
        }
        self.owner_elsewhere(name, subscription).unwrap_or_else(|| self.user_of(id).map(Arc::from))
    }

    /// Refuses a durable subscription of another user, and counts it. Gives its owner, or the one
    /// that it gets if it is new.
    pub(super) fn check_owner(
        &mut self,
        id: u64,
        topic: u64,
        name: &Name,
        subscription: &str,
    ) -> Result<Option<Arc<str>>> {
        if !self.settings.owners {
            return Ok(None);
        }
        let known = self.topics.get(&topic).and_then(|topic| topic.subscriptions.get(subscription));
        let owner = match known {
            Some(known) => known.owner.clone(),
            None => self.owner_of_new(id, name, subscription),
        };
        if self.may_use(self.user_of(id), owner.as_deref(), subscription) {
            return Ok(owner);
        }
        self.counters.denied += 1;
        let client = Client { user: self.user_of(id), id: None };
        note_denial(Domain::Pulsar, client, "use the subscription", subscription);
        let text = format!(
            "Client is not authorized to use subscription {subscription} of topic {}: it belongs to another user",
            name.parent()
        );
        Err(Error::new(ErrorKind::Authorization, text))
    }

    /// The owner of something new that the client of this connection makes.
    pub(super) fn owner_for(&self, id: u64) -> Option<Arc<str>> {
        self.user_of(id).filter(|_| self.settings.owners).map(Arc::from)
    }

    /// Refuses the producer name of another user, and counts it. Gives its owner, or the one that
    /// it gets if it is new: a name has one owner in all partitions of a topic.
    pub(super) fn check_producer_owner(
        &mut self,
        id: u64,
        topic: u64,
        name: &Name,
        producer: &str,
    ) -> Result<Option<Arc<str>>> {
        if !self.settings.owners {
            return Ok(None);
        }
        let own = self.topics.get(&topic).and_then(|topic| topic.producer_owner(producer));
        let known = own.or_else(|| self.siblings_of(name).find_map(|topic| topic.producer_owner(producer)));
        let Some(known) = known else { return Ok(self.owner_for(id)) };
        let owner = known.cloned();
        let user = self.user_of(id);
        let rules = self.settings.permissions.as_ref();
        let may = owner.as_deref().is_none_or(|owner| user == Some(owner))
            || rules.is_some_and(|rules| rules.is_superuser(user));
        if may {
            return Ok(owner);
        }
        note_denial(Domain::Pulsar, Client { user, id: None }, "use the producer name", producer);
        self.counters.denied += 1;
        let text = format!(
            "Client is not authorized to use producer name {producer} of topic {}: it belongs to another user",
            name.parent()
        );
        Err(Error::new(ErrorKind::Authorization, text))
    }

    /// Whether a connection may know that a topic exists.
    pub(super) fn may_see(&self, id: u64, topic: &str) -> bool {
        self.may_list(self.user_of(id), topic)
    }

    /// Whether a user may know that a topic exists.
    pub(super) fn may_list(&self, user: Option<&str>, topic: &str) -> bool {
        if self.settings.permissions.is_none() {
            return true;
        }
        let parent = Name::parse(topic).map(|name| name.parent());
        parent.is_ok_and(|parent| self.may(user, Operation::LookUp, &parent))
    }

    /// Cost of [`Self::may_see`] for so many topics, in bytes that would take as long.
    pub(super) fn work_of_decisions(&self, topics: usize) -> usize {
        self.settings.permissions.as_ref().map_or(0, |_| topics * 1024)
    }

    /// Replaces the permissions, and ends producers and consumers that may not be there any more.
    pub(super) fn change_permissions(&mut self, permissions: Arc<Permissions>) {
        self.settings.permissions = Some(permissions);
        let (mut writers, mut readers) = (Vec::new(), Vec::new());
        for (id, connection) in &self.connections {
            let user = connection.session.user();
            let may = |topic: u64, operation| {
                let topic = self.topics.get(&topic).and_then(|topic| Name::parse(&topic.name).ok());
                topic.is_none_or(|name| self.may(user, operation, &name.parent()))
            };
            let denied =
                connection.producers.iter().filter(|(_, writer)| !may(writer.topic, Operation::Produce));
            writers.extend(denied.map(|(producer, _)| ProducerKey { session: *id, id: *producer }));
            let may_read = |reader: &Reader| {
                let topic = self.topics.get(&reader.topic);
                let found = topic.and_then(|topic| topic.subscriptions.get(&reader.subscription));
                let owner = found.and_then(|found| found.owner.as_deref());
                may(reader.topic, Operation::Consume) && self.may_use(user, owner, &reader.subscription)
            };
            let denied = connection.consumers.iter().filter(|(_, reader)| !may_read(reader));
            let key = |consumer: &u64| ConsumerKey { session: *id, id: *consumer };
            readers.extend(denied.map(|(consumer, reader)| (key(consumer), reader.clone())));
        }
        writers.into_iter().for_each(|key| self.end_producer(key));
        readers.into_iter().for_each(|(key, reader)| self.end_consumer(key, &reader));
    }

    fn end_producer(&mut self, key: ProducerKey) {
        let Some(connection) = self.connections.get(&key.session) else { return };
        let Some(writer) = connection.producers.get(&key.id) else { return };
        let topic = writer.topic;
        let denied = Error::new(ErrorKind::Authorization, "Client is not authorized to produce any more");
        self.fence(key, &denied);
        self.remove_producer(topic, key.session, key.id);
    }

    fn end_consumer(&mut self, key: ConsumerKey, reader: &Reader) {
        let Some(connection) = self.connections.get_mut(&key.session) else { return };
        connection.consumers.remove(&key.id);
        let close =
            pb::CommandCloseConsumer { consumer_id: key.id, request_id: NO_REQUEST, ..Default::default() };
        self.reply(key.session, &Command::CloseConsumer(close));
        self.detach(reader, key);
        self.flush_cursor(reader.topic, &reader.subscription);
    }
}
