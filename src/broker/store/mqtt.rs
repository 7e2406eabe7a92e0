//! MQTT's tables: [`Op`] is what is written, [`load`] reads what is found at start.
//!
//! Messages are entries of one log, numbered in order of arrival whatever their topic. A message is
//! needed by some sessions and perhaps a retained slot, not by cursors over a dense log, and it is
//! removed once the last of them has released it. Queues and slots hold numbers, not copies.

use std::sync::Arc;

use bytes::Bytes;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, params};

use crate::log::{Entry, TopicIds};
use crate::store::entries::{self, Stored, entry_key, keys_of, sequence_of};
use crate::store::rows::{blob, long, number, put, sum_of};
use forebay_base::error::Result;

/// Domain of the log in the topic table.
pub(super) const DOMAIN: &str = "mqtt";

pub(super) const SCHEMA: &str = "
CREATE TABLE retained (topic TEXT PRIMARY KEY, sequence INTEGER NOT NULL, sum INTEGER) WITHOUT ROWID;
CREATE TABLE session (id INTEGER PRIMARY KEY, client_id TEXT NOT NULL UNIQUE, expiry INTEGER NOT NULL, ends_ms INTEGER,
    will BLOB, will_delay INTEGER NOT NULL, user TEXT, sum INTEGER);
CREATE TABLE subscription (session INTEGER NOT NULL, filter TEXT NOT NULL, options INTEGER NOT NULL,
    identifier INTEGER, sum INTEGER, PRIMARY KEY (session, filter)) WITHOUT ROWID;
CREATE TABLE queue (session INTEGER NOT NULL, position INTEGER NOT NULL, sequence INTEGER NOT NULL,
    flags INTEGER NOT NULL, ids BLOB, packet_id INTEGER NOT NULL, released INTEGER NOT NULL, sum INTEGER,
    state_sum INTEGER, PRIMARY KEY (session, position)) WITHOUT ROWID;
CREATE TABLE inflight (session INTEGER NOT NULL, packet_id INTEGER NOT NULL, sum INTEGER,
    PRIMARY KEY (session, packet_id)) WITHOUT ROWID;
";

/// A session's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Id, never reused.
    pub id: u64,
    /// Client identifier.
    pub client_id: Arc<str>,
    /// Session expiry interval in seconds.
    pub expiry: u32,
    /// When the session expires, in milliseconds that brokers have run on the store (in
    /// milliseconds since 1970 in older stores); `None` while it is connected.
    pub ends_ms: Option<u64>,
    /// Will message, as an encoded PUBLISH.
    pub will: Option<Bytes>,
    /// Will delay interval in seconds.
    pub will_delay: u32,
    /// The user that made the session, if the broker asks for credentials: `password:` or `token:`,
    /// and the name.
    pub owner: Option<Arc<str>>,
}

impl SessionRow {
    fn put(&self, db: &Connection) -> rusqlite::Result<()> {
        let values = [
            long(self.id),
            (&*self.client_id).into(),
            number(self.expiry),
            self.ends_ms.map_or(ValueRef::Null, long),
            blob(self.will.as_deref()),
            number(self.will_delay),
            self.owner.as_deref().map_or(ValueRef::Null, Into::into),
        ];
        let sql = "INSERT OR REPLACE INTO session VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        put(db, sql, "session", &values)
    }
}

/// A row of a session's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRow {
    /// Position in the queue.
    pub position: u64,
    /// Number of the message.
    pub sequence: u64,
    /// QoS in the low two bits, then RETAIN.
    pub flags: u8,
    /// Subscription identifiers.
    pub ids: Vec<u32>,
    /// Packet identifier; 0 before one is assigned.
    pub packet_id: u16,
    /// Whether PUBREC was received.
    pub released: bool,
}

