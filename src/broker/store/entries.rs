//! The tables of topics, their entries, cursors, producers and schemas.
//!
//! The key of an entry is one integer, `topic << 40 | sequence`: a plain rowid table, because
//! SQLite keeps only a quarter of a page of a WITHOUT ROWID row in place, and a kilobyte of payload
//! would take a page of its own. A partition is a topic of its own here; its name leads to the
//! parent, whose row has the partition count.

use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{long, number, put, sum_of as row_sum};
use crate::log::cursor::{Cursor, Properties};
use crate::log::{BATCH, Entry, Last, Source, unreadable};
use forebay_base::checksum::crc32c;
use forebay_base::error::{Error, ErrorKind, Result};

/// Bits of the sequence in an entry's key.
pub(super) const SEQUENCE_BITS: u32 = 40;
/// Time for which a producer's sequence id is kept after its last message, as by the real broker.
const PRODUCER_KEPT_MS: i64 = 6 * 3_600_000;

pub(super) const SCHEMA: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL, sum INTEGER) WITHOUT ROWID;
CREATE TABLE topic (id INTEGER PRIMARY KEY, domain TEXT NOT NULL, name TEXT NOT NULL, partitions INTEGER NOT NULL,
    epoch INTEGER NOT NULL, first INTEGER NOT NULL, next INTEGER NOT NULL, next_index INTEGER NOT NULL,
    sum INTEGER, epoch_sum INTEGER, trim_sum INTEGER, UNIQUE (domain, name));
CREATE TABLE entry (id INTEGER PRIMARY KEY, last_index INTEGER NOT NULL, stored_ms INTEGER NOT NULL,
    publish_ms INTEGER NOT NULL, deliver_ms INTEGER NOT NULL, count INTEGER NOT NULL, batch INTEGER NOT NULL,
    hash INTEGER NOT NULL, crc INTEGER, body BLOB NOT NULL, sum INTEGER, run_ms INTEGER NOT NULL);
CREATE TABLE producer (topic INTEGER NOT NULL, name TEXT NOT NULL, last_sequence INTEGER NOT NULL,
    touched_ms INTEGER NOT NULL, owner TEXT, sum INTEGER, PRIMARY KEY (topic, name)) WITHOUT ROWID;
CREATE TABLE cursor (topic INTEGER NOT NULL, subscription TEXT NOT NULL, kind INTEGER NOT NULL,
    below INTEGER NOT NULL, state BLOB NOT NULL, touched_ms INTEGER NOT NULL, sum INTEGER, owner TEXT,
    PRIMARY KEY (topic, subscription)) WITHOUT ROWID;
CREATE TABLE schema (name TEXT NOT NULL, version INTEGER NOT NULL, data BLOB NOT NULL, sum INTEGER,
    PRIMARY KEY (name, version)) WITHOUT ROWID;
