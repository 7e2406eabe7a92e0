//! Sockets, disk and clock for a [`Hub`]: everything here runs on the broker's one thread.
//!
//! A task for each connection, one that accepts, one that keeps the hub's time, one that takes the store's
//! reports. They share the hub without locks: nobody holds it over an `await`.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
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
use crate::net::tls;
use crate::sqlite::{Report, Sync, Writer};
use crate::transmit::{MAX_SLICES, Transmit};

/// Longest time without room in a socket while bytes wait.
const WRITE_STALL: Duration = Duration::from_secs(60);
/// Longest TLS handshake.
const TLS_HANDSHAKE: Duration = Duration::from_secs(10);
/// How far the calendar may be off before it is set.
const CLOCK_SLACK_MS: u64 = 500;
/// Room made for each read.
const READ_CHUNK: usize = 64 << 10;

/// The hub and what its tasks need.
struct Shared {
    hub: RefCell<Hub>,
    wakers: RefCell<HashMap<u64, Rc<Notify>>>,
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
        if !self.wakers.borrow().is_empty() {
            let wakers = self.wakers.borrow();
            while let Some(id) = hub.poll_wake() {
                if let Some(waker) = wakers.get(&id) {
                    waker.notify_one();
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
        wakers: RefCell::default(),
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
    for waker in shared.wakers.borrow().values() {
        waker.notify_one();
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
        if shared.wakers.borrow().len() >= max_connections {
            continue;
        }
        tokio::task::spawn_local(connection(shared.clone(), stream, address, tls.clone()));
    }
}

async fn connection(shared: Rc<Shared>, stream: TcpStream, address: SocketAddr, tls: Option<TlsAcceptor>) {
    let _ = stream.set_nodelay(true);
    let id = shared.call(|hub, now| hub.connect(now, &address.to_string()));
    let waker = Rc::new(Notify::new());
    shared.wakers.borrow_mut().insert(id, waker.clone());
    match tls {
        None => {
            let (read, write) = stream.into_split();
            drive(&shared, id, &waker, read, write).await;
        }
        Some(tls) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(TLS_HANDSHAKE, tls.accept(stream)).await {
                let (read, write) = tokio::io::split(stream);
                drive(&shared, id, &waker, read, write).await;
            }
        }
    }
    shared.wakers.borrow_mut().remove(&id);
    shared.call(|hub, now| hub.disconnect(now, id));
}

/// Moves bytes until the connection ends. The reason is nobody's: the client sees it, and comes again or not.
async fn drive<R, W>(shared: &Shared, id: u64, waker: &Notify, mut read: R, mut write: W)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut input = BytesMut::new();
    let mut output = Transmit::default();
    let mut stalled_at: Option<Instant> = None;
    // TLS may hold back bytes that it took.
    let mut unflushed = false;
    loop {
        if output.is_empty() {
            shared.call(|hub, now| hub.take_output(now, id, &mut output));
            stalled_at = None;
        }
        if !output.is_empty() && stalled_at.is_none() {
            stalled_at = Some(Instant::now() + WRITE_STALL);
        }
        let may_read = shared.hub.borrow_mut().may_read(id);
        let due = shared.hub.borrow().session_timeout(id);
        let result = tokio::select! {
            got = read_some(&mut read, &mut input), if may_read => match got {
                Ok(n) if n > 0 => shared.call(|hub, now| hub.handle_input(now, id, &mut input)),
                _ => return,
            },
            wrote = write_some(&mut write, &output), if unflushed || !output.is_empty() => match wrote {
                Ok(Some(n)) if n > 0 => {
                    output.advance(n);
                    stalled_at = None;
                    unflushed = true;
                    Ok(())
                }
                Ok(None) => {
                    unflushed = false;
                    Ok(())
                }
                _ => return,
            },
            () = waker.notified() => Ok(()),
            () = sleep_until(due) => shared.call(|hub, now| hub.handle_session_timeout(now, id)),
            () = sleep_until(stalled_at) => return,
        };
        if result.is_err() {
            let _ = tokio::time::timeout(Duration::from_secs(1), last_words(shared, id, &mut write, output))
                .await;
            return;
        }
    }
}

async fn read_some<R: AsyncRead + Unpin>(read: &mut R, input: &mut BytesMut) -> std::io::Result<usize> {
    input.reserve(READ_CHUNK);
    read.read_buf(input).await
}

/// Writes some bytes and says how many, or flushes when there are none. One call each: a future that is dropped
/// between two would have written what nobody counted.
async fn write_some<W: AsyncWrite + Unpin>(
    write: &mut W,
    output: &Transmit,
) -> std::io::Result<Option<usize>> {
    if output.is_empty() {
        write.flush().await.map(|()| None)
    } else if write.is_write_vectored() {
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let count = output.io_slices(&mut slices);
        write.write_vectored(&slices[..count]).await.map(Some)
    } else {
        write.write(output.first()).await.map(Some)
    }
}

async fn last_words<W: AsyncWrite + Unpin>(shared: &Shared, id: u64, write: &mut W, mut output: Transmit) {
    loop {
        while !output.is_empty() {
            match write.write(output.first()).await {
                Ok(n) if n > 0 => output.advance(n),
                _ => return,
            }
        }
        shared.call(|hub, now| hub.take_output(now, id, &mut output));
        if output.is_empty() {
            let _ = write.flush().await;
            let _ = write.shutdown().await;
            return;
        }
    }
}
