//! One partition of a producer, and how its supervisor opens it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::{AbortHandle, JoinHandle};

use crate::client::events::{ProducerEvents, Receipt, SendOutcome};
use crate::client::journal::Journal;
use crate::client::outcomes::{Freed, Outcomes};
use crate::client::pulsar::connection::{Connection, Loss, PartId, ProducerRoute, Withdraw};
use crate::client::pulsar::directions::Directions;
use crate::client::pulsar::options::{AccessMode, ProducerOptions};
use crate::client::pulsar::part::{PartWatch, Supervised};
use crate::client::pulsar::schema;
use crate::client::pulsar::shared::{Shared, key_values};
use crate::client::traffic::SendCounts;
use crate::clock;
use crate::error::{Error, ErrorKind, Result, because};
use crate::pulsar::command::Command;
use crate::pulsar::producer::{Event, Options as MachineOptions, Producer as Machine};
use crate::pulsar::schema::SchemaInfo;
use crate::pulsar::{MessageId, Outgoing, hot, pb};
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::transmit::Transmit;

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
    /// Version of the schema of the producer, if it has one: see [`SchemaOptions::version`](crate::client::pulsar::options::SchemaOptions).
    schema_version: Option<Arc<Mutex<Bytes>>>,
    started: AtomicBool,
    task: Mutex<Option<AbortHandle>>,
}

