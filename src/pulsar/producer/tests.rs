use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::*;
use crate::command::Command;
use crate::frame::{Decoder, Frame};

const WALL: u64 = 1_700_000_000_000;

fn producer(options: Options) -> Producer {
    let mut producer = Producer::new(3, options);
    producer.attach("p", -1, 1000);
    producer
}

fn push(p: &mut Producer, payload: &[u8]) -> Result<u64> {
    let pushed = p.push(Instant::now(), WALL, &Outgoing { payload, ..Default::default() });
    pushed.map(|sequence_id| sequence_id.expect("it has been attached"))
}

fn bytes(p: &mut Producer) -> BytesMut {
    let mut out = Transmit::default();
    while p.poll_transmit(&mut out, usize::MAX) {}
    out.take()
}

fn frames(p: &mut Producer) -> Vec<Frame> {
    let mut bytes = bytes(p);
    let mut decoder = Decoder::new(1 << 20);
    std::iter::from_fn(|| decoder.next(&mut bytes).unwrap()).collect()
}

/// First sequence id and number of messages of each frame sent; also verifies the checksums.
fn sent(p: &mut Producer) -> Vec<(u64, i32)> {
    frames(p)
        .into_iter()
        .map(|frame| {
            let payload = frame.payload.unwrap();
            assert!(payload.checksum_ok());
            let Command::Send(send) = frame.command else { panic!("SEND") };
            let metadata = payload.metadata().unwrap();
            assert_eq!(metadata.sequence_id, send.sequence_id);
            (send.sequence_id, metadata.num_messages_in_batch.unwrap_or(0))
        })
        .collect()
}

fn receipt(p: &mut Producer, sequence_id: u64) -> Result<()> {
    let id = hot::IdData { ledger_id: 9, entry_id: sequence_id, ..Default::default() };
    let receipt =
        hot::SendReceipt { producer_id: 3, sequence_id, message_id: Some(id), highest_sequence_id: None };
    p.handle_receipt(&receipt)
}

fn outcomes(p: &mut Producer) -> Vec<(u32, bool)> {
    std::iter::from_fn(|| p.poll_event())
        .map(|event| match event {
            Event::Stored { count, .. } => (count, true),
            Event::Failed { count, .. } => (count, false),
        })
        .collect()
}

/// The SEND, its metadata as prost reads it, and its body, of each frame.
fn sends(p: &mut Producer) -> Vec<(hot::Send, pb::MessageMetadata, Bytes)> {
    frames(p)
        .into_iter()
        .map(|frame| {
            let Command::Send(send) = frame.command else { panic!("SEND") };
            let (metadata, body) = frame.payload.unwrap().split().unwrap();
            (send, prost::Message::decode(metadata).unwrap(), body)
        })
        .collect()
}

/// A message with everything that a message can have.
fn full(payload: &[u8]) -> Outgoing<'_> {
    Outgoing {
        payload,
        key: Some("a2V5"),
        key_is_base64: true,
        ordering_key: Some(b"order"),
        properties: &[("a", "1"), ("b", "2")],
        event_time: 77,
        deliver_at: Some(99),
        ..Default::default()
    }
}

/// Contents of a SEND for [`full`] in an entry of its own.
fn full_metadata(payload: &[u8], sequence_id: u64) -> pb::MessageMetadata {
    let property = |key: &str, value: &str| pb::KeyValue { key: key.into(), value: value.into() };
    pb::MessageMetadata {
        producer_name: "p".into(),
        sequence_id,
        publish_time: WALL,
        properties: vec![property("a", "1"), property("b", "2")],
        partition_key: Some("a2V5".into()),
        partition_key_b64_encoded: Some(true),
        ordering_key: Some(Bytes::from_static(b"order")),
        uncompressed_size: Some(payload.len() as u32),
        event_time: Some(77),
        deliver_at_time: Some(99),
        ..Default::default()
    }
}

#[test]
fn a_message_alone_says_all_that_the_application_said() {
    let mut p = producer(Options::default());
    let now = Instant::now();
    p.push(now, WALL, &full(b"hello")).unwrap();
    p.push(now, WALL, &Outgoing { null_value: true, deliver_at: Some(1), ..Default::default() }).unwrap();
    let [first, second] = sends(&mut p).try_into().unwrap();
    let send = |sequence_id| hot::Send { producer_id: 3, sequence_id, ..Default::default() };
    assert_eq!(first, (send(0), full_metadata(b"hello", 0), Bytes::from_static(b"hello")));
    let bare = pb::MessageMetadata {
        producer_name: "p".into(),
        sequence_id: 1,
        publish_time: WALL,
        uncompressed_size: Some(0),
        deliver_at_time: Some(1),
        null_value: Some(true),
        ..Default::default()
    };
    assert_eq!(second, (send(1), bare, Bytes::new()));
}

#[test]
fn each_chunk_says_all_that_the_application_said_and_its_place() {
    let mut p = producer(Options { chunking: true, ..Options::default() });
    let payload: Vec<u8> = (0..2000_u32).map(|i| i as u8).collect();
    p.push(Instant::now(), WALL, &full(&payload)).unwrap();
    let chunks = sends(&mut p);
    assert!(chunks.len() > 2);
    let bytes = Bytes::from(payload.clone());
    let mut joined = Vec::new();
    for (id, (send, metadata, body)) in chunks.iter().enumerate() {
        assert_eq!(*send, hot::Send { producer_id: 3, is_chunk: Some(true), ..Default::default() });
        let expected = pb::MessageMetadata {
            uuid: Some("p-0".into()),
            num_chunks_from_msg: Some(chunks.len() as i32),
            total_chunk_msg_size: Some(2000),
            chunk_id: Some(id as i32),
            ..full_metadata(&payload, 0)
        };
        assert_eq!(*metadata, expected);
        let size = prost::Message::encoded_len(metadata) + body.len();
        assert!(size <= 1000, "{size} bytes, more than the broker takes");
        assert!(
            id + 1 == chunks.len() || size > 500,
            "{size} bytes, less than half of what the broker takes"
        );
        joined.extend_from_slice(body);
    }
    assert_eq!(joined, bytes);
}

