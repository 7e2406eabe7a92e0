//! The waits for a consumer's messages.
//!
//! Messages stay in the engine until they are taken, so cancelling a wait loses nothing. Waits are
//! served in their order, on the loop's thread if there is one and on the engine's otherwise.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arrow_array::RecordBatch;
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::arrow::ArrowBatch;
use crate::bridge::Serve;
use crate::message::{Many, Message, One};
use crate::promise::{Caller, Promise};
use crate::value::{IntoPython, Outcome, Value};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::sync::{Mutex, MutexGuard, Rank};
use forebay_client::events::ConsumerEvents;
use forebay_client::traffic::{ReceiveCounters, ReceiveCounts, Traffic};

/// Messages that iteration takes from the engine at once.
const PREFETCH: usize = 256;

/// A protocol's consumer in the engine.
pub(super) trait Source: Send + Sync + 'static {
    /// Its messages.
    type Message: Message;

    /// The topics or filters, joined by commas.
    fn topic(&self) -> &str;

    /// Moves up to `max` messages to `out`; none are an `Ok` too.
    fn take(&self, max: usize, out: &mut Vec<Self::Message>) -> Result<()>;

    /// Tells that the application gets messages that were taken.
    fn handed_out(&self, _messages: &[Self::Message]) {}

    /// Tells that the application has messages, later than [`Self::handed_out`]: no wait collects
    /// them any more.
    fn handed_over(&self, _messages: &[Self::Message]) {}

    /// Tells that the application has not got a message after all.
    fn given_back(&self, _message: &Self::Message) {}

    /// Whether messages that were taken and not handed over may have to be dropped: those that are
    /// not [wanted](Self::is_wanted).
    fn any_recalled(&self) -> bool {
        false
    }

    /// Whether a message that was taken is still to be handed over.
    fn is_wanted(&self, _message: &Self::Message) -> bool {
        true
    }

    /// Tells that all messages that were taken have been looked at.
    fn forget_recalls(&self) {}

    /// Whether [`Self::put_back`] keeps them.
    const TAKES_BACK: bool = false;

    /// Takes back messages that were taken and not handed out; without this they are dropped, and
    /// the broker delivers them again.
    fn put_back(&self, _messages: Vec<Self::Message>) {}

    /// Counts the seeks that have begun in the partition of `message`: what was taken before one is
    /// delivered again, or not wanted any more.
    fn moves(&self, _message: &Self::Message) -> u64 {
        0
    }

    /// Asks for one [`ConsumerEvents::readable`]; false, and no such call, if there is something to
    /// take already.
    fn arm(&self) -> bool;

    /// Messages as columns. The columns are the same when there are no messages.
    fn to_batch(messages: &[Self::Message]) -> Result<RecordBatch>;

    /// The messages of a batch, if their values may be wanted as columns.
    fn keep(_messages: Vec<Self::Message>) -> Option<Box<dyn Any + Send + Sync>> {
        None
    }
}

/// The messages that a wait asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// One message.
    One,
    /// The same for an iteration, which ends where the topic does.
    Next,
    /// At least one and at most this many; none if the time runs out.
    Many(usize),
    /// This many messages or payload bytes, whatever is reached first, or those that have arrived
    /// when the time runs out.
    Batch {
        /// Maximum number of messages.
        messages: usize,
        /// Maximum size of their payloads, which one message alone may exceed.
        bytes: usize,
    },
    /// This many rows, or those that have arrived when the time runs out.
    Rows(usize),
}

struct Wait<M> {
    number: u64,
    want: Want,
    promise: Promise,
    collected: Vec<M>,
    /// Size of the payloads of a batch so far.
    size: usize,
    timer: Option<AbortHandle>,
    /// Its time has run out.
    expired: bool,
}

impl<M> Wait<M> {
    fn new(number: u64, want: Want, promise: Promise, timer: Option<AbortHandle>) -> Self {
        Self { number, want, promise, collected: Vec::new(), size: 0, timer, expired: false }
    }
}

struct State<M> {
    waits: VecDeque<Wait<M>>,
    /// Taken from the engine and not handed out yet.
    ahead: VecDeque<M>,
    next_number: u64,
    /// A wait has expired.
    any_expired: bool,
}

/// A consumer and the waits for its messages.
pub(super) struct Receives<S: Source> {
    pub(super) source: S,
    caller: Caller,
    state: Mutex<State<S::Message>>,
    counters: ReceiveCounters,
    /// Totals of the client.
    traffic: Arc<Traffic>,
}

