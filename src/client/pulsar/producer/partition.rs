//! One partition of a producer. `supervisor` opens it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::{AbortHandle, JoinHandle};

use crate::events::{ProducerEvents, Receipt, SendOutcome};
use crate::outcomes::{Freed, Outcomes};
use crate::pulsar::connection::{Connection, Loss, PartId, ProducerRoute};
use crate::pulsar::directions::Directions;
use crate::pulsar::options::ProducerOptions;
use crate::pulsar::reconnect::PartWatch;
use crate::pulsar::schema;
use crate::pulsar::shared::Shared;
use crate::pushed::Dispatch;
use crate::traffic::SendCounts;
use forebay_base::error::{Error, ErrorKind, Result, because};
use forebay_base::sync::{Mutex, MutexGuard, Rank};
use forebay_base::transmit::Transmit;
use forebay_pulsar::producer::{Event, Options as MachineOptions, Producer as Machine};
use forebay_pulsar::schema::SchemaInfo;
use forebay_pulsar::{MessageId, Outgoing, hot, pb};

mod reconnect;

pub(super) use reconnect::Supervisor;

/// Most bytes that a producer adds to the socket's queue in one turn.
const TURN: usize = 256 << 10;
/// Longest time between two looks at send timeouts while there is no connection.
const TICK: Duration = Duration::from_millis(100);

/// One partition of a producer.
#[derive(Debug)]
pub(super) struct PartitionProducer {
    id: u64,
    slot: usize,
    topic: String,
    partition: i32,
    machine: Mutex<Machine>,
    /// The driver has been woken and has not looked yet.
    notified: AtomicBool,
    state: PartWatch,
    directions: Directions,
    registration: Mutex<Registration>,
    outcomes: Outcomes,
    /// Version of the schema of the producer, if it has one: see
    /// [`SchemaOptions::version`](crate::pulsar::options::SchemaOptions).
    schema_version: Option<Arc<Mutex<Bytes>>>,
    started: AtomicBool,
    task: Mutex<Option<AbortHandle>>,
}

/// Name and epoch that the broker assigned when it opened the producer; repeated when it is opened
/// again.
#[derive(Clone, Debug)]
struct Registration {
    name: Option<String>,
    topic_epoch: Option<u64>,
}

