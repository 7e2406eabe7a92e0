//! Tables of other libraries, verified.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, BinaryArray, LargeBinaryArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType, Schema};

use forebay_base::error::{Error, ErrorKind, Result};

/// Record batches of another library. The C data interface hands over bare buffers, so neither
/// offsets nor the UTF-8 of text can be taken for granted: Spark, for one, casts any binary value
/// to a string without a check. [`encode`](super::encode) verifies them before it reads a value.
#[derive(Debug)]
pub struct Imported(Vec<RecordBatch>);

impl Imported {
    /// Batches that nothing has verified.
    pub fn new(batches: Vec<RecordBatch>) -> Self {
        Self(batches)
    }

    /// The columns; `None` without a batch.
    pub fn schema(&self) -> Option<&Arc<Schema>> {
        self.0.first().map(RecordBatch::schema_ref)
    }

    /// The batches, unverified.
    pub(super) fn into_batches(self) -> Vec<RecordBatch> {
        self.0
    }

    /// The batches, with every offset and every text verified. `first_row` is the number of the
    /// first row, for the error, which names the column and the row. The text of the column
    /// `as_bytes`, whose values are sent byte for byte, becomes binary and need not be UTF-8.
    pub(super) fn check(self, first_row: u64, as_bytes: Option<&str>) -> Result<Vec<RecordBatch>> {
        let mut row = first_row;
        let mut checked = Vec::with_capacity(self.0.len());
        for batch in self.0 {
            let rows = batch.num_rows();
            let (schema, mut columns, _) = batch.into_parts();
            let mut fields = Vec::with_capacity(columns.len());
            for (field, column) in schema.fields().iter().zip(&mut columns) {
                if as_bytes == Some(field.name().as_str()) {
                    *column = text_as_binary(column);
                }
                if let Err(error) = column.to_data().validate_full() {
                    return Err(unreadable(field.name(), column, row, &error));
                }
                fields.push(field.as_ref().clone().with_data_type(column.data_type().clone()));
            }
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let schema = Arc::new(Schema::new(fields));
            checked.push(RecordBatch::try_new_with_options(schema, columns, &options).map_err(arrow_error)?);
            row += rows as u64;
        }
        Ok(checked)
    }
}

/// Checks that the offsets of a batch are within its buffers; not its texts.
pub(super) fn check_offsets(batch: &RecordBatch) -> Result<()> {
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        if let Err(error) = column.to_data().validate() {
            let text = format!("column {:?} cannot be read: {error}", field.name());
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
    }
    Ok(())
}

/// A text column as the binary column of the same buffers; other columns as they are.
fn text_as_binary(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8 => Arc::new(BinaryArray::from(column.as_string::<i32>().clone())),
        DataType::LargeUtf8 => Arc::new(LargeBinaryArray::from(column.as_string::<i64>().clone())),
        DataType::Utf8View => Arc::new(column.as_string_view().clone().to_binary_view()),
        _ => Arc::clone(column),
    }
}

/// The error for a column that failed its verification.
fn unreadable(name: &str, column: &ArrayRef, first_row: u64, error: &ArrowError) -> Error {
    let text = match first_invalid_text(column) {
        Some(row) => format!(
            "row {} of column {name:?} is not valid UTF-8: send it as binary, or encode it as text (Base64, hex)",
            first_row + row as u64
        ),
        None => format!("column {name:?} cannot be read: {error}"),
    };
    Error::new(ErrorKind::InvalidArgument, text)
}

/// Index of the first value of a text column that is not UTF-8, if offsets are in order up to it.
fn first_invalid_text(column: &ArrayRef) -> Option<usize> {
    let text = column.as_string_opt::<i32>()?;
    let bytes = text.values();
    text.value_offsets().windows(2).position(|ends| {
        let value = bytes.get(ends[0] as usize..ends[1] as usize);
        value.is_some_and(|value| std::str::from_utf8(value).is_err())
    })
}

/// Arrow's error as one of this crate.
pub fn arrow_error(error: ArrowError) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("Arrow: {error}"))
}
