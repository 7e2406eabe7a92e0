//! SUBSCRIBE, FLOW, ACK, REDELIVER, SEEK, UNSUBSCRIBE, CLOSE_CONSUMER and queries about a consumer.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Reader;
use super::names::Name;
use super::permitted::Operation;
use super::produce::PER_SESSION;
use super::{Action, Broker};
use crate::log::Log;
use crate::log::cursor::{Cursor, Properties};
use crate::pulsar::subscription::{Consumer, ConsumerKey, Kind, Reading, Subscription};
use crate::pulsar::topic::is_stored;
use crate::store::Op;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_pulsar::command::Command;
use forebay_pulsar::{MessageId, NO_REQUEST, hot, pb};

/// Limit on the subscriptions of a topic.
pub(super) const PER_TOPIC: usize = 1_000;
/// Time after which a consumer of a Failover subscription takes over from one that is still
/// connected: `activeConsumerFailoverDelayTimeMillis` of the real broker.
const FAILOVER_DELAY: Duration = Duration::from_secs(1);
/// Limit on the bytes of a subscription's name.
pub(super) const SUBSCRIPTION_NAME: usize = 1024;
/// Limit on the bytes of a subscription's properties, which are written with each change of its
/// position; each property counts some more.
const PROPERTIES: usize = 16 << 10;
const PROPERTY_ROOM: usize = 32;
/// Limit on the permits of a consumer: more could not be used, and sums must not overflow.
const MAX_PERMITS: i64 = i32::MAX as i64;

/// The subscription that a SUBSCRIBE asks for.
struct Wanted {
    topic: u64,
    name: Arc<str>,
    kind: Kind,
    durable: bool,
    /// Position at which a new subscription starts.
    start: u64,
    /// The user that a new subscription belongs to.
    owner: Option<Arc<str>>,
    properties: Properties,
}

/// Refuses an empty or too long name of a subscription. Clients fail at once on both errors.
pub(super) fn check_subscription_name(name: &str) -> Result<()> {
    if name.is_empty() {
        // As the real broker.
        return Err(Error::new(ErrorKind::ProducerBusy, "Empty subscription name"));
    }
    if name.len() > SUBSCRIPTION_NAME {
        let text = format!(
            "the subscription name has {} bytes, and the embedded broker takes up to {SUBSCRIPTION_NAME}",
            name.len()
        );
        return Err(Error::new(ErrorKind::NotAllowed, text));
    }
    Ok(())
}

impl Broker {
    pub(super) fn subscribe(&mut self, id: u64, command: pb::CommandSubscribe) -> Result<()> {
        if pb::command_subscribe::SubType::try_from(command.sub_type).is_err() {
            return Err(Error::protocol("unknown subscription type"));
        }
        let request_id = command.request_id;
        if let Err(error) = self.try_subscribe(id, &command) {
            self.reply_error(id, request_id, &error);
        }
        Ok(())
    }

    fn try_subscribe(&mut self, id: u64, command: &pb::CommandSubscribe) -> Result<()> {
        let Some(connection) = self.connections.get(&id) else { return Ok(()) };
        if connection.consumers.contains_key(&command.consumer_id) {
            self.reply_written(id, success(command.request_id));
            return Ok(());
        }
        if connection.consumers.len() >= PER_SESSION {
            return Err(Error::new(ErrorKind::TooManyRequests, "too many consumers on one connection"));
        }
        let name = self.check_subscribe(id, command)?;
        let topic_id = self.open_topic(&name, command.force_topic_creation())?;
        if let Some(schema) = &command.schema {
            self.check_schema(&name, schema)?;
        }
        let kind = Kind::from_number(command.sub_type);
        // Those of a non-persistent topic end with their last consumer, whatever it asks for.
        let durable = command.durable() && is_stored(topic_id);
        let subscription: Arc<str> = command.subscription.as_str().into();
        let properties = properties_of(command)?;
        let start = self.start_position(topic_id, command)?;
        let owner = if durable { self.check_owner(id, topic_id, &name, &subscription)? } else { None };
        let wanted = Wanted { topic: topic_id, name: subscription, kind, durable, start, owner, properties };
        self.attach(wanted, consumer_of(id, topic_id, kind, command), command.request_id)
    }

