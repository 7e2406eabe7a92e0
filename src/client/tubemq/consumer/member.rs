//! The member of a group: its partitions, and the tasks that keep it known. One sends heartbeats to
//! the master, and takes and leaves partitions as the balance decides; the other sends heartbeats
//! to the brokers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::events::Signal;
use crate::tubemq::auth;
use crate::tubemq::consumer::partition::{Fetched, PartitionConsumer};
use crate::tubemq::consumer::reconnect::supervise;
use crate::tubemq::options::ConsumerOptions;
use crate::tubemq::shared::Shared;
use forebay_base::clock::{self, wall_ms};
use forebay_base::error::Error;
use forebay_base::random::HashMap;
use forebay_base::sync::{Mutex, Rank};
use forebay_tubemq::balance::{Balance, Event, Member, PartitionLocation};
use forebay_tubemq::consumer::{Options as MachineOptions, Phase, Start, heartbeat};
use forebay_tubemq::flow::Flow;
use forebay_tubemq::topic::SubscribeInfo;
use forebay_tubemq::{Code, Partition, Response};

/// Time for which a partition that is given back waits for its broker.
pub(super) const LEAVE: Duration = Duration::from_secs(3);

pub(super) type Parts = BTreeMap<(Arc<str>, Partition), Arc<PartitionConsumer>>;

/// The part of a consumer that its tasks share.
#[derive(Debug)]
pub(super) struct Core {
    client_id: String,
    pub(super) group: String,
    pub(super) options: ConsumerOptions,
    pub(super) member: Mutex<Member>,
    /// Notified when the member has a request, or fetching may go on.
    pub(super) due: Arc<Notify>,
    pub(super) parts: Mutex<Parts>,
    /// The group's priority, if the master has stated one.
    priority: Mutex<Option<i32>>,
    /// The flow control rules stated by the master.
    flow: Mutex<Flow>,
    /// Partitions that are not read.
    pub(super) paused: Mutex<Paused>,
    pub(super) state: watch::Sender<MemberState>,
    pub(super) fetched: Arc<Fetched>,
    pub(super) closed: AtomicBool,
    /// The caller that opened the consumer has it.
    pub(super) opened: AtomicBool,
    /// The subscribed topics, separated by commas.
    title: String,
    pub(super) shared: Arc<Shared>,
}

/// The partitions that are paused.
#[derive(Debug, Default)]
pub(super) struct Paused {
    pub(super) all: bool,
    pub(super) some: BTreeSet<Partition>,
}

/// State of the member.
#[derive(Clone, Debug)]
pub(super) enum MemberState {
    New,
    Registered,
    /// Its partitions have been assigned.
    Assigned,
    Closed,
    Refused(Error),
}

impl Core {
    pub(super) fn new(
        shared: Arc<Shared>,
        client_id: String,
        group: String,
        title: String,
        options: ConsumerOptions,
        member: Member,
        signal: Signal,
    ) -> Self {
        let due = Arc::new(Notify::new());
        let limit = shared.options.receive_buffer;
        Self {
            client_id,
            group,
            options,
            member: Mutex::leaf(member),
            fetched: Arc::new(Fetched::new(limit, Arc::clone(&due), signal, shared.budget.traffic())),
            due,
            parts: Mutex::new(Rank::Partitions, Parts::new()),
            priority: Mutex::default(),
            flow: Mutex::default(),
            paused: Mutex::default(),
            state: watch::channel(MemberState::New).0,
            closed: AtomicBool::new(false),
            opened: AtomicBool::new(false),
            title,
            shared,
        }
    }

    pub(super) fn signal(&self) -> &Signal {
        &self.fetched.signal
    }

    pub(super) fn is_paused(&self, partition: Partition) -> bool {
        let paused = self.paused.lock();
        paused.all || paused.some.contains(&partition)
    }

    /// The consumer of a partition, created if there is none; `None` once this consumer is closed.
    fn take_location(self: &Arc<Self>, location: PartitionLocation) -> Option<Arc<PartitionConsumer>> {
        let key = (Arc::clone(&location.topic), location.partition);
        let mut parts = self.parts.lock();
        // A consumer is marked as closed before its partitions are taken away, so none is added
        // after that.
        if self.closed.load(Ordering::Acquire) {
            return None;
        }
        if let Some(part) = parts.get(&key) {
            return Some(Arc::clone(part));
        }
        let start = self.options.offsets.get(&location.partition);
        let part = Arc::new(PartitionConsumer::new(
            &self.shared,
            Arc::clone(&self.fetched),
            MachineOptions {
                client_id: self.client_id.clone(),
                group: self.group.clone(),
                filters: Arc::new(self.options.filters.get(&*location.topic).cloned().unwrap_or_default()),
                start: start.map_or(self.options.start, |offset| Start::Offset(*offset)),
                nack_delay: self.options.nack_delay,
                poll_interval: self.options.poll_interval,
                location,
            },
        ));
        {
            let mut machine = part.machine();
            machine.set_paused(self.is_paused(key.1));
            if let Some(priority) = *self.priority.lock() {
                machine.set_priority(priority);
            }
            machine.set_flow(self.flow.lock().clone(), clock::now(), wall_ms() as i64);
        }
        let supervisor = supervise(Arc::downgrade(&part), Arc::clone(&self.shared));
        part.start(self.shared.runtime.spawn(supervisor));
        parts.insert(key, Arc::clone(&part));
        Some(part)
    }

