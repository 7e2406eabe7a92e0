//! The embedded MQTT broker as packets. No socket and no clock: the state machine, on a database, is driven by hand.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use penstock::broker::auth::TokenKey;
use penstock::broker::mqtt::{FullQueue, Limits, SlowSubscriber};
use penstock::broker::protocol::{Clock, Protocol as _};
use penstock::mqtt::packet::{
    Ack, Connect, Disconnect, Publish, RetainHandling, Subscribe, SubscribeOptions, Unsubscribe, Will,
};
use penstock::mqtt::{Packet, Properties, Property, QoS, Reason, Version};

use crate::support::mqtt::*;

const VERSIONS: [Version; 3] = [Version::V3_1, Version::V3_1_1, Version::V5];

fn limited(change: impl FnOnce(&mut Limits)) -> Bench {
    Bench::with(|settings| change(&mut settings.limits))
}

// Connections

#[test]
fn each_version_is_spoken_and_answers_in_its_own_form() {
    for version in VERSIONS {
        let mut bench = Bench::new();
        let peer = bench.connect_with(Connect::new(version, "a"), false);
        assert!(bench.subscribe(&peer, "t", Q2).is_empty());
        bench.tell(&peer, Packet::Publish(publish("t", Q0, 0, "x"))).unwrap();
        assert_eq!(bench.payloads(&peer), ["x"]);
        assert_eq!(bench.ask(&peer, Packet::PingReq), Packet::PingResp);
    }
}

#[test]
fn anything_before_connect_and_a_second_connect_end_the_connection() {
    let mut bench = Bench::new();
    let peer = Peer { id: bench.open_peer(), version: Version::V5 };
    assert!(bench.tell(&peer, Packet::PingReq).is_err());
    assert!(bench.hear(&peer).is_empty(), "the version to answer in is unknown");
    let peer = bench.connect("a");
    assert!(bench.tell(&peer, Packet::Connect(Box::new(Connect::new(Version::V5, "a")))).is_err());
    assert_eq!(bench.ended(&peer), Reason::ProtocolError);
}

#[test]
fn an_unknown_level_is_refused_in_a_form_that_its_client_may_know() {
    for (level, answer) in [(6, &[0x20, 3, 0, 0x84, 0][..]), (2, &[0x20, 2, 0, 1][..])] {
        let mut bench = Bench::new();
        let id = bench.open_peer();
        let connect = [0x10, 13, 0, 4, b'M', b'Q', b'T', b'T', level, 2, 0, 60, 0, 1, b'a'];
        assert!(bench.bytes(id, &connect).is_err());
        let mut output = Default::default();
        bench.broker.take_output(bench.now, id, &mut output);
        assert_eq!(&output.take()[..], answer);
    }
}

#[test]
fn a_client_without_a_name_gets_one_in_5_0_and_needs_one_for_a_session_that_stays_in_3() {
    let mut bench = Bench::new();
    let (_, heard) = bench.try_connect(Connect::new(Version::V5, ""));
    let Packet::ConnAck(ack) = &heard[0] else { panic!("{heard:?}") };
    let first = ack.properties.assigned_client_identifier().unwrap().clone();
    let (_, heard) = bench.try_connect(Connect::new(Version::V5, ""));
    let Packet::ConnAck(ack) = &heard[0] else { panic!("{heard:?}") };
    assert_ne!(ack.properties.assigned_client_identifier(), Some(&first));
    bench.connect_with(Connect::new(Version::V3_1_1, ""), false);
    for connect in
        [Connect { clean_start: false, ..Connect::new(Version::V3_1_1, "") }, Connect::new(Version::V3_1, "")]
    {
        let (peer, heard) = bench.try_connect(connect);
        assert!(matches!(&heard[..], [Packet::ConnAck(a)] if a.reason == Reason::ClientIdentifierNotValid));
        assert!(bench.broker.finished(peer.id));
    }
}

