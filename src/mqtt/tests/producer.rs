//! The sending half of a session, tested by the statements of the standard. Section numbers are
//! those of MQTT 5 unless 3.1.1 is named.

use std::time::Duration;

use super::client::*;
use crate::packet::{Ack, ConnAck, Publish};
use crate::producer::{PacketIds, check_version};
use crate::session::Event;
use crate::{Packet, Properties, Property, Reason, Version};
use forebay_base::error::{Error, ErrorKind};
use forebay_base::machine::Machine as _;

fn errors(client: &mut Client) -> Vec<Option<ErrorKind>> {
    client.outcomes().into_iter().map(|(_, result)| result.err().map(|error| error.kind())).collect()
}

/// [MQTT-2.2.1-2], [MQTT-3.3.1-2], [MQTT-4.3.1-1]: no packet identifier, no DUP, complete once
/// written.
#[test]
fn qos_0_ends_when_its_bytes_are_written() {
    let mut client = Client::connected(V5);
    client.publish(Q0, "m");
    let said = client.said_unwritten();
    let Packet::Publish(publish) = &said[0] else { panic!("{said:?}") };
    assert_eq!((publish.packet_id, publish.dup), (None, false));
    assert!(client.outcomes().is_empty(), "queued is not written");
    let queued = client.connection().queued();
    client.session.handle_written(queued - 1);
    assert!(client.outcomes().is_empty(), "its last byte is missing");
    client.session.handle_written(queued);
    assert!(matches!(&client.outcomes()[..], [(Q0, Ok(Reason::Success))]));
}

/// Publications that are sent again precede it [MQTT-4.4.0-1]. While they fill the window, QoS 0
/// does not overtake it.
#[test]
fn a_first_publication_goes_ahead_of_what_has_not_been_sent() {
    for qos in [Q0, Q1, Q2] {
        let mut client = Client::limited(&[Property::ReceiveMaximum(1)]);
        client.publish(Q1, "in flight");
        let id = id_of(&client.published()[0]);
        client.cut();
        client.publish(Q0, "waits");
        client.publish(Q1, "waits, too");
        client.stand(V5, ConnAck { session_present: true, ..accepted_with(&[Property::ReceiveMaximum(1)]) });
        client.session.producer().push_first(7, message("t", qos, "first"));
        let mut said = client.published();
        client.hear(puback(id)).unwrap();
        said.extend(client.published());
        if qos != Q0 {
            let first = id_of(&said[1]);
            match qos {
                Q1 => client.hear(puback(first)).unwrap(),
                _ => {
                    client.hear(pubrec(first)).unwrap();
                    client.says();
                    client.hear(pubcomp(first)).unwrap();
                }
            }
            said.extend(client.published());
        }
        let payloads: Vec<&str> = told(&said).into_iter().map(|(_, payload)| payload).collect();
        assert_eq!(payloads, ["in flight", "first", "waits", "waits, too"], "{qos:?}");
    }
}

/// QoS 0 is not resent: it could arrive twice, which QoS 0 rules out.
#[test]
fn qos_0_whose_writing_was_cut_fails_and_what_was_not_begun_goes_out_later() {
    let mut client = Client::connected(V5);
    client.publish(Q0, "begun");
    client.said_unwritten();
    client.publish(Q0, "waiting");
    client.cut();
    assert_eq!(errors(&mut client), [Some(ErrorKind::Disconnected)]);
    client.resume(V5);
    assert_eq!(told(&client.published()), [(0, "waiting")]);
    assert_eq!(errors(&mut client), [None]);
}

/// [MQTT-4.3.2-1], [MQTT-4.3.2-2], [MQTT-2.2.1-3]: a packet identifier, DUP 0, complete with
/// PUBACK.
#[test]
fn qos_1_ends_with_its_puback() {
    for version in [V4, V5] {
        let mut client = Client::connected(version);
        client.publish(Q1, "m");
        let published = client.published();
        assert!(!published[0].dup && published[0].packet_id.is_some());
        assert!(client.outcomes().is_empty());
        client.hear(puback(id_of(&published[0]))).unwrap();
        assert!(matches!(&client.outcomes()[..], [(Q1, Ok(Reason::Success))]));
        assert_eq!(client.session.pending_messages(), 0);
    }
}

