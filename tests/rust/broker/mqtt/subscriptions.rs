//! Subscriptions, shared ones among them, and the options of MQTT 5.0.

use forebay_mqtt::packet::{Ack, Connect, RetainHandling, Subscribe, SubscribeOptions, Unsubscribe};
use forebay_mqtt::{Packet, Properties, QoS, Reason, Version};

use super::{VERSIONS, subscribe_packet};
use crate::support::mqtt::*;

#[test]
fn options_of_5_0_do_what_they_say() {
    let mut bench = Bench::new();
    let peer = bench.connect("a");
    let options = SubscribeOptions { no_local: true, ..SubscribeOptions::qos(Q0) };
    bench.subscribe_with(&peer, "t", options, Some(7));
    bench.tell(&peer, Packet::Publish(publish("t", Q0, 0, "own"))).unwrap();
    let other = bench.connect("b");
    bench.tell(&other, Packet::Publish(retained("t", Q0, 0, "other"))).unwrap();
    let got = bench.messages(&peer);
    assert_eq!((text(&got[0]), got.len(), got[0].retain), ("other".into(), 1, false));
    assert_eq!(got[0].properties.subscription_identifiers().collect::<Vec<_>>(), [7]);
    let options = SubscribeOptions {
        retain_as_published: true,
        retain_handling: RetainHandling::IfNew,
        ..SubscribeOptions::qos(Q0)
    };
    assert!(bench.subscribe_with(&peer, "t", options, None).is_empty(), "not new");
    bench.tell(&other, Packet::Publish(retained("t", Q0, 0, "more"))).unwrap();
    assert!(bench.messages(&peer)[0].retain);
    bench.unsubscribe(&peer, "t");
    assert_eq!(bench.subscribe_with(&peer, "t", options, None).len(), 1, "new");
    bench.unsubscribe(&peer, "t");
    let never = SubscribeOptions { retain_handling: RetainHandling::Never, ..options };
    assert!(bench.subscribe_with(&peer, "t", never, None).is_empty());
}

#[test]
fn overlapping_subscriptions_give_one_copy() {
    let mut bench = Bench::new();
    let peer = bench.connect("a");
    bench.subscribe_with(&peer, "t/#", SubscribeOptions::qos(Q0), Some(1));
    bench.subscribe_with(&peer, "t/+", SubscribeOptions::qos(Q1), Some(2));
    bench.tell(&peer, Packet::Publish(publish("t/x", Q1, 1, "x"))).unwrap();
    let got =
        bench.hear(&peer).into_iter().find_map(|p| if let Packet::Publish(p) = p { Some(p) } else { None });
    let got = got.unwrap();
    assert_eq!(got.qos, Q1);
    assert_eq!(got.properties.subscription_identifiers().count(), 2);
}

#[test]
fn a_bad_filter_is_answered_in_5_0_and_ends_the_connection_in_3() {
    let mut bench = Bench::new();
    let subscribe = |filter: &str| {
        let filters =
            vec![(filter.into(), SubscribeOptions::qos(Q0)), ("good".into(), SubscribeOptions::qos(Q0))];
        Packet::Subscribe(Subscribe { packet_id: id(1), properties: Properties::new(), filters })
    };
    let (new, old) = (bench.connect("a"), bench.connect_with(Connect::new(Version::V3_1_1, "b"), false));
    for filter in ["a/#/b", "a+", "$share//t", "$share/g", &"x/".repeat(300)] {
        let Packet::SubAck(ack) = bench.ask(&new, subscribe(filter)) else { panic!("{filter}") };
        assert_eq!(ack.reasons, [Reason::TopicFilterInvalid, Reason::Success], "{filter}");
    }
    assert!(bench.tell(&old, subscribe("a/#/b")).is_err());
    assert!(bench.hear(&old).is_empty(), "3.x has no DISCONNECT from the server");
}

#[test]
fn an_empty_filter_and_a_bad_one_of_unsubscribe_end_the_connection() {
    let mut bench = Bench::new();
    for version in VERSIONS {
        for filter in ["", "a/#/b", "a+"] {
            let peer = bench.connect_with(Connect::new(version, "a"), false);
            let filters = vec!["good".into(), filter.into()];
            let packet = Unsubscribe { packet_id: id(1), properties: Properties::new(), filters };
            assert!(bench.tell(&peer, Packet::Unsubscribe(packet)).is_err(), "UNSUBSCRIBE {filter:?}");
            bench.drop_peer(peer.id);
        }
        let peer = bench.connect_with(Connect::new(version, "a"), false);
        let packet = subscribe_packet([("good".to_owned(), Q0), (String::new(), Q0)]);
        assert!(bench.tell(&peer, packet).is_err(), "SUBSCRIBE with an empty filter");
        bench.drop_peer(peer.id);
    }
}

/// A subscriber to whom a message of the QoS was sent, and its packet identifier.
fn in_flight(bench: &mut Bench, version: Version, qos: QoS) -> (Peer, u16) {
    let peer = bench.connect_with(Connect::new(version, "s"), false);
    bench.subscribe(&peer, "t", qos);
    let publisher = bench.connect("p");
    bench.tell(&publisher, Packet::Publish(publish("t", qos, 1, "x"))).unwrap();
    let packet_id = bench.messages(&peer)[0].packet_id.unwrap().get();
    bench.drop_peer(publisher.id);
    (peer, packet_id)
}

