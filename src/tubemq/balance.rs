//! A member of a consumer group at the master, independent of its connection.
//!
//! ```text
//!                   register: 200                    heartbeat each interval
//!   Unregistered ───────────────────► Registered ──┐
//!        ▲  │ refused: closed             │   ▲     │ client balance: metadata each 5 s → Assigned
//!        │  ▼ (first time only)           │   └─────┘ server balance: one event per heartbeat
//!        │ Closed        411: unknown     │           → Take, Leave ─ finished ──► next heartbeat
//!        └────────────────────────────────┤
//!                                         │ close
//!                                         └──────────► Closing ──► Closed
//! ```
//! **Client balance** (methods 20 to 22): the master lists all partitions, and each member selects
//! its own by a rule. With a node id, these are the partitions whose index in the sorted list,
//! modulo the number of members, equals the id; otherwise all of them. A partition held by another
//! member is refused by its broker and tried again later.
//!
//! **Server balance** (methods 4 and 5): the master tells each member which partitions to take and
//! to release, by events in its heartbeat responses. The member answers each event in its next
//! heartbeat, with an accurate report of the partitions it holds, even if some could not be taken.
//! An event whose response was lost is never resent and would block the group. Therefore the
//! heartbeat after a lost response completes whichever event the master considers pending, and the
//! master then computes a new assignment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::flow::Flow;
use crate::master::{Identity, RUNTIME, brokers};
use crate::topic::{Broker, Condition, ConsumerTopic, HeldInfo, Partition, SubscribeInfo};
use crate::{Code, Request, Response, UNDEFINED, pb};
use forebay_base::error::{Error, ErrorKind, Result};

#[cfg(test)]
mod tests;

/// Pause after a failed call.
const RETRY: Duration = Duration::from_millis(500);
/// Interval between metadata requests.
const METADATA_INTERVAL: Duration = Duration::from_secs(5);
/// Interval between metadata requests while a topic has no partitions.
const METADATA_RETRY: Duration = Duration::from_millis(500);
/// Time for which partitions are waited for that a position names: brokers announce new topics with
/// their heartbeats.
const TOPIC_PATIENCE: Duration = Duration::from_secs(2);
/// Interval between heartbeats of a member that has not been assigned anything yet.
const HEARTBEAT_UNASSIGNED: Duration = Duration::from_millis(500);
/// Longest interval between heartbeats of a member with server balance: the master hands out
/// partitions of members that have left in answers to heartbeats only.
const HEARTBEAT_SERVER: Duration = Duration::from_secs(3);
/// Number of heartbeats after which all held partitions are reported.
const REPORT_EACH: u32 = 6;

/// Status of partitions that may be consumed.
const SUBSCRIBABLE: i32 = 1;

const CONNECT: i32 = 1;
const DISCONNECT: i32 = 2;
const ONLY_CONNECT: i32 = 10;
const ONLY_DISCONNECT: i32 = 20;
const DONE: i32 = 2;

/// Party that assigns partitions to members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// The members themselves, by `(count, own)`: number of members and own node id; `None` to take
    /// all that are free.
    Client(Option<(u32, u32)>),
    /// The master.
    Server,
}

/// Configuration of a member.
#[derive(Clone, Debug)]
pub struct Options {
    /// Identity of the client.
    pub identity: Identity,
    /// Consumer group.
    pub group: String,
    /// Topics to consume.
    pub topics: BTreeSet<String>,
    /// Message types by topic; a topic without any is consumed entirely.
    pub filters: BTreeMap<String, BTreeSet<String>>,
    /// Party that assigns partitions.
    pub balance: Balance,
    /// Interval between heartbeats.
    pub interval: Duration,
    /// Time at which the member started, in milliseconds since 1970.
    pub started_ms: i64,
    /// Partitions with a start position of their own. With client balance the member is refused if
    /// one does not exist.
    pub positions: BTreeSet<Partition>,
}

