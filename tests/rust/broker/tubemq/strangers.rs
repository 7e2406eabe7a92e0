//! Calls that cannot be read, and connections that are not admitted.

use super::*;

#[test]
fn a_call_that_cannot_be_read_or_placed_is_an_exception_and_the_connection_goes_on() {
    let (mut bench, seat) = Bench::demo();
    let mut call =
        Call::new(Request::SendMessage(Box::new(message("demo", 0, b"x"))), Duration::from_secs(1));
    call.service = Some(1);
    let Reply::Exception(exception) = bench.reply(seat, &call) else { panic!("an exception") };
    assert!(!exception.fatal && exception.name.starts_with("org.apache.inlong.tubemq."));
    call.version = Some(1);
    let Reply::Exception(exception) = bench.reply(seat, &call) else { panic!("an exception") };
    assert!(exception.name.starts_with("com.tencent.tubemq."));
    // A payload that is not a message.
    bench.input(seat, &[0xff, 0x7f, 0xf4, 0xfe, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2]).unwrap();
    let replies = bench.replies(seat);
    let [(9, Reply::Exception(exception))] = &replies[..] else { panic!("{replies:?}") };
    assert!(exception.fatal);
    assert!(bench.produce(seat, "demo", 0, b"x").success);
    let service = Call { service: Some(2), ..Call::new(call.request, Duration::from_secs(1)) };
    assert!(matches!(bench.reply(seat, &service), Reply::Response { .. }), "as at the real broker");
}

#[test]
fn bytes_that_are_no_frame_end_the_connection() {
    let mut bench = Bench::new();
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        &[0xff, 0x7f, 0xf4, 0xfe, 0, 0, 0, 1, 0, 0, 0, 0],
        &[0xff, 0x7f, 0xf4, 0xfe, 0, 0, 0, 1, 0, 0, 0x0e, 1],
        &[0xff, 0x7f, 0xf4, 0xfe, 0, 0, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff],
    ] {
        let seat = bench.connect();
        assert!(bench.input(seat, bytes).is_err(), "{bytes:x?}");
    }
}

/// Connects from a host that no other connection comes from.
fn stranger(bench: &mut Bench, number: usize) -> u64 {
    bench.broker.connect(bench.now, &format!("10.0.0.{number}:5000"))
}

/// Lets time pass; gives the error that the deadline of a connection ends it with.
fn outlast(bench: &mut Bench, seat: u64, time: Duration) -> Option<ErrorKind> {
    bench.pass(time);
    let due = bench.broker.session_timeout(seat).is_some_and(|at| at <= bench.now);
    if !due {
        return None;
    }
    bench.broker.handle_session_timeout(bench.now, seat).err().map(|error| error.kind())
}

/// A frame of one call with a payload of `size` bytes, without its last byte.
fn unfinished(size: usize) -> Vec<u8> {
    let payload = bytes::Bytes::from(vec![b'x'; size]);
    let mut frame = Frame { serial: 1, payload }.to_bytes().unwrap().to_vec();
    frame.pop();
    frame
}

#[test]
fn a_connection_without_an_admitted_call_ends_after_ten_seconds() {
    for users in [None, Some(Users::parse("user:pass").unwrap())] {
        let secured = users.is_some();
        let mut bench = Bench::with(|settings| settings.users = users);
        let (silent, refused, good) =
            (stranger(&mut bench, 1), stranger(&mut bench, 2), stranger(&mut bench, 3));
        let slow = stranger(&mut bench, 4);
        bench.input(slow, &unfinished(100)).unwrap();
        bench.register_producer(refused, "p");
        visit_token(&mut bench, good);
        assert_eq!(outlast(&mut bench, silent, Duration::from_secs(9)), None);
        assert_eq!(outlast(&mut bench, silent, Duration::from_secs(1)), Some(ErrorKind::Timeout));
        assert_eq!(
            outlast(&mut bench, slow, Duration::ZERO),
            Some(ErrorKind::Timeout),
            "half a call is none"
        );
        // With users, a call without a signature admits no connection.
        assert_eq!(outlast(&mut bench, refused, Duration::ZERO).is_some(), secured);
        assert_eq!(outlast(&mut bench, good, Duration::ZERO), None);
        let second = stranger(&mut bench, 3);
        assert_eq!(outlast(&mut bench, second, Duration::from_secs(11)), None, "its host is known");
        assert_eq!(outlast(&mut bench, good, Duration::from_secs(300)), Some(ErrorKind::Timeout), "idle");
    }
}

