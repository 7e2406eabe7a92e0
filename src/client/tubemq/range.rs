//! A part of a partition, read once, in order and to its end.
//!
//! ```text
//!        take the partition                 get: a pack                     the end
//!   Out ────────────────────► Held ────────────────────────► its messages ───────────► Done
//!    ▲  set the offset         │ ▲   pass: where it ended         │
//!    │                         │ └────────────────────────────────┘
//!    │  give it back           ▼
//!    └─────────────────────── Lost
//!      connection or partition lost, or a call failed: again, from where the last pack ended
//! ```
//! A range begins with the entry at its first offset and ends before that at its last, so that
//! ranges that lie side by side have each message once ([`Pack`]). What the broker stores as offset
//! of the group does not count: each time the partition is taken, the offset is set.
//!
//! Only a position that moves counts as progress: a broker that answers all the time, and gives
//! nothing, ends the read with the timeout as one that is silent does.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;

use crate::logger;
use crate::tubemq::auth;
use crate::tubemq::lease::{Lease, MAX_GROUPS};
use crate::tubemq::shared::{Shared, client_id};
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_tubemq::balance::PartitionLocation;
use forebay_tubemq::master::{RUNTIME, brokers};
use forebay_tubemq::message::{Attributes, unpack};
use forebay_tubemq::pb::TransferedMessage;
use forebay_tubemq::range::Pack;
use forebay_tubemq::topic::ConsumerTopic;
use forebay_tubemq::{Code, Request, Response, UNDEFINED, pb};
use tracing::warn;

/// Pause before a call is repeated that found nothing or failed; doubled up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause that a broker may ask for.
const LONGEST_LIMIT: Duration = Duration::from_secs(60);
/// Status of partitions that may be consumed.
const SUBSCRIBABLE: i32 = 1;

/// A part of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The partition.
    pub location: PartitionLocation,
    /// Offset of the first entry.
    pub start: i64,
    /// The first offset behind it.
    pub end: i64,
    /// Message types to give; empty gives all.
    pub filters: Arc<BTreeSet<String>>,
}

/// When reading fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Longest time without progress. Pauses that a broker's rule for the flow asks for do not
    /// count.
    pub timeout: Duration,
    /// Whether it is an error that messages are missing or damaged.
    pub fails_on_loss: bool,
}

/// A message of a range.
#[derive(Clone, Debug)]
pub struct Record {
    /// Offset in the index of the store, if it is known: if the pack has no messages of other
    /// partitions between its own.
    pub offset: Option<i64>,
    /// Payload, without attributes.
    pub payload: Bytes,
    /// Key, type, time and properties.
    pub attributes: Attributes,
    /// The broker's number of the message.
    pub message_id: i64,
}

impl Record {
    /// Bytes of it, with the attributes.
    fn size(&self) -> usize {
        self.payload.len() + self.attributes.size()
    }
}

/// Reads a [`Range`].
#[derive(Debug)]
pub struct RangeReader {
    shared: Arc<Shared>,
    range: Range,
    /// Name of the groups under which the partition is taken.
    groups: String,
    rules: Rules,
    /// Offset of what is to be read next.
    at: i64,
    lease: Option<Lease>,
    /// Was of use until a call failed, and is not given back yet.
    lost: Option<Lease>,
    ahead: VecDeque<Record>,
    /// When the position has moved last.
    alive: Instant,
    pause: Duration,
    /// Time for which the broker has asked to wait since then.
    held_back: Duration,
}

impl RangeReader {
    pub(super) fn new(shared: Arc<Shared>, range: Range, groups: String, rules: Rules) -> Self {
        Self {
            shared,
            at: range.start,
            range,
            groups,
            rules,
            lease: None,
            lost: None,
            ahead: VecDeque::new(),
            alive: clock::now(),
            pause: FIRST_PAUSE,
            held_back: Duration::ZERO,
        }
    }

    /// The partition that is read.
    pub fn location(&self) -> &PartitionLocation {
        &self.range.location
    }

    /// The next messages, up to `most` or, unless it is one alone, `bytes` of payload and
    /// attributes. None are the end.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DataLost`]: messages of the range were deleted, or are damaged.
    /// [`ErrorKind::Timeout`], or the error of the broker: nothing was read for the time of the
    /// rules.
    pub async fn next(&mut self, most: usize, bytes: usize) -> Result<Vec<Record>> {
        let (mut block, mut size) = (Vec::new(), 0);
        // The caller may have been busy since.
        self.alive = clock::now();
        loop {
            while let Some(record) = self.ahead.front() {
                size += record.size();
                if !block.is_empty() && (block.len() >= most || size > bytes) {
                    return Ok(block);
                }
                block.extend(self.ahead.pop_front());
            }
            if self.at >= self.range.end {
                return Ok(block);
            }
            let before = self.at;
            let step = self.step().await;
            if self.at > before {
                (self.alive, self.pause, self.held_back) = (clock::now(), FIRST_PAUSE, Duration::ZERO);
            }
            self.follow(step, self.at != before).await.map_err(|error| error.with_topic(self.name()))?;
        }
    }

