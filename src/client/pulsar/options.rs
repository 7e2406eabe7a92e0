//! Options of the Pulsar client: names, types, defaults and texts. The bindings validate values
//! before they get here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::credentials::Secret;
use forebay_base::compression::Compression;
use forebay_base::options;
use forebay_base::options::{DURATION, FLAG, PAIRS, SIZE, TEXT, WORD, at_least, own, whole};
use forebay_base::sync::Mutex;
use forebay_net::tls::TlsOptions;
use forebay_pulsar::MessageId;
use forebay_pulsar::consumer::{Backoff, Unreadable};
use forebay_pulsar::pb::command_subscribe::SubType;
use forebay_pulsar::producer::MAX_SEQUENCE_ID;
use forebay_pulsar::schema::{Codec, SchemaInfo};
use forebay_pulsar::topic::{HashingScheme, Routing};

/// Interval of the Java client for new partitions and for patterns.
const UPDATE_INTERVAL: Duration = Duration::from_secs(60);
/// Delay of the Java client before a nacked message is delivered again.
const NACK_DELAY: Duration = Duration::from_secs(60);

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

options! {
    /// Options of a client.
    #[derive(Clone, Debug)]
    pub struct ClientOptions {
        /// Service URL: `pulsar://host:port[,host:port…]` or `pulsar+ssl://…`; with `http://` or
        /// `https://`, topics are looked up at the brokers' web service.
        field url: String = "pulsar://127.0.0.1:6650".into();
        /// Timeout for the first connection, in seconds.
        option connect_timeout: Duration = Duration::from_secs(10) => DURATION;
        /// Timeout for subscribe, seek, close and lookups, in seconds.
        option operation_timeout: Duration = Duration::from_secs(30) => DURATION;
        /// Interval between PING commands, in seconds.
        option keep_alive: Duration = Duration::from_secs(30) => DURATION.least(Duration::from_secs(1));
        /// Longest pause before a reconnect, in seconds.
        option max_backoff: Duration = Duration::from_secs(60) => DURATION.least(Duration::from_millis(100));
        /// Memory limit in bytes for unacknowledged messages, shared by all producers of the
        /// client.
        option memory_limit: usize = 64 << 20 => SIZE;
        /// JWT for token authentication, or an `OAuth2` provider.
        custom token: Option<Secret> = None => own("token").common().secret();
        /// Name and password for basic authentication.
        field basic: Option<Basic> = None;
        /// TLS settings of `pulsar+ssl`.
        field tls: TlsOptions = TlsOptions::default();
        /// Advertised listener to request in lookups.
        option listener_name: Option<String> = None => TEXT;
        /// Properties sent with each lookup, for broker extensions that read them.
        option lookup_properties: Vec<(String, String)> = Vec::new() => PAIRS;
        /// Number of connections to each broker.
        option connections_per_broker: usize = 1 => whole(1, 64);
        /// User name for basic authentication.
        row username => TEXT;
        /// Password for basic authentication.
        row password => own("secret").secret();
        /// Authentication method under which `username` and `password` are sent. Default:
        /// `"basic"`. Change it for brokers with an authentication method of their own.
        row basic_method => TEXT;
        /// Client certificate chain for mutual TLS, and for TLS authentication if there is no
        /// token.
        row tls_cert => own("pem");
    }
}

