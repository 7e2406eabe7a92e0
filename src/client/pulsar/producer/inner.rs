//! State that the clones of a producer share.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::AbortHandle;

use super::lazy::Starter;
use super::partitions::Parts;
use super::schemas::Registrar;
use super::topic_schema::TopicSchema;
use forebay_base::sync::Mutex;
use forebay_pulsar::schema::Codec;
use forebay_pulsar::topic::Router;

#[derive(Debug)]
pub(crate) struct Inner {
    pub(super) topic: String,
    pub(super) parts: Parts,
    /// Name at the broker, once a partition is open and it was asked for.
    pub(super) name: OnceLock<String>,
    /// Whether the topic has partitions, perhaps one only.
    pub(super) is_partitioned: bool,
    /// Opens the partitions that get their first message; `None` if all are opened from the
    /// beginning.
    pub(super) lazy: Option<Starter>,
    /// Registers the schemas of messages that have one of their own.
    pub(super) registrar: Registrar,
    /// Held while partitions are added, too.
    pub(super) router: Mutex<Router>,
    /// The task that asks for new partitions, if there may be some.
    pub(super) growth: Mutex<Option<AbortHandle>>,
    /// See [`Producer::patience`](super::Producer::patience).
    pub(super) patience: Option<Duration>,
    pub(super) closed: AtomicBool,
    /// Whether the topic has a schema, for payloads that have none.
    pub(super) topic_schema: TopicSchema,
    pub(super) codec: Option<Arc<dyn Codec>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop_growth();
        for part in self.parts.iter() {
            part.stop();
            part.close_quietly();
        }
    }
}

impl Inner {
    pub(super) fn stop_growth(&self) {
        let task = self.growth.lock().take();
        if let Some(task) = task {
            task.abort();
        }
    }
}
