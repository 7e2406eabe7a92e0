//! The broker's thread: opens the store, listens, keeps the hubs' time, passes on the store's reports and
//! answers administration.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc as queue;

use crate::broker::auth::TokenKey;
use crate::broker::desk::{Desk, Disk, Owner};
use crate::broker::hub::{Clock, Hub};
use crate::broker::listener::{Framing, Port, Transport, accept, acceptor, check_bind};
use crate::broker::pulsar::session::Terms;
use crate::broker::store::{self, Directory, Found, Op, Stored};
use crate::broker::topic::Numbers;
use crate::broker::topic::log::Source;
use crate::broker::{Ask, Durability, Options, Urls};
use crate::broker::{mqtt, pulsar, tubemq};
use crate::error::{Error, ErrorKind, Result};
use crate::net::ws;
use crate::sqlite::{Report, Sync, Writer};

/// Longest time for the last words to clients that are slow to hear them.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How far the calendar may be off before it is set.
const CLOCK_SLACK_MS: u64 = 500;

/// Runs the broker until nobody has questions any more.
pub(super) fn run(
    options: Options,
    questions: queue::UnboundedReceiver<Ask>,
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
    local.block_on(&runtime, async {
        if let Err(error) = serve(options, questions, started).await {
            let _ = started.send(Err(error));
        }
    });
}

