//! MQTT's options, and the settings of its broker.

use std::sync::Arc;

use super::passwords::Passwords;
use crate::auth::TokenKeys;
use crate::permissions::Permissions;
use crate::protocol::Clock;
use crate::store::StoreUsage;
use forebay_base::options;
use forebay_base::options::{DURATION, SIZE, WORD, at_least, own, whole};

/// Subscriptions of one session.
const MAX_SUBSCRIPTIONS: usize = 10_000;

/// Bytes of retained messages.
const MAX_RETAINED_BYTES: usize = 512 << 20;

/// Options of MQTT.
#[derive(Clone, Debug, Default)]
pub struct MqttOptions {
    /// Contents of a password file as `mosquitto_passwd` writes it. When set, clients need a user
    /// name and a password.
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
    /// Its publishers wait for it as long as it takes messages, and so do all other subscribers of
    /// theirs.
    Wait,
}

/// Answer to an MQTT 3.x client whose QoS 1 or 2 message no subscriber has room for, though a
/// session that outlives its connection should have kept it. In MQTT 5.0 the acknowledgement says
/// so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FullQueue {
    /// The client is disconnected and keeps the message.
    #[default]
    Refuse,
    /// It gets its acknowledgement; the message is dropped and counted.
    Drop,
}

options! {
    /// Limits on clients. Those that have a property in CONNACK are announced there.
    #[derive(Clone, Debug)]
    pub struct Limits prefix "mqtt_" {
        /// Maximum MQTT packet size in bytes.
        option max_packet_size: u32 = 2_000_000 => own("packet_size")
            .at_limit("Announced in CONNACK. A client that sends a larger packet is disconnected, in MQTT 5.0 with 0x95.");
        /// Maximum number of MQTT sessions, connected or not.
        option max_sessions: usize = 100_000 => at_least(1)
            .at_limit("A new session is refused with 0x97 (return code 3).");
        /// Limit on the subscriptions of one session.
        field max_subscriptions: usize = MAX_SUBSCRIPTIONS;
        /// Memory limit of all MQTT subscriptions in bytes: 256 for each, plus its filter. One
        /// session may use a sixteenth of it.
        option max_subscription_bytes: usize = 256 << 20 => SIZE
            .at_limit("The filter is refused with 0x97 (MQTT 3.x: 0x80).");
        /// Handling of an MQTT subscriber that falls behind and takes fewer than 1,000 messages per
        /// second. "drop" drops and counts messages over its limits (`mqtt_max_output`,
        /// `mqtt_max_queue`); "disconnect" disconnects it at the limits; "wait" makes its
        /// publishers wait, and with them their other subscribers.
        words slow_subscriber: SlowSubscriber = SlowSubscriber::Drop => of [
            "drop" = SlowSubscriber::Drop,
            "disconnect" = SlowSubscriber::Disconnect,
            "wait" = SlowSubscriber::Wait,
        ] WORD;
        /// Handling of a QoS 1 or 2 message of an MQTT 3.x client if no subscriber has room for it
        /// although a session that outlives its connection should store it. "refuse" disconnects
        /// the client, which keeps the message; "drop" acknowledges the message, drops it and
        /// counts it.
        words full_queue: FullQueue = FullQueue::Refuse => of [
            "refuse" = FullQueue::Refuse,
            "drop" = FullQueue::Drop,
        ] WORD;
        /// Maximum number of messages queued for one MQTT session.
        option max_queue: usize = 10_000 => at_least(1)
            .at_limit("`mqtt_slow_subscriber` decides about the subscriber. A publisher whose message no subscriber has \
            room for gets 0x97; with MQTT 3.x `mqtt_full_queue` decides.");
        /// Maximum size in bytes of the messages queued for one MQTT session.
        option max_queue_bytes: usize = 64 << 20 => SIZE
            .at_limit("As with `mqtt_max_queue`.");
        /// Limit in bytes of output that waits for a slow MQTT connection. QoS 0 messages are
        /// dropped above it.
        option max_output: usize = 8 << 20 => SIZE
            .at_limit("`mqtt_slow_subscriber` decides: QoS 0 messages are dropped and counted, the subscriber is \
            disconnected, or its publishers wait.");
        /// Maximum number of QoS 1 and 2 messages in flight to an MQTT client.
        option max_inflight: u16 = 100 => whole(1, 10_000)
            .at_limit("Further messages wait in the queue of the session.");
        /// Limit of QoS 1 and 2 messages in flight from an MQTT client (Receive Maximum).
        option receive_maximum: u16 = 1000 => whole(1, 65_535)
            .at_limit("Announced in CONNACK. An MQTT 5.0 client that sends more is disconnected with 0x93; MQTT 3.x has no \
            such limit.");
        /// Highest topic alias that an MQTT client may use. 0 disables aliases.
        option topic_alias_maximum: u16 = 100 => whole(0, 65_535)
            .at_limit("Announced in CONNACK. A client that uses a higher one is disconnected with 0x94.");
        /// Maximum number of retained messages.
        option max_retained: usize = 100_000 => at_least(0)
            .at_limit("A message on a topic without a retained one is not retained, and counted as dropped. Its publisher \
            gets 0x97 if no subscriber took it either; with MQTT 3.x `mqtt_full_queue` decides.");
        /// Limit in bytes of retained messages, which are in memory even if they are stored.
        field max_retained_bytes: usize = MAX_RETAINED_BYTES;
        /// Longest time that an MQTT session outlives its connection, in seconds. Default:
        /// unlimited.
        custom max_session_expiry: u32 = u32::MAX => DURATION
            .at_limit("A longer expiry is shortened to it, which CONNACK tells the client.");
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
    /// With a store: limit on the bytes of QoS 1 and 2 that wait for sessions which are not stored.
    /// Beyond it, each session has its share.
    pub max_transient: usize,
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
