//! Frames recorded between the Java client 1.13.0 and a TubeMQ master and broker 2.4.0, and between
//! that broker and that master. `golden/tubemq/index.json` holds an independent reader's view of
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use forebay_base::error::ErrorKind;
use forebay_base::transmit::Transmit;
use forebay_tubemq::frame::{Decoder, MAX_PAYLOAD};
use forebay_tubemq::message::{Outgoing, checksum, pack, unpack};
use forebay_tubemq::topic::{
    Broker, Condition, ConsumerTopic, HeldInfo, ProducerTopic, SubscribeInfo, TopicShare, check_group,
    check_topic,
};
use forebay_tubemq::{Call, Frame, Method, Partition, Reply, Request, Response, pb};
use prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage, Value as Field};
use serde_json::Value;

struct Recorded {
    connection: String,
    from_client: bool,
    bytes: Bytes,
    /// Offset, length and entry of the index, in order.
    frames: Vec<(usize, usize, Value)>,
}

static RECORDED: LazyLock<Vec<Recorded>> = LazyLock::new(|| {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/tubemq");
    let index: Value = serde_json::from_slice(&std::fs::read(folder.join("index.json")).unwrap()).unwrap();
    let mut all = Vec::new();
    for connection in index["connections"].as_array().unwrap() {
        for direction in ["c2s", "s2c"] {
            let mut frames: Vec<_> = connection["frames"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|frame| frame["dir"] == direction)
                .map(|frame| {
                    let number = |name: &str| frame[name].as_u64().unwrap() as usize;
                    (number("offset"), number("length"), frame.clone())
                })
                .collect();
            frames.sort_by_key(|(offset, ..)| *offset);
            let file = connection["files"][direction].as_str().unwrap();
            all.push(Recorded {
                connection: file.to_owned(),
                from_client: direction == "c2s",
                bytes: unhex(&std::fs::read_to_string(folder.join(file)).unwrap()),
                frames,
            });
        }
    }
    all
});

/// The descriptors of our own `proto/tubemq.proto`, to compare field by field with the index.
static DESCRIPTORS: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let files = protox::compile([folder.join("tubemq.proto")], [folder]).unwrap();
    DescriptorPool::from_file_descriptor_set(files).unwrap()
});

