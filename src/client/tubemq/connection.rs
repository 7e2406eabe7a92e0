//! A connection with its routes, the connection pool, and the masters.
//!
//! Producers and partitions outlive a connection. While they use one they are in its routes, as a
//! [`ProducerRoute`] or a [`PartitionRoute`]; when it ends they are told, and look for another. A
//! broker has one connection for producing and another for fetching, because it runs the calls of a
//! connection one after the other: a slow read would delay the writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use crate::journal::{Attempts, Journal, Line};
use crate::logger;
use crate::tubemq::auth::Visit;
use crate::tubemq::options::ClientOptions;
use crate::wrong_port;
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::first_bytes::PeerProtocol;
use forebay_base::machine::{Machine, earliest};
use forebay_base::random::HashMap;
use forebay_base::sync::{Mutex, Rank};
use forebay_net::driver::drive;
use forebay_net::session::{Host, Session};
use forebay_net::tcp::{Awaited, Pacing};
use forebay_net::url::{Address, ServiceUrl};
use forebay_net::{connect, tls};
use forebay_tubemq::connection::{Answer, Connection as Protocol};
use forebay_tubemq::{Request, Response, pb};
use tracing::warn;

/// Most bytes that producers add to the socket's queue in one turn.
const TURN: usize = 256 << 10;

/// A producer, as its connections see it.
pub(super) trait ProducerRoute: std::fmt::Debug + Send + Sync {
    /// Calls what is due at `broker`, at most `room` bytes; returns the time of the next turn.
    /// Without room that is when the socket has taken what is queued.
    fn turn(
        self: Arc<Self>,
        now: Instant,
        broker: u32,
        visit: &pb::AuthorizedInfo,
        room: usize,
        protocol: &mut Protocol<Route>,
    ) -> Option<Instant>;

    /// Handles the answer to message `number`. Its outcome is reported in the turn that follows,
    /// together with those of other answers.
    fn handle_answer(&self, now: Instant, number: u64, result: Result<Response>);

    /// The connection to `broker` has ended.
    fn connection_lost(&self, now: Instant, broker: u32);
}

/// A partition of a consumer, as its connection sees it.
pub(super) trait PartitionRoute: std::fmt::Debug + Send + Sync {
    /// Calls what is due; returns the time of the next turn.
    fn turn(
        self: Arc<Self>,
        now: Instant,
        visit: &pb::AuthorizedInfo,
        protocol: &mut Protocol<Route>,
    ) -> Option<Instant>;

    fn handle_answer(&self, now: Instant, result: Result<Response>);

    /// The connection has ended.
    fn connection_lost(&self);
}

/// Receiver of an answer.
#[derive(Debug)]
pub(super) enum Route {
    /// A caller that waits for it.
    Waiter(oneshot::Sender<Result<Response>>),
    /// A producer, with the number of the message.
    Message(Arc<dyn ProducerRoute>, u64),
    /// A partition of a consumer.
    Partition(Arc<dyn PartitionRoute>),
}

/// Host of the driver: the protocol with its routes.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) protocol: Protocol<Route>,
    /// Producers by their id, each with the id of this broker.
    pub(super) producers: HashMap<u64, (Arc<dyn ProducerRoute>, u32)>,
    pub(super) partitions: HashMap<u64, Arc<dyn PartitionRoute>>,
    visit: Arc<Visit>,
    /// Number of open calls, for the socket.
    awaited: Arc<Awaited>,
    line: Line,
    /// The peer has answered. The protocol has no handshake: only then is it known to speak it.
    heard: bool,
    closing: bool,
}

impl Host for Attached {
    type Machine = Protocol<Route>;

    fn machine(&mut self) -> &mut Protocol<Route> {
        &mut self.protocol
    }

    fn first_bytes(&mut self, first: &[u8]) -> Result<()> {
        wrong_port::check(PeerProtocol::TubeMq, self.line.address(), first)?;
        self.heard = true;
        self.line.up(None);
        Ok(())
    }

