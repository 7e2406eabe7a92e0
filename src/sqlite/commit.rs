//! One transaction for many changes, and what becomes of it when the disk is full or fails.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::{Connection, ffi};

#[cfg(feature = "simulation")]
use super::simulation;
use super::used_pages;
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind};

/// Pauses between attempts while the disk is full or the file is locked: the first one, and the
/// longest.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LAST_RETRY: Duration = Duration::from_secs(1);

/// Distance behind the end of a file at which room is looked for.
const AHEAD: u64 = 8 << 20;

/// A change to be written.
pub trait Job: Send + 'static {
    /// Approximate number of bytes that the job writes.
    fn size(&self) -> usize;
    /// Applies the change as one of several of the caller's transaction, which has removed that
    /// many bytes so far.
    fn apply_after(&self, connection: &Connection, removed: &mut usize) -> rusqlite::Result<()>;
    /// Applies the change as the first of the caller's transaction.
    fn apply(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.apply_after(connection, &mut 0)
    }
    /// Whether later jobs are right without this one, so that it may fail by itself.
    fn stands_alone(&self) -> bool {
        false
    }

    /// Does some of the work that jobs have left for later, in a transaction of its own. Returns
    /// whether there may be more.
    fn clean_up(_connection: &Connection) -> rusqlite::Result<bool> {
        Ok(false)
    }
}

/// Outcomes of jobs.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// They are written. The number is that of the bytes in use.
    Written(u64),
    /// SQLite refused them, and they alone: jobs after them are written.
    Rejected(Error),
    /// The store has failed: neither they nor any later job is written.
    Failed(Error),
    /// Some of the work that jobs had left for later is done. The number is that of the bytes in
    /// use. Comes without jobs.
    CleaningUp(u64),
    /// All of it is done. Comes without jobs, once after `CleaningUp`.
    CleanedUp,
    /// Nothing yet: the writer cannot write for this reason and tries again. Comes without jobs.
    Waiting(Error),
}

/// Work of a [`Writer`](super::Writer) without its thread. It never sleeps: a test or a simulation
/// can call it between two events.
#[derive(Debug)]
pub struct Committer<R> {
    pub(super) connection: Connection,
    pub(super) report: R,
    failed: Option<Error>,
    /// Whether something was left for later when it was looked for last.
    cleans_up: bool,
    /// The next pause between two attempts.
    pause: Duration,
    pub(super) times: Arc<CommitTimes>,
}

/// Number of the transactions that were written, and the time that they took.
#[derive(Debug, Default)]
pub struct CommitTimes {
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

impl CommitTimes {
    fn add(&self, took: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// The number, and the sum of the times.
    pub fn total(&self) -> (u64, Duration) {
        let [count, nanoseconds] = [&self.count, &self.nanoseconds].map(|one| one.load(Ordering::Relaxed));
        (count, Duration::from_nanos(nanoseconds))
    }
}

impl<R> Committer<R> {
    /// The work on an open database. It calls `report` as a [`Writer`](super::Writer) does.
    pub fn new(connection: Connection, report: R) -> Self {
        Self { connection, report, failed: None, cleans_up: false, pause: FIRST_RETRY, times: Arc::default() }
    }

    /// Commits and reports the outcomes. If the disk is full or the file is locked, unless the
    /// writer is closing, returns the pause to make before the next attempt with the same jobs.
    pub fn commit<J: Job>(&mut self, batch: &[J], closing: &AtomicBool) -> Option<Duration>
    where
        R: FnMut(&[J], &Outcome),
    {
        let Self { connection, report, failed, pause, times, .. } = self;
        if let Some(error) = failed {
            report(batch, &Outcome::Failed(error.clone()));
            return None;
        }
        let started = clock::now();
        match commit_or_fail(connection, batch) {
            Ok(Commit { bytes, rejected }) => {
                times.add(clock::now().saturating_duration_since(started));
                let mut rest = batch;
                for (at, error) in rejected {
                    let (before, from) = rest.split_at(at - (batch.len() - rest.len()));
                    if !before.is_empty() {
                        report(before, &Outcome::Written(bytes));
                    }
                    report(&from[..1], &Outcome::Rejected(error));
                    rest = &from[1..];
                }
                if !rest.is_empty() {
                    report(rest, &Outcome::Written(bytes));
                }
            }
            Err(error) if may_pass(&error) && !closing.load(Ordering::Acquire) => {
                report(&[], &Outcome::Waiting(error.into()));
                let next = (*pause * 2).min(LAST_RETRY);
                return Some(std::mem::replace(pause, next));
            }
            Err(error) => {
                let error = Error::from(error);
                report(batch, &Outcome::Failed(error.clone()));
                *failed = Some(error);
            }
        }
        *pause = FIRST_RETRY;
        None
    }

    /// Does some of the work that jobs have left for later. Returns whether there may be more to do
    /// now.
    pub fn clean_up<J: Job>(&mut self) -> bool
    where
        R: FnMut(&[J], &Outcome),
    {
        if self.failed.is_some() {
            return false;
        }
        // An error is no loss: the work is still there at the next attempt, and a commit has the
        // same error.
        let done = J::clean_up(&self.connection).unwrap_or(false);
        if done && let Ok(bytes) = used_pages(&self.connection) {
            (self.report)(&[], &Outcome::CleaningUp(bytes));
        } else if std::mem::take(&mut self.cleans_up) {
            (self.report)(&[], &Outcome::CleanedUp);
        }
        self.cleans_up = done;
        done
    }

