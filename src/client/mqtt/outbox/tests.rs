use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use forebay_mqtt::{Properties, Property};
use forebay_sqlite::Sync;

type Reports = mpsc::Receiver<(Ticket, Result<()>)>;

const LIMIT: Duration = Duration::from_secs(60);

fn options(directory: &TempDir) -> OutboxOptions {
    OutboxOptions { sync: Sync::Os, ..OutboxOptions::new(directory.path().join("out.db")) }
}

fn reporting() -> (ReportSink, Reports) {
    let (told, reports) = mpsc::channel();
    (Box::new(move |ticket, outcome| drop(told.send((ticket, outcome)))), reports)
}

fn open(options: &OutboxOptions) -> (Outbox, Found, Reports) {
    let (sink, reports) = reporting();
    let (outbox, found) = Outbox::open(options, sink).unwrap();
    (outbox, found, reports)
}

/// Waits until `ticket` is on disk.
fn wait(reports: &Reports, ticket: Ticket) -> Result<()> {
    loop {
        let (reported, outcome) = reports.recv_timeout(LIMIT).expect("a report");
        outcome?;
        if reported >= ticket {
            return Ok(());
        }
    }
}

fn publish(qos: QoS, payload: &str) -> Publish {
    Publish { qos, topic: "a/b".into(), payload: Bytes::from(payload.to_owned()), ..Publish::default() }
}

fn load(outbox: &Outbox, after: Option<u64>, max_bytes: usize) -> Result<Loaded> {
    let (told, loaded) = mpsc::channel();
    outbox.load(after, max_bytes, Box::new(move |piece| told.send(piece).unwrap()))?;
    loaded.recv_timeout(LIMIT).expect("a piece")
}

fn keys(loaded: &Loaded) -> Vec<u64> {
    loaded.messages.iter().map(|(key, _)| *key).collect()
}

/// Writes the checksums of all messages as they are.
fn sum_up(db: &Connection) {
    let mut select = db.prepare("SELECT key, expires_ms, packet, packet_id, released FROM message").unwrap();
    let sums = select.query_map([], |row| {
        let key = row.get(0)?;
        let sum = message_sum(key, row.get_ref(1)?, row.get_ref(2)?.as_blob()?);
        Ok((key, sum, packet_id_sum(key, row.get(3)?), released_sum(key, row.get(4)?)))
    });
    for sums in sums.unwrap().collect::<rusqlite::Result<Vec<_>>>().unwrap() {
        let sql = "UPDATE message SET sum = ?2, packet_id_sum = ?3, released_sum = ?4 WHERE key = ?1";
        db.execute(sql, sums).unwrap();
    }
}

#[test]
fn what_is_stored_is_found_again_as_it_was_and_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let full = Publish {
        retain: true,
        properties: Properties::new()
            .with(Property::ContentType("text/plain".into()))
            .with(Property::User("k".into(), "v".into()))
            .with(Property::User("k".into(), "w".into())),
        ..publish(QoS::ExactlyOnce, &"x".repeat(100_000))
    };
    let (outbox, found, reports) = open(&options(&directory));
    assert!(found.in_flight.is_empty() && found.client_id.is_none());
    assert_eq!((found.waiting, found.next_key), (0, 1));
    outbox.store(1, &publish(QoS::AtLeastOnce, "1")).unwrap();
    let last = outbox.store(2, &full).unwrap();
    wait(&reports, last).unwrap();
    outbox.set_client_id("till-7").unwrap();
    outbox.close();

    let (outbox, found, _) = open(&options(&directory));
    assert_eq!((found.waiting, found.next_key, found.client_id.as_deref()), (2, 3, Some("till-7")));
    let loaded = load(&outbox, None, 1 << 20).unwrap();
    assert_eq!(loaded.messages, [(1, publish(QoS::AtLeastOnce, "1")), (2, full)]);
    assert!(!loaded.more && loaded.expired.is_empty());
    #[cfg(unix)]
    for file in std::fs::read_dir(directory.path()).unwrap() {
        use std::os::unix::fs::PermissionsExt;
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.path());
    }
}

