//! A producer over the partitions of a topic.
//!
//! Each partition is a [`ProducerPart`]: the sans-IO machine behind one short lock that the submitting
//! thread and the driver share, and a supervisor task that opens it again whenever its connection ends.
//!
//! ```text
//! Producer ── push ──► ProducerPart.machine ──► driver's turn ──► socket
//!                            ▲                      │ receipt
//!      supervisor: lookup, connect, PRODUCER        └──► ProducerEvents::sent
//! ```

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use crate::client::budget::Budget;
use crate::client::events::{ProducerEvents, Receipt, SendOutcome};
use crate::client::pulsar::connection::{Attached, Connection};
use crate::client::pulsar::options::{AccessMode, ProducerOptions};
use crate::client::pulsar::{Shared, is_terminal};
use crate::client::random_bits;
use crate::clock::wall_ms;
use crate::error::{Error, ErrorKind, Result};
use crate::net::backoff::Backoff;
use crate::net::driver::Session;
use crate::pulsar::command::Command;
use crate::pulsar::producer::{Event, Options as MachineOptions, Producer as Machine};
use crate::pulsar::topic::{Router, TopicName};
use crate::pulsar::{MessageId, Outgoing, hot, pb};
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::transmit::Transmit;

/// Bytes a producer may add to the socket's queue in one turn.
const TURN: usize = 256 << 10;

/// A handle that sends to a topic. Cheap to clone; all clones are the same producer.
#[derive(Clone, Debug)]
pub struct Producer(Arc<Inner>);

/// Does not keep the producer alive.
#[derive(Clone, Debug)]
pub struct WeakProducer(Weak<Inner>);

impl WeakProducer {
    /// The producer, unless it is gone.
    pub fn upgrade(&self) -> Option<Producer> {
        self.0.upgrade().map(Producer)
    }
}

#[derive(Debug)]
struct Inner {
    topic: String,
    parts: Vec<Arc<ProducerPart>>,
    router: Mutex<Router>,
    closed: AtomicBool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        for part in &self.parts {
            part.stop();
            part.tell_broker_of_close();
        }
    }
}

