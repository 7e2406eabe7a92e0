//! The queue to the store's writer thread. Each protocol submits changes through a [`StoreQueue`] of its own and
//! gets the reports about its own changes, in the order in which it submitted them.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

use super::op::Op;
use crate::error::Result;
use crate::sqlite::{Connection, Job, Outcome, Report, Trouble, Writer};

/// A change, and the protocol that is told about it.
#[derive(Debug)]
struct Submission {
    op: Op,
    from: usize,
}

impl Job for Submission {
    fn size(&self) -> usize {
        self.op.size()
    }

    fn apply(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.op.apply(connection)
    }

    fn apply_after(&self, connection: &Connection, removed: &mut usize) -> rusqlite::Result<()> {
        self.op.apply_after(connection, removed)
    }

    fn stands_alone(&self) -> bool {
        self.op.stands_alone()
    }

    fn clean_up(connection: &Connection) -> rusqlite::Result<bool> {
        Op::clean_up(connection)
    }
}

/// The way of one protocol's changes to the store.
#[derive(Debug)]
pub(in crate::broker) struct StoreQueue {
    /// `None` keeps everything in memory: a change is done when it is submitted.
    writer: Option<Rc<Writer<Submission>>>,
    /// Which of the queues this is.
    index: usize,
    /// Changes without a report.
    outstanding: Cell<u64>,
    /// Bytes that the database uses after the newest commit of all protocols.
    used: Arc<AtomicU64>,
}

/// The channel of reports about one protocol's changes.
pub(in crate::broker) type Reports = mpsc::UnboundedReceiver<Report>;

impl StoreQueue {
    /// Starts the writer thread; gives `count` queues to it. The thread drops `lock` after its last write.
    pub(in crate::broker) fn open(
        connection: Connection,
        lock: impl Send + 'static,
        count: usize,
    ) -> Result<Vec<(Self, Reports)>> {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| mpsc::unbounded_channel()).unzip();
        let mut jobs = vec![0; count];
        let used = Arc::<AtomicU64>::default();
        let newest = used.clone();
        // Whether the protocols were told that the store cannot write at the moment.
        let mut waiting = false;
        let writer =
            Writer::start(connection, Trouble::Wait, move |batch: &[Submission], outcome: &Outcome| {
                let _ = &lock;
                if let Outcome::Written(bytes) = outcome {
                    newest.store(*bytes, Ordering::Release);
                }
                for submission in batch {
                    jobs[submission.from] += 1;
                }
                let was_waiting = std::mem::replace(&mut waiting, matches!(outcome, Outcome::Waiting(_)));
                // Without jobs, it says how much is used now.
                let all = waiting || was_waiting || batch.is_empty();
                for (sender, jobs) in senders.iter().zip(&mut jobs).filter(|(_, jobs)| all || **jobs > 0) {
                    let _ = sender.send(Report { jobs: std::mem::take(jobs), outcome: outcome.clone() });
                }
            })?;
        let writer = Rc::new(writer);
        let queue = |index| Self {
            writer: Some(writer.clone()),
            index,
            outstanding: Cell::new(0),
            used: used.clone(),
        };
        Ok(receivers.into_iter().enumerate().map(|(index, reports)| (queue(index), reports)).collect())
    }

    /// A queue without a store behind it, whose channel of reports stays empty.
    pub(in crate::broker) fn memory() -> (Self, Reports) {
        let queue = Self { writer: None, index: 0, outstanding: Cell::new(0), used: Arc::default() };
        (queue, mpsc::unbounded_channel().1)
    }

    /// Submits a change. Returns whether it is done already, because there is no store.
    pub(in crate::broker) fn submit(&self, op: Op) -> bool {
        let Some(writer) = &self.writer else { return true };
        self.outstanding.set(self.outstanding.get() + 1);
        writer.submit(Submission { op, from: self.index });
        false
    }

    /// Notes that a report has arrived, and gives it the newest figure of bytes in use: each protocol has a channel
    /// of its own, so reports to different protocols may be handled in another order than that of their commits.
    pub(in crate::broker) fn reported(&self, report: &mut Report) {
        self.outstanding.set(self.outstanding.get() - report.jobs);
        if let Outcome::Written(bytes) = &mut report.outcome {
            *bytes = self.used.load(Ordering::Acquire);
        }
    }

    /// Whether every change has been reported.
    pub(in crate::broker) fn is_idle(&self) -> bool {
        self.outstanding.get() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::prepare;
    use super::*;
    use crate::sqlite::{self, Sync};

    #[test]
    fn each_queue_gets_the_reports_of_its_own_changes() {
        let directory = tempfile::tempdir().unwrap();
        let db = sqlite::open(&directory.path().join("x.db"), Sync::Os).unwrap();
        prepare(&db).unwrap();
        let mut queues = StoreQueue::open(db, (), 3).unwrap();
        for (index, changes) in [(0, 5), (1, 2), (0, 1)] {
            for _ in 0..changes {
                assert!(!queues[index].0.submit(Op::Epoch { topic: 1, epoch: 1 }));
            }
        }
        for (index, expected) in [(0, 6), (1, 2)] {
            let (queue, reports) = &mut queues[index];
            let mut jobs = 0;
            while !queue.is_idle() {
                let mut report = reports.blocking_recv().unwrap();
                assert!(matches!(report.outcome, Outcome::Written(bytes) if bytes > 0));
                queue.reported(&mut report);
                jobs += report.jobs;
            }
            assert_eq!(jobs, expected);
        }
        assert!(queues[2].1.try_recv().is_err(), "the third protocol submitted nothing");
        let mut stale = Report { jobs: 0, outcome: Outcome::Written(u64::MAX) };
        queues[2].0.reported(&mut stale);
        assert!(
            matches!(stale.outcome, Outcome::Written(bytes) if bytes < u64::MAX),
            "a late report gives the figure of the newest commit"
        );
        let (memory, _) = StoreQueue::memory();
        assert!(memory.submit(Op::Epoch { topic: 1, epoch: 1 }) && memory.is_idle());
    }
}
