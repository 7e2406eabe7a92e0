use std::sync::Arc;

use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, DictionaryArray, FixedSizeBinaryArray, FixedSizeListArray, Float64Array,
    Int8Array, Int32Array, IntervalDayTimeArray, LargeListArray, ListArray, MapArray, RecordBatch, RunArray,
    StringArray, StructArray, TimestampMillisecondArray,
};
use arrow_buffer::{IntervalDayTime, NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Schema as ArrowSchema};
use serde_json::{Value, json};

use super::schema::{RowSchema, define};
use super::{Columns, Cursor, Imported, Rows, encode};
use forebay_avro::Schema;

/// The rows of a table of one column as JSON.
fn written(column: ArrayRef) -> Vec<Value> {
    let batch = RecordBatch::try_from_iter_with_nullable([("v", column, true)]).unwrap();
    let rows = encode(Imported::new(vec![batch]), &Columns { json: true, ..Columns::default() }).unwrap();
    Cursor::default().rows(&rows, &[]).map(|row| serde_json::from_slice(row.payload).unwrap()).collect()
}

/// The values of a dictionary, of which the second row is null by its value and the third by its
/// index, which is behind the end.
fn dictionary(values: ArrayRef) -> ArrayRef {
    let indices = Int8Array::new(vec![0, 1, 80].into(), Some(vec![true, true, false].into()));
    Arc::new(DictionaryArray::<Int8Type>::try_new(indices, values).unwrap())
}

#[test]
fn a_null_among_the_values_of_a_dictionary_is_written_as_a_null() {
    let values: [(ArrayRef, Value); 6] = [
        (Arc::new(Int32Array::from(vec![Some(5), None])), json!(5)),
        (Arc::new(StringArray::from(vec![Some("a"), None])), json!("a")),
        (Arc::new(BinaryArray::from(vec![Some(&b"abc"[..]), None])), json!("YWJj")),
        (Arc::new(Float64Array::from(vec![Some(f64::NAN), None])), json!("NaN")),
        (
            Arc::new(TimestampMillisecondArray::from(vec![Some(0), None]).with_timezone("Europe/Berlin")),
            json!("1970-01-01T00:00:00Z"),
        ),
        (Arc::new(IntervalDayTimeArray::from(vec![Some(IntervalDayTime::new(1, 0)), None])), json!("1 days")),
    ];
    for (values, first) in values {
        let kind = values.data_type().clone();
        let (of_dictionary, of_runs) = (dictionary(Arc::clone(&values)), {
            let ends = Int32Array::from(vec![1, 3]);
            Arc::new(RunArray::<Int32Type>::try_new(&ends, &values).unwrap())
        });
        assert_eq!(
            written(Arc::clone(&of_dictionary)),
            [json!({ "v": first }), json!({}), json!({})],
            "{kind}"
        );
        assert_eq!(written(of_runs), [json!({ "v": first }), json!({}), json!({})], "{kind}");
        // A dictionary of a dictionary, and the same within other values.
        let twice = dictionary(of_dictionary.slice(0, 2));
        assert_eq!(written(twice), [json!({ "v": first }), json!({}), json!({})], "{kind}");
        let field = Arc::new(Field::new("item", of_dictionary.data_type().clone(), true));
        let list = ListArray::new(
            Arc::clone(&field),
            OffsetBuffer::from_lengths([2, 1]),
            Arc::clone(&of_dictionary),
            None,
        );
        assert_eq!(written(Arc::new(list)), [json!({"v": [first, null]}), json!({"v": [null]})], "{kind}");
        let fixed = FixedSizeListArray::new(Arc::clone(&field), 3, Arc::clone(&of_dictionary), None);
        assert_eq!(written(Arc::new(fixed)), [json!({"v": [first, null, null]})], "{kind}");
        let inside = StructArray::new(vec![field].into(), vec![of_dictionary], None);
        assert_eq!(
            written(Arc::new(inside)),
            [json!({"v": {"item": first}}), json!({"v": {}}), json!({"v": {}})],
            "{kind}"
        );
    }
}

