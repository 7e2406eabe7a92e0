//! The broker's tables in SQLite: what is written ([`Op`]), what is found at start ([`load`]), what is read
//! while running ([`Stored`]).
//!
//! Entries lie under one integer, `topic << 40 | sequence`: a plain rowid table, because SQLite keeps only a
//! quarter of a page of a row without rowid in place, and a kilobyte of payload would take a page of its own.
//! A partition is a topic here, with a row that knows its parent's partition count by name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};

use crate::broker::mqtt;
use crate::broker::topic::cursor::Cursor;
use crate::broker::topic::log::{BATCH, Entry, Last, Source};
use crate::broker::topic::subscription::Kind;
use crate::error::{Error, ErrorKind, Result};
use crate::sqlite::{self, Job, Sync};

/// Version of the tables. A store of a newer one is refused, one of an older one is brought up to date.
///
/// * 1: Pulsar
/// * 2: and MQTT
/// * 3: and when a cursor was written
const FORMAT: i64 = 3;
/// Bits of a sequence in an entry's key.
const SEQUENCE_BITS: u32 = 40;
/// Names of producers are forgotten after this time without a message, as by the real broker.
const PRODUCER_KEPT_MS: i64 = 6 * 3_600_000;

const SCHEMA: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE topic (id INTEGER PRIMARY KEY, domain TEXT NOT NULL, name TEXT NOT NULL, partitions INTEGER NOT NULL,
    epoch INTEGER NOT NULL, first INTEGER NOT NULL, next INTEGER NOT NULL, next_index INTEGER NOT NULL,
    UNIQUE (domain, name));
CREATE TABLE entry (id INTEGER PRIMARY KEY, last_index INTEGER NOT NULL, stored_ms INTEGER NOT NULL,
    publish_ms INTEGER NOT NULL, deliver_ms INTEGER NOT NULL, count INTEGER NOT NULL, batch INTEGER NOT NULL,
    hash INTEGER NOT NULL, crc INTEGER, body BLOB NOT NULL);
CREATE TABLE producer (topic INTEGER NOT NULL, name TEXT NOT NULL, last_sequence INTEGER NOT NULL,
    touched_ms INTEGER NOT NULL, PRIMARY KEY (topic, name)) WITHOUT ROWID;
CREATE TABLE cursor (topic INTEGER NOT NULL, subscription TEXT NOT NULL, kind INTEGER NOT NULL,
    below INTEGER NOT NULL, state BLOB NOT NULL, PRIMARY KEY (topic, subscription)) WITHOUT ROWID;
CREATE TABLE schema (name TEXT NOT NULL, version INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (name, version)) WITHOUT ROWID;
";

/// What format 3 adds. Of cursors that were there nobody knows.
const TOUCHED: &str = "ALTER TABLE cursor ADD COLUMN touched_ms INTEGER NOT NULL DEFAULT 0";

