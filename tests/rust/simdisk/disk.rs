//! The simulated disk: files in memory, with a record of what has reached the platter and what has
//! not.
//!
//! A connection sees each write at once. A crash keeps what was synced and any subset of the rest:
//! a write may be there, be missing, or be torn into sectors of which some are there, some are not
//! and some hold garbage. This is the model of SQLite's own crash tests (`test6.c`), with directory
//! entries added: a file that was created or deleted may be there or not until its directory was
//! synced, which SQLite does when it first syncs a new log or journal.
//!
//! While a [`Trace`] is kept, every change is recorded. A [`Replay`] goes through the record and
//! gives the images of crashes, so that a script runs once for thousands of crash points.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use rusqlite::ffi;

use crate::support::chance::Chance;

/// Unit in which a write is torn.
const SECTOR: usize = 512;

/// Number of a file; a file that is created again under the same name gets another one.
pub type Inode = usize;

/// A failing call's SQLite error.
pub type Refusal<T> = Result<T, i32>;

/// What changes a disk.
#[derive(Clone, Debug)]
pub enum Change {
    Create {
        name: String,
        file: Inode,
        journal: bool,
    },
    Delete {
        name: String,
        synced: bool,
    },
    Write {
        file: Inode,
        offset: usize,
        data: Arc<[u8]>,
    },
    Truncate {
        file: Inode,
        size: usize,
    },
    Sync {
        file: Inode,
    },
    /// After a sync that failed, the system takes what it could not write for written: it never
    /// reaches the platter.
    FailedSync {
        file: Inode,
    },
}

/// The changes of a disk in order, each with the number of events that had happened before it.
pub type Trace = Vec<(Change, usize)>;

/// Files and their contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image(pub BTreeMap<String, Vec<u8>>);

/// Calls that a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Read,
    Write,
    Sync,
    Truncate,
}

/// A fault of the disk: calls from the `after`-th on fail, as many as `times`.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub call: Call,
    pub after: u64,
    pub times: u64,
    /// SQLite's error.
    pub code: i32,
}

/// Shared memory of a database's connections.
#[derive(Debug, Default)]
struct Shared {
    regions: Vec<Box<[AtomicU32]>>,
    users: BTreeSet<u64>,
    /// Holders of each lock; whether the only one holds it exclusively.
    locks: [(BTreeSet<u64>, bool); ffi::SQLITE_SHM_NLOCK as usize],
}

/// A disk in use.
#[derive(Debug, Default)]
pub struct Disk {
    names: BTreeMap<String, Inode>,
    files: Vec<Vec<u8>>,
    /// Lock levels of the handles of a file.
    locks: BTreeMap<Inode, BTreeMap<u64, i32>>,
    shared: BTreeMap<Inode, Shared>,
    pub handles: u64,
    /// The record, if one is kept.
    pub trace: Option<Trace>,
    /// Number of events so far, for the record.
    pub events: usize,
    pub fault: Option<Fault>,
    /// Calls that failed because of the fault.
    pub failed: u64,
}

impl Disk {
    /// A disk after a crash.
    pub fn with(image: Image) -> Self {
        let mut disk = Self::default();
        for (name, content) in image.0 {
            disk.names.insert(name, disk.files.len());
            disk.files.push(content);
        }
        disk
    }

    /// The files as a connection sees them.
    pub fn image(&self) -> Image {
        Image(self.names.iter().map(|(name, file)| (name.clone(), self.files[*file].clone())).collect())
    }

    /// Begins the record. The files as they are count as synced.
    pub fn start_trace(&mut self) -> Replay {
        self.trace = Some(Vec::new());
        let files = (0..).zip(self.files.iter().cloned()).collect();
        Replay { names: self.names.clone(), files, pending: Vec::new() }
    }

    fn record(&mut self, change: impl FnOnce() -> Change) {
        if let Some(trace) = &mut self.trace {
            trace.push((change(), self.events));
        }
    }

    /// Fails the call if the fault says so.
    fn meet(&mut self, call: Call) -> Refusal<()> {
        let Some(fault) = self.fault.as_mut().filter(|fault| fault.call == call && fault.times > 0) else {
            return Ok(());
        };
        if fault.after > 0 {
            fault.after -= 1;
            return Ok(());
        }
        fault.times -= 1;
        let code = fault.code;
        self.failed += 1;
        Err(code)
    }

    pub fn open(&mut self, name: &str, create: bool, journal: bool) -> Refusal<(Inode, u64)> {
        let file = match self.names.get(name) {
            Some(file) => *file,
            None if create => {
                let file = self.files.len();
                self.files.push(Vec::new());
                self.names.insert(name.to_owned(), file);
                self.record(|| Change::Create { name: name.to_owned(), file, journal });
                file
            }
            None => return Err(ffi::SQLITE_CANTOPEN),
        };
        self.handles += 1;
        Ok((file, self.handles))
    }

    pub fn delete(&mut self, name: &str, synced: bool) -> Refusal<()> {
        if self.names.remove(name).is_none() {
            return Err(ffi::SQLITE_IOERR_DELETE_NOENT);
        }
        self.record(|| Change::Delete { name: name.to_owned(), synced });
        Ok(())
    }

