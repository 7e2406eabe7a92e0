//! The Arrow C data interface: tables in, record batches out, without pyarrow.

use std::ffi::CStr;
use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, MapBuilder, MapFieldNames, StringBuilder, TimestampMillisecondBuilder,
    UInt8Builder, UInt32Builder,
};
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{
    Array, ArrayRef, BinaryArray, MapArray, RecordBatch, RecordBatchIterator, StringArray, StructArray,
};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::client::handle::Message;
use crate::client::mqtt;
use crate::error::{Error, ErrorKind, Result};
use crate::pulsar;
use crate::python::producer::Rows;

const ARRAY: &CStr = c"arrow_array";
const SCHEMA: &CStr = c"arrow_schema";
const STREAM: &CStr = c"arrow_array_stream";

/// Which columns become what of a message.
pub(super) struct Columns {
    /// The payload; all columns when encoded as JSON.
    pub(super) value: Option<String>,
    /// Payloads are JSON objects of the row.
    pub(super) json: bool,
    /// The key of Pulsar: a column. The topic of MQTT: a column, or text with columns in it, `a/{b}/c`.
    pub(super) key: Option<String>,
    /// A map of text to text.
    pub(super) properties: Option<String>,
    /// A timestamp, or milliseconds since 1970.
    pub(super) event_time: Option<String>,
}

/// Reads anything with `__arrow_c_stream__` or `__arrow_c_array__`.
#[allow(unsafe_code, reason = "the C data interface is pointers in capsules")]
pub(super) fn import(value: &Bound<'_, PyAny>) -> PyResult<Vec<RecordBatch>> {
    let foreign = |error: arrow_schema::ArrowError| {
        PyValueError::new_err(format!("the Arrow data cannot be read: {error}"))
    };
    if value.hasattr("__arrow_c_stream__")? {
        let capsule = value.call_method0("__arrow_c_stream__")?;
        let capsule = capsule.cast::<PyCapsule>()?;
        let pointer = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
        // SAFETY: the capsule's name says what it points to, and it is alive; from_raw moves the stream out
        // and leaves an empty one behind, as the interface demands of a consumer.
        let reader = unsafe { RecordBatchStreamReader::from_raw(pointer.as_ptr()) }.map_err(foreign)?;
        return reader.collect::<std::result::Result<_, _>>().map_err(foreign);
    }
    if value.hasattr("__arrow_c_array__")? {
        let (schema, array): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
            value.call_method0("__arrow_c_array__")?.extract()?;
        let schema = schema.cast::<PyCapsule>()?.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
        let array = array.cast::<PyCapsule>()?.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
        // SAFETY: as above; the array is moved out, the schema is only looked at.
        let data = unsafe { from_ffi(FFI_ArrowArray::from_raw(array.as_ptr()), schema.as_ref()) }
            .map_err(foreign)?;
        return Ok(vec![RecordBatch::from(StructArray::from(data))]);
    }
    Err(PyTypeError::new_err(format!(
        "{} is no table: expected something with __arrow_c_stream__ or __arrow_c_array__ (pyarrow, polars, pandas, duckdb ...)",
        value.get_type()
    )))
}

