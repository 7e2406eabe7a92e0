//! Penstock's engine.
//!
//! Layers; dependencies only point down:
//!
//! ```text
//! python      PyO3: conversion and wake-ups
//! client      objects for users: pool, lookup, partitions, reconnect
//! broker      the embedded broker
//! net         tokio: sockets, TLS, WebSocket, timers; one driver for all protocols
//! pulsar mqtt tubemq    sans-IO cores: frames and state machines
//! wire checksum compression transmit machine error sync clock    shared foundations
//! ```
//!
//! `pulsar`, `mqtt` and `tubemq` are siblings with the same file names and verbs.
//! Without features only the cores are compiled, with neither tokio nor pyo3 in the dependency graph. `client`
//! adds the tokio layer, `sqlite` the store, `broker` both of these and the broker, `arrow` the Arrow C data
//! interface, `python` the native module.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod checksum;
pub mod clock;
pub mod compression;
pub mod error;
pub mod machine;
pub mod mqtt;
pub mod pulsar;
pub mod sync;
pub mod transmit;
pub mod tubemq;
pub mod wire;

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "client")]
pub mod net;

#[cfg(feature = "broker")]
pub mod broker;
#[cfg(feature = "sqlite")]
pub mod sqlite;

#[cfg(feature = "python")]
mod python;
