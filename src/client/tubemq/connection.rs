//! A connection with what is attached to it, the pool of connections, and the masters.
//!
//! Producers and partitions outlive a connection. While attached they are in its routes; when it ends they are told,
//! and look for another. A broker has one connection for producing and another for fetching, because it runs the calls
//! of a connection one after the other: a slow read would hold the writes up.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::sync::{oneshot, watch};
use tokio_rustls::TlsConnector;

use crate::client::tubemq::auth::Visit;
use crate::client::tubemq::consumer::Part;
use crate::client::tubemq::options::ClientOptions;
use crate::client::tubemq::producer::Core as ProducerCore;
use crate::error::{Error, ErrorKind, Result};
use crate::machine::{Machine, earliest};
use crate::net::driver::{Host, Session, WRITE_HIGH_WATER, drive};
use crate::net::tcp::Pacing;
use crate::net::url::{Address, ServiceUrl};
use crate::net::{connect, tls};
use crate::sync::{Mutex, Rank};
use crate::tubemq::connection::{Answer, Connection as Protocol};
use crate::tubemq::{Request, Response};

/// Bytes that producers may add to the socket's queue in one turn.
const TURN: usize = 256 << 10;

/// Where an answer goes.
#[derive(Debug)]
pub(super) enum Route {
    /// Who waits for this one.
    Waiter(oneshot::Sender<Result<Response>>),
    /// A message of a producer, by its number.
    Send(Arc<ProducerCore>, u64),
    /// A partition of a consumer.
    Part(Arc<Part>),
}

/// What the driver runs: the protocol and the routes.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) protocol: Protocol<Route>,
    /// By the number of the producer; with the broker's.
    pub(super) producers: HashMap<u64, (Arc<ProducerCore>, u32)>,
    pub(super) parts: HashMap<u64, Arc<Part>>,
    visit: Arc<Visit>,
    closing: bool,
}

impl Host for Attached {
    type Machine = Protocol<Route>;

    fn machine(&mut self) -> &mut Protocol<Route> {
        &mut self.protocol
    }

    fn handle_event(&mut self, now: Instant, answer: Answer<Route>) {
        match answer.tag {
            Route::Waiter(waiter) => {
                let _ = waiter.send(answer.result);
            }
            // What comes of it is told in the turn that follows, of many answers at once.
            Route::Send(producer, number) => producer.handle_answer(now, number, answer.result),
            Route::Part(part) => part.handle_answer(now, answer.result),
        }
    }

    fn turn(&mut self, now: Instant, unwritten: usize) -> Option<Instant> {
        let visit = self.visit.info();
        let mut next = None;
        for (producer, broker) in self.producers.values() {
            let room = if unwritten < WRITE_HIGH_WATER { TURN } else { 0 };
            next = earliest(next, producer.turn(now, *broker, &visit, room, &mut self.protocol));
        }
        for part in self.parts.values() {
            next = earliest(next, part.turn(now, &visit, &mut self.protocol));
        }
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
    /// Becomes true when the connection has ended.
    ended: watch::Receiver<bool>,
}

impl Connection {
    /// Whether it still stands.
    pub(super) fn is_alive(&self) -> bool {
        !*self.ended.borrow()
    }

    /// The host and the driver's bell.
    pub(super) fn session(&self) -> &Arc<Session<Attached>> {
        &self.session
    }

