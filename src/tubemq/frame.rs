//! Frames: a serial number and a payload, split into blocks.
//!
//! ```text
//! [0xFF7FF4FE u32][serial u32][blocks u32]  blocks × ( [length u32][length bytes] )
//! ```
//! All integers are big-endian; the concatenated blocks are the payload. Writers fill blocks of
//! 8,192 bytes, but a reader must accept any split, even one inside the length prefix of a message.
//! A frame starts only where the previous one ends, with no other marker: after an error the
//! connection is unusable, and the side that detected it must close it, because official servers
//! neither respond nor close.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::transmit::Transmit;
use forebay_base::wire::Reader;

/// First four bytes of each frame.
pub const TOKEN: u32 = 0xFF7F_F4FE;
/// Size of each written block except the last, in bytes.
pub const BLOCK_SIZE: usize = 8192;
/// Maximum number of blocks in a frame. The official decoder has the same limit.
pub const MAX_BLOCKS: usize = 3584;
/// Maximum payload size, limited by [`MAX_BLOCKS`].
pub const MAX_PAYLOAD: usize = MAX_BLOCKS * BLOCK_SIZE;
/// Size of the header: token, serial number and number of blocks.
pub const HEADER_SIZE: usize = 12;

const BLOCK_HEADER_SIZE: usize = 4;

/// A frame whose payload has not been decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Serial number, chosen by the caller and repeated in the response; any value.
    pub serial: u32,
    /// The concatenated blocks.
    pub payload: Bytes,
}

impl Frame {
    /// Appends the frame to the output.
    pub fn encode(self, out: &mut Transmit) -> Result<()> {
        if self.payload.is_empty() || self.payload.len() > MAX_PAYLOAD {
            return Err(Error::new(
                ErrorKind::MessageTooLarge,
                format!("the payload has {} bytes; a frame holds 1 to {MAX_PAYLOAD}", self.payload.len()),
            ));
        }
        let blocks = self.payload.len().div_ceil(BLOCK_SIZE);
        out.append(|out| {
            out.put_u32(TOKEN);
            out.put_u32(self.serial);
            out.put_u32(blocks as u32);
        });
        let mut rest = self.payload;
        while !rest.is_empty() {
            let block = rest.split_to(rest.len().min(BLOCK_SIZE));
            out.push_slice(&(block.len() as u32).to_be_bytes());
            out.push(block);
        }
        Ok(())
    }

    /// Encodes the frame into a buffer of its own.
    pub fn to_bytes(self) -> Result<Bytes> {
        let mut out = Transmit::default();
        self.encode(&mut out)?;
        Ok(out.take().freeze())
    }
}

/// Decoding progress of an incomplete frame at the head of the input.
#[derive(Clone, Copy, Debug)]
struct Progress {
    serial: u32,
    blocks: usize,
    /// Number of blocks that have arrived completely.
    whole: usize,
    /// Position of the next block's length.
    at: usize,
    /// Total length of the complete blocks.
    payload: usize,
}

/// Splits a byte stream into frames. Remembers which blocks it has measured, so that a frame that
/// arrives in many pieces is scanned only once.
#[derive(Debug)]
pub struct Decoder {
    max_payload: usize,
    progress: Option<Progress>,
}

impl Decoder {
    /// Creates a decoder that rejects payloads of more than `max_payload` bytes before they have
    /// arrived.
    pub fn new(max_payload: usize) -> Self {
        Self { max_payload, progress: None }
    }

    /// Changes the limit, for a peer that has proved who it is.
    pub fn set_max_payload(&mut self, max_payload: usize) {
        self.max_payload = self.max_payload.max(max_payload);
    }

    /// Takes the next complete frame out of `input`; `None` if more bytes are needed. The bytes of
    /// an incomplete frame must remain at the head of the input for the next call. After an error
    /// the decoder must not be used again.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Frame>> {
        let mut progress = match self.progress.take() {
            Some(progress) => progress,
            None => match header(input)? {
                Some(progress) => progress,
                None => return Ok(None),
            },
        };
        while progress.whole < progress.blocks {
            let Ok(length) = Reader::new(&input[progress.at..]).u32() else {
                self.progress = Some(progress);
                return Ok(None);
            };
            let length = length as usize;
            if length > self.max_payload - progress.payload {
                return Err(Error::new(
                    ErrorKind::FrameTooLarge,
                    format!(
                        "block {} of {} has {length} bytes after {}; the limit for a frame is {}",
                        progress.whole + 1,
                        progress.blocks,
                        progress.payload,
                        self.max_payload
                    ),
                ));
            }
            if input.len() - progress.at - BLOCK_HEADER_SIZE < length {
                self.progress = Some(progress);
                return Ok(None);
            }
            progress.whole += 1;
            progress.at += BLOCK_HEADER_SIZE + length;
            progress.payload += length;
        }
        let mut frame = input.split_to(progress.at).freeze();
        frame.advance(HEADER_SIZE);
        Ok(Some(Frame { serial: progress.serial, payload: join(frame, progress) }))
    }
}

fn header(input: &[u8]) -> Result<Option<Progress>> {
    // The first bytes, however few, are enough to recognise a stream of another protocol.
    let token = TOKEN.to_be_bytes();
    let come = input.len().min(token.len());
    if input[..come] != token[..come] {
        return Err(Error::protocol(format!(
            "the peer sent a frame that begins with {:02x?} instead of {token:02x?}",
            &input[..come]
        )));
    }
    let mut reader = Reader::new(&input[come..]);
    let (Ok(serial), Ok(blocks)) = (reader.u32(), reader.u32()) else { return Ok(None) };
    if blocks == 0 || blocks as usize > MAX_BLOCKS {
        return Err(Error::protocol(format!(
            "the peer sent a frame of {blocks} blocks; 1 to {MAX_BLOCKS} are allowed"
        )));
    }
    Ok(Some(Progress { serial, blocks: blocks as usize, whole: 0, at: HEADER_SIZE, payload: 0 }))
}

/// Concatenates the blocks of a complete frame, without their lengths. A single block is not
/// copied.
fn join(mut frame: Bytes, progress: Progress) -> Bytes {
    if progress.blocks == 1 {
        return frame.split_off(BLOCK_HEADER_SIZE);
    }
    let mut payload = BytesMut::with_capacity(progress.payload);
    while !frame.is_empty() {
        let length = frame.get_u32() as usize;
        payload.extend_from_slice(&frame.split_to(length));
    }
    payload.freeze()
}
