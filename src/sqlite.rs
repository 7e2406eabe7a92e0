//! SQLite as a log: opening a database, and one writer thread with group commit.
//!
//! Waiting jobs are gathered until the queue is empty or [`GATHER_BYTES`] or [`GATHER_TIME`] is reached, applied
//! in one transaction, committed once, and only then reported as done. Reports have the order of the jobs. After
//! a failed commit the writer rejects all later jobs: a later successful commit would leave a silent gap. A job on
//! which no other depends ([`Job::stands_alone`]) and that SQLite refuses by itself, because it is too big for
//! example, fails alone. A full disk, or another process that locks the file, may pass: with [`Trouble::Wait`] the
//! writer tries again and reports nothing as written meanwhile.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

pub use rusqlite::Connection;
use rusqlite::ffi;

use crate::clock;
use crate::error::{Error, ErrorKind, Result};

#[cfg(feature = "simulation")]
pub mod simulation;
pub(crate) mod sums;

/// Size limit of a transaction in bytes, give or take one job.
pub const GATHER_BYTES: usize = 1 << 20;
/// Time limit for filling a transaction.
pub const GATHER_TIME: Duration = Duration::from_millis(2);

/// Pauses between attempts while the disk is full or the file is locked: the first one, and the longest.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LAST_RETRY: Duration = Duration::from_secs(1);

/// When a commit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// When it is on disk.
    Full,
    /// When the operating system has it: it survives a kill of the process. A power failure may take the latest commits,
    /// but leaves the database intact.
    Os,
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::new(ErrorKind::Persistence, format!("the store failed: {error}"))
    }
}

/// Opens or creates a database that only its owner may read.
///
/// An existing file is never opened outside SQLite. POSIX locks belong to the process and the file: closing any
/// descriptor of the file drops the locks of every SQLite connection that this process has to it. Another process
/// that opens and closes the database would then take itself for the last user and unlink the write-ahead log,
/// and everything committed afterwards would be lost with the process.
pub fn open(path: &Path, sync: Sync) -> Result<Connection> {
    create_private(path)?;
    let connection = Connection::open(path)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.busy_timeout(Duration::from_secs(5))?;
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        let text = format!(
            "{}: the file system does not allow SQLite's write-ahead log (the journal mode is {mode}): choose a local disk",
            path.display()
        );
        return Err(Error::new(ErrorKind::Persistence, text));
    }
    // NORMAL writes to the disk at checkpoints: without that, a power failure could damage the database itself.
    connection.pragma_update(None, "synchronous", if sync == Sync::Full { "FULL" } else { "NORMAL" })?;
    if sync == Sync::Full {
        // On macOS a plain fsync stops in the cache of the drive. Without effect elsewhere.
        connection.pragma_update(None, "fullfsync", true)?;
        connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    }
    connection.pragma_update(None, "wal_autocheckpoint", 4000)?;
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(connection)
}

/// Creates an empty database file with mode 0600, or removes the permissions of others from an existing one. SQLite
/// gives the write-ahead log and the shared memory file the same permissions.
fn create_private(path: &Path) -> Result<()> {
    match create_new(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            #[cfg(unix)]
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Creates an empty database file with mode 0600. One that exists is an error.
pub(crate) fn create_new(path: &Path) -> std::io::Result<()> {
    /// Held while the descriptor of a new file is open, so that no other thread has the file locked by SQLite
    /// when the descriptor is closed.
    static CREATING: Mutex<()> = Mutex::new(());
    #[allow(clippy::disallowed_methods, reason = "held beside any rank: no other lock is taken inside")]
    let _creating = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// Opens `path` with mode 0600, creating it if necessary. Not for databases: see [`open`].
pub fn private_file(path: &Path) -> Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
        options.mode(0o600);
        let file = options.open(path)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        Ok(file)
    }
    #[cfg(not(unix))]
    Ok(options.open(path)?)
}

/// Locks `path` for this process: a transaction on an empty database beside it, with `.db` behind the name. `None` if it
/// is locked. SQLite's locks belong to the process, so that a child does not inherit them, as it would those of a
/// descriptor.
pub fn claim(path: &Path) -> Result<Option<Connection>> {
    let mut database = path.as_os_str().to_owned();
    database.push(".db");
    let database = Path::new(&database);
    // An existing file is not opened outside SQLite: closing its descriptor would drop the locks on it.
    create_private(database)?;
    let lock = Connection::open(database)?;
    lock.busy_timeout(Duration::ZERO)?;
    match lock.execute_batch("BEGIN EXCLUSIVE") {
        Ok(()) => {}
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    }
    // A process with an earlier version of this library holds a lock of the operating system on `path` itself.
    let held = std::fs::File::open(path).is_ok_and(|file| {
        let tried = file.try_lock();
        matches!(tried, Err(std::fs::TryLockError::WouldBlock))
    });
    Ok((!held).then_some(lock))
}

/// Creates the directory with mode 0700; one that exists keeps its mode.
pub fn private_directory(path: &Path) -> Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    Ok(builder.create(path)?)
}

