//! Producers, consumers and readers of Pulsar: every push ends in one outcome, what is acknowledged
//! reaches every subscription, in order and once in the store; what a receipt confirmed does not
//! come back; nothing is acknowledged that was not handed out; nothing is trimmed that a
//! subscription has not acknowledged; what a dead letter policy takes away is in the dead letter
//! topic; every future ends.

mod grow;
mod ledger;
mod letters;
mod read;
mod visit;
mod volatile;
mod watch;
mod write;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;

use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind};
use forebay_broker::auth::TokenKeys;
use forebay_broker::{Listener, Options, PulsarOptions};
use forebay_client::credentials::Secret;
use forebay_client::pulsar::Client;
use forebay_client::pulsar::options::ClientOptions;
use forebay_pulsar::pb::command_subscribe::SubType;

use super::faults::Swarm;
use super::host::{self, Host, Run, Setting, ends, violate};
use super::network::Tap;
use super::trace;
use super::{Seeds, Table};
use crate::support::chance::Chance;
use ledger::{Ledger, Subscription};
use watch::Watch;

pub(super) const PORT: u16 = 6650;
const BEFORE: &str = "before Connect";
const KEYS: [&str; 4] = ["a", "b", "c", "d"];
const TOKEN_KEY: &[u8] = b"a key that no stranger knows";
/// Largest message where messages are chunked.
const CHUNK: usize = 1000;
/// Retention within which nothing is trimmed.
const KEPT: Duration = Duration::from_secs(600);
/// Those that once failed: the last chunk of a message was acknowledged without the others when the
/// first receipt was lost (33, 48); a consumer acknowledged what another one had moved the
/// subscription back to (55); and the checks of the simulation itself took no account of a seek
/// that is under way (38, 225, 318) or leads into the middle of a chunked message (133).
const SEEDS: Seeds = Seeds { count: 550, once_failed: &[33, 48, 55, 38, 133, 225, 318], twice: 30 };
/// The last command that a client has sent, in every fault.
const TABLE: Table = Table {
    states: &[
        "Connect",
        "AuthResponse",
        "PartitionedMetadata",
        "Lookup",
        "Producer",
        "Send",
        "CloseProducer",
        "Subscribe",
        "Flow",
        "Ack",
        "RedeliverUnacknowledgedMessages",
        "Seek",
        "GetLastMessageId",
        "GetTopicsOfNamespace",
        "Unsubscribe",
        "CloseConsumer",
        "Ping",
        "Pong",
    ],
    except: &[],
    rare: &[(
        BEFORE,
        "a client writes Connect at the instant at which it is connected: only a fault of that instant comes before it",
    )],
};
/// Virtual seconds within which everything settles once it is healed.
const PATIENCE: u64 = 300;

pub(super) fn tap(_: u16) -> Option<Box<dyn Tap>> {
    Some(Box::<Watch>::default())
}

/// What a seed draws.
#[derive(Debug)]
struct Plan {
    topics: Vec<(String, u32)>,
    kinds: Vec<(SubType, bool)>,
    chunking: bool,
    /// Largest payload, unless it is chunked.
    size: usize,
    delayed: bool,
    /// How often a reader moves its subscription, in percent of its turns.
    seeks: usize,
    quota: u64,
    client: ClientOptions,
    drops: bool,
    timeouts: bool,
    /// Whether entries are trimmed while the run goes on: then nothing is sent before all have
    /// subscribed.
    trims: bool,
    /// Whether a topic gets more partitions while the run goes on.
    grows: bool,
    /// Whether producers open a partition with their first message for it.
    lazy: bool,
    /// How often a reader pauses its consumer, in percent of its turns.
    pauses: usize,
    /// Whether consumers fetch nothing ahead at times.
    fetches_singly: bool,
    /// Redeliveries on Shared and Key_Shared subscriptions after which a message is a dead letter.
    dead_after: Option<u32>,
}

impl Plan {
    /// Whether the messages of a subscription may become dead letters.
    fn buries(&self, at: usize) -> bool {
        self.dead_after.is_some() && is_shared(self.kinds[at].0)
    }

