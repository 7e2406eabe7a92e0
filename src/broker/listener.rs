//! Sockets, disk and clock for a [`Hub`]: everything here runs on the broker's one thread.
//!
//! A task for each connection, one that accepts, one that keeps the hub's time, one that takes the store's
//! reports. They share the hub without locks: nobody holds it over an `await`.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc as queue};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::broker::auth::TokenKey;
use crate::broker::pulsar::session::{Clock, Terms};
use crate::broker::pulsar::{Hub, Settings};
use crate::broker::store::{self, Directory, Found, Op, Stored};
use crate::broker::topic::log::Source;
use crate::broker::{Ask, Durability, Options};
use crate::error::{Error, ErrorKind, Result};
use crate::net::driver::{Endpoint, Turn, drive};
use crate::net::tls;
use crate::sqlite::{Report, Sync, Writer};
use crate::transmit::Transmit;

/// Longest TLS handshake.
const TLS_HANDSHAKE: Duration = Duration::from_secs(10);
/// How far the calendar may be off before it is set.
const CLOCK_SLACK_MS: u64 = 500;

/// The hub and what its tasks need.
struct Shared {
    hub: RefCell<Hub>,
    bells: RefCell<HashMap<u64, Rc<Notify>>>,
    timer: Notify,
    writer: Option<Writer<Op>>,
}

impl Shared {
    /// Calls the hub and passes on what it asks for.
    fn call<T>(&self, action: impl FnOnce(&mut Hub, Instant) -> T) -> T {
        let mut hub = self.hub.borrow_mut();
        let before = hub.poll_timeout();
        let result = action(&mut hub, Instant::now());
        loop {
            let mut ops = 0;
            while let Some(op) = hub.poll_op() {
                ops += 1;
                if let Some(writer) = &self.writer {
                    writer.submit(op);
                }
            }
            if self.writer.is_some() || ops == 0 {
                break;
            }
            let used = hub.used_bytes();
            hub.handle_report(Instant::now(), Report { jobs: ops, outcome: Ok(used) });
        }
        if !self.bells.borrow().is_empty() {
            let bells = self.bells.borrow();
            while let Some(id) = hub.poll_wake() {
                if let Some(bell) = bells.get(&id) {
                    bell.notify_one();
                }
            }
        }
        if hub.poll_timeout() != before {
            self.timer.notify_one();
        }
        result
    }
}

/// The broker's thread.
pub(super) fn run(
    options: Options,
    questions: queue::UnboundedReceiver<Ask>,
    started: &mpsc::SyncSender<Result<String>>,
) {
    let runtime =
        match tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = started.send(Err(error.into()));
                return;
            }
        };
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        if let Err(error) = serve(options, questions, started).await {
            let _ = started.send(Err(error));
        }
    });
}

