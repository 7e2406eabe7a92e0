//! The producer class.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::client::pulsar as native;
use crate::error::{Error, ErrorKind, Result};
use crate::pulsar::Outgoing;
use crate::python::client::run;
use crate::python::convert::{Payload, py_result};
use crate::python::frame::FrameRows;
use crate::python::outbox::{Group, GroupKind, Outbox, Waiting};
use crate::python::promise::{Cell, Door, Value, Waiter};
use crate::python::runtime::{Native, engine};

/// A producer of one topic.
#[pyclass(frozen, module = "penstock._engine")]
pub(super) struct Producer {
    native: Native<native::Producer>,
    outbox: Arc<Outbox>,
    door: Door,
}

impl Producer {
    pub(super) fn new(producer: native::Producer, outbox: Arc<Outbox>, door: Door) -> Self {
        Self { native: Native::new(producer), outbox, door }
    }

    fn native(&self, py: Python<'_>) -> PyResult<&native::Producer> {
        py_result(py, self.native.get())
    }
}

/// What a message has beside its payload, borrowed from the arguments of a call.
struct Extras<'a> {
    key: Option<&'a str>,
    ordering_key: Option<&'a [u8]>,
    properties: Vec<(String, String)>,
    event_time: Option<u64>,
    sequence_id: Option<u64>,
    deliver_at: Option<i64>,
    null_value: bool,
}

impl Extras<'_> {
    fn send<T>(&self, payload: &[u8], send: impl FnOnce(&Outgoing<'_>) -> T) -> T {
        let properties: Vec<(&str, &str)> =
            self.properties.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        send(&Outgoing {
            payload,
            key: self.key,
            ordering_key: self.ordering_key,
            properties: &properties,
            event_time: self.event_time.unwrap_or_default(),
            sequence_id: self.sequence_id,
            deliver_at: self.deliver_at,
            null_value: self.null_value,
            ..Outgoing::default()
        })
    }
}

