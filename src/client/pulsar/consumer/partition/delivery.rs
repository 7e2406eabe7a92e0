//! The receiving half of a partition: the machine, and what follows from each change of it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use tokio::sync::Notify;

use super::super::ready::ReadyPartitions;
use crate::events::Signal;
use crate::logger;
use crate::pulsar::options::SchemaOptions;
use crate::pulsar::schema;
use crate::pulsar::shared::Shared;
use crate::receive::Ahead;
use forebay_base::error::{Error, Result};
use forebay_base::random::HashMap;
use forebay_base::sync::{Mutex, MutexGuard, Rank};
use forebay_base::transmit::Transmit;
use forebay_pulsar::consumer::Consumer as Machine;
use forebay_pulsar::frame::Payload;
use forebay_pulsar::schema::Wanted;
use forebay_pulsar::{Message, hot};
use tracing::warn;

/// The machine of a partition.
#[derive(Debug)]
pub(super) struct Delivery {
    me: Weak<Self>,
    id: u64,
    topic: Arc<str>,
    machine: Mutex<Machine>,
    /// The driver has been woken and has not looked yet.
    notified: AtomicBool,
    /// Whether it was added to the [`ReadyPartitions`], and no receive has found since that it has
    /// no message. Changes under the machine's lock.
    listed: AtomicBool,
    signal: Arc<Signal>,
    pub(super) events: MachineEvents,
    /// Entries of the client that could not be read.
    counted: Arc<AtomicU64>,
    warned: AtomicBool,
    /// The client and the schema, to get the schemas of messages; `None` if payloads are bytes.
    schema: Option<(Arc<Shared>, SchemaOptions)>,
}

/// Events of the machines of a consumer.
#[derive(Debug)]
pub(in crate::pulsar::consumer) struct MachineEvents {
    /// The partitions that have messages to be taken.
    pub(in crate::pulsar::consumer) ready: Arc<ReadyPartitions>,
    /// Messages are to be sent to the dead letter topic.
    pub(in crate::pulsar::consumer) dead: Arc<Notify>,
    /// Messages that are to be handed out next.
    pub(in crate::pulsar::consumer) ahead: Arc<Ahead<Message>>,
    /// A topic has ended.
    pub(in crate::pulsar::consumer) ends: Arc<Ends>,
    /// A partition is served, or is not any more.
    pub(in crate::pulsar::consumer) active: Arc<ActiveChanges>,
    /// Incomplete chunked messages were given up, which is logged once.
    pub(in crate::pulsar::consumer) chunks_warned: Arc<AtomicBool>,
}

/// Partitions that this consumer has become or ceased to be the active one of, and that were not
/// asked for. A partition that has changed again stands with its latest state.
#[derive(Debug, Default)]
pub(in crate::pulsar::consumer) struct ActiveChanges {
    changes: Mutex<Changes>,
    pub(in crate::pulsar::consumer) changed: Notify,
}

#[derive(Debug, Default)]
struct Changes {
    states: HashMap<Arc<str>, bool>,
    /// Number of changes of each partition.
    counts: HashMap<Arc<str>, u64>,
    /// In order of their first change that was not asked for.
    order: VecDeque<Arc<str>>,
}

impl ActiveChanges {
    pub(super) fn note(&self, topic: &Arc<str>, active: bool) {
        {
            let mut changes = self.changes.lock();
            *changes.counts.entry(Arc::clone(topic)).or_default() += 1;
            if changes.states.insert(Arc::clone(topic), active).is_none() {
                changes.order.push_back(Arc::clone(topic));
            }
        }
        self.changed.notify_waiters();
    }

    /// The oldest change, which is forgotten when it is told.
    pub(in crate::pulsar::consumer) fn next(self: &Arc<Self>) -> Option<ActiveChange> {
        let mut changes = self.changes.lock();
        let topic = changes.order.pop_front()?;
        let active = changes.states.remove(&topic)?;
        let count = changes.counts.get(&topic).copied().unwrap_or_default();
        Some(ActiveChange { untold: Some((topic, active)), count, of: Arc::clone(self) })
    }

