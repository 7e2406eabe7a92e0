//! Subscriptions and the session as a whole, tested by the statements of the standard. Section
//! numbers are those of MQTT 5 unless 3.1.1 is named.

use super::client::*;
use crate::packet::{Disconnect, PacketId, RetainHandling, Subscribe, SubscribeOptions};
use crate::session::Event;
use crate::topic::Filter;
use crate::{Packet, Property, Reason};
use forebay_base::error::{Error, ErrorKind};

fn subscribed(client: &mut Client) -> Subscribe {
    match client.says() {
        Packet::Subscribe(subscribe) => subscribe,
        other => panic!("{other:?}"),
    }
}

/// Packet identifier and filters of the UNSUBSCRIBE that the client sends now.
fn unsubscribed(client: &mut Client) -> (PacketId, Vec<String>) {
    match client.says() {
        Packet::Unsubscribe(packet) => {
            (packet.packet_id, packet.filters.iter().map(ToString::to_string).collect())
        }
        other => panic!("{other:?}"),
    }
}

fn names(subscribe: &Subscribe) -> Vec<&str> {
    subscribe.filters.iter().map(|(filter, _)| &**filter).collect()
}

/// A client with subscription 1 to `filter`.
fn holding(filter: &str) -> Client {
    let mut client = Client::connected(V5);
    client.session.subscribe(1, filters(&[filter]));
    let id = subscribed(&mut client).packet_id;
    client.hear(suback(id, &[Reason::GrantedQoS1])).unwrap();
    client.events();
    client
}

/// [MQTT-3.8.1-1], [MQTT-3.8.3-2], 3.9.3: one reason per filter, in order.
#[test]
fn a_subscription_is_answered_filter_by_filter() {
    let mut client = Client::connected(V5);
    let options = SubscribeOptions {
        no_local: true,
        retain_as_published: true,
        retain_handling: RetainHandling::IfNew,
        ..SubscribeOptions::qos(Q2)
    };
    let asked = vec![(Filter::parse("a/+").unwrap(), options), filters(&["b"]).remove(0)];
    client.session.subscribe(9, asked);
    let subscribe = subscribed(&mut client);
    assert_eq!(names(&subscribe), ["a/+", "b"]);
    assert_eq!(subscribe.filters[0].1, options);
    assert_eq!(subscribe.properties.subscription_identifiers().collect::<Vec<_>>(), [9]);
    let reasons = [Reason::GrantedQoS2, Reason::NotAuthorized];
    client.hear(suback(subscribe.packet_id, &reasons)).unwrap();
    assert!(
        matches!(&client.events()[..], [Event::Subscribed { id: 9, result: Ok(told) }] if *told == reasons)
    );
}

/// MQTT 3 has neither options nor subscription identifiers.
#[test]
fn a_subscription_of_3_x_has_a_qos_alone() {
    let mut client = Client::connected(V4);
    let options = SubscribeOptions { no_local: true, ..SubscribeOptions::qos(Q1) };
    client.session.subscribe(9, vec![(Filter::parse("a").unwrap(), options)]);
    let subscribe = subscribed(&mut client);
    assert_eq!(subscribe.filters[0].1, SubscribeOptions::qos(Q1));
    assert!(subscribe.properties.is_empty());
    // 0x80 is a refusal in 3.1.1.
    client.hear_bytes(&[0x90, 3, 0, subscribe.packet_id.get() as u8, 0x80]).unwrap();
    assert!(
        matches!(&client.events()[..], [Event::Subscribed { result: Ok(told), .. }] if told[0].is_error())
    );
}

#[test]
fn a_suback_with_another_number_of_reasons_closes_the_connection() {
    let mut client = Client::connected(V5);
    client.session.subscribe(1, filters(&["a", "b"]));
    let id = subscribed(&mut client).packet_id;
    assert!(client.hear(suback(id, &[Reason::Success])).is_err());
    assert_eq!(client.disconnect_reason(), Reason::ProtocolError);
}

