//! Backups of a store, the way back from one, and stores without free pages.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::check::check;
use super::database::{DATABASE, Directory, in_folder, prepare, require_store};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_sqlite::Sync;

/// The folder in that of a store where a backup is checked before it becomes the store.
const RESTORING: &str = "restoring";

fn invalid(text: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, text)
}

/// Adds to an error which file it is about.
fn named(path: &Path) -> impl Fn(Error) -> Error {
    move |error: Error| Error::new(error.kind(), format!("{}: {}", path.display(), error.message()))
}

/// The write-ahead log of a database.
fn log_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// Copies the store in the directory `path`, of a broker that runs or not, into a new file `to`,
/// without free pages.
pub fn backup(path: &Path, to: &Path) -> Result<()> {
    let database = require_store(path)?;
    let text = to.to_str().ok_or_else(|| invalid(format!("{} is not UTF-8", to.display())))?;
    // Only the owner may read the copy, too. A file that another backup has just created is not
    // this one's to remove.
    forebay_sqlite::create_new(to).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => invalid(format!("{} exists: name a new file", to.display())),
        _ => named(to)(error.into()),
    })?;
    let copied = copy(&database, text).map_err(named(to));
    if copied.is_err() {
        let _ = fs::remove_file(to);
    }
    copied
}

/// Copies a database into an empty file.
fn copy(database: &Path, to: &str) -> Result<()> {
    forebay_sqlite::open(database, Sync::Os)?.execute("VACUUM INTO ?1", [to])?;
    Ok(File::open(to)?.sync_all()?)
}

/// Makes a store of a backup in the directory `path`, which has none. The backup is checked first,
/// and not changed. The result is the number of entries.
///
/// # Errors
///
/// [`ErrorKind::InvalidArgument`]: the directory has a store, or `from` is no backup.
/// [`ErrorKind::Io`]: a broker uses it. [`ErrorKind::Persistence`]: the backup is damaged. Nothing
/// is left in the directory then.
pub fn restore(from: &Path, path: &Path) -> Result<u64> {
    if !from.is_file() {
        return Err(invalid(format!("{} is not a file", from.display())));
    }
    if fs::metadata(log_of(from)).is_ok_and(|log| log.len() > 0) {
        let text = format!(
            "{} is part of a store, whose newest messages are in {}: a backup is made with `forebay backup`",
            from.display(),
            log_of(from).display()
        );
        return Err(invalid(text));
    }
    let _directory = Directory::open(path)?;
    let database = path.join(DATABASE);
    if database.exists() || log_of(&database).exists() {
        return Err(invalid(format!("{} has a store: name an empty folder", path.display())));
    }
    let folder = path.join(RESTORING);
    if folder.exists() {
        // Of a process that did not get to the end.
        fs::remove_dir_all(&folder)?;
    }
    let restored = checked_copy(from, &folder).and_then(|entries| {
        fs::rename(folder.join(DATABASE), &database)?;
        sync_folder(path)?;
        Ok(entries)
    });
    let removed = fs::remove_dir_all(&folder);
    let entries = restored.map_err(|error| match error.kind() {
        ErrorKind::Io => named(from)(Error::new(
            ErrorKind::Io,
            format!("restoring it to {}: {}", path.display(), error.message()),
        )),
        _ => error,
    })?;
    removed?;
    Ok(entries)
}

/// Copies a backup into a new folder, and checks it there. The result is the number of entries.
fn checked_copy(from: &Path, folder: &Path) -> Result<u64> {
    forebay_sqlite::private_directory(folder)?;
    let database = folder.join(DATABASE);
    forebay_sqlite::create_new(&database)?;
    std::io::copy(&mut File::open(from)?, &mut File::options().write(true).open(&database)?)?;
    let checked = check(folder)?;
    if let Some(place) = checked.damage.first() {
        let text = format!("{} is damaged in {} places: {place}", from.display(), checked.damage.len());
        return Err(Error::new(ErrorKind::Persistence, text));
    }
    // Closing the last connection has moved all of the log into the database, or else the two
    // belong together.
    if fs::metadata(log_of(&database)).is_ok_and(|log| log.len() > 0) {
        return Err(Error::new(ErrorKind::Persistence, "the database could not be closed"));
    }
    File::open(&database)?.sync_all()?;
    Ok(checked.entries)
}

