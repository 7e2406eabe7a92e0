//! A kept store, `tests/golden/store/format-2.db`: it is opened with exactly its content, and it is
//! what this version writes. A store of another format is refused and left as it is.
//!
//! A change of the tables needs the next format number and a new kept store:
//! `WRITE_GOLDEN=1 cargo test -p forebay-tests --test broker store_format -- --test-threads 1`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use forebay_base::error::ErrorKind;
use forebay_broker::log::cursor::Cursor;
use forebay_broker::log::{BATCH, CHUNK, Entry, Last, Source as _, TopicIds};
use forebay_broker::store::mqtt::{Found as Sessions, Op as MqttOp, QueueRow, SessionRow, StoredSession};
use forebay_broker::store::{self, Database, Found, Op, StoredCursor, StoredProducer, StoredTopic, check};
use forebay_sqlite::{Connection, Job as _, Sync};

/// The format that this version writes.
const FORMAT: u32 = 2;
/// Topics by their ids. The domain of MQTT has one log for all messages.
const LOG: u64 = 1;
const ORDERS: u64 = 2;
const PARTED: u64 = 3;
const PART_0: u64 = 4;
const PART_1: u64 = 5;
const DEMO: u64 = 6;
const DEMO_0: u64 = 7;
const DEMO_1: u64 = 8;
const GONE: u64 = 9;
/// How long brokers had run on the store when it was written.
const RUN_MS: u64 = 7_200_000;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../golden/store/format-{FORMAT}.db"))
}

/// An entry that uses what an entry of its number can have.
fn entry(topic: u64, sequence: u64) -> Entry {
    let batch = sequence % 3 == 2;
    Entry {
        sequence,
        last_index: sequence + sequence.div_ceil(3) * 4,
        stored_ms: 1_790_000_000_000 + sequence,
        run_ms: RUN_MS - 1000 + sequence,
        publish_ms: 1_789_999_999_000 + sequence,
        deliver_ms: if sequence == 4 { 1_790_000_600_000 } else { 0 },
        count: if batch { 5 } else { 1 },
        flags: if batch { BATCH } else { CHUNK * u32::from(sequence == 6) },
        hash: 7 + sequence as u16,
        checksum: (sequence != 3).then_some(0xfedc_ba98 - sequence as u32),
        body: format!("topic {topic}, entry {sequence}, {}", "é€ ".repeat(sequence as usize * 9)).into(),
    }
}

fn message(sequence: u64) -> Entry {
    Entry { last_index: sequence, count: 1, flags: 0, deliver_ms: 0, ..entry(LOG, sequence) }
}

/// Acknowledgements with holes, and a batch of which two messages are left.
fn holes() -> Cursor {
    let mut cursor = Cursor::new(3);
    for sequence in [4, 6] {
        cursor.ack(sequence);
    }
    cursor.ack_partial(5, &[0b01001], 5);
    cursor
}

fn schemas() -> Vec<(Arc<str>, u64, Bytes)> {
    let name: Arc<str> = "persistent://public/default/orders".into();
    vec![
        (name.clone(), 0, Bytes::from_static(b"\x0a\x06orders")),
        (name, 1, Bytes::from_static(b"\x0a\x06orders\x18\x02")),
    ]
}

/// Subscriptions and offsets of groups.
fn cursors(topic: u64) -> Vec<StoredCursor> {
    let stored = |subscription: &str, kind, cursor| StoredCursor {
        subscription: subscription.into(),
        kind,
        cursor,
        properties: Vec::new(),
        touched_ms: RUN_MS - 500,
        owner: None,
    };
    let owned = |cursor, owner: &str| StoredCursor { owner: Some(owner.into()), ..cursor };
    match topic {
        ORDERS => {
            vec![stored("audit", 0, Cursor::new(6)), owned(stored("billing", 1, holes()), "accounts")]
        }
        PART_0 => vec![stored("audit", 2, Cursor::new(1))],
        DEMO_0 => {
            vec![owned(stored("group-é", 0, Cursor::new(5)), "é"), stored("idle", 0, Cursor::new(0))]
        }
        _ => vec![],
    }
}