    /// Gives the partition back.
    pub async fn close(&mut self) {
        for mut lease in self.lease.take().into_iter().chain(self.lost.take()) {
            let _ = lease.leave().await;
        }
    }

    fn name(&self) -> String {
        let PartitionLocation { topic, partition, .. } = self.location();
        format!("{topic} {}:{}", partition.broker, partition.id)
    }

    /// Waits as the outcome of a step asks.
    async fn follow(&mut self, step: Result<Step>, moved: bool) -> Result<()> {
        let trouble = match step {
            Ok(Step::Taken) => return Ok(()),
            Ok(Step::Read) if moved => return Ok(()),
            Ok(Step::Read) => None,
            Ok(Step::Limited(pause)) => {
                self.wait_as_asked(pause).await;
                return Ok(());
            }
            Err(error) if self.may_pass(&error) => {
                // Registered again, under another name. What the broker may still do for the old
                // one does not matter.
                self.lost = self.lease.take().or(self.lost.take());
                if error.kind() == ErrorKind::Authentication {
                    self.shared.refresh();
                }
                Some(error)
            }
            Err(error) => return Err(error),
        };
        if self.waited() > self.rules.timeout {
            return Err(trouble.unwrap_or_else(|| self.timed_out()));
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }

    /// Waits as long as a rule for the flow asks. That does not count as time without progress.
    async fn wait_as_asked(&mut self, pause: Duration) {
        let (before, limit) = (self.held_back, self.rules.timeout);
        self.held_back += pause;
        if before <= limit && self.held_back > limit {
            warn!(
                target: logger::TUBEMQ_RANGE,
                "{}: the broker's rule for the flow has held back reading for more than {limit:?} at offset \
                 {}",
                self.name(),
                self.at,
            );
        }
        tokio::time::sleep(pause).await;
    }

    /// Time without progress.
    fn waited(&self) -> Duration {
        clock::now().saturating_duration_since(self.alive).saturating_sub(self.held_back)
    }

    fn timed_out(&self) -> Error {
        let (waited, at, end) = (self.waited(), self.at, self.range.end);
        let text = format!(
            "nothing was read for {waited:.1?} at offset {at}, though the partition goes on to {end}"
        );
        Error::new(ErrorKind::Timeout, text)
    }

    /// Whether it may help to take the partition again. If it is gone, that is told then.
    fn may_pass(&self, error: &Error) -> bool {
        may_pass(error) || self.lease.is_some() && error.kind() == ErrorKind::NotAllowed
    }

    async fn step(&mut self) -> Result<Step> {
        let Some(lease) = &self.lease else { return self.take().await };
        let response = lease.get().await?;
        if !response.success {
            return match Code::from_number(response.err_code) {
                Some(Code::NotFound) => {
                    self.found_nothing(response.err_msg().contains("reached maxOffset")).await
                }
                Some(Code::ConsumeSpeedLimit) => Ok(Step::Limited(asked_for(&response))),
                _ => Err(Response::GetMessages(response).outcome().expect_err("it did not succeed")),
            };
        }
        let start = response.curr_offset.filter(|offset| *offset >= 0).unwrap_or(self.at);
        let passed = lease.pass().await?;
        let pack = Pack::new(start, passed.next, response.messages)?;
        if start != self.at {
            if start < self.at {
                let text = format!("the broker reads at offset {start}, not at {}", self.at);
                return Err(Error::new(ErrorKind::ConsumerNotFound, text));
            }
            self.lose(&format!("the messages from offset {} to {start} were deleted", self.at))?;
        }
        let count = match pack.count_before(self.range.end) {
            Some(count) => count,
            None => self.count_before_end(&pack).await?,
        };
        self.at = pack.end;
        self.take_in(pack, count)?;
        Ok(Step::Read)
    }

    /// Takes the partition, and looks whether it has the range.
    async fn take(&mut self) -> Result<Step> {
        if let Some(mut lost) = self.lost.take()
            && let Err(error) = lost.leave().await
            && lost.is_held()
        {
            self.lost = Some(lost);
            return Err(error);
        }
        let Range { location, filters, .. } = &self.range;
        let (lease, offsets) = match Lease::take(&self.shared, location, &self.groups, self.at, filters).await
        {
            Err(error) if error.kind() == ErrorKind::NotAllowed => {
                let told = error.peer_text().unwrap_or_default().to_owned();
                self.lose(&format!("the broker does not have the partition any more: {told}"))?;
                self.at = self.range.end;
                return Ok(Step::Taken);
            }
            taken => taken?,
        };
        self.lease = Some(lease);
        let (at, end) = (self.at, self.range.end);
        if offsets.next > at {
            self.lose(&format!("the messages from offset {at} to {} were deleted", offsets.next.min(end)))?;
            self.at = offsets.next;
        } else if offsets.end < end {
            let text =
                format!("it ends at offset {}, before {end}: the broker has lost messages", offsets.end);
            self.lose(&text)?;
            (self.at, self.range.end) = (at.min(offsets.end), offsets.end);
        }
        Ok(Step::Taken)
    }

    /// No message was found: the broker may have passed over those of other partitions.
    async fn found_nothing(&mut self, at_end: bool) -> Result<Step> {
        let Some(lease) = &self.lease else { return Ok(Step::Read) };
        let passed = lease.pass().await?;
        if passed.next > self.at {
            self.at = passed.next;
        } else if at_end && passed.end < self.range.end {
            // Taken again, the partition tells where it ends now.
            self.lost = self.lease.take();
        }
        Ok(Step::Read)
    }

    /// Number of the messages of a pack that lie before the end of the range.
    async fn count_before_end(&mut self, pack: &Pack) -> Result<usize> {
        let end = self.range.end;
        let behind = self.behind(end, pack.end).await?;
        match pack.count_before_others(end, &behind) {
            Ok(count) => Ok(count),
            Err(error) => {
                self.lose(error.message())?;
                Ok(pack.most_before(end))
            }
        }
    }

    /// The messages of the first pack from `from` on that has some, unless it lies behind `to`.
    async fn behind(&mut self, from: i64, to: i64) -> Result<Vec<TransferedMessage>> {
        let Some(lease) = &self.lease else { return Ok(Vec::new()) };
        let mut at = lease.seek(from).await?.next;
        while at < to {
            let Some(lease) = &self.lease else { break };
            let response = lease.get().await?;
            let passed = lease.pass().await?;
            let pause = match (response.success, Code::from_number(response.err_code)) {
                (true, _) if !response.messages.is_empty() => {
                    return Ok(Pack::new(at, passed.next, response.messages)?.messages);
                }
                (true, _) | (false, Some(Code::NotFound)) if passed.next > at => Duration::ZERO,
                (true, _) | (false, Some(Code::NotFound)) if self.waited() > self.rules.timeout => {
                    return Err(self.timed_out());
                }
                (true, _) | (false, Some(Code::NotFound)) => LONGEST_PAUSE,
                (false, Some(Code::ConsumeSpeedLimit)) => {
                    self.wait_as_asked(asked_for(&response)).await;
                    Duration::ZERO
                }
                _ => return Err(Response::GetMessages(response).outcome().expect_err("it did not succeed")),
            };
            at = passed.next;
            tokio::time::sleep(pause).await;
        }
        Ok(Vec::new())
    }

    /// Unpacks the first `count` messages of a pack.
    fn take_in(&mut self, mut pack: Pack, count: usize) -> Result<()> {
        let offsets: Vec<_> = (0..count).map(|index| pack.offset_of(index)).collect();
        for (message, offset) in std::mem::take(&mut pack.messages).into_iter().zip(offsets) {
            let message_id = message.message_id;
            let (payload, attributes) = match unpack(message) {
                Ok(unpacked) => unpacked,
                Err(error) => {
                    let (start, end) = (pack.start, pack.end);
                    self.lose(&format!(
                        "a message between the offsets {start} and {end} is damaged: {error}"
                    ))?;
                    continue;
                }
            };
            // Brokers compare hashes of types.
            let filters = &self.range.filters;
            if filters.is_empty() || attributes.message_type().is_some_and(|kind| filters.contains(kind)) {
                self.ahead.push_back(Record { offset, payload, attributes, message_id });
            }
        }
        Ok(())
    }

    /// An error, or a line in the log.
    fn lose(&self, text: &str) -> Result<()> {
        let error = Error::new(ErrorKind::DataLost, text.to_owned());
        if self.rules.fails_on_loss {
            return Err(error);
        }
        warn!(target: logger::TUBEMQ_RANGE, "{}", error.with_topic(self.name()));
        Ok(())
    }
}

/// Outcome of a step.
enum Step {
    /// The partition was taken, or is gone.
    Taken,
    /// The broker was asked for messages. If there were none, the position may be where it was.
    Read,
    /// The broker asks for a pause.
    Limited(Duration),
}

/// The pause that a rule for the flow asks for.
fn asked_for(response: &pb::GetMessageResponseB2c) -> Duration {
    let pause = Duration::from_millis(response.min_limit_time().max(0) as u64);
    pause.clamp(FIRST_PAUSE, LONGEST_LIMIT)
}

/// Whether a repetition may succeed.
fn may_pass(error: &Error) -> bool {
    let lost = [ErrorKind::ConsumerNotFound, ErrorKind::ConsumerBusy, ErrorKind::Authentication];
    error.retriable() || lost.contains(&error.kind())
}

/// Repetitions of what a server that restarts, or hands over to another one, cannot answer now.
struct Patience {
    deadline: Instant,
    pause: Duration,
}

impl Patience {
    fn new(shared: &Shared) -> Self {
        Self { deadline: clock::now() + shared.options.operation_timeout, pause: FIRST_PAUSE }
    }

