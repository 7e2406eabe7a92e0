//! SQLite as a log: databases are opened here; `commit` makes one transaction of many changes, and
//! `writer` is the thread that does so. `sums`: checksums of rows; `structure`: SQLite's check of a
//! whole file.
//!
//! Waiting jobs are gathered until the queue is empty or [`GATHER_BYTES`] or [`GATHER_TIME`] is
//! reached, applied in one transaction, committed once, and only then reported as done. Reports
//! have the order of the jobs. After a failed commit the writer rejects all later jobs: a later
//! successful commit would leave a silent gap. A job on which no other depends
//! ([`Job::stands_alone`]) and that SQLite refuses by itself, because it is too big for example,
//! fails alone. A full disk, or another process that locks the file, may pass: with
//! [`Trouble::Wait`] the writer tries again and reports nothing as written meanwhile.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use rusqlite::Connection;

pub use self::commit::{CommitTimes, Committer, Job, Outcome};
pub use self::writer::{GATHER_BYTES, GATHER_TIME, Report, Trouble, Writer};
use forebay_base::error::{Error, ErrorKind, Result};

mod commit;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod structure;
pub mod sums;
mod writer;

/// When a commit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// When it is on disk.
    Full,
    /// When the operating system has it: it survives a kill of the process. A power failure may
    /// take the latest commits, but leaves the database intact.
    Os,
}

/// Opens or creates a database that only its owner may read.
///
/// An existing file is never opened outside SQLite. POSIX locks belong to the process and the file:
/// closing any descriptor of the file drops the locks of every SQLite connection that this process
/// has to it. Another process that opens and closes the database would then take itself for the
/// last user and unlink the write-ahead log, and everything committed afterwards would be lost with
/// the process.
pub fn open(path: &Path, sync: Sync) -> Result<Connection> {
    create_private(path)?;
    let connection = Connection::open(path)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.busy_timeout(Duration::from_secs(5))?;
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        let text = format!(
            "the file system does not allow SQLite's write-ahead log (the journal mode is {mode}): choose a local disk"
        );
        return Err(Error::new(ErrorKind::Persistence, text));
    }
    // NORMAL writes to the disk at checkpoints: without that, a power failure could damage the
    // database itself.
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

/// An error of the operating system, with what to do where that is known.
fn remedied(error: std::io::Error) -> Error {
    use std::io::ErrorKind as Kind;
    let remedy = match error.kind() {
        Kind::PermissionDenied | Kind::ReadOnlyFilesystem => ": choose a folder that this user may write",
        Kind::NotADirectory => ": a part of the path is a file; choose another folder",
        Kind::StorageFull | Kind::QuotaExceeded => ": free some room, or choose another disk",
        _ => "",
    };
    Error::new(ErrorKind::Io, format!("{error}{remedy}"))
}

/// Creates an empty database file with mode 0600, or removes the permissions of others from an
/// existing one. SQLite gives the write-ahead log and the shared memory file the same permissions.
fn create_private(path: &Path) -> Result<()> {
    match create_new(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            #[cfg(unix)]
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
                .map_err(remedied)?;
            Ok(())
        }
        Err(error) => Err(remedied(error)),
    }
}

/// Creates an empty database file with mode 0600. One that exists is an error.
pub fn create_new(path: &Path) -> std::io::Result<()> {
    /// Held while the descriptor of a new file is open, so that no other thread has the file locked
    /// by SQLite when the descriptor is closed.
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

/// Locks `path` for this process: a transaction on an empty database beside it, with `.db` behind
/// the name. `None` if it is locked. SQLite's locks belong to the process, so that a child does not
/// inherit them, as it would those of a descriptor.
pub fn claim(path: &Path) -> Result<Option<Connection>> {
    let mut database = path.as_os_str().to_owned();
    database.push(".db");
    let database = Path::new(&database);
    // An existing file is not opened outside SQLite: closing its descriptor would drop the locks on
    // it.
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
    Ok(Some(lock))
}

/// Creates the directory with mode 0700; one that exists keeps its mode.
pub fn private_directory(path: &Path) -> Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(remedied)
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

#[cfg(test)]
mod tests;
