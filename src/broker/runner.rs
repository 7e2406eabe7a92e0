//! A [`Runner`] drives one [`Protocol`]: it passes the protocol's changes to the store, wakes
//! connections, keeps time and hands over the store's reports. Everything here runs on the broker's
//! one thread; a protocol is never borrowed across an `await`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::{Notify, oneshot};

use crate::admission::Admission;
use crate::budget::{self, Budget, Load};
use crate::http::message::{Answer, Request};
use crate::peer::Peer;
use crate::protocol::{Clock, Protocol, Work};
use crate::stats::ClientStats;
use crate::store::queue::{Reports, StoreQueue};
use forebay_base::clock::{self, wall_ms};
use forebay_base::error::Result;
use forebay_base::random::HashMap;
use forebay_net::driver::Turn;
use forebay_sqlite::{Outcome, Report};

/// Difference between calendar and protocol's clock beyond which the clock is set, in milliseconds.
const CLOCK_SLACK_MS: u64 = 500;

/// Takes the outcome of an administrative change. The caller may have given up; then it is dropped.
pub(super) type OnWritten = Box<dyn FnOnce(Result<()>)>;

/// The answer to an administrative change, which is given once that change is written.
struct Unanswered {
    change: u64,
    answer: OnWritten,
}

/// A connection, for its task and for operators.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) peer: Peer,
    /// When it was accepted.
    since: Instant,
    /// Wakes its task.
    pub(super) wake: Notify,
    /// Whether an operator has ended it: it closes once its output is written.
    pub(super) dismissed: Cell<bool>,
    /// The memory that it holds.
    pub(super) load: Load,
    /// Its number in the budget.
    number: Cell<u64>,
}

impl Open {
    pub(super) fn new(peer: Peer) -> Self {
        Self {
            peer,
            since: clock::now(),
            wake: Notify::new(),
            dismissed: Cell::new(false),
            load: Load::default(),
            number: Cell::default(),
        }
    }
}

/// A protocol with what its tasks share.
pub(super) struct Runner {
    name: &'static str,
    protocol: RefCell<Box<dyn Protocol>>,
    connections: RefCell<HashMap<u64, Rc<Open>>>,
    timer: Notify,
    queue: StoreQueue,
    /// Work for other threads.
    work: UnboundedSender<Work>,
    /// Notified of every report to any protocol.
    written: Rc<Notify>,
    unanswered: RefCell<VecDeque<Unanswered>>,
    admission: Admission,
    budget: Rc<Budget>,
    /// Whether the protocol has been told that memory is tight.
    tight: Cell<bool>,
}

impl Runner {
    pub(super) fn new(
        name: &'static str,
        protocol: Box<dyn Protocol>,
        queue: StoreQueue,
        work: UnboundedSender<Work>,
        admission: Admission,
        budget: Rc<Budget>,
        written: Rc<Notify>,
    ) -> Rc<Self> {
        Rc::new(Self {
            name,
            protocol: RefCell::new(protocol),
            connections: RefCell::default(),
            timer: Notify::new(),
            queue,
            work,
            written,
            unanswered: RefCell::default(),
            admission,
            budget,
            tight: Cell::default(),
        })
    }

    /// Calls the protocol, then submits the changes it asks for and wakes the connections it names.
    pub(super) fn call<T>(&self, action: impl FnOnce(&mut dyn Protocol, Instant) -> T) -> T {
        let mut protocol = self.protocol.borrow_mut();
        let before = protocol.poll_timeout();
        let result = action(&mut **protocol, clock::now());
        loop {
            let mut done = 0;
            while let Some(op) = protocol.poll_op() {
                done += u64::from(self.queue.submit(op));
            }
            if done == 0 {
                break;
            }
            let used = protocol.used_bytes();
            protocol.handle_report(clock::now(), Report { jobs: done, outcome: Outcome::Written(used) });
        }
        while let Some(work) = protocol.poll_work() {
            // The receiver lives as long as the broker.
            let _ = self.work.send(work);
        }
        let connections = self.connections.borrow();
        while let Some(id) = protocol.poll_wake() {
            if let Some(open) = connections.get(&id) {
                open.wake.notify_one();
            }
        }
        if protocol.poll_timeout() != before {
            self.timer.notify_one();
        }
        result
    }