CREATE TABLE garbage (start INTEGER PRIMARY KEY, \"end\" INTEGER NOT NULL, sum INTEGER);
";

/// Key of an entry.
pub(crate) const fn entry_key(topic: u64, sequence: u64) -> i64 {
    (topic << SEQUENCE_BITS | sequence) as i64
}

/// The key of a topic's first entry, and that behind its last. No topic has a number that wraps
/// around, but a damaged row.
pub(crate) const fn keys_of(topic: u64) -> [i64; 2] {
    [entry_key(topic, 0), entry_key(topic.wrapping_add(1), 0)]
}

/// The sequence in a key.
pub(crate) const fn sequence_of(key: i64) -> u64 {
    key as u64 & ((1 << SEQUENCE_BITS) - 1)
}

/// Bytes that are deleted in one transaction, give or take one entry. All other commits wait for
/// it.
const REMOVED_AT_ONCE: usize = 4 << 20;
/// Ranges of garbage that are deleted in one transaction.
const RANGES_AT_ONCE: usize = 100;

/// Deletes the entries with keys from `start` up to `end`. What is too much for this transaction,
/// which has `removed` so many bytes, becomes garbage: nothing refers to it, and [`remove_garbage`]
/// deletes it.
pub(super) fn remove_entries(
    db: &Connection,
    start: i64,
    end: i64,
    removed: &mut usize,
) -> rusqlite::Result<()> {
    if let Some(rest) = remove_some(db, start, end, removed)? {
        // Two removals of one topic may leave ranges that begin with the same entry.
        let sql = "INSERT INTO garbage VALUES (?1, ?2, ?3) \
             ON CONFLICT (start) DO UPDATE SET \"end\" = excluded.\"end\", sum = excluded.sum \
             WHERE excluded.\"end\" > \"end\"";
        put(db, sql, "garbage", &[number(rest), number(end)])?;
    }
    Ok(())
}

/// Deletes some garbage in a transaction of its own. Returns whether there was any.
pub(super) fn remove_garbage(db: &Connection) -> rusqlite::Result<bool> {
    let next = || {
        db.prepare_cached("SELECT start, \"end\", sum FROM garbage LIMIT 1")?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, Option<i64>>(2)?)))
            .optional()
            // A damaged range may have entries that are needed. It stays, and so does everything
            // behind it: the next start tells of it.
            .map(|found| {
                let sum_of = |start, end| i64::from(row_sum("garbage", &[number(start), number(end)]));
                found.filter(|(start, end, sum)| *sum == Some(sum_of(*start, *end)))
            })
    };
    let Some(mut range) = next()? else { return Ok(false) };
    let transaction = db.unchecked_transaction()?;
    let mut removed = 0;
    for _ in 0..RANGES_AT_ONCE {
        let (start, end, _) = range;
        transaction.prepare_cached("DELETE FROM garbage WHERE start = ?1")?.execute([start])?;
        remove_entries(&transaction, start, end, &mut removed)?;
        if removed > REMOVED_AT_ONCE {
            break;
        }
        let Some(more) = next()? else { break };
        range = more;
    }
    transaction.commit()?;
    Ok(true)
}

/// Deletes entries until the transaction has `removed` enough. Returns the first key that is left,
/// if there is more.
fn remove_some(db: &Connection, start: i64, end: i64, removed: &mut usize) -> rusqlite::Result<Option<i64>> {
    let mut stop = None;
    // The length of a body is known without reading the body.
    let mut lengths =
        db.prepare_cached("SELECT id, length(body) FROM entry WHERE id >= ?1 AND id < ?2 ORDER BY id")?;
    let mut rows = lengths.query([start, end])?;
    while let Some(row) = rows.next()? {
        if *removed > REMOVED_AT_ONCE {
            stop = Some(row.get(0)?);
            break;
        }
        *removed += row.get::<_, i64>(1)?.max(0) as usize + 64;
    }
    drop(rows);
    db.prepare_cached("DELETE FROM entry WHERE id >= ?1 AND id < ?2")?
        .execute([start, stop.unwrap_or(end)])?;
    Ok(stop)
}

/// CRC-32C of an entry's row, body first.
fn sum_of(topic: u64, entry: &Entry) -> u32 {
    let mut fields = [0; 64];
    let numbers = [
        entry_key(topic, entry.sequence) as u64,
        entry.last_index,
        entry.stored_ms,
        entry.publish_ms,
        entry.deliver_ms,
        entry.run_ms,
        u64::from(entry.count) << 32 | u64::from(entry.flags),
        u64::from(entry.hash) << 33
            | u64::from(entry.checksum.is_some()) << 32
            | u64::from(entry.checksum.unwrap_or(0)),
    ];
    for (to, number) in fields.chunks_exact_mut(8).zip(numbers) {
        to.copy_from_slice(&number.to_le_bytes());
    }
    crc32c(crc32c(0, &entry.body), &fields)
}

/// Inserts an entry.
pub(crate) fn insert_entry(db: &Connection, topic: u64, entry: &Entry) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT INTO entry VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)")?
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
            sum_of(topic, entry),
            entry.run_ms as i64,
        ])
        .map(drop)
}

