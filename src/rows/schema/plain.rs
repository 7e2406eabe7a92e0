//! Schemas of a single value without a definition, in the encodings of the Java client: numbers are
//! big-endian.

use std::sync::LazyLock;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, Int64Array};
use arrow_cast::cast;
use arrow_schema::{DataType, TimeUnit};

use super::Flaw;
use super::cell::{Cell, bad};
use super::column::{Column, Values as Of};
use super::write::{single, sized, text};
use forebay_avro::{Kind, Logical, NodeId, Schema};

type Result<T> = std::result::Result<T, Flaw>;

const NANOS_OF_DAY: i128 = 86_400_000_000_000;

/// A type of single values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// A text.
    Text,
    /// A boolean.
    Boolean,
    /// An integer of this many bytes.
    Integer(usize),
    /// A float of 32 bits.
    Float,
    /// A float of 64 bits.
    Double,
    /// A moment in milliseconds: `DATE` and `TIMESTAMP`.
    Millis,
    /// A moment in seconds and nanoseconds: `INSTANT`.
    Instant,
    /// A time of the day in milliseconds: `TIME`.
    Time,
    /// A number of days: `LOCAL_DATE`.
    LocalDate,
    /// A time of the day in nanoseconds: `LOCAL_TIME`.
    LocalTime,
    /// A number of days and the nanoseconds of the day, without a zone: `LOCAL_DATE_TIME`.
    LocalDateTime,
}

/// The types of Avro with the same values, as the branches of a union.
static TYPES: LazyLock<Schema> = LazyLock::new(|| {
    let union = r#"["string", "boolean", "long", "float", "double"]"#;
    Schema::parse(union.as_bytes()).expect("a valid definition")
});

fn type_of(name: &str) -> NodeId {
    let Kind::Union(branches) = &TYPES.node(TYPES.root()).kind else { return TYPES.root() };
    let is_it = |id: &&NodeId| TYPES.node(**id).kind.describe() == name;
    branches.iter().find(is_it).copied().unwrap_or(TYPES.root())
}

/// The values of a column.
#[derive(Debug)]
pub(super) struct Values {
    array: ArrayRef,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// As the type of Avro that has the same values.
    Same(Column<'static>, usize),
    /// Days, or what is to be multiplied with this for nanoseconds.
    Time(Int64Array, i128, Plain),
}

impl Plain {
    pub(super) fn values(self, array: &ArrayRef) -> Result<Values> {
        let (name, size) = match self {
            Self::Text => ("string", 0),
            Self::Boolean => ("boolean", 1),
            Self::Integer(size) => ("long", size),
            Self::Float => ("float", 4),
            Self::Double => ("double", 8),
            _ => return self.times(array),
        };
        let column = Column::of(&TYPES, type_of(name), array, 0)?;
        Ok(Values { array: array.clone(), form: Form::Same(column, size) })
    }

    fn times(self, array: &ArrayRef) -> Result<Values> {
        let of = array.data_type();
        let unit = |unit: &TimeUnit| match unit {
            TimeUnit::Second => 1_000_000_000,
            TimeUnit::Millisecond => 1_000_000,
            TimeUnit::Microsecond => 1_000,
            TimeUnit::Nanosecond => 1,
        };
        let scale = match (self, of) {
            (Self::Millis | Self::Instant, DataType::Timestamp(own, Some(_)))
            | (Self::LocalDateTime, DataType::Timestamp(own, None))
            | (Self::Time | Self::LocalTime, DataType::Time32(own) | DataType::Time64(own)) => unit(own),
            (Self::LocalDate, DataType::Date32 | DataType::Date64) => 1,
            _ => return Err(Flaw::new(format!("it is {of}, which is no {self:?}"))),
        };
        let plain = match of {
            DataType::Date32 | DataType::Time32(_) => DataType::Int32,
            _ => DataType::Int64,
        };
        let unfit = |error| Flaw::new(format!("a {of} cannot be read: {error}"));
        let numbers = cast(array, &plain).and_then(|array| cast(&array, &DataType::Int64)).map_err(unfit)?;
        let mut numbers: Int64Array = numbers.as_primitive().clone();
        if *of == DataType::Date64 {
            // The day of a moment before 1970 that is no midnight is the one that it lies in.
            numbers = numbers.unary(|ms| ms.div_euclid(86_400_000));
        }
        Ok(Values { array: array.clone(), form: Form::Time(numbers, scale, self) })
    }
}

impl Values {
    pub(super) fn is_null(&self, row: usize) -> bool {
        match &self.form {
            Form::Same(column, _) => column.is_null(row),
            Form::Time(..) => self.array.is_null(row),
        }
    }