    /// Leaves a file without a log.
    pub fn finish(&self) {
        if self.failed.is_none() {
            let _ = self.connection.pragma_update(None, "wal_checkpoint", "TRUNCATE");
        }
    }
}

/// A successful commit.
pub(super) struct Commit {
    /// Bytes in use.
    bytes: u64,
    /// Places of the jobs that failed alone, and why.
    pub(super) rejected: Vec<(usize, Error)>,
}

/// Whether the same commit may succeed later.
fn may_pass(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode as Code;
    matches!(error.sqlite_error_code(), Some(Code::DatabaseBusy | Code::DatabaseLocked | Code::DiskFull))
}

/// Like [`commit`]. A shortage of space that SQLite takes for another failure is a full disk, and a
/// panic is a failure: those who wait for a report would wait for ever.
fn commit_or_fail<J: Job>(connection: &Connection, batch: &[J]) -> rusqlite::Result<Commit> {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| commit(connection, batch)));
    let error = match caught {
        Ok(Err(error)) => error,
        Ok(done) => return done,
        Err(_) => {
            let text = "the thread that writes it panicked".to_owned();
            return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_INTERNAL), Some(text)));
        }
    };
    if let Some(reason) = lack_of_space(connection, &error) {
        return Err(rusqlite::Error::SqliteFailure(
            ffi::Error::new(ffi::SQLITE_FULL),
            Some(format!("{error}: {reason}")),
        ));
    }
    Err(error)
}

/// The reason if an I/O error comes from a lack of space, which SQLite does not tell from a broken
/// disk: the shared memory file could not grow, the user's quota is used up, or the file has the
/// largest size that the process or the file system allows.
pub(super) fn lack_of_space(connection: &Connection, error: &rusqlite::Error) -> Option<String> {
    match error.sqlite_error().map(|error| error.extended_code) {
        Some(ffi::SQLITE_IOERR_SHMSIZE) => Some("the shared memory file could not grow".into()),
        Some(ffi::SQLITE_IOERR_WRITE) => {
            let path = Path::new(connection.path()?);
            let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
            let mut log = path.as_os_str().to_owned();
            log.push("-wal");
            // The write that failed was somewhere behind the end.
            let offset = size(path).max(size(Path::new(&log))) + AHEAD;
            let failure = probe(&path.parent()?.join("probe"), offset).err()?;
            is_space(&failure).then(|| failure.to_string())
        }
        _ => None,
    }
}

/// Writes at the start of a new file and at an offset, up to which it takes no room on file systems
/// of Unix, and removes the file.
fn probe(path: &Path, offset: u64) -> std::io::Result<()> {
    let written = std::fs::File::create(path).and_then(|mut file| {
        file.write_all(&[0; 64 << 10])?;
        if cfg!(unix) {
            file.seek(SeekFrom::Start(offset))?;
            file.write_all(&[0])?;
        }
        Ok(())
    });
    let removed = std::fs::remove_file(path);
    written.and(removed)
}

pub(super) fn is_space(error: &std::io::Error) -> bool {
    use std::io::ErrorKind as Kind;
    matches!(error.kind(), Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge)
}

pub(super) fn commit<J: Job>(connection: &Connection, batch: &[J]) -> rusqlite::Result<Commit> {
    // Savepoints cost something with every job, and hardly any job is refused: they are for the
    // second attempt.
    #[cfg(feature = "simulation")]
    simulation::fail(batch.len())?;
    let (transaction, rejected) = match apply_all(connection, batch) {
        Err(error) if is_fault_of_job(&error) => apply_each(connection, batch)?,
        done => (done?, Vec::new()),
    };
    transaction.commit()?;
    Ok(Commit { bytes: used_pages(connection)?, rejected })
}

fn apply_all<'c, J: Job>(
    connection: &'c Connection,
    batch: &[J],
) -> rusqlite::Result<rusqlite::Transaction<'c>> {
    let transaction = connection.unchecked_transaction()?;
    let mut removed = 0;
    batch.iter().try_for_each(|job| job.apply_after(&transaction, &mut removed))?;
    Ok(transaction)
}

/// Applies every job in a savepoint of its own, and leaves out those that stand alone and are
/// refused.
fn apply_each<'c, J: Job>(
    connection: &'c Connection,
    batch: &[J],
) -> rusqlite::Result<(rusqlite::Transaction<'c>, Vec<(usize, Error)>)> {
    let transaction = connection.unchecked_transaction()?;
    let mut rejected = Vec::new();
    let mut removed = 0;
    for (at, job) in batch.iter().enumerate() {
        transaction.execute_batch("SAVEPOINT job")?;
        if let Err(error) = job.apply_after(&transaction, &mut removed) {
            if !job.stands_alone() || !is_fault_of_job(&error) {
                return Err(error);
            }
            transaction.execute_batch("ROLLBACK TO job")?;
            rejected.push((
                at,
                Error::new(ErrorKind::Persistence, format!("the store refused the change: {error}")),
            ));
        }
        transaction.execute_batch("RELEASE job")?;
    }
    Ok((transaction, rejected))
}

/// Whether the change is to blame, and not the disk or the file.
fn is_fault_of_job(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode as Code;
    match error.sqlite_error_code() {
        Some(code) => matches!(
            code,
            Code::TooBig
                | Code::ConstraintViolation
                | Code::TypeMismatch
                | Code::ParameterOutOfRange
                | Code::OperationAborted
        ),
        // Refused before SQLite saw it, as a text with a NUL or a number out of range.
        None => true,
    }
}
