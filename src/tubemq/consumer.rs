//! One partition of a consumer, without its connection.
//!
//! ```text
//!              register: 200              get: 200            all acknowledged
//!   Out ──────────────────────► Idle ───────────────► Holding ─────────────────► Idle (consumed)
//!    ▲  410: later               ▲ │ 404, 452, empty: later  │ nack: later, rewound
//!    │                           └─┘◄────────────────────────┘
//!    │  401, 411, 412, 415: the broker forgot us; a seek
//!    └──────────────────────────── any
//!   any ── leave ──► Leaving ──► Left
//! ```
//! **Acknowledgement** is by message here and by pack at the broker: what one call gets is one pack, and the next call
//! says whether the last pack was consumed. So one pack at a time is fetched, as soon as the one before is consumed; a
//! negative acknowledgement has the broker give the whole pack again, of which what was acknowledged is left out.
//! While paused the acknowledgement is a call of its own.
//!
//! A connection that ends takes nothing with it: the broker keeps the partition for half a minute. The pack is still
//! held, and can be acknowledged over the next connection. Only when the end came between a call that acknowledged
//! and its answer is not known whether the next pack was given: then it is asked for again, and what comes twice is
//! left out.
//!
//! The rules of flow control ([`flow`]) may want a wait after a pack. Then its acknowledgement is a call of its own too.
//!
//! An answer without messages is no end: 200 without any has passed over what others' filters or partitions own, and
//! so has 404 unless it says that the end is reached. Messages have no offset of their own, only their pack has.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result};
use crate::tubemq::balance::Place;
use crate::tubemq::flow::{self, Flow, Pace};
use crate::tubemq::{Code, Request, Response, pb};

mod pack;

use pack::Held;
pub use pack::{Message, Pack};

#[cfg(test)]
mod tests;

/// Register and unregister are one method.
const REGISTER: i32 = 31;
const UNREGISTER: i32 = 32;

/// Where a registration begins: at the group's offset, or, if there is none, at the beginning.
const FROM_FIRST: i32 = 0;
/// ... or, if there is none, at the end.
const FROM_LATEST: i32 = 1;
/// At the end in any case.
const FROM_MAX: i32 = 2;
/// Of a call that leaves: the last pack was consumed, or was not.
const CONSUMED: i32 = 0;
const NOT_CONSUMED: i32 = 1;

/// Reads the memory cache with filters too. Without it a filtered consumer sees a message when it has been flushed,
/// up to 20 s later.
const READ_MEMORY: i32 = 303;

/// Bytes of the index for each message.
pub const INDEX_UNIT: i64 = 28;

/// Until a partition is tried again that another member holds, or that could not be had.
const RETRY: Duration = Duration::from_secs(1);
/// Wait after the first look at an empty partition; doubled up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(2);
/// Acknowledged messages remembered that may come again.
const MAX_DONE: usize = 1 << 16;
/// Longest wait that a broker may ask for.
const LONGEST_LIMIT: Duration = Duration::from_secs(60);

/// Where a consumer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Where the group is; a new group at the beginning.
    First,
    /// Where the group is; a new group at the end.
    Latest,
    /// At the end.
    Max,
    /// At an offset of the index.
    Offset(i64),
}

/// What a consumer of a partition is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the client at master and brokers.
    pub client_id: String,
    /// The group.
    pub group: String,
    /// The partition.
    pub place: Place,
    /// Message types; none: all.
    pub filters: Arc<BTreeSet<String>>,
    /// Where to begin.
    pub start: Start,
    /// When a pack comes again of which a message was not acknowledged.
    pub nack_delay: Duration,
    /// Longest wait before a look at an empty partition.
    pub poll_interval: Duration,
    /// Messages are acknowledged when they are taken.
    pub auto_ack: bool,
}

