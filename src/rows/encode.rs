//! The rows of a table as messages: each gets its payload, key, topic and properties.

use arrow_array::Array as _;
use arrow_array::{BinaryArray, BooleanArray, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow_buffer::Buffer;
use arrow_schema::DataType;
use arrow_select::take::take_record_batch;

use crate::buffer::{BadRow, NewRow, Rare, Rows};
use crate::columns::{
    PropertyColumn, base64_column, cast_column, flag_column, index, invalid, is_column_of_bytes,
    payload_column, property_column, text_column, time_column, whole_column,
};
use crate::imported::{Imported, arrow_error, check_offsets};
use crate::json::json_lines;
use crate::schema::{self, RowSchema};
use crate::topics::{Naming, Topics};
use forebay_base::error::{Error, ErrorKind, Result};

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
            Some(name) if columns.keys_of_bytes => is_column_of_bytes(batch, name)?,
            _ => false,
        };
        let keys = match &columns.key {
            Some(name) if of_bytes => Some(base64_column(batch, name)?),
            other => other.as_ref().map(texts).transpose()?,
        };
        let topics = columns.topic.as_ref();
        let ordering_key = |name: &String| -> Result<_> {
            if !is_column_of_bytes(batch, name)? {
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
                ..Rare::default()
            })
        };
        let (key, topic) = (text(self.keys.as_ref(), row), text(self.topics.as_ref(), row));
        let rare = has_rare.then(rare).transpose()?;
        let properties = &properties;
        let (null_value, payload) = (payload.is_none(), payload.unwrap_or_default());
        rows.push_row(NewRow { number, payload, key, topic, event_time, null_value, properties, rare });
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
