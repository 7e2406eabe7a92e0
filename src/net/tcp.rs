//! A TCP socket that acknowledges promptly and coalesces wake-ups.
//!
//! A peer that leaves Nagle's algorithm on (Mosquitto does by default) holds its next small packet
//! back until the last one has been acknowledged. When we have nothing to send, the kernel may
//! delay that acknowledgement by 40 ms: a window of a hundred publications then takes 40 ms. Linux
//! acknowledges immediately on request; the request has to be repeated each time. Our own writes
//! acknowledge as well, so the request comes last: on flush, when nothing is left to read.
//!
//! In a stream of small packets that no one waits for, a wake-up per packet costs more than
//! everything else, on both sides; and so it does in a stream of answers, as long as many more are
//! on their way. Then the kernel collects `GATHER` of them before it reports the socket as
//! readable:
//!
//! ```text
//!          STREAM small reads in quick succession
//! Prompt ────────────────────────────────────────► Gathering
//!        ◄────────────────────────────────────────
//!          nothing read for PATIENCE
//! ```
//!
//! | answers awaited | packets are collected |
//! |---|---|
//! | none | as long as nothing is written |
//! | fewer than `MANY` | no |
//! | `MANY` or more | whatever is written |

use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::runtime::Handle;
use tokio::time::Sleep;

use forebay_base::clock;

/// Number of reads that make a stream.
const STREAM: u32 = 64;
/// Longest average time between two reads of a stream.
const SOON: Duration = Duration::from_micros(100);
/// Largest average size of a read of a stream.
const SMALL: u32 = 1 << 10;
/// Number of reads whose bytes are collected.
const GATHER: u32 = 16;
/// Fewest awaited answers for which packets are collected. With fewer, the peer would run out of
/// requests.
const MANY: usize = 512;
/// Time without a read after which collecting ends. Also the timer's resolution, so it may take
/// twice as long.
const PATIENCE: Duration = Duration::from_millis(1);

/// Policy for acknowledgements and wake-ups. On systems other than Linux always as
/// [`Pacing::Kernel`].
#[derive(Clone, Debug)]
pub enum Pacing {
    /// Leaves both to the kernel.
    Kernel,
    /// Acknowledges immediately, and collects streams of small packets as far as the user's waiting
    /// allows.
    Gather(Arc<Awaited>),
}

/// How many answers the user of a socket waits for.
#[derive(Debug, Default)]
pub struct Awaited(AtomicUsize);

impl Awaited {
    /// Tells the number of answers that are on their way.
    pub fn set(&self, answers: usize) {
        self.0.store(answers, Ordering::Relaxed);
    }
}

/// Whether packets may be collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Collects {
    No,
    /// As long as nothing is written.
    Stream,
    /// Whatever is written: many answers are on their way.
    Answers,
}

/// A TCP socket.
#[derive(Debug)]
pub struct Tcp {
    read: OwnedReadHalf,
    write: Arc<Shared>,
    pacing: Pacing,
    /// Whether something has been read and nothing written since.
    unacknowledged: bool,
    /// Whether the last read found nothing.
    drained: bool,
    pace: Pace,
}

/// The part of a socket that a [`Writer`] uses as well.
#[derive(Debug)]
pub(super) struct Shared {
    write: OwnedWriteHalf,
    /// Packets are collected: the owner has to know of what is written.
    gathers: AtomicBool,
    /// A writer has written since the last read.
    written: AtomicBool,
}

impl Shared {
    /// Writes a message. [`ErrorKind::WouldBlock`] if the owner has to do it.
    pub(super) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.gathers.load(Ordering::Relaxed) {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.written.store(true, Ordering::Relaxed);
        self.write.try_write_vectored(slices)
    }
}

/// Writes to a TCP socket beside its owner, until the owner drops it. The session keeps the bytes
/// in order.
#[derive(Debug)]
pub struct Writer {
    pub(super) socket: Weak<Shared>,
    /// The runtime of the owner.
    pub(super) runtime: Handle,
}

