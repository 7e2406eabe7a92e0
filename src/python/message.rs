//! Messages and their ids.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyBytes, PyDict, PyList, PySlice, PyTuple};

use crate::client::handle::{self, Target};
use crate::error::{Error, ErrorKind};
use crate::mqtt::packet::Publish;
use crate::pulsar as core;
use crate::python::convert::raise;
use crate::python::tubemq::Position;
use crate::tubemq::consumer::Message as TubeMessage;

/// A message that was received.
#[pyclass(frozen, module = "penstock._engine")]
pub(super) struct Message(handle::Message);

impl Message {
    pub(super) fn new(message: handle::Message) -> Self {
        Self(message)
    }

    pub(super) fn native(&self) -> &handle::Message {
        &self.0
    }

    fn pulsar(&self) -> Option<&core::Message> {
        match &self.0 {
            handle::Message::Pulsar(message) => Some(message),
            handle::Message::Mqtt(_) | handle::Message::TubeMq(_) => None,
        }
    }

    /// For what every message of Pulsar has and none of others.
    fn only_pulsar(&self, py: Python<'_>, what: &str) -> PyResult<&core::Message> {
        let protocol = if self.tube().is_some() { "TubeMQ" } else { "MQTT" };
        self.pulsar().ok_or_else(|| {
            raise(py, &Error::new(ErrorKind::Unsupported, format!("a message of {protocol} has no {what}")))
        })
    }

    fn tube(&self) -> Option<&TubeMessage> {
        match &self.0 {
            handle::Message::TubeMq(message) => Some(message),
            handle::Message::Pulsar(_) | handle::Message::Mqtt(_) => None,
        }
    }

    fn mqtt(&self) -> Option<&Publish> {
        match &self.0 {
            handle::Message::Mqtt(message) => Some(message.publish()),
            handle::Message::Pulsar(_) | handle::Message::TubeMq(_) => None,
        }
    }
}

