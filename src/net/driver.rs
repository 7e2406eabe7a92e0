//! The driver: moves bytes between a socket and an [`Endpoint`]. One for every protocol and both
//! sides.
//!
//! An endpoint is a client's [`Session`](super::session::Session), or a connection of one of the
//! broker's services. Each turn of the driver:
//!
//! 1. [`Endpoint::turn`]: bytes and time into the protocol, bytes out of it;
//! 2. wait for bytes, for room in the socket, for a notification or for the next deadline. It reads
//!    before it writes, and writes at most [`WRITE_TURN`] bytes, so that neither direction starves
//!    the other. An endpoint that is behind stops reading with [`Turn::reads`], and the peer's
//!    socket fills up.
//!
//! The connection to a peer that accepts no bytes for [`WRITE_STALL`] is closed. The read buffer
//! belongs to the thread: an idle connection holds none.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

use crate::tls;
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::machine::earliest;
use forebay_base::transmit::{MAX_SLICES, Transmit};
use forebay_base::wire::move_to;

/// Most bytes written before reading again.
pub const WRITE_TURN: usize = 256 << 10;
/// Time without room in the socket, while bytes wait, after which the connection is closed.
pub const WRITE_STALL: Duration = Duration::from_secs(60);
/// Room reserved for reads.
const READ_CHUNK: usize = 64 << 10;
/// With less room than this left, reads go to a new buffer. The rest of the old one is wasted as
/// long as a frame in it is held, which may be long: a slow consumer pays for each wasted byte.
const READ_LEAST: usize = 2 << 10;

/// One end of a connection.
pub trait Endpoint {
    /// Takes the complete frames out of `input`, handles timeouts, and fills `output` if it is
    /// empty. An error ends the connection, after the rest of [`Self::take_output`] has been
    /// written.
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
    /// Time until which the driver looks for bytes again and again instead of sleeping. Only on a
    /// runtime of one thread whose clock runs.
    pub awake: Option<Instant>,
    /// Whether more may be read from the socket. If not, [`Endpoint::turn_needed`] is notified once
    /// it may.
    pub reads: bool,
    /// Whether to write the queued bytes and end.
    pub finished: bool,
}

thread_local! {
    /// Buffer of the next read of any connection of this thread.
    static ROOM: RefCell<BytesMut> = RefCell::default();
}

/// Runs `endpoint` over `stream` until either ends, and returns the reason. `Ok` means that the
/// endpoint had finished.
pub async fn drive<E, S>(endpoint: &E, stream: S) -> Result<()>
where
    E: Endpoint,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (input, output) = (Input::default(), Transmit::default());
    let mut io = Io { stream, input, output, unflushed: false, broken: None };
    let mut stalled_since: Option<Instant> = None;
    let mut timer = pin!(tokio::time::sleep(Duration::ZERO));
    loop {
        let now = clock::now();
        let turn = endpoint.turn(now, &mut io.input.buffer, &mut io.output);
        io.input.give_back();
        let turn = match turn {
            Ok(turn) if !turn.finished => turn,
            ended => {
                // The final packets, but not for long.
                let last = finish(endpoint, &mut io.stream, io.output);
                let _ = tokio::time::timeout(Duration::from_secs(1), last).await;
                return ended.map(drop);
            }
        };
        let stall =
            (io.unflushed || !io.output.is_empty()).then(|| *stalled_since.get_or_insert(now) + WRITE_STALL);
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
                let mut progress = io.poll(cx, turn.reads)?;
                progress.woken = woken.as_mut().poll(cx).is_ready();
                progress.due = deadline.is_some() && timer.as_mut().poll(cx).is_ready();
                if progress.any() || awake.is_some() { Poll::Ready(Ok(progress)) } else { Poll::Pending }
            })
            .await
            .map_err(|error: std::io::Error| tls::broken(&error))?;
            if progress.any() {
                break progress;
            }
            // A thread that waits for this core runs, such as a broker's that was woken on it.
            std::thread::yield_now();
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

