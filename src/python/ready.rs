//! An awaitable that already holds its result.
//!
//! `__anext__` with a message at hand must not cost a future. Each is fresh and single-use: returning the
//! consumer itself would be cheaper, but `asyncio.gather` takes equal awaitables for one and would deliver
//! a message twice.

use std::sync::Mutex;
use std::sync::PoisonError;

use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::prelude::*;

/// Holds a result until it is awaited.
#[pyclass(frozen, module = "penstock._engine")]
pub(super) struct Ready(Mutex<State>);

enum State {
    /// Gives other tasks a turn first: a loop over a full queue would never suspend.
    Yield(Py<PyAny>),
    Value(Py<PyAny>),
    Used,
}

impl Ready {
    pub(super) fn new(value: Py<PyAny>, yield_first: bool) -> Self {
        Self(Mutex::new(if yield_first { State::Yield(value) } else { State::Value(value) }))
    }
}

#[pymethods]
impl Ready {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, State::Used) {
            State::Yield(value) => {
                *state = State::Value(value);
                Ok(py.None())
            }
            State::Value(value) => Err(PyStopIteration::new_err((value,))),
            State::Used => Err(PyRuntimeError::new_err("this awaitable has been awaited already")),
        }
    }

    fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = State::Used;
    }
}
