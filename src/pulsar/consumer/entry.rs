//! Processing of received entries: checksum, decompression, splitting into messages, permit
//! accounting.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::acks::{Entry, order};
use super::chunks::Chunk;
use super::{Consumer, State, Unreadable};
use crate::command::Command;
use crate::frame::{DEFAULT_MAX_MESSAGE_SIZE, Payload};
use crate::message::{EntryInfo, Message, MessageId, Origin, RareInfo};
use crate::pb::command_ack::ValidationError;
use crate::{hot, pb};
use forebay_base::compression::{Compression, decompress};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::wire::Reader;

/// Maximum number of chunked messages waiting for acknowledgement. Without a limit, messages that
/// other consumers acknowledge would stay here for ever.
const MAX_CHUNKED: usize = 10_000;

/// Why an entry cannot be read: for the broker, and for the application.
type Flaw = (ValidationError, Error);

impl Consumer {
    /// Limit on the size that the compressed bytes of an entry may expand to. Brokers and clients
    /// hold only the compressed ones to the largest message.
    fn expansion_limit(&self) -> usize {
        self.options.max_message_size.max(DEFAULT_MAX_MESSAGE_SIZE).max(self.options.chunked.bytes)
    }

    pub(super) fn take_entry(
        &mut self,
        now: Instant,
        delivery: hot::Delivery,
        payload: Payload,
    ) -> Result<()> {
        let id = MessageId::from(&delivery.message_id).in_partition(self.options.partition);
        let id = MessageId { batch_index: -1, batch_size: 0, ..id };
        let (metadata, body) = match take_apart(&payload) {
            Ok(parts) => parts,
            Err((size, (reason, error))) => {
                return self.discard(&id, charge(size, &delivery.ack_set), reason, error);
            }
        };
        let size = metadata.num_messages_in_batch;
        let charge = charge(size, &delivery.ack_set);
        self.permits.charged += u64::from(charge);
        // What is not read now counts as well: the next entries are probably like it.
        let uncompressed = metadata.uncompressed_size() as usize;
        let chunked = metadata.num_chunks_from_msg() > 1;
        let expanded =
            uncompressed.min(if chunked { self.options.max_message_size } else { self.expansion_limit() });
        self.window.arrived(&self.options, body.len().max(expanded), charge);
        if self.epoch().zip(delivery.consumer_epoch).is_some_and(|(current, stated)| stated < current) {
            self.give_back(charge);
            return Ok(());
        }
        if !metadata.encryption_keys.is_empty() {
            let error = Error::new(ErrorKind::Unsupported, "end-to-end encryption is not supported");
            return self.discard_charged(&id, charge, ValidationError::DecryptionError, error);
        }
        let (body, chunk_entries) = if chunked {
            match self.take_chunk(now, &id, &metadata, &body) {
                Ok(Some(whole)) => whole,
                Ok(None) => {
                    self.give_back(charge);
                    return Ok(());
                }
                Err((reason, error)) => return self.discard_charged(&id, charge, reason, error),
            }
        } else {
            (body, Vec::new())
        };
        let body = match self.expand(&metadata, &body, chunked) {
            Ok(body) => body,
            Err((reason, error)) => return self.discard_charged(&id, charge, reason, error),
        };
        let first_chunk = chunk_entries.first().copied();
        self.remember_chunks(&id, chunk_entries);
        let redeliveries = delivery.redelivery_count.unwrap_or_default();
        let entry = self.entry_info(&metadata, redeliveries, payload.entry.as_ref(), first_chunk);
        match size {
            // The presence of this field, even with value 1, marks the batch format.
            Some(size) if !chunked => {
                self.split(id, size, &delivery.ack_set, &entry, &metadata, &body, charge)
            }
            _ => {
                let message = unbatched(id, entry, metadata, body);
                // It is one message, whatever size of a batch its producer has claimed, or none if
                // it is acknowledged.
                self.give_back(charge.saturating_sub(1));
                if charge > 0 {
                    self.admit(1, message);
                }
                Ok(())
            }
        }
    }

