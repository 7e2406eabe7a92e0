//! The receiving half of a session, tested by the statements of the standard. Section numbers are
//! those of MQTT 5 unless 3.1.1 is named.

use super::client::*;
use crate::packet::{Ack, Publish};
use crate::{Packet, Property, Reason};
use forebay_base::error::ErrorKind;

fn payloads(messages: &[(Publish, u64)]) -> Vec<&str> {
    messages.iter().map(|(publish, _)| std::str::from_utf8(&publish.payload).unwrap()).collect()
}

/// 4.3.1: QoS 0 has no answer and no acknowledgement.
#[test]
fn qos_0_is_delivered_and_not_answered() {
    let mut client = Client::connected(V5);
    client.hear(delivery(Q0, 0, "m")).unwrap();
    let messages = client.messages();
    assert_eq!((payloads(&messages), messages[0].1), (vec!["m"], 0));
    client.ack(0);
    assert!(client.said().is_empty());
    assert_eq!(client.session.unacknowledged(), 0);
}

/// [MQTT-4.3.2-4]: PUBACK with the packet identifier, once the application has acknowledged and not
/// before.
#[test]
fn qos_1_is_answered_by_puback_when_it_is_acknowledged() {
    for version in [V4, V5] {
        let mut client = Client::connected(version);
        client.hear(delivery(Q1, 7, "m")).unwrap();
        let (_, token) = client.messages().remove(0);
        assert!(client.said().is_empty());
        assert_eq!(client.session.unacknowledged(), 1);
        client.ack(token);
        assert_eq!(client.says(), puback(id(7)));
        client.ack(token);
        assert!(client.said().is_empty(), "once");
        assert_eq!(client.session.unacknowledged(), 0);
    }
}

/// [MQTT-4.3.2-5]: after PUBACK the packet identifier denotes another message, regardless of DUP.
#[test]
fn after_puback_the_same_identifier_is_a_new_message() {
    let mut client = Client::connected(V5);
    for payload in ["one", "two"] {
        client.hear(redelivery(Q1, 7, payload)).unwrap();
        let messages = client.messages();
        assert_eq!(payloads(&messages), [payload]);
        client.ack(messages[0].1);
        assert_eq!(client.says(), puback(id(7)));
    }
}

/// [MQTT-4.3.3-8], [MQTT-4.3.3-11]: PUBREC, PUBREL, PUBCOMP.
#[test]
fn qos_2_is_answered_by_pubrec_and_its_pubrel_by_pubcomp() {
    for version in [V4, V5] {
        let mut client = Client::connected(version);
        client.hear(delivery(Q2, 7, "m")).unwrap();
        let (_, token) = client.messages().remove(0);
        client.ack(token);
        assert_eq!(client.says(), pubrec(id(7)));
        client.hear(pubrel(id(7))).unwrap();
        assert_eq!(client.says(), pubcomp(id(7)));
    }
}

/// [MQTT-4.3.3-10]: until PUBREL it is the same message, however often it is sent.
#[test]
fn a_publish_of_qos_2_that_comes_again_is_answered_again_and_not_delivered_again() {
    let mut client = Client::connected(V4);
    client.hear(delivery(Q2, 7, "m")).unwrap();
    let (_, token) = client.messages().remove(0);
    client.ack(token);
    assert_eq!(client.says(), pubrec(id(7)));
    for _ in 0..5 {
        client.hear(redelivery(Q2, 7, "m")).unwrap();
        assert!(client.messages().is_empty());
        assert_eq!(client.says(), pubrec(id(7)));
    }
}

/// A repeated message that the application has not acknowledged is answered once it has.
#[test]
fn a_publish_of_qos_2_that_comes_again_unacknowledged_waits_for_its_acknowledgement() {
    let mut client = Client::connected(V4);
    client.hear(delivery(Q2, 7, "m")).unwrap();
    let (_, token) = client.messages().remove(0);
    client.hear(redelivery(Q2, 7, "m")).unwrap();
    assert!(client.messages().is_empty() && client.said().is_empty());
    client.ack(token);
    assert_eq!(client.says(), pubrec(id(7)));
}

/// [MQTT-4.3.3-12]: after PUBREL the identifier is free.
#[test]
fn after_pubrel_the_same_identifier_is_a_new_message() {
    let mut client = Client::connected(V5);
    for payload in ["one", "two"] {
        client.hear(delivery(Q2, 7, payload)).unwrap();
        let messages = client.messages();
        assert_eq!(payloads(&messages), [payload]);
        client.ack(messages[0].1);
        client.hear(pubrel(id(7))).unwrap();
        assert_eq!(client.said(), [pubrec(id(7)), pubcomp(id(7))]);
    }
}

