//! One partition of a consumer. `reconnect` connects it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot, watch};
use tokio::task::{AbortHandle, JoinHandle};

use crate::events::Signal;
use crate::receive::Ahead;
use crate::traffic::Traffic;
use crate::tubemq::connection::{Connection, PartitionRoute, Route};
use crate::tubemq::shared::Shared;
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::sync::{Mutex, MutexGuard, Rank};
use forebay_tubemq::connection::Connection as Protocol;
use forebay_tubemq::consumer::{Consumer as Machine, Event, Message, Options, Phase, Start};
use forebay_tubemq::{Response, pb};

/// Messages that a consumer has fetched and the user has not taken, over all its partitions.
#[derive(Debug)]
pub(super) struct Fetched {
    bytes: AtomicUsize,
    limit: usize,
    /// Fetching has stopped at the limit.
    full: AtomicBool,
    /// Notified when fetching may go on; the member's task then wakes the partitions.
    pub(super) room: Arc<Notify>,
    pub(super) signal: Signal,
    /// Messages that are to be handed out next.
    pub(super) ahead: Ahead<Message>,
}

impl Fetched {
    pub(super) fn new(limit: usize, room: Arc<Notify>, signal: Signal, traffic: &Arc<Traffic>) -> Self {
        let (bytes, full) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { bytes, limit, full, room, signal, ahead: Ahead::new(traffic) }
    }

    /// Whether there is room for more.
    fn may_fetch(&self) -> bool {
        let room = self.bytes.load(Ordering::Acquire) < self.limit;
        if !room {
            self.full.store(true, Ordering::Release);
        }
        room
    }

    /// A partition had `before` bytes and now has `after`.
    fn count(&self, before: usize, after: usize) {
        if after >= before {
            self.bytes.fetch_add(after - before, Ordering::AcqRel);
            return;
        }
        let bytes = self.bytes.fetch_sub(before - after, Ordering::AcqRel) - (before - after);
        if bytes <= self.limit / 2 && self.full.swap(false, Ordering::AcqRel) {
            // Left to a task: the caller may hold the lock of the partitions.
            self.room.notify_one();
        }
    }
}

/// One partition of a consumer.
#[derive(Debug)]
pub(super) struct PartitionConsumer {
    pub(super) id: u64,
    topic: Arc<str>,
    machine: Mutex<Machine>,
    pub(super) connection: Mutex<Option<Arc<Connection>>>,
    /// Notified when the connection is lost.
    pub(super) lost: Notify,
    /// Outcome of the first attempt to take the partition.
    pub(super) tried: watch::Sender<Option<Result<()>>>,
    left: watch::Sender<bool>,
    /// Caller that waits for a seek.
    seek: Mutex<Option<oneshot::Sender<Result<()>>>>,
    /// Bytes of this partition in `fetched`.
    counted: AtomicUsize,
    fetched: Arc<Fetched>,
    shared: Arc<Shared>,
    task: Mutex<Option<AbortHandle>>,
}

impl PartitionConsumer {
    pub(super) fn new(shared: &Arc<Shared>, fetched: Arc<Fetched>, options: Options) -> Self {
        Self {
            id: shared.next_id(),
            topic: Arc::clone(&options.location.topic),
            machine: Mutex::new(Rank::Machine, Machine::new(options, clock::now())),
            connection: Mutex::default(),
            lost: Notify::new(),
            tried: watch::channel(None).0,
            left: watch::channel(false).0,
            seek: Mutex::default(),
            counted: AtomicUsize::new(0),
            fetched,
            shared: Arc::clone(shared),
            task: Mutex::default(),
        }
    }

    /// Notes the supervisor's task, for [`Self::stop`].
    pub(super) fn start(&self, task: JoinHandle<()>) {
        *self.task.lock() = Some(task.abort_handle());
    }

