//! Pulsar's client state machines against the embedded broker's, without sockets, disks and clocks.
//!
//! The network delays, cuts and loses the last bytes in flight, and each side detects a cut by
//! itself. The broker is killed between its commits. It shows what `engine` cannot see from
//! outside: the permits that both sides count, and the log after each commit.
//!
//! Each run follows from its seed: `SIMULATOR_SEED=n` replays one run, `SIMULATOR_SEEDS=n` sets the
//! number of runs.
//!
//! [`world`] lists the checks of each run: nothing acknowledged is lost, repeated or reordered,
//! permits and memory are conserved, every push and every request ends in exactly one outcome.

mod application;
pub(crate) mod disk;
mod node;
mod world;

use crate::support::seeds;

fn play_quarter(quarter: u64) {
    for seed in seeds::share(2000, quarter, 4) {
        if let Err(violation) = seeds::play(seed, || world::World::new(seed).run()) {
            panic!("seed {seed}: {violation}");
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_repeated_or_reordered_1() {
    play_quarter(0);
}

#[test]
fn nothing_acknowledged_is_lost_repeated_or_reordered_2() {
    play_quarter(1);
}

#[test]
fn nothing_acknowledged_is_lost_repeated_or_reordered_3() {
    play_quarter(2);
}

#[test]
fn nothing_acknowledged_is_lost_repeated_or_reordered_4() {
    play_quarter(3);
}