/// A change of the store. Applied in the order it was asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A new topic, partition or, with `partitions`, the parent of partitions.
    CreateTopic {
        /// Never used before.
        id: u64,
        /// Whose topic it is.
        domain: &'static str,
        /// In full.
        name: Arc<str>,
        /// 0 for what can hold entries.
        partitions: u32,
    },
    /// A topic and everything that hangs on it.
    DeleteTopic {
        /// Its number.
        id: u64,
    },
    /// The number of an exclusive producer's term.
    Epoch {
        /// The topic.
        topic: u64,
        /// The term.
        epoch: u64,
    },
    /// One entry, and what deduplication must know of its producer.
    Append {
        /// The topic.
        topic: u64,
        /// The entry, numbered.
        entry: Entry,
        /// Name and highest sequence id.
        producer: Option<(Arc<str>, i64)>,
    },
    /// Everything below `first` goes.
    Trim {
        /// The topic.
        topic: u64,
        /// Oldest entry that stays.
        first: u64,
        /// Number of the next entry, which must not be forgotten with the last one.
        next: u64,
        /// Number of the next message.
        next_index: u64,
    },
    /// What a subscription has acknowledged.
    Cursor {
        /// The topic.
        topic: u64,
        /// The subscription.
        subscription: Arc<str>,
        /// Its type.
        kind: Kind,
        /// The mark.
        below: u64,
        /// [`Cursor::encode`].
        state: Vec<u8>,
        /// When it was asked for, in milliseconds since 1970.
        touched_ms: u64,
    },
    /// A subscription ends.
    DropCursor {
        /// The topic.
        topic: u64,
        /// The subscription.
        subscription: Arc<str>,
    },
    /// A version of a schema.
    Schema {
        /// Topic without partition.
        name: Arc<str>,
        /// From 0.
        version: u64,
        /// Serialised `Schema`.
        data: Bytes,
    },
    /// All versions of a schema.
    DropSchema {
        /// Topic without partition.
        name: Arc<str>,
    },
    /// Changes of MQTT's tables that are not torn apart.
    Mqtt(Vec<mqtt::store::Op>),
}

/// Key of an entry.
pub(crate) const fn entry_key(topic: u64, sequence: u64) -> i64 {
    (topic << SEQUENCE_BITS | sequence) as i64
}

/// The sequence in a key.
pub(crate) const fn sequence_of(key: i64) -> u64 {
    key as u64 & ((1 << SEQUENCE_BITS) - 1)
}

/// Writes an entry.
pub(crate) fn insert_entry(db: &Connection, topic: u64, entry: &Entry) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT INTO entry VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)")?
        .execute(params![
            entry_key(topic, entry.sequence),
            entry.last_index as i64,
            entry.stored_ms as i64,
            entry.publish_ms as i64,
            entry.deliver_ms as i64,
            entry.count,
            entry.flags,
            entry.hash,
            entry.checksum,
            &entry.body[..],
        ])
        .map(drop)
}

fn insert_topic(db: &Connection, id: u64, domain: &str, name: &str, partitions: u32) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT INTO topic VALUES (?1, ?2, ?3, ?4, 0, 0, 0, 0)")?
        .execute(params![id as i64, domain, name, partitions])?;
    db.prepare_cached("INSERT OR REPLACE INTO meta VALUES ('next_topic', ?1)")?.execute([id as i64 + 1])?;
    Ok(())
}

/// Makes a topic at start, when nobody else numbers topics; gives its number.
pub(crate) fn new_topic(db: &Connection, domain: &str, name: &str) -> Result<u64> {
    let id = meta(db, "next_topic")? as u64;
    let transaction = db.unchecked_transaction()?;
    insert_topic(&transaction, id, domain, name, 0)?;
    transaction.commit()?;
    Ok(id)
}

fn meta(db: &Connection, key: &str) -> Result<i64> {
    Ok(db.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))?)
}

impl Job for Op {
    fn size(&self) -> usize {
        match self {
            Self::Append { entry, .. } => entry.body.len() + 64,
            Self::Cursor { state, .. } => state.len() + 64,
            Self::Schema { data, .. } => data.len() + 64,
            Self::Mqtt(ops) => ops.iter().map(mqtt::store::Op::size).sum(),
            _ => 64,
        }
    }

