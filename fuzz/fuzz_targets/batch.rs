//! The inside of a batch: lengths that lie must end the walk, not the process.
#![no_main]

use bytes::{Buf, Bytes};
use libfuzzer_sys::fuzz_target;
use penstock::pulsar::hot;

fuzz_target!(|data: &[u8]| {
    let mut rest = Bytes::copy_from_slice(data);
    while rest.len() >= 4 {
        let size = rest.get_u32() as usize;
        if size > rest.len() {
            return;
        }
        let Ok(single) = hot::decode_single(&rest.split_to(size)) else { return };
        let Ok(payload) = usize::try_from(single.payload_size) else { return };
        if payload > rest.len() {
            return;
        }
        rest.advance(payload);
    }
});
