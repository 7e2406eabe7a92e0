//! The broker's store: committed changes survive a kill, pending ones do not. It decodes every
//! entry as a consumer does, and so knows the messages in the log.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use forebay_base::compression::{Compression, decompress};
use forebay_base::wire::Reader;
use forebay_broker::log::cursor::Cursor;
use forebay_broker::log::{Entry, Last, Source};
use forebay_broker::store::{Found, Op, StoredCursor, StoredProducer, StoredTopic};
use forebay_pulsar::frame::Payload;
use forebay_pulsar::hot;

/// A message of the simulation: its producer, and its number there.
pub(crate) type Name = (u8, u64);

/// The payload of a message: producer, number and padding.
pub(crate) fn payload(name: Name, filling: usize) -> Vec<u8> {
    let mut bytes = vec![name.0];
    bytes.extend_from_slice(&name.1.to_be_bytes());
    bytes.extend(filling_of(name).take(filling));
    bytes
}

/// Incompressible bytes.
fn filling_of((who, number): Name) -> impl Iterator<Item = u8> {
    let mut state = (number << 8 | u64::from(who)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
}

/// Parses a [`payload`] and checks that it is intact.
pub(crate) fn name_of(payload: &[u8]) -> Result<Name, String> {
    let number = payload.get(1..9).ok_or("a payload was cut")?;
    let name = (payload[0], u64::from_be_bytes(number.try_into().expect("eight bytes")));
    if !filling_of(name).take(payload.len() - 9).eq(payload[9..].iter().copied()) {
        return Err("a payload was mixed up".into());
    }
    Ok(name)
}

#[derive(Debug, Default)]
struct Topic {
    name: Arc<str>,
    epoch: u64,
    entries: BTreeMap<u64, Entry>,
    next: u64,
    next_index: u64,
    cursors: BTreeMap<Arc<str>, (i32, u64, Vec<u8>)>,
    producers: BTreeMap<Arc<str>, StoredProducer>,
}

/// Number of the key of a producer's message.
pub(crate) fn key_of(number: u64) -> usize {
    (number * 7 / 3 % 4) as usize
}

/// The store of a broker.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    topics: BTreeMap<u64, Topic>,
    next_topic: u64,
    bytes: u64,
    /// The position of each committed message: entry and index.
    pub(crate) messages: BTreeMap<Name, (u64, usize)>,
    /// The messages that each entry completes, in order.
    pub(crate) contents: BTreeMap<u64, Vec<Name>>,
    /// Chunks by uuid. Complete messages stay, so that a repeated chunk is recognised.
    chunks: BTreeMap<String, BTreeMap<i32, Bytes>>,
    /// Whether producers have a batch for each key, so that only the messages of a key are in
    /// order.
    key_based: bool,
    /// The last message by producer and, with key-based batching, key.
    last: BTreeMap<(u8, u64), u64>,
}

impl Disk {
    pub(crate) fn new(key_based: bool) -> Self {
        Self { key_based, ..Self::default() }
    }