/// 3.2.2.3.11, 3.2.2.3.13: features that the server does not support are rejected before sending.
#[test]
fn subscriptions_that_the_server_does_not_do_are_refused_before_sending() {
    for (limit, filter) in [
        (Property::WildcardSubscriptionAvailable(false), "a/+"),
        (Property::WildcardSubscriptionAvailable(false), "$share/g/#"),
        (Property::SharedSubscriptionAvailable(false), "$share/g/a"),
    ] {
        let mut client = Client::limited(&[limit]);
        client.session.subscribe(1, filters(&["plain", filter]));
        assert!(client.said().is_empty());
        let events = client.events();
        let [Event::Subscribed { id: 1, result: Err(error) }] = &events[..] else { panic!("{events:?}") };
        assert_eq!((error.kind(), error.topic()), (ErrorKind::Unsupported, Some(filter)));
        // The packet identifier was freed, and nothing else was affected.
        client.session.subscribe(2, filters(&["plain"]));
        assert_eq!(names(&subscribed(&mut client)), ["plain"]);
    }
}

/// 3.2.2.3.12: subscription identifiers.
#[test]
fn without_subscription_identifiers_none_is_sent() {
    let mut client = Client::limited(&[Property::SubscriptionIdentifierAvailable(false)]);
    client.session.subscribe(1, filters(&["a"]));
    assert!(subscribed(&mut client).properties.is_empty());
}

/// 3.10.4, 3.11.3: answers to UNSUBSCRIBE.
#[test]
fn an_unsubscribe_is_answered_by_its_unsuback() {
    for (reason, ok) in
        [(Reason::Success, true), (Reason::NoSubscriptionExisted, true), (Reason::NotAuthorized, false)]
    {
        let mut client = holding("a");
        client.session.unsubscribe(1);
        let (id, filters) = unsubscribed(&mut client);
        assert_eq!(filters, ["a"]);
        client.hear(unsuback(id, &[reason])).unwrap();
        let events = client.events();
        assert!(matches!(&events[..], [Event::Unsubscribed { id: 1, result }] if result.is_ok() == ok));
    }
}

/// The broker has one subscription per filter [MQTT-3.8.4-3]: it ends with the last of ours.
#[test]
fn a_filter_that_another_subscription_has_stays() {
    let mut client = holding("a");
    client.session.subscribe(2, filters(&["a", "b"]));
    let id = subscribed(&mut client).packet_id;
    client.hear(suback(id, &[Reason::GrantedQoS1, Reason::GrantedQoS1])).unwrap();
    client.session.unsubscribe(2);
    let (id, filters) = unsubscribed(&mut client);
    assert_eq!(filters, ["b"]);
    client.hear(unsuback(id, &[Reason::Success])).unwrap();
    client.events();
    client.session.unsubscribe(1);
    assert_eq!(unsubscribed(&mut client).1, ["a"]);
}

/// The last SUBSCRIBE replaces the one before it [MQTT-3.8.4-3], which may need more.
#[test]
fn a_filter_is_asked_for_with_what_all_its_subscriptions_need() {
    let options = |qos, no_local, retain_as_published| SubscribeOptions {
        qos,
        no_local,
        retain_as_published,
        ..SubscribeOptions::default()
    };
    let filter = |name: &str| Filter::parse(name).unwrap();
    let mut client = Client::connected(V5);
    let mut asked = |id, own: SubscribeOptions| {
        client.session.subscribe(id, vec![(filter("a"), own), (filter(&format!("b{id}")), own)]);
        let packet = subscribed(&mut client);
        client.hear(suback(packet.packet_id, &[Reason::Success; 2])).unwrap();
        client.events();
        assert_eq!(packet.filters[1].1, own, "no other subscription has it");
        packet.filters[0].1
    };
    assert_eq!(asked(1, options(Q2, true, false)), options(Q2, true, false));
    assert_eq!(asked(2, options(Q0, true, true)), options(Q2, true, true));
    assert_eq!(asked(3, options(Q1, false, false)), options(Q2, false, true));
    // What has ended needs nothing.
    for ended in 1..3 {
        client.session.unsubscribe(ended);
        let id = unsubscribed(&mut client).0;
        client.hear(unsuback(id, &[Reason::Success])).unwrap();
    }
    client.events();
    client.session.subscribe(4, vec![(filter("a"), options(Q0, true, false))]);
    assert_eq!(subscribed(&mut client).filters[0].1, options(Q1, false, false));
}

#[test]
fn a_subscription_whose_every_filter_stays_ends_without_a_word() {
    let mut client = holding("a");
    client.session.subscribe(2, filters(&["a"]));
    let id = subscribed(&mut client).packet_id;
    client.hear(suback(id, &[Reason::GrantedQoS1])).unwrap();
    client.events();
    client.session.unsubscribe(2);
    assert!(client.said().is_empty());
    assert!(matches!(&client.events()[..], [Event::Unsubscribed { id: 2, result: Ok(_) }]));
}

