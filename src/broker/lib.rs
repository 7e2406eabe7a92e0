//! The embedded broker: for development, tests, demos and the edge. One process, one node, no JVM.
//!
//! * [`protocol`]: the contract between the I/O tasks and a protocol; `pending_writes`: a
//!   protocol's changes on their way to the store
//! * [`pulsar`], [`mqtt`], [`tubemq`]: the protocols, sans-IO
//! * [`log`](mod@log): entries and cursors, which Pulsar and TubeMQ share
//! * [`store`]: the tables in SQLite, all SQL of the broker
//! * [`auth`](mod@auth): tokens; [`permissions`]: who may use which topics; [`tree`]: filters by
//!   their levels; [`options`]; [`stats`]
//! * [`http`]: health, metrics, and the requests that protocols answer; `record`: records of the
//!   log, and a limit on those of peers
//! * `server`: the thread and the table of protocols; `service`: a protocol before it runs;
//!   `runner`: a protocol and its tasks; `registry`: all that run; `admission`: limits on
//!   connections; `disk`: the room of the store
//! * [`listeners`]: addresses and who is admitted there; `listener`, `tls`: their sockets and
//!   certificates
//!
//! No protocol imports another, and nothing above them imports one, except `options` and `server`,
//! where they are put together.
//!
//! A [`Broker`] runs on a thread of its own. With a data directory, a successful answer means that
//! the data are on disk; see [`Durability`].

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc as queue;

use crate::server::Request;
use forebay_base::error::{Error, ErrorKind, Result};

mod admission;
pub mod auth;
mod budget;
mod free_space;
mod handshakes;
pub mod http;
mod lines;
mod listener;
pub mod listeners;
pub mod log;
mod logger;
pub mod mqtt;
pub mod options;
mod peer;
mod pending_writes;
pub mod permissions;
pub mod protocol;
pub mod pulsar;
mod registry;
mod runner;
mod server;
mod service;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod stats;
pub mod store;
mod tls;
pub mod tree;
mod trim;
pub mod tubemq;

pub use listeners::{Address, Keys, Listener, Listening, ServerTls, Urls};
pub use mqtt::options::{FullQueue, MqttOptions, SlowSubscriber};
pub use options::{Durability, Options};
pub use pulsar::options::PulsarOptions;
pub use stats::{ConsumerStats, ProtocolStats, SubscriptionStats, TopicStats};
pub use tubemq::options::TubeMqOptions;

