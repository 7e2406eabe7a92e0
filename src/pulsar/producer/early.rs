//! Messages that were pushed before the first connection, or behind one whose schema has no version
//! yet. They get neither sequence ids nor batches before: the broker tells the last sequence id
//! that it knows of the producer's name, that name, its limit on sizes, and the versions of
//! schemas.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::message::Outgoing;
use crate::schema::SchemaInfo;
use forebay_base::error::Error;

type Pairs = Box<[(Box<str>, Box<str>)]>;

/// A message that waits.
#[derive(Debug)]
pub(super) struct Early {
    pub(super) since: Instant,
    pub(super) wall_ms: u64,
    payload: Box<[u8]>,
    key: Option<Box<str>>,
    key_is_base64: bool,
    ordering_key: Option<Box<[u8]>>,
    properties: Pairs,
    event_time: u64,
    sequence_id: Option<u64>,
    deliver_at: Option<i64>,
    null_value: bool,
    replicate_to: Box<[String]>,
    schema_version: Option<Bytes>,
    pub(super) schema: Option<Arc<SchemaInfo>>,
    /// Why its schema was refused.
    pub(super) refused: Option<Error>,
}

impl Early {
    pub(super) fn new(since: Instant, wall_ms: u64, message: &Outgoing<'_>) -> Self {
        // Named one by one: a field that is added must not be forgotten here.
        let Outgoing {
            payload,
            key,
            key_is_base64,
            ordering_key,
            properties,
            event_time,
            sequence_id,
            deliver_at,
            null_value,
            replicate_to,
            schema_version,
            schema,
        } = *message;
        Self {
            since,
            wall_ms,
            payload: payload.into(),
            key: key.map(Into::into),
            key_is_base64,
            ordering_key: ordering_key.map(Into::into),
            properties: properties.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            event_time,
            sequence_id,
            deliver_at,
            null_value,
            replicate_to: replicate_to.into(),
            schema_version: schema_version.cloned(),
            schema: schema.cloned(),
            refused: None,
        }
    }

    /// Size of its payload in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.payload.len()
    }

    /// Calls `act` with the message, `version` being that of its own schema.
    pub(super) fn with<T>(&self, version: Option<&Bytes>, act: impl FnOnce(&Outgoing<'_>) -> T) -> T {
        let properties: Vec<(&str, &str)> =
            self.properties.iter().map(|(name, value)| (&**name, &**value)).collect();
        act(&Outgoing {
            payload: &self.payload,
            key: self.key.as_deref(),
            key_is_base64: self.key_is_base64,
            ordering_key: self.ordering_key.as_deref(),
            properties: &properties,
            event_time: self.event_time,
            sequence_id: self.sequence_id,
            deliver_at: self.deliver_at,
            null_value: self.null_value,
            replicate_to: &self.replicate_to,
            schema_version: version.or(self.schema_version.as_ref()),
            schema: None,
        })
    }
}