    fn apply(&self, db: &Connection) -> rusqlite::Result<()> {
        match self {
            Self::CreateTopic { id, domain, name, partitions } => {
                insert_topic(db, *id, domain, name, *partitions)?;
            }
            Self::DeleteTopic { id } => {
                let id = *id as i64;
                db.execute("DELETE FROM topic WHERE id = ?1", [id])?;
                db.execute("DELETE FROM producer WHERE topic = ?1", [id])?;
                db.execute("DELETE FROM cursor WHERE topic = ?1", [id])?;
                db.prepare_cached("DELETE FROM entry WHERE id >= ?1 AND id < ?2")?
                    .execute([entry_key(id as u64, 0), entry_key(id as u64 + 1, 0)])?;
            }
            Self::Epoch { topic, epoch } => {
                db.execute("UPDATE topic SET epoch = ?2 WHERE id = ?1", [*topic as i64, *epoch as i64])?;
            }
            Self::Append { topic, entry, producer } => {
                insert_entry(db, *topic, entry)?;
                if let Some((name, last)) = producer {
                    db.prepare_cached("INSERT OR REPLACE INTO producer VALUES (?1, ?2, ?3, ?4)")?
                        .execute(params![*topic as i64, name, last, entry.stored_ms as i64])?;
                }
            }
            Self::Trim { topic, first, next, next_index } => {
                db.prepare_cached("UPDATE topic SET first = ?2, next = ?3, next_index = ?4 WHERE id = ?1")?
                    .execute([*topic as i64, *first as i64, *next as i64, *next_index as i64])?;
                db.prepare_cached("DELETE FROM entry WHERE id >= ?1 AND id < ?2")?
                    .execute([entry_key(*topic, 0), entry_key(*topic, *first)])?;
            }
            Self::Cursor { topic, subscription, kind, below, state, touched_ms } => {
                db.prepare_cached("INSERT OR REPLACE INTO cursor VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?.execute(
                    params![
                        *topic as i64,
                        subscription,
                        *kind as i32,
                        *below as i64,
                        state,
                        *touched_ms as i64
                    ],
                )?;
            }
            Self::DropCursor { topic, subscription } => {
                db.prepare_cached("DELETE FROM cursor WHERE topic = ?1 AND subscription = ?2")?
                    .execute(params![*topic as i64, subscription])?;
            }
            Self::Schema { name, version, data } => {
                db.prepare_cached("INSERT OR REPLACE INTO schema VALUES (?1, ?2, ?3)")?.execute(params![
                    name,
                    *version as i64,
                    &data[..]
                ])?;
            }
            Self::DropSchema { name } => {
                db.execute("DELETE FROM schema WHERE name = ?1", [name])?;
            }
            Self::Mqtt(ops) => ops.iter().try_for_each(|op| op.apply(db))?,
        }
        Ok(())
    }
}

/// A topic as the store knows it.
#[derive(Debug)]
pub struct StoredTopic {
    /// Its number.
    pub id: u64,
    /// In full.
    pub name: Arc<str>,
    /// Of a parent.
    pub partitions: u32,
    /// Term of exclusive producers.
    pub epoch: u64,
    /// Oldest entry.
    pub first: u64,
    /// Number of the next entry.
    pub next: u64,
    /// Number of the next message.
    pub next_index: u64,
    /// The last entry.
    pub last: Option<Last>,
    /// Subscriptions.
    pub cursors: Vec<StoredCursor>,
    /// Producers and their highest sequence ids.
    pub producers: Vec<(Arc<str>, i64)>,
}

/// A subscription as the store knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredCursor {
    /// Its name.
    pub subscription: Arc<str>,
    /// Its type.
    pub kind: Kind,
    /// What it has acknowledged.
    pub cursor: Cursor,
    /// When this was written.
    pub touched_ms: u64,
}

/// What was found at start.
#[derive(Debug, Default)]
pub struct Found {
    /// All topics of a domain.
    pub topics: Vec<StoredTopic>,
    /// Schemas by name and version.
    pub schemas: Vec<(Arc<str>, u64, Bytes)>,
    /// The first number that no topic has had.
    pub next_topic: u64,
    /// Bytes in use.
    pub bytes: u64,
}

/// An opened data directory. Dropping it gives the directory free.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Held locked: two brokers on one directory would each give out the same positions.
    _lock: std::fs::File,
}

