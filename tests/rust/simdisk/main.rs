//! Crashes of the machine, failing disks and neighbours, under the embedded broker's store and the
//! durable outbox.
//!
//! * `disk`: files with what is synced and what is not; `vfs`: the disk as SQLite's file system
//! * `node`: the store with all brokers on it; `pulsar`, `mqtt`, `tubemq`: their clients; `world`:
//!   both together, and the ledger
//! * `outbox`: the MQTT client's outbox under the same crashes
//! * `crash`: crashes of the machine at every boundary of a script; `faults`: full and failing
//!   disks, and flipped bits
#![allow(
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    reason = "the modules of one test binary"
)]

mod crash;
mod disk;
mod disk_tests;
mod faults;
mod mqtt;
mod node;
mod outbox;
mod pulsar;
mod tubemq;
mod vfs;
mod world;

#[path = "../support/mod.rs"]
mod support;
