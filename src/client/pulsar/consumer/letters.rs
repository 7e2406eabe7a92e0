//! Dead letters and retried messages: copies that are sent to another topic, whose receipt
//! acknowledges the original.
//!
//! ```text
//! machine ── take_dead ──► DeadLetterSender ── send ──► producer, opened by the first letter
//!    ▲                                                         │ receipt or error
//!    └───────────────────────── settle_dead ◄──────────────────┘
//! ```
//! A receipt that is lost with its connection is followed by another copy: at least once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{Notify, Semaphore, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::members::Members;
use super::partition::PartitionConsumer;
use super::topics::Topics as Consumed;
use crate::events::{ProducerEvents, SendOutcome};
use crate::logger;
use crate::pulsar::counters::{LetterCounters, LetterCounts};
use crate::pulsar::options::{ConsumerOptions, DeadLetterPolicy, ProducerOptions};
use crate::pulsar::producer::Producer;
use crate::pulsar::shared::Shared;
use crate::together::together;
use crate::until;
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::random::{self, HashMap};
use forebay_base::sync::{Mutex, Rank};
use forebay_net::backoff::Backoff;
use forebay_pulsar::consumer::{Counts, DeadLetter};
use forebay_pulsar::pb::command_subscribe::SubType;
use forebay_pulsar::topic::TopicName;
use forebay_pulsar::{Message, MessageId, Outgoing};
use tracing::warn;

/// Letters without a receipt at a time, for each topic.
const WINDOW: usize = 1000;
/// Longest wait for room, if sends have no limit.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Names of the properties, as the Java client writes them.
const REAL_TOPIC: &str = "REAL_TOPIC";
const REAL_SUBSCRIPTION: &str = "REAL_SUBSCRIPTION";
const ORIGIN_MESSAGE_ID: &str = "ORIGIN_MESSAGE_ID";
const ORIGIN_MESSAGE_ID_OF_OLD: &str = "ORIGIN_MESSAGE_IDY_TIME";
const RECONSUMETIMES: &str = "RECONSUMETIMES";
const DELAY_TIME: &str = "DELAY_TIME";

/// A property of a letter.
type Property = (String, String);

/// Checks a policy against the other options, and names its topics: the one of dead letters, if it
/// is the same for all topics, and the one of retried messages, if there is one.
pub(super) fn check(
    consumed: &Consumed,
    subscription: &str,
    options: &ConsumerOptions,
) -> Result<Option<Topics>> {
    let Some(policy) = &options.dead_letter else { return Ok(None) };
    let topics = match consumed {
        Consumed::Named(topics) => &topics[..],
        Consumed::Matching(_) => &[],
    };
    let refused = |text: String| Err(Error::new(ErrorKind::InvalidArgument, text));
    if policy.max_redeliveries == 0 {
        return refused("max_redeliveries of the dead letter policy is 0: use 1 or more".into());
    }
    let counted = matches!(options.kind, SubType::Shared | SubType::KeyShared);
    if !counted && !policy.retry {
        return refused(
            "a dead letter policy needs a shared or key_shared subscription, because brokers count redeliveries on those \
             only: set type, or use reconsume_later() with retry=True, which works with all types"
                .into(),
        );
    }
    if !options.durable {
        return refused(
            "a dead letter policy needs a durable subscription: leave durable and reader() out".into(),
        );
    }
    if policy.retry_topic.is_some() && !policy.retry {
        return refused("the dead letter policy has a retry_topic and retry=False: set retry=True".into());
    }
    // As the Java client: with retries the topics are named after the first in the order of the
    // names, and otherwise each has its own.
    let mut names: Vec<String> = topics.iter().map(ToString::to_string).collect();
    names.sort();
    let default = |topic: &String, suffix: &str| {
        TopicName::parse(&format!("{topic}-{subscription}-{suffix}")).map_err(|error| {
            let text = format!(
                "the dead letter policy cannot name its topic after {topic} and {subscription:?}: {error}"
            );
            Error::new(ErrorKind::InvalidArgument, text)
        })
    };
    let named = |given: &Option<String>, suffix: &str| match (given, names.first()) {
        (Some(given), _) => TopicName::parse(given),
        (None, Some(first)) => default(first, suffix),
        (None, None) => Err(Error::new(
            ErrorKind::InvalidArgument,
            "a dead letter policy with retry=True cannot name its topics after a pattern: set topic and retry_topic",
        )),
    };
    if policy.topic.is_none() {
        names.iter().try_for_each(|topic| default(topic, "DLQ").map(drop))?;
    }
    let dead = if policy.topic.is_some() || policy.retry { Some(named(&policy.topic, "DLQ")?) } else { None };
    let retry = if policy.retry { Some(named(&policy.retry_topic, "RETRY")?) } else { None };
    let consumed =
        |name: &TopicName| topics.iter().any(|topic| topic.without_partition() == name.without_partition());
    if let Some(name) = dead.iter().chain(&retry).find(|name| consumed(name)) {
        return refused(format!(
            "the dead letter policy sends to {name}, which the consumer reads itself: choose another topic"
        ));
    }
    if dead.is_some() && dead == retry {
        return refused(
            "topic and retry_topic of the dead letter policy are the same: choose two topics".into(),
        );
    }
    Ok(Some(Topics { dead, retry }))
}

