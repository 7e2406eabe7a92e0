//! Producers and groups of consumers of TubeMQ: every push ends in one outcome, what is
//! acknowledged reaches every group, in order for each key where no broker has refused a message; a
//! group moves over nothing that its application has not acknowledged, and never back unless it
//! seeks; a member reads nothing of a partition that another has taken; every future ends.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::error::{Error, ErrorKind};
use forebay_broker::{Listener, Options, TubeMqOptions};
use forebay_client::credentials::Secret;
use forebay_client::events::Receipt;
use forebay_client::tubemq::options::{ClientOptions, ConsumerOptions, ProducerOptions};
use forebay_client::tubemq::{Client, Consumer, Outgoing, Producer, SeekTo};
use forebay_tubemq::balance::Balance;
use forebay_tubemq::consumer::{Message, Phase, Start};
use forebay_tubemq::producer::Position;
use tokio::task::JoinHandle;

use super::events::{Fate, Ready, Sink, slot};
use super::faults::Swarm;
use super::host::{self, Host, Run, Setting, ends, linger, settles, violate};
use super::network::Tap;
use super::{Seeds, Table, taking, trace};
use crate::pulsar::disk::{Name, name_of, payload};
use crate::support::chance::Chance;

mod leases;

use leases::{Place, Watch};

pub(super) const PORT: u16 = 8715;
const BEFORE: &str = "before the first call";
const KEYS: [&str; 4] = ["a", "b", "c", "d"];
/// Types of messages; some groups want only the first.
const TYPES: [&str; 2] = ["till", "web"];
/// Those that once failed: the time in which no broker could be asked counted as a refusal of the
/// visit token (348).
const SEEDS: Seeds = Seeds { count: 400, once_failed: &[6, 33, 348], twice: 25 };
/// The last call that a client has sent, in every fault.
const TABLE: Table = Table {
    states: &[
        "ProducerRegister",
        "ProducerHeartbeat",
        "ProducerClose",
        "SendMessage",
        "ConsumerRegister",
        "ConsumerHeartbeat",
        "ConsumerClose",
        "BalanceRegister",
        "BalanceHeartbeat",
        "PartitionMetadata",
        "PartitionRegister",
        "PartitionHeartbeat",
        "GetMessages",
        "CommitOffset",
    ],
    except: &[],
    rare: &[(BEFORE, "a connection is opened for a producer that has nothing to send yet")],
};
/// Virtual seconds within which everything settles once it is healed.
const PATIENCE: u64 = 300;

pub(super) fn tap(_: u16) -> Option<Box<dyn Tap>> {
    Some(Box::<Watch>::default())
}

#[derive(Debug)]
struct Push {
    fate: Fate,
    topic: usize,
    key: Option<usize>,
    kind: Option<usize>,
    /// Number of the producer's handle. Messages of a handle with the same key keep their order.
    handle: u32,
}

struct Group {
    name: String,
    topics: Vec<usize>,
    /// Whether it receives messages of the first type only.
    filtered: bool,
    balance: Share,
    auto_ack: bool,
    seeks: bool,
}

/// How the members share the partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// Each takes what is free.
    Free,
    /// Each has a fixed share.
    Fixed(u32),
    /// The master distributes them.
    Master,
}

#[derive(Default)]
struct Progress {
    received: BTreeSet<Name>,
    acknowledged: BTreeSet<Name>,
    /// The last first arrival of a producer's handle and key.
    last: BTreeMap<(u8, u32, usize), u64>,
    /// The partitions that each open member says it holds.
    held: BTreeMap<usize, BTreeSet<(Arc<str>, u32)>>,
}

#[derive(Default)]
struct Ledger {
    pushes: BTreeMap<Name, Push>,
    /// What is stored at an offset of a partition.
    stored: BTreeMap<(usize, u32, i64), Name>,
    /// The partition of a key.
    partitions: BTreeMap<(usize, usize), u32>,
    groups: Vec<Progress>,
}

struct World {
    host: Rc<Host>,
    /// Names and numbers of partitions.
    topics: Vec<(String, u32)>,
    groups: Vec<Group>,
    /// Least and most messages of a producer, which goes on until everything is healed.
    quota: (u64, u64),
    /// Longest pause of a producer between two bursts, in microseconds.
    pace: usize,
    client: ClientOptions,
    drops: bool,
    timeouts: bool,
    ledger: RefCell<Ledger>,
    healed: Cell<bool>,
    draining: Cell<bool>,
    done: Cell<bool>,
}