impl QueueRow {
    fn insert(&self, db: &Connection, session: u64) -> rusqlite::Result<()> {
        let ids: Vec<u8> = self.ids.iter().flat_map(|id| id.to_be_bytes()).collect();
        let ids = (!ids.is_empty()).then_some(&ids[..]);
        let values = [long(session), long(self.position), long(self.sequence), number(self.flags), blob(ids)];
        db.prepare_cached("INSERT INTO queue VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?
            .execute(params![
                session as i64,
                self.position as i64,
                self.sequence as i64,
                self.flags,
                ids,
                self.packet_id,
                self.released,
                sum_of("queue", &values),
                state_sum(session, self.position, self.packet_id, self.released),
            ])
            .map(drop)
    }
}

/// A change of the tables.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Stores a message.
    Append(u64, Entry),
    /// Removes a message that no session or slot needs.
    Remove(u64, u64),
    /// Stores the state of a session.
    Session(SessionRow),
    /// Deletes a session with its subscriptions and queue.
    DropSession(u64),
    /// Stores a subscription: session, filter, options in the encoding of MQTT 5, identifier.
    Subscribe(u64, Arc<str>, u8, Option<u32>),
    /// Deletes a subscription.
    Unsubscribe(u64, Arc<str>),
    /// Adds a message to a session's queue.
    Enqueue(u64, QueueRow),
    /// Sets the packet identifier of the row at a position of a session's queue, and whether PUBREC
    /// was received.
    InFlight(u64, u64, u16, bool),
    /// Removes the row at a position: the client has acknowledged the message.
    Dequeue(u64, u64),
    /// Notes the packet identifier of a received QoS 2 PUBLISH.
    Received(u64, u16),
    /// Removes that packet identifier: PUBREL was received.
    Released(u64, u16),
    /// Sets the retained message of a topic.
    Retain(Arc<str>, u64),
    /// Removes the retained message of a topic.
    Unretain(Arc<str>),
}

impl Op {
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Append(_, entry) => entry.body.len() + 64,
            Self::Session(row) => row.will.as_ref().map_or(0, Bytes::len) + 128,
            Self::Subscribe(_, filter, ..) => filter.len() + 64,
            _ => 64,
        }
    }

    pub(crate) fn apply(&self, db: &Connection) -> rusqlite::Result<()> {
        match self {
            Self::Append(log, entry) => {
                entries::insert_entry(db, *log, entry)?;
            }
            Self::Remove(log, sequence) => {
                db.prepare_cached("DELETE FROM entry WHERE id = ?1")?
                    .execute([entry_key(*log, *sequence)])?;
            }
            Self::Session(row) => row.put(db)?,
            Self::DropSession(id) => {
                for table in ["subscription", "queue", "inflight"] {
                    db.prepare_cached(&format!("DELETE FROM {table} WHERE session = ?1"))?
                        .execute([*id as i64])?;
                }
                db.prepare_cached("DELETE FROM session WHERE id = ?1")?.execute([*id as i64])?;
            }
            Self::Subscribe(session, filter, options, id) => {
                let values =
                    [long(*session), (&**filter).into(), number(*options), id.map_or(ValueRef::Null, number)];
                let sql = "INSERT OR REPLACE INTO subscription VALUES (?1, ?2, ?3, ?4, ?5)";
                put(db, sql, "subscription", &values)?;
            }
            Self::Unsubscribe(session, filter) => {
                db.prepare_cached("DELETE FROM subscription WHERE session = ?1 AND filter = ?2")?
                    .execute(params![*session as i64, filter])?;
            }
            Self::Enqueue(session, row) => row.insert(db, *session)?,
            Self::InFlight(session, position, packet_id, released) => {
                set_state(db, *session, *position, *packet_id, *released)?;
            }
            Self::Dequeue(session, position) => {
                db.prepare_cached("DELETE FROM queue WHERE session = ?1 AND position = ?2")?
                    .execute([*session as i64, *position as i64])?;
            }
            Self::Received(session, packet_id) => {
                let values = [long(*session), number(*packet_id)];
                put(db, "INSERT OR REPLACE INTO inflight VALUES (?1, ?2, ?3)", "inflight", &values)?;
            }
            Self::Released(session, packet_id) => {
                db.prepare_cached("DELETE FROM inflight WHERE session = ?1 AND packet_id = ?2")?
                    .execute(params![*session as i64, packet_id])?;
            }
            Self::Retain(topic, sequence) => {
                let values = [(&**topic).into(), long(*sequence)];
                put(db, "INSERT OR REPLACE INTO retained VALUES (?1, ?2, ?3)", "retained", &values)?;
            }
            Self::Unretain(topic) => {
                db.prepare_cached("DELETE FROM retained WHERE topic = ?1")?.execute([topic])?;
            }
        }
        Ok(())
    }
}

