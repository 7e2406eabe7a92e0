//! What the engine runs on in a run: a paused clock, a simulated network and disk, seeded
//! randomness, and the production broker on a thread that it shares with the clients.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::task::{Poll, Waker};
use std::time::Duration;

use forebay_base::error::Error;
use forebay_base::{clock, random};
use forebay_broker::Options;
use forebay_broker::simulation::Broker;
use forebay_sqlite::simulation::set_disk;
use tokio::task::LocalSet;
use tokio::time::Instant;

use super::network::{Network, Tap};
use super::trace;
use crate::support::chance::Chance;

/// The time of day when the runs begin.
pub(crate) const WALL_MS: u64 = 1_700_000_000_000;

/// Time within which the broker notices a step of the clock, in milliseconds. It does not while it
/// stops, which takes 3 s.
const NOTICE_MS: u64 = 5_000;

/// Codes of SQLite.
const FULL: i32 = 13;
const IO_ERROR: i32 = 10;

thread_local! {
    static VIOLATION: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Notes the first violation of this thread's run.
pub(crate) fn violate(text: String) {
    VIOLATION.with_borrow_mut(|first| {
        first.get_or_insert(text);
    });
}

/// A panic in a task ends only that task: the hook makes a violation of it.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            violate(format!("a panic: {panic}"));
            before(panic);
        }));
    });
}

/// The disk of a run.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// Longest time of a commit, in microseconds.
    slowness: AtomicU64,
    chance: Mutex<Option<Chance>>,
    /// Commits that fail because the disk is full.
    full: AtomicU32,
    /// One commit in so many fails by chance; 0 for none.
    doubtful: AtomicU32,
    broken: AtomicBool,
    killed: AtomicBool,
}

impl forebay_sqlite::simulation::Disk for Disk {
    fn latency(&self) -> Duration {
        let slowness = self.slowness.load(Ordering::Relaxed) as usize;
        self.chance.lock().unwrap().as_mut().map_or(Duration::ZERO, |chance| chance.micros(slowness))
    }

    fn fault(&self, changes: usize) -> Option<i32> {
        let full = self.full.load(Ordering::Relaxed);
        let code = if self.broken.load(Ordering::Relaxed) {
            Some(IO_ERROR)
        } else if full > 0 {
            self.full.store(full - 1, Ordering::Relaxed);
            Some(FULL)
        } else if self.fails_by_chance() {
            Some(FULL)
        } else {
            None
        };
        trace::event(format_args!("commit of {changes}: {code:?}"));
        code
    }

    fn killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }
}

impl Disk {
    fn fails_by_chance(&self) -> bool {
        let one_in = self.doubtful.load(Ordering::Relaxed) as usize;
        one_in > 0 && self.chance.lock().unwrap().as_mut().is_some_and(|chance| chance.below(one_in) == 0)
    }
}

/// The world of a run.
pub(crate) struct Host {
    pub(crate) network: Network,
    pub(crate) disk: Arc<Disk>,
    options: Options,
    running: Rc<RefCell<Option<LocalSet>>>,
    waker: Rc<RefCell<Option<Waker>>>,
    broker: RefCell<Option<Rc<Broker>>>,
    began: Instant,
    /// The latest time of day that the broker has seen before the last step of the clock.
    latest: Cell<u64>,
    /// Kept until the end.
    _data: tempfile::TempDir,
}

impl Host {
    /// Starts the broker. `false` when it could not be started.
    pub(crate) async fn start(&self) -> bool {
        let (broker, run, started) = Broker::new(self.options.clone());
        let local = LocalSet::new();
        local.spawn_local(run);
        *self.running.borrow_mut() = Some(local);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
        match started.await {
            Ok(Ok(_)) => {
                trace::event(format_args!("the broker runs"));
                *self.broker.borrow_mut() = Some(Rc::new(broker));
                true
            }
            Ok(Err(error)) => {
                violate(format!("the broker does not start: {error}"));
                false
            }
            Err(_) => {
                violate("the broker ended while it was starting".into());
                false
            }
        }
    }

