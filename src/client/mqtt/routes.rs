//! Which consumers a message is for.

use std::collections::HashMap;
use std::sync::Arc;

use bytestring::ByteString;

use crate::client::mqtt::consumer::Core;
use crate::mqtt::packet::Publish;

/// Topics whose consumers are remembered.
const REMEMBERED: usize = 4096;

/// The consumers by the number of their subscription.
#[derive(Debug, Default)]
pub(super) struct Routes {
    consumers: HashMap<u32, Arc<Core>>,
    /// What matching came to, until the consumers change.
    matched: HashMap<ByteString, Arc<[Arc<Core>]>>,
}

impl Routes {
    pub(super) fn insert(&mut self, id: u32, consumer: Arc<Core>) {
        self.consumers.insert(id, consumer);
        self.matched.clear();
    }

    pub(super) fn remove(&mut self, id: u32) {
        self.consumers.remove(&id);
        self.matched.clear();
    }

    /// All of them, to be ended.
    pub(super) fn take(&mut self) -> Vec<Arc<Core>> {
        self.matched.clear();
        std::mem::take(&mut self.consumers).into_values().collect()
    }

    /// Whose subscriptions `publish` is for. The server says so where it speaks 5.0, which also tells the copies
    /// apart that it sends for overlapping filters; else the filters are matched.
    pub(super) fn of(&mut self, publish: &Publish) -> Arc<[Arc<Core>]> {
        if publish.properties.subscription_identifier().is_some() {
            let named: Arc<[Arc<Core>]> = publish
                .properties
                .subscription_identifiers()
                .filter_map(|id| self.consumers.get(&id).cloned())
                // A kept session may still say the numbers of another process.
                .filter(|consumer| consumer.matches(&publish.topic))
                .collect();
            if !named.is_empty() {
                return named;
            }
        }
        if let Some(matched) = self.matched.get(&publish.topic) {
            return Arc::clone(matched);
        }
        let matched: Arc<[Arc<Core>]> =
            self.consumers.values().filter(|consumer| consumer.matches(&publish.topic)).cloned().collect();
        if self.matched.len() >= REMEMBERED {
            self.matched.clear();
        }
        self.matched.insert(publish.topic.clone(), Arc::clone(&matched));
        matched
    }
}
