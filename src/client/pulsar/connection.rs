//! A connection with its routes, and the connection pool.
//!
//! Producers and consumers outlive a connection. While the broker serves a partition over a
//! connection, the partition is in the connection's routes, as a [`ProducerRoute`] or a
//! [`ConsumerRoute`]. When the connection ends, [`detach`](ProducerRoute::detach) reaches each of
//! them, and their supervisors open another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{Notify, oneshot, watch};

use crate::agenda::{Agenda, Wakes};
use crate::journal::{Attempts, Journal, Line};
use crate::logger;
use crate::pulsar::directions::Directions;
use crate::pulsar::options::{Basic, ClientOptions};
use crate::wrong_port;
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::first_bytes::PeerProtocol;
use forebay_base::machine::Machine;
use forebay_base::random::HashMap;
use forebay_base::sync::{Mutex, Rank};
use forebay_base::transmit::Transmit;
use forebay_net::driver::drive;
use forebay_net::session::{Host, Session, WRITE_HIGH_WATER};
use forebay_net::tcp::Pacing;
use forebay_net::url::{Address, ServiceUrl};
use forebay_net::{connect, tls};
use forebay_pulsar::command::Command;
use forebay_pulsar::connection::{Config, Connection as Protocol, Credentials, Event, ServerInfo};
use forebay_pulsar::frame::Payload;
use forebay_pulsar::pb::command_topic_migrated::ResourceType;
use forebay_pulsar::{hot, pb};
use tracing::warn;

/// Cause of the loss of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// The connection ended.
    ConnectionEnded,
    /// The broker closed the producer or consumer and keeps the connection.
    ClosedByBroker,
}

/// A producer's partition, as its connection sees it.
pub(super) trait ProducerRoute: std::fmt::Debug + Send + Sync {
    /// Directions of brokers to it.
    fn directions(&self) -> &Directions;

    fn topic(&self) -> &str;

    /// Adds what is due to `out`; returns the time of the next turn.
    fn turn(&self, now: Instant, out: &mut Transmit) -> Option<Instant>;

    fn handle_receipt(&self, receipt: &hot::SendReceipt) -> Result<()>;

    fn handle_send_error(&self, error: &pb::CommandSendError) -> Result<()>;

    /// The route is gone: stop sending at once.
    fn detach(&self, now: Instant, loss: Loss);
}

/// A consumer's partition, as its connection sees it.
pub(super) trait ConsumerRoute: std::fmt::Debug + Send + Sync {
    /// Directions of brokers to it.
    fn directions(&self) -> &Directions;

    fn topic(&self) -> &str;

    /// Adds what is due to `out`; returns the time of the next turn.
    fn turn(&self, now: Instant, out: &mut Transmit) -> Option<Instant>;

    /// An error means that the connection must be closed.
    fn handle_entry(&self, now: Instant, delivery: hot::Delivery, payload: Payload) -> Result<()>;

    /// Whether this consumer is the one served, on a Failover subscription.
    fn set_active(&self, active: bool);

    /// The topic was terminated and every message acknowledged: no more will come.
    fn reached_end(&self);

    /// The route is gone.
    fn detach(&self, loss: Loss);
}

/// A watcher of a list of topics, as its connection sees it.
pub(super) trait WatcherRoute: std::fmt::Debug + Send + Sync {
    /// Topics have appeared or disappeared.
    fn changed(&self, update: pb::CommandWatchTopicUpdate);
}

/// Host of the driver: the protocol with its routes.
#[derive(Debug)]
pub(super) struct Attached {
    protocol: Protocol,
    /// Callers that wait for an answer, by request id.
    waiting: HashMap<u64, Waiter>,
    producers: HashMap<u64, Arc<dyn ProducerRoute>>,
    consumers: HashMap<u64, Arc<dyn ConsumerRoute>>,
    /// Which of them have something to do.
    agenda: Agenda<PartId>,
    wakes: Arc<Wakes<PartId>>,
    /// Watchers of lists of topics.
    pub(super) watchers: HashMap<u64, Arc<dyn WatcherRoute>>,
    ready: watch::Sender<Option<Result<ServerInfo>>>,
    challenged: Arc<Notify>,
    line: Line,
    /// Whether it has TLS.
    secure: bool,
    /// Set when a partition finds that the broker violated the protocol.
    broken: Option<Error>,
    closing: bool,
}

