//! Apache Avro 1.11, sans-IO: definitions, the binary encoding, and how data of one schema are read
//! with another.
//!
//! * [`schema`]: definitions as JSON text, parsed into an arena of nodes
//! * [`plan`]: how data of a writer's schema become values of a reader's schema
//! * [`mod@decode`]: reads values by a plan, into whatever a [`decode::Builder`] makes of them
//! * [`encode`]: writes the parts of values, and the defaults of fields
//! * [`compatibility`]: whether a schema can read what another has written
//!
//! Definitions and data come from strangers. The limits below bound what they cost: the stack by
//! [`MAX_DEPTH`], memory and time by the length of the definition and of the data.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod compatibility;
pub mod decode;
pub mod encode;
pub mod plan;
pub mod schema;

pub use decode::{Builder, decode};
pub use plan::Plan;
pub use schema::{Kind, Logical, NodeId, Schema};

/// Limit on the length of a definition in bytes.
pub const MAX_DEFINITION: usize = 256 << 10;
/// Limit on the types of a definition, each place counted, and on its fields, symbols and aliases
/// together.
pub const MAX_NODES: usize = 20_000;
/// Limit on the length of a name or namespace in bytes.
pub const MAX_NAME: usize = 1024;
/// Limit on the length of all full names together: each repeats its namespace.
const MAX_NAMES: usize = 2 << 20;
/// Limit on records, arrays and maps inside each other, in definitions and in values.
pub const MAX_DEPTH: usize = 64;
/// Limit on the pairs of types that are compared, when two schemas are.
pub const MAX_PAIRS: usize = 50_000;
/// Limit on the steps of a comparison: a pair costs as many as it has fields, symbols, branches and
/// aliases.
const MAX_WORK: usize = 1_000_000;
/// Limit on the types on the way to another one, through names.
const MAX_CHAIN: usize = 256;
/// Limit on the values that the defaults of a schema stand for, and on their size in bytes.
const MAX_DEFAULTS: usize = 1 << 16;

#[cfg(test)]
mod tests;