#[pymethods]
impl Message {
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        match &self.0 {
            handle::Message::Pulsar(message) => PyBytes::new(py, &message.payload),
            handle::Message::Mqtt(message) => PyBytes::new(py, &message.publish().payload),
            handle::Message::TubeMq(message) => PyBytes::new(py, &message.payload),
        }
    }

    #[getter]
    fn key(&self) -> Option<Cow<'_, str>> {
        match &self.0 {
            handle::Message::Pulsar(message) => message.key.as_deref().map(Cow::Borrowed),
            handle::Message::Mqtt(_) => None,
            handle::Message::TubeMq(message) => message.attributes.key(),
        }
    }

    #[getter]
    fn ordering_key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.pulsar()?.ordering_key.as_ref().map(|key| PyBytes::new(py, key))
    }

    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        match &self.0 {
            handle::Message::Pulsar(message) => {
                for (name, value) in &message.properties {
                    dict.set_item(&**name, &**value)?;
                }
            }
            handle::Message::Mqtt(message) => {
                for (name, value) in message.publish().properties.user() {
                    dict.set_item(&**name, &**value)?;
                }
            }
            handle::Message::TubeMq(message) => {
                for (name, value) in message.attributes.properties() {
                    dict.set_item(name, value)?;
                }
            }
        }
        Ok(dict)
    }

    /// User properties of MQTT may repeat a name.
    #[getter]
    fn user_properties(&self) -> Vec<(&str, &str)> {
        let pairs = self.mqtt().map(|publish| publish.properties.user().map(|(n, v)| (&**n, &**v)).collect());
        pairs.unwrap_or_default()
    }

    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.tube() {
            Some(message) => Position::of_message(message).into_py_any(py),
            None => MessageId(self.only_pulsar(py, "id")?.id).into_py_any(py),
        }
    }

    #[getter]
    fn message_type(&self) -> Option<&str> {
        self.tube()?.attributes.message_type()
    }

    #[getter]
    fn broker_id(&self) -> Option<u32> {
        Some(self.tube()?.pack.place.partition.broker)
    }

    #[getter]
    fn partition(&self) -> Option<i64> {
        match &self.0 {
            handle::Message::Pulsar(message) => Some(message.id.partition.into()),
            handle::Message::Mqtt(_) => None,
            handle::Message::TubeMq(message) => Some(message.pack.place.partition.id.into()),
        }
    }

    #[getter]
    fn offset(&self) -> Option<i64> {
        Some(self.tube()?.pack.offset)
    }

    #[getter]
    fn message_id(&self) -> Option<i64> {
        Some(self.tube()?.message_id)
    }

    #[getter]
    fn topic(&self) -> &str {
        match &self.0 {
            handle::Message::Pulsar(message) => &message.entry.topic,
            handle::Message::Mqtt(message) => &message.publish().topic,
            handle::Message::TubeMq(message) => &message.pack.place.topic,
        }
    }

    #[getter]
    fn publish_time(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.only_pulsar(py, "publish time")?.entry.publish_time)
    }

    #[getter]
    fn event_time(&self) -> Option<u64> {
        match self.tube() {
            Some(message) => message.attributes.time(),
            None => self.pulsar().map(|message| message.event_time).filter(|time| *time != 0),
        }
    }

    #[getter]
    fn broker_time(&self) -> Option<u64> {
        self.pulsar()?.entry.broker_timestamp
    }

    #[getter]
    fn received_time(&self) -> Option<u64> {
        match &self.0 {
            handle::Message::Mqtt(message) => Some(message.received_ms()),
            handle::Message::Pulsar(_) | handle::Message::TubeMq(_) => None,
        }
    }

    #[getter]
    fn redelivery_count(&self) -> u32 {
        match &self.0 {
            handle::Message::Pulsar(message) => message.entry.redelivery_count,
            handle::Message::Mqtt(message) => u32::from(message.publish().dup),
            handle::Message::TubeMq(message) => message.pack.redelivered,
        }
    }

    #[getter]
    fn sequence_id(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.only_pulsar(py, "sequence id")?.sequence_id)
    }

    #[getter]
    fn producer_name(&self, py: Python<'_>) -> PyResult<&str> {
        Ok(&self.only_pulsar(py, "producer name")?.entry.producer_name)
    }

    #[getter]
    fn is_null(&self) -> bool {
        self.pulsar().is_some_and(|message| message.null_value)
    }

    #[getter]
    fn index(&self) -> Option<u64> {
        self.pulsar()?.index
    }

    #[getter]
    fn schema_version<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.pulsar()?.entry.schema_version.as_ref().map(|version| PyBytes::new(py, version))
    }

    #[getter]
    fn qos(&self) -> Option<u8> {
        self.mqtt().map(|publish| publish.qos as u8)
    }

    #[getter]
    fn packet_id(&self) -> Option<u16> {
        self.mqtt()?.packet_id.map(|id| id.get())
    }

    #[getter]
    fn retain(&self) -> bool {
        self.mqtt().is_some_and(|publish| publish.retain)
    }

    #[getter]
    fn dup(&self) -> bool {
        self.mqtt().is_some_and(|publish| publish.dup)
    }

    #[getter]
    fn content_type(&self) -> Option<&str> {
        self.mqtt()?.properties.content_type().map(|text| &**text)
    }

    #[getter]
    fn response_topic(&self) -> Option<&str> {
        self.mqtt()?.properties.response_topic().map(|text| &**text)
    }

    #[getter]
    fn correlation_data<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.mqtt()?.properties.correlation_data().map(|data| PyBytes::new(py, data))
    }

    #[getter]
    fn is_text(&self) -> bool {
        self.mqtt().is_some_and(|publish| publish.properties.payload_format_indicator() == Some(&true))
    }

    #[getter]
    fn message_expiry(&self) -> Option<u32> {
        self.mqtt()?.properties.message_expiry_interval().copied()
    }

    #[getter]
    fn subscription_ids(&self) -> Vec<u32> {
        let ids = self.mqtt().map(|publish| publish.properties.subscription_identifiers().collect());
        ids.unwrap_or_default()
    }

    fn __repr__(&self) -> String {
        match &self.0 {
            handle::Message::Pulsar(message) => {
                let (id, topic, size) = (message.id, &message.entry.topic, message.payload.len());
                format!("Message(id={id}, topic={topic:?}, {size} bytes)")
            }
            handle::Message::Mqtt(message) => {
                let publish = message.publish();
                let (topic, qos, size) = (&*publish.topic, publish.qos as u8, publish.payload.len());
                format!("Message(topic={topic:?}, qos={qos}, {size} bytes)")
            }
            handle::Message::TubeMq(message) => {
                let (place, size) = (&message.pack.place, message.payload.len());
                let (topic, broker, id) = (&place.topic, place.partition.broker, place.partition.id);
                format!("Message(topic={topic:?}, partition={broker}:{id}, {size} bytes)")
            }
        }
    }
}

