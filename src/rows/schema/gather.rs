//! Columns of decoded values.

use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Decimal256Builder,
    FixedSizeBinaryBuilder, Float32Builder, Float64Builder, Int32Builder, Int64Builder, StringBuilder,
    Time32MillisecondBuilder, Time64MicrosecondBuilder, TimestampMicrosecondBuilder,
    TimestampMillisecondBuilder,
};
use arrow_array::{ArrayRef, ListArray, MapArray, NullArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer, i256};
use arrow_schema::{DataType, Field, Fields};

use super::cell::{Cell, bad};
use super::plain::Plain;
use super::write::hyphenated;
use forebay_avro::{Kind, Logical, MAX_DEPTH, MAX_NODES, NodeId, Schema};
use forebay_base::error::{Error, ErrorKind, Result};

/// The types that columns may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Types {
    /// All of Arrow's: those that are closest to the values.
    Arrow,
    /// Those of Spark, as it exchanges them: times of the day are numbers of microseconds, bytes of
    /// a fixed size are bytes, and decimals have the digits that the schema states.
    Spark,
}

/// A column that values are added to.
#[derive(Debug)]
pub struct Gather {
    column: Column,
    types: Types,
    /// Sizes of all texts, bytes, items and nulls of a fixed size together.
    size: usize,
}

/// The most digits of the two widths of decimals.
const SMALL: u32 = 38;
const LARGE: u32 = super::cell::DIGITS as u32;
/// Largest fixed that is bytes of a fixed size in Arrow, in which a null takes as much as a value.
const MAX_WIDTH: usize = 256;

#[derive(Debug)]
enum Column {
    Null(usize),
    Boolean(BooleanBuilder),
    Int(Int32Builder),
    Long(Int64Builder),
    Float(Float32Builder),
    Double(Float64Builder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Fixed(FixedSizeBinaryBuilder, usize),
    /// Bytes of this number.
    Sized(BinaryBuilder, usize),
    Enum(StringBuilder, Vec<String>),
    Date(Date32Builder),
    TimeMillis(Time32MillisecondBuilder),
    TimeMicros(Time64MicrosecondBuilder),
    /// A time of the day in microseconds, as a number.
    Clock(Int64Builder),
    Millis(TimestampMillisecondBuilder),
    Micros(TimestampMicrosecondBuilder),
    /// With digits behind the point, and digits in all.
    Decimal(Decimal128Builder, u32, u32),
    LargeDecimal(Decimal256Builder, u32),
    Uuid(StringBuilder),
    List(Vec<i32>, Vec<bool>, Box<Column>),
    Map(Vec<i32>, Vec<bool>, StringBuilder, Box<Column>),
    Record(Vec<bool>, Vec<(String, Column)>),
}

impl Gather {
    /// A column of the values of a schema.
    ///
    /// # Errors
    ///
    /// A type that no column has: a union of several types, a record inside of itself, or records
    /// that name each other and stand for too many columns.
    pub fn of(schema: &Schema, types: Types) -> Result<Self> {
        let mut shape = Shape { schema, types, above: Vec::new(), left: MAX_NODES };
        let column = shape.column(schema.root(), "")?;
        Ok(Self { column, types, size: 0 })
    }

    /// A column of single values.
    pub fn of_plain(plain: Plain, types: Types) -> Self {
        let zone = "UTC";
        let column = match plain {
            Plain::Text => Column::Text(StringBuilder::new()),
            Plain::Boolean => Column::Boolean(BooleanBuilder::new()),
            Plain::Integer(1..=4) => Column::Int(Int32Builder::new()),
            Plain::Integer(_) => Column::Long(Int64Builder::new()),
            Plain::Float => Column::Float(Float32Builder::new()),
            Plain::Double => Column::Double(Float64Builder::new()),
            Plain::Time | Plain::LocalTime if types == Types::Spark => Column::Clock(Int64Builder::new()),
            Plain::Millis if types == Types::Arrow => {
                Column::Millis(TimestampMillisecondBuilder::new().with_timezone(zone))
            }
            Plain::Millis | Plain::Instant => {
                Column::Micros(TimestampMicrosecondBuilder::new().with_timezone(zone))
            }
            Plain::Time => Column::TimeMillis(Time32MillisecondBuilder::new()),
            Plain::LocalDate => Column::Date(Date32Builder::new()),
            Plain::LocalTime => Column::TimeMicros(Time64MicrosecondBuilder::new()),
            Plain::LocalDateTime => Column::Micros(TimestampMicrosecondBuilder::new()),
        };
        Self { column, types, size: 0 }
    }

