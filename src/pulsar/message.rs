//! Outgoing and received messages, and message ids.

use std::cmp::Ordering;
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;

use crate::pb;
use crate::schema::{SchemaInfo, Writer};
use forebay_base::error::{Error, ErrorKind, Result};

/// Maximum batch size. No frame can hold more messages, so a larger claim must not become an
/// allocation.
const MAX_BATCH: i32 = 1 << 20;

/// Position of a message: the ledger and entry assigned by the broker, the partition, and the index
/// in the batch. Ids are ordered by position; comparing ids of different topics is meaningless.
///
/// Text form, as printed by the official clients: `(ledger,entry,partition,batch_index)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId {
    /// Ledger number; `u64::MAX` in [`Self::EARLIEST`].
    pub ledger: u64,
    /// Entry number within the ledger.
    pub entry: u64,
    /// Partition of the topic, or -1 for a non-partitioned topic.
    pub partition: i32,
    /// Index in the batch, or -1 if the message is not batched.
    pub batch_index: i32,
    /// Number of messages in the batch, or 0 if unknown or not batched.
    pub batch_size: i32,
}

impl MessageId {
    /// Position before the first message.
    pub const EARLIEST: Self = Self::new(u64::MAX, u64::MAX);
    /// Position after the last message.
    pub const LATEST: Self = Self::new(i64::MAX as u64, i64::MAX as u64);

    /// Creates the id of an unbatched entry of a non-partitioned topic.
    pub const fn new(ledger: u64, entry: u64) -> Self {
        Self { ledger, entry, partition: -1, batch_index: -1, batch_size: 0 }
    }

    /// Returns the same position in `partition`.
    #[must_use]
    pub const fn in_partition(mut self, partition: i32) -> Self {
        self.partition = partition;
        self
    }

    /// Returns the id of message `index` in a batch of `size`.
    #[must_use]
    pub const fn in_batch(mut self, index: i32, size: i32) -> Self {
        self.batch_index = index;
        self.batch_size = size;
        self
    }

    /// Ledger and entry, without partition and batch index.
    pub const fn entry_id(&self) -> (u64, u64) {
        (self.ledger, self.entry)
    }

    /// Refuses an id that is a position and not a message, such as [`Self::LATEST`], the last id of
    /// an empty topic, or that of a duplicate, which was not stored.
    pub fn require_message(&self) -> Result<()> {
        let is_message = self.ledger as i64 >= 0 && self.entry as i64 >= 0 && self.entry < i64::MAX as u64;
        if is_message {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "{self} is a position and not the id of a message: to skip all that there is, seek to \"latest\""
            ),
        ))
    }

    /// Serialises the id as `MessageIdData`, the form that the official clients store. For a
    /// message in chunks, of which the id names the last one, it has the entry of the first one as
    /// well.
    pub fn to_bytes(self, first_chunk: Option<(u64, u64)>) -> Vec<u8> {
        let mut data = pb::MessageIdData::from(self);
        data.first_chunk_message_id = first_chunk.map(|(ledger, entry)| {
            Box::new(pb::MessageIdData::from(Self::new(ledger, entry).in_partition(self.partition)))
        });
        prost::Message::encode_to_vec(&data)
    }

    /// Parses the output of [`Self::to_bytes`], from any client.
    pub fn from_bytes(bytes: &[u8]) -> Result<(Self, Option<(u64, u64)>)> {
        let refused = |why: &str| {
            Error::new(
                ErrorKind::InvalidArgument,
                format!("the bytes are not a serialised message id: {why}"),
            )
        };
        let decode = |error: prost::DecodeError| refused(&error.to_string());
        let data: pb::MessageIdData = prost::Message::decode(bytes).map_err(decode)?;
        // The decoder does not ask for the fields that a message id must have.
        let given: Required = prost::Message::decode(bytes).map_err(decode)?;
        if given.ledger.is_none() || given.entry.is_none() {
            return Err(refused("they lack the ledger or the entry"));
        }
        let id = Self::from(&data);
        if id.batch_size > MAX_BATCH || id.batch_index >= MAX_BATCH {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "the message id claims a batch of {} messages, more than a frame can hold",
                    id.batch_size
                ),
            ));
        }
        let first_chunk = data.first_chunk_message_id.map(|first| (first.ledger_id, first.entry_id));
        Ok((id, first_chunk))
    }

    /// Sort key. -1 is `u64::MAX` on the wire but sorts before everything else.
    fn order(&self) -> (i64, i64, i32, i32) {
        (self.ledger as i64, self.entry as i64, self.partition, self.batch_index)
    }
}