/// Encodes every row. Nothing of Python is touched.
pub(super) fn rows(batches: &[RecordBatch], columns: &Columns) -> Result<Rows> {
    let mut rows = Rows::default();
    for batch in batches {
        let keys = columns.key.as_deref().map(|name| key_column(batch, name)).transpose()?;
        let times = columns.event_time.as_deref().map(|name| time_column(batch, name)).transpose()?;
        let properties = columns.properties.as_deref().map(|name| map_column(batch, name)).transpose()?;
        let beside = |row: usize| {
            let key = keys.as_ref().filter(|keys| keys.is_valid(row)).map(|keys| keys.value(row));
            let time = times.as_ref().filter(|times| times.is_valid(row)).map_or(0, |times| times.value(row));
            (
                key,
                u64::try_from(time).unwrap_or(0),
                properties.as_ref().map_or(Vec::new(), |map| pairs(map, row)),
            )
        };
        if columns.json {
            let source = match &columns.value {
                None => batch.clone(),
                Some(name) => {
                    let at = index(batch, name)?;
                    batch.project(&[at]).map_err(arrow_error)?
                }
            };
            let lines = json_lines(&source)?;
            if lines.len() != batch.num_rows() {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "a row of the table cannot be written as JSON",
                ));
            }
            for (row, line) in lines.iter().enumerate() {
                let (key, time, properties) = beside(row);
                rows.push_row(Some(line), key, time, &properties);
            }
        } else {
            let name = columns.value.as_deref().unwrap_or("value");
            let values = cast_column(batch, name, &DataType::Binary, "binary or text")?;
            let values = values.as_any().downcast_ref::<BinaryArray>().expect("cast to it");
            for row in 0..batch.num_rows() {
                let (key, time, properties) = beside(row);
                rows.push_row(values.is_valid(row).then(|| values.value(row)), key, time, &properties);
            }
        }
    }
    Ok(rows)
}