    /// Adds a chunk to its message. Returns the bytes of the message, still compressed, and the
    /// entries that held them, if that completes it.
    #[inline]
    fn take_chunk(
        &mut self,
        now: Instant,
        id: &MessageId,
        metadata: &pb::MessageMetadata,
        body: &Bytes,
    ) -> Result<Option<(Bytes, Vec<Entry>)>, Flaw> {
        let time = self.stopwatch.read(now);
        let taken = self.chunks.take(time, metadata, id.entry_id(), body);
        self.settle_given_up();
        match taken {
            Chunk::Kept | Chunk::Stray => {
                if self.state == State::Attached && self.is_before_start(id) {
                    self.drop_before_start(id);
                }
            }
            Chunk::Late => self.settle_late(id.entry_id()),
            Chunk::Again(entries) => self.fetch_again(now, entries),
            Chunk::TooLarge(size) => {
                let text = format!(
                    "it is a chunk of a message of {size} bytes, more than max_chunked_message ({} bytes): raise that",
                    self.options.chunked.bytes
                );
                let error = Error::new(ErrorKind::MessageTooLarge, text);
                return Err((ValidationError::UncompressedSizeCorruption, error));
            }
            Chunk::Complete(bytes, entries) => return Ok(Some((bytes, entries))),
        }
        Ok(None)
    }

    /// Decompresses the bytes of an entry, or of a chunked message that is complete.
    #[inline]
    fn expand(&self, metadata: &pb::MessageMetadata, body: &Bytes, chunked: bool) -> Result<Bytes, Flaw> {
        let Some(compression) = Compression::from_number(metadata.compression.unwrap_or_default()) else {
            let error = Error::new(ErrorKind::Compression, "the compression type of the entry is unknown");
            return Err((ValidationError::DecompressionError, error));
        };
        let uncompressed = metadata.uncompressed_size() as usize;
        let limit = if chunked {
            body.len().saturating_mul(256).max(self.options.max_message_size)
        } else {
            self.expansion_limit()
        };
        decompress(compression, body, uncompressed, limit).map_err(|error| {
            let reason = if uncompressed > limit {
                ValidationError::UncompressedSizeCorruption
            } else {
                ValidationError::DecompressionError
            };
            (reason, error)
        })
    }

    /// Notes the entries of a chunked message, of which `id` is the last one, until the message is
    /// acknowledged. A message in one entry has an empty list.
    #[inline]
    fn remember_chunks(&mut self, id: &MessageId, mut entries: Vec<Entry>) {
        if !entries.is_empty() && !self.acks.contains(id) {
            entries.pop();
            self.dropped.forget(&entries);
            if self.chunked.len() >= MAX_CHUNKED {
                self.chunked.pop_first();
            }
            self.chunked.insert(id.entry_id(), entries);
        }
    }

    /// Returns what the messages of an entry share. `said` is what the broker has added to it.
    #[inline]
    fn entry_info(
        &mut self,
        metadata: &pb::MessageMetadata,
        redeliveries: u32,
        said: Option<&pb::BrokerEntryMetadata>,
        first_chunk: Option<Entry>,
    ) -> Arc<EntryInfo> {
        let rare = RareInfo {
            writer: self.writers.as_mut().map(|writers| writers.of(metadata.schema_version.as_ref())),
            schema_version: metadata.schema_version.clone(),
            replicated_from: metadata.replicated_from.clone(),
            first_chunk,
        };
        let entry = EntryInfo::new(
            self.origin(&metadata.producer_name),
            metadata.publish_time,
            redeliveries,
            self.recalls.arrive(),
        );
        let (stored, last) = (said.and_then(|said| said.broker_timestamp), said.and_then(|said| said.index));
        Arc::new(entry.with_broker(stored, last).with_rare(rare))
    }

    /// Returns what consecutive entries of a producer share, since many messages may be held.
    fn origin(&mut self, producer_name: &str) -> Arc<Origin> {
        if *self.last_origin.producer_name != *producer_name {
            let topic = Arc::clone(&self.options.topic);
            self.last_origin = Arc::new(Origin { topic, producer_name: producer_name.into() });
        }
        Arc::clone(&self.last_origin)
    }

