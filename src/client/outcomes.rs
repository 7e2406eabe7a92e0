//! The outcomes of pushed messages on their way from a machine to [`ProducerEvents`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::budget::Budget;
use crate::events::{ProducerEvents, SendOutcome};
use crate::traffic::{Probe, SendCounters, SendCounts};
use crate::until;
use forebay_base::error::{Error, ErrorKind, Result};

/// One queue of a producer: charges the memory budget, reports outcomes, and wakes callers that
/// wait for room or for the last outcome.
#[derive(Debug)]
pub(super) struct Outcomes {
    budget: Arc<Budget>,
    events: Arc<dyn ProducerEvents>,
    /// A push was refused because the window is full; [`ProducerEvents::room`] is owed.
    refused: AtomicBool,
    idle: Notify,
    counters: SendCounters,
    probe: Probe,
}

/// Bytes of messages that have an outcome.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Freed {
    /// Of those that the broker has.
    pub(super) stored: usize,
    /// Of those that failed.
    pub(super) failed: usize,
}

impl Outcomes {
    pub(super) fn new(budget: Arc<Budget>, events: Arc<dyn ProducerEvents>) -> Self {
        Self {
            budget,
            events,
            refused: AtomicBool::new(false),
            idle: Notify::new(),
            counters: SendCounters::default(),
            probe: Probe::default(),
        }
    }

    /// Charges `bytes` for a message that `push` hands to the machine, which the caller has locked.
    /// A refused message is refunded.
    pub(super) fn admit<T>(&self, bytes: usize, push: impl FnOnce() -> Result<T>) -> Result<T> {
        self.budget.acquire(bytes, &self.events)?;
        push().inspect(|_| self.probe.pushed()).inspect_err(|error| {
            self.budget.release(bytes);
            if error.kind() == ErrorKind::QueueFull {
                self.refused.store(true, Ordering::Release);
            }
        })
    }

    /// Reports outcomes, each with its slot, and refunds the bytes that they have freed. The
    /// machine's lock must have been released; `idle` says whether the machine had nothing pending
    /// any more.
    pub(super) fn deliver(&self, outcomes: Vec<(usize, SendOutcome)>, freed: Freed, idle: bool) {
        if outcomes.is_empty() {
            return;
        }
        self.budget.release(freed.stored + freed.failed);
        self.count(&outcomes, freed.stored);
        for (slot, outcome) in outcomes {
            self.events.sent(slot, outcome);
        }
        if idle {
            self.idle.notify_waiters();
        }
        if self.refused.swap(false, Ordering::AcqRel) {
            self.events.room();
        }
    }

    fn count(&self, outcomes: &[(usize, SendOutcome)], bytes: usize) {
        let (mut stored, mut failed) = (0, 0);
        for (_, outcome) in outcomes {
            match outcome {
                SendOutcome::Stored { count, .. } => stored += u64::from(*count),
                SendOutcome::Failed { count, .. } => failed += u64::from(*count),
            }
        }
        let latency = self.probe.ended(stored + failed);
        for counters in [&self.counters, &self.budget.traffic().sends] {
            counters.acknowledged(stored, bytes);
            if failed > 0 {
                counters.failed(failed);
            } else if let Some(latency) = latency {
                counters.latency(latency);
            }
        }
    }

    /// Counters of this queue.
    pub(super) fn counts(&self) -> SendCounts {
        self.counters.counts()
    }

    /// Refunds `bytes` of messages whose outcome is not reported: the handle was dropped.
    pub(super) fn forget(&self, bytes: usize) {
        if bytes > 0 {
            self.budget.release(bytes);
        }
    }

    /// Resolves when `is_idle` says that nothing is pending.
    pub(super) async fn idle(&self, is_idle: impl Fn() -> bool) {
        until(&self.idle, || is_idle().then_some(())).await;
    }

    /// Reports that the producer has ended.
    pub(super) fn closed(&self, error: Error) {
        self.events.closed(error);
    }
}
