//! Decoded values on their way into columns, from Avro data and from JSON.
//!
//! A value is whole before any of it gets into a column, so that one that cannot be decoded leaves
//! no half of itself behind.

use arrow_buffer::i256;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value as Json};

use forebay_avro::decode::Builder;
use forebay_avro::decode::DEFAULT_BYTES_PER_VALUE;
use forebay_avro::schema::{Enum, Record};
use forebay_avro::{Kind, Logical, MAX_DEPTH, NodeId, Plan, Schema, decode};
use forebay_base::error::{Error, ErrorKind, Result};

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Nothing.
    Null,
    /// A boolean.
    Boolean(bool),
    /// An integer.
    Long(i64),
    /// A float.
    Double(f64),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A text.
    Text(String),
    /// The number that stands for a value with a meaning.
    Number(Logical, i64),
    /// The bytes or the text that stand for a value with a meaning.
    Meant(Logical, Vec<u8>),
    /// A number with this many digits behind the point.
    Decimal(i256, u32),
    /// The index of a symbol of an enum.
    Symbol(u32),
    /// Items.
    List(Vec<Cell>),
    /// Entries.
    Map(Vec<(String, Cell)>),
    /// The values of all fields of a record.
    Record(Vec<Cell>),
}

impl Cell {
    /// The value of Avro data.
    pub fn of_avro(plan: &Plan, payload: &[u8]) -> Result<Self> {
        decode(plan, payload, &mut Cells)
    }

    /// The value of a payload of JSON.
    pub fn of_json(schema: &Schema, payload: &[u8]) -> Result<Self> {
        let json: Json = serde_json::from_slice(payload).map_err(bad)?;
        // Branches of unions are tried one after the other, each as deep as it fits.
        let left = payload.len().saturating_mul(16).saturating_add(1 << 16);
        Parser { schema, left }.value(schema.root(), &json, false, 0)
    }
}

pub(super) fn bad(text: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Schema, format!("the payload does not fit its schema: {text}"))
}

/// Makes cells of Avro data.
struct Cells;

impl Builder for Cells {
    type Value = Cell;
    type Error = Error;

    fn null(&mut self) -> Cell {
        Cell::Null
    }

    fn boolean(&mut self, value: bool) -> Result<Cell> {
        Ok(Cell::Boolean(value))
    }

    fn long(&mut self, value: i64) -> Result<Cell> {
        Ok(Cell::Long(value))
    }

    fn double(&mut self, value: f64) -> Result<Cell> {
        Ok(Cell::Double(value))
    }

    fn bytes(&mut self, value: &[u8]) -> Result<Cell> {
        Ok(Cell::Bytes(value.to_vec()))
    }

    fn string(&mut self, value: &str) -> Result<Cell> {
        Ok(Cell::Text(value.to_owned()))
    }

    fn logical_number(&mut self, logical: Logical, value: i64) -> Result<Cell> {
        Ok(Cell::Number(logical, value))
    }

    fn logical_bytes(&mut self, logical: Logical, value: &[u8]) -> Result<Cell> {
        Ok(Cell::Meant(logical, value.to_vec()))
    }

    fn symbol(&mut self, _: NodeId, index: u32) -> Result<Cell> {
        Ok(Cell::Symbol(index))
    }

    fn array(&mut self, items: Vec<Cell>) -> Result<Cell> {
        Ok(Cell::List(items))
    }

    fn map(&mut self, entries: Vec<(&str, Cell)>) -> Result<Cell> {
        Ok(Cell::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()))
    }

    fn record(&mut self, _: NodeId, fields: Vec<Cell>) -> Result<Cell> {
        Ok(Cell::Record(fields))
    }
}

/// Reads JSON by a definition, as the Java client writes it.
struct Parser<'a> {
    schema: &'a Schema,
    /// Values that may still be looked at.
    left: usize,
}

