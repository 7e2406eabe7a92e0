//! A single message reaches the broker although the engine's thread does not run.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use forebay_client::Engine;
use forebay_client::mqtt;
use forebay_client::pulsar::Client;
use forebay_client::pulsar::options::{ClientOptions, ProducerOptions};
use forebay_mqtt::{QoS, Version};
use forebay_pulsar::Outgoing;
use forebay_pulsar::command::Command;

use crate::script::{Broker, Events};

/// Keeps the engine's thread busy until what is returned is dropped.
fn occupied(engine: &Engine) -> mpsc::Sender<()> {
    let (free, freed) = mpsc::channel();
    let (enter, entered) = mpsc::channel();
    engine.handle().spawn(async move {
        enter.send(()).unwrap();
        let _ = freed.recv();
    });
    entered.recv().unwrap();
    free
}

fn comes(what: impl Fn() -> bool) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < Duration::from_secs(60), "it has not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_message_of_pulsar_is_written_by_its_sender() {
    let broker = Broker::start(|_| None);
    let engine = Engine::start(1).unwrap();
    let _entered = engine.handle().enter();
    let events = Arc::new(Events::default());
    let (client, producer) = engine.handle().block_on(async {
        let options = ClientOptions { url: broker.url.clone(), ..ClientOptions::default() };
        let client = Client::connect(options).await.unwrap();
        let topic = "persistent://public/default/direct";
        let producer = client.producer(topic, ProducerOptions::default(), Arc::clone(&events) as _).await;
        (client, producer.unwrap())
    });
    let message = Outgoing { payload: b"x", ..Outgoing::default() };
    let sent = || broker.count(|command| matches!(command, Command::Send(_)));
    let free = occupied(&engine);
    producer.push(&message, None, false).unwrap().write();
    comes(|| sent() == 1);
    // Those that are not written, or follow one that was, are the driver's.
    drop(producer.push(&message, None, false).unwrap());
    producer.push(&message, None, false).unwrap().write();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(sent(), 1);
    drop(free);
    engine.handle().block_on(async {
        let mut acknowledged = 0;
        while acknowledged < 3 {
            acknowledged += events.outcome().await.unwrap();
        }
        client.close().await.unwrap();
    });
    engine.shutdown(Duration::from_secs(5));
}

#[test]
fn a_message_of_mqtt_is_written_by_its_sender() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (heard, hears) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut room = [0; 4096];
        assert!(stream.read(&mut room).unwrap() > 0, "CONNECT");
        stream.write_all(&[0x20, 2, 0, 0]).unwrap();
        while let Ok(count @ 1..) = stream.read(&mut room) {
            heard.send(room[..count].to_vec()).unwrap();
        }
    });
    let engine = Engine::start(1).unwrap();
    let _entered = engine.handle().enter();
    let events = Arc::new(Events::default());
    let options = mqtt::options::ClientOptions {
        url: format!("mqtt://{address}"),
        version: Some(Version::V3_1_1),
        ..mqtt::options::ClientOptions::default()
    };
    let client = engine.handle().block_on(mqtt::Client::connect(options)).unwrap();
    let options = mqtt::options::ProducerOptions::default();
    let producer = client.producer("t", options, Arc::clone(&events) as _).unwrap();
    let free = occupied(&engine);
    let message = mqtt::Outgoing { payload: b"x", qos: Some(QoS::AtMostOnce), ..mqtt::Outgoing::default() };
    producer.push(&message, false).unwrap().write();
    let bytes = hears.recv_timeout(Duration::from_secs(60)).expect("it comes");
    assert_eq!(bytes, [0x30, 4, 0, 1, b't', b'x']);
    // It has its outcome as well: QoS 0 has no other.
    assert_eq!(producer.pending(), 0);
    drop(free);
    assert_eq!(engine.handle().block_on(events.outcome()).unwrap(), 1);
    engine.shutdown(Duration::from_secs(5));
}
