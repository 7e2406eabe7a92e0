//! Slow subscribers: dropped, disconnected or waited for, by policy.

use std::time::Duration;

use forebay_broker::mqtt::{FullQueue, SlowSubscriber};
use forebay_broker::protocol::Protocol as _;
use forebay_mqtt::packet::Connect;
use forebay_mqtt::{Packet, Properties, Property, Reason, Version};

use super::{limited, subscribe_packet};
use crate::support::mqtt::*;

/// Number of PUBACKs among the packets.
fn acks(packets: &[Packet]) -> usize {
    packets.iter().filter(|packet| matches!(packet, Packet::PubAck(_))).count()
}

#[test]
fn a_slow_subscriber_of_qos_1_delays_its_publishers_and_neighbours_once_and_loses_what_is_over_its_limit() {
    let mut bench = limited(|limits| {
        limits.receive_maximum = 5000;
        limits.max_queue = 3000;
    });
    let (slow, fast, publisher) = (bench.connect("s"), bench.connect("f"), bench.connect("p"));
    bench.subscribe(&slow, "t", Q1);
    bench.subscribe(&fast, "t", Q1);
    let (mut acked, mut delivered, mut at_once) = (0, 0, 0);
    for number in 1..=5000 {
        bench.tell(&publisher, Packet::Publish(publish("t", Q1, number, ""))).unwrap();
        let now = acks(&bench.hear(&publisher));
        acked += now;
        at_once += usize::from(now == 1);
        for message in bench.messages(&fast) {
            bench.ack(&fast, &message);
            delivered += 1;
        }
        // Ten of it are taken in the time of a thousand publications: it is slow, but not stuck.
        if number % 100 == 0
            && let Some(message) = bench.messages(&slow).first()
        {
            bench.ack(&slow, message);
        }
        if number % 1000 == 200 {
            bench.pass(1);
        }
    }
    assert_eq!((acked, delivered), (5000, 5000));
    assert!(at_once > 4500, "{at_once} of 5000 were acknowledged at once");
    assert!(bench.broker.stats().messages_dropped > 1000, "over the limit of the slow one");
}

#[test]
fn queues_that_are_not_stored_are_limited_in_sum() {
    let mut bench = Bench::with(|settings| settings.max_transient = 100_000);
    let stored = bench.connect_with(lasting("stored"), false);
    let (a, b, publisher) = (bench.connect("a"), bench.connect("b"), bench.connect("p"));
    for (peer, filter) in [(&a, "a"), (&b, "b"), (&stored, "s")] {
        bench.subscribe(peer, filter, Q1);
    }
    let text = "x".repeat(10_000);
    let sent = |bench: &mut Bench, topic| {
        (0..20).take_while(|_| bench.send(&publisher, topic, &text) == Reason::Success).count()
    };
    let (of_a, of_b) = (sent(&mut bench, "a"), sent(&mut bench, "b"));
    assert_eq!((of_a, of_b), (9, 4), "one that uses up the limit leaves the other its half");
    assert!(bench.broker.stats().messages_dropped > 0);
    assert_eq!(sent(&mut bench, "s"), 20, "those of stored sessions have the store");
    let messages = bench.messages(&a);
    assert_eq!(sent(&mut bench, "a"), 0, "it has more than its share");
    messages.iter().take(6).for_each(|message| bench.ack(&a, message));
    assert_eq!(sent(&mut bench, "b"), 2);
    bench.drop_peer(a.id);
    assert_eq!(sent(&mut bench, "b"), 3, "a session that ends gives back what it had");

    // A message that many wait for is in memory once.
    let mut bench = Bench::with(|settings| settings.max_transient = 100_000);
    let publisher = bench.connect("p");
    let peers: Vec<_> = (0..50).map(|number| bench.connect(&number.to_string())).collect();
    peers.iter().for_each(|peer| drop(bench.subscribe(peer, "t", Q1)));
    for _ in 0..5 {
        assert_eq!(bench.send(&publisher, "t", &text), Reason::Success);
    }
    assert!(peers.iter().all(|peer| bench.messages(peer).len() == 5));
}

#[test]
fn a_subscriber_that_keeps_taking_messages_gets_all_of_a_bulk_that_is_far_larger_than_its_queue() {
    let mut bench = limited(|limits| {
        limits.receive_maximum = 1000;
        limits.max_queue = 3000;
    });
    let (subscriber, publisher) = (bench.connect("s"), bench.connect("p"));
    bench.subscribe(&subscriber, "t", Q1);
    let (mut sent, mut acked, mut delivered) = (0, 0, 0);
    // The publisher always has its window full, and the subscriber takes 400 messages in the time
    // of the grace.
    for _ in 0..60 {
        while sent < 20_000 && sent - acked < 1000 {
            sent += 1;
            bench.tell(&publisher, Packet::Publish(publish("t", Q1, sent as u16 % 2000 + 1, ""))).unwrap();
            acked += acks(&bench.hear(&publisher));
        }
        for _ in 0..4 {
            for message in bench.messages(&subscriber) {
                bench.ack(&subscriber, &message);
                delivered += 1;
            }
        }
        acked += acks(&bench.hear(&publisher));
        bench.pass_for(Duration::from_millis(250));
    }
    assert_eq!((sent, acked, delivered, bench.broker.stats().messages_dropped), (20_000, 20_000, 20_000, 0));
}

