//! Disks that are full, that fail and that forget: what a broker does while it runs on them, and
//! what is there afterwards.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;

use forebay_broker::log::Entry;
use forebay_broker::store::{Database, Op, check};
use forebay_sqlite::{Job as _, Sync};
use rusqlite::ffi;

use crate::crash::{campaign_in, recover, scripts};
use crate::disk::{Call, Disk, Fault, Image};
use crate::node::{MQTT, PULSAR, Reach, TUBEMQ};
use crate::support::chance::Chance;
use crate::vfs::Mount;
use crate::world::{Clients, Recorded, Weather, World, record};

/// Boundaries that are skipped between two crashes of a script with a fault.
const STRIDE: usize = 151;
/// Bytes of a database's page.
const PAGE: usize = 4096;

fn weather(fault: Fault) -> Weather {
    Weather { fault: Some(fault), ..Weather::default() }
}

#[test]
#[allow(clippy::print_stdout, reason = "what was tried")]
fn on_a_full_disk_the_broker_waits_and_goes_on_and_confirms_nothing_meanwhile() {
    let (mut waits, mut crashes) = (0, 0);
    for seed in 12 * scripts().start..12 * scripts().end {
        let chance = &mut Chance::new(seed);
        let protocol = [PULSAR, MQTT, TUBEMQ][seed as usize % 3];
        let call = if chance.percent(70) { Call::Write } else { Call::Sync };
        let (after, times) = (chance.below(400) as u64, chance.within(1, 40) as u64);
        let fault = Fault { call, after, times, code: ffi::SQLITE_FULL };
        let tally = campaign_in(weather(fault), &[protocol], seed, Reach::Disk, 1, STRIDE);
        assert!(tally.failures.is_empty(), "{fault:?}: {tally:#?}");
        assert_eq!(tally.failure, None, "{fault:?}");
        waits += tally.waits;
        crashes += tally.points.values().sum::<usize>();
    }
    println!("full disks: {waits} attempts to write failed, {crashes} crashes");
    assert!(waits > 0);
}

#[test]
#[allow(clippy::print_stdout, reason = "what was tried")]
fn on_a_failing_disk_the_broker_ends_loudly_and_what_it_confirmed_is_there() {
    let (mut ends, mut crashes) = (0, 0);
    for seed in 12 * scripts().start..12 * scripts().end {
        let chance = &mut Chance::new(seed);
        let protocol = [PULSAR, MQTT, TUBEMQ][seed as usize % 3];
        let (call, code) = [
            (Call::Write, ffi::SQLITE_IOERR_WRITE),
            (Call::Sync, ffi::SQLITE_IOERR_FSYNC),
            (Call::Truncate, ffi::SQLITE_IOERR_TRUNCATE),
        ][chance.below(3)];
        let after = chance.below(if call == Call::Truncate { 2 } else { 200 }) as u64;
        let fault = Fault { call, after, times: 1 + chance.below(3) as u64, code };
        let tally = campaign_in(weather(fault), &[protocol], seed, Reach::Disk, 2, STRIDE / 3);
        assert!(tally.failures.is_empty(), "{fault:?}: {tally:#?}");
        if let Some(failure) = &tally.failure {
            assert!(failure.contains("the store failed"), "{failure}");
            ends += 1;
        }
        crashes += tally.points.values().sum::<usize>();
    }
    println!("failing disks: {ends} brokers ended, {crashes} crashes");
    assert!(ends > 3, "most faults hit a commit");
}

/// The disk after a script, its clients, and a directory for it.
fn written(seed: u64) -> (tempfile::TempDir, Image, Clients) {
    let directory = tempfile::tempdir().unwrap();
    let all = [PULSAR, MQTT, TUBEMQ];
    let Recorded { start: mut replay, trace, mut ledger, .. } =
        record(directory.path(), &all, seed, Reach::Disk, Weather::default());
    trace.iter().for_each(|(change, _)| replay.apply(change));
    let image = replay.crash(crate::disk::Loss::Nothing, &mut Chance::new(seed));
    (directory, image, ledger.pop().unwrap())
}

#[test]
fn a_disk_that_cannot_be_read_is_an_error_at_the_start_and_harms_nothing() {
    let (directory, image, clients) = written(3);
    let mut refused = 0;
    for after in 0..60 {
        let mut disk = Disk::with(image.clone());
        disk.fault = Some(Fault { call: Call::Read, after, times: 1, code: ffi::SQLITE_IOERR_READ });
        let mount = Mount::new(directory.path(), disk);
        match World::open(directory.path(), mount, Reach::Disk, clients.clone()) {
            Ok(mut world) => {
                world.disk().fault = None;
                world.verify();
            }
            Err(error) => {
                assert!(error.message().contains("disk I/O error"), "{error}");
                refused += 1;
                if after % 10 == 0 {
                    recover(directory.path(), image.clone(), &clients);
                }
            }
        }
    }
    assert!(refused > 5, "{refused}");
}

