//! The waiters of a producer's messages.
//!
//! The outcomes of a slot (a partition, for Pulsar) arrive in the order of the pushes, so a queue
//! for each slot is enough: one receipt for a batch of a thousand messages resolves the thousand
//! entries at its head.
//!
//! A future is resolved on its loop's thread, to which the outcome is brought. Messages of groups
//! and those without a waiter need no interpreter: if an outcome is for few of them, and the loop's
//! thread is not pushing others, the engine's thread counts them down, and wakes the loop when a
//! group is complete.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use pyo3::prelude::*;
use pyo3::types::PyList;
use tokio::sync::Notify;

use crate::bridge::{self, Settle};
use crate::convert::raise;
use crate::promise::{Caller, OneShot, Promise};
use crate::value::{IntoPython, Value};
use forebay_base::error::Error;
use forebay_base::sync::{Mutex, MutexGuard, Rank};
use forebay_client::events::{ProducerEvents, Receipt, SendOutcome};

/// Most messages of an outcome that is handled where it arrives. One of more is worth a wake-up of
/// the loop, whose thread takes the work from the engine's.
const FEW: u32 = 8;

/// A protocol's receipts as Python objects.
pub(super) trait Receipts: Send + Sync + 'static {
    /// The receipt of one message.
    fn one(py: Python<'_>, receipt: Receipt) -> PyResult<Py<PyAny>>;

    /// The receipts of a group, in the order of its messages: a list unless the protocol has
    /// something smaller.
    fn many(py: Python<'_>, receipts: Vec<Receipt>) -> PyResult<Py<PyAny>> {
        let receipts = receipts.into_iter().map(|receipt| Self::one(py, receipt));
        Ok(PyList::new(py, receipts.collect::<PyResult<Vec<_>>>()?)?.into_any().unbind())
    }
}

/// The waiter of the next messages of a slot.
pub(super) enum Waiting<R> {
    /// A future of the loop, for one message.
    Future(Py<PyAny>),
    /// A blocked thread, for one message.
    Thread(Arc<OneShot>),
    /// No waiter for this many messages: the next `flush` reports their failures.
    Unwatched(u32),
    /// A `send_many`, for this many messages.
    Group(Arc<Group<R>>, u32),
    /// A `flush`, for all messages before it.
    Flush(Arc<Group<R>>),
}

/// Messages that complete together.
pub(super) struct Group<R>(Mutex<SendGroupState>, PhantomData<fn() -> R>);

struct SendGroupState {
    /// Messages, or slots of a flush, without an outcome; one more while messages are still pushed.
    open: usize,
    /// Slot of each message, if there are several slots.
    order: Vec<u32>,
    /// Receipts of each slot, in its order.
    receipts: Vec<VecDeque<Receipt>>,
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

impl<R: Receipts> Group<R> {
    pub(super) fn new(promise: Promise, slots: usize, kind: GroupKind) -> Arc<Self> {
        let state = SendGroupState {
            open: 1,
            order: Vec::new(),
            receipts: vec![VecDeque::new(); slots],
            error: None,
            failed: 0,
            promise: Some(promise),
            kind,
        };
        Arc::new(Self(Mutex::new(Rank::SendGroup, state), PhantomData))
    }

    fn state(&self) -> MutexGuard<'_, SendGroupState> {
        self.0.lock()
    }

    /// Ends the wait with `error`, whatever is still open, or with that of messages that have
    /// failed.
    pub(super) fn fail(&self, error: Error) {
        let mut state = self.state();
        let Some(promise) = state.promise.take() else { return };
        let failed = state.error.take().map(|failed| counted(failed, state.failed));
        drop(state);
        promise.resolve(Err(failed.unwrap_or(error)));
    }

    fn expect(&self, slot: usize, count: usize) {
        let mut state = self.state();
        if slot >= state.receipts.len() {
            // One that the producer has got since the group began.
            if state.receipts.len() == 1 {
                // So far no order was needed: everything went to the first.
                let before = state.open - 1 + state.receipts[0].len();
                state.order = vec![0; before];
            }
            state.receipts.resize_with(slot + 1, VecDeque::new);
        }
        state.open += count;
        if state.receipts.len() > 1 && state.kind == GroupKind::Many {
            state.order.extend(std::iter::repeat_n(slot as u32, count));
        }
    }