/// Errors that say that something is wrong with the engine and not with network, broker or disk.
fn check_error(what: &str, error: &Error) {
    if matches!(
        error.kind(),
        ErrorKind::Protocol
            | ErrorKind::InvalidArgument
            | ErrorKind::FrameTooLarge
            | ErrorKind::NotAllowed
            | ErrorKind::Unsupported
    ) {
        violate(format!("{what}: {error}"));
    }
}

impl World {
    async fn connect(&self, chance: &mut Chance) -> Option<Client> {
        let connect = async || Client::connect(self.client.clone()).await;
        host::opened((60, "connect"), 300_000, chance, check_error, connect).await
    }

    async fn open_producer(
        &self,
        topic: usize,
        client: &Client,
        sink: &Arc<Sink<Name>>,
        chance: &mut Chance,
    ) -> Option<Producer> {
        let options = ProducerOptions {
            max_pending: chance.within(1, 60),
            send_timeout: self.timeouts.then_some(Duration::from_secs(3)),
            message_type: None,
        };
        let name = &self.topics[topic].0;
        let open = async || client.producer(name, options.clone(), sink.clone()).await;
        host::opened((90, "opening a producer"), 500_000, chance, check_error, open).await
    }

    /// Notes where a message is stored. Nothing else is there, and its key is in one partition
    /// only.
    fn store(&self, name: Name, at: Position) {
        let mut ledger = self.ledger.borrow_mut();
        let push = &ledger.pushes[&name];
        let (topic, key, selected) = (push.topic, push.key, push.kind == Some(0));
        if let Some(other) = ledger.stored.insert((topic, at.partition, at.offset), name) {
            violate(format!("{name:?} is stored at {at:?}, and so is {other:?}"));
        }
        if let Some(key) = key {
            let known = *ledger.partitions.entry((topic, key)).or_insert(at.partition);
            if known != at.partition {
                violate(format!("{name:?} is in partition {}, and its key in {known}", at.partition));
            }
        }
        let place = (self.topics[topic].0.clone(), at.partition);
        leases::stored(&place, at.offset, at.message_id, selected);
    }

