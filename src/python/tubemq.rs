//! What only TubeMQ has: its producer, its options, positions.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyDict, PyTuple};

use crate::client::tubemq::options::{ClientOptions, ConsumerOptions, ProducerOptions};
use crate::client::tubemq::{Consumer, Outgoing, Producer};
use crate::error::{Error, ErrorKind, Result};
use crate::python::convert::{EventTime, Fields, Payload, raise, secret, tls};
use crate::python::frame::FrameRows;
use crate::python::outbox::{Outbox, Waiting};
use crate::python::promise::Door;
use crate::python::sender::{RowRef, Sender, Sink, borrowed, pairs};
use crate::tubemq::Partition;
use crate::tubemq::balance::Balance;
use crate::tubemq::consumer::{Message, Start};
use crate::tubemq::producer::Position as At;

/// Where a message is.
#[pyclass(frozen, module = "penstock._engine")]
pub(super) struct Position(pub(super) At);

impl Position {
    /// Of a message that was received, which has only its pack's offset.
    pub(super) fn of_message(message: &Message) -> Self {
        let Partition { broker, id } = message.pack.place.partition;
        let (offset, message_id) = (message.pack.offset, message.message_id);
        Self(At { broker, partition: id, offset, time: -1, message_id })
    }

    pub(super) fn of(&self) -> Partition {
        Partition { broker: self.0.broker, id: self.0.partition }
    }

    fn order(&self) -> (u32, u32, i64) {
        (self.0.broker, self.0.partition, self.0.offset)
    }
}

#[pymethods]
impl Position {
    #[new]
    fn new(broker_id: u32, partition: u32, offset: i64) -> Self {
        Self(At { broker: broker_id, partition, offset, time: -1, message_id: -1 })
    }

    #[staticmethod]
    fn parse(py: Python<'_>, text: &str) -> PyResult<Self> {
        let mut fields = text.split(':');
        let mut next = || fields.next();
        let parsed = (|| {
            let position = Self::new(next()?.parse().ok()?, next()?.parse().ok()?, next()?.parse().ok()?);
            next().is_none().then_some(position)
        })();
        parsed.ok_or_else(|| {
            let text = format!("{text:?} is not a position: broker:partition:offset is one");
            raise(py, &Error::new(ErrorKind::InvalidArgument, text))
        })
    }

    #[getter]
    fn broker_id(&self) -> u32 {
        self.0.broker
    }

    #[getter]
    fn partition(&self) -> u32 {
        self.0.partition
    }

    #[getter]
    fn offset(&self) -> i64 {
        self.0.offset
    }

    /// When the broker took it, in milliseconds since 1970.
    #[getter]
    fn time(&self) -> Option<i64> {
        (self.0.time >= 0).then_some(self.0.time)
    }

    #[getter]
    fn message_id(&self) -> Option<i64> {
        (self.0.message_id >= 0).then_some(self.0.message_id)
    }

    fn __str__(&self) -> String {
        let (broker, partition, offset) = self.order();
        format!("{broker}:{partition}:{offset}")
    }

    fn __repr__(&self) -> String {
        format!("Position({})", self.__str__())
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.order().hash(&mut hasher);
        hasher.finish()
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        match other.cast::<Self>() {
            Ok(other) => op.matches(self.order().cmp(&other.get().order())).into_py_any(py),
            Err(_) => Ok(py.NotImplemented()),
        }
    }

    /// Time and message id are not part of where a message is, and stay behind.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let arguments = slf.get().order().into_pyobject(slf.py())?;
        PyTuple::new(slf.py(), [slf.get_type().into_any(), arguments.into_any()])
    }
}

/// Pairs of broker and partition.
pub(super) fn partitions(pairs: Vec<(u32, u32)>) -> Vec<Partition> {
    pairs.into_iter().map(|(broker, id)| Partition { broker, id }).collect()
}

/// What is known of each partition of a consumer.
pub(super) fn partition_states<'py>(
    py: Python<'py>,
    consumer: &Consumer,
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let state = |state: crate::client::tubemq::PartitionState| {
        let dict = PyDict::new(py);
        dict.set_item("topic", &*state.topic)?;
        dict.set_item("broker_id", state.partition.broker)?;
        dict.set_item("partition", state.partition.id)?;
        dict.set_item("state", state.phase.name())?;
        dict.set_item("offset", state.offset)?;
        dict.set_item("max_offset", state.max_offset)?;
        dict.set_item("lag", state.lag)?;
        dict.set_item("lag_bytes", state.lag_bytes)?;
        Ok(dict)
    };
    consumer.partitions().into_iter().map(state).collect()
}

/// Options of a client.
pub(super) fn client_options(url: String, options: &Bound<'_, PyDict>) -> PyResult<ClientOptions> {
    let fields = Fields(options);
    let mut to = ClientOptions { url, ..ClientOptions::default() };
    for (name, into) in [
        ("connect_timeout", &mut to.connect_timeout),
        ("operation_timeout", &mut to.operation_timeout),
        ("request_timeout", &mut to.request_timeout),
        ("heartbeat_interval", &mut to.heartbeat_interval),
        ("max_backoff", &mut to.max_backoff),
    ] {
        fields.seconds(name, into)?;
    }
    fields.size("memory_limit", &mut to.memory_limit)?;
    fields.size("receive_buffer", &mut to.receive_buffer)?;
    to.username = fields.text("username")?;
    to.password = secret(&fields, "password")?;
    to.tls = tls(&fields)?;
    Ok(to)
}

