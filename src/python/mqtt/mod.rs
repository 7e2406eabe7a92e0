//! The native classes of MQTT, its options, and its reason codes.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::bridge::Loop;
use crate::client::{Connected, Connection, client_class};
use crate::convert::py_result;
use crate::value::IntoPython;
use forebay_base::error::Result;
use forebay_client::journal::Journal;
use forebay_client::mqtt as native;
use forebay_client::traffic::Traffic;
use forebay_mqtt::Version;
use forebay_mqtt::topic::{self, Filter};

mod consumer;
mod message;
mod options;
mod producer;
mod reason;

/// Adds the classes and functions to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<MqttClient>()?;
    module.add_class::<producer::MqttProducer>()?;
    module.add_class::<consumer::MqttConsumer>()?;
    module.add_class::<message::MqttMessage>()?;
    module.add_function(wrap_pyfunction!(reason::set_reason_codes, module)?)?;
    module.add_function(wrap_pyfunction!(topic_matches, module)?)
}

/// Whether messages of `topic` match `filter`, which may be the filter of a shared subscription
/// (4.7).
#[pyfunction]
fn topic_matches(py: Python<'_>, filter: &str, topic: &str) -> PyResult<bool> {
    let filter = py_result(py, Filter::parse(filter))?;
    py_result(py, topic::check_name(topic))?;
    Ok(filter.matches(topic))
}

client_class! {
    /// A session with an MQTT server.
    MqttClient(native::Client), options = options::client;

    fn producer(&self, py: Python<'_>, topic: &str, options: &Bound<'_, PyDict>) -> PyResult<Py<PyAny>> {
        let options = options::producer(options)?;
        self.0.open_producer_now(py, |client, events| client.producer(topic, options, events))
    }

    fn publisher(&self, py: Python<'_>, options: &Bound<'_, PyDict>) -> PyResult<Py<PyAny>> {
        let options = options::producer(options)?;
        self.0.open_producer_now(py, |client, events| client.publisher(options, events))
    }

    fn consumer(
        &self,
        py: Python<'_>,
        topics: Vec<String>,
        subscription: &str,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Py<PyAny>> {
        let options = options::consumer(py, &topics, subscription, options)?;
        self.0.open_consumer(py, |client, events| async move { client.consumer(options, events).await })
    }

    /// Ends a subscription that no open consumer has.
    fn unsubscribe(&self, py: Python<'_>, filter: String) -> PyResult<Py<PyAny>> {
        self.0.run(py, |client| async move { client.unsubscribe(&filter).await })
    }

    /// The version in use.
    #[getter]
    fn version(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(match self.0.native(py)?.version() {
            Version::V3_1 => "3.1",
            Version::V3_1_1 => "3.1.1",
            Version::V5 => "5",
        })
    }

    /// Starts an extended re-authentication (4.12.1).
    fn reauthenticate(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.run(py, |client| async move { client.reauthenticate().await })
    }
}

impl Connection for native::Client {
    async fn close(&self) -> Result<()> {
        self.close().await
    }

    fn is_closed(&self) -> bool {
        self.is_closed()
    }

    fn memory_used(&self) -> usize {
        self.memory_used()
    }

    fn journal(&self) -> &Arc<Journal> {
        self.journal()
    }

    fn traffic(&self) -> &Arc<Traffic> {
        self.traffic()
    }

    fn add_stats(&self, stats: &Bound<'_, PyDict>) -> PyResult<()> {
        let unclaimed = self.unclaimed();
        stats.set_item("unclaimed_messages", unclaimed.messages)?;
        stats.set_item("unclaimed_dropped", unclaimed.dropped)?;
        stats.set_item("copies_dropped", self.copies_dropped())?;
        let births = self.births();
        stats.set_item("births", births.published)?;
        stats.set_item("births_refused", births.refused)?;
        if let Some(outbox) = self.outbox() {
            stats.set_item("outbox_messages", outbox.messages)?;
            stats.set_item("outbox_bytes", outbox.bytes)?;
            stats.set_item("outbox_refused", outbox.refused)?;
            stats.set_item("outbox_expired", outbox.expired)?;
            stats.set_item("outbox_last_refusal", outbox.last_refusal.map(|error| error.to_string()))?;
        }
        if let Some(server) = self.server() {
            stats.set_item("client_id", server.client_id)?;
            stats.set_item("session_present", server.session_present)?;
            stats.set_item("response_information", server.response_information)?;
            stats.set_item("receive_maximum", server.limits.receive_maximum)?;
            stats.set_item("maximum_qos", server.limits.maximum_qos as u8)?;
            stats.set_item("maximum_packet_size", server.limits.maximum_packet_size)?;
            stats.set_item("topic_alias_maximum", server.limits.topic_alias_maximum)?;
            stats.set_item("retain_available", server.limits.retain_available)?;
            stats.set_item("shared_subscription_available", server.limits.shared_subscription)?;
        }
        Ok(())
    }
}