    /// Refuses a SUBSCRIBE that is not valid or not permitted. Returns the name of its topic.
    fn check_subscribe(&mut self, id: u64, command: &pb::CommandSubscribe) -> Result<Name> {
        if let Some(error) = self.refusal() {
            return Err(error);
        }
        check_subscription_name(&command.subscription)?;
        if command.replicate_subscription_state() {
            let text = "the embedded broker has no other cluster to replicate the subscription to";
            return Err(Error::new(ErrorKind::NotAllowed, text));
        }
        let name = Name::parse(&command.topic)?;
        self.check_connection(id, Operation::Consume, &name)?;
        if !name.is_persistent() && command.read_compacted() {
            let text = "readCompacted only valid on persistent topics";
            return Err(Error::new(ErrorKind::NotAllowed, text));
        }
        Ok(name)
    }

    /// Attaches a consumer to its subscription, which is created if it does not exist, and answers
    /// the client.
    fn attach(&mut self, wanted: Wanted, consumer: Consumer, request_id: u64) -> Result<()> {
        let Wanted { topic: topic_id, name: subscription, kind, durable, start, owner, properties } = wanted;
        let key = consumer.key;
        let wall_ms = self.wall_ms();
        let Some(topic) = self.topics.get_mut(&topic_id) else { return Ok(()) };
        let fresh = !topic.subscriptions.contains_key(&subscription);
        if fresh {
            if topic.subscriptions.len() >= PER_TOPIC {
                return Err(Error::new(
                    ErrorKind::TooManyRequests,
                    format!("subscription limit reached: a topic can have {PER_TOPIC}"),
                ));
            }
            let mut made = Subscription::new(subscription.clone(), kind, durable, Cursor::new(start));
            made.owner = owner;
            topic.subscriptions.insert(subscription.clone(), made);
        }
        let Some(entry) = topic.subscriptions.get_mut(&subscription) else { return Ok(()) };
        if entry.durable != durable {
            return Err(Error::new(
                ErrorKind::NotAllowed,
                format!("Durable subscription with the same name already exists: {}", entry.durable),
            ));
        }
        let mut reading =
            Reading { log: &topic.log, source: &mut self.source, peeks: &mut self.peeks, wall_ms };
        if let Some(error) = entry.refusal(&mut reading) {
            // Not an error after which clients try again: they would wait for ever.
            let text =
                format!("subscription {subscription} of {} has stopped: {}", topic.name, error.message());
            return Err(Error::new(ErrorKind::NotAllowed, text));
        }
        if let Err(error) = entry.attach(kind, consumer) {
            if fresh {
                topic.subscriptions.remove(&subscription);
            }
            return Err(error);
        }
        if entry.properties.is_empty() && !properties.is_empty() {
            // Like the real broker: those that it has stay.
            entry.properties = properties;
            entry.dirty = true;
        }
        entry.dirty |= fresh;
        let was_dirty = entry.dirty;
        if let Some(connection) = self.connections.get_mut(&key.session) {
            let reader = Reader { topic: topic_id, subscription: subscription.clone() };
            connection.consumers.insert(key.id, reader);
        }
        if was_dirty {
            self.flush_cursor(topic_id, &subscription);
        }
        self.reply_written(key.session, success(request_id));
        // After SUCCESS, or the client would get a change for a consumer that it does not have yet.
        self.when_written(Action::Elect { topic: topic_id, subscription });
        Ok(())
    }

    /// The position at which a new subscription starts.
    fn start_position(&mut self, topic: u64, command: &pb::CommandSubscribe) -> Result<u64> {
        let wall_ms = self.wall_ms();
        let Some(topic) = self.topics.get(&topic) else { return Ok(0) };
        if let Some(seconds) = command.start_message_rollback_duration_sec.filter(|seconds| *seconds > 0) {
            let since = wall_ms.saturating_sub(seconds.saturating_mul(1000));
            return topic.log.search(&mut self.source, |entry| entry.publish_ms >= since);
        }
        Ok(match &command.start_message_id {
            // The entry itself is delivered; clients skip the messages of it that they did not ask
            // for.
            Some(start) => position(topic.id, &topic.log, start),
            None if command.initial_position() == pb::command_subscribe::InitialPosition::Earliest => {
                topic.log.first()
            }
            None => topic.log.next(),
        })
    }

    /// Creates a durable subscription without a consumer, unless it exists.
    pub(super) fn create_subscription(
        &mut self,
        topic: u64,
        name: &str,
        below: u64,
        owner: Option<Arc<str>>,
    ) {
        self.add_subscription(topic, &name.into(), Kind::Exclusive, below, Properties::new(), owner);
    }

