//! TubeMQ's state machines against a minimal broker, without sockets and clock.
//!
//! Connections are cut at any byte; the broker may be full, forget its consumers and delay them. It
//! behaves as observed with the real one: it runs calls in order, delivers one batch at a time,
//! takes the confirmation of the last batch with the next get, and delivers the batch again after
//! "not consumed". Unlike the embedded broker, against which `engine` runs the whole client, it
//! refuses calls now and then (410, 419, 452, 503) and answers gets with nothing before the end is
//! reached.
//!
//! The group is never committed beyond the application's acknowledgements. At rest, each message
//! reported as stored is in a log, and each message of a log was delivered and acknowledged;
//! without faults, exactly once and in order.
//!
//! Each run follows from its seed: `SIMULATOR_SEED=n` replays one run, `SIMULATOR_SEEDS=n` sets the
//! number of runs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use forebay_base::error::{Error, ErrorKind};
use forebay_base::machine::Machine as _;
use forebay_base::transmit::Transmit;
use forebay_tubemq::balance::PartitionLocation;
use forebay_tubemq::connection::Connection;
use forebay_tubemq::consumer::{self, Consumer, Message, Start};
use forebay_tubemq::frame::{Decoder, MAX_PAYLOAD};
use forebay_tubemq::message::{Outgoing, checksum, pack};
use forebay_tubemq::producer::{self, Producer};
use forebay_tubemq::topic::{Broker as BrokerInfo, Partition};
use forebay_tubemq::{Call, Reply, Request, Response, UNDEFINED, pb};

use crate::support::chance::Chance;
use crate::support::seeds::{self, play, trace};

const PARTITIONS: u32 = 3;
const STEPS: usize = 600;
const VISIT: pb::AuthorizedInfo =
    pb::AuthorizedInfo { visit_authorized_token: UNDEFINED, auth_authorized_token: None };

/// The state machine that a call belongs to.
#[derive(Clone, Copy, Debug)]
enum Tag {
    Send(u64),
    Part(usize),
}

#[derive(Clone)]
struct Stored {
    id: i64,
    data: Bytes,
    flag: i32,
}

#[derive(Default)]
struct Log {
    messages: Vec<Stored>,
    held: bool,
    committed: usize,
    /// The end of the batch that was delivered and is not confirmed.
    given: Option<usize>,
}

#[derive(Default)]
struct Broker {
    logs: Vec<Log>,
    next_id: i64,
    /// Whether it may refuse calls and forget consumers.
    faults: bool,
}

