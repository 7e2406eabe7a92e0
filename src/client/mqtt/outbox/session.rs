//! The way of a durable publication: into the outbox, from there into the session, and out of both
//! once the broker has it.
//!
//! ```text
//!  push ──► staged ── on disk ──► session ── PUBACK, PUBCOMP ──► removed
//!              │  (the send ends)    ▲
//!              └── no room ──► disk ─┘ loaded, in order, when there is room
//! ```
//! A send ends when its message is on disk: from then on the outbox is responsible for it. A
//! message that the broker refuses later is counted and dropped. Messages are in memory as far as
//! the memory limit allows. The others wait on disk, and everything newer waits behind them, so
//! that the order is kept.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::mqtt::options::{ClientOptions, random_client_id};
use crate::mqtt::outbox::{Found, InFlight, Loaded, Outbox, Ticket};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::sync::{Mutex, MutexGuard, Rank};
use forebay_mqtt::packet::Publish;
use forebay_mqtt::producer::{Outcome, Record};
use forebay_mqtt::session::Session;
use forebay_mqtt::{QoS, Reason};

/// Bit of owners that are keys of the outbox; other owners are producers.
pub(in crate::mqtt) const DURABLE: u64 = 1 << 63;

/// State and counters of a client's outbox.
#[derive(Clone, Debug, Default)]
pub struct OutboxStats {
    /// Number of messages that the broker does not have yet.
    pub messages: u64,
    /// Bytes in use by the file.
    pub bytes: u64,
    /// Number of messages that the broker, or one of its limits, refused for good.
    pub refused: u64,
    /// Number of messages that expired before they could be sent.
    pub expired: u64,
    /// Error of the last refusal.
    pub last_refusal: Option<Error>,
}

/// Moves durable publications between producers, the outbox and the session.
#[derive(Debug)]
pub(in crate::mqtt) struct OutboxSession {
    state: Mutex<State>,
    reports: Arc<Reports>,
    /// Limit on the bytes of messages in the session.
    room: usize,
    /// Held while messages are moved on, so that they keep their order.
    pumping: Mutex<()>,
}

/// Result of [`OutboxSession::take_progress`].
#[derive(Debug, Default)]
pub(in crate::mqtt) struct Progress {
    /// Messages for the session, with their keys.
    pub(in crate::mqtt) messages: Vec<(u64, Publish)>,
    /// Sends that have ended.
    pub(in crate::mqtt) done: Vec<(Staged, Result<Reason>)>,
    /// Number of the session's records that are on disk.
    pub(in crate::mqtt) recorded: Option<u64>,
    /// Error of the outbox.
    pub(in crate::mqtt) failed: Option<Error>,
}

#[derive(Debug)]
struct State {
    /// `None` once the client has ended.
    outbox: Option<Outbox>,
    next_key: u64,
    /// All keys up to this one are in the session, staged for it, or done.
    fed: u64,
    /// The highest key at the time of the load under way.
    loading: Option<u64>,
    /// Publications that are not on disk yet.
    staged: VecDeque<Staged>,
    /// Tickets of the session's records, each with the number of records up to it.
    records: VecDeque<(Ticket, u64)>,
    recorded: u64,
    /// Bytes of messages in the session.
    resident: usize,
    stats: OutboxStats,
}

/// A publication whose send has not ended.
#[derive(Debug)]
pub(in crate::mqtt) struct Staged {
    ticket: Ticket,
    key: u64,
    pub(in crate::mqtt) owner: u64,
    pub(in crate::mqtt) qos: QoS,
    pub(in crate::mqtt) bytes: usize,
    /// For the session, unless older ones wait on disk.
    publish: Option<Publish>,
}

/// Reports of the outbox's thread.
#[derive(Debug, Default)]
pub(in crate::mqtt) struct Reports {
    reported: Mutex<Reported>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Reported {
    /// Everything up to this ticket is on disk.
    ticket: Ticket,
    failed: Option<Error>,
    loaded: Option<Result<Loaded>>,
}

impl Reports {
    fn report(&self, change: impl FnOnce(&mut Reported)) {
        change(&mut self.reported.lock());
        self.changed.notify_one();
    }