    /// As [`Self::create_subscription`], with a type and properties.
    pub(super) fn add_subscription(
        &mut self,
        topic: u64,
        name: &Arc<str>,
        kind: Kind,
        below: u64,
        properties: Properties,
        owner: Option<Arc<str>>,
    ) {
        let Some(topic) = self.topics.get_mut(&topic) else { return };
        if topic.subscriptions.contains_key(name) || topic.subscriptions.len() >= PER_TOPIC {
            return;
        }
        let mut made = Subscription::new(name.clone(), kind, true, Cursor::new(below));
        made.properties = properties;
        made.owner = owner;
        made.dirty = true;
        topic.subscriptions.insert(name.clone(), made);
        let id = topic.id;
        self.flush_cursor(id, name);
    }

    /// Elects the active consumer and tells the consumers whose state changed.
    pub(super) fn elect(&mut self, topic: u64, subscription: &Arc<str>) {
        let Some(topic) = self.topics.get_mut(&topic) else { return };
        let id = topic.id;
        // As by the real broker, the name decides also in a non-persistent topic without
        // partitions.
        let partition = topic.partition.or((!is_stored(id)).then_some(0));
        let Some(subscription) = topic.subscriptions.get_mut(subscription) else { return };
        let delay = if is_stored(id) { FAILOVER_DELAY } else { Duration::ZERO };
        let told = subscription.elect(partition, self.now, delay);
        if let Some(at) = subscription.switch_at() {
            self.switches.insert((at, id, subscription.name.clone()));
        }
        for (consumer, is_active) in told {
            let change =
                pb::CommandActiveConsumerChange { consumer_id: consumer.id, is_active: Some(is_active) };
            self.reply(consumer.session, &Command::ActiveConsumerChange(change));
        }
        self.due.insert(id);
    }

    pub(super) fn flow(&mut self, id: u64, flow: hot::Flow) -> Result<()> {
        if flow.permits == 0 {
            return Err(Error::protocol("FLOW with 0 permits"));
        }
        let Some((key, reader)) = self.reader(id, flow.consumer_id) else { return Ok(()) };
        if let Some(consumer) = self.subscription(&reader).and_then(|s| s.consumer(key)) {
            consumer.permits = (consumer.permits + i64::from(flow.permits)).min(MAX_PERMITS);
            self.due.insert(reader.topic);
        }
        Ok(())
    }

    pub(super) fn ack(&mut self, id: u64, ack: hot::Ack) -> Result<()> {
        let Some((key, reader)) = self.reader(id, ack.consumer_id) else { return Ok(()) };
        let txn = ack.txnid_most_bits.is_some() || ack.txnid_least_bits.is_some();
        let wall_ms = self.wall_ms();
        if let Some(topic) = self.topics.get_mut(&reader.topic).filter(|_| !txn)
            && let Some(subscription) = topic.subscriptions.get_mut(&reader.subscription)
        {
            let mut reading =
                Reading { log: &topic.log, source: &mut self.source, peeks: &mut self.peeks, wall_ms };
            let blocked = subscription.consumer(key).is_some_and(|c| c.permits > 0);
            for message in ack.message_ids.iter().filter(|message| message.ledger_id == reader.topic) {
                match ack.ack_type {
                    0 => subscription.ack(key, message.entry_id, &message.ack_set, &mut reading),
                    // -1 stands for the position before the first entry: nothing is acknowledged.
                    _ if message.entry_id == u64::MAX => {}
                    _ => subscription.ack_cumulative(message.entry_id, &message.ack_set, &mut reading),
                }
            }
            if topic.terminated || blocked && !matches!(subscription.kind, Kind::Exclusive | Kind::Failover) {
                // The acknowledgement may have been the last, or have freed its limit or a hash
                // slot.
                self.due.insert(reader.topic);
            }
            if let Some(damage) = &mut subscription.damage {
                damage.since = Some(self.now);
                self.due.insert(reader.topic);
            }
            if subscription.dirty && subscription.durable {
                self.mark_dirty(reader.topic, &reader.subscription);
            }
        }
        if let Some(request_id) = ack.request_id {
            self.flush_cursor(reader.topic, &reader.subscription);
            let error = txn.then_some(pb::ServerError::NotAllowedError as i32);
            let response = pb::CommandAckResponse {
                consumer_id: ack.consumer_id,
                error,
                message: txn.then(|| "the embedded broker does not support transactions".to_owned()),
                request_id: Some(request_id),
                ..Default::default()
            };
            if self.commits.failure().is_some() {
                let error = pb::ServerError::PersistenceError as i32;
                self.reply(
                    id,
                    &Command::AckResponse(pb::CommandAckResponse { error: Some(error), ..response }),
                );
            } else {
                self.reply_written(id, Command::AckResponse(response));
            }
        }
        Ok(())
    }

