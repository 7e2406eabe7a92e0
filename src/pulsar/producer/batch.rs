//! Encoding of messages into entries: the open batch, single messages, chunks.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};

use crate::command::Command;
use crate::frame::entry_head;
use crate::message::Outgoing;
use crate::schema::SchemaInfo;
use crate::{MAX_CHUNKS, hot, pb};
use forebay_base::compression::{Compression, compress};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::transmit::Transmit;

/// Generous upper bound for an entry's metadata without properties and keys.
const METADATA_ROOM: usize = 256;

/// Settings of the producer that each entry depends on.
#[derive(Debug)]
pub(super) struct Sender<'a> {
    pub(super) producer_id: u64,
    pub(super) name: &'a str,
    pub(super) compression: Compression,
    pub(super) compression_min_size: usize,
    pub(super) max_message_size: usize,
    /// Largest chunk of a message that is too large for one entry; `None` if messages are not
    /// split.
    pub(super) chunks: Option<usize>,
}

impl Sender<'_> {
    /// Compression of an entry with `size` bytes of payload.
    fn compression(&self, size: usize) -> Compression {
        if size < self.compression_min_size { Compression::None } else { self.compression }
    }
}

/// A batch that still accepts messages.
#[derive(Debug)]
pub(super) struct OpenBatch {
    pub(super) body: BytesMut,
    pub(super) count: u32,
    /// Total payload size in bytes.
    pub(super) bytes: usize,
    /// Time at which the first message was pushed.
    pub(super) since: Instant,
    publish_time: u64,
    first_sequence: u64,
    last_sequence: u64,
    key: Option<String>,
    key_is_base64: bool,
    ordering_key: Option<Bytes>,
    pub(super) schema_version: Bytes,
}

impl OpenBatch {
    pub(super) fn new(
        now: Instant,
        wall_ms: u64,
        message: &Outgoing<'_>,
        schema_version: Bytes,
        sequence_id: u64,
        room: usize,
    ) -> Self {
        Self {
            body: BytesMut::with_capacity(room),
            count: 0,
            bytes: 0,
            since: now,
            publish_time: wall_ms,
            first_sequence: sequence_id,
            last_sequence: sequence_id,
            key: message.key.map(str::to_owned),
            key_is_base64: message.key_is_base64,
            ordering_key: message.ordering_key.map(Bytes::copy_from_slice),
            schema_version,
        }
    }

    pub(super) fn push(&mut self, message: &Outgoing<'_>, sequence_id: u64) {
        hot::encode_batched(message, sequence_id, &mut self.body);
        self.last_sequence = sequence_id;
        self.count += 1;
        self.bytes += message.payload.len();
    }

    /// Highest sequence id.
    pub(super) fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// Gives the entry its highest sequence id only, as the ids of other batches lie between those
    /// of its messages.
    pub(super) fn be_one_of_several(&mut self) {
        self.first_sequence = self.last_sequence;
    }

    /// Encodes the batch. If compression fails the entry is marked `doomed`, and its messages fail
    /// in their turn.
    pub(super) fn close(mut self, sender: &Sender<'_>) -> Entry {
        let uncompressed = self.body.split().freeze();
        let body = match sender.compression(uncompressed.len()) {
            Compression::None => Ok(uncompressed.clone()),
            kind => compress(kind, &uncompressed),
        };
        self.close_with(sender, uncompressed.len(), body)
    }

