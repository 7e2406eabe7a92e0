//! The file of an MQTT client's outbox, damaged: it is opened with publications that could be sent,
//! or refused with an error.

use std::path::PathBuf;
use std::sync::{OnceLock, mpsc};

use bytes::Bytes;
use forebay_client::mqtt::outbox::{Outbox, OutboxOptions};
use forebay_mqtt::packet::Publish;
use forebay_mqtt::{Properties, Property, QoS};
use forebay_sqlite::Sync;
use crate::files::{damage, folder};
use crate::meter::Meter;
use crate::rule::AFTER;
use crate::script::Script;

const COLUMNS: [(&str, &str); 6] = [
    ("message", "key"),
    ("message", "packet_id"),
    ("message", "released"),
    ("message", "expires_ms"),
    ("message", "packet"),
    ("session", "client_id"),
];

/// The path, and the file with some publications.
fn template() -> &'static (PathBuf, Vec<u8>) {
    static TEMPLATE: OnceLock<(PathBuf, Vec<u8>)> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let path = folder("outbox").join("out.db");
        let _ = std::fs::remove_file(&path);
        let options = OutboxOptions { sync: Sync::Os, ..OutboxOptions::new(&path) };
        let (outbox, _) = Outbox::open(&options, Box::new(|_, _| {})).unwrap();
        for key in 1..9 {
            let qos = if key % 2 == 1 { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
            let properties = Properties::new()
                .with(Property::MessageExpiryInterval(1000))
                .with(Property::User("k".into(), "v".into()));
            let payload = Bytes::from(vec![7; 10 * key as usize]);
            let publish = Publish { qos, topic: "a/b".into(), payload, properties, ..Publish::default() };
            outbox.store(key, &publish).unwrap();
        }
        for key in [2, 4] {
            outbox.sent(key, (key as u16).try_into().unwrap()).unwrap();
        }
        outbox.released(4).unwrap();
        outbox.set_client_id("till").unwrap();
        outbox.close();
        let bytes = std::fs::read(&path).unwrap();
        (path, bytes)
    })
}

/// Plays one input.
pub fn play(data: &[u8]) {
    let (path, bytes) = template();
    damage(path, bytes, &COLUMNS, |_| (), &mut Script(data));
    let options = OutboxOptions { sync: Sync::Os, ..OutboxOptions::new(path) };
    let mut meter = Meter::default();
    meter.came(bytes.len());
    meter.run(|| {
        let Ok((outbox, found)) = Outbox::open(&options, Box::new(|_, _| {})) else { return };
        for one in &found.in_flight {
            assert!(one.key < found.next_key && one.publish.qos != QoS::AtMostOnce);
        }
        let (mut after, mut keys) = (None, Vec::new());
        loop {
            let (told, loaded) = mpsc::channel();
            let told = move |piece| drop(told.send(piece));
            if outbox.load(after, 100, Box::new(told)).is_err() {
                break;
            }
            let Ok(Ok(piece)) = loaded.recv() else { break };
            for (key, publish) in &piece.messages {
                assert!(publish.qos != QoS::AtMostOnce && !publish.topic.is_empty());
                keys.push(*key);
            }
            assert!(keys.len() <= 8, "no more than were stored");
            if !piece.more {
                break;
            }
            assert!(piece.last > after, "it goes on");
            after = piece.last;
        }
        assert!(keys.is_sorted());
        outbox.close();
    });
    meter.check(AFTER, 1);
}
