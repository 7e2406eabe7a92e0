//! The messages of a part of a partition, which begins and ends at offsets.
//!
//! An offset is a place in the index of a store, which has an entry for each message. On real
//! brokers all partitions of a store share one index, so that the entries of a partition have gaps.
//! One get answers with a pack: the partition's messages between two offsets, without an offset of
//! their own. How many of them lie before a third offset, at which a range ends, is seen
//!
//! * in the pack itself, if it has as many messages as entries: then each message has a known
//!   offset;
//! * otherwise with a second get, from that third offset on: what it begins with lies behind.

use crate::consumer::INDEX_UNIT;
use crate::pb::TransferedMessage;
use forebay_base::error::{Error, ErrorKind, Result};

/// The messages of one partition between two offsets.
#[derive(Clone, Debug, PartialEq)]
pub struct Pack {
    /// The beginning.
    pub start: i64,
    /// The end: the first offset behind it.
    pub end: i64,
    /// The messages, in order.
    pub messages: Vec<TransferedMessage>,
}

impl Pack {
    /// A pack as a broker sent it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`]: it has more messages than entries.
    pub fn new(start: i64, end: i64, messages: Vec<TransferedMessage>) -> Result<Self> {
        let pack = Self { start, end, messages };
        if pack.entries() < pack.messages.len() as i64 {
            let text = format!(
                "the broker sent {} messages for the offsets {start} to {end}, {} bytes of index each",
                pack.messages.len(),
                INDEX_UNIT
            );
            return Err(Error::protocol(text));
        }
        Ok(pack)
    }

    /// Entries of the index that it covers.
    fn entries(&self) -> i64 {
        (self.end - self.start) / INDEX_UNIT
    }

    /// Whether every entry is a message of it.
    pub fn is_dense(&self) -> bool {
        self.entries() == self.messages.len() as i64
    }

    /// Offset of a message, if it is known.
    pub fn offset_of(&self, index: usize) -> Option<i64> {
        self.is_dense().then(|| self.start + index as i64 * INDEX_UNIT)
    }

    /// Number of messages that lie before `end`, if the pack alone tells.
    pub fn count_before(&self, end: i64) -> Option<usize> {
        if end >= self.end || self.messages.is_empty() {
            return Some(self.messages.len());
        }
        self.is_dense().then(|| ((end - self.start).max(0) / INDEX_UNIT) as usize)
    }

    /// The largest number of messages that can lie before `end`.
    pub fn most_before(&self, end: i64) -> usize {
        self.messages.len().min(((end - self.start).max(0) / INDEX_UNIT) as usize)
    }

    /// Number of messages that lie before `end`. `behind` are the partition's messages from `end`
    /// on: at least the first that lies in this pack, if one does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DataLost`]: the broker's answers do not fit together.
    pub fn count_before_others(&self, end: i64, behind: &[TransferedMessage]) -> Result<usize> {
        let count = self.messages.len();
        let (before, after) = ((end - self.start) / INDEX_UNIT, (self.end - end) / INDEX_UNIT);
        let fits = |&cut: &usize| {
            let tail = &self.messages[cut..];
            let common = tail.len().min(behind.len());
            cut as i64 <= before
                && tail.len() as i64 <= after
                && (common > 0 || tail.is_empty())
                && tail[..common] == behind[..common]
        };
        (0..=count).find(fits).ok_or_else(|| {
            let text = format!(
                "the messages between the offsets {} and {} are not the same when they are read again from {end} on",
                self.start, self.end
            );
            Error::new(ErrorKind::DataLost, text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(ids: impl IntoIterator<Item = i64>) -> Vec<TransferedMessage> {
        let message = |id: i64| TransferedMessage {
            message_id: id,
            check_sum: 1,
            pay_load_data: bytes::Bytes::copy_from_slice(&id.to_be_bytes()),
            flag: 0,
        };
        ids.into_iter().map(message).collect()
    }

    fn pack(start: i64, end: i64, ids: impl IntoIterator<Item = i64>) -> Pack {
        Pack::new(start * INDEX_UNIT, end * INDEX_UNIT, messages(ids)).unwrap()
    }

    #[test]
    fn a_pack_without_gaps_tells_the_offset_of_each_message() {
        let pack = pack(10, 15, 0..5);
        assert!(pack.is_dense());
        assert_eq!(pack.offset_of(3), Some(13 * INDEX_UNIT));
        for (end, count) in [(10, 0), (9, 0), (12, 2), (15, 5), (99, 5)] {
            assert_eq!(pack.count_before(end * INDEX_UNIT), Some(count), "{end}");
        }
    }

    #[test]
    fn a_pack_with_gaps_does_not() {
        let some = pack(10, 20, 0..5);
        assert_eq!((some.is_dense(), some.offset_of(0)), (false, None));
        assert_eq!(some.count_before(15 * INDEX_UNIT), None);
        assert_eq!(some.count_before(20 * INDEX_UNIT), Some(5));
        assert_eq!(pack(10, 20, []).count_before(15 * INDEX_UNIT), Some(0));
    }

    #[test]
    fn what_a_second_pack_begins_with_lies_behind() {
        // Entries 10 to 19, of which each second is a message.
        let first = pack(10, 20, [10, 12, 14, 16, 18]);
        let at = |end: i64, behind: &[i64]| {
            first.count_before_others(end * INDEX_UNIT, &messages(behind.iter().copied()))
        };
        assert_eq!(at(14, &[14, 16, 18, 20, 22]).unwrap(), 2);
        assert_eq!(at(13, &[14]).unwrap(), 2, "the second pack may be shorter");
        assert_eq!(at(11, &[12, 14, 16, 18]).unwrap(), 1);
        assert_eq!(at(19, &[20, 22]).unwrap(), 5, "nothing of it lies behind");
        assert_eq!(at(19, &[]).unwrap(), 5);
        assert_eq!(at(10, &[10, 12]).unwrap(), 0);
        assert_eq!(at(14, &[15]).unwrap_err().kind(), ErrorKind::DataLost, "three entries cannot be behind");
        assert_eq!((first.most_before(14 * INDEX_UNIT), first.most_before(19 * INDEX_UNIT)), (4, 5));
        // The same message sent twice has another number.
        let mut twice = first.clone();
        twice.messages[1] = twice.messages[2].clone();
        assert_eq!(twice.count_before_others(14 * INDEX_UNIT, &messages([14, 16])).unwrap(), 2);
    }

    #[test]
    fn there_are_no_more_messages_than_entries() {
        assert_eq!(Pack::new(0, 28, messages(0..2)).unwrap_err().kind(), ErrorKind::Protocol);
        assert_eq!(Pack::new(28, 0, messages([])).unwrap_err().kind(), ErrorKind::Protocol);
    }
}
