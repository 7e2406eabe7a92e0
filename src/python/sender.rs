//! What the producers of all protocols have in common: messages go in, alone or as a group, and whoever waits for
//! them is noted.

use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::error::{Error, ErrorKind, Result};
use crate::python::client::run;
use crate::python::convert::{Payload, py_result};
use crate::python::frame::FrameRows;
use crate::python::outbox::{Group, GroupKind, Outbox, Waiting};
use crate::python::promise::{Cell, Door, Value, Waiter};
use crate::python::runtime::{Native, engine};

/// The engine's producer of a protocol.
pub(super) trait Sink: Clone + Send + Sync + 'static {
    /// Number of slots: within one, outcomes come in the order of the pushes.
    fn slots(&self) -> usize;

    /// Pushes payloads with their keys until one is refused, telling `each` the slot of every one that was taken.
    fn push_keyed<'a>(
        &self,
        messages: impl Iterator<Item = (&'a [u8], Option<&'a str>)>,
        each: &mut dyn FnMut(usize),
    ) -> Result<()>;

    /// Pushes a row; gives the slot that will tell its outcome.
    fn push_row(&self, row: &RowRef<'_>) -> Result<usize>;

    /// Sends what is gathered without waiting for more.
    fn hurry(&self) {}

    /// Waits for what was pushed, and ends.
    fn close(&self) -> impl Future<Output = Result<()>> + Send;
}

/// A producer, and who waits for its messages.
pub(super) struct Sender<S> {
    sink: Native<S>,
    outbox: Arc<Outbox>,
    door: Door,
}

impl<S: Sink> Sender<S> {
    pub(super) fn new(sink: S, outbox: Arc<Outbox>, door: Door) -> Self {
        Self { sink: Native::new(sink), outbox, door }
    }

    pub(super) fn sink(&self, py: Python<'_>) -> PyResult<&S> {
        py_result(py, self.sink.get())
    }

    /// Who waits for one message, and what the caller gets for it.
    pub(super) fn waiting(&self, py: Python<'_>) -> PyResult<(Waiting, Py<PyAny>)> {
        Ok(match &self.door {
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

    /// Pushes a message, which may be parked if somebody waits for it. The lock ends before an exception is made:
    /// that runs Python, and another thread may hold the interpreter while it waits for the lock.
    pub(super) fn push(
        &self,
        py: Python<'_>,
        waiting: Waiting,
        push: impl FnOnce(&S, bool) -> Result<usize>,
    ) -> PyResult<()> {
        let sink = self.sink(py)?;
        let park = !matches!(waiting, Waiting::Nobody(_));
        let pushed = {
            let mut queues = self.outbox.queues();
            push(sink, park).map(|slot| queues.wait(slot, waiting))
        };
        py_result(py, pushed)
    }

    /// Sends payloads as one group. `what` is what their `keys` are called.
    pub(super) fn send_many(
        &self,
        py: Python<'_>,
        payloads: &Bound<'_, PyAny>,
        keys: Option<&Bound<'_, PyAny>>,
        what: &str,
    ) -> PyResult<Py<PyAny>> {
        let sink = self.sink(py)?;
        let payloads: Vec<Bound<'_, PyAny>> = payloads.try_iter()?.collect::<PyResult<_>>()?;
        let payloads: Vec<Payload<'_>> = payloads.iter().map(Payload::of).collect::<PyResult<_>>()?;
        let keys = keys.map(|keys| texts(keys, what)).transpose()?;
        if keys.as_ref().is_some_and(|keys| keys.len() != payloads.len()) {
            return Err(PyValueError::new_err(format!("{what} and payloads differ in number")));
        }
        let key = |i: usize| keys.as_ref().and_then(|keys| keys[i].as_deref());
        let messages = payloads.iter().enumerate().map(|(i, payload)| (payload.bytes(), key(i)));
        let (group, pending) = self.group(py, sink)?;
        let mut taken = 0;
        let result = {
            let mut queues = self.outbox.queues();
            sink.push_keyed(messages.clone(), &mut |slot| {
                queues.wait_group(slot, &group);
                taken += 1;
            })
        };
        match result {
            Err(error) if is_full(&error) => {
                // The rest is copied and follows as there is room.
                let mut rows = Rows::default();
                messages.skip(taken).for_each(|(payload, key)| rows.push(payload, key));
                self.spawn_rows(py, sink, group, rows)?;
            }
            result => group.seal(payloads.len() - taken, result.err()),
        }
        Ok(pending)
    }

    /// Sends the rows of a frame as one group.
    pub(super) fn send_rows(&self, py: Python<'_>, rows: &FrameRows) -> PyResult<Py<PyAny>> {
        let sink = self.sink(py)?;
        let rows = py_result(py, rows.take())?;
        let (group, pending) = self.group(py, sink)?;
        self.spawn_rows(py, sink, group, rows)?;
        Ok(pending)
    }

    /// Waits for the outcome of everything before.
    pub(super) fn flush(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let sink = self.sink(py)?;
        let (promise, pending) = self.door.promise(py)?;
        let told = self.outbox.flush(promise, sink.slots());
        sink.hurry();
        told();
        Ok(pending)
    }

    pub(super) fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let sink = self.sink(py)?.clone();
        run(py, &self.door, 1, async move { sink.close().await.map(|()| Value::None) })
    }

    fn group(&self, py: Python<'_>, sink: &S) -> PyResult<(Arc<Group>, Py<PyAny>)> {
        let (promise, pending) = self.door.promise(py)?;
        Ok((Group::new(promise, sink.slots(), GroupKind::Many), pending))
    }

    fn spawn_rows(&self, py: Python<'_>, sink: &S, group: Arc<Group>, rows: Rows) -> PyResult<()> {
        let pushing = push_rows(sink.clone(), Arc::clone(&self.outbox), group, rows);
        py_result(py, engine(1))?.handle().spawn(pushing);
        Ok(())
    }
}

/// Texts by the message; letters of one text are none.
fn texts(texts: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<Option<String>>> {
    if texts.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(format!("{what} are one for each payload, not a str")));
    }
    texts.try_iter()?.map(|text| text?.extract()).collect()
}

/// A dictionary of texts.
pub(super) fn pairs(properties: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<(String, String)>> {
    properties.map_or(Ok(Vec::new()), |properties| {
        properties.iter().map(|(name, value)| Ok((name.extract()?, value.extract()?))).collect()
    })
}

pub(super) fn borrowed(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
    pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

fn is_full(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::QueueFull | ErrorKind::MemoryLimit)
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
async fn push_rows(sink: impl Sink, outbox: Arc<Outbox>, group: Arc<Group>, rows: Rows) {
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
