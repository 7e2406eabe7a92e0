//! The Pulsar client.
//!
//! * `connection`: a socket's machine with its routes, and the pool of them
//! * `lookup`: which broker serves a topic
//! * `producer`, `consumer`: a handle over the partitions of a topic
