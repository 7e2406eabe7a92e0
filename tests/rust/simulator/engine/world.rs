//! All protocols at once on one broker with one store: under faults each keeps what it promises,
//! and the load of one does not hold up the others.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::error::{ErrorKind, Result as Sent};
use forebay_broker::{Listener, Options};
use forebay_client::{mqtt, pulsar, tubemq};
use forebay_mqtt::QoS;
use tokio::time::Instant;

use super::events::Sink;
use super::faults::Swarm;
use super::host::{self, Host, Run, Setting, ends, violate};
use super::network::Tap;
use super::trace;
use super::{Seeds, mqtt as with_mqtt, pulsar as with_pulsar, tubemq as with_tubemq};
use crate::support::chance::Chance;

/// One that once failed: a partition whose old consumer was still leaving was taken again, and the
/// end of the old one removed the new one, which then held up the fetching for ever (48).
const SEEDS: Seeds = Seeds { count: 50, once_failed: &[48], twice: 5 };
/// Virtual seconds within which everything settles once it is healed.
const PATIENCE: u64 = 1500;

thread_local! {
    /// Whether the faults are over that several protocols share in this thread's run.
    static CALM: Cell<Option<bool>> = const { Cell::new(None) };
}

/// If the faults are shared, waits until they are over. Each protocol has the same ones.
pub(super) async fn shares_faults() -> bool {
    while CALM.get() == Some(false) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    CALM.get().is_some()
}

fn tap(port: u16) -> Option<Box<dyn Tap>> {
    match port {
        with_pulsar::PORT => with_pulsar::tap(port),
        with_mqtt::PORT => with_mqtt::tap(port),
        _ => with_tubemq::tap(port),
    }
}

fn setting(chance: &mut Chance) -> Setting {
    let Setting { slowness, options, .. } = with_pulsar::setting(chance);
    let (of_mqtt, of_tubemq) = (with_mqtt::setting(chance).options, with_tubemq::setting(chance).options);
    let listeners = [options.listeners, of_mqtt.listeners, of_tubemq.listeners].concat();
    let (mqtt, tubemq) = (of_mqtt.mqtt, of_tubemq.tubemq);
    // A token key would be that of all protocols.
    Setting { slowness, options: Options { listeners, mqtt, tubemq, token_key: None, ..options }, tap }
}

async fn script(host: Rc<Host>, mut chance: Chance) -> Result<(), String> {
    CALM.set(Some(false));
    let swarm = Swarm::draw(&mut chance);
    let mut next = || Chance::new(chance.next());
    let playing = [
        ("Pulsar", tokio::task::spawn_local(with_pulsar::script(host.clone(), next()))),
        ("MQTT", tokio::task::spawn_local(with_mqtt::script(host.clone(), next()))),
        ("TubeMQ", tokio::task::spawn_local(with_tubemq::script(host.clone(), next()))),
    ];
    let faults = next();
    // Topics are created by the application that knows the broker to run.
    tokio::time::sleep(Duration::from_secs(1)).await;
    swarm.rage_alone(&host, 100, faults).await;
    host.heal();
    CALM.set(Some(true));
    for (protocol, script) in playing {
        let played = ends(PATIENCE, protocol, script).await?.map_err(|_| format!("{protocol} panicked"))?;
        played.map_err(|violation| format!("{protocol}: {violation}"))?;
    }
    Ok(())
}

fn run(seed: u64) -> Result<Run, String> {
    host::play(seed, setting, script)
}

/// A producer of any protocol.
enum Sender {
    Pulsar(pulsar::Producer),
    Mqtt(mqtt::Producer),
    TubeMq(tubemq::Producer),
}

impl Sender {
    fn push(&self, payload: &[u8]) -> Sent<usize> {
        let pushed = match self {
            Self::Pulsar(producer) => {
                producer.push(&forebay_pulsar::Outgoing { payload, ..Default::default() }, None, false)
            }
            Self::Mqtt(producer) => {
                let qos = Some(QoS::AtLeastOnce);
                producer.push(&mqtt::Outgoing { payload, qos, ..Default::default() }, false)
            }
            Self::TubeMq(producer) => {
                producer.push(&tubemq::Outgoing { payload, ..Default::default() }, false)
            }
        };
        pushed.map(|pushed| pushed.slot())
    }
}

/// Notes outcomes, all of them good. Returns their number.
fn count(sink: &Sink<u64>) -> usize {
    let mut count = 0;
    for (numbers, result) in sink.outcomes() {
        count += numbers.len();
        if let Err(error) = result {
            violate(format!("{numbers:?} failed: {error}"));
        }
    }
    count
}

