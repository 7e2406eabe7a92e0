//! Producers and consumers whose connection is lost, against a broker that follows a script.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use forebay_base::error::{ErrorKind, Result};
use forebay_client::Engine;
use forebay_client::pulsar::options::{AccessMode, ClientOptions, ConsumerOptions, ProducerOptions};
use forebay_client::pulsar::{Client, SeekTo};
use forebay_pulsar::command::Command;
use forebay_pulsar::frame::{Decoder, Frame};
use forebay_pulsar::{MessageId, Outgoing, pb};

use crate::script::{Events, in_time, run, run_in_time, until};

const TOPIC: &str = "persistent://public/default/reopened";
/// Longer than the first pause before another attempt.
const SETTLE: Duration = Duration::from_millis(600);

/// The broker's reaction to one PRODUCER or SUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Accepts it and cuts the connection a moment later.
    AcceptAndCut,
    /// Cuts the connection instead of answering.
    Cut,
    /// Accepts it.
    Accept,
    /// Says that it waits for its turn, and cuts the connection after [`TURN`].
    QueueAndCut,
}

/// Operation timeout of the clients of some tests.
const LIMIT: Duration = Duration::from_secs(2);
/// Longer than [`LIMIT`].
const TURN: Duration = Duration::from_millis(2500);

/// The cursor of the subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cursor {
    Absent,
    /// Not durable, behind the last message.
    Probe,
    /// The same, and about to be deleted: until its next consumer is closed.
    Dying,
    /// Durable, behind this entry.
    Durable(u64),
}

/// Entry of the last message.
const LAST: u64 = 9;

/// A broker of one topic. The last act of the script holds for every later attempt.
struct Broker {
    url: String,
    opened: AtomicUsize,
    sought: AtomicUsize,
    script: Vec<Act>,
    partitions: u32,
    /// Whether the first SEEK is answered by a cut.
    cuts_seek: bool,
    cursor: Mutex<Cursor>,
    /// Whether a cursor that is not durable is deleted late, so that a durable subscription gets
    /// hold of it.
    deletes_late: AtomicBool,
    /// Times of the SEEKs.
    times: Mutex<Vec<Option<u64>>>,
    /// Where the SUBSCRIBEs begin.
    starts: Mutex<Vec<Option<pb::MessageIdData>>>,
    /// Answers to SEEK, which are given when there is one for each partition.
    seeks: Mutex<Vec<Option<Command>>>,
    /// Refusals of the next SEEKs, as Apache Pulsar sends them while another consumer of the
    /// subscription seeks.
    refusals: Mutex<VecDeque<(pb::ServerError, &'static str)>>,
}

impl Broker {
    fn start(script: &[Act]) -> Arc<Self> {
        Self::start_with(script, 0, false)
    }