/// [MQTT-2.2.1-3]: SUBSCRIBE, UNSUBSCRIBE and PUBLISH share packet identifiers.
#[test]
fn publications_and_subscriptions_share_one_space_of_identifiers() {
    let mut client = Client::connected(V5);
    client.publish(Q1, "m");
    client.session.subscribe(1, filters(&["a"]));
    client.session.subscribe(2, filters(&["b"]));
    let mut ids: Vec<PacketId> = client
        .said()
        .iter()
        .map(|packet| match packet {
            Packet::Publish(publish) => id_of(publish),
            Packet::Subscribe(subscribe) => subscribe.packet_id,
            other => panic!("{other:?}"),
        })
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    // An answer of one kind does not answer the other.
    for &id in &ids {
        client.hear(suback(id, &[Reason::Success])).unwrap();
    }
    assert!(matches!(
        &client.events()[..],
        [Event::Subscribed { id: 1, .. }, Event::Subscribed { id: 2, .. }]
    ));
    assert_eq!(client.session.pending_messages(), 1);
}

/// [MQTT-2.2.1-3]: an abandoned SUBSCRIBE keeps its packet identifier until SUBACK.
#[test]
fn an_abandoned_subscribe_keeps_its_identifier_until_its_suback() {
    for forget in [false, true] {
        let mut client = Client::connected(V5);
        client.session.subscribe(1, filters(&["a"]));
        let held = subscribed(&mut client).packet_id;
        if forget {
            client.session.drop_subscription(1);
        } else {
            client.session.unsubscribe(1);
            let (id, _) = unsubscribed(&mut client);
            assert_ne!(id, held);
            client.hear(unsuback(id, &[Reason::Success])).unwrap();
        }
        let used = |client: &mut Client, rounds: u32| {
            (0..rounds).any(|_| {
                client.publish(Q1, "m");
                let id = id_of(&client.published()[0]);
                client.hear(puback(id)).unwrap();
                id == held
            })
        };
        assert!(!used(&mut client, 9000), "in use");
        client.hear(suback(held, &[Reason::Success])).unwrap();
        assert!(used(&mut client, 9000), "free");
        // The end of the connection frees it as well, since its answer can no longer arrive.
        client.session.subscribe(2, filters(&["b"]));
        let held = subscribed(&mut client).packet_id;
        client.session.drop_subscription(2);
        client.cut();
        client.resume(V5);
        let free = (0..9000).any(|_| {
            client.publish(Q1, "m");
            let id = id_of(&client.published()[0]);
            client.hear(puback(id)).unwrap();
            id == held
        });
        assert!(free);
    }
}

/// 3.2.2.1.1: Session Present tells whether the subscriptions still exist.
#[test]
fn subscriptions_are_made_anew_only_when_the_session_is_lost() {
    let mut client = holding("a");
    client.cut();
    client.resume(V5);
    assert!(client.said().is_empty(), "the broker has it");
    client.cut();
    client.stand(V5, accepted());
    let subscribe = subscribed(&mut client);
    assert_eq!(names(&subscribe), ["a"]);
    client.hear(suback(subscribe.packet_id, &[Reason::GrantedQoS1])).unwrap();
    assert!(!client.session.awaits_answers());
}

/// An unanswered request is repeated, whether or not the session was kept.
#[test]
fn requests_without_an_answer_go_again_after_a_cut() {
    for present in [false, true] {
        let mut client = holding("held");
        client.session.subscribe(2, filters(&["asked"]));
        subscribed(&mut client);
        client.session.unsubscribe(1);
        unsubscribed(&mut client);
        client.cut();
        let ack = crate::packet::ConnAck { session_present: present, ..accepted() };
        client.stand(V5, ack);
        let said = client.said();
        assert!(
            matches!(&said[..], [Packet::Unsubscribe(_), Packet::Subscribe(s)] if names(s) == ["asked"]),
            "{said:?}"
        );
    }
}

/// Subscriptions are sent before the window, because users wait for their answers.
#[test]
fn subscriptions_do_not_wait_for_the_window() {
    let mut client = holding("a");
    client.publish(Q1, "m");
    client.published();
    client.cut();
    client.stand(V5, accepted());
    assert!(matches!(&client.said()[..], [Packet::Subscribe(_), Packet::Publish(_)]));
}

