//! The way of a durable publication: into the outbox, from there into the session, and out of both when the
//! broker has it.
//!
//! ```text
//!  push ──► staged ── on disk ──► session ── PUBACK, PUBCOMP ──► removed
//!              │  (the send ends)    ▲
//!              └── no room ──► disk ─┘ loaded, in order, when there is room
//! ```
//! A send ends when its message is on disk: from there on it is the outbox's. What the broker refuses later is
//! counted and dropped. Messages are in memory as long as the memory limit allows; the others wait on disk, and
//! behind them everything newer, so that the order stays.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Notify;

use crate::client::mqtt::options::ClientOptions;
use crate::client::mqtt::outbox::{Found, InFlight, Loaded, Outbox, Ticket};
use crate::client::mqtt::{Shared, random_client_id};
use crate::error::{Error, ErrorKind, Result};
use crate::mqtt::packet::Publish;
use crate::mqtt::producer::{Outcome, Record, cost};
use crate::mqtt::session::Session;
use crate::mqtt::{QoS, Reason};
use crate::sync::{Mutex, Rank};

/// Owners with this bit are keys of the outbox, others producers.
pub(in crate::client::mqtt) const DURABLE: u64 = 1 << 63;

/// What the outbox of a client has seen.
#[derive(Clone, Debug, Default)]
pub struct OutboxStats {
    /// Messages that the broker does not have yet.
    pub messages: u64,
    /// Bytes in use by the file.
    pub bytes: u64,
    /// Messages that the broker, or a limit of its, refused for good.
    pub refused: u64,
    /// Messages whose expiry interval was over before they could be sent.
    pub expired: u64,
    /// Why the last one was refused.
    pub last_refusal: Option<Error>,
}

/// See the module.
#[derive(Debug)]
pub(in crate::client::mqtt) struct OutboxSession {
    state: Mutex<State>,
    bell: Arc<Bell>,
    /// Most bytes of messages with the session.
    room: usize,
    /// One hand at a time moves messages on.
    pumping: Mutex<()>,
}

#[derive(Debug)]
struct State {
    /// Gone when the client has ended.
    outbox: Option<Outbox>,
    next_key: u64,
    /// All keys up to here are with the session or staged for it, or done.
    fed: u64,
    /// The last key that there was when what waits on disk was asked for.
    loading: Option<u64>,
    /// Not on disk yet.
    staged: VecDeque<Staged>,
    /// Tickets of the session's records, and how many records there are up to each.
    records: VecDeque<(Ticket, u64)>,
    recorded: u64,
    /// Bytes of messages with the session.
    resident: usize,
    stats: OutboxStats,
}

#[derive(Debug)]
struct Staged {
    ticket: Ticket,
    key: u64,
    owner: u64,
    qos: QoS,
    bytes: usize,
    /// For the session, unless older ones wait on disk.
    publish: Option<Publish>,
}

/// What the outbox's thread tells.
#[derive(Debug, Default)]
struct Bell {
    rung: Mutex<Rung>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct Rung {
    ticket: Ticket,
    failed: Option<Error>,
    loaded: Option<Result<Loaded>>,
}

impl Bell {
    fn ring(&self, change: impl FnOnce(&mut Rung)) {
        change(&mut self.rung.lock());
        self.notify.notify_one();
    }
}

impl OutboxSession {
    /// Opens the outbox of `options`, gives its session what was in flight, and settles whose session it is.
    pub(in crate::client::mqtt) fn open(
        options: &mut ClientOptions,
        session: &mut Session,
    ) -> Result<Option<Self>> {
        let Some(outbox_options) = &options.outbox else { return Ok(None) };
        let bell = Arc::new(Bell::default());
        let report = Arc::clone(&bell);
        let (outbox, found) = Outbox::open(
            outbox_options,
            Box::new(move |ticket, outcome| {
                report.ring(|rung| match outcome {
                    Ok(()) => rung.ticket = ticket,
                    Err(error) => rung.failed = Some(error),
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
                        "the outbox has messages in flight for the client id {known:?}, not for this one"
                    ),
                ));
            }
            _ => {}
        }
        if options.client_id.is_empty() {
            options.client_id = random_client_id();
        }
        // A session that begins anew, or ends with its connection, could not tell what it has seen before.
        options.session_expiry = options.session_expiry.max(1);
        if client_id.as_ref() != Some(&options.client_id) {
            outbox.set_client_id(&options.client_id)?;
        }
        let mut resident = 0;
        let messages = waiting + in_flight.len() as u64;
        session.set_durable();
        for InFlight { key, publish, packet_id, released } in in_flight {
            resident += cost(&publish);
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
            bell,
            room,
            pumping: Mutex::new(Rank::Pump, ()),
        }))
    }

    /// Messages that the server does not have.
    pub(in crate::client::mqtt) fn pending(&self) -> usize {
        let state = self.state.lock();
        state.staged.len() + state.stats.messages as usize
    }

    pub(in crate::client::mqtt) fn stats(&self) -> OutboxStats {
        let state = self.state.lock();
        let bytes = state.outbox.as_ref().map_or(0, Outbox::bytes);
        OutboxStats { bytes, ..state.stats.clone() }
    }

    /// Takes a publication for `owner`, who is told when it is on disk. The session is locked by the caller.
    pub(in crate::client::mqtt) fn push(&self, owner: u64, publish: Publish) -> Result<()> {
        let mut state = self.state.lock();
        let key = state.next_key;
        let ticket = state.outbox()?.store(key, &publish)?;
        state.next_key += 1;
        let (qos, bytes) = (publish.qos, cost(&publish));
        let follows = state.fed == key - 1 && state.resident < self.room;
        if follows {
            state.fed = key;
        }
        let publish = follows.then_some(publish);
        state.staged.push_back(Staged { ticket, key, owner, qos, bytes, publish });
        Ok(())
    }

    /// Writes down what the session asks for.
    pub(in crate::client::mqtt) fn record(&self, session: &mut Session) {
        let mut state = self.state.lock();
        while let Some(record) = session.producer().poll_record() {
            // After a failure nothing is: the client ends.
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

    /// Publications with the session have ended. Not called once the client has: then they stay.
    pub(in crate::client::mqtt) fn ended(&self, outcomes: Vec<Outcome>) {
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
            // A failure is reported by what is to be stored.
            let _ = outbox.remove(keys);
        }
        self.load(&mut state);
    }

    /// Asks for what waits on disk, when there is room for it.
    fn load(&self, state: &mut State) {
        if state.loading.is_some() || state.fed + 1 >= state.next_key || state.resident > self.room / 2 {
            return;
        }
        let (after, bell) = (state.fed, Arc::clone(&self.bell));
        let Ok(outbox) = state.outbox() else { return };
        let sink = Box::new(move |loaded| bell.ring(|rung| rung.loaded = Some(loaded)));
        let asked = outbox.load(Some(after), (self.room / 4).max(1), sink).is_ok();
        state.loading = asked.then_some(state.next_key - 1);
    }
}

