//! State shared by the producers and consumers of one client, and the registration of its
//! producers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::budget::Budget;
use crate::journal::{Journal, log_to};
use crate::logger;
use crate::tubemq::auth::{self, Visit};
use crate::tubemq::connection::{Masters, Pool};
use crate::tubemq::options::ClientOptions;
use crate::until;
use forebay_base::clock::{self, wall_ms};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::random;
use forebay_base::sync::Mutex;
use forebay_net::url::{Address, ServiceUrl};
use forebay_net::{own_address_towards, resolve};
use forebay_tubemq::master::{Event, Identity, ProducerMaster, TopicState};
use forebay_tubemq::topic::Broker;
use tracing::warn;

/// Time for which a topic that the master does not list is requested again before it counts as
/// missing: brokers announce new topics to the master with their own heartbeats.
const TOPIC_PATIENCE: Duration = Duration::from_secs(2);
const TOPIC_RETRY: Duration = Duration::from_millis(100);

/// Port of brokers that announce none.
const BROKER_PORT: u16 = 8123;
const BROKER_TLS_PORT: u16 = 8124;

/// Least time between two warnings of refused calls.
const BETWEEN_REFUSALS: Duration = Duration::from_secs(60);

/// The connections, the masters and the memory budget of a client, and its producers' registration.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: ClientOptions,
    pub(super) pool: Arc<Pool>,
    pub(super) journal: Arc<Journal>,
    pub(super) masters: Masters,
    pub(super) identity: Identity,
    /// The registration that all producers share.
    pub(super) session: Mutex<ProducerMaster>,
    /// Notified when the session has a request.
    session_due: Notify,
    /// Notified when the master has answered.
    answered: Notify,
    pub(super) visit: Arc<Visit>,
    pub(super) budget: Arc<Budget>,
    next_id: AtomicU64,
    /// Received messages whose checksum did not match.
    damaged: AtomicU64,
    /// When the log was told last that a master refuses calls.
    refused: Mutex<Option<Instant>>,
    pub(super) runtime: Handle,
}

/// Name of a client at masters and brokers, which display the address and the process id. It
/// contains no `_`, because servers parse what is behind the last one.
pub(super) fn client_id(host: &str) -> String {
    let (process, bits) = (random::process(), random::bits());
    format!("{host}-{process}-{}-{bits:016x}-forebay-{}", wall_ms(), env!("CARGO_PKG_VERSION"))
}

/// Own IPv4 address on the route to `address`: the protocol has no other addresses.
async fn own_address(address: &Address) -> std::net::Ipv4Addr {
    let found = async {
        let to = resolve(&address.host, address.port).await.ok()?;
        let to = to.into_iter().find(std::net::SocketAddr::is_ipv4)?;
        match own_address_towards(to).ok()? {
            std::net::IpAddr::V4(own) => Some(own),
            std::net::IpAddr::V6(_) => None,
        }
    };
    found.await.unwrap_or(std::net::Ipv4Addr::LOCALHOST)
}

impl Shared {
    /// Counts damaged messages, and warns of the first.
    pub(super) fn damaged(&self, count: u64) {
        if self.damaged.fetch_add(count, Ordering::Relaxed) == 0 {
            warn!(
                target: logger::TUBEMQ,
                "a received message is damaged, because its checksum does not match, and was skipped; \
                 stats() counts such messages as damaged_messages",
            );
        }
    }

    /// Warns that a master refuses a call which is made again, at most once a minute. Lost
    /// connections have records of their own.
    pub(super) fn refused(&self, error: &Error) {
        let now = clock::now();
        let mut last = self.refused.lock();
        if error.peer_text().is_none() || last.is_some_and(|last| now < last + BETWEEN_REFUSALS) {
            return;
        }
        *last = Some(now);
        drop(last);
        let master = self.masters.preferred();
        warn!(target: logger::TUBEMQ, "the master {master} refuses a call, which is made again: {error}");
    }

    /// Number of damaged messages.
    pub(super) fn damaged_messages(&self) -> u64 {
        self.damaged.load(Ordering::Relaxed)
    }

    pub(super) async fn new(options: ClientOptions, url: &ServiceUrl) -> Result<Self> {
        let visit = Arc::new(Visit::default());
        let journal = Journal::new(log_to!(logger::TUBEMQ_CONNECTION));
        let pool = Arc::new(Pool::new(options.clone(), url, Arc::clone(&visit), Arc::clone(&journal))?);
        let masters = Masters::new(url, Arc::clone(&pool));
        let own = own_address(masters.preferred()).await;
        let identity = Identity {
            client_id: client_id(&own.to_string()),
            host_name: own.to_string(),
            default_port: if url.tls { BROKER_TLS_PORT } else { BROKER_PORT },
        };
        let session = ProducerMaster::new(identity.clone(), options.heartbeat_interval, clock::now());
        Ok(Self {
            budget: Arc::new(Budget::new(options.memory_limit)),
            options,
            pool,
            journal,
            masters,
            identity,
            session: Mutex::leaf(session),
            session_due: Notify::new(),
            answered: Notify::new(),
            visit,
            next_id: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            refused: Mutex::leaf(None),
            runtime: Handle::current(),
        })
    }

