//! The MQTT client: one session over one connection at a time, with any number of producers and consumers.
//!
//! * `connection`: the socket's protocol and the session behind it, and the supervisor that connects again
//! * `routes`: which consumers a message is for
//! * `spool`: the way of publications through the durable outbox
//! * [`producer`], [`consumer`]: what a user holds
//! * [`options`]: every knob
//!
//! ```text
//! Producer ── push ──► Session (one short lock) ──► driver's turn ──► socket
//!                          │ PUBACK, PUBCOMP, written        │ PUBLISH
//! ProducerEvents::sent ◄───┘                  Routes ◄───────┘──► Consumer's queue ──► ConsumerEvents
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use crate::client::budget::Budget;
use crate::client::events::{ConsumerEvents, ProducerEvents};
use crate::error::{Error, ErrorKind, Result};
use crate::mqtt::connection::Limits;
use crate::mqtt::packet::Publish;
use crate::mqtt::producer::{Outcome, cost};
use crate::mqtt::session::{Event, Session};
use crate::mqtt::topic::check_name;
use crate::mqtt::{Reason, Version};
use crate::net::driver;
use crate::net::url::{Protocol, ServiceUrl};
use crate::sync::{Mutex, MutexGuard, Rank};

mod connection;
pub mod consumer;
pub mod options;
pub mod outbox;
pub mod producer;
mod routes;

use connection::{Attached, Connector, supervise};
use consumer::Core as ConsumerCore;
pub use consumer::{Consumer, Message};
use options::{ClientOptions, ConsumerOptions, ProducerOptions};
pub use outbox::session::OutboxStats;
use outbox::session::{DURABLE, OutboxSession};
use producer::Core as ProducerCore;
pub use producer::{Outgoing, Producer};
use routes::Routes;

/// A client of one MQTT server. Cheap to clone; all clones are the same client.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

/// What users hold; the supervisor does not, so that a forgotten client ends.
#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    tasks: [AbortHandle; 2],
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The driver goes with the task, and the socket with the driver: the server sees a connection cut,
        // which is what a forgotten client is.
        self.tasks.iter().for_each(AbortHandle::abort);
        self.shared.end(&Error::new(ErrorKind::Closed, "the client was dropped"));
    }
}

/// What the producers, the consumers and the connections of a client share.
#[derive(Debug)]
struct Shared {
    options: ClientOptions,
    session: Mutex<Session>,
    /// Of a client with a durable outbox.
    spool: Option<OutboxSession>,
    /// The connection of the moment.
    link: Mutex<Option<Arc<driver::Session<Attached>>>>,
    /// The driver knows that there is something to do.
    notified: AtomicBool,
    /// Publications wait for the broker's answers, for the socket to know.
    awaited: Arc<AtomicBool>,
    producers: Mutex<HashMap<u64, Arc<ProducerCore>>>,
    routes: Mutex<Routes>,
    /// Messages of a session taken up that no consumer has asked for yet.
    unclaimed: Mutex<Vec<(Publish, u64)>>,
    /// Who waits for SUBACK and UNSUBACK.
    answers: Mutex<HashMap<u32, oneshot::Sender<Result<Vec<Reason>>>>>,
    budget: Arc<Budget>,
    /// Bytes of messages that nobody has taken yet.
    unread: AtomicUsize,
    /// The socket is left alone until some of them are taken.
    paused: AtomicBool,
    next_owner: AtomicU64,
    next_subscription: AtomicU32,
    /// Why the client has ended.
    ended: Mutex<Option<Error>>,
    /// Rung when publications have ended.
    settled: Notify,
    /// Rung when it is time to close.
    closing: Notify,
    /// What the server said at the last CONNACK.
    server: Mutex<Option<Server>>,
    /// Protocol level of the version that is spoken.
    level: AtomicU8,
    runtime: Handle,
}

/// What the server said of itself and of us.
#[derive(Clone, Debug)]
pub struct Server {
    /// The client identifier in use.
    pub client_id: String,
    /// Whether it had the session.
    pub session_present: bool,
    /// What it takes.
    pub limits: Limits,
    /// Start of the topics for responses, if it was asked for one.
    pub response_information: Option<String>,
}

