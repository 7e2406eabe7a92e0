//! Values through definitions: what is written is read, and what strangers write ends in an error.

use std::sync::Arc;

use proptest::prelude::*;

use super::encode::{put_bytes, put_long};
use super::*;
use forebay_base::error::{Error, ErrorKind, Result};

/// Values as text, in the notation of JSON.
struct Text<'a>(&'a Schema);

impl Builder for Text<'_> {
    type Value = String;
    type Error = Error;

    fn null(&mut self) -> String {
        "null".into()
    }
    fn boolean(&mut self, value: bool) -> Result<String> {
        Ok(value.to_string())
    }
    fn long(&mut self, value: i64) -> Result<String> {
        Ok(value.to_string())
    }
    fn double(&mut self, value: f64) -> Result<String> {
        Ok(format!("{value:?}"))
    }
    fn bytes(&mut self, value: &[u8]) -> Result<String> {
        Ok(format!("{value:?}"))
    }
    fn string(&mut self, value: &str) -> Result<String> {
        Ok(format!("{value:?}"))
    }
    fn logical_number(&mut self, logical: Logical, value: i64) -> Result<String> {
        Ok(format!("{logical:?}({value})"))
    }
    fn logical_bytes(&mut self, logical: Logical, value: &[u8]) -> Result<String> {
        Ok(format!("{logical:?}({value:?})"))
    }
    fn symbol(&mut self, reader: NodeId, index: u32) -> Result<String> {
        let Kind::Enum(of) = &self.0.node(reader).kind else { panic!("no enum") };
        Ok(of.symbols[index as usize].clone())
    }
    fn array(&mut self, items: Vec<String>) -> Result<String> {
        Ok(format!("[{}]", items.join(", ")))
    }
    fn map(&mut self, entries: Vec<(&str, String)>) -> Result<String> {
        let entries: Vec<_> = entries.iter().map(|(key, value)| format!("{key}: {value}")).collect();
        Ok(format!("{{{}}}", entries.join(", ")))
    }
    fn record(&mut self, reader: NodeId, fields: Vec<String>) -> Result<String> {
        let Kind::Record(record) = &self.0.node(reader).kind else { panic!("no record") };
        let fields: Vec<_> = record
            .fields
            .iter()
            .zip(fields)
            .map(|(field, value)| format!("{}: {value}", field.name))
            .collect();
        Ok(format!("{}({})", record.name.full, fields.join(", ")))
    }
}

fn schema(definition: &str) -> Arc<Schema> {
    Arc::new(Schema::parse(definition.as_bytes()).unwrap())
}

fn read(writer: &str, reader: &str, data: &[u8]) -> Result<String> {
    let plan = Plan::new(schema(writer), schema(reader))?;
    decode(&plan, data, &mut Text(plan.reader()))
}

