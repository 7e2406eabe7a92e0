//! A part of a partition, as tables.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::client::pulsar::Consumer;
use crate::client::pulsar::range::RangeReader;
use crate::pulsar::Message;
use crate::python::arrow::ArrowBatch;
use crate::python::convert::py_result;
use crate::python::promise::Caller;
use crate::python::pulsar::table::{Content, table};
use crate::python::value::IntoPython;

/// Reads a part of a partition.
#[pyclass(frozen, module = "penstock._engine")]
pub(in crate::python) struct PulsarRange {
    reader: Arc<Mutex<RangeReader>>,
    consumer: Arc<Consumer>,
    columns: Arc<[(Content, String)]>,
    caller: Caller,
}

/// A reader as a result.
pub(super) struct Opened(pub(super) RangeReader, pub(super) Arc<[(Content, String)]>, pub(super) Caller);

impl IntoPython for Opened {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Self(reader, columns, caller) = self;
        let consumer = Arc::clone(reader.consumer());
        let reader = Arc::new(Mutex::new(reader));
        Ok(Py::new(py, PulsarRange { reader, consumer, columns, caller })?.into_any())
    }
}

/// A block of messages as a table; nothing at the end.
struct Block(Vec<Message>, Arc<[(Content, String)]>);

impl IntoPython for Block {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Self(messages, columns) = self;
        if messages.is_empty() {
            return Ok(py.None());
        }
        // Off the engine's thread, which serves the sockets meanwhile.
        let batch = py_result(py, py.detach(|| table(&messages, &columns)))?;
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
        let (reader, columns) = (Arc::clone(&self.reader), Arc::clone(&self.columns));
        self.caller.run(py, 1, async move {
            Ok(Block(reader.lock().await.next(max_rows, max_bytes).await?, columns))
        })
    }

    /// Closes the consumer. A `read` that waits ends.
    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let consumer = Arc::clone(&self.consumer);
        self.caller.run(py, 1, async move { consumer.close().await })
    }
}
