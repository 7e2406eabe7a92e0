//! Sessions: continued, taken over, ended, limited.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_broker::protocol::Protocol as _;
use forebay_mqtt::packet::{Ack, Connect, Disconnect, Publish, RetainHandling, Subscribe, SubscribeOptions};
use forebay_mqtt::{Packet, Properties, Property, Reason, Version};

use super::{VERSIONS, limited};
use crate::support::mqtt::*;

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
    // The client gives up before the session is on disk. It may have lost an earlier session: to be
    // told of this one as the earlier would let it send with identifiers that the broker has
    // forgotten.
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
fn expired_messages_leave_room_in_the_queue_of_a_client_that_is_away() {
    for restart in [false, true] {
        let mut bench = limited(|limits| limits.max_queue = 2);
        for (client, filter) in [("s", "t"), ("m", "$share/g/t")] {
            let (peer, _, _) = bench.resume(client);
            bench.subscribe(&peer, filter, Q1);
            bench.drop_peer(peer.id);
        }
        let mut publisher = bench.connect("p");
        let send = |bench: &mut Bench, publisher: &Peer, expiry, payload| {
            let properties = Properties::new().with(Property::MessageExpiryInterval(expiry));
            let publish = Publish { properties, ..publish("t", Q1, 1, payload) };
            let Packet::PubAck(ack) = bench.ask(publisher, Packet::Publish(publish)) else { panic!() };
            ack.reason
        };
        assert_eq!(send(&mut bench, &publisher, 600, "long"), Reason::Success);
        assert_eq!(send(&mut bench, &publisher, 20, "short"), Reason::Success);
        assert_eq!(send(&mut bench, &publisher, 600, "full"), Reason::QuotaExceeded);
        if restart {
            bench.restart();
            publisher = bench.connect("p");
        }
        bench.now += Duration::from_secs(21);
        assert_eq!(send(&mut bench, &publisher, 600, "new"), Reason::Success);
        assert_eq!(send(&mut bench, &publisher, 600, "full"), Reason::QuotaExceeded);
        for client in ["s", "m"] {
            let (_, _, heard) = bench.resume(client);
            let texts: Vec<_> = heard.iter().map(|packet| text(&message(packet.clone()))).collect();
            assert_eq!(texts, ["long", "new"], "{client}");
        }
    }
}

#[test]
fn expired_messages_of_a_client_that_is_away_leave_the_store() {
    let mut bench = limited(|limits| limits.max_inflight = 1);
    let (peer, _, _) = bench.resume("s");
    bench.subscribe(&peer, "t", Q2);
    let publisher = bench.connect("p");
    for (packet_id, seconds) in [(1, 5), (2, 9), (3, 12), (4, 600)] {
        let properties = Properties::new().with(Property::MessageExpiryInterval(seconds));
        let publish = Publish { properties, ..publish("t", Q2, packet_id, &packet_id.to_string()) };
        bench.ask(&publisher, Packet::Publish(publish));
    }
    assert_eq!(bench.payloads(&peer), ["1"]);
    bench.drop_peer(peer.id);
    let stored = |bench: &Bench| -> i64 {
        bench.db.query_row("SELECT count(*) FROM entry", [], |row| row.get(0)).unwrap()
    };
    bench.pass(8);
    assert_eq!(stored(&bench), 4);
    bench.pass(2);
    assert_eq!(stored(&bench), 3);
    bench.pass(3);
    assert_eq!(stored(&bench), 2, "the first one is on its way and stays");
    // One that expires sooner than all before it.
    let properties = Properties::new().with(Property::MessageExpiryInterval(5));
    bench.ask(&publisher, Packet::Publish(Publish { properties, ..publish("t", Q2, 5, "5") }));
    assert_eq!(stored(&bench), 3);
    bench.pass(6);
    assert_eq!(stored(&bench), 2);
    let (_, _, heard) = bench.resume("s");
    assert_eq!(text(&message(heard[0].clone())), "1");
}