#[test]
fn what_clients_may_have_is_announced_and_enforced() {
    let mut bench = limited(|limits| {
        limits.max_packet_size = 1000;
        limits.receive_maximum = 2;
        limits.topic_alias_maximum = 3;
        limits.max_session_expiry = 60;
    });
    let (peer, heard) = bench.try_connect(lasting("a"));
    let Packet::ConnAck(ack) = &heard[0] else { panic!("{heard:?}") };
    let properties = &ack.properties;
    assert_eq!(properties.maximum_packet_size(), Some(&1000));
    assert_eq!(properties.receive_maximum(), Some(&2));
    assert_eq!(properties.topic_alias_maximum(), Some(&3));
    assert_eq!(properties.session_expiry_interval(), Some(&60));
    assert!(bench.tell(&peer, Packet::Publish(publish("t", Q0, 0, &"x".repeat(1000)))).is_err());
    assert_eq!(bench.ended(&peer), Reason::PacketTooLarge);

    let peer = bench.connect("b");
    for packet_id in 1..=2 {
        bench.tell(&peer, Packet::Publish(publish("t", Q2, packet_id, ""))).unwrap();
    }
    bench.tell(&peer, Packet::PubRel(Ack::new(id(1)))).unwrap();
    bench.tell(&peer, Packet::Publish(publish("t", Q2, 3, ""))).unwrap();
    bench.tell(&peer, Packet::Publish(publish("t", Q2, 3, ""))).unwrap();
    bench.hear(&peer);
    assert!(bench.tell(&peer, Packet::Publish(publish("t", Q1, 4, ""))).is_err(), "2 and 3 are in flight");
    assert_eq!(bench.ended(&peer), Reason::ReceiveMaximumExceeded);
}

#[test]
fn a_topic_alias_stands_for_its_topic_on_its_connection() {
    let mut bench = Bench::new();
    let (watcher, peer) = (bench.connect("w"), bench.connect("a"));
    bench.subscribe(&watcher, "#", Q0);
    let alias = |topic, number| Publish {
        properties: Properties::new().with(Property::TopicAlias(number)),
        ..publish(topic, Q0, 0, "")
    };
    for publish in [alias("a/b", 1), alias("", 1), alias("c", 1), alias("", 1)] {
        bench.tell(&peer, Packet::Publish(publish)).unwrap();
    }
    let got = bench.messages(&watcher);
    assert_eq!(got.iter().map(|m| &*m.topic).collect::<Vec<_>>(), ["a/b", "a/b", "c", "c"]);
    assert!(got.iter().all(|m| m.properties.is_empty()));
    assert!(bench.tell(&peer, Packet::Publish(alias("", 2))).is_err());
    assert_eq!(bench.ended(&peer), Reason::ProtocolError);
    let peer = bench.connect("b");
    assert!(bench.tell(&peer, Packet::Publish(alias("t", 101))).is_err());
    assert_eq!(bench.ended(&peer), Reason::TopicAliasInvalid);
}

#[test]
fn a_client_that_takes_aliases_gets_each_topic_in_full_once() {
    let mut bench = Bench::new();
    let properties = Properties::new().with(Property::TopicAliasMaximum(1));
    let peer = bench.connect_with(Connect { properties, ..Connect::new(Version::V5, "a") }, false);
    bench.subscribe(&peer, "#", Q0);
    for topic in ["x", "x", "y", "x"] {
        bench.tell(&peer, Packet::Publish(publish(topic, Q0, 0, ""))).unwrap();
    }
    let got = bench.messages(&peer);
    let seen: Vec<_> = got.iter().map(|m| (&*m.topic, m.properties.topic_alias().copied())).collect();
    assert_eq!(seen, [("x", Some(1)), ("", Some(1)), ("y", None), ("", Some(1))]);
}

#[test]
fn silence_of_one_and_a_half_times_the_keep_alive_ends_the_connection() {
    let mut bench = Bench::new();
    let peer = bench.connect_with(Connect { keep_alive: 10, ..Connect::new(Version::V5, "a") }, false);
    let due = bench.broker.session_timeout(peer.id).unwrap();
    assert_eq!(due, bench.now + Duration::from_secs(15));
    bench.now = due;
    assert!(bench.broker.handle_session_timeout(bench.now, peer.id).is_err());
    assert_eq!(bench.ended(&peer), Reason::KeepAliveTimeout);
    let peer = bench.connect("b");
    assert_eq!(bench.broker.session_timeout(peer.id), None, "0 is for ever");
    let silent = bench.open_peer();
    bench.now = bench.broker.session_timeout(silent).unwrap();
    assert!(bench.broker.handle_session_timeout(bench.now, silent).is_err());
}

