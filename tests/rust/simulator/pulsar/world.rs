//! One run: clients, network, broker and store, moved from event to event by one clock.
//!
//! * A message with a receipt is in the committed log, at the position in the receipt.
//! * The log holds each message once, and those of a producer in the order of the pushes.
//! * Each push ends in one outcome, in order; without a send timeout, in success.
//! * A consumer gets the messages of the log, each under one id, in the log's order where the
//!   subscription has one, and no message again that it acknowledged on the same connection.
//! * A seek redelivers the messages behind its target, all of them and only those.
//! * At the end each message of the log was delivered, nothing is pending, the subscription has no
//!   backlog (nor after a restart), and both sides count the same permits.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use forebay_base::compression::Compression;
use forebay_base::machine::{Machine, earliest};
use forebay_base::transmit::Transmit;
use forebay_broker::log::TopicIds;
use forebay_broker::protocol::{Clock, Protocol as _};
use forebay_broker::pulsar::session::SessionConfig;
use forebay_broker::pulsar::{Broker, options::SchemaCompatibility, options::Settings};
use forebay_broker::store::{Op, StoreUsage};
use forebay_pulsar::MessageId;
use forebay_pulsar::consumer::{self, Consumer};
use forebay_pulsar::pb::command_subscribe::SubType;
use forebay_pulsar::producer::{self, Producer};
use forebay_sqlite::{Outcome, Report};

use super::application::{WALL_MS, check_given, outcomes, push_some, settle};
use super::disk::{Disk, Name, Shelf, name_of};
use super::node::{Node, Opening, Reader, SUBSCRIPTION, TOPIC, Writer};
use crate::support::chance::Chance;
use crate::support::link::Link;

/// A run that is not complete by then hangs.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A link breaks.
    Cut,
    /// The broker is killed and loses uncommitted changes.
    Kill,
}

/// The parameters of the run.
#[derive(Debug)]
struct Weather {
    kind: SubType,
    index_ack: bool,
    max_batch: usize,
    receiver_queue: u32,
    send_timeout: Option<Duration>,
    max_message_size: usize,
    /// Longest delay of a piece of bytes, and of a commit, in microseconds.
    slowness: usize,
    commit: usize,
}

