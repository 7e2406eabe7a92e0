//! A message of an operator: `POST /forebay/v1/pulsar/publish` with `topic`, `payload` or
//! `payload_base64`, `key`, and `properties`.
//!
//! What consumers of a topic with a schema could not decode is refused: only text and JSON are
//! written to one.

use bytes::Bytes;
use serde_json::{Value, json};

use super::Refusal;
use crate::http::message::{Answer, Request};
use crate::http::publication::Publication;
use crate::pulsar::Broker;
use crate::pulsar::names::Name;
use forebay_base::error::{Error, ErrorKind};
use forebay_pulsar::key_value::type_name;
use forebay_pulsar::pb;
use forebay_pulsar::schema::Type;
use forebay_pulsar::topic::HashingScheme;

/// The name of the producer that wrote the messages of operators.
const OPERATOR: &str = "forebay-operator";

impl Broker {
    pub(super) fn publish(&mut self, request: &Request) -> Result<Answer, Answer> {
        let given = Publication::read(&request.body)?;
        let key = given.text("key")?.map(str::to_owned);
        let properties = properties(given.value("properties"))?;
        let (name, ledger, entry) = self.publish_given(&given, key, properties)?;
        Ok(Answer::json(&json!({"topic": &*name.full, "message_id": format!("{ledger}:{entry}")})))
    }

    fn publish_given(
        &mut self,
        given: &Publication,
        key: Option<String>,
        properties: Vec<pb::KeyValue>,
    ) -> Result<(Name, u64, u64), Refusal> {
        let name = Name::parse(&given.topic)?;
        if !name.is_persistent() {
            let text = "messages of non-persistent topics are not stored: publish with a client";
            return Err(Error::new(ErrorKind::NotAllowed, text).into());
        }
        let schema_version = self.schema_for(&name, &given.payload)?;
        let name = self.part_for(name, key.as_deref())?;
        let metadata = pb::MessageMetadata {
            producer_name: OPERATOR.to_owned(),
            publish_time: self.wall_ms(),
            properties,
            partition_key: key,
            schema_version,
            ..Default::default()
        };
        let (ledger, entry) = self.publish_for_operator(&name, &metadata, &given.payload)?;
        Ok((name, ledger, entry))
    }

    /// The partition that a message goes to: that of its key, or the next one.
    fn part_for(&self, name: Name, key: Option<&str>) -> Result<Name, Refusal> {
        let Some((_, partitions)) = self.parents.get(&name.full) else { return Ok(name) };
        // As producers do that are not told otherwise.
        let at = match key {
            Some(key) => u64::from(HashingScheme::default().hash(key)),
            None => self.counters.messages_in,
        };
        let at = at % u64::from((*partitions).max(1));
        Ok(Name::parse(&format!("{}-partition-{at}", name.full))?)
    }

    /// The version of the topic's schema that a payload has been written with.
    fn schema_for(&self, name: &Name, payload: &Bytes) -> Result<Option<Bytes>, Refusal> {
        let command =
            pb::CommandGetSchema { request_id: 0, topic: name.full.to_string(), schema_version: None };
        let Ok((schema, version)) = self.find_schema(&command) else { return Ok(None) };
        let clash = |text: String| Err(Error::new(ErrorKind::IncompatibleSchema, text).into());
        match Type::try_from(schema.r#type) {
            Ok(Type::Json) if serde_json::from_slice::<Value>(payload).is_err() => {
                clash("the topic has a JSON schema, and the payload is not JSON".to_owned())
            }
            Ok(Type::String) if std::str::from_utf8(payload).is_err() => {
                clash("the topic has a schema for texts, and the payload is not UTF-8".to_owned())
            }
            Ok(Type::Json | Type::String) => Ok(Some(version)),
            Ok(kind) => clash(format!(
                "the topic has a schema of type {}: publish with a client, which encodes it",
                type_name(kind)
            )),
            Err(_) => clash("the topic has a schema of an unknown type".to_owned()),
        }
    }
}

fn properties(given: &Value) -> Result<Vec<pb::KeyValue>, Answer> {
    let refused = || Publication::refused("properties are an object of texts");
    match given {
        Value::Null => Ok(Vec::new()),
        Value::Object(pairs) => pairs
            .iter()
            .map(|(key, value)| {
                let value = value.as_str().ok_or_else(refused)?.to_owned();
                Ok(pb::KeyValue { key: key.clone(), value })
            })
            .collect(),
        _ => Err(refused()),
    }
}
