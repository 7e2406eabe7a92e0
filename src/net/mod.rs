//! The tokio layer: addresses, sockets, TLS, timers, and the driver that every protocol uses.
//!
//! * [`driver`]: moves bytes between a socket and a [`crate::machine::Machine`]
//! * [`tcp`]: sockets that acknowledge promptly and coalesce wake-ups
//! * [`tls`]: rustls with an explicit provider and host name checks
//! * [`url`]: service URLs with several hosts
//! * [`ws`]: WebSocket as a byte stream
//! * [`backoff`]: pauses between attempts, with jitter

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::error::{Error, ErrorKind, Result};

pub mod backoff;
pub mod driver;
pub mod tcp;
pub mod tls;
pub mod url;
pub mod ws;

use tcp::{Pacing, Tcp};

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
}

/// Connects to a Unix domain socket.
#[cfg(unix)]
pub async fn connect_unix(path: &str) -> Result<Stream> {
    tokio::net::UnixStream::connect(path)
        .await
        .map(Stream::Unix)
        .map_err(|error| Error::new(ErrorKind::ConnectFailed, format!("cannot connect to {path}: {error}")))
}

/// Connects to `host:port`, trying every address the name resolves to, within `timeout` in all.
pub async fn connect(
    host: &str,
    port: u16,
    tls: Option<&TlsConnector>,
    pacing: Pacing,
    timeout: Duration,
) -> Result<Stream> {
    let attempt = async {
        let tcp = Tcp::new(connect_tcp(host, port).await?, pacing);
        let Some(tls) = tls else { return Ok(Stream::Plain(tcp)) };
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| Error::new(ErrorKind::InvalidArgument, format!("{host:?} is not a host name")))?;
        let stream = tls.connect(name, tcp).await.map_err(|error| tls::error(host, port, &error))?;
        Ok(Stream::Tls(Box::new(stream)))
    };
    tokio::time::timeout(timeout, attempt).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Timeout, format!("no connection to {host}:{port} within {timeout:?}")))
    })
}

async fn connect_tcp(host: &str, port: u16) -> Result<TcpStream> {
    let failed = |error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::ConnectFailed, format!("cannot connect to {host}:{port}: {error}"))
    };
    let addresses = tokio::net::lookup_host((host, port)).await.map_err(|e| failed(&e))?;
    let mut last = None;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(tcp) => {
                tcp.set_nodelay(true)?;
                let keepalive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(60));
                socket2::SockRef::from(&tcp).set_tcp_keepalive(&keepalive)?;
                return Ok(tcp);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(match last {
        Some(error) => failed(&error),
        None => failed(&"the name has no address"),
    })
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::WebSocket(stream) => Pin::new(stream).poll_read(cx, buf),
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
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
            #[cfg(unix)]
            Self::Unix(stream) => stream.is_write_vectored(),
            Self::WebSocket(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Self::WebSocket(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::WebSocket(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
