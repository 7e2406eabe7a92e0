//! The rows of a frame as messages, for Python.

use pyo3::prelude::*;

use crate::error::{Error, ErrorKind, Result};
use crate::frame::{Columns, Rows, Topics, encode};
use crate::python::arrow::import;
use crate::python::convert::py_result;
use crate::sync::Mutex;

/// Encoded rows, which a producer's `send_rows` takes once.
#[pyclass(frozen, module = "penstock._engine")]
pub(super) struct FrameRows {
    rows: Mutex<Option<Rows>>,
    count: usize,
    payload_bytes: usize,
}

impl FrameRows {
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
    let columns = Columns { value, json, key, topic, properties, event_time, first_row, id };
    let rows = py_result(py, py.detach(|| encode(imported, &columns)))?;
    Ok(FrameRows { count: rows.len(), payload_bytes: rows.payload_bytes(), rows: Mutex::leaf(Some(rows)) })
}

/// The columns that a topic template names, in order.
#[pyfunction]
pub(super) fn template_columns(py: Python<'_>, template: &str) -> PyResult<Vec<String>> {
    Ok(py_result(py, Topics::parse_template(template))?.columns().map(str::to_owned).collect())
}
