//! The Pulsar client.
//!
//! * [`options`]: options with their defaults
//! * `connection`: a socket's protocol with its routes, and the connection pool
//! * `counters`: counters that other protocols do not have
//! * `lookup`: finds the broker that serves a topic; `directions`: the broker or cluster that
//!   brokers name
//! * `shared`: what the producers and consumers of a client share
//! * `part`: the states of a partition, and the supervisor that opens it again when its connection
//!   ends
//! * `schema`: schemas at the broker
//! * [`producer`], [`consumer`]: handles over the partitions of a topic; [`range`]: a reader of a
//!   part of one

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use crate::credentials::service_url;
use crate::events::{ConsumerEvents, ProducerEvents};
use crate::journal::Journal;
use crate::registry::Registry;
use crate::together::together;
use crate::traffic::Traffic;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::random;
use forebay_net::url::Protocol;
use forebay_pulsar::pattern::Pattern;
use forebay_pulsar::schema::SchemaInfo;
use forebay_pulsar::topic::TopicName;

mod connection;
pub mod consumer;
mod counters;
mod directions;
mod lookup;
pub mod options;
pub mod producer;
pub mod range;
mod reconnect;
mod schema;
mod shared;

pub use consumer::{ActiveChange, Consumer, SeekTo, Target, Topics};
pub use counters::{LetterCounts, LookupCounts};
use options::{ClientOptions, ConsumerOptions, ProducerOptions};
pub use producer::Producer;
use range::{Range, RangeReader, Rules, Wake};
use shared::Shared;

/// Time for which close waits for sockets that accept no bytes.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// A client of one Pulsar cluster. Cheap to clone; all clones are the same client.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    open: Registry<Producer, Consumer>,
}

/// The reason of the last events.
fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was closed")
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.journal.end(&closed());
    }
}

impl Client {
    /// Connects to any address of the service, within the connect timeout for each. Must be called
    /// on the engine's runtime.
    pub async fn connect(options: ClientOptions) -> Result<Self> {
        let wanted = "a Pulsar URL: use pulsar://, pulsar+ssl://, http:// or https://";
        options.check()?;
        check(&options)?;
        let secret = match (&options.token, &options.basic) {
            (Some(_), _) => Some("token"),
            (None, Some(_)) => Some("password"),
            (None, None) => None,
        };
        let url = service_url(&options.url, Protocol::Pulsar, wanted, secret)?;
        let shared = Arc::new(Shared::new(options, url)?);
        shared.lookup.check().await?;
        Ok(Self(Arc::new(Inner { shared, open: Registry::default() })))
    }

