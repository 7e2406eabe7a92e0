//! The messages of one answer, and which of them are acknowledged.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use crate::balance::PartitionLocation;
use crate::message::{Attributes, unpack};
use crate::pb;
use forebay_base::random::HashSet;

/// The messages of one answer.
#[derive(Debug)]
pub struct Pack {
    /// The partition.
    pub location: PartitionLocation,
    /// Offset in the index of the store.
    pub offset: i64,
    /// Number of earlier deliveries of some of it.
    pub redelivered: u32,
    pub(super) number: u64,
}

/// A received message. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Message {
    /// The pack it belongs to.
    pub pack: Arc<Pack>,
    /// Payload, without attributes.
    pub payload: Bytes,
    /// Key, type, time and properties.
    pub attributes: Attributes,
    /// The broker's number of the message.
    pub message_id: i64,
    index: u32,
}

/// A pack that is not wholly acknowledged.
#[derive(Debug)]
pub(super) struct Held {
    pack: Arc<Pack>,
    /// Id of each message of the pack.
    ids: Vec<i64>,
    acked: Vec<bool>,
    left: usize,
    /// Messages whose checksum does not match.
    pub(super) damaged: u64,
}

impl Held {
    /// Unpacks `messages` into `queue`. These count as acknowledged: broken messages, messages that
    /// `filters` do not select (the broker compares only hash codes), and messages in `done`, which
    /// are removed from it.
    pub(super) fn new(
        pack: Pack,
        messages: Vec<pb::TransferedMessage>,
        filters: &BTreeSet<String>,
        done: &mut HashSet<i64>,
        queue: &mut VecDeque<Message>,
    ) -> Self {
        let (pack, count) = (Arc::new(pack), messages.len());
        let mut held =
            Self { pack, ids: Vec::with_capacity(count), acked: vec![false; count], left: count, damaged: 0 };
        let wanted = |attributes: &Attributes| {
            filters.is_empty() || attributes.message_type().is_some_and(|kind| filters.contains(kind))
        };
        for (index, message) in messages.into_iter().enumerate() {
            let message_id = message.message_id;
            held.ids.push(message_id);
            let unpacked = unpack(message);
            held.damaged += u64::from(unpacked.is_err());
            let unpacked = unpacked.ok().filter(|(_, attributes)| wanted(attributes));
            let again = !done.is_empty() && done.remove(&message_id);
            match unpacked.filter(|_| !again) {
                Some((payload, attributes)) => queue.push_back(Message {
                    pack: Arc::clone(&held.pack),
                    payload,
                    attributes,
                    message_id,
                    index: index as u32,
                }),
                None => held.mark(index),
            }
        }
        held
    }

    fn mark(&mut self, index: usize) {
        self.left -= usize::from(!std::mem::replace(&mut self.acked[index], true));
    }

    /// Acknowledges a message of this pack, or an earlier delivery of one.
    pub(super) fn ack(&mut self, message: &Message) {
        let index = if self.is_of(message) {
            Some(message.index as usize)
        } else {
            self.ids.iter().position(|id| *id == message.message_id)
        };
        if let Some(index) = index {
            self.mark(index);
        }
    }

    /// Acknowledges a message of this pack and all before it.
    pub(super) fn ack_up_to(&mut self, message: &Message) {
        (0..=message.index as usize).for_each(|index| self.mark(index));
    }

    pub(super) fn is_of(&self, message: &Message) -> bool {
        Arc::ptr_eq(&self.pack, &message.pack)
    }

    /// Whether a message of this pack is acknowledged.
    pub(super) fn is_acked(&self, message: &Message) -> bool {
        self.acked[message.index as usize]
    }

    pub(super) fn is_consumed(&self) -> bool {
        self.left == 0
    }

    pub(super) fn pack(&self) -> &Pack {
        &self.pack
    }

    /// Ids of all messages of the pack.
    pub(super) fn into_ids(self) -> Vec<i64> {
        self.ids
    }

    /// Ids of the acknowledged messages.
    pub(super) fn acked(&self) -> impl Iterator<Item = i64> {
        self.ids.iter().zip(&self.acked).filter(|(_, acked)| **acked).map(|(id, _)| *id)
    }
}
