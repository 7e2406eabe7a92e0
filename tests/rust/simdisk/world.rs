//! A broker on a simulated disk with its clients, and the ledger: what the clients have sent, been
//! told and been given, after each event. It is outside of the store, and a crash of the broker
//! does not touch it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_base::error::Result;
use forebay_sqlite::{Connection, Sync};

use crate::disk::{Disk, Fault, Replay, Trace};
use crate::node::{MQTT, Node, PULSAR, Reach, TUBEMQ};
use crate::support::chance::Chance;
use crate::vfs::Mount;
use crate::{mqtt, pulsar, tubemq};

/// Steps of a script.
pub const STEPS: usize = 300;

/// The clients of all protocols, with what each knows.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    pub pulsar: pulsar::Client,
    pub mqtt: mqtt::Client,
    pub tubemq: tubemq::Client,
}

impl Clients {
    /// Number of confirmations that have arrived.
    fn told(&self) -> usize {
        self.pulsar.told + self.mqtt.told + self.tubemq.told
    }
}

/// What happens while a script is played.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// A fault of the disk once the clients are there.
    pub fault: Option<Fault>,
    /// Whether another process opens, reads, locks and closes the database.
    pub neighbour: bool,
}

/// A broker and its clients.
pub struct World {
    pub node: Node,
    pub clients: Clients,
    mount: Mount,
    path: PathBuf,
    /// The ledger: the clients after each event. Kept while the disk keeps a trace.
    ledger: Option<Vec<Clients>>,
    weather: Weather,
    neighbour: Option<Connection>,
    /// How often the less common steps were taken.
    verbs: BTreeMap<&'static str, usize>,
    /// Attempts to write that failed, and were not the end.
    pub waits: usize,
    /// Why the store has failed.
    pub failure: Option<String>,
}

/// A script that ran: what happened on the disk, and outside.
pub struct Recorded {
    /// The disk before the first change.
    pub start: Replay,
    pub trace: Trace,
    pub ledger: Vec<Clients>,
    /// How often the less common steps were taken.
    pub verbs: BTreeMap<&'static str, usize>,
    /// Attempts to write that failed, and were not the end.
    pub waits: usize,
    /// Why the store failed, after which the script ended.
    pub failure: Option<String>,
}

impl World {
    /// Opens the broker on a disk, for clients that may have known an earlier one.
    pub fn open(path: &Path, mount: Mount, reach: Reach, clients: Clients) -> Result<Self> {
        let node = Node::open(path, reach)?;
        Ok(Self {
            node,
            clients,
            mount,
            path: path.to_owned(),
            ledger: None,
            weather: Weather::default(),
            neighbour: None,
            verbs: BTreeMap::new(),
            waits: 0,
            failure: None,
        })
    }

