//! Message ids as users store them: bytes and text.

use forebay_pulsar::MessageId;

/// Plays one input.
pub fn play(data: &[u8]) {
    if let Ok((id, first_chunk)) = MessageId::from_bytes(data) {
        let (again, chunk) = MessageId::from_bytes(&id.to_bytes(first_chunk)).expect("what we wrote");
        assert_eq!((again.entry_id(), chunk), (id.entry_id(), first_chunk));
        let parsed: MessageId = id.to_string().parse().expect("what we printed");
        assert_eq!(parsed.entry_id(), id.entry_id());
        assert_eq!(id.cmp(&id), std::cmp::Ordering::Equal);
    }
    if let Ok(text) = std::str::from_utf8(data) {
        if let Ok(id) = text.parse::<MessageId>() {
            assert_eq!(id.to_string().parse::<MessageId>().expect("what we printed"), id);
        }
    }
}