/// Tells the topics that a consumer sends to itself, which a pattern of it leaves out: it would get
/// its letters again and again.
pub(super) fn sent_to(
    topics: Option<&Topics>,
    subscription: &str,
) -> impl Fn(&TopicName) -> bool + Send + Sync + 'static {
    let topics = topics.cloned();
    let ending = format!("-{subscription}-DLQ");
    move |topic| {
        topics.as_ref().is_some_and(|Topics { dead, retry }| match dead {
            None => topic.to_string().ends_with(&ending),
            Some(dead) => *topic == dead.without_partition() || Some(topic) == retry.as_ref(),
        })
    }
}

/// Topics of a policy.
#[derive(Clone, Debug)]
pub(super) struct Topics {
    /// Topic of dead letters; `None` if each topic has its own.
    dead: Option<TopicName>,
    pub(super) retry: Option<TopicName>,
}

/// Sends letters.
#[derive(Debug)]
pub(super) struct Letters {
    shared: Arc<Shared>,
    policy: DeadLetterPolicy,
    topics: Topics,
    subscription: String,
    consumer: String,
    /// Whether the consumer reads by a schema: letters then state the version of theirs.
    reads: bool,
    /// By topic. Not held while a producer is opened.
    lines: Mutex<Lines>,
    /// Letters on their way, and a notification when there is none.
    under_way: AtomicUsize,
    idle: Notify,
    warned: AtomicBool,
    warned_of_schema: AtomicBool,
    /// Messages that were sent to the topic of retries, and to that of dead letters instead.
    counters: LetterCounters,
}

#[derive(Debug, Default)]
struct Lines {
    by_topic: HashMap<String, Line>,
    closed: bool,
}

/// The producer of a topic, or the attempt to open it.
#[derive(Debug)]
struct Line {
    opened: watch::Receiver<Option<Opened>>,
    /// Held by the one letter that waits for `opened`: the channel would wake several waiters in
    /// arbitrary order.
    turn: Arc<Semaphore>,
    task: AbortHandle,
    pauses: Backoff,
}

#[derive(Clone, Debug)]
enum Opened {
    Open(Sender),
    /// The error counts for all letters until the next attempt.
    Failed(Error, Instant),
}

/// A producer and the receivers of its outcomes.
#[derive(Clone, Debug)]
struct Sender {
    producer: Producer,
    receipts: Arc<Receipts>,
    window: Arc<Semaphore>,
}

