//! The messages that wait for their entry.
//!
//! Without key-based batching they are one batch. With it there is one for each key, and all close
//! together. The entries are then in the order of their highest sequence ids, and each has only
//! that one, as those of the official clients: a broker with deduplication drops an entry whose ids
//! are not above all ids before it. Outcomes are still reported in the order of the pushes, for
//! which a [`Group`] remembers the places of the messages.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;

use super::Event;
use super::batch::{Entry, OpenBatch, Sender};
use crate::message::Outgoing;
use forebay_base::error::Error;
use forebay_base::random::HashMap;

/// Open batches of a producer.
#[derive(Debug, Default)]
pub(super) struct Open {
    key_based: bool,
    batches: Vec<OpenBatch>,
    /// Index of each key's batch.
    by_key: HashMap<Vec<u8>, u32>,
    /// The key of the message that is being pushed; kept to reuse its memory.
    key: Vec<u8>,
    /// Batch and payload size of each message, in the order of the pushes. Only with several keys.
    order: Vec<Place>,
    /// Number of messages.
    pub(super) count: usize,
    /// Total payload size in bytes.
    pub(super) bytes: usize,
    /// Total size in bytes.
    pub(super) size: usize,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    batch: u32,
    bytes: u32,
}

impl Open {
    pub(super) fn new(key_based: bool) -> Self {
        Self { key_based, ..Self::default() }
    }

    /// Time at which the first message was pushed.
    pub(super) fn since(&self) -> Option<Instant> {
        self.batches.first().map(|batch| batch.since)
    }

    /// Version of the schema of the messages, if there are any.
    pub(super) fn version(&self) -> Option<&Bytes> {
        self.batches.first().map(|batch| &batch.schema_version)
    }

    /// Has the batches state another version.
    pub(super) fn restate(&mut self, version: &Bytes) {
        for batch in &mut self.batches {
            batch.schema_version = version.clone();
        }
    }

    /// Adds a message. `size` is an upper bound of what it needs, `limit` that of a batch.
    pub(super) fn push(
        &mut self,
        now: Instant,
        wall_ms: u64,
        message: &Outgoing<'_>,
        version: &Bytes,
        sequence_id: u64,
        (size, limit): (usize, usize),
    ) {
        let index = if self.key_based { self.batch_of(message) } else { 0 };
        if index == self.batches.len() {
            // Room for a burst of similar messages, so that the buffer rarely grows.
            let room = if self.key_based { size * 4 } else { (size * 32).clamp(4096, limit.max(4096)) };
            self.batches.push(OpenBatch::new(now, wall_ms, message, version.clone(), sequence_id, room));
        }
        let batch = &mut self.batches[index];
        let before = batch.body.len();
        batch.push(message, sequence_id);
        self.size += batch.body.len() - before;
        self.count += 1;
        self.bytes += message.payload.len();
        if self.key_based {
            self.order.push(Place { batch: index as u32, bytes: message.payload.len() as u32 });
        }
    }

    /// Takes the only batch.
    #[cfg(test)]
    pub(super) fn take_only(&mut self) -> OpenBatch {
        (self.count, self.bytes, self.size) = (0, 0, 0);
        self.batches.pop().expect("there is a batch")
    }

    /// Index of the batch of the message's key.
    fn batch_of(&mut self, message: &Outgoing<'_>) -> usize {
        self.key.clear();
        match (message.ordering_key, message.key) {
            (Some(key), _) => {
                self.key.push(b'o');
                self.key.extend_from_slice(key);
            }
            (None, Some(key)) => {
                self.key.push(b'k');
                self.key.extend_from_slice(key.as_bytes());
            }
            (None, None) => {}
        }
        if let Some(index) = self.by_key.get(&self.key) {
            return *index as usize;
        }
        let index = self.batches.len();
        self.by_key.insert(self.key.clone(), index as u32);
        index
    }

    /// Closes all batches. The entries, and what is needed to report the outcomes of several in
    /// order.
    pub(super) fn close(
        &mut self,
        sender: &Sender<'_>,
        window: &mut VecDeque<Entry>,
        groups: &mut VecDeque<Group>,
    ) {
        (self.count, self.bytes, self.size) = (0, 0, 0);
        if let [_] = self.batches[..] {
            window.extend(self.batches.drain(..).map(|batch| batch.close(sender)));
        } else if let Some(since) = self.since() {
            let mut batches: Vec<_> = self.batches.drain(..).enumerate().collect();
            batches.sort_by_key(|(_, batch)| batch.last_sequence());
            groups.push_back(Group::new(std::mem::take(&mut self.order), batches.len()));
            window.extend(batches.into_iter().map(|(index, mut batch)| {
                // What is pushed first times out first, in whatever entry it is.
                batch.since = since;
                batch.be_one_of_several();
                let mut entry = batch.close(sender);
                entry.place = Some(index);
                entry
            }));
        }
        self.by_key.clear();
        self.order.clear();
    }
}

/// Batches that were closed together, until all their outcomes have been reported.
#[derive(Debug)]
pub(super) struct Group {
    order: Vec<Place>,
    /// Number of messages whose outcome has been reported.
    reported: usize,
    batches: Vec<Reported>,
}

/// Outcome of one batch of a group.
#[derive(Debug, Default)]
struct Reported {
    outcome: Option<Result<Stored, Error>>,
    /// Number of its messages whose outcome has been reported.
    reported: u32,
}

/// The place at which the broker has stored an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    pub(super) ledger: u64,
    pub(super) entry: u64,
    /// Number of messages of the entry.
    pub(super) size: u32,
    /// Ledger and entry of the first chunk of a message in chunks.
    pub(super) first_chunk: Option<(u64, u64)>,
}

impl Group {
    fn new(order: Vec<Place>, batches: usize) -> Self {
        Self { order, reported: 0, batches: (0..batches).map(|_| Reported::default()).collect() }
    }

    /// Takes the outcome of the batch at `place`, and reports what is next in the order of the
    /// pushes.
    pub(super) fn end(
        &mut self,
        place: usize,
        outcome: Result<Stored, Error>,
        mut report: impl FnMut(u32, usize, Event),
    ) {
        self.batches[place].outcome = Some(outcome);
        while let Some(Place { batch, .. }) = self.order.get(self.reported).copied() {
            let Reported { outcome: Some(outcome), reported } = &mut self.batches[batch as usize] else {
                return;
            };
            let run = self.order[self.reported..].iter().take_while(|place| place.batch == batch);
            let (count, bytes) = run.fold((0, 0), |(n, sum), place| (n + 1, sum + place.bytes as usize));
            let event = match outcome {
                Ok(Stored { ledger, entry, size, .. }) => Event::Stored {
                    count,
                    ledger: *ledger,
                    entry: *entry,
                    batch: Some((*reported, *size)),
                    first_chunk: None,
                    bytes,
                },
                Err(error) => Event::Failed { count, error: error.clone(), bytes },
            };
            *reported += count;
            self.reported += count as usize;
            report(count, bytes, event);
        }
    }

    /// Whether every outcome has been reported.
    pub(super) fn is_done(&self) -> bool {
        self.reported == self.order.len()
    }

    /// Messages and bytes of batches that have ended and are not reported.
    pub(super) fn held(&self) -> (usize, usize) {
        let unreported = self.order[self.reported..].iter();
        let ended = unreported.filter(|place| self.batches[place.batch as usize].outcome.is_some());
        ended.fold((0, 0), |(messages, bytes), place| (messages + 1, bytes + place.bytes as usize))
    }
}
