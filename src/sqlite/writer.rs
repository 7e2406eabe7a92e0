//! The writer thread: it gathers changes and commits them together.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

use super::commit::{CommitTimes, Committer, Job, Outcome};
#[cfg(feature = "simulation")]
use super::simulation;
use forebay_base::clock;
use forebay_base::error::Result;

/// Size limit of a transaction in bytes, give or take one job.
pub const GATHER_BYTES: usize = 1 << 20;
/// Time limit for filling a transaction.
pub const GATHER_TIME: Duration = Duration::from_millis(2);

/// Behaviour of a writer while the disk is full or another process locks the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It fails.
    Fail,
    /// It tries again until that is over, or until it is closed.
    Wait,
}

/// The outcome of the oldest jobs without a report.
#[derive(Clone, Debug)]
pub struct Report {
    /// Number of jobs.
    pub jobs: u64,
    /// Their outcome.
    pub outcome: Outcome,
}

/// The writer thread, which makes all changes of a database.
#[derive(Debug)]
pub struct Writer<J: Job> {
    jobs: Option<mpsc::Sender<J>>,
    thread: Option<JoinHandle<()>>,
    /// Set when the writer is to end.
    closing: Arc<AtomicBool>,
    times: Arc<CommitTimes>,
    /// In a simulation, a task in the place of the thread.
    #[cfg(feature = "simulation")]
    task: Option<simulation::Task<J>>,
}

impl<J: Job> Writer<J> {
    /// Starts the thread. It calls `report` with the jobs of each commit, in order: those that
    /// share an outcome together.
    pub fn start(
        connection: Connection,
        trouble: Trouble,
        report: impl FnMut(&[J], &Outcome) + Send + 'static,
    ) -> Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let closing = Arc::new(AtomicBool::new(trouble == Trouble::Fail));
        let committer = Committer::new(connection, report);
        let times = committer.times.clone();
        #[cfg(feature = "simulation")]
        if let Some(disk) = simulation::disk() {
            let task = Some(simulation::Task::start(disk, committer, closing.clone()));
            return Ok(Self { jobs: None, thread: None, closing, times, task });
        }
        let flag = closing.clone();
        let thread = std::thread::Builder::new()
            .name("forebay-store".into())
            .spawn(move || run(&queue, committer, &flag))?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
            closing,
            times,
            #[cfg(feature = "simulation")]
            task: None,
        })
    }

    /// Queues a job. The caller limits the length of the queue by means of the reports.
    pub fn submit(&self, job: J) {
        #[cfg(feature = "simulation")]
        if let Some(task) = &self.task {
            return task.submit(job);
        }
        if let Some(jobs) = &self.jobs {
            // The thread ends only after the sender is gone.
            let _ = jobs.send(job);
        }
    }

    /// Number and time of its transactions.
    pub fn times(&self) -> &CommitTimes {
        &self.times
    }

    /// Writes the queued jobs and ends the thread.
    pub fn close(&mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.jobs = None;
        self.closing.store(true, Ordering::Release);
        #[cfg(feature = "simulation")]
        if let Some(task) = self.task.take() {
            task.end();
        }
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl<J: Job> Drop for Writer<J> {
    fn drop(&mut self) {
        self.end();
    }
}

fn run<J: Job, R: FnMut(&[J], &Outcome)>(
    queue: &mpsc::Receiver<J>,
    mut committer: Committer<R>,
    closing: &AtomicBool,
) {
    let mut batch = Vec::new();
    loop {
        let first = match queue.try_recv() {
            Ok(first) => first,
            Err(mpsc::TryRecvError::Disconnected) => break,
            // There is time for what was left for later.
            Err(mpsc::TryRecvError::Empty) if committer.clean_up::<J>() => continue,
            Err(mpsc::TryRecvError::Empty) => match queue.recv() {
                Ok(first) => first,
                Err(_) => break,
            },
        };
        let started = clock::now();
        let mut bytes = first.size();
        batch.push(first);
        while bytes < GATHER_BYTES && clock::now().saturating_duration_since(started) < GATHER_TIME {
            let Ok(job) = queue.try_recv() else { break };
            bytes += job.size();
            batch.push(job);
        }
        while let Some(pause) = committer.commit(&batch, closing) {
            // Closing the writer ends the pause.
            std::thread::park_timeout(pause);
        }
        batch.clear();
        committer.clean_up::<J>();
    }
    committer.finish();
}
