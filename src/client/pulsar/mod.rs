//! The Pulsar client.
//!
//! * `connection`: a socket's protocol with its routes, and the pool of them
//! * `lookup`: which broker serves a topic
//! * [`producer`], [`consumer`]: a handle over the partitions of a topic, each with a supervisor that
//!   opens it again when its connection ends

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::client::budget::Budget;
use crate::client::events::{ConsumerEvents, ProducerEvents};
use crate::error::{Error, ErrorKind, Result};
use crate::net::url::{Protocol, ServiceUrl};
use crate::pulsar::topic::TopicName;
use crate::sync::{Mutex, MutexGuard};

mod connection;
pub mod consumer;
mod lookup;
pub mod options;
pub mod producer;

use connection::Pool;
pub use consumer::{Consumer, SeekTo};
use lookup::Lookup;
use options::{ClientOptions, ConsumerOptions, ProducerOptions};
pub use producer::Producer;

/// A client of one Pulsar cluster. Cheap to clone; all clones are the same client.
#[derive(Clone, Debug)]
pub struct Client(Arc<Shared>);

/// What a client's producers and consumers share.
#[derive(Debug)]
struct Shared {
    options: ClientOptions,
    pool: Arc<Pool>,
    lookup: Lookup,
    budget: Arc<Budget>,
    next_id: AtomicU64,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    closed: bool,
    producers: Vec<producer::WeakProducer>,
    consumers: Vec<consumer::WeakConsumer>,
}

impl Shared {
    /// A number for a producer or consumer, never given twice by this client: so a producer keeps its id
    /// on every connection and its frames can be sent again byte for byte.
    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

impl Client {
    /// Connects to any address of the service, within the connect timeout for each. Must be called on the
    /// engine's runtime.
    pub async fn connect(options: ClientOptions) -> Result<Self> {
        let url = ServiceUrl::parse(&options.url)?;
        if url.protocol != Protocol::Pulsar {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("{:?} is not Pulsar's", options.url)));
        }
        let pool = Arc::new(Pool::new(options.clone(), &url)?);
        let client = Self(Arc::new(Shared {
            lookup: Lookup::new(options.clone(), url, Arc::clone(&pool)),
            pool,
            budget: Arc::new(Budget::new(options.memory_limit)),
            next_id: AtomicU64::new(0),
            open: Mutex::default(),
            options,
        }));
        client.0.lookup.service().await?;
        Ok(client)
    }

    /// Opens a producer on every partition of `topic`.
    pub async fn producer(
        &self,
        topic: &str,
        options: ProducerOptions,
        events: Arc<dyn ProducerEvents>,
    ) -> Result<Producer> {
        self.check_open()?;
        let topic = TopicName::parse(topic)?;
        let producer = Producer::open(Arc::clone(&self.0), topic, options, events).await?;
        self.open().producers.push(producer.downgrade());
        Ok(producer)
    }

    /// Subscribes to every partition of `topics`.
    pub async fn consumer(
        &self,
        topics: Vec<String>,
        subscription: String,
        options: ConsumerOptions,
        events: Arc<dyn ConsumerEvents>,
    ) -> Result<Consumer> {
        self.check_open()?;
        let topics = topics.iter().map(|topic| TopicName::parse(topic)).collect::<Result<Vec<_>>>()?;
        if topics.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, "a consumer needs at least one topic"));
        }
        let consumer = Consumer::open(Arc::clone(&self.0), topics, subscription, options, events).await?;
        self.open().consumers.push(consumer.downgrade());
        Ok(consumer)
    }

    /// Number of partitions of `topic`, 0 for a plain one. Never creates the topic.
    pub async fn partitions(&self, topic: &str) -> Result<u32> {
        self.check_open()?;
        let topic = TopicName::parse(topic)?;
        self.0.lookup.partitions(&topic.to_string(), false).await
    }

    /// Full names of the topics of `tenant/namespace`, each partition by itself.
    pub async fn topics(&self, namespace: &str) -> Result<Vec<String>> {
        self.check_open()?;
        self.0.lookup.topics(namespace).await
    }

    /// Bytes of messages waiting for receipts.
    pub fn memory_used(&self) -> usize {
        self.0.budget.used()
    }

    /// Closes everything that was made with this client, then its connections.
    pub async fn close(&self) -> Result<()> {
        let (producers, consumers) = {
            let mut open = self.open();
            open.closed = true;
            (std::mem::take(&mut open.producers), std::mem::take(&mut open.consumers))
        };
        let mut first = Ok(());
        for producer in producers.iter().filter_map(producer::WeakProducer::upgrade) {
            first = first.and(producer.close().await);
        }
        for consumer in consumers.iter().filter_map(consumer::WeakConsumer::upgrade) {
            first = first.and(consumer.close().await);
        }
        for connection in self.0.pool.all().await {
            connection.close();
        }
        first
    }

    /// Whether [`Self::close`] has been called.
    pub fn is_closed(&self) -> bool {
        self.open().closed
    }

    fn check_open(&self) -> Result<()> {
        if self.open().closed { Err(Error::new(ErrorKind::Closed, "the client is closed")) } else { Ok(()) }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.open.lock()
    }
}

/// Whether opening failed for a reason that another attempt will not mend.
fn is_terminal(error: &Error, first: bool) -> bool {
    match error.kind() {
        // The first opener is told at once; a reopener may be waiting for its own ghost to be cleared.
        ErrorKind::ProducerBusy | ErrorKind::ConsumerBusy | ErrorKind::QuotaExceeded => first,
        _ => !error.retriable(),
    }
}
