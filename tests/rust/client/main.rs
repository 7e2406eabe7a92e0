//! The client over lost connections and across kills of its process.

mod direct;
mod mqtt_outbox;
mod mqtt_outbox_format;
mod mqtt_outbox_store;
mod mqtt_reconnect;
mod pulsar_handshake;
mod pulsar_moved;
mod pulsar_reopen;
mod pulsar_schemas;
mod pulsar_unloads;
mod revocation;
mod script;