/// A caller that waits for an answer.
#[derive(Debug)]
struct Waiter {
    answer: oneshot::Sender<Result<Command>>,
    /// The partition without which there will be no answer.
    of: Option<PartId>,
}

impl Attached {
    /// The protocol, to queue commands and requests.
    pub(super) fn protocol(&mut self) -> &mut Protocol {
        &mut self.protocol
    }

    /// Puts a producer into the routes.
    pub(super) fn add_producer(&mut self, id: u64, route: Arc<dyn ProducerRoute>) {
        self.producers.insert(id, route);
        self.agenda.insert(PartId::Producer(id));
    }

    /// Puts a consumer into the routes. Returns whether it was not there.
    pub(super) fn add_consumer(&mut self, id: u64, route: Arc<dyn ConsumerRoute>) -> bool {
        self.agenda.insert(PartId::Consumer(id));
        self.consumers.insert(id, route).is_none()
    }

    /// Whether a partition is in the routes.
    pub(super) fn has(&self, part: PartId) -> bool {
        match part {
            PartId::Producer(id) => self.producers.contains_key(&id),
            PartId::Consumer(id) => self.consumers.contains_key(&id),
        }
    }

    fn remove_producer(&mut self, id: u64) -> Option<Arc<dyn ProducerRoute>> {
        self.agenda.remove(PartId::Producer(id));
        self.producers.remove(&id)
    }

    fn remove_consumer(&mut self, id: u64) -> Option<Arc<dyn ConsumerRoute>> {
        self.agenda.remove(PartId::Consumer(id));
        self.consumers.remove(&id)
    }

    /// The producer that the broker told something: it may have something to do now.
    fn told_producer(&mut self, id: u64) -> Option<Arc<dyn ProducerRoute>> {
        let part = self.producers.get(&id).cloned()?;
        self.agenda.add(PartId::Producer(id));
        Some(part)
    }

    /// The consumer that the broker told something.
    fn told_consumer(&mut self, id: u64) -> Option<&dyn ConsumerRoute> {
        let part = self.consumers.get(&id)?;
        self.agenda.add(PartId::Consumer(id));
        Some(&**part)
    }

    /// A close of the producer or consumer follows.
    fn migrated(&self, moved: pb::CommandTopicMigrated) {
        let (id, kind) = (moved.resource_id, moved.resource_type());
        let named = (moved.broker_service_url, moved.broker_service_url_tls);
        match kind {
            ResourceType::Producer => {
                if let Some(part) = self.producers.get(&id) {
                    part.directions().migrate(part.topic(), &named, self.secure);
                }
            }
            ResourceType::Consumer => {
                if let Some(part) = self.consumers.get(&id) {
                    part.directions().migrate(part.topic(), &named, self.secure);
                }
            }
        }
    }

    /// Ends the requests of a partition that the broker has closed: it answers none of them.
    fn settle_requests(&mut self, part: PartId) {
        for (request_id, waiter) in self.waiting.extract_if(|_, waiter| waiter.of == Some(part)) {
            self.protocol.abandon(request_id);
            let text = "the broker closed the consumer before it answered";
            let _ = waiter.answer.send(Err(Error::new(ErrorKind::Disconnected, text)));
        }
    }

