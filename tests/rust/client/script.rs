//! A Pulsar broker that follows a script.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::BytesMut;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_client::Engine;
use forebay_client::events::{ConsumerEvents, ProducerEvents, SendOutcome};
use forebay_pulsar::command::Command;
use forebay_pulsar::frame::{Decoder, Frame};
use forebay_pulsar::{hot, pb};

/// Answers to a command; `None` cuts the connection.
pub(crate) type Answers = Vec<Option<Command>>;

/// Answers some commands; `None` leaves a command to the broker.
pub(crate) type Rule = dyn Fn(&Command) -> Option<Answers> + Send + Sync;

/// A broker of any topics that accepts everything, but for what its rule answers. It notes all
/// commands.
pub(crate) struct Broker {
    pub(crate) url: String,
    pub(crate) seen: Mutex<Vec<Command>>,
    connections: Mutex<Vec<TcpStream>>,
    rule: Box<Rule>,
}

impl Broker {
    pub(crate) fn start(rule: impl Fn(&Command) -> Option<Answers> + Send + Sync + 'static) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let broker = Arc::new(Self {
            url: format!("pulsar://{}", listener.local_addr().unwrap()),
            seen: Mutex::default(),
            connections: Mutex::default(),
            rule: Box::new(rule),
        });
        let serving = Arc::clone(&broker);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (broker, stream) = (Arc::clone(&serving), stream.unwrap());
                broker.connections.lock().unwrap().push(stream.try_clone().unwrap());
                std::thread::spawn(move || broker.serve(stream));
            }
        });
        broker
    }

    /// Number of the commands so far that `is_it` takes.
    pub(crate) fn count(&self, is_it: impl Fn(&Command) -> bool) -> usize {
        self.seen.lock().unwrap().iter().filter(|command| is_it(command)).count()
    }

    /// Sends a command that nothing has asked for, on all connections.
    pub(crate) fn tell(&self, command: &Command) {
        for mut stream in self.connections.lock().unwrap().iter() {
            let _ = stream.write_all(&Frame::simple(command.clone()).to_bytes());
        }
    }

    /// Sends bytes on all connections.
    pub(crate) fn write(&self, bytes: &[u8]) {
        for mut stream in self.connections.lock().unwrap().iter() {
            let _ = stream.write_all(bytes);
        }
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        for stream in self.connections.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    fn serve(&self, mut stream: TcpStream) {
        let (mut decoder, mut input) = (Decoder::new(5 << 20), BytesMut::new());
        let mut chunk = [0; 4096];
        loop {
            while let Some(frame) = decoder.next(&mut input).unwrap() {
                self.seen.lock().unwrap().push(frame.command.clone());
                let answers = (self.rule)(&frame.command).unwrap_or_else(|| self.accept(&frame.command));
                for answer in answers {
                    let written = match answer {
                        Some(command) => stream.write_all(&Frame::simple(command).to_bytes()),
                        None => stream.shutdown(std::net::Shutdown::Both),
                    };
                    if written.is_err() {
                        return;
                    }
                }
            }
            match stream.read(&mut chunk) {
                Ok(0) | Err(_) => return,
                Ok(n) => input.extend_from_slice(&chunk[..n]),
            }
        }
    }

    fn accept(&self, command: &Command) -> Answers {
        let answer = match command {
            Command::Connect(_) => Command::Connected(pb::CommandConnected {
                server_version: "script".into(),
                protocol_version: Some(21),
                ..Default::default()
            }),
            Command::PartitionedMetadata(asked) => partitions(asked.request_id, 0),
            Command::Lookup(asked) => Command::LookupResponse(pb::CommandLookupTopicResponse {
                request_id: asked.request_id,
                broker_service_url: Some(self.url.clone()),
                response: Some(pb::command_lookup_topic_response::LookupType::Connect as i32),
                authoritative: Some(true),
                ..Default::default()
            }),
            Command::Producer(asked) => Command::ProducerSuccess(pb::CommandProducerSuccess {
                request_id: asked.request_id,
                producer_name: "script".into(),
                last_sequence_id: Some(-1),
                ..Default::default()
            }),
            Command::Send(send) => Command::SendReceipt(hot::SendReceipt {
                producer_id: send.producer_id,
                sequence_id: send.sequence_id,
                message_id: Some(hot::IdData {
                    ledger_id: 3,
                    entry_id: send.sequence_id,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            Command::GetOrCreateSchema(asked) => {
                Command::GetOrCreateSchemaResponse(pb::CommandGetOrCreateSchemaResponse {
                    request_id: asked.request_id,
                    schema_version: Some(vec![0; 8].into()),
                    ..Default::default()
                })
            }
            Command::Subscribe(asked) => success(asked.request_id),
            Command::CloseProducer(asked) => success(asked.request_id),
            Command::CloseConsumer(asked) => success(asked.request_id),
            _ => return Vec::new(),
        };
        vec![Some(answer)]
    }
}

pub(crate) fn success(request_id: u64) -> Command {
    Command::Success(Box::new(pb::CommandSuccess { request_id, schema: None }))
}

pub(crate) fn refusal(request_id: u64, error: pb::ServerError) -> Command {
    Command::Error(pb::CommandError { request_id, error: error as i32, message: "by the script".into() })
}

pub(crate) fn partitions(request_id: u64, partitions: u32) -> Command {
    Command::PartitionedMetadataResponse(pb::CommandPartitionedTopicMetadataResponse {
        request_id,
        partitions: Some(partitions),
        response: Some(pb::command_partitioned_topic_metadata_response::LookupType::Success as i32),
        ..Default::default()
    })
}

/// Events of a producer or consumer that are waited for.
#[derive(Default)]
pub(crate) struct Events(Mutex<VecDeque<std::result::Result<u32, Error>>>);

impl Events {
    /// The next outcome of messages.
    pub(crate) async fn outcome(&self) -> std::result::Result<u32, Error> {
        loop {
            if let Some(outcome) = self.0.lock().unwrap().pop_front() {
                return outcome;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl ProducerEvents for Events {
    fn sent(&self, _: usize, outcome: SendOutcome) {
        self.0.lock().unwrap().push_back(match outcome {
            SendOutcome::Stored { count, .. } => Ok(count),
            SendOutcome::Failed { error, .. } => Err(error),
        });
    }

    fn room(&self) {}

    fn closed(&self, _: Error) {}
}

impl ConsumerEvents for Events {
    fn readable(&self) {}

    fn closed(&self, _: Error) {}
}

/// Runs a test on an engine of its own.
pub(crate) fn run<T>(test: impl Future<Output = Result<T>>) -> T {
    let engine = Engine::start(1).unwrap();
    let _entered = engine.handle().enter();
    engine
        .handle()
        .block_on(async { tokio::time::timeout(Duration::from_secs(120), test).await })
        .unwrap()
        .unwrap()
}

/// Runs a test that has short limits, up to three times: a busy machine may exceed them, but not
/// each time.
pub(crate) fn run_in_time<F: Future<Output = Result<()>>>(test: impl Fn() -> F) {
    run(async {
        for _ in 0..2 {
            match test().await {
                Err(error) if error.kind() == ErrorKind::Timeout => {}
                outcome => return outcome,
            }
        }
        test().await
    });
}

/// The failure of a test of [`run_in_time`] that took as long as `limit`.
pub(crate) fn in_time(took: Duration, limit: Duration) -> Result<()> {
    if took < limit { Ok(()) } else { Err(Error::new(ErrorKind::Timeout, format!("it took {took:?}"))) }
}

/// Waits until `is_so`.
pub(crate) async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
