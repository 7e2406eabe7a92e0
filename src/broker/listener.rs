//! Sockets: bound listeners, admission, and a task for each connection.

use std::cell::{Cell, OnceCell};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use crate::handshakes::Handshakes;
use crate::listeners::{Address, Listener, Listening, bracketed};
use crate::logger::{self, Logger, Record};
use crate::peer::Peer;
use crate::protocol::Entry;
use crate::runner::{Open, Runner};
use crate::service::{Framing, ListenerSpec};
use crate::stats::ClientStats;
use crate::tls::{HANDSHAKE, Tls};
use forebay_base::error::{Error, ErrorKind, Result, sanitise};
use forebay_base::first_bytes::PeerProtocol;
use forebay_base::transmit::Transmit;
use forebay_net::driver::{Endpoint, Turn, drive};
use forebay_net::socket::{self, Accepted};
use forebay_net::ws;
use tracing::Level;

/// Bytes that a WebSocket message may have beyond an MQTT packet: several small packets may share a
/// message.
const WS_MARGIN: usize = 64 << 10;

/// Reason of a refusal by [`Admission`](crate::admission::Admission).
pub(super) const FULL: &str = "a limit on connections is reached";

/// The layers between a socket and its protocol, and how connections come in.
#[derive(Clone)]
pub(super) struct Transport {
    /// TLS, below everything else.
    pub(super) tls: Option<Tls>,
    /// Framing below the protocol.
    pub(super) framing: Framing,
    /// Entry of a connection, but for its user.
    pub(super) entry: Entry,
}

/// A listener that is bound.
pub(super) struct Port {
    socket: socket::Listener,
    /// Whether the address stands for all those of this machine, so that a client is told the one
    /// it reached.
    is_wildcard: bool,
    /// Path of a Unix socket.
    path: Option<Arc<str>>,
    transport: Transport,
    listening: Listening,
}

