use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder, MapBuilder, StringBuilder};
use arrow_array::cast::AsArray as _;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Date64Array, Decimal128Array, Decimal256Array,
    DictionaryArray, FixedSizeBinaryArray, Float32Array, Float64Array, Int32Array, Int64Array, ListArray,
    MapArray, NullArray, RecordBatch, StringArray, StructArray, Time32MillisecondArray,
    Time64MicrosecondArray, Time64NanosecondArray, TimestampMicrosecondArray, TimestampMillisecondArray,
    TimestampNanosecondArray, UInt64Array,
};
use arrow_buffer::{OffsetBuffer, i256};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema as ArrowSchema, TimeUnit};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

use super::super::{Columns, Cursor, Imported, encode};
use super::*;
use forebay_base::error::ErrorKind;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
        .unwrap()
}

fn avro(definition: &str) -> Arc<Schema> {
    Arc::new(Schema::parse(definition.as_bytes()).unwrap())
}

fn record(fields: &str) -> Arc<Schema> {
    avro(&format!(r#"{{"type": "record", "name": "R", "fields": [{fields}]}}"#))
}

fn payloads(batch: RecordBatch, schema: RowSchema, value: Option<&str>) -> Result<Vec<Option<Vec<u8>>>> {
    let value = value.map(str::to_owned);
    let columns = Columns { schema: Some(schema), value, key: None, first_row: 10, ..Columns::default() };
    let rows = encode(Imported::new(vec![batch]), &columns)?;
    let all = Cursor::default().rows(&rows, &[]).map(|row| (!row.null_value).then(|| row.payload.to_vec()));
    Ok(all.collect())
}

fn rows(batch: RecordBatch, schema: RowSchema) -> Result<Vec<Vec<u8>>> {
    Ok(payloads(batch, schema, None)?.into_iter().flatten().collect())
}

fn json(batch: RecordBatch, fields: &str) -> Vec<Value> {
    let rows = rows(batch, RowSchema::Json(record(fields))).unwrap();
    rows.iter().map(|row| serde_json::from_slice(row).unwrap()).collect()
}

fn failure(batch: RecordBatch, fields: &str) -> String {
    let error = rows(batch, RowSchema::Avro(record(fields))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    error.message().to_owned()
}

fn one(name: &str, array: impl Array + 'static) -> RecordBatch {
    batch(vec![(name, Arc::new(array))])
}

#[test]
fn rows_are_written_as_the_specification_says() {
    let table = batch(vec![
        ("b", Arc::new(StringArray::from(vec![Some("foo"), None]))),
        ("a", Arc::new(Int64Array::from(vec![27, -64]))),
    ]);
    let schema = record(r#"{"name": "a", "type": "long"}, {"name": "b", "type": ["null", "string"]}"#);
    let rows = rows(table, RowSchema::Avro(schema)).unwrap();
    // The examples of the specification: 27 is 36, "foo" is 06 66 6f 6f.
    assert_eq!(rows, [&[0x36, 2, 6, b'f', b'o', b'o'][..], &[0x7f, 0]]);
}

#[test]
fn a_defined_schema_takes_the_rows_that_it_was_defined_for() {
    let mut lists = ListBuilder::new(Int64Builder::new());
    lists.append_value([Some(1), None]);
    lists.append_null();
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
    maps.keys().append_value("k");
    maps.values().append_value(5);
    maps.append(true).unwrap();
    maps.append(false).unwrap();
    let inner = StructArray::from(one("x", BooleanArray::from(vec![true, false])));
    let colours: DictionaryArray<arrow_array::types::Int8Type> = ["red", "blue"].into_iter().collect();
    let zone = TimestampNanosecondArray::from(vec![1_999, -1]).with_timezone("Europe/Berlin");
    let amounts = Decimal128Array::from(vec![-5, 12_345]).with_precision_and_scale(10, 2).unwrap();
    let table = batch(vec![
        ("list", Arc::new(lists.finish())),
        ("map", Arc::new(maps.finish())),
        ("inner", Arc::new(inner)),
        ("colour", Arc::new(colours)),
        ("day", Arc::new(Date32Array::from(vec![1, -1]))),
        ("clock", Arc::new(Time64NanosecondArray::from(vec![1_999, 0]))),
        ("at", Arc::new(zone)),
        ("local", Arc::new(TimestampNanosecondArray::from(vec![1_000, -1]))),
        ("amount", Arc::new(amounts)),
        ("id", Arc::new(FixedSizeBinaryArray::try_from_iter([[1u8; 2], [2; 2]].iter()).unwrap())),
        ("none", Arc::new(NullArray::new(2))),
        ("raw", Arc::new(BinaryArray::from(vec![&b"\xff"[..], b""]))),
    ]);
    let text = define(table.schema_ref(), "Row").unwrap();
    let schema = Arc::new(Schema::parse(text.as_bytes()).unwrap());
    let made: Vec<Value> = rows(table.clone(), RowSchema::Json(Arc::clone(&schema)))
        .unwrap()
        .iter()
        .map(|row| serde_json::from_slice(row).unwrap())
        .collect();
    assert_eq!(
        made,
        [
            serde_json::json!({
                "list": [1, null], "map": {"k": 5}, "inner": {"x": true}, "colour": "red", "day": 1, "clock": 1,
                "at": 1, "local": 1, "amount": -0.05, "id": "AQE=", "none": null, "raw": "/w=="
            }),
            serde_json::json!({
                "list": null, "map": null, "inner": {"x": false}, "colour": "blue", "day": -1, "clock": 0,
                "at": -1, "local": -1, "amount": 123.45, "id": "AgI=", "none": null, "raw": ""
            }),
        ]
    );
    assert_eq!(rows(table, RowSchema::Avro(schema)).unwrap().len(), 2);
}

#[test]
fn the_definition_of_a_table_is_that_of_its_columns() {
    let inner = DataType::Struct(vec![Field::new("x", DataType::Int32, false)].into());
    let list = DataType::List(Field::new("item", inner.clone(), false).into());
    let schema = ArrowSchema::new(vec![
        Field::new("n", DataType::UInt32, false),
        Field::new("a", inner, true),
        Field::new("b", list, true),
        Field::new("at", DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), false),
        Field::new("amount", DataType::Decimal256(60, 3), true),
    ]);
    let made: Value = serde_json::from_str(&define(&schema, "my.Order").unwrap()).unwrap();
    let inner = |name: &str| {
        serde_json::json!({"type": "record", "name": name, "namespace": "my.Order",
            "fields": [{"name": "x", "type": "int"}]})
    };
    let items = serde_json::json!({"type": "array", "items": inner("b")});
    let expected = serde_json::json!({"type": "record", "name": "my.Order", "fields": [
        {"name": "n", "type": "long"},
        {"name": "a", "type": ["null", inner("a")], "default": null},
        {"name": "b", "type": ["null", items], "default": null},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "amount", "type": ["null",
            {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 3}], "default": null},
    ]});
    assert_eq!(made, expected);
    Schema::parse(made.to_string().as_bytes()).unwrap();
}

#[test]
fn columns_without_a_counterpart_are_refused_by_name() {
    for (name, kind, reason) in [
        (
            "n",
            DataType::UInt64,
            r#"column "n" is UInt64, which has no counterpart in Avro: cast it to Int64"#,
        ),
        ("d", DataType::Duration(TimeUnit::Second), r#"column "d" is Duration"#),
        ("two words", DataType::Int8, r#"column "two words" has no name"#),
        ("1st", DataType::Int8, "has no name"),
        ("a", DataType::Decimal128(5, -2), "a scale from 0"),
    ] {
        let error = define(&ArrowSchema::new(vec![Field::new(name, kind, true)]), "Row").unwrap_err();
        assert!(error.message().contains(reason), "{error}");
    }
    let inner = DataType::Struct(vec![Field::new("x", DataType::UInt64, false)].into());
    let error = define(&ArrowSchema::new(vec![Field::new("a", inner, true)]), "Row").unwrap_err();
    assert!(error.message().contains(r#"column "a.x" is UInt64"#), "{error}");
    assert!(define(&ArrowSchema::empty(), "a b").is_err());
    let twice = vec![Field::new("a", DataType::Int8, true), Field::new("a", DataType::Int8, true)];
    assert!(define(&ArrowSchema::new(twice), "Row").unwrap_err().message().contains("two columns"));
}

#[test]
fn a_value_that_does_not_fit_is_named_with_row_and_column() {
    let long = r#"{"name": "n", "type": "long"}"#;
    let null = failure(one("n", Int64Array::from(vec![Some(1), None])), long);
    assert_eq!(null, r#"row 11 of column "n" does not fit the schema: it is null, and the field may not be"#);
    let large = failure(one("n", UInt64Array::from(vec![u64::MAX])), long);
    assert!(large.contains("row 10") && large.contains("64 bits"), "{large}");
    let int = failure(one("n", Int64Array::from(vec![1 << 31])), r#"{"name": "n", "type": "int"}"#);
    assert!(int.contains("2147483648 does not fit into 32 bits"), "{int}");
    let float = failure(one("n", Float64Array::from(vec![1e300])), r#"{"name": "n", "type": "float"}"#);
    assert!(float.contains("1e300"), "{float}");
    let colour = r#"{"name": "n", "type": {"type": "enum", "name": "E", "symbols": ["A"]}}"#;
    let symbol = failure(one("n", StringArray::from(vec!["A", "B"])), colour);
    assert!(symbol.contains(r#"row 11 of column "n""#) && symbol.contains(r#"no symbol "B""#), "{symbol}");
    let decimal =
        r#"{"name": "n", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 1}}"#;
    let digits = Decimal128Array::from(vec![125]).with_precision_and_scale(9, 2).unwrap();
    assert!(failure(one("n", digits), decimal).contains("1.25 has more than 1 digits"));
    let short =
        r#"{"name": "n", "type": {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}}"#;
    for (value, own, fits) in
        [(999, 1, true), (-999, 1, true), (1000, 1, false), (-1000, 1, false), (100, 0, false)]
    {
        let table = one("n", Decimal128Array::from(vec![value]).with_precision_and_scale(20, own).unwrap());
        for schema in [RowSchema::Avro(record(short)), RowSchema::Json(record(short))] {
            match rows(table.clone(), schema) {
                Ok(_) => assert!(fits, "{value}"),
                Err(error) => {
                    assert!(
                        !fits && error.message().contains("has more than 3 digits, 1 of them"),
                        "{error}"
                    );
                }
            }
        }
    }
    let uuid = r#"{"name": "n", "type": {"type": "string", "logicalType": "uuid"}}"#;
    for text in ["", "x", "00000000-0000-0000-0000-00000000000", "0000000000000000000000000000000g", "0-"] {
        assert!(failure(one("n", StringArray::from(vec![text])), uuid).contains("no UUID"), "{text}");
    }
    let fixed = r#"{"name": "n", "type": {"type": "fixed", "name": "F", "size": 3}}"#;
    assert!(failure(one("n", BinaryArray::from(vec![&b"ab"[..]])), fixed).contains("it has 2 bytes"));
    let text = failure(one("n", BinaryArray::from(vec![&b"\xff"[..]])), r#"{"name": "n", "type": "string"}"#);
    assert!(text.contains("UTF-8"), "{text}");
    let mut lists = ListBuilder::new(Int64Builder::new());
    lists.append_value([Some(1), None]);
    let items =
        failure(one("n", lists.finish()), r#"{"name": "n", "type": {"type": "array", "items": "long"}}"#);
    assert!(items.contains(r#"column "n[1]""#), "{items}");
    let json = rows(
        one("n", Float64Array::from(vec![f64::NAN])),
        RowSchema::Json(record(r#"{"name": "n", "type": "double"}"#)),
    );
    assert!(json.unwrap_err().message().contains("JSON has no NaN"));
}

#[test]
fn a_column_that_does_not_fit_is_named() {
    let table = || {
        batch(vec![
            ("n", Arc::new(Int64Array::from(vec![1])) as ArrayRef),
            ("x", Arc::new(Int64Array::from(vec![1]))),
        ])
    };
    let extra = failure(table(), r#"{"name": "n", "type": "long"}"#);
    assert_eq!(extra, r#"column "x" does not fit the schema: R has no such field: it has n"#);
    let missing = failure(
        table(),
        r#"{"name": "n", "type": "long"}, {"name": "x", "type": "int"}, {"name": "y", "type": "int"}"#,
    );
    assert!(missing.contains(r#"column "y""#) && missing.contains("no default"), "{missing}");
    let kind = failure(one("n", StringArray::from(vec!["1"])), r#"{"name": "n", "type": ["null", "long"]}"#);
    assert_eq!(kind, r#"column "n" does not fit the schema: it is Utf8, which is no long"#);
    let naive = one("n", TimestampNanosecondArray::from(vec![1]));
    let zone = r#"{"name": "n", "type": {"type": "long", "logicalType": "timestamp-micros"}}"#;
    assert!(failure(naive, zone).contains("a time with a zone"));
    let inner = one("n", StructArray::from(one("x", StringArray::from(vec!["a"]))));
    let field =
        r#"{"name": "n", "type": {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}}"#;
    assert!(failure(inner, field).contains(r#"column "n.x""#));
    let unknown = failure(
        one("n", BooleanArray::from(vec![true])),
        r#"{"name": "n", "type": ["null", "long", "string"]}"#,
    );
    assert!(unknown.contains("one of null, long, string"), "{unknown}");
}

#[test]
fn missing_columns_have_their_defaults_and_the_columns_beside_are_left_out() {
    let table = batch(vec![
        ("n", Arc::new(Int32Array::from(vec![1])) as ArrayRef),
        ("id", Arc::new(StringArray::from(vec!["k"]))),
    ]);
    let fields = r#"{"name": "n", "type": "long"}, {"name": "s", "type": "string", "default": "d"}"#;
    let columns = |schema| Columns { schema: Some(schema), key: Some("id".into()), ..Columns::default() };
    let encoded =
        encode(Imported::new(vec![table.clone()]), &columns(RowSchema::Avro(record(fields)))).unwrap();
    let row = Cursor::default().rows(&encoded, &[]).next().unwrap();
    assert_eq!((row.payload, row.key), (&[2, 2, b'd'][..], Some("k")));
    let with_key = record(&format!(r#"{fields}, {{"name": "id", "type": "string"}}"#));
    let encoded = encode(Imported::new(vec![table]), &columns(RowSchema::Avro(with_key))).unwrap();
    let row = Cursor::default().rows(&encoded, &[]).next().unwrap();
    assert_eq!(row.payload, [2, 2, b'd', 2, b'k'], "a field of the record stays one");
}

#[test]
fn numbers_become_wider_and_narrower_while_their_values_stay() {
    let fields = r#"{"name": "n", "type": "float"}"#;
    assert_eq!(json(one("n", Int64Array::from(vec![3])), fields), [serde_json::json!({"n": 3.0})]);
    let fields = r#"{"name": "n", "type": ["null", "int", "double"]}"#;
    let made = rows(one("n", Float64Array::from(vec![0.5])), RowSchema::Avro(record(fields))).unwrap();
    assert_eq!(made[0][0], 4, "the branch is that of the type of the column");
    let nested = record(
        r#"{"name": "n", "type": {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 4}}"#,
    );
    for (value, bytes) in [(1, &[4, 0x27, 0x10][..]), (0, &[2, 0]), (-1, &[4, 0xd8, 0xf0])] {
        let table = one("n", Int64Array::from(vec![value]));
        assert_eq!(rows(table, RowSchema::Avro(Arc::clone(&nested))).unwrap(), [bytes]);
    }
}

#[test]
fn integers_that_a_float_would_change_are_refused() {
    for (kind, exact) in [("float", 1 << 24), ("double", 1 << 53)] {
        let schema =
            format!(r#"{{"type": "record", "name": "R", "fields": [{{"name": "n", "type": "{kind}"}}]}}"#);
        let schema = Arc::new(Schema::parse(schema.as_bytes()).unwrap());
        let encoded = |value: i64| {
            rows(one("n", Int64Array::from(vec![Some(value)])), RowSchema::Avro(Arc::clone(&schema)))
        };
        assert!(encoded(exact).is_ok() && encoded(-exact).is_ok() && encoded(exact + 2).is_ok(), "{kind}");
        assert!(encoded(exact + 1).unwrap_err().message().contains("more digits"), "{kind}");
    }
}

#[test]
fn single_values_are_those_of_the_java_client() {
    let payload = |plain, array: ArrayRef| {
        payloads(batch(vec![("v", array)]), RowSchema::Plain(plain), Some("v")).unwrap().remove(0).unwrap()
    };
    assert_eq!(payload(Plain::Integer(2), Arc::new(Int64Array::from(vec![-2]))), [0xff, 0xfe]);
    assert_eq!(payload(Plain::Text, Arc::new(StringArray::from(vec!["ü"]))), "ü".as_bytes());
    assert_eq!(payload(Plain::Double, Arc::new(Float64Array::from(vec![1.0])))[..2], [0x3f, 0xf0]);
    assert_eq!(payload(Plain::LocalDate, Arc::new(Date32Array::from(vec![-1]))), [0xff; 8]);
    for (ms, day) in [(-1, -1i64), (-86_400_000, -1), (-86_400_001, -2), (86_399_999, 0)] {
        let date: ArrayRef = Arc::new(Date64Array::from(vec![ms]));
        assert_eq!(payload(Plain::LocalDate, date), day.to_be_bytes(), "{ms}");
    }
    let moment = TimestampNanosecondArray::from(vec![-1]).with_timezone("UTC");
    // As LocalDateTimeSchema of the Java client: the day, then the nanosecond of the day.
    let local: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![-1]));
    let local = payload(Plain::LocalDateTime, local);
    assert_eq!((&local[..8], &local[8..]), (&[0xff; 8][..], &86_399_999_999_999i64.to_be_bytes()[..]));
    let instant = payload(Plain::Instant, Arc::new(moment));
    assert_eq!((&instant[..8], &instant[8..]), (&[0xff; 8][..], &999_999_999i32.to_be_bytes()[..]));
    let tombstone =
        payloads(one("v", Int64Array::from(vec![None])), RowSchema::Plain(Plain::Integer(8)), Some("v"));
    assert_eq!(tombstone.unwrap(), [None]);
    let error =
        payloads(one("v", Int64Array::from(vec![300])), RowSchema::Plain(Plain::Integer(1)), Some("v"));
    assert!(error.unwrap_err().message().contains("8 bits"));
    let error = payloads(one("v", Int64Array::from(vec![3])), RowSchema::Plain(Plain::Text), None);
    assert!(error.unwrap_err().message().contains("value="));
}

#[test]
fn a_column_of_structs_is_a_column_of_records_and_payloads_are_none() {
    let rows = StructArray::from(one("n", Int64Array::from(vec![1])));
    let schema = || RowSchema::Avro(record(r#"{"name": "n", "type": "long"}"#));
    assert_eq!(payloads(one("v", rows), schema(), Some("v")).unwrap(), [Some(vec![2])]);
    let error = payloads(one("v", BinaryArray::from(vec![&b"\x02"[..]])), schema(), Some("v")).unwrap_err();
    assert!(error.message().contains("schema=None"), "{error}");
}

fn number(value: i128, scale: u32) -> Cell {
    Cell::Decimal(i256::from_i128(value), scale)
}

fn column(cells: Vec<Cell>, kind: &str) -> Result<ArrayRef> {
    let mut column = Gather::of(&avro(kind), Types::Arrow)?;
    cells.into_iter().try_for_each(|cell| column.push(cell))?;
    column.finish()
}

#[test]
fn rows_that_were_written_are_read_as_the_same_columns() {
    let mut lists = ListBuilder::new(Int64Builder::new());
    lists.append_value([Some(1), None]);
    lists.append_null();
    let inner = StructArray::from(one("x", BooleanArray::from(vec![Some(true), None])));
    let table = batch(vec![
        ("list", Arc::new(lists.finish())),
        ("inner", Arc::new(inner)),
        ("day", Arc::new(Date32Array::from(vec![Some(1), None]))),
        ("id", Arc::new(FixedSizeBinaryArray::try_from_iter([[1u8; 2], [2; 2]].iter()).unwrap())),
        ("none", Arc::new(NullArray::new(2))),
        ("raw", Arc::new(BinaryArray::from(vec![&b"\xff"[..], b""]))),
    ]);
    let schema = Arc::new(Schema::parse(define(table.schema_ref(), "Row").unwrap().as_bytes()).unwrap());
    let plan = forebay_avro::Plan::new(Arc::clone(&schema), Arc::clone(&schema)).unwrap();
    for json in [false, true] {
        let form =
            if json { RowSchema::Json(Arc::clone(&schema)) } else { RowSchema::Avro(Arc::clone(&schema)) };
        let mut column = Gather::of(&schema, Types::Arrow).unwrap();
        for row in rows(table.clone(), form).unwrap() {
            let cell = if json { Cell::of_json(&schema, &row) } else { Cell::of_avro(&plan, &row) };
            column.push(cell.unwrap()).unwrap();
        }
        assert_eq!(column.finish().unwrap().to_data(), StructArray::from(table.clone()).to_data(), "{json}");
    }
}

/// The values of a column of one field, written in an encoding and read again.
fn again(array: ArrayRef, kind: &str, json: bool) -> Result<ArrayRef> {
    let schema = record(&format!(r#"{{"name": "n", "type": {kind}}}"#));
    let plan = forebay_avro::Plan::new(Arc::clone(&schema), Arc::clone(&schema)).unwrap();
    let form = if json { RowSchema::Json(Arc::clone(&schema)) } else { RowSchema::Avro(Arc::clone(&schema)) };
    let mut column = Gather::of(&schema, Types::Arrow)?;
    for row in rows(batch(vec![("n", array)]), form)? {
        column.push(if json { Cell::of_json(&schema, &row)? } else { Cell::of_avro(&plan, &row)? })?;
    }
    let read = column.finish()?;
    Ok(read.as_any().downcast_ref::<StructArray>().unwrap().column(0).clone())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn doubles_and_floats_are_read_as_they_were_written(doubles in vec(any::<f64>(), 1..40), floats in vec(any::<f32>(), 1..40)) {
        for json in [false, true] {
            let kept = |value: &f64| !json || value.is_finite();
            let doubles: Vec<f64> = doubles.iter().copied().filter(kept).collect();
            let floats: Vec<f32> = floats.iter().copied().filter(|value| kept(&f64::from(*value))).collect();
            let read = again(Arc::new(Float64Array::from(doubles.clone())), r#""double""#, json).unwrap();
            let read = read.as_any().downcast_ref::<Float64Array>().unwrap();
            let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(read.values()), bits(&doubles));
            let read = again(Arc::new(Float32Array::from(floats.clone())), r#""float""#, json).unwrap();
            let read = read.as_any().downcast_ref::<Float32Array>().unwrap();
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(read.values()), bits(&floats));
        }
    }

    #[test]
    fn decimals_are_read_as_they_were_written(
        (precision, scale) in (1u8..=76).prop_flat_map(|precision| (Just(precision), 0..=precision)),
        numbers in vec((any::<bool>(), "[0-9]{1,76}"), 1..20),
    ) {
        let unscaled = |(negative, digits): &(bool, String)| {
            let digits = &digits[..digits.len().min(precision.into())];
            let number = i256::from_string(digits).unwrap();
            if *negative { -number } else { number }
        };
        let numbers: Vec<i256> = numbers.iter().map(unscaled).collect();
        let array = Decimal256Array::from(numbers.clone());
        let array: ArrayRef = Arc::new(array.with_precision_and_scale(precision, scale as i8).unwrap());
        let kind = format!(r#"{{"type": "bytes", "logicalType": "decimal", "precision": {precision}, "scale": {scale}}}"#);
        let small: ArrayRef = if precision <= 38 {
            cast(&array, &DataType::Decimal128(38, scale as i8)).unwrap()
        } else {
            cast(&array, &DataType::Decimal256(76, scale as i8)).unwrap()
        };
        assert_kept(&kind, &array, &small, &[false, true]);
        for json in [false, true] {
            let read = again(Arc::clone(&array), &kind, json).unwrap();
            let read: Vec<i256> = if let Some(read) = read.as_any().downcast_ref::<Decimal128Array>() {
                prop_assert!(precision <= 38 && read.scale() == scale as i8);
                read.values().iter().copied().map(i256::from_i128).collect()
            } else {
                let read = read.as_any().downcast_ref::<Decimal256Array>().unwrap();
                prop_assert!(precision > 38 && read.scale() == scale as i8);
                read.values().to_vec()
            };
            prop_assert_eq!(&read, &numbers, "json: {}", json);
        }
    }

    #[test]
    fn a_long_of_a_union_is_exact_or_refused(long in any::<i64>(), small in -(1i64 << 53)..=1 << 53) {
        for kind in [r#"["long", "double"]"#, r#"["double", "long"]"#, r#"["null", "float", "long"]"#] {
            for json in [false, true] {
                for value in [long, small, 9_007_199_254_740_993, i64::MAX] {
                    let read = again(Arc::new(Int64Array::from(vec![value])), kind, json);
                    if i128::from(value) == value as f64 as i128 {
                        let read = read.unwrap();
                        let read = read.as_any().downcast_ref::<Float64Array>().unwrap();
                        prop_assert_eq!(read.value(0) as i64, value);
                    } else {
                        let text = read.unwrap_err().message().to_owned();
                        prop_assert!(text.contains("more digits than the column"), "{}", text);
                    }
                }
            }
        }
    }
}

/// A type within others: its definition, and a column of that with one value each.
fn within(place: usize, kind: &str, array: &ArrayRef) -> (String, ArrayRef) {
    let ones = || OffsetBuffer::from_lengths(vec![1; array.len()]);
    let field = |name: &str, array: &ArrayRef| Arc::new(Field::new(name, array.data_type().clone(), true));
    match place {
        0 => (kind.to_owned(), array.clone()),
        1 => (format!(r#"["null", {kind}]"#), array.clone()),
        2 => {
            let list = ListArray::new(field("item", array), ones(), array.clone(), None);
            (format!(r#"{{"type": "array", "items": {kind}}}"#), Arc::new(list))
        }
        3 => {
            let keys: ArrayRef = Arc::new(StringArray::from(vec!["k"; array.len()]));
            let key = Arc::new(Field::new("key", DataType::Utf8, false));
            let fields = vec![key, field("value", array)];
            let entries = StructArray::new(fields.into(), vec![keys, array.clone()], None);
            let of = Arc::new(Field::new("entries", entries.data_type().clone(), false));
            let map = MapArray::new(of, ones(), entries, None, false);
            (format!(r#"{{"type": "map", "values": {kind}}}"#), Arc::new(map))
        }
        _ => {
            let record = StructArray::new(vec![field("x", array)].into(), vec![array.clone()], None);
            let definition =
                format!(r#"{{"type": "record", "name": "I", "fields": [{{"name": "x", "type": {kind}}}]}}"#);
            (definition, Arc::new(record))
        }
    }
}

/// The values that [`within`] put somewhere.
fn out_of(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::List(_) => array.as_list::<i32>().values().clone(),
        DataType::Map(..) => array.as_map().values().clone(),
        DataType::Struct(_) => array.as_struct().column(0).clone(),
        _ => array.clone(),
    }
}

/// Writes values in both encodings and all places, and expects to read the same, bit by bit.
fn assert_kept(kind: &str, written: &ArrayRef, expected: &ArrayRef, encodings: &[bool]) {
    for json in encodings {
        for place in 0..5 {
            let (definition, array) = within(place, kind, written);
            let read = again(array, &definition, *json);
            let read = read.unwrap_or_else(|error| panic!("{definition}, json: {json}: {error}"));
            assert_eq!(out_of(&read).to_data(), expected.to_data(), "{definition}, json: {json}");
        }
    }
}

/// The same for a type of single values.
fn assert_kept_plain(plain: Plain, array: &ArrayRef) {
    let table = batch(vec![("v", array.clone())]);
    let mut column = Gather::of_plain(plain, Types::Arrow);
    for row in payloads(table, RowSchema::Plain(plain), Some("v")).unwrap() {
        column.push(plain.cell(&row.unwrap()).unwrap()).unwrap();
    }
    assert_eq!(column.finish().unwrap().to_data(), array.to_data(), "{plain:?}");
}

fn extreme<T: Clone + std::fmt::Debug + 'static>(
    any: impl Strategy<Value = T> + 'static,
    extremes: Vec<T>,
) -> impl Strategy<Value = Vec<T>> {
    vec(prop_oneof![3 => any, 1 => proptest::sample::select(extremes)], 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// The net under all numbers: every type, in both encodings and in every place.
    #[test]
    fn every_value_is_read_bit_by_bit(
        ints in extreme(any::<i32>(), vec![i32::MIN, -1, 0, 1, i32::MAX]),
        longs in extreme(any::<i64>(), vec![i64::MIN, -(1 << 53) - 1, -1, 0, 1, (1 << 53) + 1, i64::MAX]),
        doubles in extreme(any::<u64>().prop_map(f64::from_bits), vec![0.0, -0.0, f64::MIN, f64::MIN_POSITIVE, 5e-324, 0.1]),
        floats in extreme(any::<u32>().prop_map(f32::from_bits), vec![0.0, -0.0, f32::MIN, f32::MIN_POSITIVE, 1e-45, 0.1]),
        millis_of_day in extreme(0..86_400_000i32, vec![0, 86_399_999]),
        micros_of_day in extreme(0..86_400_000_000i64, vec![0, 86_399_999_999]),
        bytes in vec(vec(any::<u8>(), 0..40), 1..12),
        ids in vec(any::<[u8; 16]>(), 1..12),
        texts in vec(any::<String>(), 1..12),
        flags in vec(any::<bool>(), 1..12),
    ) {
        const BOTH: &[bool] = &[false, true];
        let same = |kind: &str, array: ArrayRef| assert_kept(kind, &array, &array, BOTH);
        let logical = |kind: &str, name: &str| format!(r#"{{"type": "{kind}", "logicalType": "{name}"}}"#);
        same(r#""int""#, Arc::new(Int32Array::from(ints.clone())));
        same(r#""long""#, Arc::new(Int64Array::from(longs.clone())));
        same(&logical("int", "date"), Arc::new(Date32Array::from(ints.clone())));
        same(&logical("int", "time-millis"), Arc::new(Time32MillisecondArray::from(millis_of_day)));
        same(&logical("long", "time-micros"), Arc::new(Time64MicrosecondArray::from(micros_of_day)));
        let millis = TimestampMillisecondArray::from(longs.clone());
        let micros = TimestampMicrosecondArray::from(longs.clone());
        same(&logical("long", "local-timestamp-millis"), Arc::new(millis.clone()));
        same(&logical("long", "local-timestamp-micros"), Arc::new(micros.clone()));
        same(&logical("long", "timestamp-millis"), Arc::new(millis.clone().with_timezone("UTC")));
        same(&logical("long", "timestamp-micros"), Arc::new(micros.with_timezone("UTC")));
        same(r#""boolean""#, Arc::new(BooleanArray::from(flags.clone())));
        same(r#""string""#, Arc::new(StringArray::from(texts.clone())));
        same(r#""bytes""#, Arc::new(BinaryArray::from_iter_values(&bytes)));
        let fixed: ArrayRef = Arc::new(FixedSizeBinaryArray::try_from_iter(ids.iter()).unwrap());
        same(r#"{"type": "fixed", "name": "F", "size": 16}"#, fixed.clone());
        let uuids: ArrayRef = Arc::new(ids.iter().map(|id| Some(hyphenated(*id))).collect::<StringArray>());
        assert_kept(&logical("string", "uuid"), &fixed, &uuids, BOTH);
        assert_kept(&logical("string", "uuid"), &uuids, &uuids, BOTH);

        // Floats of 32 bits are doubles on the way, which has its own idea of the bits of a NaN.
        let floats: Vec<f32> = floats.into_iter().map(|value| if value.is_nan() { f32::NAN } else { value }).collect();
        let (all_doubles, all_floats): (ArrayRef, ArrayRef) =
            (Arc::new(Float64Array::from(doubles.clone())), Arc::new(Float32Array::from(floats.clone())));
        assert_kept(r#""double""#, &all_doubles, &all_doubles, &[false]);
        assert_kept(r#""float""#, &all_floats, &all_floats, &[false]);
        same(r#""double""#, Arc::new(doubles.into_iter().filter(|value| value.is_finite()).map(Some).collect::<Float64Array>()));
        same(r#""float""#, Arc::new(floats.into_iter().filter(|value| value.is_finite()).map(Some).collect::<Float32Array>()));

        assert_kept_plain(Plain::Double, &all_doubles);
        assert_kept_plain(Plain::Float, &all_floats);
        assert_kept_plain(Plain::Integer(4), &(Arc::new(Int32Array::from(ints)) as ArrayRef));
        assert_kept_plain(Plain::Integer(8), &(Arc::new(Int64Array::from(longs)) as ArrayRef));
        assert_kept_plain(Plain::Millis, &(Arc::new(millis.with_timezone("UTC")) as ArrayRef));
        assert_kept_plain(Plain::Text, &(Arc::new(StringArray::from(texts)) as ArrayRef));
        assert_kept_plain(Plain::Boolean, &(Arc::new(BooleanArray::from(flags)) as ArrayRef));
    }
}

#[test]
fn numbers_of_json_that_no_double_is_are_refused() {
    let read = |kind: &str, json: &str| {
        let cell = Cell::of_json(&avro(&format!(r#""{kind}""#)), json.as_bytes());
        cell.map_err(|error| error.message().to_owned())
    };
    assert_eq!(read("double", "1.7976931348623157E308").unwrap(), Cell::Double(f64::MAX));
    assert_eq!(read("double", "5e-324").unwrap(), Cell::Double(f64::from_bits(1)));
    assert_eq!(read("double", "0.1e1").unwrap(), Cell::Double(1.0));
    for (kind, text) in [("double", "1e+400"), ("double", "-1e+400"), ("float", "1e+39")] {
        let error = read(kind, text).unwrap_err();
        assert!(error.ends_with(&format!("{text} is no {kind}")), "{error}");
    }
}

#[test]
fn a_value_that_does_not_fit_its_column_leaves_nothing_behind() {
    let record = r#"{"type": "record", "name": "R", "fields": [
        {"name": "a", "type": {"type": "array", "items": "int"}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}]}"#;
    let mut column = Gather::of(&avro(record), Types::Arrow).unwrap();
    let row = |bytes: &[u8]| {
        let decimal = Cell::Meant(forebay_avro::Logical::Decimal(2), bytes.to_vec());
        Cell::Record(vec![Cell::List(vec![Cell::Long(1)]), decimal])
    };
    column.push(row(&[0xff; 40])).unwrap();
    for bytes in [&[0x7f; 17][..], &[0x80; 33], &[0x7f; 4000]] {
        assert_eq!(column.push(row(bytes)).unwrap_err().kind(), ErrorKind::Schema);
    }
    column.push(row(&[1, 0])).unwrap();
    let array = column.finish().unwrap();
    assert_eq!(array.len(), 2);
    let decimals = array.as_any().downcast_ref::<StructArray>().unwrap().column(1).clone();
    let decimals = decimals.as_any().downcast_ref::<Decimal128Array>().unwrap();
    assert_eq!((decimals.value(0), decimals.value(1)), (-1, 256));
}

#[test]
fn a_definition_of_named_types_stands_for_a_limited_number_of_columns() {
    let tower = |levels: usize| {
        let mut tower = r#"{"type": "record", "name": "R0", "fields": []}"#.to_owned();
        for level in 1..=levels {
            tower = format!(
                r#"{{"type": "record", "name": "R{level}", "fields":
                    [{{"name": "a", "type": {tower}}}, {{"name": "b", "type": "R{}"}}]}}"#,
                level - 1
            );
        }
        tower
    };
    assert!(Gather::of(&avro(&tower(12)), Types::Arrow).is_ok());
    for types in [Types::Arrow, Types::Spark] {
        let error = Gather::of(&avro(&tower(30)), types).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("more than 20000 columns"), "{error}");
    }
}

#[test]
fn nulls_take_no_more_than_their_type_allows() {
    let nullable = |size: u64| format!(r#"["null", {{"type": "fixed", "name": "F", "size": {size}}}]"#);
    let wide = |size: u64| column(vec![Cell::Null, Cell::Null], &nullable(size)).unwrap().data_type().clone();
    assert_eq!(
        (wide(256), wide(257), wide(u32::MAX.into())),
        (DataType::FixedSizeBinary(256), DataType::Binary, DataType::Binary)
    );
    assert!(column(vec![Cell::Bytes(vec![7; 300])], &nullable(300)).is_ok());
    assert!(column(vec![Cell::Bytes(vec![7; 299])], &nullable(300)).is_err());
    // What stands for more bytes than a column has is refused before any of it is made.
    let list = |items: &str, cell: Cell, count: usize| {
        let array = format!(r#"{{"type": "array", "items": {items}}}"#);
        let mut column = Gather::of(&avro(&array), Types::Arrow).unwrap();
        let error = column.push(Cell::List(vec![cell; count])).unwrap_err();
        assert!(error.message().contains("read fewer rows at once"), "{error}");
    };
    let mut fields = vec![format!(r#"{{"name": "f", "type": {}}}"#, nullable(256))];
    fields.extend((0..999).map(|n| format!(r#"{{"name": "f{n}", "type": ["null", "F"]}}"#)));
    let record = format!(r#"["null", {{"type": "record", "name": "R", "fields": [{}]}}]"#, fields.join(","));
    list(&record, Cell::Null, 9000);
    let symbol = "s".repeat(1000);
    let of_symbol = format!(r#"{{"type": "enum", "name": "E", "symbols": ["{symbol}"]}}"#);
    list(&of_symbol, Cell::Symbol(0), 2_200_000);
}

#[test]
fn times_and_decimals_of_a_writer_have_the_units_of_the_column() {
    use forebay_avro::Logical;
    let micros = r#"{"type": "long", "logicalType": "timestamp-micros"}"#;
    let cells = vec![Cell::Number(Logical::TimestampMillis, -1), Cell::Number(Logical::TimestampMicros, 5)];
    let array = column(cells, micros).unwrap();
    let array = array.as_any().downcast_ref::<TimestampMicrosecondArray>().unwrap();
    assert_eq!(array.values()[..], [-1000, 5]);
    let far = vec![Cell::Number(Logical::TimestampMillis, i64::MAX)];
    assert!(column(far, micros).is_err());
    let decimal = r#"{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 1}"#;
    assert!(column(vec![number(125, 2)], decimal).is_err(), "1.25 has a digit too many");
    assert!(column(vec![number(1250, 3)], decimal).is_err());
    assert!(column(vec![number(1300, 3)], decimal).is_ok());
    assert!(column(vec![number(i128::MAX, 0)], decimal).is_err());
}

#[test]
fn json_stands_for_no_more_of_its_defaults_than_its_size_allows() {
    let long = "d".repeat(60_000);
    let schema = avro(&format!(
        r#"{{"type": "array", "items": {{"type": "record", "name": "I", "fields":
            [{{"name": "d", "type": "string", "default": "{long}"}}]}}}}"#
    ));
    let read = |count: usize| {
        let items = vec!["{}"; count].join(",");
        Cell::of_json(&schema, format!("[{items}]").as_bytes())
    };
    assert!(read(50).is_ok());
    assert!(read(30_000).unwrap_err().message().contains("too many"));
}

#[test]
fn json_is_read_with_defaults_and_within_bounds() {
    let schema = record(
        r#"{"name": "n", "type": ["null", "long"], "default": null}, {"name": "b", "type": "bytes", "default": "\u00ff"},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2}}"#,
    );
    let cell = |json: &str| Cell::of_json(&schema, json.as_bytes());
    let read = |d| Cell::Record(vec![Cell::Null, Cell::Bytes(vec![0xff]), d]);
    assert_eq!(cell(r#"{"d": -0.05, "other": 1}"#).unwrap(), read(number(-5, 2)));
    assert_eq!(cell(r#"{"d": 12345678901234567890}"#).unwrap(), read(number(12345678901234567890, 0)));
    assert_eq!(cell(r#"{"d": 1E+3}"#).unwrap(), read(number(1000, 0)));
    assert_eq!(cell(r#"{"d": -0}"#).unwrap(), read(number(0, 0)));
    assert_eq!(cell(r#"{"d": 1.500}"#).unwrap(), read(number(15, 1)));
    assert_eq!(cell(r#"{"d": "0.12345678901234567"}"#).unwrap(), read(number(12345678901234567, 17)));
    assert_eq!(cell(r#"{"d": 0.12345678901234567}"#).unwrap(), read(number(12345678901234567, 17)));
    for (json, reason) in [
        ("{}", "d: the field is missing"),
        (r#"{"d": 1e+999999999}"#, "d: 1e+999999999 is no decimal of up to 76 digits"),
        (r#"{"d": 1e-99999999999999999999}"#, "no decimal"),
        (r#"{"d": "1e"}"#, "no decimal"),
        (r#"{"d": "."}"#, "no decimal"),
        (r#"{"d": "0x1"}"#, "no decimal"),
        (r#"{"d": 1, "n": "x"}"#, "n:"),
        (r#"{"d": 1, "b": "%"}"#, "base64"),
        ("[", "EOF"),
        ("", "EOF"),
    ] {
        let error = cell(json).unwrap_err();
        assert!(error.message().contains(reason), "{json}: {error}");
    }
    let deep = "[".repeat(100_000);
    assert!(cell(&deep).is_err());
}

#[test]
fn columns_of_spark_have_types_that_it_exchanges() {
    use forebay_avro::Logical;
    let kind = |definition: &str| {
        let column = Gather::of(&avro(definition), Types::Spark)?.finish()?;
        Ok::<_, Error>(column.data_type().clone())
    };
    let zone = || Some("UTC".into());
    for (definition, expected) in [
        (
            r#"{"type": "long", "logicalType": "timestamp-millis"}"#,
            DataType::Timestamp(TimeUnit::Microsecond, zone()),
        ),
        (
            r#"{"type": "long", "logicalType": "local-timestamp-millis"}"#,
            DataType::Timestamp(TimeUnit::Microsecond, None),
        ),
        (r#"{"type": "int", "logicalType": "time-millis"}"#, DataType::Int64),
        (r#"{"type": "long", "logicalType": "time-micros"}"#, DataType::Int64),
        (r#"{"type": "fixed", "name": "F", "size": 3}"#, DataType::Binary),
        (
            r#"{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}"#,
            DataType::Decimal128(9, 2),
        ),
        (
            r#"{"type": "array", "items": "int"}"#,
            DataType::List(Arc::new(Field::new("element", DataType::Int32, true))),
        ),
    ] {
        assert_eq!(kind(definition).unwrap(), expected, "{definition}");
    }
    let large = r#"{"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 2}"#;
    assert!(kind(large).unwrap_err().message().contains("38"));

    let values = |definition: &str, cells: Vec<Cell>| {
        let mut column = Gather::of(&avro(definition), Types::Spark).unwrap();
        let pushed: Vec<bool> = cells.into_iter().map(|cell| column.push(cell).is_ok()).collect();
        (column.finish().unwrap(), pushed)
    };
    let clock = vec![Cell::Number(Logical::TimeMillis, 5), Cell::Number(Logical::TimeMicros, 6), Cell::Null];
    let (array, _) = values(r#"{"type": "int", "logicalType": "time-millis"}"#, clock);
    assert_eq!(array.as_ref(), &Int64Array::from(vec![Some(5000), Some(6), None]) as &dyn Array);
    let decimal = r#"{"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 2}"#;
    let (array, pushed) = values(decimal, vec![number(999, 2), number(1000, 2)]);
    assert_eq!((array.len(), pushed), (1, vec![true, false]), "10.00 has four digits");
    let fixed = r#"{"type": "fixed", "name": "F", "size": 2}"#;
    let (array, pushed) = values(fixed, vec![Cell::Bytes(vec![1, 2]), Cell::Bytes(vec![1])]);
    assert_eq!((array.len(), pushed), (1, vec![true, false]));
}

#[test]
fn pairs_are_records_of_two() {
    let mut column = Gather::of_pairs(
        Gather::of_plain(Plain::Text, Types::Spark),
        Gather::of_plain(Plain::LocalTime, Types::Spark),
    );
    let time = Cell::Number(forebay_avro::Logical::TimeMicros, 7);
    column.push(Cell::Record(vec![Cell::Text("k".into()), time])).unwrap();
    column.push(Cell::Record(vec![Cell::Null, Cell::Null])).unwrap();
    column.push(Cell::Null).unwrap();
    assert!(column.push(Cell::Record(vec![Cell::Long(1), Cell::Null])).is_err());
    let array = column.finish().unwrap();
    let array = array.as_any().downcast_ref::<StructArray>().unwrap();
    assert_eq!((array.len(), array.null_count()), (3, 1));
    assert_eq!(array.column_names(), ["key", "value"]);
    assert_eq!(array.column(1).as_ref(), &Int64Array::from(vec![Some(7), None, None]) as &dyn Array);
}
