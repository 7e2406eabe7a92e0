//! Results on their way from the engine to Python: plain data until a thread that is attached
//! converts it.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use forebay_base::error::Result;
use forebay_client::events::Receipt;

/// The result of an operation, implemented beside the class that it becomes.
///
/// A result is made on the engine's thread, which never attaches to the interpreter, and is
/// converted on the event loop's thread or on the blocked thread that waits for it. A result that
/// becomes a handle holds the [`Caller`](crate::promise::Caller) of that handle.
pub(super) trait IntoPython: Send + 'static {
    /// Makes the Python object.
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

/// [`IntoPython`] behind a pointer.
pub(super) trait Convert: Send {
    fn convert(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

impl<T: IntoPython> Convert for T {
    fn convert(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        (*self).into_python(py)
    }
}

/// Makes the Python object of one receipt.
pub(super) type ReceiptClass = fn(Python<'_>, Receipt) -> PyResult<Py<PyAny>>;

/// A result of any kind.
pub(super) enum Value {
    /// The receipt of one message and its conversion. Inline, because blocking sends make one for
    /// each message.
    Receipt(Receipt, ReceiptClass),
    /// Everything else. The box costs nothing for `()`, and is one for each operation otherwise.
    Other(Box<dyn Convert>),
}

impl Value {
    pub(super) fn new(value: impl IntoPython) -> Self {
        Self::Other(Box::new(value))
    }

    pub(super) fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Receipt(receipt, class) => class(py, receipt),
            Self::Other(value) => value.convert(py),
        }
    }
}

/// A result or the error that the operation ended with.
pub(super) type Outcome = Result<Value>;

impl IntoPython for () {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(py.None())
    }
}

impl IntoPython for bool {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.into_pyobject(py)?.to_owned().into_any().unbind())
    }
}

impl IntoPython for u32 {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.into_pyobject(py)?.into_any().unbind())
    }
}

impl IntoPython for Vec<String> {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let texts = self.iter().map(|text| PyString::new(py, text));
        Ok(PyList::new(py, texts)?.into_any().unbind())
    }
}
