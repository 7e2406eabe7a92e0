//! Queries about topics and schemas, and commands that the embedded broker does not support.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::connection::Reader;
use super::names::Name;
use super::permitted::Operation;
use super::{Broker, DOMAIN, server_error};
use crate::pulsar::topic::is_stored;
use crate::store::{MAX_PARTITIONS, Op};
use forebay_base::checksum::crc32c;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_pulsar::command::Command;
use forebay_pulsar::pb;

impl Broker {
    pub(super) fn handle_lookup(&mut self, id: u64, command: Command) -> Result<()> {
        match command {
            Command::PartitionedMetadata(command) => self.partitions(id, &command),
            Command::Lookup(command) => self.lookup(id, &command),
            Command::GetTopicsOfNamespace(command) => self.topics_of_namespace(id, &command),
            Command::WatchTopicList(command) => self.watch_topics(id, &command),
            Command::WatchTopicListClose(command) => self.unwatch_topics(id, &command),
            Command::GetSchema(command) => self.get_schema(id, &command),
            Command::GetOrCreateSchema(command) => self.create_schema(id, &command),
            Command::NewTxn(_)
            | Command::AddPartitionToTxn(_)
            | Command::AddSubscriptionToTxn(_)
            | Command::EndTxn(_)
            | Command::EndTxnOnPartition(_)
            | Command::EndTxnOnSubscription(_)
            | Command::TcClientConnectRequest(_) => {
                let error = unsupported();
                self.reply_error(id, command.request_id().unwrap_or_default(), &error);
            }
            other => return Err(Error::protocol(format!("{} from a client", other.name()))),
        }
        Ok(())
    }

    fn partitions(&mut self, id: u64, command: &pb::CommandPartitionedTopicMetadata) {
        let result = self
            .check_lookup(id, &command.topic)
            .and_then(|_| self.try_partitions(&command.topic, command.metadata_auto_creation_enabled()));
        use pb::command_partitioned_topic_metadata_response::LookupType;
        let mut response = pb::CommandPartitionedTopicMetadataResponse {
            request_id: command.request_id,
            response: Some(LookupType::Success as i32),
            ..Default::default()
        };
        match result {
            Ok(partitions) => response.partitions = Some(partitions),
            Err(error) => {
                response.response = Some(LookupType::Failed as i32);
                response.error = Some(server_error(error.kind()) as i32);
                response.message = Some(error.message().to_owned());
            }
        }
        self.reply_written(id, Command::PartitionedMetadataResponse(response));
    }

    /// The name of a topic that a connection may ask about.
    fn check_lookup(&mut self, id: u64, topic: &str) -> Result<Name> {
        let name = Name::parse(topic)?;
        self.check_connection(id, Operation::LookUp, &name)?;
        Ok(name)
    }

    pub(super) fn try_partitions(&mut self, topic: &str, create: bool) -> Result<u32> {
        let name = Name::parse(topic)?;
        if let Some((_, partitions)) = self.parents.get(&name.full) {
            return Ok(*partitions);
        }
        if self.names.contains_key(&name.full) || name.partition.is_some() {
            return Ok(0);
        }
        self.check_namespace(&name)?;
        if !create || !self.settings.auto_create {
            return Err(Error::new(ErrorKind::TopicNotFound, format!("Topic {} does not exist", name.full)));
        }
        if self.settings.partitions > 0 {
            self.create_topic(topic, self.settings.partitions)?;
            if !name.is_persistent() {
                self.non_persistent.fleeting.insert(name.full);
            }
        }
        // A plain topic is created by its first producer or subscription.
        Ok(self.settings.partitions)
    }

    /// Creates a plain topic, or one with `partitions`.
    pub fn create_topic(&mut self, topic: &str, partitions: u32) -> Result<()> {
        let name = Name::parse(topic)?;
        let exists = self.names.contains_key(&name.full) || self.parents.contains_key(&name.full);
        if exists {
            return Err(
                Error::new(ErrorKind::InvalidArgument, "the topic already exists").with_topic(name.full)
            );
        }
        if partitions == 0 {
            return self.create_log(&name).map(drop);
        }
        if partitions > MAX_PARTITIONS {
            let text = format!("{partitions} partitions exceed the limit of {MAX_PARTITIONS}");
            return Err(Error::new(ErrorKind::InvalidArgument, text).with_topic(name.full));
        }
        if name.partition.is_some() {
            let text = "a partition cannot have partitions";
            return Err(Error::new(ErrorKind::InvalidArgument, text).with_topic(name.full));
        }
        let id = self.new_topic_id(&name, partitions)?;
        self.parents.insert(name.full.clone(), (id, partitions));
        for partition in 0..partitions {
            let part = Name::parse(&format!("{}-partition-{partition}", name.full))?;
            if !self.names.contains_key(&part.full) {
                self.create_log(&part)?;
            }
        }
        Ok(())
    }

