//! The seeds of a simulation. `SIMULATOR_SEED=n` replays one run and traces it, `SIMULATOR_SEEDS=n`
//! sets the number of runs of each test, and `SIMULATOR_SHARE=n` plays one n-th of them, the first.

use std::fmt::Arguments;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// The seed to replay, if one is given. It is asked for with every event.
pub(crate) fn replayed() -> Option<u64> {
    static REPLAYED: OnceLock<Option<u64>> = OnceLock::new();
    *REPLAYED.get_or_init(|| number("SIMULATOR_SEED"))
}

/// The number of runs, unless one is replayed.
pub(crate) fn count(default: u64) -> u64 {
    let share = number("SIMULATOR_SHARE").unwrap_or(1).max(1);
    number("SIMULATOR_SEEDS").unwrap_or(default.div_ceil(share))
}

/// Part `part` of `parts` of the seeds: tests that run in parallel share them.
pub(crate) fn share(default: u64, part: u64, parts: u64) -> impl Iterator<Item = u64> {
    let seeds = replayed().map_or(0..count(default), |seed| seed..seed + 1);
    seeds.filter(move |seed| seed % parts == part)
}

/// Plays one run. A panic in it ends with the instructions to replay it.
pub(crate) fn play<T>(seed: u64, run: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|_| panic!("seed {seed}: see above; SIMULATOR_SEED={seed} replays it"))
}

/// Prints an event of a replayed run.
#[allow(clippy::print_stdout, reason = "the trace is for the developer who replays a run")]
pub(crate) fn trace(event: Arguments<'_>) {
    if replayed().is_some() {
        println!("{event}");
    }
}