#[test]
fn a_batch_says_what_its_messages_share_and_the_broker_how_many_they_are() {
    let mut p = producer(Options { compression: Compression::Lz4, ..Options::default() });
    let message = Outgoing { deliver_at: None, ..full(&[7; 100]) };
    let now = Instant::now();
    for _ in 0..4 {
        p.push(now, WALL, &message).unwrap();
    }
    p.flush();
    let [(send, metadata, body)] = sends(&mut p).try_into().unwrap();
    let command = hot::Send {
        producer_id: 3,
        num_messages: Some(4),
        highest_sequence_id: Some(3),
        ..Default::default()
    };
    assert_eq!(send, command);
    let size = metadata.uncompressed_size.unwrap();
    let expected = pb::MessageMetadata {
        producer_name: "p".into(),
        publish_time: WALL,
        partition_key: Some("a2V5".into()),
        partition_key_b64_encoded: Some(true),
        ordering_key: Some(Bytes::from_static(b"order")),
        compression: Some(pb::CompressionType::Lz4 as i32),
        uncompressed_size: Some(size),
        num_messages_in_batch: Some(4),
        highest_sequence_id: Some(3),
        ..Default::default()
    };
    assert_eq!(metadata, expected);
    assert!((400..1000).contains(&size) && body.len() < 400);
    let plain =
        forebay_base::compression::decompress(Compression::Lz4, &body, size as usize, 1 << 20).unwrap();
    assert_eq!(plain.len(), size as usize);

    push(&mut p, b"x").unwrap();
    receipt(&mut p, 3).unwrap();
    let [(send, metadata, _)] = sends(&mut p).try_into().unwrap();
    assert_eq!(send, hot::Send { producer_id: 3, sequence_id: 4, ..Default::default() });
    assert_eq!((metadata.num_messages_in_batch, metadata.highest_sequence_id), (Some(1), None));
}

#[test]
fn a_message_as_large_as_the_broker_takes_is_sent_and_one_byte_more_is_not() {
    let of = |size: usize| {
        let mut p = producer(Options { batching: false, ..Options::default() });
        push(&mut p, &vec![0; size]).map(|_| sends(&mut p).remove(0).1)
    };
    let metadata = of(900).unwrap();
    let room = 1000 - prost::Message::encoded_len(&metadata);
    assert!(of(room).is_ok());
    assert_eq!(of(room + 1).unwrap_err().kind(), ErrorKind::MessageTooLarge);
}

#[test]
fn nothing_is_sent_while_there_is_no_connection_and_the_reason_is_known_until_there_is_one() {
    let mut p = producer(Options::default());
    push(&mut p, b"a").unwrap();
    assert_eq!(sent(&mut p), [(0, 1)]);
    p.detach();
    p.note_trouble(Error::new(ErrorKind::Disconnected, "refused"));
    push(&mut p, b"b").unwrap();
    assert_eq!((sent(&mut p), p.trouble().unwrap().message()), (vec![], "refused"));
    assert!(receipt(&mut p, 0).is_err(), "nothing is in flight");
    p.attach("p", -1, 1000);
    assert_eq!((sent(&mut p), p.trouble()), (vec![(0, 1), (1, 1)], None));
    p.detach();
    p.close(Error::new(ErrorKind::Closed, "closed"));
    p.detach();
    p.attach("p", -1, 1000);
    assert_eq!(push(&mut p, b"c").unwrap_err().message(), "closed", "it stays closed");
}

#[test]
fn a_batch_is_due_after_its_delay_and_not_before() {
    let mut p = producer(Options::default());
    let now = Instant::now();
    for payload in [b"a", b"b", b"c"] {
        p.push(now, WALL, &Outgoing { payload, ..Default::default() }).unwrap();
        sent(&mut p);
    }
    let delay = Options::default().batch_delay;
    p.push(now, WALL, &Outgoing { payload: b"d", ..Default::default() }).unwrap();
    assert_eq!(p.poll_timeout(), Some(now + delay));
    p.handle_timeout(now + delay / 2);
    assert_eq!(sent(&mut p), []);
    p.handle_timeout(now + delay);
    assert_eq!(sent(&mut p).len(), 1);
}

#[test]
fn one_at_a_time_goes_at_once_and_load_makes_batches() {
    let mut p = producer(Options::default());
    push(&mut p, b"a").unwrap();
    assert_eq!(sent(&mut p), [(0, 1)]);
    for _ in 0..5 {
        push(&mut p, b"b").unwrap();
    }
    assert_eq!(sent(&mut p), [(1, 5)], "more than half of what is in flight");
    push(&mut p, b"c").unwrap();
    push(&mut p, b"c").unwrap();
    assert_eq!(sent(&mut p), [], "two of six");
    receipt(&mut p, 0).unwrap();
    assert_eq!(sent(&mut p), [], "two of five");
    push(&mut p, b"c").unwrap();
    assert_eq!(sent(&mut p), [(6, 3)]);
    push(&mut p, b"d").unwrap();
    receipt(&mut p, 5).unwrap();
    assert_eq!(sent(&mut p), [], "one of three");
    receipt(&mut p, 8).unwrap();
    assert_eq!(sent(&mut p), [(9, 1)], "nothing is in flight");
    receipt(&mut p, 9).unwrap();
    assert_eq!(outcomes(&mut p), [(1, true), (5, true), (3, true), (1, true)]);
    assert!(p.is_idle());
}

#[test]
fn a_batch_closes_when_full_when_due_and_when_flushed() {
    let options = Options { batch_max_messages: 2, ..Options::default() };
    let mut p = producer(options);
    for _ in 0..6 {
        push(&mut p, b"x").unwrap();
    }
    assert_eq!(sent(&mut p), [(0, 2), (2, 2), (4, 2)]);
    push(&mut p, b"x").unwrap();
    let due = p.poll_timeout().unwrap();
    p.handle_timeout(due);
    assert_eq!(sent(&mut p), [(6, 1)]);
    push(&mut p, b"x").unwrap();
    p.flush();
    assert_eq!(sent(&mut p), [(7, 1)]);
    let mut p = producer(Options { batch_max_bytes: 200, ..Options::default() });
    for _ in 0..4 {
        push(&mut p, &[0; 100]).unwrap();
    }
    assert_eq!(sent(&mut p).len(), 4, "one in each: two would be too large");
    push(&mut p, b"x").unwrap();
    assert_eq!(sent(&mut p).len(), 0, "it waits because others are in flight");
}

#[test]
fn after_a_cut_the_same_bytes_go_again_before_anything_new() {
    let mut p =
        producer(Options { batch_max_messages: 2, compression: Compression::Zstd, ..Options::default() });
    for i in 0..6 {
        push(&mut p, &[i; 50]).unwrap();
    }
    let first = bytes(&mut p);
    p.detach();
    assert!(bytes(&mut p).is_empty());
    push(&mut p, b"new").unwrap();
    push(&mut p, b"new").unwrap();
    p.attach("p", -1, 1000);
    let again = bytes(&mut p);
    assert_eq!(again[..first.len()], first[..]);
    assert!(again.len() > first.len());
}

