//! The partitions of a consumer, which change while it runs.
//!
//! A reader gets a list that stays as it is; a change puts another in its place.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{Notify, oneshot};

use super::partition::{
    ActiveChanges, Ends, GroupState, MachineEvents, PartitionConsumer, Supervisor, is_exact,
};
use super::ready::ReadyPartitions;
use crate::events::Signal;
use crate::pulsar::options::ConsumerOptions;
use crate::pulsar::reconnect::supervise;
use crate::pulsar::shared::Shared;
use crate::receive::Ahead;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::random::HashMap;
use forebay_base::sync::Mutex;
use forebay_pulsar::consumer::Counts;
use forebay_pulsar::{Message, MessageId};

/// A partition, or a topic without any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Full name, including the partition.
    pub(super) topic: String,
    /// Its number, -1 for none.
    pub(super) partition: i32,
    /// Whether it is one of the consumer's own topics, and not of that of retries.
    pub(super) own: bool,
}

/// The partitions at one time: those of the consumer's own topics, then those of the topic of
/// retries.
#[derive(Debug, Default)]
pub(super) struct Parts {
    all: Vec<Arc<PartitionConsumer>>,
    by_topic: HashMap<Arc<str>, usize>,
    by_id: HashMap<u64, usize>,
    own: usize,
}

impl Deref for Parts {
    type Target = [Arc<PartitionConsumer>];

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Parts {
    fn new(own: Vec<Arc<PartitionConsumer>>, others: Vec<Arc<PartitionConsumer>>) -> Self {
        let count = own.len();
        let all: Vec<_> = own.into_iter().chain(others).collect();
        let by_topic = all.iter().enumerate().map(|(index, part)| (Arc::clone(&part.topic), index)).collect();
        let by_id = all.iter().enumerate().map(|(index, part)| (part.id, index)).collect();
        Self { all, by_topic, by_id, own: count }
    }

    /// Those of the consumer's own topics.
    pub(super) fn own(&self) -> &[Arc<PartitionConsumer>] {
        &self.all[..self.own]
    }

    /// Those that have not ended.
    pub(super) fn living(&self) -> impl Iterator<Item = &Arc<PartitionConsumer>> {
        self.all.iter().filter(|part| !part.has_ended())
    }

    /// The partition with this full name.
    pub(super) fn of_topic(&self, topic: &str) -> Option<&Arc<PartitionConsumer>> {
        self.by_topic.get(topic).map(|index| &self.all[*index])
    }

    /// The partition whose consumer has this id at the broker.
    pub(super) fn of_id(&self, id: u64) -> Option<&Arc<PartitionConsumer>> {
        self.by_id.get(&id).map(|index| &self.all[*index])
    }

    /// The partition that a message came from.
    pub(super) fn find(&self, topic: &Arc<str>, id: &MessageId) -> Result<&Arc<PartitionConsumer>> {
        self.index(topic, id).map(|index| &self.all[index])
    }

    /// Index of the partition that a message came from. An id without a topic is found by its
    /// partition, if there is one of that number only.
    pub(super) fn index(&self, topic: &Arc<str>, id: &MessageId) -> Result<usize> {
        let fits = |part: &PartitionConsumer| id.partition < 0 || part.partition == id.partition;
        if !topic.is_empty() {
            let index = if self.all.len() == 1 && *topic == self.all[0].topic {
                Some(0)
            } else {
                self.by_topic.get(topic).copied()
            };
            return index.filter(|index| fits(&self.all[*index])).ok_or_else(|| {
                let text =
                    format!("the message id {id} is of {topic}, which is not a topic of this consumer");
                Error::new(ErrorKind::InvalidArgument, text)
            });
        }
        // Those of retries have their topic in the id.
        let mut of_partition = (0..self.own).filter(|index| fits(&self.all[*index]));
        match (of_partition.next(), of_partition.next()) {
            (Some(index), None) => Ok(index),
            (Some(_), Some(_)) => Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "the message id {id} does not say which of the {} partitions of this consumer it is of: pass the \
                     message itself or its id, which have the topic, or seek to a time",
                    self.own
                ),
            )),
            (None, _) => Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "the message id {id} is of partition {}, which this consumer does not have",
                    id.partition
                ),
            )),
        }
    }
}