impl State {
    fn outbox(&self) -> Result<&Outbox> {
        self.outbox.as_ref().ok_or_else(|| Error::new(ErrorKind::Closed, "the client is closed"))
    }
}

impl Shared {
    /// Moves messages on whenever the outbox's thread has something to tell.
    pub(in crate::client::mqtt) async fn run_outbox_session(shared: std::sync::Weak<Self>) {
        let Some(bell) = shared.upgrade().and_then(|s| s.spool.as_ref().map(|spool| Arc::clone(&spool.bell)))
        else {
            return;
        };
        if let Some(shared) = shared.upgrade() {
            shared.pump();
        }
        loop {
            bell.notify.notified().await;
            let Some(shared) = shared.upgrade() else { return };
            shared.pump();
        }
    }

    /// Tells senders what is on disk, and gives the session what is and what was loaded.
    pub(in crate::client::mqtt) fn pump(&self) {
        let Some(spool) = &self.spool else { return };
        let pumping = spool.pumping.lock();
        let rung = {
            let mut rung = spool.bell.rung.lock();
            Rung { ticket: rung.ticket, failed: rung.failed.clone(), loaded: rung.loaded.take() }
        };
        let mut messages = Vec::new();
        let (mut done, mut recorded, mut failed) = (Vec::new(), None, rung.failed);
        {
            let mut state = spool.state.lock();
            if let Some(loaded) = rung.loaded {
                let all = state.loading.take().unwrap_or(state.fed);
                match loaded {
                    Ok(loaded) => {
                        // Keys in between are of messages that are gone, or were in flight already.
                        state.fed = if loaded.more { loaded.last.unwrap_or(state.fed) } else { all };
                        state.stats.expired += loaded.expired.len() as u64;
                        state.stats.messages -= loaded.expired.len() as u64;
                        state.resident += loaded.messages.iter().map(|(_, p)| cost(p)).sum::<usize>();
                        messages = loaded.messages;
                    }
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            while state.staged.front().is_some_and(|staged| staged.ticket <= rung.ticket) {
                let mut staged = state.staged.pop_front().expect("just seen");
                state.stats.messages += 1;
                if let Some(publish) = staged.publish.take() {
                    state.resident += staged.bytes;
                    messages.push((staged.key, publish));
                }
                done.push((staged, Ok(Reason::Success)));
            }
            while state.records.front().is_some_and(|(ticket, _)| *ticket <= rung.ticket) {
                recorded = state.records.pop_front().map(|(_, recorded)| recorded);
            }
            if let Some(error) = &failed {
                done.extend(state.staged.drain(..).map(|staged| (staged, Err(error.clone()))));
            }
            spool.load(&mut state);
        }
        {
            // Whoever has just pushed holds it until the owner expects an outcome.
            let mut session = self.session();
            let now = Instant::now();
            for (key, publish) in messages {
                session.producer().push(now, DURABLE | key, publish);
            }
            if let Some(recorded) = recorded {
                session.producer().handle_recorded(recorded);
            }
        }
        for (staged, result) in done {
            let Staged { owner, qos, bytes, .. } = staged;
            self.published(Outcome { owner, qos, count: 1, bytes, result });
        }
        let refused: Vec<_> = self.producers.lock().values().filter(|p| p.was_refused()).cloned().collect();
        for producer in refused {
            // There may be room in the file.
            producer.retry();
        }
        self.settled.notify_waiters();
        self.notify();
        drop(pumping);
        if let Some(error) = failed {
            // Without its disk it could not keep what it promises.
            self.end(&error);
        }
    }

    /// Writes what is staged, tells its senders, and lets another client have the file. May block for a commit.
    pub(in crate::client::mqtt) fn close_outbox(&self) {
        if let Some(outbox) = self.take_outbox() {
            outbox.close();
            self.pump();
        }
    }

    /// Nothing is written any more.
    pub(in crate::client::mqtt) fn take_outbox(&self) -> Option<Outbox> {
        self.spool.as_ref().and_then(|spool| spool.state.lock().outbox.take())
    }
}
