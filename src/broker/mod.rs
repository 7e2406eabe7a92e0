//! The embedded broker: for development, tests, demos and the edge. One process, one node, no JVM.
//!
//! * [`hub`]: what sockets, disk and clock know of a protocol; `commits`: a hub's changes on their way to the store
//! * [`pulsar`]: the broker as Pulsar's clients see it, sans-IO
//! * [`mqtt`]: the broker as MQTT's clients see it, sans-IO
//! * [`tubemq`]: master and broker as TubeMQ's clients see them, sans-IO
//! * [`topic`]: logs, cursors, dispatch, without protocol
//! * [`store`]: the tables in SQLite
//! * [`auth`](mod@auth): tokens
//! * `server`: the thread; `desk`: a hub and its tasks; `listener`: sockets
//!
//! A [`Broker`] runs on a thread of its own. With a data directory an answer of success means that the data
//! are on disk; see [`Durability`].

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc as queue;

use crate::error::{Error, ErrorKind, Result};
use crate::pulsar::frame::DEFAULT_MAX_MESSAGE_SIZE;

pub mod auth;
mod commits;
mod desk;
pub mod hub;
mod listener;
pub mod mqtt;
pub mod pulsar;
mod server;
pub mod store;
pub mod topic;
pub mod tubemq;

pub use mqtt::MqttStats;
pub use pulsar::{ConsumerStats, HubStats, SubscriptionStats, TopicStats};
pub use tubemq::TubemqStats;

/// When an answer of success is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the data are on the disk.
    #[default]
    Fsync,
    /// When the operating system has the data: they survive a kill of the process, not a power cut.
    Os,
    /// When memory has them: they end with the process.
    Memory,
}

impl Durability {
    /// `fsync`, `os` or `memory`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Os => "os",
            Self::Memory => "memory",
        }
    }

    /// Reads [`Self::name`].
    pub fn parse(name: &str) -> Result<Self> {
        [Self::Fsync, Self::Os, Self::Memory]
            .into_iter()
            .find(|durability| durability.name() == name)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidArgument,
                    format!("durability {name:?} is not fsync, os or memory"),
                )
            })
    }
}

/// How a broker runs.
#[derive(Clone)]
pub struct Options {
    /// Directory of the store; `None` is [`Durability::Memory`].
    pub data: Option<PathBuf>,
    /// Address to listen on.
    pub host: String,
    /// Port; 0 is any free one.
    pub port: u16,
    /// When an answer of success is given.
    pub durability: Durability,
    /// Certificate chain and private key, PEM: the port speaks TLS.
    pub tls: Option<(Vec<u8>, Vec<u8>)>,
    /// Secret of HS256 tokens: clients need one.
    pub token_key: Option<Vec<u8>>,
    /// Allows other machines to connect without TLS and tokens.
    pub allow_insecure_bind: bool,
    /// URL that lookups answer with; by default made of `host` and the port.
    pub advertised_url: Option<String>,
    /// Bytes of the store at which producers are refused; by default 10 GiB on disk and 1 GiB in memory.
    pub max_store: Option<u64>,
    /// Most connections.
    pub max_connections: usize,
    /// Most topics and partitions.
    pub max_topics: usize,
    /// Largest message in bytes.
    pub max_message_size: usize,
    /// Between signs of life on a connection.
    pub keep_alive: Duration,
    /// How long entries stay that every durable subscription has acknowledged, for those who seek back.
    pub retention: Duration,
    /// Without a store: bytes of memory for such entries of one topic; all together have four times as much.
    pub retention_bytes: usize,
    /// Namespaces in which clients may create topics; `*`, the default, is all: there is nobody here to create
    /// them first. A namespace with topics in it is known, too.
    pub namespaces: Vec<String>,
    /// Whether topics come into being when they are asked for.
    pub auto_create: bool,
    /// Partitions of topics that come into being; 0 is a plain topic.
    pub default_partitions: u32,
    /// Whether a producer's sequence ids that were there already are dropped.
    pub deduplicate: bool,
    /// MQTT's listeners.
    pub mqtt: MqttOptions,
    /// TubeMQ's listener.
    pub tubemq: TubemqOptions,
}

