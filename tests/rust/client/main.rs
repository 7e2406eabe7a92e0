//! The client's durable state across kills of its process.

#[cfg(feature = "broker")]
mod mqtt_outbox;
mod mqtt_outbox_store;
