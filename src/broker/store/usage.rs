//! Space in use, counted over all protocols.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes in use by all protocols together. `max_store` limits this total, whichever protocol fills
/// it, and so does the room that the disk has.
///
/// With a database there is one figure, which every report of the writer renews. Without one each
/// protocol adds what its own messages occupy.
#[derive(Clone, Debug, Default)]
pub struct StoreUsage(Arc<Figures>);

#[derive(Debug)]
struct Figures {
    used: AtomicU64,
    /// Bytes that may be in use, as far as the disk has room.
    disk_limit: AtomicU64,
}

impl Default for Figures {
    fn default() -> Self {
        Self { used: AtomicU64::new(0), disk_limit: AtomicU64::new(u64::MAX) }
    }
}

impl StoreUsage {
    /// Bytes in use.
    pub fn total(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// The number of bytes at which nothing more is accepted: `max_store`, or fewer if the disk has
    /// no room for them.
    pub fn limit(&self, max_store: u64) -> u64 {
        max_store.min(self.disk_limit())
    }

    /// The refusal at the limit.
    pub(crate) fn reason(&self, max_store: u64) -> String {
        if self.disk_limit() < max_store {
            let (used, limit) = (self.total(), self.disk_limit());
            return format!(
                "the disk of the store has less than min_disk_free left, which is room for {limit} bytes of messages, and {used} \
                 are used: free some room there, or consume or delete messages"
            );
        }
        format!(
            "the store is full (max_store is {max_store} bytes): consume or delete messages, or raise max_store"
        )
    }

    fn disk_limit(&self) -> u64 {
        self.0.disk_limit.load(Ordering::Relaxed)
    }

    /// Whether the disk has no room for more.
    pub(crate) fn is_at_disk_limit(&self) -> bool {
        self.total() >= self.disk_limit()
    }

    /// Bytes that may be in use, as far as the disk has room.
    pub(crate) fn set_disk_limit(&self, bytes: u64) {
        self.0.disk_limit.store(bytes, Ordering::Relaxed);
    }

    /// The size of the database, as the writer reports it.
    pub(crate) fn set(&self, bytes: u64) {
        self.0.used.store(bytes, Ordering::Relaxed);
    }

    /// One protocol's share of the memory in use was `before` and is `after`.
    pub(crate) fn replace(&self, before: u64, after: u64) {
        self.0.used.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }
}