    fn handle_event(&mut self, now: Instant, answer: Answer<Route>) {
        match answer.tag {
            Route::Waiter(waiter) => {
                let _ = waiter.send(answer.result);
            }
            Route::Message(producer, number) => producer.handle_answer(now, number, answer.result),
            Route::Partition(partition) => partition.handle_answer(now, answer.result),
        }
    }

    fn turn(&mut self, now: Instant, unwritten: usize) -> Option<Instant> {
        let visit = self.visit.info();
        let mut next = None;
        // The driver takes what is queued when it has written what it took before. Until then more
        // would only be queued, and a turn that is due at once would make the driver spin while the
        // peer does not read.
        let room = if unwritten == 0 { TURN } else { 0 };
        for (producer, broker) in self.producers.values() {
            let producer = Arc::clone(producer);
            next = earliest(next, producer.turn(now, *broker, &visit, room, &mut self.protocol));
        }
        for partition in self.partitions.values() {
            next = earliest(next, Arc::clone(partition).turn(now, &visit, &mut self.protocol));
        }
        self.awaited.set(self.protocol.open_calls());
        next
    }

    fn finished(&self) -> bool {
        self.closing
    }
}

/// A live connection.
#[derive(Debug)]
pub(super) struct Connection {
    session: Arc<Session<Attached>>,
    /// Why the connection has ended.
    ended: watch::Receiver<Option<Error>>,
}

impl Connection {
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

    /// Calls and waits for the answer, at most the request timeout. Dropping the future drops the
    /// answer.
    pub(super) async fn request(&self, request: Request) -> Result<Response> {
        let (answer, answered) = oneshot::channel();
        {
            let mut host = self.session.lock();
            if let Some(error) = &*self.ended.borrow() {
                return Err(error.clone());
            }
            host.protocol.call(clock::now(), request, Route::Waiter(answer));
        }
        self.session.wake();
        answered.await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Disconnected, "the connection ended before the answer"))
        })
    }

    /// Writes what is queued and ends the connection.
    pub(super) fn close(&self) {
        self.session.lock().closing = true;
        self.session.wake();
    }
}

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// Calls to a master.
    Master,
    /// Messages to a broker.
    Produce,
    /// Messages from a broker.
    Fetch,
}

/// The connection to one address, and the attempts to open it.
#[derive(Default)]
struct Slot {
    connection: Option<Arc<Connection>>,
    attempts: Attempts,
}

type SharedSlot = Arc<tokio::sync::Mutex<Slot>>;