    /// A column of pairs, from columns without rows. Its values are records of two.
    pub fn of_pairs(key: Self, value: Self) -> Self {
        let parts = vec![("key".into(), key.column), ("value".into(), value.column)];
        Self { column: Column::Record(Vec::new(), parts), types: key.types, size: 0 }
    }

    /// A column of bytes.
    pub fn of_bytes() -> Self {
        Self { column: Column::Bytes(BinaryBuilder::new()), types: Types::Arrow, size: 0 }
    }

    /// A column of nulls.
    pub fn of_nulls() -> Self {
        Self { column: Column::Null(0), types: Types::Arrow, size: 0 }
    }

    /// Adds a value, all of it or nothing.
    pub fn push(&mut self, cell: Cell) -> Result<()> {
        let size = self.size.saturating_add(self.column.check(&cell)?);
        if size > i32::MAX as usize {
            let text = "the values of the frame are too large for a column: read fewer rows at once";
            return Err(Error::new(ErrorKind::Schema, text));
        }
        self.column.push(cell);
        self.size = size;
        Ok(())
    }

    /// The column.
    pub fn finish(self) -> Result<ArrayRef> {
        self.column.finish(self.types).map_err(super::super::arrow_error)
    }
}

fn add(sum: usize, size: usize) -> usize {
    sum.saturating_add(size)
}

fn unfit(cell: &Cell) -> Error {
    let text: String = format!("{cell:?}").chars().take(60).collect();
    bad(format_args!("{text} does not fit into its column"))
}

/// The columns of a schema while they are made.
struct Shape<'s> {
    schema: &'s Schema,
    types: Types,
    /// The types around this one.
    above: Vec<NodeId>,
    /// Columns that may still be made: types that are named may stand for far more than there are.
    left: usize,
}

impl Shape<'_> {
    fn column(&mut self, id: NodeId, path: &str) -> Result<Column> {
        let refused = |why: &str| {
            let place = if path.is_empty() { String::new() } else { format!(" of the field {path:?}") };
            let text =
                format!("values{place} cannot be a column: {why}; decode=False leaves payloads as they are");
            Error::new(ErrorKind::Unsupported, text)
        };
        if self.above.contains(&id) {
            return Err(refused("a record contains itself"));
        }
        if self.above.len() > MAX_DEPTH {
            return Err(refused("the types are nested too deep"));
        }
        let left = self.left.checked_sub(1);
        self.left = left.ok_or_else(|| refused(&format!("there are more than {MAX_NODES} columns")))?;
        let node = self.schema.node(id);
        if let Some(logical) = node.logical {
            return Column::of_logical(logical, node.precision, self.types).map_err(refused);
        }
        self.above.push(id);
        let column = match &node.kind {
            Kind::Null => Column::Null(0),
            Kind::Boolean => Column::Boolean(BooleanBuilder::new()),
            Kind::Int => Column::Int(Int32Builder::new()),
            Kind::Long => Column::Long(Int64Builder::new()),
            Kind::Float => Column::Float(Float32Builder::new()),
            Kind::Double => Column::Double(Float64Builder::new()),
            Kind::String => Column::Text(StringBuilder::new()),
            Kind::Bytes => Column::Bytes(BinaryBuilder::new()),
            Kind::Fixed(fixed) if self.types == Types::Spark || fixed.size > MAX_WIDTH => {
                Column::Sized(BinaryBuilder::new(), fixed.size)
            }
            Kind::Fixed(fixed) => Column::Fixed(FixedSizeBinaryBuilder::new(fixed.size as i32), fixed.size),
            Kind::Enum(of) => Column::Enum(StringBuilder::new(), of.symbols.clone()),
            Kind::Array(items) => Column::List(vec![0], Vec::new(), self.column(*items, path)?.into()),
            Kind::Map(values) => {
                let values = self.column(*values, path)?.into();
                Column::Map(vec![0], Vec::new(), StringBuilder::new(), values)
            }
            Kind::Record(record) => {
                let field = |field: &forebay_avro::schema::Field| {
                    let dot = if path.is_empty() { "" } else { "." };
                    let path = format!("{path}{dot}{}", field.name);
                    Ok((field.name.clone(), self.column(field.node, &path)?))
                };
                Column::Record(Vec::new(), record.fields.iter().map(field).collect::<Result<_>>()?)
            }
            Kind::Union(branches) => {
                let is_null = |id: &&NodeId| matches!(self.schema.node(**id).kind, Kind::Null);
                let others: Vec<NodeId> = branches.iter().filter(|id| !is_null(id)).copied().collect();
                match &others[..] {
                    [] => Column::Null(0),
                    [one] => self.column(*one, path)?,
                    many => {
                        widest(self.schema, many).ok_or_else(|| refused("it is a union of several types"))?
                    }
                }
            }
        };
        self.above.pop();
        Ok(column)
    }
}

