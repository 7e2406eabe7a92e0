//! The data directory, its database and the version of its tables.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension};

use super::entries::{self, Stored, meta};
use super::mqtt;
use super::queue::{Reports, StoreQueue};
use super::rows;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_sqlite::Sync;

/// Version of the tables. A store of another version is refused. A change of the tables needs the
/// next number.
const FORMAT: i64 = 2;

/// The database in the directory of a store.
pub(crate) const DATABASE: &str = "broker.db";

/// The database of the store in the directory `path`, which must have one.
pub(super) fn require_store(path: &Path) -> Result<PathBuf> {
    let database = path.join(DATABASE);
    if !database.is_file() {
        let text = format!("{} is not the folder of a store: it has no {DATABASE}", path.display());
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    Ok(database)
}

/// Adds to an error which folder it is about.
pub(super) fn in_folder(path: &Path) -> impl Fn(Error) -> Error {
    move |error: Error| {
        Error::new(error.kind(), format!("the data folder {}: {}", path.display(), error.message()))
    }
}

/// An open data directory. Dropping it releases the directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// The lock of this process: two brokers in one directory would assign the same positions.
    _lock: Connection,
}

impl Directory {
    /// Creates or opens `path` for this process alone.
    pub fn open(path: &Path) -> Result<Self> {
        forebay_sqlite::private_directory(path).map_err(in_folder(path))?;
        let in_use = || {
            Error::new(
                ErrorKind::Io,
                format!(
                    "{} is in use by another broker: stop that broker or choose another directory",
                    path.display()
                ),
            )
        };
        let lock = forebay_sqlite::claim(&path.join("lock")).map_err(in_folder(path))?.ok_or_else(in_use)?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Connects to the database in the directory.
    pub fn connect(&self, sync: Sync) -> Result<Connection> {
        forebay_sqlite::open(&self.path.join(DATABASE), sync).map_err(in_folder(&self.path))
    }
}

/// The open database of a data directory.
#[derive(Debug)]
pub struct Database {
    directory: Directory,
    connection: Connection,
    sync: Sync,
}

impl Database {
    /// Opens the directory and creates its tables if it is new. A store of another format is an
    /// error. So are a damaged row outside the table of entries, and an entry of no topic.
    pub fn open(path: &Path, sync: Sync) -> Result<Self> {
        let directory = Directory::open(path)?;
        let connection = directory.connect(sync)?;
        prepare(&connection)
            .and_then(|()| rows::require_sound(&connection))
            .and_then(|()| entries::require_topics(&connection))
            .map_err(in_folder(path))?;
        Ok(Self { directory, connection, sync })
    }

    /// The connection that loads the tables at start.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The first unused topic id.
    pub fn next_topic(&self) -> Result<u64> {
        Ok(meta(&self.connection, "next_topic")? as u64)
    }

    /// How long brokers have run on the store, in milliseconds.
    pub fn run_ms(&self) -> Result<u64> {
        entries::run_ms(&self.connection)
    }

    /// A reader of entries with a connection of its own.
    pub fn reader(&self) -> Result<Stored> {
        Ok(Stored::new(self.directory.connect(self.sync)?))
    }

    /// The connection for the writer, and the directory, which is to be released after the last
    /// write.
    pub fn into_parts(self) -> (Connection, Directory) {
        (self.connection, self.directory)
    }

