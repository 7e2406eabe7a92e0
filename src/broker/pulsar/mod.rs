//! Pulsar's side of the broker, sans-IO.
//!
//! * [`session`]: handshake, authentication and keep-alive of a connection; `connection`: its
//!   producers and consumers
//! * `produce`, `consume`, `lookup`: the commands
//! * [`topic`]: a topic and its producers; [`subscription`]: consumers and dispatch;
//!   [`key_ranges`]: hash ranges of Key_Shared; `names`: topic names and the metadata of an entry
//! * `room`: which entries go when the store is short of room
//! * `non_persistent`: topics that store nothing; `watch`, `watchers`: clients that are told of
//!   topics
//! * `permitted`: permissions of clients; `web`: lookups and administration over HTTP
//! * `dispatcher`: deliveries to connections; `status`: figures; [`options`]; `service`: for the
//!   server
//!
//! A [`Broker`] has no sockets, disk or clock; [`crate::protocol`] describes the poll order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use crate::http::message::{Answer, Request};
use crate::log::{self, Log, Source, TopicIds};
use crate::pending_writes::PendingWrites;
use crate::permissions::Permissions;
use crate::protocol::{Clock, Entry, OUTPUT_LIMIT, Protocol, TIGHT, Topics};
use crate::pulsar::subscription::{ConsumerKey, Kind, PEEKS, Reading, Subscription};
use crate::pulsar::topic::{NonPersistent, ProducerState, Topic, is_stored};
use crate::stats::{ClientStats, ProtocolStats, TopicStats, Traffic};
use crate::store::{Found, Op, StoredCursor, StoredProducer};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::machine::{Machine, earliest};
use forebay_base::random::HashMap;
use forebay_base::transmit::Transmit;
use forebay_pulsar::command::Command;
use forebay_pulsar::frame::Payload;
use forebay_pulsar::{hot, pb};
use forebay_sqlite::Report;

mod connection;
mod consume;
mod dispatcher;
pub mod key_ranges;
mod lookup;
mod names;
mod non_persistent;
pub mod options;
mod permitted;
mod produce;
mod room;
mod schemas;
pub(super) mod service;
pub mod session;
mod status;
pub mod subscription;
pub mod topic;
mod watch;
mod watchers;
mod web;

use connection::{Connection, Reader};
use dispatcher::{Dispatcher, OUTPUT_HIGH_WATER};
use names::Name;
use options::Settings;
use room::Room;
use session::Session;
use watchers::Watchers;

/// Delay until acknowledgements without a receipt are written.
const CURSOR_DELAY: Duration = Duration::from_millis(100);
/// Interval of housekeeping.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// Limit on the caches of all stored logs together, in bytes.
const CACHE_TOTAL: usize = 128 << 20;
/// Time for which a non-durable subscription stays without consumers, which come back after a seek.
const ABANDONED: Duration = Duration::from_secs(60);
/// Domain of Pulsar's topics in the store.
const DOMAIN: &str = "pulsar";
/// Time for which a producer's sequence id is kept after its last message, as by the real broker.
const PRODUCER_KEPT_MS: u64 = 6 * 3_600_000;

/// An action that waits for the store.
#[derive(Debug)]
enum Action {
    Committed { topic: u64, end: u64 },
    Receipt { session: u64, receipt: hot::SendReceipt },
    Reply { session: u64, command: Box<Command> },
    Elect { topic: u64, subscription: Arc<str> },
}

/// Pulsar's broker, as the [module](self) describes.
#[derive(Debug)]
pub struct Broker {
    settings: Settings,
    source: Option<Box<dyn Source>>,
    /// See [`Reading::peeks`].
    peeks: usize,
    /// The first entry that could not be read from the store.
    damage: Option<String>,
    connections: BTreeMap<u64, Connection>,
    next_session: u64,
    topics: BTreeMap<u64, Topic>,
    names: BTreeMap<Arc<str>, u64>,
    /// Partitioned topics: id in the store and number of partitions.
    parents: BTreeMap<Arc<str>, (u64, u32)>,
    schemas: BTreeMap<Arc<str>, Vec<Bytes>>,
    /// Bytes of all schemas.
    schema_bytes: usize,
    next_producer: u64,
    non_persistent: NonPersistent,
    commits: PendingWrites<Action>,
    wakes: VecDeque<u64>,
    /// Topics to be dispatched.
    due: BTreeSet<u64>,
    watchers: Watchers,
    room: Room,
    /// Bytes of output queued for a connection beyond which it gets no more messages.
    high_water: usize,
    dirty: BTreeSet<(u64, Arc<str>)>,
    flush_at: Option<Instant>,
    housekeeping_at: Instant,
    run_at: Instant,
    delayed_at: Option<Instant>,
    /// Topics and subscriptions whose active consumer takes over from another one, and when.
    switches: BTreeSet<(Instant, u64, Arc<str>)>,
    now: Instant,
    counters: Traffic,
}