    fn command(&mut self, now: Instant, command: Command) {
        match command {
            Command::SendReceipt(receipt) => {
                // A receipt for a producer that has been closed is late, not wrong.
                if let Some(part) = self.told_producer(receipt.producer_id)
                    && let Err(error) = part.handle_receipt(&receipt)
                {
                    self.broken = Some(error);
                }
            }
            Command::SendError(error) => {
                if let Some(part) = self.told_producer(error.producer_id)
                    && let Err(error) = part.handle_send_error(&error)
                {
                    self.broken = Some(error);
                }
            }
            Command::CloseProducer(close) => {
                if let Some(part) = self.remove_producer(close.producer_id) {
                    let named = (close.assigned_broker_service_url, close.assigned_broker_service_url_tls);
                    part.directions().assign(&named, self.secure);
                    part.detach(now, Loss::ClosedByBroker);
                }
            }
            Command::CloseConsumer(close) => {
                if let Some(part) = self.remove_consumer(close.consumer_id) {
                    let named = (close.assigned_broker_service_url, close.assigned_broker_service_url_tls);
                    part.directions().assign(&named, self.secure);
                    part.detach(Loss::ClosedByBroker);
                    self.settle_requests(PartId::Consumer(close.consumer_id));
                }
            }
            Command::ActiveConsumerChange(change) => {
                if let Some(part) = self.told_consumer(change.consumer_id) {
                    part.set_active(change.is_active());
                }
            }
            Command::ReachedEndOfTopic(end) => {
                if let Some(part) = self.told_consumer(end.consumer_id) {
                    part.reached_end();
                }
            }
            Command::WatchTopicUpdate(update) => {
                if let Some(watcher) = self.watchers.get(&update.watcher_id) {
                    watcher.changed(update);
                }
            }
            Command::TopicMigrated(moved) => self.migrated(moved),
            _ => {}
        }
    }
}

impl Host for Attached {
    type Machine = Protocol;

    fn machine(&mut self) -> &mut Protocol {
        &mut self.protocol
    }

    fn first_bytes(&mut self, first: &[u8]) -> Result<()> {
        wrong_port::check(PeerProtocol::Pulsar, self.line.address(), first)
    }

    fn handle_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Ready(info) => {
                self.line.up(None);
                self.ready.send_replace(Some(Ok(info)));
            }
            Event::Response { request_id, result } => {
                if let Some(waiter) = self.waiting.remove(&request_id) {
                    let _ = waiter.answer.send(result);
                }
            }
            // The request stays open without a deadline.
            Event::Queued { .. } => {}
            Event::Command(command) => self.command(now, command),
            Event::Entry { delivery, payload } => {
                if self.broken.is_none()
                    && let Some(part) = self.told_consumer(delivery.consumer_id)
                    && let Err(error) = part.handle_entry(now, delivery, payload)
                {
                    self.broken = Some(error);
                }
            }
            Event::Challenge { .. } => self.challenged.notify_one(),
        }
    }

    fn turn(&mut self, now: Instant, unwritten: usize) -> Option<Instant> {
        if unwritten == 0 {
            self.protocol.answer_pings();
        }
        if unwritten >= WRITE_HIGH_WATER {
            return None;
        }
        self.agenda.begin(now, &self.wakes);
        while let Some(part) = self.agenda.next() {
            let out = self.protocol.transmit();
            let again = match part {
                PartId::Producer(id) => self.producers.get(&id).and_then(|part| part.turn(now, out)),
                PartId::Consumer(id) => self.consumers.get(&id).and_then(|part| part.turn(now, out)),
            };
            self.agenda.ask_again(part, again);
        }
        self.agenda.deadline()
    }

    fn finished(&self) -> bool {
        self.closing || self.broken.is_some()
    }
}

/// A live connection.
#[derive(Debug)]
pub(super) struct Connection {
    session: Arc<Session<Attached>>,
    wakes: Arc<Wakes<PartId>>,
    /// Address of the broker, which may be behind a proxy.
    broker: String,
    /// Address of the proxy through which it goes.
    proxy: Option<Address>,
    info: ServerInfo,
    /// Why the connection has ended.
    ended: watch::Receiver<Option<Error>>,
}

