//! The producer of MQTT.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{Fields, Payload, foreign_receipt};
use crate::dataframe::{Form, FrameRows};
use crate::mqtt::options::{message_properties, qos};
use crate::mqtt::reason::reason_code;
use crate::sender::{Sender, Sink, producer_class};
use crate::sends::{Receipts, Waiting};
use crate::value::IntoPython;
use forebay_base::error::Result;
use forebay_base::options::Source;
use forebay_client::events::Receipt;
use forebay_client::mqtt::{Outgoing, Producer};
use forebay_client::traffic::SendCounts;
use forebay_mqtt::{Property, QoS};
use forebay_rows::RowRef;

producer_class! {
    /// A publisher.
    MqttProducer(Producer), keys = topics, push = push,
    send(extras: [Option<Bound<'_, PyDict>>] = None);
}

fn push(
    sender: &Sender<Producer>,
    py: Python<'_>,
    waiting: Waiting<Producer>,
    payload: &Bound<'_, PyAny>,
    extras: Option<Bound<'_, PyDict>>,
) -> PyResult<()> {
    let payload = Payload::of(payload)?;
    let mut message = Outgoing { payload: payload.bytes(), ..Outgoing::default() };
    let topic;
    if let Some(extras) = &extras {
        let fields = Fields(extras);
        topic = fields.text("topic")?;
        message.topic = topic.as_deref();
        message.qos = fields.get("qos")?.map(|level| qos(py, level)).transpose()?;
        message.retain = fields.get("retain")?;
        message.properties = message_properties(py, &fields)?;
    }
    sender.push(py, waiting, |native, park| native.push(&message, park))
}

impl Receipts for Producer {
    fn one(py: Python<'_>, receipt: Receipt) -> PyResult<Py<PyAny>> {
        match receipt {
            Receipt::Reason(reason) => reason_code(py, reason),
            Receipt::Id(_) | Receipt::Chunked(_) | Receipt::Position(_) => Err(foreign_receipt()),
        }
    }
}

impl Sink for Producer {
    const SENDS_TO_TOPICS: bool = true;

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
            topic: row.topic,
            qos: row.rare.qos.and_then(QoS::from_bits),
            retain: row.rare.retain,
            properties: (row.properties.iter())
                .map(|(n, v)| Property::User((*n).into(), (*v).into()))
                .collect(),
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
