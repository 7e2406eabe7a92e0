//! A column, or a part of one, as values of an Avro type.
//!
//! [`Column::of`] decides once for all rows how an Arrow type becomes values of an Avro type, or
//! that it cannot; what only a value can tell (whether a number fits, whether an enum has a symbol)
//! is checked for each. Numbers may become wider or narrower as long as no value changes, apart
//! from digits of floats; what is finer than the unit of a time is cut off.

use arrow_array::cast::AsArray as _;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, Decimal128Array, Decimal256Array,
    FixedSizeBinaryArray, Float64Array, Int64Array, LargeBinaryArray, StructArray, UInt64Array,
};
use arrow_buffer::i256;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field, TimeUnit};

use super::Flaw;
use super::define::is_text;
use crate::columns::uuids_as_text;
use forebay_avro::encode::default_of;
use forebay_avro::schema::{Enum, Record};
use forebay_avro::{Kind, Logical, MAX_DEPTH, NodeId, Schema};
use forebay_base::random::HashMap;

type Result<T> = std::result::Result<T, Flaw>;

/// Values of a type.
#[derive(Debug)]
pub(super) struct Column<'s> {
    /// Says which rows are null.
    pub(super) array: ArrayRef,
    pub(super) of: Values<'s>,
}

/// The values of a column by the type that they are written as.
#[derive(Debug)]
pub(super) enum Values<'s> {
    /// Every row is null, and the type has other values.
    Null,
    /// Null is the only value of the type.
    Nothing,
    Boolean(BooleanArray),
    /// With the size in bytes of the numbers that are written.
    Integer(Integers, usize),
    Float(Float64Array),
    Double(Float64Array),
    Text(Bytes),
    Bytes(Bytes),
    Fixed(Bytes, usize),
    Enum(Bytes, &'s Enum, HashMap<&'s str, u32>),
    /// Days, or a time in the unit that is written, after a change of the unit.
    Time(Int64Array, Unit, usize),
    /// With the digits that are written, and the size of a fixed.
    Decimal(Decimals, Digits, Option<usize>),
    /// Texts, or the 16 bytes; written as text, or as the 16 bytes.
    Uuid {
        from: Bytes,
        is_text: bool,
        to_text: bool,
    },
    Array(Lists, Box<Column<'s>>),
    Map(Lists, Bytes, Box<Column<'s>>),
    Record(Vec<Part<'s>>),
    /// The index of null, and that of the other branch, with its values.
    Union(Option<usize>, usize, Box<Column<'s>>),
}

/// A field of a record.
#[derive(Debug)]
pub(super) struct Part<'s> {
    pub(super) name: &'s str,
    pub(super) from: Source<'s>,
}

#[derive(Debug)]
pub(super) enum Source<'s> {
    Column(Column<'s>),
    /// There is no column: the encoded default.
    Default(Vec<u8>),
}

#[derive(Debug)]
pub(super) enum Integers {
    Signed(Int64Array),
    Unsigned(UInt64Array),
}

/// The change of the unit of a number: a factor or a divisor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    Times(i64),
    By(i64),
}

#[derive(Debug)]
pub(super) enum Decimals {
    Small(Decimal128Array),
    Large(Decimal256Array),
}

/// Values of texts and bytes.
#[derive(Debug)]
pub(super) enum Bytes {
    Small(BinaryArray),
    Large(LargeBinaryArray),
    View(BinaryViewArray),
    Fixed(FixedSizeBinaryArray),
}

impl Bytes {
    pub(super) fn value(&self, row: usize) -> &[u8] {
        match self {
            Self::Small(array) => array.value(row),
            Self::Large(array) => array.value(row),
            Self::View(array) => array.value(row),
            Self::Fixed(array) => array.value(row),
        }
    }

    /// The bytes of texts or of binary values.
    fn of(array: &ArrayRef) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Utf8 => Self::Small(BinaryArray::from(array.as_string::<i32>().clone())),
            DataType::LargeUtf8 => Self::Large(LargeBinaryArray::from(array.as_string::<i64>().clone())),
            DataType::Utf8View => Self::View(array.as_string_view().clone().to_binary_view()),
            DataType::Binary => Self::Small(array.as_binary::<i32>().clone()),
            DataType::LargeBinary => Self::Large(array.as_binary::<i64>().clone()),
            DataType::BinaryView => Self::View(array.as_binary_view().clone()),
            DataType::FixedSizeBinary(_) => Self::Fixed(array.as_fixed_size_binary().clone()),
            _ => return None,
        })
    }
}

