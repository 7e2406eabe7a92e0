//! One partition of a consumer, without its connection.
//!
//! ```text
//!           register             200               get              200, with messages
//!   Out ───────────────► Calling ───► Idle ──────────────► Calling ────────────────────► Holding
//!    ▲ ▲   410: later       │          ▲ ▲  404, 452, empty:  │                             │
//!    │ └────────────────────┘          │ └──────────────────┘ │   all acknowledged: consumed │
//!    │                                 └──────────────────────┼─────────────────────────────┘
//!    │   401, 411, 412, 415 in an answer or a heartbeat; seek │   nack: not consumed, later
//!    └─────────────────────────────────────────────────────── any state but Left
//!
//!   Idle, Holding ── leave: unregister ──► Calling ──► Left ◄── leave: not registered or connected
//! ```
//! One call is open at a time (`Call`). What the user wants meanwhile waits for its answer: a seek
//! in the state `Calling`, and pause and leave as the `Intent`, which holds in every state. A seek
//! is a registration too: it is marked in the `Attempt` that `Out` carries to the call.
//!
//! **Acknowledgement** is by message here and by pack at the broker. One get returns one pack, and
//! the next get says whether the last pack was consumed. Therefore one pack at a time is fetched,
//! as soon as the one before is consumed. After a negative acknowledgement the broker delivers the
//! whole pack again, and messages that were acknowledged are left out. While paused, the
//! acknowledgement is a call of its own.
//!
//! A lost connection loses nothing: the broker keeps the partition for half a minute. The pack is
//! still held, and can be acknowledged over the next connection. Only if the connection ends
//! between a call that acknowledges and its answer is it unknown whether the broker sent the next
//! pack. That pack is then requested again, and duplicates are left out.
//!
//! The flow control rules ([`flow`]) may ask for a wait after a pack. Then its acknowledgement is a
//! call of its own, too.
//!
//! An answer without messages is not the end of the partition: a 200 without messages has passed
//! over messages of other filters or partitions, and so has a 404 unless it says that the end is
//! reached. Messages have no offset of their own, only their pack has one.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::balance::PartitionLocation;
use crate::flow::{self, Flow, Pace};
use crate::{Code, Request, Response, pb};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::random::HashSet;

mod calls;
mod pack;

use pack::Held;
pub use pack::{Message, Pack};

#[cfg(test)]
mod tests;

/// Operation type that registers; both are one method.
pub const REGISTER: i32 = 31;
/// Operation type that unregisters.
pub const UNREGISTER: i32 = 32;

/// Start of a registration: the group's offset, or, without one, the beginning.
pub const FROM_FIRST: i32 = 0;
/// Start of a registration: the group's offset, or, without one, the end.
const FROM_LATEST: i32 = 1;
/// Start of a registration: the end.
const FROM_MAX: i32 = 2;
/// Status of an unregistration: the last pack was consumed.
const CONSUMED: i32 = 0;
/// Status of an unregistration: the last pack was not consumed.
pub const NOT_CONSUMED: i32 = 1;

/// Session key of a registration under which the group's offset means nothing to anyone else. A
/// convention of this client: the real broker notes session keys and does nothing with them; the
/// embedded one forgets the offset with the lease.
pub const NO_OFFSET: &str = "forebay: no offset";

/// Reads the memory cache with filters too. Without it a filtered consumer sees a message only once
/// it has been flushed, up to 20 s later.
pub const READ_MEMORY: i32 = 303;

/// Bytes of the index per message.
pub const INDEX_UNIT: i64 = 28;

/// Pause before a partition is tried again that another member holds or that was refused.
const RETRY: Duration = Duration::from_secs(1);
/// Wait after the first get from an empty partition; doubled up to the poll interval.
const FIRST_WAIT: Duration = Duration::from_millis(2);
/// Limit on remembered acknowledged messages that may be delivered again.
const MAX_DONE: usize = 1 << 16;
/// Longest wait that a broker may ask for.
const LONGEST_LIMIT: Duration = Duration::from_secs(60);

/// Position at which a consumer starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The group's offset; a new group starts at the beginning.
    First,
    /// The group's offset; a new group starts at the end.
    Latest,
    /// The end.
    Max,
    /// An offset of the index.
    Offset(i64),
}