impl Port {
    /// Listens. `anonymous` tells whether clients without credentials are admitted.
    pub(super) async fn bind(
        listener: &Listener,
        spec: &ListenerSpec,
        advertised_host: Option<&str>,
        anonymous: bool,
        handshakes: &Rc<Handshakes>,
    ) -> Result<Self> {
        let bound = match &listener.address {
            Address::Tcp { host, port } => socket::Listener::bind(host, *port).await,
            Address::Unix { path, mode } => socket::Listener::bind_unix(path, *mode).await,
        };
        let socket = bound.map_err(|error| {
            Error::new(ErrorKind::Io, format!("cannot listen on {}: {error}", listener.address))
        })?;
        let advertised_host = listener.advertised_host.as_deref().or(advertised_host);
        let scheme = spec.schemes[usize::from(listener.tls.is_some())];
        let (mut url, mut address, mut is_wildcard, mut socket_path) = (String::new(), None, false, None);
        match &listener.address {
            Address::Tcp { host, .. } => {
                let port = socket.port()?;
                let told = advertised_host.unwrap_or(host);
                is_wildcard = advertised_host.is_none()
                    && host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified());
                url = format!("{scheme}://{}:{port}{}", bracketed(told), spec.path);
                address = Some((told.into(), port));
            }
            Address::Unix { path, .. } => {
                url += &format!("{scheme}+unix://{}", path.display());
                socket_path = Some(path.to_string_lossy().into());
            }
        }
        let tls = listener.tls.as_ref().map(|tls| Tls::new(tls, handshakes)).transpose()?;
        let in_the_clear = tls.is_none() && listener.is_public().await?;
        let transport =
            Transport { tls, framing: spec.framing, entry: Entry { user: None, anonymous, address } };
        Ok(Self {
            socket,
            is_wildcard,
            path: socket_path,
            transport,
            listening: Listening { name: spec.name, url, in_the_clear },
        })
    }

    /// The next client, where it is from, and how it comes in.
    pub(super) async fn accept(&mut self) -> (Accepted, Peer, Transport) {
        loop {
            match self.socket.accept().await {
                Ok((stream, from)) => {
                    let unix = || Peer::unix(self.path.clone().unwrap_or_default());
                    let from = from.map_or_else(unix, Peer::tcp);
                    let mut transport = self.transport.clone();
                    if self.is_wildcard
                        && let Some(reached) = stream.local_ip()
                        && let Some((host, _)) = &mut transport.entry.address
                    {
                        *host = reached.to_canonical().to_string().into();
                    }
                    return (stream, from, transport);
                }
                // Most likely out of file descriptors: wait until connections have ended.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Host and port that clients are told, of TCP.
    pub(super) fn address(&self) -> Option<(String, u16)> {
        self.transport.entry.address.as_ref().map(|(host, port)| (host.to_string(), *port))
    }

    /// Its certificates.
    pub(super) fn tls(&self) -> Option<&Tls> {
        self.transport.tls.as_ref()
    }

    /// The listener as it runs.
    pub(super) fn listening(&self) -> &Listening {
        &self.listening
    }
}

/// Accepts clients until the task is aborted.
pub(super) async fn accept(runner: Rc<Runner>, mut port: Port) {
    loop {
        let (stream, peer, transport) = port.accept().await;
        if !runner.admission().admits(peer.ip()) {
            logger::refused(Logger::Connection, runner.name(), &peer.to_string(), FULL);
            continue;
        }
        let connection = Connection::new(runner.clone(), peer);
        match stream {
            Accepted::Tcp(stream) => drop(tokio::task::spawn_local(serve(connection, stream, transport))),
            #[cfg(unix)]
            Accepted::Unix(stream) => drop(tokio::task::spawn_local(serve(connection, stream, transport))),
            #[cfg(feature = "simulation")]
            Accepted::Simulated(stream) => {
                drop(tokio::task::spawn_local(serve(connection, stream, transport)))
            }
        }
    }
}

/// Serves one connection. Its error goes to the log: the client sees the connection close and may
/// reconnect.
async fn serve<S>(connection: Connection, stream: S, transport: Transport)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Transport { tls, framing, mut entry } = transport;
    // The handshakes are boxed, so that the future that lives as long as the connection stays
    // small.
    let ended = match tls {
        None => {
            connection.enter(entry);
            serve_framed(&connection, stream, framing).await
        }
        Some(tls) => match Box::pin(tls.accept(stream, connection.open.peer.ip())).await {
            Err(error) => Err(error),
            Ok((stream, user)) => {
                entry.user = user;
                connection.enter(entry);
                Box::pin(serve_framed(&connection, stream, framing)).await
            }
        },
    };
    connection.note_end(ended.err());
}

/// Serves a connection until it ends. An error is the reason.
async fn serve_framed<S>(connection: &Connection, stream: S, framing: Framing) -> Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match framing {
        Framing::Bare => drive(connection, stream).await,
        Framing::WebSocket { local_pages_only, max_packet_size } => {
            let limit = max_packet_size + WS_MARGIN;
            let stream = Counted { inner: stream, open: connection.open.clone(), limit };
            let upgrade = Box::pin(ws::accept(stream, local_pages_only, limit));
            let stream = tokio::time::timeout(HANDSHAKE, upgrade)
                .await
                .map_err(|_| Error::new(ErrorKind::Timeout, "the WebSocket upgrade took too long"))??;
            Box::pin(drive(connection, stream)).await
        }
    }
}

/// A stream whose bytes a framing keeps until a message is complete.
struct Counted<S> {
    inner: S,
    open: Rc<Open>,
    /// Limit on a message.
    limit: usize,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        self.open.load.read_below(buf.filled().len() - before, self.limit);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// A connection that is registered with its protocol, from accept to close.
struct Connection {
    runner: Rc<Runner>,
    id: u64,
    open: Rc<Open>,
    /// The peer has sent something.
    heard: Cell<bool>,
    /// The other protocol that it speaks.
    speaks: Cell<Option<PeerProtocol>>,
    /// Its client, once the protocol has let it in.
    client: OnceCell<ClientStats>,
}

impl Connection {
    fn new(runner: Rc<Runner>, peer: Peer) -> Self {
        let (id, open) = runner.connect(peer);
        Self { runner, id, open, heard: Cell::default(), speaks: Cell::default(), client: OnceCell::new() }
    }

