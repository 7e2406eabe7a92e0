//! Received messages, and the client side of a consumer: the queue of its messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::client::events::{ConsumerEvents, Signal};
use crate::client::mqtt::options::ConsumerOptions;
use crate::clock::wall_ms;
use crate::error::Error;
use crate::mqtt::packet::Publish;
use crate::sync::Mutex;

/// A received message. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Message(Arc<Received>);

#[derive(Debug)]
struct Received {
    publish: Publish,
    /// Names it to the session; 0 with QoS 0.
    token: u64,
    /// Consumers that have not acknowledged it.
    unacknowledged: AtomicUsize,
    received_ms: u64,
}

impl Message {
    pub(super) fn new(publish: Publish, token: u64, consumers: usize) -> Self {
        Self(Arc::new(Received {
            publish,
            token,
            unacknowledged: AtomicUsize::new(consumers),
            received_ms: wall_ms(),
        }))
    }

    /// The PUBLISH packet as received.
    pub fn publish(&self) -> &Publish {
        &self.0.publish
    }

    /// Time of arrival in milliseconds since 1970.
    pub fn received_ms(&self) -> u64 {
        self.0.received_ms
    }

    pub(super) fn cost(&self) -> usize {
        self.0.publish.payload.len() + self.0.publish.topic.len()
    }

    /// One more consumer is done with it. Returns the token to acknowledge if that was the last one.
    pub(super) fn done(&self) -> Option<u64> {
        let less = |left: usize| left.checked_sub(1);
        let last = self.0.unacknowledged.fetch_update(Ordering::AcqRel, Ordering::Acquire, less) == Ok(1);
        last.then_some(self.0.token)
    }

    /// Whether there is something to acknowledge: not with QoS 0.
    pub(super) fn needs_ack(&self) -> bool {
        self.0.token != 0
    }
}

/// Client side of a consumer: its filters and the queue of its messages.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) options: ConsumerOptions,
    queue: Mutex<VecDeque<Message>>,
    pub(super) signal: Signal,
    pub(super) closed: AtomicBool,
    /// Bytes that have not been taken, over all consumers of the client.
    unread: Arc<AtomicUsize>,
}

impl Subscription {
    pub(super) fn new(
        options: ConsumerOptions,
        events: Arc<dyn ConsumerEvents>,
        unread: Arc<AtomicUsize>,
    ) -> Self {
        Self {
            options,
            queue: Mutex::default(),
            signal: Signal::new(events),
            closed: AtomicBool::new(false),
            unread,
        }
    }

    pub(super) fn matches(&self, topic: &str) -> bool {
        self.options.filters.iter().any(|(filter, _)| filter.matches(topic))
    }

    pub(super) fn push(&self, message: Message) {
        self.unread.fetch_add(message.cost(), Ordering::AcqRel);
        self.queue.lock().push_back(message);
        self.signal.ring();
    }

    /// Removes up to `max` messages, calling `each` with every one of them. Returns their number.
    pub(super) fn take(&self, max: usize, each: impl FnMut(Message)) -> usize {
        let mut queue = self.queue.lock();
        let taken = max.min(queue.len());
        queue.drain(..taken).for_each(each);
        taken
    }

    /// Number of messages in the queue.
    pub(super) fn available(&self) -> usize {
        self.queue.lock().len()
    }

    /// Removes everything.
    pub(super) fn clear(&self) -> VecDeque<Message> {
        std::mem::take(&mut *self.queue.lock())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn end(&self, error: Error) {
        self.signal.end(error);
    }
}
