//! A producer of one topic, independent of its connections: messages, in order, until a broker has
//! stored them.
//!
//! ```text
//!         push          broker's connection is ready           success
//!   ──────────────► Queued ──────────────────────────────► Sent ─────────────► Done
//!                     ▲                                      │ refused permanently, or timed out
//!                     └──────────────────────────────────────┴───────────────► Done
//!                       connection lost: same partition
//!                       refused temporarily (419, 503, 403): another partition, unless keyed
//! ```
//! Each message is a call of its own, and calls are pipelined. A connection preserves their order,
//! and so the order of the messages of a partition. A message with a key stays in its partition:
//! while the broker refuses it temporarily, the unsent messages behind it wait. Messages that had
//! already been sent behind it overtake it.
//!
//! If the connection is lost, it is unknown whether an unanswered message was stored; it is sent
//! again, so that it is stored at least once. Outcomes are reported in the order of the pushes: a
//! message that completes early waits for its predecessors.
//!
//! The owner polls in this order: [`Producer::handle_timeout`], [`Producer::poll_request`] for each
//! attached broker, [`Producer::poll_event`], [`Producer::poll_timeout`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crate::message::Packed;
use crate::send::Send;
use crate::topic::Partition;
use crate::{Code, Response, UNDEFINED, pb};
use forebay_base::checksum::crc32;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::machine::earliest;

#[cfg(test)]
mod tests;

/// Number of refusals after which a message fails. Requests to retry later and expired visit tokens
/// do not count.
const MAX_REFUSALS: u32 = 5;
/// Time for which a message is sent again although the broker does not take the visit token.
/// Masters are replaced, and issue other tokens, within that time; a user that was removed gets
/// none.
const DENIED_LIMIT: Duration = Duration::from_secs(60);
/// Most time between two such refusals that counts: with more the broker could not be asked, and
/// the master may have been out of reach as well.
const DENIED_GAP: Duration = Duration::from_secs(4);
/// Pause of a partition after its first refusal, doubled with each further one up to
/// [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Pause of a broker that has stopped accepting messages.
const BROKER_PAUSE: Duration = Duration::from_secs(5);

/// Configuration of a producer.
#[derive(Clone, Debug)]
pub struct Options {
    /// Client id at master and brokers.
    pub client_id: String,
    /// Topic to send to.
    pub topic: String,
    /// Own IPv4 address as a number, for the broker's log.
    pub address: i32,
    /// Maximum number of unanswered messages. The overflow queue holds as many again.
    pub max_pending: usize,
    /// Time limit from push to response; `None` for no limit.
    pub send_timeout: Option<Duration>,
    /// Starting point of the round robin.
    pub seed: u32,
}

/// Position of a stored message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// Number of the broker.
    pub broker: u32,
    /// Number of the partition at the broker.
    pub partition: u32,
    /// Offset in the index of the store, which its partitions share; each message takes 28.
    pub offset: i64,
    /// Time at which the broker stored the message, in milliseconds since 1970; -1 if unknown.
    pub time: i64,
    /// Message number at the broker; not unique across brokers.
    pub message_id: i64,
}

/// Events of a producer.
#[derive(Clone, Debug)]
pub enum Event {
    /// The oldest message without an outcome has been stored.
    Stored {
        /// Position of the message.
        position: Position,
        /// Bytes charged for the message.
        bytes: usize,
    },
    /// The oldest message without an outcome has failed.
    Failed {
        /// Reason for the failure.
        error: Error,
        /// Bytes charged for the message.
        bytes: usize,
    },
    /// Brokers behave otherwise than the metadata state; metadata should be refreshed.
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
    /// Bytes charged to the memory limit.
    bytes: usize,
    /// Hash of the key.
    key: Option<u32>,
    partition: Partition,
    pushed: Instant,
    refusals: u32,
    /// Time of the last refusal of the visit token, and the time that those so far count for.
    denied: Option<(Instant, Duration)>,
    /// Whether an earlier attempt may have been stored, because its connection was lost.
    maybe_stored: bool,
    state: State,
}

/// State of the connection to a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkState {
    Down,
    Wanted,
    Up,
}

#[derive(Debug)]
struct BrokerQueue {
    link: LinkState,
    /// Numbers of the messages to be sent.
    messages: BTreeSet<u64>,
    /// Time until which the broker is not used.
    pause: Option<Instant>,
    /// Why the last attempt to reach or use it failed; named by timeouts.
    trouble: Option<Error>,
}

/// Backoff of a partition that refused a message.
#[derive(Clone, Copy, Debug)]
struct PartitionBackoff {
    /// End of the current pause; `None` once the partition may be tried. `pause` is kept until a
    /// message is accepted.
    until: Option<Instant>,
    pause: Duration,
}

