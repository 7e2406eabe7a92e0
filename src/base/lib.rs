//! Foundations that all crates share: reading and writing bytes, checksums, compression, errors,
//! the clock, what is random, and the contract of a protocol's machine. Nothing here does input or
//! output.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod calendar;
pub mod checksum;
pub mod clock;
pub mod compression;
pub mod error;
pub mod first_bytes;
pub mod handoff;
pub mod machine;
pub mod options;
pub mod random;
pub mod sync;
pub mod transmit;
pub mod wire;
