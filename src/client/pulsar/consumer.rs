//! A consumer over the partitions of one or several topics.
//!
//! Each partition is a [`ConsumerPart`]: the sans-IO machine behind a short lock, and a supervisor that
//! subscribes again whenever its connection ends or the broker closes the consumer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use crate::client::options::ConsumerOptions;
use crate::client::pulsar::connection::Connection;
use crate::client::pulsar::producer::key_values;
use crate::client::pulsar::{Shared, is_terminal};
use crate::error::{Error, ErrorKind, Result};
use crate::machine::Machine as _;
use crate::net::backoff::Backoff;
use crate::pulsar::command::Command;
use crate::pulsar::consumer::{Consumer as Machine, Options as MachineOptions};
use crate::pulsar::frame::Payload;
use crate::pulsar::topic::TopicName;
use crate::pulsar::{Message, MessageId, hot, pb};
use crate::transmit::Transmit;

/// What a consumer tells its owner. Called on the engine's thread; must not block.
pub trait ConsumerEvents: Send + Sync {
    /// There are messages, once after [`Consumer::arm`].
    fn readable(&self);

    /// The consumer ended for good.
    fn closed(&self, error: Error);
}

impl std::fmt::Debug for dyn ConsumerEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConsumerEvents")
    }
}

/// Where [`Consumer::seek`] goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// Behind this message, or, with `inclusive`, to it.
    Id {
        /// Of the message.
        id: MessageId,
        /// Whether it is given again.
        inclusive: bool,
    },
    /// To the first message published at or after this time in milliseconds since 1970.
    Time(u64),
}

/// A handle that receives. Cheap to clone; all clones are the same consumer.
#[derive(Clone, Debug)]
pub struct Consumer(Arc<Inner>);

/// Does not keep the consumer alive.
#[derive(Clone, Debug)]
pub struct WeakConsumer(Weak<Inner>);

impl WeakConsumer {
    /// The consumer, unless it is gone.
    pub fn upgrade(&self) -> Option<Consumer> {
        self.0.upgrade().map(Consumer)
    }
}

#[derive(Debug)]
struct Inner {
    topic: String,
    subscription: String,
    parts: Vec<Arc<ConsumerPart>>,
    by_topic: HashMap<Arc<str>, usize>,
    /// The part that is served first next time, so that none starves.
    next: AtomicUsize,
    signal: Arc<Signal>,
    closed: AtomicBool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        for part in &self.parts {
            part.stop();
            if let Some(connection) = part.leave() {
                let id = part.id;
                connection
                    .session()
                    .lock()
                    .protocol()
                    .request(Instant::now(), |request| close_command(id, request));
                connection.session().wake();
            }
        }
    }
}

/// The one bell of all parts.
#[derive(Debug)]
struct Signal {
    armed: AtomicBool,
    ended: Mutex<Option<Error>>,
    events: Arc<dyn ConsumerEvents>,
}

impl Signal {
    fn ring(&self) {
        if self.armed.swap(false, Ordering::AcqRel) {
            self.events.readable();
        }
    }