    /// Ends the pushing. `error` says why the `rest` of the messages was not sent.
    pub(super) fn seal(&self, rest: usize, error: Option<Error>) {
        let mut state = self.state();
        if let Some(error) = error {
            state.failed += rest;
            state.error.get_or_insert(error);
        }
        finish::<R>(state, 1);
    }

    fn end(&self, slot: usize, outcome: &SendOutcome, first: u32, count: u32) {
        let mut state = self.state();
        match outcome {
            SendOutcome::Stored { receipt, .. } => {
                state.receipts[slot].extend((first..first + count).map(|index| receipt_at(receipt, index)));
            }
            SendOutcome::Failed { error, .. } => {
                state.failed += count as usize;
                state.error.get_or_insert_with(|| error.clone());
            }
        }
        finish::<R>(state, count as usize);
    }

    /// A slot has come to the flush. Returns the failures if the flush has been given up, for the
    /// next one to report.
    fn end_flush(&self, failures: Option<(u64, Error)>) -> Option<(u64, Error)> {
        let mut state = self.state();
        if state.promise.is_none() {
            return failures;
        }
        if let Some((count, error)) = failures {
            state.failed += count as usize;
            state.error.get_or_insert(error);
        }
        finish::<R>(state, 1);
        None
    }
}

/// Several receipts on their way to Python.
struct Many<R>(Vec<Receipt>, PhantomData<fn() -> R>);

impl<R: Receipts> IntoPython for Many<R> {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        R::many(py, self.0)
    }
}

/// Counts down, and resolves at zero.
fn finish<R: Receipts>(mut state: MutexGuard<'_, SendGroupState>, count: usize) {
    state.open -= count;
    if state.open > 0 {
        return;
    }
    let Some(promise) = state.promise.take() else { return };
    let many = |receipts| Ok(Value::new(Many::<R>(receipts, PhantomData)));
    let outcome = match state.error.take() {
        Some(error) => Err(counted(error, state.failed)),
        None if state.kind == GroupKind::Flush => Ok(Value::new(())),
        None if state.receipts.len() == 1 => many(std::mem::take(&mut state.receipts[0]).into()),
        None => {
            let order = std::mem::take(&mut state.order);
            many(order.iter().filter_map(|slot| state.receipts[*slot as usize].pop_front()).collect())
        }
    };
    drop(state);
    promise.resolve(outcome);
}

fn counted(error: Error, failed: usize) -> Error {
    let counted =
        Error::new(error.kind(), format!("{failed} messages failed, the first with: {}", error.message()));
    let counted = match error.topic() {
        Some(topic) => counted.with_topic(topic),
        None => counted,
    };
    match error.peer_text() {
        Some(text) => counted.with_peer_text(text),
        None => counted,
    }
}

/// The receipt of the message at `index` of those that `receipt` is for.
fn receipt_at(receipt: &Receipt, index: u32) -> Receipt {
    match receipt {
        Receipt::Id(id) if id.batch_size > 0 => {
            Receipt::Id(id.in_batch(id.batch_index + index as i32, id.batch_size))
        }
        receipt => receipt.clone(),
    }
}

/// The waiters of one producer.
pub(super) struct Sends<R> {
    caller: Caller,
    queues: Mutex<Queues<R>>,
    /// Outcomes on their way to the loop. Those behind them follow, so that each slot keeps its
    /// order.
    on_way: AtomicUsize,
    /// Notified when there may be room in the window again.
    pub(super) room: Notify,
}

pub(super) struct Queues<R> {
    slots: Vec<VecDeque<Waiting<R>>>,
    /// Number of slots in which something waits.
    busy: usize,
    /// Whether something has been pushed since the last outcome.
    active: bool,
    /// Failures of unwatched messages since the last flush.
    failures: Option<(u64, Error)>,
}

impl<R: Receipts> Queues<R> {
    /// Whether nothing waits.
    pub(super) fn is_idle(&self) -> bool {
        self.busy == 0
    }

    /// The first one that waits in `slot`, which does not any more.
    fn pop(&mut self, slot: usize) -> Option<Waiting<R>> {
        let queue = &mut self.slots[slot];
        let first = queue.pop_front();
        self.busy -= usize::from(first.is_some() && queue.is_empty());
        first
    }

