//! A mutex that ignores poisoning, and the one order in which the engine's locks are taken.
//!
//! Every mutex has a [`Rank`]. A thread may lock a mutex only while every lock it already holds has
//! a lower rank; two locks of one rank are never held together. Debug builds assert this for each
//! thread, so a lock taken out of order fails the first test that gets there instead of deadlocking
//! in production. Release builds store no rank and check nothing: there this is `std::sync::Mutex`
//! without the `unwrap`.
//!
//! # Lock order
//!
//! From the outermost to the innermost:
//!
//! | rank | mutex | taken inside it |
//! |---|---|---|
//! | [`Broker`](Rank::Broker) | the embedded broker of a Python object | nothing: its thread answers over a channel |
//! | [`Pump`](Rank::Pump) | the MQTT outbox session's turn | sends, sessions, the outbox |
//! | [`Pool`](Rank::Pool) | the slots of a connection pool | hosts |
//! | [`Host`](Rank::Host) | the host of a driver: a protocol with its routes | everything a turn or an event reaches |
//! | [`Outcomes`](Rank::Outcomes) | the outcomes of a TubeMQ producer on their way | sends, machines |
//! | [`Receives`](Rank::Receives) | the waits of a consumer in the bindings | partitions, machines |
//! | [`Sends`](Rank::Sends) | the waiters of a producer in the bindings, across a push | machines |
//! | [`Partitions`](Rank::Partitions) | the partitions of a TubeMQ consumer | machines |
//! | [`Machine`](Rank::Machine) | the sans-IO machine of a handle: a partition, an MQTT session | the outbox, send groups, messages to be handed out |
//! | [`OutboxSession`](Rank::OutboxSession) | bookkeeping between an MQTT session and its outbox | the outbox |
//! | [`Outbox`](Rank::Outbox) | what the outbox's writer has not reported | nothing |
//! | [`SendGroup`](Rank::SendGroup) | messages of the bindings that end together | nothing |
//! | [`Queue`](Rank::Queue) | the queue of an MQTT subscription | messages to be handed out |
//! | [`Leaf`](Rank::Leaf) | a field of its own: a queue, a name, a connection | log records |
//! | [`Log`](Rank::Log) | the log records that wait for their thread | nothing |
//!
//! A driver's turn and its events run under [`Rank::Host`] and call into the bindings, which call
//! back into the machines; that is why the bindings stand between the two. Drop a value that owns a
//! handle only after the guard: the end of a handle takes locks of any rank above [`Rank::Pool`].

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

#[cfg(feature = "shuttle")]
use shuttle::sync as threads;
#[cfg(not(feature = "shuttle"))]
use std::sync as threads;

pub use threads::atomic::AtomicBool;

/// The place of a mutex in the lock order of the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rank {
    /// The embedded broker of a Python object.
    Broker,
    /// The right to move messages between an MQTT session and its outbox.
    Pump,
    /// The slots of a connection pool.
    Pool,
    /// The host of a driver: a protocol with its routes.
    Host,
    /// The outcomes of a TubeMQ producer on their way to its owner.
    Outcomes,
    /// The waits of a consumer in the bindings.
    Receives,
    /// The waiters of a producer in the bindings.
    Sends,
    /// The partitions of a TubeMQ consumer.
    Partitions,
    /// The sans-IO machine of a handle.
    Machine,
    /// Bookkeeping between an MQTT session and its outbox.
    OutboxSession,
    /// Changes that the outbox's writer has not reported.
    Outbox,
    /// Messages of the bindings that end together.
    SendGroup,
    /// The queue of an MQTT subscription.
    Queue,
    /// The consumers of an MQTT client.
    Routes,
    /// A mutex inside which no other is taken, except to log.
    Leaf,
    /// The log records that wait for their thread.
    Log,
}

/// A mutex with a rank. A panic under the lock does not poison it.
pub struct Mutex<T: ?Sized> {
    #[cfg(debug_assertions)]
    rank: Rank,
    inner: threads::Mutex<T>,
}

impl<T> Mutex<T> {
    /// A mutex around `value`.
    #[cfg_attr(not(debug_assertions), allow(unused_variables, reason = "only debug builds check ranks"))]
    pub const fn new(rank: Rank, value: T) -> Self {
        Self {
            #[cfg(debug_assertions)]
            rank,
            inner: threads::Mutex::new(value),
        }
    }

    /// A mutex inside which no other is taken.
    pub const fn leaf(value: T) -> Self {
        Self::new(Rank::Leaf, value)
    }
}