    pub fn disk(&self) -> std::sync::MutexGuard<'_, Disk> {
        self.mount.disk()
    }

    /// Notes the clients' knowledge as it is now.
    pub fn note(&mut self) {
        if let Some(ledger) = &mut self.ledger {
            ledger.push(self.clients.clone());
            self.mount.disk().events = ledger.len() - 1;
        }
    }

    /// A client sends. What it attempts is in the ledger before the broker has it.
    pub fn send(&mut self, protocol: usize, peer: u64, bytes: &[u8]) {
        self.note();
        self.node
            .input(protocol, peer, bytes)
            .unwrap_or_else(|error| panic!("the broker refuses bytes: {error}"));
        self.listen();
    }

    /// Counts a step.
    pub fn played(&mut self, verb: &'static str) {
        *self.verbs.entry(verb).or_default() += 1;
    }

    /// The clients hear what the brokers have for them.
    pub fn listen(&mut self) {
        let mut heard = false;
        for protocol in [PULSAR, MQTT, TUBEMQ] {
            for peer in self.peers(protocol) {
                let bytes = self.node.output(protocol, peer);
                if bytes.is_empty() {
                    continue;
                }
                heard = true;
                match protocol {
                    PULSAR => self.clients.pulsar.hear(bytes),
                    MQTT => self.clients.mqtt.hear(peer, bytes),
                    _ => self.clients.tubemq.hear(bytes),
                }
            }
        }
        if heard {
            self.note();
        }
    }

    fn peers(&self, protocol: usize) -> Vec<u64> {
        match protocol {
            PULSAR => self.clients.pulsar.peers(),
            MQTT => self.clients.mqtt.peers(),
            _ => self.clients.tubemq.peers(),
        }
    }

    /// The writer commits, and the clients hear the answers. Returns false if the store cannot
    /// write at the moment.
    pub fn commit(&mut self) -> bool {
        let (waiting, told) = (self.node.waiting, self.clients.told());
        let done = self.node.commit();
        self.failure = self.node.failure();
        if self.failure.is_some() {
            // Whatever the brokers say now is an error.
            return true;
        }
        self.listen();
        self.waits += usize::from(!done);
        assert!(
            done || !waiting || told == self.clients.told(),
            "something was confirmed that is not written"
        );
        done
    }

    /// Commits until everything has been said.
    pub fn settle(&mut self) {
        // Answers may make a broker write again.
        for _ in 0..2 {
            while !self.commit() {
                self.neighbour = None;
                assert!(self.waits < 10_000, "the writer waits for ever");
            }
        }
    }

    /// Another process does something with the database.
    fn visit(&mut self, chance: &mut Chance) {
        let open = || {
            let db = Connection::open(self.path.join("broker.db")).unwrap();
            db.busy_timeout(Duration::ZERO).unwrap();
            db
        };
        let count = |db: &Connection| {
            db.query_row("SELECT count(*) FROM entry", [], |row| row.get::<_, i64>(0)).unwrap();
        };
        match chance.below(7) {
            0 => self.neighbour = None,
            // Reads an old state, so that the log cannot begin again.
            1 if self.neighbour.is_none() => {
                let db = open();
                db.execute_batch("BEGIN").unwrap();
                count(&db);
                self.neighbour = Some(db);
            }
            // Keeps the broker from writing.
            2 if self.neighbour.is_none() => {
                let db = open();
                db.execute_batch("BEGIN IMMEDIATE").unwrap();
                self.neighbour = Some(db);
            }
            3 => {
                let _ = open().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            }
            _ => count(&open()),
        }
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Duration) {
        // However far the broker gets.
        self.clients.mqtt.pass(time);
        self.note();
        self.node.pass(time);
    }

    /// One step of a script: of a client, or of the clock.
    pub fn step(&mut self, chance: &mut Chance, protocol: usize) {
        if self.weather.neighbour && chance.percent(25) {
            self.visit(chance);
        }
        if chance.percent(4) {
            self.pass(Duration::from_millis(chance.within(50, 61_000) as u64));
        }
        match protocol {
            PULSAR => pulsar::step(self, chance),
            MQTT => mqtt::step(self, chance),
            _ => tubemq::step(self, chance),
        }
        // Some changes share a commit.
        if chance.percent(70) {
            self.commit();
        }
    }

    /// The clients connect, subscribe and create what they need.
    pub fn set_up(&mut self, protocols: &[usize]) {
        for protocol in protocols {
            match *protocol {
                PULSAR => pulsar::set_up(self),
                MQTT => mqtt::set_up(self),
                _ => tubemq::set_up(self),
            }
        }
    }

    /// The clients come back to a broker that was opened again, finish what they had begun, and
    /// compare what they find with what they know.
    pub fn verify(&mut self) {
        let sound = self.integrity();
        assert_eq!(sound, "ok", "integrity_check");
        pulsar::verify(self);
        mqtt::verify(self);
        tubemq::verify(self);
    }

    /// The answer of SQLite's own check.
    pub fn integrity(&self) -> String {
        let db = forebay_sqlite::open(&self.path.join("broker.db"), Sync::Full).unwrap();
        db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
    }

    /// Stops the broker and gives its disk.
    pub fn stop(self) -> (Mount, Clients) {
        self.node.stop();
        (self.mount, self.clients)
    }
}

/// Plays a script on an empty disk, stops the broker and starts it again.
pub fn record(path: &Path, protocols: &[usize], seed: u64, reach: Reach, weather: Weather) -> Recorded {
    let mut chance = Chance::new(seed);
    let mount = Mount::new(path, Disk::default());
    let start = mount.disk().start_trace();
    let mut world = World::open(path, mount, reach, Clients::default()).unwrap();
    world.ledger = Some(vec![Clients::default()]);
    world.set_up(protocols);
    world.weather = weather;
    world.disk().fault = weather.fault;
    for _ in 0..STEPS {
        let protocol = protocols[chance.below(protocols.len())];
        world.step(&mut chance, protocol);
        if world.failure.is_some() {
            break;
        }
    }
    world.disk().fault = None;
    world.neighbour = None;
    if world.failure.is_none() {
        world.settle();
    }
    world.note();
    let (ledger, waits, failure) = (world.ledger.take().unwrap(), world.waits, world.failure.take());
    let verbs = std::mem::take(&mut world.verbs);
    if failure.is_some() {
        let trace = world.disk().trace.take().unwrap();
        return Recorded { start, trace, ledger, verbs, waits, failure };
    }
    let (mount, clients) = world.stop();
    let world = World::open(path, mount, reach, clients).unwrap();
    let trace = world.disk().trace.take().unwrap();
    Recorded { start, trace, ledger, verbs, waits, failure }
}