/// Bytes in use: the pages of the file that are not free.
pub fn used_bytes(connection: &Connection) -> Result<u64> {
    Ok(used_pages(connection)?)
}

fn used_pages(connection: &Connection) -> rusqlite::Result<u64> {
    let number = |pragma: &str| -> rusqlite::Result<u64> {
        connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).map(|n| n.max(0) as u64)
    };
    // The numbers of a damaged file need not fit each other.
    Ok(number("page_count")?.saturating_sub(number("freelist_count")?) * number("page_size")?)
}

/// A change to be written.
pub trait Job: Send + 'static {
    /// Approximate number of bytes that the job writes.
    fn size(&self) -> usize;
    /// Applies the change as one of several of the caller's transaction, which has removed that many bytes so far.
    fn apply_after(&self, connection: &Connection, removed: &mut usize) -> rusqlite::Result<()>;
    /// Applies the change as the first of the caller's transaction.
    fn apply(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.apply_after(connection, &mut 0)
    }
    /// Whether later jobs are right without this one, so that it may fail by itself.
    fn stands_alone(&self) -> bool {
        false
    }

    /// Does some of the work that jobs have left for later, in a transaction of its own. Returns whether there may be more.
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
    /// Nothing yet: the writer cannot write for this reason and tries again. Comes without jobs.
    Waiting(Error),
}

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
    /// In a simulation, a task in the place of the thread.
    #[cfg(feature = "simulation")]
    task: Option<simulation::Task<J>>,
}

impl<J: Job> Writer<J> {
    /// Starts the thread. It calls `report` with the jobs of each commit, in order: those that share an outcome
    /// together.
    pub fn start(
        connection: Connection,
        trouble: Trouble,
        report: impl FnMut(&[J], &Outcome) + Send + 'static,
    ) -> Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let closing = Arc::new(AtomicBool::new(trouble == Trouble::Fail));
        #[cfg(feature = "simulation")]
        if let Some(disk) = simulation::disk() {
            let task =
                Some(simulation::Task::start(disk, Committer::new(connection, report), closing.clone()));
            return Ok(Self { jobs: None, thread: None, closing, task });
        }
        let flag = closing.clone();
        let thread = std::thread::Builder::new()
            .name("penstock-store".into())
            .spawn(move || run(&queue, Committer::new(connection, report), &flag))?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
            closing,
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

/// Work of a [`Writer`] without its thread. It never sleeps: a test or a simulation can call it between two events.
#[derive(Debug)]
pub struct Committer<R> {
    connection: Connection,
    report: R,
    failed: Option<Error>,
    /// The next pause between two attempts.
    pause: Duration,
}

impl<R> Committer<R> {
    /// The work on an open database. It calls `report` as a [`Writer`] does.
    pub fn new(connection: Connection, report: R) -> Self {
        Self { connection, report, failed: None, pause: FIRST_RETRY }
    }

