//! One partition of a consumer, and the task that finds it a connection.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot, watch};
use tokio::task::AbortHandle;

use crate::client::tubemq::address;
use crate::client::tubemq::connection::{Connection, Purpose, Route};
use crate::client::tubemq::consumer::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::net::backoff::Backoff;
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::tubemq::connection::Connection as Protocol;
use crate::tubemq::consumer::{Consumer as Machine, Event, Options, Start};
use crate::tubemq::{Response, pb};

/// A connection that stood for so long was a good one: the next is tried at once.
const STEADY: Duration = Duration::from_secs(1);

/// One partition of a consumer.
#[derive(Debug)]
pub(in crate::client::tubemq) struct Part {
    id: u64,
    machine: Mutex<Machine>,
    connection: Mutex<Option<Arc<Connection>>>,
    /// Rung when the connection is lost.
    lost: Notify,
    /// How the first attempt to take it ended.
    tried: watch::Sender<Option<Result<()>>>,
    left: watch::Sender<bool>,
    seek: Mutex<Option<oneshot::Sender<Result<()>>>>,
    /// Bytes fetched and not taken, as they were last counted.
    counted: AtomicUsize,
    core: Weak<Core>,
    pub(super) task: Mutex<Option<AbortHandle>>,
}

impl Part {
    pub(super) fn new(core: &Arc<Core>, options: Options) -> Self {
        Self {
            id: core.shared.next_id(),
            machine: Mutex::new(Rank::Machine, Machine::new(options, Instant::now())),
            connection: Mutex::default(),
            lost: Notify::new(),
            tried: watch::channel(None).0,
            left: watch::channel(false).0,
            seek: Mutex::default(),
            counted: AtomicUsize::new(0),
            core: Arc::downgrade(core),
            task: Mutex::default(),
        }
    }

