//! Retained messages and those of a stored session keep their order among live ones.

use std::collections::BTreeSet;

use forebay_broker::protocol::Protocol as _;
use forebay_mqtt::packet::{Connect, Publish};
use forebay_mqtt::{Packet, Properties, Property, Reason, Version};

use super::{limited, subscribe_packet};
use crate::support::mqtt::*;

#[test]
fn a_filter_that_a_packet_repeats_is_subscribed_once_and_replayed_once() {
    let mut bench = Bench::new();
    let publisher = bench.connect("p");
    for number in 0..100 {
        let topic = format!("t/{number}");
        bench.tell(&publisher, Packet::Publish(retained(&topic, Q0, 0, &"x".repeat(1000)))).unwrap();
    }
    let peer = bench.connect("s");
    let filters = (0..1000).map(|n| ("t/#".to_owned(), if n % 2 == 0 { Q0 } else { Q1 }));
    bench.tell(&peer, subscribe_packet(filters)).unwrap();
    let mut heard = bench.hear(&peer);
    let Packet::SubAck(ack) = heard.remove(0) else { panic!("{heard:?}") };
    assert_eq!(ack.reasons.len(), 1000);
    assert_eq!(ack.reasons[..2], [Reason::granted(Q0), Reason::granted(Q1)]);
    let topics: Vec<_> = heard.into_iter().map(|packet| message(packet).topic.to_string()).collect();
    assert_eq!(topics.len(), 100);
    assert_eq!(bench.broker.stats().subscriptions, 1);
    bench.tell(&peer, subscribe_packet((0..1000).map(|_| ("$SYS/#".to_owned(), Q0)))).unwrap();
    let values = bench.hear(&peer).len() - 1;
    assert!((10..30).contains(&values), "{values} values of $SYS");
}

#[test]
fn retained_messages_wait_in_their_slots_until_the_subscriber_takes_them() {
    let mut bench = Bench::with(|settings| settings.stored = false);
    let publisher = bench.connect("p");
    for number in 0..1000 {
        let topic = format!("t/{number:04}");
        bench
            .tell(&publisher, Packet::Publish(retained(&topic, Q1, 1 + number % 2, &"x".repeat(1000))))
            .unwrap();
        bench.hear(&publisher);
    }
    let used = bench.broker.used_bytes();
    let peer = bench.connect("s");
    // All of them match all of the retained messages: 200 MB if they were copied or even listed.
    let filters =
        (0..200).map(|n| (format!("t/{}", if n == 0 { "+".to_owned() } else { "#".to_owned() }), Q1));
    bench.tell(&peer, subscribe_packet(filters)).unwrap();
    assert!(bench.broker.used_bytes() < used + (1 << 20), "{} bytes", bench.broker.used_bytes() - used);
    let (mut got, mut turns) = (Vec::new(), 0);
    loop {
        let heard: Vec<_> = bench
            .hear(&peer)
            .into_iter()
            .filter(|packet| matches!(packet, Packet::Publish(_)))
            .map(message)
            .collect();
        if heard.is_empty() {
            turns += 1;
            if turns > 3 {
                break;
            }
            bench.pass(0);
        }
        for publish in heard {
            bench.ack(&peer, &publish);
            got.push(publish.topic.to_string());
        }
    }
    let mut expected: Vec<_> = (0..1000).map(|number| format!("t/{number:04}")).collect();
    expected.extend_from_within(..);
    assert_eq!(got, expected);
}

#[test]
fn a_retained_message_never_comes_behind_a_newer_live_one_of_its_topic() {
    for (lasting_session, live_retain) in [(false, true), (true, true), (false, false), (true, false)] {
        let mut bench = Bench::new();
        let publisher = bench.connect("p");
        bench.tell(&publisher, Packet::Publish(retained("light", Q0, 0, "off"))).unwrap();
        let peer = if lasting_session { bench.resume("s").0 } else { bench.connect("s") };
        // SUBACK waits for the disk, and so does the replay behind it.
        bench.held = true;
        bench.tell(&peer, subscribe_packet([("light".to_owned(), Q0)])).unwrap();
        let live = Publish { retain: live_retain, ..publish("light", Q0, 0, "on") };
        bench.tell(&publisher, Packet::Publish(live)).unwrap();
        bench.held = false;
        bench.settle();
        let heard = bench.hear(&peer);
        let values = heard.iter().filter_map(|packet| match packet {
            Packet::Publish(publish) => Some(text(publish)),
            _ => None,
        });
        assert_eq!(values.collect::<Vec<_>>().last().map(String::as_str), Some("on"), "{heard:?}");
        bench.tell(&publisher, Packet::Publish(publish("light", Q0, 0, "dim"))).unwrap();
        assert_eq!(bench.payloads(&peer), ["dim"], "nothing waits any more");
    }
}

