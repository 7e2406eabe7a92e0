//! Metadata of messages: the hand-written encoder against the decoder.

use bytes::{Bytes, BytesMut};
use forebay_pulsar::hot;

/// Plays one input.
pub fn play(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    if let Ok(metadata) = hot::decode_metadata(&data) {
        let mut encoded = BytesMut::new();
        hot::encode_metadata(&metadata, &mut encoded);
        assert_eq!(hot::decode_metadata(&encoded.freeze()).expect("what we wrote"), metadata);
    }
    if let Ok(single) = hot::decode_single(&data) {
        let mut encoded = BytesMut::new();
        hot::encode_single(&single, &mut encoded);
        assert_eq!(hot::decode_single(&encoded.freeze()).expect("what we wrote"), single);
    }
}
