//! Reason codes as members of the Python package's enumeration.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use forebay_mqtt::Reason;

/// The members of the enumeration, by code.
static REASON_CODES: PyOnceLock<Vec<Option<Py<PyAny>>>> = PyOnceLock::new();

/// Registers the enumeration of reason codes.
#[pyfunction]
pub(super) fn set_reason_codes(py: Python<'_>, codes: &Bound<'_, PyAny>) -> PyResult<()> {
    let mut table: Vec<Option<Py<PyAny>>> = Vec::new();
    table.resize_with(256, || None);
    for &reason in Reason::ALL {
        table[usize::from(reason.code())] = Some(codes.call1((reason.code(),))?.unbind());
    }
    let _ = REASON_CODES.set(py, table);
    Ok(())
}

/// The member for a reason; its number if no enumeration is registered.
pub(super) fn reason_code(py: Python<'_>, reason: Reason) -> PyResult<Py<PyAny>> {
    let known = REASON_CODES.get(py).and_then(|table| table[usize::from(reason.code())].as_ref());
    match known {
        Some(code) => Ok(code.clone_ref(py)),
        None => Ok(reason.code().into_pyobject(py)?.into_any().unbind()),
    }
}
