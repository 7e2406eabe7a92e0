//! What a producer is given and what a consumer gets, and the id that joins both.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::pulsar::pb;

/// No frame holds a batch of more messages, so a larger claim must not become an allocation.
const MAX_BATCH: i32 = 1 << 20;

/// Position of a message: the ledger and entry that the broker gave, the partition, and the index in its
/// batch. Ordered by position; ids of different topics do not compare meaningfully.
///
/// Text form, as the official clients print it: `(ledger,entry,partition,batch_index)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId {
    /// Ledger number; `u64::MAX` in [`Self::EARLIEST`].
    pub ledger: u64,
    /// Entry in the ledger.
    pub entry: u64,
    /// Partition of the topic, -1 for a plain topic.
    pub partition: i32,
    /// Index in the batch, -1 for a message that is not in one.
    pub batch_index: i32,
    /// Number of messages in the batch, 0 when it is not known or there is none.
    pub batch_size: i32,
}

impl MessageId {
    /// Before the first message.
    pub const EARLIEST: Self = Self::new(u64::MAX, u64::MAX);
    /// After the last message.
    pub const LATEST: Self = Self::new(i64::MAX as u64, i64::MAX as u64);

    /// The id of an entry that is no batch, on a plain topic.
    pub const fn new(ledger: u64, entry: u64) -> Self {
        Self { ledger, entry, partition: -1, batch_index: -1, batch_size: 0 }
    }

    /// The same position in `partition`.
    #[must_use]
    pub const fn in_partition(mut self, partition: i32) -> Self {
        self.partition = partition;
        self
    }

    /// Index `index` of a batch of `size`.
    #[must_use]
    pub const fn in_batch(mut self, index: i32, size: i32) -> Self {
        self.batch_index = index;
        self.batch_size = size;
        self
    }

    /// The position of the whole entry.
    pub const fn entry_id(&self) -> (u64, u64) {
        (self.ledger, self.entry)
    }

    /// Serialised `MessageIdData`: the form the official clients store.
    pub fn to_bytes(self) -> Vec<u8> {
        prost::Message::encode_to_vec(&pb::MessageIdData::from(self))
    }

    /// Reads [`Self::to_bytes`] of any client.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let data: pb::MessageIdData = prost::Message::decode(bytes).map_err(|e| {
            Error::new(ErrorKind::InvalidArgument, format!("not a serialised message id: {e}"))
        })?;
        let id = Self::from(&data);
        if id.batch_size > MAX_BATCH || id.batch_index >= MAX_BATCH {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("no batch holds {} messages", id.batch_size),
            ));
        }
        Ok(id)
    }

    /// -1 wraps to `u64::MAX` on the wire but orders before everything.
    fn order(&self) -> (i64, i64, i32, i32) {
        (self.ledger as i64, self.entry as i64, self.partition, self.batch_index)
    }
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

/// A message on its way out. Borrowed: the producer copies what it keeps, once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outgoing<'a> {
    /// The payload. Empty is a message of no bytes; see [`Self::null_value`].
    pub payload: &'a [u8],
    /// Routes to a partition and orders per key.
    pub key: Option<&'a str>,
    /// Set when `key` is base64 of raw bytes.
    pub key_is_base64: bool,
    /// Orders in Key_Shared subscriptions instead of the key.
    pub ordering_key: Option<&'a [u8]>,
    /// Names and values, in this order.
    pub properties: &'a [(&'a str, &'a str)],
    /// Application time in milliseconds since 1970; 0 is unset.
    pub event_time: u64,
    /// Deduplication id; given out by the producer when `None`.
    pub sequence_id: Option<u64>,
    /// Not delivered on Shared subscriptions before this time in milliseconds since 1970.
    pub deliver_at: Option<i64>,
    /// A tombstone: no value, as opposed to an empty one.
    pub null_value: bool,
}

/// Facts that all messages of one entry share.
#[derive(Clone, Debug, Default)]
pub struct EntryInfo {
    /// Full name of the topic, with its partition.
    pub topic: Arc<str>,
    /// Name of the producer.
    pub producer_name: Arc<str>,
    /// Milliseconds since 1970 by the producer's clock.
    pub publish_time: u64,
    /// Milliseconds since 1970 by the broker's clock, when it tells.
    pub broker_timestamp: Option<u64>,
    /// How often the broker has tried before.
    pub redelivery_count: u32,
    /// Version of the schema the payload was written with.
    pub schema_version: Option<Bytes>,
    /// Who replicated it, when a remote cluster did.
    pub replicated_from: Option<String>,
}

/// A message as it was received. The payload is a slice of the buffer it came in.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its position.
    pub id: MessageId,
    /// What its whole entry shares.
    pub entry: Arc<EntryInfo>,
    /// Its bytes.
    pub payload: Bytes,
    /// Its key, as sent: base64 text if [`Self::key_is_base64`].
    pub key: Option<Box<str>>,
    /// Set when the key stands for raw bytes.
    pub key_is_base64: bool,
    /// Its ordering key.
    pub ordering_key: Option<Bytes>,
    /// Names and values.
    pub properties: Vec<(Box<str>, Box<str>)>,
    /// Application time in milliseconds since 1970; 0 is unset.
    pub event_time: u64,
    /// The producer's sequence id.
    pub sequence_id: u64,
    /// A tombstone.
    pub null_value: bool,
    /// Index in the topic, when the broker tells.
    pub index: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_prints_and_parses() {
        for id in
            [MessageId::EARLIEST, MessageId::LATEST, MessageId::new(3, 7).in_partition(2).in_batch(5, 0)]
        {
            assert_eq!(id.to_string().parse::<MessageId>().unwrap(), id);
            assert_eq!(MessageId::from_bytes(&id.to_bytes()).unwrap(), id);
        }
        assert_eq!(MessageId::EARLIEST.to_string(), "(-1,-1,-1,-1)");
        for bad in ["", "(1,2,3)", "1,2,3,4", "(1,2,3,x)", "(1,2,3,99999999999)"] {
            assert!(bad.parse::<MessageId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_id_in_an_impossible_batch_is_refused() {
        let id = MessageId::new(1, 1).in_batch(3, i32::MAX);
        assert_eq!(MessageId::from_bytes(&id.to_bytes()).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn earliest_is_before_all_and_latest_after() {
        let id = MessageId::new(0, 0);
        assert!(MessageId::EARLIEST < id && id < MessageId::LATEST);
        assert!(id.in_batch(0, 2) < id.in_batch(1, 2) && id.in_batch(1, 2) < MessageId::new(0, 1));
    }
}
