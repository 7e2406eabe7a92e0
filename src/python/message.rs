//! Messages and their ids.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyBytes, PyDict, PyList, PySlice, PyTuple};

use crate::pulsar as core;
use crate::python::convert::raise;

/// A message that was received.
#[pyclass(frozen, module = "penstock._engine")]
pub(super) struct Message(core::Message);

impl Message {
    pub(super) fn new(message: core::Message) -> Self {
        Self(message)
    }

    pub(super) fn native(&self) -> &core::Message {
        &self.0
    }

    /// What an acknowledgement names.
    pub(super) fn target(&self) -> (Arc<str>, core::MessageId) {
        (Arc::clone(&self.0.entry.topic), self.0.id)
    }
}

#[pymethods]
impl Message {
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.payload)
    }

    #[getter]
    fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    #[getter]
    fn ordering_key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0.ordering_key.as_ref().map(|key| PyBytes::new(py, key))
    }

    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, value) in &self.0.properties {
            dict.set_item(&**name, &**value)?;
        }
        Ok(dict)
    }

    #[getter]
    fn id(&self) -> MessageId {
        MessageId(self.0.id)
    }

    #[getter]
    fn topic(&self) -> &str {
        &self.0.entry.topic
    }

    #[getter]
    fn publish_time(&self) -> u64 {
        self.0.entry.publish_time
    }

    #[getter]
    fn event_time(&self) -> Option<u64> {
        (self.0.event_time != 0).then_some(self.0.event_time)
    }

    #[getter]
    fn broker_time(&self) -> Option<u64> {
        self.0.entry.broker_timestamp
    }

    #[getter]
    fn redelivery_count(&self) -> u32 {
        self.0.entry.redelivery_count
    }

    #[getter]
    fn sequence_id(&self) -> u64 {
        self.0.sequence_id
    }

    #[getter]
    fn producer_name(&self) -> &str {
        &self.0.entry.producer_name
    }

    #[getter]
    fn is_null(&self) -> bool {
        self.0.null_value
    }

    #[getter]
    fn index(&self) -> Option<u64> {
        self.0.index
    }

    #[getter]
    fn schema_version<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0.entry.schema_version.as_ref().map(|version| PyBytes::new(py, version))
    }

    fn __repr__(&self) -> String {
        format!("Message(id={}, topic={:?}, {} bytes)", self.0.id, self.0.entry.topic, self.0.payload.len())
    }
}

/// The position of a message.
#[pyclass(frozen, module = "penstock._engine")]
pub(super) struct MessageId(pub(super) core::MessageId);

#[pymethods]
impl MessageId {
    #[classattr]
    #[pyo3(name = "earliest")]
    const EARLIEST: MessageId = MessageId(core::MessageId::EARLIEST);

    #[classattr]
    #[pyo3(name = "latest")]
    const LATEST: MessageId = MessageId(core::MessageId::LATEST);

    #[staticmethod]
    fn parse(py: Python<'_>, text: &str) -> PyResult<Self> {
        text.parse().map(Self).map_err(|error| raise(py, &error))
    }

    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        core::MessageId::from_bytes(data).map(Self).map_err(|error| raise(py, &error))
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    #[getter]
    fn ledger(&self) -> i64 {
        self.0.ledger as i64
    }

    #[getter]
    fn entry(&self) -> i64 {
        self.0.entry as i64
    }

    #[getter]
    fn partition(&self) -> i32 {
        self.0.partition
    }

    #[getter]
    fn batch_index(&self) -> i32 {
        self.0.batch_index
    }

    #[getter]
    fn batch_size(&self) -> i32 {
        self.0.batch_size
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("MessageId{}", self.0)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        position(&self.0).hash(&mut hasher);
        hasher.finish()
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        match other.cast::<Self>() {
            Ok(other) => op.matches(position(&self.0).cmp(&position(&other.get().0))).into_py_any(py),
            Err(_) => Ok(py.NotImplemented()),
        }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let restore = slf.get_type().getattr("from_bytes")?;
        let data = slf.get().to_bytes(py);
        PyTuple::new(py, [restore, PyTuple::new(py, [data])?.into_any()])
    }
}

/// What equality and order look at: the size of the batch does not move a message.
fn position(id: &core::MessageId) -> (i64, i64, i32, i32) {
    (id.ledger as i64, id.entry as i64, id.partition, id.batch_index)
}

/// Ids of messages sent together, in their order. Made one by one when they are looked at.
#[pyclass(frozen, sequence, module = "penstock._engine")]
pub(super) struct MessageIds(pub(super) Vec<core::MessageId>);

#[pymethods]
impl MessageIds {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __getitem__(&self, py: Python<'_>, index: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        if let Ok(slice) = index.cast::<PySlice>() {
            let range = slice.indices(self.0.len() as isize)?;
            let ids = (0..range.slicelength)
                .map(|i| MessageId(self.0[(range.start + i as isize * range.step) as usize]))
                .map(|id| Py::new(py, id))
                .collect::<PyResult<Vec<_>>>()?;
            return Ok(PyList::new(py, ids)?.into_any().unbind());
        }
        let index: isize = index.extract()?;
        let at = if index < 0 { index + self.0.len() as isize } else { index };
        let id = usize::try_from(at).ok().and_then(|at| self.0.get(at));
        let id = id.ok_or_else(|| PyIndexError::new_err("index out of range"))?;
        Ok(Py::new(py, MessageId(*id))?.into_any())
    }

    fn __repr__(&self) -> String {
        match (self.0.first(), self.0.last()) {
            (Some(first), Some(last)) => format!("MessageIds({} from {first} to {last})", self.0.len()),
            _ => "MessageIds(0)".into(),
        }
    }
}

/// The targets of an acknowledgement: messages or ids.
pub(super) fn target(value: &Bound<'_, PyAny>) -> PyResult<(Arc<str>, core::MessageId)> {
    if let Ok(message) = value.cast::<Message>() {
        return Ok(message.get().target());
    }
    let id = value.cast::<MessageId>().map_err(|_| {
        pyo3::exceptions::PyTypeError::new_err(format!(
            "expected a Message or a MessageId, not {}",
            value.get_type()
        ))
    })?;
    Ok(("".into(), id.get().0))
}