    pub(super) fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        let (numbers, scale, kind) = match &self.form {
            Form::Same(column, size) => return write(&column.of, row, *size, out),
            Form::Time(numbers, scale, kind) => (numbers, *scale, *kind),
        };
        let value = i128::from(numbers.value(row)) * scale;
        match kind {
            Plain::LocalDate | Plain::LocalTime => out.extend_from_slice(&sized(value, 8)?.to_be_bytes()),
            Plain::LocalDateTime => {
                out.extend_from_slice(&sized(value.div_euclid(NANOS_OF_DAY), 8)?.to_be_bytes());
                out.extend_from_slice(&(value.rem_euclid(NANOS_OF_DAY) as i64).to_be_bytes());
            }
            Plain::Instant => {
                let seconds = sized(value.div_euclid(1_000_000_000), 8)?;
                out.extend_from_slice(&seconds.to_be_bytes());
                out.extend_from_slice(&(value.rem_euclid(1_000_000_000) as i32).to_be_bytes());
            }
            _ => out.extend_from_slice(&sized(value.div_euclid(1_000_000), 8)?.to_be_bytes()),
        }
        Ok(())
    }
}

fn write(values: &Of<'_>, row: usize, size: usize, out: &mut Vec<u8>) -> Result<()> {
    match values {
        Of::Text(bytes) => out.extend_from_slice(text(bytes, row)?.as_bytes()),
        Of::Boolean(array) => out.push(u8::from(array.value(row))),
        Of::Integer(array, _) => {
            let number = sized(array.value(row), size)?.to_be_bytes();
            out.extend_from_slice(&number[8 - size..]);
        }
        Of::Float(array) => out.extend_from_slice(&single(array.value(row))?.to_be_bytes()),
        Of::Double(array) => out.extend_from_slice(&array.value(row).to_be_bytes()),
        _ => return Err(Flaw::new("it has no values of this type")),
    }
    Ok(())
}

impl Plain {
    /// The value of a payload.
    pub fn cell(self, payload: &[u8]) -> forebay_base::error::Result<Cell> {
        let long = |bytes: &[u8]| -> forebay_base::error::Result<i64> {
            let bytes = <[u8; 8]>::try_from(bytes)
                .map_err(|_| bad(format_args!("expected 8 bytes, got {}", bytes.len())))?;
            Ok(i64::from_be_bytes(bytes))
        };
        let size = |size: usize| bad(format_args!("expected {size} bytes, got {}", payload.len()));
        let local = || -> forebay_base::error::Result<i64> {
            let (days, nanos) = payload.split_at_checked(8).ok_or_else(|| size(16))?;
            let nanos = i64::from_be_bytes(nanos.try_into().map_err(|_| size(16))?);
            let micros = long(days)?.checked_mul(86_400_000_000);
            let micros = micros.and_then(|micros| micros.checked_add(nanos.div_euclid(1000)));
            micros.ok_or_else(|| bad("the time is out of range"))
        };
        let micros = || -> forebay_base::error::Result<i64> {
            let (seconds, nanos) = payload.split_at_checked(8).ok_or_else(|| size(12))?;
            let nanos = i32::from_be_bytes(nanos.try_into().map_err(|_| size(12))?);
            let micros = long(seconds)?.checked_mul(1_000_000);
            let micros = micros.and_then(|micros| micros.checked_add(nanos.div_euclid(1000).into()));
            micros.ok_or_else(|| bad("the time is out of range"))
        };
        Ok(match self {
            Self::Text => {
                Cell::Text(std::str::from_utf8(payload).map_err(|_| bad("it is no UTF-8"))?.to_owned())
            }
            Self::Boolean => match payload {
                [byte] => Cell::Boolean(*byte != 0),
                _ => return Err(size(1)),
            },
            Self::Integer(wanted) => {
                if payload.len() != wanted {
                    return Err(size(wanted));
                }
                let sign = if payload[0] & 0x80 == 0 { 0 } else { 0xff };
                let mut number = [sign; 8];
                number[8 - wanted..].copy_from_slice(payload);
                Cell::Long(i64::from_be_bytes(number))
            }
            Self::Float => {
                let bytes = payload.try_into().map_err(|_| size(4))?;
                Cell::Double(f32::from_be_bytes(bytes).into())
            }
            Self::Double => Cell::Double(f64::from_be_bytes(payload.try_into().map_err(|_| size(8))?)),
            Self::Millis => Cell::Number(Logical::TimestampMillis, long(payload)?),
            Self::Instant => Cell::Number(Logical::TimestampMicros, micros()?),
            // Java's Time is an instant: the day does not matter.
            Self::Time => Cell::Number(Logical::TimeMillis, long(payload)?.rem_euclid(86_400_000)),
            Self::LocalDate => Cell::Number(Logical::Date, long(payload)?),
            Self::LocalTime => Cell::Number(Logical::TimeMicros, long(payload)?.div_euclid(1000)),
            Self::LocalDateTime => Cell::Number(Logical::LocalTimestampMicros, local()?),
        })
    }
}