/// Options of a [`Consumer`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the client at masters and brokers.
    pub client_id: String,
    /// The group.
    pub group: String,
    /// The partition.
    pub location: PartitionLocation,
    /// Message types to receive; empty receives all.
    pub filters: Arc<BTreeSet<String>>,
    /// Start position.
    pub start: Start,
    /// Delay after which a pack is delivered again when a message of it is negatively acknowledged.
    pub nack_delay: Duration,
    /// Longest wait between two gets from an empty partition.
    pub poll_interval: Duration,
}

/// Event of a partition.
#[derive(Clone, Debug)]
pub enum Event {
    /// The first registration was answered: the partition is held, held by another member, or was
    /// refused for now.
    Registered(Result<()>),
    /// It is registered again after the connection or the registration was lost.
    RegisteredAgain,
    /// A seek has ended.
    SeekDone(Result<()>),
    /// The visit token has expired.
    Refresh,
    /// The partition has been given back.
    Released,
    /// So many messages of a pack are damaged. They are not delivered, and count as acknowledged.
    Damaged(u64),
}

/// State of a partition. The module has the diagram.
#[derive(Debug)]
enum State {
    /// Not registered; the next registration is due at `at`.
    Out { at: Instant, attempt: Attempt },
    /// Registered without a pack. The next get is due at `at`, and says whether the last pack was
    /// consumed.
    Idle { at: Instant, consumed: bool },
    /// A pack is not wholly acknowledged.
    Holding(Held),
    /// A call has not been answered. `seek` was requested meanwhile.
    Calling { call: Call, seek: Option<Start> },
    /// Given back to the broker, or ended.
    Left,
}

/// A call to the broker.
#[derive(Clone, Copy, Debug)]
enum Call {
    Register(Attempt),
    /// Requests a pack; says whether the last one was consumed.
    Get {
        consumed: bool,
    },
    /// Acknowledges the last pack without requesting one.
    Commit,
    Unregister,
}

/// Consequences of a registration's outcome.
#[derive(Clone, Copy, Debug, Default)]
struct Attempt {
    /// No registration has been answered yet: [`Event::Registered`] is owed.
    first: bool,
    /// It carries out a seek: [`Event::SeekDone`] is owed.
    seek: bool,
    /// The last answer was that another member holds the partition.
    occupied: bool,
}

/// The user's wish for the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intent {
    /// Fetch packs.
    Read,
    /// Keep the partition and fetch nothing.
    Pause,
    /// Give the partition back.
    Leave,
}

/// State of a partition as reported to users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not registered yet.
    Registering,
    /// Another member holds it.
    Occupied,
    /// Held and read.
    Reading,
    /// Held and not read.
    Paused,
    /// Being given back to the broker.
    Leaving,
}

impl Phase {
    /// Name of the phase.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Registering => "registering",
            Self::Occupied => "occupied",
            Self::Reading => "reading",
            Self::Paused => "paused",
            Self::Leaving => "leaving",
        }
    }
}

/// A partition of a consumer.
#[derive(Debug)]
pub struct Consumer {
    options: Options,
    state: State,
    intent: Intent,
    /// Whether there is a connection to the broker.
    attached: bool,
    /// Whether it has been registered before.
    was_held: bool,
    /// Whether the broker has answered a get since the registration.
    served: bool,
    /// Start position of the next registration.
    start: Start,
    /// Messages of the pack that have not been taken.
    queue: VecDeque<Message>,
    queued_bytes: usize,
    /// Number of the pack that was dropped, whose acknowledgements may still come.
    dropped: Option<u64>,
    next_pack: u64,
    redelivered: u32,
    /// Acknowledged messages that may be delivered again.
    done: HashSet<i64>,
    /// Messages of the consumed pack that the next or open call acknowledges.
    acknowledging: Vec<i64>,
    /// Next wait when the partition is empty.
    wait: Duration,
    pace: Pace,
    /// Time before which the flow control rules allow no get.
    rest: Instant,
    priority: Option<i32>,
    /// Messages that were taken may be revoked.
    revoked: bool,
    /// Packs with a lower number are revoked, whatever was acknowledged of them: the position has
    /// moved, or the partition was given back.
    first_valid: u64,
    offset: Option<i64>,
    max_offset: Option<i64>,
    behind: Option<i64>,
    events: VecDeque<Event>,
}

