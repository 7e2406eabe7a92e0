//! Options of the Pulsar client, with their defaults. The bindings validate values before they get here.

use std::time::Duration;

use crate::client::credentials::Secret;
use crate::compression::Compression;
use crate::net::tls::TlsOptions;
use crate::pulsar::MessageId;
use crate::pulsar::pb::command_subscribe::SubType;
use crate::pulsar::topic::{HashingScheme, Routing};

/// Options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// `pulsar://host:port[,host:port…]` or `pulsar+ssl://…`.
    pub url: String,
    /// Time for one connection to be up: name, TCP, TLS and handshake.
    pub connect_timeout: Duration,
    /// Time for lookup, create, subscribe, seek, close.
    pub operation_timeout: Duration,
    /// Time between PINGs.
    pub keep_alive: Duration,
    /// Longest pause between two attempts to connect again.
    pub max_backoff: Duration,
    /// Bytes of messages waiting for receipts, over all producers.
    pub memory_limit: usize,
    /// Token authentication.
    pub token: Option<Secret>,
    /// TLS settings of `pulsar+ssl`.
    pub tls: TlsOptions,
    /// Advertised listener to ask for.
    pub listener_name: Option<String>,
    /// Connections to each broker.
    pub connections_per_broker: usize,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            url: "pulsar://127.0.0.1:6650".into(),
            connect_timeout: Duration::from_secs(10),
            operation_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(30),
            max_backoff: Duration::from_secs(60),
            memory_limit: 64 << 20,
            token: None,
            tls: TlsOptions::default(),
            listener_name: None,
            connections_per_broker: 1,
        }
    }
}

/// Who else may produce to the topic. The numbers are Pulsar's `ProducerAccessMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessMode {
    /// Anybody.
    #[default]
    Shared = 0,
    /// Nobody; fails if there is another.
    Exclusive = 1,
    /// Nobody; waits its turn.
    WaitForExclusive = 2,
    /// Nobody; throws others out.
    ExclusiveWithFencing = 3,
}

/// Options of a producer.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// Its name; the broker gives one otherwise. Deduplication needs one that stays.
    pub name: Option<String>,
    /// Several messages in one entry.
    pub batching: bool,
    /// Most messages of a batch.
    pub batch_max_messages: usize,
    /// Most bytes of a batch.
    pub batch_max_bytes: usize,
    /// Longest wait for a batch to fill while others are in flight.
    pub batching_delay: Duration,
    /// Batches of one key each, for Key_Shared consumers.
    pub key_based_batching: bool,
    /// How payloads are compressed.
    pub compression: Compression,
    /// From `push` to receipt; `None` waits for ever.
    pub send_timeout: Option<Duration>,
    /// Messages waiting for receipts, per partition; as many again may be parked.
    pub max_pending: usize,
    /// How keys choose partitions.
    pub hashing: HashingScheme,
    /// How messages without a key choose partitions.
    pub routing: Routing,
    /// First sequence id; goes on after the broker's last one otherwise.
    pub initial_sequence_id: Option<u64>,
    /// Who else may produce.
    pub access_mode: AccessMode,
    /// Splits messages over the broker's limit.
    pub chunking: bool,
    /// Shown in the broker's statistics.
    pub properties: Vec<(String, String)>,
}

impl Default for ProducerOptions {
    fn default() -> Self {
        Self {
            name: None,
            batching: true,
            batch_max_messages: 1000,
            batch_max_bytes: 128 << 10,
            batching_delay: Duration::from_millis(1),
            key_based_batching: false,
            compression: Compression::None,
            send_timeout: Some(Duration::from_secs(30)),
            max_pending: 1000,
            hashing: HashingScheme::JavaStringHash,
            routing: Routing::RoundRobin,
            initial_sequence_id: None,
            access_mode: AccessMode::Shared,
            chunking: false,
            properties: Vec::new(),
        }
    }
}

/// Options of a consumer.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// Type of the subscription.
    pub kind: SubType,
    /// Where a new subscription begins.
    pub position: MessageId,
    /// Whether `position` itself is given, when it is the id of a message.
    pub start_inclusive: bool,
    /// Whether the subscription outlives its consumers. A reader's does not.
    pub durable: bool,
    /// Messages fetched ahead, per partition.
    pub receiver_queue: u32,
    /// Acknowledges single messages of a batch to the broker.
    pub batch_index_ack: bool,
    /// How long acknowledgements are gathered.
    pub ack_group_time: Duration,
    /// When a message that was nacked is asked for again.
    pub nack_delay: Duration,
    /// Its name; chosen by the client otherwise.
    pub name: Option<String>,
    /// Lower is served first, on Shared and Failover.
    pub priority: i32,
    /// Only the last message of each key, on compacted topics.
    pub read_compacted: bool,
    /// Shown in the broker's statistics.
    pub properties: Vec<(String, String)>,
    /// Kept with a new subscription.
    pub subscription_properties: Vec<(String, String)>,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self {
            kind: SubType::Exclusive,
            position: MessageId::LATEST,
            start_inclusive: false,
            durable: true,
            receiver_queue: 1000,
            batch_index_ack: true,
            ack_group_time: Duration::from_millis(100),
            nack_delay: Duration::from_secs(60),
            name: None,
            priority: 0,
            read_compacted: false,
            properties: Vec::new(),
            subscription_properties: Vec::new(),
        }
    }
}