/// Checks that the partitions with a start position of their own are among the `known` ones.
pub fn check_positions(
    positions: &BTreeSet<Partition>,
    topics: &BTreeSet<String>,
    known: &BTreeSet<Partition>,
) -> Result<()> {
    /// Number of partitions that the error names.
    const NAMED: usize = 20;
    let Some(missing) = positions.difference(known).next() else { return Ok(()) };
    let mut there: Vec<String> = known.iter().take(NAMED).map(|p| format!("{}:{}", p.broker, p.id)).collect();
    if known.len() > NAMED {
        there.push(format!("and {} more", known.len() - NAMED));
    }
    let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    let text = format!(
        "position names partition {}:{}, which does not exist: the partitions of {} are {there}",
        missing.broker,
        missing.id,
        topics.join(", ")
    );
    Err(Error::new(ErrorKind::InvalidArgument, text))
}

/// A partition of a topic and its location.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartitionLocation {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: Partition,
    /// Broker that has the partition.
    pub broker: Broker,
}

impl PartitionLocation {
    /// The partition in the form used towards master and brokers.
    pub fn info(&self) -> SubscribeInfo {
        SubscribeInfo {
            topic: self.topic.to_string(),
            partition: self.partition,
            broker: self.broker.clone(),
        }
    }
}

/// Events of a member.
#[derive(Clone, Debug)]
pub enum Event {
    /// The master has registered the member.
    Registered,
    /// Complete list of the partitions to hold.
    Assigned(Vec<PartitionLocation>),
    /// Partitions to take; to be answered with [`Member::confirm_event`].
    Take(Vec<PartitionLocation>),
    /// Partitions to release; to be answered with [`Member::confirm_event`].
    Leave(Vec<PartitionLocation>),
    /// Token to be presented to brokers from now on.
    VisitToken(i64),
    /// The group's setting for the source of reads at the broker.
    Priority(i32),
    /// Flow control rules that apply from now on.
    Flow(Flow),
    /// An operator moves the group to the end of its partitions.
    JumpToMax,
    /// A call failed and will be repeated.
    Failed(Error),
    /// The master rejected the member. The member is closed.
    Refused(Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unregistered,
    /// Whether the master has answered a heartbeat since.
    Registered {
        confirmed: bool,
    },
    Closing,
    Closed,
}

/// A member of a consumer group.
#[derive(Debug)]
pub struct Member {
    options: Options,
    state: State,
    call_open: bool,
    /// Whether it has ever been registered.
    was_registered: bool,
    next_heartbeat: Instant,
    heartbeats: u32,
    /// Whether the held partitions differ from those last reported.
    dirty: bool,
    held: Vec<PartitionLocation>,
    flow: Flow,
    mode: Mode,
    events: VecDeque<Event>,
}

#[derive(Debug)]
enum Mode {
    Client(ClientMode),
    Server(ServerMode),
}

#[derive(Debug)]
struct ClientMode {
    metadata: Instant,
    brokers: BTreeMap<u32, Broker>,
    table: BTreeMap<String, ConsumerTopic>,
    config: i64,
    table_id: i64,
    /// Number of the last order to move to the end.
    jump: i64,
    assigned: Option<Vec<PartitionLocation>>,
    /// When a position of a partition that is not there is refused; `None` before the first
    /// metadata, and once all of them are there.
    refuse_at: Option<Instant>,
    checked: bool,
}

#[derive(Debug)]
struct ServerMode {
    not_allocated: bool,
    priority: i32,
    /// Event that the owner is carrying out.
    working: Option<pb::EventProto>,
    /// Event to be confirmed in the next heartbeat.
    finished: Option<pb::EventProto>,
    last_id: i64,
    /// Whether the response to the last heartbeat was lost.
    lost: bool,
}

impl Member {
    /// Creates a member that registers immediately.
    pub fn new(options: Options, now: Instant) -> Self {
        let mode = match options.balance {
            Balance::Client(_) => Mode::Client(ClientMode {
                metadata: now,
                brokers: BTreeMap::new(),
                table: BTreeMap::new(),
                config: UNDEFINED,
                table_id: UNDEFINED,
                jump: UNDEFINED,
                assigned: None,
                refuse_at: None,
                checked: options.positions.is_empty(),
            }),
            Balance::Server => Mode::Server(ServerMode {
                not_allocated: true,
                priority: UNDEFINED as i32,
                working: None,
                finished: None,
                last_id: 1,
                lost: false,
            }),
        };
        Self {
            options,
            state: State::Unregistered,
            call_open: false,
            was_registered: false,
            next_heartbeat: now,
            heartbeats: 0,
            dirty: false,
            held: Vec::new(),
            flow: Flow::default(),
            mode,
            events: VecDeque::new(),
        }
    }