impl Client {
    /// Connects to any address of the URL, within the connect timeout for each. Must be called on the engine's
    /// runtime.
    ///
    /// With an outbox the client is given also if no address answers: it goes on trying.
    pub async fn connect(mut options: ClientOptions) -> Result<Self> {
        let url = ServiceUrl::parse(&options.url)?;
        if url.protocol != Protocol::Mqtt {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("{:?} is not MQTT's", options.url)));
        }
        // Mosquitto 2.0 sends more than the receive maximum to who is behind a burst. Ending the session for it,
        // which a client may, would repeat the burst, again and again; what is held is bounded in bytes.
        let mut session = Session::new(options.max_inflight, u16::MAX);
        let mut spool = None;
        if options.outbox.is_some() {
            // A disk may take its time: not on the engine's thread.
            let opening = tokio::task::spawn_blocking(move || {
                let spool = OutboxSession::open(&mut options, &mut session)?;
                Ok::<_, Error>((options, session, spool))
            });
            let failed = |_| Err(Error::new(ErrorKind::Closed, "the engine has ended"));
            (options, session, spool) = opening.await.unwrap_or_else(failed)?;
        }
        let shared = Arc::new(Shared {
            session: Mutex::new(Rank::Machine, session),
            spool,
            link: Mutex::default(),
            notified: AtomicBool::new(false),
            awaited: Arc::default(),
            producers: Mutex::default(),
            routes: Mutex::default(),
            unclaimed: Mutex::default(),
            answers: Mutex::default(),
            budget: Arc::new(Budget::new(options.memory_limit)),
            unread: AtomicUsize::new(0),
            paused: AtomicBool::new(false),
            next_owner: AtomicU64::new(1),
            next_subscription: AtomicU32::new(1),
            ended: Mutex::default(),
            settled: Notify::new(),
            closing: Notify::new(),
            server: Mutex::default(),
            level: AtomicU8::new(options.version.unwrap_or(Version::V5).level()),
            runtime: Handle::current(),
            options,
        });
        let (ready, up) = oneshot::channel();
        let connector = Connector::new(&shared.options, url)?;
        let tasks = [
            tokio::spawn(supervise(Arc::clone(&shared), connector, ready)).abort_handle(),
            tokio::spawn(Shared::run_outbox_session(Arc::downgrade(&shared))).abort_handle(),
        ];
        let client = Self(Arc::new(Inner { shared, tasks }));
        up.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Closed, "the client was closed")))?;
        Ok(client)
    }

    /// A producer of `topic`. Opens nothing at the server.
    pub fn producer(
        &self,
        topic: &str,
        options: ProducerOptions,
        events: Arc<dyn ProducerEvents>,
    ) -> Result<Producer> {
        self.check_open()?;
        check_name(topic)?;
        Ok(Producer::new(Arc::clone(&self.0.shared), topic, options, events))
    }

    /// Subscribes; resolves when the server has granted every filter.
    pub async fn consumer(
        &self,
        options: ConsumerOptions,
        events: Arc<dyn ConsumerEvents>,
    ) -> Result<Consumer> {
        self.check_open()?;
        Consumer::open(Arc::clone(&self.0.shared), options, events).await
    }

    /// What the server said at the last CONNACK.
    pub fn server(&self) -> Option<Server> {
        self.0.shared.server.lock().clone()
    }

    /// Starts a new extended authentication (4.12.1). Its failure ends the connection.
    pub async fn reauthenticate(&self) -> Result<()> {
        self.check_open()?;
        self.0.shared.reauthenticate().await
    }

    /// Bytes of publications without an answer.
    pub fn memory_used(&self) -> usize {
        self.0.shared.budget.used()
    }

    /// What the outbox holds, if there is one.
    pub fn outbox(&self) -> Option<OutboxStats> {
        self.0.shared.spool.as_ref().map(OutboxSession::stats)
    }

    /// Whether there is a connection now.
    pub fn is_connected(&self) -> bool {
        self.0.shared.session.lock().is_attached()
    }

    /// Waits for everything that was published, at most the operation timeout, then says goodbye. What is in the
    /// outbox is waited for only while there is a connection: it is safe.
    pub async fn close(&self) -> Result<()> {
        let shared = &self.0.shared;
        if shared.ended.lock().is_some() {
            return Ok(());
        }
        let settle = async {
            tokio::select! {
                () = shared.settle(None) => {}
                () = shared.detached(), if shared.spool.is_some() => {}
            }
        };
        let settled = tokio::time::timeout(shared.options.operation_timeout, settle).await;
        shared.closing.notify_one();
        shared.say_goodbye().await;
        if shared.spool.is_some() {
            let shared = Arc::clone(shared);
            let _ = tokio::task::spawn_blocking(move || shared.close_outbox()).await;
        }
        shared.end(&Error::new(ErrorKind::Closed, "the client is closed"));
        self.0.tasks.iter().for_each(AbortHandle::abort);
        if settled.is_err() && shared.spool.is_none() {
            let text = "not everything was answered before the client was closed";
            return Err(Error::new(ErrorKind::Timeout, text));
        }
        Ok(())
    }

    /// Whether the client has ended.
    pub fn is_closed(&self) -> bool {
        self.0.shared.ended.lock().is_some()
    }

    fn check_open(&self) -> Result<()> {
        self.0.shared.check_open()
    }
}