/// Notes how long brokers have run on the store.
pub(super) fn set_run_ms(db: &Connection, run_ms: u64) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE meta SET value = ?1, sum = ?2 WHERE key = 'run_ms' AND value < ?1")?
        .execute(params![run_ms as i64, row_sum("meta", &["run_ms".into(), long(run_ms)])])
        .map(drop)
}

/// Sets a number of the store itself.
pub(super) fn set_meta(db: &Connection, key: &str, value: i64) -> rusqlite::Result<()> {
    put(db, "INSERT OR REPLACE INTO meta VALUES (?1, ?2, ?3)", "meta", &[key.into(), number(value)])
}

/// How long brokers have run on the store: as was noted, or as newer rows say that were written
/// before a kill.
pub fn run_ms(db: &Connection) -> Result<u64> {
    let mut most = meta(db, "run_ms")?;
    for table in ["cursor", "producer"] {
        let sql = format!("SELECT max(touched_ms) FROM {table}");
        most = most.max(db.query_row(&sql, [], |row| row.get::<_, Option<i64>>(0))?.unwrap_or(0));
    }
    let mut topics = db.prepare("SELECT id FROM topic WHERE partitions = 0")?;
    let mut last = db.prepare("SELECT max(id) FROM entry WHERE id >= ?1 AND id < ?2")?;
    for topic in topics.query_map([], |row| row.get::<_, i64>(0))? {
        let topic = topic? as u64;
        let newest: Option<i64> = last.query_row(keys_of(topic), |row| row.get(0))?;
        let Some(id) = newest else { continue };
        match Stored::read_one(db, topic, sequence_of(id)) {
            Ok(entry) => most = most.max(entry.run_ms as i64),
            // The time would go back without it.
            Err(unread) if unread.is_of_disk => return Err(unread.error),
            // By a damaged entry everything might be too old at once. It is told of when it is
            // read.
            Err(_) => {}
        }
    }
    Ok(most.max(0) as u64)
}

/// Entries where none can be, and that do not wait to be deleted either: of a topic that does not
/// exist or has partitions, or below a topic's oldest one. The first one of each topic, at most
/// `limit`. A damaged key can make an entry of another topic out of one, which would be missed
/// nowhere if it was the newest.
pub(super) fn strays(db: &Connection, limit: usize) -> Result<Vec<String>> {
    let mut next = db.prepare("SELECT id FROM entry WHERE id >= ?1 ORDER BY id LIMIT 1")?;
    let mut known = db.prepare("SELECT partitions, first FROM topic WHERE id = ?1")?;
    let mut garbage =
        db.prepare("SELECT \"end\" FROM garbage WHERE start <= ?1 ORDER BY start DESC LIMIT 1")?;
    let (mut from, mut found) = (i64::MIN, Vec::new());
    while found.len() < limit
        && let Some(id) = next.query_row([from], |row| row.get::<_, i64>(0)).optional()?
    {
        let topic = id >> SEQUENCE_BITS;
        let behind = keys_of(topic as u64)[1];
        if id < from {
            // SQLite believes the keys by which it descends: this would go round in a circle.
            found.push(format!(
                "the entries are not in the order of their keys: {} of topic number {topic}",
                sequence_of(id)
            ));
            break;
        }
        let of = known.query_row([topic], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)));
        let flaw = match of.optional()? {
            Some((0, first)) if sequence_of(id) >= first as u64 => None,
            Some((0, first)) => Some(format!("whose oldest entry is {first}")),
            Some(_) => Some("which has partitions".to_owned()),
            None => Some("which does not exist".to_owned()),
        };
        from = behind;
        if let Some(flaw) = flaw {
            let end = garbage.query_row([id], |row| row.get::<_, i64>(0)).optional()?;
            if let Some(end) = end.filter(|end| *end > id) {
                from = end;
            } else {
                found.push(format!("entry {} is one of topic number {topic}, {flaw}", sequence_of(id)));
            }
        }
        if from <= id {
            // There is no key behind those of the last topic.
            break;
        }
    }
    Ok(found)
}