    pub(super) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock()
    }

    /// Whether its broker serves it now.
    pub(super) fn is_connected(&self) -> bool {
        let connected = self.connection().is_some_and(|connection| connection.is_alive());
        connected && matches!(self.machine().phase(), Phase::Reading | Phase::Paused)
    }

    pub(super) fn connection(&self) -> Option<Arc<Connection>> {
        self.connection.lock().clone()
    }

    /// Changes the machine, and wakes the driver if that made something due.
    pub(super) fn change<T>(&self, act: impl FnOnce(&mut Machine) -> T) -> T {
        let mut machine = self.machine();
        let wanted = machine.wants_transmit();
        let result = act(&mut machine);
        let wake = machine.wants_transmit() && !wanted;
        self.deliver(machine);
        if wake {
            self.wake();
        }
        result
    }

    pub(super) fn wake(&self) {
        if let Some(connection) = self.connection() {
            connection.session().wake();
        }
    }

    /// Reports the machine's events after releasing its lock.
    fn deliver(&self, mut machine: MutexGuard<'_, Machine>) {
        let more = self.settle(&mut machine);
        let events: Vec<Event> = std::iter::from_fn(|| machine.poll_event()).collect();
        drop(machine);
        for event in events {
            match event {
                Event::Registered(result) => {
                    self.tried.send_replace(Some(result));
                }
                Event::RegisteredAgain => self.shared.journal.resubscribed(&self.topic),
                Event::SeekDone(result) => {
                    let waiter = self.seek.lock().take();
                    if let Some(waiter) = waiter {
                        let _ = waiter.send(result);
                    }
                }
                Event::Released => {
                    self.left.send_replace(true);
                }
                Event::Refresh => self.shared.refresh(),
                Event::Damaged(count) => self.shared.damaged(count),
            }
        }
        if more {
            self.fetched.signal.ring();
        }
    }

    /// Drops what was revoked, and updates the count of fetched bytes; returns whether there are
    /// more than before. The machine's lock is held, so that no revoked message is handed out
    /// later, and never more is subtracted than was added.
    fn settle(&self, machine: &mut Machine) -> bool {
        if machine.take_revoked() {
            self.fetched.ahead.revoke(|message, acknowledged| machine.is_revoked(message, acknowledged));
        }
        let bytes = machine.available_bytes();
        let before = self.counted.swap(bytes, Ordering::AcqRel);
        if bytes != before {
            self.fetched.count(before, bytes);
        }
        bytes > before
    }

    /// Outcome of the first attempt to take the partition, as soon as there is one.
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
        let replaced = self.seek.lock().replace(waiter);
        if let Some(replaced) = replaced {
            let _ = replaced.send(Err(Error::new(ErrorKind::Cancelled, "another seek replaced this one")));
        }
        self.change(|machine| machine.seek(clock::now(), to));
        self.wake();
        sought.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Closed, "the consumer was closed")))
    }

    /// Gives the partition back to its broker, waiting at most `limit`, and ends.
    pub(super) async fn leave(&self, limit: Duration) {
        self.change(Machine::leave);
        self.wake();
        let mut left = self.left.subscribe();
        let _ = tokio::time::timeout(limit, left.wait_for(|left| *left)).await;
        self.stop();
    }

    /// Leaves the routes of its connection without telling the broker.
    pub(super) fn stop(&self) {
        let task = self.task.lock().take();
        if let Some(task) = task {
            task.abort();
        }
        let mut machine = self.machine();
        machine.end();
        self.settle(&mut machine);
        drop(machine);
        let connection = self.connection.lock().take();
        if let Some(connection) = connection {
            connection.session().lock().partitions.remove(&self.id);
        }
    }

    /// Gives the partition back without waiting for the answer: the consumer was dropped.
    pub(super) fn leave_quietly(&self) {
        if let Some(connection) = self.connection() {
            let visit = self.shared.visit.info();
            let mut host = connection.session().lock();
            let mut machine = self.machine();
            machine.leave();
            if let Some(request) = machine.poll_request(clock::now(), false, &visit) {
                let (ignored, _) = oneshot::channel();
                host.protocol.call(clock::now(), request, Route::Waiter(ignored));
            }
            drop(machine);
            drop(host);
            connection.session().wake();
        }
        self.stop();
    }
}

impl PartitionRoute for PartitionConsumer {
    fn turn(
        self: Arc<Self>,
        now: Instant,
        visit: &pb::AuthorizedInfo,
        protocol: &mut Protocol<Route>,
    ) -> Option<Instant> {
        let may_fetch = self.fetched.may_fetch();
        let mut machine = self.machine();
        if let Some(request) = machine.poll_request(now, may_fetch, visit) {
            protocol.call(now, request, Route::Partition(Arc::clone(&self) as _));
        }
        let due = machine.poll_timeout(may_fetch);
        self.deliver(machine);
        due
    }

    fn handle_answer(&self, now: Instant, result: Result<Response>) {
        let mut machine = self.machine();
        machine.handle_answer(now, result);
        self.deliver(machine);
    }

    fn connection_lost(&self) {
        let mut machine = self.machine();
        machine.detach();
        self.deliver(machine);
        *self.connection.lock() = None;
        self.lost.notify_one();
    }
}