/// 3.7.2.1: an unexpected PUBREL is answered, in MQTT 5 with the reason, and is not an error.
#[test]
fn an_unknown_pubrel_is_answered_by_pubcomp() {
    for (version, reason) in [(V4, Reason::Success), (V5, Reason::PacketIdentifierNotFound)] {
        let mut client = Client::connected(version);
        client.hear(pubrel(id(7))).unwrap();
        assert_eq!(client.says(), Packet::PubComp(Ack::with_reason(id(7), reason)));
    }
}

/// [MQTT-4.6.0-2], [MQTT-4.6.0-3]: PUBACK and PUBREC follow the order of arrival, regardless of the
/// application.
#[test]
fn acknowledgements_are_released_in_the_order_of_arrival() {
    let mut client = Client::connected(V5);
    for (number, qos) in [(1, Q1), (2, Q2), (3, Q1), (4, Q2), (5, Q1)] {
        client.hear(delivery(qos, number, "m")).unwrap();
    }
    let tokens: Vec<u64> = client.messages().into_iter().map(|(_, token)| token).collect();
    for late in [tokens[3], tokens[1], tokens[2]] {
        client.ack(late);
        assert!(client.said().is_empty(), "the first is not acknowledged");
    }
    assert_eq!(client.session.unacknowledged(), 2);
    client.ack(tokens[0]);
    assert_eq!(client.said(), [puback(id(1)), pubrec(id(2)), puback(id(3)), pubrec(id(4))]);
    client.ack(tokens[4]);
    assert_eq!(client.says(), puback(id(5)));
}

/// [MQTT-4.5.0-2]: a message that matches no subscription is acknowledged like any other.
#[test]
fn a_message_that_no_subscription_asked_for_is_delivered_and_answered() {
    let mut client = Client::connected(V4);
    client.hear(delivery(Q1, 1, "stray")).unwrap();
    let (publish, token) = client.messages().remove(0);
    assert_eq!(publish.topic, "t");
    client.ack(token);
    assert_eq!(client.says(), puback(id(1)));
}

/// [MQTT-4.4.0-1] for the receiver: unanswered QoS 1 is redelivered after a disconnect, and its old
/// token is void.
#[test]
fn qos_1_that_was_not_answered_is_delivered_again_after_a_cut() {
    let mut client = Client::connected(V5);
    client.hear(delivery(Q1, 1, "a")).unwrap();
    client.hear(delivery(Q1, 2, "b")).unwrap();
    let before = client.messages();
    client.ack(before[1].1);
    client.cut();
    client.ack(before[0].1);
    client.resume(V5);
    assert!(client.said().is_empty(), "acknowledgements of a dead connection are not sent on a new one");
    client.hear(redelivery(Q1, 1, "a")).unwrap();
    client.hear(redelivery(Q1, 2, "b")).unwrap();
    let again = client.messages();
    assert_eq!(payloads(&again), ["a", "b"]);
    client.ack(before[0].1);
    assert!(client.said().is_empty(), "the old token");
    client.ack(again[0].1);
    client.ack(again[1].1);
    assert_eq!(client.said(), [puback(id(1)), puback(id(2))]);
}

/// 4.1: packet identifiers of QoS 2 are session state. Disconnects before and after PUBREC and
/// PUBCOMP.
#[test]
fn qos_2_is_delivered_once_wherever_the_connection_is_cut() {
    for cut in 0..5 {
        let mut client = Client::connected(V5);
        let mut delivered = 0;
        client.hear(delivery(Q2, 7, "m")).unwrap();
        let token = client.messages().remove(0).1;
        delivered += 1;
        if cut > 0 {
            client.ack(token);
        }
        if cut > 1 {
            assert_eq!(client.says(), pubrec(id(7)));
        }
        if cut > 2 {
            client.hear(pubrel(id(7))).unwrap();
        }
        if cut > 3 {
            assert_eq!(client.says(), pubcomp(id(7)));
        }
        client.cut();
        client.resume(V5);
        if cut < 3 {
            // PUBREC was lost on its way.
            client.hear(redelivery(Q2, 7, "m")).unwrap();
            delivered += client.messages().len();
            client.ack(token);
            assert_eq!(client.says(), pubrec(id(7)), "cut {cut}");
        }
        client.hear(pubrel(id(7))).unwrap();
        let Packet::PubComp(done) = client.says() else { panic!("PUBCOMP") };
        let forgotten = cut > 2;
        assert_eq!(done.reason == Reason::PacketIdentifierNotFound, forgotten, "cut {cut}");
        assert_eq!(delivered, 1, "cut {cut}");
    }
}

