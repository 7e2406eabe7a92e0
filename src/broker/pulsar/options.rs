//! Pulsar's options, and the settings of its broker.

use std::sync::Arc;
use std::time::Duration;

use super::session::SessionConfig;
use crate::log::TopicIds;
use crate::permissions::Permissions;
use crate::protocol::Clock;
use crate::store::StoreUsage;
use forebay_base::options;
use forebay_base::options::{DURATION, FLAG, SIZE, TEXT, WORD, whole};
use forebay_pulsar::frame::DEFAULT_MAX_MESSAGE_SIZE;

/// Which schema may follow another on a topic. The names are Pulsar's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchemaCompatibility {
    /// Any.
    AlwaysCompatible,
    /// None.
    AlwaysIncompatible,
    /// One that can read what was written with the latest.
    Backward,
    /// One whose data the latest can read.
    Forward,
    /// Both.
    #[default]
    Full,
    /// As `Backward`, for all versions.
    BackwardTransitive,
    /// As `Forward`, for all versions.
    ForwardTransitive,
    /// As `Full`, for all versions.
    FullTransitive,
}

impl SchemaCompatibility {
    /// All strategies.
    pub const ALL: [Self; 8] = [
        Self::AlwaysCompatible,
        Self::AlwaysIncompatible,
        Self::Backward,
        Self::Forward,
        Self::Full,
        Self::BackwardTransitive,
        Self::ForwardTransitive,
        Self::FullTransitive,
    ];

    /// Pulsar's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::AlwaysCompatible => "ALWAYS_COMPATIBLE",
            Self::AlwaysIncompatible => "ALWAYS_INCOMPATIBLE",
            Self::Backward => "BACKWARD",
            Self::Forward => "FORWARD",
            Self::Full => "FULL",
            Self::BackwardTransitive => "BACKWARD_TRANSITIVE",
            Self::ForwardTransitive => "FORWARD_TRANSITIVE",
            Self::FullTransitive => "FULL_TRANSITIVE",
        }
    }

    /// Whether the new schema has to read what is there.
    pub(super) fn is_backward(self) -> bool {
        matches!(self, Self::Backward | Self::Full | Self::BackwardTransitive | Self::FullTransitive)
    }

    /// Whether earlier schemas have to read what will be written.
    pub(super) fn is_forward(self) -> bool {
        matches!(self, Self::Forward | Self::Full | Self::ForwardTransitive | Self::FullTransitive)
    }

    /// Whether all versions count, rather than the latest.
    pub(super) fn is_transitive(self) -> bool {
        matches!(self, Self::BackwardTransitive | Self::ForwardTransitive | Self::FullTransitive)
    }
}

options! {
    /// Options of Pulsar.
    #[derive(Clone, Debug)]
    pub struct PulsarOptions {
        /// URL that lookups return to clients. Default: made of host and port.
        option advertised_url: Option<String> = None => TEXT;
        /// Maximum message size in bytes.
        option max_message_size: usize = DEFAULT_MAX_MESSAGE_SIZE => SIZE
            .at_limit("Clients are told the limit and refuse a larger message (`MessageTooLarge`). A client that sends it \
            all the same is disconnected.");
        /// Interval between PING commands to a Pulsar client, in seconds.
        option keep_alive: Duration = Duration::from_secs(30) => DURATION
            .at_limit("A client that sends nothing after a PING for as long again is disconnected.");
        /// Retention of acknowledged messages, in seconds. A message is acknowledged once all
        /// durable subscriptions of its topic have acknowledged it. Without a durable subscription,
        /// messages are kept until the store needs room.
        option retention: Duration = Duration::from_secs(600) => DURATION
            .at_limit("Older acknowledged messages are deleted, and all of them once three quarters of `max_store` or \
            of the room on the disk are used. If that is not enough, the oldest messages of topics without a durable \
            subscription are deleted.");
        /// Limit in bytes of acknowledged messages that each topic keeps in memory.
        option retention_bytes: usize = 32 << 20 => SIZE
            .at_limit("The oldest acknowledged messages are deleted. A store on disk has no such limit.");
        /// Namespaces in which clients may create topics. `*`, the default, allows every namespace.
        /// A namespace that has topics is known, too.
        field namespaces: Vec<String> = vec!["*".into()];
        /// Number of partitions of topics created on first use. 0 creates topics without
        /// partitions.
        option default_partitions: u32 = 0 => whole(0, 1000);
        /// Drop duplicates of named producers.
        option deduplicate: bool = true => FLAG;
        /// Rule for the next schema of a topic, by the name of Pulsar's strategy.
        words schema_compatibility: SchemaCompatibility = SchemaCompatibility::default() => of [
            "always_compatible" = SchemaCompatibility::AlwaysCompatible,
            "always_incompatible" = SchemaCompatibility::AlwaysIncompatible,
            "backward" = SchemaCompatibility::Backward,
            "forward" = SchemaCompatibility::Forward,
            "full" = SchemaCompatibility::Full,
            "backward_transitive" = SchemaCompatibility::BackwardTransitive,
            "forward_transitive" = SchemaCompatibility::ForwardTransitive,
            "full_transitive" = SchemaCompatibility::FullTransitive,
        ] WORD;
    }
}

/// Settings of a [`Broker`](super::Broker).
#[derive(Clone, Debug)]
pub struct Settings {
    /// URLs that lookups answer with: the first one without TLS, and the first one with it.
    pub urls: Vec<String>,
    /// URLs of HTTP.
    pub web_urls: Vec<String>,
    /// Settings of every connection.
    pub session: SessionConfig,
    /// Maps monotonic time to calendar time.
    pub clock: Clock,
    /// Whether a store is behind the logs. If not, they keep everything in memory.
    pub stored: bool,
    /// Whether a topic is created when a client first uses it.
    pub auto_create: bool,
    /// Partitions of topics that are created on first use; 0 creates plain topics.
    pub partitions: u32,
    /// Whether messages are dropped whose sequence id their producer has sent before.
    pub deduplicate: bool,
    /// Which schema may follow another on a topic.
    pub schema_compatibility: SchemaCompatibility,
    /// Retention of entries that no subscription needs, so that consumers can seek back.
    pub retention: Duration,
    /// Without a store: memory for such entries of one topic, in bytes.
    pub retention_bytes: usize,
    /// Bytes in use, over all protocols.
    pub usage: StoreUsage,
    /// Limit on those bytes, at which producers are refused.
    pub max_store: u64,
    /// Limit on topics and partitions.
    pub max_topics: usize,
    /// Namespaces in which clients may create topics; `*` allows every namespace.
    pub namespaces: Vec<String>,
    /// Numbers for new topics, shared with the other protocols.
    pub topic_ids: TopicIds,
    /// Rules about topics. Without rules everything is allowed.
    pub permissions: Option<Arc<Permissions>>,
    /// Whether a durable subscription belongs to the user that made it.
    pub owners: bool,
}
