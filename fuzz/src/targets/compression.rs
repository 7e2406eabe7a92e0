//! Compressed payloads. The first byte chooses the kind, the next three are the claimed size: the
//! result has exactly that size or is an error, and never takes more memory than the limit.

use bytes::Bytes;
use forebay_base::compression::{Compression, compress, decompress};

const LIMIT: usize = 5 << 20;

/// Plays one input.
pub fn play(data: &[u8]) {
    let Some((head, data)) = data.split_first_chunk::<4>() else { return };
    let kind = Compression::from_number(i32::from(head[0] % 5)).expect("0 to 4");
    let size = usize::from(head[1]) << 16 | usize::from(head[2]) << 8 | usize::from(head[3]);
    let data = Bytes::copy_from_slice(data);
    if let Ok(plain) = decompress(kind, &data, size, LIMIT) {
        assert!(kind == Compression::None || plain.len() == size);
        assert!(plain.len() <= LIMIT);
    }
    let packed = compress(kind, &data).expect("anything can be compressed");
    assert_eq!(decompress(kind, &packed, data.len(), LIMIT).expect("what we wrote"), data);
}
