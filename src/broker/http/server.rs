//! Sockets, limits and time limits.
//!
//! ```text
//! accept ──► TLS ──► head ──► guard ──► body ──► path ──► answer ──► written ──► next head
//!            10 s    10 s                10 s              30 s       10 s without progress
//! ```
//! A connection that exceeds one of these is closed, as is one whose time is over; the clients
//! connect again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request as Received, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

use super::guard::Guard;
use super::health::{self, State};
use super::message::{Answer, Request};
use super::metrics::{self, HttpStats, Topics};
use super::page;
use super::spelling::{PROPERTY, Spelled, stand_in};
use crate::admission::Admission;
use crate::free_space::{Disk, Room};
use crate::listener::{FULL, Port, Transport};
use crate::logger::{self, Logger};
use crate::options::Durability;
use crate::peer::Peer;
use crate::permissions::{Access, Client, Domain};
use crate::protocol::Entry;
use crate::registry::Registry;
use forebay_base::clock::{self, wall_ms};
use forebay_base::error::ErrorKind;
use forebay_net::socket::Accepted;
use tracing::Level;

/// Time limit of the head of a request, also while a connection waits for its next one.
const HEAD: Duration = Duration::from_secs(10);
/// Limit on the bytes of a head, and on the number of its headers.
const HEAD_BYTES: usize = 32 << 10;
const HEADERS: usize = 64;
/// Limit on the bytes of a header of an answer, beyond which many clients would not take it.
const HEADER: usize = 8 << 10;
/// Time limit of a body, and limit on its bytes.
const BODY: Duration = Duration::from_secs(10);
const BODY_BYTES: usize = 2 << 20;
/// Time limit of the broker's answer, which may wait for the store.
const ANSWER: Duration = Duration::from_secs(30);
/// Time after which a client that takes nothing of its answer is given up.
const STALL: Duration = Duration::from_secs(10);
/// Time after which a connection ends with its current request, and time that this has.
const LIFE: Duration = Duration::from_secs(300);
const LAST_REQUEST: Duration = Duration::from_secs(60);
/// Limits on the bytes of all bodies that are being read or answered, and of all answers that are
/// being written, in units that a semaphore can count.
const BODIES: usize = 32 << 20;
const ANSWERS: usize = 64 << 20;
const UNIT: usize = 1 << 10;

/// The topic that stands for the metrics in permissions.
const FIGURES: &str = "$SYS/metrics";

/// The listener of HTTP.
pub(crate) struct Http {
    registry: Rc<Registry>,
    guard: Guard,
    admission: Admission,
    /// The disk of the store.
    disk: Option<Rc<Disk>>,
    durability: Durability,
    started: Instant,
    answers: RefCell<BTreeMap<&'static str, u64>>,
    /// Room for bodies, and for answers.
    bodies: Arc<Semaphore>,
    room: Arc<Semaphore>,
}

impl Http {
    pub(crate) fn new(
        registry: Rc<Registry>,
        guard: Guard,
        admission: Admission,
        disk: Option<Rc<Disk>>,
        durability: Durability,
    ) -> Self {
        let [bodies, room] = [BODIES, ANSWERS].map(|bytes| Arc::new(Semaphore::new(bytes / UNIT)));
        let (started, answers) = (clock::now(), RefCell::default());
        Self { registry, guard, admission, disk, durability, started, answers, bodies, room }
    }

    /// Accepts clients until the task is aborted.
    pub(crate) async fn accept(self: Rc<Self>, mut port: Port) {
        loop {
            let (stream, peer, transport) = port.accept().await;
            if !self.admission.admits(peer.ip()) {
                logger::refused(Logger::Http, "http", &peer.to_string(), FULL);
                continue;
            }
            let connection = Connection::new(self.clone(), peer);
            match stream {
                Accepted::Tcp(stream) => drop(tokio::task::spawn_local(connection.serve(stream, transport))),
                #[cfg(unix)]
                Accepted::Unix(stream) => drop(tokio::task::spawn_local(connection.serve(stream, transport))),
                #[cfg(feature = "simulation")]
                Accepted::Simulated(stream) => {
                    drop(tokio::task::spawn_local(connection.serve(stream, transport)));
                }
            }
        }
    }

