//! A producer of one topic, over the brokers that have its partitions.
//!
//! ```text
//! Producer ── push ──► Core.machine (one short lock) ──► driver's turn, for each broker ──► socket
//!                            ▲                                │ answers
//!       its task: connections that are wanted                 └──► ProducerEvents::sent
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::client::events::{ProducerEvents, Receipt, SendOutcome};
use crate::client::random_bits;
use crate::client::tubemq::Shared;
use crate::client::tubemq::connection::{Connection, Purpose, Route};
use crate::client::tubemq::options::ProducerOptions;
use crate::clock::wall_ms;
use crate::error::{Error, ErrorKind, Result};
use crate::machine::Machine as _;
use crate::net::backoff::Backoff;
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::tubemq::connection::Connection as Protocol;
use crate::tubemq::master::Known;
use crate::tubemq::message::{Outgoing, pack};
use crate::tubemq::producer::{Event, Options as MachineOptions, Producer as Machine};
use crate::tubemq::{Response, pb};

/// A connection that stood for so long was a good one: the next is tried at once.
const STEADY: Duration = Duration::from_secs(1);
/// How often time limits are looked at while there is no connection.
const TICK: Duration = Duration::from_millis(100);

/// A handle that sends. Cheap to clone; all clones are the same producer.
#[derive(Clone, Debug)]
pub struct Producer(Arc<Handle>);

/// Does not keep the producer alive.
#[derive(Clone, Debug)]
pub struct WeakProducer(Weak<Handle>);

impl WeakProducer {
    /// The producer, unless it is gone.
    pub fn upgrade(&self) -> Option<Producer> {
        self.0.upgrade().map(Producer)
    }

    /// Whether it is not gone.
    pub fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }
}

#[derive(Debug)]
struct Handle {
    core: Arc<Core>,
    task: AbortHandle,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
        self.core.end(Error::new(ErrorKind::Closed, "the producer was dropped"));
    }
}

/// What connections know of a producer.
#[derive(Debug)]
pub(super) struct Core {
    id: u64,
    topic: Arc<str>,
    message_type: Option<String>,
    machine: Mutex<Machine>,
    /// The drivers know that there is something to do.
    notified: AtomicBool,
    links: Mutex<HashMap<u32, Link>>,
    /// Brokers to which connections are wanted.
    wanted: Mutex<Vec<u32>>,
    due: Notify,
    /// Rung when nothing is pending any more.
    idle: Notify,
    /// Pushes that were refused by the window.
    refused: AtomicUsize,
    closed: AtomicBool,
    events: Arc<dyn ProducerEvents>,
    shared: Arc<Shared>,
}

/// The way to a broker.
#[derive(Debug)]
struct Link {
    connection: Option<(Arc<Connection>, Instant)>,
    backoff: Backoff,
}

impl Producer {
    pub(super) fn open(
        shared: Arc<Shared>,
        topic: &str,
        options: ProducerOptions,
        events: Arc<dyn ProducerEvents>,
    ) -> Self {
        let host: std::net::Ipv4Addr =
            shared.identity.host_name.parse().unwrap_or(std::net::Ipv4Addr::LOCALHOST);
        let machine = Machine::new(MachineOptions {
            client_id: shared.identity.client_id.clone(),
            topic: topic.to_owned(),
            address: i32::from_be_bytes(host.octets()),
            max_pending: options.max_pending,
            send_timeout: options.send_timeout,
            seed: random_bits() as u32,
        });
        let core = Arc::new(Core {
            id: shared.next_id(),
            topic: topic.into(),
            message_type: options.message_type,
            machine: Mutex::new(Rank::Machine, machine),
            notified: AtomicBool::new(false),
            links: Mutex::default(),
            wanted: Mutex::default(),
            due: Notify::new(),
            idle: Notify::new(),
            refused: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            events,
            shared,
        });
        let task = core.shared.runtime.spawn(keep(Arc::clone(&core))).abort_handle();
        let producer = Self(Arc::new(Handle { core, task }));
        producer.take_metadata();
        producer
    }

    /// What the master says of the topic now.
    pub(super) fn take_metadata(&self) {
        let core = &self.0.core;
        let (partitions, size) = {
            let session = core.shared.session.lock();
            match session.topic(&core.topic) {
                Known::NotYet => return,
                Known::Missing => (Vec::new(), 0),
                Known::Topic(topic) => (topic.partitions.clone(), session.max_message_size(topic)),
            }
        };
        let mut machine = core.machine();
        // A topic that has gone takes nothing; what waits, waits for it to come back.
        let size = if partitions.is_empty() { usize::MAX } else { size };
        machine.set_partitions(Instant::now(), partitions, size);
        core.deliver(machine);
        core.notify();
    }