impl Directory {
    /// Creates or opens `path` for this process alone.
    pub fn open(path: &Path) -> Result<Self> {
        sqlite::private_directory(path)?;
        let lock = sqlite::private_file(&path.join("lock"))?;
        lock.try_lock().map_err(|error| {
            Error::new(
                ErrorKind::InvalidArgument,
                format!("{} is in use by another broker ({error})", path.display()),
            )
        })?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// A connection to the database in it.
    pub fn connect(&self, sync: Sync) -> Result<Connection> {
        sqlite::open(&self.path.join("broker.db"), sync)
    }
}

/// Creates the tables, or brings them up to date.
pub fn prepare(db: &Connection) -> Result<()> {
    let exists =
        db.query_row("SELECT 1 FROM sqlite_master WHERE name = 'meta'", [], |_| Ok(())).optional()?.is_some();
    let transaction = db.unchecked_transaction()?;
    if !exists {
        transaction.execute_batch(SCHEMA)?;
        transaction.execute("INSERT INTO meta VALUES ('format', 1), ('next_topic', 1)", [])?;
    }
    let format = meta(&transaction, "format")?;
    if !(1..=FORMAT).contains(&format) {
        return Err(Error::new(
            ErrorKind::UnsupportedVersion,
            format!("the store has format {format}, this build knows {FORMAT}: use the build that wrote it"),
        ));
    }
    if format < 2 {
        transaction.execute_batch(mqtt::store::SCHEMA)?;
    }
    if format < 3 {
        transaction.execute_batch(TOUCHED)?;
    }
    transaction.execute("UPDATE meta SET value = ?1 WHERE key = 'format'", [FORMAT])?;
    transaction.commit()?;
    Ok(())
}

/// Reads what the tables hold of a domain's topics, and of schemas.
pub fn load(db: &Connection, domain: &str, wall_ms: u64) -> Result<Found> {
    db.execute("DELETE FROM producer WHERE touched_ms < ?1", [wall_ms as i64 - PRODUCER_KEPT_MS])?;
    let mut found = Found {
        next_topic: meta(db, "next_topic")? as u64,
        bytes: sqlite::used_bytes(db)?,
        ..Found::default()
    };
    let mut topics = db.prepare(
        "SELECT id, name, partitions, epoch, first, next, next_index FROM topic WHERE domain = ?1",
    )?;
    let rows = topics.query_map([domain], |row| {
        let number = |i| row.get::<_, i64>(i).map(|n| n as u64);
        Ok(StoredTopic {
            id: number(0)?,
            name: row.get::<_, String>(1)?.into(),
            partitions: row.get(2)?,
            epoch: number(3)?,
            first: number(4)?,
            next: number(5)?,
            next_index: number(6)?,
            last: None,
            cursors: Vec::new(),
            producers: Vec::new(),
        })
    })?;
    for topic in rows {
        let mut topic = topic?;
        load_topic(db, &mut topic, wall_ms)?;
        found.topics.push(topic);
    }
    let mut schemas = db.prepare("SELECT name, version, data FROM schema ORDER BY name, version")?;
    let rows = schemas.query_map([], |row| {
        Ok((row.get::<_, String>(0)?.into(), row.get::<_, i64>(1)? as u64, row.get::<_, Vec<u8>>(2)?.into()))
    })?;
    found.schemas = rows.collect::<rusqlite::Result<_>>()?;
    Ok(found)
}

fn load_topic(db: &Connection, topic: &mut StoredTopic, wall_ms: u64) -> Result<()> {
    let range = [entry_key(topic.id, 0), entry_key(topic.id + 1, 0)];
    let last = db
        .prepare_cached("SELECT id, last_index, count, batch FROM entry WHERE id >= ?1 AND id < ?2 ORDER BY id DESC LIMIT 1")?
        .query_row(range, |row| {
            let batch = row.get::<_, u32>(3)? & BATCH != 0;
            let last = Last { sequence: sequence_of(row.get(0)?), count: row.get(2)?, batch };
            Ok((last, row.get::<_, i64>(1)? as u64))
        })
        .optional()?;
    if let Some((last, last_index)) = last {
        topic.last = Some(last);
        topic.next = topic.next.max(last.sequence + 1);
        topic.next_index = topic.next_index.max(last_index + 1);
    } else {
        topic.first = topic.next;
    }
    let mut cursors = db
        .prepare_cached("SELECT subscription, kind, below, state, touched_ms FROM cursor WHERE topic = ?1")?;
    let mut rows = cursors.query([topic.id as i64])?;
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        let below = row.get::<_, i64>(2)? as u64;
        let cursor = Cursor::decode(below, &row.get::<_, Vec<u8>>(3)?).map_err(|_| {
            Error::new(ErrorKind::Persistence, format!("the cursor of subscription {name:?} is damaged"))
                .with_topic(topic.name.clone())
        })?;
        let touched_ms = match row.get::<_, i64>(4)? {
            0 => wall_ms,
            known => known as u64,
        };
        let kind = Kind::from_number(row.get(1)?);
        topic.cursors.push(StoredCursor { subscription: name.into(), kind, cursor, touched_ms });
    }
    let mut producers = db.prepare_cached("SELECT name, last_sequence FROM producer WHERE topic = ?1")?;
    let rows = producers.query_map([topic.id as i64], |row| {
        Ok((Arc::from(row.get::<_, String>(0)?), row.get::<_, i64>(1)?))
    })?;
    topic.producers = rows.collect::<rusqlite::Result<_>>()?;
    Ok(())
}

