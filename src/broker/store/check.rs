//! A check of a whole store while no broker runs: every row is read and verified.

use std::ops::Range;
use std::path::Path;

use rusqlite::Connection;

use super::database::{Directory, in_folder, prepare, require_store};
use super::entries::{SEQUENCE_BITS, Stored, keys_of, next_number, sequence_of, strays};
use super::rows;
use crate::log::Source as _;
use crate::log::cursor::Cursor;
use forebay_base::error::Result;
use forebay_sqlite::Sync;

/// Entries, and their bytes, that are read at a time.
const READ: (usize, usize) = (256, 1 << 20);
/// Places in a row where not even the keys of a table can be read, before the check looks further
/// and further ahead.
const NEAR: u64 = 1024;
/// Limit on the lines of SQLite's own check.
const SQLITE_LINES: i64 = 100;

/// The result of a [`check`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Number of entries that can be read.
    pub entries: u64,
    /// Damaged places, one line each.
    pub damage: Vec<String>,
}

/// Reads the whole store in `path` and reports what is damaged in it. No broker may use the store
/// meanwhile.
pub fn check(path: &Path) -> Result<Checked> {
    require_store(path)?;
    let directory = Directory::open(path)?;
    let db = directory.connect(Sync::Full)?;
    prepare(&db).map_err(in_folder(path))?;
    let mut checked = Checked::default();
    for line in texts(&db, &format!("PRAGMA integrity_check({SQLITE_LINES})"))? {
        if line != "ok" {
            checked.damage.push(format!("the database: {line}"));
        }
    }
    checked.damage.extend(rows::damage(&db, SQLITE_LINES as usize));
    match strays(&db, SQLITE_LINES as usize) {
        Ok(strays) => checked.damage.extend(strays),
        Err(error) => checked.damage.push(format!("the keys of the entries: {}", error.message())),
    }
    if let Err(error) = check_topics(&directory, &db, &mut checked) {
        checked.damage.push(format!("what follows could not be read: {}", error.message()));
    }
    Ok(checked)
}

fn check_topics(directory: &Directory, db: &Connection, checked: &mut Checked) -> Result<()> {
    let mut stored = Stored::new(directory.connect(Sync::Full)?);
    let mut topics = db.prepare("SELECT id, domain, name, first, next FROM topic WHERE partitions = 0")?;
    let rows = topics.query_map([], |row| {
        let name = format!("{} {}", row.get::<_, String>(1)?, row.get::<_, String>(2)?);
        let number = |i| row.get::<_, i64>(i).map(|n| n as u64);
        Ok((number(0)?, row.get::<_, String>(1)? == super::mqtt::DOMAIN, name, number(3)?, number(4)?))
    })?;
    for row in rows {
        let (topic, is_mqtt, name, first, next) = row?;
        if is_mqtt {
            check_messages(db, topic, checked)?;
        } else {
            check_log(db, &mut stored, topic, &name, first..next, checked);
        }
        check_cursors(db, topic, &name, checked)?;
    }
    Ok(())
}

/// The numbers of a log that cannot be read, from the first to the last. Those in a row with one
/// another are reported as one place.
struct Unreadable<'c> {
    /// Name of the topic.
    name: &'c str,
    damage: &'c mut Vec<String>,
    /// Numbers in a row that are not reported yet, and why the first of them cannot be read.
    run: Option<(Range<u64>, String)>,
}

impl Unreadable<'_> {
    fn add(&mut self, numbers: Range<u64>, why: String) {
        match &mut self.run {
            Some((run, _)) if run.end == numbers.start => run.end = numbers.end,
            _ => {
                self.report();
                self.run = Some((numbers, why));
            }
        }
    }

    /// Adds the numbers of entries that are not there, if the range has any.
    fn add_missing(&mut self, numbers: Range<u64>) {
        if !numbers.is_empty() {
            let why = format!("entry {} is missing", numbers.start);
            self.add(numbers, why);
        }
    }

    /// Reports the last numbers in a row.
    fn report(&mut self) {
        if let Some((Range { start, end }, why)) = self.run.take() {
            let more =
                if end - start > 1 { format!(" (and {} after it)", end - start - 1) } else { String::new() };
            self.damage.push(format!("{}: {why}{more}", self.name));
        }
    }
}

