//! The consumer of Pulsar.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrow::ArrowBatch;
use crate::consumer::{Receiver, Redeliver, Subscription, consumer_class, targets};
use crate::convert::{py_result, raise, seconds, wrong_target};
use crate::pulsar::message::PulsarMessage;
use crate::pulsar::message_id::MessageId;
use crate::pulsar::schema::columns;
use crate::sender::pairs;
use crate::value::IntoPython;
use forebay_base::error::Result;
use forebay_client::pulsar as native;
use forebay_client::receive::Receive as _;
use forebay_pulsar as core;

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
        self.0.run(py, |consumer| async move {
            consumer.ack_receipt(&targets, cumulative).await?;
            consumer.ahead().count_acknowledged(if cumulative { 1 } else { targets.len() });
            Ok(())
        })
    }

    fn seek(&self, py: Python<'_>, position: &Bound<'_, PyAny>, inclusive: bool) -> PyResult<Py<PyAny>> {
        let to = seek_target(position, inclusive)?;
        self.0.run(py, |consumer| async move { consumer.seek(to).await })
    }

    /// Moves partitions, each to a position of its own.
    fn seek_each(
        &self,
        py: Python<'_>,
        positions: Vec<(String, Bound<'_, PyAny>)>,
        inclusive: bool,
    ) -> PyResult<Py<PyAny>> {
        let target = |(topic, position): (String, Bound<'_, PyAny>)| {
            Ok((Arc::from(topic), seek_target(&position, inclusive)?))
        };
        let positions = positions.into_iter().map(target).collect::<PyResult<Vec<_>>>()?;
        self.0.run(py, |consumer| async move { consumer.seek_each(positions).await })
    }

    /// The batch with the values of its messages instead of their payloads, if the consumer has a
    /// schema. If one cannot be decoded, all of them are received again.
    fn decode_arrow(&self, py: Python<'_>, batch: &ArrowBatch, lenient: bool) -> PyResult<ArrowBatch> {
        let receives = self.0.receives(py)?;
        let same = || ArrowBatch::new(batch.batch().clone(), None);
        let Some(codec) = receives.source.codec() else { return Ok(same()) };
        let messages = batch.take_messages().and_then(|messages| messages.downcast::<Vec<core::Message>>().ok());
        let messages = messages.map(|messages| *messages).unwrap_or_default();
        match py.detach(|| columns::decode(&**codec, batch.batch(), &messages, lenient)) {
            Ok(Some(decoded)) => Ok(ArrowBatch::new(decoded, None)),
            Ok(None) => Ok(same()),
            Err(error) => {
                messages.into_iter().rev().for_each(|message| receives.give_back(message));
                Err(raise(py, &error))
            }
        }
    }

    /// Full topic names of the partitions.
    fn partition_topics(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.0.source(py)?.partition_topics().iter().map(ToString::to_string).collect())
    }

    #[pyo3(signature = (message, delay, properties, receipt))]
    fn reconsume_later(
        &self,
        py: Python<'_>,
        message: &Bound<'_, PyAny>,
        delay: f64,
        properties: Option<&Bound<'_, PyDict>>,
        receipt: bool,
    ) -> PyResult<Py<PyAny>> {
        let Ok(message) = message.cast::<PulsarMessage>() else {
            return Err(wrong_target(message, "a PulsarMessage"));
        };
        let (message, properties) = (message.get().0.clone(), pairs(properties)?);
        let delay = seconds(delay);
        self.0.run(py, |consumer| async move { consumer.reconsume_later(&message, delay, &properties, receipt).await })
    }

    fn has_message_available(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.run(py, |consumer| async move { consumer.has_message_available().await })
    }

    /// Deletes the subscription also if it has other consumers.
    fn unsubscribe_by_force(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.run(py, |consumer| async move { consumer.unsubscribe(true).await })
    }

    fn set_paused(&self, py: Python<'_>, paused: bool) -> PyResult<()> {
        py_result(py, self.0.source(py)?.set_paused(paused))
    }

    #[getter]
    fn is_active(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.0.source(py)?.is_active())
    }

    fn active_change(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.run(py, |consumer| {
            let change = consumer.active_change();
            async move { change.await.map(ActiveChange) }
        })
    }

    #[getter]
    fn reached_end(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.0.source(py)?.is_at_end())
    }

    fn wait_for_end(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.run(py, |consumer| consumer.wait_for_end())
    }

    fn last_message_ids(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.run(py, |consumer| async move { consumer.last_message_ids().await })
    }
}

/// A change of the active consumer as a result: a pair.
struct ActiveChange(native::ActiveChange);

impl IntoPython for ActiveChange {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let (topic, active) = self.0.tell();
        Ok((&*topic, active).into_pyobject(py)?.into_any().unbind())
    }
}

fn seek_target(position: &Bound<'_, PyAny>, inclusive: bool) -> PyResult<native::SeekTo> {
    Ok(match position.cast::<MessageId>() {
        Ok(id) => {
            let id = id.get();
            native::SeekTo::Id { topic: Arc::clone(&id.topic), id: id.position(inclusive), inclusive }
        }
        Err(_) => native::SeekTo::Time(position.extract().map_err(|_| {
            PyTypeError::new_err("seek to a MessageId or to a time in milliseconds since 1970")
        })?),
    })
}

impl Subscription for native::Consumer {
    type Target = native::Target;

    fn target(object: &Bound<'_, PyAny>) -> PyResult<Self::Target> {
        if let Ok(message) = object.cast::<PulsarMessage>() {
            return Ok((&message.get().0).into());
        }
        match object.cast::<MessageId>() {
            Ok(id) => Ok((Arc::clone(&id.get().topic), id.get().id).into()),
            Err(_) => Err(wrong_target(object, "a PulsarMessage or a MessageId")),
        }
    }

    fn subscription(&self) -> &str {
        self.subscription()
    }

    fn is_connected(&self) -> bool {
        self.is_connected()
    }

    fn ack(&self, targets: &[Self::Target]) -> Result<()> {
        self.ack(targets)
    }

    async fn unsubscribe(&self) -> Result<()> {
        self.unsubscribe(false).await
    }

    fn add_stats(&self, stats: &Bound<'_, PyDict>) -> PyResult<()> {
        let counts = self.counts();
        stats.set_item("redelivered", counts.redelivered)?;
        stats.set_item("ack_timeouts", counts.ack_timeouts)?;
        stats.set_item("orphaned_chunks", counts.orphaned_chunks)?;
        stats.set_item("dropped_chunked_messages", counts.dropped_chunked_messages)?;
        stats.set_item("expired_chunked_messages", counts.expired_chunked_messages)?;
        stats.set_item("dead_letters", counts.dead_letters)?;
        stats.set_item("dead_letters_failed", counts.dead_letters_failed)?;
        stats.set_item("retried", counts.retried)
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

impl Redeliver for native::Consumer {
    fn ack_cumulative(&self, target: &Self::Target) -> Result<()> {
        self.ack_cumulative(target)
    }

    fn nack(&self, targets: &[Self::Target], delay: Option<Duration>) -> Result<()> {
        self.nack(targets, delay)
    }

    fn redeliver_unacknowledged(&self) -> Result<()> {
        self.redeliver_unacknowledged()
    }
}