#[test]
fn messages_behind_a_replay_keep_their_order_whatever_their_qos() {
    let mut bench = Bench::new();
    let publisher = bench.connect("p");
    for topic in ["a", "b", "c"] {
        let retained = retained(topic, Q1, 1, "old");
        bench.tell(&publisher, Packet::Publish(retained)).unwrap();
        bench.hear(&publisher);
    }
    // A window of one: the replay waits for the first PUBACK.
    let narrow = Connect {
        properties: Properties::new().with(Property::ReceiveMaximum(1)),
        ..Connect::new(Version::V5, "s")
    };
    let peer = bench.connect_with(narrow, false);
    let mut got = bench.subscribe(&peer, "#", Q1);
    for (qos, payload) in [(Q0, "new 0"), (Q1, "new 1")] {
        bench.tell(&publisher, Packet::Publish(publish("c", qos, 2, payload))).unwrap();
    }
    bench.tell(&publisher, Packet::Publish(retained("b", Q1, 3, "newer"))).unwrap();
    let mut seen = Vec::new();
    while !got.is_empty() {
        for publish in std::mem::take(&mut got).into_iter().map(message) {
            if publish.qos != Q0 {
                bench.ack(&peer, &publish);
            }
            seen.push((publish.topic.to_string(), text(&publish)));
        }
        got = bench.hear(&peer);
    }
    let of = |topic: &str| {
        seen.iter().filter(|(name, _)| name == topic).map(|(_, text)| text.as_str()).collect::<Vec<_>>()
    };
    assert_eq!((of("a"), of("b"), of("c")), (vec!["old"], vec!["newer"], vec!["old", "new 0", "new 1"]));
}

#[test]
fn a_replay_of_a_stored_session_goes_on_after_a_lost_connection_and_after_a_kill() {
    for kill in [false, true] {
        let mut bench = Bench::new();
        let publisher = bench.connect("p");
        for number in 0..300 {
            bench.tell(&publisher, Packet::Publish(retained(&format!("t/{number:03}"), Q1, 1, "x"))).unwrap();
            bench.hear(&publisher);
        }
        let (peer, ..) = bench.resume("s");
        let first = bench.subscribe(&peer, "t/+", Q1);
        assert_eq!(first.len(), 100, "the window");
        if kill {
            bench.kill(usize::MAX)
        } else {
            bench.drop_peer(peer.id)
        }
        let (peer, present, mut heard) = bench.resume("s");
        assert!(present);
        let mut seen = BTreeSet::new();
        while !heard.is_empty() {
            for publish in std::mem::take(&mut heard).into_iter().map(message) {
                bench.ack(&peer, &publish);
                seen.insert(publish.topic.to_string());
            }
            heard = bench.hear(&peer);
        }
        assert_eq!(seen.len(), 300);
        bench.kill(usize::MAX);
        assert!(bench.resume("s").2.is_empty(), "the replay is finished");
    }
}

/// Acknowledges what is heard until nothing comes any more, and gives it.
fn take_all(bench: &mut Bench, peer: &Peer, mut heard: Vec<Packet>) -> Vec<Publish> {
    let mut taken = Vec::new();
    while !heard.is_empty() {
        for publish in std::mem::take(&mut heard).into_iter().map(message) {
            if publish.qos != Q0 {
                bench.ack(peer, &publish);
            }
            taken.push(publish);
        }
        heard = bench.hear(peer);
    }
    taken
}

/// A session that lasts, of which the replay of `count` retained messages waits for its window.
fn keep_retained(bench: &mut Bench, publisher: &Peer, count: usize) {
    for number in 0..count {
        bench.tell(publisher, Packet::Publish(retained(&format!("t/{number:03}"), Q1, 1, "x"))).unwrap();
        bench.hear(publisher);
    }
}

fn behind_an_unfinished_replay(bench: &mut Bench, publisher: &Peer, count: usize) -> Peer {
    keep_retained(bench, publisher, count);
    let (peer, ..) = bench.resume("s");
    assert_eq!(bench.subscribe(&peer, "t/+", Q1).len(), 100, "the window");
    peer
}

