//! Message ids.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyBytes, PyList, PySlice, PyTuple};

use crate::convert::py_result;
use crate::value::IntoPython;
use forebay_pulsar as core;

/// The position of a message in its topic, which is empty when it is not known.
#[pyclass(frozen, module = "forebay._engine")]
pub(crate) struct MessageId {
    pub(super) id: core::MessageId,
    pub(super) topic: Arc<str>,
    /// Ledger and entry of the first chunk of a message in chunks, of which `id` names the last
    /// one.
    pub(super) first_chunk: Option<(u64, u64)>,
}

impl MessageId {
    /// Creates an id whose topic is not known.
    pub(super) fn of(id: core::MessageId, first_chunk: Option<(u64, u64)>) -> Self {
        static UNKNOWN: LazyLock<Arc<str>> = LazyLock::new(|| "".into());
        Self { id, topic: Arc::clone(&UNKNOWN), first_chunk }
    }

    /// Position at which reading begins. A message comes only with all its chunks.
    pub(super) fn position(&self, inclusive: bool) -> core::MessageId {
        match self.first_chunk {
            Some((ledger, entry)) if inclusive => {
                core::MessageId::new(ledger, entry).in_partition(self.id.partition)
            }
            _ => self.id,
        }
    }
}

#[pymethods]
impl MessageId {
    #[classattr]
    fn earliest() -> Self {
        Self::of(core::MessageId::EARLIEST, None)
    }

    #[classattr]
    fn latest() -> Self {
        Self::of(core::MessageId::LATEST, None)
    }

    #[staticmethod]
    fn parse(py: Python<'_>, text: &str) -> PyResult<Self> {
        py_result(py, text.parse().map(|id| Self::of(id, None)))
    }

    #[staticmethod]
    #[pyo3(signature = (data, topic = ""))]
    fn from_bytes(py: Python<'_>, data: &[u8], topic: &str) -> PyResult<Self> {
        let (id, first_chunk) = py_result(py, core::MessageId::from_bytes(data))?;
        Ok(Self { id, topic: topic.into(), first_chunk })
    }

    #[getter]
    fn topic(&self) -> &str {
        &self.topic
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.id.to_bytes(self.first_chunk))
    }

    #[getter]
    fn ledger(&self) -> i64 {
        self.id.ledger as i64
    }

    #[getter]
    fn entry(&self) -> i64 {
        self.id.entry as i64
    }

    #[getter]
    fn partition(&self) -> i32 {
        self.id.partition
    }

    #[getter]
    fn batch_index(&self) -> i32 {
        self.id.batch_index
    }

    #[getter]
    fn batch_size(&self) -> i32 {
        self.id.batch_size
    }

    #[getter]
    fn first_chunk(&self) -> Option<Self> {
        self.first_chunk?;
        Some(Self { id: self.position(true), topic: Arc::clone(&self.topic), first_chunk: None })
    }

    fn __str__(&self) -> String {
        self.id.to_string()
    }

    fn __repr__(&self) -> String {
        format!("MessageId{}", self.id)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        position(&self.id).hash(&mut hasher);
        hasher.finish()
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        match other.cast::<Self>() {
            Ok(other) => op.matches(position(&self.id).cmp(&position(&other.get().id))).into_py_any(py),
            Err(_) => Ok(py.NotImplemented()),
        }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let restore = slf.get_type().getattr("from_bytes")?;
        let id = slf.get();
        let arguments = (id.to_bytes(py), &*id.topic).into_pyobject(py)?;
        PyTuple::new(py, [restore, arguments.into_any()])
    }
}

/// The fields that equality and order compare. The size of the batch does not move a message.
fn position(id: &core::MessageId) -> (i64, i64, i32, i32) {
    (id.ledger as i64, id.entry as i64, id.partition, id.batch_index)
}

/// The ids of messages that were sent together, in their order. The Python objects are created on
/// access.
#[derive(Default)]
#[pyclass(frozen, sequence, module = "forebay._engine")]
pub(crate) struct MessageIds {
    pub(super) all: Vec<core::MessageId>,
    /// Ledger and entry of the first chunk of those that were sent in chunks, by their place.
    pub(super) first_chunks: BTreeMap<usize, (u64, u64)>,
}

impl MessageIds {
    fn at(&self, index: usize) -> Option<MessageId> {
        let id = self.all.get(index)?;
        Some(MessageId::of(*id, self.first_chunks.get(&index).copied()))
    }
}

#[pymethods]
impl MessageIds {
    fn __len__(&self) -> usize {
        self.all.len()
    }

    fn __getitem__(&self, py: Python<'_>, index: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        if let Ok(slice) = index.cast::<PySlice>() {
            let range = slice.indices(self.all.len() as isize)?;
            let ids = (0..range.slicelength)
                .filter_map(|i| self.at((range.start + i as isize * range.step) as usize))
                .map(|id| Py::new(py, id))
                .collect::<PyResult<Vec<_>>>()?;
            return Ok(PyList::new(py, ids)?.into_any().unbind());
        }
        let index: isize = index.extract()?;
        let at = if index < 0 { index + self.all.len() as isize } else { index };
        let id = usize::try_from(at).ok().and_then(|at| self.at(at));
        let id = id.ok_or_else(|| PyIndexError::new_err("index out of range"))?;
        Ok(Py::new(py, id)?.into_any())
    }

    fn __repr__(&self) -> String {
        match (self.all.first(), self.all.last()) {
            (Some(first), Some(last)) => format!("MessageIds({} from {first} to {last})", self.all.len()),
            _ => "MessageIds(0)".into(),
        }
    }
}

impl IntoPython for Vec<(Arc<str>, core::MessageId)> {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let ids = self.into_iter().map(|(topic, id)| Py::new(py, MessageId { id, topic, first_chunk: None }));
        Ok(PyList::new(py, ids.collect::<PyResult<Vec<_>>>()?)?.into_any().unbind())
    }
}
