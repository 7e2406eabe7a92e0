//! Checksums of rows that hold positions, sessions and promises: those of all tables but `entry`,
//! which has its own.
//!
//! Columns that are written together share a checksum, because a change that reads the rest of its
//! row to sum it up again would confirm what was damaged in it. Each checksum covers the key of its
//! row. A row is verified when a broker starts and by the check of the store; until the next start
//! the broker goes by what it has in memory.
//!
//! SQLite's own extension with checksums for whole pages (`cksumvfs`) was not taken: it needs eight
//! bytes at the end of each page, so the upgrade rewrites the whole file, and no other program may
//! write the file without it.

use rusqlite::Connection;
use rusqlite::types::{ToSqlOutput, ValueRef};

use forebay_base::error::{Error, ErrorKind, Result};
use forebay_sqlite::structure;
pub(super) use forebay_sqlite::sums::sum_of;

/// A table with checksums.
struct Table {
    name: &'static str,
    /// Columns of the key.
    key: &'static [&'static str],
    /// Columns of checksums, each with its name in [`sum_of`] and the columns that it covers
    /// besides the key.
    sums: &'static [(&'static str, &'static str, &'static [&'static str])],
}

const TABLES: [Table; 11] = [
    Table { name: "meta", key: &["key"], sums: &[("sum", "meta", &["value"])] },
    Table {
        name: "topic",
        key: &["id"],
        sums: &[
            ("sum", "topic", &["domain", "name", "partitions"]),
            ("epoch_sum", "topic.epoch_sum", &["epoch"]),
            ("trim_sum", "topic.trim_sum", &["first", "next", "next_index"]),
        ],
    },
    Table {
        name: "producer",
        key: &["topic", "name"],
        sums: &[("sum", "producer", &["last_sequence", "touched_ms", "owner"])],
    },
    Table {
        name: "cursor",
        key: &["topic", "subscription"],
        sums: &[("sum", "cursor", &["kind", "below", "state", "touched_ms", "owner"])],
    },
    Table { name: "schema", key: &["name", "version"], sums: &[("sum", "schema", &["data"])] },
    Table { name: "garbage", key: &["start"], sums: &[("sum", "garbage", &["\"end\""])] },
    Table { name: "retained", key: &["topic"], sums: &[("sum", "retained", &["sequence"])] },
    Table {
        name: "session",
        key: &["id"],
        sums: &[("sum", "session", &["client_id", "expiry", "ends_ms", "will", "will_delay", "user"])],
    },
    Table {
        name: "subscription",
        key: &["session", "filter"],
        sums: &[("sum", "subscription", &["options", "identifier"])],
    },
    Table {
        name: "queue",
        key: &["session", "position"],
        sums: &[
            ("sum", "queue", &["sequence", "flags", "ids"]),
            ("state_sum", "queue.state_sum", &["packet_id", "released"]),
        ],
    },
    Table { name: "inflight", key: &["session", "packet_id"], sums: &[("sum", "inflight", &[])] },
];

/// A number, as SQLite has it.
pub(super) fn number(value: impl TryInto<i64>) -> ValueRef<'static> {
    value.try_into().map_or(ValueRef::Null, ValueRef::Integer)
}

/// A number of 64 bits without sign, which SQLite has with one.
pub(super) fn long(value: u64) -> ValueRef<'static> {
    ValueRef::Integer(value as i64)
}

/// A blob, or NULL.
pub(super) fn blob(value: Option<&[u8]>) -> ValueRef<'_> {
    value.map_or(ValueRef::Null, ValueRef::Blob)
}

