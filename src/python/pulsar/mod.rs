//! The native classes of Pulsar, and its options.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::bridge::Loop;
use crate::client::{Connected, Connection, client_class};
use crate::convert::{py_result, seconds};
use crate::pulsar::message_id::MessageId;
use crate::pulsar::schema::columns::PulsarValues;
use crate::pulsar::table::Content;
use crate::sender::add_latencies;
use crate::value::IntoPython;
use forebay_base::error::Result;
use forebay_client::journal::Journal;
use forebay_client::pulsar as native;
use forebay_client::traffic::Traffic;
use forebay_pulsar::pattern::Pattern;
use forebay_pulsar::schema::SchemaInfo;

mod consumer;
mod message;
mod message_id;
mod options;
mod producer;
mod range;
mod schema;
mod table;

/// Adds the classes to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PulsarClient>()?;
    module.add_class::<producer::PulsarProducer>()?;
    module.add_class::<consumer::PulsarConsumer>()?;
    module.add_class::<range::PulsarRange>()?;
    module.add_class::<message::PulsarMessage>()?;
    module.add_class::<schema::PulsarSchema>()?;
    module.add_class::<PulsarValues>()?;
    module.add_class::<MessageId>()?;
    module.add_function(wrap_pyfunction!(producer::encode_pulsar_frame, module)?)?;
    module.add_class::<message_id::MessageIds>()
}

client_class! {
    /// A client of a Pulsar cluster.
    PulsarClient(native::Client), options = options::client;

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
        let options = options::consumer(options)?;
        self.0.open_consumer(py, |client, events| async move {
            client.consumer(topics, subscription, options, events).await
        })
    }

    fn pattern_consumer(
        &self,
        py: Python<'_>,
        pattern: &str,
        flags: &str,
        subscription: String,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Py<PyAny>> {
        let domain = options::topics_domain(options)?;
        let pattern = py_result(py, Pattern::parse(pattern, flags, domain))?;
        let options = options::consumer(options)?;
        self.0.open_consumer(py, |client, events| async move {
            client.pattern_consumer(pattern, subscription, options, events).await
        })
    }

    /// Reads a part of a partition as tables. `columns`: what each column holds, and its name;
    /// `values`: what payloads become in those that take it. The consumer needs a schema then.
    #[allow(clippy::too_many_arguments, reason = "the arguments of the Python method")]
    fn range(
        &self,
        py: Python<'_>,
        topic: String,
        from: Option<&Bound<'_, MessageId>>,
        inclusive: bool,
        to: &Bound<'_, MessageId>,
        columns: Vec<(String, String)>,
        timeout: f64,
        fails_on_loss: bool,
        options: &Bound<'_, PyDict>,
        values: Option<&Bound<'_, PulsarValues>>,
    ) -> PyResult<Py<PyAny>> {
        let parse = |(content, name): (String, String)| Ok((Content::parse(&content)?, name));
        let columns: Vec<_> = py_result(py, columns.into_iter().map(parse).collect::<Result<_>>())?;
        let values = values.map(|values| Arc::clone(&values.get().0));
        let shape = Arc::new(range::Shape { columns, values });
        let from = match from.map(|from| from.get().position(inclusive)) {
            None => native::range::Begin::Earliest,
            Some(id) if inclusive => native::range::Begin::At(id),
            Some(id) => native::range::Begin::Behind(id),
        };
        let range = native::range::Range { from, to: to.get().id };
        let rules = native::range::Rules { timeout: seconds(timeout), fails_on_loss };
        let options = options::consumer(options)?;
        let caller = self.0.caller().clone();
        self.0.run(py, move |client| async move {
            let reader = client.range(&topic, range, rules, options).await?;
            Ok(range::Opened(reader, shape, caller))
        })
    }

    fn partitions(&self, py: Python<'_>, topic: String) -> PyResult<Py<PyAny>> {
        self.0.run(py, |client| async move { client.partitions(&topic).await })
    }

    fn schema(&self, py: Python<'_>, topic: String, version: Option<Vec<u8>>) -> PyResult<Py<PyAny>> {
        let version = version.map(bytes::Bytes::from);
        self.0.run(py, |client| async move { client.schema(&topic, version).await.map(Stored) })
    }

    fn topics(&self, py: Python<'_>, namespace: String) -> PyResult<Py<PyAny>> {
        self.0.run(py, |client| async move { client.topics(&namespace).await })
    }
}

/// A schema of a topic as a result: type, definition and properties.
struct Stored(SchemaInfo);

impl IntoPython for Stored {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let SchemaInfo { name, kind, data, properties } = self.0;
        let stored = (kind.as_str_name(), name, PyBytes::new(py, &data), properties);
        Ok(stored.into_pyobject(py)?.into_any().unbind())
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
        stats.set_item("unreadable_entries", self.unreadable_entries())?;
        stats.set_item("ended_topics", self.ended_topics())?;
        let letters = self.letter_counts();
        stats.set_item("dead_letters", letters.dead)?;
        stats.set_item("dead_letters_failed", letters.failed)?;
        stats.set_item("retried", letters.retried)?;
        let lookups = self.lookup_counts();
        stats.set_item("lookups", lookups.latencies.count() + lookups.failed)?;
        stats.set_item("lookups_failed", lookups.failed)?;
        add_latencies(stats, "lookup", &lookups.latencies)
    }
}