    /// Sets the partitions that are actually held.
    pub fn set_held(&mut self, held: Vec<PartitionLocation>) {
        self.dirty |= self.held != held;
        self.held = held;
    }

    /// Confirms that the last [`Event::Take`] or [`Event::Leave`] has been carried out as far as
    /// possible; [`Self::set_held`] states the result.
    pub fn confirm_event(&mut self, now: Instant) {
        if let Mode::Server(mode) = &mut self.mode
            && let Some(event) = mode.working.take()
        {
            mode.finished = Some(pb::EventProto { status: Some(DONE), ..event });
            self.next_heartbeat = now;
        }
    }

    /// Leaves the group.
    pub fn close(&mut self, now: Instant) {
        self.state = match self.state {
            State::Registered { .. } | State::Unregistered if self.was_registered => State::Closing,
            _ => State::Closed,
        };
        self.next_heartbeat = now;
    }

    /// Whether no further calls will be made.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Returns the call that is due, if none is open. `certificate` authenticates the client.
    pub fn poll_request(
        &mut self,
        now: Instant,
        certificate: Option<pb::MasterCertificateInfo>,
    ) -> Option<Request> {
        if self.call_open {
            return None;
        }
        let request = match self.state {
            State::Closed => return None,
            State::Closing => Request::ConsumerClose(pb::CloseRequestC2m {
                client_id: self.options.identity.client_id.clone(),
                group_name: self.options.group.clone(),
                auth_info: certificate,
            }),
            State::Unregistered if self.next_heartbeat <= now => self.register(certificate),
            State::Registered { .. } if self.next_heartbeat <= now => self.heartbeat(now, certificate),
            State::Registered { .. } => self.metadata(now, certificate)?,
            State::Unregistered => return None,
        };
        self.call_open = true;
        Some(request)
    }

    /// Interval between heartbeats.
    fn interval(&self) -> Duration {
        match self.mode {
            Mode::Client(_) => self.options.interval,
            Mode::Server(_) => self.options.interval.min(HEARTBEAT_SERVER),
        }
    }

    fn register(&self, certificate: Option<pb::MasterCertificateInfo>) -> Request {
        let Options { identity, group, topics, filters, .. } = &self.options;
        let condition = |(topic, types): (&String, &BTreeSet<String>)| {
            let (topic, types) = (topic.clone(), types.iter().cloned().collect());
            Condition { topic, types }.to_string()
        };
        let filtered = filters.iter().filter(|(_, types)| !types.is_empty());
        let topic_condition: Vec<String> = filtered.map(condition).collect();
        let topic_list = topics.iter().cloned().collect();
        match &self.mode {
            Mode::Client(mode) => {
                let (count, node) = match self.options.balance {
                    Balance::Client(Some((count, node))) => (count as i32, node as i32),
                    _ => (-1, -1),
                };
                Request::BalanceRegister(Box::new(pb::RegisterRequestC2mv2 {
                    client_id: identity.client_id.clone(),
                    group_name: group.clone(),
                    host_name: identity.host_name.clone(),
                    source_count: count,
                    node_id: node,
                    topic_list,
                    topic_condition,
                    sub_rep_info: Some(self.report(mode, true)),
                    ops_task_info: self.tasks(),
                    auth_info: certificate,
                    jdk_version: Some(RUNTIME.into()),
                }))
            }
            Mode::Server(mode) => Request::ConsumerRegister(Box::new(pb::RegisterRequestC2m {
                client_id: identity.client_id.clone(),
                group_name: group.clone(),
                host_name: identity.host_name.clone(),
                topic_list,
                subscribe_info: self.subscribed(),
                topic_condition,
                require_bound: Some(false),
                session_time: Some(self.options.started_ms),
                // The server sends flow rules and priority only if they are requested.
                group_flow_check_id: Some(self.flow.group.id),
                def_flow_check_id: Some(self.flow.default.id),
                qry_priority_id: Some(mode.priority),
                auth_info: certificate,
                jdk_version: Some(RUNTIME.into()),
                ..Default::default()
            })),
        }
    }

