//! The parts that the producer classes of all protocols share, and the macro that declares such a
//! class: messages are pushed, alone or as a group, and their waiters are registered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::convert::{Payload, borrowed, each, of_argument, py_result, type_name};
use crate::dataframe::{Form, FrameRows, LeftOut};
use crate::promise::{Caller, OneShot, Waiter};
use crate::runtime::{Native, engine};
use crate::sends::{Group, GroupKind, Receipts, Sends, Waiting};
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::sync::Mutex;
use forebay_client::pushed::Pushed;
use forebay_client::traffic::{LatencyCounts, SendCounts};
use forebay_rows::{BadRow, Cursor, RowRef, Rows};

/// A protocol's producer in the engine.
pub(super) trait Sink: Receipts + Clone {
    /// The topic.
    fn topic(&self) -> &str;

    /// Messages without an outcome.
    fn pending(&self) -> usize;

    /// Whether it can reach its brokers now.
    fn is_connected(&self) -> bool;

    /// Counters of what was sent.
    fn counts(&self) -> SendCounts;

    /// Number of slots: within one, outcomes arrive in the order of the pushes.
    fn slots(&self) -> usize;

    /// The payload of what the user sends.
    fn payload<'a>(&self, value: &'a Bound<'_, PyAny>) -> PyResult<Payload<'a>> {
        Payload::of(value)
    }

    /// Whether rows can be sent at all, which is known without asking the broker.
    fn takes_rows(&self, _form: &Form) -> Result<()> {
        Ok(())
    }

    /// Whether the topic takes rows, which the broker may be asked.
    fn check_rows(&self, _form: &Form) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Whether the texts that `send_many` takes for each payload are topics; they are keys
    /// otherwise.
    const SENDS_TO_TOPICS: bool = false;

    /// Pushes rows until one is refused, and calls `each` with the slot of every one admitted.
    fn push_rows<'a>(
        &self,
        form: &'a Form,
        rows: impl Iterator<Item = RowRef<'a>>,
        each: &mut dyn FnMut(usize),
    ) -> Result<()>;

    /// Sends open batches without waiting for more messages.
    fn flush_batches(&self) {}

    /// Longest time without an outcome for which the end of a producer waits; `None` if each
    /// message has a limit.
    fn patience(&self) -> Option<Duration>;

    /// Closes the producer; with `wait`, waits for the outcomes of what was pushed first.
    fn close(&self, wait: bool) -> impl Future<Output = Result<()>> + Send;
}

/// Groups that are pushed as room becomes free, one after the other, so that messages stay in the
/// order in which they were handed over.
#[derive(Debug, Default)]
struct Line(Mutex<Option<oneshot::Receiver<()>>>);

/// A place in the [`Line`]; the next one comes when it is dropped.
struct Place {
    before: Option<oneshot::Receiver<()>>,
    _end: oneshot::Sender<()>,
}

impl Line {
    /// Whether nothing is in the line.
    fn is_empty(&self) -> bool {
        let mut last = self.0.lock();
        if last.as_mut().is_some_and(|last| last.try_recv() == Err(TryRecvError::Empty)) {
            return false;
        }
        *last = None;
        true
    }

    /// The last place.
    fn join(&self) -> Place {
        let (end, next) = oneshot::channel();
        Place { before: self.0.lock().replace(next), _end: end }
    }
}

impl Place {
    /// Waits for those before.
    async fn come(&mut self) {
        if let Some(before) = self.before.take() {
            // Its sender is dropped, not used.
            let _ = before.await;
        }
    }
}

/// The body of a producer class.
pub(super) struct Sender<S> {
    sink: Native<S>,
    sends: Arc<Sends<S>>,
    caller: Caller,
    line: Line,
    /// A [`Sender::drain`] has given up.
    stalled: Arc<AtomicBool>,
}

/// Interval of looks at whether a group has ended.
const TICK: Duration = Duration::from_millis(100);

/// Fails `group` once no message has had an outcome for `patience`.
async fn give_up_when_stalled<S: Sink>(
    sink: S,
    group: Weak<Group<S>>,
    patience: Duration,
    stalled: Arc<AtomicBool>,
) {
    let (mut before, mut since) = (sink.pending(), clock::now());
    loop {
        tokio::time::sleep(TICK.min(patience)).await;
        let Some(group) = group.upgrade() else { return };
        let (pending, now) = (sink.pending(), clock::now());
        if pending < before {
            since = now;
        }
        before = pending;
        if pending > 0 && now - since >= patience {
            stalled.store(true, Ordering::Release);
            let text = format!(
                "the producer was closed while {pending} messages had no answer: none came within {patience:?}"
            );
            return group.fail(Error::new(ErrorKind::Timeout, text).with_topic(sink.topic()));
        }
    }
}

