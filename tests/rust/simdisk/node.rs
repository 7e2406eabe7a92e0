//! The store with the brokers of all three protocols on it, opened as the server opens them, on one
//! thread: the writer commits when it is told to.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use forebay_base::error::Result;
use forebay_base::transmit::Transmit;
use forebay_broker::log::{Source, TopicIds};
use forebay_broker::protocol::{Clock, Protocol};
use forebay_broker::store::{self, Database, Directory, Op, StoreUsage};
use forebay_broker::{mqtt, pulsar, tubemq};
use forebay_sqlite::{Committer, Connection, Job, Outcome, Report, Sync};

pub const PULSAR: usize = 0;
pub const MQTT: usize = 1;
pub const TUBEMQ: usize = 2;

const WALL_MS: u64 = 1_700_000_000_000;
/// Pages of the log after which it is written to the database. In production they are many more,
/// and a script of some hundred changes would never get there.
const CHECKPOINT_PAGES: u32 = 40;

/// A change, and the protocol that is told about it.
#[derive(Debug)]
struct Change {
    op: Op,
    from: usize,
}

impl Job for Change {
    fn size(&self) -> usize {
        self.op.size()
    }

    fn apply_after(&self, db: &Connection, removed: &mut usize) -> rusqlite::Result<()> {
        self.op.apply_after(db, removed)
    }

    fn stands_alone(&self) -> bool {
        self.op.stands_alone()
    }
}

type OnReport = Box<dyn FnMut(&[Change], &Outcome)>;
/// Outcomes, each with the number of changes of each protocol that share it.
type Reports = Rc<RefCell<Vec<([u64; 3], Outcome)>>>;

/// How far a commit reaches before it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// As with the durability `fsync`.
    Disk,
    /// As with the durability `os`, which does not promise to survive a crash of the machine.
    System,
    /// As if SQLite never synced.
    Nowhere,
}

/// A broker on a store.
pub struct Node {
    pub now: Instant,
    pub protocols: [Box<dyn Protocol>; 3],
    committer: Committer<OnReport>,
    /// Changes of the next commit.
    batch: Vec<Change>,
    reports: Reports,
    /// Whether the protocols were told that the store cannot write at the moment.
    pub waiting: bool,
    _directory: Directory,
}

impl Node {
    pub fn open(path: &Path, reach: Reach) -> Result<Self> {
        let now = Instant::now();
        let sync = if reach == Reach::System { Sync::Os } else { Sync::Full };
        let database = Database::open(path, sync)?;
        let clock = Clock::new(now, WALL_MS).after_run(database.run_ms()?);
        let topic_ids = TopicIds::new(database.next_topic()?);
        let usage = StoreUsage::default();
        let db = database.connection();
        let source = || -> Result<Option<Box<dyn Source>>> { Ok(Some(Box::new(database.reader()?))) };
        let settings = pulsar::options::Settings {
            urls: vec!["pulsar://127.0.0.1:6650".into()],
            web_urls: Vec::new(),
            session: pulsar::session::SessionConfig {
                max_message_size: 5 << 20,
                keep_alive: Duration::from_secs(30),
                tokens: None,
            },
            clock,
            stored: true,
            auto_create: true,
            partitions: 0,
            deduplicate: true,
            schema_compatibility: pulsar::options::SchemaCompatibility::default(),
            retention: Duration::ZERO,
            retention_bytes: 1 << 20,
            usage: usage.clone(),
            max_store: 1 << 30,
            max_topics: 100,
            namespaces: vec!["*".into()],
            topic_ids: topic_ids.clone(),
            permissions: None,
            owners: false,
        };
        let pulsar =
            pulsar::Broker::new(settings, store::load(db, "pulsar", clock.run_ms(now))?, source()?, now);
        let settings = mqtt::Settings {
            limits: mqtt::Limits::default(),
            clock,
            stored: true,
            usage: usage.clone(),
            max_store: 1 << 30,
            max_transient: 256 << 20,
            seed: 7,
            passwords: None,
            tokens: None,
            permissions: None,
            certificates: false,
        };
        let mqtt = mqtt::Broker::new(settings, store::mqtt::load(db, &topic_ids)?, source()?, now);
        let settings = tubemq::Settings {
            address: ("127.0.0.1".into(), 8123),
            clock,
            stored: true,
            auto_create: true,
            partitions: 1,
            max_message_size: 1 << 20,
            retention: Duration::from_secs(3600),
            offset_retention: Duration::from_secs(24 * 3600),
            usage,
            max_store: 1 << 30,
            max_topics: 100,
            client_timeout: Duration::from_secs(3600),
            seed: 7,
            users: None,
            topic_ids,
            permissions: None,
            owners: false,
            certificates: false,
        };
        let tubemq =
            tubemq::Broker::new(settings, store::load(db, "tubemq", clock.run_ms(now))?, source()?, now);
        let (connection, directory) = database.into_parts();
        connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        if reach == Reach::Nowhere {
            connection.pragma_update(None, "synchronous", "OFF")?;
        }
        let reports = Reports::default();
        let to = reports.clone();
        let report = move |batch: &[Change], outcome: &Outcome| {
            let jobs = [PULSAR, MQTT, TUBEMQ]
                .map(|protocol| batch.iter().filter(|change| change.from == protocol).count() as u64);
            to.borrow_mut().push((jobs, outcome.clone()));
        };
        Ok(Self {
            now,
            protocols: [Box::new(pulsar), Box::new(mqtt), Box::new(tubemq)],
            committer: Committer::new(connection, Box::new(report)),
            batch: Vec::new(),
            reports,
            waiting: false,
            _directory: directory,
        })
    }

