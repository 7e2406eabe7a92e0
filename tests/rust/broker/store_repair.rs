//! The repair of damaged stores: what is sound stays, what is damaged goes and is named, and the file is kept as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use penstock::broker::store::repair::{Repaired, repair};
use penstock::broker::store::{Database, Op, check};
use penstock::error::ErrorKind;
use penstock::sqlite::{Connection, Job as _, Sync};

use crate::support::chance::Chance;

const PAGE: usize = 4096;
/// Flips of one bit.
const FLIPS: u64 = 80;

/// A store with rows in all tables.
fn image() -> Vec<u8> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/store/format-6.db");
    std::fs::read(golden).unwrap()
}

fn store_of(image: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.db");
    std::fs::write(&file, image).unwrap();
    (folder, file)
}

/// Rows of a table as text, each with its values.
type Rows = BTreeMap<String, BTreeSet<String>>;

/// All rows but those that a repair does not keep: numbers of the store itself, and entries that nothing refers to.
fn rows(file: &Path) -> Rows {
    let db = Connection::open(file).unwrap();
    let tables = [
        "topic",
        "entry",
        "producer",
        "cursor",
        "schema",
        "retained",
        "session",
        "subscription",
        "queue",
        "inflight",
    ];
    let of = |table: &str| {
        let needed = if table == "entry" {
            "WHERE EXISTS (SELECT 1 FROM topic WHERE domain <> 'mqtt' AND entry.id >= (id << 40) + first AND entry.id >> 40 = id)
             OR id - (SELECT id << 40 FROM topic WHERE domain = 'mqtt')
                IN (SELECT sequence FROM queue UNION SELECT sequence FROM retained)"
        } else {
            ""
        };
        let mut statement = db.prepare(&format!("SELECT * FROM {table} {needed}")).unwrap();
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| {
            (0..columns).map(|i| Ok(format!("{:?}", row.get_ref(i)?))).collect::<Result<Vec<_>, _>>()
        });
        rows.unwrap().map(|row| row.unwrap().join(" ")).collect()
    };
    tables.iter().map(|table| ((*table).to_owned(), of(table))).collect()
}

/// A topic row with the number of its oldest entry changed, an entry that stands for a lost one, and a place of a queue of
/// which it is not known whether the client has it, are not new content.
fn is_made_by_repair(table: &str, row: &str, lost: &[String]) -> bool {
    match table {
        "entry" => row.contains("Integer(0)") && lost.iter().any(|line| line.contains(": entry ")),
        "topic" => !lost.is_empty(),
        "queue" => lost.iter().any(|line| line.contains("may get it again")),
        _ => false,
    }
}

#[test]
fn whatever_bit_is_flipped_the_rest_stays_and_the_file_is_kept_as_it_was() {
    let image = image();
    let (_folder, file) = store_of(&image);
    let before = rows(&file);
    let (mut mended, mut refused, mut sound) = (0, 0, 0);
    for seed in 0..FLIPS {
        let chance = &mut Chance::new(seed);
        let mut flipped = image.clone();
        let page = chance.below(image.len() / PAGE);
        // Most of a page is empty.
        let used: Vec<_> = (page * PAGE..(page + 1) * PAGE).filter(|at| flipped[*at] != 0).collect();
        let Some(at) = used.get(chance.below(used.len().max(1))).copied() else { continue };
        flipped[at] ^= 1 << chance.below(8);
        let place = format!("seed {seed}, byte {at}");
        let (folder, file) = store_of(&flipped);
        let found = check::check(folder.path()).map(|checked| checked.damage).unwrap_or_default();
        match repair(folder.path()) {
            Err(error) => {
                // A first page without which SQLite reads nothing, or a store that seems to be of another version.
                let kinds = [ErrorKind::Persistence, ErrorKind::UnsupportedVersion];
                assert!(kinds.contains(&error.kind()), "{place}: {error}");
                assert!(page == 0, "{place}: {error}");
                refused += 1;
            }
            Ok(Repaired { copy: None, lost }) => {
                assert_eq!((lost, found), (vec![], vec![]), "{place}");
                sound += 1;
            }
            Ok(Repaired { copy: Some(copy), lost }) => {
                assert!(std::fs::read(&copy).unwrap() == flipped, "{place}: the copy is not the file");
                assert_eq!(check::check(folder.path()).unwrap().damage, [""; 0], "{place}");
                let after = rows(&file);
                let mut missing = 0;
                for (table, before) in &before {
                    for row in after[table].difference(before) {
                        assert!(is_made_by_repair(table, row, &lost), "{place}, {table}: {row}: {lost:#?}");
                    }
                    let gone: Vec<_> = before.difference(&after[table]).collect();
                    assert!(gone.is_empty() || !lost.is_empty(), "{place}, {table}: {gone:?}");
                    missing += gone.len();
                }
                if let [line] = &found[..]
                    && line.contains("its checksum does not match")
                    && !line.contains("table topic")
                    && !line.contains("table session")
                {
                    // A message and its place in a queue are two rows.
                    assert!(missing <= 2, "{place}: one row is damaged, and {missing} are gone: {lost:#?}");
                    assert!(lost.len() <= 2, "{place}: {lost:#?}");
                }
                Database::open(folder.path(), Sync::Os).unwrap();
                mended += 1;
            }
        }
    }
    assert!(mended > FLIPS / 2 && refused < FLIPS / 8, "{mended} {refused} {sound}");
}

