//! Schemas of topics: their versions, and which may follow which.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use serde_json::Value;

use super::Broker;
use super::names::Name;
use super::options::SchemaCompatibility as Strategy;
use crate::store::Op;
use forebay_avro::{Schema as Avro, compatibility::can_read};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_pulsar::key_value::KeyValueInfo;
use forebay_pulsar::pb;
use forebay_pulsar::pb::schema::Type;
use forebay_pulsar::schema::SchemaInfo;

/// Limit on the bytes of the properties of a schema; each counts as 64 more.
const PROPERTIES: usize = 64 << 10;
/// Limit on the versions of a schema.
pub(super) const VERSIONS: usize = 1_000;
/// Limits on the bytes of the schemas of one topic, and of all: they stay in memory.
const TOPIC_SCHEMAS: usize = 16 << 20;
const ALL_SCHEMAS: usize = 128 << 20;

/// Prefix of the topics whose schemas are stored.
const STORED: &str = "persistent://";

/// Beginning of the error of a malformed definition.
pub(super) const INVALID: &str = "Invalid schema definition data";

fn incompatible(text: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::IncompatibleSchema, text.to_string())
}

/// Number of a type as Pulsar's broker prints it.
fn type_name(number: i32) -> String {
    Type::try_from(number).map_or_else(|_| number.to_string(), |kind| kind.as_str_name().to_uppercase())
}

fn is_avro(schema: &pb::Schema) -> bool {
    [Type::Avro as i32, Type::Json as i32, Type::Protobuf as i32].contains(&schema.r#type)
}

fn parsed(schema: &pb::Schema) -> Result<Avro> {
    Avro::parse(&schema.schema_data).map_err(|error| {
        let kind = type_name(schema.r#type);
        incompatible(format_args!("{INVALID} for {kind} schema: {}", error.message()))
    })
}

/// Content of a schema, as far as it can be compared.
enum Definition {
    Avro(Avro),
    /// The schemas of a key and its value.
    Pair(Box<[(pb::Schema, Self); 2]>),
    /// The name of the root message of a PROTOBUF_NATIVE schema.
    Message(String),
    /// Nothing that could be compared.
    Opaque,
}

impl Definition {
    fn of(schema: &pb::Schema) -> Result<Self> {
        if is_avro(schema) {
            return parsed(schema).map(Self::Avro);
        }
        if schema.r#type == Type::ProtobufNative as i32 {
            return Ok(root_message(schema).map_or(Self::Opaque, Self::Message));
        }
        if schema.r#type != Type::KeyValue as i32 {
            return Ok(Self::Opaque);
        }
        let [key, value] = parts(schema)?;
        // A part is never a pair itself.
        let (of_key, of_value) = (Self::of(&key)?, Self::of(&value)?);
        Ok(Self::Pair(Box::new([(key, of_key), (value, of_value)])))
    }
}

/// The name of the root message of a PROTOBUF_NATIVE schema, if its data tell it.
fn root_message(schema: &pb::Schema) -> Option<String> {
    let data: Value = serde_json::from_slice(&schema.schema_data).ok()?;
    Some(data.get("rootMessageTypeName")?.as_str()?.to_owned())
}

/// The schemas of the key and of the value of a KEY_VALUE schema.
fn parts(schema: &pb::Schema) -> Result<[pb::Schema; 2]> {
    let invalid =
        |error: Error| incompatible(format_args!("{INVALID} for KEY_VALUE schema: {}", error.message()));
    let pair =
        SchemaInfo::try_from(schema.clone()).and_then(|info| KeyValueInfo::of(&info)).map_err(invalid)?;
    Ok([(&pair.key).into(), (&pair.value).into()])
}

