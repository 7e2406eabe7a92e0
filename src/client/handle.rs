//! What the bindings hold: a client, a consumer and a message of any protocol. What a protocol cannot do is refused
//! by name.

use std::sync::Arc;
use std::time::Duration;

use crate::client::{mqtt, pulsar, tubemq};
use crate::error::{Error, ErrorKind, Result};
use crate::pulsar::MessageId;
use crate::tubemq::Partition;
use crate::tubemq::consumer::{Message as TubeMqMessage, Start};

fn unsupported<T>(what: &str) -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, what))
}

/// A message that was received.
#[derive(Clone, Debug)]
pub enum Message {
    /// Of a Pulsar topic.
    Pulsar(crate::pulsar::Message),
    /// Of MQTT.
    Mqtt(mqtt::Message),
    /// Of TubeMQ.
    TubeMq(TubeMqMessage),
}

impl From<crate::pulsar::Message> for Message {
    fn from(message: crate::pulsar::Message) -> Self {
        Self::Pulsar(message)
    }
}

impl From<mqtt::Message> for Message {
    fn from(message: mqtt::Message) -> Self {
        Self::Mqtt(message)
    }
}

impl From<TubeMqMessage> for Message {
    fn from(message: TubeMqMessage) -> Self {
        Self::TubeMq(message)
    }
}

/// What an acknowledgement names.
#[derive(Clone, Debug)]
pub enum Target {
    /// Topic, which may be empty, and id.
    Pulsar(Arc<str>, MessageId),
    /// The message itself.
    Mqtt(mqtt::Message),
    /// The message itself.
    TubeMq(TubeMqMessage),
}

/// Where a seek goes.
#[derive(Clone, Copy, Debug)]
pub enum SeekTo {
    /// Of Pulsar: to a message or a time.
    Pulsar(pulsar::SeekTo),
    /// Of TubeMQ: to an offset of a partition.
    Position(Partition, i64),
}

/// A consumer.
#[derive(Clone, Debug)]
pub enum Consumer {
    /// Of Pulsar topics.
    Pulsar(pulsar::Consumer),
    /// Of MQTT filters.
    Mqtt(mqtt::Consumer),
    /// Of a TubeMQ group.
    TubeMq(tubemq::Consumer),
}

fn positions(targets: &[Target]) -> Result<Vec<(Arc<str>, MessageId)>> {
    let position = |target: &Target| match target {
        Target::Pulsar(topic, id) => Ok((Arc::clone(topic), *id)),
        Target::Mqtt(_) | Target::TubeMq(_) => {
            unsupported("a message of another protocol is not this consumer's")
        }
    };
    targets.iter().map(position).collect()
}

fn packets(targets: &[Target]) -> Result<Vec<&mqtt::Message>> {
    fn packet(target: &Target) -> Result<&mqtt::Message> {
        match target {
            Target::Mqtt(message) => Ok(message),
            Target::Pulsar(..) => unsupported("MQTT has no message ids: acknowledge the message itself"),
            Target::TubeMq(_) => unsupported("a message of another protocol is not this consumer's"),
        }
    }
    targets.iter().map(packet).collect()
}

fn tubemq_messages(targets: &[Target]) -> Result<Vec<&TubeMqMessage>> {
    targets.iter().map(tubemq_message).collect()
}

fn tubemq_message(target: &Target) -> Result<&TubeMqMessage> {
    match target {
        Target::TubeMq(message) => Ok(message),
        Target::Pulsar(..) => unsupported("TubeMQ's messages have no ids: acknowledge the message itself"),
        Target::Mqtt(_) => unsupported("a message of another protocol is not this consumer's"),
    }
}

impl Consumer {
    /// Moves up to `max` messages to `out` and gives their number; 0 when there are none now.
    pub fn take(&self, max: usize, out: &mut Vec<Message>) -> Result<usize> {
        match self {
            Self::Pulsar(consumer) => consumer.take(max, out),
            Self::Mqtt(consumer) => consumer.take(max, out),
            Self::TubeMq(consumer) => consumer.take(max, out),
        }
    }