/// What a partition has to tell.
#[derive(Clone, Debug)]
pub enum Event {
    /// It was tried for the first time since it was wanted: taken, held by another, or refused for now.
    Tried(Result<()>),
    /// A seek has ended.
    Sought(Result<()>),
    /// The visit token is old.
    Refresh,
    /// It has been left.
    Left,
}

#[derive(Debug)]
enum State {
    /// Not registered; not before this time.
    Out(Instant),
    Joining,
    /// The next call is due at this time, and says whether the last pack was consumed.
    Idle(Instant, bool),
    Asking(bool),
    Holding(Held),
    Committing,
    Leaving,
    Left,
}

/// A word for the state, as users are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not held yet.
    Registering,
    /// Another member holds it.
    Occupied,
    /// Held and read.
    Reading,
    /// Held and left alone.
    Paused,
    /// Being given back.
    Leaving,
}

impl Phase {
    /// The word.
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
    attached: bool,
    /// What to begin the next registration with.
    start: Start,
    /// The first registration has been answered.
    tried: bool,
    occupied: bool,
    paused: bool,
    leaving: bool,
    seeking: Option<Start>,
    /// The last registration is the one of a seek.
    seek_open: bool,
    queue: VecDeque<Message>,
    queued_bytes: usize,
    /// Number of the pack that was given up, whose acknowledgements may still come.
    dropped: Option<u64>,
    next_pack: u64,
    redelivered: u32,
    /// Acknowledged messages that may be given again.
    done: HashSet<i64>,
    /// Those of the pack that the open call acknowledges.
    acknowledging: Vec<i64>,
    wait: Duration,
    pace: Pace,
    /// Before this time the rules of flow control want no call for messages.
    rest: Instant,
    priority: Option<i32>,
    offset: Option<i64>,
    max_offset: Option<i64>,
    behind: Option<i64>,
    events: VecDeque<Event>,
}

impl Consumer {
    /// A consumer that registers when it is attached.
    pub fn new(options: Options, now: Instant) -> Self {
        Self {
            start: options.start,
            pace: Pace::new(!options.filters.is_empty(), now),
            rest: now,
            options,
            state: State::Out(now),
            attached: false,
            tried: false,
            occupied: false,
            paused: false,
            leaving: false,
            seeking: None,
            seek_open: false,
            queue: VecDeque::new(),
            queued_bytes: 0,
            dropped: None,
            next_pack: 0,
            redelivered: 0,
            done: HashSet::new(),
            acknowledging: Vec::new(),
            wait: FIRST_WAIT,
            priority: None,
            offset: None,
            max_offset: None,
            behind: None,
            events: VecDeque::new(),
        }
    }

    /// The partition.
    pub fn place(&self) -> &Place {
        &self.options.place
    }

    /// A connection to the broker is there.
    pub fn attach(&mut self) {
        self.attached = true;
    }

    /// The connection is gone. The call that was open has been answered by an error.
    pub fn detach(&mut self) {
        self.attached = false;
        if self.leaving && !self.is_asking() {
            self.left();
        }
    }

    /// Of the group, as the master says.
    pub fn set_priority(&mut self, priority: i32) {
        self.priority = Some(priority);
    }

    /// The rules of flow control that hold from now on, and what time it is, in milliseconds since 1970.
    pub fn set_flow(&mut self, flow: Flow, now: Instant, wall_ms: i64) {
        self.pace.set(flow, now, wall_ms);
    }

    /// What is sent to the broker about where messages are read from.
    pub fn priority(&self) -> Option<i32> {
        self.priority.or((!self.options.filters.is_empty()).then_some(READ_MEMORY))
    }

    /// Whether the broker counts it as held.
    pub fn is_held(&self) -> bool {
        !matches!(self.state, State::Out(_) | State::Joining | State::Left)
    }

