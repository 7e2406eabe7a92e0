//! The room on the disk of the store.
//!
//! The store may grow until its disk has `min_disk_free` bytes left, whatever else fills the disk:
//! pages of the file that are free again, since their messages were deleted, may be used even then.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::logger::{self, Logger, Record};
use crate::store::StoreUsage;
use forebay_base::clock;
use tracing::Level;

/// Interval of measurements. Between them the store's own growth counts.
const INTERVAL: Duration = Duration::from_secs(5);
/// Age of a measurement beyond which the disk does not answer.
const STALE: Duration = Duration::from_secs(20);

/// The last measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Bytes that are free.
    Free(u64),
    /// The system does not tell.
    Unknown,
    /// The disk has not answered for a while.
    Silent,
}

/// The disk of the store. Each measurement has a thread of its own, because a hung disk would block
/// the broker's, and nothing waits for it.
#[derive(Debug)]
pub(crate) struct Disk {
    database: PathBuf,
    usage: StoreUsage,
    min_free: u64,
    measured: Cell<(Instant, Room)>,
    /// Whether the log says that there is too little room.
    low: Cell<bool>,
}

impl Disk {
    /// The disk of a database, which is to keep `min_free` bytes free.
    pub(crate) fn new(database: PathBuf, usage: StoreUsage, min_free: u64) -> Self {
        let measured = Cell::new((clock::now(), Room::Unknown));
        let disk = Self { database, usage, min_free, measured, low: Cell::default() };
        disk.note(measure(&disk.database));
        disk
    }

    /// Measures until the task is aborted.
    pub(crate) async fn watch(self: Rc<Self>) {
        // A simulated disk tells nothing, and a thread would come between the events at any time.
        #[cfg(feature = "simulation")]
        if forebay_sqlite::simulation::disk().is_some() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(INTERVAL).await;
            let (path, (sender, measured)) = (self.database.clone(), oneshot::channel());
            let thread = std::thread::Builder::new().name("forebay-disk".into());
            let started = thread.spawn(move || sender.send(measure(&path)).is_ok()).is_ok();
            self.note(if started { measured.await.ok().flatten() } else { None });
        }
    }

    fn note(&self, measured: Option<Measurement>) {
        let room = measured.map_or(Room::Unknown, |measured| Room::Free(measured.free));
        self.measured.set((clock::now(), room));
        // Without a figure, writes show whether there is room.
        let limit = measured.filter(|_| self.min_free > 0).map_or(u64::MAX, |Measurement { free, file }| {
            file.saturating_add(free).saturating_sub(self.min_free)
        });
        self.usage.set_disk_limit(limit);
        let low = self.usage.is_at_disk_limit();
        if low == self.low.replace(low) {
            return;
        }
        let (level, what) = match low {
            true => {
                (Level::WARN, format!("has less than {} bytes left: messages are refused", self.min_free))
            }
            false => (Level::INFO, "has room again".to_owned()),
        };
        logger::write(level, Logger::Store, || {
            Record::new(format!("the disk of the store {what}")).with("event", "disk")
        });
    }

    /// The last measurement.
    pub(crate) fn room(&self) -> Room {
        let (at, room) = self.measured.get();
        if clock::now().saturating_duration_since(at) > STALE { Room::Silent } else { room }
    }
}

#[derive(Clone, Copy)]
struct Measurement {
    /// Bytes of the disk that are free for this process.
    free: u64,
    /// Bytes of the file of the database.
    file: u64,
}

/// Measures, if the system tells. The file is not opened: closing a descriptor would drop SQLite's
/// locks on it.
#[cfg(unix)]
fn measure(database: &Path) -> Option<Measurement> {
    // Some file systems of networks tell nothing.
    let disk = rustix::fs::statvfs(database).ok().filter(|disk| disk.f_blocks > 0)?;
    let file = std::fs::metadata(database).ok()?.len();
    Some(Measurement { free: disk.f_bavail.saturating_mul(disk.f_frsize), file })
}

#[cfg(not(unix))]
fn measure(_: &Path) -> Option<Measurement> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_may_grow_until_the_disk_has_the_least_room_left() {
        let usage = StoreUsage::default();
        let disk = Disk::new("/does not exist".into(), usage.clone(), 100);
        assert_eq!((disk.room(), usage.limit(1_000)), (Room::Unknown, 1_000));
        // Of a file of 500 bytes 200 are free pages.
        usage.set(300);
        for (free, limit, low) in
            [(1_000, 1_000, false), (150, 550, false), (0, 400, false), (u64::MAX, 1_000, false)]
        {
            disk.note(Some(Measurement { free, file: 500 }));
            assert_eq!(
                (disk.room(), usage.limit(1_000), disk.low.get()),
                (Room::Free(free), limit, low),
                "{free}"
            );
        }
        // All its pages are in use.
        usage.set(500);
        for (free, limit, low) in [(99, 499, true), (100, 500, true), (101, 501, false)] {
            disk.note(Some(Measurement { free, file: 500 }));
            assert_eq!(
                (usage.limit(1_000), usage.is_at_disk_limit(), disk.low.get()),
                (limit, low, low),
                "{free}"
            );
        }
        disk.note(Some(Measurement { free: 0, file: 500 }));
        disk.note(None);
        assert_eq!(
            (disk.room(), usage.limit(1_000)),
            (Room::Unknown, 1_000),
            "the system does not tell any more"
        );
        let all = Disk::new("/does not exist".into(), usage.clone(), 0);
        all.note(Some(Measurement { free: 0, file: 500 }));
        assert_eq!((usage.limit(1_000), usage.is_at_disk_limit()), (1_000, false), "it is turned off");
    }
}
