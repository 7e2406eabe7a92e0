//! A producer of one topic, over the brokers that have its partitions.
//!
//! ```text
//! Producer ── push ──► Core.machine (one short lock) ──► driver's turn, for each broker ──► socket
//!                            ▲                                │ answers
//!       its task: opens the connections it needs              └──► ProducerEvents::sent
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::events::{ProducerEvents, Receipt, SendOutcome};
use crate::outcomes::{Freed, Outcomes};
use crate::pushed::{Dispatch, Pushed};
use crate::registry;
use crate::traffic::SendCounts;
use crate::tubemq::connection::{Connection, ProducerRoute, Purpose, Route};
use crate::tubemq::options::ProducerOptions;
use crate::tubemq::shared::{Published, Shared};
use forebay_base::clock::{self, wall_ms};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::machine::Machine as _;
use forebay_base::random;
use forebay_base::random::HashMap;
use forebay_base::sync::{Mutex, MutexGuard, Rank};
use forebay_net::backoff::Backoff;
use forebay_tubemq::connection::Connection as Protocol;
use forebay_tubemq::master::TopicState;
use forebay_tubemq::message::{Outgoing, pack};
use forebay_tubemq::producer::{Event, Options as MachineOptions, Producer as Machine};
use forebay_tubemq::{Response, pb};

/// Interval of looks at send timeouts while there is no connection.
const TICK: Duration = Duration::from_millis(100);

/// A handle that sends. Cheap to clone; all clones are the same producer.
#[derive(Clone, Debug)]
pub struct Producer(Arc<Handle>);

#[derive(Debug)]
pub(crate) struct Handle {
    core: Arc<Core>,
    task: AbortHandle,
}

impl registry::Shared for Producer {
    type Inner = Handle;

    fn inner(&self) -> &Arc<Handle> {
        &self.0
    }

    fn from_inner(inner: Arc<Handle>) -> Self {
        Self(inner)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
        self.core.end(Error::new(ErrorKind::Closed, "the producer was dropped"));
    }
}

/// The part of a producer that its connections share.
#[derive(Debug)]
struct Core {
    id: u64,
    topic: Arc<str>,
    message_type: Option<String>,
    machine: Mutex<Machine>,
    /// The drivers have been woken and have not looked yet.
    notified: AtomicBool,
    /// Connections by broker id.
    links: Mutex<HashMap<u32, BrokerLink>>,
    /// Brokers to which a connection is needed.
    wanted: Mutex<Vec<u32>>,
    /// Notified when the task has something to do.
    due: Notify,
    outcomes: Outcomes,
    /// Held from an event of the machine until its outcome is reported.
    delivering: Mutex<()>,
    closed: AtomicBool,
    /// See [`Producer::patience`].
    patience: Duration,
    shared: Arc<Shared>,
    /// Has the master asked for the topic.
    _published: Published,
}

/// Connection to a broker, with the time since when it is open.
#[derive(Debug)]
struct BrokerLink {
    connection: Option<(Arc<Connection>, Instant)>,
    backoff: Backoff,
}

