//! Sockets: listening ports, admission, and a task for each connection.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::broker::runner::Runner;
use crate::broker::service::Framing;
use crate::error::{Error, ErrorKind, Result};
use crate::net::driver::{Endpoint, Turn, drive};
use crate::net::socket::{Listener, Socket};
use crate::net::{resolve, tls, ws};
use crate::transmit::Transmit;

/// Time limit of the TLS handshake and of the WebSocket upgrade.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(10);
/// Bytes that a WebSocket message may have beyond an MQTT packet: several small packets may share a message.
const WS_MARGIN: usize = 64 << 10;

/// A listening socket.
#[derive(Debug)]
pub(super) struct Port {
    listener: Listener,
    /// Port number.
    pub(super) number: u16,
}

impl Port {
    /// Listens on `host`.
    pub(super) async fn bind(host: &str, port: u16) -> Result<Self> {
        let listener = Listener::bind(host, port).await.map_err(|error| {
            let address = format!("{}:{port}", bracketed(host));
            Error::new(ErrorKind::Io, format!("cannot listen on {address}: {error}"))
        })?;
        let number = listener.port()?;
        Ok(Self { listener, number })
    }

    /// The next client.
    pub(super) async fn accept(&mut self) -> (Socket, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok(accepted) => return accepted,
                // Most likely out of file descriptors: wait until connections have ended.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// The URL that clients connect to.
    pub(super) fn url(&self, scheme: &str, host: &str, path: &str) -> String {
        format!("{scheme}://{}:{}{path}", bracketed(host), self.number)
    }
}

/// The layers between a socket and its protocol.
#[derive(Clone)]
pub(super) struct Transport {
    /// TLS, below everything else.
    pub(super) tls: Option<TlsAcceptor>,
    /// Framing below the protocol.
    pub(super) framing: Framing,
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// Whether other machines can reach `host`.
pub(super) async fn is_public(host: &str) -> Result<bool> {
    let addresses = resolve(host, 0)
        .await
        .map_err(|error| Error::new(ErrorKind::InvalidArgument, format!("host {host:?}: {error}")))?;
    Ok(addresses.iter().any(|address| !address.ip().is_loopback()))
}

/// A TLS acceptor with this certificate chain and private key, PEM.
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

/// Accepts clients until the task is aborted.
pub(super) async fn accept(runner: Rc<Runner>, mut port: Port, transport: Transport) {
    loop {
        let (stream, address) = port.accept().await;
        if !runner.admission().admits(address.ip()) {
            continue;
        }
        let connection = Connection::new(runner.clone(), address);
        let transport = transport.clone();
        match stream {
            Socket::Tcp(stream) => drop(tokio::task::spawn_local(serve(connection, stream, transport))),
            #[cfg(feature = "simulation")]
            Socket::Simulated(stream) => drop(tokio::task::spawn_local(serve(connection, stream, transport))),
        }
    }
}

/// Serves one connection. Its error is dropped here: the client sees the connection close and may reconnect.
async fn serve<S>(connection: Connection, stream: S, transport: Transport)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // The handshakes are boxed, so that the future that lives as long as the connection stays small.
    match transport.tls {
        None => serve_framed(&connection, stream, transport.framing).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, Box::pin(tls.accept(stream))).await {
                Box::pin(serve_framed(&connection, stream, transport.framing)).await;
            }
        }
    }
}

async fn serve_framed<S>(connection: &Connection, stream: S, framing: Framing)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match framing {
        Framing::Bare => {
            let _ = drive(connection, stream).await;
        }
        Framing::WebSocket { local_pages_only, max_packet_size } => {
            let upgrade = Box::pin(ws::accept(stream, local_pages_only, max_packet_size + WS_MARGIN));
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, upgrade).await {
                let _ = Box::pin(drive(connection, stream)).await;
            }
        }
    }
}

/// A connection that is registered with its protocol, from accept to close.
struct Connection {
    runner: Rc<Runner>,
    id: u64,
    address: IpAddr,
    wake: Rc<Notify>,
}

impl Connection {
    fn new(runner: Rc<Runner>, address: SocketAddr) -> Self {
        let (id, wake) = runner.connect(address);
        Self { runner, id, address: address.ip(), wake }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.runner.disconnect(self.id, self.address);
    }
}

impl Endpoint for Connection {
    fn turn(&self, now: Instant, input: &mut BytesMut, output: &mut Transmit) -> Result<Turn> {
        let id = self.id;
        let timeout = || self.runner.inspect(|protocol| protocol.session_timeout(id));
        let mut result = Ok(());
        if !input.is_empty() {
            result = self.runner.call(|protocol, now| protocol.handle_input(now, id, input));
        }
        if result.is_ok() && timeout().is_some_and(|at| at <= now) {
            result = self.runner.call(|protocol, now| protocol.handle_session_timeout(now, id));
        }
        if output.is_empty() {
            self.take_output(now, output);
        }
        result.map(|()| self.runner.turn(id))
    }

    fn take_output(&self, _: Instant, output: &mut Transmit) {
        self.runner.call(|protocol, now| protocol.take_output(now, self.id, output));
    }

    fn turn_needed(&self) -> &Notify {
        &self.wake
    }
}
