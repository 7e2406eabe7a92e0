//! The broker's thread: opens the store, listens, runs every protocol and answers administration.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::sync::{Notify, mpsc as queue};
use tokio::task::{JoinError, JoinSet};

use crate::broker::admission::{Admission, ConnectionLimits};
use crate::broker::auth::TokenKey;
use crate::broker::http::disk::Disk;
use crate::broker::http::guard::Guard;
use crate::broker::http::server::Http;
use crate::broker::listener::{Port, Transport, accept, acceptor, is_public};
use crate::broker::log::TopicIds;
use crate::broker::options::{Durability, Options, Urls};
use crate::broker::permissions::Permissions;
use crate::broker::protocol::{Clock, Protocol, Topics};
use crate::broker::registry::{Registry, Running, no_owner};
use crate::broker::runner::{OnWritten, Runner};
use crate::broker::service::{Context, Framing, Service};
use crate::broker::stats::{Stats, TopicStats};
use crate::broker::store::queue::{Reports, StoreQueue};
use crate::broker::store::{Database, StoreUsage};
use crate::broker::{mqtt, pulsar, tubemq};
use crate::clock::{self, wall_ms};
use crate::error::{Error, ErrorKind, Result};
use crate::random;
use crate::sqlite::Sync;

/// Gives a protocol that is enabled.
type Configure = fn(&Options) -> Result<Option<Box<dyn Service>>>;

/// Every protocol that the broker speaks, by the name that its figures have in the status. A name of a topic
/// belongs to the last protocol whose prefix it begins with.
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

/// A protocol with its ports, before the store is open.
struct Bound {
    name: &'static str,
    service: Box<dyn Service>,
    ports: Vec<(Port, Framing)>,
}

/// A protocol that is open on the store, before its tasks run.
struct Opened {
    name: &'static str,
    topic_prefix: Option<&'static str>,
    protocol: Box<dyn Protocol>,
    ports: Vec<(Port, Framing)>,
}

/// The running broker.
struct Server {
    registry: Rc<Registry>,
    /// Notified of every report of the store.
    written: Rc<Notify>,
    /// Tasks that end when shutdown begins: listeners and clocks.
    listening: JoinSet<()>,
    /// Tasks that hand over the store's reports until everything is written.
    reporting: JoinSet<()>,
}

impl Server {
    async fn start(options: &Options) -> Result<(Self, Urls)> {
        let tls = options.tls.as_ref().map(|(certificate, key)| acceptor(certificate, key)).transpose()?;
        let tokens = options.token_key.as_deref().map(TokenKey::new).transpose()?.map(Arc::new);
        let permissions = options.acl.as_deref().map(Permissions::parse).transpose()?.map(Arc::new);
        let (bound, http_port, urls) =
            bind(options, tls.is_some() && tokens.is_some(), tls.is_some()).await?;
        let database = open_database(options)?;
        let usage = StoreUsage::default();
        let run_before = database.as_ref().map_or(Ok(0), Database::run_ms)?;
        let clock = Clock::new(clock::now(), wall_ms()).after_run(run_before);
        let max_store = options.max_store.unwrap_or(if database.is_some() { 10 << 30 } else { 1 << 30 });
        let disk = database.as_ref().and(options.data.clone()).map(|path| Rc::new(Disk::new(path)));
        let common = Common {
            usage: &usage,
            max_store,
            clock,
            urls: &urls,
            tokens: tokens.as_ref(),
            permissions: permissions.as_ref(),
        };
        let opened = open(bound, database.as_ref(), &common)?;

        let (mut listening, mut reporting) = (JoinSet::new(), JoinSet::new());
        let connections = Rc::<Cell<usize>>::default();
        let written = Rc::<Notify>::default();
        let queues = queues(database, opened.len())?;
        let room = free_descriptors().unwrap_or(usize::MAX);
        let listeners = opened.len() + usize::from(http_port.is_some());
        let limits = ConnectionLimits::new(options.max_connections.min(room), listeners);
        let admission = || Admission::new(limits, connections.clone());
        let run = |(Opened { name, topic_prefix, protocol, ports }, (queue, reports))| {
            let (work, to_do) = queue::unbounded_channel();
            let runner = Runner::new(protocol, queue, work, admission(), written.clone());
            listening.spawn_local(runner.clone().do_work(to_do));
            listening.spawn_local(runner.clone().keep_time(clock));
            reporting.spawn_local(runner.clone().handle_reports(reports));
            for (port, framing) in ports {
                let transport = Transport { tls: tls.clone(), framing };
                listening.spawn_local(accept(runner.clone(), port, transport));
            }
            Running { name, topic_prefix, runner }
        };
        let protocols = opened.into_iter().zip(queues).map(run).collect();
        let registry =
            Rc::new(Registry { protocols, usage, max_store, permissions: RefCell::new(permissions) });
        if let Some(port) = http_port {
            if let Some(disk) = &disk {
                listening.spawn_local(disk.clone().watch());
            }
            let guard = Guard::new(tokens, [Some(&*options.host), options.pulsar.advertised_url.as_deref()]);
            let http = Http::new(registry.clone(), guard, admission(), disk, options.durability);
            listening.spawn_local(Rc::new(http).accept(port, tls));
        }
        Ok((Self { registry, written, listening, reporting }, urls))
    }

