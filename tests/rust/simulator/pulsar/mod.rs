//! The whole of Penstock's Pulsar without sockets, disks and clocks: the client's machines against the embedded
//! broker's, over a network that is late, cuts, loses the end of what was under way, lets either side find out
//! by itself, and a broker that is killed between its commits.
//!
//! Everything follows from a seed. `SIMULATOR_SEED=n` plays one run again, `SIMULATOR_SEEDS=n` plays more.
//!
//! What each run checks is in [`world`]: nothing acknowledged is lost, repeated or reordered, permits and
//! memory are conserved, every push and every request ends in exactly one outcome.

mod application;
mod disk;
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
