//! Frames: length and command; for SEND and MESSAGE also checksum, metadata and payload.
//!
//! ```text
//! simple    [total u32][command size u32][BaseCommand]
//! payload   … [0x0e02 u16][size u32][BrokerEntryMetadata]  only from a broker, on request
//!             [0x0e01 u16][crc32c u32]                     absent if the producer sends none
//!             [metadata size u32][MessageMetadata][payload] the bytes that are checked
//! ```
//! All integers are big-endian; `total` does not count itself.

use bytes::{Buf, Bytes, BytesMut};

use crate::command::Command;
use crate::{hot, pb};
use forebay_base::checksum::crc32c;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::transmit::Transmit;
use forebay_base::wire::{Reader, make_room};

/// Maximum message size if the broker does not announce another one.
pub const DEFAULT_MAX_MESSAGE_SIZE: usize = 5 << 20;
/// Number of bytes by which a frame may exceed the maximum message size.
pub const FRAME_PADDING: usize = 10 << 10;

const CHECKSUM_MAGIC: u16 = 0x0e01;
const ENTRY_METADATA_MAGIC: u16 = 0x0e02;

/// A single frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// The command.
    pub command: Command,
    /// The entry; present in SEND and MESSAGE only.
    pub payload: Option<Payload>,
}

/// The entry of a SEND or MESSAGE. Its parts are decoded on demand, since a broker stores them
/// unchanged.
#[derive(Clone, Debug, PartialEq)]
pub struct Payload {
    /// Metadata that the broker added.
    pub entry: Option<pb::BrokerEntryMetadata>,
    /// CRC-32C as received; `None` if the sender did not compute one.
    pub checksum: Option<u32>,
    /// The bytes that the checksum covers: `[metadata size u32][MessageMetadata][payload]`.
    pub covered: Bytes,
}

impl Payload {
    /// Returns true if the checksum matches or is absent.
    pub fn checksum_ok(&self) -> bool {
        self.checksum.is_none_or(|expected| crc32c(0, &self.covered) == expected)
    }

    /// Splits the entry into its encoded metadata and the payload after it.
    pub fn split(&self) -> Result<(Bytes, Bytes)> {
        let mut reader = Reader::new(&self.covered);
        let size = reader.u32()? as usize;
        let metadata = self.covered.slice_ref(reader.take(size).map_err(|_| {
            Error::protocol(format!(
                "the peer sent an entry of {} bytes that claims {size} bytes of metadata",
                self.covered.len()
            ))
        })?);
        Ok((metadata, self.covered.slice(4 + size..)))
    }

    /// Decodes the metadata.
    pub fn metadata(&self) -> Result<pb::MessageMetadata> {
        Ok(hot::decode_metadata(&self.split()?.0)?)
    }

    /// The payload as sent: possibly compressed, possibly a batch.
    pub fn body(&self) -> Result<Bytes> {
        Ok(self.split()?.1)
    }

    /// Joins encoded metadata and payload, and computes their checksum.
    pub fn build(metadata: &[u8], body: &[u8]) -> Self {
        let mut covered = BytesMut::with_capacity(4 + metadata.len() + body.len());
        covered.extend_from_slice(&(metadata.len() as u32).to_be_bytes());
        covered.extend_from_slice(metadata);
        covered.extend_from_slice(body);
        let covered = covered.freeze();
        Self { entry: None, checksum: Some(crc32c(0, &covered)), covered }
    }

    fn decode(mut rest: Bytes) -> Result<Self> {
        let mut entry = None;
        if peek_magic(&rest) == Some(ENTRY_METADATA_MAGIC) {
            let mut reader = Reader::new(&rest[2..]);
            let size = reader.u32()? as usize;
            let bytes = reader.take(size)?;
            entry = Some(prost::Message::decode(bytes).map_err(|e| {
                Error::protocol(format!("the broker sent malformed BrokerEntryMetadata: {e}"))
            })?);
            rest.advance(6 + size);
        }
        let mut checksum = None;
        if peek_magic(&rest) == Some(CHECKSUM_MAGIC) {
            checksum = Some(Reader::new(&rest[2..]).u32()?);
            rest.advance(6);
        }
        Ok(Self { entry, checksum, covered: rest })
    }

