//! The rows of a batch as JSON objects, in the form that Spark's `to_json` gives them.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, LazyLock, OnceLock};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray, MapArray, RecordBatch, StringArray};
use arrow_cast::cast_with_options;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_json::writer::{Encoder, EncoderFactory, EncoderOptions, NullableEncoder, make_encoder};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::columns::{STRICT, cast_array, encoded, invalid, is_of_bytes, is_uuid, uuids_as_text};
use crate::imported::arrow_error;
use crate::schema::hyphenated;
use forebay_base::error::Result;

/// The type that values are written from as JSON. Time zones become UTC, whose offset is known
/// without a database of zones: moments do not change by that, how they are written does.
/// Dictionaries and runs become plain values: of their nulls, arrow-json sees only those among the
/// indices, not those among the values.
fn written(kind: &DataType) -> Result<DataType> {
    let field = |field: &Arc<Field>| -> Result<Arc<Field>> {
        Ok(Arc::new(field.as_ref().clone().with_data_type(written(field.data_type())?)))
    };
    Ok(match kind {
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("+00:00".into())),
        DataType::Dictionary(_, of) => written(of)?,
        DataType::RunEndEncoded(_, of) => written(of.data_type())?,
        DataType::List(item) => DataType::List(field(item)?),
        DataType::LargeList(item) => DataType::LargeList(field(item)?),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(field(item)?, *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect::<Result<_>>()?),
        DataType::Map(entries, sorted) => {
            let DataType::Struct(parts) = entries.data_type() else { return Ok(kind.clone()) };
            let [key, value] = &parts[..] else { return Ok(kind.clone()) };
            let (key, value) = (field(key)?, field(value)?);
            if key.data_type().is_nested() {
                return Err(invalid(format!(
                    "the keys of a map are {}, and JSON has keys of text only: make the map a list of structs",
                    key.data_type()
                )));
            }
            let parts = DataType::Struct([key, value].into_iter().collect());
            DataType::Map(Arc::new(entries.as_ref().clone().with_data_type(parts)), *sorted)
        }
        other => other.clone(),
    })
}

/// The values that JSON has no form for, in the form that Spark's `to_json` gives them: bytes as
/// Base64, the floats that are no numbers as text, and maps with all their keys. Other values are
/// written as arrow-json writes them.
#[derive(Debug, Default)]
struct AsSpark {
    /// Why a value cannot be written. arrow-json itself would write a text about the error as the
    /// value.
    flaw: Arc<OnceLock<String>>,
}

