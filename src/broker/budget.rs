//! One limit on the memory that all connections hold together: unfinished input, output that waits,
//! and what the protocol keeps for each, such as topic aliases.
//!
//! A limit per connection is not enough: there may be 16,384 connections. Above half of the limit,
//! less output is queued ahead for each consumer. Above the limit the connection that holds most is
//! closed, and its buffers are dropped. A frame that has begun must make progress above half of the
//! limit, so that its memory is free again soon. Payloads of output that several connections share
//! do not count.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::runner::{Open, Runner};
use crate::trim::Peaks;
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind};

/// Limit on the bytes of all connections.
pub(super) const TOTAL: usize = 1 << 30;
/// Time after which a frame that has begun must have come with [`LEAST_RATE`], above half of the
/// limit.
const GRACE: Duration = Duration::from_secs(30);
/// Bytes per second.
const LEAST_RATE: usize = 16 << 10;
/// Interval at which connections are counted that had no turn.
const INTERVAL: Duration = Duration::from_secs(1);

/// Memory that a connection holds.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Bytes that the budget counts for it.
    counted: Cell<usize>,
    /// Bytes in the buffers of its task, at its last turn.
    buffers: Cell<usize>,
    /// Bytes of input that were left then.
    left: Cell<usize>,
    /// Bytes of the unfinished frame, if more of it are read.
    unfinished: Cell<usize>,
    /// Bytes that came since a layer below the protocol had a complete message.
    below: Cell<usize>,
    /// When the unfinished frame was seen first.
    begun: Cell<Option<Instant>>,
    /// Why it is closed.
    refusal: RefCell<Option<Error>>,
}

impl Load {
    /// Why the connection is closed, if it holds too much.
    pub(super) fn refusal(&self) -> Option<Error> {
        self.refusal.borrow().clone()
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refusal.borrow().is_some()
    }

    /// Notes bytes that a layer below the protocol has read. It holds at most `limit` of them.
    pub(super) fn read_below(&self, bytes: usize, limit: usize) {
        self.below.set((self.below.get() + bytes).min(limit));
    }

    /// Notes the bytes of input before a turn. More of them than there were after the last turn are
    /// a complete message of the layer below.
    pub(super) fn note_input(&self, bytes: usize) {
        if bytes > self.left.replace(bytes) {
            self.below.set(0);
        }
    }

    /// Notes the buffers after a turn: their size, and the bytes of input that are left. An
    /// unfinished frame makes progress by them, unless none is read.
    pub(super) fn note_turn(&self, buffers: usize, left: usize, reads: bool) {
        self.buffers.set(buffers);
        let advanced = left < self.left.replace(left);
        self.unfinished.set(if reads { left } else { 0 });
        if advanced || self.unfinished.get() == 0 {
            self.begun.set(None);
        }
    }

    /// Whether the unfinished frame comes too slowly.
    fn is_stuck(&self, now: Instant) -> bool {
        let unfinished = self.unfinished.get();
        if unfinished == 0 {
            return false;
        }
        let begun = self.begun.get().unwrap_or(now);
        self.begun.set(Some(begun));
        let late = now.saturating_duration_since(begun).saturating_sub(GRACE);
        late.as_millis() as usize * LEAST_RATE / 1000 > unfinished
    }
}