/// As Mosquitto 2.0 does, in all versions.
#[test]
fn an_acknowledgement_of_another_step_ends_the_connection_and_one_of_nothing_does_not() {
    type Wrap = fn(Ack) -> Packet;
    let [puback, pubrec, pubcomp]: [Wrap; 3] = [Packet::PubAck, Packet::PubRec, Packet::PubComp];
    for version in VERSIONS {
        for (qos, packet) in [(Q1, pubrec), (Q1, pubcomp), (Q2, puback), (Q2, pubcomp)] {
            let mut bench = Bench::new();
            let (peer, packet_id) = in_flight(&mut bench, version, qos);
            let packet = packet(Ack::new(id(packet_id)));
            assert!(bench.tell(&peer, packet.clone()).is_err(), "{packet:?} for {qos:?}");
        }
        let mut bench = Bench::new();
        let (peer, packet_id) = in_flight(&mut bench, version, Q1);
        let other = id(packet_id + 7);
        for packet in [puback, pubcomp] {
            bench.tell(&peer, packet(Ack::new(other))).unwrap();
            assert!(bench.hear(&peer).is_empty());
        }
        assert_eq!(bench.ask(&peer, pubrec(Ack::new(other))), Packet::PubRel(Ack::new(other)));
    }
}

#[test]
fn unsubscribing_ends_a_subscription_once() {
    let mut bench = Bench::new();
    let (peer, _, _) = bench.resume("a");
    bench.subscribe(&peer, "t", Q1);
    assert_eq!(bench.unsubscribe(&peer, "t"), [Reason::Success]);
    assert_eq!(bench.unsubscribe(&peer, "t"), [Reason::NoSubscriptionExisted]);
    bench.kill(usize::MAX);
    let publisher = bench.connect("p");
    assert_eq!(bench.send(&publisher, "t", "x"), Reason::NoMatchingSubscribers);
}

#[test]
fn a_shared_subscription_gives_each_message_to_one_member() {
    let mut bench = Bench::new();
    let members = ["a", "b", "c"].map(|name| bench.resume(name).0);
    for member in &members {
        bench.subscribe(member, "$share/g/t", Q1);
    }
    let publisher = bench.connect("p");
    for number in 0..6 {
        bench.send(&publisher, "t", &number.to_string());
    }
    let got = members.map(|member| bench.payloads(&member));
    assert_eq!(got, [["0", "3"], ["1", "4"], ["2", "5"]]);
    bench.drop_peer(members[1].id);
    for number in 6..10 {
        bench.send(&publisher, "t", &number.to_string());
    }
    assert_eq!(bench.payloads(&members[0]).len() + bench.payloads(&members[2]).len(), 4, "who is there");
    bench.drop_peer(members[0].id);
    bench.drop_peer(members[2].id);
    assert_eq!(bench.send(&publisher, "t", "kept"), Reason::Success);
    bench.tell(&publisher, Packet::Publish(publish("t", Q0, 0, "not kept"))).unwrap();
    let heard: Vec<_> =
        ["a", "b", "c"].into_iter().flat_map(|name| bench.resume(name).2).map(message).collect();
    let fresh: Vec<_> = heard.iter().filter(|message| !message.dup).map(text).collect();
    assert_eq!(fresh, ["kept"]);
}

#[test]
fn a_session_of_mqtt_3_gets_one_copy_with_the_highest_qos_of_all_its_filters() {
    for version in VERSIONS {
        let mut bench = Bench::new();
        let one = bench.connect_with(Connect::new(version, "one"), false);
        for (filter, qos) in [("t/#", Q0), ("$share/g/t/+", Q1), ("$share/h/t/x", Q2)] {
            bench.subscribe(&one, filter, qos);
        }
        let shared_only = bench.connect_with(Connect::new(version, "two"), false);
        for (filter, qos) in [("$share/i/t/+", Q1), ("$share/j/t/x", Q2)] {
            bench.subscribe(&shared_only, filter, qos);
        }
        let publisher = bench.connect("p");
        for (qos, all) in [(Q0, [Q0; 3]), (Q2, [Q0, Q1, Q2])] {
            bench.tell(&publisher, Packet::Publish(publish("t/x", qos, 1, "x"))).unwrap();
            for (peer, copies) in [(&one, &all[..]), (&shared_only, &all[1..])] {
                let mut got: Vec<QoS> = bench.messages(peer).iter().map(|message| message.qos).collect();
                got.sort_unstable();
                let once = &copies[copies.len() - 1..];
                assert_eq!(got, if version == Version::V5 { copies } else { once }, "{version:?}, {qos:?}");
            }
        }
    }
}

#[test]
fn topics_of_dollar_are_not_for_wildcards_and_sys_is_the_brokers_own() {
    let mut bench = Bench::new();
    let peer = bench.connect("a");
    bench.subscribe(&peer, "#", Q0);
    bench.subscribe(&peer, "+/x", Q0);
    bench.tell(&peer, Packet::Publish(publish("$x/x", Q0, 0, "hidden"))).unwrap();
    assert!(bench.hear(&peer).is_empty());
    let heard = bench.subscribe(&peer, "$SYS/broker/clients/connected", Q1);
    let got = message(heard[0].clone());
    assert_eq!((text(&got), got.retain), ("1".into(), true));
    bench.connect("b");
    bench.pass(11);
    assert_eq!(bench.payloads(&peer), ["2"]);
    assert_eq!(bench.send(&peer, "$SYS/broker/version", "mine"), Reason::NotAuthorized);
    let heard = bench.subscribe(&peer, "$SYS/#", Q0);
    assert!(heard.len() > 10);
}
