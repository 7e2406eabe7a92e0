//! What clients of TubeMQ may do by the permissions.

use std::sync::Arc;

use forebay_broker::permissions::Permissions;
use forebay_broker::protocol::Entry;

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

/// Users `ann`, `bob` and `root`, of whom none comes with a signature: each connection has one of
/// them.
fn bench_of_users(certificates: bool) -> Bench {
    let mut bench = Bench::with(|settings| {
        settings.users = Some(Users::parse("ann:a\nbob:b\nroot:r\n").unwrap());
        (settings.owners, settings.certificates) = (true, certificates);
    });
    bench.broker.create_topic("demo", 2).unwrap();
    bench.settle();
    bench
}

fn seat_of(bench: &mut Bench, user: &str) -> u64 {
    let seat = bench.connect();
    bench.broker.enter(seat, Entry { user: Some(user.into()), ..Entry::default() });
    seat
}

fn owners(bench: &Bench) -> Vec<Option<String>> {
    let listed = bench.broker.topic_stats("demo").unwrap().subscriptions;
    listed.into_iter().map(|group| group.owner).collect()
}

#[test]
fn a_group_belongs_to_the_user_of_its_first_member() {
    let mut bench = bench_of_users(true);
    let (ann, bob) = (seat_of(&mut bench, "ann"), seat_of(&mut bench, "bob"));
    assert_eq!(bench.join(ann, "a", &["demo"], &[]).err_code, 200);
    let refused = bench.join(bob, "b", &["demo"], &[]);
    assert_eq!(
        (refused.err_code, &*refused.err_msg),
        (NOT_TO_CONSUME, "no permission to use group g: it belongs to another user")
    );
    assert_eq!(bench.join(ann, "a2", &["demo"], &[]).err_code, 200, "another client of the same user");
    assert_eq!(bench.take(ann, "a", 0, |_| {}).err_code, 200);
    // Nor without the master.
    assert_eq!(bench.take(bob, "b", 1, |_| {}).err_code, NOT_TO_CONSUME);
    assert_eq!(bench.take(bob, "b", 1, |request| request.group_name = "g2".into()).err_code, 200);
    assert_eq!(denied(&bench), 2);
    assert_eq!(owners(&bench), [Some("ann".into()), Some("bob".into())]);

    // It stays so while it has offsets, and after a restart.
    bench.kill(0);
    let (ann, bob) = (seat_of(&mut bench, "ann"), seat_of(&mut bench, "bob"));
    assert_eq!(owners(&bench), [Some("ann".into()), Some("bob".into())]);
    assert_eq!(bench.take(bob, "b", 0, |_| {}).err_code, NOT_TO_CONSUME);
    assert_eq!(bench.join(bob, "b", &["demo"], &[]).err_code, NOT_TO_CONSUME);
    assert_eq!(bench.take(ann, "a", 0, |_| {}).err_code, 200);
    bench.pass(bench.settings.offset_retention + Duration::from_secs(120));
    assert_eq!(owners(&bench), [None; 0] as [Option<String>; 0], "its offsets are too old");
    assert_eq!(bench.take(bob, "b", 0, |_| {}).err_code, 200);
    assert_eq!(owners(&bench), [Some("bob".into())]);
}

#[test]
fn a_group_that_had_neither_members_nor_offsets_is_taken_over() {
    let mut bench = bench_of_users(true);
    let (ann, bob) = (seat_of(&mut bench, "ann"), seat_of(&mut bench, "bob"));
    assert_eq!(bench.join(ann, "a", &["demo"], &[]).err_code, 200);
    bench.pass(bench.settings.client_timeout + Duration::from_secs(20));
    assert_eq!(bench.join(bob, "b", &["demo"], &[]).err_code, 200);
    assert_eq!(bench.join(ann, "a", &["demo"], &[]).err_code, NOT_TO_CONSUME);
}

#[test]
fn a_group_from_before_there_were_users_is_free() {
    let mut bench = bench_of_users(true);
    (bench.settings.users, bench.settings.owners) = (None, false);
    bench.kill(0);
    let seat = bench.connect();
    assert_eq!(bench.take(seat, "c", 0, |_| {}).err_code, 200);
    bench.settings.users = Some(Users::default());
    bench.settings.owners = true;
    bench.kill(0);
    for user in ["ann", "bob"] {
        let seat = seat_of(&mut bench, user);
        assert_eq!(bench.join(seat, user, &["demo"], &[]).err_code, 200);
    }
    assert_eq!(owners(&bench), [None]);
    // And an owner outlives a broker without users.
    let ann = seat_of(&mut bench, "ann");
    assert_eq!(bench.take(ann, "a", 0, |request| request.group_name = "h".into()).err_code, 200);
    (bench.settings.users, bench.settings.owners) = (None, false);
    bench.kill(0);
    let seat = bench.connect();
    assert_eq!(bench.take(seat, "c", 0, |request| request.group_name = "h".into()).err_code, 200);
    assert_eq!(owners(&bench), [None, Some("ann".into())]);
}

#[test]
fn the_group_of_a_user_that_left_the_file_belongs_to_the_next_one() {
    let mut bench = bench_of_users(false);
    let (ann, bob) = (seat_of(&mut bench, "ann"), seat_of(&mut bench, "bob"));
    for partition in [0, 1] {
        assert_eq!(bench.take(ann, "a", partition, |_| {}).err_code, 200);
    }
    assert_eq!(bench.join(bob, "b", &["demo"], &[]).err_code, NOT_TO_CONSUME);
    bench.broker.set_users(bench.now, "bob:b\nroot:r\n").unwrap();
    assert_eq!(bench.join(bob, "b", &["demo"], &[]).err_code, 200);
    // With all its offsets, also in the store.
    assert_eq!(owners(&bench), [Some("bob".into()), Some("bob".into())]);
    bench.kill(0);
    assert_eq!(owners(&bench), [Some("bob".into()), Some("bob".into())]);
    let root = seat_of(&mut bench, "root");
    assert_eq!(bench.join(root, "r", &["demo"], &[]).err_code, NOT_TO_CONSUME);
}

#[test]
fn rules_let_other_users_have_a_group_until_they_change() {
    let mut bench = bench_of_users(true);
    let all = "pattern tubemq:demo\nuser root\nsuperuser\nuser bob\n";
    bench.broker.set_permissions(bench.now, permissions(&format!("{all}subscription tubemq:g*\n")));
    let seats = ["ann", "bob", "root", "eve"].map(|user| (user, seat_of(&mut bench, user)));
    for (user, seat) in seats {
        let expected = if user == "eve" { NOT_TO_CONSUME } else { 200 };
        assert_eq!(bench.join(seat, user, &["demo"], &[]).err_code, expected, "{user}");
    }
    let [(_, ann), (_, bob), ..] = seats;
    assert_eq!(bench.take(bob, "bob", 0, |_| {}).err_code, 200);
    assert_eq!(bench.take(ann, "ann", 1, |_| {}).err_code, 200);
    assert_eq!(owners(&bench), [Some("ann".into()), Some("ann".into())], "it stays hers");
    bench.broker.set_permissions(bench.now, permissions(all));
    assert_eq!(bench.get(bob, "bob", 0, false, false).err_code, 411, "it holds the partition no more");
    assert_eq!(bench.beat(bob, "bob", None, None).err_code, NOT_TO_CONSUME);
    assert_eq!(bench.beat(bob, "bob", None, None).err_code, NOT_TO_CONSUME);
    assert_eq!(bench.beat(ann, "ann", None, None).err_code, 200);
    assert_eq!(bench.take(ann, "ann", 0, |_| {}).err_code, 200);
}