/// The weight of a message that waits is counted once for each subscriber, though they share it.
#[test]
fn what_waits_behind_replays_is_limited_as_output_is() {
    let mut bench = limited(|limits| limits.max_output = 100_000);
    let publisher = bench.connect("p");
    keep_retained(&mut bench, &publisher, 150);
    let (reader, ..) = bench.resume("s");
    let window = bench.subscribe(&reader, "t/+", Q1);
    let live = |text: &str| Packet::Publish(publish("t/live", Q0, 0, text));
    for _ in 0..50 {
        bench.tell(&publisher, live(&"x".repeat(10_000))).unwrap();
    }
    let dropped = bench.broker.stats().messages_dropped;
    assert!((38..42).contains(&dropped), "{dropped} of 50");
    let taken = take_all(&mut bench, &reader, window);
    assert_eq!(taken.iter().filter(|publish| publish.payload.len() == 10_000).count() as u64, 50 - dropped);
    // What has been taken makes room again.
    bench.tell(&publisher, live("y")).unwrap();
    assert_eq!(bench.payloads(&reader), ["y"]);
    assert_eq!(bench.broker.stats().messages_dropped, dropped);
}

#[test]
fn what_waits_behind_the_replays_of_all_is_limited_in_sum() {
    let mut bench = Bench::new();
    let publisher = bench.connect("p");
    keep_retained(&mut bench, &publisher, 150);
    let readers: Vec<_> = (0..40).map(|number| bench.resume(&format!("s{number}")).0).collect();
    readers.iter().for_each(|reader| assert_eq!(bench.subscribe(reader, "t/+", Q1).len(), 100));
    let payload = "x".repeat(1 << 20);
    for _ in 0..7 {
        bench.tell(&publisher, Packet::Publish(publish("t/live", Q0, 0, &payload))).unwrap();
    }
    let dropped = bench.broker.stats().messages_dropped;
    assert!((20..26).contains(&dropped), "{dropped} of 280 MiB are more than 256");
    for reader in &readers {
        bench.drop_peer(reader.id);
    }
    let reader = bench.connect("late");
    bench.subscribe(&reader, "t/live", Q0);
    bench.tell(&publisher, Packet::Publish(publish("t/live", Q0, 0, "y"))).unwrap();
    assert_eq!(bench.payloads(&reader), ["y"]);
    assert_eq!(bench.broker.stats().messages_dropped, dropped, "nothing is left of those that have gone");
}

#[test]
fn messages_retained_after_a_kill_are_delivered_once_behind_an_unfinished_replay() {
    let mut bench = Bench::new();
    let publisher = bench.connect("p");
    behind_an_unfinished_replay(&mut bench, &publisher, 300);
    bench.kill(usize::MAX);
    // The queue was empty at the kill: these are live, and only live.
    let publisher = bench.connect("p");
    for (topic, payload) in [("t/300", "1"), ("t/300", "2"), ("t/301", "1")] {
        bench.tell(&publisher, Packet::Publish(retained(topic, Q1, 1, payload))).unwrap();
        bench.hear(&publisher);
    }
    let (peer, present, heard) = bench.resume("s");
    assert!(present);
    let taken = take_all(&mut bench, &peer, heard);
    let topics: BTreeSet<_> = taken.iter().map(|publish| &publish.topic).collect();
    assert_eq!(topics.len(), 302);
    let last: Vec<_> = taken.iter().filter(|publish| &*publish.topic == "t/300").map(text).collect();
    assert_eq!(last, ["1", "2"]);
}

#[test]
fn a_replay_that_goes_on_with_newer_messages_leaves_the_positions_of_live_ones_alone() {
    let mut bench = Bench::new();
    let publisher = bench.connect("p");
    let peer = behind_an_unfinished_replay(&mut bench, &publisher, 150);
    bench.drop_peer(peer.id);
    // QoS 0 is not queued for a client that is away: the replay gives what is retained of it.
    for number in 0..20 {
        let topic = format!("t/120-{number}");
        bench.tell(&publisher, Packet::Publish(retained(&topic, Q0, 0, "x"))).unwrap();
    }
    let (peer, _, mut heard) = bench.resume("s");
    for number in 0..5 {
        bench.tell(&publisher, Packet::Publish(publish(&format!("t/live{number}"), Q1, 1, "x"))).unwrap();
        bench.hear(&publisher);
    }
    heard.extend(bench.hear(&peer));
    let taken = take_all(&mut bench, &peer, heard);
    let topics: BTreeSet<_> = taken.iter().map(|publish| &publish.topic).collect();
    assert_eq!(topics.len(), 150 + 20 + 5);
    let last: Vec<_> = taken[taken.len() - 5..].iter().map(|publish| publish.topic.to_string()).collect();
    assert_eq!(last, ["t/live0", "t/live1", "t/live2", "t/live3", "t/live4"]);
}
