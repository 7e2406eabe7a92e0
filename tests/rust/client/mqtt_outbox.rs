//! A client with a durable outbox: a message reported as kept reaches the broker as soon as that is
//! reachable, whatever happens to the client in between, and with QoS 2 exactly once.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay_base::error::{Error, ErrorKind, Result};
use forebay_broker::{Broker, Durability, Listener, Options};
use forebay_client::Engine;
use forebay_client::events::{ConsumerEvents, ProducerEvents, SendOutcome};
use forebay_client::mqtt::options::{ClientOptions, ConsumerOptions, ProducerOptions};
use forebay_client::mqtt::outbox::OutboxOptions;
use forebay_client::mqtt::{Client, Consumer, Message, Outgoing, Producer};
use forebay_mqtt::QoS;
use forebay_mqtt::packet::SubscribeOptions;
use forebay_mqtt::topic::Filter;

/// An address without a listener.
const NOWHERE: &str = "mqtt://127.0.0.1:1";
const VICTIM: &str = "MQTT_OUTBOX_VICTIM";
const ROUNDS: u64 = 10;
const LIMIT: Duration = Duration::from_secs(60);

/// The outcomes of the sends, in the order of their slots.
#[derive(Default)]
struct Outcomes {
    ended: Mutex<(u64, Option<Error>)>,
    bell: Condvar,
}

impl Outcomes {
    fn change(&self, change: impl FnOnce(&mut (u64, Option<Error>))) {
        change(&mut self.ended.lock().unwrap());
        self.bell.notify_all();
    }

    fn wait(&self, kept: u64) {
        let (ended, late) = self
            .bell
            .wait_timeout_while(self.ended.lock().unwrap(), LIMIT, |ended| {
                ended.0 < kept && ended.1.is_none()
            })
            .unwrap();
        assert_eq!(ended.1, None);
        assert!(!late.timed_out(), "{} of {kept} were kept", ended.0);
    }
}

impl ProducerEvents for Outcomes {
    fn sent(&self, _: usize, outcome: SendOutcome) {
        self.change(|ended| match outcome {
            SendOutcome::Stored { count, .. } => ended.0 += u64::from(count),
            SendOutcome::Failed { error, .. } => ended.1 = Some(error),
        });
    }

    fn room(&self) {}

    fn closed(&self, _: Error) {}
}

struct Quiet;

impl ConsumerEvents for Quiet {
    fn readable(&self) {}

    fn closed(&self, _: Error) {}
}

fn broker() -> Broker {
    let listeners = vec![Listener::local("mqtt")];
    Broker::start(Options { listeners, durability: Durability::Memory, ..Options::default() }).unwrap()
}

fn options(url: &str, path: &Path) -> ClientOptions {
    ClientOptions {
        url: url.into(),
        outbox: Some(OutboxOptions::new(path)),
        max_backoff: Duration::from_millis(100),
        ..ClientOptions::default()
    }
}

fn open(engine: &Engine, options: ClientOptions) -> (Client, Producer, Arc<Outcomes>) {
    let client = engine.handle().block_on(Client::connect(options)).unwrap();
    let outcomes = Arc::new(Outcomes::default());
    let options = ProducerOptions { max_pending: 100_000, ..ProducerOptions::default() };
    let producer = client.producer("kept", options, Arc::<Outcomes>::clone(&outcomes) as _).unwrap();
    (client, producer, outcomes)
}

fn qos_of(number: u64) -> QoS {
    if number.is_multiple_of(2) { QoS::ExactlyOnce } else { QoS::AtLeastOnce }
}

fn send(producer: &Producer, number: u64, size: usize) -> Result<()> {
    let payload = format!("{number} {}", "x".repeat(size));
    let message = Outgoing { payload: payload.as_bytes(), qos: Some(qos_of(number)), ..Outgoing::default() };
    producer.push(&message, false).map(drop)
}

struct Reader {
    consumer: Consumer,
    _client: Client,
}

impl Reader {
    fn new(engine: &Engine, broker: &Broker) -> Self {
        let url = broker.urls().of("mqtt").unwrap().to_owned();
        let opened = async {
            let client = Client::connect(ClientOptions { url, ..ClientOptions::default() }).await?;
            let all = vec![(Filter::parse("kept")?, SubscribeOptions::qos(QoS::ExactlyOnce))];
            let options = ConsumerOptions { filters: all, auto_ack: true };
            Ok::<_, Error>((client.consumer(options, Arc::new(Quiet)).await?, client))
        };
        let (consumer, _client) = engine.handle().block_on(opened).unwrap();
        Self { consumer, _client }
    }

