//! One partition of a consumer, and the supervisor that subscribes it again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use super::{SeekTo, Signal};
use crate::client::pulsar::connection::Connection;
use crate::client::pulsar::options::ConsumerOptions;
use crate::client::pulsar::producer::key_values;
use crate::client::pulsar::{Shared, is_terminal};
use crate::error::{Error, ErrorKind, Result};
use crate::machine::Machine as _;
use crate::net::backoff::Backoff;
use crate::pulsar::command::Command;
use crate::pulsar::consumer::{Consumer as Machine, Options as MachineOptions};
use crate::pulsar::frame::Payload;
use crate::pulsar::pb::command_subscribe::InitialPosition as Position;
use crate::pulsar::{MessageId, hot, pb};
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::transmit::Transmit;

/// One partition of a consumer.
#[derive(Debug)]
pub(in crate::client::pulsar) struct ConsumerPart {
    pub(super) id: u64,
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    subscription: String,
    name: String,
    machine: Mutex<Machine>,
    connection: Mutex<Option<Arc<Connection>>>,
    /// Rung when the connection is lost or the broker closes the consumer.
    lost: Notify,
    /// Rung when it is subscribed.
    attached: Notify,
    /// Set while a seek waits for its answer: subscribing again must wait for the new filter.
    seeking: AtomicBool,
    pub(super) active: AtomicBool,
    signal: Arc<Signal>,
    pub(super) task: Mutex<Option<AbortHandle>>,
    operation_timeout: Duration,
}

impl ConsumerPart {
    pub(super) fn new(
        shared: &Shared,
        topic: String,
        partition: i32,
        subscription: &str,
        options: &ConsumerOptions,
        signal: Arc<Signal>,
    ) -> Self {
        let id = shared.next_id();
        let topic: Arc<str> = topic.into();
        let exact = options.position != MessageId::EARLIEST && options.position != MessageId::LATEST;
        let machine = Machine::new(
            id,
            MachineOptions {
                kind: options.kind,
                durable: options.durable,
                receiver_queue: options.receiver_queue,
                batch_index_ack: options.batch_index_ack,
                ack_group_time: options.ack_group_time,
                nack_delay: options.nack_delay,
                start: exact.then_some(options.position),
                start_inclusive: options.start_inclusive,
                topic: Arc::clone(&topic),
                partition,
                ..MachineOptions::default()
            },
        );
        let name = options.name.clone().unwrap_or_else(|| format!("penstock-{}-{id}", std::process::id()));
        Self {
            id,
            topic,
            partition,
            subscription: subscription.to_owned(),
            name,
            machine: Mutex::new(Rank::Machine, machine),
            connection: Mutex::default(),
            lost: Notify::new(),
            attached: Notify::new(),
            seeking: AtomicBool::new(false),
            active: AtomicBool::new(true),
            signal,
            task: Mutex::default(),
            operation_timeout: shared.options.operation_timeout,
        }
    }

