//! Penstock's engine.
//!
//! Layers, arrows only point down:
//!
//! ```text
//! python      PyO3: conversion and wake-ups
//! client      what a user holds: pool, lookup, partitions, reconnect
//! broker      the embedded broker
//! net         tokio: sockets, TLS, WebSocket, timers; one driver for every protocol
//! pulsar mqtt tubemq    sans-IO cores: frames and state machines
//! wire checksum compression transmit machine error sync clock    the ground floor
//! ```
//!
//! The third protocol, TubeMQ, has `tubemq` beside `pulsar` and `mqtt`, with the same file names and verbs.
//! Features: none compiles the cores alone, with neither tokio nor pyo3 in the graph; `client` adds the
//! tokio layer, `sqlite` the store, `broker` both and the broker, `arrow` the C data interface, `python`
//! the native module.

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
