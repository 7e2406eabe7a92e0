//! Received messages on their way to Python.

use std::any::Any;

use arrow_array::RecordBatch;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::value::IntoPython;
use forebay_base::error::Result;
use forebay_client::receive::Received;

/// The engine's message of a protocol, implemented beside the protocol's message class.
pub(super) trait Message: Received + Clone {
    /// Makes the Python object.
    fn into_object(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>>;

    /// The message of an object of its class; `None` for any other object.
    fn of(object: &Bound<'_, PyAny>) -> Option<Self>;

    /// Messages as columns. The columns are the same when there are no messages.
    fn to_batch(messages: &[Self]) -> Result<RecordBatch>;

    /// The messages of a batch, if their values may be wanted as columns.
    fn keep(_messages: Vec<Self>) -> Option<Box<dyn Any + Send + Sync>> {
        None
    }
}

/// One message as a result.
pub(super) struct One<M>(pub(super) M);

impl<M: Message> IntoPython for One<M> {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.0.into_object(py)?.unbind())
    }
}

/// Several messages as a result: a list.
pub(super) struct Many<M>(pub(super) Vec<M>);

impl<M: Message> IntoPython for Many<M> {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let messages = self.0.into_iter().map(|message| message.into_object(py));
        Ok(PyList::new(py, messages.collect::<PyResult<Vec<_>>>()?)?.into_any().unbind())
    }
}
