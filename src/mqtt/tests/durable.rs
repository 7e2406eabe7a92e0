//! The sending half of a session that survives its process: what is recorded, and what an outbox
//! gives back.

use super::client::*;
use crate::packet::{ConnAck, Publish};
use crate::producer::{Outcome, Record};
use crate::session::Event;
use crate::{Packet, QoS};
use forebay_base::error::ErrorKind;
use forebay_base::machine::Machine as _;

fn durable(window: u16) -> Client {
    let mut client = Client::with_windows(window, 10);
    client.session.set_durable();
    client
}

fn push(client: &mut Client, owner: u64, qos: QoS, payload: &str) {
    client.session.producer().push(client.now, owner, message("t", qos, payload));
}

fn records(client: &mut Client) -> Vec<Record> {
    std::iter::from_fn(|| client.session.producer().poll_record()).collect()
}

/// Owner and success of each publication that has ended.
fn ended(client: &mut Client) -> Vec<(u64, bool)> {
    let of = |outcome: Outcome| vec![(outcome.owner, outcome.result.is_ok()); outcome.count as usize];
    client
        .events()
        .into_iter()
        .flat_map(|event| match event {
            Event::Published(outcome) => of(outcome),
            other => panic!("{other:?}"),
        })
        .collect()
}

/// A client whose outbox had one publication of each kind in flight.
fn restored() -> Client {
    let mut client = durable(100);
    let messages =
        [(11, Q1, "a", 5, false), (12, Q2, "b", 700, false), (13, Q2, "c", 9, true), (14, Q1, "d", 1, false)];
    for (owner, qos, payload, packet, released) in messages {
        client.session.restore(owner, message("t", qos, payload), id(packet), released).unwrap();
    }
    assert_eq!(client.session.pending_messages(), 4);
    client
}

#[test]
fn qos_2_is_sent_once_its_identifier_is_stored_and_released_once_its_pubrec_is() {
    let mut client = durable(100);
    client.stand(V5, accepted());
    push(&mut client, 7, Q2, "m");
    assert!(client.said().is_empty());
    let [Record::Sent(7, packet)] = records(&mut client)[..] else { panic!("its identifier is recorded") };
    assert!(client.said().is_empty(), "it is not stored yet");
    client.session.producer().handle_recorded(1);
    assert_eq!(told(&client.published()), [(packet.get(), "m")]);
    client.hear(pubrec(packet)).unwrap();
    assert_eq!(records(&mut client), [Record::Released(7)]);
    assert!(client.said().is_empty(), "it is not stored yet");
    client.session.producer().handle_recorded(2);
    assert_eq!(client.says(), pubrel(packet));
    client.hear(pubcomp(packet)).unwrap();
    assert_eq!(ended(&mut client), [(7, true)]);
}

#[test]
fn qos_1_needs_no_record_and_keeps_to_the_window() {
    let mut client = durable(2);
    client.stand(V5, accepted());
    for owner in 1..=5 {
        push(&mut client, owner, Q1, "m");
    }
    let mut in_flight = client.published();
    assert_eq!(in_flight.len(), 2);
    for _ in 0..3 {
        client.hear(puback(id_of(&in_flight.remove(0)))).unwrap();
        let next = client.published();
        assert_eq!(next.len(), 1);
        in_flight.extend(next);
    }
    assert!(records(&mut client).is_empty());
    assert_eq!(client.session.pending_messages(), 2);
}

#[test]
fn what_an_earlier_process_had_in_flight_goes_again_in_its_order() {
    let mut client = restored();
    client.resume(V5);
    push(&mut client, 15, Q1, "new");
    let said = client.said();
    let again = |packet, qos, payload| {
        Packet::Publish(Publish { packet_id: Some(id(packet)), dup: true, ..message("t", qos, payload) })
    };
    let expected = [again(5, Q1, "a"), again(700, Q2, "b"), pubrel(id(9)), again(1, Q1, "d")];
    assert_eq!(said[..4], expected);
    let [Packet::Publish(new)] = &said[4..] else { panic!("{said:?}") };
    assert!(!new.dup && ![1, 5, 9, 700].contains(&id_of(new).get()), "its identifier is free: {new:?}");
    for answer in [puback(id_of(new)), puback(id(1)), pubcomp(id(9)), pubrec(id(700))] {
        client.hear(answer).unwrap();
    }
    assert_eq!(records(&mut client), [Record::Released(12)]);
    client.session.producer().handle_recorded(1);
    assert_eq!(client.says(), pubrel(id(700)));
    client.hear(pubcomp(id(700))).unwrap();
    client.hear(puback(id(5))).unwrap();
    assert_eq!(ended(&mut client), [11, 12, 13, 14, 15].map(|owner| (owner, true)));
    assert_eq!(client.session.pending_messages(), 0);
    // All identifiers are free again.
    for packet in [1, 5, 9, 700] {
        client.session.restore(1, message("t", Q1, "m"), id(packet), false).unwrap();
    }
}