/// Fails `group` after `limit`.
async fn give_up_in_time<S: Sink>(sink: S, group: Weak<Group<S>>, limit: Duration) {
    let since = clock::now();
    loop {
        let passed = clock::now().saturating_duration_since(since);
        tokio::time::sleep(TICK.min(limit.saturating_sub(passed))).await;
        let Some(group) = group.upgrade() else { return };
        if passed >= limit {
            let text = format!(
                "{} messages had no answer within {limit:?}: they are still pending, and can be flushed again",
                sink.pending()
            );
            return group.fail(Error::new(ErrorKind::Timeout, text).with_topic(sink.topic()));
        }
    }
}

impl<S: Sink> Sender<S> {
    pub(super) fn new(sink: S, sends: Arc<Sends<S>>, caller: Caller) -> Self {
        Self { sink: Native::new(sink), sends, caller, line: Line::default(), stalled: Arc::default() }
    }

    pub(super) fn sink(&self, py: Python<'_>) -> PyResult<&S> {
        py_result(py, self.sink.get())
    }

    /// The waiter of one message, and the object that the caller waits with.
    pub(super) fn waiting(&self, py: Python<'_>) -> PyResult<(Waiting<S>, Py<PyAny>)> {
        Ok(match &self.caller {
            Caller::Loop(bridge) => {
                let future = bridge.future(py)?;
                (Waiting::Future(future.clone_ref(py)), future)
            }
            Caller::Blocking => {
                let one_shot = Arc::new(OneShot::default());
                (Waiting::Thread(Arc::clone(&one_shot)), Py::new(py, Waiter::new(one_shot))?.into_any())
            }
        })
    }