#[test]
fn a_client_stays_until_its_token_expires_also_after_a_clock_step() {
    const HOUR: u64 = 3600;
    let key = TokenKey::new(&[7; 32]).unwrap();
    let token = key.sign("till", Some(WALL_MS + 50 * HOUR * 1000));
    let mut bench = Bench::with(|settings| settings.tokens = Some(std::sync::Arc::new(key)));
    let connect = Connect { password: Some(token.into_bytes().into()), ..Connect::new(Version::V5, "a") };
    let connect = |bench: &mut Bench| {
        let connect = Connect { keep_alive: 0, ..connect.clone() };
        bench.connect_with(connect, false)
    };
    let peer = connect(&mut bench);
    // What the driver does when the deadline has come.
    let due = |bench: &mut Bench, peer: &Peer| {
        let due = bench.broker.session_timeout(peer.id).is_some_and(|at| at <= bench.now);
        due && bench.broker.handle_session_timeout(bench.now, peer.id).is_err()
    };
    for _ in 0..49 {
        bench.pass(HOUR);
        assert!(!due(&mut bench, &peer), "{:?}", bench.now - bench.start);
    }
    bench.pass(HOUR);
    assert!(due(&mut bench, &peer));
    assert_eq!(bench.ended(&peer), Reason::NotAuthorized);
    bench.drop_peer(peer.id);

    // The calendar goes a day back, and later three days forward.
    let day = 24 * HOUR * 1000;
    let wall_ms = WALL_MS + 50 * HOUR * 1000;
    bench.broker.set_clock(Clock::new(bench.now, wall_ms - day));
    let peer = connect(&mut bench);
    bench.pass(23 * HOUR);
    assert!(!due(&mut bench, &peer));
    bench.broker.set_clock(Clock::new(bench.now, wall_ms + 3 * day));
    assert!(due(&mut bench, &peer));
}

#[test]
fn extended_authentication_is_refused_by_name() {
    let mut bench = Bench::new();
    let properties = Properties::new().with(Property::AuthenticationMethod("SCRAM".into()));
    let (_, heard) = bench.try_connect(Connect { properties, ..Connect::new(Version::V5, "a") });
    assert!(matches!(&heard[..], [Packet::ConnAck(ack)] if ack.reason == Reason::BadAuthenticationMethod));
}

// QoS

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

// Sessions

#[test]
fn a_session_that_stays_gets_what_came_in_between() {
    for version in VERSIONS {
        let mut bench = Bench::new();
        let lasting = Connect { version, clean_start: false, ..lasting("s") };
        let subscriber = bench.connect_with(lasting.clone(), false);
        bench.subscribe(&subscriber, "t/#", Q2);
        bench.drop_peer(subscriber.id);
        let publisher = bench.connect("p");
        bench.send(&publisher, "t/a", "1");
        bench.tell(&publisher, Packet::Publish(publish("t/b", Q0, 0, "not kept"))).unwrap();
        bench.send(&publisher, "t/b", "2");
        bench.kill(usize::MAX);
        let (peer, heard) = bench.try_connect(lasting);
        let Packet::ConnAck(ack) = &heard[0] else { panic!("{heard:?}") };
        assert_eq!(ack.session_present, version != Version::V3_1, "3.1 has no such flag");
        let got: Vec<_> = heard.into_iter().skip(1).map(message).collect();
        assert_eq!(got.iter().map(text).collect::<Vec<_>>(), ["1", "2"]);
        got.iter().for_each(|message| bench.ack(&peer, message));
        assert!(bench.hear(&peer).is_empty());
    }
}

#[test]
fn a_clean_start_forgets_the_session() {
    let mut bench = Bench::new();
    let (peer, _, _) = bench.resume("s");
    bench.subscribe(&peer, "t", Q1);
    bench.drop_peer(peer.id);
    let publisher = bench.connect("p");
    bench.send(&publisher, "t", "x");
    bench.connect("s");
    assert_eq!(bench.send(&publisher, "t", "x"), Reason::NoMatchingSubscribers);
    assert_eq!(bench.broker.stats().subscriptions, 0);
}

#[test]
fn a_session_ends_when_its_time_is_over_also_across_a_restart() {
    for restart in [false, true] {
        let mut bench = Bench::new();
        let properties = Properties::new().with(Property::SessionExpiryInterval(100));
        let connect = Connect { properties, ..lasting("s") };
        let peer = bench.connect_with(connect.clone(), false);
        bench.drop_peer(peer.id);
        bench.pass(60);
        if restart {
            bench.kill(usize::MAX);
        }
        let peer = bench.connect_with(connect.clone(), true);
        bench.drop_peer(peer.id);
        bench.pass(60);
        if restart {
            bench.kill(usize::MAX);
        }
        bench.pass(41);
        bench.connect_with(connect, false);
    }
}