/// Applies [`Op::InFlight`].
fn set_state(
    db: &Connection,
    session: u64,
    position: u64,
    packet_id: u16,
    released: bool,
) -> rusqlite::Result<()> {
    let sum = state_sum(session, position, packet_id, released);
    db.prepare_cached(
        "UPDATE queue SET packet_id = ?3, released = ?4, state_sum = ?5 WHERE session = ?1 AND position = ?2",
    )?
    .execute(params![session as i64, position as i64, packet_id, released, sum])
    .map(drop)
}

/// Checksum of what [`Op::InFlight`] changes.
fn state_sum(session: u64, position: u64, packet_id: u16, released: bool) -> u32 {
    sum_of("queue.state_sum", &[long(session), long(position), number(packet_id), number(released)])
}

/// A stored session.
#[derive(Debug)]
pub struct StoredSession {
    /// Row of the session.
    pub row: SessionRow,
    /// Filters, options and identifiers.
    pub subscriptions: Vec<(Arc<str>, u8, Option<u32>)>,
    /// Queue, in order.
    pub queue: Vec<QueueRow>,
    /// Packet identifiers of QoS 2 between PUBLISH and PUBREL.
    pub received: Vec<u16>,
}

/// The stored sessions and retained messages, loaded at start.
#[derive(Debug, Default)]
pub struct Found {
    /// Topic id of the log.
    pub log: u64,
    /// All sessions.
    pub sessions: Vec<StoredSession>,
    /// Retained messages.
    pub retained: Vec<Entry>,
    /// The first damaged message: a retained one that cannot be read, or one that nothing refers
    /// to.
    pub damage: Option<String>,
    /// Number of the next message.
    pub next_sequence: u64,
    /// Number of the next session.
    pub next_session: u64,
    /// Bytes in use.
    pub bytes: u64,
}

