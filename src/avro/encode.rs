//! The binary encoding: its parts, and the values of defaults.

use serde_json::{Map, Value};

use super::schema::{Kind, NodeId, Schema, refused};
use super::{MAX_DEFAULTS, MAX_DEPTH};
use forebay_base::error::Result;

/// Writes an int or a long.
pub fn put_long(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Writes bytes or a text, with its length.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_long(out, bytes.len() as i64);
    out.extend_from_slice(bytes);
}

/// Encodes a default. What it stands for may be much larger than its definition, so that is
/// limited.
pub fn default_of(schema: &Schema, node: NodeId, default: &Value) -> Result<Vec<u8>> {
    let mut defaults = Defaults { schema, out: Vec::new(), left: MAX_DEFAULTS, strict: false };
    defaults.put(node, default, 0)?;
    Ok(defaults.out)
}

/// Checks a default as Pulsar's broker does, to which that of a union is a value of its first
/// branch. Takes what it costs from `left`.
pub fn check_default(schema: &Schema, node: NodeId, default: &Value, left: &mut usize) -> Result<()> {
    let mut defaults = Defaults { schema, out: Vec::new(), left: *left, strict: true };
    let checked = defaults.put(node, default, 0);
    *left = defaults.left.saturating_sub(defaults.out.len());
    checked
}

struct Defaults<'a> {
    schema: &'a Schema,
    out: Vec<u8>,
    left: usize,
    /// Whether defaults of unions are of the first branch only.
    strict: bool,
}

impl Defaults<'_> {
    fn put(&mut self, id: NodeId, json: &Value, depth: usize) -> Result<()> {
        self.left = self.left.checked_sub(1).ok_or_else(too_large)?;
        if depth > MAX_DEPTH || self.out.len() > MAX_DEFAULTS {
            return Err(too_large());
        }
        let schema = self.schema;
        let kind = &schema.node(id).kind;
        let unfit = || {
            let text: String = json.to_string().chars().take(60).collect();
            refused(format_args!("the default {text} is no {}", kind.describe()))
        };
        match (kind, json) {
            (Kind::Null, Value::Null) => {}
            (Kind::Boolean, Value::Bool(value)) => self.out.push(u8::from(*value)),
            (Kind::Int, Value::Number(number)) => {
                let value = number.as_i64().and_then(|value| i32::try_from(value).ok()).ok_or_else(unfit)?;
                put_long(&mut self.out, value.into());
            }
            (Kind::Long, Value::Number(number)) => {
                put_long(&mut self.out, number.as_i64().ok_or_else(unfit)?);
            }
            (Kind::Float, Value::Number(number)) => {
                let value = number.as_f64().ok_or_else(unfit)? as f32;
                self.out.extend_from_slice(&value.to_le_bytes());
            }
            (Kind::Double, Value::Number(number)) => {
                self.out.extend_from_slice(&number.as_f64().ok_or_else(unfit)?.to_le_bytes());
            }
            (Kind::String, Value::String(text)) => put_bytes(&mut self.out, text.as_bytes()),
            (Kind::Bytes, Value::String(text)) => {
                put_bytes(&mut self.out, &latin(text).ok_or_else(unfit)?);
            }
            (Kind::Fixed(fixed), Value::String(text)) => {
                let bytes = latin(text).filter(|bytes| bytes.len() == fixed.size).ok_or_else(unfit)?;
                self.out.extend_from_slice(&bytes);
            }
            (Kind::Enum(of), Value::String(text)) => {
                let index = of.symbols.iter().position(|symbol| symbol == text).ok_or_else(unfit)?;
                put_long(&mut self.out, index as i64);
            }
            (Kind::Array(items), Value::Array(list)) => self.array(*items, list, depth)?,
            (Kind::Map(values), Value::Object(object)) => self.map(*values, object, depth)?,
            (Kind::Record(record), Value::Object(object)) => {
                for field in &record.fields {
                    let value = object.get(&field.name).or(field.default.as_ref()).ok_or_else(unfit)?;
                    self.put(field.node, value, depth + 1)?;
                }
            }
            (Kind::Union(branches), json) => {
                // The first branch, as the specification says, or the first that has such values.
                let fits = |branch: &NodeId| self.has(*branch, json);
                let searched = if self.strict { &branches[..branches.len().min(1)] } else { &branches[..] };
                let index = searched.iter().position(fits).ok_or_else(unfit)?;
                put_long(&mut self.out, index as i64);
                self.put(branches[index], json, depth + 1)?;
            }
            _ => return Err(unfit()),
        }
        Ok(())
    }

    fn array(&mut self, items: NodeId, list: &[Value], depth: usize) -> Result<()> {
        if !list.is_empty() {
            put_long(&mut self.out, list.len() as i64);
            list.iter().try_for_each(|item| self.put(items, item, depth + 1))?;
        }
        self.out.push(0);
        Ok(())
    }

    fn map(&mut self, values: NodeId, object: &Map<String, Value>, depth: usize) -> Result<()> {
        if !object.is_empty() {
            put_long(&mut self.out, object.len() as i64);
            for (key, value) in object {
                put_bytes(&mut self.out, key.as_bytes());
                self.put(values, value, depth + 1)?;
            }
        }
        self.out.push(0);
        Ok(())
    }

    /// Whether a type has values of the form of `json`, from the outside.
    fn has(&self, id: NodeId, json: &Value) -> bool {
        match (&self.schema.node(id).kind, json) {
            (Kind::Null, Value::Null)
            | (Kind::Boolean, Value::Bool(_))
            | (Kind::Float | Kind::Double, Value::Number(_))
            | (Kind::String | Kind::Bytes | Kind::Fixed(_), Value::String(_))
            | (Kind::Array(_), Value::Array(_))
            | (Kind::Map(_) | Kind::Record(_), Value::Object(_)) => true,
            (Kind::Int | Kind::Long, Value::Number(number)) => number.is_i64(),
            (Kind::Enum(of), Value::String(text)) => of.symbols.contains(text),
            _ => false,
        }
    }
}

fn too_large() -> forebay_base::error::Error {
    refused(format_args!("a default contains itself, or stands for more than {MAX_DEFAULTS} values or bytes"))
}

/// The bytes of a default, whose characters stand for one byte each.
fn latin(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect()
}