    /// Where it stands, in a word.
    pub fn phase(&self) -> Phase {
        match &self.state {
            _ if self.leaving => Phase::Leaving,
            State::Out(_) | State::Joining if self.occupied => Phase::Occupied,
            State::Out(_) | State::Joining => Phase::Registering,
            _ if self.paused => Phase::Paused,
            _ => Phase::Reading,
        }
    }

    /// Where the last pack began, or where the next begins once that is known.
    pub fn offset(&self) -> Option<i64> {
        self.offset
    }

    /// End of the index of the store, when it was last told.
    pub fn max_offset(&self) -> Option<i64> {
        self.max_offset
    }

    /// Bytes behind the end, when it was last told.
    pub fn behind(&self) -> Option<i64> {
        self.behind
    }

    fn clear_queue(&mut self) {
        self.queue.clear();
        self.queued_bytes = 0;
    }

    /// Whether the driver should look at it: a call may be due.
    pub fn wants_turn(&self) -> bool {
        !matches!(self.state, State::Holding(_) | State::Left) && !self.is_asking() || self.leaving
    }

    fn is_asking(&self) -> bool {
        matches!(self.state, State::Joining | State::Asking(_) | State::Committing | State::Leaving)
    }

    /// The call that is due, if none is open. Messages are asked for only if `may_fetch`; `visit` is what
    /// proves to brokers who asks.
    pub fn poll_request(
        &mut self,
        now: Instant,
        may_fetch: bool,
        visit: &pb::AuthorizedInfo,
    ) -> Option<Request> {
        if !self.attached || self.is_asking() {
            return None;
        }
        if self.leaving {
            let consumed = matches!(self.state, State::Idle(_, true));
            if !self.is_held() {
                self.left();
                return None;
            }
            self.state = State::Leaving;
            let status = if consumed { CONSUMED } else { NOT_CONSUMED };
            return Some(self.register(UNREGISTER, status, None, visit));
        }
        match self.state {
            State::Out(at) if at <= now => {
                self.state = State::Joining;
                let (status, offset) = match self.start {
                    Start::First => (FROM_FIRST, None),
                    Start::Latest => (FROM_LATEST, None),
                    Start::Max => (FROM_MAX, None),
                    Start::Offset(offset) => (FROM_FIRST, Some(offset)),
                };
                self.seek_open = self.seeking.take().is_some();
                Some(self.register(REGISTER, status, offset, visit))
            }
            // Who waits long before the next call does not make the acknowledgement wait.
            State::Idle(_, true) if self.paused || self.rest > now => {
                self.state = State::Committing;
                Some(Request::CommitOffset(pb::CommitOffsetRequestC2b {
                    client_id: self.options.client_id.clone(),
                    topic_name: self.options.place.topic.to_string(),
                    partition_id: self.options.place.partition.id as i32,
                    group_name: self.options.group.clone(),
                    last_pack_consumed: Some(true),
                }))
            }
            State::Idle(at, consumed) if at <= now && may_fetch && !self.paused => {
                self.state = State::Asking(consumed);
                Some(Request::GetMessages(pb::GetMessageRequestC2b {
                    client_id: self.options.client_id.clone(),
                    partition_id: self.options.place.partition.id as i32,
                    group_name: self.options.group.clone(),
                    topic_name: self.options.place.topic.to_string(),
                    last_pack_consumed: Some(consumed),
                    manual_commit_offset: Some(false),
                    esc_flow_ctrl: Some(self.pace.is_limited(now)),
                }))
            }
            _ => None,
        }
    }

    fn register(&self, op: i32, status: i32, offset: Option<i64>, visit: &pb::AuthorizedInfo) -> Request {
        Request::PartitionRegister(Box::new(pb::RegisterRequestC2b {
            op_type: op,
            client_id: self.options.client_id.clone(),
            group_name: self.options.group.clone(),
            topic_name: self.options.place.topic.to_string(),
            partition_id: self.options.place.partition.id as i32,
            read_status: status,
            filter_cond_str: self.options.filters.iter().cloned().collect(),
            curr_offset: offset,
            qry_priority_id: self.priority().filter(|_| op == REGISTER),
            auth_info: Some(visit.clone()),
            ..Default::default()
        }))
    }

