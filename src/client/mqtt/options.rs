//! Options of the MQTT client: names, types, defaults and texts. The bindings validate values
//! before they get here.

use std::time::Duration;

use bytes::Bytes;

use crate::credentials::{Callback, Secret};
use crate::mqtt::outbox::{OUTBOX_LIMIT, OutboxOptions};
use forebay_base::options;
use forebay_base::options::{DURATION, FLAG, PAIRS, SIZE, TEXT, WORD, own, whole};
use forebay_base::random;
use forebay_mqtt::packet::{Publish, RetainHandling, SubscribeOptions, Will};
use forebay_mqtt::topic::Filter;
use forebay_mqtt::{Properties, QoS, Version};
use forebay_net::tls::TlsOptions;

/// Seconds between two packets of an idle client.
const KEEP_ALIVE: u16 = 60;

/// Steps of extended authentication (4.12): receives the server's data, `None` at the start, and
/// returns the client's.
pub type Authenticator = Callback<Option<Bytes>, Vec<u8>>;

/// Policy for a publication while the queue is full and there is no connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OfflinePolicy {
    /// Refuse it with `QueueFull`.
    #[default]
    Reject,
    /// Fail the oldest publication that has not been sent, and accept it.
    DropOldest,
    /// Keep QoS 1 and 2 in the outbox up to its limit, and refuse QoS 0. Requires an outbox.
    Spill,
}

/// Policy for messages of the session that no open consumer claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnclaimedPolicy {
    /// Keep them for a consumer that opens: unacknowledged at first, then in memory.
    #[default]
    Keep,
    /// Acknowledge and drop them.
    Ack,
    /// As `Ack`, and unsubscribe from what they came from.
    Unsubscribe,
}

options! {
    /// Options of a client.
    #[derive(Clone)]
    pub struct ClientOptions {
        /// `mqtt://`, `mqtts://`, `ws://`, `wss://` with one or several hosts, or `mqtt+unix://`.
        field url: String = "mqtt://127.0.0.1:1883".into();
        /// Protocol version. `auto` selects the newest that the broker accepts.
        words version: Option<Version> = Some(Version::V5) => of [
            "5" = Some(Version::V5),
            "3.1.1" = Some(Version::V3_1_1),
            "3.1" = Some(Version::V3_1),
            "auto" = None,
        ] WORD;
        /// Client identifier, the name of the session. Default: a unique one.
        option client_id: String = String::new() => TEXT.common();
        /// Discard an earlier session. `False` resumes it and requires a `client_id`.
        option clean_start: bool = true => FLAG.common();
        /// Time for which the session outlives the connection, also after `close()`, in seconds.
        /// Default: 300 while the client lives, unlimited with `clean_start=False`.
        custom session_expiry: u32 = 300 => DURATION;
        /// Keep the session when the client is closed.
        field keep_session: bool = false;
        /// Keep Alive (3.1.2.10), in seconds. 0 disables it.
        custom keep_alive: u16 = KEEP_ALIVE => DURATION.seconds(Duration::from_secs(KEEP_ALIVE as u64));
        /// User name.
        option username: Option<String> = None => TEXT.common();
        /// Password. MQTT takes any bytes.
        custom password: Option<Secret> = None => own("binary_secret").common().secret();
        /// Will: message that the broker publishes if the connection ends without DISCONNECT.
        custom will: Option<Will> = None => own("will").common();
        /// Message to publish after each connect, before unsent messages. If the broker rejects it,
        /// the client logs and counts the rejection (`births_refused` in `stats()`) and continues.
        custom birth: Option<Publish> = None => own("birth");
        /// Additional properties of CONNECT: user properties, request response information.
        field properties: Properties = Properties::new();
        /// Method and steps of extended authentication. MQTT 5 only.
        field authentication: Option<(String, Authenticator)> = None;
        /// Timeout for the first connection, in seconds.
        option connect_timeout: Duration = Duration::from_secs(10) => DURATION;
        /// Timeout for subscribe, unsubscribe and close, in seconds.
        option operation_timeout: Duration = Duration::from_secs(30) => DURATION;
        /// Longest pause before a reconnect, in seconds.
        option max_backoff: Duration = Duration::from_secs(60) => DURATION.least(Duration::from_millis(100));
        /// Limit of QoS 1 and 2 messages in flight to the broker. The broker's Receive Maximum
        /// lowers it. MQTT 3 brokers cannot announce one; at most 20 QoS 2 messages are then in
        /// flight, because Mosquitto loses more.
        option max_inflight: u16 = 1000 => whole(1, 65_535);
        /// Limit of unacknowledged incoming messages (Receive Maximum, MQTT 5). MQTT 3 brokers
        /// cannot be told this limit; the client then reads at least 32,768 messages ahead.
        option receive_maximum: u16 = 1000 => whole(1, 65_535);
        /// Number of topic aliases that the broker may use (MQTT 5).
        option topic_alias_maximum: u16 = 100 => whole(0, 65_535);
        /// Largest packet to accept, in bytes (Maximum Packet Size).
        option max_packet_size: usize = 16 << 20 => own("packet_size");
        /// Memory limit in bytes for unacknowledged messages, shared by all producers of the
        /// client.
        option memory_limit: usize = 64 << 20 => SIZE;
        /// Limit in bytes of received messages that wait for the application. The client stops
        /// reading when it is reached.
        option receive_buffer: usize = 16 << 20 => SIZE;
        /// Handling of session messages that no consumer claims within 5 s: "keep" stores them for
        /// a later consumer, "ack" acknowledges and drops them, "unsubscribe" also ends their
        /// subscription.
        words unclaimed: UnclaimedPolicy = UnclaimedPolicy::Keep => of [
            "keep" = UnclaimedPolicy::Keep,
            "ack" = UnclaimedPolicy::Ack,
            "unsubscribe" = UnclaimedPolicy::Unsubscribe,
        ] WORD;
        /// Handling of new messages when `max_pending` is reached while disconnected. "spill"
        /// requires an `outbox`.
        words offline: OfflinePolicy = OfflinePolicy::Reject => of [
            "reject" = OfflinePolicy::Reject,
            "drop_oldest" = OfflinePolicy::DropOldest,
            "spill" = OfflinePolicy::Spill,
        ] WORD;
        /// File that stores QoS 1 and 2 messages until the broker acknowledges them, even if the
        /// process is killed. A send completes when its message is in the file.
        custom outbox: Option<OutboxOptions> = None => own("path");
        /// TLS settings of `mqtts` and `wss`.
        field tls: TlsOptions = TlsOptions::default();
        /// ALPN protocol of the TLS handshake. "" offers none.
        option tls_alpn: Option<String> = Some("mqtt".into()) => own("any_text");
        /// Headers of the WebSocket handshake. They replace those of the client.
        option ws_headers: Vec<(String, String)> = Vec::new() => PAIRS.secret();
        /// Query of the WebSocket URL, such as the signature of a presigned URL. A callable is
        /// called at each connect.
        custom ws_query: Option<Secret> = None => own("secret").secret();
        /// Client certificate chain for mutual TLS.
        row tls_cert => own("pem");
        /// Method of extended authentication (MQTT 5, 4.12).
        row authentication_method => TEXT;
        /// Callable for the steps of extended authentication: takes the broker's data (`None` at
        /// first) and returns the client's.
        row authenticator => own("callable");
        /// User properties of CONNECT (MQTT 5). In pairs a name may repeat.
        row connect_properties => own("user_properties");
        /// Request the broker's prefix for response topics (MQTT 5). `stats()` shows it.
        row request_response_information => FLAG.flag(false);
        /// Maximum size of the outbox in bytes. A send beyond it raises `QueueFull`.
        row outbox_limit => SIZE.number(OUTBOX_LIMIT as i64);
    }
}