impl Column {
    /// A column of values with a meaning; decimals have up to `precision` digits. An error says why
    /// there can be no such column.
    fn of_logical(logical: Logical, precision: u32, types: Types) -> Result<Self, &'static str> {
        let zone = "UTC";
        Ok(match logical {
            Logical::Date => Self::Date(Date32Builder::new()),
            Logical::TimeMillis | Logical::TimeMicros if types == Types::Spark => {
                Self::Clock(Int64Builder::new())
            }
            Logical::TimeMillis => Self::TimeMillis(Time32MillisecondBuilder::new()),
            Logical::TimeMicros => Self::TimeMicros(Time64MicrosecondBuilder::new()),
            Logical::TimestampMillis if types == Types::Arrow => {
                Self::Millis(TimestampMillisecondBuilder::new().with_timezone(zone))
            }
            Logical::TimestampMillis | Logical::TimestampMicros => {
                Self::Micros(TimestampMicrosecondBuilder::new().with_timezone(zone))
            }
            Logical::LocalTimestampMillis if types == Types::Arrow => {
                Self::Millis(TimestampMillisecondBuilder::new())
            }
            Logical::LocalTimestampMillis | Logical::LocalTimestampMicros => {
                Self::Micros(TimestampMicrosecondBuilder::new())
            }
            Logical::Decimal(scale) if types == Types::Spark => {
                if precision > SMALL {
                    return Err("the decimal has more digits than the 38 of Spark");
                }
                Self::decimal(scale, precision)
            }
            Logical::Decimal(scale) if scale <= SMALL && precision <= SMALL => Self::decimal(scale, SMALL),
            Logical::Decimal(scale) if scale <= LARGE => {
                let kind = DataType::Decimal256(LARGE as u8, scale as i8);
                Self::LargeDecimal(Decimal256Builder::new().with_data_type(kind), scale)
            }
            Logical::Decimal(_) => return Err("the decimal has too many digits"),
            Logical::Uuid => Self::Uuid(StringBuilder::new()),
        })
    }

    /// A column of decimals with digits behind the point, and in all.
    fn decimal(scale: u32, digits: u32) -> Self {
        let kind = DataType::Decimal128(digits as u8, scale as i8);
        Self::Decimal(Decimal128Builder::new().with_data_type(kind), scale, digits)
    }

    /// The size that a value takes in the column, as far as it depends on the value. Fails if the
    /// column cannot have it.
    fn check(&self, cell: &Cell) -> Result<usize> {
        let fits = match (self, cell) {
            (Self::Fixed(_, size), Cell::Null) => return Ok(*size),
            (Self::Record(_, fields), Cell::Null) => {
                return fields.iter().try_fold(1, |sum, (_, column)| Ok(add(sum, column.check(cell)?)));
            }
            (_, Cell::Null)
            | (Self::Boolean(_), Cell::Boolean(_))
            | (Self::Long(_), Cell::Long(_))
            | (Self::Float(_) | Self::Double(_), Cell::Double(_)) => true,
            // Of a union of numbers, whose values stay what they are.
            (Self::Float(_), Cell::Long(value)) => i128::from(*value) == *value as f32 as i128,
            (Self::Double(_), Cell::Long(value)) if i128::from(*value) != *value as f64 as i128 => {
                return Err(bad(format_args!(
                    "{value} has more digits than the column, which is of doubles"
                )));
            }
            (Self::Double(_), Cell::Long(_)) => true,
            (Self::Text(_), Cell::Text(text)) => return Ok(text.len()),
            (Self::Bytes(_), Cell::Bytes(bytes)) => return Ok(bytes.len()),
            (Self::Int(_), Cell::Long(value)) => i32::try_from(*value).is_ok(),
            (Self::Fixed(_, size) | Self::Sized(_, size), Cell::Bytes(bytes)) if bytes.len() == *size => {
                return Ok(*size);
            }
            (Self::Enum(_, symbols), Cell::Symbol(index)) => match symbols.get(*index as usize) {
                Some(symbol) => return Ok(symbol.len()),
                None => false,
            },
            (
                Self::Date(_)
                | Self::TimeMillis(_)
                | Self::TimeMicros(_)
                | Self::Clock(_)
                | Self::Millis(_)
                | Self::Micros(_),
                Cell::Number(logical, value),
            ) => self.time(*logical, *value).is_some(),
            (Self::Decimal(_, scale, digits), cell) => unscaled(cell, *scale).is_some_and(|number| {
                number.to_i128().is_some_and(|number| number.unsigned_abs() < 10u128.pow(*digits))
            }),
            (Self::LargeDecimal(_, scale), cell) => unscaled(cell, *scale).is_some_and(|number| {
                let most = i256::from_i128(10).checked_pow(LARGE).unwrap_or(i256::MAX);
                number < most && number > -most
            }),
            (Self::Uuid(_), Cell::Meant(Logical::Uuid, bytes)) if uuid(bytes).is_some() => return Ok(36),
            (Self::List(_, _, of), Cell::List(items)) => {
                return items.iter().try_fold(items.len(), |sum, item| Ok(add(sum, of.check(item)?)));
            }
            (Self::Map(_, _, _, of), Cell::Map(entries)) => {
                return entries.iter().try_fold(entries.len(), |sum, (key, value)| {
                    Ok(add(add(sum, key.len()), of.check(value)?))
                });
            }
            (Self::Record(_, fields), Cell::Record(cells)) if fields.len() == cells.len() => {
                return fields.iter().zip(cells).try_fold(1, |sum, ((name, column), cell)| {
                    let size = column.check(cell).map_err(|error| {
                        let text =
                            error.message().trim_start_matches("the payload does not fit its schema: ");
                        bad(format_args!("{name}: {text}"))
                    })?;
                    Ok(add(sum, size))
                });
            }
            _ => false,
        };
        if fits { Ok(1) } else { Err(unfit(cell)) }
    }

    /// The number of a time in the unit of the column.
    fn time(&self, from: Logical, value: i64) -> Option<i64> {
        let (own, narrow) = match self {
            Self::Date(_) => {
                return (from == Logical::Date).then(|| i32::try_from(value).ok())?.map(i64::from);
            }
            Self::TimeMillis(_) => (1_000, true),
            Self::Millis(_) => (1_000, false),
            _ => (1_000_000, false),
        };
        let given = match from {
            Logical::TimeMillis | Logical::TimestampMillis | Logical::LocalTimestampMillis => 1_000,
            Logical::TimeMicros | Logical::TimestampMicros | Logical::LocalTimestampMicros => 1_000_000,
            _ => return None,
        };
        let value =
            if own >= given { value.checked_mul(own / given)? } else { value.div_euclid(given / own) };
        if narrow { i32::try_from(value).ok().map(i64::from) } else { Some(value) }
    }

    /// Adds a value that was checked; one that was not becomes null.
    ///
    /// One match over all columns: splitting it would hide which one is missing.
    fn push(&mut self, cell: Cell) {
        let time = match &cell {
            Cell::Number(logical, value) => self.time(*logical, *value),
            _ => None,
        };
        match (self, cell) {
            (Self::Null(rows), _) => *rows += 1,
            (Self::Boolean(of), Cell::Boolean(value)) => of.append_value(value),
            (Self::Boolean(of), _) => of.append_null(),
            (Self::Int(of), Cell::Long(value)) => of.append_option(i32::try_from(value).ok()),
            (Self::Int(of), _) => of.append_null(),
            (Self::Long(of), Cell::Long(value)) => of.append_value(value),
            (Self::Long(of), _) => of.append_null(),
            (Self::Float(of), Cell::Double(value)) => of.append_value(value as f32),
            (Self::Float(of), Cell::Long(value)) => of.append_value(value as f32),
            (Self::Float(of), _) => of.append_null(),
            (Self::Double(of), Cell::Double(value)) => of.append_value(value),
            (Self::Double(of), Cell::Long(value)) => of.append_value(value as f64),
            (Self::Double(of), _) => of.append_null(),
            (Self::Text(of), Cell::Text(value)) => of.append_value(value),
            (Self::Text(of), _) => of.append_null(),
            (Self::Bytes(of), Cell::Bytes(value)) => of.append_value(value),
            (Self::Bytes(of), _) => of.append_null(),
            (Self::Fixed(of, _), Cell::Bytes(value)) => {
                if of.append_value(value).is_err() {
                    of.append_null();
                }
            }
            (Self::Fixed(of, _), _) => of.append_null(),
            (Self::Sized(of, _), Cell::Bytes(value)) => of.append_value(value),
            (Self::Sized(of, _), _) => of.append_null(),
            (Self::Enum(of, symbols), Cell::Symbol(index)) => of.append_option(symbols.get(index as usize)),
            (Self::Enum(of, _), _) => of.append_null(),
            (Self::Date(of), _) => of.append_option(time.map(|days| days as i32)),
            (Self::TimeMillis(of), _) => of.append_option(time.map(|millis| millis as i32)),
            (Self::TimeMicros(of), _) => of.append_option(time),
            (Self::Clock(of), _) => of.append_option(time),
            (Self::Millis(of), _) => of.append_option(time),
            (Self::Micros(of), _) => of.append_option(time),
            (Self::Decimal(of, scale, _), cell) => {
                of.append_option(unscaled(&cell, *scale).and_then(i256::to_i128));
            }
            (Self::LargeDecimal(of, scale), cell) => of.append_option(unscaled(&cell, *scale)),
            (Self::Uuid(of), Cell::Meant(_, bytes)) => of.append_option(uuid(&bytes)),
            (Self::Uuid(of), _) => of.append_null(),
            (Self::List(ends, valid, of), cell) => {
                let (items, is_valid) =
                    if let Cell::List(items) = cell { (items, true) } else { (vec![], false) };
                ends.push(ends.last().copied().unwrap_or(0) + items.len() as i32);
                valid.push(is_valid);
                items.into_iter().for_each(|item| of.push(item));
            }
            (Self::Map(ends, valid, keys, of), cell) => {
                let (entries, is_valid) =
                    if let Cell::Map(entries) = cell { (entries, true) } else { (vec![], false) };
                ends.push(ends.last().copied().unwrap_or(0) + entries.len() as i32);
                valid.push(is_valid);
                for (key, value) in entries {
                    keys.append_value(key);
                    of.push(value);
                }
            }
            (Self::Record(valid, fields), Cell::Record(cells)) => {
                valid.push(true);
                fields.iter_mut().zip(cells).for_each(|((_, column), cell)| column.push(cell));
            }
            (Self::Record(valid, fields), _) => {
                valid.push(false);
                fields.iter_mut().for_each(|(_, column)| column.push(Cell::Null));
            }
        }
    }

    fn finish(self, types: Types) -> std::result::Result<ArrayRef, arrow_schema::ArrowError> {
        let nulls = |valid: Vec<bool>| Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
        Ok(match self {
            Self::Null(rows) => Arc::new(NullArray::new(rows)),
            Self::Boolean(mut of) => Arc::new(of.finish()),
            Self::Int(mut of) => Arc::new(of.finish()),
            Self::Long(mut of) | Self::Clock(mut of) => Arc::new(of.finish()),
            Self::Float(mut of) => Arc::new(of.finish()),
            Self::Double(mut of) => Arc::new(of.finish()),
            Self::Text(mut of) | Self::Enum(mut of, _) | Self::Uuid(mut of) => Arc::new(of.finish()),
            Self::Bytes(mut of) | Self::Sized(mut of, _) => Arc::new(of.finish()),
            Self::Fixed(mut of, _) => Arc::new(of.finish()),
            Self::Date(mut of) => Arc::new(of.finish()),
            Self::TimeMillis(mut of) => Arc::new(of.finish()),
            Self::TimeMicros(mut of) => Arc::new(of.finish()),
            Self::Millis(mut of) => Arc::new(of.finish()),
            Self::Micros(mut of) => Arc::new(of.finish()),
            Self::Decimal(mut of, ..) => Arc::new(of.finish()),
            Self::LargeDecimal(mut of, _) => Arc::new(of.finish()),
            Self::List(ends, valid, of) => {
                let items = of.finish(types)?;
                let name = if types == Types::Spark { "element" } else { "item" };
                let field = Arc::new(Field::new(name, items.data_type().clone(), true));
                Arc::new(ListArray::try_new(field, OffsetBuffer::new(ends.into()), items, nulls(valid))?)
            }
            Self::Map(ends, valid, mut keys, of) => {
                let (keys, values) = (keys.finish(), of.finish(types)?);
                let fields = Fields::from(vec![
                    Field::new("key", DataType::Utf8, false),
                    Field::new("value", values.data_type().clone(), true),
                ]);
                let entries = StructArray::try_new(fields.clone(), vec![Arc::new(keys), values], None)?;
                let field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
                let ends = OffsetBuffer::new(ends.into());
                Arc::new(MapArray::try_new(field, ends, entries, nulls(valid), false)?)
            }
            Self::Record(valid, columns) => {
                let rows = valid.len();
                let mut fields = Vec::with_capacity(columns.len());
                let mut arrays = Vec::with_capacity(columns.len());
                for (name, column) in columns {
                    let array = column.finish(types)?;
                    fields.push(Field::new(name, array.data_type().clone(), true));
                    arrays.push(array);
                }
                Arc::new(StructArray::try_new_with_length(fields.into(), arrays, nulls(valid), rows)?)
            }
        })
    }
}

