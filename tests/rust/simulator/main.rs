//! Simulations of each protocol's state machines over a faulty network, each run repeatable by its seed:
//! `SIMULATOR_SEED=n` replays one run, `SIMULATOR_SEEDS=n` sets the number of runs.

#[cfg(feature = "simulation")]
mod engine;
#[cfg(feature = "broker")]
mod mqtt;
#[cfg(feature = "broker")]
mod mqtt_client;
#[cfg(feature = "broker")]
mod pulsar;
mod tubemq;

#[path = "../support/mod.rs"]
mod support;
