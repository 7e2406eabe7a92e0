use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

use rusqlite::ffi;

use super::commit::{commit, is_space, lack_of_space};
use super::*;

#[test]
fn a_lack_of_space_is_told_from_a_broken_disk() {
    let directory = tempfile::tempdir().unwrap();
    let connection = open(&directory.path().join("x.db"), Sync::Os).unwrap();
    let failure = |code| rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
    let lacks_space = |code| lack_of_space(&connection, &failure(code)).is_some();
    assert!(lacks_space(ffi::SQLITE_IOERR_SHMSIZE));
    assert!(!lacks_space(ffi::SQLITE_IOERR_WRITE), "a file can be written");
    assert!(!lacks_space(ffi::SQLITE_IOERR_FSYNC));
    assert!(!directory.path().join("probe").exists());
    #[cfg(target_os = "linux")]
    {
        // Writing to it fails as on a full disk.
        std::os::unix::fs::symlink("/dev/full", directory.path().join("probe")).unwrap();
        assert!(lacks_space(ffi::SQLITE_IOERR_WRITE));
    }
    #[cfg(target_os = "linux")]
    for (errno, space) in [(122, true), (28, true), (27, true), (5, false)] {
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
fn a_claim_is_refused_while_it_is_held() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lock");
    let first = claim(&path).unwrap();
    assert!(first.is_some() && claim(&path).unwrap().is_none());
    drop(first);
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
        let report = reports.recv_timeout(Duration::from_secs(60)).unwrap();
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
        let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(["synchronous", "fullfsync", "checkpoint_fullfsync"].map(pragma), expected, "{sync:?}");
    }
    let error = open(Path::new(":memory:"), Sync::Os).unwrap_err();
    assert!(error.message().contains("journal mode"), "{error}");
    std::fs::remove_file(":memory:").unwrap_or_default();
}

/// Set for the process that plays the neighbour of
/// [`a_neighbour_that_opens_and_closes_the_database_leaves_the_log_alone`].
const NEIGHBOUR: &str = "FOREBAY_TEST_NEIGHBOUR";

/// Opens and closes the database in another process; gives the number of rows that it saw.
fn look_from_another_process(path: &Path) -> String {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("tests::a_neighbour_that_opens_and_closes_the_database_leaves_the_log_alone")
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
            Outcome::Written(_) | Outcome::CleaningUp(_) | Outcome::CleanedUp => false,
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
        let report = reports.recv_timeout(Duration::from_secs(60)).unwrap();
        let (Outcome::Written(bytes) | Outcome::CleaningUp(bytes)) = report.outcome else {
            panic!("{report:?}")
        };
        assert!(bytes > 0);
        assert_eq!((report.jobs, matches!(report.outcome, Outcome::Written(_))), (jobs, jobs > 0));
    }
    let last = reports.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(matches!(last, Report { jobs: 0, outcome: Outcome::CleanedUp }), "{last:?}");
    assert_eq!(count(&path), 0);
    writer.close();
    assert!(reports.try_recv().is_err(), "there was nothing more to do");
}
