//! A client's end of a connection, shared by its driver and its users.
//!
//! A [`Session`] is a [`Host`], which is a machine with its routes, behind a lock. It is the
//! [`Endpoint`] that the [driver](super::driver) drives.
//!
//! A user that has just one message to send need not wait until the driver's thread runs:
//! [`Session::write`] takes a turn and writes on the thread of the caller, as long as the driver
//! has nothing to write itself. Both write under one rule, so that bytes keep their order: what the
//! host has queued is written under its lock, and once the driver has taken bytes out of it, no
//! other thread writes until those are written. While answers to such messages come at once, the
//! driver stays awake for the next one (`exchange`).

use std::io::IoSlice;
use std::ops::{Deref, DerefMut};
use std::time::Instant;

use bytes::BytesMut;
use tokio::sync::Notify;

use crate::driver::{Endpoint, Turn, WRITE_TURN};
use crate::exchange::Exchanges;
use crate::tcp::Writer;
use forebay_base::clock;
use forebay_base::error::Result;
use forebay_base::machine::{Machine, earliest};
use forebay_base::sync::{Mutex, MutexGuard, Rank};
use forebay_base::transmit::{MAX_SLICES, Transmit};

/// Number of unwritten bytes above which a host adds no more.
pub const WRITE_HIGH_WATER: usize = 1 << 20;

/// A machine with its routes.
pub trait Host: Send {
    /// The protocol.
    type Machine: Machine;

    /// The machine.
    fn machine(&mut self) -> &mut Self::Machine;

    /// Looks at the first bytes of the peer, which may be of another protocol. An error ends the
    /// connection.
    fn first_bytes(&mut self, _first: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Handles an event of the machine.
    fn handle_event(&mut self, now: Instant, event: <Self::Machine as Machine>::Event);

    /// Adds what is due to the machine's transmit queue, unless the socket is [`WRITE_HIGH_WATER`]
    /// behind. Returns the time of the next call. `unwritten` is the number of bytes that were
    /// taken from the queue and not written.
    fn turn(&mut self, now: Instant, unwritten: usize) -> Option<Instant>;

    /// Whether more may be read from the socket. If not, [`Session::wake`] makes the driver ask
    /// again.
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
    /// The peer has sent something.
    heard: bool,
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
            heard: false,
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

    /// Takes a turn and writes what is due on this thread if the driver is not at work, and has the
    /// driver do it otherwise. That saves a single message the time until the driver's thread runs.
    /// Those that follow before the driver's next turn are left to it, because it gathers them. The
    /// caller holds no lock.
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
        let first = !input.is_empty() && !std::mem::replace(&mut state.heard, true);
        let host = &mut state.host;
        let result = if first { host.first_bytes(input) } else { Ok(()) };
        let result = result.and_then(|()| handle(host, now, input, output.len()));
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
            // Keeps an earlier deadline that the host has put off. Otherwise each user whose write
            // brings it forward again would have to wake the driver.
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

/// Steps 1 and 2 of the poll order, then the host's turn.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::driver::drive;
    use crate::tcp::{Pacing, Tcp};

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
