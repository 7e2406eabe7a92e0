use super::*;
use crate::{Exception, Frame, Request, pb};

const TIMEOUT: Duration = Duration::from_secs(10);

fn close(client: &str) -> Request {
    Request::ProducerClose(pb::CloseRequestP2m { client_id: client.into(), auth_info: None })
}

fn closed(text: &str) -> Response {
    let err_msg = text.to_owned();
    Response::ProducerClose(pb::CloseResponseM2p { success: true, err_code: 200, err_msg })
}

fn reply(serial: u32, reply: &Reply) -> BytesMut {
    let mut out = Transmit::default();
    reply.encode(serial, &mut out).unwrap();
    out.take()
}

fn words(connection: &mut Connection<u32>) -> Vec<(u32, String)> {
    std::iter::from_fn(|| connection.poll_event())
        .map(|answer| {
            let text = match answer.result {
                Ok(response) => response.code().1.to_owned(),
                Err(error) => error.kind().code().to_owned(),
            };
            (answer.tag, text)
        })
        .collect()
}

fn three(now: Instant) -> Connection<u32> {
    let mut connection = Connection::new(TIMEOUT);
    for tag in [10, 20, 30] {
        connection.call(now, close("c"), tag);
    }
    connection
}

#[test]
fn every_call_says_how_long_it_may_take() {
    let mut connection = three(Instant::now());
    let mut bytes = connection.transmit().take();
    let mut decoder = Decoder::new(MAX_PAYLOAD);
    for serial in 1..=3 {
        let frame = decoder.next(&mut bytes).unwrap().unwrap();
        let call = Call::decode(&frame.payload).unwrap();
        assert_eq!((frame.serial, call.timeout), (serial, Some(10_000)));
        assert_eq!(call.request, close("c"));
    }
    assert!(bytes.is_empty());
}

#[test]
fn answers_find_their_calls_wherever_the_input_is_cut() {
    let now = Instant::now();
    let mut all = BytesMut::new();
    for (serial, text) in [(1, "one"), (2, "two"), (3, "three")] {
        all.extend_from_slice(&reply(serial, &Reply::response(closed(text))));
    }
    for cut in 0..=all.len() {
        let mut connection = three(now);
        let mut input = BytesMut::from(&all[..cut]);
        connection.handle_input(now, &mut input).unwrap();
        input.extend_from_slice(&all[cut..]);
        connection.handle_input(now, &mut input).unwrap();
        let expected = [(10, "one"), (20, "two"), (30, "three")].map(|(tag, text)| (tag, text.to_owned()));
        assert_eq!(words(&mut connection), expected);
        assert_eq!((connection.open_calls(), connection.poll_timeout()), (0, None));
    }
}

#[test]
fn an_answer_that_nobody_waits_for_is_ignored() {
    let now = Instant::now();
    let mut connection = three(now);
    for serial in [0, 4, u32::MAX, 2, 2, 1, 1] {
        connection.handle_input(now, &mut reply(serial, &Reply::response(closed("x")))).unwrap();
    }
    assert_eq!(words(&mut connection), [(20, "x".to_owned()), (10, "x".to_owned())]);
    assert_eq!(connection.open_calls(), 1);
    // The payload is not decoded either.
    let mut nonsense = Frame { serial: 77, payload: "nonsense".into() }.to_bytes().unwrap().into();
    connection.handle_input(now, &mut nonsense).unwrap();
}

#[test]
fn serial_numbers_go_round() {
    let now = Instant::now();
    let mut connection = Connection::new(TIMEOUT);
    connection.first = u32::MAX;
    connection.call(now, close("c"), 1);
    connection.call(now, close("c"), 2);
    connection.handle_input(now, &mut reply(u32::MAX, &Reply::response(closed("a")))).unwrap();
    connection.handle_input(now, &mut reply(0, &Reply::response(closed("b")))).unwrap();
    assert_eq!(words(&mut connection), [(1, "a".to_owned()), (2, "b".to_owned())]);
}

#[test]
fn a_call_that_is_not_answered_in_time_fails_alone_if_the_server_has_spoken_since() {
    let now = Instant::now();
    let mut connection = three(now);
    let later = now + TIMEOUT / 2;
    connection.handle_input(later, &mut reply(2, &Reply::response(closed("two")))).unwrap();
    assert_eq!(connection.poll_timeout(), Some(now + TIMEOUT));
    connection.handle_timeout(now + TIMEOUT).unwrap();
    let expected = [(20, "two"), (10, "timeout"), (30, "timeout")].map(|(tag, text)| (tag, text.to_owned()));
    assert_eq!(words(&mut connection), expected);
    // The response that arrives afterwards is late.
    connection.handle_input(later, &mut reply(1, &Reply::response(closed("late")))).unwrap();
    assert_eq!(words(&mut connection), []);
}

#[test]
fn a_server_that_stays_silent_is_dead() {
    let now = Instant::now();
    let mut connection = three(now);
    connection.handle_timeout(now + TIMEOUT - Duration::from_millis(1)).unwrap();
    let error = connection.handle_timeout(now + TIMEOUT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    connection.fail_calls(&error);
    assert_eq!(words(&mut connection), [10, 20, 30].map(|tag| (tag, "timeout".to_owned())));
}

#[test]
fn an_exception_is_the_answer_of_its_call() {
    let now = Instant::now();
    let mut connection = three(now);
    let exception = Exception {
        fatal: false,
        version: Some(3),
        name: "org.apache.inlong.tubemq.corebase.StandbyException".into(),
        text: Some("not master now".into()),
    };
    connection.handle_input(now, &mut reply(1, &Reply::Exception(exception))).unwrap();
    assert_eq!(words(&mut connection), [(10, "service_not_ready".to_owned())]);
}

#[test]
fn an_answer_of_another_method_breaks_the_protocol() {
    let now = Instant::now();
    let mut connection = three(now);
    let other = Response::ConsumerClose(pb::CloseResponseM2c {
        success: true,
        err_code: 200,
        err_msg: String::new(),
    });
    let error = connection.handle_input(now, &mut reply(1, &Reply::response(other))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(error.to_string().contains("responded to ProducerClose with ConsumerClose"), "{error}");
    connection.fail_calls(&error);
    assert_eq!(words(&mut connection).len(), 3);
}

#[test]
fn what_is_no_frame_ends_the_connection() {
    for bytes in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"\xff\x7f\xf4\xfe\0\0\0\x01\0\0\0\0"] {
        let mut connection = three(Instant::now());
        assert!(connection.handle_input(Instant::now(), &mut BytesMut::from(bytes)).is_err());
    }
    let mut connection = three(Instant::now());
    let mut cut = BytesMut::from(&Frame { serial: 1, payload: "\x02".into() }.to_bytes().unwrap()[..]);
    let error = connection.handle_input(Instant::now(), &mut cut).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    connection.fail_calls(&error);
    let all = [10, 20, 30].map(|tag| (tag, "protocol".to_owned()));
    assert_eq!(words(&mut connection), all, "also the call whose answer it was");
}
