//! The production clients of Pulsar, MQTT and TubeMQ against the production broker on its SQLite
//! store: reconnecting supervisors, pools, lookups, partitions, sessions, drivers, hubs and the
//! writer, on a simulated network, disk and clock.
//!
//! Every run follows from its seed. Two runs of a seed have the same trace; a test holds that for
//! some of them.

mod events;
mod faults;
mod host;
mod mqtt;
mod network;
mod pulsar;
mod taking;
mod trace;
mod tubemq;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use faults::Fault;
use host::Run;

use crate::support::seeds;

/// Failing seeds after which a test ends.
const ENOUGH: usize = 20;

/// The faults and the states of clients that they hit.
type Cells = BTreeMap<(&'static str, &'static str), u64>;

/// What the seeds of a test reach: every fault in every state.
struct Table {
    states: &'static [&'static str],
    /// States that no fault can hit, each with the reason.
    except: &'static [(&'static str, &'static str)],
    /// States that only chance brings about, each with the reason.
    rare: &'static [(&'static str, &'static str)],
}

impl Table {
    /// Prints how often each fault has hit each state, the rarest pairs first. `make simulate`
    /// shows it.
    #[allow(clippy::print_stdout, reason = "what was tried")]
    fn print(&self, cells: &Cells) {
        for state in self.states {
            let count = |fault: Fault| cells.get(&(fault.name(), *state)).copied().unwrap_or(0);
            let mut counts: Vec<_> = Fault::ALL.map(|fault| (count(fault), fault.name())).into();
            counts.sort_unstable();
            let counts: Vec<_> = counts.iter().map(|(count, fault)| format!("{count} {fault}")).collect();
            println!("{state}: {}", counts.join(", "));
        }
    }

    /// What was not reached, and what was and cannot be.
    fn wrong(&self, cells: &Cells) -> Vec<String> {
        let reached = |fault: Fault, state: &'static str| cells.contains_key(&(fault.name(), state));
        let mut wrong = Vec::new();
        for state in self.states {
            let missed = Fault::ALL.into_iter().filter(|fault| !reached(*fault, state));
            let missed: Vec<_> = missed.map(Fault::name).collect();
            if !missed.is_empty() {
                wrong.push(format!("{state} was never hit by {}", missed.join(", ")));
            }
        }
        let states: BTreeSet<_> = cells.keys().map(|(_, state)| *state).collect();
        let rare = |state: &str| self.rare.iter().any(|(rare, _)| *rare == state);
        let others = states.into_iter().filter(|state| *state != "any" && !self.states.contains(state));
        for state in others.filter(|state| !rare(state)) {
            let why = self.except.iter().find(|(except, _)| *except == state);
            wrong.push(format!("{state} was hit: {}", why.map_or("it is not in the table", |(_, why)| why)));
        }
        wrong
    }
}

/// The seeds of a test.
struct Seeds {
    /// Number of those that `make test-deep` plays; `make test` plays a tenth.
    count: u64,
    /// Those that once failed. They are played in every run.
    once_failed: &'static [u64],
    /// Number of those that are played twice: both runs have the same trace.
    twice: u64,
}

impl Seeds {
    fn all(&self) -> Vec<u64> {
        let count = seeds::count(self.count);
        let once = self.once_failed.iter().copied();
        let once = once.filter(|seed| seeds::replayed().is_none() && *seed >= count);
        seeds::share(self.count, 0, 1).chain(once).collect()
    }

    fn play(&self, seed: u64, run: fn(u64) -> Result<Run, String>) -> Result<Run, String> {
        let first = run(seed)?;
        if seed < self.twice && first != run(seed)? {
            return Err("its second run has another trace".into());
        }
        Ok(first)
    }
}

/// Plays seeds and checks what they have reached. Fewer seeds than those of `make test-deep` may
/// reach less.
#[allow(clippy::print_stdout, reason = "what was not tried")]
fn cover(seeds: &Seeds, table: &Table, run: fn(u64) -> Result<Run, String>) {
    let cells = play(seeds, run);
    table.print(&cells);
    if seeds::replayed().is_some() {
        return;
    }
    let wrong = table.wrong(&cells).join("\n");
    if seeds::count(seeds.count) < seeds.count {
        println!("{wrong}");
    } else {
        assert!(wrong.is_empty(), "{wrong}");
    }
}

/// Plays seeds on as many threads as there are processors. Each takes the next seed when it has
/// played one: they differ in length.
fn play(of: &Seeds, run: fn(u64) -> Result<Run, String>) -> Cells {
    let seeds = of.all();
    let next = AtomicUsize::new(0);
    let (failed, cells) = (Mutex::new(Vec::new()), Mutex::new(Cells::new()));
    let work = || {
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
            match seeds::play(seed, || of.play(seed, run)) {
                Ok(run) => {
                    let mut cells = cells.lock().unwrap();
                    run.cells.into_iter().for_each(|(cell, count)| *cells.entry(cell).or_default() += count);
                }
                Err(violation) => {
                    let mut failed = failed.lock().unwrap();
                    failed.push(format!("seed {seed}: {violation}; SIMULATOR_SEED={seed} replays it"));
                    if failed.len() == ENOUGH {
                        next.store(seeds.len(), Ordering::Relaxed);
                    }
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(seeds.len());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let cells = cells.into_inner().unwrap();
    for fault in Fault::ALL {
        assert!(
            seeds.len() < 50 || cells.keys().any(|(name, _)| *name == fault.name()),
            "{} has never happened",
            fault.name()
        );
    }
    cells
}