    pub(super) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock()
    }

    pub(super) fn connection(&self) -> Option<Arc<Connection>> {
        self.connection.lock().clone()
    }

    /// Changes the machine and rings the driver if that gave it something to do, or to do sooner.
    pub(super) fn change<T>(&self, act: impl FnOnce(&mut Machine) -> T) -> T {
        let mut machine = self.machine();
        let due = machine.poll_timeout();
        let result = act(&mut machine);
        let ring = machine.wants_transmit() || machine.poll_timeout() != due;
        drop(machine);
        if ring && let Some(connection) = self.connection() {
            connection.session().wake();
        }
        result
    }

    /// The connection, once it is subscribed, at most the operation timeout from now.
    pub(super) async fn attached(&self) -> Result<Arc<Connection>> {
        let wait = async {
            loop {
                let attached = self.attached.notified();
                tokio::pin!(attached);
                attached.as_mut().enable();
                if let Some(connection) = self.connection() {
                    return connection;
                }
                attached.await;
            }
        };
        tokio::time::timeout(self.operation_timeout, wait).await.map_err(|_| {
            Error::new(
                ErrorKind::Timeout,
                format!("not subscribed again within {:?}", self.operation_timeout),
            )
            .with_topic(Arc::clone(&self.topic))
        })
    }

    pub(in crate::client::pulsar) fn turn(&self, now: Instant, out: &mut Transmit) -> Option<Instant> {
        let mut machine = self.machine();
        machine.handle_timeout(now);
        machine.poll_transmit(now, out);
        machine.poll_timeout()
    }

    pub(in crate::client::pulsar) fn handle_entry(
        &self,
        now: Instant,
        delivery: hot::Delivery,
        payload: Payload,
    ) {
        let mut machine = self.machine();
        // A broken entry has been put away with a validation error; there is nobody to tell but the broker.
        let _ = machine.handle_message(now, delivery, payload);
        let readable = machine.available() > 0;
        drop(machine);
        if readable {
            self.signal.ring();
        }
    }

    pub(in crate::client::pulsar) fn set_active(&self, active: bool) {
        self.active.store(active, Ordering::Release);
    }

    /// The topic was terminated and everything acknowledged: no more will come.
    pub(in crate::client::pulsar) fn reached_end(&self) {
        self.signal.ring();
    }

    pub(in crate::client::pulsar) fn detach(&self) {
        self.machine().detach();
        *self.connection.lock() = None;
        self.lost.notify_one();
    }

    pub(super) fn leave(&self) -> Option<Arc<Connection>> {
        let connection = self.connection.lock().take()?;
        connection.session().lock().consumers.remove(&self.id);
        self.machine().detach();
        Some(connection)
    }

    /// For a handle that is dropped without `close`: nobody waits for the answer.
    pub(super) fn tell_broker_of_close(&self) {
        if let Some(connection) = self.leave() {
            close_quietly(&connection, self.id);
        }
    }

    pub(super) fn stop(&self) {
        let task = self.task.lock().take();
        if let Some(task) = task {
            task.abort();
        }
    }

    fn settle_seek(&self, to: SeekTo, answer: Result<Command>) -> Result<()> {
        let mut machine = self.machine();
        match (answer, to) {
            (Ok(_), SeekTo::Id { id, inclusive }) => machine.end_seek(Some(id), inclusive),
            (Ok(_), SeekTo::Time(_)) => machine.end_seek(None, true),
            (Err(error), _) => {
                machine.abort_seek();
                return Err(error.with_topic(Arc::clone(&self.topic)));
            }
        }
        Ok(())
    }

    pub(super) async fn seek(&self, to: SeekTo) -> Result<()> {
        if self.seeking.swap(true, Ordering::AcqRel) {
            return Err(Error::new(ErrorKind::NotAllowed, "another seek is under way")
                .with_topic(Arc::clone(&self.topic)));
        }
        let over = SeekOver(self);
        let connection = self.attached().await?;
        self.machine().begin_seek();
        // What was acknowledged before the seek must reach the broker before it.
        {
            let mut host = connection.session().lock();
            self.machine().flush_acks();
            self.turn(Instant::now(), host.protocol().transmit());
        }
        let consumer_id = self.id;
        let answer = connection
            .request(|request_id| {
                let (message_id, time) = match to {
                    SeekTo::Id { id, .. } => {
                        let whole = MessageId { batch_index: -1, batch_size: 0, partition: -1, ..id };
                        (Some(whole.into()), None)
                    }
                    SeekTo::Time(ms) => (None, Some(ms)),
                };
                Command::Seek(Box::new(pb::CommandSeek {
                    consumer_id,
                    request_id,
                    message_id,
                    message_publish_time: time,
                }))
            })
            .await;
        self.settle_seek(to, answer)?;
        drop(over);
        // The broker closes the consumer around its answer; wait for the new subscription.
        let lost = tokio::time::timeout(Duration::from_secs(1), async {
            while self
                .connection()
                .is_some_and(|current| Arc::ptr_eq(&current, &connection) && self.machine().is_attached())
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let _ = lost.await;
        self.attached().await.map(drop)
    }
}

/// Lets the supervisor go on when a seek ends, however it ends.
struct SeekOver<'a>(&'a ConsumerPart);

impl Drop for SeekOver<'_> {
    fn drop(&mut self) {
        self.0.seeking.store(false, Ordering::Release);
    }
}

