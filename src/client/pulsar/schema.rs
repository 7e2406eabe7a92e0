//! Schemas at the broker: they are got by version, registered, and shown in errors.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::pulsar::connection::Connection;
use crate::pulsar::options::SchemaOptions;
use crate::pulsar::shared::Shared;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_pulsar::command::Command;
use forebay_pulsar::pb;
use forebay_pulsar::schema::{SchemaInfo, Type, Wanted};

/// Longest time for which an error waits to show the schema of the topic.
const EXPLAIN: Duration = Duration::from_secs(5);

/// The schema as PRODUCER and SUBSCRIBE state it. As in the Java client, that of bytes is left out.
pub(super) fn stated(options: Option<&SchemaOptions>, by_consumer: bool) -> Option<pb::Schema> {
    let info = &*options?.info;
    let stated = match info.kind {
        Type::None => false,
        Type::AutoConsume => by_consumer,
        _ => true,
    };
    stated.then(|| info.into())
}

/// Replaces the schema of a producer that takes whatever its topic has, which may be none.
pub(super) async fn of_topic(
    shared: &Shared,
    topic: &str,
    options: &mut Option<SchemaOptions>,
) -> Result<()> {
    let Some(schema) = options.as_mut().filter(|schema| schema.info.kind == Type::AutoConsume) else {
        return Ok(());
    };
    match shared.lookup_of(topic).schema(topic, None).await {
        Ok(info) => {
            schema.codec = schema.codec.checking(&info).map_err(|error| error.with_topic(topic))?;
            schema.info = Arc::new(info);
        }
        Err(error) if error.kind() == ErrorKind::TopicNotFound => *options = None,
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Adds the two schemas to an error that says that they are not compatible.
pub(super) async fn explain(shared: &Shared, topic: &str, ours: Option<&SchemaInfo>, error: Error) -> Error {
    let Some(ours) = ours.filter(|_| error.kind() == ErrorKind::IncompatibleSchema) else { return error };
    let theirs = match tokio::time::timeout(EXPLAIN, shared.lookup_of(topic).schema(topic, None)).await {
        Ok(Ok(theirs)) => theirs.to_string(),
        Ok(Err(why)) if why.kind() == ErrorKind::TopicNotFound => "none".into(),
        Ok(Err(why)) => format!("unknown ({why})"),
        Err(_) => "unknown (the broker did not tell in time)".into(),
    };
    error.with_note(&format!("the schema given is {ours}; the latest of the topic is {theirs}"))
}

/// Asks the broker for a version. After that its messages can be taken.
pub(super) async fn fetch(shared: Arc<Shared>, schema: SchemaOptions, topic: Arc<str>, wanted: Wanted) {
    match shared.lookup_of(&topic).schema(&topic, Some(wanted.version.clone())).await {
        Ok(info) => wanted.writer.set(schema.codec.resolve(Some(&info))),
        Err(error) => {
            let version = shown(&wanted.version);
            let text = format!(
                "the schema of version {version}, which the message was written with, cannot be got: {error}"
            );
            wanted.writer.fail(Error::new(ErrorKind::Schema, text).with_topic(topic));
        }
    }
}

/// A version in an error.
fn shown(version: &Bytes) -> String {
    match <[u8; 8]>::try_from(&version[..]) {
        Ok(number) => u64::from_be_bytes(number).to_string(),
        Err(_) => format!("{version:?}"),
    }
}

/// The version of a schema at the broker of `topic`, which stores it if it is new. That of bytes
/// has none.
pub(super) async fn register(connection: &Connection, topic: &str, info: &SchemaInfo) -> Result<Bytes> {
    if info.kind == Type::None {
        return Ok(Bytes::new());
    }
    let request = |request_id| {
        Command::GetOrCreateSchema(Box::new(pb::CommandGetOrCreateSchema {
            request_id,
            topic: topic.into(),
            schema: info.into(),
            ..Default::default()
        }))
    };
    match connection.request(request).await.map_err(|error| error.with_topic(topic))? {
        Command::GetOrCreateSchemaResponse(response) => Ok(response.schema_version.unwrap_or_default()),
        other => Err(Error::protocol(format!("GET_OR_CREATE_SCHEMA was answered by {}", other.name()))),
    }
}