    /// Starts the writer thread; gives `count` queues to it.
    pub(crate) fn into_queues(self, count: usize) -> Result<Vec<(StoreQueue, Reports)>> {
        let (connection, directory) = self.into_parts();
        StoreQueue::open(connection, directory, count)
    }
}

/// Creates the tables of a new store. Refuses a store of another format.
pub fn prepare(db: &Connection) -> Result<()> {
    let exists =
        db.query_row("SELECT 1 FROM sqlite_master WHERE name = 'meta'", [], |_| Ok(())).optional()?.is_some();
    if exists {
        return require_format(db);
    }
    let transaction = db.unchecked_transaction()?;
    transaction.execute_batch(entries::SCHEMA)?;
    transaction.execute_batch(mqtt::SCHEMA)?;
    for (key, value) in [("format", FORMAT), ("next_topic", 1), ("run_ms", 0)] {
        entries::set_meta(&transaction, key, value)?;
    }
    transaction.commit()?;
    Ok(())
}

fn require_format(db: &Connection) -> Result<()> {
    let format = meta(db, "format")?;
    if format == FORMAT {
        return Ok(());
    }
    let text = format!(
        "the store has format {format}, and this version supports only format {FORMAT}: open the store with the \
         version that wrote it, or choose another folder"
    );
    Err(Error::new(ErrorKind::UnsupportedVersion, text))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::entries::{StoredCursor, StoredProducer, load};
    use super::super::op::Op;
    use super::*;
    use crate::log::Entry;
    use crate::log::cursor::Cursor;
    use crate::log::tests::entry;
    use crate::log::{Last, Source};
    use forebay_sqlite::Job;

    fn producer(last: i64) -> StoredProducer {
        StoredProducer { name: "p".into(), last, owner: (last > 5).then(|| "ann".into()) }
    }

    #[test]
    fn what_was_written_is_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let opened = Directory::open(&directory.path().join("data")).unwrap();
        assert!(Directory::open(&directory.path().join("data")).is_err(), "one broker at a time");
        let db = opened.connect(Sync::Os).unwrap();
        prepare(&db).unwrap();
        assert_eq!(load(&db, "pulsar", 0).unwrap().next_topic, 1);
        let properties = vec![("purpose".into(), "test".into())];
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
            Op::Partitions {
                id: 2,
                domain: "pulsar",
                name: "persistent://public/default/b".into(),
                partitions: 5,
            },
            Op::Append { topic: 1, entry: Entry { sequence: 3, ..entry(1, 60) }, producer: None },
            Op::Append { topic: 1, entry: second.clone(), producer: Some(producer(9)) },
            Op::Trim { topic: 1, first: 3, next: 4, next_index: 4 },
            Op::Cursor {
                topic: 1,
                subscription: "s".into(),
                kind: 1,
                below: 1,
                state: cursor.encode_with(&properties),
                touched_ms: 50,
                owner: Some("ann".into()),
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
        let owner = Some("ann".into());
        let stored =
            StoredCursor { subscription: "s".into(), kind: 1, cursor, properties, touched_ms: 50, owner };
        assert_eq!(topic.cursors, [stored]);
        assert_eq!(topic.producers, [producer(9)]);
        assert_eq!(found.topics[1].partitions, 5, "it has grown");
        let mut stored = Stored::new(opened.connect(Sync::Os).unwrap());
        assert_eq!(stored.read(1, 4, 10, 1000).unwrap(), [second]);
        assert_eq!(stored.read(2, 0, 10, 1000).unwrap(), []);
        Op::DeleteTopic { id: 1 }.apply(&db).unwrap();
        Op::DropSchema { name: "b".into() }.apply(&db).unwrap();
        assert_eq!(stored.read(1, 0, 10, 1000).unwrap(), []);
        assert_eq!(load(&db, "pulsar", 0).unwrap().schemas, []);
    }

    #[test]
    fn a_terminated_topic_stays_so_however_long_brokers_run() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path(), Sync::Os).unwrap();
        let apply = |op: Op| op.apply(&database.connection).unwrap();
        let find = |run_ms| load(&database.connection, "pulsar", run_ms).unwrap().topics.remove(0);
        apply(Op::CreateTopic { id: 1, domain: "pulsar", name: "a".into(), partitions: 0 });
        apply(Op::Append { topic: 1, entry: entry(1, 1), producer: Some(producer(3)) });
        assert!(!find(0).terminated);
        for _ in 0..2 {
            apply(Op::Terminate { topic: 1 });
            let found = find(0);
            assert!(found.terminated);
            assert_eq!(found.producers, [producer(3)]);
        }
        assert_eq!(
            database.run_ms().unwrap(),
            entry(1, 1).run_ms,
            "the time that brokers have run does not jump"
        );
        assert!(find(u64::MAX >> 1).terminated);
        apply(Op::DeleteTopic { id: 1 });
        apply(Op::CreateTopic { id: 2, domain: "pulsar", name: "a".into(), partitions: 0 });
        assert!(!find(0).terminated);
    }

    #[test]
    fn a_topic_whose_entries_cannot_be_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path(), Sync::Os).unwrap();
        let db = &database.connection;
        let (id, partitions) = (1, 0);
        Op::CreateTopic { id, domain: "tubemq", name: "t:0".into(), partitions }.apply(db).unwrap();
        Op::Append { topic: 1, entry: Entry { sequence: 5, ..entry(1, 60) }, producer: None }
            .apply(db)
            .unwrap();
        load(db, "tubemq", 0).unwrap();
        for damage in ["first = 7", "first = -1", "next = -1", "next_index = -1", "partitions = 10001"] {
            db.execute_batch(&format!("SAVEPOINT damaged; UPDATE topic SET {damage}")).unwrap();
            let error = load(db, "tubemq", 0).unwrap_err();
            assert_eq!((error.kind(), error.topic()), (ErrorKind::Persistence, Some("t:0")), "{damage}");
            db.execute_batch("ROLLBACK TO damaged").unwrap();
        }
    }

    #[test]
    fn the_time_that_brokers_have_run_never_goes_back() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path(), Sync::Os).unwrap();
        assert_eq!(database.run_ms().unwrap(), 0);
        let apply = |op: Op| op.apply(&database.connection).unwrap();
        apply(Op::Run(60_000));
        apply(Op::Run(50_000));
        assert_eq!(database.run_ms().unwrap(), 60_000);
        // After a kill the newest row may know better.
        let [id, below, touched_ms] = [1, 0, 61_000];
        apply(Op::CreateTopic { id, domain: "tubemq", name: "t:0".into(), partitions: 0 });
        let (state, owner) = (vec![], None);
        apply(Op::Cursor { topic: 1, subscription: "g".into(), kind: 0, below, state, touched_ms, owner });
        assert_eq!(database.run_ms().unwrap(), 61_000);
        let entry = Entry { run_ms: 62_000, ..entry(1, 1) };
        apply(Op::Append { topic: 1, entry: entry.clone(), producer: Some(producer(1)) });
        assert_eq!(database.run_ms().unwrap(), 62_000);
        apply(Op::Trim { topic: 1, first: 1, next: 1, next_index: 1 });
        assert_eq!(database.run_ms().unwrap(), 62_000, "the producer was there then");
        apply(Op::DropProducer { topic: 1, name: "p".into() });
        assert_eq!(database.run_ms().unwrap(), 61_000);
        let entry = Entry { sequence: 1, run_ms: 63_000, ..entry };
        apply(Op::Append { topic: 1, entry, producer: None });
        assert_eq!(database.run_ms().unwrap(), 63_000, "an entry without a producer knows it too");
    }

    #[test]
    fn a_producer_is_forgotten_six_hours_of_running_after_its_last_message() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path(), Sync::Os).unwrap();
        assert_eq!(database.next_topic().unwrap(), 1);
        let apply = |op: Op| op.apply(&database.connection).unwrap();
        apply(Op::CreateTopic { id: 7, domain: "pulsar", name: "t".into(), partitions: 0 });
        assert_eq!(database.next_topic().unwrap(), 8);
        const HOUR: u64 = 3_600_000;
        for (sequence, flags) in [(0, crate::log::BATCH), (1, crate::log::CHUNK)] {
            let entry = Entry { sequence, run_ms: 10 * HOUR, flags, ..entry(1, 1) };
            apply(Op::Append { topic: 7, entry, producer: Some(producer(3)) });
        }
        for (run_ms, producers) in [(10 * HOUR, 1), (16 * HOUR, 1), (16 * HOUR + 1, 0)] {
            let found = load(&database.connection, "pulsar", run_ms).unwrap();
            assert_eq!(found.topics[0].producers.len(), producers, "{run_ms}");
            assert_eq!(found.topics[0].last, Some(Last { sequence: 1, count: 1, batch: false }));
            assert_eq!((found.topics[0].first, found.topics[0].next), (0, 2));
            assert!(found.bytes >= 4096, "the tables themselves: {}", found.bytes);
        }
    }

    #[test]
    fn a_read_stops_once_it_has_enough() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path(), Sync::Os).unwrap();
        for sequence in 0..5 {
            let entry = Entry { sequence, ..entry(1, 1) };
            Op::Append { topic: 1, entry, producer: None }.apply(&database.connection).unwrap();
        }
        let mut stored = database.reader().unwrap();
        let body = entry(1, 1).body.len();
        let mut read = |limit, bytes| stored.read(1, 1, limit, bytes).unwrap().len();
        assert_eq!([read(10, 1), read(10, body), read(10, body + 1), read(10, 3 * body)], [1, 1, 2, 3]);
        assert_eq!([read(2, 1000), read(10, 1000)], [2, 4]);
    }

    #[test]
    fn a_change_of_any_field_of_an_entry_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path(), Sync::Os).unwrap();
        let entry = Entry { last_index: 1, deliver_ms: 1, ..entry(1, 1) };
        Op::Append { topic: 1, entry: entry.clone(), producer: None }.apply(&database.connection).unwrap();
        let mut stored = database.reader().unwrap();
        assert_eq!(stored.read(1, 0, 1, 1).unwrap(), [entry]);
        for (column, good) in [
            ("last_index", "1"),
            ("stored_ms", "1"),
            ("publish_ms", "1"),
            ("deliver_ms", "1"),
            ("count", "1"),
            ("batch", "0"),
            ("hash", "0"),
            ("crc", "NULL"),
            ("body", "CAST('body' AS BLOB)"),
            ("run_ms", "1"),
        ] {
            let set = |value: &str| {
                database.connection.execute(&format!("UPDATE entry SET {column} = {value}"), []).unwrap();
            };
            for bad in ["0", "1", "2", "256", "CAST('bodz' AS BLOB)"] {
                if bad == good || (column == "body") != bad.starts_with("CAST") {
                    continue;
                }
                set(bad);
                let error = stored.read(1, 0, 1, 1).unwrap_err();
                assert!(error.message().contains("entry 0 cannot be read"), "{column} = {bad}: {error}");
            }
            set(good);
            assert_eq!(stored.read(1, 0, 1, 1).unwrap().len(), 1, "{column}");
        }
    }

    #[test]
    fn an_error_names_the_folder_once_and_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, [7; 5000]).unwrap();
        let below = file.join("store");
        let noise = folder.path().join("noise");
        std::fs::create_dir(&noise).unwrap();
        std::fs::write(noise.join(DATABASE), [7; 5000]).unwrap();
        let other = folder.path().join("other");
        drop(Database::open(&other, Sync::Os).unwrap());
        let db = forebay_sqlite::open(&other.join(DATABASE), Sync::Os).unwrap();
        db.execute("UPDATE meta SET value = 7 WHERE key = 'format'", []).unwrap();
        for (path, remedy) in [
            (&below, "choose another folder"),
            (&noise, "choose another place"),
            (&other, "the store has format 7"),
        ] {
            let text = Database::open(path, Sync::Os).unwrap_err().to_string();
            assert_eq!(text.matches(path.to_str().unwrap()).count(), 1, "{text}");
            assert!(text.contains(remedy), "{text}");
        }
    }

    #[test]
    fn large_deletions_of_many_topics_are_made_of_small_transactions() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("broker.db");
        let db = forebay_sqlite::open(&database, Sync::Os).unwrap();
        prepare(&db).unwrap();
        let create = |id: u64| {
            let name = format!("t{id}").into();
            Op::CreateTopic { id, domain: "pulsar", name, partitions: 0 }.apply(&db).unwrap();
            for sequence in 0..2 {
                let entry =
                    Entry { sequence, last_index: sequence, body: vec![0; 1 << 20].into(), ..entry(1, 60) };
                Op::Append { topic: id, entry, producer: None }.apply(&db).unwrap();
            }
        };
        (1..=16).for_each(create);
        let count = || -> i64 { db.query_row("SELECT count(*) FROM entry", [], |row| row.get(0)).unwrap() };
        let delete = |id| Op::DeleteTopic { id };
        let trim = |topic| Op::Trim { topic, first: 2, next: 2, next_index: 2 };
        let ops: Vec<Op> = (1..=8).map(delete).chain((9..=16).map(trim)).collect();
        let closing = false.into();
        let connection = forebay_sqlite::open(&database, Sync::Os).unwrap();
        let mut committer =
            forebay_sqlite::Committer::new(connection, |_: &[Op], _: &forebay_sqlite::Outcome| ());
        assert_eq!(committer.commit(&ops, &closing), None);
        let mut left = count();
        assert!((27..32).contains(&left), "at most 5 of 32 at once: {left}");
        let found = load(&db, "pulsar", 0).unwrap();
        assert_eq!(found.topics.iter().map(|topic| topic.first).collect::<Vec<_>>(), [2; 8]);
        let mut rounds = 0;
        while committer.clean_up::<Op>() {
            assert!((0..=5).contains(&(left - count())));
            left = count();
            rounds += 1;
        }
        assert_eq!(left, 0);
        assert!(rounds < 10, "small rests share a transaction: {rounds}");
    }

    #[test]
    fn a_large_deletion_is_made_of_small_transactions_also_after_a_kill() {
        let directory = tempfile::tempdir().unwrap();
        let opened = Directory::open(directory.path()).unwrap();
        let db = opened.connect(Sync::Os).unwrap();
        prepare(&db).unwrap();
        let count = |db: &Connection| -> i64 {
            db.query_row("SELECT count(*) FROM entry", [], |row| row.get(0)).unwrap()
        };
        let fill = |topic| {
            Op::CreateTopic { id: topic, domain: "pulsar", name: format!("t{topic}").into(), partitions: 0 }
                .apply(&db)
                .unwrap();
            for sequence in 0..20 {
                let body = vec![0; 1 << 20].into();
                let entry = Entry { sequence, last_index: sequence, body, ..entry(1, 60) };
                Op::Append { topic, entry, producer: None }.apply(&db).unwrap();
            }
        };
        fill(1);
        fill(2);
        Op::Trim { topic: 1, first: 19, next: 20, next_index: 20 }.apply(&db).unwrap();
        Op::DeleteTopic { id: 2 }.apply(&db).unwrap();
        assert!(count(&db) >= 30, "at most 5 each: {}", count(&db));
        let found = load(&db, "pulsar", 0).unwrap();
        assert_eq!((found.topics.len(), found.topics[0].first, found.topics[0].next), (1, 19, 20));
        let again = opened.connect(Sync::Os).unwrap();
        let mut before = count(&again);
        while Op::clean_up(&again).unwrap() {
            let left = count(&again);
            assert!((0..=5).contains(&(before - left)), "{before} {left}");
            before = left;
        }
        assert_eq!(count(&again), 1);
    }

    #[test]
    fn a_changed_row_is_an_error_with_its_number_and_those_before_it_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let opened = Directory::open(directory.path()).unwrap();
        let db = opened.connect(Sync::Os).unwrap();
        prepare(&db).unwrap();
        let mut stored = Stored::new(opened.connect(Sync::Os).unwrap());
        let columns = [
            ("body", "x'626f6478'"),
            ("body", "'text'"),
            ("last_index", "last_index + 1"),
            ("stored_ms", "0"),
            ("publish_ms", "publish_ms + 1"),
            ("deliver_ms", "1"),
            ("count", "count + 1"),
            ("batch", "2"),
            ("hash", "3"),
            ("crc", "4"),
            ("sum", "sum + 1"),
            ("run_ms", "run_ms + 1"),
            ("sum", "'x'"),
            ("sum", "NULL"),
        ];
        for (topic, (column, value)) in (1..).zip(columns) {
            for sequence in 0..5 {
                let entry = Entry { sequence, last_index: sequence, ..entry(1, 60) };
                Op::Append { topic, entry, producer: None }.apply(&db).unwrap();
            }
            let key = entries::entry_key(topic, 3);
            db.execute(&format!("UPDATE entry SET {column} = {value} WHERE id = ?1"), [key]).unwrap();
            let numbers =
                |entries: Vec<Entry>| entries.iter().map(|entry| entry.sequence).collect::<Vec<_>>();
            assert_eq!(numbers(stored.read(topic, 0, 10, 1000).unwrap()), [0, 1, 2], "{column}");
            let error = stored.read(topic, 3, 10, 1000).unwrap_err();
            assert!(error.message().starts_with("entry 3 cannot be read"), "{column}: {error}");
            assert_eq!(numbers(stored.read(topic, 4, 10, 1000).unwrap()), [4]);
            // The row of another entry in its place.
            db.execute("UPDATE entry SET id = id + 1000 WHERE id = ?1", [entries::entry_key(topic, 4)])
                .unwrap();
            assert!(stored.read(topic, 1004, 10, 1000).is_err(), "the number belongs to the row");
        }
    }
}