/// The column of a union of numbers: the one that all of them fit into.
fn widest(schema: &Schema, branches: &[NodeId]) -> Option<Column> {
    let mut rank = 0;
    for id in branches {
        let node = schema.node(*id);
        if node.logical.is_some() {
            return None;
        }
        rank = rank.max(match node.kind {
            Kind::Int => 1,
            Kind::Long => 2,
            Kind::Float => 3,
            Kind::Double => 4,
            _ => return None,
        });
    }
    let has_integers = branches.iter().any(|id| matches!(schema.node(*id).kind, Kind::Int | Kind::Long));
    Some(match rank {
        1 => Column::Int(Int32Builder::new()),
        2 => Column::Long(Int64Builder::new()),
        3 if !has_integers => Column::Float(Float32Builder::new()),
        _ => Column::Double(Float64Builder::new()),
    })
}

/// A decimal as an integer with this many digits behind the point; `None` if that would lose some.
fn unscaled(cell: &Cell, scale: u32) -> Option<i256> {
    let (value, own) = match cell {
        Cell::Decimal(value, own) => (*value, *own),
        Cell::Meant(Logical::Decimal(own), bytes) => (number(bytes)?, *own),
        _ => return None,
    };
    if own == scale || value == i256::ZERO {
        return Some(value);
    }
    let power = i256::from_i128(10).checked_pow(own.abs_diff(scale))?;
    if scale > own {
        return value.checked_mul(power);
    }
    if value.checked_rem(power)? == i256::ZERO { value.checked_div(power) } else { None }
}

/// A big-endian number; `None` if it has more than 256 bits.
fn number(bytes: &[u8]) -> Option<i256> {
    let sign = if bytes.first().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 };
    let start = bytes.iter().position(|byte| *byte != sign).unwrap_or(bytes.len());
    let short = &bytes[start..];
    let mut wide = [sign; 32];
    wide.get_mut(32usize.checked_sub(short.len())?..)?.copy_from_slice(short);
    // The first bit is the sign again.
    (wide[0] & 0x80 == sign & 0x80).then(|| i256::from_be_bytes(wide))
}

/// The text of a UUID, which is a text or 16 bytes.
fn uuid(bytes: &[u8]) -> Option<String> {
    if let Ok(id) = <[u8; 16]>::try_from(bytes) {
        return Some(hyphenated(id));
    }
    super::write::parsed(bytes).map(hyphenated)
}
