//! Groups: those that the master balances, and those that balance by themselves.

use super::*;

#[test]
fn a_member_is_told_to_take_partitions_and_another_gets_its_share() {
    let (mut bench, seat) = Bench::demo();
    assert!(bench.join(seat, "a", &["demo"], NO_FILTERS).success);
    let first = bench.beat(seat, "a", Some(&[]), None);
    let event = first.event.unwrap();
    assert_eq!(first.not_allocated, Some(true));
    assert_eq!((event.op_type, event.status), (Some(10), Some(0)));
    let all = ["a@g#1:127.0.0.1:8123#demo:0".to_owned(), "a@g#1:127.0.0.1:8123#demo:1".to_owned()];
    assert_eq!(event.subscribe_info, all);
    let done_first = bench.beat(seat, "a", Some(&all), done(&event));
    assert_eq!((done_first.event, done_first.not_allocated), (None, Some(false)));

    assert!(bench.join(seat, "b", &["demo"], NO_FILTERS).success);
    assert_eq!(bench.beat(seat, "b", Some(&[]), None).event, None, "nothing is free yet");
    let leave = bench.beat(seat, "a", Some(&all), None).event.unwrap();
    assert_eq!((leave.op_type, &leave.subscribe_info[..]), (Some(20), &all[1..]));
    bench.beat(seat, "a", Some(&all[..1]), done(&leave));
    let take = bench.beat(seat, "b", Some(&[]), None).event.unwrap();
    assert_eq!(
        (take.op_type, &take.subscribe_info[..]),
        (Some(10), &["b@g#1:127.0.0.1:8123#demo:1".to_owned()][..])
    );

    let close = pb::CloseRequestC2m { client_id: "a".into(), group_name: "g".into(), auth_info: None };
    bench.call(seat, Request::ConsumerClose(close));
    let held = ["b@g#1:127.0.0.1:8123#demo:1".to_owned()];
    let rest = bench.beat(seat, "b", Some(&held), done(&take)).event.unwrap();
    assert_eq!(rest.subscribe_info, ["b@g#1:127.0.0.1:8123#demo:0"]);
}

#[test]
fn a_member_that_falls_silent_loses_its_partitions_at_once() {
    let (mut bench, seat) = Bench::demo();
    bench.join(seat, "a", &["demo"], NO_FILTERS);
    let event = bench.beat(seat, "a", Some(&[]), None).event.unwrap();
    let held = event.subscribe_info.clone();
    bench.beat(seat, "a", Some(&held), done(&event));
    bench.take(seat, "a", 0, |_| {});
    bench.join(seat, "b", &["demo"], NO_FILTERS);
    for _ in 0..4 {
        bench.pass(Duration::from_secs(10));
        bench.beat(seat, "b", Some(&[]), None);
        bench.beat_partitions(seat, "a", &[0]);
    }
    assert_eq!(bench.beat(seat, "a", None, None).err_code, 411);
    assert_eq!(bench.take(seat, "b", 0, |_| {}).err_code, 200);
    bench.pass(Duration::from_secs(16));
    let event = bench.beat(seat, "b", Some(&[]), None).event.unwrap();
    assert_eq!(event.subscribe_info.len(), 2);
}

#[test]
fn a_group_agrees_or_a_member_stays_out() {
    let mut bench = Bench::new();
    let seat = bench.connect();
    assert!(bench.join(seat, "a", &["demo"], &["demo#x"]).success);
    assert_eq!(bench.join(seat, "b", &["demo", "more"], &["demo#x"]).err_code, 425);
    assert_eq!(bench.join(seat, "b", &["demo"], NO_FILTERS).err_code, 426);
    assert!(bench.join(seat, "b", &["demo"], &["demo#x"]).success);
    assert_eq!(bench.join(seat, "c@d", &["demo"], &["demo#x"]).err_code, 400);
}

#[test]
fn a_member_is_one_of_as_many_as_it_says() {
    let (mut bench, seat) = Bench::demo();
    let mut register = |node_id, source_count| {
        let register = pb::RegisterRequestC2mv2 {
            client_id: "a".into(),
            group_name: "g".into(),
            host_name: "127.0.0.1".into(),
            source_count,
            node_id,
            topic_list: vec!["demo".into()],
            ..Default::default()
        };
        match bench.call(seat, Request::BalanceRegister(Box::new(register))) {
            Response::BalanceRegister(response) => response.err_code,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        (register(2, 2), register(5, 2), register(-1, 2), register(i32::MAX, 2)),
        (400, 400, 400, 400)
    );
    assert_eq!((register(0, 2), register(1, 2)), (200, 200));
    assert_eq!((register(-1, -1), register(5, 0)), (200, 200), "who does not say how many may be any");
}

#[test]
fn a_member_that_balances_by_itself_is_told_of_partitions() {
    let (mut bench, seat) = Bench::demo();
    let register = pb::RegisterRequestC2mv2 {
        client_id: "a".into(),
        group_name: "g".into(),
        host_name: "127.0.0.1".into(),
        source_count: -1,
        node_id: -1,
        topic_list: vec!["demo".into()],
        ..Default::default()
    };
    let Response::BalanceRegister(registered) =
        bench.call(seat, Request::BalanceRegister(Box::new(register)))
    else {
        panic!("a response to a register")
    };
    assert_eq!(
        (registered.err_code, &registered.broker_config_list[..]),
        (200, &["1:127.0.0.1:8123".to_owned()][..])
    );
    let ask = |topics| pb::GetPartMetaRequestC2m {
        client_id: "a".into(),
        group_name: "g".into(),
        broker_config_id: registered.broker_config_id.unwrap(),
        topic_meta_info_id: topics,
        auth_info: None,
    };
    let Response::PartitionMetadata(first) = bench.call(seat, Request::PartitionMetadata(ask(-2))) else {
        panic!("a response to a question")
    };
    assert_eq!(
        (first.broker_config_list.len(), &first.topic_meta_info_list[..]),
        (0, &["demo#1:1:2:1".to_owned()][..])
    );
    let again = ask(first.topic_meta_info_id.unwrap());
    let Response::PartitionMetadata(same) = bench.call(seat, Request::PartitionMetadata(again)) else {
        panic!("a response to a question")
    };
    assert!(same.topic_meta_info_list.is_empty(), "nothing is new");
    let beat = pb::HeartRequestC2mv2 { client_id: "a".into(), group_name: "g".into(), ..Default::default() };
    let Response::BalanceHeartbeat(beaten) =
        bench.call(seat, Request::BalanceHeartbeat(Box::new(beat.clone())))
    else {
        panic!("a response to a heartbeat")
    };
    assert_eq!(beaten.err_code, 200);
    bench.pass(Duration::from_secs(32));
    let Response::BalanceHeartbeat(late) = bench.call(seat, Request::BalanceHeartbeat(Box::new(beat))) else {
        panic!("a response to a heartbeat")
    };
    assert_eq!(late.err_code, 411);
}