impl Broker {
    /// Creates a broker with the topics that were `found`.
    pub fn new(settings: Settings, found: Found, source: Option<Box<dyn Source>>, now: Instant) -> Self {
        let mut broker = Self {
            peeks: PEEKS,
            source,
            damage: None,
            connections: BTreeMap::new(),
            next_session: 1,
            topics: BTreeMap::new(),
            names: BTreeMap::new(),
            parents: BTreeMap::new(),
            schemas: BTreeMap::new(),
            schema_bytes: 0,
            next_producer: 0,
            non_persistent: NonPersistent::default(),
            commits: PendingWrites::new(settings.usage.clone(), settings.stored, found.bytes),
            wakes: VecDeque::new(),
            due: BTreeSet::new(),
            watchers: Watchers::default(),
            room: Room::default(),
            high_water: OUTPUT_HIGH_WATER,
            dirty: BTreeSet::new(),
            flush_at: None,
            housekeeping_at: now + HOUSEKEEPING,
            run_at: settings.clock.note_at(now),
            delayed_at: None,
            switches: BTreeSet::new(),
            now,
            counters: Traffic::default(),
            settings,
        };
        for stored in found.topics {
            broker.names.insert(stored.name.clone(), stored.id);
            if stored.partitions > 0 {
                broker.parents.insert(stored.name.clone(), (stored.id, stored.partitions));
                broker.names.remove(&stored.name);
                continue;
            }
            let log = Log::new(
                stored.id,
                broker.settings.stored,
                stored.first,
                stored.next,
                stored.next_index,
                stored.last,
            );
            let partition = Name::parse(&stored.name).ok().and_then(|name| name.partition);
            let mut topic = Topic::new(stored.id, stored.name, partition, log);
            topic.epoch = stored.epoch;
            topic.terminated = stored.terminated;
            let run_ms = broker.settings.clock.run_ms(now);
            let state = |StoredProducer { name, last, owner }| {
                (name, ProducerState { last, touched_ms: run_ms, owner })
            };
            topic.sequences = stored.producers.into_iter().map(state).collect();
            for StoredCursor { subscription: name, kind, cursor, properties, owner, .. } in stored.cursors {
                let mut found = Subscription::new(name.clone(), Kind::from_number(kind), true, cursor);
                found.properties = properties;
                found.owner = owner;
                topic.subscriptions.insert(name, found);
            }
            broker.topics.insert(stored.id, topic);
        }
        for (name, version, data) in found.schemas {
            broker.schema_bytes += data.len();
            let versions = broker.schemas.entry(name).or_default();
            // A version keeps its number, also behind one that the store has lost.
            versions.resize((version as usize).clamp(versions.len(), schemas::VERSIONS), Bytes::new());
            versions.push(data);
        }
        broker
    }

    fn wall_ms(&self) -> u64 {
        self.settings.clock.wall_ms(self.now)
    }

    /// How long brokers have run on the store, in milliseconds: ages are counted by it.
    fn run_ms(&self) -> u64 {
        self.settings.clock.run_ms(self.now)
    }