impl Producer {
    pub(super) async fn open(
        shared: Arc<Shared>,
        topic: TopicName,
        options: ProducerOptions,
        events: Arc<dyn ProducerEvents>,
    ) -> Result<Self> {
        let name = topic.to_string();
        let count =
            if topic.partition().is_some() { 0 } else { shared.lookup.partitions(&name, true).await? };
        let topics: Vec<(String, i32)> = if count == 0 {
            vec![(name.clone(), topic.partition().map_or(-1, |p| p as i32))]
        } else {
            (0..count).map(|p| (topic.with_partition(p).to_string(), p as i32)).collect()
        };
        let mut parts = Vec::with_capacity(topics.len());
        let mut opening = Vec::with_capacity(topics.len());
        for (slot, (topic, partition)) in topics.into_iter().enumerate() {
            let part =
                Arc::new(ProducerPart::new(&shared, topic, partition, slot, &options, Arc::clone(&events)));
            let (ready, opened) = oneshot::channel();
            let task =
                tokio::spawn(supervise(Arc::clone(&shared), Arc::clone(&part), options.clone(), ready));
            *part.task.lock() = Some(task.abort_handle());
            parts.push(part);
            opening.push(opened);
        }
        let seed = random_bits();
        // As the Java client: ten batching delays with one partition.
        let stay = if options.batching { options.batching_delay * 10 } else { Duration::ZERO };
        let router =
            Mutex::leaf(Router::new(parts.len() as u32, options.hashing, options.routing, stay, seed));
        // From here on dropping the producer stops the supervisors, also those that have not opened yet.
        let producer = Self(Arc::new(Inner { topic: name, parts, router, closed: AtomicBool::new(false) }));
        for opened in opening {
            opened.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Closed, "the producer was closed")))?;
        }
        Ok(producer)
    }

    /// Hands over a message and gives the slot whose [`ProducerEvents::sent`] will tell its outcome. With
    /// `park`, a message beyond the window waits its turn, as many as the window holds.
    pub fn push(&self, message: &Outgoing<'_>, park: bool) -> Result<usize> {
        self.check_open()?;
        let slot = self.route(message, Instant::now());
        let part = &self.0.parts[slot];
        part.push(message, park)?;
        Ok(slot)
    }

    /// Pushes messages until the iterator ends or one is refused, telling `each` the slot of every one
    /// that was taken. The refused message is not consumed from the caller's point of view: it was the
    /// one after those that `each` saw.
    pub fn push_many<'a>(
        &self,
        messages: &mut dyn Iterator<Item = Outgoing<'a>>,
        each: &mut dyn FnMut(usize),
    ) -> Result<()> {
        self.check_open()?;
        let (now, wall) = (Instant::now(), wall_ms());
        // One lock for a run of neighbours, so that they get into one batch before the driver looks.
        let mut held: Option<(usize, MutexGuard<'_, Machine>)> = None;
        let mut result = Ok(());
        for message in messages {
            let slot = self.route(&message, now);
            let part = &self.0.parts[slot];
            if held.as_ref().is_none_or(|(current, _)| *current != slot) {
                if let Some((last, machine)) = held.take() {
                    drop(machine);
                    self.0.parts[last].notify();
                }
                held = Some((slot, part.machine()));
            }
            let (_, machine) = held.as_mut().expect("just set");
            if let Err(error) = part.push_locked(machine, now, wall, &message, false) {
                result = Err(error);
                break;
            }
            each(slot);
        }
        if let Some((last, machine)) = held {
            drop(machine);
            self.0.parts[last].notify();
        }
        result
    }

    /// Number of slots: partitions, or one.
    pub fn slots(&self) -> usize {
        self.0.parts.len()
    }

    /// Closes the open batches now instead of when they are due.
    pub fn flush(&self) {
        for part in &self.0.parts {
            part.machine().flush();
            part.wake();
        }
    }

    /// Waits for every pending message, at most until its send timeout, then closes the producer at the
    /// broker.
    pub async fn close(&self) -> Result<()> {
        if self.0.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.flush();
        for part in &self.0.parts {
            part.idle().await;
        }
        for part in &self.0.parts {
            part.stop();
            if let Some(connection) = part.connection() {
                let id = part.id;
                // The broker forgets the producer with the connection anyway.
                let _ = connection.request(|request_id| close_command(id, request_id)).await;
            }
            part.leave();
            part.fail(Error::new(ErrorKind::Closed, "the producer was closed"));
        }
        Ok(())
    }

    /// Messages without a receipt.
    pub fn pending(&self) -> usize {
        self.0.parts.iter().map(|part| part.machine().pending_messages()).sum()
    }

    /// Name at the broker, of the first partition.
    pub fn name(&self) -> String {
        self.0.parts[0].name.lock().clone().unwrap_or_default()
    }

    /// Full name of the topic.
    pub fn topic(&self) -> &str {
        &self.0.topic
    }

    /// The last sequence id the broker or this producer gave, -1 before the first.
    pub fn last_sequence_id(&self) -> i64 {
        self.0.parts.iter().map(|part| part.machine().last_sequence_id()).max().unwrap_or(-1)
    }

    pub(super) fn downgrade(&self) -> WeakProducer {
        WeakProducer(Arc::downgrade(&self.0))
    }

    fn route(&self, message: &Outgoing<'_>, now: Instant) -> usize {
        if self.0.parts.len() == 1 {
            return 0;
        }
        self.0.router.lock().pick(message.key, now) as usize
    }

    fn check_open(&self) -> Result<()> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(
                Error::new(ErrorKind::Closed, "the producer is closed").with_topic(self.0.topic.as_str())
            );
        }
        Ok(())
    }
}

