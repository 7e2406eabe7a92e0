//! Targets of the log records of `tracing`, which are the names of Python's loggers. Users
//! configure them: they stay as they are when a source file moves.

pub(super) const CREDENTIALS: &str = "forebay.credentials";
pub(super) const MQTT: &str = "forebay.mqtt";
pub(super) const MQTT_BIRTH: &str = "forebay.mqtt.birth";
pub(super) const MQTT_CONNECTION: &str = "forebay.mqtt.connection";
pub(super) const PULSAR: &str = "forebay.pulsar";
pub(super) const PULSAR_CONNECTION: &str = "forebay.pulsar.connection";
pub(super) const PULSAR_CONSUMER: &str = "forebay.pulsar.consumer";
pub(super) const PULSAR_PRODUCER: &str = "forebay.pulsar.producer";
pub(super) const PULSAR_RANGE: &str = "forebay.pulsar.range";
pub(super) const TUBEMQ: &str = "forebay.tubemq";
pub(super) const TUBEMQ_CONNECTION: &str = "forebay.tubemq.connection";
pub(super) const TUBEMQ_RANGE: &str = "forebay.tubemq.range";