    async fn respond(
        &self,
        received: Received<Incoming>,
        entry: &Entry,
        host: &str,
    ) -> Response<Full<Bytes>> {
        let (method, path) = (received.method().clone(), received.uri().path().to_owned());
        let mut user = None;
        let answer = match self.read(received, entry).await {
            // The room of its body is free again once it is answered.
            Ok((request, _room)) => {
                let answer = tokio::time::timeout(ANSWER, self.answer(&request)).await;
                user = request.user;
                answer.unwrap_or_else(|_| Answer::unavailable("the store has not written the change yet"))
            }
            Err(refusal) => *refusal,
        };
        note_answer(&method, &path, host, user.as_deref(), answer.status);
        let answer = match self.take_room(answer.body.len()) {
            Some(permit) => response(answer, permit),
            None => response(Answer::unavailable("too many answers wait for slow clients"), None),
        };
        let class = ["1xx", "2xx", "3xx", "4xx", "5xx"];
        let class = class[usize::from(answer.status().as_u16() / 100).clamp(1, 5) - 1];
        *self.answers.borrow_mut().entry(class).or_default() += 1;
        answer
    }

    /// Room for the bytes of an answer, until it is written. Short ones need none.
    fn take_room(&self, bytes: usize) -> Option<Option<OwnedSemaphorePermit>> {
        let units = (bytes / UNIT).min(ANSWERS / UNIT);
        if units == 0 {
            return Some(None);
        }
        self.room.clone().try_acquire_many_owned(u32::try_from(units).ok()?).ok().map(Some)
    }

