//! CONNECT, keep-alive, limits, aliases and tokens.

use std::time::Duration;

use forebay_broker::auth::TokenKeys;
use forebay_broker::protocol::{Clock, Protocol as _};
use forebay_mqtt::packet::{Ack, Connect, Disconnect, Publish, Unsubscribe};
use forebay_mqtt::{Packet, Properties, Property, Reason, Version};

use super::{VERSIONS, limited, subscribe_packet};
use crate::support::mqtt::*;
use crate::support::settings::WALL_MS;

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
fn flags_of_a_3_1_connect_have_no_meaning_and_those_of_later_versions_are_reserved() {
    let old = b"\0\x06MQIsdp\x03\x02\0\x3c\0\x01a";
    let new = b"\0\x04MQTT\x04\x02\0\x3c\0\x01a";
    for flags in 0..16 {
        let mut bench = Bench::new();
        let peer = Peer { id: bench.open_peer(), version: Version::V3_1 };
        let packet = |body: &[u8]| [&[0x10 | flags, body.len() as u8], body].concat();
        bench.bytes(peer.id, &packet(old)).unwrap();
        assert!(matches!(&bench.hear(&peer)[..], [Packet::ConnAck(ack)] if ack.reason == Reason::Success));
        // Nor do those of a PINGREQ.
        bench.bytes(peer.id, &[0xc0 | flags, 0]).unwrap();
        assert_eq!(bench.hear(&peer), [Packet::PingResp]);
        let later = bench.open_peer();
        assert_eq!(bench.bytes(later, &packet(new)).is_ok(), flags == 0);
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
fn a_connect_that_cannot_be_answered_throws_nobody_out() {
    let mut bench = Bench::new();
    let with = |client: &str, size| Connect {
        properties: Properties::new().with(Property::MaximumPacketSize(size)),
        clean_start: true,
        ..lasting(client)
    };
    let (first, writer) = (bench.connect("a"), bench.connect("w"));
    bench.subscribe(&first, "t", Q1);
    for (size, answered) in [(4, false), (10, true)] {
        let (peer, heard) = bench.try_connect(with("a", size));
        assert!(bench.broker.finished(peer.id));
        match &heard[..] {
            [Packet::ConnAck(ack)] => assert_eq!((ack.reason, answered), (Reason::PacketTooLarge, true)),
            other => assert!(other.is_empty() && !answered, "{other:?}"),
        }
        bench.try_connect(with("b", size));
    }
    assert_eq!(bench.send(&writer, "t", "x"), Reason::Success);
    assert_eq!(bench.payloads(&first), ["x"]);
    assert!(!bench.resume("b").1, "and has no session");
}

#[test]
fn an_answer_that_its_client_does_not_take_ends_the_connection() {
    let mut bench = Bench::new();
    let small = Connect {
        properties: Properties::new().with(Property::MaximumPacketSize(30)),
        ..Connect::new(Version::V5, "a")
    };
    let peer = bench.connect_with(small.clone(), false);
    let filters = |count| (0..count).map(|number| (number.to_string(), Q1));
    bench.tell(&peer, subscribe_packet(filters(20))).unwrap();
    assert!(matches!(&bench.hear(&peer)[..], [Packet::SubAck(_)]));
    bench.tell(&peer, subscribe_packet(filters(30))).unwrap();
    assert_eq!(bench.ended(&peer), Reason::PacketTooLarge);
    let peer = bench.connect_with(small, false);
    let filters = (0..30).map(|number| number.to_string().into()).collect();
    let unsubscribe = Unsubscribe { packet_id: id(9), properties: Properties::new(), filters };
    bench.tell(&peer, Packet::Unsubscribe(unsubscribe)).unwrap();
    assert_eq!(bench.ended(&peer), Reason::PacketTooLarge);
}

#[test]
fn a_request_whose_answer_its_client_does_not_take_changes_nothing() {
    let mut bench = Bench::new();
    let small = || {
        let mut connect = lasting("a");
        connect.properties.push(Property::MaximumPacketSize(60));
        connect
    };
    let filters = |range: std::ops::Range<u32>| range.map(|number| (number.to_string(), Q1));
    let peer = bench.connect_with(small(), false);
    bench.tell(&peer, subscribe_packet(filters(0..50))).unwrap();
    assert!(matches!(&bench.hear(&peer)[..], [Packet::SubAck(_)]));
    bench.tell(&peer, subscribe_packet(filters(50..120))).unwrap();
    assert_eq!(bench.ended(&peer), Reason::PacketTooLarge);
    let peer = bench.connect_with(small(), true);
    bench.tell(&peer, subscribe_packet(filters(50..51))).unwrap();
    bench.hear(&peer);
    let unsubscribe = |range: std::ops::Range<u32>| {
        let filters = range.map(|number| number.to_string().into()).collect();
        Packet::Unsubscribe(Unsubscribe { packet_id: id(9), properties: Properties::new(), filters })
    };
    bench.tell(&peer, unsubscribe(0..70)).unwrap();
    assert_eq!(bench.ended(&peer), Reason::PacketTooLarge);
    let peer = bench.connect_with(small(), true);
    let publisher = bench.connect("p");
    for topic in ["0", "49", "50", "51", "119"] {
        bench.tell(&publisher, Packet::Publish(publish(topic, Q0, 0, topic))).unwrap();
    }
    assert_eq!(bench.payloads(&peer), ["0", "49", "50"]);
}

#[test]
fn the_end_of_a_connection_has_the_reason_that_its_client_gave() {
    let mut bench = Bench::new();
    let disconnect = |reason, text: Option<&str>| {
        let mut packet = Disconnect::new(reason);
        packet.properties = text.map(|text| Property::ReasonString(text.into())).into_iter().collect();
        Packet::Disconnect(packet)
    };
    for (packet, farewell) in [
        (disconnect(Reason::Success, None), "the client has left"),
        (
            disconnect(Reason::DisconnectWithWill, None),
            "the client has left: 0x04 disconnect with will message",
        ),
        (
            disconnect(Reason::Unspecified, Some("out\nof power")),
            "the client has left: 0x80 unspecified error, \"out\\nof power\"",
        ),
    ] {
        let peer = bench.connect("a");
        bench.tell(&peer, packet).unwrap();
        assert!(bench.broker.finished(peer.id));
        assert_eq!(bench.broker.farewell(peer.id), Some(farewell));
    }
    let peer = bench.connect("a");
    bench.connect("a");
    assert_eq!(bench.broker.farewell(peer.id), Some("0x8E session taken over"));
    let closing = bench.connect("b");
    assert_eq!(bench.broker.farewell(closing.id), None, "the socket just closes");
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
    let key = TokenKeys::new(&[b'7'; 32]).unwrap();
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
