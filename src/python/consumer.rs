//! The parts that the consumer classes of all protocols share, and the macro that declares such a
//! class.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pyo3::exceptions::{PyStopAsyncIteration, PyStopIteration, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{each, py_result, raise, seconds};
use crate::message::{Many, Message, One};
use crate::promise::{Caller, Promise};
use crate::ready::{GiveBack, ready};
use crate::receives::{Receives, Source, Want, ends_iteration};
use crate::runtime::{Native, engine};
use crate::value::IntoPython;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_client::receive::Batch;
use forebay_client::traffic::ReceiveCounts;

/// Messages that `async for` delivers between two turns of the loop.
const FAIR: u32 = 256;

/// The verbs that the consumers of all protocols have.
pub(super) trait Subscription: Source + Clone {
    /// Names a message to acknowledge.
    type Target: Send + Sync;

    /// The target for a Python object.
    fn target(object: &Bound<'_, PyAny>) -> PyResult<Self::Target>;

    /// The subscription or group.
    fn subscription(&self) -> &str;

    /// Whether its brokers deliver to it now.
    fn is_connected(&self) -> bool;

    /// Acknowledges messages.
    fn ack(&self, targets: &[Self::Target]) -> Result<()>;

    /// Deletes the subscription and closes the consumer.
    fn unsubscribe(&self) -> impl Future<Output = Result<()>> + Send;

    /// Closes the consumer.
    fn close(&self) -> impl Future<Output = Result<()>> + Send;

    /// Adds the protocol's own counters.
    fn add_stats(&self, _stats: &Bound<'_, PyDict>) -> PyResult<()> {
        Ok(())
    }
}

/// The verbs of protocols that can redeliver.
pub(super) trait Redeliver: Subscription {
    /// Acknowledges a message and all before it.
    fn ack_cumulative(&self, target: &Self::Target) -> Result<()>;

    /// Asks for messages again, after `delay` or the consumer's own.
    fn nack(&self, targets: &[Self::Target], delay: Option<Duration>) -> Result<()>;

    /// Asks for everything again that is not acknowledged.
    fn redeliver_unacknowledged(&self) -> Result<()>;
}

/// The body of a consumer class.
pub(super) struct Receiver<S: Source> {
    receives: Native<Arc<Receives<S>>>,
    caller: Caller,
    /// Messages that `async for` delivered without suspending.
    streak: AtomicU32,
}

impl<S: Subscription> Receiver<S> {
    pub(super) fn new(receives: Arc<Receives<S>>, caller: Caller) -> Self {
        Self { receives: Native::new(receives), caller, streak: AtomicU32::new(0) }
    }

    pub(super) fn receives(&self, py: Python<'_>) -> PyResult<&Arc<Receives<S>>> {
        py_result(py, self.receives.get())
    }

    pub(super) fn source(&self, py: Python<'_>) -> PyResult<&S> {
        Ok(&self.receives(py)?.source)
    }

    /// Takes back a message of an awaitable that was dropped without being awaited.
    pub(super) fn give_back(&self, message: &Bound<'_, PyAny>) {
        if let (Ok(receives), Some(message)) = (self.receives.get(), S::Message::of(message)) {
            receives.give_back(message);
        }
    }

    /// Whether other tasks are due for a turn: a loop over a full queue would never suspend.
    fn should_yield(&self) -> bool {
        self.caller.is_loop() && self.streak.fetch_add(1, Ordering::Relaxed) % FAIR == FAIR - 1
    }

