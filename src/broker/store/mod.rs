//! The broker's tables in SQLite, and all SQL of the broker: [`Op`] is what is written, [`load`]
//! reads what is found at start, [`Stored`] reads while the broker runs.
//!
//! * `database`: the data directory and the version of its tables
//! * `op`: changes; `queue`: their way to the writer thread
//! * [`entries`]: topics, entries, cursors, producers and schemas
//! * [`mqtt`]: MQTT's sessions, queues and retained messages
//! * [`check`](mod@check): reads and verifies a whole store
//! * `copies`: backups, what is made of them, and stores without free pages
//! * `rows`: checksums of the rows of all tables but that of the entries
//! * `usage`: bytes in use

pub mod check;
mod copies;
mod database;
pub mod entries;
pub mod mqtt;
mod op;
pub(super) mod queue;
mod rows;
mod usage;

pub use copies::{backup, compact, restore};
pub(crate) use database::DATABASE;
pub use database::{Database, Directory, prepare};
pub use entries::{Found, MAX_PARTITIONS, Stored, StoredCursor, StoredProducer, StoredTopic, load};
pub use op::Op;
#[cfg(feature = "simulation")]
pub use rows::renew_sums;
pub use usage::StoreUsage;