    pub(super) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock()
    }

    pub(super) fn connection(&self) -> Option<Arc<Connection>> {
        self.connection.lock().clone()
    }

    /// Changes the machine, and rings the driver if it has something to do now.
    pub(super) fn change<T>(&self, act: impl FnOnce(&mut Machine) -> T) -> T {
        let mut machine = self.machine();
        let wanted = machine.wants_turn();
        let result = act(&mut machine);
        let ring = machine.wants_turn() && !wanted;
        self.deliver(machine);
        if ring {
            self.wake();
        }
        result
    }

    pub(super) fn wake(&self) {
        if let Some(connection) = self.connection() {
            connection.session().wake();
        }
    }

    /// Asks what is due; gives the time of the next turn.
    pub(in crate::client::tubemq) fn turn(
        self: &Arc<Self>,
        now: Instant,
        visit: &pb::AuthorizedInfo,
        protocol: &mut Protocol<Route>,
    ) -> Option<Instant> {
        let core = self.core.upgrade()?;
        let may_fetch = core.may_fetch();
        let mut machine = self.machine();
        if let Some(request) = machine.poll_request(now, may_fetch, visit) {
            protocol.call(now, request, Route::Part(Arc::clone(self)));
        }
        let due = machine.poll_timeout(may_fetch);
        self.deliver(machine);
        due
    }

    pub(in crate::client::tubemq) fn handle_answer(&self, now: Instant, result: Result<Response>) {
        let mut machine = self.machine();
        machine.handle_answer(now, result);
        self.deliver(machine);
    }

    /// The connection is gone.
    pub(in crate::client::tubemq) fn detach(&self, _now: Instant) {
        let mut machine = self.machine();
        machine.detach();
        self.deliver(machine);
        *self.connection.lock() = None;
        self.lost.notify_one();
    }

    /// Gives the machine's events away, after its lock.
    fn deliver(&self, mut machine: MutexGuard<'_, Machine>) {
        let core = self.core.upgrade();
        let more = self.count(&machine, core.as_ref());
        let events: Vec<Event> = std::iter::from_fn(|| machine.poll_event()).collect();
        drop(machine);
        for event in events {
            match event {
                Event::Tried(result) => {
                    self.tried.send_replace(Some(result));
                }
                Event::Sought(result) => {
                    if let Some(waiter) = self.seek.lock().take() {
                        let _ = waiter.send(result);
                    }
                }
                Event::Left => {
                    self.left.send_replace(true);
                }
                Event::Refresh => {
                    if let Some(core) = &core {
                        core.shared.refresh();
                    }
                }
            }
        }
        if more && let Some(core) = core {
            core.signal.ring();
        }
    }

    /// Keeps the consumer's count of what is unread, under the machine's lock, lest less be taken from it than has
    /// been added; gives whether there is more than before.
    fn count(&self, machine: &Machine, core: Option<&Arc<Core>>) -> bool {
        let bytes = machine.available_bytes();
        let before = self.counted.swap(bytes, Ordering::AcqRel);
        if bytes != before
            && let Some(core) = core
        {
            core.count(before, bytes);
        }
        bytes > before
    }

    /// Resolves when it has been tried for the first time.
    pub(super) async fn tried(&self) -> Result<()> {
        let mut tried = self.tried.subscribe();
        let result = match tried.wait_for(Option::is_some).await {
            Ok(result) => result.clone(),
            Err(_) => None,
        };
        result.unwrap_or(Ok(()))
    }

    pub(super) async fn seek(&self, to: Start) -> Result<()> {
        let (waiter, sought) = oneshot::channel();
        if let Some(before) = self.seek.lock().replace(waiter) {
            let _ = before.send(Err(Error::new(ErrorKind::Cancelled, "another seek took its place")));
        }
        self.change(|machine| machine.seek(Instant::now(), to));
        self.wake();
        sought.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Closed, "the consumer was closed")))
    }

    /// Gives the partition back to its broker, and ends.
    pub(super) async fn leave(&self, limit: Duration) {
        self.change(Machine::leave);
        self.wake();
        let mut left = self.left.subscribe();
        let _ = tokio::time::timeout(limit, left.wait_for(|left| *left)).await;
        self.stop();
    }

    /// Out of the connection's routes, without a word to the broker.
    pub(super) fn stop(&self) {
        let task = self.task.lock().take();
        if let Some(task) = task {
            task.abort();
        }
        let connection = self.connection.lock().take();
        if let Some(connection) = connection {
            connection.session().lock().parts.remove(&self.id);
        }
        let mut machine = self.machine();
        machine.end();
        self.count(&machine, self.core.upgrade().as_ref());
    }

    /// For a consumer that is dropped without `close`: nobody waits for the answer.
    pub(super) fn leave_quietly(&self) {
        if let (Some(connection), Some(core)) = (self.connection(), self.core.upgrade()) {
            let visit = core.shared.visit.info();
            let mut host = connection.session().lock();
            let mut machine = self.machine();
            machine.leave();
            if let Some(request) = machine.poll_request(Instant::now(), false, &visit) {
                let (nobody, _) = oneshot::channel();
                host.protocol.call(Instant::now(), request, Route::Waiter(nobody));
            }
            drop(machine);
            drop(host);
            connection.session().wake();
        }
        self.stop();
    }
}

/// Finds the part a connection, and another each time that ends.
pub(super) async fn supervise(part: Weak<Part>, core: Weak<Core>) {
    let Some(shared) = core.upgrade().map(|core| Arc::clone(&core.shared)) else { return };
    let Some(broker) = part.upgrade().map(|part| part.machine().place().broker.clone()) else { return };
    let mut backoff = Backoff::new(shared.options.max_backoff);
    loop {
        let got = shared.pool.get(&address(&broker), Purpose::Fetch).await;
        let Some(part) = part.upgrade() else { return };
        let since = Instant::now();
        match got {
            Ok(connection) => {
                let attached = {
                    let mut host = connection.session().lock();
                    let alive = connection.is_alive();
                    if alive {
                        host.parts.insert(part.id, Arc::clone(&part));
                        part.machine().attach();
                        *part.connection.lock() = Some(Arc::clone(&connection));
                    }
                    alive
                };
                if attached {
                    connection.session().wake();
                    part.lost.notified().await;
                }
            }
            Err(error) => {
                part.tried.send_if_modified(|tried| {
                    let first = tried.is_none();
                    if first {
                        *tried = Some(Err(error));
                    }
                    first
                });
            }
        }
        drop(part);
        if since.elapsed() >= STEADY {
            backoff.reset();
        }
        tokio::time::sleep(backoff.pause()).await;
    }
}
