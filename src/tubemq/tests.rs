//! Tests of frames and envelopes: invalid input is rejected with the right reason, before all its
//! bytes have arrived.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use prost::Message as _;

use super::command::Encode as _;
use super::frame::{BLOCK_SIZE, Decoder, MAX_BLOCKS, MAX_PAYLOAD, TOKEN};
use super::message::Packed;
use super::send::Send;
use super::{Call, Code, Exception, Frame, Method, Reply, Request, Response, Service, pb, server_error};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::transmit::Transmit;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn next(max_payload: usize, bytes: &[u8]) -> Result<Option<Frame>> {
    Decoder::new(max_payload).next(&mut BytesMut::from(bytes))
}

/// Message of the error for these bytes.
fn refused(max_payload: usize, bytes: &[u8]) -> (ErrorKind, String) {
    let error = next(max_payload, bytes).expect_err("it must be rejected");
    (error.kind(), error.to_string())
}

fn close() -> Request {
    Request::ProducerClose(pb::CloseRequestP2m { client_id: "c1".into(), auth_info: None })
}

fn encode(call: &Call, serial: u32) -> BytesMut {
    let mut out = Transmit::default();
    call.encode(serial, &mut out).unwrap();
    out.take()
}

/// A payload of length-delimited parts.
fn payload(parts: &[&[u8]]) -> Bytes {
    let mut out = BytesMut::new();
    for part in parts {
        prost::encode_length_delimiter(part.len(), &mut out).unwrap();
        out.extend_from_slice(part);
    }
    out.freeze()
}

const FROM_CLIENT: &[u8] = &[0x08, 0];
const FROM_SERVER: &[u8] = &[0x08, 1];

#[test]
fn a_stream_that_is_another_protocol_is_known_by_its_first_byte() {
    for bytes in [&b"GET / HTTP/1.1"[..], b"\x16\x03\x01", b"\0", b"\xff\x7f\xf4\xff", b"\xff\x7e"] {
        assert_eq!(refused(MAX_PAYLOAD, bytes).0, ErrorKind::Protocol, "{bytes:02x?}");
    }
    for length in 0..12 {
        let head = &words(&[TOKEN, 7, 1])[..length];
        assert_eq!(next(MAX_PAYLOAD, head).unwrap(), None);
    }
}

#[test]
fn a_frame_has_1_to_3584_blocks() {
    for blocks in [0, MAX_BLOCKS as u32 + 1, u32::MAX] {
        let (kind, text) = refused(MAX_PAYLOAD, &words(&[TOKEN, 7, blocks]));
        assert_eq!(kind, ErrorKind::Protocol);
        assert!(text.contains(&blocks.to_string()), "{text}");
    }
    assert_eq!(next(MAX_PAYLOAD, &words(&[TOKEN, 7, MAX_BLOCKS as u32])).unwrap(), None);
}

#[test]
fn a_frame_above_the_limit_is_refused_when_the_length_that_is_too_much_has_come() {
    assert_eq!(refused(99, &words(&[TOKEN, 7, 1, 100])).0, ErrorKind::FrameTooLarge);
    assert_eq!(refused(99, &words(&[TOKEN, 7, 1, u32::MAX])).0, ErrorKind::FrameTooLarge);
    assert_eq!(next(100, &words(&[TOKEN, 7, 1, 100])).unwrap(), None);
    // Each length by itself is small.
    let mut two = words(&[TOKEN, 7, 2, 60]);
    two.extend_from_slice(&[1; 60]);
    assert_eq!(next(99, &two).unwrap(), None);
    two.extend_from_slice(&words(&[40]));
    let (kind, text) = refused(99, &two);
    assert_eq!(kind, ErrorKind::FrameTooLarge);
    assert!(text.contains("block 2 of 2 has 40 bytes after 60"), "{text}");
}

#[test]
fn blocks_may_be_empty_small_or_larger_than_those_that_are_written() {
    let mut bytes = words(&[TOKEN, 7, 4, 0, 1]);
    bytes.push(b'a');
    bytes.extend_from_slice(&words(&[0, 20_000]));
    bytes.extend_from_slice(&[b'b'; 20_000]);
    let frame = next(MAX_PAYLOAD, &bytes).unwrap().unwrap();
    assert_eq!((frame.serial, frame.payload.len(), frame.payload[0]), (7, 20_001, b'a'));
    let mut empty = words(&[TOKEN, 7, MAX_BLOCKS as u32]);
    empty.resize(empty.len() + 4 * MAX_BLOCKS, 0);
    assert_eq!(next(MAX_PAYLOAD, &empty).unwrap().unwrap().payload, Bytes::new());
}

