//! The tokio layer: addresses, sockets, TLS, timers, and the driver that every protocol uses.
//!
//! * [`socket`]: sockets that connect and listen
//! * [`driver`]: moves bytes between a socket and a [`driver::Endpoint`]
//! * [`session`]: a client's end, a [`forebay_base::machine::Machine`] that its driver and its
//!   users share
//! * `exchange`: when the driver stays awake for the next answer
//! * [`tcp`]: sockets that acknowledge promptly and coalesce wake-ups; `unix`: Unix domain sockets
//! * [`tls`]: rustls with an explicit provider and host name checks
//! * [`url`]: service URLs with several hosts
//! * [`ws`]: WebSocket as a byte stream; [`http`]: GET requests
//! * [`backoff`]: pauses between attempts, with jitter; `race`: attempts at several addresses side
//!   by side
//!
//! With the feature `simulation`, tests replace names, sockets and threads by their own
//! (`simulation`).

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;

use forebay_base::error::{Error, ErrorKind, Result};

pub mod backoff;
pub mod der;
pub mod driver;
mod exchange;
pub mod http;
mod race;
pub mod session;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod socket;
pub mod tcp;
pub mod tls;
#[cfg(unix)]
pub mod unix;
pub mod url;
pub mod ws;

use socket::Socket;
use tcp::{Pacing, Tcp, Writer};

/// A connected socket, with or without TLS.
#[derive(Debug)]
pub enum Stream {
    /// TCP.
    Plain(Tcp),
    /// TLS over TCP.
    Tls(Box<tokio_rustls::client::TlsStream<Tcp>>),
    /// A Unix domain socket.
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
    /// WebSocket over one of the others.
    WebSocket(Box<ws::WebSocket<Self>>),
    /// A socket of a simulated network.
    #[cfg(feature = "simulation")]
    Simulated(Box<dyn simulation::Socket>),
}

impl Stream {
    /// A writer for other threads than the owner's; only for plain TCP, which sends bytes as they
    /// are given.
    pub fn writer(&self) -> Option<Writer> {
        match self {
            Self::Plain(tcp) => Some(tcp.writer()),
            _ => None,
        }
    }
}

/// Connects to a Unix domain socket.
#[cfg(unix)]
pub async fn connect_unix(path: &str) -> Result<Stream> {
    tokio::net::UnixStream::connect(path)
        .await
        .map(Stream::Unix)
        .map_err(|error| Error::new(ErrorKind::ConnectFailed, format!("cannot connect to {path}: {error}")))
}

/// Connects to `host:port`, trying every address the name resolves to, side by side, within
/// `timeout` in all.
pub async fn connect(
    host: &str,
    port: u16,
    tls: Option<&tls::Connector>,
    pacing: Pacing,
    timeout: Duration,
) -> Result<Stream> {
    let attempt = async {
        let tcp = match connect_any(host, port).await? {
            Socket::Tcp(stream) => Tcp::new(stream, pacing),
            #[cfg(feature = "simulation")]
            Socket::Simulated(socket) => return Ok(Stream::Simulated(socket)),
        };
        let Some(tls) = tls else { return Ok(Stream::Plain(tcp)) };
        let stream = tls.connect(host, tcp)?.await.map_err(|error| tls::error(host, port, &error))?;
        Ok(Stream::Tls(Box::new(stream)))
    };
    tokio::time::timeout(timeout, attempt).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Timeout, format!("no connection to {host}:{port} within {timeout:?}")))
    })
}

/// The addresses of a name.
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    #[cfg(feature = "simulation")]
    if let Some(network) = simulation::network() {
        return network.resolve(host, port).await;
    }
    Ok(tokio::net::lookup_host((host, port)).await?.collect())
}

/// The address of this host on the route to another.
pub fn own_address_towards(to: SocketAddr) -> io::Result<IpAddr> {
    #[cfg(feature = "simulation")]
    if simulation::network().is_some() {
        return Ok(to.ip());
    }
    // Sends nothing: connecting a UDP socket only looks the route up.
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

/// Runs a function that may block on a thread of its own.
pub fn spawn_thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    #[cfg(feature = "simulation")]
    if simulation::network().is_some() {
        run();
        return Ok(());
    }
    std::thread::Builder::new().name(name.into()).spawn(run).map(drop)
}

/// Runs a function that may block on a thread of the runtime; `None` if the runtime ends first.
pub fn spawn_blocking<T, F>(runtime: &Handle, run: F) -> impl Future<Output = Option<T>> + Send + use<T, F>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    #[cfg(feature = "simulation")]
    if simulation::network().is_some() {
        let done = run();
        return futures_util::future::Either::Left(async move { Some(done) });
    }
    let running = runtime.spawn_blocking(run);
    let running = async move { running.await.ok() };
    #[cfg(feature = "simulation")]
    let running = futures_util::future::Either::Right(running);
    running
}

/// A connection to one of the addresses of a name, the first that can be connected to.
async fn connect_any(host: &str, port: u16) -> Result<Socket> {
    let failed = |error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::ConnectFailed, format!("cannot connect to {host}:{port}: {error}"))
    };
    let addresses = resolve(host, port).await.map_err(|e| failed(&e))?;
    race::first_of(addresses, Socket::connect).await.map_err(|e| failed(&e))
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::WebSocket(stream) => Pin::new(stream).poll_read(cx, buf),
            #[cfg(feature = "simulation")]
            Self::Simulated(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::WebSocket(stream) => Pin::new(stream).poll_write(cx, buf),
            #[cfg(feature = "simulation")]
            Self::Simulated(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::WebSocket(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            #[cfg(feature = "simulation")]
            Self::Simulated(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
            #[cfg(unix)]
            Self::Unix(stream) => stream.is_write_vectored(),
            Self::WebSocket(stream) => stream.is_write_vectored(),
            #[cfg(feature = "simulation")]
            Self::Simulated(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Self::WebSocket(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(feature = "simulation")]
            Self::Simulated(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::WebSocket(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(feature = "simulation")]
            Self::Simulated(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
