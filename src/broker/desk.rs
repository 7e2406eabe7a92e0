//! A hub with what its tasks need, and the store that all hubs write to. Everything here runs on the broker's
//! one thread; nobody holds a hub over an `await`.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Instant;

use tokio::sync::Notify;

use crate::broker::hub::Hub;
use crate::broker::store::Op;
use crate::sqlite::{Report, Writer};

/// Whose change it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Pulsar,
    Mqtt,
    Tubemq,
}

/// The one writer, and for whom it writes.
#[derive(Debug)]
pub(super) struct Disk {
    writer: Option<Writer<Op>>,
    /// Who asked for how many changes in a row, oldest first, as far as they are not reported.
    asked: RefCell<VecDeque<(Owner, u64)>>,
    /// Connections of all hubs.
    pub(super) connections: Cell<usize>,
}

impl Disk {
    pub(super) fn new(writer: Option<Writer<Op>>) -> Self {
        Self { writer, asked: RefCell::default(), connections: Cell::new(0) }
    }

    /// Whether everything that was asked for is reported.
    pub(super) fn is_idle(&self) -> bool {
        self.asked.borrow().is_empty()
    }

    /// Hands a change to the writer; without one it is done already, and this says so.
    fn submit(&self, owner: Owner, op: Op) -> bool {
        let Some(writer) = &self.writer else { return true };
        writer.submit(op);
        let mut asked = self.asked.borrow_mut();
        match asked.back_mut() {
            Some((last, count)) if *last == owner => *count += 1,
            _ => asked.push_back((owner, 1)),
        }
        false
    }

    /// Splits a report by whose changes it is about.
    pub(super) fn split(&self, report: &Report) -> Vec<(Owner, Report)> {
        let mut asked = self.asked.borrow_mut();
        let (mut jobs, mut parts) = (report.jobs, Vec::new());
        while jobs > 0 {
            let Some((owner, count)) = asked.front_mut() else { break };
            let part = jobs.min(*count);
            parts.push((*owner, Report { jobs: part, outcome: report.outcome.clone() }));
            jobs -= part;
            *count -= part;
            if *count == 0 {
                asked.pop_front();
            }
        }
        debug_assert_eq!(jobs, 0, "every job was asked for");
        parts
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Desk<H> {
    pub(super) hub: RefCell<H>,
    pub(super) bells: RefCell<HashMap<u64, Rc<Notify>>>,
    pub(super) timer: Notify,
    pub(super) disk: Rc<Disk>,
    owner: Owner,
}

impl<H: Hub> Desk<H> {
    pub(super) fn new(hub: H, owner: Owner, disk: Rc<Disk>) -> Rc<Self> {
        let hub = RefCell::new(hub);
        Rc::new(Self { hub, bells: RefCell::default(), timer: Notify::new(), disk, owner })
    }

    /// Calls the hub and passes on what it asks for.
    pub(super) fn call<T>(&self, action: impl FnOnce(&mut H, Instant) -> T) -> T {
        let mut hub = self.hub.borrow_mut();
        let before = hub.poll_timeout();
        let result = action(&mut hub, Instant::now());
        loop {
            let mut done = 0;
            while let Some(op) = hub.poll_op() {
                done += u64::from(self.disk.submit(self.owner, op));
            }
            if done == 0 {
                break;
            }
            let used = hub.used_bytes();
            hub.handle_report(Instant::now(), Report { jobs: done, outcome: Ok(used) });
        }
        let bells = self.bells.borrow();
        while let Some(id) = hub.poll_wake() {
            if let Some(bell) = bells.get(&id) {
                bell.notify_one();
            }
        }
        if hub.poll_timeout() != before {
            self.timer.notify_one();
        }
        result
    }

    /// The broker is about to end.
    pub(super) fn shut_down(&self) {
        self.call(|hub, now| hub.shut_down(now));
    }

    /// Every connection takes a turn.
    pub(super) fn ring_all(&self) {
        self.bells.borrow().values().for_each(|bell| bell.notify_one());
    }
}