    /// Takes the first waiter of `slot`, for at most `left` messages: the rest of it stays. `None`
    /// if nothing waits, if the waiter is for a message and `left` is 0, or if it is a future and
    /// this is not the loop's thread.
    fn take_first(&mut self, slot: usize, left: u32, on_loop: bool) -> Option<Waiting<R>> {
        match self.slots.get_mut(slot)?.front_mut()? {
            Waiting::Flush(_) => self.pop(slot),
            _ if left == 0 => None,
            Waiting::Future(_) if !on_loop => None,
            Waiting::Unwatched(n) => {
                let part = (*n).min(left);
                *n -= part;
                if *n == 0 {
                    self.pop(slot);
                }
                Some(Waiting::Unwatched(part))
            }
            Waiting::Group(group, n) => {
                let part = (*n).min(left);
                let group = Arc::clone(group);
                *n -= part;
                if *n == 0 {
                    self.pop(slot);
                }
                Some(Waiting::Group(group, part))
            }
            Waiting::Future(_) | Waiting::Thread(_) => self.pop(slot),
        }
    }

    /// Registers the waiter of the message that was just pushed to `slot`.
    pub(super) fn wait(&mut self, slot: usize, waiting: Waiting<R>) {
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, VecDeque::new);
        }
        self.active = true;
        let queue = &mut self.slots[slot];
        self.busy += usize::from(queue.is_empty());
        match (queue.back_mut(), &waiting) {
            (Some(Waiting::Unwatched(n)), Waiting::Unwatched(more)) => *n += more,
            (Some(Waiting::Group(group, n)), Waiting::Group(other, more)) if Arc::ptr_eq(group, other) => {
                *n += more
            }
            _ => queue.push_back(waiting),
        }
    }

    /// Registers messages of a group as they are pushed.
    pub(super) fn group<'a>(&'a mut self, group: &'a Arc<Group<R>>) -> Pushed<'a, R> {
        Pushed { queues: self, group, slot: 0, count: 0 }
    }

    /// Queues a flush behind everything that waits.
    pub(super) fn flush(&mut self, group: &Arc<Group<R>>) {
        for slot in 0..self.slots.len() {
            if !self.slots[slot].is_empty() {
                group.expect(slot, 1);
                self.slots[slot].push_back(Waiting::Flush(Arc::clone(group)));
            }
        }
    }

    /// The failures that have not been reported yet.
    pub(super) fn take_failures(&mut self) -> Option<(u64, Error)> {
        self.failures.take()
    }
}

/// Messages of a group that have been pushed: each run of them to one slot is registered at once.
pub(super) struct Pushed<'a, R: Receipts> {
    queues: &'a mut Queues<R>,
    group: &'a Arc<Group<R>>,
    slot: usize,
    /// Messages of the slot that are not registered yet.
    count: u32,
}

impl<R: Receipts> Pushed<'_, R> {
    /// The next one, with its slot.
    pub(super) fn add(&mut self, slot: usize) {
        if slot != self.slot {
            self.register();
            self.slot = slot;
        }
        self.count += 1;
    }

    fn register(&mut self) {
        let count = std::mem::take(&mut self.count);
        if count > 0 {
            self.group.expect(self.slot, count as usize);
            self.queues.wait(self.slot, Waiting::Group(Arc::clone(self.group), count));
        }
    }
}

impl<R: Receipts> Drop for Pushed<'_, R> {
    fn drop(&mut self) {
        self.register();
    }
}

impl<R: Receipts> Sends<R> {
    pub(super) fn new(caller: Caller) -> Arc<Self> {
        let queues = Queues { slots: Vec::new(), busy: 0, active: false, failures: None };
        let queues = Mutex::new(Rank::Sends, queues);
        Arc::new(Self { caller, queues, on_way: AtomicUsize::new(0), room: Notify::new() })
    }

