//! The producer.