impl Connection {
    /// The broker's answer to CONNECT: CONNECTED.
    pub(super) fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// Address of the broker, also behind a proxy.
    pub(super) fn broker(&self) -> &str {
        &self.broker
    }

    /// Address of the proxy through which it goes.
    pub(super) fn proxy(&self) -> Option<&Address> {
        self.proxy.as_ref()
    }

    /// Whether it has not ended.
    pub(super) fn is_alive(&self) -> bool {
        self.ended.borrow().is_none()
    }

    /// Resolves when it has ended.
    pub(super) async fn ended(&self) {
        let _ = self.ended.clone().wait_for(Option::is_some).await;
    }

    /// The routes and the protocol, and how to wake the driver.
    pub(super) fn session(&self) -> &Arc<Session<Attached>> {
        &self.session
    }

    /// Has the driver ask a partition what it has to do.
    pub(super) fn wake(&self, part: PartId) {
        self.wakes.add(part);
        self.session.wake();
    }

    /// Has a partition's message sent, on this thread if the driver has nothing to do.
    pub(super) fn write(&self, part: PartId) {
        self.wakes.add(part);
        self.session.write();
    }

    /// Sends a request and waits for the answer, at most the operation timeout. Dropping the future
    /// abandons the request; the broker may still carry it out.
    pub(super) async fn request(&self, command: impl FnOnce(u64) -> Command) -> Result<Command> {
        self.request_for(None, command).await
    }

    /// The same for a request about a partition, which ends with `Disconnected` as soon as the
    /// broker closes the partition.
    pub(super) async fn request_of(
        &self,
        part: PartId,
        command: impl FnOnce(u64) -> Command,
    ) -> Result<Command> {
        self.request_for(Some(part), command).await
    }

    async fn request_for(&self, of: Option<PartId>, command: impl FnOnce(u64) -> Command) -> Result<Command> {
        let (answer, answered) = oneshot::channel();
        let request_id = {
            let mut host = self.session.lock();
            if let Some(error) = &*self.ended.borrow() {
                return Err(error.clone());
            }
            if of.is_some_and(|part| !host.has(part)) {
                let text = "the broker has closed the consumer, and it is not subscribed again yet";
                return Err(Error::new(ErrorKind::Disconnected, text));
            }
            let id = host.protocol.request(clock::now(), command);
            host.waiting.insert(id, Waiter { answer, of });
            id
        };
        self.session.wake();
        let guard = Abandon { session: &self.session, request_id };
        let result = answered.await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Disconnected, "the connection ended before the answer"))
        });
        std::mem::forget(guard);
        result
    }

    /// Takes a partition out of the routes.
    pub(super) fn remove_route(&self, part: PartId) {
        // Dropped after the lock: it may be the last reference.
        let _routes = {
            let mut host = self.session.lock();
            match part {
                PartId::Producer(id) => (host.remove_producer(id), None),
                PartId::Consumer(id) => (None, host.remove_consumer(id)),
            }
        };
    }

    /// Closes a partition at the broker. A failure is ignored: the broker forgets the partition
    /// with the connection.
    pub(super) async fn close_part(&self, part: PartId) {
        let _ = self.request(|request_id| part.close_command(request_id)).await;
    }

    /// Closes a partition at the broker without waiting for the answer.
    pub(super) fn close_part_quietly(&self, part: PartId) {
        let close = |request_id| part.close_command(request_id);
        self.session.lock().protocol.request(clock::now(), close);
        self.session.wake();
    }

    /// Writes what is queued and ends the connection.
    pub(super) fn close(&self) {
        self.session.lock().closing = true;
        self.session.wake();
    }
}

/// The id under which the broker knows a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum PartId {
    Producer(u64),
    Consumer(u64),
}

