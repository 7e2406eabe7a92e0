//! A consumer: the messages of one or several filters.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::client::events::{ConsumerEvents, Signal};
use crate::client::mqtt::Shared;
use crate::client::mqtt::options::ConsumerOptions;
use crate::clock::wall_ms;
use crate::error::{Error, ErrorKind, Result};
use crate::mqtt::packet::Publish;
use crate::sync::Mutex;

/// A message that was received. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Message(Arc<Received>);

#[derive(Debug)]
struct Received {
    publish: Publish,
    token: u64,
    /// Consumers that are not done with it.
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

    /// As it came.
    pub fn publish(&self) -> &Publish {
        &self.0.publish
    }

    /// When it came, in milliseconds since 1970.
    pub fn received_ms(&self) -> u64 {
        self.0.received_ms
    }

    fn cost(&self) -> usize {
        self.0.publish.payload.len() + self.0.publish.topic.len()
    }
}

/// A handle that receives. Cheap to clone; all clones are the same consumer.
#[derive(Clone, Debug)]
pub struct Consumer(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    id: u32,
    title: String,
    core: Arc<Core>,
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.leave();
        self.shared.session().unsubscribe(self.id);
        self.shared.notify();
    }
}

impl Handle {
    /// Out of the routes; what nobody took is given back.
    fn leave(&self) {
        self.core.closed.store(true, Ordering::Release);
        self.shared.routes.lock().remove(self.id);
        let left = std::mem::take(&mut *self.core.queue.lock());
        self.shared.taken(left.iter().map(Message::cost).sum());
        // Without a consumer nobody else would ever acknowledge them.
        let done = left.iter().filter(|message| message.0.is_last()).map(|message| message.0.token);
        self.shared.acknowledge(done.collect::<Vec<_>>());
    }
}

impl Received {
    /// Whether the one who asks was the last consumer that was not done with it.
    fn is_last(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.unacknowledged.fetch_update(Ordering::AcqRel, Ordering::Acquire, less) == Ok(1)
    }
}

/// What the client knows of a consumer.
#[derive(Debug)]
pub(super) struct Core {
    options: ConsumerOptions,
    queue: Mutex<VecDeque<Message>>,
    signal: Signal,
    closed: AtomicBool,
    shared: std::sync::Weak<Shared>,
}

impl Core {
    pub(super) fn matches(&self, topic: &str) -> bool {
        self.options.filters.iter().any(|(filter, _)| filter.matches(topic))
    }

    pub(super) fn push(&self, message: Message) {
        if let Some(shared) = self.shared.upgrade() {
            shared.unread.fetch_add(message.cost(), Ordering::AcqRel);
        }
        self.queue.lock().push_back(message);
        self.signal.ring();
    }

    pub(super) fn end(&self, error: Error) {
        self.signal.end(error);
    }
}

