//! The rows of a frame as messages, for Python.

use std::any::Any;
use std::sync::Arc;

use pyo3::prelude::*;

use crate::error::{Error, ErrorKind, Result};
use crate::frame::{Columns, Imported, Rows, Topics, encode, schema};
use crate::python::arrow::{import, import_schema};
use crate::python::convert::py_result;
use crate::sync::Mutex;

/// The meaning of payloads, for protocols whose topics have schemas.
#[derive(Clone, Debug, Default)]
pub(super) enum Form {
    /// Payloads for a topic without a schema.
    #[default]
    Plain,
    /// Payloads without a schema, whatever the topic has.
    Unchecked,
    /// Values of a schema of the protocol.
    Schema(Arc<dyn Any + Send + Sync>),
}

/// Encoded rows, which a producer's `send_rows` takes once.
#[pyclass(frozen, module = "penstock._engine")]
pub(super) struct FrameRows {
    rows: Mutex<Option<Rows>>,
    count: usize,
    payload_bytes: usize,
    form: Form,
}

impl FrameRows {
    /// Encodes the rows of a frame.
    pub(super) fn encode(py: Python<'_>, frame: Imported, columns: &Columns, form: Form) -> PyResult<Self> {
        let rows = py_result(py, py.detach(|| encode(frame, columns)))?;
        Ok(Self::of(rows, form))
    }

    /// Messages that are encoded already.
    pub(super) fn of(rows: Rows, form: Form) -> Self {
        let (count, payload_bytes) = (rows.len(), rows.payload_bytes());
        Self { count, payload_bytes, rows: Mutex::leaf(Some(rows)), form }
    }

    /// The meaning of the payloads.
    pub(super) fn form(&self) -> &Form {
        &self.form
    }

    /// The rows, or an error if they have been sent already.
    pub(super) fn take(&self) -> Result<Rows> {
        let taken = self.rows.lock().take();
        taken.ok_or_else(|| {
            let text = "these rows have been sent already: encode the frame again";
            Error::new(ErrorKind::InvalidArgument, text)
        })
    }
}

#[pymethods]
impl FrameRows {
    fn __len__(&self) -> usize {
        self.count
    }

    /// Bytes of all payloads, before compression.
    #[getter]
    fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }
}

/// Encodes the rows of an object with the Arrow PyCapsule interface. `first_row` is the number of the frame's first
/// row, for error messages and ids; `id` is the name of a property and the text before the row's number in it.
#[pyfunction]
#[pyo3(signature = (frame, *, value, encoding, key=None, topic=None, properties=None, event_time=None, first_row=0, id=None))]
#[allow(clippy::too_many_arguments, reason = "the arguments of the Python function")]
pub(super) fn encode_frame(
    py: Python<'_>,
    frame: &Bound<'_, PyAny>,
    value: Option<String>,
    encoding: &str,
    key: Option<String>,
    topic: Option<&str>,
    properties: Option<String>,
    event_time: Option<String>,
    first_row: u64,
    id: Option<(String, String)>,
) -> PyResult<FrameRows> {
    let imported = import(frame)?;
    let topic = py_result(py, topic.map(Topics::parse).transpose())?;
    let json = encoding == "json";
    let columns = Columns { value, json, schema: None, key, topic, properties, event_time, first_row, id };
    FrameRows::encode(py, imported, &columns, Form::default())
}

/// The Avro definition of rows with the columns of an Arrow schema.
#[pyfunction]
pub(super) fn avro_definition(py: Python<'_>, schema: &Bound<'_, PyAny>, name: &str) -> PyResult<String> {
    let columns = import_schema(schema)?;
    py_result(py, schema::define(&columns, name))
}

/// The columns that a topic template names, in order.
#[pyfunction]
pub(super) fn template_columns(py: Python<'_>, template: &str) -> PyResult<Vec<String>> {
    Ok(py_result(py, Topics::parse_template(template))?.columns().map(str::to_owned).collect())
}