#[test]
fn with_users_strangers_hold_no_more_than_a_small_call_each() {
    let mut bench = Bench::with(|settings| settings.users = Some(Users::parse("user:pass").unwrap()));
    let seat = stranger(&mut bench, 1);
    bench.input(seat, &unfinished(60 << 10)).unwrap();
    let seat = stranger(&mut bench, 2);
    let error = bench.input(seat, &unfinished(1 << 20)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FrameTooLarge);
    // The first message of a producer that has registered with the master may be large.
    let master = stranger(&mut bench, 3);
    let token = visit_token(&mut bench, master);
    bench.broker.create_topic("demo", 1).unwrap();
    bench.settle();
    let producer = stranger(&mut bench, 3);
    let auth_info = Some(pb::AuthorizedInfo { visit_authorized_token: token, auth_authorized_token: None });
    let request = pb::SendMessageRequestP2b { auth_info, ..message("demo", 0, &[b'x'; 500 << 10]) };
    let Response::SendMessage(sent) = bench.call(producer, Request::SendMessage(Box::new(request))) else {
        panic!("a response to a message")
    };
    assert_eq!(sent.err_code, 200, "{}", sent.err_msg);
}

#[test]
fn the_first_message_of_a_registered_producer_may_be_large_from_any_address() {
    let mut bench = Bench::with(|settings| settings.users = Some(Users::parse("user:pass").unwrap()));
    let master = stranger(&mut bench, 1);
    let token = visit_token(&mut bench, master);
    bench.broker.create_topic("demo", 1).unwrap();
    bench.settle();
    let auth_info = Some(pb::AuthorizedInfo { visit_authorized_token: token, auth_authorized_token: None });
    let call = |client: &str, bench: &mut Bench, number: usize| {
        let request = pb::SendMessageRequestP2b {
            client_id: client.into(),
            auth_info: auth_info.clone(),
            ..message("demo", 0, &[b'x'; 500 << 10])
        };
        let mut out = Transmit::default();
        let call = Call::new(Request::SendMessage(Box::new(request)), Duration::from_secs(10));
        call.encode(1, &mut out).unwrap();
        let (seat, bytes) = (stranger(bench, number), out.take());
        let mut input = BytesMut::new();
        // As it comes from the socket.
        for piece in bytes.chunks(10_000) {
            input.extend_from_slice(piece);
            bench.broker.handle_input(bench.now, seat, &mut input)?;
            bench.settle();
        }
        Ok::<_, forebay_base::error::Error>(bench.replies(seat))
    };
    let sent = call("p", &mut bench, 2).unwrap();
    let [(1, Reply::Response { response: Response::SendMessage(sent), .. })] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!(sent.err_code, 200, "{}", sent.err_msg);
    let error = call("q", &mut bench, 3).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FrameTooLarge, "the master does not know this one");
    bench.pass(bench.settings.client_timeout + Duration::from_secs(2));
    let error = call("p", &mut bench, 4).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FrameTooLarge, "its registration has expired");
}

#[test]
fn large_first_calls_share_one_budget() {
    let mut bench = Bench::new();
    let mut held = 0;
    for number in 0..200 {
        let seat = stranger(&mut bench, number);
        match bench.input(seat, &unfinished(1 << 20)) {
            Ok(()) => held += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TooManyRequests);
                bench.broker.disconnect(bench.now, seat);
            }
        }
    }
    assert!((10..=20).contains(&held), "{held} connections hold a megabyte each");
}
