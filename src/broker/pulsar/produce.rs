//! PRODUCER, SEND and CLOSE_PRODUCER.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::connection::Writer;
use super::consume::check_subscription_name;
use super::names::{Facts, Name};
use super::permitted::Operation;
use super::{Action, Broker, error_command, server_error};
use crate::log::cursor::MAX_BATCH;
use crate::log::{BATCH, CHUNK, Entry, weight};
use crate::pending_writes::PendingWrites;
use crate::pulsar::topic::{Access, Admission, Candidate, ProducerKey, ProducerState, Topic, is_stored};
use crate::stats::Traffic;
use crate::store::{Op, StoredProducer};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::random;
use forebay_pulsar::command::Command;
use forebay_pulsar::frame::Payload;
use forebay_pulsar::producer::MAX_SEQUENCE_ID;
use forebay_pulsar::{NO_REQUEST, hot, pb};
use forebay_sqlite::Job;

/// Entries below this size are copied, because a slice would keep the whole read buffer alive.
const COPY_BELOW: usize = 32 << 10;
/// Limits on the producers and on the consumers of a connection.
pub(super) const PER_SESSION: usize = 10_000;
/// Stands for the connection of an operator, whose requests come over HTTP.
const NO_SESSION: u64 = u64::MAX;

impl Broker {
    pub(super) fn producer(&mut self, id: u64, command: pb::CommandProducer) -> Result<()> {
        let access = match pb::ProducerAccessMode::try_from(command.producer_access_mode.unwrap_or(0)) {
            Ok(pb::ProducerAccessMode::Shared) => Access::Shared,
            Ok(pb::ProducerAccessMode::Exclusive) => Access::Exclusive,
            Ok(pb::ProducerAccessMode::WaitForExclusive) => Access::WaitForExclusive,
            Ok(pb::ProducerAccessMode::ExclusiveWithFencing) => Access::Fencing,
            Err(_) => return Err(Error::protocol("unknown access mode")),
        };
        let request_id = command.request_id;
        match self.try_producer(id, command, access) {
            Ok(()) => {}
            Err(error) => self.reply_error(id, request_id, &error),
        }
        Ok(())
    }

    fn try_producer(&mut self, id: u64, command: pb::CommandProducer, access: Access) -> Result<()> {
        let Some(connection) = self.connections.get(&id) else { return Ok(()) };
        if let Some(writer) = connection.producers.get(&command.producer_id) {
            // This lets a client recover that timed out before the broker answered; the topic is
            // not compared.
            if !writer.ready {
                return Err(Error::new(
                    ErrorKind::ServiceNotReady,
                    "Producer is already present on the connection",
                ));
            }
            self.producer_success(id, command.producer_id, command.request_id, true, true);
            return Ok(());
        }
        if connection.producers.len() >= PER_SESSION {
            return Err(Error::new(ErrorKind::TooManyRequests, "too many producers on one connection"));
        }
        let name = self.check_producer(id, &command)?;
        let topic_id = self.open_topic(&name, true)?;
        let given = command.producer_name.as_deref().filter(|name| !name.is_empty());
        let owner = match given {
            Some(given) => self.check_producer_owner(id, topic_id, &name, given)?,
            None => self.owner_for(id),
        };
        let schema_version =
            command.schema.as_ref().map(|schema| self.add_schema(&name, schema)).transpose()?;
        let producer_name = self.producer_name(given);
        let key = ProducerKey { session: id, id: command.producer_id };
        let candidate = Candidate {
            key,
            name: producer_name.clone(),
            owner: owner.clone(),
            access,
            epoch: command.epoch.unwrap_or(0),
            topic_epoch: command.topic_epoch,
        };
        let Some(topic) = self.topics.get_mut(&topic_id) else { return Ok(()) };
        let before = topic.epoch;
        let admission = topic.admit(candidate)?;
        let epoch = topic.epoch;
        let ready = match admission {
            Admission::Ready(out) => {
                let fenced = Error::new(ErrorKind::ProducerFenced, "Another producer has fenced the topic");
                for old in out {
                    self.fence(old, &fenced);
                }
                true
            }
            Admission::Waiting => false,
        };
        if epoch != before && is_stored(topic_id) {
            self.commits.write(Op::Epoch { topic: topic_id, epoch });
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.dismissed.remove(&command.producer_id);
            connection.producers.insert(
                command.producer_id,
                Writer {
                    topic: topic_id,
                    name: producer_name,
                    owner,
                    ready,
                    request: command.request_id,
                    schema_version,
                },
            );
        }
        let initial = command.initial_subscription_name.filter(|name| !name.is_empty());
        if let Some(subscription) = initial.filter(|_| is_stored(topic_id)) {
            let owner = self.owner_of_new(id, &name, &subscription);
            self.create_subscription(topic_id, &subscription, 0, owner);
        }
        self.producer_success(id, command.producer_id, command.request_id, ready, false);
        Ok(())
    }

