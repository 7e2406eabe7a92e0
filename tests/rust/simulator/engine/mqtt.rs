//! Publishers and subscribers of MQTT with kept sessions: every publication ends in one outcome,
//! what is acknowledged reaches every session, in order, with QoS 2 once; every future ends, and
//! the store is empty at the end. Some publishers lose their sessions while they are not connected.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::error::ErrorKind;
use forebay_broker::{Listener, Options};
use forebay_client::events::Receipt;
use forebay_client::mqtt::options::{ClientOptions, ConsumerOptions, ProducerOptions};
use forebay_client::mqtt::{Client, Consumer, Message, Outgoing, Producer};
use forebay_client::receive::{Batch, Receive as _};
use forebay_mqtt::packet::SubscribeOptions;
use forebay_mqtt::topic::Filter;
use forebay_mqtt::{QoS, Version};

use super::events::{Fate, Ready, Sink, slot};
use super::faults::Swarm;
use super::host::{self, Host, Run, Setting, ends, settles, violate};
use super::network::Tap;
use super::{Seeds, Table, taking, trace};
use crate::pulsar::disk::{Name, name_of, payload};
use crate::support::chance::Chance;

mod wire;

pub(super) const PORT: u16 = 1883;
const BEFORE: &str = "before CONNECT";
/// Those that once failed: what the store reported while the broker stopped counted as delivered,
/// and was removed; an own CONNECT that came late ended the client (884).
const SEEDS: Seeds = Seeds { count: 1000, once_failed: &[6, 17, 34, 63, 87, 884], twice: 40 };
/// The last packet that a client has sent, in every fault.
const TABLE: Table = Table {
    states: &[
        "CONNECT",
        "PUBLISH",
        "PUBACK",
        "PUBREC",
        "PUBREL",
        "PUBCOMP",
        "SUBSCRIBE",
        "UNSUBSCRIBE",
        "PINGREQ",
        "DISCONNECT",
    ],
    except: &[(BEFORE, "a client writes CONNECT at the instant at which it is connected")],
    rare: &[],
};
/// Virtual seconds within which everything settles once it is healed.
const PATIENCE: u64 = 300;

pub(super) fn tap(_: u16) -> Option<Box<dyn Tap>> {
    Some(Box::<wire::Watch>::default())
}

#[derive(Default)]
struct Session {
    received: BTreeMap<Name, u32>,
    last: BTreeMap<(u8, u8), u64>,
}

#[derive(Default)]
struct Ledger {
    pushes: BTreeMap<Name, (Fate, QoS)>,
    sessions: Vec<Session>,
}

struct World {
    quota: u64,
    options: ClientOptions,
    ledger: RefCell<Ledger>,
    subscribed: Cell<usize>,
    healed: Cell<bool>,
    draining: Cell<bool>,
    done: Cell<bool>,
}

impl World {
    async fn connect(&self, id: &str, session_expiry: u32, chance: &mut Chance) -> Option<Client> {
        let options = ClientOptions { client_id: id.into(), session_expiry, ..self.options.clone() };
        let connect = async || Client::connect(options.clone()).await;
        host::opened((120, &format!("connect of {id}")), 300_000, chance, |_, _| {}, connect).await
    }

    /// Of a `lossy` publisher QoS 2 in flight may fail: it is not known whether the broker has it.
    fn settle(&self, who: u8, lossy: bool, sink: &Sink<Name>) {
        for (names, result) in sink.outcomes() {
            let mut ledger = self.ledger.borrow_mut();
            let mut only_qos_2 = true;
            for name in &names {
                let (fate, qos) = ledger.pushes.get_mut(name).expect("published");
                only_qos_2 &= *qos == QoS::ExactlyOnce;
                if *fate != Fate::Pending {
                    violate(format!("{name:?} has a second outcome"));
                }
                *fate = match &result {
                    Ok(Receipt::Reason(reason)) if !reason.is_error() => Fate::Stored,
                    _ => Fate::Unknown,
                };
            }
            match result {
                Ok(receipt) => trace::event(format_args!("publisher {who}: {names:?} {receipt:?}")),
                Err(error) => {
                    trace::event(format_args!("publisher {who}: {names:?} failed: {error}"));
                    // The broker says that its disk broke; or a session that was never written is
                    // gone.
                    let lost = lossy && only_qos_2 && error.kind() == ErrorKind::Disconnected;
                    let failed = error.to_string().contains("the store failed");
                    if error.kind() != ErrorKind::Closed && !failed && !lost {
                        violate(format!("{names:?} failed: {error}"));
                    }
                }
            }
        }
        sink.check_end(&format!("publisher {who}"));
    }