    /// Kills the broker: what was not committed is lost.
    pub(crate) fn kill(&self) {
        trace::event(format_args!("the broker is killed"));
        self.broker.take();
        self.disk.killed.store(true, Ordering::Relaxed);
        drop(self.running.take());
        self.disk.killed.store(false, Ordering::Relaxed);
        self.disk.broken.store(false, Ordering::Relaxed);
        self.disk.full.store(0, Ordering::Relaxed);
    }

    /// Stops the broker as its user does.
    pub(crate) async fn stop(&self) {
        trace::event(format_args!("the broker is stopped"));
        self.broker.take();
        // Commits of a slow disk, and a second for final packets.
        tokio::time::sleep(Duration::from_secs(3)).await;
        drop(self.running.take());
    }

    pub(crate) fn broker(&self) -> Option<Rc<Broker>> {
        self.broker.borrow().clone()
    }

    /// Options of the broker.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// The time of day, had the clock never been stepped.
    pub(crate) fn steady_ms(&self) -> u64 {
        WALL_MS + self.began.elapsed().as_millis() as u64
    }

    /// The latest time of day that there has been.
    pub(crate) fn latest_ms(&self) -> u64 {
        self.latest.get().max(clock::wall_ms())
    }

    /// Steps the time of day by milliseconds, or sets it to 1970.
    pub(crate) fn step_clock(&self, by: Option<i64>) {
        let to = by.map_or(1_000, |by| clock::wall_ms().saturating_add_signed(by));
        trace::event(format_args!("the time of day is set to {to}"));
        // The broker notices a step a little later, and until then goes by the old time.
        self.latest.set(self.latest_ms() + NOTICE_MS);
        clock::set_wall_ms(Some(to));
    }

    /// Makes the next commits fail because the disk is full.
    pub(crate) fn fill_disk(&self, commits: u32) {
        trace::event(format_args!("the disk is full for {commits} commits"));
        self.disk.full.store(commits, Ordering::Relaxed);
    }

    /// Makes one commit in `one_in` fail because the disk is full, until it is healed.
    pub(crate) fn doubt_disk(&self, one_in: u32) {
        self.disk.doubtful.store(one_in, Ordering::Relaxed);
    }

    /// Makes every commit fail until the broker is killed.
    pub(crate) fn break_disk(&self) {
        trace::event(format_args!("the disk breaks"));
        self.disk.broken.store(true, Ordering::Relaxed);
    }

    /// Ends the faults that last.
    pub(crate) fn heal(&self) {
        trace::event(format_args!("healed"));
        self.network.heal();
        self.disk.full.store(0, Ordering::Relaxed);
        self.disk.slowness.store(500, Ordering::Relaxed);
        self.disk.doubtful.store(0, Ordering::Relaxed);
        self.latest.set(self.latest_ms() + NOTICE_MS);
        clock::set_wall_ms(Some(self.steady_ms()));
    }
}

/// What differs between the runs of a protocol before anything happens.
pub(crate) struct Setting {
    /// Longest latencies in microseconds: of the network, and of a commit.
    pub(crate) slowness: (usize, u64),
    pub(crate) options: Options,
    pub(crate) tap: fn(u16) -> Option<Box<dyn Tap>>,
}

/// What is left of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Hash of its trace.
    hash: u64,
    /// How often each fault hit each state.
    pub(crate) cells: BTreeMap<(&'static str, &'static str), u64>,
}

/// Plays a run: `script` with the broker running. It has a thread of its own, as buffers of the
/// engine belong to threads.
pub(crate) fn play(
    seed: u64,
    setting: impl FnOnce(&mut Chance) -> Setting + Send,
    script: impl AsyncFnOnce(Rc<Host>, Chance) -> Result<(), String> + Send,
) -> Result<Run, String> {
    std::thread::scope(|scope| {
        let run = scope.spawn(|| play_here(seed, setting, script)).join();
        run.unwrap_or_else(|_| Err("the run panicked".into()))
    })
}

