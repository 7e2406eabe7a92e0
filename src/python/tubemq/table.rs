//! Messages of a range as the columns of a table, named and typed as the caller wants them.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};

use crate::arrow::batch;
use crate::columns::{binary, headers, long, moment, properties, text, whole};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_client::tubemq::range::Record;
use forebay_tubemq::balance::PartitionLocation;

/// "Create time" and "no time" of Kafka.
const CREATE_TIME: i32 = 0;
const NO_TIME: i32 = -1;

/// Content of a column. Moments are in microseconds and UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// The payload. Binary.
    Value,
    /// The key, as bytes.
    Key,
    /// The key, as text.
    KeyText,
    /// The topic.
    Topic,
    /// Number of the partition at its broker.
    Partition,
    /// Number of the broker.
    BrokerId,
    /// The offset, if it is known.
    Offset,
    /// When the event happened, to the minute.
    EventTime,
    /// The kind of that time, in Kafka's numbers.
    TimestampType,
    /// The type, by which brokers filter.
    MessageType,
    /// The broker's number of the message.
    MessageId,
    /// The properties as Kafka's headers.
    Headers,
    /// The properties as a map.
    Properties,
}

impl Content {
    pub(super) fn parse(name: &str) -> Result<Self> {
        Ok(match name {
            "value" => Self::Value,
            "key" => Self::Key,
            "key_text" => Self::KeyText,
            "topic" => Self::Topic,
            "partition" => Self::Partition,
            "broker_id" => Self::BrokerId,
            "offset" => Self::Offset,
            "event_time" => Self::EventTime,
            "timestamp_type" => Self::TimestampType,
            "message_type" => Self::MessageType,
            "message_id" => Self::MessageId,
            "headers" => Self::Headers,
            "properties" => Self::Properties,
            _ => return Err(Error::new(ErrorKind::InvalidArgument, format!("messages have no {name:?}"))),
        })
    }

    fn column(self, records: &[Record], location: &PartitionLocation) -> Result<ArrayRef> {
        Ok(match self {
            Self::Value => binary(records, |record| Some(&record.payload)),
            Self::Key => {
                let mut builder = BinaryBuilder::new();
                for record in records {
                    builder.append_option(record.attributes.key().as_deref());
                }
                Arc::new(builder.finish())
            }
            Self::KeyText => {
                let mut builder = StringBuilder::new();
                for record in records {
                    builder.append_option(record.attributes.key());
                }
                Arc::new(builder.finish())
            }
            Self::Topic => text(records, |_| Some(&location.topic)),
            Self::Partition => whole(records, |_| location.partition.id as i32),
            Self::BrokerId => whole(records, |_| location.partition.broker as i32),
            Self::Offset => long(records, |record| record.offset),
            Self::EventTime => moment(records, |record| record.attributes.time()),
            Self::TimestampType => whole(records, |record| match record.attributes.time() {
                Some(_) => CREATE_TIME,
                None => NO_TIME,
            }),
            Self::MessageType => text(records, |record| record.attributes.message_type()),
            Self::MessageId => long(records, |record| Some(record.message_id)),
            Self::Headers => headers(records, |record| record.attributes.properties()),
            Self::Properties => properties(records, |record| record.attributes.properties())?,
        })
    }
}

/// The messages of a partition as columns: what each holds, and its name.
pub(super) fn table(
    records: &[Record],
    location: &PartitionLocation,
    columns: &[(Content, String)],
) -> Result<RecordBatch> {
    let arrays =
        columns.iter().map(|(content, name)| Ok((name.as_str(), content.column(records, location)?)));
    batch(arrays.collect::<Result<_>>()?)
}