    /// Hands over a message and gives the slot whose [`ProducerEvents::sent`] will tell its outcome. With `park`,
    /// twice as many may wait.
    pub fn push(&self, message: &Outgoing<'_>, park: bool) -> Result<usize> {
        self.push_many(&mut std::iter::once(*message), park, &mut |_| {})?;
        Ok(0)
    }

    /// Pushes messages until the iterator ends or one is refused, telling `each` the slot of every one that was
    /// taken.
    pub fn push_many<'a>(
        &self,
        messages: &mut dyn Iterator<Item = Outgoing<'a>>,
        park: bool,
        each: &mut dyn FnMut(usize),
    ) -> Result<()> {
        let core = &self.0.core;
        self.check_open()?;
        let now = Instant::now();
        let mut result = Ok(());
        let mut machine = core.machine();
        for message in messages {
            result = core.push(&mut machine, now, &message, park);
            if result.is_err() {
                break;
            }
            each(0);
        }
        // Nothing but connections that are wanted: whoever pushes may hold what it takes to be told more.
        core.note_wants(&mut machine);
        drop(machine);
        core.notify();
        result.map_err(|error| error.with_topic(Arc::clone(&core.topic)))
    }

    /// Number of slots: all outcomes come in the order of the pushes.
    pub fn slots(&self) -> usize {
        1
    }

    /// Messages without an outcome.
    pub fn pending(&self) -> usize {
        self.0.core.machine().pending()
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.0.core.topic
    }

    /// Waits until everything that was pushed has an outcome, at most until its send timeout; then the producer has
    /// ended.
    pub async fn close(&self) -> Result<()> {
        let core = &self.0.core;
        if core.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let limit = core.shared.options.operation_timeout;
        let idle = tokio::time::timeout(limit, core.idle()).await;
        self.0.task.abort();
        core.end(Error::new(ErrorKind::Closed, "the producer was closed"));
        idle.map_err(|_| {
            let text = format!("not every message was answered within {limit:?}");
            Error::new(ErrorKind::Timeout, text).with_topic(Arc::clone(&core.topic))
        })
    }

    pub(super) fn downgrade(&self) -> WeakProducer {
        WeakProducer(Arc::downgrade(&self.0))
    }

    fn check_open(&self) -> Result<()> {
        let core = &self.0.core;
        if core.closed.load(Ordering::Acquire) {
            let error = Error::new(ErrorKind::Closed, "the producer is closed");
            return Err(error.with_topic(Arc::clone(&core.topic)));
        }
        Ok(())
    }
}

