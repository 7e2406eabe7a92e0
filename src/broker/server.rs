//! The broker's thread: opens the store, listens, runs every protocol and answers administration.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::sync::{Notify, mpsc as queue};
use tokio::task::{JoinError, JoinSet};

use crate::admission::{Admission, ConnectionLimits};
use crate::auth::TokenKeys;
use crate::budget::{self, Budget};
use crate::free_space::Disk;
use crate::http::guard::Guard;
use crate::http::server::Http;
use crate::listener::{Port, accept};
use crate::listeners::{Keys, Listener, ServerTls, Urls, check_advertised, check_public};
use crate::log::TopicIds;
use crate::logger::{self, Logger, Record};
use crate::options::{Durability, Options};
use crate::permissions::Permissions;
use crate::protocol::{Clock, Protocol, Topics};
use crate::registry::{Registry, Running, no_owner};
use crate::runner::{OnWritten, Runner};
use crate::service::{Context, Framing, ListenerSpec, Service};
use crate::stats::{Stats, TopicStats};
use crate::store::queue::{Reports, StoreQueue};
use crate::store::{DATABASE, Database, StoreUsage};
use crate::tls::{Current, Tls};
use crate::{mqtt, pulsar, tubemq};
use forebay_base::clock::{self, wall_ms};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::random;
use forebay_sqlite::Sync;
use tracing::Level;

/// Gives a protocol with its options.
type Configure = fn(&Options) -> Result<Box<dyn Service>>;

/// Every protocol that the broker speaks, by the name that its figures have in the status. A name
/// of a topic belongs to the last protocol whose prefix it begins with.
const PROTOCOLS: [(&str, Configure); 3] = [
    ("pulsar", pulsar::service::service),
    ("mqtt", mqtt::service::service),
    ("tubemq", tubemq::service::service),
];

/// Time that shutdown waits for final packets to reach slow clients.
const FINAL_PACKETS: Duration = Duration::from_secs(1);
/// Descriptors that connections leave free, for the store and for the rest of the process.
const SPARE_DESCRIPTORS: usize = 16;
/// Connections that are permitted however few descriptors are free.
const LEAST_CONNECTIONS: usize = 8;
/// Time that shutdown waits for one commit of the store.
const FINAL_COMMIT: Duration = Duration::from_secs(5);

/// A request to the broker's thread, with the channel for its answer.
pub(super) enum Request {
    CreateTopic(String, u32, mpsc::SyncSender<Result<()>>),
    GrowTopic(String, u32, mpsc::SyncSender<Result<()>>),
    DeleteTopic(String, mpsc::SyncSender<Result<()>>),
    TerminateTopic(String, mpsc::SyncSender<Result<()>>),
    Topics(mpsc::SyncSender<Vec<(String, u32)>>),
    TopicStats(String, mpsc::SyncSender<Result<TopicStats>>),
    Stats(mpsc::SyncSender<Stats>),
    SetUsers(&'static str, String, mpsc::SyncSender<Result<usize>>),
    SetPermissions(String, mpsc::SyncSender<Result<usize>>),
    SetKeys(Keys, mpsc::SyncSender<Result<(usize, usize)>>),
}

/// Runs the broker until the channel of requests closes.
pub(super) fn run(
    options: Options,
    requests: queue::UnboundedReceiver<Request>,
    started: &mpsc::SyncSender<Result<Urls>>,
) {
    let runtime =
        match tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = started.send(Err(error.into()));
                return;
            }
        };
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, serve(options, requests, |urls| drop(started.send(urls))));
}

/// Runs the broker on the calling task and the local tasks beside it.
pub(super) async fn serve(
    options: Options,
    requests: queue::UnboundedReceiver<Request>,
    started: impl FnOnce(Result<Urls>),
) {
    match Server::start(&options).await {
        Ok((server, urls)) => {
            started(Ok(urls));
            server.serve(requests).await;
        }
        Err(error) => started(Err(error)),
    }
}

/// A protocol with its listeners, before the store is open.
struct Bound {
    name: &'static str,
    service: Box<dyn Service>,
    ports: Vec<Port>,
    /// Whether a listener takes its clients' names from their certificates.
    certificates: bool,
}

/// All listeners, before the store is open.
struct Bindings {
    /// Protocols that have a listener.
    protocols: Vec<Bound>,
    http: Vec<Port>,
    urls: Urls,
    /// Of the listeners, in their order.
    certificates: Vec<Option<Tls>>,
}

/// Certificates and token keys as the broker uses them.
struct KeysInUse {
    certificates: Vec<Option<Tls>>,
    tokens: Option<Arc<TokenKeys>>,
}