/// The budget, as the [module](self) describes.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    total: Cell<usize>,
    opens: RefCell<BTreeMap<u64, Rc<Open>>>,
    next: Cell<u64>,
    peaks: Peaks,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Rc<Self> {
        Rc::new(Self {
            limit,
            total: Cell::default(),
            opens: RefCell::default(),
            next: Cell::default(),
            peaks: Peaks::default(),
        })
    }

    /// Registers a connection. Gives its number here.
    pub(super) fn enter(&self, open: &Rc<Open>) -> u64 {
        let number = self.next.get();
        self.next.set(number + 1);
        self.opens.borrow_mut().insert(number, open.clone());
        number
    }

    /// Removes a connection.
    pub(super) fn leave(&self, number: u64) {
        if let Some(open) = self.opens.borrow_mut().remove(&number) {
            self.total.set(self.total.get() - open.load.counted.get());
        }
    }

    /// Counts a turn of a connection.
    pub(super) fn note_turn(&self) {
        self.peaks.count();
    }

    /// Counts what a connection holds. `kept` is what its protocol keeps for it.
    pub(super) fn count(&self, open: &Open, kept: usize) {
        let load = &open.load;
        if load.is_refused() {
            return;
        }
        let bytes = load.buffers.get() + load.below.get() + kept;
        let before = load.counted.replace(bytes);
        self.total.set(self.total.get() - before + bytes);
        while self.total.get() > self.limit && self.close_largest() {}
    }

    /// Whether consumers should get less output ahead.
    pub(super) fn is_tight(&self) -> bool {
        self.total.get() > self.limit / 2
    }

    /// Returns false if there is none that counts.
    fn close_largest(&self) -> bool {
        let opens = self.opens.borrow();
        let Some(largest) = opens.values().max_by_key(|open| open.load.counted.get()) else { return false };
        if largest.load.counted.get() == 0 {
            return false;
        }
        let (held, all) = (largest.load.counted.take(), self.total.get());
        self.total.set(all - held);
        let (held, all) = (held.div_ceil(1 << 20), all >> 20);
        let text = format!(
            "it held most, {held} MiB of unfinished input or unread output, when all connections held {all} MiB"
        );
        close(largest, Error::new(ErrorKind::TooManyRequests, text));
        true
    }

    /// Counts the connections of these runners again and again: output is queued, and time passes,
    /// without a turn of theirs. Returns memory to the system when they have had little to do.
    pub(super) async fn watch(self: Rc<Self>, runners: Vec<Rc<Runner>>) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            runners.iter().for_each(|runner| runner.count_all());
            self.peaks.end_second().await;
        }
    }
}

/// Closes a connection whose frame comes too slowly.
pub(super) fn close_if_stuck(open: &Open) {
    if open.load.is_stuck(clock::now()) && !open.load.is_refused() {
        let text = format!("a frame came with less than {} KiB/s", LEAST_RATE >> 10);
        close(open, Error::new(ErrorKind::Timeout, text));
    }
}

fn close(open: &Open, reason: Error) {
    *open.load.refusal.borrow_mut() = Some(reason);
    open.wake.notify_one();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Peer;

    fn open() -> Rc<Open> {
        Rc::new(Open::new(Peer::tcp(([127, 0, 0, 1], 1).into())))
    }

    #[test]
    fn the_largest_is_closed_first_and_no_more_than_needed() {
        let budget = Budget::new(1000);
        let [small, large, larger] = [(); 3].map(|()| open());
        let numbers: Vec<_> = [&small, &large, &larger].map(|open| budget.enter(open)).into();
        budget.count(&small, 100);
        assert!(!budget.is_tight());
        larger.load.note_turn(400, 400, true);
        budget.count(&larger, 50);
        assert!(budget.is_tight());
        large.load.read_below(5000, 440);
        budget.count(&large, 0);
        let refused = || [&small, &large, &larger].map(|open| open.load.is_refused());
        assert_eq!(refused(), [false; 3]);
        budget.count(&small, 111);
        assert_eq!(refused(), [false, false, true]);
        assert!(larger.load.refusal().unwrap().message().contains("held most"));
        // What it is counted for again is nothing: it is on its way out.
        budget.count(&larger, 5000);
        budget.leave(numbers[2]);
        large.load.note_input(1);
        budget.count(&large, 100);
        assert_eq!((refused(), budget.total.get()), ([false, false, true], 211));
        budget.count(&small, 1001);
        assert_eq!(refused(), [true, false, true], "the largest, not the last");
        numbers[..2].iter().for_each(|number| budget.leave(*number));
        assert_eq!(budget.total.get(), 0);
    }

    #[test]
    fn a_frame_that_has_begun_makes_progress() {
        let (load, start) = (Load::default(), clock::now());
        let stuck = |seconds: u64| load.is_stuck(start + Duration::from_secs(seconds));
        assert!(!stuck(0) && !stuck(1000), "there is none");
        let turn = |before, left, reads| {
            load.note_input(before);
            load.note_turn(64 << 10, left, reads);
        };
        turn(20, 20, true);
        assert!(!stuck(1000) && !stuck(1030));
        assert!(stuck(1031));
        for second in 1..100 {
            turn(second * LEAST_RATE, second * LEAST_RATE, true);
            assert!(!stuck(1030 + second as u64), "as fast as it must be");
        }
        turn(100 * LEAST_RATE, 20, true);
        assert!(!stuck(2000) && !stuck(2030) && stuck(2031), "another frame");
        turn(20, 20, false);
        assert!(!stuck(3000), "the broker does not read");
        turn(20, 20, true);
        assert!(!stuck(4000) && !stuck(4030) && stuck(4031));
        turn(21, 0, true);
        assert!(!stuck(5000), "there is none");
    }
}
