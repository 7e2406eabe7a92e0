//! HTTP: health checks, metrics, and the requests that a protocol answers itself, such as Pulsar's administration.
//!
//! * [`message`]: requests and answers, without sockets
//! * `guard`: rules by which requests are refused; `health`, `metrics`: texts about the whole broker; `disk`: its room
//! * `page`: the page for operators; [`fields`]: the JSON that it sends; [`publication`]: a message that it publishes
//! * `server`: sockets, limits and time limits
//!
//! A request is read whole, then handed to the broker like a command of any protocol, and its answer is written by a
//! task of its own: a slow client holds nothing but its own connection.

pub(super) mod disk;
pub mod fields;
pub(super) mod guard;
mod health;
pub mod message;
mod metrics;
mod page;
pub mod publication;
pub(super) mod server;
