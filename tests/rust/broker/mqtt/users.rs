//! Users of MQTT: passwords, the sessions that belong to them, and a password file that changes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_base::error::{Error, ErrorKind};
use forebay_broker::auth::TokenKeys;
use forebay_broker::mqtt::Passwords;
use forebay_broker::protocol::{Protocol as _, Work};
use forebay_mqtt::packet::{Connect, Disconnect, Will};
use forebay_mqtt::{Packet, Properties, Property, Reason, Version};
use forebay_sqlite::{Outcome, Report};

use crate::support::mqtt::{Bench, Q1, encode, lasting};

pub(super) const ANN: &str = "ann:$7$101$c2FsdCBvZiBtaW5l$Pw8uF2rUH/4NEJxgxUDud1Hhd93GnJvWwTsEyXBUzdoPamQT99\
    +oF1t6l8jgBLjIfSAf/fQfAB2OtQIvAa+7fw==";
const ANN_CHANGED: &str = "ann:$7$101$c2FsdCBvZiBtaW5l$7PQtWE1EewNpLcQuwqHa766HYXUoim+bScN0VGP8kgqTkvcHGs\
    uqvDjIpnW6YONsh739i+W+cSWQu0WaUGnyOg==";
pub(super) const BOB: &str = "bob:$7$101$c2FsdCBvZiBtaW5l$IxFtSto1mFZ8UulU/umPK2tEeLqwQAtfu5DzYIH9P16GR09KMF\
    HYt6sNYDalqMN7J6j1FZ2a+vWPq9gZTSbhnA==";

fn bench(file: &str) -> Bench {
    Bench::with(|settings| settings.passwords = Some(Passwords::parse(file).unwrap()))
}

fn login(client_id: &str, user: &str, password: &'static str) -> Connect {
    Connect {
        user_name: Some(user.into()),
        password: Some(Bytes::from_static(password.as_bytes())),
        clean_start: false,
        ..lasting(client_id)
    }
}

fn reason(heard: &[Packet]) -> Option<Reason> {
    match heard {
        [Packet::ConnAck(ack), ..] => Some(ack.reason),
        _ => None,
    }
}

/// Connects, and takes what is due for verification without doing it.
fn begin(bench: &mut Bench, connect: Connect) -> (u64, Vec<Work>) {
    let peer = bench.open_peer();
    let mut input = encode(Packet::Connect(Box::new(connect)), Version::V5);
    bench.broker.handle_input(bench.now, peer, &mut input).unwrap();
    (peer, std::iter::from_fn(|| bench.broker.poll_work()).collect())
}

#[test]
fn users_need_their_password_and_a_wrong_one_is_answered_after_a_pause() {
    let mut bench = bench(ANN);
    for version in [Version::V3_1, Version::V3_1_1, Version::V5] {
        let connect = |user: &str, password| Connect { version, ..login("a", user, password) };
        bench.connect_with(Connect { clean_start: true, ..connect("ann", "one") }, false);
        for wrong in [connect("ann", "two"), connect("other", "one"), connect("ann", "")] {
            let (peer, heard) = bench.try_connect(wrong);
            assert_eq!(heard, [], "not at once");
            bench.pass_for(Duration::from_millis(999));
            assert_eq!(bench.hear(&peer), []);
            bench.pass_for(Duration::from_millis(1));
            assert_eq!(reason(&bench.hear(&peer)), Some(Reason::BadUserNameOrPassword));
            assert!(bench.broker.finished(peer.id));
        }
        let (peer, heard) = bench.try_connect(Connect::new(version, "a"));
        assert_eq!(reason(&heard), Some(Reason::NotAuthorized), "without a password");
        assert!(bench.broker.finished(peer.id));
    }
}

