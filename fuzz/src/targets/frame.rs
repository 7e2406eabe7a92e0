//! Tables of another library, of any type, with damaged offsets, texts and numbers: each row is
//! encoded as it is, or the table is refused.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Fields, IntervalUnit, Schema, TimeUnit};
use forebay_base::error::ErrorKind;
use forebay_rows::{Columns, Cursor, Imported, Naming, Rows, Topics, encode};
use crate::script::Script;

const NAMES: [&str; 5] = ["value", "key", "topic", "properties", "time"];
const UNITS: [TimeUnit; 4] =
    [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];

/// `count` numbers of `width` bytes.
fn numbers(script: &mut Script<'_>, count: usize, width: usize) -> Buffer {
    let mut bytes = script.take(count * width).to_vec();
    bytes.resize(count * width, 0);
    // Aligned, as imported buffers are.
    Buffer::from_slice_ref(&bytes)
}

/// Offsets of `count` values in `end` places: in order, or as the input says.
fn offsets(script: &mut Script<'_>, count: usize, end: usize, wide: bool) -> Buffer {
    let wild = script.byte() < 32;
    let mut at = 0;
    let found: Vec<i64> = (0..=count)
        .map(|_| {
            if wild {
                return i64::from(script.short() as i16);
            }
            let here = at;
            at = end.min(at + usize::from(script.byte() % 8));
            here as i64
        })
        .collect();
    if wide { Buffer::from_slice_ref(&found) } else { Buffer::from_iter(found.iter().map(|at| *at as i32)) }
}

fn field(name: &str, data: &ArrayData) -> Field {
    Field::new(name, data.data_type().clone(), true)
}

/// A column of `rows` rows.
fn column(script: &mut Script<'_>, rows: usize, depth: usize) -> ArrayData {
    let form = script.byte();
    let mut children = Vec::new();
    let mut buffers = Vec::new();
    let mut text = |script: &mut Script<'_>, wide| {
        let size = usize::from(script.byte());
        buffers.push(offsets(script, rows, size, wide));
        buffers.push(numbers(script, size, 1));
    };
    let unit = UNITS[usize::from(form >> 6)];
    let fixed = [
        (DataType::Int8, 1),
        (DataType::Int16, 2),
        (DataType::Int32, 4),
        (DataType::Int64, 8),
        (DataType::UInt8, 1),
        (DataType::UInt64, 8),
        (DataType::Float16, 2),
        (DataType::Float32, 4),
        (DataType::Float64, 8),
        (DataType::Date32, 4),
        (DataType::Date64, 8),
        (DataType::Timestamp(unit, None), 8),
        (DataType::Timestamp(unit, Some("+01:30".into())), 8),
        (DataType::Duration(unit), 8),
        (DataType::Decimal128(38, 5), 16),
        (DataType::Decimal256(76, -3), 32),
        (DataType::Interval(IntervalUnit::YearMonth), 4),
        (DataType::Interval(IntervalUnit::DayTime), 8),
        (DataType::Interval(IntervalUnit::MonthDayNano), 16),
        (DataType::Time32(TimeUnit::Millisecond), 4),
        (DataType::Time64(TimeUnit::Nanosecond), 8),
        (DataType::FixedSizeBinary(3), 3),
        (DataType::Utf8View, 16),
        (DataType::BinaryView, 16),
    ];
    let kind = match form & 0x3f {
        0..4 => {
            text(script, false);
            DataType::Utf8
        }
        4 => {
            text(script, true);
            DataType::LargeUtf8
        }
        5 | 6 => {
            text(script, false);
            DataType::Binary
        }
        7 => {
            text(script, true);
            DataType::LargeBinary
        }
        8 => DataType::Null,
        9 => {
            buffers.push(numbers(script, rows.div_ceil(8), 1));
            DataType::Boolean
        }
        10 | 11 if depth < 3 => {
            let count = usize::from(script.byte() % 4);
            children.extend((0..count).map(|_| column(script, rows, depth + 1)));
            let fields: Fields = children.iter().zip(NAMES).map(|(data, name)| field(name, data)).collect();
            DataType::Struct(fields)
        }
        12 | 13 if depth < 3 => {
            let count = usize::from(script.byte() % 16);
            let wide = form & 1 == 1;
            buffers.push(offsets(script, rows, count, wide));
            children.push(column(script, count, depth + 1));
            let item = Arc::new(field("item", &children[0]));
            if wide { DataType::LargeList(item) } else { DataType::List(item) }
        }
        14 | 15 if depth < 3 => {
            let count = usize::from(script.byte() % 16);
            buffers.push(offsets(script, rows, count, false));
            let parts = [column(script, count, depth + 1), column(script, count, depth + 1)];
            let fields: Fields =
                parts.iter().zip(["key", "value"]).map(|(data, name)| field(name, data)).collect();
            let entries = ArrayData::builder(DataType::Struct(fields)).len(count).child_data(parts.to_vec());
            // SAFETY: the engine verifies what it imports before it reads a value: what this target
            // is about.
            children.push(unsafe { entries.build_unchecked() });
            DataType::Map(Arc::new(Field::new("entries", children[0].data_type().clone(), false)), false)
        }
        16 | 17 if depth < 3 => {
            let count = usize::from(script.byte() % 8);
            children.push(column(script, count, depth + 2));
            buffers.push(numbers(script, rows, 1));
            DataType::Dictionary(Box::new(DataType::Int8), Box::new(children[0].data_type().clone()))
        }
        form => {
            let (kind, width) = fixed[usize::from(form) % fixed.len()].clone();
            buffers.push(numbers(script, rows, width));
            if matches!(kind, DataType::Utf8View | DataType::BinaryView) {
                let size = usize::from(script.byte());
                buffers.push(numbers(script, size, 1));
            }
            kind
        }
    };
    let nulls = script.byte() & 1 == 1 && kind != DataType::Null;
    let nulls = nulls.then(|| numbers(script, rows.div_ceil(8), 1));
    let data =
        ArrayData::builder(kind).len(rows).buffers(buffers).child_data(children).null_bit_buffer(nulls);
    // SAFETY: as above.
    unsafe { data.build_unchecked() }
}