impl std::fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientOptions")
            .field("url", &self.url)
            .field("version", &self.version)
            .field("client_id", &self.client_id)
            .field("clean_start", &self.clean_start)
            .field("session_expiry", &self.session_expiry)
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

options! {
    /// Options of a producer.
    #[derive(Clone, Debug)]
    pub struct ProducerOptions {
        /// Default QoS for messages that do not set one.
        option qos: QoS = QoS::AtLeastOnce => whole(0, 2).common();
        /// Default RETAIN flag: whether the broker stores the message for later subscribers.
        option retain: bool = false => FLAG.common();
        /// Limit of unacknowledged messages (send window).
        option max_pending: usize = 1000 => whole(1, 1 << 24);
    }
}

options! {
    /// Options of a consumer, without its filters.
    #[derive(Clone, Debug)]
    pub struct SubscriptionOptions {
        /// Highest QoS of delivered messages.
        option qos: QoS = QoS::AtLeastOnce => whole(0, 2).common();
        /// Acknowledge each message when it is received.
        option auto_ack: bool = false => FLAG;
        /// Skip messages that this client published (MQTT 5).
        option no_local: bool = false => FLAG;
        /// Keep the RETAIN flag of live messages as published (MQTT 5).
        option retain_as_published: bool = false => FLAG;
        /// When the broker sends retained messages: at each subscribe, for a new subscription, or
        /// never (MQTT 5).
        words retain_handling: RetainHandling = RetainHandling::Always => of [
            "always" = RetainHandling::Always,
            "if_new" = RetainHandling::IfNew,
            "never" = RetainHandling::Never,
        ] WORD;
    }
}

/// Options of a consumer.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// Topic filters, each with its subscription options.
    pub filters: Vec<(Filter, SubscribeOptions)>,
    /// Acknowledge messages when they are taken, instead of when the application does.
    pub auto_ack: bool,
}

/// A unique client identifier of 23 letters and digits, which every server accepts [MQTT-3.1.3-5].
pub fn random_client_id() -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let bits = [random::bits(), random::bits()];
    let letter = |i: usize| char::from(LETTERS[(bits[i / 12] >> (5 * (i % 12)) & 31) as usize]);
    "forebay".chars().chain((0..15).map(letter)).collect()
}
