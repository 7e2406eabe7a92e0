//! Partitions whose producers are opened when they get their first message.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::part::{PartitionProducer, Supervisor};
use crate::client::pulsar::options::ProducerOptions;
use crate::client::pulsar::part::supervise;
use crate::client::pulsar::shared::Shared;
use crate::error::Result;

/// Opens partitions. Messages are pushed outside the engine, so it keeps the engine's handle.
#[derive(Clone, Debug)]
pub(in crate::client) struct Starter {
    pub(super) shared: Arc<Shared>,
    pub(super) options: ProducerOptions,
    engine: Handle,
}

impl Starter {
    /// Must be called on the engine's runtime.
    pub(super) fn new(shared: Arc<Shared>, options: ProducerOptions) -> Self {
        Self { shared, options, engine: Handle::current() }
    }

    /// Opens the partition, unless that has begun already. Without `ready`, an error that another attempt may mend is
    /// tried on until the messages have reached their send timeout, and then named by it.
    pub(super) fn start(&self, part: &Arc<PartitionProducer>, ready: Option<oneshot::Sender<Result<()>>>) {
        if part.has_started() {
            return;
        }
        part.start(|| {
            let (shared, part) = (Arc::clone(&self.shared), Arc::clone(part));
            let options = self.shared.options.clone();
            let supervisor = Supervisor::new(shared, part, self.options.clone(), false);
            self.engine.spawn(supervise(supervisor, options, ready))
        });
    }
}