impl PartId {
    fn close_command(self, request_id: u64) -> Command {
        match self {
            Self::Producer(producer_id) => Command::CloseProducer(pb::CommandCloseProducer {
                producer_id,
                request_id,
                ..Default::default()
            }),
            Self::Consumer(consumer_id) => Command::CloseConsumer(pb::CommandCloseConsumer {
                consumer_id,
                request_id,
                ..Default::default()
            }),
        }
    }
}

/// Undoes an open that failed or was given up: takes the partition out of the routes and closes it
/// at the broker, which would otherwise keep a registration that makes the next attempt busy.
pub(super) struct Withdraw<'a> {
    pub(super) connection: &'a Connection,
    pub(super) part: PartId,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        self.connection.remove_route(self.part);
        if self.connection.is_alive() {
            self.connection.close_part_quietly(self.part);
        }
    }
}

/// Abandons a request whose future is dropped.
struct Abandon<'a> {
    session: &'a Session<Attached>,
    request_id: u64,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        let mut host = self.session.lock();
        host.waiting.remove(&self.request_id);
        host.protocol.abandon(self.request_id);
    }
}

/// A connection in its handshake. Dropping it ends the connection, which belongs to no one else
/// yet.
struct Opening(Option<Arc<Session<Attached>>>);

impl Opening {
    /// Hands the connection over.
    fn finish(mut self) -> Arc<Session<Attached>> {
        self.0.take().expect("taken once")
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(session) = &self.0 {
            session.lock().closing = true;
            session.wake();
        }
    }
}

/// Key of a connection: the address, the broker behind a proxy, and a number when there are
/// several.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    physical: Address,
    proxy_to: Option<String>,
    index: usize,
}

/// The connection to one key, and the attempts to open it.
#[derive(Default)]
struct Slot {
    connection: Option<Arc<Connection>>,
    attempts: Attempts,
}

type SharedSlot = Arc<tokio::sync::Mutex<Slot>>;

/// The connections of a client.
pub(super) struct Pool {
    options: ClientOptions,
    tls: Option<Arc<tls::FollowingConnector>>,
    journal: Arc<Journal>,
    slots: Mutex<HashMap<Key, SharedSlot>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Drop for Pool {
    /// Ends the connections of a client that was dropped. A supervisor may have opened one after
    /// the client had closed the others.
    fn drop(&mut self) {
        for slot in self.slots.lock().values() {
            // The pool's users have ended, so that no one holds a slot.
            if let Some(connection) = slot.try_lock().ok().and_then(|slot| slot.connection.clone()) {
                connection.close();
            }
        }
    }
}

impl Pool {
    /// A pool for the service at `url`.
    pub(super) fn new(options: ClientOptions, url: &ServiceUrl, journal: Arc<Journal>) -> Result<Self> {
        let tls =
            if url.tls { Some(Arc::new(tls::FollowingConnector::new(&options.tls, None)?)) } else { None };
        Ok(Self { options, tls, journal, slots: Mutex::new(Rank::Pool, HashMap::default()) })
    }