/// The fields that a serialised message id must have.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
struct Required {
    #[prost(uint64, optional, tag = "1")]
    ledger: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    entry: Option<u64>,
}

impl PartialOrd for MessageId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for MessageId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order()).then(self.batch_size.cmp(&other.batch_size))
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({},{},{},{})", self.ledger as i64, self.entry as i64, self.partition, self.batch_index)
    }
}

impl FromStr for MessageId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::new(
                ErrorKind::InvalidArgument,
                format!("{text:?} is not a message id: expected (ledger,entry,partition,batch_index)"),
            )
        };
        let inner = text.trim().strip_prefix('(').and_then(|t| t.strip_suffix(')')).ok_or_else(bad)?;
        let parts: Vec<i64> =
            inner.split(',').map(|p| p.trim().parse().map_err(|_| bad())).collect::<Result<_>>()?;
        let [ledger, entry, partition, batch_index] = parts[..] else { return Err(bad()) };
        Ok(Self {
            ledger: ledger as u64,
            entry: entry as u64,
            partition: i32::try_from(partition).map_err(|_| bad())?,
            batch_index: i32::try_from(batch_index).map_err(|_| bad())?,
            batch_size: 0,
        })
    }
}

impl From<MessageId> for pb::MessageIdData {
    fn from(id: MessageId) -> Self {
        Self {
            ledger_id: id.ledger,
            entry_id: id.entry,
            partition: (id.partition >= 0).then_some(id.partition),
            batch_index: (id.batch_index >= 0).then_some(id.batch_index),
            batch_size: (id.batch_size > 0).then_some(id.batch_size),
            ..Self::default()
        }
    }
}

impl From<&pb::MessageIdData> for MessageId {
    fn from(data: &pb::MessageIdData) -> Self {
        Self {
            ledger: data.ledger_id,
            entry: data.entry_id,
            partition: data.partition(),
            batch_index: data.batch_index(),
            batch_size: data.batch_size(),
        }
    }
}

/// A message to be published. Borrows its content: the producer copies what it keeps, once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outgoing<'a> {
    /// Payload. An empty payload is a message of zero bytes; see [`Self::null_value`].
    pub payload: &'a [u8],
    /// Key for routing to a partition and for ordering.
    pub key: Option<&'a str>,
    /// Whether `key` is the base64 encoding of raw bytes.
    pub key_is_base64: bool,
    /// Key that replaces `key` for ordering in Key_Shared subscriptions.
    pub ordering_key: Option<&'a [u8]>,
    /// Properties as name and value pairs, in order.
    pub properties: &'a [(&'a str, &'a str)],
    /// Application timestamp in milliseconds since 1970; 0 if unset.
    pub event_time: u64,
    /// Sequence id for deduplication; assigned by the producer if `None`.
    pub sequence_id: Option<u64>,
    /// Earliest delivery on Shared subscriptions, in milliseconds since 1970.
    pub deliver_at: Option<i64>,
    /// Tombstone: the message has no value, as opposed to an empty one.
    pub null_value: bool,
    /// Names of the only clusters that get a copy; [`LOCAL_CLUSTER`] alone for none. Empty for all.
    pub replicate_to: &'a [String],
    /// Version of the schema of the payload, if it is not that of the producer.
    pub schema_version: Option<&'a Bytes>,
    /// Schema of the payload, if it is not that of the producer and its version is not known.
    pub schema: Option<&'a Arc<SchemaInfo>>,
}

/// Stands in [`Outgoing::replicate_to`] for the cluster that the message is sent to: it is not
/// replicated.
pub const LOCAL_CLUSTER: &str = "__local__";

/// Origin of an entry, which consecutive entries of a producer share.
#[derive(Debug, Default)]
pub struct Origin {
    /// Full topic name, including the partition.
    pub topic: Arc<str>,
    /// Name of the producer.
    pub producer_name: Arc<str>,
}

/// Properties that all messages of an entry share. With messages that are not batched there is one
/// of these for each, so it is small: 72 bytes with the counts of its `Arc`.
#[derive(Clone, Debug, Default)]
pub struct EntryInfo {
    origin: Arc<Origin>,
    /// Publish time in milliseconds since 1970, by the producer's clock.
    pub publish_time: u64,
    /// Number of earlier delivery attempts.
    pub redelivery_count: u32,
    /// Number of this delivery among those that the consumer has received, from 1.
    pub arrival: u64,
    /// Time of storage in milliseconds since 1970 by the broker's clock, if the broker sends it.
    broker_timestamp: Option<NonZeroU64>,
    /// Number of messages in the topic up to the end of the entry, if the broker sends it.
    end_index: Option<NonZeroU64>,
    /// Properties that most entries lack. They are apart, as an entry of a single message has all
    /// of this for itself.
    rare: Option<Box<RareInfo>>,
}