fn topics(domain: &str) -> Vec<StoredTopic> {
    let topic = |id, name: &str, partitions, entries: std::ops::Range<u64>, epoch| StoredTopic {
        id,
        name: name.into(),
        partitions,
        epoch,
        first: entries.start,
        next: entries.end,
        next_index: entries.end.checked_sub(1).map_or(0, |last| entry(id, last).last_index + 1),
        last: entries.end.checked_sub(1).map(|last| entry(id, last)).map(|last| Last {
            sequence: last.sequence,
            count: last.count,
            batch: last.flags & BATCH != 0,
        }),
        cursors: cursors(id),
        producers: Vec::new(),
        terminated: false,
    };
    match domain {
        "pulsar" => {
            let mut orders = topic(ORDERS, "persistent://public/default/orders", 0, 2..8, 3);
            let producer = |name: &str, last, owner: Option<&str>| StoredProducer {
                name: name.into(),
                last,
                owner: owner.map(Into::into),
            };
            orders.producers =
                vec![producer("till-7", 41, None), producer("till-8", i64::MAX, Some("accounts"))];
            vec![
                orders,
                topic(PARTED, "persistent://public/default/parted", 2, 0..0, 0),
                topic(PART_0, "persistent://public/default/parted-partition-0", 0, 0..3, 0),
                topic(PART_1, "persistent://public/default/parted-partition-1", 0, 0..1, 0),
            ]
        }
        _ => vec![
            topic(DEMO, "demo", 2, 0..0, 0),
            topic(DEMO_0, "demo:0", 0, 0..6, 0),
            topic(DEMO_1, "demo:1", 0, 0..1, 0),
        ],
    }
}

fn sessions() -> Vec<StoredSession> {
    let row = |position, sequence, flags, packet_id, released| QueueRow {
        position,
        sequence,
        flags,
        ids: if sequence == 11 { vec![1, 268_435_455] } else { vec![] },
        packet_id,
        released,
    };
    vec![
        StoredSession {
            row: SessionRow {
                id: 1,
                client_id: "till-7".into(),
                expiry: u32::MAX,
                ends_ms: None,
                will: Some(Bytes::from_static(b"\x31\x0c\x00\x06will/7\x00gone")),
                will_delay: 30,
                owner: Some("password:till-7".into()),
            },
            subscriptions: vec![("orders/+/é".into(), 2, None), ("r/#".into(), 0b10_1101, Some(268_435_455))],
            // QoS 2: PUBREC has arrived, PUBLISH was sent, and one that waits; then QoS 1.
            queue: vec![
                row(5, 10, 2, 3, true),
                row(6, 11, 2, 65_535, false),
                row(7, 12, 2, 0, false),
                row(8, 13, 1, 0, false),
            ],
            received: vec![9, 300],
        },
        StoredSession {
            row: SessionRow {
                id: 4,
                client_id: "lamp".into(),
                expiry: 3600,
                ends_ms: Some(1_790_003_600_000),
                will: None,
                will_delay: 0,
                owner: None,
            },
            subscriptions: vec![("#".into(), 1, None)],
            queue: vec![row(1, 12, 0b101, 17, false)],
            received: vec![],
        },
    ]
}

/// Topic and number of the retained messages.
const RETAINED: [(&str, u64); 2] = [("r/last", 14), ("r/é", 15)];