#[test]
fn a_publication_of_qos_2_comes_back_with_its_identifier_and_whether_pubrel_is_owed() {
    let directory = tempfile::tempdir().unwrap();
    let (outbox, _, _reports) = open(&options(&directory));
    let id = |n| PacketId::new(n).unwrap();
    for key in 1..=4 {
        outbox.store(key, &publish(QoS::ExactlyOnce, &key.to_string())).unwrap();
    }
    outbox.sent(1, id(10)).unwrap();
    outbox.sent(2, id(11)).unwrap();
    outbox.sent(3, id(65_535)).unwrap();
    outbox.released(2).unwrap();
    outbox.remove(vec![1]).unwrap();
    outbox.close();

    let (outbox, found, _reports) = open(&options(&directory));
    let flight = |key: u64, packet_id, released| InFlight {
        key,
        publish: publish(QoS::ExactlyOnce, &key.to_string()),
        packet_id,
        released,
    };
    assert_eq!(found.in_flight, [flight(2, id(11), true), flight(3, id(65_535), false)]);
    assert_eq!((found.waiting, found.next_key), (1, 5));
    assert_eq!(keys(&load(&outbox, None, 1000).unwrap()), [4], "what is in flight does not wait");
    outbox.requeue(vec![3]).unwrap();
    assert_eq!(keys(&load(&outbox, None, 1000).unwrap()), [3, 4]);
}

#[test]
fn what_waits_is_read_in_pieces_of_the_size_asked_for_and_at_least_one() {
    let directory = tempfile::tempdir().unwrap();
    let (outbox, ..) = open(&options(&directory));
    for key in 1..=5 {
        outbox.store(key, &publish(QoS::AtLeastOnce, &"x".repeat(100))).unwrap();
    }
    let piece = load(&outbox, None, 250).unwrap();
    assert_eq!((keys(&piece), piece.more, piece.last), (vec![1, 2], true, Some(2)));
    let piece = load(&outbox, Some(2), 1).unwrap();
    assert_eq!((keys(&piece), piece.more), (vec![3], true));
    let piece = load(&outbox, Some(3), 1000).unwrap();
    assert_eq!((keys(&piece), piece.more), (vec![4, 5], false));
    let piece = load(&outbox, Some(5), 1000).unwrap();
    assert_eq!((keys(&piece), piece.more, piece.last), (vec![], false, None));
}

/// [MQTT-3.3.2-5], which does not stop at the end of a process.
#[test]
fn a_message_expires_while_nobody_runs() {
    let directory = tempfile::tempdir().unwrap();
    let expiring = |seconds, payload| Publish {
        properties: Properties::new().with(Property::MessageExpiryInterval(seconds)),
        ..publish(QoS::AtLeastOnce, payload)
    };
    let (outbox, ..) = open(&options(&directory));
    outbox.store(1, &expiring(0, "at once")).unwrap();
    outbox.store(2, &expiring(1000, "later")).unwrap();
    outbox.store(3, &publish(QoS::AtLeastOnce, "never")).unwrap();
    let loaded = load(&outbox, None, 1000).unwrap();
    assert_eq!((keys(&loaded), &loaded.expired[..]), (vec![2, 3], &[1][..]));
    let left = loaded.messages[0].1.properties.message_expiry_interval();
    assert!(left.is_some_and(|left| (900..=1000).contains(left)), "{left:?}");
    outbox.close();
    assert_eq!(open(&options(&directory)).1.waiting, 2);
}

