//! Connections whose opener gives up before the broker has answered, and those whose broker sends
//! garbage.

use std::io::Read;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::error::ErrorKind;
use forebay_client::Engine;
use forebay_client::pulsar::Client;
use forebay_client::pulsar::options::{ClientOptions, ConsumerOptions, ProducerOptions};
use forebay_pulsar::command::Command;
use forebay_pulsar::{MessageId, Outgoing};

use crate::script::{Broker, Events, run, until};

/// Far beyond the time in which the test ends.
const NEVER: Duration = Duration::from_secs(600);

#[test]
fn a_connect_that_is_given_up_in_the_handshake_closes_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("pulsar://{}", listener.local_addr().unwrap());
    let engine = Engine::start(1).unwrap();
    let options = ClientOptions { url, connect_timeout: NEVER, ..ClientOptions::default() };
    let connecting = engine.handle().spawn(Client::connect(options));
    let (mut peer, _) = listener.accept().unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut bytes = [0; 4096];
    assert!(peer.read(&mut bytes).unwrap() > 0, "CONNECT has come");
    connecting.abort();
    let left = std::iter::repeat_with(|| peer.read(&mut bytes)).find(|read| !matches!(read, Ok(1..)));
    assert_eq!(left.unwrap().unwrap(), 0, "the connection has ended");
}

#[test]
fn garbage_of_the_broker_ends_its_connection_and_no_producer() {
    run(async {
        let broker = Broker::start(|_| None);
        let options = ClientOptions { url: broker.url.clone(), ..ClientOptions::default() };
        let client = Client::connect(options).await?;
        let events = Arc::new(Events::default());
        let topic = "persistent://public/default/t";
        let producer = client.producer(topic, ProducerOptions::default(), events.clone()).await?;
        let consumer = client
            .consumer(vec![topic.into()], "s".into(), ConsumerOptions::default(), events.clone())
            .await?;
        // It is not answered.
        let target = (Arc::from(topic), MessageId::new(3, 1)).into();
        let asking = tokio::spawn(async move { consumer.ack_receipt(&[target], false).await });
        until(|| broker.count(|command| matches!(command, Command::Ack(_))) == 1).await;
        let frame_of_half_a_gigabyte = (512_u32 << 20).to_be_bytes();
        broker.write(&[frame_of_half_a_gigabyte, frame_of_half_a_gigabyte].concat());
        let error = asking.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Disconnected);
        assert!(error.message().contains("was given up") && error.message().contains("frame"), "{error}");
        until(|| broker.count(|command| matches!(command, Command::Producer(_))) == 2).await;
        producer.push(&Outgoing { payload: b"x", ..Outgoing::default() }, None, false)?.write();
        assert_eq!(events.outcome().await, Ok(1));
        Ok(())
    });
}