#[test]
fn an_outbox_with_one_identifier_twice_is_refused() {
    let mut client = restored();
    let error = client.session.restore(15, message("t", Q1, "m"), id(9), false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Persistence);
    assert_eq!(client.session.pending_messages(), 4);
}

/// 3.2.2.1.1: the session is lost. What has a PUBREC was taken over by the broker (4.3.3), the rest
/// is sent as new.
#[test]
fn a_lost_session_sends_again_what_was_promised() {
    let mut client = restored();
    client.stand(V5, accepted());
    assert_eq!(ended(&mut client), [(13, true)]);
    assert_eq!(records(&mut client), [Record::Queued(12)], "QoS 1 has no identifier in the outbox");
    client.session.producer().handle_recorded(1);
    let first = client.published();
    assert_eq!(told(&first).iter().map(|(_, payload)| *payload).collect::<Vec<_>>(), ["a"], "b is recorded");
    let [Record::Sent(12, packet)] = records(&mut client)[..] else { panic!("its identifier is recorded") };
    client.session.producer().handle_recorded(2);
    let rest = client.published();
    assert_eq!(told(&rest).iter().map(|(_, payload)| *payload).collect::<Vec<_>>(), ["b", "d"]);
    assert!(first.iter().chain(&rest).all(|publish| !publish.dup), "a new session has seen nothing");
    client.hear(puback(id_of(&first[0]))).unwrap();
    client.hear(puback(id_of(&rest[1]))).unwrap();
    client.hear(pubrec(packet)).unwrap();
    records(&mut client);
    client.session.producer().handle_recorded(3);
    client.said();
    client.hear(pubcomp(packet)).unwrap();
    assert_eq!(ended(&mut client), [11, 12, 14].map(|owner| (owner, true)));
}

#[test]
fn an_answer_that_overtook_counts_when_the_session_is_lost() {
    let mut client = durable(100);
    client.stand(V5, accepted());
    push(&mut client, 1, Q1, "a");
    push(&mut client, 2, Q1, "b");
    let ids: Vec<_> = client.published().iter().map(id_of).collect();
    client.hear(puback(ids[1])).unwrap();
    client.cut();
    client.stand(V5, accepted());
    assert_eq!(ended(&mut client), [(2, true)]);
    assert_eq!(told(&client.published()).len(), 1);
}

#[test]
fn what_does_not_fit_one_turn_goes_in_the_next() {
    let mut client = durable(100);
    client.stand(V5, accepted());
    for owner in 0..40 {
        push(&mut client, owner, Q1, &"x".repeat(1000));
    }
    let now = client.now;
    let connection = client.connection.as_mut().unwrap();
    assert!(client.session.poll_transmit(now, connection, 10_000), "there is more");
    let said = connection.transmit().len();
    assert!((10_000..12_000).contains(&said), "{said} bytes");
    assert!(!client.session.poll_transmit(now, client.connection.as_mut().unwrap(), 1 << 20));
    assert_eq!(client.published().len(), 40);
}

/// [MQTT-4.6.0-4]
#[test]
fn a_pubrec_that_comes_again_while_its_record_is_stored_has_one_record() {
    let mut client = restored();
    client.resume(V5);
    client.said();
    client.hear(pubrec(id(700))).unwrap();
    assert_eq!(records(&mut client), [Record::Released(12)]);
    client.cut();
    client.stand(V5, ConnAck { session_present: true, ..accepted() });
    let said = client.said();
    assert!(!said.contains(&pubrel(id(700))), "not before it is stored: {said:?}");
    client.hear(pubrec(id(700))).unwrap();
    assert!(records(&mut client).is_empty());
    client.session.producer().handle_recorded(1);
    assert!(client.said().contains(&pubrel(id(700))));
}