/// Reads entries that memory does not hold.
#[derive(Debug)]
pub struct Stored(Connection);

impl Stored {
    /// Reads through `connection`, which sees what is committed.
    pub fn new(connection: Connection) -> Self {
        Self(connection)
    }

    /// One entry, if it is there.
    pub(crate) fn read_one(db: &Connection, topic: u64, sequence: u64) -> Result<Option<Entry>> {
        let mut found = Self::read_from(db, topic, sequence, 1, 1)?;
        Ok(found.pop().filter(|entry| entry.sequence == sequence))
    }

    fn read_from(
        db: &Connection,
        topic: u64,
        from: u64,
        limit: usize,
        bytes: usize,
    ) -> rusqlite::Result<Vec<Entry>> {
        let mut statement = db.prepare_cached(
            "SELECT id, last_index, stored_ms, publish_ms, deliver_ms, count, batch, hash, crc, body FROM entry
             WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3",
        )?;
        let mut rows = statement.query([
            entry_key(topic, from),
            entry_key(topic + 1, 0),
            i64::try_from(limit).unwrap_or(i64::MAX),
        ])?;
        let (mut entries, mut total) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            let number = |i| row.get::<_, i64>(i).map(|n| n as u64);
            let body: Vec<u8> = row.get(9)?;
            total += body.len();
            entries.push(Entry {
                sequence: sequence_of(row.get(0)?),
                last_index: number(1)?,
                stored_ms: number(2)?,
                publish_ms: number(3)?,
                deliver_ms: number(4)?,
                count: row.get(5)?,
                flags: row.get(6)?,
                hash: row.get(7)?,
                checksum: row.get(8)?,
                body: body.into(),
            });
            if total >= bytes {
                break;
            }
        }
        Ok(entries)
    }
}