    /// Reads a request that may be answered, and takes room for its body.
    async fn read(
        &self,
        received: Received<Incoming>,
        entry: &Entry,
    ) -> Result<(Request, Option<OwnedSemaphorePermit>), Box<Answer>> {
        let (head, body) = received.into_parts();
        let user = self.guard.check(&head.uri, &head.headers, entry, wall_ms())?;
        let mut request = Request { user, ..Request::new(head.method, &head.uri)? };
        // What is claimed to be too large is not waited for.
        if body.size_hint().lower() > BODY_BYTES as u64 {
            return Err(refused(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"));
        }
        // Strangers may send such requests, and they mean nothing by their bodies.
        if [Method::GET, Method::HEAD].contains(&request.method) || health::is_open(head.uri.path()) {
            return Ok((request, None));
        }
        let read = tokio::time::timeout(BODY, self.read_body(body)).await;
        let late = |_| refused(StatusCode::REQUEST_TIMEOUT, "the body did not come in time");
        let (body, room) = read.map_err(late)??;
        request.body = body;
        Ok((request, room))
    }

    /// Reads a body. Its room grows with the bytes that have come, not with those that were
    /// announced.
    async fn read_body(&self, body: Incoming) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Box<Answer>> {
        let (mut body, mut bytes) = (Limited::new(body, BODY_BYTES), BytesMut::new());
        let mut room: Option<OwnedSemaphorePermit> = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| match error.is::<LengthLimitError>() {
                true => refused(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"),
                false => refused(StatusCode::BAD_REQUEST, "the body is malformed"),
            })?;
            let Ok(data) = frame.into_data() else { continue };
            bytes.extend_from_slice(&data);
            let taken = room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
            let more = u32::try_from((bytes.len() / UNIT).saturating_sub(taken)).unwrap_or(u32::MAX);
            if more > 0 {
                let Ok(more) = self.bodies.clone().try_acquire_many_owned(more) else {
                    let text = "too many large requests are being read";
                    return Err(refused(StatusCode::SERVICE_UNAVAILABLE, text));
                };
                match &mut room {
                    Some(room) => room.merge(more),
                    None => room = Some(more),
                }
            }
        }
        Ok((bytes.freeze(), room))
    }

    async fn answer(&self, request: &Request) -> Answer {
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        let reads = [Method::GET, Method::HEAD].contains(&request.method);
        match path[..] {
            ["healthz" | "readyz" | "metrics"] if !reads => Answer::wrong_method(),
            [] if reads => page::file(""),
            [name @ ("page.css" | "page.js")] if reads => page::file(name),
            [] | ["page.css" | "page.js"] => Answer::wrong_method(),
            ["healthz"] => health::alive(),
            ["readyz"] => self.state(|state| state.ready()),
            ["metrics"] if !self.may_read_figures(request.user.as_deref()) => {
                let text =
                    format!("no permission to read the figures: topic read {FIGURES} in acl_file allows it");
                Answer::error(StatusCode::FORBIDDEN, &text)
            }
            ["metrics"] => self.metrics().await,
            ["forebay", "v1", ..] if !self.may_operate(request.user.as_deref()) => {
                Answer::error(StatusCode::FORBIDDEN, "only for operators: superuser in acl_file allows it")
            }
            ["forebay", "v1", "clients"] if reads => {
                self.clients(request.query("filter").unwrap_or_default())
            }
            ["forebay", "v1", "clients"] => Answer::wrong_method(),
            ["forebay", "v1", "clients", protocol, number] => {
                self.end_client(&request.method, protocol, number)
            }
            _ => {
                for protocol in &self.registry.protocols {
                    if let Some(answer) = protocol.runner.answer_http(request).await {
                        return answer;
                    }
                }
                Answer::not_found()
            }
        }
    }

    /// Whether a user may read the metrics: as those of MQTT, by the topics below `$SYS`.
    fn may_read_figures(&self, user: Option<&str>) -> bool {
        let client = Client { user, id: None };
        let rules = self.registry.permissions.borrow();
        rules.as_ref().is_none_or(|rules| rules.permits(Domain::Mqtt, client, Access::Read, FIGURES))
    }

    /// Whether a user may see and change what belongs to others.
    fn may_operate(&self, user: Option<&str>) -> bool {
        self.registry.permissions.borrow().as_ref().is_none_or(|rules| rules.is_superuser(user))
    }

    fn clients(&self, filter: &str) -> Answer {
        let (mut total, mut list) = (0, Vec::new());
        for protocol in &self.registry.protocols {
            let found = protocol.runner.clients(|client| page::has(protocol.name, client, filter));
            total += found.len();
            list.extend(found.iter().take(page::MOST).map(|client| page::client(protocol.name, client)));
        }
        Answer::json(&json!({"total": total, "clients": list}))
    }

    fn end_client(&self, method: &Method, protocol: &str, number: &str) -> Answer {
        if method != Method::DELETE {
            return Answer::wrong_method();
        }
        let found = self.registry.protocols.iter().find(|running| running.name == protocol);
        match found.zip(number.parse().ok()) {
            Some((running, number)) if running.runner.dismiss(number) => Answer::done(),
            _ => Answer::error(StatusCode::NOT_FOUND, "there is no such connection"),
        }
    }

    fn state<T>(&self, look: impl FnOnce(&State<'_>) -> T) -> T {
        let stats = self.registry.stats();
        let room: Option<Room> = self.disk.as_ref().map(|disk| disk.room());
        let Registry { usage, max_store, .. } = &*self.registry;
        let (limit, disk_is_full) = (usage.limit(*max_store), usage.is_at_disk_limit());
        let commits = self.registry.protocols.first().map(|running| running.runner.commits());
        let commits = commits.unwrap_or_default();
        look(&State { stats: &stats, limit, disk_is_full, room, commits, wall_ms: wall_ms() })
    }

    async fn metrics(&self) -> Answer {
        let mut topics = Topics::default();
        for (name, _) in self.registry.topics() {
            if !topics.has_room() {
                topics.omit(1);
                continue;
            }
            // A topic may go at any time: then it has no figures.
            let protocol = self.registry.owner(&name).map(|(protocol, _)| protocol.name);
            if let (Some(protocol), Ok(stats)) = (protocol, self.registry.topic_stats(&name)) {
                topics.add(protocol, stats);
            }
            // Between two topics the messages have their turn.
            tokio::task::yield_now().await;
        }
        let http = HttpStats {
            connections: self.admission.connections(),
            connections_refused: self.admission.refused(),
            answers: self.answers.borrow().clone(),
        };
        let uptime = clock::now().saturating_duration_since(self.started);
        self.state(|state| metrics::metrics(state, &http, &topics, self.durability.name(), uptime))
    }
}

/// An answer to a request whose rest is not read.
fn refused(status: StatusCode, why: &str) -> Box<Answer> {
    Box::new(Answer::error(status, why).with_header("Connection", "close"))
}

/// Writes a request to the log: refusals as warnings, and what changes something for those who want
/// to know who did.
fn note_answer(method: &Method, path: &str, host: &str, user: Option<&str>, status: StatusCode) {
    let refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::MISDIRECTED_REQUEST];
    let level = match method.is_safe() {
        _ if refused.contains(&status) => Level::WARN,
        true => Level::DEBUG,
        false => Level::INFO,
    };
    let make = || {
        let (user, path) = (logger::cut(user.unwrap_or_default()), logger::cut(path));
        let by = if user.is_empty() { String::new() } else { format!(", user {user:?}") };
        let text = format!("http {host}{by}: {method} {path:?}: {}", status.as_u16());
        logger::about("request", "http", &user, "", text)
            .with("address", host)
            .with("method", method.as_str())
            .with("path", path)
            .with("status", status.as_str())
    };
    // What certainly has changed something is told without a limit.
    if [Method::PUT, Method::DELETE].contains(method) && status.is_success() {
        logger::write(level, Logger::Http, make);
    } else {
        logger::write_limited(level, Logger::Http, make);
    }
}

/// An answer as the library writes it. Its room is free again once its bytes are.
fn response(answer: Answer, permit: Option<OwnedSemaphorePermit>) -> Response<Full<Bytes>> {
    struct Held {
        body: Bytes,
        /// Given back when it is dropped.
        _room: OwnedSemaphorePermit,
    }
    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            &self.body
        }
    }
    let body = match permit {
        Some(permit) => Bytes::from_owner(Held { body: answer.body, _room: permit }),
        None => answer.body,
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    for (name, value) in answer.headers.into_iter().filter(|(_, value)| value.len() <= HEADER) {
        let name = if name == PROPERTY { Ok(stand_in().clone()) } else { HeaderName::try_from(name) };
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
            headers.append(name, value);
        }
    }
    response
}

