//! A disk that tests put in the place of the writer threads, on their own thread.
//!
//! Only the feature `simulation` compiles this. A thread that called [`set_disk`] writes in a task:
//! it waits as long as the [`Disk`] says, and then commits everything that is queued.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::{Committer, Job, Outcome};

/// A disk.
pub trait Disk: Send + Sync {
    /// Time until the next commit.
    fn latency(&self) -> Duration;

    /// A result code of SQLite with which the next commit, of this many changes, fails.
    fn fault(&self, changes: usize) -> Option<i32>;

    /// Whether the process was killed: what is queued is not written.
    fn killed(&self) -> bool;
}

thread_local! {
    static DISK: RefCell<Option<Arc<dyn Disk>>> = const { RefCell::new(None) };
}

/// Lets writers that this thread starts write to `disk`, or from threads of their own again.
pub fn set_disk(disk: Option<Arc<dyn Disk>>) {
    DISK.set(disk);
}

/// The disk of this thread, unless that is the system's.
pub fn disk() -> Option<Arc<dyn Disk>> {
    DISK.with_borrow(Clone::clone)
}

/// Fails when the disk does.
pub(super) fn fail(changes: usize) -> rusqlite::Result<()> {
    match disk().and_then(|disk| disk.fault(changes)) {
        None => Ok(()),
        Some(code) => Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)),
    }
}

type Report<J> = Box<dyn FnMut(&[J], &Outcome) + Send>;

/// The writer thread as a task.
pub(super) struct Task<J> {
    shared: Arc<Shared<J>>,
    task: AbortHandle,
}

struct Shared<J> {
    disk: Arc<dyn Disk>,
    queue: Mutex<Vec<J>>,
    queued: Notify,
    /// `None` once it has ended: the file is closed then.
    committer: Mutex<Option<Committer<Report<J>>>>,
    closing: Arc<AtomicBool>,
}

impl<J> fmt::Debug for Task<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Task")
    }
}

impl<J: Job> Task<J> {
    pub(super) fn start(
        disk: Arc<dyn Disk>,
        committer: Committer<impl FnMut(&[J], &Outcome) + Send + 'static>,
        closing: Arc<AtomicBool>,
    ) -> Self {
        let Committer { connection, report, times, .. } = committer;
        let mut committer = Committer::new(connection, Box::new(report) as Report<J>);
        committer.times = times;
        let committer = Mutex::new(Some(committer));
        let (queue, queued) = (Mutex::default(), Notify::new());
        let shared = Arc::new(Shared { disk, queue, queued, committer, closing });
        let task = tokio::spawn(Arc::clone(&shared).run()).abort_handle();
        Self { shared, task }
    }

    pub(super) fn submit(&self, job: J) {
        lock(&self.shared.queue).push(job);
        self.shared.queued.notify_one();
    }

    pub(super) fn end(self) {
        self.task.abort();
        if !self.shared.disk.killed() {
            self.shared.step();
        }
        let committer = lock(&self.shared.committer).take();
        if let Some(committer) = committer.filter(|_| !self.shared.disk.killed()) {
            committer.finish();
        }
    }
}

impl<J: Job> Shared<J> {
    async fn run(self: Arc<Self>) {
        loop {
            self.queued.notified().await;
            while !lock(&self.queue).is_empty() {
                tokio::time::sleep(self.disk.latency()).await;
                if let Some(pause) = self.step() {
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Commits what is queued. Returns the pause to make before the next attempt.
    fn step(&self) -> Option<Duration> {
        let mut batch = std::mem::take(&mut *lock(&self.queue));
        if batch.is_empty() {
            return None;
        }
        let pause = lock(&self.committer).as_mut()?.commit(&batch, &self.closing);
        if pause.is_some() {
            let mut queue = lock(&self.queue);
            batch.append(&mut queue);
            *queue = batch;
        }
        pause
    }
}

#[allow(clippy::disallowed_methods, reason = "of tests only, and held across no call but a report")]
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
