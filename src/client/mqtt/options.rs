//! Options of the MQTT client, with their defaults. The bindings validate values before they get here.

use std::time::Duration;

use bytes::Bytes;

use crate::credentials::{Callback, Secret};
use crate::mqtt::outbox::OutboxOptions;
use forebay_base::random;
use forebay_mqtt::packet::{Publish, SubscribeOptions, Will};
use forebay_mqtt::topic::Filter;
use forebay_mqtt::{Properties, QoS, Version};
use forebay_net::tls::TlsOptions;

/// Steps of extended authentication (4.12): receives the server's data, `None` at the start, and returns the
/// client's.
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

/// Options of a client.
#[derive(Clone)]
pub struct ClientOptions {
    /// `mqtt://`, `mqtts://`, `ws://`, `wss://` with one or several hosts, or `mqtt+unix://`.
    pub url: String,
    /// MQTT version; `None` tries 5.0, then 3.1.1, then 3.1.
    pub version: Option<Version>,
    /// Client identifier, the name of the session. If empty, the server assigns one (5.0) or the client makes one up
    /// (3.x).
    pub client_id: String,
    /// Discard an earlier session at the first connect. Reconnects of this client resume its session in any case.
    pub clean_start: bool,
    /// Seconds that the session outlives a connection; `u32::MAX` keeps it without limit. MQTT 5 only.
    pub session_expiry: u32,
    /// Keep the session when the client is closed.
    pub keep_session: bool,
    /// Keep Alive in seconds (3.1.2.10); 0 disables it.
    pub keep_alive: u16,
    /// User name.
    pub username: Option<String>,
    /// Password; a supplier is called at each connect.
    pub password: Option<Secret>,
    /// Message that the server publishes when the connection ends without DISCONNECT.
    pub will: Option<Will>,
    /// Message that the client publishes after each connect, before messages that have not been sent.
    pub birth: Option<Publish>,
    /// Additional properties of CONNECT: user properties, request response information.
    pub properties: Properties,
    /// Method and steps of extended authentication. MQTT 5 only.
    pub authentication: Option<(String, Authenticator)>,
    /// Timeout of one connection attempt: name resolution, TCP, TLS, WebSocket and CONNACK.
    pub connect_timeout: Duration,
    /// Timeout of SUBACK and UNSUBACK, and of close.
    pub operation_timeout: Duration,
    /// Longest pause between two reconnect attempts.
    pub max_backoff: Duration,
    /// Limit on publications of QoS 1 and 2 in flight; the server may set a lower one.
    pub max_inflight: u16,
    /// Receive maximum: publications of QoS 1 and 2 that the server may have in flight to us. The server is told in
    /// MQTT 5 only. Beyond it, or beyond 32,768 if it is smaller, nothing is read until some are acknowledged, except
    /// while answers are awaited: then the limit is 65,535.
    pub receive_maximum: u16,
    /// Topic aliases that the server may use. MQTT 5 only.
    pub topic_alias_maximum: u16,
    /// Largest packet accepted from the server, in bytes.
    pub max_packet_size: usize,
    /// Limit on the bytes of publications without an answer, over all producers.
    pub memory_limit: usize,
    /// Bytes of received messages that may wait to be taken before the client stops reading the socket.
    pub receive_buffer: usize,
    /// Policy for messages of a kept session that no open consumer claims, 5 s after they could have been claimed.
    pub unclaimed: UnclaimedPolicy,
    /// Policy for publications while the queue is full and there is no connection.
    pub offline: OfflinePolicy,
    /// File that keeps publications of QoS 1 and 2 until the server has them, across restarts of the process. A send
    /// ends when its message is in the file.
    pub outbox: Option<OutboxOptions>,
    /// TLS settings of `mqtts` and `wss`.
    pub tls: TlsOptions,
    /// Application protocol (ALPN) offered in the TLS handshake.
    pub tls_alpn: Option<String>,
    /// Additional headers of the WebSocket handshake.
    pub ws_headers: Vec<(String, String)>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            url: "mqtt://127.0.0.1:1883".into(),
            version: Some(Version::V5),
            client_id: String::new(),
            clean_start: true,
            session_expiry: 300,
            keep_session: false,
            keep_alive: 60,
            username: None,
            password: None,
            will: None,
            birth: None,
            properties: Properties::new(),
            authentication: None,
            connect_timeout: Duration::from_secs(10),
            operation_timeout: Duration::from_secs(30),
            max_backoff: Duration::from_secs(60),
            max_inflight: 1000,
            receive_maximum: 1000,
            topic_alias_maximum: 100,
            max_packet_size: 16 << 20,
            memory_limit: 64 << 20,
            receive_buffer: 16 << 20,
            unclaimed: UnclaimedPolicy::Keep,
            offline: OfflinePolicy::Reject,
            outbox: None,
            tls: TlsOptions::default(),
            tls_alpn: Some("mqtt".into()),
            ws_headers: Vec::new(),
        }
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

/// Options of a producer.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// Default QoS for messages that do not set one.
    pub qos: QoS,
    /// Default retain flag for messages that do not set one.
    pub retain: bool,
    /// Limit on publications without an answer; the overflow queue holds as many again.
    pub max_pending: usize,
}

impl Default for ProducerOptions {
    fn default() -> Self {
        Self { qos: QoS::AtLeastOnce, retain: false, max_pending: 1000 }
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