/// How the broker speaks TubeMQ, as master and broker in one. It does when it is given a port.
#[derive(Clone)]
pub struct TubemqOptions {
    /// Port for TCP, or TLS; 0 is any free one.
    pub port: Option<u16>,
    /// Host that clients are told; by default the one that is listened on.
    pub advertised_host: Option<String>,
    /// Users and passwords, a line `name:password` for each: clients have to sign.
    pub users: Option<String>,
    /// Partitions of topics that come into being.
    pub partitions: u32,
    /// How long messages stay, whoever has had them.
    pub retention: Duration,
    /// How long the offsets of a group stay that consumes nothing.
    pub offset_retention: Duration,
    /// Largest message in bytes, attributes included.
    pub max_message_size: usize,
    /// After this time without a sign of life a client has left.
    pub client_timeout: Duration,
}

impl std::fmt::Debug for TubemqOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let users = self.users.is_some();
        f.debug_struct("TubemqOptions")
            .field("port", &self.port)
            .field("users", &users)
            .finish_non_exhaustive()
    }
}

impl Default for TubemqOptions {
    fn default() -> Self {
        Self {
            port: None,
            advertised_host: None,
            users: None,
            partitions: 3,
            retention: Duration::from_secs(7 * 24 * 3600),
            offset_retention: Duration::from_secs(20 * 24 * 3600),
            max_message_size: 1 << 20,
            client_timeout: Duration::from_secs(30),
        }
    }
}

/// How the broker speaks MQTT. It does when it is given a port.
#[derive(Clone, Debug, Default)]
pub struct MqttOptions {
    /// Port for TCP, or TLS; 0 is any free one.
    pub port: Option<u16>,
    /// Port for WebSocket, with the path `/mqtt`; 0 is any free one.
    pub ws_port: Option<u16>,
    /// The contents of a password file as `mosquitto_passwd` writes it: clients need a user name and a password.
    pub passwords: Option<String>,
    /// What clients may have.
    pub limits: mqtt::Limits,
}

impl MqttOptions {
    /// Whether it is spoken at all.
    pub fn enabled(&self) -> bool {
        self.port.is_some() || self.ws_port.is_some()
    }
}

/// Where clients connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Urls {
    /// Of Pulsar.
    pub pulsar: String,
    /// Of MQTT.
    pub mqtt: Option<String>,
    /// Of MQTT over WebSocket.
    pub mqtt_ws: Option<String>,
    /// Of TubeMQ's master.
    pub tubemq: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            data: None,
            host: "127.0.0.1".into(),
            port: 6650,
            durability: Durability::Fsync,
            tls: None,
            token_key: None,
            allow_insecure_bind: false,
            advertised_url: None,
            max_store: None,
            max_connections: 16_384,
            max_topics: 10_000,
            max_message_size: DEFAULT_MAX_MESSAGE_SIZE,
            keep_alive: Duration::from_secs(30),
            retention: Duration::from_secs(600),
            retention_bytes: 32 << 20,
            namespaces: vec!["*".into()],
            auto_create: true,
            default_partitions: 0,
            deduplicate: true,
            mqtt: MqttOptions::default(),
            tubemq: TubemqOptions::default(),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("data", &self.data)
            .field("host", &self.host)
            .field("port", &self.port)
            .field("durability", &self.durability)
            .field("tls", &self.tls.is_some())
            .field("token", &self.token_key.is_some())
            .finish_non_exhaustive()
    }
}

/// A running broker.
#[derive(Clone, Debug)]
pub struct Status {
    /// Where clients connect.
    pub url: String,
    /// When an answer of success is given.
    pub durability: Durability,
    /// How long it has run.
    pub uptime: Duration,
    /// Everything else.
    pub hub: HubStats,
    /// MQTT, if it is spoken.
    pub mqtt: Option<MqttStats>,
    /// TubeMQ, if it is spoken.
    pub tubemq: Option<TubemqStats>,
}

