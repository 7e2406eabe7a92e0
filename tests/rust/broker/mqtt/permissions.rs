//! What clients of MQTT may do by the permissions.

use std::sync::Arc;

use bytes::Bytes;
use forebay_broker::mqtt::Passwords;
use forebay_broker::permissions::Permissions;
use forebay_broker::protocol::Protocol as _;
use forebay_mqtt::packet::{Connect, Disconnect, Will};
use forebay_mqtt::{Packet, Properties, Property, Reason, Version};

use super::subscribe_packet;
use super::users::{ANN, BOB};
use crate::support::mqtt::{Bench, Peer, Q0, Q1, Q2, lasting, message, publish, retained, text};

const RULES: &str = "\
user ann
topic readwrite #
topic deny forbidden/#
topic read $SYS/#
user bob
topic read open/#
pattern write devices/%c/state
";

fn permissions(text: &str) -> Arc<Permissions> {
    Arc::new(Permissions::parse(text).unwrap())
}

fn bench(rules: &str) -> Bench {
    Bench::with(|settings| {
        settings.passwords = Some(Passwords::parse(&[ANN, BOB].join("\n")).unwrap());
        settings.permissions = Some(permissions(rules));
    })
}

fn change(bench: &mut Bench, rules: &str) {
    bench.broker.set_permissions(bench.now, permissions(rules));
    bench.settle();
}

fn of_ann(client_id: &str) -> Connect {
    let password = Some(Bytes::from_static(b"one"));
    Connect { user_name: Some("ann".into()), password, ..lasting(client_id) }
}

fn of_bob(client_id: &str) -> Connect {
    let password = Some(Bytes::from_static(b"two"));
    Connect { user_name: Some("bob".into()), password, ..lasting(client_id) }
}

fn denied(bench: &Bench) -> u64 {
    bench.broker.stats().denied
}

/// The topics of the messages that a client has got, and whether they were retained.
fn topics(bench: &mut Bench, peer: &Peer) -> Vec<(String, bool)> {
    let got = bench.messages(peer);
    got.iter().filter(|publish| publish.packet_id.is_some()).for_each(|publish| bench.ack(peer, publish));
    got.into_iter().map(|publish| (publish.topic.to_string(), publish.retain)).collect()
}

#[test]
fn a_publication_that_no_rule_allows_is_refused_in_the_words_of_its_version() {
    let mut bench = bench(RULES);
    let watcher = bench.connect_with(of_ann("watcher"), false);
    bench.subscribe(&watcher, "#", Q1);
    let new = bench.connect_with(of_bob("new"), false);
    for (qos, number) in [(Q1, 1), (Q2, 2)] {
        let answer = bench.ask(&new, Packet::Publish(publish("open/x", qos, number, "x")));
        let (Packet::PubAck(ack) | Packet::PubRec(ack)) = answer else { panic!("{answer:?}") };
        assert_eq!(ack.reason, Reason::NotAuthorized);
        let said = ack.properties.iter().any(
            |property| matches!(property, Property::ReasonString(text) if text.contains("no permission")),
        );
        assert!(said, "{ack:?}");
    }
    bench.tell(&new, Packet::Publish(publish("open/x", Q0, 0, "x"))).unwrap();
    bench.tell(&new, Packet::Publish(retained("open/x", Q0, 0, "x"))).unwrap();
    assert_eq!(bench.hear(&new), []);
    let old = bench.connect_with(Connect { version: Version::V3_1_1, ..of_bob("old") }, false);
    assert_eq!(bench.send(&old, "open/x", "x"), Reason::Success, "it would send it again and again");
    assert!(matches!(bench.ask(&old, Packet::Publish(publish("open/x", Q2, 2, "x"))), Packet::PubRec(_)));
    assert_eq!(denied(&bench), 6);
    assert_eq!((bench.messages(&watcher), bench.broker.stats().retained), (vec![], 0));
    // Where its rules allow it, everything is as ever, under its own name alone.
    assert_eq!(bench.send(&new, "devices/new/state", "x"), Reason::Success);
    assert_eq!(bench.send(&new, "devices/old/state", "x"), Reason::NotAuthorized);
    assert_eq!(topics(&mut bench, &watcher), [("devices/new/state".to_owned(), false)]);
    assert_eq!(denied(&bench), 7);
}

