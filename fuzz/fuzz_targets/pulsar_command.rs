//! A `BaseCommand`: a decoded command encodes to as many bytes as announced, which decode to the same.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use penstock::pulsar::command::Command;

fuzz_target!(|data: &[u8]| {
    let Ok(command) = Command::decode(&Bytes::copy_from_slice(data)) else { return };
    let _ = (command.request_id(), command.name(), format!("{command:?}"));
    let mut encoded = BytesMut::new();
    command.encode(&mut encoded);
    assert_eq!(encoded.len(), command.encoded_len());
    assert_eq!(Command::decode(&encoded.freeze()).expect("what we wrote"), command);
});
