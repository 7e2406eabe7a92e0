//! Messages as the columns of a table, named and typed as the caller wants them.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::cast::AsArray as _;
use arrow_array::{ArrayRef, RecordBatch};

use crate::arrow::batch;
use crate::columns::{binary, headers, long, moment, properties, text, whole};
use crate::pulsar::message::key_bytes;
use crate::pulsar::schema::columns::Values;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_pulsar::Message;
use forebay_pulsar::topic::TopicName;

/// Content of a column. Moments are in microseconds and UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// The payload; null for a tombstone. Binary.
    Value,
    /// The value that the payload stands for by the schema of the topic.
    Decoded,
    /// The field of this number of the record that the payload stands for.
    Field(usize),
    /// The key, as bytes. A key of raw bytes is that, not the text that stands for them.
    Key,
    /// The key, as text.
    KeyText,
    /// The topic without the partition.
    Topic,
    /// The topic with the partition.
    PartitionTopic,
    /// Number of the partition, 0 in a topic without partitions.
    Partition,
    /// The message's number in its partition, if brokers keep count.
    Index,
    /// When the producer sent it.
    PublishTime,
    /// When the event happened.
    EventTime,
    /// When the broker stored it, if brokers say so.
    BrokerTime,
    /// Always 0, "create time" of Kafka.
    TimestampType,
    /// The properties as Kafka's headers.
    Headers,
    /// The properties.
    Properties,
    /// The id as text.
    MessageId,
    /// The id as official clients store it.
    MessageIdBytes,
    /// Name of the producer.
    ProducerName,
    /// The producer's number of the message.
    SequenceId,
    /// The key for ordering.
    OrderingKey,
    /// Version of the schema.
    SchemaVersion,
}

impl Content {
    pub(super) fn parse(name: &str) -> Result<Self> {
        Ok(match name {
            "value" => Self::Value,
            "decoded" => Self::Decoded,
            "key" => Self::Key,
            "key_text" => Self::KeyText,
            "topic" => Self::Topic,
            "partition_topic" => Self::PartitionTopic,
            "partition" => Self::Partition,
            "index" => Self::Index,
            "publish_time" => Self::PublishTime,
            "event_time" => Self::EventTime,
            "broker_time" => Self::BrokerTime,
            "timestamp_type" => Self::TimestampType,
            "headers" => Self::Headers,
            "properties" => Self::Properties,
            "message_id" => Self::MessageId,
            "message_id_bytes" => Self::MessageIdBytes,
            "producer_name" => Self::ProducerName,
            "sequence_id" => Self::SequenceId,
            "ordering_key" => Self::OrderingKey,
            "schema_version" => Self::SchemaVersion,
            _ => {
                let number = name.strip_prefix("decoded.").and_then(|number| number.parse().ok());
                let unknown = || Error::new(ErrorKind::InvalidArgument, format!("messages have no {name:?}"));
                Self::Field(number.ok_or_else(unknown)?)
            }
        })
    }

    /// Whether it takes the values of the messages.
    pub(super) fn is_decoded(self) -> bool {
        matches!(self, Self::Decoded | Self::Field(_))
    }

    /// `values` are those of the messages, if a column takes them.
    fn column(self, messages: &[Message], values: Option<&ArrayRef>) -> Result<ArrayRef> {
        let unknown =
            || Error::new(ErrorKind::InvalidArgument, format!("the values of the messages have no {self:?}"));
        Ok(match self {
            Self::Decoded => Arc::clone(values.ok_or_else(unknown)?),
            Self::Field(number) => {
                // The field of a row without a record is null by itself.
                let record = values.and_then(|values| values.as_struct_opt()).ok_or_else(unknown)?;
                Arc::clone(record.columns().get(number).ok_or_else(unknown)?)
            }
            Self::Value => binary(messages, |message| (!message.null_value).then_some(&message.payload[..])),
            Self::Key => {
                let mut builder = BinaryBuilder::new();
                for message in messages {
                    builder.append_option(key_bytes(message));
                }
                Arc::new(builder.finish())
            }
            Self::KeyText => text(messages, |message| message.key.as_deref()),
            Self::Topic => {
                // All messages of a range are of one topic.
                let mut last: Option<(Arc<str>, String)> = None;
                let mut builder = StringBuilder::new();
                for message in messages {
                    let topic = message.entry.topic();
                    if last.as_ref().is_none_or(|(known, _)| !Arc::ptr_eq(known, topic)) {
                        let base = TopicName::parse(topic)?.without_partition().to_string();
                        last = Some((Arc::clone(topic), base));
                    }
                    builder.append_option(last.as_ref().map(|(_, base)| base));
                }
                Arc::new(builder.finish())
            }
            Self::PartitionTopic => text(messages, |message| Some(message.entry.topic())),
            Self::Partition => whole(messages, |message| message.id.partition.max(0)),
            Self::Index => long(messages, |message| message.index().map(|index| index as i64)),
            Self::PublishTime => moment(messages, |message| Some(message.entry.publish_time)),
            Self::EventTime => {
                moment(messages, |message| (message.event_time != 0).then_some(message.event_time))
            }
            Self::BrokerTime => moment(messages, |message| message.entry.broker_timestamp()),
            Self::TimestampType => whole(messages, |_| 0),
            Self::Headers => headers(messages, |message| {
                message.properties().iter().map(|(name, text)| (&**name, &**text))
            }),
            Self::Properties => properties(messages, |message| {
                message.properties().iter().map(|(name, text)| (&**name, &**text))
            })?,
            Self::MessageId => {
                let mut builder = StringBuilder::new();
                messages.iter().for_each(|message| builder.append_value(message.id.to_string()));
                Arc::new(builder.finish())
            }
            Self::MessageIdBytes => {
                let mut builder = BinaryBuilder::new();
                messages.iter().for_each(|message| {
                    builder.append_value(message.id.to_bytes(message.entry.rare().first_chunk))
                });
                Arc::new(builder.finish())
            }
            Self::ProducerName => text(messages, |message| Some(message.entry.producer_name())),
            Self::SequenceId => long(messages, |message| Some(message.sequence_id as i64)),
            Self::OrderingKey => binary(messages, |message| message.ordering_key().map(|key| &key[..])),
            Self::SchemaVersion => binary(messages, |message| {
                message.entry.rare().schema_version.as_ref().map(|version| &version[..])
            }),
        })
    }
}

/// The messages as columns: what each holds, and its name.
pub(super) fn table(
    messages: &[Message],
    columns: &[(Content, String)],
    values: Option<&Values>,
) -> Result<RecordBatch> {
    let is_wanted = columns.iter().any(|(content, _)| content.is_decoded());
    let values = values.filter(|_| is_wanted).map(|values| values.column(messages)).transpose()?;
    let column =
        |(content, name): &(Content, String)| Ok((name.clone(), content.column(messages, values.as_ref())?));
    let arrays: Vec<(String, ArrayRef)> = columns.iter().map(column).collect::<Result<_>>()?;
    batch(arrays.iter().map(|(name, array)| (name.as_str(), Arc::clone(array))).collect())
}