pub(super) fn pairs(properties: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<(String, String)>> {
    properties.map_or(Ok(Vec::new()), |properties| {
        properties.iter().map(|(name, value)| Ok((name.extract()?, value.extract()?))).collect()
    })
}

#[pymethods]
impl Producer {
    #[getter]
    fn topic(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.native(py)?.topic().to_owned())
    }

    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.native(py)?.name())
    }

    #[getter]
    fn last_sequence_id(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.native(py)?.last_sequence_id())
    }

    #[getter]
    fn pending(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.native(py)?.pending())
    }

    #[pyo3(signature = (payload, key=None, ordering_key=None, properties=None, event_time=None, sequence_id=None, deliver_at=None, null_value=false))]
    #[allow(clippy::too_many_arguments, reason = "the arguments of the Python method")]
    fn send(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        key: Option<&str>,
        ordering_key: Option<&[u8]>,
        properties: Option<&Bound<'_, PyDict>>,
        event_time: Option<u64>,
        sequence_id: Option<u64>,
        deliver_at: Option<i64>,
        null_value: bool,
    ) -> PyResult<Py<PyAny>> {
        let native = self.native(py)?;
        let payload = Payload::of(payload)?;
        let extras = Extras {
            key,
            ordering_key,
            properties: pairs(properties)?,
            event_time,
            sequence_id,
            deliver_at,
            null_value,
        };
        let (waiting, pending) = one_waiting(py, &self.door)?;
        let pushed = extras
            .send(payload.bytes(), |message| push_one(&self.outbox, waiting, || native.push(message, true)));
        py_result(py, pushed)?;
        Ok(pending)
    }

    #[pyo3(signature = (payload, key=None, ordering_key=None, properties=None, event_time=None, sequence_id=None, deliver_at=None, null_value=false))]
    #[allow(clippy::too_many_arguments, reason = "the arguments of the Python method")]
    fn send_nowait(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        key: Option<&str>,
        ordering_key: Option<&[u8]>,
        properties: Option<&Bound<'_, PyDict>>,
        event_time: Option<u64>,
        sequence_id: Option<u64>,
        deliver_at: Option<i64>,
        null_value: bool,
    ) -> PyResult<()> {
        let native = self.native(py)?;
        let payload = Payload::of(payload)?;
        let extras = Extras {
            key,
            ordering_key,
            properties: pairs(properties)?,
            event_time,
            sequence_id,
            deliver_at,
            null_value,
        };
        let pushed = extras.send(payload.bytes(), |message| {
            push_one(&self.outbox, Waiting::Nobody(1), || native.push(message, false))
        });
        py_result(py, pushed)?;
        Ok(())
    }

    #[pyo3(signature = (payloads, keys=None))]
    fn send_many(
        &self,
        py: Python<'_>,
        payloads: &Bound<'_, PyAny>,
        keys: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let native = self.native(py)?;
        let payloads: Vec<Bound<'_, PyAny>> = payloads.try_iter()?.collect::<PyResult<_>>()?;
        let payloads: Vec<Payload<'_>> = payloads.iter().map(Payload::of).collect::<PyResult<_>>()?;
        let keys: Option<Vec<Option<String>>> = match keys {
            None => None,
            Some(keys) => Some(keys.try_iter()?.map(|key| key?.extract()).collect::<PyResult<_>>()?),
        };
        if keys.as_ref().is_some_and(|keys| keys.len() != payloads.len()) {
            return Err(PyValueError::new_err("keys and payloads differ in number"));
        }
        let (promise, pending) = self.door.promise(py)?;
        let group = Group::new(promise, native.slots(), GroupKind::Many);
        let message = |i: usize| Outgoing {
            payload: payloads[i].bytes(),
            key: keys.as_ref().and_then(|keys| keys[i].as_deref()),
            ..Outgoing::default()
        };
        let (taken, result) = push_some(native, &self.outbox, &group, payloads.len(), message);
        match result {
            Err(error) if is_full(&error) => {
                // The rest is copied and follows as there is room.
                let mut rows = Rows::default();
                for (i, payload) in payloads.iter().enumerate().skip(taken) {
                    rows.push(payload.bytes(), keys.as_ref().and_then(|keys| keys[i].as_deref()));
                }
                let rest = push_rows(native.clone(), Arc::clone(&self.outbox), group, rows);
                py_result(py, engine(1))?.handle().spawn(rest);
            }
            result => group.seal(payloads.len() - taken, result.err()),
        }
        Ok(pending)
    }

    fn send_rows(&self, py: Python<'_>, rows: &FrameRows) -> PyResult<Py<PyAny>> {
        let native = self.native(py)?.clone();
        let rows = py_result(py, rows.take())?;
        let (promise, pending) = self.door.promise(py)?;
        let group = Group::new(promise, native.slots(), GroupKind::Many);
        py_result(py, engine(1))?.handle().spawn(push_rows(native, Arc::clone(&self.outbox), group, rows));
        Ok(pending)
    }

    fn flush(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let native = self.native(py)?;
        let (promise, pending) = self.door.promise(py)?;
        let group = self.outbox.flush(promise, native.slots());
        native.flush();
        group();
        Ok(pending)
    }

    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let native = self.native(py)?.clone();
        run(py, &self.door, 1, async move { native.close().await.map(|()| Value::None) })
    }
}

/// Who waits for one message, and what the caller gets for it.
pub(super) fn one_waiting(py: Python<'_>, door: &Door) -> PyResult<(Waiting, Py<PyAny>)> {
    Ok(match door {
        Door::Loop(bridge) => {
            let future = bridge.future(py)?;
            (Waiting::Future(future.clone_ref(py)), future)
        }
        Door::Blocking => {
            let cell = Arc::new(Cell::default());
            (Waiting::Thread(Arc::clone(&cell)), Py::new(py, Waiter::new(cell))?.into_any())
        }
    })
}

pub(super) fn is_full(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::QueueFull | ErrorKind::MemoryLimit)
}

/// A producer of any protocol, as far as rows and queues are concerned.
pub(super) trait Sink: Clone + Send + Sync + 'static {
    /// Pushes a row; gives the slot that will tell its outcome.
    fn push_row(&self, row: &RowRef<'_>) -> Result<usize>;

    /// Sends what is gathered without waiting for more.
    fn hurry(&self) {}
}

impl Sink for native::Producer {
    fn push_row(&self, row: &RowRef<'_>) -> Result<usize> {
        let properties: Vec<(&str, &str)> =
            row.properties.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let message = Outgoing {
            payload: row.payload,
            key: row.key,
            properties: &properties,
            event_time: row.event_time,
            null_value: row.null_value,
            ..Outgoing::default()
        };
        self.push(&message, false)
    }

