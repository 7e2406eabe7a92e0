//! Completions on their way to an event loop: one queue, one wake-up per burst, drained on the
//! loop's thread.
//!
//! ```text
//! engine thread ── push plain data ──► queue ── first of a burst ──► one byte to the socket pair
//! loop thread   ◄── add_reader ── drain: clear the flag, swap the queue, resolve futures
//! ```
//! The engine's thread never attaches to the interpreter: attaching from there took 5 ms in the
//! median and seconds at worst under a busy loop. The queue is an [`Inbox`]. A drain stops after
//! [`DRAIN_MAX`] items and continues in the loop's next turn, so that a burst does not starve other
//! callbacks.
//!
//! This is the only file that knows asyncio. It knows no class of a protocol: producers and
//! consumers are reached through [`Settle`] and [`Serve`].

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

use crate::convert::{py_result, raise};
use crate::runtime::Native;
use crate::value::Outcome;
use forebay_base::error::{Error, ErrorKind};
use forebay_base::handoff::Inbox;
use forebay_base::sync::Mutex;
use forebay_client::events::SendOutcome;

/// Completions handled in one turn of the loop. One may resolve a whole batch of futures.
const DRAIN_MAX: usize = 4096;

/// The waiters of a producer. Called on the loop's thread, once for each outcome that is brought
/// there, which may be that of a whole batch.
pub(super) trait Settle: Send + Sync {
    /// Resolves the waiters at the head of `slot`.
    fn settle(&self, py: Python<'_>, slot: usize, outcome: SendOutcome) -> PyResult<()>;
}

/// The waiters of a consumer. Called on the loop's thread, once for each wake-up.
pub(super) trait Serve: Send + Sync {
    /// Gives the waiters the messages that have arrived.
    fn serve(&self, py: Python<'_>);
}

/// An entry of the queue from the engine to the loop.
enum Completion {
    Slot(usize, Outcome),
    Sent(Arc<dyn Settle>, usize, SendOutcome),
    Readable(Arc<dyn Serve>),
}

/// The queue and the wake-up of one event loop.
pub(super) struct Bridge {
    inbox: Inbox<Completion>,
    wake_tx: UnixStream,
    wake_rx: UnixStream,
    closed: AtomicBool,
    event_loop: Py<PyAny>,
    create_future: Py<PyAny>,
    futures: Mutex<Slots>,
}

/// Futures by number. Touched on the loop's thread only; the mutex is there for free-threaded
/// builds.
#[derive(Default)]
struct Slots {
    entries: Vec<Option<Py<PyAny>>>,
    free: Vec<usize>,
}

impl Bridge {
    fn push(&self, completion: Completion) {
        if self.inbox.push(completion) {
            self.wake();
        }
    }

    fn wake(&self) {
        // A full socket buffer holds wake-ups that are still unread, which is as good as another
        // one.
        let _ = (&self.wake_tx).write(&[1]);
    }

    pub(super) fn complete(&self, slot: usize, outcome: Outcome) {
        self.push(Completion::Slot(slot, outcome));
    }

    pub(super) fn sent(&self, producer: Arc<dyn Settle>, slot: usize, outcome: SendOutcome) {
        self.push(Completion::Sent(producer, slot, outcome));
    }

    pub(super) fn readable(&self, consumer: Arc<dyn Serve>) {
        self.push(Completion::Readable(consumer));
    }

    /// Creates a future of the loop.
    pub(super) fn future(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.create_future.call0(py)
    }

    /// Creates a future and gives its number too.
    pub(super) fn future_slot(&self, py: Python<'_>) -> PyResult<(usize, Py<PyAny>)> {
        if self.closed.load(Ordering::Acquire) {
            return Err(raise(py, &Error::new(ErrorKind::Closed, "the bridge to this event loop is closed")));
        }
        let future = self.future(py)?;
        let mut slots = self.futures.lock();
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

    /// Whether the future was cancelled, or is done otherwise.
    pub(super) fn is_done(&self, py: Python<'_>, slot: usize) -> bool {
        let future = self.futures.lock().entries.get(slot).and_then(|f| f.as_ref().map(|f| f.clone_ref(py)));
        future.is_none_or(|future| is_done(py, &future))
    }

    /// Whether this thread runs the event loop.
    fn is_current(&self, py: Python<'_>) -> bool {
        let running = py.import("asyncio").and_then(|asyncio| asyncio.call_method0("_get_running_loop"));
        running.is_ok_and(|running| running.is(&self.event_loop))
    }

    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        let mut bytes = [0; 64];
        while matches!((&self.wake_rx).read(&mut bytes), Ok(n) if n == bytes.len()) {}
        let mut result = Ok(());
        for completion in self.inbox.take(DRAIN_MAX) {
            let handled = match completion {
                Completion::Slot(slot, outcome) => self.resolve(py, slot, outcome),
                Completion::Sent(producer, slot, outcome) => producer.settle(py, slot, outcome),
                Completion::Readable(consumer) => {
                    consumer.serve(py);
                    Ok(())
                }
            };
            // One future that cannot be resolved must not keep the others waiting.
            result = result.and(handled);
        }
        if self.inbox.has_more() {
            self.wake();
        }
        result
    }

