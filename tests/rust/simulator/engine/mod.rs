//! The production clients of Pulsar, MQTT and TubeMQ against the production broker on its SQLite store: reconnecting
//! supervisors, pools, lookups, partitions, sessions, drivers, hubs and the writer, on a simulated network, disk and
//! clock.
//!
//! Every run follows from its seed. Two runs of a seed have the same trace; a test holds that for some of them.

mod events;
mod faults;
mod host;
mod mqtt;
mod network;
mod pulsar;
mod trace;
mod tubemq;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use faults::Fault;
use host::Run;

use crate::support::seeds;

/// Failing seeds after which a test ends.
const ENOUGH: usize = 20;

/// Plays part `part` of `parts` of the seeds, those that once failed among them.
fn play(default: u64, part: u64, parts: u64, once: &[u64], run: fn(u64) -> Result<Run, String>) {
    let (mut failed, mut played, mut cells) = (Vec::new(), 0, BTreeMap::new());
    let count = seeds::count(default);
    let once = once
        .iter()
        .copied()
        .filter(|seed| seeds::replayed().is_none() && *seed >= count && seed % parts == part);
    for seed in seeds::share(default, part, parts).chain(once) {
        match seeds::play(seed, || run(seed)) {
            Ok(run) => {
                played += 1;
                for (cell, count) in run.cells {
                    *cells.entry(cell).or_insert(0) += count;
                }
            }
            Err(violation) => {
                failed.push(format!("seed {seed}: {violation}; SIMULATOR_SEED={seed} replays it"));
            }
        }
        if failed.len() == ENOUGH {
            break;
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let states: BTreeSet<_> = cells.keys().map(|(_, state)| *state).collect();
    for fault in Fault::ALL {
        let row: Vec<_> = states
            .iter()
            .map(|state| (*state, cells.get(&(fault.name(), *state)).copied().unwrap_or(0)))
            .collect();
        seeds::trace(format_args!("{}: {row:?}", fault.name()));
        assert!(
            played < 50 || row.iter().any(|(_, count)| *count > 0),
            "{} has never happened",
            fault.name()
        );
    }
}

/// Plays seeds twice.
fn replay(seeds: std::ops::Range<u64>, run: fn(u64) -> Result<Run, String>) {
    for seed in seeds {
        let (first, second) = (run(seed), run(seed));
        assert_eq!(first, second, "seed {seed} did not repeat itself");
    }
}