impl Source for Stored {
    fn read(&mut self, topic: u64, from: u64, limit: usize, bytes: usize) -> Vec<Entry> {
        // A reader that gets nothing waits and asks again; a disk that cannot be read will fail the next
        // commit, and that is what is reported.
        Self::read_from(&self.0, topic, from, limit, bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::topic::log::tests::entry;

    #[test]
    fn what_was_written_is_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let opened = Directory::open(&directory.path().join("data")).unwrap();
        assert!(Directory::open(&directory.path().join("data")).is_err(), "one broker at a time");
        let db = opened.connect(Sync::Os).unwrap();
        prepare(&db).unwrap();
        assert_eq!(load(&db, "pulsar", 0).unwrap().next_topic, 1);
        let mut cursor = Cursor::new(1);
        cursor.ack(3);
        let second = Entry { sequence: 4, last_index: 13, ..entry(10, 70) };
        for op in [
            Op::CreateTopic {
                id: 1,
                domain: "pulsar",
                name: "persistent://public/default/a".into(),
                partitions: 0,
            },
            Op::CreateTopic {
                id: 2,
                domain: "pulsar",
                name: "persistent://public/default/b".into(),
                partitions: 3,
            },
            Op::Append { topic: 1, entry: Entry { sequence: 3, ..entry(1, 60) }, producer: None },
            Op::Append { topic: 1, entry: second.clone(), producer: Some(("p".into(), 9)) },
            Op::Trim { topic: 1, first: 3, next: 4, next_index: 4 },
            Op::Cursor {
                topic: 1,
                subscription: "s".into(),
                kind: Kind::Shared,
                below: 1,
                state: cursor.encode(),
                touched_ms: 50,
            },
            Op::Epoch { topic: 1, epoch: 5 },
            Op::Schema { name: "b".into(), version: 0, data: Bytes::from_static(b"x") },
        ] {
            op.apply(&db).unwrap();
        }
        let found = load(&db, "pulsar", 0).unwrap();
        assert_eq!((found.next_topic, found.topics.len(), found.schemas.len()), (3, 2, 1));
        let topic = &found.topics[0];
        assert_eq!((topic.first, topic.next, topic.next_index, topic.epoch), (3, 5, 14, 5));
        assert_eq!(topic.last, Some(Last { sequence: 4, count: 10, batch: true }));
        let stored = StoredCursor { subscription: "s".into(), kind: Kind::Shared, cursor, touched_ms: 50 };
        assert_eq!(topic.cursors, [stored]);
        assert_eq!(topic.producers, [("p".into(), 9)]);
        assert_eq!(found.topics[1].partitions, 3);
        let mut stored = Stored::new(opened.connect(Sync::Os).unwrap());
        assert_eq!(stored.read(1, 4, 10, 1000), [second]);
        assert_eq!(stored.read(2, 0, 10, 1000), []);
        Op::DeleteTopic { id: 1 }.apply(&db).unwrap();
        Op::DropSchema { name: "b".into() }.apply(&db).unwrap();
        assert_eq!(stored.read(1, 0, 10, 1000), []);
        assert_eq!(load(&db, "pulsar", 0).unwrap().schemas, []);
    }

    #[test]
    fn an_older_format_is_brought_up_to_date_and_a_newer_one_is_refused_by_name() {
        for format in [1, 2] {
            let directory = tempfile::tempdir().unwrap();
            let db = sqlite::open(&directory.path().join("x.db"), Sync::Os).unwrap();
            db.execute_batch(SCHEMA).unwrap();
            if format == 2 {
                db.execute_batch(mqtt::store::SCHEMA).unwrap();
            }
            db.execute("INSERT INTO meta VALUES ('format', ?1), ('next_topic', 4)", [format]).unwrap();
            insert_topic(&db, 4, "tubemq", "demo:0", 0).unwrap();
            let state = Cursor::new(7).encode();
            db.execute("INSERT INTO cursor VALUES (4, 'g', 0, 7, ?1)", [state]).unwrap();
            prepare(&db).unwrap();
            prepare(&db).unwrap();
            assert_eq!(mqtt::store::load(&db).unwrap().log, 5);
            let found = load(&db, "tubemq", 1234).unwrap();
            assert_eq!(found.next_topic, 6);
            let [cursor] = &found.topics[0].cursors[..] else { panic!("one cursor") };
            assert_eq!((cursor.cursor.below(), cursor.touched_ms), (7, 1234), "no older than can be known");
            db.execute("UPDATE meta SET value = ?1 WHERE key = 'format'", [FORMAT + 1]).unwrap();
            assert_eq!(prepare(&db).unwrap_err().kind(), ErrorKind::UnsupportedVersion);
        }
    }
}