/// A [leaf](Mutex::leaf).
impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::leaf(T::default())
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks, waiting if another thread holds it.
    ///
    /// # Panics
    ///
    /// Debug builds panic if this thread holds a lock of the same or a higher [`Rank`].
    #[inline]
    #[allow(clippy::disallowed_methods, reason = "the mutex below the ranked one")]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            #[cfg(debug_assertions)]
            held: order::Held::new(self.rank),
            inner: self.inner.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks, unless another thread holds it.
    ///
    /// # Panics
    ///
    /// As [`Self::lock`].
    #[allow(clippy::disallowed_methods, reason = "the mutex below the ranked one")]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        #[cfg(debug_assertions)]
        let held = order::Held::new(self.rank);
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard {
            inner,
            #[cfg(debug_assertions)]
            held,
        })
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// A locked [`Mutex`], which is unlocked when this is dropped.
#[must_use = "dropping the guard unlocks the mutex"]
pub struct MutexGuard<'a, T: ?Sized> {
    inner: threads::MutexGuard<'a, T>,
    #[cfg(debug_assertions)]
    held: order::Held,
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// A condition variable for a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(threads::Condvar);

impl Condvar {
    /// A condition variable that no thread waits for.
    pub const fn new() -> Self {
        Self(threads::Condvar::new())
    }

    /// Wakes every thread that waits.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Waits until `condition` is false, at most `timeout`.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let waited = self.0.wait_timeout_while(guard.inner, timeout, condition);
        MutexGuard {
            inner: waited.unwrap_or_else(PoisonError::into_inner).0,
            #[cfg(debug_assertions)]
            held: guard.held,
        }
    }
}

/// The ranks that each thread holds.
#[cfg(debug_assertions)]
mod order {
    use std::cell::Cell;
    use std::marker::PhantomData;

    use super::Rank;

    #[cfg(feature = "shuttle")]
    use shuttle::thread_local;

    thread_local! {
        /// One bit for each rank.
        static HELD: Cell<u32> = const { Cell::new(0) };
    }

    /// A rank that this thread holds until this is dropped.
    #[derive(Debug)]
    pub(super) struct Held {
        rank: Rank,
        /// The rank belongs to the thread that took it.
        _not_send: PhantomData<*const ()>,
    }

    impl Held {
        pub(super) fn new(rank: Rank) -> Self {
            let held = HELD.with(Cell::get);
            assert!(
                held >> rank as u8 == 0,
                "lock order: {rank:?} is locked while a lock of the same or a higher rank is held (ranks held: \
                 {held:#b}, this one is bit {}); see the table in src/base/sync.rs",
                rank as u8
            );
            HELD.with(|cell| cell.set(held | 1 << rank as u8));
            Self { rank, _not_send: PhantomData }
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            HELD.with(|cell| cell.set(cell.get() & !(1 << self.rank as u8)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn panics(act: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(act)).is_err()
    }

    #[test]
    fn a_panic_under_the_lock_does_not_poison_it() {
        let mutex = Mutex::leaf(1);
        assert!(panics(|| {
            let _guard = mutex.lock();
            panic!("under the lock");
        }));
        assert_eq!(*mutex.lock(), 1);
    }

    #[test]
    fn ranks_only_ascend() {
        let (host, machine, leaf) =
            (Mutex::new(Rank::Host, ()), Mutex::new(Rank::Machine, ()), Mutex::leaf(()));
        {
            let _host = host.lock();
            let _machine = machine.lock();
            let _leaf = leaf.lock();
        }
        let _machine = machine.lock();
        assert_eq!(panics(|| drop(host.lock())), cfg!(debug_assertions));
        // The attempt left nothing behind.
        let _leaf = leaf.lock();
    }

    #[test]
    fn two_locks_of_one_rank_are_not_held_together() {
        let (one, other) = (Mutex::leaf(()), Mutex::leaf(()));
        let guard = one.lock();
        assert_eq!(panics(|| drop(other.lock())), cfg!(debug_assertions));
        drop(guard);
        let _other = other.lock();
    }

    #[test]
    fn guards_may_be_dropped_in_any_order() {
        let (host, machine, leaf) =
            (Mutex::new(Rank::Host, ()), Mutex::new(Rank::Machine, ()), Mutex::leaf(()));
        let (outer, inner) = (host.lock(), machine.lock());
        drop(outer);
        let last = leaf.lock();
        drop(inner);
        drop(last);
        let _host = host.lock();
    }

    #[test]
    fn each_thread_has_an_order_of_its_own() {
        let (host, leaf) = (Mutex::new(Rank::Host, ()), Mutex::leaf(()));
        let _leaf = leaf.lock();
        std::thread::scope(|scope| scope.spawn(|| drop(host.lock())).join()).unwrap();
    }

    #[test]
    fn a_condition_is_waited_for_without_the_lock() {
        let (changed, ready) = (Condvar::new(), Mutex::leaf(false));
        std::thread::scope(|scope| {
            let guard = ready.lock();
            scope.spawn(|| {
                *ready.lock() = true;
                changed.notify_all();
            });
            let guard = changed.wait_timeout_while(guard, Duration::from_secs(60), |ready| !*ready);
            assert!(*guard);
        });
    }
}