/// A connection that counts as long as it lives.
struct Connection {
    http: Rc<Http>,
    peer: Peer,
}

impl Connection {
    fn new(http: Rc<Http>, peer: Peer) -> Self {
        http.admission.enter(peer.ip());
        Self { http, peer }
    }

    /// Serves the connection to its end. Its error is dropped here: the client sees the connection
    /// close.
    async fn serve<S>(self, stream: S, transport: Transport)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Transport { tls, mut entry, .. } = transport;
        match tls {
            None => self.serve_requests(stream, entry).await,
            Some(tls) => match Box::pin(tls.accept(stream, self.peer.ip())).await {
                Ok((stream, user)) => {
                    entry.user = user;
                    Box::pin(self.serve_requests(stream, entry)).await;
                }
                // A health check or a scan of ports.
                Err(error) if error.kind() == ErrorKind::Disconnected => {
                    logger::write_limited(Level::DEBUG, Logger::Http, || {
                        let address = self.peer.host();
                        let text = format!("http {address} left before it was let in");
                        logger::about("left", "http", "", "", text).with("address", address)
                    });
                }
                Err(error) => logger::refused(Logger::Http, "http", &self.peer.host(), error.message()),
            },
        }
    }

    async fn serve_requests<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S, entry: Entry) {
        let service = service_fn(|received| {
            let (http, entry) = (self.http.clone(), entry.clone());
            let host = self.peer.host();
            async move { Ok::<_, Infallible>(http.respond(received, &entry, &host).await) }
        });
        let io = TokioIo::new(Impatient { stream: Spelled::new(stream), stalled: None });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_buf_size(HEAD_BYTES)
            .max_headers(HEADERS)
            .auto_date_header(false)
            .serve_connection(io, service);
        let mut served = pin!(served);
        let ended = poll_fn(|cx| served.as_mut().poll(cx));
        if tokio::time::timeout(LIFE, ended).await.is_err() {
            served.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(LAST_REQUEST, served).await;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.http.admission.leave(self.peer.ip());
    }
}

/// A stream whose writes fail when the peer takes nothing for [`STALL`].
struct Impatient<S> {
    stream: S,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S: Unpin> Impatient<S> {
    fn limited<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let result = write(Pin::new(&mut self.stream), cx);
        if result.is_ready() {
            self.stalled = None;
            return result;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(STALL)));
        stalled.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.limited(cx, |stream, cx| stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.limited(cx, |stream, cx| stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.limited(cx, |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.limited(cx, |stream, cx| stream.poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::ConnectionLimits;
    use crate::store::StoreUsage;

    #[test]
    fn answers_that_are_being_written_have_a_limit_together() {
        let registry = Registry {
            protocols: Vec::new(),
            usage: StoreUsage::default(),
            max_store: 1,
            permissions: RefCell::default(),
        };
        let admission = Admission::new(ConnectionLimits::new(1, 1), Rc::default());
        let guard = Guard::new(None, []);
        let http = Http::new(Rc::new(registry), guard, admission, None, Durability::Memory);
        let large = || Answer::new("text/plain", vec![0; ANSWERS / 4]);
        let write = |answer: Answer| Some(response(answer.clone(), http.take_room(answer.body.len())?));
        let mut written: Vec<_> = (0..4).map(|_| write(large()).expect("there is room")).collect();
        assert!(write(large()).is_none(), "all room is taken");
        assert!(write(Answer::done()).is_some(), "short answers need none");
        written.pop();
        assert!(write(large()).is_some(), "what is written or given up leaves its room");
        let larger_than_all = Answer::new("text/plain", vec![0; ANSWERS + 1]);
        assert!(write(larger_than_all.clone()).is_none());
        written.clear();
        assert!(write(larger_than_all).is_some(), "alone, it has room");
    }
}