    /// The answer to what [`Self::poll_request`] gave.
    pub fn handle_answer(&mut self, now: Instant, result: Result<Response>) {
        match std::mem::replace(&mut self.state, State::Left) {
            State::Joining => self.joined(now, result),
            State::Asking(consumed) => self.got(now, consumed, result),
            State::Committing => {
                self.state = State::Idle(now.max(self.rest), result.is_err());
                if let Ok(Response::CommitOffset(response)) = result {
                    if response.success {
                        self.offset = response.curr_offset.or(self.offset);
                        self.max_offset = response.max_offset.or(self.max_offset);
                    } else {
                        self.out(now, Code::from_number(response.err_code));
                    }
                }
            }
            State::Leaving => self.left(),
            // Nothing was asked.
            state => self.state = state,
        }
        if self.leaving && !self.attached {
            self.left();
        } else if self.seeking.is_some() && !self.is_asking() && !matches!(self.state, State::Left) {
            self.begin_seek(now);
        }
    }

    fn joined(&mut self, now: Instant, result: Result<Response>) {
        let sought = std::mem::take(&mut self.seek_open);
        let outcome = match result {
            Ok(Response::PartitionRegister(response)) if response.success => {
                self.offset = response.curr_offset.filter(|offset| *offset >= 0).or(self.offset);
                self.max_offset = response.max_offset.filter(|offset| *offset >= 0).or(self.max_offset);
                // From here on the group's own offset is what counts.
                self.start = Start::First;
                self.occupied = false;
                self.wait = FIRST_WAIT;
                self.state = State::Idle(now, false);
                Ok(())
            }
            Ok(response) => {
                let code = Code::from_number(response.code().0);
                self.occupied = code == Some(Code::PartitionOccupied);
                if code == Some(Code::CertificateFailure) {
                    self.events.push_back(Event::Refresh);
                }
                self.state = State::Out(now + RETRY);
                response.outcome()
            }
            Err(error) if error.kind() == ErrorKind::Disconnected => {
                // Asked again over the next connection; nobody is told yet.
                self.state = State::Out(now);
                if sought {
                    self.seeking = Some(self.start);
                }
                return;
            }
            Err(error) => {
                self.state = State::Out(now + RETRY);
                Err(error)
            }
        };
        if sought {
            self.events.push_back(Event::Sought(outcome.clone()));
        }
        if !self.tried {
            self.tried = true;
            self.events.push_back(Event::Tried(outcome));
        }
    }

    fn got(&mut self, now: Instant, consumed: bool, result: Result<Response>) {
        let acknowledged = std::mem::take(&mut self.acknowledging);
        let response = match result {
            Ok(Response::GetMessages(response)) => response,
            Ok(_) | Err(_) => {
                // Perhaps the broker has given the next pack: that one must not be acknowledged unseen.
                self.remember(acknowledged);
                let later = if self.attached { now + self.longer() } else { now };
                self.state = State::Idle(later, false);
                return;
            }
        };
        if response.success {
            self.behind = response.curr_data_dlt.filter(|bytes| *bytes >= 0).or(self.behind);
            self.max_offset = response.max_offset.filter(|offset| *offset >= 0).or(self.max_offset);
            self.offset = response.curr_offset.filter(|offset| *offset >= 0).or(self.offset);
            if response.messages.is_empty() {
                self.take_pace(now, &response, 0);
                self.state = State::Idle(self.rest, false);
                return;
            }
            self.wait = FIRST_WAIT;
            return self.hold(now, response);
        }
        let code = Code::from_number(response.err_code);
        let again = match code {
            Some(Code::NotFound) => {
                let at_end = response.err_msg().contains("reached maxOffset");
                if at_end {
                    self.offset = self.max_offset.or(self.offset);
                    self.behind = Some(0);
                }
                let own = if at_end { self.longer() } else { FIRST_WAIT };
                let wait = own.max(self.pace.wait(now, flow::Pack::default()));
                // There is no pack to be acknowledged any more.
                self.state = State::Idle(now + wait, false);
                return;
            }
            Some(Code::ConsumeSpeedLimit) => {
                let millis = u64::try_from(response.min_limit_time()).unwrap_or_default();
                Duration::from_millis(millis).clamp(FIRST_WAIT, LONGEST_LIMIT)
            }
            Some(Code::Unauthorized | Code::NoNode | Code::DuplicatePartition | Code::CertificateFailure) => {
                self.acknowledging = acknowledged;
                return self.out(now, code);
            }
            Some(Code::Forbidden) => Duration::from_secs(2),
            Some(Code::Moved) => Duration::from_millis(200),
            _ => Duration::from_millis(300),
        };
        // Without messages nothing can be lost by saying it once more.
        self.acknowledging = acknowledged;
        self.state = State::Idle(now + again, consumed);
    }