/// Refuses a store with an entry of a topic that does not exist.
pub(super) fn require_topics(db: &Connection) -> Result<()> {
    let Some(stray) = strays(db, 1)?.pop() else { return Ok(()) };
    let text = format!(
        "the store is damaged: {stray}; `forebay check` lists all such places: restore the folder from a backup"
    );
    Err(Error::new(ErrorKind::Persistence, text))
}

pub(super) fn insert_topic(
    db: &Connection,
    id: u64,
    domain: &str,
    name: &str,
    partitions: u32,
) -> rusqlite::Result<()> {
    let sum = row_sum("topic", &[long(id), domain.into(), name.into(), number(partitions)]);
    db.prepare_cached("INSERT INTO topic VALUES (?1, ?2, ?3, ?4, 0, 0, 0, 0, ?5, ?6, ?7)")?.execute(
        params![id as i64, domain, name, partitions, sum, epoch_sum(id, 0), trim_sum(id, 0, 0, 0)],
    )?;
    set_meta(db, "next_topic", id as i64 + 1)
}

/// Sets the number of partitions of a parent, whose whole row is known: nothing of it is read.
pub(super) fn set_partitions(
    db: &Connection,
    id: u64,
    domain: &str,
    name: &str,
    partitions: u32,
) -> rusqlite::Result<()> {
    let sum = row_sum("topic", &[long(id), domain.into(), name.into(), number(partitions)]);
    db.execute(
        "UPDATE topic SET domain = ?2, name = ?3, partitions = ?4, sum = ?5 WHERE id = ?1",
        params![id as i64, domain, name, partitions, sum],
    )
    .map(drop)
}

pub(super) fn epoch_sum(id: u64, epoch: u64) -> u32 {
    row_sum("topic.epoch_sum", &[long(id), long(epoch)])
}

pub(super) fn trim_sum(id: u64, first: u64, next: u64, next_index: u64) -> u32 {
    row_sum("topic.trim_sum", &[long(id), long(first), long(next), long(next_index)])
}

/// Creates a topic at start, before the writer runs. Returns its id.
pub(super) fn new_topic(db: &Connection, id: u64, domain: &str, name: &str) -> Result<u64> {
    let transaction = db.unchecked_transaction()?;
    insert_topic(&transaction, id, domain, name, 0)?;
    transaction.commit()?;
    Ok(id)
}

pub(super) fn meta(db: &Connection, key: &str) -> Result<i64> {
    Ok(db.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))?)
}

/// Limit on the partitions of a topic.
pub const MAX_PARTITIONS: u32 = 10_000;

/// A stored topic.
#[derive(Debug)]
pub struct StoredTopic {
    /// Id.
    pub id: u64,
    /// Full name.
    pub name: Arc<str>,
    /// Number of partitions of a parent; 0 otherwise.
    pub partitions: u32,
    /// Epoch of the exclusive producer.
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
    pub producers: Vec<StoredProducer>,
    /// Whether no entry follows.
    pub terminated: bool,
}

/// The name of a producer, with its highest sequence id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredProducer {
    /// Name.
    pub name: Arc<str>,
    /// Highest sequence id.
    pub last: i64,
    /// The user that the name belongs to.
    pub owner: Option<Arc<str>>,
}

/// A stored subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredCursor {
    /// Name.
    pub subscription: Arc<str>,
    /// Type, as a number that the protocol defines.
    pub kind: i32,
    /// Acknowledgements.
    pub cursor: Cursor,
    /// Properties that a client has stored with it.
    pub properties: Properties,
    /// How long brokers had run on the store when the cursor was written, in milliseconds.
    pub touched_ms: u64,
    /// The user that the subscription belongs to.
    pub owner: Option<Arc<str>>,
}

