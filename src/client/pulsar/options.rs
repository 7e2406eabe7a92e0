//! Options of the Pulsar client, with their defaults. The bindings validate values before they get here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::credentials::Secret;
use forebay_base::compression::Compression;
use forebay_base::sync::Mutex;
use forebay_net::tls::TlsOptions;
use forebay_pulsar::MessageId;
use forebay_pulsar::consumer::{Backoff, Unreadable};
use forebay_pulsar::pb::command_subscribe::SubType;
use forebay_pulsar::schema::{Codec, SchemaInfo};
use forebay_pulsar::topic::{HashingScheme, Routing};

/// Interval of the Java client for new partitions and for patterns.
const UPDATE_INTERVAL: Duration = Duration::from_secs(60);

/// Name and password.
#[derive(Clone, Debug)]
pub struct Basic {
    /// Name of the method; brokers have `basic` unless they are extended.
    pub method: String,
    /// The name, without a colon.
    pub username: String,
    /// The password; a supplier is called at each connect and challenge.
    pub password: Secret,
}

/// Options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Service URL: `pulsar://host:port[,host:port…]` or `pulsar+ssl://…`; with `http://` or `https://`, topics are looked up
    /// at the brokers' web service.
    pub url: String,
    /// Timeout of one connection attempt: name resolution, TCP, TLS and handshake.
    pub connect_timeout: Duration,
    /// Timeout of lookup, producer creation, subscribe, seek and close.
    pub operation_timeout: Duration,
    /// Interval of PINGs.
    pub keep_alive: Duration,
    /// Longest pause between two reconnect attempts.
    pub max_backoff: Duration,
    /// Limit on the bytes of messages waiting for receipts, over all producers.
    pub memory_limit: usize,
    /// Token for authentication; a supplier is called at each connect and challenge.
    pub token: Option<Secret>,
    /// Name and password for basic authentication.
    pub basic: Option<Basic>,
    /// TLS settings of `pulsar+ssl`.
    pub tls: TlsOptions,
    /// Advertised listener to request from the broker.
    pub listener_name: Option<String>,
    /// Properties of each lookup, which extensions of brokers may look at.
    pub lookup_properties: Vec<(String, String)>,
    /// Number of connections to each broker.
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
            basic: None,
            tls: TlsOptions::default(),
            listener_name: None,
            lookup_properties: Vec::new(),
            connections_per_broker: 1,
        }
    }
}

/// The schema of a producer or a consumer.
#[derive(Clone, Debug)]
pub struct SchemaOptions {
    /// The schema as the broker gets it.
    pub info: Arc<SchemaInfo>,
    /// Reader of payloads. The bindings keep their own there.
    pub codec: Arc<dyn Codec>,
    /// Version at the broker, once one partition of a producer is open; empty before. Each producer has its own.
    pub version: Arc<Mutex<Bytes>>,
}

/// Whether other producers may produce to the topic. The numbers are Pulsar's `ProducerAccessMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessMode {
    /// Others may produce, too.
    #[default]
    Shared = 0,
    /// Only this producer; fails if there is another.
    Exclusive = 1,
    /// Only this producer; waits until there is no other.
    WaitForExclusive = 2,
    /// Only this producer; fences others.
    ExclusiveWithFencing = 3,
}

/// Options of a producer.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// Producer name; by default the broker assigns one. Deduplication requires a stable name.
    pub name: Option<String>,
    /// Whether several messages are stored in one entry.
    pub batching: bool,
    /// Limit on the messages of a batch.
    pub batch_max_messages: usize,
    /// Limit on the bytes of a batch.
    pub batch_max_bytes: usize,
    /// Longest time that a batch waits for more messages while others are in flight.
    pub batching_delay: Duration,
    /// Whether each key has batches of its own, for Key_Shared consumers. The limits count over all open batches.
    pub key_based_batching: bool,
    /// Sends a batch at a time, and nothing behind one that the broker has refused.
    pub stop_on_refusal: bool,
    /// Compression of payloads.
    pub compression: Compression,
    /// Entries with fewer bytes of payload are not compressed.
    pub compression_min_size: usize,
    /// Time from push to receipt after which a send fails; `None` waits without limit.
    pub send_timeout: Option<Duration>,
    /// Limit on messages waiting for receipts, per partition; the overflow queue holds as many again.
    pub max_pending: usize,
    /// Hash function that maps keys to partitions.
    pub hashing: HashingScheme,
    /// Routing of messages without a key.
    pub routing: Routing,
    /// Sequence id that counts as published last, -1 for none; by default the broker's last.
    pub initial_sequence_id: Option<i64>,
    /// Whether other producers may produce to the topic.
    pub access_mode: AccessMode,
    /// Whether messages over the broker's size limit are split into chunks.
    pub chunking: bool,
    /// Largest chunk in bytes, within the broker's limit; `None` for as large as that allows.
    pub chunk_max_size: Option<usize>,
    /// Whether the producer of a partition is opened when its first message is sent.
    pub lazy_start: bool,
    /// Properties shown in the broker's statistics.
    pub properties: Vec<(String, String)>,
    /// Subscription that is created with the topic.
    pub initial_subscription: Option<String>,
    /// Interval at which the broker is asked whether a partitioned topic has got more partitions; zero does not ask.
    pub partitions_update_interval: Duration,
    /// Schema of the payloads, if it is not bytes.
    pub schema: Option<SchemaOptions>,
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
            stop_on_refusal: false,
            compression: Compression::None,
            compression_min_size: 0,
            send_timeout: Some(Duration::from_secs(30)),
            max_pending: 1000,
            hashing: HashingScheme::JavaStringHash,
            routing: Routing::RoundRobin,
            initial_sequence_id: None,
            access_mode: AccessMode::Shared,
            chunking: false,
            chunk_max_size: None,
            lazy_start: false,
            properties: Vec::new(),
            initial_subscription: None,
            partitions_update_interval: UPDATE_INTERVAL,
            schema: None,
        }
    }
}