    /// How often partitions are asked for.
    fn partitions_update_interval(&self, chance: &mut Chance) -> Duration {
        if self.grows {
            Duration::from_millis(chance.within(300, 5_000) as u64)
        } else {
            Duration::from_secs(60)
        }
    }
}

fn is_shared(kind: SubType) -> bool {
    matches!(kind, SubType::Shared | SubType::KeyShared)
}

struct World {
    host: Rc<Host>,
    plan: Plan,
    ledger: RefCell<Ledger>,
    healed: Cell<bool>,
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
        let connect = async || Client::connect(self.plan.client.clone()).await;
        host::opened((60, "connect"), 300_000, chance, check_error, connect).await
    }

    /// Whether every subscription has been opened.
    fn all_are_open(&self) -> bool {
        self.ledger.borrow().subscriptions.iter().all(|subscription| subscription.is_open)
    }

    /// Entries that a subscription has not acknowledged, over all topics.
    async fn backlog(&self) -> u64 {
        // The chunks of a message whose last one is never sent stay, and so do those behind a seek
        // that passes over its first ones where entries do not come in order.
        let stays = self.plan.seeks > 0 && self.plan.kinds.iter().any(|(kind, _)| is_shared(*kind));
        if self.plan.chunking && (self.plan.drops || self.plan.timeouts || stays) {
            return 0;
        }
        let Some(broker) = self.host.broker() else { return u64::MAX };
        let mut backlog = 0;
        for (topic, _) in &self.plan.topics {
            match ends(10, "statistics", broker.topic_stats(topic)).await {
                Ok(Ok(stats)) => {
                    let durable = stats.subscriptions.iter().filter(|of| of.durable);
                    backlog += durable.map(|of| of.backlog).sum::<u64>();
                }
                _ => return u64::MAX,
            }
        }
        backlog
    }
}

/// A token that expires soon. The supplier fails one time in five.
fn token(mut chance: Chance) -> Secret {
    let key = TokenKeys::new(TOKEN_KEY).expect("long enough");
    let chance = Mutex::new(Chance::new(chance.next()));
    Secret::supplier(move || {
        let mut chance = chance.lock().unwrap();
        if chance.percent(20) {
            return Err(Error::new(ErrorKind::Authentication, "no token can be had at the moment"));
        }
        Ok(key.sign("user", Some(clock::wall_ms() + chance.within(1_500, 20_000) as u64)))
    })
}

pub(super) fn setting(chance: &mut Chance) -> Setting {
    let mut pulsar = PulsarOptions {
        keep_alive: Duration::from_millis(chance.within(1000, 6000) as u64),
        retention: [Duration::ZERO, Duration::from_secs(2), KEPT][chance.below(3)],
        ..PulsarOptions::default()
    };
    if chance.percent(20) {
        pulsar.max_message_size = CHUNK;
    }
    let token_key = chance.percent(25).then(|| TOKEN_KEY.to_vec());
    let slowness = ([100, 5_000, 80_000][chance.below(3)], [200, 3_000, 60_000][chance.below(3)]);
    let listeners = vec![Listener::tcp("pulsar", "127.0.0.1", PORT)];
    Setting { slowness, options: Options { listeners, pulsar, token_key, ..Options::default() }, tap }
}