/// The stored topics and schemas of a domain, loaded at start.
#[derive(Debug, Default)]
pub struct Found {
    /// Topics.
    pub topics: Vec<StoredTopic>,
    /// Schemas by name and version.
    pub schemas: Vec<(Arc<str>, u64, Bytes)>,
    /// The first unused topic id.
    pub next_topic: u64,
    /// Bytes in use.
    pub bytes: u64,
}

/// Loads the topics of a domain, and the schemas. `run_ms` is how long brokers have run on the
/// store.
pub fn load(db: &Connection, domain: &str, run_ms: u64) -> Result<Found> {
    // The one without a name is the mark of a terminated topic, which does not age.
    db.execute(
        "DELETE FROM producer WHERE touched_ms < ?1 AND name <> ''",
        [run_ms as i64 - PRODUCER_KEPT_MS],
    )?;
    let mut found = Found {
        next_topic: meta(db, "next_topic")? as u64,
        bytes: forebay_sqlite::used_bytes(db)?,
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
            terminated: false,
        })
    })?;
    for topic in rows {
        let mut topic = topic?;
        load_topic(db, &mut topic)?;
        found.topics.push(topic);
    }
    let mut schemas = db.prepare("SELECT name, version, data FROM schema ORDER BY name, version")?;
    let rows = schemas.query_map([], |row| {
        Ok((row.get::<_, String>(0)?.into(), row.get::<_, i64>(1)? as u64, row.get::<_, Vec<u8>>(2)?.into()))
    })?;
    found.schemas = rows.collect::<rusqlite::Result<_>>()?;
    Ok(found)
}

fn load_topic(db: &Connection, topic: &mut StoredTopic) -> Result<()> {
    let range = keys_of(topic.id);
    let last = db
        .prepare_cached("SELECT id, last_index, count, batch FROM entry WHERE id >= ?1 AND id < ?2 ORDER BY id DESC LIMIT 1")?
        .query_row(range, |row| {
            let batch = row.get::<_, u32>(3)? & BATCH != 0;
            let last = Last { sequence: sequence_of(row.get(0)?), count: row.get(2)?, batch };
            Ok((last, row.get::<_, i64>(1)? as u64))
        })
        .optional()?;
    require_end(db, topic, last.as_ref().map_or(0, |(last, _)| last.sequence + 1))?;
    if let Some((last, last_index)) = last {
        require_key(db, topic, last.sequence)?;
        topic.last = Some(last);
        topic.next = topic.next.max(last.sequence + 1);
        topic.next_index = topic.next_index.max(last_index.saturating_add(1));
    } else {
        topic.first = topic.next;
    }
    // The log counts with these numbers, whatever the checksum of the row says.
    if topic.first > topic.next
        || topic.next >> SEQUENCE_BITS != 0
        || i64::try_from(topic.next_index).is_err()
    {
        let text = format!("the topic's entries go from {} to {}, which is damaged", topic.first, topic.next);
        return Err(Error::new(ErrorKind::Persistence, text).with_topic(topic.name.clone()));
    }
    if topic.partitions > MAX_PARTITIONS {
        let text = format!("the topic has {} partitions, which is damaged", topic.partitions);
        return Err(Error::new(ErrorKind::Persistence, text).with_topic(topic.name.clone()));
    }
    let mut cursors = db.prepare_cached(
        "SELECT subscription, kind, below, state, touched_ms, owner FROM cursor WHERE topic = ?1",
    )?;
    let mut rows = cursors.query([topic.id as i64])?;
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        let below = row.get::<_, i64>(2)? as u64;
        let (cursor, properties) = Cursor::decode_with(below, &row.get::<_, Vec<u8>>(3)?).map_err(|_| {
            Error::new(ErrorKind::Persistence, format!("the cursor of subscription {name:?} is damaged"))
                .with_topic(topic.name.clone())
        })?;
        let touched_ms = row.get::<_, i64>(4)? as u64;
        let kind = row.get(1)?;
        let owner = row.get::<_, Option<String>>(5)?.map(Into::into);
        let subscription = name.into();
        topic.cursors.push(StoredCursor { subscription, kind, cursor, properties, touched_ms, owner });
    }
    let mut producers =
        db.prepare_cached("SELECT name, last_sequence, owner FROM producer WHERE topic = ?1")?;
    let rows = producers.query_map([topic.id as i64], |row| {
        let owner = row.get::<_, Option<String>>(2)?.map(Arc::from);
        Ok(StoredProducer { name: row.get::<_, String>(0)?.into(), last: row.get(1)?, owner })
    })?;
    topic.producers = rows.collect::<rusqlite::Result<_>>()?;
    // See `Op::Terminate`.
    let known = topic.producers.len();
    topic.producers.retain(|producer| !producer.name.is_empty());
    topic.terminated = topic.producers.len() < known;
    Ok(())
}