impl PartitionBackoff {
    fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }
}

/// A producer of one topic.
#[derive(Debug)]
pub struct Producer {
    options: Options,
    /// Writable partitions, ordered so that consecutive ones are at different brokers.
    partitions: Vec<Partition>,
    queues: BTreeMap<u32, BrokerQueue>,
    backoffs: BTreeMap<Partition, PartitionBackoff>,
    max_message_size: usize,
    /// Messages whose outcome has not been reported; the first one has number `first`.
    entries: VecDeque<Entry>,
    first: u64,
    sent: usize,
    next: u32,
    events: VecDeque<Event>,
    /// Brokers that a connection is needed to.
    wants: Vec<u32>,
}

impl Producer {
    /// Creates a producer that does not know any partition yet.
    pub fn new(options: Options) -> Self {
        Self {
            next: options.seed,
            options,
            partitions: Vec::new(),
            queues: BTreeMap::new(),
            backoffs: BTreeMap::new(),
            max_message_size: usize::MAX,
            entries: VecDeque::new(),
            first: 0,
            sent: 0,
            events: VecDeque::new(),
            wants: Vec::new(),
        }
    }

    /// Replaces the partitions by those that the master states.
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
            self.queues.entry(*broker).or_insert(BrokerQueue {
                link: LinkState::Down,
                messages: BTreeSet::new(),
                pause: None,
                trouble: None,
            });
        }
        // A connection that is still up may have outstanding responses.
        self.queues.retain(|broker, queue| {
            queue.messages.clear();
            brokers.contains(broker) || queue.link == LinkState::Up
        });
        self.backoffs.retain(|partition, _| self.partitions.contains(partition));
        for index in 0..self.entries.len() {
            if matches!(self.entries[index].state, State::Queued) {
                self.route(now, self.first + index as u64);
            }
        }
    }

    /// Number of writable partitions.
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// Accepts a message; `bytes` is returned with its outcome. When the window is full the message
    /// waits in the overflow queue, which holds as many as the window; after that the call fails
    /// with `QueueFull`.
    pub fn push(&mut self, now: Instant, message: Packed, key: Option<&str>, bytes: usize) -> Result<()> {
        self.push_within(2 * self.options.max_pending, now, message, key, bytes)
    }

    /// Like [`Self::push`], but fails with `QueueFull` as soon as the window is full.
    pub fn try_push(&mut self, now: Instant, message: Packed, key: Option<&str>, bytes: usize) -> Result<()> {
        self.push_within(self.options.max_pending, now, message, key, bytes)
    }

    fn push_within(
        &mut self,
        limit: usize,
        now: Instant,
        message: Packed,
        key: Option<&str>,
        bytes: usize,
    ) -> Result<()> {
        if message.data.len() > self.max_message_size {
            return Err(Error::new(
                ErrorKind::MessageTooLarge,
                format!(
                    "the message has {} bytes including attributes; the topic accepts at most {}",
                    message.data.len(),
                    self.max_message_size
                ),
            ));
        }
        if self.entries.len() >= limit {
            return Err(Error::new(
                ErrorKind::QueueFull,
                format!("{limit} messages are waiting for responses: await some sends or raise max_pending"),
            ));
        }
        self.entries.push_back(Entry {
            message,
            bytes,
            key: key.map(|key| crc32(key.as_bytes())),
            partition: Partition { broker: 0, id: 0 },
            pushed: now,
            refusals: 0,
            denied: None,
            maybe_stored: false,
            state: State::Queued,
        });
        self.route(now, self.first + self.entries.len() as u64 - 1);
        Ok(())
    }

    /// Number of messages without an outcome.
    pub fn pending_messages(&self) -> usize {
        self.entries.len()
    }

    /// Handles a new connection to `broker`.
    pub fn attach(&mut self, broker: u32) {
        if let Some(queue) = self.queues.get_mut(&broker) {
            queue.link = LinkState::Up;
            queue.pause = None;
            queue.trouble = None;
        }
    }

    /// Notes why `broker` could not be reached.
    pub fn note_trouble(&mut self, broker: u32, error: Error) {
        if let Some(queue) = self.queues.get_mut(&broker) {
            queue.trouble = Some(error);
        }
    }

    /// Handles the loss of the connection to `broker`, or a failed attempt. No other one is
    /// requested before `pause` has passed. The caller reports an error for each message that was
    /// sent, by [`Self::handle_answer`].
    pub fn detach(&mut self, now: Instant, broker: u32, pause: Duration) {
        let Some(queue) = self.queues.get_mut(&broker) else { return };
        queue.link = LinkState::Down;
        queue.pause = Some(now + pause);
        self.reroute(now, broker);
    }

    /// Returns the next message for `broker`, with the number to pass to [`Self::handle_answer`].
    /// `visit` authenticates the client to the broker.
    pub fn poll_request<'a>(
        &'a mut self,
        now: Instant,
        broker: u32,
        visit: &'a pb::AuthorizedInfo,
    ) -> Option<(u64, Send<'a>)> {
        if self.sent >= self.options.max_pending {
            return None;
        }
        let queue = self.queues.get_mut(&broker)?;
        if queue.link != LinkState::Up || queue.pause.is_some_and(|until| until > now) {
            return None;
        }
        let number = if self.backoffs.is_empty() {
            queue.messages.pop_first()?
        } else {
            let (backoffs, entries, first) = (&self.backoffs, &self.entries, self.first);
            let free = |number: &&u64| {
                let partition = &entries[(**number - first) as usize].partition;
                backoffs.get(partition).is_none_or(|backoff| backoff.is_over(now))
            };
            let number = *queue.messages.iter().find(free)?;
            queue.messages.remove(&number);
            number
        };
        let entry = &mut self.entries[(number - self.first) as usize];
        debug_assert!(matches!(entry.state, State::Queued));
        entry.state = State::Sent;
        self.sent += 1;
        let request = Send {
            client_id: &self.options.client_id,
            topic: &self.options.topic,
            partition: entry.partition.id,
            message: &entry.message,
            address: self.options.address,
            visit,
        };
        Some((number, request))
    }

    /// Handles the response to the call that [`Self::poll_request`] returned.
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
                if !self.backoffs.is_empty() {
                    self.backoffs.remove(&partition);
                    if let Some(queue) = self.queues.get_mut(&partition.broker) {
                        queue.trouble = None;
                    }
                }
                self.settle();
            }
            Ok(response) => {
                let (code, _) = response.code();
                let error = response.outcome().err().unwrap_or_else(|| {
                    Error::protocol("the broker sent an unexpected response to SendMessage")
                });
                self.refused(now, number, Code::from_number(code), error);
            }
            Err(error) => match error.kind() {
                // It is unknown whether the message was stored.
                ErrorKind::Disconnected | ErrorKind::Closed | ErrorKind::Timeout | ErrorKind::Protocol => {
                    entry.maybe_stored = true;
                    entry.denied = None;
                    self.requeue(now, number);
                }
                _ => self.refused(now, number, None, error),
            },
        }
    }

    /// Queues the message for the same partition if that still exists.
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
        // A visit token that has expired, or that a master issued before it restarted, says nothing
        // about the message: the next heartbeat to the master brings another.
        let denied = code == Some(Code::CertificateFailure);
        if !denied {
            entry.denied = None;
        }
        let hopeless = match code {
            Some(Code::CertificateFailure) => {
                let (last, denied) = entry.denied.unwrap_or((now, Duration::ZERO));
                let denied = denied + now.saturating_duration_since(last).min(DENIED_GAP);
                entry.denied = Some((now, denied));
                denied >= DENIED_LIMIT
            }
            Some(Code::ReceiveOverflow | Code::ServiceUnavailable) => false,
            _ => {
                entry.refusals += 1;
                matches!(code, Some(Code::BadRequest)) || entry.refusals >= MAX_REFUSALS
            }
        };
        if hopeless {
            let error = if denied && entry.maybe_stored {
                let text = format!("{error}; an earlier attempt was not answered: it may have been stored");
                Error::new(ErrorKind::Timeout, text)
            } else {
                error
            };
            entry.state = State::Done(Err(error));
            return self.settle();
        }
        self.note_trouble(partition.broker, error);
        match code {
            Some(Code::ServiceUnavailable) => {
                if let Some(queue) = self.queues.get_mut(&partition.broker) {
                    queue.pause = Some(now + BROKER_PAUSE);
                }
                self.events.push_back(Event::Refresh);
            }
            Some(Code::ReceiveOverflow) => {}
            // The topic was closed, the partition is gone, or the visit token has expired.
            _ => self.events.push_back(Event::Refresh),
        }
        let before = self.backoffs.get(&partition);
        // Messages that were sent together are refused together, which counts as one refusal.
        if before.is_none_or(|backoff| backoff.is_over(now)) {
            let pause = before.map_or(FIRST_PAUSE, |backoff| (backoff.pause * 2).min(LONGEST_PAUSE));
            self.backoffs.insert(partition, PartitionBackoff { until: Some(now + pause), pause });
        }
        self.requeue(now, number);
        self.reroute(now, partition.broker);
    }

    /// Reroutes messages without a key that are queued for a broker or partition which is paused.
    fn reroute(&mut self, now: Instant, broker: u32) {
        let Some(queue) = self.queues.get(&broker) else { return };
        if !self.partitions.iter().any(|partition| self.is_usable(now, partition)) {
            return;
        }
        let free = |number: &&u64| {
            let entry = &self.entries[(**number - self.first) as usize];
            entry.key.is_none() && !self.is_usable(now, &entry.partition)
        };
        let moving: Vec<u64> = queue.messages.iter().filter(free).copied().collect();
        for number in moving {
            if let Some(queue) = self.queues.get_mut(&broker) {
                queue.messages.remove(&number);
            }
            self.route(now, number);
        }
    }

    fn is_usable(&self, now: Instant, partition: &Partition) -> bool {
        let queue = self.queues.get(&partition.broker);
        queue.is_some_and(|queue| queue.pause.is_none_or(|until| until <= now))
            && self.backoffs.get(partition).is_none_or(|backoff| backoff.is_over(now))
    }

    /// Chooses a partition and queues the message for it.
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
                let quiet =
                    self.backoffs.is_empty() && self.queues.values().all(|queue| queue.pause.is_none());
                if quiet { None } else { round.find(|partition| self.is_usable(now, partition)) }
                    .unwrap_or(self.partitions[start])
            }
        };
        self.enqueue(number, partition);
    }

    fn enqueue(&mut self, number: u64, partition: Partition) {
        self.entries[(number - self.first) as usize].partition = partition;
        let Some(queue) = self.queues.get_mut(&partition.broker) else { return };
        queue.messages.insert(number);
        if queue.link == LinkState::Down && queue.pause.is_none() {
            queue.link = LinkState::Wanted;
            self.wants.push(partition.broker);
        }
    }

    /// Reports the completed messages at the head, in order.
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

    /// Fails messages that exceeded the send timeout, and requests connections whose pause has
    /// passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(timeout) = self.options.send_timeout {
            while let Some(entry) = self.entries.front_mut()
                && entry.pushed + timeout <= now
            {
                let sent = matches!(entry.state, State::Sent);
                let broker = entry.partition.broker;
                let stored =
                    if sent || entry.maybe_stored { "it may have been stored" } else { "it was not stored" };
                let mut text = format!("no broker responded within send_timeout ({timeout:?}): {stored}");
                if self.partitions.is_empty() {
                    text.push_str("; the master states no partition of the topic that accepts messages");
                } else if let Some(error) = self.queues.get(&broker).and_then(|queue| queue.trouble.as_ref())
                {
                    text.push_str(&format!("; the last attempt failed: {error}"));
                }
                entry.state = State::Done(Err(Error::new(ErrorKind::Timeout, text)));
                if sent {
                    self.sent -= 1;
                } else if let Some(queue) = self.queues.get_mut(&broker) {
                    queue.messages.remove(&self.first);
                }
                self.settle();
            }
        }
        for backoff in self.backoffs.values_mut() {
            if backoff.is_over(now) {
                backoff.until = None;
            }
        }
        for (broker, queue) in &mut self.queues {
            if queue.pause.is_some_and(|until| until <= now) {
                queue.pause = None;
                if queue.link == LinkState::Down && !queue.messages.is_empty() {
                    queue.link = LinkState::Wanted;
                    self.wants.push(*broker);
                }
            }
        }
    }

    /// Time at which [`Self::handle_timeout`] or [`Self::poll_request`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let mut next = match (self.options.send_timeout, self.entries.front()) {
            (Some(timeout), Some(entry)) => Some(entry.pushed + timeout),
            _ => None,
        };
        for queue in self.queues.values() {
            next = earliest(next, queue.pause);
        }
        if self.sent < self.options.max_pending && self.entries.len() > self.sent {
            for backoff in self.backoffs.values() {
                next = earliest(next, backoff.until);
            }
        }
        next
    }

    /// Takes the brokers that a connection is needed to. The caller answers with [`Self::attach`],
    /// or with [`Self::detach`] if the attempt fails.
    pub fn poll_wants(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.wants)
    }

    /// Returns the next event, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Fails all messages without an outcome.
    pub fn close(&mut self, error: &Error) {
        for entry in &mut self.entries {
            if !matches!(entry.state, State::Done(_)) {
                entry.state = State::Done(Err(error.clone()));
            }
        }
        self.sent = 0;
        for queue in self.queues.values_mut() {
            queue.messages.clear();
        }
        self.settle();
    }

    /// Topic that the producer sends to.
    pub fn topic(&self) -> &str {
        &self.options.topic
    }
}
