//! Hand-written codecs for the commands and metadata that every message needs: SEND, SEND_RECEIPT,
//! MESSAGE, ACK, FLOW, MessageMetadata and SingleMessageMetadata. Property tests compare them with
//! prost's, byte for byte.

use bytes::{Bytes, BytesMut};

use crate::message::Outgoing;
use crate::pb;
use forebay_base::wire::{
    Reader, UnexpectedEnd, bytes_field_len, put_bytes_field, put_varint, put_varint_field, signed,
    varint_field_len,
};

/// Message id as on the wire.
pub type IdData = pb::MessageIdData;

macro_rules! hot {
    (
        $(#[doc = $doc:literal])+
        $name:ident { $($(#[doc = $field_doc:literal])+ $field:ident: $ty:ty = $number:literal $kind:ident,)+ }
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name { $($(#[doc = $field_doc])+ pub $field: $ty,)+ }

        impl $name {
            /// Encoded size in bytes.
            pub fn encoded_len(&self) -> usize {
                0 $(+ $kind::len($number, &self.$field))+
            }

            /// Appends the encoding. Never fails, since `BytesMut` grows on demand.
            pub fn encode(&self, out: &mut BytesMut) -> Result<(), std::convert::Infallible> {
                $($kind::put(out, $number, &self.$field);)+
                Ok(())
            }

            /// Decodes the command. Unknown fields are skipped.
            pub fn decode(bytes: Bytes) -> Result<Self, MalformedHot> {
                let mut value = Self::default();
                let mut reader = Reader::new(&bytes);
                while !reader.is_empty() {
                    let (field, wire_type) = reader.tag()?;
                    match field {
                        $($number => $kind::read(&mut reader, wire_type, &mut value.$field, &bytes)?,)+
                        _ => reader.skip(wire_type)?,
                    }
                }
                Ok(value)
            }
        }
    };
}

/// Error of the hand-written decoders: the bytes are not a valid encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedHot;

impl From<UnexpectedEnd> for MalformedHot {
    fn from(_: UnexpectedEnd) -> Self {
        Self
    }
}

impl std::fmt::Display for MalformedHot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it is truncated or a field has the wrong wire type")
    }
}

impl From<MalformedHot> for forebay_base::error::Error {
    fn from(error: MalformedHot) -> Self {
        Self::protocol(format!("the peer sent malformed message metadata: {error}"))
    }
}

/// Defines a kind of field by its encoded length, its encoder and its decoder.
macro_rules! kind {
    ($kind:ident: $ty:ty, $value:ident, $len:expr, $number:ident, $out:ident, $put:expr, $reader:ident, $wire:ident, $target:ident, $owner:ident, $read:expr) => {
        #[allow(clippy::ptr_arg, reason = "one shape of signature for every kind")]
        mod $kind {
            use super::*;
            #[inline]
            pub(super) fn len($number: u32, $value: &$ty) -> usize {
                $len
            }
            #[inline]
            pub(super) fn put($out: &mut BytesMut, $number: u32, $value: &$ty) {
                $put
            }
            #[inline]
            #[allow(unused_variables, reason = "only kinds that slice need the owner of the bytes")]
            pub(super) fn read(
                $reader: &mut Reader<'_>,
                $wire: u8,
                $target: &mut $ty,
                $owner: &Bytes,
            ) -> Result<(), MalformedHot> {
                $read
            }
        }
    };
}

/// Checks a wire type: 0 for varints, 2 for messages and bytes.
fn expect(wire_type: u8, wanted: u8) -> Result<(), MalformedHot> {
    if wire_type == wanted { Ok(()) } else { Err(MalformedHot) }
}

kind!(req_u64: u64, v, varint_field_len(n, *v), n, out, put_varint_field(out, n, *v),
    r, w, t, o, { expect(w, 0)?; *t = r.varint()?; Ok(()) });
kind!(req_u32: u32, v, varint_field_len(n, u64::from(*v)), n, out, put_varint_field(out, n, u64::from(*v)),
    r, w, t, o, { expect(w, 0)?; *t = r.varint()? as u32; Ok(()) });
kind!(req_i32: i32, v, varint_field_len(n, signed(*v)), n, out, put_varint_field(out, n, signed(*v)),
    r, w, t, o, { expect(w, 0)?; *t = r.varint()? as i32; Ok(()) });
kind!(opt_u64: Option<u64>, v, v.map_or(0, |v| varint_field_len(n, v)), n, out,
    if let Some(v) = v { put_varint_field(out, n, *v) },
    r, w, t, o, { expect(w, 0)?; *t = Some(r.varint()?); Ok(()) });
kind!(opt_u32: Option<u32>, v, v.map_or(0, |v| varint_field_len(n, u64::from(v))), n, out,
    if let Some(v) = v { put_varint_field(out, n, u64::from(*v)) },
    r, w, t, o, { expect(w, 0)?; *t = Some(r.varint()? as u32); Ok(()) });
kind!(opt_i32: Option<i32>, v, v.map_or(0, |v| varint_field_len(n, signed(v))), n, out,
    if let Some(v) = v { put_varint_field(out, n, signed(*v)) },
    r, w, t, o, { expect(w, 0)?; *t = Some(r.varint()? as i32); Ok(()) });
kind!(opt_bool: Option<bool>, v, v.map_or(0, |v| varint_field_len(n, u64::from(v))), n, out,
    if let Some(v) = v { put_varint_field(out, n, u64::from(*v)) },
    r, w, t, o, { expect(w, 0)?; *t = Some(r.varint()? != 0); Ok(()) });
kind!(rep_i64: Vec<i64>, v, v.iter().map(|v| varint_field_len(n, *v as u64)).sum(), n, out,
    for v in v { put_varint_field(out, n, *v as u64) },
    r, w, t, o, read_packed(r, w, |value| t.push(value as i64)));
kind!(req_id: IdData, v, bytes_field_len(n, id_len(v)), n, out, put_id(out, n, v),
    r, w, t, o, { expect(w, 2)?; *t = read_id(r.delimited()?, 0)?; Ok(()) });
kind!(opt_id: Option<IdData>, v, v.as_ref().map_or(0, |v| bytes_field_len(n, id_len(v))), n, out,
    if let Some(v) = v { put_id(out, n, v) },
    r, w, t, o, { expect(w, 2)?; *t = Some(read_id(r.delimited()?, 0)?); Ok(()) });
kind!(rep_id: Vec<IdData>, v, v.iter().map(|v| bytes_field_len(n, id_len(v))).sum(), n, out,
    for v in v { put_id(out, n, v) },
    r, w, t, o, { expect(w, 2)?; t.push(read_id(r.delimited()?, 0)?); Ok(()) });
kind!(rep_long: Vec<pb::KeyLongValue>, v,
v.iter().map(|v| bytes_field_len(n, prost::Message::encoded_len(v))).sum(), n, out,
for v in v {
    put_varint(out, u64::from(n << 3 | 2));
    prost::Message::encode_length_delimited(v, out).expect("BytesMut grows on demand");
},
r, w, t, o, {
    expect(w, 2)?;
    t.push(prost::Message::decode(r.delimited()?).map_err(|_| MalformedHot)?);
    Ok(())
});

/// Reads a repeated scalar. Decoders must accept the packed form, although no known peer sends it
/// here.
fn read_packed(
    reader: &mut Reader<'_>,
    wire_type: u8,
    mut push: impl FnMut(u64),
) -> Result<(), MalformedHot> {
    match wire_type {
        0 => push(reader.varint()?),
        2 => {
            let mut packed = Reader::new(reader.delimited()?);
            while !packed.is_empty() {
                push(packed.varint()?);
            }
        }
        _ => return Err(MalformedHot),
    }
    Ok(())
}

fn id_len(id: &IdData) -> usize {
    varint_field_len(1, id.ledger_id)
        + varint_field_len(2, id.entry_id)
        + opt_i32::len(3, &id.partition)
        + opt_i32::len(4, &id.batch_index)
        + rep_i64::len(5, &id.ack_set)
        + opt_i32::len(6, &id.batch_size)
        + id.first_chunk_message_id.as_ref().map_or(0, |first| bytes_field_len(7, id_len(first)))
}

fn put_id(out: &mut BytesMut, field: u32, id: &IdData) {
    put_varint(out, u64::from(field << 3 | 2));
    put_varint(out, id_len(id) as u64);
    put_varint_field(out, 1, id.ledger_id);
    put_varint_field(out, 2, id.entry_id);
    opt_i32::put(out, 3, &id.partition);
    opt_i32::put(out, 4, &id.batch_index);
    rep_i64::put(out, 5, &id.ack_set);
    opt_i32::put(out, 6, &id.batch_size);
    if let Some(first) = &id.first_chunk_message_id {
        put_id(out, 7, first);
    }
}

/// Decodes a message id. A first chunk nested deeper than one level is invalid and would recurse.
fn read_id(bytes: &[u8], depth: usize) -> Result<IdData, MalformedHot> {
    let mut id = IdData::default();
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        let (field, wire_type) = reader.tag()?;
        match (field, wire_type) {
            (1, 0) => id.ledger_id = reader.varint()?,
            (2, 0) => id.entry_id = reader.varint()?,
            (3, 0) => id.partition = Some(reader.varint()? as i32),
            (4, 0) => id.batch_index = Some(reader.varint()? as i32),
            (5, _) => read_packed(&mut reader, wire_type, |word| id.ack_set.push(word as i64))?,
            (6, 0) => id.batch_size = Some(reader.varint()? as i32),
            (7, 2) if depth == 0 => {
                id.first_chunk_message_id = Some(Box::new(read_id(reader.delimited()?, depth + 1)?));
            }
            (1..=7, _) => return Err(MalformedHot),
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(id)
}

hot! {
    /// SEND: publishes an entry.
    Send {
        /// Producer id, assigned by the client.
        producer_id: u64 = 1 req_u64,
        /// Sequence id of the first message.
        sequence_id: u64 = 2 req_u64,
        /// Number of messages in the batch.
        num_messages: Option<i32> = 3 opt_i32,
        /// Transaction id, low half.
        txnid_least_bits: Option<u64> = 4 opt_u64,
        /// Transaction id, high half.
        txnid_most_bits: Option<u64> = 5 opt_u64,
        /// Sequence id of the last message of a batch.
        highest_sequence_id: Option<u64> = 6 opt_u64,
        /// Whether the entry is one chunk of a message.
        is_chunk: Option<bool> = 7 opt_bool,
        /// Whether the entry is a marker written by the broker.
        marker: Option<bool> = 8 opt_bool,
        /// Position in the source topic, for shadow topics.
        message_id: Option<IdData> = 9 opt_id,
    }
}

hot! {
    /// SEND_RECEIPT: confirms that the broker has stored the entry.
    SendReceipt {
        /// Producer id.
        producer_id: u64 = 1 req_u64,
        /// Sequence id from the SEND.
        sequence_id: u64 = 2 req_u64,
        /// Position of the entry; -1:-1 if it was dropped as a duplicate.
        message_id: Option<IdData> = 3 opt_id,
        /// Highest sequence id; meaningful only if the SEND had one.
        highest_sequence_id: Option<u64> = 4 opt_u64,
    }
}

hot! {
    /// MESSAGE: delivers an entry to a consumer.
    Delivery {
        /// Consumer id, assigned by the client.
        consumer_id: u64 = 1 req_u64,
        /// Position of the entry.
        message_id: IdData = 2 req_id,
        /// Number of earlier delivery attempts.
        redelivery_count: Option<u32> = 3 opt_u32,
        /// Bit set of the batch's messages that are still to be delivered; empty means all.
        ack_set: Vec<i64> = 4 rep_i64,
        /// Epoch, for Exclusive and Failover consumers that sent one.
        consumer_epoch: Option<u64> = 5 opt_u64,
    }
}

hot! {
    /// ACK: acknowledges messages.
    Ack {
        /// Consumer id.
        consumer_id: u64 = 1 req_u64,
        /// Type of acknowledgement: 0 individual, 1 cumulative.
        ack_type: i32 = 2 req_i32,
        /// Positions that are acknowledged.
        message_ids: Vec<IdData> = 3 rep_id,
        /// Reason for discarding a corrupt entry.
        validation_error: Option<i32> = 4 opt_i32,
        /// Properties of the acknowledgement.
        properties: Vec<pb::KeyLongValue> = 5 rep_long,
        /// Transaction id, low half.
        txnid_least_bits: Option<u64> = 6 opt_u64,
        /// Transaction id, high half.
        txnid_most_bits: Option<u64> = 7 opt_u64,
        /// Request id; if present, the broker responds with ACK_RESPONSE.
        request_id: Option<u64> = 8 opt_u64,
    }
}

hot! {
    /// FLOW: grants permits to the broker.
    Flow {
        /// Consumer id.
        consumer_id: u64 = 1 req_u64,
        /// Number of additional messages that the broker may send.
        permits: u32 = 2 req_u32,
    }
}

/// Decodes the metadata of an entry.
pub fn decode_metadata(bytes: &Bytes) -> Result<pb::MessageMetadata, MalformedHot> {
    let mut m = pb::MessageMetadata::default();
    let mut r = Reader::new(bytes);
    while !r.is_empty() {
        let (field, w) = r.tag()?;
        match (field, w) {
            (1, 2) => m.producer_name = text(r.delimited()?)?,
            (2, 0) => m.sequence_id = r.varint()?,
            (3, 0) => m.publish_time = r.varint()?,
            (4, 2) => m.properties.push(key_value(r.delimited()?)?),
            (5, 2) => m.replicated_from = Some(text(r.delimited()?)?),
            (6, 2) => m.partition_key = Some(text(r.delimited()?)?),
            (7, 2) => m.replicate_to.push(text(r.delimited()?)?),
            (8, 0) => m.compression = Some(r.varint()? as i32),
            (9, 0) => m.uncompressed_size = Some(r.varint()? as u32),
            (11, 0) => m.num_messages_in_batch = Some(r.varint()? as i32),
            (12, 0) => m.event_time = Some(r.varint()?),
            (13, 2) => {
                m.encryption_keys.push(prost::Message::decode(r.delimited()?).map_err(|_| MalformedHot)?)
            }
            (14, 2) => m.encryption_algo = Some(text(r.delimited()?)?),
            (15, 2) => m.encryption_param = Some(bytes.slice_ref(r.delimited()?)),
            (16, 2) => m.schema_version = Some(bytes.slice_ref(r.delimited()?)),
            (17, 0) => m.partition_key_b64_encoded = Some(r.varint()? != 0),
            (18, 2) => m.ordering_key = Some(bytes.slice_ref(r.delimited()?)),
            (19, 0) => m.deliver_at_time = Some(r.varint()? as i64),
            (20, 0) => m.marker_type = Some(r.varint()? as i32),
            (22, 0) => m.txnid_least_bits = Some(r.varint()?),
            (23, 0) => m.txnid_most_bits = Some(r.varint()?),
            (24, 0) => m.highest_sequence_id = Some(r.varint()?),
            (25, 0) => m.null_value = Some(r.varint()? != 0),
            (26, 2) => m.uuid = Some(text(r.delimited()?)?),
            (27, 0) => m.num_chunks_from_msg = Some(r.varint()? as i32),
            (28, 0) => m.total_chunk_msg_size = Some(r.varint()? as i32),
            (29, 0) => m.chunk_id = Some(r.varint()? as i32),
            (30, 0) => m.null_partition_key = Some(r.varint()? != 0),
            (31, _) => read_packed(&mut r, w, |v| m.compacted_batch_indexes.push(v as i32))?,
            (32, 2) => m.schema_id = Some(bytes.slice_ref(r.delimited()?)),
            (33, 0) => m.entry_hash_min = Some(r.varint()? as u32),
            (34, 0) => m.entry_hash_max = Some(r.varint()? as u32),
            (1..=9 | 11..=20 | 22..=34, _) => return Err(MalformedHot),
            _ => r.skip(w)?,
        }
    }
    Ok(m)
}

/// Appends the metadata of an entry.
pub fn encode_metadata(m: &pb::MessageMetadata, out: &mut BytesMut) {
    put_bytes_field(out, 1, m.producer_name.as_bytes());
    put_varint_field(out, 2, m.sequence_id);
    put_varint_field(out, 3, m.publish_time);
    for property in &m.properties {
        put_key_value(out, 4, &property.key, &property.value);
    }
    put_text(out, 5, m.replicated_from.as_deref());
    put_text(out, 6, m.partition_key.as_deref());
    for cluster in &m.replicate_to {
        put_bytes_field(out, 7, cluster.as_bytes());
    }
    opt_i32::put(out, 8, &m.compression);
    opt_u32::put(out, 9, &m.uncompressed_size);
    opt_i32::put(out, 11, &m.num_messages_in_batch);
    opt_u64::put(out, 12, &m.event_time);
    for key in &m.encryption_keys {
        put_varint(out, 13 << 3 | 2);
        prost::Message::encode_length_delimited(key, out).expect("BytesMut grows on demand");
    }
    put_text(out, 14, m.encryption_algo.as_deref());
    put_blob(out, 15, m.encryption_param.as_deref());
    put_blob(out, 16, m.schema_version.as_deref());
    opt_bool::put(out, 17, &m.partition_key_b64_encoded);
    put_blob(out, 18, m.ordering_key.as_deref());
    if let Some(at) = m.deliver_at_time {
        put_varint_field(out, 19, at as u64);
    }
    opt_i32::put(out, 20, &m.marker_type);
    opt_u64::put(out, 22, &m.txnid_least_bits);
    opt_u64::put(out, 23, &m.txnid_most_bits);
    opt_u64::put(out, 24, &m.highest_sequence_id);
    opt_bool::put(out, 25, &m.null_value);
    put_text(out, 26, m.uuid.as_deref());
    opt_i32::put(out, 27, &m.num_chunks_from_msg);
    opt_i32::put(out, 28, &m.total_chunk_msg_size);
    opt_i32::put(out, 29, &m.chunk_id);
    opt_bool::put(out, 30, &m.null_partition_key);
    for index in &m.compacted_batch_indexes {
        put_varint_field(out, 31, signed(*index));
    }
    put_blob(out, 32, m.schema_id.as_deref());
    opt_u32::put(out, 33, &m.entry_hash_min);
    opt_u32::put(out, 34, &m.entry_hash_max);
}

/// Decodes the metadata of a message in a batch.
pub fn decode_single(bytes: &Bytes) -> Result<pb::SingleMessageMetadata, MalformedHot> {
    let mut m = pb::SingleMessageMetadata::default();
    let mut r = Reader::new(bytes);
    while !r.is_empty() {
        let (field, w) = r.tag()?;
        match (field, w) {
            (1, 2) => m.properties.push(key_value(r.delimited()?)?),
            (2, 2) => m.partition_key = Some(text(r.delimited()?)?),
            (3, 0) => m.payload_size = r.varint()? as i32,
            (4, 0) => m.compacted_out = Some(r.varint()? != 0),
            (5, 0) => m.event_time = Some(r.varint()?),
            (6, 0) => m.partition_key_b64_encoded = Some(r.varint()? != 0),
            (7, 2) => m.ordering_key = Some(bytes.slice_ref(r.delimited()?)),
            (8, 0) => m.sequence_id = Some(r.varint()?),
            (9, 0) => m.null_value = Some(r.varint()? != 0),
            (10, 0) => m.null_partition_key = Some(r.varint()? != 0),
            (1..=10, _) => return Err(MalformedHot),
            _ => r.skip(w)?,
        }
    }
    Ok(m)
}

/// Appends the metadata of a message in a batch.
pub fn encode_single(m: &pb::SingleMessageMetadata, out: &mut BytesMut) {
    for property in &m.properties {
        put_key_value(out, 1, &property.key, &property.value);
    }
    put_text(out, 2, m.partition_key.as_deref());
    put_varint_field(out, 3, signed(m.payload_size));
    opt_bool::put(out, 4, &m.compacted_out);
    opt_u64::put(out, 5, &m.event_time);
    opt_bool::put(out, 6, &m.partition_key_b64_encoded);
    put_blob(out, 7, m.ordering_key.as_deref());
    opt_u64::put(out, 8, &m.sequence_id);
    opt_bool::put(out, 9, &m.null_value);
    opt_bool::put(out, 10, &m.null_partition_key);
}

/// Appends one message of a batch, `[u32 size][SingleMessageMetadata][payload]`, directly from the
/// caller's data: without an intermediate struct and with a single copy of the payload.
pub fn encode_batched(message: &Outgoing<'_>, sequence_id: u64, out: &mut BytesMut) {
    let start = out.len();
    out.reserve(message.payload.len() + 64);
    out.extend_from_slice(&[0; 4]);
    for (name, value) in message.properties {
        put_key_value(out, 1, name, value);
    }
    put_text(out, 2, message.key);
    put_varint_field(out, 3, message.payload.len() as u64);
    if message.event_time != 0 {
        put_varint_field(out, 5, message.event_time);
    }
    if message.key_is_base64 {
        put_varint_field(out, 6, 1);
    }
    put_blob(out, 7, message.ordering_key);
    put_varint_field(out, 8, sequence_id);
    if message.null_value {
        put_varint_field(out, 9, 1);
    }
    let size = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&size.to_be_bytes());
    out.extend_from_slice(message.payload);
}

fn put_text(out: &mut BytesMut, field: u32, value: Option<&str>) {
    put_blob(out, field, value.map(str::as_bytes));
}

fn put_blob(out: &mut BytesMut, field: u32, value: Option<&[u8]>) {
    if let Some(value) = value {
        put_bytes_field(out, field, value);
    }
}

fn put_key_value(out: &mut BytesMut, field: u32, key: &str, value: &str) {
    put_varint(out, u64::from(field << 3 | 2));
    put_varint(out, (bytes_field_len(1, key.len()) + bytes_field_len(2, value.len())) as u64);
    put_bytes_field(out, 1, key.as_bytes());
    put_bytes_field(out, 2, value.as_bytes());
}

fn key_value(bytes: &[u8]) -> Result<pb::KeyValue, MalformedHot> {
    let mut pair = pb::KeyValue::default();
    let mut r = Reader::new(bytes);
    while !r.is_empty() {
        let (field, w) = r.tag()?;
        match (field, w) {
            (1, 2) => pair.key = text(r.delimited()?)?,
            (2, 2) => pair.value = text(r.delimited()?)?,
            (1 | 2, _) => return Err(MalformedHot),
            _ => r.skip(w)?,
        }
    }
    Ok(pair)
}

fn text(bytes: &[u8]) -> Result<String, MalformedHot> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| MalformedHot)
}

#[cfg(test)]
mod tests;