    pub(super) fn redeliver(
        &mut self,
        id: u64,
        command: &pb::CommandRedeliverUnacknowledgedMessages,
    ) -> Result<()> {
        let Some((key, reader)) = self.reader(id, command.consumer_id) else { return Ok(()) };
        let sequences: Vec<u64> = command
            .message_ids
            .iter()
            .filter(|message| message.ledger_id == reader.topic)
            .map(|message| message.entry_id)
            .collect();
        if let Some(subscription) = self.subscription(&reader)
            && (command.message_ids.is_empty() || !sequences.is_empty())
        {
            subscription.redeliver(key, &sequences, command.consumer_epoch);
            self.due.insert(reader.topic);
        }
        Ok(())
    }

    pub(super) fn seek(&mut self, id: u64, command: &pb::CommandSeek) -> Result<()> {
        if let Err(error) = self.try_seek(id, command) {
            self.reply_error(id, command.request_id, &error);
        }
        Ok(())
    }

    fn try_seek(&mut self, id: u64, command: &pb::CommandSeek) -> Result<()> {
        if command.message_id.is_none() && command.message_publish_time.is_none() {
            let text = "Message id and message publish time were not present";
            return Err(Error::new(ErrorKind::Metadata, text));
        }
        let Some((_, reader)) = self.reader(id, command.consumer_id) else {
            return Err(Error::new(ErrorKind::Metadata, "Consumer not found"));
        };
        if !is_stored(reader.topic) {
            // There is nothing to go back to. The real broker says yes as well, and the consumers
            // stay.
            let success = pb::CommandSuccess { request_id: command.request_id, schema: None };
            self.reply_written(id, Command::Success(Box::new(success)));
            return Ok(());
        }
        let Some(topic) = self.topics.get_mut(&reader.topic) else { return Ok(()) };
        let (sequence, set) = match (&command.message_id, command.message_publish_time) {
            (Some(message), _) => {
                let at = position(topic.id, &topic.log, message);
                let inside =
                    message.ledger_id == topic.id && at == message.entry_id && at < topic.log.committed();
                (at, if inside { message.ack_set.clone() } else { Vec::new() })
            }
            (None, time) => {
                let since = time.unwrap_or_default();
                (topic.log.search(&mut self.source, |entry| entry.publish_ms >= since)?, Vec::new())
            }
        };
        let Some(subscription) = topic.subscriptions.get_mut(&reader.subscription) else { return Ok(()) };
        subscription.seek(sequence, &set);
        // The consumers are closed before the answer, because the messages in their queues are no
        // longer valid.
        self.close_consumers(&reader, true);
        self.flush_cursor(reader.topic, &reader.subscription);
        let success = pb::CommandSuccess { request_id: command.request_id, schema: None };
        self.reply_written(id, Command::Success(Box::new(success)));
        Ok(())
    }

    /// Tells the consumers of a terminated topic that have acknowledged everything.
    pub(super) fn tell_end(&mut self, topic: u64) {
        let Some(topic) = self.topics.get_mut(&topic).filter(|topic| topic.terminated) else { return };
        let log = &topic.log;
        let done = topic.subscriptions.values_mut().flat_map(|subscription| subscription.reached_end(log));
        for key in done.collect::<Vec<_>>() {
            let end = pb::CommandReachedEndOfTopic { consumer_id: key.id };
            self.reply(key.session, &Command::ReachedEndOfTopic(end));
        }
    }

    /// Closes all consumers of a subscription.
    pub(super) fn close_consumers(&mut self, reader: &Reader, expected_back: bool) {
        let Some(subscription) = self.subscription(reader) else { return };
        let keys: Vec<ConsumerKey> = subscription.consumers().iter().map(|consumer| consumer.key).collect();
        for key in keys {
            let close = pb::CommandCloseConsumer {
                consumer_id: key.id,
                request_id: NO_REQUEST,
                ..Default::default()
            };
            self.reply(key.session, &Command::CloseConsumer(close));
            if let Some(connection) = self.connections.get_mut(&key.session) {
                connection.consumers.remove(&key.id);
            }
            if let Some(subscription) = self.subscription(reader) {
                subscription.detach(key);
            }
        }
        self.left(reader, expected_back);
    }

