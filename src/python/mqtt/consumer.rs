//! The consumer of MQTT.

use arrow_array::RecordBatch;
use pyo3::prelude::*;

use crate::consumer::{Receiver, Subscription, consumer_class, targets};
use crate::convert::wrong_target;
use crate::message::Message as _;
use crate::mqtt::message::to_batch;
use crate::receives::Source;
use crate::value::IntoPython;
use forebay_base::error::Result;
use forebay_client::mqtt::{Consumer, Message};

consumer_class! {
    /// A consumer of one or several topic filters.
    MqttConsumer(Consumer);
}

impl Source for Consumer {
    type Message = Message;

    fn topic(&self) -> &str {
        self.topic()
    }

    fn take(&self, max: usize, out: &mut Vec<Message>) -> Result<()> {
        self.take_ahead(max, out).map(drop)
    }

    fn handed_out(&self, messages: &[Message]) {
        self.handed_out(messages);
    }

    const TAKES_BACK: bool = true;

    fn put_back(&self, messages: Vec<Message>) {
        self.put_back(messages);
    }

    fn arm(&self) -> bool {
        self.arm()
    }

    fn to_batch(messages: &[Message]) -> Result<RecordBatch> {
        to_batch(messages)
    }
}

impl Subscription for Consumer {
    type Target = Message;

    fn target(object: &Bound<'_, PyAny>) -> PyResult<Message> {
        Message::of(object).ok_or_else(|| wrong_target(object, "an MqttMessage"))
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

    async fn unsubscribe(&self) -> Result<()> {
        self.unsubscribe().await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}
