//! The TubeMQ client: producers and consumers over the masters and brokers of one cluster.
//!
//! * `connection`: a socket's protocol with its routes, the pool of them, and the masters
//! * `auth`: what proves to a master who asks
//! * [`producer`], [`consumer`]: what a user holds
//! * [`options`]: every knob
//!
//! ```text
//!            register, beat: topics and brokers              a connection for producing to each broker
//! master ◄────────────────────── session ──────► Producer ─────────────────────────────────────────────► broker
//!        ◄────────────────────── member ───────► Consumer ── Part for each partition ──────────────────► broker
//!            register, beat: partitions                      a connection for fetching from each broker
//! ```
//! The producers of a client share one registration at the master, which is made when the client connects; each
//! consumer is a member of its group for itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use crate::client::budget::Budget;
use crate::client::events::{ConsumerEvents, ProducerEvents};
use crate::client::random_bits;
use crate::clock::wall_ms;
use crate::error::{Error, ErrorKind, Result};
use crate::net::url::{Address, Protocol, ServiceUrl};
use crate::sync::Mutex;
use crate::tubemq::master::{Event, Identity, Known, ProducerMaster};
use crate::tubemq::topic::{Broker, check_group, check_topic};

mod auth;
mod connection;
pub mod consumer;
pub mod options;
pub mod producer;

pub use crate::tubemq::message::Outgoing;
use auth::Visit;
pub use auth::signature;
use connection::{Masters, Pool};
pub use consumer::{Consumer, PartitionState, SeekTo};
use options::{ClientOptions, ConsumerOptions, ProducerOptions};
pub use producer::Producer;

/// How long a topic that the master does not list is asked for again before it counts as missing: brokers tell the
/// master of new ones with their own beats.
const TOPIC_PATIENCE: Duration = Duration::from_secs(2);
const TOPIC_AGAIN: Duration = Duration::from_millis(100);

/// Ports of brokers that name none.
const BROKER_PORT: u16 = 8123;
const BROKER_TLS_PORT: u16 = 8124;

/// A client of one TubeMQ cluster. Cheap to clone; all clones are the same client.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

/// What users hold; the session's task does not, so that a forgotten client ends.
#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    task: AbortHandle,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.pool.abandon();
    }
}

/// What a client's producers and consumers share.
#[derive(Debug)]
struct Shared {
    options: ClientOptions,
    pool: Arc<Pool>,
    masters: Masters,
    identity: Identity,
    /// The registration that all producers share.
    session: Mutex<ProducerMaster>,
    /// Rung when the session has something to ask.
    session_due: Notify,
    /// Rung when the master has answered.
    answered: Notify,
    visit: Arc<Visit>,
    budget: Arc<Budget>,
    next_id: AtomicU64,
    open: Mutex<Open>,
    runtime: Handle,
}

#[derive(Debug, Default)]
struct Open {
    closed: bool,
    producers: Vec<producer::WeakProducer>,
    consumers: Vec<consumer::WeakConsumer>,
}

/// Name of a client as servers read it: the address and the process are what they show. No `_` in it, for they look
/// behind the last one.
fn client_id(host: &str) -> String {
    let (process, bits) = (std::process::id(), random_bits());
    format!("{host}-{process}-{}-{bits:016x}-penstock-{}", wall_ms(), env!("CARGO_PKG_VERSION"))
}

/// Own IPv4 address on the way to `address`: the protocol has no other.
async fn own_address(address: &Address) -> std::net::Ipv4Addr {
    let found = async {
        let mut to = tokio::net::lookup_host((address.host.as_str(), address.port)).await.ok()?;
        let to = to.find(std::net::SocketAddr::is_ipv4)?;
        // Sends nothing: only the route is looked up.
        let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        socket.connect(to).ok()?;
        match socket.local_addr().ok()?.ip() {
            std::net::IpAddr::V4(own) => Some(own),
            std::net::IpAddr::V6(_) => None,
        }
    };
    found.await.unwrap_or(std::net::Ipv4Addr::LOCALHOST)
}

