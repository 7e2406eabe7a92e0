//! Bytes into the listener of WebSocket: the handshake succeeds or is refused, what comes behind it
//! is what the frames hold, and nothing is allocated by a frame's claim.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use forebay_net::ws;
use crate::meter::Meter;
use crate::rule::{AFTER, BEFORE};
use crate::script::Script;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// Limit on a message.
const MESSAGE: usize = 1 << 20;
const REQUEST: &[u8] = b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";

/// A peer that has sent some bytes and reads everything.
struct Peer<'a> {
    unread: &'a [u8],
    /// Bytes that come at once.
    piece: usize,
    written: usize,
}

impl AsyncRead for Peer<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let size = self.piece.min(self.unread.len()).min(buf.remaining());
        let (piece, rest) = self.unread.split_at(size);
        buf.put_slice(piece);
        self.unread = rest;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Peer<'_> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.written += buf.len();
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The result of a future that never waits.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the peer is always ready"),
    }
}

/// Plays one input.
pub fn play(data: &[u8]) {
    let mut script = Script(data);
    let Some(first) = script.next() else { return };
    let piece = 1 + usize::from(script.byte()) * 8;
    let greeted = first & 1 == 1;
    let bytes = if greeted { [REQUEST, script.0].concat() } else { script.0.to_vec() };
    let mut meter = Meter::default();
    meter.came(bytes.len());
    let mut received = 0;
    let accepted = meter.run(|| {
        let peer = Peer { unread: &bytes, piece, written: 0 };
        let stream = ready(ws::accept(peer, first & 2 == 2, MESSAGE)).ok()?;
        let (mut stream, mut room) = (stream, [0; 1000]);
        while let Ok(size) = ready(stream.read(&mut room)) {
            received += size;
            if size == 0 {
                break;
            }
        }
        Some(())
    });
    assert!(received <= script.0.len(), "{received} bytes from {}", script.0.len());
    meter.check(if accepted.is_some() { AFTER } else { BEFORE }, 1);
}
