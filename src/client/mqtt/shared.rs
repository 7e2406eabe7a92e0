//! The session of a client, shared by its producers, consumers and connections.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::{Notify, oneshot};

use crate::budget::Budget;
use crate::journal::{Journal, log_to};
use crate::logger;
use crate::mqtt::birth::{BIRTH, Birth};
use crate::mqtt::options::ClientOptions;
use crate::mqtt::outbox::session::{DURABLE, OutboxSession, Staged};
use crate::mqtt::publisher::Publisher;
use crate::mqtt::routes::{Routes, one_of_each_group};
use crate::mqtt::subscription::{Abandoned, Message, Subscription};
use crate::mqtt::unclaimed::{Todo, Unclaimed};
use crate::until;
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result, because};
use forebay_base::random::HashMap;
use forebay_base::sync::{Mutex, MutexGuard, Rank};
use forebay_mqtt::connection::Limits;
use forebay_mqtt::packet::Publish;
use forebay_mqtt::producer::Outcome;
use forebay_mqtt::session::{Event, Session};
use forebay_mqtt::{QoS, Reason, Version};
use forebay_net::spawn_blocking;
use forebay_net::tcp::Awaited;
use tracing::warn;

/// Time for which close waits for a socket that accepts no bytes.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// The current connection, as the session sees it.
pub(super) trait Link: std::fmt::Debug + Send + Sync {
    /// Has the driver take a turn.
    fn wake(&self);

    /// As [`Self::wake`], on this thread if the driver has nothing to do.
    fn write(&self);

    /// Queues DISCONNECT. What is returned resolves when the connection is gone.
    fn disconnect(&self, now: Instant) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// Queues an AUTH that starts a new authentication.
    fn authenticate(&self, now: Instant, data: Bytes) -> Result<()>;
}

/// The server's answer to CONNECT: CONNACK.
#[derive(Clone, Debug)]
pub struct Server {
    /// The client identifier in use.
    pub client_id: String,
    /// Whether the server had the session.
    pub session_present: bool,
    /// Limits of the server.
    pub limits: Limits,
    /// Prefix of topics for responses, if one was requested.
    pub response_information: Option<String>,
}

/// The session of a client with everything around it.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: ClientOptions,
    pub(super) journal: Arc<Journal>,
    session: Mutex<Session>,
    /// Between the session and the durable outbox, if there is one.
    pub(super) outbox: Option<OutboxSession>,
    /// The current connection.
    pub(super) link: Mutex<Option<Arc<dyn Link>>>,
    /// The driver has been woken and has not looked yet.
    pub(super) notified: AtomicBool,
    /// Tells the socket whether publications wait for acknowledgements.
    pub(super) awaited: Arc<Awaited>,
    pub(super) producers: Mutex<HashMap<u64, Arc<Publisher>>>,
    pub(super) routes: Mutex<Routes>,
    /// Copies of messages that their consumers got by another of their filters.
    pub(super) copies_dropped: AtomicU64,
    /// Messages that no open consumer claims.
    pub(super) unclaimed: Unclaimed,
    /// Passes on messages that the application has dropped and not acknowledged.
    pub(super) abandoned: UnboundedSender<Abandoned>,
    /// Callers that wait for SUBACK and UNSUBACK.
    answers: Mutex<HashMap<u32, oneshot::Sender<Result<Vec<Reason>>>>>,
    pub(super) budget: Arc<Budget>,
    pub(super) birth: Birth,
    /// Bytes of messages that have not been taken.
    pub(super) unread: Arc<AtomicUsize>,
    /// The socket is not read until some of them are taken.
    pub(super) paused: AtomicBool,
    /// The application has been warned that it has to acknowledge before more is read.
    pub(super) was_full: AtomicBool,
    next_owner: AtomicU64,
    /// Why there is no connection.
    pub(super) trouble: Mutex<Option<Error>>,
    /// Why the client has ended.
    ended: Mutex<Option<Error>>,
    /// Notified when publications have an outcome, and when the connection is gone.
    pub(super) settled: Notify,
    /// Notified when the client is closed.
    pub(super) closing: Notify,
    /// The last CONNACK.
    pub(super) server: Mutex<Option<Server>>,
    /// Protocol level of the version in use.
    level: AtomicU8,
    pub(super) runtime: Handle,
}