/// Properties of an entry that most lack.
#[derive(Clone, Debug)]
pub struct RareInfo {
    /// Version of the schema that the payload was written with.
    pub schema_version: Option<Bytes>,
    /// The schema of that version, if the consumer reads by schemas.
    pub writer: Option<Arc<Writer>>,
    /// Name of the cluster that the entry was replicated from, if any.
    pub replicated_from: Option<String>,
    /// Ledger and entry of the first chunk of a message that came in chunks.
    pub first_chunk: Option<(u64, u64)>,
}

impl RareInfo {
    /// Without any.
    pub const NONE: Self =
        Self { schema_version: None, writer: None, replicated_from: None, first_chunk: None };

    fn is_none(&self) -> bool {
        let Self { schema_version, writer, replicated_from, first_chunk } = self;
        schema_version.is_none() && writer.is_none() && replicated_from.is_none() && first_chunk.is_none()
    }
}

impl EntryInfo {
    /// Creates an entry without what the broker adds and without rare properties.
    pub fn new(origin: Arc<Origin>, publish_time: u64, redelivery_count: u32, arrival: u64) -> Self {
        Self { origin, publish_time, redelivery_count, arrival, ..Self::default() }
    }

    /// Full topic name, including the partition.
    pub fn topic(&self) -> &Arc<str> {
        &self.origin.topic
    }

    /// Name of the producer.
    pub fn producer_name(&self) -> &Arc<str> {
        &self.origin.producer_name
    }

    /// Adds what the broker says of the entry: the time of storage, of which 0 stands for none, and
    /// the index in the topic of its last message.
    pub fn with_broker(mut self, timestamp: Option<u64>, last_index: Option<u64>) -> Self {
        self.broker_timestamp = timestamp.and_then(NonZeroU64::new);
        self.end_index = last_index.and_then(|last| NonZeroU64::MIN.checked_add(last));
        self
    }

    /// Time of storage in milliseconds since 1970 by the broker's clock, if the broker sends it.
    pub fn broker_timestamp(&self) -> Option<u64> {
        self.broker_timestamp.map(NonZeroU64::get)
    }

    /// Index in the topic of the entry's last message, if the broker sends it.
    pub fn last_index(&self) -> Option<u64> {
        self.end_index.map(|end| end.get() - 1)
    }

    /// Adds the properties that most entries lack.
    pub fn with_rare(mut self, rare: RareInfo) -> Self {
        self.rare = (!rare.is_none()).then(|| Box::new(rare));
        self
    }

    /// The properties that most entries lack.
    pub fn rare(&self) -> &RareInfo {
        static NONE: RareInfo = RareInfo::NONE;
        self.rare.as_deref().unwrap_or(&NONE)
    }
}

/// Fields that few messages have. They are apart, so that a message is quick to move.
#[derive(Clone, Debug, Default)]
struct Rare {
    ordering_key: Option<Bytes>,
    properties: Vec<(Box<str>, Box<str>)>,
}

/// A received message. The payload is a slice of the buffer in which the entry arrived.
#[derive(Clone, Debug)]
pub struct Message {
    /// Position of the message.
    pub id: MessageId,
    /// Properties shared with the other messages of the entry.
    pub entry: Arc<EntryInfo>,
    /// Payload.
    pub payload: Bytes,
    /// Key as sent; base64 text if [`Self::key_is_base64`].
    pub key: Option<Box<str>>,
    /// Whether the key is the base64 encoding of raw bytes.
    pub key_is_base64: bool,
    /// Application timestamp in milliseconds since 1970; 0 if unset.
    pub event_time: u64,
    /// Sequence id assigned by the producer.
    pub sequence_id: u64,
    /// Whether the message is a tombstone.
    pub null_value: bool,
    rare: Option<Box<Rare>>,
}

// Up to this size a move is a few instructions in place; beyond it is a call of memcpy, several
// times per message.
const _: () = assert!(size_of::<Message>() <= 128);
const _: () = assert!(size_of::<EntryInfo>() <= 56);

impl Message {
    /// Creates a message without key, properties and times.
    pub fn new(id: MessageId, entry: Arc<EntryInfo>, payload: Bytes, sequence_id: u64) -> Self {
        Self {
            id,
            entry,
            payload,
            key: None,
            key_is_base64: false,
            event_time: 0,
            sequence_id,
            null_value: false,
            rare: None,
        }
    }

