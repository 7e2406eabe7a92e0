//! The rows of a frame as messages: the roles of the columns, and the encoding. Nothing is sent
//! here, so that a row that cannot be sent is refused before any other row is sent.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float32Type, Float64Type, Int64Type, TimestampMillisecondType};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Int64Array, MapArray, PrimitiveArray, RecordBatch,
    StringArray, StructArray, UInt32Array,
};
use arrow_buffer::Buffer;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_json::writer::{Encoder, EncoderFactory, EncoderOptions, NullableEncoder, make_encoder};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, TimeUnit};
use arrow_select::take::take_record_batch;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use forebay_base::error::{Error, ErrorKind, Result};

mod buffer;
mod imported;
pub mod schema;
#[cfg(test)]
mod tests;
mod topics;

use buffer::NewRow;
pub use buffer::{BadRow, Cursor, Rare, RowRef, Rows};
use imported::check_offsets;
pub use imported::{Imported, arrow_error};
pub use schema::RowSchema;
pub use topics::{Naming, Part, Topics};

/// The roles of the columns.
#[derive(Debug, Default)]
pub struct Columns {
    /// The payload; all columns by default with JSON.
    pub value: Option<String>,
    /// Whether payloads are JSON objects of the rows.
    pub json: bool,
    /// The form of the payloads, instead of JSON objects or the bytes of `value`.
    pub schema: Option<RowSchema>,
    /// The key.
    pub key: Option<String>,
    /// Whether a key of bytes becomes the Base64 of them; otherwise it has to be UTF-8.
    pub keys_of_bytes: bool,
    /// Text or bytes.
    pub ordering_key: Option<String>,
    /// The topic of each row.
    pub topic: Option<Topics>,
    /// Rules for these topics.
    pub naming: Naming,
    /// A map of text to text, or a struct of texts.
    pub properties: Option<String>,
    /// A timestamp, or milliseconds since 1970.
    pub event_time: Option<String>,
    /// The same, for the earliest delivery.
    pub deliver_at: Option<String>,
    /// Text.
    pub message_type: Option<String>,
    /// Whole numbers from 0 to 2.
    pub qos: Option<String>,
    /// Booleans.
    pub retain: Option<String>,
    /// Number of the first row.
    pub first_row: u64,
    /// A property with an id for each row: its name, and the text before the row's number.
    pub id: Option<(String, String)>,
    /// Sequence id of the row with number 0; the others follow it. Without it the producer gives
    /// them theirs.
    pub sequence: Option<u64>,
    /// Whether a row that cannot be a message is left out, instead of being an error for all.
    pub leaves_out: bool,
}

impl Columns {
    /// The columns that are not part of the payload.
    fn beside(&self) -> Vec<&str> {
        let named = [
            &self.key,
            &self.ordering_key,
            &self.properties,
            &self.event_time,
            &self.deliver_at,
            &self.message_type,
            &self.qos,
            &self.retain,
        ];
        let topics = self.topic.iter().flat_map(Topics::columns);
        named.into_iter().flatten().map(String::as_str).chain(topics).collect()
    }
}

/// The fields of the rows of a batch beside their payloads.
struct Beside<'a> {
    columns: &'a Columns,
    first_row: u64,
    keys: Option<StringArray>,
    key_is_base64: bool,
    topics: Option<StringArray>,
    times: Option<Int64Array>,
    properties: Option<PropertyColumn>,
    ordering_keys: Option<BinaryArray>,
    delivery_times: Option<Int64Array>,
    message_types: Option<StringArray>,
    qos: Option<Int64Array>,
    retain: Option<BooleanArray>,
}

impl<'a> Beside<'a> {
    fn of(batch: &RecordBatch, columns: &'a Columns, first_row: u64) -> Result<Self> {
        let texts = |name: &String| text_column(batch, name);
        let times = |name: &String| time_column(batch, name);
        let of_bytes = match &columns.key {
            Some(name) if columns.keys_of_bytes => is_of_bytes(batch.column(index(batch, name)?).data_type()),
            _ => false,
        };
        let keys = match &columns.key {
            Some(name) if of_bytes => Some(base64_column(batch, name)?),
            other => other.as_ref().map(texts).transpose()?,
        };
        let topics = columns.topic.as_ref();
        let ordering_key = |name: &String| -> Result<_> {
            let column = batch.column(index(batch, name)?);
            if !is_of_bytes(column.data_type()) {
                return Ok(BinaryArray::from(text_column(batch, name)?));
            }
            let column = cast_column(batch, name, &DataType::Binary, "binary")?;
            Ok(column.as_any().downcast_ref::<BinaryArray>().expect("cast to it").clone())
        };
        Ok(Self {
            columns,
            first_row,
            keys,
            key_is_base64: of_bytes,
            topics: topics
                .map(|topics| {
                    topics.of(columns.naming, batch.num_rows(), first_row, |name| text_column(batch, name))
                })
                .transpose()?,
            times: columns.event_time.as_ref().map(times).transpose()?,
            properties: columns.properties.as_deref().map(|name| property_column(batch, name)).transpose()?,
            ordering_keys: columns.ordering_key.as_ref().map(ordering_key).transpose()?,
            delivery_times: columns.deliver_at.as_ref().map(times).transpose()?,
            message_types: columns.message_type.as_ref().map(texts).transpose()?,
            qos: columns.qos.as_ref().map(|name| whole_column(batch, name)).transpose()?,
            retain: columns.retain.as_ref().map(|name| flag_column(batch, name)).transpose()?,
        })
    }