async fn serve(
    options: Options,
    mut questions: queue::UnboundedReceiver<Ask>,
    started: &mpsc::SyncSender<Result<Urls>>,
) -> Result<()> {
    let tls = options.tls.as_ref().map(|(certificate, key)| acceptor(certificate, key)).transpose()?;
    let tokens = options.token_key.as_deref().map(TokenKey::new).transpose()?.map(Arc::new);
    let passwords = options.mqtt.passwords.as_deref().map(mqtt::Passwords::parse).transpose()?;
    let users = options.tubemq.users.as_deref().map(tubemq::Users::parse).transpose()?;
    let largest = options.tubemq.max_message_size;
    if !(1..=tubemq::MAX_MESSAGE_SIZE).contains(&largest) {
        let text = format!(
            "the largest message of TubeMQ has 1 to {} bytes, not {largest}",
            tubemq::MAX_MESSAGE_SIZE
        );
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    if !options.allow_insecure_bind && (tls.is_none() || tokens.is_none()) {
        check_bind(&options.host, "tls and token_key").await?;
    }
    if !options.allow_insecure_bind && options.tubemq.port.is_some() && users.is_none() {
        check_bind(&options.host, "tubemq_user_file").await?;
    }
    let ports = Ports::bind(&options).await?;
    let urls = ports.urls(&options);

    let (reports, mut reported) = queue::unbounded_channel();
    let store = open(&options, reports)?;
    let now = Instant::now();
    let clock = Clock::new(now, wall_ms());
    let stored = store.writer.is_some();
    let disk = Rc::new(Disk::new(store.writer));
    let numbers = Numbers::new(store.found.next_topic);
    let max_store = options.max_store.unwrap_or(if stored { 10 << 30 } else { 1 << 30 });
    let transport =
        |framing| Transport { tls: tls.clone(), framing, max_connections: options.max_connections };
    let mut background = tokio::task::JoinSet::new();

    let settings = pulsar::Settings {
        url: options.advertised_url.clone().unwrap_or_else(|| urls.pulsar.clone()),
        terms: Terms {
            max_message_size: options.max_message_size,
            keep_alive: options.keep_alive,
            tokens: tokens.clone(),
        },
        clock,
        stored,
        auto_create: options.auto_create,
        partitions: options.default_partitions,
        deduplicate: options.deduplicate,
        retention: options.retention,
        retention_bytes: options.retention_bytes,
        max_store,
        max_topics: options.max_topics,
        namespaces: options.namespaces.clone(),
        numbers: numbers.clone(),
    };
    let hub = pulsar::Hub::new(settings, store.found, store.source, now);
    let desk = Desk::new(hub, Owner::Pulsar, disk.clone());
    background.spawn_local(keep_time(desk.clone(), clock));
    background.spawn_local(accept(desk.clone(), ports.pulsar, transport(Framing::Bare)));

    let mqtt = store.mqtt.map(|(found, source)| {
        let local_pages_only = passwords.is_none() && tokens.is_none();
        let limits = options.mqtt.limits.clone();
        let max_packet_size = limits.max_packet_size as usize;
        let settings = mqtt::Settings { limits, clock, stored, max_store, seed: seed(), passwords, tokens };
        let desk = Desk::new(mqtt::Hub::new(settings, found, source, now), Owner::Mqtt, disk.clone());
        background.spawn_local(keep_time(desk.clone(), clock));
        if let Some(port) = ports.mqtt {
            background.spawn_local(accept(desk.clone(), port, transport(Framing::Bare)));
        }
        if let Some(port) = ports.mqtt_ws {
            let framing = Framing::WebSocket { local_pages_only, max_packet_size };
            background.spawn_local(accept(desk.clone(), port, transport(framing)));
        }
        desk
    });
    let tubemq = store.tubemq.zip(ports.tubemq).map(|((found, source), port)| {
        let settings = tubemq::Settings {
            address: (
                options.tubemq.advertised_host.clone().unwrap_or_else(|| options.host.clone()),
                port.number,
            ),
            clock,
            stored,
            auto_create: options.auto_create,
            partitions: options.tubemq.partitions,
            max_message_size: options.tubemq.max_message_size,
            retention: options.tubemq.retention,
            offset_retention: options.tubemq.offset_retention,
            max_store,
            max_topics: options.max_topics,
            client_timeout: options.tubemq.client_timeout,
            seed: seed(),
            users,
            numbers,
        };
        let desk = Desk::new(tubemq::Hub::new(settings, found, source, now), Owner::Tubemq, disk.clone());
        background.spawn_local(keep_time(desk.clone(), clock));
        background.spawn_local(accept(desk.clone(), port, transport(Framing::Bare)));
        desk
    });
    let _ = started.send(Ok(urls));

    let pass_on = |report: &Report| {
        for (owner, part) in disk.split(report) {
            match (owner, &mqtt) {
                (Owner::Pulsar, _) => desk.call(|hub, now| hub.handle_report(now, part)),
                (Owner::Mqtt, Some(mqtt)) => mqtt.call(|hub, now| hub.handle_report(now, part)),
                (Owner::Tubemq, _) => {
                    tubemq.iter().for_each(|desk| desk.call(|hub, now| hub.handle_report(now, part.clone())));
                }
                (Owner::Mqtt, None) => {}
            }
        }
    };
    // What administration changed is answered like everything else: when it is written.
    let mut unanswered: VecDeque<Unanswered> = VecDeque::new();
    let desks = Desks { pulsar: &desk, mqtt: mqtt.as_deref(), tubemq: tubemq.as_deref() };
    loop {
        while unanswered.front().is_some_and(|(owner, change, _)| *change <= desks.written(*owner)) {
            if let Some((owner, _, answer)) = unanswered.pop_front() {
                let _ = answer.send(desks.failure(owner));
            }
        }
        tokio::select! {
            question = questions.recv() => match question {
                Some(question) => unanswered.extend(desks.answer(question)),
                None => break,
            },
            Some(report) = reported.recv() => pass_on(&report),
        }
    }
    background.abort_all();
    // What was taken in gets its answer; then the last acknowledgements are written.
    desk.shut_down();
    mqtt.iter().for_each(|mqtt| mqtt.shut_down());
    tubemq.iter().for_each(|tubemq| tubemq.shut_down());
    while !disk.is_idle() {
        match tokio::time::timeout(Duration::from_secs(5), reported.recv()).await {
            Ok(Some(report)) => pass_on(&report),
            _ => break,
        }
    }
    desk.ring_all();
    mqtt.iter().for_each(|mqtt| mqtt.ring_all());
    tubemq.iter().for_each(|tubemq| tubemq.ring_all());
    // A few turns for the last words; MQTT has one for each client, who closes then.
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    let until = Instant::now() + LAST_WORDS;
    while mqtt.as_ref().is_some_and(|mqtt| !mqtt.bells.borrow().is_empty()) && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Where the broker listens.
struct Ports {
    pulsar: Port,
    mqtt: Option<Port>,
    mqtt_ws: Option<Port>,
    tubemq: Option<Port>,
}

impl Ports {
    async fn bind(options: &Options) -> Result<Self> {
        let pulsar = Port::bind(&options.host, options.port).await?;
        let mut more =
            [options.mqtt.port, options.mqtt.ws_port, options.tubemq.port].map(|number| (number, None));
        for (number, port) in &mut more {
            if let Some(number) = number {
                *port = Some(Port::bind(&options.host, *number).await?);
            }
        }
        let [(_, mqtt), (_, mqtt_ws), (_, tubemq)] = more;
        Ok(Self { pulsar, mqtt, mqtt_ws, tubemq })
    }

    fn urls(&self, options: &Options) -> Urls {
        let secure = options.tls.is_some();
        let url = |port: &Port, schemes: [&str; 2], path| {
            port.url(schemes[usize::from(secure)], &options.host, path)
        };
        Urls {
            pulsar: url(&self.pulsar, ["pulsar", "pulsar+ssl"], ""),
            mqtt: self.mqtt.as_ref().map(|port| url(port, ["mqtt", "mqtts"], "")),
            mqtt_ws: self.mqtt_ws.as_ref().map(|port| url(port, ["ws", "wss"], ws::PATH)),
            tubemq: self.tubemq.as_ref().map(|port| url(port, ["tubemq", "tubemq+ssl"], "")),
        }
    }
}

/// Different in each run.
fn seed() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), wall_ms())
}

