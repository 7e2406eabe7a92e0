//! The engine's log records on their way to Python's `logging`: the subscriber of the events of
//! `tracing`, whose targets are the names of the loggers.
//!
//! ```text
//! engine thread ── event ──► queue of MOST records ──► thread "forebay-log" ──► Python's logging
//! ```
//! The engine's threads never attach to the interpreter, and never wait for a handler, which may
//! run any code. The thread starts with the first record of a burst and ends when the queue is
//! empty. While a handler hangs, the queue fills; what does not fit is dropped and counted.
//!
//! Records below the level of all loggers are not made. The level is looked up by the thread with
//! each burst; a record that comes later than [`FRESH`] is always made, so that a change of the
//! configuration is seen.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::wrap_pyfunction;
use tracing::field::{Field, Visit};
use tracing::subscriber::{Interest, Subscriber, set_global_default};
use tracing::{Event, Level, Metadata, span};

use crate::exit::{self, Call};
use forebay_base::clock;
use forebay_base::sync::{Mutex, Rank};

/// Records that wait at most.
const MOST: usize = 1024;

/// Name of the thread that hands over records.
const THREAD: &str = "forebay-log";

/// Longest wait of a fork for that thread, and the interval of looks at it.
const FORK_WAIT: Duration = Duration::from_secs(1);
const FORK_LOOK: Duration = Duration::from_millis(1);

/// Time after which the level is looked up again.
const FRESH: Duration = Duration::from_millis(100);

/// Name of the attribute of a LogRecord that has its fields.
const FIELDS: &str = "forebay";

/// Lowest level of the loggers that [`Events`] has met. Everything is wanted until it has been
/// looked up.
static LEVEL: AtomicI32 = AtomicI32::new(0);

/// Records that were dropped because the queue was full.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// A record; its level is a number of Python's `logging`.
struct Record {
    level: i32,
    logger: &'static str,
    text: String,
    fields: Vec<(&'static str, String)>,
}

impl Visit for Record {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.push((field.name(), value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.text = text,
            name => self.fields.push((name, text)),
        }
    }
}

fn number(level: Level) -> i32 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        // Python has no level below.
        Level::DEBUG | Level::TRACE => 10,
    }
}

/// The subscriber.
struct Events;

impl Subscriber for Events {
    fn register_callsite(&self, callsite: &'static Metadata<'static>) -> Interest {
        let target = callsite.target();
        if !callsite.is_event() || target.split('.').next() != Some("forebay") {
            return Interest::never();
        }
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        if number(*metadata.level()) >= LEVEL.load(Ordering::Relaxed) {
            return true;
        }
        let mut state = queue().lock();
        // The level of a logger that is new is not among those that were looked up.
        state.note_logger(metadata.target())
            || state.looked.is_none_or(|looked| clock::now().duration_since(looked) >= FRESH)
    }

    fn event(&self, event: &Event<'_>) {
        let (level, logger) = (number(*event.metadata().level()), event.metadata().target());
        let mut record = Record { level, logger, text: String::new(), fields: Vec::new() };
        event.record(&mut record);
        push(record);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct State {
    records: VecDeque<Record>,
    /// The thread is running.
    running: bool,
    /// The loggers of the records that the engine can write, each from its first record on.
    loggers: BTreeSet<String>,
    /// When the level was looked up.
    looked: Option<Instant>,
    /// Records dropped since the thread has reported some.
    dropped: u64,
}

impl State {
    /// Notes a logger, and returns whether it has not been noted before.
    fn note_logger(&mut self, logger: &str) -> bool {
        !self.loggers.contains(logger) && self.loggers.insert(logger.to_owned())
    }
}

type Queue = Mutex<State>;

/// The queue of this process. Leaked: a fork may copy a locked one, so a child makes its own.
static QUEUE: AtomicPtr<Queue> = AtomicPtr::new(ptr::null_mut());

#[allow(unsafe_code, reason = "the pointer is only ever null or a leaked box")]
fn queue() -> &'static Queue {
    let current = QUEUE.load(Ordering::Acquire);
    // SAFETY: every pointer in QUEUE came from Box::leak and is never freed.
    if let Some(queue) = unsafe { current.as_ref() } {
        return queue;
    }
    let fresh: &mut Queue = Box::leak(Box::new(Mutex::new(Rank::Log, State::default())));
    match QUEUE.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => fresh,
        // Another thread was faster.
        // SAFETY: as above.
        Err(other) => unsafe { &*other },
    }
}

/// Whether a fork is under way, and no thread is to be started.
static FORKING: AtomicBool = AtomicBool::new(false);

/// Waits until no thread hands over records: one that writes to a file while the process forks
/// would leave the child a locked file.
#[allow(clippy::disallowed_methods, reason = "this thread is the application's, which forks")]
pub(super) fn before_fork(py: Python<'_>) {
    if std::thread::current().name() == Some(THREAD) {
        // A handler forks.
        return;
    }
    FORKING.store(true, Ordering::SeqCst);
    py.detach(|| {
        let until = clock::now() + FORK_WAIT;
        while queue().lock().running && clock::now() < until {
            std::thread::sleep(FORK_LOOK);
        }
    });
}

