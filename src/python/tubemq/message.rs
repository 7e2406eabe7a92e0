//! Received messages of TubeMQ, as objects and as columns.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::builder::{
    BinaryBuilder, Int64Builder, StringBuilder, TimestampMillisecondBuilder, UInt32Builder,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::arrow::{batch, properties_builder};
use crate::convert::missing;
use crate::message::Message;
use crate::tubemq::position::Position;
use forebay_base::error::Result;
use forebay_rows::arrow_error;
use forebay_tubemq::consumer as core;

/// A received message.
#[pyclass(frozen, module = "forebay._engine")]
pub(crate) struct TubeMqMessage(pub(super) core::Message);

impl Message for core::Message {
    #[inline]
    fn into_object(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(Bound::new(py, TubeMqMessage(self))?.into_any())
    }

    fn of(object: &Bound<'_, PyAny>) -> Option<Self> {
        Some(object.cast::<TubeMqMessage>().ok()?.get().0.clone())
    }

    fn to_batch(messages: &[Self]) -> Result<RecordBatch> {
        to_batch(messages)
    }
}

#[pymethods]
impl TubeMqMessage {
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.payload)
    }

    #[getter]
    fn key(&self) -> Option<Cow<'_, str>> {
        self.0.attributes.key()
    }

    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, value) in self.0.attributes.properties() {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }

    #[getter]
    fn id(&self) -> Position {
        Position::of_message(&self.0)
    }

    #[getter]
    fn message_type(&self) -> Option<&str> {
        self.0.attributes.message_type()
    }

    #[getter]
    fn broker_id(&self) -> u32 {
        self.0.pack.location.partition.broker
    }

    #[getter]
    fn partition(&self) -> u32 {
        self.0.pack.location.partition.id
    }

    #[getter]
    fn offset(&self) -> i64 {
        self.0.pack.offset
    }

    #[getter]
    fn message_id(&self) -> i64 {
        self.0.message_id
    }

    #[getter]
    fn topic(&self) -> &str {
        &self.0.pack.location.topic
    }

    #[getter]
    fn event_time(&self) -> Option<u64> {
        self.0.attributes.time()
    }

    #[getter]
    fn redelivery_count(&self) -> u32 {
        self.0.pack.redelivered
    }

    fn __repr__(&self) -> String {
        let (location, size) = (&self.0.pack.location, self.0.payload.len());
        let (topic, broker, id) = (&location.topic, location.partition.broker, location.partition.id);
        format!("TubeMqMessage(topic={topic:?}, partition={broker}:{id}, {size} bytes)")
    }

    fn __getattr__(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        Err(missing(py, "TubeMqMessage", name))
    }
}

/// Messages as columns.
fn to_batch(messages: &[core::Message]) -> Result<RecordBatch> {
    let mut value = BinaryBuilder::new();
    let mut key = StringBuilder::new();
    let mut topic = StringBuilder::new();
    let mut message_type = StringBuilder::new();
    let mut event = TimestampMillisecondBuilder::new().with_timezone("UTC");
    let mut broker = UInt32Builder::new();
    let mut partition = UInt32Builder::new();
    let mut offset = Int64Builder::new();
    let mut properties = properties_builder();
    for message in messages {
        let location = &message.pack.location;
        value.append_value(&message.payload);
        key.append_option(message.attributes.key());
        topic.append_value(&location.topic);
        message_type.append_option(message.attributes.message_type());
        event.append_option(message.attributes.time().map(|time| time as i64));
        broker.append_value(location.partition.broker);
        partition.append_value(location.partition.id);
        offset.append_value(message.pack.offset);
        for (name, text) in message.attributes.properties() {
            properties.keys().append_value(name);
            properties.values().append_value(text);
        }
        properties.append(true).map_err(arrow_error)?;
    }
    batch(vec![
        ("value", Arc::new(value.finish())),
        ("key", Arc::new(key.finish())),
        ("topic", Arc::new(topic.finish())),
        ("message_type", Arc::new(message_type.finish())),
        ("event_time", Arc::new(event.finish())),
        ("broker_id", Arc::new(broker.finish())),
        ("partition", Arc::new(partition.finish())),
        ("offset", Arc::new(offset.finish())),
        ("properties", Arc::new(properties.finish())),
    ])
}