/// A letter on its way.
#[derive(Debug)]
pub(super) struct UnderWay(Arc<Letters>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

impl Letters {
    pub(super) fn new(
        shared: &Arc<Shared>,
        topics: Topics,
        policy: &DeadLetterPolicy,
        subscription: &str,
        options: &ConsumerOptions,
    ) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            policy: policy.clone(),
            topics,
            subscription: subscription.to_owned(),
            consumer: options.name.clone().unwrap_or_default(),
            reads: options.schema.as_ref().is_some_and(|schema| schema.codec.reads()),
            lines: Mutex::default(),
            under_way: AtomicUsize::new(0),
            idle: Notify::new(),
            warned: AtomicBool::new(false),
            warned_of_schema: AtomicBool::new(false),
            counters: LetterCounters::default(),
        })
    }

    /// Counts a letter, for which [`Self::settle`] waits until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        UnderWay(Arc::clone(self))
    }

    /// Resolves when no letter is on its way.
    pub(super) async fn settle(&self) {
        until(&self.idle, || (self.under_way.load(Ordering::Acquire) == 0).then_some(())).await;
    }

    /// Whether there is a topic of retries.
    pub(super) fn retries(&self) -> bool {
        self.topics.retry.is_some()
    }

    /// Messages that were retried, or not any more.
    pub(super) fn counts(&self) -> Counts {
        let LetterCounts { dead, failed, retried } = self.counters.counts();
        Counts { retried, dead_letters: dead, dead_letters_failed: failed, ..Counts::default() }
    }

    /// Sends a message to the dead letter topic.
    async fn send_to_dead_letter(&self, letter: &DeadLetter) -> Result<()> {
        let message = &letter.message;
        let properties = self.properties(message, message.entry.topic());
        self.send_dead(message, &properties).await
    }

    async fn send_dead(&self, message: &Message, properties: &[Property]) -> Result<()> {
        let to = match &self.topics.dead {
            Some(topic) => topic.to_string(),
            None => format!("{}-{}-DLQ", message.entry.topic(), self.subscription),
        };
        // Several consumers of a subscription may send to it, each under a name of its own.
        let (from, random) = (message.entry.topic(), random::bits() >> 40);
        let name = format!("{from}-{}-{}-{random:06x}-DLQ", self.subscription, self.consumer);
        let options = ProducerOptions {
            name: Some(name),
            initial_subscription: self.policy.subscription.clone(),
            ..letter_options()
        };
        self.send(to, options, message, properties, None).await
    }

    /// Sends a message to the topic of retries, to be delivered after `delay`; or to that of dead
    /// letters, if it has been there as often as the policy allows.
    pub(super) async fn retry(&self, message: &Message, delay: Duration, more: &[Property]) -> Result<()> {
        let Some(to) = &self.topics.retry else { return Err(not_enabled()) };
        let origin = TopicName::parse(message.entry.topic())?.without_partition();
        let mut properties = self.properties(message, &origin.to_string());
        more.iter().for_each(|(name, value)| set(&mut properties, name, value.clone()));
        let times = properties.iter().find(|(name, _)| name == RECONSUMETIMES);
        let times = times.and_then(|(_, value)| value.parse::<u32>().ok()).unwrap_or(0).saturating_add(1);
        set(&mut properties, RECONSUMETIMES, times.to_string());
        set(&mut properties, DELAY_TIME, delay.as_millis().to_string());
        if times > self.policy.max_redeliveries {
            let sent = self.send_dead(message, &properties).await;
            for counters in [&self.counters, &self.shared.letters] {
                counters.dead(sent.is_ok());
            }
            return sent;
        }
        let at = (!delay.is_zero()).then(|| clock::wall_ms().saturating_add(delay.as_millis() as u64) as i64);
        self.send(to.to_string(), letter_options(), message, &properties, at).await?;
        for counters in [&self.counters, &self.shared.letters] {
            counters.retried();
        }
        Ok(())
    }

    /// Properties of a message, and those that say where it is from; the first letter of a message
    /// has set them for good.
    fn properties(&self, message: &Message, topic: &str) -> Vec<Property> {
        let mut all: Vec<Property> =
            message.properties().iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let last = java_text(&message.id);
        let id = message.first_chunk().map_or(last.clone(), |first| format!("{};{last}", java_text(&first)));
        for (name, value) in [
            (REAL_TOPIC, topic),
            (REAL_SUBSCRIPTION, &*self.subscription),
            (ORIGIN_MESSAGE_ID, &*id),
            (ORIGIN_MESSAGE_ID_OF_OLD, &*id),
        ] {
            if all.iter().all(|(known, _)| known != name) {
                all.push((name.to_owned(), value.to_owned()));
            }
        }
        all
    }

    async fn send(
        &self,
        topic: String,
        options: ProducerOptions,
        message: &Message,
        properties: &[Property],
        deliver_at: Option<i64>,
    ) -> Result<()> {
        let sender = self.sender(&topic, options).await?;
        let schema_version = self.schema_version(message, &sender.producer).await?;
        let _place = sender.window.acquire().await.map_err(|_| closed())?;
        let properties: Vec<_> = properties.iter().map(|(name, value)| (&**name, &**value)).collect();
        let copy = Outgoing {
            payload: &message.payload,
            key: message.key.as_deref(),
            key_is_base64: message.key_is_base64,
            ordering_key: message.ordering_key().map(|key| &**key),
            properties: &properties,
            event_time: message.event_time,
            sequence_id: None,
            deliver_at,
            null_value: message.null_value,
            replicate_to: &[],
            schema_version: schema_version.as_ref(),
            schema: None,
        };
        let outcome = match sender.push_when_there_is_room(&copy).await {
            Ok(receipt) => receipt.await.unwrap_or_else(|_| Err(closed())),
            Err(error) => Err(error),
        };
        if outcome.is_err() && sender.receipts.has_ended() {
            // The next letter opens another.
            self.remove(&topic, &sender);
        }
        outcome
    }

    /// The version at the topic of letters of the schema that a message was written with. Asked for
    /// each time: either topic may have been deleted and made again meanwhile, which gives the
    /// versions another meaning.
    async fn schema_version(&self, message: &Message, to: &Producer) -> Result<Option<Bytes>> {
        let version = message.entry.rare().schema_version.as_ref().filter(|version| !version.is_empty());
        let (Some(version), true) = (version, self.reads) else { return Ok(None) };
        let topic = message.entry.topic();
        let asked = async {
            let info = self.shared.lookup_of(topic).schema(topic, Some(version.clone())).await?;
            to.register_schema(&info).await
        };
        let limit = self.shared.options.operation_timeout;
        match tokio::time::timeout(limit, asked).await {
            Ok(Ok(version)) => Ok(Some(version)),
            Ok(Err(error)) if is_for_good(error.kind()) => {
                self.sent_without_schema(message, &error);
                Ok(None)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => {
                let text =
                    "the schema of a letter could not be registered at its topic within operation_timeout";
                Err(Error::new(ErrorKind::Timeout, text).with_topic(&**topic))
            }
        }
    }

    /// Notes that a letter goes without its schema.
    fn sent_without_schema(&self, message: &Message, error: &Error) {
        if !self.warned_of_schema.swap(true, Ordering::Relaxed) {
            warn!(
                target: logger::PULSAR_CONSUMER,
                "{} of {} is sent to another topic without the version of its schema: {error}; so are others \
                 of which this is true",
                message.id,
                message.entry.topic(),
            );
        }
    }

    /// Forgets a producer that has ended.
    fn remove(&self, topic: &str, ended: &Sender) {
        let mut lines = self.lines.lock();
        let is_it = lines.by_topic.get(topic).is_some_and(|line| {
            matches!(&*line.opened.borrow(), Some(Opened::Open(sender)) if Arc::ptr_eq(&sender.receipts, &ended.receipts))
        });
        let line = if is_it { lines.by_topic.remove(topic) } else { None };
        // Its end takes locks.
        drop(lines);
        drop(line);
    }

    /// The producer of a topic. All letters wait for one attempt to open it and get its error,
    /// until the next is due.
    async fn sender(&self, topic: &str, options: ProducerOptions) -> Result<Sender> {
        let (mut opened, turn) = self.attempt(topic, options)?;
        let _turn = turn.acquire().await.map_err(|_| closed())?;
        let opened = opened.wait_for(Option::is_some).await.map_err(|_| closed())?.clone();
        match opened {
            Some(Opened::Open(sender)) => Ok(sender),
            Some(Opened::Failed(error, _)) => Err(error),
            None => Err(closed()),
        }
    }

    /// The latest attempt to open the producer of a topic; begins one if there is none, or if it
    /// has failed and its pause is over.
    fn attempt(
        &self,
        topic: &str,
        options: ProducerOptions,
    ) -> Result<(watch::Receiver<Option<Opened>>, Arc<Semaphore>)> {
        let mut lines = self.lines.lock();
        if lines.closed {
            return Err(closed());
        }
        let limit = self.shared.options.max_backoff;
        let mut pauses = Backoff::new(limit);
        if let Some(line) = lines.by_topic.get(topic) {
            let is_over =
                matches!(&*line.opened.borrow(), Some(Opened::Failed(_, until)) if *until <= clock::now());
            if !is_over {
                return Ok((line.opened.clone(), Arc::clone(&line.turn)));
            }
        }
        if let Some(line) = lines.by_topic.remove(topic) {
            pauses = line.pauses;
        }
        let pause = pauses.pause();
        let (announce, opened) = watch::channel(None);
        let (shared, name) = (Arc::clone(&self.shared), topic.to_owned());
        let task = tokio::spawn(async move {
            let receipts = Arc::new(Receipts::default());
            let events = Arc::clone(&receipts) as Arc<dyn ProducerEvents>;
            let result = match TopicName::parse(&name) {
                Ok(name) => Producer::open(shared, name, options, events).await,
                Err(error) => Err(error),
            };
            let _ = announce.send(Some(match result {
                Ok(producer) => {
                    Opened::Open(Sender { producer, receipts, window: Arc::new(Semaphore::new(WINDOW)) })
                }
                Err(error) => Opened::Failed(error, clock::now() + pause),
            }));
        });
        let turn = Arc::new(Semaphore::new(1));
        let line =
            Line { opened: opened.clone(), turn: Arc::clone(&turn), task: task.abort_handle(), pauses };
        lines.by_topic.insert(topic.to_owned(), line);
        Ok((opened, turn))
    }

    /// Notes that a letter could not be sent.
    fn failed(&self, message: &Message, error: &Error) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            warn!(
                target: logger::PULSAR_CONSUMER,
                "{} of {} could not be sent to the dead letter topic and will be delivered again: {error}; \
                 the others are counted as dead_letters_failed in stats() of the consumer",
                message.id,
                message.entry.topic(),
            );
        }
    }

    /// Ends the attempts to open producers, and closes those that are open. Letters without a
    /// receipt fail.
    pub(super) async fn close(&self) {
        let lines = {
            let mut lines = self.lines.lock();
            lines.closed = true;
            std::mem::take(&mut lines.by_topic)
        };
        let closing = lines.into_values().filter_map(|line| {
            line.task.abort();
            match line.opened.borrow().clone() {
                Some(Opened::Open(sender)) => Some(async move { sender.producer.close(false).await }),
                _ => None,
            }
        });
        let _ = together(closing).await;
    }
}