#[test]
fn disconnect_may_shorten_or_lengthen_a_session_that_stays_but_not_make_one() {
    let mut bench = Bench::new();
    let change = |seconds| Disconnect {
        properties: Properties::new().with(Property::SessionExpiryInterval(seconds)),
        ..Disconnect::new(Reason::Success)
    };
    let (peer, _, _) = bench.resume("s");
    bench.tell(&peer, Packet::Disconnect(change(0))).unwrap();
    bench.connect_with(lasting("s"), false);
    let peer = bench.connect("t");
    assert!(bench.tell(&peer, Packet::Disconnect(change(5))).is_err());
    assert_eq!(bench.ended(&peer), Reason::ProtocolError);
}

#[test]
fn a_second_connection_takes_the_session_over() {
    let mut bench = Bench::new();
    let (first, _, _) = bench.resume("s");
    bench.subscribe(&first, "t", Q1);
    let publisher = bench.connect("p");
    bench.send(&publisher, "t", "x");
    assert_eq!(bench.payloads(&first), ["x"]);
    let (_, present, heard) = bench.resume("s");
    assert!(present);
    let again = message(heard[0].clone());
    assert!(again.dup && text(&again) == "x");
    assert_eq!(bench.ended(&first), Reason::SessionTakenOver);
    bench.drop_peer(first.id);
    assert_eq!(bench.send(&publisher, "t", "y"), Reason::Success);
    assert_eq!(bench.broker.stats().connections, 2, "the old one's end does not end the new one");
}

#[test]
fn what_was_in_flight_is_sent_again_in_order_with_its_identifiers() {
    let mut bench = Bench::new();
    let (peer, _, _) = bench.resume("s");
    bench.subscribe(&peer, "t", Q2);
    let publisher = bench.connect("p");
    for number in 1..=4 {
        let qos = if number == 2 { Q1 } else { Q2 };
        bench.tell(&publisher, Packet::Publish(publish("t", qos, number, &number.to_string()))).unwrap();
    }
    let got = bench.messages(&peer);
    let ids: Vec<_> = got.iter().map(|message| message.packet_id.unwrap()).collect();
    bench.tell(&peer, Packet::PubRec(Ack::new(ids[0]))).unwrap();
    assert_eq!(bench.one(&peer), Packet::PubRel(Ack::new(ids[0])));
    bench.drop_peer(peer.id);
    let (peer, _, heard) = bench.resume("s");
    assert_eq!(heard[0], Packet::PubRel(Ack::new(ids[0])), "after PUBREC never the PUBLISH again");
    let again: Vec<_> = heard.into_iter().skip(1).map(message).collect();
    assert!(again.iter().all(|message| message.dup));
    assert_eq!(again.iter().map(|message| message.packet_id.unwrap()).collect::<Vec<_>>(), ids[1..]);
    // The same after a kill for QoS 2, whose identifiers are on disk for this purpose.
    bench.drop_peer(peer.id);
    bench.kill(usize::MAX);
    let (_, _, heard) = bench.resume("s");
    assert_eq!(heard[0], Packet::PubRel(Ack::new(ids[0])));
    let again: Vec<_> = heard.into_iter().skip(1).map(message).collect();
    let of_two: Vec<_> = again.iter().filter(|m| m.qos == Q2).map(|m| m.packet_id.unwrap()).collect();
    assert_eq!(of_two, ids[2..]);
    assert_eq!(again.len(), 3);
}

#[test]
fn the_identifier_of_a_qos_2_message_is_on_disk_before_its_publish_leaves() {
    let mut bench = Bench::new();
    let (peer, _, _) = bench.resume("s");
    bench.subscribe(&peer, "t", Q2);
    let publisher = bench.connect("p");
    bench.held = true;
    bench.tell(&publisher, Packet::Publish(publish("t", Q2, 1, "x"))).unwrap();
    bench.write(bench.unwritten());
    assert!(bench.hear(&peer).is_empty(), "the message is on disk, its identifier not yet");
    bench.drop_peer(peer.id);
    let (peer, heard) = bench.try_connect(lasting("s"));
    assert!(heard.is_empty(), "a new connection makes no difference");
    bench.write(usize::MAX);
    let heard = bench.hear(&peer);
    assert!(matches!(&heard[..], [Packet::ConnAck(_), Packet::Publish(x)] if x.payload == "x"), "{heard:?}");
}

