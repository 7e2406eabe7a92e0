//! The driver: moves bytes between a socket and a machine. One for every protocol and both sides.
//!
//! It drives an [`Endpoint`], one end of a connection. Each turn of the driver:
//!
//! 1. [`Endpoint::turn`]: bytes and time into the protocol, bytes out of it;
//! 2. wait for bytes, for room in the socket, for a notification or for the next deadline. It reads before it writes,
//!    and writes at most [`WRITE_TURN`] bytes, so that neither direction starves the other. An endpoint that is behind
//!    stops reading with [`Turn::reads`], and the peer's socket fills up.
//!
//! A client's endpoint is a [`Session`]: a [`Host`], which is a machine with its routes, behind a lock that its users
//! share. The broker's endpoint is a connection of one of its services.
//!
//! A user that has just one message to send need not wait until the driver's thread runs: [`Session::write`] takes a
//! turn and writes on the thread of the caller, as long as the driver has nothing to write itself. Both write under
//! one rule, so that bytes keep their order: what the host has queued is written under its lock, and once the driver has
//! taken bytes out of it, no other thread writes until those are written. While answers to such messages come at once,
//! the driver stays awake for the next one ([`exchange`](super::exchange)).
//!
//! The connection to a peer that accepts no bytes for [`WRITE_STALL`] is closed. The read buffer belongs to the thread:
//! an idle connection holds none.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::ops::{Deref, DerefMut};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::machine::{Machine, earliest};
use crate::net::exchange::Exchanges;
use crate::net::tcp::Writer;
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::transmit::{MAX_SLICES, Transmit};
use crate::wire::move_to;

/// Most bytes written before reading again.
pub const WRITE_TURN: usize = 256 << 10;
/// Time without room in the socket, while bytes wait, after which the connection is closed.
pub const WRITE_STALL: Duration = Duration::from_secs(60);
/// Room reserved for reads.
const READ_CHUNK: usize = 64 << 10;
/// With less room than this left, reads go to a new buffer. The rest of the old one is wasted as long as a frame in it
/// is held, which may be long: a slow consumer pays for each wasted byte.
const READ_LEAST: usize = 2 << 10;
/// Number of unwritten bytes above which a host adds no more.
pub const WRITE_HIGH_WATER: usize = 1 << 20;

/// One end of a connection.
pub trait Endpoint {
    /// Takes the complete frames out of `input`, handles timeouts, and fills `output` if it is empty. An error ends the
    /// connection, after the rest of [`Self::take_output`] has been written.
    fn turn(&self, now: Instant, input: &mut BytesMut, output: &mut Transmit) -> Result<Turn>;

    /// Moves the bytes to be written into `output`, which is empty.
    fn take_output(&self, now: Instant, output: &mut Transmit);

    /// Notified when another turn is needed.
    fn turn_needed(&self) -> &Notify;
}

/// Result of [`Endpoint::turn`].
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Time of another turn, whatever else happens.
    pub deadline: Option<Instant>,
    /// Time until which the driver looks for bytes again and again instead of sleeping. Only on a runtime of one thread
    /// whose clock runs.
    pub awake: Option<Instant>,
    /// Whether more may be read from the socket. If not, [`Endpoint::turn_needed`] is notified once it may.
    pub reads: bool,
    /// Whether to write the queued bytes and end.
    pub finished: bool,
}

/// A machine with its routes.
pub trait Host: Send {
    /// The protocol.
    type Machine: Machine;

    /// The machine.
    fn machine(&mut self) -> &mut Self::Machine;

    /// Handles an event of the machine.
    fn handle_event(&mut self, now: Instant, event: <Self::Machine as Machine>::Event);

    /// Adds what is due to the machine's transmit queue, unless the socket is [`WRITE_HIGH_WATER`] behind. Returns the
    /// time of the next call. `unwritten` bytes that were taken from the queue before have not been written yet.
    fn turn(&mut self, now: Instant, unwritten: usize) -> Option<Instant>;

