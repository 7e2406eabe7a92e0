//! Stores and outbox files of earlier formats: the machine stops at each boundary of their upgrade, and the disk is full at
//! each write of it. Whatever comes of that is opened again, and has all rows.

use std::path::Path;

use forebay::broker::store::Database;
use forebay::client::mqtt::outbox::{Outbox, OutboxOptions};
use forebay::error::Result;
use forebay::sqlite::{Connection, Sync};
use rusqlite::ffi;

use crate::disk::{Call, Disk, Fault, Image, Loss};
use crate::support::chance::Chance;
use crate::vfs::Mount;

/// Crashes at each boundary.
const CRASHES: u64 = 6;

/// A kind of file that is upgraded when it is opened.
struct Kind {
    folder: &'static str,
    /// Name of the file in use.
    file: &'static str,
    /// The formats before the present one.
    earlier: std::ops::Range<u32>,
    open: fn(&Path) -> Result<()>,
}

const STORE: Kind = Kind {
    folder: "store",
    file: "broker.db",
    earlier: 1..6,
    open: |path| Database::open(path, Sync::Full).map(drop),
};

const OUTBOX: Kind = Kind {
    folder: "outbox",
    file: "out.db",
    earlier: 1..2,
    open: |path| {
        let (outbox, _) = Outbox::open(&OutboxOptions::new(path.join("out.db")), Box::new(|_, _| {}))?;
        outbox.close();
        Ok(())
    },
};

impl Kind {
    /// A kept file of an earlier format.
    fn golden(&self, format: u32) -> Image {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/golden")
            .join(self.folder)
            .join(format!("format-{format}"));
        if let Ok(content) = std::fs::read(kept.with_extension("db")) {
            return Image([(self.file.to_owned(), content)].into());
        }
        let directory = tempfile::tempdir().unwrap();
        let mount = Mount::new(directory.path(), Disk::default());
        let db = Connection::open(directory.path().join(self.file)).unwrap();
        db.pragma_update(None, "journal_mode", "WAL").unwrap();
        db.execute_batch(&std::fs::read_to_string(kept.with_extension("sql")).unwrap()).unwrap();
        drop(db);
        mount.disk().image()
    }

    /// Puts files on a disk. Code that looks at them before SQLite does finds them in the directory, too.
    fn mount(&self, path: &Path, image: Image) -> Mount {
        for name in [self.file.to_owned(), format!("{}-wal", self.file)] {
            std::fs::write(path.join(&name), image.0.get(&name).map_or(&[][..], |file| file)).unwrap();
        }
        Mount::new(path, Disk::with(image))
    }

    /// All tables with their rows.
    fn rows(&self, path: &Path) -> Vec<String> {
        let db = Connection::open(path.join(self.file)).unwrap();
        let list = |sql: &str| -> Vec<String> {
            let mut statement = db.prepare(sql).unwrap();
            let columns = statement.column_count();
            let rows = statement.query_map([], |row| {
                (0..columns)
                    .map(|at| Ok(format!("{:?} ", row.get_ref(at)?)))
                    .collect::<rusqlite::Result<String>>()
            });
            rows.unwrap().collect::<rusqlite::Result<_>>().unwrap()
        };
        let mut tables =
            db.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").unwrap();
        let names = tables.query_map([], |row| row.get::<_, String>(0)).unwrap();
        let mut lines = list("SELECT sql FROM sqlite_schema WHERE sql NOT NULL ORDER BY name");
        for name in names {
            lines.extend(list(&format!("SELECT * FROM {} ORDER BY 1, 2", name.unwrap())));
        }
        lines
    }

    /// Opens what a crash or a fault has left.
    fn recover(&self, path: &Path, image: Image, expected: &[String], what: &str) {
        let _mount = self.mount(path, image);
        (self.open)(path).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(self.rows(path), expected, "{what}");
    }

    fn crash_everywhere(&self) -> usize {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let mut crashes = 0;
        for format in self.earlier.clone() {
            let mount = self.mount(path, self.golden(format));
            let mut replay = mount.disk().start_trace();
            (self.open)(path).unwrap();
            let expected = self.rows(path);
            let trace = mount.disk().trace.take().unwrap();
            drop(mount);
            for point in 0..=trace.len() {
                for crash in 0..CRASHES {
                    let chance = &mut Chance::new(u64::from(format) << 40 | (point as u64) << 8 | crash);
                    let loss = Loss::draw(chance);
                    let what = format!("format {format}, point {point} of {}, {loss:?}", trace.len());
                    self.recover(path, replay.crash(loss, chance), &expected, &what);
                    crashes += 1;
                }
                if let Some((change, _)) = trace.get(point) {
                    replay.apply(change);
                }
            }
        }
        crashes
    }

    fn fill_the_disk_everywhere(&self) -> usize {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let mut refused = 0;
        for format in self.earlier.clone() {
            let golden = self.golden(format);
            let expected = {
                let _mount = self.mount(path, golden.clone());
                (self.open)(path).unwrap();
                self.rows(path)
            };
            for after in 0.. {
                let mount = self.mount(path, golden.clone());
                mount.disk().fault =
                    Some(Fault { call: Call::Write, after, times: u64::MAX, code: ffi::SQLITE_FULL });
                let outcome = (self.open)(path);
                let failed = mount.disk().failed;
                let image = mount.disk().image();
                drop(mount);
                if failed == 0 {
                    break;
                }
                refused += usize::from(outcome.is_err());
                self.recover(path, image, &expected, &format!("format {format}, full after {after} writes"));
            }
        }
        refused
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "what was tried")]
fn an_upgrade_of_a_store_survives_crashes_and_full_disks() {
    println!("stores: {} crashes, {} full disks", STORE.crash_everywhere(), STORE.fill_the_disk_everywhere());
}

#[test]
#[allow(clippy::print_stdout, reason = "what was tried")]
fn an_upgrade_of_an_outbox_survives_crashes_and_full_disks() {
    println!(
        "outboxes: {} crashes, {} full disks",
        OUTBOX.crash_everywhere(),
        OUTBOX.fill_the_disk_everywhere()
    );
}