async fn serve(
    options: Options,
    mut questions: queue::UnboundedReceiver<Ask>,
    started: &mpsc::SyncSender<Result<String>>,
) -> Result<()> {
    let tls = options.tls.as_ref().map(|(certificate, key)| acceptor(certificate, key)).transpose()?;
    let tokens = options.token_key.as_deref().map(TokenKey::new).transpose()?.map(Arc::new);
    check_bind(&options, tls.is_some() && tokens.is_some()).await?;
    let address = format!("{}:{}", bracketed(&options.host), options.port);
    let listener = TcpListener::bind((options.host.as_str(), options.port))
        .await
        .map_err(|error| Error::new(ErrorKind::Io, format!("cannot listen on {address}: {error}")))?;
    let port = listener.local_addr()?.port();
    let scheme = if tls.is_some() { "pulsar+ssl" } else { "pulsar" };
    let url = format!("{scheme}://{}:{port}", bracketed(&options.host));

    let (reports, mut reported) = queue::unbounded_channel();
    let store = open(&options, reports)?;
    let now = Instant::now();
    let clock = Clock::new(now, wall_ms());
    let settings = Settings {
        url: options.advertised_url.clone().unwrap_or_else(|| url.clone()),
        terms: Terms { max_message_size: options.max_message_size, keep_alive: options.keep_alive, tokens },
        clock,
        stored: store.writer.is_some(),
        auto_create: options.auto_create,
        partitions: options.default_partitions,
        deduplicate: options.deduplicate,
        retention: options.retention,
        retention_bytes: options.retention_bytes,
        max_store: options.max_store.unwrap_or(if store.writer.is_some() { 10 << 30 } else { 1 << 30 }),
        max_topics: options.max_topics,
        namespaces: options.namespaces.clone(),
    };
    let hub = Hub::new(settings, store.found, store.source, now);
    let shared = Rc::new(Shared {
        hub: RefCell::new(hub),
        bells: RefCell::default(),
        timer: Notify::new(),
        writer: store.writer,
    });
    let _ = started.send(Ok(url));

    let background = tokio::task::spawn_local({
        let shared = shared.clone();
        async move { keep_time(&shared, clock).await }
    });
    let accepting = tokio::task::spawn_local(accept(shared.clone(), listener, tls, options.max_connections));
    // What administration changed is answered like everything else: when it is written.
    let mut unanswered: VecDeque<(u64, mpsc::SyncSender<Result<()>>)> = VecDeque::new();
    loop {
        while unanswered.front().is_some_and(|(change, _)| *change <= shared.hub.borrow().written()) {
            if let Some((_, answer)) = unanswered.pop_front() {
                let _ = answer.send(shared.hub.borrow().failure());
            }
        }
        tokio::select! {
            question = questions.recv() => match question {
                Some(question) => unanswered.extend(answer(&shared, question)),
                None => break,
            },
            Some(report) = reported.recv() => shared.call(|hub, now| hub.handle_report(now, report)),
        }
    }
    accepting.abort();
    background.abort();
    // What was taken in gets its answer; then the last acknowledgements are written.
    shared.call(|hub, now| hub.shut_down(now));
    let unwritten = || shared.hub.borrow().written() < shared.hub.borrow().issued();
    while shared.writer.is_some() && unwritten() {
        match tokio::time::timeout(Duration::from_secs(5), reported.recv()).await {
            Ok(Some(report)) => shared.call(|hub, now| hub.handle_report(now, report)),
            _ => break,
        }
    }
    for bell in shared.bells.borrow().values() {
        bell.notify_one();
    }
    // A few turns for the last words.
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    Ok(())
}

struct Store {
    found: Found,
    source: Option<Box<dyn Source>>,
    writer: Option<Writer<Op>>,
}

fn open(options: &Options, reports: queue::UnboundedSender<Report>) -> Result<Store> {
    let Some(path) = options.data.as_ref().filter(|_| options.durability != Durability::Memory) else {
        // Message ids of an earlier run must not mean anything in this one.
        let next_topic = wall_ms() / 1000;
        return Ok(Store { found: Found { next_topic, ..Found::default() }, source: None, writer: None });
    };
    let directory = Directory::open(path)?;
    let sync = if options.durability == Durability::Fsync { Sync::Full } else { Sync::Os };
    let connection = directory.connect(sync)?;
    let found = store::load(&connection, wall_ms())?;
    let source: Box<dyn Source> = Box::new(Stored::new(directory.connect(sync)?));
    let writer = Writer::start(connection, move |report| {
        // The directory is free when the last word is written.
        let _ = &directory;
        let _ = reports.send(report);
    })?;
    Ok(Store { found, source: Some(source), writer: Some(writer) })
}

fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// Nobody but this machine may connect, unless what travels is encrypted and who comes is known.
async fn check_bind(options: &Options, safe: bool) -> Result<()> {
    if safe || options.allow_insecure_bind {
        return Ok(());
    }
    let addresses: Vec<IpAddr> = tokio::net::lookup_host((options.host.as_str(), options.port))
        .await
        .map_err(|error| Error::new(ErrorKind::InvalidArgument, format!("host {:?}: {error}", options.host)))?
        .map(|address| address.ip())
        .collect();
    if addresses.iter().all(IpAddr::is_loopback) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        format!(
            "{} can be reached by other machines: set tls and token_key, or allow_insecure_bind if that is meant",
            options.host
        ),
    ))
}