/// [MQTT-4.3.3-1], [MQTT-4.3.3-2], [MQTT-4.3.3-3], [MQTT-4.3.3-4], [MQTT-4.3.3-5]: PUBREC is
/// answered with PUBREL of the same packet identifier; complete with PUBCOMP.
#[test]
fn qos_2_goes_through_pubrec_and_pubrel_and_ends_with_pubcomp() {
    for version in [V4, V5] {
        let mut client = Client::connected(version);
        client.publish(Q2, "m");
        let id = id_of(&client.published()[0]);
        client.hear(pubrec(id)).unwrap();
        assert_eq!(client.says(), pubrel(id));
        assert!(client.outcomes().is_empty());
        client.hear(pubcomp(id)).unwrap();
        assert!(matches!(&client.outcomes()[..], [(Q2, Ok(Reason::Success))]));
    }
}

/// 3.4.2.1, [MQTT-4.3.3-4]: a refusal ends the flow, with the server's explanation; a PUBREC of
/// 0x80 or above has no PUBREL.
#[test]
fn a_refusal_ends_the_publication_and_frees_its_identifier() {
    for qos in [Q1, Q2] {
        let mut client = Client::with_windows(1, 1);
        client.stand(V5, accepted());
        client.publish(qos, "refused");
        client.publish(qos, "next");
        let id = id_of(&client.published()[0]);
        let properties = Properties::new().with(Property::ReasonString("full".into()));
        let refusal = Ack { properties, ..Ack::with_reason(id, Reason::QuotaExceeded) };
        client.hear(if qos == Q1 { Packet::PubAck(refusal) } else { Packet::PubRec(refusal) }).unwrap();
        let error = client.failed();
        assert_eq!((error.kind(), error.peer_text()), (ErrorKind::QuotaExceeded, Some("full")));
        assert_eq!(client.published().len(), 1, "the place in the window is free, and no PUBREL is sent");
    }
}

/// 0x10 is a success with additional information.
#[test]
fn no_matching_subscribers_is_a_success() {
    let mut client = Client::connected(V5);
    client.publish(Q1, "m");
    let id = id_of(&client.published()[0]);
    client.hear(Packet::PubAck(Ack::with_reason(id, Reason::NoMatchingSubscribers))).unwrap();
    assert!(matches!(&client.outcomes()[..], [(Q1, Ok(Reason::NoMatchingSubscribers))]));
}

/// [MQTT-4.6.0-4]: PUBRELs follow the order of the PUBRECs.
#[test]
fn pubrels_go_in_the_order_of_the_pubrecs() {
    let mut client = Client::connected(V5);
    (0..3).for_each(|_| client.publish(Q2, "m"));
    let ids: Vec<_> = client.published().iter().map(id_of).collect();
    for id in [ids[2], ids[0], ids[1]] {
        client.hear(pubrec(id)).unwrap();
    }
    assert_eq!(client.said(), [pubrel(ids[2]), pubrel(ids[0]), pubrel(ids[1])]);
}

/// An early answer waits for its predecessors: outcomes follow the order of the pushes.
#[test]
fn outcomes_come_in_the_order_of_the_pushes() {
    let mut client = Client::connected(V5);
    (0..3).for_each(|_| client.publish(Q1, "m"));
    let ids: Vec<_> = client.published().iter().map(id_of).collect();
    client.hear(puback(ids[1])).unwrap();
    client.hear(Packet::PubAck(Ack::with_reason(ids[2], Reason::NotAuthorized))).unwrap();
    assert!(client.outcomes().is_empty());
    client.hear(puback(ids[0])).unwrap();
    assert_eq!(errors(&mut client), [None, None, Some(ErrorKind::Authorization)]);
}

/// The same holds for local failures, which have no answer.
#[test]
fn a_publication_that_cannot_be_sent_fails_behind_those_before_it() {
    let mut client = Client::limited(&[Property::MaximumPacketSize(30)]);
    let large = "x".repeat(100);
    client.publish(Q1, "first");
    client.publish(Q1, &large);
    client.publish(Q1, "last");
    let ids: Vec<_> = client.published().iter().map(id_of).collect();
    assert_eq!(ids.len(), 2);
    assert!(client.outcomes().is_empty());
    client.hear(puback(ids[1])).unwrap();
    client.hear(puback(ids[0])).unwrap();
    assert_eq!(errors(&mut client), [None, Some(ErrorKind::MessageTooLarge), None]);
    // Also with QoS 0, whose predecessor waits to be written.
    client.publish(Q0, "first");
    client.publish(Q0, &large);
    client.said_unwritten();
    assert!(client.outcomes().is_empty());
    client.said();
    assert_eq!(errors(&mut client), [None, Some(ErrorKind::MessageTooLarge)]);
    // With nothing waiting to be written it is reported immediately.
    client.publish(Q0, &large);
    client.said_unwritten();
    assert_eq!(errors(&mut client), [Some(ErrorKind::MessageTooLarge)]);
}

