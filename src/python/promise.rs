//! Promises: the engine's end of a result for which a future of an event loop or a blocked thread
//! waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::bridge::{self, Bridge, Loop};
use crate::convert::{py_result, raise};
use crate::runtime::{Native, engine};
use crate::value::{IntoPython, Outcome, Value};
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::handoff;
use forebay_base::sync::Mutex;

/// The caller of a handle's operations, who gets their results.
#[derive(Clone)]
pub(super) enum Caller {
    /// Code on an event loop: results are futures of that loop.
    Loop(Arc<Bridge>),
    /// Blocking code: results are [`Waiter`]s.
    Blocking,
}

impl Caller {
    /// The caller on `event_loop`, or a blocking one without it.
    pub(super) fn new(py: Python<'_>, event_loop: Option<&Loop>) -> PyResult<Self> {
        Ok(match event_loop {
            Some(event_loop) => Self::Loop(Arc::clone(event_loop.bridge(py)?)),
            None => Self::Blocking,
        })
    }

    pub(super) fn is_loop(&self) -> bool {
        matches!(self, Self::Loop(_))
    }

    /// A promise, and the object that the caller waits with.
    pub(super) fn promise(&self, py: Python<'_>) -> PyResult<(Promise, Py<PyAny>)> {
        match self {
            Self::Loop(bridge) => {
                let (slot, future) = bridge.future_slot(py)?;
                Ok((Promise(Some(Target::Slot(Arc::clone(bridge), slot))), future))
            }
            Self::Blocking => {
                let (promise, one_shot) = Promise::one_shot();
                Ok((promise, Py::new(py, Waiter::new(one_shot))?.into_any()))
            }
        }
    }

    /// The object for a result that is known already.
    pub(super) fn ready(&self, py: Python<'_>, result: PyResult<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Loop(bridge) => {
                let future = bridge.future(py)?;
                bridge::set(py, &future, || result)?;
                Ok(future)
            }
            Self::Blocking => Ok(Py::new(py, Waiter(State::Ready(Mutex::leaf(Some(result)))))?.into_any()),
        }
    }

    /// Spawns an operation on the engine. `threads` counts for the process's first operation only,
    /// which starts the engine.
    pub(super) fn run<T: IntoPython>(
        &self,
        py: Python<'_>,
        threads: usize,
        operation: impl Future<Output = Result<T>> + Send + 'static,
    ) -> PyResult<Py<PyAny>> {
        let engine = py_result(py, engine(threads))?;
        let (promise, pending) = self.promise(py)?;
        engine.handle().spawn(async move { promise.resolve(operation.await.map(Value::new)) });
        Ok(pending)
    }
}

enum Target {
    Slot(Arc<Bridge>, usize),
    OneShot(Arc<OneShot>),
}

/// The right to resolve one result, from any thread. Dropping it unresolved fails the operation as
/// cancelled.
pub(super) struct Promise(Option<Target>);

impl Promise {
    /// A promise to a thread that blocks in [`OneShot::wait`].
    pub(super) fn one_shot() -> (Self, Arc<OneShot>) {
        let one_shot = Arc::new(OneShot::default());
        (Self(Some(Target::OneShot(Arc::clone(&one_shot)))), one_shot)
    }

    pub(super) fn resolve(mut self, outcome: Outcome) {
        self.send(outcome);
    }

    /// Resolves without a detour through the queue when called on the loop's thread, so that the
    /// wait cannot be cancelled in between.
    pub(super) fn deliver(mut self, on_loop: Option<Python<'_>>, outcome: Outcome) {
        match (self.0.take(), on_loop) {
            (Some(Target::Slot(bridge, slot)), Some(py)) => {
                if let Err(error) = bridge.resolve(py, slot, outcome) {
                    error.write_unraisable(py, None);
                }
            }
            (target, _) => Self(target).send(outcome),
        }
    }