impl Sender {
    /// Pushes a letter, and waits for room in the memory of the client and in the window, as long
    /// as a send may take.
    async fn push_when_there_is_room(&self, message: &Outgoing<'_>) -> Result<oneshot::Receiver<Result<()>>> {
        let mut refused = None;
        let pushed = until(&self.receipts.room, || match self.push(message) {
            Err(error) if matches!(error.kind(), ErrorKind::MemoryLimit | ErrorKind::QueueFull) => {
                refused = Some(error);
                None
            }
            other => Some(other),
        });
        let limit = letter_options().send_timeout.unwrap_or(LONGEST_WAIT);
        match tokio::time::timeout(limit, pushed).await {
            Ok(pushed) => pushed,
            Err(_) => Err(refused.unwrap_or_else(closed)),
        }
    }

    fn push(&self, message: &Outgoing<'_>) -> Result<oneshot::Receiver<Result<()>>> {
        // Held across the push, or the outcome could come before its receiver is known.
        let mut slots = self.receipts.slots.lock();
        let pushed = self.producer.push(message, None, true)?;
        let (outcome, receiver) = oneshot::channel();
        slots.entry(pushed.slot()).or_default().push_back(outcome);
        drop(slots);
        Ok(receiver)
    }
}

/// The receivers of outcomes.
#[derive(Debug)]
struct Receipts {
    /// By slot, in the order of the pushes.
    slots: Mutex<HashMap<usize, VecDeque<oneshot::Sender<Result<()>>>>>,
    /// There is room again.
    room: Notify,
    ended: AtomicBool,
}