    /// Proof that this is the loop's thread, if there is a loop.
    fn loop_thread<'py>(&self, py: Python<'py>) -> Option<Python<'py>> {
        self.caller.is_loop().then_some(py)
    }

    fn wait(&self, py: Python<'_>, want: Want, timeout: Option<Duration>) -> PyResult<Py<PyAny>> {
        let receives = self.receives(py)?;
        let engine = py_result(py, engine(1))?;
        let (promise, pending) = self.caller.promise(py)?;
        receives.wait(engine.handle(), self.loop_thread(py), want, timeout, promise);
        Ok(pending)
    }

    /// The awaitable of `async for`. `consumer` is the object that `self` is the body of.
    pub(super) fn anext(&self, consumer: &Bound<'_, PyAny>, give_back: GiveBack) -> PyResult<Py<PyAny>> {
        let py = consumer.py();
        if self.should_yield() {
            let (promise, pending) = self.caller.promise(py)?;
            self.receives(py)?.wait_a_turn(promise);
            return Ok(pending);
        }
        match self.receives(py)?.try_next(self.loop_thread(py)) {
            Ok(Some(message)) => ready(message.into_object(py)?, consumer.clone(), give_back),
            Ok(None) => self.wait(py, Want::Next, None),
            Err(error) if ends_iteration(error.kind()) => Err(PyStopAsyncIteration::new_err(())),
            Err(error) => Err(raise(py, &error)),
        }
    }

    /// The next message, for a blocking caller: a [`Waiter`](crate::promise::Waiter) for each
    /// message, or a wake-up of another thread while messages are at hand, would cost as much as
    /// the message.
    pub(super) fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        if self.caller.is_loop() {
            let text = "this consumer belongs to an event loop: use receive(), or iterate with async for";
            return Err(raise(py, &Error::new(ErrorKind::NotAllowed, text)));
        }
        let receives = self.receives(py)?;
        // Matched here: each further function on its way would copy the message once more.
        match receives.try_next(None) {
            Ok(Some(message)) => return Ok(message.into_object(py)?.unbind()),
            Ok(None) => {}
            Err(error) => return Err(raise(py, &error)),
        }
        let engine = py_result(py, engine(1))?;
        let (promise, one_shot) = Promise::one_shot();
        receives.wait(engine.handle(), None, Want::One, timeout.map(seconds), promise);
        let received = one_shot.wait(py, None);
        // A signal handler has raised, and the message came while it ran: the next wait gets it.
        if received.is_err()
            && let Some(Ok(value)) = one_shot.take()
            && let Ok(message) = value.into_python(py)
        {
            self.give_back(message.bind(py));
        }
        received
    }

    pub(super) fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        match py_result(py, self.receives(py)?.try_next(self.loop_thread(py)))? {
            Some(message) => self.caller.ready(py, One(message).into_python(py)),
            None => self.wait(py, Want::One, timeout.map(seconds)),
        }
    }

    pub(super) fn receive_many(
        &self,
        py: Python<'_>,
        max: usize,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let messages = py_result(py, self.receives(py)?.try_many(self.loop_thread(py), max))?;
        if messages.is_empty() {
            return self.wait(py, Want::Many(max), timeout.map(seconds));
        }
        self.caller.ready(py, Many(messages).into_python(py))
    }

    pub(super) fn receive_batch(
        &self,
        py: Python<'_>,
        messages: usize,
        bytes: Option<usize>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        if bytes == Some(0) {
            return Err(PyValueError::new_err("max_bytes must be at least 1"));
        }
        let batch = Batch { messages, bytes: bytes.unwrap_or(usize::MAX) };
        self.wait(py, Want::Batch(batch), timeout.map(seconds))
    }

    pub(super) fn read_arrow(
        &self,
        py: Python<'_>,
        max_rows: usize,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        self.wait(py, Want::Rows(max_rows), timeout.map(seconds))
    }

    /// Closes the consumer.
    pub(super) fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.run(py, |consumer| async move { Subscription::close(&consumer).await })
    }

    /// Deletes the subscription.
    pub(super) fn unsubscribe(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.run(py, |consumer| async move { Subscription::unsubscribe(&consumer).await })
    }

    /// Acknowledges messages.
    pub(super) fn ack(&self, py: Python<'_>, targets: &[S::Target]) -> PyResult<()> {
        let receives = self.receives(py)?;
        py_result(py, Subscription::ack(&receives.source, targets))?;
        receives.source.ahead().count_acknowledged(targets.len());
        Ok(())
    }

    pub(super) fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let source = self.source(py)?;
        let stats = PyDict::new(py);
        add_receives(&stats, &source.ahead().counts())?;
        stats.set_item("messages_prefetched", source.ahead().len())?;
        source.add_stats(&stats)?;
        Ok(stats)
    }

    /// Runs an operation on the engine.
    pub(super) fn run<T: IntoPython, F>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(S) -> F,
    ) -> PyResult<Py<PyAny>>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.caller.run(py, 1, operation(self.source(py)?.clone()))
    }
}

