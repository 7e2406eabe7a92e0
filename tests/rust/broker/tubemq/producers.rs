//! Producers at the master and the broker.

use super::*;

#[test]
fn a_producer_registers_and_is_told_where_its_topics_are() {
    let mut bench = Bench::new();
    let seat = bench.connect();
    let registered = bench.register_producer(seat, "p");
    assert!(registered.success);
    assert_eq!(registered.broker_infos, ["1:127.0.0.1:8123"]);
    assert_eq!(registered.appd_config.unwrap().max_msg_size, Some(1 << 20));
    let beat = bench.beat_producer(seat, "p", &["demo", "not a name"]);
    assert_eq!(beat.topic_infos, ["demo#1:2:1#1048576"], "it has come into being; the other cannot");
    assert_eq!(beat.broker_check_sum, registered.broker_check_sum);
    assert_eq!(bench.broker.topics(), [("tubemq:demo".to_owned(), 2)]);
}

#[test]
fn topics_do_not_come_into_being_unless_they_may() {
    let mut bench = Bench::with(|settings| settings.auto_create = false);
    let seat = bench.connect();
    bench.register_producer(seat, "p");
    assert!(bench.beat_producer(seat, "p", &["demo"]).topic_infos.is_empty());
    assert_eq!(bench.join(seat, "c", &["demo"], &[]).err_code, 431);
    bench.broker.create_topic("demo", 5).unwrap();
    assert_eq!(bench.beat_producer(seat, "p", &["demo"]).topic_infos, ["demo#1:5:1#1048576"]);
    assert!(bench.broker.create_topic("demo", 5).is_err());
    assert!(bench.broker.create_topic("de mo", 5).is_err());
}

#[test]
fn a_producer_that_the_master_does_not_know_has_to_register() {
    let mut bench = Bench::new();
    let seat = bench.connect();
    assert_eq!(bench.beat_producer(seat, "p", &[]).err_code, 411);
    bench.register_producer(seat, "p");
    assert_eq!(bench.beat_producer(seat, "p", &[]).err_code, 200);
    bench.pass(Duration::from_secs(32));
    assert_eq!(bench.beat_producer(seat, "p", &[]).err_code, 411, "it was silent for too long");
}

#[test]
fn success_is_answered_when_the_message_is_on_disk() {
    let (mut bench, seat) = Bench::demo();
    bench.held = true;
    let call = Call::new(Request::SendMessage(Box::new(message("demo", 1, b"a"))), Duration::from_secs(1));
    let serial = bench.ask(seat, &call);
    assert!(bench.replies(seat).is_empty());
    let reader = bench.connect();
    bench.write();
    let replies = bench.replies(seat);
    let [(answered, Reply::Response { response: Response::SendMessage(sent), .. })] = &replies[..] else {
        panic!("{replies:?}")
    };
    assert_eq!((*answered, sent.success, sent.append_offset), (serial, true, Some(0)));
    assert_eq!(sent.append_time, Some(WALL_MS as i64));
    bench.take(reader, "c", 1, |_| {});
    assert_eq!(bodies(&bench.get(reader, "c", 1, false, false)), ["a"]);
    assert_eq!(bench.produce(seat, "demo", 1, b"b").append_offset, Some(28));
}

#[test]
fn what_the_disk_does_not_take_is_refused_and_nobody_gets_it() {
    let (mut bench, seat) = Bench::demo();
    bench.take(seat, "c", 0, |_| {});
    bench.held = true;
    let call = Call::new(Request::SendMessage(Box::new(message("demo", 0, b"a"))), Duration::from_secs(1));
    bench.ask(seat, &call);
    bench.fail();
    let replies = bench.replies(seat);
    let [(_, Reply::Response { response: Response::SendMessage(sent), .. })] = &replies[..] else {
        panic!("{replies:?}")
    };
    assert_eq!((sent.success, sent.err_code), (false, 503));
    assert_eq!(bench.produce(seat, "demo", 0, b"b").err_code, 503);
    assert_eq!(bench.get(seat, "c", 0, false, false).err_code, 404);
}

#[test]
fn a_message_that_cannot_be_is_refused_with_the_servers_codes() {
    let (mut bench, seat) = Bench::demo();
    assert_eq!(bench.produce(seat, "demo", 0, b"").err_code, 400);
    assert_eq!(bench.produce(seat, "demo", 0, &vec![0; (1 << 20) + (10 << 10)]).err_code, 200);
    assert_eq!(bench.produce(seat, "demo", 0, &vec![0; (1 << 20) + (10 << 10) + 1]).err_code, 400);
    assert_eq!(bench.produce(seat, "demo", 2, b"x").err_code, 403);
    assert_eq!(bench.produce(seat, "demo", 10_000, b"x").err_code, 403, "a store without readers");
    assert_eq!(bench.produce(seat, "demo", -1, b"x").err_code, 403);
    assert_eq!(bench.produce(seat, "other", 0, b"x").err_code, 403);
    let sent = |bench: &mut Bench, check_sum| {
        let request = pb::SendMessageRequestP2b { check_sum, ..message("demo", 0, b"hello") };
        let Response::SendMessage(sent) = bench.call(seat, Request::SendMessage(Box::new(request))) else {
            panic!("a response to a message")
        };
        sent.err_code
    };
    assert_eq!(sent(&mut bench, 907_060_870), 200);
    assert_eq!(sent(&mut bench, 907_060_871), 403);
}

#[test]
fn flags_come_out_as_they_went_in_from_memory_and_from_the_store() {
    let (mut bench, mut seat) = Bench::demo();
    let flags = [0, 1, 0x7fff_fffe, -1, i32::MIN];
    for flag in flags {
        let request = pb::SendMessageRequestP2b { flag, ..message("demo", 0, b"\0\0\0\0hello") };
        bench.call(seat, Request::SendMessage(Box::new(request)));
    }
    for _ in 0..2 {
        bench.take(seat, "c", 0, |_| {});
        let given = bench.get(seat, "c", 0, false, false);
        assert!(given.messages.iter().map(|message| message.flag).eq(flags));
        bench.kill(0);
        seat = bench.connect();
    }
}

#[test]
fn a_full_store_pushes_producers_back() {
    let mut bench = Bench::with(|settings| settings.max_store = 1000);
    bench.broker.create_topic("demo", 1).unwrap();
    bench.settle();
    let seat = bench.connect();
    assert_eq!(bench.produce(seat, "demo", 0, b"x").err_code, 419);
}

#[test]
fn in_memory_what_comes_between_two_counts_of_the_space_counts() {
    let mut bench = Bench::with(|settings| (settings.stored, settings.max_store) = (false, 100_000));
    let seat = bench.connect();
    bench.register_producer(seat, "p");
    bench.broker.create_topic("demo", 1).unwrap();
    let mut taken = 0;
    for _ in 0..20 {
        let request = Request::SendMessage(Box::new(message("demo", 0, &[b'x'; 10_000])));
        let Response::SendMessage(sent) = bench.call(seat, request) else {
            panic!("a response to a message")
        };
        taken += usize::from(sent.success);
    }
    assert!((8..=10).contains(&taken), "{taken} messages of 10,000 bytes");
}