    pub fn connect(&mut self, protocol: usize) -> u64 {
        self.protocols[protocol].connect(self.now, "127.0.0.1:1")
    }

    /// Passes bytes of a client to its broker.
    pub fn input(&mut self, protocol: usize, peer: u64, bytes: &[u8]) -> Result<()> {
        self.protocols[protocol].handle_input(self.now, peer, &mut BytesMut::from(bytes))
    }

    /// Bytes from a broker to its client.
    pub fn output(&mut self, protocol: usize, peer: u64) -> BytesMut {
        let mut bytes = BytesMut::new();
        while self.protocols[protocol].poll_wake().is_some() {}
        loop {
            let mut output = Transmit::default();
            self.protocols[protocol].take_output(self.now, peer, &mut output);
            if output.is_empty() {
                return bytes;
            }
            bytes.extend_from_slice(&output.take());
        }
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        for protocol in &mut self.protocols {
            if protocol.poll_timeout().is_some_and(|due| due <= self.now) {
                protocol.handle_timeout(self.now);
            }
        }
    }

    /// Gives the brokers' changes to the writer.
    fn take_changes(&mut self) {
        for (from, protocol) in self.protocols.iter_mut().enumerate() {
            while let Some(op) = protocol.poll_op() {
                self.batch.push(Change { op, from });
            }
        }
    }

    /// The writer commits until nothing is left to be written; returns false if it cannot write at
    /// the moment.
    pub fn commit(&mut self) -> bool {
        loop {
            // While it waits for the disk, the writer does not look for more.
            if !self.waiting {
                self.take_changes();
            }
            if self.batch.is_empty() {
                return true;
            }
            let pause = self.committer.commit(&self.batch, &AtomicBool::new(false));
            for (jobs, outcome) in self.reports.take() {
                let was_waiting =
                    std::mem::replace(&mut self.waiting, matches!(outcome, Outcome::Waiting(_)));
                let all = self.waiting || was_waiting;
                for (protocol, jobs) in
                    self.protocols.iter_mut().zip(jobs).filter(|(_, jobs)| all || *jobs > 0)
                {
                    protocol.handle_report(self.now, Report { jobs, outcome: outcome.clone() });
                }
            }
            if pause.is_some() {
                return false;
            }
            self.batch.clear();
        }
    }

    /// Why the store has failed.
    pub fn failure(&self) -> Option<String> {
        self.protocols.iter().find_map(|protocol| protocol.failure().map(ToString::to_string))
    }

    /// Stops as the server does: everything is written, and the log goes into the database.
    pub fn stop(mut self) {
        for protocol in &mut self.protocols {
            protocol.shut_down(self.now);
        }
        self.commit();
        self.committer.finish();
    }
}