    /// Pushes a message, which may be parked if it has a waiter. The lock is released before an
    /// exception is made: that runs Python, and another thread may hold the interpreter while it
    /// waits for the lock.
    pub(super) fn push(
        &self,
        py: Python<'_>,
        waiting: Waiting<S>,
        push: impl for<'a> FnOnce(&'a S, bool) -> Result<Pushed<'a>>,
    ) -> PyResult<()> {
        let sink = self.sink(py)?;
        let is_watched = !matches!(waiting, Waiting::Unwatched(_));
        let pushed = {
            let mut queues = self.sends.queues();
            let alone = is_watched && queues.is_idle();
            push(sink, is_watched).map(|pushed| {
                queues.wait(pushed.slot(), waiting);
                (pushed, alone)
            })
        };
        // Its sender may wait for it before sending the next.
        if let (pushed, true) = py_result(py, pushed)? {
            pushed.write();
        }
        Ok(())
    }

    /// Sends payloads as one group. `texts` are their keys or topics ([`Sink::SENDS_TO_TOPICS`]),
    /// `what` is the name of that argument.
    pub(super) fn send_many(
        &self,
        py: Python<'_>,
        payloads: &Bound<'_, PyAny>,
        texts: Option<&Bound<'_, PyAny>>,
        what: &str,
    ) -> PyResult<Py<PyAny>> {
        let sink = self.sink(py)?;
        let payloads = values(payloads)?;
        let payload = |(at, value)| {
            sink.payload(value).map_err(|error| of_argument(py, format_args!("payloads[{at}]"), error))
        };
        let payloads: Vec<Payload<'_>> = payloads.iter().enumerate().map(payload).collect::<PyResult<_>>()?;
        let texts = keys_for(payloads.len(), texts, what)?;
        // The rows that are pushed now and those that wait for room are the same.
        let messages = payloads.iter().enumerate().map(|(i, payload)| {
            let text = texts.as_ref().and_then(|texts| texts[i].as_deref());
            let (key, topic) = if S::SENDS_TO_TOPICS { (None, text) } else { (text, None) };
            RowRef { key, topic, ..RowRef::of_payload(payload.bytes()) }
        });
        let (group, pending) = self.group(py, sink)?;
        let mut taken = 0;
        let result = if !self.line.is_empty() {
            Err(Error::new(ErrorKind::QueueFull, "others wait before these"))
        } else {
            let mut queues = self.sends.queues();
            let mut pushed = queues.group(&group);
            sink.push_rows(&Form::Plain, messages.clone(), &mut |slot| {
                pushed.add(slot);
                taken += 1;
            })
        };
        match result {
            Err(error) if is_full(&error) => {
                // The rest is copied and follows when there is room.
                let mut rows = Rows::default();
                messages.skip(taken).for_each(|row| rows.push(row.payload, row.key, row.topic));
                self.spawn_rows(py, sink, group, rows, Form::default(), Cursor::default())?;
            }
            result => group.seal(payloads.len() - taken, result.err()),
        }
        Ok(pending)
    }

    /// Sends messages as one group: those for which there is room now, the others when there is.
    pub(super) fn send_made(&self, py: Python<'_>, rows: Rows, form: Form) -> PyResult<Py<PyAny>> {
        let sink = self.sink(py)?;
        let (group, pending) = self.group(py, sink)?;
        let mut cursor = Cursor::default();
        let result = if !self.line.is_empty() {
            Err(Error::new(ErrorKind::QueueFull, "others wait before these"))
        } else {
            let properties = borrowed(rows.properties());
            let mut queues = self.sends.queues();
            let mut pushed = queues.group(&group);
            sink.push_rows(&form, Cursor::default().rows(&rows, &properties), &mut |slot| {
                pushed.add(slot);
                cursor.advance(&rows);
            })
        };
        match result {
            Err(error) if is_full(&error) => self.spawn_rows(py, sink, group, rows, form, cursor)?,
            result => group.seal(cursor.left(&rows), result.err()),
        }
        Ok(pending)
    }

    /// Sends the rows of a frame as one group.
    pub(super) fn send_rows(&self, py: Python<'_>, rows: &FrameRows) -> PyResult<Py<PyAny>> {
        self.send_replaced(py, rows, |rows| rows)
    }

    /// Sends what `replace` makes of the rows of a frame as one group.
    pub(super) fn send_replaced(
        &self,
        py: Python<'_>,
        rows: &FrameRows,
        replace: impl FnOnce(Rows) -> Rows,
    ) -> PyResult<Py<PyAny>> {
        let sink = self.sink(py)?;
        let form = rows.form().clone();
        py_result(py, sink.takes_rows(&form))?;
        let (rows, bad) = py_result(py, rows.take())?;
        let rows = replace(rows);
        let (group, pending) = self.group(py, sink)?;
        let (sink, sends) = (sink.clone(), Arc::clone(&self.sends));
        let mut place = self.line.join();
        let pushing = async move {
            place.come().await;
            let checked = if rows.is_empty() { Ok(()) } else { sink.check_rows(&form).await };
            match checked {
                Ok(()) => push_rows(sink, sends, group, rows, form, Cursor::default(), &bad).await,
                Err(error) => group.seal(rows.len(), Some(error)),
            }
        };
        py_result(py, engine(1))?.handle().spawn(pushing);
        Ok(pending)
    }

    /// Waits for the outcomes of everything sent before, at most `timeout` seconds.
    pub(super) fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let sink = self.sink(py)?;
        let limit = timeout.map(Duration::try_from_secs_f64).transpose();
        let limit = limit.map_err(|error| PyValueError::new_err(format!("timeout: {error}")))?;
        let (promise, pending) = self.caller.promise(py)?;
        let (group, seal) = self.sends.flush(promise, sink.slots());
        sink.flush_batches();
        if let Some(limit) = limit {
            let watch = give_up_in_time(sink.clone(), group, limit);
            py_result(py, engine(1))?.handle().spawn(watch);
        }
        seal();
        Ok(pending)
    }

    /// As [`Self::flush`], before [`Self::close`]: gives up when no outcome comes any more.
    pub(super) fn drain(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let sink = self.sink(py)?;
        let (promise, pending) = self.caller.promise(py)?;
        let (group, seal) = self.sends.flush(promise, sink.slots());
        sink.flush_batches();
        if let Some(patience) = sink.patience() {
            let watch = give_up_when_stalled(sink.clone(), group, patience, Arc::clone(&self.stalled));
            py_result(py, engine(1))?.handle().spawn(watch);
        }
        seal();
        Ok(pending)
    }

    pub(super) fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let sink = self.sink(py)?;
        let stats = PyDict::new(py);
        add_sends(&stats, &sink.counts())?;
        stats.set_item("messages_pending", sink.pending())?;
        Ok(stats)
    }

    pub(super) fn close(&self, py: Python<'_>, wait: bool) -> PyResult<Py<PyAny>> {
        let sink = self.sink(py)?.clone();
        let wait = wait && !self.stalled.load(Ordering::Acquire);
        self.caller.run(py, 1, async move { sink.close(wait).await })
    }

    fn group(&self, py: Python<'_>, sink: &S) -> PyResult<(Arc<Group<S>>, Py<PyAny>)> {
        let (promise, pending) = self.caller.promise(py)?;
        Ok((Group::new(promise, sink.slots(), GroupKind::Many), pending))
    }

    /// Pushes the rows from `next` on, when there is room for them.
    fn spawn_rows(
        &self,
        py: Python<'_>,
        sink: &S,
        group: Arc<Group<S>>,
        rows: Rows,
        form: Form,
        next: Cursor,
    ) -> PyResult<()> {
        let (sink, sends) = (sink.clone(), Arc::clone(&self.sends));
        let mut place = self.line.join();
        let pushing = async move {
            place.come().await;
            push_rows(sink, sends, group, rows, form, next, &LeftOut::default()).await;
        };
        py_result(py, engine(1))?.handle().spawn(pushing);
        Ok(())
    }
}