fn plan(options: &Options, chance: &mut Chance) -> Plan {
    let chunking = options.pulsar.max_message_size == CHUNK;
    let mut topics = Vec::new();
    for at in 0..chance.within(1, 4) {
        topics.push((format!("persistent://public/default/t{at}"), chance.below(4) as u32));
    }
    let kinds = [SubType::Exclusive, SubType::Failover, SubType::Shared, SubType::KeyShared];
    let kinds: Vec<(SubType, bool)> = (0..[1, 2, 2, 3, 5][chance.below(5)])
        .map(|_| {
            // Chunks of a message belong to one consumer.
            let kind = kinds[chance.below(if chunking { 2 } else { 4 })];
            let ordered = matches!(kind, SubType::Exclusive | SubType::Failover);
            (kind, ordered && !chunking && chance.percent(40))
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
        token: options.token_key.is_some().then(|| token(Chance::new(chance.next()))),
        ..ClientOptions::default()
    };
    let partitioned = topics.iter().any(|(_, partitions)| *partitions > 0);
    let single = topics.len() == 1 && !partitioned;
    Plan {
        topics,
        kinds,
        chunking,
        size: if chunking || client.memory_limit < 1 << 20 || chance.percent(95) { 200 } else { 60_000 },
        delayed: chance.percent(30),
        seeks: if chance.percent(30) { chance.within(1, 4) } else { 0 },
        quota: chance.within(125, 160) as u64,
        client,
        drops: chance.percent(60),
        timeouts: chance.percent(20),
        trims: options.pulsar.retention < KEPT,
        grows: partitioned && chance.percent(25),
        lazy: chance.percent(25),
        pauses: if chance.percent(25) { chance.within(1, 6) } else { 0 },
        fetches_singly: single && chance.percent(50),
        dead_after: (!chunking && chance.percent(25)).then(|| chance.within(1, 4) as u32),
    }
}

pub(super) async fn script(host: Rc<Host>, mut chance: Chance) -> Result<(), String> {
    let swarm = Swarm::draw(&mut chance).aimed_at(TABLE.states);
    let plan = plan(host.options(), &mut chance);
    trace::event(format_args!("{swarm:?} {plan:?}"));
    // A message that dies with its batch may not have been handed out.
    watch::begin(!plan.chunking && plan.dead_after.is_none());
    if chance.percent(40) {
        // Commits that fail by chance, one in 200.
        host.doubt_disk(200);
    }
    let broker = host.broker().expect("just started");
    for (name, partitions) in &plan.topics {
        broker.create_topic(name, *partitions).await.map_err(|error| error.to_string())?;
    }
    drop(broker);
    let subscription = |at| Subscription { buries: plan.buries(at), ..Subscription::default() };
    let subscriptions = (0..plan.kinds.len()).map(subscription).collect();
    let ledger = Ledger { subscriptions, ..Ledger::default() };
    let writers = 4;
    let world = Rc::new(World {
        host: host.clone(),
        plan,
        ledger: RefCell::new(ledger),
        healed: Cell::new(false),
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
    if chance.percent(50) {
        readers.push(tokio::task::spawn_local(world.clone().browse(Chance::new(chance.next()))));
    }
    let mut writing = Vec::new();
    if chance.percent(40) {
        writing.push(tokio::task::spawn_local(world.clone().upset(Chance::new(chance.next()))));
    }
    if world.plan.grows {
        writing.push(tokio::task::spawn_local(world.clone().grow(Chance::new(chance.next()))));
    }
    for who in 0..writers {
        writing.push(tokio::task::spawn_local(world.clone().write(who, Chance::new(chance.next()))));
    }
    let faults = Chance::new(chance.next());
    if chance.percent(50) {
        writing.push(tokio::task::spawn_local(world.clone().visit(chance)));
    }
    swarm.rage(&host, 100, faults).await;
    host.heal();
    world.healed.set(true);
    for writer in writing {
        ends(PATIENCE, "a writer", writer).await?.map_err(|_| "a writer panicked")?;
    }
    world.draining.set(true);
    let settled = async {
        while !host::is_violated()
            && (!world.ledger.borrow().missing().is_empty() || world.backlog().await > 0)
        {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(PATIENCE), settled).await.is_err() {
        let missing = world.ledger.borrow().missing();
        let some = &missing[..missing.len().min(10)];
        return Err(format!(
            "{} messages are missing, as {some:?} (subscription, name), and {} entries are not acknowledged",
            missing.len(),
            world.backlog().await
        ));
    }
    if world.plan.dead_after.is_some() {
        world.check_letters(Chance::new(1)).await?;
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
fn nothing_stored_is_lost_repeated_or_reordered() {
    super::cover(&SEEDS, &TABLE, run);
}