impl Consumer {
    pub(super) async fn open(
        shared: Arc<Shared>,
        options: ConsumerOptions,
        events: Arc<dyn ConsumerEvents>,
    ) -> Result<Self> {
        if options.filters.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, "a consumer needs at least one topic filter"));
        }
        let filters = options.filters.clone();
        let title = filters.iter().map(|(filter, _)| filter.as_str()).collect::<Vec<_>>().join(",");
        let core = Arc::new(Core {
            options,
            queue: Mutex::default(),
            signal: Signal::new(events),
            closed: AtomicBool::new(false),
            shared: Arc::downgrade(&shared),
        });
        let id = shared.next_subscription.fetch_add(1, Ordering::Relaxed);
        // In the routes before the server knows: retained messages may come ahead of SUBACK (3.8.4).
        shared.routes.lock().insert(id, Arc::clone(&core));
        shared.claim(&core);
        // From here on dropping it undoes what was done.
        let consumer = Self(Arc::new(Handle { id, title, core, shared: Arc::clone(&shared) }));
        let reasons = shared.ask(id, |session| session.subscribe(id, filters)).await?;
        let filters = &consumer.0.core.options.filters;
        if let Some((reason, (filter, _))) = reasons.iter().zip(filters).find(|(r, _)| r.is_error()) {
            return Err(reason.error("SUBSCRIBE").with_topic(filter.as_str()));
        }
        Ok(consumer)
    }

    /// Moves up to `max` messages to `out` and gives their number; 0 when there are none now.
    pub fn take<M: From<Message>>(&self, max: usize, out: &mut Vec<M>) -> Result<usize> {
        let core = &self.0.core;
        if core.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the consumer is closed").with_topic(self.topic()));
        }
        let mut bytes = 0;
        let mut done = Vec::new();
        let taken = {
            let mut queue = core.queue.lock();
            let taken = max.min(queue.len());
            for message in queue.drain(..taken) {
                bytes += message.cost();
                if core.options.auto_ack && message.0.token != 0 && message.0.is_last() {
                    done.push(message.0.token);
                }
                out.push(message.into());
            }
            taken
        };
        if taken == 0 {
            return core.signal.ended().map_or(Ok(0), Err);
        }
        self.0.shared.taken(bytes);
        if !done.is_empty() {
            self.0.shared.acknowledge(done);
        }
        Ok(taken)
    }

    /// Messages that [`Self::take`] would give now.
    pub fn available(&self) -> usize {
        self.0.core.queue.lock().len()
    }

    /// Asks for one [`ConsumerEvents::readable`]. Gives false, and asks for nothing, if there is something to
    /// take already (a message or the end).
    pub fn arm(&self) -> bool {
        let core = &self.0.core;
        core.signal.arm(|| self.available() > 0 || core.closed.load(Ordering::Acquire))
    }

    /// Acknowledges messages: PUBACK or PUBREC, which leave in the order the messages came in. Nothing with
    /// QoS 0.
    pub fn ack<'a>(&self, messages: impl IntoIterator<Item = &'a Message>) -> Result<()> {
        self.check_open()?;
        if self.0.core.options.auto_ack {
            return Ok(());
        }
        let messages = messages.into_iter();
        let done: Vec<u64> =
            messages.filter(|m| m.0.token != 0 && m.0.is_last()).map(|m| m.0.token).collect();
        if !done.is_empty() {
            self.0.shared.acknowledge(done);
        }
        Ok(())
    }

    /// The filters, as they were asked for, joined by commas.
    pub fn topic(&self) -> &str {
        &self.0.title
    }

    /// Group of the shared subscription, or nothing.
    pub fn subscription(&self) -> &str {
        self.0.core.options.filters[0].0.group().unwrap_or_default()
    }

    /// Ends the subscription at the server: UNSUBSCRIBE.
    pub async fn unsubscribe(&self) -> Result<()> {
        self.check_open()?;
        self.0.leave();
        let id = self.0.id;
        let result = self.0.shared.ask(id, |session| session.unsubscribe(id)).await;
        self.0.core.signal.end(Error::new(ErrorKind::Closed, "the consumer is closed"));
        result.map(drop)
    }

    /// Ends the consumer. Its subscription ends with it, unless the session is kept: then the server goes on
    /// gathering its messages for the next connection of this client id.
    pub async fn close(&self) -> Result<()> {
        if self.0.core.closed.load(Ordering::Acquire) || self.0.shared.check_open().is_err() {
            return Ok(());
        }
        if self.0.shared.options.keep_session {
            self.0.keep();
            return Ok(());
        }
        if self.0.shared.session().is_attached() {
            return self.unsubscribe().await;
        }
        // The server is told when there is a connection again.
        self.0.leave();
        self.0.shared.session().unsubscribe(self.0.id);
        self.0.core.signal.end(Error::new(ErrorKind::Closed, "the consumer is closed"));
        Ok(())
    }

    fn check_open(&self) -> Result<()> {
        self.0.shared.check_open()?;
        if self.0.core.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the consumer is closed").with_topic(self.topic()));
        }
        Ok(())
    }
}

impl Handle {
    /// Leaves the subscription to the session. What was not acknowledged stays the server's.
    fn keep(&self) {
        self.core.closed.store(true, Ordering::Release);
        self.shared.routes.lock().remove(self.id);
        let left = std::mem::take(&mut *self.core.queue.lock());
        self.shared.taken(left.iter().map(Message::cost).sum());
        self.shared.session().forget(self.id);
        self.core.signal.end(Error::new(ErrorKind::Closed, "the consumer is closed"));
    }
}
