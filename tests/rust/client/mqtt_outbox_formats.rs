//! Outbox files of this version and of earlier ones, kept in `tests/golden/outbox`: each is opened and has exactly its
//! content. A file of a newer version is refused and left as it is. `make golden-stores` writes the present one.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use forebay::client::mqtt::outbox::{InFlight, Outbox, OutboxOptions};
use forebay::error::ErrorKind;
use forebay::mqtt::packet::{PacketId, Publish};
use forebay::mqtt::{Properties, Property, QoS};
use forebay::sqlite::Connection;

/// The format that this version writes.
const PRESENT: u32 = 2;
const LIMIT: Duration = Duration::from_secs(60);

fn golden(format: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/outbox/format-{format}.db"))
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

/// Copies a kept file into a directory.
fn unpack(format: u32) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.db");
    std::fs::copy(golden(format), &path).unwrap();
    (directory, path)
}

#[test]
fn outboxes_of_every_format_are_opened_with_their_content() {
    if std::env::var_os("WRITE_GOLDEN_STORES").is_some() {
        let directory = tempfile::tempdir().unwrap();
        write(&directory.path().join("out.db"));
        std::fs::copy(directory.path().join("out.db"), golden(PRESENT)).unwrap();
    }
    for format in 1..=PRESENT {
        let (_directory, path) = unpack(format);
        // The second time as a file of the present format.
        for _ in 0..2 {
            let (outbox, found) = Outbox::open(&OutboxOptions::new(&path), Box::new(|_, _| {})).unwrap();
            assert_eq!(found.client_id.as_deref(), Some("till-7"));
            assert_eq!(found.in_flight, [in_flight(2, 7, false), in_flight(4, 65_535, true)]);
            assert_eq!((found.waiting, found.next_key), (5, 9));
            let (told, loaded) = mpsc::channel();
            outbox.load(None, 1 << 20, Box::new(move |piece| told.send(piece).unwrap())).unwrap();
            let loaded = loaded.recv_timeout(LIMIT).unwrap().unwrap();
            assert_eq!(loaded.messages, [3, 5, 6, 7, 8].map(|key| (key, publish(key))), "format {format}");
            outbox.close();
        }
    }
}

#[test]
fn an_outbox_of_a_newer_format_is_refused_and_stays_as_it_is() {
    let (_directory, path) = unpack(PRESENT);
    let newer = Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", PRESENT + 1).unwrap();
    newer.execute_batch("ALTER TABLE message ADD COLUMN newer TEXT").unwrap();
    drop(newer);
    let before = std::fs::read(&path).unwrap();
    let error = Outbox::open(&OutboxOptions::new(&path), Box::new(|_, _| {})).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedVersion);
    let parts =
        ["out.db", &format!("format {}", PRESENT + 1), &format!("up to {PRESENT}"), "use the version"];
    for part in parts {
        assert!(error.message().contains(part), "{error}");
    }
    assert!(std::fs::read(&path).unwrap() == before, "the file was changed");
}
