//! Space in use, counted over all protocols.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes in use by all protocols together. `max_store` limits this total, whichever protocol fills it.
///
/// With a database there is one figure, which every report of the writer renews. Without one each protocol adds
/// what its own messages occupy.
#[derive(Clone, Debug, Default)]
pub struct StoreUsage(Arc<AtomicU64>);

impl StoreUsage {
    /// Bytes in use.
    pub fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The size of the database, as the writer reports it.
    pub(in crate::broker) fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// One protocol's share of the memory in use was `before` and is `after`.
    pub(in crate::broker) fn replace(&self, before: u64, after: u64) {
        self.0.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }
}
