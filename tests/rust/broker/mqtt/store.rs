//! A store that fails or is full, and messages that memory does not hold.

use forebay_broker::mqtt::SlowSubscriber;
use forebay_broker::protocol::Protocol as _;
use forebay_mqtt::packet::{Ack, Connect};
use forebay_mqtt::{Packet, Reason, Version};

use super::limited;
use crate::support::mqtt::*;

#[test]
fn a_store_that_failed_is_never_a_success() {
    let mut bench = Bench::new();
    let (subscriber, _, _) = bench.resume("s");
    bench.subscribe(&subscriber, "t", Q1);
    let (new, old) = (bench.connect("n"), bench.connect_with(Connect::new(Version::V3_1_1, "o"), false));
    bench.held = true;
    bench.tell(&new, Packet::Publish(publish("t", Q1, 1, "x"))).unwrap();
    bench.tell(&old, Packet::Publish(publish("t", Q1, 1, "x"))).unwrap();
    bench.fail();
    assert!(matches!(bench.one(&new), Packet::PubAck(ack) if ack.reason == Reason::Unspecified));
    assert!(
        bench.hear(&old).is_empty() && bench.broker.finished(old.id),
        "no answer, and it will send again"
    );
    assert!(bench.hear(&subscriber).is_empty());
    let answer = bench.ask(&new, Packet::Publish(publish("t", Q1, 2, "y")));
    assert!(matches!(answer, Packet::PubAck(ack) if ack.reason == Reason::Unspecified));
    let (_, heard) = bench.try_connect(Connect::new(Version::V5, "z"));
    assert!(matches!(&heard[..], [Packet::ConnAck(ack)] if ack.reason == Reason::ServerUnavailable));
}

#[test]
fn a_full_store_refuses_what_would_have_to_be_kept() {
    let mut bench = Bench::with(|settings| settings.max_store = 10);
    let (subscriber, _, _) = bench.resume("s");
    bench.subscribe(&subscriber, "t", Q1);
    let (new, old) = (bench.connect("n"), bench.connect_with(Connect::new(Version::V3_1_1, "o"), false));
    assert_eq!(bench.send(&new, "t", "x"), Reason::QuotaExceeded);
    assert!(bench.tell(&old, Packet::Publish(publish("t", Q1, 1, "x"))).is_err());
    bench.tell(&new, Packet::Publish(publish("t", Q0, 0, "passes"))).unwrap();
    assert_eq!(bench.payloads(&subscriber), ["passes"]);
}

#[test]
fn what_nobody_needs_any_more_leaves_the_store() {
    let mut bench = Bench::new();
    let names = ["a", "b"];
    for name in names {
        let (peer, _, _) = bench.resume(name);
        bench.subscribe(&peer, "t", Q2);
        bench.drop_peer(peer.id);
    }
    let publisher = bench.connect("p");
    for number in 0..20 {
        bench.send(&publisher, "t", &number.to_string());
    }
    bench.tell(&publisher, Packet::Publish(retained("t", Q1, 1, "kept"))).unwrap();
    let stored = |bench: &mut Bench| {
        let peer = bench.connect("look");
        let heard = bench.subscribe(&peer, "$SYS/broker/store/messages/count", Q0);
        text(&message(heard[0].clone()))
    };
    assert_eq!(stored(&mut bench), "21");
    for name in names {
        let (peer, _, heard) = bench.resume(name);
        assert_eq!(heard.len(), 21);
        for packet in heard {
            let publish = message(packet);
            bench.ack(&peer, &publish);
        }
    }
    assert_eq!(stored(&mut bench), "1", "the retained one");
    bench.tell(&publisher, Packet::Publish(retained("t", Q1, 1, ""))).unwrap();
    for name in names {
        let (peer, _, heard) = bench.resume(name);
        heard.into_iter().map(message).for_each(|publish| bench.ack(&peer, &publish));
    }
    assert_eq!(stored(&mut bench), "0");
    bench.kill(usize::MAX);
    assert_eq!(stored(&mut bench), "0");
}

#[test]
fn a_packet_cut_anywhere_is_a_packet_when_the_rest_comes() {
    let mut bench = Bench::new();
    let watcher = bench.connect("w");
    bench.subscribe(&watcher, "t", Q2);
    let mut whole = encode(Packet::Connect(Box::new(Connect::new(Version::V5, "a"))), Version::V5).to_vec();
    whole.extend_from_slice(&encode(Packet::Publish(publish("t", Q2, 1, "x")), Version::V5));
    whole.extend_from_slice(&encode(Packet::PubRel(Ack::new(id(1))), Version::V5));
    for cut in 0..=whole.len() {
        let id = bench.open_peer();
        let mut input = bytes::BytesMut::from(&whole[..cut]);
        bench.broker.handle_input(bench.now, id, &mut input).unwrap();
        input.extend_from_slice(&whole[cut..]);
        bench.broker.handle_input(bench.now, id, &mut input).unwrap();
        bench.settle();
        assert_eq!(bench.hear_as(id, Version::V5).len(), 3, "CONNACK, PUBREC, PUBCOMP");
        let got = bench.messages(&watcher);
        assert_eq!(got.len(), 1);
        let packet_id = got[0].packet_id.unwrap();
        bench.tell(&watcher, Packet::PubRec(Ack::new(packet_id))).unwrap();
        bench.tell(&watcher, Packet::PubComp(Ack::new(packet_id))).unwrap();
        bench.hear(&watcher);
        bench.drop_peer(id);
    }
}

