use bytes::{Bytes, BytesMut};

use super::*;
use crate::frame::{DEFAULT_MAX_MESSAGE_SIZE, Decoder};
use crate::message::Outgoing;
use crate::pb::command_ack::ValidationError;
use crate::schema::Codec;
use forebay_base::compression::{Compression, compress};

mod given_up;
mod moved_back;
mod readers;

/// Time that an incomplete message waits.
const CHUNK_TIME: Duration = Duration::from_secs(60);
/// No entries.
const NONE: [u64; 0] = [];

fn consumer(options: Options) -> Consumer {
    let mut consumer = Consumer::new(7, Options { receiver_queue: 10, ..options });
    consumer.attach();
    consumer
}

fn payload(metadata: &pb::MessageMetadata, body: &[u8]) -> Payload {
    let mut bytes = BytesMut::new();
    hot::encode_metadata(metadata, &mut bytes);
    Payload::build(&bytes, body)
}

fn single(text: &str) -> Payload {
    payload(&pb::MessageMetadata::default(), text.as_bytes())
}

fn batch_body(size: u64) -> BytesMut {
    let mut body = BytesMut::new();
    for i in 0..size {
        hot::encode_batched(&Outgoing { payload: &[i as u8], ..Default::default() }, i, &mut body);
    }
    body
}

fn batch(size: i32) -> Payload {
    let metadata = pb::MessageMetadata { num_messages_in_batch: Some(size), ..Default::default() };
    payload(&metadata, &batch_body(size as u64))
}

fn delivery(entry: u64, ack_set: &[i64]) -> hot::Delivery {
    hot::Delivery {
        consumer_id: 7,
        message_id: hot::IdData { ledger_id: 1, entry_id: entry, ..Default::default() },
        ack_set: ack_set.to_vec(),
        ..Default::default()
    }
}

fn give(consumer: &mut Consumer, entry: u64, payload: Payload) -> Result<()> {
    consumer.handle_message(Instant::now(), delivery(entry, &[]), payload)
}

fn take(consumer: &mut Consumer) -> Vec<Message> {
    let mut out = Vec::new();
    consumer.take(usize::MAX, &mut out);
    out
}

/// Permits that are granted now.
fn granted(consumer: &mut Consumer) -> u32 {
    let flows = written(consumer).into_iter().filter_map(|command| match command {
        Command::Flow(flow) => Some(flow.permits),
        _ => None,
    });
    flows.sum()
}

fn written(consumer: &mut Consumer) -> Vec<Command> {
    let mut out = Transmit::default();
    consumer.poll_transmit(&mut out);
    let mut bytes = out.take();
    let mut decoder = Decoder::new(1 << 20);
    std::iter::from_fn(|| decoder.next(&mut bytes).unwrap()).map(|frame| frame.command).collect()
}

/// Entries that are requested again now; `None` if nothing is, empty if everything is.
fn again(c: &mut Consumer, now: Instant) -> Option<Vec<u64>> {
    c.handle_timeout(now);
    written(c).into_iter().find_map(|command| match command {
        Command::RedeliverUnacknowledgedMessages(asked) => {
            Some(asked.message_ids.iter().map(|id| id.entry_id).collect())
        }
        _ => None,
    })
}

/// Entries that are acknowledged now.
fn acked(c: &mut Consumer, now: Instant) -> Vec<u64> {
    c.handle_timeout(now);
    c.flush_acks();
    acks(c, now).into_iter().flat_map(|(_, entries)| entries).collect()
}

fn flow(permits: u32) -> Command {
    Command::Flow(hot::Flow { consumer_id: 7, permits })
}

#[test]
fn a_full_flow_once_and_refills_at_half() {
    let mut c = consumer(Options::default());
    assert_eq!(written(&mut c), [flow(10)]);
    for entry in 0..4 {
        give(&mut c, entry, single("x")).unwrap();
    }
    take(&mut c);
    assert_eq!(written(&mut c), []);
    give(&mut c, 4, single("x")).unwrap();
    take(&mut c);
    assert_eq!(written(&mut c), [flow(5)]);
    c.detach();
    c.attach();
    assert_eq!(written(&mut c), [flow(10)], "permits of the old connection have lapsed");
}

#[test]
fn a_batch_is_charged_less_what_is_acknowledged_and_nothing_is_refunded() {
    let mut c = consumer(Options::default());
    c.handle_message(Instant::now(), delivery(0, &[0b11_1110_0000]), batch(10)).unwrap();
    assert_eq!(c.outstanding_permits(), 5);
    let got = take(&mut c);
    assert_eq!(got.iter().map(|m| m.id.batch_index).collect::<Vec<_>>(), [5, 6, 7, 8, 9]);
    assert_eq!(written(&mut c), [flow(10), flow(5)]);
    assert_eq!(c.outstanding_permits(), 10);
}

#[test]
fn permits_may_fall_below_zero_by_a_batch_less_one() {
    let mut c = consumer(Options { receiver_queue: 1, ..Options::default() });
    c.options.receiver_queue = 1;
    c.permits = Permits { granted: 1, ..Default::default() };
    give(&mut c, 0, batch(10)).unwrap();
    assert_eq!(c.outstanding_permits(), -9);
    assert_eq!(take(&mut c).len(), 10);
}

