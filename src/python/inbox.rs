//! Who waits for messages of a consumer.
//!
//! Messages stay in the engine until somebody takes them, so cancelling a wait loses nothing. Waits are
//! served in their order, on the loop's thread if there is one, else on the engine's.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::client::events::ConsumerEvents;
use crate::client::handle::{Consumer, Message, Target};
use crate::error::{Error, ErrorKind, Result};
use crate::python::arrow::to_batch;
use crate::python::promise::{Door, Outcome, Promise, Value};

/// Messages fetched from the engine in one go for `async for`.
const PREFETCH: usize = 256;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// One message.
    One,
    /// At least one, at most so many; none when the time is over.
    Many(usize),
    /// So many rows, or what is there when the time is over.
    Rows(usize),
}

#[derive(Debug)]
struct Wait {
    number: u64,
    want: Want,
    promise: Promise,
    collected: Vec<Message>,
    timer: Option<AbortHandle>,
    /// Its time is over.
    expired: bool,
}

#[derive(Debug, Default)]
struct State {
    waits: VecDeque<Wait>,
    /// Taken from the engine, not given to anybody yet.
    ahead: VecDeque<Message>,
    next_number: u64,
    /// Some wait is expired.
    any_expired: bool,
}

/// The waits of one consumer.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) consumer: Consumer,
    door: Door,
    state: Mutex<State>,
}

impl Inbox {
    pub(super) fn new(consumer: Consumer, door: Door) -> Arc<Self> {
        Arc::new(Self { consumer, door, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next message, if one is there and nobody waits for it.
    pub(super) fn try_next(&self) -> Result<Option<Message>> {
        let mut state = self.state();
        if !state.waits.is_empty() {
            return Ok(None);
        }
        if state.ahead.is_empty() {
            let mut out = Vec::new();
            self.consumer.take(PREFETCH, &mut out)?;
            state.ahead = out.into();
        }
        Ok(state.ahead.pop_front())
    }

    /// Up to `max` messages that are there, if nobody waits for them.
    pub(super) fn try_many(&self, max: usize) -> Result<Vec<Message>> {
        let mut state = self.state();
        let mut out = Vec::new();
        if state.waits.is_empty() {
            self.fill(&mut state, max, &mut out)?;
        }
        Ok(out)
    }

    /// Waits for messages; without `timeout` for ever.
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
            let inbox = Arc::downgrade(self);
            engine.spawn(async move {
                tokio::time::sleep(timeout).await;
                if let Some(inbox) = inbox.upgrade() {
                    inbox.expire(number);
                }
            })
        });
        let timer = timer.map(|timer| timer.abort_handle());
        state.waits.push_back(Wait { number, want, promise, collected: Vec::new(), timer, expired: false });
        drop(state);
        self.serve(py);
    }

    /// Waits for one message, which will not come before the loop's next turn.
    pub(super) fn wait_a_turn(self: &Arc<Self>, promise: Promise) {
        {
            let mut state = self.state();
            let number = state.next_number;
            state.next_number += 1;
            let (want, collected) = (Want::One, Vec::new());
            state.waits.push_back(Wait { number, want, promise, collected, timer: None, expired: false });
        }
        self.ring();
    }

    /// Has the waits served where that may happen.
    fn ring(self: &Arc<Self>) {
        match &self.door {
            Door::Loop(bridge) => bridge.readable(Arc::clone(self)),
            Door::Blocking => self.serve(None),
        }
    }

    /// Takes a message back that was the next one.
    pub(super) fn give_back(&self, message: Message) {
        self.state().ahead.push_front(message);
    }

    /// Forgets what was taken ahead and will be given again with these.
    pub(super) fn forget_with(&self, targets: &[Target]) {
        let gone = |message: &Message| match message {
            Message::TubeMq(message) => targets.iter().any(
                |target| matches!(target, Target::TubeMq(named) if Arc::ptr_eq(&named.pack, &message.pack)),
            ),
            Message::Pulsar(_) | Message::Mqtt(_) => false,
        };
        self.state().ahead.retain(|message| !gone(message));
    }