    fn end(&self, error: Error) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
        self.events.closed(error);
        self.ring();
    }

    fn ended(&self) -> Option<Error> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Consumer {
    pub(super) async fn open(
        shared: Arc<Shared>,
        topics: Vec<TopicName>,
        subscription: String,
        options: ConsumerOptions,
        events: Arc<dyn ConsumerEvents>,
    ) -> Result<Self> {
        let title = topics.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let mut names: Vec<(String, i32)> = Vec::new();
        for topic in &topics {
            let name = topic.to_string();
            let count =
                if topic.partition().is_some() { 0 } else { shared.lookup.partitions(&name, true).await? };
            if count == 0 {
                names.push((name, topic.partition().map_or(-1, |p| p as i32)));
            }
            names.extend((0..count).map(|p| (topic.with_partition(p).to_string(), p as i32)));
        }
        let signal = Arc::new(Signal { armed: AtomicBool::new(false), ended: Mutex::new(None), events });
        let mut parts = Vec::with_capacity(names.len());
        let mut by_topic = HashMap::with_capacity(names.len());
        let mut opening = Vec::with_capacity(names.len());
        for (topic, partition) in names {
            let part = Arc::new(ConsumerPart::new(
                &shared,
                topic,
                partition,
                &subscription,
                &options,
                Arc::clone(&signal),
            ));
            let (ready, opened) = oneshot::channel();
            let task =
                tokio::spawn(supervise(Arc::clone(&shared), Arc::clone(&part), options.clone(), ready));
            *part.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task.abort_handle());
            by_topic.insert(Arc::clone(&part.topic), parts.len());
            parts.push(part);
            opening.push(opened);
        }
        let consumer = Self(Arc::new(Inner {
            topic: title,
            subscription,
            parts,
            by_topic,
            next: AtomicUsize::new(0),
            signal,
            closed: AtomicBool::new(false),
        }));
        for opened in opening {
            opened.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Closed, "the consumer was closed")))?;
        }
        Ok(consumer)
    }

    /// Moves up to `max` messages to `out` and gives their number; 0 when there are none now.
    pub fn take(&self, max: usize, out: &mut Vec<Message>) -> Result<usize> {
        self.check_open()?;
        let count = self.0.parts.len();
        let first = if count > 1 { self.0.next.fetch_add(1, Ordering::Relaxed) % count } else { 0 };
        let mut taken = 0;
        for i in 0..count {
            if taken >= max {
                break;
            }
            let part = &self.0.parts[(first + i) % count];
            taken += part.change(|machine| machine.take(max - taken, out));
        }
        if taken == 0
            && let Some(error) = self.0.signal.ended()
        {
            return Err(error);
        }
        Ok(taken)
    }

    /// Messages that [`Self::take`] would give now.
    pub fn available(&self) -> usize {
        self.0.parts.iter().map(|part| part.machine().available()).sum()
    }

    /// Asks for one [`ConsumerEvents::readable`]. Gives false, and asks for nothing, if there is
    /// something to take already (a message or the end).
    pub fn arm(&self) -> bool {
        self.0.signal.armed.store(true, Ordering::Release);
        // Looked at after arming: what came in between has either rung or is seen here.
        if self.available() > 0 || self.0.signal.ended().is_some() || self.0.closed.load(Ordering::Acquire) {
            return !self.0.signal.armed.swap(false, Ordering::AcqRel);
        }
        true
    }

    /// Acknowledges messages, each named by the topic it came from and its id. Gathered for the
    /// acknowledgement group time.
    pub fn ack(&self, messages: &[(Arc<str>, MessageId)]) -> Result<()> {
        self.each(messages, |machine, now, id| {
            machine.ack(now, id);
            Ok(())
        })
    }

    /// Acknowledges this message and all before it in its partition.
    pub fn ack_cumulative(&self, topic: &Arc<str>, id: MessageId) -> Result<()> {
        self.each(&[(Arc::clone(topic), id)], |machine, now, id| machine.ack_cumulative(now, id))
    }

    /// Acknowledges and waits until the broker says it has taken note.
    pub async fn ack_receipt(&self, messages: &[(Arc<str>, MessageId)], cumulative: bool) -> Result<()> {
        self.check_open()?;
        let mut by_part: HashMap<usize, Vec<MessageId>> = HashMap::new();
        for (topic, id) in messages {
            by_part.entry(self.part_index(topic, id)?).or_default().push(*id);
        }
        for (index, ids) in by_part {
            let part = &self.0.parts[index];
            let connection = part.connection().ok_or_else(|| {
                Error::new(ErrorKind::Disconnected, "not connected: the message will be given again")
            })?;
            // `None`: batches that are only partly acknowledged, which the broker is told of later.
            let Some(mut ack) = part.change(|machine| machine.receipt_ack(&ids, cumulative))? else {
                continue;
            };
            connection
                .request(|request_id| {
                    ack.request_id = Some(request_id);
                    Command::Ack(ack)
                })
                .await
                .map_err(|error| error.with_topic(Arc::clone(&part.topic)))?;
        }
        Ok(())
    }

    /// Gives messages back: they come again after `delay`, or the consumer's own when `None`.
    pub fn nack(&self, messages: &[(Arc<str>, MessageId)], delay: Option<Duration>) -> Result<()> {
        self.each(messages, |machine, now, id| {
            machine.nack(now, id, delay);
            Ok(())
        })
    }

    /// Asks for everything again that is not acknowledged.
    pub fn redeliver_unacknowledged(&self) -> Result<()> {
        self.check_open()?;
        let now = Instant::now();
        for part in &self.0.parts {
            part.change(|machine| machine.redeliver_unacknowledged(now));
        }
        Ok(())
    }

    /// Moves the subscription. Resolves when the consumer is subscribed again at the new place.
    pub async fn seek(&self, to: SeekTo) -> Result<()> {
        self.check_open()?;
        match to {
            SeekTo::Id { id, .. }
                if id != MessageId::EARLIEST && id != MessageId::LATEST && id.partition >= 0 =>
            {
                let part =
                    self.0.parts.iter().find(|part| part.partition == id.partition).ok_or_else(|| {
                        Error::new(ErrorKind::InvalidArgument, format!("no partition {} here", id.partition))
                    })?;
                part.seek(to).await
            }
            SeekTo::Id { id, .. }
                if id != MessageId::EARLIEST && id != MessageId::LATEST && self.0.parts.len() > 1 =>
            {
                Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "a message id without a partition cannot be sought on several partitions",
                ))
            }
            _ => {
                for part in &self.0.parts {
                    part.seek(to).await?;
                }
                Ok(())
            }
        }
    }

    /// Deletes the subscription and closes the consumer.
    pub async fn unsubscribe(&self) -> Result<()> {
        self.check_open()?;
        for part in &self.0.parts {
            let consumer_id = part.id;
            part.attached()
                .await?
                .request(|request_id| {
                    Command::Unsubscribe(pb::CommandUnsubscribe { consumer_id, request_id, force: None })
                })
                .await
                .map_err(|error| error.with_topic(Arc::clone(&part.topic)))?;
        }
        self.close().await
    }

    /// Sends what is gathered and closes the consumer at the broker. Messages taken but not acknowledged
    /// are given to others, or come again.
    pub async fn close(&self) -> Result<()> {
        if self.0.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        for part in &self.0.parts {
            part.stop();
            part.change(|machine| machine.flush_acks());
            if let Some(connection) = part.connection() {
                {
                    let mut host = connection.session().lock();
                    part.turn(Instant::now(), host.protocol().transmit());
                }
                let id = part.id;
                // The broker forgets the consumer with the connection anyway.
                let _ = connection.request(|request_id| close_command(id, request_id)).await;
            }
            part.leave();
        }
        self.0.signal.end(Error::new(ErrorKind::Closed, "the consumer is closed"));
        Ok(())
    }

    /// Id of the last message of each partition; -1:-1 when there is none.
    pub async fn last_message_ids(&self) -> Result<Vec<MessageId>> {
        self.check_open()?;
        let mut ids = Vec::with_capacity(self.0.parts.len());
        for part in &self.0.parts {
            let consumer_id = part.id;
            let answer = part
                .attached()
                .await?
                .request(|request_id| {
                    Command::GetLastMessageId(pb::CommandGetLastMessageId { consumer_id, request_id })
                })
                .await
                .map_err(|error| error.with_topic(Arc::clone(&part.topic)))?;
            let Command::GetLastMessageIdResponse(response) = answer else {
                return Err(Error::protocol(format!(
                    "GET_LAST_MESSAGE_ID was answered by {}",
                    answer.name()
                )));
            };
            ids.push(MessageId::from(&response.last_message_id).in_partition(part.partition));
        }
        Ok(ids)
    }

    /// The topics, as they were asked for, joined by commas.
    pub fn topic(&self) -> &str {
        &self.0.topic
    }

    /// The subscription.
    pub fn subscription(&self) -> &str {
        &self.0.subscription
    }

    /// Whether every partition of a Failover subscription is served by this consumer.
    pub fn is_active(&self) -> bool {
        self.0.parts.iter().all(|part| part.active.load(Ordering::Acquire))
    }

    pub(super) fn downgrade(&self) -> WeakConsumer {
        WeakConsumer(Arc::downgrade(&self.0))
    }

    fn each(
        &self,
        messages: &[(Arc<str>, MessageId)],
        mut act: impl FnMut(&mut Machine, Instant, &MessageId) -> Result<()>,
    ) -> Result<()> {
        self.check_open()?;
        let now = Instant::now();
        let mut rest = messages;
        // Neighbours mostly come from one partition: one lock for each run of them.
        while let Some((topic, id)) = rest.first() {
            let same = |(other, other_id): &&(Arc<str>, MessageId)| {
                other == topic && other_id.partition == id.partition
            };
            let run = rest.iter().take_while(same).count();
            let part = &self.0.parts[self.part_index(topic, id)?];
            part.change(|machine| rest[..run].iter().try_for_each(|(_, id)| act(machine, now, id)))
                .map_err(|error| error.with_topic(Arc::clone(topic)))?;
            rest = &rest[run..];
        }
        Ok(())
    }

    /// The part a message came from. An id alone, with an empty topic, is told by its partition.
    fn part_index(&self, topic: &Arc<str>, id: &MessageId) -> Result<usize> {
        let parts = &self.0.parts;
        if parts.len() == 1 && (topic.is_empty() || *topic == parts[0].topic) {
            return Ok(0);
        }
        let found = if topic.is_empty() {
            let mut of_partition = (0..parts.len()).filter(|index| parts[*index].partition == id.partition);
            of_partition.next().filter(|_| of_partition.next().is_none())
        } else {
            self.0.by_topic.get(topic).copied()
        };
        found.ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidArgument,
                format!("{id} of {topic:?} is not from a topic of this consumer; give the message instead of its id"),
            )
        })
    }

    fn check_open(&self) -> Result<()> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(
                Error::new(ErrorKind::Closed, "the consumer is closed").with_topic(self.0.topic.as_str())
            );
        }
        Ok(())
    }
}