    /// The numbers by QoS in order of arrival, until all of these have come. Others may come as
    /// well: a client that was killed has kept messages that it could not report.
    fn read(&self, expected: impl IntoIterator<Item = u64>) -> BTreeMap<QoS, Vec<u64>> {
        let deadline = Instant::now() + LIMIT;
        let mut numbers = BTreeMap::<QoS, Vec<u64>>::new();
        let mut missing: BTreeSet<u64> = expected.into_iter().collect();
        while !missing.is_empty() {
            assert!(Instant::now() < deadline, "{missing:?} did not come");
            let mut messages = Vec::<Message>::new();
            if self.consumer.take(1000, &mut messages).unwrap() == 0 {
                std::thread::yield_now();
            }
            for message in messages {
                let publish = message.publish();
                let text = std::str::from_utf8(&publish.payload).unwrap();
                let number = text.split(' ').next().unwrap().parse().unwrap();
                missing.remove(&number);
                numbers.entry(publish.qos).or_default().push(number);
            }
        }
        numbers
    }
}

fn until_empty(client: &Client) {
    let deadline = Instant::now() + LIMIT;
    while client.outbox().unwrap().messages > 0 {
        assert!(Instant::now() < deadline, "{:?}", client.outbox());
        std::thread::yield_now();
    }
}

#[test]
fn what_was_kept_without_a_broker_is_sent_by_the_next_client_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.db");
    let engine = Engine::start(1).unwrap();
    let (client, producer, outcomes) = open(&engine, options(NOWHERE, &path));
    assert!(!client.is_connected());
    (0..200).for_each(|number| send(&producer, number, 10).unwrap());
    outcomes.wait(200);
    assert_eq!(client.outbox().unwrap().messages, 200);
    engine.handle().block_on(client.close()).unwrap();

    let broker = broker();
    let reader = Reader::new(&engine, &broker);
    let (client, producer, outcomes) = open(&engine, options(broker.urls().of("mqtt").unwrap(), &path));
    (200..220).for_each(|number| send(&producer, number, 10).unwrap());
    outcomes.wait(20);
    let numbers = reader.read(0..220);
    assert_eq!(numbers[&QoS::ExactlyOnce], (0..220).step_by(2).collect::<Vec<_>>());
    assert_eq!(numbers[&QoS::AtLeastOnce], (1..220).step_by(2).collect::<Vec<_>>());
    until_empty(&client);
    engine.handle().block_on(client.close()).unwrap();
}

#[test]
fn the_outbox_may_hold_more_than_the_memory_limit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.db");
    let engine = Engine::start(1).unwrap();
    let small = |url: &str| ClientOptions { memory_limit: 20_000, ..options(url, &path) };
    let (client, producer, outcomes) = open(&engine, small(NOWHERE));
    for number in 0..600 {
        // Messages that are not on disk yet count.
        while let Err(error) = send(&producer, number, 1000) {
            assert_eq!(error.kind(), ErrorKind::MemoryLimit, "{error}");
            std::thread::yield_now();
        }
    }
    outcomes.wait(600);
    assert!(client.outbox().unwrap().bytes > 600_000);
    assert_eq!(client.memory_used(), 0);
    drop((client, producer));

    let broker = broker();
    let reader = Reader::new(&engine, &broker);
    let url = broker.urls().of("mqtt").unwrap().to_owned();
    // A dropped client may still be closing the file.
    let deadline = Instant::now() + LIMIT;
    let (client, producer, _outcomes) = loop {
        match engine.handle().block_on(Client::connect(small(&url))) {
            Ok(client) => {
                let outcomes = Arc::new(Outcomes::default());
                let events = Arc::<Outcomes>::clone(&outcomes) as _;
                let producer = client.producer("kept", ProducerOptions::default(), events).unwrap();
                break (client, producer, outcomes);
            }
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    };
    // Behind the messages that wait on disk.
    while send(&producer, 600, 1000).is_err() {
        std::thread::yield_now();
    }
    let numbers = reader.read(0..601);
    assert_eq!(numbers[&QoS::ExactlyOnce], (0..601).step_by(2).collect::<Vec<_>>());
    assert_eq!(numbers[&QoS::AtLeastOnce], (1..601).step_by(2).collect::<Vec<_>>());
    until_empty(&client);
}