#[test]
fn a_message_whose_identifier_reaches_the_disk_after_the_shutdown_began_stays_in_its_session() {
    // The socket is closed before the last report of the store, or after it.
    for closed_first in [true, false] {
        let mut bench = Bench::new();
        let (peer, _, _) = bench.resume("s");
        bench.subscribe(&peer, "t", Q2);
        let publisher = bench.connect("p");
        bench.held = true;
        bench.tell(&publisher, Packet::Publish(publish("t", Q2, 1, "x"))).unwrap();
        bench.write(bench.unwritten());
        assert_eq!(bench.one(&publisher), Packet::PubRec(Ack::new(id(1))));
        assert_ne!(bench.unwritten(), 0, "the identifier");
        bench.broker.shut_down(bench.now);
        assert_eq!(bench.ended(&peer), Reason::ServerShuttingDown);
        if closed_first {
            bench.drop_peer(peer.id);
        }
        bench.write(usize::MAX);
        assert_eq!(bench.hear(&peer), [], "DISCONNECT was the last packet");
        bench.kill(usize::MAX);
        bench.held = false;
        let (peer, present, heard) = bench.resume("s");
        assert!(present);
        let [Packet::Publish(again)] = &heard[..] else { panic!("{closed_first}: {heard:?}") };
        assert_eq!(again.payload, "x");
        let packet_id = again.packet_id.unwrap();
        let released = bench.ask(&peer, Packet::PubRec(Ack::new(packet_id)));
        assert_eq!(released, Packet::PubRel(Ack::new(packet_id)));
    }
}

#[test]
fn connack_leaves_when_the_session_is_on_disk() {
    let mut bench = Bench::new();
    bench.held = true;
    let (peer, heard) = bench.try_connect(lasting("s"));
    assert_eq!(heard, []);
    bench.tell(&peer, Packet::PingReq).unwrap();
    assert_eq!(bench.hear(&peer), [], "nothing overtakes it");
    bench.write(usize::MAX);
    let heard = bench.hear(&peer);
    assert!(matches!(&heard[..], [Packet::ConnAck(_), Packet::PingResp]), "{heard:?}");
    let (peer, heard) = bench.try_connect(lasting("t"));
    assert_eq!(heard, []);
    bench.fail();
    let heard = bench.hear(&peer);
    assert!(
        matches!(&heard[..], [Packet::ConnAck(ack)] if ack.reason == Reason::ServerUnavailable),
        "{heard:?}"
    );
    assert!(bench.broker.finished(peer.id));
}

#[test]
fn a_session_whose_client_never_got_connack_is_not_continued() {
    let mut bench = Bench::new();
    bench.held = true;
    let (peer, heard) = bench.try_connect(lasting("s"));
    assert_eq!(heard, []);
    // The client gives up before the session is on disk. It may have lost an earlier session: to be told of this one as the
    // earlier would let it send with identifiers that the broker has forgotten.
    bench.drop_peer(peer.id);
    bench.held = false;
    bench.write(usize::MAX);
    let (peer, heard) = bench.try_connect(lasting("s"));
    assert!(matches!(&heard[..], [Packet::ConnAck(ack)] if !ack.session_present), "{heard:?}");
    bench.drop_peer(peer.id);
    let (_, heard) = bench.try_connect(lasting("s"));
    assert!(matches!(&heard[..], [Packet::ConnAck(ack)] if ack.session_present), "{heard:?}");
}

#[test]
fn a_client_that_wants_no_problem_information_gets_no_reason_strings_but_in_connack_and_disconnect() {
    for wanted in [true, false] {
        let mut bench = Bench::with(|settings| settings.max_store = 0);
        let mut connect = Connect::new(Version::V5, "a");
        connect.properties.push(Property::RequestProblemInformation(wanted));
        let peer = bench.connect_with(connect, false);
        let Packet::PubAck(ack) = bench.ask(&peer, Packet::Publish(retained("t", Q1, 1, "x"))) else {
            panic!("no PUBACK")
        };
        assert_eq!(ack.reason, Reason::QuotaExceeded);
        assert_eq!(ack.properties.reason_string().is_some(), wanted);
        let second = Packet::Connect(Box::new(Connect::new(Version::V5, "a")));
        assert!(bench.tell(&peer, second).is_err());
        let heard = bench.hear(&peer);
        let [Packet::Disconnect(end)] = &heard[..] else { panic!("{heard:?}") };
        assert!(end.properties.reason_string().is_some());
    }
}

