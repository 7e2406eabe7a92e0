//! Options of the TubeMQ client, with their defaults. The bindings validate values before they get here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::credentials::Secret;
use forebay_net::tls::TlsOptions;
use forebay_tubemq::Partition;
use forebay_tubemq::balance::Balance;
use forebay_tubemq::consumer::Start;

/// Options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// `tubemq://master:port[,master:port…]` or `tubemq+ssl://…`.
    pub url: String,
    /// Timeout of one connection attempt: name resolution, TCP and TLS.
    pub connect_timeout: Duration,
    /// Timeout of open, seek and close.
    pub operation_timeout: Duration,
    /// Timeout of one call. Servers drop calls that are older by their own clock.
    pub request_timeout: Duration,
    /// Interval of heartbeats to masters and brokers, which forget a client after 30 s of silence.
    pub heartbeat_interval: Duration,
    /// Longest pause between two reconnect attempts.
    pub max_backoff: Duration,
    /// Limit on the bytes of messages without an answer, over all producers.
    pub memory_limit: usize,
    /// Bytes of fetched messages that a consumer holds before it stops fetching.
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
    /// Limit on messages without an answer; the overflow queue holds as many again.
    pub max_pending: usize,
    /// Time from push to answer after which a send fails; `None` waits without limit.
    pub send_timeout: Option<Duration>,
    /// Default message type for messages that do not set one.
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
    /// Start position.
    pub start: Start,
    /// Start offsets of single partitions.
    pub offsets: BTreeMap<Partition, i64>,
    /// Message types to receive, by topic; a topic without an entry receives all.
    pub filters: BTreeMap<String, BTreeSet<String>>,
    /// Assignment of partitions to the members of the group.
    pub balance: Balance,
    /// Whether messages are acknowledged when they are taken.
    pub auto_ack: bool,
    /// Delay after which a pack is delivered again when a message of it is negatively acknowledged.
    pub nack_delay: Duration,
    /// Longest wait between two gets from an empty partition.
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
