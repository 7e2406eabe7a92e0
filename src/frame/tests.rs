use std::sync::Arc;

use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, DictionaryArray, FixedSizeListArray, Float64Array, Int8Array, Int32Array,
    IntervalDayTimeArray, ListArray, RecordBatch, RunArray, StringArray, StructArray,
    TimestampMillisecondArray,
};
use arrow_buffer::{IntervalDayTime, OffsetBuffer};
use arrow_schema::Field;
use serde_json::{Value, json};

use super::{Columns, Cursor, Imported, encode};

/// The rows of a table of one column as JSON.
fn written(column: ArrayRef) -> Vec<Value> {
    let batch = RecordBatch::try_from_iter_with_nullable([("v", column, true)]).unwrap();
    let rows = encode(Imported::new(vec![batch]), &Columns { json: true, ..Columns::default() }).unwrap();
    Cursor::default().rows(&rows, &[]).map(|row| serde_json::from_slice(row.payload).unwrap()).collect()
}

/// The values of a dictionary, of which the second row is null by its value and the third by its index, which is
/// behind the end.
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
