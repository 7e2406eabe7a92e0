//! The columns of a batch by their names, cast to the types that messages have.

use std::sync::Arc;

use arrow_array::Array as _;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Int64Array, MapArray, PrimitiveArray, RecordBatch, StringArray,
    StructArray,
};
use arrow_cast::display::FormatOptions;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, TimeUnit};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::imported::arrow_error;
use crate::schema::hyphenated;
use forebay_base::error::{Error, ErrorKind, Result};

/// The name of the extension type of Arrow for UUIDs.
pub(crate) const UUID: &str = "arrow.uuid";

/// Whether the values of a field are UUIDs, which are text wherever a message has text.
pub(crate) fn is_uuid(field: &Field) -> bool {
    fn is_of_16(kind: &DataType) -> bool {
        match kind {
            DataType::Dictionary(_, of) => is_of_16(of),
            DataType::RunEndEncoded(_, of) => is_of_16(of.data_type()),
            kind => *kind == DataType::FixedSizeBinary(16),
        }
    }
    field.extension_type_name() == Some(UUID) && is_of_16(field.data_type())
}

/// UUIDs as text; other columns as they are.
pub(crate) fn uuids_as_text(field: &Field, array: &ArrayRef) -> Result<ArrayRef> {
    if !is_uuid(field) {
        return Ok(Arc::clone(array));
    }
    let ids = cast_array(array, &DataType::FixedSizeBinary(16), arrow_error)?;
    let text = |id: Option<&[u8]>| id.and_then(|id| id.try_into().ok()).map(hyphenated);
    Ok(Arc::new(ids.as_fixed_size_binary().iter().map(text).collect::<StringArray>()))
}

pub(crate) fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, text)
}

pub(crate) fn index(batch: &RecordBatch, name: &str) -> Result<usize> {
    batch.schema_ref().index_of(name).map_err(|_| {
        let known: Vec<_> = batch.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
        invalid(format!("the table has no column {name:?}; it has {}", known.join(", ")))
    })
}

/// Not "safe": what does not fit is an error, never a null.
pub(crate) const STRICT: CastOptions<'_> = CastOptions { safe: false, format_options: FormatOptions::new() };

pub(crate) fn cast_array(
    array: &ArrayRef,
    to: &DataType,
    wrong: impl FnOnce(ArrowError) -> Error,
) -> Result<ArrayRef> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    cast_with_options(array, to, &STRICT).map_err(wrong)
}

pub(crate) fn cast_column(batch: &RecordBatch, name: &str, to: &DataType, wanted: &str) -> Result<ArrayRef> {
    let column = batch.column(index(batch, name)?);
    let wrong = |_| invalid(format!("column {name:?} is {}, which is not {wanted}", column.data_type()));
    cast_array(column, to, wrong)
}

/// The payloads, which are sent as they are. A number has no bytes of its own.
pub(crate) fn payload_column(batch: &RecordBatch, name: &str) -> Result<ArrayRef> {
    let kind = batch.column(index(batch, name)?).data_type().clone();
    let bytes = |kind: &DataType| is_of_bytes(kind) || kind.is_string();
    let known = match &kind {
        DataType::Null => true,
        DataType::Dictionary(_, of) => bytes(of),
        kind => bytes(kind),
    };
    if !known {
        return Err(invalid(format!(
            "column {name:?} is {kind}, which is not binary or text: cast it to text, or use encoding='json'"
        )));
    }
    cast_column(batch, name, &DataType::Binary, "binary or text")
}

pub(crate) fn is_of_bytes(kind: &DataType) -> bool {
    kind.is_binary() || matches!(kind, DataType::FixedSizeBinary(_))
}

/// The Base64 of the bytes of a column.
pub(crate) fn base64_column(batch: &RecordBatch, name: &str) -> Result<StringArray> {
    let column = cast_column(batch, name, &DataType::Binary, "binary")?;
    Ok(encoded(column.as_binary()))
}

/// The Base64 of bytes.
pub(crate) fn encoded(bytes: &BinaryArray) -> StringArray {
    bytes.iter().map(|bytes| bytes.map(|bytes| STANDARD.encode(bytes))).collect()
}

/// Whether a column has bytes that are no UUIDs.
pub(crate) fn is_column_of_bytes(batch: &RecordBatch, name: &str) -> Result<bool> {
    let schema = batch.schema_ref();
    let field = schema.field(index(batch, name)?);
    Ok(is_of_bytes(field.data_type()) && !is_uuid(field))
}

/// A column as text.
pub(crate) fn text_column(batch: &RecordBatch, name: &str) -> Result<StringArray> {
    let at = index(batch, name)?;
    if is_uuid(batch.schema_ref().field(at)) {
        let ids = uuids_as_text(batch.schema_ref().field(at), batch.column(at))?;
        return Ok(ids.as_string().clone());
    }
    let column = cast_column(batch, name, &DataType::Utf8, "text")?;
    Ok(column.as_any().downcast_ref::<StringArray>().expect("cast to it").clone())
}