/// Time without a message from the server after which a consumer is said to hold up the others.
pub(super) const HOLD_UP: Duration = Duration::from_secs(1);

impl Shared {
    /// Warns, once for each consumer, if the server sends nothing more to the other consumers until
    /// the message of `token` is acknowledged, which the application has not received. The last
    /// message came at `since`.
    pub(super) fn look_at_hold_up(&self, now: Instant, token: u64, since: Instant) {
        if now < since + HOLD_UP {
            return;
        }
        let consumers: Vec<_> = self.routes.lock().consumers().cloned().collect();
        let slow = consumers.iter().find(|consumer| consumer.has(token));
        if let Some(slow) = slow.filter(|_| consumers.len() > 1)
            && !slow.holds_up.swap(true, Ordering::Relaxed)
        {
            warn!(
                target: logger::MQTT_CONNECTION,
                "the messages of the consumer {:?} are not received, and the other consumers of the client may \
                 wait for that: the server has one window of unacknowledged messages for all. Receive and \
                 acknowledge them, or give that consumer a client of its own",
                slow.topic(),
            );
        }
    }

    pub(super) fn new(
        options: ClientOptions,
        session: Session,
        outbox: Option<OutboxSession>,
        abandoned: UnboundedSender<Abandoned>,
    ) -> Self {
        Self {
            journal: Journal::new(log_to!(logger::MQTT_CONNECTION)),
            session: Mutex::new(Rank::Machine, session),
            outbox,
            link: Mutex::default(),
            notified: AtomicBool::new(false),
            awaited: Arc::default(),
            producers: Mutex::default(),
            routes: Mutex::new(Rank::Routes, Routes::default()),
            copies_dropped: AtomicU64::default(),
            unclaimed: Unclaimed::new(
                options.unclaimed,
                options.keep_session || !options.clean_start,
                options.receive_buffer / 2,
            ),
            abandoned,
            answers: Mutex::default(),
            budget: Arc::new(Budget::new(options.memory_limit)),
            birth: Birth::default(),
            unread: Arc::default(),
            paused: AtomicBool::new(false),
            was_full: AtomicBool::new(false),
            next_owner: AtomicU64::new(1),
            trouble: Mutex::default(),
            ended: Mutex::default(),
            settled: Notify::new(),
            closing: Notify::new(),
            server: Mutex::default(),
            level: AtomicU8::new(options.version.unwrap_or(Version::V5).level()),
            runtime: Handle::current(),
            options,
        }
    }

