//! TubeMQ's side of the broker, sans-IO: master and broker in one.
//!
//! * `master`: registration of producers and consumers, and the topics they are told of
//! * [`balance`]: groups, their members, and the assignment of partitions by the master
//! * `produce`: messages from producers
//! * `consume`: registered partitions, and messages to consumers
//! * `topics`, `partition`: topics and their partitions
//! * `web`: HTTP, with the requests of the page for operators
//! * `users`: passwords; `permitted`: what users may do; `owners`: which user each group belongs
//!   to; `visits`: what stands for them at the broker; `status`: figures; [`options`]; `service`:
//!   for the server
//!
//! A [`Broker`] has no sockets, disk or clock; [`crate::protocol`] describes the poll order.
//!
//! A message's offset is 28 times its number in the partition, because clients take offsets for
//! positions in an index of 28 bytes for each message. The real broker counts over all partitions
//! of a store; here each partition has its own count, so that the backlog is exact. There is one
//! broker, with id 1 and one store.
//!
//! A call succeeds once its message or offset is on disk. An offset that a get carries is written
//! soon after.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;

use crate::http::message::{self as http, Answer};
use crate::log::{CACHE_BYTES, Source};
use crate::pending_writes::PendingWrites;
use crate::permissions::{Decisions, Permissions};
use crate::protocol::{Clock, Entry, OUTPUT_LIMIT, Protocol, Topics};
use crate::stats::{ClientStats, ProtocolStats, TopicStats, Traffic};
use crate::store::{Found, Op};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::machine::earliest;
use forebay_base::random::HashMap;
use forebay_base::transmit::Transmit;
use forebay_sqlite::Report;
use forebay_tubemq::command::{Call, Exception, Reply, Request, Response, Service, sender};
use forebay_tubemq::frame::Decoder;
use forebay_tubemq::{Code, PROTOCOL_VERSION, pb};

pub mod balance;
mod consume;
mod master;
pub mod options;
mod owners;
mod partition;
mod permitted;
mod produce;
pub(super) mod service;
mod status;
mod topics;
mod users;
mod visit_tokens;
mod web;

use balance::Group;
use partition::{Partition, Refusal, Topic};
use visit_tokens::VisitTokens;

pub use options::Settings;
pub use users::Users;

/// Domain of TubeMQ's topics in the store.
const DOMAIN: &str = "tubemq";
/// Prefix of the names of TubeMQ's topics in administration and status.
const PREFIX: &str = "tubemq:";

/// Bytes that a call may have in addition to the largest message.
const CALL_ROOM: usize = 64 << 10;
/// Bytes of all stored logs that stay in memory.
const CACHE_TOTAL: usize = 64 << 20;
/// Interval of the removal of old messages.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// Interval of the removal of unused groups.
const GROUPS_PERIOD: Duration = Duration::from_secs(60);
/// Delay until an offset that a get carried is written.
const OFFSET_DELAY: Duration = Duration::from_millis(100);
/// Interval at which the master's token changes. Each token is valid for two intervals.
const TOKEN_PERIOD: Duration = Duration::from_secs(300);

/// Time limit for the first call that the master or the broker admits.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Largest call of a stranger: of a connection without such a call, from a host that is not known.
const FIRST_CALL: usize = 64 << 10;
/// Bytes beyond that which all connections without such a call may have waiting.
const EARLY_TOTAL: usize = 16 << 20;
/// Output bytes queued for a stranger beyond which it is not read from.
const FIRST_OUTPUT: usize = 16 << 10;
/// Time for which a host is known after a call of it was admitted.
const KNOWN: Duration = Duration::from_secs(600);
/// Least time without a call after which a connection is closed. It is ten times `client_timeout`
/// if that is longer.
const IDLE: Duration = Duration::from_secs(60);

/// The owner of each group that has one, and `None` for groups that are free.
type Owners = HashMap<Arc<str>, Option<Arc<str>>>;