    /// Removes a consumer of a partition, unless another has taken its place meanwhile.
    fn forget(&self, key: &(Arc<str>, Partition), part: &Arc<PartitionConsumer>) {
        let mut parts = self.parts.lock();
        if parts.get(key).is_some_and(|known| Arc::ptr_eq(known, part)) {
            parts.remove(key);
        }
    }

    /// Reports to the member which partitions are held.
    fn report(&self) {
        let held: Vec<PartitionLocation> = self
            .parts
            .lock()
            .values()
            .filter_map(|part| {
                let machine = part.machine();
                machine.is_held().then(|| machine.location().clone())
            })
            .collect();
        self.member.lock().set_held(held);
    }

    /// Holds these partitions and no others.
    fn assign(self: &Arc<Self>, locations: Vec<PartitionLocation>) {
        let wanted: BTreeSet<_> =
            locations.iter().map(|location| (Arc::clone(&location.topic), location.partition)).collect();
        let gone: Vec<Arc<PartitionConsumer>> = {
            let mut parts = self.parts.lock();
            let gone: Vec<_> = parts.keys().filter(|key| !wanted.contains(*key)).cloned().collect();
            gone.iter().filter_map(|key| parts.remove(key)).collect()
        };
        for part in gone {
            self.shared.runtime.spawn(async move { part.leave(LEAVE).await });
        }
        for location in locations {
            // A partition whose broker has another address is closed here and opened there.
            let key = (Arc::clone(&location.topic), location.partition);
            let moved = {
                let mut parts = self.parts.lock();
                let known = parts.get(&key);
                let moved = known.is_some_and(|part| part.machine().location().broker != location.broker);
                if moved { parts.remove(&key) } else { None }
            };
            if let Some(part) = moved {
                part.stop();
            }
            self.take_location(location);
        }
    }

    /// Takes and leaves partitions as the master decided, and reports that to it.
    async fn carry_out(self: Arc<Self>, taken: Vec<PartitionLocation>, left: Vec<PartitionLocation>) {
        for location in left {
            let part = self.parts.lock().remove(&(location.topic, location.partition));
            if let Some(part) = part {
                part.leave(LEAVE).await;
            }
        }
        let limit = self.shared.options.request_timeout;
        for location in taken {
            let key = (Arc::clone(&location.topic), location.partition);
            let Some(part) = self.take_location(location) else { break };
            // The balance assigns a partition again that another member still holds.
            if !matches!(tokio::time::timeout(limit, part.tried()).await, Ok(Ok(()))) {
                self.forget(&key, &part);
                part.leave(LEAVE).await;
            }
        }
        self.report();
        self.member.lock().confirm_event(clock::now());
        self.due.notify_one();
    }

    fn handle_event(self: &Arc<Self>, event: Event) {
        match event {
            Event::Registered => {
                self.state.send_if_modified(|state| {
                    let new = matches!(state, MemberState::New);
                    if new {
                        *state = MemberState::Registered;
                    }
                    new
                });
            }
            Event::Assigned(locations) => {
                self.assign(locations);
                self.state.send_replace(MemberState::Assigned);
            }
            Event::Take(locations) => {
                self.shared.runtime.spawn(Arc::clone(self).carry_out(locations, Vec::new()));
            }
            Event::Leave(locations) => {
                self.shared.runtime.spawn(Arc::clone(self).carry_out(Vec::new(), locations));
            }
            Event::VisitToken(token) => self.shared.visit.set_token(token),
            Event::Priority(priority) => {
                *self.priority.lock() = Some(priority);
                for part in self.parts.lock().values() {
                    part.machine().set_priority(priority);
                }
            }
            Event::Flow(flow) => {
                *self.flow.lock() = flow;
                self.pass_flow();
            }
            Event::JumpToMax => {
                for part in self.parts.lock().values() {
                    part.change(|machine| machine.seek(clock::now(), Start::Max));
                    part.wake();
                }
            }
            Event::Failed(error) => self.shared.refused(&error),
            Event::Refused(error) => {
                self.state.send_replace(MemberState::Refused(error.clone()));
                // The caller that opens the consumer gets the error as its result.
                if self.opened.load(Ordering::Acquire) {
                    self.shared.journal.gave_up(Some(&self.title), &error);
                }
                self.signal().end(error);
            }
        }
    }