/// The number of a topic's first entry from `from` on that there is a row for, readable or not.
pub(super) fn next_number(db: &Connection, topic: u64, from: u64) -> Result<Option<u64>> {
    let keys = [entry_key(topic, from), keys_of(topic)[1]];
    let id: Option<i64> = db
        .prepare_cached("SELECT id FROM entry WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT 1")?
        .query_row(keys, |row| row.get(0))
        .optional()?;
    Ok(id.map(sequence_of))
}

/// Refuses entries from the number `behind` on, where the log ends: a damaged key is not at its
/// place, and SQLite finds other rows from the front than from the back.
fn require_end(db: &Connection, topic: &StoredTopic, behind: u64) -> Result<()> {
    let Some(number) = next_number(db, topic.id, behind)? else { return Ok(()) };
    let text = format!(
        "entry {number} is behind the topic's newest one, so the key of one of them is damaged; `forebay check` \
         lists all such places: restore the folder from a backup"
    );
    Err(Error::new(ErrorKind::Persistence, text).with_topic(topic.name.clone()))
}

/// Refuses a newest entry that is damaged and not the next one after its predecessor: its number is
/// not to be believed, and all later entries would be counted from there.
fn require_key(db: &Connection, topic: &StoredTopic, newest: u64) -> Result<()> {
    let before: Option<i64> = db
        .prepare_cached("SELECT max(id) FROM entry WHERE id >= ?1 AND id < ?2")?
        .query_row([entry_key(topic.id, 0), entry_key(topic.id, newest)], |row| row.get(0))?;
    let expected = before.map_or(topic.first, |id| sequence_of(id) + 1);
    if newest == expected {
        return Ok(());
    }
    match Stored::read_one(db, topic.id, newest) {
        Ok(_) => Ok(()),
        Err(unread) if unread.is_of_disk => Err(unread.error),
        Err(_) => {
            let text = format!(
                "the topic's newest entry has the number {newest} instead of {expected}, and is damaged; `forebay check` \
                 lists all such places: restore the folder from a backup"
            );
            Err(Error::new(ErrorKind::Persistence, text).with_topic(topic.name.clone()))
        }
    }
}

/// Why an entry was not read.
#[derive(Debug)]
pub(crate) struct Unread {
    /// The error for those who asked.
    pub(super) error: Error,
    /// Whether the disk does not give it: it may be sound.
    pub(super) is_of_disk: bool,
}

impl Unread {
    fn new(sequence: u64, why: impl std::fmt::Display) -> Self {
        Self { error: unreadable(sequence, why), is_of_disk: false }
    }

    fn of(sequence: u64, error: rusqlite::Error) -> Self {
        let is_of_disk = error.sqlite_error_code() == Some(rusqlite::ErrorCode::SystemIoFailure);
        Self { is_of_disk, ..Self::new(sequence, error) }
    }
}

/// A reader of stored entries.
#[derive(Debug)]
pub struct Stored(Connection);

