//! One partition of a consumer: the subscription, and seek. `supervisor` subscribes it; `delivery`
//! has its machine.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinHandle};

use crate::events::Signal;
use crate::logger;
use crate::pulsar::connection::{Connection, ConsumerRoute, Loss, PartId};
use crate::pulsar::directions::Directions;
use crate::pulsar::options::ConsumerOptions;
use crate::pulsar::reconnect::{PartWatch, Seek, SeekRefused};
use crate::pulsar::shared::Shared;
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result, because};
use forebay_base::machine::Machine as _;
use forebay_base::sync::{Mutex, MutexGuard};
use forebay_base::transmit::Transmit;
use forebay_net::backoff::Backoff;
use forebay_pulsar::command::Command;
use forebay_pulsar::consumer::{
    ChunkLimits, Consumer as Machine, Counts, FIRST_PERMITS, Options as MachineOptions,
};
use forebay_pulsar::frame::Payload;
use forebay_pulsar::pb::command_subscribe::SubType;
use forebay_pulsar::{Message, MessageId, hot, pb};
use tracing::warn;

mod delivery;
mod reconnect;

pub use delivery::ActiveChange;
use delivery::Delivery;
pub(super) use delivery::{ActiveChanges, Ends, MachineEvents};
pub(super) use reconnect::Supervisor;

/// Time for which a seek waits for its answer when its subscription is gone: the broker ends it
/// around that answer.
const LATE_ANSWER: Duration = Duration::from_secs(5);
/// Time for which a seek that was answered waits for the broker to close the old subscription.
const SEEK_CLOSE: Duration = Duration::from_secs(1);

/// Target of [`Consumer::seek`](super::Consumer::seek).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// A message: the next one received is the one behind it, or, with `inclusive`, the message
    /// itself.
    Id {
        /// Topic of the message; empty if unknown.
        topic: Arc<str>,
        /// Id of the message.
        id: MessageId,
        /// Whether the message itself is received again.
        inclusive: bool,
    },
    /// The first message published at or after this time in milliseconds since 1970.
    Time(u64),
}

/// Figures that the partitions of one consumer share when one of them ends.
#[derive(Debug)]
pub(super) struct GroupState {
    /// Whether the consumer has several topics. The partitions of one topic belong together: the
    /// end of one is the end of the consumer.
    pub(super) several: bool,
    /// Whether it has those of a pattern: it goes on without any, and creates none.
    pub(super) endless: bool,
    /// Partitions that have not ended.
    pub(super) alive: AtomicUsize,
    /// Partitions of the client that ended while their consumer went on.
    pub(super) counted: Arc<AtomicU64>,
}

/// One partition of a consumer.
#[derive(Debug)]
pub(super) struct PartitionConsumer {
    pub(super) id: u64,
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    /// Whether subscribing creates the topic. Those that a pattern matches are not created: they
    /// may have been deleted.
    pub(super) creates_topic: bool,
    subscription: String,
    /// Name at the broker.
    name: String,
    delivery: Arc<Delivery>,
    state: PartWatch,
    directions: Directions,
    /// Held by the one seek that is under way.
    seeks: Semaphore,
    /// A seek has ended the subscription, or is about to.
    moved: AtomicBool,
    /// The connection of a seek since which it has not been subscribed again.
    sought_on: Mutex<Option<Weak<Connection>>>,
    /// Whether this consumer is the one served, on a Failover subscription.
    active: AtomicBool,
    /// Whether the broker tells that.
    tells_active: bool,
    signal: Arc<Signal>,
    /// Why it could not be subscribed again.
    trouble: Mutex<Option<Error>>,
    /// Why this partition has ended while the others go on.
    ended: OnceLock<Error>,
    others: Arc<GroupState>,
    task: Mutex<Option<AbortHandle>>,
    operation_timeout: Duration,
    /// The broker it was subscribed at last.
    served_by: Mutex<Option<String>>,
}