    /// Puts back a change that was not told, unless the partition has changed again.
    fn put_back(&self, topic: Arc<str>, active: bool, count: u64) {
        {
            let mut changes = self.changes.lock();
            if changes.counts.get(&topic) != Some(&count) {
                return;
            }
            changes.states.insert(Arc::clone(&topic), active);
            changes.order.push_front(topic);
        }
        self.changed.notify_waiters();
    }
}

/// A partition that its consumer has become or ceased to be the active one of. The caller that
/// waited for it may be gone: a change that is dropped before it was told waits for the next one.
#[derive(Debug)]
pub struct ActiveChange {
    untold: Option<(Arc<str>, bool)>,
    /// The number of the change among those of its partition.
    count: u64,
    of: Arc<ActiveChanges>,
}

impl ActiveChange {
    /// Full topic name of the partition, and whether the consumer is its active one now.
    pub fn tell(mut self) -> (Arc<str>, bool) {
        self.untold.take().expect("it is told once")
    }
}

impl Drop for ActiveChange {
    fn drop(&mut self) {
        if let Some((topic, active)) = self.untold.take() {
            self.of.put_back(topic, active, self.count);
        }
    }
}

/// The ends of topics that were terminated.
#[derive(Debug, Default)]
pub(in crate::pulsar::consumer) struct Ends {
    /// Whether one was told: it costs a look at each partition to know whether all have ended.
    pub(in crate::pulsar::consumer) any: AtomicBool,
    /// Notified with each of them, and when the consumer ends.
    pub(in crate::pulsar::consumer) changed: Notify,
}

impl MachineEvents {
    /// Has those that wait for events of the consumer look whether it has ended.
    pub(in crate::pulsar::consumer) fn tell_waits(&self) {
        self.ends.changed.notify_waiters();
        self.active.changed.notify_waiters();
    }

    fn look(&self, machine: &mut Machine) {
        if machine.has_dead() {
            self.dead.notify_one();
        }
        if machine.take_revoked() {
            self.ahead.revoke(|message, _| machine.is_revoked(message));
        }
        if let Some(given_up) = machine.take_given_up()
            && !self.chunks_warned.swap(true, Ordering::Relaxed)
        {
            warn!(
                target: logger::PULSAR_CONSUMER,
                "{}: {given_up}. stats() of the consumer counts those that follow as \
                 dropped_chunked_messages and expired_chunked_messages",
                machine.topic(),
            );
        }
    }
}