    /// An id for a producer or a partition, never used twice by this client.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Requests `topic` from the master until it is known, or certainly missing. While what is
    /// returned lives, the master is asked for the topic.
    pub(super) async fn known_topic(self: &Arc<Self>, topic: &str) -> Result<Published> {
        self.session.lock().publish(clock::now(), topic);
        let published = Published { shared: Arc::clone(self), topic: topic.into() };
        let wait = async {
            let deadline = clock::now() + TOPIC_PATIENCE;
            loop {
                self.session.lock().ask_again(clock::now(), topic);
                self.session_due.notify_one();
                let known = until(&self.answered, || match self.session.lock().topic(topic) {
                    TopicState::NotYet => None,
                    TopicState::Missing => Some(false),
                    TopicState::Topic(known) => Some(!known.partitions.is_empty()),
                });
                if known.await {
                    return Ok(());
                }
                if clock::now() >= deadline {
                    let text = "no broker accepts messages for the topic: create it, or check its name";
                    return Err(Error::new(ErrorKind::TopicNotFound, text));
                }
                tokio::time::sleep(TOPIC_RETRY).await;
            }
        };
        let limit = self.options.operation_timeout;
        let result = tokio::time::timeout(limit, wait).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Timeout, format!("no master answered within {limit:?}")))
        });
        result.map(|()| published).map_err(|error| error.with_topic(topic))
    }

    /// Requests the topics again, soon.
    pub(super) fn refresh(&self) {
        self.session.lock().refresh(clock::now());
        self.session_due.notify_one();
    }

    /// Leaves the master; waits at most `limit`, because a master that cannot be reached forgets
    /// the producer by itself.
    pub(super) async fn leave(&self, limit: Duration) {
        self.session.lock().close(clock::now());
        self.session_due.notify_one();
        let left = until(&self.answered, || self.session.lock().is_closed().then_some(()));
        let _ = tokio::time::timeout(limit, left).await;
    }

    /// Address of a broker, as announced to producers.
    pub(super) fn broker(&self, id: u32) -> Option<Address> {
        self.session.lock().broker(id).map(address)
    }
}

/// A topic that the master is asked for until this is dropped.
#[derive(Debug)]
pub(super) struct Published {
    shared: Arc<Shared>,
    topic: Box<str>,
}

impl Drop for Published {
    fn drop(&mut self) {
        self.shared.session.lock().unpublish(&self.topic);
    }
}

pub(super) fn address(broker: &Broker) -> Address {
    Address { host: broker.host.clone(), port: broker.port }
}

/// Registers the producers and sends heartbeats until the session is closed; calls `renewed` when
/// topics or brokers have changed. `ready` is told of the first registration or why it failed after
/// `limit`.
pub(super) async fn keep_session(
    shared: Arc<Shared>,
    limit: Duration,
    ready: oneshot::Sender<Result<()>>,
    renewed: impl Fn() + Send,
) {
    let mut ready = Some(ready);
    let deadline = clock::now() + limit;
    loop {
        let due = shared.session.lock().poll_timeout();
        let Some(due) = due else { break };
        if due > clock::now() {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(due.into()) => {}
                () = shared.session_due.notified() => {}
            }
            continue;
        }
        let answer = match auth::certificate(&shared.options, &shared.visit).await {
            Ok(certificate) => {
                let request = shared.session.lock().poll_request(clock::now(), certificate);
                match request {
                    Some(request) if ready.is_some() => {
                        shared.masters.ask_within(shared.options.connect_timeout, request).await
                    }
                    Some(request) => shared.masters.ask(request).await,
                    None => continue,
                }
            }
            Err(error) => Err(error),
        };
        let (metadata, failed) = {
            let mut session = shared.session.lock();
            session.handle_answer(clock::now(), answer);
            let (mut metadata, mut failed) = (false, None);
            while let Some(event) = session.poll_event() {
                match event {
                    Event::Metadata => metadata = true,
                    Event::VisitToken(token) => shared.visit.set_token(token),
                    Event::Failed(error) => failed = Some(error),
                }
            }
            (metadata, failed)
        };
        if ready.is_some() {
            // When every master is on standby they are about to elect one, and a master that
            // accepts connections may be starting. An address without any server is more likely
            // wrong than early, and one that speaks another protocol is wrong.
            let passing = |error: &Error| {
                let due = shared.session.lock().poll_timeout();
                error.retriable()
                    && !matches!(error.kind(), ErrorKind::ConnectFailed | ErrorKind::Protocol)
                    && due.is_some_and(|due| due < deadline)
            };
            if failed.as_ref().is_some_and(passing) {
                continue;
            }
            let ended = failed.is_some();
            if let Some(ready) = ready.take() {
                let _ = ready.send(failed.clone().map_or(Ok(()), Err));
            }
            if ended {
                return;
            }
        }
        if let Some(error) = &failed {
            shared.refused(error);
        }
        if metadata {
            renewed();
        }
        shared.answered.notify_waiters();
    }
    shared.answered.notify_waiters();
}
