//! Messages at the end of their redeliveries, for a dead letter policy.
//!
//! A message that was redelivered as often as the policy allows is delivered once more. If that is
//! refused or late, its entry is not requested again: its messages become [`DeadLetter`]s. The
//! owner takes these, sends them to another topic and tells the outcome, which acknowledges the
//! message or has it requested again. A message that comes with a higher count, because an earlier
//! attempt failed, is a dead letter at once. Until the outcome it keeps the permit with which it
//! came, so that a topic that takes no dead letters stops the deliveries.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use super::acks::Entry;
use super::{Consumer, State};
use crate::message::{Message, MessageId};
use forebay_base::random::HashSet;

/// Maximum number of entries whose last delivery is remembered; their payloads are limited like
/// those fetched ahead. One that is forgotten is requested once more, and then a dead letter at
/// once.
const MAX_LAST: usize = 10_000;

/// A message to be sent to the dead letter topic.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// The message.
    pub message: Message,
    /// Entries of its other chunks.
    chunks: Vec<Entry>,
    /// Seeks before it died.
    moves: u64,
    /// The connection whose permit it keeps.
    permit: Option<u64>,
}

/// An entry that was delivered for the last time.
#[derive(Debug, Default)]
struct Last {
    /// Its messages that are not acknowledged, by their index in the batch.
    messages: BTreeMap<i32, Message>,
    chunks: Vec<Entry>,
}

/// Messages at the end of their redeliveries.
#[derive(Debug)]
pub(super) struct ExpiredDeliveries {
    /// Redeliveries that a message may have.
    max: u32,
    last: BTreeMap<Entry, Last>,
    /// Payload bytes in `last`, and their limit.
    held: usize,
    limit: usize,
    dead: VecDeque<DeadLetter>,
    /// Dead letters without an outcome.
    open: HashSet<MessageId>,
    /// Number of connections.
    connections: u64,
}

impl ExpiredDeliveries {
    pub(super) fn new(max: u32, limit: usize) -> Self {
        let (last, dead, open) = (BTreeMap::new(), VecDeque::new(), HashSet::default());
        Self { max, last, held: 0, limit, dead, open, connections: 0 }
    }

    /// Remembers a message that is delivered for the last time.
    fn remember(&mut self, message: &Message, chunks: impl FnOnce() -> Vec<Entry>) {
        let entry = message.id.entry_id();
        let last =
            self.last.entry(entry).or_insert_with(|| Last { messages: BTreeMap::new(), chunks: chunks() });
        self.held += message.payload.len();
        if let Some(before) = last.messages.insert(message.id.batch_index, message.clone()) {
            self.held -= before.payload.len();
        }
        while self.last.len() > MAX_LAST || self.held > self.limit && self.last.len() > 1 {
            let Some((first, _)) = self.last.first_key_value() else { break };
            let first = *first;
            self.take_last(&first);
        }
    }

    fn take_last(&mut self, entry: &Entry) -> Option<Last> {
        let last = self.last.remove(entry)?;
        self.held -= last.messages.values().map(|message| message.payload.len()).sum::<usize>();
        Some(last)
    }

    /// A new connection: permits of the one before have lapsed.
    pub(super) fn attached(&mut self) {
        self.connections += 1;
    }

    /// The broker delivers everything again that it has delivered. What is dead is still sent.
    pub(super) fn all_come_again(&mut self) {
        self.last.clear();
        self.held = 0;
    }

    pub(super) fn acknowledged(&mut self, id: &MessageId) {
        let entry = id.entry_id();
        if id.batch_index < 0 {
            // The id of a whole entry stands for all its messages.
            self.take_last(&entry);
        } else if let Some(last) = self.last.get_mut(&entry) {
            self.held -= last.messages.remove(&id.batch_index).map_or(0, |message| message.payload.len());
            if last.messages.is_empty() {
                self.last.remove(&entry);
            }
        }
    }
}