/// A column of maps from the keys to the values, with so many entries each.
fn maps(keys: ArrayRef, values: ArrayRef, lengths: &[usize]) -> ArrayRef {
    let key = Arc::new(Field::new("key", keys.data_type().clone(), false));
    let value = Arc::new(Field::new("value", values.data_type().clone(), true));
    let entries = StructArray::new(vec![key, value].into(), vec![keys, values], None);
    let field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
    let ends = OffsetBuffer::from_lengths(lengths.iter().copied());
    Arc::new(MapArray::new(field, ends, entries, None, false))
}

#[test]
fn a_map_is_written_with_all_its_keys_as_text() {
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "\"\n"]));
    let times = TimestampMillisecondArray::from(vec![0, 1]).with_timezone("Europe/Berlin");
    let keys: [(ArrayRef, [&str; 2]); 5] = [
        (texts, ["a", "\"\n"]),
        (Arc::new(Int32Array::from(vec![-1, 2])), ["-1", "2"]),
        (Arc::new(Float64Array::from(vec![0.5, f64::NAN])), ["0.5", "NaN"]),
        (Arc::new(BinaryArray::from(vec![&b"\xff"[..], b""])), ["/w==", ""]),
        (Arc::new(times), ["1970-01-01T00:00:00Z", "1970-01-01T00:00:00.001Z"]),
    ];
    for (keys, [one, two]) in keys {
        let kind = keys.data_type().clone();
        let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
        let both = maps(Arc::clone(&keys), Arc::clone(&values), &[2, 0]);
        assert_eq!(written(both), [json!({"v": {one: 1, two: null}}), json!({"v": {}})], "{kind}");
        let inside = maps(keys, maps(Arc::new(StringArray::from(vec!["k", "l"])), values, &[1, 1]), &[1, 1]);
        assert_eq!(
            written(inside),
            [json!({"v": {one: {"k": 1}}}), json!({"v": {two: {"l": null}}})],
            "{kind}"
        );
    }
}

#[test]
fn what_json_cannot_say_is_refused_with_its_column_and_row() {
    let refused = |column: ArrayRef| {
        let names: ArrayRef = Arc::new(StringArray::from(vec!["x"; column.len()]));
        let columns = [("name", names, true), ("v", column, true)];
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let columns = Columns { json: true, first_row: 10, ..Columns::default() };
        encode(Imported::new(vec![batch]), &columns).unwrap_err().message().to_owned()
    };
    let values = || Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef;
    let of_lists = maps(maps(values(), values(), &[1, 1]), values(), &[1, 1]);
    let text = refused(of_lists);
    assert!(text.starts_with("column \"v\" cannot be written as JSON: the keys of a map are Map("), "{text}");
    // In the second row, whose map is a part of the same keys.
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![0, i64::MAX]));
    let text = refused(maps(Arc::clone(&times), values(), &[1, 1]));
    assert!(text.starts_with("row 11 of column \"v\" cannot be written as JSON: "), "{text}");
    let field = Arc::new(Field::new("item", times.data_type().clone(), true));
    let text = refused(Arc::new(ListArray::new(field, OffsetBuffer::from_lengths([1, 1]), times, None)));
    assert!(
        text.starts_with("row 11 of column \"v\" cannot be written as JSON: a value has no form"),
        "{text}"
    );
}

/// A table of payloads, topics, times and keys of bytes.
fn table() -> RecordBatch {
    let column = |values: Vec<Option<&str>>| Arc::new(StringArray::from(values)) as ArrayRef;
    let times: ArrayRef = Arc::new(arrow_array::Int64Array::from(vec![0, -1, 2, -1, 4]));
    let keys: ArrayRef =
        Arc::new(BinaryArray::from(vec![Some(&[0xff, 0][..]), None, Some(b"k"), None, None]));
    RecordBatch::try_from_iter_with_nullable([
        ("v", column(["p0", "p1", "p2", "p3", "p4"].map(Some).to_vec()), true),
        ("t", column(vec![Some("a"), Some("b"), Some("b"), None, Some("a")]), true),
        ("at", times, true),
        ("k", keys, true),
    ])
    .unwrap()
}