    fn start_with(script: &[Act], partitions: u32, cuts_seek: bool) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let broker = Arc::new(Self {
            url: format!("pulsar://{}", listener.local_addr().unwrap()),
            opened: AtomicUsize::new(0),
            sought: AtomicUsize::new(0),
            script: script.to_vec(),
            partitions,
            cuts_seek,
            cursor: Mutex::new(Cursor::Absent),
            deletes_late: AtomicBool::new(false),
            times: Mutex::default(),
            starts: Mutex::default(),
            seeks: Mutex::default(),
            refusals: Mutex::default(),
        });
        let serving = Arc::clone(&broker);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let broker = Arc::clone(&serving);
                std::thread::spawn(move || broker.serve(stream.unwrap()));
            }
        });
        broker
    }

    fn opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }

    /// Serves one connection until either side ends it.
    fn serve(&self, mut stream: TcpStream) {
        let (mut decoder, mut input) = (Decoder::new(5 << 20), BytesMut::new());
        let mut chunk = [0; 4096];
        loop {
            while let Some(frame) = decoder.next(&mut input).unwrap() {
                for answer in self.answer(frame.command) {
                    match answer {
                        Some(command) => stream.write_all(&Frame::simple(command).to_bytes()).unwrap(),
                        // Cut; the sleep lets the client read what came before.
                        None => {
                            std::thread::sleep(Duration::from_millis(50));
                            return;
                        }
                    }
                }
            }
            match stream.read(&mut chunk) {
                Ok(0) | Err(_) => return,
                Ok(n) => input.extend_from_slice(&chunk[..n]),
            }
        }
    }

    /// The answers to a command; `None` cuts the connection.
    fn answer(&self, command: Command) -> Vec<Option<Command>> {
        match command {
            Command::Connect(_) => vec![Some(Command::Connected(pb::CommandConnected {
                server_version: "script".into(),
                protocol_version: Some(19),
                ..Default::default()
            }))],
            Command::PartitionedMetadata(asked) => {
                vec![Some(Command::PartitionedMetadataResponse(
                    pb::CommandPartitionedTopicMetadataResponse {
                        request_id: asked.request_id,
                        partitions: Some(self.partitions),
                        response: Some(
                            pb::command_partitioned_topic_metadata_response::LookupType::Success as i32,
                        ),
                        ..Default::default()
                    },
                ))]
            }
            Command::Lookup(asked) => vec![Some(Command::LookupResponse(pb::CommandLookupTopicResponse {
                request_id: asked.request_id,
                broker_service_url: Some(self.url.clone()),
                response: Some(pb::command_lookup_topic_response::LookupType::Connect as i32),
                authoritative: Some(true),
                ..Default::default()
            }))],
            Command::Producer(asked) => self.opening(Command::ProducerSuccess(pb::CommandProducerSuccess {
                request_id: asked.request_id,
                producer_name: "script".into(),
                last_sequence_id: Some(-1),
                ..Default::default()
            })),
            Command::Subscribe(asked) => {
                self.starts.lock().unwrap().push(asked.start_message_id.clone());
                let mut cursor = self.cursor.lock().unwrap();
                *cursor = match (asked.durable.unwrap_or(true), *cursor) {
                    (false, Cursor::Durable(_)) => {
                        return vec![Some(Command::Error(pb::CommandError {
                            request_id: asked.request_id,
                            error: pb::ServerError::NotAllowedError as i32,
                            message: "durable".into(),
                        }))];
                    }
                    (false, _) => Cursor::Probe,
                    (true, Cursor::Absent) => Cursor::Durable(u64::MAX),
                    (true, held) => held,
                };
                drop(cursor);
                self.opening(success(asked.request_id))
            }
            Command::Seek(asked) => {
                self.times.lock().unwrap().push(asked.message_publish_time);
                let mut cursor = self.cursor.lock().unwrap();
                if let (Cursor::Durable(mark), Some(id)) = (&mut *cursor, &asked.message_id) {
                    *mark = id.entry_id.wrapping_sub(1);
                }
                drop(cursor);
                if self.sought.fetch_add(1, Ordering::SeqCst) == 0 && self.cuts_seek {
                    return vec![None];
                }
                let close = Command::CloseConsumer(pb::CommandCloseConsumer {
                    consumer_id: asked.consumer_id,
                    request_id: u64::MAX,
                    ..Default::default()
                });
                if let Some((error, message)) = self.refusals.lock().unwrap().pop_front() {
                    let refusal = Command::Error(pb::CommandError {
                        request_id: asked.request_id,
                        error: error as i32,
                        message: message.into(),
                    });
                    // It has closed the consumer, or is about to.
                    let closed_before = self.sought.load(Ordering::SeqCst) == 1;
                    return if closed_before {
                        vec![Some(close), Some(refusal)]
                    } else {
                        vec![Some(refusal), Some(close)]
                    };
                }
                let mut seeks = self.seeks.lock().unwrap();
                seeks.extend([Some(close), Some(success(asked.request_id))]);
                let all = seeks.len() as u32 >= 2 * self.partitions;
                if all { std::mem::take(&mut *seeks) } else { Vec::new() }
            }
            Command::CloseProducer(asked) => vec![Some(success(asked.request_id))],
            Command::CloseConsumer(asked) => {
                let mut cursor = self.cursor.lock().unwrap();
                *cursor = match *cursor {
                    Cursor::Probe if self.deletes_late.load(Ordering::SeqCst) => Cursor::Dying,
                    Cursor::Probe | Cursor::Dying => Cursor::Absent,
                    kept => kept,
                };
                vec![Some(success(asked.request_id))]
            }
            Command::GetLastMessageId(asked) => {
                let id = |entry_id| pb::MessageIdData { ledger_id: 3, entry_id, ..Default::default() };
                let mark = match *self.cursor.lock().unwrap() {
                    Cursor::Absent => None,
                    Cursor::Probe | Cursor::Dying => Some(LAST),
                    Cursor::Durable(mark) => Some(mark),
                };
                vec![Some(Command::GetLastMessageIdResponse(Box::new(pb::CommandGetLastMessageIdResponse {
                    last_message_id: id(LAST),
                    request_id: asked.request_id,
                    consumer_mark_delete_position: mark.map(id),
                })))]
            }
            _ => Vec::new(),
        }
    }

    fn opening(&self, accepted: Command) -> Vec<Option<Command>> {
        let number = self.opened.fetch_add(1, Ordering::SeqCst);
        match self.script[number.min(self.script.len() - 1)] {
            Act::AcceptAndCut => vec![Some(accepted), None],
            Act::Cut => vec![None],
            Act::Accept => vec![Some(accepted)],
            Act::QueueAndCut => {
                let Command::ProducerSuccess(mut waits) = accepted else { panic!("PRODUCER") };
                waits.producer_ready = Some(false);
                std::thread::sleep(TURN);
                vec![Some(Command::ProducerSuccess(waits)), None]
            }
        }
    }
}