    /// Queues a message, or drops it and returns its permits.
    fn admit(&mut self, charge: u32, message: Message) {
        let known = self.acks.contains(&message.id);
        if self.state != State::Attached {
            self.give_back(charge);
        } else if known {
            self.acks.redelivered(&message.id);
            self.give_back(charge);
        } else if self.is_before_start(&message.id) {
            self.drop_before_start(&message.id);
            self.give_back(charge);
        } else {
            self.counts.redelivered += u64::from(message.entry.redelivery_count > 0);
            let message = if self.expired.is_none() { Some(message) } else { self.outlived(message) };
            if let Some(message) = message {
                if self.queue.len() == self.queue.capacity() {
                    // Doubling would leave up to half of a queue unused, and so would room beyond
                    // the most that is asked for.
                    let (length, most) = (self.queue.len(), self.options.receiver_queue as usize);
                    let left = most.saturating_sub(length);
                    let quarter = 64.max(length / 4);
                    self.queue.reserve_exact(if left > 0 { quarter.min(left) } else { quarter });
                }
                self.queue.push_back(message);
            }
        }
    }

    /// Whether a message is before the position at which the consumer starts.
    fn is_before_start(&mut self, id: &MessageId) -> bool {
        let Some(start) = &mut self.start else { return false };
        let is_earlier = order(id.entry_id()) < order(start.id.entry_id());
        start.reached |= !is_earlier;
        if start.earlier_requested && is_earlier {
            self.moved_back();
            return false;
        }
        !start.admits(id)
    }

    /// Splits a batch into messages, which share its buffer.
    #[allow(clippy::too_many_arguments, reason = "the parts of one entry, taken apart by the only caller")]
    fn split(
        &mut self,
        id: MessageId,
        size: i32,
        ack_set: &[i64],
        entry: &Arc<EntryInfo>,
        metadata: &pb::MessageMetadata,
        body: &Bytes,
        charge: u32,
    ) -> Result<()> {
        let messages = match unbatch(id, size, ack_set, entry, metadata, body) {
            Ok(messages) => messages,
            Err(error) => {
                return self.discard_charged(&id, charge, ValidationError::BatchDeSerializeError, error);
            }
        };
        if !ack_set.is_empty() {
            self.acks.expect(id.entry_id(), size as u32, ack_set);
        }
        // Compacted-out messages are absent but were charged.
        self.give_back(charge - (messages.len() as u32).min(charge));
        for message in messages {
            self.admit(1, message);
        }
        Ok(())
    }

    fn discard(&mut self, id: &MessageId, charge: u32, reason: ValidationError, error: Error) -> Result<()> {
        self.permits.charged += u64::from(charge);
        self.discard_charged(id, charge, reason, error)
    }

    /// Puts an entry away that cannot be read, as the policy says.
    fn discard_charged(
        &mut self,
        id: &MessageId,
        charge: u32,
        reason: ValidationError,
        error: Error,
    ) -> Result<()> {
        self.give_back(charge);
        let whole = self.start.is_some_and(|start| start.id.batch_index < 0);
        if whole && self.state == State::Attached && self.is_before_start(id) {
            self.drop_before_start(id);
            return Ok(());
        }
        let policy = self.options.unreadable;
        if policy == Unreadable::Discard {
            self.immediate.push_back(Command::Ack(hot::Ack {
                consumer_id: self.id,
                message_ids: vec![hot::IdData {
                    ledger_id: id.ledger,
                    entry_id: id.entry,
                    ..Default::default()
                }],
                validation_error: Some(reason as i32),
                ..hot::Ack::default()
            }));
        } else if self.state == State::Attached {
            let first = self.unreadable.into_iter().chain([id.entry_id()]);
            self.unreadable = first.min_by_key(|entry| order(*entry));
            self.failed = policy == Unreadable::Fail;
        }
        let (kind, why) = (error.kind(), error.message());
        let text = match policy {
            Unreadable::Discard => format!("the entry {id} cannot be read and was acknowledged: {why}"),
            Unreadable::Skip => {
                format!("the entry {id} cannot be read and stays unacknowledged at the broker: {why}")
            }
            Unreadable::Fail => format!(
                "the entry {id} cannot be read: {why}. Seek past it, or open the consumer with unreadable=\"skip\" or \
                 \"discard\""
            ),
        };
        Err(Error::new(kind, text).with_topic(Arc::clone(&self.options.topic)))
    }
}