/// Figures of a running broker.
#[derive(Clone, Debug)]
pub struct Status {
    /// URL of the first listener.
    pub url: String,
    /// When the broker acknowledges.
    pub durability: Durability,
    /// Time since the start.
    pub uptime: Duration,
    /// Bytes in the store, or in memory without one.
    pub store_bytes: u64,
    /// Sums over all protocols.
    pub total: ProtocolStats,
    /// Figures of each protocol that is enabled, by its name.
    pub protocols: Vec<(&'static str, ProtocolStats)>,
}

/// A broker that runs on a thread of its own. Dropping it stops it.
#[derive(Debug)]
pub struct Broker {
    urls: Urls,
    durability: Durability,
    started: SystemTime,
    requests: Option<queue::UnboundedSender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Broker {
    /// Opens the store and listens. Clients can connect when this returns.
    #[allow(clippy::disallowed_methods, reason = "the uptime counts the time of a suspended machine")]
    pub fn start(mut options: Options) -> Result<Self> {
        if options.data.is_none() {
            options.durability = Durability::Memory;
        }
        let durability = options.durability;
        let (requests, received) = queue::unbounded_channel();
        let (started, start) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("forebay-broker".into())
            .spawn(move || server::run(options, received, &started))?;
        match start.recv() {
            Ok(Ok(urls)) => Ok(Self {
                urls,
                durability,
                started: SystemTime::now(),
                requests: Some(requests),
                thread: Some(thread),
            }),
            Ok(Err(error)) => {
                let _ = thread.join();
                Err(error)
            }
            Err(_) => Err(Error::new(ErrorKind::Io, "the broker's thread ended while it was starting")),
        }
    }

    /// The URL of the first listener.
    pub fn url(&self) -> &str {
        self.urls.first()
    }

    /// The URLs of all listeners.
    pub fn urls(&self) -> &Urls {
        &self.urls
    }

    /// Creates a topic; with 0 partitions, a plain one. The topic is on disk when this returns.
    /// Names of TubeMQ's topics begin with `tubemq:`.
    pub fn create_topic(&self, name: &str, partitions: u32) -> Result<()> {
        self.ask(|answer| Request::CreateTopic(name.to_owned(), partitions, answer))?
    }

    /// Adds partitions to a partitioned topic until it has `partitions`. They are on disk when this
    /// returns.
    pub fn grow_topic(&self, name: &str, partitions: u32) -> Result<()> {
        self.ask(|answer| Request::GrowTopic(name.to_owned(), partitions, answer))?
    }

    /// Deletes a topic with its messages, and closes its producers and consumers.
    pub fn delete_topic(&self, name: &str) -> Result<()> {
        self.ask(|answer| Request::DeleteTopic(name.to_owned(), answer))?
    }

    /// Terminates a topic or all its partitions: it takes no more messages, and its consumers are
    /// told once they have acknowledged all.
    pub fn terminate_topic(&self, name: &str) -> Result<()> {
        self.ask(|answer| Request::TerminateTopic(name.to_owned(), answer))?
    }

    /// Names and partition counts of all topics.
    pub fn topics(&self) -> Result<Vec<(String, u32)>> {
        self.ask(Request::Topics)
    }

    /// Contents and users of a topic.
    pub fn topic_stats(&self, name: &str) -> Result<TopicStats> {
        self.ask(|answer| Request::TopicStats(name.to_owned(), answer))?
    }

    /// Whether [`Self::set_users`] accepts a file for this protocol.
    pub fn check_users(protocol: &str, file: &str) -> Result<()> {
        match protocol {
            "mqtt" => mqtt::Passwords::parse(file).map(drop),
            "tubemq" => tubemq::Users::parse(file).map(drop),
            _ => Err(Error::new(ErrorKind::Unsupported, format!("{protocol} has no users"))),
        }
    }

    /// Replaces the users of `"mqtt"` or `"tubemq"` by those of a file, and gives their number.
    /// Connections whose user is gone or has another password end.
    pub fn set_users(&self, protocol: &'static str, file: &str) -> Result<usize> {
        self.ask(|answer| Request::SetUsers(protocol, file.to_owned(), answer))?
    }

    /// Replaces the permissions by those of a file, and gives the number of rules. No connection
    /// ends: producers and consumers do that may not be there any more, and what was queued is not
    /// delivered to who may not read it any more.
    pub fn set_permissions(&self, file: &str) -> Result<usize> {
        self.ask(|answer| Request::SetPermissions(file.to_owned(), answer))?
    }

    /// Replaces certificates and token keys, and gives the number of listeners with a certificate
    /// and that of the keys. Connections that are open keep what they have.
    ///
    /// # Errors
    /// A listener, or the keys, would come or go, or there would be no more certificates of clients
    /// asked for: that needs a new start. A certificate or key is not valid. Nothing is replaced
    /// then.
    pub fn set_keys(&self, keys: Keys) -> Result<(usize, usize)> {
        self.ask(|answer| Request::SetKeys(keys, answer))?
    }

    /// Figures of the whole broker.
    pub fn status(&self) -> Result<Status> {
        let stats::Stats { protocols, store_bytes } = self.ask(Request::Stats)?;
        let mut total = ProtocolStats::default();
        protocols.iter().for_each(|(_, stats)| total.add(stats));
        Ok(Status {
            url: self.urls.first().to_owned(),
            durability: self.durability,
            uptime: self.started.elapsed().unwrap_or_default(),
            store_bytes,
            total,
            protocols,
        })
    }

    /// Stops listening, writes what is queued and ends. Returns `false` if that takes longer than
    /// `timeout`; it continues in the background.
    pub fn stop(&mut self, timeout: Duration) -> bool {
        self.requests = None;
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

    fn ask<T>(&self, question: impl FnOnce(mpsc::SyncSender<T>) -> Request) -> Result<T> {
        let closed = || Error::new(ErrorKind::Closed, "the broker has been stopped");
        let (answer, answered) = mpsc::sync_channel(1);
        self.requests.as_ref().ok_or_else(closed)?.send(question(answer)).map_err(|_| closed())?;
        answered.recv().map_err(|_| closed())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop(Duration::from_secs(10));
    }
}