/// The bytes of a value of a text or binary column; `None` of another type.
fn bytes(column: &ArrayRef, row: usize) -> Option<&[u8]> {
    Some(match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).as_bytes(),
        DataType::Binary => column.as_binary::<i32>().value(row),
        DataType::LargeBinary => column.as_binary::<i64>().value(row),
        _ => return None,
    })
}

/// Verifies what was encoded against the columns, which were found sound.
fn check(rows: &Rows, batches: &[RecordBatch], columns: &Columns) {
    let pairs: Vec<(&str, &str)> =
        rows.properties().iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut encoded = Cursor::default().rows(rows, &pairs);
    for batch in batches {
        for row in 0..batch.num_rows() {
            let found = encoded.next().expect("a message for each row");
            if columns.json {
                match serde_json::from_slice::<serde_json::Value>(found.payload) {
                    Ok(value) => assert!(value.is_object()),
                    Err(error) => panic!("{error}: {}", String::from_utf8_lossy(found.payload)),
                }
            } else if let Some(column) = batch.column_by_name("value")
                && let Some(value) = bytes(column, row)
            {
                assert_eq!(found.null_value, column.is_null(row));
                assert!(found.payload == value || found.null_value);
            }
            if !columns.keys_of_bytes
                && let Some(column) = columns.key.as_deref().and_then(|name| batch.column_by_name(name))
                && column.data_type() == &DataType::Utf8
            {
                assert_eq!(found.key, column.is_valid(row).then(|| column.as_string::<i32>().value(row)));
            }
        }
    }
    assert!(encoded.next().is_none(), "no message without a row");
}

/// Plays one input.
pub fn play(data: &[u8]) {
    let mut script = Script(data);
    let (roles, form) = (script.byte(), script.byte());
    let given = |bit: u8, name: &str| (roles >> bit & 1 == 1).then(|| name.to_owned());
    let topic = match form & 3 {
        0 => Topics::parse(&script.text()).ok(),
        1 => Topics::parse("a/{topic}/{key}").ok(),
        2 => Topics::parse("topic").ok(),
        _ => None,
    };
    let wanted = 1 + usize::from(form >> 2 & 7);
    let mut batches = Vec::new();
    for _ in 0..1 + (form >> 6 & 1) {
        let rows = usize::from(script.byte() % 33);
        let arrays: Vec<ArrayRef> = (0..wanted).map(|_| make_array(column(&mut script, rows, 0))).collect();
        let fields: Fields = arrays
            .iter()
            .enumerate()
            .map(|(at, array)| {
                let name = NAMES.get(at).map_or_else(|| format!("column {at}"), |name| (*name).to_owned());
                Field::new(name, array.data_type().clone(), true)
            })
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::new(Schema::new(fields));
        let Ok(batch) = RecordBatch::try_new_with_options(schema, arrays, &options) else { return };
        batches.push(batch);
    }
    // The last byte of a script, so that inputs of before mean what they did.
    let more = script.byte();
    let also = |bit: u8, name: &str| (more >> bit & 1 == 1).then(|| name.to_owned());
    let columns = Columns {
        value: given(0, "value"),
        json: roles & 2 != 0,
        schema: None,
        key: given(2, "key"),
        keys_of_bytes: more & 1 != 0,
        ordering_key: also(1, "key"),
        topic,
        naming: if more & 4 == 0 { Naming::default() } else { Naming::Pulsar },
        properties: given(3, "properties"),
        event_time: given(4, "time"),
        deliver_at: also(3, "time"),
        message_type: also(4, "topic"),
        qos: also(5, "time"),
        retain: also(6, "value"),
        first_row: 7,
        id: (roles & 32 != 0).then(|| ("id".to_owned(), "x".to_owned())),
        sequence: None,
        leaves_out: more & 128 != 0,
    };
    let count: usize = batches.iter().map(RecordBatch::num_rows).sum();
    match encode(Imported::new(batches.clone()), &columns) {
        Ok(mut rows) if columns.leaves_out => assert_eq!(rows.len() + rows.take_bad().len(), count),
        Ok(rows) => check(&rows, &batches, &columns),
        Err(error) => {
            assert!(
                matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::InvalidTopic),
                "another kind of error: {error}"
            );
        }
    }
}