/// Name and epoch that the broker assigned when it opened the producer; repeated when it is opened again.
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

    /// Wakes the driver, unless it has been woken and has not looked yet.
    pub(super) fn notify(&self) {
        if !self.notified.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    pub(super) fn wake(&self) {
        if let Some(connection) = self.state.connection() {
            connection.session().wake();
        }
    }

    /// Pushes a message to the machine, which the caller has locked. [`Self::notify`] is to follow.
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

    /// Reports the machine's events after releasing its lock.
    fn deliver(&self, mut machine: MutexGuard<'_, Machine>) {
        let mut outcomes = Vec::new();
        let mut freed = Freed::default();
        while let Some(event) = machine.poll_event() {
            let outcome = match event {
                Event::Stored { count, ledger, entry, batch, bytes } => {
                    let mut id = MessageId::new(ledger, entry).in_partition(self.partition);
                    if let Some((first, size)) = batch {
                        id = id.in_batch(first as i32, size as i32);
                    }
                    freed.stored += bytes;
                    SendOutcome::Stored { count, receipt: Receipt::Id(id) }
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

    /// Takes the broker's answer for the schema of messages. False if the connection has been lost since: the topic may be another
    /// one on the next.
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

/// Opens a partition for [`supervise`](crate::client::pulsar::part::supervise).
pub(super) struct Supervisor {
    shared: Arc<Shared>,
    part: Arc<PartitionProducer>,
    options: ProducerOptions,
    /// A broker has been asked for a producer that waits for its turn.
    asked: AtomicBool,
    /// Whether the producer is open already, and this is one of the partitions that its topic has got since.
    joins: bool,
}

impl Supervisor {
    pub(super) fn new(
        shared: Arc<Shared>,
        part: Arc<PartitionProducer>,
        options: ProducerOptions,
        joins: bool,
    ) -> Self {
        Self { shared, part, options, asked: AtomicBool::new(false), joins }
    }

    /// Sends PRODUCER and waits for its answer.
    async fn register(&self, connection: &Connection, epoch: u64) -> Result<pb::CommandProducerSuccess> {
        let Registration { name, topic_epoch } = self.part.registration.lock().clone();
        let options = &self.options;
        let answer = connection.request(|request_id| {
            Command::Producer(Box::new(pb::CommandProducer {
                topic: self.part.topic.clone(),
                producer_id: self.part.id,
                request_id,
                producer_name: name,
                user_provided_producer_name: Some(options.name.is_some()),
                epoch: Some(epoch),
                metadata: key_values(&options.properties),
                producer_access_mode: Some(options.access_mode as i32),
                topic_epoch,
                initial_subscription_name: options.initial_subscription.clone(),
                schema: schema::stated(options.schema.as_ref(), false),
                ..Default::default()
            }))
        });
        // Only WaitForExclusive waits without a deadline: it was asked to wait for its turn.
        let answer = if options.access_mode == AccessMode::WaitForExclusive {
            self.asked.store(true, Ordering::Release);
            answer.await?
        } else {
            let limit = self.shared.options.operation_timeout;
            tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| {
                Err(Error::new(
                    ErrorKind::Timeout,
                    format!("the broker did not make the producer ready within {limit:?}"),
                ))
            })?
        };
        match answer {
            Command::ProducerSuccess(success) => Ok(success),
            other => Err(Error::protocol(format!("PRODUCER was answered by {}", other.name()))),
        }
    }

    /// Registers the schemas that messages have had again: the topic may have been deleted and made again.
    async fn register_again(&self, connection: &Connection) -> Result<Vec<(Arc<SchemaInfo>, Result<Bytes>)>> {
        let schemas = self.part.machine().registered_schemas();
        let mut answers = Vec::with_capacity(schemas.len());
        for info in schemas {
            match schema::register(connection, &self.part.topic, &info).await {
                Err(error) if error.retriable() => return Err(error),
                answer => answers.push((info, answer)),
            }
        }
        Ok(answers)
    }
}

impl Supervised for Supervisor {
    fn directions(&self) -> &Directions {
        &self.part.directions
    }

    fn state(&self) -> &PartWatch {
        &self.part.state
    }

    fn topic(&self) -> &str {
        &self.part.topic
    }

    fn journal(&self) -> &Journal {
        &self.shared.journal
    }

    async fn open(&self, attempt: u64) -> Result<()> {
        let part = &self.part;
        let connection = self.shared.connection(&part.directions, &part.topic, part.id).await?;
        // In the routes before the broker knows it, so that a CLOSE_PRODUCER right behind the success is seen.
        let route: Arc<dyn ProducerRoute> = Arc::clone(part) as _;
        connection.session().lock().producers.insert(part.id, route);
        let withdraw = Withdraw { connection: &connection, part: PartId::Producer(part.id) };
        let success = match self.register(&connection, attempt).await {
            Ok(success) => success,
            Err(error) => {
                let info = self.options.schema.as_ref().map(|schema| &*schema.info);
                return Err(schema::explain(&self.shared, &part.topic, info, error).await);
            }
        };
        let others = self.register_again(&connection).await?;
        {
            let mut registration = part.registration.lock();
            registration.topic_epoch = success.topic_epoch.or(registration.topic_epoch);
        }
        {
            let host = connection.session().lock();
            let lost = !connection.is_alive() || !host.producers.contains_key(&part.id);
            if lost || !part.state.opened(&connection) {
                drop(host);
                let text = "the producer was closed while it was opened";
                return Err(Error::new(ErrorKind::Disconnected, text));
            }
            part.registration.lock().name = Some(success.producer_name.clone());
            let mut machine = part.machine();
            // Before anything can be pushed with it.
            let mut version = Bytes::new();
            if let Some(schema) = &self.options.schema {
                version = success.schema_version.clone().unwrap_or_default();
                schema.version.lock().clone_from(&version);
            }
            machine.set_schema_versions(version, others);
            machine.attach(
                &success.producer_name,
                success.last_sequence_id(),
                connection.info().max_message_size,
            );
        }
        std::mem::forget(withdraw);
        connection.session().wake();
        Ok(())
    }

    /// Keeps the send timeouts while no connection does.
    async fn while_detached(&self) -> Infallible {
        loop {
            let now = clock::now();
            let due = {
                let mut machine = self.part.machine();
                machine.handle_timeout(now);
                let due = machine.poll_timeout();
                self.part.deliver(machine);
                due
            };
            // A message pushed meanwhile may be due sooner than what was pending.
            let at = due.map_or(now + TICK, |at| at.clamp(now + Duration::from_millis(1), now + TICK));
            tokio::time::sleep_until(at.into()).await;
        }
    }

    fn note(&self, error: &Error) {
        self.part.machine().note_trouble(error.clone());
    }

    fn waits_for_its_turn(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    fn fail(&self, error: Error, first: bool) {
        // Nothing has been pushed to a partition that is not in use yet: it is tried again.
        if !(first && self.joins) {
            self.part.fail(error);
        }
    }
}