#[test]
fn bad_rows_are_left_out_and_the_others_keep_their_numbers() {
    let columns = Columns {
        value: Some("v".into()),
        event_time: Some("at".into()),
        id: Some(("id".into(), "w".into())),
        first_row: 10,
        sequence: Some(1000),
        leaves_out: true,
        ..Columns::default()
    };
    let mut rows = encode(Imported::new(vec![table(), table()]), &columns).unwrap();
    let bad: Vec<_> =
        rows.take_bad().into_iter().map(|bad| (bad.number, bad.error.message().to_owned())).collect();
    assert_eq!(bad.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [11, 13, 16, 18]);
    assert!(bad[1].1.starts_with("event_time of row 13 is -1"), "{}", bad[1].1);
    let properties: Vec<(&str, &str)> = rows.properties().iter().map(|(n, v)| (&**n, &**v)).collect();
    let found: Vec<_> = Cursor::default()
        .rows(&rows, &properties)
        .map(|row| (row.payload, row.event_time, row.sequence_id, row.properties[0].1))
        .collect();
    assert_eq!(
        found,
        [
            (&b"p0"[..], 0, Some(1010), "w/10"),
            (b"p2", 2, Some(1012), "w/12"),
            (b"p4", 4, Some(1014), "w/14"),
            (b"p0", 0, Some(1015), "w/15"),
            (b"p2", 2, Some(1017), "w/17"),
            (b"p4", 4, Some(1019), "w/19"),
        ]
    );
    let wrong = Columns { event_time: Some("k".into()), ..columns };
    let error = encode(Imported::new(vec![table()]), &wrong).unwrap_err();
    assert!(error.message().contains("not a timestamp"), "a column that fits no row is an error: {error}");
}

#[test]
fn rows_are_split_by_their_topics() {
    let columns = Columns {
        value: Some("v".into()),
        key: Some("k".into()),
        keys_of_bytes: true,
        ordering_key: Some("k".into()),
        topic: Some(super::Topics::parse("x-{t}").unwrap()),
        leaves_out: true,
        ..Columns::default()
    };
    let mut rows = encode(Imported::new(vec![table()]), &columns).unwrap();
    assert_eq!(rows.take_bad().iter().map(|bad| bad.number).collect::<Vec<_>>(), [3]);
    let parts = rows.by_topic();
    let found: Vec<_> = parts
        .iter()
        .flat_map(|(topic, part)| {
            let rows = Cursor::default().rows(part, &[]);
            rows.map(move |row| {
                (&**topic, row.payload, row.key, row.key_is_base64, row.rare.ordering_key.as_deref())
            })
        })
        .collect();
    assert_eq!(
        found,
        [
            ("x-a", &b"p0"[..], Some("/wA="), true, Some(&[0xff, 0][..])),
            ("x-a", b"p4", None, false, None),
            ("x-b", b"p1", None, false, None),
            ("x-b", b"p2", Some("aw=="), true, Some(b"k")),
        ]
    );
}

#[test]
fn the_spellings_of_a_topic_of_pulsar_are_one_topic() {
    let column = |values: [&str; 4]| Arc::new(StringArray::from(values.to_vec())) as ArrayRef;
    let columns = Columns {
        value: Some("v".into()),
        topic: Some(super::Topics::parse("t").unwrap()),
        naming: super::Naming::Pulsar,
        first_row: 10,
        ..Columns::default()
    };
    let batch = |topics| {
        let batch = [("v", column(["0", "1", "2", "3"]), true), ("t", column(topics), true)];
        Imported::new(vec![RecordBatch::try_from_iter_with_nullable(batch).unwrap()])
    };
    let full = "persistent://public/default/a+b";
    let rows = encode(batch(["a+b", full, "public/default/a+b", "c"]), &columns).unwrap();
    let parts = rows.by_topic();
    let found: Vec<_> = parts.iter().map(|(topic, part)| (&**topic, part.len())).collect();
    assert_eq!(found, [(full, 3), ("persistent://public/default/c", 1)]);
    let error = encode(batch(["a", "a", "a/b", "a"]), &columns).unwrap_err();
    assert_eq!(error.kind(), forebay_base::error::ErrorKind::InvalidTopic);
    assert!(
        error.message().starts_with("row 12 has no valid topic in column \"t\": \"a/b\" is not"),
        "{error}"
    );
    let mut rows = encode(batch(["", "a", "a/b", "a"]), &Columns { leaves_out: true, ..columns }).unwrap();
    assert_eq!(rows.take_bad().iter().map(|bad| bad.number).collect::<Vec<_>>(), [10, 12]);
}

