//! Warnings of the engine to Python's logger `penstock`.
//!
//! Each has a thread, because handlers run any code and the engine may hold locks. They are rare: each kind is given
//! once for a client or consumer.

use pyo3::prelude::*;

use crate::python::exit::Call;

/// Connects the engine's warnings to the logger.
pub(super) fn register() {
    crate::client::log::set_sink(warn);
}

fn warn(text: &str) {
    let Some(call) = Call::begin() else { return };
    let text = text.to_owned();
    let log = move || {
        Python::try_attach(|py| {
            let logged = py
                .import("logging")
                .and_then(|logging| logging.call_method1("getLogger", ("penstock",)))
                .and_then(|logger| logger.call_method1("warning", ("%s", text)));
            if let Err(error) = logged {
                error.write_unraisable(py, None);
            }
        });
        drop(call);
    };
    // Without a thread there is no warning; the counters are there in any case.
    let _ = std::thread::Builder::new().name("penstock-log".into()).spawn(log);
}
