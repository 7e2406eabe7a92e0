//! The waits for a consumer's messages.
//!
//! Messages stay in the engine until a wait can be served, so cancelling a wait loses nothing.
//! Waits are served in their order, on the loop's thread if there is one and on the engine's
//! otherwise.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

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
use forebay_client::receive::{Batch, Receive};

/// A protocol's consumer in the engine.
pub(super) trait Source: Receive<Message: Message> + 'static {}

impl<S: Receive<Message: Message> + 'static> Source for S {}

/// The messages that a wait asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// One message.
    One,
    /// The same for an iteration, which ends where the topic does.
    Next,
    /// At least one and at most this many; none if the time runs out.
    Many(usize),
    /// A whole batch, or the messages that have arrived when the time runs out.
    Batch(Batch),
    /// This many rows, or those that have arrived when the time runs out.
    Rows(usize),
}

struct Wait {
    number: u64,
    want: Want,
    promise: Promise,
    timer: Option<AbortHandle>,
    /// Its time has run out.
    expired: bool,
}

struct State {
    waits: VecDeque<Wait>,
    next_number: u64,
    /// A wait has expired.
    any_expired: bool,
}

/// A consumer and the waits for its messages.
pub(super) struct Receives<S: Source> {
    pub(super) source: S,
    caller: Caller,
    state: Mutex<State>,
    /// Whether there are waits.
    waiting: AtomicBool,
}

impl<S: Source> Receives<S> {
    pub(super) fn new(source: S, caller: Caller) -> Arc<Self> {
        let state = State { waits: VecDeque::new(), next_number: 0, any_expired: false };
        let state = Mutex::new(Rank::Receives, state);
        Arc::new(Self { source, caller, state, waiting: AtomicBool::new(false) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whether a wait is due to get the next message. Waits that were cancelled are not: each gets
    /// what it can first.
    #[inline]
    fn is_waiting(&self, py: Option<Python<'_>>) -> bool {
        if !self.waiting.load(Ordering::Acquire) {
            return false;
        }
        self.serve(py);
        self.waiting.load(Ordering::Acquire)
    }

    /// The next message, if one has arrived and no wait is due to get it. `py` is there on a loop's
    /// thread.
    #[inline]
    pub(super) fn try_next(&self, py: Option<Python<'_>>) -> Result<Option<S::Message>> {
        if self.is_waiting(py) { Ok(None) } else { self.source.next() }
    }

    /// Up to `max` messages that have arrived, if no wait is due to get them.
    pub(super) fn try_many(&self, py: Option<Python<'_>>, max: usize) -> Result<Vec<S::Message>> {
        let mut out = Vec::new();
        if !self.is_waiting(py) {
            self.source.take_batch(Batch::of(max), true, &mut out)?;
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
        self.push(want, promise, |number| {
            let (receives, timeout) = (Arc::downgrade(self), timeout?);
            let timer = engine.spawn(async move {
                tokio::time::sleep(timeout).await;
                if let Some(receives) = receives.upgrade() {
                    receives.expire(number);
                }
            });
            Some(timer.abort_handle())
        });
        self.serve(py);
    }

    fn push(&self, want: Want, promise: Promise, timer: impl FnOnce(u64) -> Option<AbortHandle>) {
        let mut state = self.state();
        let number = state.next_number;
        state.next_number += 1;
        let timer = timer(number);
        state.waits.push_back(Wait { number, want, promise, timer, expired: false });
        self.waiting.store(true, Ordering::Release);
    }

    /// Waits for one message, which is not delivered before the loop's next turn.
    pub(super) fn wait_a_turn(self: &Arc<Self>, promise: Promise) {
        self.push(Want::Next, promise, |_| None);
        self.wake();
    }

    /// Has the waits served on the thread where that is allowed.
    fn wake(self: &Arc<Self>) {
        match &self.caller {
            Caller::Loop(bridge) => bridge.readable(Arc::clone(self) as Arc<dyn Serve>),
            Caller::Blocking => self.serve(None),
        }
    }

    /// Takes back a message that the application did not use.
    pub(super) fn give_back(self: &Arc<Self>, message: S::Message) {
        self.source.give_back(message);
        if self.waiting.load(Ordering::Acquire) {
            self.wake();
        }
    }

    /// Gives the messages that have arrived to the waits. With a loop, called on its thread.
    pub(super) fn serve(&self, py: Option<Python<'_>>) {
        loop {
            let mut done = Vec::new();
            let mut state = self.state();
            let mut ended = false;
            let mut rest = VecDeque::new();
            while let Some(wait) = state.waits.pop_front() {
                if !rest.is_empty() {
                    // An earlier wait gets the next messages first; those behind it can only
                    // expire.
                    if wait.expired {
                        self.finish(wait, Vec::new(), &mut done);
                    } else if state.any_expired {
                        rest.push_back(wait);
                    } else {
                        state.waits.push_front(wait);
                        break;
                    }
                    continue;
                }
                if wait.promise.is_abandoned(py) {
                    end_wait(wait, Err(Error::new(ErrorKind::Cancelled, "cancelled")), &mut done);
                    continue;
                }
                let mut messages = Vec::new();
                let taken = match wait.want {
                    Want::One | Want::Next => self.source.next().map(|next| messages.extend(next)),
                    Want::Many(max) => self.source.take_batch(Batch::of(max), true, &mut messages),
                    Want::Batch(batch) => self.source.take_batch(batch, wait.expired, &mut messages),
                    Want::Rows(rows) => self.source.take_batch(Batch::of(rows), wait.expired, &mut messages),
                };
                if let Err(error) = taken {
                    ended = true;
                    end_wait(wait, Err(error), &mut done);
                } else if !messages.is_empty() || wait.expired {
                    self.finish(wait, messages, &mut done);
                } else {
                    rest.push_back(wait);
                }
            }
            state.any_expired = false;
            for wait in rest.into_iter().rev() {
                state.waits.push_front(wait);
            }
            let wants_more = !state.waits.is_empty();
            self.waiting.store(wants_more, Ordering::Release);
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

    /// Expires a wait. It ends on the thread that may touch futures, so that the messages it gets
    /// are not lost if it is cancelled at the same moment.
    fn expire(self: &Arc<Self>, number: u64) {
        {
            let mut state = self.state();
            let Some(wait) = state.waits.iter_mut().find(|wait| wait.number == number) else { return };
            wait.expired = true;
            state.any_expired = true;
        }
        self.wake();
    }

    fn finish(&self, wait: Wait, messages: Vec<S::Message>, done: &mut Vec<(Promise, Outcome)>) {
        let outcome = match wait.want {
            Want::One | Want::Next => match messages.into_iter().next() {
                Some(message) => Ok(Value::new(One(message))),
                None => Err(Error::new(ErrorKind::Timeout, "no message in time; nothing was lost")
                    .with_topic(self.source.topic())),
            },
            Want::Many(_) | Want::Batch(_) => Ok(Value::new(Many(messages))),
            Want::Rows(_) => {
                let batch = S::Message::to_batch(&messages);
                batch.map(|batch| Value::new(ArrowBatch::new(batch, S::Message::keep(messages))))
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

fn end_wait(wait: Wait, mut outcome: Outcome, done: &mut Vec<(Promise, Outcome)>) {
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
