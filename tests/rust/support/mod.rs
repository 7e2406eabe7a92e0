//! Support shared by the test binaries: the embedded broker of each protocol without sockets,
//! seeded randomness and a simulated network.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    reason = "each binary uses a part of it"
)]

pub mod chance;
pub mod link;
pub mod mqtt;
pub mod pulsar;
pub mod seeds;
pub mod settings;
pub mod tubemq;
