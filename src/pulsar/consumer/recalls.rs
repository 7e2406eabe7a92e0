//! Deliveries that are revoked: their entries were requested again, or are dead. The owner may hold
//! messages of them that it has taken and not yet handed to the application, which would get them
//! beside their new copies.

use std::collections::BTreeMap;

use super::acks::Entry;
use crate::message::Message;

/// Maximum number of entries that are remembered. The owner drops their messages at once; a message
/// that the application gives back later, and whose entry is forgotten, comes twice.
const MAX_ENTRIES: usize = 1000;

/// Deliveries that are revoked.
#[derive(Debug, Default)]
pub(super) struct Recalls {
    /// Number of entries that have arrived.
    arrivals: u64,
    /// The last entry that had arrived when everything was requested again.
    all: u64,
    /// The same for single entries.
    entries: BTreeMap<Entry, u64>,
    /// Whether there are some that the owner has not been told of.
    news: bool,
}

impl Recalls {
    /// The number of an entry that arrives.
    pub(super) fn arrive(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    pub(super) fn recall(&mut self, entry: Entry) {
        if self.entries.len() >= MAX_ENTRIES && !self.entries.contains_key(&entry) {
            self.entries.pop_first();
        }
        self.entries.insert(entry, self.arrivals);
        self.news = true;
    }

    pub(super) fn recall_all(&mut self) {
        self.all = self.arrivals;
        self.entries.clear();
        self.news = true;
    }

    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    pub(super) fn covers(&self, message: &Message) -> bool {
        let arrival = message.entry.arrival;
        let until = self.entries.get(&message.id.entry_id()).copied().unwrap_or_default();
        arrival <= self.all.max(until)
    }
}