/// Checks the entries of a log, which have no gaps.
fn check_log(
    db: &Connection,
    stored: &mut Stored,
    topic: u64,
    name: &str,
    Range { start, end }: Range<u64>,
    checked: &mut Checked,
) {
    let ends = keys_of(topic);
    let last = db.query_row("SELECT max(id) FROM entry WHERE id >= ?1 AND id < ?2", ends, |row| {
        row.get::<_, Option<i64>>(0)
    });
    let last = last.ok().flatten().map_or(0, |id| sequence_of(id) + 1);
    let mut bad = Unreadable { name, damage: &mut checked.damage, run: None };
    let end = end.max(last);
    let (mut next, mut entries, mut lost) = (start, 0, 0);
    while next < end {
        // A damaged key may be far away from the others: what is walked is the rows, not their
        // numbers.
        let (found, stop) = match stored.read(topic, next, READ.0, READ.1) {
            // SQLite believes the keys by which it descends.
            Ok(found) if found.first().is_some_and(|entry| entry.sequence < next) => {
                bad.add(next..end, format!("the entries from {next} on are not in the order of their keys"));
                break;
            }
            Ok(found) => {
                let stop = found.last().map_or(end, |entry| entry.sequence + 1);
                (found, stop)
            }
            Err(error) => {
                let why = error.message().split("; `").next().unwrap_or_default().to_owned();
                match next_number(db, topic, next) {
                    Ok(Some(number)) if number >= next => {
                        bad.add_missing(next..number);
                        bad.add(number..number + 1, why);
                        next = number + 1;
                    }
                    _ => {
                        lost += 1;
                        let step = 1 << (lost.max(NEAR) - NEAR).min(SEQUENCE_BITS.into());
                        let stop = next.saturating_add(step).min(end);
                        bad.add(next..stop, why);
                        next = stop;
                    }
                }
                continue;
            }
        };
        lost = 0;
        for entry in found {
            bad.add_missing(next..entry.sequence);
            next = entry.sequence + 1;
            entries += 1;
        }
        bad.add_missing(next..stop);
        next = stop;
    }
    bad.report();
    checked.entries += entries;
}

/// Checks the MQTT messages that a queue or a retained slot names.
fn check_messages(db: &Connection, log: u64, checked: &mut Checked) -> Result<()> {
    let mut needed = db.prepare(
        "SELECT sequence, min(name) FROM (
             SELECT sequence, 'the queue of client ' || client_id AS name FROM queue JOIN session ON session = id
             UNION ALL SELECT sequence, 'retained on ' || topic FROM retained)
         GROUP BY sequence ORDER BY sequence",
    )?;
    let rows = needed.query_map([], |row| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, String>(1)?)))?;
    for row in rows {
        let (sequence, name) = row?;
        match Stored::read_one(db, log, sequence) {
            Ok(_) => checked.entries += 1,
            Err(unread) => {
                let why = unread.error.message().split("; `").next().unwrap_or_default().to_owned();
                checked.damage.push(format!("mqtt, {name}: {why}"));
            }
        }
    }
    Ok(())
}

fn check_cursors(db: &Connection, topic: u64, name: &str, checked: &mut Checked) -> Result<()> {
    let mut cursors = db.prepare_cached("SELECT subscription, below, state FROM cursor WHERE topic = ?1")?;
    let rows = cursors.query_map([topic as i64], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)? as u64, row.get::<_, Vec<u8>>(2)?))
    })?;
    for row in rows {
        let (subscription, below, state) = row?;
        if Cursor::decode_with(below, &state).is_err() {
            checked.damage.push(format!("{name}: the position of subscription {subscription:?} is damaged"));
        }
    }
    Ok(())
}