    /// Whether more may be read from the socket. If not, [`Session::wake`] makes the driver ask again.
    fn reads(&self) -> bool {
        true
    }

    /// Whether the driver should write the queued bytes and end.
    fn finished(&self) -> bool;
}

/// A host shared by its driver and its users.
#[derive(Debug)]
pub struct Session<H> {
    state: Mutex<State<H>>,
    wake: Notify,
    /// The socket, if users may write to it as well.
    writer: Option<Writer>,
}

/// State under the lock of a session.
#[derive(Debug)]
struct State<H> {
    host: H,
    /// The driver holds bytes that it has taken out of the host and not written.
    writing: bool,
    /// Whether the driver reads from the socket.
    reads: bool,
    /// A user has written since the driver's last turn.
    written: bool,
    /// Time of the driver's next turn.
    deadline: Option<Instant>,
    exchanges: Exchanges,
}

/// A host while it is locked.
#[derive(Debug)]
pub struct Locked<'a, H>(MutexGuard<'a, State<H>>);

impl<H> Deref for Locked<'_, H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.0.host
    }
}

impl<H> DerefMut for Locked<'_, H> {
    fn deref_mut(&mut self) -> &mut H {
        &mut self.0.host
    }
}

impl<H: Host> Session<H> {
    /// A session around `host`, whose users may write to `writer` as well.
    pub fn new(host: H, writer: Option<Writer>) -> Self {
        let state = State {
            host,
            writing: false,
            reads: true,
            written: false,
            deadline: None,
            exchanges: Exchanges::new(writer.as_ref().map(|writer| &writer.runtime)),
        };
        Self { state: Mutex::new(Rank::Host, state), wake: Notify::new(), writer }
    }

    /// Locks the host. Call [`Self::wake`] after a change.
    pub fn lock(&self) -> Locked<'_, H> {
        Locked(self.state.lock())
    }

    /// Makes the driver take a turn.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Takes a turn and writes what is due on this thread if the driver is not at work, and has the driver do it
    /// otherwise. That saves a single message the time until the driver's thread runs. Those that follow before the
    /// driver's next turn are left to it, because it gathers them. The caller holds no lock.
    pub fn write(&self) {
        if !self.writer.as_ref().is_some_and(|writer| self.write_to(writer)) {
            self.wake();
        }
    }

    /// Returns false if the driver has to take a turn.
    fn write_to(&self, writer: &Writer) -> bool {
        // The driver is in its turn.
        let Some(mut state) = self.state.try_lock() else { return false };
        let State { host, writing, reads, written, deadline, .. } = &mut *state;
        // What the driver writes comes first; and a turn may allow it to read again.
        if *writing || *written || !*reads || host.finished() {
            return false;
        }
        let Some(socket) = writer.socket.upgrade() else { return false };
        // Hosts may start tasks.
        let _runtime = writer.runtime.enter();
        let now = clock::now();
        let mut due = host.turn(now, 0);
        if !host.machine().transmit().is_empty() {
            *written = true;
            let mut budget = WRITE_TURN;
            while !host.machine().transmit().is_empty() {
                if budget == 0 {
                    return false;
                }
                let output = host.machine().transmit();
                let mut slices = [IoSlice::new(&[]); MAX_SLICES];
                let count = output.io_slices(&mut slices);
                match socket.try_write(&slices[..count]) {
                    Ok(n) if n > 0 => {
                        output.advance(n);
                        budget = budget.saturating_sub(n);
                    }
                    // The driver waits until there is room, and finds out what is wrong.
                    _ => return false,
                }
            }
            // As the driver does: some have their outcome when they are written.
            due = host.turn(now, 0);
            if !host.machine().transmit().is_empty() {
                return false;
            }
        }
        let due = earliest(due, host.machine().poll_timeout());
        due.is_none_or(|due| deadline.is_some_and(|deadline| deadline <= due))
    }
}