impl EncoderFactory for AsSpark {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        options: &'a EncoderOptions,
    ) -> std::result::Result<Option<NullableEncoder<'a>>, ArrowError> {
        static PLAIN: LazyLock<EncoderOptions> = LazyLock::new(EncoderOptions::default);
        let bytes =
            |at: Box<dyn Fn(usize) -> &'a [u8] + 'a>| -> Box<dyn Encoder + 'a> { Box::new(Base64(at)) };
        let numbers = |at: Box<dyn Fn(usize) -> f64 + 'a>| -> std::result::Result<_, ArrowError> {
            // The usual array has none of them, and costs no more than this look.
            if (0..array.len()).all(|row| at(row).is_finite()) {
                return Ok(None);
            }
            let finite = make_encoder(field, array, &PLAIN)?;
            Ok(Some(Box::new(Float { at, finite }) as Box<dyn Encoder + 'a>))
        };
        let encoder = match array.data_type() {
            DataType::Binary => Some(bytes(Box::new(|row| array.as_binary::<i32>().value(row)))),
            DataType::LargeBinary => Some(bytes(Box::new(|row| array.as_binary::<i64>().value(row)))),
            DataType::BinaryView => Some(bytes(Box::new(|row| array.as_binary_view().value(row)))),
            DataType::FixedSizeBinary(16) if is_uuid(field) => {
                Some(Box::new(Ids(array.as_fixed_size_binary())) as Box<dyn Encoder>)
            }
            DataType::FixedSizeBinary(_) => {
                Some(bytes(Box::new(|row| array.as_fixed_size_binary().value(row))))
            }
            DataType::Float32 => {
                numbers(Box::new(|row| array.as_primitive::<Float32Type>().value(row).into()))?
            }
            DataType::Float64 => numbers(Box::new(|row| array.as_primitive::<Float64Type>().value(row)))?,
            // arrow-json itself gives items the field of their list.
            DataType::List(item) if is_extended(item) => {
                let list = array.as_list::<i32>();
                let ends = list.value_offsets();
                let range = Box::new(|row: usize| ends[row] as usize..ends[row + 1] as usize);
                Some(Box::new(Items { range, values: make_encoder(item, list.values(), options)? }) as _)
            }
            DataType::LargeList(item) if is_extended(item) => {
                let list = array.as_list::<i64>();
                let ends = list.value_offsets();
                let range = Box::new(|row: usize| ends[row] as usize..ends[row + 1] as usize);
                Some(Box::new(Items { range, values: make_encoder(item, list.values(), options)? }) as _)
            }
            DataType::FixedSizeList(item, size) if is_extended(item) => {
                let (list, size) = (array.as_fixed_size_list(), *size as usize);
                let range = Box::new(move |row: usize| row * size..(row + 1) * size);
                Some(Box::new(Items { range, values: make_encoder(item, list.values(), options)? }) as _)
            }
            DataType::Map(..) => Some(Box::new(Entries::of(array.as_map(), options)?) as _),
            kind if kind.is_temporal() => {
                let formatter = ArrayFormatter::try_new(array, &FormatOptions::default())?;
                Some(Box::new(Moment { formatter, flaw: Arc::clone(&self.flaw) }) as _)
            }
            _ => None,
        };
        Ok(encoder.map(|encoder| NullableEncoder::new(encoder, array.nulls().cloned())))
    }
}

/// Bytes as a JSON string in Base64.
struct Base64<'a>(Box<dyn Fn(usize) -> &'a [u8] + 'a>);

impl Encoder for Base64<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        out.push(b'"');
        out.extend_from_slice(STANDARD.encode((self.0)(row)).as_bytes());
        out.push(b'"');
    }
}

/// Whether items are UUIDs, or lists of such.
fn is_extended(item: &Field) -> bool {
    match item.data_type() {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            is_extended(item)
        }
        _ => is_uuid(item),
    }
}

/// The items of lists.
struct Items<'a> {
    range: Box<dyn Fn(usize) -> Range<usize> + 'a>,
    values: NullableEncoder<'a>,
}

impl Encoder for Items<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        out.push(b'[');
        for (index, at) in (self.range)(row).enumerate() {
            if index > 0 {
                out.push(b',');
            }
            if self.values.is_null(at) {
                out.extend_from_slice(b"null");
            } else {
                self.values.encode(at, out);
            }
        }
        out.push(b']');
    }
}

/// UUIDs as text.
struct Ids<'a>(&'a FixedSizeBinaryArray);

impl Encoder for Ids<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let id = hyphenated(self.0.value(row).try_into().expect("16 bytes"));
        out.push(b'"');
        out.extend_from_slice(id.as_bytes());
        out.push(b'"');
    }
}

/// Floats, of which some are not finite.
struct Float<'a> {
    at: Box<dyn Fn(usize) -> f64 + 'a>,
    finite: NullableEncoder<'a>,
}

impl Encoder for Float<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let value = (self.at)(row);
        match value {
            _ if value.is_finite() => self.finite.encode(row, out),
            _ if value.is_nan() => out.extend_from_slice(b"\"NaN\""),
            _ if value > 0.0 => out.extend_from_slice(b"\"Infinity\""),
            _ => out.extend_from_slice(b"\"-Infinity\""),
        }
    }
}