/// A client's connection.
///
/// ```text
/// stranger --first admitted call--> introduced --no call for the idle limit--> closed
///    +--10 s; from a known host the idle limit, but 10 s from a refused call-^
/// ```
/// Without users every call is admitted, with users one that has a valid signature or visit token.
/// Producers open a connection before they send, and their first message may be large: so
/// connections from hosts of which a call was admitted lately may be silent and send large calls,
/// whose waiting bytes are bounded over all connections. So may a connection send large messages
/// that names a registered client: clients reach the master and the broker from different addresses
/// behind some networks.
#[derive(Debug)]
struct Connection {
    entry: Entry,
    /// Address of the client, without the port.
    host: String,
    opened_at: Instant,
    /// When its last call came.
    heard_at: Instant,
    /// Whether a call was admitted.
    introduced: bool,
    /// When the first call came that was not admitted, if none was before.
    refused_at: Option<Instant>,
    /// Bytes beyond [`FIRST_CALL`] that wait before a call was admitted.
    early: usize,
    decoder: Decoder,
    output: Transmit,
    /// Whether received calls wait because too much output is queued, or until others have had
    /// their turn.
    behind: bool,
    /// Bytes of messages that the gets of this turn have looked at: their filters may leave most of
    /// them out.
    work: usize,
    /// The last valid visit token of a call on this connection. If there are users, messages and
    /// offsets are for connections whose token is still valid.
    visit: Option<i64>,
    /// Topics that its user may send to, and that user.
    decisions: (Arc<str>, Decisions),
}

impl Connection {
    /// Whether so much output is queued that nothing more is read.
    fn is_full(&self) -> bool {
        self.output.len() > if self.introduced { OUTPUT_LIMIT } else { FIRST_OUTPUT }
    }
}

/// The connection and serial number that a response is for.
#[derive(Clone, Copy, Debug)]
struct CallId {
    connection: u64,
    serial: u32,
}

/// An action that waits for the store.
#[derive(Debug)]
enum Action {
    /// Makes a written message available to consumers and answers its producer.
    Sent { partition: u64, sequence: u64, stored_ms: u64, call_id: CallId },
    /// Makes a written message available that no client has sent.
    Published { partition: u64, sequence: u64 },
    /// Sends a response that depends on a written change.
    Answer { call_id: CallId, response: Box<Response> },
}

/// TubeMQ's master and broker, as the [module](self) describes.
#[derive(Debug)]
pub struct Broker {
    settings: Settings,
    source: Option<Box<dyn Source>>,
    /// The first message that could not be read from the store.
    damage: Option<String>,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    /// The connection whose call is being handled.
    caller: u64,
    /// Hosts of which a call was admitted, and until when they are known.
    hosts: HashMap<String, Instant>,
    /// Sum of [`Connection::early`].
    early: usize,
    topics: BTreeMap<Arc<str>, Topic>,
    /// Partitions by topic id.
    partitions: BTreeMap<u64, Partition>,
    /// Registered producers, and when their registration expires.
    producers: HashMap<String, Instant>,
    groups: BTreeMap<Arc<str>, Group>,
    owners: Owners,
    next_event: i64,
    /// If there are users: the user who registered a client id, and until when.
    clients: HashMap<String, (Arc<str>, Instant)>,
    visits: VisitTokens,
    tokens_at: Instant,
    commits: PendingWrites<Action>,
    wakes: VecDeque<u64>,
    /// Moved offsets that are not issued yet: partition and group.
    dirty: BTreeSet<(u64, Arc<str>)>,
    flush_at: Option<Instant>,
    housekeeping_at: Instant,
    groups_at: Instant,
    run_at: Instant,
    now: Instant,
    counters: Traffic,
}

