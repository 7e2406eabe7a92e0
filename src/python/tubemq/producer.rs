//! The producer of TubeMQ.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{EventTime, Payload, borrowed, foreign_receipt};
use crate::dataframe::{Form, FrameRows};
use crate::sender::{Sender, Sink, pairs, producer_class};
use crate::sends::{Receipts, Waiting};
use crate::tubemq::position::Position;
use crate::value::IntoPython;
use forebay_base::error::Result;
use forebay_client::events::Receipt;
use forebay_client::traffic::SendCounts;
use forebay_client::tubemq::{Outgoing, Producer};
use forebay_rows::RowRef;

producer_class! {
    /// A producer of one topic.
    TubeMqProducer(Producer), keys = keys, push = push,
    send(
        key: [Option<&str>] = None,
        properties: [Option<Bound<'_, PyDict>>] = None,
        message_type: [Option<&str>] = None,
        event_time: [Option<EventTime>] = None,
    );
}

#[allow(clippy::too_many_arguments, reason = "the arguments of the Python method")]
fn push(
    sender: &Sender<Producer>,
    py: Python<'_>,
    waiting: Waiting<Producer>,
    payload: &Bound<'_, PyAny>,
    key: Option<&str>,
    properties: Option<Bound<'_, PyDict>>,
    message_type: Option<&str>,
    event_time: Option<EventTime>,
) -> PyResult<()> {
    let payload = Payload::of(payload)?;
    let properties = pairs(properties.as_ref())?;
    let message = Outgoing {
        payload: payload.bytes(),
        key,
        message_type,
        time: event_time.map(|time| time.0),
        properties: &borrowed(&properties),
    };
    sender.push(py, waiting, |native, park| native.push(&message, park))
}

impl Receipts for Producer {
    fn one(py: Python<'_>, receipt: Receipt) -> PyResult<Py<PyAny>> {
        match receipt {
            Receipt::Position(position) => Ok(Py::new(py, Position(position))?.into_any()),
            Receipt::Id(_) | Receipt::Chunked(_) | Receipt::Reason(_) => Err(foreign_receipt()),
        }
    }
}

impl Sink for Producer {
    fn topic(&self) -> &str {
        self.topic()
    }

    fn pending(&self) -> usize {
        self.pending()
    }

    fn is_connected(&self) -> bool {
        self.is_connected()
    }

    fn counts(&self) -> SendCounts {
        self.counts()
    }

    fn slots(&self) -> usize {
        self.slots()
    }

    fn push_rows<'a>(
        &self,
        _: &'a Form,
        rows: impl Iterator<Item = RowRef<'a>>,
        each: &mut dyn FnMut(usize),
    ) -> Result<()> {
        let mut messages = rows.map(|row| Outgoing {
            payload: row.payload,
            key: row.key,
            message_type: row.rare.message_type.as_deref(),
            time: (row.event_time != 0).then_some(row.event_time),
            properties: row.properties,
        });
        self.push_many(&mut messages, false, each)
    }

    fn patience(&self) -> Option<Duration> {
        Some(self.patience())
    }

    async fn close(&self, wait: bool) -> Result<()> {
        self.close(wait).await
    }
}
