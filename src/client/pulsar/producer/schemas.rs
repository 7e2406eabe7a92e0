//! Schemas of single messages are registered at the broker while their messages wait.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::partition::PartitionProducer;
use crate::pulsar::schema;
use crate::pulsar::shared::Shared;
use forebay_net::backoff::Backoff;
use forebay_pulsar::schema::SchemaInfo;

/// Registers schemas. Messages are pushed outside the engine, so it keeps the engine's handle.
#[derive(Clone, Debug)]
pub(crate) struct Registrar {
    shared: Arc<Shared>,
    engine: Handle,
}

impl Registrar {
    /// Must be called on the engine's runtime.
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, engine: Handle::current() }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn engine(&self) -> &Handle {
        &self.engine
    }

    /// Begins to register a schema.
    pub(super) fn start(&self, part: &Arc<PartitionProducer>, info: Arc<SchemaInfo>) {
        self.engine.spawn(register(Arc::clone(&self.shared), Arc::clone(part), info));
    }
}

/// Longest time between two looks whether messages still wait for a schema.
const LOOK: Duration = Duration::from_secs(10);

/// Registers a schema, on another connection too, until the broker has answered, no message waits
/// for it any more, or the producer has ended.
async fn register(shared: Arc<Shared>, part: Arc<PartitionProducer>, info: Arc<SchemaInfo>) {
    let mut backoff = Backoff::new(shared.options.max_backoff);
    while part.machine().wants_schema(&info) {
        let connection = match tokio::time::timeout(LOOK, part.connection()).await {
            Ok(Some(connection)) => connection,
            // The producer was closed, which failed its messages.
            Ok(None) => return,
            Err(_) => continue,
        };
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