#[test]
fn above_the_cap_it_is_refused_until_something_has_gone() {
    let directory = tempfile::tempdir().unwrap();
    let options = OutboxOptions { max_bytes: 200_000, ..options(&directory) };
    let (outbox, _, reports) = open(&options);
    let large = publish(QoS::AtLeastOnce, &"x".repeat(30_000));
    let mut stored = Vec::new();
    let refused = (1..100).find_map(|key| match outbox.store(key, &large) {
        Ok(ticket) => {
            stored.push((key, ticket));
            None
        }
        Err(error) => Some(error),
    });
    let refused = refused.expect("there is a cap");
    assert_eq!(refused.kind(), ErrorKind::QueueFull);
    assert!(refused.message().contains("200000 bytes"), "{refused}");
    wait(&reports, stored.last().unwrap().1).unwrap();
    assert!(outbox.bytes() <= 200_000);
    assert!(stored.len() >= 4, "{}", stored.len());
    let gone = outbox.remove(stored.iter().map(|(key, _)| *key).collect()).unwrap();
    wait(&reports, gone).unwrap();
    outbox.store(101, &large).unwrap();
}

#[test]
fn a_full_disk_is_an_error_with_its_name_and_what_was_stored_stays() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(&directory);
    let file = claim(&options.path).unwrap();
    let connection = connect(&options).unwrap();
    // SQLite gives the same error as for a device without space.
    connection.pragma_update(None, "max_page_count", 20).unwrap();
    let (sink, reports) = reporting();
    let outbox = Outbox::start(file, connection, &options, sink).unwrap();
    let first = outbox.store(1, &publish(QoS::AtLeastOnce, "small")).unwrap();
    wait(&reports, first).unwrap();
    let second = outbox.store(2, &publish(QoS::AtLeastOnce, &"x".repeat(200_000))).unwrap();
    let error = wait(&reports, second).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Persistence);
    assert!(error.message().contains("out.db") && error.message().contains("full"), "{error}");
    // From here on it says so at once, and what asks is answered.
    assert_eq!(outbox.failure(), Some(error.clone()));
    assert_eq!(outbox.store(3, &publish(QoS::AtLeastOnce, "small")).unwrap_err(), error);
    assert_eq!(load(&outbox, None, 1000).unwrap_err(), error);
    outbox.close();
    let (outbox, ..) = open(&options);
    assert_eq!(keys(&load(&outbox, None, 1000).unwrap()), [1]);
}

#[test]
fn a_piece_that_was_asked_for_before_the_disk_was_full_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(&directory);
    let file = claim(&options.path).unwrap();
    let connection = connect(&options).unwrap();
    connection.pragma_update(None, "max_page_count", 20).unwrap();
    let outbox = Outbox::start(file, connection, &options, reporting().0).unwrap();
    outbox.store(1, &publish(QoS::AtLeastOnce, &"x".repeat(200_000))).unwrap();
    assert_eq!(load(&outbox, None, 1000).unwrap_err().kind(), ErrorKind::Persistence);
}

#[test]
fn two_clients_cannot_have_it_open() {
    let directory = tempfile::tempdir().unwrap();
    let (outbox, ..) = open(&options(&directory));
    let error = Outbox::open(&options(&directory), reporting().0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("another client"), "{error}");
    outbox.close();
    open(&options(&directory));
}