/// A partition that is being opened, and what comes of it.
pub(super) type Opening = (Arc<PartitionConsumer>, oneshot::Receiver<Result<()>>);

/// The partitions of one consumer, and what is needed for another.
#[derive(Debug)]
pub(super) struct Members {
    shared: Arc<Shared>,
    subscription: String,
    options: ConsumerOptions,
    signal: Arc<Signal>,
    others: Arc<GroupState>,
    /// Those that have messages to be taken.
    pub(super) ready: Arc<ReadyPartitions>,
    /// Messages are to be sent to the dead letter topic.
    pub(super) dead: Arc<Notify>,
    /// Messages that are to be handed out next.
    pub(super) ahead: Arc<Ahead<Message>>,
    /// Topics have ended.
    pub(super) ends: Arc<Ends>,
    /// Partitions that this consumer has become or ceased to be the active one of.
    pub(super) active: Arc<ActiveChanges>,
    /// Whether it was logged that incomplete chunked messages are given up.
    chunks_warned: Arc<AtomicBool>,
    paused: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    parts: Arc<Parts>,
    /// Figures of those that are no longer there.
    gone: Counts,
}

impl Members {
    pub(super) fn new(
        shared: &Arc<Shared>,
        several: bool,
        endless: bool,
        subscription: &str,
        options: &ConsumerOptions,
        signal: &Arc<Signal>,
    ) -> Arc<Self> {
        let others = GroupState {
            several,
            endless,
            alive: AtomicUsize::new(0),
            counted: Arc::clone(&shared.ended_topics),
        };
        Arc::new(Self {
            shared: Arc::clone(shared),
            subscription: subscription.to_owned(),
            options: options.clone(),
            signal: Arc::clone(signal),
            others: Arc::new(others),
            ready: Arc::default(),
            dead: Arc::default(),
            ahead: Arc::new(Ahead::new(shared.budget.traffic())),
            ends: Arc::default(),
            active: Arc::default(),
            chunks_warned: Arc::default(),
            paused: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    /// The partitions now.
    pub(super) fn now(&self) -> Arc<Parts> {
        Arc::clone(&self.state.lock().parts)
    }

    /// Whether the consumer has several topics.
    pub(super) fn several(&self) -> bool {
        self.others.several
    }

    /// Whether it has the topics of a pattern.
    pub(super) fn endless(&self) -> bool {
        self.others.endless
    }

    /// Figures of the partitions that are no longer there.
    pub(super) fn counts(&self) -> Counts {
        self.state.lock().gone
    }

    /// Adds partitions, in place of those of their names, and begins to open them. Those that
    /// `join` a consumer that runs begin at their first message, whatever the consumer began at:
    /// all their messages are newer.
    pub(super) fn add(&self, places: Vec<Place>, join: bool) -> Vec<Opening> {
        if places.is_empty() {
            return Vec::new();
        }
        let count = self.now().len() + places.len();
        let added: Vec<_> = places
            .into_iter()
            .map(|Place { topic, partition, own }| {
                let mut options = self.options.clone();
                // A message of another topic is no position in that of retries.
                if join || !own && is_exact(options.position) {
                    options.position = MessageId::EARLIEST;
                }
                let creates_topic = options.creates_topic && !(own && self.others.endless);
                (own, self.part(topic, partition, creates_topic, &options, count), options)
            })
            .collect();
        let before = {
            let mut state = self.state.lock();
            if state.closed {
                return Vec::new();
            }
            let before = Arc::clone(&state.parts);
            let is_kept =
                |part: &&Arc<PartitionConsumer>| added.iter().all(|(_, new, _)| new.topic != part.topic);
            let of = |kept: &[Arc<PartitionConsumer>], own| {
                let new = added.iter().filter(|(owned, ..)| *owned == own).map(|(_, part, _)| part);
                kept.iter().filter(is_kept).chain(new).map(Arc::clone).collect()
            };
            let parts = if join {
                Parts::new(of(before.own(), true), of(&before[before.own..], false))
            } else {
                Parts::new(of(&[], true), of(&[], false))
            };
            state.parts = Arc::new(parts);
            before
        };
        let replaced = before.iter().filter(|part| added.iter().any(|(_, new, _)| new.topic == part.topic));
        let replaced = replaced.fold(Counts::default(), |sum, part| {
            part.revoke_all();
            sum + part.machine_counts()
        });
        {
            let mut state = self.state.lock();
            state.gone = state.gone + replaced;
        }
        added.iter().for_each(|(_, part, _)| self.tell_pause(part));
        self.others.alive.fetch_add(added.len(), Ordering::AcqRel);
        self.share(&before, count);
        let opening = |(_, part, options): (bool, Arc<PartitionConsumer>, ConsumerOptions)| {
            let (ready, opened) = oneshot::channel();
            let joins = join || self.others.endless;
            let supervisor = Supervisor::new(Arc::clone(&self.shared), Arc::clone(&part), options, joins);
            part.start(tokio::spawn(supervise(supervisor, Some(ready))));
            (part, opened)
        };
        added.into_iter().map(opening).collect()
    }

    /// Takes partitions out, each with the reason. They are the caller's to close.
    pub(super) fn remove(&self, removed: Vec<(Arc<PartitionConsumer>, Error)>) {
        let counts: HashMap<_, _> =
            removed.iter().map(|(part, _)| (part.id, part.machine_counts())).collect();
        let rest = {
            let mut state = self.state.lock();
            let before = Arc::clone(&state.parts);
            let without = |parts: &[Arc<PartitionConsumer>]| {
                parts.iter().filter(|part| !counts.contains_key(&part.id)).map(Arc::clone).collect()
            };
            let rest = Arc::new(Parts::new(without(before.own()), without(&before[before.own..])));
            let gone = before.iter().filter_map(|part| counts.get(&part.id));
            state.gone = gone.fold(state.gone, |sum, counts| sum + *counts);
            state.parts = Arc::clone(&rest);
            rest
        };
        for (part, why) in removed {
            part.retire(why);
            self.ready.remove(part.id);
            part.revoke_all();
        }
        self.share(&rest, rest.len());
        // All others may be at the end of their topics.
        self.ends.changed.notify_waiters();
        self.signal.ring();
    }

    /// Has all partitions stop fetching, or go on with it, those that join later as well.
    pub(super) fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Release);
        self.now().iter().for_each(|part| self.tell_pause(part));
    }

    fn tell_pause(&self, part: &PartitionConsumer) {
        // Read under the machine's lock: the last who tells it tells what holds.
        part.change(|machine| machine.set_paused(self.paused.load(Ordering::Acquire)));
    }

    /// Adds none any more. Returns those that are to be closed.
    pub(super) fn close(&self) -> Arc<Parts> {
        let mut state = self.state.lock();
        state.closed = true;
        Arc::clone(&state.parts)
    }

    /// Divides the room for messages by `count`.
    fn share(&self, parts: &Parts, count: usize) {
        let bytes = self.options.receive_buffer / count.max(1);
        parts.iter().for_each(|part| part.change(|machine| machine.set_receive_buffer(bytes)));
    }

    fn part(
        &self,
        topic: String,
        partition: i32,
        creates_topic: bool,
        options: &ConsumerOptions,
        partitions: usize,
    ) -> Arc<PartitionConsumer> {
        let events = MachineEvents {
            ready: Arc::clone(&self.ready),
            dead: Arc::clone(&self.dead),
            ahead: Arc::clone(&self.ahead),
            ends: Arc::clone(&self.ends),
            active: Arc::clone(&self.active),
            chunks_warned: Arc::clone(&self.chunks_warned),
        };
        Arc::new(PartitionConsumer::new(
            &self.shared,
            topic,
            partition,
            creates_topic,
            &self.subscription,
            options,
            Arc::clone(&self.signal),
            Arc::clone(&self.others),
            partitions,
            events,
        ))
    }
}