    pub(super) fn unsubscribe(&mut self, id: u64, command: &pb::CommandUnsubscribe) -> Result<()> {
        let Some((key, reader)) = self.reader(id, command.consumer_id) else {
            let error = Error::new(ErrorKind::Metadata, "Consumer not found");
            self.reply_error(id, command.request_id, &error);
            return Ok(());
        };
        let others = self.subscription(&reader).is_some_and(|s| s.consumers().iter().any(|c| c.key != key));
        if others && !command.force() {
            let error =
                Error::new(ErrorKind::Metadata, "Unconnected or shared consumer attempting to unsubscribe");
            self.reply_error(id, command.request_id, &error);
            return Ok(());
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.consumers.remove(&command.consumer_id);
        }
        if let Some(subscription) = self.subscription(&reader) {
            subscription.detach(key);
        }
        self.close_consumers(&reader, true);
        self.drop_subscription(reader.topic, &reader.subscription);
        let success = pb::CommandSuccess { request_id: command.request_id, schema: None };
        self.reply_written(id, Command::Success(Box::new(success)));
        Ok(())
    }

    pub(super) fn drop_subscription(&mut self, topic: u64, name: &Arc<str>) {
        let gone = self.topics.get_mut(&topic).and_then(|topic| topic.subscriptions.remove(name));
        if gone.is_some_and(|subscription| subscription.durable) {
            self.commits.write(Op::DropCursor { topic, subscription: name.clone() });
        }
    }

    pub(super) fn close_consumer(&mut self, id: u64, command: &pb::CommandCloseConsumer) -> Result<()> {
        if let Some((key, reader)) = self.reader(id, command.consumer_id) {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.consumers.remove(&command.consumer_id);
            }
            self.detach(&reader, key);
            // Acknowledgements before the close must survive a restart.
            self.flush_cursor(reader.topic, &reader.subscription);
        }
        let success = pb::CommandSuccess { request_id: command.request_id, schema: None };
        self.reply_written(id, Command::Success(Box::new(success)));
        Ok(())
    }

    /// Removes a consumer.
    pub(super) fn detach(&mut self, reader: &Reader, key: ConsumerKey) {
        if let Some(subscription) = self.subscription(reader) {
            subscription.detach(key);
            self.left(reader, false);
        }
    }

    /// Handles the end of consumers. A non-durable subscription ends with its last consumer, unless
    /// a seek closed that: then the consumer is expected back.
    fn left(&mut self, reader: &Reader, expected_back: bool) {
        let now = self.now;
        let Some(topic) = self.topics.get_mut(&reader.topic) else { return };
        let Some(subscription) = topic.subscriptions.get_mut(&reader.subscription) else { return };
        if subscription.consumers().is_empty() && !subscription.durable {
            if expected_back {
                subscription.abandoned = Some(now);
            } else {
                topic.subscriptions.remove(&reader.subscription);
                return;
            }
        }
        self.elect(reader.topic, &reader.subscription);
    }

    pub(super) fn last_message_id(&mut self, id: u64, command: &pb::CommandGetLastMessageId) -> Result<()> {
        let Some((_, reader)) = self.reader(id, command.consumer_id) else {
            let error = Error::new(ErrorKind::Metadata, "Consumer not found");
            self.reply_error(id, command.request_id, &error);
            return Ok(());
        };
        if !is_stored(reader.topic) {
            let text = "a non-persistent topic keeps no messages and has no last message id";
            self.reply_error(id, command.request_id, &Error::new(ErrorKind::Unsupported, text));
            return Ok(());
        }
        let Some(topic) = self.topics.get(&reader.topic) else { return Ok(()) };
        let partition = topic.partition();
        let last = match topic.log.last() {
            Some(last) => pb::MessageIdData {
                ledger_id: topic.id,
                entry_id: last.sequence,
                partition: Some(partition),
                batch_index: Some(if last.batch { last.count as i32 - 1 } else { -1 }),
                ..Default::default()
            },
            None => pb::MessageIdData {
                ledger_id: u64::MAX,
                entry_id: u64::MAX,
                partition: Some(partition),
                batch_index: Some(-1),
                ..Default::default()
            },
        };
        let mark = topic.subscriptions.get(&reader.subscription).map(|subscription| pb::MessageIdData {
            ledger_id: topic.id,
            entry_id: subscription.cursor.below().wrapping_sub(1),
            ..Default::default()
        });
        let response = pb::CommandGetLastMessageIdResponse {
            last_message_id: last,
            request_id: command.request_id,
            consumer_mark_delete_position: mark,
        };
        self.reply(id, &Command::GetLastMessageIdResponse(Box::new(response)));
        Ok(())
    }

    pub(super) fn consumer_stats(&mut self, id: u64, command: &pb::CommandConsumerStats) -> Result<()> {
        let Some((key, reader)) = self.reader(id, command.consumer_id) else {
            return Err(Error::protocol("CONSUMER_STATS for an unknown consumer"));
        };
        let address = self.connections.get(&id).map(|connection| connection.address.to_string());
        let Some(topic) = self.topics.get_mut(&reader.topic) else { return Ok(()) };
        let Some(subscription) = topic.subscriptions.get_mut(&reader.subscription) else { return Ok(()) };
        let backlog = subscription.backlog(&topic.log);
        let kind = subscription.kind.name();
        let Some(consumer) = subscription.consumer(key) else { return Ok(()) };
        let response = pb::CommandConsumerStatsResponse {
            request_id: command.request_id,
            consumer_name: Some(consumer.name.to_string()),
            available_permits: Some(consumer.permits.max(0) as u64),
            unacked_messages: Some(consumer.unacked().max(0) as u64),
            blocked_consumer_on_unacked_msgs: Some(
                consumer.unacked() >= crate::pulsar::subscription::MAX_UNACKED,
            ),
            address,
            r#type: Some(kind.to_owned()),
            msg_backlog: Some(backlog),
            msg_rate_out: Some(0.0),
            msg_throughput_out: Some(0.0),
            msg_rate_redeliver: Some(0.0),
            ..Default::default()
        };
        self.reply(id, &Command::ConsumerStatsResponse(Box::new(response)));
        Ok(())
    }

    fn reader(&self, id: u64, consumer: u64) -> Option<(ConsumerKey, Reader)> {
        let reader = self.connections.get(&id)?.consumers.get(&consumer)?.clone();
        Some((ConsumerKey { session: id, id: consumer }, reader))
    }

    fn subscription(&mut self, reader: &Reader) -> Option<&mut Subscription> {
        self.topics.get_mut(&reader.topic)?.subscriptions.get_mut(&reader.subscription)
    }
}

