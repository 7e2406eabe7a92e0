//! HTTP: health checks, metrics, and the requests that a protocol answers itself, such as Pulsar's
//! administration.
//!
//! * [`message`]: requests and answers, without sockets
//! * `guard`: rules by which requests are refused; `health`, `metrics`: texts about the whole
//!   broker
//! * `page`: the page for operators; [`fields`]: the JSON that it sends; [`publication`]: a message
//!   that it publishes
//! * `server`: sockets, limits and time limits; `spelling`: the capital letters of a header
//!
//! A request is read whole, then handed to the broker like a command of any protocol, and its
//! answer is written by a task of its own: a slow client holds nothing but its own connection.

pub mod fields;
pub(super) mod guard;
mod health;
pub mod message;
mod metrics;
mod page;
pub mod publication;
pub(super) mod server;
mod spelling;

pub(super) use spelling::PROPERTY;