#[test]
fn the_first_row_is_split_from_the_others() {
    let columns = Columns {
        value: Some("v".into()),
        key: Some("k".into()),
        keys_of_bytes: true,
        ordering_key: Some("k".into()),
        id: Some(("id".into(), "w".into())),
        sequence: Some(5),
        ..Columns::default()
    };
    let found = |rows: &Rows| -> Vec<_> {
        let properties: Vec<(&str, &str)> = rows.properties().iter().map(|(n, v)| (&**n, &**v)).collect();
        Cursor::default()
            .rows(rows, &properties)
            .map(|row| {
                let ordering_key = row.rare.ordering_key.clone();
                (
                    row.payload.to_vec(),
                    row.key.map(str::to_owned),
                    ordering_key,
                    row.sequence_id,
                    row.properties[0].1.to_owned(),
                )
            })
            .collect()
    };
    let whole = encode(Imported::new(vec![table()]), &columns).unwrap();
    let all = found(&whole);
    let (first, others) = whole.split_first();
    assert_eq!((found(&first), found(&others)), (all[..1].to_vec(), all[1..].to_vec()));
    let (first, others) = first.split_first();
    assert_eq!((first.len(), others.len()), (1, 0));
    let (first, others) = others.split_first();
    assert_eq!((first.len(), others.len()), (0, 0));
}

#[test]
fn rows_have_a_qos_and_a_retain_flag_of_their_own() {
    let qos: ArrayRef = Arc::new(Int8Array::from(vec![Some(2), None, Some(0)]));
    let retain: ArrayRef = Arc::new(arrow_array::BooleanArray::from(vec![None, Some(true), Some(false)]));
    let values: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
    let columns = Columns {
        value: Some("v".into()),
        qos: Some("q".into()),
        retain: Some("r".into()),
        ..Columns::default()
    };
    let batch = |qos: &ArrayRef| {
        let columns = [("v", &values, true), ("q", qos, true), ("r", &retain, true)];
        let columns = columns.map(|(name, column, nullable)| (name, Arc::clone(column), nullable));
        Imported::new(vec![RecordBatch::try_from_iter_with_nullable(columns).unwrap()])
    };
    let rows = encode(batch(&qos), &columns).unwrap();
    let found: Vec<_> =
        Cursor::default().rows(&rows, &[]).map(|row| (row.rare.qos, row.rare.retain)).collect();
    assert_eq!(found, [(Some(2), None), (None, Some(true)), (Some(0), Some(false))]);
    let wrong: ArrayRef = Arc::new(Int8Array::from(vec![0, 3, 0]));
    let error = encode(batch(&wrong), &columns).unwrap_err();
    assert!(error.message().starts_with("the QoS of row 1 is 3"), "{error}");
    let error = encode(batch(&values), &columns).unwrap_err();
    assert!(error.message().contains("not a whole number"), "{error}");
}

#[test]
fn a_key_of_bytes_is_text_where_there_is_no_mark_for_it() {
    let columns = Columns { value: Some("v".into()), key: Some("k".into()), ..Columns::default() };
    let error = encode(Imported::new(vec![table()]), &columns).unwrap_err();
    assert!(error.message().contains("\"k\""), "{error}");
}