    /// Asks to be told once of messages; false if there are some already.
    pub fn arm(&self) -> bool {
        match self {
            Self::Pulsar(consumer) => consumer.arm(),
            Self::Mqtt(consumer) => consumer.arm(),
            Self::TubeMq(consumer) => consumer.arm(),
        }
    }

    /// The topics or filters, joined by commas.
    pub fn topic(&self) -> &str {
        match self {
            Self::Pulsar(consumer) => consumer.topic(),
            Self::Mqtt(consumer) => consumer.topic(),
            Self::TubeMq(consumer) => consumer.topic(),
        }
    }

    /// The subscription, or the group of a shared one.
    pub fn subscription(&self) -> &str {
        match self {
            Self::Pulsar(consumer) => consumer.subscription(),
            Self::Mqtt(consumer) => consumer.subscription(),
            Self::TubeMq(consumer) => consumer.subscription(),
        }
    }

    /// Acknowledges messages.
    pub fn ack(&self, targets: &[Target]) -> Result<()> {
        match self {
            Self::Pulsar(consumer) => consumer.ack(&positions(targets)?),
            Self::Mqtt(consumer) => consumer.ack(packets(targets)?),
            Self::TubeMq(consumer) => consumer.ack(tubemq_messages(targets)?),
        }
    }

    /// Acknowledges and waits until the broker has taken note.
    pub async fn ack_receipt(&self, targets: &[Target], cumulative: bool) -> Result<()> {
        match self {
            Self::Pulsar(consumer) => consumer.ack_receipt(&positions(targets)?, cumulative).await,
            Self::Mqtt(_) => unsupported("MQTT has no receipts for acknowledgements"),
            Self::TubeMq(_) => unsupported("TubeMQ has no receipts for single acknowledgements"),
        }
    }

    /// Acknowledges a message and all before it.
    pub fn ack_cumulative(&self, target: &Target) -> Result<()> {
        match (self, target) {
            (Self::Pulsar(consumer), Target::Pulsar(topic, id)) => consumer.ack_cumulative(topic, *id),
            (Self::Pulsar(_), _) => unsupported("a message of another protocol is not this consumer's"),
            (Self::TubeMq(consumer), target) => consumer.ack_cumulative(tubemq_message(target)?),
            (Self::Mqtt(_), _) => unsupported("MQTT has no cumulative acknowledgement"),
        }
    }

    /// Gives messages back.
    pub fn nack(&self, targets: &[Target], delay: Option<Duration>) -> Result<()> {
        match self {
            Self::Pulsar(consumer) => consumer.nack(&positions(targets)?, delay),
            Self::TubeMq(consumer) => consumer.nack(tubemq_messages(targets)?, delay),
            Self::Mqtt(_) => unsupported("MQTT has no redelivery on a live session"),
        }
    }

    /// Asks for everything again that is not acknowledged.
    pub fn redeliver_unacknowledged(&self) -> Result<()> {
        match self {
            Self::Pulsar(consumer) => consumer.redeliver_unacknowledged(),
            Self::TubeMq(consumer) => consumer.redeliver_unacknowledged(),
            Self::Mqtt(_) => unsupported("MQTT has no redelivery on a live session"),
        }
    }

    /// Moves the subscription.
    pub async fn seek(&self, to: SeekTo) -> Result<()> {
        match (self, to) {
            (Self::Pulsar(consumer), SeekTo::Pulsar(to)) => consumer.seek(to).await,
            (Self::Pulsar(_), SeekTo::Position(..)) => {
                unsupported("a position of TubeMQ is none of this consumer's")
            }
            (Self::Mqtt(_), _) => unsupported("MQTT has no seek"),
            (Self::TubeMq(consumer), SeekTo::Position(partition, offset)) => {
                consumer.seek(tubemq::SeekTo::One(partition, offset)).await
            }
            (Self::TubeMq(consumer), SeekTo::Pulsar(pulsar::SeekTo::Id { id, .. })) => match id {
                // The words for both ends are the same for every protocol.
                MessageId::EARLIEST => consumer.seek(tubemq::SeekTo::All(Start::First)).await,
                MessageId::LATEST => consumer.seek(tubemq::SeekTo::All(Start::Latest)).await,
                _ => unsupported("TubeMQ's messages have no ids: seek to a Position"),
            },
            (Self::TubeMq(_), SeekTo::Pulsar(pulsar::SeekTo::Time(_))) => {
                unsupported("TubeMQ's brokers find no offsets by time, but through their web interface")
            }
        }
    }

