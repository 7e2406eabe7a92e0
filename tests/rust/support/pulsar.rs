//! A broker without socket, disk and clock, driven by hand.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::transmit::Transmit;
use forebay_broker::protocol::Protocol as _;
use forebay_broker::pulsar::{Broker, options::Settings};
use forebay_broker::store::Found;
use forebay_pulsar::command::Command;
use forebay_pulsar::frame::{Decoder, Frame, Payload};
use forebay_pulsar::{hot, pb};
use forebay_sqlite::{Outcome, Report};

pub use super::settings::{WALL_MS, pulsar as settings};

pub const TOPIC: &str = "persistent://public/default/orders";
pub const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";

/// A broker, its store and its time.
pub struct Bench {
    pub broker: Broker,
    pub settings: Settings,
    pub start: Instant,
    pub now: Instant,
    /// Whether the store holds its reports back.
    pub held: bool,
    pub ops: u64,
    pub requests: u64,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let now = Instant::now();
        let mut settings = Settings { stored: false, ..settings(now) };
        change(&mut settings);
        let broker = Broker::new(settings.clone(), Found::default(), None, now);
        Self { broker, settings, start: now, now, held: false, ops: 0, requests: 100 }
    }

    pub fn settle(&mut self) {
        while self.broker.poll_op().is_some() {
            self.ops += 1;
        }
        if !self.held && self.ops > 0 {
            let jobs = std::mem::take(&mut self.ops);
            self.broker.handle_report(self.now, Report { jobs, outcome: Outcome::Written(0) });
            self.settle();
        }
    }

    pub fn fail(&mut self) {
        let jobs = std::mem::take(&mut self.ops);
        let outcome = Outcome::Failed(Error::new(ErrorKind::Persistence, "no space left"));
        self.broker.handle_report(self.now, Report { jobs, outcome });
    }

    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        self.broker.handle_timeout(self.now);
        self.settle();
    }

    pub fn wall_ms(&self) -> u64 {
        WALL_MS + (self.now - self.start).as_millis() as u64
    }

    pub fn frame(&mut self, peer: u64, frame: &Frame) -> Result<()> {
        let mut input = BytesMut::from(&frame.to_bytes()[..]);
        let result = self.broker.handle_input(self.now, peer, &mut input);
        self.settle();
        result
    }

    pub fn tell(&mut self, peer: u64, command: Command) -> Result<()> {
        self.frame(peer, &Frame::simple(command))
    }

    /// Frames from the broker to the peer since the last call.
    pub fn hear(&mut self, peer: u64) -> Vec<Frame> {
        let (mut frames, mut input) = (Vec::new(), BytesMut::new());
        loop {
            let mut output = Transmit::default();
            self.broker.take_output(self.now, peer, &mut output);
            if output.is_empty() {
                break;
            }
            input.extend_from_slice(&output.take());
        }
        while let Some(frame) = Decoder::new(6 << 20).next(&mut input).unwrap() {
            frames.push(frame);
        }
        frames
    }

    pub fn commands(&mut self, peer: u64) -> Vec<Command> {
        self.hear(peer).into_iter().map(|frame| frame.command).collect()
    }

    pub fn one(&mut self, peer: u64) -> Command {
        let mut commands = self.commands(peer);
        assert_eq!(commands.len(), 1, "{commands:?}");
        commands.remove(0)
    }

    pub fn ask(&mut self, peer: u64, command: Command) -> Command {
        self.tell(peer, command).unwrap();
        self.one(peer)
    }

    pub fn connect(&mut self) -> u64 {
        let peer = self.broker.connect(self.now, "127.0.0.1:1");
        let connected = self.ask(peer, Command::Connect(connect()));
        assert!(matches!(connected, Command::Connected(c) if c.max_message_size == Some(5 << 20)));
        peer
    }

    pub fn request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    pub fn produce(&mut self, peer: u64, id: u64, change: impl FnOnce(&mut pb::CommandProducer)) -> Command {
        let mut command = pb::CommandProducer {
            topic: TOPIC.into(),
            producer_id: id,
            request_id: self.request(),
            ..Default::default()
        };
        change(&mut command);
        self.ask(peer, Command::Producer(Box::new(command)))
    }

    pub fn producer(&mut self, peer: u64, id: u64) {
        let answer = self.produce(peer, id, |_| {});
        assert!(matches!(answer, Command::ProducerSuccess(_)), "{answer:?}");
    }

    pub fn subscription(
        &mut self,
        peer: u64,
        id: u64,
        kind: i32,
        change: impl FnOnce(&mut pb::CommandSubscribe),
    ) -> Vec<Command> {
        let mut command = pb::CommandSubscribe {
            topic: TOPIC.into(),
            subscription: "s".into(),
            sub_type: kind,
            consumer_id: id,
            request_id: self.request(),
            initial_position: Some(1),
            ..Default::default()
        };
        change(&mut command);
        self.tell(peer, Command::Subscribe(Box::new(command))).unwrap();
        self.commands(peer)
    }

    pub fn subscribe(&mut self, peer: u64, id: u64, kind: i32) {
        let answer = self.subscription(peer, id, kind, |_| {});
        assert!(matches!(answer.first(), Some(Command::Success(_))), "{answer:?}");
    }

    pub fn send(
        &mut self,
        peer: u64,
        id: u64,
        sequence_id: u64,
        change: impl FnOnce(&mut pb::MessageMetadata),
    ) {
        let mut metadata = pb::MessageMetadata {
            producer_name: "p".into(),
            sequence_id,
            publish_time: self.wall_ms(),
            ..Default::default()
        };
        change(&mut metadata);
        let mut bytes = BytesMut::new();
        hot::encode_metadata(&metadata, &mut bytes);
        let send = hot::Send { producer_id: id, sequence_id, ..Default::default() };
        let payload = Payload::build(&bytes, format!("m{sequence_id}").as_bytes());
        self.frame(peer, &Frame { command: Command::Send(send), payload: Some(payload) }).unwrap();
    }

    /// Sends `n` messages and takes their receipts.
    pub fn fill(&mut self, peer: u64, id: u64, sequence_ids: std::ops::Range<u64>) {
        let n = sequence_ids.clone().count();
        for sequence_id in sequence_ids {
            self.send(peer, id, sequence_id, |_| {});
        }
        let receipts =
            self.commands(peer).into_iter().filter(|c| matches!(c, Command::SendReceipt(_))).count();
        assert_eq!(receipts, n);
    }

    pub fn flow(&mut self, peer: u64, consumer_id: u64, permits: u32) {
        self.tell(peer, Command::Flow(hot::Flow { consumer_id, permits })).unwrap();
    }

    /// Entries delivered since the last call.
    pub fn entries(&mut self, peer: u64) -> Vec<u64> {
        self.deliveries(peer).into_iter().map(|delivery| delivery.message_id.entry_id).collect()
    }

    pub fn deliveries(&mut self, peer: u64) -> Vec<hot::Delivery> {
        let messages = self.commands(peer).into_iter();
        messages
            .filter_map(|c| if let Command::Message(delivery) = c { Some(delivery) } else { None })
            .collect()
    }

    pub fn ack(
        &mut self,
        peer: u64,
        consumer_id: u64,
        ack_type: i32,
        ids: Vec<pb::MessageIdData>,
        request_id: Option<u64>,
    ) {
        let ack = hot::Ack { consumer_id, ack_type, message_ids: ids, request_id, ..Default::default() };
        self.tell(peer, Command::Ack(ack)).unwrap();
    }

    pub fn ack_entry(&mut self, peer: u64, consumer_id: u64, entry: u64) {
        self.ack(peer, consumer_id, 0, vec![id(entry)], None);
    }

    pub fn seek(
        &mut self,
        peer: u64,
        consumer_id: u64,
        target: Option<pb::MessageIdData>,
        time: Option<u64>,
    ) -> Vec<Command> {
        let request_id = self.request();
        let seek =
            pb::CommandSeek { consumer_id, request_id, message_id: target, message_publish_time: time };
        self.tell(peer, Command::Seek(Box::new(seek))).unwrap();
        self.commands(peer)
    }
}

pub fn id(entry_id: u64) -> pb::MessageIdData {
    pb::MessageIdData { ledger_id: 7, entry_id, ..Default::default() }
}

pub fn connect() -> pb::CommandConnect {
    pb::CommandConnect { client_version: "test".into(), protocol_version: Some(21), ..Default::default() }
}

pub fn error_of(command: &Command) -> pb::ServerError {
    let code = match command {
        Command::Error(error) => error.error,
        Command::SendError(error) => error.error,
        other => panic!("not an error: {other:?}"),
    };
    pb::ServerError::try_from(code).unwrap()
}

pub fn receipt_of(command: &Command) -> (u64, u64, u64) {
    let Command::SendReceipt(receipt) = command else { panic!("not a receipt: {command:?}") };
    let id = receipt.message_id.as_ref().unwrap();
    (receipt.sequence_id, id.ledger_id, id.entry_id)
}

pub const EXCLUSIVE: i32 = 0;
pub const SHARED: i32 = 1;
pub const FAILOVER: i32 = 2;
pub const KEY_SHARED: i32 = 3;