/// One partition of a consumer.
#[derive(Debug)]
pub(super) struct ConsumerPart {
    id: u64,
    topic: Arc<str>,
    partition: i32,
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
    active: AtomicBool,
    signal: Arc<Signal>,
    task: Mutex<Option<AbortHandle>>,
    operation_timeout: Duration,
}

impl ConsumerPart {
    fn new(
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
            machine: Mutex::new(machine),
            connection: Mutex::new(None),
            lost: Notify::new(),
            attached: Notify::new(),
            seeking: AtomicBool::new(false),
            active: AtomicBool::new(true),
            signal,
            task: Mutex::new(None),
            operation_timeout: shared.options.operation_timeout,
        }
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connection(&self) -> Option<Arc<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the machine and rings the driver if that gave it something to do, or to do sooner.
    fn change<T>(&self, act: impl FnOnce(&mut Machine) -> T) -> T {
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
    async fn attached(&self) -> Result<Arc<Connection>> {
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

    pub(super) fn turn(&self, now: Instant, out: &mut Transmit) -> Option<Instant> {
        let mut machine = self.machine();
        machine.handle_timeout(now);
        machine.poll_transmit(now, out);
        machine.poll_timeout()
    }

    pub(super) fn handle_entry(&self, now: Instant, delivery: hot::Delivery, payload: Payload) {
        let mut machine = self.machine();
        // A broken entry has been put away with a validation error; there is nobody to tell but the broker.
        let _ = machine.handle_message(now, delivery, payload);
        let readable = machine.available() > 0;
        drop(machine);
        if readable {
            self.signal.ring();
        }
    }

    pub(super) fn set_active(&self, active: bool) {
        self.active.store(active, Ordering::Release);
    }

    /// The topic was terminated and everything acknowledged: no more will come.
    pub(super) fn reached_end(&self) {
        self.signal.ring();
    }

    pub(super) fn detach(&self) {
        self.machine().detach();
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.lost.notify_one();
    }

    fn leave(&self) -> Option<Arc<Connection>> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        connection.session().lock().consumers.remove(&self.id);
        self.machine().detach();
        Some(connection)
    }

    fn stop(&self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
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

    async fn seek(&self, to: SeekTo) -> Result<()> {
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

fn close_command(consumer_id: u64, request_id: u64) -> Command {
    Command::CloseConsumer(pb::CommandCloseConsumer { consumer_id, request_id, ..Default::default() })
}

/// Subscribes, and again each time that ends, until it is hopeless.
async fn supervise(
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
        *part.connection.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&connection));
    }
    std::mem::forget(guard);
    connection.session().wake();
    Ok(())
}

use pb::command_subscribe::InitialPosition as Position;

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
        let mut host = self.connection.session().lock();
        host.consumers.remove(&self.id);
        if self.connection.is_alive() {
            host.protocol().request(Instant::now(), |request_id| close_command(self.id, request_id));
        }
        drop(host);
        self.connection.session().wake();
    }
}