#[test]
fn every_block_that_is_written_is_full_but_the_last() {
    for (length, last) in [(1, 1), (BLOCK_SIZE, BLOCK_SIZE), (BLOCK_SIZE + 1, 1), (3 * BLOCK_SIZE + 5, 5)] {
        let blocks = length.div_ceil(BLOCK_SIZE);
        let bytes = Frame { serial: 7, payload: vec![1; length].into() }.to_bytes().unwrap();
        assert_eq!(bytes.len(), 12 + 4 * blocks + length);
        assert_eq!(bytes[8..12], (blocks as u32).to_be_bytes());
        for block in 0..blocks {
            let at = 12 + block * (4 + BLOCK_SIZE);
            let expected = if block + 1 == blocks { last } else { BLOCK_SIZE };
            assert_eq!(bytes[at..at + 4], (expected as u32).to_be_bytes());
        }
    }
    for length in [0, MAX_PAYLOAD + 1] {
        let error = Frame { serial: 7, payload: vec![1; length].into() }.to_bytes().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MessageTooLarge);
    }
}

#[test]
fn a_call_always_says_how_long_it_waits() {
    // Servers run a call without a time limit, and do not respond.
    for (timeout, expected) in [
        (Duration::ZERO, 1),
        (Duration::from_nanos(1), 1),
        (Duration::from_micros(1500), 2),
        (Duration::from_secs(10), 10_000),
        (Duration::MAX, i64::MAX),
    ] {
        assert_eq!(Call::new(close(), timeout).timeout, Some(expected));
    }
}

#[test]
fn a_call_goes_to_the_service_that_has_its_method() {
    for (service, methods) in [
        (Service::Master, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 21, 22][..]),
        (Service::BrokerRead, &[15, 16, 17, 18]),
        (Service::BrokerWrite, &[13]),
    ] {
        for method in methods {
            assert_eq!(Method::from_number(*method).unwrap().service(), service, "{method}");
        }
    }
    for reserved in [i32::MIN, -1, 0, 10, 11, 12, 14, 19, 23, i32::MAX] {
        assert_eq!(Method::from_number(reserved), None);
    }
}

#[test]
fn an_answer_that_the_method_ran_is_not_yet_a_success() {
    let flagged = |success, err_code| {
        let response = pb::CloseResponseM2p { success, err_code, err_msg: "words".into() };
        Response::ProducerClose(response).outcome()
    };
    flagged(true, 200).unwrap();
    // 201 with success: no news, and no failure.
    flagged(true, 201).unwrap();
    let error = flagged(false, 411).unwrap_err();
    assert_eq!((error.kind(), error.peer_text()), (ErrorKind::ConsumerNotFound, Some("words")));
    // Responses of client balance have no flag.
    let coded = |err_code| {
        let response = pb::GetPartMetaResponseM2c { err_code, err_msg: "words".into(), ..Default::default() };
        Response::PartitionMetadata(response).outcome()
    };
    coded(200).unwrap();
    assert_eq!(coded(431).unwrap_err().kind(), ErrorKind::TopicNotFound);
    assert_eq!(coded(0).unwrap_err().kind(), ErrorKind::Unknown);
}

#[test]
fn each_code_has_its_number_its_name_and_its_words() {
    for code in Code::ALL {
        assert_eq!(Code::from_number(*code as i32), Some(*code));
        let error = server_error(*code as i32, "why");
        assert_eq!((error.kind(), error.peer_text()), (code.kind(), Some("why")));
        assert!(error.to_string().contains(code.name()), "{error}");
    }
    let newer = server_error(777, "why");
    assert_eq!(newer.kind(), ErrorKind::Unknown);
    assert!(newer.to_string().contains("777"), "{newer}");
}

#[test]
fn an_exception_is_known_by_the_end_of_its_name() {
    for package in ["com.tencent.tubemq.", "com.apache.tubemq.", "org.apache.inlong.tubemq.", ""] {
        for (fatal, class, kind) in [
            (false, "corebase.cluster.StandbyException", ErrorKind::ServiceNotReady),
            (false, "java.lang.NullPointerException", ErrorKind::Unknown),
            (true, "corerpc.exception.UnknownProtocolException", ErrorKind::Protocol),
        ] {
            let exception = Exception {
                fatal,
                version: (!fatal).then_some(3),
                name: format!("{package}{class}"),
                text: Some("127.0.0.1:8715 is not master now".into()),
            };
            let mut out = Transmit::default();
            Reply::Exception(exception.clone()).encode(7, &mut out).unwrap();
            let frame = Decoder::new(MAX_PAYLOAD).next(&mut out.take()).unwrap().unwrap();
            assert_eq!(Reply::decode(&frame.payload).unwrap(), Reply::Exception(exception.clone()));
            let error = Error::from(&exception);
            assert_eq!((error.kind(), error.peer_text()), (kind, exception.text.as_deref()));
            assert_eq!(exception.is_standby(), kind == ErrorKind::ServiceNotReady);
        }
    }
}

