//! The network of a run: names, ports, and connections whose bytes arrive late and in pieces of any
//! size.
//!
//! A connection that is cut loses the end of what is under way, at any byte. Each end learns of
//! that at a time of its own, or never. What a cut left of the client's bytes may reach the broker
//! long after the client has connected again.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use forebay_net::simulation::{self, Task};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

use super::host::violate;
use super::trace;
use crate::support::chance::Chance;

/// Bytes that a connection takes in one direction without the peer reading.
const WINDOW: usize = 64 << 10;

/// Looks at the bytes of the client's end of a connection.
pub(crate) trait Tap: Send {
    /// Bytes that the client wrote, or, with `up` false, that it read.
    fn see(&mut self, up: bool, bytes: &[u8]) -> Result<(), String>;

    /// What the client is about, for the table of faults.
    fn state(&self) -> &'static str;
}

/// One direction.
#[derive(Default)]
struct Pipe {
    under_way: VecDeque<(Instant, Bytes)>,
    length: usize,
    /// The writer has closed it: its end arrives then.
    end: Option<Instant>,
    /// Bytes that are written get lost.
    cut: bool,
    /// Nothing arrives before.
    stalled: Option<Instant>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }

    fn arrival(&self, at: Instant) -> Instant {
        self.stalled.map_or(at, |until| at.max(until))
    }
}

/// A state in which a connection is waited for.
#[derive(Default)]
struct Aim {
    state: Mutex<Option<&'static str>>,
    reached: Notify,
}

struct Link {
    number: u64,
    aim: Arc<Aim>,
    /// Whether it was waited for: the next fault is its.
    aimed: bool,
    /// To the broker, and to the client.
    pipes: [Pipe; 2],
    /// When the broker's end and the client's learn that the connection is broken.
    broken: [Option<Instant>; 2],
    /// Which ends were dropped.
    gone: [bool; 2],
    tap: Option<Box<dyn Tap>>,
    slowness: usize,
    chance: Chance,
}

type Shared<T> = Arc<Mutex<T>>;

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap()
}

impl Link {
    fn wake(&mut self) {
        self.pipes.iter_mut().for_each(Pipe::wake);
    }

    fn state(&self) -> &'static str {
        self.tap.as_ref().map_or("other", |tap| tap.state())
    }

    fn is_dead(&self) -> bool {
        self.gone[0] && self.gone[1]
    }

    /// Cuts both directions somewhere in what is under way.
    fn cut(&mut self, now: Instant) {
        for side in 0..2 {
            let pipe = &mut self.pipes[side];
            pipe.cut = true;
            let keep = self.chance.below(pipe.under_way.len() + 1);
            pipe.under_way.truncate(keep);
            if let Some((_, last)) = pipe.under_way.back_mut() {
                let length = self.chance.within(1, last.len() + 1);
                last.truncate(length);
            }
            pipe.length = pipe.under_way.iter().map(|(_, bytes)| bytes.len()).sum();
            // Late bytes: they wait in the network while the client connects again.
            if self.chance.percent(20) {
                pipe.stalled = Some(now + self.chance.micros(8_000_000));
            }
            // Else the end notices by its keep-alive only.
            if self.chance.percent(85) {
                let after = if self.chance.percent(70) { 2_000 } else { 2_000_000 };
                self.broken[side] = Some(now + self.chance.micros(after));
            }
        }
        self.wake();
    }
}

/// One end of a connection: 0 is the broker's, 1 the client's.
struct End {
    link: Shared<Link>,
    side: usize,
    timer: Pin<Box<Sleep>>,
    /// Reads at one instant: a driver that spins lets no time pass.
    reads: (Option<Instant>, u32),
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("End")
    }
}

impl simulation::Socket for End {}

impl Drop for End {
    fn drop(&mut self) {
        let mut link = lock(&self.link);
        link.gone[self.side] = true;
        let now = Instant::now();
        let pipe = &mut link.pipes[1 - self.side];
        let last = pipe.under_way.back().map_or(now, |(at, _)| *at);
        if !pipe.cut {
            pipe.end.get_or_insert(last);
        }
        link.wake();
    }
}