impl<S: Source> Receives<S> {
    pub(super) fn new(source: S, caller: Caller, traffic: Arc<Traffic>) -> Arc<Self> {
        let (waits, ahead) = (VecDeque::new(), VecDeque::new());
        let state = State { waits, ahead, next_number: 0, any_expired: false };
        let counters = ReceiveCounters::default();
        Arc::new(Self { source, caller, state: Mutex::new(Rank::Receives, state), counters, traffic })
    }

    /// Counters of this consumer, and the number of messages that were taken ahead.
    pub(super) fn counts(&self) -> (ReceiveCounts, usize) {
        (self.counters.counts(), self.state().ahead.len())
    }

    /// Counts messages that were just taken from the source.
    fn count_taken(&self, messages: &[S::Message]) {
        if messages.is_empty() {
            return;
        }
        let (mut bytes, mut again) = (0, 0);
        for message in messages {
            bytes += message.size() as u64;
            again += u64::from(message.is_redelivered());
        }
        for counters in [&self.counters, &self.traffic.receives] {
            counters.received(messages.len() as u64, bytes, again);
        }
    }

    /// Counts acknowledgements of the application.
    pub(super) fn count_acknowledged(&self, messages: usize) {
        self.counters.acknowledged(messages as u64);
        self.traffic.receives.acknowledged(messages as u64);
    }

    /// Counts negative acknowledgements of the application.
    pub(super) fn count_refused(&self, messages: usize) {
        self.counters.refused(messages as u64);
        self.traffic.receives.refused(messages as u64);
    }