impl Broker {
    fn handle(&mut self, chance: &mut Chance, request: Request) -> Response {
        match request {
            Request::SendMessage(send) => {
                let log = &mut self.logs[send.partition_id as usize];
                let code = match chance.below(20) {
                    0 if self.faults => 419,
                    1 if self.faults => 503,
                    _ => 200,
                };
                if code == 200 {
                    self.next_id += 1;
                    log.messages.push(Stored { id: self.next_id, data: send.data, flag: send.flag });
                }
                Response::SendMessage(pb::SendMessageResponseB2p {
                    success: code == 200,
                    err_code: code,
                    err_msg: String::new(),
                    require_auth: None,
                    message_id: Some(self.next_id),
                    append_time: Some(0),
                    append_offset: Some(log.messages.len() as i64 * 28 - 28),
                })
            }
            Request::PartitionRegister(register) => {
                let log = &mut self.logs[register.partition_id as usize];
                let code = if self.faults && chance.below(8) == 0 { 410 } else { 200 };
                if code == 200 {
                    if register.op_type == 32 && register.read_status == 0 {
                        log.committed = log.given.unwrap_or(log.committed);
                    }
                    log.held = register.op_type == 31;
                    log.given = None;
                }
                Response::PartitionRegister(pb::RegisterResponseB2c {
                    success: code == 200,
                    err_code: code,
                    err_msg: String::new(),
                    curr_offset: Some(log.committed as i64 * 28),
                    max_offset: Some(log.messages.len() as i64 * 28),
                })
            }
            Request::GetMessages(get) => {
                let log = &mut self.logs[get.partition_id as usize];
                if self.faults && chance.below(50) == 0 {
                    log.held = false;
                }
                let mut response = pb::GetMessageResponseB2c { err_code: 200, ..Default::default() };
                if !log.held {
                    response.err_code = 411;
                    return Response::GetMessages(response);
                }
                if self.faults && chance.below(20) == 0 {
                    // It applies limits before confirmations.
                    response.err_code = 452;
                    response.min_limit_time = Some(20);
                    return Response::GetMessages(response);
                }
                let given = log.given.take();
                if get.last_pack_consumed == Some(true) {
                    log.committed = given.unwrap_or(log.committed);
                }
                let end = (log.committed + 1 + chance.below(4)).min(log.messages.len());
                response.max_offset = Some(log.messages.len() as i64 * 28);
                if end == log.committed {
                    response.err_code = 404;
                    response.err_msg = Some("The request offset reached maxOffset!".into());
                    return Response::GetMessages(response);
                }
                response.success = true;
                response.curr_offset = Some(log.committed as i64 * 28);
                if chance.below(10) == 0 {
                    // Skips messages of other partitions.
                    return Response::GetMessages(response);
                }
                log.given = Some(end);
                response.messages = log.messages[log.committed..end]
                    .iter()
                    .map(|stored| pb::TransferedMessage {
                        message_id: stored.id,
                        check_sum: checksum(&stored.data),
                        pay_load_data: stored.data.clone(),
                        flag: stored.flag,
                    })
                    .collect();
                Response::GetMessages(response)
            }
            Request::CommitOffset(commit) => {
                let log = &mut self.logs[commit.partition_id as usize];
                let success = log.held;
                if let Some(given) = log.given.take().filter(|_| success) {
                    log.committed = given;
                }
                Response::CommitOffset(pb::CommitOffsetResponseB2c {
                    success,
                    err_code: if success { 200 } else { 411 },
                    err_msg: String::new(),
                    curr_offset: Some(log.committed as i64 * 28),
                    max_offset: None,
                })
            }
            other => panic!("unexpected request {other:?}"),
        }
    }
}

/// A connection: both ends, and the bytes in flight.
struct Link {
    client: Connection<Tag>,
    up: VecDeque<u8>,
    down: VecDeque<u8>,
    input: BytesMut,
    heard: BytesMut,
    decoder: Decoder,
}

impl Link {
    fn new() -> Self {
        Self {
            client: Connection::new(Duration::from_secs(10)),
            up: VecDeque::new(),
            down: VecDeque::new(),
            input: BytesMut::new(),
            heard: BytesMut::new(),
            decoder: Decoder::new(MAX_PAYLOAD),
        }
    }
}

struct World {
    chance: Chance,
    now: Instant,
    broker: Broker,
    link: Option<Link>,
    back: Instant,
    producer: Producer,
    parts: Vec<Consumer>,
    /// Pushed messages with their keys; completed ones, in order.
    pushed: u32,
    stored: BTreeSet<u32>,
    ended: u32,
    /// Messages taken and not acknowledged yet.
    taken: Vec<(usize, Message)>,
    acked: BTreeSet<(usize, u32)>,
    seen: BTreeMap<(usize, u32), u32>,
    /// First deliveries by partition, in order.
    order: Vec<Vec<u32>>,
    faults: bool,
}

fn number(data: &[u8]) -> u32 {
    std::str::from_utf8(data).unwrap().parse().unwrap()
}

