//! The embedded broker as a process: sockets, TLS, disk, and recovery after a kill.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use forebay_base::error::ErrorKind;
use forebay_broker::auth::TokenKeys;
use forebay_broker::{Broker, Durability, Listener, Options, ServerTls};
use forebay_net::tcp::Pacing;
use forebay_net::tls::TlsFiles;
use forebay_pulsar::command::Command;
use forebay_pulsar::frame::{Decoder, Frame, Payload};
use forebay_pulsar::{hot, pb};

const TOPIC: &str = "persistent://public/default/kept";

fn options(data: Option<&Path>) -> Options {
    Options { data: data.map(Path::to_owned), ..Options::default() }
}

/// A client that sends the given commands.
struct Peer {
    stream: TcpStream,
    input: BytesMut,
}

impl Peer {
    fn connect(url: &str) -> Self {
        let stream = TcpStream::connect(url.trim_start_matches("pulsar://")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut peer = Self { stream, input: BytesMut::new() };
        let connect = pb::CommandConnect {
            client_version: "test".into(),
            protocol_version: Some(21),
            ..Default::default()
        };
        assert!(matches!(peer.ask(Command::Connect(connect)), Command::Connected(_)));
        peer
    }

    fn tell(&mut self, frame: &Frame) {
        self.stream.write_all(&frame.to_bytes()).unwrap();
    }

    fn hear(&mut self) -> Option<Frame> {
        let mut decoder = Decoder::new(6 << 20);
        loop {
            if let Some(frame) = decoder.next(&mut self.input).unwrap() {
                return Some(frame);
            }
            let mut buffer = [0; 1 << 16];
            match self.stream.read(&mut buffer) {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.input.extend_from_slice(&buffer[..n]),
            }
        }
    }

    fn ask(&mut self, command: Command) -> Command {
        self.tell(&Frame::simple(command));
        self.hear().expect("an answer").command
    }

    fn producer_command(name: &str) -> Command {
        Command::Producer(Box::new(pb::CommandProducer {
            topic: TOPIC.into(),
            producer_id: 1,
            request_id: 1,
            producer_name: Some(name.into()),
            ..Default::default()
        }))
    }

    fn producer(&mut self, name: &str) -> i64 {
        let Command::ProducerSuccess(success) = self.ask(Self::producer_command(name)) else { panic!() };
        success.last_sequence_id.unwrap()
    }

    fn subscribe(&mut self) {
        let command = pb::CommandSubscribe {
            topic: TOPIC.into(),
            subscription: "s".into(),
            sub_type: 1,
            consumer_id: 1,
            request_id: 2,
            initial_position: Some(1),
            ..Default::default()
        };
        assert!(matches!(self.ask(Command::Subscribe(Box::new(command))), Command::Success(_)));
    }

    fn send(&mut self, sequence_id: u64) {
        let metadata = pb::MessageMetadata { producer_name: "p".into(), sequence_id, ..Default::default() };
        let mut bytes = BytesMut::new();
        hot::encode_metadata(&metadata, &mut bytes);
        let send = hot::Send { producer_id: 1, sequence_id, ..Default::default() };
        let payload = Payload::build(&bytes, &sequence_id.to_be_bytes());
        self.tell(&Frame { command: Command::Send(send), payload: Some(payload) });
    }

    /// Takes `n` receipts and returns the highest sequence id.
    fn receipts(&mut self, n: usize) -> u64 {
        let mut last = 0;
        for _ in 0..n {
            match self.hear().unwrap().command {
                Command::SendReceipt(receipt) => last = receipt.sequence_id,
                other => panic!("{other:?}"),
            }
        }
        last
    }

    fn take(&mut self, n: u32) -> Vec<(pb::MessageIdData, u64)> {
        self.tell(&Frame::simple(Command::Flow(hot::Flow { consumer_id: 1, permits: n })));
        let mut taken = Vec::new();
        while taken.len() < n as usize {
            let Some(frame) = self.hear() else { break };
            let Command::Message(message) = frame.command else { continue };
            let body = frame.payload.unwrap().body().unwrap();
            taken.push((message.message_id, u64::from_be_bytes(body[..].try_into().unwrap())));
        }
        taken
    }

    fn ack(&mut self, ids: Vec<pb::MessageIdData>) {
        let ack = hot::Ack { consumer_id: 1, message_ids: ids, request_id: Some(9), ..Default::default() };
        self.tell(&Frame::simple(Command::Ack(ack)));
        // Receipts of messages in flight may arrive first.
        while let Some(frame) = self.hear() {
            if let Command::AckResponse(response) = frame.command {
                return assert_eq!(response.error, None);
            }
        }
        panic!("no answer");
    }
}

#[test]
fn it_starts_fast_and_stops_when_asked() {
    let starts = (0..5).map(|_| {
        let started = Instant::now();
        let broker = Broker::start(options(None)).unwrap();
        let took = started.elapsed();
        drop(broker);
        took
    });
    let quickest = starts.min().unwrap();
    assert!(quickest < Duration::from_millis(500), "{quickest:?}");
    let mut broker = Broker::start(options(None)).unwrap();
    let mut peer = Peer::connect(broker.url());
    assert_eq!(peer.ask(Command::Ping), Command::Pong);
    assert_eq!(broker.status().unwrap().total.connections, 1);
    broker.create_topic("a", 3).unwrap();
    assert_eq!(broker.topics().unwrap(), [("persistent://public/default/a".to_owned(), 3)]);
    assert!(broker.stop(Duration::from_secs(60)));
    assert!(peer.hear().is_none());
    assert_eq!(broker.status().unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn everything_is_there_again_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut broker = Broker::start(options(Some(&data))).unwrap();
    assert!(Broker::start(options(Some(&data))).is_err(), "one broker for one directory");
    broker.create_topic("parts", 4).unwrap();
    let mut peer = Peer::connect(broker.url());
    peer.producer("till");
    peer.subscribe();
    (0..100).for_each(|i| peer.send(i));
    assert_eq!(peer.receipts(100), 99);
    let taken = peer.take(100);
    let even = taken.iter().filter(|(_, n)| n % 2 == 0).map(|(id, _)| id.clone()).collect();
    peer.ack(even);
    assert!(broker.stop(Duration::from_secs(60)));

    let mut broker = Broker::start(options(Some(&data))).unwrap();
    let names: Vec<_> = broker.topics().unwrap();
    assert_eq!(names, [(TOPIC.to_owned(), 0), ("persistent://public/default/parts".to_owned(), 4)]);
    let mut peer = Peer::connect(broker.url());
    assert_eq!(peer.producer("till"), 99, "and what was sent is known");
    peer.subscribe();
    let again: Vec<u64> = peer.take(50).into_iter().map(|(_, n)| n).collect();
    assert_eq!(again, (0..100).filter(|n| n % 2 == 1).collect::<Vec<_>>());
    peer.send(100);
    assert_eq!(peer.receipts(1), 100);
    let new = peer.take(1);
    assert_eq!((new[0].0.entry_id, new[0].1), (100, 100));
    broker.delete_topic("kept").unwrap();
    assert_eq!(broker.topic_stats("kept").unwrap_err().kind(), ErrorKind::TopicNotFound);
    assert!(broker.stop(Duration::from_secs(60)));
}

#[test]
fn a_consumer_whose_next_entry_is_damaged_is_stopped_and_told_its_topic_and_number() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    let mut broker = Broker::start(options(Some(data))).unwrap();
    let mut peer = Peer::connect(broker.url());
    peer.producer("till");
    peer.subscribe();
    (0..10).for_each(|i| peer.send(i));
    peer.receipts(10);
    assert!(broker.stop(Duration::from_secs(60)));
    let db = forebay_sqlite::open(&data.join("broker.db"), forebay_sqlite::Sync::Os).unwrap();
    // Number 5 of the topic: a bit of its body is another one.
    db.execute_batch(
        "UPDATE entry SET body = CAST(replace(body, x'05', x'04') AS BLOB) WHERE id % (1 << 30) = 5",
    )
    .unwrap();
    drop(db);

    let mut broker = Broker::start(options(Some(data))).unwrap();
    let mut peer = Peer::connect(broker.url());
    peer.subscribe();
    let taken = peer.take(5);
    assert_eq!(taken.iter().map(|(_, number)| *number).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    peer.tell(&Frame::simple(Command::Flow(hot::Flow { consumer_id: 1, permits: 100 })));
    assert_eq!(peer.ask(Command::Ping), Command::Pong, "it may finish those before it");
    peer.ack(taken.into_iter().map(|(id, _)| id).collect());
    // CLOSE_CONSUMER came before the answer to the acknowledgement.
    let subscribe = |name: &str, start: Option<u64>| {
        Command::Subscribe(Box::new(pb::CommandSubscribe {
            topic: TOPIC.into(),
            subscription: name.into(),
            sub_type: 1,
            consumer_id: 1,
            request_id: 3,
            initial_position: Some(1),
            start_message_id: start.map(|entry_id| pb::MessageIdData {
                ledger_id: 1,
                entry_id,
                ..Default::default()
            }),
            ..Default::default()
        }))
    };
    let Command::Error(error) = peer.ask(subscribe("s", None)) else { panic!("it would wait for ever") };
    assert_eq!(error.error, pb::ServerError::NotAllowedError as i32, "which clients do not try again");
    assert!(error.message.contains("entry 5") && error.message.contains(TOPIC), "{}", error.message);
    let damage = broker.status().unwrap().total.damage.unwrap();
    assert!(damage.contains("entry 5") && damage.contains(TOPIC), "{damage}");
    // Others get what comes after it.
    assert!(matches!(peer.ask(subscribe("t", Some(6))), Command::Success(_)));
    assert_eq!(peer.take(4).iter().map(|(_, number)| *number).collect::<Vec<_>>(), [6, 7, 8, 9]);
    assert!(broker.stop(Duration::from_secs(60)));
    let checked = forebay_broker::store::check::check(data).unwrap();
    assert_eq!(checked.entries, 9);
    assert!(checked.damage.len() == 1 && checked.damage[0].contains("entry 5"), "{:?}", checked.damage);
}

#[test]
fn a_full_store_refuses_producers_until_consumers_have_made_room() {
    let directory = tempfile::tempdir().unwrap();
    for data in [None, Some(directory.path())] {
        let broker = Broker::start(Options { max_store: Some(1 << 20), ..options(data) }).unwrap();
        let mut writer = Peer::connect(broker.url());
        writer.producer("till");
        let mut reader = Peer::connect(broker.url());
        reader.subscribe();
        let mut sent = 0;
        let closed = loop {
            (0..100).for_each(|i| writer.send(sent + i));
            sent += 100;
            // Messages sent after the close are ignored.
            if (0..100).any(|_| matches!(writer.hear().unwrap().command, Command::CloseProducer(_))) {
                break true;
            }
            if sent > 100_000 {
                break false;
            }
            if data.is_none() {
                // Without a disk the sum is made once a second.
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        assert!(closed, "the producer is told, not left waiting");
        let mut writer = Peer::connect(broker.url());
        let refused = writer.ask(Peer::producer_command("other"));
        let quota = pb::ServerError::ProducerBlockedQuotaExceededException as i32;
        assert!(matches!(refused, Command::Error(e) if e.error == quota));
        let stored = broker.topic_stats("kept").unwrap().entries as u32;
        let taken = reader.take(stored);
        reader.ack(taken.into_iter().map(|(id, _)| id).collect());
        let since = Instant::now();
        while !matches!(writer.ask(Peer::producer_command("other")), Command::ProducerSuccess(_)) {
            assert!(since.elapsed() < Duration::from_secs(60), "{:?}", broker.status());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn limits_and_figures_count_over_all_protocols() {
    for data in [None, Some(tempfile::tempdir().unwrap())] {
        let broker = Broker::start(Options {
            listeners: vec![Listener::local("pulsar"), Listener::local("mqtt")],
            max_store: Some(1 << 20),
            max_connections: 2,
            ..options(data.as_ref().map(|data| data.path()))
        })
        .unwrap();
        let address = broker.urls().of("mqtt").unwrap().to_owned();
        let mut publisher = TcpStream::connect(address.trim_start_matches("mqtt://")).unwrap();
        publisher.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut tell = |bytes: &[u8], answer: usize| {
            publisher.write_all(bytes).unwrap();
            let mut answered = vec![0; answer];
            publisher.read_exact(&mut answered).unwrap();
        };
        // CONNECT of 3.1.1, then a retained message of 1.5 MB with QoS 1.
        tell(b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01p", 4);
        let payload = vec![b'x'; 1_500_000];
        let rest = 2 + 1 + 2 + payload.len();
        let length =
            [(rest & 127) as u8 | 128, (rest >> 7 & 127) as u8 | 128, (rest >> 14 & 127) as u8 | 128];
        let head = [&[0x33][..], &length, &[(rest >> 21) as u8], b"\0\x01t\0\x01"].concat();
        tell(&[head, payload].concat(), 4);
        let mut peer = Peer::connect(broker.url());
        let since = Instant::now();
        let quota = pb::ServerError::ProducerBlockedQuotaExceededException as i32;
        while !matches!(peer.ask(Peer::producer_command("p")), Command::Error(e) if e.error == quota) {
            assert!(since.elapsed() < Duration::from_secs(60), "{:?}", broker.status());
            std::thread::sleep(Duration::from_millis(50));
        }
        let status = broker.status().unwrap();
        let names: Vec<&str> = status.protocols.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["pulsar", "mqtt"]);
        assert!(status.protocols.iter().all(|(_, stats)| stats.connections == 1), "{status:?}");
        assert_eq!((status.total.connections, status.total.retained, status.total.messages_in), (2, 1, 1));
        assert!(status.store_bytes > 1 << 20, "{status:?}");
        let mut third = TcpStream::connect(broker.url().trim_start_matches("pulsar://")).unwrap();
        third.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        assert_eq!(third.read(&mut [0]).unwrap(), 0, "one connection too many");
    }
}

#[test]
fn a_flood_of_silent_connections_to_one_port_leaves_the_other_protocols_theirs() {
    let listeners = vec![Listener::local("pulsar"), Listener::local("tubemq")];
    let broker = Broker::start(Options { listeners, max_connections: 8, ..options(None) }).unwrap();
    let address = broker.urls().of("tubemq").unwrap().to_owned();
    let address = address.trim_start_matches("tubemq://");
    let flood: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    let since = Instant::now();
    while broker.status().unwrap().total.connections_refused < 14 {
        assert!(since.elapsed() < Duration::from_secs(60), "{:?}", broker.status());
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut peer = Peer::connect(broker.url());
    assert!(matches!(peer.ask(Peer::producer_command("p")), Command::ProducerSuccess(_)));
    let status = broker.status().unwrap();
    let connections: Vec<_> = status.protocols.iter().map(|(_, stats)| stats.connections).collect();
    assert_eq!(connections, [1, 6], "three quarters of 8");
    drop(flood);
}

/// Not a test of its own: the broker process, of this same binary, that the next test kills.
#[test]
fn child() {
    let Ok(data) = std::env::var("FOREBAY_TEST_BROKER_DATA") else { return };
    let durability = Durability::parse(&std::env::var("FOREBAY_TEST_DURABILITY").unwrap()).unwrap();
    let broker = Broker::start(Options { durability, ..options(Some(Path::new(&data))) }).unwrap();
    let mut out = std::io::stderr();
    writeln!(out, "listening {}", broker.url()).unwrap();
    std::thread::sleep(Duration::from_secs(600));
}

fn spawn(data: &Path, durability: Durability) -> (Child, String) {
    let mut child = Process::new(std::env::current_exe().unwrap())
        .args(["process::child", "--exact", "--nocapture"])
        .env("FOREBAY_TEST_BROKER_DATA", data)
        .env("FOREBAY_TEST_DURABILITY", durability.name())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines.find_map(|line| line.unwrap().strip_prefix("listening ").map(str::to_owned)).unwrap();
    (child, line)
}

#[test]
fn what_had_a_receipt_survives_a_kill_and_nothing_comes_twice() {
    for durability in [Durability::Fsync, Durability::Os] {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let (mut next, mut acked) = (0_u64, Vec::new());
        for round in 0..4 {
            let (mut child, url) = spawn(&data, durability);
            let mut peer = Peer::connect(&url);
            let known = peer.producer("till");
            // Messages with a receipt are there; others may be.
            assert!(known + 1 >= next as i64, "round {round}: {known} of {next}");
            next = (known + 1) as u64;
            peer.subscribe();
            let receipts = 200;
            (next..next + 300).for_each(|i| peer.send(i));
            next = peer.receipts(receipts) + 1;
            let taken = peer.take(50);
            let fresh: Vec<_> = taken.iter().take(25).cloned().collect();
            peer.ack(fresh.iter().map(|(id, _)| id.clone()).collect());
            acked.extend(fresh.iter().map(|(_, n)| *n));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let mut broker = Broker::start(options(Some(&data))).unwrap();
        let mut peer = Peer::connect(broker.url());
        let last = peer.producer("till") as u64;
        peer.subscribe();
        let rest: Vec<u64> =
            peer.take((last + 1) as u32 - acked.len() as u32).into_iter().map(|(_, n)| n).collect();
        let mut all = [rest, acked].concat();
        all.sort_unstable();
        assert_eq!(all, (0..=last).collect::<Vec<_>>(), "each once: received or acknowledged");
        broker.stop(Duration::from_secs(60));
    }
}

#[test]
fn tls_and_a_token_let_in_who_has_both() {
    let certified =
        rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) =
        (certified.cert.pem().into_bytes(), certified.signing_key.serialize_pem().into_bytes());
    let secret = vec![b'7'; 32];
    let broker = Broker::start(Options {
        listeners: vec![Listener {
            tls: Some(ServerTls {
                certificate: certificate.clone(),
                key,
                client_ca: None,
                files: TlsFiles::default(),
            }),
            ..Listener::tcp("pulsar", "0.0.0.0", 0)
        }],
        token_key: Some(secret.clone()),
        ..options(None)
    })
    .unwrap();
    assert!(broker.url().starts_with("pulsar+ssl://"), "{}", broker.url());
    let port = broker.url().rsplit_once(':').unwrap().1.parse().unwrap();
    let tls = forebay_net::tls::connector(
        &forebay_net::tls::TlsOptions { ca: Some(certificate), ..Default::default() },
        None,
    )
    .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answer = |token: String| {
        runtime.block_on(async {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let limit = Duration::from_secs(60);
            let mut stream =
                forebay_net::connect("localhost", port, Some(&tls), Pacing::Kernel, limit).await.unwrap();
            let connect = pb::CommandConnect {
                client_version: "test".into(),
                auth_method_name: Some("token".into()),
                auth_data: Some(Bytes::from(token)),
                ..Default::default()
            };
            stream.write_all(&Frame::simple(Command::Connect(connect)).to_bytes()).await.unwrap();
            let mut input = BytesMut::new();
            while stream.read_buf(&mut input).await.unwrap() > 0 {
                if let Some(frame) = Decoder::new(1 << 20).next(&mut input).unwrap() {
                    return frame.command;
                }
            }
            panic!("no answer");
        })
    };
    let good = TokenKeys::new(&secret).unwrap().sign("till", None);
    assert!(matches!(answer(good), Command::Connected(_)));
    let bad = TokenKeys::new(&[b'8'; 32]).unwrap().sign("till", None);
    assert!(
        matches!(answer(bad), Command::Error(e) if e.error == pb::ServerError::AuthenticationError as i32)
    );
}
