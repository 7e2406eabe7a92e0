//! A producer of one topic, without its connections: what was pushed, in order, until a broker has it.
//!
//! ```text
//!         push             turn of its broker's connection          success
//!   ──────────────► Queued ──────────────────────────────► Sent ─────────────► Done
//!                     ▲                                      │ refused for good, or its time is over
//!                     └──────────────────────────────────────┴───────────────► Done
//!                       the connection ended: same partition
//!                       refused for now (419, 503, 403): another partition, if it has no key
//! ```
//! Each message is a call of its own, and calls are pipelined: a connection keeps their order, so messages of one
//! partition keep theirs. A message with a key stays in its partition; while the broker refuses one for now, those
//! behind it that have not been sent wait for it. What had been sent behind it stays ahead of it.
//!
//! Whether a message whose connection ended got through is not known; it is sent again, so that it is stored at
//! least once. Outcomes come in the order of the pushes: an answer that overtakes others waits for them.
//!
//! Poll order of the owner: [`Producer::handle_timeout`], [`Producer::poll_send`] for each broker that is attached,
//! [`Producer::poll_event`], [`Producer::poll_timeout`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crate::checksum::crc32;
use crate::error::{Error, ErrorKind, Result};
use crate::machine::earliest;
use crate::tubemq::message::Packed;
use crate::tubemq::topic::Partition;
use crate::tubemq::{Code, Request, Response, UNDEFINED, pb};

#[cfg(test)]
mod tests;

/// Refusals of one message before it is given up; those that ask to come later do not count.
const MAX_REFUSALS: u32 = 5;
/// Pause of a partition after its first refusal; doubled up to [`LONGEST_PAUSE`] while they go on.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A broker that stopped writing is left alone for so long.
const BROKER_PAUSE: Duration = Duration::from_secs(5);

/// What a producer is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the client at master and brokers.
    pub client_id: String,
    /// Where messages go.
    pub topic: String,
    /// This side's IPv4 address as a number, for the broker's log.
    pub address: i32,
    /// Messages without an answer; as many again may be parked.
    pub max_pending: usize,
    /// From push to answer; `None` waits for ever.
    pub send_timeout: Option<Duration>,
    /// Where round robin begins.
    pub seed: u32,
}

/// Where a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// Number of the broker.
    pub broker: u32,
    /// Number of the partition at the broker.
    pub partition: u32,
    /// In the index of the partition's store, which all its partitions share: 28 for each message.
    pub offset: i64,
    /// When the broker took it, in milliseconds since 1970; -1 when that is not known.
    pub time: i64,
    /// The broker's number of the message, which another broker may give as well.
    pub message_id: i64,
}

/// What the producer has to tell.
#[derive(Clone, Debug)]
pub enum Event {
    /// The oldest message without an outcome is stored.
    Stored {
        /// Where.
        position: Position,
        /// What it was charged.
        bytes: usize,
    },
    /// The oldest message without an outcome has failed.
    Failed {
        /// Why.
        error: Error,
        /// What it was charged.
        bytes: usize,
    },
    /// The brokers no longer do what the metadata say: they are to be asked for again.
    Refresh,
}

#[derive(Debug)]
enum State {
    Queued,
    Sent,
    Done(Result<Position>),
}

#[derive(Debug)]
struct Entry {
    message: Packed,
    /// Charged to the budget.
    bytes: usize,
    /// Hash of its key.
    key: Option<u32>,
    partition: Partition,
    pushed: Instant,
    refusals: u32,
    state: State,
}

/// The connection to a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Down,
    Wanted,
    Up,
}

#[derive(Debug)]
struct Lane {
    link: Link,
    /// Messages to be sent, by number.
    queue: BTreeSet<u64>,
    /// Takes nothing before this time.
    pause: Option<Instant>,
}

/// A partition that refused, and until when it is left alone.
#[derive(Clone, Copy, Debug)]
struct Hold {
    /// Nothing when it may be tried again; the pause stays until it takes something.
    until: Option<Instant>,
    pause: Duration,
}

impl Hold {
    fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }
}

/// A producer of one topic.
#[derive(Debug)]
pub struct Producer {
    options: Options,
    /// In an order that goes round the brokers.
    partitions: Vec<Partition>,
    lanes: BTreeMap<u32, Lane>,
    holds: BTreeMap<Partition, Hold>,
    max_message_size: usize,
    /// Every message without an outcome told; the first has number `first`.
    entries: VecDeque<Entry>,
    first: u64,
    sent: usize,
    next: u32,
    events: VecDeque<Event>,
    /// Brokers to which connections are wanted.
    wants: Vec<u32>,
}

