//! Who waits for which sent message.
//!
//! Outcomes of a partition come in the order of the pushes, so a queue per partition is all it takes: one
//! receipt for a batch of a thousand resolves the thousand entries at the head.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use tokio::sync::Notify;

use crate::client::events::{ProducerEvents, Receipt, SendOutcome};
use crate::error::{Error, Result};
use crate::python::bridge::Bridge;
use crate::python::promise::{Cell, Door, Promise, Value};

/// Who waits for the next messages of a partition.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A future of the loop, for one message.
    Future(Py<PyAny>),
    /// A blocked thread, for one message.
    Thread(Arc<Cell>),
    /// Nobody, for so many messages: `flush` will tell.
    Nobody(u32),
    /// A `send_many`, for so many messages.
    Group(Arc<Group>, u32),
    /// A `flush`, for all before it.
    Flush(Arc<Group>),
}

/// Messages that end together.
#[derive(Debug)]
pub(super) struct Group(Mutex<GroupState>);

#[derive(Debug)]
struct GroupState {
    /// Messages, or partitions of a flush, without an outcome; one more while messages are still pushed.
    open: usize,
    /// Partition of each message, when there are several.
    order: Vec<u32>,
    /// Receipts in the order of each slot.
    ids: Vec<VecDeque<Receipt>>,
    error: Option<Error>,
    failed: usize,
    promise: Option<Promise>,
    kind: GroupKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupKind {
    Many,
    Flush,
}

impl Group {
    pub(super) fn new(promise: Promise, slots: usize, kind: GroupKind) -> Arc<Self> {
        Arc::new(Self(Mutex::new(GroupState {
            open: 1,
            order: Vec::new(),
            ids: vec![VecDeque::new(); slots],
            error: None,
            failed: 0,
            promise: Some(promise),
            kind,
        })))
    }

    fn state(&self) -> MutexGuard<'_, GroupState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expect(&self, slot: usize) {
        let mut state = self.state();
        state.open += 1;
        if state.ids.len() > 1 && state.kind == GroupKind::Many {
            state.order.push(slot as u32);
        }
    }

    /// No more will be expected; `error` is why the rest was not sent.
    pub(super) fn seal(&self, rest: usize, error: Option<Error>) {
        let mut state = self.state();
        if let Some(error) = error {
            state.failed += rest;
            state.error.get_or_insert(error);
        }
        finish(state, 1);
    }

    fn end(&self, slot: usize, outcome: &SendOutcome, first: u32, count: u32) {
        let mut state = self.state();
        match outcome {
            SendOutcome::Stored { receipt, .. } => {
                state.ids[slot].extend((first..first + count).map(|index| receipt_at(receipt, index)));
            }
            SendOutcome::Failed { error, .. } => {
                state.failed += count as usize;
                state.error.get_or_insert_with(|| error.clone());
            }
        }
        finish(state, count as usize);
    }

    fn end_flush(&self, failures: Option<(u64, Error)>) {
        let mut state = self.state();
        if let Some((count, error)) = failures {
            state.failed += count as usize;
            state.error.get_or_insert(error);
        }
        finish(state, 1);
    }
}

/// Counts down, and resolves at zero.
fn finish(mut state: MutexGuard<'_, GroupState>, count: usize) {
    state.open -= count;
    if state.open > 0 {
        return;
    }
    let Some(promise) = state.promise.take() else { return };
    let outcome = match state.error.take() {
        Some(error) => Err(counted(error, state.failed)),
        None if state.kind == GroupKind::Flush => Ok(Value::None),
        None if state.ids.len() == 1 => Ok(Value::Receipts(std::mem::take(&mut state.ids[0]).into())),
        None => {
            let order = std::mem::take(&mut state.order);
            let receipts = order.iter().filter_map(|slot| state.ids[*slot as usize].pop_front());
            Ok(Value::Receipts(receipts.collect()))
        }
    };
    drop(state);
    promise.resolve(outcome);
}

fn counted(error: Error, failed: usize) -> Error {
    let counted =
        Error::new(error.kind(), format!("{failed} messages failed, the first of them: {}", error.message()));
    let counted = match error.topic() {
        Some(topic) => counted.with_topic(topic),
        None => counted,
    };
    match error.peer_text() {
        Some(text) => counted.with_peer_text(text),
        None => counted,
    }
}

/// Of the message at `index` of those that the receipt is for.
fn receipt_at(receipt: &Receipt, index: u32) -> Receipt {
    match receipt {
        Receipt::Id(id) if id.batch_size > 0 => Receipt::Id(id.in_batch(index as i32, id.batch_size)),
        receipt => *receipt,
    }
}

/// The queues of one producer.
#[derive(Debug)]
pub(super) struct Outbox {
    door: Door,
    queues: Mutex<Queues>,
    /// Rung when there may be room in the window again.
    pub(super) room: Notify,
}

#[derive(Debug, Default)]
pub(super) struct Queues {
    slots: Vec<VecDeque<Waiting>>,
    /// Failures of messages nobody waits for, since the last flush.
    failures: Option<(u64, Error)>,
}