#[test]
fn a_bad_row_is_found_by_what_is_in_its_list() {
    // The bytes of the third text are no UTF-8, which a foreign table may have.
    let bytes = arrow_buffer::Buffer::from(&b"ab\xffd"[..]);
    let offsets = OffsetBuffer::new(vec![0, 1, 2, 3, 4].into());
    // SAFETY: only `encode` looks at it, which verifies texts first.
    #[allow(unsafe_code, reason = "nothing else makes such a text")]
    let texts = unsafe { StringArray::new_unchecked(offsets, bytes, None) };
    let field = Arc::new(Field::new("item", texts.data_type().clone(), true));
    let list = ListArray::new(field, OffsetBuffer::from_lengths([1, 0, 2, 1]), Arc::new(texts), None);
    let batch = RecordBatch::try_from_iter_with_nullable([("l", Arc::new(list) as ArrayRef, true)]).unwrap();
    let columns = Columns { json: true, leaves_out: true, ..Columns::default() };
    let mut rows = encode(Imported::new(vec![batch]), &columns).unwrap();
    assert_eq!(rows.take_bad().iter().map(|bad| bad.number).collect::<Vec<_>>(), [2]);
    let found: Vec<_> = Cursor::default().rows(&rows, &[]).map(|row| row.payload).collect();
    assert_eq!(found, [&b"{\"l\":[\"a\"]}"[..], b"{\"l\":[]}", b"{\"l\":[\"d\"]}"]);
}

/// The payloads of the rows of a table of one column, and where they lie.
fn payloads(batches: Vec<RecordBatch>) -> Vec<(Vec<u8>, *const u8)> {
    let rows = encode(Imported::new(batches), &Columns::default()).unwrap();
    Cursor::default().rows(&rows, &[]).map(|row| (row.payload.to_vec(), row.payload.as_ptr())).collect()
}

fn of_values(column: ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([("value", column, true)]).unwrap()
}

#[test]
fn payloads_are_not_copied_from_a_batch_without_nulls() {
    let column = BinaryArray::from(vec![&b"first"[..], b"second", b"", b"fourth"]);
    let texts = StringArray::from(vec!["first", "second", "", "fourth"]);
    for (column, values) in [
        (Arc::new(column.clone()) as ArrayRef, column.values().as_ptr()),
        (Arc::new(texts.clone()), texts.values().as_ptr()),
    ] {
        let whole = payloads(vec![of_values(Arc::clone(&column))]);
        assert_eq!(
            whole.iter().map(|(payload, _)| payload.as_slice()).collect::<Vec<_>>(),
            [&b"first"[..], b"second", b"", b"fourth"]
        );
        assert_eq!(whole[0].1, values);
        // A slice begins within the buffer.
        let part = payloads(vec![of_values(column.slice(1, 2))]);
        assert_eq!((part[0].0.as_slice(), part[1].0.as_slice()), (&b"second"[..], &b""[..]));
        assert_eq!(part[0].1, values.wrapping_add(5));
    }
}

#[test]
fn payloads_are_put_together_from_several_batches_and_around_nulls() {
    let column = |values: &[&[u8]]| of_values(Arc::new(BinaryArray::from(values.to_vec())));
    let found = payloads(vec![column(&[b"a", b"bc"]), column(&[b"d"])]);
    assert_eq!(
        found.iter().map(|(payload, _)| payload.as_slice()).collect::<Vec<_>>(),
        [&b"a"[..], b"bc", b"d"]
    );
    // A null that has bytes.
    let (offsets, bytes, _) = BinaryArray::from(vec![&b"a"[..], b"xx", b"b"]).into_parts();
    let nulls = NullBuffer::from(vec![true, false, true]);
    let found = payloads(vec![of_values(Arc::new(BinaryArray::new(offsets, bytes, Some(nulls))))]);
    assert_eq!(
        found.iter().map(|(payload, _)| payload.as_slice()).collect::<Vec<_>>(),
        [&b"a"[..], b"", b"b"]
    );
}