impl KeysInUse {
    fn replace(&self, with: &Keys) -> Result<(usize, usize)> {
        let asks = |tls: &ServerTls| tls.client_ca.is_some();
        let same = self.certificates.len() == with.certificates.len()
            && self
                .certificates
                .iter()
                .zip(&with.certificates)
                .all(|(old, new)| old.as_ref().map(Tls::names_users) == new.as_ref().map(asks));
        if !same || self.tokens.is_some() != with.token_key.is_some() {
            let text = "certificates and token keys can be replaced, but not added or removed: start the broker again";
            return Err(Error::new(ErrorKind::NotAllowed, text));
        }
        // All of them are read before one is replaced.
        let renewed = with.certificates.iter().flatten().map(Current::new).collect::<Result<Vec<_>>>()?;
        let keys = with.token_key.as_deref().map(TokenKeys::new).transpose()?;
        let counts = (renewed.len(), keys.as_ref().map_or(0, TokenKeys::count));
        self.certificates.iter().flatten().zip(renewed).for_each(|(tls, current)| tls.renew(current));
        if let (Some(tokens), Some(keys)) = (&self.tokens, &keys) {
            tokens.replace(keys);
            log_keys("reloaded", keys);
        }
        Ok(counts)
    }
}

/// Logs the kinds of the keys that tokens are verified with, so that a key that was read as another
/// kind is noticed.
fn log_keys(what: &str, keys: &TokenKeys) {
    let algorithms = keys.algorithms();
    logger::write(Level::INFO, Logger::Broker, || {
        Record::new(format!("{what} token_key: {algorithms}"))
            .with("event", "token_keys")
            .with("algorithms", &algorithms)
    });
}

/// A protocol that is open on the store, before its tasks run.
struct Opened {
    name: &'static str,
    topic_prefix: Option<&'static str>,
    protocol: Box<dyn Protocol>,
    ports: Vec<Port>,
}

/// The running broker.
struct Server {
    registry: Rc<Registry>,
    keys: KeysInUse,
    /// Notified of every report of the store.
    written: Rc<Notify>,
    /// Tasks that end when shutdown begins: listeners and clocks.
    listening: JoinSet<()>,
    /// Tasks that hand over the store's reports until everything is written.
    reporting: JoinSet<()>,
}

impl Server {
    async fn start(options: &Options) -> Result<(Self, Urls)> {
        let tokens = options.token_key.as_deref().map(TokenKeys::new).transpose()?;
        let tokens = tokens.map(|keys| Arc::new(keys.with_audience(options.token_audience.clone())));
        let permissions = options.acl.as_deref().map(Permissions::parse).transpose()?.map(Arc::new);
        let Bindings { protocols: bound, http, urls, certificates } = bind(options).await?;
        let database = open_database(options)?;
        let usage = StoreUsage::default();
        let run_before = database.as_ref().map_or(Ok(0), Database::run_ms)?;
        let clock = Clock::new(clock::now(), wall_ms()).after_run(run_before);
        let max_store = options.max_store.unwrap_or(if database.is_some() { 10 << 30 } else { 1 << 30 });
        let common = Common {
            usage: &usage,
            max_store,
            clock,
            urls: &urls,
            tokens: tokens.as_ref(),
            permissions: permissions.as_ref(),
        };
        let opened = open(bound, database.as_ref(), &common)?;
        let disk = database
            .as_ref()
            .and(options.data.as_ref())
            .map(|folder| Rc::new(Disk::new(folder.join(DATABASE), usage.clone(), options.min_disk_free)));

        let (mut listening, mut reporting) = (JoinSet::new(), JoinSet::new());
        let connections = Rc::<Cell<usize>>::default();
        let written = Rc::<Notify>::default();
        let queues = queues(database, opened.len())?;
        let room = free_descriptors().unwrap_or(usize::MAX);
        let shares = opened.len() + usize::from(!http.is_empty());
        let limits = ConnectionLimits::new(options.max_connections.min(room), shares);
        let budget = Budget::new(budget::TOTAL);
        let admission = || Admission::new(limits, connections.clone());
        let run = |(Opened { name, topic_prefix, protocol, ports }, (queue, reports))| {
            let (work, to_do) = queue::unbounded_channel();
            let runner =
                Runner::new(name, protocol, queue, work, admission(), budget.clone(), written.clone());
            listening.spawn_local(runner.clone().do_work(to_do));
            listening.spawn_local(runner.clone().keep_time(clock));
            reporting.spawn_local(runner.clone().handle_reports(reports));
            for port in ports {
                listening.spawn_local(accept(runner.clone(), port));
            }
            Running { name, topic_prefix, runner }
        };
        let protocols: Vec<Running> = opened.into_iter().zip(queues).map(run).collect();
        let runners = protocols.iter().map(|protocol| protocol.runner.clone()).collect();
        listening.spawn_local(budget.watch(runners));
        let registry =
            Rc::new(Registry { protocols, usage, max_store, permissions: RefCell::new(permissions) });
        if let Some(disk) = &disk {
            listening.spawn_local(disk.clone().watch());
        }
        if !http.is_empty() {
            let hosts = options.listeners.iter().flat_map(|listener| {
                let host = listener.tcp_address().map(|(host, _)| host);
                host.into_iter().chain(listener.advertised_host.as_deref())
            });
            let guard = Guard::new(tokens.clone(), hosts.chain(options.pulsar.advertised_url.as_deref()));
            let server = Rc::new(Http::new(registry.clone(), guard, admission(), disk, options.durability));
            for port in http {
                listening.spawn_local(server.clone().accept(port));
            }
        }
        if let Some(keys) = &tokens {
            log_keys("loaded", keys);
        }
        let keys = KeysInUse { certificates, tokens };
        Ok((Self { registry, keys, written, listening, reporting }, urls))
    }

