use super::*;

const INTERVAL: Duration = Duration::from_secs(10);

fn member(now: Instant, balance: Balance) -> Member {
    member_at(now, balance, &[])
}

fn member_at(now: Instant, balance: Balance, positions: &[Partition]) -> Member {
    Member::new(
        Options {
            identity: Identity { client_id: "c".into(), host_name: "127.0.0.1".into(), default_port: 8123 },
            group: "g".into(),
            topics: BTreeSet::from(["demo".to_owned()]),
            filters: BTreeMap::from([("demo".to_owned(), BTreeSet::from(["a".to_owned(), "b".to_owned()]))]),
            balance,
            interval: INTERVAL,
            started_ms: 1000,
            positions: positions.iter().copied().collect(),
        },
        now,
    )
}

fn known(code: i32) -> Result<Response> {
    Ok(Response::BalanceRegister(Box::new(pb::RegisterResponseM2cv2 {
        err_code: code,
        err_msg: "words".into(),
        broker_config_id: Some(4),
        broker_config_list: vec!["1:127.0.0.1: ".into(), "2:127.0.0.2:99".into()],
        ops_task_info: None,
        authorized_info: Some(pb::MasterAuthorizedInfo {
            visit_authorized_token: 99,
            auth_authorized_token: None,
        }),
    })))
}

fn metadata(topics: &[&str]) -> Result<Response> {
    Ok(Response::PartitionMetadata(pb::GetPartMetaResponseM2c {
        err_code: 200,
        err_msg: String::new(),
        broker_config_id: Some(4),
        topic_meta_info_id: Some(5),
        topic_meta_info_list: topics.iter().map(ToString::to_string).collect(),
        broker_config_list: Vec::new(),
    }))
}

fn events(member: &mut Member) -> Vec<Event> {
    std::iter::from_fn(|| member.poll_event()).collect()
}

/// Broker and partition numbers of the assignment.
fn assigned(member: &mut Member) -> Option<Vec<(u32, u32)>> {
    events(member).into_iter().rev().find_map(|event| match event {
        Event::Assigned(locations) => Some(
            locations.iter().map(|location| (location.partition.broker, location.partition.id)).collect(),
        ),
        _ => None,
    })
}

fn joined(now: Instant, balance: Balance, topics: &[&str]) -> Member {
    join(member(now, balance), now, topics)
}

fn join(mut member: Member, now: Instant, topics: &[&str]) -> Member {
    let Some(Request::BalanceRegister(request)) = member.poll_request(now, None) else {
        panic!("it registers")
    };
    assert_eq!(request.topic_condition, ["demo#a,b"]);
    member.handle_answer(now, known(200));
    assert!(
        matches!(member.poll_request(now, None), Some(Request::PartitionMetadata(m)) if m.broker_config_id == 4)
    );
    member.handle_answer(now, metadata(topics));
    member
}

#[test]
fn a_position_of_a_partition_that_is_not_there_is_refused_and_nothing_is_taken() {
    let start = Instant::now();
    let missing = Partition { broker: 2, id: 7 };
    // The member does not take it itself: it is another one's.
    let positions = [Partition { broker: 1, id: 1 }, missing];
    for balance in [Balance::Client(None), Balance::Client(Some((2, 0)))] {
        let mut member = join(member_at(start, balance, &positions), start, &["demo#1:1:2:1,2:1:1:1"]);
        assert_eq!(assigned(&mut member), None, "a position would move the group");
        assert_eq!(member.poll_timeout(), Some(start + METADATA_RETRY), "it may be announced soon");
        let late = start + TOPIC_PATIENCE;
        assert!(matches!(member.poll_request(late, None), Some(Request::PartitionMetadata(_))));
        member.handle_answer(late, metadata(&["demo#1:1:2:1,2:1:1:1"]));
        let Some(Event::Refused(error)) = member.poll_event() else { panic!("it is refused") };
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(
            error.message(),
            "position names partition 2:7, which does not exist: the partitions of demo are 1:0, 1:1, 2:0"
        );
        member.close(late);
        assert!(matches!(member.poll_request(late, None), Some(Request::ConsumerClose(_))), "it leaves");
    }
    let mut member =
        join(member_at(start, Balance::Client(Some((2, 0))), &positions[..1]), start, &["demo#1:1:2:1"]);
    assert_eq!(assigned(&mut member).unwrap(), [(1, 0)], "the other one is another member's");
}

