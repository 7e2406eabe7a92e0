//! Subscriptions of the embedded broker under random steps, each run repeatable by its seed.

use std::time::Duration;

use forebay_broker::protocol::Protocol as _;
use forebay_pulsar::command::Command;
use forebay_pulsar::pb;

use crate::support::pulsar::*;

/// A consumer as seen from outside: its permits and the messages it holds.
struct Reader {
    peer: u64,
    permits: i64,
    held: Vec<u64>,
}

/// A subscription lives through sends, acknowledgements, nacks, broken connections and a slow disk,
/// in an order drawn from `seed`. Invariants: no message is delivered before its commit, after its
/// acknowledgement or without a permit, keys stay in order, and at the end every message was
/// delivered.
fn live(kind: i32, seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % below
    };
    let mut bench = Bench::new();
    let writer = bench.connect();
    bench.producer(writer, 1);
    let keeper = bench.connect();
    bench.subscribe(keeper, 1, kind);
    let close = pb::CommandCloseConsumer { consumer_id: 1, request_id: 1, ..Default::default() };
    bench.ask(keeper, Command::CloseConsumer(close));
    let (mut readers, mut sent, mut receipts): (Vec<Reader>, u64, u64) = (Vec::new(), 0, 0);
    let mut acked = std::collections::BTreeSet::new();
    let mut delivered = std::collections::BTreeSet::new();
    let most = if kind == EXCLUSIVE { 1 } else { 3 };
    let key = |entry: u64| entry % 5;
    for step in 0..400 {
        let last = step >= 380;
        match random(10) {
            0..=3 if !last => {
                bench.send(writer, 1, sent, |m| m.partition_key = Some(key(sent).to_string()));
                sent += 1;
            }
            4 if readers.len() < most => {
                let peer = bench.connect();
                bench.held = false;
                bench.settle();
                bench.subscribe(peer, 1, kind);
                readers.push(Reader { peer, permits: 0, held: Vec::new() });
            }
            5 if readers.len() > 1 && !last => {
                let gone = readers.swap_remove(random(readers.len() as u64) as usize);
                bench.broker.disconnect(bench.now, gone.peer);
            }
            6 => bench.held = !bench.held && !last,
            7 => bench.pass(Duration::from_millis(random(50))),
            _ if !readers.is_empty() => {
                let reader = random(readers.len() as u64) as usize;
                let reader = &mut readers[reader];
                while !reader.held.is_empty() && random(4) > 0 {
                    let entry = reader.held.remove(random(reader.held.len() as u64) as usize);
                    if random(4) == 0 {
                        let redeliver = pb::CommandRedeliverUnacknowledgedMessages {
                            consumer_id: 1,
                            message_ids: vec![id(entry)],
                            ..Default::default()
                        };
                        bench.tell(reader.peer, Command::RedeliverUnacknowledgedMessages(redeliver)).unwrap();
                        if kind == EXCLUSIVE || kind == FAILOVER {
                            reader.held.clear();
                        }
                    } else {
                        acked.insert(entry);
                        bench.ack_entry(reader.peer, 1, entry);
                    }
                }
                let permits = 1 + random(20);
                reader.permits += permits as i64;
                bench.flow(reader.peer, 1, permits as u32);
            }
            _ => {}
        }
        bench.settle();
        receipts +=
            bench.commands(writer).iter().filter(|c| matches!(c, Command::SendReceipt(_))).count() as u64;
        for at in 0..readers.len() {
            for entry in bench.entries(readers[at].peer) {
                assert!(entry < receipts, "{entry} before its commit, seed {seed}");
                assert!(
                    !acked.contains(&entry),
                    "{entry} after its acknowledgement, kind {kind} seed {seed}"
                );
                readers[at].permits -= 1;
                assert!(readers[at].permits >= 0, "{entry} without a permit, seed {seed}");
                if kind == KEY_SHARED {
                    let others = readers.iter().enumerate().filter(|(i, _)| *i != at);
                    assert!(
                        others.flat_map(|(_, other)| &other.held).all(|held| key(*held) != key(entry)),
                        "{entry} while another holds its key, seed {seed}"
                    );
                    let missed = (0..entry).any(|e| key(e) == key(entry) && !delivered.contains(&e));
                    assert!(!missed, "{entry} overtook its key, seed {seed}");
                }
                delivered.insert(entry);
                readers[at].held.push(entry);
            }
        }
    }
    bench.held = false;
    bench.settle();
    for _ in 0..200 {
        for reader in &mut readers {
            for entry in reader.held.drain(..) {
                acked.insert(entry);
                bench.ack_entry(reader.peer, 1, entry);
            }
            bench.flow(reader.peer, 1, 100);
        }
        for reader in &mut readers {
            reader.held = bench.entries(reader.peer);
        }
        if acked.len() as u64 == sent {
            break;
        }
    }
    if !readers.is_empty() {
        assert_eq!(acked.len() as u64, sent, "everything comes in the end, seed {seed}");
        assert_eq!(bench.broker.topic_stats(TOPIC).unwrap().subscriptions[0].backlog, 0);
    }
}

#[test]
fn a_subscription_lives_through_anything() {
    for kind in [EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED] {
        (0..40).for_each(|seed| live(kind, seed));
    }
}