impl Stored {
    /// Reads committed entries through `connection`.
    pub fn new(connection: Connection) -> Self {
        Self(connection)
    }

    /// One entry.
    pub(crate) fn read_one(db: &Connection, topic: u64, sequence: u64) -> Result<Entry, Unread> {
        let found = read_from(db, topic, sequence, 1, 1)?.pop();
        found.filter(|entry| entry.sequence == sequence).ok_or_else(|| Unread::new(sequence, "it is missing"))
    }
}

fn read_from(
    db: &Connection,
    topic: u64,
    from: u64,
    limit: usize,
    bytes: usize,
) -> Result<Vec<Entry>, Unread> {
    let lost = |error: rusqlite::Error| Unread::of(from, error);
    let mut statement = db.prepare_cached(READ).map_err(lost)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = statement.query([entry_key(topic, from), keys_of(topic)[1], limit]).map_err(lost)?;
    let (mut entries, mut total) = (Vec::new(), 0);
    while total < bytes {
        match rows.next().map_err(lost).and_then(|row| row.map(|row| read_row(topic, from, row)).transpose())
        {
            Ok(Some(entry)) => {
                total += entry.body.len();
                entries.push(entry);
            }
            Ok(None) => break,
            // Those before it are good. The next read begins with the bad one.
            Err(_) if !entries.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(entries)
}

/// See [`super::renew_sums`]. An entry that cannot be read at all keeps its checksum.
#[cfg(feature = "simulation")]
pub(super) fn renew_sums(db: &Connection) -> Result<()> {
    let mut statement = db.prepare(READ)?;
    let rows = statement.query_map([i64::MIN, i64::MAX, -1], |row| {
        let id: i64 = row.get(0)?;
        let sum = read_fields(row).ok().map(|(entry, _)| sum_of((id >> SEQUENCE_BITS) as u64, &entry));
        Ok((id, sum))
    })?;
    for (id, sum) in rows.collect::<rusqlite::Result<Vec<_>>>()? {
        if let Some(sum) = sum {
            db.execute("UPDATE entry SET sum = ?2 WHERE id = ?1", params![id, sum])?;
        }
    }
    Ok(())
}

/// Reads entries by their keys, with the columns of [`read_fields`].
const READ: &str =
    "SELECT id, last_index, stored_ms, publish_ms, deliver_ms, count, batch, hash, crc, body, sum, run_ms
     FROM entry
     WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3";

/// An entry as its row says, and its checksum.
fn read_fields(row: &rusqlite::Row<'_>) -> rusqlite::Result<(Entry, Option<u32>)> {
    let number = |i| row.get::<_, i64>(i).map(|n| n as u64);
    let entry = Entry {
        sequence: sequence_of(row.get(0)?),
        last_index: number(1)?,
        stored_ms: number(2)?,
        publish_ms: number(3)?,
        deliver_ms: number(4)?,
        count: row.get(5)?,
        flags: row.get(6)?,
        hash: row.get(7)?,
        checksum: row.get(8)?,
        body: row.get::<_, Vec<u8>>(9)?.into(),
        run_ms: number(11)?,
    };
    Ok((entry, row.get(10)?))
}

/// Reads and verifies a row. `from` stands for its number if not even that can be read.
fn read_row(topic: u64, from: u64, row: &rusqlite::Row<'_>) -> Result<Entry, Unread> {
    let sequence = row.get(0).map_or(from, sequence_of);
    let (entry, sum) = read_fields(row).map_err(|error| Unread::of(sequence, error))?;
    // A flipped bit can make a NULL of a checksum.
    if sum != Some(sum_of(topic, &entry)) {
        return Err(Unread::new(sequence, "its checksum does not match"));
    }
    Ok(entry)
}

impl Source for Stored {
    fn read(&mut self, topic: u64, from: u64, limit: usize, bytes: usize) -> Result<Vec<Entry>> {
        read_from(&self.0, topic, from, limit, bytes).map_err(|unread| unread.error)
    }
}