impl Consumer {
    /// Creates a consumer that registers when it is attached.
    pub fn new(mut options: Options, now: Instant) -> Self {
        // By this reference the machine knows its messages.
        options.location.topic = Arc::from(&*options.location.topic);
        Self {
            start: options.start,
            pace: Pace::new(!options.filters.is_empty(), now),
            rest: now,
            options,
            state: State::Out { at: now, attempt: Attempt { first: true, ..Attempt::default() } },
            intent: Intent::Read,
            attached: false,
            was_held: false,
            served: false,
            queue: VecDeque::new(),
            queued_bytes: 0,
            dropped: None,
            next_pack: 0,
            redelivered: 0,
            done: HashSet::default(),
            acknowledging: Vec::new(),
            wait: FIRST_WAIT,
            priority: None,
            revoked: false,
            first_valid: 0,
            offset: None,
            max_offset: None,
            behind: None,
            events: VecDeque::new(),
        }
    }

    /// The partition.
    pub fn location(&self) -> &PartitionLocation {
        &self.options.location
    }

    /// The broker is connected. Returns false, and needs no connection, once it has ended.
    pub fn attach(&mut self) -> bool {
        self.attached = !matches!(self.state, State::Left);
        self.attached
    }

    /// The connection is gone. The open call has been answered by an error.
    pub fn detach(&mut self) {
        self.attached = false;
        if self.intent == Intent::Leave && !self.is_calling() {
            self.left();
        }
    }

    /// Sets the group's priority, as stated by the master.
    pub fn set_priority(&mut self, priority: i32) {
        self.priority = Some(priority);
    }

    /// Sets the flow control rules, and the time of day in milliseconds since 1970 by which they
    /// go.
    pub fn set_flow(&mut self, flow: Flow, now: Instant, wall_ms: i64) {
        self.pace.set(flow, now, wall_ms);
    }

    /// Priority sent to the broker, which tells it where to read messages from.
    pub fn priority(&self) -> Option<i32> {
        self.priority.or((!self.options.filters.is_empty()).then_some(READ_MEMORY))
    }

    /// Whether the broker counts the partition as held.
    pub fn is_held(&self) -> bool {
        !matches!(
            self.state,
            State::Out { .. } | State::Calling { call: Call::Register(_), .. } | State::Left
        )
    }

    /// State as reported to users.
    pub fn phase(&self) -> Phase {
        match (&self.state, self.intent) {
            (_, Intent::Leave) => Phase::Leaving,
            (State::Out { attempt, .. } | State::Calling { call: Call::Register(attempt), .. }, _) => {
                if attempt.occupied {
                    Phase::Occupied
                } else {
                    Phase::Registering
                }
            }
            (_, Intent::Pause) => Phase::Paused,
            (_, Intent::Read) => Phase::Reading,
        }
    }

    /// Offset of the last pack, or of the next one once that is known.
    pub fn offset(&self) -> Option<i64> {
        self.offset
    }

    /// End of the store's index in the broker's last answer.
    pub fn max_offset(&self) -> Option<i64> {
        self.max_offset
    }

    /// Bytes behind the end in the broker's last answer.
    pub fn behind(&self) -> Option<i64> {
        self.behind
    }

    /// Drops the messages that wait, and those that were taken and that the application does not
    /// have.
    fn clear_queue(&mut self) {
        self.revoked = true;
        self.queue.clear();
        self.queued_bytes = 0;
    }

    /// Whether [`Self::poll_request`] may have a call that is due.
    pub fn wants_transmit(&self) -> bool {
        match self.state {
            State::Out { .. } | State::Idle { .. } => true,
            State::Holding(_) => self.intent == Intent::Leave,
            State::Calling { .. } | State::Left => false,
        }
    }

    fn is_calling(&self) -> bool {
        matches!(self.state, State::Calling { .. })
    }

    /// Goes on to the next pack when all of this one is acknowledged.
    fn settle(&mut self, now: Instant) {
        if matches!(&self.state, State::Holding(held) if held.is_consumed())
            && let State::Holding(held) =
                std::mem::replace(&mut self.state, State::Idle { at: now.max(self.rest), consumed: true })
        {
            self.acknowledging = held.into_ids();
            self.redelivered = 0;
        }
    }

