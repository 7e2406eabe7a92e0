//! The client class.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

use crate::client::pulsar as native;
use crate::python::bridge::Loop;
use crate::python::convert::{client_options, consumer_options, producer_options, py_result};
use crate::python::promise::{Door, Outcome, Value};
use crate::python::runtime::{Native, engine};
use crate::python::{inbox, outbox};

/// Connects to a Pulsar service.
#[pyfunction]
#[pyo3(signature = (url, options, r#loop))]
pub(super) fn connect(
    py: Python<'_>,
    url: String,
    options: &Bound<'_, PyDict>,
    r#loop: Option<&Loop>,
) -> PyResult<Py<PyAny>> {
    let door = match r#loop {
        Some(bridge) => bridge.door(py)?,
        None => Door::Blocking,
    };
    let (options, threads) = client_options(url, options)?;
    run(py, &door, threads, async move { native::Client::connect(options).await.map(Value::Client) })
}

/// Spawns an operation on the engine and gives what its outcome will come to.
pub(super) fn run(
    py: Python<'_>,
    door: &Door,
    threads: usize,
    operation: impl Future<Output = Outcome> + Send + 'static,
) -> PyResult<Py<PyAny>> {
    let engine = py_result(py, engine(threads))?;
    let (promise, pending) = door.promise(py)?;
    engine.handle().spawn(async move { promise.resolve(operation.await) });
    Ok(pending)
}

/// A client of one cluster.
#[pyclass(frozen, module = "penstock._engine")]
pub(super) struct Client {
    native: Native<native::Client>,
    door: Door,
}

impl Client {
    pub(super) fn new(client: native::Client, door: Door) -> Self {
        Self { native: Native::new(client), door }
    }
}

#[pymethods]
impl Client {
    fn producer(&self, py: Python<'_>, topic: String, options: &Bound<'_, PyDict>) -> PyResult<Py<PyAny>> {
        let client = py_result(py, self.native.get())?.clone();
        let options = producer_options(options)?;
        let outbox = outbox::Outbox::new(self.door.clone());
        run(py, &self.door, 1, async move {
            let events = Arc::new(outbox::Events(Arc::clone(&outbox)));
            Ok(Value::Producer(client.producer(&topic, options, events).await?, outbox))
        })
    }

    fn consumer(
        &self,
        py: Python<'_>,
        topics: Vec<String>,
        subscription: String,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Py<PyAny>> {
        let client = py_result(py, self.native.get())?.clone();
        let options = consumer_options(options)?;
        let door = self.door.clone();
        run(py, &self.door, 1, async move {
            let events = Arc::new(inbox::Events::default());
            let consumer = client.consumer(topics, subscription, options, events.clone()).await?;
            let inbox = inbox::Inbox::new(consumer, door);
            events.connect(&inbox);
            Ok(Value::Consumer(inbox))
        })
    }

    fn partitions(&self, py: Python<'_>, topic: String) -> PyResult<Py<PyAny>> {
        let client = py_result(py, self.native.get())?.clone();
        run(py, &self.door, 1, async move { client.partitions(&topic).await.map(Value::Number) })
    }

    fn topics(&self, py: Python<'_>, namespace: String) -> PyResult<Py<PyAny>> {
        let client = py_result(py, self.native.get())?.clone();
        run(py, &self.door, 1, async move { client.topics(&namespace).await.map(Value::Texts) })
    }

    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let client = py_result(py, self.native.get())?.clone();
        run(py, &self.door, 1, async move { client.close().await.map(|()| Value::None) })
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let client = py_result(py, self.native.get())?;
        let stats = PyDict::new(py);
        stats.set_item("memory_used_bytes", client.memory_used())?;
        Ok(stats)
    }

    #[getter]
    fn closed(&self) -> bool {
        self.native.get().map_or(true, native::Client::is_closed)
    }
}