/// Checks that `new` may follow `old`.
fn check(old: &pb::Schema, new: &pb::Schema, definition: &Definition, strategy: Strategy) -> Result<()> {
    if strategy == Strategy::AlwaysCompatible {
        return Ok(());
    }
    if old.r#type != new.r#type {
        return Err(incompatible(format_args!(
            "Incompatible schema: exists schema type {}, new schema type {}",
            type_name(old.r#type),
            type_name(new.r#type)
        )));
    }
    if strategy == Strategy::AlwaysIncompatible {
        return Err(incompatible("Schema compatibility strategy is ALWAYS_INCOMPATIBLE"));
    }
    let new = match definition {
        Definition::Opaque => return Ok(()),
        Definition::Message(new) if root_message(old).is_some_and(|old| old != *new) => {
            return Err(incompatible("Protobuf root message isn't allow change!"));
        }
        Definition::Message(_) => return Ok(()),
        Definition::Avro(avro) => avro,
        Definition::Pair(new) => {
            let old = parts(old)?;
            let pairs = || old.iter().zip(&**new);
            if pairs().any(|(old, (new, _))| old.r#type != new.r#type) {
                let [old_key, old_value] = old.map(|old| type_name(old.r#type));
                let [new_key, new_value] = [&new[0], &new[1]].map(|(new, _)| type_name(new.r#type));
                return Err(incompatible(format_args!(
                    "Key schemas or Value schemas are different schema type, from key schema type is {old_key} and \
                     to key schema is {new_key}, from value schema is {old_value} and to value schema is {new_value}"
                )));
            }
            return pairs().try_for_each(|(old, (new, definition))| check(old, new, definition, strategy));
        }
    };
    let old = parsed(old)?;
    let refused = |what: &'static str| {
        move |why: String| incompatible(format_args!("Unable to read schema: the {what}: {why}"))
    };
    if strategy.is_backward() {
        can_read(new, &old).map_err(refused("new schema cannot read what was written with the old one"))?;
    }
    if strategy.is_forward() {
        can_read(&old, new).map_err(refused("old schema cannot read what is written with the new one"))?;
    }
    Ok(())
}

fn decoded(data: &Bytes) -> Option<pb::Schema> {
    pb::Schema::decode(data.clone()).ok()
}

/// Refuses properties that cost much each time they are looked at.
fn check_properties(schema: &pb::Schema) -> Result<()> {
    let properties: usize = schema.properties.iter().map(|pair| pair.key.len() + pair.value.len() + 64).sum();
    if properties > PROPERTIES {
        return Err(incompatible(format_args!("the properties of a schema have at most {PROPERTIES} bytes")));
    }
    Ok(())
}

/// The versions behind the last one that is empty: it stands for a deletion, or for one that the
/// store has lost.
pub(super) fn living(versions: &[Bytes]) -> &[Bytes] {
    let from = versions.iter().rposition(Bytes::is_empty).map_or(0, |at| at + 1);
    &versions[from..]
}

/// Finds a schema among the versions of a topic. As definitions may differ in layout only, the
/// latest is compared by what it means.
fn version_of(versions: &[Bytes], schema: &pb::Schema) -> Option<usize> {
    let same = |known: &pb::Schema| known.r#type == schema.r#type && known.schema_data == schema.schema_data;
    let found = versions.iter().rposition(|data| decoded(data).is_some_and(|known| same(&known)));
    found.or_else(|| {
        let latest = decoded(versions.last()?)?;
        let alike = is_avro(schema) && latest.r#type == schema.r#type;
        let alike = alike && parsed(&latest).ok()? == parsed(schema).ok()?;
        alike.then(|| versions.len() - 1)
    })
}

fn version_bytes(version: usize) -> Bytes {
    Bytes::copy_from_slice(&(version as u64).to_be_bytes())
}

impl Broker {
    /// Stores the schema of a producer, unless the topic has it, and returns its version.
    pub(super) fn add_schema(&mut self, name: &Name, schema: &pb::Schema) -> Result<Bytes> {
        if schema.r#type == Type::None as i32 {
            // Some clients send a BYTES schema when they have none.
            return Ok(Bytes::new());
        }
        check_properties(schema)?;
        if let Some(version) = self.schema_version(name, schema) {
            return Ok(version_bytes(version));
        }
        self.check_compatibility(name, schema)?;
        self.store_schema(name.parent(), schema)
    }

    /// The version of a topic's schema that is this one.
    pub(super) fn schema_version(&self, name: &Name, schema: &pb::Schema) -> Option<usize> {
        let all = self.schemas.get(&name.parent())?;
        let versions = living(all);
        Some(all.len() - versions.len() + version_of(versions, schema)?)
    }

    /// Whether a schema may follow those of a topic.
    pub(super) fn check_compatibility(&self, name: &Name, schema: &pb::Schema) -> Result<()> {
        let versions = self.schemas.get(&name.parent()).map_or(&[][..], |all| living(all));
        let definition = Definition::of(schema)?;
        let strategy = self.settings.schema_compatibility;
        let earlier = if strategy.is_transitive() {
            versions
        } else {
            versions.last_chunk::<1>().map_or(&[][..], |last| last)
        };
        let mut earlier = earlier.iter().rev();
        earlier.try_for_each(|data| check(&decoded(data).unwrap_or_default(), schema, &definition, strategy))
    }

    /// Checks the schema of a consumer. An idle topic without one gets it, as on the real broker.
    pub(super) fn check_schema(&mut self, name: &Name, schema: &pb::Schema) -> Result<()> {
        if [Type::None as i32, Type::AutoConsume as i32].contains(&schema.r#type) {
            return Ok(());
        }
        check_properties(schema)?;
        let parent = name.parent();
        let living = self.schemas.get(&parent).map(|versions| living(versions));
        let Some(versions) = living.filter(|versions| !versions.is_empty()) else {
            let topic = self.names.get(&name.full).and_then(|id| self.topics.get(id));
            if topic.is_some_and(|topic| {
                topic.producers().next().is_some() || topic.log.first() < topic.log.next()
            }) {
                return Err(incompatible("Topic does not have schema to check"));
            }
            return self.add_schema(name, schema).map(drop);
        };
        if version_of(versions, schema).is_some() {
            return Ok(());
        }
        let strategy = self.settings.schema_compatibility;
        // The consumer is the reader: whatever producers may change, it has to read what there is.
        let (count, strategy) = match strategy {
            Strategy::Backward | Strategy::Forward | Strategy::ForwardTransitive | Strategy::Full => {
                (1, Strategy::Backward)
            }
            other => (versions.len(), other),
        };
        let definition = Definition::of(schema)?;
        versions
            .iter()
            .rev()
            .take(count)
            .try_for_each(|data| check(&decoded(data).unwrap_or_default(), schema, &definition, strategy))
    }

    /// Deletes the schema of a topic: the next one has to be compatible with none. Messages that
    /// were written with a version can still be read, so the deletion is a version of its own,
    /// which is returned.
    pub(super) fn delete_schema(&mut self, name: &Name) -> Result<u64> {
        let parent = name.parent();
        if self.schemas.get(&parent).is_none_or(|versions| living(versions).is_empty()) {
            return Err(Error::new(ErrorKind::TopicNotFound, "Schema not found"));
        }
        self.push_schema(parent, Bytes::new()).map(|version| version as u64)
    }

    fn store_schema(&mut self, parent: Arc<str>, schema: &pb::Schema) -> Result<Bytes> {
        self.push_schema(parent, schema.encode_to_vec().into()).map(version_bytes)
    }

    /// Stores a version, and returns its number.
    fn push_schema(&mut self, parent: Arc<str>, data: Bytes) -> Result<usize> {
        let none = Vec::new();
        let versions = self.schemas.get(&parent).unwrap_or(&none);
        if versions.len() >= VERSIONS {
            return Err(Error::new(
                ErrorKind::TooManyRequests,
                format!("schema limit reached: a topic can have {VERSIONS} versions"),
            ));
        }
        let (version, size) = (versions.len(), versions.iter().map(Bytes::len).sum::<usize>());
        let too_large = |what: &str, limit: usize| {
            let text = format!("schema limit reached: the schemas of {what} may have {limit} bytes together");
            Err(Error::new(ErrorKind::TooManyRequests, text))
        };
        if size + data.len() > TOPIC_SCHEMAS {
            return too_large("a topic", TOPIC_SCHEMAS);
        }
        if self.schema_bytes + data.len() > ALL_SCHEMAS {
            return too_large("all topics", ALL_SCHEMAS);
        }
        if parent.starts_with(STORED) && self.over_quota() {
            return Err(self.quota());
        }
        self.schema_bytes += data.len();
        self.schemas.entry(parent.clone()).or_default().push(data.clone());
        if parent.starts_with(STORED) {
            self.commits.write(Op::Schema { name: parent, version: version as u64, data });
        }
        Ok(version)
    }

    /// Removes the schemas of a deleted topic, or of a deleted partition if it was the last.
    pub(super) fn drop_schemas(&mut self, name: &Name) {
        let parent = name.parent();
        let parts: Arc<str> = format!("{parent}-partition-").into();
        let next = self.names.range(parts.clone()..).next();
        if self.parents.contains_key(&parent)
            || self.names.contains_key(&parent)
            || next.is_some_and(|(name, _)| name.starts_with(&*parts))
        {
            return;
        }
        let Some(versions) = self.schemas.remove(&parent) else { return };
        self.schema_bytes -= versions.iter().map(Bytes::len).sum::<usize>();
        if parent.starts_with(STORED) {
            self.commits.write(Op::DropSchema { name: parent });
        }
    }

    /// The schema of a version, or the latest.
    pub(super) fn find_schema(&self, command: &pb::CommandGetSchema) -> Result<(pb::Schema, Bytes)> {
        let name = Name::parse(&command.topic)?;
        let parent = name.parent();
        let none = || Error::new(ErrorKind::TopicNotFound, format!("Topic not found or no-schema {parent}"));
        let versions = self.schemas.get(&parent).ok_or_else(none)?;
        let version = match &command.schema_version {
            None => versions.len().checked_sub(1).ok_or_else(none)?,
            Some(bytes) if bytes.is_empty() => {
                return Err(Error::new(ErrorKind::IncompatibleSchema, "Empty schema version"));
            }
            Some(bytes) => {
                let number = bytes[..].try_into().map(u64::from_be_bytes).map_err(|_| none())?;
                usize::try_from(number).map_err(|_| none())?
            }
        };
        // One that the store has lost is empty.
        let data = versions.get(version).filter(|data| !data.is_empty()).ok_or_else(none)?;
        let mut schema = decoded(data).ok_or_else(none)?;
        schema.name = parent.split_once("://").map_or(&*parent, |(_, name)| name).to_owned();
        Ok((schema, version_bytes(version)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn avro(fields: &str) -> pb::Schema {
        pb::Schema {
            name: "R".into(),
            schema_data: format!(r#"{{"type": "record", "name": "R", "fields": [{fields}]}}"#).into(),
            r#type: Type::Avro as i32,
            ..pb::Schema::default()
        }
    }

    #[test]
    fn each_strategy_admits_its_changes() {
        let a = r#"{"name": "a", "type": "int"}"#;
        let old = avro(a);
        let with_default = avro(&format!(r#"{a}, {{"name": "b", "type": "int", "default": 0}}"#));
        let without_default = avro(&format!(r#"{a}, {{"name": "b", "type": "int"}}"#));
        let wider = avro(r#"{"name": "a", "type": "long"}"#);
        for (new, backward, forward) in
            [(&with_default, true, true), (&without_default, false, true), (&wider, true, false)]
        {
            for strategy in Strategy::ALL {
                let expected = match strategy {
                    Strategy::AlwaysCompatible => true,
                    Strategy::AlwaysIncompatible => false,
                    other => (backward || !other.is_backward()) && (forward || !other.is_forward()),
                };
                assert_eq!(
                    check(&old, new, &Definition::of(new).unwrap(), strategy).is_ok(),
                    expected,
                    "{strategy:?}: {:?}",
                    new.schema_data
                );
            }
        }
        let json = pb::Schema { r#type: 2, ..old.clone() };
        let text = check(&old, &json, &Definition::of(&json).unwrap(), Strategy::Full).unwrap_err();
        assert_eq!(text.message(), "Incompatible schema: exists schema type AVRO, new schema type JSON");
    }

    #[test]
    fn keys_and_values_are_checked_apart() {
        let part = |schema: &pb::Schema| SchemaInfo::try_from(schema.clone()).unwrap();
        let pair = |key: &pb::Schema, value: &pb::Schema| {
            pb::Schema::from(&KeyValueInfo { key: part(key), value: part(value), separated: false }.info())
        };
        let one = avro(r#"{"name": "a", "type": "int"}"#);
        let two = avro(r#"{"name": "a", "type": "int"}, {"name": "b", "type": "int"}"#);
        let text = pb::Schema { r#type: Type::String as i32, ..pb::Schema::default() };
        let admits = |old: &pb::Schema, new: &pb::Schema, strategy| {
            check(old, new, &Definition::of(new).unwrap(), strategy)
        };
        let old = pair(&one, &text);
        for (new, backward, forward) in [(pair(&one, &text), true, true), (pair(&two, &text), false, true)] {
            assert_eq!(admits(&old, &new, Strategy::Backward).is_ok(), backward);
            assert_eq!(admits(&old, &new, Strategy::Forward).is_ok(), forward);
        }
        assert!(admits(&pair(&text, &one), &pair(&text, &two), Strategy::Full).is_err());
        let error = admits(&old, &pair(&text, &text), Strategy::Full).unwrap_err();
        assert!(
            error.message().contains("from key schema type is AVRO and to key schema is STRING"),
            "{error}"
        );
        let cut = pb::Schema { schema_data: Bytes::from_static(b"\0"), ..old };
        assert!(Definition::of(&cut).is_err());
    }

    #[test]
    fn the_root_message_of_protobuf_stays() {
        let native = |root: &str, more: &str| pb::Schema {
            schema_data: format!(r#"{{"rootMessageTypeName": "{root}", "fileDescriptorSet": "{more}"}}"#)
                .into(),
            r#type: Type::ProtobufNative as i32,
            ..pb::Schema::default()
        };
        let admits = |new: &pb::Schema, strategy| {
            check(&native("p.A", ""), new, &Definition::of(new).unwrap(), strategy)
        };
        assert!(admits(&native("p.A", "eA=="), Strategy::Full).is_ok());
        assert!(admits(&native("p.B", ""), Strategy::AlwaysCompatible).is_ok());
        let error = admits(&native("p.B", ""), Strategy::Forward).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IncompatibleSchema);
        let unknown = pb::Schema { schema_data: Bytes::from_static(b"{"), ..native("", "") };
        assert!(admits(&unknown, Strategy::Full).is_ok(), "what cannot be read is not compared");
    }

    #[test]
    fn the_layout_of_a_definition_makes_no_version() {
        let old = avro(r#"{"name": "a", "type": "int"}"#);
        let spaced = pb::Schema { schema_data: [b" ", &old.schema_data[..]].concat().into(), ..old.clone() };
        assert_eq!(version_of(&[old.encode_to_vec().into()], &spaced), Some(0));
        assert_eq!(version_of(&[], &old), None);
    }
}