/// When the socket counts as readable.
#[derive(Debug)]
enum Pace {
    /// With the first byte. Counts reads and bytes since the first read of a row.
    Prompt { since: Option<Instant>, reads: u32, bytes: usize },
    /// With many bytes, or when the timer expires.
    Gathering { timer: Pin<Box<Sleep>> },
}

impl Pace {
    const PROMPT: Self = Self::Prompt { since: None, reads: 0, bytes: 0 };
}

impl Tcp {
    /// Wraps a connected socket.
    pub fn new(stream: TcpStream, pacing: Pacing) -> Self {
        let pacing = if cfg!(target_os = "linux") { pacing } else { Pacing::Kernel };
        let (read, write) = stream.into_split();
        Self {
            read,
            write: Arc::new(Shared {
                write,
                gathers: AtomicBool::new(false),
                written: AtomicBool::new(false),
            }),
            pacing,
            unacknowledged: false,
            drained: false,
            pace: Pace::PROMPT,
        }
    }

    /// For writes beside this. Called on the runtime.
    pub(super) fn writer(&self) -> Writer {
        Writer { socket: Arc::downgrade(&self.write), runtime: Handle::current() }
    }

    fn stream(&self) -> &TcpStream {
        self.read.as_ref()
    }

    fn poll_write_with(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        write: impl Fn(&OwnedWriteHalf) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        loop {
            ready!(this.stream().poll_write_ready(cx))?;
            match write(&this.write.write) {
                // Another writer has taken the room.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => {
                    this.has_written();
                    return Poll::Ready(written);
                }
            }
        }
    }

    fn is_paced(&self) -> bool {
        !matches!(self.pacing, Pacing::Kernel)
    }

    fn collects(&self) -> Collects {
        let Pacing::Gather(awaited) = &self.pacing else { return Collects::No };
        match awaited.0.load(Ordering::Relaxed) {
            0 => Collects::Stream,
            MANY.. => Collects::Answers,
            _ => Collects::No,
        }
    }

    fn has_read(&mut self, length: usize) {
        if !self.is_paced() {
            return;
        }
        self.unacknowledged = true;
        self.drained = false;
        let collects = self.collects();
        let written = self.write.written.swap(false, Ordering::Relaxed);
        if written && collects != Collects::Answers {
            // This may be the answer to a message: a new row begins behind it.
            return self.be_prompt();
        }
        let (since, reads, bytes) = match &mut self.pace {
            Pace::Prompt { since, reads, bytes } => (since, reads, bytes),
            Pace::Gathering { timer } => return timer.as_mut().reset(tokio::time::Instant::now() + PATIENCE),
        };
        let since = since.get_or_insert_with(clock::now);
        (*reads, *bytes) = (*reads + 1, *bytes + length);
        if *reads < STREAM {
            return;
        }
        let small = *bytes <= (STREAM * SMALL) as usize
            && clock::now().saturating_duration_since(*since) <= STREAM * SOON;
        let enough = *bytes * GATHER as usize / STREAM as usize;
        self.pace = if small
            && collects != Collects::No
            && system::set_receive_low_water(self.stream(), enough).is_ok()
        {
            self.write.gathers.store(true, Ordering::Relaxed);
            Pace::Gathering { timer: Box::pin(tokio::time::sleep(PATIENCE)) }
        } else {
            Pace::PROMPT
        };
    }

    fn has_written(&mut self) {
        self.unacknowledged = false;
        if self.collects() != Collects::Answers {
            self.be_prompt();
        }
    }

    fn be_prompt(&mut self) {
        if let Pace::Gathering { .. } = self.pace {
            self.write.gathers.store(false, Ordering::Relaxed);
            // Bytes that have arrived already make it readable now.
            let _ = system::set_receive_low_water(self.stream(), 1);
        }
        self.pace = Pace::PROMPT;
    }

    /// Ends collecting when it is time to. Not on flush, which TLS calls only when it has written
    /// everything.
    fn poll_gathering(&mut self, cx: &mut Context<'_>) {
        let collects = self.collects();
        if let Pace::Gathering { timer } = &mut self.pace
            && (collects == Collects::No || timer.as_mut().poll(cx).is_ready())
        {
            self.be_prompt();
        }
    }

    /// Acknowledges what was read.
    fn acknowledge(&mut self) {
        if self.is_paced() && self.drained && std::mem::take(&mut self.unacknowledged) {
            // A failure costs only speed.
            let _ = system::acknowledge(self.stream());
        }
    }
}

