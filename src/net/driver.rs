//! The driver: moves bytes between a socket and a machine. One for every protocol and both sides.
//!
//! A [`Session`] holds a [`Host`]: the machine and whatever hangs on it (producers, consumers, topics).
//! Each turn of the driver:
//!
//! 1. under the host's lock: bytes and timeouts into the machine, events out of it to the host, then
//!    [`Host::turn`], where what hangs on the machine adds what it wants to send;
//! 2. without it: wait for bytes, for room in the socket, for a wake-up or for the next deadline, reading
//!    before writing and writing at most [`WRITE_TURN`] bytes, so that neither direction starves the other.
//!
//! A peer that takes no bytes for [`WRITE_STALL`] is given up. The read buffer belongs to the turn: an idle
//! connection holds none.

use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

use crate::error::{Error, ErrorKind, Result};
use crate::machine::{Machine, earliest};
use crate::transmit::{MAX_SLICES, Transmit};

/// Most bytes written before reading again.
pub const WRITE_TURN: usize = 256 << 10;
/// Longest time without room in the socket while bytes wait.
pub const WRITE_STALL: Duration = Duration::from_secs(30);
/// Room made for each read.
const READ_CHUNK: usize = 64 << 10;
/// Above this many bytes not yet written, the host adds no more.
const WRITE_HIGH_WATER: usize = 1 << 20;

/// A machine and what hangs on it.
pub trait Host: Send {
    /// The protocol.
    type Machine: Machine;

    /// The machine.
    fn machine(&mut self) -> &mut Self::Machine;

    /// Takes an event of the machine.
    fn handle_event(&mut self, now: Instant, event: <Self::Machine as Machine>::Event);

    /// Adds what is due to the machine's transmit queue; gives the time at which to be called again.
    fn turn(&mut self, now: Instant) -> Option<Instant>;

    /// Whether the driver should write what is queued and end.
    fn finished(&self) -> bool;
}

/// A host that its driver and its users share.
#[derive(Debug)]
pub struct Session<H> {
    host: Mutex<H>,
    wake: Notify,
}

impl<H: Host> Session<H> {
    /// A session around `host`.
    pub fn new(host: H) -> Self {
        Self { host: Mutex::new(host), wake: Notify::new() }
    }

    /// The host, for a moment. Follow a change by [`Self::wake`].
    pub fn lock(&self) -> MutexGuard<'_, H> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the driver take a turn.
    pub fn wake(&self) {
        self.wake.notify_one();
    }
}