/// Policy for messages that are redelivered too often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterPolicy {
    /// Number of redeliveries after which a message is sent to the dead letter topic instead of being delivered again.
    pub max_redeliveries: u32,
    /// Dead letter topic; by default `<topic>-<subscription>-DLQ`.
    pub topic: Option<String>,
    /// Subscription that is created with the dead letter topic, so that it keeps its messages.
    pub subscription: Option<String>,
    /// Whether messages can be sent to a topic of retries, which the consumer reads too.
    pub retry: bool,
    /// Topic of retries; by default `<topic>-<subscription>-RETRY`.
    pub retry_topic: Option<String>,
}

/// Assignment of keys to the consumers of a Key_Shared subscription, on which all of them have to agree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySharedPolicy {
    /// Ranges of hashes that this consumer takes, of 0 to 65535, both ends included; `None` has the broker split them.
    pub ranges: Option<Vec<(u16, u16)>>,
    /// Whether a key may move to another consumer before its messages are acknowledged.
    pub out_of_order: bool,
}

/// Options of a consumer.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// Subscription type.
    pub kind: SubType,
    /// Start position of a new subscription.
    pub position: MessageId,
    /// Topic of the message at `position`; empty if unknown.
    pub position_topic: Arc<str>,
    /// Whether the message at `position` is received, when it is the id of a message.
    pub start_inclusive: bool,
    /// Whether the subscription outlives its consumers. That of a reader does not.
    pub durable: bool,
    /// Limit on messages fetched ahead, per partition. With 0 none are: one topic without partitions only.
    pub receiver_queue: u32,
    /// Limit on the bytes of messages fetched ahead, over all partitions, give or take a message of each.
    pub receive_buffer: usize,
    /// Whether single messages of a batch are acknowledged at the broker.
    pub batch_index_ack: bool,
    /// Largest chunked message, compressed, and limit on the chunks of all incomplete ones together, per partition.
    pub max_chunked_message: usize,
    /// Limit on the number of incomplete chunked messages, per partition; 0 for none.
    pub max_pending_chunked_messages: usize,
    /// Time that an incomplete chunked message waits for its next chunk; zero for no limit.
    pub chunked_message_timeout: Duration,
    /// Whether the chunks of messages that are given up incomplete are acknowledged.
    pub ack_incomplete_chunks: bool,
    /// Policy for entries that cannot be read: encrypted, damaged, or compressed in an unknown way.
    pub unreadable: Unreadable,
    /// Time for which acknowledgements are gathered.
    pub ack_group_time: Duration,
    /// Delay after which a negatively acknowledged message is delivered again.
    pub nack_delay: Backoff,
    /// Time after which a message that the application has and has not acknowledged is delivered again; `None` for no
    /// limit.
    pub ack_timeout: Option<Backoff>,
    /// Policy for messages that are redelivered too often.
    pub dead_letter: Option<DeadLetterPolicy>,
    /// Assignment of keys on a Key_Shared subscription.
    pub key_shared: Option<KeySharedPolicy>,
    /// Consumer name; by default the client chooses one.
    pub name: Option<String>,
    /// Priority on Shared and Failover subscriptions; lower numbers are served first.
    pub priority: i32,
    /// Whether a compacted topic delivers only the last message of each key.
    pub read_compacted: bool,
    /// Whether the broker may create a topic that does not exist.
    pub creates_topic: bool,
    /// Properties shown in the broker's statistics.
    pub properties: Vec<(String, String)>,
    /// Properties stored with a new subscription.
    pub subscription_properties: Vec<(String, String)>,
    /// Interval at which the broker is asked whether partitioned topics have got more partitions; zero does not ask.
    pub partitions_update_interval: Duration,
    /// Interval at which the broker is asked for the topics of a pattern; zero does not ask.
    pub pattern_update_interval: Duration,
    /// Limit on the topics of a pattern, each partition counted.
    pub pattern_max_topics: usize,
    /// Schema by which payloads are read, if not as bytes.
    pub schema: Option<SchemaOptions>,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self {
            kind: SubType::Exclusive,
            position: MessageId::LATEST,
            position_topic: "".into(),
            start_inclusive: false,
            durable: true,
            receiver_queue: 1000,
            receive_buffer: 16 << 20,
            batch_index_ack: true,
            max_chunked_message: 128 << 20,
            max_pending_chunked_messages: 10,
            chunked_message_timeout: Duration::from_secs(60),
            ack_incomplete_chunks: false,
            unreadable: Unreadable::Skip,
            ack_group_time: Duration::from_millis(100),
            nack_delay: Backoff::fixed(Duration::from_secs(60)),
            ack_timeout: None,
            dead_letter: None,
            key_shared: None,
            name: None,
            priority: 0,
            read_compacted: false,
            creates_topic: true,
            properties: Vec::new(),
            subscription_properties: Vec::new(),
            partitions_update_interval: UPDATE_INTERVAL,
            pattern_update_interval: UPDATE_INTERVAL,
            pattern_max_topics: 10_000,
            schema: None,
        }
    }
}