impl Queues {
    /// Notes who waits for the message that was just pushed to `slot`.
    pub(super) fn wait(&mut self, slot: usize, waiting: Waiting) {
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, VecDeque::new);
        }
        let queue = &mut self.slots[slot];
        match (queue.back_mut(), &waiting) {
            (Some(Waiting::Nobody(n)), Waiting::Nobody(more)) => *n += more,
            (Some(Waiting::Group(group, n)), Waiting::Group(other, more)) if Arc::ptr_eq(group, other) => {
                *n += more
            }
            _ => queue.push_back(waiting),
        }
    }

    /// Notes one message of a group.
    pub(super) fn wait_group(&mut self, slot: usize, group: &Arc<Group>) {
        group.expect(slot);
        self.wait(slot, Waiting::Group(Arc::clone(group), 1));
    }

    /// Puts a flush behind everything that waits.
    pub(super) fn flush(&mut self, group: &Arc<Group>) {
        for slot in 0..self.slots.len() {
            if !self.slots[slot].is_empty() {
                group.expect(slot);
                self.slots[slot].push_back(Waiting::Flush(Arc::clone(group)));
            }
        }
    }

    /// The failures that nobody was told.
    pub(super) fn take_failures(&mut self) -> Option<(u64, Error)> {
        self.failures.take()
    }
}

impl Outbox {
    pub(super) fn new(door: Door) -> Arc<Self> {
        Arc::new(Self { door, queues: Mutex::default(), room: Notify::new() })
    }

    /// To be held from before a push until its waiter is noted, lest the receipt come in between.
    pub(super) fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves `promise` when everything before has ended. What it gives is to be called when what is gathered
    /// has been sent on its way.
    pub(super) fn flush(&self, promise: Promise, slots: usize) -> impl FnOnce() + use<> {
        let group = Group::new(promise, slots, GroupKind::Flush);
        let failures = {
            let mut queues = self.queues();
            queues.flush(&group);
            queues.take_failures()
        };
        move || {
            let (count, error) = failures.map_or((0, None), |(count, error)| (count as usize, Some(error)));
            group.seal(count, error);
        }
    }

    /// Tells those at the head of `slot` how their messages ended.
    pub(super) fn settle(
        &self,
        on_loop: Option<(Python<'_>, &Arc<Bridge>)>,
        slot: usize,
        outcome: SendOutcome,
    ) -> PyResult<()> {
        let (SendOutcome::Stored { count, .. } | SendOutcome::Failed { count, .. }) = outcome;
        let mut index = 0;
        let mut result = Ok(());
        loop {
            // Taken one by one: resolving must not happen under the lock that a push on this thread takes.
            let mut queues = self.queues();
            let Some(queue) = queues.slots.get_mut(slot) else { break };
            let waiting = match queue.front_mut() {
                Some(Waiting::Flush(_)) => queue.pop_front().expect("just seen"),
                None => break,
                Some(_) if index == count => break,
                Some(Waiting::Nobody(n)) => {
                    let part = (*n).min(count - index);
                    *n -= part;
                    if *n == 0 {
                        queue.pop_front();
                    }
                    Waiting::Nobody(part)
                }
                Some(Waiting::Group(group, n)) => {
                    let part = (*n).min(count - index);
                    let group = Arc::clone(group);
                    *n -= part;
                    if *n == 0 {
                        queue.pop_front();
                    }
                    Waiting::Group(group, part)
                }
                Some(_) => queue.pop_front().expect("just seen"),
            };
            let mut one = || {
                let value = single(&outcome, index);
                index += 1;
                value
            };
            match waiting {
                Waiting::Future(future) => {
                    drop(queues);
                    let value = one();
                    if let Some((py, bridge)) = on_loop {
                        result = result.and(bridge.set(py, &future, value));
                    }
                }
                Waiting::Thread(cell) => {
                    drop(queues);
                    cell.set(one());
                }
                Waiting::Nobody(n) => {
                    if let SendOutcome::Failed { error, .. } = &outcome {
                        let failures = queues.failures.get_or_insert_with(|| (0, error.clone()));
                        failures.0 += u64::from(n);
                    }
                    index += n;
                }
                Waiting::Group(group, n) => {
                    drop(queues);
                    group.end(slot, &outcome, index, n);
                    index += n;
                }
                Waiting::Flush(group) => {
                    let failures = queues.failures.take();
                    drop(queues);
                    group.end_flush(failures);
                }
            }
        }
        result
    }
}

fn single(outcome: &SendOutcome, index: u32) -> Result<Value> {
    match outcome {
        SendOutcome::Stored { receipt, .. } => Ok(Value::Receipt(receipt_at(receipt, index))),
        SendOutcome::Failed { error, .. } => Err(error.clone()),
    }
}

/// The engine's way to an outbox.
#[derive(Debug)]
pub(super) struct Events(pub(super) Arc<Outbox>);

impl ProducerEvents for Events {
    fn sent(&self, slot: usize, outcome: SendOutcome) {
        match &self.0.door {
            Door::Loop(bridge) => bridge.sent(Arc::clone(&self.0), slot, outcome),
            Door::Blocking => {
                // Without a loop there is no Python object among those who wait.
                let _ = self.0.settle(None, slot, outcome);
            }
        }
    }

    fn room(&self) {
        self.0.room.notify_waiters();
    }

    fn closed(&self, _error: Error) {
        self.0.room.notify_waiters();
    }
}