impl World {
    fn new(seed: u64, faults: bool) -> Self {
        let now = Instant::now();
        let mut producer = Producer::new(producer::Options {
            client_id: "c".into(),
            topic: "demo".into(),
            address: 0,
            max_pending: 16,
            send_timeout: None,
            seed: seed as u32,
        });
        let partitions = (0..PARTITIONS).map(|id| Partition { broker: 1, id }).collect();
        producer.set_partitions(now, partitions, 1000);
        let parts = (0..PARTITIONS).map(|id| {
            let options = consumer::Options {
                client_id: "c".into(),
                group: "g".into(),
                location: PartitionLocation {
                    topic: "demo".into(),
                    partition: Partition { broker: 1, id },
                    broker: BrokerInfo { id: 1, host: "h".into(), port: 1 },
                },
                filters: Arc::default(),
                start: Start::First,
                nack_delay: Duration::from_millis(30),
                poll_interval: Duration::from_millis(50),
            };
            Consumer::new(options, now)
        });
        Self {
            chance: Chance::new(seed),
            now,
            broker: Broker { logs: (0..PARTITIONS).map(|_| Log::default()).collect(), next_id: 0, faults },
            link: None,
            back: now,
            producer,
            parts: parts.collect(),
            pushed: 0,
            stored: BTreeSet::new(),
            ended: 0,
            taken: Vec::new(),
            acked: BTreeSet::new(),
            seen: BTreeMap::new(),
            order: vec![Vec::new(); PARTITIONS as usize],
            faults,
        }
    }

    fn connect(&mut self) {
        if self.link.is_none() && self.back <= self.now {
            self.link = Some(Link::new());
            self.producer.attach(1);
            for part in &mut self.parts {
                part.attach();
            }
        }
    }

    fn cut(&mut self) {
        let Some(mut link) = self.link.take() else { return };
        // The broker may still carry out calls that have reached it.
        if self.chance.below(2) == 0 {
            link.heard.extend(link.up.drain(..));
            while let Some(frame) = link.decoder.next(&mut link.heard).unwrap() {
                let call = Call::decode(&frame.payload).unwrap();
                self.broker.handle(&mut self.chance, call.request);
            }
        }
        link.client.fail_calls(&Error::new(ErrorKind::Disconnected, "cut"));
        self.answers(&mut link);
        let pause = Duration::from_millis(self.chance.below(100) as u64);
        self.back = self.now + pause;
        self.producer.detach(self.now, 1, pause);
        self.parts.iter_mut().for_each(Consumer::detach);
    }

    fn answers(&mut self, link: &mut Link) {
        while let Some(answer) = link.client.poll_event() {
            match answer.tag {
                Tag::Send(number) => self.producer.handle_answer(self.now, number, answer.result),
                Tag::Part(index) => self.parts[index].handle_answer(self.now, answer.result),
            }
        }
    }

    /// Delivers some bytes in both directions and lets both ends send.
    fn network(&mut self) {
        let Some(mut link) = self.link.take() else { return };
        self.producer.handle_timeout(self.now);
        while let Some((number, request)) = self.producer.poll_request(self.now, 1, &VISIT) {
            link.client.call(self.now, request, Tag::Send(number));
        }
        for (index, part) in self.parts.iter_mut().enumerate() {
            if let Some(request) = part.poll_request(self.now, true, &VISIT) {
                link.client.call(self.now, request, Tag::Part(index));
            }
        }
        link.up.extend(link.client.transmit().take());
        let some = self.chance.below(link.up.len() + 1);
        link.heard.extend(link.up.drain(..some));
        while let Some(frame) = link.decoder.next(&mut link.heard).unwrap() {
            let call = Call::decode(&frame.payload).unwrap();
            assert!(call.timeout.is_some_and(|timeout| timeout > 0));
            let response = self.broker.handle(&mut self.chance, call.request);
            let mut out = Transmit::default();
            Reply::response(response).encode(frame.serial, &mut out).unwrap();
            link.down.extend(out.take());
        }
        let some = self.chance.below(link.down.len() + 1);
        link.input.extend(link.down.drain(..some));
        link.client.handle_input(self.now, &mut link.input).unwrap();
        self.answers(&mut link);
        self.link = Some(link);
    }

    fn application(&mut self) {
        for (index, part) in self.parts.iter_mut().enumerate() {
            let mut messages: Vec<Message> = Vec::new();
            let most = self.chance.below(3);
            part.take(most, &mut messages);
            for message in messages {
                let number = number(&message.payload);
                let times = self.seen.entry((index, number)).or_default();
                *times += 1;
                if *times == 1 {
                    self.order[index].push(number);
                }
                self.taken.push((index, message));
            }
        }
        while !self.taken.is_empty() && self.chance.below(3) > 0 {
            let which = self.chance.below(self.taken.len());
            let (index, message) = self.taken.swap_remove(which);
            if self.faults && self.chance.below(12) == 0 {
                self.parts[index].nack(self.now, &message, None);
                continue;
            }
            self.acked.insert((index, number(&message.payload)));
            self.parts[index].ack(self.now, &message);
        }
        if self.faults && self.chance.below(20) == 0 {
            let which = self.chance.below(PARTITIONS as usize);
            let paused = self.chance.below(2) == 0;
            self.parts[which].set_paused(paused);
        }
    }

