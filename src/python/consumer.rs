//! The consumer class.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pyo3::exceptions::{PyStopAsyncIteration, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::client::handle::SeekTo;
use crate::client::pulsar;
use crate::error::ErrorKind;
use crate::python::client::run;
use crate::python::convert::{py_result, raise, seconds};
use crate::python::inbox::{Inbox, Want};
use crate::python::message::{Message, MessageId, target};
use crate::python::promise::{Door, Value};
use crate::python::ready::ready;
use crate::python::runtime::{Native, engine};
use crate::python::tubemq::{self, Position};

/// Messages of `async for` between two turns of the loop.
const FAIR: u32 = 256;

/// A consumer of one or several topics.
#[pyclass(frozen, module = "penstock._engine")]
pub(super) struct Consumer {
    inbox: Native<Arc<Inbox>>,
    door: Door,
    /// Messages given by `async for` without suspending.
    streak: AtomicU32,
}

impl Consumer {
    pub(super) fn new(inbox: Arc<Inbox>, door: Door) -> Self {
        Self { inbox: Native::new(inbox), door, streak: AtomicU32::new(0) }
    }

    fn inbox(&self, py: Python<'_>) -> PyResult<&Arc<Inbox>> {
        py_result(py, self.inbox.get())
    }

    /// A message that was given out and that nobody looked at.
    pub(super) fn give_back(&self, message: &Message) {
        if let Ok(inbox) = self.inbox.get() {
            inbox.give_back(message.native().clone());
        }
    }

    /// Whether other tasks are due for a turn: a loop over a full queue would never suspend.
    fn is_tired(&self) -> bool {
        matches!(self.door, Door::Loop(_)) && self.streak.fetch_add(1, Ordering::Relaxed) % FAIR == FAIR - 1
    }

    /// The next message, in the loop's next turn.
    fn next_turn(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let (promise, pending) = self.door.promise(py)?;
        self.inbox(py)?.wait_a_turn(promise);
        Ok(pending)
    }

    fn wait(&self, py: Python<'_>, want: Want, timeout: Option<Duration>) -> PyResult<Py<PyAny>> {
        let inbox = self.inbox(py)?;
        let engine = py_result(py, engine(1))?;
        let (promise, pending) = self.door.promise(py)?;
        let on_loop = matches!(self.door, Door::Loop(_)).then_some(py);
        inbox.wait(engine.handle(), on_loop, want, timeout, promise);
        Ok(pending)
    }
}

