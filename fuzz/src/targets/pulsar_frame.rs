//! A byte stream, cut in two at a position that the input chooses: the same frames as in one piece,
//! and each decoded frame encodes to bytes that decode to the same.
//!
//! Frames are compared by their encodings: some commands hold a `double`, and NaN differs from
//! itself.

use bytes::{Bytes, BytesMut};
use forebay_pulsar::frame::{Decoder, Frame};

const MAX: usize = 1 << 16;
/// Largest factor by which a command grows when it is encoded again: a required field that the peer
/// left out is written with its default, and a `SegmentInfoProto` of two bytes has six of them.
const GROWTH: usize = 8;

/// The frames, and whether the stream ended in an error.
fn frames(pieces: &[&[u8]], max: usize) -> (Vec<Frame>, bool) {
    let (mut input, mut frames, mut decoder) = (BytesMut::new(), Vec::new(), Decoder::new(max));
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match decoder.next(&mut input) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_) => return (frames, true),
            }
        }
    }
    (frames, false)
}

fn encoded((frames, failed): &(Vec<Frame>, bool)) -> (Vec<Bytes>, bool) {
    (frames.iter().map(Frame::to_bytes).collect(), *failed)
}

/// Plays one input.
pub fn play(data: &[u8]) {
    let Some((&cut, data)) = data.split_first() else { return };
    let (head, tail) = data.split_at(data.len() * usize::from(cut) / 256);
    let whole = frames(&[data], MAX);
    assert_eq!(encoded(&frames(&[head, tail], MAX)), encoded(&whole));
    for frame in whole.0 {
        if let Some(payload) = &frame.payload {
            let _ = (payload.checksum_ok(), payload.metadata(), payload.body());
        }
        let bytes = frame.to_bytes();
        let again = frames(&[&bytes], GROWTH * MAX);
        assert_eq!(encoded(&again), (vec![bytes], false));
    }
}
