//! Users, their signatures and visit tokens.

use super::*;

/// The answer to a message that is sent with a visit token.
fn send_with(bench: &mut Bench, seat: u64, token: i64) -> i32 {
    let auth_info = Some(pb::AuthorizedInfo { visit_authorized_token: token, auth_authorized_token: None });
    let request = pb::SendMessageRequestP2b { auth_info, ..message("demo", 0, b"x") };
    let Response::SendMessage(sent) = bench.call(seat, Request::SendMessage(Box::new(request))) else {
        panic!("a response to a message")
    };
    sent.err_code
}

#[test]
fn with_users_the_master_wants_a_signature_and_the_broker_its_token() {
    let mut bench = Bench::with(|settings| settings.users = Some(Users::parse("user:pass").unwrap()));
    bench.broker.create_topic("demo", 1).unwrap();
    bench.settle();
    let seat = bench.connect();
    assert_eq!(bench.register_producer(seat, "p").err_code, 415);
    assert_eq!(bench.produce(seat, "demo", 0, b"x").err_code, 415);
    let token = visit_token(&mut bench, seat);
    let send = |bench: &mut Bench, token| send_with(bench, seat, token);
    assert_eq!(send(&mut bench, token), 200);
    assert_eq!(send(&mut bench, token + 1), 415);
    bench.pass(Duration::from_secs(301));
    assert_eq!(send(&mut bench, token), 200, "the one before is good for a while");
    bench.pass(Duration::from_secs(301));
    assert_eq!(send(&mut bench, token), 415);
}

#[test]
fn a_changed_password_ends_the_visit_tokens_and_the_same_one_keeps_them() {
    let mut bench = Bench::with(|settings| settings.users = Some(Users::parse("user:pass").unwrap()));
    bench.broker.create_topic("demo", 1).unwrap();
    bench.settle();
    let seat = bench.connect();
    let first = visit_token(&mut bench, seat);
    let send = |bench: &mut Bench, token| send_with(bench, seat, token);
    let commit = |bench: &mut Bench| bench.commit(seat, "c", 0, true).err_code;
    assert_eq!(send(&mut bench, first), 200);
    bench.pass(Duration::from_secs(301));
    let set = |bench: &mut Bench, file: &str| bench.broker.set_users(bench.now, file).unwrap();
    assert_eq!(set(&mut bench, "user:pass\nother:word"), 2);
    assert_eq!(send(&mut bench, first), 200, "the password is the same");
    assert_ne!(commit(&mut bench), 415);
    assert_eq!(set(&mut bench, "user:changed"), 1);
    assert_eq!((send(&mut bench, first), commit(&mut bench)), (415, 415));
    assert_eq!(set(&mut bench, "user:pass"), 1);
    assert_eq!((send(&mut bench, first), commit(&mut bench)), (415, 415), "what has ended stays so");
}

#[test]
fn with_users_a_connection_without_a_token_learns_and_moves_nothing() {
    let mut bench = Bench::with(|settings| settings.users = Some(Users::parse("user:pass").unwrap()));
    bench.broker.create_topic("demo", 1).unwrap();
    bench.settle();
    let rightful = bench.connect();
    let token = visit_token(&mut bench, rightful);
    let visit = || Some(pb::AuthorizedInfo { visit_authorized_token: token, auth_authorized_token: None });
    let request = pb::SendMessageRequestP2b { auth_info: visit(), ..message("demo", 0, b"card number") };
    assert!(matches!(
        bench.call(rightful, Request::SendMessage(Box::new(request))),
        Response::SendMessage(sent) if sent.success
    ));
    let register = |bench: &mut Bench, seat, client: &str, auth_info| {
        let request = pb::RegisterRequestC2b {
            op_type: 31,
            client_id: client.into(),
            group_name: "billing".into(),
            topic_name: "demo".into(),
            partition_id: 0,
            read_status: 0,
            auth_info,
            ..Default::default()
        };
        let Response::PartitionRegister(answer) =
            bench.call(seat, Request::PartitionRegister(Box::new(request)))
        else {
            panic!("a response to a register")
        };
        answer
    };
    let get = |bench: &mut Bench, seat, client: &str| {
        let request = pb::GetMessageRequestC2b {
            client_id: client.into(),
            partition_id: 0,
            group_name: "billing".into(),
            topic_name: "demo".into(),
            last_pack_consumed: Some(false),
            ..Default::default()
        };
        let Response::GetMessages(answer) = bench.call(seat, Request::GetMessages(request)) else {
            panic!("a response to a get")
        };
        answer
    };
    let commit = |bench: &mut Bench, seat, client: &str| {
        let request = pb::CommitOffsetRequestC2b {
            client_id: client.into(),
            topic_name: "demo".into(),
            partition_id: 0,
            group_name: "billing".into(),
            last_pack_consumed: Some(true),
        };
        let Response::CommitOffset(answer) = bench.call(seat, Request::CommitOffset(request)) else {
            panic!("a response to a commit")
        };
        answer
    };
    assert!(register(&mut bench, rightful, "billing-7f3a9c", visit()).success);

    // A stranger, who does not know the holder's id, and one who does.
    for client in ["evil", "billing-7f3a9c"] {
        let stranger = bench.connect();
        let registered = register(&mut bench, stranger, client, None);
        let got = get(&mut bench, stranger, client);
        let committed = commit(&mut bench, stranger, client);
        assert_eq!([registered.err_code, got.err_code, committed.err_code], [415; 3]);
        assert!(got.messages.is_empty() && got.max_offset.is_none() && committed.max_offset.is_none());
        for text in [&registered.err_msg, got.err_msg(), &committed.err_msg] {
            assert!(!text.contains("7f3a9c"), "{text}");
        }
    }

    // Another user's connection: admitted, but the lease is bound to the connection that took it.
    let other = bench.connect();
    let refused = register(&mut bench, other, "other", visit());
    assert_eq!(refused.err_code, 410);
    assert!(!refused.err_msg.contains("7f3a9c"), "{}", refused.err_msg);
    assert_eq!(get(&mut bench, other, "billing-7f3a9c").err_code, 415);
    assert_eq!(commit(&mut bench, other, "billing-7f3a9c").err_code, 415);

    let got = get(&mut bench, rightful, "billing-7f3a9c");
    assert_eq!(got.messages.iter().map(|m| &m.pay_load_data[..]).collect::<Vec<_>>(), [b"card number"]);

    // The rightful client comes back on another connection: a heartbeat with the token binds the
    // lease to it.
    let back = bench.connect();
    let request = pb::HeartBeatRequestC2b {
        client_id: "billing-7f3a9c".into(),
        group_name: "billing".into(),
        partition_info: vec!["1:127.0.0.1:8123#demo:0".into()],
        auth_info: visit(),
        ..Default::default()
    };
    let Response::PartitionHeartbeat(beat) = bench.call(back, Request::PartitionHeartbeat(Box::new(request)))
    else {
        panic!("a response to a heartbeat")
    };
    assert!(beat.success && beat.failure_info.is_empty(), "{beat:?}");
    assert_eq!(get(&mut bench, back, "billing-7f3a9c").messages.len(), 1);
    assert!(commit(&mut bench, back, "billing-7f3a9c").success);
}