/// The bounds of the items of each row.
#[derive(Debug)]
pub(super) enum Lists {
    Small(Vec<i32>),
    Large(Vec<i64>),
    Fixed(usize),
}

impl Lists {
    pub(super) fn range(&self, row: usize) -> std::ops::Range<usize> {
        match self {
            Self::Small(ends) => ends[row] as usize..ends[row + 1] as usize,
            Self::Large(ends) => ends[row] as usize..ends[row + 1] as usize,
            Self::Fixed(size) => row * size..(row + 1) * size,
        }
    }
}

/// Largest fixed for values with a meaning, in bytes: more than any decimal of a column needs.
const MAX_FIXED: usize = 4096;

fn cast(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if array.data_type() == to {
        return Ok(array.clone());
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let unfit = |error| Flaw::new(format!("a {} cannot be read: {error}", array.data_type()));
    cast_with_options(array, to, &options).map_err(unfit)
}

/// The column with its values instead of keys of them.
fn plain(array: &ArrayRef) -> Result<ArrayRef> {
    match array.data_type() {
        DataType::Dictionary(_, of) => plain(&cast(array, of)?),
        DataType::RunEndEncoded(_, of) => plain(&cast(array, of.data_type())?),
        _ => Ok(array.clone()),
    }
}

impl<'s> Column<'s> {
    /// Prepares the values of a field, whose UUIDs are text where the schema has text.
    pub(super) fn of_field(
        schema: &'s Schema,
        id: NodeId,
        field: &Field,
        array: &ArrayRef,
        depth: usize,
    ) -> Result<Self> {
        let is = |id: &NodeId, logical| {
            let node = schema.node(*id);
            matches!(node.kind, Kind::String) && node.logical == logical
        };
        let is_text = match &schema.node(id).kind {
            Kind::Union(branches) => {
                branches.iter().any(|id| is(id, None))
                    && !branches.iter().any(|id| is(id, Some(Logical::Uuid)))
            }
            _ => is(&id, None),
        };
        if !is_text {
            return Self::of(schema, id, array, depth);
        }
        let array = uuids_as_text(field, array).map_err(|error| Flaw::new(error.message()))?;
        Self::of(schema, id, &array, depth)
    }

    /// Prepares the values of `array` as values of the type `id`.
    pub(super) fn of(schema: &'s Schema, id: NodeId, array: &ArrayRef, depth: usize) -> Result<Self> {
        if depth > MAX_DEPTH {
            return Err(Flaw::new(format!("it is nested more than {MAX_DEPTH} deep")));
        }
        let array = plain(array)?;
        let node = schema.node(id);
        if let Kind::Union(branches) = &node.kind {
            return union(schema, branches, &array, depth);
        }
        let kind = array.data_type();
        if *kind == DataType::Null && node.kind != Kind::Null {
            return Ok(Self { of: Values::Null, array });
        }
        let unfit = || Flaw::new(format!("it is {kind}, which is no {}", name(schema, id)));
        let of = match (&node.kind, node.logical) {
            (of, Some(logical)) => meant(of, logical, node.precision, &array).ok_or_else(unfit)??,
            (Kind::Null, _) => Values::Nothing,
            (Kind::Boolean, _) => Values::Boolean(array.as_boolean_opt().ok_or_else(unfit)?.clone()),
            (Kind::Int, _) => Values::Integer(integers(&array)?.ok_or_else(unfit)?, 4),
            (Kind::Long, _) => Values::Integer(integers(&array)?.ok_or_else(unfit)?, 8),
            (Kind::Float | Kind::Double, _) => {
                if !kind.is_floating() && !kind.is_integer() {
                    return Err(unfit());
                }
                if let Some(whole) = integers(&array)? {
                    check_exact(&whole, &array, node.kind == Kind::Float)?;
                }
                let numbers = cast(&array, &DataType::Float64)?.as_primitive().clone();
                if node.kind == Kind::Float { Values::Float(numbers) } else { Values::Double(numbers) }
            }
            (Kind::String, _) => Values::Text(Bytes::of(&array).ok_or_else(unfit)?),
            (Kind::Bytes, _) => Values::Bytes(Bytes::of(&array).ok_or_else(unfit)?),
            (Kind::Fixed(fixed), _) => Values::Fixed(Bytes::of(&array).ok_or_else(unfit)?, fixed.size),
            (Kind::Enum(of), _) => {
                let texts = Bytes::of(&array).filter(|_| is_text(kind)).ok_or_else(unfit)?;
                Values::Enum(texts, of, of.symbols.iter().map(String::as_str).zip(0..).collect())
            }
            (Kind::Array(items), _) => {
                let (lists, item, values) = lists(&array).ok_or_else(unfit)?;
                let items = Self::of_field(schema, *items, item, &values, depth + 1);
                Values::Array(lists, items.map_err(|flaw| flaw.within("[]"))?.into())
            }
            (Kind::Map(values), _) => {
                let map = array.as_map_opt().ok_or_else(unfit)?;
                let parts = map.entries().fields();
                let keys =
                    uuids_as_text(&parts[0], map.keys()).map_err(|error| Flaw::new(error.message()))?;
                let keys = plain(&keys)?;
                let keys = Bytes::of(&keys).filter(|_| is_text(keys.data_type())).ok_or_else(unfit)?;
                let values = Self::of_field(schema, *values, &parts[1], map.values(), depth + 1);
                let values = values.map_err(|flaw| flaw.within("[]"))?.into();
                Values::Map(Lists::Small(map.value_offsets().to_vec()), keys, values)
            }
            (Kind::Record(record), _) => {
                let rows = array.as_struct_opt().ok_or_else(unfit)?;
                Values::Record(parts(schema, record, rows, &[], depth)?)
            }
            (Kind::Union(_), _) => return Err(unfit()),
        };
        Ok(Self { array, of })
    }
}

/// The fields of a record from the columns of a table or a struct. Those named in `beside` need not
/// be fields.
pub(super) fn parts<'s>(
    schema: &'s Schema,
    record: &'s Record,
    rows: &StructArray,
    beside: &[&str],
    depth: usize,
) -> Result<Vec<Part<'s>>> {
    let mut columns: HashMap<&str, (&Field, &ArrayRef)> = HashMap::default();
    for (field, column) in rows.fields().iter().zip(rows.columns()) {
        let name = field.name().as_str();
        if columns.insert(name, (field, column)).is_some() {
            return Err(Flaw::new("there are two columns of this name").within(name));
        }
    }
    let mut made = Vec::with_capacity(record.fields.len());
    for field in &record.fields {
        let name = field.name.as_str();
        let within = |flaw: Flaw| flaw.within(name);
        let from = match (columns.remove(name), &field.default) {
            (Some((of, column)), _) => {
                let column = Column::of_field(schema, field.node, of, column, depth + 1);
                Source::Column(column.map_err(within)?)
            }
            (None, Some(default)) => {
                let encoded = default_of(schema, field.node, default);
                Source::Default(encoded.map_err(|error| Flaw::new(error.message()).within(name))?)
            }
            (None, None) => {
                let text = "there is no such column, and the field has no default";
                return Err(within(Flaw::new(text)));
            }
        };
        made.push(Part { name, from });
    }
    // In the order of the table, so that the error is the same each time.
    let is_extra = |name: &&str| columns.contains_key(name) && !beside.contains(name);
    if let Some(extra) = rows.fields().iter().map(|field| field.name().as_str()).find(is_extra) {
        let fields: Vec<_> = record.fields.iter().map(|field| field.name.as_str()).collect();
        let text = format!("{} has no such field: it has {}", record.name.full, fields.join(", "));
        return Err(Flaw::new(text).within(extra));
    }
    Ok(made)
}