/// The state of a run.
pub(crate) struct World {
    chance: Chance,
    weather: Weather,
    start: Instant,
    now: Instant,
    disk: Rc<RefCell<Disk>>,
    broker: Option<Broker>,
    /// Number of the current run of the broker.
    run: u64,
    commits: VecDeque<(Instant, Vec<Op>)>,
    links: Vec<Link>,
    nodes: Vec<Node>,
    faults: VecDeque<(Instant, Fault)>,
    broker_again: Option<Instant>,
    tick: Instant,
    /// The id under which each message was delivered.
    given: BTreeMap<Name, MessageId>,
    /// The consumer that acknowledged it, and on which of its connections.
    acked: BTreeMap<Name, (u64, u64)>,
    hurry: bool,
    /// The messages delivered after a seek, and their expected number.
    order: Option<Vec<Name>>,
    expected: usize,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let start = Instant::now();
        let kind =
            [SubType::Exclusive, SubType::Failover, SubType::Shared, SubType::KeyShared][chance.below(4)];
        let single = matches!(kind, SubType::Exclusive | SubType::Failover);
        let chunking = single && chance.percent(20);
        let weather = Weather {
            kind,
            index_ack: chance.percent(50),
            max_batch: chance.within(1, 11),
            receiver_queue: chance.within(1, 21) as u32,
            send_timeout: chance.percent(30).then(|| Duration::from_millis(chance.within(500, 3000) as u64)),
            max_message_size: if chunking { 700 } else { 1 << 16 },
            slowness: chance.within(100, 20_000),
            commit: chance.within(1, 10_000),
        };
        let count = chance.within(1, 4);
        let mut nodes: Vec<Node> = (0..count).map(|_| Node::new(start)).collect();
        for who in 0..chance.within(1, 3) as u8 {
            let options = producer::Options {
                batching: chance.percent(75),
                batch_max_messages: weather.max_batch,
                batch_max_bytes: chance.within(200, 4000),
                batch_delay: Duration::from_millis(chance.within(1, 20) as u64),
                compression: [Compression::None, Compression::Lz4, Compression::Zstd, Compression::Snappy]
                    [chance.below(4)],
                send_timeout: weather.send_timeout,
                max_pending: chance.within(2, 50),
                chunking,
                key_based: kind == SubType::KeyShared,
                ..producer::Options::default()
            };
            let node = chance.below(count);
            nodes[node].writers.push(Writer {
                machine: Producer::new(u64::from(who), options),
                opening: Opening::new(start),
                id: u64::from(who),
                who,
                next: 0,
                quota: chance.within(5, 60) as u64,
                pending: VecDeque::new(),
                stored: Vec::new(),
                failed: 0,
            });
        }
        for id in 0..if kind == SubType::Exclusive { 1 } else { chance.within(1, 3) as u64 } {
            let options = consumer::Options {
                kind,
                receiver_queue: weather.receiver_queue,
                batch_index_ack: weather.index_ack,
                ack_group_time: Duration::from_millis(chance.within(1, 100) as u64),
                ack_group_max: chance.within(1, 20),
                nack_delay: Duration::from_millis(chance.within(10, 500) as u64).into(),
                topic: TOPIC.into(),
                ..consumer::Options::default()
            };
            let node = chance.below(count);
            nodes[node].readers.push(Reader {
                machine: Consumer::new(id, options),
                opening: Opening::new(start),
                id,
                kind,
                last: BTreeMap::new(),
                seeking: None,
                held: Vec::new(),
            });
        }
        let mut faults: Vec<_> = (0..chance.below(6))
            .map(|_| {
                let fault = if chance.percent(20) { Fault::Kill } else { Fault::Cut };
                (start + chance.micros(3_000_000), fault)
            })
            .collect();
        faults.sort_by_key(|(at, _)| *at);
        Self {
            weather,
            start,
            now: start,
            disk: Rc::new(RefCell::new(Disk::new(kind == SubType::KeyShared))),
            broker: None,
            run: 0,
            commits: VecDeque::new(),
            links: Vec::new(),
            nodes,
            faults: faults.into(),
            broker_again: Some(start),
            tick: start,
            given: BTreeMap::new(),
            acked: BTreeMap::new(),
            hurry: false,
            order: None,
            expected: 0,
            chance,
        }
    }

    pub(crate) fn run(mut self) -> Result<(), String> {
        self.until(Self::done)?;
        // Behind the middle of a chunked message there is only its rest.
        let chunking = self.weather.max_message_size < 1000;
        if self.weather.kind == SubType::Exclusive && !chunking {
            self.until(|world| world.done() && world.links.iter().all(|link| !link.is_broken()))?;
            self.look_back()?;
        }
        self.check_end()
    }

    /// A seek redelivers everything behind its target, in order and once, and nothing before it.
    fn look_back(&mut self) -> Result<(), String> {
        let mut ids: Vec<(MessageId, Name)> = self.given.iter().map(|(name, id)| (*id, *name)).collect();
        ids.sort_unstable();
        if ids.is_empty() {
            return Ok(());
        }
        let at = self.chance.below(ids.len());
        let inclusive = self.chance.percent(50);
        let node = self.nodes.iter().position(|node| !node.readers.is_empty()).expect("a consumer");
        self.nodes[node].seek(self.now, ids[at].0, inclusive);
        self.order = Some(Vec::new());
        self.expected = ids.len() - at - usize::from(!inclusive);
        self.until(|world| {
            let sought = world.nodes.iter().flat_map(|n| &n.readers).all(|r| r.seeking.is_none());
            let given = world.order.as_ref().map_or(0, Vec::len);
            sought && given >= world.expected && world.done()
        })?;
        let order = self.order.take().unwrap_or_default();
        let wanted = &ids[ids.len() - self.expected..];
        if !order.iter().eq(wanted.iter().map(|(_, name)| name)) {
            return Err(format!(
                "a seek to {} (inclusive: {inclusive}) gave {order:?}, not {wanted:?}",
                ids[at].0
            ));
        }
        Ok(())
    }

    fn until(&mut self, done: fn(&Self) -> bool) -> Result<(), String> {
        let limit = self.now + PATIENCE;
        while !done(self) {
            if self.now > limit {
                return Err(format!("not done: {}", self.story()));
            }
            self.step()
                .map_err(|what| format!("at {:?}: {what}\n{:?}", self.now - self.start, self.weather))?;
        }
        Ok(())
    }

    /// Moves to the next event.
    fn step(&mut self) -> Result<(), String> {
        let mut next = Some(self.tick);
        next = earliest(next, self.faults.front().map(|(at, _)| *at));
        next = earliest(next, self.broker_again);
        next = earliest(next, self.commits.front().map(|(at, _)| *at));
        for link in &self.links {
            next = earliest(next, link.next());
            next = earliest(
                next,
                self.broker.as_ref().and_then(|broker| broker.session_timeout(link.session.1)),
            );
        }
        next = earliest(next, self.broker.as_ref().and_then(Broker::poll_timeout));
        for node in &self.nodes {
            next = earliest(next, node.next());
        }
        // Time advances, however often something is due at once.
        self.now = next.unwrap_or(self.now).max(self.now + Duration::from_micros(1));
        self.nature();
        self.broker()?;
        for index in 0..self.nodes.len() {
            self.client(index)?;
        }
        self.broker_output()?;
        self.links.retain(|link| !(link.client_gone && link.broker_gone));
        if self.tick <= self.now {
            self.tick = self.now
                + Duration::from_millis(5)
                + self.chance.micros(if self.hurry { 20_000 } else { 150_000 });
            self.hurry = self.faults.is_empty()
                && self.nodes.iter().flat_map(|n| &n.writers).all(|w| w.next == w.quota);
            self.applications()?;
        }
        Ok(())
    }

    fn nature(&mut self) {
        while self.faults.front().is_some_and(|(at, _)| *at <= self.now) {
            match self.faults.pop_front() {
                Some((_, Fault::Cut)) if !self.links.is_empty() => {
                    let link = self.chance.below(self.links.len());
                    self.links[link].cut(self.now, &mut self.chance);
                }
                Some((_, Fault::Kill)) if self.broker.is_some() => self.kill(),
                _ => {}
            }
        }
        if self.broker_again.is_some_and(|at| at <= self.now) {
            self.broker_again = None;
            self.start_broker();
        }
    }

    fn start_broker(&mut self) {
        self.run += 1;
        let found = self.disk.borrow().found();
        let settings = Settings {
            urls: vec!["pulsar://simulated:6650".into()],
            web_urls: Vec::new(),
            session: SessionConfig {
                max_message_size: self.weather.max_message_size,
                keep_alive: Duration::from_secs(2),
                tokens: None,
            },
            clock: Clock::new(self.start, WALL_MS),
            stored: true,
            auto_create: true,
            partitions: 0,
            namespaces: vec!["public/default".into()],
            deduplicate: true,
            schema_compatibility: SchemaCompatibility::default(),
            retention: Duration::from_secs(3600),
            retention_bytes: 1 << 30,
            usage: StoreUsage::default(),
            max_store: 1 << 40,
            max_topics: 10,
            topic_ids: TopicIds::new(found.next_topic),
            permissions: None,
            owners: false,
        };
        let source = Some(Box::new(Shelf(Rc::clone(&self.disk))) as _);
        self.broker = Some(Broker::new(settings, found, source, self.now));
    }

    fn kill(&mut self) {
        self.broker = None;
        self.commits.clear();
        for link in self.links.iter_mut().filter(|link| !link.broker_gone) {
            link.close_broker(self.now, &mut self.chance);
        }
        self.broker_again = Some(self.now + self.chance.micros(500_000));
    }

    fn broker(&mut self) -> Result<(), String> {
        let Some(broker) = &mut self.broker else { return Ok(()) };
        while self.commits.front().is_some_and(|(at, _)| *at <= self.now) {
            let Some((_, ops)) = self.commits.pop_front() else { break };
            let jobs = ops.len() as u64;
            for op in ops {
                self.disk.borrow_mut().commit(op)?;
            }
            broker.handle_report(
                self.now,
                Report { jobs, outcome: Outcome::Written(self.disk.borrow().bytes()) },
            );
        }
        if broker.poll_timeout().is_some_and(|at| at <= self.now) {
            broker.handle_timeout(self.now);
        }
        for link in self.links.iter_mut().filter(|link| !link.broker_gone) {
            let id = link.session.1;
            if broker.session_timeout(id).is_some_and(|at| at <= self.now)
                && let Err(error) = broker.handle_session_timeout(self.now, id)
            {
                if !link.is_broken() {
                    return Err(format!("the broker hung up: {error}"));
                }
                broker.disconnect(self.now, id);
                link.close_broker(self.now, &mut self.chance);
                continue;
            }
            if link.up.read(self.now, &mut link.input) {
                broker
                    .handle_input(self.now, id, &mut link.input)
                    .map_err(|e| format!("the broker hung up: {e}"))?;
            }
            if link.broker_end.is_some_and(|at| at <= self.now) {
                broker.disconnect(self.now, id);
                link.close_broker(self.now, &mut self.chance);
            }
        }
        Ok(())
    }

    /// Passes changes to the store and answers to the network.
    fn broker_output(&mut self) -> Result<(), String> {
        let Some(broker) = &mut self.broker else { return Ok(()) };
        let mut ops = Vec::new();
        while let Some(op) = broker.poll_op() {
            ops.push(op);
        }
        if !ops.is_empty() {
            let before = self.commits.back().map_or(self.now, |(at, _)| *at);
            self.commits.push_back((before.max(self.now + self.chance.micros(self.weather.commit)), ops));
        }
        while broker.poll_wake().is_some() {}
        for link in self.links.iter_mut().filter(|link| !link.broker_gone) {
            let mut output = Transmit::default();
            broker.take_output(self.now, link.session.1, &mut output);
            link.down.write(self.now, output.take().freeze(), self.weather.slowness, &mut self.chance);
        }
        Ok(())
    }

    fn client(&mut self, index: usize) -> Result<(), String> {
        let (now, chance) = (self.now, &mut self.chance);
        let node = &mut self.nodes[index];
        if node.connection.is_none() && node.again.is_some_and(|at| at <= now) {
            match &mut self.broker {
                Some(broker) => {
                    self.links.push(Link::new(index, (self.run, broker.connect(now, "simulated"))));
                    node.connect(now);
                }
                None => node.again = Some(now + Duration::from_millis(10) + chance.micros(100_000)),
            }
        }
        let mut over = None;
        if let Some(link) = self.links.iter_mut().find(|link| link.node == index && !link.client_gone) {
            if link.down.read(now, &mut node.input) {
                over = node.read(now, chance)?.err();
            }
            if over.is_none() {
                over = node.turn(now, chance)?.err();
            }
            if let Some(connection) = &mut node.connection {
                let bytes = connection.transmit().take().freeze();
                link.up.write(now, bytes, self.weather.slowness, chance);
            }
            let ended = link.client_end.is_some_and(|at| at <= now);
            if let Some(error) = over.as_ref().filter(|_| !link.is_broken()) {
                return Err(format!("the client hung up: {error}"));
            }
            if ended || over.is_some() {
                link.close_client(now, chance);
                node.disconnected(now, chance)?;
            }
        } else if let Err(error) = node.turn(now, chance)? {
            return Err(format!("without a connection: {error}"));
        }
        for writer in &mut node.writers {
            outcomes(writer, &self.disk.borrow(), self.weather.send_timeout.is_some())?;
        }
        Ok(())
    }

    fn applications(&mut self) -> Result<(), String> {
        let hurry = self.hurry;
        for node in &mut self.nodes {
            for writer in &mut node.writers {
                push_some(writer, self.now, self.weather.max_message_size < 1000, &mut self.chance)?;
            }
            for reader in &mut node.readers {
                let most = self.weather.receiver_queue as usize + self.weather.max_batch - 1;
                let outstanding = reader.machine.outstanding_permits();
                if reader.machine.available() > most
                    || outstanding > i64::from(self.weather.receiver_queue)
                    || outstanding <= -(self.weather.max_batch as i64)
                {
                    return Err(format!(
                        "{} messages wait, {outstanding} permits",
                        reader.machine.available()
                    ));
                }
                let mut messages: Vec<forebay_pulsar::Message> = Vec::new();
                let many = if hurry { 1000 } else { self.chance.below(12) };
                reader.machine.take(many, &mut messages);
                for message in messages {
                    let name = name_of(&message.payload)?;
                    check_given(reader, &message, name, &self.disk.borrow(), &mut self.given)?;
                    // A batch with one negative acknowledgement is redelivered with the messages
                    // that were open then.
                    let together = self.weather.kind == SubType::Shared && self.weather.max_batch > 1;
                    if !together && self.acked.get(&name) == Some(&(reader.id, reader.opening.generation)) {
                        return Err(format!("{name:?} was given again after its acknowledgement"));
                    }
                    reader.held.push((message.id, name, reader.opening.generation));
                    self.order.iter_mut().for_each(|order| order.push(name));
                }
                let cumulative = self.weather.max_message_size > 1000;
                settle(reader, self.now, (hurry, cumulative), &mut self.acked, &mut self.chance);
            }
        }
        Ok(())
    }

    fn done(&self) -> bool {
        let quiet = self.hurry && self.commits.is_empty();
        let written = self.nodes.iter().flat_map(|n| &n.writers).all(|w| w.machine.is_idle());
        let read = || {
            self.nodes
                .iter()
                .flat_map(|n| &n.readers)
                .all(|r| r.held.is_empty() && r.machine.available() == 0)
                && self.disk.borrow().messages.keys().all(|name| self.given.contains_key(name))
        };
        quiet && written && read() && self.backlog() == Some(0) && self.permits_agree()
    }

    fn backlog(&self) -> Option<u64> {
        let stats = self.broker.as_ref()?.topic_stats(TOPIC).ok()?;
        stats.subscriptions.iter().find(|s| s.name == SUBSCRIPTION).map(|s| s.backlog)
    }

    /// Both sides count the same permits once all bytes have arrived.
    fn permits_agree(&self) -> bool {
        let Some(Ok(stats)) = self.broker.as_ref().map(|broker| broker.topic_stats(TOPIC)) else {
            return false;
        };
        let consumers: Vec<_> = stats.subscriptions.iter().flat_map(|s| &s.consumers).collect();
        self.nodes.iter().flat_map(|n| &n.readers).all(|reader| {
            let name = format!("c{}", reader.id);
            let mut theirs = consumers.iter().filter(|c| c.name == name);
            reader.opening.attached
                && theirs.next().is_some_and(|c| c.permits == reader.machine.outstanding_permits())
                && theirs.next().is_none()
        })
    }

    fn check_end(&mut self) -> Result<(), String> {
        for writer in self.nodes.iter().flat_map(|n| &n.writers) {
            if (writer.stored.len() + writer.failed) as u64 != writer.next
                || writer.machine.pending_bytes() != 0
            {
                return Err(format!("pushes of {} without an outcome", writer.who));
            }
            if self.weather.send_timeout.is_none() && writer.failed > 0 {
                return Err(format!("{} messages of {} failed", writer.failed, writer.who));
            }
        }
        // After an orderly end the broker knows every acknowledgement.
        if let Some(broker) = &mut self.broker {
            broker.shut_down(self.now);
            while let Some(op) = broker.poll_op() {
                self.disk.borrow_mut().commit(op)?;
            }
        }
        self.start_broker();
        match self.backlog() {
            Some(0) => Ok(()),
            other => Err(format!("after a restart the backlog is {other:?}")),
        }
    }

    fn story(&self) -> String {
        let disk = self.disk.borrow();
        let missing: Vec<_> = disk.messages.keys().filter(|name| !self.given.contains_key(name)).collect();
        let writers: Vec<_> = self
            .nodes
            .iter()
            .flat_map(|n| &n.writers)
            .map(|w| (w.who, w.opening.attached, w.next, w.quota, w.stored.len(), w.failed, w.pending.len()))
            .collect();
        let readers: Vec<_> = self
            .nodes
            .iter()
            .flat_map(|n| &n.readers)
            .map(|r| {
                (
                    r.id,
                    r.opening.attached,
                    r.held.len(),
                    r.machine.available(),
                    r.machine.outstanding_permits(),
                )
            })
            .collect();
        let stats = self.broker.as_ref().map(|broker| broker.topic_stats(TOPIC));
        format!(
            "{:?}\nnot given {missing:?}\nwriters {writers:?}\nreaders {readers:?}\n{stats:?}",
            self.weather
        )
    }
}
