//! The native classes of TubeMQ, and its options.

use std::collections::BTreeSet;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::bridge::Loop;
use crate::client::{Connected, Connection, client_class};
use crate::convert::{py_result, seconds};
use crate::tubemq::range::{Location, located};
use crate::tubemq::table::Content;
use crate::value::IntoPython;
use forebay_base::error::Result;
use forebay_client::journal::Journal;
use forebay_client::traffic::Traffic;
use forebay_client::tubemq as native;

mod consumer;
mod message;
mod options;
mod position;
mod producer;
mod range;
mod table;

/// Adds the classes to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TubeMqClient>()?;
    module.add_class::<producer::TubeMqProducer>()?;
    module.add_class::<consumer::TubeMqConsumer>()?;
    module.add_class::<range::TubeMqRange>()?;
    module.add_class::<range::TubeMqTail>()?;
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

    /// The partitions of topics that can be read: topic, broker, number, and the broker's host and
    /// port.
    fn locations(&self, py: Python<'_>, topics: BTreeSet<String>, groups: String) -> PyResult<Py<PyAny>> {
        self.0.run(py, |client| async move {
            client.locations(topics, &groups).await.map(range::Located)
        })
    }

    /// Asks for the ends of partitions.
    fn tail(&self, py: Python<'_>, locations: Vec<Location>, groups: String) -> PyResult<Py<PyAny>> {
        let locations = locations.into_iter().map(located).collect();
        let caller = self.0.caller().clone();
        self.0.run(py, |client| async move { Ok(range::Asking(client.tail(locations, groups)?, caller)) })
    }

    /// Reads a part of a partition as tables. `columns`: what each column holds, and its name.
    #[allow(clippy::too_many_arguments, reason = "the arguments of the Python method")]
    fn range(
        &self,
        py: Python<'_>,
        location: Location,
        start: i64,
        end: i64,
        columns: Vec<(String, String)>,
        timeout: f64,
        fails_on_loss: bool,
        filters: BTreeSet<String>,
        groups: String,
    ) -> PyResult<Py<PyAny>> {
        let parse = |(content, name): (String, String)| Ok((Content::parse(&content)?, name));
        let columns: Vec<_> = py_result(py, columns.into_iter().map(parse).collect::<Result<_>>())?;
        let range =
            native::range::Range { location: located(location), start, end, filters: Arc::new(filters) };
        let rules = native::range::Rules { timeout: seconds(timeout), fails_on_loss };
        let caller = self.0.caller().clone();
        self.0.run(py, |client| async move {
            Ok(range::Opened(client.range(range, groups, rules)?, columns.into(), caller))
        })
    }

    /// Sets the offsets of a group. For each partition what went wrong.
    fn confirm(&self, py: Python<'_>, group: String, offsets: Vec<(Location, i64)>) -> PyResult<Py<PyAny>> {
        let offsets = offsets.into_iter().map(|(location, offset)| (located(location), offset)).collect();
        self.0.run(py, |client| async move { client.confirm(&group, offsets).await.map(range::Confirmed) })
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