fn unhex(text: &str) -> Bytes {
    let digits: Vec<u8> =
        text.bytes().filter_map(|byte| (byte as char).to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect::<Vec<u8>>().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The frames of a stream that arrives in pieces.
fn frames_of(pieces: &[&[u8]]) -> Vec<Frame> {
    let (mut input, mut frames, mut decoder) = (BytesMut::new(), Vec::new(), Decoder::new(MAX_PAYLOAD));
    for piece in pieces {
        input.extend_from_slice(piece);
        while let Some(frame) = decoder.next(&mut input).unwrap() {
            frames.push(frame);
        }
    }
    assert!(input.is_empty(), "bytes are left over");
    frames
}

fn each_frame(mut visit: impl FnMut(&str, &Recorded, &Bytes, Frame, &Value)) {
    for recorded in RECORDED.iter() {
        for (offset, length, seen) in &recorded.frames {
            let bytes = recorded.bytes.slice(*offset..offset + length);
            let at = format!("{} at {offset}", recorded.connection);
            let [frame] = frames_of(&[&bytes]).try_into().unwrap_or_else(|_| panic!("{at}: not one frame"));
            visit(&at, recorded, &bytes, frame, seen);
        }
    }
}

/// The contents of the frame, and the same encoded again with its serial number.
#[derive(Debug, PartialEq)]
enum Said {
    Call(Call),
    Reply(Reply),
}

impl Said {
    fn decode(from_client: bool, payload: &Bytes) -> forebay_base::error::Result<Self> {
        Ok(if from_client {
            Self::Call(Call::decode(payload)?)
        } else {
            Self::Reply(Reply::decode(payload)?)
        })
    }

    fn encode(&self, serial: u32) -> Bytes {
        let mut out = Transmit::default();
        match self {
            Self::Call(call) => call.encode(serial, &mut out),
            Self::Reply(reply) => reply.encode(serial, &mut out),
        }
        .unwrap();
        out.take().freeze()
    }

    fn method(&self) -> Method {
        match self {
            Self::Call(call) => call.request.method(),
            Self::Reply(Reply::Response { response, .. }) => response.method(),
            Self::Reply(Reply::Exception(exception)) => panic!("no exception was recorded: {exception:?}"),
        }
    }
}

#[test]
fn the_recording_is_whole() {
    assert_eq!(RECORDED.len(), 2 * 12, "directions");
    assert_eq!(RECORDED.iter().map(|recorded| recorded.frames.len()).sum::<usize>(), 1286, "frames");
    for recorded in RECORDED.iter() {
        assert_eq!(
            recorded.frames.iter().map(|(_, length, _)| length).sum::<usize>(),
            recorded.bytes.len(),
            "{}: every byte belongs to a frame",
            recorded.connection
        );
    }
}

#[test]
fn every_method_is_called_and_answered() {
    let mut methods = [BTreeSet::new(), BTreeSet::new()];
    each_frame(|at, recorded, _, frame, seen| {
        let said = Said::decode(recorded.from_client, &frame.payload).unwrap_or_else(|e| panic!("{at}: {e}"));
        assert_eq!(u64::from(frame.serial), seen["serial"].as_u64().unwrap(), "{at}");
        assert_eq!(said.method() as u64, seen["method"].as_u64().unwrap(), "{at}");
        methods[usize::from(recorded.from_client)].insert(said.method() as i32);
        if let Said::Call(call) = said {
            assert_eq!(call.service, Some(call.request.method().service() as i32), "{at}");
            assert!(call.timeout.is_some_and(|timeout| timeout > 0), "{at}");
        }
    });
    let all: BTreeSet<_> = Method::ALL.iter().map(|method| *method as i32).collect();
    assert_eq!(methods, [all.clone(), all]);
}

#[test]
fn every_frame_encodes_to_the_bytes_that_it_came_from() {
    let mut split = 0;
    each_frame(|at, recorded, bytes, frame, seen| {
        let said = Said::decode(recorded.from_client, &frame.payload).unwrap();
        assert_eq!(hex(&said.encode(frame.serial)), hex(bytes), "{at}: {said:?}");
        assert_eq!(frame.to_bytes().unwrap(), bytes, "{at}");
        if let Some(blocks) = seen["blocks"].as_array() {
            assert_eq!(bytes[8..12], (blocks.len() as u32).to_be_bytes(), "{at}");
            split += 1;
        }
    });
    assert_eq!(split, 4, "frames of more than one block");
}

/// Compares field by field with the independent reader. `path` names the place in a failure.
fn compare(path: &str, message: &DynamicMessage, seen: &Value) {
    let seen = seen.as_object().unwrap();
    let fields: BTreeSet<_> = message.fields().map(|(field, _)| field.json_name().to_owned()).collect();
    for name in &fields {
        // Proto2: a field that was not sent is not among `fields`.
        assert!(seen.contains_key(name), "{path}.{name} was not seen by the independent reader");
    }
    for (name, value) in seen {
        let field = message.descriptor().get_field_by_json_name(name);
        let field = field.unwrap_or_else(|| panic!("{path} has no field {name}"));
        compare_field(&format!("{path}.{name}"), &message.get_field(&field), value);
    }
}

fn compare_field(path: &str, field: &Field, seen: &Value) {
    match (field, seen) {
        (Field::Message(message), seen) => compare(path, message, seen),
        (Field::List(list), Value::Array(seen)) => {
            assert_eq!(list.len(), seen.len(), "{path}");
            for (number, (field, seen)) in list.iter().zip(seen).enumerate() {
                compare_field(&format!("{path}[{number}]"), field, seen);
            }
        }
        (Field::Bool(value), seen) => assert_eq!(Some(*value), seen.as_bool(), "{path}"),
        (Field::I32(value), seen) => assert_eq!(Some(i64::from(*value)), seen.as_i64(), "{path}"),
        (Field::I64(value), seen) => assert_eq!(Some(*value), seen.as_i64(), "{path}"),
        (Field::String(value), seen) => assert_eq!(Some(value.as_str()), seen.as_str(), "{path}"),
        (Field::Bytes(value), seen) => compare_bytes(path, &hex(value), seen.as_str().unwrap()),
        (field, seen) => panic!("{path}: {field:?} against {seen}"),
    }
}

/// The index has the beginning of long values, and their length: `0123... (20000 bytes)`.
fn compare_bytes(path: &str, value: &str, seen: &str) {
    let Some((start, rest)) = seen.split_once("... (") else {
        return assert_eq!(value, seen, "{path}");
    };
    assert!(!start.is_empty() && value.starts_with(start), "{path}");
    assert_eq!(format!("{} bytes)", value.len() / 2), rest, "{path}");
}

#[test]
fn every_field_is_what_an_independent_reader_saw() {
    let mut compared = 0;
    each_frame(|at, recorded, _, frame, seen| {
        let name = format!("tubemq.{}", seen["type"].as_str().unwrap());
        let descriptor = DESCRIPTORS.get_message_by_name(&name).unwrap_or_else(|| panic!("{at}: no {name}"));
        // The body of the envelope is its third part; the request or response is the body's last
        // field.
        let mut rest = frame.payload;
        let mut part = || {
            let length = prost::decode_length_delimiter(&mut rest).unwrap();
            rest.split_to(length)
        };
        let (_, _, body) = (part(), part(), part());
        let (body_name, field) =
            if recorded.from_client { ("RequestBody", "request") } else { ("RspResponseBody", "data") };
        let body_descriptor = DESCRIPTORS.get_message_by_name(&format!("tubemq.{body_name}")).unwrap();
        let body = DynamicMessage::decode(body_descriptor, body).unwrap();
        let inner = body.get_field_by_name(field).unwrap().as_bytes().unwrap().clone();
        let message = DynamicMessage::decode(descriptor, inner).unwrap();
        compare(&format!("{at}: {name}"), &message, &seen["message"]);
        compared += 1;
    });
    assert_eq!(compared, 1286);
}

#[test]
fn a_connection_cut_anywhere_gives_the_same_frames() {
    let mut cuts = 0;
    for recorded in RECORDED.iter() {
        // Whole streams are cut between and inside frames; the long ones after so many bytes that
        // the number of cuts stays in the ten thousands.
        let whole = &recorded.bytes[..recorded
            .frames
            .iter()
            .map(|(offset, length, _)| offset + length)
            .find(|end| *end > 6000)
            .unwrap_or(recorded.bytes.len())];
        let expected = frames_of(&[whole]);
        for cut in 0..=whole.len() {
            let (head, tail) = whole.split_at(cut);
            assert_eq!(frames_of(&[head, tail]), expected, "{}: cut at {cut}", recorded.connection);
            cuts += 1;
        }
        let expected = frames_of(&[&recorded.bytes]);
        assert_eq!(expected.len(), recorded.frames.len());
        let bytewise: Vec<&[u8]> = recorded.bytes.chunks(1).collect();
        assert_eq!(frames_of(&bytewise), expected, "{}: byte by byte", recorded.connection);
    }
    assert!(cuts > 40_000, "only {cuts} cuts");
}

#[test]
fn a_payload_in_blocks_of_any_size_is_the_same_payload() {
    let mut frames = 0;
    each_frame(|at, _, _, frame, _| {
        for size in [1, 2, 3, 7, 100, 8191, 8193, 100_000] {
            let blocks: Vec<&[u8]> = frame.payload.chunks(size).collect();
            if blocks.len() > 3584 {
                continue;
            }
            let mut bytes = BytesMut::new();
            bytes.extend_from_slice(&0xff7f_f4fe_u32.to_be_bytes());
            bytes.extend_from_slice(&frame.serial.to_be_bytes());
            bytes.extend_from_slice(&(blocks.len() as u32).to_be_bytes());
            for block in blocks {
                bytes.extend_from_slice(&(block.len() as u32).to_be_bytes());
                bytes.extend_from_slice(block);
            }
            assert_eq!(frames_of(&[&bytes]), std::slice::from_ref(&frame), "{at}: blocks of {size}");
            frames += 1;
        }
    });
    assert!(frames > 8000, "only {frames}");
}

#[test]
fn a_payload_that_ends_early_is_never_taken_for_the_whole() {
    each_frame(|at, recorded, _, frame, _| {
        // Every cut of the small ones, which are messages of all kinds; the ends of the large ones.
        let from = frame.payload.len().saturating_sub(600);
        for length in (0..40.min(from)).chain(from..frame.payload.len()) {
            let error = Said::decode(recorded.from_client, &frame.payload.slice(..length)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{at}: {length} bytes");
        }
    });
}

#[test]
fn a_byte_that_changes_never_makes_the_decoder_panic() {
    let (mut read, mut seen_kinds) = (0, BTreeSet::new());
    each_frame(|_, recorded, _, frame, seen| {
        // One frame of each kind: the others differ in their values only.
        if !seen_kinds.insert(seen["type"].as_str().unwrap().to_owned()) {
            return;
        }
        for at in 0..frame.payload.len().min(4000) {
            for value in [0x00, 0x01, 0x7f, 0x80, 0xff, frame.payload[at] ^ 0x20] {
                let mut payload = frame.payload.to_vec();
                payload[at] = value;
                if let Ok(said) = Said::decode(recorded.from_client, &payload.into()) {
                    // A decoded frame can be encoded, and decodes to the same again.
                    let [again] = frames_of(&[&said.encode(7)]).try_into().unwrap();
                    assert_eq!(Said::decode(recorded.from_client, &again.payload).unwrap(), said);
                    read += 1;
                }
            }
        }
    });
    assert!(read > 9_000, "only {read} of the changed frames can be read");
}

#[test]
fn a_side_that_speaks_out_of_turn_is_refused() {
    each_frame(|at, recorded, _, frame, _| {
        let error = Said::decode(!recorded.from_client, &frame.payload).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{at}: {error}");
    });
}

#[test]
fn what_follows_the_third_part_is_ignored() {
    each_frame(|at, recorded, _, frame, _| {
        let mut longer = frame.payload.to_vec();
        longer.extend_from_slice(&[0; 9]);
        assert_eq!(
            Said::decode(recorded.from_client, &longer.into()).unwrap(),
            Said::decode(recorded.from_client, &frame.payload).unwrap(),
            "{at}"
        );
    });
}

#[test]
fn the_answers_of_the_server_are_successes_or_errors_of_their_code() {
    let mut answers = BTreeMap::new();
    each_frame(|at, recorded, _, frame, _| {
        if recorded.from_client {
            return;
        }
        let Reply::Response { response, .. } = Reply::decode(&frame.payload).unwrap() else { panic!("{at}") };
        let (code, text) = response.code();
        let key = match response.outcome() {
            Ok(()) => (200, None),
            Err(error) => {
                assert_eq!(error.peer_text(), Some(text), "{at}");
                (code, Some((response.method() as i32, format!("{:?}", error.kind()))))
            }
        };
        *answers.entry(key).or_insert(0) += 1;
    });
    let failed = |method: Method, kind: ErrorKind| Some((method as i32, format!("{kind:?}")));
    let expected = BTreeMap::from([
        ((200, None), 265),
        ((404, failed(Method::GetMessages, ErrorKind::ServiceNotReady)), 377),
        ((431, failed(Method::ConsumerRegister, ErrorKind::TopicNotFound)), 1),
    ]);
    assert_eq!(answers, expected);
}

#[test]
fn every_message_that_was_given_out_unpacks_with_its_checksum() {
    let mut kinds = BTreeMap::new();
    each_frame(|at, recorded, _, frame, _| {
        if recorded.from_client {
            return;
        }
        let Reply::Response { response: Response::GetMessages(pack), .. } =
            Reply::decode(&frame.payload).unwrap()
        else {
            return;
        };
        for message in pack.messages {
            let data = message.pay_load_data.clone();
            let (payload, attributes) = unpack(message.clone()).unwrap_or_else(|e| panic!("{at}: {e}"));
            assert!(data.ends_with(&payload), "{at}");
            let properties: Vec<_> = attributes.properties().collect();
            // The sender's local time was UTC.
            let kind = match (message.flag, attributes.message_type(), attributes.time(), &properties[..]) {
                (0, None, None, []) => "plain",
                (1, None, None, [("k", "v")]) if payload == "with attributes" => "with attributes",
                (1, Some("typeA"), Some(1_795_228_200_000), [("k", "v")]) if payload == "with type" => {
                    "with type"
                }
                other => panic!("{at}: {other:?} {payload:?}"),
            };
            *kinds.entry(kind).or_insert(0) += 1;
            // A bit that changed on the broker's disk is detected.
            let broken = pb::TransferedMessage { check_sum: message.check_sum ^ 1, ..message };
            assert_eq!(unpack(broken).unwrap_err().kind(), ErrorKind::Checksum, "{at}");
        }
    });
    assert_eq!(kinds, BTreeMap::from([("plain", 6), ("with attributes", 3), ("with type", 4)]));
}

#[test]
fn every_message_that_was_sent_is_packed_to_the_same_bytes() {
    let mut flags = Vec::new();
    each_frame(|at, recorded, _, frame, _| {
        if !recorded.from_client {
            return;
        }
        let Request::SendMessage(sent) = Call::decode(&frame.payload).unwrap().request else { return };
        // A delivered message: the same data with a checksum.
        let given = pb::TransferedMessage {
            message_id: 1,
            check_sum: checksum(&sent.data),
            pay_load_data: sent.data.clone(),
            flag: sent.flag,
        };
        let (payload, attributes) = unpack(given).unwrap();
        let properties: Vec<_> = attributes.properties().collect();
        let packed = pack(&Outgoing {
            payload: &payload,
            key: None,
            message_type: sent.msg_type.as_deref(),
            time: attributes.time(),
            properties: &properties,
        })
        .unwrap();
        assert_eq!(hex(&packed.data), hex(&sent.data), "{at}");
        assert_eq!(
            (packed.flag, packed.message_type, packed.time),
            (sent.flag, sent.msg_type, sent.msg_time)
        );
        flags.push(packed.flag);
    });
    assert_eq!(flags, [0, 1, 1, 0]);
}

/// The texts in the messages, each with its field.
fn each_text(mut visit: impl FnMut(&str, &str)) {
    fn walk(path: &str, value: &Value, visit: &mut impl FnMut(&str, &str)) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    walk(name, value, visit);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(path, item, visit)),
            Value::String(text) => visit(path, text),
            _ => {}
        }
    }
    each_frame(|_, _, _, _, seen| walk("", &seen["message"], &mut visit));
}

