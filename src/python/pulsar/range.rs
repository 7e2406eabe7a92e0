//! A part of a partition, as tables.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::arrow::ArrowBatch;
use crate::convert::py_result;
use crate::promise::Caller;
use crate::pulsar::schema::columns::Values;
use crate::pulsar::table::{Content, table};
use crate::value::IntoPython;
use forebay_client::pulsar::Consumer;
use forebay_client::pulsar::range::RangeReader;
use forebay_pulsar::Message;

/// Reads a part of a partition.
#[pyclass(frozen, module = "forebay._engine")]
pub(crate) struct PulsarRange {
    reader: Arc<Mutex<RangeReader>>,
    consumer: Arc<Consumer>,
    shape: Arc<Shape>,
    caller: Caller,
}

/// The columns of the tables: what each holds, and its name; and what payloads become in those that
/// take it.
pub(super) struct Shape {
    pub(super) columns: Vec<(Content, String)>,
    pub(super) values: Option<Arc<Values>>,
}

/// A reader as a result.
pub(super) struct Opened(pub(super) RangeReader, pub(super) Arc<Shape>, pub(super) Caller);

impl IntoPython for Opened {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Self(reader, shape, caller) = self;
        let consumer = Arc::clone(reader.consumer());
        let reader = Arc::new(Mutex::new(reader));
        Ok(Py::new(py, PulsarRange { reader, consumer, shape, caller })?.into_any())
    }
}

/// A block of messages as a table; nothing at the end.
struct Block(Vec<Message>, Arc<Shape>);

impl IntoPython for Block {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Self(messages, shape) = self;
        if messages.is_empty() {
            return Ok(py.None());
        }
        // Off the engine's thread, which serves the sockets meanwhile.
        let batch = py_result(py, py.detach(|| table(&messages, &shape.columns, shape.values.as_deref())))?;
        ArrowBatch::new(batch, None).into_python(py)
    }
}

#[pymethods]
impl PulsarRange {
    /// The next rows as a table, or `None` at the end.
    fn read(&self, py: Python<'_>, max_rows: usize, max_bytes: usize) -> PyResult<Py<PyAny>> {
        if max_rows == 0 || max_bytes == 0 {
            return Err(PyValueError::new_err("max_rows and max_bytes must be at least 1"));
        }
        let (reader, shape) = (Arc::clone(&self.reader), Arc::clone(&self.shape));
        self.caller
            .run(py, 1, async move { Ok(Block(reader.lock().await.next(max_rows, max_bytes).await?, shape)) })
    }

    /// Closes the consumer. A `read` that waits ends.
    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let consumer = Arc::clone(&self.consumer);
        self.caller.run(py, 1, async move { consumer.close().await })
    }
}