    /// Passes the flow control rules to the partitions, with the time of day, by which rules go.
    fn pass_flow(&self) {
        let flow = self.flow.lock().clone();
        for part in self.parts.lock().values() {
            part.machine().set_flow(flow.clone(), clock::now(), wall_ms() as i64);
        }
    }

    /// Leaves the group without waiting for the answer: the consumer was dropped, and is marked as
    /// closed.
    pub(super) fn leave_quietly(self: &Arc<Self>) {
        let core = Arc::clone(self);
        self.shared.runtime.spawn(async move {
            core.member.lock().close(clock::now());
            let certificate =
                auth::certificate(&core.shared.options, &core.shared.visit).await.unwrap_or_default();
            let request = core.member.lock().poll_request(clock::now(), certificate);
            if let Some(request) = request {
                let _ = core.shared.masters.ask(request).await;
            }
        });
    }
}

/// Registers at the master, sends heartbeats, and follows the balance, until the member has left.
pub(super) async fn keep_member(weak: Weak<Core>) {
    while let Some(core) = weak.upgrade() {
        let due = core.member.lock().poll_timeout();
        let Some(due) = due else {
            core.state.send_if_modified(|state| {
                let open = !matches!(state, MemberState::Refused(_));
                if open {
                    *state = MemberState::Closed;
                }
                open
            });
            return;
        };
        // This task is notified when there is room again for partitions that stopped fetching.
        core.parts.lock().values().for_each(|part| part.wake());
        if due > clock::now() {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(due.into()) => {}
                () = core.due.notified() => {}
            }
            continue;
        }
        core.report();
        let asked = match auth::certificate(&core.shared.options, &core.shared.visit).await {
            Ok(certificate) => {
                let request = core.member.lock().poll_request(clock::now(), certificate);
                match request {
                    Some(request) => core.shared.masters.ask(request).await,
                    None => continue,
                }
            }
            Err(error) => Err(error),
        };
        let events: Vec<Event> = {
            let mut member = core.member.lock();
            member.handle_answer(clock::now(), asked);
            std::iter::from_fn(|| member.poll_event()).collect()
        };
        for event in events {
            core.handle_event(event);
        }
    }
}

/// Sends heartbeats to the brokers, so that they keep the partitions for this member.
pub(super) async fn keep_leases(weak: Weak<Core>) {
    loop {
        let Some(interval) = weak.upgrade().map(|core| core.shared.options.heartbeat_interval) else {
            return;
        };
        tokio::time::sleep(interval).await;
        let Some(core) = weak.upgrade() else { return };
        core.pass_flow();
        let mut by_broker: HashMap<u32, Vec<Arc<PartitionConsumer>>> = HashMap::default();
        for ((_, partition), part) in core.parts.lock().iter() {
            if part.machine().is_held() {
                by_broker.entry(partition.broker).or_default().push(Arc::clone(part));
            }
        }
        let mut beats = tokio::task::JoinSet::new();
        for parts in by_broker.into_values() {
            beats.spawn(beat(Arc::clone(&core), parts));
        }
        beats.join_all().await;
        if core.options.balance == Balance::Server {
            core.drop_lost();
        }
    }
}

impl Core {
    /// Drops partitions that another member holds meanwhile: the balance decides again.
    fn drop_lost(&self) {
        let mut lost = Vec::new();
        self.parts.lock().retain(|_, part| {
            let keep = part.machine().phase() != Phase::Occupied;
            if !keep {
                lost.push(Arc::clone(part));
            }
            keep
        });
        for part in lost {
            part.stop();
        }
    }
}

/// Sends one heartbeat for the partitions of one broker.
async fn beat(core: Arc<Core>, parts: Vec<Arc<PartitionConsumer>>) {
    let Some(connection) = parts.iter().find_map(|part| part.connection()) else { return };
    let name = |part: &Arc<PartitionConsumer>| part.machine().location().info().to_string();
    let names: Vec<String> = parts.iter().map(name).collect();
    let priority = parts.first().and_then(|part| part.machine().priority());
    let request = heartbeat(&core.client_id, &core.group, names.clone(), priority, core.shared.visit.info());
    let Ok(Response::PartitionHeartbeat(response)) = connection.request(request).await else { return };
    if response.require_auth() || Code::from_number(response.err_code) == Some(Code::CertificateFailure) {
        core.shared.refresh();
    }
    let now = clock::now();
    for failure in &response.failure_info {
        let Ok((code, info)) = SubscribeInfo::parse_failure(failure, core.shared.identity.default_port)
        else {
            continue;
        };
        let name = info.to_string();
        if let Some(index) = names.iter().position(|known| *known == name) {
            parts[index].change(|machine| machine.lost(now, Code::from_number(code)));
            parts[index].wake();
        }
    }
}