impl Parser<'_> {
    /// In the default of a field bytes are text with a character for each.
    fn value(&mut self, id: NodeId, json: &Json, default: bool, depth: usize) -> Result<Cell> {
        if depth > MAX_DEPTH {
            return Err(bad(format_args!("values are nested more than {MAX_DEPTH} deep")));
        }
        // A default is in no payload, and its text may be long.
        let length = if default { json.as_str().map_or(0, str::len) } else { 0 };
        let left = self.left.checked_sub(1 + length / DEFAULT_BYTES_PER_VALUE);
        self.left = left.ok_or_else(|| bad("its values and the branches of its unions are too many"))?;
        let schema = self.schema;
        let node = schema.node(id);
        let wants = || {
            let text: String = json.to_string().chars().take(40).collect();
            bad(format_args!("{text} is no {}", node.kind.describe()))
        };
        let integer = || json.as_i64().ok_or_else(wants);
        let bytes = |text: &str| if default { latin(text).ok_or_else(wants) } else { base64_bytes(text) };
        Ok(match (&node.kind, node.logical) {
            (_, Some(Logical::Decimal(scale))) => match json {
                Json::String(text) if default => Cell::Meant(Logical::Decimal(scale), bytes(text)?),
                Json::Number(number) => decimal(&number.to_string())?,
                Json::String(text) => decimal(text)?,
                _ => return Err(wants()),
            },
            (_, Some(Logical::Uuid)) => {
                Cell::Meant(Logical::Uuid, json.as_str().ok_or_else(wants)?.as_bytes().to_vec())
            }
            (_, Some(logical)) => Cell::Number(logical, integer()?),
            (Kind::Null, _) if json.is_null() => Cell::Null,
            (Kind::Null, _) => return Err(wants()),
            (Kind::Boolean, _) => Cell::Boolean(json.as_bool().ok_or_else(wants)?),
            (Kind::Int, _) => Cell::Long(i32::try_from(integer()?).map_err(|_| wants())?.into()),
            (Kind::Long, _) => Cell::Long(integer()?),
            (Kind::Float, _) => {
                let held = |value: &f64| (*value as f32).is_finite();
                Cell::Double(json.as_f64().filter(held).ok_or_else(wants)?)
            }
            (Kind::Double, _) => Cell::Double(json.as_f64().ok_or_else(wants)?),
            (Kind::String, _) => Cell::Text(json.as_str().ok_or_else(wants)?.to_owned()),
            (Kind::Bytes, _) => Cell::Bytes(bytes(json.as_str().ok_or_else(wants)?)?),
            (Kind::Fixed(fixed), _) => {
                let bytes = bytes(json.as_str().ok_or_else(wants)?)?;
                if bytes.len() != fixed.size {
                    return Err(bad(format_args!("expected {} bytes, got {}", fixed.size, bytes.len())));
                }
                Cell::Bytes(bytes)
            }
            (Kind::Enum(of), _) => Cell::Symbol(symbol(of, json.as_str().ok_or_else(wants)?)?),
            (Kind::Array(items), _) => {
                let list = json.as_array().ok_or_else(wants)?;
                let cells = list.iter().map(|item| self.value(*items, item, default, depth + 1));
                Cell::List(cells.collect::<Result<_>>()?)
            }
            (Kind::Map(values), _) => {
                let object = json.as_object().ok_or_else(wants)?;
                let cell = |(key, value): (&String, &Json)| {
                    Ok((key.clone(), self.value(*values, value, default, depth + 1)?))
                };
                Cell::Map(object.iter().map(cell).collect::<Result<_>>()?)
            }
            (Kind::Union(branches), _) => {
                let mut last = None;
                // A double before a long would change integers of more than 53 bits.
                let is_whole = json.is_i64();
                let is_float =
                    |id: &&NodeId| matches!(schema.node(**id).kind, Kind::Float | Kind::Double) && is_whole;
                let whole_first =
                    branches.iter().filter(|id| !is_float(id)).chain(branches.iter().filter(is_float));
                for branch in whole_first {
                    match self.value(*branch, json, default, depth + 1) {
                        Ok(cell) => return Ok(cell),
                        Err(error) => last = Some(error),
                    }
                }
                return Err(last.unwrap_or_else(wants));
            }
            (Kind::Record(record), _) => {
                self.record(record, json.as_object().ok_or_else(wants)?, default, depth)?
            }
        })
    }

    fn record(
        &mut self,
        record: &Record,
        object: &Map<String, Json>,
        default: bool,
        depth: usize,
    ) -> Result<Cell> {
        let mut cells = Vec::with_capacity(record.fields.len());
        for field in &record.fields {
            let within = |error: Error| {
                let text = error.message().trim_start_matches("the payload does not fit its schema: ");
                bad(format_args!("{}: {text}", field.name))
            };
            cells.push(match (object.get(&field.name), &field.default) {
                (Some(json), _) => self.value(field.node, json, default, depth + 1).map_err(within)?,
                (None, Some(json)) => self.value(field.node, json, true, depth + 1).map_err(within)?,
                (None, None) => return Err(within(bad("the field is missing"))),
            });
        }
        Ok(Cell::Record(cells))
    }
}

/// The bytes of a text with a character for each.
fn latin(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect()
}

fn base64_bytes(text: &str) -> Result<Vec<u8>> {
    BASE64.decode(text).map_err(|error| bad(format_args!("bytes are base64 text: {error}")))
}

/// The index of a symbol, or of the one that stands for those that are not known.
fn symbol(of: &Enum, name: &str) -> Result<u32> {
    let index = of.symbols.iter().position(|symbol| symbol == name);
    let index = index.map(|index| index as u32).or(of.default);
    index.ok_or_else(|| bad(format_args!("{} has no symbol {name:?}", of.name.full)))
}

/// Most digits of a decimal in a column.
pub(super) const DIGITS: usize = 76;

/// A decimal of JSON: all its digits, without zeros at the end.
fn decimal(text: &str) -> Result<Cell> {
    let inexact = || bad(format_args!("{} is no decimal of up to {DIGITS} digits", shortened(text)));
    let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (sign, number) = match number.strip_prefix('-') {
        Some(number) => ("-", number),
        None => ("", number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let power = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    let is_number = is_digits(whole) && is_digits(part) && is_digits(power) && !power.is_empty();
    if !is_number || whole.len() + part.len() == 0 {
        return Err(inexact());
    }
    let digits = format!("{whole}{part}");
    let digits = digits.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Ok(Cell::Decimal(i256::ZERO, 0));
    }
    // An exponent that no column has costs no more than any other.
    let exponent: i64 = exponent.parse().map_err(|_| inexact())?;
    let zeros = (digits.len() - significant.len()) as i64;
    let scale = exponent.checked_add(zeros).and_then(|up| (part.len() as i64).checked_sub(up));
    let scale = scale.ok_or_else(inexact)?;
    let zeros = usize::try_from(scale.min(0).unsigned_abs()).map_err(|_| inexact())?;
    let scale = u32::try_from(scale.max(0)).map_err(|_| inexact())?;
    if significant.len().saturating_add(zeros) > DIGITS || scale as usize > DIGITS {
        return Err(inexact());
    }
    let number = format!("{sign}{significant}{}", "0".repeat(zeros));
    i256::from_string(&number).map(|number| Cell::Decimal(number, scale)).ok_or_else(inexact)
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}