    fn settle(&self, who: u8, sink: &Sink<Name>) {
        for (names, result) in sink.outcomes() {
            for name in &names {
                let mut ledger = self.ledger.borrow_mut();
                let push = ledger.pushes.get_mut(name).expect("pushed");
                if push.fate != Fate::Pending {
                    violate(format!("{name:?} has a second outcome"));
                }
                push.fate = if result.is_ok() { Fate::Stored } else { Fate::Unknown };
                drop(ledger);
                match &result {
                    Ok(Receipt::Position(at)) => self.store(*name, *at),
                    Ok(other) => violate(format!("{name:?} has the receipt {other:?}")),
                    Err(_) => {}
                }
            }
            match result {
                Ok(receipt) => trace::event(format_args!("producer {who}: {names:?} at {receipt:?}")),
                Err(error) => {
                    trace::event(format_args!("producer {who}: {names:?} failed: {error}"));
                    if !matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Closed) {
                        violate(format!("{names:?} failed: {error}"));
                    }
                }
            }
        }
        sink.check_end(&format!("producer {who}"));
    }

    fn wants_more(&self, next: u64) -> bool {
        next < self.quota.0 || !self.healed.get() && next < self.quota.1
    }

    async fn produce(self: Rc<Self>, who: u8, mut chance: Chance) {
        let Some(mut client) = self.connect(&mut chance).await else { return };
        let topic = who as usize % self.topics.len();
        let (mut next, mut handle) = (0, 0);
        while self.wants_more(next) && !host::is_violated() {
            let sink = Arc::new(Sink::default());
            let Some(producer) = self.open_producer(topic, &client, &sink, &mut chance).await else { return };
            handle += 1;
            trace::event(format_args!("producer {who} is open, handle {handle}"));
            let until = if self.drops { next + chance.within(5, 80) as u64 } else { u64::MAX };
            let until = until.min(self.quota.1);
            while next < until && self.wants_more(next) && !host::is_violated() {
                let mut full = false;
                for _ in 0..chance.within(1, 12).min((until - next) as usize) {
                    let name = (who, next);
                    let key = chance.percent(60).then(|| chance.below(KEYS.len()));
                    let kind = chance.percent(80).then(|| chance.below(TYPES.len()));
                    let bytes = payload(name, chance.below(300));
                    let message = Outgoing {
                        payload: &bytes,
                        key: key.map(|key| KEYS[key]),
                        message_type: kind.map(|kind| TYPES[kind]),
                        ..Outgoing::default()
                    };
                    let Some(slot) = slot(&name, producer.push(&message, chance.percent(30))) else {
                        full = true;
                        break;
                    };
                    let push = Push { fate: Fate::Pending, topic, key, kind, handle };
                    self.ledger.borrow_mut().pushes.insert(name, push);
                    sink.pushed(slot, name);
                    next += 1;
                }
                if full {
                    if settles(&self.healed, PATIENCE, sink.changed.notified()).await.is_none() {
                        violate(format!("producer {who} waits for room for ever"));
                    }
                } else {
                    let most = if chance.percent(10) { 2_000_000 } else { self.pace };
                    tokio::time::sleep(chance.micros(most)).await;
                }
                self.settle(who, &sink);
            }
            if self.drops && self.wants_more(next) && chance.percent(40) {
                trace::event(format_args!("producer {who} is dropped"));
                drop(producer);
            } else {
                self.flush(who, &producer, &sink).await;
                let close = ends(PATIENCE, "close of a producer", producer.close(true)).await;
                if let Ok(Err(error)) = close.inspect_err(|late| violate(late.clone())) {
                    check_error("close of a producer", &error);
                }
            }
            self.settle(who, &sink);
            let unanswered = sink.unanswered();
            if !unanswered.is_empty() && !host::is_violated() {
                violate(format!("{unanswered:?} have no outcome, and their producer has ended"));
            }
            if self.drops && self.wants_more(next) && chance.percent(20) {
                let _ = ends(PATIENCE, "close of a client", client.close()).await.map_err(violate);
                let Some(again) = self.connect(&mut chance).await else { return };
                client = again;
            }
        }
        if client.memory_used() != 0 && !host::is_violated() {
            violate(format!("producer {who} is done, and {} bytes wait", client.memory_used()));
        }
        let _ = ends(PATIENCE, "close of a client", client.close()).await.map_err(violate);
        trace::event(format_args!("producer {who} is done"));
    }

    async fn flush(&self, who: u8, producer: &Producer, sink: &Sink<Name>) {
        let answered = async {
            while producer.pending() > 0 && !host::is_violated() {
                sink.changed.notified().await;
                self.settle(who, sink);
            }
        };
        if settles(&self.healed, PATIENCE, answered).await.is_none() {
            violate(format!("producer {who} has {} without an outcome", producer.pending()));
        }
    }

    fn receive(&self, at: usize, member: usize, message: &Message) -> Option<Name> {
        let name = match name_of(&message.payload) {
            Ok(name) => name,
            Err(broken) => {
                violate(broken);
                return None;
            }
        };
        let mut ledger = self.ledger.borrow_mut();
        let Ledger { pushes, groups, .. } = &mut *ledger;
        let Some(push) = pushes.get(&name) else {
            violate(format!("{name:?} was received and never pushed"));
            return None;
        };
        let group = &self.groups[at];
        let (key, kind) = (push.key.map(|key| KEYS[key]), push.kind.map(|kind| TYPES[kind]));
        if message.attributes.key().as_deref() != key || message.attributes.message_type() != kind {
            violate(format!("{name:?} came with {:?}, and not {key:?} and {kind:?}", message.attributes));
        }
        if *message.pack.location.topic != *self.topics[push.topic].0 || !group.topics.contains(&push.topic) {
            violate(format!("{name:?} came in the topic {}", message.pack.location.topic));
        }
        if group.filtered && push.kind != Some(0) {
            violate(format!("{name:?} of the type {kind:?} came to a group that filters"));
        }
        trace::event(format_args!(
            "member {at}.{member} gets {name:?} of {}:{}",
            message.pack.location.topic, message.pack.location.partition.id
        ));
        let progress = &mut groups[at];
        if progress.received.insert(name)
            && push.fate != Fate::Unknown
            && let Some(key) = push.key
            && !leases::has_refused(&(self.topics[push.topic].0.clone(), message.pack.location.partition.id))
        {
            let last = progress.last.insert((name.0, push.handle, key), name.1);
            if let Some(last) = last.filter(|last| *last > name.1) {
                violate(format!("{name:?} came to group {at} behind {last}"));
            }
        }
        Some(name)
    }

    async fn open_consumer(
        &self,
        (at, member): (usize, usize),
        client: &Client,
        ready: &Arc<Ready>,
        chance: &mut Chance,
    ) -> Option<Consumer> {
        let group = &self.groups[at];
        let topics: Vec<String> = group.topics.iter().map(|topic| self.topics[*topic].0.clone()).collect();
        let filters = topics.iter().filter(|_| group.filtered);
        let options = ConsumerOptions {
            start: Start::First,
            filters: filters.map(|topic| (topic.clone(), [TYPES[0].to_owned()].into())).collect(),
            balance: match group.balance {
                Share::Free => Balance::Client(None),
                Share::Fixed(count) => Balance::Client(Some((count, member as u32))),
                Share::Master => Balance::Server,
            },
            auto_ack: group.auto_ack,
            nack_delay: chance.micros(2_000_000),
            poll_interval: Duration::from_millis(chance.within(50, 500) as u64),
            ..ConsumerOptions::default()
        };
        let opening = client.consumer(topics, group.name.clone(), options, ready.clone());
        match ends(120, "opening a consumer", opening).await {
            Ok(Ok(consumer)) => return Some(consumer),
            Ok(Err(error)) => {
                trace::event(format_args!("member {at}.{member} is not opened: {error}"));
                check_error("consumer", &error);
                tokio::time::sleep(chance.micros(1_000_000)).await;
            }
            Err(late) => violate(late),
        }
        None
    }

    async fn consume(self: Rc<Self>, at: usize, member: usize, mut chance: Chance) {
        let Some(client) = self.connect(&mut chance).await else { return };
        while !self.done.get() && !host::is_violated() {
            let ready = Arc::new(Ready::default());
            let opened = self.open_consumer((at, member), &client, &ready, &mut chance).await;
            let Some(consumer) = opened else { continue };
            trace::event(format_args!("member {at}.{member} is open"));
            let lives = if self.drops { chance.within(1, 400) } else { usize::MAX };
            self.take((at, member), &consumer, &ready, lives, &mut chance).await;
            self.ledger.borrow_mut().groups[at].held.remove(&member);
            if let Some(error) = ready.end() {
                violate(format!("member {at}.{member} ended for good: {error}"));
            }
            if self.done.get() || chance.percent(60) {
                trace::event(format_args!("member {at}.{member} closes"));
                let close = ends(60, "close of a consumer", consumer.close()).await;
                if let Ok(Err(error)) = close.inspect_err(|late| violate(late.clone())) {
                    check_error("close of a consumer", &error);
                }
            } else {
                trace::event(format_args!("member {at}.{member} is dropped"));
            }
        }
        let _ = ends(60, "close of a client", client.close()).await.map_err(violate);
    }

    /// Takes messages from a consumer until it has lived.
    async fn take(
        &self,
        (at, member): (usize, usize),
        consumer: &Consumer,
        ready: &Ready,
        lives: usize,
        chance: &mut Chance,
    ) {
        let (mut taken, mut spins, mut paused) = (0, 0, false);
        let mut held: Vec<(Message, Name)> = Vec::new();
        while !self.done.get() && !host::is_violated() && (taken < lives || self.draining.get()) {
            let mut messages: Vec<Message> = Vec::new();
            match taking::take(consumer, self.groups[at].auto_ack, chance, &mut messages) {
                Ok(0) => {
                    spins += 1;
                    if consumer.arm() {
                        spins = 0;
                        let _ = tokio::time::timeout(Duration::from_secs(1), ready.notify.notified()).await;
                    }
                    if spins > 100 {
                        return violate(format!(
                            "{} messages are there, none is given",
                            consumer.available()
                        ));
                    }
                }
                Ok(count) => taken += count,
                Err(error) => return violate(format!("a consumer ended for good: {error}")),
            }
            for message in messages {
                if let Some(name) = self.receive(at, member, &message) {
                    if self.groups[at].auto_ack {
                        self.acknowledged(at, &message, name);
                    } else {
                        held.push((message, name));
                    }
                }
            }
            self.acknowledge(at, consumer, &mut held, chance);
            self.note_held(at, member, consumer);
            if self.draining.get() {
                if std::mem::take(&mut paused) {
                    consumer.set_paused(None, false).unwrap_or_else(|error| violate(error.to_string()));
                }
            } else if chance.percent(2) {
                paused = !paused;
                consumer.set_paused(None, paused).unwrap_or_else(|error| violate(error.to_string()));
            } else if self.groups[at].seeks && chance.percent(1) {
                trace::event(format_args!("group {at} goes back"));
                match ends(60, "a seek", consumer.seek(SeekTo::All(Start::First))).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => check_error("seek", &error),
                    Err(late) => violate(late),
                }
            } else if chance.percent(10) {
                tokio::time::sleep(chance.micros(1_500_000)).await;
            }
        }
    }

    /// Notes which partitions a member says it holds.
    fn note_held(&self, at: usize, member: usize, consumer: &Consumer) {
        let states = consumer.partitions().into_iter();
        let held = states.filter(|state| matches!(state.phase, Phase::Reading | Phase::Paused));
        let held = held.map(|state| (state.topic, state.partition.id)).collect();
        self.ledger.borrow_mut().groups[at].held.insert(member, held);
    }

    fn acknowledged(&self, at: usize, message: &Message, name: Name) {
        self.ledger.borrow_mut().groups[at].acknowledged.insert(name);
        leases::acknowledged(&self.groups[at].name, message.message_id);
    }

    fn acknowledge(
        &self,
        at: usize,
        consumer: &Consumer,
        held: &mut Vec<(Message, Name)>,
        chance: &mut Chance,
    ) {
        let all = self.draining.get();
        let mut result = Ok(());
        if !all && chance.percent(5) {
            result = result.and(consumer.redeliver_unacknowledged());
            held.clear();
        } else if !all && chance.percent(20) {
            // A message and all before it in its partition, as far as they are in its pack.
            if let Some((last, _)) = held.last().cloned() {
                let mut of = held.iter().filter(|(message, _)| Arc::ptr_eq(&message.pack, &last.pack));
                of.by_ref().for_each(|(message, name)| self.acknowledged(at, message, *name));
                result = result.and(consumer.ack_cumulative(&last));
                held.retain(|(message, _)| !Arc::ptr_eq(&message.pack, &last.pack));
            }
        } else {
            let (mut now, mut back) = (Vec::new(), Vec::new());
            for (message, name) in std::mem::take(held) {
                if all || chance.percent(70) {
                    self.acknowledged(at, &message, name);
                    now.push(message);
                } else if chance.percent(20) {
                    back.push(message);
                } else {
                    held.push((message, name));
                }
            }
            result = result.and(consumer.ack(&now)).and(consumer.nack(&back, None));
        }
        if let Err(error) = result {
            violate(format!("an acknowledgement was refused: {error}"));
        }
    }

    /// A client that comes and goes with a producer or a consumer of its own topic, and lingers at
    /// each step.
    async fn visit(self: Rc<Self>, mut chance: Chance) {
        let sink = Arc::new(Sink::<Name>::default());
        while !self.healed.get() && !host::is_violated() {
            let Some(client) = self.connect(&mut chance).await else { return };
            for _ in 0..chance.within(1, 5) {
                if chance.percent(50) {
                    let opening = client.producer("visited", ProducerOptions::default(), sink.clone());
                    let Some(producer) =
                        linger("opening a producer", &mut chance, check_error, opening).await
                    else {
                        continue;
                    };
                    linger("close of a producer", &mut chance, check_error, producer.close(true)).await;
                } else {
                    let ready = Arc::new(Ready::default());
                    let opening = client.consumer(
                        vec!["visited".into()],
                        "visitors".into(),
                        ConsumerOptions::default(),
                        ready,
                    );
                    let Some(consumer) =
                        linger("opening a consumer", &mut chance, check_error, opening).await
                    else {
                        continue;
                    };
                    linger("close of a consumer", &mut chance, check_error, consumer.close()).await;
                }
            }
            let _ = ends(PATIENCE, "close of a visitor", client.close()).await.map_err(violate);
        }
    }

    /// Messages that are stored and that a group has not acknowledged.
    fn missing(&self) -> Vec<(usize, Name)> {
        let ledger = self.ledger.borrow();
        let mut missing = Vec::new();
        for (at, group) in self.groups.iter().enumerate() {
            for (name, push) in &ledger.pushes {
                let wants = group.topics.contains(&push.topic) && (!group.filtered || push.kind == Some(0));
                if push.fate == Fate::Stored && wants && !ledger.groups[at].acknowledged.contains(name) {
                    missing.push((at, *name));
                }
            }
        }
        missing
    }

    /// Partitions of groups that no member holds, or more than one.
    fn disputed(&self) -> Vec<(usize, Place, usize)> {
        let ledger = self.ledger.borrow();
        let mut disputed = Vec::new();
        for (at, group) in self.groups.iter().enumerate() {
            for topic in &group.topics {
                let (name, count) = &self.topics[*topic];
                for id in 0..*count {
                    let key = (Arc::from(name.as_str()), id);
                    let holders = ledger.groups[at].held.values().filter(|held| held.contains(&key)).count();
                    if holders != 1 {
                        disputed.push((at, (name.clone(), id), holders));
                    }
                }
            }
        }
        disputed
    }

    /// Messages that a group has not consumed, over all topics.
    async fn backlog(&self) -> u64 {
        let Some(broker) = self.host.broker() else { return u64::MAX };
        let mut backlog = 0;
        for (topic, _) in &self.topics {
            match ends(10, "statistics", broker.topic_stats(&format!("tubemq:{topic}"))).await {
                Ok(Ok(stats)) => backlog += stats.subscriptions.iter().map(|of| of.backlog).sum::<u64>(),
                _ => return u64::MAX,
            }
        }
        backlog
    }
}