#[test]
fn a_reason_string_that_makes_an_answer_too_large_is_left_out() {
    let limit = |client_id: &str, bytes| {
        let mut connect = Connect::new(Version::V5, client_id);
        connect.properties.push(Property::MaximumPacketSize(bytes));
        connect
    };
    let mut bench = Bench::with(|settings| {
        settings.max_store = 0;
        settings.limits.max_sessions = 1;
    });
    for (bytes, told) in [(200, true), (20, false)] {
        let peer = bench.connect_with(limit("a", bytes), false);
        for qos in [Q1, Q2] {
            let (reason, properties) = match bench.ask(&peer, Packet::Publish(retained("t", qos, 1, "x"))) {
                Packet::PubAck(ack) | Packet::PubRec(ack) => (ack.reason, ack.properties),
                other => panic!("{other:?}"),
            };
            assert_eq!((reason, properties.reason_string().is_some()), (Reason::QuotaExceeded, told));
        }
        let (_, heard) = bench.try_connect(limit("b", bytes));
        let [Packet::ConnAck(ack)] = &heard[..] else { panic!("{heard:?}") };
        assert_eq!((ack.reason, ack.properties.reason_string().is_some()), (Reason::QuotaExceeded, told));
        let violation = Packet::Connect(Box::new(Connect::new(Version::V5, "a")));
        assert!(bench.tell(&peer, violation).is_err());
        let heard = bench.hear(&peer);
        let [Packet::Disconnect(end)] = &heard[..] else { panic!("{heard:?}") };
        assert_eq!(end.properties.reason_string().is_some(), told);
        bench.drop_peer(peer.id);
    }
}

#[test]
fn a_message_that_a_member_of_a_shared_subscription_refuses_is_discarded() {
    let mut bench = Bench::new();
    let members = [bench.connect("a"), bench.connect("b")];
    for member in &members {
        bench.subscribe(member, "$share/g/t", Q1);
    }
    let publisher = bench.connect("p");
    assert_eq!(bench.send(&publisher, "t", "x"), Reason::Success);
    let taken: Vec<_> = members.iter().map(|member| (*member, bench.messages(member))).collect();
    let (member, message) =
        taken.iter().find_map(|(member, messages)| Some((member, messages.first()?))).unwrap();
    assert_eq!(taken.iter().map(|(_, messages)| messages.len()).sum::<usize>(), 1);
    let refusal = Ack { reason: Reason::Unspecified, ..Ack::new(message.packet_id.unwrap()) };
    bench.tell(member, Packet::PubAck(refusal)).unwrap();
    bench.drop_peer(member.id);
    bench.pass(2);
    for other in members.iter().filter(|other| other.id != member.id) {
        assert!(bench.messages(other).is_empty());
    }
}

#[test]
fn a_changed_subscription_keeps_the_rest_of_its_replay_over_a_kill() {
    let mut bench = limited(|limits| limits.max_inflight = 1);
    let publisher = bench.connect("p");
    for number in 0..20 {
        bench.tell(&publisher, Packet::Publish(retained(&format!("t/{number:02}"), Q1, 1, "x"))).unwrap();
        bench.hear(&publisher);
    }
    let (peer, ..) = bench.resume("s");
    let first = bench.subscribe(&peer, "t/+", Q1);
    assert_eq!(first.len(), 1, "the window is 1");
    // Other options, and no wish for retained messages: the replay of the first SUBSCRIBE goes on.
    let options = SubscribeOptions {
        retain_handling: RetainHandling::Never,
        no_local: true,
        ..SubscribeOptions::qos(Q1)
    };
    bench.subscribe_with(&peer, "t/+", options, None);
    bench.kill(usize::MAX);
    let (peer, _, heard) = bench.resume("s");
    let mut topics = BTreeSet::new();
    let mut next: Vec<_> = heard.into_iter().map(message).collect();
    while let Some(message) = next.pop() {
        topics.insert(message.topic.to_string());
        bench.ack(&peer, &message);
        next.extend(bench.messages(&peer));
    }
    assert_eq!(topics.len(), 20);
}