    /// Commits one change.
    pub(crate) fn commit(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::CreateTopic { id, name, .. } => {
                self.next_topic = id + 1;
                self.topics.insert(id, Topic { name, ..Topic::default() });
            }
            Op::Epoch { topic, epoch } => self.topic(topic)?.epoch = epoch,
            Op::Append { topic, entry, producer } => self.append(topic, entry, producer)?,
            Op::Cursor { topic, subscription, kind, below, state, .. } => {
                self.topic(topic)?.cursors.insert(subscription, (kind, below, state));
            }
            Op::Run(_) | Op::DropProducer { .. } => {}
            other => return Err(format!("unexpected change {other:?}")),
        }
        Ok(())
    }

    fn topic(&mut self, id: u64) -> Result<&mut Topic, String> {
        self.topics.get_mut(&id).ok_or_else(|| format!("topic {id} was never created"))
    }

    fn append(&mut self, id: u64, entry: Entry, producer: Option<StoredProducer>) -> Result<(), String> {
        self.bytes += entry.body.len() as u64;
        let topic = self.topic(id)?;
        if entry.sequence != topic.next {
            return Err(format!("entry {} was written where {} was due", entry.sequence, topic.next));
        }
        topic.next = entry.sequence + 1;
        topic.next_index = entry.last_index + 1;
        topic.producers.extend(producer.map(|producer| (producer.name.clone(), producer)));
        topic.entries.insert(entry.sequence, entry.clone());
        let names = self.read(&entry)?;
        for (index, name) in names.iter().enumerate() {
            if let Some(first) = self.messages.insert(*name, (entry.sequence, index)) {
                return Err(format!("{name:?} is at {first:?} and again at {}", entry.sequence));
            }
            let key = if self.key_based { key_of(name.1) as u64 } else { 0 };
            if self.last.insert((name.0, key), name.1).is_some_and(|last| last >= name.1) {
                return Err(format!("{name:?} was stored behind a later one"));
            }
        }
        self.contents.insert(entry.sequence, names);
        Ok(())
    }

    fn read(&mut self, entry: &Entry) -> Result<Vec<Name>, String> {
        let payload = Payload { entry: None, checksum: entry.checksum, covered: entry.body.clone() };
        if !payload.checksum_ok() {
            return Err(format!("entry {} was damaged", entry.sequence));
        }
        let read = || -> forebay_base::error::Result<_> { Ok((payload.metadata()?, payload.body()?)) };
        let (metadata, mut body) = read().map_err(|e| e.to_string())?;
        if let Some(uuid) = &metadata.uuid {
            let chunks = self.chunks.entry(uuid.clone()).or_default();
            let repeated = chunks.insert(metadata.chunk_id(), body).is_some();
            if repeated || chunks.len() < metadata.num_chunks_from_msg() as usize {
                return Ok(Vec::new());
            }
            body = chunks
                .values()
                .fold(BytesMut::new(), |mut all, c| {
                    all.extend_from_slice(c);
                    all
                })
                .freeze();
        }
        let kind = Compression::from_number(metadata.compression.unwrap_or_default()).ok_or("compression")?;
        let body = decompress(kind, &body, metadata.uncompressed_size() as usize, 1 << 24)
            .map_err(|e| e.to_string())?;
        let Some(count) = metadata.num_messages_in_batch else { return Ok(vec![name_of(&body)?]) };
        let mut reader = Reader::new(&body);
        let mut one = || -> forebay_base::error::Result<Vec<u8>> {
            let size = reader.u32()? as usize;
            let single = hot::decode_single(&Bytes::copy_from_slice(reader.take(size)?))?;
            Ok(reader.take(single.payload_size as usize)?.to_vec())
        };
        (0..count).map(|_| name_of(&one().map_err(|e| e.to_string())?)).collect()
    }

    /// The contents of the store at the start of a broker.
    pub(crate) fn found(&self) -> Found {
        let topics = self.topics.iter().map(|(id, topic)| StoredTopic {
            id: *id,
            name: topic.name.clone(),
            partitions: 0,
            epoch: topic.epoch,
            first: 0,
            next: topic.next,
            next_index: topic.next_index,
            last: topic.entries.values().next_back().map(Last::from),
            cursors: topic
                .cursors
                .iter()
                .map(|(name, (kind, below, state))| {
                    let (cursor, properties) = Cursor::decode_with(*below, state).expect("as it was encoded");
                    StoredCursor {
                        subscription: name.clone(),
                        kind: *kind,
                        cursor,
                        properties,
                        touched_ms: 0,
                        owner: None,
                    }
                })
                .collect(),
            producers: topic.producers.values().cloned().collect(),
            terminated: false,
        });
        Found { topics: topics.collect(), next_topic: self.next_topic, bytes: self.bytes, ..Found::default() }
    }

    /// Size of all entries in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The broker's access to committed entries.
#[derive(Debug)]
pub(crate) struct Shelf(pub(crate) Rc<RefCell<Disk>>);

impl Source for Shelf {
    fn read(
        &mut self,
        topic: u64,
        from: u64,
        limit: usize,
        bytes: usize,
    ) -> forebay_base::error::Result<Vec<Entry>> {
        let disk = self.0.borrow();
        let Some(topic) = disk.topics.get(&topic) else { return Ok(Vec::new()) };
        let mut left = bytes;
        let mut out = Vec::new();
        for entry in topic.entries.range(from..).map(|(_, entry)| entry).take(limit) {
            out.push(entry.clone());
            left = left.saturating_sub(entry.body.len());
            if left == 0 {
                break;
            }
        }
        Ok(out)
    }
}