#[test]
fn another_file_is_refused_and_left_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(&directory);
    std::fs::write(&options.path, "my dear diary").unwrap();
    let error = Outbox::open(&options, reporting().0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(std::fs::read(&options.path).unwrap(), b"my dear diary");

    std::fs::remove_file(&options.path).unwrap();
    let other = Connection::open(&options.path).unwrap();
    other.execute_batch("CREATE TABLE accounts (x); INSERT INTO accounts VALUES (1);").unwrap();
    drop(other);
    let before = std::fs::read(&options.path).unwrap();
    assert_eq!(Outbox::open(&options, reporting().0).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(std::fs::read(&options.path).unwrap(), before);
}

#[test]
fn a_first_page_that_a_power_cut_has_torn_is_restored_from_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(&directory);
    let (outbox, _, reports) = open(&options);
    let last = outbox.store(1, &publish(QoS::AtLeastOnce, "1")).unwrap();
    wait(&reports, last).unwrap();
    // As it is while the log is written to the file.
    let log = directory.path().join("out.db-wal");
    let (file, log_before) = (std::fs::read(&options.path).unwrap(), std::fs::read(&log).unwrap());
    outbox.close();
    let torn = [&[0xa5; 512], &file[file.len().min(512)..]].concat();
    std::fs::write(&options.path, torn).unwrap();
    assert_eq!(Outbox::open(&options, reporting().0).unwrap_err().kind(), ErrorKind::InvalidArgument);
    std::fs::write(&log, log_before).unwrap();
    let (outbox, found, _) = open(&options);
    assert_eq!((found.waiting, keys(&load(&outbox, None, 1000).unwrap())), (1, vec![1]));
}

#[test]
fn a_broken_row_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(&directory);
    let (outbox, ..) = open(&options);
    outbox.store(7, &publish(QoS::ExactlyOnce, "x")).unwrap();
    outbox.close();
    let edit = |sql: &str| {
        let db = Connection::open(&options.path).unwrap();
        db.execute_batch(sql).unwrap();
        sum_up(&db);
    };
    edit("UPDATE message SET packet = x'3004000141'");
    let (outbox, ..) = open(&options);
    let error = load(&outbox, None, 1000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Persistence);
    assert!(error.message().contains("row 7"), "{error}");
    // The row is bad, the file is not.
    assert!(outbox.failure().is_none());
    outbox.close();
    edit("UPDATE message SET packet_id = 1");
    assert_eq!(Outbox::open(&options, reporting().0).unwrap_err().kind(), ErrorKind::Persistence);
}

#[test]
fn reports_come_in_the_order_of_the_tickets_whoever_submits() {
    let directory = tempfile::tempdir().unwrap();
    let (outbox, _, reports) = open(&options(&directory));
    let tickets: Vec<Ticket> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4_u64)
            .map(|thread| {
                let outbox = &outbox;
                scope.spawn(move || {
                    (0..50)
                        .map(|n| outbox.store(thread * 1000 + n, &publish(QoS::AtLeastOnce, "x")).unwrap())
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut sorted = tickets;
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=200).collect::<Vec<_>>());
    let mut last = 0;
    while last < 200 {
        let (ticket, outcome) = reports.recv_timeout(LIMIT).unwrap();
        outcome.unwrap();
        assert!(ticket > last);
        last = ticket;
    }
}

#[derive(Clone, Debug)]
enum Step {
    Store(bool, u8),
    Sent(u8),
    Released(u8),
    Requeue(u8),
    Remove(u8),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<bool>(), any::<u8>()).prop_map(|(twice, size)| Step::Store(twice, size)),
        2 => any::<u8>().prop_map(Step::Sent),
        2 => any::<u8>().prop_map(Step::Released),
        1 => any::<u8>().prop_map(Step::Requeue),
        2 => any::<u8>().prop_map(Step::Remove),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_happens_it_holds_what_a_map_would_hold(steps in proptest::collection::vec(step(), 1..60)) {
        let directory = tempfile::tempdir().unwrap();
        let options = options(&directory);
        let mut outbox = open(&options).0;
        let mut model = BTreeMap::<u64, InFlight>::new();
        let mut next = 1;
        // 0 stands for none.
        let mut ids = BTreeMap::<u64, u16>::new();
        for step in steps.into_iter().chain([Step::Reopen]) {
            let key_of = |which: u8| model.keys().nth(usize::from(which) % model.len().max(1)).copied();
            match step {
                Step::Store(twice, size) => {
                    let qos = if twice { QoS::ExactlyOnce } else { QoS::AtLeastOnce };
                    let publish = publish(qos, &"y".repeat(usize::from(size)));
                    outbox.store(next, &publish).unwrap();
                    model.insert(next, InFlight { key: next, publish, packet_id: PacketId::MIN, released: false });
                    ids.insert(next, 0);
                    next += 1;
                }
                Step::Sent(which) => if let Some(key) = key_of(which) {
                    let id = PacketId::new(u16::from(which) + 1).unwrap();
                    outbox.sent(key, id).unwrap();
                    model.get_mut(&key).unwrap().packet_id = id;
                    ids.insert(key, id.get());
                },
                Step::Released(which) => if let Some(key) = key_of(which) {
                    outbox.released(key).unwrap();
                    model.get_mut(&key).unwrap().released = true;
                },
                Step::Requeue(which) => if let Some(key) = key_of(which) {
                    outbox.requeue(vec![key]).unwrap();
                    model.get_mut(&key).unwrap().released = false;
                    ids.insert(key, 0);
                },
                Step::Remove(which) => if let Some(key) = key_of(which) {
                    outbox.remove(vec![key]).unwrap();
                    model.remove(&key);
                    ids.remove(&key);
                },
                Step::Reopen => {
                    outbox.close();
                    let (again, found, _) = open(&options);
                    outbox = again;
                    let flying: Vec<_> = model.values().filter(|m| ids[&m.key] > 0).cloned().collect();
                    prop_assert_eq!(found.in_flight, flying);
                    let waiting: Vec<_> =
                        model.values().filter(|m| ids[&m.key] == 0).map(|m| (m.key, m.publish.clone())).collect();
                    prop_assert_eq!(found.waiting, waiting.len() as u64);
                    prop_assert_eq!(found.next_key, model.keys().last().map_or(1, |key| key + 1));
                    next = found.next_key;
                    prop_assert_eq!(load(&outbox, None, 1 << 20).unwrap().messages, waiting);
                }
            }
        }
    }
}

