//! The disk itself: what it keeps, what it loses, and that SQLite's locks work on it.

use forebay_sqlite::{Connection, Sync};
use rusqlite::ffi;

use crate::disk::{Call, Disk, Fault, Image, Loss};
use crate::support::chance::Chance;
use crate::vfs::Mount;

fn on(image: Image) -> (tempfile::TempDir, Mount) {
    let directory = tempfile::tempdir().unwrap();
    let mount = Mount::new(directory.path(), Disk::with(image));
    (directory, mount)
}

fn count(db: &Connection) -> i64 {
    db.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

fn rows(image: Image) -> Option<i64> {
    let (directory, _mount) = on(image);
    let db = forebay_sqlite::open(&directory.path().join("x.db"), Sync::Full).unwrap();
    let sound: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    db.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).ok()
}

#[test]
fn a_crash_keeps_what_was_synced_and_loses_or_tears_the_rest() {
    let mut disk = Disk::default();
    let mut replay = disk.start_trace();
    let (file, _) = disk.open("log", true, true).unwrap();
    disk.write(file, 0, &[1; 2048]).unwrap();
    disk.sync(file).unwrap();
    disk.write(file, 100, &[2; 2048]).unwrap();
    disk.truncate(file, 1024).unwrap();
    let seen = disk.image();
    let chance = &mut Chance::new(1);
    let trace = disk.trace.take().unwrap();
    replay.apply(&trace[0].0);
    replay.apply(&trace[1].0);
    assert_eq!(replay.crash(Loss::Everything, chance), Image::default(), "not even the name is on disk");
    trace[2..].iter().for_each(|(change, _)| replay.apply(change));
    assert_eq!(replay.unsynced(), 2);
    assert_eq!(replay.crash(Loss::Nothing, chance), seen);
    assert_eq!(replay.crash(Loss::Everything, chance).0["log"], [1; 2048]);
    let (mut sizes, mut torn) = (std::collections::BTreeSet::new(), false);
    for _ in 0..200 {
        let log = replay.crash(Loss::Torn, chance).0.remove("log").unwrap();
        sizes.insert(log.len());
        assert_eq!(log[..100], [1; 100], "bytes beside a write stay");
        torn |= log[100] == 2 && log[1000] == 1;
    }
    assert!(torn && sizes.contains(&1024) && sizes.contains(&2148) && sizes.contains(&2048), "{sizes:?}");
}

#[test]
fn a_deletion_is_undone_unless_the_directory_is_synced() {
    for synced in [false, true] {
        let mut disk = Disk::with(Image([("x".to_owned(), vec![7])].into()));
        let mut replay = disk.start_trace();
        disk.delete("x", synced).unwrap();
        disk.trace.take().unwrap().iter().for_each(|(change, _)| replay.apply(change));
        let left = replay.crash(Loss::Everything, &mut Chance::new(1));
        assert_eq!(left.0.contains_key("x"), !synced);
    }
}

#[test]
fn the_disk_fails_when_it_is_told_to_and_as_often() {
    let mut disk = Disk::default();
    let (file, _) = disk.open("x", true, false).unwrap();
    disk.fault = Some(Fault { call: Call::Write, after: 1, times: 2, code: ffi::SQLITE_FULL });
    let results: Vec<_> = (0..4).map(|i| disk.write(file, i * 10, &[1; 10])).collect();
    assert_eq!(results, [Ok(()), Err(ffi::SQLITE_FULL), Err(ffi::SQLITE_FULL), Ok(())]);
    assert_eq!((disk.failed, disk.sync(file)), (2, Ok(())));
}

#[test]
fn what_sqlite_has_committed_survives_every_crash_and_only_with_syncs() {
    for (sync, survives) in [(Sync::Full, true), (Sync::Os, false)] {
        let (directory, mount) = on(Image::default());
        let db = forebay_sqlite::open(&directory.path().join("x.db"), sync).unwrap();
        db.execute_batch("CREATE TABLE t (x); PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        let mut replay = mount.disk().start_trace();
        for i in 1..=20 {
            db.execute("INSERT INTO t VALUES (randomblob(300))", []).unwrap();
            mount.disk().events = i;
        }
        let trace = mount.disk().trace.take().unwrap();
        drop((db, mount));
        let (mut lost, chance) = (0, &mut Chance::new(7));
        for (change, done) in &trace {
            for loss in [Loss::Nothing, Loss::Everything, Loss::Some, Loss::Torn] {
                let found = rows(replay.crash(loss, chance)).unwrap();
                assert!((0..=*done as i64 + 1).contains(&found));
                lost += usize::from(found < *done as i64);
            }
            replay.apply(change);
        }
        assert_eq!(lost == 0, survives, "{sync:?}: {lost} of {}", 4 * trace.len());
    }
}

#[test]
fn connections_exclude_each_other_as_processes_do() {
    let (directory, mount) = on(Image::default());
    let path = directory.path().join("x.db");
    let open = || {
        let db = forebay_sqlite::open(&path, Sync::Full).unwrap();
        db.busy_timeout(std::time::Duration::ZERO).unwrap();
        db
    };
    let (writer, neighbour) = (open(), open());
    writer.execute_batch("CREATE TABLE t (x); BEGIN IMMEDIATE; INSERT INTO t VALUES (1)").unwrap();
    assert!(neighbour.execute("INSERT INTO t VALUES (2)", []).is_err(), "one writer at a time");
    assert_eq!(count(&neighbour), 0, "a reader does not wait for the writer");
    writer.execute_batch("COMMIT").unwrap();
    assert_eq!(count(&neighbour), 1);
    drop(neighbour);
    assert!(mount.disk().exists("x.db-wal"), "another connection uses the log");
    drop(writer);
    assert!(!mount.disk().exists("x.db-wal"), "the last connection takes it away");
    assert_eq!(count(&open()), 1);
    // A journal in the old mode, with locks on the database itself.
    let old = open();
    old.execute_batch("PRAGMA journal_mode = DELETE; BEGIN; INSERT INTO t VALUES (3)").unwrap();
    let other = Connection::open(&path).unwrap();
    other.busy_timeout(std::time::Duration::ZERO).unwrap();
    assert!(other.execute("INSERT INTO t VALUES (4)", []).is_err());
    old.execute_batch("COMMIT").unwrap();
    assert_eq!(count(&other), 2);
}