#[pymethods]
impl Consumer {
    #[getter]
    fn topic(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.inbox(py)?.consumer.topic().to_owned())
    }

    #[getter]
    fn subscription(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.inbox(py)?.consumer.subscription().to_owned())
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__(slf: Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        if this.is_tired() {
            return this.next_turn(py);
        }
        match this.inbox(py)?.try_next() {
            Ok(Some(message)) => ready(Bound::new(py, Message::new(message))?, slf.clone()),
            Ok(None) => this.wait(py, Want::One, None),
            Err(error) if error.kind() == ErrorKind::Closed => Err(PyStopAsyncIteration::new_err(())),
            Err(error) => Err(raise(py, &error)),
        }
    }

    #[pyo3(signature = (timeout))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        match py_result(py, self.inbox(py)?.try_next())? {
            Some(message) => self.door.ready(py, Ok(Value::Message(Box::new(message)))),
            None => self.wait(py, Want::One, timeout.map(seconds)),
        }
    }

    #[pyo3(signature = (max, timeout))]
    fn receive_many(&self, py: Python<'_>, max: usize, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        if max == 0 {
            return Err(PyValueError::new_err("max is at least 1"));
        }
        let messages = py_result(py, self.inbox(py)?.try_many(max))?;
        if messages.is_empty() {
            return self.wait(py, Want::Many(max), timeout.map(seconds));
        }
        self.door.ready(py, Ok(Value::Messages(messages)))
    }

    #[pyo3(signature = (max_rows, timeout))]
    fn read_arrow(&self, py: Python<'_>, max_rows: usize, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        if max_rows == 0 {
            return Err(PyValueError::new_err("max_rows is at least 1"));
        }
        self.wait(py, Want::Rows(max_rows), timeout.map(seconds))
    }

    fn ack(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> PyResult<()> {
        py_result(py, self.inbox(py)?.consumer.ack(&[target(message)?]))
    }

    fn ack_many(&self, py: Python<'_>, messages: &Bound<'_, PyAny>) -> PyResult<()> {
        let targets = messages.try_iter()?.map(|m| target(&m?)).collect::<PyResult<Vec<_>>>()?;
        py_result(py, self.inbox(py)?.consumer.ack(&targets))
    }

    fn ack_receipt(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        cumulative: bool,
    ) -> PyResult<Py<PyAny>> {
        let targets = messages.try_iter()?.map(|m| target(&m?)).collect::<PyResult<Vec<_>>>()?;
        let consumer = self.inbox(py)?.consumer.clone();
        run(py, &self.door, 1, async move {
            consumer.ack_receipt(&targets, cumulative).await.map(|()| Value::None)
        })
    }

    fn ack_cumulative(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> PyResult<()> {
        py_result(py, self.inbox(py)?.consumer.ack_cumulative(&target(message)?))
    }

    #[pyo3(signature = (message, delay))]
    fn nack(&self, py: Python<'_>, message: &Bound<'_, PyAny>, delay: Option<f64>) -> PyResult<()> {
        let (inbox, targets) = (self.inbox(py)?, [target(message)?]);
        inbox.forget_with(&targets);
        py_result(py, inbox.consumer.nack(&targets, delay.map(seconds)))
    }

    #[pyo3(signature = (messages, delay))]
    fn nack_many(&self, py: Python<'_>, messages: &Bound<'_, PyAny>, delay: Option<f64>) -> PyResult<()> {
        let targets = messages.try_iter()?.map(|m| target(&m?)).collect::<PyResult<Vec<_>>>()?;
        let inbox = self.inbox(py)?;
        inbox.forget_with(&targets);
        py_result(py, inbox.consumer.nack(&targets, delay.map(seconds)))
    }

    fn redeliver_unacknowledged(&self, py: Python<'_>) -> PyResult<()> {
        let inbox = self.inbox(py)?;
        inbox.forget();
        py_result(py, inbox.consumer.redeliver_unacknowledged())
    }

    fn seek(&self, py: Python<'_>, position: &Bound<'_, PyAny>, inclusive: bool) -> PyResult<Py<PyAny>> {
        let to = if let Ok(id) = position.cast::<MessageId>() {
            SeekTo::Pulsar(pulsar::SeekTo::Id { id: id.get().0, inclusive })
        } else if let Ok(position) = position.cast::<Position>() {
            let position = position.get();
            SeekTo::Position(position.of(), position.0.offset)
        } else {
            SeekTo::Pulsar(pulsar::SeekTo::Time(position.extract().map_err(|_| {
                PyTypeError::new_err("a position is an id, a Position or a time in milliseconds since 1970")
            })?))
        };
        let inbox = Arc::clone(self.inbox(py)?);
        run(py, &self.door, 1, async move {
            inbox.forget();
            inbox.consumer.seek(to).await.map(|()| Value::None)
        })
    }

    fn unsubscribe(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let consumer = self.inbox(py)?.consumer.clone();
        run(py, &self.door, 1, async move { consumer.unsubscribe().await.map(|()| Value::None) })
    }

    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let consumer = self.inbox(py)?.consumer.clone();
        run(py, &self.door, 1, async move { consumer.close().await.map(|()| Value::None) })
    }

    /// Stops fetching from partitions of TubeMQ, given as pairs of broker and partition, or goes on; of all
    /// without any.
    fn set_paused(&self, py: Python<'_>, partitions: Option<Vec<(u32, u32)>>, paused: bool) -> PyResult<()> {
        let consumer = py_result(py, self.inbox(py)?.consumer.tubemq())?;
        let partitions = partitions.map(tubemq::partitions);
        py_result(py, consumer.set_paused(partitions.as_deref(), paused))
    }

    /// What is known of each partition of TubeMQ.
    fn partitions<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        tubemq::partition_states(py, py_result(py, self.inbox(py)?.consumer.tubemq())?)
    }

    fn last_message_ids(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let consumer = self.inbox(py)?.consumer.clone();
        run(py, &self.door, 1, async move { consumer.last_message_ids().await.map(Value::IdList) })
    }
}