impl Consumer {
    /// Looks whether a message that has arrived may be delivered. Returns it if so.
    pub(super) fn outlived(&mut self, message: Message) -> Option<Message> {
        let entry = message.id.entry_id();
        let moves = self.moves;
        let Some(expired) = &mut self.expired else { return Some(message) };
        if expired.open.contains(&message.id) {
            // The outcome of its letter decides.
            self.give_back(1);
            return None;
        }
        let count = message.entry.redelivery_count;
        if count < expired.max {
            return Some(message);
        }
        let chunks = || self.chunked.get(&entry).cloned().unwrap_or_default();
        if count > expired.max {
            expired.open.insert(message.id);
            let (chunks, permit) = (chunks(), Some(expired.connections));
            expired.dead.push_back(DeadLetter { message, chunks, moves, permit });
            return None;
        }
        expired.remember(&message, chunks);
        Some(message)
    }

    /// Takes those of `entries`, which are to be requested again, that were delivered for the last
    /// time: they are dead.
    pub(super) fn move_to_dead(&mut self, entries: &mut BTreeSet<Entry>) {
        let Some(expired) = &mut self.expired else { return };
        if expired.last.is_empty() {
            return;
        }
        let ends: BTreeSet<Entry> =
            entries.iter().filter(|entry| expired.last.contains_key(entry)).copied().collect();
        for entry in &ends {
            let Some(last) = expired.take_last(entry) else { continue };
            entries.remove(entry);
            for chunk in &last.chunks {
                entries.remove(chunk);
            }
            self.recalls.recall(*entry);
            for message in last.messages.into_values().filter(|message| !self.acks.contains(&message.id)) {
                if expired.open.insert(message.id) {
                    let chunks = last.chunks.clone();
                    expired.dead.push_back(DeadLetter { message, chunks, moves: self.moves, permit: None });
                }
            }
        }
        if let Some(unacked) = &mut self.unacked {
            ends.iter().for_each(|entry| unacked.forget(*entry));
        }
        let before = self.queue.len();
        self.queue.retain(|message| !ends.contains(&message.id.entry_id()));
        self.give_back((before - self.queue.len()) as u32);
    }

    /// Drops all of it: the position moves.
    pub(super) fn forget_dying(&mut self) {
        let Some(expired) = &mut self.expired else { return };
        let kept = |letter: &&DeadLetter| letter.permit == Some(expired.connections);
        let permits = expired.dead.iter().filter(kept).count() as u32;
        expired.dead.clear();
        expired.all_come_again();
        expired.open.clear();
        if self.state != State::Detached {
            self.give_back(permits);
        }
    }

    /// Whether [`Self::take_dead`] has something to take.
    pub fn has_dead(&self) -> bool {
        self.expired.as_ref().is_some_and(|expired| !expired.dead.is_empty())
    }

    /// Takes the messages to be sent to the dead letter topic. [`Self::settle_dead`] is to follow
    /// for each.
    pub fn take_dead(&mut self) -> Vec<DeadLetter> {
        self.expired.as_mut().map(|expired| expired.dead.drain(..).collect()).unwrap_or_default()
    }

    /// Handles the outcome of a dead letter. With `sent` the message is acknowledged, otherwise it
    /// is delivered again after the delay of a negative acknowledgement.
    pub fn settle_dead(&mut self, now: Instant, letter: &DeadLetter, sent: bool) {
        let Some(expired) = &mut self.expired else { return };
        let keeps_permit = letter.permit == Some(expired.connections);
        let open = letter.moves == self.moves && expired.open.remove(&letter.message.id);
        if keeps_permit && self.state != State::Detached {
            self.give_back(1);
        }
        if sent {
            self.counts.dead_letters += 1;
        } else {
            self.counts.dead_letters_failed += 1;
        }
        let id = letter.message.id;
        if !open {
            // A seek has moved the position since: what it delivers again is not acknowledged.
        } else if sent {
            letter.chunks.iter().for_each(|chunk| self.acks.individual(&MessageId::new(chunk.0, chunk.1)));
            self.ack(now, &id);
        } else {
            self.nack(now, &id, letter.message.entry.redelivery_count, None);
        }
    }
}