    fn hurry(&self) {
        self.flush();
    }
}

/// One row of [`Rows`].
#[derive(Debug)]
pub(super) struct RowRef<'a> {
    pub(super) payload: &'a [u8],
    pub(super) key: Option<&'a str>,
    pub(super) properties: &'a [(String, String)],
    pub(super) event_time: u64,
    pub(super) null_value: bool,
}

/// Pushes a message and notes who waits for it. The lock ends here: an exception must not be made under it,
/// for that runs Python, and another thread may hold the interpreter while it waits for the lock.
pub(super) fn push_one(
    outbox: &Outbox,
    waiting: Waiting,
    push: impl FnOnce() -> Result<usize>,
) -> Result<()> {
    let mut queues = outbox.queues();
    let slot = push()?;
    queues.wait(slot, waiting);
    Ok(())
}

/// Pushes messages of a group until one is refused; gives how many were taken.
fn push_some<'a>(
    native: &native::Producer,
    outbox: &Outbox,
    group: &Arc<Group>,
    count: usize,
    message: impl Fn(usize) -> Outgoing<'a>,
) -> (usize, Result<()>) {
    let mut queues = outbox.queues();
    let mut taken = 0;
    let result = native.push_many(&mut (0..count).map(message), &mut |slot| {
        queues.wait_group(slot, group);
        taken += 1;
    });
    (taken, result)
}

/// Messages in one buffer, so that a million rows are not a million allocations.
#[derive(Debug, Default)]
pub(super) struct Rows {
    bytes: Vec<u8>,
    text: String,
    rows: Vec<Row>,
    /// Names and values of all rows.
    properties: Vec<(String, String)>,
}

#[derive(Debug)]
struct Row {
    payload_end: usize,
    /// End of the key in `text`; `None` is no key.
    key_end: Option<usize>,
    properties_end: usize,
    event_time: u64,
    null_value: bool,
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn payload_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn push(&mut self, payload: &[u8], key: Option<&str>) {
        self.push_row(Some(payload), key, 0, &[]);
    }

    /// A row; no payload is a tombstone.
    pub(super) fn push_row(
        &mut self,
        payload: Option<&[u8]>,
        key: Option<&str>,
        event_time: u64,
        properties: &[(String, String)],
    ) {
        self.bytes.extend_from_slice(payload.unwrap_or_default());
        self.text.push_str(key.unwrap_or_default());
        self.properties.extend_from_slice(properties);
        self.rows.push(Row {
            payload_end: self.bytes.len(),
            key_end: key.map(|_| self.text.len()),
            properties_end: self.properties.len(),
            event_time,
            null_value: payload.is_none(),
        });
    }
}

/// Pushes all rows as there is room, then seals the group.
pub(super) async fn push_rows(sink: impl Sink, outbox: Arc<Outbox>, group: Arc<Group>, rows: Rows) {
    /// Pushed under one lock before others get a turn.
    const CHUNK: usize = 1000;
    let mut next = 0;
    let (mut payload_at, mut key_at, mut properties_at) = (0, 0, 0);
    while next < rows.rows.len() {
        let room = outbox.room.notified();
        tokio::pin!(room);
        // Registered before the push, so that room made in between is noticed.
        room.as_mut().enable();
        let mut result = Ok(());
        {
            let mut queues = outbox.queues();
            for row in rows.rows[next..].iter().take(CHUNK) {
                let message = RowRef {
                    payload: &rows.bytes[payload_at..row.payload_end],
                    key: row.key_end.map(|end| &rows.text[key_at..end]),
                    properties: &rows.properties[properties_at..row.properties_end],
                    event_time: row.event_time,
                    null_value: row.null_value,
                };
                match sink.push_row(&message) {
                    Ok(slot) => queues.wait_group(slot, &group),
                    Err(error) => {
                        result = Err(error);
                        break;
                    }
                }
                next += 1;
                payload_at = row.payload_end;
                key_at = row.key_end.unwrap_or(key_at);
                properties_at = row.properties_end;
            }
        }
        match result {
            Ok(()) => tokio::task::yield_now().await,
            Err(error) if is_full(&error) => room.await,
            Err(error) => return group.seal(rows.rows.len() - next, Some(error)),
        }
    }
    sink.hurry();
    group.seal(0, None);
}