impl<S: Redeliver> Receiver<S> {
    pub(super) fn nack(&self, py: Python<'_>, targets: &[S::Target], delay: Option<f64>) -> PyResult<()> {
        let receives = self.receives(py)?;
        py_result(py, receives.source.nack(targets, delay.map(seconds)))?;
        receives.source.ahead().count_refused(targets.len());
        Ok(())
    }

    pub(super) fn ack_cumulative(&self, py: Python<'_>, target: &S::Target) -> PyResult<()> {
        let receives = self.receives(py)?;
        py_result(py, receives.source.ack_cumulative(target))?;
        receives.source.ahead().count_acknowledged(1);
        Ok(())
    }

    pub(super) fn redeliver_unacknowledged(&self, py: Python<'_>) -> PyResult<()> {
        py_result(py, self.source(py)?.redeliver_unacknowledged())
    }
}

/// The error with which a blocking iteration ends.
pub(super) fn end_of_iteration(py: Python<'_>, error: PyErr) -> PyErr {
    let code = error.value(py).getattr("code").and_then(|code| code.extract::<String>());
    let ends = |kind: ErrorKind| code.as_ref().is_ok_and(|code| code == kind.code());
    if ErrorKind::ALL.iter().any(|kind| ends_iteration(*kind) && ends(*kind)) {
        return PyStopIteration::new_err(());
    }
    error
}

/// Adds the counters of what was received.
pub(super) fn add_receives(stats: &Bound<'_, PyDict>, counts: &ReceiveCounts) -> PyResult<()> {
    stats.set_item("messages_received", counts.messages)?;
    stats.set_item("bytes_received", counts.bytes)?;
    stats.set_item("messages_acknowledged", counts.acknowledged)?;
    stats.set_item("messages_refused", counts.refused)?;
    stats.set_item("redelivered", counts.redelivered)
}

/// The targets of several objects.
pub(super) fn targets<S: Subscription>(objects: &Bound<'_, PyAny>) -> PyResult<Vec<S::Target>> {
    each("messages", objects)?.iter().map(S::target).collect()
}