#[test]
fn a_page_that_is_gone_takes_its_rows_and_no_others() {
    let image = image();
    let (_folder, file) = store_of(&image);
    let before = rows(&file);
    let db = Connection::open(&file).unwrap();
    let roots: Vec<(String, usize)> = db
        .prepare("SELECT name, rootpage FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as usize)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for (table, root) in roots {
        let mut zeroed = image.clone();
        zeroed[(root - 1) * PAGE..root * PAGE].fill(0);
        let (folder, file) = store_of(&zeroed);
        let Repaired { copy, lost } =
            repair(folder.path()).unwrap_or_else(|error| panic!("{table}: {error}"));
        assert!(std::fs::read(copy.unwrap()).unwrap() == zeroed, "{table}");
        assert_eq!(check::check(folder.path()).unwrap().damage, [""; 0], "{table}");
        let after = rows(&file);
        // What cannot be reached without the rows of the table.
        let with: &[&str] = match &table[..] {
            "topic" => &["cursor", "producer", "entry", "retained", "queue"],
            "entry" => &["topic", "retained", "queue"],
            "session" => &["subscription", "queue", "inflight", "entry"],
            "queue" | "retained" | "garbage" => &["entry"],
            _ => &[],
        };
        for (other, rows) in &before {
            if *other != table && !with.contains(&&other[..]) && other != "entry" {
                assert_eq!(rows, &after[other], "{table} is gone, and rows of {other}");
            }
        }
        assert!(!lost.is_empty() || table == "meta" || table == "garbage", "{table}: {lost:?}");
        Database::open(folder.path(), Sync::Os).unwrap();
    }
}