    fn state(&self) -> MutexGuard<'_, State<S::Message>> {
        self.state.lock()
    }

    /// The next message, if one has arrived and no wait is due to get it.
    #[inline]
    pub(super) fn try_next(&self) -> Result<Option<S::Message>> {
        let mut state = self.state();
        self.drop_recalled(&mut state);
        if !state.waits.is_empty() {
            return Ok(None);
        }
        if state.ahead.is_empty() {
            let mut out = Vec::new();
            self.source.take(PREFETCH, &mut out)?;
            self.count_taken(&out);
            state.ahead = out.into();
        }
        let next = state.ahead.pop_front();
        self.source.handed_out(next.as_slice());
        self.source.handed_over(next.as_slice());
        Ok(next)
    }

    /// Whether messages were taken ahead that are still to be handed out.
    pub(super) fn has_ahead(&self) -> bool {
        let mut state = self.state();
        self.drop_recalled(&mut state);
        !state.ahead.is_empty()
    }

    /// Drops what is to be delivered again, or not any more.
    fn drop_recalled(&self, state: &mut State<S::Message>) {
        if self.source.any_recalled() {
            state.ahead.retain(|message| self.source.is_wanted(message));
            for wait in &mut state.waits {
                wait.collected.retain(|message| self.source.is_wanted(message));
                wait.size = if wait.size > 0 { wait.collected.iter().map(Message::size).sum() } else { 0 };
            }
            self.source.forget_recalls();
        }
    }

    /// Up to `max` messages that have arrived, if no wait is due to get them.
    pub(super) fn try_many(&self, max: usize) -> Result<Vec<S::Message>> {
        let mut state = self.state();
        let mut out = Vec::new();
        self.drop_recalled(&mut state);
        if state.waits.is_empty() {
            self.fill(&mut state, max, &mut out)?;
            self.source.handed_over(&out);
        }
        Ok(out)
    }

    /// Waits for messages, without `timeout` indefinitely.
    pub(super) fn wait(
        self: &Arc<Self>,
        engine: &Handle,
        py: Option<Python<'_>>,
        want: Want,
        timeout: Option<Duration>,
        promise: Promise,
    ) {
        let mut state = self.state();
        let number = state.next_number;
        state.next_number += 1;
        let timer = timeout.map(|timeout| {
            let receives = Arc::downgrade(self);
            engine.spawn(async move {
                tokio::time::sleep(timeout).await;
                if let Some(receives) = receives.upgrade() {
                    receives.expire(number);
                }
            })
        });
        let timer = timer.map(|timer| timer.abort_handle());
        state.waits.push_back(Wait::new(number, want, promise, timer));
        drop(state);
        self.serve(py);
    }

    /// Waits for one message, which is not delivered before the loop's next turn.
    pub(super) fn wait_a_turn(self: &Arc<Self>, promise: Promise) {
        {
            let mut state = self.state();
            let number = state.next_number;
            state.next_number += 1;
            state.waits.push_back(Wait::new(number, Want::Next, promise, None));
        }
        self.wake();
    }

    /// Has the waits served on the thread where that is allowed.
    fn wake(self: &Arc<Self>) {
        match &self.caller {
            Caller::Loop(bridge) => bridge.readable(Arc::clone(self) as Arc<dyn Serve>),
            Caller::Blocking => self.serve(None),
        }
    }

    /// Takes the messages taken ahead for which `moving` is true, while the subscription may move.
    pub(super) fn take_ahead(&self, moving: impl Fn(&S::Message) -> bool) -> VecDeque<S::Message> {
        let mut state = self.state();
        let (moving, rest) = std::mem::take(&mut state.ahead).into_iter().partition(moving);
        state.ahead = rest;
        moving
    }

    /// Puts back what [`Self::take_ahead`] took: the subscription has not moved.
    pub(super) fn restore(self: &Arc<Self>, mut messages: VecDeque<S::Message>) {
        if messages.is_empty() {
            return;
        }
        {
            let mut state = self.state();
            messages.append(&mut state.ahead);
            state.ahead = messages;
        }
        self.wake();
    }

    /// Takes back a message, which becomes the next one again.
    pub(super) fn give_back(&self, message: S::Message) {
        self.source.given_back(&message);
        self.state().ahead.push_front(message);
    }

    /// Drops the messages taken ahead for which `gone` is true: the broker will send them again.
    pub(super) fn forget_where(&self, gone: impl Fn(&S::Message) -> bool) {
        self.state().ahead.retain(|message| !gone(message));
    }

    /// Gives back everything taken ahead: the subscription is about to move or to end.
    pub(super) fn forget(&self) {
        let mut state = self.state();
        let ahead = std::mem::take(&mut state.ahead);
        // Another consumer may get them and wake its waits.
        drop(state);
        self.source.put_back(ahead.into());
    }

    /// As [`Self::forget`], unless the messages would be lost.
    pub(super) fn put_back(&self) {
        if S::TAKES_BACK {
            self.forget();
        }
    }

    /// Gives the messages that have arrived to the waits. With a loop, called on its thread.
    pub(super) fn serve(&self, py: Option<Python<'_>>) {
        loop {
            let mut done = Vec::new();
            let mut state = self.state();
            self.drop_recalled(&mut state);
            let mut ended = false;
            let mut rest = VecDeque::new();
            while let Some(mut wait) = state.waits.pop_front() {
                if !rest.is_empty() {
                    // An earlier wait gets the next messages first; those behind it can only
                    // expire.
                    if wait.expired {
                        self.finish(wait, &mut done);
                    } else if state.any_expired {
                        rest.push_back(wait);
                    } else {
                        state.waits.push_front(wait);
                        break;
                    }
                    continue;
                }
                if wait.promise.is_abandoned(py) {
                    // Cancelled: the messages it had collected go to the next wait.
                    for message in wait.collected.drain(..).rev() {
                        state.ahead.push_front(message);
                    }
                    end_wait(wait, Err(Error::new(ErrorKind::Cancelled, "cancelled")), &mut done);
                    continue;
                }
                let filled = match wait.want {
                    Want::One | Want::Next => self.fill(&mut state, 1, &mut wait.collected),
                    Want::Many(max) => self.fill(&mut state, max, &mut wait.collected),
                    Want::Batch { messages, bytes } => {
                        self.fill_batch(&mut state, messages, bytes, &mut wait)
                    }
                    Want::Rows(rows) => {
                        let max = rows - wait.collected.len();
                        self.fill(&mut state, max, &mut wait.collected)
                    }
                };
                if let Err(error) = filled {
                    ended = true;
                    if wait.collected.is_empty() {
                        end_wait(wait, Err(error), &mut done);
                    } else {
                        self.finish(wait, &mut done);
                    }
                    continue;
                }
                let enough = match wait.want {
                    Want::One | Want::Next | Want::Many(_) => !wait.collected.is_empty(),
                    Want::Batch { messages, bytes } => {
                        wait.collected.len() >= messages
                            || wait.size >= bytes
                            || !wait.collected.is_empty() && !state.ahead.is_empty()
                    }
                    Want::Rows(rows) => wait.collected.len() >= rows,
                };
                if enough || wait.expired {
                    self.finish(wait, &mut done);
                } else {
                    rest.push_back(wait);
                }
            }
            state.any_expired = false;
            for wait in rest.into_iter().rev() {
                state.waits.push_front(wait);
            }
            let wants_more = !state.waits.is_empty();
            drop(state);
            for (promise, outcome) in done {
                promise.deliver(py, outcome);
            }
            // If messages arrived between the look and the arming, look again.
            if !wants_more || ended || self.source.arm() {
                return;
            }
        }
    }

    fn fill(&self, state: &mut State<S::Message>, max: usize, out: &mut Vec<S::Message>) -> Result<()> {
        let (before, n) = (out.len(), max.min(state.ahead.len()));
        out.extend(state.ahead.drain(..n));
        if n < max {
            let ahead = out.len();
            match self.source.take(max - n, out) {
                Err(error) if out.is_empty() => return Err(error),
                _ => {}
            }
            self.count_taken(&out[ahead..]);
        }
        self.source.handed_out(&out[before..]);
        Ok(())
    }

    /// Adds messages to a batch. What would exceed its size stays ahead.
    fn fill_batch(
        &self,
        state: &mut State<S::Message>,
        messages: usize,
        bytes: usize,
        wait: &mut Wait<S::Message>,
    ) -> Result<()> {
        let before = wait.collected.len();
        let mut result = Ok(());
        while wait.collected.len() < messages && wait.size < bytes {
            if state.ahead.is_empty() {
                let mut out = Vec::new();
                result = self.source.take(PREFETCH.min(messages - wait.collected.len()), &mut out);
                self.count_taken(&out);
                state.ahead = out.into();
            }
            let Some(size) = state.ahead.front().map(Message::size) else { break };
            if !wait.collected.is_empty() && size > bytes - wait.size {
                break;
            }
            wait.collected.extend(state.ahead.pop_front());
            wait.size += size;
        }
        self.source.handed_out(&wait.collected[before..]);
        if wait.collected.len() == before { result } else { Ok(()) }
    }

    /// Expires a wait. It ends on the thread that may touch futures, so that the messages it had
    /// collected are not lost if it is cancelled at the same moment.
    fn expire(self: &Arc<Self>, number: u64) {
        {
            let mut state = self.state();
            let Some(wait) = state.waits.iter_mut().find(|wait| wait.number == number) else { return };
            wait.expired = true;
            state.any_expired = true;
        }
        self.wake();
    }

    fn finish(&self, mut wait: Wait<S::Message>, done: &mut Vec<(Promise, Outcome)>) {
        let collected = std::mem::take(&mut wait.collected);
        self.source.handed_over(&collected);
        let outcome = match wait.want {
            Want::One | Want::Next => match collected.into_iter().next() {
                Some(message) => Ok(Value::new(One(message))),
                None => Err(Error::new(ErrorKind::Timeout, "no message in time; nothing was lost")
                    .with_topic(self.source.topic())),
            },
            Want::Many(_) | Want::Batch { .. } => Ok(Value::new(Many(collected))),
            Want::Rows(_) => {
                let batch = S::to_batch(&collected);
                batch.map(|batch| Value::new(ArrowBatch::new(batch, S::keep(collected))))
            }
        };
        end_wait(wait, outcome, done);
    }
}