/// [MQTT-3.3.4-7], 4.9: the smaller of our window and the server's receive maximum.
#[test]
fn the_window_never_exceeds_the_receive_maximum() {
    for (own, theirs, most) in [(3, 100, 3), (100, 3, 3), (1, 1, 1)] {
        let mut client = Client::with_windows(own, 10);
        client.stand(V5, accepted_with(&[Property::ReceiveMaximum(theirs)]));
        for number in 0..10 {
            client.publish(if number % 2 == 0 { Q1 } else { Q2 }, "m");
        }
        let mut in_flight = client.published();
        let mut sent = in_flight.len();
        assert_eq!(sent, most);
        while !in_flight.is_empty() {
            let publish = in_flight.remove(0);
            let id = id_of(&publish);
            if publish.qos == Q2 {
                client.hear(pubrec(id)).unwrap();
                assert_eq!(client.said(), [pubrel(id)], "PUBREC does not free a place");
                client.hear(pubcomp(id)).unwrap();
            } else {
                client.hear(puback(id)).unwrap();
            }
            let next = client.published();
            sent += next.len();
            in_flight.extend(next);
            assert!(in_flight.len() <= most);
        }
        assert_eq!((sent, client.session.pending_messages()), (10, 0));
    }
}

/// MQTT 3 has no Receive Maximum: Mosquitto 2.0 confirms more than 20 QoS 2 publications in flight,
/// and drops the others.
#[test]
fn without_a_receive_maximum_20_publications_of_qos_2_are_in_flight() {
    for (version, most) in [(Version::V3_1, 20), (V4, 20), (V5, 50)] {
        let mut client = Client::with_windows(1000, 10);
        client.stand(version, accepted());
        (0..5).for_each(|_| client.publish(Q1, "before"));
        (0..50).for_each(|_| client.publish(Q2, "m"));
        let mut in_flight = client.published();
        assert_eq!(in_flight.len(), 5 + most, "QoS 1 has no such limit, nor has MQTT 5 (3.2.2.3.3)");
        in_flight.drain(..5).for_each(|publish| client.hear(puback(id_of(&publish))).unwrap());
        let mut sent = most;
        while !in_flight.is_empty() {
            assert!(client.published().is_empty(), "there is no room");
            let id = id_of(&in_flight.remove(0));
            client.hear(pubrec(id)).unwrap();
            assert_eq!(client.said(), [pubrel(id)], "PUBREC does not free a place");
            client.hear(pubcomp(id)).unwrap();
            let next = client.published();
            sent += next.len();
            in_flight.extend(next);
            assert!(in_flight.len() <= most);
        }
        assert_eq!(sent, 50);
    }
}

/// Publications that are sent again count, and so do those with a PUBREC.
#[test]
fn a_resumed_window_keeps_to_20_publications_of_qos_2() {
    let mut client = Client::with_windows(1000, 10);
    client.stand(V4, accepted());
    (0..50).for_each(|_| client.publish(Q2, "m"));
    let first = id_of(&client.published()[0]);
    client.hear(pubrec(first)).unwrap();
    client.says();
    client.cut();
    client.resume(V4);
    let said = client.said();
    assert_eq!((said.len(), &said[0]), (20, &pubrel(first)));
    client.hear(pubcomp(first)).unwrap();
    assert_eq!(client.published().len(), 1);
}

/// A process before this one may have had more of them in flight.
#[test]
fn a_restored_window_keeps_to_20_publications_of_qos_2() {
    let mut client = Client::with_windows(1000, 10);
    client.session.set_durable();
    for number in 1..=50 {
        let publish = message("t", Q2, "m");
        client.session.restore(number, publish, id(number as u16), number > 45).unwrap();
    }
    client.stand(V4, ConnAck { session_present: true, ..accepted() });
    let said = client.said();
    assert_eq!(said.len(), 20, "{said:?}");
}