    /// Sets the ordering key and the properties.
    pub(super) fn set_rare(&mut self, ordering_key: Option<Bytes>, properties: Vec<(Box<str>, Box<str>)>) {
        if ordering_key.is_some() || !properties.is_empty() {
            self.rare = Some(Box::new(Rare { ordering_key, properties }));
        }
    }

    /// Ordering key.
    pub fn ordering_key(&self) -> Option<&Bytes> {
        self.rare.as_ref()?.ordering_key.as_ref()
    }

    /// Properties as name and value pairs.
    pub fn properties(&self) -> &[(Box<str>, Box<str>)] {
        self.rare.as_ref().map_or(&[], |rare| &rare.properties)
    }

    /// Bytes of what the producer has sent: payload, keys and properties.
    pub fn size(&self) -> usize {
        let keys = self.key.as_ref().map_or(0, |key| key.len()) + self.ordering_key().map_or(0, Bytes::len);
        let properties: usize = self.properties().iter().map(|(name, value)| name.len() + value.len()).sum();
        self.payload.len() + keys + properties
    }

    /// Id of the first chunk of a message that came in chunks; [`Self::id`] is that of the last
    /// one.
    pub fn first_chunk(&self) -> Option<MessageId> {
        let (ledger, entry) = self.entry.rare().first_chunk?;
        Some(MessageId::new(ledger, entry).in_partition(self.id.partition))
    }

    /// Index of the message in the topic, if the broker sends it.
    pub fn index(&self) -> Option<u64> {
        let behind = if self.id.batch_size > 0 { self.id.batch_size - 1 - self.id.batch_index } else { 0 };
        self.entry.last_index().map(|last| last.saturating_sub(u64::try_from(behind).unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_index_of_its_place_in_the_entry() {
        let entry = |last_index| Arc::new(EntryInfo::default().with_broker(None, last_index));
        let index = |id, last| Message::new(id, entry(last), Bytes::new(), 0).index();
        let id = MessageId::new(3, 7);
        // The broker states the index of the last message of a batch.
        assert_eq!(index(id.in_batch(0, 5), Some(14)), Some(10));
        assert_eq!(index(id.in_batch(4, 5), Some(14)), Some(14));
        assert_eq!(index(id, Some(14)), Some(14));
        assert_eq!(index(id, None), None);
        assert_eq!(index(id.in_batch(0, 5), Some(2)), Some(0), "a false claim does not wrap");
    }

    #[test]
    fn a_message_is_as_large_as_what_was_sent() {
        let new = || Message::new(MessageId::new(3, 7), Arc::default(), Bytes::from_static(b"12345"), 0);
        assert_eq!(new().size(), 5);
        let mut message = new();
        message.key = Some("key".into());
        message.set_rare(Some(Bytes::from_static(b"ok")), vec![("name".into(), "value".into())]);
        assert_eq!(message.size(), 5 + 3 + 2 + 9);
    }

    #[test]
    fn an_id_prints_and_parses() {
        for id in
            [MessageId::EARLIEST, MessageId::LATEST, MessageId::new(3, 7).in_partition(2).in_batch(5, 0)]
        {
            assert_eq!(id.to_string().parse::<MessageId>().unwrap(), id);
            for first_chunk in [None, Some((0, 7))] {
                assert_eq!(MessageId::from_bytes(&id.to_bytes(first_chunk)).unwrap(), (id, first_chunk));
            }
        }
        assert_eq!(MessageId::EARLIEST.to_string(), "(-1,-1,-1,-1)");
        for bad in ["", "(1,2,3)", "1,2,3,4", "(1,2,3,x)", "(1,2,3,99999999999)"] {
            assert!(bad.parse::<MessageId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_without_ledger_or_entry_are_no_id() {
        for bytes in [&b""[..], b"xx", b"\x08\x03", b"\x10\x03", b"\x08\x03\x10", b"\xff"] {
            let error = MessageId::from_bytes(bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{bytes:?}");
        }
        assert_eq!(MessageId::from_bytes(b"\x08\x00\x10\x00").unwrap(), (MessageId::new(0, 0), None));
    }

    #[test]
    fn an_id_in_an_impossible_batch_is_refused() {
        let id = MessageId::new(1, 1).in_batch(3, i32::MAX);
        assert_eq!(MessageId::from_bytes(&id.to_bytes(None)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn earliest_is_before_all_and_latest_after() {
        let id = MessageId::new(0, 0);
        assert!(MessageId::EARLIEST < id && id < MessageId::LATEST);
        assert!(id.in_batch(0, 2) < id.in_batch(1, 2) && id.in_batch(1, 2) < MessageId::new(0, 1));
    }
}