impl Default for Receipts {
    fn default() -> Self {
        let slots = Mutex::new(Rank::Sends, HashMap::default());
        Self { slots, room: Notify::new(), ended: AtomicBool::new(false) }
    }
}

impl Receipts {
    /// Whether the producer has ended for good.
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

impl ProducerEvents for Receipts {
    fn sent(&self, slot: usize, outcome: SendOutcome) {
        let (count, result) = match outcome {
            SendOutcome::Stored { count, .. } => (count, Ok(())),
            SendOutcome::Failed { count, error } => (count, Err(error)),
        };
        let mut slots = self.slots.lock();
        let Some(waiting) = slots.get_mut(&slot) else { return };
        let count = (count as usize).min(waiting.len());
        let receivers: Vec<_> = waiting.drain(..count).collect();
        drop(slots);
        for receiver in receivers {
            let _ = receiver.send(result.clone());
        }
    }

    fn room(&self) {
        self.room.notify_waiters();
    }

    fn closed(&self, _error: Error) {
        self.ended.store(true, Ordering::Release);
        self.room.notify_waiters();
    }
}

/// The task that sends the dead letters of a consumer.
#[derive(Debug)]
pub(super) struct DeadLetterSender {
    stop: Arc<Notify>,
    task: AbortHandle,
}

impl DeadLetterSender {
    /// Starts the task.
    pub(super) fn start(letters: &Arc<Letters>, members: Arc<Members>) -> Self {
        let stop = Arc::new(Notify::new());
        let task = tokio::spawn(work(Arc::clone(letters), members, Arc::clone(&stop)));
        Self { stop, task: task.abort_handle() }
    }

