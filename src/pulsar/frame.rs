//! Frames: length, command, and for SEND and MESSAGE the checksum, metadata and payload.
//!
//! ```text
//! simple    [total u32][command size u32][BaseCommand]
//! payload   … [0x0e02 u16][size u32][BrokerEntryMetadata]      only from a broker, only if asked for
//!             [0x0e01 u16][crc32c u32]                         absent from producers that do not checksum
//!             [metadata size u32][MessageMetadata][payload]    what the checksum covers
//! ```
//! All integers are big-endian; `total` does not count itself.

use bytes::{Buf, Bytes, BytesMut};

use crate::checksum::crc32c;
use crate::error::{Error, ErrorKind, Result};
use crate::pulsar::command::Command;
use crate::pulsar::{hot, pb};
use crate::transmit::Transmit;
use crate::wire::{Reader, make_room};

/// Largest message, unless the broker announces another size.
pub const DEFAULT_MAX_MESSAGE_SIZE: usize = 5 << 20;
/// What a frame may be longer than the largest message.
pub const FRAME_PADDING: usize = 10 << 10;

const CHECKSUM_MAGIC: u16 = 0x0e01;
const ENTRY_METADATA_MAGIC: u16 = 0x0e02;

/// One frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// What it asks or says.
    pub command: Command,
    /// The entry that SEND and MESSAGE carry.
    pub payload: Option<Payload>,
}

/// The entry of a SEND or MESSAGE. Its parts are read when asked for: a broker stores them as they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Payload {
    /// What the broker added.
    pub entry: Option<pb::BrokerEntryMetadata>,
    /// CRC-32C as sent; `None` when the sender did not make one.
    pub checksum: Option<u32>,
    /// What the checksum covers: `[metadata size u32][MessageMetadata][payload]`.
    pub covered: Bytes,
}

impl Payload {
    /// Whether the checksum matches, or there is none.
    pub fn checksum_ok(&self) -> bool {
        self.checksum.is_none_or(|expected| crc32c(0, &self.covered) == expected)
    }

    /// The encoded metadata and the payload behind it.
    pub fn split(&self) -> Result<(Bytes, Bytes)> {
        let mut reader = Reader::new(&self.covered);
        let size = reader.u32()? as usize;
        let metadata = self.covered.slice_ref(reader.take(size).map_err(|_| {
            Error::protocol(format!("metadata of {size} bytes in an entry of {}", self.covered.len()))
        })?);
        Ok((metadata, self.covered.slice(4 + size..)))
    }

    /// The decoded metadata.
    pub fn metadata(&self) -> Result<pb::MessageMetadata> {
        Ok(hot::decode_metadata(&self.split()?.0)?)
    }

    /// The payload: compressed, perhaps a batch.
    pub fn body(&self) -> Result<Bytes> {
        Ok(self.split()?.1)
    }

    /// Joins encoded metadata and payload and checksums them.
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
            entry = Some(
                prost::Message::decode(bytes)
                    .map_err(|e| Error::protocol(format!("broker entry metadata cannot be decoded: {e}")))?,
            );
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
            prost::Message::encode(entry, out).expect("a BytesMut grows");
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
    /// A frame without an entry.
    pub fn simple(command: Command) -> Self {
        Self { command, payload: None }
    }

    /// Appends the frame. The covered bytes are chained by reference when they are large.
    pub fn encode(&self, out: &mut Transmit) {
        match &self.payload {
            None => out.append(|buffer| encode_command(&self.command, buffer)),
            Some(payload) => {
                out.append(|buffer| encode_head(&self.command, payload, buffer));
                out.push(payload.covered.clone());
            }
        }
    }

    /// The frame's bytes.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = Transmit::default();
        self.encode(&mut out);
        out.take().freeze()
    }

    fn decode(bytes: Bytes) -> Result<Self> {
        let mut reader = Reader::new(&bytes);
        let size = reader.u32()? as usize;
        let command = Command::decode(&bytes.slice_ref(reader.take(size).map_err(|_| {
            Error::protocol(format!("a command of {size} bytes in a frame of {}", bytes.len()))
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

/// Appends everything of a SEND or MESSAGE before the covered bytes.
pub fn encode_head(command: &Command, payload: &Payload, out: &mut BytesMut) {
    let size = command.encoded_len();
    let total = 4 + size + payload.header_len() + payload.covered.len();
    out.reserve(size + 64);
    out.extend_from_slice(&(total as u32).to_be_bytes());
    out.extend_from_slice(&(size as u32).to_be_bytes());
    command.encode(out);
    payload.header(out);
}

/// Everything of a SEND before the body, with the checksum over metadata and body: so a large body is never
/// copied to stand behind its metadata.
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

/// Cuts a byte stream into frames. Never waits for more than the limit allows.
#[derive(Clone, Debug)]
pub struct Decoder {
    max_frame: usize,
}

impl Decoder {
    /// Refuses frames of more than `max_message_size` and [`FRAME_PADDING`].
    pub fn new(max_message_size: usize) -> Self {
        Self { max_frame: max_message_size + FRAME_PADDING }
    }

    /// Changes the limit after the handshake.
    pub fn set_max_message_size(&mut self, max_message_size: usize) {
        self.max_frame = max_message_size + FRAME_PADDING;
    }

    /// Takes the next complete frame out of `input`; `None` means more bytes are needed.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Frame>> {
        let Some(total) = input.first_chunk().map(|b| u32::from_be_bytes(*b) as usize) else {
            return Ok(None);
        };
        if total > self.max_frame {
            return Err(Error::new(
                ErrorKind::FrameTooLarge,
                format!("a frame of {total} bytes is over the limit of {}", self.max_frame),
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
                // Only the command and the optional framing around it are outside the checksum.
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