fn play_here(
    seed: u64,
    setting: impl FnOnce(&mut Chance) -> Setting,
    script: impl AsyncFnOnce(Rc<Host>, Chance) -> Result<(), String>,
) -> Result<Run, String> {
    watch_panics();
    VIOLATION.take();
    let mut chance = Chance::new(seed);
    random::seed(Some(chance.next()));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let outer = LocalSet::new();
    let result = outer.block_on(&runtime, async {
        trace::begin();
        clock::set_wall_ms(Some(WALL_MS));
        let Setting { slowness, mut options, tap } = setting(&mut chance);
        let network = Network::new(Chance::new(chance.next()), slowness.0, tap);
        let disk = Arc::new(Disk::default());
        disk.slowness.store(slowness.1, Ordering::Relaxed);
        *disk.chance.lock().unwrap() = Some(Chance::new(chance.next()));
        forebay_net::simulation::set_network(Some(Arc::new(network.clone())));
        set_disk(Some(disk.clone()));
        let memory = std::path::Path::new("/dev/shm");
        let data = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        options.data = Some(data.path().to_owned());
        options.durability = forebay_broker::Durability::Os;
        let (running, waker) =
            (Rc::<RefCell<Option<LocalSet>>>::default(), Rc::<RefCell<Option<Waker>>>::default());
        let (slot, wake) = (running.clone(), waker.clone());
        let broker = tokio::task::spawn_local(poll_fn(move |cx| -> Poll<()> {
            *wake.borrow_mut() = Some(cx.waker().clone());
            if let Some(local) = slot.borrow_mut().as_mut() {
                let _ = Pin::new(local).poll(cx);
            }
            Poll::Pending
        }));
        let host = Rc::new(Host {
            network,
            disk,
            options,
            running,
            waker,
            broker: RefCell::new(None),
            began: Instant::now(),
            latest: Cell::new(0),
            _data: data,
        });
        let result = if host.start().await { script(host.clone(), chance).await } else { Ok(()) };
        host.kill();
        broker.abort();
        result
    });
    drop(outer);
    drop(runtime);
    forebay_net::simulation::set_network(None);
    set_disk(None);
    clock::set_wall_ms(None);
    random::seed(None);
    match VIOLATION.take() {
        Some(violation) => Err(violation),
        None => result.map(|()| Run { hash: trace::hash(), cells: trace::cells() }),
    }
}

/// Whether something has been violated already.
pub(crate) fn is_violated() -> bool {
    VIOLATION.with_borrow(Option::is_some)
}

/// Waits at most `seconds` for what an application awaits: every future ends.
pub(crate) async fn ends<T>(seconds: u64, what: &str, future: impl Future<Output = T>) -> Result<T, String> {
    tokio::time::timeout(Duration::from_secs(seconds), future)
        .await
        .map_err(|_| format!("{what} has not ended within {seconds} s"))
}

/// Opens something until it succeeds, at most `seconds` for each attempt: in a run nothing need
/// succeed at first. `check` judges the errors. `None` after a violation.
pub(crate) async fn opened<T>(
    (seconds, what): (u64, &str),
    pause: usize,
    chance: &mut Chance,
    check: impl Fn(&str, &Error),
    mut open: impl AsyncFnMut() -> Result<T, Error>,
) -> Option<T> {
    while !is_violated() {
        match ends(seconds, what, open()).await {
            Ok(Ok(opened)) => return Some(opened),
            Ok(Err(error)) => {
                trace::event(format_args!("{what}: {error}"));
                check(what, &error);
            }
            Err(late) => violate(late),
        }
        tokio::time::sleep(chance.micros(pause)).await;
    }
    None
}

/// Waits for what a visitor does, and a while longer: it lingers, so that faults find it there.
/// `None` if that has failed.
pub(crate) async fn linger<T>(
    what: &str,
    chance: &mut Chance,
    check: impl Fn(&str, &Error),
    doing: impl Future<Output = Result<T, Error>>,
) -> Option<T> {
    let done = ends(120, what, doing).await.map_err(violate).ok()?;
    trace::event(format_args!("the visitor is done with {what}: {:?}", done.as_ref().err()));
    tokio::time::sleep(chance.micros(300_000)).await;
    done.inspect_err(|error| check(what, error)).ok()
}

/// Waits for what ends within `seconds` once everything is `healed`: the faults may last for longer
/// than anything may take.
pub(crate) async fn settles<T>(
    healed: &Cell<bool>,
    seconds: u64,
    future: impl Future<Output = T>,
) -> Option<T> {
    let late = async {
        while !healed.get() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    };
    tokio::select! {
        biased;
        done = future => Some(done),
        () = late => None,
    }
}
