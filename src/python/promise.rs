//! An outcome on its way to whoever waits: a future of an event loop, or a blocked thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::client::events::Receipt;
use crate::client::handle;
use crate::client::{mqtt, pulsar, tubemq};
use crate::error::{Error, ErrorKind, Result};
use crate::pulsar as core;
use crate::python::arrow::ArrowBatch;
use crate::python::bridge::Bridge;
use crate::python::convert::{py_result, raise};
use crate::python::inbox::Inbox;
use crate::python::message::{Message, MessageId, MessageIds};
use crate::python::mqtt::reason_code;
use crate::python::outbox::Outbox;
use crate::python::runtime::Native;
use crate::python::tubemq::Position;

/// What an operation gives. Plain data: made on the engine's thread, converted where it is wanted.
#[derive(Debug)]
pub(super) enum Value {
    None,
    Number(u32),
    Texts(Vec<String>),
    Client(handle::Client),
    Producer(pulsar::Producer, Arc<Outbox>),
    MqttProducer(mqtt::Producer, Arc<Outbox>),
    TubeProducer(tubemq::Producer, Arc<Outbox>),
    Consumer(Arc<Inbox>),
    Receipt(Receipt),
    Receipts(Vec<Receipt>),
    IdList(Vec<core::MessageId>),
    Message(Box<handle::Message>),
    Messages(Vec<handle::Message>),
    Arrow(arrow_array::RecordBatch),
}

pub(super) type Outcome = Result<Value>;

/// What a value needs to become a Python object: the door that handles made from it will use.
pub(super) fn to_python(py: Python<'_>, value: Value, door: &Door) -> PyResult<Py<PyAny>> {
    Ok(match value {
        Value::None => py.None(),
        Value::Number(number) => number.into_pyobject(py)?.into_any().unbind(),
        Value::Texts(texts) => {
            PyList::new(py, texts.iter().map(|text| PyString::new(py, text)))?.into_any().unbind()
        }
        Value::Client(client) => Py::new(py, super::client::Client::new(client, door.clone()))?.into_any(),
        Value::Producer(producer, outbox) => {
            Py::new(py, super::producer::Producer::new(producer, outbox, door.clone()))?.into_any()
        }
        Value::MqttProducer(producer, outbox) => {
            Py::new(py, super::mqtt::MqttProducer::new(producer, outbox, door.clone()))?.into_any()
        }
        Value::TubeProducer(producer, outbox) => {
            Py::new(py, super::tubemq::TubeProducer::new(producer, outbox, door.clone()))?.into_any()
        }
        Value::Consumer(inbox) => {
            Py::new(py, super::consumer::Consumer::new(inbox, door.clone()))?.into_any()
        }
        Value::Receipt(receipt) => receipt_to_python(py, receipt)?,
        Value::Receipts(receipts) => receipts_to_python(py, receipts)?,
        Value::IdList(ids) => {
            let ids = ids.into_iter().map(|id| Py::new(py, MessageId(id))).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, ids)?.into_any().unbind()
        }
        Value::Message(message) => Py::new(py, Message::new(*message))?.into_any(),
        Value::Messages(messages) => {
            let messages =
                messages.into_iter().map(|m| Py::new(py, Message::new(m))).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, messages)?.into_any().unbind()
        }
        Value::Arrow(batch) => Py::new(py, ArrowBatch::new(batch))?.into_any(),
    })
}

fn receipt_to_python(py: Python<'_>, receipt: Receipt) -> PyResult<Py<PyAny>> {
    Ok(match receipt {
        Receipt::Id(id) => Py::new(py, MessageId(id))?.into_any(),
        Receipt::Reason(reason) => reason_code(py, reason)?,
        Receipt::Position(position) => Py::new(py, Position(position))?.into_any(),
    })
}

/// Ids together in one object, which a million of them would not fit into otherwise; others as a list.
fn receipts_to_python(py: Python<'_>, receipts: Vec<Receipt>) -> PyResult<Py<PyAny>> {
    if receipts.iter().any(|receipt| !matches!(receipt, Receipt::Id(_))) {
        let receipts = receipts.into_iter().map(|receipt| receipt_to_python(py, receipt));
        return Ok(PyList::new(py, receipts.collect::<PyResult<Vec<_>>>()?)?.into_any().unbind());
    }
    let ids = receipts.into_iter().filter_map(|receipt| match receipt {
        Receipt::Id(id) => Some(id),
        Receipt::Reason(_) | Receipt::Position(_) => None,
    });
    Ok(Py::new(py, MessageIds(ids.collect()))?.into_any())
}

/// Where the outcomes of a handle's operations go.
#[derive(Clone, Debug)]
pub(super) enum Door {
    /// To futures of a loop.
    Loop(Arc<Bridge>),
    /// To threads that wait.
    Blocking,
}

