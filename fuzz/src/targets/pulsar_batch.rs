//! An entry delivered to a consumer. The first four bytes are the size of its metadata: any batch,
//! compression, chunk or lie. The messages fit into the entry, and permits balance.

use std::time::Instant;

use bytes::Bytes;
use forebay_pulsar::Message;
use forebay_pulsar::consumer::{Consumer, Options};
use forebay_pulsar::frame::Payload;
use forebay_pulsar::{hot, pb};
use forebay_base::transmit::Transmit;

const LIMIT: usize = 1 << 20;

/// Plays one input.
pub fn play(data: &[u8]) {
    let now = Instant::now();
    let mut consumer = Consumer::new(0, Options { max_message_size: LIMIT, ..Options::default() });
    consumer.attach();
    // Twice: the second time as a redelivery with some of the batch acknowledged.
    for ack_set in [vec![], vec![5]] {
        let delivery = hot::Delivery {
            consumer_id: 0,
            message_id: pb::MessageIdData { ledger_id: 1, entry_id: 2, ..Default::default() },
            redelivery_count: Some(ack_set.len() as u32),
            ack_set,
            consumer_epoch: None,
        };
        let payload = Payload { entry: None, checksum: None, covered: Bytes::copy_from_slice(data) };
        let _ = consumer.handle_message(now, delivery, payload);
        let mut out: Vec<Message> = Vec::new();
        consumer.take(usize::MAX, &mut out);
        assert!(out.len() <= data.len().max(LIMIT));
        for message in &out {
            assert!(message.payload.len() <= LIMIT + data.len());
            consumer.ack(now, &message.id);
        }
        let mut transmit = Transmit::default();
        consumer.flush_acks();
        consumer.poll_transmit(&mut transmit);
        assert!(transmit.len() <= 64 * (out.len() + 4));
    }
}