/// [MQTT-3.3.4-8]: all other packets may be sent.
#[test]
fn a_full_window_holds_nothing_but_publish_of_qos_1_and_2() {
    let mut client = Client::with_windows(1, 10);
    client.open(crate::packet::Connect { keep_alive: 5, ..crate::packet::Connect::new(V5, "c") });
    client.hear(Packet::ConnAck(accepted())).unwrap();
    client.publish(Q1, "in flight");
    client.publish(Q2, "held");
    assert_eq!(told(&client.published()), [(1, "in flight")]);
    client.session.subscribe(1, filters(&["a"]));
    assert!(matches!(client.says(), Packet::Subscribe(_)));
    client.hear(delivery(Q1, 9, "m")).unwrap();
    let token = client.messages().remove(0).1;
    client.ack(token);
    assert_eq!(client.says(), puback(id(9)));
    client.publish(Q0, "free");
    assert_eq!(told(&client.published()), [(0, "free")]);
    client.pass(Duration::from_secs(5)).unwrap();
    assert_eq!(client.says(), Packet::PingReq);
}

/// Packet identifiers are assigned on entering the window: many more publications may wait than
/// there are.
#[test]
fn more_publications_wait_than_there_are_identifiers() {
    let mut client = Client::with_windows(2, 10);
    for _ in 0..70_000 {
        client.publish(Q1, "m");
    }
    client.stand(V5, accepted());
    let published = client.published();
    assert_eq!((published.len(), client.session.pending_messages()), (2, 70_000));
    client.hear(puback(id_of(&published[0]))).unwrap();
    assert_eq!(client.published().len(), 1);
}

/// [MQTT-2.2.1-3], in 3.1.1 [MQTT-2.3.1-2]: a packet identifier in use is skipped, regardless of
/// its owner.
#[test]
fn an_identifier_is_used_again_only_when_it_is_free() {
    let mut ids = PacketIds::default();
    let held = ids.take(7).unwrap();
    for round in 0..70_000_u64 {
        let next = ids.take(round).unwrap();
        assert_ne!(next, held);
        ids.release(next);
    }
    assert_eq!(ids.owner(held), Some(7));
    let mut all = std::collections::HashSet::from([held]);
    while let Some(next) = ids.take(0) {
        assert!(all.insert(next), "{next} twice");
    }
    assert_eq!(all.len(), usize::from(u16::MAX));
    ids.release(held);
    assert_eq!(ids.take(1), Some(held));
    assert!(!ids.claim(held, 2), "in use");
}

/// [MQTT-4.4.0-1], [MQTT-3.3.1-1], [MQTT-4.6.0-1]: the whole window is resent in order, with its
/// packet identifiers and DUP, before new publications.
#[test]
fn after_a_cut_the_window_goes_again_in_its_order_with_dup() {
    for version in [V4, V5] {
        let mut client = Client::with_windows(4, 10);
        client.stand(version, accepted());
        for (qos, payload) in [(Q1, "a"), (Q2, "b"), (Q1, "c"), (Q2, "d"), (Q1, "e")] {
            client.publish(qos, payload);
        }
        let before = client.published();
        assert_eq!(before.len(), 4);
        client.hear(puback(id_of(&before[0]))).unwrap();
        // "e" has been sent, "b" has its PUBREC.
        let e = client.published();
        client.hear(pubrec(id_of(&before[1]))).unwrap();
        assert_eq!(client.says(), pubrel(id_of(&before[1])));
        client.publish(Q1, "f");
        client.cut();
        client.resume(version);
        let again = |publish: &Publish| Packet::Publish(Publish { dup: true, ..publish.clone() });
        assert_eq!(
            client.said(),
            // [MQTT-4.3.3-6]: a message that has a PUBREC is never resent.
            [pubrel(id_of(&before[1])), again(&before[2]), again(&before[3]), again(&e[0])]
        );
        client.hear(pubcomp(id_of(&before[1]))).unwrap();
        client.hear(puback(id_of(&before[2]))).unwrap();
        let f = client.published();
        assert_eq!((f.len(), f[0].dup), (1, false), "new, and only once");
    }
}