/// The broker's options.
pub(super) fn options(chance: &mut Chance) -> TubeMqOptions {
    TubeMqOptions {
        advertised_host: chance.percent(50).then(|| "broker.test".to_owned()),
        users: chance.percent(30).then(|| "user:word\n".to_owned()),
        client_timeout: Duration::from_secs(chance.within(8, 31) as u64),
        ..TubeMqOptions::default()
    }
}

pub(super) fn setting(chance: &mut Chance) -> Setting {
    let slowness = ([100, 5_000, 80_000][chance.below(3)], [200, 3_000, 60_000][chance.below(3)]);
    let listeners = vec![Listener::tcp("tubemq", "127.0.0.1", PORT)];
    let options = Options { listeners, tubemq: options(chance), ..Options::default() };
    Setting { slowness, options, tap }
}

/// Producers and consumers at work.
pub(super) struct Playing {
    world: Rc<World>,
    consuming: Vec<JoinHandle<()>>,
    producing: Vec<JoinHandle<()>>,
}

fn plan(topics: usize, chance: &mut Chance) -> Vec<(Group, usize)> {
    let count = chance.within(1, 4);
    let groups = (0..count).map(|at| {
        let members = chance.within(1, 4);
        let first = chance.below(topics);
        let group = Group {
            name: format!("g{at}"),
            topics: if chance.percent(50) { vec![first] } else { (0..topics).collect() },
            filtered: chance.percent(30),
            balance: [Share::Free, Share::Fixed(members as u32), Share::Master][chance.below(3)],
            auto_ack: chance.percent(20),
            seeks: chance.percent(15),
        };
        (group, members)
    });
    groups.collect()
}

