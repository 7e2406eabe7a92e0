//! Finds the consumers of a message.

use std::sync::Arc;

use bytestring::ByteString;

use crate::mqtt::subscription::Subscription;
use forebay_base::random::HashMap;
use forebay_mqtt::packet::Publish;
use forebay_mqtt::topic::Filter;

/// Limit on topics whose consumers are cached.
const REMEMBERED: usize = 4096;

/// The consumers of a client.
#[derive(Debug, Default)]
pub(super) struct Routes {
    /// By subscription identifier.
    consumers: HashMap<u32, Arc<Subscription>>,
    /// Consumers by topic, cached until the consumers change.
    matched: HashMap<ByteString, Arc<[Arc<Subscription>]>>,
}

impl Routes {
    pub(super) fn insert(&mut self, id: u32, consumer: Arc<Subscription>) {
        self.consumers.insert(id, consumer);
        self.matched.clear();
    }

    pub(super) fn get(&self, id: u32) -> Option<Arc<Subscription>> {
        self.consumers.get(&id).cloned()
    }

    /// All consumers.
    pub(super) fn consumers(&self) -> impl Iterator<Item = &Arc<Subscription>> {
        self.consumers.values()
    }

    /// Whether a consumer has `filter`.
    pub(super) fn has(&self, filter: &Filter) -> bool {
        self.consumers
            .values()
            .any(|consumer| consumer.options.filters.iter().any(|(other, _)| other == filter))
    }

    pub(super) fn remove(&mut self, id: u32) {
        self.consumers.remove(&id);
        self.matched.clear();
    }

    /// Removes and returns all consumers.
    pub(super) fn take(&mut self) -> Vec<Arc<Subscription>> {
        self.matched.clear();
        std::mem::take(&mut self.consumers).into_values().collect()
    }

    /// The consumers of `publish`. With MQTT 5 the server names the subscriptions, which also tells
    /// apart the copies that it sends for overlapping filters; otherwise the filters are matched.
    pub(super) fn of(&mut self, publish: &Publish) -> Arc<[Arc<Subscription>]> {
        if publish.properties.subscription_identifier().is_some() {
            let named: Arc<[Arc<Subscription>]> = publish
                .properties
                .subscription_identifiers()
                .filter_map(|id| self.consumers.get(&id).cloned())
                // A resumed session may still have the identifiers of another process.
                .filter(|consumer| consumer.matches(&publish.topic))
                .collect();
            if !named.is_empty() {
                return named;
            }
        }
        if let Some(matched) = self.matched.get(&publish.topic) {
            return Arc::clone(matched);
        }
        let matched: Arc<[Arc<Subscription>]> =
            self.consumers.values().filter(|consumer| consumer.matches(&publish.topic)).cloned().collect();
        if self.matched.len() >= REMEMBERED {
            self.matched.clear();
        }
        self.matched.insert(publish.topic.clone(), Arc::clone(&matched));
        matched
    }
}