#[test]
fn every_description_of_brokers_topics_and_partitions_reads_and_writes_back() {
    let mut read: BTreeMap<String, usize> = BTreeMap::new();
    // The contents of the recorded topic and their offsets.
    let share = TopicShare { broker: 1, stores: 2, partitions: 3 };
    let expected: Vec<Partition> = share.iter().collect();
    each_text(|field, text| {
        match field {
            "brokerInfos" | "brokerConfigList" => {
                let broker = Broker::parse(text, 8123).unwrap();
                assert_eq!((broker.id, broker.host.as_str(), broker.port), (1, "127.0.0.1", 8123));
                assert_eq!(broker.to_text(8123), text);
            }
            "topicInfos" => {
                let topic = ProducerTopic::parse(text).unwrap();
                assert_eq!(topic.partitions, expected);
                assert_eq!(ProducerTopic::to_text(&topic.name, &[share], topic.max_message_size), text);
            }
            "topicMetaInfoList" => {
                let topic = ConsumerTopic::parse(text).unwrap();
                assert!(topic.partitions.iter().map(|(partition, _)| partition).eq(&expected));
                assert!(topic.partitions.iter().all(|(_, status)| *status == 1));
                assert_eq!(ConsumerTopic::to_text(&topic.name, &[(share, 1)]), text);
            }
            "subscribeInfo" => {
                let info = SubscribeInfo::parse(text, 1).unwrap();
                assert!(expected.contains(&info.partition), "{text}");
                let (client, rest) = text.split_once('@').unwrap();
                let (group, _) = rest.split_once('#').unwrap();
                assert_eq!(info.to_text(client, group), text);
            }
            "partitionInfo" => {
                let info = SubscribeInfo::parse_location(text, 1).unwrap();
                assert!(expected.contains(&info.partition), "{text}");
                assert_eq!(info.to_string(), text);
            }
            "partSubInfo" => {
                let held = HeldInfo::parse(text).unwrap();
                assert_eq!(held.partitions.iter().collect::<BTreeSet<_>>(), expected.iter().collect());
                assert_eq!(held.to_string(), text);
            }
            "topicCondition" => assert_eq!(Condition::parse(text).unwrap().to_string(), text),
            "topicName" | "topicList" => check_topic(text).unwrap(),
            "groupName" => check_group(text).unwrap(),
            _ => return,
        }
        *read.entry(field.to_owned()).or_default() += 1;
    });
    let expected = [
        ("brokerConfigList", 1),
        ("brokerInfos", 1),
        ("groupName", 528),
        ("partSubInfo", 1),
        ("partitionInfo", 108),
        ("subscribeInfo", 54),
        ("topicCondition", 1),
        ("topicInfos", 4),
        ("topicList", 9),
        ("topicMetaInfoList", 1),
        ("topicName", 479),
    ];
    assert_eq!(read, expected.map(|(field, count)| (field.to_owned(), count)).into());
}