/// The keys of `count` messages. `what` is the name of the argument.
pub(super) fn keys_for(
    count: usize,
    keys: Option<&Bound<'_, PyAny>>,
    what: &str,
) -> PyResult<Option<Vec<Option<String>>>> {
    let keys = keys.map(|keys| texts(keys, what)).transpose()?;
    match keys.as_ref().map(Vec::len) {
        Some(given) if given != count => {
            Err(PyValueError::new_err(format!("{given} {what} for {count} payloads: pass one for each")))
        }
        _ => Ok(keys),
    }
}

/// A text for each message. A single `str` is refused, because its letters would be taken for
/// texts.
fn texts(texts: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<Option<String>>> {
    if texts.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(format!(
            "{what} is a sequence with one for each payload, not a str"
        )));
    }
    let text = |(at, text): (usize, &Bound<'_, PyAny>)| {
        let named = |error| of_argument(text.py(), format_args!("{what}[{at}]"), error);
        text.extract().map_err(named)
    };
    each(what, texts)?.iter().enumerate().map(text).collect()
}

/// The payloads or values of a call. Those of `bytes` would be numbers.
pub(super) fn values<'py>(payloads: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if payloads.is_instance_of::<PyString>() || payloads.is_instance_of::<PyBytes>() {
        let text =
            format!("payloads is a sequence, not {}: send one payload with send()", type_name(payloads));
        return Err(PyTypeError::new_err(text));
    }
    each("payloads", payloads)
}

/// Adds the counters of what was sent.
pub(super) fn add_sends(stats: &Bound<'_, PyDict>, counts: &SendCounts) -> PyResult<()> {
    stats.set_item("messages_sent", counts.acknowledged)?;
    stats.set_item("bytes_sent", counts.bytes)?;
    stats.set_item("messages_failed", counts.failed)?;
    add_latencies(stats, "send", &counts.latencies)
}

/// Adds the latencies of `what`.
pub(super) fn add_latencies(
    stats: &Bound<'_, PyDict>,
    what: &str,
    latencies: &LatencyCounts,
) -> PyResult<()> {
    stats.set_item(format!("{what}_latency_count"), latencies.count())?;
    stats.set_item(format!("{what}_latency_sum"), latencies.sum().as_secs_f64())?;
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)] {
        let latency = latencies.percentile(share).map(|latency| latency.as_secs_f64());
        stats.set_item(format!("{what}_latency_{name}"), latency)?;
    }
    Ok(())
}

/// A dictionary of texts.
pub(super) fn pairs(properties: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<(String, String)>> {
    properties.map_or(Ok(Vec::new()), |properties| {
        let text = |value: &Bound<'_, PyAny>| {
            value.extract().map_err(|error: PyErr| {
                if !error.is_instance_of::<PyTypeError>(value.py()) {
                    return error;
                }
                PyTypeError::new_err(format!("properties must map str to str, not {}", type_name(value)))
            })
        };
        properties.iter().map(|(name, value)| Ok((text(&name)?, text(&value)?))).collect()
    })
}

fn is_full(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::QueueFull | ErrorKind::MemoryLimit)
}

/// Whether a message was refused for what it is, so that the next one may be taken.
fn is_of_message(error: &Error) -> bool {
    use ErrorKind::{InvalidArgument, InvalidTopic, MessageTooLarge};
    matches!(error.kind(), InvalidArgument | InvalidTopic | MessageTooLarge)
}