    pub(super) fn close_with(self, sender: &Sender<'_>, uncompressed: usize, body: Result<Bytes>) -> Entry {
        let (body, doomed) = match body {
            Ok(body) => (body, None),
            Err(error) => (Bytes::new(), Some(error)),
        };
        let several = self.count > 1;
        let ranged = self.first_sequence != self.last_sequence;
        let metadata = pb::MessageMetadata {
            producer_name: sender.name.into(),
            sequence_id: self.first_sequence,
            publish_time: self.publish_time,
            partition_key_b64_encoded: self.key_is_base64.then_some(true),
            partition_key: self.key,
            ordering_key: self.ordering_key,
            compression: compression_field(sender.compression(uncompressed)),
            uncompressed_size: Some(uncompressed as u32),
            // The presence of this field, even with value 1, marks the batch format.
            num_messages_in_batch: Some(self.count as i32),
            highest_sequence_id: ranged.then_some(self.last_sequence),
            schema_version: stated(self.schema_version.clone()),
            ..Default::default()
        };
        let command = Command::Send(hot::Send {
            producer_id: sender.producer_id,
            sequence_id: self.first_sequence,
            num_messages: several.then_some(self.count as i32),
            highest_sequence_id: ranged.then_some(self.last_sequence),
            ..hot::Send::default()
        });
        Entry {
            head: entry_head(&command, &metadata, &body),
            body,
            first_sequence: self.first_sequence,
            last_sequence: self.last_sequence,
            count: self.count,
            bytes: self.bytes,
            batch: true,
            place: None,
            since: self.since,
            schema_version: self.schema_version,
            doomed,
            doubt: None,
            known: false,
        }
    }
}

/// An encoded entry, kept unchanged until its receipt arrives.
#[derive(Debug)]
pub(super) struct Entry {
    head: Bytes,
    body: Bytes,
    pub(super) first_sequence: u64,
    pub(super) last_sequence: u64,
    /// Number of messages that the receipt for this entry completes; 0 for all chunks but the last.
    pub(super) count: u32,
    /// Total payload size of these messages in bytes.
    pub(super) bytes: usize,
    pub(super) batch: bool,
    /// Its number in the first group that has not ended, if it is of a group.
    pub(super) place: Option<usize>,
    pub(super) since: Instant,
    /// The version that its metadata state; empty if none.
    pub(super) schema_version: Bytes,
    /// Error of an entry that must not be sent (again); its messages fail in their turn.
    pub(super) doomed: Option<Error>,
    /// Its schema, while the broker has not said again which version that has. It is not sent
    /// before.
    pub(super) doubt: Option<Arc<SchemaInfo>>,
    /// Whether the broker has its message already, so that it is not sent.
    pub(super) known: bool,
}

impl Entry {
    /// Stands for a message that cannot be sent.
    pub(super) fn refused(sequence: u64, bytes: usize, since: Instant, error: Error) -> Self {
        Self { doomed: Some(error), known: false, ..Self::known(sequence, bytes, since) }
    }

