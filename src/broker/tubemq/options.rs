//! TubeMQ's options, and the settings of its broker.

use std::sync::Arc;
use std::time::Duration;

use super::users::Users;
use crate::log::TopicIds;
use crate::permissions::Permissions;
use crate::protocol::Clock;
use crate::store::StoreUsage;
use forebay_base::options;
use forebay_base::options::{DURATION, SIZE, TEXT, whole};

/// Largest permitted message size, as with the real broker: such a message fits into a frame.
pub const MAX_MESSAGE_SIZE: usize = 20 << 20;

options! {
    /// Options of TubeMQ, as master and broker in one.
    #[derive(Clone)]
    pub struct TubeMqOptions prefix "tubemq_" {
        /// Host name that the master returns to TubeMQ clients.
        option advertised_host: Option<String> = None => TEXT;
        /// Users and passwords, one `name:password` line each. When set, clients must sign their
        /// requests.
        field users: Option<String> = None;
        /// Number of partitions of TubeMQ topics created on first use.
        option partitions: u32 = 3 => whole(1, 10_000);
        /// Retention of TubeMQ messages, consumed or not, in seconds. Only the time during which a
        /// broker runs on the store counts.
        option retention: Duration = Duration::from_secs(7 * 24 * 3600) => DURATION
            .at_limit("Older messages are deleted, consumed or not.");
        /// Retention of the offsets of a TubeMQ group without members, in seconds.
        option offset_retention: Duration = Duration::from_secs(20 * 24 * 3600) => DURATION
            .at_limit("The offsets are deleted: the group begins as a new one does.");
        /// Maximum TubeMQ message size in bytes, attributes included.
        option max_message_size: usize = 1 << 20 => SIZE
            .at_limit("Clients are told the limit. A larger message is refused with 400.");
        /// Time of silence after which a TubeMQ client is removed from its groups, in seconds.
        option client_timeout: Duration = Duration::from_secs(30) => DURATION
            .at_limit("The client is removed from its groups, and other members get its partitions.");
    }
}

impl std::fmt::Debug for TubeMqOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let users = self.users.is_some();
        f.debug_struct("TubeMqOptions").field("users", &users).finish_non_exhaustive()
    }
}

/// Settings of a [`Broker`](super::Broker).
#[derive(Clone, Debug)]
pub struct Settings {
    /// Host and port that clients are told whose listener has none.
    pub address: (String, u16),
    /// Maps monotonic time to calendar time.
    pub clock: Clock,
    /// Whether a store is behind the logs. If not, they keep everything in memory.
    pub stored: bool,
    /// Whether a topic is created when a client first uses it.
    pub auto_create: bool,
    /// Partitions of topics that are created on first use.
    pub partitions: u32,
    /// Largest message in bytes, attributes included.
    pub max_message_size: usize,
    /// Retention of messages.
    pub retention: Duration,
    /// Retention of the offsets of a group that holds no partition.
    pub offset_retention: Duration,
    /// Bytes in use, over all protocols.
    pub usage: StoreUsage,
    /// Limit on those bytes, at which producers are refused.
    pub max_store: u64,
    /// Limit on the partitions of all topics.
    pub max_topics: usize,
    /// Time without a call after which a client's registration ends and its partitions are free.
    pub client_timeout: Duration,
    /// Makes tokens different from those of other runs.
    pub seed: u64,
    /// Users. Without users every client is admitted.
    pub users: Option<Users>,
    /// Numbers for new topics, shared with the other protocols.
    pub topic_ids: TopicIds,
    /// Rules about topics. Without rules everything is allowed.
    pub permissions: Option<Arc<Permissions>>,
    /// Whether a group belongs to the user of its first member.
    pub owners: bool,
    /// Whether a listener takes its clients' names from their certificates.
    pub certificates: bool,
}