/// A socket with the bytes that were read from it and those to be written.
struct Io<S> {
    stream: S,
    input: Input,
    output: Transmit,
    /// The stream may hold bytes that it has accepted, as TLS and WebSocket do.
    unflushed: bool,
    /// Why nothing can be written any more. What the peer said before it closed the connection is
    /// still read: it may be the reason.
    broken: Option<std::io::Error>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Io<S> {
    /// Moves what can be moved now.
    fn poll(&mut self, cx: &mut Context<'_>, reads: bool) -> std::io::Result<Progress> {
        let mut progress = Progress::default();
        if reads {
            progress.read = self.input.poll_read(&mut self.stream, cx)?;
        }
        if self.broken.is_none() {
            self.broken = self.poll_write(cx, &mut progress).err();
            // Another look for bytes.
            progress.broke = self.broken.is_some();
        } else if progress.read.is_none() {
            return Err(self.broken.take().expect("it is broken"));
        }
        Ok(progress)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, progress: &mut Progress) -> std::io::Result<()> {
        let mut budget = WRITE_TURN;
        while !self.output.is_empty() && budget > 0 {
            match poll_write(Pin::new(&mut self.stream), cx, &self.output)? {
                Poll::Ready(n) => {
                    self.output.advance(n);
                    budget = budget.saturating_sub(n);
                    progress.wrote = true;
                }
                Poll::Pending => break,
            }
        }
        self.unflushed |= progress.wrote;
        // Also without anything to flush: this is where a socket acknowledges what was read. Not at
        // the end of the stream, where a failing flush would hide that the peer closed the
        // connection.
        if progress.read != Some(0) && Pin::new(&mut self.stream).poll_flush(cx)?.is_ready() {
            progress.flushed = std::mem::take(&mut self.unflushed);
        }
        Ok(())
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
        cx: &mut Context<'_>,
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

    /// Frames share the buffer that they are cut from, so it is filled to its end, whether or not
    /// they are held. A decoder that knows a frame's length has reserved the missing room.
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
    broke: bool,
    woken: bool,
    due: bool,
}

impl Progress {
    fn any(&self) -> bool {
        self.read.is_some() || self.wrote || self.flushed || self.broke || self.woken || self.due
    }
}

fn poll_write<S: AsyncWrite>(
    stream: Pin<&mut S>,
    cx: &mut Context<'_>,
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

    use bytes::Bytes;
    use tokio::io::{DuplexStream, ReadBuf, duplex};

    use super::*;
    use forebay_base::wire;

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

    /// A socket of a peer that has closed the connection after its last word.
    struct Broken(DuplexStream);

    impl AsyncRead for Broken {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for Broken {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<std::io::Result<usize>> {
            Poll::Ready(Err(std::io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Writes something in each turn, and counts the bytes that came.
    #[derive(Default)]
    struct Busy {
        came: Cell<usize>,
        bell: Notify,
    }

    impl Endpoint for Busy {
        fn turn(&self, now: Instant, input: &mut BytesMut, output: &mut Transmit) -> Result<Turn> {
            self.came.set(self.came.get() + input.split().len());
            self.take_output(now, output);
            Ok(Turn { deadline: None, awake: None, reads: true, finished: false })
        }

        fn take_output(&self, _: Instant, output: &mut Transmit) {
            output.push_slice(&[1]);
        }

        fn turn_needed(&self) -> &Notify {
            &self.bell
        }
    }

    #[tokio::test]
    async fn what_a_peer_said_before_it_closed_is_read_though_nothing_can_be_written() {
        const SAID: usize = 300_000;
        for closes in [false, true] {
            let (near, mut far) = duplex(SAID);
            far.write_all(&vec![7; SAID]).await.unwrap();
            let far = (!closes).then_some(far);
            let busy = Busy::default();
            let error = drive(&busy, Broken(near)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Disconnected);
            let why = if closes { "closed the connection" } else { "broken pipe" };
            assert!(error.message().contains(why), "{error}");
            assert_eq!(busy.came.get(), SAID);
            drop(far);
        }
    }

    fn frame(length: usize) -> Vec<u8> {
        let mut frame = vec![7; length];
        frame[..4].copy_from_slice(&(length as u32).to_be_bytes());
        frame
    }

    /// Bytes of the pages that `frames` keep resident, each page once: from the beginning of the
    /// first frame of a buffer to the end of what was read into it.
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
}
