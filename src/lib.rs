//! Forebay's engine.
//!
//! Layers; dependencies only point down:
//!
//! ```text
//! python      PyO3: conversion and wake-ups
//! frame       rows of Arrow tables as messages
//! client      objects for users: pool, lookup, partitions, reconnect
//! broker      the embedded broker
//! net         tokio: sockets, TLS, WebSocket, timers; one driver for all protocols
//! pulsar mqtt tubemq    sans-IO cores: frames and state machines
//! avro wire calendar checksum compression transmit machine error log sync clock random    shared foundations
//! ```
//!
//! `pulsar`, `mqtt` and `tubemq` are siblings with the same file names and verbs.
//! Without features only the cores are compiled, with neither tokio nor pyo3 in the dependency graph. `client`
//! adds the tokio layer, `sqlite` the store, `broker` both of these and the broker, `arrow` the encoding of
//! tables, `python` the native module. `simulation` is for tests: it lets them set the clock, seed what is random, and
//! replace sockets and threads.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod avro;
pub mod calendar;
pub mod checksum;
pub mod clock;
pub mod compression;
pub mod error;
#[cfg(feature = "client")]
pub mod log;
pub mod machine;
pub mod mqtt;
pub mod pulsar;
pub mod random;
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

#[cfg(feature = "arrow")]
pub mod frame;

#[cfg(feature = "python")]
mod python;
