//! A part of a partition, as tables, and the ends of partitions.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tokio::sync::{Mutex, watch};

use crate::arrow::ArrowBatch;
use crate::convert::py_result;
use crate::promise::Caller;
use crate::tubemq::table::{Content, table};
use crate::value::IntoPython;
use forebay_base::error::{Error, ErrorKind};
use forebay_client::tubemq::range::{RangeReader, Record, Tail};
use forebay_tubemq::Partition;
use forebay_tubemq::balance::PartitionLocation;
use forebay_tubemq::topic::Broker;

/// Topic, number of the broker, number of the partition there, and the broker's host and port.
pub(super) type Location = (String, u32, u32, String, u16);

/// A location from Python.
pub(super) fn located((topic, broker, id, host, port): Location) -> PartitionLocation {
    PartitionLocation {
        topic: topic.into(),
        partition: Partition { broker, id },
        broker: Broker { id: broker, host, port },
    }
}

/// Locations as a result.
pub(super) struct Located(pub(super) Vec<PartitionLocation>);

impl IntoPython for Located {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let location = |location: PartitionLocation| -> Location {
            let PartitionLocation { topic, partition, broker } = location;
            (topic.to_string(), partition.broker, partition.id, broker.host, broker.port)
        };
        let locations: Vec<Location> = self.0.into_iter().map(location).collect();
        Ok(locations.into_pyobject(py)?.into_any().unbind())
    }
}

/// The trouble with each partition, as a result.
pub(super) struct Confirmed(pub(super) Vec<Option<Error>>);

impl IntoPython for Confirmed {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let texts: Vec<Option<String>> =
            self.0.into_iter().map(|error| error.map(|error| error.to_string())).collect();
        Ok(texts.into_pyobject(py)?.into_any().unbind())
    }
}

/// Reads a part of a partition.
#[pyclass(frozen, module = "forebay._engine")]
pub(crate) struct TubeMqRange {
    reader: Arc<Mutex<RangeReader>>,
    location: PartitionLocation,
    columns: Arc<[(Content, String)]>,
    /// Becomes true when it is closed.
    closing: watch::Sender<bool>,
    caller: Caller,
}

/// A reader as a result.
pub(super) struct Opened(pub(super) RangeReader, pub(super) Arc<[(Content, String)]>, pub(super) Caller);

impl IntoPython for Opened {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Self(reader, columns, caller) = self;
        let location = reader.location().clone();
        let (reader, closing) = (Arc::new(Mutex::new(reader)), watch::channel(false).0);
        Ok(Py::new(py, TubeMqRange { reader, location, columns, closing, caller })?.into_any())
    }
}

/// A block of messages as a table; nothing at the end.
struct Block(Vec<Record>, PartitionLocation, Arc<[(Content, String)]>);

impl IntoPython for Block {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Self(records, location, columns) = self;
        if records.is_empty() {
            return Ok(py.None());
        }
        // Off the engine's thread, which serves the sockets meanwhile.
        let batch = py_result(py, py.detach(|| table(&records, &location, &columns)))?;
        ArrowBatch::new(batch, None).into_python(py)
    }
}

#[pymethods]
impl TubeMqRange {
    /// The next rows as a table, or `None` at the end.
    fn read(&self, py: Python<'_>, max_rows: usize, max_bytes: usize) -> PyResult<Py<PyAny>> {
        if max_rows == 0 || max_bytes == 0 {
            return Err(PyValueError::new_err("max_rows and max_bytes must be at least 1"));
        }
        let (reader, mut closed) = (Arc::clone(&self.reader), self.closing.subscribe());
        let (location, columns) = (self.location.clone(), Arc::clone(&self.columns));
        self.caller.run(py, 1, async move {
            let next = async { reader.lock().await.next(max_rows, max_bytes).await };
            let records = tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => Err(Error::new(ErrorKind::Closed, "the reader is closed")),
                records = next => records,
            };
            Ok(Block(records?, location, columns))
        })
    }

    /// Gives the partition back. A `read` that waits ends.
    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.closing.send_replace(true);
        let reader = Arc::clone(&self.reader);
        self.caller.run(py, 1, async move {
            reader.lock().await.close().await;
            Ok(())
        })
    }
}

/// Asks for the ends of partitions.
#[pyclass(frozen, module = "forebay._engine")]
pub(crate) struct TubeMqTail(Arc<Mutex<Tail>>, Caller);

/// A tail as a result.
pub(super) struct Asking(pub(super) Tail, pub(super) Caller);

impl IntoPython for Asking {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, TubeMqTail(Arc::new(Mutex::new(self.0)), self.1))?.into_any())
    }
}

/// First and last offsets, as a result.
struct Bounds(Vec<(i64, i64)>);

impl IntoPython for Bounds {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.0.into_pyobject(py)?.into_any().unbind())
    }
}

#[pymethods]
impl TubeMqTail {
    /// For each partition its first offset, as it was when it was asked for first, and the one
    /// behind its last message.
    fn bounds(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let tail = Arc::clone(&self.0);
        self.1.run(py, 1, async move { tail.lock().await.bounds().await.map(Bounds) })
    }

    /// Gives the partitions back.
    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let tail = Arc::clone(&self.0);
        self.1.run(py, 1, async move {
            tail.lock().await.close().await;
            Ok(())
        })
    }
}