    /// Looks at the protocol without changing it.
    pub(super) fn inspect<T>(&self, look: impl FnOnce(&dyn Protocol) -> T) -> T {
        look(&**self.protocol.borrow())
    }

    /// Makes an administrative change and answers when it is written, or at once with its error.
    pub(super) fn administer(&self, answer: OnWritten, change: impl FnOnce(&mut dyn Protocol) -> Result<()>) {
        match self.call(|protocol, _| change(protocol).map(|()| protocol.issued())) {
            Err(error) => answer(Err(error)),
            Ok(change) => self.answer_after(change, answer),
        }
    }

    /// Has the protocol answer a request over HTTP. What was changed is written when the answer is
    /// given.
    pub(super) async fn answer_http(&self, request: &Request) -> Option<Answer> {
        let (answer, change) = self.call(|protocol, now| {
            let before = protocol.issued();
            let answer = protocol.handle_http(now, request)?;
            Some((answer, Some(protocol.issued()).filter(|issued| *issued > before)))
        })?;
        let Some(change) = change else { return Some(answer) };
        let (outcome, written) = oneshot::channel();
        self.answer_after(change, Box::new(move |result| drop(outcome.send(result))));
        Some(match written.await {
            Ok(Ok(())) => answer,
            Ok(Err(error)) => Answer::unavailable(error.message()),
            Err(_) => Answer::unavailable("the broker has been stopped"),
        })
    }

    /// Answers once the change with this number is written.
    fn answer_after(&self, change: u64, answer: OnWritten) {
        self.unanswered.borrow_mut().push_back(Unanswered { change, answer });
        self.answer_written();
    }

    fn answer_written(&self) {
        let (written, failure) =
            self.inspect(|protocol| (protocol.written(), protocol.failure().cloned().map_or(Ok(()), Err)));
        let mut unanswered = self.unanswered.borrow_mut();
        while unanswered.front().is_some_and(|next| next.change <= written) {
            if let Some(next) = unanswered.pop_front() {
                (next.answer)(failure.clone());
            }
        }
    }

    /// Hands the store's reports to the protocol.
    pub(super) async fn handle_reports(self: Rc<Self>, mut reports: Reports) {
        while let Some(mut report) = reports.recv().await {
            self.queue.reported(&mut report);
            let jobs = report.jobs;
            self.call(|protocol, now| protocol.handle_report(now, report));
            self.answer_written();
            // A store that cannot write at the moment reports nothing but that: shutdown does not
            // wait for it.
            if jobs > 0 {
                self.written.notify_one();
            }
        }
    }

    /// Does the protocol's long work on other threads.
    pub(super) async fn do_work(self: Rc<Self>, mut work: UnboundedReceiver<Work>) {
        while let Some(Work { id, job }) = work.recv().await {
            let runner = self.clone();
            tokio::task::spawn_local(async move {
                // The protocol gets an answer in any case; without a result it is a refusal.
                let result = tokio::task::spawn_blocking(job).await.unwrap_or(false);
                runner.call(|protocol, now| protocol.handle_work(now, id, result));
            });
        }
    }

    /// Calls the protocol when its time has come, and sets its clock when the calendar changes.
    pub(super) async fn keep_time(self: Rc<Self>, mut clock: Clock) {
        loop {
            let now = clock::now();
            if clock.wall_ms(now).abs_diff(wall_ms()) > CLOCK_SLACK_MS {
                clock = clock.set(now, wall_ms());
                self.call(|protocol, _| protocol.set_clock(clock));
            }
            let due = self.inspect(|protocol| protocol.poll_timeout());
            tokio::select! {
                biased;
                // First: a busy protocol moves its deadline with every call.
                () = sleep_until(due) => {
                    self.call(|protocol, now| protocol.handle_timeout(now));
                    // A protocol that goes on with long work is due at once: connections get their
                    // turn first.
                    tokio::task::yield_now().await;
                }
                () = self.timer.notified() => {}
            }
        }
    }