fn success(request_id: u64) -> Command {
    Command::Success(Box::new(pb::CommandSuccess { request_id, schema: None }))
}

/// The consumer that a SUBSCRIBE on the connection `id` describes.
fn consumer_of(id: u64, topic: u64, kind: Kind, command: &pb::CommandSubscribe) -> Consumer {
    let key = ConsumerKey { session: id, id: command.consumer_id };
    let name = command.consumer_name.as_deref().unwrap_or_default();
    let mut consumer = Consumer::new(key, name.into(), command.priority_level.unwrap_or(0));
    if matches!(kind, Kind::Exclusive | Kind::Failover) && is_stored(topic) {
        consumer.epoch = command.consumer_epoch;
    }
    let meta = command.key_shared_meta.as_ref();
    consumer.out_of_order = meta.is_some_and(|meta| meta.allow_out_of_order_delivery());
    consumer.ranges = meta.filter(|_| kind == Kind::KeyShared).and_then(|meta| {
        let sticky = meta.key_shared_mode == pb::KeySharedMode::Sticky as i32;
        let slot = |n: i32| u32::try_from(n).unwrap_or(u32::MAX);
        sticky.then(|| meta.hash_ranges.iter().map(|r| (slot(r.start), slot(r.end))).collect())
    });
    consumer
}

/// The properties that are to be stored with the subscription.
fn properties_of(command: &pb::CommandSubscribe) -> Result<Properties> {
    let given = &command.subscription_properties;
    let bytes: usize = given.iter().map(|pair| pair.key.len() + pair.value.len() + PROPERTY_ROOM).sum();
    if bytes > PROPERTIES {
        let text = format!("the subscription properties have {bytes} bytes, and the limit is {PROPERTIES}");
        return Err(Error::new(ErrorKind::Metadata, text));
    }
    Ok(given.iter().map(|pair| (pair.key.as_str().into(), pair.value.as_str().into())).collect())
}

/// The entry of this log that a message id names, or the nearest one.
pub(super) fn position(topic: u64, log: &Log, message: &pb::MessageIdData) -> u64 {
    let id = MessageId::from(message);
    if id.entry_id() == MessageId::EARLIEST.entry_id() || (id.ledger as i64) < topic as i64 {
        return log.first();
    }
    if id.ledger > topic {
        return log.next();
    }
    // -1 stands for the position before the first entry.
    (id.entry as i64).clamp(log.first() as i64, log.next() as i64) as u64
}