/// The type with every time zone as UTC, whose offset is known without a database of zones. Moments do not
/// change by that; how they are written does.
fn in_utc(kind: &DataType) -> DataType {
    let field =
        |field: &Arc<Field>| Arc::new(field.as_ref().clone().with_data_type(in_utc(field.data_type())));
    match kind {
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("+00:00".into())),
        DataType::List(item) => DataType::List(field(item)),
        DataType::LargeList(item) => DataType::LargeList(field(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
        DataType::Map(entries, sorted) => DataType::Map(field(entries), *sorted),
        other => other.clone(),
    }
}

/// One JSON object a row; nulls are left out, as Spark's `to_json` does.
fn json_lines(batch: &RecordBatch) -> Result<Vec<Vec<u8>>> {
    let schema = batch.schema_ref();
    let fields: Vec<Field> =
        schema.fields().iter().map(|f| f.as_ref().clone().with_data_type(in_utc(f.data_type()))).collect();
    let columns: Vec<ArrayRef> = batch
        .columns()
        .iter()
        .zip(&fields)
        .map(|(column, field)| {
            if column.data_type() == field.data_type() {
                return Ok(Arc::clone(column));
            }
            cast(column, field.data_type())
        })
        .collect::<std::result::Result<_, _>>()
        .map_err(arrow_error)?;
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(arrow_error)?;
    let mut writer = arrow_json::LineDelimitedWriter::new(Vec::new());
    writer.write(&batch).and_then(|()| writer.finish()).map_err(arrow_error)?;
    // JSON escapes line ends inside strings, so each line is a row.
    let text = writer.into_inner();
    Ok(text
        .strip_suffix(b"\n")
        .unwrap_or(&text)
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(<[u8]>::to_vec)
        .collect())
}

fn index(batch: &RecordBatch, name: &str) -> Result<usize> {
    batch.schema_ref().index_of(name).map_err(|_| {
        let known: Vec<_> = batch.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
        Error::new(
            ErrorKind::InvalidArgument,
            format!("the table has no column {name:?}; it has {}", known.join(", ")),
        )
    })
}

fn cast_column(batch: &RecordBatch, name: &str, to: &DataType, wanted: &str) -> Result<ArrayRef> {
    let column = batch.column(index(batch, name)?);
    if column.data_type() == to {
        return Ok(Arc::clone(column));
    }
    cast(column, to).map_err(|_| {
        Error::new(
            ErrorKind::InvalidArgument,
            format!("column {name:?} is {}, which is not {wanted}", column.data_type()),
        )
    })
}

fn text_column(batch: &RecordBatch, name: &str) -> Result<StringArray> {
    let column = cast_column(batch, name, &DataType::Utf8, "text")?;
    Ok(column.as_any().downcast_ref::<StringArray>().expect("cast to it").clone())
}

/// A column as text, or a template with columns in it.
fn key_column(batch: &RecordBatch, name: &str) -> Result<StringArray> {
    if !name.contains('{') {
        return text_column(batch, name);
    }
    let bad = || {
        let text = format!("{name:?} is no template: expected text with columns in braces, like a/{{b}}/c");
        Error::new(ErrorKind::InvalidArgument, text)
    };
    let mut parts: Vec<(&str, StringArray)> = Vec::new();
    let mut rest = name;
    while let Some((text, after)) = rest.split_once('{') {
        let (column, after) = after.split_once('}').ok_or_else(bad)?;
        if text.contains('}') {
            return Err(bad());
        }
        parts.push((text, text_column(batch, column)?));
        rest = after;
    }
    if rest.contains('}') {
        return Err(bad());
    }
    let mut built = StringBuilder::new();
    for row in 0..batch.num_rows() {
        let mut text = String::new();
        for (before, column) in &parts {
            if column.is_null(row) {
                let why = format!("row {row} has no value for a column of the template {name:?}");
                return Err(Error::new(ErrorKind::InvalidArgument, why));
            }
            text.push_str(before);
            text.push_str(column.value(row));
        }
        text.push_str(rest);
        built.append_value(text);
    }
    Ok(built.finish())
}

/// Milliseconds since 1970 of a timestamp of any unit, or of whole numbers.
fn time_column(batch: &RecordBatch, name: &str) -> Result<arrow_array::Int64Array> {
    let column = batch.column(index(batch, name)?);
    let milliseconds = match column.data_type() {
        DataType::Timestamp(_, zone) => {
            let to = DataType::Timestamp(TimeUnit::Millisecond, zone.clone());
            let column = cast_column(batch, name, &to, "a timestamp")?;
            let times =
                column.as_any().downcast_ref::<arrow_array::PrimitiveArray<TimestampMillisecondType>>();
            times.expect("cast to it").reinterpret_cast::<arrow_array::types::Int64Type>()
        }
        _ => {
            let column = cast_column(batch, name, &DataType::Int64, "a timestamp or milliseconds")?;
            column.as_any().downcast_ref::<arrow_array::Int64Array>().expect("cast to it").clone()
        }
    };
    Ok(milliseconds)
}

fn map_column(batch: &RecordBatch, name: &str) -> Result<MapArray> {
    let column = batch.column(index(batch, name)?);
    let wrong = || {
        Error::new(
            ErrorKind::InvalidArgument,
            format!("column {name:?} is {}, which is not a map of text to text", column.data_type()),
        )
    };
    let map = column.as_any().downcast_ref::<MapArray>().ok_or_else(wrong)?;
    let text = |array: &ArrayRef| matches!(array.data_type(), DataType::Utf8);
    if !text(map.keys()) || !text(map.values()) {
        return Err(wrong());
    }
    Ok(map.clone())
}

fn pairs(map: &MapArray, row: usize) -> Vec<(String, String)> {
    if map.is_null(row) {
        return Vec::new();
    }
    let (Some(keys), Some(values)) = (
        map.keys().as_any().downcast_ref::<StringArray>(),
        map.values().as_any().downcast_ref::<StringArray>(),
    ) else {
        return Vec::new();
    };
    let offsets = map.value_offsets();
    (offsets[row] as usize..offsets[row + 1] as usize)
        .filter(|at| values.is_valid(*at))
        .map(|at| (keys.value(at).to_owned(), values.value(at).to_owned()))
        .collect()
}

/// Messages of one consumer as columns.
pub(super) fn to_batch(messages: &[Message]) -> Result<RecordBatch> {
    let mqtt = |message: &'_ Message| matches!(message, Message::Mqtt(_));
    if messages.first().is_some_and(mqtt) {
        return mqtt_batch(messages.iter().filter_map(|message| match message {
            Message::Mqtt(message) => Some(message),
            Message::Pulsar(_) => None,
        }));
    }
    pulsar_batch(messages.iter().filter_map(|message| match message {
        Message::Pulsar(message) => Some(message),
        Message::Mqtt(_) => None,
    }))
}

/// Text to text, a map for each row.
fn properties_builder() -> MapBuilder<StringBuilder, StringBuilder> {
    let names = MapFieldNames { entry: "entries".into(), key: "key".into(), value: "value".into() };
    MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new())
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> Result<RecordBatch> {
    let fields: Vec<Field> =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(arrow_error)
}

fn mqtt_batch<'a>(messages: impl Iterator<Item = &'a mqtt::Message>) -> Result<RecordBatch> {
    let mut value = BinaryBuilder::new();
    let mut topic = StringBuilder::new();
    let mut qos = UInt8Builder::new();
    let mut retain = BooleanBuilder::new();
    let mut received = TimestampMillisecondBuilder::new().with_timezone("UTC");
    let mut content_type = StringBuilder::new();
    let mut properties = properties_builder();
    for message in messages {
        let publish = message.publish();
        value.append_value(&publish.payload);
        topic.append_value(&publish.topic);
        qos.append_value(publish.qos as u8);
        retain.append_value(publish.retain);
        received.append_value(message.received_ms() as i64);
        content_type.append_option(publish.properties.content_type().map(|text| &**text));
        for (name, text) in publish.properties.user() {
            properties.keys().append_value(&**name);
            properties.values().append_value(&**text);
        }
        properties.append(true).map_err(arrow_error)?;
    }
    batch(vec![
        ("value", Arc::new(value.finish())),
        ("topic", Arc::new(topic.finish())),
        ("qos", Arc::new(qos.finish())),
        ("retain", Arc::new(retain.finish())),
        ("received_time", Arc::new(received.finish())),
        ("content_type", Arc::new(content_type.finish())),
        ("properties", Arc::new(properties.finish())),
    ])
}

