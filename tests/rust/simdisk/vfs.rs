//! The simulated disks as SQLite's default file system: production code opens its databases on them
//! as it does elsewhere.
//!
//! A directory is mounted on a disk, and all files in it are on that disk. The connections of a
//! test may belong to several processes: locks and shared memory are those that the operating
//! system would give to processes.
//!
//! There is a crate for this, sqlite-plugin. It needs libclang to build, and hides what this disk
//! has to know: the kind of a file, and whether a deletion is synced.
#![allow(unsafe_code, reason = "the functions that SQLite calls; what they do is in disk.rs, which is safe")]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use rusqlite::ffi;

use super::disk::{Disk, Inode, Refusal};

/// Disks by the directories that they are mounted on.
static MOUNTED: Mutex<BTreeMap<String, Arc<Mutex<Disk>>>> = Mutex::new(BTreeMap::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A mounted disk. Dropping it unmounts the disk; files that are open stay open.
#[derive(Debug)]
pub struct Mount {
    directory: String,
    disk: Arc<Mutex<Disk>>,
}

impl Mount {
    pub fn new(directory: &Path, disk: Disk) -> Self {
        register();
        let directory = directory.to_str().unwrap().to_owned();
        let disk = Arc::new(Mutex::new(disk));
        let before = locked(&MOUNTED).insert(directory.clone(), disk.clone());
        assert!(before.is_none(), "{directory} has a disk");
        Self { directory, disk }
    }

    pub fn disk(&self) -> MutexGuard<'_, Disk> {
        locked(&self.disk)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        locked(&MOUNTED).remove(&self.directory);
    }
}

/// The disk and name of a file.
fn place(name: *const c_char) -> Refusal<(Arc<Mutex<Disk>>, String)> {
    if name.is_null() {
        // Temporary files are in memory.
        return Err(ffi::SQLITE_CANTOPEN);
    }
    // SAFETY: SQLite gives strings that end with a NUL.
    let path = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| ffi::SQLITE_CANTOPEN)?;
    let (directory, name) = path.rsplit_once('/').ok_or(ffi::SQLITE_CANTOPEN)?;
    let disk = locked(&MOUNTED).get(directory).cloned().ok_or(ffi::SQLITE_CANTOPEN)?;
    Ok((disk, name.to_owned()))
}

/// An open file, as SQLite holds it.
#[repr(C)]
struct File {
    base: ffi::sqlite3_file,
    handle: *mut Handle,
}

struct Handle {
    disk: Arc<Mutex<Disk>>,
    file: Inode,
    id: u64,
    /// Name of a file that is deleted when it is closed.
    temporary: Option<String>,
}

fn code(result: Refusal<()>) -> c_int {
    result.err().unwrap_or(ffi::SQLITE_OK)
}

/// Calls `action` with the disk and the handle of an open file.
fn with<T>(file: *mut ffi::sqlite3_file, action: impl FnOnce(&mut Disk, &Handle) -> T) -> T {
    // SAFETY: SQLite passes files that `open` has filled in and `close` has not closed.
    let handle = unsafe { &*(*file.cast::<File>()).handle };
    action(&mut locked(&handle.disk), handle)
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(map),
    xShmLock: Some(lock_shared),
    xShmBarrier: Some(barrier),
    xShmUnmap: Some(unmap),
    xFetch: None,
    xUnfetch: None,
};

fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the default file system exists for the whole run. Ours has the same functions
        // where the disk has no say (time, randomness), and is never freed.
        let registered = unsafe {
            let system = ffi::sqlite3_vfs_find(std::ptr::null());
            let vfs = ffi::sqlite3_vfs {
                iVersion: 2,
                szOsFile: size_of::<File>() as c_int,
                zName: c"simdisk".as_ptr(),
                pNext: std::ptr::null_mut(),
                xOpen: Some(open),
                xDelete: Some(delete),
                xAccess: Some(access),
                xFullPathname: Some(full_name),
                xSleep: Some(sleep),
                ..*system
            };
            ffi::sqlite3_vfs_register(Box::into_raw(Box::new(vfs)), 1)
        };
        assert_eq!(registered, ffi::SQLITE_OK);
    });
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let opened = place(name).and_then(|(disk, name)| {
        let journals = ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL | ffi::SQLITE_OPEN_WAL;
        let (create, journal) = (flags & ffi::SQLITE_OPEN_CREATE != 0, flags & journals != 0);
        let (file, id) = locked(&disk).open(&name, create, journal)?;
        let temporary = (flags & ffi::SQLITE_OPEN_DELETEONCLOSE != 0).then_some(name);
        Ok(Handle { disk, file, id, temporary })
    });
    // SAFETY: SQLite gives memory of the size that was registered. Without methods it does not
    // close the file.
    unsafe {
        match opened {
            Ok(handle) => {
                let handle = Box::into_raw(Box::new(handle));
                file.cast::<File>()
                    .write(File { base: ffi::sqlite3_file { pMethods: &raw const METHODS }, handle });
                if !out_flags.is_null() {
                    *out_flags = flags;
                }
                ffi::SQLITE_OK
            }
            Err(code) => {
                (*file).pMethods = std::ptr::null();
                code
            }
        }
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: `open` made it of a box, and SQLite closes a file once.
    let handle = unsafe { Box::from_raw((*file.cast::<File>()).handle) };
    let mut disk = locked(&handle.disk);
    disk.close(handle.file, handle.id);
    if let Some(name) = &handle.temporary {
        let _ = disk.delete(name, false);
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, sync_directory: c_int) -> c_int {
    code(place(name).and_then(|(disk, name)| locked(&disk).delete(&name, sync_directory != 0)))
}

unsafe extern "C" fn access(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    _: c_int,
    out: *mut c_int,
) -> c_int {
    let exists = place(name).is_ok_and(|(disk, name)| locked(&disk).exists(&name));
    // SAFETY: a place for the answer.
    unsafe { *out = c_int::from(exists) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_name(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    room: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: a string that ends with a NUL, and room for so many bytes. Tests use absolute paths.
    unsafe {
        let bytes = CStr::from_ptr(name).to_bytes_with_nul();
        if bytes.len() > room as usize {
            return ffi::SQLITE_CANTOPEN;
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len());
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn sleep(_: *mut ffi::sqlite3_vfs, micros: c_int) -> c_int {
    // Time passes at once: who waits for a lock here waits for a connection of the same thread.
    micros
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    into: *mut c_void,
    count: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: a buffer of this size.
    let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), count as usize) };
    with(file, |disk, handle| code(disk.read(handle.file, offset as usize, into)))
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    count: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: a buffer of this size.
    let from = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), count as usize) };
    with(file, |disk, handle| code(disk.write(handle.file, offset as usize, from)))
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    with(file, |disk, handle| code(disk.truncate(handle.file, size as usize)))
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    with(file, |disk, handle| code(disk.sync(handle.file)))
}

unsafe extern "C" fn size(file: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: a place for the answer.
    unsafe { *out = with(file, |disk, handle| disk.size(handle.file)) as i64 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    with(file, |disk, handle| code(disk.lock(handle.file, handle.id, level)))
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    with(file, |disk, handle| disk.unlock(handle.file, handle.id, level));
    ffi::SQLITE_OK
}

unsafe extern "C" fn reserved(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: a place for the answer.
    unsafe { *out = with(file, |disk, handle| c_int::from(disk.reserved(handle.file))) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn control(_: *mut ffi::sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector(_: *mut ffi::sqlite3_file) -> c_int {
    4096
}

unsafe extern "C" fn characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    // As SQLite assumes of local disks: bytes beside those that are written stay as they are.
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    let mapped = with(file, |disk, handle| {
        disk.map(handle.file, handle.id, region as usize, size as usize, extend != 0)
    });
    // SAFETY: a place for the answer. The region is of atomics, which may be written through a
    // shared reference.
    unsafe { *out = mapped.cast_mut().cast() };
    ffi::SQLITE_OK
}

unsafe extern "C" fn lock_shared(
    file: *mut ffi::sqlite3_file,
    first: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    let slots = first as usize..(first + count) as usize;
    with(file, |disk, handle| code(disk.lock_shared(handle.file, handle.id, slots, flags)))
}

unsafe extern "C" fn barrier(_: *mut ffi::sqlite3_file) {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

unsafe extern "C" fn unmap(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    with(file, |disk, handle| disk.unmap(handle.file, handle.id));
    ffi::SQLITE_OK
}