impl PartitionConsumer {
    #[allow(clippy::too_many_arguments, reason = "the parts of a consumer, put together by the only caller")]
    pub(super) fn new(
        shared: &Arc<Shared>,
        topic: String,
        partition: i32,
        creates_topic: bool,
        subscription: &str,
        options: &ConsumerOptions,
        signal: Arc<Signal>,
        others: Arc<GroupState>,
        partitions: usize,
        events: MachineEvents,
    ) -> Self {
        let id = shared.next_id();
        let topic: Arc<str> = topic.into();
        let machine = Machine::new(id, machine_options(&topic, partition, options, partitions));
        Self {
            id,
            topic: Arc::clone(&topic),
            partition,
            creates_topic,
            subscription: subscription.to_owned(),
            name: options.name.clone().unwrap_or_default(),
            delivery: Delivery::new(machine, (id, &topic), shared, options.schema.clone(), &signal, events),
            state: PartWatch::new(),
            directions: Directions::default(),
            seeks: Semaphore::new(1),
            moved: AtomicBool::new(false),
            sought_on: Mutex::default(),
            // A Failover subscription has others; the broker says who is served.
            active: AtomicBool::new(options.kind != SubType::Failover),
            tells_active: options.kind == SubType::Failover,
            signal,
            trouble: Mutex::default(),
            ended: OnceLock::new(),
            others,
            task: Mutex::default(),
            operation_timeout: shared.options.operation_timeout,
            served_by: Mutex::default(),
        }
    }

    /// Notes the supervisor's task, for [`Self::stop`].
    pub(super) fn start(&self, task: JoinHandle<()>) {
        *self.task.lock() = Some(task.abort_handle());
    }

    pub(super) fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    /// Whether the broker serves it now.
    pub(super) fn is_connected(&self) -> bool {
        self.state.is_connected()
    }

    pub(super) fn connection(&self) -> Option<Arc<Connection>> {
        self.state.connection()
    }