fn pulsar_batch<'a>(messages: impl Iterator<Item = &'a pulsar::Message>) -> Result<RecordBatch> {
    let mut value = BinaryBuilder::new();
    let mut key = StringBuilder::new();
    let mut topic = StringBuilder::new();
    let mut id = StringBuilder::new();
    let mut publish = TimestampMillisecondBuilder::new().with_timezone("UTC");
    let mut event = TimestampMillisecondBuilder::new().with_timezone("UTC");
    let mut properties = properties_builder();
    let mut redelivery = UInt32Builder::new();
    for message in messages {
        if message.null_value {
            value.append_null()
        } else {
            value.append_value(&message.payload)
        }
        key.append_option(message.key.as_deref());
        topic.append_value(&message.entry.topic);
        id.append_value(message.id.to_string());
        publish.append_value(message.entry.publish_time as i64);
        event.append_option((message.event_time != 0).then_some(message.event_time as i64));
        for (name, text) in &message.properties {
            properties.keys().append_value(name);
            properties.values().append_value(text);
        }
        properties.append(true).map_err(arrow_error)?;
        redelivery.append_value(message.entry.redelivery_count);
    }
    batch(vec![
        ("value", Arc::new(value.finish())),
        ("key", Arc::new(key.finish())),
        ("topic", Arc::new(topic.finish())),
        ("message_id", Arc::new(id.finish())),
        ("publish_time", Arc::new(publish.finish())),
        ("event_time", Arc::new(event.finish())),
        ("properties", Arc::new(properties.finish())),
        ("redelivery_count", Arc::new(redelivery.finish())),
    ])
}

fn arrow_error(error: arrow_schema::ArrowError) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("Arrow: {error}"))
}

/// A record batch that other libraries can take without a copy.
#[pyclass(frozen, module = "penstock._engine")]
pub(super) struct ArrowBatch(RecordBatch);

impl ArrowBatch {
    pub(super) fn new(batch: RecordBatch) -> Self {
        Self(batch)
    }
}

#[pymethods]
impl ArrowBatch {
    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        drop(requested_schema);
        let foreign = |error: arrow_schema::ArrowError| PyValueError::new_err(error.to_string());
        let data = StructArray::from(self.0.clone()).into_data();
        let schema = FFI_ArrowSchema::try_from(self.0.schema_ref().as_ref()).map_err(foreign)?;
        let array = FFI_ArrowArray::new(&data);
        Ok((PyCapsule::new_with_value(py, schema, SCHEMA)?, PyCapsule::new_with_value(py, array, ARRAY)?))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let batches = RecordBatchIterator::new([Ok(self.0.clone())], self.0.schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), STREAM)
    }
}
