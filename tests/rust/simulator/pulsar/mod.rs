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

use std::panic::{AssertUnwindSafe, catch_unwind};

fn play(seed: u64) {
    let ended = catch_unwind(AssertUnwindSafe(|| world::World::new(seed).run()));
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(what)) => panic!("seed {seed}: {what}"),
        Err(_) => panic!("seed {seed}: a panic, see above; SIMULATOR_SEED={seed} plays it again"),
    }
}

fn play_quarter(quarter: u64) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("SIMULATOR_SEED") {
        Some(seed) if seed % 4 == quarter => play(seed),
        Some(_) => {}
        None => {
            (0..number("SIMULATOR_SEEDS").unwrap_or(2000)).filter(|seed| seed % 4 == quarter).for_each(play)
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
