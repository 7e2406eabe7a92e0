//! The Avro definition of the rows of a table.

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};
use serde_json::{Value, json};

use crate::columns::is_uuid;
use forebay_avro::MAX_DEPTH;
use forebay_base::error::{Error, ErrorKind, Result};

/// Name of the record if there is no other.
pub const DEFAULT_NAME: &str = "Row";

/// The definition of a record with a field for each column. Columns that may be null are unions
/// with null, and null is their default. Records inside of it are named after their path, so that
/// no two have the same name.
///
/// # Errors
///
/// A column whose type has no counterpart in Avro, or whose name is no name in Avro.
pub fn define(schema: &Schema, name: &str) -> Result<String> {
    if !name.split('.').all(is_name) {
        return Err(refused(format!("{name:?} is no name of a record: use letters, digits and _")));
    }
    Ok(record(schema.fields(), name, "", "", 0)?.to_string())
}

pub(super) fn refused(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Schema, text)
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// `path` is the place of the record in the table, for errors.
fn record(fields: &Fields, name: &str, namespace: &str, path: &str, depth: usize) -> Result<Value> {
    let full = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") };
    let mut made: Vec<Value> = Vec::with_capacity(fields.len());
    for field in fields {
        let path = if path.is_empty() { field.name().clone() } else { format!("{path}.{}", field.name()) };
        if !is_name(field.name()) {
            let text = format!("column {path:?} has no name that Avro allows: use letters, digits and _");
            return Err(refused(text));
        }
        if made.iter().any(|made| made["name"] == field.name().as_str()) {
            return Err(refused(format!("there are two columns {path:?}: rename one of them")));
        }
        let kind = nullable(field, field.name(), &full, &path, depth + 1)?;
        let mut field = json!({"name": field.name(), "type": kind});
        if field["type"].is_array() || field["type"] == "null" {
            field["default"] = Value::Null;
        }
        made.push(field);
    }
    let mut record = json!({"type": "record", "name": name, "fields": made});
    if !namespace.is_empty() {
        record["namespace"] = namespace.into();
    }
    Ok(record)
}

fn nullable(field: &Field, name: &str, namespace: &str, path: &str, depth: usize) -> Result<Value> {
    let kind = if is_uuid(field) {
        json!({"type": "string", "logicalType": "uuid"})
    } else {
        kind(field.data_type(), name, namespace, path, depth)?
    };
    let plain = !field.is_nullable() || kind == "null";
    Ok(if plain { kind } else { json!(["null", kind]) })
}

fn kind(of: &DataType, name: &str, namespace: &str, path: &str, depth: usize) -> Result<Value> {
    if depth > MAX_DEPTH {
        return Err(refused(format!("column {path:?} is nested more than {MAX_DEPTH} deep")));
    }
    let number = |kind: &str, logical: &str| json!({"type": kind, "logicalType": logical});
    let no = |instead: &str| {
        refused(format!("column {path:?} is {of}, which has no counterpart in Avro: cast it to {instead}"))
    };
    let item = |field: &FieldRef| nullable(field, name, namespace, path, depth + 1);
    Ok(match of {
        DataType::Null => json!("null"),
        DataType::Boolean => json!("boolean"),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::UInt8 | DataType::UInt16 => {
            json!("int")
        }
        DataType::Int64 | DataType::UInt32 => json!("long"),
        DataType::UInt64 => return Err(no("Int64, or to a decimal of 20 digits")),
        DataType::Float16 | DataType::Float32 => json!("float"),
        DataType::Float64 => json!("double"),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => json!("string"),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => json!("bytes"),
        DataType::FixedSizeBinary(size) => {
            json!({"type": "fixed", "name": name, "namespace": namespace, "size": size})
        }
        DataType::Date32 | DataType::Date64 => number("int", "date"),
        DataType::Time32(_) => number("int", "time-millis"),
        DataType::Time64(_) => number("long", "time-micros"),
        DataType::Timestamp(unit, zone) => {
            let logical = match (unit, zone) {
                (TimeUnit::Second | TimeUnit::Millisecond, Some(_)) => "timestamp-millis",
                (TimeUnit::Microsecond | TimeUnit::Nanosecond, Some(_)) => "timestamp-micros",
                (TimeUnit::Second | TimeUnit::Millisecond, None) => "local-timestamp-millis",
                (TimeUnit::Microsecond | TimeUnit::Nanosecond, None) => "local-timestamp-micros",
            };
            number("long", logical)
        }
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            if *scale < 0 || i16::from(*scale) > i16::from(*precision) {
                return Err(no("a decimal with a scale from 0 to its precision"));
            }
            json!({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale})
        }
        DataType::List(of) | DataType::LargeList(of) | DataType::FixedSizeList(of, _) => {
            json!({"type": "array", "items": item(of)?})
        }
        DataType::Map(entries, _) => {
            let DataType::Struct(parts) = entries.data_type() else { return Err(no("a map")) };
            let [key, value] = &parts[..] else { return Err(no("a map")) };
            if !is_text(key.data_type()) {
                return Err(no("a map with keys of text, or to a list of structs"));
            }
            json!({"type": "map", "values": item(value)?})
        }
        DataType::Struct(fields) => record(fields, name, namespace, path, depth + 1)?,
        DataType::Dictionary(_, of) => kind(of, name, namespace, path, depth + 1)?,
        DataType::RunEndEncoded(_, of) => kind(of.data_type(), name, namespace, path, depth + 1)?,
        DataType::Duration(_) => return Err(no("Int64, in the unit that you choose")),
        DataType::Interval(_) => return Err(no("numbers")),
        DataType::ListView(_) | DataType::LargeListView(_) => return Err(no("a list")),
        DataType::Union(..) => return Err(no("a struct of its alternatives")),
    })
}

pub(super) fn is_text(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, of) => is_text(of),
        kind => kind.is_string(),
    }
}
