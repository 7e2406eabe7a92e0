//! A connection with what is attached to it, and the pool of connections.
//!
//! Producers and consumers outlive a connection. While attached they are in its routes; when it ends they
//! are told, and their supervisors look for another.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{Notify, oneshot, watch};
use tokio_rustls::TlsConnector;

use crate::client::pulsar::consumer::ConsumerPart;
use crate::client::pulsar::options::ClientOptions;
use crate::client::pulsar::producer::ProducerPart;
use crate::error::{Error, ErrorKind, Result};
use crate::machine::{Machine, earliest};
use crate::net::driver::{Host, Session, WRITE_HIGH_WATER, drive};
use crate::net::tcp::Pacing;
use crate::net::url::{Address, ServiceUrl};
use crate::net::{connect, tls};
use crate::pulsar::command::Command;
use crate::pulsar::connection::{Config, Connection as Protocol, Credentials, Event, ServerInfo};
use crate::sync::{Mutex, Rank};

/// What the driver runs: the protocol and the routes.
#[derive(Debug)]
pub(super) struct Attached {
    protocol: Protocol,
    waiting: HashMap<u64, oneshot::Sender<Result<Command>>>,
    pub(super) producers: HashMap<u64, Arc<ProducerPart>>,
    pub(super) consumers: HashMap<u64, Arc<ConsumerPart>>,
    ready: watch::Sender<Option<Result<ServerInfo>>>,
    challenged: Arc<Notify>,
    /// Set when a part finds that the broker broke the protocol.
    broken: Option<Error>,
    closing: bool,
}

impl Attached {
    /// The protocol, to send and ask.
    pub(super) fn protocol(&mut self) -> &mut Protocol {
        &mut self.protocol
    }

    fn command(&mut self, now: Instant, command: Command) {
        match command {
            Command::SendReceipt(receipt) => {
                // A receipt for a producer that has been closed is late, not wrong.
                if let Some(part) = self.producers.get(&receipt.producer_id).cloned()
                    && let Err(error) = part.handle_receipt(now, &receipt)
                {
                    self.broken = Some(error);
                }
            }
            Command::SendError(error) => {
                if let Some(part) = self.producers.get(&error.producer_id).cloned()
                    && let Err(error) = part.handle_send_error(now, &error)
                {
                    self.broken = Some(error);
                }
            }
            Command::CloseProducer(close) => {
                if let Some(part) = self.producers.remove(&close.producer_id) {
                    part.detach(now);
                }
            }
            Command::CloseConsumer(close) => {
                if let Some(part) = self.consumers.remove(&close.consumer_id) {
                    part.detach();
                }
            }
            Command::ActiveConsumerChange(change) => {
                if let Some(part) = self.consumers.get(&change.consumer_id) {
                    part.set_active(change.is_active());
                }
            }
            Command::ReachedEndOfTopic(end) => {
                if let Some(part) = self.consumers.get(&end.consumer_id) {
                    part.reached_end();
                }
            }
            // A close of the producer or consumer follows; the lookup then finds the new place.
            _ => {}
        }
    }
}

impl Host for Attached {
    type Machine = Protocol;

    fn machine(&mut self) -> &mut Protocol {
        &mut self.protocol
    }

    fn handle_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Ready(info) => {
                self.ready.send_replace(Some(Ok(info)));
            }
            Event::Response { request_id, result } => {
                if let Some(waiter) = self.waiting.remove(&request_id) {
                    let _ = waiter.send(result);
                }
            }
            // The request stays open without a deadline.
            Event::Queued { .. } => {}
            Event::Command(command) => self.command(now, command),
            Event::Entry { delivery, payload } => {
                if let Some(part) = self.consumers.get(&delivery.consumer_id) {
                    part.handle_entry(now, delivery, payload);
                }
            }
            Event::Challenge { .. } => self.challenged.notify_one(),
        }
    }

    fn turn(&mut self, now: Instant, unwritten: usize) -> Option<Instant> {
        if unwritten >= WRITE_HIGH_WATER {
            return None;
        }
        let mut next = None;
        for part in self.producers.values() {
            next = earliest(next, part.turn(now, self.protocol.transmit()));
        }
        for part in self.consumers.values() {
            next = earliest(next, part.turn(now, self.protocol.transmit()));
        }
        next
    }

    fn finished(&self) -> bool {
        self.closing || self.broken.is_some()
    }
}

/// A live connection.
#[derive(Debug)]
pub(super) struct Connection {
    session: Arc<Session<Attached>>,
    info: ServerInfo,
    /// Becomes true when the connection has ended.
    ended: watch::Receiver<bool>,
}