    fn push(&mut self) {
        let key = (self.chance.below(2) == 0).then(|| self.chance.below(4).to_string());
        let text = self.pushed.to_string();
        let packed = pack(&Outgoing { payload: text.as_bytes(), ..Outgoing::default() }).unwrap();
        if self.producer.push(self.now, packed, key.as_deref(), 1).is_ok() {
            self.pushed += 1;
        }
    }

    fn outcomes(&mut self) {
        self.producer.poll_wants();
        while let Some(event) = self.producer.poll_event() {
            match event {
                producer::Event::Stored { position, .. } => {
                    let log = &self.broker.logs[position.partition as usize];
                    let stored = &log.messages[(position.offset / 28) as usize];
                    assert_eq!(number(&stored.data), self.ended, "it is where the producer was told");
                    self.stored.insert(self.ended);
                    self.ended += 1;
                }
                producer::Event::Failed { error, .. } => panic!("nothing fails here for good: {error}"),
                producer::Event::Refresh => {}
            }
        }
    }

    /// Asserts that the application has acknowledged what the broker counts as consumed.
    fn check(&self) {
        for (index, log) in self.broker.logs.iter().enumerate() {
            for stored in &log.messages[..log.committed] {
                let number = number(&stored.data);
                assert!(self.acked.contains(&(index, number)), "{number} is committed unseen");
            }
        }
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(self.chance.below(15) as u64);
        self.connect();
        if self.chance.below(3) == 0 {
            self.push();
        }
        self.network();
        self.application();
        if self.faults && self.chance.below(25) == 0 {
            self.cut();
        }
        self.outcomes();
        self.check();
    }

    fn is_at_rest(&self) -> bool {
        self.producer.pending_messages() == 0
            && self.broker.logs.iter().all(|log| log.committed == log.messages.len())
    }
}

fn run(seed: u64, faults: bool) {
    let mut world = World::new(seed, faults);
    for _ in 0..STEPS {
        world.step();
    }
    // No more faults, and no more messages.
    world.faults = false;
    world.broker.faults = false;
    world.parts.iter_mut().for_each(|part| part.set_paused(false));
    for _ in 0..20_000 {
        if world.is_at_rest() {
            break;
        }
        world.now += Duration::from_millis(10);
        world.connect();
        world.network();
        world.application();
        world.outcomes();
        world.check();
    }
    assert!(world.is_at_rest(), "something hangs: {:?}", world.parts);
    assert_eq!(world.ended, world.pushed);
    let logged: BTreeSet<u32> =
        world.broker.logs.iter().flat_map(|log| &log.messages).map(|stored| number(&stored.data)).collect();
    assert_eq!(logged, (0..world.pushed).collect::<BTreeSet<_>>());
    for (index, log) in world.broker.logs.iter().enumerate() {
        let log: Vec<u32> = log.messages.iter().map(|stored| number(&stored.data)).collect();
        assert!(log.iter().all(|number| world.acked.contains(&(index, *number))));
        if !faults {
            assert_eq!(world.order[index], log, "in order");
            assert!(log.is_sorted(), "and in that of the pushes");
        }
    }
    if !faults {
        assert!(world.seen.values().all(|times| *times == 1), "once");
        assert_eq!(world.seen.len(), world.pushed as usize);
    }
}

#[test]
fn nothing_is_lost_and_nothing_is_acknowledged_unseen() {
    for seed in seeds::share(60, 0, 1) {
        for faults in [false, true] {
            trace(format_args!("faults: {faults}"));
            play(seed, || run(seed, faults));
        }
    }
}