#[test]
fn an_envelope_that_is_incomplete_is_refused_by_the_name_of_its_part() {
    let refused = |result: Result<()>, word: &str| {
        let error = result.expect_err(word);
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert!(error.to_string().contains(word), "{error}");
    };
    let call = |parts: &[&[u8]]| Call::decode(&payload(parts)).map(drop);
    let reply = |parts: &[&[u8]]| Reply::decode(&payload(parts)).map(drop);
    refused(call(&[]), "RpcConnHeader");
    refused(call(&[FROM_CLIENT]), "RequestHeader");
    refused(call(&[FROM_CLIENT, b"", &[0x08]]), "RequestBody");
    refused(call(&[FROM_CLIENT, b"", &[0x08, 0x13]]), "19");
    // The request's first field is a string, here a number. A missing field reads as empty, for the
    // method to reject.
    refused(call(&[FROM_CLIENT, b"", &[0x08, 0x0d, 0x1a, 2, 0x08, 1]]), "SendMessage");
    call(&[FROM_CLIENT, b"", &[0x08, 0x0d]]).unwrap();
    refused(call(&[FROM_SERVER, b"", &[0x08, 0x03]]), "instead of a request");
    refused(reply(&[FROM_CLIENT]), "instead of a response");
    refused(reply(&[FROM_SERVER]), "ResponseHeader");
    refused(reply(&[FROM_SERVER, &[0x08, 3]]), "status 3");
    refused(reply(&[FROM_SERVER, &[0x08, 0]]), "RspResponseBody");
    refused(reply(&[FROM_SERVER, &[0x08, 1]]), "RspExceptionBody");
    refused(reply(&[FROM_SERVER, &[0x08, 0], &[0x08, 0x0b, 0x12, 0]]), "11");
    // An inflated length must not cause waiting or allocation.
    let lies = Bytes::from_static(&[0x02, 0x08, 0x00, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    refused(Call::decode(&lies).map(drop), "RequestHeader");
}

#[test]
fn a_message_that_nests_in_itself_without_end_is_refused() {
    // Each group opens another one.
    let nested = vec![0x0b; 100_000];
    assert!(Call::decode(&payload(&[&nested])).is_err());
    assert!(Call::decode(&payload(&[FROM_CLIENT, &nested])).is_err());
    assert!(Response::decode(Method::GetMessages, nested.into()).is_err());
}

#[test]
fn a_call_that_is_too_large_for_a_frame_is_not_written() {
    let data = Bytes::from(vec![0; MAX_PAYLOAD]);
    let send = pb::SendMessageRequestP2b { data, ..Default::default() };
    let call = Call::new(Request::SendMessage(Box::new(send)), Duration::from_secs(1));
    let mut out = Transmit::default();
    assert_eq!(call.encode(7, &mut out).unwrap_err().kind(), ErrorKind::MessageTooLarge);
    assert!(out.is_empty(), "nothing was written");
}

fn send() -> impl Strategy<Value = pb::SendMessageRequestP2b> {
    let ids = ("[a-z]{0,20}", "[a-z]{0,20}", any::<i32>(), any::<i32>(), any::<i32>());
    let data = proptest::collection::vec(any::<u8>(), 0..20_000);
    (ids, data, proptest::option::of("[a-z]{0,9}"), proptest::option::of(any::<i64>())).prop_map(
        |((client_id, topic_name, partition_id, check_sum, sent_addr), data, msg_type, token)| {
            pb::SendMessageRequestP2b {
                client_id,
                topic_name,
                partition_id,
                data: data.into(),
                flag: 1,
                check_sum,
                sent_addr,
                msg_type,
                msg_time: None,
                auth_info: token.map(|visit_authorized_token| pb::AuthorizedInfo {
                    visit_authorized_token,
                    auth_authorized_token: None,
                }),
            }
        },
    )
}

proptest! {
    #[test]
    fn an_envelope_is_what_the_generated_code_writes(
        send in send(), serial: u32, timeout in proptest::option::of(any::<i64>()),
        service in proptest::option::of(any::<i32>()), version in proptest::option::of(any::<i32>()),
    ) {
        let mut expected = BytesMut::new();
        let connection = pb::RpcConnHeader { flag: 0, trace_id: None, span_id: None, parent_id: None };
        connection.encode_length_delimited(&mut expected).unwrap();
        let header = pb::RequestHeader { service_type: service, protocol_ver: version };
        header.encode_length_delimited(&mut expected).unwrap();
        let request = Some(send.encode_to_vec().into());
        let body = pb::RequestBody { method: 13, timeout, request };
        body.encode_length_delimited(&mut expected).unwrap();
        let call = Call { service, version, timeout, request: Request::SendMessage(Box::new(send)) };
        let frame = Decoder::new(MAX_PAYLOAD).next(&mut encode(&call, serial)).unwrap().unwrap();
        prop_assert_eq!(frame.serial, serial);
        prop_assert_eq!(Call::decode(&frame.payload).unwrap(), call);
        prop_assert_eq!(frame.payload, expected.freeze());
    }

    #[test]
    fn a_send_is_what_the_generated_code_writes(
        client_id in "[a-z]{0,20}", topic in "[a-z]{0,20}", partition: u32, address: i32, flag: i32,
        data in proptest::collection::vec(any::<u8>(), 0..20_000),
        message_type in proptest::option::of("[a-z]{0,9}"), time in proptest::option::of("[0-9]{12}"),
        visit_authorized_token: i64, auth_authorized_token in proptest::option::of("[a-z]{0,9}"),
    ) {
        let visit = pb::AuthorizedInfo { visit_authorized_token, auth_authorized_token };
        let message = Packed { data: data.into(), flag, message_type, time };
        let send = Send { client_id: &client_id, topic: &topic, partition, message: &message, address, visit: &visit };
        let mut out = BytesMut::new();
        send.encode(&mut out);
        prop_assert_eq!(out.len(), send.encoded_len());
        let expected = pb::SendMessageRequestP2b {
            client_id: client_id.clone(),
            topic_name: topic.clone(),
            partition_id: partition as i32,
            data: message.data.clone(),
            flag,
            check_sum: -1,
            sent_addr: address,
            msg_type: message.message_type.clone(),
            msg_time: message.time.clone(),
            auth_info: Some(visit.clone()),
        };
        prop_assert_eq!(out, expected.encode_to_vec());
    }

    #[test]
    fn an_answer_is_what_the_generated_code_writes(
        data in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9000), 0..4),
        serial: u32, version in proptest::option::of(any::<i32>()), err_code: i32, success: bool,
    ) {
        let messages = data.into_iter().map(|data| pb::TransferedMessage {
            message_id: i64::MIN, check_sum: -1, pay_load_data: data.into(), flag: 0,
        }).collect();
        let response = pb::GetMessageResponseB2c { success, err_code, messages, ..Default::default() };
        let mut expected = BytesMut::new();
        let connection = pb::RpcConnHeader { flag: 1, trace_id: None, span_id: None, parent_id: None };
        connection.encode_length_delimited(&mut expected).unwrap();
        let header = pb::ResponseHeader { status: 0, service_type: None, protocol_ver: version };
        header.encode_length_delimited(&mut expected).unwrap();
        let body = pb::RspResponseBody { method: 17, data: response.encode_to_vec().into() };
        body.encode_length_delimited(&mut expected).unwrap();
        let reply = Reply::Response { version, response: Response::GetMessages(response) };
        let mut out = Transmit::default();
        reply.encode(serial, &mut out).unwrap();
        let frame = Decoder::new(MAX_PAYLOAD).next(&mut out.take()).unwrap().unwrap();
        prop_assert_eq!(frame.serial, serial);
        prop_assert_eq!(Reply::decode(&frame.payload).unwrap(), reply);
        prop_assert_eq!(frame.payload, expected.freeze());
    }

    #[test]
    fn frames_in_blocks_of_any_size_cut_anywhere_are_the_same_frames(
        frames in proptest::collection::vec(
            (any::<u32>(), proptest::collection::vec(0_usize..300, 1..6)), 1..6),
        pieces in proptest::collection::vec(1_usize..200, 1..40),
    ) {
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        for (serial, blocks) in frames {
            bytes.extend_from_slice(&words(&[TOKEN, serial, blocks.len() as u32]));
            let mut payload = Vec::new();
            for length in blocks {
                bytes.extend_from_slice(&words(&[length as u32]));
                let block: Vec<u8> = (0..length).map(|i| (i + payload.len()) as u8).collect();
                bytes.extend_from_slice(&block);
                payload.extend_from_slice(&block);
            }
            expected.push(Frame { serial, payload: payload.into() });
        }
        let (mut decoder, mut input, mut come) = (Decoder::new(MAX_PAYLOAD), BytesMut::new(), Vec::new());
        let (mut rest, mut sizes) = (&bytes[..], pieces.into_iter().cycle());
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(sizes.next().unwrap().min(rest.len()));
            rest = more;
            input.extend_from_slice(piece);
            while let Some(frame) = decoder.next(&mut input).unwrap() {
                come.push(frame);
            }
        }
        prop_assert_eq!(come, expected);
        prop_assert!(input.is_empty());
    }
}