fn success(request_id: u64) -> Command {
    Command::Success(Box::new(pb::CommandSuccess { request_id, schema: None }))
}

async fn client(broker: &Broker) -> Result<Client> {
    Client::connect(ClientOptions { url: broker.url.clone(), ..ClientOptions::default() }).await
}

/// Waits until there were `count` attempts to open, and then whether more follow.
async fn opens(broker: &Broker, count: usize) -> usize {
    until(|| broker.opened() >= count).await;
    tokio::time::sleep(SETTLE).await;
    broker.opened()
}

/// The connection is lost, and lost again before the new one has opened the partition.
const LOST_TWICE: [Act; 3] = [Act::AcceptAndCut, Act::Cut, Act::Accept];

#[test]
fn a_producer_that_is_lost_while_it_reopens_opens_once_on_the_next_connection() {
    let broker = Broker::start(&LOST_TWICE);
    run(async {
        let client = client(&broker).await?;
        let producer =
            client.producer(TOPIC, ProducerOptions::default(), Arc::new(Events::default())).await?;
        assert_eq!(opens(&broker, 3).await, 3, "PRODUCER was sent again on a live connection");
        producer.close(true).await?;
        client.close().await
    });
}

/// As by a message that the broker cannot take.
#[test]
fn the_pauses_grow_while_the_broker_ends_what_it_opened() {
    let mut script = vec![Act::AcceptAndCut; 5];
    script.push(Act::Accept);
    let broker = Broker::start(&script);
    let pauses = [50, 100, 200, 400, 800].map(Duration::from_millis);
    run(async {
        let client = client(&broker).await?;
        let begun = Instant::now();
        let producer =
            client.producer(TOPIC, ProducerOptions::default(), Arc::new(Events::default())).await?;
        until(|| broker.opened() == 6).await;
        assert!(begun.elapsed() >= pauses.iter().sum());
        producer.close(true).await?;
        client.close().await
    });
}

#[test]
fn a_consumer_that_is_lost_while_it_reopens_subscribes_once_on_the_next_connection() {
    let broker = Broker::start(&LOST_TWICE);
    run(async {
        let client = client(&broker).await?;
        let (topics, options) = (vec![TOPIC.into()], ConsumerOptions::default());
        let consumer = client.consumer(topics, "s".into(), options, Arc::new(Events::default())).await?;
        assert_eq!(opens(&broker, 3).await, 3, "SUBSCRIBE was sent again on a live connection");
        consumer.close().await?;
        client.close().await
    });
}

#[test]
fn a_seek_subscribes_once_more() {
    let broker = Broker::start(&[Act::Accept]);
    run(async {
        let client = client(&broker).await?;
        let (topics, options) = (vec![TOPIC.into()], ConsumerOptions::default());
        let consumer = client.consumer(topics, "s".into(), options, Arc::new(Events::default())).await?;
        consumer.seek(SeekTo::Id { topic: "".into(), id: MessageId::EARLIEST, inclusive: true }).await?;
        assert_eq!(broker.opened(), 2, "the seek resolves when it is subscribed again");
        assert_eq!(opens(&broker, 2).await, 2);
        consumer.close().await?;
        client.close().await
    });
}

