//! The client over lost connections and across kills of its process.

mod direct;
mod mqtt_late_connect;
mod mqtt_outbox;
mod mqtt_outbox_format;
mod mqtt_outbox_store;
mod pulsar_handshake;
mod pulsar_moved;
mod pulsar_reopen;
mod pulsar_schemas;
mod revocation;
mod script;
