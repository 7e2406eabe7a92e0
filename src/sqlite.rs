//! SQLite as a log: opening a database, and one writer thread with group commit.
//!
//! Waiting jobs are gathered until the queue is empty or [`GATHER_BYTES`] or [`GATHER_TIME`] is reached, applied
//! in one transaction, committed once, and only then reported as done. Reports have the order of the jobs. After
//! a failed commit the writer rejects all later jobs: a later successful commit would leave a silent gap.

use std::path::Path;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use rusqlite::Connection;

use crate::error::{Error, ErrorKind, Result};

/// Size limit of a transaction in bytes, give or take one job.
pub const GATHER_BYTES: usize = 1 << 20;
/// Time limit for filling a transaction.
pub const GATHER_TIME: Duration = Duration::from_millis(2);

/// When a commit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// When it is on disk.
    Full,
    /// When the operating system has it: it survives a kill of the process, but not a power failure.
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
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", if sync == Sync::Full { "FULL" } else { "OFF" })?;
    connection.pragma_update(None, "wal_autocheckpoint", 4000)?;
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(connection)
}

/// Creates an empty database file with mode 0600, or removes the permissions of others from an existing one. SQLite
/// gives the write-ahead log and the shared memory file the same permissions.
fn create_private(path: &Path) -> Result<()> {
    /// Held while the descriptor of a new file is open, so that no other thread has the file locked by SQLite
    /// when the descriptor is closed.
    static CREATING: Mutex<()> = Mutex::new(());
    #[allow(clippy::disallowed_methods, reason = "held beside any rank: no other lock is taken inside")]
    let _creating = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            #[cfg(unix)]
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
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
    let number = |pragma: &str| -> rusqlite::Result<u64> {
        connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).map(|n| n.max(0) as u64)
    };
    Ok((number("page_count")? - number("freelist_count")?) * number("page_size")?)
}

/// A change to be written.
pub trait Job: Send + 'static {
    /// Approximate number of bytes that the job writes.
    fn size(&self) -> usize;
    /// Applies the change, inside the caller's transaction.
    fn apply(&self, connection: &Connection) -> rusqlite::Result<()>;
}

/// The outcome of the oldest jobs without a report.
#[derive(Clone, Debug)]
pub struct Report {
    /// Number of jobs.
    pub jobs: u64,
    /// Bytes in use after a successful commit, or the failure.
    pub outcome: Result<u64>,
}

/// The writer thread, which makes all changes of a database.
#[derive(Debug)]
pub struct Writer<J> {
    jobs: Option<mpsc::Sender<J>>,
    thread: Option<JoinHandle<()>>,
}

impl<J: Job> Writer<J> {
    /// Starts the thread. It calls `report` with each batch of jobs and the outcome of its commit: the bytes in
    /// use, or why nothing was written.
    pub fn start(
        connection: Connection,
        report: impl FnMut(&[J], &Result<u64>) + Send + 'static,
    ) -> Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("penstock-store".into())
            .spawn(move || run(connection, &queue, report))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Queues a job. The caller limits the length of the queue by means of the reports.
    pub fn submit(&self, job: J) {
        if let Some(jobs) = &self.jobs {
            // The thread ends only after the sender is gone.
            let _ = jobs.send(job);
        }
    }

    /// Writes the queued jobs and ends the thread.
    pub fn close(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<J> Drop for Writer<J> {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run<J: Job>(
    connection: Connection,
    queue: &mpsc::Receiver<J>,
    mut report: impl FnMut(&[J], &Result<u64>),
) {
    let mut batch = Vec::new();
    let mut failed: Option<Error> = None;
    while let Ok(first) = queue.recv() {
        let started = Instant::now();
        let mut bytes = first.size();
        batch.push(first);
        while bytes < GATHER_BYTES && started.elapsed() < GATHER_TIME {
            let Ok(job) = queue.try_recv() else { break };
            bytes += job.size();
            batch.push(job);
        }
        let outcome = match &failed {
            Some(error) => Err(error.clone()),
            None => commit(&connection, &batch),
        };
        if let Err(error) = &outcome {
            failed = Some(error.clone());
        }
        report(&batch, &outcome);
        batch.clear();
    }
    if failed.is_none() {
        let _ = connection.pragma_update(None, "wal_checkpoint", "TRUNCATE");
    }
}

fn commit<J: Job>(connection: &Connection, batch: &[J]) -> Result<u64> {
    let transaction = connection.unchecked_transaction()?;
    for job in batch {
        job.apply(&transaction)?;
    }
    transaction.commit()?;
    used_bytes(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Insert(i64);

    impl Job for Insert {
        fn size(&self) -> usize {
            8
        }

        fn apply(&self, connection: &Connection) -> rusqlite::Result<()> {
            connection.prepare_cached("INSERT INTO t VALUES (?1)")?.execute([self.0]).map(drop)
        }
    }

    fn reporting(done: mpsc::Sender<Report>) -> impl FnMut(&[Insert], &Result<u64>) {
        move |jobs, outcome| {
            done.send(Report { jobs: jobs.len() as u64, outcome: outcome.clone() }).unwrap();
        }
    }

    fn count(path: &Path) -> i64 {
        open(path, Sync::Os).unwrap().query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn what_is_reported_is_committed_and_readable_by_the_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let connection = open(&path, Sync::Full).unwrap();
        connection.execute("CREATE TABLE t (x INTEGER PRIMARY KEY)", []).unwrap();
        let (done, reports) = mpsc::channel();
        let mut writer = Writer::start(connection, reporting(done)).unwrap();
        for i in 0..100 {
            writer.submit(Insert(i));
        }
        let mut jobs = 0;
        while jobs < 100 {
            let report = reports.recv().unwrap();
            assert!(report.outcome.unwrap() > 0);
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
    fn after_a_failure_nothing_is_written_any_more() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let connection = open(&path, Sync::Os).unwrap();
        connection.execute("CREATE TABLE t (x INTEGER PRIMARY KEY)", []).unwrap();
        let (done, reports) = mpsc::channel();
        let mut writer = Writer::start(connection, reporting(done)).unwrap();
        writer.submit(Insert(1));
        assert!(reports.recv().unwrap().outcome.is_ok());
        writer.submit(Insert(1));
        assert!(reports.recv().unwrap().outcome.is_err());
        writer.submit(Insert(2));
        assert!(reports.recv().unwrap().outcome.is_err());
        writer.close();
        assert_eq!(count(&path), 1);
    }
}
