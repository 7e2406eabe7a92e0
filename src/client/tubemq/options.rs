//! Every knob of the TubeMQ client with its default. Values have been validated by whoever fills them in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::client::credentials::Secret;
use crate::net::tls::TlsOptions;
use crate::tubemq::Partition;
use crate::tubemq::balance::Balance;
use crate::tubemq::consumer::Start;

/// Options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// `tubemq://master:port[,master:port…]` or `tubemq+ssl://…`.
    pub url: String,
    /// Time for one connection to be up: name, TCP and TLS.
    pub connect_timeout: Duration,
    /// Time for open, seek and close.
    pub operation_timeout: Duration,
    /// Time for one call to be answered, by the server's clock too.
    pub request_timeout: Duration,
    /// Between two signs of life to masters and brokers, which forget who is silent for 30 s.
    pub heartbeat_interval: Duration,
    /// Longest pause between two attempts to connect again.
    pub max_backoff: Duration,
    /// Bytes of messages without an answer, over all producers.
    pub memory_limit: usize,
    /// Bytes that have been fetched and not been taken, of each consumer, before no more are fetched.
    pub receive_buffer: usize,
    /// User name.
    pub username: Option<String>,
    /// Password.
    pub password: Option<Secret>,
    /// TLS settings of `tubemq+ssl`.
    pub tls: TlsOptions,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            url: "tubemq://127.0.0.1:8715".into(),
            connect_timeout: Duration::from_secs(10),
            operation_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(10),
            heartbeat_interval: Duration::from_secs(10),
            max_backoff: Duration::from_secs(2),
            memory_limit: 64 << 20,
            receive_buffer: 16 << 20,
            username: None,
            password: None,
            tls: TlsOptions::default(),
        }
    }
}

/// Options of a producer.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// Messages without an answer; as many again may be parked.
    pub max_pending: usize,
    /// From push to answer; `None` waits for ever.
    pub send_timeout: Option<Duration>,
    /// Type of messages that say nothing else.
    pub message_type: Option<String>,
}

impl Default for ProducerOptions {
    fn default() -> Self {
        Self { max_pending: 1000, send_timeout: Some(Duration::from_secs(30)), message_type: None }
    }
}

/// Options of a consumer.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// Where it begins.
    pub start: Start,
    /// Where single partitions begin.
    pub offsets: BTreeMap<Partition, i64>,
    /// Message types of each topic; none: all.
    pub filters: BTreeMap<String, BTreeSet<String>>,
    /// Who decides which member consumes what.
    pub balance: Balance,
    /// Messages are acknowledged when they are taken.
    pub auto_ack: bool,
    /// When a pack comes again of which a message was not acknowledged.
    pub nack_delay: Duration,
    /// Longest wait before a look at an empty partition.
    pub poll_interval: Duration,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self {
            start: Start::Latest,
            offsets: BTreeMap::new(),
            filters: BTreeMap::new(),
            balance: Balance::Client(None),
            auto_ack: false,
            nack_delay: Duration::from_secs(1),
            poll_interval: Duration::from_millis(100),
        }
    }
}