#[test]
fn without_numbers_a_member_takes_every_partition_that_may_be_consumed() {
    let now = Instant::now();
    let mut member = joined(now, Balance::Client(None), &["demo#1:2:2:1,2:1:1:1,3:1:1:1", "other#1:1:1:1"]);
    // The address of broker 3 is unknown.
    assert_eq!(assigned(&mut member).unwrap(), [(1, 0), (1, 1), (1, 10_000), (1, 10_001), (2, 0)]);
    assert_eq!(member.poll_timeout(), Some(now + METADATA_INTERVAL));
    // Replaced as a whole; partitions that may not be consumed are omitted.
    assert!(member.poll_request(now + METADATA_INTERVAL, None).is_some());
    member.handle_answer(now + METADATA_INTERVAL, metadata(&["demo#1:1:2:1,2:1:1:0"]));
    assert_eq!(assigned(&mut member).unwrap(), [(1, 0), (1, 1)]);
    // An identical list causes no event.
    assert!(member.poll_request(now + METADATA_INTERVAL * 2, None).is_some());
    member.handle_answer(now + METADATA_INTERVAL * 2, metadata(&["demo#1:1:2:1,2:1:1:0"]));
    assert!(assigned(&mut member).is_none());
}

#[test]
fn with_numbers_every_partition_is_one_members() {
    let now = Instant::now();
    let mut all = Vec::new();
    for node in 0..3 {
        let mut member = joined(now, Balance::Client(Some((3, node))), &["demo#1:2:2:1,2:1:1:1"]);
        all.extend(assigned(&mut member).unwrap());
    }
    all.sort_unstable();
    assert_eq!(all, [(1, 0), (1, 1), (1, 10_000), (1, 10_001), (2, 0)]);
}

#[test]
fn a_topic_that_is_not_there_yet_is_asked_for_again_soon() {
    let now = Instant::now();
    let mut member = joined(now, Balance::Client(None), &["other#1:1:1:1"]);
    assert_eq!(assigned(&mut member).unwrap(), []);
    assert_eq!(member.poll_timeout(), Some(now + METADATA_RETRY));
}

#[test]
fn metadata_that_did_not_come_are_asked_for_again_soon() {
    let now = Instant::now();
    let mut member = member(now, Balance::Client(None));
    assert!(member.poll_request(now, None).is_some());
    member.handle_answer(now, known(200));
    assert!(matches!(member.poll_request(now, None), Some(Request::PartitionMetadata(_))));
    member.handle_answer(now, Err(Error::protocol("lost")));
    assert_eq!(member.poll_timeout(), Some(now + RETRY));
    let calls: Vec<_> = (0..2)
        .filter_map(|_| {
            let call = member.poll_request(now + RETRY, None);
            member.handle_answer(now + RETRY, metadata(&["demo#1:1:2:1"]));
            call
        })
        .collect();
    assert!(calls.iter().any(|call| matches!(call, Request::PartitionMetadata(_))));
}

#[test]
fn a_beat_reports_what_is_held_when_that_has_changed() {
    let now = Instant::now();
    let mut member = joined(now, Balance::Client(None), &["demo#1:1:2:1"]);
    let locations = events(&mut member).into_iter().find_map(|event| match event {
        Event::Assigned(locations) => Some(locations),
        _ => None,
    });
    member.set_held(locations.unwrap());
    let at = now + INTERVAL;
    let Some(Request::BalanceHeartbeat(beat)) = member.poll_request(at, None) else { panic!("it beats") };
    let report = beat.sub_rep_info.unwrap();
    assert_eq!((report.report_sub_info, report.part_sub_info), (Some(true), vec!["demo#1:0,1:1".to_owned()]));
    member.handle_answer(at, Err(Error::protocol("lost")));
    let Some(Request::BalanceHeartbeat(beat)) = member.poll_request(at + RETRY, None) else {
        panic!("it beats")
    };
    assert_eq!(beat.sub_rep_info.unwrap().part_sub_info.len(), 1, "the last report may have been lost");
}

#[test]
fn a_member_that_was_forgotten_registers_again() {
    let now = Instant::now();
    let mut member = joined(now, Balance::Client(None), &["demo#1:1:2:1"]);
    let mut at = now;
    let mut beat = |member: &mut Member, code| {
        at += INTERVAL;
        while let Some(request) = member.poll_request(at, None)
            && !matches!(request, Request::BalanceHeartbeat(_))
        {
            member.handle_answer(at, metadata(&["demo#1:1:2:1"]));
        }
        let response = pb::HeartResponseM2cv2 { err_code: code, ..Default::default() };
        member.handle_answer(at, Ok(Response::BalanceHeartbeat(Box::new(response))));
        at
    };
    beat(&mut member, 200);
    let at = beat(&mut member, 411);
    assert!(matches!(member.poll_request(at, None), Some(Request::BalanceRegister(_))));
    // One that forgets it at once again, or does not register it, is not asked at once.
    member.handle_answer(at, known(411));
    assert!(member.poll_request(at, None).is_none());
    assert!(matches!(member.poll_request(at + RETRY, None), Some(Request::BalanceRegister(_))));
    member.handle_answer(at + RETRY, known(200));
    events(&mut member);
    let at = beat(&mut member, 411);
    assert!(matches!(events(&mut member)[..], [Event::Failed(_)]));
    assert!(member.poll_request(at, None).is_none());
    assert!(matches!(member.poll_request(at + RETRY, None), Some(Request::BalanceRegister(_))));
}