/// The schema of a producer or a consumer.
#[derive(Clone, Debug)]
pub struct SchemaOptions {
    /// The schema as the broker gets it.
    pub info: Arc<SchemaInfo>,
    /// Reader of payloads. The bindings keep their own there.
    pub codec: Arc<dyn Codec>,
    /// Version at the broker, once one partition of a producer is open; empty before. Each producer
    /// has its own.
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

options! {
    /// Options of a producer.
    #[derive(Clone, Debug)]
    pub struct ProducerOptions {
        /// Producer name. Deduplication requires a name that stays the same after a restart.
        option name: Option<String> = None => TEXT.common();
        /// Pack several messages into one entry.
        option batching: bool = true => FLAG;
        /// Maximum number of messages in a batch.
        option batch_max_messages: usize = 1000 => whole(1, 1 << 20);
        /// Maximum size of a batch in bytes.
        option batch_max_bytes: usize = 128 << 10 => SIZE;
        /// Longest wait of a batch for more messages, in seconds.
        option batching_delay: Duration = Duration::from_millis(1) => DURATION;
        /// Give each key its own batches, as Key_Shared subscriptions require.
        option key_based_batching: bool = false => FLAG;
        /// Send one batch at a time, and nothing after a rejected batch. Without it, deduplication
        /// would drop messages that are resent after a rejection, because later messages are
        /// already stored. Skip messages that the broker already stored for this producer name (by
        /// `sequence_id`), except the last one.
        option stop_on_refusal: bool = false => FLAG;
        /// Codec that compresses batches.
        words compression: Compression = Compression::None => of [
            "none" = Compression::None,
            "lz4" = Compression::Lz4,
            "zlib" = Compression::Zlib,
            "zstd" = Compression::Zstd,
            "snappy" = Compression::Snappy,
        ] WORD.common();
        /// Minimum size of a compressed batch or message, in bytes. Smaller ones are sent
        /// uncompressed.
        option compression_min_size: usize = 0 => SIZE;
        /// Timeout for the receipt of a message, in seconds. 0 disables it.
        option send_timeout: Option<Duration> = Some(Duration::from_secs(30)) => DURATION.common();
        /// Limit of unacknowledged messages per partition (send window).
        option max_pending: usize = 1000 => whole(1, 1 << 24);
        /// Hash function from keys to partitions.
        words hashing: HashingScheme = HashingScheme::JavaStringHash => of [
            "java" = HashingScheme::JavaStringHash,
            "murmur3" = HashingScheme::Murmur3,
            "boost" = HashingScheme::Boost,
        ] WORD;
        /// Partition of messages without a key: in turn, always the same, or in turn among
        /// `routing_partitions` randomly chosen partitions, which then also receive messages with
        /// keys.
        words routing: Routing = Routing::RoundRobin => of [
            "round_robin" = Routing::RoundRobin,
            "single" = Routing::Single,
            "partial_round_robin" = Routing::Partial(1),
        ] WORD;
        /// Sequence id to continue after: the first message gets the next one. -1 starts at 0.
        /// Default: the last id that the broker stored for this producer name.
        option initial_sequence_id: Option<i64> = None => whole(-1, MAX_SEQUENCE_ID as i64);
        /// Whether other producers of the topic are allowed.
        words access_mode: AccessMode = AccessMode::Shared => of [
            "shared" = AccessMode::Shared,
            "exclusive" = AccessMode::Exclusive,
            "wait_for_exclusive" = AccessMode::WaitForExclusive,
            "exclusive_with_fencing" = AccessMode::ExclusiveWithFencing,
        ] WORD;
        /// Split messages that are larger than the broker's limit.
        option chunking: bool = false => FLAG;
        /// Largest chunk in bytes. Default: the broker's limit.
        option chunk_max_size: Option<usize> = None => own("chunk_size");
        /// Open the producer of a partition when its first message is sent. Not available with
        /// exclusive access.
        option lazy_start: bool = false => FLAG;
        /// Metadata shown in the broker's statistics.
        option properties: Vec<(String, String)> = Vec::new() => PAIRS;
        /// Subscription that is created with the topic.
        field initial_subscription: Option<String> = None;
        /// Interval for checking for new partitions, in seconds. 0 disables the check.
        option partitions_update_interval: Duration = UPDATE_INTERVAL => DURATION;
        /// Schema of the values to send, which the broker checks: a `Schema`, a dataclass or a
        /// pydantic model (JSON), or a primitive type. "auto" sends bytes that must match the
        /// schema of the topic. Without a schema, payloads are bytes.
        custom schema: Option<SchemaOptions> = None => own("schema").common();
        /// Maximum number of partitions used by `routing="partial_round_robin"`.
        row routing_partitions => whole(1, 1 << 16);
        /// Function that chooses the partition of each message. It is called with the key or
        /// `None`, the properties, and the number of partitions, and must not block.
        row router => own("callable").face();
        /// Interceptors: objects that see each message before it is sent, and its result, in this
        /// order.
        row interceptors => own("producer_interceptors").face();
    }
}

/// Policy for messages that are redelivered too often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterPolicy {
    /// Number of redeliveries after which a message is sent to the dead letter topic instead of
    /// being delivered again.
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

/// Assignment of keys to the consumers of a Key_Shared subscription, on which all of them have to
/// agree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySharedPolicy {
    /// Ranges of hashes that this consumer takes, of 0 to 65535, both ends included; `None` has the
    /// broker split them.
    pub ranges: Option<Vec<(u16, u16)>>,
    /// Whether a key may move to another consumer before its messages are acknowledged.
    pub out_of_order: bool,
}