#[test]
fn nothing_waits_for_the_verification_of_a_password_but_its_client() {
    let mut bench = bench(&[ANN, BOB].join("\n"));
    let known = bench.connect_with(login("known", "ann", "one"), false);
    let (mut works, mut last) = (Vec::new(), 0);
    for number in 0..100 {
        let (guess, more) = begin(&mut bench, login(&format!("x{number}"), "ann", "guess"));
        works.extend(more);
        last = guess;
    }
    assert_eq!(works.len(), 2, "the rest waits for its turn");
    assert_eq!(bench.ask(&known, Packet::PingReq), Packet::PingResp);
    bench.connect_with(login("second", "ann", "one"), false);
    // Another user of this address waits for those that are verified now, not for all guesses.
    let (bob, more) = begin(&mut bench, login("bob", "bob", "two"));
    assert!(more.is_empty());
    for Work { id, job } in works {
        bench.broker.handle_work(bench.now, id, job());
    }
    let next: Vec<_> = std::iter::from_fn(|| bench.broker.poll_work()).collect();
    for Work { id, job } in next {
        bench.broker.handle_work(bench.now, id, job());
    }
    bench.pass_for(Duration::ZERO);
    assert_eq!(reason(&bench.hear_as(bob, Version::V5)), Some(Reason::Success));
    // Each guess for this name costs a second now, so most clients are told that the broker is
    // busy.
    assert_eq!(bench.hear_as(last, Version::V5), []);
    bench.now = bench.broker.session_timeout(last).unwrap();
    bench.broker.handle_session_timeout(bench.now, last).unwrap();
    assert_eq!(reason(&bench.hear_as(last, Version::V5)), Some(Reason::ServerBusy));
    assert!(bench.broker.finished(last));
}

#[test]
fn the_keep_alive_of_a_client_counts_from_its_connack() {
    let mut bench = bench(ANN);
    let watcher = bench.connect_with(login("watcher", "ann", "one"), false);
    bench.subscribe(&watcher, "gone", Q1);
    let will = Will {
        qos: Q1,
        retain: false,
        properties: Properties::new(),
        topic: "gone".into(),
        payload: "a".into(),
    };
    let connect =
        |password| Connect { keep_alive: 5, will: Some(will.clone()), ..login("a", "ann", password) };
    let lives = |bench: &Bench, peer| bench.broker.session_timeout(peer).is_none_or(|at| at > bench.now);
    // The password waits for its turn longer than the client's patience would last.
    assert_eq!(bench.broker.set_users(bench.now, ANN_CHANGED).unwrap(), 1);
    bench.drop_peer(watcher.id);
    let (peer, works) = begin(&mut bench, connect("three"));
    assert_eq!(works.len(), 1);
    bench.pass(8);
    bench.held = true;
    for Work { id, job } in works {
        bench.broker.handle_work(bench.now, id, job());
    }
    // So does the session's row.
    for _ in 0..10 {
        bench.pass(8);
        assert!(lives(&bench, peer));
        assert_eq!(bench.hear_as(peer, Version::V5), []);
    }
    bench.held = false;
    bench.settle();
    assert_eq!(reason(&bench.hear_as(peer, Version::V5)), Some(Reason::Success));
    assert_eq!(bench.broker.session_timeout(peer), Some(bench.now + Duration::from_millis(7500)));
    let watcher = bench.connect_with(login("watcher", "ann", "three"), true);
    assert_eq!(bench.hear(&watcher), [], "no will");
    // A client whose session needs no row only waits for its password.
    let (peer, works) = begin(
        &mut bench,
        Connect { clean_start: true, ..Connect { properties: Properties::new(), ..connect("four") } },
    );
    assert_eq!(works.len(), 1);
    bench.pass(8);
    for Work { id, .. } in works {
        bench.broker.handle_work(bench.now, id, true);
    }
    assert_eq!(reason(&bench.hear_as(peer, Version::V5)), Some(Reason::Success));
    assert_eq!(bench.broker.session_timeout(peer), Some(bench.now + Duration::from_millis(7500)));
}

#[test]
fn a_connection_that_ends_before_its_session_is_stored_gets_no_connack() {
    for (shut_down, leaves) in [(false, false), (false, true), (true, false)] {
        let mut bench = Bench::new();
        bench.held = true;
        let (first, heard) = bench.try_connect(lasting("a"));
        assert_eq!(heard, []);
        let mut second = None;
        if shut_down {
            bench.broker.shut_down(bench.now);
        } else if leaves {
            bench.tell(&first, Packet::Disconnect(Disconnect::new(Reason::Success))).unwrap();
        } else {
            second = Some(bench.try_connect(lasting("a")).0);
        }
        assert!(bench.broker.finished(first.id));
        // Neither before the row is written nor after it.
        assert_eq!(bench.hear(&first), []);
        bench.held = false;
        bench.settle();
        assert_eq!(bench.hear(&first), []);
        if let Some(second) = second {
            assert_eq!(reason(&bench.hear(&second)), Some(Reason::Success));
        }
    }
}