impl PartitionProducer {
    pub(super) fn new(
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
                compression_min_size: options.compression_min_size,
                send_timeout: options.send_timeout,
                max_pending: options.max_pending,
                initial_sequence_id: options.initial_sequence_id,
                chunking: options.chunking,
                chunk_max_size: options.chunk_max_size,
                lazy: options.lazy_start,
                key_based: options.key_based_batching,
                stop_on_refusal: options.stop_on_refusal,
            },
        );
        Self {
            id,
            slot,
            topic,
            partition,
            machine: Mutex::new(Rank::Machine, machine),
            notified: AtomicBool::new(false),
            state: PartWatch::new(),
            directions: Directions::default(),
            registration: Mutex::leaf(Registration { name: options.name.clone(), topic_epoch: None }),
            outcomes: Outcomes::new(Arc::clone(&shared.budget), events),
            schema_version: options.schema.as_ref().map(|schema| Arc::clone(&schema.version)),
            started: AtomicBool::new(false),
            task: Mutex::default(),
        }
    }

    /// Starts the supervisor's task and notes it for [`Self::stop`], the first time.
    pub(super) fn start(&self, spawn: impl FnOnce() -> JoinHandle<()>) {
        let mut task = self.task.lock();
        // A task that starts after the partition was closed sees that and ends.
        if !self.started.swap(true, Ordering::AcqRel) {
            *task = Some(spawn().abort_handle());
        }
    }

    /// Whether [`Self::start`] has been called.
    pub(super) fn has_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    /// Whether the broker serves it now.
    pub(super) fn is_connected(&self) -> bool {
        self.state.is_connected()
    }

    pub(super) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock()
    }

    /// Name at the broker.
    pub(super) fn name(&self) -> Option<String> {
        self.registration.lock().name.clone()
    }

    pub(super) fn wake(&self) {
        if let Some(connection) = self.state.connection() {
            connection.wake(PartId::Producer(self.id));
        }
    }

    /// Pushes a message to the machine, which the caller has locked. [`Dispatch::notify`] is to
    /// follow.
    pub(super) fn push(
        &self,
        machine: &mut Machine,
        now: Instant,
        wall: u64,
        message: &Outgoing<'_>,
        park: bool,
    ) -> Result<()> {
        if let Some(version) = &self.schema_version
            && machine.schema_version().is_empty()
        {
            // It starts with this message; another partition has the version already.
            machine.set_schema_version(version.lock().clone());
        }
        let pushed = self.outcomes.admit(message.payload.len(), || {
            if park { machine.push(now, wall, message) } else { machine.try_push(now, wall, message) }
        });
        pushed.map(drop).map_err(|error| error.with_topic(self.topic.as_str()))
    }

    /// Ends everything pending with `error`.
    pub(super) fn fail(&self, error: Error) {
        let mut machine = self.machine();
        machine.close(error.clone().with_topic(self.topic.as_str()));
        self.deliver(machine);
        self.outcomes.closed(error);
    }

    /// Fails what is pending with `error`: the partition has never been open. The next message has
    /// it opened again.
    fn refuse(&self, error: &Error) {
        let mut machine = self.machine();
        machine.refuse(&error.clone().with_topic(self.topic.as_str()));
        // Under the lock: what is pushed from now on starts it.
        self.started.store(false, Ordering::Release);
        self.deliver(machine);
    }

    /// Reports the machine's events after releasing its lock.
    fn deliver(&self, mut machine: MutexGuard<'_, Machine>) {
        let mut outcomes = Vec::new();
        let mut freed = Freed::default();
        while let Some(event) = machine.poll_event() {
            let outcome = match event {
                Event::Stored { count, ledger, entry, batch, first_chunk, bytes } => {
                    let mut id = MessageId::new(ledger, entry).in_partition(self.partition);
                    if let Some((first, size)) = batch {
                        id = id.in_batch(first as i32, size as i32);
                    }
                    freed.stored += bytes;
                    let receipt = match first_chunk {
                        None => Receipt::Id(id),
                        Some(first) => Receipt::Chunked(Box::new((id, first))),
                    };
                    SendOutcome::Stored { count, receipt }
                }
                Event::Failed { count, error, bytes } => {
                    freed.failed += bytes;
                    SendOutcome::Failed { count, error: error.with_topic(self.topic.as_str()) }
                }
            };
            outcomes.push((self.slot, outcome));
        }
        let idle = machine.is_idle();
        drop(machine);
        self.outcomes.deliver(outcomes, freed, idle);
    }

    /// Counters of this partition.
    pub(super) fn counts(&self) -> SendCounts {
        self.outcomes.counts()
    }

    /// Resolves when nothing is pending, or when no message has had an outcome for `patience`.
    pub(super) async fn settle(&self, patience: Option<Duration>) -> Result<()> {
        let idle = || self.outcomes.idle(|| self.machine().is_idle());
        let Some(patience) = patience else {
            idle().await;
            return Ok(());
        };
        let mut before = self.machine().pending_messages();
        while tokio::time::timeout(patience, idle()).await.is_err() {
            let (pending, trouble) = {
                let machine = self.machine();
                (machine.pending_messages(), machine.trouble().cloned())
            };
            if pending >= before {
                let text = format!(
                    "the producer was closed: {pending} messages had no receipt, and none came within {patience:?}"
                );
                let error = Error::new(ErrorKind::Timeout, because(text, trouble.as_ref()));
                return Err(error.with_topic(self.topic.as_str()));
            }
            before = pending;
        }
        Ok(())
    }

    /// Stops the supervisor.
    pub(super) fn stop(&self) {
        let task = self.task.lock().take();
        if let Some(task) = task {
            task.abort();
        }
    }

    /// Closes it at the broker and waits for the answer.
    pub(super) async fn close(&self) {
        if let Some(connection) = self.state.connection() {
            connection.close_part(PartId::Producer(self.id)).await;
        }
        self.leave();
    }

    /// Closes it at the broker without waiting for the answer: the handle was dropped.
    pub(super) fn close_quietly(&self) {
        if let Some(connection) = self.leave() {
            connection.close_part_quietly(PartId::Producer(self.id));
        }
        self.forget();
    }

    /// Gives back the memory of what is pending: nothing waits for its outcome any more.
    fn forget(&self) {
        let mut machine = self.machine();
        machine.close(Error::new(ErrorKind::Closed, "the producer was dropped"));
        let mut bytes = 0;
        while let Some(event) = machine.poll_event() {
            bytes += match event {
                Event::Stored { bytes, .. } | Event::Failed { bytes, .. } => bytes,
            };
        }
        drop(machine);
        self.outcomes.forget(bytes);
    }

    /// The version of a schema at the broker, which stores it if it is new. Waits for a connection.
    pub(super) async fn register_schema(&self, info: &SchemaInfo) -> Result<Bytes> {
        match self.connection().await {
            Some(connection) => schema::register(&connection, &self.topic, info).await,
            None => {
                Err(Error::new(ErrorKind::Closed, "the producer was closed").with_topic(self.topic.as_str()))
            }
        }
    }

    /// The connection that it is open on, as soon as there is one; `None` if it was closed.
    pub(super) async fn connection(&self) -> Option<Arc<Connection>> {
        self.state.attached().await
    }

    /// Full name of the topic, including the partition.
    pub(super) fn topic(&self) -> &str {
        &self.topic
    }

    /// Takes the broker's answer for the schema of messages. False if the connection has been lost
    /// since: the topic may be another one on the next.
    pub(super) fn registered(
        &self,
        connection: &Arc<Connection>,
        info: &Arc<SchemaInfo>,
        answer: Result<Bytes>,
    ) -> bool {
        let mut machine = self.machine();
        if !self.state.connection().is_some_and(|current| Arc::ptr_eq(&current, connection)) {
            return false;
        }
        machine.handle_schema(info, answer);
        drop(machine);
        // The driver delivers, so that outcomes keep their order.
        self.wake();
        true
    }

    /// Takes it out of its connection's routes for good.
    fn leave(&self) -> Option<Arc<Connection>> {
        let connection = self.state.close()?;
        connection.remove_route(PartId::Producer(self.id));
        self.machine().detach();
        Some(connection)
    }
}