#[test]
fn a_subscriber_gets_what_it_may_read_of_its_filter() {
    let mut bench = bench(RULES);
    let ann = bench.connect_with(of_ann("a"), false);
    for topic in ["open/kept", "other/kept"] {
        let answer = bench.ask(&ann, Packet::Publish(retained(topic, Q1, 1, "x")));
        assert!(matches!(answer, Packet::PubAck(ack) if !ack.reason.is_error()));
    }
    let bob = bench.connect_with(of_bob("b"), false);
    let heard = bench.subscribe(&bob, "#", Q1);
    let kept: Vec<_> = heard.into_iter().map(message).map(|publish| publish.topic.to_string()).collect();
    assert_eq!(kept, ["open/kept"]);
    for qos in [Q0, Q1, Q2] {
        for topic in ["open/new", "other/new"] {
            bench.tell(&ann, Packet::Publish(publish(topic, qos, 1 + qos as u16, "x"))).unwrap();
        }
    }
    bench.hear(&ann);
    assert_eq!(topics(&mut bench, &bob), vec![("open/new".to_owned(), false); 3]);
    let figures = |bench: &mut Bench, peer: &Peer| bench.subscribe(peer, "$SYS/#", Q0).len();
    assert!(figures(&mut bench, &ann) > 10);
    // Nothing below it is for bob.
    let answer = bench.ask(&bob, subscribe_packet([("$SYS/#".to_owned(), Q0)]));
    assert!(matches!(answer, Packet::SubAck(ack) if ack.reasons == [Reason::NotAuthorized]));
    // A user who may read nothing has no other way to it.
    bench.pass(11);
    assert_eq!(topics(&mut bench, &bob), []);
    assert!(!bench.messages(&ann).is_empty());
}

#[test]
fn a_message_of_a_shared_subscription_is_for_the_members_that_may_read_it() {
    let mut bench = bench(RULES);
    let ann = bench.connect_with(of_ann("a"), false);
    let bob = bench.connect_with(of_bob("b"), false);
    bench.subscribe(&bob, "$share/g/#", Q1);
    bench.subscribe(&ann, "$share/g/#", Q1);
    let sender = bench.connect_with(of_ann("sender"), false);
    for _ in 0..4 {
        assert_eq!(bench.send(&sender, "other", "x"), Reason::Success);
        bench.tell(&sender, Packet::Publish(publish("other", Q0, 0, "x"))).unwrap();
    }
    assert_eq!((topics(&mut bench, &bob).len(), topics(&mut bench, &ann).len()), (0, 8));
    for _ in 0..4 {
        bench.send(&sender, "open/x", "x");
    }
    assert_eq!(bench.messages(&bob).len(), 2, "it has its turns where it may");
    // What a member leaves behind is handed over to nobody who may not have it.
    bench.send(&sender, "other", "left");
    let gone = Disconnect {
        properties: Properties::new().with(Property::SessionExpiryInterval(0)),
        ..Disconnect::new(Reason::Success)
    };
    bench.tell(&ann, Packet::Disconnect(gone)).unwrap();
    bench.drop_peer(ann.id);
    let left = bench.messages(&bob);
    assert!(left.iter().all(|publish| publish.topic.starts_with("open/")), "{left:?}");
}

#[test]
fn a_filter_below_which_nothing_may_be_read_is_refused() {
    let mut bench = bench(RULES);
    for version in [Version::V3_1_1, Version::V5] {
        let bob = bench.connect_with(Connect { version, ..of_bob(&format!("b{version:?}")) }, false);
        let filters = ["other", "open/+", "$share/g/other/#", "+/x"].map(|filter| (filter.to_owned(), Q1));
        let Packet::SubAck(ack) = bench.ask(&bob, subscribe_packet(filters)) else { panic!("no SUBACK") };
        let no = if version == Version::V5 { Reason::NotAuthorized } else { Reason::Unspecified };
        assert_eq!(ack.reasons, [no, Reason::GrantedQoS1, no, Reason::GrantedQoS1], "0x80 before 5.0");
    }
    assert_eq!((denied(&bench), bench.broker.stats().subscriptions), (4, 4));
}

#[test]
fn a_will_needs_the_permission_of_its_publication() {
    let mut bench = bench(RULES);
    let will = |topic: &str| {
        let (properties, payload) = (Properties::new(), "gone".into());
        Some(Will { qos: Q1, retain: false, properties, topic: topic.into(), payload })
    };
    let (_, heard) = bench.try_connect(Connect { will: will("open/x"), ..of_bob("b") });
    assert!(
        matches!(&heard[..], [Packet::ConnAck(ack), ..] if ack.reason == Reason::NotAuthorized),
        "{heard:?}"
    );
    assert_eq!(denied(&bench), 1);
    let watcher = bench.connect_with(of_ann("watcher"), false);
    bench.subscribe(&watcher, "devices/#", Q1);
    for (rules, expected) in [(RULES, 1), ("user ann\ntopic readwrite #\nuser bob\ntopic read open/#\n", 0)] {
        let bob = bench
            .connect_with(Connect { will: will("devices/b/state"), clean_start: true, ..of_bob("b") }, false);
        change(&mut bench, rules);
        let short = Properties::new().with(Property::SessionExpiryInterval(0));
        let left = Disconnect { properties: short, ..Disconnect::new(Reason::DisconnectWithWill) };
        bench.tell(&bob, Packet::Disconnect(left)).unwrap();
        bench.drop_peer(bob.id);
        assert_eq!(topics(&mut bench, &watcher).len(), expected, "{rules}");
    }
    assert_eq!(denied(&bench), 2, "a will whose permission has gone is counted");
}