impl Broker {
    /// Creates a broker with the topics that were `found`.
    pub fn new(settings: Settings, found: Found, source: Option<Box<dyn Source>>, now: Instant) -> Self {
        let mut broker = Self {
            source,
            damage: None,
            connections: BTreeMap::new(),
            next_connection: 1,
            caller: 0,
            hosts: HashMap::default(),
            early: 0,
            topics: BTreeMap::new(),
            partitions: BTreeMap::new(),
            producers: HashMap::default(),
            groups: BTreeMap::new(),
            owners: Owners::default(),
            next_event: 1,
            clients: HashMap::default(),
            visits: VisitTokens::new(settings.seed),
            tokens_at: now + TOKEN_PERIOD,
            commits: PendingWrites::new(settings.usage.clone(), settings.stored, found.bytes),
            wakes: VecDeque::new(),
            dirty: BTreeSet::new(),
            flush_at: None,
            housekeeping_at: now + HOUSEKEEPING,
            groups_at: now + GROUPS_PERIOD,
            run_at: settings.clock.note_at(now),
            now,
            counters: Traffic::default(),
            settings,
        };
        broker.restore(found);
        broker
    }

    fn wall_ms(&self) -> u64 {
        self.settings.clock.wall_ms(self.now)
    }

    fn handle_call(&mut self, call_id: CallId, call: Call, bytes: usize) {
        let service = call.request.method().service();
        // Like the real broker, accept messages through the consumers' service, too.
        let served = match (service, call.service) {
            (Service::BrokerWrite, Some(number)) => {
                number == Service::BrokerWrite as i32 || number == Service::BrokerRead as i32
            }
            (service, number) => number == Some(service as i32),
        };
        if !served {
            let text = format!("service {:?} has no method {:?}", call.service, call.request.method());
            return self.refuse(call_id, call.version, false, "corerpc.exception.ServiceException", text);
        }
        if self.settings.users.is_none() || self.admitted(false).is_some() {
            self.introduce();
        }
        let response = match call.request {
            Request::ProducerRegister(request) => self.producer_register(request),
            Request::ProducerHeartbeat(request) => self.producer_heartbeat(request),
            Request::ProducerClose(request) => self.producer_close(request),
            Request::ConsumerRegister(request) => self.consumer_register(*request),
            Request::ConsumerHeartbeat(request) => self.consumer_heartbeat(*request),
            Request::ConsumerClose(request) => self.consumer_close(request),
            Request::BalanceRegister(request) => self.balance_register(*request),
            Request::BalanceHeartbeat(request) => self.balance_heartbeat(*request),
            Request::PartitionMetadata(request) => self.partition_metadata(request),
            Request::SendMessage(request) => return self.send_message(call_id, *request, bytes),
            Request::PartitionRegister(request) => return self.partition_register(call_id, *request),
            Request::PartitionHeartbeat(request) => self.partition_heartbeat(call_id, *request),
            Request::GetMessages(request) => self.get_messages(call_id, &request),
            Request::CommitOffset(request) => return self.commit_offset(call_id, &request),
            Request::BrokerRegister(_) | Request::BrokerHeartbeat(_) | Request::BrokerClose(_) => {
                let text =
                    "the embedded master is its own only broker: no other broker can register".to_owned();
                return self.refuse(call_id, call.version, false, "corerpc.exception.ServiceException", text);
            }
        };
        self.answer(call_id, response);
    }

    /// Sends a response immediately.
    fn answer(&mut self, call_id: CallId, response: Response) {
        self.reply(call_id, &Reply::response(response));
    }

    /// Sends a response once every change issued so far is written.
    fn answer_written(&mut self, call_id: CallId, response: Response) {
        self.when_written(Action::Answer { call_id, response: Box::new(response) });
    }

    /// Reports that the RPC itself failed. The class name depends on the caller's version, as in
    /// the real servers.
    fn refuse(&mut self, call_id: CallId, version: Option<i32>, fatal: bool, class: &str, text: String) {
        let package = match version {
            Some(1) => "com.tencent.tubemq",
            Some(2) => "com.apache.tubemq",
            _ => "org.apache.inlong.tubemq",
        };
        let exception = Exception {
            fatal,
            version: (!fatal).then_some(PROTOCOL_VERSION),
            name: format!("{package}.{class}"),
            text: Some(text),
        };
        self.reply(call_id, &Reply::Exception(exception));
    }

    fn reply(&mut self, call_id: CallId, reply: &Reply) {
        let Some(connection) = self.connections.get_mut(&call_id.connection) else { return };
        if connection.output.is_empty() {
            self.wakes.push_back(call_id.connection);
        }
        let encoded = reply.encode(call_id.serial, &mut connection.output);
        debug_assert!(encoded.is_ok(), "responses fit into a frame");
    }