#[test]
fn a_seek_that_meets_that_of_another_consumer_is_repeated() {
    let broker = Broker::start(&[Act::Accept]);
    broker.refusals.lock().unwrap().extend([
        (pb::ServerError::MetadataError, "Consumer not found"),
        (pb::ServerError::MetadataError, "Consumer not found"),
        (pb::ServerError::UnknownError, "Error when resetting subscription: Failed to fence subscription"),
    ]);
    run(async {
        let client = client(&broker).await?;
        let (topics, options) = (vec![TOPIC.into()], ConsumerOptions::default());
        let consumer = client.consumer(topics, "s".into(), options, Arc::new(Events::default())).await?;
        let (first, second) = tokio::join!(consumer.seek(SeekTo::Time(7)), async {
            // Between two attempts of the first.
            until(|| broker.sought.load(Ordering::SeqCst) == 2).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            consumer.seek(SeekTo::Time(9)).await
        });
        first?;
        assert_eq!(second.unwrap_err().kind(), ErrorKind::NotAllowed, "one is under way");
        assert_eq!(*broker.times.lock().unwrap(), [Some(7); 4]);
        broker.refusals.lock().unwrap().push_back((pb::ServerError::UnknownError, "no such position"));
        let refused = consumer.seek(SeekTo::Time(8)).await.unwrap_err();
        assert!(refused.to_string().contains("no such position"), "{refused}");
        assert_eq!(broker.times.lock().unwrap().len(), 5, "another refusal is final");
        consumer.close().await?;
        client.close().await
    });
}

/// A reader that sought and lost its connection before the next message, until it has subscribed
/// `count` times.
async fn lost_after_a_seek(broker: &Broker, to: SeekTo, count: usize) -> Result<()> {
    let client = client(broker).await?;
    let options =
        ConsumerOptions { durable: false, position: MessageId::LATEST, ..ConsumerOptions::default() };
    let consumer =
        client.consumer(vec![TOPIC.into()], "s".into(), options, Arc::new(Events::default())).await?;
    consumer.seek(to).await?;
    opens(broker, count).await;
    consumer.close().await?;
    client.close().await
}

#[test]
fn a_reader_that_is_lost_after_a_seek_to_a_time_seeks_there_again() {
    let broker = Broker::start(&[Act::Accept, Act::AcceptAndCut, Act::Accept]);
    run(lost_after_a_seek(&broker, SeekTo::Time(77), 4));
    assert_eq!(*broker.times.lock().unwrap(), [Some(77), Some(77)]);
    assert_eq!(
        broker.opened(),
        4,
        "the second seek ends the subscription, too, and is not made a third time"
    );
}

#[test]
fn a_reader_that_is_lost_after_a_seek_to_the_earliest_message_starts_there_again() {
    let broker = Broker::start(&[Act::Accept, Act::AcceptAndCut, Act::Accept]);
    let id = MessageId::EARLIEST;
    // At the start, by the seek, and after the loss.
    run(lost_after_a_seek(&broker, SeekTo::Id { topic: "".into(), id, inclusive: true }, 3));
    let starts = broker.starts.lock().unwrap();
    assert_eq!(starts[0].as_ref().map(MessageId::from), Some(MessageId::LATEST));
    assert_eq!(starts[2].as_ref().map(MessageId::from), Some(id));
    assert_eq!(*broker.times.lock().unwrap(), [None]);
}

#[test]
fn a_seek_without_a_connection_waits_for_the_next_one() {
    let broker = Broker::start(&[Act::AcceptAndCut, Act::Accept]);
    run(async {
        let client = client(&broker).await?;
        let (topics, options) = (vec![TOPIC.into()], ConsumerOptions::default());
        let consumer = client.consumer(topics, "s".into(), options, Arc::new(Events::default())).await?;
        // It is opened again 50 ms later at the earliest.
        until(|| client.journal().counts().closed == 1).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        consumer.seek(SeekTo::Id { topic: "".into(), id: MessageId::EARLIEST, inclusive: true }).await?;
        assert_eq!(broker.sought.load(Ordering::SeqCst), 1);
        consumer.close().await?;
        client.close().await
    });
}

#[test]
fn a_position_whose_answer_was_lost_is_asked_for_again() {
    let broker = Broker::start_with(&[Act::Accept], 0, true);
    run(async {
        let client = client(&broker).await?;
        let position = MessageId::new(3, 7);
        let options = ConsumerOptions { position, ..ConsumerOptions::default() };
        let consumer =
            client.consumer(vec![TOPIC.into()], "s".into(), options, Arc::new(Events::default())).await?;
        assert_eq!(broker.sought.load(Ordering::SeqCst), 2);
        consumer.close().await?;
        client.close().await
    });
}