    /// Commits and reports the outcomes. If the disk is full or the file is locked, unless the writer is closing, returns
    /// the pause to make before the next attempt with the same jobs.
    pub fn commit<J: Job>(&mut self, batch: &[J], closing: &AtomicBool) -> Option<Duration>
    where
        R: FnMut(&[J], &Outcome),
    {
        let Self { connection, report, failed, pause } = self;
        if let Some(error) = failed {
            report(batch, &Outcome::Failed(error.clone()));
            return None;
        }
        match commit_or_fail(connection, batch) {
            Ok(Commit { bytes, rejected }) => {
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

    /// Does some of the work that jobs have left for later. Returns whether there may be more to do now.
    pub fn clean_up<J: Job>(&mut self) -> bool
    where
        R: FnMut(&[J], &Outcome),
    {
        if self.failed.is_some() {
            return false;
        }
        // An error is no loss: the work is still there at the next attempt, and a commit has the same error.
        let done = J::clean_up(&self.connection).unwrap_or(false);
        if done && let Ok(bytes) = used_pages(&self.connection) {
            (self.report)(&[], &Outcome::Written(bytes));
        }
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
struct Commit {
    /// Bytes in use.
    bytes: u64,
    /// Places of the jobs that failed alone, and why.
    rejected: Vec<(usize, Error)>,
}

/// Whether the same commit may succeed later.
fn may_pass(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode as Code;
    matches!(error.sqlite_error_code(), Some(Code::DatabaseBusy | Code::DatabaseLocked | Code::DiskFull))
}

/// Like [`commit`]. A shortage of space that SQLite takes for another failure is a full disk, and a panic is a failure:
/// those who wait for a report would wait for ever.
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
    if lacks_space(connection, &error) {
        return Err(rusqlite::Error::SqliteFailure(
            ffi::Error::new(ffi::SQLITE_FULL),
            Some(error.to_string()),
        ));
    }
    Err(error)
}

/// Whether an I/O error comes from a lack of space: the shared memory file could not grow, or the user's quota is used up,
/// which SQLite does not tell from a broken disk.
fn lacks_space(connection: &Connection, error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    match code {
        Some(ffi::SQLITE_IOERR_SHMSIZE) => true,
        Some(ffi::SQLITE_IOERR_WRITE) => {
            let directory = connection.path().and_then(|path| Path::new(path).parent());
            let probe = directory.map(|directory| probe(&directory.join("probe")));
            probe.is_some_and(|probe| probe.is_err_and(|error| is_space(&error)))
        }
        _ => false,
    }
}

/// Writes a file and removes it.
fn probe(path: &Path) -> std::io::Result<()> {
    let written = std::fs::write(path, [0; 64 << 10]);
    let removed = std::fs::remove_file(path);
    written.and(removed)
}

fn is_space(error: &std::io::Error) -> bool {
    use std::io::ErrorKind as Kind;
    matches!(error.kind(), Kind::StorageFull | Kind::QuotaExceeded)
}

fn commit<J: Job>(connection: &Connection, batch: &[J]) -> rusqlite::Result<Commit> {
    // Savepoints cost something with every job, and hardly any job is refused: they are for the second attempt.
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

/// Applies every job in a savepoint of its own, and leaves out those that stand alone and are refused.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_space_is_told_from_a_broken_disk() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open(&directory.path().join("x.db"), Sync::Os).unwrap();
        let failure = |code| rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        assert!(lacks_space(&connection, &failure(ffi::SQLITE_IOERR_SHMSIZE)));
        assert!(!lacks_space(&connection, &failure(ffi::SQLITE_IOERR_WRITE)), "a file can be written");
        assert!(!lacks_space(&connection, &failure(ffi::SQLITE_IOERR_FSYNC)));
        assert!(!directory.path().join("probe").exists());
        #[cfg(target_os = "linux")]
        {
            // Writing to it fails as on a full disk.
            std::os::unix::fs::symlink("/dev/full", directory.path().join("probe")).unwrap();
            assert!(lacks_space(&connection, &failure(ffi::SQLITE_IOERR_WRITE)));
        }
        #[cfg(target_os = "linux")]
        for (errno, space) in [(122, true), (28, true), (5, false)] {
            assert_eq!(is_space(&std::io::Error::from_raw_os_error(errno)), space, "{errno}");
        }
    }

    #[test]
    fn what_is_in_use_are_the_pages_that_are_not_free() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open(&directory.path().join("x.db"), Sync::Os).unwrap();
        connection.execute_batch("CREATE TABLE t (data BLOB)").unwrap();
        let empty = used_bytes(&connection).unwrap();
        assert!((1024..100_000).contains(&empty), "{empty}");
        connection.execute("INSERT INTO t VALUES (zeroblob(1000000))", []).unwrap();
        let full = used_bytes(&connection).unwrap();
        assert!((1_000_000..1_200_000).contains(&full), "{full}");
        connection.execute("DELETE FROM t", []).unwrap();
        assert_eq!(used_bytes(&connection).unwrap(), empty, "the file keeps its free pages");
    }

    #[test]
    fn a_claim_on_a_damaged_file_is_an_error_and_not_another_process() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("lock.db"), [7; 5000]).unwrap();
        assert_eq!(claim(&directory.path().join("lock")).unwrap_err().kind(), ErrorKind::Persistence);
    }