fn texts(db: &Connection, sql: &str) -> Result<Vec<String>> {
    let mut statement = db.prepare(sql)?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

#[cfg(test)]
mod tests {
    use super::super::Op;
    use super::*;
    use crate::log::Entry;
    use crate::log::tests::entry;
    use crate::store::entries::{entry_key, require_topics, run_ms};
    use forebay_base::error::ErrorKind;
    use forebay_sqlite::Job as _;

    #[test]
    fn damaged_and_missing_entries_are_listed_by_topic_and_number() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(
            check(directory.path()).unwrap_err().kind(),
            ErrorKind::InvalidArgument,
            "there is no store"
        );
        let opened = Directory::open(directory.path()).unwrap();
        let db = opened.connect(Sync::Os).unwrap();
        prepare(&db).unwrap();
        for id in [1, 2] {
            let name = format!("t{id}").into();
            Op::CreateTopic { id, domain: "pulsar", name, partitions: 0 }.apply(&db).unwrap();
            for sequence in 0..1000 {
                let entry = Entry { sequence, last_index: sequence, ..entry(1, 60) };
                Op::Append { topic: id, entry, producer: None }.apply(&db).unwrap();
            }
        }
        let in_use = check(directory.path()).unwrap_err();
        assert!(in_use.message().contains("in use"), "{in_use}");
        drop(opened);
        assert_eq!(check(directory.path()).unwrap(), Checked { entries: 2000, damage: vec![] });

        let change = |sql: &str, from, to| {
            db.execute(sql, [entry_key(1, from), entry_key(1, to)]).unwrap();
        };
        change("UPDATE entry SET body = x'00' WHERE id >= ?1 AND id < ?2", 10, 13);
        change("DELETE FROM entry WHERE id >= ?1 AND id < ?2", 300, 302);
        change("DELETE FROM entry WHERE id >= ?1 AND id < ?2", 0, 1);
        Op::Cursor {
            topic: 2,
            subscription: "s".into(),
            kind: 0,
            below: 0,
            state: vec![1],
            touched_ms: 0,
            owner: None,
        }
        .apply(&db)
        .unwrap();
        let Checked { entries, damage } = check(directory.path()).unwrap();
        assert_eq!(entries, 2000 - 6);
        assert_eq!(
            damage,
            [
                "pulsar t1: entry 0 is missing",
                "pulsar t1: entry 10 cannot be read from the store: its checksum does not match (and 2 after it)",
                "pulsar t1: entry 300 is missing (and 1 after it)",
                "pulsar t2: the position of subscription \"s\" is damaged",
            ]
        );
    }

    #[test]
    fn a_single_entry_and_those_at_the_end_of_a_log_are_missed_as_well() {
        let directory = tempfile::tempdir().unwrap();
        let opened = Directory::open(directory.path()).unwrap();
        let db = opened.connect(Sync::Os).unwrap();
        prepare(&db).unwrap();
        let damage = |topic: u64, sql: &str, from: u64, to: u64| {
            let name = format!("t{topic}").into();
            Op::CreateTopic { id: topic, domain: "pulsar", name, partitions: 0 }.apply(&db).unwrap();
            for sequence in 0..10 {
                let entry = Entry { sequence, last_index: sequence, ..entry(1, 60) };
                Op::Append { topic, entry, producer: None }.apply(&db).unwrap();
            }
            if topic > 2 {
                // A row that knows how far the log went, as after a trim.
                Op::Trim { topic, first: 2, next: 10, next_index: 10 }.apply(&db).unwrap();
            }
            db.execute(sql, [entry_key(topic, from), entry_key(topic, to)]).unwrap();
        };
        let delete = "DELETE FROM entry WHERE id >= ?1 AND id < ?2";
        damage(1, delete, 5, 6);
        damage(2, "UPDATE entry SET body = x'00' WHERE id >= ?1 AND id < ?2", 9, 10);
        damage(3, delete, 7, 10);
        damage(4, delete, 2, 10);
        drop(opened);
        let Checked { entries, damage } = check(directory.path()).unwrap();
        assert_eq!(entries, 9 + 9 + 5);
        assert_eq!(
            damage,
            [
                "pulsar t1: entry 5 is missing",
                "pulsar t2: entry 9 cannot be read from the store: its checksum does not match",
                "pulsar t3: entry 7 is missing (and 2 after it)",
                "pulsar t4: entry 2 is missing (and 7 after it)",
            ]
        );
    }

    /// A topic with ten entries, of which the newest has another key.
    fn with_newest_at(key: i64) -> (tempfile::TempDir, Connection) {
        let directory = tempfile::tempdir().unwrap();
        let opened = Directory::open(directory.path()).unwrap();
        let db = opened.connect(Sync::Os).unwrap();
        prepare(&db).unwrap();
        for id in [1, 2] {
            let name = format!("t{id}").into();
            Op::CreateTopic { id, domain: "pulsar", name, partitions: 0 }.apply(&db).unwrap();
        }
        for sequence in 0..10 {
            let entry = Entry { sequence, last_index: sequence, ..entry(1, 60) };
            Op::Append { topic: 2, entry, producer: None }.apply(&db).unwrap();
        }
        db.execute("UPDATE entry SET id = ?2 WHERE id = ?1", [entry_key(2, 9), key]).unwrap();
        (directory, db)
    }

    #[test]
    fn a_newest_entry_whose_key_is_far_away_is_found_by_the_rows_and_refused_at_the_start() {
        for bit in [4, 20, 39] {
            let far = 9 | 1 << bit;
            let (directory, db) = with_newest_at(entry_key(2, far));
            let rest = far - 10;
            let Checked { entries, damage } = check(directory.path()).unwrap();
            assert_eq!(entries, 9);
            assert_eq!(
                damage,
                [format!("pulsar t2: entry 9 is missing (and {} after it)", rest + 1)],
                "the row itself is one of them"
            );
            let error = super::super::load(&db, "pulsar", 0).unwrap_err();
            assert_eq!((error.kind(), error.topic()), (ErrorKind::Persistence, Some("t2")));
            assert!(error.message().contains(&format!("number {far} instead of 9")), "{error}");
        }
    }

    #[test]
    fn an_entry_whose_key_is_that_of_no_topic_is_listed_and_refused_at_the_start() {
        for bit in [41, 45, 62, 63] {
            let (directory, db) = with_newest_at(entry_key(2, 9) ^ 1 << bit);
            drop(db);
            let Checked { entries, damage } = check(directory.path()).unwrap();
            assert_eq!((entries, damage.len()), (9, 1), "{damage:?}");
            let stray = format!("entry 9 is one of topic number {}", (entry_key(2, 9) ^ 1 << bit) >> 40);
            assert!(damage[0].starts_with(&stray), "{bit}: {damage:?}");
            let error = super::super::Database::open(directory.path(), Sync::Os).unwrap_err();
            assert!(error.message().contains(&stray) && error.message().contains("forebay check"), "{error}");
        }
    }

    #[test]
    fn an_entry_below_a_topic_or_of_one_with_partitions_is_listed_and_refused_at_the_start() {
        let newest = entry_key(2, 9);
        for (change, flaw) in [
            // As far down as the first entries were.
            (
                "UPDATE topic SET first = 4, trim_sum = NULL WHERE id = 2",
                "entry 0 is one of topic number 2, whose oldest entry is 4",
            ),
            (
                "UPDATE topic SET partitions = 3, sum = NULL WHERE id = 2",
                "entry 0 is one of topic number 2, which has partitions",
            ),
        ] {
            let (_directory, db) = with_newest_at(newest);
            assert_eq!(strays(&db, 9).unwrap(), [] as [&str; 0]);
            db.execute_batch(change).unwrap();
            assert_eq!(strays(&db, 9).unwrap(), [flaw]);
            let error = require_topics(&db).unwrap_err();
            assert!(error.message().contains(flaw) && error.message().contains("forebay check"), "{error}");
            // What waits to be deleted does no harm.
            let [start, end] = [entry_key(2, 0), entry_key(3, 0)];
            db.execute("INSERT INTO garbage VALUES (?1, ?2, 0)", [start, end]).unwrap();
            assert_eq!(strays(&db, 9).unwrap(), [] as [&str; 0]);
        }
    }

    /// The places of the keys in the inner pages of the tables, by which SQLite descends.
    fn inner_keys(file: &[u8]) -> Vec<Range<usize>> {
        let mut keys = Vec::new();
        for (number, page) in file.chunks_exact(4096).enumerate() {
            let head = if number == 0 { 100 } else { 0 };
            if page[head] != 5 {
                continue;
            }
            let short = |at: usize| usize::from(u16::from_be_bytes([page[at], page[at + 1]]));
            for cell in 0..short(head + 3) {
                // Behind the number of the child page, as many bytes as have their highest bit, and
                // one.
                let from = short(head + 12 + 2 * cell) + 4;
                let length = page[from..].iter().take(8).take_while(|byte| **byte >= 0x80).count() + 1;
                keys.push(number * 4096 + from..number * 4096 + from + length);
            }
        }
        keys
    }

    #[test]
    fn a_check_and_a_start_end_whatever_the_keys_of_inner_pages_say() {
        let directory = tempfile::tempdir().unwrap();
        let opened = Directory::open(directory.path()).unwrap();
        let db = opened.connect(Sync::Os).unwrap();
        prepare(&db).unwrap();
        for id in [1, 2, 4] {
            let name = format!("t{id}").into();
            Op::CreateTopic { id, domain: "pulsar", name, partitions: 0 }.apply(&db).unwrap();
            for sequence in 0..400 {
                let entry = Entry { sequence, last_index: sequence, ..entry(1, 60) };
                Op::Append { topic: id, entry, producer: None }.apply(&db).unwrap();
            }
        }
        let pragma = "PRAGMA wal_checkpoint(TRUNCATE)";
        db.query_row(pragma, [], |_| Ok(())).unwrap();
        drop((db, opened));
        let sound = std::fs::read(directory.path().join("broker.db")).unwrap();
        assert_eq!(check(directory.path()).unwrap(), Checked { entries: 1200, damage: vec![] });

        let keys = inner_keys(&sound);
        assert!(keys.len() >= 8, "{keys:?}");
        for (at, bit) in keys.into_iter().flatten().flat_map(|at| (0..7).map(move |bit| (at, bit))).step_by(3)
        {
            let mut file = sound.clone();
            file[at] ^= 1 << bit;
            let copy = tempfile::tempdir().unwrap();
            std::fs::write(copy.path().join("broker.db"), file).unwrap();
            // A key that still leads to all rows does no harm.
            if let Ok(Checked { entries, damage }) = check(copy.path()) {
                assert!(entries == 1200 || !damage.is_empty(), "bit {bit} at {at}: {entries} entries");
            }
            // Whether it starts depends on the rows that it reads; it ends.
            drop(super::super::Database::open(copy.path(), Sync::Os));
        }
    }

    #[test]
    fn messages_that_mqtt_needs_are_checked_and_so_is_the_database() {
        use super::super::mqtt::{Op, QueueRow, SessionRow, load};
        let directory = tempfile::tempdir().unwrap();
        let opened = Directory::open(directory.path()).unwrap();
        let db = opened.connect(Sync::Os).unwrap();
        prepare(&db).unwrap();
        let log = load(&db, &crate::log::TopicIds::new(1)).unwrap().log;
        let session = SessionRow {
            id: 1,
            client_id: "c".into(),
            expiry: 60,
            ends_ms: None,
            will: None,
            will_delay: 0,
            owner: None,
        };
        let queued = |position| QueueRow {
            position,
            sequence: position,
            flags: 1,
            ids: vec![],
            packet_id: 0,
            released: false,
        };
        let message = |sequence| Op::Append(log, Entry { sequence, ..entry(1, 60) });
        for op in [
            Op::Session(session),
            message(1),
            message(2),
            message(3),
            Op::Enqueue(1, queued(1)),
            Op::Enqueue(1, queued(2)),
            Op::Enqueue(1, queued(9)),
            Op::Retain("r".into(), 3),
            Op::Retain("s".into(), 8),
        ] {
            op.apply(&db).unwrap();
        }
        db.execute("UPDATE entry SET body = x'00' WHERE id = ?1", [entry_key(log, 2)]).unwrap();
        // SQLite's own check compares the rows with the table.
        db.execute_batch(
            "PRAGMA writable_schema = ON;
             UPDATE sqlite_schema SET sql = replace(sql, 'crc INTEGER', 'crc INTEGER NOT NULL') WHERE name = 'entry';
             PRAGMA writable_schema = OFF;",
        )
        .unwrap();
        drop((db, opened));
        let Checked { entries, damage } = check(directory.path()).unwrap();
        assert_eq!(entries, 2, "1 and 3");
        let (pages, messages): (Vec<_>, Vec<_>) =
            damage.iter().partition(|line| line.starts_with("the database: "));
        assert_eq!(pages, ["the database: NULL value in entry.crc"; 3]);
        assert_eq!(
            messages,
            [
                "mqtt, the queue of client c: entry 2 cannot be read from the store: its checksum does not match",
                "mqtt, retained on s: entry 8 cannot be read from the store: it is missing",
                "mqtt, the queue of client c: entry 9 cannot be read from the store: it is missing",
            ]
        );
    }

    #[test]
    fn a_damaged_number_of_a_topic_is_listed() {
        for id in [-1, i64::MIN, i64::MAX] {
            let directory = tempfile::tempdir().unwrap();
            let store = Directory::open(directory.path()).unwrap();
            let db = store.connect(Sync::Full).unwrap();
            prepare(&db).unwrap();
            Op::CreateTopic { id: 1, domain: "pulsar", name: "t".into(), partitions: 0 }.apply(&db).unwrap();
            db.execute("UPDATE topic SET id = ?1", [id]).unwrap();
            assert_eq!(run_ms(&db).unwrap(), 0);
            drop((db, store));
            let damage = check(directory.path()).unwrap().damage;
            assert!(damage.iter().any(|line| line.contains("topic")), "{id}: {damage:?}");
        }
    }
}