    fn header(&self, out: &mut BytesMut) {
        if let Some(entry) = &self.entry {
            out.extend_from_slice(&ENTRY_METADATA_MAGIC.to_be_bytes());
            out.extend_from_slice(&(prost::Message::encoded_len(entry) as u32).to_be_bytes());
            prost::Message::encode(entry, out).expect("BytesMut grows on demand");
        }
        if let Some(checksum) = self.checksum {
            out.extend_from_slice(&CHECKSUM_MAGIC.to_be_bytes());
            out.extend_from_slice(&checksum.to_be_bytes());
        }
    }

    fn header_len(&self) -> usize {
        self.entry.as_ref().map_or(0, |entry| 6 + prost::Message::encoded_len(entry))
            + if self.checksum.is_some() { 6 } else { 0 }
    }
}

fn peek_magic(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().map(|b| u16::from_be_bytes(*b))
}

impl Frame {
    /// Creates a frame without an entry.
    pub fn simple(command: Command) -> Self {
        Self { command, payload: None }
    }

    /// Appends the frame. Large covered bytes are chained by reference.
    pub fn encode(&self, out: &mut Transmit) {
        match &self.payload {
            None => out.append(|buffer| encode_command(&self.command, buffer)),
            Some(payload) => {
                out.append(|buffer| encode_head(&self.command, payload, buffer));
                out.push(payload.covered.clone());
            }
        }
    }

    /// Encodes the frame into a buffer of its own.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = Transmit::default();
        self.encode(&mut out);
        out.take().freeze()
    }

    fn decode(bytes: Bytes) -> Result<Self> {
        let mut reader = Reader::new(&bytes);
        let size = reader.u32()? as usize;
        let command = Command::decode(&bytes.slice_ref(reader.take(size).map_err(|_| {
            Error::protocol(format!(
                "the peer sent a frame of {} bytes that claims a command of {size}",
                bytes.len()
            ))
        })?))?;
        let rest = bytes.slice(4 + size..);
        let payload = match command {
            Command::Send(_) | Command::Message(_) => Some(Payload::decode(rest)?),
            _ => None,
        };
        Ok(Self { command, payload })
    }
}

/// Appends a frame without an entry.
pub fn encode_command(command: &Command, out: &mut BytesMut) {
    let size = command.encoded_len();
    out.reserve(size + 8);
    out.extend_from_slice(&((size + 4) as u32).to_be_bytes());
    out.extend_from_slice(&(size as u32).to_be_bytes());
    command.encode(out);
}

/// Appends the part of a SEND or MESSAGE that precedes the covered bytes.
pub fn encode_head(command: &Command, payload: &Payload, out: &mut BytesMut) {
    let size = command.encoded_len();
    let total = 4 + size + payload.header_len() + payload.covered.len();
    out.reserve(size + 64);
    out.extend_from_slice(&(total as u32).to_be_bytes());
    out.extend_from_slice(&(size as u32).to_be_bytes());
    command.encode(out);
    payload.header(out);
}

/// Encodes the part of a SEND that precedes the body, with a checksum over both metadata and body.
/// A large body can then be sent from where it is, instead of being copied behind its metadata.
pub fn entry_head(command: &Command, metadata: &pb::MessageMetadata, body: &[u8]) -> Bytes {
    let mut encoded = BytesMut::with_capacity(128);
    encoded.extend_from_slice(&[0; 4]);
    hot::encode_metadata(metadata, &mut encoded);
    let size = (encoded.len() - 4) as u32;
    encoded[..4].copy_from_slice(&size.to_be_bytes());
    let checksum = crc32c(crc32c(0, &encoded), body);
    let command_size = command.encoded_len();
    let total = 4 + command_size + 6 + encoded.len() + body.len();
    let mut out = BytesMut::with_capacity(4 + total - body.len());
    out.extend_from_slice(&(total as u32).to_be_bytes());
    out.extend_from_slice(&(command_size as u32).to_be_bytes());
    command.encode(&mut out);
    out.extend_from_slice(&CHECKSUM_MAGIC.to_be_bytes());
    out.extend_from_slice(&checksum.to_be_bytes());
    out.extend_from_slice(&encoded);
    out.freeze()
}