/// Whether an iteration ends with the error, instead of raising it: the topic has ended, or the
/// application has closed the consumer.
pub(super) fn ends_iteration(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Closed | ErrorKind::EndOfTopic)
}

/// The end of an iteration on a loop.
struct Over;

impl IntoPython for Over {
    fn into_python(self, _py: Python<'_>) -> PyResult<Py<PyAny>> {
        Err(PyStopAsyncIteration::new_err(()))
    }
}

fn end_wait<M>(wait: Wait<M>, mut outcome: Outcome, done: &mut Vec<(Promise, Outcome)>) {
    if wait.want == Want::Next
        && let Err(error) = &outcome
        && ends_iteration(error.kind())
    {
        outcome = Ok(Value::new(Over));
    }
    if let Some(timer) = wait.timer {
        timer.abort();
    }
    done.push((wait.promise, outcome));
}

impl<S: Source> Serve for Receives<S> {
    fn serve(&self, py: Python<'_>) {
        Self::serve(self, Some(py));
    }
}

/// The engine's view of a consumer's waits, which exist only after their consumer.
pub(super) struct Events<S: Source> {
    receives: Mutex<Weak<Receives<S>>>,
}

impl<S: Source> Events<S> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { receives: Mutex::leaf(Weak::new()) })
    }

    pub(super) fn connect(&self, receives: &Arc<Receives<S>>) {
        *self.receives.lock() = Arc::downgrade(receives);
    }

    fn wake(&self) {
        let receives = self.receives.lock().upgrade();
        let Some(receives) = receives else { return };
        receives.wake();
        // The engine calls this under a connection's lock. If the consumer was dropped meanwhile,
        // this is the last reference, and the end of its handle takes that lock.
        if let Some(last) = Arc::into_inner(receives) {
            match Handle::try_current() {
                Ok(engine) => drop(engine.spawn(async move { drop(last) })),
                Err(_) => drop(last),
            }
        }
    }
}

impl<S: Source> ConsumerEvents for Events<S> {
    fn readable(&self) {
        self.wake();
    }

    fn closed(&self, _error: Error) {
        self.wake();
    }
}
