//! The MQTT client's durable outbox: crashes at each boundary of a script. What was reported is in
//! the file, and the rest of it is what came next: the file holds the result of the first so many
//! changes, of which those that were reported are the least and those that were asked for the most.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use forebay_base::error::Result;
use forebay_client::mqtt::outbox::{Found, Outbox, OutboxOptions, Ticket};
use forebay_mqtt::QoS;
use forebay_mqtt::packet::{PacketId, Publish};
use forebay_sqlite::Sync;

use crate::crash::scripts;
use crate::disk::{Disk, Image, Loss, Replay, Trace};
use crate::support::chance::Chance;
use crate::vfs::Mount;
use crate::world::STEPS;

const FILE: &str = "out.db";
const LIMIT: Duration = Duration::from_secs(60);
/// One recovery in so many is recorded, and crashes, too.
const RECOVERIES: usize = 10;

/// A change that the outbox was asked for.
#[derive(Clone, Debug)]
enum Change {
    Store(u64),
    Sent(u64, u16),
    Released(u64),
    Requeue(Vec<u64>),
    Remove(Vec<u64>),
    ClientId(String),
}

/// What the file holds: packet identifiers by key (0 for none), and whether PUBREC has arrived.
#[derive(Clone, Debug, Default, PartialEq)]
struct Content {
    messages: BTreeMap<u64, (u16, bool)>,
    client_id: Option<String>,
}

impl Content {
    fn apply(&mut self, change: &Change) {
        let messages = &mut self.messages;
        match change {
            Change::Store(key) => drop(messages.insert(*key, (0, false))),
            Change::Sent(key, packet_id) => messages.get_mut(key).unwrap().0 = *packet_id,
            Change::Released(key) => messages.get_mut(key).unwrap().1 = true,
            Change::Requeue(keys) => keys.iter().for_each(|key| *messages.get_mut(key).unwrap() = (0, false)),
            Change::Remove(keys) => messages.retain(|key, _| !keys.contains(key)),
            Change::ClientId(name) => self.client_id = Some(name.clone()),
        }
    }
}

fn publish(key: u64) -> Publish {
    Publish {
        qos: if key.is_multiple_of(2) { QoS::ExactlyOnce } else { QoS::AtLeastOnce },
        topic: "t".into(),
        payload: Bytes::from(format!("{key} {}", "x".repeat(key as usize * 67 % 1500))),
        ..Publish::default()
    }
}

/// An open outbox, whose reports are waited for.
struct Client {
    outbox: Outbox,
    reports: mpsc::Receiver<(Ticket, Result<()>)>,
}

impl Client {
    fn open(path: &Path, sync: Sync) -> Result<(Self, Found)> {
        let (told, reports) = mpsc::channel();
        let options = OutboxOptions { sync, ..OutboxOptions::new(path.join(FILE)) };
        let report = Box::new(move |ticket, outcome| drop(told.send((ticket, outcome))));
        let (outbox, found) = Outbox::open(&options, report)?;
        Ok((Self { outbox, reports }, found))
    }

    fn ask(&self, change: &Change) -> Ticket {
        let outbox = &self.outbox;
        match change {
            Change::Store(key) => outbox.store(*key, &publish(*key)),
            Change::Sent(key, packet_id) => outbox.sent(*key, PacketId::new(*packet_id).unwrap()),
            Change::Released(key) => outbox.released(*key),
            Change::Requeue(keys) => outbox.requeue(keys.clone()),
            Change::Remove(keys) => outbox.remove(keys.clone()),
            Change::ClientId(name) => outbox.set_client_id(name),
        }
        .unwrap()
    }

    fn wait(&self, ticket: Ticket) {
        loop {
            let (reported, outcome) = self.reports.recv_timeout(LIMIT).expect("a report");
            outcome.unwrap();
            if reported >= ticket {
                return;
            }
        }
    }

    /// Everything in the file; the messages are as they were stored.
    fn content(&self, found: Found) -> Content {
        let (told, loaded) = mpsc::channel();
        self.outbox.load(None, usize::MAX, Box::new(move |piece| drop(told.send(piece)))).unwrap();
        let waiting = loaded.recv_timeout(LIMIT).expect("a piece").unwrap().messages;
        let mut content = Content { client_id: found.client_id, ..Content::default() };
        assert_eq!(found.waiting, waiting.len() as u64);
        for (key, message) in waiting {
            assert_eq!(message, publish(key), "altered");
            content.messages.insert(key, (0, false));
        }
        for flight in found.in_flight {
            assert_eq!(flight.publish, publish(flight.key), "altered");
            let state = (flight.packet_id.get(), flight.released);
            assert_eq!(content.messages.insert(flight.key, state), None, "{} twice", flight.key);
        }
        assert_eq!(found.next_key, content.messages.keys().last().map_or(1, |last| last + 1));
        content
    }
}