#[test]
fn a_subscription_that_got_the_cursor_of_the_probe_is_made_again() {
    for deletes_late in [false, true] {
        let broker = Broker::start(&[Act::Accept]);
        broker.deletes_late.store(deletes_late, Ordering::SeqCst);
        run(async {
            let client = client(&broker).await?;
            let options = ConsumerOptions { position: MessageId::new(3, 7), ..ConsumerOptions::default() };
            let consumer =
                client.consumer(vec![TOPIC.into()], "s".into(), options, Arc::new(Events::default())).await?;
            consumer.close().await?;
            assert_eq!(*broker.cursor.lock().unwrap(), Cursor::Durable(6), "it survives its consumer");
            client.close().await
        });
    }
}

#[test]
fn a_subscription_whose_position_is_the_end_is_placed_there_again() {
    let broker = Broker::start_with(&[Act::Accept], 0, true);
    // The seek whose answer is lost was carried out.
    run(async {
        let client = client(&broker).await?;
        let options = ConsumerOptions { position: MessageId::new(3, LAST + 1), ..ConsumerOptions::default() };
        let consumer =
            client.consumer(vec![TOPIC.into()], "s".into(), options, Arc::new(Events::default())).await?;
        consumer.close().await?;
        assert_eq!(*broker.cursor.lock().unwrap(), Cursor::Durable(LAST));
        client.close().await
    });
}

#[test]
fn partitions_seek_side_by_side() {
    let broker = Broker::start_with(&[Act::Accept], 8, false);
    run(async {
        let client = client(&broker).await?;
        let (topics, options) = (vec![TOPIC.into()], ConsumerOptions::default());
        let consumer = client.consumer(topics, "s".into(), options, Arc::new(Events::default())).await?;
        // The broker answers none before it has all.
        consumer.seek(SeekTo::Time(0)).await?;
        assert_eq!(broker.sought.load(Ordering::SeqCst), 8);
        consumer.close().await?;
        client.close().await
    });
}

#[test]
fn a_producer_that_waits_for_its_turn_survives_a_cut_after_the_operation_timeout() {
    run_in_time(|| async {
        let broker = Broker::start(&[Act::QueueAndCut, Act::Accept]);
        let options =
            ClientOptions { url: broker.url.clone(), operation_timeout: LIMIT, ..ClientOptions::default() };
        let client = Client::connect(options).await?;
        let options =
            ProducerOptions { access_mode: AccessMode::WaitForExclusive, ..ProducerOptions::default() };
        let producer = client.producer(TOPIC, options, Arc::new(Events::default())).await?;
        assert_eq!(broker.opened(), 2);
        producer.close(true).await?;
        client.close().await
    });
}

#[test]
fn partitions_of_a_producer_that_closes_wait_for_receipts_side_by_side() {
    run_in_time(|| async {
        // It answers no SEND.
        let broker = Broker::start_with(&[Act::Accept], 8, false);
        let options =
            ClientOptions { url: broker.url.clone(), operation_timeout: LIMIT, ..ClientOptions::default() };
        let client = Client::connect(options).await?;
        let options = ProducerOptions { batching: false, send_timeout: None, ..ProducerOptions::default() };
        let producer = client.producer(TOPIC, options, Arc::new(Events::default())).await?;
        for _ in 0..8 {
            producer.push(&Outgoing { payload: b"x", ..Outgoing::default() }, None, false)?;
        }
        let began = Instant::now();
        assert_eq!(producer.close(true).await.unwrap_err().kind(), ErrorKind::Timeout);
        // One after the other takes 8 times the limit.
        in_time(began.elapsed(), LIMIT * 4)?;
        client.close().await
    });
}

#[test]
fn a_producer_that_is_dropped_gives_the_memory_of_its_messages_back() {
    let engine = Engine::start(1).unwrap();
    // It answers no SEND.
    let broker = Broker::start(&[Act::Accept]);
    engine.handle().block_on(async {
        let client = Client::connect(ClientOptions { url: broker.url.clone(), ..ClientOptions::default() })
            .await
            .unwrap();
        let producer =
            client.producer(TOPIC, ProducerOptions::default(), Arc::new(Events::default())).await.unwrap();
        producer.push(&Outgoing { payload: &[7; 100], ..Outgoing::default() }, None, false).unwrap();
        assert_eq!(client.memory_used(), 100);
        drop(producer);
        assert_eq!(client.memory_used(), 0);
    });
    engine.shutdown(Duration::from_secs(5));
}