    pub(super) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.delivery.machine()
    }

    /// Changes the machine, and wakes the driver if that made something due, or due sooner.
    pub(super) fn change<T>(&self, act: impl FnOnce(&mut Machine) -> T) -> T {
        let (result, wake) = self.delivery.change(act);
        if wake {
            self.wake();
        }
        result
    }

    /// Moves up to `max` messages to `out` and returns their number. After that it is the turn of
    /// the others.
    pub(super) fn take(&self, max: usize, out: &mut impl Extend<Message>) -> usize {
        let (taken, wake) = self.delivery.take(max, out);
        if wake {
            self.wake();
        }
        taken
    }

    /// Removes its messages from those that are to be handed out next: it is no part of the
    /// consumer any more.
    pub(super) fn revoke_all(&self) {
        self.delivery.revoke_all();
    }

    /// Has the driver look what it has to do.
    fn wake(&self) {
        if let Some(connection) = self.connection() {
            connection.wake(PartId::Consumer(self.id));
        }
    }

    /// The connection, waiting at most the operation timeout until it is subscribed.
    pub(super) async fn attached(&self) -> Result<Arc<Connection>> {
        match tokio::time::timeout(self.operation_timeout, self.state.attached()).await {
            Ok(Some(connection)) => Ok(connection),
            Ok(None) => Err(self.ended()),
            Err(_) => Err(self.not_subscribed()),
        }
    }

    /// Ends it with an error that another attempt cannot mend, and with it the consumer, unless
    /// that has other topics. One that `joins` a consumer that runs, and has never been open, ends
    /// alone.
    fn fail(&self, error: Error, first: bool, joins: bool) {
        if first && joins {
            self.retire(error);
        } else if first || !self.others.several {
            self.end_consumer(error);
        } else {
            self.end_alone(error);
        }
    }

    /// Ends it, and the consumer only if no other is left.
    pub(super) fn end_alone(&self, error: Error) {
        let is_deleted = error.kind() == ErrorKind::TopicNotFound;
        match self.retire(error.clone()) {
            None => {}
            // Topics of a pattern come and go.
            Some(_) if self.others.endless && is_deleted => {}
            Some(0) if !self.others.endless => self.end_consumer(error),
            Some(_) => {
                self.others.counted.fetch_add(1, Ordering::Relaxed);
                warn!(
                    target: logger::PULSAR_CONSUMER,
                    "the consumer goes on without one of its topics: {error}; stats() of the client counts \
                     this as ended_topics",
                );
                // All others may be at the end of their topics.
                self.delivery.events.ends.changed.notify_waiters();
                self.signal.ring();
            }
        }
    }

    fn end_consumer(&self, error: Error) {
        self.signal.end(error);
        self.delivery.events.tell_waits();
    }

    /// Notes that it has ended while the consumer goes on. Returns the number of those that have
    /// not; `None` if it had before.
    pub(super) fn retire(&self, error: Error) -> Option<usize> {
        self.ended.set(error).ok()?;
        Some(self.others.alive.fetch_sub(1, Ordering::AcqRel).saturating_sub(1))
    }

    /// Whether it has ended because its topic is not there.
    pub(super) fn is_deleted(&self) -> bool {
        self.ended.get().is_some_and(|error| error.kind() == ErrorKind::TopicNotFound)
    }

    /// Its figures.
    pub(super) fn machine_counts(&self) -> Counts {
        self.machine().counts()
    }

    /// Whether it has ended while the consumer goes on.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.get().is_some()
    }

    /// Why it has ended.
    pub(super) fn ended(&self) -> Error {
        self.ended.get().cloned().or_else(|| self.signal.ended()).unwrap_or_else(|| {
            Error::new(ErrorKind::Closed, "the consumer was closed").with_topic(Arc::clone(&self.topic))
        })
    }

    fn not_subscribed(&self) -> Error {
        let text = format!("not subscribed again within {:?}", self.operation_timeout);
        let text = because(text, self.trouble.lock().as_ref());
        Error::new(ErrorKind::Timeout, text).with_topic(Arc::clone(&self.topic))
    }

    /// Moves the subscription; resolves when it is subscribed again at the new position.
    pub(super) async fn seek(&self, to: SeekTo) -> Result<()> {
        // Also between the attempts.
        let Ok(_turn) = self.seeks.try_acquire() else { return Err(self.seek_under_way()) };
        let until = clock::now() + self.operation_timeout;
        let to = match to {
            SeekTo::Id { topic, id: MessageId::LATEST, inclusive: true } => self.last(topic).await?,
            to => to,
        };
        let mut pauses = Backoff::new(Duration::from_secs(1));
        let (seek, answer) = loop {
            let begun = tokio::time::timeout_at(until.into(), self.state.begin_seek()).await;
            let seek = match begun.map_err(|_| self.not_subscribed())? {
                Ok(seek) => seek,
                Err(SeekRefused::UnderWay) => return Err(self.seek_under_way()),
                Err(SeekRefused::Closed) => return Err(self.ended()),
            };
            let answer = self.ask_seek(&seek, &to).await;
            let Err(error) = &answer else { break (seek, answer) };
            let asks_again = meets_another(error) || error.kind() == ErrorKind::Disconnected;
            if !asks_again || clock::now() >= until {
                break (seek, answer);
            }
            self.change(Machine::abort_seek);
            drop(seek);
            tokio::time::sleep(pauses.pause()).await;
        };
        self.settle_seek(to, answer)?;
        self.moved.store(true, Ordering::Release);
        *self.sought_on.lock() = Some(Arc::downgrade(&seek.connection));
        // The broker closes the consumer around its answer.
        if tokio::time::timeout(SEEK_CLOSE, seek.end()).await.is_err() {
            self.moved.store(false, Ordering::Release);
            *self.sought_on.lock() = None;
            self.change(Machine::stay);
        }
        self.attached().await.map(drop)
    }

    fn seek_under_way(&self) -> Error {
        Error::new(ErrorKind::NotAllowed, "another seek is under way").with_topic(Arc::clone(&self.topic))
    }

    async fn ask_seek(&self, seek: &Seek<'_>, to: &SeekTo) -> Result<Command> {
        let connection = &seek.connection;
        {
            // `open` publishes the state and attaches the machine under this lock.
            let mut host = connection.session().lock();
            self.delivery.update(Machine::begin_seek);
            // What was acknowledged before the seek must reach the broker before it.
            self.turn(clock::now(), host.protocol().transmit());
        }
        self.wake();
        let (message_id, message_publish_time) = match to {
            SeekTo::Id { id, .. } => (Some(whole_entry(*id)), None),
            SeekTo::Time(ms) => (None, Some(*ms)),
        };
        let too_late = async {
            seek.cut().await;
            tokio::time::sleep(LATE_ANSWER).await;
        };
        tokio::select! {
            biased;
            answer = send_seek(connection, self.id, message_id, message_publish_time) => answer,
            () = too_late => {
                let text = "the broker closed the consumer and did not answer the seek";
                Err(Error::new(ErrorKind::Disconnected, text))
            }
        }
    }

    /// The last message there is, as the target of a seek; the end of a topic that has none.
    async fn last(&self, topic: Arc<str>) -> Result<SeekTo> {
        let last = MessageId::from(&self.last_message_id().await?.last_message_id);
        Ok(if last.entry == u64::MAX {
            SeekTo::Id { topic, id: MessageId::LATEST, inclusive: false }
        } else {
            SeekTo::Id { topic, id: last.in_partition(self.partition), inclusive: true }
        })
    }

    /// Asks for the last message of the topic and the position of the subscription.
    pub(super) async fn last_message_id(&self) -> Result<Box<pb::CommandGetLastMessageIdResponse>> {
        self.ask(last_message_command(self.id)).await.and_then(last_message_answer)
    }

    /// Deletes the subscription.
    pub(super) async fn unsubscribe(&self, force: bool) -> Result<()> {
        let (consumer_id, force) = (self.id, force.then_some(true));
        let command =
            move |request_id| Command::Unsubscribe(pb::CommandUnsubscribe { consumer_id, request_id, force });
        self.ask(command).await.map(drop)
    }

    /// Asks the broker about the consumer, once it is subscribed. What is lost with the
    /// subscription is asked again when there is a new one, until the operation timeout.
    async fn ask(&self, command: impl Fn(u64) -> Command) -> Result<Command> {
        let mut pauses = Backoff::new(Duration::from_secs(1));
        let asking = async {
            loop {
                let connection = self.attached().await?;
                match connection.request_of(PartId::Consumer(self.id), &command).await {
                    Err(error) if error.kind() == ErrorKind::Disconnected => {
                        tokio::time::sleep(pauses.pause()).await;
                    }
                    answer => return answer,
                }
            }
        };
        tokio::time::timeout(self.operation_timeout, asking).await.unwrap_or_else(|_| {
            let text = format!("no answer within {:?}", self.operation_timeout);
            Err(Error::new(ErrorKind::Timeout, because(text, self.trouble.lock().as_ref())))
        })
    }

    fn settle_seek(&self, to: SeekTo, answer: Result<Command>) -> Result<()> {
        if let Err(error) = answer {
            self.change(Machine::abort_seek);
            return Err(error.with_topic(Arc::clone(&self.topic)));
        }
        match to {
            SeekTo::Id { id, inclusive, .. } => self.machine().end_seek(Some(id), inclusive),
            SeekTo::Time(ms) => self.machine().end_seek_to_time(ms),
        }
        self.wake();
        // A seek past an entry that could not be read goes on where that had ended the consumer.
        self.signal.resume(self.id);
        Ok(())
    }

    /// Stops the supervisor.
    pub(super) fn stop(&self) {
        let task = self.task.lock().take();
        if let Some(task) = task {
            task.abort();
        }
    }

    /// Sends the gathered acknowledgements, closes it at the broker and waits for the answer.
    pub(super) async fn close(&self) {
        self.change(|machine| machine.flush_acks());
        if let Some(connection) = self.connection() {
            {
                let mut host = connection.session().lock();
                self.turn(clock::now(), host.protocol().transmit());
            }
            connection.close_part(PartId::Consumer(self.id)).await;
        }
        self.leave();
    }

    /// Closes it at the broker without waiting for the answer: the handle was dropped.
    pub(super) fn close_quietly(&self) {
        if let Some(connection) = self.leave() {
            connection.close_part_quietly(PartId::Consumer(self.id));
        }
    }

    /// Takes it out of its connection's routes for good.
    fn leave(&self) -> Option<Arc<Connection>> {
        let connection = self.state.close()?;
        connection.remove_route(PartId::Consumer(self.id));
        self.delivery.update(Machine::detach);
        Some(connection)
    }
}