    fn push(&self, rows: &mut Rows, row: usize, payload: Option<&[u8]>) -> Result<()> {
        fn text(column: Option<&StringArray>, row: usize) -> Option<&str> {
            column.filter(|column| column.is_valid(row)).map(|column| column.value(row))
        }
        let number = self.first_row + row as u64;
        let time = |column: &Option<Int64Array>, name: &str| {
            let time = column.as_ref().filter(|times| times.is_valid(row)).map(|times| times.value(row));
            if let Some(time) = time.filter(|time| *time < 0) {
                let text = format!(
                    "{name} of row {number} is {time}: give milliseconds since 1970, or null for none"
                );
                return Err(Error::new(ErrorKind::InvalidArgument, text));
            }
            Ok(time)
        };
        let event_time = time(&self.times, "event_time")?.map_or(0, i64::cast_unsigned);
        let mut properties = self.properties.as_ref().map_or(Vec::new(), |column| column.pairs(row));
        if let Some((name, before)) = &self.columns.id {
            properties.push((name.clone(), format!("{before}/{number}")));
        }
        let has_rare = self.ordering_keys.is_some()
            || self.delivery_times.is_some()
            || self.message_types.is_some()
            || self.qos.is_some()
            || self.retain.is_some();
        let rare = || -> Result<Rare> {
            let ordering_key = self.ordering_keys.as_ref().filter(|keys| keys.is_valid(row));
            Ok(Rare {
                ordering_key: ordering_key.map(|keys| keys.value(row).into()),
                deliver_at: time(&self.delivery_times, "deliver_at")?,
                message_type: text(self.message_types.as_ref(), row).map(Into::into),
                qos: self.qos(row, number)?,
                retain: self
                    .retain
                    .as_ref()
                    .filter(|flags| flags.is_valid(row))
                    .map(|flags| flags.value(row)),
            })
        };
        let (key, topic) = (text(self.keys.as_ref(), row), text(self.topics.as_ref(), row));
        let rare = has_rare.then(rare).transpose()?;
        let properties = &properties;
        rows.push_row(NewRow { number, payload, key, topic, event_time, properties, rare });
        Ok(())
    }

    fn qos(&self, row: usize, number: u64) -> Result<Option<u8>> {
        let Some(qos) = self.qos.as_ref().filter(|column| column.is_valid(row)) else { return Ok(None) };
        match qos.value(row) {
            qos @ 0..=2 => Ok(Some(qos as u8)),
            other => Err(invalid(format!(
                "the QoS of row {number} is {other}: give 0, 1 or 2, or null for that of the producer"
            ))),
        }
    }
}

/// Encodes every row.
///
/// # Errors
///
/// A column that is missing or has another type, and unless they are left out, a row that cannot be
/// sent, or a text that is not UTF-8: the error names the column and the row.
pub fn encode(table: Imported, columns: &Columns) -> Result<Rows> {
    if !columns.leaves_out {
        return encode_all(table, columns, columns.first_row);
    }
    let mut rows = Rows::default();
    rows.bad = Some(Vec::new());
    let mut first_row = columns.first_row;
    for batch in table.into_batches() {
        // What fails without any row is the fault of a column.
        encode_all(Imported::new(vec![RecordBatch::new_empty(batch.schema())]), columns, first_row)?;
        check_offsets(&batch)?;
        encode_some(&batch, columns, first_row, &mut rows)?;
        first_row += batch.num_rows() as u64;
    }
    Ok(rows)
}

/// Encodes the rows that can be messages. Halves of halves, so that few bad rows cost little.
fn encode_some(batch: &RecordBatch, columns: &Columns, first_row: u64, rows: &mut Rows) -> Result<()> {
    match encode_all(Imported::new(vec![batch.clone()]), columns, first_row) {
        Ok(part) => rows.append(part),
        Err(error) if batch.num_rows() == 1 => {
            rows.bad.get_or_insert_default().push(BadRow { number: first_row, error, bytes: 0 });
        }
        Err(_) => {
            // Not slices: those of lists and maps keep the values of all rows.
            let part = |from: usize, to: usize| {
                let rows = UInt32Array::from_iter_values(from as u32..to as u32);
                take_record_batch(batch, &rows).map_err(arrow_error)
            };
            let half = batch.num_rows() / 2;
            encode_some(&part(0, half)?, columns, first_row, rows)?;
            encode_some(&part(half, batch.num_rows())?, columns, first_row + half as u64, rows)?;
        }
    }
    Ok(())
}