/// [MQTT-4.4.0-1]: nothing is resent at any other time.
#[test]
fn nothing_is_sent_again_while_the_connection_stands() {
    let mut client = Client::connected(V5);
    client.publish(Q1, "m");
    client.publish(Q2, "m");
    assert_eq!(client.published().len(), 2);
    client.pass(Duration::from_secs(100_000)).unwrap();
    assert!(client.said().is_empty());
}

/// 4.9: resent publications count against the limit; the rest waits for answers.
#[test]
fn a_resumed_window_keeps_to_a_smaller_receive_maximum() {
    let mut client = Client::connected(V5);
    (0..5).for_each(|number| client.publish(Q1, &format!("{number}")));
    let before = client.published();
    client.cut();
    let present = ConnAck { session_present: true, ..accepted_with(&[Property::ReceiveMaximum(2)]) };
    client.stand(V5, present);
    let mut seen = Vec::new();
    loop {
        let some = client.published();
        if some.is_empty() {
            break;
        }
        assert!(some.len() <= 2);
        for publish in &some {
            seen.push(id_of(publish));
        }
        for publish in &some {
            client.hear(puback(id_of(publish))).unwrap();
        }
    }
    assert_eq!(seen, before.iter().map(id_of).collect::<Vec<_>>());
    assert_eq!(client.session.pending_messages(), 0);
}

/// Topic aliases end with the connection: a resent message carries its topic [MQTT-3.3.2-7].
#[test]
fn what_goes_again_has_its_topic_in_full() {
    let mut client = Client::limited(&[Property::TopicAliasMaximum(5)]);
    client.publish(Q1, "a");
    client.publish(Q1, "b");
    assert_eq!(client.published()[1].topic, "");
    client.cut();
    client.resume(V5);
    let again = client.published();
    assert!(again.iter().all(|publish| publish.topic == "t" && publish.properties.is_empty()));
    assert_eq!(again.len(), 2);
}

/// The broker's limits are stricter than before: the affected message fails, the others are sent.
#[test]
fn a_resumed_publication_that_the_broker_no_longer_takes_fails_in_its_turn() {
    let mut client = Client::connected(V5);
    client.publish(Q1, "small");
    client.publish(Q1, &"large".repeat(20));
    client.publish(Q1, "small too");
    client.published();
    client.cut();
    let limits = [Property::MaximumPacketSize(40)];
    client.stand(V5, ConnAck { session_present: true, ..accepted_with(&limits) });
    for publish in client.published() {
        client.hear(puback(id_of(&publish))).unwrap();
    }
    assert_eq!(errors(&mut client), [None, Some(ErrorKind::MessageTooLarge), None]);
}

/// 3.2.2.1.1: the session is lost. QoS 1 is published again without DUP; the outcome of QoS 2 is
/// unknown.
#[test]
fn a_lost_session_sends_qos_1_anew_and_fails_qos_2() {
    let mut client = Client::connected(V5);
    for (qos, payload) in [(Q1, "a"), (Q2, "b"), (Q1, "c"), (Q2, "d")] {
        client.publish(qos, payload);
    }
    let before = client.published();
    client.hear(pubrec(id_of(&before[3]))).unwrap();
    client.publish(Q2, "not sent yet");
    client.cut();
    client.stand(V5, accepted());
    let again = client.published();
    let payloads: Vec<&str> = told(&again).into_iter().map(|(_, payload)| payload).collect();
    assert_eq!(payloads, ["a", "c", "not sent yet"]);
    assert!(again.iter().all(|publish| !publish.dup), "a new session has seen nothing");
    let id = id_of(&again[2]);
    client.hear(pubrec(id)).unwrap();
    client.hear(pubcomp(id)).unwrap();
    client.hear(puback(id_of(&again[0]))).unwrap();
    client.hear(puback(id_of(&again[1]))).unwrap();
    let outcomes = client.outcomes();
    let of = |qos| outcomes.iter().filter(move |(q, _)| *q == qos).map(|(_, result)| result.is_ok());
    assert_eq!(of(Q1).collect::<Vec<_>>(), [true, true]);
    assert_eq!(of(Q2).collect::<Vec<_>>(), [false, false, true]);
}