    /// Whether there is a file of this name with something in it.
    pub fn exists(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|file| !self.files[*file].is_empty())
    }

    pub fn size(&self, file: Inode) -> usize {
        self.files[file].len()
    }

    pub fn read(&mut self, file: Inode, offset: usize, into: &mut [u8]) -> Refusal<()> {
        self.meet(Call::Read)?;
        let content = &self.files[file];
        let found = content.len().saturating_sub(offset).min(into.len());
        into[..found].copy_from_slice(&content[offset.min(content.len())..][..found]);
        into[found..].fill(0);
        if found < into.len() { Err(ffi::SQLITE_IOERR_SHORT_READ) } else { Ok(()) }
    }

    pub fn write(&mut self, file: Inode, offset: usize, data: &[u8]) -> Refusal<()> {
        let met = self.meet(Call::Write);
        // A write that fails may have begun.
        let data = if met.is_err() { &data[..data.len() / 2] } else { data };
        put(&mut self.files[file], offset, data);
        self.record(|| Change::Write { file, offset, data: data.into() });
        met
    }

    pub fn truncate(&mut self, file: Inode, size: usize) -> Refusal<()> {
        self.meet(Call::Truncate)?;
        self.files[file].resize(size, 0);
        self.record(|| Change::Truncate { file, size });
        Ok(())
    }

    pub fn sync(&mut self, file: Inode) -> Refusal<()> {
        let met = self.meet(Call::Sync);
        self.record(|| if met.is_ok() { Change::Sync { file } } else { Change::FailedSync { file } });
        met
    }

    /// Gives the handle a lock on the database, as the operating system would give it to a process.
    pub fn lock(&mut self, file: Inode, handle: u64, level: i32) -> Refusal<()> {
        let locks = self.locks.entry(file).or_default();
        let others = locks.iter().filter(|(other, _)| **other != handle).map(|(_, level)| *level);
        let most = others.max().unwrap_or(ffi::SQLITE_LOCK_NONE);
        let own = locks.get(&handle).copied().unwrap_or(ffi::SQLITE_LOCK_NONE);
        if own >= level {
            return Ok(());
        }
        let (free, kept) = match level {
            ffi::SQLITE_LOCK_SHARED => (most < ffi::SQLITE_LOCK_PENDING, own),
            ffi::SQLITE_LOCK_RESERVED => (most < ffi::SQLITE_LOCK_RESERVED, own),
            // Waiting for readers to leave, it lets no new ones in.
            _ if most < ffi::SQLITE_LOCK_RESERVED => {
                (most < ffi::SQLITE_LOCK_SHARED, ffi::SQLITE_LOCK_PENDING)
            }
            _ => (false, own),
        };
        locks.insert(handle, if free { level } else { kept });
        if free { Ok(()) } else { Err(ffi::SQLITE_BUSY) }
    }

    pub fn unlock(&mut self, file: Inode, handle: u64, level: i32) {
        if let Some(own) = self.locks.entry(file).or_default().get_mut(&handle) {
            *own = (*own).min(level);
        }
    }

    /// Whether a connection is about to write.
    pub fn reserved(&self, file: Inode) -> bool {
        let locks = self.locks.get(&file).into_iter().flat_map(BTreeMap::values);
        locks.max().is_some_and(|level| *level >= ffi::SQLITE_LOCK_RESERVED)
    }

    pub fn close(&mut self, file: Inode, handle: u64) {
        self.unmap(file, handle);
        if let Some(locks) = self.locks.get_mut(&file) {
            locks.remove(&handle);
        }
    }

    /// A region of the shared memory. It stays in place until the last connection has left.
    pub fn map(
        &mut self,
        file: Inode,
        handle: u64,
        region: usize,
        size: usize,
        extend: bool,
    ) -> *const AtomicU32 {
        let shared = self.shared.entry(file).or_default();
        shared.users.insert(handle);
        while extend && shared.regions.len() <= region {
            shared.regions.push((0..size.div_ceil(4)).map(|_| AtomicU32::new(0)).collect());
        }
        shared.regions.get(region).map_or(std::ptr::null(), |region| region.as_ptr())
    }

    pub fn unmap(&mut self, file: Inode, handle: u64) {
        let Some(shared) = self.shared.get_mut(&file) else { return };
        for (holders, _) in &mut shared.locks {
            holders.remove(&handle);
        }
        // The first connection makes it afresh, as does the one that follows a crash.
        if shared.users.remove(&handle) && shared.users.is_empty() {
            self.shared.remove(&file);
        }
    }

    pub fn lock_shared(
        &mut self,
        file: Inode,
        handle: u64,
        slots: std::ops::Range<usize>,
        flags: i32,
    ) -> Refusal<()> {
        let Some(shared) = self.shared.get_mut(&file) else { return Err(ffi::SQLITE_IOERR_SHMLOCK) };
        let Some(locks) = shared.locks.get_mut(slots) else { return Err(ffi::SQLITE_IOERR_SHMLOCK) };
        if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
            for (holders, _) in locks {
                holders.remove(&handle);
            }
            return Ok(());
        }
        let exclusive = flags & ffi::SQLITE_SHM_EXCLUSIVE != 0;
        let busy = |(holders, held): &(BTreeSet<u64>, bool)| {
            holders.iter().any(|holder| *holder != handle) && (exclusive || *held)
        };
        if locks.iter().any(busy) {
            return Err(ffi::SQLITE_BUSY);
        }
        for (holders, held) in locks {
            holders.insert(handle);
            *held = exclusive;
        }
        Ok(())
    }
}