/// The position of a message.
#[pyclass(frozen, module = "penstock._engine")]
pub(super) struct MessageId(pub(super) core::MessageId);

#[pymethods]
impl MessageId {
    #[classattr]
    #[pyo3(name = "earliest")]
    const EARLIEST: MessageId = MessageId(core::MessageId::EARLIEST);

    #[classattr]
    #[pyo3(name = "latest")]
    const LATEST: MessageId = MessageId(core::MessageId::LATEST);

    #[staticmethod]
    fn parse(py: Python<'_>, text: &str) -> PyResult<Self> {
        text.parse().map(Self).map_err(|error| raise(py, &error))
    }

    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        core::MessageId::from_bytes(data).map(Self).map_err(|error| raise(py, &error))
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    #[getter]
    fn ledger(&self) -> i64 {
        self.0.ledger as i64
    }

    #[getter]
    fn entry(&self) -> i64 {
        self.0.entry as i64
    }

    #[getter]
    fn partition(&self) -> i32 {
        self.0.partition
    }

    #[getter]
    fn batch_index(&self) -> i32 {
        self.0.batch_index
    }

    #[getter]
    fn batch_size(&self) -> i32 {
        self.0.batch_size
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("MessageId{}", self.0)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        position(&self.0).hash(&mut hasher);
        hasher.finish()
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        match other.cast::<Self>() {
            Ok(other) => op.matches(position(&self.0).cmp(&position(&other.get().0))).into_py_any(py),
            Err(_) => Ok(py.NotImplemented()),
        }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let restore = slf.get_type().getattr("from_bytes")?;
        let data = slf.get().to_bytes(py);
        PyTuple::new(py, [restore, PyTuple::new(py, [data])?.into_any()])
    }
}

/// What equality and order look at: the size of the batch does not move a message.
fn position(id: &core::MessageId) -> (i64, i64, i32, i32) {
    (id.ledger as i64, id.entry as i64, id.partition, id.batch_index)
}

/// Ids of messages sent together, in their order. Made one by one when they are looked at.
#[pyclass(frozen, sequence, module = "penstock._engine")]
pub(super) struct MessageIds(pub(super) Vec<core::MessageId>);

#[pymethods]
impl MessageIds {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __getitem__(&self, py: Python<'_>, index: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        if let Ok(slice) = index.cast::<PySlice>() {
            let range = slice.indices(self.0.len() as isize)?;
            let ids = (0..range.slicelength)
                .map(|i| MessageId(self.0[(range.start + i as isize * range.step) as usize]))
                .map(|id| Py::new(py, id))
                .collect::<PyResult<Vec<_>>>()?;
            return Ok(PyList::new(py, ids)?.into_any().unbind());
        }
        let index: isize = index.extract()?;
        let at = if index < 0 { index + self.0.len() as isize } else { index };
        let id = usize::try_from(at).ok().and_then(|at| self.0.get(at));
        let id = id.ok_or_else(|| PyIndexError::new_err("index out of range"))?;
        Ok(Py::new(py, MessageId(*id))?.into_any())
    }

    fn __repr__(&self) -> String {
        match (self.0.first(), self.0.last()) {
            (Some(first), Some(last)) => format!("MessageIds({} from {first} to {last})", self.0.len()),
            _ => "MessageIds(0)".into(),
        }
    }
}

/// The target of an acknowledgement: a message or an id.
pub(super) fn target(value: &Bound<'_, PyAny>) -> PyResult<Target> {
    if let Ok(message) = value.cast::<Message>() {
        return Ok(match &message.get().0 {
            handle::Message::Pulsar(message) => Target::Pulsar(Arc::clone(&message.entry.topic), message.id),
            handle::Message::Mqtt(message) => Target::Mqtt(message.clone()),
            handle::Message::TubeMq(message) => Target::TubeMq(message.clone()),
        });
    }
    let id = value.cast::<MessageId>().map_err(|_| {
        pyo3::exceptions::PyTypeError::new_err(format!(
            "expected a Message or a MessageId, not {}",
            value.get_type()
        ))
    })?;
    Ok(Target::Pulsar("".into(), id.get().0))
}