    /// Stands for a message that the broker has already.
    pub(super) fn known(sequence: u64, bytes: usize, since: Instant) -> Self {
        Self {
            head: Bytes::new(),
            body: Bytes::new(),
            first_sequence: sequence,
            last_sequence: sequence,
            count: 1,
            bytes,
            batch: false,
            place: None,
            since,
            schema_version: Bytes::new(),
            doomed: None,
            doubt: None,
            known: true,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    pub(super) fn write(&self, out: &mut Transmit) {
        out.push(self.head.clone());
        out.push(self.body.clone());
    }
}

/// Encodes a message as an entry of its own or, with `chunking`, as several if it is too large for
/// one.
pub(super) fn single(
    sender: &Sender<'_>,
    now: Instant,
    wall_ms: u64,
    message: &Outgoing<'_>,
    schema_version: &Bytes,
    sequence_id: u64,
) -> Result<Vec<Entry>> {
    let metadata = metadata_of(sender, wall_ms, message, schema_version, sequence_id);
    let body = compress(sender.compression(message.payload.len()), message.payload)?;
    let command = hot::Send { producer_id: sender.producer_id, sequence_id, ..hot::Send::default() };
    let room = METADATA_ROOM + prost::Message::encoded_len(&metadata);
    let whole = |head, body| Entry {
        head,
        body,
        first_sequence: sequence_id,
        last_sequence: sequence_id,
        count: 1,
        bytes: message.payload.len(),
        batch: false,
        place: None,
        since: now,
        schema_version: schema_version.clone(),
        doomed: None,
        doubt: None,
        known: false,
    };
    let small_enough = sender.chunks.is_none_or(|largest| body.len() <= largest);
    if body.len() + room - METADATA_ROOM <= sender.max_message_size && small_enough {
        return Ok(vec![whole(entry_head(&Command::Send(command), &metadata, &body), body)]);
    }
    let Some(largest) = sender.chunks.filter(|_| room < sender.max_message_size) else {
        let size = body.len() + room - METADATA_ROOM;
        return Err(too_large(message.payload.len(), size, sender.max_message_size));
    };
    let piece = (sender.max_message_size - room).min(largest).max(1);
    let count = body.len().div_ceil(piece);
    if message.payload.len().max(body.len()) > i32::MAX as usize || count > MAX_CHUNKS {
        return Err(too_many_chunks(message.payload.len(), count));
    }
    let chunks = (0..count).map(|id| {
        let part = body.slice(id * piece..body.len().min((id + 1) * piece));
        let metadata = pb::MessageMetadata {
            uuid: Some(format!("{}-{sequence_id}", sender.name)),
            num_chunks_from_msg: Some(count as i32),
            total_chunk_msg_size: Some(body.len() as i32),
            chunk_id: Some(id as i32),
            ..metadata.clone()
        };
        let command = Command::Send(hot::Send { is_chunk: Some(true), ..command.clone() });
        let last = id + 1 == count;
        let entry = whole(entry_head(&command, &metadata, &part), part);
        if last { entry } else { Entry { count: 0, bytes: 0, ..entry } }
    });
    Ok(chunks.collect())
}

/// The metadata of a message in an entry of its own.
#[inline]
fn metadata_of(
    sender: &Sender<'_>,
    wall_ms: u64,
    message: &Outgoing<'_>,
    schema_version: &Bytes,
    sequence_id: u64,
) -> pb::MessageMetadata {
    pb::MessageMetadata {
        producer_name: sender.name.into(),
        sequence_id,
        publish_time: wall_ms,
        properties: message
            .properties
            .iter()
            .map(|(key, value)| pb::KeyValue { key: (*key).into(), value: (*value).into() })
            .collect(),
        partition_key: message.key.map(str::to_owned),
        partition_key_b64_encoded: message.key_is_base64.then_some(true),
        ordering_key: message.ordering_key.map(Bytes::copy_from_slice),
        compression: compression_field(sender.compression(message.payload.len())),
        uncompressed_size: Some(message.payload.len() as u32),
        event_time: (message.event_time != 0).then_some(message.event_time),
        deliver_at_time: message.deliver_at,
        null_value: message.null_value.then_some(true),
        replicate_to: message.replicate_to.to_vec(),
        schema_version: stated(schema_version.clone()),
        ..Default::default()
    }
}

/// Error of a message of `payload` bytes that would be an entry of `size` bytes.
fn too_large(payload: usize, size: usize, limit: usize) -> Error {
    Error::new(
        ErrorKind::MessageTooLarge,
        format!(
            "the message of {payload} bytes ({size} compressed, with metadata) exceeds the broker's limit of {limit}: \
             split it or enable chunking"
        ),
    )
}

fn too_many_chunks(payload: usize, count: usize) -> Error {
    Error::new(
        ErrorKind::MessageTooLarge,
        format!(
            "the message of {payload} bytes would be {count} chunks: a message has at most {} bytes and {MAX_CHUNKS} \
             chunks",
            i32::MAX
        ),
    )
}

/// A version as the metadata state it: not at all, if there is none.
fn stated(version: Bytes) -> Option<Bytes> {
    (!version.is_empty()).then_some(version)
}

fn compression_field(kind: Compression) -> Option<i32> {
    (kind != Compression::None).then_some(kind as i32)
}
