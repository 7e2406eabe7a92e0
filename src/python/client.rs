//! The client class.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::pin::Pin;
use std::sync::Arc;

use crate::client::events::ConsumerEvents;
use crate::client::handle;
use crate::client::{mqtt as native_mqtt, pulsar as native, tubemq as native_tubemq};
use crate::error::Result;
use crate::python::bridge::Loop;
use crate::python::convert::{client_options, consumer_options, producer_options, py_result, threads};
use crate::python::promise::{Door, Outcome, Value};
use crate::python::runtime::{Native, engine};
use crate::python::{inbox, mqtt, outbox, tubemq};

/// Connects to a Pulsar service, an MQTT server or a TubeMQ cluster, as the scheme of `url` says.
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
    let threads = threads(options)?;
    if url.starts_with("tubemq") {
        let options = tubemq::client_options(url, options)?;
        return run(py, &door, threads, async move {
            Ok(Value::Client(handle::Client::TubeMq(native_tubemq::Client::connect(options).await?)))
        });
    }
    if !url.starts_with("pulsar") {
        let options = mqtt::client_options(url, options)?;
        return run(py, &door, threads, async move {
            Ok(Value::Client(handle::Client::Mqtt(native_mqtt::Client::connect(options).await?)))
        });
    }
    let options = client_options(url, options)?;
    run(py, &door, threads, async move {
        Ok(Value::Client(handle::Client::Pulsar(native::Client::connect(options).await?)))
    })
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

/// A client of one service.
#[pyclass(frozen, module = "penstock._engine")]
pub(super) struct Client {
    native: Native<handle::Client>,
    door: Door,
}

impl Client {
    pub(super) fn new(client: handle::Client, door: Door) -> Self {
        Self { native: Native::new(client), door }
    }
}

#[pymethods]
impl Client {
    fn producer(&self, py: Python<'_>, topic: String, options: &Bound<'_, PyDict>) -> PyResult<Py<PyAny>> {
        let outbox = outbox::Outbox::new(self.door.clone());
        let events = Arc::new(outbox::Events(Arc::clone(&outbox)));
        match py_result(py, self.native.get())?.clone() {
            handle::Client::Pulsar(client) => {
                let options = producer_options(options)?;
                run(py, &self.door, 1, async move {
                    Ok(Value::Producer(client.producer(&topic, options, events).await?, outbox))
                })
            }
            handle::Client::Mqtt(client) => {
                let producer = client.producer(&topic, mqtt::producer_options(options)?, events);
                self.door.ready(py, producer.map(|producer| Value::MqttProducer(producer, outbox)))
            }
            handle::Client::TubeMq(client) => {
                let options = tubemq::producer_options(options)?;
                run(py, &self.door, 1, async move {
                    Ok(Value::TubeProducer(client.producer(&topic, options, events).await?, outbox))
                })
            }
        }
    }

    fn consumer(
        &self,
        py: Python<'_>,
        topics: Vec<String>,
        subscription: String,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Py<PyAny>> {
        let client = py_result(py, self.native.get())?.clone();
        let opening: Pin<Box<dyn Future<Output = Result<handle::Consumer>> + Send>>;
        let events = Arc::new(inbox::Events::default());
        let told: Arc<dyn ConsumerEvents> = events.clone();
        match client {
            handle::Client::Pulsar(client) => {
                let options = consumer_options(options)?;
                opening = Box::pin(async move {
                    let consumer = client.consumer(topics, subscription, options, told).await?;
                    Ok(handle::Consumer::Pulsar(consumer))
                });
            }
            handle::Client::Mqtt(client) => {
                let options = mqtt::consumer_options(py, &topics, &subscription, options)?;
                opening =
                    Box::pin(
                        async move { Ok(handle::Consumer::Mqtt(client.consumer(options, told).await?)) },
                    );
            }
            handle::Client::TubeMq(client) => {
                let options = tubemq::consumer_options(&topics, options)?;
                opening = Box::pin(async move {
                    Ok(handle::Consumer::TubeMq(client.consumer(topics, subscription, options, told).await?))
                });
            }
        }
        let door = self.door.clone();
        run(py, &self.door, 1, async move {
            let inbox = inbox::Inbox::new(opening.await?, door);
            events.connect(&inbox);
            Ok(Value::Consumer(inbox))
        })
    }

    fn partitions(&self, py: Python<'_>, topic: String) -> PyResult<Py<PyAny>> {
        let client = py_result(py, self.native.get())?.clone();
        run(py, &self.door, 1, async move { client.partitions(&topic).await.map(Value::Number) })
    }

    fn topics(&self, py: Python<'_>, namespace: String) -> PyResult<Py<PyAny>> {
        let client = py_result(py, py_result(py, self.native.get())?.pulsar())?.clone();
        run(py, &self.door, 1, async move { client.topics(&namespace).await.map(Value::Texts) })
    }

    /// Starts a new extended authentication of MQTT 5.0.
    fn reauthenticate(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let client = py_result(py, py_result(py, self.native.get())?.mqtt())?.clone();
        run(py, &self.door, 1, async move { client.reauthenticate().await.map(|()| Value::None) })
    }

    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let client = py_result(py, self.native.get())?.clone();
        run(py, &self.door, 1, async move { client.close().await.map(|()| Value::None) })
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let client = py_result(py, self.native.get())?;
        let stats = PyDict::new(py);
        stats.set_item("memory_used_bytes", client.memory_used())?;
        if let handle::Client::Mqtt(client) = client {
            mqtt::stats(client, &stats)?;
        }
        Ok(stats)
    }

    #[getter]
    fn closed(&self) -> bool {
        self.native.get().map_or(true, handle::Client::is_closed)
    }
}