impl Client {
    /// Registers at the active master: tries each, again and again within the connect timeout if any of them can be
    /// connected. Must be called on the engine's runtime.
    pub async fn connect(options: ClientOptions) -> Result<Self> {
        let url = ServiceUrl::parse(&options.url)?;
        if url.protocol != Protocol::TubeMq {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("{:?} is not TubeMQ's", options.url)));
        }
        if options.password.is_some() && options.username.is_none() {
            return Err(Error::new(ErrorKind::InvalidArgument, "a password needs a username"));
        }
        let visit = Arc::new(Visit::default());
        let pool = Arc::new(Pool::new(options.clone(), &url, Arc::clone(&visit))?);
        let masters = Masters::new(&url, Arc::clone(&pool));
        let own = own_address(masters.preferred()).await;
        let identity = Identity {
            client_id: client_id(&own.to_string()),
            host_name: own.to_string(),
            default_port: if url.tls { BROKER_TLS_PORT } else { BROKER_PORT },
        };
        let session = ProducerMaster::new(identity.clone(), options.heartbeat_interval, Instant::now());
        let shared = Arc::new(Shared {
            budget: Arc::new(Budget::new(options.memory_limit)),
            options,
            pool,
            masters,
            identity,
            session: Mutex::leaf(session),
            session_due: Notify::new(),
            answered: Notify::new(),
            visit,
            next_id: AtomicU64::new(0),
            open: Mutex::default(),
            runtime: Handle::current(),
        });
        let (ready, up) = oneshot::channel();
        let task = tokio::spawn(keep_session(Arc::clone(&shared), ready)).abort_handle();
        let client = Self(Arc::new(Inner { shared, task }));
        up.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Closed, "the client was closed")))?;
        Ok(client)
    }

    /// A producer of `topic`, which some broker has to have.
    pub async fn producer(
        &self,
        topic: &str,
        options: ProducerOptions,
        events: Arc<dyn ProducerEvents>,
    ) -> Result<Producer> {
        self.check_open()?;
        check_topic(topic)?;
        self.0.shared.known_topic(topic).await?;
        let producer = Producer::open(Arc::clone(&self.0.shared), topic, options, events);
        self.0.shared.open.lock().producers.push(producer.downgrade());
        Ok(producer)
    }

    /// A member of `group`; resolves when the master has it and each of its partitions has been tried.
    pub async fn consumer(
        &self,
        topics: Vec<String>,
        group: String,
        options: ConsumerOptions,
        events: Arc<dyn ConsumerEvents>,
    ) -> Result<Consumer> {
        self.check_open()?;
        if topics.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, "a consumer needs at least one topic"));
        }
        topics.iter().try_for_each(|topic| check_topic(topic))?;
        check_group(&group)?;
        let consumer = Consumer::open(Arc::clone(&self.0.shared), topics, group, options, events).await?;
        self.0.shared.open.lock().consumers.push(consumer.downgrade());
        Ok(consumer)
    }

    /// Number of partitions of `topic` that can be written.
    pub async fn partitions(&self, topic: &str) -> Result<u32> {
        self.check_open()?;
        check_topic(topic)?;
        self.0.shared.known_topic(topic).await?;
        let session = self.0.shared.session.lock();
        match session.topic(topic) {
            Known::Topic(known) => Ok(known.partitions.len() as u32),
            Known::Missing | Known::NotYet => Ok(0),
        }
    }

    /// Bytes of messages without an answer.
    pub fn memory_used(&self) -> usize {
        self.0.shared.budget.used()
    }

    /// Closes everything that was made with this client, leaves the master, and ends the connections.
    pub async fn close(&self) -> Result<()> {
        let shared = &self.0.shared;
        let (producers, consumers) = {
            let mut open = shared.open.lock();
            if std::mem::replace(&mut open.closed, true) {
                return Ok(());
            }
            (std::mem::take(&mut open.producers), std::mem::take(&mut open.consumers))
        };
        let mut first = Ok(());
        for producer in producers.iter().filter_map(producer::WeakProducer::upgrade) {
            first = first.and(producer.close().await);
        }
        for consumer in consumers.iter().filter_map(consumer::WeakConsumer::upgrade) {
            first = first.and(consumer.close().await);
        }
        shared.session.lock().close(Instant::now());
        shared.session_due.notify_one();
        // A master that cannot be told forgets the producer by itself.
        let left = shared.until(|| shared.session.lock().is_closed().then_some(()));
        let _ = tokio::time::timeout(Duration::from_secs(1), left).await;
        self.0.task.abort();
        for connection in shared.pool.all().await {
            connection.close();
        }
        first
    }

    /// Whether [`Self::close`] has been called.
    pub fn is_closed(&self) -> bool {
        self.0.shared.open.lock().closed
    }

    fn check_open(&self) -> Result<()> {
        if self.is_closed() { Err(Error::new(ErrorKind::Closed, "the client is closed")) } else { Ok(()) }
    }
}