/// The connections of a client.
pub(super) struct Pool {
    options: ClientOptions,
    tls: Option<tls::FollowingConnector>,
    visit: Arc<Visit>,
    journal: Arc<Journal>,
    slots: Mutex<HashMap<(Address, Purpose), SharedSlot>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool for the service at `url`.
    pub(super) fn new(
        options: ClientOptions,
        url: &ServiceUrl,
        visit: Arc<Visit>,
        journal: Arc<Journal>,
    ) -> Result<Self> {
        if url.tls && (options.tls.certificate.is_none() || options.tls.key.is_none()) {
            let text = "TubeMQ's TLS is mutual: give tls_cert and tls_key. A connection without a client \
                        certificate ends the server's process where it is set up for one-way TLS";
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let tls = if url.tls { Some(tls::FollowingConnector::new(&options.tls, None)?) } else { None };
        Ok(Self { options, tls, visit, journal, slots: Mutex::new(Rank::Pool, HashMap::default()) })
    }

    /// The connection to `address`. Concurrent callers share one attempt.
    pub(super) async fn get(&self, address: &Address, purpose: Purpose) -> Result<Arc<Connection>> {
        let slot = Arc::clone(self.slots.lock().entry((address.clone(), purpose)).or_default());
        let mut slot = slot.lock().await;
        if let Some(connection) = slot.connection.as_ref().filter(|connection| connection.is_alive()) {
            return Ok(Arc::clone(connection));
        }
        match slot.connection.take() {
            Some(ended) if ended.session.lock().heard => slot.attempts.succeed(),
            Some(_) => _ = slot.attempts.fail(),
            None => {}
        }
        let line = Line::new(&self.journal, &address.to_string(), slot.attempts);
        let connection = match self.open(address, line).await {
            Ok(connection) => Arc::new(connection),
            Err(error) => {
                self.journal.connect_failed(&address.to_string(), slot.attempts.fail(), &error, None);
                return Err(error);
            }
        };
        slot.connection = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Ends the connections of a client that was dropped without `close`.
    pub(super) fn abandon(&self) {
        for slot in self.slots.lock().values() {
            if let Ok(slot) = slot.try_lock()
                && let Some(connection) = slot.connection.as_ref()
            {
                connection.close();
            }
        }
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

    async fn open(&self, address: &Address, line: Line) -> Result<Connection> {
        let timeout = self.options.connect_timeout;
        let (tls, trouble) = tls::FollowingConnector::get_of(self.tls.as_ref()).await;
        if let Some(error) = trouble {
            warn!(
                target: logger::TUBEMQ_CONNECTION,
                "the connection uses the certificates as they were: {error}",
            );
        }
        let awaited = Arc::new(Awaited::default());
        let pacing = Pacing::Gather(Arc::clone(&awaited));
        let stream = connect(&address.host, address.port, tls.as_ref(), pacing, timeout).await?;
        let session = Arc::new(Session::new(
            Attached {
                protocol: Protocol::new(self.options.request_timeout),
                producers: HashMap::default(),
                partitions: HashMap::default(),
                visit: Arc::clone(&self.visit),
                awaited,
                line,
                heard: false,
                closing: false,
            },
            stream.writer(),
        ));
        let (end, ended) = watch::channel(None);
        tokio::spawn(run(Arc::clone(&session), stream, end));
        Ok(Connection { session, ended })
    }
}

/// Drives the socket until it ends, then fails the open calls and tells the routes.
async fn run<S>(session: Arc<Session<Attached>>, stream: S, end: watch::Sender<Option<Error>>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let result = drive(&*session, stream).await;
    let now = clock::now();
    let mut host = session.lock();
    let closed = || Error::new(ErrorKind::Closed, "the client was closed");
    let heard = host.heard;
    host.line.ended(&result.as_ref().err().cloned().unwrap_or_else(closed));
    // Of a wrong port: the first registration is not tried again.
    let wrong = result.as_ref().err().filter(|error| !heard && error.kind() == ErrorKind::Protocol).cloned();
    let error = match result {
        Err(error) if !heard && error.kind() == ErrorKind::Disconnected => {
            wrong_port::unanswered(PeerProtocol::TubeMq, host.line.address(), error)
        }
        // The peer sent garbage or did not answer: for open calls the connection was cut.
        Err(error) => match error.kind() {
            ErrorKind::Disconnected | ErrorKind::Tls => error,
            _ => Error::new(ErrorKind::Disconnected, format!("the connection was given up: {error}")),
        },
        Ok(()) => Error::new(ErrorKind::Disconnected, "the connection was closed"),
    };
    end.send_replace(Some(error.clone()));
    host.protocol.fail_calls(&error);
    while let Some(mut answer) = host.protocol.poll_event() {
        if let (Some(wrong), Route::Waiter(_), Err(_)) = (&wrong, &answer.tag, &answer.result) {
            answer.result = Err(wrong.clone());
        }
        host.handle_event(now, answer);
    }
    let producers = std::mem::take(&mut host.producers);
    let partitions = std::mem::take(&mut host.partitions);
    drop(host);
    for (producer, broker) in producers.into_values() {
        producer.connection_lost(now, broker);
    }
    for partition in partitions.into_values() {
        partition.connection_lost();
    }
}

/// The masters, of which one is active.
#[derive(Debug)]
pub(super) struct Masters {
    addresses: Vec<Address>,
    pool: Arc<Pool>,
    /// Index of the master that is asked first; moves on when that one fails.
    preferred: AtomicUsize,
}

impl Masters {
    pub(super) fn new(url: &ServiceUrl, pool: Arc<Pool>) -> Self {
        Self { addresses: url.addresses.clone(), pool, preferred: AtomicUsize::new(0) }
    }

    /// Calls the active master; each master is tried at most once to find it. A response with any
    /// code is an answer.
    pub(super) async fn ask(&self, request: Request) -> Result<Response> {
        self.ask_within(Duration::MAX, request).await
    }

    /// The same, with a limit for each master beside those of its connection and of the request.
    pub(super) async fn ask_within(&self, limit: Duration, request: Request) -> Result<Response> {
        let mut failures = Vec::new();
        for _ in 0..self.addresses.len() {
            let index = self.preferred.load(Ordering::Relaxed);
            let address = &self.addresses[index % self.addresses.len()];
            let asked =
                async { self.pool.get(address, Purpose::Master).await?.request(request.clone()).await };
            let asked = tokio::time::timeout(limit, asked).await.unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Timeout, format!("{address} did not respond within {limit:?}")))
            });
            match asked {
                Ok(response) => return Ok(response),
                Err(error) => {
                    let next = index.wrapping_add(1);
                    let (order, preferred) = (Ordering::Relaxed, &self.preferred);
                    let _ = preferred.compare_exchange(index, next, order, order);
                    failures.push((address, error));
                }
            }
        }
        Err(no_master(&failures))
    }

    /// Address of the master that is asked first.
    pub(super) fn preferred(&self) -> &Address {
        &self.addresses[self.preferred.load(Ordering::Relaxed) % self.addresses.len()]
    }
}