    /// How long to wait now, and longer the next time.
    fn longer(&mut self) -> Duration {
        let wait = self.wait.min(self.options.poll_interval);
        self.wait = (self.wait * 2).min(self.options.poll_interval);
        wait
    }

    /// What the rules make of an answer, of which so many bytes are for this consumer.
    fn take_pace(&mut self, now: Instant, response: &pb::GetMessageResponseB2c, bytes: usize) {
        let (free, slow) = (response.esc_flow_ctrl(), response.require_slow());
        let pack = flow::Pack { found: true, bytes, lag: response.curr_data_dlt, free, slow };
        self.rest = now + self.pace.wait(now, pack);
    }

    fn hold(&mut self, now: Instant, mut response: pb::GetMessageResponseB2c) {
        let pack = Pack {
            place: self.options.place.clone(),
            offset: self.offset.unwrap_or(-1),
            redelivered: self.redelivered,
            number: self.next_pack,
        };
        self.next_pack += 1;
        self.dropped = None;
        debug_assert!(self.queue.is_empty(), "one pack at a time");
        let (filters, done, queue) = (&self.options.filters, &mut self.done, &mut self.queue);
        let messages = std::mem::take(&mut response.messages);
        let held = Held::new(pack, messages, filters, done, queue);
        self.queued_bytes = self.queue.iter().map(|message| message.payload.len()).sum();
        self.take_pace(now, &response, self.queued_bytes);
        self.state = State::Holding(held);
        self.settle(now);
    }

    /// Goes on when all of the pack is acknowledged.
    fn settle(&mut self, now: Instant) {
        if matches!(&self.state, State::Holding(held) if held.is_consumed())
            && let State::Holding(held) =
                std::mem::replace(&mut self.state, State::Idle(now.max(self.rest), true))
        {
            self.acknowledging = held.into_ids();
            self.redelivered = 0;
        }
    }

    /// Forgets a pack that will be given again, but for what of it was acknowledged.
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

    /// The broker does not count it as held any more.
    fn out(&mut self, now: Instant, code: Option<Code>) {
        self.drop_pack();
        let acknowledging = std::mem::take(&mut self.acknowledging);
        self.remember(acknowledging);
        if code == Some(Code::CertificateFailure) {
            self.events.push_back(Event::Refresh);
        }
        self.state = State::Out(now);
    }

    /// The broker said so in answer to a heartbeat.
    pub fn lost(&mut self, now: Instant, code: Option<Code>) {
        match self.state {
            // A seek or the first registration is under way, and says what is the case.
            State::Out(_) | State::Joining | State::Leaving | State::Left => {}
            State::Asking(_) | State::Committing => {}
            State::Idle(..) | State::Holding(_) => self.out(now, code),
        }
    }

