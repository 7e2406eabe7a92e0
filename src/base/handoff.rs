//! Hands items from one thread to another, with a wake-up that cannot be lost.
//!
//! | type | hands over |
//! |---|---|
//! | [`Inbox`] | many items to one thread, which is woken once for each burst |
//! | [`OneShot`] | one result to a thread that blocks |
//! | [`Armed`] | one notification for each time that it was asked for |
//!
//! The tests run under `shuttle` too (feature `shuttle`), which plays the schedules of the threads.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::sync::{AtomicBool, Condvar, Mutex};

/// Items on their way to one thread.
///
/// ```text
/// any thread ── push ──► queue ── first of a burst: push says so ──► wake-up, by the caller
/// its thread ◄── take: clear the flag, then take from the queue
/// ```
/// The flag is cleared before the queue is read, so an item that arrives in between causes another
/// wake-up.
#[derive(Debug)]
pub struct Inbox<T> {
    queue: Mutex<Queue<T>>,
    /// A wake-up is on its way.
    is_woken: AtomicBool,
}

#[derive(Debug)]
struct Queue<T> {
    items: VecDeque<T>,
    /// Tested under the lock: an item that is pushed after [`Inbox::close`] has emptied the queue
    /// would never be dropped.
    is_closed: bool,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        let queue = Queue { items: VecDeque::new(), is_closed: false };
        Self { queue: Mutex::leaf(queue), is_woken: AtomicBool::new(false) }
    }
}

impl<T> Inbox<T> {
    /// Adds an item, or drops it after [`Self::close`]. Returns whether the caller has to wake the
    /// thread.
    pub fn push(&self, item: T) -> bool {
        let mut queue = self.queue.lock();
        if queue.is_closed {
            // The item is dropped after the lock.
            drop(queue);
            return false;
        }
        queue.items.push_back(item);
        drop(queue);
        self.needs_wake()
    }

    /// Takes the oldest items, at most `max`. To be called once for each wake-up.
    pub fn take(&self, max: usize) -> VecDeque<T> {
        self.is_woken.store(false, Ordering::Release);
        let mut queue = self.queue.lock();
        if queue.items.len() <= max {
            std::mem::take(&mut queue.items)
        } else {
            queue.items.drain(..max).collect()
        }
    }

    /// Whether there are more items after [`Self::take`] and the caller has to wake the thread for
    /// them.
    pub fn has_more(&self) -> bool {
        !self.queue.lock().items.is_empty() && self.needs_wake()
    }

    /// Has later items dropped, and returns those that are there.
    pub fn close(&self) -> VecDeque<T> {
        let mut queue = self.queue.lock();
        queue.is_closed = true;
        std::mem::take(&mut queue.items)
    }

    fn needs_wake(&self) -> bool {
        !self.is_woken.swap(true, Ordering::AcqRel)
    }
}

/// One result for a blocked thread.
#[derive(Debug)]
pub struct OneShot<T> {
    result: Mutex<Option<T>>,
    changed: Condvar,
}

impl<T> Default for OneShot<T> {
    fn default() -> Self {
        Self { result: Mutex::leaf(None), changed: Condvar::new() }
    }
}

impl<T> OneShot<T> {
    /// Sets the result and wakes the thread.
    pub fn set(&self, result: T) {
        *self.result.lock() = Some(result);
        self.changed.notify_all();
    }

    /// Whether the result has arrived and was not taken.
    pub fn is_set(&self) -> bool {
        self.result.lock().is_some()
    }

    /// The result, if it has arrived and was not taken.
    pub fn take(&self) -> Option<T> {
        self.result.lock().take()
    }

    /// Blocks until the result arrives, at most `limit`, and takes it.
    pub fn wait(&self, limit: Duration) -> Option<T> {
        let result = self.result.lock();
        self.changed.wait_timeout_while(result, limit, |result| result.is_none()).take()
    }
}

/// A notification that is due once for each time that it was asked for.
#[derive(Debug)]
pub struct Armed(AtomicBool);

impl Default for Armed {
    fn default() -> Self {
        Self(AtomicBool::new(false))
    }
}