#[test]
fn rows_that_no_outbox_has_written_are_refused_by_name() {
    for (change, key) in [
        ("UPDATE message SET key = -1 WHERE key = 1", "18446744073709551615"),
        ("UPDATE message SET key = 9223372036854775807 WHERE key = 2", "9223372036854775807"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let options = options(&directory);
        let (outbox, _, reports) = open(&options);
        outbox.store(1, &publish(QoS::AtLeastOnce, "1")).unwrap();
        let last = outbox.store(2, &publish(QoS::ExactlyOnce, "2")).unwrap();
        wait(&reports, last).unwrap();
        outbox.close();
        assert_eq!(Connection::open(&options.path).unwrap().execute(change, []).unwrap(), 1);
        let error = Outbox::open(&options, Box::new(|_, _| {})).unwrap_err();
        assert!(error.message().contains(&format!("row {key} is not a publication")), "{error}");
    }
}

#[test]
fn a_time_of_expiry_out_of_range_is_past_or_far_away() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(&directory);
    let (outbox, _, reports) = open(&options);
    for key in 1..3 {
        outbox.store(key, &publish(QoS::AtLeastOnce, "x")).unwrap();
    }
    let last = outbox.store(3, &publish(QoS::AtLeastOnce, "x")).unwrap();
    wait(&reports, last).unwrap();
    outbox.close();
    let db = Connection::open(&options.path).unwrap();
    db.execute("UPDATE message SET expires_ms = -9223372036854775808 WHERE key = 1", []).unwrap();
    db.execute("UPDATE message SET expires_ms = 9223372036854775807 WHERE key = 2", []).unwrap();
    sum_up(&db);
    drop(db);
    let (outbox, _, _) = open(&options);
    let loaded = load(&outbox, None, 1000).unwrap();
    assert_eq!((keys(&loaded), loaded.expired), (vec![2, 3], vec![1]));
}

