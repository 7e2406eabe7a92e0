//! Positions.

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::PyTuple;

use crate::convert::raise;
use forebay_base::error::{Error, ErrorKind};
use forebay_tubemq::Partition;
use forebay_tubemq::consumer::Message;
use forebay_tubemq::producer::Position as At;

/// The position of a message in the store of a broker.
#[pyclass(frozen, module = "forebay._engine")]
pub(crate) struct Position(pub(super) At);

impl Position {
    /// The position of a received message, whose offset is that of its pack.
    pub(super) fn of_message(message: &Message) -> Self {
        let Partition { broker, id } = message.pack.location.partition;
        let (offset, message_id) = (message.pack.offset, message.message_id);
        Self(At { broker, partition: id, offset, time: -1, message_id })
    }

    pub(super) fn place(&self) -> Partition {
        Partition { broker: self.0.broker, id: self.0.partition }
    }

    fn order(&self) -> (u32, u32, i64) {
        (self.0.broker, self.0.partition, self.0.offset)
    }
}

#[pymethods]
impl Position {
    #[new]
    fn new(broker_id: u32, partition: u32, offset: i64) -> Self {
        Self(At { broker: broker_id, partition, offset, time: -1, message_id: -1 })
    }

    #[staticmethod]
    fn parse(py: Python<'_>, text: &str) -> PyResult<Self> {
        let mut fields = text.split(':');
        let mut next = || fields.next();
        let parsed = (|| {
            let position = Self::new(next()?.parse().ok()?, next()?.parse().ok()?, next()?.parse().ok()?);
            next().is_none().then_some(position)
        })();
        parsed.ok_or_else(|| {
            let text = format!("{text:?} is not a position: write broker:partition:offset, three numbers");
            raise(py, &Error::new(ErrorKind::InvalidArgument, text))
        })
    }

    #[getter]
    fn broker_id(&self) -> u32 {
        self.0.broker
    }

    #[getter]
    fn partition(&self) -> u32 {
        self.0.partition
    }

    #[getter]
    fn offset(&self) -> i64 {
        self.0.offset
    }

    /// When the broker stored it, in milliseconds since 1970.
    #[getter]
    fn time(&self) -> Option<i64> {
        (self.0.time >= 0).then_some(self.0.time)
    }

    #[getter]
    fn message_id(&self) -> Option<i64> {
        (self.0.message_id >= 0).then_some(self.0.message_id)
    }

    fn __str__(&self) -> String {
        let (broker, partition, offset) = self.order();
        format!("{broker}:{partition}:{offset}")
    }

    fn __repr__(&self) -> String {
        format!("Position({})", self.__str__())
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.order().hash(&mut hasher);
        hasher.finish()
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        match other.cast::<Self>() {
            Ok(other) => op.matches(self.order().cmp(&other.get().order())).into_py_any(py),
            Err(_) => Ok(py.NotImplemented()),
        }
    }

    /// Time and message id are not part of a position and are not pickled.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let arguments = slf.get().order().into_pyobject(slf.py())?;
        PyTuple::new(slf.py(), [slf.get_type().into_any(), arguments.into_any()])
    }
}
