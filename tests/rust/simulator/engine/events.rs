//! What producers and consumers report to an application of a run.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::sync::Mutex;

use forebay_base::error::{Error, ErrorKind};
use forebay_client::events::{ConsumerEvents, ProducerEvents, Receipt, SendOutcome};
use forebay_client::pushed::Pushed;
use tokio::sync::Notify;

use super::host::violate;

/// What happened to a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Pending,
    Stored,
    /// The handle was closed, or the send timed out.
    Unknown,
}

/// The slot of a push, or `None` if there is no room. Any other refusal is a violation.
pub(crate) fn slot<N: Debug>(name: &N, pushed: Result<Pushed<'_>, Error>) -> Option<usize> {
    pushed
        .map(|pushed| pushed.slot())
        .inspect_err(|error| {
            if !matches!(error.kind(), ErrorKind::QueueFull | ErrorKind::MemoryLimit) {
                violate(format!("{name:?} was refused: {error}"));
            }
        })
        .ok()
}

/// The same outcome of messages in a row.
type Outcome<N> = (Vec<N>, Result<Receipt, Error>);

/// Outcomes of one producer's handle, by the names of what was pushed.
pub(crate) struct Sink<N> {
    pending: Mutex<BTreeMap<usize, VecDeque<N>>>,
    outcomes: Mutex<Vec<Outcome<N>>>,
    closed: Mutex<Option<Error>>,
    /// There is room, an outcome, or an end.
    pub(crate) changed: Notify,
}

impl<N> Default for Sink<N> {
    fn default() -> Self {
        Self {
            pending: Mutex::default(),
            outcomes: Mutex::default(),
            closed: Mutex::default(),
            changed: Notify::new(),
        }
    }
}

impl<N> Sink<N> {
    /// Notes that `name` was pushed into `slot`.
    pub(crate) fn pushed(&self, slot: usize, name: N) {
        self.pending.lock().unwrap().entry(slot).or_default().push_back(name);
    }

    /// Outcomes since the last call.
    pub(crate) fn outcomes(&self) -> Vec<Outcome<N>> {
        std::mem::take(&mut *self.outcomes.lock().unwrap())
    }

    /// What has no outcome. It is not asked for again.
    pub(crate) fn unanswered(&self) -> Vec<N> {
        std::mem::take(&mut *self.pending.lock().unwrap()).into_values().flatten().collect()
    }

    /// The error that has ended the producer.
    pub(crate) fn end(&self) -> Option<Error> {
        self.closed.lock().unwrap().take()
    }

    /// Notes a violation if the producer has ended by itself.
    pub(crate) fn check_end(&self, who: &str) {
        if let Some(error) = self.end()
            && error.kind() != ErrorKind::Closed
        {
            violate(format!("{who} ended for good: {error}"));
        }
    }
}

impl<N: Send + 'static> ProducerEvents for Sink<N> {
    fn sent(&self, slot: usize, outcome: SendOutcome) {
        let (count, result) = match outcome {
            SendOutcome::Stored { count, receipt } => (count, Ok(receipt)),
            SendOutcome::Failed { count, error } => (count, Err(error)),
        };
        let mut pending = self.pending.lock().unwrap();
        let pending = pending.entry(slot).or_default();
        if count as usize > pending.len() {
            violate(format!("{count} outcomes for {} messages", pending.len()));
            return;
        }
        let names = pending.drain(..count as usize).collect();
        self.outcomes.lock().unwrap().push((names, result));
        self.changed.notify_one();
    }

    fn room(&self) {
        self.changed.notify_one();
    }

    fn closed(&self, error: Error) {
        *self.closed.lock().unwrap() = Some(error);
        self.changed.notify_one();
    }
}

/// Tells when a consumer has something.
#[derive(Default)]
pub(crate) struct Ready {
    pub(crate) notify: Notify,
    closed: Mutex<Option<Error>>,
}

impl Ready {
    /// The error that has ended the consumer.
    pub(crate) fn end(&self) -> Option<Error> {
        self.closed.lock().unwrap().take()
    }
}

impl ConsumerEvents for Ready {
    fn readable(&self) {
        self.notify.notify_one();
    }

    fn closed(&self, error: Error) {
        *self.closed.lock().unwrap() = Some(error);
        self.notify.notify_one();
    }
}