impl AsyncRead for End {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let side = this.side;
        let now = Some(Instant::now());
        this.reads = if this.reads.0 == now { (now, this.reads.1 + 1) } else { (now, 0) };
        assert!(this.reads.1 < 20_000, "the driver spins");
        loop {
            let now = Instant::now();
            let mut link = lock(&this.link);
            let number = link.number;
            let broken = link.broken[side];
            // The pipe to this end: `pipes[0]` leads to the broker.
            let pipe = &mut link.pipes[side];
            let next = pipe.under_way.front().map(|(at, _)| pipe.arrival(*at));
            if let Some(at) = next
                && at <= now
                && broken.is_none_or(|broken| at < broken || broken > now)
            {
                let (_, bytes) = pipe.under_way.front_mut().expect("looked at");
                let length = bytes.len().min(buf.remaining());
                let read = bytes.split_to(length);
                if bytes.is_empty() {
                    pipe.under_way.pop_front();
                }
                pipe.length -= length;
                if let Some(writer) = pipe.writer.take() {
                    writer.wake();
                }
                buf.put_slice(&read);
                trace::bytes(number, side == 0, &read);
                if side == 1
                    && let Some(tap) = &mut link.tap
                    && let Err(violation) = tap.see(false, &read)
                {
                    violate(format!("link {number}: {violation}"));
                }
                return Poll::Ready(Ok(()));
            }
            let end = pipe.end.filter(|_| pipe.under_way.is_empty()).map(|at| pipe.arrival(at));
            if end.is_some_and(|at| at <= now) {
                return Poll::Ready(Ok(()));
            }
            if broken.is_some_and(|at| at <= now) {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            let Some(at) = [next, end, broken].into_iter().flatten().min() else {
                pipe.reader = Some(cx.waker().clone());
                return Poll::Pending;
            };
            pipe.reader = Some(cx.waker().clone());
            drop(link);
            this.timer.as_mut().reset(at.max(now + Duration::from_nanos(1)));
            if this.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let now = Instant::now();
        let mut link = lock(&this.link);
        let number = link.number;
        if link.broken[this.side].is_some_and(|at| at <= now) || link.pipes[1 - this.side].end.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if link.gone[1 - this.side]
            && !link.pipes[this.side].cut
            && link.pipes[this.side].under_way.is_empty()
        {
            // The peer has closed its socket: it answers with a reset.
            link.broken[this.side].get_or_insert(now + Duration::from_millis(1));
        }
        let (slowness, side) = (link.slowness, this.side);
        let link = &mut *link;
        let pipe = &mut link.pipes[1 - side];
        let room = WINDOW.saturating_sub(pipe.length).min(bytes.len());
        if room == 0 {
            pipe.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let length = if link.chance.percent(80) { room } else { link.chance.within(1, room + 1) };
        if side == 1
            && let Some(tap) = &mut link.tap
            && let Err(violation) = tap.see(true, &bytes[..length])
        {
            violate(format!("link {number}: {violation}"));
        }
        let mut wanted = lock(&link.aim.state);
        if side == 1 && wanted.is_some_and(|wanted| wanted == link.tap.as_ref().map_or("", |tap| tap.state()))
        {
            *wanted = None;
            link.aimed = true;
            link.aim.reached.notify_one();
        }
        drop(wanted);
        if !pipe.cut {
            let mut rest = Bytes::copy_from_slice(&bytes[..length]);
            let mut at = pipe.under_way.back().map_or(now, |(at, _)| (*at).max(now));
            pipe.length += length;
            while !rest.is_empty() {
                let piece =
                    if link.chance.percent(85) { rest.len() } else { link.chance.within(1, rest.len() + 1) };
                at = at.max(now + link.chance.micros(slowness));
                pipe.under_way.push_back((at, rest.split_to(piece)));
            }
            if let Some(reader) = pipe.reader.take() {
                reader.wake();
            }
        }
        Poll::Ready(Ok(length))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut link = lock(&self.link);
        let pipe = &mut link.pipes[1 - self.side];
        let last = pipe.under_way.back().map_or_else(Instant::now, |(at, _)| *at);
        if !pipe.cut {
            pipe.end.get_or_insert(last);
        }
        pipe.wake();
        Poll::Ready(Ok(()))
    }
}

#[derive(Default)]
struct Backlog {
    waiting: VecDeque<(Box<dyn simulation::Socket>, SocketAddr)>,
    accepting: Option<Waker>,
}

/// A listening port. The port closes with it.
struct Port {
    number: u16,
    network: Network,
    backlog: Shared<Backlog>,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {}", self.number)
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        lock(&self.network.0).ports.remove(&self.number);
    }
}

impl simulation::Listener for Port {
    fn accept(&mut self) -> Task<'_, io::Result<(Box<dyn simulation::Socket>, SocketAddr)>> {
        Box::pin(poll_fn(|cx| {
            let mut backlog = lock(&self.backlog);
            match backlog.waiting.pop_front() {
                Some(accepted) => Poll::Ready(Ok(accepted)),
                None => {
                    backlog.accepting = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        }))
    }

    fn port(&self) -> u16 {
        self.number
    }
}

struct State {
    ports: BTreeMap<u16, Shared<Backlog>>,
    links: Vec<Shared<Link>>,
    next_link: u64,
    next_port: u16,
    slowness: usize,
    /// Connections are refused, or hang, until then.
    refuses: Option<Instant>,
    hangs: Option<Instant>,
    /// Names are not resolved until then.
    nameless: Option<Instant>,
    tap: fn(u16) -> Option<Box<dyn Tap>>,
    aim: Arc<Aim>,
    chance: Chance,
}

/// The network. Clones are the same network.
#[derive(Clone)]
pub(crate) struct Network(Shared<State>);

impl Network {
    /// A network whose bytes take at most `slowness` microseconds. `tap` gives what looks at a
    /// connection to a port.
    pub(crate) fn new(chance: Chance, slowness: usize, tap: fn(u16) -> Option<Box<dyn Tap>>) -> Self {
        Self(Arc::new(Mutex::new(State {
            ports: BTreeMap::new(),
            links: Vec::new(),
            next_link: 0,
            next_port: 40_000,
            slowness,
            refuses: None,
            hangs: None,
            nameless: None,
            tap,
            aim: Arc::default(),
            chance,
        })))
    }

