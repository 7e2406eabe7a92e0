//! Received messages of MQTT, as objects and as columns.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, StringBuilder, TimestampMillisecondBuilder, UInt8Builder,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::arrow::{batch, properties_builder};
use crate::convert::missing;
use crate::message::Message;
use forebay_base::error::Result;
use forebay_client::mqtt as native;
use forebay_mqtt::packet::Publish;
use forebay_rows::arrow_error;

/// A received message.
#[pyclass(frozen, module = "forebay._engine")]
pub(crate) struct MqttMessage(pub(super) native::Message);

impl Message for native::Message {
    #[inline]
    fn into_object(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(Bound::new(py, MqttMessage(self))?.into_any())
    }

    fn of(object: &Bound<'_, PyAny>) -> Option<Self> {
        Some(object.cast::<MqttMessage>().ok()?.get().0.clone())
    }

    fn to_batch(messages: &[Self]) -> Result<RecordBatch> {
        to_batch(messages)
    }
}

impl MqttMessage {
    fn publish(&self) -> &Publish {
        self.0.publish()
    }
}

#[pymethods]
impl MqttMessage {
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.publish().payload)
    }

    /// The user properties by name; a repeated name keeps its last value.
    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, value) in self.publish().properties.user() {
            dict.set_item(&**name, &**value)?;
        }
        Ok(dict)
    }

    /// The user properties in their order, in which a name may be repeated.
    #[getter]
    fn user_properties(&self) -> Vec<(&str, &str)> {
        self.publish().properties.user().map(|(name, value)| (&**name, &**value)).collect()
    }

    #[getter]
    fn topic(&self) -> &str {
        &self.publish().topic
    }

    #[getter]
    fn received_time(&self) -> u64 {
        self.0.received_ms()
    }

    #[getter]
    fn qos(&self) -> u8 {
        self.publish().qos as u8
    }

    #[getter]
    fn packet_id(&self) -> Option<u16> {
        self.publish().packet_id.map(|id| id.get())
    }

    #[getter]
    fn retain(&self) -> bool {
        self.publish().retain
    }

    #[getter]
    fn dup(&self) -> bool {
        self.publish().dup
    }

    #[getter]
    fn content_type(&self) -> Option<&str> {
        self.publish().properties.content_type().map(|text| &**text)
    }

    #[getter]
    fn response_topic(&self) -> Option<&str> {
        self.publish().properties.response_topic().map(|text| &**text)
    }

    #[getter]
    fn correlation_data<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.publish().properties.correlation_data().map(|data| PyBytes::new(py, data))
    }

    #[getter]
    fn is_text(&self) -> bool {
        self.publish().properties.payload_format_indicator() == Some(&true)
    }

    #[getter]
    fn message_expiry(&self) -> Option<u32> {
        self.publish().properties.message_expiry_interval().copied()
    }

    #[getter]
    fn subscription_ids(&self) -> Vec<u32> {
        self.publish().properties.subscription_identifiers().collect()
    }

    fn __repr__(&self) -> String {
        let publish = self.publish();
        let (topic, qos, size) = (&*publish.topic, publish.qos as u8, publish.payload.len());
        format!("MqttMessage(topic={topic:?}, qos={qos}, {size} bytes)")
    }

    fn __getattr__(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        Err(missing(py, "MqttMessage", name))
    }
}

/// Messages as columns.
fn to_batch(messages: &[native::Message]) -> Result<RecordBatch> {
    let mut value = BinaryBuilder::new();
    let mut topic = StringBuilder::new();
    let mut qos = UInt8Builder::new();
    let mut retain = BooleanBuilder::new();
    let mut received = TimestampMillisecondBuilder::new().with_timezone("UTC");
    let mut content_type = StringBuilder::new();
    let mut properties = properties_builder();
    for message in messages {
        let publish = message.publish();
        value.append_value(&publish.payload);
        topic.append_value(&publish.topic);
        qos.append_value(publish.qos as u8);
        retain.append_value(publish.retain);
        received.append_value(message.received_ms() as i64);
        content_type.append_option(publish.properties.content_type().map(|text| &**text));
        for (name, text) in publish.properties.user() {
            properties.keys().append_value(&**name);
            properties.values().append_value(&**text);
        }
        properties.append(true).map_err(arrow_error)?;
    }
    batch(vec![
        ("value", Arc::new(value.finish())),
        ("topic", Arc::new(topic.finish())),
        ("qos", Arc::new(qos.finish())),
        ("retain", Arc::new(retain.finish())),
        ("received_time", Arc::new(received.finish())),
        ("content_type", Arc::new(content_type.finish())),
        ("properties", Arc::new(properties.finish())),
    ])
}