#[test]
fn a_disk_that_cannot_be_read_takes_nothing_from_the_time_that_brokers_have_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    // After a kill the newest message may be all that knows of it.
    let known = 60_000;
    let image = {
        let mount = Mount::new(path, Disk::default());
        let database = Database::open(path, Sync::Full).unwrap();
        let create = Op::CreateTopic { id: 1, domain: "tubemq", name: "demo:0".into(), partitions: 0 };
        create.apply(database.connection()).unwrap();
        let entry = Entry {
            sequence: 0,
            last_index: 0,
            stored_ms: 1,
            run_ms: known,
            publish_ms: 1,
            deliver_ms: 0,
            count: 1,
            flags: 0,
            hash: 0,
            checksum: None,
            body: vec![7; 5 * PAGE].into(),
        };
        Op::Append { topic: 1, entry, producer: None }.apply(database.connection()).unwrap();
        drop(database);
        mount.disk().image()
    };
    let started = |disk: Disk| {
        let mount = Mount::new(path, disk);
        let run_ms = Database::open(path, Sync::Full).and_then(|database| database.run_ms());
        drop(mount);
        run_ms
    };
    assert_eq!(started(Disk::with(image.clone())).unwrap(), known);
    let mut refused = 0;
    for after in 0..80 {
        let mut disk = Disk::with(image.clone());
        disk.fault = Some(Fault { call: Call::Read, after, times: 1, code: ffi::SQLITE_IOERR_READ });
        match started(disk) {
            Ok(run_ms) => assert_eq!(run_ms, known, "read {after} failed"),
            Err(error) => {
                assert!(error.message().contains("disk I/O error"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 5, "{refused}");
}

thread_local! {
    /// Where the last panic of this thread began, and its text.
    static PANIC: RefCell<(String, String)> = RefCell::default();
}

/// Catches a panic; gives its file and text.
fn caught(action: impl FnOnce()) -> Option<(String, String)> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let file = info.location().map(|at| at.file().to_owned()).unwrap_or_default();
            let payload = info.payload();
            let text = payload.downcast_ref::<String>().cloned();
            let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            PANIC.set((file, text.unwrap_or_default()));
            before(info);
        }));
    });
    catch_unwind(AssertUnwindSafe(action)).err().map(|_| PANIC.take())
}

/// Pages of a database by the table that they belong to.
fn pages(directory: &Path, image: &Image) -> BTreeMap<usize, String> {
    let _mount = Mount::new(directory, Disk::with(image.clone()));
    let db = forebay_sqlite::open(&directory.join("broker.db"), Sync::Full).unwrap();
    let mut statement = db.prepare("SELECT pageno, name FROM dbstat").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get::<_, i64>(0)? as usize, row.get(1)?))).unwrap();
    rows.collect::<rusqlite::Result<_>>().unwrap()
}

/// Whether a broker may start with a flipped bit in this table: it holds no rows with checksums, or
/// its rows are verified when they are read.
fn unsummed(table: &str) -> bool {
    matches!(table, "entry" | "sqlite_schema" | "(free)")
}

#[test]
#[allow(clippy::print_stdout, reason = "what was tried")]
fn a_flipped_bit_is_found_or_does_no_harm_and_never_a_panic() {
    let (directory, image, clients) = written(4);
    let path = directory.path();
    let tables = pages(path, &image);
    let rows: Vec<_> = tables.iter().filter(|(_, name)| !unsummed(name)).map(|(page, _)| *page).collect();
    let mut outcomes = BTreeMap::<(String, &str), usize>::new();
    for seed in 300 * scripts().start..300 * scripts().end {
        let chance = &mut Chance::new(seed);
        let mut flipped = image.clone();
        let file = flipped.0.get_mut("broker.db").unwrap();
        let page = if chance.percent(40) {
            chance.below(file.len() / PAGE)
        } else {
            rows[chance.below(rows.len())] - 1
        };
        // Most of a page is empty.
        let used: Vec<_> =
            (page * PAGE..(page + 1) * PAGE).filter(|at| file[*at] != 0 || chance.percent(1)).collect();
        let at = used.get(chance.below(used.len())).copied().unwrap_or(page * PAGE);
        let bit = 1 << chance.below(8);
        file[at] ^= bit;
        let place = format!("byte {at} ^ {bit}");
        let table = tables.get(&(at / PAGE + 1)).cloned().unwrap_or_else(|| "(free)".into());

        // What the check of the store calls sound is sound.
        let sound = {
            // On the real disk, an empty file: the check looks whether there is a store.
            let _mount = Mount::new(path, Disk::with(flipped.clone()));
            check::check(path).is_ok_and(|checked| checked.damage.is_empty())
        };
        let harm = caught(|| {
            let mount = Mount::new(path, Disk::with(flipped));
            // A broker that does not start says why.
            if let Ok(mut world) = World::open(path, mount, Reach::Disk, clients.clone()) {
                world.verify();
            }
        });
        let outcome = match &harm {
            None => {
                if sound {
                    "harmless"
                } else {
                    "found"
                }
            }
            Some((file, text)) => {
                assert!(!file.starts_with("src"), "{table}, {place}: the broker panics: {text}");
                assert!(unsummed(&table), "{table}, {place}: the broker has started: {text}");
                if table == "entry" {
                    assert!(!text.starts_with("altered"), "{table}, {place}: {text}");
                    assert!(!sound, "{table}, {place}: it was not found: {text}");
                }
                if sound { "not found" } else { "found" }
            }
        };
        *outcomes.entry((table, outcome)).or_default() += 1;
    }
    println!("flipped bits: {outcomes:#?}");
}