#[cfg(unix)]
fn sync_folder(path: &Path) -> Result<()> {
    Ok(File::open(path)?.sync_all()?)
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> Result<()> {
    Ok(())
}

/// Removes the free pages of the store in the directory `path`, which no broker uses. The result is
/// the size of its file before and after.
///
/// SQLite copies what is used into a temporary file and from there back: whenever it is
/// interrupted, the store has all of its content.
///
/// # Errors
///
/// [`ErrorKind::InvalidArgument`]: the directory has no store. [`ErrorKind::Io`]: a broker uses it.
/// [`ErrorKind::Persistence`]: there is not room for a copy, or the store is damaged; it stays as
/// it is.
pub fn compact(path: &Path) -> Result<(u64, u64)> {
    let database = require_store(path)?;
    let directory = Directory::open(path)?;
    let before = fs::metadata(&database)?.len();
    let db = directory.connect(Sync::Full)?;
    prepare(&db).map_err(in_folder(path))?;
    // The copy may be larger than the memory.
    db.pragma_update(None, "temp_store", "FILE")?;
    db.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)").map_err(|error| {
        let hint = match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => {
                ": a copy of what is used must have room in the folder for temporary files (SQLITE_TMPDIR names another one) and \
                 beside the store"
            }
            _ => "",
        };
        Error::new(ErrorKind::Persistence, format!("the store was not compacted: {error}{hint}"))
    })?;
    drop(db);
    Ok((before, fs::metadata(&database)?.len()))
}

#[cfg(test)]
mod tests {
    use super::super::op::Op;
    use super::*;
    use crate::log::Entry;
    use crate::log::tests::entry;
    use forebay_sqlite::{Connection, Job};