    pub(super) fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock()
    }

    /// A number for a producer, never used twice by this client.
    pub(super) fn next_owner(&self) -> u64 {
        self.next_owner.fetch_add(1, Ordering::Relaxed)
    }

    /// A number for a request about a subscription.
    pub(super) fn next_subscription(&self) -> u32 {
        self.routes.lock().next_ids(1)
    }

    /// Whether the client has ended.
    pub(super) fn is_ended(&self) -> bool {
        self.ended.lock().is_some()
    }

    pub(super) fn check_open(&self) -> Result<()> {
        self.ended.lock().clone().map_or(Ok(()), Err)
    }

    /// Wakes the driver, unless it has been woken and has not looked yet.
    pub(super) fn notify(&self) {
        if !self.notified.swap(true, Ordering::AcqRel)
            && let Some(link) = self.link.lock().as_ref()
        {
            link.wake();
        }
    }

    /// As [`Self::notify`], on this thread if the driver has nothing to do.
    pub(super) fn write(&self) {
        if self.notified.swap(true, Ordering::AcqRel) {
            return;
        }
        // Not under its lock, which comes after those of a turn.
        let link = self.link.lock().clone();
        if let Some(link) = link {
            link.write();
        }
    }

    /// Passes the session's events on. The caller holds no lock above a connection's.
    pub(super) fn dispatch(&self, events: &mut Vec<Event>) {
        let mut published = false;
        let mut durable = Vec::new();
        for event in events.drain(..) {
            match event {
                Event::Published(outcome) if outcome.owner & DURABLE != 0 => durable.push(outcome),
                Event::Published(outcome) => {
                    published = true;
                    self.published(outcome);
                }
                Event::Message { publish, token } => self.deliver(publish, token),
                Event::Subscribed { id, result } => {
                    self.routes.lock().answered(id, &result);
                    if let Some(result) = self.answer(id, result) {
                        self.renewed(id, result);
                    }
                }
                Event::Unsubscribed { id, result } => {
                    self.answer(id, result);
                }
            }
        }
        // What a client that has ended did not deliver stays in the outbox.
        if let Some(outbox) = self.outbox.as_ref().filter(|_| !self.is_ended()) {
            published |= !durable.is_empty();
            outbox.ended(durable);
        }
        if published {
            self.settled.notify_waiters();
        }
    }

    /// Reports the outcome of publications to their producer.
    fn published(&self, outcome: Outcome) {
        if outcome.owner == BIRTH {
            // Not of the application: it has no producer, and is not charged.
            return self.birth.ended(&outcome);
        }
        self.budget.release(outcome.bytes);
        if outcome.count == 0 {
            return;
        }
        let producer = self.producers.lock().get(&outcome.owner).cloned();
        if let Some(producer) = producer {
            producer.settle(outcome);
        }
    }

    /// Passes an answer to the caller that waits for it; returns it if there is none.
    fn answer(&self, id: u32, result: Result<Vec<Reason>>) -> Option<Result<Vec<Reason>>> {
        let waiter = self.answers.lock().remove(&id);
        match waiter {
            Some(waiter) => waiter.send(result).err(),
            None => Some(result),
        }
    }

    /// Handles the answer to a SUBSCRIBE that was sent again after a reconnect: a refusal ends the
    /// consumer, which would wait for ever.
    fn renewed(&self, id: u32, result: Result<Vec<Reason>>) {
        let consumer = self.routes.lock().get(id);
        let Some(consumer) = consumer else { return };
        let Some((error, granted)) = consumer.refusal(id, &result) else {
            // Once for all of its identifiers.
            if id + 1 == consumer.ids().end {
                self.journal.resubscribed(&consumer.topic());
            }
            return;
        };
        self.journal.gave_up(Some(&consumer.topic()), &error);
        self.routes.lock().remove(&consumer, false);
        {
            let mut session = self.session();
            for other in consumer.ids() {
                if granted || other != id {
                    session.unsubscribe(other);
                } else {
                    session.drop_subscription(other);
                }
            }
        }
        self.notify();
        consumer.end(error);
    }

    fn deliver(&self, publish: Publish, token: u64) {
        let consumers = self.routes.lock().of(&publish);
        let Some(mut consumers) = consumers else {
            self.copies_dropped.fetch_add(1, Ordering::Relaxed);
            return self.acknowledge((token != 0).then_some(token));
        };
        if consumers.len() > 1 {
            consumers = one_of_each_group(consumers, &publish.topic);
        }
        if token != 0 && !consumers.is_empty() && consumers.iter().any(|consumer| consumer.wants_no_ack()) {
            // Another consumer has asked the server for more than QoS 0, as it sends one copy to
            // all: this one acknowledges nothing, and the others would wait for it.
            let (unacknowledged, rest): (Vec<_>, Vec<_>) =
                consumers.iter().cloned().partition(|consumer| consumer.wants_no_ack());
            let copy = Publish { qos: QoS::AtMostOnce, packet_id: None, ..publish.clone() };
            self.hand_out(copy, 0, unacknowledged.into());
            if rest.is_empty() {
                return self.acknowledge([token]);
            }
            consumers = rest.into();
        }
        self.hand_out(publish, token, consumers);
    }

    fn hand_out(&self, publish: Publish, token: u64, consumers: Arc<[Arc<Subscription>]>) {
        let Some((last, others)) = consumers.split_last() else {
            return self.carry_out(self.unclaimed.arrived(clock::now(), publish, token));
        };
        let message = Message::new(publish, token, Arc::clone(&consumers));
        for consumer in others {
            self.push(consumer, message.clone());
        }
        self.push(last, message);
    }

    fn push(&self, consumer: &Subscription, message: Message) {
        if let Err(message) = consumer.push(message) {
            self.take_back(consumer, [message]);
        }
    }

    /// Takes back messages that a closed consumer has not handed out. They are not acknowledged.
    pub(super) fn take_back(&self, consumer: &Subscription, messages: impl IntoIterator<Item = Message>) {
        let mut done = Vec::new();
        let mut back = Vec::new();
        for message in messages {
            match message.give_back() {
                Some(Ok(token)) => done.push(token),
                Some(Err(unclaimed)) => back.push(unclaimed),
                None => {}
            }
        }
        if !done.is_empty() {
            self.acknowledge(done);
        }
        self.give_back(consumer, back);
    }

    /// Gives messages of a closed consumer to an open one of its shared subscription, or holds
    /// them.
    fn give_back(&self, consumer: &Subscription, mut back: Vec<(Publish, u64)>) {
        let next_of = |publish: &Publish| {
            let group = consumer.filter_of(&publish.topic)?.group()?;
            self.routes.lock().consumers().find(|c| c.claims(&publish.topic, Some(group))).cloned()
        };
        back.retain_mut(|(publish, token)| {
            let Some(next) = next_of(publish) else { return true };
            let message = Message::new(std::mem::take(publish), *token, [Arc::clone(&next)].into());
            self.push(&next, message);
            false
        });
        self.carry_out(self.unclaimed.given_back(clock::now(), consumer, back));
    }

    /// Takes over a message that the application has dropped and not acknowledged: while one of its
    /// consumers is open it stays unacknowledged, and after that nothing could acknowledge it.
    pub(super) fn abandon(&self, mut message: Abandoned) {
        let consumers = Arc::clone(&message.consumers);
        for consumer in consumers.iter() {
            match consumer.hold(message) {
                None => return,
                Some(back) => message = back,
            }
        }
        if message.acknowledged {
            self.acknowledge([message.token]);
        } else if let Some(consumer) = consumers.first() {
            self.give_back(consumer, vec![(message.publish, message.token)]);
        }
    }

    /// Delivers the unclaimed messages of a new consumer.
    pub(super) fn claim(&self, consumer: &Arc<Subscription>) {
        let (claimed, todo) = self.unclaimed.opened(clock::now(), consumer);
        for (publish, token) in claimed {
            self.push(consumer, Message::new(publish, token, [Arc::clone(consumer)].into()));
        }
        self.carry_out(todo);
    }

    /// Does what the unclaimed messages need.
    pub(super) fn carry_out(&self, todo: Todo) {
        if todo.unread > 0 {
            self.unread.fetch_add(todo.unread, Ordering::AcqRel);
        }
        if todo.taken > 0 {
            self.taken(todo.taken);
        }
        if !todo.unsubscribe.is_empty() {
            let mut session = self.session();
            for filter in todo.unsubscribe {
                session.unsubscribe_filter(self.next_subscription(), filter);
            }
            drop(session);
            self.notify();
        }
        if !todo.acknowledge.is_empty() {
            self.acknowledge(todo.acknowledge);
        }
        if let Some(warning) = todo.warning {
            warn!(target: logger::MQTT, "{warning}");
        }
    }

    /// Frees the window of unclaimed messages when it is time.
    pub(super) async fn run_unclaimed(shared: Weak<Self>, mut abandoned: UnboundedReceiver<Abandoned>) {
        let Some(this) = shared.upgrade() else { return };
        let changed = Arc::clone(&this.unclaimed.changed);
        drop(this);
        loop {
            let Some(this) = shared.upgrade() else { return };
            let now = clock::now();
            this.carry_out(this.unclaimed.settle(now));
            let deadline = this.unclaimed.deadline(now);
            drop(this);
            let due = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = due => {}
                () = changed.notified() => {}
                Some(message) = abandoned.recv() => {
                    let Some(this) = shared.upgrade() else { return };
                    this.abandon(message);
                    while let Ok(message) = abandoned.try_recv() {
                        this.abandon(message);
                    }
                }
            }
        }
    }

    /// Acknowledges messages that all their consumers have acknowledged.
    pub(super) fn acknowledge(&self, tokens: impl IntoIterator<Item = u64>) {
        let now = clock::now();
        {
            let mut session = self.session();
            for token in tokens {
                session.ack(now, token, None);
            }
        }
        self.notify();
    }

    /// Number of messages that have not been taken.
    pub(super) fn unread_messages(&self) -> usize {
        let consumers: Vec<_> = self.routes.lock().consumers().cloned().collect();
        let waiting: usize = consumers.iter().map(|consumer| consumer.waiting()).sum();
        waiting + self.unclaimed.stats().messages
    }

    /// Messages of `bytes` have been taken.
    pub(super) fn taken(&self, bytes: usize) {
        let before = self.unread.fetch_sub(bytes, Ordering::AcqRel);
        if before - bytes <= self.options.receive_buffer / 2 && self.paused.swap(false, Ordering::AcqRel) {
            self.notify();
        }
    }

    /// Resolves when nothing is pending, of one producer or of all.
    pub(super) async fn settle(&self, owner: Option<&Publisher>) {
        let is_settled = || {
            let pending = match owner {
                Some(owner) => owner.pending(),
                None => {
                    let kept = self.outbox.as_ref().map_or(0, OutboxSession::pending);
                    self.session().pending_messages() + kept
                }
            };
            (pending == 0 || self.is_ended()).then_some(())
        };
        until(&self.settled, is_settled).await;
    }

    /// Resolves when there is no connection.
    pub(super) async fn detached(&self) {
        until(&self.settled, || (!self.session().is_attached()).then_some(())).await;
    }

    /// Ends everything with `error`.
    pub(super) fn end(&self, error: &Error) {
        {
            let mut ended = self.ended.lock();
            if ended.is_some() {
                return;
            }
            *ended = Some(error.clone());
        }
        self.journal.end(error);
        // The link is dropped after its lock.
        let link = self.link.lock().take();
        drop(link);
        let mut events = Vec::new();
        {
            let mut session = self.session();
            session.close(error);
            events.extend(std::iter::from_fn(|| session.poll_event()));
        }
        self.dispatch(&mut events);
        if let Some(outbox) = self.outbox.as_ref().and_then(OutboxSession::take_outbox) {
            // Another client may open the file then. Closing writes what was submitted, which may
            // take a commit.
            drop(spawn_blocking(&self.runtime, move || outbox.close()));
        }
        if let Some(warning) = self.unclaimed.end() {
            warn!(target: logger::MQTT, "{warning}");
        }
        let consumers = self.routes.lock().take();
        for consumer in consumers {
            consumer.end(error.clone());
        }
        let producers = std::mem::take(&mut *self.producers.lock());
        for producer in producers.into_values() {
            producer.end(error.clone());
        }
        self.settled.notify_waiters();
    }

    /// Sends UNSUBSCRIBE and waits for the answer.
    pub(super) async fn ask(&self, id: u32, ask: impl FnOnce(&mut Session)) -> Result<Vec<Reason>> {
        Ok(self.ask_all(id..id + 1, ask).await?.into_iter().flatten().collect())
    }

    /// Sends SUBSCRIBE or UNSUBSCRIBE for each of `ids` and waits for the answers.
    pub(super) async fn ask_all(
        &self,
        ids: Range<u32>,
        ask: impl FnOnce(&mut Session),
    ) -> Result<Vec<Vec<Reason>>> {
        let answered: Vec<_> = {
            let mut answers = self.answers.lock();
            let mut answer = |id| {
                let (answer, answered) = oneshot::channel();
                answers.insert(id, answer);
                answered
            };
            ids.clone().map(&mut answer).collect()
        };
        ask(&mut self.session());
        self.notify();
        let limit = self.options.operation_timeout;
        let all = async {
            let mut results = Vec::with_capacity(answered.len());
            for answered in answered {
                let closed = |_| Err(Error::new(ErrorKind::Closed, "the client was closed"));
                results.push(answered.await.unwrap_or_else(closed));
            }
            results
        };
        match tokio::time::timeout(limit, all).await {
            Ok(results) => results.into_iter().collect(),
            Err(_) => {
                let mut answers = self.answers.lock();
                ids.for_each(|id| drop(answers.remove(&id)));
                drop(answers);
                let text = format!("the broker did not answer within {limit:?}");
                Err(Error::new(ErrorKind::Timeout, because(text, self.trouble.lock().as_ref())))
            }
        }
    }

    /// The version in use.
    pub(super) fn version(&self) -> Version {
        match self.level.load(Ordering::Relaxed) {
            3 => Version::V3_1,
            4 => Version::V3_1_1,
            _ => Version::V5,
        }
    }

    pub(super) fn set_version(&self, version: Version) {
        self.level.store(version.level(), Ordering::Relaxed);
    }

    /// Sends DISCONNECT and waits until the connection is gone.
    pub(super) async fn disconnect(&self) {
        let link = self.link.lock().clone();
        let Some(link) = link else { return };
        let gone = link.disconnect(clock::now());
        link.wake();
        // The connection is gone when its last reference is dropped, of which this is one.
        drop(link);
        let _ = tokio::time::timeout(LAST_WRITE, gone).await;
    }

    /// Moves messages on whenever the outbox's thread has reported something.
    pub(super) async fn run_outbox(shared: Weak<Self>) {
        let Some(reported) = shared.upgrade().and_then(|s| s.outbox.as_ref().map(OutboxSession::reported))
        else {
            return;
        };
        if let Some(shared) = shared.upgrade() {
            shared.pump();
        }
        loop {
            reported.wait().await;
            let Some(shared) = shared.upgrade() else { return };
            shared.pump();
        }
    }

    /// Ends the sends of messages that are on disk, and moves those and what was loaded to the
    /// session.
    fn pump(&self) {
        let Some(outbox) = &self.outbox else { return };
        let pumping = outbox.pump();
        let progress = outbox.take_progress();
        {
            // A caller that has just pushed holds it until the producer expects the outcome.
            let mut session = self.session();
            let now = clock::now();
            for (key, publish) in progress.messages {
                session.producer().push(now, DURABLE | key, publish);
            }
            if let Some(recorded) = progress.recorded {
                session.producer().handle_recorded(recorded);
            }
        }
        for (staged, result) in progress.done {
            let Staged { owner, qos, bytes, .. } = staged;
            self.published(Outcome { owner, qos, count: 1, bytes, result });
        }
        let refused: Vec<_> =
            self.producers.lock().values().filter(|producer| producer.was_refused()).cloned().collect();
        for producer in refused {
            // There may be room in the file now.
            producer.retry();
        }
        self.settled.notify_waiters();
        self.notify();
        drop(pumping);
        if let Some(error) = progress.failed {
            // Without its disk the client cannot keep its promise.
            self.end(&error);
        }
    }

    /// Writes what is staged, ends those sends, and closes the file. May block for a commit.
    pub(super) fn close_outbox(&self) {
        if let Some(outbox) = self.outbox.as_ref().and_then(OutboxSession::take_outbox) {
            outbox.close();
            self.pump();
        }
    }
}
