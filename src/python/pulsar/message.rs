//! Received messages of Pulsar, as objects and as columns.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::builder::{BinaryBuilder, StringBuilder, TimestampMillisecondBuilder, UInt32Builder};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::arrow::{batch, properties_builder};
use crate::convert::{missing, raise};
use crate::message::Message;
use crate::pulsar::message_id::MessageId;
use crate::pulsar::schema;
use forebay_base::error::Result;
use forebay_pulsar as core;
use forebay_rows::arrow_error;

/// A received message.
#[pyclass(frozen, module = "forebay._engine")]
pub(crate) struct PulsarMessage(pub(super) core::Message);

impl Message for core::Message {
    #[inline]
    fn into_object(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(Bound::new(py, PulsarMessage(self))?.into_any())
    }

    fn of(object: &Bound<'_, PyAny>) -> Option<Self> {
        Some(object.cast::<PulsarMessage>().ok()?.get().0.clone())
    }

    fn to_batch(messages: &[Self]) -> Result<RecordBatch> {
        to_batch(messages)
    }

    fn keep(messages: Vec<Self>) -> Option<Box<dyn Any + Send + Sync>> {
        let any = messages.iter().any(|message| message.entry.rare().writer.is_some());
        any.then(|| Box::new(messages) as Box<dyn Any + Send + Sync>)
    }
}

/// The bytes of a key, whether they were sent as they are or as Base64.
pub(super) fn key_bytes(message: &core::Message) -> Option<Cow<'_, [u8]>> {
    let key = message.key.as_deref()?;
    let raw = message.key_is_base64.then(|| STANDARD.decode(key).ok()).flatten();
    Some(raw.map_or(Cow::Borrowed(key.as_bytes()), Cow::Owned))
}

#[pymethods]
impl PulsarMessage {
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.payload)
    }

    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        // Messages are handed out once their schema is known.
        match self.0.entry.rare().writer.as_ref().and_then(|writer| writer.get()) {
            Some(Ok(resolved)) => schema::value_of(py, resolved, &self.0),
            _ if self.0.null_value => Ok(None),
            None => Ok(Some(self.data(py).into_any())),
            Some(Err(error)) => Err(raise(py, error)),
        }
    }

    #[getter]
    fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    #[getter]
    fn key_bytes<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        key_bytes(&self.0).map(|key| PyBytes::new(py, &key))
    }

    #[getter]
    fn ordering_key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0.ordering_key().map(|key| PyBytes::new(py, key))
    }

    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, value) in self.0.properties() {
            dict.set_item(&**name, &**value)?;
        }
        Ok(dict)
    }

    #[getter]
    fn id(&self) -> MessageId {
        MessageId {
            id: self.0.id,
            topic: Arc::clone(self.0.entry.topic()),
            first_chunk: self.0.entry.rare().first_chunk,
        }
    }

    #[getter]
    fn partition(&self) -> i32 {
        self.0.id.partition
    }

    #[getter]
    fn topic(&self) -> &str {
        self.0.entry.topic()
    }

    #[getter]
    fn publish_time(&self) -> u64 {
        self.0.entry.publish_time
    }

    #[getter]
    fn event_time(&self) -> Option<u64> {
        Some(self.0.event_time).filter(|time| *time != 0)
    }

    #[getter]
    fn broker_time(&self) -> Option<u64> {
        self.0.entry.broker_timestamp()
    }

    #[getter]
    fn redelivery_count(&self) -> u32 {
        self.0.entry.redelivery_count
    }

    #[getter]
    fn sequence_id(&self) -> u64 {
        self.0.sequence_id
    }

    #[getter]
    fn producer_name(&self) -> &str {
        self.0.entry.producer_name()
    }

    #[getter]
    fn is_null(&self) -> bool {
        self.0.null_value
    }

    #[getter]
    fn index(&self) -> Option<u64> {
        self.0.index()
    }

    #[getter]
    fn schema_version<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0.entry.rare().schema_version.as_ref().map(|version| PyBytes::new(py, version))
    }

    fn __repr__(&self) -> String {
        let (id, topic, size) = (self.0.id, self.0.entry.topic(), self.0.payload.len());
        format!("PulsarMessage(id={id}, topic={topic:?}, {size} bytes)")
    }

    fn __getattr__(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        Err(missing(py, "PulsarMessage", name))
    }
}

/// Messages as columns.
fn to_batch(messages: &[core::Message]) -> Result<RecordBatch> {
    let mut value = BinaryBuilder::new();
    let mut key = StringBuilder::new();
    let mut topic = StringBuilder::new();
    let mut id = StringBuilder::new();
    let mut publish = TimestampMillisecondBuilder::new().with_timezone("UTC");
    let mut event = TimestampMillisecondBuilder::new().with_timezone("UTC");
    let mut properties = properties_builder();
    let mut redelivery = UInt32Builder::new();
    for message in messages {
        if message.null_value {
            value.append_null()
        } else {
            value.append_value(&message.payload)
        }
        key.append_option(message.key.as_deref());
        topic.append_value(message.entry.topic());
        id.append_value(message.id.to_string());
        publish.append_value(message.entry.publish_time as i64);
        event.append_option((message.event_time != 0).then_some(message.event_time as i64));
        for (name, text) in message.properties() {
            properties.keys().append_value(name);
            properties.values().append_value(text);
        }
        properties.append(true).map_err(arrow_error)?;
        redelivery.append_value(message.entry.redelivery_count);
    }
    batch(vec![
        ("value", Arc::new(value.finish())),
        ("key", Arc::new(key.finish())),
        ("topic", Arc::new(topic.finish())),
        ("message_id", Arc::new(id.finish())),
        ("publish_time", Arc::new(publish.finish())),
        ("event_time", Arc::new(event.finish())),
        ("properties", Arc::new(properties.finish())),
        ("redelivery_count", Arc::new(redelivery.finish())),
    ])
}