impl<H: Host> Endpoint for Session<H> {
    fn turn(&self, now: Instant, input: &mut BytesMut, output: &mut Transmit) -> Result<Turn> {
        let mut state = self.state.lock();
        let answered = state.written && !input.is_empty();
        let awake = state.exchanges.turn(now, answered);
        let host = &mut state.host;
        let result = handle(host, now, input, output.len());
        if output.is_empty() {
            std::mem::swap(output, host.machine().transmit());
        }
        let (reads, finished) = (host.reads(), host.finished());
        let result = result.map(|deadline| Turn { deadline, awake, reads, finished });
        // One that has ended writes its last bytes without another turn.
        state.writing = !output.is_empty() || !matches!(&result, Ok(turn) if !turn.finished);
        state.written = false;
        state.reads = result.as_ref().is_ok_and(|turn| turn.reads);
        result.map(|turn| {
            // An earlier deadline is kept although the host has put it off: else each user that writes and brings it
            // forward again would have to wake the driver.
            let stands =
                state.deadline.filter(|at| *at > now && turn.deadline.is_none_or(|later| *at <= later));
            state.deadline = stands.or(turn.deadline);
            Turn { deadline: state.deadline, ..turn }
        })
    }

    fn take_output(&self, _: Instant, output: &mut Transmit) {
        std::mem::swap(output, self.lock().machine().transmit());
    }

    fn turn_needed(&self) -> &Notify {
        &self.wake
    }
}

thread_local! {
    /// Buffer of the next read of any connection of this thread.
    static ROOM: RefCell<BytesMut> = RefCell::default();
}

/// Runs `endpoint` over `stream` until either ends, and returns the reason. `Ok` means that the endpoint had finished.
pub async fn drive<E, S>(endpoint: &E, mut stream: S) -> Result<()>
where
    E: Endpoint,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut input = Input::default();
    let mut output = Transmit::default();
    let mut stalled_since: Option<Instant> = None;
    // TLS and WebSocket may buffer bytes that they accepted.
    let mut unflushed = false;
    let mut timer = pin!(tokio::time::sleep(Duration::ZERO));
    loop {
        let now = clock::now();
        let turn = endpoint.turn(now, &mut input.buffer, &mut output);
        input.give_back();
        let turn = match turn {
            Ok(turn) if !turn.finished => turn,
            ended => {
                // The final packets, but not for long.
                let last = finish(endpoint, &mut stream, output);
                let _ = tokio::time::timeout(Duration::from_secs(1), last).await;
                return ended.map(drop);
            }
        };
        let stall =
            (unflushed || !output.is_empty()).then(|| *stalled_since.get_or_insert(now) + WRITE_STALL);
        if stall.is_some_and(|at| at <= now) {
            return Err(Error::new(
                ErrorKind::Disconnected,
                format!("the peer accepted no bytes for {WRITE_STALL:?}"),
            ));
        }
        let deadline = earliest(turn.deadline, stall);
        if let Some(at) = deadline
            && timer.deadline() != at.into()
        {
            timer.as_mut().reset(at.into());
        }
        let mut woken = pin!(endpoint.turn_needed().notified());
        let mut awake = turn.awake;
        let progress = loop {
            let progress = poll_fn(|cx| {
                let mut progress = Progress::default();
                if turn.reads {
                    progress.read = input.poll_read(&mut stream, cx)?;
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
                unflushed |= progress.wrote;
                // Also without anything to flush: this is where a socket acknowledges what was read. Not at the end of
                // the stream, where a failing flush would hide that the peer closed the connection.
                if progress.read != Some(0) && Pin::new(&mut stream).poll_flush(cx)?.is_ready() {
                    progress.flushed = std::mem::take(&mut unflushed);
                }
                progress.woken = woken.as_mut().poll(cx).is_ready();
                progress.due = deadline.is_some() && timer.as_mut().poll(cx).is_ready();
                if progress.any() || awake.is_some() { Poll::Ready(Ok(progress)) } else { Poll::Pending }
            })
            .await
            .map_err(|error: std::io::Error| {
                Error::new(ErrorKind::Disconnected, format!("the connection broke: {error}"))
            })?;
            if progress.any() {
                break progress;
            }
            // The runtime looks for events, and other connections run.
            tokio::task::yield_now().await;
            awake = awake.filter(|until| clock::now() < *until);
        };
        if progress.read == Some(0) {
            return Err(Error::new(ErrorKind::Disconnected, "the peer closed the connection"));
        }
        if progress.wrote || progress.flushed {
            stalled_since = None;
        }
    }
}

