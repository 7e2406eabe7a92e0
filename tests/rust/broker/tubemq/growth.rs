//! Topics that get more partitions, beside clients, kills and a store that fails.

use super::*;

const CONNECT: i32 = 10;

#[test]
fn a_kill_in_the_middle_of_growth_leaves_a_topic_of_whole_partitions() {
    for written in 0..4 {
        let (mut bench, seat) = Bench::demo();
        assert_eq!(bench.produce(seat, "demo", 1, b"x").err_code, 200);
        bench.held = true;
        bench.broker.grow_topic("demo", 4).unwrap();
        bench.kill(written);
        let found = bench.broker.topics();
        assert!((2..=4).contains(&found[0].1), "{found:?}");
        bench.broker.grow_topic("demo", 6).unwrap();
        bench.kill(usize::MAX);
        assert_eq!(bench.broker.topics(), [("tubemq:demo".to_owned(), 6)], "{written}");
        let seat = bench.connect();
        assert_eq!(bench.produce(seat, "demo", 5, b"x").err_code, 200);
    }
}

#[test]
fn new_partitions_go_to_producers_and_to_the_members_of_groups() {
    let (mut bench, seat) = Bench::demo();
    bench.join(seat, "c", &["demo"], &[]);
    let event = bench.beat(seat, "c", None, None).event.unwrap();
    bench.beat(seat, "c", None, done(&event));
    bench.broker.grow_topic("demo", 3).unwrap();
    bench.settle();
    let event = bench.beat(seat, "c", None, None).event.unwrap();
    assert_eq!((event.op_type, event.subscribe_info.len()), (Some(CONNECT), 1), "{event:?}");
    assert!(event.subscribe_info[0].ends_with("#demo:2"), "{event:?}");
    bench.register_producer(seat, "p");
    assert!(bench.beat_producer(seat, "p", &["demo"]).topic_infos[0].contains("#1:3:1"));
    assert_eq!(bench.produce(seat, "demo", 2, b"x").err_code, 200);
}

#[test]
fn growth_that_cannot_be_is_refused_and_changes_nothing() {
    let mut bench = Bench::with(|settings| settings.max_topics = 5);
    bench.broker.create_topic("demo", 2).unwrap();
    bench.settle();
    for (name, partitions, kind, text) in [
        ("other", 3, ErrorKind::TopicNotFound, "tubemq:other does not exist"),
        ("demo", 0, ErrorKind::InvalidArgument, "has 2 partitions, and 0 were asked for"),
        ("demo", 2, ErrorKind::InvalidArgument, "has 2 partitions, and 2 were asked for"),
        ("demo", 10_001, ErrorKind::InvalidArgument, "1 to 10000 partitions"),
        ("demo", u32::MAX, ErrorKind::InvalidArgument, "1 to 10000 partitions"),
        ("demo", 6, ErrorKind::TooManyRequests, "max_topics is 5"),
    ] {
        let error = bench.broker.grow_topic(name, partitions).unwrap_err();
        assert_eq!(error.kind(), kind, "{name}, {partitions}: {error}");
        assert!(error.message().contains(text), "{error}");
    }
    assert_eq!(bench.broker.topics(), [("tubemq:demo".to_owned(), 2)]);
    bench.broker.grow_topic("demo", 5).unwrap();
    assert_eq!(bench.broker.topics(), [("tubemq:demo".to_owned(), 5)]);
}

#[test]
fn a_store_that_failed_makes_no_partitions() {
    let (mut bench, _) = Bench::demo();
    bench.held = true;
    bench.broker.grow_topic("demo", 3).unwrap();
    bench.settle();
    bench.fail();
    let refusals = [bench.broker.grow_topic("demo", 4), bench.broker.create_topic("other", 1)];
    for refusal in refusals {
        let error = refusal.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Persistence);
        assert!(error.message().contains("no space left"), "{error}");
    }
    assert_eq!(bench.broker.topics(), [("tubemq:demo".to_owned(), 3)]);
}