    /// Connections that have not ended at both ends.
    fn live(&self) -> Vec<Shared<Link>> {
        let mut state = lock(&self.0);
        state.links.retain(|link| !lock(link).is_dead());
        state.links.clone()
    }

    fn pick(&self, chance: &mut Chance) -> Option<Shared<Link>> {
        let live = self.live();
        let at = chance.below(live.len());
        let aimed = live.iter().find(|link| std::mem::take(&mut lock(link).aimed));
        aimed.or(live.get(at)).cloned()
    }

    /// What the clients of all connections are about.
    pub(crate) fn states(&self) -> Vec<&'static str> {
        self.live().iter().map(|link| lock(link).state()).collect()
    }

    /// Waits until a client is about `state`. The next fault of a connection hits that one.
    pub(crate) async fn await_state(&self, state: &'static str) {
        let aim = lock(&self.0).aim.clone();
        *lock(&aim.state) = Some(state);
        let _ = tokio::time::timeout(Duration::from_secs(1), aim.reached.notified()).await;
        *lock(&aim.state) = None;
    }

    /// Cuts a connection. Returns what its client was about.
    pub(crate) fn cut_one(&self, chance: &mut Chance) -> Option<&'static str> {
        let link = self.pick(chance)?;
        let mut link = lock(&link);
        link.cut(Instant::now());
        trace::event(format_args!("cut of link {}", link.number));
        Some(link.state())
    }

