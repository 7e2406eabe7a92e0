//! A producer: publishes messages and reports the outcome of each.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use crate::events::ProducerEvents;
use crate::mqtt::options::{OfflinePolicy, ProducerOptions};
use crate::mqtt::outbox::session::OutboxSession;
use crate::mqtt::publisher::Publisher;
use crate::mqtt::shared::Shared;
use crate::pushed::{Dispatch, Pushed};
use crate::traffic::SendCounts;
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result, because};
use forebay_mqtt::packet::Publish;
use forebay_mqtt::producer::check_version;
use forebay_mqtt::topic::check_name;
use forebay_mqtt::{Properties, QoS, Version};

/// A message to publish.
#[derive(Clone, Debug, Default)]
pub struct Outgoing<'a> {
    /// Payload.
    pub payload: &'a [u8],
    /// Topic, if not the producer's.
    pub topic: Option<&'a str>,
    /// QoS, if not the producer's.
    pub qos: Option<QoS>,
    /// Retain flag, if not the producer's.
    pub retain: Option<bool>,
    /// MQTT 5 properties.
    pub properties: Properties,
}

/// A handle that publishes. Cheap to clone; all clones are the same producer.
#[derive(Clone, Debug)]
pub struct Producer(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    publisher: Arc<Publisher>,
    shared: Arc<Shared>,
}

impl Dispatch for Handle {
    fn notify(&self) {
        self.shared.notify();
    }

    fn write(&self) {
        self.shared.write();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Publications on their way are still sent; their outcome is dropped.
        let _removed = self.shared.producers.lock().remove(&self.publisher.owner);
    }
}

impl Producer {
    pub(super) fn new(
        shared: Arc<Shared>,
        topic: &str,
        options: ProducerOptions,
        events: Arc<dyn ProducerEvents>,
    ) -> Self {
        let publisher = Arc::new(Publisher::new(
            shared.next_owner(),
            topic,
            options,
            events,
            Arc::clone(shared.budget.traffic()),
        ));
        shared.producers.lock().insert(publisher.owner, Arc::clone(&publisher));
        Self(Arc::new(Handle { publisher, shared }))
    }

    /// Pushes a message and returns its slot, which is its QoS: [`ProducerEvents::sent`] reports
    /// the outcome under that number. With `park`, a message beyond `max_pending` waits in the
    /// overflow queue, which holds as many.
    pub fn push(&self, message: &Outgoing<'_>, park: bool) -> Result<Pushed<'_>> {
        let mut slot = 0;
        self.take(&mut std::iter::once(message.clone()), park, &mut |taken| slot = taken)?;
        Ok(Pushed::new(slot, &*self.0))
    }

    /// Pushes messages until the iterator ends or one is refused. `each` is called with the slot of
    /// every message that was taken.
    pub fn push_many<'a>(
        &self,
        messages: &mut dyn Iterator<Item = Outgoing<'a>>,
        park: bool,
        each: &mut dyn FnMut(usize),
    ) -> Result<()> {
        let result = self.take(messages, park, each);
        self.0.notify();
        result
    }