    /// Adds partitions to a partitioned topic until it has `partitions`. The new ones get the
    /// durable subscriptions of the others, so that a consumer that hears of them later misses
    /// nothing.
    pub fn grow_topic(&mut self, topic: &str, partitions: u32) -> Result<()> {
        let name = Name::parse(topic)?;
        let refused = |kind, text: String| Err(Error::new(kind, text).with_topic(name.full.clone()));
        let Some(&(parent, before)) = self.parents.get(&name.full) else {
            if self.names.contains_key(&name.full) {
                let text = "the topic has no partitions: only a partitioned topic can get more";
                return refused(ErrorKind::NotAllowed, text.into());
            }
            return refused(ErrorKind::TopicNotFound, "the topic does not exist".into());
        };
        if partitions <= before {
            let text = format!(
                "the topic has {before} partitions, and {partitions} were asked for: partitions can only be added"
            );
            return refused(ErrorKind::InvalidArgument, text);
        }
        if partitions > MAX_PARTITIONS {
            let text = format!("{partitions} partitions exceed the limit of {MAX_PARTITIONS}");
            return refused(ErrorKind::InvalidArgument, text);
        }
        let parts = |range: std::ops::Range<u32>| {
            let part = |partition| Name::parse(&format!("{}-partition-{partition}", name.full));
            range.map(part).collect::<Result<Vec<_>>>()
        };
        // All or none: it may not stop in the middle.
        let mut fresh = parts(before..partitions)?;
        fresh.retain(|part| !self.names.contains_key(&part.full));
        self.check_room(name.is_persistent(), fresh.len())?;
        let mut subscriptions = BTreeMap::new();
        for part in parts(0..before)? {
            let Some(topic) = self.names.get(&part.full).and_then(|id| self.topics.get(id)) else { continue };
            let durable = topic.subscriptions.values().filter(|subscription| subscription.durable);
            subscriptions.extend(durable.map(|s| {
                let same = (s.kind, s.properties.clone(), s.owner.clone());
                (s.name.clone(), same)
            }));
        }
        for part in &fresh {
            self.create_log(part)?;
        }
        // Also those that were there before under their own names.
        for part in parts(before..partitions)? {
            let Some(id) = self.names.get(&part.full).copied() else { continue };
            let first = self.topics.get(&id).map_or(0, |topic| topic.log.first());
            for (subscription, (kind, properties, owner)) in &subscriptions {
                self.add_subscription(id, subscription, *kind, first, properties.clone(), owner.clone());
            }
        }
        self.parents.insert(name.full.clone(), (parent, partitions));
        if name.is_persistent() {
            self.commits.write(Op::Partitions { id: parent, domain: DOMAIN, name: name.full, partitions });
        }
        Ok(())
    }

    /// Deletes a topic with its partitions, entries and subscriptions, and closes its producers and
    /// consumers.
    pub fn delete_topic(&mut self, topic: &str) -> Result<()> {
        let name = Name::parse(topic)?;
        let mut logs: Vec<Arc<str>> = Vec::new();
        if let Some((id, partitions)) = self.parents.remove(&name.full) {
            self.forget_topic(id);
            logs.extend(
                (0..partitions).map(|partition| format!("{}-partition-{partition}", name.full).into()),
            );
        } else if self.names.contains_key(&name.full) {
            logs.push(name.full.clone());
        } else {
            return Err(
                Error::new(ErrorKind::TopicNotFound, "the topic does not exist").with_topic(name.full)
            );
        }
        for log in logs {
            let Some(id) = self.names.remove(&log) else { continue };
            self.watchers.changed(self.now, &log);
            let (producers, subscriptions) = match self.topics.get_mut(&id) {
                Some(topic) => {
                    (topic.take_producers(), topic.subscriptions.keys().cloned().collect::<Vec<_>>())
                }
                None => continue,
            };
            let gone = Error::new(ErrorKind::TopicNotFound, "The topic was deleted");
            producers.into_iter().for_each(|key| self.fence(key, &gone));
            for subscription in subscriptions {
                self.close_consumers(&Reader { topic: id, subscription }, true);
            }
            self.topics.remove(&id);
            self.forget_topic(id);
        }
        self.non_persistent.fleeting.remove(&name.full);
        self.drop_schemas(&name);
        Ok(())
    }

    /// Removes what the store has of a topic.
    fn forget_topic(&mut self, id: u64) {
        if is_stored(id) {
            self.commits.write(Op::DeleteTopic { id });
        }
    }

    /// Terminates a topic, or all its partitions, and closes its producers.
    pub fn terminate_topic(&mut self, topic: &str) -> Result<()> {
        let name = Name::parse(topic)?;
        if !name.is_persistent() {
            let text = "a non-persistent topic cannot be terminated: it keeps no messages that could be read to their end";
            return Err(Error::new(ErrorKind::NotAllowed, text).with_topic(name.full));
        }
        if let Some(error) = self.refusal() {
            return Err(error);
        }
        let names: Vec<Arc<str>> = match self.parents.get(&name.full) {
            Some((_, partitions)) => {
                (0..*partitions).map(|n| format!("{}-partition-{n}", name.full).into()).collect()
            }
            None => vec![name.full.clone()],
        };
        let ids: Vec<u64> = names.iter().filter_map(|name| self.names.get(name).copied()).collect();
        if ids.is_empty() {
            let text = "the topic does not exist";
            return Err(Error::new(ErrorKind::TopicNotFound, text).with_topic(name.full));
        }
        for id in ids {
            let Some(topic) = self.topics.get_mut(&id).filter(|topic| !topic.terminated) else { continue };
            let ended = Error::new(ErrorKind::TopicTerminated, "Topic was already terminated");
            for key in topic.terminate() {
                if let Some(command) = self.dismiss(key, &ended) {
                    // Behind the receipts of what it has sent before.
                    self.reply_written(key.session, command);
                }
            }
            self.commits.write(Op::Terminate { topic: id });
            self.due.insert(id);
        }
        self.pump();
        Ok(())
    }