fn acceptor(certificate: &[u8], key: &[u8]) -> Result<TlsAcceptor> {
    let invalid =
        |error: &dyn std::fmt::Display| Error::new(ErrorKind::InvalidArgument, format!("tls: {error}"));
    let config = ServerConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid(&error))?
        .with_no_client_auth()
        .with_single_cert(tls::certificates("tls", certificate)?, tls::private_key("tls", key)?)
        .map_err(|error| invalid(&error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Answers, or gives the number of the change that the answer waits for.
fn answer(shared: &Shared, question: Ask) -> Option<(u64, mpsc::SyncSender<Result<()>>)> {
    let (changed, answer) = match question {
        Ask::CreateTopic(name, partitions, answer) => {
            (shared.call(|hub, _| hub.create_topic(&name, partitions).map(|()| hub.issued())), answer)
        }
        Ask::DeleteTopic(name, answer) => {
            (shared.call(|hub, _| hub.delete_topic(&name).map(|()| hub.issued())), answer)
        }
        // An answer that nobody waits for any more is no error.
        Ask::Topics(answer) => {
            let _ = answer.send(shared.hub.borrow().topics());
            return None;
        }
        Ask::TopicStats(name, answer) => {
            let _ = answer.send(shared.hub.borrow().topic_stats(&name));
            return None;
        }
        Ask::Stats(answer) => {
            let _ = answer.send(shared.hub.borrow().stats());
            return None;
        }
    };
    match changed {
        Ok(change) => Some((change, answer)),
        Err(error) => {
            let _ = answer.send(Err(error));
            None
        }
    }
}

async fn keep_time(shared: &Shared, mut clock: Clock) {
    loop {
        let now = Instant::now();
        if clock.wall_ms(now).abs_diff(wall_ms()) > CLOCK_SLACK_MS {
            clock = Clock::new(now, wall_ms());
            shared.call(|hub, _| hub.set_clock(clock));
        }
        let due = shared.hub.borrow().poll_timeout();
        tokio::select! {
            () = sleep_until(due) => shared.call(|hub, now| hub.handle_timeout(now)),
            () = shared.timer.notified() => {}
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

async fn accept(shared: Rc<Shared>, listener: TcpListener, tls: Option<TlsAcceptor>, max_connections: usize) {
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                // Out of file descriptors, most likely: those who are here go first.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        if shared.bells.borrow().len() >= max_connections {
            continue;
        }
        tokio::task::spawn_local(connection(shared.clone(), stream, address, tls.clone()));
    }
}

async fn connection(shared: Rc<Shared>, stream: TcpStream, address: SocketAddr, tls: Option<TlsAcceptor>) {
    let _ = stream.set_nodelay(true);
    let id = shared.call(|hub, now| hub.connect(now, &address.to_string()));
    let seat = Seat { shared, id, bell: Rc::default() };
    seat.shared.bells.borrow_mut().insert(id, seat.bell.clone());
    // The reason of the end is nobody's: the client sees it, and comes again or not.
    match tls {
        None => {
            let _ = drive(&seat, stream).await;
        }
        Some(tls) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(TLS_HANDSHAKE, tls.accept(stream)).await {
                let _ = drive(&seat, stream).await;
            }
        }
    }
    seat.shared.bells.borrow_mut().remove(&id);
    seat.shared.call(|hub, now| hub.disconnect(now, id));
}

/// A connection's place at the hub.
struct Seat {
    shared: Rc<Shared>,
    id: u64,
    bell: Rc<Notify>,
}

impl Endpoint for Seat {
    fn turn(&self, now: Instant, input: &mut BytesMut, output: &mut Transmit) -> Result<Turn> {
        let id = self.id;
        let timeout = || self.shared.hub.borrow().session_timeout(id);
        let mut result = Ok(());
        if !input.is_empty() {
            result = self.shared.call(|hub, now| hub.handle_input(now, id, input));
        }
        if result.is_ok() && timeout().is_some_and(|at| at <= now) {
            result = self.shared.call(|hub, now| hub.handle_session_timeout(now, id));
        }
        if output.is_empty() {
            self.take_output(now, output);
        }
        result.map(|()| Turn {
            deadline: timeout(),
            reads: self.shared.hub.borrow_mut().may_read(id),
            finished: false,
        })
    }

    fn take_output(&self, _: Instant, output: &mut Transmit) {
        self.shared.call(|hub, now| hub.take_output(now, self.id, output));
    }

    fn bell(&self) -> &Notify {
        &self.bell
    }
}