#[test]
fn properties_count_in_the_bytes_of_a_queue() {
    // As many short ones take more memory than bytes in a packet.
    let short = 1000 * (size_of::<Property>() + 5);
    let mut bench = limited(|limits| limits.max_queue_bytes = short + 45_000);
    let (peer, _, _) = bench.resume("s");
    bench.subscribe(&peer, "t", Q1);
    bench.drop_peer(peer.id);
    let publisher = bench.connect("p");
    let mut send = |properties: Properties| {
        let publish = Publish { properties, ..publish("t", Q1, 1, "x") };
        let Packet::PubAck(ack) = bench.ask(&publisher, Packet::Publish(publish)) else { panic!() };
        ack.reason
    };
    let large = || Properties::new().with(Property::User("k".into(), "v".repeat(30_000).into()));
    assert_eq!(send(large()), Reason::Success);
    let short = (0..1000).map(|_| Property::User("".into(), "".into())).collect();
    assert_eq!(send(short), Reason::Success);
    assert_eq!(send(large()), Reason::QuotaExceeded);
    assert_eq!(send(Properties::new()), Reason::Success);
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
    bench.pass(1);
    let publisher = bench.connect("p");
    for (seconds, packet_id) in [(5, 1), (20, 2)] {
        let properties = Properties::new().with(Property::MessageExpiryInterval(seconds));
        let publish = Publish { properties, ..publish("t", Q1, packet_id, &seconds.to_string()) };
        bench.tell(&publisher, Packet::Publish(publish)).unwrap();
    }
    bench.pass(8);
    bench.restart();
    let (_, _, heard) = bench.resume("s");
    let got = message(heard[0].clone());
    assert_eq!(
        (heard.len(), text(&got), got.properties.message_expiry_interval()),
        (1, "20".into(), Some(&12))
    );
}

#[test]
fn messages_expire_by_the_time_that_the_broker_runs_and_not_by_the_calendar() {
    let mut bench = Bench::new();
    let (peer, _, _) = bench.resume("s");
    bench.subscribe(&peer, "t", Q1);
    bench.drop_peer(peer.id);
    bench.pass(1);
    let publisher = bench.connect("p");
    let expiring = |seconds| Properties::new().with(Property::MessageExpiryInterval(seconds));
    let publish = Publish { properties: expiring(300), ..publish("t", Q1, 1, "x") };
    bench.tell(&publisher, Packet::Publish(publish)).unwrap();
    let retained = Publish { properties: expiring(300), ..retained("r", Q1, 2, "x") };
    bench.tell(&publisher, Packet::Publish(retained)).unwrap();
    let left = |heard: &[Packet]| match heard {
        [packet] => message(packet.clone()).properties.message_expiry_interval().copied(),
        other => panic!("{other:?}"),
    };
    for days in [40, -80] {
        bench.set_calendar(days);
        bench.pass(30);
        assert_eq!(bench.broker.stats().retained, 1);
    }
    let (peer, present, heard) = bench.resume("s");
    assert_eq!((present, left(&heard)), (true, Some(240)));
    bench.drop_peer(peer.id);
    // Nor by a calendar that was wrong at the start.
    bench.pass(90);
    bench.set_calendar(400);
    bench.kill(usize::MAX);
    let (peer, present, heard) = bench.resume("s");
    assert_eq!((present, left(&heard)), (true, Some(150)));
    bench.drop_peer(peer.id);
    bench.pass(60);
    bench.restart();
    bench.pass(91);
    assert_eq!(bench.resume("s").2, []);
    assert_eq!(bench.broker.stats().retained, 0);
}

#[test]
fn sessions_end_by_the_time_that_the_broker_runs_and_not_by_the_calendar() {
    let mut bench = Bench::new();
    let lasts = |seconds| Connect {
        properties: Properties::new().with(Property::SessionExpiryInterval(seconds)),
        clean_start: false,
        ..lasting("s")
    };
    let peer = bench.connect_with(lasts(3600), false);
    bench.drop_peer(peer.id);
    bench.pass(600);
    for days in [40, -80, 0] {
        bench.set_calendar(days);
        bench.restart();
        bench.pass(900);
    }
    // 3,300 s of the hour have passed.
    bench.pass(299);
    bench.restart();
    let peer = bench.connect_with(lasts(3600), true);
    bench.drop_peer(peer.id);
    bench.pass(1800);
    bench.restart();
    bench.pass(1801);
    bench.connect_with(lasts(3600), false);
}
