//! Filters that cost much are refused or take turns.

use forebay_mqtt::packet::Connect;
use forebay_mqtt::{Packet, QoS, Reason, Version};

use super::{limited, subscribe_packet};
use crate::support::mqtt::*;

#[test]
fn a_session_whose_searches_for_retained_messages_are_long_delays_those_of_others_by_turns_only() {
    let mut bench = Bench::with(|settings| settings.stored = false);
    let publisher = bench.connect("p");
    for topic in (0..3000).map(|number| format!("a/{number}/x")).chain(["a/~/z".to_owned()]) {
        bench.tell(&publisher, Packet::Publish(retained(&topic, Q0, 0, "x"))).unwrap();
    }
    let (older, newer) = (bench.connect("1"), bench.connect("2"));
    let long = (0..100).map(|number| (format!("a/+/y{number}"), Q0)).chain([("a/0/x".to_owned(), Q0)]);
    bench.tell(&older, subscribe_packet(long)).unwrap();
    bench.tell(&newer, subscribe_packet([("a/+/z".to_owned(), Q0)])).unwrap();
    let mut turns = 0;
    let found = |heard: Vec<Packet>| heard.iter().any(|packet| matches!(packet, Packet::Publish(_)));
    while !found(bench.hear(&newer)) {
        bench.pass(0);
        turns += 1;
        assert!(turns < 20, "it waits for the other's searches");
    }
    assert!(turns > 0, "the search takes more than one turn");
    while !found(bench.hear(&older)) {
        bench.pass(0);
        turns += 1;
    }
    assert!(turns > 50, "{turns}");
}

/// Filters of 199 levels that all match one topic, with every combination of `a` and `+` in their
/// first levels.
fn fan(bits: usize) -> Vec<(String, QoS)> {
    let filter = |number: usize| {
        let head = (0..bits).map(|bit| if number >> bit & 1 == 1 { "a" } else { "+" });
        head.chain(std::iter::repeat_n("a", 199 - bits)).collect::<Vec<_>>().join("/")
    };
    (0..1 << bits).map(|number| (filter(number), Q0)).collect()
}

#[test]
fn a_topic_that_too_many_filters_have_to_be_compared_with_is_refused_and_the_others_are_not() {
    let mut bench = Bench::new();
    let (attacker, neighbour) = (bench.connect("a"), bench.connect("n"));
    bench.tell(&attacker, subscribe_packet(fan(11))).unwrap();
    bench.hear(&attacker);
    bench.subscribe(&neighbour, "#", Q0);
    let publisher = bench.connect("p");
    let deep = vec!["a"; 199].join("/");
    assert_eq!(bench.send(&publisher, &deep, "x"), Reason::QuotaExceeded);
    bench.tell(&publisher, Packet::Publish(publish(&deep, Q0, 0, "x"))).unwrap();
    assert_eq!(bench.broker.stats().messages_dropped, 1);
    assert!(bench.payloads(&neighbour).is_empty());
    assert_eq!(bench.send(&publisher, &["a"; 10].join("/"), "y"), Reason::Success);
    assert_eq!(bench.payloads(&neighbour), ["y"]);
    let old = bench.connect_with(Connect::new(Version::V3_1_1, "old"), false);
    let refused = bench.tell(&old, Packet::Publish(publish(&deep, Q1, 1, "x")));
    assert!(refused.is_err(), "MQTT 3.x has no negative PUBACK");
}

#[test]
fn subscriptions_have_a_budget_over_all_sessions_and_a_share_for_each() {
    let mut bench = limited(|limits| limits.max_subscription_bytes = 160_000);
    let filters =
        |name: &str| (0..100).map(|n| (format!("{name}/{n}/{}", "x".repeat(700)), Q0)).collect::<Vec<_>>();
    let granted = |bench: &mut Bench, peer: &Peer, name: &str| {
        bench.tell(peer, subscribe_packet(filters(name))).unwrap();
        let Some(Packet::SubAck(ack)) = bench.hear(peer).into_iter().next() else { panic!("no SUBACK") };
        let (good, bad): (Vec<Reason>, Vec<Reason>) = ack.reasons.into_iter().partition(|r| !r.is_error());
        assert!(bad.iter().all(|reason| *reason == Reason::QuotaExceeded));
        good.len()
    };
    let first = bench.connect("0");
    assert_eq!(granted(&mut bench, &first, "0"), 10, "a sixteenth of 160,000 bytes");
    assert_eq!(granted(&mut bench, &first, "0"), 10, "it has those already");
    let all: usize = (1..20)
        .map(|number| {
            let peer = bench.connect(&number.to_string());
            granted(&mut bench, &peer, &number.to_string())
        })
        .sum();
    assert!((140..160).contains(&all), "{all}");
    let filter = &filters("0")[0].0;
    assert_eq!(bench.unsubscribe(&first, filter), [Reason::Success]);
    assert!(bench.subscribe(&first, filter, Q0).is_empty(), "there is room again");
}
