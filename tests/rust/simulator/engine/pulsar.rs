//! Producers and consumers of Pulsar: every push ends in one outcome, what is acknowledged reaches every subscription, in
//! order and, with deduplication, once; what a receipt confirmed does not come back; every future ends.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use penstock::broker::{Options, PulsarOptions};
use penstock::client::pulsar::options::{ClientOptions, ConsumerOptions, ProducerOptions};
use penstock::client::pulsar::{Client, Consumer, Producer};
use penstock::compression::Compression;
use penstock::error::{Error, ErrorKind};
use penstock::pulsar::command::Command;
use penstock::pulsar::frame::Decoder;
use penstock::pulsar::pb::command_subscribe::SubType;
use penstock::pulsar::{Message, MessageId, Outgoing};
use tokio::time::Instant;

use super::events::{Ready, Sink};
use super::faults::Swarm;
use super::host::{self, Host, Run, Setting, ends, violate};
use super::network::Tap;
use super::trace;
use crate::pulsar::disk::{Name, name_of, payload};
use crate::support::chance::Chance;

pub(super) const PORT: u16 = 6650;
const KEYS: [&str; 4] = ["a", "b", "c", "d"];
/// Seeds that `make test` plays.
const SEEDS: u64 = 30;
/// Seeds that once failed, and why. They are played in every run.
const ONCE_FAILED: &[u64] = &[];
/// Virtual seconds within which everything settles once it is healed.
const PATIENCE: u64 = 300;

/// Checks that nothing is opened twice on a live connection.
#[derive(Default)]
struct Watch {
    decoders: [BytesMut; 2],
    open: BTreeSet<(bool, u64)>,
    opening: BTreeMap<u64, (bool, u64)>,
    last: Option<&'static str>,
}