#[test]
fn sessions_that_must_be_stored_are_refused_while_the_store_cannot_write() {
    let mut bench = Bench::new();
    let (known, _, _) = bench.resume("known");
    bench.disconnect(&known, Reason::Success);
    let full = Error::new(ErrorKind::Persistence, "no space left");
    bench.broker.handle_report(bench.now, Report { jobs: 0, outcome: Outcome::Waiting(full) });
    let before = bench.broker.issued();
    let for_now = |client_id: &str| Connect { clean_start: false, ..Connect::new(Version::V5, client_id) };
    let old = |client_id: &str| Connect { clean_start: false, ..Connect::new(Version::V3_1_1, client_id) };
    for (connect, expected) in [
        (lasting("known"), Reason::ServerBusy),
        (lasting("new"), Reason::ServerBusy),
        (for_now("known"), Reason::ServerBusy),
        (old("new"), Reason::ServerUnavailable),
    ] {
        let (peer, heard) = bench.try_connect(connect);
        assert_eq!(reason(&heard), Some(expected));
        bench.drop_peer(peer.id);
    }
    bench.connect("for now");
    assert_eq!(bench.broker.issued(), before, "no rows pile up");
    bench.broker.handle_report(bench.now, Report { jobs: 0, outcome: Outcome::Written(0) });
    assert!(bench.resume("known").1);
}

#[test]
fn what_is_sent_behind_connect_is_read_once_the_password_is_verified() {
    let mut bench = bench(ANN);
    let peer = bench.open_peer();
    let mut input = encode(Packet::Connect(Box::new(login("a", "ann", "one"))), Version::V5);
    input.extend_from_slice(&encode(Packet::PingReq, Version::V5));
    bench.broker.handle_input(bench.now, peer, &mut input).unwrap();
    assert!(!bench.broker.may_read(peer) && !input.is_empty());
    bench.settle();
    assert_eq!(std::iter::from_fn(|| bench.broker.poll_wake()).last(), Some(peer));
    assert!(bench.broker.may_read(peer));
    bench.broker.handle_input(bench.now, peer, &mut input).unwrap();
    let heard = bench.hear_as(peer, Version::V5);
    assert!(matches!(&heard[..], [Packet::ConnAck(_), Packet::PingResp]), "{heard:?}");
}

#[test]
fn a_client_that_leaves_during_the_verification_leaves_nothing_behind() {
    let mut bench = bench(ANN);
    let (peer, works) = begin(&mut bench, login("a", "ann", "one"));
    bench.drop_peer(peer);
    for Work { id, job } in works {
        bench.broker.handle_work(bench.now, id, job());
    }
    bench.pass(2);
    assert_eq!(bench.broker.stats().sessions, 0);
    bench.connect_with(login("a", "ann", "one"), false);
}

#[test]
fn a_session_belongs_to_the_user_that_made_it() {
    let mut bench = bench(&[ANN, BOB].join("\n"));
    let ann = bench.connect_with(login("till-7", "ann", "one"), false);
    bench.subscribe(&ann, "private/ann/#", Q1);
    let refused = |bench: &mut Bench, connect: Connect| {
        let (peer, heard) = bench.try_connect(connect);
        assert_eq!(reason(&heard), Some(Reason::ClientIdentifierNotValid), "{heard:?}");
        let Packet::ConnAck(ack) = &heard[0] else { unreachable!() };
        let why = ack.properties.iter().any(
            |property| matches!(property, Property::ReasonString(text) if text.contains("another user")),
        );
        assert!(why && bench.broker.finished(peer.id));
    };
    // Neither while the user is connected nor later, whether to continue or to replace the session.
    refused(&mut bench, login("till-7", "bob", "two"));
    assert_eq!(bench.ask(&ann, Packet::PingReq), Packet::PingResp);
    bench.tell(&ann, Packet::Disconnect(Disconnect::new(Reason::Success))).unwrap();
    bench.drop_peer(ann.id);
    refused(&mut bench, Connect { clean_start: true, ..login("till-7", "bob", "two") });
    let bob = bench.connect_with(login("bob", "bob", "two"), false);
    assert_eq!(bench.send(&bob, "private/ann/pin", "1234"), Reason::Success);
    // Nor after a restart.
    bench.kill(usize::MAX);
    refused(&mut bench, login("till-7", "bob", "two"));
    let (ann, heard) = bench.try_connect(login("till-7", "ann", "one"));
    assert!(matches!(&heard[0], Packet::ConnAck(ack) if ack.session_present), "{heard:?}");
    let Packet::Publish(message) = &heard[1] else { panic!("{heard:?}") };
    assert_eq!(message.payload, "1234");
    bench.ack(&ann, message);
}

