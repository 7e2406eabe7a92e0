//! Property tests against prost: both codecs produce the same bytes and decode each other's.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use prost::Message as _;

use super::*;

fn id() -> impl Strategy<Value = IdData> {
    let flat = (
        any::<u64>(),
        any::<u64>(),
        any::<Option<i32>>(),
        any::<Option<i32>>(),
        proptest::collection::vec(any::<i64>(), 0..3),
        any::<Option<i32>>(),
    )
        .prop_map(|(ledger_id, entry_id, partition, batch_index, ack_set, batch_size)| IdData {
            ledger_id,
            entry_id,
            partition,
            batch_index,
            ack_set,
            batch_size,
            first_chunk_message_id: None,
        });
    (flat.clone(), proptest::option::of(flat)).prop_map(|(mut id, first)| {
        id.first_chunk_message_id = first.map(Box::new);
        id
    })
}

fn pairs() -> impl Strategy<Value = Vec<pb::KeyValue>> {
    proptest::collection::vec(("\\PC{0,8}", "\\PC{0,8}"), 0..3)
        .prop_map(|pairs| pairs.into_iter().map(|(key, value)| pb::KeyValue { key, value }).collect())
}

fn blob() -> impl Strategy<Value = Option<Bytes>> {
    proptest::option::of(proptest::collection::vec(any::<u8>(), 0..12).prop_map(Bytes::from))
}

fn flag() -> impl Strategy<Value = Option<bool>> {
    any::<Option<bool>>()
}

/// Encodes the same value with both codecs and compares the bytes.
macro_rules! same {
    ($hot:expr, $prost:expr) => {{
        let (hot, oracle) = ($hot, $prost);
        let mut bytes = BytesMut::new();
        hot.encode(&mut bytes).unwrap();
        prop_assert_eq!(hot.encoded_len(), bytes.len());
        let expected = oracle.encode_to_vec();
        prop_assert_eq!(&bytes[..], &expected[..]);
        (hot, bytes.freeze())
    }};
}