    /// Answers requests until their channel closes, then shuts down.
    async fn serve(mut self, mut requests: queue::UnboundedReceiver<Request>) {
        loop {
            tokio::select! {
                biased;
                // A protocol without its clock or its reports would accept messages and never
                // answer them.
                Some(Err(error)) = self.reporting.join_next() => propagate(error),
                Some(Err(error)) = self.listening.join_next() => propagate(error),
                request = requests.recv() => match request {
                    Some(request) => self.answer(request),
                    None => break,
                },
            }
        }
        self.listening.abort_all();
        // Messages that were received get their answers; then the last acknowledgements are
        // written.
        let runners = || self.registry.protocols.iter().map(|protocol| &protocol.runner);
        runners().for_each(|runner| runner.call(|protocol, now| protocol.shut_down(now)));
        // All together: while one protocol waits for its commits, another may still accept
        // messages.
        while runners().any(|runner| !runner.is_idle()) {
            if tokio::time::timeout(FINAL_COMMIT, self.written.notified()).await.is_err() {
                break;
            }
        }
        runners().for_each(|runner| runner.wake_all());
        // A few turns for final packets. A client that is told of the end closes its connection
        // then.
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        let until = clock::now() + FINAL_PACKETS;
        while runners().any(|runner| runner.is_closing()) && clock::now() < until {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.reporting.abort_all();
    }

    fn answer(&self, request: Request) {
        // A caller that no longer waits for its answer is not an error.
        match request {
            Request::CreateTopic(name, partitions, answer) => {
                self.change(&name, answer, |topics, name| topics.create_topic(name, partitions));
            }
            Request::GrowTopic(name, partitions, answer) => {
                self.change(&name, answer, |topics, name| topics.grow_topic(name, partitions));
            }
            Request::DeleteTopic(name, answer) => {
                self.change(&name, answer, |topics, name| topics.delete_topic(name));
            }
            Request::TerminateTopic(name, answer) => {
                self.change(&name, answer, |topics, name| topics.terminate_topic(name));
            }
            Request::Topics(answer) => drop(answer.send(self.registry.topics())),
            Request::SetUsers(name, file, answer) => {
                let _ = answer.send(self.registry.set_users(name, &file));
            }
            Request::SetPermissions(file, answer) => {
                let _ = answer.send(self.registry.set_permissions(&file));
            }
            Request::SetKeys(keys, answer) => drop(answer.send(self.keys.replace(&keys))),
            Request::TopicStats(name, answer) => drop(answer.send(self.registry.topic_stats(&name))),
            Request::Stats(answer) => drop(answer.send(self.registry.stats())),
        }
    }

    fn change(
        &self,
        name: &str,
        answer: mpsc::SyncSender<Result<()>>,
        change: impl FnOnce(&mut dyn Topics, &str) -> Result<()>,
    ) {
        let answer: OnWritten = Box::new(move |result| drop(answer.send(result)));
        let Some((owner, local)) = self.registry.owner(name) else { return answer(Err(no_owner(name))) };
        owner.runner.administer(answer, |protocol| match protocol.topics_mut() {
            Some(topics) => change(topics, local),
            None => Err(no_owner(name)),
        });
    }
}

/// The name of listeners for HTTP, which the server answers itself.
const HTTP: &str = "http";

/// Configures the protocols and binds the listeners.
async fn bind(options: &Options) -> Result<Bindings> {
    let mut protocols = Vec::new();
    for (name, configure) in PROTOCOLS {
        protocols.push(Bound { name, service: configure(options)?, ports: Vec::new(), certificates: false });
    }
    let http_missing = options.token_key.is_none().then_some("token_key");
    check_advertised("tubemq_advertised_host", options.tubemq.advertised_host.as_deref())?;
    let mut planned = Vec::new();
    for listener in &options.listeners {
        check_advertised("advertised_host", listener.advertised_host.as_deref())?;
        let of = protocols.iter().position(|protocol| protocol.name == listener.protocol);
        let missing = match of {
            Some(of) => protocols[of].service.admits_everyone(),
            None => http_missing,
        };
        let spec = match of {
            Some(of) => protocols[of].service.listener_spec(listener),
            None if listener.protocol == HTTP && !listener.websocket => Some(ListenerSpec {
                name: HTTP,
                schemes: [HTTP, "https"],
                path: "",
                framing: Framing::Bare,
                unix: true,
            }),
            None => None,
        };
        let spec = spec.filter(|spec| spec.unix || listener.tcp_address().is_some());
        planned.push((listener, spec.ok_or_else(|| unspoken(listener))?, of, missing));
    }
    if planned.is_empty() {
        let text = "there is nothing to listen on: every port is off, and there are no listeners";
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    check_public(planned.iter().map(|(listener, _, _, missing)| (*listener, *missing))).await?;
    let (mut http, mut urls, mut certificates) = (Vec::new(), Urls::default(), Vec::new());
    let handshakes = Rc::default();
    for (listener, spec, of, missing) in planned {
        let anonymous = listener.anonymous || missing.is_some() && !listener.asks_for_certificates();
        let host = of.and_then(|of| protocols[of].service.advertised_host());
        let port = Port::bind(listener, &spec, host, anonymous, &handshakes).await?;
        urls.0.push(port.listening().clone());
        certificates.push(port.tls().cloned());
        let Some(of) = of else {
            http.push(port);
            continue;
        };
        protocols[of].certificates |= listener.asks_for_certificates();
        protocols[of].ports.push(port);
    }
    protocols.retain(|protocol| !protocol.ports.is_empty());
    Ok(Bindings { protocols, http, urls, certificates })
}

/// The error for a listener that no protocol has.
fn unspoken(listener: &Listener) -> Error {
    let known: Vec<_> = PROTOCOLS.iter().map(|(name, _)| *name).chain([HTTP]).collect();
    let text = if known.contains(&&*listener.protocol) {
        let way = if listener.websocket { "over WebSocket" } else { "over a Unix socket" };
        format!("{} is not spoken {way}", listener.protocol)
    } else {
        format!("the protocol of a listener is one of {}, not {:?}", known.join(", "), listener.protocol)
    };
    Error::new(ErrorKind::InvalidArgument, text)
}

/// Arguments with which all protocols open.
struct Common<'a> {
    usage: &'a StoreUsage,
    max_store: u64,
    clock: Clock,
    urls: &'a Urls,
    tokens: Option<&'a Arc<TokenKeys>>,
    permissions: Option<&'a Arc<Permissions>>,
}

/// Opens every protocol on the store.
fn open(bound: Vec<Bound>, database: Option<&Database>, common: &Common<'_>) -> Result<Vec<Opened>> {
    let &Common { usage, max_store, clock, urls, tokens, permissions } = common;
    let topic_ids = TopicIds::new(match database {
        Some(database) => database.next_topic()?,
        // Message ids of an earlier run must not mean anything in this one.
        None => wall_ms() / 1000,
    });
    let open = |Bound { name, service, ports, certificates }: Bound| {
        let topic_prefix = service.topic_prefix();
        let protocol = service.open(&Context {
            database,
            urls,
            address: ports.first().and_then(Port::address).unwrap_or_default(),
            certificates,
            clock,
            now: clock.base(),
            topic_ids: &topic_ids,
            usage,
            max_store,
            seed: random::bits(),
            tokens,
            permissions,
        })?;
        Ok(Opened { name, topic_prefix, protocol, ports })
    };
    bound.into_iter().map(open).collect()
}

/// Ends the broker's thread with the panic of one of its tasks.
fn propagate(error: JoinError) {
    if let Ok(panic) = error.try_into_panic() {
        std::panic::resume_unwind(panic);
    }
}

/// Number of descriptors that are free for connections, where the system tells: a connection limit
/// beyond it would let silent connections take the last one, and nothing could be opened any more.
fn free_descriptors() -> Option<usize> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let limit: usize = line.split_whitespace().next()?.parse().ok()?;
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    Some(limit.saturating_sub(open + SPARE_DESCRIPTORS).max(LEAST_CONNECTIONS))
}

fn open_database(options: &Options) -> Result<Option<Database>> {
    let sync = match options.durability {
        Durability::Fsync => Sync::Full,
        Durability::Os => Sync::Os,
        Durability::Memory => return Ok(None),
    };
    options.data.as_deref().map(|path| Database::open(path, sync)).transpose()
}

/// A queue to the store for each protocol.
fn queues(database: Option<Database>, count: usize) -> Result<Vec<(StoreQueue, Reports)>> {
    match database {
        Some(database) => database.into_queues(count),
        None => Ok((0..count).map(|_| StoreQueue::memory()).collect()),
    }
}
