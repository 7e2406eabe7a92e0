//! The rows of frames as values of a schema.

use std::any::Any;
use std::sync::Arc;

use arrow_schema::DataType;
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::columns::plain_of;
use super::{Coder, Encoding, PulsarSchema, no_definition};
use crate::arrow::import;
use crate::convert::py_result;
use crate::dataframe::{Form, FrameRows};
use forebay_avro::Schema as Avro;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_pulsar::schema::{Codec, SchemaInfo, Type};
use forebay_rows::schema::{DEFAULT_NAME, define};
use forebay_rows::{Columns, Imported, RowSchema};

/// The schema of rows, and how they are encoded by it.
struct Chosen {
    info: Arc<SchemaInfo>,
    /// `None` if payloads are bytes, which the application encodes.
    rows: Option<RowSchema>,
}

/// Encodes a frame. `schema` is `"producer"` for the schema of the producer, `own`; `"avro"` or
/// `"json"` for one that is defined by the columns; a `PulsarSchema`; or `None` for payloads
/// without a schema, whatever the topic has.
pub(in crate::pulsar) fn encode(
    py: Python<'_>,
    frame: &Bound<'_, PyAny>,
    own: Option<&dyn Codec>,
    schema: Option<&Bound<'_, PyAny>>,
    encoding: Option<&str>,
    mut columns: Columns,
) -> PyResult<FrameRows> {
    let imported = import(frame)?;
    let has_rows = imported.schema().is_some();
    let chosen = match schema {
        None => None,
        Some(given) => match given.cast::<PyString>() {
            Ok(word) => match &*word.to_cow()? {
                "avro" => py_result(py, defined(Type::Avro, &imported, &columns))?,
                "json" => py_result(py, defined(Type::Json, &imported, &columns))?,
                _ => own.map(|own| py_result(py, of_codec(own))).transpose()?,
            },
            Err(_) => Some(py_result(py, of_codec(&*given.cast::<PulsarSchema>()?.get().0.codec))?),
        },
    };
    columns.json = encoding.map_or(columns.value.is_none(), |encoding| encoding == "json");
    let form = match chosen {
        // Without rows there is nothing to be checked, nor a schema that they define.
        None if schema.is_none() || !has_rows => Form::Unchecked,
        None => Form::Plain,
        Some(Chosen { info, rows }) => {
            py_result(py, check_encoding(&info, rows.as_ref(), encoding, &columns))?;
            columns.schema = rows;
            Form::Schema(Arc::new(info))
        }
    };
    FrameRows::encode(py, imported, &columns, form)
}

/// The schema that the columns define; `None` if there are no rows.
fn defined(kind: Type, frame: &Imported, columns: &Columns) -> Result<Option<Chosen>> {
    let Some(all) = frame.schema() else { return Ok(None) };
    let fields = match &columns.value {
        None => all.fields(),
        Some(name) => match all.field_with_name(name).map(|field| field.data_type()) {
            Ok(DataType::Struct(fields)) => fields,
            Ok(other) => {
                let text = format!(
                    "column {name:?} is {other}, and records are defined by structs: leave out value=, or give the \
                     schema of such values, as in schema=\"string\""
                );
                return Err(Error::new(ErrorKind::InvalidArgument, text));
            }
            // The error for a missing column is that of any frame.
            Err(_) => return Ok(None),
        },
    };
    let text = define(&arrow_schema::Schema::new(fields.clone()), DEFAULT_NAME)?;
    let avro = Arc::new(Avro::parse(text.as_bytes())?);
    let info =
        SchemaInfo { name: DEFAULT_NAME.into(), kind, data: Bytes::from(text), properties: Vec::new() };
    let rows = if kind == Type::Json { RowSchema::Json(avro) } else { RowSchema::Avro(avro) };
    Ok(Some(Chosen { info: Arc::new(info), rows: Some(rows) }))
}

fn of_codec(codec: &dyn Codec) -> Result<Chosen> {
    let coder = (codec as &dyn Any).downcast_ref::<Coder>().ok_or_else(no_definition)?;
    let avro =
        || coder.structure.as_ref().map(|structure| Arc::clone(&structure.avro)).ok_or_else(no_definition);
    let rows = match coder.encoding {
        Encoding::Bytes => None,
        Encoding::Avro => Some(RowSchema::Avro(avro()?)),
        Encoding::Json => Some(RowSchema::Json(avro()?)),
        Encoding::Checked => {
            let text = "rows are not encoded for a producer with schema=\"auto\": give the rows a schema of their own";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        Encoding::Message | Encoding::Pair | Encoding::Auto | Encoding::Other(_) => {
            let text = format!("rows cannot be encoded by a schema of type {:?}", coder.info.kind);
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        plain => plain_of(plain).map(RowSchema::Plain),
    };
    Ok(Chosen { info: Arc::clone(&coder.info), rows })
}

/// Whether what was asked for is what the schema does.
fn check_encoding(
    info: &SchemaInfo,
    rows: Option<&RowSchema>,
    encoding: Option<&str>,
    columns: &Columns,
) -> Result<()> {
    let kind = info.kind;
    let text = match (rows, encoding) {
        (None, _) if kind == Type::None || !columns.json => return Ok(()),
        (None, _) => format!(
            "payloads of a schema of type {kind:?} are encoded by the application: name their column with value="
        ),
        (Some(_), None) | (Some(RowSchema::Json(_)), Some("json")) => return Ok(()),
        (Some(_), Some(encoding)) => format!(
            "encoding={encoding:?} is not that of a schema of type {kind:?}: leave out encoding=, or send payloads without \
             a schema with schema=None"
        ),
    };
    Err(Error::new(ErrorKind::InvalidArgument, text))
}