#[test]
fn shared_payloads_go_their_ways_by_topic_and_beside_rows_that_are_left_out() {
    let payload: ArrayRef = Arc::new(BinaryArray::from(vec![&b"a"[..], b"bb", b"ccc", b"dddd"]));
    let topic: ArrayRef = Arc::new(StringArray::from(vec![Some("x"), Some("y"), None, Some("x")]));
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("value", Arc::clone(&payload), true),
        ("topic", topic, true),
    ])
    .unwrap();
    let columns = || Columns {
        topic: Some(super::Topics::Column("topic".into())),
        leaves_out: true,
        ..Columns::default()
    };
    let mut rows = encode(Imported::new(vec![batch]), &columns()).unwrap();
    assert_eq!(rows.take_bad().iter().map(|bad| bad.number).collect::<Vec<_>>(), [2]);
    let parts = rows.by_topic();
    let found: Vec<_> = parts
        .iter()
        .map(|(topic, rows)| {
            let payloads = Cursor::default().rows(rows, &[]).map(|row| row.payload.to_vec());
            (topic.as_str(), payloads.collect::<Vec<_>>())
        })
        .collect();
    assert_eq!(found, [("x", vec![b"a".to_vec(), b"dddd".to_vec()]), ("y", vec![b"bb".to_vec()])]);
}

/// A field of UUIDs, and two of them with a null between.
fn ids(name: &str) -> (Field, ArrayRef) {
    let array = FixedSizeBinaryArray::try_from_sparse_iter_with_size(
        [Some([1u8; 16]), None, Some([0xab; 16])].into_iter(),
        16,
    );
    let metadata: std::collections::HashMap<_, _> =
        [("ARROW:extension:name".to_owned(), "arrow.uuid".to_owned())].into();
    (Field::new(name, DataType::FixedSizeBinary(16), true).with_metadata(metadata), Arc::new(array.unwrap()))
}

const FIRST: &str = "01010101-0101-0101-0101-010101010101";
const LAST: &str = "abababab-abab-abab-abab-abababababab";

/// A table with UUIDs as a column, in a list, a struct, a map and a dictionary.
fn table_of_ids() -> RecordBatch {
    let (field, array) = ids("id");
    let item = Arc::new(ids("item").0);
    let list = ListArray::new(item, OffsetBuffer::from_lengths([1, 0, 2]), Arc::clone(&array), None);
    let nested = Arc::new(Field::new("item", list.data_type().clone(), true));
    let nested =
        LargeListArray::new(nested, OffsetBuffer::from_lengths([1, 1, 1]), Arc::new(list.clone()), None);
    let inside = StructArray::new(vec![field.clone()].into(), vec![Arc::clone(&array)], None);
    let words: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
    let entry = |key: Field, keys: ArrayRef, value: Field, values: ArrayRef| {
        let entries = StructArray::new(vec![key, value].into(), vec![keys, values], None);
        let field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
        MapArray::new(field, OffsetBuffer::from_lengths([1, 1, 1]), entries, None, false)
    };
    let word = |name: &str| Field::new(name, DataType::Utf8, false);
    let values = entry(word("key"), Arc::clone(&words), ids("value").0, Arc::clone(&array));
    let full: ArrayRef =
        Arc::new(FixedSizeBinaryArray::try_from_iter([[1u8; 16], [2; 16], [0xab; 16]].iter()).unwrap());
    let keys = entry(ids("key").0.with_nullable(false), Arc::clone(&full), word("value"), words);
    let indices = Int8Array::from(vec![0, 1, 2]);
    let dictionary: ArrayRef =
        Arc::new(DictionaryArray::<Int8Type>::try_new(indices, Arc::clone(&array)).unwrap());
    let of_dictionary = ids("dictionary").0.with_data_type(dictionary.data_type().clone());
    let plain = |name: &str, array: &ArrayRef| Field::new(name, array.data_type().clone(), true);
    let (list, inside): (ArrayRef, ArrayRef) = (Arc::new(list), Arc::new(inside));
    let nested: ArrayRef = Arc::new(nested);
    let (values, keys): (ArrayRef, ArrayRef) = (Arc::new(values), Arc::new(keys));
    let fields = vec![
        field,
        plain("list", &list),
        plain("inside", &inside),
        plain("values", &values),
        plain("keys", &keys),
        of_dictionary,
        plain("raw", &full),
        plain("nested", &nested),
    ];
    let columns = vec![array, list, inside, values, keys, dictionary, full, nested];
    RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns).unwrap()
}

