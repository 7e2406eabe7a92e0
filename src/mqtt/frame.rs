//! The fixed header: bytes to frames and back (2.1).
//!
//! ```text
//! [type 4 bits | flags 4 bits][remaining length: 1 to 4 bytes, 7 bits each, least significant first][body]
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::mqtt::packet::Kind;
use crate::mqtt::{QoS, Reason, Violation};
use crate::wire::Reader;

/// Largest remaining length that four bytes can say.
pub const MAX_REMAINING_LENGTH: usize = 268_435_455;
/// Largest fixed header.
pub const MAX_FIXED_HEADER: usize = 5;

/// One control packet, its body not yet read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Type and flags.
    pub first: u8,
    /// What follows the fixed header.
    pub body: Bytes,
}

/// Takes the first frame out of `input`, or nothing when it is not whole yet. A frame of more than
/// `max_packet_size` bytes in all, or with a first byte that is wrong in every version, is refused when its header
/// has come, before its body is waited for.
pub fn split(input: &mut BytesMut, max_packet_size: usize) -> Result<Option<Frame>, Violation> {
    let mut reader = Reader::new(input);
    let Ok(first) = reader.u8() else { return Ok(None) };
    match Kind::of(first) {
        None => return Err(Violation::malformed("a packet of type 0")),
        Some(Kind::Publish) => {
            publish_flags(first)?;
        }
        Some(_) => {}
    }
    let Some(length) = partial_varint(&mut reader)? else { return Ok(None) };
    let header = input.len() - reader.remaining();
    let total = header + length as usize;
    if total > max_packet_size {
        return Err(Violation {
            reason: Reason::PacketTooLarge,
            message: format!(
                "a packet of {total} bytes, more than the maximum packet size {max_packet_size}"
            ),
        });
    }
    if input.len() < total {
        return Ok(None);
    }
    let mut body = input.split_to(total);
    body.advance(header);
    Ok(Some(Frame { first, body: body.freeze() }))
}

/// QoS and DUP of a PUBLISH (3.3.1).
pub(super) fn publish_flags(first: u8) -> Result<(QoS, bool), Violation> {
    let qos = QoS::from_bits(first >> 1 & 3).ok_or_else(|| Violation::malformed("PUBLISH with QoS 3"))?;
    let dup = first & 0b1000 != 0;
    if dup && qos == QoS::AtMostOnce {
        return Err(Violation::malformed("PUBLISH with DUP and QoS 0"));
    }
    Ok((qos, dup))
}

/// A variable byte integer (1.5.5), or `None` when its last byte has not come.
fn partial_varint(reader: &mut Reader<'_>) -> Result<Option<u32>, Violation> {
    let mut value = 0;
    for shift in [0, 7, 14, 21] {
        let Ok(byte) = reader.u8() else { return Ok(None) };
        value |= u32::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(Some(value));
        }
    }
    Err(Violation::malformed("a length of more than four bytes"))
}

/// A variable byte integer of 5.0, which has to use as few bytes as it can [MQTT-1.5.5-1].
pub fn read_varint(reader: &mut Reader<'_>) -> Result<u32, Violation> {
    let before = reader.remaining();
    let value = partial_varint(reader)?
        .ok_or_else(|| Violation::malformed("the packet ends inside a variable byte integer"))?;
    if before - reader.remaining() > varint_len(value as usize) {
        return Err(Violation::malformed("a variable byte integer with more bytes than it needs"));
    }
    Ok(value)
}

/// Number of bytes of `value` as a variable byte integer.
pub const fn varint_len(value: usize) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}

/// Appends a variable byte integer.
pub fn put_varint(out: &mut BytesMut, value: usize) {
    debug_assert!(value <= MAX_REMAINING_LENGTH);
    crate::wire::put_varint(out, value as u64);
}

/// Appends a fixed header.
pub fn put_header(out: &mut BytesMut, first: u8, length: usize) {
    out.put_u8(first);
    put_varint(out, length);
}