    /// Drops a pack that will be delivered again, and remembers which of its messages were
    /// acknowledged.
    fn drop_pack(&mut self) {
        if let State::Holding(held) = &self.state {
            self.dropped = Some(held.pack().number);
            self.redelivered = held.pack().redelivered.saturating_add(1);
            let acked: Vec<i64> = held.acked().collect();
            self.remember(acked);
        }
        self.clear_queue();
    }

    fn remember(&mut self, ids: Vec<i64>) {
        if self.done.len() + ids.len() > MAX_DONE {
            self.done.clear();
        }
        self.done.extend(ids);
    }

    /// The broker does not count the partition as held any more.
    fn out(&mut self, now: Instant, code: Option<Code>) {
        self.drop_pack();
        let acknowledging = std::mem::take(&mut self.acknowledging);
        self.remember(acknowledging);
        if code == Some(Code::CertificateFailure) {
            self.events.push_back(Event::Refresh);
        }
        // A broker that does so at once again would be asked without end.
        let at = if std::mem::take(&mut self.served) { now } else { now + RETRY };
        self.state = State::Out { at, attempt: Attempt::default() };
    }

    /// A broker answered a heartbeat with `code`: it does not count the partition as held any more.
    pub fn lost(&mut self, now: Instant, code: Option<Code>) {
        match self.state {
            // The open call, or the registration that is due, tells how it stands.
            State::Out { .. } | State::Calling { .. } | State::Left => {}
            State::Idle { .. } | State::Holding(_) => self.out(now, code),
        }
    }

    /// Moves up to `max` messages to `out` and returns their number. Until the application has
    /// them, [`Self::take_revoked`] says whether to drop some of them.
    pub fn take(&mut self, max: usize, out: &mut impl Extend<Message>) -> usize {
        let taken = max.min(self.queue.len());
        self.queued_bytes -= self.queue.range(..taken).map(|message| message.payload.len()).sum::<usize>();
        out.extend(self.queue.drain(..taken));
        taken
    }

    /// Whether deliveries were revoked since the last call: the owner drops messages for which
    /// [`Self::is_revoked`] is true.
    pub fn take_revoked(&mut self) -> bool {
        std::mem::take(&mut self.revoked)
    }

    /// Whether a message came from this partition and its delivery is revoked: the message comes
    /// again, to this member or another, or lies before the new position, or was acknowledged by an
    /// earlier delivery. One that is `acknowledged` itself does not come again.
    pub fn is_revoked(&self, message: &Message, acknowledged: bool) -> bool {
        let is_held = match &self.state {
            State::Holding(held) => held.is_of(message) && !held.is_acked(message),
            _ => false,
        };
        // The packs of each partition are numbered from 0.
        let is_moved = || message.pack.number < self.first_valid;
        self.has_delivered(message) && (!acknowledged && !is_held || is_moved())
    }

    /// Whether a message came from this partition, since this machine was made.
    pub fn has_delivered(&self, message: &Message) -> bool {
        Arc::ptr_eq(&message.pack.location.topic, &self.options.location.topic)
    }

    /// Revokes everything that was taken.
    fn revoke_all(&mut self) {
        self.first_valid = self.next_pack;
        self.clear_queue();
    }

    /// Number of messages that [`Self::take`] would return.
    pub fn available(&self) -> usize {
        self.queue.len()
    }

    /// Bytes of the messages that [`Self::take`] would return.
    pub fn available_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Acknowledges a message.
    pub fn ack(&mut self, now: Instant, message: &Message) {
        match &mut self.state {
            State::Holding(held) => {
                held.ack(message);
                if !held.is_of(message) {
                    // An earlier delivery of a message that waits to be delivered again.
                    let (queue, bytes) = (&mut self.queue, &mut self.queued_bytes);
                    queue.retain(|queued| !held.is_acked(queued));
                    *bytes = queue.iter().map(|queued| queued.payload.len()).sum();
                    self.revoked = true;
                }
            }
            _ => {
                if self.has_delivered(message) && self.dropped == Some(message.pack.number) {
                    self.remember(vec![message.message_id]);
                }
            }
        }
        self.settle(now);
    }