    fn handle_command(&mut self, id: u64, command: Command, payload: Option<Payload>) -> Result<()> {
        match (command, payload) {
            (Command::Send(send), Some(payload)) => self.send(id, send, payload),
            (Command::Ack(ack), _) => self.ack(id, ack),
            (Command::Flow(flow), _) => self.flow(id, flow),
            (Command::Producer(producer), _) => self.producer(id, *producer),
            (Command::CloseProducer(close), _) => self.close_producer(id, &close),
            (Command::Subscribe(subscribe), _) => self.subscribe(id, *subscribe),
            (Command::CloseConsumer(close), _) => self.close_consumer(id, &close),
            (Command::Unsubscribe(unsubscribe), _) => self.unsubscribe(id, &unsubscribe),
            (Command::RedeliverUnacknowledgedMessages(redeliver), _) => self.redeliver(id, &redeliver),
            (Command::Seek(seek), _) => self.seek(id, &seek),
            (Command::GetLastMessageId(get), _) => self.last_message_id(id, &get),
            (Command::ConsumerStats(stats), _) => self.consumer_stats(id, &stats),
            (command, _) => self.handle_lookup(id, command),
        }
    }

    /// Handles the commands in `input`. Queries are short and their answers may be long: what is
    /// not handled yet stays in `input` until this output is written, or until other connections
    /// have had their turn.
    fn handle_commands(&mut self, id: u64, input: &mut BytesMut) -> Result<()> {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.work = 0;
        }
        while let Some(connection) = self.connections.get_mut(&id) {
            let full = connection.session.transmit().len() > OUTPUT_LIMIT;
            let pause = full || connection.work > OUTPUT_LIMIT;
            // Without input, no call comes that could reset it.
            connection.behind = pause && !input.is_empty();
            if pause {
                if !full {
                    self.wakes.push_back(id);
                }
                break;
            }
            connection.session.handle_input(self.now, input)?;
            let Some(frame) = connection.session.poll_event() else { break };
            self.handle_command(id, frame.command, frame.payload)?;
        }
        Ok(())
    }

    /// Sends a command immediately.
    fn reply(&mut self, id: u64, command: &Command) {
        if let Some(connection) = self.connections.get_mut(&id) {
            if connection.session.transmit().is_empty() {
                self.wakes.push_back(id);
            }
            connection.session.send(command);
        }
    }

    /// Sends a command once every change issued so far is written.
    fn reply_written(&mut self, id: u64, command: Command) {
        self.when_written(Action::Reply { session: id, command: Box::new(command) });
    }

    fn reply_error(&mut self, id: u64, request_id: u64, error: &Error) {
        self.reply(id, &error_command(request_id, error));
    }

    fn when_written(&mut self, action: Action) {
        if let Some(action) = self.commits.when_written(action) {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Committed { topic, end } => {
                if self.commits.failure().is_none()
                    && let Some(topic) = self.topics.get_mut(&topic)
                {
                    topic.log.commit(end);
                    self.due.insert(topic.id);
                    let limit = self.settings.retention_bytes;
                    if !self.settings.stored
                        && topic.log.cache_bytes() > 2 * limit
                        && let Some(first) = topic.cut(&mut None, 0, limit)
                    {
                        topic.log.trim(first);
                    }
                }
            }
            Action::Receipt { session, receipt } => {
                let command = match self.commits.outcome() {
                    None => Command::SendReceipt(receipt),
                    Some(error) => Command::SendError(pb::CommandSendError {
                        producer_id: receipt.producer_id,
                        sequence_id: receipt.sequence_id,
                        error: pb::ServerError::PersistenceError as i32,
                        message: error.message().to_owned(),
                    }),
                };
                self.reply(session, &command);
            }
            Action::Reply { session, command } => match (self.commits.outcome(), command.request_id()) {
                (Some(error), Some(request)) => self.reply(session, &error_command(request, &error.clone())),
                _ => self.reply(session, &command),
            },
            Action::Elect { topic, subscription } => self.elect(topic, &subscription),
        }
    }

    /// The reason why nothing can be written, if there is one.
    fn refusal(&self) -> Option<Error> {
        let error = self.commits.failure()?;
        Some(Error::new(ErrorKind::Persistence, format!("{}: restart the broker", error.message())))
    }

    /// Dispatches the topics with new entries or new permits.
    fn pump(&mut self) {
        while let Some(id) = self.due.pop_first() {
            if !is_stored(id) {
                // Its messages have gone, or were dropped.
                continue;
            }
            let wall_ms = self.settings.clock.wall_ms(self.now);
            let Some(topic) = self.topics.get_mut(&id) else { continue };
            let mut dispatcher = Dispatcher {
                topic: id,
                partition: topic.partition(),
                connections: &mut self.connections,
                high_water: self.high_water,
                wakes: &mut self.wakes,
                counters: &mut self.counters,
            };
            let mut stopped = Vec::new();
            for subscription in topic.subscriptions.values_mut() {
                let mut reading =
                    Reading { log: &topic.log, source: &mut self.source, peeks: &mut self.peeks, wall_ms };
                subscription.dispatch(&mut reading, &mut dispatcher);
                if let Some(damage) = &subscription.damage {
                    let text = || damage.error.clone().with_topic(topic.name.clone()).to_string();
                    self.damage.get_or_insert_with(text);
                    if !subscription.consumers().is_empty() && subscription.is_stopped(&topic.log, self.now) {
                        stopped.push(Reader { topic: id, subscription: subscription.name.clone() });
                    }
                }
                if let Some(due) = subscription.next_due() {
                    self.delayed_at = earliest(self.delayed_at, Some(self.settings.clock.at(self.now, due)));
                }
            }
            self.tell_end(id);
            // They come back, and are told why they get no further.
            stopped.iter().for_each(|reader| self.close_consumers(reader, true));
        }
    }

    /// Marks a moved cursor, which is written soon.
    fn mark_dirty(&mut self, topic: u64, subscription: &Arc<str>) {
        self.dirty.insert((topic, subscription.clone()));
        self.flush_at.get_or_insert(self.now + CURSOR_DELAY);
    }

    fn flush_cursors(&mut self) {
        self.flush_at = None;
        for (topic, name) in std::mem::take(&mut self.dirty) {
            self.flush_cursor(topic, &name);
        }
    }

    fn flush_cursor(&mut self, topic: u64, name: &Arc<str>) {
        let touched_ms = self.run_ms();
        let Some(subscription) = self.topics.get_mut(&topic).and_then(|t| t.subscriptions.get_mut(name))
        else {
            return;
        };
        if !std::mem::take(&mut subscription.dirty) || !subscription.durable {
            return;
        }
        let op = Op::Cursor {
            topic,
            subscription: name.clone(),
            kind: subscription.kind as i32,
            below: subscription.cursor.below(),
            state: subscription.cursor.encode_with(&subscription.properties),
            touched_ms,
            owner: subscription.owner.clone(),
        };
        self.commits.write(op);
    }

    /// Notes how long brokers have run on the store, if something in it ages.
    fn note_run(&mut self) {
        self.run_at = self.settings.clock.note_at(self.now);
        let ages = |topic: &Topic| topic.log.next() > topic.log.first() || !topic.sequences.is_empty();
        let may_write = self.commits.failure().is_none() && !self.commits.is_stalled();
        if self.settings.stored && may_write && self.topics.values().any(ages) {
            let run_ms = self.run_ms();
            self.commits.write(Op::Run(run_ms));
        }
    }

    /// Bytes that each topic that `counts` may have in memory, so that together they have at most
    /// `total`.
    fn cache_share(&self, total: usize, counts: impl Fn(&Topic) -> bool + Copy) -> usize {
        let counted = self.topics.values().filter(|topic| counts(topic));
        log::share(total, counted.map(|topic| topic.log.cache_bytes()))
    }

    /// Removes entries, subscriptions and sequence ids that are no longer needed. Returns the bytes
    /// of the entries, as [`Topic::trim`].
    fn housekeeping(&mut self, retention: Duration) -> u64 {
        let run_ms = self.run_ms();
        let run_before = run_ms.saturating_sub(retention.as_millis() as u64);
        // All topics together have the memory of four.
        let each = self.settings.retention_bytes;
        let limit = if self.settings.stored {
            usize::MAX
        } else {
            self.cache_share(4 * each, Topic::has_durable).min(each)
        };
        let (mut cache, mut trimmed) = (0, 0);
        let mut trims = Vec::new();
        for topic in self.topics.values_mut() {
            if let Some(first) = topic.cut(&mut self.source, run_before, limit) {
                trimmed += topic.trim(&mut self.source, first);
                trims.push(topic.trimmed());
            }
            let now = self.now;
            topic.subscriptions.retain(|_, s| s.durable || s.abandoned.is_none_or(|at| now < at + ABANDONED));
            if topic.subscriptions.values().any(|s| s.damage.is_some() && !s.consumers().is_empty()) {
                self.due.insert(topic.id);
            }
            topic.sequences.retain(|name, state| {
                let kept = state.touched_ms + PRODUCER_KEPT_MS > run_ms;
                if !kept {
                    trims.push(Op::DropProducer { topic: topic.id, name: name.clone() });
                }
                kept
            });
            cache += topic.log.cache_bytes();
        }
        if self.settings.stored && cache > CACHE_TOTAL {
            let share = self.cache_share(CACHE_TOTAL, |_| true);
            self.topics.values_mut().for_each(|topic| topic.log.shrink(share));
        }
        if !self.settings.stored {
            self.commits.set_used((cache + self.schema_bytes) as u64);
        }
        self.write_trims(trims);
        let now = self.now;
        for connection in self.connections.values_mut() {
            connection.dismissed.retain(|_, until| *until > now);
        }
        trimmed
    }

    /// Checks that the namespace is configured or has topics.
    fn check_namespace(&self, name: &Name) -> Result<()> {
        let namespace = name.namespace();
        let has_topics = |domain: &str| {
            let prefix: Arc<str> = format!("{domain}://{namespace}/").into();
            let inside = |names: Option<&Arc<str>>| names.is_some_and(|name| name.starts_with(&*prefix));
            inside(self.names.range(prefix.clone()..).next().map(|(name, _)| name))
                || inside(self.parents.range(prefix.clone()..).next().map(|(name, _)| name))
        };
        if self.settings.namespaces.iter().any(|known| *known == namespace || known == "*")
            || has_topics("persistent")
            || has_topics("non-persistent")
        {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::TopicNotFound,
            format!(
                "Namespace not found: {namespace}. Add it to the broker's option namespaces, or create \
                 a topic in it through the broker object"
            ),
        ))
    }

    /// The topic of a producer or consumer, created if necessary.
    fn open_topic(&mut self, name: &Name, create: bool) -> Result<u64> {
        if let Some(id) = self.names.get(&name.full) {
            return Ok(*id);
        }
        if self.parents.contains_key(&name.full) {
            return Err(Error::new(
                ErrorKind::NotAllowed,
                "the topic is partitioned: use the name of one of its partitions",
            ));
        }
        self.check_namespace(name)?;
        if !create || !self.settings.auto_create {
            return Err(Error::new(ErrorKind::TopicNotFound, format!("Topic {} does not exist", name.full)));
        }
        self.create_log(name)
    }

    fn create_log(&mut self, name: &Name) -> Result<u64> {
        let id = self.new_topic_id(name, 0)?;
        let log = Log::new(id, self.settings.stored && is_stored(id), 0, 0, 0, None);
        self.topics.insert(id, Topic::new(id, name.full.clone(), name.partition, log));
        self.names.insert(name.full.clone(), id);
        self.watchers.changed(self.now, &name.full);
        Ok(id)
    }

    /// Checks that `count` topics can be created.
    fn check_room(&mut self, persistent: bool, count: usize) -> Result<()> {
        if let Some(error) = self.refusal() {
            return Err(error);
        }
        if self.topics.len() + self.parents.len() + count > self.settings.max_topics {
            self.remove_idle_for(Duration::ZERO);
        }
        if self.topics.len() + self.parents.len() + count > self.settings.max_topics {
            return Err(Error::new(
                ErrorKind::TooManyRequests,
                format!("topic limit reached (max_topics is {})", self.settings.max_topics),
            ));
        }
        if self.settings.stored && persistent && !self.settings.topic_ids.has_room(count as u64) {
            return Err(TopicIds::exhausted());
        }
        Ok(())
    }

    fn new_topic_id(&mut self, name: &Name, partitions: u32) -> Result<u64> {
        self.check_room(name.is_persistent(), 1)?;
        if !name.is_persistent() {
            return Ok(self.non_persistent.next_id());
        }
        let id = self.settings.topic_ids.next();
        self.commits.write(Op::CreateTopic { id, domain: DOMAIN, name: name.full.clone(), partitions });
        Ok(id)
    }
}