    fn take<'a>(
        &self,
        messages: &mut dyn Iterator<Item = Outgoing<'a>>,
        park: bool,
        each: &mut dyn FnMut(usize),
    ) -> Result<()> {
        let Handle { publisher, shared } = &*self.0;
        self.check_open()?;
        let now = clock::now();
        let version = shared.version();
        let mut result = Ok(());
        let mut dropped = Vec::new();
        let mut topic = None;
        {
            let mut session = shared.session();
            for message in messages {
                topic = message.topic;
                result = packet(publisher, &message, version).and_then(|publish| {
                    let bytes = publish.weight();
                    shared.budget.acquire(bytes, &publisher.events)?;
                    let limit = publisher.options.max_pending * if park { 2 } else { 1 };
                    let slot = publish.qos as usize;
                    if let Some(outbox) = shared.outbox.as_ref().filter(|_| publish.qos != QoS::AtMostOnce) {
                        keep(publisher, outbox, shared, publish, limit)?;
                        each(slot);
                        return Ok(());
                    }
                    if publisher.pending() >= limit {
                        let makes_room = shared.options.offline == OfflinePolicy::DropOldest
                            && !session.is_attached()
                            && session.producer().drop_oldest();
                        if !makes_room {
                            shared.budget.release(bytes);
                            publisher.refuse();
                            return Err(full(limit, session.is_attached()));
                        }
                        dropped.extend(std::iter::from_fn(|| session.poll_event()));
                    }
                    publisher.add(publish.qos);
                    session.producer().push(now, publisher.owner, publish);
                    each(slot);
                    Ok(())
                });
                if result.is_err() {
                    break;
                }
            }
        }
        if !dropped.is_empty() {
            // On another task: the caller may hold the locks that delivering outcomes takes.
            let shared = Arc::clone(shared);
            shared.runtime.clone().spawn(async move { shared.dispatch(&mut dropped) });
        }
        result.map_err(|error| match topic.unwrap_or(&publisher.topic) {
            topic if error.topic().is_none() && !topic.is_empty() => error.with_topic(topic),
            _ => error,
        })
    }

    /// Number of slots: one for each QoS.
    pub fn slots(&self) -> usize {
        3
    }

    /// Counters of what was sent.
    pub fn counts(&self) -> SendCounts {
        self.0.publisher.counts()
    }

    /// Number of publications without an outcome.
    pub fn pending(&self) -> usize {
        self.0.publisher.pending()
    }

    /// Topic of messages that do not name one.
    pub fn topic(&self) -> &str {
        &self.0.publisher.topic
    }

    /// With `wait`, waits until everything published has an outcome, at most the operation timeout.
    pub async fn close(&self, wait: bool) -> Result<()> {
        let Handle { publisher, shared } = &*self.0;
        if publisher.closed.swap(true, Ordering::AcqRel) || !wait {
            return Ok(());
        }
        let limit = shared.options.operation_timeout;
        tokio::time::timeout(limit, shared.settle(Some(publisher))).await.map_err(|_| {
            let text = format!(
                "{} messages had no answer within {limit:?}; they are still sent",
                publisher.pending()
            );
            let text = because(text, shared.trouble.lock().as_ref());
            Error::new(ErrorKind::Timeout, text).with_topic(&*publisher.topic)
        })
    }

    /// Whether the session has a connection now.
    pub fn is_connected(&self) -> bool {
        self.check_open().is_ok() && self.0.shared.session().is_attached()
    }

    /// Longest time without an outcome for which a flush before [`Self::close`] waits.
    pub fn patience(&self) -> Duration {
        self.0.shared.options.operation_timeout
    }

    fn check_open(&self) -> Result<()> {
        self.0.shared.check_open()?;
        if self.0.publisher.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the producer is closed").with_topic(self.topic()));
        }
        Ok(())
    }
}

/// The packet of a message.
fn packet(publisher: &Publisher, message: &Outgoing<'_>, version: Version) -> Result<Publish> {
    let topic = match message.topic {
        None => {
            if publisher.topic.is_empty() {
                check_name("")?;
            }
            publisher.topic.clone()
        }
        Some(topic) => {
            check_name(topic)?;
            topic.into()
        }
    };
    let publish = Publish {
        dup: false,
        qos: message.qos.unwrap_or(publisher.options.qos),
        retain: message.retain.unwrap_or(publisher.options.retain),
        topic,
        packet_id: None,
        properties: message.properties.clone(),
        payload: Bytes::copy_from_slice(message.payload),
    };
    check_version(&publish, version)?;
    Ok(publish)
}

/// Hands a publication to the outbox. Its bytes have been charged.
fn keep(
    publisher: &Publisher,
    outbox: &OutboxSession,
    shared: &Shared,
    publish: Publish,
    limit: usize,
) -> Result<()> {
    let bytes = publish.weight();
    let taken = if publisher.pending() >= limit {
        let text = format!("{limit} messages wait for the disk: await some of them, or raise max_pending");
        Err(Error::new(ErrorKind::QueueFull, text))
    } else {
        // Its outcome cannot come before the session is released, which the caller has locked.
        let qos = publish.qos;
        outbox.push(publisher.owner, publish).inspect(|()| publisher.add(qos))
    };
    taken.inspect_err(|_| {
        shared.budget.release(bytes);
        publisher.refuse();
    })
}

fn full(limit: usize, connected: bool) -> Error {
    let what = if connected {
        "await some of them, or raise max_pending"
    } else {
        "there is no connection: wait for it, raise max_pending, or choose offline=\"drop_oldest\""
    };
    Error::new(ErrorKind::QueueFull, format!("{limit} messages wait for the broker's answer: {what}"))
}