#[test]
fn a_receipt_ahead_of_the_head_closes_the_connection_and_one_behind_is_ignored() {
    let mut p = producer(Options { batch_max_messages: 2, ..Options::default() });
    assert!(receipt(&mut p, 77).is_ok(), "nothing is pending: late");
    for _ in 0..6 {
        push(&mut p, b"x").unwrap();
    }
    assert!(receipt(&mut p, 0).is_err(), "nothing was sent");
    sent(&mut p);
    assert_eq!(receipt(&mut p, 2).unwrap_err().kind(), ErrorKind::Protocol);
    receipt(&mut p, 1).unwrap();
    receipt(&mut p, 0).unwrap();
    receipt(&mut p, 2).unwrap();
    assert_eq!(outcomes(&mut p), [(2, true), (2, true)], "by its last id or its first");
}

#[test]
fn the_window_bounds_what_is_in_flight_and_parking_what_waits() {
    let mut p = producer(Options { max_pending: 4, batching: false, ..Options::default() });
    for _ in 0..4 {
        p.try_push(Instant::now(), WALL, &Outgoing::default()).unwrap();
    }
    assert_eq!(
        p.try_push(Instant::now(), WALL, &Outgoing::default()).unwrap_err().kind(),
        ErrorKind::QueueFull
    );
    for _ in 0..4 {
        push(&mut p, b"").unwrap();
    }
    assert_eq!(push(&mut p, b"").unwrap_err().kind(), ErrorKind::QueueFull);
    assert_eq!(sent(&mut p).len(), 4);
    receipt(&mut p, 0).unwrap();
    assert_eq!(sent(&mut p), [(4, 0)]);
}

#[test]
fn a_message_too_large_is_refused_and_leaves_no_gap() {
    for batching in [true, false] {
        let mut p = producer(Options { batching, ..Options::default() });
        assert_eq!(push(&mut p, &[0; 1001]).unwrap_err().kind(), ErrorKind::MessageTooLarge);
        assert_eq!(push(&mut p, b"x").unwrap(), 0);
        assert_eq!(p.pending_messages(), 1);
    }
    let mut p = producer(Options { compression: Compression::Lz4, ..Options::default() });
    push(&mut p, &[0; 50_000]).unwrap();
    assert_eq!(sent(&mut p).len(), 1, "small enough once compressed");
}

#[test]
fn nothing_is_stored_behind_a_refusal_if_that_is_wanted() {
    let mut p = producer(Options { stop_on_refusal: true, batch_max_messages: 2, ..Options::default() });
    let large = pb::CommandSendError {
        producer_id: 3,
        sequence_id: 2,
        error: pb::ServerError::NotAllowedError as i32,
        message: "too large for the policy of the topic".into(),
    };
    for number in 0..7 {
        assert_eq!(push(&mut p, b"x").unwrap(), number);
    }
    assert_eq!(sent(&mut p), [(0, 2)], "an entry at a time");
    receipt(&mut p, 0).unwrap();
    assert_eq!(sent(&mut p), [(2, 2)]);
    // It is sent again, and still alone.
    p.detach();
    p.attach("p", -1, 1000);
    assert_eq!(sent(&mut p), [(2, 2)]);
    p.handle_send_error(&large).unwrap();
    assert_eq!(sent(&mut p), []);
    let events: Vec<Event> = std::iter::from_fn(|| p.poll_event()).collect();
    let failed = |event: &Event| match event {
        Event::Failed { error, .. } => Some(error.kind()),
        Event::Stored { .. } => None,
    };
    let kinds: Vec<_> = events.iter().map(failed).collect();
    assert_eq!(kinds, [None, Some(ErrorKind::NotAllowed), Some(ErrorKind::Closed), Some(ErrorKind::Closed)]);
    assert_eq!(push(&mut p, b"x").unwrap_err().kind(), ErrorKind::Closed);
    p.detach();
    p.attach("p", -1, 1000);
    assert_eq!((p.pending_messages(), sent(&mut p)), (0, vec![]));
}

/// Pushes messages with sequence ids of their own.
fn push_numbered(p: &mut Producer, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let message = Outgoing { payload: b"x", sequence_id: Some(number), ..Default::default() };
        p.push(Instant::now(), WALL, &message).unwrap();
    }
}

