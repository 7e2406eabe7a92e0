//! The figures of [`Broker::status`](super::Broker::status) and
//! [`Broker::topic_stats`](super::Broker::topic_stats), in one shape for all protocols.

use std::time::Duration;

/// Activity of one protocol. A figure that a protocol has no notion of is 0. Counters begin at the
/// start of the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtocolStats {
    /// Clients that are connected.
    pub connections: usize,
    /// Connections that were closed at once because of `max_connections`, or of the share of a
    /// protocol or an address.
    pub connections_refused: u64,
    /// MQTT: sessions, connected or not.
    pub sessions: usize,
    /// Topics; of Pulsar, each partition counts as one.
    pub topics: usize,
    /// Pulsar's subscriptions, the subscriptions of all MQTT sessions, TubeMQ's groups.
    pub subscriptions: usize,
    /// Pulsar and TubeMQ: registered producers.
    pub producers: usize,
    /// Pulsar and TubeMQ: registered consumers.
    pub consumers: usize,
    /// MQTT: retained messages.
    pub retained: usize,
    /// Messages received.
    pub messages_in: u64,
    /// Messages delivered.
    pub messages_out: u64,
    /// Messages that a subscriber did not get. MQTT: its queue was full, its connection too slow or
    /// the message expired. Pulsar: no consumer of a subscription to a non-persistent topic could
    /// take them.
    pub messages_dropped: u64,
    /// Pulsar: messages of entries that were delivered before; MQTT: messages that were sent again.
    pub messages_redelivered: u64,
    /// Pulsar: entries that were not stored again, since their producer had sent them before.
    pub duplicates: u64,
    /// Requests that the permissions do not allow. MQTT: publications, wills and subscriptions.
    /// Pulsar and TubeMQ: producers, consumers and other requests about a topic, over HTTP, too.
    pub denied: u64,
    /// Bytes received: of messages (Pulsar, TubeMQ) or of all packets (MQTT).
    pub bytes_in: u64,
    /// Bytes sent, counted like [`Self::bytes_in`].
    pub bytes_out: u64,
    /// The store's failure. After one, nothing more is accepted until the broker is restarted.
    pub failure: Option<String>,
    /// Why the store cannot write at the moment, such as a full disk. It tries again, and nothing
    /// is acknowledged meanwhile.
    pub stalled: Option<String>,
    /// The first message that could not be read from the store since the start. Its consumers were
    /// told and do not get past it.
    pub damage: Option<String>,
}

impl ProtocolStats {
    /// Adds the figures of another protocol.
    pub fn add(&mut self, other: &Self) {
        self.connections += other.connections;
        self.connections_refused += other.connections_refused;
        self.sessions += other.sessions;
        self.topics += other.topics;
        self.subscriptions += other.subscriptions;
        self.producers += other.producers;
        self.consumers += other.consumers;
        self.retained += other.retained;
        self.messages_in += other.messages_in;
        self.messages_out += other.messages_out;
        self.messages_dropped += other.messages_dropped;
        self.messages_redelivered += other.messages_redelivered;
        self.duplicates += other.duplicates;
        self.denied += other.denied;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        if self.failure.is_none() {
            self.failure.clone_from(&other.failure);
        }
        if self.stalled.is_none() {
            self.stalled.clone_from(&other.stalled);
        }
        if self.damage.is_none() {
            self.damage.clone_from(&other.damage);
        }
    }
}

/// Figures of the whole broker.
#[derive(Debug, Default)]
pub(super) struct Stats {
    pub(super) protocols: Vec<(&'static str, ProtocolStats)>,
    pub(super) store_bytes: u64,
}

/// Messages and bytes of a protocol whose topics are logs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    pub(super) messages_in: u64,
    pub(super) messages_out: u64,
    pub(super) messages_dropped: u64,
    pub(super) messages_redelivered: u64,
    pub(super) duplicates: u64,
    pub(super) denied: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

/// A topic, with all its partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicStats {
    /// Full name.
    pub name: String,
    /// Number of partitions; 0 for a plain topic.
    pub partitions: u32,
    /// Whether the topic takes no more messages. A topic with partitions is terminated when each of
    /// them is.
    pub terminated: bool,
    /// Entries that are retained.
    pub entries: u64,
    /// Messages received since the start.
    pub messages_in: u64,
    /// Names of the connected producers.
    pub producers: Vec<String>,
    /// Subscriptions; one for each partition that has it.
    pub subscriptions: Vec<SubscriptionStats>,
}

/// A client that is connected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientStats {
    /// Number of the connection in its protocol.
    pub id: u64,
    /// Its address.
    pub address: String,
    /// Time since it was accepted.
    pub age: Duration,
    /// Whether the protocol has let it in.
    pub admitted: bool,
    /// Its user, if the broker has verified one.
    pub user: Option<String>,
    /// MQTT: its client identifier. Pulsar: its version as it tells it. Empty if there is none.
    pub name: String,
    /// Pulsar: producers on it.
    pub producers: usize,
    /// Pulsar: consumers on it. MQTT: subscriptions of its session.
    pub consumers: usize,
}

/// A subscription, or a group of TubeMQ, of one topic or partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionStats {
    /// Topic or partition.
    pub topic: String,
    /// Name.
    pub name: String,
    /// Type.
    pub kind: String,
    /// Whether the subscription outlives its consumers.
    pub durable: bool,
    /// The user that it belongs to; `None` if it is free for all users.
    pub owner: Option<String>,
    /// Entries that are not acknowledged.
    pub backlog: u64,
    /// Entries that wait for their delivery time.
    pub delayed: usize,
    /// Entries that wait for redelivery.
    pub replaying: usize,
    /// Pulsar: messages of a non-persistent topic that no consumer could take when they came.
    pub dropped: u64,
    /// Pulsar: properties that were stored with it.
    pub properties: Vec<(String, String)>,
    /// Connected consumers.
    pub consumers: Vec<ConsumerStats>,
}

/// A consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerStats {
    /// Name.
    pub name: String,
    /// Address of the client.
    pub address: String,
    /// Messages that may still be sent before the next flow command.
    pub permits: i64,
    /// Messages delivered and not acknowledged.
    pub unacked: i64,
    /// Messages delivered.
    pub delivered: u64,
    /// Whether this consumer receives, for subscription types with one active consumer.
    pub active: bool,
}