fn encode_all(table: Imported, columns: &Columns, first_row: u64) -> Result<Rows> {
    let is_raw = !columns.json && columns.schema.is_none();
    let as_bytes = is_raw.then(|| columns.value.as_deref().unwrap_or("value"));
    let batches = table.check(first_row, as_bytes)?;
    let mut rows = Rows::default();
    rows.sequence = columns.sequence;
    for batch in &batches {
        let beside = Beside::of(batch, columns, first_row + rows.len() as u64)?;
        rows.key_is_base64 = beside.key_is_base64;
        if let Some(schema) = &columns.schema {
            let others = columns.beside();
            let values = schema::Values::of(schema, batch, columns.value.as_deref(), &others)?;
            let mut payload = Vec::new();
            for row in 0..batch.num_rows() {
                payload.clear();
                let is_value = values.write(row, beside.first_row + row as u64, &mut payload)?;
                beside.push(&mut rows, row, is_value.then_some(&payload))?;
            }
        } else if columns.json {
            let source = match &columns.value {
                None => batch.clone(),
                Some(name) => batch.project(&[index(batch, name)?]).map_err(arrow_error)?,
            };
            let before = rows.len();
            let text =
                json_lines(&source).map_err(|error| no_json(&source, first_row + before as u64, error))?;
            // JSON escapes line ends inside strings, so each line is a row.
            for (row, line) in text.split(|b| *b == b'\n').filter(|line| !line.is_empty()).enumerate() {
                beside.push(&mut rows, row, Some(line))?;
            }
            if rows.len() - before != batch.num_rows() {
                return Err(invalid("a row of the table cannot be written as JSON"));
            }
        } else {
            let name = columns.value.as_deref().unwrap_or("value");
            let values = payload_column(batch, name)?;
            let values = values.as_any().downcast_ref::<BinaryArray>().expect("cast to it");
            if batches.len() == 1
                && let Some(bytes) = values_in_a_row(values)
            {
                rows.share(bytes);
            }
            for row in 0..batch.num_rows() {
                beside.push(&mut rows, row, values.is_valid(row).then(|| values.value(row)))?;
            }
        }
    }
    Ok(rows)
}

/// The values of a column as one buffer, if nothing lies between them.
fn values_in_a_row(values: &BinaryArray) -> Option<Buffer> {
    let (first, last) = (*values.value_offsets().first()?, *values.value_offsets().last()?);
    // A null may have bytes.
    (values.null_count() == 0)
        .then(|| values.values().slice_with_length(first as usize, (last - first) as usize))
}

/// The error for rows that have no form as JSON, with the column, and the row if not all rows are
/// at fault.
fn no_json(rows: &RecordBatch, first_row: u64, error: Error) -> Error {
    // Not slices: those of lists and maps keep the values of all rows.
    let taken = |row: usize| take_record_batch(rows, &UInt32Array::from(vec![row as u32]));
    let flaw = |part: &RecordBatch, column: usize| {
        let part = part.project(&[column]).ok()?;
        json_lines(&part).err().map(|error| (rows.schema_ref().field(column).name().clone(), error))
    };
    let first = |part: &RecordBatch| (0..rows.num_columns()).find_map(|column| flaw(part, column));
    if let Some((name, error)) = first(&rows.slice(0, 0)) {
        return invalid(format!("column {name:?} cannot be written as JSON: {}", error.message()));
    }
    let found = (0..rows.num_rows()).find_map(|row| Some((row, first(&taken(row).ok()?)?)));
    let Some((row, (name, error))) = found else { return error };
    let row = first_row + row as u64;
    invalid(format!("row {row} of column {name:?} cannot be written as JSON: {}", error.message()))
}

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
            DataType::FixedSizeBinary(_) => {
                Some(bytes(Box::new(|row| array.as_fixed_size_binary().value(row))))
            }
            DataType::Float32 => {
                numbers(Box::new(|row| array.as_primitive::<Float32Type>().value(row).into()))?
            }
            DataType::Float64 => numbers(Box::new(|row| array.as_primitive::<Float64Type>().value(row)))?,
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
        let keys = if is_of_bytes(map.keys().data_type()) {
            let keys = cast_with_options(map.keys(), &DataType::Binary, &STRICT)?;
            encoded(keys.as_binary())
        } else {
            cast_with_options(map.keys(), &DataType::Utf8, &STRICT)?.as_string().clone()
        };
        let DataType::Map(entries, _) = map.data_type() else { unreachable!("the type of a map") };
        let DataType::Struct(parts) = entries.data_type() else { unreachable!("entries are structs") };
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
fn json_lines(batch: &RecordBatch) -> Result<Vec<u8>> {
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

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, text)
}

