//! The hot path without sockets: a batch out, a batch in.

use std::hint::black_box;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use forebay_base::transmit::Transmit;
use forebay_pulsar::consumer::{Consumer, Options as ConsumerOptions};
use forebay_pulsar::frame::{DEFAULT_MAX_MESSAGE_SIZE, Decoder, Frame, Payload};
use forebay_pulsar::message::Message;
use forebay_pulsar::producer::{Options as ProducerOptions, Producer};
use forebay_pulsar::{Outgoing, hot, pb};

const BATCH: u64 = 1000;

fn frames(size: usize) -> BytesMut {
    let now = Instant::now();
    let mut producer =
        Producer::new(1, ProducerOptions { batch_max_bytes: 4 << 20, ..ProducerOptions::default() });
    producer.attach("bench", -1, DEFAULT_MAX_MESSAGE_SIZE);
    let payload = vec![7; size];
    for _ in 0..BATCH {
        producer.push(now, 1, &Outgoing { payload: &payload, ..Outgoing::default() }).expect("there is room");
    }
    let mut out = Transmit::default();
    producer.poll_transmit(&mut out, usize::MAX);
    out.take()
}

fn hot_path(criterion: &mut Criterion) {
    for size in [100, 1024] {
        let mut group = criterion.benchmark_group(format!("batch of {BATCH} x {size} B"));
        group.throughput(Throughput::Elements(BATCH));
        group.bench_function("push, close, frame", |bench| bench.iter(|| black_box(frames(size))));

        let wire = frames(size);
        let metadata_and_body = {
            let frame = Decoder::new(DEFAULT_MAX_MESSAGE_SIZE).next(&mut wire.clone());
            frame.expect("a frame").expect("whole").payload.expect("an entry")
        };
        let message = Frame {
            command: forebay_pulsar::command::Command::Message(hot::Delivery {
                consumer_id: 1,
                message_id: pb::MessageIdData { ledger_id: 1, entry_id: 1, ..Default::default() },
                ..hot::Delivery::default()
            }),
            payload: Some(Payload { entry: None, ..metadata_and_body }),
        };
        let bytes: Bytes = message.to_bytes();
        group.bench_function("decode, check, split, take", |bench| {
            let mut out: Vec<Message> = Vec::with_capacity(BATCH as usize);
            bench.iter(|| {
                let mut consumer = Consumer::new(1, ConsumerOptions::default());
                consumer.attach();
                let mut input = BytesMut::from(&bytes[..]);
                let frame = Decoder::new(DEFAULT_MAX_MESSAGE_SIZE).next(&mut input);
                let frame = frame.expect("a frame").expect("whole");
                let forebay_pulsar::command::Command::Message(delivery) = frame.command else {
                    unreachable!()
                };
                let payload = frame.payload.expect("an entry");
                consumer.handle_message(Instant::now(), delivery, payload).expect("a good batch");
                out.clear();
                black_box(consumer.take(usize::MAX, &mut out));
            });
        });
        group.finish();
    }
}

criterion_group!(benches, hot_path);
criterion_main!(benches);