options! {
    /// Options of a consumer.
    #[derive(Clone, Debug)]
    pub struct ConsumerOptions {
        /// Subscription type: how its consumers share the messages.
        words kind as "type": SubType = SubType::Exclusive => of [
            "exclusive" = SubType::Exclusive,
            "shared" = SubType::Shared,
            "failover" = SubType::Failover,
            "key_shared" = SubType::KeyShared,
        ] WORD.common();
        /// Start of a new subscription: "earliest", "latest" or a message id. An existing
        /// subscription rejects an id. Readers also accept times, durations back from now, and an
        /// id for each partition.
        custom position: MessageId = MessageId::LATEST => own("position").common().word("latest");
        /// Topic of the message at `position`; empty if unknown.
        field position_topic: Arc<str> = "".into();
        /// Also deliver the message at `position`.
        option start_inclusive: bool = false => FLAG;
        /// Keep the subscription after its consumers are closed.
        option durable: bool = true => FLAG;
        /// Limit of messages fetched ahead, per partition. With 0 the consumer requests a message
        /// or batch only when the application waits for it; this requires one topic without
        /// partitions.
        option receiver_queue: u32 = 1000 => whole(0, 1 << 20);
        /// Limit in bytes of messages fetched ahead, over all partitions. Each partition may exceed
        /// its share by one message or batch.
        option receive_buffer: usize = 16 << 20 => SIZE;
        /// Acknowledge single messages of a batch instead of whole batches.
        option batch_index_ack: bool = true => FLAG;
        /// Largest chunked message to assemble, and largest size to decompress any message to, in
        /// bytes, per partition. A larger message is unreadable.
        option max_chunked_message: usize = 128 << 20 => SIZE;
        /// Limit of incomplete chunked messages, per partition. When it is reached, the oldest is
        /// dropped. 0 sets no limit other than `max_chunked_message`.
        option max_pending_chunked_messages: usize = 10 => whole(0, 1 << 31);
        /// Timeout for the next chunk of an incomplete chunked message, in seconds. 0 disables it.
        option chunked_message_timeout: Duration = Duration::from_secs(60) => DURATION;
        /// Acknowledge the chunks of incomplete messages that are dropped. Otherwise they stay
        /// unacknowledged and are redelivered.
        option ack_incomplete_chunks: bool = false => FLAG;
        /// Handling of encrypted or damaged entries. "skip" leaves them unacknowledged, even by
        /// `ack_cumulative`; "fail" does the same and closes the consumer with an error; "discard"
        /// acknowledges them.
        words unreadable: Unreadable = Unreadable::Skip => of [
            "skip" = Unreadable::Skip,
            "fail" = Unreadable::Fail,
            "discard" = Unreadable::Discard,
        ] WORD;
        /// Time for which acknowledgements are collected, in seconds.
        option ack_group_time: Duration = Duration::from_millis(100) => DURATION;
        /// Redelivery delay of a nacked message, in seconds, or a `Backoff` that grows with each
        /// redelivery.
        custom nack_delay: Backoff = Backoff::fixed(NACK_DELAY) => own("delay").seconds(NACK_DELAY);
        /// Time after which a received message that is neither acknowledged nor nacked is
        /// redelivered, in seconds, at least 1; or a `Backoff` that grows with each redelivery.
        /// Default: no limit.
        custom ack_timeout: Option<Backoff> = None => own("ack_timeout");
        /// Dead letter policy (`DeadLetterPolicy`) for messages that are redelivered too often.
        custom dead_letter: Option<DeadLetterPolicy> = None => own("dead_letter").common();
        /// Assignment of keys to the consumers of a Key_Shared subscription, a `KeySharedPolicy`.
        custom key_shared: Option<KeySharedPolicy> = None => own("key_shared");
        /// Consumer name in the broker's statistics.
        option name: Option<String> = None => TEXT;
        /// Priority on Shared and Failover subscriptions. Lower values are served first.
        option priority: i32 = 0 => at_least(0);
        /// Read the compacted topic: only the last message of each key.
        option read_compacted: bool = false => FLAG;
        /// Whether the broker may create a topic that does not exist.
        field creates_topic: bool = true;
        /// Metadata shown in the broker's statistics.
        option properties: Vec<(String, String)> = Vec::new() => PAIRS;
        /// Metadata stored with a new subscription.
        option subscription_properties: Vec<(String, String)> = Vec::new() => PAIRS;
        /// Interval for checking for new partitions, in seconds. 0 disables the check.
        option partitions_update_interval: Duration = UPDATE_INTERVAL => DURATION;
        /// Interval for polling the topics that match a pattern, in seconds. Brokers that support
        /// it also report changes. 0 disables polling.
        option pattern_update_interval: Duration = UPDATE_INTERVAL => DURATION;
        /// Maximum number of topics of a pattern. Each partition counts.
        option pattern_max_topics: usize = 10_000 => whole(1, 1 << 17);
        /// Schema by which `message.value` decodes: as for producers, or "auto" for the schema of
        /// each message. Without a schema, values are bytes.
        custom schema: Option<SchemaOptions> = None => own("schema").common();
        /// Make `ack` wait for the broker's confirmation.
        row ack_receipt => FLAG.face().flag(false);
        /// Domain of the topics of a pattern. Default: the pattern's, or persistent.
        row topics_domain => WORD.words(&["persistent", "non-persistent", "all"]);
        /// Interceptors: objects that see each message before the application does, and its
        /// acknowledgement, in this order.
        row interceptors => own("consumer_interceptors").face();
    }
}