/// A question for the broker's thread; the answer goes through the channel inside.
pub(crate) enum Ask {
    CreateTopic(String, u32, mpsc::SyncSender<Result<()>>),
    DeleteTopic(String, mpsc::SyncSender<Result<()>>),
    Topics(mpsc::SyncSender<Vec<(String, u32)>>),
    TopicStats(String, mpsc::SyncSender<Result<TopicStats>>),
    Stats(mpsc::SyncSender<(HubStats, Option<MqttStats>, Option<TubemqStats>)>),
}

/// A broker on a thread of its own. Dropping it stops it.
#[derive(Debug)]
pub struct Broker {
    urls: Urls,
    durability: Durability,
    started: SystemTime,
    asks: Option<queue::UnboundedSender<Ask>>,
    thread: Option<JoinHandle<()>>,
}

impl Broker {
    /// Opens the store and listens; returns when clients can connect.
    pub fn start(mut options: Options) -> Result<Self> {
        if options.data.is_none() {
            options.durability = Durability::Memory;
        }
        let durability = options.durability;
        let (asks, questions) = queue::unbounded_channel();
        let (started, start) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("penstock-broker".into())
            .spawn(move || server::run(options, questions, &started))?;
        match start.recv() {
            Ok(Ok(urls)) => Ok(Self {
                urls,
                durability,
                started: SystemTime::now(),
                asks: Some(asks),
                thread: Some(thread),
            }),
            Ok(Err(error)) => {
                let _ = thread.join();
                Err(error)
            }
            Err(_) => Err(Error::new(ErrorKind::Io, "the broker's thread did not start")),
        }
    }

    /// Where clients connect.
    pub fn url(&self) -> &str {
        &self.urls.pulsar
    }

    /// Where clients connect, by protocol.
    pub fn urls(&self) -> &Urls {
        &self.urls
    }

    /// Creates a topic; 0 partitions is a plain one. It is on disk when this returns. Names of TubeMQ's topics
    /// begin with `tubemq:`.
    pub fn create_topic(&self, name: &str, partitions: u32) -> Result<()> {
        self.ask(|answer| Ask::CreateTopic(name.to_owned(), partitions, answer))?
    }

    /// Deletes a topic with all that is in it; its producers and consumers are closed.
    pub fn delete_topic(&self, name: &str) -> Result<()> {
        self.ask(|answer| Ask::DeleteTopic(name.to_owned(), answer))?
    }

    /// Names and partition counts.
    pub fn topics(&self) -> Result<Vec<(String, u32)>> {
        self.ask(Ask::Topics)
    }

    /// What is in a topic and who uses it.
    pub fn topic_stats(&self, name: &str) -> Result<TopicStats> {
        self.ask(|answer| Ask::TopicStats(name.to_owned(), answer))?
    }

    /// The broker as a whole.
    pub fn status(&self) -> Result<Status> {
        let (hub, mqtt, tubemq) = self.ask(Ask::Stats)?;
        Ok(Status {
            url: self.urls.pulsar.clone(),
            durability: self.durability,
            uptime: self.started.elapsed().unwrap_or_default(),
            hub,
            mqtt,
            tubemq,
        })
    }

    /// Stops listening, writes what is queued and ends; false if that took longer than `timeout`, and goes on
    /// in the background.
    pub fn stop(&mut self, timeout: Duration) -> bool {
        self.asks = None;
        let Some(thread) = self.thread.take() else { return true };
        let (done, joined) = mpsc::sync_channel(1);
        let waiter = std::thread::spawn(move || {
            let _ = thread.join();
            let _ = done.send(());
        });
        let stopped = joined.recv_timeout(timeout).is_ok();
        if stopped {
            let _ = waiter.join();
        }
        stopped
    }

    fn ask<T>(&self, question: impl FnOnce(mpsc::SyncSender<T>) -> Ask) -> Result<T> {
        let closed = || Error::new(ErrorKind::Closed, "the broker has been stopped");
        let (answer, answered) = mpsc::sync_channel(1);
        self.asks.as_ref().ok_or_else(closed)?.send(question(answer)).map_err(|_| closed())?;
        answered.recv().map_err(|_| closed())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop(Duration::from_secs(10));
    }
}