impl Producer {
    /// A producer that knows no partition yet.
    pub fn new(options: Options) -> Self {
        Self {
            next: options.seed,
            options,
            partitions: Vec::new(),
            lanes: BTreeMap::new(),
            holds: BTreeMap::new(),
            max_message_size: usize::MAX,
            entries: VecDeque::new(),
            first: 0,
            sent: 0,
            events: VecDeque::new(),
            wants: Vec::new(),
        }
    }

    /// What the master says of the topic, instead of what it said before.
    pub fn set_partitions(&mut self, now: Instant, mut partitions: Vec<Partition>, max_message_size: usize) {
        self.max_message_size = max_message_size;
        partitions.sort_unstable_by_key(|partition| (partition.id, partition.broker));
        partitions.dedup();
        if partitions == self.partitions {
            return;
        }
        self.partitions = partitions;
        let brokers: BTreeSet<u32> = self.partitions.iter().map(|partition| partition.broker).collect();
        for broker in &brokers {
            let new = Lane { link: Link::Down, queue: BTreeSet::new(), pause: None };
            self.lanes.entry(*broker).or_insert(new);
        }
        // A connection that stands still has its answers to give.
        self.lanes.retain(|broker, lane| {
            lane.queue.clear();
            brokers.contains(broker) || lane.link == Link::Up
        });
        self.holds.retain(|partition, _| self.partitions.contains(partition));
        for index in 0..self.entries.len() {
            if matches!(self.entries[index].state, State::Queued) {
                self.route(now, self.first + index as u64);
            }
        }
    }

    /// Number of partitions that can be written.
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// Takes a message, if there is room; `bytes` come back with its outcome. With `park`, twice as many may wait.
    pub fn push(
        &mut self,
        now: Instant,
        message: Packed,
        key: Option<&str>,
        bytes: usize,
        park: bool,
    ) -> Result<()> {
        if message.data.len() > self.max_message_size {
            return Err(Error::new(
                ErrorKind::MessageTooLarge,
                format!(
                    "{} bytes with attributes; the topic takes {}",
                    message.data.len(),
                    self.max_message_size
                ),
            ));
        }
        let limit = self.options.max_pending * if park { 2 } else { 1 };
        if self.entries.len() >= limit {
            return Err(Error::new(
                ErrorKind::QueueFull,
                format!(
                    "{limit} messages wait for the brokers' answers: await some of them, or raise max_pending"
                ),
            ));
        }
        self.entries.push_back(Entry {
            message,
            bytes,
            key: key.map(|key| crc32(key.as_bytes())),
            partition: Partition { broker: 0, id: 0 },
            pushed: now,
            refusals: 0,
            state: State::Queued,
        });
        self.route(now, self.first + self.entries.len() as u64 - 1);
        Ok(())
    }

    /// Messages without an outcome.
    pub fn pending(&self) -> usize {
        self.entries.len()
    }

    /// A connection to `broker` is there.
    pub fn attach(&mut self, broker: u32) {
        if let Some(lane) = self.lanes.get_mut(&broker) {
            lane.link = Link::Up;
            lane.pause = None;
        }
    }

    /// The connection to `broker` is gone, or could not be had: not before `pause` is another wanted. What was
    /// sent is answered by an error each.
    pub fn detach(&mut self, now: Instant, broker: u32, pause: Duration) {
        let Some(lane) = self.lanes.get_mut(&broker) else { return };
        lane.link = Link::Down;
        lane.pause = Some(now + pause);
        self.evade(now, broker);
    }

    /// The next message for `broker`, with the number that [`Self::handle_answer`] wants back. `visit` is
    /// what proves to brokers who sends.
    pub fn poll_send(
        &mut self,
        now: Instant,
        broker: u32,
        visit: &pb::AuthorizedInfo,
    ) -> Option<(u64, Request)> {
        if self.sent >= self.options.max_pending {
            return None;
        }
        let lane = self.lanes.get_mut(&broker)?;
        if lane.link != Link::Up || lane.pause.is_some_and(|until| until > now) {
            return None;
        }
        let number = if self.holds.is_empty() {
            lane.queue.pop_first()?
        } else {
            let (holds, entries, first) = (&self.holds, &self.entries, self.first);
            let free = |number: &&u64| {
                let partition = &entries[(**number - first) as usize].partition;
                holds.get(partition).is_none_or(|hold| hold.is_over(now))
            };
            let number = *lane.queue.iter().find(free)?;
            lane.queue.remove(&number);
            number
        };
        let entry = &mut self.entries[(number - self.first) as usize];
        debug_assert!(matches!(entry.state, State::Queued));
        entry.state = State::Sent;
        self.sent += 1;
        let request = pb::SendMessageRequestP2b {
            client_id: self.options.client_id.clone(),
            topic_name: self.options.topic.clone(),
            partition_id: entry.partition.id as i32,
            data: entry.message.data.clone(),
            flag: entry.message.flag,
            check_sum: -1,
            sent_addr: self.options.address,
            msg_type: entry.message.message_type.clone(),
            msg_time: entry.message.time.clone(),
            auth_info: Some(visit.clone()),
        };
        Some((number, Request::SendMessage(Box::new(request))))
    }

