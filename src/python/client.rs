//! The parts that the client classes of all protocols share, and the macro that declares such a
//! class.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::bridge::Loop;
use crate::consumer::{Receiver, Subscription, add_receives};
use crate::convert::{py_result, threads};
use crate::journal::numbered;
use crate::promise::Caller;
use crate::receives::{self, Receives};
use crate::runtime::Native;
use crate::sender::{Sender, Sink, add_sends};
use crate::sends::{self, Sends};
use crate::value::IntoPython;
use forebay_base::error::Result;
use forebay_client::events::{ConsumerEvents, ProducerEvents};
use forebay_client::journal::Journal;
use forebay_client::traffic::Traffic;

/// The verbs that the clients of all protocols have.
pub(super) trait Connection: Clone + Send + Sync + 'static {
    /// Closes the client and everything that was opened with it.
    fn close(&self) -> impl Future<Output = Result<()>> + Send;

    /// Whether the client is closed.
    fn is_closed(&self) -> bool;

    /// Bytes of messages that have no answer from the broker yet.
    fn memory_used(&self) -> usize;

    /// The events of the connections.
    fn journal(&self) -> &Arc<Journal>;

    /// Totals of what was sent and received.
    fn traffic(&self) -> &Arc<Traffic>;

    /// Adds the protocol's own counters.
    fn add_stats(&self, _stats: &Bound<'_, PyDict>) -> PyResult<()> {
        Ok(())
    }
}

/// The body of a client class.
pub(super) struct Connected<C> {
    native: Native<C>,
    caller: Caller,
}

impl<C: Connection> Connected<C> {
    /// Starts connecting. `connect` is run on the engine.
    pub(super) fn connect<F>(
        py: Python<'_>,
        options: &Bound<'_, PyDict>,
        event_loop: Option<&Loop>,
        connect: F,
    ) -> PyResult<Py<PyAny>>
    where
        F: Future<Output = Result<C>> + Send + 'static,
        Self: IntoPython,
    {
        let caller = Caller::new(py, event_loop)?;
        let client = caller.clone();
        caller.run(py, threads(options)?, async move {
            Ok(Self { native: Native::new(connect.await?), caller: client })
        })
    }

    pub(super) fn native(&self, py: Python<'_>) -> PyResult<&C> {
        py_result(py, self.native.get())
    }

    /// The caller that awaits its results.
    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(super) fn is_closed(&self) -> bool {
        self.native.get().map_or(true, Connection::is_closed)
    }

    pub(super) fn is_connected(&self) -> bool {
        let connected = |client: &C| !client.is_closed() && client.journal().is_connected();
        self.native.get().is_ok_and(connected)
    }

