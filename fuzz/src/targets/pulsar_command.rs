//! A `BaseCommand`: a decoded command encodes to as many bytes as announced, which decode to the
//! same.
//!
//! Commands are compared by their encodings: some hold a `double`, and NaN differs from itself.

use bytes::{Bytes, BytesMut};
use forebay_pulsar::command::Command;

fn encode(command: &Command) -> Bytes {
    let mut out = BytesMut::new();
    command.encode(&mut out);
    out.freeze()
}

/// Plays one input.
pub fn play(data: &[u8]) {
    let Ok(command) = Command::decode(&Bytes::copy_from_slice(data)) else { return };
    let _ = (command.request_id(), command.name(), format!("{command:?}"));
    let encoded = encode(&command);
    assert_eq!(encoded.len(), command.encoded_len());
    assert_eq!(encode(&Command::decode(&encoded).expect("what we wrote")), encoded);
}
