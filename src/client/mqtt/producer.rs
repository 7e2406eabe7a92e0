//! A producer: publishes, and tells how each publication ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use bytestring::ByteString;

use crate::client::events::{ProducerEvents, Receipt, SendOutcome};
use crate::client::mqtt::Shared;
use crate::client::mqtt::options::{OfflinePolicy, ProducerOptions};
use crate::client::mqtt::outbox::session::OutboxSession;
use crate::error::{Error, ErrorKind, Result};
use crate::mqtt::packet::Publish;
use crate::mqtt::producer::{Outcome, check_version, cost};
use crate::mqtt::topic::check_name;
use crate::mqtt::{Properties, QoS, Version};

/// One message to be published.
#[derive(Clone, Debug, Default)]
pub struct Outgoing<'a> {
    /// The message.
    pub payload: &'a [u8],
    /// Where to, if not to the producer's topic.
    pub topic: Option<&'a str>,
    /// Its QoS, if not the producer's.
    pub qos: Option<QoS>,
    /// To be retained, if not as the producer says.
    pub retain: Option<bool>,
    /// Properties of 5.0.
    pub properties: Properties,
}

/// A handle that publishes. Cheap to clone; all clones are the same producer.
#[derive(Clone, Debug)]
pub struct Producer(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    core: Arc<Core>,
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // What was published goes out all the same; nobody is told any more.
        self.shared.producers.lock().remove(&self.core.owner);
    }
}

/// What the client knows of a producer.
#[derive(Debug)]
pub(super) struct Core {
    owner: u64,
    topic: ByteString,
    options: ProducerOptions,
    pending: AtomicUsize,
    refused: AtomicBool,
    closed: AtomicBool,
    events: Arc<dyn ProducerEvents>,
}

impl Core {
    pub(super) fn pending(&self) -> usize {
        self.pending.load(Ordering::Acquire)
    }

    /// Publications of this producer have ended.
    pub(super) fn settle(&self, outcome: Outcome) {
        self.pending.fetch_sub(outcome.count as usize, Ordering::AcqRel);
        let count = outcome.count;
        self.events.sent(
            outcome.qos as usize,
            match outcome.result {
                Ok(reason) => SendOutcome::Stored { count, receipt: Receipt::Reason(reason) },
                Err(error) => {
                    let error = if error.topic().is_some() { error } else { error.with_topic(&*self.topic) };
                    SendOutcome::Failed { count, error }
                }
            },
        );
        self.retry();
    }

    pub(super) fn was_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }

    /// There may be room for what was refused.
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

impl Producer {
    pub(super) fn new(
        shared: Arc<Shared>,
        topic: &str,
        options: ProducerOptions,
        events: Arc<dyn ProducerEvents>,
    ) -> Self {
        let core = Arc::new(Core {
            owner: shared.next_owner.fetch_add(1, Ordering::Relaxed),
            topic: topic.into(),
            options,
            pending: AtomicUsize::new(0),
            refused: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            events,
        });
        shared.producers.lock().insert(core.owner, Arc::clone(&core));
        Self(Arc::new(Handle { core, shared }))
    }

    /// Hands over a message and gives the slot whose [`ProducerEvents::sent`] will tell its outcome: its QoS.
    /// With `park`, twice as many may wait.
    pub fn push(&self, message: &Outgoing<'_>, park: bool) -> Result<usize> {
        let mut slot = 0;
        self.push_many(&mut std::iter::once(message.clone()), park, &mut |taken| slot = taken)?;
        Ok(slot)
    }