/// Creates topics and starts everything.
pub(super) async fn begin(host: &Rc<Host>, chance: &mut Chance) -> Result<Playing, String> {
    leases::begin();
    let topics: Vec<_> =
        (0..chance.within(1, 3)).map(|at| (format!("t{at}"), chance.within(1, 5) as u32)).collect();
    let plans = plan(topics.len(), chance);
    for (group, members) in &plans {
        trace::event(format_args!(
            "group {} of {members} over {:?}: {:?}, filtered {}",
            group.name, group.topics, group.balance, group.filtered
        ));
        if group.filtered {
            leases::filter(&group.name);
        }
    }
    let broker = host.broker().expect("just started");
    for (name, partitions) in &topics {
        let name = format!("tubemq:{name}");
        broker.create_topic(&name, *partitions).await.map_err(|error| error.to_string())?;
    }
    drop(broker);
    let client = ClientOptions {
        url: format!("tubemq://broker.test:{PORT}"),
        connect_timeout: Duration::from_millis(chance.within(1000, 5000) as u64),
        operation_timeout: Duration::from_millis(chance.within(2000, 10_000) as u64),
        request_timeout: Duration::from_millis(chance.within(2000, 10_000) as u64),
        heartbeat_interval: Duration::from_millis(chance.within(500, 3000) as u64),
        max_backoff: Duration::from_millis(chance.within(200, 3000) as u64),
        memory_limit: if chance.percent(30) { 4 << 10 } else { 1 << 20 },
        receive_buffer: if chance.percent(30) { 1 << 10 } else { 1 << 20 },
        username: Some("user".into()),
        password: Some(Secret::Text("word".into())),
        ..ClientOptions::default()
    };
    let (groups, members): (Vec<Group>, Vec<usize>) = plans.into_iter().unzip();
    let mut ledger = Ledger::default();
    ledger.groups.resize_with(groups.len(), Progress::default);
    let producers = chance.within(2, 5) as u8;
    let world = Rc::new(World {
        host: host.clone(),
        topics,
        groups,
        quota: (50, chance.within(100, 400) as u64),
        pace: [60_000, 300_000, 1_000_000][chance.below(3)],
        client,
        drops: chance.percent(60),
        timeouts: chance.percent(20),
        ledger: RefCell::new(ledger),
        healed: Cell::new(false),
        draining: Cell::new(false),
        done: Cell::new(false),
    });
    let (mut consuming, mut producing) = (Vec::new(), Vec::new());
    for (at, members) in members.into_iter().enumerate() {
        for member in 0..members {
            let chance = Chance::new(chance.next());
            consuming.push(tokio::task::spawn_local(world.clone().consume(at, member, chance)));
        }
    }
    for who in 0..producers {
        producing.push(tokio::task::spawn_local(world.clone().produce(who, Chance::new(chance.next()))));
    }
    Ok(Playing { world, consuming, producing })
}