/// An answered publication keeps its answer and its position.
#[test]
fn an_answer_that_overtook_stays_in_order_when_the_session_is_lost() {
    let mut client = Client::connected(V5);
    client.publish(Q1, "first");
    client.publish(Q1, "refused");
    let ids: Vec<_> = client.published().iter().map(id_of).collect();
    client.hear(Packet::PubAck(Ack::with_reason(ids[1], Reason::QuotaExceeded))).unwrap();
    client.cut();
    client.stand(V5, accepted());
    assert!(client.outcomes().is_empty());
    let again = client.published();
    assert_eq!(told(&again), [(ids[0].get(), "first")], "the refused one is not sent again");
    client.hear(puback(ids[0])).unwrap();
    assert_eq!(errors(&mut client), [None, Some(ErrorKind::QuotaExceeded)]);
}

/// Answers of the wrong kind: 0x82. Unexpected answers are ignored, except that PUBREC is answered
/// so that its sender can complete the flow.
#[test]
fn answers_that_do_not_fit_are_protocol_errors_and_stray_ones_are_not() {
    for (qos, wrong) in [(Q1, pubrec(id(1))), (Q2, puback(id(1))), (Q2, pubcomp(id(1))), (Q1, pubcomp(id(1)))]
    {
        let mut client = Client::connected(V5);
        client.publish(qos, "m");
        assert_eq!(id_of(&client.published()[0]), id(1));
        assert_eq!(client.hear(wrong).unwrap_err().kind(), ErrorKind::Protocol);
        assert_eq!(client.disconnect_reason(), Reason::ProtocolError);
    }
    let mut client = Client::connected(V5);
    client.hear(puback(id(5))).unwrap();
    client.hear(pubcomp(id(5))).unwrap();
    assert!(client.said().is_empty());
    client.hear(pubrec(id(5))).unwrap();
    let gone = Ack::with_reason(id(5), Reason::PacketIdentifierNotFound);
    assert_eq!(client.says(), Packet::PubRel(gone));
    client.hear(Packet::PubRec(Ack::with_reason(id(5), Reason::Unspecified))).unwrap();
    assert!(client.said().is_empty(), "a refusal ends the flow");
}

/// 3.7.2.1: the broker had completed the flow before the disconnect.
#[test]
fn packet_identifier_not_found_in_pubcomp_is_a_success() {
    let mut client = Client::connected(V5);
    client.publish(Q2, "m");
    let id = id_of(&client.published()[0]);
    client.hear(pubrec(id)).unwrap();
    client.cut();
    client.resume(V5);
    assert_eq!(client.says(), pubrel(id));
    client.hear(Packet::PubComp(Ack::with_reason(id, Reason::PacketIdentifierNotFound))).unwrap();
    assert!(matches!(&client.outcomes()[..], [(Q2, Ok(Reason::Success))]));
}

/// 3.3.2.3.3, in the client's queue: expired messages are not sent, the others with their remaining
/// time.
#[test]
fn an_expired_message_is_not_sent_and_others_say_what_is_left() {
    for qos in [Q0, Q1, Q2] {
        let mut client = Client::new();
        for seconds in [5, 60] {
            let properties = Properties::new().with(Property::MessageExpiryInterval(seconds));
            client.push(Publish { properties, ..message("t", qos, "m") });
        }
        client.now += Duration::from_millis(10_500);
        client.stand(V5, accepted());
        let published = client.published();
        assert_eq!(published.len(), 1);
        assert_eq!(published[0].properties.message_expiry_interval(), Some(&50));
        assert_eq!(client.outcomes().remove(0).1.unwrap_err().kind(), ErrorKind::Timeout);
    }
}

#[test]
fn what_does_not_fit_one_turn_goes_in_the_next_and_qos_0_leaves_room_for_the_others() {
    let mut client = Client::connected(V5);
    for number in 0..40 {
        client.publish(if number % 2 == 0 { Q0 } else { Q1 }, &"x".repeat(1000));
    }
    let now = client.now;
    let connection = client.connection.as_mut().unwrap();
    assert!(client.session.poll_transmit(now, connection, 10_000));
    let said = connection.transmit().len();
    assert!((10_000..12_000).contains(&said), "{said} bytes");
    assert_eq!(client.published().len(), 40, "this one and all the rest");
}

