//! A TubeMQ master and broker without socket and clock, on a real database, driven by hand.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use forebay_base::error::{Error, ErrorKind};
use forebay_base::transmit::Transmit;
use forebay_broker::log::Source;
use forebay_broker::protocol::Protocol as _;
use forebay_broker::store::{Directory, Op, Stored, load, prepare};
use forebay_broker::tubemq::{Broker, Settings};
use forebay_sqlite::{Connection, Job, Outcome, Report, Sync};
use forebay_tubemq::command::{Call, Reply, Request, Response};
use forebay_tubemq::frame::Decoder;
use forebay_tubemq::pb;

pub use super::settings::tubemq as settings;

/// A master and broker, its store and its time.
pub struct Bench {
    pub broker: Broker,
    pub now: Instant,
    /// Whether the store holds its reports back.
    pub held: bool,
    ops: VecDeque<Op>,
    pub db: Connection,
    directory: tempfile::TempDir,
    pub settings: Settings,
    serial: u32,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let now = Instant::now();
        let mut settings = settings(now);
        change(&mut settings);
        let directory = tempfile::tempdir().unwrap();
        let db = Directory::open(directory.path()).unwrap().connect(Sync::Os).unwrap();
        prepare(&db).unwrap();
        let broker = Self::open(&settings, &db, &directory, now);
        Self { broker, now, held: false, ops: VecDeque::new(), db, directory, settings, serial: 0 }
    }

    fn open(settings: &Settings, db: &Connection, directory: &tempfile::TempDir, now: Instant) -> Broker {
        let found = load(db, "tubemq", settings.clock.run_ms(now)).unwrap();
        let second = Directory::open(directory.path()).unwrap().connect(Sync::Os).unwrap();
        let source: Box<dyn Source> = Box::new(Stored::new(second));
        Broker::new(settings.clone(), found, Some(source), now)
    }

    pub fn connect(&mut self) -> u64 {
        self.broker.connect(self.now, "127.0.0.1:1")
    }

    /// Takes the changes; writes and reports them unless they are held.
    pub fn settle(&mut self) {
        self.ops.extend(std::iter::from_fn(|| self.broker.poll_op()));
        if !self.held && !self.ops.is_empty() {
            let jobs = self.ops.len();
            self.apply(jobs);
            self.broker
                .handle_report(self.now, Report { jobs: jobs as u64, outcome: Outcome::Written(1000) });
            self.settle();
        }
    }

    fn apply(&mut self, count: usize) {
        let transaction = self.db.unchecked_transaction().unwrap();
        for op in self.ops.drain(..count) {
            op.apply(&transaction).unwrap();
        }
        transaction.commit().unwrap();
    }

    /// The store writes the held changes.
    pub fn write(&mut self) {
        self.held = false;
        self.settle();
    }

    /// The store fails to write the held changes.
    pub fn fail(&mut self) {
        let jobs = self.ops.drain(..).count() as u64;
        let outcome = Outcome::Failed(Error::new(ErrorKind::Persistence, "no space left"));
        self.broker.handle_report(self.now, Report { jobs, outcome });
    }

    /// Kills the process after `written` of the pending changes reached the disk, and starts it
    /// again.
    pub fn kill(&mut self, written: usize) {
        self.ops.extend(std::iter::from_fn(|| self.broker.poll_op()));
        self.apply(written.min(self.ops.len()));
        self.ops.clear();
        self.held = false;
        self.broker = Self::open(&self.settings, &self.db, &self.directory, self.now);
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.broker.poll_timeout().filter(|due| *due <= end) {
            self.now = due;
            self.broker.handle_timeout(due);
            self.settle();
        }
        self.now = end;
    }

    /// Passes raw bytes to the broker.
    pub fn input(&mut self, seat: u64, bytes: &[u8]) -> forebay_base::error::Result<()> {
        let result = self.broker.handle_input(self.now, seat, &mut BytesMut::from(bytes));
        self.settle();
        result
    }

    /// Bytes that the broker has sent.
    pub fn replies(&mut self, seat: u64) -> Vec<(u32, Reply)> {
        let mut out = Transmit::default();
        self.broker.take_output(self.now, seat, &mut out);
        let (mut bytes, mut decoder) = (out.take(), Decoder::new(28 << 20));
        let mut replies = Vec::new();
        while let Some(frame) = decoder.next(&mut bytes).unwrap() {
            replies.push((frame.serial, Reply::decode(&frame.payload).unwrap()));
        }
        assert!(bytes.is_empty());
        replies
    }

    /// Sends a request and returns its serial number.
    pub fn ask(&mut self, seat: u64, call: &Call) -> u32 {
        self.serial += 1;
        let mut out = Transmit::default();
        call.encode(self.serial, &mut out).unwrap();
        let bytes = out.take();
        self.input(seat, &bytes).unwrap();
        self.serial
    }

    /// Sends a request and returns its only answer, a response or an exception.
    pub fn reply(&mut self, seat: u64, call: &Call) -> Reply {
        let serial = self.ask(seat, call);
        let mut replies = self.replies(seat);
        assert_eq!(replies.len(), 1, "{replies:?}");
        let (answered, reply) = replies.pop().unwrap();
        assert_eq!(answered, serial);
        reply
    }

    pub fn call(&mut self, seat: u64, request: Request) -> Response {
        match self.reply(seat, &Call::new(request, Duration::from_secs(10))) {
            Reply::Response { response, .. } => response,
            Reply::Exception(exception) => panic!("{exception:?}"),
        }
    }
}

pub fn message(topic: &str, partition: i32, data: &[u8]) -> pb::SendMessageRequestP2b {
    pb::SendMessageRequestP2b {
        client_id: "producer".into(),
        topic_name: topic.into(),
        partition_id: partition,
        data: Bytes::copy_from_slice(data),
        flag: 0,
        check_sum: -1,
        sent_addr: 0x7f00_0001,
        msg_type: None,
        msg_time: None,
        auth_info: None,
    }
}
