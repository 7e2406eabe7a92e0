//! Deliveries to the connections of consumers.

use std::collections::{BTreeMap, VecDeque};

use super::connection::Connection;
use crate::pulsar::subscription::{ConsumerKey, Delivery, Sink};
use crate::pulsar::topic::is_stored;
use crate::stats::Traffic;
use forebay_base::machine::Machine;
use forebay_pulsar::command::Command;
use forebay_pulsar::frame::{Payload, encode_head};
use forebay_pulsar::{hot, pb};

/// Output bytes queued for a connection beyond which no entries are dispatched to it.
pub(super) const OUTPUT_HIGH_WATER: usize = 1 << 20;

/// Sends the deliveries of one topic.
pub(super) struct Dispatcher<'a> {
    pub(super) topic: u64,
    /// Index of the partition, or -1.
    pub(super) partition: i32,
    pub(super) connections: &'a mut BTreeMap<u64, Connection>,
    /// See [`OUTPUT_HIGH_WATER`].
    pub(super) high_water: usize,
    pub(super) wakes: &'a mut VecDeque<u64>,
    pub(super) counters: &'a mut Traffic,
}

impl Sink for Dispatcher<'_> {
    fn room(&mut self, consumer: ConsumerKey) -> bool {
        let Some(connection) = self.connections.get_mut(&consumer.session) else { return false };
        let room = connection.session.transmit().len() < self.high_water;
        // A non-persistent topic has nothing left to send once there is room.
        if !room && is_stored(self.topic) {
            connection.starved.insert(self.topic);
        }
        room
    }

    fn deliver(&mut self, delivery: Delivery<'_>) {
        let Some(connection) = self.connections.get_mut(&delivery.consumer.session) else { return };
        let entry = delivery.entry;
        let session = &mut connection.session;
        let stored = is_stored(self.topic);
        let payload = Payload {
            entry: (stored && session.wants_entry_metadata()).then_some(pb::BrokerEntryMetadata {
                broker_timestamp: Some(entry.stored_ms),
                index: Some(entry.last_index),
            }),
            checksum: entry.checksum.filter(|_| session.wants_checksum()),
            covered: entry.body.clone(),
        };
        let command = Command::Message(hot::Delivery {
            consumer_id: delivery.consumer.id,
            message_id: pb::MessageIdData {
                ledger_id: if stored { self.topic } else { 0 },
                entry_id: entry.sequence,
                partition: Some(self.partition),
                ..Default::default()
            },
            redelivery_count: (delivery.redelivery_count > 0).then_some(delivery.redelivery_count),
            ack_set: delivery.ack_set,
            consumer_epoch: delivery.epoch,
        });
        let out = session.transmit();
        if out.is_empty() {
            self.wakes.push_back(delivery.consumer.session);
        }
        out.append(|out| encode_head(&command, &payload, out));
        out.push(payload.covered);
        self.counters.messages_out += u64::from(entry.count);
        if delivery.redelivery_count > 0 {
            self.counters.messages_redelivered += u64::from(entry.count);
        }
        self.counters.bytes_out += entry.body.len() as u64;
    }
}
