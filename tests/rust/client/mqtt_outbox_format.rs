//! A kept outbox file, `tests/golden/outbox/format-1.db`: it is opened with exactly its content,
//! and it is what this version writes. A file of another format is refused and left as it is.
//!
//! A change of the tables needs the next format number and a new kept file:
//! `WRITE_GOLDEN=1 cargo test -p forebay-tests --test client outbox_format -- --test-threads 1`.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use forebay_base::error::ErrorKind;
use forebay_client::mqtt::outbox::{InFlight, Outbox, OutboxOptions};
use forebay_mqtt::packet::{PacketId, Publish};
use forebay_mqtt::{Properties, Property, QoS};
use forebay_sqlite::Connection;

/// The format that this version writes.
const FORMAT: u32 = 1;
const LIMIT: Duration = Duration::from_secs(60);

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../golden/outbox/format-{FORMAT}.db"))
}

fn publish(key: u64) -> Publish {
    let properties = match key {
        3 => Properties::new()
            .with(Property::ContentType("text/plain".into()))
            .with(Property::User("schlüssel".into(), "wert".into())),
        _ => Properties::new(),
    };
    Publish {
        qos: if key.is_multiple_of(2) { QoS::ExactlyOnce } else { QoS::AtLeastOnce },
        retain: key == 5,
        topic: "till/7/é".into(),
        payload: Bytes::from(format!("{key} {}", "x".repeat(key as usize * 700))),
        properties,
        ..Publish::default()
    }
}

fn in_flight(key: u64, packet_id: u16, released: bool) -> InFlight {
    InFlight { key, publish: publish(key), packet_id: PacketId::new(packet_id).unwrap(), released }
}

fn write(path: &Path) {
    let (outbox, _) =
        Outbox::open(&OutboxOptions::new(path), Box::new(|_, outcome| outcome.unwrap())).unwrap();
    outbox.set_client_id("till-7").unwrap();
    for key in 1..=8 {
        outbox.store(key, &publish(key)).unwrap();
    }
    outbox.sent(2, PacketId::new(7).unwrap()).unwrap();
    outbox.sent(4, PacketId::MAX).unwrap();
    outbox.sent(6, PacketId::new(9).unwrap()).unwrap();
    outbox.released(4).unwrap();
    outbox.requeue(vec![6]).unwrap();
    outbox.remove(vec![1]).unwrap();
    outbox.close();
}

/// Copies the kept file into a directory.
fn unpack() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.db");
    std::fs::copy(golden(), &path).unwrap();
    (directory, path)
}

#[test]
fn the_kept_outbox_is_opened_with_its_content() {
    if std::env::var_os("WRITE_GOLDEN").is_some() {
        let directory = tempfile::tempdir().unwrap();
        write(&directory.path().join("out.db"));
        std::fs::copy(directory.path().join("out.db"), golden()).unwrap();
    }
    let (_directory, path) = unpack();
    let (outbox, found) = Outbox::open(&OutboxOptions::new(&path), Box::new(|_, _| {})).unwrap();
    assert_eq!(found.client_id.as_deref(), Some("till-7"));
    assert_eq!(found.in_flight, [in_flight(2, 7, false), in_flight(4, 65_535, true)]);
    assert_eq!((found.waiting, found.next_key), (5, 9));
    let (told, loaded) = mpsc::channel();
    outbox.load(None, 1 << 20, Box::new(move |piece| told.send(piece).unwrap())).unwrap();
    let loaded = loaded.recv_timeout(LIMIT).unwrap().unwrap();
    assert_eq!(loaded.messages, [3, 5, 6, 7, 8].map(|key| (key, publish(key))));
    outbox.close();
}

#[test]
fn the_kept_outbox_is_what_this_version_writes() {
    let dump = |path: &Path| -> Vec<String> {
        let db = Connection::open(path).unwrap();
        let list = |sql: &str| -> Vec<String> {
            let mut statement = db.prepare(sql).unwrap();
            let columns = statement.column_count();
            let rows = statement.query_map([], |row| {
                (0..columns).map(|i| row.get_ref(i).map(|value| format!("{value:?} "))).collect()
            });
            rows.unwrap().collect::<rusqlite::Result<_>>().unwrap()
        };
        [
            "PRAGMA application_id",
            "PRAGMA user_version",
            "SELECT sql FROM sqlite_schema WHERE sql NOT NULL ORDER BY name",
            "SELECT * FROM message ORDER BY key",
            "SELECT * FROM session",
        ]
        .iter()
        .flat_map(|sql| list(sql))
        .collect()
    };
    let directory = tempfile::tempdir().unwrap();
    let written = directory.path().join("out.db");
    write(&written);
    let (_kept, kept) = unpack();
    let message = "a change of the tables needs a new format and a new kept file";
    assert_eq!(dump(&written), dump(&kept), "{message}");
}

#[test]
fn an_outbox_of_another_format_is_refused_and_stays_as_it_is() {
    for format in [FORMAT - 1, FORMAT + 1] {
        let (_directory, path) = unpack();
        let other = Connection::open(&path).unwrap();
        other.pragma_update(None, "user_version", format).unwrap();
        other.execute_batch("ALTER TABLE message ADD COLUMN other TEXT").unwrap();
        drop(other);
        let before = std::fs::read(&path).unwrap();
        let error = Outbox::open(&OutboxOptions::new(&path), Box::new(|_, _| {})).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedVersion);
        let parts = [
            path.display().to_string(),
            format!("format {format}"),
            format!("only format {FORMAT}"),
            "version that wrote it".to_owned(),
        ];
        for part in parts {
            assert!(error.message().contains(&part), "{error}");
        }
        assert!(std::fs::read(&path).unwrap() == before, "the file was changed");
    }
}
