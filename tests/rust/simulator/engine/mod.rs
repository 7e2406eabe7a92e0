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

/// The faults and the states of clients that they hit.
type Cells = BTreeMap<(&'static str, &'static str), u64>;

/// Seeds from which on every fault must have hit every state.
const COMPLETE: u64 = 1000;

/// What the seeds of a test reach: every fault and every state; with many seeds, every fault in every state.
struct Table {
    states: &'static [&'static str],
    /// States that no fault can hit, each with the reason.
    except: &'static [(&'static str, &'static str)],
}

impl Table {
    /// Names what was not reached, and what was and cannot be.
    fn check(&self, cells: &Cells, is_complete: bool) {
        let reached = |fault: Fault, state: &str| {
            let cell = cells.iter().find(|((of, at), _)| (*of, *at) == (fault.name(), state));
            cell.map_or(0, |(_, count)| *count)
        };
        let mut wrong = Vec::new();
        for state in self.states {
            let missed: Vec<_> =
                Fault::ALL.into_iter().filter(|fault| reached(*fault, state) == 0).map(Fault::name).collect();
            if missed.len() == Fault::ALL.len() || is_complete && !missed.is_empty() {
                wrong.push(format!("{state} was never hit by {}", missed.join(", ")));
            }
        }
        for fault in Fault::ALL {
            if self.states.iter().all(|state| reached(fault, state) == 0) {
                wrong.push(format!("{} has never happened", fault.name()));
            }
        }
        let states: BTreeSet<_> = cells.keys().map(|(_, state)| *state).collect();
        for state in states.into_iter().filter(|state| *state != "any" && !self.states.contains(state)) {
            let why = self.except.iter().find(|(except, _)| *except == state);
            wrong.push(format!("{state} was hit: {}", why.map_or("it is not in the table", |(_, why)| why)));
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// Plays the seeds on two threads, those that once failed among them, and checks what they have reached.
fn cover(default: u64, once: &'static [u64], table: &Table, run: fn(u64) -> Result<Run, String>) {
    let other = std::thread::spawn(move || play(default, 1, 2, once, run));
    let mut cells = play(default, 0, 2, once, run);
    match other.join() {
        Ok(others) => others.into_iter().for_each(|(cell, count)| *cells.entry(cell).or_default() += count),
        Err(panic) => std::panic::resume_unwind(panic),
    }
    // Fewer seeds reach less.
    if seeds::replayed().is_none() && seeds::count(default) >= default {
        table.check(&cells, seeds::count(default) >= COMPLETE);
    }
}

/// Plays part `part` of `parts` of the seeds, those that once failed among them.
fn play(default: u64, part: u64, parts: u64, once: &[u64], run: fn(u64) -> Result<Run, String>) -> Cells {
    let (mut failed, mut played, mut cells) = (Vec::new(), 0, Cells::new());
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
    cells
}

/// Plays seeds twice.
fn replay(seeds: std::ops::Range<u64>, run: fn(u64) -> Result<Run, String>) {
    for seed in seeds {
        let (first, second) = (run(seed), run(seed));
        assert_eq!(first, second, "seed {seed} did not repeat itself");
    }
}