impl Delivery {
    pub(super) fn new(
        machine: Machine,
        (id, topic): (u64, &Arc<str>),
        shared: &Arc<Shared>,
        schema: Option<SchemaOptions>,
        signal: &Arc<Signal>,
        events: MachineEvents,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            id,
            topic: Arc::clone(topic),
            machine: Mutex::new(Rank::Machine, machine),
            notified: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            signal: Arc::clone(signal),
            events,
            counted: Arc::clone(&shared.unreadable),
            warned: AtomicBool::new(false),
            schema: schema.map(|schema| (Arc::clone(shared), schema)),
        })
    }

    pub(super) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock()
    }

    /// Changes the machine. Tells whether the driver is to be woken, because that made something
    /// due, or due sooner.
    pub(super) fn change<T>(&self, act: impl FnOnce(&mut Machine) -> T) -> (T, bool) {
        let mut machine = self.machine();
        let due = machine.poll_timeout();
        let result = act(&mut machine);
        self.events.look(&mut machine);
        let wake = machine.wants_transmit() || machine.poll_timeout() != due;
        drop(machine);
        // Not again before the driver has looked.
        (result, wake && !self.notified.swap(true, Ordering::AcqRel))
    }

    /// Moves up to `max` messages to `out` and returns their number, and as [`Self::change`]. After
    /// that it is the turn of the other [`ReadyPartitions`].
    pub(super) fn take(&self, max: usize, out: &mut impl Extend<Message>) -> (usize, bool) {
        self.change(|machine| {
            let taken = machine.take(max, out);
            if machine.has_ready() {
                self.events.ready.move_to_back(self.id);
            } else {
                self.listed.store(false, Ordering::Relaxed);
                self.events.ready.remove(self.id);
            }
            taken
        })
    }

    /// Removes its messages from those that are to be handed out next: it is no part of the
    /// consumer any more.
    pub(super) fn revoke_all(&self) {
        let machine = self.machine();
        self.events.ahead.revoke(|message, _| machine.has_delivered(message));
    }

    /// As [`Self::change`], for a change of which the driver knows.
    pub(super) fn update(&self, act: impl FnOnce(&mut Machine)) {
        let mut machine = self.machine();
        act(&mut machine);
        self.events.look(&mut machine);
    }

    /// Handles an entry that cannot be read.
    fn unreadable(&self, error: Error) {
        self.counted.fetch_add(1, Ordering::Relaxed);
        if !self.warned.swap(true, Ordering::Relaxed) {
            warn!(
                target: logger::PULSAR_CONSUMER,
                "{error}; the others are counted as unreadable_entries in stats() of the client",
            );
        }
    }

    /// Begins to get the schema of messages that have come.
    fn fetch(&self, wanted: Wanted) {
        if let Some((shared, schema)) = &self.schema {
            let fetched = schema::fetch(Arc::clone(shared), schema.clone(), Arc::clone(&self.topic), wanted);
            let delivery = Weak::clone(&self.me);
            tokio::spawn(async move {
                fetched.await;
                let Some(delivery) = delivery.upgrade() else { return };
                let readable = delivery.list(&delivery.machine());
                if readable {
                    delivery.signal.ring();
                }
            });
        }
    }

    /// Adds it to the [`ReadyPartitions`] if a message can be taken, and tells whether one can.
    /// Under the lock of its machine.
    fn list(&self, machine: &Machine) -> bool {
        let is_ready = machine.has_ready();
        if is_ready && !self.listed.load(Ordering::Relaxed) {
            self.listed.store(true, Ordering::Relaxed);
            self.events.ready.add(self.id);
        }
        is_ready
    }

    pub(super) fn turn(&self, now: Instant, out: &mut Transmit) -> Option<Instant> {
        // Cleared before looking, so that a change after the look wakes the driver again.
        self.notified.store(false, Ordering::Release);
        let mut machine = self.machine();
        machine.handle_timeout(now);
        self.events.look(&mut machine);
        machine.poll_transmit(out);
        machine.poll_timeout()
    }

    /// An error means that the connection must be closed.
    pub(super) fn handle_entry(&self, now: Instant, delivery: hot::Delivery, payload: Payload) -> Result<()> {
        let mut machine = self.machine();
        machine.check_flood(payload.covered.len())?;
        let handled = machine.handle_message(now, delivery, payload);
        let failed = handled.is_err() && machine.has_failed();
        if let Err(error) = &handled
            && failed
        {
            // Under the machine's lock, as in `settle_seek`: a seek has it go on only if it comes
            // later.
            self.signal.stop(self.id, error.clone());
        }
        let readable = self.list(&machine) || failed;
        self.events.look(&mut machine);
        while let Some(wanted) = machine.next_wanted() {
            self.fetch(wanted);
        }
        drop(machine);
        if let Err(error) = handled {
            self.unreadable(error);
        }
        if failed {
            self.events.tell_waits();
        }
        if readable {
            self.signal.ring();
        }
        Ok(())
    }

    pub(super) fn reached_end(&self) {
        self.machine().reached_end();
        self.events.ends.any.store(true, Ordering::Release);
        self.events.ends.changed.notify_waiters();
        self.signal.ring();
    }
}