#[test]
fn a_message_that_cannot_be_read_is_not_taken_for_delivered() {
    for qos in [Q1, Q2] {
        let mut bench = Bench::new();
        let (peer, ..) = bench.resume("a");
        bench.subscribe(&peer, "#", qos);
        bench.drop_peer(peer.id);
        let publisher = bench.connect("b");
        ["one", "two", "three"]
            .iter()
            .for_each(|text| assert_eq!(bench.send(&publisher, "t", text), Reason::Success));
        bench.kill(usize::MAX);
        let damaged = "UPDATE entry SET body = x'00' WHERE instr(CAST(body AS TEXT), 'two') > 0";
        assert_eq!(bench.db.execute(damaged, []).unwrap(), 1);
        for _ in 0..2 {
            let (peer, present, mut heard) = bench.resume("a");
            assert!(present);
            let Some(Packet::Disconnect(end)) = heard.pop() else { panic!("{heard:?}") };
            assert_eq!(end.reason, Reason::Unspecified);
            let why = end.properties.reason_string().unwrap().to_string();
            assert!(why.contains("entry 2 cannot be read"), "{why}");
            assert_eq!(heard.into_iter().map(|packet| text(&message(packet))).collect::<Vec<_>>(), ["one"]);
            bench.drop_peer(peer.id);
        }
        let stats = bench.broker.stats();
        assert_eq!(stats.messages_dropped, 0);
        let damage = stats.damage.unwrap();
        assert!(damage.contains("entry 2") && damage.contains("\"a\""), "{damage}");
    }
}

#[test]
fn the_senders_identifiers_outlive_a_kill() {
    let mut bench = Bench::new();
    let (subscriber, _, _) = bench.resume("s");
    bench.subscribe(&subscriber, "t", Q2);
    let (publisher, _, _) = bench.resume("p");
    let sent = publish("t", Q2, 5, "x");
    assert!(matches!(bench.ask(&publisher, Packet::Publish(sent.clone())), Packet::PubRec(_)));
    bench.kill(usize::MAX);
    let (publisher, present, _) = bench.resume("p");
    assert!(present);
    let again = Publish { dup: true, ..sent };
    assert!(matches!(bench.ask(&publisher, Packet::Publish(again)), Packet::PubRec(_)));
    bench.tell(&publisher, Packet::PubRel(Ack::new(id(5)))).unwrap();
    let (_, _, heard) = bench.resume("s");
    assert_eq!(heard.len(), 1, "one message, however often it was sent");
    bench.kill(usize::MAX);
    let (publisher, _, _) = bench.resume("p");
    let unknown = Ack::with_reason(id(5), Reason::PacketIdentifierNotFound);
    assert_eq!(bench.ask(&publisher, Packet::PubRel(Ack::new(id(5)))), Packet::PubComp(unknown));
}

#[test]
fn a_full_queue_is_never_a_silent_success_in_5_0() {
    let mut bench = limited(|limits| limits.max_queue = 2);
    let (peer, _, _) = bench.resume("s");
    bench.subscribe(&peer, "t", Q1);
    bench.drop_peer(peer.id);
    let publisher = bench.connect("p");
    let reasons: Vec<_> = (0..3).map(|_| bench.send(&publisher, "t", "x")).collect();
    assert_eq!(reasons, [Reason::Success, Reason::Success, Reason::QuotaExceeded]);
    assert_eq!(bench.broker.stats().messages_dropped, 1);
    let refused = bench.ask(&publisher, Packet::Publish(publish("t", Q2, 3, "x")));
    assert_eq!(refused, Packet::PubRec(Ack::with_reason(id(3), Reason::QuotaExceeded)));
    let (_, _, heard) = bench.resume("s");
    assert_eq!(heard.len(), 2);
}

#[test]
fn sessions_and_subscriptions_are_limited() {
    let mut bench = limited(|limits| {
        limits.max_sessions = 1;
        limits.max_subscriptions = 1;
    });
    let peer = bench.connect("a");
    bench.subscribe(&peer, "t", Q0);
    let filters = vec![("u".into(), SubscribeOptions::qos(Q0))];
    let more = Subscribe { packet_id: id(1), properties: Properties::new(), filters };
    let answer = bench.ask(&peer, Packet::Subscribe(more));
    assert!(matches!(answer, Packet::SubAck(ack) if ack.reasons == [Reason::QuotaExceeded]));
    let (_, heard) = bench.try_connect(Connect::new(Version::V5, "b"));
    assert!(matches!(&heard[..], [Packet::ConnAck(ack)] if ack.reason == Reason::QuotaExceeded));
    bench.connect("a");
}