/// An acknowledgement made without a connection is remembered.
#[test]
fn an_acknowledgement_of_qos_2_without_a_connection_counts() {
    let mut client = Client::connected(V5);
    client.hear(delivery(Q2, 7, "m")).unwrap();
    let token = client.messages().remove(0).1;
    client.cut();
    client.ack(token);
    client.resume(V5);
    client.hear(redelivery(Q2, 7, "m")).unwrap();
    assert_eq!(client.says(), pubrec(id(7)));
    assert!(client.messages().is_empty());
}

/// 3.2.2.1.1: without the session the broker reuses packet identifiers from the start.
#[test]
fn a_lost_session_forgets_the_identifiers_of_qos_2() {
    let mut client = Client::connected(V5);
    client.hear(delivery(Q2, 7, "old")).unwrap();
    let token = client.messages().remove(0).1;
    client.ack(token);
    client.cut();
    client.stand(V5, accepted());
    client.hear(delivery(Q2, 7, "new")).unwrap();
    assert_eq!(payloads(&client.messages()), ["new"]);
}

/// [MQTT-3.3.4-9]: the server must not exceed our receive maximum: 0x93.
#[test]
fn more_than_our_receive_maximum_closes_the_connection() {
    let mut client = Client::with_windows(10, 3);
    client.stand(V5, accepted());
    client.hear(delivery(Q1, 1, "m")).unwrap();
    client.hear(delivery(Q2, 2, "m")).unwrap();
    client.hear(delivery(Q1, 3, "m")).unwrap();
    client.hear(delivery(Q0, 0, "QoS 0 does not count")).unwrap();
    assert_eq!(client.hear(delivery(Q1, 4, "m")).unwrap_err().kind(), ErrorKind::Protocol);
    assert_eq!(client.disconnect_reason(), Reason::ReceiveMaximumExceeded);
    assert_eq!(client.messages().len(), 4);
}

/// 4.9: QoS 1 frees its place with PUBACK, QoS 2 with PUBCOMP rather than PUBREC.
#[test]
fn a_place_is_free_again_with_puback_and_with_pubcomp() {
    let mut client = Client::with_windows(10, 1);
    client.stand(V5, accepted());
    client.hear(delivery(Q1, 1, "m")).unwrap();
    let token = client.messages().remove(0).1;
    client.ack(token);
    client.hear(delivery(Q2, 2, "m")).unwrap();
    let token = client.messages().remove(0).1;
    client.ack(token);
    client.hear(pubrel(id(2))).unwrap();
    client.hear(delivery(Q2, 3, "m")).unwrap();
    let token = client.messages().remove(0).1;
    client.ack(token);
    assert!(client.hear(delivery(Q1, 4, "m")).is_err(), "PUBREC does not free the place");
}

/// 4.9: a message resent after a disconnect is counted once, even if its PUBREC was sent before.
#[test]
fn a_resumed_publish_of_qos_2_does_not_exceed_the_receive_maximum() {
    let mut client = Client::with_windows(10, 1);
    client.stand(V5, accepted());
    client.hear(delivery(Q2, 7, "m")).unwrap();
    let token = client.messages().remove(0).1;
    client.ack(token);
    client.cut();
    client.resume(V5);
    client.hear(redelivery(Q2, 7, "m")).unwrap();
    assert_eq!(client.says(), pubrec(id(7)));
    client.hear(pubrel(id(7))).unwrap();
    client.hear(delivery(Q2, 8, "next")).unwrap();
    assert_eq!(payloads(&client.messages()), ["next"]);
}

/// MQTT 3 has no receive maximum.
#[test]
fn a_broker_of_3_x_may_send_as_much_as_it_likes() {
    let mut client = Client::with_windows(10, 1);
    client.stand(V4, accepted());
    for number in 1..50 {
        client.hear(delivery(Q1, number, "m")).unwrap();
    }
    assert_eq!(client.messages().len(), 49);
}

/// Properties for the application are passed through unchanged and in order (3.3.2.3.7).
#[test]
fn properties_of_a_message_are_delivered_unaltered() {
    let mut client = Client::connected(V5);
    let properties: crate::Properties = [
        Property::User("a".into(), "1".into()),
        Property::ContentType("text".into()),
        Property::User("a".into(), "2".into()),
        Property::SubscriptionIdentifier(9),
        Property::SubscriptionIdentifier(3),
    ]
    .into_iter()
    .collect();
    let publish = Publish { properties: properties.clone(), ..message("t", Q0, "m") };
    client.hear(Packet::Publish(publish)).unwrap();
    assert_eq!(client.messages().remove(0).0.properties, properties);
}