    fn when_written(&mut self, action: Action) {
        if let Some(action) = self.commits.when_written(action) {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Sent { partition, sequence, stored_ms, call_id } => {
                let response = self.sent(partition, sequence, stored_ms);
                self.answer(call_id, response);
            }
            Action::Published { partition, sequence } => self.published(partition, sequence),
            Action::Answer { call_id, mut response } => {
                if let Some(error) = self.commits.failure() {
                    fail(&mut response, Code::InternalServerError, error.message());
                }
                self.answer(call_id, *response);
            }
        }
    }

    /// Checks the visit token of a call and gives its user. If it is valid, it admits the
    /// connection: calls that carry no token (`get`, `commit`) are answered on admitted connections
    /// only. Without users every connection is admitted.
    fn check_visit(
        &mut self,
        call_id: CallId,
        info: Option<&pb::AuthorizedInfo>,
    ) -> Result<Arc<str>, Refusal> {
        let Some(users) = &self.settings.users else { return Ok(self.visits.anyone()) };
        let token = info.map(|info| info.visit_authorized_token);
        let user = token.and_then(|token| self.visits.user(token)).filter(|user| users.contains(user));
        let user = user.or_else(|| self.admitted(false));
        let Some(user) = user else {
            let text = "the visit token is not one that this master issued: register with the master again";
            return Err((Code::CertificateFailure, text.to_owned()));
        };
        if let Some(connection) = self.connections.get_mut(&call_id.connection) {
            connection.visit = token;
        }
        self.introduce();
        Ok(user)
    }

    /// The entry of the present connection.
    fn entry(&self) -> Option<&Entry> {
        Some(&self.connections.get(&self.caller)?.entry)
    }

    /// The user of the present connection if its listener admits it without a signature, which it
    /// `has` or not.
    fn admitted(&self, has_signature: bool) -> Option<Arc<str>> {
        let Entry { user, anonymous, .. } = self.entry()?;
        let unknown = !has_signature || self.settings.users.as_ref().is_none_or(|users| users.len() == 0);
        user.clone().or_else(|| (*anonymous && unknown).then(|| self.visits.anyone()))
    }

    /// Notes that a call of the present connection was admitted.
    fn introduce(&mut self) {
        let Some(connection) = self.connections.get_mut(&self.caller) else { return };
        if connection.introduced {
            return;
        }
        connection.introduced = true;
        connection.decoder.set_max_payload(self.settings.max_message_size + CALL_ROOM);
        self.early -= std::mem::take(&mut connection.early);
        self.hosts.insert(connection.host.clone(), self.now + KNOWN);
    }

    fn is_known(&self, host: &str) -> bool {
        self.hosts.get(host).is_some_and(|until| *until > self.now)
    }

    /// Whether `input` begins with a message of a registered client. Its connection may come from
    /// another address than that to the master did.
    fn is_of_client(&self, input: &[u8]) -> bool {
        sender(input).and_then(|client| self.clients.get(client)).is_some_and(|(_, until)| *until > self.now)
    }

    fn idle_limit(&self) -> Duration {
        (self.settings.client_timeout * 10).max(IDLE)
    }

    /// Bounds the bytes that wait on connections without an admitted call.
    fn check_early(&mut self, id: u64, waiting: usize) -> Result<()> {
        let Some(connection) = self.connections.get_mut(&id).filter(|connection| !connection.introduced)
        else {
            return Ok(());
        };
        let early = waiting.saturating_sub(FIRST_CALL);
        self.early = self.early - connection.early + early;
        connection.early = early;
        let limit = EARLY_TOTAL.max(2 * self.settings.max_message_size);
        if early > 0 && self.early > limit {
            let text =
                format!("connections that have not made a call yet have more than {limit} bytes waiting");
            return Err(too_many(text));
        }
        Ok(())
    }

