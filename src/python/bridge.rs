//! Completions to an event loop: one queue, one wake-up per burst, drained on the loop's thread.
//!
//! ```text
//! engine thread ── push plain data ──► queue ── first of a burst ──► one byte to the socket pair
//! loop thread   ◄── add_reader ── drain: clear the flag, swap the queue, resolve futures
//! ```
//! The engine's thread never attaches to the interpreter: from there attaching took 5 ms in the median and
//! seconds at worst under a busy loop. The flag is cleared before the queue is swapped, so a completion that
//! comes in between rings again. A drain is cut after [`DRAIN_MAX`] items and goes on in the loop's next
//! turn, lest a burst starve other callbacks.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::client::events::SendOutcome;
use crate::error::{Error, ErrorKind};
use crate::python::convert::raise;
use crate::python::inbox::Inbox;
use crate::python::outbox::Outbox;
use crate::python::promise::{Door, Outcome, to_python};
use crate::python::runtime::Native;

/// Completions handled in one turn of the loop. One may resolve a whole batch of futures.
const DRAIN_MAX: usize = 4096;

/// What the engine tells the loop.
#[derive(Debug)]
enum Completion {
    Slot(usize, Outcome),
    Sent(Arc<Outbox>, usize, SendOutcome),
    Readable(Arc<Inbox>),
}

/// The engine's end and the loop's end of one event loop.
#[derive(Debug)]
pub(super) struct Bridge {
    queue: Mutex<VecDeque<Completion>>,
    /// A wake-up is on its way.
    armed: AtomicBool,
    bell: UnixStream,
    ear: UnixStream,
    closed: AtomicBool,
    event_loop: Py<PyAny>,
    create_future: Py<PyAny>,
    futures: Mutex<Slots>,
}

/// Futures by number. Touched on the loop's thread only; the mutex is there for free-threaded builds.
#[derive(Debug, Default)]
struct Slots {
    entries: Vec<Option<Py<PyAny>>>,
    free: Vec<usize>,
}

impl Bridge {
    fn push(&self, completion: Completion) {
        if self.closed.load(Ordering::Acquire) {
            return;
        }
        lock(&self.queue).push_back(completion);
        self.ring();
    }

    fn ring(&self) {
        if !self.armed.swap(true, Ordering::AcqRel) {
            // A full socket buffer means that wake-ups are waiting to be read: as good as written.
            let _ = (&self.bell).write(&[1]);
        }
    }

    pub(super) fn complete(&self, slot: usize, outcome: Outcome) {
        self.push(Completion::Slot(slot, outcome));
    }

    pub(super) fn sent(&self, outbox: Arc<Outbox>, slot: usize, outcome: SendOutcome) {
        self.push(Completion::Sent(outbox, slot, outcome));
    }

    pub(super) fn readable(&self, inbox: Arc<Inbox>) {
        self.push(Completion::Readable(inbox));
    }

    /// A fresh future of the loop.
    pub(super) fn future(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.create_future.call0(py)
    }

    /// A fresh future and its number.
    pub(super) fn future_slot(&self, py: Python<'_>) -> PyResult<(usize, Py<PyAny>)> {
        if self.closed.load(Ordering::Acquire) {
            return Err(raise(py, &Error::new(ErrorKind::Closed, "the bridge to this event loop is closed")));
        }
        let future = self.future(py)?;
        let mut slots = lock(&self.futures);
        let entry = Some(future.clone_ref(py));
        let slot = match slots.free.pop() {
            Some(slot) => {
                slots.entries[slot] = entry;
                slot
            }
            None => {
                slots.entries.push(entry);
                slots.entries.len() - 1
            }
        };
        Ok((slot, future))
    }

    /// A future that is done already.
    pub(super) fn done_future(self: &Arc<Self>, py: Python<'_>, outcome: Outcome) -> PyResult<Py<PyAny>> {
        let future = self.future(py)?;
        self.set(py, &future, outcome)?;
        Ok(future)
    }

    /// Whether the future was cancelled, or is done otherwise.
    pub(super) fn is_done(&self, py: Python<'_>, slot: usize) -> bool {
        let future = lock(&self.futures).entries.get(slot).and_then(|f| f.as_ref().map(|f| f.clone_ref(py)));
        future.is_none_or(|future| is_done(py, &future))
    }