/// Bytes that were read and are not a complete frame yet.
#[derive(Default)]
struct Input {
    buffer: BytesMut,
    /// The buffer is the thread's.
    lent: bool,
}

impl Input {
    /// Reads more; `None` when there is nothing to read now.
    fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut std::task::Context<'_>,
    ) -> std::io::Result<Option<usize>> {
        if self.buffer.is_empty() {
            self.buffer = ROOM.take();
            self.lent = true;
        }
        self.make_room();
        // The read future keeps no state between polls, so a new one each time loses nothing.
        let read = match pin!(stream.read_buf(&mut self.buffer)).poll(cx) {
            Poll::Ready(read) => Some(read?),
            Poll::Pending => None,
        };
        self.give_back();
        Ok(read)
    }

    /// Frames share the buffer that they are cut out of, held or not, so it is filled to its end. For the rest of a
    /// frame its decoder has reserved just the missing room, if it knows how much.
    fn make_room(&mut self) {
        let room = self.buffer.capacity() - self.buffer.len();
        if self.buffer.is_empty() && room < READ_LEAST {
            // Reuses the memory if no frame of it is held.
            self.buffer.reserve(READ_CHUNK);
        } else if room == 0 {
            let capacity = READ_CHUNK.max(2 * self.buffer.len());
            move_to(&mut self.buffer, capacity);
        }
    }

    /// Returns an empty buffer to the thread.
    fn give_back(&mut self) {
        if self.buffer.is_empty() && std::mem::take(&mut self.lent) {
            ROOM.set(std::mem::take(&mut self.buffer));
        }
    }
}

#[derive(Default)]
struct Progress {
    read: Option<usize>,
    wrote: bool,
    flushed: bool,
    woken: bool,
    due: bool,
}