/// Outcomes name the owners of the pushes, and outcomes that occur together are reported together.
#[test]
fn outcomes_name_their_owner_and_free_their_bytes() {
    let mut client = Client::connected(V5);
    for owner in [1, 1, 2] {
        client.session.producer().push(client.now, owner, message("topic", Q1, "12345"));
    }
    for publish in client.published() {
        client.hear(puback(id_of(&publish))).unwrap();
    }
    let events = client.events();
    let told: Vec<_> = events
        .iter()
        .map(|event| match event {
            Event::Published(o) => (o.owner, o.count, o.bytes),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(told.iter().map(|(owner, ..)| *owner).collect::<Vec<_>>().last(), Some(&2));
    assert_eq!(told.iter().map(|(_, count, _)| count).sum::<u32>(), 3);
    assert_eq!(told.iter().map(|(_, _, bytes)| bytes).sum::<usize>(), 30);
}

#[test]
fn what_is_dropped_for_newer_messages_says_so_behind_what_was_in_flight() {
    let mut client = Client::connected(V5);
    client.publish(Q1, "in flight");
    let first = client.published();
    client.cut();
    for payload in ["b", "c", "d"] {
        client.publish(Q1, payload);
    }
    assert!(client.session.producer().drop_oldest());
    assert!(client.session.producer().drop_oldest());
    assert!(errors(&mut client).is_empty(), "the first may still be answered");
    assert_eq!(client.session.pending_messages(), 4);
    client.resume(V5);
    let again = client.published();
    assert_eq!(
        again.iter().map(|publish| &publish.payload[..]).collect::<Vec<_>>(),
        [b"in flight", &b"d"[..]]
    );
    // The answers arrive in reverse order.
    client.hear(puback(id_of(&again[1]))).unwrap();
    client.hear(puback(id_of(&first[0]))).unwrap();
    let dropped = Some(ErrorKind::QueueFull);
    assert_eq!(errors(&mut client), [None, dropped, dropped, None]);
    assert_eq!(client.session.pending_messages(), 0);
}

/// Owner and number of the publications of each outcome, with its error.
fn owners(client: &mut Client) -> Vec<(u64, u32, Option<ErrorKind>)> {
    client
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::Published(outcome) if outcome.count > 0 => {
                Some((outcome.owner, outcome.count, outcome.result.err().map(|error| error.kind())))
            }
            _ => None,
        })
        .collect()
}

#[test]
fn outcomes_of_one_owner_that_end_together_are_one_and_those_of_another_are_not() {
    let mut client = Client::connected(V5);
    for owner in [1, 1, 2] {
        client.session.producer().push(client.now, owner, message("t", Q1, "m"));
    }
    let ids: Vec<_> = client.published().iter().map(id_of).collect();
    for id in [ids[2], ids[1], ids[0]] {
        client.hear(puback(id)).unwrap();
    }
    assert_eq!(owners(&mut client), [(1, 2, None), (2, 1, None)]);
}

#[test]
fn an_answer_that_comes_twice_frees_one_place() {
    let mut client = Client::with_windows(2, 10);
    client.stand(V5, accepted());
    for payload in ["a", "b", "c", "d"] {
        client.publish(Q1, payload);
    }
    let ids: Vec<_> = client.published().iter().map(id_of).collect();
    client.hear(puback(ids[1])).unwrap();
    client.hear(puback(ids[1])).unwrap();
    assert_eq!(client.published().len(), 1);
}

/// 4.9: a place is taken by what was sent on this connection, and by what the broker holds.
#[test]
fn answers_to_what_was_not_sent_again_keep_to_the_receive_maximum() {
    for qos in [Q1, Q2] {
        let mut client = Client::connected(V5);
        client.publish(Q1, "a");
        client.publish(qos, "b");
        let ids: Vec<_> = client.published().iter().map(id_of).collect();
        client.publish(Q1, "c");
        client.cut();
        let present = ConnAck { session_present: true, ..accepted_with(&[Property::ReceiveMaximum(1)]) };
        client.stand(V5, present);
        assert_eq!(told(&client.published()), [(ids[0].get(), "a")]);
        if qos == Q1 {
            client.hear(puback(ids[1])).unwrap();
            assert!(client.said().is_empty(), "a holds the place");
            client.hear(puback(ids[0])).unwrap();
        } else {
            client.hear(pubrec(ids[1])).unwrap();
            assert_eq!(client.says(), pubrel(ids[1]));
            client.hear(puback(ids[0])).unwrap();
            assert!(client.said().is_empty(), "b holds the place, and has its PUBREL");
            client.hear(pubcomp(ids[1])).unwrap();
        }
        assert_eq!(client.published().len(), 1);
    }
}