#[test]
fn a_producer_whose_sequence_ids_are_used_up_fails_its_sends() {
    for last in [MAX_SEQUENCE_ID as i64, i64::MAX] {
        let mut p = Producer::new(3, Options::default());
        p.attach("till", last, 1000);
        let error = push(&mut p, b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAllowed);
        assert!(error.message().contains("\"till\" are used up"), "{error}");
    }
    let mut p = producer(Options::default());
    let mut own = |sequence_id| {
        let message = Outgoing { payload: b"x", sequence_id: Some(sequence_id), ..Default::default() };
        p.push(Instant::now(), WALL, &message)
    };
    for refused in [MAX_SEQUENCE_ID + 1, 1 << 63, u64::MAX] {
        assert_eq!(own(refused).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    assert_eq!(own(MAX_SEQUENCE_ID).unwrap(), Some(MAX_SEQUENCE_ID));
    assert_eq!(push(&mut p, b"x").unwrap_err().kind(), ErrorKind::NotAllowed, "that was the last one");
}

/// A producer whose predecessor of the same name has sent messages up to id 4.
fn successor() -> Producer {
    let mut p = Producer::new(3, Options { stop_on_refusal: true, ..Options::default() });
    p.attach("p", 4, 1000);
    p
}

#[test]
fn what_the_broker_has_of_a_predecessor_is_not_sent_but_for_the_last_message() {
    let mut p = successor();
    push_numbered(&mut p, 0..8);
    // They need no connection, and are in order before what is sent.
    let events: Vec<Event> = std::iter::from_fn(|| p.poll_event()).collect();
    let known = |event: &Event| matches!(event, Event::Stored { count: 1, ledger: u64::MAX, bytes: 1, .. });
    assert!(events.len() == 4 && events.iter().all(known), "{events:?}");
    p.flush();
    assert_eq!(sent(&mut p), [(4, 0)], "nothing is behind it before the broker has said that it is stored");
    p.handle_receipt(&hot::SendReceipt { producer_id: 3, sequence_id: 4, ..Default::default() }).unwrap();
    assert_eq!(sent(&mut p), [(5, 3)]);
    receipt(&mut p, 5).unwrap();
    assert_eq!(outcomes(&mut p), [(1, true), (3, true)]);
    // One that is pushed late is answered in its turn.
    push_numbered(&mut p, 8..9);
    push_numbered(&mut p, 2..3);
    assert_eq!(outcomes(&mut p), []);
    assert_eq!(sent(&mut p), [(8, 1)]);
    receipt(&mut p, 8).unwrap();
    assert_eq!((outcomes(&mut p), p.pending_messages()), (vec![(1, true), (1, true)], 0));
    // Without the option all are sent, for the broker to drop.
    let mut p = Producer::new(3, Options::default());
    p.attach("p", 4, 1000);
    push_numbered(&mut p, 0..3);
    assert_eq!(sent(&mut p), [(0, 0), (1, 0), (2, 0)]);
}

#[test]
fn nothing_is_sent_when_the_broker_has_not_stored_what_it_had_received() {
    let mut p = successor();
    push_numbered(&mut p, 4..7);
    p.flush();
    assert_eq!(sent(&mut p), [(4, 0)]);
    p.detach();
    p.attach("p", 1, 1000);
    assert_eq!(sent(&mut p), []);
    assert_eq!(outcomes(&mut p), [(1, false), (2, false)]);
    let message = Outgoing { payload: b"x", sequence_id: Some(7), ..Default::default() };
    let error = p.push(Instant::now(), WALL, &message).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Persistence);
    assert!(error.message().contains("not stored those behind 1"), "{error}");
    // The usual reconnection.
    let mut p = successor();
    push_numbered(&mut p, 4..6);
    assert_eq!(sent(&mut p), [(4, 0)]);
    p.detach();
    p.attach("p", 4, 1000);
    assert_eq!(sent(&mut p), [(4, 0)]);
}

#[test]
fn chunks_share_a_sequence_id_and_end_as_one_message() {
    let mut p = producer(Options { chunking: true, ..Options::default() });
    let large: Vec<u8> = (0..3000_u32).map(|i| (i * 7 % 251) as u8).collect();
    push(&mut p, &large).unwrap();
    push(&mut p, b"next").unwrap();
    p.flush();
    let frames = frames(&mut p);
    let mut joined = Vec::new();
    for frame in &frames[..frames.len() - 1] {
        let payload = frame.payload.as_ref().unwrap();
        assert!(payload.covered.len() <= 1000);
        let metadata = payload.metadata().unwrap();
        assert_eq!(
            (metadata.uuid(), metadata.total_chunk_msg_size(), metadata.sequence_id),
            ("p-0", 3000, 0)
        );
        joined.extend_from_slice(&payload.body().unwrap());
    }
    assert_eq!(joined, large);
    for _ in 0..frames.len() - 1 {
        receipt(&mut p, 0).unwrap();
    }
    receipt(&mut p, 1).unwrap();
    assert_eq!(outcomes(&mut p), [(1, true), (1, true)]);
}

#[test]
fn a_batch_whose_compressor_fails_fails_in_its_turn() {
    for is_first in [false, true] {
        let mut p = producer(Options::default());
        if !is_first {
            push(&mut p, b"before").unwrap();
            assert_eq!(sent(&mut p), [(0, 1)]);
        }
        push(&mut p, b"broken").unwrap();
        push(&mut p, b"broken").unwrap();
        // No input makes a compressor fail, so the test passes in the error itself.
        let open = p.open.take_only();
        let failed = Err(Error::new(ErrorKind::Compression, "no memory"));
        let entry = open.close_with(&p.sender(), 12, failed);
        p.window.push_back(entry);
        push(&mut p, b"behind").unwrap();
        p.flush();
        let behind = if is_first { 2 } else { 3 };
        assert_eq!(sent(&mut p), [(behind, 1)], "the broken one is not sent");
        if !is_first {
            assert_eq!(outcomes(&mut p), [], "the entry before it has no receipt yet");
            receipt(&mut p, 0).unwrap();
            assert_eq!(outcomes(&mut p), [(1, true), (2, false)]);
        } else {
            assert_eq!(outcomes(&mut p), [(2, false)]);
        }
        receipt(&mut p, behind).unwrap();
        assert_eq!(outcomes(&mut p), [(1, true)]);
        assert!(p.is_idle());
    }
}

#[test]
fn delayed_messages_are_never_batched_and_order_is_kept() {
    let mut p = producer(Options::default());
    push(&mut p, b"a").unwrap();
    let delayed = Outgoing { payload: b"b", deliver_at: Some(5), ..Default::default() };
    p.push(Instant::now(), WALL, &delayed).unwrap();
    push(&mut p, b"c").unwrap();
    p.flush();
    assert_eq!(sent(&mut p), [(0, 1), (1, 0), (2, 1)]);
}

#[test]
fn key_based_batches_hold_one_key() {
    let mut p = producer(Options { key_based: true, ..Options::default() });
    for key in ["a", "a", "b", "a"] {
        p.push(Instant::now(), WALL, &Outgoing { key: Some(key), ..Default::default() }).unwrap();
    }
    p.flush();
    let keys: Vec<_> =
        frames(&mut p).iter().map(|f| f.payload.as_ref().unwrap().metadata().unwrap()).collect();
    assert_eq!(
        keys.iter().map(|m| (m.partition_key(), m.num_messages_in_batch())).collect::<Vec<_>>(),
        [("b", 1), ("a", 3)],
        "in the order of their highest sequence ids"
    );
}

/// Sequence id, key, and the sequence ids of the messages of each frame sent.
fn entries(p: &mut Producer) -> Vec<(u64, String, Vec<u64>)> {
    let entry = |frame: Frame| {
        let Command::Send(send) = frame.command else { panic!("SEND") };
        let (metadata, mut body) = frame.payload.unwrap().split().unwrap();
        let metadata = hot::decode_metadata(&metadata).unwrap();
        assert_eq!((metadata.sequence_id, metadata.highest_sequence_id), (send.sequence_id, None));
        let mut messages = Vec::new();
        while !body.is_empty() {
            let length = u32::from_be_bytes(body.split_to(4)[..].try_into().unwrap()) as usize;
            let single = hot::decode_single(&body.split_to(length)).unwrap();
            assert_eq!(single.partition_key(), metadata.partition_key());
            let _payload = body.split_to(single.payload_size as usize);
            messages.push(single.sequence_id.unwrap());
        }
        (send.sequence_id, metadata.partition_key().to_owned(), messages)
    };
    frames(p).into_iter().map(entry).collect()
}

#[test]
fn a_thousand_messages_of_twenty_keys_are_twenty_entries_and_end_in_their_order() {
    let mut p = producer(Options { key_based: true, batch_max_bytes: 1 << 20, ..Options::default() });
    p.max_message_size = 1 << 20;
    let keys: Vec<String> = (0..20).map(|key| key.to_string()).collect();
    for i in 0..1000 {
        let message = Outgoing { payload: b"x", key: Some(&keys[i * 7 % 20]), ..Default::default() };
        p.push(Instant::now(), WALL, &message).unwrap();
    }
    let sent = entries(&mut p);
    assert_eq!(sent.len(), 20);
    assert!(sent.is_sorted_by_key(|(sequence_id, ..)| *sequence_id), "a broker drops ids that do not grow");
    assert!(
        sent.iter().all(|(highest, _, messages)| messages.len() == 50 && messages.last() == Some(highest))
    );
    let mut next = 0;
    for (done, (highest, ..)) in sent.iter().enumerate() {
        receipt(&mut p, *highest).unwrap();
        while let Some(event) = p.poll_event() {
            let Event::Stored { count, entry, batch: Some((first, size)), bytes, .. } = event else {
                panic!("{event:?}")
            };
            let (_, _, messages) = sent.iter().find(|(highest, ..)| *highest == entry).unwrap();
            assert_eq!((size, bytes), (50, count as usize));
            for index in first..first + count {
                assert_eq!(messages[index as usize], next);
                next += 1;
            }
        }
        assert_eq!(p.pending_messages(), 1000 - next as usize, "after {done} receipts");
    }
    assert_eq!(next, 1000);
    assert!(p.is_idle() && p.groups.is_empty());
}

#[test]
fn batches_of_keys_share_the_limits_of_a_batch() {
    let keyed = |key| Outgoing { payload: &[7; 100], key: Some(key), ..Default::default() };
    for options in [
        Options { key_based: true, batch_max_messages: 4, ..Options::default() },
        Options { key_based: true, batch_max_bytes: 560, ..Options::default() },
    ] {
        let mut p = producer(options);
        for key in ["a", "b", "a", "b", "c"] {
            p.push(Instant::now(), WALL, &keyed(key)).unwrap();
        }
        assert_eq!(p.open.count, 1, "four of 100 bytes and their keys were full");
        p.flush();
        let keys: Vec<_> = entries(&mut p).into_iter().map(|(id, key, _)| (id, key)).collect();
        assert_eq!(keys, [(2, "a".to_owned()), (3, "b".to_owned()), (4, "c".to_owned())]);
    }
}

#[test]
fn messages_of_keys_that_time_out_fail_in_their_order() {
    let mut p = producer(Options { key_based: true, ..Options::default() });
    let now = Instant::now();
    for key in ["a", "b", "a", "c"] {
        p.push(now, WALL, &Outgoing { key: Some(key), ..Default::default() }).unwrap();
    }
    p.flush();
    assert_eq!(entries(&mut p).len(), 3);
    receipt(&mut p, 1).unwrap();
    assert_eq!(outcomes(&mut p), [], "the first message is in another entry");
    p.detach();
    p.handle_timeout(now + Duration::from_secs(31));
    assert_eq!(outcomes(&mut p), [(1, false), (1, true), (1, false), (1, false)]);
    assert!(p.is_idle());
}

#[test]
fn sequence_ids_go_on_after_the_brokers_last_and_one_that_does_not_grow_goes_alone() {
    let mut p = Producer::new(3, Options::default());
    p.attach("p", 41, 1000);
    assert_eq!((push(&mut p, b"x").unwrap(), p.last_sequence_id()), (42, 41));
    let again = Outgoing { sequence_id: Some(7), ..Default::default() };
    assert_eq!(p.push(Instant::now(), WALL, &again).unwrap(), Some(7));
    assert_eq!(push(&mut p, b"y").unwrap(), 43);
    p.flush();
    assert_eq!(sent(&mut p), [(42, 1), (7, 0), (43, 1)]);
}

#[test]
fn the_last_sequence_id_is_one_that_has_a_receipt() {
    let mut p = producer(Options::default());
    for _ in 0..50 {
        push(&mut p, b"x").unwrap();
    }
    assert_eq!(p.last_sequence_id(), -1, "nothing has a receipt");
    assert_eq!(sent(&mut p), [(0, 50)]);
    receipt(&mut p, 0).unwrap();
    assert_eq!(p.last_sequence_id(), 49);
}

#[test]
fn the_initial_sequence_id_counts_as_published() {
    for (initial, first) in [(-1, 0), (1000, 1001)] {
        let mut p = Producer::new(3, Options { initial_sequence_id: Some(initial), ..Options::default() });
        p.attach("p", 5, 1000);
        assert_eq!(p.last_sequence_id(), initial);
        assert_eq!(push(&mut p, b"x").unwrap(), first);
    }
}

#[test]
fn the_send_timeout_runs_while_detached_and_fails_in_order() {
    let now = Instant::now();
    let mut p = producer(Options { batching: false, ..Options::default() });
    push(&mut p, b"a").unwrap();
    p.detach();
    push(&mut p, b"b").unwrap();
    let due = p.poll_timeout().unwrap();
    assert!(due >= now + Duration::from_secs(30));
    p.handle_timeout(due + Duration::from_secs(1));
    assert_eq!(outcomes(&mut p), [(1, false), (1, false)]);
    assert_eq!(p.poll_timeout(), None);
}

#[test]
fn a_timeout_names_why_there_is_no_connection() {
    let mut p = producer(Options { batching: false, ..Options::default() });
    push(&mut p, b"a").unwrap();
    p.detach();
    p.note_trouble(Error::new(ErrorKind::QuotaExceeded, "the backlog is full"));
    let due = p.poll_timeout().unwrap();
    p.handle_timeout(due);
    let Some(Event::Failed { error, .. }) = p.poll_event() else { panic!() };
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.message().ends_with("there is no connection: the backlog is full"), "{error}");
    p.attach("p", -1, 1000);
    push(&mut p, b"b").unwrap();
    let due = p.poll_timeout().unwrap();
    p.handle_timeout(due);
    let Some(Event::Failed { error, .. }) = p.poll_event() else { panic!() };
    assert!(!error.message().contains("backlog"), "{error}");
}