impl Shared {
    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock()
    }

    fn check_open(&self) -> Result<()> {
        self.ended.lock().clone().map_or(Ok(()), Err)
    }

    /// Tells the driver that there is something to do, unless it knows.
    fn notify(&self) {
        if !self.notified.swap(true, Ordering::AcqRel)
            && let Some(link) = self.link.lock().as_ref()
        {
            link.wake();
        }
    }

    /// Hands on what the session has to tell. No lock may be held.
    fn dispatch(&self, events: &mut Vec<Event>) {
        let mut published = false;
        let mut durable = Vec::new();
        for event in events.drain(..) {
            match event {
                Event::Published(outcome) if outcome.owner & DURABLE != 0 => durable.push(outcome),
                Event::Published(outcome) => {
                    published = true;
                    self.published(outcome);
                }
                Event::Message { publish, token } => self.deliver(publish, token),
                Event::Subscribed { id, result } => self.answer(id, result),
                Event::Unsubscribed { id, result } => self.answer(id, result.map(|()| Vec::new())),
            }
        }
        // What a client that has ended did not get rid of stays in the outbox.
        if let Some(spool) = self.spool.as_ref().filter(|_| self.ended.lock().is_none()) {
            published |= !durable.is_empty();
            spool.ended(durable);
        }
        if published {
            self.settled.notify_waiters();
        }
    }

    /// Publications of a producer have ended.
    fn published(&self, outcome: Outcome) {
        self.budget.release(outcome.bytes);
        if outcome.count == 0 {
            return;
        }
        let producer = self.producers.lock().get(&outcome.owner).cloned();
        if let Some(producer) = producer {
            producer.settle(outcome);
        }
    }

    fn answer(&self, id: u32, result: Result<Vec<Reason>>) {
        if let Some(waiter) = self.answers.lock().remove(&id) {
            let _ = waiter.send(result);
        }
    }

    fn deliver(&self, publish: Publish, token: u64) {
        let consumers = self.routes.lock().of(&publish);
        let Some((last, others)) = consumers.split_last() else {
            if self.options.clean_start {
                // Nobody is subscribed any more: it is nobody's to acknowledge.
                self.acknowledge([token]);
            } else {
                // Of the session that was taken up: whom it is for is not here yet.
                self.unread.fetch_add(cost(&publish), Ordering::AcqRel);
                self.unclaimed.lock().push((publish, token));
            }
            return;
        };
        let message = Message::new(publish, token, consumers.len());
        for consumer in others {
            consumer.push(message.clone());
        }
        last.push(message);
    }

    /// A consumer has come: messages that wait for it.
    fn claim(&self, consumer: &ConsumerCore) {
        let claimed: Vec<(Publish, u64)> = {
            let mut unclaimed = self.unclaimed.lock();
            let (claimed, rest) =
                std::mem::take(&mut *unclaimed).into_iter().partition(|(p, _)| consumer.matches(&p.topic));
            *unclaimed = rest;
            claimed
        };
        for (publish, token) in claimed {
            let bytes = cost(&publish);
            consumer.push(Message::new(publish, token, 1));
            self.taken(bytes);
        }
    }

    /// Messages that all their consumers are done with.
    fn acknowledge(&self, tokens: impl IntoIterator<Item = u64>) {
        let now = Instant::now();
        {
            let mut session = self.session();
            for token in tokens {
                session.ack(now, token, None);
            }
        }
        self.notify();
    }

    /// Somebody has taken messages of `bytes`.
    fn taken(&self, bytes: usize) {
        let before = self.unread.fetch_sub(bytes, Ordering::AcqRel);
        if before - bytes <= self.options.receive_buffer / 2 && self.paused.swap(false, Ordering::AcqRel) {
            self.notify();
        }
    }

    /// Resolves when nothing is pending, of one owner or of all.
    async fn settle(&self, owner: Option<&ProducerCore>) {
        loop {
            let settled = self.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            let pending = match owner {
                Some(owner) => owner.pending(),
                None => {
                    let kept = self.spool.as_ref().map_or(0, OutboxSession::pending);
                    self.session().pending() + kept
                }
            };
            if pending == 0 || self.ended.lock().is_some() {
                return;
            }
            settled.await;
        }
    }

    /// Resolves when there is no connection.
    async fn detached(&self) {
        while self.session().is_attached() {
            let settled = self.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if self.session().is_attached() {
                settled.await;
            }
        }
    }

    /// Ends everything with `error`.
    fn end(&self, error: &Error) {
        {
            let mut ended = self.ended.lock();
            if ended.is_some() {
                return;
            }
            *ended = Some(error.clone());
        }
        *self.link.lock() = None;
        let mut events = Vec::new();
        {
            let mut session = self.session();
            session.close(error);
            events.extend(std::iter::from_fn(|| session.poll_event()));
        }
        self.dispatch(&mut events);
        if let Some(outbox) = self.take_outbox() {
            // Another client may have the file; what is on its way there may take a commit.
            self.runtime.spawn_blocking(move || outbox.close());
        }
        let consumers = self.routes.lock().take();
        for consumer in consumers {
            consumer.end(error.clone());
        }
        let producers = std::mem::take(&mut *self.producers.lock());
        for producer in producers.into_values() {
            producer.end(error.clone());
        }
        self.settled.notify_waiters();
    }

    /// Asks the session something and waits for SUBACK or UNSUBACK.
    async fn ask(&self, id: u32, ask: impl FnOnce(&mut Session)) -> Result<Vec<Reason>> {
        let (answer, answered) = oneshot::channel();
        self.answers.lock().insert(id, answer);
        ask(&mut self.session());
        self.notify();
        let limit = self.options.operation_timeout;
        match tokio::time::timeout(limit, answered).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Error::new(ErrorKind::Closed, "the client was closed")),
            Err(_) => {
                self.answers.lock().remove(&id);
                Err(Error::new(ErrorKind::Timeout, format!("the broker did not answer within {limit:?}")))
            }
        }
    }

    /// The version that is spoken.
    fn version(&self) -> Version {
        match self.level.load(Ordering::Relaxed) {
            3 => Version::V3_1,
            4 => Version::V3_1_1,
            _ => Version::V5,
        }
    }

    async fn say_goodbye(&self) {
        let link = self.link.lock().clone();
        let Some(link) = link else { return };
        let gone = link.lock().say_goodbye(Instant::now());
        link.wake();
        // The connection is gone when nobody holds it any more.
        drop(link);
        // The driver writes it and closes; a socket that takes nothing is not waited for.
        let _ = tokio::time::timeout(Duration::from_secs(1), gone).await;
    }
}

/// A client identifier that nobody else has: 23 letters and digits, which every server takes [MQTT-3.1.3-5].
pub fn random_client_id() -> String {
    use std::collections::hash_map::RandomState;
    use std::hash::BuildHasher;
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    // Each state is seeded by the operating system.
    let bits = (0..2).map(|i| RandomState::new().hash_one(i)).collect::<Vec<u64>>();
    let letter = |i: usize| char::from(LETTERS[(bits[i / 12] >> (5 * (i % 12)) & 31) as usize]);
    "penstock".chars().chain((0..15).map(letter)).collect()
}