/// The branch that values of a column are of: the one that the type of the column stands for, or
/// the first that can have them.
fn union<'s>(schema: &'s Schema, branches: &[NodeId], array: &ArrayRef, depth: usize) -> Result<Column<'s>> {
    let is_null = |id: &NodeId| matches!(schema.node(*id).kind, Kind::Null);
    let null = branches.iter().position(is_null);
    let mut made: Option<(usize, Column<'s>)> = None;
    let mut last = None;
    for (index, id) in branches.iter().enumerate().filter(|(_, id)| !is_null(id)) {
        if made.is_some() && !is_natural(schema, *id, array.data_type()) {
            continue;
        }
        match Column::of(schema, *id, array, depth + 1) {
            Ok(column) => {
                let is_best = is_natural(schema, *id, array.data_type());
                made = Some((index, column));
                if is_best {
                    break;
                }
            }
            Err(flaw) => last = Some(flaw),
        }
    }
    let (index, of) = match (made, null) {
        (Some(made), _) => made,
        (None, Some(null)) if array.null_count() == array.len() => {
            (null, Column { array: array.clone(), of: Values::Null })
        }
        (None, _) => {
            let many = branches.iter().filter(|id| !is_null(id)).count() > 1;
            let names: Vec<_> = branches.iter().map(|id| name(schema, *id)).collect();
            let none = || {
                Flaw::new(format!(
                    "it is {}, and the field is one of {}",
                    array.data_type(),
                    names.join(", ")
                ))
            };
            return Err(last.filter(|_| !many).unwrap_or_else(none));
        }
    };
    Ok(Column { array: array.clone(), of: Values::Union(null, index, of.into()) })
}

