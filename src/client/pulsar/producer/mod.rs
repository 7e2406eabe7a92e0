//! A producer over the partitions of a topic.
//!
//! Each partition is a `PartitionProducer` (in `part`): the sans-IO machine behind one short lock
//! that the submitting thread and the driver share, and a supervisor task that opens it again
//! whenever its connection ends.
//!
//! ```text
//! Producer ── push ──► PartitionProducer.machine ──► driver's turn ──► socket
//!                            ▲                           │ receipt
//!      supervisor: lookup, connect, PRODUCER             └──► ProducerEvents::sent
//! ```
//!
//! With `lazy_start`, the supervisor of a partition starts with its first message (`lazy`); only
//! the first one that is used is opened with the producer, so that wrong names and missing
//! permissions are noticed.
//!
//! The broker is asked from time to time whether the topic has got more partitions (`growth`). Keys
//! are spread over them as soon as all of them are open.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::events::ProducerEvents;
use crate::pulsar::options::{AccessMode, ProducerOptions};
use crate::pulsar::schema;
use crate::pulsar::shared::Shared;
use crate::pushed::{Dispatch as _, Pushed};
use crate::registry;
use crate::together::together;
use crate::traffic::SendCounts;
use forebay_base::clock::{self, wall_ms};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::random;
use forebay_base::sync::{Mutex, MutexGuard};
use forebay_pulsar::Outgoing;
use forebay_pulsar::producer::Producer as Machine;
use forebay_pulsar::schema::{Codec, SchemaInfo};
use forebay_pulsar::topic::{Router, TopicName};

mod growth;
mod inner;
mod lazy;
mod partition;
mod partitions;
mod schemas;
mod topic_schema;

use growth::{Opening, Place};
use inner::Inner;
use lazy::Starter;
use partition::PartitionProducer;
use partitions::Parts;
use schemas::Registrar;
use topic_schema::TopicSchema;

/// A handle that sends to a topic. Cheap to clone; all clones are the same producer.
#[derive(Clone, Debug)]
pub struct Producer(Arc<Inner>);

impl registry::Shared for Producer {
    type Inner = Inner;

    fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    fn from_inner(inner: Arc<Inner>) -> Self {
        Self(inner)
    }
}