impl Dispatch for PartitionProducer {
    fn notify(&self) {
        if !self.notified.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    fn write(&self) {
        if !self.notified.swap(true, Ordering::AcqRel)
            && let Some(connection) = self.state.connection()
        {
            connection.write(PartId::Producer(self.id));
        }
    }
}

impl ProducerRoute for PartitionProducer {
    fn directions(&self) -> &Directions {
        &self.directions
    }

    fn topic(&self) -> &str {
        &self.topic
    }

    fn turn(&self, now: Instant, out: &mut Transmit) -> Option<Instant> {
        // Cleared before looking, so that a push after the look wakes the driver again.
        self.notified.store(false, Ordering::Release);
        let mut machine = self.machine();
        machine.handle_timeout(now);
        let more = machine.poll_transmit(out, TURN);
        let due = if more { Some(now) } else { machine.poll_timeout() };
        self.deliver(machine);
        due
    }

    fn handle_receipt(&self, receipt: &hot::SendReceipt) -> Result<()> {
        let mut machine = self.machine();
        let result = machine.handle_receipt(receipt);
        self.deliver(machine);
        result
    }

    fn handle_send_error(&self, error: &pb::CommandSendError) -> Result<()> {
        let mut machine = self.machine();
        let result = machine.handle_send_error(error);
        self.deliver(machine);
        result
    }

    fn detach(&self, now: Instant, loss: Loss) {
        if !self.state.concerns(loss) {
            return;
        }
        let mut machine = self.machine();
        machine.detach();
        machine.handle_timeout(now);
        self.deliver(machine);
        self.state.lose();
    }
}
