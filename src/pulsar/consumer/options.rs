//! Options of a consumer, and its figures.

use std::sync::Arc;
use std::time::Duration;

use super::backoff::Backoff;
use super::chunks::Limits;
use super::permits::FIRST_PERMITS;
use crate::frame::DEFAULT_MAX_MESSAGE_SIZE;
use crate::message::MessageId;
use crate::pb::command_subscribe::SubType;
use crate::schema::Codec;

/// Policy for entries that cannot be read: encrypted, damaged, or compressed in an unknown way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unreadable {
    /// Leave them unacknowledged at the broker, and deliver what follows.
    #[default]
    Skip,
    /// Leave them unacknowledged at the broker, and end the consumer.
    Fail,
    /// Acknowledge them with the reason, and deliver what follows.
    Discard,
}

/// Configuration of a consumer.
#[derive(Clone, Debug)]
pub struct Options {
    /// Type of the subscription.
    pub kind: SubType,
    /// Whether the broker keeps the position; otherwise this consumer does.
    pub durable: bool,
    /// Maximum number of messages to prefetch. With 0 a message, or a batch, is asked for when the
    /// application waits for it.
    pub receiver_queue: u32,
    /// Maximum size of the messages to prefetch, in bytes, give or take what one permit brings.
    pub receive_buffer: usize,
    /// Permits granted before the size of the messages is known.
    pub first_permits: u32,
    /// Acknowledges single messages of a batch.
    pub batch_index_ack: bool,
    /// Time for which acknowledgements are collected before they are sent.
    pub ack_group_time: Duration,
    /// Number of collected acknowledgements at which they are sent immediately.
    pub ack_group_max: usize,
    /// Delay after which a negatively acknowledged message is requested again.
    pub nack_delay: Backoff,
    /// Time after which a message that the application has and has not acknowledged is requested
    /// again; `None` for no limit.
    pub ack_timeout: Option<Backoff>,
    /// Number of redeliveries after which a message of a Shared or Key_Shared subscription is dead;
    /// `None` for no limit.
    pub max_redeliveries: Option<u32>,
    /// Position to start at.
    pub start: Option<MessageId>,
    /// Whether the message at `start` itself is delivered.
    pub start_inclusive: bool,
    /// Full topic name, including the partition.
    pub topic: Arc<str>,
    /// Partition, or -1 for a non-partitioned topic.
    pub partition: i32,
    /// Maximum uncompressed size of a message that is not chunked.
    pub max_message_size: usize,
    /// Limits on messages in several entries.
    pub chunked: Limits,
    /// Policy for entries that cannot be read.
    pub unreadable: Unreadable,
    /// Reader of payloads, if they are not bytes.
    pub codec: Option<Arc<dyn Codec>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            kind: SubType::Exclusive,
            durable: true,
            receiver_queue: 1000,
            receive_buffer: 16 << 20,
            first_permits: FIRST_PERMITS,
            batch_index_ack: true,
            ack_group_time: Duration::from_millis(100),
            ack_group_max: 1000,
            nack_delay: Backoff::fixed(Duration::from_secs(60)),
            ack_timeout: None,
            max_redeliveries: None,
            start: None,
            start_inclusive: false,
            topic: "".into(),
            partition: -1,
            max_message_size: DEFAULT_MAX_MESSAGE_SIZE,
            chunked: Limits::default(),
            unreadable: Unreadable::Skip,
            codec: None,
        }
    }
}

/// Messages of a consumer that were delivered again or given up, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that came again.
    pub redelivered: u64,
    /// Messages that were not acknowledged in time.
    pub ack_timeouts: u64,
    /// Messages that were sent to the dead letter topic.
    pub dead_letters: u64,
    /// Attempts to send a message there that have failed.
    pub dead_letters_failed: u64,
    /// Messages that were sent to the topic of retries.
    pub retried: u64,
    /// Chunks that were acknowledged because the beginning of their message is gone.
    pub orphaned_chunks: u64,
    /// Incomplete chunked messages that were given up because others needed their room, or a chunk
    /// of theirs was missing.
    pub dropped_chunked_messages: u64,
    /// Incomplete chunked messages that were given up because their next chunk did not come in
    /// time.
    pub expired_chunked_messages: u64,
}

impl std::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            redelivered: self.redelivered + other.redelivered,
            ack_timeouts: self.ack_timeouts + other.ack_timeouts,
            dead_letters: self.dead_letters + other.dead_letters,
            dead_letters_failed: self.dead_letters_failed + other.dead_letters_failed,
            retried: self.retried + other.retried,
            orphaned_chunks: self.orphaned_chunks + other.orphaned_chunks,
            dropped_chunked_messages: self.dropped_chunked_messages + other.dropped_chunked_messages,
            expired_chunked_messages: self.expired_chunked_messages + other.expired_chunked_messages,
        }
    }
}