impl Producer {
    pub(super) async fn open(
        shared: Arc<Shared>,
        topic: TopicName,
        mut options: ProducerOptions,
        events: Arc<dyn ProducerEvents>,
    ) -> Result<Self> {
        if let Some(schema) = &mut options.schema {
            schema.version = Arc::new(Mutex::leaf(Bytes::new()));
        }
        if options.lazy_start && options.access_mode != AccessMode::Shared {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "lazy_start needs access_mode \"shared\": with any other mode the producer must have all partitions",
            ));
        }
        let name = topic.to_string();
        schema::of_topic(&shared, &name, &mut options.schema).await?;
        let count = if topic.partition().is_some() {
            0
        } else {
            shared.lookup_of(&name).partitions(&name, true).await?
        };
        let places = if count == 0 {
            vec![Place {
                slot: 0,
                topic: name.clone(),
                partition: topic.partition().map_or(-1, |p| p as i32),
            }]
        } else {
            growth::places(&topic, 0..count)
        };
        // Like the Java client, a message without a key stays with one partition for ten batching
        // delays.
        let stay = if options.batching { options.batching_delay * 10 } else { Duration::ZERO };
        let router = Router::new(count, options.hashing, options.routing, stay, random::bits());
        let registrar = Registrar::new(Arc::clone(&shared));
        let lazy =
            (options.lazy_start && count > 1).then(|| Starter::new(registrar.clone(), options.clone()));
        let opening = match &lazy {
            Some(starter) => Opening::begin_lazily(starter, places, &events, Some(router.current() as usize)),
            None => Opening::begin(&registrar, places, &options, &events, false),
        };
        let router = Mutex::leaf(router);
        // From here on dropping the producer stops the supervisors, also those that have not opened
        // yet.
        let patience = options.send_timeout.is_none().then_some(shared.options.operation_timeout);
        let (parts, opened) = opening.into_parts();
        let producer = Self(Arc::new(Inner {
            codec: options.schema.as_ref().map(|schema| Arc::clone(&schema.codec)),
            topic_schema: TopicSchema::new(Arc::clone(&shared)),
            topic: name,
            parts: Parts::new(parts),
            is_partitioned: count > 0,
            lazy,
            registrar,
            router,
            growth: Mutex::default(),
            patience,
            name: OnceLock::new(),
            closed: AtomicBool::new(false),
        }));
        growth::all_open(opened).await?;
        if count > 0 && !options.partitions_update_interval.is_zero() {
            let task = growth::start(&producer.0, topic, options, events);
            *producer.0.growth.lock() = Some(task);
        }
        Ok(producer)
    }

    /// Pushes a message and returns its slot: [`ProducerEvents::sent`] reports the outcome under
    /// that number. With `park`, a message beyond the window waits in the overflow queue, which
    /// holds as many as the window. `partition` is used instead of the one that the routing would
    /// choose.
    pub fn push(&self, message: &Outgoing<'_>, partition: Option<u32>, park: bool) -> Result<Pushed<'_>> {
        self.check_open()?;
        let slot = self.slot(message, partition, clock::now)?;
        let part = self.0.parts.get(slot);
        self.push_to(part, &mut part.machine(), (clock::now(), wall_ms()), message, park)?;
        self.start(part);
        Ok(Pushed::new(slot, &**part))
    }

    fn push_to(
        &self,
        part: &Arc<PartitionProducer>,
        machine: &mut Machine,
        (now, wall): (Instant, u64),
        message: &Outgoing<'_>,
        park: bool,
    ) -> Result<()> {
        part.push(machine, now, wall, message, park)?;
        if message.schema.is_some() {
            while let Some(info) = machine.poll_schema() {
                self.0.registrar.start(part, info);
            }
        }
        Ok(())
    }

    /// Opens `part` if messages open it.
    fn start(&self, part: &Arc<PartitionProducer>) {
        if let Some(starter) = &self.0.lazy {
            starter.start(part, None);
        }
    }

    /// Has the messages sent that were pushed to `part`.
    fn pushed(&self, part: &Arc<PartitionProducer>) {
        self.start(part);
        part.notify();
    }

    /// Pushes messages, with their partitions as in [`Self::push`], until the iterator ends or one
    /// is refused. `each` is called with the slot of every message that was taken; the refused
    /// message is the one after those.
    pub fn push_many<'a>(
        &self,
        messages: &mut dyn Iterator<Item = (Outgoing<'a>, Option<u32>)>,
        each: &mut dyn FnMut(usize),
    ) -> Result<()> {
        self.check_open()?;
        let (now, wall) = (clock::now(), wall_ms());
        // One lock for a run of neighbours, so that they get into one batch before the driver
        // looks.
        let mut held: Option<(usize, MutexGuard<'_, Machine>)> = None;
        let mut result = Ok(());
        for (message, partition) in messages {
            let slot = match self.slot(&message, partition, || now) {
                Ok(slot) => slot,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            };
            let part = self.0.parts.get(slot);
            if held.as_ref().is_none_or(|(current, _)| *current != slot) {
                if let Some((last, machine)) = held.take() {
                    drop(machine);
                    self.pushed(self.0.parts.get(last));
                }
                held = Some((slot, part.machine()));
            }
            let (_, machine) = held.as_mut().expect("just set");
            if let Err(error) = self.push_to(part, machine, (now, wall), &message, false) {
                result = Err(error);
                break;
            }
            each(slot);
        }
        if let Some((last, machine)) = held {
            drop(machine);
            self.pushed(self.0.parts.get(last));
        }
        result
    }

    /// Number of partitions now; 0 for a topic without partitions, and for one partition as a topic
    /// of its own.
    pub fn partitions(&self) -> usize {
        if self.0.is_partitioned { self.0.parts.len() } else { 0 }
    }

    /// Number of partitions whose producers are open at the broker, or are being opened.
    pub fn started_partitions(&self) -> usize {
        self.0.parts.iter().filter(|part| part.has_started()).count()
    }

    /// The version of a schema at the broker, which stores it if it is new: for messages with a
    /// schema of their own.
    pub(super) async fn register_schema(&self, info: &SchemaInfo) -> Result<Bytes> {
        // The partitions of a topic have one list of schemas.
        let part = Arc::clone(self.0.parts.get(0));
        part.register_schema(info).await
    }

    /// Whether the topic takes payloads without a schema because it has none.
    pub async fn check_has_no_schema(&self) -> Result<()> {
        self.0.topic_schema.check_none(&self.0.topic).await
    }

    /// The bindings' own encoder of values; `None` if payloads are bytes.
    pub fn codec(&self) -> Option<&Arc<dyn Codec>> {
        self.0.codec.as_ref()
    }

    /// Number of slots: one per partition, at least one.
    pub fn slots(&self) -> usize {
        self.0.parts.len()
    }

    /// Closes the open batches now instead of when they are due.
    pub fn flush(&self) {
        for part in self.0.parts.iter() {
            part.machine().flush();
            part.notify();
        }
    }

    /// With `wait`, waits for every pending message, each at most until its send timeout; without a
    /// send timeout as long as one has an outcome within each operation timeout. Then closes the
    /// producer at the broker, and fails what is left.
    pub async fn close(&self, wait: bool) -> Result<()> {
        if self.0.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.0.stop_growth();
        // A growth under way has added its partitions by now, or sees that the producer is closed.
        drop(self.0.router.lock());
        self.flush();
        let parts: Vec<_> = self.0.parts.iter().map(Arc::clone).collect();
        let mut result = Ok(());
        if wait {
            // Side by side, so that one that has to be given up costs the others no time.
            let patience = self.0.patience;
            let settling =
                parts.iter().map(Arc::clone).map(|part| async move { part.settle(patience).await });
            result = together(settling).await.into_iter().collect();
        }
        let closing = parts.into_iter().map(|part| async move {
            part.stop();
            part.close().await;
            part.fail(Error::new(ErrorKind::Closed, "the producer was closed"));
            Ok(())
        });
        together(closing).await;
        result
    }

    /// Longest time without an outcome for which [`Self::close`] waits: `None` if the send timeout
    /// limits it.
    pub fn patience(&self) -> Option<Duration> {
        self.0.patience
    }

    /// Counters of what was sent, over all partitions.
    pub fn counts(&self) -> SendCounts {
        self.0.parts.iter().fold(SendCounts::default(), |sum, part| sum.plus(&part.counts()))
    }

    /// Whether brokers serve all its partitions now, without those that it opens when they are
    /// needed.
    pub fn is_connected(&self) -> bool {
        let mut started = self.0.parts.iter().filter(|part| part.has_started());
        !self.0.closed.load(Ordering::Acquire) && started.all(|part| part.is_connected())
    }

    /// Number of messages without a receipt.
    pub fn pending(&self) -> usize {
        self.0.parts.iter().map(|part| part.machine().pending_messages()).sum()
    }

    /// Name of the producer at the broker, of the partition that was the first to be open when it
    /// was asked for.
    pub fn name(&self) -> String {
        let named = || self.0.parts.iter().find_map(|part| part.name());
        if self.0.name.get().is_none()
            && let Some(name) = named()
        {
            let _ = self.0.name.set(name);
        }
        self.0.name.get().cloned().unwrap_or_default()
    }

    /// Full name of the topic.
    pub fn topic(&self) -> &str {
        &self.0.topic
    }

    /// Highest sequence id that has a receipt; before the first the broker's last or the initial
    /// one, -1 for none.
    pub fn last_sequence_id(&self) -> i64 {
        self.0.parts.iter().map(|part| part.machine().last_sequence_id()).max().unwrap_or(-1)
    }

    /// The slot of a message: `partition`, or the one that the routing chooses.
    fn slot(
        &self,
        message: &Outgoing<'_>,
        partition: Option<u32>,
        now: impl FnOnce() -> Instant,
    ) -> Result<usize> {
        match partition {
            None if self.0.parts.is_single() => Ok(0),
            None => Ok(self.0.router.lock().pick(message.key, message.sequence_id, now()) as usize),
            Some(partition) if (partition as usize) < self.0.parts.len() => Ok(partition as usize),
            Some(partition) => {
                let last = self.0.parts.len() - 1;
                let text = format!("there is no partition {partition}: the last one is {last}");
                Err(Error::new(ErrorKind::InvalidArgument, text).with_topic(self.0.topic.as_str()))
            }
        }
    }

    fn check_open(&self) -> Result<()> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(
                Error::new(ErrorKind::Closed, "the producer is closed").with_topic(self.0.topic.as_str())
            );
        }
        Ok(())
    }
}
