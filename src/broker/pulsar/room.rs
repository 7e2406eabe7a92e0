//! Room for new messages: what goes when the store is short of it.
//!
//! The store is short above [`SHORT`] eighths of `max_store`. Then all acknowledged entries go.
//! Entries of topics without a durable subscription go only if it still is short without those: the
//! oldest ones over all topics, until [`ENOUGH`] eighths are in use.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tracing::Level;

use super::Broker;
use crate::logger::{self, Logger, Record};
use crate::store::Op;

/// Eighths of the store above which it is short of room.
const SHORT: u64 = 6;
/// Eighths of the store that are in use once there is enough room again.
const ENOUGH: u64 = 5;
/// Steps at a time. Those on a disk read some entries each.
const STEPS: usize = 256;
/// Pause between two removals from a disk. A report of what is left to clean up comes within it.
const PAUSE: Duration = Duration::from_secs(1);
/// Part of the time since the oldest entry by which a topic may be ahead of the others, so that a
/// step removes several entries.
const AHEAD: u64 = 16;

/// State of the removal of entries without a subscription.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Whether it is under way.
    active: bool,
    /// Since the store is short: the number of the change that removed the last entries, and the
    /// time of the last removal that was waited for. The store may clean up for a while after the
    /// change, and has its final size only then.
    last: Option<(u64, Instant)>,
    /// Whether the log has the record about it.
    logged: bool,
}

impl Broker {
    /// Whether the store is short of room, or still has not enough of it.
    fn is_short(&self) -> bool {
        self.exceeds(self.commits.used())
    }

    fn exceeds(&self, used: u64) -> bool {
        used > self.eighths(if self.room.active { ENOUGH } else { SHORT })
    }

    fn eighths(&self, count: u64) -> u64 {
        self.commits.limit(self.settings.max_store) / 8 * count
    }

    /// Housekeeping as the store's room demands.
    pub(super) fn keep_house(&mut self) {
        if self.is_short() {
            self.make_room();
        } else {
            (self.room.active, self.room.last) = (false, None);
            self.housekeeping(self.settings.retention);
        }
    }

    /// Makes room in a store that is short of it.
    pub(super) fn make_room(&mut self) {
        let is_known = self.room.last.is_some_and(|(change, at)| {
            self.commits.written() >= change && self.now >= at + PAUSE && !self.commits.is_cleaning_up()
        });
        let trimmed = self.housekeeping(Duration::ZERO);
        if !self.is_short() {
            (self.room.active, self.room.last) = (false, None);
            return;
        }
        if self.commits.failure().is_some() {
            return;
        }
        let mut used = self.commits.used();
        if self.settings.stored {
            // What was acknowledged may be enough. A full store waits for no more of it.
            let is_full = self.commits.is_full(self.settings.max_store);
            if !is_known {
                let since = self.room.last.map(|(_, at)| at);
                if since.is_none() || trimmed > 0 && !is_full {
                    self.room.last = Some((self.commits.issued(), since.unwrap_or(self.now)));
                }
                return;
            }
            if !is_full {
                used = used.saturating_sub(trimmed);
            }
        }
        if self.exceeds(used) {
            // If there is nothing more, what is acknowledged later stays as usual.
            self.room.active = self.release_oldest(used);
        }
        self.room.last = Some((self.commits.issued(), self.now));
    }

    /// Removes the oldest entries of topics without a durable subscription, of a store with so many
    /// bytes in use. Returns whether there were any.
    fn release_oldest(&mut self, used: u64) -> bool {
        let wanted = used.saturating_sub(self.eighths(ENOUGH));
        let mut wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let (source, run_ms) = (&mut self.source, self.settings.clock.run_ms(self.now));
        let ages = self.topics.values_mut().filter_map(|topic| Some((topic.releasable(source)?, topic.id)));
        let mut ages: BTreeSet<(u64, u64)> = ages.collect();
        let (mut released, mut memory) = (BTreeSet::new(), 0);
        for _ in 0..if self.settings.stored { STEPS } else { usize::MAX } {
            if wanted == 0 {
                break;
            }
            let Some((oldest, id)) = ages.pop_first() else { break };
            let Some(topic) = self.topics.get_mut(&id) else { continue };
            let ahead = run_ms.saturating_sub(oldest) / AHEAD;
            let until = ages.first().map_or(u64::MAX, |(next, _)| next.saturating_add(ahead));
            let before = topic.log.cache_bytes();
            wanted = wanted.saturating_sub(topic.release(&mut self.source, until, wanted));
            memory += before - topic.log.cache_bytes();
            released.insert(id);
            ages.extend(topic.releasable(&mut self.source).map(|oldest| (oldest, id)));
        }
        if !self.settings.stored {
            self.commits.sub_used(memory);
        }
        let trims = released.iter().filter_map(|id| Some(self.topics.get(id)?.trimmed())).collect();
        self.write_trims(trims);
        if !released.is_empty() && !std::mem::replace(&mut self.room.logged, true) {
            logger::write(Level::WARN, Logger::Store, || {
                Record::new(
                    "the store is short of room: the oldest messages of topics without a durable \
                     subscription are deleted from now on. Subscribe before you send, or raise max_store",
                )
                .with("event", "released")
                .with("protocol", "pulsar")
            });
        }
        !released.is_empty()
    }

    /// Has the store remove what was trimmed.
    pub(super) fn write_trims(&mut self, trims: Vec<Op>) {
        if self.settings.stored && self.commits.failure().is_none() {
            trims.into_iter().for_each(|trim| self.commits.write(trim));
        }
    }
}
