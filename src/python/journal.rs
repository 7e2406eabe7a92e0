//! Connection events as dictionaries, of which `forebay` makes its `ConnectionEvent`.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::raise;
use forebay_client::journal::{ConnectionEvent, Entry};

/// The event with its number.
pub(super) fn numbered<'py>(py: Python<'py>, entry: &Entry) -> PyResult<(u64, Bound<'py, PyDict>)> {
    let event = PyDict::new(py);
    event.set_item("time", entry.at_ms as f64 / 1000.0)?;
    match &entry.event {
        ConnectionEvent::Connected { address, attempts, session_present } => {
            event.set_item("kind", "connected")?;
            event.set_item("address", &**address)?;
            event.set_item("attempts", attempts)?;
            event.set_item("session_present", session_present)?;
        }
        ConnectionEvent::ConnectFailed { address, attempts, error, retry_in } => {
            event.set_item("kind", "connect_failed")?;
            event.set_item("address", &**address)?;
            event.set_item("attempts", attempts)?;
            event.set_item("error", raise(py, error).into_value(py))?;
            event.set_item("retry_in", retry_in.map(|pause| pause.as_secs_f64()))?;
        }
        ConnectionEvent::Disconnected { address, error } => {
            event.set_item("kind", "disconnected")?;
            event.set_item("address", &**address)?;
            event.set_item("error", raise(py, error).into_value(py))?;
        }
        ConnectionEvent::Resubscribed { topic } => {
            event.set_item("kind", "resubscribed")?;
            event.set_item("topic", &**topic)?;
        }
        ConnectionEvent::GaveUp { topic, error } => {
            event.set_item("kind", "gave_up")?;
            event.set_item("topic", topic.as_deref())?;
            event.set_item("error", raise(py, error).into_value(py))?;
        }
    }
    Ok((entry.number, event))
}
