//! The engine of the process, and forks.
//!
//! A fork copies the memory, and perhaps a lock that the engine's thread held, but not the thread.
//! So a child never touches what it inherited: each handle knows the generation it was made in,
//! fails in a later one, and is leaked instead of dropped. The next connect starts a new engine.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyCFunction;

use crate::{exit, log};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_client::Engine;

/// Number of forks between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

struct Running {
    generation: u64,
    engine: Engine,
}

/// Never freed: an engine lives as long as its process.
static RUNNING: AtomicPtr<Running> = AtomicPtr::new(ptr::null_mut());

/// Counts forks from now on.
pub(super) fn watch_forks(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let os = py.import("os")?;
    if !os.hasattr("register_at_fork")? {
        return Ok(());
    }
    let bump = PyCFunction::new_closure(py, None, None, |_, _| -> PyResult<()> {
        GENERATION.fetch_add(1, Ordering::AcqRel);
        RUNNING.store(ptr::null_mut(), Ordering::Release);
        exit::forked();
        log::forked();
        Ok(())
    })?;
    let before = PyCFunction::new_closure(py, None, None, |args, _| -> PyResult<()> {
        log::before_fork(args.py());
        Ok(())
    })?;
    let go_on = PyCFunction::new_closure(py, None, None, |_, _| -> PyResult<()> {
        log::forked_in_parent();
        Ok(())
    })?;
    // It takes its own lock before a fork, and what is registered last comes first.
    py.import("logging")?;
    let options = pyo3::types::PyDict::new(py);
    options.set_item("before", before)?;
    options.set_item("after_in_parent", go_on)?;
    options.set_item("after_in_child", bump)?;
    os.call_method("register_at_fork", (), Some(&options))?;
    Ok(())
}

/// The engine, started on first use in this process.
#[allow(unsafe_code, reason = "the pointer is only ever null or a leaked box")]
pub(super) fn engine(threads: usize) -> Result<&'static Engine> {
    let generation = GENERATION.load(Ordering::Acquire);
    let current = RUNNING.load(Ordering::Acquire);
    // SAFETY: every pointer in RUNNING came from Box::leak and is never freed.
    if let Some(running) = unsafe { current.as_ref() }
        && running.generation == generation
    {
        return Ok(&running.engine);
    }
    let fresh = Box::leak(Box::new(Running { generation, engine: Engine::start(threads)? }));
    match RUNNING.compare_exchange(current, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(&fresh.engine),
        // Another thread was faster; its engine serves both.
        // SAFETY: as above.
        Err(other) => Ok(unsafe { &(*other).engine }),
    }
}

/// A value of one process: after a fork it can be neither used nor dropped.
#[derive(Debug)]
pub(super) struct Native<T> {
    generation: u64,
    value: ManuallyDrop<T>,
}

impl<T> Native<T> {
    pub(super) fn new(value: T) -> Self {
        Self { generation: GENERATION.load(Ordering::Acquire), value: ManuallyDrop::new(value) }
    }

    /// The value, in the process that made it.
    pub(super) fn get(&self) -> Result<&T> {
        if self.generation == GENERATION.load(Ordering::Acquire) {
            return Ok(self.value.deref());
        }
        Err(Error::new(
            ErrorKind::Fork,
            "this handle was created before a fork: create the client in the process that uses it",
        ))
    }
}

impl<T> Drop for Native<T> {
    #[allow(unsafe_code, reason = "ManuallyDrop is what lets a forked child leak")]
    fn drop(&mut self) {
        if self.generation == GENERATION.load(Ordering::Acquire) {
            // SAFETY: dropped once, here; no code can reach the value afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}
