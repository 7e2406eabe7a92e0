//! Non-persistent topics: an entry goes to the consumer that can take it now, or is dropped.

use super::{Delivery, Kind, Sink, Subscription};
use crate::log::Entry;

impl Subscription {
    /// Sends an entry that is not stored. Returns the number of messages that were dropped instead:
    /// the consumer had no permits, or its connection no room. Delivery times and the chunks of a
    /// message do not count, as on the real broker.
    pub fn pass(&mut self, entry: &Entry, sink: &mut dyn Sink) -> u64 {
        let chosen = match self.kind {
            Kind::Exclusive | Kind::Failover => self.active,
            Kind::Shared => self.next_consumer(sink).map(|at| self.consumers[at].key),
            Kind::KeyShared => self.ring.owner(entry.hash),
        };
        let at = self.consumers.iter().position(|consumer| Some(consumer.key) == chosen);
        let Some(at) = at.filter(|at| self.has_room(*at, sink)) else {
            self.dropped += u64::from(entry.count);
            return u64::from(entry.count);
        };
        self.rotation = at + 1;
        let consumer = &mut self.consumers[at];
        consumer.permits -= i64::from(entry.count);
        consumer.delivered += u64::from(entry.count);
        let consumer = consumer.key;
        sink.deliver(Delivery { consumer, entry, redelivery_count: 0, ack_set: Vec::new(), epoch: None });
        0
    }
}
