//! Positions in the partitions: seeking, and what lies ahead.

use std::sync::Arc;

use super::Consumer;
use super::partition::{self, PartitionConsumer, SeekTo};
use crate::together::together;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_pulsar::{MessageId, pb};

impl Consumer {
    /// Moves the subscription. Resolves when the consumer is subscribed again at the new position.
    pub async fn seek(&self, to: SeekTo) -> Result<()> {
        self.check_open()?;
        // The topics that have ended cannot be moved past an entry that could not be read.
        let parts = self.parts();
        for part in parts.iter().filter(|part| part.has_ended()) {
            self.0.signal.resume(part.id);
        }
        if let Some(part) = self.sought(&to)? {
            return part.seek(to).await;
        }
        let parts: Vec<_> = parts.living().map(|part| (Arc::clone(part), to.clone())).collect();
        seek_parts(parts).await
    }

    /// Moves each of these partitions, given by their full topic names, to a position of its own,
    /// all at the same time. Nothing is moved if a position is of another partition.
    pub async fn seek_each(&self, positions: Vec<(Arc<str>, SeekTo)>) -> Result<()> {
        self.check_open()?;
        let now = self.parts();
        let mut parts = Vec::with_capacity(positions.len());
        for (topic, to) in positions {
            let part = now.find(&topic, &MessageId::LATEST)?;
            if let SeekTo::Id { topic: named, id, .. } = &to
                && partition::is_exact(*id)
                && (!named.is_empty() && *named != part.topic
                    || id.partition >= 0 && id.partition != part.partition)
            {
                let text = format!(
                    "the position for it is the message {id} of {named:?}, another topic or partition"
                );
                return Err(Error::new(ErrorKind::InvalidArgument, text).with_topic(topic));
            }
            parts.push((Arc::clone(part), to));
        }
        for (part, _) in parts.iter().filter(|(part, _)| part.has_ended()) {
            self.0.signal.resume(part.id);
        }
        parts.retain(|(part, _)| !part.has_ended());
        seek_parts(parts).await
    }

    /// The partition that a seek moves; `None` if it moves all.
    fn sought(&self, to: &SeekTo) -> Result<Option<Arc<PartitionConsumer>>> {
        match to {
            SeekTo::Id { topic, id, .. } if *id != MessageId::EARLIEST && *id != MessageId::LATEST => {
                self.parts().find(topic, id).map(|part| Some(Arc::clone(part)))
            }
            _ => Ok(None),
        }
    }

    /// The latest publish time, in milliseconds since 1970, of the chunks of messages that have not
    /// come whole, whose first chunk `is_in` a range; `None` if there are none.
    pub(in crate::pulsar) fn incomplete(&self, is_in: impl Fn(&MessageId) -> bool) -> Option<u64> {
        let parts = self.parts();
        let of = |part: &Arc<PartitionConsumer>| {
            let machine = part.machine();
            machine.incomplete().filter(|(first, _)| is_in(first)).map(|(_, published)| published).max()
        };
        parts.iter().filter_map(of).max()
    }

    /// The first chunk of a message that was given up, but not because its next chunk did not come
    /// in time, if it `is_in` a range.
    pub(in crate::pulsar) fn lost(&self, is_in: impl Fn(&MessageId) -> bool) -> Option<MessageId> {
        self.parts().iter().find_map(|part| part.machine().lost().find(|first| is_in(first)))
    }

    /// The latest entry that has arrived, if no message that has arrived waits to be taken. Of
    /// several partitions, of any.
    pub(in crate::pulsar) fn drained_to(&self) -> Option<MessageId> {
        self.parts().iter().find_map(|part| part.machine().drained_to())
    }

    /// Topic and id of the last message of each partition; -1:-1 when there is none.
    pub async fn last_message_ids(&self) -> Result<Vec<(Arc<str>, MessageId)>> {
        self.check_open()?;
        let asked = self.each_part(|part| async move { part.last_message_id().await });
        let ids = asked.await.into_iter().map(|(part, answer)| {
            let id = MessageId::from(&answer?.last_message_id).in_partition(part.partition);
            Ok((Arc::clone(&part.topic), id))
        });
        ids.collect()
    }

    /// Whether there is a message to be received: one that has arrived, or one behind the last one
    /// that was taken. A message that another consumer of the subscription has received counts; one
    /// that is to come again does not.
    pub async fn has_message_available(&self) -> Result<bool> {
        self.check_open()?;
        if self.has_ready() {
            return Ok(true);
        }
        let asked = self.each_part(|part| async move {
            let response = part.last_message_id().await?;
            let id = |id: &pb::MessageIdData| {
                let exists = id.entry_id != u64::MAX;
                exists.then(|| MessageId::from(id).in_partition(part.partition))
            };
            let mark = response.consumer_mark_delete_position.as_ref().map(MessageId::from);
            Ok(part.machine().has_more(id(&response.last_message_id), mark))
        });
        let answers = asked.await;
        if answers.iter().any(|(_, more)| matches!(more, Ok(true))) {
            return Ok(true);
        }
        answers.into_iter().try_fold(false, |any, (_, more)| Ok(any | more?))
    }
}

/// Moves partitions, all at the same time. An error says how many have not moved.
async fn seek_parts(parts: Vec<(Arc<PartitionConsumer>, SeekTo)>) -> Result<()> {
    let all = parts.len();
    let sought = together(parts.into_iter().map(|(part, to)| async move { part.seek(to).await })).await;
    let failures: Vec<_> = sought.into_iter().filter_map(Result::err).collect();
    let failed = failures.len();
    match failures.into_iter().next() {
        None => Ok(()),
        Some(error) if all == 1 => Err(error),
        Some(error) => {
            Err(error.with_note(&format!("{failed} of {all} partitions may not have moved, the others have")))
        }
    }
}