fn fields(fields: &str) -> String {
    format!(r#"{{"type": "record", "name": "R", "fields": [{fields}]}}"#)
}

#[test]
fn fields_are_matched_by_name_and_missing_ones_get_their_default() {
    let writer = fields(
        r#"{"name": "gone", "type": {"type": "array", "items": "string"}}, {"name": "a", "type": "int"}"#,
    );
    let reader = fields(
        r#"{"name": "b", "type": {"type": "map", "values": "long"}, "default": {"x": 1}}, {"name": "a", "type": "long"},
           {"name": "c", "type": ["null", "string"], "default": null}"#,
    );
    let mut data = Vec::new();
    put_long(&mut data, -1);
    put_long(&mut data, 3);
    put_bytes(&mut data, b"x");
    data.push(0);
    put_long(&mut data, 300);
    assert_eq!(read(&writer, &reader, &data).unwrap(), "R(b: {x: 1}, a: 300, c: null)");
}

#[test]
fn meanings_are_read_in_the_unit_of_the_writer() {
    let of = |logical: &str| format!(r#"{{"type": "long", "logicalType": "{logical}"}}"#);
    let mut data = Vec::new();
    put_long(&mut data, 1500);
    let (millis, micros) = (of("timestamp-millis"), of("timestamp-micros"));
    assert_eq!(read(&millis, &micros, &data).unwrap(), "TimestampMillis(1500)");
    assert_eq!(read(&micros, &millis, &data).unwrap(), "TimestampMicros(1500)");
    assert_eq!(read("\"long\"", &millis, &data).unwrap(), "TimestampMillis(1500)");
    assert_eq!(read(&millis, "\"long\"", &data).unwrap(), "1500");
    let error = read(&millis, &of("time-micros"), &data).unwrap_err();
    assert!(error.message().contains("TimestampMillis cannot be read as a TimeMicros"), "{error}");
    let decimal =
        |scale| format!(r#"{{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": {scale}}}"#);
    assert_eq!(read(&decimal(2), &decimal(4), b"\x02\x05").unwrap(), "Decimal(2)([5])");
}

#[test]
fn unions_and_enums_are_matched_by_what_the_data_say() {
    let letters = |symbols: &str| format!(r#"{{"type": "enum", "name": "E", "symbols": [{symbols}]}}"#);
    let (abc, ac) = (letters(r#""A", "B", "C""#), letters(r#""A", "C""#));
    assert_eq!(read(&abc, &ac, b"\x04").unwrap(), "C");
    assert!(read(&abc, &ac, b"\x02").unwrap_err().message().contains("symbol that the reader"));
    assert_eq!(read(r#"["null", "int"]"#, r#"["null", "string", "long"]"#, b"\x02\x06").unwrap(), "3");
    assert_eq!(read("\"int\"", r#"["null", "double"]"#, b"\x06").unwrap(), "3.0");
    // A branch that the reader cannot have is an error only if the data hold it.
    assert_eq!(read(r#"["null", "string"]"#, r#"["null", "int"]"#, b"\x00").unwrap(), "null");
    assert!(read(r#"["null", "string"]"#, r#"["null", "int"]"#, b"\x02\x02x").is_err());
    assert!(
        read(r#"["null", "int"]"#, r#"["null", "int"]"#, b"\x08")
            .unwrap_err()
            .message()
            .contains("no branch 4")
    );
}

#[test]
fn a_default_that_contains_itself_or_doubles_is_refused() {
    let empty = r#"{"type": "record", "name": "W", "fields": []}"#;
    let recursive =
        r#"{"type": "record", "name": "W", "fields": [{"name": "again", "type": "W", "default": {}}]}"#;
    let error = Plan::new(schema(empty), schema(recursive)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    let mut tower =
        r#"{"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int", "default": 0}]}"#
            .to_owned();
    for n in 1..=30 {
        let m = n - 1;
        tower = format!(
            r#"{{"type": "record", "name": "R{n}", "fields": [{{"name": "a", "type": {tower}, "default": {{}}}},
                {{"name": "b", "type": "R{m}", "default": {{}}}}]}}"#
        );
    }
    let error = Plan::new(schema(empty), schema(&tower)).unwrap_err();
    assert!(error.message().contains("stands for more than"), "{error}");
}

#[test]
fn values_without_bytes_are_limited() {
    let nulls = r#"{"type": "array", "items": "null"}"#;
    let mut data = Vec::new();
    put_long(&mut data, i64::MAX);
    assert!(read(nulls, nulls, &data).unwrap_err().message().contains("far more values"));
    let writer = fields(&format!(r#"{{"name": "gone", "type": {nulls}}}"#));
    assert!(read(&writer, &fields(""), &data).unwrap_err().message().contains("far more values"));
    data.clear();
    put_long(&mut data, i64::MIN);
    put_long(&mut data, 0);
    assert!(read(nulls, nulls, &data).unwrap_err().message().contains("far more values"));
    // Each level holds the one below twice, and the lowest nothing.
    let mut tower = r#"{"type": "record", "name": "R0", "fields": []}"#.to_owned();
    for n in 1..=30 {
        let m = n - 1;
        tower = format!(
            r#"{{"type": "record", "name": "R{n}", "fields": [{{"name": "a", "type": {tower}}}, {{"name": "b", "type": "R{m}"}}]}}"#
        );
    }
    assert!(read(&tower, &tower, b"").unwrap_err().message().contains("far more values"));
    // Each item of one byte stands for a long default of the reader.
    let long = format!(r#"{{"name": "d", "type": "string", "default": "{}"}}"#, "d".repeat(60_000));
    let items = |fields: &str| {
        format!(r#"{{"type": "array", "items": {{"type": "record", "name": "I", "fields": [{fields}]}}}}"#)
    };
    let given = r#"{"name": "g", "type": "boolean"}"#;
    let (writer, reader) = (items(given), items(&format!("{given}, {long}")));
    let read_items = |count: usize| {
        let mut data = Vec::new();
        put_long(&mut data, count as i64);
        data.resize(data.len() + count, 1);
        data.push(0);
        read(&writer, &reader, &data)
    };
    assert!(read_items(50).is_ok());
    assert!(read_items(30_000).unwrap_err().message().contains("far more values"));
}

#[test]
fn lengths_and_depths_beyond_the_data_are_refused() {
    for (definition, data, reason) in [
        ("\"string\"", &b"\x7ex"[..], "63 bytes are stated"),
        ("\"bytes\"", b"\x01", "-1 is no length"),
        ("\"int\"", b"\xff\xff\xff\xff\x7f", "beyond the range"),
        ("\"long\"", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "more than 64 bits"),
        ("\"long\"", b"\xff", "in the middle"),
        ("\"double\"", b"1234567", "in the middle"),
        ("\"string\"", b"\x02\xff", "no UTF-8"),
        ("\"boolean\"", b"\x02", "no boolean"),
        ("\"int\"", b"\x02\x02", "1 bytes are left"),
        (r#"{"type": "array", "items": "int"}"#, b"\x01\x01\x02\x00", "no size of a block"),
    ] {
        let error = read(definition, definition, data).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert!(error.message().contains(reason), "{definition}: {error}");
    }
    let list = r#"{"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}"#;
    let mut data = vec![2; 60];
    data.push(0);
    assert!(read(list, list, &data).is_ok());
    assert!(read(list, list, &[2; 100_000]).unwrap_err().message().contains("nested more than 64"));
    let forever = r#"{"type": "record", "name": "F", "fields": [{"name": "f", "type": "F"}]}"#;
    assert!(read(forever, forever, b"").unwrap_err().message().contains("nested"));
}

proptest! {
    #[test]
    fn numbers_survive(value: i64) {
        let mut data = Vec::new();
        put_long(&mut data, value);
        prop_assert_eq!(read("\"long\"", "\"long\"", &data).unwrap(), value.to_string());
    }

    #[test]
    fn any_data_end_in_a_value_or_an_error(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        let wide = fields(
            r#"{"name": "a", "type": {"type": "array", "items": ["null", "R", "string"]}},
               {"name": "m", "type": {"type": "map", "values": {"type": "enum", "name": "E", "symbols": ["A", "B"]}}},
               {"name": "f", "type": {"type": "fixed", "name": "F", "size": 3}}"#,
        );
        let _ = read(&wide, &wide, &data);
    }
}
