//! A byte stream, cut in two at a position that the input chooses: the same frames as in one piece, and each decoded
//! frame encodes to bytes that decode to the same.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use penstock::pulsar::frame::{Decoder, Frame};

const MAX: usize = 1 << 16;

fn frames(pieces: &[&[u8]]) -> (Vec<Frame>, bool) {
    let (mut input, mut frames, mut decoder) = (BytesMut::new(), Vec::new(), Decoder::new(MAX));
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

fuzz_target!(|data: &[u8]| {
    let Some((&cut, data)) = data.split_first() else { return };
    let (head, tail) = data.split_at(data.len() * usize::from(cut) / 256);
    let whole = frames(&[data]);
    assert_eq!(frames(&[head, tail]), whole);
    for frame in whole.0 {
        if let Some(payload) = &frame.payload {
            let _ = (payload.checksum_ok(), payload.metadata(), payload.body());
        }
        let bytes = frame.to_bytes();
        let again = frames(&[&bytes]);
        assert_eq!(again, (vec![frame], false));
    }
});
