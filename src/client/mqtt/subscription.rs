//! Received messages, and the client side of a consumer: the queue of its messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::client::events::{ConsumerEvents, Signal};
use crate::client::mqtt::options::ConsumerOptions;
use crate::clock::wall_ms;
use crate::error::{Error, Result};
use crate::mqtt::Reason;
use crate::mqtt::packet::Publish;
use crate::mqtt::topic::Filter;
use crate::sync::Mutex;

/// A received message. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Message(Arc<Received>);

#[derive(Debug)]
struct Received {
    publish: Publish,
    /// Names it to the session; 0 with QoS 0.
    token: u64,
    /// Consumers that have neither acknowledged it nor given it back.
    unacknowledged: AtomicUsize,
    /// Whether a consumer has acknowledged it.
    acknowledged: AtomicBool,
    received_ms: u64,
}

impl Message {
    pub(super) fn new(publish: Publish, token: u64, consumers: usize) -> Self {
        Self(Arc::new(Received {
            publish,
            token,
            unacknowledged: AtomicUsize::new(consumers),
            acknowledged: AtomicBool::new(false),
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
        self.0.acknowledged.store(true, Ordering::Release);
        self.less().then_some(self.0.token)
    }

    /// A consumer that closes has not handed it out. The last one either returns the token to acknowledge, because
    /// another consumer has, or the message, which is then of no consumer.
    pub(super) fn give_back(self) -> Option<Result<u64, (Publish, u64)>> {
        if !self.less() {
            return None;
        }
        if self.0.acknowledged.load(Ordering::Acquire) {
            return Some(Ok(self.0.token));
        }
        Some(Err((self.0.publish.clone(), self.0.token)))
    }

    fn less(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.0.unacknowledged.fetch_update(Ordering::AcqRel, Ordering::Acquire, less) == Ok(1)
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
        self.filter_of(topic).is_some()
    }

    /// The first filter that matches `topic`.
    pub(super) fn filter_of(&self, topic: &str) -> Option<&Filter> {
        self.options.filters.iter().map(|(filter, _)| filter).find(|filter| filter.matches(topic))
    }

    /// Whether it takes over a message of `topic` that another consumer has left: one of a shared subscription belongs
    /// to that subscription.
    pub(super) fn claims(&self, topic: &str, group: Option<&str>) -> bool {
        let of_group = |filter: &Filter| group.is_none() || filter.group() == group;
        self.options.filters.iter().any(|(filter, _)| of_group(filter) && filter.matches(topic))
    }

    /// Takes back messages that were taken and not handed out, in their order.
    pub(super) fn put_back(&self, messages: Vec<Message>) {
        self.unread.fetch_add(messages.iter().map(Message::cost).sum(), Ordering::AcqRel);
        let mut queue = self.queue.lock();
        for message in messages.into_iter().rev() {
            queue.push_front(message);
        }
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

    /// The error of SUBACK, if a filter was refused, and whether another one was granted.
    pub(super) fn refusal(&self, answer: &Result<Vec<Reason>>) -> Option<(Error, bool)> {
        match answer {
            Err(error) => Some((error.clone(), false)),
            Ok(reasons) => {
                let mut refused =
                    reasons.iter().zip(&self.options.filters).filter(|(reason, _)| reason.is_error());
                let (reason, (filter, _)) = refused.next()?;
                let granted = reasons.iter().any(|reason| !reason.is_error());
                Some((reason.error("SUBSCRIBE").with_topic(filter.as_str()), granted))
            }
        }
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