    /// Resolves when something was reported.
    pub(in crate::mqtt) async fn wait(&self) {
        self.changed.notified().await;
    }
}

impl OutboxSession {
    /// Opens the outbox of `options`, restores what was in flight to the session, and fixes the
    /// client identifier.
    pub(in crate::mqtt) fn open(options: &mut ClientOptions, session: &mut Session) -> Result<Option<Self>> {
        let Some(outbox_options) = &options.outbox else { return Ok(None) };
        let reports = Arc::new(Reports::default());
        let report = Arc::clone(&reports);
        let (outbox, found) = Outbox::open(
            outbox_options,
            Box::new(move |ticket, outcome| {
                report.report(|reported| match outcome {
                    Ok(()) => reported.ticket = ticket,
                    Err(error) => reported.failed = Some(error),
                });
            }),
        )?;
        let Found { client_id, in_flight, waiting, next_key } = found;
        match &client_id {
            Some(known) if options.client_id.is_empty() => options.client_id.clone_from(known),
            Some(known) if *known != options.client_id && !in_flight.is_empty() => {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    format!(
                        "the outbox has messages in flight for the client id {known:?}: use that client id, or \
                         another file"
                    ),
                ));
            }
            _ => {}
        }
        if options.client_id.is_empty() {
            options.client_id = random_client_id();
        }
        // A session that ends with its connection could not tell which messages the broker has.
        options.session_expiry = options.session_expiry.max(1);
        if client_id.as_ref() != Some(&options.client_id) {
            outbox.set_client_id(&options.client_id)?;
        }
        let mut resident = 0;
        let messages = waiting + in_flight.len() as u64;
        session.set_durable();
        for InFlight { key, publish, packet_id, released } in in_flight {
            resident += publish.weight();
            session.restore(DURABLE | key, publish, packet_id, released)?;
        }
        let state = State {
            outbox: Some(outbox),
            next_key,
            fed: if waiting == 0 { next_key - 1 } else { 0 },
            loading: None,
            staged: VecDeque::new(),
            records: VecDeque::new(),
            recorded: 0,
            resident,
            stats: OutboxStats { messages, ..OutboxStats::default() },
        };
        let room = options.memory_limit.max(1);
        Ok(Some(Self {
            state: Mutex::new(Rank::OutboxSession, state),
            reports,
            room,
            pumping: Mutex::new(Rank::Pump, ()),
        }))
    }

    /// Number of messages that the server does not have.
    pub(in crate::mqtt) fn pending(&self) -> usize {
        let state = self.state.lock();
        state.staged.len() + state.stats.messages as usize
    }

    pub(in crate::mqtt) fn stats(&self) -> OutboxStats {
        let state = self.state.lock();
        let bytes = state.outbox.as_ref().map_or(0, Outbox::bytes);
        OutboxStats { bytes, ..state.stats.clone() }
    }

    /// Stores a publication of `owner`, whose send ends when it is on disk. The caller holds the
    /// session's lock.
    pub(in crate::mqtt) fn push(&self, owner: u64, publish: Publish) -> Result<()> {
        let mut state = self.state.lock();
        let key = state.next_key;
        let ticket = state.outbox()?.store(key, &publish)?;
        state.next_key += 1;
        let (qos, bytes) = (publish.qos, publish.weight());
        let follows = state.fed == key - 1 && state.resident < self.room;
        if follows {
            state.fed = key;
        }
        let publish = follows.then_some(publish);
        state.staged.push_back(Staged { ticket, key, owner, qos, bytes, publish });
        Ok(())
    }

    /// Stores the records of the session.
    pub(in crate::mqtt) fn record(&self, session: &mut Session) {
        let mut state = self.state.lock();
        while let Some(record) = session.producer().poll_record() {
            // After a failure nothing is stored: the client ends.
            let Ok(outbox) = state.outbox() else { return };
            let ticket = match record {
                Record::Sent(owner, id) => outbox.sent(owner & !DURABLE, id),
                Record::Released(owner) => outbox.released(owner & !DURABLE),
                Record::Queued(owner) => outbox.requeue(vec![owner & !DURABLE]),
            };
            let Ok(ticket) = ticket else { return };
            state.recorded += 1;
            let recorded = state.recorded;
            state.records.push_back((ticket, recorded));
        }
    }

    /// Removes publications of the session that have an outcome. Not called once the client has
    /// ended: then they stay.
    pub(in crate::mqtt) fn ended(&self, outcomes: Vec<Outcome>) {
        if outcomes.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let mut keys = Vec::with_capacity(outcomes.len());
        for outcome in outcomes {
            state.resident -= outcome.bytes;
            state.stats.messages -= 1;
            keys.push(outcome.owner & !DURABLE);
            match outcome.result {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Timeout => state.stats.expired += 1,
                Err(error) => {
                    state.stats.refused += 1;
                    state.stats.last_refusal = Some(error);
                }
            }
        }
        if let Ok(outbox) = state.outbox() {
            // A failure is reported with the next store.
            let _ = outbox.remove(keys);
        }
        self.load(&mut state);
    }

    /// Starts to load what waits on disk, when there is room for it.
    fn load(&self, state: &mut State) {
        if state.loading.is_some() || state.fed + 1 >= state.next_key || state.resident > self.room / 2 {
            return;
        }
        let (after, reports) = (state.fed, Arc::clone(&self.reports));
        let Ok(outbox) = state.outbox() else { return };
        let sink = Box::new(move |loaded| reports.report(|reported| reported.loaded = Some(loaded)));
        let asked = outbox.load(Some(after), (self.room / 4).max(1), sink).is_ok();
        state.loading = asked.then_some(state.next_key - 1);
    }

    /// Reports of the outbox's thread.
    pub(in crate::mqtt) fn reported(&self) -> Arc<Reports> {
        Arc::clone(&self.reports)
    }

    /// Held while messages are moved on.
    pub(in crate::mqtt) fn pump(&self) -> MutexGuard<'_, ()> {
        self.pumping.lock()
    }

    /// Takes what the outbox's thread has reported: the sends that have ended, and the messages for
    /// the session.
    pub(in crate::mqtt) fn take_progress(&self) -> Progress {
        let Reported { ticket, failed, loaded } = {
            let mut reported = self.reports.reported.lock();
            Reported {
                ticket: reported.ticket,
                failed: reported.failed.clone(),
                loaded: reported.loaded.take(),
            }
        };
        let mut progress = Progress { failed, ..Progress::default() };
        let mut state = self.state.lock();
        if let Some(loaded) = loaded {
            let all = state.loading.take().unwrap_or(state.fed);
            match loaded {
                Ok(loaded) => {
                    // Keys in between belong to messages that are gone, or were in flight already.
                    state.fed = if loaded.more { loaded.last.unwrap_or(state.fed) } else { all };
                    state.stats.expired += loaded.expired.len() as u64;
                    state.stats.messages -= loaded.expired.len() as u64;
                    state.resident += loaded.messages.iter().map(|(_, p)| p.weight()).sum::<usize>();
                    progress.messages = loaded.messages;
                }
                Err(error) => progress.failed = progress.failed.or(Some(error)),
            }
        }
        while state.staged.front().is_some_and(|staged| staged.ticket <= ticket) {
            let mut staged = state.staged.pop_front().expect("just seen");
            state.stats.messages += 1;
            if let Some(publish) = staged.publish.take() {
                state.resident += staged.bytes;
                progress.messages.push((staged.key, publish));
            }
            progress.done.push((staged, Ok(Reason::Success)));
        }
        while state.records.front().is_some_and(|(recorded, _)| *recorded <= ticket) {
            progress.recorded = state.records.pop_front().map(|(_, recorded)| recorded);
        }
        if let Some(error) = &progress.failed {
            progress.done.extend(state.staged.drain(..).map(|staged| (staged, Err(error.clone()))));
        }
        self.load(&mut state);
        progress
    }

    /// Takes the file away: nothing is stored from here on.
    pub(in crate::mqtt) fn take_outbox(&self) -> Option<Outbox> {
        self.state.lock().outbox.take()
    }
}

impl State {
    fn outbox(&self) -> Result<&Outbox> {
        self.outbox.as_ref().ok_or_else(|| Error::new(ErrorKind::Closed, "the client is closed"))
    }
}