    /// Ends it at once, with the letters under way.
    pub(super) fn abort(&self) {
        self.task.abort();
    }

    /// Takes no more dead letters; those under way go on.
    pub(super) fn stop(&self) {
        self.stop.notify_one();
    }
}

async fn work(letters: Arc<Letters>, members: Arc<Members>, stop: Arc<Notify>) {
    let mut under_way = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stop.notified() => break,
            () = members.dead.notified() => {}
            Some(_) = under_way.join_next() => continue,
        }
        for part in members.now().iter() {
            for letter in part.change(|machine| machine.take_dead()) {
                under_way.spawn(deliver(letters.begin(), Arc::clone(part), letter));
            }
        }
    }
    while under_way.join_next().await.is_some() {}
}

async fn deliver(under_way: UnderWay, part: Arc<PartitionConsumer>, letter: DeadLetter) {
    let letters = &under_way.0;
    let sent = letters.send_to_dead_letter(&letter).await;
    if let Err(error) = &sent {
        letters.failed(&letter.message, error);
    }
    letters.shared.letters.dead(sent.is_ok());
    part.change(|machine| machine.settle_dead(clock::now(), &letter, sent.is_ok()));
}

/// Options of the producers of letters: each letter is an entry, so that its receipt is for it
/// alone.
fn letter_options() -> ProducerOptions {
    ProducerOptions { batching: false, chunking: true, max_pending: WINDOW, ..ProducerOptions::default() }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the consumer was closed")
}

/// The error of a consumer that has no topic of retries.
pub(super) fn not_enabled() -> Error {
    Error::new(
        ErrorKind::NotAllowed,
        "reconsume_later() needs a topic of retries: open the consumer with dead_letter=DeadLetterPolicy(..., retry=True)",
    )
}

/// Whether an error stays when the schema of a letter is registered again. The letter then goes
/// without: it would otherwise come back for ever.
fn is_for_good(kind: ErrorKind) -> bool {
    // A schema that is not found is gone.
    kind == ErrorKind::TopicNotFound
        || !kind.retriable() && !matches!(kind, ErrorKind::Closed | ErrorKind::Cancelled)
}

fn set(properties: &mut Vec<Property>, name: &str, value: String) {
    match properties.iter_mut().find(|(known, _)| known == name) {
        Some((_, old)) => *old = value,
        None => properties.push((name.to_owned(), value)),
    }
}

/// The text of an id that the Java client writes.
fn java_text(id: &MessageId) -> String {
    let text = format!("{}:{}:{}", id.ledger as i64, id.entry as i64, id.partition);
    if id.batch_index < 0 { text } else { format!("{text}:{}", id.batch_index) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_goes_without_its_schema_only_if_waiting_does_not_help() {
        use ErrorKind::{
            Authorization, Closed, ConnectFailed, IncompatibleSchema, NotAllowed, Timeout, TopicNotFound,
        };
        for kind in [IncompatibleSchema, NotAllowed, Authorization, TopicNotFound] {
            assert!(is_for_good(kind), "{kind:?}");
        }
        for kind in [Closed, ConnectFailed, Timeout] {
            assert!(!is_for_good(kind), "{kind:?}");
        }
    }
}