/// Runs `session` over `stream` until either ends; gives the reason. `Ok` means the host had finished.
pub async fn drive<H, S>(session: Arc<Session<H>>, mut stream: S) -> Result<()>
where
    H: Host,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut input = BytesMut::new();
    let mut output = Transmit::default();
    let mut stalled_since: Option<Instant> = None;
    let mut timer = pin!(tokio::time::sleep(Duration::ZERO));
    loop {
        let now = Instant::now();
        let (deadline, ended) = {
            let mut host = session.lock();
            let result = handle(&mut *host, now, &mut input, output.len());
            if output.is_empty() {
                std::mem::swap(&mut output, host.machine().transmit());
            }
            match result {
                Ok(deadline) => (deadline, host.finished().then_some(Ok(()))),
                Err(error) => (None, Some(Err(error))),
            }
        };
        if input.is_empty() {
            input = BytesMut::new();
        }
        if let Some(reason) = ended {
            // A last word to the peer, but not for long.
            let last = tokio::time::timeout(Duration::from_secs(1), finish(&session, &mut stream, output));
            let _ = last.await;
            return reason;
        }
        let stall = (!output.is_empty()).then(|| *stalled_since.get_or_insert(now) + WRITE_STALL);
        if stall.is_some_and(|at| at <= now) {
            return Err(Error::new(
                ErrorKind::Disconnected,
                format!("the peer took no bytes for {WRITE_STALL:?}"),
            ));
        }
        let deadline = earliest(deadline, stall);
        if let Some(at) = deadline {
            timer.as_mut().reset(at.into());
        }
        let mut woken = pin!(session.wake.notified());
        let progress = poll_fn(|cx| {
            let mut progress = Progress::default();
            input.reserve(READ_CHUNK);
            // The read future keeps nothing between polls, so making it anew each time loses nothing.
            if let Poll::Ready(read) = pin!(stream.read_buf(&mut input)).poll(cx) {
                progress.read = Some(read?);
            }
            let mut budget = WRITE_TURN;
            while !output.is_empty() && budget > 0 {
                match poll_write(Pin::new(&mut stream), cx, &output)? {
                    Poll::Ready(n) => {
                        output.advance(n);
                        budget = budget.saturating_sub(n);
                        progress.wrote = true;
                    }
                    Poll::Pending => break,
                }
            }
            if progress.wrote {
                // TLS may hold back bytes that it took; nothing waits for the flush itself.
                let _ = Pin::new(&mut stream).poll_flush(cx)?;
            }
            progress.woken = woken.as_mut().poll(cx).is_ready();
            progress.due = deadline.is_some() && timer.as_mut().poll(cx).is_ready();
            if progress.any() { Poll::Ready(Ok(progress)) } else { Poll::Pending }
        })
        .await
        .map_err(|error: std::io::Error| {
            Error::new(ErrorKind::Disconnected, format!("the connection broke: {error}"))
        })?;
        if progress.read == Some(0) {
            return Err(Error::new(ErrorKind::Disconnected, "the peer closed the connection"));
        }
        if progress.wrote || output.is_empty() {
            stalled_since = None;
        }
    }
}

#[derive(Default)]
struct Progress {
    read: Option<usize>,
    wrote: bool,
    woken: bool,
    due: bool,
}

impl Progress {
    fn any(&self) -> bool {
        self.read.is_some() || self.wrote || self.woken || self.due
    }
}

/// Steps 1 to 3 of the poll order.
fn handle<H: Host>(
    host: &mut H,
    now: Instant,
    input: &mut BytesMut,
    unwritten: usize,
) -> Result<Option<Instant>> {
    let mut result = if input.is_empty() { Ok(()) } else { host.machine().handle_input(now, input) };
    if result.is_ok() && host.machine().poll_timeout().is_some_and(|at| at <= now) {
        result = host.machine().handle_timeout(now);
    }
    while let Some(event) = host.machine().poll_event() {
        host.handle_event(now, event);
    }
    result?;
    let turn = if unwritten < WRITE_HIGH_WATER { host.turn(now) } else { None };
    Ok(earliest(turn, host.machine().poll_timeout()))
}

fn poll_write<S: AsyncWrite>(
    stream: Pin<&mut S>,
    cx: &mut std::task::Context<'_>,
    output: &Transmit,
) -> std::io::Result<Poll<usize>> {
    let polled = if stream.is_write_vectored() {
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let count = output.io_slices(&mut slices);
        stream.poll_write_vectored(cx, &slices[..count])
    } else {
        stream.poll_write(cx, output.first())
    };
    match polled {
        Poll::Ready(Ok(0)) => Err(std::io::ErrorKind::WriteZero.into()),
        Poll::Ready(Ok(n)) => Ok(Poll::Ready(n)),
        Poll::Ready(Err(error)) => Err(error),
        Poll::Pending => Ok(Poll::Pending),
    }
}

async fn finish<H: Host, S: AsyncWrite + Unpin>(session: &Session<H>, stream: &mut S, mut output: Transmit) {
    loop {
        while !output.is_empty() {
            match stream.write(output.first()).await {
                Ok(n) if n > 0 => output.advance(n),
                _ => return,
            }
        }
        std::mem::swap(&mut output, session.lock().machine().transmit());
        if output.is_empty() {
            break;
        }
    }
    let _ = stream.shutdown().await;
}