    /// The user of a call without a token: the one whose token the connection has shown, while it
    /// is valid.
    fn check_admitted(&self, call_id: CallId) -> Result<Arc<str>, Refusal> {
        let Some(users) = &self.settings.users else { return Ok(self.visits.anyone()) };
        let token = self.connections.get(&call_id.connection).and_then(|connection| connection.visit);
        let user = token.and_then(|token| self.visits.user(token)).filter(|user| users.contains(user));
        let user = user.or_else(|| self.admitted(false));
        let text =
            "this connection has not shown a visit token that is still valid: register the partition first";
        user.ok_or_else(|| (Code::CertificateFailure, text.to_owned()))
    }

    /// How long brokers have run on the store, in milliseconds: ages are counted by it.
    fn run_ms(&self) -> u64 {
        self.settings.clock.run_ms(self.now)
    }

    /// Notes how long brokers have run on the store, if something in it ages.
    fn note_run(&mut self) {
        self.run_at = self.settings.clock.note_at(self.now);
        let ages = |partition: &Partition| {
            partition.log.next() > partition.log.first() || !partition.offsets.is_empty()
        };
        let may_write = self.commits.failure().is_none() && !self.commits.is_stalled();
        if self.settings.stored && may_write && self.partitions.values().any(ages) {
            let run_ms = self.run_ms();
            self.commits.write(Op::Run(run_ms));
        }
    }

    fn housekeeping(&mut self) {
        if self.tokens_at <= self.now {
            self.tokens_at = self.now + TOKEN_PERIOD;
            self.visits.turn();
        }
        self.forget_clients();
        let now = self.now;
        self.hosts.retain(|_, until| *until > now);
        let in_use = self.connections.values().filter(|connection| connection.introduced);
        for host in in_use.map(|connection| &connection.host) {
            if let Some(until) = self.hosts.get_mut(host) {
                *until = now + KNOWN;
            }
        }
        if self.groups_at <= self.now && self.commits.failure().is_none() {
            self.groups_at = self.now + GROUPS_PERIOD;
            self.forget_groups();
            self.forget_owners();
        }
        if self.run_at <= self.now {
            self.note_run();
        }
        let before = self.run_ms().saturating_sub(self.settings.retention.as_millis() as u64);
        // When space is short, messages that every group has consumed are removed early.
        let short = self.commits.used() > self.commits.limit(self.settings.max_store) / 4 * 3;
        let (mut cache, mut trims) = (0, Vec::new());
        for (id, partition) in &mut self.partitions {
            if let Some(first) = partition.cut(&mut self.source, before, short) {
                partition.log.trim(first);
                let (next, next_index) = (partition.log.next(), partition.log.next_index());
                trims.push(Op::Trim { topic: *id, first, next, next_index });
            }
            cache += partition.log.cache_bytes();
        }
        if self.settings.stored && cache > CACHE_TOTAL {
            let share = (CACHE_TOTAL / self.partitions.len().max(1)).min(CACHE_BYTES);
            self.partitions.values_mut().for_each(|partition| partition.log.shrink(share));
        }
        if !self.settings.stored {
            self.commits.set_used(cache as u64);
        }
        if self.commits.failure().is_none() {
            trims.into_iter().for_each(|trim| self.commits.write(trim));
        }
    }
}

/// Turns a response into a refusal.
fn fail(response: &mut Response, code: Code, text: &str) {
    macro_rules! flagged {
        ($($name:ident),+) => {
            match response {
                $(Response::$name(response) => {
                    response.success = false;
                    response.err_code = code as i32;
                    response.err_msg = text.into();
                })+
                _ => debug_assert!(false, "only responses that depend on the store wait"),
            }
        };
    }
    flagged!(SendMessage, PartitionRegister, CommitOffset);
}

impl Protocol for Broker {
    fn connect(&mut self, now: Instant, address: &str) -> u64 {
        let id = self.next_connection;
        self.next_connection += 1;
        let connection = Connection {
            entry: Entry::default(),
            host: address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned(),
            opened_at: now,
            heard_at: now,
            introduced: false,
            refused_at: None,
            early: 0,
            decoder: Decoder::new(FIRST_CALL),
            output: Transmit::default(),
            behind: false,
            work: 0,
            visit: None,
            decisions: (self.visits.anyone(), Decisions::default()),
        };
        self.connections.insert(id, connection);
        id
    }