impl Progress {
    fn any(&self) -> bool {
        self.read.is_some() || self.wrote || self.flushed || self.woken || self.due
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
    let turn = host.turn(now, unwritten);
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

async fn finish<E: Endpoint, S: AsyncWrite + Unpin>(endpoint: &E, stream: &mut S, mut output: Transmit) {
    loop {
        while !output.is_empty() {
            match stream.write(output.first()).await {
                Ok(n) if n > 0 => output.advance(n),
                _ => return,
            }
        }
        endpoint.take_output(clock::now(), &mut output);
        if output.is_empty() {
            break;
        }
    }
    let _ = stream.flush().await;
    let _ = stream.shutdown().await;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Context;

    use bytes::Bytes;
    use tokio::io::{DuplexStream, ReadBuf, duplex};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::net::tcp::{Pacing, Tcp};
    use crate::wire;

    /// Cuts frames of a length and what it counts, and holds them.
    #[derive(Default)]
    struct Keeper {
        frames: RefCell<Vec<Bytes>>,
        wanted: Cell<usize>,
        /// Says to the decoder's helper how long the frame is, as decoders do that know.
        sized: bool,
        /// Stays awake as long.
        awake: Option<Duration>,
        bell: Notify,
    }

    impl Endpoint for Keeper {
        fn turn(&self, now: Instant, input: &mut BytesMut, _: &mut Transmit) -> Result<Turn> {
            let mut frames = self.frames.borrow_mut();
            while let Some(length) = input.first_chunk().map(|b| u32::from_be_bytes(*b) as usize) {
                if input.len() < length {
                    if self.sized {
                        wire::make_room(input, length);
                    }
                    break;
                }
                frames.push(input.split_to(length).freeze());
            }
            let (awake, finished) = (self.awake.map(|time| now + time), frames.len() >= self.wanted.get());
            Ok(Turn { deadline: None, awake, reads: true, finished })
        }

        fn take_output(&self, _: Instant, _: &mut Transmit) {}

        fn turn_needed(&self) -> &Notify {
            &self.bell
        }
    }

    /// Has something to write, once.
    struct Talker {
        says: RefCell<Transmit>,
        bell: Notify,
    }

    impl Endpoint for Talker {
        fn turn(&self, now: Instant, _: &mut BytesMut, output: &mut Transmit) -> Result<Turn> {
            self.take_output(now, output);
            Ok(Turn { deadline: None, awake: None, reads: true, finished: false })
        }

        fn take_output(&self, _: Instant, output: &mut Transmit) {
            output.push_slice(&self.says.take().take());
        }

        fn turn_needed(&self) -> &Notify {
            &self.bell
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_accepts_no_bytes_is_given_up_and_a_slow_one_is_not() {
        const BYTES: usize = 3000;
        let mut says = Transmit::default();
        says.push_slice(&[7; BYTES]);
        let talker = Talker { says: RefCell::new(says), bell: Notify::new() };
        let (near, mut far) = duplex(1000);
        let started = tokio::time::Instant::now();
        let mut last_read = started;
        let peer = async {
            let mut piece = [0; 500];
            // One piece is read a little before the time is up, again and again; then no more.
            for _ in 0..3 {
                tokio::time::sleep(WRITE_STALL - Duration::from_secs(1)).await;
                far.read_exact(&mut piece).await.unwrap();
                last_read = tokio::time::Instant::now();
            }
            tokio::time::sleep(10 * WRITE_STALL).await;
        };
        let error = tokio::select! {
            ended = drive(&talker, near) => ended.unwrap_err(),
            () = peer => panic!("it waits for ever"),
        };
        assert_eq!(error.kind(), ErrorKind::Disconnected);
        assert!(error.message().contains("accepted no bytes"), "{error}");
        assert_eq!(last_read - started, 3 * (WRITE_STALL - Duration::from_secs(1)), "it was given up early");
        assert!(last_read.elapsed() <= WRITE_STALL + Duration::from_secs(1), "{:?}", last_read.elapsed());
    }

    fn frame(length: usize) -> Vec<u8> {
        let mut frame = vec![7; length];
        frame[..4].copy_from_slice(&(length as u32).to_be_bytes());
        frame
    }

    /// Bytes of the pages that `frames` keep resident, each page once: from the beginning of the first frame of a
    /// buffer to the end of what was read into it.
    fn touched(frames: &[Bytes]) -> usize {
        const PAGE: usize = 4096;
        let mut pages: Vec<usize> = frames
            .iter()
            .flat_map(|frame| {
                let start = frame.as_ptr() as usize;
                start / PAGE..(start + frame.len()).div_ceil(PAGE)
            })
            .collect();
        pages.sort_unstable();
        pages.dedup();
        pages.len() * PAGE
    }

    async fn keep(keeper: &Keeper, count: usize, write: impl AsyncFnOnce(DuplexStream)) -> Vec<Bytes> {
        keeper.wanted.set(count);
        let (near, far) = duplex(1 << 20);
        let (driven, ()) = tokio::join!(drive(keeper, near), write(far));
        driven.unwrap();
        keeper.frames.take()
    }

    #[tokio::test]
    async fn frames_that_come_one_by_one_and_are_held_share_their_pages() {
        for (length, most) in [(1100, 1.25), (220, 1.25), (5000, 1.5)] {
            let keeper = Keeper::default();
            let frames = keep(&keeper, 500, async |mut far: DuplexStream| {
                for _ in 0..500 {
                    far.write_all(&frame(length)).await.unwrap();
                    // The other end reads each before the next one comes.
                    tokio::task::yield_now().await;
                    tokio::task::yield_now().await;
                }
            })
            .await;
            assert!(frames.iter().all(|held| held[..] == frame(length)));
            let ratio = touched(&frames) as f64 / (500 * length) as f64;
            assert!(ratio < most, "{length} bytes: {ratio}");
        }
    }

    /// Counts the looks for bytes.
    struct Counted(DuplexStream, Arc<AtomicUsize>);

    impl AsyncRead for Counted {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            self.1.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut self.0).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for Counted {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<std::io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(cx, buf)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }

    /// The peer runs on the same thread, and its timer too.
    #[tokio::test]
    async fn who_is_awake_lets_others_run_and_sleeps_in_the_end() {
        const PAUSE: Duration = Duration::from_millis(5);
        let yields = async |times: usize| {
            for _ in 0..times {
                tokio::task::yield_now().await;
            }
        };
        for (awake, sleeps) in
            [(Duration::ZERO, true), (PAUSE / 50, true), (Duration::from_secs(3600), false)]
        {
            let keeper = Keeper { awake: Some(awake), ..Keeper::default() };
            keeper.wanted.set(1);
            let (near, mut far) = duplex(1 << 10);
            let looks = Arc::<AtomicUsize>::default();
            let near = Counted(near, Arc::clone(&looks));
            let tasks = tokio::task::LocalSet::new();
            let driver = tasks.spawn_local(async move { drive(&keeper, near).await });
            tasks
                .run_until(async {
                    tokio::time::sleep(PAUSE).await;
                    yields(10).await;
                    let before = looks.load(Ordering::Relaxed);
                    yields(100).await;
                    assert_eq!(looks.load(Ordering::Relaxed) == before, sleeps, "awake for {awake:?}");
                    far.write_all(&frame(100)).await.unwrap();
                    driver.await.unwrap().unwrap();
                })
                .await;
        }
    }

    #[tokio::test]
    async fn a_large_frame_is_held_in_a_buffer_of_its_size() {
        for length in [100 << 10, 131 << 10, 1 << 20, 3 << 20] {
            let keeper = Keeper { sized: true, ..Keeper::default() };
            let frames = keep(&keeper, 5, async |mut far: DuplexStream| {
                for _ in 0..5 {
                    far.write_all(&frame(length)).await.unwrap();
                }
            })
            .await;
            // What is left of the last one's buffer is where the thread will read next.
            for held in frames.into_iter().take(4) {
                assert_eq!(held[..], frame(length));
                let buffer = held.try_into_mut().expect("the buffer is not shared");
                assert!(buffer.capacity() < length + READ_CHUNK, "{length} bytes in {}", buffer.capacity());
            }
        }
    }

    /// A host whose users queue bytes.
    #[derive(Debug, Default)]
    struct Queue {
        transmit: Transmit,
        /// Bytes that users have added since the last turn.
        added: Vec<u8>,
        turns: usize,
        due: Option<Instant>,
    }

    impl Machine for Queue {
        type Event = ();

        fn handle_input(&mut self, _: Instant, input: &mut BytesMut) -> Result<()> {
            input.clear();
            Ok(())
        }

        fn handle_timeout(&mut self, _: Instant) -> Result<()> {
            self.due = None;
            Ok(())
        }

        fn poll_timeout(&self) -> Option<Instant> {
            self.due
        }

        fn poll_event(&mut self) -> Option<()> {
            None
        }

        fn transmit(&mut self) -> &mut Transmit {
            &mut self.transmit
        }
    }

    impl Host for Queue {
        type Machine = Self;

        fn machine(&mut self) -> &mut Self {
            self
        }

        fn handle_event(&mut self, _: Instant, (): ()) {}

        fn turn(&mut self, _: Instant, _: usize) -> Option<Instant> {
            self.turns += 1;
            self.transmit.push_slice(&std::mem::take(&mut self.added));
            None
        }

        fn finished(&self) -> bool {
            false
        }
    }

    /// A session over TCP with its driver, and the other end.
    async fn connected() -> (Arc<Session<Queue>>, tokio::task::JoinHandle<Result<()>>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        // So that it is full soon.
        socket2::SockRef::from(&near).set_send_buffer_size(4 << 10).unwrap();
        let (far, _) = listener.accept().await.unwrap();
        let near = Tcp::new(near, Pacing::Kernel);
        let session = Arc::new(Session::new(Queue::default(), Some(near.writer())));
        let driver = tokio::spawn({
            let session = Arc::clone(&session);
            async move { drive(&*session, near).await }
        });
        // Its first turn.
        while session.lock().turns == 0 {
            tokio::task::yield_now().await;
        }
        (session, driver, far)
    }

    #[tokio::test]
    async fn a_single_message_is_written_by_its_caller() {
        let (session, _driver, far) = connected().await;
        let far = far.into_std().unwrap();
        far.set_nonblocking(false).unwrap();
        session.lock().added.extend(b"hello");
        session.write();
        // The driver has had no chance: this thread is its own.
        let mut got = [0; 5];
        std::io::Read::read_exact(&mut &far, &mut got).unwrap();
        assert_eq!(&got, b"hello");
    }

    #[tokio::test]
    async fn single_messages_that_are_answered_at_once_keep_the_driver_awake() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let near = Tcp::new(near, Pacing::Kernel);
        let session = Session::new(Queue::default(), Some(near.writer()));
        let mut now = clock::now();
        let mut turns = |writes: bool, answer: &[u8]| {
            let turn = || {
                now += Duration::from_micros(50);
                if writes {
                    session.lock().added.extend(b"hello");
                    session.write();
                }
                let mut output = Transmit::default();
                session.turn(now, &mut BytesMut::from(answer), &mut output).unwrap().awake.is_some()
            };
            std::iter::repeat_with(turn).take(20).collect::<Vec<_>>()
        };
        let has_cores = std::thread::available_parallelism().unwrap().get() > 1;
        assert_eq!(turns(true, b"answer").last(), Some(&has_cores));
        assert_eq!(turns(false, b"not asked for"), [false; 20]);
        assert_eq!(turns(true, b""), [false; 20]);
        assert_eq!(turns(true, b"answer").last(), Some(&has_cores));
    }

    #[tokio::test]
    async fn a_deadline_that_a_caller_brings_forward_is_kept_by_the_driver() {
        let (session, _driver, _far) = connected().await;
        session.lock().due = Some(clock::now() + Duration::from_millis(5));
        session.write();
        let handled = async {
            while session.lock().due.is_some() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), handled).await.expect("the driver handles it in time");
    }

    #[tokio::test]
    async fn the_socket_closes_with_its_driver_although_users_hold_the_session() {
        let (session, driver, mut far) = connected().await;
        driver.abort();
        assert_eq!(far.read(&mut [0; 1]).await.unwrap(), 0);
        session.lock().added.extend(b"lost");
        session.write();
        assert_eq!(session.lock().added, b"lost", "there is nothing to write to");
    }

    /// Users and the driver write by turns into a socket that is full again and again.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn bytes_keep_their_order_whoever_writes_them() {
        const NUMBERS: u32 = 60_000;
        let (session, _driver, mut far) = connected().await;
        let next = Arc::new(Mutex::leaf(0));
        let users: Vec<_> = (0..3)
            .map(|user| {
                let (session, next) = (Arc::clone(&session), Arc::clone(&next));
                std::thread::spawn(move || {
                    loop {
                        {
                            let mut host = session.lock();
                            let mut next = next.lock();
                            if *next == NUMBERS {
                                return;
                            }
                            host.added.extend(next.to_be_bytes());
                            *next += 1;
                        }
                        if user == 0 { session.wake() } else { session.write() }
                    }
                })
            })
            .collect();
        let mut got = vec![0; 4 * NUMBERS as usize];
        tokio::time::timeout(Duration::from_secs(60), far.read_exact(&mut got)).await.unwrap().unwrap();
        let numbers = got.chunks(4).map(|bytes| u32::from_be_bytes(bytes.try_into().unwrap()));
        assert!(numbers.eq(0..NUMBERS), "in order, each once");
        users.into_iter().for_each(|user| user.join().unwrap());
    }
}