    fn heartbeat(&mut self, now: Instant, certificate: Option<pb::MasterCertificateInfo>) -> Request {
        self.heartbeats = self.heartbeats.wrapping_add(1);
        let whole = std::mem::take(&mut self.dirty) || self.heartbeats.is_multiple_of(REPORT_EACH);
        let client_id = self.options.identity.client_id.clone();
        let group_name = self.options.group.clone();
        self.next_heartbeat = now + self.interval();
        let subscribed = self.subscribed();
        match &mut self.mode {
            Mode::Client(_) => {
                let Mode::Client(mode) = &self.mode else { unreachable!("matched above") };
                Request::BalanceHeartbeat(Box::new(pb::HeartRequestC2mv2 {
                    client_id,
                    group_name,
                    sub_rep_info: Some(self.report(mode, whole)),
                    ops_task_info: self.tasks(),
                    auth_info: certificate,
                }))
            }
            Mode::Server(mode) => {
                let mut event = mode.finished.take();
                let lost = std::mem::take(&mut mode.lost);
                if event.is_none() && lost && mode.working.is_none() {
                    event = Some(pb::EventProto {
                        rebalance_id: Some(mode.last_id),
                        op_type: Some(CONNECT),
                        status: Some(DONE),
                        subscribe_info: Vec::new(),
                    });
                }
                let whole = whole || event.is_some();
                Request::ConsumerHeartbeat(Box::new(pb::HeartRequestC2m {
                    client_id,
                    group_name,
                    subscribe_info: if whole { subscribed } else { Vec::new() },
                    report_subscribe_info: whole,
                    event,
                    def_flow_check_id: Some(self.flow.default.id),
                    group_flow_check_id: Some(self.flow.group.id),
                    ssd_store_id: None,
                    qry_priority_id: Some(mode.priority),
                    auth_info: certificate,
                }))
            }
        }
    }

    fn metadata(&mut self, now: Instant, certificate: Option<pb::MasterCertificateInfo>) -> Option<Request> {
        let Mode::Client(mode) = &mut self.mode else { return None };
        if mode.metadata > now {
            return None;
        }
        mode.metadata = now + METADATA_INTERVAL;
        Some(Request::PartitionMetadata(pb::GetPartMetaRequestC2m {
            client_id: self.options.identity.client_id.clone(),
            group_name: self.options.group.clone(),
            broker_config_id: mode.config,
            topic_meta_info_id: mode.table_id,
            auth_info: certificate,
        }))
    }

    fn report(&self, mode: &ClientMode, whole: bool) -> pb::ClientSubRepInfo {
        let mut by_topic: BTreeMap<&str, Vec<Partition>> = BTreeMap::new();
        for location in self.held.iter().filter(|_| whole) {
            by_topic.entry(&location.topic).or_default().push(location.partition);
        }
        let held = by_topic
            .into_iter()
            .map(|(topic, partitions)| HeldInfo { topic: topic.to_owned(), partitions }.to_string());
        pb::ClientSubRepInfo {
            broker_config_id: mode.config,
            topic_meta_info_id: mode.table_id,
            lst_assigned_time: None,
            report_sub_info: Some(whole && self.was_registered),
            part_sub_info: held.collect(),
        }
    }

    /// Numbers of the flow control rules that are known, so that the master sends only others.
    fn tasks(&self) -> Option<pb::OpsTaskInfo> {
        let known = |id: i64| (id >= 0).then_some(id);
        let (group, default) = (known(self.flow.group.id), known(self.flow.default.id));
        (group.is_some() || default.is_some()).then(|| pb::OpsTaskInfo {
            group_flow_check_id: group,
            def_flow_check_id: default,
            ..Default::default()
        })
    }