/// An outbox with messages of all kinds, closed.
fn written(options: &OutboxOptions) {
    let (outbox, ..) = open(options);
    let expiring = Publish {
        properties: Properties::new().with(Property::MessageExpiryInterval(1000)),
        ..publish(QoS::ExactlyOnce, "x")
    };
    for key in 1..=4 {
        outbox.store(key, &expiring).unwrap();
    }
    outbox.sent(2, PacketId::new(7).unwrap()).unwrap();
    outbox.sent(3, PacketId::new(8).unwrap()).unwrap();
    outbox.released(3).unwrap();
    outbox.set_client_id("till").unwrap();
    outbox.close();
}

#[test]
fn a_change_of_any_value_of_any_row_is_found_before_it_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let whole = options(&directory);
    written(&whole);
    let columns =
        ["key", "packet_id", "released", "expires_ms", "packet", "sum", "packet_id_sum", "released_sum"];
    let message = columns
        .iter()
        .flat_map(|column| (1..=4).map(move |key| (*column, format!("message WHERE key = {key}"))));
    let session = ["client_id", "sum"].map(|column| (column, "session".to_owned()));
    let mut changes = 0;
    for (column, rows) in message.chain(session) {
        for change in [
            format!("CAST({column} AS INTEGER) + 64"),
            format!("CAST({column} AS INTEGER) | 1 << 45"),
            format!("CAST({column} AS TEXT) || 'x'"),
            format!("CAST({column} AS BLOB) || x'00'"),
            "NULL".to_owned(),
            "0".to_owned(),
            "1".to_owned(),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let options = options(&directory);
            std::fs::copy(&whole.path, &options.path).unwrap();
            let (table, place) = rows.split_once(" WHERE ").unwrap_or((&rows, "1"));
            let sql =
                format!("UPDATE {table} SET {column} = {change} WHERE {place} AND {column} IS NOT {change}");
            // What the tables do not allow is not in the file, or found by SQLite's own check.
            let changed = Connection::open(&options.path).unwrap().execute(&sql, []);
            if changed.unwrap_or(0) == 0 {
                continue;
            }
            changes += 1;
            let error = match Outbox::open(&options, reporting().0) {
                Err(error) => error,
                Ok((outbox, _)) => load(&outbox, None, 1 << 20).expect_err(&sql),
            };
            assert_eq!(error.kind(), ErrorKind::Persistence, "{sql}: {error}");
            assert!(
                error.message().contains("out.db") && error.message().contains("damaged"),
                "{sql}: {error}"
            );
        }
    }
    assert!(changes > 150, "{changes}");
}

#[test]
fn a_database_of_another_program_with_its_log_is_refused_and_left_as_it_was() {
    for torn in [false, true] {
        let elsewhere = tempfile::tempdir().unwrap();
        let (from, log) = (elsewhere.path().join("other.db"), elsewhere.path().join("other.db-wal"));
        let other = Connection::open(&from).unwrap();
        other.pragma_update(None, "journal_mode", "WAL").unwrap();
        other.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
        other.execute_batch("CREATE TABLE accounts (x); INSERT INTO accounts VALUES (1)").unwrap();
        // As a kill leaves it: everything is in the log.
        let directory = tempfile::tempdir().unwrap();
        let options = options(&directory);
        let mut file = std::fs::read(&from).unwrap();
        if torn {
            file[..512].fill(0xa5);
        }
        let log_there = directory.path().join("out.db-wal");
        std::fs::write(&options.path, &file).unwrap();
        std::fs::copy(&log, &log_there).unwrap();
        let error = Outbox::open(&options, reporting().0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains("out.db") && error.message().contains("not an outbox"), "{error}");
        assert!(std::fs::read(&options.path).unwrap() == file, "the file was changed");
        assert!(std::fs::read(&log_there).unwrap() == std::fs::read(&log).unwrap(), "the log was changed");
        let rows: i64 = Connection::open(&options.path)
            .unwrap()
            .query_row("SELECT x FROM accounts", [], |row| row.get(0))
            .unwrap();
        assert_eq!(rows, 1);
    }
}
