//! Simulations of each protocol's state machines over a faulty network, each run repeatable by its
//! seed: `SIMULATOR_SEED=n` replays one run, `SIMULATOR_SEEDS=n` sets the number of runs.

mod engine;
mod pulsar;
mod tubemq;

#[path = "../support/mod.rs"]
mod support;
