//! Warnings of the engine to Python's logger `penstock`.
//!
//! Each has a thread, because handlers run any code and the engine may hold locks. They are rare: each kind is given
//! once for a client or consumer. No such thread attaches once the interpreter ends, which would abort the process.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyCFunction;

use crate::sync::{Condvar, Mutex};

/// Longest wait at exit for handlers of the application.
const LAST: Duration = Duration::from_secs(1);

/// Warnings on their way; `None` once the interpreter ends.
static UNDER_WAY: Mutex<Option<usize>> = Mutex::leaf(Some(0));
static DONE: Condvar = Condvar::new();

/// Connects the engine's warnings to the logger.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let end = PyCFunction::new_closure(py, None, None, |args, _| -> PyResult<()> {
        args.py().detach(|| {
            let under_way = UNDER_WAY.lock();
            let mut under_way = DONE.wait_timeout_while(under_way, LAST, |count| *count > Some(0));
            *under_way = None;
        });
        Ok(())
    })?;
    py.import("atexit")?.call_method1("register", (end,))?;
    crate::client::log::set_sink(warn);
    Ok(())
}

fn warn(text: &str) {
    match &mut *UNDER_WAY.lock() {
        Some(count) => *count += 1,
        None => return,
    }
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
        end();
    };
    // Without a thread there is no warning; the counters are there in any case.
    if std::thread::Builder::new().name("penstock-log".into()).spawn(log).is_err() {
        end();
    }
}

fn end() {
    if let Some(count) = &mut *UNDER_WAY.lock() {
        *count -= 1;
    }
    DONE.notify_all();
}