impl Protocol for Broker {
    fn enter(&mut self, id: u64, entry: Entry) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.session.enter(entry);
        }
    }

    fn connect(&mut self, now: Instant, address: &str) -> u64 {
        let id = self.next_session;
        self.next_session += 1;
        let session = Session::new(self.settings.session.clone(), self.settings.clock, now);
        self.connections.insert(
            id,
            Connection {
                session,
                address: address.into(),
                producers: BTreeMap::new(),
                consumers: BTreeMap::new(),
                dismissed: HashMap::default(),
                starved: BTreeSet::new(),
                behind: false,
                work: 0,
            },
        );
        id
    }

    fn disconnect(&mut self, now: Instant, id: u64) {
        self.now = now;
        let Some(connection) = self.connections.remove(&id) else { return };
        self.watchers.disconnect(id);
        for (producer, writer) in connection.producers {
            self.remove_producer(writer.topic, id, producer);
        }
        for (consumer, reader) in connection.consumers {
            self.detach(&reader, ConsumerKey { session: id, id: consumer });
        }
        self.pump();
    }

    fn handle_input(&mut self, now: Instant, id: u64, input: &mut BytesMut) -> Result<()> {
        self.now = now;
        self.peeks = PEEKS;
        let result = self.handle_commands(id, input);
        self.pump();
        result
    }

    fn handle_session_timeout(&mut self, now: Instant, id: u64) -> Result<()> {
        self.now = now;
        self.connections.get_mut(&id).map_or(Ok(()), |connection| connection.session.handle_timeout(now))
    }

    fn session_timeout(&self, id: u64) -> Option<Instant> {
        self.connections.get(&id)?.session.poll_timeout()
    }

    fn may_read(&mut self, id: u64) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return true };
        self.commits.may_read(id) && !connection.behind && connection.session.transmit().len() <= OUTPUT_LIMIT
    }

    fn finished(&self, _: u64) -> bool {
        false
    }

    fn take_output(&mut self, now: Instant, id: u64, output: &mut Transmit) {
        self.now = now;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        std::mem::swap(connection.session.transmit(), output);
        self.watchers.drained(now, id);
        if !connection.starved.is_empty() {
            self.due.append(&mut connection.starved);
            self.pump();
        }
    }

    fn poll_op(&mut self) -> Option<Op> {
        self.commits.poll_op()
    }

    fn set_permissions(&mut self, now: Instant, permissions: Arc<Permissions>) {
        self.now = now;
        self.change_permissions(permissions);
        self.pump();
    }

    fn poll_wake(&mut self) -> Option<u64> {
        self.wakes.pop_front()
    }

    fn handle_report(&mut self, now: Instant, report: Report) {
        self.now = now;
        self.commits.handle_report(report);
        while let Some(action) = self.commits.poll_action() {
            self.act(action);
        }
        self.wakes.extend(self.commits.take_resumed());
        self.pump();
    }

    fn set_clock(&mut self, clock: Clock) {
        self.settings.clock = clock;
        self.connections.values_mut().for_each(|connection| connection.session.set_clock(clock));
        self.due.extend(self.topics.keys());
        self.pump();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let topics = earliest(self.flush_at, self.watchers.due());
        let switch = self.switches.first().map(|(at, ..)| *at);
        earliest(Some(self.housekeeping_at), earliest(topics, earliest(self.delayed_at, switch)))
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if self.flush_at.is_some_and(|at| at <= now) {
            if self.commits.is_stalled() {
                // Cursors would pile up that no connection is charged for: the last state of each
                // is enough.
                self.flush_at = Some(now + CURSOR_DELAY);
            } else {
                self.flush_cursors();
            }
        }
        if self.watchers.due().is_some_and(|at| at <= now) {
            self.tell_watchers();
        }
        if self.delayed_at.is_some_and(|at| at <= now) {
            self.delayed_at = None;
            let topics =
                self.topics.values().filter(|t| t.subscriptions.values().any(|s| s.next_due().is_some()));
            self.due.extend(topics.map(|topic| topic.id));
        }
        while self.switches.first().is_some_and(|(at, ..)| *at <= now) {
            if let Some((_, topic, subscription)) = self.switches.pop_first() {
                self.elect(topic, &subscription);
            }
        }
        if self.housekeeping_at <= now {
            self.housekeeping_at = now + HOUSEKEEPING;
            self.keep_house();
            self.remove_idle();
            if self.run_at <= now {
                self.note_run();
            }
        }
        self.pump();
    }

    fn shut_down(&mut self, now: Instant) {
        self.now = now;
        self.flush_cursors();
        self.note_run();
    }

    fn used_bytes(&self) -> u64 {
        self.commits.used()
    }

    fn issued(&self) -> u64 {
        self.commits.issued()
    }

    fn written(&self) -> u64 {
        self.commits.written()
    }

    fn failure(&self) -> Option<&Error> {
        self.commits.failure()
    }

    fn stats(&self) -> ProtocolStats {
        self.stats()
    }

    fn client(&self, id: u64) -> ClientStats {
        let Some(connection) = self.connections.get(&id) else { return ClientStats::default() };
        ClientStats {
            admitted: connection.session.connected(),
            user: connection.session.user().map(str::to_owned),
            name: connection.session.client().to_owned(),
            producers: connection.producers.len(),
            consumers: connection.consumers.len(),
            ..ClientStats::default()
        }
    }

    fn held(&self, id: u64) -> usize {
        self.connections.get(&id).map_or(0, |connection| connection.session.queued())
    }

    fn set_tight(&mut self, tight: bool) {
        self.high_water = OUTPUT_HIGH_WATER / if tight { TIGHT } else { 1 };
    }

    fn handle_http(&mut self, now: Instant, request: &Request) -> Option<Answer> {
        self.answer_http(now, request)
    }

    fn topics(&self) -> Option<&dyn Topics> {
        Some(self)
    }

    fn topics_mut(&mut self) -> Option<&mut dyn Topics> {
        Some(self)
    }
}