impl Door {
    /// A promise, and what the caller gets for it.
    pub(super) fn promise(&self, py: Python<'_>) -> PyResult<(Promise, Py<PyAny>)> {
        match self {
            Self::Loop(bridge) => {
                let (slot, future) = bridge.future_slot(py)?;
                Ok((Promise(Some(Target::Slot(Arc::clone(bridge), slot))), future))
            }
            Self::Blocking => {
                let cell = Arc::new(Cell::default());
                let waiter = Py::new(py, Waiter::new(Arc::clone(&cell)))?;
                Ok((Promise(Some(Target::Cell(cell))), waiter.into_any()))
            }
        }
    }

    /// What the caller gets for an outcome that is there already.
    pub(super) fn ready(&self, py: Python<'_>, outcome: Outcome) -> PyResult<Py<PyAny>> {
        match self {
            Self::Loop(bridge) => bridge.done_future(py, outcome),
            Self::Blocking => {
                let cell = Cell { outcome: Mutex::new(Some(outcome)), ..Cell::default() };
                Ok(Py::new(py, Waiter::new(Arc::new(cell)))?.into_any())
            }
        }
    }
}

#[derive(Debug)]
enum Target {
    Slot(Arc<Bridge>, usize),
    Cell(Arc<Cell>),
}

/// To be resolved once, from any thread. One that is dropped says that the operation was given up.
#[derive(Debug)]
pub(super) struct Promise(Option<Target>);

impl Promise {
    pub(super) fn resolve(mut self, outcome: Outcome) {
        self.send(outcome);
    }

    /// As [`Self::resolve`], at once where that is possible: nothing can be cancelled in between.
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

    /// Whether nobody waits any more. Must be asked on the loop's thread if there is a loop.
    pub(super) fn is_abandoned(&self, py: Option<Python<'_>>) -> bool {
        match (&self.0, py) {
            (Some(Target::Slot(bridge, slot)), Some(py)) => bridge.is_done(py, *slot),
            // The waiter is gone: a signal ended the wait, say.
            (Some(Target::Cell(cell)), _) => Arc::strong_count(cell) == 1,
            _ => false,
        }
    }

    fn send(&mut self, outcome: Outcome) {
        match self.0.take() {
            Some(Target::Slot(bridge, slot)) => bridge.complete(slot, outcome),
            Some(Target::Cell(cell)) => cell.set(outcome),
            None => {}
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if self.0.is_some() {
            self.send(Err(Error::new(ErrorKind::Cancelled, "the operation was given up before it ended")));
        }
    }
}

/// Where a blocked thread waits.
#[derive(Debug, Default)]
pub(super) struct Cell {
    outcome: Mutex<Option<Outcome>>,
    changed: Condvar,
    taken: AtomicBool,
}

impl Cell {
    pub(super) fn set(&self, outcome: Outcome) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.changed.notify_all();
    }
}

/// The result of an operation of the blocking twin.
#[pyclass(frozen, module = "penstock._engine")]
pub(super) struct Waiter {
    cell: Native<Arc<Cell>>,
}

impl Waiter {
    pub(super) fn new(cell: Arc<Cell>) -> Self {
        Self { cell: Native::new(cell) }
    }
}

#[pymethods]
impl Waiter {
    /// Waits for the result, at most `timeout` seconds; signals are handled meanwhile.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        // Short enough for Ctrl-C to feel immediate, long enough to cost nothing.
        const LOOK_UP: Duration = Duration::from_millis(50);
        let deadline =
            timeout.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
        let cell = py_result(py, self.cell.get())?;
        loop {
            if cell.taken.load(Ordering::Acquire) {
                let error = Error::new(ErrorKind::InvalidArgument, "the result has been taken already");
                return Err(raise(py, &error));
            }
            let outcome = py.detach(|| {
                let guard = cell.outcome.lock().unwrap_or_else(PoisonError::into_inner);
                let slice =
                    deadline.map_or(LOOK_UP, |at| LOOK_UP.min(at.saturating_duration_since(Instant::now())));
                let (mut guard, _) = cell
                    .changed
                    .wait_timeout_while(guard, slice, |outcome| outcome.is_none())
                    .unwrap_or_else(PoisonError::into_inner);
                guard.take()
            });
            cell.taken.store(outcome.is_some(), Ordering::Release);
            match outcome {
                Some(Ok(value)) => return to_python(py, value, &Door::Blocking),
                Some(Err(error)) => return Err(raise(py, &error)),
                None => py.check_signals()?,
            }
            if deadline.is_some_and(|at| at <= Instant::now()) {
                return Err(raise(py, &Error::new(ErrorKind::Timeout, "no result in time")));
            }
        }
    }

    /// Whether the result is there and has not been taken.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        let cell = py_result(py, self.cell.get())?;
        Ok(cell.outcome.lock().unwrap_or_else(PoisonError::into_inner).is_some())
    }
}