proptest! {
    #[test]
    fn send_agrees(producer_id: u64, sequence_id: u64, num_messages: Option<i32>, least: Option<u64>,
                   most: Option<u64>, highest: Option<u64>, chunk in flag(), marker in flag(),
                   id in proptest::option::of(id())) {
        let (hot, bytes) = same!(
            Send { producer_id, sequence_id, num_messages, txnid_least_bits: least, txnid_most_bits: most,
                   highest_sequence_id: highest, is_chunk: chunk, marker, message_id: id.clone() },
            pb::CommandSend { producer_id, sequence_id, num_messages, txnid_least_bits: least,
                   txnid_most_bits: most, highest_sequence_id: highest, is_chunk: chunk, marker, message_id: id }
        );
        prop_assert_eq!(Send::decode(bytes).unwrap(), hot);
    }

    #[test]
    fn receipt_agrees(producer_id: u64, sequence_id: u64, highest: Option<u64>, id in proptest::option::of(id())) {
        let (hot, bytes) = same!(
            SendReceipt { producer_id, sequence_id, message_id: id.clone(), highest_sequence_id: highest },
            pb::CommandSendReceipt { producer_id, sequence_id, message_id: id, highest_sequence_id: highest }
        );
        prop_assert_eq!(SendReceipt::decode(bytes).unwrap(), hot);
    }

    #[test]
    fn delivery_agrees(consumer_id: u64, message_id in id(), redelivery_count: Option<u32>,
                       ack_set in proptest::collection::vec(any::<i64>(), 0..4), consumer_epoch: Option<u64>) {
        let (hot, bytes) = same!(
            Delivery { consumer_id, message_id: message_id.clone(), redelivery_count, ack_set: ack_set.clone(),
                       consumer_epoch },
            pb::CommandMessage { consumer_id, message_id, redelivery_count, ack_set, consumer_epoch }
        );
        prop_assert_eq!(Delivery::decode(bytes).unwrap(), hot);
    }

    #[test]
    fn ack_agrees(consumer_id: u64, ack_type in 0..2, ids in proptest::collection::vec(id(), 0..4),
                  validation_error in proptest::option::of(0..5), keys in proptest::collection::vec(any::<u64>(), 0..3),
                  least: Option<u64>, most: Option<u64>, request_id: Option<u64>) {
        let properties: Vec<_> = keys.iter().map(|v| pb::KeyLongValue { key: v.to_string(), value: *v }).collect();
        let (hot, bytes) = same!(
            Ack { consumer_id, ack_type, message_ids: ids.clone(), validation_error, properties: properties.clone(),
                  txnid_least_bits: least, txnid_most_bits: most, request_id },
            pb::CommandAck { consumer_id, ack_type, message_id: ids, validation_error, properties,
                  txnid_least_bits: least, txnid_most_bits: most, request_id }
        );
        prop_assert_eq!(Ack::decode(bytes).unwrap(), hot);
    }

    #[test]
    fn flow_agrees(consumer_id: u64, permits: u32) {
        let (hot, bytes) = same!(
            Flow { consumer_id, permits },
            pb::CommandFlow { consumer_id, message_permits: permits }
        );
        prop_assert_eq!(Flow::decode(bytes).unwrap(), hot);
    }

    #[test]
    fn metadata_agrees(
        names in ("\\PC{0,8}", proptest::option::of("\\PC{0,8}"), proptest::option::of("\\PC{0,8}"), proptest::option::of("\\PC{0,8}")),
        numbers: (u64, u64, Option<u64>, Option<u64>, Option<u64>, Option<u64>, Option<i64>),
        small: (Option<i32>, Option<u32>, Option<i32>, Option<i32>, Option<i32>, Option<i32>, Option<i32>, Option<u32>),
        flags in (flag(), flag(), flag()), properties in pairs(),
        blobs in (blob(), blob(), blob(), blob()),
        lists in (proptest::collection::vec("\\PC{0,8}", 0..3), proptest::collection::vec(any::<i32>(), 0..3)),
        keys in proptest::collection::vec((pairs(), "\\PC{0,8}"), 0..2),
    ) {
        let m = pb::MessageMetadata {
            producer_name: names.0, replicated_from: names.1, partition_key: names.2, uuid: names.3.clone(),
            encryption_algo: names.3, sequence_id: numbers.0, publish_time: numbers.1, event_time: numbers.2,
            txnid_least_bits: numbers.3, txnid_most_bits: numbers.4, highest_sequence_id: numbers.5,
            deliver_at_time: numbers.6, compression: small.0, uncompressed_size: small.1,
            num_messages_in_batch: small.2, marker_type: small.3, num_chunks_from_msg: small.4,
            total_chunk_msg_size: small.5, chunk_id: small.6, entry_hash_min: small.7, entry_hash_max: small.7,
            partition_key_b64_encoded: flags.0, null_value: flags.1, null_partition_key: flags.2, properties,
            encryption_param: blobs.0, schema_version: blobs.1, ordering_key: blobs.2, schema_id: blobs.3,
            replicate_to: lists.0, compacted_batch_indexes: lists.1,
            encryption_keys: keys.into_iter().map(|(metadata, key)| pb::EncryptionKeys {
                key, value: Bytes::from_static(b"k"), metadata }).collect(),
        };
        let mut bytes = BytesMut::new();
        encode_metadata(&m, &mut bytes);
        prop_assert_eq!(&bytes[..], &m.encode_to_vec()[..]);
        prop_assert_eq!(decode_metadata(&bytes.freeze()).unwrap(), m);
    }

    #[test]
    fn single_metadata_agrees(properties in pairs(), key in proptest::option::of("\\PC{0,8}"), payload_size: i32,
                              times: (Option<u64>, Option<u64>), flags in (flag(), flag(), flag(), flag()),
                              ordering_key in blob()) {
        let m = pb::SingleMessageMetadata {
            properties, partition_key: key, payload_size, compacted_out: flags.0, event_time: times.0,
            partition_key_b64_encoded: flags.1, ordering_key, sequence_id: times.1, null_value: flags.2,
            null_partition_key: flags.3,
        };
        let mut bytes = BytesMut::new();
        encode_single(&m, &mut bytes);
        prop_assert_eq!(&bytes[..], &m.encode_to_vec()[..]);
        prop_assert_eq!(decode_single(&bytes.freeze()).unwrap(), m);
    }

    #[test]
    fn a_batched_message_is_what_prost_writes(payload in proptest::collection::vec(any::<u8>(), 0..50),
            key in proptest::option::of("\\PC{0,8}"), properties in pairs(), event_time in 0_u64..3,
            sequence_id: u64, null_value: bool, base64: bool, ordering_key in blob()) {
        let borrowed: Vec<_> = properties.iter().map(|p| (p.key.as_str(), p.value.as_str())).collect();
        let message = Outgoing { payload: &payload, key: key.as_deref(), key_is_base64: base64,
            ordering_key: ordering_key.as_deref(), properties: &borrowed, event_time, null_value,
            ..Default::default() };
        let mut bytes = BytesMut::new();
        encode_batched(&message, sequence_id, &mut bytes);
        let oracle = pb::SingleMessageMetadata {
            properties: properties.clone(), partition_key: key.clone(), payload_size: payload.len() as i32,
            event_time: (event_time != 0).then_some(event_time), sequence_id: Some(sequence_id),
            partition_key_b64_encoded: base64.then_some(true), ordering_key: ordering_key.clone(),
            null_value: null_value.then_some(true), ..Default::default()
        }.encode_to_vec();
        let mut expected = (oracle.len() as u32).to_be_bytes().to_vec();
        expected.extend(oracle);
        expected.extend(&payload);
        prop_assert_eq!(&bytes[..], &expected[..]);
    }

    #[test]
    fn random_bytes_are_an_error_or_a_value(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let bytes = Bytes::from(bytes);
        let _ = (Send::decode(bytes.clone()), SendReceipt::decode(bytes.clone()), Delivery::decode(bytes.clone()),
                 Ack::decode(bytes.clone()), Flow::decode(bytes.clone()), decode_metadata(&bytes), decode_single(&bytes));
    }
}