    fn subscribed(&self) -> Vec<String> {
        let (client, group) = (&self.options.identity.client_id, &self.options.group);
        self.held.iter().map(|location| location.info().to_text(client, group)).collect()
    }

    /// Handles the response to the call that [`Self::poll_request`] returned.
    pub fn handle_answer(&mut self, now: Instant, result: Result<Response>) {
        self.call_open = false;
        if matches!(self.state, State::Closing | State::Closed) {
            // A master that could not be reached drops the member when its heartbeats cease.
            self.state = State::Closed;
            return;
        }
        let response = match result {
            Ok(response) => response,
            Err(error) => {
                if let Mode::Server(mode) = &mut self.mode {
                    mode.lost = matches!(self.state, State::Registered { .. });
                }
                self.dirty = true;
                return self.failed(now, error);
            }
        };
        if let Err(error) = response.outcome() {
            return self.handle_error(now, Code::from_number(response.code().0), error);
        }
        self.handle_success(now, response);
    }

    /// Handles a response by which the master reports an error.
    fn handle_error(&mut self, now: Instant, code: Option<Code>, error: Error) {
        match code {
            Some(Code::NoNode) => {
                let before = std::mem::replace(&mut self.state, State::Unregistered);
                self.dirty = true;
                // A master that does so at once again would be asked without end.
                if before == (State::Registered { confirmed: true }) {
                    self.next_heartbeat = now;
                } else {
                    self.failed(now, error);
                }
            }
            _ if !self.was_registered && self.state == State::Unregistered && !error.retriable() => {
                self.refused(error);
            }
            // The group's other members differ, or one has the same node id. A retry would not
            // help soon.
            Some(
                Code::InconsistentConsumeType
                | Code::InconsistentTopicSet
                | Code::InconsistentFilterSet
                | Code::InconsistentSessionKey
                | Code::InconsistentSelectBig
                | Code::InconsistentSourceCount
                | Code::DuplicateIndexId,
            ) if !self.was_registered => self.refused(error),
            _ => self.failed(now, error),
        }
    }

    /// Handles a response to a call that succeeded.
    fn handle_success(&mut self, now: Instant, response: Response) {
        match response {
            Response::BalanceRegister(response) => {
                self.registered(now);
                self.take_token(response.authorized_info);
                self.take_tasks(response.ops_task_info);
                self.take_metadata(now, response.broker_config_id, &response.broker_config_list, None, &[]);
                if let Mode::Client(mode) = &mut self.mode {
                    mode.metadata = now;
                }
            }
            Response::BalanceHeartbeat(response) => {
                self.state = State::Registered { confirmed: true };
                self.take_token(response.authorized_info);
                self.take_tasks(response.ops_task_info);
                self.take_metadata(
                    now,
                    response.broker_config_id,
                    &response.broker_config_list,
                    response.topic_meta_info_id,
                    &response.topic_meta_info_list,
                );
            }
            Response::PartitionMetadata(response) => self.take_metadata(
                now,
                response.broker_config_id,
                &response.broker_config_list,
                response.topic_meta_info_id,
                &response.topic_meta_info_list,
            ),
            Response::ConsumerRegister(response) => {
                self.registered(now);
                self.take_token(response.authorized_info);
                self.take_group(now, response.not_allocated, response.qry_priority_id);
                self.take_flow(
                    (response.group_flow_check_id, response.group_flow_control_info.as_deref()),
                    (response.def_flow_check_id, response.def_flow_control_info.as_deref()),
                );
            }
            Response::ConsumerHeartbeat(response) => {
                self.state = State::Registered { confirmed: true };
                self.take_token(response.authorized_info);
                self.take_group(now, response.not_allocated, response.qry_priority_id);
                self.take_flow(
                    (response.group_flow_check_id, response.group_flow_control_info.as_deref()),
                    (response.def_flow_check_id, response.def_flow_control_info.as_deref()),
                );
                self.take_event(now, response.event);
            }
            other => self.failed(
                now,
                Error::protocol(format!("the master sent an unexpected {} response", other.method().name())),
            ),
        }
    }