    /// The connection to `physical`, or through it to the broker `proxy_to`. `spread` chooses among
    /// several connections to one broker. Concurrent callers share one attempt.
    pub(super) async fn get(
        self: &Arc<Self>,
        physical: &Address,
        proxy_to: Option<String>,
        spread: u64,
    ) -> Result<Arc<Connection>> {
        let index = (spread % self.options.connections_per_broker.max(1) as u64) as usize;
        let key = Key { physical: physical.clone(), proxy_to, index };
        let slot = {
            let mut slots = self.slots.lock();
            Arc::clone(slots.entry(key.clone()).or_default())
        };
        let mut slot = slot.lock().await;
        if let Some(connection) = slot.connection.as_ref().filter(|connection| connection.is_alive()) {
            return Ok(Arc::clone(connection));
        }
        let broker = key.proxy_to.clone().unwrap_or_else(|| key.physical.to_string());
        let line = Line::new(&self.journal, &broker, slot.attempts);
        let connection = match self.open(&key, broker.clone(), line).await {
            Ok(connection) => Arc::new(connection),
            Err(error) => {
                self.journal.connect_failed(&broker, slot.attempts.fail(), &error, None);
                return Err(error);
            }
        };
        slot.attempts.succeed();
        slot.connection = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// TLS of the connections, if they have it.
    pub(super) fn tls(&self) -> Option<Arc<tls::FollowingConnector>> {
        self.tls.clone()
    }

    /// Every live connection.
    pub(super) async fn all(&self) -> Vec<Arc<Connection>> {
        let slots: Vec<_> = self.slots.lock().values().cloned().collect();
        let mut all = Vec::new();
        for slot in slots {
            let connection = slot.lock().await.connection.clone();
            all.extend(connection.filter(|connection| connection.is_alive()));
        }
        all
    }

    async fn open(&self, key: &Key, broker: String, line: Line) -> Result<Connection> {
        let credentials = credentials(&self.options).await?;
        let shown = credentials.as_ref().map(|credentials| credentials.data.clone()).unwrap_or_default();
        let (tls, trouble) = tls::FollowingConnector::get_of(self.tls.as_deref()).await;
        if let Some(error) = trouble {
            warn!(
                target: logger::PULSAR_CONNECTION,
                "the connection uses the certificates as they were: {error}",
            );
        }
        let stream = connect(
            &key.physical.host,
            key.physical.port,
            tls.as_ref(),
            Pacing::Kernel,
            self.options.connect_timeout,
        )
        .await?;
        let config = Config {
            credentials,
            proxy_to: key.proxy_to.clone(),
            keep_alive: self.options.keep_alive,
            handshake_timeout: self.options.connect_timeout,
            operation_timeout: self.options.operation_timeout,
            ..Config::default()
        };
        let (ready, mut readied) = watch::channel(None);
        let challenged = Arc::new(Notify::new());
        let wakes = Arc::<Wakes<PartId>>::default();
        let session = Arc::new(Session::new(
            Attached {
                protocol: Protocol::new(config, clock::now()),
                waiting: HashMap::default(),
                producers: HashMap::default(),
                consumers: HashMap::default(),
                agenda: Agenda::default(),
                wakes: Arc::clone(&wakes),
                watchers: HashMap::default(),
                ready,
                challenged: Arc::clone(&challenged),
                line,
                secure: self.tls.is_some(),
                broken: None,
                closing: false,
            },
            stream.writer(),
        ));
        let (end, ended) = watch::channel(None);
        tokio::spawn(run(Arc::clone(&session), stream, broker.clone(), end));
        let options = self.options.clone();
        tokio::spawn(refresh(Arc::clone(&session), options, challenged, ended.clone(), shown.clone()));
        let opening = Opening(Some(session));
        let info = readied.wait_for(Option::is_some).await.map(|info| info.clone().expect("waited for it"));
        let info = info.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Disconnected, "the connection ended in the handshake"))
        });
        if info.as_ref().is_err_and(|error| error.kind() == ErrorKind::Authentication) {
            refused(&self.options, &shown).await;
        }
        let info = info?;
        let proxy = key.proxy_to.is_some().then(|| key.physical.clone());
        Ok(Connection { session: opening.finish(), wakes, broker, proxy, info, ended })
    }
}