    #[test]
    fn a_claim_is_refused_while_it_or_the_lock_of_an_earlier_version_is_held() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let first = claim(&path).unwrap();
        assert!(first.is_some() && claim(&path).unwrap().is_none());
        drop(first);
        let former = private_file(&path).unwrap();
        former.lock().unwrap();
        assert!(claim(&path).unwrap().is_none());
        drop(former);
        assert!(claim(&path).unwrap().is_some());
    }

    #[test]
    fn a_panic_of_the_thread_is_reported_to_all_who_wait() {
        struct Panics;
        impl Job for Panics {
            fn size(&self) -> usize {
                1
            }
            fn apply_after(&self, _: &Connection, _: &mut usize) -> rusqlite::Result<()> {
                panic!("for the test")
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let connection = open(&directory.path().join("x.db"), Sync::Os).unwrap();
        let (writer, reports) = started(connection, Trouble::Wait);
        for _ in 0..2 {
            writer.submit(Panics);
            let report = reports.recv_timeout(Duration::from_secs(20)).unwrap();
            let Outcome::Failed(error) = report.outcome else { panic!("{report:?}") };
            assert!(error.message().contains("panicked"), "{error}");
        }
    }

    struct Insert(i64);

    impl Job for Insert {
        fn size(&self) -> usize {
            8
        }

        fn apply_after(&self, connection: &Connection, _: &mut usize) -> rusqlite::Result<()> {
            connection.prepare_cached("INSERT INTO t VALUES (?1)")?.execute([self.0]).map(drop)
        }
    }

    /// A database with an empty table `t`, and its folder and path.
    fn table(sync: Sync) -> (tempfile::TempDir, std::path::PathBuf, Connection) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let connection = open(&path, sync).unwrap();
        connection.execute("CREATE TABLE t (x INTEGER PRIMARY KEY)", []).unwrap();
        (directory, path, connection)
    }

    /// A writer and what it reports.
    fn started<J: Job>(connection: Connection, trouble: Trouble) -> (Writer<J>, mpsc::Receiver<Report>) {
        let (done, reports) = mpsc::channel();
        (Writer::start(connection, trouble, reporting(done)).unwrap(), reports)
    }

    fn reporting<J>(done: mpsc::Sender<Report>) -> impl FnMut(&[J], &Outcome) {
        move |jobs, outcome| {
            done.send(Report { jobs: jobs.len() as u64, outcome: outcome.clone() }).unwrap();
        }
    }

    fn count(path: &Path) -> i64 {
        open(path, Sync::Os).unwrap().query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn what_is_reported_is_committed_and_readable_by_the_owner_only() {
        let (_directory, path, connection) = table(Sync::Full);
        let (mut writer, reports) = started(connection, Trouble::Fail);
        for i in 0..100 {
            writer.submit(Insert(i));
        }
        let mut jobs = 0;
        while jobs < 100 {
            let report = reports.recv().unwrap();
            assert!(matches!(report.outcome, Outcome::Written(bytes) if bytes > 0));
            jobs += report.jobs;
            assert!(count(&path) as u64 >= jobs);
        }
        writer.close();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn each_durability_reaches_as_far_as_it_says() {
        let directory = tempfile::tempdir().unwrap();
        for (sync, expected) in [(Sync::Full, [2, 1, 1]), (Sync::Os, [1, 0, 0])] {
            let connection = open(&directory.path().join("x.db"), sync).unwrap();
            let pragma =
                |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
            assert_eq!(
                ["synchronous", "fullfsync", "checkpoint_fullfsync"].map(pragma),
                expected,
                "{sync:?}"
            );
        }
        let error = open(Path::new(":memory:"), Sync::Os).unwrap_err();
        assert!(error.message().contains("journal mode"), "{error}");
        std::fs::remove_file(":memory:").unwrap_or_default();
    }

    /// Set for the process that plays the neighbour of
    /// [`a_neighbour_that_opens_and_closes_the_database_leaves_the_log_alone`].
    const NEIGHBOUR: &str = "PENSTOCK_TEST_NEIGHBOUR";

    /// Opens and closes the database in another process; gives the number of rows that it saw.
    fn look_from_another_process(path: &Path) -> String {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("sqlite::tests::a_neighbour_that_opens_and_closes_the_database_leaves_the_log_alone")
            .env(NEIGHBOUR, path)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        text.lines().find_map(|line| line.strip_prefix("rows: ")).expect("the neighbour looked").to_owned()
    }

    #[test]
    #[allow(clippy::print_stdout, reason = "the neighbour's answer")]
    fn a_neighbour_that_opens_and_closes_the_database_leaves_the_log_alone() {
        if let Some(path) = std::env::var_os(NEIGHBOUR) {
            let connection = Connection::open(path).unwrap();
            let rows: i64 = connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
            println!("\nrows: {rows}");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let writer = open(&path, Sync::Full).unwrap();
        writer.execute("CREATE TABLE t (x INTEGER PRIMARY KEY)", []).unwrap();
        // The broker opens a connection for each reader, too.
        let reader = open(&path, Sync::Full).unwrap();
        for i in 0..3 {
            writer.execute("INSERT INTO t VALUES (?1)", [i]).unwrap();
            assert_eq!(look_from_another_process(&path), (i + 1).to_string());
            assert!(directory.path().join("x.db-wal").exists(), "the neighbour unlinked the log");
        }
        drop(reader);
    }

    #[test]
    fn the_log_is_emptied_while_it_is_written() {
        struct Body;

        impl Job for Body {
            fn size(&self) -> usize {
                1 << 20
            }

            fn apply_after(&self, connection: &Connection, _: &mut usize) -> rusqlite::Result<()> {
                connection.execute("INSERT INTO t VALUES (zeroblob(1 << 20))", []).map(drop)
            }
        }

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let log = directory.path().join("x.db-wal");
        let connection = open(&path, Sync::Os).unwrap();
        connection.execute("CREATE TABLE t (x BLOB)", []).unwrap();
        let (mut writer, reports) = started(connection, Trouble::Fail);
        for _ in 0..60 {
            writer.submit(Body);
            assert!(matches!(reports.recv().unwrap().outcome, Outcome::Written(_)));
        }
        let length = std::fs::metadata(&log).unwrap().len();
        assert!(length < 24 << 20, "60 MB were written, and the log has {length} bytes");
        writer.close();
    }

    #[test]
    fn after_a_failure_nothing_is_written_any_more() {
        let (_directory, path, connection) = table(Sync::Os);
        let (mut writer, reports) = started(connection, Trouble::Fail);
        writer.submit(Insert(1));
        assert!(matches!(reports.recv().unwrap().outcome, Outcome::Written(_)));
        writer.submit(Insert(1));
        assert!(matches!(reports.recv().unwrap().outcome, Outcome::Failed(_)));
        writer.submit(Insert(2));
        assert!(matches!(reports.recv().unwrap().outcome, Outcome::Failed(_)));
        writer.close();
        assert_eq!(count(&path), 1);
    }

    /// A row that the disk has no room for at first.
    struct Late(std::cell::Cell<u32>, i32);

    impl Job for Late {
        fn size(&self) -> usize {
            1
        }

        fn apply_after(&self, connection: &Connection, _: &mut usize) -> rusqlite::Result<()> {
            connection.execute("INSERT INTO t VALUES (NULL)", [])?;
            match self.0.get() {
                0 => Ok(()),
                left => {
                    self.0.set(left - 1);
                    Err(rusqlite::Error::SqliteFailure(ffi::Error::new(self.1), None))
                }
            }
        }
    }

    fn late(times: u32, code: i32) -> Late {
        Late(std::cell::Cell::new(times), code)
    }

    #[test]
    fn a_full_disk_and_a_locked_file_are_waited_for_and_a_broken_disk_is_not() {
        let (_directory, path, connection) = table(Sync::Os);
        connection.busy_timeout(Duration::ZERO).unwrap();
        let neighbour = open(&path, Sync::Os).unwrap();
        let (mut writer, reports) = started(connection, Trouble::Wait);
        writer.submit(late(3, ffi::SQLITE_FULL));
        for _ in 0..3 {
            let Report { jobs, outcome } = reports.recv().unwrap();
            assert!(jobs == 0 && matches!(outcome, Outcome::Waiting(_)), "{outcome:?}");
        }
        assert!(matches!(reports.recv().unwrap(), Report { jobs: 1, outcome: Outcome::Written(_) }));

        neighbour.execute_batch("BEGIN IMMEDIATE").unwrap();
        writer.submit(late(0, 0));
        for _ in 0..2 {
            assert!(matches!(reports.recv().unwrap().outcome, Outcome::Waiting(_)));
        }
        neighbour.execute_batch("COMMIT").unwrap();
        let written = reports.iter().find(|report| report.jobs > 0).unwrap();
        assert!(matches!(written.outcome, Outcome::Written(_)), "{written:?}");
        assert_eq!(count(&path), 2);

        // Closing the writer does not wait for the disk.
        writer.submit(late(u32::MAX, ffi::SQLITE_FULL));
        assert!(matches!(reports.recv().unwrap().outcome, Outcome::Waiting(_)));
        writer.close();
        assert!(matches!(reports.iter().last().unwrap(), Report { jobs: 1, outcome: Outcome::Failed(_) }));

        for code in [ffi::SQLITE_IOERR, ffi::SQLITE_CORRUPT] {
            let (done, reports) = mpsc::channel();
            let connection = open(&path, Sync::Os).unwrap();
            let writer = Writer::start(connection, Trouble::Wait, reporting(done)).unwrap();
            writer.submit(late(1, code));
            assert!(matches!(reports.recv().unwrap().outcome, Outcome::Failed(_)));
            writer.submit(late(0, 0));
            assert!(matches!(reports.recv().unwrap().outcome, Outcome::Failed(_)), "a gap would be silent");
        }
        assert_eq!(count(&path), 2);
    }

    /// A row of this many bytes, on which no other job depends.
    struct Blob(usize);

    impl Job for Blob {
        fn size(&self) -> usize {
            1
        }

        fn apply_after(&self, connection: &Connection, _: &mut usize) -> rusqlite::Result<()> {
            connection.execute("INSERT INTO t VALUES (NULL)", [])?;
            connection.execute("INSERT INTO b VALUES (zeroblob(?1))", [self.0 as i64]).map(drop)
        }

        fn stands_alone(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_job_that_sqlite_refuses_fails_alone_and_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let connection = open(&path, Sync::Os).unwrap();
        connection.execute_batch("CREATE TABLE t (x INTEGER PRIMARY KEY); CREATE TABLE b (x BLOB)").unwrap();
        let batch = [Blob(1), Blob(1), Blob(2_000_000_000), Blob(1), Blob(2_000_000_000)];
        let done = commit(&connection, &batch).unwrap();
        assert_eq!(done.rejected.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [2, 4]);
        assert_eq!(count(&path), 3, "the first row of a refused job is taken back");

        let (mut writer, reports) = started(connection, Trouble::Fail);
        let mut outcomes = Vec::new();
        for job in batch {
            writer.submit(job);
        }
        while outcomes.len() < 5 {
            let Report { jobs, outcome } = reports.recv().unwrap();
            let rejected = match outcome {
                Outcome::Written(_) => false,
                Outcome::Rejected(error) => error.message().contains("too big"),
                Outcome::Failed(error) | Outcome::Waiting(error) => panic!("{error}"),
            };
            outcomes.extend((0..jobs).map(|_| rejected));
        }
        assert_eq!(outcomes, [false, false, true, false, true]);
        writer.close();
        assert_eq!(count(&path), 6);
    }

    #[test]
    fn pauses_between_attempts_double_up_to_a_second_and_begin_again_after_a_success() {
        let (_directory, _path, connection) = table(Sync::Os);
        let mut committer = Committer::new(connection, |_: &[Late], _: &Outcome| {});
        let open = AtomicBool::new(false);
        for _ in 0..2 {
            let job = [late(8, ffi::SQLITE_FULL)];
            let pauses: Vec<_> =
                std::iter::from_fn(|| committer.commit(&job, &open)).map(|pause| pause.as_millis()).collect();
            assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1000, 1000]);
        }
    }

    #[test]
    fn a_writer_that_is_dropped_has_ended_with_a_report_of_each_job() {
        let (_directory, _path, connection) = table(Sync::Os);
        let (writer, reports) = started(connection, Trouble::Wait);
        writer.submit(late(u32::MAX, ffi::SQLITE_FULL));
        assert!(matches!(reports.recv().unwrap().outcome, Outcome::Waiting(_)));
        drop(writer);
        let last = reports.try_iter().last();
        assert!(matches!(last, Some(Report { jobs: 1, outcome: Outcome::Failed(_) })), "{last:?}");
    }

    #[test]
    fn a_writer_that_is_closed_leaves_no_log_behind_beside_a_reader() {
        let (directory, path, connection) = table(Sync::Os);
        let reader = open(&path, Sync::Os).unwrap();
        let (mut writer, _reports) = started(connection, Trouble::Fail);
        writer.submit(Insert(1));
        let log = directory.path().join("x.db-wal");
        writer.close();
        assert_eq!(std::fs::metadata(&log).unwrap().len(), 0);
        assert_eq!(count(&path), 1);
        drop(reader);
    }

    /// Leaves three rows for later.
    struct Leaves;

    impl Job for Leaves {
        fn size(&self) -> usize {
            1
        }

        fn apply_after(&self, connection: &Connection, _: &mut usize) -> rusqlite::Result<()> {
            connection.execute("INSERT INTO t VALUES (1), (2), (3)", []).map(drop)
        }

        fn clean_up(connection: &Connection) -> rusqlite::Result<bool> {
            let removed = connection.execute("DELETE FROM t WHERE x = (SELECT min(x) FROM t)", [])?;
            Ok(removed > 0)
        }
    }

    #[test]
    fn what_was_left_for_later_is_done_while_there_is_time() {
        let (_directory, path, connection) = table(Sync::Os);
        let (mut writer, reports) = started(connection, Trouble::Fail);
        writer.submit(Leaves);
        for jobs in [1, 0, 0, 0] {
            let report = reports.recv_timeout(Duration::from_secs(20)).unwrap();
            assert!(matches!(report.outcome, Outcome::Written(bytes) if bytes > 0));
            assert_eq!(report.jobs, jobs);
        }
        assert_eq!(count(&path), 0);
        writer.close();
        assert!(reports.try_recv().is_err(), "there was nothing more to do");
    }
}