    /// Refuses a producer that is not permitted, or whose messages have no room. Returns the name
    /// of its topic.
    fn check_producer(&mut self, id: u64, command: &pb::CommandProducer) -> Result<Name> {
        if let Some(error) = self.refusal() {
            return Err(error);
        }
        let name = Name::parse(&command.topic)?;
        self.check_connection(id, Operation::Produce, &name)?;
        if let Some(subscription) = command.initial_subscription_name.as_ref().filter(|name| !name.is_empty())
        {
            check_subscription_name(subscription)?;
            self.check_connection(id, Operation::Consume, &name)?;
        }
        if name.is_persistent() && self.over_quota() {
            return Err(self.quota());
        }
        Ok(name)
    }

    /// The name that a client gave its producer, or a new one.
    fn producer_name(&mut self, given: Option<&str>) -> Arc<str> {
        match given {
            Some(name) => name.into(),
            None => {
                self.next_producer += 1;
                // Must differ from the names of earlier runs, or deduplication would drop its
                // messages. The time alone may come again, as clocks are set.
                let (wall_ms, chance) = (self.settings.clock.wall_ms(self.now), random::bits());
                format!("forebay-{wall_ms:x}-{}-{:08x}", self.next_producer, chance as u32).into()
            }
        }
    }

    fn producer_success(&mut self, id: u64, producer: u64, request_id: u64, ready: bool, again: bool) {
        let Some(writer) =
            self.connections.get(&id).and_then(|connection| connection.producers.get(&producer))
        else {
            return;
        };
        let Some(topic) = self.topics.get(&writer.topic) else { return };
        let last = topic.sequences.get(&writer.name).map_or(-1, |state| state.last);
        let exclusive = topic
            .producers()
            .any(|p| p.key.session == id && p.key.id == producer && p.access != Access::Shared);
        let success = Command::ProducerSuccess(pb::CommandProducerSuccess {
            request_id,
            producer_name: writer.name.to_string(),
            last_sequence_id: Some(if again { -1 } else { last }),
            schema_version: Some(writer.schema_version.clone().unwrap_or_default()),
            topic_epoch: (exclusive && ready).then_some(topic.epoch),
            producer_ready: Some(ready),
        });
        self.reply_written(id, success);
    }

    pub(super) fn close_producer(&mut self, id: u64, command: &pb::CommandCloseProducer) -> Result<()> {
        let writer = self
            .connections
            .get_mut(&id)
            .and_then(|connection| connection.producers.remove(&command.producer_id));
        if let Some(writer) = writer {
            self.remove_producer(writer.topic, id, command.producer_id);
        }
        self.reply_written(
            id,
            Command::Success(Box::new(pb::CommandSuccess { request_id: command.request_id, schema: None })),
        );
        Ok(())
    }

    /// Removes a producer, and admits the one that waited for it.
    pub(super) fn remove_producer(&mut self, topic: u64, session: u64, producer: u64) {
        let Some(topic) = self.topics.get_mut(&topic) else { return };
        let next = topic.remove_producer(ProducerKey { session, id: producer });
        let (topic_id, epoch) = (topic.id, topic.epoch);
        if let Some(next) = next {
            if is_stored(topic_id) {
                self.commits.write(Op::Epoch { topic: topic_id, epoch });
            }
            let writer =
                self.connections.get_mut(&next.key.session).and_then(|s| s.producers.get_mut(&next.key.id));
            if let Some(writer) = writer {
                writer.ready = true;
                let request = writer.request;
                self.producer_success(next.key.session, next.key.id, request, true, false);
            }
        }
    }

    /// Fences a producer: it may no longer write. Messages that it has sent meanwhile are ignored.
    /// One that waits for its turn fails with `error`.
    pub(super) fn fence(&mut self, key: ProducerKey, error: &Error) {
        if let Some(command) = self.dismiss(key, error) {
            self.reply(key.session, &command);
        }
    }

    /// Removes a producer from its connection, and returns the command for its client:
    /// CLOSE_PRODUCER, or `error` if the producer waits for its turn.
    pub(super) fn dismiss(&mut self, key: ProducerKey, error: &Error) -> Option<Command> {
        let until = self.now + self.settings.session.keep_alive;
        let connection = self.connections.get_mut(&key.session)?;
        let writer = connection.producers.remove(&key.id)?;
        if !writer.ready {
            return Some(error_command(writer.request, error));
        }
        connection.dismissed.insert(key.id, until);
        Some(Command::CloseProducer(pb::CommandCloseProducer {
            producer_id: key.id,
            request_id: NO_REQUEST,
            ..Default::default()
        }))
    }

