//! Client side of a producer: the count of its publications without an outcome, and the way of
//! outcomes to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytestring::ByteString;

use crate::events::{ProducerEvents, Receipt, SendOutcome};
use crate::mqtt::options::ProducerOptions;
use crate::traffic::{Probe, SendCounters, SendCounts, Traffic};
use forebay_base::error::Error;
use forebay_mqtt::QoS;
use forebay_mqtt::producer::Outcome;

/// A producer, as the session's outcomes reach it.
#[derive(Debug)]
pub(super) struct Publisher {
    /// Its number, never used twice by this client.
    pub(super) owner: u64,
    pub(super) topic: ByteString,
    pub(super) options: ProducerOptions,
    /// Publications without an outcome.
    pending: AtomicUsize,
    /// A push was refused because the window or the file is full; [`ProducerEvents::room`] is owed.
    refused: AtomicBool,
    pub(super) closed: AtomicBool,
    pub(super) events: Arc<dyn ProducerEvents>,
    counters: SendCounters,
    /// By QoS: outcomes come in the order of the pushes within one.
    probes: [Probe; 3],
    /// Totals of the client.
    traffic: Arc<Traffic>,
}

impl Publisher {
    pub(super) fn new(
        owner: u64,
        topic: &str,
        options: ProducerOptions,
        events: Arc<dyn ProducerEvents>,
        traffic: Arc<Traffic>,
    ) -> Self {
        Self {
            owner,
            topic: topic.into(),
            options,
            pending: AtomicUsize::new(0),
            refused: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            events,
            counters: SendCounters::default(),
            probes: Default::default(),
            traffic,
        }
    }

    /// Counters of what was sent.
    pub(super) fn counts(&self) -> SendCounts {
        self.counters.counts()
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.load(Ordering::Acquire)
    }

    /// A publication is on its way. The session is locked.
    pub(super) fn add(&self, qos: QoS) {
        self.pending.fetch_add(1, Ordering::AcqRel);
        self.probes[qos as usize].pushed();
    }

    pub(super) fn refuse(&self) {
        self.refused.store(true, Ordering::Release);
    }

    /// Reports the outcome of publications.
    pub(super) fn settle(&self, outcome: Outcome) {
        self.pending.fetch_sub(outcome.count as usize, Ordering::AcqRel);
        let count = outcome.count;
        self.count(&outcome);
        self.events.sent(
            outcome.qos as usize,
            match outcome.result {
                Ok(reason) => SendOutcome::Stored { count, receipt: Receipt::Reason(reason) },
                Err(error) => {
                    let named = error.topic().is_some() || self.topic.is_empty();
                    let error = if named { error } else { error.with_topic(&*self.topic) };
                    SendOutcome::Failed { count, error }
                }
            },
        );
        self.retry();
    }

    fn count(&self, outcome: &Outcome) {
        let count = u64::from(outcome.count);
        let latency = self.probes[outcome.qos as usize].ended(count);
        for counters in [&self.counters, &self.traffic.sends] {
            match &outcome.result {
                Ok(_) => {
                    counters.acknowledged(count, outcome.bytes);
                    if let Some(latency) = latency {
                        counters.latency(latency);
                    }
                }
                Err(_) => counters.failed(count),
            }
        }
    }

    pub(super) fn was_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }

    /// Reports that there may be room for what was refused.
    pub(super) fn retry(&self) {
        if self.refused.swap(false, Ordering::AcqRel) {
            self.events.room();
        }
    }

    /// The client has ended.
    pub(super) fn end(&self, error: Error) {
        self.closed.store(true, Ordering::Release);
        self.events.closed(error);
    }
}