/// Number of changes that were reported, and that were asked for.
type Known = (usize, usize);

struct Recorded {
    start: Replay,
    trace: Trace,
    changes: Vec<Change>,
    ledger: Vec<Known>,
}

/// The next change of a script, if what is in the outbox allows it.
fn draw(content: &Content, next: u64, chance: &mut Chance) -> Option<Change> {
    let pick = |chance: &mut Chance, fits: &dyn Fn(u64, (u16, bool)) -> bool| {
        let keys: Vec<u64> = content
            .messages
            .iter()
            .filter(|(key, state)| fits(**key, **state))
            .map(|(key, _)| *key)
            .collect();
        keys.get(chance.below(keys.len())).copied()
    };
    match chance.below(100) {
        0..40 => Some(Change::Store(next)),
        40..60 => pick(chance, &|key, (packet_id, _)| key.is_multiple_of(2) && packet_id == 0)
            .map(|key| Change::Sent(key, 1 + key as u16 % 60_000)),
        60..72 => pick(chance, &|_, (packet_id, released)| packet_id > 0 && !released).map(Change::Released),
        72..76 => pick(chance, &|_, (packet_id, _)| packet_id > 0).map(|key| Change::Requeue(vec![key])),
        76..98 => {
            let keys: Vec<u64> = content.messages.keys().copied().take(chance.within(1, 4)).collect();
            (!keys.is_empty()).then_some(Change::Remove(keys))
        }
        _ => Some(Change::ClientId(format!("till-{next}"))),
    }
}

/// Plays a script on an empty disk. Now and then the client ends, or another process writes the log
/// into the database.
fn record(path: &Path, seed: u64, sync: Sync) -> Recorded {
    let chance = &mut Chance::new(seed);
    let mount = Mount::new(path, Disk::default());
    let start = mount.disk().start_trace();
    let (mut changes, mut content, mut ledger) = (Vec::new(), Content::default(), vec![(0, 0)]);
    let note = |ledger: &mut Vec<Known>, reported: usize, asked: usize| {
        ledger.push((reported, asked));
        mount.disk().events = ledger.len() - 1;
    };
    let mut client = Client::open(path, sync).unwrap().0;
    let mut next = 1;
    while changes.len() < STEPS {
        match chance.below(100) {
            0..3 => {
                client.outbox.close();
                let (again, found) = Client::open(path, sync).unwrap();
                assert_eq!(again.content(found), content);
                client = again;
            }
            3..6 => {
                let neighbour = forebay_sqlite::Connection::open(path.join(FILE)).unwrap();
                let _ = neighbour.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            }
            _ => {}
        }
        let from = changes.len();
        for _ in 0..chance.within(1, 5) {
            if let Some(change) = draw(&content, next, chance) {
                next += u64::from(matches!(change, Change::Store(_)));
                content.apply(&change);
                changes.push(change);
            }
        }
        note(&mut ledger, from, changes.len());
        if let Some(last) = changes[from..].iter().map(|change| client.ask(change)).last() {
            client.wait(last);
        }
        note(&mut ledger, changes.len(), changes.len());
    }
    client.outbox.close();
    let trace = mount.disk().trace.take().unwrap();
    Recorded { start, trace, changes, ledger }
}

/// What the crash left, where the outbox looks at the file's first bytes before SQLite does.
fn put(path: &Path, image: &Image) {
    for name in [FILE.to_owned(), format!("{FILE}-wal")] {
        std::fs::write(path.join(&name), image.0.get(&name).map_or(&[][..], |file| file)).unwrap();
    }
}

/// Opens the outbox on the disk as the crash left it, compares it with what its client knows, and
/// goes on.
fn recover(path: &Path, image: Image, changes: &[Change], (reported, asked): Known) {
    put(path, &image);
    let _mount = Mount::new(path, Disk::with(image));
    let (client, found) = Client::open(path, Sync::Full).unwrap();
    let content = client.content(found);
    let mut expected = Content::default();
    changes[..reported].iter().for_each(|change| expected.apply(change));
    let mut fits = content == expected;
    for change in &changes[reported..asked] {
        expected.apply(change);
        fits |= content == expected;
    }
    assert!(fits, "after {reported} of {asked} changes: found {content:?}, all would be {expected:?}");
    let next = content.messages.keys().last().map_or(1, |last| last + 1);
    client.wait(client.ask(&Change::Store(next)));
    client.outbox.close();
}