#[test]
fn a_member_that_does_not_fit_is_refused_at_the_first_registration_only() {
    let now = Instant::now();
    for code in [424, 425, 426, 429, 430, 431, 450, 455, 415, 400] {
        let mut member = member(now, Balance::Client(None));
        assert!(member.poll_request(now, None).is_some());
        member.handle_answer(now, known(code));
        let [Event::Refused(error)] = &events(&mut member)[..] else { panic!("{code}") };
        assert_eq!(error.peer_text(), Some("words"));
        assert!(member.is_closed());
    }
    let mut member = member(now, Balance::Client(None));
    assert!(member.poll_request(now, None).is_some());
    member.handle_answer(now, known(503));
    assert!(matches!(events(&mut member)[..], [Event::Failed(_)]));
    assert!(matches!(member.poll_request(now + RETRY, None), Some(Request::BalanceRegister(_))));
}

fn server_registered() -> Result<Response> {
    Ok(Response::ConsumerRegister(pb::RegisterResponseM2c {
        success: true,
        err_code: 200,
        not_allocated: Some(true),
        def_flow_check_id: Some(1),
        group_flow_check_id: Some(2),
        ..Default::default()
    }))
}

fn beaten(event: Option<pb::EventProto>) -> Result<Response> {
    Ok(Response::ConsumerHeartbeat(Box::new(pb::HeartResponseM2c {
        success: true,
        err_code: 200,
        event,
        not_allocated: Some(false),
        ..Default::default()
    })))
}

fn event(id: i64, op: i32, partitions: &[u32]) -> pb::EventProto {
    let info = |partition: &u32| format!("c@g#1:127.0.0.1:8123#demo:{partition}");
    pb::EventProto {
        rebalance_id: Some(id),
        op_type: Some(op),
        status: None,
        subscribe_info: partitions.iter().map(info).collect(),
    }
}

fn beat(member: &mut Member, now: Instant) -> Box<pb::HeartRequestC2m> {
    match member.poll_request(now, None) {
        Some(Request::ConsumerHeartbeat(beat)) => beat,
        other => panic!("a beat is due: {other:?}"),
    }
}

fn server_joined(now: Instant) -> Member {
    let mut member = member(now, Balance::Server);
    assert!(matches!(member.poll_request(now, None), Some(Request::ConsumerRegister(_))));
    member.handle_answer(now, server_registered());
    assert!(matches!(events(&mut member)[..], [Event::Registered]));
    member
}