impl Playing {
    /// Lets everything settle once the host is healed, and compares.
    pub(super) async fn settle(self) -> Result<(), String> {
        let Self { world, consuming, producing } = self;
        world.healed.set(true);
        for producer in producing {
            ends(2 * PATIENCE, "a producer", producer).await?.map_err(|_| "a producer panicked")?;
        }
        world.draining.set(true);
        let settled = async {
            while !host::is_violated()
                && (!world.missing().is_empty() || !world.disputed().is_empty() || world.backlog().await > 0)
            {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(PATIENCE), settled).await.is_err() {
            let missing = world.missing();
            let some = &missing[..missing.len().min(10)];
            return Err(format!(
                "{} messages are missing, as {some:?} (group, name); {} are not consumed; partitions without one \
                 holder: {:?}",
                missing.len(),
                world.backlog().await,
                world.disputed()
            ));
        }
        world.done.set(true);
        for consumer in consuming {
            ends(PATIENCE, "a consumer", consumer).await?.map_err(|_| "a consumer panicked")?;
        }
        Ok(())
    }
}

pub(super) async fn script(host: Rc<Host>, mut chance: Chance) -> Result<(), String> {
    let swarm = Swarm::draw(&mut chance).aimed_at(TABLE.states);
    trace::event(format_args!("{swarm:?}"));
    let mut playing = begin(&host, &mut chance).await?;
    let faults = Chance::new(chance.next());
    if chance.percent(50) {
        let visit = playing.world.clone().visit(chance);
        playing.producing.push(tokio::task::spawn_local(visit));
    }
    swarm.rage(&host, 100, faults).await;
    host.heal();
    playing.settle().await
}

fn run(seed: u64) -> Result<Run, String> {
    host::play(seed, setting, script)
}

#[test]
fn nothing_stored_is_lost_and_no_group_moves_over_what_it_has_not_acknowledged() {
    super::cover(&SEEDS, &TABLE, run);
}