    /// Moves up to `max` messages to `out` and gives their number.
    pub fn take<M: From<Message>>(&mut self, now: Instant, max: usize, out: &mut Vec<M>) -> usize {
        let taken = max.min(self.queue.len());
        for _ in 0..taken {
            let Some(message) = self.queue.pop_front() else { break };
            self.queued_bytes -= message.payload.len();
            if self.options.auto_ack {
                self.ack(now, &message);
            }
            out.push(message.into());
        }
        taken
    }

    /// Messages that [`Self::take`] would give.
    pub fn available(&self) -> usize {
        self.queue.len()
    }

    /// Bytes of them.
    pub fn available_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// A message is done with.
    pub fn ack(&mut self, now: Instant, message: &Message) {
        match &mut self.state {
            State::Holding(held) => held.ack(message),
            _ if self.dropped == Some(message.pack.number) => self.remember(vec![message.message_id]),
            _ => {}
        }
        self.settle(now);
    }

    /// A message and all of its partition before it are done with.
    pub fn ack_cumulative(&mut self, now: Instant, message: &Message) {
        match &mut self.state {
            State::Holding(held) => held.ack_cumulative(message),
            _ => return self.ack(now, message),
        }
        self.settle(now);
    }

    /// A message is wanted again, and with it what of its pack has not been acknowledged.
    pub fn nack(&mut self, now: Instant, message: &Message, delay: Option<Duration>) {
        if matches!(&self.state, State::Holding(held) if held.is_of(message)) {
            self.rewind(now + delay.unwrap_or(self.options.nack_delay));
        }
    }

    /// Everything that has not been acknowledged is wanted again.
    pub fn redeliver(&mut self, now: Instant) {
        if matches!(self.state, State::Holding(_)) {
            self.rewind(now);
        }
    }

    fn rewind(&mut self, at: Instant) {
        self.drop_pack();
        self.state = State::Idle(at.max(self.rest), false);
    }

    /// Leaves it alone, or goes on. It stays held, and what has been fetched is still given.
    pub fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Goes to another place: [`Event::Sought`] tells when it is there.
    pub fn seek(&mut self, now: Instant, to: Start) {
        self.seeking = Some(to);
        self.clear_queue();
        if !self.is_asking() {
            self.begin_seek(now);
        }
    }

    fn begin_seek(&mut self, now: Instant) {
        let Some(to) = self.seeking else { return };
        self.start = match to {
            Start::First => Start::Offset(0),
            Start::Latest => Start::Max,
            to => to,
        };
        self.clear_queue();
        self.done.clear();
        self.acknowledging.clear();
        self.dropped = None;
        self.redelivered = 0;
        self.behind = None;
        self.rest = now;
        self.state = State::Out(now);
    }

    /// Gives the partition back: [`Event::Left`] tells when that is done.
    pub fn leave(&mut self) {
        self.leaving = true;
        self.clear_queue();
        if !self.attached && !self.is_asking() {
            self.left();
        }
    }

    /// Gives nothing any more; the broker is not told.
    pub fn end(&mut self) {
        self.clear_queue();
        self.state = State::Left;
    }

    fn left(&mut self) {
        if self.seeking.take().is_some() || std::mem::take(&mut self.seek_open) {
            let error = Error::new(ErrorKind::Closed, "the partition was given back");
            self.events.push_back(Event::Sought(Err(error)));
        }
        self.state = State::Left;
        self.events.push_back(Event::Left);
    }

    /// When [`Self::poll_request`] has something again, if messages may be fetched.
    pub fn poll_timeout(&self, may_fetch: bool) -> Option<Instant> {
        match self.state {
            _ if !self.attached => None,
            State::Out(at) => Some(at),
            State::Idle(at, _) if may_fetch && !self.paused => Some(at),
            _ => None,
        }
    }

    /// The next thing to tell, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// What a heartbeat to a broker says of a group's partitions there.
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