#[test]
fn a_message_is_gone_when_its_time_is_over_and_is_sent_with_what_is_left_of_it() {
    let mut bench = Bench::new();
    let (peer, _, _) = bench.resume("s");
    bench.subscribe(&peer, "t", Q1);
    bench.drop_peer(peer.id);
    let publisher = bench.connect("p");
    for (seconds, packet_id) in [(5, 1), (20, 2)] {
        let properties = Properties::new().with(Property::MessageExpiryInterval(seconds));
        let publish = Publish { properties, ..publish("t", Q1, packet_id, &seconds.to_string()) };
        bench.tell(&publisher, Packet::Publish(publish)).unwrap();
    }
    bench.pass(8);
    bench.kill(usize::MAX);
    let (_, _, heard) = bench.resume("s");
    let got = message(heard[0].clone());
    assert_eq!(
        (heard.len(), text(&got), got.properties.message_expiry_interval()),
        (1, "20".into(), Some(&12))
    );
}

// Subscriptions

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

// Retained messages

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

// Wills

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
    // Connected when the broker was killed, and never back: two more kills must not extend its life for ever.
    bench.connect_with(with_will("b", 0, 30), false);
    for _ in 0..3 {
        bench.kill(usize::MAX);
        bench.settle();
        bench.pass(11);
    }
    bench.connect_with(with_will("b", 0, 30), false);
}

// The store

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

// Retained messages and their order

fn subscribe_packet(filters: impl IntoIterator<Item = (String, QoS)>) -> Packet {
    let filters = filters.into_iter().map(|(text, qos)| (text.into(), SubscribeOptions::qos(qos))).collect();
    Packet::Subscribe(Subscribe { packet_id: id(9), properties: Properties::new(), filters })
}

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
fn behind_an_unfinished_replay(bench: &mut Bench, publisher: &Peer, count: usize) -> Peer {
    for number in 0..count {
        bench.tell(publisher, Packet::Publish(retained(&format!("t/{number:03}"), Q1, 1, "x"))).unwrap();
        bench.hear(publisher);
    }
    let (peer, ..) = bench.resume("s");
    assert_eq!(bench.subscribe(&peer, "t/+", Q1).len(), 100, "the window");
    peer
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

// Hostile filters

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

/// Filters of 199 levels that all match one topic, with every combination of `a` and `+` in their first levels.
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

// Slow subscribers

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
fn a_subscriber_that_keeps_taking_messages_gets_all_of_a_bulk_that_is_far_larger_than_its_queue() {
    let mut bench = limited(|limits| {
        limits.receive_maximum = 1000;
        limits.max_queue = 3000;
    });
    let (subscriber, publisher) = (bench.connect("s"), bench.connect("p"));
    bench.subscribe(&subscriber, "t", Q1);
    let (mut sent, mut acked, mut delivered) = (0, 0, 0);
    // The publisher always has its window full, and the subscriber takes 400 messages in the time of the grace.
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
    let (slow, publisher) = (bench.connect("s"), bench.connect("p"));
    bench.subscribe(&slow, "t", Q0);
    let payload = "x".repeat(100_000);
    let send = |bench: &mut Bench, count: usize| {
        for _ in 0..count {
            bench.tell(&publisher, Packet::Publish(publish("t", Q0, 0, &payload))).unwrap();
        }
    };
    send(&mut bench, 12);
    assert!(!bench.broker.may_read(publisher.id), "it may be a burst");
    bench.pass(1);
    assert!(bench.broker.may_read(publisher.id));
    for _ in 0..5 {
        // As much as its socket takes is far behind what comes.
        send(&mut bench, 40);
        assert!(bench.broker.may_read(publisher.id), "nothing waits for it any more");
        bench.pass_for(Duration::from_millis(500));
        let mut output = penstock::transmit::Transmit::default();
        bench.broker.take_output(bench.now, slow.id, &mut output);
    }
    assert!(bench.broker.stats().messages_dropped > 20);
    // Now its socket takes 3 MiB at once.
    send(&mut bench, 40);
    let mut output = penstock::transmit::Transmit::default();
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