impl Shared {
    /// A number for a producer or a partition, never given twice by this client.
    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Asks the master for `topic` until it is known, or certainly missing.
    async fn known_topic(&self, topic: &str) -> Result<()> {
        let wait = async {
            let deadline = Instant::now() + TOPIC_PATIENCE;
            loop {
                self.session.lock().publish(Instant::now(), topic);
                self.session_due.notify_one();
                let known = self.until(|| match self.session.lock().topic(topic) {
                    Known::NotYet => None,
                    Known::Missing => Some(false),
                    Known::Topic(known) => Some(!known.partitions.is_empty()),
                });
                if known.await {
                    return Ok(());
                }
                if Instant::now() >= deadline {
                    let text = "no broker takes messages for the topic";
                    return Err(Error::new(ErrorKind::TopicNotFound, text));
                }
                tokio::time::sleep(TOPIC_AGAIN).await;
            }
        };
        let limit = self.options.operation_timeout;
        let result = tokio::time::timeout(limit, wait).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Timeout, format!("no master answered within {limit:?}")))
        });
        if result.is_err() {
            self.session.lock().unpublish(topic);
        }
        result.map_err(|error| error.with_topic(topic))
    }

    /// Looks after each answer of the master whether `look` finds what it wants.
    async fn until<T>(&self, look: impl Fn() -> Option<T>) -> T {
        loop {
            let answered = self.answered.notified();
            tokio::pin!(answered);
            answered.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            answered.await;
        }
    }

    /// Has the master asked anew, soon.
    fn refresh(&self) {
        self.session.lock().refresh(Instant::now());
        self.session_due.notify_one();
    }

    fn producers(&self) -> Vec<Producer> {
        let mut open = self.open.lock();
        open.producers.retain(producer::WeakProducer::is_alive);
        open.producers.iter().filter_map(producer::WeakProducer::upgrade).collect()
    }

    /// Where producers find a broker.
    fn broker(&self, id: u32) -> Option<Address> {
        self.session.lock().broker(id).map(address)
    }
}

fn address(broker: &Broker) -> Address {
    Address { host: broker.host.clone(), port: broker.port }
}

/// Registers, beats and tells the producers what is new, until the session is closed.
async fn keep_session(shared: Arc<Shared>, ready: oneshot::Sender<Result<()>>) {
    let mut ready = Some(ready);
    let deadline = Instant::now() + shared.options.connect_timeout;
    loop {
        let due = shared.session.lock().poll_timeout();
        let Some(due) = due else { break };
        if due > Instant::now() {
            tokio::select! {
                () = tokio::time::sleep_until(due.into()) => {}
                () = shared.session_due.notified() => {}
            }
            continue;
        }
        let asked = match auth::certificate(&shared.options, &shared.visit).await {
            Ok(certificate) => {
                let request = shared.session.lock().poll_request(Instant::now(), certificate);
                match request {
                    Some(request) => shared.masters.ask(request).await,
                    None => continue,
                }
            }
            Err(error) => Err(error),
        };
        let mut renewed = false;
        let failed = {
            let mut session = shared.session.lock();
            session.handle_answer(Instant::now(), asked);
            let mut failed = None;
            while let Some(event) = session.poll_event() {
                match event {
                    Event::Metadata => renewed = true,
                    Event::VisitToken(token) => shared.visit.set_token(token),
                    Event::Failed(error) => failed = Some(error),
                }
            }
            failed
        };
        if ready.is_some() {
            // Masters that are all on standby are about to choose, and one that is there may be starting. Where no
            // address has a server at all, it is more likely wrong than early.
            let passing = |error: &Error| {
                let due = shared.session.lock().poll_timeout();
                error.retriable()
                    && error.kind() != ErrorKind::ConnectFailed
                    && due.is_some_and(|due| due < deadline)
            };
            if failed.as_ref().is_some_and(passing) {
                continue;
            }
            let ended = failed.is_some();
            if let Some(ready) = ready.take() {
                let _ = ready.send(failed.map_or(Ok(()), Err));
            }
            if ended {
                return;
            }
        }
        if renewed {
            for producer in shared.producers() {
                producer.take_metadata();
            }
        }
        shared.answered.notify_waiters();
    }
    shared.answered.notify_waiters();
}
