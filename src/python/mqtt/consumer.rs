//! The consumer of MQTT.

use pyo3::prelude::*;

use crate::consumer::{Receiver, Subscription, consumer_class, targets};
use crate::convert::wrong_target;
use crate::message::Message as _;
use crate::value::IntoPython;
use forebay_base::error::Result;
use forebay_client::mqtt::{Consumer, Message};

consumer_class! {
    /// A consumer of one or several topic filters.
    MqttConsumer(Consumer);
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