impl Connection {
    /// What the broker said of itself.
    pub(super) fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// Whether it still stands.
    pub(super) fn is_alive(&self) -> bool {
        !*self.ended.borrow()
    }

    /// The host and the driver's bell.
    pub(super) fn session(&self) -> &Arc<Session<Attached>> {
        &self.session
    }

    /// Asks and waits for the answer, at most the operation timeout. Dropping the future forgets the
    /// request; the broker may still carry it out.
    pub(super) async fn request(&self, command: impl FnOnce(u64) -> Command) -> Result<Command> {
        let (answer, answered) = oneshot::channel();
        let request_id = {
            let mut host = self.session.lock();
            if !self.is_alive() {
                return Err(Error::new(ErrorKind::Disconnected, "the connection has ended"));
            }
            let id = host.protocol.request(Instant::now(), command);
            host.waiting.insert(id, answer);
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

    /// Writes what is queued and ends the connection.
    pub(super) fn close(&self) {
        self.session.lock().closing = true;
        self.session.wake();
    }
}

/// Forgets a request whose future is dropped.
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

/// Which connection: where the socket goes, and for whom behind a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    physical: Address,
    proxy_to: Option<String>,
    index: usize,
}

type Slot = Arc<tokio::sync::Mutex<Option<Arc<Connection>>>>;

/// The connections of a client.
pub(super) struct Pool {
    options: ClientOptions,
    tls: Option<TlsConnector>,
    slots: Mutex<HashMap<Key, Slot>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool for the service at `url`.
    pub(super) fn new(options: ClientOptions, url: &ServiceUrl) -> Result<Self> {
        let tls = if url.tls { Some(tls::connector(&options.tls, None)?) } else { None };
        Ok(Self { options, tls, slots: Mutex::new(Rank::Pool, HashMap::new()) })
    }

    /// The connection to `physical`, on behalf of the broker `proxy_to` if that is behind it. `spread`
    /// chooses among several connections to one broker. Callers that come together share one attempt.
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
        if let Some(connection) = slot.as_ref().filter(|connection| connection.is_alive()) {
            return Ok(Arc::clone(connection));
        }
        let connection = Arc::new(self.open(&key).await?);
        *slot = Some(Arc::clone(&connection));
        Ok(connection)
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

    async fn open(&self, key: &Key) -> Result<Connection> {
        let credentials = credentials(&self.options).await?;
        let stream = connect(
            &key.physical.host,
            key.physical.port,
            self.tls.as_ref(),
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
        let session = Arc::new(Session::new(Attached {
            protocol: Protocol::new(config, Instant::now()),
            waiting: HashMap::new(),
            producers: HashMap::new(),
            consumers: HashMap::new(),
            ready,
            challenged: Arc::clone(&challenged),
            broken: None,
            closing: false,
        }));
        let (end, ended) = watch::channel(false);
        tokio::spawn(run(Arc::clone(&session), stream, end));
        tokio::spawn(refresh(Arc::clone(&session), self.options.clone(), challenged, ended.clone()));
        let info = match readied.wait_for(Option::is_some).await {
            Ok(info) => info.clone().expect("waited for it")?,
            Err(_) => {
                return Err(Error::new(ErrorKind::Disconnected, "the connection ended in the handshake"));
            }
        };
        Ok(Connection { session, info, ended })
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
    let error = match (result, host.broken.take()) {
        (_, Some(error)) | (Err(error), None) => error,
        (Ok(()), None) => Error::new(ErrorKind::Closed, "the client was closed"),
    };
    end.send_replace(true);
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
    drop(host);
    for part in producers.into_values() {
        part.detach(now);
    }
    for part in consumers.into_values() {
        part.detach();
    }
}

/// Answers the broker's challenges with fresh credentials for as long as the connection stands.
async fn refresh(
    session: Arc<Session<Attached>>,
    options: ClientOptions,
    challenged: Arc<Notify>,
    mut ended: watch::Receiver<bool>,
) {
    loop {
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            () = challenged.notified() => {}
        }
        match credentials(&options).await {
            Ok(credentials) => session.lock().protocol.authenticate(credentials.unwrap_or_default()),
            Err(error) => session.lock().broken = Some(error),
        }
        session.wake();
    }
}

/// The credentials of the moment.
async fn credentials(options: &ClientOptions) -> Result<Option<Credentials>> {
    let token = match &options.token {
        None if options.tls.certificate.is_some() => {
            return Ok(Some(Credentials { method: "tls".into(), ..Credentials::default() }));
        }
        None => return Ok(None),
        Some(token) => token.get().await?,
    };
    Ok(Some(Credentials { method: "token".into(), data: token.trim().to_owned().into() }))
}
