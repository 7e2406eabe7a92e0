//! The producer class of Pulsar.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::client::pulsar as native;
use crate::error::Result;
use crate::pulsar::Outgoing;
use crate::python::convert::{EventTime, Payload};
use crate::python::frame::FrameRows;
use crate::python::outbox::{Outbox, Waiting};
use crate::python::promise::Door;
use crate::python::sender::{RowRef, Sender, Sink, borrowed, pairs};

/// A producer of one topic.
#[pyclass(frozen, module = "penstock._engine")]
pub(super) struct Producer(Sender<native::Producer>);

impl Producer {
    pub(super) fn new(producer: native::Producer, outbox: Arc<Outbox>, door: Door) -> Self {
        Self(Sender::new(producer, outbox, door))
    }

    fn push(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        extras: Extras<'_, '_>,
        waiting: Waiting,
    ) -> PyResult<()> {
        let payload = Payload::of(payload)?;
        let properties = pairs(extras.properties)?;
        let message = Outgoing {
            payload: payload.bytes(),
            key: extras.key,
            ordering_key: extras.ordering_key,
            properties: &borrowed(&properties),
            event_time: extras.event_time.map_or(0, |time| time.0),
            sequence_id: extras.sequence_id,
            deliver_at: extras.deliver_at,
            null_value: extras.null_value,
            ..Outgoing::default()
        };
        self.0.push(py, waiting, |native, park| native.push(&message, park))
    }
}

/// What a message has beside its payload.
struct Extras<'a, 'py> {
    key: Option<&'a str>,
    ordering_key: Option<&'a [u8]>,
    properties: Option<&'a Bound<'py, PyDict>>,
    event_time: Option<EventTime>,
    sequence_id: Option<u64>,
    deliver_at: Option<i64>,
    null_value: bool,
}

impl Sink for native::Producer {
    fn slots(&self) -> usize {
        self.slots()
    }

    fn push_keyed<'a>(
        &self,
        messages: impl Iterator<Item = (&'a [u8], Option<&'a str>)>,
        each: &mut dyn FnMut(usize),
    ) -> Result<()> {
        let message = |(payload, key)| Outgoing { payload, key, ..Outgoing::default() };
        self.push_many(&mut messages.map(message), each)
    }

    fn push_row(&self, row: &RowRef<'_>) -> Result<usize> {
        let message = Outgoing {
            payload: row.payload,
            key: row.key,
            properties: &borrowed(row.properties),
            event_time: row.event_time,
            null_value: row.null_value,
            ..Outgoing::default()
        };
        self.push(&message, false)
    }

    fn hurry(&self) {
        self.flush();
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

#[pymethods]
impl Producer {
    #[getter]
    fn topic(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.0.sink(py)?.topic().to_owned())
    }

    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.0.sink(py)?.name())
    }

    #[getter]
    fn last_sequence_id(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.0.sink(py)?.last_sequence_id())
    }

    #[getter]
    fn pending(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.0.sink(py)?.pending())
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
        event_time: Option<EventTime>,
        sequence_id: Option<u64>,
        deliver_at: Option<i64>,
        null_value: bool,
    ) -> PyResult<Py<PyAny>> {
        let extras =
            Extras { key, ordering_key, properties, event_time, sequence_id, deliver_at, null_value };
        let (waiting, pending) = self.0.waiting(py)?;
        self.push(py, payload, extras, waiting)?;
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
        event_time: Option<EventTime>,
        sequence_id: Option<u64>,
        deliver_at: Option<i64>,
        null_value: bool,
    ) -> PyResult<()> {
        let extras =
            Extras { key, ordering_key, properties, event_time, sequence_id, deliver_at, null_value };
        self.push(py, payload, extras, Waiting::Nobody(1))
    }

    #[pyo3(signature = (payloads, keys=None))]
    fn send_many(
        &self,
        py: Python<'_>,
        payloads: &Bound<'_, PyAny>,
        keys: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        self.0.send_many(py, payloads, keys, "keys")
    }

    fn send_rows(&self, py: Python<'_>, rows: &FrameRows) -> PyResult<Py<PyAny>> {
        self.0.send_rows(py, rows)
    }

    fn flush(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.flush(py)
    }

    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.close(py)
    }
}