#[test]
fn uuids_are_text_in_json_with_and_without_a_schema() {
    let batch = table_of_ids();
    let text = |schema: Option<RowSchema>| -> Vec<Value> {
        let columns = Columns { json: schema.is_none(), schema, ..Columns::default() };
        let rows = encode(Imported::new(vec![batch.clone()]), &columns).unwrap();
        Cursor::default().rows(&rows, &[]).map(|row| serde_json::from_slice(row.payload).unwrap()).collect()
    };
    let first = json!({
        "id": FIRST, "list": [FIRST], "inside": {"id": FIRST}, "values": {"a": FIRST}, "keys": {FIRST: "a"},
        "dictionary": FIRST, "raw": "AQEBAQEBAQEBAQEBAQEBAQ==",
        "nested": [[FIRST]]
    });
    let rows = text(None);
    assert_eq!(rows[0], first);
    assert_eq!(rows[1]["values"], json!({"b": null}));
    assert_eq!(rows[2]["list"], json!([null, LAST]));
    let texts = Schema::parse(
        br#"{"type": "record", "name": "R", "fields": [{"name": "id", "type": ["null", "string"]},
            {"name": "list", "type": {"type": "array", "items": ["null", "string"]}},
            {"name": "inside", "type": {"type": "record", "name": "I", "fields": [{"name": "id", "type": ["null", "string"]}]}},
            {"name": "values", "type": {"type": "map", "values": ["null", "string"]}},
            {"name": "keys", "type": {"type": "map", "values": "string"}},
            {"name": "dictionary", "type": ["null", "string"]}, {"name": "raw", "type": "bytes"},
            {"name": "nested", "type": {"type": "array", "items": {"type": "array", "items": ["null", "string"]}}}]}"#,
    );
    assert_eq!(text(Some(RowSchema::Json(Arc::new(texts.unwrap()))))[0], first);
    let without_keys = batch.project(&[0, 1, 2, 3, 5, 6, 7]).unwrap();
    let defined = Schema::parse(define(without_keys.schema_ref(), "Row").unwrap().as_bytes()).unwrap();
    let columns = Columns { schema: Some(RowSchema::Json(Arc::new(defined))), ..Columns::default() };
    let rows = encode(Imported::new(vec![without_keys]), &columns).unwrap();
    let row: Value =
        serde_json::from_slice(Cursor::default().rows(&rows, &[]).next().unwrap().payload).unwrap();
    assert_eq!(
        (&row["id"], &row["list"], &row["dictionary"]),
        (&first["id"], &first["list"], &first["dictionary"])
    );
}

fn properties_of(rows: &Rows) -> Vec<(&str, &str)> {
    rows.properties().iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[test]
fn uuids_are_text_as_keys_topics_and_properties() {
    let batch = table_of_ids();
    for key in ["id", "dictionary"] {
        for properties in ["inside", "values", "keys"] {
            let columns = Columns {
                value: Some("raw".into()),
                key: Some(key.into()),
                keys_of_bytes: true,
                ordering_key: Some(key.into()),
                properties: Some(properties.into()),
                ..Columns::default()
            };
            let rows = encode(Imported::new(vec![batch.clone()]), &columns).unwrap();
            assert!(!rows.key_is_base64);
            let keys: Vec<_> = Cursor::default()
                .rows(&rows, &properties_of(&rows))
                .map(|row| row.key.map(str::to_owned))
                .collect();
            assert_eq!(keys, [Some(FIRST.to_owned()), None, Some(LAST.to_owned())]);
            let all = properties_of(&rows);
            let row = Cursor::default().rows(&rows, &all).next().unwrap();
            assert_eq!(row.payload, [1; 16], "payloads are the bytes");
            let expected = match properties {
                "inside" => ("id", FIRST),
                "values" => ("a", FIRST),
                _ => (FIRST, "a"),
            };
            let found: Vec<_> = row.properties.iter().map(|(name, value)| (*name, *value)).collect();
            assert_eq!(found, [expected]);
        }
    }
    // Bytes that are no UUIDs are still keys of bytes.
    let columns = Columns {
        value: Some("raw".into()),
        key: Some("raw".into()),
        keys_of_bytes: true,
        ..Columns::default()
    };
    assert!(encode(Imported::new(vec![batch]), &columns).unwrap().key_is_base64);
}