#[test]
fn messages_share_the_entry_and_keep_their_order() {
    let mut c = consumer(Options { partition: 3, ..Options::default() });
    give(&mut c, 5, batch(3)).unwrap();
    let got = take(&mut c);
    assert_eq!(got.iter().map(|m| m.payload[0]).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(got[1].id, MessageId::new(1, 5).in_partition(3).in_batch(1, 3));
    assert!(Arc::ptr_eq(&got[0].entry, &got[2].entry));
}

#[test]
fn a_message_that_is_small_only_when_it_is_compressed_is_read() {
    let size = DEFAULT_MAX_MESSAGE_SIZE + 1;
    let metadata = |size: usize| pb::MessageMetadata {
        compression: Some(3),
        uncompressed_size: Some(size as u32),
        ..Default::default()
    };
    let body = compress(Compression::Zstd, &vec![0; size]).unwrap();
    let mut c = consumer(Options::default());
    give(&mut c, 0, payload(&metadata(size), &body)).unwrap();
    assert_eq!(take(&mut c)[0].payload.len(), size);
    let limits = ChunkLimits { bytes: size - 1, ..ChunkLimits::default() };
    let mut c = consumer(Options { chunked: limits, ..Options::default() });
    let error = give(&mut c, 0, payload(&metadata(size), &body)).unwrap_err();
    assert!(error.message().contains("the limit is 5242880"), "{error}");
}

#[test]
fn an_entry_that_cannot_be_read_is_discarded_with_its_reason_and_its_permit_returned() {
    let bad_crc = Payload { checksum: Some(1), ..single("x") };
    let bomb =
        pb::MessageMetadata { compression: Some(3), uncompressed_size: Some(u32::MAX), ..Default::default() };
    let garbage =
        pb::MessageMetadata { compression: Some(1), uncompressed_size: Some(100), ..Default::default() };
    let largest = pb::MessageMetadata {
        compression: Some(1),
        uncompressed_size: Some(DEFAULT_MAX_MESSAGE_SIZE as u32),
        ..Default::default()
    };
    let unknown =
        pb::MessageMetadata { compression: Some(9), uncompressed_size: Some(1), ..Default::default() };
    let short = pb::MessageMetadata { num_messages_in_batch: Some(3), ..Default::default() };
    let huge = pb::MessageMetadata { num_messages_in_batch: Some(i32::MAX), ..Default::default() };
    let negative = pb::MessageMetadata { num_messages_in_batch: Some(-1), ..Default::default() };
    for (broken, reason) in [
        (bad_crc, ValidationError::ChecksumMismatch),
        (encrypted(), ValidationError::DecryptionError),
        (payload(&bomb, b"x"), ValidationError::UncompressedSizeCorruption),
        (payload(&garbage, b"\xff\xff\xff"), ValidationError::DecompressionError),
        (payload(&largest, b"\xff\xff\xff"), ValidationError::DecompressionError),
        (payload(&unknown, b"x"), ValidationError::DecompressionError),
        (payload(&short, &batch_body(2)), ValidationError::BatchDeSerializeError),
        (payload(&huge, &batch_body(2)), ValidationError::BatchDeSerializeError),
        (payload(&negative, &batch_body(2)), ValidationError::BatchDeSerializeError),
        (
            Payload { entry: None, checksum: None, covered: Bytes::from_static(&[0, 0, 1]) },
            ValidationError::BatchDeSerializeError,
        ),
    ] {
        let mut c = consumer(Options { unreadable: Unreadable::Discard, ..Options::default() });
        assert!(give(&mut c, 3, broken).is_err(), "{reason:?}");
        assert_eq!(c.available(), 0);
        let acked = written(&mut c).into_iter().find_map(|command| match command {
            Command::Ack(ack) => Some(ack),
            _ => None,
        });
        let ack = acked.expect("an ack");
        assert_eq!((ack.validation_error, ack.message_ids[0].entry_id), (Some(reason as i32), 3));
        assert_eq!(ack.consumer_id, 7);
    }
}

fn encrypted() -> Payload {
    let key = pb::EncryptionKeys { key: "key".into(), value: b"x".to_vec().into(), ..Default::default() };
    payload(&pb::MessageMetadata { encryption_keys: vec![key], ..Default::default() }, b"secret")
}

#[test]
fn an_entry_that_cannot_be_read_is_not_swept_away_by_a_cumulative_ack() {
    let now = Instant::now();
    let damaged = Payload { checksum: Some(1), ..single("x") };
    for broken in [encrypted(), damaged] {
        let mut c = consumer(Options { ack_group_time: Duration::ZERO, ..Options::default() });
        give(&mut c, 0, single("before")).unwrap();
        assert!(give(&mut c, 1, broken).is_err());
        give(&mut c, 2, single("behind")).unwrap();
        assert_eq!(take(&mut c).len(), 2, "what follows is delivered");
        c.ack_cumulative(now, &MessageId::new(1, 2)).unwrap();
        assert_eq!(acks(&mut c, now), [(1, vec![0])], "acknowledged up to the entry before it");
        c.detach();
        c.attach();
        c.ack_cumulative(now, &MessageId::new(1, 2)).unwrap();
        assert!(acks(&mut c, now).iter().all(|(_, entries)| entries.iter().all(|entry| *entry < 1)));
    }
}

#[test]
fn an_entry_that_cannot_be_read_ends_the_consumer_where_the_policy_says_so() {
    let mut c = consumer(Options { unreadable: Unreadable::Fail, ..Options::default() });
    give(&mut c, 0, single("before")).unwrap();
    let error = give(&mut c, 1, encrypted()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    give(&mut c, 2, single("behind")).unwrap();
    assert_eq!(take(&mut c).len(), 1, "what follows is for the next consumer");
    assert!(!written(&mut c).iter().any(|command| matches!(command, Command::Ack(_))));
}

#[test]
fn what_was_acknowledged_does_not_come_again_after_a_cut() {
    let mut c = consumer(Options::default());
    give(&mut c, 0, batch(3)).unwrap();
    let got = take(&mut c);
    c.ack(Instant::now(), &got[1].id);
    c.detach();
    c.attach();
    give(&mut c, 0, batch(3)).unwrap();
    assert_eq!(take(&mut c).iter().map(|m| m.id.batch_index).collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn acks_are_gathered_for_a_time_or_a_number_and_survive_a_cut() {
    let now = Instant::now();
    let mut c = consumer(Options { ack_group_max: 3, ..Options::default() });
    written(&mut c);
    c.ack(now, &MessageId::new(1, 0));
    assert_eq!(c.poll_timeout(), Some(now + Duration::from_millis(100)));
    assert_eq!(written(&mut c), []);
    c.detach();
    assert_eq!(c.poll_timeout(), None);
    c.attach();
    assert!(
        matches!(&written(&mut c)[..], [Command::Ack(ack), Command::Flow(_)] if ack.message_ids.len() == 1),
        "ahead of what asks for messages"
    );
    for entry in 1..4 {
        c.ack(now, &MessageId::new(1, entry));
    }
    assert!(matches!(&written(&mut c)[..], [Command::Ack(ack)] if ack.message_ids.len() == 3));
    assert_eq!(c.poll_timeout(), None);
}

#[test]
fn what_is_due_is_over_once_it_was_handled() {
    let now = Instant::now();
    let mut c = consumer(Options { kind: SubType::Shared, ..Options::default() });
    c.ack(now, &MessageId::new(1, 0));
    let due = c.poll_timeout().unwrap();
    // The same entry: nothing is left that waits.
    c.receipt_ack(now, &[MessageId::new(1, 0)], false).unwrap().unwrap();
    c.handle_timeout(due);
    assert_eq!(c.poll_timeout(), None, "a driver would spin");

    c.nack(now, &MessageId::new(1, 2), 0, Some(Duration::ZERO));
    c.begin_seek();
    c.handle_timeout(now);
    assert_eq!(c.poll_timeout(), None, "a driver would spin until the seek is answered");
}

#[test]
fn a_nack_asks_for_the_entry_on_shared_and_for_all_on_exclusive() {
    let now = Instant::now();
    for (kind, listed) in
        [(SubType::Shared, 1), (SubType::KeyShared, 1), (SubType::Exclusive, 0), (SubType::Failover, 0)]
    {
        let mut c =
            consumer(Options { kind, nack_delay: Duration::from_secs(1).into(), ..Options::default() });
        written(&mut c);
        give(&mut c, 0, single("a")).unwrap();
        give(&mut c, 1, single("b")).unwrap();
        let mut out: Vec<Message> = Vec::new();
        c.take(1, &mut out);
        c.nack(now, &out[0].id, 0, None);
        c.handle_timeout(now + Duration::from_millis(999));
        assert_eq!(written(&mut c), []);
        c.handle_timeout(now + Duration::from_secs(1));
        let [Command::RedeliverUnacknowledgedMessages(ask)] = &written(&mut c)[..] else {
            panic!("{kind:?}")
        };
        assert_eq!(ask.message_ids.len(), listed, "{kind:?}");
        assert_eq!(c.available(), listed, "queued messages are redelivered too when all are requested");
    }
}

#[test]
fn cumulative_acks_are_refused_where_they_mean_nothing() {
    for kind in [SubType::Shared, SubType::KeyShared] {
        let mut c = consumer(Options { kind, ..Options::default() });
        let error = c.ack_cumulative(Instant::now(), &MessageId::new(1, 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAllowed);
    }
}

#[test]
fn a_seek_is_exclusive_of_its_id_unless_asked_otherwise() {
    for (inclusive, first) in [(false, 2), (true, 1)] {
        let mut c = consumer(Options::default());
        c.begin_seek();
        give(&mut c, 9, single("old")).unwrap();
        c.end_seek(Some(MessageId::new(1, 0).in_batch(1, 3)), inclusive);
        c.detach();
        c.attach();
        give(&mut c, 0, batch(3)).unwrap();
        assert_eq!(take(&mut c)[0].id.batch_index, first);
    }
    let mut c = consumer(Options::default());
    c.begin_seek();
    c.end_seek(Some(MessageId::new(1, 4)), false);
    c.detach();
    c.attach();
    give(&mut c, 4, batch(3)).unwrap();
    assert_eq!(c.available(), 0, "the id of a whole entry stands for all in it");
}

#[test]
fn what_a_seek_passed_over_does_not_stay_in_the_backlog() {
    for (durable, acked) in [(true, 1), (false, 0)] {
        let mut c = consumer(Options { durable, ..Options::default() });
        c.begin_seek();
        c.end_seek(Some(MessageId::new(1, 0)), false);
        c.detach();
        c.attach();
        give(&mut c, 0, batch(3)).unwrap();
        c.flush_acks();
        let acks = written(&mut c).into_iter().filter(|command| matches!(command, Command::Ack(_))).count();
        assert_eq!(acks, acked, "durable {durable}");
    }
}

#[test]
fn what_another_moves_back_before_a_seek_is_delivered_and_not_acknowledged() {
    let mut c = consumer(Options { kind: SubType::Shared, ..Options::default() });
    c.begin_seek();
    c.end_seek(Some(MessageId::new(1, 4)), false);
    c.detach();
    c.attach();
    give(&mut c, 5, single("behind")).unwrap();
    c.closed_by_broker();
    c.attach();
    for entry in 2..6 {
        give(&mut c, entry, single("again")).unwrap();
    }
    c.flush_acks();
    let is_ack = |command: &Command| matches!(command, Command::Ack(_));
    assert!(!written(&mut c).iter().any(is_ack), "nothing was handed out");
    assert_eq!(c.available(), 4);
}

/// Apache Pulsar may send what it was reading when the position was moved.
#[test]
fn what_comes_late_from_before_a_seek_is_dropped() {
    let mut c = consumer(Options { kind: SubType::KeyShared, ..Options::default() });
    c.begin_seek();
    c.closed_by_broker();
    c.end_seek(Some(MessageId::new(1, 4)), false);
    c.attach();
    // The CLOSE_CONSUMER of the seek may be late as well.
    c.closed_by_broker();
    c.attach();
    for entry in [0, 1, 2, 3, 4, 5] {
        give(&mut c, entry, single("x")).unwrap();
    }
    assert_eq!(take(&mut c).iter().map(|message| message.id.entry).collect::<Vec<_>>(), [5]);
}

#[test]
fn what_another_moves_back_to_a_seek_is_delivered_and_not_acknowledged() {
    let mut c = consumer(Options { kind: SubType::Shared, ..Options::default() });
    c.begin_seek();
    c.end_seek(Some(MessageId::new(1, 4)), false);
    c.closed_by_broker();
    c.attach();
    give(&mut c, 4, single("sought")).unwrap();
    give(&mut c, 5, single("behind")).unwrap();
    assert_eq!(take(&mut c).len(), 1);
    c.flush_acks();
    written(&mut c);
    c.closed_by_broker();
    c.attach();
    give(&mut c, 4, single("again")).unwrap();
    assert_eq!(c.available(), 1);
}

#[test]
fn a_chunked_message_that_claims_to_be_a_batch_takes_no_permits_with_it() {
    let mut c = consumer(Options::default());
    for chunk in 0..2 {
        let metadata = pb::MessageMetadata {
            uuid: Some("u".into()),
            chunk_id: Some(chunk),
            num_chunks_from_msg: Some(2),
            total_chunk_msg_size: Some(2),
            num_messages_in_batch: Some(1000),
            ..Default::default()
        };
        give(&mut c, chunk as u64, payload(&metadata, b"x")).unwrap();
    }
    assert_eq!(take(&mut c).len(), 1);
    assert_eq!(c.permits.charged, c.permits.returned);
}

#[test]
fn a_cumulative_ack_that_was_lost_is_said_again_when_its_messages_come_again() {
    let mut c = consumer(Options::default());
    give(&mut c, 0, batch(3)).unwrap();
    let got = take(&mut c);
    c.ack_cumulative(Instant::now(), &got[2].id).unwrap();
    c.flush_acks();
    written(&mut c);
    c.detach();
    c.attach();
    give(&mut c, 0, batch(3)).unwrap();
    assert_eq!(c.available(), 0);
    c.flush_acks();
    assert!(written(&mut c).iter().any(|command| matches!(command, Command::Ack(ack) if ack.ack_type == 1)));
}

/// A chunk of a message of `count` chunks, two bytes each.
fn chunk(uuid: &str, id: i32, count: i32) -> Payload {
    let metadata = pb::MessageMetadata {
        uuid: Some(uuid.into()),
        chunk_id: Some(id),
        num_chunks_from_msg: Some(count),
        total_chunk_msg_size: Some(2 * count),
        ..Default::default()
    };
    payload(&metadata, b"ab")
}

/// Type and entries of the acknowledgements that are due at `now`.
fn acks(consumer: &mut Consumer, now: Instant) -> Vec<(i32, Vec<u64>)> {
    consumer.handle_timeout(now);
    consumer.flush_acks();
    written(consumer)
        .into_iter()
        .filter_map(|command| match command {
            Command::Ack(ack) => Some((ack.ack_type, ack.message_ids.iter().map(|id| id.entry_id).collect())),
            _ => None,
        })
        .collect()
}

/// A plain message at 0, the first of two chunks at 1 and a plain message at 2; acknowledged up to
/// 2.
fn acknowledged_past_a_first_chunk(now: Instant) -> Consumer {
    let mut c = consumer(Options::default());
    give(&mut c, 0, single("x")).unwrap();
    c.handle_message(now, delivery(1, &[]), chunk("u", 0, 2)).unwrap();
    give(&mut c, 2, single("y")).unwrap();
    let id = take(&mut c)[1].id;
    c.ack_cumulative(now, &id).unwrap();
    assert_eq!(acks(&mut c, now), [(1, vec![0])], "not with its first chunk");
    c
}

#[test]
fn chunks_without_a_beginning_are_acknowledged_after_a_minute() {
    let now = Instant::now();
    let late = now + CHUNK_TIME;
    for kind in [SubType::Exclusive, SubType::Failover, SubType::Shared, SubType::KeyShared] {
        let mut c = consumer(Options { kind, ..Options::default() });
        c.handle_message(now, delivery(1, &[]), chunk("u", 1, 2)).unwrap();
        assert_eq!(acks(&mut c, late - Duration::from_millis(1)), []);
        if lists_redeliveries(kind) {
            assert_eq!(
                (acks(&mut c, late), c.poll_timeout()),
                (vec![], None),
                "its beginning may be elsewhere"
            );
            continue;
        }
        assert_eq!(c.poll_timeout(), Some(late));
        assert_eq!(acks(&mut c, late), [(0, vec![1])]);
        assert_eq!(c.counts().orphaned_chunks, 1);
    }
}

#[test]
fn chunks_behind_an_unreadable_entry_are_no_orphans() {
    let now = Instant::now();
    let late = now + CHUNK_TIME;
    let mut c = consumer(Options::default());
    c.handle_message(now, delivery(0, &[]), chunk("before", 1, 2)).unwrap();
    let encrypted = pb::MessageMetadata {
        encryption_keys: vec![pb::EncryptionKeys {
            key: "k".into(),
            value: b"v".as_slice().into(),
            ..Default::default()
        }],
        ..Default::default()
    };
    c.handle_message(now, delivery(1, &[]), payload(&encrypted, b"ab")).unwrap_err();
    c.handle_message(now, delivery(2, &[]), chunk("u", 1, 2)).unwrap();
    assert_eq!(acks(&mut c, late), [(0, vec![0])], "the entry may be the beginning of the other");
}

#[test]
fn a_cumulative_ack_leaves_out_a_chunked_message_until_that_is_acknowledged() {
    let now = Instant::now();
    for nacked in [false, true] {
        let mut c = acknowledged_past_a_first_chunk(now);
        c.ack_cumulative(now, &MessageId::new(1, 2)).unwrap();
        give(&mut c, 3, chunk("u", 1, 2)).unwrap();
        let mut id = take(&mut c)[0].id;
        assert_eq!(acks(&mut c, now), [], "complete but not acknowledged");
        if nacked {
            c.nack(now, &id, 0, Some(Duration::ZERO));
            assert_eq!(acks(&mut c, now), [], "all its chunks must be redelivered");
            give(&mut c, 1, chunk("u", 0, 2)).unwrap();
            give(&mut c, 3, chunk("u", 1, 2)).unwrap();
            id = take(&mut c)[0].id;
        }
        c.ack(now, &id);
        assert_eq!(acks(&mut c, now), [(1, vec![2]), (0, vec![1, 3])]);
        assert_eq!(acks(&mut c, now), []);
    }
}

#[test]
fn a_cumulative_ack_of_a_chunked_message_takes_all_of_it_along() {
    let now = Instant::now();
    let mut c = acknowledged_past_a_first_chunk(now);
    give(&mut c, 3, chunk("u", 1, 2)).unwrap();
    let id = take(&mut c)[0].id;
    let ack = c.receipt_ack(now, &[id], true).unwrap().unwrap();
    assert_eq!((ack.ack_type, ack.message_ids[0].entry_id), (1, 3));
    assert_eq!(acks(&mut c, now), []);
}

#[test]
fn a_cut_does_not_lose_the_first_chunk_of_an_incomplete_message() {
    let now = Instant::now();
    let mut c = acknowledged_past_a_first_chunk(now);
    c.detach();
    c.attach();
    assert_eq!(acks(&mut c, now), []);
    // The broker redelivers the entries whose acknowledgement it has not received.
    give(&mut c, 1, chunk("u", 0, 2)).unwrap();
    give(&mut c, 2, single("y")).unwrap();
    give(&mut c, 3, chunk("u", 1, 2)).unwrap();
    let got = take(&mut c);
    assert_eq!(got.iter().map(|message| message.id.entry).collect::<Vec<_>>(), [3]);
    c.ack_cumulative(now, &got[0].id).unwrap();
    assert_eq!(acks(&mut c, now), [(1, vec![3])]);
}

#[test]
fn a_message_that_is_never_completed_holds_acknowledgements_for_a_minute() {
    let now = Instant::now();
    let mut c = acknowledged_past_a_first_chunk(now);
    let due = c.poll_timeout().unwrap();
    assert_eq!(due, now + CHUNK_TIME);
    assert_eq!(acks(&mut c, due - Duration::from_millis(1)), []);
    assert_eq!(acks(&mut c, due), [(1, vec![2])]);
    assert_eq!(c.poll_timeout(), None);
}

#[test]
fn chunks_become_one_message_and_are_acknowledged_together() {
    let mut c = consumer(Options::default());
    for (entry, id, text) in [(0, 0, "ab"), (1, 1, "cd")] {
        let metadata = pb::MessageMetadata {
            uuid: Some("u".into()),
            chunk_id: Some(id),
            num_chunks_from_msg: Some(2),
            total_chunk_msg_size: Some(4),
            ..Default::default()
        };
        give(&mut c, entry, payload(&metadata, text.as_bytes())).unwrap();
    }
    let got = take(&mut c);
    assert_eq!((&got[0].payload[..], got[0].id.entry), (&b"abcd"[..], 1));
    c.ack(Instant::now(), &got[0].id);
    c.flush_acks();
    let acks: Vec<_> = written(&mut c)
        .into_iter()
        .filter_map(|command| match command {
            Command::Ack(ack) => Some(ack.message_ids.iter().map(|id| id.entry_id).collect::<Vec<_>>()),
            _ => None,
        })
        .collect();
    assert_eq!(acks, [vec![0, 1]]);
}

#[test]
fn what_is_delivered_after_the_broker_closed_the_consumer_is_not_acknowledged_again() {
    for attached_again in [false, true] {
        let now = Instant::now();
        let mut c = consumer(Options { kind: SubType::Failover, ..Options::default() });
        for entry in 0..3 {
            give(&mut c, entry, single("x")).unwrap();
        }
        let last = take(&mut c).pop().unwrap();
        c.ack_cumulative(now, &last.id).unwrap();
        c.flush_acks();
        assert!(matches!(&written(&mut c)[..], [.., Command::Ack(_)]));
        // Another consumer of the subscription seeks back: the broker closes all of them.
        if attached_again {
            c.closed_by_broker();
        } else {
            c.detach();
        }
        c.attach();
        give(&mut c, 0, single("x")).unwrap();
        c.flush_acks();
        let acks = written(&mut c).into_iter().filter(|command| matches!(command, Command::Ack(_))).count();
        // A lost connection may have lost the acknowledgement: it is sent again.
        assert_eq!((c.available(), acks), if attached_again { (1, 0) } else { (0, 1) });
    }
}

#[test]
fn an_ack_that_was_not_written_neither_undoes_a_reset_nor_is_lost_when_the_topic_moves_to_another_broker() {
    for (when, cumulative, elsewhere) in (0..12).map(|case| ([0, 1, 2][case % 3], case % 6 < 3, case < 6)) {
        let now = Instant::now();
        let mut c = consumer(Options { kind: SubType::Failover, ..Options::default() });
        give(&mut c, 0, single("x")).unwrap();
        give(&mut c, 1, batch(3)).unwrap();
        let taken = take(&mut c);
        let acknowledge = |c: &mut Consumer| {
            if cumulative {
                c.ack_cumulative(now, &taken[2].id).unwrap();
            } else {
                taken[..3].iter().for_each(|message| c.ack(now, &message.id));
            }
        };
        if when < 2 {
            acknowledge(&mut c);
        }
        if when == 1 {
            // Queued, and not written.
            c.flush_acks();
        }
        c.closed_by_broker();
        if when == 2 {
            acknowledge(&mut c);
        }
        if elsewhere {
            c.attach_elsewhere();
        } else {
            c.attach();
        }
        let says = |c: &mut Consumer| {
            c.handle_timeout(now + Duration::from_secs(1));
            written(c).iter().any(|command| matches!(command, Command::Ack(_)))
        };
        assert_eq!(says(&mut c), elsewhere, "when {when}, cumulative {cumulative}");
        give(&mut c, 0, single("x")).unwrap();
        give(&mut c, 1, batch(3)).unwrap();
        let again = if elsewhere { c.available() < 4 } else { c.available() == 4 };
        assert!(again, "when {when}, cumulative {cumulative}, elsewhere {elsewhere}");
        if !elsewhere {
            assert!(!says(&mut c), "when {when}, cumulative {cumulative}");
        }
    }
}

#[test]
fn the_messages_of_a_batch_that_were_acknowledged_come_again_after_a_reset() {
    for batch_index_ack in [false, true] {
        let now = Instant::now();
        let mut c = consumer(Options { kind: SubType::Shared, batch_index_ack, ..Options::default() });
        give(&mut c, 0, batch(3)).unwrap();
        let taken = take(&mut c);
        c.ack(now, &taken[0].id);
        c.flush_acks();
        written(&mut c);
        c.closed_by_broker();
        c.attach();
        give(&mut c, 0, batch(3)).unwrap();
        c.flush_acks();
        let acks = written(&mut c).into_iter().filter(|command| matches!(command, Command::Ack(_))).count();
        assert_eq!((c.available(), acks), (3, 0), "index {batch_index_ack}");
    }
}

#[test]
fn a_close_by_the_broker_and_then_a_lost_connection_are_as_a_close() {
    let now = Instant::now();
    let mut c = consumer(Options::default());
    give(&mut c, 0, single("x")).unwrap();
    let id = take(&mut c)[0].id;
    c.ack_cumulative(now, &id).unwrap();
    c.closed_by_broker();
    c.detach();
    c.attach();
    assert!(!written(&mut c).iter().any(|command| matches!(command, Command::Ack(_))));
    // From then on acknowledgements count again.
    give(&mut c, 0, single("x")).unwrap();
    let id = take(&mut c)[0].id;
    c.ack_cumulative(now, &id).unwrap();
    c.detach();
    c.attach();
    assert!(written(&mut c).iter().any(|command| matches!(command, Command::Ack(_))));
}

#[test]
fn a_second_acknowledgement_of_a_chunked_message_takes_all_its_chunks() {
    let now = Instant::now();
    for nacked in [false, true] {
        let mut c = consumer(Options::default());
        for id in 0..3 {
            give(&mut c, id as u64, chunk("u", id, 3)).unwrap();
        }
        let id = take(&mut c)[0].id;
        if nacked {
            c.nack(now, &id, 0, None);
        } else {
            // Its receipt is lost with the connection.
            c.receipt_ack(now, &[id], false).unwrap().unwrap();
            c.detach();
            c.attach();
        }
        c.ack(now, &id);
        assert_eq!(acks(&mut c, now), [(0, vec![0, 1, 2])], "negatively acknowledged: {nacked}");
    }
}

#[test]
fn a_chunked_message_from_before_a_seek_is_acknowledged_with_all_its_chunks_and_holds_nothing_back() {
    let now = Instant::now();
    let mut c = consumer(Options::default());
    for id in 0..3 {
        give(&mut c, id as u64, chunk("u", id, 3)).unwrap();
    }
    let before = take(&mut c)[0].id;
    c.begin_seek();
    c.end_seek(Some(MessageId::EARLIEST), true);
    c.detach();
    c.attach();
    give(&mut c, 3, single("x")).unwrap();
    let after = take(&mut c)[0].id;
    c.ack_cumulative(now, &after).unwrap();
    assert_eq!(acks(&mut c, now), [(1, vec![3])]);
    c.ack(now, &before);
    assert_eq!(acks(&mut c, now), [(0, vec![0, 1, 2])]);
}

#[test]
fn single_acks_that_were_not_written_survive_an_unload_and_a_lost_connection() {
    for (flushed, closed) in [(false, false), (false, true), (true, false), (true, true)] {
        let now = Instant::now();
        let mut c = consumer(Options { kind: SubType::Shared, ..Options::default() });
        c.poll_transmit(&mut Transmit::default());
        give(&mut c, 0, single("x")).unwrap();
        give(&mut c, 1, batch(3)).unwrap();
        let taken = take(&mut c);
        c.ack(now, &taken[0].id);
        c.ack(now, &taken[1].id);
        if flushed {
            // Queued, and not written.
            c.flush_acks();
            c.ack(now, &taken[2].id);
        }
        if closed {
            c.closed_by_broker();
            c.attach_elsewhere();
        } else {
            c.detach();
            c.attach();
        }
        let written = written(&mut c);
        let [Command::Ack(ack), Command::Flow(_)] = &written[..] else {
            panic!("the acknowledgements go ahead of what asks for messages: {written:?}")
        };
        let left = if flushed { 0b100 } else { 0b110 };
        let ids: Vec<_> = ack.message_ids.iter().map(|id| (id.entry_id, id.ack_set.clone())).collect();
        assert_eq!(ids, [(0, vec![]), (1, vec![left])], "flushed {flushed}, closed {closed}");
        c.detach();
        c.attach();
        let again = self::written(&mut c);
        assert!(matches!(&again[..], [Command::Flow(_)]), "what was written is not kept: {again:?}");
    }
}

#[test]
fn a_chunked_message_above_the_limit_is_unreadable() {
    let mut c = consumer(Options {
        chunked: ChunkLimits { bytes: 3, ..ChunkLimits::default() },
        ..Options::default()
    });
    for (id, part) in [(0, "ab"), (1, "cd")] {
        let metadata = pb::MessageMetadata {
            uuid: Some("u".into()),
            chunk_id: Some(id),
            num_chunks_from_msg: Some(2),
            total_chunk_msg_size: Some(4),
            ..Default::default()
        };
        let error = give(&mut c, id as u64, payload(&metadata, part.as_bytes())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MessageTooLarge);
        assert!(error.message().contains("message of 4 bytes"), "{error}");
    }
    give(&mut c, 2, single("behind")).unwrap();
    let behind = take(&mut c).pop().unwrap();
    c.ack_cumulative(Instant::now(), &behind.id).unwrap();
    c.flush_acks();
    assert!(
        !written(&mut c).iter().any(|command| matches!(command, Command::Ack(_))),
        "it stays at the broker"
    );
}

#[test]
fn large_messages_shrink_what_is_asked_for() {
    let options = Options { receiver_queue: 1000, receive_buffer: 1 << 20, ..Options::default() };
    let mut c = Consumer::new(7, options);
    c.attach();
    assert_eq!(written(&mut c), [flow(FIRST_PERMITS)], "their size is not known");
    let mut most = 0;
    let mut given = 0;
    for _ in 0..20 {
        while c.outstanding_permits() > 0 {
            give(&mut c, given, single(&"x".repeat(100_000))).unwrap();
            given += 1;
        }
        most = most.max(c.available());
        let mut out: Vec<Message> = Vec::new();
        c.take(3, &mut out);
        written(&mut c);
    }
    assert_eq!(most, FIRST_PERMITS as usize);
    assert!(c.available() <= 10, "{} messages of 100 kB are held", c.available());
    c.detach();
    c.attach();
    assert_eq!(written(&mut c), [flow(10)], "their size is known on the next connection");
}

#[test]
fn small_messages_open_the_whole_queue() {
    let mut c = Consumer::new(7, Options { receiver_queue: 1000, ..Options::default() });
    c.attach();
    written(&mut c);
    let mut most = 0;
    for entry in 0..5000 {
        give(&mut c, entry, single("x")).unwrap();
        if entry % 8 == 7 {
            take(&mut c);
            written(&mut c);
        }
        most = most.max(c.outstanding_permits());
        assert!(c.outstanding_permits() <= 1000);
    }
    assert!(most > 500, "{most}");
}

#[test]
fn a_seek_goes_on_behind_an_entry_that_ended_the_consumer() {
    let mut c = consumer(Options { unreadable: Unreadable::Fail, ..Options::default() });
    give(&mut c, 0, encrypted()).unwrap_err();
    assert!(c.has_failed());
    c.begin_seek();
    c.end_seek(Some(MessageId::new(1, 0)), false);
    c.detach();
    c.attach();
    give(&mut c, 0, encrypted()).unwrap();
    give(&mut c, 1, single("behind")).unwrap();
    assert_eq!((c.has_failed(), c.available(), c.moves()), (false, 1, 1));
}

fn redelivery(entries: &[u64]) -> Command {
    let ids =
        entries.iter().map(|entry| hot::IdData { ledger_id: 1, entry_id: *entry, ..Default::default() });
    Command::RedeliverUnacknowledgedMessages(pb::CommandRedeliverUnacknowledgedMessages {
        consumer_id: 7,
        message_ids: ids.collect(),
        // Everything is only requested on types of subscriptions that count this.
        consumer_epoch: entries.is_empty().then_some(1),
    })
}

/// The request for everything on a Shared subscription, which does not count these.
fn shared_redelivery() -> Command {
    Command::RedeliverUnacknowledgedMessages(pb::CommandRedeliverUnacknowledgedMessages {
        consumer_id: 7,
        ..Default::default()
    })
}

#[test]
fn an_entry_is_asked_for_again_once_for_all_its_messages() {
    let now = Instant::now();
    let second = Duration::from_secs(1);
    let mut c = consumer(Options { kind: SubType::Shared, ..Options::default() });
    give(&mut c, 0, batch(2)).unwrap();
    give(&mut c, 1, single("b")).unwrap();
    let got = take(&mut c);
    written(&mut c);
    c.nack(now, &got[0].id, 0, Some(second));
    c.nack(now, &got[1].id, 0, Some(2 * second));
    c.nack(now, &got[2].id, 0, Some(2 * second));
    c.handle_timeout(now + second);
    assert_eq!(written(&mut c), [redelivery(&[0])]);
    assert_eq!(c.poll_timeout(), Some(now + 2 * second));
    c.handle_timeout(now + 2 * second);
    assert_eq!(written(&mut c), [redelivery(&[1])]);
    assert_eq!(c.poll_timeout(), None);
}

#[test]
fn all_that_is_unacknowledged_can_be_asked_for_again() {
    let now = Instant::now();
    let mut c = consumer(Options { kind: SubType::Shared, ..Options::default() });
    c.redeliver_unacknowledged();
    assert_eq!(written(&mut c), [flow(10), shared_redelivery()]);
    give(&mut c, 0, single("a")).unwrap();
    let id = take(&mut c)[0].id;
    c.nack(now, &id, 0, None);
    give(&mut c, 1, single("b")).unwrap();
    c.redeliver_unacknowledged();
    assert_eq!((written(&mut c), c.available(), c.poll_timeout()), (vec![shared_redelivery()], 0, None));
    c.detach();
    c.redeliver_unacknowledged();
    c.attach();
    assert_eq!(written(&mut c), [flow(10)], "a new connection brings everything by itself");
}

#[test]
fn an_aborted_seek_has_everything_given_again() {
    let mut c = consumer(Options::default());
    assert_eq!(c.moves(), 0);
    written(&mut c);
    give(&mut c, 0, single("a")).unwrap();
    c.begin_seek();
    assert_eq!((c.available(), c.is_attached(), c.moves()), (0, true, 1));
    c.abort_seek();
    assert_eq!(written(&mut c), [redelivery(&[])]);
    give(&mut c, 0, single("a")).unwrap();
    assert_eq!(take(&mut c).len(), 1);
    c.abort_seek();
    assert_eq!(written(&mut c), [], "there is no seek");
}

#[test]
fn a_seek_without_a_connection_waits_for_one() {
    let mut c = consumer(Options::default());
    c.detach();
    c.begin_seek();
    assert!(!c.is_attached());
    assert_eq!(written(&mut c), []);
    c.attach();
    assert!(c.is_attached());
}

#[test]
fn what_there_is_to_write_is_told() {
    let now = Instant::now();
    let mut c = Consumer::new(7, Options { receiver_queue: 10, ..Options::default() });
    assert!(!c.wants_transmit());
    c.attach();
    assert!(c.wants_transmit());
    written(&mut c);
    assert!(!c.wants_transmit());
    for entry in 0..5 {
        give(&mut c, entry, single("x")).unwrap();
    }
    assert!(!c.wants_transmit());
    take(&mut c);
    assert!(c.wants_transmit(), "permits");
    written(&mut c);
    c.ack(now, &MessageId::new(1, 0));
    assert!(!c.wants_transmit(), "it waits for others");
    c.flush_acks();
    assert!(c.wants_transmit(), "an acknowledgement");
    c.detach();
    assert!(!c.wants_transmit(), "there is no connection");
}

#[test]
fn a_part_of_a_batch_of_unknown_size_is_refused_unless_the_batch_is_known() {
    let now = Instant::now();
    let mut c = consumer(Options::default());
    give(&mut c, 0, batch(2)).unwrap();
    let got = take(&mut c);
    for message in &got {
        let parsed = MessageId { batch_size: 0, ..message.id };
        assert_eq!(c.check_ack(&parsed).unwrap_err().kind(), ErrorKind::InvalidArgument);
        c.check_ack(&message.id).unwrap();
    }
    c.check_ack(&MessageId::new(1, 0)).unwrap();
    c.ack(now, &got[0].id);
    let parsed = MessageId { batch_size: 0, ..got[1].id };
    c.check_ack(&parsed).unwrap();
    c.ack(now, &parsed);
    assert_eq!(acks(&mut c, now), [(0, vec![0])]);
}

#[test]
fn a_cumulative_ack_leaves_the_chunked_messages_behind_it() {
    let now = Instant::now();
    for receipt in [false, true] {
        let mut c = consumer(Options::default());
        for (entry, uuid, id) in [(0, "a", 0), (1, "a", 1), (2, "b", 0), (3, "b", 1)] {
            give(&mut c, entry, chunk(uuid, id, 2)).unwrap();
        }
        let got = take(&mut c);
        if receipt {
            let ack = c.receipt_ack(now, &[got[0].id], true).unwrap().unwrap();
            assert_eq!((ack.ack_type, ack.message_ids[0].entry_id), (1, 1));
        } else {
            c.ack_cumulative(now, &got[0].id).unwrap();
            assert_eq!(acks(&mut c, now), [(1, vec![1])]);
        }
        c.ack(now, &got[1].id);
        assert_eq!(acks(&mut c, now), [(0, vec![2, 3])], "with a receipt: {receipt}");
    }
}

#[test]
fn each_of_several_chunked_messages_is_acknowledged_with_its_own_chunks() {
    let now = Instant::now();
    let mut c = consumer(Options::default());
    for (entry, uuid, id) in [(0, "a", 0), (1, "b", 0), (2, "a", 1), (3, "b", 1)] {
        give(&mut c, entry, chunk(uuid, id, 2)).unwrap();
    }
    let got = take(&mut c);
    c.ack(now, &got[0].id);
    assert_eq!(acks(&mut c, now), [(0, vec![0, 2])]);
    c.ack(now, &got[1].id);
    assert_eq!(acks(&mut c, now), [(0, vec![1, 3])]);
    give(&mut c, 4, single("x")).unwrap();
    assert!(c.chunked.is_empty(), "nothing is kept of a plain message");
}

#[test]
fn an_incomplete_message_wakes_only_what_waits_for_it() {
    let now = Instant::now();
    let mut c = consumer(Options::default());
    c.handle_message(now, delivery(0, &[]), chunk("u", 0, 2)).unwrap();
    assert_eq!(c.poll_timeout(), Some(now + CHUNK_TIME), "it expires");
    let chunked = ChunkLimits { timeout: Duration::ZERO, ..ChunkLimits::default() };
    let mut c = consumer(Options { chunked, ..Options::default() });
    c.handle_message(now, delivery(0, &[]), chunk("u", 0, 2)).unwrap();
    assert_eq!(c.poll_timeout(), None);
}

#[test]
fn a_message_in_one_chunk_is_a_message() {
    let mut c = consumer(Options::default());
    let metadata = pb::MessageMetadata { num_chunks_from_msg: Some(1), ..Default::default() };
    give(&mut c, 0, payload(&metadata, b"x")).unwrap();
    assert_eq!(take(&mut c).len(), 1);
}

#[test]
fn a_seek_into_a_batch_goes_on_behind_its_message() {
    let mut c = consumer(Options::default());
    c.begin_seek();
    c.end_seek(Some(MessageId::new(1, 0).in_batch(0, 3)), false);
    c.detach();
    c.attach();
    give(&mut c, 0, batch(3)).unwrap();
    assert_eq!(take(&mut c).iter().map(|message| message.id.batch_index).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn after_a_seek_to_an_end_of_the_topic_all_that_comes_is_delivered() {
    for end in [MessageId::EARLIEST, MessageId::LATEST] {
        let mut c = consumer(Options::default());
        c.begin_seek();
        c.end_seek(Some(end), false);
        c.detach();
        c.attach();
        give(&mut c, 0, single("x")).unwrap();
        assert_eq!(c.available(), 1);
    }
}

#[test]
fn properties_and_the_producer_come_with_each_message() {
    let pair = |value: &str| pb::KeyValue { key: "key".into(), value: value.into() };
    let expected = |value: &str| vec![(Box::from("key"), Box::from(value))];
    let mut c = consumer(Options::default());
    let of = |producer: &str, value: &str| pb::MessageMetadata {
        producer_name: producer.into(),
        properties: vec![pair(value)],
        ..Default::default()
    };
    for (entry, producer, value) in [(0, "p", "1"), (1, "p", "2"), (2, "q", "3")] {
        give(&mut c, entry, payload(&of(producer, value), b"x")).unwrap();
    }
    let mut body = BytesMut::new();
    let batched = Outgoing { payload: b"x", properties: &[("key", "4")], ..Default::default() };
    hot::encode_batched(&batched, 0, &mut body);
    let metadata = pb::MessageMetadata { num_messages_in_batch: Some(1), ..of("p", "of the entry") };
    give(&mut c, 3, payload(&metadata, &body)).unwrap();
    let got = take(&mut c);
    for (message, (producer, value)) in got.iter().zip([("p", "1"), ("p", "2"), ("q", "3"), ("p", "4")]) {
        assert_eq!(
            (&**message.entry.producer_name(), message.properties()),
            (producer, &expected(value)[..])
        );
    }
    let shared = Arc::ptr_eq(got[0].entry.producer_name(), got[1].entry.producer_name());
    assert!(shared, "a name is kept once for the messages that follow each other");
}

/// The smallest batch that the format allows: each message is its length and the size of its
/// payload, 0.
#[test]
fn a_batch_of_the_smallest_messages_is_read_and_numbers_them_itself() {
    let smallest = [0, 0, 0, 2, 0x18, 0];
    let metadata = |size| pb::MessageMetadata {
        num_messages_in_batch: Some(size),
        sequence_id: 40,
        ..Default::default()
    };
    let mut c = consumer(Options::default());
    give(&mut c, 0, payload(&metadata(3), &smallest.repeat(3))).unwrap();
    assert_eq!(take(&mut c).iter().map(|message| message.sequence_id).collect::<Vec<_>>(), [40, 41, 42]);
    let error = give(&mut c, 1, payload(&metadata(4), &smallest.repeat(3))).unwrap_err();
    assert!(error.message().contains("too short for that many messages"), "{error}");
}

#[test]
fn a_delivery_is_of_a_whole_entry() {
    let mut c = consumer(Options::default());
    let mut claimed = delivery(0, &[]);
    (claimed.message_id.batch_index, claimed.message_id.batch_size) = (Some(3), Some(5));
    c.handle_message(Instant::now(), claimed, single("x")).unwrap();
    assert_eq!(take(&mut c)[0].id, MessageId::new(1, 0));
}

#[test]
fn what_is_asked_for_follows_the_size_of_messages() {
    let options = Options { receiver_queue: 1000, receive_buffer: 1 << 20, ..Options::default() };
    let granted = |c: &mut Consumer| {
        c.detach();
        c.attach();
        match &written(c)[..] {
            [Command::Flow(flow)] => flow.permits,
            other => panic!("{other:?}"),
        }
    };
    let mut c = Consumer::new(7, options.clone());
    c.attach();
    for entry in 0..200 {
        give(&mut c, entry, batch(100)).unwrap();
        take(&mut c);
    }
    assert_eq!(granted(&mut c), 1000, "of the messages, not of the batches");
    give(&mut c, 200, single(&"x".repeat(100_000))).unwrap();
    assert_eq!(granted(&mut c), 10, "a large one counts at once");
    give(&mut c, 201, single("x")).unwrap();
    let after = granted(&mut c);
    assert!((11..20).contains(&after), "a small one counts little: {after}");
}

#[test]
fn a_chunk_that_a_seek_passed_over_does_not_stay_in_the_backlog() {
    let now = Instant::now();
    for (inclusive, expected) in [(false, vec![(0, vec![0])]), (true, vec![])] {
        let mut c = consumer(Options::default());
        c.begin_seek();
        give(&mut c, 0, chunk("before", 0, 2)).unwrap();
        c.end_seek(Some(MessageId::new(1, 0)), inclusive);
        give(&mut c, 0, chunk("before", 0, 2)).unwrap();
        assert_eq!(acks(&mut c, now), [], "the seek is not over");
        c.detach();
        c.attach();
        give(&mut c, 0, chunk("u", 0, 2)).unwrap();
        assert_eq!(acks(&mut c, now), expected, "inclusive: {inclusive}");
    }
}

#[test]
fn an_entry_of_which_nothing_is_left_is_neither_charged_nor_delivered() {
    let mut c = consumer(Options::default());
    c.handle_message(Instant::now(), delivery(0, &[0]), single("x")).unwrap();
    assert_eq!((c.available(), c.outstanding_permits()), (0, 10));
}

#[test]
fn acknowledgements_that_were_not_written_end_with_a_seek() {
    let now = Instant::now();
    let mut c = consumer(Options { kind: SubType::Shared, ..Options::default() });
    written(&mut c);
    give(&mut c, 0, single("x")).unwrap();
    let id = take(&mut c)[0].id;
    c.ack(now, &id);
    c.nack(now, &MessageId::new(1, 5), 0, Some(Duration::ZERO));
    c.handle_timeout(now);
    c.begin_seek();
    c.end_seek(Some(MessageId::EARLIEST), false);
    assert_eq!(written(&mut c), [redelivery(&[5])], "the message is wanted again");
}

#[test]
fn second_acknowledgements_of_several_chunked_messages_take_all_their_chunks() {
    let now = Instant::now();
    let mut c = consumer(Options::default());
    for (entry, uuid, id) in [(0, "a", 0), (1, "a", 1), (2, "b", 0), (3, "b", 1)] {
        give(&mut c, entry, chunk(uuid, id, 2)).unwrap();
    }
    let got = take(&mut c);
    for message in &got {
        c.nack(now, &message.id, 0, None);
    }
    c.ack(now, &got[0].id);
    assert_eq!(acks(&mut c, now), [(0, vec![0, 1])]);
}

fn limited(kind: SubType) -> Consumer {
    let ack_timeout = Some(Duration::from_secs(10).into());
    let mut c = consumer(Options { kind, ack_timeout, ..Options::default() });
    written(&mut c);
    c
}

fn hand_out(c: &mut Consumer, now: Instant) -> Vec<Message> {
    let got = take(c);
    got.iter().for_each(|message| c.handed_out(now, message));
    got
}

#[test]
fn what_is_not_acknowledged_in_time_is_asked_for_again() {
    let now = Instant::now();
    for (kind, asked) in [(SubType::Shared, &[1][..]), (SubType::KeyShared, &[1]), (SubType::Exclusive, &[])]
    {
        let mut c = limited(kind);
        give(&mut c, 0, single("a")).unwrap();
        give(&mut c, 1, batch(3)).unwrap();
        assert_eq!(c.poll_timeout(), None, "what the application does not have has time");
        let got = hand_out(&mut c, now);
        c.ack(now, &got[0].id);
        c.ack(now, &got[2].id);
        c.handle_timeout(now + Duration::from_secs(1));
        written(&mut c);
        c.handle_timeout(now + Duration::from_secs(9));
        assert_eq!(written(&mut c), []);
        c.handle_timeout(now + Duration::from_secs(11));
        assert_eq!(written(&mut c), [redelivery(asked)], "{kind:?}");
        assert_eq!((c.counts().ack_timeouts, c.poll_timeout()), (2, None));
    }
}

#[test]
fn an_acknowledgement_timeout_ends_with_the_connection_a_seek_and_a_request_of_all() {
    let now = Instant::now();
    let ends: [fn(&mut Consumer); 3] = [
        |c| {
            c.detach();
            c.attach();
        },
        |c| {
            c.begin_seek();
            c.end_seek(None, false);
            c.detach();
            c.attach();
        },
        Consumer::redeliver_unacknowledged,
    ];
    for end in ends {
        let mut c = limited(SubType::Shared);
        give(&mut c, 0, single("a")).unwrap();
        hand_out(&mut c, now);
        end(&mut c);
        written(&mut c);
        c.handle_timeout(now + Duration::from_secs(60));
        assert_eq!((written(&mut c), c.poll_timeout(), c.counts().ack_timeouts), (vec![], None, 0));
    }
}

#[test]
fn all_chunks_of_a_message_are_asked_for_when_it_is_late() {
    let now = Instant::now();
    let mut c = limited(SubType::Shared);
    give(&mut c, 1, chunk("u", 0, 2)).unwrap();
    give(&mut c, 3, chunk("u", 1, 2)).unwrap();
    hand_out(&mut c, now);
    c.handle_timeout(now + Duration::from_secs(11));
    assert_eq!(written(&mut c), [redelivery(&[1, 3])]);
}

fn mortal(max_redeliveries: u32) -> Consumer {
    let nack_delay = Duration::ZERO.into();
    let max_redeliveries = Some(max_redeliveries);
    let mut c = consumer(Options {
        kind: SubType::Shared,
        nack_delay,
        max_redeliveries,
        ack_timeout: Some(Duration::from_secs(10).into()),
        ..Options::default()
    });
    written(&mut c);
    c
}

fn give_again(c: &mut Consumer, entry: u64, count: u32, payload: Payload) {
    let again = hot::Delivery { redelivery_count: Some(count), ..delivery(entry, &[]) };
    c.handle_message(Instant::now(), again, payload).unwrap();
}

fn refuse(c: &mut Consumer, now: Instant, message: &Message) {
    c.nack(now, &message.id, message.entry.redelivery_count, None);
    c.handle_timeout(now);
}

#[test]
fn a_message_dies_when_it_is_refused_or_late_after_its_last_redelivery() {
    let now = Instant::now();
    for late in [false, true] {
        let mut c = mortal(1);
        give(&mut c, 0, single("a")).unwrap();
        let first = take(&mut c).remove(0);
        refuse(&mut c, now, &first);
        assert_eq!((written(&mut c), c.has_dead()), (vec![redelivery(&[0])], false));
        give_again(&mut c, 0, 1, single("a"));
        let last = hand_out(&mut c, now).remove(0);
        if late {
            c.handle_timeout(now + Duration::from_secs(11));
        } else {
            refuse(&mut c, now, &last);
        }
        assert_eq!(written(&mut c), [], "it is not delivered again");
        let letters = c.take_dead();
        assert_eq!(letters.iter().map(|letter| letter.message.id).collect::<Vec<_>>(), [first.id]);
        assert!(!c.has_dead());
        // The broker may deliver it again meanwhile, as after a new connection.
        give_again(&mut c, 0, 0, single("a"));
        assert_eq!(c.available(), 0, "the outcome of its letter decides");
        c.settle_dead(now, &letters[0], true);
        assert_eq!(acks(&mut c, now), [(0, vec![0])]);
        assert_eq!((c.counts().dead_letters, c.counts().dead_letters_failed), (1, 0));
    }
}

#[test]
fn a_message_that_could_not_be_sent_is_asked_for_and_dies_when_it_comes() {
    let now = Instant::now();
    let mut c = mortal(1);
    for count in 2..5 {
        give_again(&mut c, 0, count, single("a"));
        assert_eq!(c.available(), 0, "the application has had its chances");
        let letter = c.take_dead().remove(0);
        c.settle_dead(now, &letter, false);
        c.handle_timeout(now);
        assert_eq!(written(&mut c).last(), Some(&redelivery(&[0])));
    }
    assert_eq!(c.counts().dead_letters_failed, 3);
}

#[test]
fn what_is_dead_keeps_its_permit_until_it_is_sent() {
    let now = Instant::now();
    let mut c = mortal(1);
    (0..10).for_each(|entry| give_again(&mut c, entry, 2, single("a")));
    assert_eq!(written(&mut c), [], "a topic that takes nothing stops the deliveries");
    let letters = c.take_dead();
    assert_eq!(letters.len(), 10);
    letters[..5].iter().for_each(|letter| c.settle_dead(now, letter, true));
    assert_eq!(written(&mut c), [flow(5)]);
    // Those of another connection have lapsed.
    c.detach();
    c.attach();
    written(&mut c);
    letters[5..].iter().for_each(|letter| c.settle_dead(now, letter, true));
    assert_eq!(written(&mut c), []);
    assert_eq!(acks(&mut c, now).into_iter().flat_map(|(_, ids)| ids).count(), 5);
}

#[test]
fn of_a_batch_what_is_not_acknowledged_dies_together() {
    let now = Instant::now();
    let mut c = mortal(1);
    give_again(&mut c, 3, 1, batch(4));
    let mut got: Vec<Message> = Vec::new();
    c.take(3, &mut got);
    c.ack(now, &got[0].id);
    refuse(&mut c, now, &got[1]);
    assert_eq!(c.available(), 0, "the one that was not taken is dead too");
    let letters = c.take_dead();
    let indexes: Vec<_> = letters.iter().map(|letter| letter.message.id.batch_index).collect();
    assert_eq!(indexes, [1, 2, 3]);
    letters.iter().for_each(|letter| c.settle_dead(now, letter, true));
    assert_eq!(acks(&mut c, now).last().unwrap(), &(0, vec![3]));
}

#[test]
fn all_chunks_of_a_dead_message_are_acknowledged() {
    let now = Instant::now();
    let mut c = mortal(1);
    for entry in [1, 3] {
        give_again(&mut c, entry, 1, chunk("u", i32::from(entry == 3), 2));
    }
    let got = take(&mut c);
    refuse(&mut c, now, &got[0]);
    assert_eq!(written(&mut c).iter().filter(|command| matches!(command, Command::Ack(_))).count(), 0);
    let letter = c.take_dead().remove(0);
    c.settle_dead(now, &letter, true);
    assert_eq!(acks(&mut c, now), [(0, vec![1, 3])]);
}

#[test]
fn a_seek_forgets_what_is_dead() {
    let now = Instant::now();
    for aborted in [false, true] {
        let mut c = mortal(1);
        give_again(&mut c, 0, 2, single("a"));
        let letter = c.take_dead().remove(0);
        give_again(&mut c, 1, 2, single("b"));
        c.begin_seek();
        if aborted {
            c.abort_seek();
        } else {
            c.end_seek(None, false);
            c.detach();
            c.attach();
        }
        assert!(!c.has_dead());
        c.settle_dead(now, &letter, true);
        assert_eq!(acks(&mut c, now), [], "what the seek delivers again is not acknowledged");
        give_again(&mut c, 0, 0, single("a"));
        assert_eq!(c.available(), 1);
    }
}

#[test]
fn exclusive_subscriptions_have_no_limit_on_redeliveries() {
    let mut c = consumer(Options { max_redeliveries: Some(1), ..Options::default() });
    give_again(&mut c, 0, 9, single("a"));
    assert_eq!((c.available(), c.has_dead()), (1, false));
}

#[test]
fn what_was_taken_is_revoked_when_its_entry_is_asked_for_again_and_not_when_it_comes() {
    let now = Instant::now();
    for (kind, others) in [(SubType::Shared, false), (SubType::Exclusive, true)] {
        let mut c = consumer(Options { kind, ..Options::default() });
        give(&mut c, 0, batch(2)).unwrap();
        give(&mut c, 1, single("b")).unwrap();
        let held = take(&mut c);
        assert!(!c.take_revoked());
        c.nack(now, &held[0].id, 0, Some(Duration::ZERO));
        c.handle_timeout(now);
        assert!(c.take_revoked() && !c.take_revoked());
        assert_eq!([0, 1, 2].map(|at| c.is_revoked(&held[at])), [true, true, others], "{kind:?}");
        give(&mut c, 0, batch(2)).unwrap();
        let again = take(&mut c);
        assert!(!again.iter().any(|message| c.is_revoked(message)), "the new copies are to be handed out");
    }
}

#[test]
fn what_was_taken_is_revoked_with_the_connection_if_the_broker_keeps_the_position() {
    for durable in [true, false] {
        let mut c = consumer(Options { durable, ..Options::default() });
        give(&mut c, 0, single("a")).unwrap();
        let held = take(&mut c);
        c.detach();
        assert_eq!((c.take_revoked(), c.is_revoked(&held[0])), (durable, durable));
        // A reader resumes behind it.
        assert_eq!(c.resume_position(), (!durable).then(|| held[0].id));
    }
}

#[test]
fn what_was_taken_of_a_dead_entry_is_revoked() {
    let now = Instant::now();
    let mut c = mortal(1);
    give_again(&mut c, 3, 1, batch(3));
    let held = take(&mut c);
    refuse(&mut c, now, &held[0]);
    assert_eq!((c.take_dead().len(), c.take_revoked()), (3, true));
    assert!(held.iter().all(|message| c.is_revoked(message)));
}

#[test]
fn the_id_of_an_entry_acknowledges_all_of_it_for_good() {
    let now = Instant::now();
    let mut c = mortal(1);
    give_again(&mut c, 3, 1, batch(3));
    let held = take(&mut c);
    c.ack(now, &MessageId::new(1, 3));
    refuse(&mut c, now, &held[0]);
    assert!(!c.has_dead());
}

#[test]
fn the_payloads_of_last_deliveries_are_limited() {
    let now = Instant::now();
    let mut c = consumer(Options {
        kind: SubType::Shared,
        nack_delay: Duration::ZERO.into(),
        max_redeliveries: Some(1),
        receive_buffer: 250,
        ..Options::default()
    });
    written(&mut c);
    let text = "x".repeat(100);
    (0..4).for_each(|entry| give_again(&mut c, entry, 1, single(&text)));
    for message in take(&mut c) {
        refuse(&mut c, now, &message);
    }
    let dead: Vec<_> = c.take_dead().iter().map(|letter| letter.message.id.entry).collect();
    assert_eq!(dead, [2, 3], "the others are asked for once more, and die when they come");
    give_again(&mut c, 0, 2, single(&text));
    assert!(c.has_dead());
}

#[test]
fn a_chunked_message_knows_its_first_chunk() {
    let now = Instant::now();
    let mut c = mortal(1);
    for entry in [1, 3] {
        give_again(&mut c, entry, 1, chunk("u", i32::from(entry == 3), 2));
    }
    let message = take(&mut c).remove(0);
    let first = Some(MessageId::new(1, 1));
    assert_eq!(message.first_chunk(), first);
    refuse(&mut c, now, &message);
    assert_eq!(c.take_dead()[0].message.first_chunk(), first);
}

#[test]
fn a_smaller_buffer_grants_no_permits_until_what_was_granted_is_used() {
    let now = Instant::now();
    let mut consumer =
        Consumer::new(1, Options { receiver_queue: 100, first_permits: 100, ..Options::default() });
    consumer.attach();
    consumer.set_receive_buffer(1);
    consumer.set_receive_buffer(1 << 20);
    let mut out = Transmit::default();
    consumer.poll_transmit(&mut out);
    consumer.handle_timeout(now);
    assert!(!consumer.wants_transmit(), "the window is what it was");
}

#[test]
fn what_was_on_its_way_before_everything_was_requested_again_is_dropped() {
    let mut c = consumer(Options::default());
    let with = |c: &mut Consumer, entry, epoch| {
        let delivery = hot::Delivery { consumer_epoch: epoch, ..delivery(entry, &[]) };
        c.handle_message(Instant::now(), delivery, batch(2)).unwrap();
    };
    with(&mut c, 0, Some(0));
    written(&mut c);
    assert_eq!(c.epoch(), Some(0));
    c.redeliver_unacknowledged();
    let asked = written(&mut c);
    let stated = asked.iter().find_map(|command| match command {
        Command::RedeliverUnacknowledgedMessages(again) => Some(again.consumer_epoch),
        _ => None,
    });
    assert_eq!(stated, Some(Some(1)));
    with(&mut c, 1, Some(0));
    assert_eq!(c.available(), 0, "it comes again");
    with(&mut c, 0, Some(1));
    with(&mut c, 1, None);
    assert_eq!(take(&mut c).len(), 4, "a broker that does not know the number delivers as before");
    assert_eq!(c.permits.granted as i64 - c.permits.returned as i64, c.outstanding_permits());
    c.detach();
    assert_eq!(c.epoch(), Some(1), "it outlives the connection");
    let mut shared = consumer(Options { kind: SubType::Shared, ..Options::default() });
    shared.redeliver_unacknowledged();
    assert_eq!(shared.epoch(), None, "single entries are requested there");
}

#[test]
fn there_is_more_behind_what_was_taken_or_behind_the_start_or_the_mark() {
    let id = |entry| MessageId::new(1, entry);
    let mut c = consumer(Options::default());
    assert!(!c.has_more(None, Some(id(3))), "an empty topic");
    assert!(c.has_more(Some(id(4)), Some(id(3))) && !c.has_more(Some(id(4)), Some(id(4))));
    assert!(c.has_more(Some(id(4)), None), "a broker that does not tell");
    give(&mut c, 3, batch(3)).unwrap();
    assert!(c.has_more(None, None), "it has arrived");
    let mut out: Vec<Message> = Vec::new();
    c.take(2, &mut out);
    assert!(c.has_more(Some(id(3).in_batch(2, 3)), Some(id(9))));
    c.take(1, &mut out);
    assert!(!c.has_more(Some(id(3).in_batch(2, 3)), Some(id(0))));
    assert!(c.has_more(Some(id(4)), Some(id(9))));
    for (inclusive, more) in [(true, true), (false, false)] {
        c.begin_seek();
        c.end_seek(Some(id(7)), inclusive);
        assert_eq!(c.has_more(Some(id(7)), Some(id(0))), more);
        assert!(c.has_more(Some(id(8)), Some(id(9))));
    }
    c.begin_seek();
    c.end_seek(None, true);
    assert!(c.has_more(Some(id(7)), Some(id(6))) && !c.has_more(Some(id(7)), Some(id(7))), "a time");
}

#[test]
fn the_end_of_the_topic_ends_with_a_seek_and_with_the_connection() {
    let mut c = consumer(Options::default());
    give(&mut c, 0, single("x")).unwrap();
    c.reached_end();
    assert!(!c.is_at_end(), "one waits to be taken");
    take(&mut c);
    assert!(c.is_at_end());
    c.begin_seek();
    assert!(!c.is_at_end());
    c.end_seek(None, false);
    c.reached_end();
    c.detach();
    assert!(!c.is_at_end());
    c.begin_subscribe();
    c.reached_end();
    c.attach();
    assert!(c.is_at_end(), "told before the answer to SUBSCRIBE was handled");
}

#[test]
fn a_paused_consumer_grants_no_permits() {
    let mut c = consumer(Options::default());
    assert_eq!(granted(&mut c), 10);
    c.set_paused(true);
    for entry in 0..10 {
        give(&mut c, entry, single("x")).unwrap();
    }
    assert_eq!((take(&mut c).len(), granted(&mut c)), (10, 0), "what was granted before still comes");
    c.detach();
    c.attach();
    assert_eq!(granted(&mut c), 0, "on a new connection neither");
    c.set_paused(false);
    assert_eq!(granted(&mut c), 10);
}

#[test]
fn a_consumer_without_a_queue_grants_a_permit_when_one_is_wanted() {
    let mut c = Consumer::new(7, Options { receiver_queue: 0, ..Options::default() });
    c.attach();
    assert_eq!(granted(&mut c), 0);
    c.want();
    assert_eq!((granted(&mut c), granted(&mut c)), (1, 0));
    c.want();
    assert_eq!(granted(&mut c), 0, "one is under way");
    // The connection is lost while the application waits.
    c.detach();
    c.attach();
    assert_eq!(granted(&mut c), 1);
    give(&mut c, 0, batch(3)).unwrap();
    assert_eq!(granted(&mut c), 0);
    let mut out: Vec<Message> = Vec::new();
    c.take(2, &mut out);
    c.want();
    assert_eq!(granted(&mut c), 0, "there is one left");
    c.take(2, &mut out);
    assert_eq!((out.len(), granted(&mut c)), (3, 0), "no receive waits");
    c.want();
    assert_eq!((granted(&mut c), c.outstanding_permits()), (3, 1), "one more than the batch was charged");
    // What is dropped here does not end the wait.
    let mut damaged = single("x");
    damaged.checksum = Some(!damaged.checksum.unwrap_or_default());
    give(&mut c, 1, damaged).unwrap_err();
    assert_eq!(granted(&mut c), 1);
}

#[test]
fn what_can_be_taken_ends_before_the_first_message_whose_schema_is_not_known() {
    #[derive(Debug)]
    struct Reads;
    impl Codec for Reads {
        fn resolve(&self, _: Option<&crate::schema::SchemaInfo>) -> Result<crate::schema::Resolved> {
            Ok(Arc::new(()))
        }
    }
    let mut c = consumer(Options { codec: Some(Arc::new(Reads)), ..Options::default() });
    for entry in 0..3 {
        give(&mut c, entry, single("x")).unwrap();
    }
    let stated = pb::MessageMetadata { schema_version: Some(Bytes::from_static(b"1")), ..Default::default() };
    give(&mut c, 3, payload(&stated, b"y")).unwrap();
    give(&mut c, 4, single("z")).unwrap();
    assert_eq!((c.available(), c.has_ready()), (3, true));
    let mut out: Vec<Message> = Vec::new();
    assert_eq!(c.take(1, &mut out), 1, "no more than asked for");
    assert_eq!(c.take(usize::MAX, &mut out), 2);
    assert_eq!((c.available(), c.has_ready(), c.take(1, &mut out)), (0, false, 0));
    let wanted = c.next_wanted().expect("the schema is asked for");
    wanted.writer.fail(Error::protocol("lost"));
    assert_eq!((c.available(), c.has_ready()), (2, true), "that it cannot be read is told by the message");
}

#[test]
fn a_broker_that_sends_far_more_than_was_asked_for_is_given_up() {
    let mut c = consumer(Options { receive_buffer: 1 << 20, ..Options::default() });
    let grants = |c: &mut Consumer| granted(c) > 0;
    assert!(grants(&mut c));
    let send = |c: &mut Consumer, entry: u64, size: usize| {
        let sent = single(&"x".repeat(size));
        let checked = c.check_flood(sent.covered.len());
        checked.map(|()| give(c, entry, sent).unwrap())
    };
    // What was asked for, and what a broker may have read beyond.
    for entry in 0..60 {
        send(&mut c, entry, 1 << 20).unwrap();
    }
    let error = (60..80).find_map(|entry| send(&mut c, entry, 1 << 20).err()).expect("it is limited");
    assert_eq!(error.kind(), ErrorKind::Protocol);
    // With a new grant the count is 0 again.
    take(&mut c);
    assert!(grants(&mut c));
    send(&mut c, 80, 1 << 20).unwrap();
    let sent = (81..11_000).take_while(|entry| send(&mut c, *entry, 1).is_ok()).count();
    assert!((10_000..10_040).contains(&sent), "small ones are limited by their number: {sent}");
}