/// A column of whole numbers.
pub(crate) fn whole_column(batch: &RecordBatch, name: &str) -> Result<Int64Array> {
    let kind = batch.column(index(batch, name)?).data_type();
    if !kind.is_integer() && *kind != DataType::Null {
        return Err(invalid(format!("column {name:?} is {kind}, which is not a whole number")));
    }
    let column = cast_column(batch, name, &DataType::Int64, "a whole number")?;
    Ok(column.as_primitive::<Int64Type>().clone())
}

/// A column of booleans.
pub(crate) fn flag_column(batch: &RecordBatch, name: &str) -> Result<BooleanArray> {
    let kind = batch.column(index(batch, name)?).data_type();
    if !matches!(kind, DataType::Boolean | DataType::Null) {
        return Err(invalid(format!("column {name:?} is {kind}, which is not a boolean")));
    }
    Ok(cast_column(batch, name, &DataType::Boolean, "a boolean")?.as_boolean().clone())
}

/// Milliseconds since 1970 of a timestamp of any unit, of a date (its midnight in UTC), or of whole
/// numbers.
pub(crate) fn time_column(batch: &RecordBatch, name: &str) -> Result<Int64Array> {
    let column = batch.column(index(batch, name)?);
    let milliseconds = match column.data_type() {
        DataType::Timestamp(_, zone) => {
            let to = DataType::Timestamp(TimeUnit::Millisecond, zone.clone());
            let column = cast_column(batch, name, &to, "a timestamp")?;
            let times = column.as_any().downcast_ref::<PrimitiveArray<TimestampMillisecondType>>();
            times.expect("cast to it").reinterpret_cast::<Int64Type>()
        }
        DataType::Date32 | DataType::Date64 => {
            let to = DataType::Timestamp(TimeUnit::Millisecond, None);
            let column = cast_column(batch, name, &to, "a date")?;
            column.as_primitive::<TimestampMillisecondType>().reinterpret_cast::<Int64Type>()
        }
        kind if !kind.is_integer() && *kind != DataType::Null => {
            return Err(invalid(format!(
                "column {name:?} is {kind}, which is not a timestamp, a date or whole milliseconds since 1970"
            )));
        }
        _ => {
            let column = cast_column(batch, name, &DataType::Int64, "a timestamp or milliseconds")?;
            column.as_any().downcast_ref::<Int64Array>().expect("cast to it").clone()
        }
    };
    Ok(milliseconds)
}

/// Names and values for each row.
pub(crate) enum PropertyColumn {
    Map {
        map: Box<MapArray>,
        names: StringArray,
        values: StringArray,
    },
    /// The fields' names are the properties'; what is null is left out.
    Struct {
        of: StructArray,
        fields: Vec<(String, StringArray)>,
    },
}

pub(crate) fn property_column(batch: &RecordBatch, name: &str) -> Result<PropertyColumn> {
    let column = batch.column(index(batch, name)?);
    let wrong = || {
        let kind = column.data_type();
        invalid(format!(
            "column {name:?} is {kind}, which is neither a map of text to text nor a struct of texts"
        ))
    };
    let text = |field: &Field, array: &ArrayRef| -> Result<StringArray> {
        let array = cast_array(&uuids_as_text(field, array)?, &DataType::Utf8, |_| wrong())?;
        Ok(array.as_any().downcast_ref::<StringArray>().expect("cast to it").clone())
    };
    if let Some(map) = column.as_any().downcast_ref::<MapArray>() {
        let parts = map.entries().fields();
        let (names, values) = (text(&parts[0], map.keys())?, text(&parts[1], map.values())?);
        return Ok(PropertyColumn::Map { map: Box::new(map.clone()), names, values });
    }
    let of = column.as_any().downcast_ref::<StructArray>().ok_or_else(wrong)?.clone();
    let fields = of.fields().iter().zip(of.columns());
    let fields = fields.map(|(field, values)| Ok((field.name().clone(), text(field, values)?)));
    Ok(PropertyColumn::Struct { fields: fields.collect::<Result<_>>()?, of })
}

impl PropertyColumn {
    pub(crate) fn pairs(&self, row: usize) -> Vec<(String, String)> {
        match self {
            Self::Map { map, .. } if map.is_null(row) => Vec::new(),
            Self::Struct { of, .. } if of.is_null(row) => Vec::new(),
            Self::Map { map, names, values } => {
                let offsets = map.value_offsets();
                (offsets[row] as usize..offsets[row + 1] as usize)
                    .filter(|at| values.is_valid(*at))
                    .map(|at| (names.value(at).to_owned(), values.value(at).to_owned()))
                    .collect()
            }
            Self::Struct { fields, .. } => fields
                .iter()
                .filter(|(_, values)| values.is_valid(row))
                .map(|(name, values)| (name.clone(), values.value(row).to_owned()))
                .collect(),
        }
    }
}
