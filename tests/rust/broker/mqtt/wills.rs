//! Wills, delayed ones among them.

use bytes::Bytes;

use forebay_broker::protocol::Protocol as _;
use forebay_mqtt::packet::{Connect, Will};
use forebay_mqtt::{Properties, Property, Reason, Version};

use crate::support::mqtt::*;

fn with_will(client_id: &str, delay: u32, expiry: u32) -> Connect {
    let properties = if delay == 0 {
        Properties::new()
    } else {
        Properties::new().with(Property::WillDelayInterval(delay))
    };
    Connect {
        properties: Properties::new().with(Property::SessionExpiryInterval(expiry)),
        clean_start: false,
        will: Some(Will {
            qos: Q1,
            retain: false,
            properties,
            topic: "will".into(),
            payload: Bytes::from_static(b"gone"),
        }),
        ..Connect::new(Version::V5, client_id)
    }
}

#[test]
fn a_will_is_published_unless_the_client_says_goodbye() {
    let mut bench = Bench::new();
    let watcher = bench.connect("w");
    bench.subscribe(&watcher, "will", Q0);
    let peer = bench.connect_with(with_will("a", 0, 0), false);
    bench.disconnect(&peer, Reason::Success);
    assert!(bench.hear(&watcher).is_empty());
    let peer = bench.connect_with(with_will("a", 0, 0), false);
    bench.disconnect(&peer, Reason::DisconnectWithWill);
    assert_eq!(bench.payloads(&watcher), ["gone"]);
    let peer = bench.connect_with(with_will("a", 0, 0), false);
    bench.drop_peer(peer.id);
    assert_eq!(bench.payloads(&watcher), ["gone"]);
    let peer = bench.connect_with(with_will("a", 0, 0), false);
    assert!(bench.bytes(peer.id, &[0xf3, 0]).is_err(), "a violation");
    assert_eq!(bench.payloads(&watcher), ["gone"]);
    bench.drop_peer(peer.id);
    assert!(bench.hear(&watcher).is_empty(), "once");
}

#[test]
fn a_delayed_will_waits_for_the_client_to_come_back() {
    let mut bench = Bench::new();
    let watcher = bench.connect("w");
    bench.subscribe(&watcher, "will", Q0);
    let peer = bench.connect_with(with_will("a", 10, 100), false);
    bench.drop_peer(peer.id);
    bench.pass(9);
    let peer = bench.connect_with(with_will("a", 10, 100), true);
    bench.pass(9);
    assert!(bench.hear(&watcher).is_empty());
    bench.drop_peer(peer.id);
    bench.pass(11);
    assert_eq!(bench.payloads(&watcher), ["gone"]);
    // It is published at the end of the session at the latest.
    let peer = bench.connect_with(with_will("b", 100, 5), false);
    bench.drop_peer(peer.id);
    bench.pass(6);
    assert_eq!(bench.payloads(&watcher), ["gone"]);
    let peer = bench.connect_with(with_will("c", 100, 50), false);
    bench.drop_peer(peer.id);
    bench.connect("c");
    assert_eq!(bench.payloads(&watcher), ["gone"], "a clean start ends the session");
}

/// [MQTT-3.1.2-8]: a stop of the server ends the connection without a DISCONNECT of the client.
#[test]
fn a_stop_publishes_the_wills_of_sessions_that_end_with_it() {
    let mut bench = Bench::new();
    let (watcher, _, _) = bench.resume("w");
    bench.subscribe(&watcher, "will", Q1);
    bench.connect_with(with_will("a", 0, 0), false);
    bench.connect_with(with_will("b", 10, 0), false);
    // This one stays, and may come back after the restart.
    bench.connect_with(with_will("c", 30, 600), false);
    bench.broker.shut_down(bench.now);
    bench.settle();
    bench.kill(usize::MAX);
    let (watcher, present, heard) = bench.resume("w");
    assert!(present);
    assert_eq!(heard.len(), 2, "{heard:?}");
    bench.pass(31);
    assert_eq!(bench.payloads(&watcher), ["gone"]);
}

#[test]
fn a_will_of_a_session_that_stays_outlives_a_kill() {
    let mut bench = Bench::new();
    let (watcher, _, _) = bench.resume("w");
    bench.subscribe(&watcher, "will", Q1);
    bench.connect_with(with_will("a", 10, 100), false);
    bench.kill(usize::MAX);
    let (watcher, _, heard) = bench.resume("w");
    assert!(heard.is_empty());
    bench.pass(11);
    assert_eq!(bench.payloads(&watcher), ["gone"]);
}

#[test]
fn a_delayed_will_keeps_its_time_across_a_kill_and_so_does_the_end_of_a_session() {
    let mut bench = Bench::new();
    let (watcher, _, _) = bench.resume("w");
    bench.subscribe(&watcher, "will", Q1);
    let peer = bench.connect_with(with_will("a", 10, 30), false);
    bench.drop_peer(peer.id);
    bench.pass(5);
    bench.kill(usize::MAX);
    let (watcher, _, heard) = bench.resume("w");
    assert!(heard.is_empty());
    bench.pass(4);
    assert!(bench.hear(&watcher).is_empty());
    bench.pass(2);
    assert_eq!(bench.payloads(&watcher), ["gone"]);
    // Connected when the broker was killed, and never back: two more kills must not extend its life
    // for ever.
    bench.connect_with(with_will("b", 0, 30), false);
    for _ in 0..3 {
        bench.kill(usize::MAX);
        bench.settle();
        bench.pass(11);
    }
    bench.connect_with(with_will("b", 0, 30), false);
}