fn put(content: &mut Vec<u8>, offset: usize, data: &[u8]) {
    if content.len() < offset + data.len() {
        content.resize(offset + data.len(), 0);
    }
    content[offset..offset + data.len()].copy_from_slice(data);
}

/// What a crash takes of the changes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// Nothing: the process was killed and the machine went on.
    Nothing,
    /// All of them.
    Everything,
    /// Any subset.
    Some,
    /// Any subset, writes torn into sectors.
    Torn,
}

impl Loss {
    /// Draws one, the harder ones more often.
    pub fn draw(chance: &mut Chance) -> Self {
        match chance.below(10) {
            0 => Self::Nothing,
            1..3 => Self::Everything,
            3..6 => Self::Some,
            _ => Self::Torn,
        }
    }
}

/// The platter while a [`Trace`] is replayed.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    names: BTreeMap<String, Inode>,
    files: BTreeMap<Inode, Vec<u8>>,
    /// What is not synced, in order.
    pending: Vec<Change>,
}

impl Replay {
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Sync { file } => {
                // The first sync of a new log or journal is one of the directory, too.
                let new = |change: &Change| matches!(change, Change::Create { file: created, journal: true, .. } if created == file);
                let directory = self.pending.iter().any(new);
                self.settle(|change| match change {
                    Change::Write { file: of, .. } | Change::Truncate { file: of, .. } => of == file,
                    _ => directory,
                });
            }
            Change::FailedSync { file } => self.pending.retain(|change| match change {
                Change::Write { file: of, .. } | Change::Truncate { file: of, .. } => of != file,
                _ => true,
            }),
            Change::Delete { synced: true, .. } => {
                self.pending.push(change.clone());
                self.settle(|change| matches!(change, Change::Create { .. } | Change::Delete { .. }));
            }
            _ => self.pending.push(change.clone()),
        }
    }

    /// Writes pending changes to the platter.
    fn settle(&mut self, is_synced: impl Fn(&Change) -> bool) {
        let (synced, pending) = std::mem::take(&mut self.pending).into_iter().partition(is_synced);
        self.pending = pending;
        for change in &synced {
            keep(&mut self.names, &mut self.files, change);
        }
    }

    /// Number of changes that are not synced.
    pub fn unsynced(&self) -> usize {
        self.pending.len()
    }

    /// The files after a crash.
    pub fn crash(&self, loss: Loss, chance: &mut Chance) -> Image {
        let (mut names, mut files) = (self.names.clone(), self.files.clone());
        // A subset of few is as likely as one of many.
        let kept = chance.within(10, 100);
        for change in &self.pending {
            match (loss, change) {
                (Loss::Everything, _) => {}
                (Loss::Torn, Change::Write { file, offset, data }) if chance.percent(60) => {
                    tear(files.entry(*file).or_default(), *offset, data, kept, chance);
                }
                (Loss::Some | Loss::Torn, _) if !chance.percent(kept) => {}
                _ => keep(&mut names, &mut files, change),
            }
        }
        let mut content = |file: Inode| files.remove(&file).unwrap_or_default();
        Image(names.into_iter().map(|(name, file)| (name, content(file))).collect())
    }
}

fn keep(names: &mut BTreeMap<String, Inode>, files: &mut BTreeMap<Inode, Vec<u8>>, change: &Change) {
    match change {
        Change::Create { name, file, .. } => drop(names.insert(name.clone(), *file)),
        Change::Delete { name, .. } => drop(names.remove(name)),
        Change::Write { file, offset, data } => put(files.entry(*file).or_default(), *offset, data),
        Change::Truncate { file, size } => files.entry(*file).or_default().resize(*size, 0),
        Change::Sync { .. } | Change::FailedSync { .. } => {}
    }
}

/// Keeps some sectors of a write, and fills some with garbage. Bytes beside the write stay as they
/// are.
fn tear(content: &mut Vec<u8>, offset: usize, data: &[u8], kept: usize, chance: &mut Chance) {
    let mut at = 0;
    while at < data.len() {
        let end = (((offset + at) / SECTOR + 1) * SECTOR - offset).min(data.len());
        if chance.percent(kept) {
            put(content, offset + at, &data[at..end]);
        } else if chance.percent(20) {
            let garbage: Vec<u8> = (at..end).map(|_| chance.below(256) as u8).collect();
            put(content, offset + at, &garbage);
        }
        at = end;
    }
}