/// Packets that a server must not send to a session: 0x82.
#[test]
fn packets_that_only_clients_send_close_the_connection() {
    for packet in [
        Packet::Subscribe(Subscribe {
            packet_id: id(1),
            properties: crate::Properties::new(),
            filters: vec![("a".into(), SubscribeOptions::qos(Q0))],
        }),
        Packet::PingReq,
    ] {
        let mut client = Client::connected(V5);
        assert_eq!(client.hear(packet).unwrap_err().kind(), ErrorKind::Protocol);
        assert_eq!(client.disconnect_reason(), Reason::ProtocolError);
    }
}

/// Unexpected answers are harmless.
#[test]
fn stray_answers_to_requests_are_ignored() {
    let mut client = holding("a");
    client.hear(suback(id(77), &[Reason::Success])).unwrap();
    client.hear(unsuback(id(77), &[Reason::Success])).unwrap();
    assert!(client.events().is_empty() && client.said().is_empty());
}

/// Each waiting operation ends exactly once.
#[test]
fn closing_fails_everything_that_waits() {
    let mut client = holding("held");
    client.session.subscribe(2, filters(&["asked"]));
    client.publish(Q0, "a");
    client.publish(Q1, "b");
    client.said_unwritten();
    client.publish(Q2, "c");
    client.session.unsubscribe(1);
    let now = client.now;
    client.connection().disconnect(now, Disconnect::new(Reason::Success));
    client.session.close(&Error::new(ErrorKind::Closed, "closed"));
    let (mut published, mut others) = (0, 0);
    for event in client.events() {
        match event {
            Event::Published(outcome) => {
                assert!(outcome.result.is_err());
                published += outcome.count;
            }
            Event::Subscribed { id: 2, result: Err(_) } | Event::Unsubscribed { id: 1, result: Err(_) } => {
                others += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((published, others), (3, 2));
    assert_eq!(client.session.pending_messages(), 0);
}

/// A subscription that is held has no answer to wait for: its end is that of the connection.
#[test]
fn closing_says_nothing_of_a_subscription_that_stands() {
    let mut client = holding("held");
    client.session.close(&Error::new(ErrorKind::Closed, "closed"));
    assert!(client.events().is_empty());
}

#[test]
fn a_session_tells_what_it_waits_for() {
    let mut client = Client::connected(V5);
    let waits = |client: &Client| (client.session.awaits_answers(), client.session.awaits_acknowledgements());
    assert_eq!(waits(&client), (false, false));
    client.session.subscribe(1, filters(&["a"]));
    assert_eq!(waits(&client), (true, false));
    let id = subscribed(&mut client).packet_id;
    client.hear(suback(id, &[Reason::GrantedQoS1])).unwrap();
    assert_eq!(waits(&client), (false, false));
    client.publish(Q1, "m");
    assert_eq!(waits(&client), (true, true));
    let id = id_of(&client.published()[0]);
    client.hear(puback(id)).unwrap();
    assert_eq!(waits(&client), (false, false));
    client.session.unsubscribe(1);
    assert_eq!(waits(&client), (true, false));
}

/// [MQTT-3.3.4-9]: how many messages may come before the server has to wait for answers.
#[test]
fn the_room_for_messages_shrinks_with_each_that_is_not_answered() {
    let mut client = Client::with_windows(10, 3);
    client.stand(V5, accepted());
    assert_eq!(client.session.room(), 3);
    client.hear(delivery(Q1, 1, "m")).unwrap();
    client.hear(delivery(Q1, 2, "m")).unwrap();
    assert_eq!(client.session.room(), 1);
    client.hear(delivery(Q1, 3, "m")).unwrap();
    assert_eq!(client.session.room(), 0);
}

#[test]
fn a_filter_that_an_earlier_process_subscribed_to_can_be_ended() {
    let mut client = Client::connected(V5);
    client.session.unsubscribe_filter(5, Filter::parse("old/#").unwrap());
    let (id, filters) = unsubscribed(&mut client);
    assert_eq!(filters, ["old/#"]);
    client.hear(unsuback(id, &[Reason::Success])).unwrap();
    assert!(matches!(&client.events()[..], [Event::Unsubscribed { id: 5, result: Ok(_) }]));
    assert!(!client.session.awaits_answers());
}