    /// The answer to what [`Self::poll_send`] gave.
    pub fn handle_answer(&mut self, now: Instant, number: u64, result: Result<Response>) {
        let Some(index) = number.checked_sub(self.first).map(|index| index as usize) else { return };
        let Some(entry) = self.entries.get_mut(index) else { return };
        if !matches!(entry.state, State::Sent) {
            return;
        }
        self.sent -= 1;
        entry.state = State::Queued;
        let partition = entry.partition;
        match result {
            Ok(Response::SendMessage(response)) if response.success => {
                entry.state = State::Done(Ok(Position {
                    broker: partition.broker,
                    partition: partition.id,
                    offset: response.append_offset.unwrap_or(UNDEFINED),
                    time: response.append_time.unwrap_or(-1),
                    message_id: response.message_id.unwrap_or(UNDEFINED),
                }));
                if !self.holds.is_empty() {
                    self.holds.remove(&partition);
                }
                self.settle();
            }
            Ok(response) => {
                let (code, _) = response.code();
                let error =
                    response.outcome().err().unwrap_or_else(|| Error::protocol("not a send's answer"));
                self.refused(now, number, Code::from_number(code), error);
            }
            Err(error) => match error.kind() {
                // Whether it got through is not known.
                ErrorKind::Disconnected | ErrorKind::Closed | ErrorKind::Timeout | ErrorKind::Protocol => {
                    self.requeue(now, number);
                }
                _ => self.refused(now, number, None, error),
            },
        }
    }

    /// To the same partition again, if it still is one.
    fn requeue(&mut self, now: Instant, number: u64) {
        let partition = self.entries[(number - self.first) as usize].partition;
        if self.partitions.contains(&partition) {
            self.enqueue(number, partition);
        } else {
            self.route(now, number);
        }
    }

    fn refused(&mut self, now: Instant, number: u64, code: Option<Code>, error: Error) {
        let index = (number - self.first) as usize;
        let entry = &mut self.entries[index];
        let partition = entry.partition;
        let later = matches!(code, Some(Code::ReceiveOverflow | Code::ServiceUnavailable));
        if !later {
            entry.refusals += 1;
            let hopeless = matches!(code, Some(Code::BadRequest)) || entry.refusals >= MAX_REFUSALS;
            if hopeless {
                entry.state = State::Done(Err(error));
                return self.settle();
            }
        }
        match code {
            Some(Code::ServiceUnavailable) => {
                if let Some(lane) = self.lanes.get_mut(&partition.broker) {
                    lane.pause = Some(now + BROKER_PAUSE);
                }
                self.events.push_back(Event::Refresh);
            }
            Some(Code::ReceiveOverflow) => {}
            // The topic was closed, the partition is gone, or the visit token is old.
            _ => self.events.push_back(Event::Refresh),
        }
        let before = self.holds.get(&partition);
        // Those that were sent together are refused together, which is one refusal.
        if before.is_none_or(|hold| hold.is_over(now)) {
            let pause = before.map_or(FIRST_PAUSE, |hold| (hold.pause * 2).min(LONGEST_PAUSE));
            self.holds.insert(partition, Hold { until: Some(now + pause), pause });
        }
        self.requeue(now, number);
        self.evade(now, partition.broker);
    }

    /// Finds a place for what waits for a broker, or for a partition of it, that takes nothing now and can go
    /// elsewhere.
    fn evade(&mut self, now: Instant, broker: u32) {
        let Some(lane) = self.lanes.get(&broker) else { return };
        if !self.partitions.iter().any(|partition| self.is_usable(now, partition)) {
            return;
        }
        let free = |number: &&u64| {
            let entry = &self.entries[(**number - self.first) as usize];
            entry.key.is_none() && !self.is_usable(now, &entry.partition)
        };
        let moving: Vec<u64> = lane.queue.iter().filter(free).copied().collect();
        for number in moving {
            if let Some(lane) = self.lanes.get_mut(&broker) {
                lane.queue.remove(&number);
            }
            self.route(now, number);
        }
    }