    /// Gives an outcome to a future, unless it is cancelled.
    pub(super) fn set(
        self: &Arc<Self>,
        py: Python<'_>,
        future: &Py<PyAny>,
        outcome: Outcome,
    ) -> PyResult<()> {
        if is_done(py, future) {
            return Ok(());
        }
        let door = Door::Loop(Arc::clone(self));
        match outcome.map_err(|error| raise(py, &error)).and_then(|value| to_python(py, value, &door)) {
            Ok(value) => future.call_method1(py, pyo3::intern!(py, "set_result"), (value,))?,
            Err(error) => {
                future.call_method1(py, pyo3::intern!(py, "set_exception"), (error.into_value(py),))?
            }
        };
        Ok(())
    }

    fn drain(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        let mut bytes = [0; 64];
        while matches!((&self.ear).read(&mut bytes), Ok(n) if n == bytes.len()) {}
        self.armed.store(false, Ordering::Release);
        let mut batch = {
            let mut queue = lock(&self.queue);
            if queue.len() <= DRAIN_MAX {
                std::mem::take(&mut *queue)
            } else {
                queue.drain(..DRAIN_MAX).collect()
            }
        };
        let mut result = Ok(());
        for completion in batch.drain(..) {
            let handled = match completion {
                Completion::Slot(slot, outcome) => self.resolve(py, slot, outcome),
                Completion::Sent(outbox, slot, outcome) => outbox.settle(Some((py, self)), slot, outcome),
                Completion::Readable(inbox) => {
                    inbox.serve(Some(py));
                    Ok(())
                }
            };
            // One future that cannot be resolved must not keep the others waiting.
            result = result.and(handled);
        }
        if !lock(&self.queue).is_empty() {
            self.ring();
        }
        result
    }

    /// Resolves a future, on the loop's thread.
    pub(super) fn resolve(self: &Arc<Self>, py: Python<'_>, slot: usize, outcome: Outcome) -> PyResult<()> {
        let future = {
            let mut slots = lock(&self.futures);
            let Some(entry) = slots.entries.get_mut(slot) else { return Ok(()) };
            let future = entry.take();
            slots.free.push(slot);
            future
        };
        future.map_or(Ok(()), |future| self.set(py, &future, outcome))
    }
}

fn is_done(py: Python<'_>, future: &Py<PyAny>) -> bool {
    future.call_method0(py, pyo3::intern!(py, "done")).and_then(|done| done.is_truthy(py)).unwrap_or(true)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bridge to one event loop. Made on the loop's thread.
#[pyclass(frozen, module = "penstock._engine")]
pub(super) struct Loop {
    bridge: Native<Arc<Bridge>>,
}

impl Loop {
    pub(super) fn door(&self, py: Python<'_>) -> PyResult<Door> {
        let bridge = self.bridge.get().map_err(|error| raise(py, &error))?;
        Ok(Door::Loop(Arc::clone(bridge)))
    }
}

#[pymethods]
impl Loop {
    #[new]
    fn new(py: Python<'_>, r#loop: Py<PyAny>) -> PyResult<Self> {
        let (bell, ear) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ear.set_nonblocking(true)?;
        let fd = ear.as_raw_fd();
        let bridge = Arc::new(Bridge {
            queue: Mutex::default(),
            armed: AtomicBool::new(false),
            bell,
            ear,
            closed: AtomicBool::new(false),
            create_future: r#loop.getattr(py, "create_future")?,
            event_loop: r#loop,
            futures: Mutex::default(),
        });
        let drain = Py::new(py, Drain { bridge: Native::new(Arc::clone(&bridge)) })?;
        bridge.event_loop.call_method1(py, "add_reader", (fd, drain)).map_err(|error| {
            let wrapped =
                PyRuntimeError::new_err("this event loop has no add_reader: use a selector loop or uvloop");
            wrapped.set_cause(py, Some(error));
            wrapped
        })?;
        Ok(Self { bridge: Native::new(bridge) })
    }

    /// Ends the bridge; completions that come later are dropped.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Ok(bridge) = self.bridge.get() else { return Ok(()) };
        if bridge.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let closed = bridge.event_loop.call_method0(py, "is_closed")?.is_truthy(py)?;
        if !closed {
            bridge.event_loop.call_method1(py, "remove_reader", (bridge.ear.as_raw_fd(),))?;
        }
        lock(&bridge.queue).clear();
        // Dropped without the lock: the end of a future may run code.
        let futures = std::mem::take(&mut *lock(&bridge.futures));
        drop(futures);
        Ok(())
    }
}

/// The reader callback.
#[pyclass(frozen, module = "penstock._engine")]
struct Drain {
    bridge: Native<Arc<Bridge>>,
}

#[pymethods]
impl Drain {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        match self.bridge.get() {
            Ok(bridge) => bridge.drain(py),
            // A forked child that goes on running the parent's loop: nothing of it is ours.
            Err(_) => Ok(()),
        }
    }
}