    /// Forgets what was taken ahead: the subscription is about to move.
    pub(super) fn forget(&self) {
        self.state().ahead.clear();
    }

    /// Gives what is there to those who wait. With a loop, called on its thread.
    pub(super) fn serve(&self, py: Option<Python<'_>>) {
        loop {
            let mut done = Vec::new();
            let mut state = self.state();
            let mut ended = false;
            let mut rest = VecDeque::new();
            while let Some(mut wait) = state.waits.pop_front() {
                if !rest.is_empty() {
                    // An earlier one has first claim on what comes; only time can end those behind it.
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
                    // Cancelled: what it had collected goes to the next.
                    for message in wait.collected.drain(..).rev() {
                        state.ahead.push_front(message);
                    }
                    end_wait(wait, Err(Error::new(ErrorKind::Cancelled, "cancelled")), &mut done);
                    continue;
                }
                let max = match wait.want {
                    Want::One => 1,
                    Want::Many(max) => max,
                    Want::Rows(rows) => rows - wait.collected.len(),
                };
                if let Err(error) = self.fill(&mut state, max, &mut wait.collected) {
                    ended = true;
                    if wait.collected.is_empty() {
                        end_wait(wait, Err(error), &mut done);
                    } else {
                        self.finish(wait, &mut done);
                    }
                    continue;
                }
                let enough = match wait.want {
                    Want::One | Want::Many(_) => !wait.collected.is_empty(),
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
            // Something came between the look and the arming: look again.
            if !wants_more || ended || self.consumer.arm() {
                return;
            }
        }
    }

    fn fill(&self, state: &mut State, max: usize, out: &mut Vec<Message>) -> Result<()> {
        let n = max.min(state.ahead.len());
        out.extend(state.ahead.drain(..n));
        if n < max {
            match self.consumer.take(max - n, out) {
                Err(error) if out.is_empty() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// The time of a wait is over. It ends where futures may be touched, so that what it had collected is
    /// not lost when it is cancelled in the same moment.
    fn expire(self: &Arc<Self>, number: u64) {
        {
            let mut state = self.state();
            let Some(wait) = state.waits.iter_mut().find(|wait| wait.number == number) else { return };
            wait.expired = true;
            state.any_expired = true;
        }
        self.ring();
    }

    fn finish(&self, mut wait: Wait, done: &mut Vec<(Promise, Outcome)>) {
        let collected = std::mem::take(&mut wait.collected);
        let outcome = match wait.want {
            Want::One => match collected.into_iter().next() {
                Some(message) => Ok(Value::Message(Box::new(message))),
                None => Err(Error::new(ErrorKind::Timeout, "no message in time; nothing was lost")),
            },
            Want::Many(_) => Ok(Value::Messages(collected)),
            Want::Rows(_) => to_batch(&self.consumer, &collected).map(Value::Arrow),
        };
        end_wait(wait, outcome, done);
    }
}

fn end_wait(wait: Wait, outcome: Outcome, done: &mut Vec<(Promise, Outcome)>) {
    if let Some(timer) = wait.timer {
        timer.abort();
    }
    done.push((wait.promise, outcome));
}

/// The engine's way to an inbox that is made after its consumer.
#[derive(Debug, Default)]
pub(super) struct Events {
    inbox: Mutex<Weak<Inbox>>,
}

impl Events {
    pub(super) fn connect(&self, inbox: &Arc<Inbox>) {
        *self.inbox.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(inbox);
    }

    fn ring(&self) {
        let inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(inbox) = inbox {
            inbox.ring();
        }
    }
}

impl ConsumerEvents for Events {
    fn readable(&self) {
        self.ring();
    }

    fn closed(&self, _error: Error) {
        self.ring();
    }
}