    /// Lets nothing arrive at one end of a connection for a while.
    pub(crate) fn stall_one(&self, chance: &mut Chance, time: Duration) -> Option<&'static str> {
        let link = self.pick(chance)?;
        let mut link = lock(&link);
        let side = chance.below(2);
        link.pipes[side].stalled = Some(Instant::now() + time);
        trace::event(format_args!("link {} stalls for {time:?} on side {side}", link.number));
        Some(link.state())
    }

    /// Nothing arrives anywhere for a while, and connections that are begun meanwhile hang.
    pub(crate) fn partition(&self, time: Duration) {
        let until = Instant::now() + time;
        for link in self.live() {
            let mut link = lock(&link);
            link.pipes.iter_mut().for_each(|pipe| pipe.stalled = Some(until));
        }
        lock(&self.0).hangs = Some(until);
        trace::event(format_args!("partition for {time:?}"));
    }

    /// Connections are refused for a while.
    pub(crate) fn refuse(&self, time: Duration) {
        lock(&self.0).refuses = Some(Instant::now() + time);
        trace::event(format_args!("connections are refused for {time:?}"));
    }

    /// Names are not resolved for a while.
    pub(crate) fn forget_names(&self, time: Duration) {
        lock(&self.0).nameless = Some(Instant::now() + time);
        trace::event(format_args!("names are not resolved for {time:?}"));
    }

    /// Ends every fault that lasts. Connections that are cut stay so.
    pub(crate) fn heal(&self) {
        for link in self.live() {
            let mut link = lock(&link);
            link.pipes.iter_mut().for_each(|pipe| pipe.stalled = None);
            link.wake();
        }
        let mut state = lock(&self.0);
        (state.refuses, state.hangs, state.nameless) = (None, None, None);
        state.slowness = state.slowness.min(1000);
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<Box<dyn simulation::Socket>> {
        let (round_trip, hangs) = {
            let mut state = lock(&self.0);
            let slowness = state.slowness;
            (state.chance.micros(slowness), state.hangs)
        };
        tokio::time::sleep(round_trip).await;
        if let Some(until) = hangs {
            tokio::time::sleep_until(until).await;
        }
        let mut state = lock(&self.0);
        let port = address.port();
        let refused = state.refuses.is_some_and(|until| Instant::now() < until);
        let Some(backlog) = state.ports.get(&port).filter(|_| !refused).cloned() else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        let number = state.next_link;
        state.next_link += 1;
        let (seed, slowness) = (state.chance.next(), state.slowness);
        let link = Arc::new(Mutex::new(Link {
            number,
            pipes: Default::default(),
            broken: [None; 2],
            gone: [false; 2],
            aim: state.aim.clone(),
            aimed: false,
            tap: (state.tap)(port),
            slowness,
            chance: Chance::new(seed),
        }));
        state.links.push(link.clone());
        trace::event(format_args!("link {number} to port {port}"));
        let end = |side| -> Box<dyn simulation::Socket> {
            Box::new(End {
                link: link.clone(),
                side,
                timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
                reads: (None, 0),
            })
        };
        let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 50_000 + (number % 10_000) as u16));
        let mut backlog = lock(&backlog);
        backlog.waiting.push_back((end(0), from));
        if let Some(accepting) = backlog.accepting.take() {
            accepting.wake();
        }
        Ok(end(1))
    }
}

impl simulation::Network for Network {
    fn resolve(&self, host: &str, port: u16) -> Task<'_, io::Result<Vec<SocketAddr>>> {
        let address = host.parse::<Ipv4Addr>();
        let nameless = address.is_err() && lock(&self.0).nameless.is_some_and(|until| Instant::now() < until);
        let address = address.unwrap_or(Ipv4Addr::LOCALHOST);
        Box::pin(async move {
            if nameless {
                tokio::time::sleep(Duration::from_millis(20)).await;
                return Err(io::Error::other("the name is not known"));
            }
            Ok(vec![SocketAddr::from((address, port))])
        })
    }

    fn connect(&self, address: SocketAddr) -> Task<'_, io::Result<Box<dyn simulation::Socket>>> {
        Box::pin(self.dial(address))
    }

    fn listen(&self, _: &str, port: u16) -> io::Result<Box<dyn simulation::Listener>> {
        let mut state = lock(&self.0);
        let number = if port == 0 {
            state.next_port += 1;
            state.next_port
        } else {
            port
        };
        if state.ports.contains_key(&number) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let backlog = Shared::<Backlog>::default();
        state.ports.insert(number, backlog.clone());
        Ok(Box::new(Port { number, network: self.clone(), backlog }))
    }
}
