//! Crashes at each boundary of a script: before each change of the disk, the machine stops and
//! keeps what it will.
//!
//! A crash follows from the seed of its script and the place in it. `SIMDISK_SCRIPT=n` replays one
//! script, `SIMDISK_SCRIPTS=n` sets how many there are.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::disk::{Disk, Image, Loss};
use crate::node::{MQTT, PULSAR, Reach, TUBEMQ};
use crate::support::chance::Chance;
use crate::vfs::Mount;
use crate::world::{Clients, Recorded, Weather, World, record};

/// Seeds that have failed: each run plays them again.
const FAILED: [u64; 0] = [];
/// One recovery in so many is recorded, and crashes, too.
const RECOVERIES: usize = 10;

/// What a campaign has tried.
#[derive(Debug, Default)]
pub struct Tally {
    pub points: BTreeMap<Loss, usize>,
    pub recoveries: usize,
    /// How often the less common steps were taken.
    pub verbs: BTreeMap<&'static str, usize>,
    pub failures: Vec<String>,
    /// Attempts to write that failed, and were not the end.
    pub waits: usize,
    /// Why the store failed, after which the script ended.
    pub failure: Option<String>,
}

/// Opens a broker on the disk as the crash left it, and compares with what the clients know.
pub fn recover(path: &std::path::Path, image: Image, clients: &Clients) {
    let mount = Mount::new(path, Disk::with(image));
    World::open(path, mount, Reach::Disk, clients.clone()).unwrap().verify();
}

/// Tries one crash point; tries a crash during its recovery as well, if `again`.
fn try_point(path: &std::path::Path, image: Image, clients: &Clients, again: bool, chance: &mut Chance) {
    if !again {
        return recover(path, image, clients);
    }
    let mount = Mount::new(path, Disk::with(image));
    let mut replay = mount.disk().start_trace();
    let world = World::open(path, mount, Reach::Disk, clients.clone()).unwrap();
    let trace = world.disk().trace.take().unwrap();
    drop(world);
    let until = chance.below(trace.len() + 1);
    trace[..until].iter().for_each(|(change, _)| replay.apply(change));
    recover(path, replay.crash(Loss::draw(chance), chance), clients);
}

/// Plays a script and tries as many crashes at each of its boundaries as `crashes` says; at every
/// `stride`-th boundary, if that is not 1.
pub fn campaign(protocols: &[usize], seed: u64, reach: Reach, crashes: usize, stride: usize) -> Tally {
    campaign_in(Weather::default(), protocols, seed, reach, crashes, stride)
}

/// The same, with a neighbour or a fault.
pub fn campaign_in(
    weather: Weather,
    protocols: &[usize],
    seed: u64,
    reach: Reach,
    crashes: usize,
    stride: usize,
) -> Tally {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let Recorded { start: mut replay, trace, ledger, verbs, waits, failure } =
        record(path, protocols, seed, reach, weather);
    let mut tally = Tally { verbs, waits, failure, ..Tally::default() };
    for point in 0..=trace.len() {
        for crash in 0..if point % stride == 0 { crashes } else { 0 } {
            let chance = &mut Chance::new(seed << 40 | (point as u64) << 8 | crash as u64);
            let loss = Loss::draw(chance);
            let image = replay.crash(loss, chance);
            let events = trace.get(point).map_or(ledger.len() - 1, |(_, events)| *events);
            let again = chance.below(RECOVERIES) == 0;
            let tried = || try_point(path, image, &ledger[events], again, chance);
            if catch_unwind(AssertUnwindSafe(tried)).is_err() {
                tally
                    .failures
                    .push(format!("seed {seed}, point {point} of {}, crash {crash}: {loss:?}", trace.len()));
            }
            *tally.points.entry(loss).or_default() += 1;
            tally.recoveries += usize::from(again);
        }
        if let Some((change, _)) = trace.get(point) {
            replay.apply(change);
        }
    }
    tally
}

/// Seeds of the scripts: one, unless the environment says otherwise.
pub fn scripts() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    match number("SIMDISK_SCRIPT") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIMDISK_SCRIPTS").unwrap_or(1),
    }
}

/// Tries as many crashes as `crashes` says at every `stride`-th boundary of scripts of these
/// protocols.
#[allow(clippy::print_stdout, reason = "what was tried")]
fn run(protocols: &[usize], crashes: usize, stride: usize) {
    for seed in FAILED.iter().copied().chain(scripts()) {
        let tally = campaign(protocols, seed, Reach::Disk, crashes, stride);
        println!(
            "seed {seed}: {} crashes {:?}, {} of them followed by one during recovery; {:?}",
            tally.points.values().sum::<usize>(),
            tally.points,
            tally.recoveries,
            tally.verbs
        );
        assert!(
            tally.failures.is_empty(),
            "see above; SIMDISK_SCRIPT={seed} replays it: {:#?}",
            tally.failures
        );
    }
}

#[test]
fn pulsar_keeps_its_promises_whenever_the_machine_stops() {
    // Its script has twice as many boundaries.
    run(&[PULSAR], 1, 1);
}

#[test]
fn mqtt_keeps_its_promises_whenever_the_machine_stops() {
    run(&[MQTT], 2, 1);
}

#[test]
fn tubemq_keeps_its_promises_whenever_the_machine_stops() {
    run(&[TUBEMQ], 2, 1);
}

#[test]
fn all_protocols_on_one_store_keep_their_promises_whenever_the_machine_stops() {
    // A recovery of all takes as long as three.
    run(&[PULSAR, MQTT, TUBEMQ], 1, 2);
}

#[test]
#[allow(clippy::print_stdout, reason = "what was tried")]
fn a_neighbour_that_reads_locks_and_closes_the_database_harms_nothing() {
    let weather = Weather { neighbour: true, ..Weather::default() };
    for seed in 3 * scripts().start..3 * scripts().end {
        let protocol = [PULSAR, MQTT, TUBEMQ][seed as usize % 3];
        let tally = campaign_in(weather, &[protocol], seed, Reach::Disk, 1, 5);
        println!("neighbour: {} crashes, {} waits", tally.points.values().sum::<usize>(), tally.waits);
        assert!(tally.waits > 0, "it kept the broker from writing");
        assert!(tally.failures.is_empty() && tally.failure.is_none(), "{tally:#?}");
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "what was tried")]
fn a_store_that_syncs_too_little_is_found_out() {
    for protocol in [PULSAR, MQTT, TUBEMQ] {
        for reach in [Reach::System, Reach::Nowhere] {
            let tally = campaign(&[protocol], 1, reach, 1, 29);
            println!(
                "{reach:?}: {} of {} crashes are found out",
                tally.failures.len(),
                tally.points.values().sum::<usize>()
            );
            assert!(!tally.failures.is_empty(), "{reach:?}, protocol {protocol}: {tally:?}");
        }
    }
}
