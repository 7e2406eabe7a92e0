//! Threads that run Python while the interpreter ends.
//!
//! A thread that attaches to an interpreter that is ending aborts the process. Threads of the
//! engine that call the application's functions are counted; at exit they are waited for, for a
//! moment, and no other starts. One that makes many calls looks at [`is_ending`] before each, and
//! then has another moment for the last.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyCFunction;

use forebay_base::clock;

/// Longest wait at exit for functions of the application.
const LAST: Duration = Duration::from_secs(1);

/// Longest wait after it for threads that look at [`is_ending`].
const UNWIND: Duration = Duration::from_millis(500);

/// Interval of looks at the calls under way meanwhile.
const LOOK: Duration = Duration::from_millis(1);

/// Number of calls under way, plus [`ENDING`] once the interpreter ends. Not a mutex, because a
/// fork may copy a locked one.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
const ENDING: usize = 1 << (usize::BITS - 1);

/// Waits for calls under way when the interpreter ends.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let at_exit = PyCFunction::new_closure(py, None, None, |args, _| -> PyResult<()> {
        args.py().detach(end);
        Ok(())
    })?;
    py.import("atexit")?.call_method1("register", (at_exit,))?;
    Ok(())
}

#[allow(clippy::disallowed_methods, reason = "this thread is the interpreter's, which ends")]
fn end() {
    let until = clock::now() + LAST;
    while UNDER_WAY.compare_exchange(0, ENDING, Ordering::AcqRel, Ordering::Acquire).is_err() {
        if clock::now() >= until {
            UNDER_WAY.fetch_or(ENDING, Ordering::AcqRel);
            break;
        }
        std::thread::sleep(LOOK);
    }
    let until = clock::now() + UNWIND;
    while UNDER_WAY.load(Ordering::Acquire) != ENDING && clock::now() < until {
        std::thread::sleep(LOOK);
    }
}

/// Whether the interpreter ends, so that a thread must not call Python again.
pub(super) fn is_ending() -> bool {
    UNDER_WAY.load(Ordering::Acquire) & ENDING != 0
}

/// Forgets the calls of the parent in a forked child, which has not their threads.
pub(super) fn forked() {
    UNDER_WAY.fetch_and(ENDING, Ordering::AcqRel);
}

/// A call of the application's code on a thread of the engine.
#[derive(Debug)]
pub(super) struct Call(());

impl Call {
    /// Begins a call; `None` once the interpreter ends.
    pub(super) fn begin() -> Option<Self> {
        let one_more = |calls: usize| (calls & ENDING == 0).then_some(calls + 1);
        UNDER_WAY.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok().map(|_| Self(()))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // A function that forks returns in the child too, where it is not counted.
        let one_less = |calls: usize| (calls & !ENDING > 0).then(|| calls - 1);
        let _ = UNDER_WAY.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less);
    }
}