    /// Hold this guard across the push and the registration of its waiter, or the receipt may
    /// arrive first.
    pub(super) fn queues(&self) -> MutexGuard<'_, Queues<R>> {
        self.queues.lock()
    }

    /// Resolves `promise` when everything sent before has completed. Call the returned function
    /// once the gathered messages have been handed to the connection.
    pub(super) fn flush(&self, promise: Promise, slots: usize) -> (Weak<Group<R>>, impl FnOnce() + use<R>) {
        let group = Group::<R>::new(promise, slots, GroupKind::Flush);
        let failures = {
            let mut queues = self.queues();
            queues.flush(&group);
            queues.take_failures()
        };
        (Arc::downgrade(&group), move || {
            let (count, error) = failures.map_or((0, None), |(count, error)| (count as usize, Some(error)));
            group.seal(count, error);
        })
    }

    /// Whether an outcome of `count` messages is better handled on this thread than on that of the
    /// loop, up to the first future. While the loop's thread pushes, it is awake, and would only be
    /// held up by another thread at the queues.
    fn spares_the_loop(&self, count: u32) -> bool {
        count <= FEW
            && self.on_way.load(Ordering::Acquire) == 0
            && self.queues.try_lock().is_some_and(|mut queues| !std::mem::take(&mut queues.active))
    }

    /// Resolves the waiters at the head of `slot`; elsewhere than on the loop's thread, up to the
    /// first future. Returns the number of messages whose waiters were resolved.
    fn resolve(
        &self,
        on_loop: Option<Python<'_>>,
        slot: usize,
        outcome: &SendOutcome,
    ) -> (u32, PyResult<()>) {
        let count = count_of(outcome);
        let mut index = 0;
        let mut result = Ok(());
        loop {
            // Taken one by one: resolving must not happen under the lock that a push on this thread
            // takes.
            let mut queues = self.queues();
            let Some(waiting) = queues.take_first(slot, count - index, on_loop.is_some()) else { break };
            match waiting {
                Waiting::Future(future) => {
                    drop(queues);
                    if let Some(py) = on_loop {
                        let receipt = match single(outcome, index) {
                            Ok(receipt) => R::one(py, receipt),
                            Err(error) => Err(raise(py, error)),
                        };
                        result = result.and(bridge::set_at_once(py, &future, receipt));
                    }
                    index += 1;
                }
                Waiting::Thread(one_shot) => {
                    drop(queues);
                    let receipt = single(outcome, index).map_err(Clone::clone);
                    one_shot.set(receipt.map(|receipt| Value::Receipt(receipt, R::one)));
                    index += 1;
                }
                Waiting::Unwatched(n) => {
                    if let SendOutcome::Failed { error, .. } = outcome {
                        let failures = queues.failures.get_or_insert_with(|| (0, error.clone()));
                        failures.0 += u64::from(n);
                    }
                    index += n;
                }
                Waiting::Group(group, n) => {
                    drop(queues);
                    group.end(slot, outcome, index, n);
                    index += n;
                }
                Waiting::Flush(group) => {
                    // Under the lock: another flush may begin meanwhile, and must find failures
                    // that come back.
                    let failures = queues.failures.take();
                    queues.failures = group.end_flush(failures);
                }
            }
        }
        (index, result)
    }
}

/// The outcome of the messages behind the first `done`.
fn behind(outcome: SendOutcome, done: u32) -> SendOutcome {
    match outcome {
        SendOutcome::Stored { count, receipt } => {
            SendOutcome::Stored { count: count - done, receipt: receipt_at(&receipt, done) }
        }
        SendOutcome::Failed { count, error } => SendOutcome::Failed { count: count - done, error },
    }
}

fn count_of(outcome: &SendOutcome) -> u32 {
    let (SendOutcome::Stored { count, .. } | SendOutcome::Failed { count, .. }) = outcome;
    *count
}

fn single(outcome: &SendOutcome, index: u32) -> Result<Receipt, &Error> {
    match outcome {
        SendOutcome::Stored { receipt, .. } => Ok(receipt_at(receipt, index)),
        SendOutcome::Failed { error, .. } => Err(error),
    }
}

impl<R: Receipts> Settle for Sends<R> {
    fn settle(&self, py: Python<'_>, slot: usize, outcome: SendOutcome) -> PyResult<()> {
        let (_, result) = self.resolve(Some(py), slot, &outcome);
        self.on_way.fetch_sub(1, Ordering::Release);
        result
    }
}

/// The engine's view of a producer's waiters.
pub(super) struct Events<R>(pub(super) Arc<Sends<R>>);

impl<R: Receipts> ProducerEvents for Events<R> {
    fn sent(&self, slot: usize, outcome: SendOutcome) {
        let count = count_of(&outcome);
        let mut done = 0;
        // Without a loop none of the waiters is a Python object.
        if !self.0.caller.is_loop() || self.0.spares_the_loop(count) {
            (done, _) = self.0.resolve(None, slot, &outcome);
        }
        if let Caller::Loop(bridge) = &self.0.caller
            && done < count
        {
            self.0.on_way.fetch_add(1, Ordering::Relaxed);
            bridge.sent(Arc::clone(&self.0) as Arc<dyn Settle>, slot, behind(outcome, done));
        }
    }

    fn room(&self) {
        self.0.room.notify_waiters();
    }

    fn closed(&self, _error: Error) {
        self.0.room.notify_waiters();
    }
}