/// One partition of a producer.
#[derive(Debug)]
pub(super) struct ProducerPart {
    id: u64,
    slot: usize,
    topic: String,
    partition: i32,
    machine: Mutex<Machine>,
    /// The driver knows that there is something to do.
    notified: AtomicBool,
    connection: Mutex<Option<Arc<Connection>>>,
    name: Mutex<Option<String>>,
    /// Rung when the connection is lost or the broker closes the producer.
    lost: Notify,
    /// Rung when the machine has nothing pending any more.
    idle: Notify,
    /// Pushes that were refused by the window since the last event.
    refused: AtomicUsize,
    events: Arc<dyn ProducerEvents>,
    budget: Arc<Budget>,
    task: Mutex<Option<AbortHandle>>,
}

impl ProducerPart {
    fn new(
        shared: &Shared,
        topic: String,
        partition: i32,
        slot: usize,
        options: &ProducerOptions,
        events: Arc<dyn ProducerEvents>,
    ) -> Self {
        let id = shared.next_id();
        let machine = Machine::new(
            id,
            MachineOptions {
                batching: options.batching,
                batch_max_messages: options.batch_max_messages,
                batch_max_bytes: options.batch_max_bytes,
                batch_delay: options.batching_delay,
                compression: options.compression,
                send_timeout: options.send_timeout,
                max_pending: options.max_pending,
                initial_sequence_id: options.initial_sequence_id,
                chunking: options.chunking,
                key_based: options.key_based_batching,
            },
        );
        Self {
            id,
            slot,
            topic,
            partition,
            machine: Mutex::new(Rank::Machine, machine),
            notified: AtomicBool::new(false),
            connection: Mutex::default(),
            name: Mutex::leaf(options.name.clone()),
            lost: Notify::new(),
            idle: Notify::new(),
            refused: AtomicUsize::new(0),
            events,
            budget: Arc::clone(&shared.budget),
            task: Mutex::default(),
        }
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock()
    }

    fn connection(&self) -> Option<Arc<Connection>> {
        self.connection.lock().clone()
    }

    fn push(&self, message: &Outgoing<'_>, park: bool) -> Result<()> {
        self.push_locked(&mut self.machine(), Instant::now(), wall_ms(), message, park)?;
        self.notify();
        Ok(())
    }