    fn is_usable(&self, now: Instant, partition: &Partition) -> bool {
        let lane = self.lanes.get(&partition.broker);
        lane.is_some_and(|lane| lane.pause.is_none_or(|until| until <= now))
            && self.holds.get(partition).is_none_or(|hold| hold.is_over(now))
    }

    /// Chooses a partition and queues the message there.
    fn route(&mut self, now: Instant, number: u64) {
        let count = self.partitions.len();
        if count == 0 {
            return;
        }
        let entry = &self.entries[(number - self.first) as usize];
        let partition = match entry.key {
            Some(key) => self.partitions[key as usize % count],
            None => {
                self.next = self.next.wrapping_add(1);
                let start = self.next as usize % count;
                let mut round = (0..count).map(|i| self.partitions[(start + i) % count]);
                let quiet = self.holds.is_empty() && self.lanes.values().all(|lane| lane.pause.is_none());
                if quiet { None } else { round.find(|partition| self.is_usable(now, partition)) }
                    .unwrap_or(self.partitions[start])
            }
        };
        self.enqueue(number, partition);
    }

    fn enqueue(&mut self, number: u64, partition: Partition) {
        self.entries[(number - self.first) as usize].partition = partition;
        let Some(lane) = self.lanes.get_mut(&partition.broker) else { return };
        lane.queue.insert(number);
        if lane.link == Link::Down && lane.pause.is_none() {
            lane.link = Link::Wanted;
            self.wants.push(partition.broker);
        }
    }

    /// Tells the outcomes that are due in their order.
    fn settle(&mut self) {
        while let Some(Entry { state: State::Done(_), .. }) = self.entries.front() {
            let Some(entry) = self.entries.pop_front() else { return };
            self.first += 1;
            let State::Done(result) = entry.state else { return };
            let bytes = entry.bytes;
            self.events.push_back(match result {
                Ok(position) => Event::Stored { position, bytes },
                Err(error) => Event::Failed { error, bytes },
            });
        }
    }

    /// Gives up what has waited too long, and wants connections again whose pause is over.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(timeout) = self.options.send_timeout {
            while let Some(entry) = self.entries.front_mut()
                && entry.pushed + timeout <= now
            {
                let sent = matches!(entry.state, State::Sent);
                let broker = entry.partition.broker;
                let fate = if sent { "it may have been stored" } else { "it was not stored by that time" };
                let text = format!("no broker answered the message within {timeout:?}: {fate}");
                entry.state = State::Done(Err(Error::new(ErrorKind::Timeout, text)));
                if sent {
                    self.sent -= 1;
                } else if let Some(lane) = self.lanes.get_mut(&broker) {
                    lane.queue.remove(&self.first);
                }
                self.settle();
            }
        }
        for hold in self.holds.values_mut() {
            if hold.is_over(now) {
                hold.until = None;
            }
        }
        for (broker, lane) in &mut self.lanes {
            if lane.pause.is_some_and(|until| until <= now) {
                lane.pause = None;
                if lane.link == Link::Down && !lane.queue.is_empty() {
                    lane.link = Link::Wanted;
                    self.wants.push(*broker);
                }
            }
        }
    }

    /// When [`Self::handle_timeout`] or [`Self::poll_send`] has something to do again.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let mut next = match (self.options.send_timeout, self.entries.front()) {
            (Some(timeout), Some(entry)) => Some(entry.pushed + timeout),
            _ => None,
        };
        for lane in self.lanes.values() {
            next = earliest(next, lane.pause);
        }
        if self.sent < self.options.max_pending && self.entries.len() > self.sent {
            for hold in self.holds.values() {
                next = earliest(next, hold.until);
            }
        }
        next
    }

    /// Brokers to which connections are wanted: [`Self::attach`], or [`Self::detach`] where there is none to be had.
    pub fn poll_wants(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.wants)
    }

    /// The next thing to tell, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Fails everything that has no outcome.
    pub fn close(&mut self, error: &Error) {
        for entry in &mut self.entries {
            if !matches!(entry.state, State::Done(_)) {
                entry.state = State::Done(Err(error.clone()));
            }
        }
        self.sent = 0;
        for lane in self.lanes.values_mut() {
            lane.queue.clear();
        }
        self.settle();
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.options.topic
    }
}