struct Store {
    found: Found,
    source: Option<Box<dyn Source>>,
    /// What the tables hold of MQTT, if it is spoken, and where its messages are.
    mqtt: Option<(mqtt::store::Found, Option<Box<dyn Source>>)>,
    /// The same of TubeMQ.
    tubemq: Option<(Found, Option<Box<dyn Source>>)>,
    writer: Option<Writer<Op>>,
}

fn open(options: &Options, reports: queue::UnboundedSender<Report>) -> Result<Store> {
    let Some(path) = options.data.as_ref().filter(|_| options.durability != Durability::Memory) else {
        // Message ids of an earlier run must not mean anything in this one.
        let next_topic = wall_ms() / 1000;
        let found = Found { next_topic, ..Found::default() };
        let mqtt = options.mqtt.enabled().then(|| (mqtt::store::Found::default(), None));
        let tubemq = options.tubemq.port.map(|_| (Found::default(), None));
        return Ok(Store { found, source: None, mqtt, tubemq, writer: None });
    };
    let directory = Directory::open(path)?;
    let sync = if options.durability == Durability::Fsync { Sync::Full } else { Sync::Os };
    let connection = directory.connect(sync)?;
    store::prepare(&connection)?;
    let source = || -> Result<Box<dyn Source>> { Ok(Box::new(Stored::new(directory.connect(sync)?))) };
    // First, because it may take the number of a topic.
    let mqtt =
        if options.mqtt.enabled() { Some((mqtt::store::load(&connection)?, Some(source()?))) } else { None };
    let found = store::load(&connection, pulsar::DOMAIN, wall_ms())?;
    let tubemq = match options.tubemq.port {
        Some(_) => Some((store::load(&connection, tubemq::DOMAIN, wall_ms())?, Some(source()?))),
        None => None,
    };
    let source = source()?;
    let writer = Writer::start(connection, move |report| {
        // The directory is free when the last word is written.
        let _ = &directory;
        let _ = reports.send(report);
    })?;
    Ok(Store { found, source: Some(source), mqtt, tubemq, writer: Some(writer) })
}

fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// What administration waits for: whose change, its number, and where the answer goes.
type Unanswered = (Owner, u64, mpsc::SyncSender<Result<()>>);

