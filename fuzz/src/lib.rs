//! The fuzz targets, and what they share.
//!
//! * [`targets`]: what each plays
//! * [`files`]: databases that are damaged
//! * [`script`]: an input as a series of steps
//! * [`meter`]: what some steps cost in memory and time
//! * [`hub`]: a broker with several connections, whose steps are measured
//! * [`settings`]: of the brokers, as in the tests
//! * [`rule`]: the limits, which the tests of the broker hold as well

#[path = "../../tests/rust/broker/hostile/cost/rule.rs"]
pub mod rule;
#[path = "../../tests/rust/support/settings.rs"]
pub mod settings;

pub mod files;
pub mod hub;
pub mod meter;
pub mod script;
pub mod targets;