fn index(batch: &RecordBatch, name: &str) -> Result<usize> {
    batch.schema_ref().index_of(name).map_err(|_| {
        let known: Vec<_> = batch.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
        invalid(format!("the table has no column {name:?}; it has {}", known.join(", ")))
    })
}

/// Not "safe": what does not fit is an error, never a null.
const STRICT: CastOptions<'_> = CastOptions { safe: false, format_options: FormatOptions::new() };

fn cast_array(array: &ArrayRef, to: &DataType, wrong: impl FnOnce(ArrowError) -> Error) -> Result<ArrayRef> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    cast_with_options(array, to, &STRICT).map_err(wrong)
}

fn cast_column(batch: &RecordBatch, name: &str, to: &DataType, wanted: &str) -> Result<ArrayRef> {
    let column = batch.column(index(batch, name)?);
    let wrong = |_| invalid(format!("column {name:?} is {}, which is not {wanted}", column.data_type()));
    cast_array(column, to, wrong)
}

/// The payloads, which are sent as they are. A number has no bytes of its own.
fn payload_column(batch: &RecordBatch, name: &str) -> Result<ArrayRef> {
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

fn is_of_bytes(kind: &DataType) -> bool {
    kind.is_binary() || matches!(kind, DataType::FixedSizeBinary(_))
}

/// The Base64 of the bytes of a column.
fn base64_column(batch: &RecordBatch, name: &str) -> Result<StringArray> {
    let column = cast_column(batch, name, &DataType::Binary, "binary")?;
    Ok(encoded(column.as_binary()))
}

/// The Base64 of bytes.
fn encoded(bytes: &BinaryArray) -> StringArray {
    bytes.iter().map(|bytes| bytes.map(|bytes| STANDARD.encode(bytes))).collect()
}

/// A column as text.
fn text_column(batch: &RecordBatch, name: &str) -> Result<StringArray> {
    let column = cast_column(batch, name, &DataType::Utf8, "text")?;
    Ok(column.as_any().downcast_ref::<StringArray>().expect("cast to it").clone())
}

/// A column of whole numbers.
fn whole_column(batch: &RecordBatch, name: &str) -> Result<Int64Array> {
    let kind = batch.column(index(batch, name)?).data_type();
    if !kind.is_integer() && *kind != DataType::Null {
        return Err(invalid(format!("column {name:?} is {kind}, which is not a whole number")));
    }
    let column = cast_column(batch, name, &DataType::Int64, "a whole number")?;
    Ok(column.as_primitive::<Int64Type>().clone())
}

/// A column of booleans.
fn flag_column(batch: &RecordBatch, name: &str) -> Result<BooleanArray> {
    let kind = batch.column(index(batch, name)?).data_type();
    if !matches!(kind, DataType::Boolean | DataType::Null) {
        return Err(invalid(format!("column {name:?} is {kind}, which is not a boolean")));
    }
    Ok(cast_column(batch, name, &DataType::Boolean, "a boolean")?.as_boolean().clone())
}

/// Milliseconds since 1970 of a timestamp of any unit, of a date (its midnight in UTC), or of whole
/// numbers.
fn time_column(batch: &RecordBatch, name: &str) -> Result<Int64Array> {
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
enum PropertyColumn {
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

fn property_column(batch: &RecordBatch, name: &str) -> Result<PropertyColumn> {
    let column = batch.column(index(batch, name)?);
    let wrong = || {
        let kind = column.data_type();
        invalid(format!(
            "column {name:?} is {kind}, which is neither a map of text to text nor a struct of texts"
        ))
    };
    let text = |array: &ArrayRef| -> Result<StringArray> {
        let array = cast_array(array, &DataType::Utf8, |_| wrong())?;
        Ok(array.as_any().downcast_ref::<StringArray>().expect("cast to it").clone())
    };
    if let Some(map) = column.as_any().downcast_ref::<MapArray>() {
        let (names, values) = (text(map.keys())?, text(map.values())?);
        return Ok(PropertyColumn::Map { map: Box::new(map.clone()), names, values });
    }
    let of = column.as_any().downcast_ref::<StructArray>().ok_or_else(wrong)?.clone();
    let fields = of.fields().iter().zip(of.columns());
    let fields = fields.map(|(field, values)| Ok((field.name().clone(), text(values)?)));
    Ok(PropertyColumn::Struct { fields: fields.collect::<Result<_>>()?, of })
}

impl PropertyColumn {
    fn pairs(&self, row: usize) -> Vec<(String, String)> {
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
