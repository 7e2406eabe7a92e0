//! Schemas of pairs, and the payloads of pairs: `length key length value`, where a length of -1
//! stands for null.
//!
//! A pair is inline, as one payload, or separated: the key is that of the message, in base64, and
//! the value is the payload.

use crate::schema::{SchemaInfo, Type};
use forebay_base::error::{Error, ErrorKind, Result};

/// Longest text of the properties of a part that is read.
const PROPERTIES: usize = 64 << 10;

/// The parts of a KEY_VALUE schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValueInfo {
    /// Schema of keys.
    pub key: SchemaInfo,
    /// Schema of values.
    pub value: SchemaInfo,
    /// Whether the key is that of the message.
    pub separated: bool,
}

fn bad(text: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Schema, format!("the KEY_VALUE schema cannot be read: {text}"))
}

impl KeyValueInfo {
    /// Reads a schema of type KEY_VALUE.
    pub fn of(info: &SchemaInfo) -> Result<Self> {
        let property = |name: &str| {
            info.properties.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
        };
        let (key, value) = split(&info.data).ok_or_else(|| bad("its definition is cut off"))?;
        let part = |what: &str, data: Option<&[u8]>| -> Result<SchemaInfo> {
            let of = |name: &str| property(&format!("{what}.schema.{name}"));
            let kind = of("type").unwrap_or("BYTES");
            Ok(SchemaInfo {
                name: of("name").unwrap_or_default().into(),
                kind: type_of(kind)
                    .ok_or_else(|| bad(format_args!("it has a {what} of the unknown type {kind:?}")))?,
                data: data.map(|data| info.data.slice_ref(data)).unwrap_or_default(),
                properties: properties(of("properties").unwrap_or_default()),
            })
        };
        let separated = match property("kv.encoding.type") {
            None | Some("" | "INLINE") => false,
            Some("SEPARATED") => true,
            Some(other) => return Err(bad(format_args!("it has the unknown encoding {other:?}"))),
        };
        Ok(Self { key: part("key", key)?, value: part("value", value)?, separated })
    }

    /// The schema as the Java client states it.
    pub fn info(&self) -> SchemaInfo {
        let mut properties = Vec::with_capacity(7);
        for (what, part) in [("key", &self.key), ("value", &self.value)] {
            let own: serde_json::Map<_, _> =
                part.properties.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
            let own = serde_json::Value::Object(own).to_string();
            for (name, value) in
                [("name", part.name.clone()), ("type", type_name(part.kind).into()), ("properties", own)]
            {
                properties.push((format!("{what}.schema.{name}"), value));
            }
        }
        let encoding = if self.separated { "SEPARATED" } else { "INLINE" };
        properties.push(("kv.encoding.type".into(), encoding.into()));
        let data = join(Some(&self.key.data), Some(&self.value.data)).into();
        SchemaInfo { name: "KeyValue".into(), kind: Type::KeyValue, data, properties }
    }
}

/// Properties of a part: a JSON object of texts. They have no meaning here, so what is not one has
/// none.
fn properties(text: &str) -> Vec<(String, String)> {
    let parsed = (text.len() <= PROPERTIES).then(|| serde_json::from_str(text).ok()).flatten();
    let Some(serde_json::Value::Object(pairs)) = parsed else { return Vec::new() };
    let texts = pairs.into_iter().filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())));
    texts.collect()
}

/// The payload of a pair.
pub fn join(key: Option<&[u8]>, value: Option<&[u8]>) -> Vec<u8> {
    let length = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
    let mut out = Vec::with_capacity(8 + length(key) + length(value));
    for part in [key, value] {
        let stated = part.map_or(-1, |part| part.len() as i32);
        out.extend_from_slice(&stated.to_be_bytes());
        out.extend_from_slice(part.unwrap_or_default());
    }
    out
}

/// A key and its value; `None` is null.
pub type Parts<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// The key and the value of a payload, `None` if it is not that of a pair. As in other clients,
/// bytes behind the pair are passed over.
pub fn split(payload: &[u8]) -> Option<Parts<'_>> {
    fn part(rest: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else { return Some((None, rest)) };
        let (part, rest) = rest.split_at_checked(length)?;
        Some((Some(part), rest))
    }
    let (key, rest) = part(payload)?;
    let (value, _) = part(rest)?;
    Some((key, value))
}