    fn refused(&mut self, error: Error) {
        self.state = State::Closed;
        self.events.push_back(Event::Refused(error));
    }

    fn registered(&mut self, now: Instant) {
        self.state = State::Registered { confirmed: false };
        self.was_registered = true;
        self.dirty |= !self.held.is_empty();
        self.next_heartbeat = now + self.interval();
        self.events.push_back(Event::Registered);
    }

    fn failed(&mut self, now: Instant, error: Error) {
        self.next_heartbeat = now + RETRY;
        if let Mode::Client(mode) = &mut self.mode {
            mode.metadata = mode.metadata.min(now + RETRY);
        }
        self.events.push_back(Event::Failed(error));
    }

    fn take_token(&mut self, info: Option<pb::MasterAuthorizedInfo>) {
        if let Some(info) = info {
            self.events.push_back(Event::VisitToken(info.visit_authorized_token));
        }
    }

    fn take_flow(&mut self, group: (Option<i64>, Option<&str>), default: (Option<i64>, Option<&str>)) {
        let new = [self.flow.group.take(group.0, group.1), self.flow.default.take(default.0, default.1)];
        if new.contains(&true) {
            self.events.push_back(Event::Flow(self.flow.clone()));
        }
    }

    fn take_tasks(&mut self, tasks: Option<pb::OpsTaskInfo>) {
        let Some(tasks) = tasks else { return };
        self.take_flow(
            (tasks.group_flow_check_id, tasks.group_flow_control_info.as_deref()),
            (tasks.def_flow_check_id, tasks.def_flow_control_info.as_deref()),
        );
        let Mode::Client(mode) = &mut self.mode else { return };
        if let Some(priority) = tasks.qry_priority_id.filter(|priority| *priority >= 0) {
            self.events.push_back(Event::Priority(priority));
        }
        if let Some(jump) = tasks.csm_frm_max_offset_ctrl_id
            && jump > mode.jump
        {
            // The first number seen is that of an order older than this member, unless it is later
            // than the member's start.
            let is_order = mode.jump != UNDEFINED || jump > self.options.started_ms;
            mode.jump = jump;
            if is_order {
                self.events.push_back(Event::JumpToMax);
            }
        }
    }

    fn take_metadata(
        &mut self,
        now: Instant,
        config: Option<i64>,
        broker_list: &[String],
        table_id: Option<i64>,
        topics: &[String],
    ) {
        let Mode::Client(mode) = &mut self.mode else { return };
        if !broker_list.is_empty() {
            mode.config = config.unwrap_or(mode.config);
            mode.brokers = brokers(broker_list, self.options.identity.default_port);
        }
        if !topics.is_empty() {
            mode.table_id = table_id.unwrap_or(mode.table_id);
            let parsed = topics.iter().filter_map(|text| ConsumerTopic::parse(text).ok());
            mode.table = parsed.map(|topic| (topic.name.clone(), topic)).collect();
        } else if table_id.is_none() && mode.table.is_empty() {
            return;
        }
        let locations = mode.locations(&self.options);
        let complete = self
            .options
            .topics
            .iter()
            .all(|topic| locations.iter().any(|location| *location.topic == **topic));
        if !complete {
            mode.metadata = mode.metadata.min(now + METADATA_RETRY);
        }
        if !mode.checked {
            // A broker that the master does not list at the moment may have them, and so may one
            // that is closed for reading.
            let table = mode.table.values().filter(|topic| self.options.topics.contains(&topic.name));
            let known =
                table.flat_map(|topic| topic.partitions.iter().map(|(partition, _)| *partition)).collect();
            let listed = |partition: &&Partition| mode.brokers.contains_key(&partition.broker);
            let sure = self.options.positions.iter().filter(listed).copied().collect();
            if let Err(error) = check_positions(&sure, &self.options.topics, &known) {
                // Nothing is taken before, as that would move the group.
                let refuse_at = *mode.refuse_at.get_or_insert(now + TOPIC_PATIENCE);
                mode.metadata = mode.metadata.min(now + METADATA_RETRY);
                if now >= refuse_at {
                    self.events.push_back(Event::Refused(error));
                }
                return;
            }
            mode.checked = true;
        }
        let mine: Vec<PartitionLocation> = match self.options.balance {
            Balance::Client(Some((count, node))) => {
                let own = |index: &usize| *index as u32 % count.max(1) == node;
                locations
                    .into_iter()
                    .enumerate()
                    .filter(|(i, _)| own(i))
                    .map(|(_, location)| location)
                    .collect()
            }
            _ => locations,
        };
        if mode.assigned.as_ref() != Some(&mine) {
            mode.assigned = Some(mine.clone());
            self.events.push_back(Event::Assigned(mine));
        }
    }