/// Pushes the rows from `cursor` on as room becomes free, then seals the group. Rows that cannot be
/// messages go to `bad`, if they are to be left out.
async fn push_rows<S: Sink>(
    sink: S,
    sends: Arc<Sends<S>>,
    group: Arc<Group<S>>,
    rows: Rows,
    form: Form,
    mut cursor: Cursor,
    bad: &LeftOut,
) {
    /// Pushed under one lock before others get a turn.
    const CHUNK: usize = 1000;
    let properties = borrowed(rows.properties());
    while cursor.left(&rows) > 0 {
        let room = sends.room.notified();
        tokio::pin!(room);
        // Registered before the push, so that room made in between is noticed.
        room.as_mut().enable();
        // Together, so that the clock is read and the driver woken once for all of them.
        let result = {
            let mut queues = sends.queues();
            let mut pushed = queues.group(&group);
            sink.push_rows(&form, cursor.rows(&rows, &properties).take(CHUNK), &mut |slot| {
                pushed.add(slot);
                cursor.advance(&rows);
            })
        };
        match result {
            Ok(()) => tokio::task::yield_now().await,
            Err(error) if is_full(&error) => room.await,
            Err(error) if rows.leaves_out() && is_of_message(&error) => {
                if let Some((number, bytes)) = cursor.next_row(&rows) {
                    bad.lock().push(BadRow { number, error, bytes });
                }
                cursor.advance(&rows);
            }
            Err(error) => return group.seal(cursor.left(&rows), Some(error)),
        }
    }
    sink.flush_batches();
    group.seal(0, None);
}

/// Declares a producer class: the shared methods, `send` and `send_nowait` with the arguments in
/// brackets, and the methods in the braces. PyO3 needs all methods of a class in one block, so they
/// are handed through the macro.
///
/// `keys` is the name of the second argument of `send_many`. `push` receives the arguments in their
/// order.
macro_rules! producer_class {
    (
        $(#[$attribute:meta])*
        $name:ident($sink:ty), keys = $keys:ident, push = $push:path,
        send($($argument:ident: [$($kind:tt)+] = $default:tt),* $(,)?);
        $($own:tt)*
    ) => {
        $(#[$attribute])*
        #[pyclass(frozen, module = "forebay._engine")]
        pub(crate) struct $name(Sender<$sink>);

        impl IntoPython for Sender<$sink> {
            fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                Ok(Py::new(py, $name(self))?.into_any())
            }
        }

        #[pymethods]
        impl $name {
            #[getter]
            fn topic(&self, py: Python<'_>) -> PyResult<&str> {
                Ok(Sink::topic(self.0.sink(py)?))
            }

            #[getter]
            fn pending(&self, py: Python<'_>) -> PyResult<usize> {
                Ok(Sink::pending(self.0.sink(py)?))
            }

            #[getter]
            fn connected(&self, py: Python<'_>) -> bool {
                self.0.sink(py).is_ok_and(Sink::is_connected)
            }

            #[pyo3(signature = (payload, $($argument=None),*))]
            #[allow(clippy::too_many_arguments, reason = "the arguments of the Python method")]
            fn send(
                &self,
                py: Python<'_>,
                payload: &Bound<'_, PyAny>,
                $($argument: Option<&Bound<'_, PyAny>>),*
            ) -> PyResult<Py<PyAny>> {
                $(let $argument: $($kind)+ = $crate::convert::argument(py, stringify!($argument), $argument, $default)?;)*
                let (waiting, pending) = self.0.waiting(py)?;
                $push(&self.0, py, waiting, payload, $($argument),*)?;
                Ok(pending)
            }

            #[pyo3(signature = (payload, $($argument=None),*))]
            #[allow(clippy::too_many_arguments, reason = "the arguments of the Python method")]
            fn send_nowait(
                &self,
                py: Python<'_>,
                payload: &Bound<'_, PyAny>,
                $($argument: Option<&Bound<'_, PyAny>>),*
            ) -> PyResult<()> {
                $(let $argument: $($kind)+ = $crate::convert::argument(py, stringify!($argument), $argument, $default)?;)*
                $push(&self.0, py, Waiting::Unwatched(1), payload, $($argument),*)
            }

            #[pyo3(signature = (payloads, $keys=None))]
            fn send_many(
                &self,
                py: Python<'_>,
                payloads: &Bound<'_, PyAny>,
                $keys: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<Py<PyAny>> {
                self.0.send_many(py, payloads, $keys, stringify!($keys))
            }

            fn send_rows(&self, py: Python<'_>, rows: &FrameRows) -> PyResult<Py<PyAny>> {
                self.0.send_rows(py, rows)
            }

            #[pyo3(signature = (timeout = None))]
            fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
                self.0.flush(py, timeout)
            }

            fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
                self.0.stats(py)
            }

            fn drain(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                self.0.drain(py)
            }

            #[pyo3(signature = (wait = true))]
            fn close(&self, py: Python<'_>, wait: bool) -> PyResult<Py<PyAny>> {
                self.0.close(py, wait)
            }

            $($own)*
        }
    };
}
pub(super) use producer_class;