    /// Deletes the subscription and closes the consumer.
    pub async fn unsubscribe(&self) -> Result<()> {
        match self {
            Self::Pulsar(consumer) => consumer.unsubscribe().await,
            Self::Mqtt(consumer) => consumer.unsubscribe().await,
            // A group's offsets stay at the brokers, which have no call to forget them.
            Self::TubeMq(consumer) => consumer.close().await,
        }
    }

    /// Closes it.
    pub async fn close(&self) -> Result<()> {
        match self {
            Self::Pulsar(consumer) => consumer.close().await,
            Self::Mqtt(consumer) => consumer.close().await,
            Self::TubeMq(consumer) => consumer.close().await,
        }
    }

    /// Id of the last message of each partition.
    pub async fn last_message_ids(&self) -> Result<Vec<MessageId>> {
        match self {
            Self::Pulsar(consumer) => consumer.last_message_ids().await,
            Self::Mqtt(_) => unsupported("MQTT has no message ids"),
            Self::TubeMq(_) => unsupported("TubeMQ has no message ids: partitions() tells the offsets"),
        }
    }

    /// The TubeMQ consumer, for what only TubeMQ has.
    pub fn tubemq(&self) -> Result<&tubemq::Consumer> {
        match self {
            Self::TubeMq(consumer) => Ok(consumer),
            Self::Pulsar(_) | Self::Mqtt(_) => unsupported("only TubeMQ has this"),
        }
    }
}

/// A client.
#[derive(Clone, Debug)]
pub enum Client {
    /// Of a Pulsar cluster.
    Pulsar(pulsar::Client),
    /// Of an MQTT server.
    Mqtt(mqtt::Client),
    /// Of a TubeMQ cluster.
    TubeMq(tubemq::Client),
}

impl Client {
    /// Closes it and everything that was made with it.
    pub async fn close(&self) -> Result<()> {
        match self {
            Self::Pulsar(client) => client.close().await,
            Self::Mqtt(client) => client.close().await,
            Self::TubeMq(client) => client.close().await,
        }
    }

    /// Whether it has ended.
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Pulsar(client) => client.is_closed(),
            Self::Mqtt(client) => client.is_closed(),
            Self::TubeMq(client) => client.is_closed(),
        }
    }

    /// Bytes of messages that wait for the broker's answer.
    pub fn memory_used(&self) -> usize {
        match self {
            Self::Pulsar(client) => client.memory_used(),
            Self::Mqtt(client) => client.memory_used(),
            Self::TubeMq(client) => client.memory_used(),
        }
    }

    /// The Pulsar client, for what only Pulsar has.
    pub fn pulsar(&self) -> Result<&pulsar::Client> {
        match self {
            Self::Pulsar(client) => Ok(client),
            Self::Mqtt(_) => unsupported("MQTT has neither partitions nor a list of topics"),
            Self::TubeMq(_) => unsupported("TubeMQ's masters list no topics"),
        }
    }

    /// Number of partitions of a topic.
    pub async fn partitions(&self, topic: &str) -> Result<u32> {
        match self {
            Self::TubeMq(client) => client.partitions(topic).await,
            other => other.pulsar()?.partitions(topic).await,
        }
    }

    /// The MQTT client, for what only MQTT has.
    pub fn mqtt(&self) -> Result<&mqtt::Client> {
        match self {
            Self::Mqtt(client) => Ok(client),
            Self::Pulsar(_) | Self::TubeMq(_) => unsupported("only MQTT has this"),
        }
    }
}