/// Everything that is in the stores, as the brokers write it.
fn changes() -> Vec<Op> {
    let create =
        |id, domain, name: &str, partitions| Op::CreateTopic { id, domain, name: name.into(), partitions };
    let mut ops = vec![create(LOG, "mqtt", "mqtt", 0)];
    for domain in ["pulsar", "tubemq"] {
        for topic in topics(domain) {
            ops.push(create(topic.id, domain, &topic.name, topic.partitions));
            for sequence in 0..if topic.partitions > 0 { 0 } else { topic.next } {
                let mut producers = topic.producers.iter().cloned();
                let producer =
                    producers.find(|one| one.last == 41 && sequence == 7 || one.last > 41 && sequence == 6);
                ops.push(Op::Append { topic: topic.id, entry: entry(topic.id, sequence), producer });
            }
            if topic.first > 0 {
                let StoredTopic { id, first, next, next_index, .. } = topic;
                ops.push(Op::Trim { topic: id, first, next, next_index });
            }
            if topic.epoch > 0 {
                ops.push(Op::Epoch { topic: topic.id, epoch: topic.epoch });
            }
            for StoredCursor { subscription, kind, cursor, properties, touched_ms, owner } in topic.cursors {
                let (below, state) = (cursor.below(), cursor.encode_with(&properties));
                ops.push(Op::Cursor { topic: topic.id, subscription, kind, below, state, touched_ms, owner });
            }
        }
    }
    ops.extend(schemas().into_iter().map(|(name, version, data)| Op::Schema { name, version, data }));
    let mut mqtt: Vec<_> = (10..16).map(|sequence| MqttOp::Append(LOG, message(sequence))).collect();
    for StoredSession { row, subscriptions, queue, received } in sessions() {
        let id = row.id;
        mqtt.push(MqttOp::Session(row));
        mqtt.extend(
            subscriptions
                .into_iter()
                .map(|(filter, options, number)| MqttOp::Subscribe(id, filter, options, number)),
        );
        for row in queue {
            let (position, packet_id, released) = (row.position, row.packet_id, row.released);
            mqtt.push(MqttOp::Enqueue(id, QueueRow { packet_id: 0, released: false, ..row }));
            if packet_id > 0 {
                mqtt.push(MqttOp::InFlight(id, position, packet_id, released));
            }
        }
        mqtt.extend(received.into_iter().map(|packet_id| MqttOp::Received(id, packet_id)));
    }
    mqtt.extend(RETAINED.map(|(topic, sequence)| MqttOp::Retain(topic.into(), sequence)));
    ops.extend([Op::Mqtt(mqtt), Op::Run(RUN_MS)]);
    // A topic that was deleted, whose entries are deleted little by little.
    ops.push(create(GONE, "pulsar", "persistent://public/default/gone", 0));
    ops.extend((0..2).map(|n| Op::Append { topic: GONE, entry: entry(GONE, n), producer: None }));
    ops.push(Op::DeleteTopic { id: GONE });
    ops
}

/// Writes the store as this version does.
fn write(path: &Path) {
    let database = Database::open(path, Sync::Full).unwrap();
    let (db, _directory) = database.into_parts();
    let transaction = db.unchecked_transaction().unwrap();
    for op in changes() {
        // The last transaction had deleted as much as it may.
        let mut removed = if matches!(op, Op::DeleteTopic { .. }) { 1 << 30 } else { 0 };
        op.apply_after(&transaction, &mut removed).unwrap();
    }
    transaction.commit().unwrap();
}

/// Copies the kept store into a directory.
fn unpack(to: &Path) {
    std::fs::copy(golden(), to.join("broker.db")).unwrap();
}

/// Compares what is in the store with what was written, field by field.
fn compare(path: &Path) {
    let database = Database::open(path, Sync::Full).unwrap();
    assert_eq!(database.run_ms().unwrap(), RUN_MS);
    let db = database.connection();
    for domain in ["pulsar", "tubemq"] {
        let mut found = store::load(db, domain, RUN_MS).unwrap();
        found.topics.sort_by_key(|topic| topic.id);
        let topics = topics(domain);
        let expected = Found { topics, schemas: schemas(), next_topic: GONE + 1, bytes: found.bytes };
        assert_eq!(format!("{found:#?}"), format!("{expected:#?}"));
        let mut reader = database.reader().unwrap();
        for topic in expected.topics.iter().filter(|topic| topic.partitions == 0) {
            let entries: Vec<_> =
                (topic.first..topic.next).map(|sequence| entry(topic.id, sequence)).collect();
            assert_eq!(reader.read(topic.id, 0, 100, 1 << 20).unwrap(), entries);
        }
    }
    let found = store::mqtt::load(db, &TopicIds::new(database.next_topic().unwrap())).unwrap();
    let expected = Sessions {
        log: LOG,
        sessions: sessions(),
        retained: RETAINED.map(|(_, sequence)| message(sequence)).into(),
        damage: None,
        next_sequence: 16,
        next_session: 5,
        bytes: found.bytes,
    };
    assert_eq!(format!("{found:#?}"), format!("{expected:#?}"));
    let messages: Vec<_> = (10..16).map(message).collect();
    assert_eq!(database.reader().unwrap().read(LOG, 0, 100, 1 << 20).unwrap(), messages);
    let names = |sql: &str| -> Vec<(String, i64)> {
        let mut statement = db.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.collect::<rusqlite::Result<_>>().unwrap()
    };
    let retained = names("SELECT topic, sequence FROM retained ORDER BY sequence");
    assert_eq!(retained, RETAINED.map(|(topic, sequence)| (topic.to_owned(), sequence as i64)));
    // What was being deleted goes on.
    let left = || -> i64 { db.query_row("SELECT count(*) FROM entry", [], |row| row.get(0)).unwrap() };
    let before = left();
    while Op::clean_up(db).unwrap() {}
    assert_eq!(before - left(), 2);
}

