//! Schemas of single messages are registered at the broker while their messages wait.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::part::PartitionProducer;
use crate::client::pulsar::schema;
use crate::client::pulsar::shared::Shared;
use crate::net::backoff::Backoff;
use crate::pulsar::schema::SchemaInfo;

/// Registers schemas. Messages are pushed outside the engine, so it keeps the engine's handle.
#[derive(Clone, Debug)]
pub(in crate::client) struct Registrar {
    shared: Arc<Shared>,
    engine: Handle,
}

impl Registrar {
    /// Must be called on the engine's runtime.
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, engine: Handle::current() }
    }

    /// Begins to register a schema.
    pub(super) fn start(&self, part: &Arc<PartitionProducer>, info: Arc<SchemaInfo>) {
        self.engine.spawn(register(Arc::clone(&self.shared), Arc::clone(part), info));
    }
}

/// Registers a schema, on another connection too, until the broker has answered or the producer has ended.
async fn register(shared: Arc<Shared>, part: Arc<PartitionProducer>, info: Arc<SchemaInfo>) {
    let mut backoff = Backoff::new(shared.options.max_backoff);
    // Without a connection the producer was closed, which failed its messages.
    while let Some(connection) = part.connection().await {
        let answer = match schema::register(&connection, part.topic(), &info).await {
            Err(error) if error.retriable() => {
                part.machine().note_schema_trouble(error);
                tokio::time::sleep(backoff.pause()).await;
                continue;
            }
            Err(error) => Err(schema::explain(&shared, part.topic(), Some(&info), error).await),
            Ok(version) => Ok(version),
        };
        if part.registered(&connection, &info, answer) {
            return;
        }
    }
}
