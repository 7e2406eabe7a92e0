//! The client side of a socket, tested by the statements of the standard: handshake, keep-alive,
//! limits, topic aliases, extended authentication, disconnection. Section numbers are those of MQTT
//! 5 unless 3.1.1 is named.

use std::time::Duration;

use bytes::Bytes;

use super::client::*;
use crate::connection::{Connection, Event, Limits};
use crate::packet::{Ack, Auth, ConnAck, Connect, Disconnect, PacketId, Publish, Will};
use crate::{Packet, Properties, Property, Reason, Version};
use forebay_base::error::ErrorKind;
use forebay_base::machine::Machine as _;

const SECOND: Duration = Duration::from_secs(1);

/// [MQTT-3.1.0-1]: CONNECT comes first and states its version; [MQTT-3.1.2-11], [MQTT-3.1.2-13],
/// [MQTT-3.1.2-16], [MQTT-3.1.2-18]: the flags of absent fields are clear.
#[test]
fn the_first_packet_is_connect_in_the_version_asked_for() {
    for (version, head) in [
        (Version::V3_1, &b"\0\x06MQIsdp\x03"[..]),
        (Version::V3_1_1, b"\0\x04MQTT\x04"),
        (Version::V5, b"\0\x04MQTT\x05"),
    ] {
        let mut client = Client::new();
        let mut connection = Connection::new(client.now, Connect::new(version, "till"), HANDSHAKE).unwrap();
        let bytes = connection.transmit().take();
        assert_eq!(bytes[0], 0x10);
        assert_eq!(&bytes[2..2 + head.len()], head, "{version:?}");
        assert_eq!(bytes[2 + head.len()], 0b10, "a clean start and nothing else");
        assert_eq!(connection.version(), version);
        assert!(!connection.is_ready(), "before CONNACK");
        client.connection = Some(connection);
        client.hear(Packet::ConnAck(accepted())).unwrap();
        assert!(client.connection().is_ready());
        assert!(matches!(&client.told[..], [Event::Connected(ack)] if !ack.session_present));
    }
}

/// [MQTT-3.1.2-9], [MQTT-3.1.2-17], [MQTT-3.1.2-19], [MQTT-3.1.3-1]: all options appear in the
/// packet.
#[test]
fn connect_carries_will_user_and_password() {
    let mut client = Client::new();
    let connect = Connect {
        keep_alive: 30,
        will: Some(Will {
            qos: Q1,
            retain: true,
            properties: Properties::new().with(Property::WillDelayInterval(5)),
            topic: "gone".into(),
            payload: Bytes::from_static(b"till"),
        }),
        user_name: Some("user".into()),
        password: Some(Bytes::from_static(b"\0\xff")),
        ..Connect::new(V5, "till")
    };
    assert_eq!(client.open(connect.clone()), Packet::Connect(Box::new(connect)));
}

/// 3.1.4: nothing of the session is sent before CONNACK.
#[test]
fn nothing_is_published_or_subscribed_before_connack() {
    let mut client = Client::new();
    client.publish(Q1, "early");
    client.session.subscribe(1, filters(&["a"]));
    client.open(Connect::new(V4, "c"));
    assert!(client.said().is_empty());
    client.hear(Packet::ConnAck(accepted())).unwrap();
    assert!(matches!(&client.said()[..], [Packet::Subscribe(_), Packet::Publish(_)]));
}

/// 3.2.2.2: each refusal becomes an error of its own kind, with the server's explanation.
#[test]
fn a_refused_connack_is_an_error_that_says_why() {
    for (code, kind) in [
        (1, ErrorKind::UnsupportedVersion),
        (2, ErrorKind::InvalidArgument),
        (3, ErrorKind::ServiceNotReady),
        (4, ErrorKind::Authentication),
        (5, ErrorKind::Authorization),
    ] {
        for version in [Version::V3_1, Version::V3_1_1] {
            let mut client = Client::new();
            client.open(Connect::new(version, "c"));
            let error = client.hear_bytes(&[0x20, 2, 0, code]).unwrap_err();
            assert_eq!(error.kind(), kind, "return code {code}");
            assert!(client.told.is_empty() && !client.connection().is_ready());
        }
    }
    for (reason, kind) in [
        (Reason::BadUserNameOrPassword, ErrorKind::Authentication),
        (Reason::NotAuthorized, ErrorKind::Authorization),
        (Reason::ServerBusy, ErrorKind::ServiceNotReady),
        (Reason::BadAuthenticationMethod, ErrorKind::Authentication),
        (Reason::QuotaExceeded, ErrorKind::QuotaExceeded),
    ] {
        let mut client = Client::new();
        client.open(Connect::new(V5, "c"));
        let properties = Properties::new().with(Property::ReasonString("not today".into()));
        let refusal = ConnAck { properties, ..ConnAck::new(reason) };
        let error = client.hear(Packet::ConnAck(refusal)).unwrap_err();
        assert_eq!((error.kind(), error.peer_text()), (kind, Some("not today")));
        assert!(client.said().is_empty(), "nothing is sent to a server that refused");
    }
}

