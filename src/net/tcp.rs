//! A TCP socket that acknowledges what it has read when nothing more is to be read.
//!
//! A peer that leaves Nagle's algorithm on (Mosquitto does by default) holds its next small packet back until the
//! last one has been acknowledged, and the kernel may take 40 ms for that when we have nothing to send: a window of a
//! hundred publications then takes 40 ms. Linux acknowledges at once when it is asked to, each time anew.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A TCP socket.
#[derive(Debug)]
pub struct Tcp {
    stream: TcpStream,
    /// Whether to acknowledge at once, and something has been read since.
    quick: bool,
    unacknowledged: bool,
}

impl Tcp {
    /// With `quick`, the peer is not kept waiting for acknowledgements.
    pub fn new(stream: TcpStream, quick: bool) -> Self {
        Self { stream, quick: quick && cfg!(target_os = "linux"), unacknowledged: false }
    }

    fn acknowledge(&mut self) {
        self.unacknowledged = false;
        #[cfg(target_os = "linux")]
        // Only speed depends on it.
        let _ = socket2::SockRef::from(&self.stream).set_tcp_quickack(true);
    }
}

impl AsyncRead for Tcp {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_read(cx, buf);
        match polled {
            Poll::Ready(_) => this.unacknowledged = this.quick,
            Poll::Pending if this.unacknowledged => this.acknowledge(),
            Poll::Pending => {}
        }
        polled
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
