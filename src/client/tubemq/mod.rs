//! The TubeMQ client: producers and consumers over the masters and brokers of one cluster.
//!
//! * [`options`]: options with their defaults
//! * `auth`: credentials for masters and brokers
//! * `connection`: a socket's protocol with its routes, the connection pool, and the masters
//! * `shared`: what the producers and consumers of a client share, and the producers' registration
//! * [`producer`], [`consumer`]: handles
//! * `lease`: one partition, held without being a member of its group
//! * [`range`]: a part of a partition, read once
//!
//! ```text
//!          register, heartbeat: topics             one connection per broker for producing
//! master ◄──────────────── session ──► Producer ─────────────────────────────────────────► broker
//!        ◄──────────────── member ───► Consumer ── PartitionConsumer for each partition ─► broker
//!          register, heartbeat: partitions         one connection per broker for fetching
//! ```
//! The producers of a client share one registration at the master, which is made when the client
//! connects. Each consumer is a member of its group on its own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::credentials::service_url;
use crate::events::{ConsumerEvents, ProducerEvents};
use crate::journal::Journal;
use crate::registry::Registry;
use crate::together::together;
use crate::traffic::Traffic;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_net::url::{Protocol, ServiceUrl};
use forebay_tubemq::balance::PartitionLocation;
use forebay_tubemq::master::TopicState;
use forebay_tubemq::topic::{check_group, check_topic};

mod auth;
mod connection;
pub mod consumer;
mod lease;
pub mod options;
pub mod producer;
pub mod range;
mod shared;

pub use auth::signature;
pub use consumer::{Consumer, PartitionState, SeekTo};
pub use forebay_tubemq::message::Outgoing;
use options::{ClientOptions, ConsumerOptions, ProducerOptions};
pub use producer::Producer;
use range::{Range, RangeReader, Rules, Tail};
use shared::{Shared, keep_session};

/// Time for which close waits for the master.
const LEAVE: Duration = Duration::from_secs(1);
/// Time for which close waits for sockets that accept no bytes.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// A client of one TubeMQ cluster. Cheap to clone; all clones are the same client.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

/// Shared by the clones of a client. The session's task does not hold it, so that a client that is
/// dropped ends.
#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    open: Arc<Registry<Producer, Consumer>>,
    task: AbortHandle,
}

/// The reason of the last events.
fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was closed")
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.pool.abandon();
        self.shared.journal.end(&closed());
    }
}

