//! The memory limit for messages without a receipt, over all producers of a client.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crate::events::ProducerEvents;
use crate::traffic::Traffic;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::sync::Mutex;

/// Bytes of messages without a receipt, over all producers of a client.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    used: AtomicUsize,
    /// Producers that were refused. They are notified when bytes are released.
    refused: Mutex<Vec<Weak<dyn ProducerEvents>>>,
    any_refused: AtomicBool,
    /// Totals of the client.
    traffic: Arc<Traffic>,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            used: AtomicUsize::new(0),
            refused: Mutex::default(),
            any_refused: AtomicBool::new(false),
            traffic: Arc::default(),
        }
    }

    /// Totals of the client.
    pub(super) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Charges `bytes`. If that exceeds the limit, `events` will receive a
    /// [`ProducerEvents::room`].
    pub(super) fn acquire(&self, bytes: usize, events: &Arc<dyn ProducerEvents>) -> Result<()> {
        if self.try_acquire(bytes) {
            return Ok(());
        }
        self.refused.lock().push(Arc::downgrade(events));
        self.any_refused.store(true, Ordering::SeqCst);
        // A release between the attempt and the note has notified no one: try again.
        if self.try_acquire(bytes) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::MemoryLimit,
            format!(
                "{} of {} bytes wait for receipts: await some sends, or raise memory_limit",
                self.used(),
                self.limit
            ),
        ))
    }

    /// When nothing is in use a message is admitted whatever its size; otherwise it could never be
    /// sent.
    fn try_acquire(&self, bytes: usize) -> bool {
        let fits = |used: usize| (used == 0 || used + bytes <= self.limit).then_some(used + bytes);
        self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok()
    }

    pub(super) fn release(&self, bytes: usize) {
        let before = self.used.fetch_sub(bytes, Ordering::SeqCst);
        debug_assert!(before >= bytes, "more bytes released than were held");
        if self.any_refused.swap(false, Ordering::SeqCst) {
            let refused = std::mem::take(&mut *self.refused.lock());
            for events in refused.iter().filter_map(Weak::upgrade) {
                events.room();
            }
        }
    }
}