/// Splits a byte stream into frames. Never buffers more than the limit allows.
#[derive(Clone, Debug)]
pub struct Decoder {
    max_frame: usize,
}

impl Decoder {
    /// Creates a decoder that rejects frames longer than `max_message_size` plus [`FRAME_PADDING`].
    pub fn new(max_message_size: usize) -> Self {
        Self { max_frame: max_message_size + FRAME_PADDING }
    }

    /// Changes the limit, once the handshake has announced it.
    pub fn set_max_message_size(&mut self, max_message_size: usize) {
        self.max_frame = max_message_size + FRAME_PADDING;
    }

    /// Takes the next complete frame out of `input`; `None` if more bytes are needed.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Frame>> {
        let Some(total) = input.first_chunk().map(|b| u32::from_be_bytes(*b) as usize) else {
            return Ok(None);
        };
        if total > self.max_frame {
            return Err(Error::new(
                ErrorKind::FrameTooLarge,
                format!("the peer sent a frame of {total} bytes; the limit is {}", self.max_frame),
            ));
        }
        if input.len() < 4 + total {
            make_room(input, 4 + total);
            return Ok(None);
        }
        input.advance(4);
        Frame::decode(input.split_to(total).freeze()).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn send() -> Frame {
        let mut metadata = BytesMut::new();
        hot::encode_metadata(
            &pb::MessageMetadata {
                producer_name: "p".into(),
                sequence_id: 1,
                publish_time: 2,
                ..Default::default()
            },
            &mut metadata,
        );
        Frame {
            command: Command::Send(hot::Send { producer_id: 1, sequence_id: 7, ..Default::default() }),
            payload: Some(Payload::build(&metadata, b"payload")),
        }
    }

    #[test]
    fn a_frame_cut_at_every_byte_waits_for_the_rest() {
        let bytes = send().to_bytes();
        for cut in 0..bytes.len() {
            let mut decoder = Decoder::new(100);
            let mut input = BytesMut::from(&bytes[..cut]);
            assert_eq!(decoder.next(&mut input).unwrap(), None);
            input.extend_from_slice(&bytes[cut..]);
            assert_eq!(decoder.next(&mut input).unwrap(), Some(send()));
            assert!(input.is_empty());
        }
    }

    #[test]
    fn every_flipped_bit_is_an_error_a_wait_or_found_by_the_checksum() {
        let bytes = send().to_bytes();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = BytesMut::from(&bytes[..]);
            damaged[bit / 8] ^= 1 << (bit % 8);
            if let Ok(Some(frame)) = Decoder::new(100).next(&mut damaged) {
                let same = frame
                    .payload
                    .as_ref()
                    .is_some_and(|p| p.checksum_ok() && p.covered == send().payload.unwrap().covered);
                let detected = frame.payload.as_ref().is_none_or(|p| !p.checksum_ok());
                // The checksum covers everything but the command and the optional framing around
                // it.
                assert!(same || detected || frame.payload.unwrap().checksum.is_none(), "bit {bit}");
            }
        }
    }

    #[test]
    fn a_frame_over_the_limit_is_refused_before_it_arrives() {
        let mut input = BytesMut::from(&u32::MAX.to_be_bytes()[..]);
        assert_eq!(Decoder::new(100).next(&mut input).unwrap_err().kind(), ErrorKind::FrameTooLarge);
    }

    #[test]
    fn lying_inner_lengths_are_errors() {
        for bytes in [&[0, 0, 0, 4, 0, 0, 0, 9][..], &[0, 0, 0, 0], &[0, 0, 0, 6, 0, 0, 0, 2, 0x08, 0x06]] {
            assert!(Decoder::new(100).next(&mut BytesMut::from(bytes)).is_err(), "{bytes:?}");
        }
        let payload =
            Payload { entry: None, checksum: None, covered: Bytes::from_static(&[0, 0, 0, 200, 1]) };
        assert!(payload.split().is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut input = BytesMut::from(&bytes[..]);
            while let Ok(Some(frame)) = Decoder::new(1000).next(&mut input) {
                if let Some(payload) = frame.payload {
                    let _ = (payload.checksum_ok(), payload.metadata(), payload.body());
                }
            }
        }
    }
}