/// 4.11: a server may refer the client to another one.
#[test]
fn a_refusal_may_name_another_server() {
    let mut client = Client::new();
    client.open(Connect::new(V5, "c"));
    let properties = Properties::new().with(Property::ServerReference("other:1883".into()));
    let refusal = ConnAck { properties, ..ConnAck::new(Reason::UseAnotherServer) };
    let error = client.hear(Packet::ConnAck(refusal)).unwrap_err();
    assert_eq!(error.peer_text(), Some("use other:1883"));
    assert!(error.retriable());
}

/// A broker of MQTT 3 answers a CONNECT of MQTT 5 with two bytes.
#[test]
fn a_broker_of_3_x_refuses_5_0_in_its_own_form() {
    let mut client = Client::new();
    client.open(Connect::new(V5, "c"));
    let error = client.hear_bytes(&[0x20, 2, 0, 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedVersion);
}

/// [MQTT-3.2.0-1], [MQTT-3.2.0-2]: CONNACK comes first, and only once.
#[test]
fn anything_but_connack_first_and_a_second_connack_close_the_connection() {
    for packet in [delivery(Q0, 1, "m"), Packet::PingResp, suback(id(1), &[Reason::Success]), puback(id(1))] {
        let mut client = Client::new();
        client.open(Connect::new(V5, "c"));
        assert_eq!(client.hear(packet).unwrap_err().kind(), ErrorKind::Protocol);
        assert!(client.said().is_empty(), "nothing is sent before CONNACK, not even DISCONNECT");
    }
    let mut client = Client::connected(V5);
    assert!(client.hear(Packet::ConnAck(accepted())).is_err());
    assert_eq!(client.disconnect_reason(), Reason::ProtocolError);
}

/// [MQTT-3.2.2-4]: a session present after a clean start belongs to another client.
#[test]
fn a_session_present_for_a_clean_start_closes_the_connection() {
    for version in [V4, V5] {
        let mut client = Client::new();
        client.open(Connect::new(version, "c"));
        let present = ConnAck { session_present: true, ..accepted() };
        assert_eq!(client.hear(Packet::ConnAck(present)).unwrap_err().kind(), ErrorKind::Protocol);
        assert!(client.told.is_empty());
    }
}

/// [MQTT-3.2.2-6]: a refusal must not have Session Present set.
#[test]
fn a_refusal_with_a_session_present_is_a_protocol_error() {
    let mut client = Client::new();
    client.open(Connect { clean_start: false, ..Connect::new(V5, "c") });
    let error = client.hear_bytes(&[0x20, 3, 1, 0x87, 0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
}

#[test]
fn connack_has_to_come_in_time() {
    let mut client = Client::new();
    client.open(Connect::new(V5, "c"));
    client.pass(HANDSHAKE - SECOND).unwrap();
    assert_eq!(client.pass(SECOND).unwrap_err().kind(), ErrorKind::Timeout);
    // Once CONNACK has arrived in time, the deadline no longer applies.
    let mut client = Client::connected(V5);
    client.pass(HANDSHAKE * 10).unwrap();
}

fn kept_alive(keep_alive: u16, ack: ConnAck) -> Client {
    let mut client = Client::new();
    client.open(Connect { keep_alive, ..Connect::new(V5, "c") });
    client.hear(Packet::ConnAck(ack)).unwrap();
    client
}

/// [MQTT-3.1.2-20]: PINGREQ if nothing was sent for the keep-alive, whatever is received.
#[test]
fn pingreq_is_sent_after_a_silence_of_the_keep_alive() {
    let mut client = kept_alive(60, accepted());
    client.pass(59 * SECOND).unwrap();
    client.hear(delivery(Q0, 0, "m")).unwrap();
    assert!(client.said().is_empty());
    client.pass(SECOND).unwrap();
    assert_eq!(client.says(), Packet::PingReq);
    client.hear(Packet::PingResp).unwrap();
    client.pass(60 * SECOND).unwrap();
    assert_eq!(client.says(), Packet::PingReq);
}

#[test]
fn any_packet_sent_puts_the_next_pingreq_off_if_the_broker_is_heard() {
    let mut client = kept_alive(60, accepted());
    client.pass(50 * SECOND).unwrap();
    client.publish(Q0, "m");
    assert_eq!(client.published().len(), 1);
    client.hear(delivery(Q0, 0, "m")).unwrap();
    client.pass(59 * SECOND).unwrap();
    assert!(client.said().is_empty());
    client.pass(SECOND).unwrap();
    assert_eq!(client.says(), Packet::PingReq);
}

/// Nothing else answers publications of QoS 0.
#[test]
fn a_client_that_only_sends_asks_whether_it_is_heard() {
    let mut client = kept_alive(60, accepted());
    for _ in 0..59 {
        client.pass(SECOND).unwrap();
        client.publish(Q0, "m");
        assert_eq!(client.published().len(), 1);
    }
    client.pass(SECOND).unwrap();
    assert_eq!(client.says(), Packet::PingReq);
    for _ in 0..9 {
        client.pass(SECOND).unwrap();
        client.publish(Q0, "m");
    }
    assert_eq!(client.pass(SECOND).unwrap_err().kind(), ErrorKind::Disconnected);
}

/// PINGREQ waits behind it.
#[test]
fn a_network_that_is_slow_to_take_what_is_sent_puts_the_end_off() {
    let mut client = kept_alive(60, accepted());
    client.pass(60 * SECOND).unwrap();
    assert_eq!(client.says(), Packet::PingReq);
    client.connection().note_unwritten(1);
    client.pass(59 * SECOND).unwrap();
    client.connection().note_unwritten(0);
    assert_eq!(client.pass(10 * SECOND).unwrap_err().kind(), ErrorKind::Disconnected);
}

/// 3.1.2.10: zero disables the keep-alive.
#[test]
fn a_keep_alive_of_zero_sends_no_pingreq() {
    let mut client = kept_alive(0, accepted());
    client.pass(100_000 * SECOND).unwrap();
    assert!(client.said().is_empty());
    assert_eq!(client.connection().poll_timeout(), None);
}

/// [MQTT-3.1.2-21], [MQTT-3.2.2-21]: the keep-alive in CONNACK replaces ours, even with zero.
#[test]
fn the_server_keep_alive_replaces_ours() {
    let mut client = kept_alive(60, accepted_with(&[Property::ServerKeepAlive(5)]));
    client.pass(5 * SECOND).unwrap();
    assert_eq!(client.says(), Packet::PingReq);
    let mut client = kept_alive(60, accepted_with(&[Property::ServerKeepAlive(0)]));
    client.pass(1000 * SECOND).unwrap();
    assert!(client.said().is_empty());
    let mut client = kept_alive(0, accepted_with(&[Property::ServerKeepAlive(7)]));
    client.pass(7 * SECOND).unwrap();
    assert_eq!(client.says(), Packet::PingReq);
}

/// 3.1.2.10: the client closes the connection if PINGRESP does not arrive within a reasonable time.
#[test]
fn a_missing_pingresp_ends_the_connection() {
    let mut client = kept_alive(60, accepted());
    client.pass(60 * SECOND).unwrap();
    client.pass(9 * SECOND).unwrap();
    assert_eq!(client.pass(SECOND).unwrap_err().kind(), ErrorKind::Disconnected);
}

#[test]
fn a_short_keep_alive_limits_the_wait_for_pingresp() {
    let mut client = kept_alive(3, accepted());
    let start = client.now;
    assert_eq!(client.pass(100 * SECOND).unwrap_err().kind(), ErrorKind::Disconnected);
    assert_eq!(client.now - start, 6 * SECOND);
}

#[test]
fn any_byte_received_stands_for_pingresp() {
    let mut client = kept_alive(60, accepted());
    client.pass(60 * SECOND).unwrap();
    client.hear(delivery(Q0, 0, "m")).unwrap();
    client.pass(30 * SECOND).unwrap();
    // A packet that takes longer than the timeout arrives byte by byte.
    let mut client = kept_alive(60, accepted());
    client.pass(60 * SECOND).unwrap();
    let slow = super::encode(&delivery(Q0, 0, "a large message"), V5);
    let mut input = bytes::BytesMut::new();
    for byte in slow {
        client.pass(8 * SECOND).unwrap();
        input.extend_from_slice(&[byte]);
        let now = client.now;
        client.connection().handle_input(now, &mut input).unwrap();
    }
    // Bytes that were seen before do not count as activity.
    let mut client = kept_alive(60, accepted());
    let mut half = bytes::BytesMut::from(&[0x30, 100, 0, 1][..]);
    let now = client.now;
    client.connection().handle_input(now, &mut half).unwrap();
    client.pass(60 * SECOND).unwrap();
    client.pass(9 * SECOND).unwrap();
    let now = client.now;
    client.connection().handle_input(now, &mut half).unwrap();
    assert!(client.pass(SECOND).is_err());
}

/// While reading is paused, PINGRESP cannot be seen.
#[test]
fn a_client_that_does_not_read_expects_no_pingresp() {
    let mut client = kept_alive(60, accepted());
    client.pass(60 * SECOND).unwrap();
    let now = client.now;
    client.connection().pause_reading(now);
    client.pass(30 * SECOND).unwrap();
    assert_eq!(client.says(), Packet::PingReq);
    // What was not read is not the broker's silence.
    client.publish(Q0, "m");
    client.pass(10 * SECOND).unwrap();
    client.publish(Q0, "m");
    let now = client.now;
    client.connection().pause_reading(now);
    client.said();
    client.pass(59 * SECOND).unwrap();
    assert!(client.said().is_empty());
}

/// The input keeps the held publication, and everything behind it, until there is room.
#[test]
fn without_room_a_publication_is_held_and_answers_before_it_are_not() {
    let mut client = kept_alive(60, accepted());
    let now = client.now;
    let packets = [
        delivery(Q1, 1, "taken"),
        delivery(Q0, 0, "not counted"),
        pubrel(id(9)),
        delivery(Q2, 2, "held"),
        pubrel(id(8)),
    ];
    let mut input = bytes::BytesMut::new();
    packets.iter().for_each(|packet| input.extend_from_slice(&super::encode(packet, V5)));
    let connection = client.connection();
    let mut heard = |room: usize, input: &mut bytes::BytesMut| {
        connection.set_room(room);
        connection.handle_input(now, input).unwrap();
        let events = std::iter::from_fn(|| connection.poll_event()).count();
        (events, connection.is_holding())
    };
    assert_eq!(heard(1, &mut input), (3, true));
    assert_eq!(heard(0, &mut input), (0, true));
    assert_eq!(heard(1, &mut input), (2, false));
    assert!(input.is_empty());
    // Without room, answers alone are taken.
    input.extend_from_slice(&super::encode(&pubrel(id(7)), V5));
    assert_eq!(heard(0, &mut input), (1, false));
}

/// 3.2.2.3: properties that CONNACK omits have the standard's defaults, separately for each
/// connection.
#[test]
fn limits_are_the_servers_and_die_with_the_connection() {
    let mut client = Client::limited(&[
        Property::ReceiveMaximum(7),
        Property::MaximumQoS(true),
        Property::RetainAvailable(false),
        Property::MaximumPacketSize(1000),
        Property::TopicAliasMaximum(3),
        Property::WildcardSubscriptionAvailable(false),
        Property::SubscriptionIdentifierAvailable(false),
        Property::SharedSubscriptionAvailable(false),
    ]);
    assert_eq!(
        *client.connection().limits(),
        Limits {
            receive_maximum: 7,
            exactly_once_maximum: u16::MAX,
            maximum_qos: Q1,
            retain_available: false,
            maximum_packet_size: 1000,
            topic_alias_maximum: 3,
            wildcard_subscription: false,
            subscription_identifiers: false,
            shared_subscription: false,
        }
    );
    client.cut();
    client.resume(V5);
    assert_eq!(*client.connection().limits(), Limits::default());
}

/// [MQTT-3.2.2-11], [MQTT-3.2.2-14]: features that the server does not support are not used.
#[test]
fn a_qos_and_a_retain_that_the_server_does_not_take_are_refused_before_sending() {
    for (maximum, refused) in [(false, &[Q1, Q2][..]), (true, &[Q2])] {
        for &qos in refused {
            let mut client = Client::limited(&[Property::MaximumQoS(maximum)]);
            client.publish(qos, "m");
            assert!(client.said().is_empty());
            assert_eq!(client.failed().kind(), ErrorKind::Unsupported);
        }
    }
    let mut client = Client::limited(&[Property::MaximumQoS(true)]);
    client.publish(Q1, "m");
    assert_eq!(client.published().len(), 1);
    let mut client = Client::limited(&[Property::RetainAvailable(false)]);
    client.push(Publish { retain: true, ..message("t", Q1, "m") });
    client.publish(Q1, "plain");
    assert_eq!(told(&client.published()).len(), 1);
    assert_eq!(client.failed().kind(), ErrorKind::Unsupported);
}

/// [MQTT-3.2.2-15]: the limit applies to the whole packet, including the header.
#[test]
fn a_packet_above_the_servers_maximum_is_refused_before_sending() {
    // 30 06 00 01 't' 00 'x' 'y': eight bytes.
    let publish = |limit: u32| {
        let mut client = Client::limited(&[Property::MaximumPacketSize(limit)]);
        client.publish(Q0, "xy");
        (client.said().len(), client.outcomes().remove(0).1)
    };
    assert!(matches!(publish(8), (1, Ok(_))));
    let (said, result) = publish(7);
    assert_eq!((said, result.unwrap_err().kind()), (0, ErrorKind::MessageTooLarge));
    let mut client = Client::limited(&[Property::MaximumPacketSize(40)]);
    client.session.subscribe(1, filters(&[&"long/".repeat(20)]));
    assert!(client.said().is_empty());
    assert_eq!(client.events().len(), 1, "SUBSCRIBE has failed");
}

/// 3.4.2.2.2: reason string and user properties are dropped before an acknowledgement becomes too
/// large.
#[test]
fn an_answer_leaves_out_its_words_where_they_do_not_fit() {
    let mut client = Client::limited(&[Property::MaximumPacketSize(20)]);
    let words = Properties::new()
        .with(Property::ReasonString("a long story about what went wrong".into()))
        .with(Property::User("who".into(), "me".into()));
    let ack = Ack { properties: words, ..Ack::with_reason(id(9), Reason::QuotaExceeded) };
    let now = client.now;
    client.connection().send(now, Packet::PubAck(ack)).unwrap();
    let Packet::PubAck(said) = client.says() else { panic!("PUBACK") };
    assert_eq!((said.reason, said.properties.is_empty()), (Reason::QuotaExceeded, true));
}

/// [MQTT-3.1.2-24]: our own maximum packet size.
#[test]
fn a_packet_above_our_maximum_closes_the_connection_with_packet_too_large() {
    let mut client = Client::new();
    let properties = Properties::new().with(Property::MaximumPacketSize(100));
    client.open(Connect { properties, ..Connect::new(V5, "c") });
    client.hear(Packet::ConnAck(accepted())).unwrap();
    client.hear(delivery(Q0, 0, &"x".repeat(94))).unwrap();
    // The header alone is enough to reject it.
    let error = client.hear_bytes(&[0x30, 99]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FrameTooLarge);
    assert_eq!(client.disconnect_reason(), Reason::PacketTooLarge);
}

fn aliased(client: &mut Client, topics: &[&str]) -> Vec<(String, Option<u16>)> {
    for topic in topics {
        client.push(message(topic, Q0, "m"));
    }
    let told = client.published();
    told.iter().map(|p| (p.topic.to_string(), p.properties.topic_alias().copied())).collect()
}

fn as_sent(some: &[(&str, u16)]) -> Vec<(String, Option<u16>)> {
    some.iter().map(|(topic, alias)| ((*topic).into(), Some(*alias))).collect()
}

/// [MQTT-3.3.2-8], [MQTT-3.3.2-9], [MQTT-3.2.2-17], 3.3.2.3.4: a topic is sent once with its alias,
/// then the alias alone; the least recently used topic loses its alias.
#[test]
fn topics_are_aliased_and_the_least_recently_used_alias_is_given_anew() {
    let mut client = Client::limited(&[Property::TopicAliasMaximum(2)]);
    let said = aliased(&mut client, &["a", "b", "a", "c", "a", "b", "c"]);
    assert_eq!(said, as_sent(&[("a", 1), ("b", 2), ("", 1), ("c", 2), ("", 1), ("b", 2), ("c", 1)]));
}

/// [MQTT-3.2.2-18]: none are sent if the server accepts none. [MQTT-3.3.2-7]: aliases end with the
/// connection.
#[test]
fn without_a_maximum_there_is_no_alias_and_a_new_connection_knows_none() {
    let mut client = Client::limited(&[Property::TopicAliasMaximum(5)]);
    aliased(&mut client, &["a", "a"]);
    client.cut();
    client.resume(V5);
    assert_eq!(aliased(&mut client, &["a", "a"]), [("a".into(), None), ("a".into(), None)]);
    client.cut();
    client.stand(V5, accepted_with(&[Property::TopicAliasMaximum(1)]));
    assert_eq!(aliased(&mut client, &["a", "a"]), as_sent(&[("a", 1), ("", 1)]));
}

/// An alias whose packet was never queued is unknown to the server.
#[test]
fn a_publication_that_could_not_be_sent_teaches_no_alias() {
    let mut client = Client::limited(&[Property::TopicAliasMaximum(1)]);
    let name = "n".repeat(70_000).into();
    let properties = Properties::new().with(Property::User(name, "v".into()));
    client.push(Publish { properties, ..message("a", Q0, "m") });
    assert!(client.said().is_empty());
    assert_eq!(client.failed().kind(), ErrorKind::InvalidArgument);
    assert_eq!(aliased(&mut client, &["a", "a"]), as_sent(&[("a", 1), ("", 1)]));
}

/// The number of our aliases is bounded, since each new topic searches all of them.
#[test]
fn no_more_aliases_are_given_than_are_worth_it() {
    let mut client = Client::limited(&[Property::TopicAliasMaximum(u16::MAX)]);
    let topics: Vec<String> = (0..1000).map(|n| format!("t/{n}")).collect();
    let said = aliased(&mut client, &topics.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(said.iter().filter_map(|(_, alias)| *alias).max(), Some(256));
    // The newest topics are known by their aliases.
    assert_eq!(aliased(&mut client, &["t/999", "t/0"]), as_sent(&[("", 232), ("t/0", 233)]));
}

fn taking_aliases(maximum: u16) -> Client {
    let mut client = Client::new();
    let properties = Properties::new().with(Property::TopicAliasMaximum(maximum));
    client.open(Connect { properties, ..Connect::new(V5, "c") });
    client.hear(Packet::ConnAck(accepted())).unwrap();
    client
}

fn with_alias(topic: &str, alias: u16) -> Packet {
    let properties = Properties::new().with(Property::TopicAlias(alias));
    Packet::Publish(Publish { properties, ..message(topic, Q0, "m") })
}

/// [MQTT-3.3.2-10]: all aliases up to our maximum are accepted, and may be reassigned.
#[test]
fn the_servers_aliases_are_put_back_into_topics() {
    let mut client = taking_aliases(2);
    for (topic, alias) in [("a", 1), ("b", 2), ("", 1), ("", 2), ("c", 1), ("", 1)] {
        client.hear(with_alias(topic, alias)).unwrap();
    }
    let messages = client.messages();
    let topics: Vec<&str> = messages.iter().map(|(publish, _)| &*publish.topic).collect();
    assert_eq!(topics, ["a", "b", "a", "b", "c", "c"]);
    assert!(messages.iter().all(|(publish, _)| publish.properties.is_empty()), "the alias is not passed on");
}

/// 3.3.2.3.4, 3.3.4: Topic Alias invalid, 0x94.
#[test]
fn an_alias_above_our_maximum_or_never_given_closes_the_connection() {
    for (maximum, packet) in [(0, with_alias("a", 1)), (2, with_alias("a", 3)), (2, with_alias("", 1))] {
        let mut client = taking_aliases(maximum);
        assert_eq!(client.hear(packet).unwrap_err().kind(), ErrorKind::Protocol);
        assert_eq!(client.disconnect_reason(), Reason::TopicAliasInvalid);
        assert!(client.messages().is_empty());
    }
}

fn auth(reason: Reason, method: Option<&str>, data: &'static [u8]) -> Packet {
    let method = method.map(|method| Property::AuthenticationMethod(method.into()));
    let data = (!data.is_empty()).then(|| Property::AuthenticationData(Bytes::from_static(data)));
    Packet::Auth(Auth { reason, properties: method.into_iter().chain(data).collect() })
}

fn authenticating() -> Client {
    let mut client = Client::new();
    let properties = Properties::new().with(Property::AuthenticationMethod("SCRAM".into()));
    client.open(Connect { properties, ..Connect::new(V5, "c") });
    client
}

/// [MQTT-4.12.0-2], [MQTT-4.12.0-3], [MQTT-4.12.0-5], [MQTT-3.1.2-30].
#[test]
fn the_handshake_goes_through_the_steps_of_the_method() {
    let mut client = authenticating();
    client.publish(Q1, "early");
    client.hear(auth(Reason::ContinueAuthentication, Some("SCRAM"), b"challenge")).unwrap();
    assert!(matches!(&client.told[..], [Event::Auth(auth)]
        if auth.properties.authentication_data().is_some_and(|data| data == "challenge")));
    assert!(client.said().is_empty(), "nothing but AUTH goes before CONNACK");
    let now = client.now;
    client.connection().authenticate(now, Bytes::from_static(b"proof"), false).unwrap();
    assert_eq!(client.says(), auth(Reason::ContinueAuthentication, Some("SCRAM"), b"proof"));
    let ack = accepted_with(&[Property::AuthenticationMethod("SCRAM".into())]);
    client.hear(Packet::ConnAck(ack)).unwrap();
    assert_eq!(client.published().len(), 1);
}

/// [MQTT-4.12.1-1]: once connected, the client may re-authenticate with the same method.
#[test]
fn a_new_authentication_starts_with_re_authenticate_and_only_after_connack() {
    let mut client = authenticating();
    let now = client.now;
    let early = client.connection().authenticate(now, Bytes::new(), true);
    assert_eq!(early.unwrap_err().kind(), ErrorKind::Disconnected);
    assert!(client.said().is_empty());
    client.hear(Packet::ConnAck(accepted())).unwrap();
    client.connection().authenticate(now, Bytes::from_static(b"again"), true).unwrap();
    assert_eq!(client.says(), auth(Reason::ReAuthenticate, Some("SCRAM"), b"again"));
    client.hear(auth(Reason::ContinueAuthentication, Some("SCRAM"), b"challenge")).unwrap();
    // No other packet has to wait for it.
    client.publish(Q1, "meanwhile");
    assert_eq!(client.published().len(), 1);
    client.connection().authenticate(now, Bytes::from_static(b"proof"), false).unwrap();
    assert_eq!(client.says(), auth(Reason::ContinueAuthentication, Some("SCRAM"), b"proof"));
    client.hear(auth(Reason::Success, Some("SCRAM"), b"")).unwrap();
    assert!(matches!(client.told.last(), Some(Event::Auth(auth)) if auth.reason == Reason::Success));
}

/// [MQTT-3.2.2-15]: the packet size limit applies to AUTH too.
#[test]
fn an_auth_above_the_servers_maximum_is_refused_before_sending() {
    let mut client = authenticating();
    client.hear(Packet::ConnAck(accepted_with(&[Property::MaximumPacketSize(30)]))).unwrap();
    let now = client.now;
    let large = client.connection().authenticate(now, Bytes::from(vec![0; 100]), true);
    assert_eq!(large.unwrap_err().kind(), ErrorKind::MessageTooLarge);
    assert!(client.said().is_empty());
}

/// [MQTT-4.12.0-5], [MQTT-4.12.0-6]: a different method, or one where we have none, is a protocol
/// error.
#[test]
fn another_authentication_method_closes_the_connection() {
    let step = Reason::ContinueAuthentication;
    for packet in [auth(step, Some("PLAIN"), b"x"), auth(step, None, b"")] {
        let mut client = authenticating();
        assert_eq!(client.hear(packet.clone()).unwrap_err().kind(), ErrorKind::Protocol);
        let mut client = authenticating();
        client.hear(Packet::ConnAck(accepted())).unwrap();
        assert!(client.hear(packet).is_err());
        assert_eq!(client.disconnect_reason(), Reason::ProtocolError);
    }
    let plain = accepted_with(&[Property::AuthenticationMethod("PLAIN".into())]);
    let mut client = authenticating();
    assert!(client.hear(Packet::ConnAck(plain.clone())).is_err());
    let mut client = Client::new();
    client.open(Connect::new(V5, "c"));
    assert!(client.hear(Packet::ConnAck(plain)).is_err(), "we named no method");
    for packet in [auth(step, Some("PLAIN"), b"x"), auth(step, None, b""), auth(Reason::Success, None, b"")] {
        let mut client = Client::connected(V5);
        assert!(client.hear(packet).is_err(), "we named no method");
        assert_eq!(client.disconnect_reason(), Reason::ProtocolError);
    }
}

/// [MQTT-4.12.0-7]: without a method the client sends no AUTH.
#[test]
fn without_a_method_no_auth_is_sent() {
    let mut client = Client::connected(V5);
    let now = client.now;
    for again in [false, true] {
        let refused = client.connection().authenticate(now, Bytes::new(), again);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    assert!(client.said().is_empty());
}

/// [MQTT-3.14.4-1], in 3.1.1 [MQTT-3.14.4-2]: DISCONNECT is the last packet.
#[test]
fn nothing_is_sent_after_disconnect() {
    for version in [Version::V3_1, V4, V5] {
        let mut client = Client::connected(version);
        client.publish(Q1, "before");
        let before = client.published();
        client.disconnect(Reason::Success);
        client.publish(Q1, "after");
        client.hear(puback(id_of(&before[0]))).unwrap();
        client.hear(delivery(Q1, 1, "m")).unwrap();
        client.disconnect(Reason::Success);
        assert_eq!(client.says(), Packet::Disconnect(Disconnect::new(Reason::Success)));
        client.pass(1000 * SECOND).unwrap();
        let now = client.now;
        assert_eq!(client.connection().send(now, Packet::PingReq).unwrap_err().kind(), ErrorKind::Closed);
        assert!(client.said().is_empty());
    }
}

/// 3.14.2.1: DISCONNECT carries a reason in MQTT 5 and cannot carry one in MQTT 3.
#[test]
fn a_disconnect_says_its_reason_and_the_session_expiry() {
    let mut client = Client::connected(V5);
    let properties = Properties::new().with(Property::SessionExpiryInterval(0));
    let goodbye = Disconnect { reason: Reason::DisconnectWithWill, properties };
    let now = client.now;
    client.connection().disconnect(now, goodbye.clone());
    assert_eq!(client.says(), Packet::Disconnect(goodbye));
    let mut client = Client::connected(V4);
    client.disconnect(Reason::DisconnectWithWill);
    assert_eq!(client.says(), Packet::Disconnect(Disconnect::new(Reason::Success)));
}

/// 3.14: each of the server's reasons becomes an error of its kind; [MQTT-4.13.2-1]: a DISCONNECT
/// is not answered.
#[test]
fn a_disconnect_of_the_server_ends_the_connection_with_its_reason() {
    for (reason, kind, again) in [
        (Reason::Success, ErrorKind::Disconnected, true),
        (Reason::SessionTakenOver, ErrorKind::SessionTakenOver, false),
        (Reason::ServerShuttingDown, ErrorKind::ServiceNotReady, true),
        (Reason::KeepAliveTimeout, ErrorKind::Disconnected, true),
        (Reason::NotAuthorized, ErrorKind::Authorization, false),
        (Reason::ReceiveMaximumExceeded, ErrorKind::Protocol, true),
        (Reason::ServerMoved, ErrorKind::ServiceNotReady, true),
    ] {
        let mut client = Client::connected(V5);
        let properties = Properties::new().with(Property::ReasonString("because".into()));
        let error = client.hear(Packet::Disconnect(Disconnect { reason, properties })).unwrap_err();
        assert_eq!((error.kind(), error.retriable()), (kind, again), "{reason}");
        assert_eq!(error.peer_text(), Some("because"));
        assert!(client.said().is_empty(), "a DISCONNECT is not answered");
    }
}

/// [MQTT-4.13.1-1]: MQTT 5 reports the violation, MQTT 3 only closes the connection (its
/// [MQTT-4.8.0-1]).
#[test]
fn a_violation_closes_the_connection_and_5_0_says_which() {
    for (bytes, reason) in [
        (&[0x30, 2, 0, 0][..], Reason::MalformedPacket),
        (&[0x30, 0xff, 0xff, 0xff, 0xff, 1], Reason::MalformedPacket),
        (&[0x36, 6, 0, 1, b'a', 0, 1, 0], Reason::MalformedPacket),
        (&[0x40, 2, 0, 0], Reason::ProtocolError),
        (&[0x82, 2, 0, 1], Reason::ProtocolError),
        (&[0xc0, 0], Reason::ProtocolError),
        (&[0xd1, 0], Reason::MalformedPacket),
        (&[0x00, 0], Reason::MalformedPacket),
        (&[0x30, 4, 0, 1, b'+', 0], Reason::TopicNameInvalid),
    ] {
        let mut client = Client::connected(V5);
        assert!(client.hear_bytes(bytes).is_err(), "{bytes:02x?}");
        assert_eq!(client.disconnect_reason(), reason, "{bytes:02x?}");
        let mut client = Client::connected(V4);
        assert!(client.hear_bytes(bytes).is_err(), "{bytes:02x?}");
        assert!(client.said().is_empty(), "MQTT 3 sends nothing");
    }
}

/// Packets that the broker wrote before its violation are still processed.
#[test]
fn packets_before_a_broken_one_are_delivered() {
    let mut client = Client::connected(V5);
    let mut bytes = super::encode(&delivery(Q0, 0, "whole"), V5).to_vec();
    bytes.extend([0xf7, 0]);
    assert!(client.hear_bytes(&bytes).is_err());
    assert_eq!(client.messages().len(), 1);
}

/// A broker that floods with PUBREL and reads nothing.
#[test]
fn a_broker_that_takes_no_answers_is_read_no_further() {
    let mut client = Client::connected(V5);
    let id = |number: u32| PacketId::new((number % 60_000 + 1) as u16).unwrap();
    let mut flooded = 0;
    while !client.connection().is_behind_with_answers() {
        client.hear(Packet::PubRel(Ack::new(id(flooded)))).unwrap();
        flooded += 1;
        client.connection().note_unwritten(0);
        assert!(flooded < 1_000_000);
    }
    assert!(flooded > 2 * 65_535, "a lawful broker has fewer: {flooded}");
    client.connection().transmit().clear();
    client.connection().note_unwritten(100);
    assert!(!client.connection().is_behind_with_answers());
}