    /// The next step of a connection's task.
    pub(super) fn turn(&self, id: u64) -> Turn {
        let mut protocol = self.protocol.borrow_mut();
        let deadline = protocol.session_timeout(id);
        Turn { deadline, awake: None, reads: protocol.may_read(id), finished: protocol.finished(id) }
    }

    /// Whether the store has reported every change.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_idle()
    }

    /// Gives every connection a turn.
    pub(super) fn wake_all(&self) {
        self.connections.borrow().values().for_each(|open| open.wake.notify_one());
    }

    /// Whether a connection is about to close once its last packets are written.
    pub(super) fn is_closing(&self) -> bool {
        let connections = self.connections.borrow();
        self.inspect(|protocol| connections.keys().any(|id| protocol.finished(*id)))
    }

    /// Name of the protocol.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Number of the store's transactions, and the time that they have taken.
    pub(super) fn commits(&self) -> (u64, Duration) {
        self.queue.commits()
    }

    /// Admission of this protocol's connections.
    pub(super) fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Registers a connection, and gives its number.
    pub(super) fn connect(&self, peer: Peer) -> (u64, Rc<Open>) {
        self.admission.enter(peer.ip());
        let id = self.call(|protocol, now| protocol.connect(now, &peer.address().to_string()));
        let open = Rc::new(Open::new(peer));
        open.number.set(self.budget.enter(&open));
        self.connections.borrow_mut().insert(id, open.clone());
        (id, open)
    }

    /// Removes a connection.
    pub(super) fn disconnect(&self, id: u64, address: IpAddr) {
        self.admission.leave(address);
        let open = self.connections.borrow_mut().remove(&id);
        self.call(|protocol, now| protocol.disconnect(now, id));
        if let Some(open) = open {
            self.budget.leave(open.number.get());
        }
    }

    /// Counts a turn of a connection, and what the connection holds.
    pub(super) fn count_turn(&self, id: u64, open: &Open) {
        self.budget.note_turn();
        self.count(id, open);
    }

    /// Counts what a connection holds.
    fn count(&self, id: u64, open: &Open) {
        self.budget.count(open, self.inspect(|protocol| protocol.held(id)));
    }

    /// Counts what all connections hold, closes those whose frames come too slowly, and has the
    /// protocol queue less output if memory is tight.
    pub(super) fn count_all(&self) {
        let is_tight = self.budget.is_tight();
        for (id, open) in &*self.connections.borrow() {
            self.count(*id, open);
            // A slow network is no reason while there is room.
            if is_tight {
                budget::close_if_stuck(open);
            }
        }
        let tight = self.budget.is_tight();
        if self.tight.replace(tight) != tight {
            self.call(|protocol, _| protocol.set_tight(tight));
        }
    }

    /// The clients that are connected and pass, the oldest first.
    pub(super) fn clients(&self, passes: impl Fn(&ClientStats) -> bool) -> Vec<ClientStats> {
        let (connections, now) = (self.connections.borrow(), clock::now());
        let mut ids: Vec<u64> = connections.keys().copied().collect();
        ids.sort_unstable();
        let client = |id: u64| {
            let open = connections.get(&id)?;
            let (address, age) = (open.peer.to_string(), now.saturating_duration_since(open.since));
            Some(ClientStats { id, address, age, ..self.inspect(|protocol| protocol.client(id)) })
        };
        ids.into_iter().filter_map(client).filter(passes).collect()
    }

    /// Ends a connection for an operator. Returns whether there was one.
    pub(super) fn dismiss(&self, id: u64) -> bool {
        let Some(open) = self.connections.borrow().get(&id).cloned() else { return false };
        self.call(|protocol, now| protocol.dismiss(now, id));
        open.dismissed.set(true);
        open.wake.notify_one();
        true
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::BytesMut;

    use super::*;
    use crate::admission::ConnectionLimits;
    use crate::permissions::Permissions;
    use crate::stats::ProtocolStats;
    use crate::store::Op;
    use forebay_base::error::Error;
    use forebay_base::transmit::Transmit;

    /// Keeps the clocks that it is given, and does nothing else.
    #[derive(Default)]
    struct Watch(Rc<RefCell<Vec<Clock>>>);

    /// A runner whose protocol takes nothing out of its input.
    pub(crate) fn idle(budget: Rc<Budget>) -> Rc<Runner> {
        let (work, _) = tokio::sync::mpsc::unbounded_channel();
        let admission = Admission::new(ConnectionLimits::new(100, 1), Rc::default());
        let (queue, _) = StoreQueue::memory();
        Runner::new("idle", Box::<Watch>::default(), queue, work, admission, budget, Rc::default())
    }

    impl Protocol for Watch {
        fn set_clock(&mut self, clock: Clock) {
            self.0.borrow_mut().push(clock);
        }

        fn connect(&mut self, _: Instant, _: &str) -> u64 {
            0
        }

        fn disconnect(&mut self, _: Instant, _: u64) {}

        fn handle_input(&mut self, _: Instant, _: u64, _: &mut BytesMut) -> Result<()> {
            Ok(())
        }

        fn handle_session_timeout(&mut self, _: Instant, _: u64) -> Result<()> {
            Ok(())
        }

        fn session_timeout(&self, _: u64) -> Option<Instant> {
            None
        }

        fn may_read(&mut self, _: u64) -> bool {
            true
        }

        fn finished(&self, _: u64) -> bool {
            false
        }

        fn take_output(&mut self, _: Instant, _: u64, _: &mut Transmit) {}

        fn poll_op(&mut self) -> Option<Op> {
            None
        }

        fn set_permissions(&mut self, _: Instant, _: Arc<Permissions>) {}

        fn poll_wake(&mut self) -> Option<u64> {
            None
        }

        fn handle_report(&mut self, _: Instant, _: Report) {}

        fn poll_timeout(&self) -> Option<Instant> {
            None
        }

        fn handle_timeout(&mut self, _: Instant) {}

        fn shut_down(&mut self, _: Instant) {}

        fn used_bytes(&self) -> u64 {
            0
        }

        fn issued(&self) -> u64 {
            0
        }

        fn written(&self) -> u64 {
            0
        }

        fn failure(&self) -> Option<&Error> {
            None
        }

        fn stats(&self) -> ProtocolStats {
            ProtocolStats::default()
        }

        fn client(&self, _: u64) -> ClientStats {
            ClientStats::default()
        }
    }

    #[tokio::test]
    async fn a_protocol_is_told_when_the_calendar_is_not_what_it_thinks() {
        const HOUR_MS: u64 = 3_600_000;
        let now = clock::now();
        for shown in [wall_ms() - HOUR_MS, wall_ms() + HOUR_MS] {
            let clocks = Rc::<RefCell<Vec<Clock>>>::default();
            let (queue, _reports) = StoreQueue::memory();
            let watch = Box::new(Watch(clocks.clone()));
            let (work, _jobs) = tokio::sync::mpsc::unbounded_channel();
            let admission = Admission::new(ConnectionLimits::new(1, 1), Rc::default());
            let budget = Budget::new(1);
            let runner = Runner::new("watch", watch, queue, work, admission, budget, Rc::default());
            let keeping = runner.keep_time(Clock::new(now, shown));
            tokio::time::timeout(Duration::from_millis(1), keeping).await.unwrap_err();
            let clocks = clocks.borrow();
            let clock = clocks.first().expect("it was told");
            assert!(clock.wall_ms(clock::now()).abs_diff(wall_ms()) < HOUR_MS / 2, "{clock:?}");
        }
    }
}