#[test]
fn the_kept_store_is_opened_with_its_content() {
    if std::env::var_os("WRITE_GOLDEN").is_some() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path());
        std::fs::copy(directory.path().join("broker.db"), golden()).unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    unpack(directory.path());
    compare(directory.path());
    assert_eq!(check::check(directory.path()).unwrap().damage, [] as [&str; 0]);
}

#[test]
fn the_kept_store_is_what_this_version_writes() {
    let dump = |path: &Path| {
        let db = Connection::open(path).unwrap();
        let list = |sql: &str| -> Vec<String> {
            let mut statement = db.prepare(sql).unwrap();
            let columns = statement.column_count();
            let rows = statement.query_map([], |row| {
                (0..columns).map(|i| row.get_ref(i).map(|value| format!("{value:?} "))).collect()
            });
            rows.unwrap().collect::<rusqlite::Result<_>>().unwrap()
        };
        let mut lines = list("SELECT sql FROM sqlite_master WHERE sql NOT NULL ORDER BY name");
        for table in list("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name") {
            let name = table.trim().trim_start_matches("Text(").trim_end_matches(')');
            let name: Vec<u8> =
                name.trim_matches(['[', ']']).split(", ").map(|n| n.parse().unwrap()).collect();
            lines.extend(list(&format!("SELECT * FROM {} ORDER BY 1, 2", String::from_utf8(name).unwrap())));
        }
        lines
    };
    let (written, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(written.path());
    unpack(kept.path());
    let [written, kept] = [&written, &kept].map(|directory| dump(&directory.path().join("broker.db")));
    assert_eq!(written, kept, "a change of the tables needs a new format and a new kept store");
}

#[test]
fn a_store_of_another_format_is_refused_and_stays_as_it_is() {
    for format in [FORMAT - 1, FORMAT + 1] {
        let directory = tempfile::tempdir().unwrap();
        unpack(directory.path());
        let path = directory.path().join("broker.db");
        let other = Connection::open(&path).unwrap();
        // What another version may have added.
        other.execute("UPDATE meta SET value = ?1 WHERE key = 'format'", [format]).unwrap();
        other.execute_batch("ALTER TABLE cursor ADD COLUMN other TEXT; CREATE TABLE other (x)").unwrap();
        drop(other);
        let before = std::fs::read(&path).unwrap();
        let refusals = [
            Database::open(directory.path(), Sync::Full).map(drop),
            check::check(directory.path()).map(drop),
        ];
        for refusal in refusals {
            let error = refusal.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnsupportedVersion);
            let parts = [
                directory.path().display().to_string(),
                format!("format {format}"),
                format!("only format {FORMAT}"),
                "version that wrote it".to_owned(),
            ];
            for part in parts {
                assert!(error.message().contains(&part), "{error}");
            }
            assert!(std::fs::read(&path).unwrap() == before, "the file was changed");
        }
        let mut left: Vec<_> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with("lock"))
            .collect();
        left.sort();
        assert_eq!(left, ["broker.db"]);
        // A backup is a copy, which needs no knowledge of the tables.
        store::backup(directory.path(), &directory.path().join("copy.db")).unwrap();
        assert!(std::fs::read(&path).unwrap() == before);
    }
}
