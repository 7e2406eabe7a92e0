//! What clients of TubeMQ may do by the permissions.

use std::sync::Arc;

use penstock::broker::permissions::Permissions;

use super::*;

const NOT_TO_SEND: i32 = 415;
const NOT_TO_CONSUME: i32 = 450;

fn permissions(text: &str) -> Arc<Permissions> {
    Arc::new(Permissions::parse(text).unwrap())
}

/// With topic demo of two partitions, and rules of clients without a user.
fn bench(rules: &str) -> (Bench, u64) {
    let mut bench = Bench::with(|settings| settings.permissions = Some(permissions(rules)));
    bench.broker.create_topic("demo", 2).unwrap();
    bench.settle();
    let seat = bench.connect();
    (bench, seat)
}

fn denied(bench: &Bench) -> u64 {
    bench.broker.stats().denied
}

#[test]
fn producers_need_the_permission_at_the_master_and_at_the_broker() {
    let (mut bench, seat) = bench("topic write tubemq:demo\n");
    assert_eq!(bench.register_producer(seat, "p").err_code, 200);
    assert_eq!(bench.beat_producer(seat, "p", &["demo"]).err_code, 200);
    let beat = bench.beat_producer(seat, "p", &["demo", "other"]);
    assert_eq!((beat.err_code, beat.topic_infos.len()), (200, 1), "it goes on with the other: {beat:?}");
    assert!(beat.topic_infos[0].starts_with("demo#"));
    assert!(bench.broker.topics().iter().all(|(name, _)| name != "tubemq:other"), "nor is it created");
    assert_eq!(bench.produce(seat, "demo", 0, b"x").err_code, 200);
    bench.broker.create_topic("other", 1).unwrap();
    bench.settle();
    for _ in 0..2 {
        assert_eq!(bench.produce(seat, "other", 0, b"x").err_code, NOT_TO_SEND);
    }
    assert_eq!((denied(&bench), bench.broker.stats().messages_in), (3, 1));
    // What was decided is decided again by new rules.
    bench.broker.set_permissions(bench.now, permissions("topic write tubemq:other\n"));
    assert_eq!(bench.produce(seat, "other", 0, b"x").err_code, 200);
    assert_eq!(bench.produce(seat, "demo", 0, b"x").err_code, NOT_TO_SEND);
}

#[test]
fn consumers_need_the_permission_at_the_master_and_for_each_partition() {
    let (mut bench, seat) = bench("topic read tubemq:demo\n");
    bench.broker.create_topic("other", 1).unwrap();
    bench.settle();
    assert_eq!(bench.join(seat, "c", &["demo", "other"], &[]).err_code, NOT_TO_CONSUME);
    assert_eq!(bench.join(seat, "c", &["demo"], &[]).err_code, 200);
    assert_eq!(bench.take(seat, "c", 0, |_| {}).err_code, 200);
    let refused = bench.take(seat, "c", 0, |request| request.topic_name = "other".into());
    assert_eq!(
        (refused.err_code, &*refused.err_msg),
        (NOT_TO_CONSUME, "no permission to consume topic other")
    );
    assert_eq!(denied(&bench), 2);
    assert_eq!(bench.produce(seat, "demo", 0, b"x").err_code, NOT_TO_SEND, "reading is not writing");
}

#[test]
fn new_rules_take_partitions_from_those_who_may_not_read_them_any_more() {
    let (mut bench, seat) = bench("topic readwrite tubemq:demo\n");
    assert_eq!(bench.join(seat, "c", &["demo"], &[]).err_code, 200);
    assert_eq!(bench.take(seat, "c", 0, |_| {}).err_code, 200);
    assert_eq!(bench.produce(seat, "demo", 0, b"x").err_code, 200);
    bench.broker.set_permissions(bench.now, permissions("topic readwrite tubemq:+\n"));
    assert_eq!(bodies(&bench.get(seat, "c", 0, false, false)), ["x"], "it still may");
    bench.broker.set_permissions(bench.now, permissions("topic write tubemq:demo\n"));
    let answer = bench.get(seat, "c", 0, false, false);
    assert_eq!((answer.err_code, bodies(&answer)), (411, vec![]), "it has to register again");
    assert_eq!(bench.take(seat, "c", 0, |_| {}).err_code, NOT_TO_CONSUME);
    assert_eq!(bench.beat(seat, "c", None, None).err_code, NOT_TO_CONSUME);
    assert_eq!(bench.beat(seat, "c", None, None).err_code, 411, "it is not a member of its group any more");
    assert_eq!(bench.join(seat, "c", &["demo"], &[]).err_code, NOT_TO_CONSUME);
}

#[test]
fn rules_are_those_of_the_user_whose_token_a_call_carries() {
    let mut bench = Bench::with(|settings| {
        settings.users = Some(Users::parse("user:pass").unwrap());
        settings.permissions = Some(permissions("topic tubemq:#\nuser user\ntopic write tubemq:demo\n"));
    });
    for topic in ["demo", "other"] {
        bench.broker.create_topic(topic, 1).unwrap();
    }
    bench.settle();
    let seat = bench.connect();
    let visit = visit_token(&mut bench, seat);
    for (topic, expected) in [("demo", 200), ("other", NOT_TO_SEND)] {
        let auth_info =
            Some(pb::AuthorizedInfo { visit_authorized_token: visit, auth_authorized_token: None });
        let request = pb::SendMessageRequestP2b { auth_info, ..message(topic, 0, b"x") };
        let Response::SendMessage(sent) = bench.call(seat, Request::SendMessage(Box::new(request))) else {
            panic!("a response to a message")
        };
        assert_eq!(sent.err_code, expected, "{topic}");
    }
}