/// Removes messages that the last run no longer needed, but had not removed yet. One that cannot be
/// read stays and is told: a damaged key may have brought an entry of another topic here.
fn remove_leftovers(db: &Connection, log: u64) -> Result<Option<String>> {
    let mut statement = db.prepare(
        "SELECT id FROM entry WHERE id >= ?1 AND id < ?2 AND id - ?1 NOT IN
            (SELECT sequence FROM queue UNION SELECT sequence FROM retained)",
    )?;
    let leftovers: Vec<i64> =
        statement.query_map(keys_of(log), |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let mut damage = None;
    for key in leftovers {
        match Stored::read_one(db, log, sequence_of(key)) {
            Ok(_) => drop(db.prepare_cached("DELETE FROM entry WHERE id = ?1")?.execute([key])?),
            Err(unread) if unread.is_of_disk => return Err(unread.error),
            Err(unread) => {
                damage.get_or_insert_with(|| {
                    format!(
                        "a message that nothing refers to, perhaps an entry of another topic: {}",
                        unread.error
                    )
                });
            }
        }
    }
    Ok(damage)
}

/// Loads the tables. Creates the log if it does not exist.
pub fn load(db: &Connection, topic_ids: &TopicIds) -> Result<Found> {
    let known = db
        .query_row("SELECT id FROM topic WHERE domain = ?1", [DOMAIN], |row| row.get::<_, i64>(0))
        .optional()?;
    let log = match known {
        Some(id) => id as u64,
        None => entries::new_topic(db, topic_ids.next(), DOMAIN, DOMAIN)?,
    };
    let range = keys_of(log);
    let damage = remove_leftovers(db, log)?;
    let last: Option<i64> =
        db.query_row("SELECT max(id) FROM entry WHERE id >= ?1 AND id < ?2", range, |row| row.get(0))?;
    let mut found = Found {
        log,
        damage,
        next_sequence: last.map_or(1, |id| sequence_of(id) + 1),
        next_session: 1,
        bytes: forebay_sqlite::used_bytes(db)?,
        ..Found::default()
    };
    let mut sessions =
        db.prepare("SELECT id, client_id, expiry, ends_ms, will, will_delay, user FROM session")?;
    let rows = sessions.query_map([], |row| {
        Ok(SessionRow {
            id: row.get::<_, i64>(0)? as u64,
            client_id: row.get::<_, String>(1)?.into(),
            expiry: row.get(2)?,
            ends_ms: row.get::<_, Option<i64>>(3)?.map(|ms| ms as u64),
            will: row.get::<_, Option<Vec<u8>>>(4)?.map(Into::into),
            will_delay: row.get(5)?,
            owner: row.get::<_, Option<String>>(6)?.map(Into::into),
        })
    })?;
    for row in rows {
        let session = load_session(db, row?)?;
        found.next_session = found.next_session.max(session.row.id.saturating_add(1));
        found.sessions.push(session);
    }
    let mut retained = db.prepare("SELECT sequence FROM retained ORDER BY sequence")?;
    let sequences: Vec<i64> = retained.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    for sequence in sequences {
        match Stored::read_one(db, log, sequence as u64) {
            Ok(entry) => found.retained.push(entry),
            Err(unread) if unread.is_of_disk => return Err(unread.error),
            // The other topics are not to blame. The row stays, and so does the damage at the next
            // start.
            Err(unread) => {
                found.damage.get_or_insert_with(|| format!("a retained message: {}", unread.error));
            }
        }
    }
    Ok(found)
}

fn load_session(db: &Connection, row: SessionRow) -> Result<StoredSession> {
    let id = row.id as i64;
    let mut statement =
        db.prepare_cached("SELECT filter, options, identifier FROM subscription WHERE session = ?1")?;
    let subscriptions = statement
        .query_map([id], |row| Ok((row.get::<_, String>(0)?.into(), row.get(1)?, row.get(2)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let mut statement = db.prepare_cached(
        "SELECT position, sequence, flags, ids, packet_id, released FROM queue WHERE session = ?1 ORDER BY position",
    )?;
    let queue = statement
        .query_map([id], |row| {
            let ids: Vec<u8> = row.get::<_, Option<Vec<u8>>>(3)?.unwrap_or_default();
            Ok(QueueRow {
                position: row.get::<_, i64>(0)? as u64,
                sequence: row.get::<_, i64>(1)? as u64,
                flags: row.get(2)?,
                ids: ids.chunks_exact(4).map(|id| u32::from_be_bytes([id[0], id[1], id[2], id[3]])).collect(),
                packet_id: row.get(4)?,
                released: row.get(5)?,
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    let mut statement = db.prepare_cached("SELECT packet_id FROM inflight WHERE session = ?1")?;
    let received = statement.query_map([id], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    Ok(StoredSession { row, subscriptions, queue, received })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::entry;
    use crate::store::Database;
    use forebay_sqlite::Sync;

    fn row(id: u64, client_id: &str) -> SessionRow {
        let client_id = client_id.into();
        SessionRow { id, client_id, expiry: 60, ends_ms: None, will: None, will_delay: 0, owner: None }
    }

    fn queued(position: u64, sequence: u64) -> QueueRow {
        QueueRow { position, sequence, flags: 5, ids: vec![1, 1 << 24], packet_id: 0, released: false }
    }

    #[test]
    fn an_entry_that_a_damaged_key_brought_here_is_told_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path(), Sync::Os).unwrap();
        let (db, ids) = (database.connection(), TopicIds::new(5));
        let log = load(db, &ids).unwrap().log;
        let message = |sequence| Entry { sequence, ..entry(1, 60) };
        for op in [Op::Append(log, message(1)), Op::Append(log + 1, message(2))] {
            op.apply(db).unwrap();
        }
        let keys = [entry_key(log, 2), entry_key(log + 1, 2)];
        db.execute("UPDATE entry SET id = ?1 WHERE id = ?2", keys).unwrap();
        for _ in 0..2 {
            let damage = load(db, &ids).unwrap().damage.unwrap();
            assert!(damage.contains("entry 2") && damage.contains("another topic"), "{damage}");
            let left: Vec<i64> = db
                .prepare("SELECT id FROM entry")
                .unwrap()
                .query_map([], |row| row.get(0))
                .unwrap()
                .collect::<rusqlite::Result<_>>()
                .unwrap();
            assert_eq!(left, [keys[0]], "the message that nothing refers to is gone");
        }
    }

    #[test]
    fn sessions_and_retained_messages_are_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path(), Sync::Os).unwrap();
        let (db, ids) = (database.connection(), TopicIds::new(5));
        let found = load(db, &ids).unwrap();
        assert_eq!((found.log, found.next_sequence, found.next_session), (5, 1, 1));
        assert!(found.sessions.is_empty() && found.retained.is_empty() && found.bytes >= 4096);
        let message = |sequence| Entry { sequence, ..entry(1, 60) };
        let first = SessionRow {
            ends_ms: Some(70),
            will: Some(Bytes::from_static(b"will")),
            will_delay: 9,
            owner: Some("password:ann".into()),
            ..row(3, "one")
        };
        for op in [
            Op::Session(row(4, "two")),
            Op::Session(first.clone()),
            Op::Subscribe(3, "a/#".into(), 2, Some(7)),
            Op::Subscribe(3, "b".into(), 1, None),
            Op::Subscribe(4, "a/#".into(), 1, None),
            Op::Unsubscribe(3, "b".into()),
            Op::Received(3, 8),
            Op::Received(3, 9),
            Op::Released(3, 8),
            Op::Append(5, message(1)),
            Op::Append(5, message(2)),
            Op::Append(5, message(3)),
            Op::Append(5, message(4)),
            Op::Append(5, message(5)),
            Op::Append(5, message(6)),
            Op::Enqueue(3, queued(10, 1)),
            Op::Enqueue(3, queued(11, 2)),
            Op::Enqueue(4, QueueRow { ids: vec![], ..queued(10, 2) }),
            Op::InFlight(3, 11, 77, true),
            Op::Dequeue(3, 10),
            Op::Retain("r".into(), 3),
            Op::Retain("r".into(), 4),
            Op::Retain("s".into(), 5),
            Op::Unretain("s".into()),
        ] {
            op.apply(db).unwrap();
        }
        let found = load(db, &ids).unwrap();
        assert_eq!((found.log, found.next_session), (5, 5));
        assert_eq!(found.next_sequence, 5, "what is needed no longer is removed at a start");
        assert_eq!((found.retained, found.damage), (vec![message(4)], None));
        assert_eq!(found.sessions.len(), 2);
        let one = &found.sessions[0];
        assert_eq!((&one.row, one.received.as_slice()), (&first, &[9][..]));
        assert_eq!(one.subscriptions, [("a/#".into(), 2, Some(7))]);
        assert_eq!(one.queue, [QueueRow { packet_id: 77, released: true, ..queued(11, 2) }]);
        let two = &found.sessions[1];
        assert_eq!((&two.row, two.received.as_slice()), (&row(4, "two"), &[][..]));
        assert_eq!(two.queue, [QueueRow { ids: vec![], ..queued(10, 2) }]);
        assert!(Stored::read_one(db, 5, 1).is_err() && Stored::read_one(db, 5, 2).is_ok());

        Op::Remove(5, 4).apply(db).unwrap();
        Op::DropSession(3).apply(db).unwrap();
        let found = load(db, &ids).unwrap();
        assert_eq!((found.sessions.len(), found.next_session), (1, 5));
        assert_eq!(found.sessions[0].row.id, 4);
        assert!(found.retained.is_empty());
        assert!(found.damage.is_some_and(|text| text.contains("entry 4")), "it is retained and not there");
        for table in ["subscription", "queue", "inflight"] {
            let rest = format!("SELECT count(*) FROM {table} WHERE session = 3");
            assert_eq!(db.query_row(&rest, [], |row| row.get::<_, i64>(0)).unwrap(), 0, "{table}");
        }
    }
}
