//! The rows of a frame as values of a schema, and such values as columns.
//!
//! * `define`: the Avro definition of a table
//! * `column`: how a column becomes values of an Avro type
//! * `write`: these values as Avro data and as JSON
//! * `plain`: schemas of a single value without a definition
//! * `cell`: values of payloads
//! * `gather`: columns of these values

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StructArray};
use arrow_schema::Field;

use forebay_avro::{Kind, Schema};
use forebay_base::error::{Error, Result};

mod cell;
mod column;
mod define;
mod gather;
mod plain;
mod write;

pub use cell::Cell;
pub use define::{DEFAULT_NAME, define};
pub use gather::{Gather, Types};
pub use plain::Plain;
pub(crate) use write::hyphenated;

use crate::columns::uuids_as_text;
use column::{Column, Part};
use define::refused;

/// The form of the values that rows become.
#[derive(Clone, Debug)]
pub enum RowSchema {
    /// Values of an Avro definition in its binary encoding.
    Avro(Arc<Schema>),
    /// Values of an Avro definition as JSON, as the Java client writes it.
    Json(Arc<Schema>),
    /// Single values.
    Plain(Plain),
}

/// Why a column or a value does not fit: where in the row, and what is wrong.
#[derive(Debug)]
struct Flaw {
    path: String,
    text: String,
}

impl Flaw {
    fn new(text: impl Into<String>) -> Self {
        Self { path: String::new(), text: text.into() }
    }

    /// Adds the part of the row that it was found in.
    fn within(self, part: impl std::fmt::Display) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        Self { path: format!("{part}{dot}{}", self.path), text: self.text }
    }

    fn of_column(self) -> Error {
        refused(format!("column {:?} does not fit the schema: {}", self.path, self.text))
    }

    fn of_row(self, row: u64) -> Error {
        refused(format!("row {row} of column {:?} does not fit the schema: {}", self.path, self.text))
    }
}

/// The rows of a batch as values of a schema.
#[derive(Debug)]
pub(super) struct Values<'s> {
    /// Name of the column of the values, if it is one column.
    column: Option<&'s str>,
    form: Form<'s>,
}

#[derive(Debug)]
enum Form<'s> {
    /// The columns are the fields.
    Row(Vec<Part<'s>>, bool),
    Column(Column<'s>, bool),
    Plain(plain::Values),
}

impl<'s> Values<'s> {
    /// Prepares a batch. Without `value` the columns are the fields of the schema's record; those
    /// in `beside` need not be fields.
    pub(super) fn of(
        schema: &'s RowSchema,
        batch: &RecordBatch,
        value: Option<&'s str>,
        beside: &[&str],
    ) -> Result<Self> {
        let column = |name: &str| -> Result<(&Field, ArrayRef)> {
            let at = crate::columns::index(batch, name)?;
            Ok((batch.schema_ref().field(at), batch.column(at).clone()))
        };
        let form = match (schema, value) {
            (RowSchema::Avro(avro) | RowSchema::Json(avro), value) => {
                let json = matches!(schema, RowSchema::Json(_));
                match (value, &avro.node(avro.root()).kind) {
                    (Some(name), root) => {
                        let (field, array) = column(name)?;
                        let made = Column::of_field(avro, avro.root(), field, &array, 0).map_err(|flaw| {
                            let is_payload = array.data_type().is_binary() && matches!(root, Kind::Record(_));
                            let error = flaw.within(name).of_column();
                            if is_payload { error.with_note(ENCODED) } else { error }
                        });
                        Form::Column(made?, json)
                    }
                    (None, Kind::Record(record)) => {
                        let rows = StructArray::from(batch.clone());
                        let parts = column::parts(avro, record, &rows, beside, 0);
                        Form::Row(parts.map_err(Flaw::of_column)?, json)
                    }
                    (None, root) => {
                        let text = format!(
                            "a row is a record, and the schema is {}: name the column of the values with value=",
                            root.describe()
                        );
                        return Err(refused(text));
                    }
                }
            }
            (RowSchema::Plain(plain), Some(name)) => {
                let (field, mut array) = column(name)?;
                if *plain == Plain::Text {
                    array = uuids_as_text(field, &array)?;
                }
                let values = plain.values(&array);
                Form::Plain(values.map_err(|flaw| flaw.within(name).of_column())?)
            }
            (RowSchema::Plain(plain), None) => {
                let text = format!(
                    "the schema is {plain:?}, a single value: name the column of the values with value="
                );
                return Err(refused(text));
            }
        };
        Ok(Self { column: value, form })
    }

    /// Writes the value of a row, whose number is `number`. `false` if there is none: null in the
    /// column of the values.
    pub(super) fn write(&self, row: usize, number: u64, out: &mut Vec<u8>) -> Result<bool> {
        let flaw = match &self.form {
            Form::Row(parts, json) => write::row(parts, row, *json, out),
            Form::Column(column, _) if column.is_null(row) => return Ok(false),
            Form::Column(column, false) => column.avro(row, out),
            Form::Column(column, true) => column.json(row, out),
            Form::Plain(values) if values.is_null(row) => return Ok(false),
            Form::Plain(values) => values.write(row, out),
        };
        flaw.map(|()| true).map_err(|flaw| match self.column {
            Some(name) => flaw.within(name).of_row(number),
            None => flaw.of_row(number),
        })
    }
}

/// What to do with payloads that are no values.
const ENCODED: &str = "rows are encoded by the schema: leave out value=, or name a column of structs; payloads that are \
                       encoded already are sent with schema=None, without a version";

#[cfg(test)]
mod tests;