/// The metadata and the bytes of an entry. A failure comes with the size of the batch that the
/// entry claims, if it can be told.
#[inline]
fn take_apart(payload: &Payload) -> Result<(pb::MessageMetadata, Bytes), (Option<i32>, Flaw)> {
    if !payload.checksum_ok() {
        // The metadata cannot be trusted, but the permits the broker charged are those it claims.
        let size = payload.metadata().ok().and_then(|m| m.num_messages_in_batch);
        let error = Error::new(ErrorKind::Checksum, "the checksum of the entry does not match");
        return Err((size, (ValidationError::ChecksumMismatch, error)));
    }
    let parts = payload.split().and_then(|(m, body)| Ok((hot::decode_metadata(&m)?, body)));
    parts.map_err(|error| (None, (ValidationError::BatchDeSerializeError, error)))
}

/// Permits that the broker charges for an entry: its messages less those already acknowledged. A
/// claim that exceeds what a frame can hold is capped.
fn charge(size: Option<i32>, ack_set: &[i64]) -> u32 {
    const MOST: i32 = 1 << 20;
    let size = size.unwrap_or(1).clamp(1, MOST) as u32;
    if ack_set.is_empty() {
        return size;
    }
    (0..size).filter(|index| is_set(ack_set, *index)).count() as u32
}

pub(super) fn is_set(ack_set: &[i64], index: u32) -> bool {
    ack_set.get(index as usize / 64).is_some_and(|word| *word as u64 >> (index % 64) & 1 == 1)
}

/// The message of an entry that is not a batch.
#[inline]
fn unbatched(id: MessageId, entry: Arc<EntryInfo>, metadata: pb::MessageMetadata, body: Bytes) -> Message {
    let mut message = Message::new(id, entry, body, metadata.sequence_id);
    message.key = metadata.partition_key.map(String::into_boxed_str);
    message.key_is_base64 = metadata.partition_key_b64_encoded.unwrap_or_default();
    message.event_time = metadata.event_time.unwrap_or_default();
    message.null_value = metadata.null_value.unwrap_or_default();
    message.set_rare(metadata.ordering_key, properties(metadata.properties));
    message
}

fn unbatch(
    id: MessageId,
    size: i32,
    ack_set: &[i64],
    entry: &Arc<EntryInfo>,
    metadata: &pb::MessageMetadata,
    body: &Bytes,
) -> Result<Vec<Message>> {
    let malformed =
        |what: &str| Error::protocol(format!("the entry holds a malformed batch of {size} messages: {what}"));
    // Each message needs at least its length prefix and the payload size in its metadata.
    if size < 1 || size as usize > body.len() / 6 {
        return Err(malformed("it is too short for that many messages"));
    }
    let mut messages = Vec::with_capacity(size as usize);
    let mut reader = Reader::new(body);
    for index in 0..size {
        let length = reader.u32().map_err(|_| malformed("it is truncated before a message"))? as usize;
        let single =
            body.slice_ref(reader.take(length).map_err(|_| malformed("it is truncated in metadata"))?);
        let single = hot::decode_single(&single)?;
        let length =
            usize::try_from(single.payload_size).map_err(|_| malformed("a payload size is negative"))?;
        let payload = reader.take(length).map_err(|_| malformed("it is truncated in a payload"))?;
        let acknowledged = !ack_set.is_empty() && !is_set(ack_set, index as u32);
        if acknowledged || single.compacted_out() {
            continue;
        }
        let sequence_id = single.sequence_id.unwrap_or(metadata.sequence_id + index as u64);
        let payload = body.slice_ref(payload);
        let mut message = Message::new(id.in_batch(index, size), Arc::clone(entry), payload, sequence_id);
        message.key = single.partition_key.map(String::into_boxed_str);
        message.key_is_base64 = single.partition_key_b64_encoded.unwrap_or_default();
        message.event_time = single.event_time.unwrap_or_default();
        message.null_value = single.null_value.unwrap_or_default();
        message.set_rare(single.ordering_key, properties(single.properties));
        messages.push(message);
    }
    Ok(messages)
}

fn properties(pairs: Vec<pb::KeyValue>) -> Vec<(Box<str>, Box<str>)> {
    pairs.into_iter().map(|pair| (pair.key.into_boxed_str(), pair.value.into_boxed_str())).collect()
}
