//! A direct user of the client gets no message of a delivery that was revoked, however it takes
//! messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_base::error::{ErrorKind, Result};
use forebay_broker::{Broker, Durability, Listener, Options};
use forebay_client::Engine;
use forebay_client::pulsar::options::{ClientOptions, ConsumerOptions, ProducerOptions};
use forebay_client::pulsar::{Client, Consumer, SeekTo};
use forebay_client::receive::{Batch, Receive};
use forebay_pulsar::{Message, MessageId, Outgoing};

use crate::script::Events;

const SENT: [&str; 5] = ["a", "b", "c", "d", "e"];
const LIMIT: Duration = Duration::from_secs(60);
/// What else would come, comes within that time.
const LONGER: Duration = Duration::from_millis(200);

/// Takes one message, or several.
type Take = fn(&Consumer, &mut Vec<Message>);

const TAKES: [(&str, Take); 4] = [
    ("next", |consumer, out| out.extend(consumer.next().unwrap())),
    ("take", |consumer, out| assert!(consumer.take(9, out).is_ok())),
    ("a part of a batch", |consumer, out| consumer.take_batch(Batch::of(9), true, out).unwrap()),
    ("a batch", |consumer, out| consumer.take_batch(Batch::of(1), false, out).unwrap()),
];

fn run<T>(engine: &Engine, what: impl Future<Output = Result<T>>) -> Result<T> {
    engine.handle().block_on(what)
}

/// What is taken until there are `count` messages, and a little longer.
fn taken(consumer: &Consumer, take: Take, count: usize) -> Vec<String> {
    let mut out = Vec::new();
    let mut until = Instant::now() + if count == 0 { LONGER } else { LIMIT };
    while Instant::now() < until {
        let before = out.len();
        take(consumer, &mut out);
        if out.len() >= count && before < count {
            until = Instant::now() + LONGER;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    out.iter().map(|message| String::from_utf8(message.payload.to_vec()).unwrap()).collect()
}

/// Has all messages in the look-ahead of the consumer, and takes the first.
fn look_ahead(consumer: &Consumer) -> Message {
    let until = Instant::now() + LIMIT;
    while consumer.ahead().len() < SENT.len() {
        assert!(Instant::now() < until, "{} came", consumer.ahead().len());
        consumer.take_batch(Batch::of(9), false, &mut Vec::new()).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    let first = consumer.next().unwrap().unwrap();
    assert_eq!((&*first.payload, consumer.ahead().len()), (b"a".as_slice(), SENT.len() - 1));
    first
}

#[test]
fn what_is_revoked_comes_once() {
    let listeners = vec![Listener::local("pulsar")];
    let broker =
        Broker::start(Options { listeners, durability: Durability::Memory, ..Options::default() }).unwrap();
    let engine = Engine::start(1).unwrap();
    let _entered = engine.handle().enter();
    let url = broker.urls().of("pulsar").unwrap().to_owned();
    let client = run(&engine, Client::connect(ClientOptions { url, ..ClientOptions::default() })).unwrap();
    for (name, take) in TAKES {
        for verb in ["seek", "seek to the end", "redelivery", "give back", "give back after a seek", "close"]
        {
            let topic = format!("persistent://public/default/{verb}-{name}").replace(' ', "-");
            let open = || {
                let options = ConsumerOptions::default();
                let opening = client.consumer(
                    vec![topic.clone()],
                    "s".into(),
                    options,
                    Arc::new(Events::default()) as _,
                );
                run(&engine, opening).unwrap()
            };
            let consumer = open();
            let events = Arc::new(Events::default());
            let opening = client.producer(&topic, ProducerOptions::default(), Arc::clone(&events) as _);
            let producer = run(&engine, opening).unwrap();
            for payload in SENT {
                let message = Outgoing { payload: payload.as_bytes(), ..Outgoing::default() };
                drop(producer.push(&message, None, false).unwrap());
            }
            let first = look_ahead(&consumer);
            let seek = |id| {
                let to = SeekTo::Id { topic: "".into(), id, inclusive: id != MessageId::LATEST };
                run(&engine, consumer.seek(to)).unwrap();
            };
            let expected: &[&str] = match verb {
                "seek" => {
                    seek(MessageId::EARLIEST);
                    &SENT
                }
                "seek to the end" => {
                    seek(MessageId::LATEST);
                    &[]
                }
                "redelivery" => {
                    consumer.redeliver_unacknowledged().unwrap();
                    &SENT
                }
                "give back" => {
                    consumer.give_back(first);
                    &SENT
                }
                "give back after a seek" => {
                    seek(MessageId::EARLIEST);
                    consumer.give_back(first);
                    &SENT
                }
                _ => {
                    run(&engine, consumer.close()).unwrap();
                    assert_eq!(consumer.next().unwrap_err().kind(), ErrorKind::Closed);
                    assert_eq!(taken(&open(), take, SENT.len()), SENT, "{verb}, {name}");
                    continue;
                }
            };
            assert_eq!(taken(&consumer, take, expected.len()), expected, "{verb}, {name}");
            run(&engine, consumer.close()).unwrap();
        }
    }
    run(&engine, client.close()).unwrap();
    engine.shutdown(Duration::from_secs(5));
}