    fn enter(&mut self, id: u64, entry: Entry) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.entry = entry;
        }
    }

    fn disconnect(&mut self, now: Instant, id: u64) {
        // Clients may reconnect, so their leases end by timeout only.
        self.now = now;
        if let Some(connection) = self.connections.remove(&id) {
            self.early -= connection.early;
        }
    }

    fn handle_input(&mut self, now: Instant, id: u64, input: &mut BytesMut) -> Result<()> {
        self.now = now;
        self.caller = id;
        let trusted = self.settings.users.is_none()
            || self.admitted(false).is_some()
            || self.connections.get(&id).is_some_and(|stranger| {
                !stranger.introduced && (self.is_known(&stranger.host) || self.is_of_client(input))
            });
        if trusted && let Some(connection) = self.connections.get_mut(&id) {
            connection.decoder.set_max_payload(self.settings.max_message_size + CALL_ROOM);
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.work = 0;
        }
        while let Some(connection) = self.connections.get_mut(&id) {
            // A get is short and its response is long, or long to look for. Read the remaining
            // calls once this output is written, or once other connections have had their turn.
            let full = connection.is_full();
            let pause = full || connection.work > OUTPUT_LIMIT;
            // Without input, no call comes that could reset it.
            connection.behind = pause && !input.is_empty();
            if pause {
                if !full {
                    self.wakes.push_back(id);
                }
                break;
            }
            let Some(frame) = connection.decoder.next(input)? else { break };
            connection.heard_at = now;
            let call_id = CallId { connection: id, serial: frame.serial };
            match Call::decode(&frame.payload) {
                Ok(call) => self.handle_call(call_id, call, frame.payload.len()),
                Err(error) => {
                    let class = "corerpc.exception.UnknownProtocolException";
                    self.refuse(call_id, None, true, class, error.message().to_owned());
                }
            }
            if let Some(connection) = self.connections.get_mut(&id).filter(|stranger| !stranger.introduced) {
                connection.refused_at.get_or_insert(now);
            }
        }
        self.check_early(id, input.len())
    }

    fn handle_session_timeout(&mut self, now: Instant, id: u64) -> Result<()> {
        self.now = now;
        if self.session_timeout(id).is_none_or(|at| at > now) {
            return Ok(());
        }
        let introduced = self.connections.get(&id).is_some_and(|connection| connection.introduced);
        let text = if introduced {
            format!("no call within {:?}", self.idle_limit())
        } else {
            format!("no call that was admitted within {HANDSHAKE:?}")
        };
        Err(Error::new(ErrorKind::Timeout, text))
    }

    fn session_timeout(&self, id: u64) -> Option<Instant> {
        let connection = self.connections.get(&id)?;
        let idle = connection.heard_at + self.idle_limit();
        if connection.introduced {
            // A client is not idle while the broker does not read from it.
            let reads = !self.commits.is_paused(id) && !connection.behind && !connection.is_full();
            return reads.then_some(idle);
        }
        let known = self.is_known(&connection.host);
        let since = if known { connection.refused_at } else { Some(connection.opened_at) };
        earliest(since.map(|at| at + HANDSHAKE), known.then_some(idle))
    }

    fn held(&self, id: u64) -> usize {
        self.connections.get(&id).map_or(0, |connection| connection.output.copied())
    }

    fn may_read(&mut self, id: u64) -> bool {
        let Some(connection) = self.connections.get(&id) else { return true };
        self.commits.may_read(id) && !connection.behind && !connection.is_full()
    }

    fn finished(&self, _id: u64) -> bool {
        false
    }

    fn take_output(&mut self, now: Instant, id: u64, output: &mut Transmit) {
        self.now = now;
        if let Some(connection) = self.connections.get_mut(&id) {
            if connection.is_full() {
                connection.heard_at = now;
            }
            std::mem::swap(&mut connection.output, output);
        }
    }

    fn set_users(&mut self, now: Instant, file: &str) -> Result<usize> {
        self.now = now;
        let Some(old) = &mut self.settings.users else {
            let text = "the broker was started without tubemq_user_file";
            return Err(Error::new(ErrorKind::NotAllowed, text));
        };
        let users = Users::parse(file)?;
        let count = users.len();
        // Calls of the master are signed each time. Client ids still belong to their users,
        // whatever the password.
        self.visits.keep(|user| users.agree(old, user));
        *old = users;
        Ok(count)
    }

    fn set_permissions(&mut self, now: Instant, permissions: Arc<Permissions>) {
        self.now = now;
        self.change_permissions(permissions);
    }

    fn poll_op(&mut self) -> Option<Op> {
        self.commits.poll_op()
    }

    fn poll_wake(&mut self) -> Option<u64> {
        self.wakes.pop_front()
    }

    fn handle_report(&mut self, now: Instant, report: Report) {
        self.now = now;
        self.commits.handle_report(report);
        while let Some(action) = self.commits.poll_action() {
            self.act(action);
        }
        for id in self.commits.take_resumed() {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.heard_at = now;
            }
            self.wakes.push_back(id);
        }
    }

    fn set_clock(&mut self, clock: Clock) {
        self.settings.clock = clock;
    }

    fn poll_timeout(&self) -> Option<Instant> {
        earliest(Some(self.housekeeping_at), self.flush_at)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if self.flush_at.is_some_and(|at| at <= now) {
            if self.commits.is_stalled() {
                // Offsets would pile up that no connection is charged for: the last one of each
                // group is enough.
                self.flush_at = Some(now + OFFSET_DELAY);
            } else {
                self.flush_offsets();
            }
        }
        if self.housekeeping_at <= now {
            self.housekeeping_at = now + HOUSEKEEPING;
            self.housekeeping();
        }
    }

    fn shut_down(&mut self, now: Instant) {
        self.now = now;
        self.flush_offsets();
        self.note_run();
    }

    fn used_bytes(&self) -> u64 {
        self.commits.used()
    }

    fn issued(&self) -> u64 {
        self.commits.issued()
    }

    fn written(&self) -> u64 {
        self.commits.written()
    }

    fn failure(&self) -> Option<&Error> {
        self.commits.failure()
    }

    fn stats(&self) -> ProtocolStats {
        self.stats()
    }

    fn client(&self, id: u64) -> ClientStats {
        let user = self.connections.get(&id).and_then(|connection| {
            let visitor = connection.visit.and_then(|token| self.visits.user(token));
            visitor.or_else(|| connection.entry.user.clone())
        });
        let user = user.filter(|user| !user.is_empty()).map(|user| user.to_string());
        let admitted = self.connections.get(&id).is_some_and(|connection| connection.introduced);
        ClientStats { admitted, user, ..ClientStats::default() }
    }

    fn farewell(&self, id: u64) -> Option<&str> {
        let connection = self.connections.get(&id)?;
        let refused = !connection.introduced && connection.refused_at.is_some();
        refused.then_some("no call had a valid signature: set username and password")
    }

    fn handle_http(&mut self, now: Instant, request: &http::Request) -> Option<Answer> {
        self.answer_http(now, request)
    }

    fn topics(&self) -> Option<&dyn Topics> {
        Some(self)
    }

    fn topics_mut(&mut self) -> Option<&mut dyn Topics> {
        Some(self)
    }
}

impl Topics for Broker {
    fn create_topic(&mut self, name: &str, partitions: u32) -> Result<()> {
        self.create_topic(name, partitions)
    }

    fn grow_topic(&mut self, name: &str, partitions: u32) -> Result<()> {
        self.grow_topic(name, partitions)
    }

    fn delete_topic(&mut self, name: &str) -> Result<()> {
        self.delete_topic(name)
    }

    fn list(&self) -> Vec<(String, u32)> {
        self.topics()
    }

    fn topic_stats(&self, name: &str) -> Result<TopicStats> {
        self.topic_stats(name)
    }
}

fn too_many(text: String) -> Error {
    Error::new(ErrorKind::TooManyRequests, text)
}
