//! A byte stream of either side, cut in two at a position that the input chooses: the same frames
//! as in one piece, the same error where it ends early, and each decoded frame encodes to bytes
//! that decode to the same.

use bytes::{Bytes, BytesMut};
use forebay_base::error::{ErrorKind, Result};
use forebay_base::transmit::Transmit;
use forebay_tubemq::frame::{Decoder, Frame};
use forebay_tubemq::message::unpack;
use forebay_tubemq::{Call, Reply, Response};

const MAX: usize = 1 << 16;

fn frames(pieces: &[&[u8]]) -> (Vec<Frame>, Option<ErrorKind>) {
    let (mut input, mut frames, mut decoder) = (BytesMut::new(), Vec::new(), Decoder::new(MAX));
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match decoder.next(&mut input) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    assert!(frame.payload.len() <= MAX);
                    frames.push(frame);
                }
                Err(error) => return (frames, Some(error.kind())),
            }
        }
    }
    (frames, None)
}

#[derive(Debug, PartialEq)]
enum Said {
    Call(Call),
    Reply(Reply),
}

impl Said {
    fn decode(from_server: bool, payload: &Bytes) -> Result<Self> {
        Ok(if from_server {
            Self::Reply(Reply::decode(payload)?)
        } else {
            Self::Call(Call::decode(payload)?)
        })
    }

    fn encode(&self, serial: u32) -> Bytes {
        let mut out = Transmit::default();
        match self {
            Self::Call(call) => call.encode(serial, &mut out),
            Self::Reply(reply) => reply.encode(serial, &mut out),
        }
        .expect("it came in a frame");
        out.take().freeze()
    }
}

/// Plays one input.
pub fn play(data: &[u8]) {
    let Some((&[side, cut], data)) = data.split_first_chunk::<2>() else { return };
    let (head, tail) = data.split_at(data.len() * usize::from(cut) / 256);
    let whole = frames(&[data]);
    assert_eq!(frames(&[head, tail]), whole);
    for frame in whole.0 {
        if !frame.payload.is_empty() {
            let again = frame.clone().to_bytes().expect("it is small");
            assert_eq!(frames(&[&again]), (vec![frame.clone()], None));
        }
        let Ok(said) = Said::decode(side & 1 == 1, &frame.payload) else { continue };
        let (again, error) = frames(&[&said.encode(frame.serial)]);
        assert_eq!((again.len(), error, again[0].serial), (1, None, frame.serial));
        assert_eq!(Said::decode(side & 1 == 1, &again[0].payload).expect("it was written"), said);
        if let Said::Reply(Reply::Response { response, .. }) = said {
            assert_eq!(response.outcome().is_ok(), response.succeeded());
            if let Response::GetMessages(pack) = response {
                for message in pack.messages {
                    let _ = unpack(message);
                }
            }
        }
    }
}