#[test]
fn a_slow_subscriber_loses_qos_0_by_count_and_costs_no_more_than_its_share() {
    let mut bench = limited(|limits| limits.max_output = 10_000);
    let (slow, publisher) = (bench.connect("s"), bench.connect("p"));
    bench.subscribe(&slow, "t", Q0);
    for _ in 0..100 {
        bench.tell(&publisher, Packet::Publish(publish("t", Q0, 0, &"x".repeat(1000)))).unwrap();
    }
    let got = bench.messages(&slow).len() as u64;
    assert!((9..12).contains(&got), "{got}");
    assert_eq!(bench.broker.stats().messages_dropped, 100 - got);
}

#[test]
fn publishers_of_qos_0_are_not_read_while_a_subscriber_takes_what_it_has_unless_it_is_stuck() {
    let mut bench = limited(|limits| {
        limits.max_output = 3 << 20;
        limits.slow_subscriber = SlowSubscriber::Wait;
    });
    let (slow, publisher) = (bench.connect("s"), bench.connect("p"));
    bench.subscribe(&slow, "t", Q0);
    let payload = "x".repeat(100_000);
    let send = |bench: &mut Bench, count: usize| {
        for _ in 0..count {
            bench.tell(&publisher, Packet::Publish(publish("t", Q0, 0, &payload))).unwrap();
        }
    };
    send(&mut bench, 10);
    assert!(bench.broker.may_read(publisher.id));
    send(&mut bench, 2);
    assert!(!bench.broker.may_read(publisher.id) && bench.broker.may_read(slow.id));
    assert_eq!(bench.messages(&slow).len(), 12);
    assert!(bench.broker.may_read(publisher.id));
    send(&mut bench, 12);
    bench.pass(1);
    bench.pass(1);
    assert!(bench.broker.may_read(publisher.id), "it took nothing, so nothing waits for it");
    send(&mut bench, 100);
    assert!(bench.broker.may_read(publisher.id));
    assert!(bench.broker.stats().messages_dropped > 70);
    assert!(bench.messages(&slow).len() > 20);
    send(&mut bench, 12);
    assert!(!bench.broker.may_read(publisher.id), "it is back");
    bench.drop_peer(slow.id);
    assert!(bench.broker.may_read(publisher.id));
    let own = bench.connect("own");
    bench.subscribe(&own, "own", Q0);
    for _ in 0..20 {
        bench.tell(&own, Packet::Publish(publish("own", Q0, 0, &payload))).unwrap();
    }
    assert!(bench.broker.may_read(own.id), "a client does not wait for itself");
}

#[test]
fn publishers_wait_for_a_connected_subscriber_that_is_behind_but_not_for_one_that_is_stuck() {
    for stuck in [false, true] {
        let mut bench = limited(|limits| {
            limits.receive_maximum = 5000;
            limits.slow_subscriber = SlowSubscriber::Wait;
        });
        let (subscriber, publisher) = (bench.connect("s"), bench.connect("p"));
        bench.subscribe(&subscriber, "t", Q1);
        for number in 1..=1300 {
            bench.tell(&publisher, Packet::Publish(publish("t", Q1, number, ""))).unwrap();
        }
        let acked = |packets: Vec<Packet>| {
            let ids = packets.into_iter().filter_map(|packet| match packet {
                Packet::PubAck(ack) => Some(ack.packet_id.get()),
                _ => None,
            });
            ids.collect::<Vec<_>>()
        };
        let first = acked(bench.hear(&publisher));
        assert!((1000..1200).contains(&first.len()), "{}", first.len());
        assert_eq!(bench.ask(&publisher, Packet::PingReq), Packet::PingResp, "the connection goes on");
        let mut taken = 0;
        if stuck {
            bench.pass(1);
            bench.pass(1);
        } else {
            while taken < 900 {
                for message in bench.messages(&subscriber) {
                    bench.ack(&subscriber, &message);
                    taken += 1;
                }
            }
        }
        let second = acked(bench.hear(&publisher));
        assert_eq!([first, second].concat(), (1..=1300).collect::<Vec<_>>());
        assert_eq!(bench.broker.stats().messages_dropped, 0);
    }
}

#[test]
fn what_memory_does_not_hold_is_read_from_the_store() {
    let mut bench = Bench::new();
    let (peer, _, _) = bench.resume("s");
    bench.subscribe(&peer, "t", Q1);
    bench.drop_peer(peer.id);
    let publisher = bench.connect("p");
    for number in 0..1000 {
        bench.send(&publisher, "t", &number.to_string());
    }
    bench.kill(usize::MAX);
    let (peer, _, heard) = bench.resume("s");
    let mut got: Vec<_> = heard.into_iter().map(message).collect();
    let mut seen = Vec::new();
    while !got.is_empty() {
        for publish in std::mem::take(&mut got) {
            seen.push(text(&publish));
            bench.ack(&peer, &publish);
        }
        got = bench.messages(&peer);
    }
    assert_eq!(seen, (0..1000).map(|n| n.to_string()).collect::<Vec<_>>());
}