    pub(super) fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let client = self.native(py)?;
        let stats = PyDict::new(py);
        stats.set_item("connected", self.is_connected())?;
        stats.set_item("memory_used_bytes", client.memory_used())?;
        add_sends(&stats, &client.traffic().sends.counts())?;
        add_receives(&stats, &client.traffic().receives.counts())?;
        let connections = client.journal().counts();
        stats.set_item("connections_opened", connections.opened)?;
        stats.set_item("connections_closed", connections.closed)?;
        stats.set_item("connect_failures", connections.failed)?;
        stats.set_item("reconnects", connections.reconnects)?;
        stats.set_item("resubscribed", connections.resubscribed)?;
        client.add_stats(&stats)?;
        Ok(stats)
    }

    /// The first connection event that is kept from `number` on, with its number.
    pub(super) fn event<'py>(
        &self,
        py: Python<'py>,
        number: u64,
    ) -> PyResult<Option<(u64, Bound<'py, PyDict>)>> {
        self.native(py)?.journal().first_from(number).map(|entry| numbered(py, &entry)).transpose()
    }

    /// Waits until there is a connection event from `number` on, or there will be none.
    pub(super) fn event_due(&self, py: Python<'_>, number: u64) -> PyResult<Py<PyAny>> {
        // Not the client, which this wait must not keep.
        let journal = Arc::clone(self.native(py)?.journal());
        self.caller.run(py, 1, async move {
            journal.due(number).await;
            Ok(())
        })
    }

    /// Whether there will be no more connection events.
    pub(super) fn events_ended(&self) -> bool {
        self.native.get().map_or(true, |client| client.journal().is_ended())
    }

    /// Runs an operation on the engine.
    pub(super) fn run<T: IntoPython, F>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(C) -> F,
    ) -> PyResult<Py<PyAny>>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.caller.run(py, 1, operation(self.native(py)?.clone()))
    }

    /// Opens a producer on the engine.
    pub(super) fn open_producer<S: Sink, F>(
        &self,
        py: Python<'_>,
        open: impl FnOnce(C, Arc<dyn ProducerEvents>) -> F,
    ) -> PyResult<Py<PyAny>>
    where
        F: Future<Output = Result<S>> + Send + 'static,
        Sender<S>: IntoPython,
    {
        let sends = Sends::<S>::new(self.caller.clone());
        let opening = open(self.native(py)?.clone(), Arc::new(sends::Events(Arc::clone(&sends))));
        let caller = self.caller.clone();
        self.caller.run(py, 1, async move { Ok(Sender::new(opening.await?, sends, caller)) })
    }

    /// Opens a producer that needs no answer from the broker.
    pub(super) fn open_producer_now<S: Sink>(
        &self,
        py: Python<'_>,
        open: impl FnOnce(&C, Arc<dyn ProducerEvents>) -> Result<S>,
    ) -> PyResult<Py<PyAny>>
    where
        Sender<S>: IntoPython,
    {
        let sends = Sends::<S>::new(self.caller.clone());
        let opened = open(self.native(py)?, Arc::new(sends::Events(Arc::clone(&sends))));
        let producer = py_result(py, opened)
            .and_then(|sink| Sender::new(sink, sends, self.caller.clone()).into_python(py));
        self.caller.ready(py, producer)
    }

    /// Opens a consumer on the engine.
    pub(super) fn open_consumer<S: Subscription, F>(
        &self,
        py: Python<'_>,
        open: impl FnOnce(C, Arc<dyn ConsumerEvents>) -> F,
    ) -> PyResult<Py<PyAny>>
    where
        F: Future<Output = Result<S>> + Send + 'static,
        Receiver<S>: IntoPython,
    {
        let events = receives::Events::<S>::new();
        let opening = open(self.native(py)?.clone(), Arc::clone(&events) as Arc<dyn ConsumerEvents>);
        let caller = self.caller.clone();
        self.caller.run(py, 1, async move {
            let receives = Receives::new(opening.await?, caller.clone());
            events.connect(&receives);
            Ok(Receiver::new(receives, caller))
        })
    }
}

/// Declares a client class: the shared methods, and those in the braces.
macro_rules! client_class {
    (
        $(#[$attribute:meta])*
        $name:ident($native:ty), options = $options:path;
        $($own:tt)*
    ) => {
        $(#[$attribute])*
        #[pyclass(frozen, module = "forebay._engine")]
        pub(crate) struct $name(Connected<$native>);

        impl IntoPython for Connected<$native> {
            fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                Ok(Py::new(py, $name(self))?.into_any())
            }
        }

        #[pymethods]
        impl $name {
            #[staticmethod]
            #[pyo3(signature = (url, options, r#loop))]
            fn connect(
                py: Python<'_>,
                url: String,
                options: &Bound<'_, PyDict>,
                r#loop: Option<&Loop>,
            ) -> PyResult<Py<PyAny>> {
                let parsed = $options(url, options)?;
                Connected::connect(py, options, r#loop, <$native>::connect(parsed))
            }

            #[getter]
            fn closed(&self) -> bool {
                self.0.is_closed()
            }

            #[getter]
            fn connected(&self) -> bool {
                self.0.is_connected()
            }

            fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
                self.0.stats(py)
            }

            fn event<'py>(
                &self,
                py: Python<'py>,
                number: u64,
            ) -> PyResult<Option<(u64, Bound<'py, PyDict>)>> {
                self.0.event(py, number)
            }

            fn event_due(&self, py: Python<'_>, number: u64) -> PyResult<Py<PyAny>> {
                self.0.event_due(py, number)
            }

            #[getter]
            fn events_ended(&self) -> bool {
                self.0.events_ended()
            }

            fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                self.0.run(py, |client| async move { Connection::close(&client).await })
            }

            $($own)*
        }
    };
}
pub(super) use client_class;