impl Watch {
    fn command(&mut self, up: bool, command: &Command) -> Result<(), String> {
        let opened = |open: &mut BTreeSet<_>, part: (bool, u64)| match open.insert(part) {
            true => Ok(()),
            false => {
                Err(format!("{} {} was opened twice", if part.0 { "producer" } else { "consumer" }, part.1))
            }
        };
        match (up, command) {
            (true, Command::Producer(open)) => {
                self.opening.insert(open.request_id, (true, open.producer_id));
                opened(&mut self.open, (true, open.producer_id))?;
            }
            (true, Command::Subscribe(open)) => {
                self.opening.insert(open.request_id, (false, open.consumer_id));
                opened(&mut self.open, (false, open.consumer_id))?;
            }
            (_, Command::CloseProducer(close)) => drop(self.open.remove(&(true, close.producer_id))),
            (_, Command::CloseConsumer(close)) => drop(self.open.remove(&(false, close.consumer_id))),
            (false, Command::Error(error)) => {
                if let Some(part) = self.opening.remove(&error.request_id) {
                    self.open.remove(&part);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Tap for Watch {
    fn see(&mut self, up: bool, bytes: &[u8]) -> Result<(), String> {
        self.decoders[usize::from(up)].extend_from_slice(bytes);
        loop {
            let frame = Decoder::new(16 << 20).next(&mut self.decoders[usize::from(up)]);
            let Some(frame) = frame.map_err(|error| error.to_string())? else { return Ok(()) };
            if up {
                self.last = Some(frame.command.name());
            }
            self.command(up, &frame.command)?;
        }
    }

    fn state(&self) -> &'static str {
        self.last.unwrap_or("before CONNECT")
    }
}

pub(super) fn tap(_: u16) -> Option<Box<dyn Tap>> {
    Some(Box::<Watch>::default())
}

/// What happened to a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Pending,
    Stored,
    /// The handle was dropped, or the send timed out.
    Unknown,
}

#[derive(Debug)]
struct Push {
    fate: Fate,
    /// Messages with the same number keep their order: those of a producer's handle, or, when batches hold one key, those
    /// of a key of it.
    order: u32,
}

#[derive(Default)]
struct Subscription {
    received: BTreeMap<Name, u32>,
    /// When a receipt confirmed the acknowledgement.
    receipted: BTreeMap<Name, Instant>,
    last: BTreeMap<(Arc<str>, u8, u32), u64>,
    repeated: u64,
}

#[derive(Default)]
struct Ledger {
    pushes: BTreeMap<Name, Push>,
    ids: BTreeMap<Name, (Arc<str>, MessageId)>,
    subscriptions: Vec<Subscription>,
}

/// What a seed draws.
struct Plan {
    topics: Vec<(String, u32)>,
    kinds: Vec<(SubType, bool)>,
    deduplicate: bool,
    chunking: bool,
    quota: u64,
    client: ClientOptions,
    drops: bool,
    timeouts: bool,
}

struct World {
    host: Rc<Host>,
    plan: Plan,
    ledger: RefCell<Ledger>,
    draining: Cell<bool>,
    done: Cell<bool>,
}

/// Errors that say that something is wrong with the engine and not with network, broker or disk.
fn check_error(what: &str, error: &Error) {
    if matches!(error.kind(), ErrorKind::Protocol | ErrorKind::InvalidArgument | ErrorKind::FrameTooLarge) {
        violate(format!("{what}: {error}"));
    }
}

impl World {
    async fn connect(&self, chance: &mut Chance) -> Option<Client> {
        while !host::is_violated() {
            match ends(60, "connect", Client::connect(self.plan.client.clone())).await {
                Ok(Ok(client)) => return Some(client),
                Ok(Err(error)) => check_error("connect", &error),
                Err(late) => violate(late),
            }
            tokio::time::sleep(chance.micros(300_000)).await;
        }
        None
    }

    /// A producer that is opened until it succeeds.
    async fn open_producer(
        &self,
        who: u8,
        by_key: bool,
        client: &Client,
        sink: &Arc<Sink<Name>>,
        chance: &mut Chance,
    ) -> Option<Producer> {
        let plan = &self.plan;
        let topic = &plan.topics[who as usize % plan.topics.len()].0;
        let options = ProducerOptions {
            name: chance.percent(70).then(|| format!("writer-{who}")),
            batching: chance.percent(70),
            batch_max_messages: chance.within(1, 30),
            batching_delay: chance.micros(20_000),
            key_based_batching: by_key,
            compression: [Compression::None, Compression::Lz4, Compression::Zstd][chance.below(3)],
            send_timeout: plan.timeouts.then_some(Duration::from_secs(3)),
            max_pending: chance.within(1, 60),
            chunking: plan.chunking,
            ..ProducerOptions::default()
        };
        let options = ProducerOptions { batching: options.batching && !plan.chunking, ..options };
        while !host::is_violated() {
            sink.end();
            let opening = client.producer(topic, options.clone(), sink.clone());
            match ends(90, "opening a producer", opening).await {
                Ok(Ok(producer)) => return Some(producer),
                Ok(Err(error)) => {
                    trace::event(format_args!("writer {who} is not opened: {error}"));
                    check_error("producer", &error);
                }
                Err(late) => violate(late),
            }
            tokio::time::sleep(chance.micros(500_000)).await;
        }
        None
    }

    fn settle(&self, who: u8, sink: &Sink<Name>) {
        for (names, result) in sink.outcomes() {
            let mut ledger = self.ledger.borrow_mut();
            for name in &names {
                let push = ledger.pushes.get_mut(name).expect("pushed");
                if push.fate != Fate::Pending {
                    violate(format!("{name:?} has a second outcome"));
                }
                push.fate = if result.is_ok() { Fate::Stored } else { Fate::Unknown };
            }
            match result {
                Ok(_) => trace::event(format_args!("writer {who}: {} stored", names.len())),
                Err(error) => {
                    trace::event(format_args!("writer {who}: {} failed: {error}", names.len()));
                    let expected = match error.kind() {
                        // Without a send timeout `close` gives up in its own time.
                        ErrorKind::Timeout | ErrorKind::Closed | ErrorKind::Persistence => true,
                        _ => false,
                    };
                    if !expected {
                        violate(format!("{names:?} failed: {error}"));
                    }
                }
            }
        }
        if let Some(error) = sink.end()
            && error.kind() != ErrorKind::Closed
        {
            violate(format!("writer {who} ended for good: {error}"));
        }
    }

    async fn write(self: Rc<Self>, who: u8, mut chance: Chance) {
        let Some(mut client) = self.connect(&mut chance).await else { return };
        let mut next = 0;
        let mut handle = 0;
        while next < self.plan.quota && !host::is_violated() {
            let sink = Arc::new(Sink::default());
            let by_key = chance.percent(20);
            let Some(producer) = self.open_producer(who, by_key, &client, &sink, &mut chance).await else {
                return;
            };
            handle += 1;
            trace::event(format_args!("writer {who} is open, handle {handle}"));
            let until = if self.plan.drops { next + chance.within(5, 80) as u64 } else { u64::MAX };
            let until = until.min(self.plan.quota);
            while next < until && !host::is_violated() {
                let mut full = false;
                for _ in 0..chance.within(1, 12) {
                    let name = (who, next);
                    let size = if self.plan.chunking && chance.percent(20) {
                        chance.within(700, 3000)
                    } else {
                        chance.below(200)
                    };
                    let (bytes, key) = (payload(name, size), chance.below(KEYS.len()));
                    let message = Outgoing { payload: &bytes, key: Some(KEYS[key]), ..Outgoing::default() };
                    match producer.push(&message, chance.percent(30)) {
                        Ok(slot) => {
                            let order = 8 * handle + if by_key { 1 + key as u32 } else { 0 };
                            let push = Push { fate: Fate::Pending, order };
                            self.ledger.borrow_mut().pushes.insert(name, push);
                            sink.pushed(slot, name);
                            next += 1;
                        }
                        Err(error)
                            if matches!(error.kind(), ErrorKind::QueueFull | ErrorKind::MemoryLimit) =>
                        {
                            full = true;
                            break;
                        }
                        Err(error) => {
                            violate(format!("{name:?} was refused: {error}"));
                            break;
                        }
                    }
                    if next == until {
                        break;
                    }
                }
                if chance.percent(5) {
                    producer.flush();
                }
                if full {
                    if ends(PATIENCE, "room", sink.changed.notified()).await.is_err() {
                        violate(format!("writer {who} waits for room for ever"));
                    }
                } else {
                    {
                        let most = if chance.percent(10) { 2_000_000 } else { 100_000 };
                        tokio::time::sleep(chance.micros(most)).await;
                    }
                }
                self.settle(who, &sink);
            }
            if next < self.plan.quota && chance.percent(50) {
                trace::event(format_args!("writer {who} is dropped"));
                drop(producer);
                tokio::time::sleep(Duration::from_millis(1)).await;
            } else {
                trace::event(format_args!("writer {who} closes"));
                if let Err(late) = ends(PATIENCE, "close of a producer", producer.close(true)).await {
                    violate(format!("{late}: writer {who} has {} pending", producer.pending()));
                }
            }
            self.settle(who, &sink);
            for name in sink.unanswered() {
                if let Some(push) = self.ledger.borrow_mut().pushes.get_mut(&name) {
                    push.fate = Fate::Unknown;
                }
            }
            if next < self.plan.quota && chance.percent(20) {
                let _ = ends(PATIENCE, "close of a client", client.close()).await.map_err(violate);
                let Some(again) = self.connect(&mut chance).await else { return };
                client = again;
            }
        }
        if client.memory_used() != 0 {
            violate(format!("writer {who} is done, and {} bytes wait for receipts", client.memory_used()));
        }
        let _ = ends(PATIENCE, "close of a client", client.close()).await.map_err(violate);
        trace::event(format_args!("writer {who} is done"));
    }

    fn receive(&self, at: usize, opened: Instant, message: &Message) -> Option<Name> {
        let name = match name_of(&message.payload) {
            Ok(name) => name,
            Err(broken) => {
                violate(broken);
                return None;
            }
        };
        let mut ledger = self.ledger.borrow_mut();
        let ledger = &mut *ledger;
        let topic = message.entry.topic.clone();
        let id = MessageId { batch_size: 0, ..message.id };
        let Some(push) = ledger.pushes.get(&name) else {
            violate(format!("{name:?} was received and never pushed"));
            return None;
        };
        match ledger.ids.insert(name, (topic.clone(), id)) {
            Some(before) if before != (topic.clone(), id) && self.plan.deduplicate => {
                violate(format!("{name:?} is at {before:?} and again at {:?}", (&topic, id)));
            }
            _ => {}
        }
        let (kind, _) = self.plan.kinds[at];
        let subscription = &mut ledger.subscriptions[at];
        if subscription.receipted.get(&name).is_some_and(|receipt| *receipt < opened) {
            violate(format!("{name:?} was acknowledged with a receipt, and comes back to subscription {at}"));
        }
        let count = subscription.received.entry(name).or_default();
        *count += 1;
        trace::event(format_args!("subscription {at} gets {name:?} at {id} of {topic}"));
        if *count > 1 {
            subscription.repeated += 1;
        } else if matches!(kind, SubType::Exclusive | SubType::Failover) {
            let last = subscription.last.insert((topic.clone(), name.0, push.order), name.1);
            if let Some(last) = last.filter(|last| *last > name.1) {
                violate(format!("{name:?} came to subscription {at} behind {last} in {topic}"));
            }
        }
        Some(name)
    }

    async fn read(self: Rc<Self>, at: usize, index: usize, mut chance: Chance) {
        let (kind, cumulative) = self.plan.kinds[at];
        let Some(client) = self.connect(&mut chance).await else { return };
        while !self.done.get() && !host::is_violated() {
            let ready = Arc::new(Ready::default());
            let options = ConsumerOptions {
                kind,
                position: MessageId::EARLIEST,
                receiver_queue: [1, 3, 20, 1000][chance.below(4)],
                batch_index_ack: chance.percent(50),
                ack_group_time: chance.micros(200_000),
                nack_delay: chance.micros(2_000_000),
                name: Some(format!("reader-{at}-{index}")),
                ..ConsumerOptions::default()
            };
            let opened = Instant::now();
            let topics = self.plan.topics.iter().map(|(name, _)| name.clone()).collect();
            let opening = client.consumer(topics, format!("s{at}"), options, ready.clone());
            let consumer = match ends(120, "opening a consumer", opening).await {
                Ok(Ok(consumer)) => consumer,
                Ok(Err(error)) => {
                    trace::event(format_args!("reader {at}.{index} is not opened: {error}"));
                    check_error("consumer", &error);
                    tokio::time::sleep(chance.micros(1_000_000)).await;
                    continue;
                }
                Err(late) => return violate(late),
            };
            trace::event(format_args!("reader {at}.{index} is open"));
            let lives = if self.plan.drops { chance.within(1, 400) } else { usize::MAX };
            self.take(at, &consumer, &ready, opened, (lives, cumulative), &mut chance).await;
            if let Some(error) = ready.end() {
                violate(format!("reader {at}.{index} ended for good: {error}"));
            }
            if self.done.get() || chance.percent(60) {
                trace::event(format_args!("reader {at}.{index} closes"));
                match ends(60, "close of a consumer", consumer.close()).await {
                    Ok(_) => {}
                    Err(late) => violate(late),
                }
            } else {
                trace::event(format_args!("reader {at}.{index} is dropped"));
            }
        }
        let _ = ends(60, "close of a client", client.close()).await.map_err(violate);
    }

    /// Takes messages from a consumer until it has lived.
    async fn take(
        &self,
        at: usize,
        consumer: &Consumer,
        ready: &Ready,
        opened: Instant,
        (lives, cumulative): (usize, bool),
        chance: &mut Chance,
    ) {
        let shared = matches!(self.plan.kinds[at].0, SubType::Shared | SubType::KeyShared);
        let (mut taken, mut spins) = (0, 0);
        let mut held: Vec<(Arc<str>, MessageId, Name)> = Vec::new();
        while !self.done.get() && !host::is_violated() && (taken < lives || self.draining.get()) {
            let mut messages: Vec<Message> = Vec::new();
            match consumer.take(chance.within(1, 50), &mut messages) {
                Ok(0) => {
                    spins += 1;
                    if consumer.arm() {
                        spins = 0;
                        let _ = tokio::time::timeout(Duration::from_secs(1), ready.notify.notified()).await;
                    }
                    if spins > 100 {
                        return violate(format!(
                            "{} messages are there, and none is given",
                            consumer.available()
                        ));
                    }
                }
                Ok(count) => taken += count,
                Err(error) => return violate(format!("a consumer ended for good: {error}")),
            }
            for message in &messages {
                if let Some(name) = self.receive(at, opened, message) {
                    held.push((message.entry.topic.clone(), message.id, name));
                }
            }
            if !messages.is_empty() {
                trace::event(format_args!("reader {at} takes {}", messages.len()));
            }
            self.acknowledge(at, consumer, &mut held, cumulative, chance).await;
            if chance.percent(10) && !self.draining.get() {
                tokio::time::sleep(chance.micros(1_500_000)).await;
            } else if shared && chance.percent(1) && !self.draining.get() {
                // It breaks the order of the other types: messages are under way.
                let _ = consumer.redeliver_unacknowledged();
            }
        }
    }

    async fn acknowledge(
        &self,
        at: usize,
        consumer: &Consumer,
        held: &mut Vec<(Arc<str>, MessageId, Name)>,
        cumulative: bool,
        chance: &mut Chance,
    ) {
        let shared = matches!(self.plan.kinds[at].0, SubType::Shared | SubType::KeyShared);
        let all = self.draining.get();
        if cumulative && !all {
            if let Some((topic, id, _)) = held.last().cloned().filter(|_| chance.percent(40)) {
                let _ = consumer.ack_cumulative(&topic, id);
                held.retain(|(other, before, _)| *other != topic || *before > id);
            }
            return;
        }
        let mut now = Vec::new();
        for (topic, id, name) in std::mem::take(held) {
            if all || chance.percent(70) {
                now.push((topic, id, name));
            } else if shared && chance.percent(30) {
                let _ = consumer.nack(&[(topic, id)], None);
            } else {
                held.push((topic, id, name));
            }
        }
        if now.is_empty() {
            return;
        }
        let ids: Vec<_> = now.iter().map(|(topic, id, _)| (topic.clone(), *id)).collect();
        if chance.percent(30) {
            match ends(60, "an acknowledgement with a receipt", consumer.ack_receipt(&ids, false)).await {
                // Of a batch the broker hears when all of it is acknowledged.
                Ok(Ok(())) if ids.iter().all(|(_, id)| id.batch_index < 0) => {
                    let mut ledger = self.ledger.borrow_mut();
                    let receipted = &mut ledger.subscriptions[at].receipted;
                    receipted.extend(now.iter().map(|(_, _, name)| (*name, Instant::now())));
                }
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    trace::event(format_args!("no receipt: {error}"));
                    check_error("acknowledgement", &error);
                    // It may be acknowledged or not; the message may not come again on this connection.
                    held.extend(now);
                }
                Err(late) => violate(late),
            }
        } else if let Err(error) = consumer.ack(&ids) {
            violate(format!("an acknowledgement was refused: {error}"));
        }
    }

    /// Messages that are stored and that a subscription has not received.
    fn missing(&self) -> Vec<(usize, Name)> {
        let ledger = self.ledger.borrow();
        let stored =
            ledger.pushes.iter().filter(|(_, push)| push.fate == Fate::Stored).map(|(name, _)| *name);
        let stored: Vec<Name> = stored.collect();
        let mut missing = Vec::new();
        for (at, subscription) in ledger.subscriptions.iter().enumerate() {
            let lacks = stored.iter().filter(|name| !subscription.received.contains_key(name));
            missing.extend(lacks.map(|name| (at, *name)));
        }
        missing
    }

    /// Entries that a subscription has not acknowledged, over all topics.
    async fn backlog(&self) -> u64 {
        let Some(broker) = self.host.broker() else { return u64::MAX };
        let mut backlog = 0;
        for (topic, _) in &self.plan.topics {
            match ends(10, "statistics", broker.topic_stats(topic)).await {
                Ok(Ok(stats)) => backlog += stats.subscriptions.iter().map(|of| of.backlog).sum::<u64>(),
                _ => return u64::MAX,
            }
        }
        backlog
    }
}

pub(super) fn setting(chance: &mut Chance) -> Setting {
    let pulsar = PulsarOptions {
        port: PORT,
        keep_alive: Duration::from_millis(chance.within(1000, 6000) as u64),
        ..PulsarOptions::default()
    };
    let slowness = ([100, 5_000, 80_000][chance.below(3)], [200, 3_000, 60_000][chance.below(3)]);
    Setting { slowness, options: Options { pulsar, ..Options::default() }, tap }
}

pub(super) async fn script(host: Rc<Host>, mut chance: Chance) -> Result<(), String> {
    let swarm = Swarm::draw(&mut chance);
    let mut topics = Vec::new();
    for at in 0..chance.within(1, 3) {
        topics.push((format!("persistent://public/default/t{at}"), chance.below(4) as u32));
    }
    let kinds = [SubType::Exclusive, SubType::Shared, SubType::Failover, SubType::KeyShared];
    let kinds: Vec<(SubType, bool)> = (0..chance.within(1, 4))
        .map(|_| {
            let kind = kinds[chance.below(4)];
            (kind, matches!(kind, SubType::Exclusive | SubType::Failover) && chance.percent(40))
        })
        .collect();
    let client = ClientOptions {
        url: format!("pulsar://broker.test:{PORT}"),
        connect_timeout: Duration::from_millis(chance.within(1000, 5000) as u64),
        operation_timeout: Duration::from_millis(chance.within(2000, 10_000) as u64),
        keep_alive: Duration::from_millis(chance.within(1000, 6000) as u64),
        max_backoff: Duration::from_millis(chance.within(200, 3000) as u64),
        memory_limit: if chance.percent(30) { 4 << 10 } else { 1 << 20 },
        connections_per_broker: chance.within(1, 4),
        ..ClientOptions::default()
    };
    let plan = Plan {
        topics,
        kinds,
        deduplicate: true,
        chunking: false,
        quota: chance.within(50, 160) as u64,
        client,
        drops: chance.percent(60),
        timeouts: chance.percent(20),
    };
    trace::event(format_args!("{swarm:?} {:?}", plan.kinds));
    let broker = host.broker().expect("just started");
    for (name, partitions) in &plan.topics {
        broker.create_topic(name, *partitions).await.map_err(|error| error.to_string())?;
    }
    drop(broker);
    let mut ledger = Ledger::default();
    ledger.subscriptions.resize_with(plan.kinds.len(), Subscription::default);
    let writers = chance.within(2, 5) as u8;
    let world = Rc::new(World {
        host: host.clone(),
        plan,
        ledger: RefCell::new(ledger),
        draining: Cell::new(false),
        done: Cell::new(false),
    });
    let mut readers = Vec::new();
    for at in 0..world.plan.kinds.len() {
        let count = if world.plan.kinds[at].0 == SubType::Exclusive { 1 } else { chance.within(1, 4) };
        for index in 0..count {
            readers.push(tokio::task::spawn_local(world.clone().read(at, index, Chance::new(chance.next()))));
        }
    }
    let mut writing = Vec::new();
    for who in 0..writers {
        writing.push(tokio::task::spawn_local(world.clone().write(who, Chance::new(chance.next()))));
    }
    swarm.rage(&host, 100, Chance::new(chance.next())).await;
    host.heal();
    for writer in writing {
        ends(PATIENCE, "a writer", writer).await?.map_err(|_| "a writer panicked")?;
    }
    world.draining.set(true);
    let settled = async {
        while !host::is_violated() && (!world.missing().is_empty() || world.backlog().await > 0) {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(PATIENCE), settled).await.is_err() {
        let missing = world.missing();
        let some = &missing[..missing.len().min(10)];
        return Err(format!(
            "{} messages are missing, as {some:?} (subscription, name), and {} entries are not acknowledged",
            missing.len(),
            world.backlog().await
        ));
    }
    world.done.set(true);
    for reader in readers {
        ends(PATIENCE, "a reader", reader).await?.map_err(|_| "a reader panicked")?;
    }
    Ok(())
}

fn run(seed: u64) -> Result<Run, String> {
    host::play(seed, setting, script)
}

#[test]
fn nothing_stored_is_lost_repeated_or_reordered_1() {
    super::play(SEEDS, 0, 2, ONCE_FAILED, run);
}

#[test]
fn nothing_stored_is_lost_repeated_or_reordered_2() {
    super::play(SEEDS, 1, 2, ONCE_FAILED, run);
}

#[test]
fn a_seed_repeats_its_run() {
    super::replay(0..5, run);
}