fn try_point(path: &Path, image: Image, changes: &[Change], known: Known, again: bool, chance: &mut Chance) {
    if !again {
        return recover(path, image, changes, known);
    }
    put(path, &image);
    let mount = Mount::new(path, Disk::with(image));
    let mut replay = mount.disk().start_trace();
    let opened = Client::open(path, Sync::Full).unwrap();
    let trace = mount.disk().trace.take().unwrap();
    drop((opened, mount));
    let until = chance.below(trace.len() + 1);
    trace[..until].iter().for_each(|(change, _)| replay.apply(change));
    recover(path, replay.crash(Loss::draw(chance), chance), changes, known);
}

/// Plays a script, and tries one crash at each `stride`-th boundary of it; gives their number, and
/// those that failed.
fn campaign(seed: u64, sync: Sync, stride: usize) -> (usize, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let Recorded { start: mut replay, trace, changes, ledger } = record(path, seed, sync);
    let (mut points, mut failures) = (0, Vec::new());
    for point in 0..=trace.len() {
        if point % stride == 0 {
            let chance = &mut Chance::new(seed << 40 | point as u64);
            let loss = Loss::draw(chance);
            let image = replay.crash(loss, chance);
            let known = ledger[trace.get(point).map_or(ledger.len() - 1, |(_, events)| *events)];
            let again = chance.below(RECOVERIES) == 0;
            let tried = || try_point(path, image, &changes, known, again, chance);
            if catch_unwind(AssertUnwindSafe(tried)).is_err() {
                failures.push(format!("seed {seed}, point {point} of {}: {loss:?}", trace.len()));
            }
            points += 1;
        }
        if let Some((change, _)) = trace.get(point) {
            replay.apply(change);
        }
    }
    (points, failures)
}

#[test]
#[allow(clippy::print_stdout, reason = "what was tried")]
fn an_outbox_keeps_what_it_has_reported_whenever_the_machine_stops() {
    for seed in scripts() {
        let (points, failures) = campaign(seed, Sync::Full, 1);
        println!("outbox, seed {seed}: {points} crashes");
        assert!(failures.is_empty(), "see above; SIMDISK_SCRIPT={seed} replays it: {failures:#?}");
    }
}

#[test]
fn an_outbox_that_syncs_too_little_is_found_out() {
    let (points, failures) = campaign(1, Sync::Os, 13);
    assert!(!failures.is_empty(), "none of {points}");
}

/// Everything in a file, or the error of its opening or its loading.
fn read(path: &Path) -> Result<Content> {
    let (client, found) = Client::open(path, Sync::Full)?;
    let (told, loaded) = mpsc::channel();
    client.outbox.load(None, usize::MAX, Box::new(move |piece| drop(told.send(piece))))?;
    let waiting = loaded.recv_timeout(LIMIT).expect("a piece")?;
    assert_eq!(waiting.messages.len() as u64, found.waiting, "some are missing");
    Ok(client.content(found))
}

#[test]
#[allow(clippy::print_stdout, reason = "what was tried")]
fn a_flipped_bit_in_an_outbox_is_found_or_does_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut expected = Content::default();
    let image = {
        let mount = Mount::new(path, Disk::default());
        let client = Client::open(path, Sync::Full).unwrap().0;
        let stored = (1..=40).map(Change::Store);
        let sent = (1..=15).map(|n| Change::Sent(2 * n, n as u16));
        let released = (1..=5).map(|n| Change::Released(4 * n));
        let rest = [Change::Remove(vec![1, 2, 3]), Change::ClientId("till".into())];
        for change in stored.chain(sent).chain(released).chain(rest) {
            client.ask(&change);
            expected.apply(&change);
        }
        client.outbox.close();
        mount.disk().image()
    };
    let (mut found, seeds) = (0, 200 * scripts().start..200 * scripts().end);
    for seed in seeds.clone() {
        let chance = &mut Chance::new(seed);
        let mut flipped = image.clone();
        let file = flipped.0.get_mut(FILE).unwrap();
        let at = if chance.percent(30) { chance.below(4096) } else { chance.below(file.len()) };
        let bit = 1 << chance.below(8);
        file[at] ^= bit;
        put(path, &flipped);
        let _mount = Mount::new(path, Disk::with(flipped));
        match read(path) {
            Ok(content) => assert_eq!(content, expected, "byte {at} ^ {bit}"),
            Err(error) => {
                assert!(error.message().contains(FILE), "byte {at} ^ {bit}: {error}");
                found += 1;
            }
        }
    }
    println!("flipped bits in an outbox: {found} of {} were found", seeds.count());
    assert!(found > 0);
}
