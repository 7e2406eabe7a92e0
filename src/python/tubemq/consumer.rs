//! The consumer of TubeMQ.

use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::consumer::{Receiver, Redeliver, Subscription, consumer_class, targets};
use crate::convert::{py_result, wrong_target};
use crate::message::Message as _;
use crate::tubemq::position::Position;
use crate::value::IntoPython;
use forebay_base::error::Result;
use forebay_client::tubemq::{Consumer, PartitionState, SeekTo};
use forebay_tubemq::Partition;
use forebay_tubemq::consumer::{Message, Start};

consumer_class! {
    /// A member of a consumer group.
    TubeMqConsumer(Consumer), redelivers;

    fn seek(&self, py: Python<'_>, position: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let to = seek_to(position)?;
        self.0.run(py, |consumer| async move { consumer.seek(to).await })
    }

    /// Stops or resumes fetching from partitions, given as pairs of broker and partition; from all
    /// without any.
    fn set_paused(&self, py: Python<'_>, partitions: Option<Vec<(u32, u32)>>, paused: bool) -> PyResult<()> {
        let place = |(broker, id)| Partition { broker, id };
        let partitions: Option<Vec<_>> = partitions.map(|pairs| pairs.into_iter().map(place).collect());
        py_result(py, self.0.source(py)?.set_paused(partitions.as_deref(), paused))
    }

    /// The state of each partition.
    fn partitions<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.0.source(py)?.partitions().into_iter().map(|state| partition_state(py, state)).collect()
    }
}

fn seek_to(position: &Bound<'_, PyAny>) -> PyResult<SeekTo> {
    if let Ok(position) = position.cast::<Position>() {
        let position = position.get();
        return Ok(SeekTo::One(position.place(), position.0.offset));
    }
    match position.extract::<&str>() {
        Ok("first") => Ok(SeekTo::All(Start::First)),
        Ok("latest") => Ok(SeekTo::All(Start::Latest)),
        _ => Err(PyTypeError::new_err("seek to a Position, \"first\" or \"latest\"")),
    }
}

fn partition_state(py: Python<'_>, state: PartitionState) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("topic", &*state.topic)?;
    dict.set_item("broker_id", state.partition.broker)?;
    dict.set_item("partition", state.partition.id)?;
    dict.set_item("state", state.phase.name())?;
    dict.set_item("offset", state.offset)?;
    dict.set_item("max_offset", state.max_offset)?;
    dict.set_item("lag", state.lag)?;
    dict.set_item("lag_bytes", state.lag_bytes)?;
    Ok(dict)
}

impl Subscription for Consumer {
    type Target = Message;

    fn target(object: &Bound<'_, PyAny>) -> PyResult<Message> {
        Message::of(object).ok_or_else(|| wrong_target(object, "a TubeMqMessage"))
    }

    fn subscription(&self) -> &str {
        self.subscription()
    }

    fn is_connected(&self) -> bool {
        self.is_connected()
    }

    fn ack(&self, targets: &[Message]) -> Result<()> {
        self.ack(targets)
    }

    /// Closes only: brokers keep the offsets of a group and have no call to delete them.
    async fn unsubscribe(&self) -> Result<()> {
        self.close().await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

impl Redeliver for Consumer {
    fn ack_cumulative(&self, target: &Message) -> Result<()> {
        self.ack_cumulative(target)
    }

    fn nack(&self, targets: &[Message], delay: Option<Duration>) -> Result<()> {
        self.nack(targets, delay)
    }

    fn redeliver_unacknowledged(&self) -> Result<()> {
        self.redeliver_unacknowledged()
    }
}