    /// Answers requests until their channel closes, then shuts down.
    async fn serve(mut self, mut requests: queue::UnboundedReceiver<Request>) {
        loop {
            tokio::select! {
                biased;
                // A protocol without its clock or its reports would accept messages and never answer them.
                Some(Err(error)) = self.reporting.join_next() => propagate(error),
                Some(Err(error)) = self.listening.join_next() => propagate(error),
                request = requests.recv() => match request {
                    Some(request) => self.answer(request),
                    None => break,
                },
            }
        }
        self.listening.abort_all();
        // Messages that were received get their answers; then the last acknowledgements are written.
        let runners = || self.registry.protocols.iter().map(|protocol| &protocol.runner);
        runners().for_each(|runner| runner.call(|protocol, now| protocol.shut_down(now)));
        // All together: while one protocol waits for its commits, another may still accept messages.
        while runners().any(|runner| !runner.is_idle()) {
            if tokio::time::timeout(FINAL_COMMIT, self.written.notified()).await.is_err() {
                break;
            }
        }
        runners().for_each(|runner| runner.wake_all());
        // A few turns for final packets. A client that is told of the end closes its connection then.
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

/// Configures every protocol that is enabled and binds its ports, and that of HTTP. `secured` tells whether connections are encrypted
/// and authenticated, `tls` whether they are encrypted.
async fn bind(options: &Options, secured: bool, tls: bool) -> Result<(Vec<Bound>, Option<Port>, Urls)> {
    let mut services = Vec::new();
    for (name, configure) in PROTOCOLS {
        services.extend(configure(options)?.map(|service| (name, service)));
    }
    if is_public(&options.host).await? {
        check_public(options, &services, secured)?;
    }
    let (mut bound, mut urls) = (Vec::new(), Urls::default());
    for (name, service) in services {
        let mut ports = Vec::new();
        for listen in service.listen() {
            let port = Port::bind(&options.host, listen.port).await?;
            let scheme = listen.schemes[usize::from(tls)];
            (listen.publish)(&mut urls, port.url(scheme, &options.host, listen.path));
            ports.push((port, listen.framing));
        }
        bound.push(Bound { name, service, ports });
    }
    let mut http = None;
    if let Some(port) = options.http_port {
        let port = Port::bind(&options.host, port).await?;
        urls.http = Some(port.url(["http", "https"][usize::from(tls)], &options.host, ""));
        http = Some(port);
    }
    Ok((bound, http, urls))
}

/// Refuses to let other machines connect if that is not safe, unless the options accept it.
fn check_public(options: &Options, services: &[(&str, Box<dyn Service>)], secured: bool) -> Result<()> {
    let refused = |why: String, accept: &str| {
        let host = &options.host;
        let text = format!("{host} can be reached from other machines{why}, or set {accept} to accept that");
        Err(Error::new(ErrorKind::InvalidArgument, text))
    };
    if !options.allow_insecure_bind {
        let mut missing = services.iter().filter_map(|(_, service)| service.missing_for_public_bind());
        let missing = if secured { missing.next() } else { Some("tls and token_key") };
        return missing.map_or(Ok(()), |missing| refused(format!(": set {missing}"), "allow_insecure_bind"));
    }
    // Users of one protocol are a sign that strangers are not welcome; the ports of the others would let them in.
    let http = options.http_port.map(|_| ("http", options.token_key.is_none().then_some("token_key")));
    let ports = || services.iter().map(|(name, service)| (*name, service.admits_everyone())).chain(http);
    let guarded = ports().find(|(_, missing)| missing.is_none());
    let open = ports().find_map(|(name, missing)| Some((name, missing?)));
    if let (Some((guarded, _)), Some((open, missing)), false) = (guarded, open, options.allow_anonymous) {
        let why = format!(
            ", and the port of {open} admits everyone, while that of {guarded} asks for credentials: set {missing}"
        );
        return refused(why, "allow_anonymous");
    }
    Ok(())
}

/// Arguments with which all protocols open.
struct Common<'a> {
    usage: &'a StoreUsage,
    max_store: u64,
    clock: Clock,
    urls: &'a Urls,
    tokens: Option<&'a Arc<TokenKey>>,
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
    let open = |Bound { name, service, ports }: Bound| {
        let topic_prefix = service.topic_prefix();
        let protocol = service.open(&Context {
            database,
            urls,
            ports: ports.iter().map(|(port, _)| port.number).collect(),
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

/// Number of descriptors that are free for connections, where the system tells: a connection limit beyond it would let
/// silent connections take the last one, and nothing could be opened any more.
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