    fn take_group(&mut self, now: Instant, not_allocated: Option<bool>, priority: Option<i32>) {
        let Mode::Server(mode) = &mut self.mode else { return };
        if let Some(not_allocated) = not_allocated {
            mode.not_allocated = not_allocated;
        }
        if let Some(priority) = priority.filter(|priority| *priority >= 0 && *priority != mode.priority) {
            mode.priority = priority;
            self.events.push_back(Event::Priority(priority));
        }
        if mode.not_allocated {
            self.next_heartbeat = self.next_heartbeat.min(now + HEARTBEAT_UNASSIGNED);
        }
    }

    fn take_event(&mut self, now: Instant, event: Option<pb::EventProto>) {
        let Mode::Server(mode) = &mut self.mode else { return };
        let Some(event) = event else { return };
        let Some(id) = event.rebalance_id.filter(|id| *id > 0) else { return };
        mode.last_id = id;
        let read = |text: &String| SubscribeInfo::parse(text, self.options.identity.default_port).ok();
        let locations: Vec<PartitionLocation> = event
            .subscribe_info
            .iter()
            .filter_map(read)
            .map(|info| PartitionLocation {
                topic: info.topic.into(),
                partition: info.partition,
                broker: info.broker,
            })
            // Partitions of topics that were not subscribed cannot be consumed; the report will
            // omit them.
            .filter(|location| self.options.topics.contains(&*location.topic))
            .collect();
        let todo = match event.op_type {
            Some(CONNECT | ONLY_CONNECT) => Some(Event::Take(locations)),
            Some(DISCONNECT | ONLY_DISCONNECT) => Some(Event::Leave(locations)),
            _ => None,
        };
        match todo {
            Some(todo) => {
                mode.working = Some(event);
                self.events.push_back(todo);
            }
            None => {
                mode.finished = Some(pb::EventProto { status: Some(DONE), ..event });
                self.next_heartbeat = now;
            }
        }
    }

    /// Time at which [`Self::poll_request`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.call_open || self.state == State::Closed {
            return None;
        }
        match &self.mode {
            Mode::Client(mode) if matches!(self.state, State::Registered { .. }) => {
                Some(self.next_heartbeat.min(mode.metadata))
            }
            _ => Some(self.next_heartbeat),
        }
    }

    /// Returns the next event, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

impl ClientMode {
    /// All partitions that may be consumed, in the same order for all members.
    fn locations(&self, options: &Options) -> Vec<PartitionLocation> {
        let mut locations = Vec::new();
        for topic in self.table.values().filter(|topic| options.topics.contains(&topic.name)) {
            let name: Arc<str> = topic.name.as_str().into();
            for (partition, status) in &topic.partitions {
                let broker = self.brokers.get(&partition.broker);
                if let Some(broker) = broker.filter(|_| *status == SUBSCRIBABLE) {
                    let topic = Arc::clone(&name);
                    locations.push(PartitionLocation {
                        topic,
                        partition: *partition,
                        broker: broker.clone(),
                    });
                }
            }
        }
        locations.sort_unstable();
        locations.dedup();
        locations
    }
}
