//! Clients, producers and consumers, and the engine thread that runs them.
//!
//! * [`pulsar`], [`mqtt`], [`tubemq`]: one client for each protocol; none of them imports another
//! * [`events`]: callbacks from producers and consumers to their owner
//! * [`receive`]: how consumers hand out messages
//! * [`credentials`]: tokens and passwords
//! * [`journal`]: the connection events of a client
//! * `agenda`: which users of a connection have something to do
//! * [`pushed`]: a message on its way to the engine's thread, or to the socket
//! * `budget`, `outcomes`: the memory of messages without a receipt, and the way of their outcomes
//! * [`traffic`]: counters of messages
//! * `registry`: what a client has open
//! * `wrong_port`: errors of ports where something else listens
//!
//! An [`Engine`] owns one named thread with a current-thread tokio runtime. On two cores that beats
//! a multi-threaded runtime by 5 to 10 µs a round trip, and leaves the other core to the caller.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use forebay_base::error::{Error, ErrorKind, Result};

mod agenda;
mod budget;
pub mod credentials;
pub mod events;
pub mod journal;
mod logger;
pub mod mqtt;
pub mod options;
mod outcomes;
pub mod pulsar;
pub mod pushed;
pub mod receive;
mod registry;
mod together;
pub mod traffic;
pub mod tubemq;
mod wrong_port;

/// The thread that all clients of a process share.
#[derive(Debug)]
pub struct Engine {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts the thread. With `threads` above 1 the runtime is multi-threaded, for machines with
    /// many TLS connections.
    pub fn start(threads: usize) -> Result<Self> {
        let mut builder = if threads > 1 {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(threads);
            builder
        } else {
            tokio::runtime::Builder::new_current_thread()
        };
        let runtime = builder.enable_all().max_blocking_threads(2).thread_name("forebay").build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let (started, start) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("forebay".into()).spawn(move || {
            let _ = started.send(());
            runtime.block_on(async {
                let _ = stopped.await;
            });
            // Running tasks must not keep the process from exiting.
            runtime.shutdown_background();
        })?;
        start.recv().map_err(|_| Error::new(ErrorKind::Io, "the engine's thread did not start"))?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// The runtime's handle, to spawn tasks on.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Stops the thread, waiting at most `timeout` for it.
    pub fn shutdown(mut self, timeout: Duration) {
        drop(self.stop.take());
        let Some(thread) = self.thread.take() else { return };
        let (done, joined) = mpsc::sync_channel(1);
        let waiter = std::thread::spawn(move || {
            let _ = thread.join();
            let _ = done.send(());
        });
        if joined.recv_timeout(timeout).is_ok() {
            let _ = waiter.join();
        }
    }
}

/// Calls `look` now and after each notification of `changed` until it returns something. A
/// notification between the look and the wait is not missed.
async fn until<T>(changed: &Notify, mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        let notified = changed.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        if let Some(found) = look() {
            return found;
        }
        notified.await;
    }
}