impl Client {
    /// Registers at the active master. Tries each in turn, and again if any of them accepts
    /// connections; all of that has the connect timeout for each master. Must be called on the
    /// engine's runtime.
    pub async fn connect(options: ClientOptions) -> Result<Self> {
        options.check()?;
        let wanted = "a TubeMQ URL: use tubemq:// or tubemq+ssl://";
        let secret = options.username.is_some().then_some("signature made with the password");
        let url = service_url(&options.url, Protocol::TubeMq, wanted, secret)?;
        if options.password.is_some() && options.username.is_none() {
            return Err(Error::new(ErrorKind::InvalidArgument, "a password needs a username"));
        }
        let text = options.url.clone();
        // One that swallows everything leaves the others their time.
        let limit = options.connect_timeout * url.addresses.len() as u32;
        tokio::time::timeout(limit, Self::register(options, url, limit)).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Timeout, format!("no master of {text} answered within {limit:?}")))
        })
    }

    async fn register(options: ClientOptions, url: ServiceUrl, limit: Duration) -> Result<Self> {
        let shared = Arc::new(Shared::new(options, &url).await?);
        let open = Arc::<Registry<Producer, Consumer>>::default();
        let (ready, up) = oneshot::channel();
        let renew = {
            let open = Arc::clone(&open);
            move || open.producers().iter().for_each(Producer::take_metadata)
        };
        let task = tokio::spawn(keep_session(Arc::clone(&shared), limit, ready, renew)).abort_handle();
        let client = Self(Arc::new(Inner { shared, open, task }));
        up.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Closed, "the client was closed")))?;
        Ok(client)
    }

    /// Opens a producer of `topic`, which must exist at a broker.
    pub async fn producer(
        &self,
        topic: &str,
        options: ProducerOptions,
        events: Arc<dyn ProducerEvents>,
    ) -> Result<Producer> {
        self.0.open.check_open()?;
        options.check()?;
        check_topic(topic)?;
        let published = self.0.shared.known_topic(topic).await?;
        let producer = Producer::open(published, Arc::clone(&self.0.shared), topic, options, events);
        if let Err(closed) = self.0.open.add_producer(&producer) {
            let _ = producer.close(false).await;
            return Err(closed);
        }
        Ok(producer)
    }

    /// Joins `group`. Resolves when the master has registered the member and each of its partitions
    /// has been tried.
    pub async fn consumer(
        &self,
        topics: Vec<String>,
        group: String,
        options: ConsumerOptions,
        events: Arc<dyn ConsumerEvents>,
    ) -> Result<Consumer> {
        self.0.open.check_open()?;
        options.check()?;
        if topics.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, "a consumer needs at least one topic"));
        }
        topics.iter().try_for_each(|topic| check_topic(topic))?;
        check_group(&group)?;
        let consumer = Consumer::open(Arc::clone(&self.0.shared), topics, group, options, events).await?;
        if let Err(closed) = self.0.open.add_consumer(&consumer) {
            let _ = consumer.close().await;
            return Err(closed);
        }
        Ok(consumer)
    }

    /// Number of writable partitions of `topic`.
    pub async fn partitions(&self, topic: &str) -> Result<u32> {
        self.0.open.check_open()?;
        check_topic(topic)?;
        let _published = self.0.shared.known_topic(topic).await?;
        let session = self.0.shared.session.lock();
        match session.topic(topic) {
            TopicState::Topic(known) => Ok(known.partitions.len() as u32),
            TopicState::Missing | TopicState::NotYet => Ok(0),
        }
    }

    /// The partitions of `topics` that can be read, in order. The master is told a group for that,
    /// `groups` with a number behind it, as [`Self::range`] takes them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TopicNotFound`]: no broker has any of the topics.
    pub async fn locations(&self, topics: BTreeSet<String>, groups: &str) -> Result<Vec<PartitionLocation>> {
        self.0.open.check_open()?;
        topics.iter().try_for_each(|topic| check_topic(topic))?;
        check_group(groups)?;
        range::locations(&self.0.shared, &topics, groups).await
    }

    /// Asks for the ends of partitions, until it is closed.
    pub fn tail(&self, locations: Vec<PartitionLocation>, groups: String) -> Result<Tail> {
        self.0.open.check_open()?;
        check_group(&groups)?;
        Ok(Tail::new(Arc::clone(&self.0.shared), locations, groups))
    }

    /// Reads a part of a partition. It is taken in the first of the groups `groups-0`, `groups-1`
    /// and so on in which it is free; the offsets of these groups mean nothing.
    pub fn range(&self, range: Range, groups: String, rules: Rules) -> Result<RangeReader> {
        self.0.open.check_open()?;
        check_group(&groups)?;
        Ok(RangeReader::new(Arc::clone(&self.0.shared), range, groups, rules))
    }

    /// Sets the offsets of `group`, from which its members go on. The error of each partition for
    /// which that failed; one that another client of the group holds is
    /// [`ErrorKind::ConsumerBusy`].
    pub async fn confirm(
        &self,
        group: &str,
        offsets: Vec<(PartitionLocation, i64)>,
    ) -> Result<Vec<Option<Error>>> {
        self.0.open.check_open()?;
        check_group(group)?;
        Ok(range::confirm(&self.0.shared, group, offsets).await)
    }

    /// Totals of what was sent and received.
    pub fn traffic(&self) -> &Arc<Traffic> {
        self.0.shared.budget.traffic()
    }

    /// The events of the connections.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.0.shared.journal
    }

    /// Bytes of messages without an answer.
    pub fn memory_used(&self) -> usize {
        self.0.shared.budget.used()
    }

    /// Number of received messages that were skipped because their checksum did not match.
    pub fn damaged_messages(&self) -> u64 {
        self.0.shared.damaged_messages()
    }

    /// Closes everything that was made with this client, leaves the master, and ends the
    /// connections.
    pub async fn close(&self) -> Result<()> {
        let shared = &self.0.shared;
        let Some((producers, consumers)) = self.0.open.close() else { return Ok(()) };
        // Side by side: one that has to be given up costs the others no time.
        let mut results = together(producers.into_iter().map(|it| async move { it.close(true).await })).await;
        results.extend(together(consumers.into_iter().map(|it| async move { it.close().await })).await);
        shared.leave(LEAVE).await;
        self.0.task.abort();
        let connections = shared.pool.all().await;
        connections.iter().for_each(|connection| connection.close());
        // Readers of the journal see their end.
        let ended = async {
            for connection in &connections {
                connection.ended().await;
            }
        };
        let _ = tokio::time::timeout(LAST_WRITE, ended).await;
        shared.journal.end(&closed());
        results.into_iter().collect()
    }

    /// Whether [`Self::close`] has been called.
    pub fn is_closed(&self) -> bool {
        self.0.open.is_closed()
    }
}