/// Drives the socket until it ends, then fails the open requests and detaches the routes.
async fn run<S>(session: Arc<Session<Attached>>, stream: S, broker: String, end: watch::Sender<Option<Error>>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let result = drive(&*session, stream).await;
    let now = clock::now();
    let mut host = session.lock();
    let error = match (result, host.broken.take()) {
        (_, Some(error)) | (Err(error), None) => error,
        (Ok(()), None) => Error::new(ErrorKind::Closed, "the client was closed"),
    };
    host.line.down(&error);
    let is_open = host.ready.borrow().is_some();
    let error = match is_open {
        true => given_up(error, &broker),
        false => not_opened(error, &broker),
    };
    end.send_replace(Some(error.clone()));
    host.protocol.fail_requests(&error);
    while let Some(event) = host.protocol.poll_event() {
        if matches!(event, Event::Response { .. }) {
            host.handle_event(now, event);
        }
    }
    host.ready.send_if_modified(|ready| match ready {
        None => {
            *ready = Some(Err(error));
            true
        }
        Some(_) => false,
    });
    let producers = std::mem::take(&mut host.producers);
    let consumers = std::mem::take(&mut host.consumers);
    host.agenda = Agenda::default();
    drop(host);
    for part in producers.into_values() {
        part.detach(now, Loss::ConnectionEnded);
    }
    for part in consumers.into_values() {
        part.detach(Loss::ConnectionEnded);
    }
}

/// The error of a connection that ended before the broker had accepted it. Bytes that are no frame
/// may come for a moment at a reconnect, so they are no reason to give up.
fn not_opened(cause: Error, broker: &str) -> Error {
    match cause.kind() {
        ErrorKind::Checksum | ErrorKind::FrameTooLarge | ErrorKind::Truncated => {
            Error::protocol(format!("{broker} did not answer in Pulsar: {}", cause.message()))
        }
        _ => wrong_port::unanswered(PeerProtocol::Pulsar, broker, cause),
    }
}

/// The error for requests of the connection. The bytes that end it are the broker's fault, and the
/// next connection may work.
fn given_up(cause: Error, broker: &str) -> Error {
    match cause.kind() {
        ErrorKind::Checksum
        | ErrorKind::FrameTooLarge
        | ErrorKind::Protocol
        | ErrorKind::Tls
        | ErrorKind::Truncated => Error::new(
            ErrorKind::Disconnected,
            format!("the connection to {broker} was given up: {}", cause.message()),
        ),
        _ => cause,
    }
}

/// Pause after the answer to a challenge.
const BETWEEN_CHALLENGES: Duration = Duration::from_secs(1);

/// Answers the broker's challenges with fresh credentials until the connection ends.
async fn refresh(
    session: Arc<Session<Attached>>,
    options: ClientOptions,
    challenged: Arc<Notify>,
    mut ended: watch::Receiver<Option<Error>>,
    mut shown: Bytes,
) {
    loop {
        tokio::select! {
            biased;
            _ = ended.wait_for(Option::is_some) => return,
            () = challenged.notified() => {}
        }
        // Brokers ask when the one they have is about to end.
        refused(&options, &shown).await;
        match credentials(&options).await {
            Ok(credentials) => {
                let credentials = credentials.unwrap_or_default();
                shown = credentials.data.clone();
                session.lock().protocol.authenticate(credentials);
            }
            Err(error) => session.lock().broken = Some(error),
        }
        session.wake();
        // Each answer asks the supplier of the token, and brokers challenge once in minutes.
        tokio::time::sleep(BETWEEN_CHALLENGES).await;
    }
}

/// Tells the supplier of the token that a broker has refused it, or wants another one.
pub(super) async fn refused(options: &ClientOptions, data: &[u8]) {
    if let Some(token) = &options.token {
        token.refused("token", data, options.connect_timeout).await;
    }
}

/// Current credentials; a token supplier is called each time.
pub(super) async fn credentials(options: &ClientOptions) -> Result<Option<Credentials>> {
    if let Some(Basic { method, username, password }) = &options.basic {
        let password = password.get("password", options.connect_timeout).await?;
        let data = format!("{username}:{password}").into();
        return Ok(Some(Credentials { method: method.clone(), data }));
    }
    let token = match &options.token {
        None if options.tls.certificate.is_some() => {
            return Ok(Some(Credentials { method: "tls".into(), ..Credentials::default() }));
        }
        None => return Ok(None),
        Some(token) => token.get("token", options.connect_timeout).await?,
    };
    Ok(Some(Credentials { method: "token".into(), data: token.trim().to_owned().into() }))
}
