//! The consumer of Pulsar.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::client::pulsar as native;
use crate::error::Result;
use crate::pulsar as core;
use crate::python::consumer::{Receiver, Redeliver, Subscription, consumer_class, targets};
use crate::python::convert::{py_result, wrong_target};
use crate::python::pulsar::message::{PulsarMessage, to_batch};
use crate::python::pulsar::message_id::MessageId;
use crate::python::receives::Source;
use crate::python::value::IntoPython;

consumer_class! {
    /// A consumer of one or several topics.
    PulsarConsumer(native::Consumer), redelivers;

    fn ack_receipt(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        cumulative: bool,
    ) -> PyResult<Py<PyAny>> {
        let targets = targets::<native::Consumer>(messages)?;
        self.0.run(py, |consumer| async move { consumer.ack_receipt(&targets, cumulative).await })
    }

    fn seek(&self, py: Python<'_>, position: &Bound<'_, PyAny>, inclusive: bool) -> PyResult<Py<PyAny>> {
        let to = match position.cast::<MessageId>() {
            Ok(id) => native::SeekTo::Id { topic: Arc::clone(&id.get().topic), id: id.get().id, inclusive },
            Err(_) => native::SeekTo::Time(position.extract().map_err(|_| {
                PyTypeError::new_err("seek to a MessageId or to a time in milliseconds since 1970")
            })?),
        };
        // A message is of one partition, and the others stay where they are.
        let topic = self.0.source(py)?.sought_topic(&to);
        let moving = move |message: &core::Message| {
            topic.as_ref().is_none_or(|topic| *topic == message.entry.topic)
        };
        self.0.run_moving(py, moving, move |consumer| async move { consumer.seek(to).await })
    }

    fn last_message_ids(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.run(py, |consumer| async move { consumer.last_message_ids().await })
    }
}

impl Source for native::Consumer {
    type Message = core::Message;

    fn topic(&self) -> &str {
        self.topic()
    }

    fn take(&self, max: usize, out: &mut Vec<core::Message>) -> Result<()> {
        self.take(max, out).map(drop)
    }

    fn moves(&self, message: &core::Message) -> u64 {
        self.moves(&message.entry.topic)
    }

    fn arm(&self) -> bool {
        self.arm()
    }

    fn to_batch(messages: &[core::Message]) -> Result<RecordBatch> {
        to_batch(messages)
    }
}

impl Subscription for native::Consumer {
    /// Topic, which may be empty, and id.
    type Target = (Arc<str>, core::MessageId);

    fn target(object: &Bound<'_, PyAny>) -> PyResult<Self::Target> {
        if let Ok(message) = object.cast::<PulsarMessage>() {
            let message = &message.get().0;
            return Ok((Arc::clone(&message.entry.topic), message.id));
        }
        match object.cast::<MessageId>() {
            Ok(id) => Ok((Arc::clone(&id.get().topic), id.get().id)),
            Err(_) => Err(wrong_target(object, "a PulsarMessage or a MessageId")),
        }
    }

    fn subscription(&self) -> &str {
        self.subscription()
    }

    fn ack(&self, targets: &[Self::Target]) -> Result<()> {
        self.ack(targets)
    }

    async fn unsubscribe(&self) -> Result<()> {
        self.unsubscribe().await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

impl Redeliver for native::Consumer {
    fn ack_cumulative(&self, (topic, id): &Self::Target) -> Result<()> {
        self.ack_cumulative(topic, *id)
    }

    fn nack(&self, targets: &[Self::Target], delay: Option<Duration>) -> Result<()> {
        self.nack(targets, delay)
    }

    fn redeliver_unacknowledged(&self) -> Result<()> {
        self.redeliver_unacknowledged()
    }
}
