//! Message ids as users store them: bytes and text.

use forebay_pulsar::MessageId;

/// Plays one input.
pub fn play(data: &[u8]) {
    if let Ok(id) = MessageId::from_bytes(data) {
        let again = MessageId::from_bytes(&id.to_bytes()).expect("what we wrote");
        assert_eq!(again.entry_id(), id.entry_id());
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
