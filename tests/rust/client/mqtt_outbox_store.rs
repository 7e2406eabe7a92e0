//! The durable outbox under kills: a publication reported as stored is there, one reported as
//! removed is not, and the file opens again at once.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use forebay_client::mqtt::outbox::{Outbox, OutboxOptions};
use forebay_mqtt::QoS;
use forebay_mqtt::packet::{PacketId, Publish};

/// Set for the process that is to be killed.
const VICTIM: &str = "OUTBOX_VICTIM";
const ROUNDS: usize = 12;
/// Bursts have several changes in one commit, some of which the kill may tear from the others.
const BURST: u64 = 5;

fn publish(key: u64) -> Publish {
    Publish {
        qos: if key.is_multiple_of(2) { QoS::ExactlyOnce } else { QoS::AtLeastOnce },
        topic: "killed".into(),
        payload: Bytes::from(format!("{key} {}", "x".repeat(key as usize % 3000))),
        ..Publish::default()
    }
}

/// Stores and removes publications until it is killed, and reports each.
fn victim(path: &Path) -> ! {
    let (told, reports) = mpsc::channel();
    let report = Box::new(move |ticket, outcome: Result<_, _>| told.send((ticket, outcome)).unwrap());
    let (outbox, found) = Outbox::open(&OutboxOptions::new(path), report).unwrap();
    let say = |text: String| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{text}").and_then(|()| out.flush()).unwrap();
    };
    let wait = |ticket| loop {
        let (reported, outcome): (u64, forebay_base::error::Result<()>) = reports.recv().unwrap();
        outcome.unwrap();
        if reported >= ticket {
            break;
        }
    };
    for first in (found.next_key..).step_by(BURST as usize) {
        let keys = first..first + BURST;
        let mut last = 0;
        for key in keys.clone() {
            last = outbox.store(key, &publish(key)).unwrap();
        }
        for key in keys.clone().filter(|key| key.is_multiple_of(2)) {
            last = outbox.sent(key, PacketId::new(key as u16 % 1000 + 1).unwrap()).unwrap();
        }
        wait(last);
        say(format!("stored {first}"));
        let gone: Vec<u64> = keys.filter(|key| key % 3 == 0).collect();
        say(format!("removing {first}"));
        wait(outbox.remove(gone).unwrap());
        say(format!("removed {first}"));
    }
    unreachable!("there are many keys")
}

#[test]
fn a_kill_at_any_moment_loses_nothing_that_was_stored() {
    if let Some(path) = std::env::var_os(VICTIM) {
        victim(Path::new(&path));
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.db");
    let mut seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let (mut must, mut gone) = (BTreeSet::new(), BTreeSet::new());
    // Those whose packet identifier was reported as well.
    let mut sent = BTreeSet::new();
    let mut killed_with_work = 0;
    for round in 0..ROUNDS {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "mqtt_outbox_store::a_kill_at_any_moment_loses_nothing_that_was_stored",
                "--nocapture",
            ])
            .env(VICTIM, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let lines_to_hear = 1 + (seed >> 33) % 60;
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut hear = |line: std::io::Result<String>| {
            let line = line.unwrap();
            let Some((word, first)) = line.split_once(' ') else { return false };
            let Ok(first) = first.parse::<u64>() else { return false };
            let keys = first..first + BURST;
            match word {
                "stored" => {
                    must.extend(keys.clone());
                    sent.extend(keys.filter(|key| key.is_multiple_of(2)));
                }
                "removing" => {
                    for key in keys.filter(|key| key % 3 == 0) {
                        must.remove(&key);
                        sent.remove(&key);
                    }
                }
                "removed" => gone.extend(keys.filter(|key| key % 3 == 0)),
                _ => return false,
            }
            true
        };
        let mut heard = 0;
        while heard < lines_to_hear {
            heard += u64::from(hear(lines.next().expect("it does not end by itself")));
        }
        std::thread::sleep(Duration::from_micros((seed >> 20) % 3000));
        process.kill().unwrap();
        process.wait().unwrap();
        // Reports from before the kill count.
        for line in lines {
            hear(line);
        }

        let (outbox, found) = Outbox::open(&OutboxOptions::new(&path), Box::new(|_, _| {})).unwrap();
        let (told, loaded) = mpsc::channel();
        outbox.load(None, usize::MAX, Box::new(move |piece| told.send(piece).unwrap())).unwrap();
        let waiting = loaded.recv_timeout(Duration::from_secs(60)).unwrap().unwrap().messages;
        let mut there = BTreeSet::new();
        for (key, message) in
            waiting.into_iter().chain(found.in_flight.iter().map(|f| (f.key, f.publish.clone())))
        {
            assert_eq!(message, publish(key), "round {round}");
            assert!(there.insert(key), "round {round}: {key} twice");
        }
        for flight in &found.in_flight {
            assert_eq!(u64::from(flight.packet_id.get()), flight.key % 1000 + 1);
        }
        let lost: Vec<_> = must.difference(&there).collect();
        assert!(lost.is_empty(), "round {round}: {lost:?} were stored");
        let back: Vec<_> = gone.intersection(&there).collect();
        assert!(back.is_empty(), "round {round}: {back:?} were removed");
        for key in &sent {
            assert!(found.in_flight.iter().any(|flight| flight.key == *key), "round {round}: id of {key}");
        }
        // More than reported may be there: the last burst.
        killed_with_work += usize::from(there.iter().any(|key| !must.contains(key)));
        must.clone_from(&there);
        // The key of a removed publication is used again if none above it is left.
        gone.retain(|key| *key < found.next_key);
    }
    assert!(!gone.is_empty() && !must.is_empty());
    assert!(killed_with_work > 0, "no kill ever came between a store and its report");
}
