//! Opening the partitions of a producer: at first, and those that its topic gets later.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::inner::Inner;
use super::lazy::Starter;
use super::partition::{PartitionProducer, Supervisor};
use super::schemas::Registrar;
use crate::events::ProducerEvents;
use crate::logger;
use crate::pulsar::options::ProducerOptions;
use crate::pulsar::reconnect::supervise;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_pulsar::topic::TopicName;
use tracing::warn;

/// A partition with its slot.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) slot: usize,
    pub(super) topic: String,
    pub(super) partition: i32,
}

/// The places of partitions of a topic.
pub(super) fn places(topic: &TopicName, partitions: Range<u32>) -> Vec<Place> {
    let place =
        |p: u32| Place { slot: p as usize, topic: topic.with_partition(p).to_string(), partition: p as i32 };
    partitions.map(place).collect()
}

type Opened = Vec<oneshot::Receiver<Result<()>>>;

/// Partitions that are being opened, and closed again if this is dropped.
pub(super) struct Opening {
    parts: Vec<Arc<PartitionProducer>>,
    opened: Opened,
}

impl Opening {
    /// As [`Self::begin`], but opens only the partition in `first`; the others wait for
    /// [`Starter::start`].
    pub(super) fn begin_lazily(
        starter: &Starter,
        places: Vec<Place>,
        events: &Arc<dyn ProducerEvents>,
        first: Option<usize>,
    ) -> Self {
        let mut opened = Vec::new();
        let part = |Place { slot, topic, partition }| {
            let (shared, options) = (starter.shared(), &starter.options);
            let part =
                Arc::new(PartitionProducer::new(shared, topic, partition, slot, options, Arc::clone(events)));
            if first == Some(slot) {
                let (ready, first_opened) = oneshot::channel();
                starter.start(&part, Some(ready));
                opened.push(first_opened);
            }
            part
        };
        Self { parts: places.into_iter().map(part).collect(), opened }
    }

    pub(super) fn begin(
        registrar: &Registrar,
        places: Vec<Place>,
        options: &ProducerOptions,
        events: &Arc<dyn ProducerEvents>,
        joins: bool,
    ) -> Self {
        let shared = registrar.shared();
        let (parts, opened) = places
            .into_iter()
            .map(|Place { slot, topic, partition }| {
                let events = Arc::clone(events);
                let part = Arc::new(PartitionProducer::new(shared, topic, partition, slot, options, events));
                let (ready, opened) = oneshot::channel();
                let supervisor =
                    Supervisor::new(registrar.clone(), Arc::clone(&part), options.clone(), joins);
                part.start(|| tokio::spawn(supervise(supervisor, Some(ready))));
                (part, opened)
            })
            .unzip();
        Self { parts, opened }
    }

    /// The partitions, which are the caller's to close.
    pub(super) fn into_parts(mut self) -> (Vec<Arc<PartitionProducer>>, Opened) {
        (std::mem::take(&mut self.parts), std::mem::take(&mut self.opened))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        for part in &self.parts {
            part.stop();
            part.close_quietly();
        }
    }
}

/// Waits until all partitions are open, or one has failed.
pub(super) async fn all_open(opened: Opened) -> Result<()> {
    for opened in opened {
        opened.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Closed, "the producer was closed")))?;
    }
    Ok(())
}

/// Starts the task that asks for new partitions.
pub(super) fn start(
    producer: &Arc<Inner>,
    topic: TopicName,
    options: ProducerOptions,
    events: Arc<dyn ProducerEvents>,
) -> AbortHandle {
    let registrar = producer.registrar.clone();
    tokio::spawn(work(registrar, Arc::downgrade(producer), topic, options, events)).abort_handle()
}

async fn work(
    registrar: Registrar,
    producer: Weak<Inner>,
    topic: TopicName,
    options: ProducerOptions,
    events: Arc<dyn ProducerEvents>,
) {
    let name = topic.to_string();
    let mut warned = false;
    loop {
        tokio::time::sleep(options.partitions_update_interval).await;
        let Some(known) = producer.upgrade().map(|producer| producer.parts.len() as u32) else { return };
        // What goes wrong here goes wrong with the partitions too, which say so.
        let Ok(count) = registrar.shared().lookup_of(&name).partitions(&name, false).await else { continue };
        if count <= known {
            continue;
        }
        let starter = producer.upgrade().and_then(|producer| producer.lazy.clone());
        let places = places(&topic, known..count);
        let mut opening = match &starter {
            Some(starter) => Opening::begin_lazily(starter, places, &events, None),
            None => Opening::begin(&registrar, places, &options, &events, true),
        };
        if let Err(error) = all_open(std::mem::take(&mut opening.opened)).await {
            if !std::mem::replace(&mut warned, true) {
                warn!(
                    target: logger::PULSAR_PRODUCER,
                    "{name} has {count} partitions now, and the producer goes on with {known} until all can \
                     be opened: {error}",
                );
            }
            continue;
        }
        warned = false;
        let Some(producer) = producer.upgrade() else { return };
        let mut router = producer.router.lock();
        if producer.closed.load(Ordering::Acquire) {
            drop(router);
            return;
        }
        let (parts, _) = opening.into_parts();
        producer.parts.add(parts);
        // From here on messages are spread over them.
        router.grow(count);
        drop(router);
    }
}