    #[test]
    fn a_backup_of_a_store_in_use_has_everything_and_no_free_pages() {
        let directory = tempfile::tempdir().unwrap();
        let _in_use = store(directory.path());
        let copies = tempfile::tempdir().unwrap();
        let copy = copies.path().join("broker.db");
        backup(directory.path(), &copy).unwrap();
        assert!(fs::metadata(&copy).unwrap().len() < 200_000, "the file shrinks");
        assert_eq!(backup(directory.path(), &copy).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert!(backup(copies.path().join("none").as_path(), &copies.path().join("x")).is_err());
        let db = Directory::open(copies.path()).unwrap().connect(Sync::Os).unwrap();
        let left: i64 = db.query_row("SELECT count(*) FROM entry", [], |row| row.get(0)).unwrap();
        assert_eq!(left, 10);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_backup_that_fails_leaves_no_file_and_never_takes_that_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let (database, copy) = (folder.path().join("broker.db"), folder.path().join("copy.db"));
        fs::write(&database, [1; 5000]).unwrap();
        assert_eq!(backup(folder.path(), &copy).unwrap_err().kind(), ErrorKind::Persistence);
        assert!(!copy.exists());
        fs::remove_file(&database).unwrap();
        prepare(&forebay_sqlite::open(&database, Sync::Os).unwrap()).unwrap();
        for round in 0..20 {
            let copy = folder.path().join(format!("{round}.db"));
            let start = std::sync::Barrier::new(2);
            let run = || {
                start.wait();
                backup(folder.path(), &copy)
            };
            let (one, other) = std::thread::scope(|scope| {
                let other = scope.spawn(run);
                (run(), other.join().unwrap())
            });
            assert_ne!(one.is_ok(), other.is_ok(), "{one:?} {other:?}");
            let error = one.and(other).unwrap_err();
            assert!(error.message().contains("exists"), "{error}");
            assert!(fs::metadata(&copy).unwrap().len() > 0);
        }
    }

    /// A store with entries 90 to 99 of 10,000 bytes, and free pages where ninety others were; in
    /// use until it is dropped.
    fn store(path: &Path) -> (Directory, Connection) {
        let opened = Directory::open(path).unwrap();
        let db = opened.connect(Sync::Os).unwrap();
        prepare(&db).unwrap();
        let name = "persistent://public/default/a".into();
        Op::CreateTopic { id: 1, domain: "pulsar", name, partitions: 0 }.apply(&db).unwrap();
        for sequence in 0..100 {
            let body = vec![0; 10_000].into();
            let entry = Entry { sequence, last_index: sequence, body, ..entry(1, 60) };
            Op::Append { topic: 1, entry, producer: None }.apply(&db).unwrap();
        }
        Op::Trim { topic: 1, first: 90, next: 100, next_index: 100 }.apply(&db).unwrap();
        (opened, db)
    }

    fn names(path: &Path) -> Vec<String> {
        let name = |file: std::io::Result<fs::DirEntry>| file.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<_> = fs::read_dir(path).unwrap().map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn a_compacted_store_has_its_entries_and_no_free_pages() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(compact(folder.path()).unwrap_err().kind(), ErrorKind::InvalidArgument, "no store");
        let in_use = store(folder.path());
        assert_eq!(compact(folder.path()).unwrap_err().kind(), ErrorKind::Io, "in use");
        drop(in_use);
        let (before, after) = compact(folder.path()).unwrap();
        assert!(before > 900_000 && after < 200_000, "{before} {after}");
        assert_eq!(fs::metadata(folder.path().join(DATABASE)).unwrap().len(), after);
        let checked = check(folder.path()).unwrap();
        assert_eq!((checked.entries, checked.damage), (10, Vec::new()));
    }

    #[test]
    fn a_store_is_made_of_a_backup() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        drop(store(&first));
        let file = folder.path().join("backup.db");
        backup(&first, &file).unwrap();
        let bytes = fs::read(&file).unwrap();
        // Of a process that was killed while it restored.
        fs::create_dir_all(second.join(RESTORING)).unwrap();
        fs::write(second.join(RESTORING).join(DATABASE), "half").unwrap();
        assert_eq!(restore(&file, &second).unwrap(), 10);
        assert_eq!(names(&second), [DATABASE, "lock.db"]);
        assert_eq!(check(&second).unwrap().entries, 10);
        assert_eq!(fs::read(&file).unwrap(), bytes, "the backup stays as it is");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(second.join(DATABASE)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        for path in [&first, &second] {
            let error = restore(&file, path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains("has a store"), "{error}");
            assert_eq!(check(path).unwrap().entries, 10);
        }
    }

    #[test]
    fn what_is_no_backup_or_a_damaged_one_leaves_no_store() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = (folder.path().join("data"), folder.path().join("backup.db"));
        assert_eq!(restore(&file, &path).unwrap_err().kind(), ErrorKind::InvalidArgument);
        fs::write(&file, vec![7; 10_000]).unwrap();
        restore(&file, &path).unwrap_err();
        fs::remove_file(&file).unwrap();
        drop(store(&folder.path().join("first")));
        backup(&folder.path().join("first"), &file).unwrap();
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&file, bytes).unwrap();
        let error = restore(&file, &path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Persistence);
        assert!(error.message().contains("is damaged in 1 places"), "{error}");
        assert_eq!(names(&path), ["lock.db"]);
    }

    #[test]
    fn the_file_of_a_store_in_use_is_no_backup() {
        let folder = tempfile::tempdir().unwrap();
        let _in_use = store(folder.path());
        let error = restore(&folder.path().join(DATABASE), &folder.path().join("other")).unwrap_err();
        assert!(error.message().contains("broker.db-wal"), "{error}");
    }
}