    /// Asks and waits for the answer, at most the request timeout. Dropping the future forgets the answer.
    pub(super) async fn request(&self, request: Request) -> Result<Response> {
        let (answer, answered) = oneshot::channel();
        {
            let mut host = self.session.lock();
            if !self.is_alive() {
                return Err(Error::new(ErrorKind::Disconnected, "the connection has ended"));
            }
            host.protocol.call(Instant::now(), request, Route::Waiter(answer));
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

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// Calls to a master.
    Master,
    /// Messages to a broker.
    Produce,
    /// Messages from a broker.
    Fetch,
}

type Slot = Arc<tokio::sync::Mutex<Option<Arc<Connection>>>>;

/// The connections of a client.
pub(super) struct Pool {
    options: ClientOptions,
    tls: Option<TlsConnector>,
    visit: Arc<Visit>,
    slots: Mutex<HashMap<(Address, Purpose), Slot>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool for the service at `url`.
    pub(super) fn new(options: ClientOptions, url: &ServiceUrl, visit: Arc<Visit>) -> Result<Self> {
        if url.tls && (options.tls.certificate.is_none() || options.tls.key.is_none()) {
            let text = "TubeMQ's TLS is mutual: give tls_cert and tls_key. A connection without a client \
                        certificate ends the server's process where it is set up for one-way TLS";
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let tls = if url.tls { Some(tls::connector(&options.tls, None)?) } else { None };
        Ok(Self { options, tls, visit, slots: Mutex::new(Rank::Pool, HashMap::new()) })
    }

    /// The connection to `address`. Callers that come together share one attempt.
    pub(super) async fn get(&self, address: &Address, purpose: Purpose) -> Result<Arc<Connection>> {
        let slot = Arc::clone(self.slots.lock().entry((address.clone(), purpose)).or_default());
        let mut slot = slot.lock().await;
        if let Some(connection) = slot.as_ref().filter(|connection| connection.is_alive()) {
            return Ok(Arc::clone(connection));
        }
        let connection = Arc::new(self.open(address).await?);
        *slot = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Ends the connections of a client that nobody holds any more.
    pub(super) fn abandon(&self) {
        for slot in self.slots.lock().values() {
            if let Ok(slot) = slot.try_lock()
                && let Some(connection) = slot.as_ref()
            {
                connection.close();
            }
        }
    }

    /// Every connection that stands.
    pub(super) async fn all(&self) -> Vec<Arc<Connection>> {
        let slots: Vec<Slot> = self.slots.lock().values().cloned().collect();
        let mut all = Vec::new();
        for slot in slots {
            all.extend(slot.lock().await.clone().filter(|connection| connection.is_alive()));
        }
        all
    }

    async fn open(&self, address: &Address) -> Result<Connection> {
        let timeout = self.options.connect_timeout;
        let stream = connect(&address.host, address.port, self.tls.as_ref(), Pacing::Prompt, timeout).await?;
        let session = Arc::new(Session::new(Attached {
            protocol: Protocol::new(self.options.request_timeout),
            producers: HashMap::new(),
            parts: HashMap::new(),
            visit: Arc::clone(&self.visit),
            closing: false,
        }));
        let (end, ended) = watch::channel(false);
        tokio::spawn(run(Arc::clone(&session), stream, end));
        Ok(Connection { session, ended })
    }
}

/// Drives the socket to its end, then tells everybody who hangs on it.
async fn run<S>(session: Arc<Session<Attached>>, stream: S, end: watch::Sender<bool>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let result = drive(&*session, stream).await;
    let now = Instant::now();
    let mut host = session.lock();
    let error = match result {
        // What the peer sent or failed to answer: to whoever has a call open the connection was cut.
        Err(error) => match error.kind() {
            ErrorKind::Disconnected => error,
            _ => Error::new(ErrorKind::Disconnected, format!("the connection was given up: {error}")),
        },
        Ok(()) => Error::new(ErrorKind::Disconnected, "the connection was closed"),
    };
    end.send_replace(true);
    host.protocol.end(&error);
    while let Some(event) = host.protocol.poll_event() {
        host.handle_event(now, event);
    }
    let producers = std::mem::take(&mut host.producers);
    let parts = std::mem::take(&mut host.parts);
    drop(host);
    for (producer, broker) in producers.into_values() {
        producer.lost(now, broker);
    }
    for part in parts.into_values() {
        part.detach(now);
    }
}

/// The masters, of which one is active.
#[derive(Debug)]
pub(super) struct Masters {
    addresses: Vec<Address>,
    pool: Arc<Pool>,
    /// The one that is asked first; moves on when it fails.
    preferred: AtomicUsize,
}

impl Masters {
    pub(super) fn new(url: &ServiceUrl, pool: Arc<Pool>) -> Self {
        Self { addresses: url.addresses.clone(), pool, preferred: AtomicUsize::new(0) }
    }

    /// Asks the active master, looking for it if need be, each master once. A response of any code is an answer.
    pub(super) async fn ask(&self, request: Request) -> Result<Response> {
        let mut failures = Vec::new();
        for _ in 0..self.addresses.len() {
            let index = self.preferred.load(Ordering::Relaxed);
            let address = &self.addresses[index % self.addresses.len()];
            let asked = match self.pool.get(address, Purpose::Master).await {
                Ok(connection) => connection.request(request.clone()).await,
                Err(error) => Err(error),
            };
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

    /// The address that is asked first.
    pub(super) fn preferred(&self) -> &Address {
        &self.addresses[self.preferred.load(Ordering::Relaxed) % self.addresses.len()]
    }
}

/// What came of asking each master. One that is not there says less than a standby, and that less than one that failed.
fn no_master(failures: &[(&Address, Error)]) -> Error {
    let says = |(_, error): &&(&Address, Error)| match error.kind() {
        ErrorKind::ConnectFailed => 0,
        ErrorKind::ServiceNotReady => 1,
        _ => 2,
    };
    let Some((_, telling)) = failures.iter().max_by_key(says) else {
        return Error::new(ErrorKind::ConnectFailed, "there is no master to ask");
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