    /// Writes to the log that the protocol has let the client in, when it has.
    fn note_admission(&self) {
        if self.client.get().is_some() {
            return;
        }
        let client = self.runner.inspect(|protocol| protocol.client(self.id));
        if !client.admitted {
            return;
        }
        let client = self.client.get_or_init(|| client);
        logger::write(Level::INFO, Logger::Connection, || self.record("connected", client, ""));
    }

    /// Writes to the log that the connection has ended, with its reason.
    fn note_end(&self, error: Option<Error>) {
        let (farewell, finished) = self
            .runner
            .inspect(|protocol| (protocol.farewell(self.id).map(str::to_owned), protocol.finished(self.id)));
        // A health check or a scan of ports comes and goes like this.
        let left = self.client.get().is_none()
            && error.as_ref().is_some_and(|error| error.kind() == ErrorKind::Disconnected);
        let error = error.filter(|_| !left).map(|error| error.message().to_owned());
        let dismissed = self.open.dismissed.get().then(|| "an operator has ended the connection".to_owned());
        let speaks = |other| format!("the peer speaks {other}, not {}", self.runner.name());
        let stranger = self.speaks.get().map(speaks);
        let ended_here = || finished.then(|| "the broker has ended the connection".to_owned());
        let reason = dismissed.or(stranger).or(farewell).or(error).or_else(ended_here);
        match (self.client.get(), reason) {
            (Some(client), reason) => {
                let reason = reason.as_deref().unwrap_or("the client has left");
                let make = || self.record("ended", client, reason);
                if self.open.load.is_refused() {
                    logger::write_limited(Level::WARN, Logger::Connection, make);
                } else {
                    logger::write(Level::INFO, Logger::Connection, make);
                }
            }
            (None, Some(reason)) => {
                logger::refused(Logger::Connection, self.runner.name(), &self.open.peer.to_string(), &reason);
            }
            (None, None) => logger::write_limited(Level::DEBUG, Logger::Connection, || {
                self.record("left", &ClientStats::default(), "before it was let in")
            }),
        }
    }

    fn record(&self, what: &str, client: &ClientStats, reason: &str) -> Record {
        let (protocol, address) = (self.runner.name(), self.open.peer.to_string());
        let mut text = format!("{protocol} {address} {what}");
        for (title, value) in
            [("client", &client.name), ("user", client.user.as_ref().unwrap_or(&String::new()))]
        {
            if !value.is_empty() {
                text += &format!(", {title} {:?}", logger::cut(value));
            }
        }
        if !reason.is_empty() {
            text += &format!(": {}", sanitise(reason));
        }
        logger::about(what, protocol, client.user.as_deref().unwrap_or_default(), &client.name, text)
            .with("address", address)
            .with("reason", reason)
    }

