//! Encoding and decoding without I/O: a bounds-checked [`Reader`] over a slice, protobuf's varints
//! and tags, and the big-endian integers that all three protocols use. No allocation depends on a
//! length that the input merely claims.

use bytes::{BufMut, BytesMut};

/// The input ended in the middle of a value. Carries no data, because partial reads are frequent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnexpectedEnd;

/// A cursor over a slice. Each read is bounds-checked.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Creates a reader at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The unread bytes.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether all bytes have been read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Number of unread bytes.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Reads `n` bytes.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], UnexpectedEnd> {
        if n > self.rest.len() {
            return Err(UnexpectedEnd);
        }
        let (head, rest) = self.rest.split_at(n);
        self.rest = rest;
        Ok(head)
    }

    /// Reads one byte.
    pub fn u8(&mut self) -> Result<u8, UnexpectedEnd> {
        Ok(self.take(1)?[0])
    }

    /// Reads a big-endian `u16`.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, UnexpectedEnd> {
        let b = self.take(2)?;
        Ok(u16::from_be_bytes([b[0], b[1]]))
    }

    /// Reads a big-endian `u32`.
    pub fn u32(&mut self) -> Result<u32, UnexpectedEnd> {
        let b = self.take(4)?;
        Ok(u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// Reads a little-endian `u64` (protobuf's fixed64).
    pub fn u64_le(&mut self) -> Result<u64, UnexpectedEnd> {
        let b = self.take(8)?;
        Ok(u64::from_le_bytes(b.try_into().expect("eight bytes")))
    }

    /// Reads a protobuf varint of at most ten bytes.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, UnexpectedEnd> {
        let mut value = 0_u64;
        for (i, &byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.rest = &self.rest[i + 1..];
                return Ok(value);
            }
        }
        Err(UnexpectedEnd)
    }

    /// Reads the content of a length-delimited field.
    #[inline]
    pub fn delimited(&mut self) -> Result<&'a [u8], UnexpectedEnd> {
        let length = self.varint()?;
        self.take(usize::try_from(length).map_err(|_| UnexpectedEnd)?)
    }

    /// Reads a protobuf tag: field number and wire type.
    #[inline]
    pub fn tag(&mut self) -> Result<(u32, u8), UnexpectedEnd> {
        let tag = u32::try_from(self.varint()?).map_err(|_| UnexpectedEnd)?;
        Ok((tag >> 3, (tag & 7) as u8))
    }

    /// Skips a field of the given wire type. Groups are rejected.
    pub fn skip(&mut self, wire_type: u8) -> Result<(), UnexpectedEnd> {
        match wire_type {
            0 => drop(self.varint()?),
            1 => drop(self.take(8)?),
            2 => drop(self.delimited()?),
            5 => drop(self.take(4)?),
            _ => return Err(UnexpectedEnd),
        }
        Ok(())
    }
}

/// Grows `input`, which begins with a frame of `frame` bytes, to exactly that frame's size, so that
/// the frame can be held in a buffer of its own. An incomplete frame reserves at most [`CLAIM`]
/// bytes, or four times the bytes that have arrived if that is more.
pub fn make_room(input: &mut BytesMut, frame: usize) {
    if frame > input.capacity() {
        let capacity = frame.min(CLAIM.max(4 * input.len()));
        if capacity > input.capacity() {
            move_to(input, capacity);
        }
    }
}

/// Number of bytes that [`make_room`] reserves for a frame that has barely begun.
pub const CLAIM: usize = 256 << 10;

/// Moves `input` to a new buffer of `capacity` bytes, which must not be less than its length.
/// `BytesMut::reserve` would allocate up to twice as much, and that memory could not be used for
/// anything but the next frames as long as frames in the buffer are held.
pub fn move_to(input: &mut BytesMut, capacity: usize) {
    let mut moved = BytesMut::with_capacity(capacity);
    moved.extend_from_slice(input);
    *input = moved;
}

/// Encoded size of `value` as a varint.
#[inline]
pub const fn varint_len(value: u64) -> usize {
    // Each byte carries seven bits; zero takes one byte.
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Appends `value` as a varint.
#[inline]
pub fn put_varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Appends a varint field.
#[inline]
pub fn put_varint_field(out: &mut BytesMut, field: u32, value: u64) {
    put_varint(out, u64::from(field << 3));
    put_varint(out, value);
}

/// Appends the tag and the length of a length-delimited field, of which `length` bytes follow.
#[inline]
pub fn put_bytes_head(out: &mut BytesMut, field: u32, length: usize) {
    put_varint(out, u64::from(field << 3 | 2));
    put_varint(out, length as u64);
}

/// Appends a length-delimited field.
#[inline]
pub fn put_bytes_field(out: &mut BytesMut, field: u32, value: &[u8]) {
    put_bytes_head(out, field, value.len());
    out.put_slice(value);
}

/// Sign-extends an `int32` as protobuf does.
#[inline]
pub const fn signed(value: i32) -> u64 {
    value as i64 as u64
}

/// Encoded size of a varint field.
#[inline]
pub const fn varint_field_len(field: u32, value: u64) -> usize {
    varint_len((field << 3) as u64) + varint_len(value)
}

/// Encoded size of a length-delimited field with `length` bytes of content.
#[inline]
pub const fn bytes_field_len(field: u32, length: usize) -> usize {
    varint_len((field << 3) as u64) + varint_len(length as u64) + length
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_varint_reads_back_and_its_length_is_known(value: u64) {
            let mut out = BytesMut::new();
            put_varint(&mut out, value);
            prop_assert_eq!(out.len(), varint_len(value));
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint(), Ok(value));
            prop_assert!(reader.is_empty());
            for cut in 0..out.len() {
                prop_assert_eq!(Reader::new(&out[..cut]).varint(), Err(UnexpectedEnd));
            }
        }
    }

    #[test]
    fn room_is_made_for_what_is_missing_but_not_for_a_mere_claim() {
        let mut input = BytesMut::with_capacity(100);
        input.extend_from_slice(&[1; 80]);
        make_room(&mut input, 100);
        assert_eq!(input.capacity(), 100, "it fits");
        make_room(&mut input, 140 << 10);
        assert_eq!((input.capacity(), &input[..]), (140 << 10, &[1; 80][..]));
        make_room(&mut input, 5 << 20);
        assert_eq!(input.capacity(), CLAIM);
        input.resize(CLAIM, 2);
        make_room(&mut input, 5 << 20);
        assert_eq!(input.capacity(), 4 * CLAIM);
        input.resize(4 * CLAIM, 3);
        make_room(&mut input, 5 << 20);
        assert_eq!((input.capacity(), input.len()), (4 << 20, 4 * CLAIM));
        input.resize(4 << 20, 4);
        make_room(&mut input, 5 << 20);
        assert_eq!(input.capacity(), 5 << 20, "and no more");
    }

    #[test]
    fn an_endless_varint_is_refused() {
        assert_eq!(Reader::new(&[0xff; 32]).varint(), Err(UnexpectedEnd));
    }
}