/// The entries of maps. What arrow-json itself leaves out are the keys whose values are null.
struct Entries<'a> {
    ends: &'a [i32],
    keys: StringArray,
    values: NullableEncoder<'a>,
}

impl<'a> Entries<'a> {
    fn of(map: &'a MapArray, options: &'a EncoderOptions) -> std::result::Result<Self, ArrowError> {
        if map.keys().null_count() > 0 || map.entries().null_count() > 0 {
            return Err(ArrowError::InvalidArgumentError("a key of a map is null".to_owned()));
        }
        let DataType::Map(entries, _) = map.data_type() else { unreachable!("the type of a map") };
        let DataType::Struct(parts) = entries.data_type() else { unreachable!("entries are structs") };
        let keys = if is_uuid(&parts[0]) {
            let ids = uuids_as_text(&parts[0], map.keys());
            ids.map_err(|error| ArrowError::InvalidArgumentError(error.message().to_owned()))?
                .as_string()
                .clone()
        } else if is_of_bytes(map.keys().data_type()) {
            let keys = cast_with_options(map.keys(), &DataType::Binary, &STRICT)?;
            encoded(keys.as_binary())
        } else {
            cast_with_options(map.keys(), &DataType::Utf8, &STRICT)?.as_string().clone()
        };
        Ok(Self { ends: map.value_offsets(), keys, values: make_encoder(&parts[1], map.values(), options)? })
    }
}

impl Encoder for Entries<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        out.push(b'{');
        let entries = self.ends[row] as usize..self.ends[row + 1] as usize;
        for (index, at) in entries.enumerate() {
            if index > 0 {
                out.push(b',');
            }
            serde_json::to_writer(&mut *out, self.keys.value(at)).expect("text has a form as JSON");
            out.push(b':');
            if self.values.is_null(at) {
                out.extend_from_slice(b"null");
            } else {
                self.values.encode(at, out);
            }
        }
        out.push(b'}');
    }
}

/// Times, dates and spans, of which some may be so far away that they have no form as text.
struct Moment<'a> {
    formatter: ArrayFormatter<'a>,
    flaw: Arc<OnceLock<String>>,
}

impl Encoder for Moment<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        /// Text behind bytes.
        struct Behind<'a>(&'a mut Vec<u8>);

        impl fmt::Write for Behind<'_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0.extend_from_slice(text.as_bytes());
                Ok(())
            }
        }

        out.push(b'"');
        if let Err(error) = self.formatter.value(row).write(&mut Behind(out)) {
            self.flaw.get_or_init(|| format!("a value has no form as text: {error}"));
        }
        out.push(b'"');
    }
}

/// One JSON object a line; nulls are left out, as Spark's `to_json` does.
pub(crate) fn json_lines(batch: &RecordBatch) -> Result<Vec<u8>> {
    let schema = batch.schema_ref();
    let field = |field: &FieldRef| -> Result<Field> {
        Ok(field.as_ref().clone().with_data_type(written(field.data_type())?))
    };
    let fields: Vec<Field> = schema.fields().iter().map(field).collect::<Result<_>>()?;
    let columns: Vec<ArrayRef> = batch
        .columns()
        .iter()
        .zip(&fields)
        .map(|(column, field)| cast_array(column, field.data_type(), arrow_error))
        .collect::<Result<_>>()?;
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(arrow_error)?;
    let encoders = AsSpark::default();
    let flaw = Arc::clone(&encoders.flaw);
    let mut writer = arrow_json::writer::WriterBuilder::new()
        .with_encoder_factory(Arc::new(encoders))
        .build::<_, arrow_json::writer::LineDelimited>(Vec::new());
    writer.write(&batch).and_then(|()| writer.finish()).map_err(arrow_error)?;
    match flaw.get() {
        Some(flaw) => Err(invalid(flaw.clone())),
        None => Ok(writer.into_inner()),
    }
}