/// Whether a type of Avro is the one that a type of Arrow is defined as.
fn is_natural(schema: &Schema, id: NodeId, of: &DataType) -> bool {
    let node = schema.node(id);
    match (&node.kind, node.logical) {
        (_, Some(Logical::Date)) => matches!(of, DataType::Date32 | DataType::Date64),
        (_, Some(Logical::TimeMillis | Logical::TimeMicros)) => {
            matches!(of, DataType::Time32(_) | DataType::Time64(_))
        }
        (_, Some(Logical::TimestampMillis | Logical::TimestampMicros)) => {
            matches!(of, DataType::Timestamp(_, Some(_)))
        }
        (_, Some(Logical::LocalTimestampMillis | Logical::LocalTimestampMicros)) => {
            matches!(of, DataType::Timestamp(_, None))
        }
        (_, Some(Logical::Decimal(_))) => of.is_decimal(),
        (_, Some(Logical::Uuid)) => matches!(of, DataType::FixedSizeBinary(16)),
        (Kind::Boolean, _) => *of == DataType::Boolean,
        (Kind::Int, _) => of.is_integer() && of.primitive_width().is_some_and(|width| width <= 4),
        (Kind::Long, _) => of.is_integer() && of.primitive_width().is_some_and(|width| width >= 4),
        (Kind::Float, _) => matches!(of, DataType::Float16 | DataType::Float32),
        (Kind::Double, _) => *of == DataType::Float64,
        (Kind::String, _) => of.is_string(),
        (Kind::Bytes, _) => of.is_binary() && !matches!(of, DataType::FixedSizeBinary(_)),
        (Kind::Fixed(fixed), _) => {
            matches!(of, DataType::FixedSizeBinary(size) if usize::try_from(*size) == Ok(fixed.size))
        }
        (Kind::Array(_), _) => of.is_list(),
        (Kind::Map(_), _) => matches!(of, DataType::Map(..)),
        // The names of the fields decide.
        (Kind::Record(_), _) => matches!(of, DataType::Struct(_)),
        (Kind::Null | Kind::Enum(_) | Kind::Union(_), _) => false,
    }
}

