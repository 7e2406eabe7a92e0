//! The native classes of TubeMQ, and its options.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::client::journal::Journal;
use crate::client::traffic::Traffic;
use crate::client::tubemq as native;
use crate::error::Result;
use crate::python::bridge::Loop;
use crate::python::client::{Connected, Connection, client_class};
use crate::python::value::IntoPython;

mod consumer;
mod message;
mod options;
mod position;
mod producer;

/// Adds the classes to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TubeMqClient>()?;
    module.add_class::<producer::TubeMqProducer>()?;
    module.add_class::<consumer::TubeMqConsumer>()?;
    module.add_class::<message::TubeMqMessage>()?;
    module.add_class::<position::Position>()
}

client_class! {
    /// A client of a TubeMQ cluster.
    TubeMqClient(native::Client), options = options::client;

    fn producer(&self, py: Python<'_>, topic: String, options: &Bound<'_, PyDict>) -> PyResult<Py<PyAny>> {
        let options = options::producer(options)?;
        self.0.open_producer(py, |client, events| async move {
            client.producer(&topic, options, events).await
        })
    }

    fn consumer(
        &self,
        py: Python<'_>,
        topics: Vec<String>,
        subscription: String,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Py<PyAny>> {
        let options = options::consumer(&topics, options)?;
        self.0.open_consumer(py, |client, events| async move {
            client.consumer(topics, subscription, options, events).await
        })
    }

    fn partitions(&self, py: Python<'_>, topic: String) -> PyResult<Py<PyAny>> {
        self.0.run(py, |client| async move { client.partitions(&topic).await })
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
        stats.set_item("damaged_messages", self.damaged_messages())
    }
}