#[test]
fn the_frames_of_the_notes_are_written_byte_for_byte() {
    let close = Request::ProducerClose(pb::CloseRequestP2m { client_id: "c1".into(), auth_info: None });
    let send = Request::SendMessage(Box::new(pb::SendMessageRequestP2b {
        client_id: "c1".into(),
        topic_name: "demo".into(),
        data: Bytes::from_static(b"hi"),
        check_sum: -1,
        sent_addr: 0x7f00_0001,
        ..Default::default()
    }));
    let timeout = std::time::Duration::from_secs(10);
    for (serial, request, expected) in [
        (7, close, "ff7ff4fe0000000700000001000000140208000408011003 0b080310904e1a040a026331"),
        (
            8,
            send,
            "ff7ff4fe0000000800000001000000330208000408031003 \
             2a080d10904e1a230a026331120464656d6f180022026869280030ffffffffffffffffff0138818080f807",
        ),
    ] {
        let mut out = Transmit::default();
        Call::new(request, timeout).encode(serial, &mut out).unwrap();
        assert_eq!(hex(&out.take()), expected.replace(' ', ""));
    }
    let closed =
        Response::ProducerClose(pb::CloseResponseM2p { success: true, err_code: 200, err_msg: "OK!".into() });
    let mut out = Transmit::default();
    Reply::response(closed).encode(7, &mut out).unwrap();
    assert_eq!(hex(&out.take()[16..]), "02080104080018030e0803120a080110c8011a034f4b21");
}