#[test]
fn a_slow_subscriber_of_qos_0_delays_its_publishers_once() {
    let mut bench = limited(|limits| limits.max_output = 3 << 20);
    let slow = bench.connect("s");
    let publisher = bench.connect_with(Connect { keep_alive: 1, ..Connect::new(Version::V5, "p") }, false);
    bench.subscribe(&slow, "t", Q0);
    let payload = "x".repeat(100_000);
    let send = |bench: &mut Bench, count: usize| {
        for _ in 0..count {
            bench.tell(&publisher, Packet::Publish(publish("t", Q0, 0, &payload))).unwrap();
        }
    };
    send(&mut bench, 12);
    assert!(!bench.broker.may_read(publisher.id), "it may be a burst");
    let late = bench.now + Duration::from_millis(1500);
    bench.broker.handle_session_timeout(late, publisher.id).expect("what it sends meanwhile is not read");
    bench.pass(1);
    assert!(bench.broker.may_read(publisher.id));
    for _ in 0..5 {
        // As much as its socket takes is far behind what comes.
        send(&mut bench, 40);
        assert!(bench.broker.may_read(publisher.id), "nothing waits for it any more");
        bench.pass_for(Duration::from_millis(500));
        let mut output = forebay_base::transmit::Transmit::default();
        bench.broker.take_output(bench.now, slow.id, &mut output);
    }
    assert!(bench.broker.stats().messages_dropped > 20);
    // Now its socket takes 3 MiB at once.
    send(&mut bench, 40);
    let mut output = forebay_base::transmit::Transmit::default();
    bench.broker.take_output(bench.now, slow.id, &mut output);
    send(&mut bench, 12);
    assert!(!bench.broker.may_read(publisher.id), "it is quick again");
    bench.hear(&slow);
    send(&mut bench, 12);
    assert!(!bench.broker.may_read(publisher.id), "it has caught up");
    bench.hear(&slow);
    assert!(bench.broker.may_read(publisher.id));
}

#[test]
fn a_subscriber_at_its_limit_is_disconnected_if_that_is_the_policy() {
    for qos in [Q0, Q1] {
        let mut bench = limited(|limits| {
            limits.slow_subscriber = SlowSubscriber::Disconnect;
            limits.max_queue = 100;
            limits.max_output = 10_000;
        });
        let (slow, publisher) = (bench.connect("s"), bench.connect("p"));
        bench.subscribe(&slow, "t", qos);
        for number in 1..=400 {
            let text = "x".repeat(100);
            bench.tell(&publisher, Packet::Publish(publish("t", qos, number, &text))).unwrap();
            bench.hear(&publisher);
        }
        assert_eq!(bench.ended(&slow), Reason::QuotaExceeded);
        assert_eq!(bench.broker.stats().sessions, 1);
    }
}

#[test]
fn mqtt_3_gets_no_puback_for_what_a_full_durable_queue_throws_away() {
    for full_queue in [FullQueue::Refuse, FullQueue::Drop] {
        let drop_when_full = full_queue == FullQueue::Drop;
        let mut bench = limited(|limits| {
            limits.max_queue = 10;
            limits.full_queue = full_queue;
        });
        let (peer, ..) = bench.resume("s");
        bench.subscribe(&peer, "t", Q1);
        bench.drop_peer(peer.id);
        let publisher = bench.connect_with(Connect::new(Version::V3_1_1, "p"), false);
        let mut acked = 0;
        for number in 1..=30 {
            if bench.tell(&publisher, Packet::Publish(publish("t", Q1, number, "x"))).is_err() {
                break;
            }
            acked += acks(&bench.hear(&publisher));
        }
        assert_eq!(acked, if drop_when_full { 30 } else { 10 });
        assert_eq!(bench.broker.finished(publisher.id), !drop_when_full);
        assert_eq!(bench.resume("s").2.len(), 10);
        assert_eq!(bench.broker.stats().messages_dropped, if drop_when_full { 20 } else { 1 });
    }
}