#[test]
fn a_send_error_ends_its_entry_in_its_turn_or_asks_for_a_new_connection() {
    let mut p = producer(Options { batching: false, ..Options::default() });
    for _ in 0..3 {
        push(&mut p, b"x").unwrap();
    }
    sent(&mut p);
    let error = |sequence_id, error: pb::ServerError| pb::CommandSendError {
        producer_id: 3,
        sequence_id,
        error: error as i32,
        message: "no".into(),
    };
    p.handle_send_error(&error(1, pb::ServerError::ChecksumError)).unwrap();
    assert_eq!(outcomes(&mut p), [], "the head comes first");
    receipt(&mut p, 0).unwrap();
    receipt(&mut p, 2).unwrap();
    assert_eq!(outcomes(&mut p), [(1, true), (1, false), (1, true)]);
    assert!(p.handle_send_error(&error(9, pb::ServerError::PersistenceError)).is_err());
}

#[test]
fn close_fails_everything_and_every_later_push() {
    let mut p = producer(Options::default());
    push(&mut p, b"a").unwrap();
    sent(&mut p);
    push(&mut p, b"b").unwrap();
    p.close(Error::new(ErrorKind::Closed, "closed"));
    assert_eq!(outcomes(&mut p), [(1, false), (1, false)]);
    assert_eq!(push(&mut p, b"c").unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_broker_with_a_smaller_limit_fails_what_no_longer_fits() {
    let mut p = Producer::new(3, Options { batching: false, ..Options::default() });
    p.attach("p", -1, 100_000);
    push(&mut p, b"small").unwrap();
    push(&mut p, &[0; 50_000]).unwrap();
    p.detach();
    p.attach("p", -1, 1000);
    assert_eq!(sent(&mut p), [(0, 0)]);
    receipt(&mut p, 0).unwrap();
    assert_eq!(outcomes(&mut p), [(1, true), (1, false)]);
}

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    Transmit(usize),
    Receipt,
    Cut,
    Flush,
    Later(u64),
}

proptest! {
    #[test]
    fn every_push_ends_once_and_in_order(key_based: bool, steps in proptest::collection::vec(prop_oneof![
        4 => (0_usize..400).prop_map(Step::Push), 3 => (1_usize..2000).prop_map(Step::Transmit),
        3 => Just(Step::Receipt), 1 => Just(Step::Cut), 1 => Just(Step::Flush), 1 => (0_u64..20_000).prop_map(Step::Later),
    ], 0..120)) {
        let mut now = Instant::now();
        let mut p = Producer::new(3, Options { max_pending: 8, batch_max_messages: 3, chunking: true, key_based, ..Options::default() });
        p.attach("p", -1, 700);
        let (mut pushed, mut ended) = (0_u32, 0_u32);
        // Entries that the broker has received and not yet acknowledged.
        let mut wire = BytesMut::new();
        let mut unanswered = VecDeque::new();
        for step in steps {
            match step {
                Step::Push(size) => {
                    let key = Some(["a", "b", "c"][size % 3]);
                    if p.push(now, WALL, &Outgoing { payload: &vec![1; size * 3], key, ..Default::default() }).is_ok() {
                        pushed += 1;
                    }
                }
                Step::Transmit(budget) => {
                    let mut out = Transmit::default();
                    p.poll_transmit(&mut out, budget);
                    wire.extend_from_slice(&out.take());
                    while let Some(frame) = Decoder::new(1 << 20).next(&mut wire).unwrap() {
                        let Command::Send(send) = frame.command else { unreachable!() };
                        unanswered.push_back(send.sequence_id);
                    }
                }
                Step::Receipt => if let Some(sequence_id) = unanswered.pop_front() {
                    let receipt = hot::SendReceipt { producer_id: 3, sequence_id, ..Default::default() };
                    p.handle_receipt(&receipt).unwrap();
                }
                Step::Cut => {
                    p.detach();
                    wire.clear();
                    unanswered.clear();
                    p.attach("p", -1, 700);
                }
                Step::Flush => p.flush(),
                Step::Later(ms) => {
                    now += Duration::from_millis(ms);
                    p.handle_timeout(now);
                }
            }
            while let Some(event) = p.poll_event() {
                ended += match event { Event::Stored { count, .. } | Event::Failed { count, .. } => count };
            }
            prop_assert_eq!(pushed - ended, p.pending_messages() as u32);
        }
        p.close(Error::new(ErrorKind::Closed, "end"));
        while let Some(event) = p.poll_event() {
            ended += match event { Event::Stored { count, .. } | Event::Failed { count, .. } => count };
        }
        prop_assert_eq!((pushed, p.pending_bytes()), (ended, 0));
    }
}

#[test]
fn what_is_pending_is_counted_in_messages_and_bytes() {
    let mut p = producer(Options::default());
    assert!(p.is_idle());
    push(&mut p, b"hello").unwrap();
    push(&mut p, b"you").unwrap();
    assert_eq!((p.pending_messages(), p.pending_bytes(), p.is_idle()), (2, 8, false));
    sent(&mut p);
    receipt(&mut p, 1).unwrap();
    assert_eq!((p.pending_messages(), p.pending_bytes(), p.is_idle()), (0, 0, true));
}

#[test]
fn no_more_is_written_at_once_than_the_budget_and_one_entry() {
    let mut p = producer(Options { batching: false, ..Options::default() });
    for _ in 0..3 {
        push(&mut p, &[7; 400]).unwrap();
    }
    let mut out = Transmit::default();
    assert!(p.poll_transmit(&mut out, 500), "there is more");
    assert!((800..1000).contains(&out.take().len()), "the second begins within the budget");
    assert!(!p.poll_transmit(&mut out, 500));
    assert!((400..500).contains(&out.take().len()));
}

#[test]
fn a_message_that_loses_a_chunk_loses_all_and_takes_no_other_with_it() {
    let mut p = producer(Options { chunking: true, compression: Compression::None, ..Options::default() });
    let now = Instant::now();
    p.push(now, WALL, &Outgoing { payload: &[1; 2000], ..Default::default() }).unwrap();
    let later = now + Duration::from_secs(10);
    p.push(later, WALL, &Outgoing { payload: &[2; 2000], ..Default::default() }).unwrap();
    p.handle_timeout(now + Duration::from_secs(30));
    assert_eq!(outcomes(&mut p), [(1, false)]);
    let chunks = sends(&mut p);
    assert!(chunks.len() > 2 && chunks.iter().all(|(send, ..)| send.sequence_id == 1));
    assert_eq!(chunks.iter().map(|(_, _, body)| body.len()).sum::<usize>(), 2000);
}

#[test]
fn a_message_alone_says_how_it_is_compressed() {
    let mut p = producer(Options { batching: false, compression: Compression::Zstd, ..Options::default() });
    push(&mut p, &[7; 900]).unwrap();
    let [(_, metadata, body)] = sends(&mut p).try_into().unwrap();
    assert_eq!(metadata.compression, Some(pb::CompressionType::Zstd as i32));
    assert_eq!(metadata.uncompressed_size, Some(900));
    let plain = forebay_base::compression::decompress(Compression::Zstd, &body, 900, 1 << 20).unwrap();
    assert_eq!(plain, vec![7; 900]);
}

#[test]
fn no_batch_is_larger_than_it_may_be_whatever_its_messages_carry() {
    let long = "x".repeat(600);
    let many = [("a", "b"); 60];
    let payload = &[1; 350][..];
    let base = Outgoing { payload, ..Default::default() };
    for large in [
        Outgoing { key: Some(&long), ..base },
        Outgoing { ordering_key: Some(long.as_bytes()), ..base },
        Outgoing { properties: &[("key", &long)], ..base },
        Outgoing { properties: &[(&long, "value")], ..base },
        Outgoing { properties: &many, ..base },
        Outgoing { payload: &[1; 945], ..Default::default() },
    ] {
        let mut p = producer(Options { compression: Compression::None, ..Options::default() });
        p.push(Instant::now(), WALL, &Outgoing { payload: &[2; 100], ..Default::default() }).unwrap();
        p.push(Instant::now(), WALL, &large).unwrap();
        let sizes: Vec<_> = sends(&mut p).into_iter().map(|(.., body)| body.len()).collect();
        assert!(sizes.iter().all(|size| *size <= 1000), "{sizes:?}");
    }
}

#[test]
fn small_messages_with_keys_and_properties_share_a_batch() {
    let word = "a word of 20 letters";
    let options = Options { batch_max_bytes: 400, compression: Compression::None, ..Options::default() };
    let mut p = producer(options);
    let message = Outgoing {
        payload: &[1; 10],
        key: Some(word),
        ordering_key: Some(word.as_bytes()),
        properties: &[(word, word)],
        ..Default::default()
    };
    for _ in 0..3 {
        p.push(Instant::now(), WALL, &message).unwrap();
    }
    assert_eq!(sent(&mut p), [(0, 3)]);
}

#[test]
fn messages_for_some_clusters_are_entries_of_their_own_and_keep_their_place() {
    let mut p = producer(Options::default());
    let now = Instant::now();
    push(&mut p, b"a").unwrap();
    let clusters = ["east".to_owned(), "west".to_owned()];
    let few = Outgoing { payload: b"b", replicate_to: &clusters, ..Default::default() };
    p.push(now, WALL, &few).unwrap();
    push(&mut p, b"c").unwrap();
    let local = [crate::LOCAL_CLUSTER.to_owned()];
    let none = Outgoing { payload: b"d", replicate_to: &local, ..Default::default() };
    p.push(now, WALL, &none).unwrap();
    let sends = sends(&mut p);
    let clusters: Vec<_> = sends.iter().map(|(_, metadata, _)| metadata.replicate_to.join(" ")).collect();
    assert_eq!(clusters, ["", "east west", "", "__local__"]);
    let batched = sends.iter().map(|(_, metadata, _)| metadata.num_messages_in_batch.is_some());
    assert_eq!(batched.collect::<Vec<_>>(), [true, false, true, false]);
}

#[test]
fn small_entries_are_not_compressed() {
    let options =
        || Options { compression: Compression::Lz4, compression_min_size: 100, ..Options::default() };
    let mut p = producer(options());
    let alone = |payload| Outgoing { payload, deliver_at: Some(1), ..Default::default() };
    p.push(Instant::now(), WALL, &alone(&[7; 99])).unwrap();
    p.push(Instant::now(), WALL, &alone(&[7; 100])).unwrap();
    let [small, large] = sends(&mut p).try_into().unwrap();
    assert_eq!((small.1.compression, small.2.len()), (None, 99));
    assert_eq!(large.1.compression, Some(Compression::Lz4 as i32));
    assert!(large.2.len() < 100);
    let mut p = producer(options());
    push(&mut p, b"small").unwrap();
    assert_eq!(sends(&mut p)[0].1.compression, None, "a batch as a whole");
    let mut p = producer(options());
    for _ in 0..20 {
        push(&mut p, b"small").unwrap();
    }
    let [batch] = sends(&mut p).try_into().unwrap();
    assert_eq!((batch.1.compression, batch.1.num_messages_in_batch), (Some(1), Some(20)));
}

#[test]
fn chunks_are_no_larger_than_they_may_be() {
    let options =
        Options { batching: false, chunking: true, chunk_max_size: Some(100), ..Options::default() };
    let mut p = producer(options);
    push(&mut p, &[7; 100]).unwrap();
    push(&mut p, &[7; 250]).unwrap();
    let sizes: Vec<_> = sends(&mut p).iter().map(|(send, _, body)| (send.is_chunk, body.len())).collect();
    assert_eq!(sizes, [(None, 100), (Some(true), 100), (Some(true), 100), (Some(true), 50)]);
}

#[test]
fn a_message_has_a_largest_number_of_chunks() {
    let chunked = |limit: usize, size: usize| {
        let options = Options { chunking: true, compression: Compression::None, ..Options::default() };
        let mut p = Producer::new(3, options);
        p.attach("p", -1, limit);
        push(&mut p, &vec![1; size]).map(|_| sends(&mut p))
    };
    let first = chunked(1000, 2000).unwrap().remove(0).2.len();
    let one_byte_each = 1000 - first + 1;
    assert_eq!(chunked(one_byte_each, crate::MAX_CHUNKS).unwrap().len(), crate::MAX_CHUNKS);
    let error = chunked(one_byte_each, crate::MAX_CHUNKS + 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MessageTooLarge);
}

#[test]
fn a_message_of_which_a_chunk_no_longer_fits_fails_as_a_whole() {
    let options = Options { chunking: true, compression: Compression::None, ..Options::default() };
    let mut p = Producer::new(3, options);
    p.attach("p", -1, 100_000);
    push(&mut p, &[1; 105_000]).unwrap();
    let sizes: Vec<_> = sends(&mut p).iter().map(|(.., body)| body.len()).collect();
    assert!(matches!(sizes[..], [large, small] if large > 90_000 && small < 10_000), "{sizes:?}");
    p.detach();
    p.attach("p", -1, 1000);
    assert_eq!((outcomes(&mut p), sent(&mut p)), (vec![(1, false)], vec![]));
    assert!(p.is_idle());
}

#[test]
fn a_batch_has_messages_of_one_version() {
    for key_based in [false, true] {
        let mut p = producer(Options { key_based, ..Options::default() });
        let (one, two) = (Bytes::from_static(b"1"), Bytes::from_static(b"2"));
        p.set_schema_version(one.clone());
        let mut push = |version| {
            let message =
                Outgoing { payload: b"x", key: Some("k"), schema_version: version, ..Outgoing::default() };
            p.push(Instant::now(), WALL, &message).unwrap();
        };
        for version in [None, Some(&one), Some(&two), Some(&two), None] {
            push(version);
        }
        let sent: Vec<_> = sends(&mut p)
            .into_iter()
            .map(|(_, metadata, _)| (metadata.schema_version, metadata.num_messages_in_batch))
            .collect();
        assert_eq!(sent, [(Some(one.clone()), Some(2)), (Some(two), Some(2)), (Some(one), Some(1))]);
    }
}

#[test]
fn entries_that_state_a_version_of_a_topic_that_was_made_again_fail_and_an_open_batch_states_the_new_one() {
    let (one, two) = (Bytes::from_static(b"1"), Bytes::from_static(b"2"));
    for batching in [false, true] {
        let mut p = producer(Options { batching, batch_delay: Duration::ZERO, ..Options::default() });
        p.set_schema_version(one.clone());
        push(&mut p, b"a").unwrap();
        assert_eq!(sends(&mut p).len(), 1);
        push(&mut p, b"b").unwrap();
        p.detach();
        p.set_schema_version(one.clone());
        assert_eq!(p.poll_event(), None, "the same version");
        p.set_schema_version(two.clone());
        p.attach("p", -1, 1000);
        push(&mut p, b"c").unwrap();
        p.flush();
        let sent: Vec<_> =
            sends(&mut p).into_iter().map(|(_, metadata, _)| metadata.schema_version).collect();
        assert_eq!(sent, [Some(two.clone())]);
        let failed: Vec<_> = std::iter::from_fn(|| p.poll_event()).collect();
        assert_eq!(failed.len(), if batching { 1 } else { 2 });
        assert!(failed.iter().all(|event| {
            matches!(event, Event::Failed { count: 1, error, .. } if error.kind() == ErrorKind::IncompatibleSchema)
        }));
    }
}

fn lazy(options: Options) -> Producer {
    Producer::new(3, Options { lazy: true, ..options })
}

#[test]
fn messages_before_the_first_connection_get_what_the_broker_tells_then() {
    let now = Instant::now();
    let mut p = lazy(Options { chunking: true, max_pending: 4, ..Default::default() });
    let payload = [7; 3000];
    for message in [full(b"batched"), Outgoing { payload: &payload, ..Default::default() }] {
        assert_eq!(p.push(now, WALL, &Outgoing { sequence_id: None, ..message }).unwrap(), None);
    }
    assert_eq!((p.pending_messages(), p.pending_bytes()), (2, 3007));
    p.handle_timeout(now + Duration::from_secs(1));
    assert_eq!((outcomes(&mut p), sends(&mut p).len()), (vec![], 0));
    // The name is known to the broker, and its limit on sizes is not the default.
    p.attach("the name", 99, 1000);
    let sends = sends(&mut p);
    assert!(sends.iter().all(|(_, metadata, _)| metadata.producer_name == "the name"));
    assert_eq!(sends[0].0.sequence_id, 100);
    let chunks: Vec<_> =
        sends[1..].iter().map(|(send, metadata, _)| (send.sequence_id, metadata.uuid())).collect();
    assert!(chunks.len() > 3 && chunks.iter().all(|chunk| *chunk == (101, "the name-101")), "{chunks:?}");
    // Nothing of the message was forgotten.
    let mut eager = Producer::new(3, Options { chunking: true, max_pending: 4, ..Default::default() });
    eager.attach("the name", 99, 1000);
    eager.push(now, WALL, &Outgoing { sequence_id: None, ..full(b"batched") }).unwrap();
    let expected = self::sends(&mut eager);
    assert_eq!((&sends[0].1, &sends[0].2), (&expected[0].1, &expected[0].2));
}

#[test]
fn messages_before_the_first_connection_end_in_their_order() {
    let now = Instant::now();
    let options =
        Options { send_timeout: Some(Duration::from_secs(5)), max_pending: 3, ..Default::default() };
    let mut p = lazy(options.clone());
    for payload in [&b"a"[..], &[1; 2000], b"c"] {
        p.try_push(now, WALL, &Outgoing { payload, ..Default::default() }).unwrap();
    }
    assert_eq!(p.try_push(now, WALL, &Outgoing::default()).unwrap_err().kind(), ErrorKind::QueueFull);
    p.attach("p", -1, 1000);
    assert_eq!(sent(&mut p), [(0, 1), (1, 1)]);
    receipt(&mut p, 0).unwrap();
    assert_eq!(outcomes(&mut p), [(1, true), (1, false)], "one is too large for the broker");
    receipt(&mut p, 1).unwrap();
    assert_eq!((outcomes(&mut p), p.is_idle()), (vec![(1, true)], true));

    let mut p = lazy(options.clone());
    push_early(&mut p, now);
    push_early(&mut p, now + Duration::from_secs(3));
    p.note_trouble(Error::new(ErrorKind::Authorization, "not allowed to produce"));
    assert_eq!(p.poll_timeout(), Some(now + Duration::from_secs(5)));
    p.handle_timeout(now + Duration::from_secs(5));
    let Some(Event::Failed { count: 1, error, bytes: 1 }) = p.poll_event() else { panic!("the first") };
    assert!(error.message().contains("was not sent") && error.message().contains("not allowed to produce"));
    p.close(Error::new(ErrorKind::Closed, "closed"));
    assert_eq!((outcomes(&mut p), p.is_idle()), (vec![(1, false)], true));
}

fn push_early(p: &mut Producer, now: Instant) {
    assert_eq!(p.push(now, WALL, &Outgoing { payload: b"x", ..Default::default() }).unwrap(), None);
}

#[test]
fn a_message_above_the_size_of_chunks_is_chunked_also_with_batching() {
    let mut p = producer(Options { chunking: true, chunk_max_size: Some(100), ..Default::default() });
    push(&mut p, &[1; 100]).unwrap();
    push(&mut p, &[1; 250]).unwrap();
    let chunks: Vec<_> =
        sends(&mut p).iter().map(|(_, metadata, _)| metadata.num_chunks_from_msg()).collect();
    assert_eq!(chunks, [0, 3, 3, 3]);
}