#[test]
fn around_pages_that_are_gone_rows_are_found_from_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.db");
    let database = Database::open(folder.path(), Sync::Os).unwrap();
    let db = database.connection();
    db.execute_batch("BEGIN").unwrap();
    let names: BTreeSet<String> = (0..3000).map(|i| format!("sub-{i:04}")).collect();
    for topic in 1..=3 {
        let name = format!("persistent://public/default/t{topic}").into();
        Op::CreateTopic { id: topic, domain: "pulsar", name, partitions: 0 }.apply(db).unwrap();
    }
    for (name, i) in names.iter().zip(0..) {
        let (topic, subscription) = (i / 1000 + 1, name[..].into());
        let state = penstock::broker::log::cursor::Cursor::new(0).encode();
        let (kind, below, touched_ms) = (0, 0, 0);
        Op::Cursor { topic, subscription, kind, below, state, touched_ms }.apply(db).unwrap();
    }
    db.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(database);
    let mut image = std::fs::read(&file).unwrap();
    let named = |page: &[u8]| -> BTreeSet<String> {
        let names = page.windows(8).filter(|name| name.starts_with(b"sub-"));
        names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    };
    // Leaves of the table, in the middle of two topics.
    let mut gone = BTreeSet::new();
    for needed in ["sub-0500", "sub-2500"] {
        let leaf = image.chunks_mut(PAGE).find(|page| page[0] == 10 && named(page).contains(needed));
        let leaf = leaf.expect("a leaf has the row");
        gone.extend(named(leaf));
        leaf.fill(0);
    }
    assert!(gone.len() > 20 && gone.len() < 1000, "{}", gone.len());
    std::fs::write(&file, &image).unwrap();
    assert!(!check::check(folder.path()).unwrap().damage.is_empty());
    let Repaired { lost, .. } = repair(folder.path()).unwrap();
    assert!(
        matches!(&lost[..], [line] if line.contains("rows of table cursor that cannot be read")),
        "{lost:?}"
    );
    let db = Connection::open(&file).unwrap();
    let mut statement = db.prepare("SELECT subscription FROM cursor").unwrap();
    let left: BTreeSet<String> =
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    // The leaves had nothing else in them, and perhaps remains of rows that had moved.
    let more: Vec<_> = names.difference(&left).filter(|name| !gone.contains(*name)).collect();
    assert!(more.is_empty(), "they were not on these pages: {more:?}");
    assert!(left.len() < names.len());
}

#[test]
fn what_is_lost_is_named_by_topic_subscription_and_session() {
    let (folder, file) = store_of(&image());
    let db = Connection::open(&file).unwrap();
    db.execute_batch(
        "UPDATE entry SET body = x'00' WHERE id IN ((2 << 40) + 4, (2 << 40) + 5);
         UPDATE cursor SET below = below + 1 WHERE subscription = 'audit' AND topic = 2;
         UPDATE producer SET last_sequence = 1 WHERE name = 'till-7';
         UPDATE topic SET name = 'demo:9' WHERE name = 'demo:1';
         UPDATE meta SET value = value + 1;",
    )
    .unwrap();
    let session: (String, i64) = db
        .query_row("SELECT client_id, session FROM queue JOIN session ON session = id LIMIT 1", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    db.execute("UPDATE session SET expiry = expiry + 1 WHERE id = ?1", [session.1]).unwrap();
    drop(db);
    let damaged = std::fs::read(&file).unwrap();
    let Repaired { copy, lost } = repair(folder.path()).unwrap();
    let orders = "pulsar persistent://public/default/orders";
    let expected = [
        "tubemq demo:9 (number 8): the topic with all that belongs to it: its name, number or partitions are damaged".to_owned(),
        format!("{orders}: subscription \"audit\", whose position is damaged"),
        format!("{orders}: the last sequence id of producer \"till-7\""),
        format!("mqtt, client {}: the session (number {}) with all that belongs to it", session.0, session.1),
        format!("{orders}: entry 4 and 1 after it"),
    ];
    assert_eq!(lost, expected);
    let copy = copy.unwrap();
    assert_eq!(copy, folder.path().join("broker.db.damaged"));
    assert!(std::fs::read(&copy).unwrap() == damaged);
    // Nothing is damaged now: another one does nothing.
    let sound = std::fs::read(&file).unwrap();
    assert_eq!(repair(folder.path()).unwrap(), Repaired::default());
    assert!(std::fs::read(&file).unwrap() == sound);
    let database = Database::open(folder.path(), Sync::Os).unwrap();
    assert!(database.next_topic().unwrap() > 8, "no number of a topic is used again");
    let in_use = repair(folder.path()).unwrap_err();
    assert!(in_use.message().contains("in use"), "{in_use}");
    drop(database);
    // A second repair keeps both copies.
    let db = Connection::open(&file).unwrap();
    db.execute("UPDATE producer SET last_sequence = 2", []).unwrap();
    drop(db);
    let again = repair(folder.path()).unwrap();
    assert_eq!((again.copy, again.lost.len()), (Some(folder.path().join("broker.db.damaged-2")), 1));
    assert!(std::fs::read(&copy).unwrap() == damaged);
}

#[test]
fn a_folder_without_a_store_has_nothing_to_repair() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(repair(folder.path()).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