/// Writes a row that has one checksum, in its last column, with the values of the other columns in
/// their order.
pub(super) fn put(db: &Connection, sql: &str, table: &str, values: &[ValueRef<'_>]) -> rusqlite::Result<()> {
    let sum = number(sum_of(table, values));
    let row = values.iter().chain([&sum]).map(|value| ToSqlOutput::Borrowed(*value));
    db.prepare_cached(sql)?.execute(rusqlite::params_from_iter(row)).map(drop)
}

impl Table {
    /// The key's columns, then those of each checksum with the columns that it covers.
    fn select(&self) -> String {
        let mut columns = self.key.join(", ");
        for (sum, _, covered) in self.sums {
            for column in std::iter::once(sum).chain(*covered) {
                columns = format!("{columns}, {column}");
            }
        }
        format!("SELECT {columns} FROM {}", self.name)
    }

    /// The checksums of a row: as they are stored, and as they should be.
    fn sums<'row>(&self, row: &'row rusqlite::Row<'_>) -> rusqlite::Result<Vec<(ValueRef<'row>, u32)>> {
        let key = self.key.len();
        let mut values = (0..key).map(|i| row.get_ref(i)).collect::<rusqlite::Result<Vec<_>>>()?;
        let (mut at, mut sums) = (key, Vec::with_capacity(self.sums.len()));
        for (_, name, covered) in self.sums {
            values.truncate(key);
            for i in at + 1..=at + covered.len() {
                values.push(row.get_ref(i)?);
            }
            sums.push((row.get_ref(at)?, sum_of(name, &values)));
            at += 1 + covered.len();
        }
        Ok(sums)
    }

    /// Tells which row it is.
    fn describe(&self, row: &rusqlite::Row<'_>) -> String {
        let mut text = String::new();
        for (i, column) in self.key.iter().enumerate() {
            let value = match row.get_ref(i) {
                Ok(ValueRef::Integer(number)) => number.to_string(),
                Ok(ValueRef::Text(text)) => format!("{:?}", String::from_utf8_lossy(text)),
                _ => "?".to_owned(),
            };
            text = format!("{text}{}{column} {value}", if i > 0 { ", " } else { "" });
        }
        format!("table {}, {text}", self.name)
    }
}

/// Writes the checksums of all rows as they are, for fuzzing: damage behind them is found when the
/// rows are loaded.
#[cfg(feature = "simulation")]
pub fn renew_sums(db: &Connection) -> Result<()> {
    use rusqlite::types::Value;

    for table in &TABLES {
        let set: Vec<_> = table.sums.iter().map(|(column, ..)| format!("{column} = ?")).collect();
        let key: Vec<_> = table.key.iter().map(|column| format!("{column} IS ?")).collect();
        let update = format!("UPDATE {} SET {} WHERE {}", table.name, set.join(", "), key.join(" AND "));
        let mut statement = db.prepare(&table.select())?;
        let rows = statement.query_map([], |row| {
            let sums = table.sums(row)?.into_iter().map(|(_, sum)| Ok(i64::from(sum).into()));
            sums.chain((0..table.key.len()).map(|i| row.get(i))).collect::<rusqlite::Result<Vec<Value>>>()
        })?;
        for values in rows.collect::<rusqlite::Result<Vec<_>>>()? {
            db.execute(&update, rusqlite::params_from_iter(values))?;
        }
    }
    super::entries::renew_sums(db)
}

/// Verifies all rows: a line for each that is damaged, at most `limit`. Of a table that cannot be
/// read, the rest is not verified.
pub(super) fn damage(db: &Connection, limit: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for table in &TABLES {
        if let Err(error) = verify(db, table, limit, &mut lines) {
            lines.push(format!("table {}: {}", table.name, error.message()));
        }
    }
    lines.truncate(limit);
    lines
}

