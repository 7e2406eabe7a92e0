//! Frames: a serial number and a payload, cut into blocks.
//!
//! ```text
//! [0xFF7FF4FE u32][serial u32][blocks u32]  blocks × ( [length u32][length bytes] )
//! ```
//! All integers are big-endian; the blocks joined are the payload. Writers fill blocks of 8,192 bytes, but
//! a reader takes any split, also one that cuts through a message's length. Nothing marks the beginning of the
//! next frame but the end of this one: after an error here the connection is dead, and the side that saw it
//! has to close it, because official servers neither answer nor close.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::{Error, ErrorKind, Result};
use crate::transmit::Transmit;
use crate::wire::Reader;

/// The first four bytes of each frame.
pub const TOKEN: u32 = 0xFF7F_F4FE;
/// Bytes of every block that is written but the last.
pub const BLOCK_SIZE: usize = 8192;
/// Most blocks of one frame: more is refused by the official decoder as well.
pub const MAX_BLOCKS: usize = 3584;
/// Largest payload that fits into [`MAX_BLOCKS`].
pub const MAX_PAYLOAD: usize = MAX_BLOCKS * BLOCK_SIZE;
/// Token, serial number and number of blocks.
pub const HEADER_SIZE: usize = 12;

const BLOCK_HEADER_SIZE: usize = 4;

/// One frame, its payload not yet read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Chosen by whoever asks, repeated in the answer; any value.
    pub serial: u32,
    /// The blocks, joined.
    pub payload: Bytes,
}

impl Frame {
    /// Appends the frame to what is to be sent.
    pub fn encode(self, out: &mut Transmit) -> Result<()> {
        if self.payload.is_empty() || self.payload.len() > MAX_PAYLOAD {
            return Err(Error::new(
                ErrorKind::MessageTooLarge,
                format!("a payload of {} bytes; a frame has 1 to {MAX_PAYLOAD}", self.payload.len()),
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

    /// The frame as one buffer.
    pub fn to_bytes(self) -> Result<Bytes> {
        let mut out = Transmit::default();
        self.encode(&mut out)?;
        Ok(out.take().freeze())
    }
}

/// How far into the frame at the head of the input the blocks have been measured.
#[derive(Clone, Copy, Debug)]
struct Progress {
    serial: u32,
    blocks: usize,
    /// Blocks whose length is known and whose bytes have all come.
    whole: usize,
    /// Where the next block's length is.
    at: usize,
    /// Sum of the lengths so far.
    payload: usize,
}

/// Bytes to frames. Remembers the blocks it has measured, so that a frame which comes in many pieces is walked
/// through once.
#[derive(Debug)]
pub struct Decoder {
    max_payload: usize,
    progress: Option<Progress>,
}

impl Decoder {
    /// Refuses frames whose payload has more than `max_payload` bytes, before their bytes have come.
    pub fn new(max_payload: usize) -> Self {
        Self { max_payload, progress: None }
    }

    /// Takes the first frame out of `input`, or nothing when it is not whole yet. The bytes of an unfinished
    /// frame have to be at the head of the next call's input. An error is final.
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
                        "block {} of {} has {length} bytes after {}: more than {} in a frame",
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
    // A stream that is not this protocol is known by its first bytes, however few they are.
    let token = TOKEN.to_be_bytes();
    let come = input.len().min(token.len());
    if input[..come] != token[..come] {
        return Err(Error::protocol(format!(
            "a frame begins with {:02x?} instead of {token:02x?}",
            &input[..come]
        )));
    }
    let mut reader = Reader::new(&input[come..]);
    let (Ok(serial), Ok(blocks)) = (reader.u32(), reader.u32()) else { return Ok(None) };
    if blocks == 0 || blocks as usize > MAX_BLOCKS {
        return Err(Error::protocol(format!("a frame of {blocks} blocks; there are 1 to {MAX_BLOCKS}")));
    }
    Ok(Some(Progress { serial, blocks: blocks as usize, whole: 0, at: HEADER_SIZE, payload: 0 }))
}

/// The blocks of a whole frame without their lengths; one block is not copied.
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
