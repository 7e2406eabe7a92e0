//! The fixed header, which splits a byte stream into packets (2.1).
//!
//! ```text
//! [type 4 bits | flags 4 bits][remaining length][body]
//!
//! remaining length: 1 to 4 bytes of 7 bits each, least significant first
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::data::{MAX_VARINT, partial_varint, put_varint};
use crate::kind::Kind;
use crate::{QoS, Reason, Violation};
use forebay_base::wire::Reader;

/// Maximum remaining length, limited by its encoding.
pub const MAX_REMAINING_LENGTH: usize = MAX_VARINT;
/// Maximum size of the fixed header in bytes.
pub const MAX_FIXED_HEADER: usize = 5;

/// A control packet whose body has not been decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// First byte: packet type and flags.
    pub first: u8,
    /// Bytes after the fixed header.
    pub body: Bytes,
}

/// Splits a byte stream into frames.
#[derive(Clone, Debug)]
pub struct Decoder {
    max_packet_size: usize,
}

impl Decoder {
    /// Creates a decoder that rejects frames larger than `max_packet_size` in total.
    pub fn new(max_packet_size: usize) -> Self {
        Self { max_packet_size }
    }

    /// Takes the next complete frame out of `input`; `None` if more bytes are needed. A frame that
    /// is too large, or with a first byte that is invalid in every version, is rejected as soon as
    /// its header has arrived, without waiting for its body.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, Violation> {
        let mut reader = Reader::new(input);
        let Ok(first) = reader.u8() else { return Ok(None) };
        match Kind::of(first) {
            None => return Err(Violation::malformed("the packet has the reserved type 0 (2.1.2)")),
            Some(Kind::Publish) => {
                publish_flags(first)?;
            }
            Some(_) => {}
        }
        let Some(length) = partial_varint(&mut reader)? else { return Ok(None) };
        let header = input.len() - reader.remaining();
        let total = header + length as usize;
        if total > self.max_packet_size {
            return Err(Violation {
                reason: Reason::PacketTooLarge,
                message: format!(
                    "the packet has {total} bytes; the maximum packet size is {} (3.1.2.11.4)",
                    self.max_packet_size
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
}

/// Extracts QoS and DUP from the first byte of a PUBLISH (3.3.1).
pub(super) fn publish_flags(first: u8) -> Result<(QoS, bool), Violation> {
    let qos =
        QoS::from_bits(first >> 1 & 3).ok_or_else(|| Violation::malformed("PUBLISH has QoS 3 (3.3.1.2)"))?;
    let dup = first & 0b1000 != 0;
    if dup && qos == QoS::AtMostOnce {
        return Err(Violation::malformed("PUBLISH has DUP set with QoS 0 (3.3.1.1)"));
    }
    Ok((qos, dup))
}

/// Appends a fixed header.
pub fn put_header(out: &mut BytesMut, first: u8, length: usize) {
    out.put_u8(first);
    put_varint(out, length);
}