    /// Acknowledges a message and all before it in its partition.
    pub fn ack_cumulative(&mut self, now: Instant, message: &Message) {
        match &mut self.state {
            State::Holding(held) if held.is_of(message) => held.ack_up_to(message),
            _ => return self.ack(now, message),
        }
        self.settle(now);
    }

    /// Negatively acknowledges a message: those of its pack that are not acknowledged are delivered
    /// again.
    pub fn nack(&mut self, now: Instant, message: &Message, delay: Option<Duration>) {
        if matches!(&self.state, State::Holding(held) if held.is_of(message)) {
            self.rewind(now + delay.unwrap_or(self.options.nack_delay));
        }
    }

    /// Has everything delivered again that is not acknowledged.
    pub fn redeliver(&mut self, now: Instant) {
        if matches!(self.state, State::Holding(_)) {
            self.rewind(now);
        }
    }

    fn rewind(&mut self, at: Instant) {
        self.drop_pack();
        self.state = State::Idle { at: at.max(self.rest), consumed: false };
    }

    /// Stops fetching, or resumes. The partition stays held, and fetched messages are still
    /// delivered.
    pub fn set_paused(&mut self, paused: bool) {
        if self.intent != Intent::Leave {
            self.intent = if paused { Intent::Pause } else { Intent::Read };
        }
    }

    /// Moves the group: [`Event::SeekDone`] reports when the broker has taken note.
    pub fn seek(&mut self, now: Instant, to: Start) {
        self.revoke_all();
        match &mut self.state {
            State::Left => self.refuse_seek(true),
            _ if self.intent == Intent::Leave => self.refuse_seek(true),
            State::Calling { seek, .. } => *seek = Some(to),
            _ => self.begin_seek(now, to),
        }
    }

    fn begin_seek(&mut self, now: Instant, to: Start) {
        self.start = match to {
            Start::First => Start::Offset(0),
            Start::Latest => Start::Max,
            to => to,
        };
        self.revoke_all();
        self.done.clear();
        self.acknowledging.clear();
        self.dropped = None;
        self.redelivered = 0;
        self.behind = None;
        self.rest = now;
        let attempt = match self.state {
            State::Out { attempt, .. } => attempt,
            _ => Attempt::default(),
        };
        self.state = State::Out { at: now, attempt: Attempt { seek: true, ..attempt } };
    }

    /// Fails a seek that will not be carried out, if there is one.
    fn refuse_seek(&mut self, sought: bool) {
        if sought {
            let error = Error::new(ErrorKind::Closed, "the partition was given back");
            self.events.push_back(Event::SeekDone(Err(error)));
        }
    }

    /// Gives the partition back: [`Event::Released`] reports when that is done.
    pub fn leave(&mut self) {
        self.intent = Intent::Leave;
        self.revoke_all();
        if !self.attached && !self.is_calling() {
            self.left();
        }
    }

    /// Ends without telling the broker.
    pub fn end(&mut self) {
        self.revoke_all();
        self.state = State::Left;
    }

    fn left(&mut self) {
        let sought = matches!(self.state, State::Out { attempt: Attempt { seek: true, .. }, .. });
        self.refuse_seek(sought);
        self.state = State::Left;
        self.events.push_back(Event::Released);
    }

    /// Time at which [`Self::poll_request`] has a call again, if messages may be fetched.
    pub fn poll_timeout(&self, may_fetch: bool) -> Option<Instant> {
        match self.state {
            _ if !self.attached => None,
            State::Out { at, .. } => Some(at),
            State::Idle { at, .. } if may_fetch && self.intent != Intent::Pause => Some(at),
            _ => None,
        }
    }

    /// The oldest event that has not been polled.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// The heartbeat to a broker for a group's partitions there.
pub fn heartbeat(
    client_id: &str,
    group: &str,
    partitions: Vec<String>,
    priority: Option<i32>,
    visit: pb::AuthorizedInfo,
) -> Request {
    Request::PartitionHeartbeat(Box::new(pb::HeartBeatRequestC2b {
        client_id: client_id.to_owned(),
        group_name: group.to_owned(),
        read_status: FROM_FIRST,
        partition_info: partitions,
        ssd_store_id: None,
        qry_priority_id: priority,
        auth_info: Some(visit),
    }))
}
