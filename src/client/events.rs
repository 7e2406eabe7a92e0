//! What producers and consumers tell whoever made them, the same for every protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;
use crate::mqtt::Reason;
use crate::pulsar::MessageId;
use crate::sync::Mutex;
use crate::tubemq::producer::Position;

/// What a broker says of messages that it has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// Pulsar: the entry; in a batch `batch_size` is set and the messages have the indexes 0, 1, …
    Id(MessageId),
    /// MQTT: the reason code of PUBACK, PUBREC or PUBCOMP; success with QoS 0.
    Reason(Reason),
    /// TubeMQ: where the message is.
    Position(Position),
}

/// Where the outcomes of sends go. Called on the engine's thread with no lock of the producer held; must
/// not block.
pub trait ProducerEvents: Send + Sync {
    /// The next `count` messages of `slot`, in the order they were pushed to it.
    fn sent(&self, slot: usize, outcome: SendOutcome);

    /// There is room again after a push was refused.
    fn room(&self);

    /// The producer ended for good; everything pending has been failed before.
    fn closed(&self, error: Error);
}

impl std::fmt::Debug for dyn ProducerEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProducerEvents")
    }
}

/// How messages ended.
#[derive(Clone, Debug)]
pub enum SendOutcome {
    /// The broker has them.
    Stored {
        /// How many.
        count: u32,
        /// What the broker said of them.
        receipt: Receipt,
    },
    /// They failed, or their fate is not known.
    Failed {
        /// How many.
        count: u32,
        /// Why.
        error: Error,
    },
}

/// What a consumer tells its owner. Called on the engine's thread; must not block.
pub trait ConsumerEvents: Send + Sync {
    /// There are messages, once after `handle::Consumer::arm`.
    fn readable(&self);

    /// The consumer ended for good.
    fn closed(&self, error: Error);
}

impl std::fmt::Debug for dyn ConsumerEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConsumerEvents")
    }
}

/// The one bell of a consumer, whatever it is made of.
#[derive(Debug)]
pub(super) struct Signal {
    armed: AtomicBool,
    ended: Mutex<Option<Error>>,
    events: Arc<dyn ConsumerEvents>,
}

impl Signal {
    pub(super) fn new(events: Arc<dyn ConsumerEvents>) -> Self {
        Self { armed: AtomicBool::new(false), ended: Mutex::default(), events }
    }

    /// Asks for one [`ConsumerEvents::readable`]. Gives false, and asks for nothing, if the end has come or
    /// `ready` says that there is something to take.
    pub(super) fn arm(&self, ready: impl FnOnce() -> bool) -> bool {
        self.armed.store(true, Ordering::Release);
        // Looked at after arming: what came in between has either rung or is seen here.
        if ready() || self.ended().is_some() {
            return !self.armed.swap(false, Ordering::AcqRel);
        }
        true
    }

    pub(super) fn ring(&self) {
        if self.armed.swap(false, Ordering::AcqRel) {
            self.events.readable();
        }
    }

    pub(super) fn end(&self, error: Error) {
        *self.ended.lock() = Some(error.clone());
        self.events.closed(error);
        self.ring();
    }

    pub(super) fn ended(&self) -> Option<Error> {
        self.ended.lock().clone()
    }
}