pub(super) fn close_command(consumer_id: u64, request_id: u64) -> Command {
    Command::CloseConsumer(pb::CommandCloseConsumer { consumer_id, request_id, ..Default::default() })
}

/// Asks the broker to forget the consumer without waiting for the answer.
fn close_quietly(connection: &Connection, consumer_id: u64) {
    let ask = |request_id| close_command(consumer_id, request_id);
    connection.session().lock().protocol().request(Instant::now(), ask);
    connection.session().wake();
}

/// Subscribes, and again each time that ends, until it is hopeless.
pub(super) async fn supervise(
    shared: Arc<Shared>,
    part: Arc<ConsumerPart>,
    options: ConsumerOptions,
    ready: oneshot::Sender<Result<()>>,
) {
    let mut ready = Some(ready);
    let mut backoff = Backoff::new(shared.options.max_backoff);
    let first_deadline = Instant::now() + shared.options.operation_timeout;
    loop {
        while part.seeking.load(Ordering::Acquire) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        match open(&shared, &part, &options).await {
            Ok(()) => {
                backoff.reset();
                part.attached.notify_waiters();
                if let Some(ready) = ready.take() {
                    let _ = ready.send(Ok(()));
                }
                part.lost.notified().await;
            }
            Err(error) => {
                let hopeless = is_terminal(&error, ready.is_some())
                    || (ready.is_some() && Instant::now() >= first_deadline);
                if hopeless {
                    let error = error.with_topic(Arc::clone(&part.topic));
                    if let Some(ready) = ready.take() {
                        let _ = ready.send(Err(error.clone()));
                    }
                    part.signal.end(error);
                    return;
                }
            }
        }
        tokio::time::sleep(backoff.pause()).await;
    }
}

async fn open(shared: &Arc<Shared>, part: &Arc<ConsumerPart>, options: &ConsumerOptions) -> Result<()> {
    let connection = shared.lookup.broker(&part.topic, part.id).await?;
    connection.session().lock().consumers.insert(part.id, Arc::clone(part));
    let guard = Withdraw { connection: &connection, id: part.id };
    // A reader's cursor dies with its connection: it goes on behind what was taken last. A durable
    // subscription's position is the broker's.
    let resume = part.machine().resume_position();
    let start = match resume {
        Some(id) => Some(id),
        None if options.durable => None,
        None => Some(options.position),
    };
    let earliest = options.position == MessageId::EARLIEST;
    connection
        .request(|request_id| {
            Command::Subscribe(Box::new(pb::CommandSubscribe {
                topic: part.topic.to_string(),
                subscription: part.subscription.clone(),
                sub_type: options.kind as i32,
                consumer_id: part.id,
                request_id,
                consumer_name: Some(part.name.clone()),
                priority_level: (options.priority != 0).then_some(options.priority),
                durable: Some(options.durable),
                start_message_id: if options.durable { None } else { start.map(start_id) },
                metadata: key_values(&options.properties),
                read_compacted: options.read_compacted.then_some(true),
                initial_position: Some(if earliest { Position::Earliest } else { Position::Latest } as i32),
                subscription_properties: key_values(&options.subscription_properties),
                ..Default::default()
            }))
        })
        .await?;
    {
        let host = connection.session().lock();
        if !connection.is_alive() || !host.consumers.contains_key(&part.id) {
            return Err(Error::new(ErrorKind::Disconnected, "the consumer was closed while it subscribed"));
        }
        part.machine().attach(Instant::now());
        *part.connection.lock() = Some(Arc::clone(&connection));
    }
    std::mem::forget(guard);
    connection.session().wake();
    Ok(())
}

/// The entry to start at. The broker starts at whole entries; the machine filters inside.
fn start_id(id: MessageId) -> pb::MessageIdData {
    pb::MessageIdData::from(MessageId { batch_index: -1, batch_size: 0, partition: -1, ..id })
}

/// Undoes a subscription that failed or was given up.
struct Withdraw<'a> {
    connection: &'a Arc<Connection>,
    id: u64,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        self.connection.session().lock().consumers.remove(&self.id);
        if self.connection.is_alive() {
            close_quietly(self.connection, self.id);
        }
    }
}
