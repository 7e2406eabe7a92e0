//! MQTT's options, and the settings of its broker.

use std::sync::Arc;

use super::passwords::Passwords;
use crate::auth::TokenKeys;
use crate::permissions::Permissions;
use crate::protocol::Clock;
use crate::store::StoreUsage;
use forebay_base::error::{Error, ErrorKind, Result};

/// Options of MQTT.
#[derive(Clone, Debug, Default)]
pub struct MqttOptions {
    /// Contents of a password file as `mosquitto_passwd` writes it. When set, clients need a user name and a
    /// password.
    pub passwords: Option<String>,
    /// Limits on clients.
    pub limits: Limits,
}

/// Treatment of a subscriber that is behind its publishers and takes few messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowSubscriber {
    /// Messages beyond its limits are dropped and counted.
    #[default]
    Drop,
    /// It is disconnected when it reaches its limits.
    Disconnect,
    /// Its publishers wait for it as long as it takes messages, and so do all other subscribers of theirs.
    Wait,
}

impl SlowSubscriber {
    /// `drop`, `disconnect` or `wait`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Disconnect => "disconnect",
            Self::Wait => "wait",
        }
    }

    /// Parses a [`Self::name`].
    pub fn parse(name: &str) -> Result<Self> {
        let all = [Self::Drop, Self::Disconnect, Self::Wait];
        all.into_iter().find(|policy| policy.name() == name).ok_or_else(|| {
            let text = format!("mqtt_slow_subscriber {name:?} is not one of drop, disconnect, wait");
            Error::new(ErrorKind::InvalidArgument, text)
        })
    }
}

/// Answer to an MQTT 3.x client whose QoS 1 or 2 message no subscriber has room for, though a session that outlives its
/// connection should have kept it. In MQTT 5.0 the acknowledgement says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FullQueue {
    /// The client is disconnected and keeps the message.
    #[default]
    Refuse,
    /// It gets its acknowledgement; the message is dropped and counted.
    Drop,
}

impl FullQueue {
    /// `refuse` or `drop`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Drop => "drop",
        }
    }

    /// Parses a [`Self::name`].
    pub fn parse(name: &str) -> Result<Self> {
        [Self::Refuse, Self::Drop].into_iter().find(|policy| policy.name() == name).ok_or_else(|| {
            let text = format!("mqtt_full_queue {name:?} is not one of refuse, drop");
            Error::new(ErrorKind::InvalidArgument, text)
        })
    }
}

/// Limits on clients. Those that have a property in CONNACK are announced there.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest packet in bytes.
    pub max_packet_size: u32,
    /// Limit on sessions, connected or not.
    pub max_sessions: usize,
    /// Limit on the subscriptions of one session.
    pub max_subscriptions: usize,
    /// Limit on the memory of the subscriptions of all sessions, in bytes: 256 for each, and its filter. One session may
    /// use a sixteenth.
    pub max_subscription_bytes: usize,
    /// Treatment of a slow subscriber.
    pub slow_subscriber: SlowSubscriber,
    /// Answer to an MQTT 3.x client whose message no subscriber has room for.
    pub full_queue: FullQueue,
    /// Limit on the QoS 1 and 2 messages queued for one session.
    pub max_queue: usize,
    /// Limit on the bytes of those messages.
    pub max_queue_bytes: usize,
    /// Output bytes queued for a slow subscriber beyond which its QoS 0 messages are dropped.
    pub max_output: usize,
    /// Limit on the QoS 1 and 2 messages in flight to a client.
    pub max_inflight: u16,
    /// Limit on the QoS 1 and 2 messages in flight from a client (Receive Maximum).
    pub receive_maximum: u16,
    /// Highest topic alias that a client may use.
    pub topic_alias_maximum: u16,
    /// Limit on retained messages.
    pub max_retained: usize,
    /// Limit on the session expiry interval, in seconds; `u32::MAX` lets sessions stay forever.
    pub max_session_expiry: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_packet_size: 2_000_000,
            max_sessions: 100_000,
            max_subscriptions: 10_000,
            max_subscription_bytes: 256 << 20,
            slow_subscriber: SlowSubscriber::Drop,
            full_queue: FullQueue::Refuse,
            max_queue: 10_000,
            max_queue_bytes: 64 << 20,
            max_output: 8 << 20,
            max_inflight: 100,
            receive_maximum: 1000,
            topic_alias_maximum: 100,
            max_retained: 100_000,
            max_session_expiry: u32::MAX,
        }
    }
}

/// Settings of a [`Broker`](super::Broker).
#[derive(Clone, Debug)]
pub struct Settings {
    /// Limits on clients.
    pub limits: Limits,
    /// Maps monotonic time to calendar time.
    pub clock: Clock,
    /// Whether there is a store.
    pub stored: bool,
    /// Bytes in use, over all protocols.
    pub usage: StoreUsage,
    /// Limit on those bytes, above which publishers are refused.
    pub max_store: u64,
    /// Makes assigned client identifiers different from those of other runs.
    pub seed: u64,
    /// Users. Without users and tokens every client is admitted.
    pub passwords: Option<Passwords>,
    /// Tokens that are accepted as the password, with any user name.
    pub tokens: Option<Arc<TokenKeys>>,
    /// Rules about topics. Without rules everything is allowed.
    pub permissions: Option<Arc<Permissions>>,
    /// Whether a listener takes its clients' names from their certificates.
    pub certificates: bool,
}