/// Name of a type in errors.
fn name(schema: &Schema, id: NodeId) -> String {
    let node = schema.node(id);
    let logical = match node.logical {
        None => return node.kind.describe().to_owned(),
        Some(Logical::Date) => "date",
        Some(Logical::TimeMillis) => "time-millis",
        Some(Logical::TimeMicros) => "time-micros",
        Some(Logical::TimestampMillis) => "timestamp-millis, a time with a zone",
        Some(Logical::TimestampMicros) => "timestamp-micros, a time with a zone",
        Some(Logical::LocalTimestampMillis) => "local-timestamp-millis, a time without a zone",
        Some(Logical::LocalTimestampMicros) => "local-timestamp-micros, a time without a zone",
        Some(Logical::Decimal(_)) => "decimal",
        Some(Logical::Uuid) => "uuid",
    };
    logical.to_owned()
}

fn integers(array: &ArrayRef) -> Result<Option<Integers>> {
    Ok(match array.data_type() {
        DataType::UInt64 => Some(Integers::Unsigned(array.as_primitive().clone())),
        kind if kind.is_integer() => {
            Some(Integers::Signed(cast(array, &DataType::Int64)?.as_primitive().clone()))
        }
        _ => None,
    })
}

/// Refuses integers that a float would change.
fn check_exact(whole: &Integers, array: &ArrayRef, is_single: bool) -> Result<()> {
    let kept = |value: i128| if is_single { value as f32 as i128 } else { value as f64 as i128 };
    let mut values = (0..array.len()).filter(|row| array.is_valid(*row)).map(|row| whole.value(row));
    match values.find(|value| kept(*value) != *value) {
        None => Ok(()),
        Some(value) => {
            let name = if is_single { "float" } else { "double" };
            Err(Flaw::new(format!("{value} has more digits than a {name}")))
        }
    }
}

