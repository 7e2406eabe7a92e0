//! Every knob of the MQTT client with its default. Values have been validated by whoever fills them in.

use std::sync::Arc;
use std::time::Duration;

use crate::client::credentials::Secret;
use crate::client::mqtt::outbox::OutboxOptions;
use crate::error::Result;
use crate::mqtt::packet::{SubscribeOptions, Will};
use crate::mqtt::topic::Filter;
use crate::mqtt::{Properties, QoS, Version};
use crate::net::tls::TlsOptions;

/// Steps of extended authentication (4.12): given the server's data, or nothing at the start, gives ours. Called
/// on a thread where it may block.
pub type Authenticator = Arc<dyn Fn(Option<&[u8]>) -> Result<Vec<u8>> + Send + Sync>;

/// What happens to a publication while the queue is full and there is no connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OfflinePolicy {
    /// It is refused: `QueueFull`.
    #[default]
    Reject,
    /// The oldest that has not been sent fails, and it takes its place.
    DropOldest,
    /// QoS 1 and 2 wait in the outbox, which is needed, up to its limit; QoS 0 is refused.
    Spill,
}

/// Options of a client.
#[derive(Clone)]
pub struct ClientOptions {
    /// `mqtt://`, `mqtts://`, `ws://`, `wss://` with one or several hosts, or `mqtt+unix://`.
    pub url: String,
    /// What is spoken; `None` tries 5.0, then 3.1.1, then 3.1.
    pub version: Option<Version>,
    /// Name of the session; empty asks the server for one (5.0) or makes one up (3.x).
    pub client_id: String,
    /// Begins without what was there before; on later connections of this client the session is taken up again.
    pub clean_start: bool,
    /// How long the session outlives a connection, in seconds; `u32::MAX` is for ever. 5.0 only.
    pub session_expiry: u32,
    /// Whether the session is kept when the client is closed.
    pub keep_session: bool,
    /// Longest silence of ours, in seconds; 0 for any.
    pub keep_alive: u16,
    /// User name.
    pub username: Option<String>,
    /// Password, asked for at each connect.
    pub password: Option<Secret>,
    /// Published by the server when the connection ends without a goodbye.
    pub will: Option<Will>,
    /// Further properties of CONNECT: user properties, request response information.
    pub properties: Properties,
    /// Method and steps of extended authentication. 5.0 only.
    pub authentication: Option<(String, Authenticator)>,
    /// Time for one connection to be up: name, TCP, TLS, WebSocket and CONNACK.
    pub connect_timeout: Duration,
    /// Longest wait for SUBACK and UNSUBACK, and for what is in flight at close.
    pub operation_timeout: Duration,
    /// Longest pause between two attempts to connect again.
    pub max_backoff: Duration,
    /// Publications of QoS 1 and 2 in flight, if the server takes as many.
    pub max_inflight: u16,
    /// Publications of QoS 1 and 2 that we take at a time. 5.0 only.
    pub receive_maximum: u16,
    /// Topic aliases that we take. 5.0 only.
    pub topic_alias_maximum: u16,
    /// Largest packet that we take, in bytes.
    pub max_packet_size: usize,
    /// Bytes of publications without an answer, over all producers.
    pub memory_limit: usize,
    /// Bytes of messages that wait to be taken before the socket is left alone.
    pub receive_buffer: usize,
    /// What happens when the queue is full without a connection.
    pub offline: OfflinePolicy,
    /// Keeps publications of QoS 1 and 2 in a file until the server has them, also over the end of the process. A
    /// send ends when its message is in the file.
    pub outbox: Option<OutboxOptions>,
    /// TLS settings of `mqtts` and `wss`.
    pub tls: TlsOptions,
    /// Application protocol offered in the TLS handshake.
    pub tls_alpn: Option<String>,
    /// Sent along in the WebSocket handshake.
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
    /// Of what does not say otherwise.
    pub qos: QoS,
    /// Of what does not say otherwise.
    pub retain: bool,
    /// Publications without an answer; as many again may be parked.
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
    /// What is subscribed to.
    pub filters: Vec<(Filter, SubscribeOptions)>,
    /// Acknowledges messages when they are taken, instead of when the application says so.
    pub auto_ack: bool,
}