#[test]
fn messages_of_a_shared_subscription_go_to_another_member_when_the_session_of_theirs_ends() {
    for (qos, sent_stay) in [(Q1, false), (Q2, true)] {
        let mut bench = Bench::new();
        let narrow = Connect {
            properties: Properties::new().with(Property::ReceiveMaximum(2)),
            ..Connect::new(Version::V5, "dead")
        };
        let dead = bench.connect_with(narrow, false);
        bench.subscribe(&dead, "$share/g/jobs", qos);
        let publisher = bench.connect("p");
        for (number, payload) in ["1", "2", "3", "4"].into_iter().enumerate() {
            let packet = publish("jobs", qos, 1 + number as u16, payload);
            bench.tell(&publisher, Packet::Publish(packet)).unwrap();
        }
        assert_eq!(bench.payloads(&dead), ["1", "2"], "the window");
        let (other, ..) = bench.resume("other");
        bench.subscribe(&other, "$share/g/jobs", qos);
        bench.drop_peer(dead.id);
        let expected: &[&str] = if sent_stay { &["3", "4"] } else { &["1", "2", "3", "4"] };
        let got = bench.messages(&other);
        assert_eq!(got.iter().map(text).collect::<Vec<_>>(), expected);
        assert!(got.iter().all(|publish| !publish.dup), "it has not seen them");
        // They are stored with the session that has them now.
        bench.kill(usize::MAX);
        let again = bench.resume("other").2;
        assert_eq!(again.len(), expected.len());
    }
}

#[test]
fn messages_of_a_shared_subscription_that_wait_for_the_disk_outlive_the_session_of_their_member() {
    for qos in [Q1, Q2] {
        let mut bench = Bench::new();
        let publisher = bench.connect("p");
        let (dead, (other, ..)) = (bench.connect("dead"), bench.resume("other"));
        for peer in [&dead, &other] {
            bench.subscribe(peer, "$share/g/jobs", qos);
        }
        bench.held = true;
        // A change before all of them, so that those of the member without a store wait, too.
        bench.tell(&other, subscribe_packet([("x".to_owned(), Q1)])).unwrap();
        for (number, payload) in ["1", "2", "3", "4"].into_iter().enumerate() {
            let packet = publish("jobs", qos, 1 + number as u16, payload);
            bench.tell(&publisher, Packet::Publish(packet)).unwrap();
        }
        assert!(bench.hear(&dead).is_empty());
        bench.drop_peer(dead.id);
        assert!(bench.hear(&other).is_empty());
        bench.held = false;
        bench.settle();
        let heard = bench.hear(&other).into_iter().filter(|packet| matches!(packet, Packet::Publish(_)));
        let mut got: Vec<_> = heard.map(|packet| text(&message(packet))).collect();
        got.sort();
        assert_eq!(got, ["1", "2", "3", "4"]);
        assert_eq!(bench.broker.stats().messages_dropped, 0);
        // They are stored with the session that has them now.
        bench.kill(usize::MAX);
        assert_eq!(bench.resume("other").2.len(), 4);
    }
}

#[test]
fn a_copy_of_several_shared_subscriptions_goes_to_another_member_of_each() {
    for (plain, waiting, members) in [
        (false, false, &["of g", "of h"][..]),
        (true, false, &["of g", "of h"]),
        (false, true, &["of g", "of h"]),
        (true, true, &["of both"]),
        (false, false, &["of both"]),
    ] {
        let case = format!("beside a plain subscription: {plain}, before the disk: {waiting}, {members:?}");
        let mut bench = Bench::new();
        let publisher = bench.connect("p");
        let old = |name| Connect::new(Version::V3_1_1, name);
        // The first members get the first message.
        let dead = bench.connect_with(old("dead"), false);
        let others: Vec<_> = members.iter().map(|name| bench.connect_with(old(name), false)).collect();
        for (index, filter) in ["$share/g/jobs", "$share/h/jobs"].into_iter().enumerate() {
            bench.subscribe(&dead, filter, Q1);
            bench.subscribe(&others[index % others.len()], filter, Q1);
        }
        if plain {
            bench.subscribe(&dead, "jobs", Q1);
        }
        let witness = bench.resume("witness").0;
        bench.held = waiting;
        // A change that the message waits for.
        bench.tell(&witness, subscribe_packet([("x".to_owned(), Q1)])).unwrap();
        bench.tell(&publisher, Packet::Publish(publish("jobs", Q1, 1, "job"))).unwrap();
        assert_eq!(bench.payloads(&dead).len(), usize::from(!waiting), "one copy, {case}");
        bench.drop_peer(dead.id);
        bench.held = false;
        bench.settle();
        for other in &others {
            assert_eq!(bench.payloads(other), ["job"], "{case}");
        }
        assert_eq!(bench.broker.stats().messages_dropped, 0, "{case}");
    }
}