/// The error when no master answered. It has the kind of the most telling failure: an unreachable
/// master tells less than a standby, and a standby less than one that failed.
fn no_master(failures: &[(&Address, Error)]) -> Error {
    let says = |(_, error): &&(&Address, Error)| match error.kind() {
        ErrorKind::ConnectFailed => 0,
        ErrorKind::ServiceNotReady => 1,
        _ => 2,
    };
    let Some((_, telling)) = failures.iter().max_by_key(says) else {
        return Error::new(ErrorKind::ConnectFailed, "the URL names no master");
    };
    if failures.len() == 1 {
        return telling.clone();
    }
    let each: Vec<String> =
        failures.iter().map(|(address, error)| format!("{address}: {}", error.message())).collect();
    let error = Error::new(telling.kind(), format!("no master answers: {}", each.join("; ")));
    match telling.peer_text() {
        Some(text) => error.with_peer_text(text),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has more to send than there is ever room for.
    #[derive(Debug)]
    struct Flood;

    impl ProducerRoute for Flood {
        fn turn(
            self: Arc<Self>,
            now: Instant,
            _: u32,
            _: &pb::AuthorizedInfo,
            room: usize,
            _: &mut Protocol<Route>,
        ) -> Option<Instant> {
            (room > 0).then_some(now)
        }

        fn handle_answer(&self, _: Instant, _: u64, _: Result<Response>) {}

        fn connection_lost(&self, _: Instant, _: u32) {}
    }

    /// Else the driver takes one turn after the other while the broker does not read.
    #[test]
    fn a_producer_sends_no_more_until_the_socket_has_taken_what_is_queued() {
        let mut host = Attached {
            protocol: Protocol::new(Duration::from_secs(10)),
            producers: [(0, (Arc::new(Flood) as _, 1))].into_iter().collect(),
            partitions: HashMap::default(),
            visit: Arc::default(),
            awaited: Arc::default(),
            line: Line::new(&Journal::new(|_| {}), "b:1", Attempts::default()),
            heard: false,
            closing: false,
        };
        let now = clock::now();
        assert_eq!(host.turn(now, 0), Some(now));
        assert_eq!(host.turn(now, 1), None);
    }
}
