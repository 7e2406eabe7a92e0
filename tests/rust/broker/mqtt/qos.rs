//! The steps of QoS 1 and 2, in flight and after a lost connection.

use forebay_mqtt::packet::{Ack, Connect, Publish};
use forebay_mqtt::{Packet, Properties, Property, QoS, Reason, Version};

use crate::support::mqtt::*;

#[test]
fn qos_1_is_acknowledged_when_it_is_on_disk_and_delivered_then() {
    let mut bench = Bench::new();
    let (subscriber, _, _) = bench.resume("s");
    bench.subscribe(&subscriber, "t", Q1);
    let publisher = bench.connect("p");
    bench.held = true;
    bench.tell(&publisher, Packet::Publish(publish("t", Q1, 7, "x"))).unwrap();
    assert!(bench.hear(&publisher).is_empty() && bench.hear(&subscriber).is_empty());
    bench.write(usize::MAX);
    assert_eq!(bench.one(&publisher), Packet::PubAck(Ack::new(id(7))));
    let got = bench.messages(&subscriber);
    assert_eq!((text(&got[0]), got[0].qos, got[0].dup), ("x".into(), Q1, false));
    bench.ack(&subscriber, &got[0]);
    bench.write(usize::MAX);
    assert!(bench.hear(&subscriber).is_empty());
}

#[test]
fn qos_2_goes_its_four_steps_both_ways_and_a_repetition_is_no_second_message() {
    let mut bench = Bench::new();
    let (subscriber, _, _) = bench.resume("s");
    bench.subscribe(&subscriber, "t", Q2);
    let (publisher, _, _) = bench.resume("p");
    for _ in 0..3 {
        let publish = Publish { dup: true, ..publish("t", Q2, 5, "x") };
        assert_eq!(bench.ask(&publisher, Packet::Publish(publish)), Packet::PubRec(Ack::new(id(5))));
    }
    for reason in [Reason::Success, Reason::PacketIdentifierNotFound] {
        let answer = bench.ask(&publisher, Packet::PubRel(Ack::new(id(5))));
        assert_eq!(answer, Packet::PubComp(Ack::with_reason(id(5), reason)));
    }
    let got = bench.messages(&subscriber);
    assert_eq!(got.len(), 1);
    let packet_id = got[0].packet_id.unwrap();
    for _ in 0..2 {
        let answer = bench.ask(&subscriber, Packet::PubRec(Ack::new(packet_id)));
        assert_eq!(answer, Packet::PubRel(Ack::new(packet_id)));
    }
    bench.tell(&subscriber, Packet::PubComp(Ack::new(packet_id))).unwrap();
    let late = bench.ask(&subscriber, Packet::PubRec(Ack::new(packet_id)));
    assert_eq!(late, Packet::PubRel(Ack::new(packet_id)), "as Mosquitto does");
    let refusal = Ack::with_reason(packet_id, Reason::Unspecified);
    bench.tell(&subscriber, Packet::PubRec(refusal)).unwrap();
    assert_eq!(bench.hear(&subscriber), [], "a refusal has no answer [MQTT-4.3.3]");
}

#[test]
fn a_message_that_the_client_refuses_is_done() {
    let mut bench = Bench::new();
    let properties =
        Properties::new().with(Property::SessionExpiryInterval(u32::MAX)).with(Property::ReceiveMaximum(1));
    let connect = Connect { properties, ..lasting("s") };
    let subscriber = bench.connect_with(connect, false);
    bench.subscribe(&subscriber, "t", Q2);
    let publisher = bench.connect("p");
    for packet_id in 1..=2 {
        bench.tell(&publisher, Packet::Publish(publish("t", Q2, packet_id, "x"))).unwrap();
    }
    let got = bench.messages(&subscriber);
    assert_eq!(got.len(), 1, "one at a time");
    let refusal = Ack::with_reason(got[0].packet_id.unwrap(), Reason::QuotaExceeded);
    assert!(matches!(bench.ask(&subscriber, Packet::PubRec(refusal)), Packet::Publish(_)), "the next one");
}

#[test]
fn a_subscriber_gets_the_lower_of_both_qos() {
    let mut bench = Bench::new();
    let publisher = bench.connect("p");
    for (name, granted) in [("a", Q0), ("b", Q1), ("c", Q2)] {
        let peer = bench.connect(name);
        bench.subscribe(&peer, "t", granted);
        for (packet_id, sent) in [(1, Q0), (2, Q1), (3, Q2)] {
            bench.tell(&publisher, Packet::Publish(publish("t", sent, packet_id, ""))).unwrap();
            bench.tell(&publisher, Packet::PubRel(Ack::new(id(3)))).unwrap();
        }
        let got: Vec<QoS> = bench.messages(&peer).iter().map(|message| message.qos).collect();
        assert_eq!(got, [Q0, Q1, Q2].map(|sent| sent.min(granted)));
    }
}

#[test]
fn who_publishes_to_nobody_is_told_in_5_0() {
    let mut bench = Bench::new();
    let peer = bench.connect("p");
    assert_eq!(bench.send(&peer, "t", "x"), Reason::NoMatchingSubscribers);
    let old = bench.connect_with(Connect::new(Version::V3_1_1, "o"), false);
    assert_eq!(bench.send(&old, "t", "x"), Reason::Success);
}

#[test]
fn no_more_is_in_flight_than_the_client_can_take_and_the_rest_waits_in_order() {
    let mut bench = Bench::new();
    let properties = Properties::new().with(Property::ReceiveMaximum(3));
    let subscriber = bench.connect_with(Connect { properties, ..Connect::new(Version::V5, "s") }, false);
    bench.subscribe(&subscriber, "t", Q1);
    let publisher = bench.connect("p");
    for number in 0..10 {
        bench.send(&publisher, "t", &number.to_string());
    }
    let mut got = bench.messages(&subscriber);
    assert_eq!(got.len(), 3);
    let mut seen = Vec::new();
    while !got.is_empty() {
        let next = got.remove(0);
        seen.push(text(&next));
        bench.ack(&subscriber, &next);
        got.extend(bench.messages(&subscriber));
        assert!(got.len() <= 3);
    }
    assert_eq!(seen, (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[test]
fn a_message_too_large_for_a_client_is_dropped_for_it_alone() {
    let mut bench = Bench::new();
    let properties = Properties::new().with(Property::MaximumPacketSize(60));
    let small = bench.connect_with(Connect { properties, ..Connect::new(Version::V5, "s") }, false);
    bench.subscribe(&small, "t", Q1);
    let publisher = bench.connect("p");
    bench.send(&publisher, "t", &"x".repeat(60));
    bench.tell(&publisher, Packet::Publish(publish("t", Q0, 0, &"y".repeat(60)))).unwrap();
    bench.send(&publisher, "t", "small");
    assert_eq!(bench.payloads(&small), ["small"]);
    assert_eq!(bench.broker.stats().messages_dropped, 2);
}