    /// Resolves a future, on the loop's thread.
    pub(super) fn resolve(&self, py: Python<'_>, slot: usize, outcome: Outcome) -> PyResult<()> {
        let future = {
            let mut slots = self.futures.lock();
            let Some(entry) = slots.entries.get_mut(slot) else { return Ok(()) };
            let future = entry.take();
            slots.free.push(slot);
            future
        };
        let Some(future) = future else { return Ok(()) };
        set(py, &future, || py_result(py, outcome)?.into_python(py))
    }
}

/// A callable that creates a future of the loop. asyncio's `create_future` is a function in Python
/// that makes an `asyncio.Future`: called from here, it takes about as long again as that.
fn future_factory<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = event_loop.py();
    let theirs = event_loop.getattr("create_future")?;
    let asyncio = py.import("asyncio")?;
    let own = asyncio.getattr("BaseEventLoop")?.getattr("create_future")?;
    if !theirs.getattr("__func__").is_ok_and(|function| function.is(&own)) {
        return Ok(theirs);
    }
    let arguments = [("loop", event_loop)].into_py_dict(py)?;
    py.import("functools")?.getattr("partial")?.call((asyncio.getattr("Future")?,), Some(&arguments))
}

/// Resolves a future with `result`, which is not called when the future is done or cancelled
/// already.
pub(super) fn set(
    py: Python<'_>,
    future: &Py<PyAny>,
    result: impl FnOnce() -> PyResult<Py<PyAny>>,
) -> PyResult<()> {
    if is_done(py, future) { Ok(()) } else { set_at_once(py, future, result()) }
}

/// As [`set`], for results that may be made in vain: the future is asked whether it is done only if
/// it does not take the result, which makes a call less for each of many.
pub(super) fn set_at_once(py: Python<'_>, future: &Py<PyAny>, result: PyResult<Py<PyAny>>) -> PyResult<()> {
    let set = match result {
        Ok(value) => future.call_method1(py, pyo3::intern!(py, "set_result"), (value,)),
        Err(error) => future.call_method1(py, pyo3::intern!(py, "set_exception"), (error.into_value(py),)),
    };
    match set {
        Err(_) if is_done(py, future) => Ok(()),
        set => set.map(drop),
    }
}

/// Fails a future whose result cannot come any more.
fn fail(py: Python<'_>, future: &Py<PyAny>) -> PyResult<()> {
    if is_done(py, future) {
        return Ok(());
    }
    let error = raise(py, &Error::new(ErrorKind::Closed, "the client was closed before the operation ended"));
    future.call_method1(py, pyo3::intern!(py, "set_exception"), (error.into_value(py),))?;
    // Read here, so that asyncio does not complain of one that nothing waits for.
    future.call_method0(py, pyo3::intern!(py, "exception"))?;
    Ok(())
}

fn is_done(py: Python<'_>, future: &Py<PyAny>) -> bool {
    future.call_method0(py, pyo3::intern!(py, "done")).and_then(|done| done.is_truthy(py)).unwrap_or(true)
}

/// The bridge to one event loop, created on the loop's thread.
#[pyclass(frozen, module = "forebay._engine")]
pub(super) struct Loop {
    bridge: Native<Arc<Bridge>>,
}

impl Loop {
    pub(super) fn bridge(&self, py: Python<'_>) -> PyResult<&Arc<Bridge>> {
        py_result(py, self.bridge.get())
    }
}

#[pymethods]
impl Loop {
    #[new]
    fn new(py: Python<'_>, r#loop: Py<PyAny>) -> PyResult<Self> {
        let (wake_tx, wake_rx) = UnixStream::pair()?;
        wake_tx.set_nonblocking(true)?;
        wake_rx.set_nonblocking(true)?;
        let fd = wake_rx.as_raw_fd();
        let bridge = Arc::new(Bridge {
            inbox: Inbox::default(),
            wake_tx,
            wake_rx,
            closed: AtomicBool::new(false),
            create_future: future_factory(r#loop.bind(py))?.unbind(),
            event_loop: r#loop,
            futures: Mutex::default(),
        });
        let drain = Py::new(py, Drain { bridge: Native::new(Arc::clone(&bridge)) })?;
        bridge.event_loop.call_method1(py, "add_reader", (fd, drain)).map_err(|error| {
            let wrapped = PyRuntimeError::new_err(
                "this event loop does not support add_reader: use a selector event loop or uvloop",
            );
            wrapped.set_cause(py, Some(error));
            wrapped
        })?;
        Ok(Self { bridge: Native::new(bridge) })
    }

    /// Closes the bridge. Completions that arrive later are dropped, and futures that still wait
    /// fail.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Ok(bridge) = self.bridge.get() else { return Ok(()) };
        if bridge.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let closed = bridge.event_loop.call_method0(py, "is_closed")?.is_truthy(py)?;
        if !closed {
            bridge.event_loop.call_method1(py, "remove_reader", (bridge.wake_rx.as_raw_fd(),))?;
        }
        // Dropped without the locks: the end of a result or of a future may run code.
        drop(bridge.inbox.close());
        let futures = std::mem::take(&mut *bridge.futures.lock());
        // A forgotten client may be collected on another thread, where the futures must not be
        // touched.
        if !closed && bridge.is_current(py) {
            for future in futures.entries.into_iter().flatten() {
                if let Err(error) = fail(py, &future) {
                    error.write_unraisable(py, None);
                }
            }
        }
        Ok(())
    }
}

/// The reader callback.
#[pyclass(frozen, module = "forebay._engine")]
struct Drain {
    bridge: Native<Arc<Bridge>>,
}

#[pymethods]
impl Drain {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        match self.bridge.get() {
            Ok(bridge) => bridge.drain(py),
            // A forked child that keeps running its parent's loop: it owns nothing of this bridge.
            Err(_) => Ok(()),
        }
    }
}