/// Values with a meaning; `None` if a type of Arrow has another. `precision` is that of a decimal.
fn meant<'s>(kind: &Kind, logical: Logical, precision: u32, array: &ArrayRef) -> Option<Result<Values<'s>>> {
    let of = array.data_type();
    let size = if let Kind::Fixed(fixed) = kind { Some(fixed.size) } else { None };
    if size.is_some_and(|size| size > MAX_FIXED) {
        return Some(Err(Flaw::new(format!("the schema has a fixed of more than {MAX_FIXED} bytes"))));
    }
    let numbers = |to: DataType| -> Result<Int64Array> {
        Ok(cast(&cast(array, &to)?, &DataType::Int64)?.as_primitive().clone())
    };
    let (unit, width) = match logical {
        Logical::Date => {
            return match of {
                DataType::Date32 => {
                    Some(numbers(DataType::Int32).map(|days| Values::Time(days, Unit::Times(1), 4)))
                }
                DataType::Date64 => {
                    Some(numbers(DataType::Int64).map(|ms| Values::Time(ms, Unit::By(86_400_000), 4)))
                }
                _ => None,
            };
        }
        Logical::Decimal(scale) => {
            let numbers = match of {
                DataType::Decimal128(..) => Ok(Decimals::Small(array.as_primitive().clone())),
                DataType::Decimal256(..) => Ok(Decimals::Large(array.as_primitive().clone())),
                DataType::Decimal32(_, own) | DataType::Decimal64(_, own) => {
                    cast(array, &DataType::Decimal128(38, *own))
                        .map(|array| Decimals::Small(array.as_primitive().clone()))
                }
                kind if kind.is_integer() => cast(array, &DataType::Decimal128(38, 0))
                    .map(|array| Decimals::Small(array.as_primitive().clone())),
                _ => return None,
            };
            let digits = Digits::new(scale, precision);
            return Some(numbers.map(|numbers| Values::Decimal(numbers, digits, size)));
        }
        Logical::Uuid => {
            let is_text = match of {
                DataType::FixedSizeBinary(16) => false,
                kind if kind.is_string() => true,
                _ => return None,
            };
            let to_text = size.is_none();
            return Bytes::of(array).map(|from| Ok(Values::Uuid { from, is_text, to_text }));
        }
        Logical::TimeMillis | Logical::TimestampMillis | Logical::LocalTimestampMillis => (1_000, 4),
        Logical::TimeMicros | Logical::TimestampMicros | Logical::LocalTimestampMicros => (1_000_000, 8),
    };
    let (from, is_time) = match (of, logical) {
        (DataType::Time32(unit) | DataType::Time64(unit), Logical::TimeMillis | Logical::TimeMicros) => {
            (unit, true)
        }
        (DataType::Timestamp(unit, Some(_)), Logical::TimestampMillis | Logical::TimestampMicros)
        | (DataType::Timestamp(unit, None), Logical::LocalTimestampMillis | Logical::LocalTimestampMicros) => {
            (unit, false)
        }
        _ => return None,
    };
    let own: i64 = match from {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    let change = if own <= unit { Unit::Times(unit / own) } else { Unit::By(own / unit) };
    let plain = if matches!(of, DataType::Time32(_)) { DataType::Int32 } else { DataType::Int64 };
    Some(numbers(plain).map(|numbers| Values::Time(numbers, change, if is_time { width } else { 8 })))
}

fn lists(array: &ArrayRef) -> Option<(Lists, &Field, ArrayRef)> {
    Some(match array.data_type() {
        DataType::List(item) => {
            let list = array.as_list::<i32>();
            (Lists::Small(list.value_offsets().to_vec()), item, list.values().clone())
        }
        DataType::LargeList(item) => {
            let list = array.as_list::<i64>();
            (Lists::Large(list.value_offsets().to_vec()), item, list.values().clone())
        }
        DataType::FixedSizeList(item, size) => {
            (Lists::Fixed(usize::try_from(*size).ok()?), item, array.as_fixed_size_list().values().clone())
        }
        _ => return None,
    })
}

impl Integers {
    pub(super) fn value(&self, row: usize) -> i128 {
        match self {
            Self::Signed(array) => array.value(row).into(),
            Self::Unsigned(array) => array.value(row).into(),
        }
    }
}

/// Digits of the decimals of a schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digits {
    /// Those behind the point.
    pub(super) scale: u32,
    pub(super) precision: u32,
    /// The first integer with more digits; `None` if none that occurs has more.
    limit: Option<i256>,
}

impl Digits {
    fn new(scale: u32, precision: u32) -> Self {
        Self { scale, precision, limit: i256::from_i128(10).checked_pow(precision) }
    }

    /// Whether an integer has no more digits.
    pub(super) fn admit(&self, unscaled: i256) -> bool {
        self.limit.is_none_or(|limit| unscaled < limit && unscaled > -limit)
    }
}

impl Decimals {
    /// The number of `row` as an integer with this many digits behind the point; `None` if it has
    /// more, or does not fit.
    pub(super) fn unscaled(&self, row: usize, scale: u32) -> Option<i256> {
        let (value, own) = match self {
            Self::Small(array) => (i256::from_i128(array.value(row)), array.scale()),
            Self::Large(array) => (array.value(row), array.scale()),
        };
        let up = i64::from(scale) - i64::from(own);
        if up == 0 || value == i256::ZERO {
            return Some(value);
        }
        let power = i256::from_i128(10).checked_pow(u32::try_from(up.unsigned_abs()).ok()?);
        if up > 0 {
            return value.checked_mul(power?);
        }
        let power = power?;
        (value.checked_rem(power)? == i256::ZERO).then(|| value.checked_div(power))?
    }

    /// The number as text.
    pub(super) fn show(&self, row: usize) -> String {
        match self {
            Self::Small(array) => array.value_as_string(row),
            Self::Large(array) => array.value_as_string(row),
        }
    }
}