    /// Whether the wait was cancelled. Must be asked on the loop's thread if there is a loop.
    pub(super) fn is_abandoned(&self, py: Option<Python<'_>>) -> bool {
        match (&self.0, py) {
            (Some(Target::Slot(bridge, slot)), Some(py)) => bridge.is_done(py, *slot),
            // The waiting side is gone, because a signal ended the wait for example.
            (Some(Target::OneShot(one_shot)), _) => Arc::strong_count(one_shot) == 1,
            _ => false,
        }
    }

    fn send(&mut self, outcome: Outcome) {
        match self.0.take() {
            Some(Target::Slot(bridge, slot)) => bridge.complete(slot, outcome),
            Some(Target::OneShot(one_shot)) => one_shot.set(outcome),
            None => {}
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if self.0.is_some() {
            self.send(Err(Error::new(ErrorKind::Cancelled, "the operation was dropped before it completed")));
        }
    }
}

/// One result for a blocked thread.
#[derive(Default)]
pub(super) struct OneShot {
    outcome: handoff::OneShot<Outcome>,
    taken: AtomicBool,
}

impl OneShot {
    pub(super) fn set(&self, outcome: Outcome) {
        self.outcome.set(outcome);
    }

    /// The result, if it has arrived and was not taken.
    pub(super) fn take(&self) -> Option<Outcome> {
        self.outcome.take()
    }

    /// Blocks until the result arrives, at most `timeout` seconds, handling signals meanwhile.
    pub(super) fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        // Short enough for Ctrl-C to feel immediate, long enough to cost nothing.
        const SIGNAL_CHECK: Duration = Duration::from_millis(50);
        if timeout.is_some_and(f64::is_nan) {
            return Err(PyValueError::new_err("timeout: expected seconds, not NaN"));
        }
        let deadline = timeout.map(|seconds| clock::now() + Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
        loop {
            if self.taken.load(Ordering::Acquire) {
                return Err(taken_already(py));
            }
            let outcome = py.detach(|| {
                let slice = deadline
                    .map_or(SIGNAL_CHECK, |at| SIGNAL_CHECK.min(at.saturating_duration_since(clock::now())));
                self.outcome.wait(slice)
            });
            if outcome.is_some() {
                self.taken.store(true, Ordering::Release);
            }
            match outcome {
                Some(outcome) => return py_result(py, outcome)?.into_python(py),
                None => py.check_signals()?,
            }
            if deadline.is_some_and(|at| at <= clock::now()) {
                let error = Error::new(ErrorKind::Timeout, "no result in time; it can still be waited for");
                return Err(raise(py, &error));
            }
        }
    }
}

fn taken_already(py: Python<'_>) -> PyErr {
    raise(py, &Error::new(ErrorKind::InvalidArgument, "the result has been taken already"))
}

/// The result of an operation of a blocking caller.
#[pyclass(frozen, module = "forebay._engine")]
pub(super) struct Waiter(State);

enum State {
    Pending(Native<Arc<OneShot>>),
    /// Known when the operation returned, and `None` once taken.
    Ready(Mutex<Option<PyResult<Py<PyAny>>>>),
}

impl Waiter {
    pub(super) fn new(one_shot: Arc<OneShot>) -> Self {
        Self(State::Pending(Native::new(one_shot)))
    }
}

#[pymethods]
impl Waiter {
    /// Waits for the result, at most `timeout` seconds; signals are handled meanwhile.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        match &self.0 {
            State::Pending(one_shot) => py_result(py, one_shot.get())?.wait(py, timeout),
            State::Ready(result) => {
                let result = result.lock().take();
                result.unwrap_or_else(|| Err(taken_already(py)))
            }
        }
    }

    /// Whether the result has arrived and has not been taken.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        match &self.0 {
            State::Pending(one_shot) => Ok(py_result(py, one_shot.get())?.outcome.is_set()),
            State::Ready(result) => Ok(result.lock().is_some()),
        }
    }
}