#[test]
fn a_refusal_that_overtook_is_kept_when_the_session_is_lost() {
    let mut client = Client::connected(V5);
    client.publish(Q2, "a");
    client.publish(Q2, "b");
    let ids: Vec<_> = client.published().iter().map(id_of).collect();
    client.hear(Packet::PubRec(Ack::with_reason(ids[1], Reason::QuotaExceeded))).unwrap();
    client.cut();
    client.stand(V5, accepted());
    assert_eq!(errors(&mut client), [Some(ErrorKind::Disconnected), Some(ErrorKind::QuotaExceeded)]);
}

#[test]
fn closing_keeps_what_was_answered_and_reports_what_was_dropped() {
    let mut client = Client::connected(V5);
    client.publish(Q1, "a");
    client.publish(Q1, "b");
    let ids: Vec<_> = client.published().iter().map(id_of).collect();
    client.hear(puback(ids[1])).unwrap();
    client.cut();
    for payload in ["c", "d", "e", "f", "g"] {
        client.publish(Q1, payload);
    }
    for _ in 0..3 {
        assert!(client.session.producer().drop_oldest());
    }
    assert_eq!(client.session.pending_messages(), 7);
    client.session.close(&Error::new(ErrorKind::Closed, "closed"));
    let (closed, dropped) = (Some(ErrorKind::Closed), Some(ErrorKind::QueueFull));
    assert_eq!(errors(&mut client), [closed, None, dropped, dropped, dropped, closed, closed]);
    assert_eq!(client.session.pending_messages(), 0);
}

#[test]
fn what_was_dropped_is_reported_for_its_owner_and_behind_its_predecessors_only() {
    let mut client = Client::connected(V5);
    let push = |client: &mut Client, owner, qos, payload| {
        client.session.producer().push(client.now, owner, message("t", qos, payload));
    };
    let drop_oldest = |client: &mut Client| {
        assert!(client.session.producer().drop_oldest());
        client.session.handle_written(0);
    };
    let dropped = Some(ErrorKind::QueueFull);
    push(&mut client, 1, Q1, "in flight");
    let first = client.published();
    client.cut();
    push(&mut client, 1, Q1, "x");
    drop_oldest(&mut client);
    push(&mut client, 2, Q1, "y");
    drop_oldest(&mut client);
    push(&mut client, 3, Q0, "z");
    drop_oldest(&mut client);
    assert_eq!(owners(&mut client), [(3, 1, dropped)], "nothing of QoS 0 is in flight before it");
    push(&mut client, 1, Q1, "sent behind");
    client.resume(V5);
    let again = client.published();
    assert_eq!(again.len(), 2);
    client.cut();
    push(&mut client, 1, Q1, "w");
    drop_oldest(&mut client);
    client.resume(V5);
    client.published();
    client.hear(puback(id_of(&first[0]))).unwrap();
    assert_eq!(owners(&mut client), [(1, 1, None), (1, 1, dropped), (2, 1, dropped)]);
    client.hear(puback(id_of(&again[1]))).unwrap();
    assert_eq!(owners(&mut client), [(1, 1, None), (1, 1, dropped)]);
    assert!(!client.session.producer().drop_oldest(), "nothing is left");
}

#[test]
fn what_the_budget_leaves_is_told_also_without_qos_0() {
    let mut client = Client::connected(V5);
    for _ in 0..20 {
        client.publish(Q1, &"x".repeat(1000));
    }
    let now = client.now;
    let connection = client.connection.as_mut().unwrap();
    assert!(client.session.poll_transmit(now, connection, 10_000));
    assert!(!client.session.poll_transmit(now, client.connection.as_mut().unwrap(), 1 << 20));
}

#[test]
fn properties_need_version_5() {
    let bare = message("t", Q1, "m");
    let properties = Properties::new().with(Property::ContentType("text".into()));
    let with = Publish { properties, ..bare.clone() };
    for (publish, version, fits) in
        [(&bare, V4, true), (&bare, V5, true), (&with, V4, false), (&with, V5, true)]
    {
        let result = check_version(publish, version);
        assert_eq!(
            result.map_err(|error| error.kind()),
            if fits { Ok(()) } else { Err(ErrorKind::Unsupported) }
        );
    }
}