/// Goes on after a fork.
pub(super) fn forked_in_parent() {
    FORKING.store(false, Ordering::SeqCst);
    let start = {
        let mut state = queue().lock();
        !state.records.is_empty() && !std::mem::replace(&mut state.running, true)
    };
    if start {
        start_thread();
    }
}

/// Leaves the queue to the parent in a forked child.
pub(super) fn forked() {
    QUEUE.store(ptr::null_mut(), Ordering::Release);
    FORKING.store(false, Ordering::SeqCst);
}

/// Connects the engine's records to the loggers.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // Fails only if another copy of this module was loaded first; that copy then logs all records.
    let _ = set_global_default(Events);
    module.add_function(wrap_pyfunction!(log_records_dropped, module)?)
}

/// Number of log records of this process that were dropped because handlers were too slow.
#[pyfunction]
fn log_records_dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

fn push(record: Record) {
    let start = {
        let mut state = queue().lock();
        if state.records.len() >= MOST {
            state.dropped += 1;
            DROPPED.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.note_logger(record.logger);
        state.records.push_back(record);
        !FORKING.load(Ordering::SeqCst) && !std::mem::replace(&mut state.running, true)
    };
    if start {
        start_thread();
    }
}

fn start_thread() {
    let started = Call::begin().is_some_and(|call| {
        let run = move || {
            drain();
            drop(call);
        };
        std::thread::Builder::new().name(THREAD.into()).spawn(run).is_ok()
    });
    if !started {
        // The interpreter ends, or there are no threads: the next record tries again.
        queue().lock().running = false;
    }
}

/// Hands over records until there are none, or the interpreter ends.
fn drain() {
    let mut running = Running::default();
    loop {
        let (mut records, dropped, loggers) = {
            let mut state = queue().lock();
            if exit::is_ending() {
                running.unfinished += state.records.len();
                state.records.clear();
                return;
            }
            if state.records.is_empty() && state.dropped == 0 || FORKING.load(Ordering::SeqCst) {
                state.running = false;
                running.ended = true;
                return;
            }
            state.looked = Some(clock::now());
            (std::mem::take(&mut state.records), std::mem::take(&mut state.dropped), state.loggers.clone())
        };
        running.unfinished = records.len();
        Python::try_attach(|py| {
            look_up_level(py, &loggers).unwrap_or_else(|error| error.write_unraisable(py, None));
            while let Some(record) = records.pop_front()
                && !exit::is_ending()
            {
                // A logger, handler or filter that raises costs its own record, not those behind
                // it.
                hand_over(py, record).unwrap_or_else(|error| error.write_unraisable(py, None));
                running.unfinished -= 1;
            }
            if dropped > 0 && !exit::is_ending() {
                report_dropped(py, dropped).unwrap_or_else(|error| error.write_unraisable(py, None));
            }
        });
        running.count();
    }
}

/// The thread's run. However it ends, the next record starts another, and records that it did not
/// hand over are counted.
#[derive(Default)]
struct Running {
    unfinished: usize,
    /// It has ended for lack of records, and another may have started.
    ended: bool,
}

impl Running {
    fn count(&mut self) {
        DROPPED.fetch_add(std::mem::take(&mut self.unfinished) as u64, Ordering::Relaxed);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.count();
        if !self.ended {
            queue().lock().running = false;
        }
    }
}

fn look_up_level(py: Python<'_>, loggers: &BTreeSet<String>) -> PyResult<()> {
    let logging = py.import("logging")?;
    let mut least = i32::MAX;
    for logger in loggers {
        let logger = logging.call_method1("getLogger", (logger,))?;
        least = least.min(logger.call_method0("getEffectiveLevel")?.extract()?);
    }
    LEVEL.store(least, Ordering::Relaxed);
    Ok(())
}

fn hand_over(py: Python<'_>, Record { level, logger, text, fields: values }: Record) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", (logger,))?;
    let (extra, fields) = (PyDict::new(py), PyDict::new(py));
    for (name, value) in values {
        fields.set_item(name, value)?;
    }
    // An attribute of the LogRecord, for formatters that know it.
    extra.set_item(FIELDS, fields)?;
    let options = PyDict::new(py);
    options.set_item("extra", extra)?;
    logger.call_method("log", (level, "%s", text), Some(&options)).map(drop)
}

fn report_dropped(py: Python<'_>, dropped: u64) -> PyResult<()> {
    let text = format!("{dropped} log records were dropped, because handlers were too slow");
    let logger = py.import("logging")?.call_method1("getLogger", ("forebay",))?;
    logger.call_method1("warning", ("%s", text)).map(drop)
}
