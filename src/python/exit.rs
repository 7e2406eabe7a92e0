//! Threads that run Python while the interpreter ends.
//!
//! A thread that attaches to an interpreter that is ending aborts the process. Threads of the engine that call the
//! application's functions are counted; at exit they are waited for, for a moment, and no other starts.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyCFunction;

use crate::sync::{Condvar, Mutex};

/// Longest wait at exit for functions of the application.
const LAST: Duration = Duration::from_secs(1);

/// Calls under way; `None` once the interpreter ends.
static UNDER_WAY: Mutex<Option<usize>> = Mutex::leaf(Some(0));
static DONE: Condvar = Condvar::new();

/// Waits for calls under way when the interpreter ends.
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
    Ok(())
}

/// A call of the application's code on a thread of the engine.
#[derive(Debug)]
pub(super) struct Call(());

impl Call {
    /// Begins a call; `None` once the interpreter ends.
    pub(super) fn begin() -> Option<Self> {
        *UNDER_WAY.lock().as_mut()? += 1;
        Some(Self(()))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(count) = &mut *UNDER_WAY.lock() {
            *count -= 1;
        }
        DONE.notify_all();
    }
}