impl ConsumerRoute for PartitionConsumer {
    fn directions(&self) -> &Directions {
        &self.directions
    }

    fn topic(&self) -> &str {
        &self.topic
    }

    fn turn(&self, now: Instant, out: &mut Transmit) -> Option<Instant> {
        self.delivery.turn(now, out)
    }

    fn handle_entry(&self, now: Instant, delivery: hot::Delivery, payload: Payload) -> Result<()> {
        let handled = self.delivery.handle_entry(now, delivery, payload);
        handled.map_err(|error| error.with_topic(Arc::clone(&self.topic)))
    }

    fn set_active(&self, active: bool) {
        if self.tells_active && self.active.swap(active, Ordering::AcqRel) != active {
            self.delivery.events.active.note(&self.topic, active);
        }
    }

    fn reached_end(&self) {
        self.delivery.reached_end();
    }

    fn detach(&self, loss: Loss) {
        if self.state.concerns(loss) {
            match loss {
                Loss::ClosedByBroker => self.delivery.update(Machine::closed_by_broker),
                Loss::ConnectionEnded => self.delivery.update(Machine::detach),
            }
            // Another one is served meanwhile, if there is one.
            self.set_active(false);
            self.state.lose();
        }
    }
}

/// Whether a seek was refused because another consumer of the subscription seeks: the broker has
/// closed this one, or is about to.
fn meets_another(error: &Error) -> bool {
    let says = |part| error.peer_text().is_some_and(|text| text.contains(part));
    match error.kind() {
        ErrorKind::Metadata => says("Consumer not found"),
        ErrorKind::Unknown => says("fence"),
        _ => false,
    }
}