#[test]
fn new_rules_hold_for_everything_from_then_on() {
    let mut bench = bench(RULES);
    let ann = bench.connect_with(of_ann("a"), false);
    let bob = bench.connect_with(of_bob("b"), false);
    bench.subscribe(&bob, "#", Q1);
    bench.send(&ann, "open/x", "read");
    assert_eq!(topics(&mut bench, &bob).len(), 1);
    bench.tell(&bob, Packet::Disconnect(Disconnect::new(Reason::Success))).unwrap();
    bench.drop_peer(bob.id);
    for topic in ["open/a", "open/b", "open/a"] {
        bench.send(&ann, topic, "queued");
    }
    change(&mut bench, "user ann\ntopic write open/#\nuser bob\ntopic read open/b\ntopic write open/c\n");
    // What was decided before is decided again.
    assert_eq!(bench.send(&ann, "other", "x"), Reason::NotAuthorized);
    let (bob, heard) = bench.try_connect(of_bob("b"));
    let [Packet::ConnAck(_), Packet::Publish(queued)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(&*queued.topic, "open/b", "the rest was queued by other rules");
    bench.ack(&bob, queued);
    assert_eq!(bench.broker.stats().messages_dropped, 2);
    assert_eq!(bench.send(&bob, "open/c", "x"), Reason::NoMatchingSubscribers, "nor may bob read it");
    assert_eq!(bench.send(&ann, "open/b", "x"), Reason::Success);
    assert_eq!(topics(&mut bench, &bob).len(), 1);
    change(&mut bench, "");
    assert_eq!(bench.send(&ann, "open/b", "x"), Reason::NotAuthorized, "a file without rules allows nothing");
}

#[test]
fn rules_that_change_while_the_broker_is_away_hold_for_what_is_stored() {
    let mut bench = Bench::new();
    let reader = bench.connect_with(lasting("reader"), false);
    bench.subscribe(&reader, "#", Q1);
    bench.drop_peer(reader.id);
    let sender = bench.connect("sender");
    for topic in ["open/x", "other"] {
        bench.send(&sender, topic, "x");
    }
    bench.kill_with(usize::MAX, |settings| settings.permissions = Some(permissions("topic read open/#\n")));
    let (reader, present, mut heard) = bench.resume("reader");
    heard.extend(bench.hear(&reader));
    assert!(present);
    assert_eq!(
        heard.into_iter().map(message).map(|publish| publish.topic.to_string()).collect::<Vec<_>>(),
        ["open/x"]
    );
}

#[test]
fn without_users_a_name_that_a_client_gives_itself_counts_for_nothing() {
    let mut bench = Bench::with(|settings| settings.permissions = Some(permissions(RULES)));
    let peer = bench.connect_with(of_ann("a"), false);
    assert_eq!(bench.send(&peer, "x", "x"), Reason::NotAuthorized);
    assert_eq!(bench.send(&peer, "devices/a/state", "x"), Reason::NoMatchingSubscribers);
}

#[test]
fn a_session_that_gets_an_owner_has_the_rules_of_its_owner() {
    let mut bench = Bench::new();
    let peer = bench.connect_with(lasting("b"), false);
    bench.subscribe(&peer, "open/x", Q1);
    bench.drop_peer(peer.id);
    bench.kill_with(usize::MAX, |settings| {
        settings.passwords = Some(Passwords::parse(&[ANN, BOB].join("\n")).unwrap());
        settings.permissions = Some(permissions(RULES));
    });
    let ann = bench.connect_with(of_ann("a"), false);
    assert_eq!(bench.send(&ann, "open/x", "to nobody"), Reason::NoMatchingSubscribers);
    let bob = bench.connect_with(of_bob("b"), true);
    assert_eq!(bench.send(&ann, "open/x", "to bob"), Reason::Success);
    assert_eq!(bench.messages(&bob).iter().map(text).collect::<Vec<_>>(), ["to bob"]);
}