impl Core {
    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock()
    }

    fn push(&self, machine: &mut Machine, now: Instant, message: &Outgoing<'_>, park: bool) -> Result<()> {
        let message_type = message.message_type.or(self.message_type.as_deref());
        // Brokers count by type and time: one goes with the other.
        let time = message.time.or_else(|| message_type.map(|_| wall_ms()));
        let packed = pack(&Outgoing { message_type, time, ..*message })?;
        let bytes = packed.data.len();
        self.shared.budget.acquire(bytes, &self.events)?;
        machine.push(now, packed, message.key, bytes, park).inspect_err(|error| {
            self.shared.budget.release(bytes);
            if error.kind() == ErrorKind::QueueFull {
                self.refused.fetch_add(1, Ordering::AcqRel);
            }
        })
    }

    /// Tells the drivers that there is something to do, unless they know.
    fn notify(&self) {
        if !self.notified.swap(true, Ordering::AcqRel) {
            let links = self.links.lock();
            let connections = links.values().filter_map(|link| link.connection.as_ref());
            let woken = connections.map(|(connection, _)| connection.session().wake()).count();
            drop(links);
            if woken == 0 {
                // Then it is for the task to want one.
                self.due.notify_one();
            }
        }
    }

    /// Sends what is due to `broker`, at most `room` bytes; gives the time of the next turn.
    pub(super) fn turn(
        self: &Arc<Self>,
        now: Instant,
        broker: u32,
        visit: &pb::AuthorizedInfo,
        room: usize,
        protocol: &mut Protocol<Route>,
    ) -> Option<Instant> {
        // Cleared before looking, so that a push after the look rings again.
        self.notified.store(false, Ordering::Release);
        let mut machine = self.machine();
        machine.handle_timeout(now);
        let mut more = false;
        loop {
            if protocol.transmit().len() >= room {
                // Asked again when the socket has taken what there is.
                more = room > 0;
                break;
            }
            let Some((number, request)) = machine.poll_send(now, broker, visit) else { break };
            protocol.call(now, request, Route::Send(Arc::clone(self), number));
        }
        let due = if more { Some(now) } else { machine.poll_timeout() };
        self.deliver(machine);
        due
    }

    /// Noted only; told in the turn that follows.
    pub(super) fn handle_answer(&self, now: Instant, number: u64, result: Result<Response>) {
        self.machine().handle_answer(now, number, result);
    }

    /// The connection to `broker` is gone.
    pub(super) fn lost(&self, now: Instant, broker: u32) {
        let pause = {
            let mut links = self.links.lock();
            links.get_mut(&broker).map_or(Duration::ZERO, |link| {
                if link.connection.take().is_some_and(|(_, since)| since.elapsed() >= STEADY) {
                    link.backoff.reset();
                }
                link.backoff.pause()
            })
        };
        let mut machine = self.machine();
        machine.detach(now, broker, pause);
        self.deliver(machine);
        self.due.notify_one();
        self.notify();
    }

    fn note_wants(&self, machine: &mut Machine) {
        let wants = machine.poll_wants();
        if !wants.is_empty() {
            self.wanted.lock().extend(wants);
            self.due.notify_one();
        }
    }

    /// Gives the machine's events away, after its lock.
    fn deliver(&self, mut machine: MutexGuard<'_, Machine>) {
        self.note_wants(&mut machine);
        let mut events = Vec::new();
        let mut refresh = false;
        let mut bytes = 0;
        while let Some(event) = machine.poll_event() {
            match event {
                Event::Stored { position, bytes: freed } => {
                    bytes += freed;
                    events.push(SendOutcome::Stored { count: 1, receipt: Receipt::Position(position) });
                }
                Event::Failed { error, bytes: freed } => {
                    bytes += freed;
                    let error = error.with_topic(Arc::clone(&self.topic));
                    events.push(SendOutcome::Failed { count: 1, error });
                }
                Event::Refresh => refresh = true,
            }
        }
        let idle = machine.pending() == 0;
        drop(machine);
        if refresh {
            self.shared.refresh();
        }
        if events.is_empty() {
            return;
        }
        self.shared.budget.release(bytes);
        for outcome in events {
            self.events.sent(0, outcome);
        }
        if idle {
            self.idle.notify_waiters();
        }
        if self.refused.swap(0, Ordering::AcqRel) > 0 {
            self.events.room();
        }
    }

    /// Keeps the time limits.
    fn tick(&self) {
        let mut machine = self.machine();
        machine.handle_timeout(Instant::now());
        self.deliver(machine);
    }

    /// Resolves when nothing is pending.
    async fn idle(&self) {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if self.machine().pending() == 0 {
                return;
            }
            idle.await;
        }
    }

    /// Out of the connections' routes; what is pending fails with `error`.
    fn end(&self, error: Error) {
        self.closed.store(true, Ordering::Release);
        let links = std::mem::take(&mut *self.links.lock());
        for (connection, _) in links.into_values().filter_map(|link| link.connection) {
            connection.session().lock().producers.remove(&self.id);
        }
        let mut machine = self.machine();
        machine.close(&error.clone().with_topic(Arc::clone(&self.topic)));
        self.deliver(machine);
        self.events.closed(error);
    }
}

/// Has the connections that are wanted, and keeps the time limits while there is none.
async fn keep(core: Arc<Core>) {
    loop {
        // Cleared before looking, so that a push after the look rings again.
        core.notified.store(false, Ordering::Release);
        core.tick();
        for broker in std::mem::take(&mut *core.wanted.lock()) {
            tokio::spawn(link(Arc::downgrade(&core), broker));
        }
        let pending = core.machine().pending() > 0;
        tokio::select! {
            () = core.due.notified() => {}
            () = tokio::time::sleep(TICK), if pending => {}
        }
    }
}

/// One attempt at a connection to `broker`.
async fn link(core: Weak<Core>, broker: u32) {
    let Some(shared) = core.upgrade().map(|core| Arc::clone(&core.shared)) else { return };
    let got = match shared.broker(broker) {
        Some(address) => shared.pool.get(&address, Purpose::Produce).await,
        None => Err(Error::new(ErrorKind::ConnectFailed, "the master names no address of the broker")),
    };
    let Some(core) = core.upgrade().filter(|core| !core.closed.load(Ordering::Acquire)) else { return };
    let now = Instant::now();
    let linked = got.is_ok_and(|connection| {
        let mut host = connection.session().lock();
        if !connection.is_alive() {
            return false;
        }
        host.producers.insert(core.id, (Arc::clone(&core), broker));
        let new = || Link { connection: None, backoff: Backoff::new(shared.options.max_backoff) };
        core.links.lock().entry(broker).or_insert_with(new).connection = Some((Arc::clone(&connection), now));
        core.machine().attach(broker);
        drop(host);
        connection.session().wake();
        true
    });
    if !linked {
        let new = || Link { connection: None, backoff: Backoff::new(shared.options.max_backoff) };
        core.links.lock().entry(broker).or_insert_with(new);
        core.lost(now, broker);
        // Perhaps it is elsewhere now.
        shared.refresh();
    }
}
