//! The data types of the standard: variable byte integers, strings and binary data (1.5).

use bytes::{BufMut, Bytes, BytesMut};
use bytestring::ByteString;

use crate::Violation;
use forebay_base::wire::Reader;

/// Maximum value of a variable byte integer, which has four bytes.
pub(super) const MAX_VARINT: usize = 268_435_455;

/// Reads a variable byte integer (1.5.5); `None` if its last byte has not arrived.
pub(super) fn partial_varint(reader: &mut Reader<'_>) -> Result<Option<u32>, Violation> {
    let mut value = 0;
    for shift in [0, 7, 14, 21] {
        let Ok(byte) = reader.u8() else { return Ok(None) };
        value |= u32::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(Some(value));
        }
    }
    Err(Violation::malformed("a variable byte integer has more than four bytes (1.5.5)"))
}

/// Reads a variable byte integer of MQTT 5, which must use the shortest encoding [MQTT-1.5.5-1].
pub(super) fn read_varint(reader: &mut Reader<'_>) -> Result<u32, Violation> {
    let before = reader.remaining();
    let value = partial_varint(reader)?
        .ok_or_else(|| Violation::malformed("the packet ends inside a variable byte integer (1.5.5)"))?;
    if before - reader.remaining() > varint_len(value as usize) {
        return Err(Violation::malformed(
            "a variable byte integer is not encoded in the fewest possible bytes (1.5.5)",
        ));
    }
    Ok(value)
}

/// Encoded size of `value` as a variable byte integer.
pub(super) const fn varint_len(value: usize) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}

/// Appends a variable byte integer.
pub(super) fn put_varint(out: &mut BytesMut, value: usize) {
    debug_assert!(value <= MAX_VARINT);
    forebay_base::wire::put_varint(out, value as u64);
}

/// Reads a string: a two-byte length and UTF-8 without U+0000 (1.5.4).
pub(super) fn read_text(reader: &mut Reader<'_>, body: &Bytes) -> Result<ByteString, Violation> {
    let text = ByteString::try_from(read_binary(reader, body)?)
        .map_err(|_| Violation::malformed("a string is not valid UTF-8 (1.5.4)"))?;
    if text.contains('\0') {
        return Err(Violation::malformed("a string contains the character U+0000 (1.5.4)"));
    }
    Ok(text)
}

/// Reads binary data: a two-byte length and that many bytes (1.5.6).
pub(super) fn read_binary(reader: &mut Reader<'_>, body: &Bytes) -> Result<Bytes, Violation> {
    let length = reader.u16()?;
    Ok(body.slice_ref(reader.take(usize::from(length))?))
}

/// Appends binary data or a string.
pub(super) fn put_binary(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u16(bytes.len() as u16);
    out.put_slice(bytes);
}