fn verify(db: &Connection, table: &Table, limit: usize, lines: &mut Vec<String>) -> Result<()> {
    let mut statement = db.prepare(&table.select())?;
    let mut rows = statement.query([])?;
    while lines.len() < limit
        && let Some(row) = rows.next()?
    {
        // A row without a checksum is as bad as one with a wrong one: a flipped bit can make a NULL
        // of a number.
        let sound = |(stored, sum): (ValueRef<'_>, u32)| stored == ValueRef::Integer(i64::from(sum));
        if !table.sums(row)?.into_iter().all(sound) {
            lines.push(format!("{}: its checksum does not match", table.describe(row)));
        }
    }
    Ok(())
}

/// The first damaged place: in the structure of a table, or in a row.
fn first_damage(db: &Connection) -> Result<Option<String>> {
    for Table { name, .. } in &TABLES {
        if let Some(line) = structure::damage(db, Some(name))? {
            return Ok(Some(format!("table {name}: {line}")));
        }
    }
    let mut lines = Vec::new();
    for table in &TABLES {
        verify(db, table, 1, &mut lines)?;
    }
    Ok(lines.pop())
}

/// Refuses a store with a damaged row: a broker would go on with other positions, sessions or
/// promises than it had.
pub(super) fn require_sound(db: &Connection) -> Result<()> {
    match first_damage(db)? {
        None => Ok(()),
        Some(place) => Err(Error::new(
            ErrorKind::Persistence,
            format!(
                "the store is damaged: {place}; `forebay check` lists all such places: restore the folder from \
                 a backup"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::mqtt::{Op as Mqtt, QueueRow, SessionRow};
    use super::super::{Database, Directory, Op, check};
    use super::*;
    use crate::log::Entry;
    use crate::log::tests::entry;
    use forebay_sqlite::{Job as _, Sync};

    /// Rows in all tables, each value of which can be changed.
    fn fill(db: &Connection) {
        let name: Arc<str> = "n".into();
        let create = |id, name: &str, partitions| Op::CreateTopic {
            id,
            domain: "tubemq",
            name: name.into(),
            partitions,
        };
        let queued =
            QueueRow { position: 1, sequence: 1, flags: 1, ids: vec![7], packet_id: 0, released: false };
        let row = SessionRow {
            id: 3,
            client_id: name.clone(),
            expiry: 60,
            ends_ms: None,
            will: Some(vec![1; 9].into()),
            will_delay: 5,
            owner: Some("password:u".into()),
        };
        let session = vec![
            Mqtt::Session(row.clone()),
            Mqtt::Session(SessionRow { ends_ms: Some(1 << 40), will: None, owner: None, ..row }),
            Mqtt::Subscribe(3, "a/#".into(), 1, None),
            Mqtt::Subscribe(3, "b/#".into(), 1, Some(268_435_455)),
            Mqtt::Enqueue(3, queued.clone()),
            Mqtt::Enqueue(3, QueueRow { position: 2, ids: vec![], packet_id: 9, ..queued }),
            Mqtt::InFlight(3, 1, 5, true),
            Mqtt::Received(3, 65_535),
            Mqtt::Retain("r".into(), 1),
        ];
        let producer =
            crate::store::StoredProducer { name: name.clone(), last: i64::MAX, owner: Some("ann".into()) };
        for op in [
            create(1, "n", 0),
            create(2, "gone", 0),
            create(5, "parent", 1),
            Op::Epoch { topic: 1, epoch: 8 },
            Op::Append { topic: 1, entry: entry(1, 60), producer: Some(producer) },
            Op::Append { topic: 2, entry: Entry { sequence: 1, ..entry(1, 60) }, producer: None },
            Op::Trim { topic: 1, first: 0, next: 1, next_index: 7 },
            Op::Cursor {
                topic: 1,
                subscription: name.clone(),
                kind: -1,
                below: 4,
                state: vec![0, 0],
                touched_ms: 5,
                owner: Some("u".into()),
            },
            Op::Cursor {
                topic: 1,
                subscription: "free".into(),
                kind: 1,
                below: 4,
                state: vec![0, 0],
                touched_ms: 5,
                owner: None,
            },
            Op::Schema { name, version: 0, data: b"x".to_vec().into() },
            Op::Mqtt(session),
            Op::Run(1234),
            Op::Run(1000),
        ] {
            op.apply(db).unwrap();
        }
        for _ in 0..2 {
            Op::DeleteTopic { id: 2 }.apply_after(db, &mut (1 << 30)).unwrap();
        }
    }

    #[test]
    fn a_change_of_any_value_of_any_row_is_found_and_keeps_the_broker_from_starting() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path(), Sync::Os).unwrap();
        let db = database.connection();
        fill(db);
        assert_eq!(damage(db, 9), [] as [&str; 0]);
        let mut values = 0;
        for table in &TABLES {
            let mut covered: Vec<&str> = table.key.to_vec();
            for (sum, _, columns) in table.sums {
                covered.push(sum);
                covered.extend(*columns);
            }
            let mut info =
                db.prepare(&format!("SELECT count(*) FROM pragma_table_info('{}')", table.name)).unwrap();
            let columns: i64 = info.query_row([], |row| row.get(0)).unwrap();
            assert_eq!(covered.len() as i64, columns, "a column of {} has no checksum", table.name);
            let rows: i64 =
                db.query_row(&format!("SELECT count(*) FROM {}", table.name), [], |row| row.get(0)).unwrap();
            assert!(rows > 0, "{}", table.name);
            for column in covered {
                for change in [
                    format!("CAST({column} AS TEXT) || 'x'"),
                    format!("CAST({column} AS INTEGER) + 1"),
                    format!("CAST({column} AS INTEGER) | 1 << 62"),
                    format!("CAST({column} AS BLOB)"),
                    "NULL".to_owned(),
                    "0".to_owned(),
                ] {
                    let change_all = format!(
                        "UPDATE {} SET {column} = {change} WHERE {column} IS NOT {change}",
                        table.name
                    );
                    let transaction = db.unchecked_transaction().unwrap();
                    // What the tables do not allow is not in the file, or found by SQLite's own
                    // check.
                    if let Ok(changed) = transaction.execute(&change_all, []) {
                        let found = damage(db, 100);
                        assert_eq!(found.len(), changed, "{change_all}: {found:#?}");
                        let begin = format!("table {}, {} ", table.name, table.key[0]);
                        assert!(found.iter().all(|line| line.starts_with(&begin)), "{found:?}");
                        values += changed;
                    }
                }
            }
        }
        assert!(values > 200, "{values}");

        db.execute("UPDATE cursor SET below = 5 WHERE owner NOT NULL", []).unwrap();
        drop(database);
        let place = "table cursor, topic 1, subscription \"n\": its checksum does not match";
        let error = Database::open(directory.path(), Sync::Os).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Persistence);
        assert!(error.message().contains(place) && error.message().contains("forebay check"), "{error}");
        assert_eq!(check::check(directory.path()).unwrap().damage, [place]);

        // A value of another type cannot be loaded, and is listed like the rest.
        let db = Directory::open(directory.path()).unwrap().connect(Sync::Os).unwrap();
        db.execute_batch("UPDATE cursor SET state = 'text' WHERE owner NOT NULL").unwrap();
        drop(db);
        let found = check::check(directory.path()).unwrap().damage;
        assert!(found.iter().any(|line| line == place), "{found:?}");
        assert!(found.last().unwrap().starts_with("what follows could not be read: "), "{found:?}");
    }

    #[test]
    fn a_change_beside_a_damaged_value_does_not_confirm_it() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path(), Sync::Os).unwrap();
        let db = database.connection();
        fill(db);
        db.execute_batch(
            "UPDATE topic SET partitions = 3 WHERE id = 1; UPDATE queue SET sequence = 9 WHERE position = 1",
        )
        .unwrap();
        for op in [
            Op::Epoch { topic: 1, epoch: 9 },
            Op::Trim { topic: 1, first: 7, next: 8, next_index: 9 },
            Op::Mqtt(vec![Mqtt::InFlight(3, 1, 6, false)]),
            Op::CreateTopic { id: 4, domain: "tubemq", name: "next".into(), partitions: 0 },
        ] {
            op.apply(db).unwrap();
        }
        let found = damage(db, 9);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn damaged_garbage_deletes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path(), Sync::Os).unwrap();
        let db = database.connection();
        fill(db);
        db.execute("UPDATE garbage SET start = 0", []).unwrap();
        let count = || -> i64 { db.query_row("SELECT count(*) FROM entry", [], |row| row.get(0)).unwrap() };
        let before = count();
        assert!(!Op::clean_up(db).unwrap());
        assert_eq!((before, count()), (2, 2));
    }

    #[test]
    fn the_first_of_several_damaged_rows_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path(), Sync::Os).unwrap();
        let db = database.connection();
        fill(db);
        db.execute("UPDATE queue SET sequence = 9", []).unwrap();
        let found = damage(db, 9);
        assert_eq!((found.len(), damage(db, 1)), (2, found[..1].to_vec()));
        let error = require_sound(db).unwrap_err();
        assert!(error.message().contains(&found[0]), "{error}");
    }
}