/// Sends SEEK to a message or to a time, and waits for its answer.
async fn send_seek(
    connection: &Connection,
    consumer_id: u64,
    message_id: Option<pb::MessageIdData>,
    message_publish_time: Option<u64>,
) -> Result<Command> {
    let seek = |request_id| {
        Command::Seek(Box::new(pb::CommandSeek { consumer_id, request_id, message_id, message_publish_time }))
    };
    connection.request(seek).await
}

/// Asks for the last message of the topic and the position of the consumer's subscription.
pub(super) async fn last_message_id(
    connection: &Connection,
    consumer_id: u64,
) -> Result<Box<pb::CommandGetLastMessageIdResponse>> {
    let asked = connection.request_of(PartId::Consumer(consumer_id), last_message_command(consumer_id));
    asked.await.and_then(last_message_answer)
}

fn last_message_command(consumer_id: u64) -> impl Fn(u64) -> Command {
    move |request_id| Command::GetLastMessageId(pb::CommandGetLastMessageId { consumer_id, request_id })
}

fn last_message_answer(answer: Command) -> Result<Box<pb::CommandGetLastMessageIdResponse>> {
    match answer {
        Command::GetLastMessageIdResponse(response) => Ok(response),
        answer => Err(Error::protocol(format!("GET_LAST_MESSAGE_ID was answered by {}", answer.name()))),
    }
}

/// Whether `id` is that of a message.
pub(super) fn is_exact(id: MessageId) -> bool {
    id != MessageId::EARLIEST && id != MessageId::LATEST
}

/// Options of the machine of a partition, one of `partitions`, which share the room for messages.
fn machine_options(
    topic: &Arc<str>,
    partition: i32,
    options: &ConsumerOptions,
    partitions: usize,
) -> MachineOptions {
    let exact = is_exact(options.position);
    MachineOptions {
        kind: options.kind,
        durable: options.durable,
        receiver_queue: options.receiver_queue,
        receive_buffer: options.receive_buffer / partitions,
        // A non-persistent topic drops what it has no permits for.
        first_permits: match topic.starts_with("non-persistent:") {
            true => u32::MAX,
            false => (FIRST_PERMITS / partitions as u32).max(1),
        },
        batch_index_ack: options.batch_index_ack,
        ack_group_time: options.ack_group_time,
        chunked: ChunkLimits {
            bytes: options.max_chunked_message,
            messages: options.max_pending_chunked_messages,
            timeout: options.chunked_message_timeout,
            ack: options.ack_incomplete_chunks,
        },
        unreadable: options.unreadable,
        nack_delay: options.nack_delay,
        ack_timeout: options.ack_timeout,
        max_redeliveries: options.dead_letter.as_ref().map(|policy| policy.max_redeliveries),
        start: exact.then_some(options.position),
        start_inclusive: options.start_inclusive,
        topic: Arc::clone(topic),
        partition,
        codec: options
            .schema
            .as_ref()
            .filter(|schema| schema.codec.reads())
            .map(|schema| Arc::clone(&schema.codec)),
        ..MachineOptions::default()
    }
}

/// Id of the entry of `id`: brokers start at whole entries, and the machine filters inside.
fn whole_entry(id: MessageId) -> pb::MessageIdData {
    MessageId { batch_index: -1, batch_size: 0, partition: -1, ..id }.into()
}