/// Sends as much as it can until `until`. Returns how many were acknowledged.
async fn flood(sender: &Sender, sink: &Sink<u64>, until: Instant) -> usize {
    let (mut next, mut done) = (0, 0);
    while Instant::now() < until && !host::is_violated() {
        match sender.push(&[7; 1000]) {
            Ok(slot) => {
                sink.pushed(slot, next);
                next += 1;
            }
            Err(error) if matches!(error.kind(), ErrorKind::QueueFull | ErrorKind::MemoryLimit) => {
                sink.changed.notified().await;
            }
            Err(error) => violate(error.to_string()),
        }
        done += count(sink);
    }
    done
}

/// Sends one message after the other until `until`. Returns the longest time to an outcome.
async fn trickle(sender: &Sender, sink: &Sink<u64>, until: Instant) -> Duration {
    let mut longest = Duration::ZERO;
    let mut next = 0;
    while Instant::now() < until && !host::is_violated() {
        let began = Instant::now();
        match sender.push(&[7; 100]) {
            Ok(slot) => sink.pushed(slot, next),
            Err(error) => violate(error.to_string()),
        }
        next += 1;
        while count(sink) == 0 && !host::is_violated() {
            if tokio::time::timeout(Duration::from_secs(60), sink.changed.notified()).await.is_err() {
                violate("a message has no outcome within a minute".into());
            }
        }
        longest = longest.max(began.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    longest
}

/// A network and a disk that take at most 2 and 10 ms.
fn calm_setting(_: &mut Chance) -> Setting {
    let options = Options {
        listeners: vec![
            Listener::tcp("pulsar", "127.0.0.1", with_pulsar::PORT),
            Listener::tcp("mqtt", "127.0.0.1", with_mqtt::PORT),
            Listener::tcp("tubemq", "127.0.0.1", with_tubemq::PORT),
        ],
        ..Options::default()
    };
    Setting { slowness: (2_000, 10_000), options, tap }
}

/// Lets the protocol number `loaded` send all it can, and the others one message at a time.
async fn load(loaded: usize) -> Result<(), String> {
    let fail = |error: forebay_base::error::Error| error.to_string();
    let sinks: [Arc<Sink<u64>>; 3] = Default::default();
    let url = |scheme: &str, port: u16| format!("{scheme}://broker.test:{port}");
    let one = pulsar::Client::connect(pulsar::options::ClientOptions {
        url: url("pulsar", with_pulsar::PORT),
        ..Default::default()
    });
    let one = one.await.map_err(fail)?;
    let two = mqtt::Client::connect(mqtt::options::ClientOptions {
        url: url("mqtt", with_mqtt::PORT),
        client_id: "c".into(),
        ..Default::default()
    });
    let two = two.await.map_err(fail)?;
    let three = tubemq::Client::connect(tubemq::options::ClientOptions {
        url: url("tubemq", with_tubemq::PORT),
        ..Default::default()
    });
    let three = three.await.map_err(fail)?;
    let topic = "persistent://public/default/t";
    let senders = [
        Sender::Pulsar(one.producer(topic, Default::default(), sinks[0].clone()).await.map_err(fail)?),
        Sender::Mqtt(two.producer("t", Default::default(), sinks[1].clone()).map_err(fail)?),
        Sender::TubeMq(three.producer("t", Default::default(), sinks[2].clone()).await.map_err(fail)?),
    ];
    let until = Instant::now() + Duration::from_secs(3);
    let others: Vec<usize> = (0..3).filter(|at| *at != loaded).collect();
    let (sent, first, second) = tokio::join!(
        flood(&senders[loaded], &sinks[loaded], until),
        trickle(&senders[others[0]], &sinks[others[0]], until),
        trickle(&senders[others[1]], &sinks[others[1]], until),
    );
    trace::event(format_args!("{sent} sent, and meanwhile one took {first:?} and {second:?}"));
    if sent < 2000 {
        return Err(format!("protocol {loaded} has sent only {sent}: that is no load"));
    }
    // There and back, behind a commit that has begun and with the next, five times over.
    let limit = Duration::from_millis(5 * (2 * 2 + 2 * 10));
    match first.max(second) {
        longest if longest > limit => {
            Err(format!("with load on protocol {loaded}, a message of another takes {longest:?}"))
        }
        _ => Ok(()),
    }
}

#[test]
fn each_protocol_keeps_its_promises_beside_the_others() {
    super::play(&SEEDS, run);
}

#[test]
fn the_load_of_a_protocol_does_not_hold_up_the_others() {
    for loaded in 0..3 {
        host::play(loaded as u64, calm_setting, async |_, _| load(loaded).await).unwrap();
    }
}