impl Producer {
    pub(super) fn open(
        published: Published,
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
            seed: random::bits() as u32,
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
            outcomes: Outcomes::new(Arc::clone(&shared.budget), events),
            delivering: Mutex::new(Rank::Outcomes, ()),
            closed: AtomicBool::new(false),
            patience: options.send_timeout.unwrap_or_default().max(shared.options.operation_timeout),
            shared,
            _published: published,
        });
        let task = core.shared.runtime.spawn(keep_connected(Arc::clone(&core))).abort_handle();
        let producer = Self(Arc::new(Handle { core, task }));
        producer.take_metadata();
        producer
    }

    /// Takes over what the master states about the topic.
    pub(super) fn take_metadata(&self) {
        let core = &self.0.core;
        let (partitions, size) = {
            let session = core.shared.session.lock();
            match session.topic(&core.topic) {
                TopicState::NotYet => return,
                TopicState::Missing => (Vec::new(), 0),
                TopicState::Topic(topic) => (topic.partitions.clone(), session.max_message_size(topic)),
            }
        };
        let mut machine = core.machine();
        // While the topic is missing nothing is sent; messages wait for it to come back.
        let size = if partitions.is_empty() { usize::MAX } else { size };
        machine.set_partitions(clock::now(), partitions, size);
        core.deliver(machine);
        core.notify();
    }

    /// Pushes a message and returns its slot: [`ProducerEvents::sent`] reports the outcome under
    /// that number. With `park`, a message beyond `max_pending` waits in the overflow queue, which
    /// holds as many.
    pub fn push(&self, message: &Outgoing<'_>, park: bool) -> Result<Pushed<'_>> {
        self.take(&mut std::iter::once(*message), park, &mut |_| {})?;
        Ok(Pushed::new(0, &*self.0.core))
    }

    /// Pushes messages until the iterator ends or one is refused. `each` is called with the slot of
    /// every message that was taken.
    pub fn push_many<'a>(
        &self,
        messages: &mut dyn Iterator<Item = Outgoing<'a>>,
        park: bool,
        each: &mut dyn FnMut(usize),
    ) -> Result<()> {
        let result = self.take(messages, park, each);
        self.0.core.notify();
        result
    }

    fn take<'a>(
        &self,
        messages: &mut dyn Iterator<Item = Outgoing<'a>>,
        park: bool,
        each: &mut dyn FnMut(usize),
    ) -> Result<()> {
        let core = &self.0.core;
        self.check_open()?;
        let now = clock::now();
        let mut result = Ok(());
        let mut machine = core.machine();
        for message in messages {
            result = core.push(&mut machine, now, &message, park);
            if result.is_err() {
                break;
            }
            each(0);
        }
        // Only the connections that are needed: the caller may hold the locks that delivering
        // outcomes takes.
        core.note_wants(&mut machine);
        drop(machine);
        result.map_err(|error| error.with_topic(Arc::clone(&core.topic)))
    }

    /// Number of slots: one, because all outcomes come in the order of the pushes.
    pub fn slots(&self) -> usize {
        1
    }

    /// Number of messages without an outcome.
    pub fn pending(&self) -> usize {
        self.0.core.machine().pending_messages()
    }

    /// Counters of what was sent.
    pub fn counts(&self) -> SendCounts {
        self.0.core.outcomes.counts()
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.0.core.topic
    }

    /// With `wait`, waits until everything that was pushed has an outcome, at most the operation
    /// timeout. Then ends the producer.
    pub async fn close(&self, wait: bool) -> Result<()> {
        let core = &self.0.core;
        if core.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let limit = if wait { core.shared.options.operation_timeout } else { Duration::ZERO };
        let idle = tokio::time::timeout(limit, core.idle()).await;
        let pending = self.pending();
        self.0.task.abort();
        core.end(Error::new(ErrorKind::Closed, "the producer was closed"));
        idle.or_else(|late| if wait { Err(late) } else { Ok(()) }).map_err(|_| {
            let text =
                format!("{pending} messages were not answered within {limit:?}: their outcome is unknown");
            Error::new(ErrorKind::Timeout, text).with_topic(Arc::clone(&core.topic))
        })
    }

    /// Whether there is a connection now to a broker that has the topic; before the first send,
    /// whether the master has registered the client.
    pub fn is_connected(&self) -> bool {
        let core = &self.0.core;
        if core.closed.load(Ordering::Acquire) {
            return false;
        }
        let links = core.links.lock();
        let mut connections = links.values().filter_map(|link| link.connection.as_ref());
        let (unused, served) = (links.is_empty(), connections.any(|(connection, _)| connection.is_alive()));
        drop(links);
        if unused { core.shared.session.lock().is_registered() } else { served }
    }

    /// Longest time without an outcome for which a flush before [`Self::close`] waits.
    pub fn patience(&self) -> Duration {
        self.0.core.patience
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
        // Brokers count by type and time: a type requires a time.
        let time = message.time.or_else(|| message_type.map(|_| wall_ms()));
        let packed = pack(&Outgoing { message_type, time, ..*message })?;
        let bytes = packed.data.len();
        self.outcomes.admit(bytes, || {
            if park {
                machine.push(now, packed, message.key, bytes)
            } else {
                machine.try_push(now, packed, message.key, bytes)
            }
        })
    }

    /// Tells the drivers, unless they have been told and have not looked yet. With `writes` a
    /// single one is served by this thread; which of several has something to send is left to them.
    fn tell(&self, writes: bool) {
        if self.notified.swap(true, Ordering::AcqRel) {
            return;
        }
        // Not under its lock, which comes after those of a turn.
        let links = self.links.lock();
        let connections = links.values().filter_map(|link| link.connection.as_ref());
        let connections: Vec<_> = connections.map(|(connection, _)| Arc::clone(connection)).collect();
        drop(links);
        match &connections[..] {
            // Without a connection the task looks.
            [] => self.due.notify_one(),
            [connection] if writes => connection.session().write(),
            several => several.iter().for_each(|connection| connection.session().wake()),
        }
    }

    /// Notes the brokers to which the machine needs a connection.
    fn note_wants(&self, machine: &mut Machine) {
        let wants = machine.poll_wants();
        if !wants.is_empty() {
            self.wanted.lock().extend(wants);
            self.due.notify_one();
        }
    }

    /// Reports the machine's events after releasing its lock.
    fn deliver(&self, mut machine: MutexGuard<'_, Machine>) {
        self.note_wants(&mut machine);
        drop(machine);
        // Several connections take turns, each on the thread of its driver or of a sender: in the
        // order of the events.
        let _order = self.delivering.lock();
        let mut machine = self.machine();
        let mut outcomes = Vec::new();
        let mut refresh = false;
        let mut freed = Freed::default();
        while let Some(event) = machine.poll_event() {
            match event {
                Event::Stored { position, bytes } => {
                    freed.stored += bytes;
                    outcomes
                        .push((0, SendOutcome::Stored { count: 1, receipt: Receipt::Position(position) }));
                }
                Event::Failed { error, bytes } => {
                    freed.failed += bytes;
                    let error = error.with_topic(Arc::clone(&self.topic));
                    outcomes.push((0, SendOutcome::Failed { count: 1, error }));
                }
                Event::Refresh => refresh = true,
            }
        }
        let idle = machine.pending_messages() == 0;
        drop(machine);
        if refresh {
            self.shared.refresh();
        }
        self.outcomes.deliver(outcomes, freed, idle);
    }

    /// Applies the send timeouts.
    fn tick(&self) {
        let mut machine = self.machine();
        machine.handle_timeout(clock::now());
        self.deliver(machine);
    }

    /// Resolves when nothing is pending.
    async fn idle(&self) {
        self.outcomes.idle(|| self.machine().pending_messages() == 0).await;
    }

    /// Leaves the routes of its connections, and fails what is pending with `error`.
    fn end(&self, error: Error) {
        self.closed.store(true, Ordering::Release);
        let links = std::mem::take(&mut *self.links.lock());
        for (connection, _) in links.into_values().filter_map(|link| link.connection) {
            connection.session().lock().producers.remove(&self.id);
        }
        let mut machine = self.machine();
        machine.close(&error.clone().with_topic(Arc::clone(&self.topic)));
        self.deliver(machine);
        self.outcomes.closed(error);
    }
}