/// Options of a producer.
pub(super) fn producer_options(options: &Bound<'_, PyDict>) -> PyResult<ProducerOptions> {
    let fields = Fields(options);
    let mut to = ProducerOptions { message_type: fields.text("message_type")?, ..ProducerOptions::default() };
    fields.size("max_pending", &mut to.max_pending)?;
    let mut timeout = to.send_timeout.unwrap_or_default();
    fields.seconds("send_timeout", &mut timeout)?;
    to.send_timeout = (!timeout.is_zero()).then_some(timeout);
    Ok(to)
}

/// Options of a consumer.
pub(super) fn consumer_options(topics: &[String], options: &Bound<'_, PyDict>) -> PyResult<ConsumerOptions> {
    let py = options.py();
    let fields = Fields(options);
    let mut to = ConsumerOptions::default();
    if let Some(position) = fields.raw("position")? {
        if let Ok(positions) = position.extract::<Vec<Bound<'_, Position>>>() {
            to.offsets = positions.iter().map(|at| (at.get().of(), at.get().0.offset)).collect();
        } else {
            let words = [("latest", Start::Latest), ("first", Start::First), ("max", Start::Max)];
            fields.word("position", &words, &mut to.start)?;
        }
    }
    if let Some(filters) = fields.raw("filters")? {
        to.filters = match filters.extract::<BTreeMap<String, BTreeSet<String>>>() {
            Ok(by_topic) => by_topic,
            Err(_) => {
                let types: BTreeSet<String> = filters.extract()?;
                topics.iter().map(|topic| (topic.clone(), types.clone())).collect()
            }
        };
    }
    let balances = [("client", Balance::Client(None)), ("server", Balance::Server)];
    fields.word("balance", &balances, &mut to.balance)?;
    let number = |name: &str| fields.raw(name)?.map(|value| value.extract::<u32>()).transpose();
    match (number("source_count")?, number("node_id")?) {
        (None, None) => {}
        (Some(count), Some(node)) if node < count && to.balance != Balance::Server => {
            to.balance = Balance::Client(Some((count, node)));
        }
        _ => {
            let text = "source_count and node_id belong together, node_id is below source_count, and both \
                        are of client balance";
            return Err(raise(py, &Error::new(ErrorKind::InvalidArgument, text)));
        }
    }
    fields.flag("auto_ack", &mut to.auto_ack)?;
    fields.seconds("nack_delay", &mut to.nack_delay)?;
    fields.seconds("poll_interval", &mut to.poll_interval)?;
    Ok(to)
}

/// A producer of one topic.
#[pyclass(frozen, module = "penstock._engine")]
pub(super) struct TubeProducer(Sender<Producer>);

impl TubeProducer {
    pub(super) fn new(producer: Producer, outbox: Arc<Outbox>, door: Door) -> Self {
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
            message_type: extras.message_type,
            time: extras.event_time.map(|time| time.0),
            properties: &borrowed(&properties),
        };
        self.0.push(py, waiting, |native, park| native.push(&message, park))
    }
}

/// What a message has beside its payload.
struct Extras<'a, 'py> {
    key: Option<&'a str>,
    properties: Option<&'a Bound<'py, PyDict>>,
    message_type: Option<&'a str>,
    event_time: Option<EventTime>,
}

impl Sink for Producer {
    fn slots(&self) -> usize {
        self.slots()
    }

    fn push_keyed<'a>(
        &self,
        messages: impl Iterator<Item = (&'a [u8], Option<&'a str>)>,
        each: &mut dyn FnMut(usize),
    ) -> Result<()> {
        let message = |(payload, key)| Outgoing { payload, key, ..Outgoing::default() };
        self.push_many(&mut messages.map(message), false, each)
    }

    fn push_row(&self, row: &RowRef<'_>) -> Result<usize> {
        let message = Outgoing {
            payload: row.payload,
            key: row.key,
            message_type: None,
            time: (row.event_time != 0).then_some(row.event_time),
            properties: &borrowed(row.properties),
        };
        self.push(&message, false)
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

#[pymethods]
impl TubeProducer {
    #[getter]
    fn topic(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.0.sink(py)?.topic().to_owned())
    }

    #[getter]
    fn pending(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.0.sink(py)?.pending())
    }

    #[pyo3(signature = (payload, key=None, properties=None, message_type=None, event_time=None))]
    fn send(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        key: Option<&str>,
        properties: Option<&Bound<'_, PyDict>>,
        message_type: Option<&str>,
        event_time: Option<EventTime>,
    ) -> PyResult<Py<PyAny>> {
        let extras = Extras { key, properties, message_type, event_time };
        let (waiting, pending) = self.0.waiting(py)?;
        self.push(py, payload, extras, waiting)?;
        Ok(pending)
    }

    #[pyo3(signature = (payload, key=None, properties=None, message_type=None, event_time=None))]
    fn send_nowait(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        key: Option<&str>,
        properties: Option<&Bound<'_, PyDict>>,
        message_type: Option<&str>,
        event_time: Option<EventTime>,
    ) -> PyResult<()> {
        let extras = Extras { key, properties, message_type, event_time };
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