impl Topics for Broker {
    fn create_topic(&mut self, name: &str, partitions: u32) -> Result<()> {
        self.create_topic(name, partitions)
    }

    fn grow_topic(&mut self, name: &str, partitions: u32) -> Result<()> {
        self.grow_topic(name, partitions)
    }

    fn delete_topic(&mut self, name: &str) -> Result<()> {
        self.delete_topic(name)
    }

    fn terminate_topic(&mut self, name: &str) -> Result<()> {
        self.terminate_topic(name)
    }

    fn list(&self) -> Vec<(String, u32)> {
        self.topics()
    }

    fn topic_stats(&self, name: &str) -> Result<TopicStats> {
        self.topic_stats(name)
    }
}

/// The protocol's error code for an error.
fn server_error(kind: ErrorKind) -> pb::ServerError {
    use pb::ServerError as S;
    match kind {
        ErrorKind::Metadata => S::MetadataError,
        ErrorKind::Persistence => S::PersistenceError,
        ErrorKind::ConsumerBusy => S::ConsumerBusy,
        ErrorKind::ConsumerAssign => S::ConsumerAssignError,
        ErrorKind::ServiceNotReady => S::ServiceNotReady,
        ErrorKind::QuotaExceeded => S::ProducerBlockedQuotaExceededException,
        ErrorKind::TopicNotFound => S::TopicNotFound,
        ErrorKind::TopicTerminated => S::TopicTerminatedError,
        ErrorKind::SubscriptionNotFound => S::SubscriptionNotFound,
        ErrorKind::TooManyRequests => S::TooManyRequests,
        ErrorKind::ProducerBusy => S::ProducerBusy,
        ErrorKind::ProducerFenced => S::ProducerFenced,
        ErrorKind::InvalidTopic => S::InvalidTopicName,
        ErrorKind::IncompatibleSchema => S::IncompatibleSchema,
        ErrorKind::NotAllowed => S::NotAllowedError,
        ErrorKind::Authorization => S::AuthorizationError,
        _ => S::UnknownError,
    }
}

fn error_command(request_id: u64, error: &Error) -> Command {
    Command::Error(pb::CommandError {
        request_id,
        error: server_error(error.kind()) as i32,
        message: error.message().to_owned(),
    })
}
