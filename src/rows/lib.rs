//! The rows of a frame as messages: the roles of the columns, and the encoding. Nothing is sent
//! here, so that a row that cannot be sent is refused before any other row is sent.
//!
//! | module | what it has |
//! |---|---|
//! | `encode` | a table in, rows ready to be sent out |
//! | `columns` | the columns by name, cast to the types of a message's fields |
//! | `json`, [`schema`] | payloads: JSON objects; Avro, Protobuf and plain values of a schema |
//! | `buffer` | the rows, in one allocation for many |
//! | `topics` | the topic of each row |
//! | `imported` | tables of the C data interface, checked before a value is read |

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod buffer;
mod columns;
mod encode;
mod imported;
mod json;
pub mod schema;
#[cfg(test)]
mod tests;
mod topics;

pub use buffer::{BadRow, Cursor, NewRow, Rare, RowRef, Rows};
pub use encode::{Columns, encode};
pub use imported::{Imported, arrow_error};
pub use schema::RowSchema;
pub use topics::{Naming, Part, Topics};