/// Names of the types in Java, which properties state.
const NAMES: [(Type, &str); 20] = [
    (Type::None, "BYTES"),
    (Type::String, "STRING"),
    (Type::Json, "JSON"),
    (Type::Protobuf, "PROTOBUF"),
    (Type::Avro, "AVRO"),
    (Type::Bool, "BOOLEAN"),
    (Type::Int8, "INT8"),
    (Type::Int16, "INT16"),
    (Type::Int32, "INT32"),
    (Type::Int64, "INT64"),
    (Type::Float, "FLOAT"),
    (Type::Double, "DOUBLE"),
    (Type::Date, "DATE"),
    (Type::Time, "TIME"),
    (Type::Timestamp, "TIMESTAMP"),
    (Type::Instant, "INSTANT"),
    (Type::LocalDate, "LOCAL_DATE"),
    (Type::LocalTime, "LOCAL_TIME"),
    (Type::LocalDateTime, "LOCAL_DATE_TIME"),
    (Type::ProtobufNative, "PROTOBUF_NATIVE"),
];

/// Name of a type as the Java client states it.
pub fn type_name(kind: Type) -> &'static str {
    NAMES.iter().find(|(known, _)| *known == kind).map_or("NONE", |(_, name)| name)
}

/// The type of such a name.
pub fn type_of(name: &str) -> Option<Type> {
    NAMES.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn schema(kind: Type, data: &'static [u8], properties: &[(&str, &str)]) -> SchemaInfo {
        let properties = properties.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        SchemaInfo { name: "n".into(), kind, data: Bytes::from_static(data), properties }
    }

    #[test]
    fn a_schema_is_read_as_it_was_written() {
        let pair = KeyValueInfo {
            key: schema(Type::String, b"", &[]),
            value: schema(Type::Avro, b"{}", &[("__alwaysAllowNull", "true")]),
            separated: true,
        };
        let info = pair.info();
        assert_eq!(&info.data[..], b"\0\0\0\0\0\0\0\x02{}");
        let stated: Vec<_> = info.properties.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let expected = [
            ("key.schema.name", "n"),
            ("key.schema.type", "STRING"),
            ("key.schema.properties", "{}"),
            ("value.schema.name", "n"),
            ("value.schema.type", "AVRO"),
            ("value.schema.properties", r#"{"__alwaysAllowNull":"true"}"#),
            ("kv.encoding.type", "SEPARATED"),
        ];
        assert_eq!(stated, expected);
        assert_eq!(KeyValueInfo::of(&info).unwrap(), pair);
    }

    #[test]
    fn what_is_missing_has_the_values_of_java_and_what_is_wrong_is_named() {
        let mut info = schema(Type::KeyValue, b"\xff\xff\xff\xff\xff\xff\xff\xff", &[]);
        let pair = KeyValueInfo::of(&info).unwrap();
        assert_eq!((pair.key.kind, pair.value.kind, pair.separated), (Type::None, Type::None, false));
        for (name, value) in
            [("key.schema.type", "ODD"), ("key.schema.type", "KEY_VALUE"), ("kv.encoding.type", "odd")]
        {
            info.properties = vec![(name.into(), value.into())];
            let error = KeyValueInfo::of(&info).unwrap_err();
            assert!(error.message().contains(value), "{error}");
        }
        info.data.truncate(7);
        assert!(KeyValueInfo::of(&info).is_err());
    }

    #[test]
    fn pairs_are_split_as_they_were_joined() {
        for (key, value) in [
            (Some(&b"k"[..]), Some(&b"vv"[..])),
            (None, Some(&b""[..])),
            (Some(&b""[..]), None),
            (None, None),
        ] {
            let payload = join(key, value);
            assert_eq!(split(&payload), Some((key, value)));
            for cut in 0..payload.len() {
                assert_eq!(split(&payload[..cut]), None);
            }
        }
        assert_eq!(split(b"\x7f\xff\xff\xff"), None);
    }
}