#[test]
fn what_the_broker_will_never_take_is_counted_and_does_not_hold_up_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let broker = broker();
    let engine = Engine::start(1).unwrap();
    let reader = Reader::new(&engine, &broker);
    let url = broker.urls().of("mqtt").unwrap().to_owned();
    let (client, producer, outcomes) = open(&engine, options(&url, &directory.path().join("out.db")));
    send(&producer, 0, 10).unwrap();
    send(&producer, 1, 3_000_000).unwrap();
    send(&producer, 2, 10).unwrap();
    send(&producer, 3, 10).unwrap();
    outcomes.wait(4);
    let numbers = reader.read([0, 2, 3]);
    assert_eq!(numbers[&QoS::ExactlyOnce], [0, 2]);
    assert_eq!(numbers[&QoS::AtLeastOnce], [3]);
    until_empty(&client);
    let stats = client.outbox().unwrap();
    assert_eq!(stats.refused, 1);
    assert_eq!(stats.last_refusal.unwrap().kind(), ErrorKind::MessageTooLarge);
}

#[test]
fn an_outbox_belongs_to_one_client_at_a_time_and_its_messages_in_flight_to_one_session() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.db");
    let engine = Engine::start(1).unwrap();
    let (client, ..) = open(&engine, options(NOWHERE, &path));
    let error = engine.handle().block_on(Client::connect(options(NOWHERE, &path))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    engine.handle().block_on(client.close()).unwrap();
    // Nothing is in flight, so another client id may use the outbox.
    let named = ClientOptions { client_id: "other".into(), ..options(NOWHERE, &path) };
    let client = engine.handle().block_on(Client::connect(named)).unwrap();
    engine.handle().block_on(client.close()).unwrap();
}

/// Publishes until it is killed, and reports what was kept.
fn victim(arguments: &str) -> ! {
    let mut arguments = arguments.split('|');
    let (url, path) = (arguments.next().unwrap(), arguments.next().unwrap());
    let mut number = arguments.next().unwrap().parse::<u64>().unwrap();
    let engine = Engine::start(1).unwrap();
    let (_client, producer, outcomes) = open(&engine, options(url, Path::new(path)));
    let mut kept = 0;
    loop {
        for _ in 0..4 {
            send(&producer, number, number as usize % 300).unwrap();
            number += 1;
        }
        kept += 4;
        outcomes.wait(kept);
        let mut out = std::io::stdout().lock();
        writeln!(out, "kept {number}").and_then(|()| out.flush()).unwrap();
    }
}

#[test]
fn a_kill_at_any_moment_loses_nothing_that_was_kept_and_doubles_no_qos_2() {
    if let Ok(arguments) = std::env::var(VICTIM) {
        victim(&arguments);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.db");
    let broker = broker();
    let url = broker.urls().of("mqtt").unwrap().to_owned();
    let engine = Engine::start(1).unwrap();
    let reader = Reader::new(&engine, &broker);
    let mut seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let mut kept = Vec::new();
    for round in 0..ROUNDS {
        // Numbers that were not kept are not used again.
        let first = round * 1_000_000;
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "mqtt_outbox::a_kill_at_any_moment_loses_nothing_that_was_kept_and_doubles_no_qos_2",
            ])
            .arg("--nocapture")
            .env(VICTIM, format!("{url}|{}|{first}", path.display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bursts = 1 + (seed >> 33) % 80;
        let (mut heard, mut end) = (0, first);
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(|line| line.ok());
        let mut hear = |line: String| {
            let number = line.strip_prefix("kept ").and_then(|number| number.parse().ok());
            end = number.unwrap_or(end);
            u64::from(number.is_some())
        };
        while heard < bursts {
            heard += hear(lines.next().expect("it does not end by itself"));
        }
        process.kill().unwrap();
        process.wait().unwrap();
        for line in lines {
            hear(line);
        }
        kept.extend(first..end);
    }
    let (client, ..) = open(&engine, options(&url, &path));
    until_empty(&client);
    assert_eq!(client.outbox().unwrap().refused, 0);
    let mut numbers = reader.read(kept);
    let once = numbers.remove(&QoS::ExactlyOnce).unwrap();
    let mut sorted = once.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(once, sorted, "QoS 2 came twice, or out of order");
    let mut first_time = numbers.remove(&QoS::AtLeastOnce).unwrap();
    let mut seen = BTreeSet::new();
    first_time.retain(|number| seen.insert(*number));
    assert!(first_time.is_sorted(), "QoS 1 came out of order");
}
