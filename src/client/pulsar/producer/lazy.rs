//! Partitions whose producers are opened when they get their first message.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::partition::{PartitionProducer, Supervisor};
use super::schemas::Registrar;
use crate::pulsar::options::ProducerOptions;
use crate::pulsar::reconnect::supervise;
use crate::pulsar::shared::Shared;
use forebay_base::error::Result;

/// Opens partitions, also for messages that are pushed outside the engine.
#[derive(Clone, Debug)]
pub(crate) struct Starter {
    registrar: Registrar,
    pub(super) options: ProducerOptions,
}

impl Starter {
    pub(super) fn new(registrar: Registrar, options: ProducerOptions) -> Self {
        Self { registrar, options }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        self.registrar.shared()
    }

    /// Opens the partition, unless that has begun already. Without `ready`, an error that another
    /// attempt may mend is tried on until the messages have reached their send timeout, and then
    /// named by it.
    pub(super) fn start(&self, part: &Arc<PartitionProducer>, ready: Option<oneshot::Sender<Result<()>>>) {
        if part.has_started() {
            return;
        }
        part.start(|| {
            let supervisor =
                Supervisor::new(self.registrar.clone(), Arc::clone(part), self.options.clone(), false);
            self.registrar.engine().spawn(supervise(supervisor, ready))
        });
    }
}