impl AsyncRead for Tcp {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let polled = Pin::new(&mut this.read).poll_read(cx, buf);
        match polled {
            Poll::Ready(_) => this.has_read(buf.filled().len() - before),
            Poll::Pending => {
                this.drained = true;
                this.poll_gathering(cx);
            }
        }
        polled
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |write| write.try_write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |write| write.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.write.write.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().acknowledge();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match socket2::SockRef::from(self.read.as_ref()).shutdown(Shutdown::Write) {
            // The peer has closed it altogether.
            Err(error) if error.kind() == ErrorKind::NotConnected => Poll::Ready(Ok(())),
            done => Poll::Ready(done),
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::io::{Error, Result};
    use std::os::fd::AsRawFd;

    use tokio::net::TcpStream;

    pub(super) fn acknowledge(stream: &TcpStream) -> Result<()> {
        socket2::SockRef::from(stream).set_tcp_quickack(true)
    }

    /// Makes the socket readable from `bytes` on, or when it ends.
    #[allow(unsafe_code, reason = "socket2 lacks this option")]
    pub(super) fn set_receive_low_water(stream: &TcpStream, bytes: usize) -> Result<()> {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        // SAFETY: the descriptor is open as long as the stream is borrowed; the kernel copies the
        // integer that the pointer and its size name.
        let status = unsafe {
            libc::setsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVLOWAT,
                (&raw const bytes).cast(),
                size_of_val(&bytes) as libc::socklen_t,
            )
        };
        if status == 0 { Ok(()) } else { Err(Error::last_os_error()) }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io::{ErrorKind, Result};

    use tokio::net::TcpStream;

    pub(super) fn acknowledge(_: &TcpStream) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    pub(super) fn set_receive_low_water(_: &TcpStream, _: usize) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    const PACKET: [u8; 100] = [7; 100];

    async fn pair() -> (Tcp, TcpStream, Arc<Awaited>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        far.set_nodelay(true).unwrap();
        let awaited = Arc::new(Awaited::default());
        (Tcp::new(near, Pacing::Gather(Arc::clone(&awaited))), far, awaited)
    }

    /// Bytes of the next read, as the driver does it.
    async fn read(tcp: &mut Tcp) -> usize {
        let mut room = [0; 4096];
        let next = poll_fn(|cx| {
            let mut buf = ReadBuf::new(&mut room);
            let polled = Pin::new(&mut *tcp).poll_read(cx, &mut buf);
            let _ = Pin::new(&mut *tcp).poll_flush(cx).map(Result::unwrap);
            polled.map(|read| read.map(|()| buf.filled().len()))
        });
        tokio::time::timeout(Duration::from_secs(60), next).await.expect("what was sent comes").unwrap()
    }

    async fn pass(tcp: &mut Tcp, far: &mut TcpStream) {
        far.write_all(&PACKET).await.unwrap();
        assert_eq!(read(tcp).await, PACKET.len());
    }

    fn is_gathering(tcp: &Tcp) -> bool {
        matches!(tcp.pace, Pace::Gathering { .. })
    }

    /// On a busy machine the packets may not come in quick succession at first.
    async fn pass_until_gathering(tcp: &mut Tcp, far: &mut TcpStream) {
        for _ in 0..1_000_000 {
            if is_gathering(tcp) {
                return;
            }
            pass(tcp, far).await;
        }
        panic!("a stream is gathered");
    }

    /// A stream of which nothing is gathered.
    async fn pass_promptly(tcp: &mut Tcp, far: &mut TcpStream) {
        for _ in 0..10 * STREAM {
            pass(tcp, far).await;
            assert!(!is_gathering(tcp));
        }
    }

    #[tokio::test]
    async fn a_stream_is_gathered_and_its_end_is_read() {
        let (mut tcp, mut far, _) = pair().await;
        pass_until_gathering(&mut tcp, &mut far).await;
        for _ in 0..GATHER {
            far.write_all(&PACKET).await.unwrap();
        }
        assert_eq!(read(&mut tcp).await, GATHER as usize * PACKET.len());
        pass(&mut tcp, &mut far).await;
        assert!(!is_gathering(&tcp), "too little came");
        pass_until_gathering(&mut tcp, &mut far).await;
        drop(far);
        assert_eq!(read(&mut tcp).await, 0, "the end of the connection is no packet to gather");
    }

    #[tokio::test]
    async fn an_awaited_answer_is_read_at_once() {
        let (mut tcp, mut far, awaited) = pair().await;
        pass_until_gathering(&mut tcp, &mut far).await;
        awaited.set(1);
        pass_promptly(&mut tcp, &mut far).await;
    }

    #[tokio::test]
    async fn of_many_awaited_answers_some_are_gathered_whatever_is_written_until_few_are_left() {
        let (mut tcp, mut far, awaited) = pair().await;
        awaited.set(MANY);
        let writer = tcp.writer();
        for _ in 0..1_000_000 {
            if is_gathering(&tcp) {
                break;
            }
            pass(&mut tcp, &mut far).await;
            tcp.write_all(b"x").await.unwrap();
            writer.socket.upgrade().unwrap().written.store(true, Ordering::Relaxed);
        }
        assert!(is_gathering(&tcp), "a stream is gathered");
        for _ in 0..GATHER {
            assert!(is_gathering(&tcp));
            tcp.write_all(b"x").await.unwrap();
            far.write_all(&PACKET).await.unwrap();
        }
        assert_eq!(read(&mut tcp).await, GATHER as usize * PACKET.len());
        assert!(is_gathering(&tcp));
        awaited.set(MANY - 1);
        pass_promptly(&mut tcp, &mut far).await;
    }

    /// As TLS does while the socket has no room for what it has to write.
    #[tokio::test]
    async fn who_does_not_flush_reads_what_there_is_after_a_while() {
        let (mut tcp, mut far, _) = pair().await;
        pass_until_gathering(&mut tcp, &mut far).await;
        far.write_all(&PACKET).await.unwrap();
        let mut room = [0; 4096];
        let next = tokio::io::AsyncReadExt::read(&mut tcp, &mut room);
        let read = tokio::time::timeout(Duration::from_secs(60), next).await.expect("what was sent comes");
        assert_eq!(read.unwrap(), PACKET.len());
    }

    #[tokio::test]
    async fn who_writes_is_prompt() {
        let (mut tcp, mut far, _) = pair().await;
        pass_until_gathering(&mut tcp, &mut far).await;
        tcp.write_all(b"x").await.unwrap();
        for _ in 0..10 * STREAM {
            assert!(!is_gathering(&tcp));
            pass(&mut tcp, &mut far).await;
            tcp.write_all(b"x").await.unwrap();
        }
    }

    /// As one does that asks and waits for the answer.
    #[tokio::test]
    async fn what_others_write_begins_a_new_row_of_reads_and_waits_while_packets_are_collected() {
        let (mut tcp, mut far, _) = pair().await;
        let writer = tcp.writer();
        let write = || writer.socket.upgrade().unwrap().try_write(&[IoSlice::new(b"x")]);
        for _ in 0..10 * STREAM {
            assert_eq!(write().unwrap(), 1);
            pass(&mut tcp, &mut far).await;
            assert!(!is_gathering(&tcp));
        }
        pass_until_gathering(&mut tcp, &mut far).await;
        assert_eq!(write().unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}
