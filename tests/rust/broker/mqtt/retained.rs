//! Retained messages: kept, limited, expired.

use forebay_mqtt::packet::{Ack, Publish};
use forebay_mqtt::{Packet, Properties, Property, Reason};

use super::limited;
use crate::support::mqtt::*;

#[test]
fn the_last_retained_message_awaits_new_subscribers_also_after_a_kill() {
    let mut bench = Bench::new();
    let publisher = bench.connect("p");
    for (packet_id, payload) in [(1, "old"), (2, "new")] {
        bench.tell(&publisher, Packet::Publish(retained("t/a", Q1, packet_id, payload))).unwrap();
    }
    bench.tell(&publisher, Packet::Publish(retained("t/b", Q0, 0, "zero"))).unwrap();
    bench.tell(&publisher, Packet::Publish(retained("t/c", Q1, 3, "cleared"))).unwrap();
    bench.tell(&publisher, Packet::Publish(retained("t/c", Q1, 4, ""))).unwrap();
    for _ in 0..2 {
        let peer = bench.connect("s");
        let got: Vec<_> = bench.subscribe(&peer, "t/+", Q2).into_iter().map(message).collect();
        let mut seen: Vec<_> = got.iter().map(|m| (&*m.topic, text(m), m.qos, m.retain)).collect();
        seen.sort();
        assert_eq!(seen, [("t/a", "new".into(), Q1, true), ("t/b", "zero".into(), Q0, true)]);
        assert!(bench.subscribe(&peer, "$share/g/t/+", Q1).is_empty(), "not for shared subscriptions");
        bench.kill(usize::MAX);
    }
    assert_eq!(bench.broker.stats().retained, 2);
}

#[test]
fn the_memory_of_retained_messages_is_limited_with_a_store_too() {
    let mut bench = limited(|limits| limits.max_retained_bytes = 20_000);
    let publisher = bench.connect("p");
    let retain = |bench: &mut Bench, packet_id: u16, topic: &str, bytes: usize| {
        let message = retained(topic, Q1, packet_id, &"x".repeat(bytes));
        let Packet::PubAck(answer) = bench.ask(&publisher, Packet::Publish(message)) else {
            panic!("PUBACK")
        };
        answer.reason != Reason::QuotaExceeded
    };
    assert!(retain(&mut bench, 1, "a", 9000) && retain(&mut bench, 2, "b", 9000));
    assert!(!retain(&mut bench, 3, "c", 9000), "a new one");
    assert!(!retain(&mut bench, 4, "a", 12_000), "a larger one");
    assert!(retain(&mut bench, 5, "a", 8000) && retain(&mut bench, 6, "b", 100), "smaller ones");
    assert!(retain(&mut bench, 7, "c", 9000));
    assert_eq!(bench.broker.stats().retained, 3);
    bench.kill(usize::MAX);
    let publisher = bench.connect("p");
    let more = bench.ask(&publisher, Packet::Publish(retained("d", Q1, 8, &"x".repeat(9000))));
    assert_eq!(more, Packet::PubAck(Ack::with_reason(id(8), Reason::QuotaExceeded)));
}

#[test]
fn retained_messages_are_limited_and_expire() {
    let mut bench = limited(|limits| limits.max_retained = 1);
    let publisher = bench.connect("p");
    let properties = Properties::new().with(Property::MessageExpiryInterval(5));
    let first = Publish { properties, ..retained("a", Q1, 1, "x") };
    bench.tell(&publisher, Packet::Publish(first)).unwrap();
    bench.hear(&publisher);
    let refused = bench.ask(&publisher, Packet::Publish(retained("b", Q1, 2, "x")));
    assert_eq!(refused, Packet::PubAck(Ack::with_reason(id(2), Reason::QuotaExceeded)));
    bench.pass(6);
    assert_eq!(bench.broker.stats().retained, 0);
}