    /// Tells the driver that there is something to do, unless it knows.
    fn notify(&self) {
        if !self.notified.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    fn push_locked(
        &self,
        machine: &mut Machine,
        now: Instant,
        wall: u64,
        message: &Outgoing<'_>,
        park: bool,
    ) -> Result<()> {
        let bytes = message.payload.len();
        let pushed = self.budget.acquire(bytes, &self.events).and_then(|()| {
            let pushed =
                if park { machine.push(now, wall, message) } else { machine.try_push(now, wall, message) };
            pushed.inspect_err(|_| self.budget.release(bytes))
        });
        pushed.map(drop).map_err(|error| {
            if error.kind() == ErrorKind::QueueFull {
                self.refused.fetch_add(1, Ordering::AcqRel);
            }
            error.with_topic(self.topic.as_str())
        })
    }

    fn wake(&self) {
        if let Some(connection) = self.connection() {
            connection.session().wake();
        }
    }

    /// What is due goes to `out`; gives the time of the next turn.
    pub(super) fn turn(&self, now: Instant, out: &mut Transmit) -> Option<Instant> {
        // Cleared before looking, so that a push after the look rings again.
        self.notified.store(false, Ordering::Release);
        let mut machine = self.machine();
        machine.handle_timeout(now);
        let more = machine.poll_transmit(now, out, TURN);
        let due = if more { Some(now) } else { machine.poll_timeout() };
        self.deliver(machine);
        due
    }

    pub(super) fn handle_receipt(&self, now: Instant, receipt: &hot::SendReceipt) -> Result<()> {
        let mut machine = self.machine();
        let result = machine.handle_receipt(now, receipt);
        self.deliver(machine);
        result
    }

    pub(super) fn handle_send_error(&self, now: Instant, error: &pb::CommandSendError) -> Result<()> {
        let mut machine = self.machine();
        let result = machine.handle_send_error(now, error);
        self.deliver(machine);
        result
    }

    /// The connection is gone, or the broker closed the producer: stop sending at once.
    pub(super) fn detach(&self, now: Instant) {
        let mut machine = self.machine();
        machine.detach();
        machine.handle_timeout(now);
        self.deliver(machine);
        *self.connection.lock() = None;
        self.lost.notify_one();
    }

    /// Ends everything pending with `error`.
    fn fail(&self, error: Error) {
        let mut machine = self.machine();
        machine.close(error.clone().with_topic(self.topic.as_str()));
        self.deliver(machine);
        self.events.closed(error);
    }

    /// Gives the machine's events away, after its lock.
    fn deliver(&self, mut machine: MutexGuard<'_, Machine>) {
        let mut events = Vec::new();
        while let Some(event) = machine.poll_event() {
            events.push(event);
        }
        let idle = machine.is_idle();
        drop(machine);
        if events.is_empty() {
            return;
        }
        for event in events {
            let (bytes, outcome) = match event {
                Event::Sent { count, ledger, entry, batch, bytes, .. } => {
                    let mut id = MessageId::new(ledger, entry).in_partition(self.partition);
                    if batch {
                        id.batch_size = count as i32;
                    }
                    (bytes, SendOutcome::Stored { count, receipt: Receipt::Id(id) })
                }
                Event::Failed { count, error, bytes } => {
                    (bytes, SendOutcome::Failed { count, error: error.with_topic(self.topic.as_str()) })
                }
            };
            self.budget.release(bytes);
            self.events.sent(self.slot, outcome);
        }
        if idle {
            self.idle.notify_waiters();
        }
        if self.refused.swap(0, Ordering::AcqRel) > 0 {
            self.events.room();
        }
    }

    /// Resolves when nothing is pending.
    async fn idle(&self) {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if self.machine().is_idle() {
                return;
            }
            idle.await;
        }
    }

    /// Ends the supervisor.
    fn stop(&self) {
        let task = self.task.lock().take();
        if let Some(task) = task {
            task.abort();
        }
    }

    /// Takes the part out of its connection's routes.
    fn leave(&self) -> Option<Arc<Connection>> {
        let connection = self.connection.lock().take()?;
        connection.session().lock().producers.remove(&self.id);
        self.machine().detach();
        Some(connection)
    }

    /// For a handle that is dropped without `close`: nobody waits for the answer.
    fn tell_broker_of_close(&self) {
        if let Some(connection) = self.leave() {
            close_quietly(connection.session(), self.id);
        }
    }
}

fn close_command(producer_id: u64, request_id: u64) -> Command {
    Command::CloseProducer(pb::CommandCloseProducer { producer_id, request_id, ..Default::default() })
}

/// Asks the broker to forget the producer without waiting for the answer.
fn close_quietly(session: &Arc<Session<Attached>>, producer_id: u64) {
    session.lock().protocol().request(Instant::now(), |request_id| close_command(producer_id, request_id));
    session.wake();
}

/// Opens the part, and again each time its connection ends, until that is hopeless.
async fn supervise(
    shared: Arc<Shared>,
    part: Arc<ProducerPart>,
    options: ProducerOptions,
    ready: oneshot::Sender<Result<()>>,
) {
    let mut ready = Some(ready);
    let mut epoch = 0;
    let mut topic_epoch = None;
    let mut backoff = Backoff::new(shared.options.max_backoff);
    let first_deadline = Instant::now() + shared.options.operation_timeout;
    loop {
        let opened = tokio::select! {
            opened = open(&shared, &part, &options, epoch, &mut topic_epoch) => opened,
            never = tick(&part) => match never {},
        };
        epoch += 1;
        match opened {
            Ok(()) => {
                backoff.reset();
                if let Some(ready) = ready.take() {
                    let _ = ready.send(Ok(()));
                }
                part.lost.notified().await;
            }
            Err(error) => {
                let hopeless = is_terminal(&error, ready.is_some())
                    || (ready.is_some() && Instant::now() >= first_deadline);
                if hopeless {
                    let error = error.with_topic(part.topic.as_str());
                    if let Some(ready) = ready.take() {
                        let _ = ready.send(Err(error.clone()));
                    }
                    part.fail(error);
                    return;
                }
            }
        }
        let pause = backoff.pause();
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            never = tick(&part) => match never {},
        }
    }
}