    fn enter(&self, entry: Entry) {
        self.runner.call(|protocol, _| protocol.enter(self.id, entry));
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.runner.disconnect(self.id, self.open.peer.ip());
    }
}

impl Endpoint for Connection {
    fn turn(&self, now: Instant, input: &mut BytesMut, output: &mut Transmit) -> Result<Turn> {
        let (id, load) = (self.id, &self.open.load);
        load.note_input(input.len());
        if let Some(refusal) = load.refusal() {
            // They are what it is closed for.
            *input = BytesMut::new();
            output.clear();
            return Err(refusal);
        }
        let timeout = || self.runner.inspect(|protocol| protocol.session_timeout(id));
        let mut result = Ok(());
        if !input.is_empty() {
            let first = !self.heard.replace(true);
            let speaks = if first { PeerProtocol::of(input) } else { None };
            result = self.runner.call(|protocol, now| protocol.handle_input(now, id, input));
            if result.is_err() {
                let is_own = |name: &PeerProtocol| name.to_string().eq_ignore_ascii_case(self.runner.name());
                self.speaks.set(speaks.filter(|name| !is_own(name)));
            }
        }
        // In any turn: a password is verified on another thread.
        self.note_admission();
        if result.is_ok() && timeout().is_some_and(|at| at <= now) {
            result = self.runner.call(|protocol, now| protocol.handle_session_timeout(now, id));
        }
        if output.is_empty() {
            self.take_output(now, output);
        }
        result.map(|()| {
            let turn = self.runner.turn(id);
            let held = if input.is_empty() { 0 } else { input.capacity() };
            load.note_turn(held + output.copied(), input.len(), turn.reads);
            self.runner.count_turn(id, &self.open);
            Turn { finished: turn.finished || self.open.dismissed.get(), ..turn }
        })
    }

    fn take_output(&self, _: Instant, output: &mut Transmit) {
        if !self.open.load.is_refused() {
            self.runner.call(|protocol, now| protocol.take_output(now, self.id, output));
        }
    }

    fn turn_needed(&self) -> &Notify {
        &self.open.wake
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::timeout;

    use super::*;
    use crate::budget::Budget;
    use crate::runner::tests::idle;

    const UPGRADE: &str = "GET /mqtt HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";

    /// Serves a connection. Gives the client's end, and the reason of its end once it has one.
    fn connect(runner: &Rc<Runner>, framing: Framing) -> (DuplexStream, tokio::task::JoinHandle<Result<()>>) {
        let (near, far) = duplex(1 << 20);
        let runner = runner.clone();
        let served = tokio::task::spawn_local(async move {
            let connection = Connection::new(runner, Peer::tcp((Ipv4Addr::LOCALHOST, 1).into()));
            serve_framed(&connection, far, framing).await
        });
        (near, served)
    }

    #[tokio::test]
    async fn the_connection_that_holds_most_ends_when_all_hold_too_much() {
        // Above the read buffers of the others, which hold little.
        const LIMIT: usize = 900 << 10;
        let test = async {
            let websocket = Framing::WebSocket { local_pages_only: true, max_packet_size: 4 << 20 };
            for framing in [Framing::Bare, websocket] {
                let runner = idle(Budget::new(LIMIT));
                let mut small = Vec::new();
                for _ in 0..3 {
                    let (mut client, served) = connect(&runner, Framing::Bare);
                    client.write_all(&[0; 100]).await.unwrap();
                    small.push((client, served));
                }
                let (mut client, served) = connect(&runner, framing);
                if matches!(framing, Framing::WebSocket { .. }) {
                    client.write_all(UPGRADE.as_bytes()).await.unwrap();
                    while client.read_u8().await.unwrap() != b'\r' {}
                    // The head of a masked message of 4 MiB.
                    client.write_all(&[0x82, 0xff, 0, 0, 0, 0, 0, 0x40, 0, 0, 1, 2, 3, 4]).await.unwrap();
                }
                let large = async {
                    while client.write_all(&[0; 10_000]).await.is_ok() {
                        tokio::task::yield_now().await;
                        runner.count_all();
                    }
                    served.await.unwrap()
                };
                let ended = timeout(Duration::from_secs(30), large).await.unwrap();
                let reason = ended.unwrap_err().to_string();
                assert!(reason.contains("it held most"), "{reason}");
                for (client, served) in small {
                    assert!(!served.is_finished());
                    drop(client);
                    let reason = served.await.unwrap().unwrap_err().to_string();
                    assert!(reason.contains("the peer closed"), "{reason}");
                }
            }
        };
        tokio::task::LocalSet::new().run_until(test).await;
    }
}