    /// Opens a producer on every partition of `topic`.
    pub async fn producer(
        &self,
        topic: &str,
        options: ProducerOptions,
        events: Arc<dyn ProducerEvents>,
    ) -> Result<Producer> {
        self.0.open.check_open()?;
        options.check()?;
        let topic = TopicName::parse(topic)?;
        let producer = Producer::open(Arc::clone(&self.0.shared), topic, options, events).await?;
        if let Err(closed) = self.0.open.add_producer(&producer) {
            let _ = producer.close(false).await;
            return Err(closed);
        }
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
        self.0.open.check_open()?;
        let topics = topics.iter().map(|topic| TopicName::parse(topic)).collect::<Result<Vec<_>>>()?;
        if topics.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, "a consumer needs at least one topic"));
        }
        self.open_consumer(Topics::Named(topics), subscription, options, events).await
    }

    /// Subscribes to the topics that a pattern matches, now and later.
    pub async fn pattern_consumer(
        &self,
        pattern: Pattern,
        subscription: String,
        options: ConsumerOptions,
        events: Arc<dyn ConsumerEvents>,
    ) -> Result<Consumer> {
        self.0.open.check_open()?;
        self.open_consumer(Topics::Matching(pattern), subscription, options, events).await
    }

    async fn open_consumer(
        &self,
        topics: Topics,
        subscription: String,
        options: ConsumerOptions,
        events: Arc<dyn ConsumerEvents>,
    ) -> Result<Consumer> {
        options.check()?;
        let shared = Arc::clone(&self.0.shared);
        let consumer = Consumer::open(shared, topics, subscription, options, events).await?;
        if let Err(closed) = self.0.open.add_consumer(&consumer) {
            let _ = consumer.close().await;
            return Err(closed);
        }
        Ok(consumer)
    }

    /// Opens a reader of a part of a topic without partitions, or of one partition of another. It
    /// does not create the topic. The options about position and durability are its own.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TopicNotFound`]: the topic does not exist (any more).
    /// [`ErrorKind::InvalidArgument`]: it has several partitions.
    pub async fn range(
        &self,
        topic: &str,
        range: Range,
        rules: Rules,
        options: ConsumerOptions,
    ) -> Result<RangeReader> {
        let (position, start_inclusive) = range.position();
        let options = ConsumerOptions {
            position,
            start_inclusive,
            durable: false,
            creates_topic: false,
            // Their bytes are limited. One that has to make room for others would be missing.
            max_pending_chunked_messages: 0,
            ..options
        };
        let wake = Arc::new(Wake::default());
        let name = format!("reader-{:010x}", random::bits() >> 24);
        let opened = self.consumer(
            vec![topic.to_owned()],
            name,
            options.clone(),
            Arc::clone(&wake) as Arc<dyn ConsumerEvents>,
        );
        let consumer = opened.await?;
        if consumer.partition_topics().len() != 1 {
            let text = "a range is read of one partition: name it (...-partition-N)";
            return Err(Error::new(ErrorKind::InvalidArgument, text).with_topic(topic));
        }
        Ok(RangeReader::new(consumer, wake, range, rules, &options))
    }

    /// Number of partitions of `topic`, 0 for a topic without partitions. Never creates the topic.
    pub async fn partitions(&self, topic: &str) -> Result<u32> {
        self.0.open.check_open()?;
        let topic = TopicName::parse(topic)?.to_string();
        self.0.shared.lookup_of(&topic).partitions(&topic, false).await
    }

    /// A schema of `topic`: that of a version, or the latest.
    pub async fn schema(&self, topic: &str, version: Option<Bytes>) -> Result<SchemaInfo> {
        self.0.open.check_open()?;
        let topic = TopicName::parse(topic)?.to_string();
        self.0.shared.lookup_of(&topic).schema(&topic, version).await
    }

    /// Full names of the topics of `tenant/namespace`, each partition by itself.
    pub async fn topics(&self, namespace: &str) -> Result<Vec<String>> {
        self.0.open.check_open()?;
        self.0.shared.lookup.topics(namespace).await
    }

    /// Bytes of messages waiting for receipts.
    pub fn memory_used(&self) -> usize {
        self.0.shared.budget.used()
    }

    /// Number of entries that could not be read: encrypted, damaged, or compressed in an unknown
    /// way.
    pub fn unreadable_entries(&self) -> u64 {
        self.0.shared.unreadable.load(Ordering::Relaxed)
    }

    /// Number of topics, or partitions of them, that ended while their consumer went on with its
    /// other topics.
    pub fn ended_topics(&self) -> u64 {
        self.0.shared.ended_topics.load(Ordering::Relaxed)
    }

    /// Counters of lookups.
    pub fn lookup_counts(&self) -> LookupCounts {
        self.0.shared.lookups.counts()
    }

    /// Counters of messages that consumers of this client have sent to topics of dead letters and
    /// retries.
    pub fn letter_counts(&self) -> LetterCounts {
        self.0.shared.letters.counts()
    }

    /// Totals of what was sent and received.
    pub fn traffic(&self) -> &Arc<Traffic> {
        self.0.shared.budget.traffic()
    }

    /// The events of the connections.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.0.shared.journal
    }

    /// Closes everything that was made with this client, then its connections.
    pub async fn close(&self) -> Result<()> {
        let (producers, consumers) = self.0.open.close().unwrap_or_default();
        // Side by side: one that has to be given up costs the others no time.
        let mut results = together(producers.into_iter().map(|it| async move { it.close(true).await })).await;
        results.extend(together(consumers.into_iter().map(|it| async move { it.close().await })).await);
        let connections = self.0.shared.pool.all().await;
        connections.iter().for_each(|connection| connection.close());
        // Readers of the journal see their end.
        let ended = async {
            for connection in &connections {
                connection.ended().await;
            }
        };
        let _ = tokio::time::timeout(LAST_WRITE, ended).await;
        self.0.shared.journal.end(&closed());
        results.into_iter().collect()
    }

    /// Whether [`Self::close`] has been called.
    pub fn is_closed(&self) -> bool {
        self.0.open.is_closed()
    }
}

/// Refuses credentials that exclude each other.
fn check(options: &ClientOptions) -> Result<()> {
    let wrong = |text: &str| Err(Error::new(ErrorKind::InvalidArgument, text));
    match &options.basic {
        Some(_) if options.token.is_some() => {
            wrong("token and username exclude each other: give one of them")
        }
        Some(basic) if basic.username.contains(':') => {
            wrong("the username has a colon, which ends it for the broker")
        }
        _ => Ok(()),
    }
}