    async fn publish(self: Rc<Self>, who: u8, mut chance: Chance) {
        // MQTT 3.1.1 has no expiry. One behind the end of the connection would let a session begin
        // of whose CONNACK the client never hears, and which it then takes for its own.
        let lossy = self.options.version == Some(Version::V5) && chance.percent(30);
        let expiry = if lossy { 0 } else { u32::MAX };
        let id = format!("publisher-{who}");
        let Some(client) = self.connect(&id, expiry, &mut chance).await else { return };
        let sink = Arc::new(Sink::default());
        let options = ProducerOptions { max_pending: chance.within(1, 60), ..ProducerOptions::default() };
        let producer: Producer = match client.producer(&format!("t/{who}"), options, sink.clone()) {
            Ok(producer) => producer,
            Err(error) => return violate(format!("producer: {error}")),
        };
        let mut next = 0;
        while next < self.quota && !host::is_violated() {
            let mut full = false;
            for _ in 0..chance.within(1, 12).min((self.quota - next) as usize) {
                let name = (who, next);
                let qos = if chance.percent(50) { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
                let bytes = payload(name, chance.below(300));
                let message = Outgoing { payload: &bytes, qos: Some(qos), ..Outgoing::default() };
                let Some(slot) = slot(&name, producer.push(&message, chance.percent(30))) else {
                    full = true;
                    break;
                };
                self.ledger.borrow_mut().pushes.insert(name, (Fate::Pending, qos));
                sink.pushed(slot, name);
                next += 1;
            }
            if full {
                if settles(&self.healed, PATIENCE, sink.changed.notified()).await.is_none() {
                    violate(format!("publisher {who} waits for room for ever"));
                }
            } else {
                let most = if chance.percent(10) { 2_000_000 } else { 100_000 };
                tokio::time::sleep(chance.micros(most)).await;
            }
            self.settle(who, lossy, &sink);
        }
        let answered = async {
            while producer.pending() > 0 && !host::is_violated() {
                sink.changed.notified().await;
                self.settle(who, lossy, &sink);
            }
        };
        if settles(&self.healed, PATIENCE, answered).await.is_none() {
            violate(format!("publisher {who} has {} without an outcome", producer.pending()));
        }
        self.settle(who, lossy, &sink);
        if client.memory_used() != 0 && !host::is_violated() {
            violate(format!("publisher {who} is done, and {} bytes wait", client.memory_used()));
        }
        match ends(PATIENCE, "close of a client", client.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => violate(format!("close of publisher {who}: {error}")),
            Err(late) => violate(late),
        }
    }

    fn receive(&self, at: usize, message: &Message) {
        let name = match name_of(&message.publish().payload) {
            Ok(name) => name,
            Err(broken) => return violate(broken),
        };
        let mut ledger = self.ledger.borrow_mut();
        let ledger = &mut *ledger;
        let Some((_, qos)) = ledger.pushes.get(&name) else {
            return violate(format!("{name:?} was received and never published"));
        };
        trace::event(format_args!("session {at} gets {name:?} {qos:?}"));
        let session = &mut ledger.sessions[at];
        let count = session.received.entry(name).or_default();
        *count += 1;
        if *count > 1 {
            if *qos == QoS::ExactlyOnce {
                violate(format!("{name:?} with QoS 2 came {count} times to session {at}"));
            }
            return;
        }
        // Messages of one QoS keep their order.
        if let Some(last) = session.last.insert((name.0, *qos as u8), name.1).filter(|last| *last > name.1) {
            violate(format!("{name:?} came to session {at} behind {last}"));
        }
    }

    async fn subscribe(self: Rc<Self>, at: usize, mut chance: Chance) {
        let Some(client) = self.connect(&format!("subscriber-{at}"), u32::MAX, &mut chance).await else {
            return;
        };
        let ready = Arc::new(Ready::default());
        let consumer = loop {
            let options = ConsumerOptions {
                filters: vec![(
                    Filter::parse("t/#").expect("valid"),
                    SubscribeOptions::qos(QoS::ExactlyOnce),
                )],
                auto_ack: chance.percent(30),
            };
            match ends(120, "subscribe", client.consumer(options, ready.clone())).await {
                Ok(Ok(consumer)) => break consumer,
                Ok(Err(error)) => trace::event(format_args!("subscriber {at} is refused: {error}")),
                Err(late) => return violate(late),
            }
            if host::is_violated() {
                return;
            }
            tokio::time::sleep(chance.micros(500_000)).await;
        };
        self.subscribed.set(self.subscribed.get() + 1);
        trace::event(format_args!("subscriber {at} is open"));
        self.take(at, &consumer, &ready, &mut chance).await;
        if let Some(error) = ready.end() {
            violate(format!("subscriber {at} ended for good: {error}"));
        }
        let _ = ends(PATIENCE, "close of a consumer", consumer.close()).await.map_err(violate);
        let _ = ends(PATIENCE, "close of a client", client.close()).await.map_err(violate);
    }

    /// A session that comes and goes: it subscribes, unsubscribes and disconnects while others
    /// publish.
    async fn visit(self: Rc<Self>, mut chance: Chance) {
        while !self.healed.get() && !host::is_violated() {
            let Some(client) = self.connect("visitor", u32::MAX, &mut chance).await else { return };
            for _ in 0..chance.within(1, 5) {
                let filters =
                    vec![(Filter::parse("v/#").expect("valid"), SubscribeOptions::qos(QoS::AtLeastOnce))];
                let options = ConsumerOptions { filters, auto_ack: true };
                let opening = client.consumer(options, Arc::new(Ready::default()));
                match ends(120, "subscribe of a visitor", opening).await {
                    Ok(Ok(consumer)) => {
                        tokio::time::sleep(chance.micros(300_000)).await;
                        let left = ends(120, "unsubscribe", consumer.unsubscribe()).await;
                        trace::event(format_args!("the visitor unsubscribes: {left:?}"));
                        let _ = left.map_err(violate);
                    }
                    Ok(Err(error)) => trace::event(format_args!("the visitor is refused: {error}")),
                    Err(late) => violate(late),
                }
            }
            let closed = ends(PATIENCE, "close of a visitor", client.close()).await;
            trace::event(format_args!("the visitor leaves: {closed:?}"));
            let _ = closed.map_err(violate);
            tokio::time::sleep(chance.micros(300_000)).await;
        }
    }

    async fn take(&self, at: usize, consumer: &Consumer, ready: &Ready, chance: &mut Chance) {
        let mut held: Vec<Message> = Vec::new();
        while !self.done.get() && !host::is_violated() {
            let mut messages: Vec<Message> = Vec::new();
            match taking::take(consumer, false, chance, &mut messages) {
                Ok(0) => {
                    if consumer.arm() {
                        let _ = tokio::time::timeout(Duration::from_secs(1), ready.notify.notified()).await;
                    }
                }
                Ok(count) => trace::event(format_args!("subscriber {at} takes {count}")),
                Err(error) => return violate(format!("a consumer ended for good: {error}")),
            }
            messages.iter().for_each(|message| self.receive(at, message));
            held.extend(messages);
            let acknowledged = if self.draining.get() || chance.percent(60) {
                held.len()
            } else {
                chance.below(held.len() + 1)
            };
            if let Err(error) = consumer.ack(&held[..acknowledged]) {
                violate(format!("an acknowledgement was refused: {error}"));
            }
            held.drain(..acknowledged);
            if chance.percent(10) && !self.draining.get() {
                tokio::time::sleep(chance.micros(1_500_000)).await;
            }
        }
    }

    /// The number of messages in the broker's store, as it says itself.
    async fn stored(&self, chance: &mut Chance) -> Option<String> {
        let client = self.connect("look", 0, chance).await?;
        let topic = Filter::parse("$SYS/broker/store/messages/count").expect("valid");
        let options = ConsumerOptions {
            filters: vec![(topic, SubscribeOptions::qos(QoS::AtMostOnce))],
            auto_ack: true,
        };
        let ready = Arc::new(Ready::default());
        let consumer = client.consumer(options, ready.clone()).await.ok()?;
        let mut messages = Vec::new();
        while messages.is_empty() {
            consumer.take_batch(Batch::of(1), true, &mut messages).ok()?;
            if messages.is_empty() && consumer.arm() {
                ready.notify.notified().await;
            }
        }
        let _ = client.close().await;
        Some(String::from_utf8_lossy(&messages[0].publish().payload).into_owned())
    }

    fn missing(&self) -> Vec<(usize, Name)> {
        let ledger = self.ledger.borrow();
        let mut missing = Vec::new();
        for (at, session) in ledger.sessions.iter().enumerate() {
            for (name, (fate, _)) in &ledger.pushes {
                if *fate == Fate::Stored && !session.received.contains_key(name) {
                    missing.push((at, *name));
                }
            }
        }
        missing
    }
}

pub(super) fn setting(chance: &mut Chance) -> Setting {
    let listeners = vec![Listener::tcp("mqtt", "127.0.0.1", PORT)];
    let slowness = ([100, 5_000, 80_000][chance.below(3)], [200, 3_000, 60_000][chance.below(3)]);
    Setting { slowness, options: Options { listeners, ..Options::default() }, tap }
}

pub(super) async fn script(host: Rc<Host>, mut chance: Chance) -> Result<(), String> {
    let swarm = Swarm::draw(&mut chance).aimed_at(TABLE.states);
    trace::event(format_args!("{swarm:?}"));
    let options = ClientOptions {
        url: format!("mqtt://broker.test:{PORT}"),
        version: Some(if chance.percent(75) { Version::V5 } else { Version::V3_1_1 }),
        clean_start: false,
        keep_session: true,
        keep_alive: chance.within(1, 8) as u16,
        connect_timeout: Duration::from_millis(chance.within(1000, 5000) as u64),
        operation_timeout: Duration::from_millis(chance.within(2000, 10_000) as u64),
        max_backoff: Duration::from_millis(chance.within(200, 3000) as u64),
        max_inflight: chance.within(1, 100) as u16,
        receive_maximum: chance.within(1, 100) as u16,
        ..ClientOptions::default()
    };
    wire::limit(options.max_inflight);
    let mut ledger = Ledger::default();
    let subscribers = chance.within(1, 4);
    ledger.sessions.resize_with(subscribers, Session::default);
    let world = Rc::new(World {
        quota: chance.within(50, 160) as u64,
        options,
        ledger: RefCell::new(ledger),
        subscribed: Cell::new(0),
        healed: Cell::new(false),
        draining: Cell::new(false),
        done: Cell::new(false),
    });
    let mut subscribing = Vec::new();
    for at in 0..subscribers {
        subscribing.push(tokio::task::spawn_local(world.clone().subscribe(at, Chance::new(chance.next()))));
    }
    while world.subscribed.get() < subscribers && !host::is_violated() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut writing = Vec::new();
    for who in 0..chance.within(2, 5) as u8 {
        writing.push(tokio::task::spawn_local(world.clone().publish(who, Chance::new(chance.next()))));
    }
    if chance.percent(50) {
        writing.push(tokio::task::spawn_local(world.clone().visit(Chance::new(chance.next()))));
    }
    swarm.rage(&host, 100, Chance::new(chance.next())).await;
    host.heal();
    world.healed.set(true);
    for writer in writing {
        ends(PATIENCE, "a publisher", writer).await?.map_err(|_| "a publisher panicked")?;
    }
    world.draining.set(true);
    let settled = async {
        while !host::is_violated() && !world.missing().is_empty() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(PATIENCE), settled).await.is_err() {
        let missing = world.missing();
        let some = &missing[..missing.len().min(10)];
        return Err(format!("{} messages are missing, as {some:?} (session, name)", missing.len()));
    }
    // A repeated message of QoS 2 would come now.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let stored = ends(PATIENCE, "a look at the store", world.stored(&mut chance)).await?;
    if stored.as_deref() != Some("0") {
        return Err(format!("the store holds {stored:?} messages, and every session has acknowledged"));
    }
    world.done.set(true);
    for subscriber in subscribing {
        ends(PATIENCE, "a subscriber", subscriber).await?.map_err(|_| "a subscriber panicked")?;
    }
    Ok(())
}

fn run(seed: u64) -> Result<Run, String> {
    host::play(seed, setting, script)
}

#[test]
fn nothing_acknowledged_is_lost_and_qos_2_comes_once() {
    super::cover(&SEEDS, &TABLE, run);
}