impl Dispatch for Core {
    fn notify(&self) {
        self.tell(false);
    }

    fn write(&self) {
        self.tell(true);
    }
}

impl ProducerRoute for Core {
    fn turn(
        self: Arc<Self>,
        now: Instant,
        broker: u32,
        visit: &pb::AuthorizedInfo,
        room: usize,
        protocol: &mut Protocol<Route>,
    ) -> Option<Instant> {
        // Cleared before looking, so that a push after the look wakes the drivers again.
        self.notified.store(false, Ordering::Release);
        let mut machine = self.machine();
        machine.handle_timeout(now);
        let mut more = false;
        loop {
            if protocol.transmit().len() >= room {
                // Without room the driver takes another turn when the socket has taken what is
                // queued.
                more = room > 0;
                break;
            }
            let Some((number, request)) = machine.poll_request(now, broker, visit) else { break };
            protocol.call(now, request, Route::Message(Arc::clone(&self) as _, number));
        }
        let due = if more { Some(now) } else { machine.poll_timeout() };
        self.deliver(machine);
        due
    }

    fn handle_answer(&self, now: Instant, number: u64, result: Result<Response>) {
        self.machine().handle_answer(now, number, result);
    }

    fn connection_lost(&self, now: Instant, broker: u32) {
        let pause = {
            let mut links = self.links.lock();
            links.get_mut(&broker).map_or(Duration::ZERO, |link| {
                if let Some((_, since)) = link.connection.take() {
                    link.backoff.ended(now.saturating_duration_since(since));
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
}

/// Opens the connections that are needed, and applies the send timeouts while there is none.
async fn keep_connected(core: Arc<Core>) {
    loop {
        // Cleared before looking, so that a push after the look wakes this task again.
        core.notified.store(false, Ordering::Release);
        core.tick();
        for broker in std::mem::take(&mut *core.wanted.lock()) {
            tokio::spawn(connect(Arc::downgrade(&core), broker));
        }
        let pending = core.machine().pending_messages() > 0;
        tokio::select! {
            biased;
            () = core.due.notified() => {}
            () = tokio::time::sleep(TICK), if pending => {}
        }
    }
}

/// Tries once to connect to `broker`.
async fn connect(core: Weak<Core>, broker: u32) {
    let Some(shared) = core.upgrade().map(|core| Arc::clone(&core.shared)) else { return };
    let got = match shared.broker(broker) {
        Some(address) => shared.pool.get(&address, Purpose::Produce).await,
        None => Err(Error::new(ErrorKind::ConnectFailed, "the master lists no address of the broker")),
    };
    let Some(core) = core.upgrade().filter(|core| !core.closed.load(Ordering::Acquire)) else { return };
    let now = clock::now();
    let new = || BrokerLink { connection: None, backoff: Backoff::new(shared.options.max_backoff) };
    if let Err(error) = &got {
        core.machine().note_trouble(broker, error.clone());
    }
    let connected = got.is_ok_and(|connection| {
        let mut host = connection.session().lock();
        if !connection.is_alive() {
            return false;
        }
        host.producers.insert(core.id, (Arc::clone(&core) as _, broker));
        core.links.lock().entry(broker).or_insert_with(new).connection = Some((Arc::clone(&connection), now));
        core.machine().attach(broker);
        drop(host);
        connection.session().wake();
        true
    });
    if !connected {
        core.links.lock().entry(broker).or_insert_with(new);
        core.connection_lost(now, broker);
        // The broker may have moved.
        shared.refresh();
    }
}