#[test]
fn a_session_of_an_unknown_user_goes_to_the_first_and_that_of_a_former_user_is_replaced() {
    let mut bench = bench(&[ANN, BOB].join("\n"));
    let ann = bench.connect_with(login("till-7", "ann", "one"), false);
    bench.subscribe(&ann, "private/ann/#", Q1);
    bench.disconnect(&ann, Reason::Success);
    bench.db.execute("UPDATE session SET user = NULL", []).unwrap();
    bench.kill(usize::MAX);
    // As in a store of an earlier version, or of a broker without users.
    let bob = bench.connect_with(login("till-7", "bob", "two"), true);
    bench.disconnect(&bob, Reason::Success);
    let (_, heard) = bench.try_connect(login("till-7", "ann", "one"));
    assert_eq!(reason(&heard), Some(Reason::ClientIdentifierNotValid));
    assert_eq!(bench.broker.set_users(bench.now, ANN).unwrap(), 1);
    let ann = bench.connect_with(login("till-7", "ann", "one"), false);
    assert_eq!(bench.send(&ann, "private/ann/x", "x"), Reason::NoMatchingSubscribers, "nothing is left");
}

#[test]
fn with_tokens_too_a_former_user_of_the_file_locks_none_out_and_a_subject_keeps_its_sessions() {
    let key = TokenKeys::new(&[b'7'; 32]).unwrap();
    let token: Bytes = key.sign("till", None).into_bytes().into();
    let mut bench = Bench::with(|settings| {
        settings.passwords = Some(Passwords::parse(&[ANN, BOB].join("\n")).unwrap());
        settings.tokens = Some(Arc::new(key));
    });
    let till =
        |client_id: &str| Connect { password: Some(token.clone()), clean_start: false, ..lasting(client_id) };
    let refused = |bench: &mut Bench, connect: Connect| {
        let (_, heard) = bench.try_connect(connect);
        assert_eq!(reason(&heard), Some(Reason::ClientIdentifierNotValid), "{heard:?}");
    };
    let ann = bench.connect_with(login("of-ann", "ann", "one"), false);
    bench.disconnect(&ann, Reason::Success);
    let subject = bench.connect_with(till("of-till"), false);
    bench.disconnect(&subject, Reason::Success);
    // What the store says of the owners counts after a restart.
    for restart in [false, true] {
        if restart {
            bench.kill(usize::MAX);
        }
        refused(&mut bench, login("of-ann", "bob", "two"));
        refused(&mut bench, till("of-ann"));
        refused(&mut bench, login("of-till", "bob", "two"));
    }
    assert_eq!(bench.broker.set_users(bench.now, BOB).unwrap(), 1);
    let bob = bench.connect_with(login("of-ann", "bob", "two"), false);
    bench.disconnect(&bob, Reason::Success);
    refused(&mut bench, login("of-till", "bob", "two"));
    // A clean start of the subject, without a session expiry, frees the client identifier.
    let subject = Connect { clean_start: true, properties: Properties::new(), ..till("of-till") };
    let subject = bench.connect_with(subject, false);
    bench.disconnect(&subject, Reason::Success);
    bench.connect_with(login("of-till", "bob", "two"), false);
}

#[test]
fn a_changed_password_file_ends_the_connections_that_it_no_longer_admits() {
    let mut bench = bench(&[ANN, BOB].join("\n"));
    let ann = bench.connect_with(login("a", "ann", "one"), false);
    let bob = bench.connect_with(login("b", "bob", "two"), false);
    assert!(bench.broker.set_users(bench.now, "no user").is_err());
    assert_eq!(bench.ask(&ann, Packet::PingReq), Packet::PingResp, "a bad file changes nothing");
    // A verification that is under way counts by the new file.
    let (late, works) = begin(&mut bench, Connect { clean_start: true, ..login("c", "ann", "three") });
    assert_eq!(bench.broker.set_users(bench.now, ANN_CHANGED).unwrap(), 1);
    bench.settle();
    assert_eq!(bench.ended(&ann), Reason::NotAuthorized);
    assert_eq!(bench.ended(&bob), Reason::NotAuthorized);
    for Work { id, job } in works {
        assert!(!job());
        bench.broker.handle_work(bench.now, id, false);
    }
    assert_eq!(reason(&bench.hear_as(late, Version::V5)), Some(Reason::Success));
    let again = bench.connect_with(login("a", "ann", "three"), true);
    assert_eq!(bench.broker.set_users(bench.now, ANN_CHANGED).unwrap(), 1);
    assert_eq!(bench.ask(&again, Packet::PingReq), Packet::PingResp, "it has the same password");
}
