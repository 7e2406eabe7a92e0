//! The embedded broker, protocol by protocol: first its state machines driven by hand, without
//! sockets and clock, then the whole as a process. `hostile`: peers that mean no good.

mod hostile;
mod http;
mod listeners;
mod mqtt;
mod process;
mod pulsar;
mod store_format;
mod tubemq;

#[path = "../support/mod.rs"]
mod support;