    /// Pushes messages until the iterator ends or one is refused, telling `each` the slot of every one that was
    /// taken.
    pub fn push_many<'a>(
        &self,
        messages: &mut dyn Iterator<Item = Outgoing<'a>>,
        park: bool,
        each: &mut dyn FnMut(usize),
    ) -> Result<()> {
        let Handle { core, shared } = &*self.0;
        self.check_open()?;
        let now = Instant::now();
        let version = shared.version();
        let mut result = Ok(());
        let mut dropped = Vec::new();
        {
            let mut session = shared.session();
            for message in messages {
                result = core.publish(&message, version).and_then(|publish| {
                    let bytes = cost(&publish);
                    shared.budget.acquire(bytes, &core.events)?;
                    let limit = core.options.max_pending * if park { 2 } else { 1 };
                    let slot = publish.qos as usize;
                    if let Some(spool) = shared.spool.as_ref().filter(|_| publish.qos != QoS::AtMostOnce) {
                        core.spool(spool, shared, publish, limit)?;
                        each(slot);
                        return Ok(());
                    }
                    if core.pending() >= limit {
                        let makes_room = shared.options.offline == OfflinePolicy::DropOldest
                            && !session.is_attached()
                            && session.producer().drop_oldest();
                        if !makes_room {
                            shared.budget.release(bytes);
                            core.refused.store(true, Ordering::Release);
                            return Err(core.full(limit, session.is_attached()));
                        }
                        dropped.extend(std::iter::from_fn(|| session.poll_event()));
                    }
                    core.pending.fetch_add(1, Ordering::AcqRel);
                    session.producer().push(now, core.owner, publish);
                    each(slot);
                    Ok(())
                });
                if result.is_err() {
                    break;
                }
            }
        }
        if !dropped.is_empty() {
            // Not from here: whoever pushes may hold what is needed to be told.
            let shared = Arc::clone(shared);
            shared.runtime.clone().spawn(async move { shared.dispatch(&mut dropped) });
        }
        shared.notify();
        result.map_err(|error| if error.topic().is_some() { error } else { error.with_topic(&*core.topic) })
    }

    /// Number of slots: one for each QoS.
    pub fn slots(&self) -> usize {
        3
    }

    /// Publications without an outcome.
    pub fn pending(&self) -> usize {
        self.0.core.pending()
    }

    /// Where messages go that name no topic.
    pub fn topic(&self) -> &str {
        &self.0.core.topic
    }

    /// Waits until everything that was published has an outcome, at most the operation timeout.
    pub async fn close(&self) -> Result<()> {
        let Handle { core, shared } = &*self.0;
        if core.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let limit = shared.options.operation_timeout;
        tokio::time::timeout(limit, shared.settle(Some(core))).await.map_err(|_| {
            let text =
                format!("{} messages had no answer within {limit:?}; they are still sent", core.pending());
            Error::new(ErrorKind::Timeout, text).with_topic(&*core.topic)
        })
    }

    fn check_open(&self) -> Result<()> {
        self.0.shared.check_open()?;
        if self.0.core.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the producer is closed").with_topic(self.topic()));
        }
        Ok(())
    }
}

impl Core {
    fn publish(&self, message: &Outgoing<'_>, version: Version) -> Result<Publish> {
        let topic = match message.topic {
            None => self.topic.clone(),
            Some(topic) => {
                check_name(topic)?;
                topic.into()
            }
        };
        let publish = Publish {
            dup: false,
            qos: message.qos.unwrap_or(self.options.qos),
            retain: message.retain.unwrap_or(self.options.retain),
            topic,
            packet_id: None,
            properties: message.properties.clone(),
            payload: Bytes::copy_from_slice(message.payload),
        };
        check_version(&publish, version)?;
        Ok(publish)
    }

    /// Hands a publication to the outbox; its bytes have been charged.
    fn spool(&self, spool: &OutboxSession, shared: &Shared, publish: Publish, limit: usize) -> Result<()> {
        let bytes = cost(&publish);
        let taken = if self.pending() >= limit {
            let text =
                format!("{limit} messages wait for the disk: await some of them, or raise max_pending");
            Err(Error::new(ErrorKind::QueueFull, text))
        } else {
            self.pending.fetch_add(1, Ordering::AcqRel);
            spool.push(self.owner, publish).inspect_err(|_| {
                self.pending.fetch_sub(1, Ordering::AcqRel);
            })
        };
        taken.inspect_err(|_| {
            shared.budget.release(bytes);
            self.refused.store(true, Ordering::Release);
        })
    }

    fn full(&self, limit: usize, connected: bool) -> Error {
        let what = if connected {
            "await some of them, or raise max_pending"
        } else {
            "there is no connection: wait for it, raise max_pending, or choose offline=\"drop_oldest\""
        };
        Error::new(ErrorKind::QueueFull, format!("{limit} messages wait for the broker's answer: {what}"))
    }
}