impl Armed {
    /// Asks for one notification. Returns false, and asks for nothing, if `is_ready` says that
    /// there is no need to wait.
    pub fn arm(&self, is_ready: impl FnOnce() -> bool) -> bool {
        self.0.store(true, Ordering::Release);
        // Checked after arming: what came in between has either notified or is seen here. The lock
        // behind `is_ready` orders the two.
        if is_ready() {
            return !self.0.swap(false, Ordering::AcqRel);
        }
        true
    }

    /// Whether the notification is due. To be called after what is waited for has happened.
    pub fn fire(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    #[cfg(not(feature = "shuttle"))]
    use std::{sync::mpsc, thread};

    #[cfg(feature = "shuttle")]
    use shuttle::{sync::mpsc, thread};

    use super::*;

    /// Plays `scenario` with many schedules of its threads. A thread that waits for ever fails it.
    fn check(scenario: fn()) {
        #[cfg(feature = "shuttle")]
        {
            shuttle::check_random(scenario, 5000);
            shuttle::check_pct(scenario, 5000, 3);
        }
        #[cfg(not(feature = "shuttle"))]
        (0..50).for_each(|_| scenario());
    }

    #[test]
    fn every_item_reaches_the_thread_whichever_wake_ups_it_gets() {
        check(|| {
            let inbox = Arc::new(Inbox::default());
            let (wake, wakes) = mpsc::channel();
            let pushers: Vec<_> = [0, 10]
                .into_iter()
                .map(|first| {
                    let (inbox, wake) = (Arc::clone(&inbox), wake.clone());
                    thread::spawn(move || {
                        for item in first..first + 3 {
                            if inbox.push(item) {
                                wake.send(()).unwrap();
                            }
                        }
                    })
                })
                .collect();
            let mut got = Vec::new();
            while got.len() < 6 {
                wakes.recv().unwrap();
                got.extend(inbox.take(2));
                if inbox.has_more() {
                    wake.send(()).unwrap();
                }
            }
            pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
            assert!(got.iter().filter(|item| **item < 10).is_sorted(), "in their order: {got:?}");
            got.sort_unstable();
            assert_eq!(got, [0, 1, 2, 10, 11, 12]);
        });
    }

    #[test]
    fn what_is_pushed_while_an_inbox_is_closed_is_dropped() {
        check(|| {
            let inbox = Arc::new(Inbox::default());
            let item = Arc::new(());
            let pusher = {
                let (inbox, item) = (Arc::clone(&inbox), Arc::clone(&item));
                thread::spawn(move || {
                    for _ in 0..3 {
                        inbox.push(Arc::clone(&item));
                    }
                })
            };
            drop(inbox.close());
            pusher.join().unwrap();
            assert_eq!(Arc::strong_count(&item), 1, "none stays in the queue");
            assert!(inbox.take(9).is_empty());
        });
    }

    #[test]
    fn a_thread_that_waits_gets_the_result() {
        check(|| {
            let one_shot = Arc::new(OneShot::default());
            let setter = {
                let one_shot = Arc::clone(&one_shot);
                thread::spawn(move || one_shot.set(7))
            };
            let mut result = None;
            while result.is_none() {
                result = one_shot.wait(Duration::from_secs(60));
            }
            setter.join().unwrap();
            assert_eq!((result, one_shot.is_set(), one_shot.take()), (Some(7), false, None));
        });
    }

    #[test]
    fn a_notification_comes_once_for_each_time_it_is_asked_for() {
        check(|| {
            let (armed, queue) = (Arc::new(Armed::default()), Arc::new(Mutex::leaf(Vec::new())));
            let (notify, notified) = mpsc::channel();
            let senders: Vec<_> = [1, 2]
                .into_iter()
                .map(|item| {
                    let (armed, queue, notify) = (Arc::clone(&armed), Arc::clone(&queue), notify.clone());
                    thread::spawn(move || {
                        queue.lock().push(item);
                        if armed.fire() {
                            notify.send(()).unwrap();
                        }
                    })
                })
                .collect();
            drop(notify);
            let mut got = Vec::new();
            let mut asked = 0;
            while got.len() < 2 {
                if armed.arm(|| !queue.lock().is_empty()) {
                    asked += 1;
                    notified.recv().expect("it is notified, or there is something to take");
                }
                got.append(&mut queue.lock());
            }
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            assert!(notified.try_recv().is_err(), "once for each of {asked} times");
        });
    }
}