/// Those that administration asks.
struct Desks<'a> {
    pulsar: &'a Desk<pulsar::Hub>,
    mqtt: Option<&'a Desk<mqtt::Hub>>,
    tubemq: Option<&'a Desk<tubemq::Hub>>,
}

impl Desks<'_> {
    /// Number of the last change of a protocol that is written.
    fn written(&self, owner: Owner) -> u64 {
        match self.tubemq.filter(|_| owner == Owner::Tubemq) {
            Some(desk) => desk.hub.borrow().written(),
            None => self.pulsar.hub.borrow().written(),
        }
    }

    fn failure(&self, owner: Owner) -> Result<()> {
        match self.tubemq.filter(|_| owner == Owner::Tubemq) {
            Some(desk) => desk.hub.borrow().failure(),
            None => self.pulsar.hub.borrow().failure(),
        }
    }

    /// TubeMQ, if a topic's name says so, and the name there.
    fn tubemq_of<'n>(&self, name: &'n str) -> Option<(&Desk<tubemq::Hub>, &'n str)> {
        Some((self.tubemq?, name.strip_prefix(tubemq::PREFIX)?))
    }

    /// Answers, or says what the answer waits for.
    fn answer(&self, question: Ask) -> Option<Unanswered> {
        let (owner, changed, answer) = match question {
            Ask::CreateTopic(name, partitions, answer) => match self.tubemq_of(&name) {
                Some((desk, name)) => {
                    let create =
                        |hub: &mut tubemq::Hub, _| hub.create_topic(name, partitions).map(|()| hub.issued());
                    (Owner::Tubemq, desk.call(create), answer)
                }
                None => {
                    let create =
                        |hub: &mut pulsar::Hub, _| hub.create_topic(&name, partitions).map(|()| hub.issued());
                    (Owner::Pulsar, self.pulsar.call(create), answer)
                }
            },
            Ask::DeleteTopic(name, answer) => match self.tubemq_of(&name) {
                Some((desk, name)) => {
                    let delete = |hub: &mut tubemq::Hub, _| hub.delete_topic(name).map(|()| hub.issued());
                    (Owner::Tubemq, desk.call(delete), answer)
                }
                None => {
                    let delete = |hub: &mut pulsar::Hub, _| hub.delete_topic(&name).map(|()| hub.issued());
                    (Owner::Pulsar, self.pulsar.call(delete), answer)
                }
            },
            // An answer that nobody waits for any more is no error.
            Ask::Topics(answer) => {
                let mut topics = self.pulsar.hub.borrow().topics();
                topics.extend(self.tubemq.iter().flat_map(|desk| desk.hub.borrow().topics()));
                let _ = answer.send(topics);
                return None;
            }
            Ask::TopicStats(name, answer) => {
                let _ = answer.send(match self.tubemq_of(&name) {
                    Some((desk, name)) => desk.hub.borrow().topic_stats(name),
                    None => self.pulsar.hub.borrow().topic_stats(&name),
                });
                return None;
            }
            Ask::Stats(answer) => {
                let mqtt = self.mqtt.map(|desk| desk.hub.borrow().stats());
                let tubemq = self.tubemq.map(|desk| desk.hub.borrow().stats());
                let _ = answer.send((self.pulsar.hub.borrow().stats(), mqtt, tubemq));
                return None;
            }
        };
        match changed {
            Ok(change) => Some((owner, change, answer)),
            Err(error) => {
                let _ = answer.send(Err(error));
                None
            }
        }
    }
}

async fn keep_time<H: Hub>(desk: Rc<Desk<H>>, mut clock: Clock) {
    loop {
        let now = Instant::now();
        if clock.wall_ms(now).abs_diff(wall_ms()) > CLOCK_SLACK_MS {
            clock = Clock::new(now, wall_ms());
            desk.call(|hub, _| hub.set_clock(clock));
        }
        let due = desk.hub.borrow().poll_timeout();
        tokio::select! {
            () = sleep_until(due) => desk.call(|hub, now| hub.handle_timeout(now)),
            () = desk.timer.notified() => {}
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
