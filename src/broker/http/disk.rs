//! The room on the disk of the store.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::clock;

/// Interval of measurements.
const INTERVAL: Duration = Duration::from_secs(5);
/// Age of a measurement beyond which the disk does not answer.
const STALE: Duration = Duration::from_secs(20);

/// The last measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::broker) enum Room {
    /// Bytes that are free.
    Free(u64),
    /// The system does not tell.
    Unknown,
    /// The disk has not answered for a while.
    Silent,
}

/// The disk of the store. It is measured again and again by a thread of its own, since one that does not answer would hold
/// the broker's.
#[derive(Debug)]
pub(in crate::broker) struct Disk {
    path: PathBuf,
    measured: Cell<(Instant, Room)>,
}

impl Disk {
    /// The disk of a folder.
    pub(in crate::broker) fn new(path: PathBuf) -> Self {
        let room = free(&path).map_or(Room::Unknown, Room::Free);
        Self { path, measured: Cell::new((clock::now(), room)) }
    }

    /// Measures until the task is aborted.
    pub(in crate::broker) async fn watch(self: Rc<Self>) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            let path = self.path.clone();
            let measured = tokio::task::spawn_blocking(move || free(&path)).await.ok().flatten();
            self.measured.set((clock::now(), measured.map_or(Room::Unknown, Room::Free)));
        }
    }

    /// The last measurement.
    pub(super) fn room(&self) -> Room {
        let (at, room) = self.measured.get();
        if clock::now().saturating_duration_since(at) > STALE { Room::Silent } else { room }
    }
}

/// Bytes that are free for this process, if the system tells.
#[cfg(unix)]
fn free(path: &std::path::Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(not(unix))]
fn free(_: &std::path::Path) -> Option<u64> {
    None
}
