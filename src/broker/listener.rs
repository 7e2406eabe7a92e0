//! Sockets for a [`Hub`]: where they listen, who may connect, and a task for each connection.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::broker::desk::Desk;
use crate::broker::hub::Hub;
use crate::error::{Error, ErrorKind, Result};
use crate::net::driver::{Endpoint, Turn, drive};
use crate::net::{tls, ws};
use crate::transmit::Transmit;

/// Longest handshake of TLS, and of WebSocket.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// What a message of WebSocket may have above a packet of MQTT: several small packets may share one.
const WS_MARGIN: usize = 64 << 10;

/// An address that others can connect to.
#[derive(Debug)]
pub(super) struct Port {
    listener: TcpListener,
    /// Number of the port.
    pub(super) number: u16,
}

impl Port {
    /// Listens on `host`.
    pub(super) async fn bind(host: &str, port: u16) -> Result<Self> {
        let listener = TcpListener::bind((host, port)).await.map_err(|error| {
            let address = format!("{}:{port}", bracketed(host));
            Error::new(ErrorKind::Io, format!("cannot listen on {address}: {error}"))
        })?;
        let number = listener.local_addr()?.port();
        Ok(Self { listener, number })
    }

    /// Where it is.
    pub(super) fn url(&self, scheme: &str, host: &str, path: &str) -> String {
        format!("{scheme}://{}:{}{path}", bracketed(host), self.number)
    }
}

/// How the bytes of a protocol come over a port.
#[derive(Clone)]
pub(super) struct Transport {
    /// TLS below everything else.
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) framing: Framing,
    /// Most connections of the whole broker.
    pub(super) max_connections: usize,
}

/// What carries the protocol's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Framing {
    /// Nothing.
    Bare,
    /// WebSocket.
    WebSocket {
        /// See [`ws::accept`].
        local_pages_only: bool,
        /// Largest packet of MQTT.
        max_packet_size: usize,
    },
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// Nobody but this machine may connect, unless what travels is encrypted and who comes is known.
pub(super) async fn check_bind(host: &str, missing: &str) -> Result<()> {
    let addresses: Vec<IpAddr> = tokio::net::lookup_host((host, 0))
        .await
        .map_err(|error| Error::new(ErrorKind::InvalidArgument, format!("host {host:?}: {error}")))?
        .map(|address| address.ip())
        .collect();
    if addresses.iter().all(IpAddr::is_loopback) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        format!(
            "{host} can be reached by other machines: set {missing}, or allow_insecure_bind if that is meant"
        ),
    ))
}

/// TLS with this certificate chain and private key, PEM.
pub(super) fn acceptor(certificate: &[u8], key: &[u8]) -> Result<TlsAcceptor> {
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

/// Lets clients in for ever.
pub(super) async fn accept<H: Hub + 'static>(desk: Rc<Desk<H>>, port: Port, transport: Transport) {
    loop {
        let (stream, address) = match port.listener.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                // Out of file descriptors, most likely: those who are here go first.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        if desk.disk.connections.get() >= transport.max_connections {
            continue;
        }
        let _ = stream.set_nodelay(true);
        tokio::task::spawn_local(connection(Seat::take(desk.clone(), address), stream, transport.clone()));
    }
}

/// The reason of the end is nobody's: the client sees it, and comes again or not.
async fn connection<H: Hub>(seat: Seat<H>, stream: TcpStream, transport: Transport) {
    // Handshakes are in boxes: what stays of a connection for its whole life is small.
    match transport.tls {
        None => framed(&seat, stream, transport.framing).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, Box::pin(tls.accept(stream))).await {
                Box::pin(framed(&seat, stream, transport.framing)).await;
            }
        }
    }
}

async fn framed<H, S>(seat: &Seat<H>, stream: S, framing: Framing)
where
    H: Hub,
    S: AsyncRead + AsyncWrite + Unpin,
{
    match framing {
        Framing::Bare => {
            let _ = drive(seat, stream).await;
        }
        Framing::WebSocket { local_pages_only, max_packet_size } => {
            let upgrade = Box::pin(ws::accept(stream, local_pages_only, max_packet_size + WS_MARGIN));
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, upgrade).await {
                let _ = Box::pin(drive(seat, stream)).await;
            }
        }
    }
}

/// A connection's place at the hub, from its first byte to its last.
struct Seat<H: Hub> {
    desk: Rc<Desk<H>>,
    id: u64,
    bell: Rc<Notify>,
}

impl<H: Hub> Seat<H> {
    fn take(desk: Rc<Desk<H>>, address: SocketAddr) -> Self {
        let connections = &desk.disk.connections;
        connections.set(connections.get() + 1);
        let id = desk.call(|hub, now| hub.connect(now, &address.to_string()));
        let bell = Rc::<Notify>::default();
        desk.bells.borrow_mut().insert(id, bell.clone());
        Self { desk, id, bell }
    }
}

impl<H: Hub> Drop for Seat<H> {
    fn drop(&mut self) {
        let connections = &self.desk.disk.connections;
        connections.set(connections.get() - 1);
        self.desk.bells.borrow_mut().remove(&self.id);
        self.desk.call(|hub, now| hub.disconnect(now, self.id));
    }
}

impl<H: Hub> Endpoint for Seat<H> {
    fn turn(&self, now: Instant, input: &mut BytesMut, output: &mut Transmit) -> Result<Turn> {
        let id = self.id;
        let timeout = || self.desk.hub.borrow().session_timeout(id);
        let mut result = Ok(());
        if !input.is_empty() {
            result = self.desk.call(|hub, now| hub.handle_input(now, id, input));
        }
        if result.is_ok() && timeout().is_some_and(|at| at <= now) {
            result = self.desk.call(|hub, now| hub.handle_session_timeout(now, id));
        }
        if output.is_empty() {
            self.take_output(now, output);
        }
        result.map(|()| {
            let mut hub = self.desk.hub.borrow_mut();
            Turn { deadline: hub.session_timeout(id), reads: hub.may_read(id), finished: hub.finished(id) }
        })
    }

    fn take_output(&self, _: Instant, output: &mut Transmit) {
        self.desk.call(|hub, now| hub.take_output(now, self.id, output));
    }

    fn bell(&self) -> &Notify {
        &self.bell
    }
}