    fn lookup(&mut self, id: u64, command: &pb::CommandLookupTopic) {
        use pb::command_lookup_topic_response::LookupType;
        let mut response =
            pb::CommandLookupTopicResponse { request_id: command.request_id, ..Default::default() };
        match self.check_lookup(id, &command.topic) {
            Ok(_) => {
                for url in &self.settings.urls {
                    let of = &mut response;
                    let place = if url.starts_with("pulsar+ssl:") {
                        &mut of.broker_service_url_tls
                    } else {
                        &mut of.broker_service_url
                    };
                    place.get_or_insert_with(|| url.clone());
                }
                response.response = Some(LookupType::Connect as i32);
                response.authoritative = Some(true);
                // A client that connected through another address (a forwarded port, a container)
                // keeps using it.
                response.proxy_through_service_url = Some(true);
            }
            Err(error) => {
                response.response = Some(LookupType::Failed as i32);
                response.error = Some(server_error(error.kind()) as i32);
                response.message = Some(error.message().to_owned());
            }
        }
        self.reply(id, &Command::LookupResponse(response));
    }

    fn topics_of_namespace(&mut self, id: u64, command: &pb::CommandGetTopicsOfNamespace) {
        use pb::command_get_topics_of_namespace::Mode;
        let domains: &[&str] = match command.mode() {
            Mode::Persistent => &["persistent"],
            Mode::NonPersistent => &["non-persistent"],
            Mode::All => &["persistent", "non-persistent"],
        };
        let mut topics: Vec<String> = Vec::new();
        let mut seen = 0;
        for domain in domains {
            let prefix = format!("{domain}://{}/", command.namespace);
            let inside = self.names.keys().filter(|name| name.starts_with(&prefix)).inspect(|_| seen += 1);
            topics.extend(inside.filter(|name| self.may_see(id, name)).map(|name| name.to_string()));
        }
        let joined = topics.join(",");
        let decided = self.work_of_decisions(seen);
        if let Some(connection) = self.connections.get_mut(&id) {
            // The search went through every name there is, even if the client knows the list and
            // gets none.
            connection.work += joined.len() + 64 * self.names.len() + decided;
        }
        let hash = crc32c(0, joined.as_bytes());
        let hash = format!("{:08x}", hash.swap_bytes());
        let changed = command.topics_hash.as_deref() != Some(&hash);
        let response = pb::CommandGetTopicsOfNamespaceResponse {
            request_id: command.request_id,
            topics: if changed { topics } else { Vec::new() },
            filtered: Some(false),
            topics_hash: Some(hash),
            changed: Some(changed),
        };
        self.reply(id, &Command::GetTopicsOfNamespaceResponse(response));
    }

    fn create_schema(&mut self, id: u64, command: &pb::CommandGetOrCreateSchema) {
        let result = Name::parse(&command.topic).and_then(|name| {
            self.check_connection(id, Operation::Produce, &name)?;
            let parent = name.parent();
            if !self.names.contains_key(&name.full) && !self.parents.contains_key(&parent) {
                // As by the real broker: a schema does not create its topic.
                let text = format!("Topic not found: {}", name.full);
                return Err(Error::new(ErrorKind::TopicNotFound, text));
            }
            if let Some(error) = self.refusal() {
                return Err(error);
            }
            self.add_schema(&name, &command.schema)
        });
        let mut response =
            pb::CommandGetOrCreateSchemaResponse { request_id: command.request_id, ..Default::default() };
        match result {
            Ok(version) => response.schema_version = Some(version),
            Err(error) => {
                response.error_code = Some(server_error(error.kind()) as i32);
                response.error_message = Some(error.message().to_owned());
            }
        }
        self.reply_written(id, Command::GetOrCreateSchemaResponse(response));
    }

    fn get_schema(&mut self, id: u64, command: &pb::CommandGetSchema) {
        let mut response =
            pb::CommandGetSchemaResponse { request_id: command.request_id, ..Default::default() };
        let found = self.check_lookup(id, &command.topic).and_then(|_| self.find_schema(command));
        match found {
            Ok((schema, version)) => {
                response.schema = Some(schema);
                response.schema_version = Some(version);
            }
            Err(error) => {
                response.error_code = Some(server_error(error.kind()) as i32);
                response.error_message = Some(error.message().to_owned());
            }
        }
        self.reply(id, &Command::GetSchemaResponse(Box::new(response)));
    }
}

fn unsupported() -> Error {
    Error::new(ErrorKind::NotAllowed, "the embedded broker does not support transactions")
}