/// Declares a consumer class: the shared methods, and those in the braces. PyO3 needs all methods
/// of a class in one block, so they are handed through the macro. A class with `redelivers` has the
/// verbs of [`Redeliver`] too.
macro_rules! consumer_class {
    (
        $(#[$attribute:meta])*
        $name:ident($source:ty), redelivers;
        $($own:tt)*
    ) => {
        $crate::consumer::consumer_class! {
            $(#[$attribute])*
            $name($source);

            fn ack_cumulative(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> PyResult<()> {
                let target = <$source as Subscription>::target(message)?;
                self.0.ack_cumulative(py, &target)
            }

            #[pyo3(signature = (message, delay))]
            fn nack(&self, py: Python<'_>, message: &Bound<'_, PyAny>, delay: Option<f64>) -> PyResult<()> {
                self.0.nack(py, &[<$source as Subscription>::target(message)?], delay)
            }

            #[pyo3(signature = (messages, delay))]
            fn nack_many(
                &self,
                py: Python<'_>,
                messages: &Bound<'_, PyAny>,
                delay: Option<f64>,
            ) -> PyResult<()> {
                self.0.nack(py, &targets::<$source>(messages)?, delay)
            }

            fn redeliver_unacknowledged(&self, py: Python<'_>) -> PyResult<()> {
                self.0.redeliver_unacknowledged(py)
            }

            $($own)*
        }
    };
    (
        $(#[$attribute:meta])*
        $name:ident($source:ty);
        $($own:tt)*
    ) => {
        $(#[$attribute])*
        #[pyclass(frozen, module = "forebay._engine")]
        pub(crate) struct $name(Receiver<$source>);

        impl $name {
            fn give_back(consumer: &Bound<'_, PyAny>, message: &Bound<'_, PyAny>) {
                if let Ok(consumer) = consumer.cast::<Self>() {
                    consumer.get().0.give_back(message);
                }
            }
        }

        impl IntoPython for Receiver<$source> {
            fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                Ok(Py::new(py, $name(self))?.into_any())
            }
        }

        #[pymethods]
        impl $name {
            #[getter]
            fn topic(&self, py: Python<'_>) -> PyResult<&str> {
                Ok(self.0.source(py)?.topic())
            }

            #[getter]
            fn subscription(&self, py: Python<'_>) -> PyResult<&str> {
                Ok(Subscription::subscription(self.0.source(py)?))
            }

            #[getter]
            fn connected(&self, py: Python<'_>) -> bool {
                self.0.source(py).is_ok_and(Subscription::is_connected)
            }

            fn __aiter__(slf: Py<Self>) -> Py<Self> {
                slf
            }

            fn __anext__(slf: Bound<'_, Self>) -> PyResult<Py<PyAny>> {
                slf.get().0.anext(slf.as_any(), Self::give_back)
            }

            fn __iter__(slf: Py<Self>) -> Py<Self> {
                slf
            }

            fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                self.0.next(py, None).map_err(|error| $crate::consumer::end_of_iteration(py, error))
            }

            #[pyo3(signature = (given, /))]
            fn receive_blocking(&self, py: Python<'_>, given: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                self.0.next(py, $crate::convert::timeout(given)?)
            }

            #[pyo3(signature = (timeout))]
            fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
                self.0.receive(py, timeout)
            }

            #[pyo3(signature = (max, timeout))]
            fn receive_many(
                &self,
                py: Python<'_>,
                max: &Bound<'_, PyAny>,
                timeout: Option<f64>,
            ) -> PyResult<Py<PyAny>> {
                self.0.receive_many(py, $crate::convert::count("max", max)?, timeout)
            }

            #[pyo3(signature = (max, max_bytes, timeout))]
            fn receive_batch(
                &self,
                py: Python<'_>,
                max: &Bound<'_, PyAny>,
                max_bytes: Option<usize>,
                timeout: Option<f64>,
            ) -> PyResult<Py<PyAny>> {
                self.0.receive_batch(py, $crate::convert::count("max", max)?, max_bytes, timeout)
            }

            #[pyo3(signature = (max_rows, timeout))]
            fn read_arrow(
                &self,
                py: Python<'_>,
                max_rows: &Bound<'_, PyAny>,
                timeout: Option<f64>,
            ) -> PyResult<Py<PyAny>> {
                self.0.read_arrow(py, $crate::convert::count("max_rows", max_rows)?, timeout)
            }

            fn ack(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> PyResult<()> {
                let target = <$source as Subscription>::target(message)?;
                self.0.ack(py, &[target])
            }

            fn ack_many(&self, py: Python<'_>, messages: &Bound<'_, PyAny>) -> PyResult<()> {
                let targets = targets::<$source>(messages)?;
                self.0.ack(py, &targets)
            }

            fn stats<'py>(
                &self,
                py: Python<'py>,
            ) -> PyResult<Bound<'py, pyo3::types::PyDict>> {
                self.0.stats(py)
            }

            fn unsubscribe(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                self.0.unsubscribe(py)
            }

            fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                self.0.close(py)
            }

            $($own)*
        }
    };
}
pub(super) use consumer_class;
