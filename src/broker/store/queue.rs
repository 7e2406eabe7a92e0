//! The queue to the store's writer thread. Each protocol submits changes through a [`StoreQueue`]
//! of its own and gets the reports about its own changes, in the order in which it submitted them.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

use super::op::Op;
use forebay_base::error::Result;
use forebay_sqlite::{Connection, Job, Outcome, Report, Trouble, Writer};

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
pub(crate) struct StoreQueue {
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
pub(crate) type Reports = mpsc::UnboundedReceiver<Report>;

impl StoreQueue {
    /// Starts the writer thread; gives `count` queues to it. The thread drops `lock` after its last
    /// write.
    pub(crate) fn open(
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
                if let Outcome::Written(bytes) | Outcome::CleaningUp(bytes) = outcome {
                    newest.store(*bytes, Ordering::Release);
                }
                for submission in batch {
                    jobs[submission.from] += 1;
                }
                let was_waiting = std::mem::replace(&mut waiting, matches!(outcome, Outcome::Waiting(_)));
                // Without jobs, it says how much is used now, or that nothing can be written.
                let all = was_waiting || batch.is_empty();
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

    /// Number of the store's transactions, of all protocols, and the time that they have taken.
    pub(crate) fn commits(&self) -> (u64, Duration) {
        self.writer.as_ref().map(|writer| writer.times().total()).unwrap_or_default()
    }

    /// A queue without a store behind it, whose channel of reports stays empty.
    pub(crate) fn memory() -> (Self, Reports) {
        let queue = Self { writer: None, index: 0, outstanding: Cell::new(0), used: Arc::default() };
        (queue, mpsc::unbounded_channel().1)
    }

    /// Submits a change. Returns whether it is done already, because there is no store.
    pub(crate) fn submit(&self, op: Op) -> bool {
        let Some(writer) = &self.writer else { return true };
        self.outstanding.set(self.outstanding.get() + 1);
        writer.submit(Submission { op, from: self.index });
        false
    }

    /// Notes that a report has arrived, and gives it the newest figure of bytes in use: each
    /// protocol has a channel of its own, so reports to different protocols may be handled in
    /// another order than that of their commits.
    pub(crate) fn reported(&self, report: &mut Report) {
        self.outstanding.set(self.outstanding.get() - report.jobs);
        if let Outcome::Written(bytes) | Outcome::CleaningUp(bytes) = &mut report.outcome {
            *bytes = self.used.load(Ordering::Acquire);
        }
    }

    /// Whether every change has been reported.
    pub(crate) fn is_idle(&self) -> bool {
        self.outstanding.get() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::prepare;
    use super::*;
    use forebay_sqlite::Sync;

    #[test]
    fn each_queue_gets_the_reports_of_its_own_changes() {
        let directory = tempfile::tempdir().unwrap();
        let db = forebay_sqlite::open(&directory.path().join("x.db"), Sync::Os).unwrap();
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

    fn store() -> (tempfile::TempDir, Connection, Connection) {
        let directory = tempfile::tempdir().unwrap();
        let open = || forebay_sqlite::open(&directory.path().join("x.db"), Sync::Os).unwrap();
        let (db, neighbour) = (open(), open());
        prepare(&db).unwrap();
        db.busy_timeout(Duration::ZERO).unwrap();
        (directory, db, neighbour)
    }

    fn append(sequence: u64, bytes: usize) -> Op {
        let entry = crate::log::tests::entry(1, 1);
        let entry = crate::log::Entry { sequence, body: vec![0; bytes].into(), ..entry };
        Op::Append { topic: 1, entry, producer: None }
    }

    #[test]
    fn every_protocol_hears_that_the_store_cannot_write_and_that_it_can_again() {
        let (_directory, db, neighbour) = store();
        let mut queues = StoreQueue::open(db, (), 2).unwrap();
        neighbour.execute_batch("BEGIN IMMEDIATE").unwrap();
        queues[0].0.submit(Op::Epoch { topic: 1, epoch: 1 });
        for (_, reports) in &mut queues {
            let report = reports.blocking_recv().unwrap();
            assert!(report.jobs == 0 && matches!(report.outcome, Outcome::Waiting(_)), "{report:?}");
        }
        neighbour.execute_batch("COMMIT").unwrap();
        for ((_, reports), expected) in queues.iter_mut().zip([1, 0]) {
            let written = std::iter::from_fn(|| reports.blocking_recv())
                .find(|report| !matches!(report.outcome, Outcome::Waiting(_)))
                .unwrap();
            assert!(matches!(written.outcome, Outcome::Written(_)), "{written:?}");
            assert_eq!(written.jobs, expected);
        }
    }

    #[test]
    fn a_change_that_nothing_refers_to_may_be_refused_alone_and_an_entry_may_not() {
        let (_directory, db, _neighbour) = store();
        let refuse = "BEGIN SELECT RAISE(ABORT, 'refused'); END";
        db.execute_batch(&format!("CREATE TRIGGER c BEFORE INSERT ON cursor {refuse};")).unwrap();
        db.execute_batch(&format!("CREATE TRIGGER e BEFORE INSERT ON entry WHEN new.id & 1 {refuse};"))
            .unwrap();
        let mut queues = StoreQueue::open(db, (), 1).unwrap();
        let (queue, mut reports) = queues.remove(0);
        let (kind, below, state, touched_ms) = (0, 0, vec![], 0);
        queue.submit(Op::Cursor {
            topic: 1,
            subscription: "s".into(),
            kind,
            below,
            state,
            touched_ms,
            owner: None,
        });
        assert!(matches!(reports.blocking_recv().unwrap().outcome, Outcome::Rejected(_)));
        queue.submit(append(0, 1000));
        assert!(matches!(reports.blocking_recv().unwrap().outcome, Outcome::Written(_)));
        queue.submit(append(1, 1000));
        assert!(matches!(reports.blocking_recv().unwrap().outcome, Outcome::Failed(_)), "it would be a gap");
    }

    #[test]
    fn large_removals_end_after_the_commit_and_the_protocols_hear_of_the_space() {
        let (_directory, db, neighbour) = store();
        let mut queues = StoreQueue::open(db, (), 1).unwrap();
        let (queue, mut reports) = queues.remove(0);
        let mut jobs = |number: u64| {
            let mut others = 0;
            let mut left = number;
            while left > 0 {
                let report = reports.blocking_recv().unwrap();
                left -= report.jobs;
                others += u64::from(report.jobs == 0);
            }
            others
        };
        queue.submit(Op::CreateTopic { id: 1, domain: "pulsar", name: "t".into(), partitions: 0 });
        for sequence in 0..3 {
            queue.submit(append(sequence, 3 << 20));
        }
        assert_eq!(jobs(4), 0, "nothing is left for later");
        queue.submit(Op::Trim { topic: 1, first: 3, next: 3, next_index: 3 });
        assert_eq!(jobs(1), 0);
        let report = reports.blocking_recv().unwrap();
        assert!(report.jobs == 0 && matches!(report.outcome, Outcome::CleaningUp(_)), "{report:?}");
        let report = reports.blocking_recv().unwrap();
        assert!(report.jobs == 0 && matches!(report.outcome, Outcome::CleanedUp), "{report:?}");
        let left: i64 = neighbour.query_row("SELECT count(*) FROM entry", [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0);
        drop(queue);
        assert!(reports.try_recv().is_err(), "there was nothing more to do");
    }
}