#[test]
fn an_event_is_answered_in_the_next_beat_with_what_is_really_held() {
    let now = Instant::now();
    let mut member = server_joined(now);
    let now = now + HEARTBEAT_UNASSIGNED;
    let request = beat(&mut member, now);
    assert_eq!((request.event, request.report_subscribe_info), (None, false));
    member.handle_answer(now, beaten(Some(event(7, ONLY_CONNECT, &[0, 1]))));
    let [Event::Take(locations)] = &events(&mut member)[..] else { panic!("it is to take") };
    assert_eq!(locations.iter().map(|location| location.partition.id).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(&*locations[0].topic, "demo");
    // One of the two could not be taken.
    member.set_held(locations[..1].to_vec());
    member.confirm_event(now);
    let request = beat(&mut member, now);
    let done = request.event.unwrap();
    assert_eq!((done.rebalance_id, done.op_type, done.status), (Some(7), Some(ONLY_CONNECT), Some(DONE)));
    assert_eq!(done.subscribe_info.len(), 2, "as in the event");
    assert!(request.report_subscribe_info);
    assert_eq!(request.subscribe_info, ["c@g#1:127.0.0.1:8123#demo:0"]);
    member.handle_answer(now, beaten(Some(event(8, DISCONNECT, &[0]))));
    assert!(matches!(&events(&mut member)[..], [Event::Leave(locations)] if locations.len() == 1));
    member.set_held(Vec::new());
    member.confirm_event(now);
    let request = beat(&mut member, now);
    assert_eq!((request.event.unwrap().rebalance_id, request.subscribe_info), (Some(8), Vec::new()));
    member.handle_answer(now, beaten(None));
    // Sooner than the interval: partitions that others leave come with the answers.
    assert_eq!(member.poll_timeout(), Some(now + HEARTBEAT_SERVER));
}

#[test]
fn an_event_that_means_nothing_here_is_answered_all_the_same() {
    let now = Instant::now();
    for op in [3, 4, 5, 77] {
        let mut member = server_joined(now);
        let now = now + HEARTBEAT_UNASSIGNED;
        beat(&mut member, now);
        member.handle_answer(now, beaten(Some(event(7, op, &[]))));
        assert!(events(&mut member).is_empty());
        assert_eq!(beat(&mut member, now).event.unwrap().status, Some(DONE));
    }
}

#[test]
fn after_a_lost_beat_the_event_that_may_have_been_in_it_is_popped() {
    let now = Instant::now();
    let mut member = server_joined(now);
    let now = now + HEARTBEAT_UNASSIGNED;
    beat(&mut member, now);
    member.handle_answer(now, Err(Error::protocol("lost")));
    events(&mut member);
    let request = beat(&mut member, now + RETRY);
    assert!(request.event.unwrap().rebalance_id.unwrap() > 0);
    assert!(request.report_subscribe_info);
    member.handle_answer(now + RETRY, beaten(None));
    assert_eq!(beat(&mut member, now + RETRY + INTERVAL).event, None, "once is enough");
}

#[test]
fn a_member_says_goodbye_if_the_master_knows_it() {
    let now = Instant::now();
    let mut member = server_joined(now);
    member.close(now);
    assert!(matches!(member.poll_request(now, None), Some(Request::ConsumerClose(_))));
    member.handle_answer(now, Err(Error::protocol("lost")));
    assert!(member.is_closed());
    assert_eq!(member.poll_timeout(), None);
    let mut never = self::member(now, Balance::Server);
    never.close(now);
    assert!(never.is_closed());
}

const RULES: &str = r#"[{"type":1,"rule":[{"zeroCnt":3,"freqInMs":300}]}]"#;

#[test]
fn the_rules_of_flow_control_are_told_once_by_their_numbers() {
    let now = Instant::now();
    let mut member = server_joined(now);
    let mut at = now;
    let mut told = |default: (i64, &str), group: (i64, &str)| {
        at += INTERVAL;
        let request = beat(&mut member, at);
        member.handle_answer(
            at,
            Ok(Response::ConsumerHeartbeat(Box::new(pb::HeartResponseM2c {
                success: true,
                err_code: 200,
                not_allocated: Some(false),
                def_flow_check_id: Some(default.0),
                def_flow_control_info: Some(default.1.into()),
                group_flow_check_id: Some(group.0),
                group_flow_control_info: Some(group.1.into()),
                ..Default::default()
            }))),
        );
        let flows = events(&mut member).into_iter().filter(|event| matches!(event, Event::Flow(_)));
        (request.def_flow_check_id, request.group_flow_check_id, flows.count())
    };
    assert_eq!(told((3, RULES), (-2, " ")), (Some(1), Some(2), 1));
    assert_eq!(told((3, ""), (-2, " ")), (Some(3), Some(2), 0));
    // An invalid text is requested again, in case it has been corrected.
    assert_eq!(told((3, ""), (8, "[{}]")), (Some(3), Some(2), 0));
    assert_eq!(told((4, " "), (8, RULES)), (Some(3), Some(2), 1));
    assert_eq!(told((4, ""), (8, "")), (Some(4), Some(8), 0));
}

#[test]
fn a_member_of_client_balance_names_the_rules_that_it_has() {
    let now = Instant::now();
    let mut member = joined(now, Balance::Client(None), &["demo#1:1:1:1"]);
    let now = now + INTERVAL;
    let beat = |member: &mut Member, now| loop {
        match member.poll_request(now, None) {
            Some(Request::BalanceHeartbeat(beat)) => return beat,
            Some(_) => member.handle_answer(now, metadata(&[])),
            None => panic!("a beat is due"),
        }
    };
    assert_eq!(beat(&mut member, now).ops_task_info, None, "it has none");
    member.handle_answer(
        now,
        Ok(Response::BalanceHeartbeat(Box::new(pb::HeartResponseM2cv2 {
            err_code: 200,
            ops_task_info: Some(pb::OpsTaskInfo {
                group_flow_check_id: Some(6),
                group_flow_control_info: Some(RULES.into()),
                ..Default::default()
            }),
            ..Default::default()
        }))),
    );
    assert!(events(&mut member).iter().any(|event| matches!(event, Event::Flow(_))));
    let tasks = beat(&mut member, now + INTERVAL).ops_task_info.unwrap();
    assert_eq!((tasks.group_flow_check_id, tasks.def_flow_check_id), (Some(6), None));
}