/// Keeps the send timeouts running while no connection does.
async fn tick(part: &ProducerPart) -> std::convert::Infallible {
    const LOOK_AGAIN: Duration = Duration::from_millis(100);
    loop {
        let now = Instant::now();
        let due = {
            let mut machine = part.machine();
            machine.handle_timeout(now);
            let due = machine.poll_timeout();
            part.deliver(machine);
            due
        };
        // A message pushed meanwhile may be due sooner than what was pending.
        let at =
            due.map_or(now + LOOK_AGAIN, |at| at.clamp(now + Duration::from_millis(1), now + LOOK_AGAIN));
        tokio::time::sleep_until(at.into()).await;
    }
}

async fn open(
    shared: &Arc<Shared>,
    part: &Arc<ProducerPart>,
    options: &ProducerOptions,
    epoch: u64,
    topic_epoch: &mut Option<u64>,
) -> Result<()> {
    let connection = shared.lookup.broker(&part.topic, part.id).await?;
    // In the routes before the broker knows it, so that a CLOSE_PRODUCER right behind the success is seen.
    connection.session().lock().producers.insert(part.id, Arc::clone(part));
    let guard = Withdraw { connection: &connection, id: part.id };
    let name = part.name.lock().clone();
    let asked = connection.request(|request_id| {
        Command::Producer(Box::new(pb::CommandProducer {
            topic: part.topic.clone(),
            producer_id: part.id,
            request_id,
            producer_name: name,
            user_provided_producer_name: Some(options.name.is_some()),
            epoch: Some(epoch),
            metadata: key_values(&options.properties),
            producer_access_mode: Some(options.access_mode as i32),
            topic_epoch: *topic_epoch,
            ..Default::default()
        }))
    });
    // Only who asked to wait for its turn waits without a deadline.
    let answer = if options.access_mode == AccessMode::WaitForExclusive {
        asked.await?
    } else {
        let limit = shared.options.operation_timeout;
        tokio::time::timeout(limit, asked).await.unwrap_or_else(|_| {
            Err(Error::new(
                ErrorKind::Timeout,
                format!("the broker did not make the producer ready within {limit:?}"),
            ))
        })?
    };
    let Command::ProducerSuccess(success) = answer else {
        return Err(Error::protocol(format!("PRODUCER was answered by {}", answer.name())));
    };
    *topic_epoch = success.topic_epoch.or(*topic_epoch);
    {
        let host = connection.session().lock();
        if !connection.is_alive() || !host.producers.contains_key(&part.id) {
            return Err(Error::new(ErrorKind::Disconnected, "the producer was closed while it opened"));
        }
        *part.name.lock() = Some(success.producer_name.clone());
        part.machine().attach(
            Instant::now(),
            &success.producer_name,
            success.last_sequence_id(),
            connection.info().max_message_size,
        );
        *part.connection.lock() = Some(Arc::clone(&connection));
    }
    std::mem::forget(guard);
    connection.session().wake();
    Ok(())
}

/// Undoes an opening that failed or was given up: out of the routes, and closed at the broker lest it
/// keep a ghost that makes the next attempt busy.
struct Withdraw<'a> {
    connection: &'a Arc<Connection>,
    id: u64,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        self.connection.session().lock().producers.remove(&self.id);
        if self.connection.is_alive() {
            close_quietly(self.connection.session(), self.id);
        }
    }
}

pub(super) fn key_values(pairs: &[(String, String)]) -> Vec<pb::KeyValue> {
    pairs.iter().map(|(key, value)| pb::KeyValue { key: key.clone(), value: value.clone() }).collect()
}
