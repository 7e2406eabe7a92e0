//! Names of topics, and the metadata of an entry that the broker reads.

use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::pulsar::key_ranges::SLOTS;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::wire::Reader;
use forebay_pulsar::topic::{TopicName, murmur3_32};

/// Length limit of the name of a topic or subscription.
const NAME_MAX: usize = 1024;
/// The key that Key_Shared uses for a message without one.
const NO_KEY: &[u8] = b"NONE_KEY";

/// A valid topic name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// `persistent://tenant/namespace/local`, or `non-persistent://...`.
    pub(crate) full: Arc<str>,
    /// Index among the partitions of its parent.
    pub(crate) partition: Option<u32>,
    topic: TopicName,
}

impl Name {
    /// Parses a full name, `tenant/namespace/local`, or a local name in `public/default`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text.len() > NAME_MAX {
            return Err(Error::new(ErrorKind::InvalidTopic, "Invalid topic name: it is too long"));
        }
        let topic = TopicName::parse(text).map_err(|error| {
            Error::new(ErrorKind::InvalidTopic, format!("Invalid topic name: {}", error.message()))
        })?;
        Ok(Self { full: topic.to_string().into(), partition: topic.partition(), topic })
    }

    /// Whether the topic stores its messages.
    pub(crate) fn is_persistent(&self) -> bool {
        self.topic.is_persistent()
    }

    /// `tenant/namespace`.
    pub(crate) fn namespace(&self) -> String {
        self.topic.namespace()
    }

    /// The name without its partition index.
    pub(crate) fn parent(&self) -> Arc<str> {
        if self.partition.is_none() {
            self.full.clone()
        } else {
            self.topic.without_partition().to_string().into()
        }
    }
}

/// The metadata of an entry that the broker uses. Invalid metadata is stored as received, as by the
/// real broker, so nothing here may cause harm when it is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) publish_ms: u64,
    pub(crate) deliver_ms: u64,
    pub(crate) count: u32,
    pub(crate) batch: bool,
    pub(crate) hash: u16,
    /// Whether the entry is one chunk of several of its message.
    pub(crate) chunk: bool,
    /// Whether more chunks of the message follow.
    pub(crate) chunk_follows: bool,
    /// Hash of the id that the chunks of a message share.
    pub(crate) uuid: u64,
}

impl Facts {
    /// Parses `[metadata size u32][MessageMetadata]...`.
    pub(crate) fn read(covered: &[u8]) -> Self {
        let mut facts = Self { count: 1, ..Self::default() };
        let mut reader = Reader::new(covered);
        let metadata = reader.u32().and_then(|size| reader.take(size as usize)).unwrap_or_default();
        let mut reader = Reader::new(metadata);
        let (mut key, mut ordering_key, mut key_is_base64) = (None, None, false);
        let (mut chunk, mut chunks) = (0, 0);
        while !reader.is_empty() {
            let Ok((field, wire_type)) = reader.tag() else { break };
            let read = match (field, wire_type) {
                (3, 0) => reader.varint().map(|v| facts.publish_ms = v),
                (6, 2) => reader.delimited().map(|v| key = Some(v)),
                (11, 0) => reader.varint().map(|v| {
                    facts.batch = true;
                    facts.count = (v as i32).max(1) as u32;
                }),
                (17, 0) => reader.varint().map(|v| key_is_base64 = v != 0),
                (18, 2) => reader.delimited().map(|v| ordering_key = Some(v)),
                (19, 0) => reader.varint().map(|v| facts.deliver_ms = (v as i64).max(0) as u64),
                (26, 2) => reader.delimited().map(|v| {
                    let mut hasher = DefaultHasher::new();
                    hasher.write(v);
                    facts.uuid = hasher.finish();
                }),
                (27, 0) => reader.varint().map(|v| chunks = v as i32),
                (29, 0) => reader.varint().map(|v| chunk = v as i32),
                _ => reader.skip(wire_type),
            };
            if read.is_err() {
                break;
            }
        }
        facts.chunk = chunks > 1;
        facts.chunk_follows = chunk + 1 < chunks;
        facts.hash = match (ordering_key, key) {
            (Some(key), _) => slot(key),
            (None, Some(key)) if key_is_base64 => {
                slot(&STANDARD.decode(key).unwrap_or_else(|_| key.to_vec()))
            }
            (None, Some(key)) => slot(key),
            (None, None) => slot(NO_KEY),
        };
        facts
    }
}

/// The hash slot of a key.
pub(crate) fn slot(key: &[u8]) -> u16 {
    ((murmur3_32(key) & 0x7fff_ffff) % SLOTS) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;

    use forebay_pulsar::{hot, pb};

    #[test]
    fn names_are_made_full_and_bad_ones_refused() {
        let name = Name::parse("orders-partition-3").unwrap();
        assert_eq!(&*name.full, "persistent://public/default/orders-partition-3");
        assert_eq!((name.namespace().as_str(), name.partition), ("public/default", Some(3)));
        assert_eq!(&*name.parent(), "persistent://public/default/orders");
        for bad in
            ["", "bad://a/b/c", "persistent://a/b", "persistent://a//c", "persistent://x", "a\nb", "a/b"]
        {
            assert_eq!(Name::parse(bad).unwrap_err().kind(), ErrorKind::InvalidTopic, "{bad:?}");
        }
    }

    #[test]
    fn the_facts_of_an_entry_are_read_without_its_strings() {
        let metadata = pb::MessageMetadata {
            producer_name: "p".into(),
            sequence_id: 1,
            publish_time: 77,
            partition_key: Some("a2V5".into()),
            partition_key_b64_encoded: Some(true),
            num_messages_in_batch: Some(10),
            deliver_at_time: Some(99),
            num_chunks_from_msg: Some(3),
            chunk_id: Some(1),
            uuid: Some("p-1".into()),
            ..Default::default()
        };
        let mut out = BytesMut::new();
        hot::encode_metadata(&metadata, &mut out);
        let facts = Facts::read(&forebay_pulsar::frame::Payload::build(&out, b"x").covered);
        let expected = Facts {
            publish_ms: 77,
            deliver_ms: 99,
            count: 10,
            batch: true,
            hash: slot(b"key"),
            chunk: true,
            chunk_follows: true,
            uuid: facts.uuid,
        };
        assert_eq!(facts, expected);
        assert_ne!(facts.uuid, 0);
        assert_eq!(Facts::read(&[0, 0, 0, 9, 1]).count, 1);
    }
}
