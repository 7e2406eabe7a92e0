//! Schemas.

use hyper::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::{Refusal, Reply, body};
use crate::http::message::{Answer, Request};
use crate::pulsar::Broker;
use crate::pulsar::names::Name;
use crate::pulsar::schemas::{INVALID, living};
use forebay_pulsar::key_value::{KeyValueInfo, join, type_name, type_of};
use forebay_pulsar::pb;
use forebay_pulsar::schema::{SchemaInfo, Type};

/// The schema in a body.
fn posted(request: &Request) -> Result<pb::Schema, Refusal> {
    let body = body(request)?;
    let invalid = |text: String| Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, text);
    let name = body["type"].as_str().unwrap_or_default();
    let kind = type_of(name).ok_or_else(|| invalid(format!("{name:?} is not the type of a schema")))?;
    let text = body["schema"].as_str().unwrap_or_default();
    let data = match kind {
        Type::KeyValue => pair(text)
            .ok_or_else(|| invalid("the schema of a KEY_VALUE is a JSON object with key and value".into()))?,
        _ => text.as_bytes().to_vec(),
    };
    let properties = body["properties"].as_object().into_iter().flatten();
    let properties = properties.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    Ok((&SchemaInfo { name: String::new(), kind, data: data.into(), properties: properties.collect() })
        .into())
}

/// Definitions of key and value as the binary protocol has them.
fn pair(text: &str) -> Option<Vec<u8>> {
    let both: Value = serde_json::from_str(text).ok()?;
    let part = |name: &str| match both.get(name)? {
        Value::String(text) if text.is_empty() => Some(Vec::new()),
        part => Some(part.to_string().into_bytes()),
    };
    Some(join(Some(&part("key")?), Some(&part("value")?)))
}

impl Broker {
    pub(super) fn schemas(
        &mut self,
        method: &Method,
        name: &Name,
        path: &[&str],
        request: &Request,
    ) -> Reply {
        match (method.as_str(), path) {
            ("GET", ["schema"]) => self.schema_of(name, None),
            ("GET", ["schema", version]) => {
                let bad = |_| Refusal::new(StatusCode::BAD_REQUEST, format!("{version:?} is not a version"));
                self.schema_of(name, Some(version.parse().map_err(bad)?))
            }
            ("GET", ["schemas"]) => self.schemas_of(name),
            ("POST", ["schema"]) => self.post_schema(name, request),
            ("DELETE", ["schema"]) => Ok(Answer::json(&json!({"version": self.delete_schema(name)?}))),
            ("POST", ["version"]) => {
                let version =
                    self.schema_version(name, &posted(request)?).map_or(-1, |version| version as i64);
                Ok(Answer::json(&json!({"version": version})))
            }
            ("POST", ["compatibility"]) => {
                let fits = self.check_compatibility(name, &posted(request)?).is_ok();
                let strategy = self.settings.schema_compatibility.name();
                Ok(Answer::json(&json!({"compatibility": fits, "schemaCompatibilityStrategy": strategy})))
            }
            (_, ["schema" | "schemas" | "version" | "compatibility"] | ["schema", _]) => {
                Ok(Answer::wrong_method())
            }
            _ => Ok(Answer::not_found()),
        }
    }

    /// All versions.
    fn schemas_of(&self, name: &Name) -> Reply {
        let versions = self.schemas.get(&name.parent()).map_or(&[][..], |versions| versions);
        let deleted = (versions.len() - living(versions).len()) as u64;
        let found =
            (deleted..versions.len() as u64).filter_map(|version| self.found_schema(name, Some(version)));
        let all: Vec<Value> = found.collect::<Result<_, _>>()?;
        Ok(Answer::json(&json!({"getSchemaResponses": all})))
    }

    fn post_schema(&mut self, name: &Name, request: &Request) -> Reply {
        let schema = posted(request)?;
        self.check_namespace(name)?;
        let version = self.add_schema(name, &schema).map_err(|error| {
            let invalid = error.message().starts_with(INVALID);
            let refusal = Refusal::from(error);
            if invalid { Refusal { status: StatusCode::UNPROCESSABLE_ENTITY, ..refusal } } else { refusal }
        })?;
        let number = version[..].try_into().map_or(0, u64::from_be_bytes);
        Ok(Answer::json(&json!({"version": {"version": number}})))
    }

    fn schema_of(&self, name: &Name, version: Option<u64>) -> Reply {
        let found = self.found_schema(name, version).ok_or_else(|| Refusal::not_found("Schema not found"))?;
        Ok(Answer::json(&found?))
    }

    /// A version, or the latest; `None` if there is none.
    fn found_schema(&self, name: &Name, version: Option<u64>) -> Option<Result<Value, Refusal>> {
        let command = pb::CommandGetSchema {
            request_id: 0,
            topic: name.full.to_string(),
            schema_version: version.map(|version| version.to_be_bytes().to_vec().into()),
        };
        let (schema, version) = self.find_schema(&command).ok()?;
        Some(described(schema, version[..].try_into().map_or(0, u64::from_be_bytes)))
    }
}

/// A schema as the real broker describes it.
fn described(schema: pb::Schema, version: u64) -> Result<Value, Refusal> {
    let info = SchemaInfo::try_from(schema)?;
    let data = match info.kind {
        Type::KeyValue => {
            let pair = KeyValueInfo::of(&info)?;
            json!({"key": definition(&pair.key), "value": definition(&pair.value)}).to_string()
        }
        _ => String::from_utf8_lossy(&info.data).into_owned(),
    };
    let properties: Map<String, Value> =
        info.properties.into_iter().map(|(name, value)| (name, value.into())).collect();
    Ok(
        json!({"version": version, "type": type_name(info.kind), "timestamp": 0, "data": data, "properties": properties}),
    )
}

/// The definition of a key or value: JSON, or an empty text for primitive types.
fn definition(part: &SchemaInfo) -> Value {
    serde_json::from_slice(&part.data).unwrap_or_else(|_| String::from_utf8_lossy(&part.data).into())
}
