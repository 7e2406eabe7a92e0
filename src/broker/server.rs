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
use crate::broker::pulsar;
use crate::broker::pulsar::session::Terms;
use crate::broker::store::{self, Directory, Found, Op, Stored};
use crate::broker::topic::log::Source;
use crate::broker::{Ask, Durability, Options};
use crate::error::Result;
use crate::sqlite::{Report, Sync, Writer};

/// How far the calendar may be off before it is set.
const CLOCK_SLACK_MS: u64 = 500;

/// Runs the broker until nobody has questions any more.
pub(super) fn run(
    options: Options,
    questions: queue::UnboundedReceiver<Ask>,
    started: &mpsc::SyncSender<Result<String>>,
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
    started: &mpsc::SyncSender<Result<String>>,
) -> Result<()> {
    let tls = options.tls.as_ref().map(|(certificate, key)| acceptor(certificate, key)).transpose()?;
    let tokens = options.token_key.as_deref().map(TokenKey::new).transpose()?.map(Arc::new);
    if !options.allow_insecure_bind && (tls.is_none() || tokens.is_none()) {
        check_bind(&options.host, "tls and token_key").await?;
    }
    let port = Port::bind(&options.host, options.port).await?;
    let url = port.url(if tls.is_some() { "pulsar+ssl" } else { "pulsar" }, &options.host, "");

    let (reports, mut reported) = queue::unbounded_channel();
    let store = open(&options, reports)?;
    let now = Instant::now();
    let clock = Clock::new(now, wall_ms());
    let stored = store.writer.is_some();
    let disk = Rc::new(Disk::new(store.writer));
    let settings = pulsar::Settings {
        url: options.advertised_url.clone().unwrap_or_else(|| url.clone()),
        terms: Terms { max_message_size: options.max_message_size, keep_alive: options.keep_alive, tokens },
        clock,
        stored,
        auto_create: options.auto_create,
        partitions: options.default_partitions,
        deduplicate: options.deduplicate,
        retention: options.retention,
        retention_bytes: options.retention_bytes,
        max_store: options.max_store.unwrap_or(if stored { 10 << 30 } else { 1 << 30 }),
        max_topics: options.max_topics,
        namespaces: options.namespaces.clone(),
    };
    let desk =
        Desk::new(pulsar::Hub::new(settings, store.found, store.source, now), Owner::Pulsar, disk.clone());
    let transport = Transport { tls, framing: Framing::Bare, max_connections: options.max_connections };
    let mut background = tokio::task::JoinSet::new();
    background.spawn_local(keep_time(desk.clone(), clock));
    background.spawn_local(accept(desk.clone(), port, transport));
    let _ = started.send(Ok(url));

    let pass_on = |report: &Report| {
        for (owner, part) in disk.split(report) {
            match owner {
                Owner::Pulsar => desk.call(|hub, now| hub.handle_report(now, part)),
                Owner::Mqtt => {}
            }
        }
    };
    // What administration changed is answered like everything else: when it is written.
    let mut unanswered: VecDeque<(u64, mpsc::SyncSender<Result<()>>)> = VecDeque::new();
    loop {
        while unanswered.front().is_some_and(|(change, _)| *change <= desk.hub.borrow().written()) {
            if let Some((_, answer)) = unanswered.pop_front() {
                let _ = answer.send(desk.hub.borrow().failure());
            }
        }
        tokio::select! {
            question = questions.recv() => match question {
                Some(question) => unanswered.extend(answer(&desk, question)),
                None => break,
            },
            Some(report) = reported.recv() => pass_on(&report),
        }
    }
    background.abort_all();
    // What was taken in gets its answer; then the last acknowledgements are written.
    desk.shut_down();
    while !disk.is_idle() {
        match tokio::time::timeout(Duration::from_secs(5), reported.recv()).await {
            Ok(Some(report)) => pass_on(&report),
            _ => break,
        }
    }
    desk.ring_all();
    // A few turns for the last words.
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    Ok(())
}

struct Store {
    found: Found,
    source: Option<Box<dyn Source>>,
    writer: Option<Writer<Op>>,
}

fn open(options: &Options, reports: queue::UnboundedSender<Report>) -> Result<Store> {
    let Some(path) = options.data.as_ref().filter(|_| options.durability != Durability::Memory) else {
        // Message ids of an earlier run must not mean anything in this one.
        let next_topic = wall_ms() / 1000;
        return Ok(Store { found: Found { next_topic, ..Found::default() }, source: None, writer: None });
    };
    let directory = Directory::open(path)?;
    let sync = if options.durability == Durability::Fsync { Sync::Full } else { Sync::Os };
    let connection = directory.connect(sync)?;
    let found = store::load(&connection, wall_ms())?;
    let source: Box<dyn Source> = Box::new(Stored::new(directory.connect(sync)?));
    let writer = Writer::start(connection, move |report| {
        // The directory is free when the last word is written.
        let _ = &directory;
        let _ = reports.send(report);
    })?;
    Ok(Store { found, source: Some(source), writer: Some(writer) })
}

fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Answers, or gives the number of the change that the answer waits for.
fn answer(desk: &Desk<pulsar::Hub>, question: Ask) -> Option<(u64, mpsc::SyncSender<Result<()>>)> {
    let (changed, answer) = match question {
        Ask::CreateTopic(name, partitions, answer) => {
            (desk.call(|hub, _| hub.create_topic(&name, partitions).map(|()| hub.issued())), answer)
        }
        Ask::DeleteTopic(name, answer) => {
            (desk.call(|hub, _| hub.delete_topic(&name).map(|()| hub.issued())), answer)
        }
        // An answer that nobody waits for any more is no error.
        Ask::Topics(answer) => {
            let _ = answer.send(desk.hub.borrow().topics());
            return None;
        }
        Ask::TopicStats(name, answer) => {
            let _ = answer.send(desk.hub.borrow().topic_stats(&name));
            return None;
        }
        Ask::Stats(answer) => {
            let _ = answer.send(desk.hub.borrow().stats());
            return None;
        }
    };
    match changed {
        Ok(change) => Some((change, answer)),
        Err(error) => {
            let _ = answer.send(Err(error));
            None
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