    pub(super) fn over_quota(&mut self) -> bool {
        if !self.commits.is_full(self.settings.max_store) {
            return false;
        }
        self.make_room();
        self.commits.is_full(self.settings.max_store)
    }

    /// The refusal of a message for which there is no room.
    pub(super) fn quota(&self) -> Error {
        Error::new(ErrorKind::QuotaExceeded, self.commits.reason(self.settings.max_store))
    }

    pub(super) fn send(&mut self, id: u64, send: hot::Send, payload: Payload) -> Result<()> {
        let now = self.now;
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        let Some(writer) = connection.producers.get(&send.producer_id).filter(|writer| writer.ready) else {
            return match connection.dismissed.get(&send.producer_id) {
                Some(until) if *until > now => Ok(()),
                _ => Err(Error::protocol("SEND to an unknown producer")),
            };
        };
        let (topic_id, name, owner) = (writer.topic, writer.name.clone(), writer.owner.clone());
        if let Some(error) = self.refusal().or_else(|| flaw(&send, &payload)) {
            self.send_error(id, topic_id, &send, &error);
            return Ok(());
        }
        if is_stored(topic_id) && self.over_quota() {
            let key = ProducerKey { session: id, id: send.producer_id };
            self.fence(key, &self.quota());
            self.remove_producer(topic_id, id, send.producer_id);
            return Ok(());
        }
        let facts = Facts::read(&payload.covered);
        if facts.count > MAX_BATCH {
            let text = format!(
                "the batch claims {} messages, and the embedded broker takes up to {MAX_BATCH}: send smaller batches",
                facts.count
            );
            // Clients give this message up, and it alone.
            self.send_error(id, topic_id, &send, &Error::new(ErrorKind::NotAllowed, text));
            return Ok(());
        }
        if !is_stored(topic_id) {
            return self.pass(id, topic_id, &send, payload, &facts);
        }
        let now = self.stamps();
        let Some(topic) = self.topics.get_mut(&topic_id) else { return Ok(()) };
        let highest = send.highest_sequence_id.unwrap_or(0).max(send.sequence_id) as i64;
        let known = topic.sequences.get(&name).map_or(-1, |state| state.last);
        // The ids of Java's key-based batches interleave: each carries its last id, in no order.
        let by_key = facts.batch && facts.count > 1 && send.highest_sequence_id == Some(send.sequence_id);
        if self.settings.deduplicate && send.sequence_id as i64 <= known && !by_key {
            self.counters.duplicates += 1;
            let receipt = receipt(&send, u64::MAX, u64::MAX);
            self.when_written(Action::Receipt { session: id, receipt });
            return Ok(());
        }
        // The chunks of a message share its id, so the id counts as received with the last chunk.
        let producer = if self.settings.deduplicate && !facts.chunk_follows {
            let highest = highest.max(known);
            let state = ProducerState { last: highest, touched_ms: now.run_ms, owner: owner.clone() };
            match topic.sequences.get_mut(&name) {
                Some(known) => *known = state,
                None => drop(topic.sequences.insert(name.clone(), state)),
            }
            Some(StoredProducer { name, last: highest, owner })
        } else {
            None
        };
        let mut entry = entry(&facts, payload, now);
        if !self.settings.stored {
            entry.body = alone(entry.body);
        }
        let (sequence, bytes) = append(topic, &mut self.commits, &mut self.counters, entry, producer);
        let receipt = receipt(&send, topic_id, sequence);
        let committed = Action::Committed { topic: topic_id, end: sequence + 1 };
        if let Some(action) = self.commits.when_written_charging(id, bytes, committed) {
            self.act(action);
        }
        self.when_written(Action::Receipt { session: id, receipt });
        Ok(())
    }

    pub(super) fn stamps(&self) -> Stamps {
        Stamps { stored_ms: self.wall_ms(), run_ms: self.run_ms() }
    }

