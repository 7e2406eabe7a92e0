//! TLS handshakes on threads of their own.
//!
//! A signature takes a millisecond and more, and any stranger may ask for one: on the broker's one
//! thread, a few hundred would stop all clients. Few threads bound the processors that handshakes
//! take. An address has one step of its handshakes computed at a time, so a flood from one address
//! delays the others by a step each, and a stranger that sends nothing occupies nothing.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::peer::payer;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::random::HashMap;

/// Threads that compute handshakes. One of two processors is left to the broker.
const THREADS: usize = 2;

/// Addresses above which those without a handshake are looked for.
const MANY: usize = 1024;

/// Computes the handshakes of a broker, as the [module](self) describes.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    /// Made for the first listener with TLS.
    runtime: RefCell<Option<Runtime>>,
    /// Turns of the addresses that have handshakes.
    turns: RefCell<HashMap<IpAddr, Arc<Semaphore>>>,
}

impl Handshakes {
    /// Starts the threads, unless they run.
    pub(super) fn start(&self) -> Result<()> {
        let mut runtime = self.runtime.borrow_mut();
        if runtime.is_none() {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let threads = (cores / 2).clamp(1, THREADS);
            let mut builder = Builder::new_multi_thread();
            *runtime = Some(builder.worker_threads(threads).thread_name("forebay-tls").build()?);
        }
        Ok(())
    }

    /// Does a handshake with a client at `address`, for at most `limit`.
    pub(super) async fn run<F>(&self, address: IpAddr, limit: Duration, handshake: F) -> Result<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        let late = || Error::new(ErrorKind::Timeout, "the TLS handshake took too long");
        #[cfg(feature = "simulation")]
        if forebay_net::simulation::network().is_some() {
            return tokio::time::timeout(limit, handshake).await.map_err(|_| late());
        }
        let turns = Turns::of(&self.turns, payer(address));
        let task = {
            let runtime = self.runtime.borrow();
            let Some(runtime) = &*runtime else {
                return Err(Error::new(ErrorKind::Io, "the threads for TLS have ended"));
            };
            AbortOnDrop(runtime.spawn(in_turns(turns.own.clone(), handshake)))
        };
        let mut task = pin!(task);
        let done = poll_fn(|cx| Pin::new(&mut task.0).poll(cx));
        let done = tokio::time::timeout(limit, done).await.map_err(|_| late())?;
        done.map_err(|error| Error::new(ErrorKind::Io, format!("the TLS handshake failed: {error}")))
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The turns of an address, as long as it has handshakes.
struct Turns<'a> {
    all: &'a RefCell<HashMap<IpAddr, Arc<Semaphore>>>,
    address: IpAddr,
    own: Arc<Semaphore>,
}

impl<'a> Turns<'a> {
    fn of(all: &'a RefCell<HashMap<IpAddr, Arc<Semaphore>>>, address: IpAddr) -> Self {
        let turn = || Arc::new(Semaphore::new(1));
        let mut turns = all.borrow_mut();
        if turns.len() >= MANY {
            // Those of tasks that were aborted.
            turns.retain(|_, turns| Arc::strong_count(turns) > 1);
        }
        let own = turns.entry(address).or_insert_with(turn).clone();
        drop(turns);
        Self { all, address, own }
    }
}

impl Drop for Turns<'_> {
    fn drop(&mut self) {
        let mut all = self.all.borrow_mut();
        // Here and in the map. A task that was aborted may have it for a moment longer: then it
        // stays until the next handshake of the address, or until there are many.
        if Arc::strong_count(&self.own) <= 2 {
            all.remove(&self.address);
        }
    }
}

struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Polls the future when it has a turn. While it waits for its peer, others have the turn.
async fn in_turns<F: Future>(turns: Arc<Semaphore>, future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        let turn = turns.acquire().await;
        let polled = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        drop(turn);
        if let Poll::Ready(output) = polled {
            return output;
        }
        // Until it is woken.
        let mut waited = false;
        poll_fn(|_| if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn started() -> Handshakes {
        let handshakes = Handshakes::default();
        handshakes.start().unwrap();
        handshakes
    }

    #[tokio::test]
    async fn a_handshake_that_computes_does_not_stop_the_brokers_thread() {
        let handshakes = started();
        let (go_on, wait) = mpsc::sync_channel(1);
        let computing = handshakes.run([10, 0, 0, 1].into(), LIMIT, async move {
            wait.recv_timeout(LIMIT).expect("the other task runs meanwhile");
            std::thread::current().name().map(str::to_owned)
        });
        let (thread, ()) = tokio::join!(computing, async {
            tokio::task::yield_now().await;
            go_on.send(()).unwrap();
        });
        assert_eq!(thread.unwrap().as_deref(), Some("forebay-tls"));
        assert!(handshakes.turns.borrow().is_empty());
    }

    #[tokio::test]
    async fn a_flood_from_one_address_delays_another_by_a_step_or_two() {
        const FLOOD: usize = 200;
        let (handshakes, done) = (started(), Arc::new(AtomicUsize::new(0)));
        let flood = (0..FLOOD).map(|n| {
            let done = done.clone();
            // The addresses of an IPv6 network cost nothing.
            let address = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, n as u16]);
            handshakes.run(address, LIMIT, async move {
                // In two steps, as a handshake.
                std::thread::sleep(Duration::from_millis(1));
                tokio::task::yield_now().await;
                std::thread::sleep(Duration::from_millis(1));
                done.fetch_add(1, Ordering::Relaxed);
            })
        });
        let mut flood: Vec<_> = flood.map(Box::pin).collect();
        let begun = poll_fn(|cx| {
            flood.iter_mut().for_each(|handshake| assert!(handshake.as_mut().poll(cx).is_pending()));
            Poll::Ready(())
        });
        begun.await;
        let seen = done.clone();
        let other = handshakes.run([10, 0, 0, 1].into(), LIMIT, async move { seen.load(Ordering::Relaxed) });
        let ahead = other.await.unwrap();
        assert!(ahead < FLOOD / 2, "{ahead} handshakes of the flood were ahead");
        for handshake in flood {
            handshake.await.unwrap();
        }
        assert_eq!(done.load(Ordering::Relaxed), FLOOD);
    }

    #[tokio::test]
    async fn a_silent_stranger_holds_no_turn_and_ends() {
        let handshakes = started();
        let address = IpAddr::from([10, 0, 0, 1]);
        let silent = handshakes.run(address, Duration::from_millis(50), std::future::pending::<()>());
        let mut silent = pin!(silent);
        assert!(tokio::time::timeout(Duration::from_millis(1), silent.as_mut()).await.is_err());
        handshakes.run(address, LIMIT, std::future::ready(())).await.unwrap();
        let error = silent.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
    }
}