    /// Waits before the next attempt. Whether there is time for it.
    async fn wait(&mut self) -> bool {
        if clock::now() >= self.deadline {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}

/// The ends of partitions, asked for again and again.
#[derive(Debug)]
pub struct Tail {
    shared: Arc<Shared>,
    groups: String,
    parts: Vec<(PartitionLocation, Option<Held>)>,
}

/// A partition that is held, to ask for its end.
#[derive(Debug)]
struct Held {
    lease: Lease,
    first: i64,
}

impl Tail {
    pub(super) fn new(shared: Arc<Shared>, locations: Vec<PartitionLocation>, groups: String) -> Self {
        let parts = locations.into_iter().map(|location| (location, None)).collect();
        Self { shared, groups, parts }
    }

    /// The first offset of each partition, as it was when the partition was taken, and the first
    /// behind its last message.
    ///
    /// # Errors
    ///
    /// A broker cannot be asked.
    pub async fn bounds(&mut self) -> Result<Vec<(i64, i64)>> {
        let mut asking = JoinSet::new();
        for (index, (location, held)) in self.parts.iter_mut().enumerate() {
            let (shared, groups) = (Arc::clone(&self.shared), self.groups.clone());
            let (location, held) = (location.clone(), held.take());
            asking.spawn(async move { (index, Held::ask(held, &shared, &location, &groups).await) });
        }
        let mut bounds = vec![(0, 0); self.parts.len()];
        let mut failed = None;
        while let Some(asked) = asking.join_next().await {
            let (index, asked) = asked.expect("asking does not panic");
            let (location, held) = &mut self.parts[index];
            match asked {
                Ok((again, end)) => {
                    bounds[index] = (again.first, end);
                    *held = Some(again);
                }
                Err(error) => {
                    let (topic, partition) = (&location.topic, location.partition);
                    let name = format!("{topic} {}:{}", partition.broker, partition.id);
                    failed.get_or_insert(error.with_topic(name));
                }
            }
        }
        failed.map_or(Ok(bounds), Err)
    }

    /// Gives the partitions back.
    pub async fn close(&mut self) {
        let held: Vec<Lease> =
            self.parts.iter_mut().filter_map(|(_, held)| Some(held.take()?.lease)).collect();
        let mut leaving = JoinSet::new();
        held.into_iter().for_each(|mut lease| {
            leaving.spawn(async move { lease.leave().await });
        });
        leaving.join_all().await;
    }
}

impl Held {
    /// The partition, taken if it is not held, and its end.
    async fn ask(
        held: Option<Self>,
        shared: &Arc<Shared>,
        location: &PartitionLocation,
        groups: &str,
    ) -> Result<(Self, i64)> {
        if let Some(mut held) = held {
            match held.lease.pass().await {
                Ok(offsets) => return Ok((held, offsets.end)),
                // It does not matter whether that succeeds: the partition is taken in another group
                // then.
                Err(_) => drop(held.lease.leave().await),
            }
        }
        // From the beginning, to learn where it is.
        let mut patience = Patience::new(shared);
        loop {
            let error = match Lease::take(shared, location, groups, 0, &Arc::default()).await {
                Ok((lease, offsets)) => return Ok((Self { lease, first: offsets.next }, offsets.end)),
                Err(error) => error,
            };
            if !may_pass(&error) || !patience.wait().await {
                return Err(error);
            }
            if error.kind() == ErrorKind::Authentication {
                shared.refresh();
            }
        }
    }
}

/// The partitions of topics that can be read, in order. The master is told a group of the name
/// `groups` for that, and that its member has left.
pub(super) async fn locations(
    shared: &Arc<Shared>,
    topics: &BTreeSet<String>,
    groups: &str,
) -> Result<Vec<PartitionLocation>> {
    let mut patience = Patience::new(shared);
    let mut number = 0;
    while number < MAX_GROUPS {
        let group = format!("{groups}-{number}");
        let client_id = format!("{group}_{}", client_id(&shared.identity.host_name));
        match ask_master(shared, topics, &group, &client_id).await {
            // Its members read other topics.
            Err(error) if error.kind() == ErrorKind::ConsumerAssign => number += 1,
            Err(error) => {
                if !error.retriable() || !patience.wait().await {
                    return Err(error);
                }
            }
            asked => return asked,
        }
    }
    let text = format!("the groups {groups}-0, {groups}-1 ... have members that read other topics");
    Err(Error::new(ErrorKind::ConsumerAssign, text))
}

async fn ask_master(
    shared: &Arc<Shared>,
    topics: &BTreeSet<String>,
    group: &str,
    client_id: &str,
) -> Result<Vec<PartitionLocation>> {
    let certificate = || auth::certificate(&shared.options, &shared.visit);
    let register = Request::BalanceRegister(Box::new(pb::RegisterRequestC2mv2 {
        client_id: client_id.to_owned(),
        group_name: group.to_owned(),
        host_name: shared.identity.host_name.clone(),
        source_count: -1,
        node_id: -1,
        topic_list: topics.iter().cloned().collect(),
        topic_condition: Vec::new(),
        sub_rep_info: Some(pb::ClientSubRepInfo {
            broker_config_id: UNDEFINED,
            topic_meta_info_id: UNDEFINED,
            lst_assigned_time: None,
            report_sub_info: Some(false),
            part_sub_info: Vec::new(),
        }),
        ops_task_info: None,
        auth_info: certificate().await?,
        jdk_version: Some(RUNTIME.into()),
    }));
    shared.masters.ask(register).await?.outcome()?;
    let metadata = Request::PartitionMetadata(pb::GetPartMetaRequestC2m {
        client_id: client_id.to_owned(),
        group_name: group.to_owned(),
        broker_config_id: UNDEFINED,
        topic_meta_info_id: UNDEFINED,
        auth_info: certificate().await?,
    });
    let asked = shared.masters.ask(metadata).await;
    let close = Request::ConsumerClose(pb::CloseRequestC2m {
        client_id: client_id.to_owned(),
        group_name: group.to_owned(),
        auth_info: certificate().await?,
    });
    // A master that cannot be reached forgets the member by itself.
    let _ = shared.masters.ask(close).await;
    let response = asked?;
    response.outcome()?;
    let Response::PartitionMetadata(response) = response else {
        return Err(Error::protocol("the master sent an unexpected response"));
    };
    let brokers = brokers(&response.broker_config_list, shared.identity.default_port);
    let mut found = Vec::new();
    for text in &response.topic_meta_info_list {
        let topic = ConsumerTopic::parse(text)?;
        let name: Arc<str> = topic.name.into();
        for (partition, status) in topic.partitions {
            if let Some(broker) = brokers.get(&partition.broker).filter(|_| status == SUBSCRIBABLE) {
                let (topic, broker) = (Arc::clone(&name), broker.clone());
                found.push(PartitionLocation { topic, partition, broker });
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Sets the offsets of a group. The error of each partition that another client of the group holds,
/// or whose broker cannot be asked.
pub(super) async fn confirm(
    shared: &Arc<Shared>,
    group: &str,
    offsets: Vec<(PartitionLocation, i64)>,
) -> Vec<Option<Error>> {
    let mut errors = vec![None; offsets.len()];
    let mut setting = JoinSet::new();
    for (index, (location, offset)) in offsets.into_iter().enumerate() {
        let (shared, group) = (Arc::clone(shared), group.to_owned());
        setting.spawn(async move {
            let taken = Lease::take_in(&shared, &location, group, offset).await;
            let left = match taken {
                Ok((mut lease, _)) => lease.leave().await,
                Err(error) => Err(error),
            };
            (index, left.err())
        });
    }
    while let Some(set) = setting.join_next().await {
        let (index, error) = set.expect("setting an offset does not panic");
        errors[index] = error;
    }
    errors
}