    /// Publishes a message for an operator, as a producer that comes and goes: not beside an
    /// exclusive one, nor to a topic that was terminated. Gives the ids of its topic and of the
    /// message.
    pub(super) fn publish_for_operator(
        &mut self,
        name: &Name,
        metadata: &pb::MessageMetadata,
        body: &[u8],
    ) -> Result<(u64, u64)> {
        let mut encoded = BytesMut::new();
        hot::encode_metadata(metadata, &mut encoded);
        let payload = Payload::build(&encoded, body);
        if payload.covered.len() > self.settings.session.max_message_size {
            let text = format!("the message is larger than {} bytes", self.settings.session.max_message_size);
            return Err(Error::new(ErrorKind::MessageTooLarge, text));
        }
        if self.over_quota() {
            return Err(self.quota());
        }
        let topic_id = self.open_topic(name, true)?;
        let now = self.stamps();
        let topic = self.topics.get_mut(&topic_id).ok_or_else(|| {
            Error::new(ErrorKind::TopicNotFound, format!("Topic {} does not exist", name.full))
        })?;
        let key = ProducerKey { session: NO_SESSION, id: 0 };
        topic.admit(Candidate {
            key,
            name: metadata.producer_name.as_str().into(),
            owner: None,
            access: Access::Shared,
            epoch: 0,
            topic_epoch: None,
        })?;
        let entry = entry(&Facts::read(&payload.covered), payload, now);
        let (sequence, _) = append(topic, &mut self.commits, &mut self.counters, entry, None);
        self.remove_producer(topic_id, key.session, key.id);
        self.when_written(Action::Committed { topic: topic_id, end: sequence + 1 });
        Ok((topic_id, sequence))
    }

    fn send_error(&mut self, id: u64, topic: u64, send: &hot::Send, error: &Error) {
        let code = match error.kind() {
            ErrorKind::Checksum => pb::ServerError::ChecksumError,
            kind => server_error(kind),
        };
        let command = Command::SendError(pb::CommandSendError {
            producer_id: send.producer_id,
            sequence_id: send.sequence_id,
            error: code as i32,
            message: error.message().to_owned(),
        });
        // After the receipts of earlier messages, because clients expect receipts in order.
        if is_stored(topic) {
            self.reply_written(id, command);
        } else {
            self.reply(id, &command);
        }
    }
}

/// The reason why a message cannot be taken, whatever its topic.
#[inline]
fn flaw(send: &hot::Send, payload: &Payload) -> Option<Error> {
    if send.txnid_most_bits.is_some() || send.txnid_least_bits.is_some() {
        let text = "the embedded broker does not support transactions";
        return Some(Error::new(ErrorKind::NotAllowed, text));
    }
    if send.sequence_id.max(send.highest_sequence_id.unwrap_or(0)) > MAX_SEQUENCE_ID {
        // Deduplication would drop every later message of this producer name on the topic.
        let text = format!("the sequence id is above {MAX_SEQUENCE_ID}");
        return Some(Error::new(ErrorKind::NotAllowed, text));
    }
    (!payload.checksum_ok()).then(|| Error::new(ErrorKind::Checksum, "Checksum failed on the broker"))
}

/// When an entry was stored: by the calendar, and by the broker's run.
#[derive(Clone, Copy)]
pub(super) struct Stamps {
    stored_ms: u64,
    run_ms: u64,
}

/// An entry that has no place in a topic yet.
pub(super) fn entry(facts: &Facts, payload: Payload, Stamps { stored_ms, run_ms }: Stamps) -> Entry {
    Entry {
        sequence: 0,
        last_index: 0,
        stored_ms,
        run_ms,
        publish_ms: facts.publish_ms,
        deliver_ms: facts.deliver_ms,
        count: facts.count,
        flags: if facts.batch { BATCH } else { 0 } | if facts.chunk { CHUNK } else { 0 },
        hash: facts.hash,
        checksum: payload.checksum,
        body: body(payload.covered),
    }
}

/// Puts an entry at the end of a stored topic. Gives its number, and the bytes of the change that
/// writes it.
fn append(
    topic: &mut Topic,
    commits: &mut PendingWrites<Action>,
    counters: &mut Traffic,
    entry: Entry,
    producer: Option<StoredProducer>,
) -> (u64, usize) {
    let entry = topic.log.append(entry);
    topic.received += u64::from(entry.count);
    counters.messages_in += u64::from(entry.count);
    counters.bytes_in += entry.body.len() as u64;
    commits.add_used(weight(entry));
    let sequence = entry.sequence;
    let op = Op::Append { topic: topic.id, entry: entry.clone(), producer };
    let bytes = op.size();
    commits.write(op);
    (sequence, bytes)
}

/// The bytes of an entry, without the read buffer around them if they are few.
fn body(covered: Bytes) -> Bytes {
    if covered.len() < COPY_BELOW { Bytes::copy_from_slice(&covered) } else { covered }
}

/// The bytes of an entry that stays in memory, where only they are counted.
fn alone(body: Bytes) -> Bytes {
    if body.len() < COPY_BELOW { body } else { Bytes::copy_from_slice(&body) }
}

pub(super) fn receipt(send: &hot::Send, ledger_id: u64, entry_id: u64) -> hot::SendReceipt {
    hot::SendReceipt {
        producer_id: send.producer_id,
        sequence_id: send.sequence_id,
        message_id: Some(pb::MessageIdData { ledger_id, entry_id, ..Default::default() }),
        highest_sequence_id: Some(send.highest_sequence_id.unwrap_or(u64::MAX)),
    }
}
