//! A broker's bytes into a client's connection and the session behind it: each publication ends once, a message
//! of QoS 2 is delivered once per use of its identifier, and output is bounded by input. The first byte chooses the
//! version, the second the time of a cut and reconnect.
#![no_main]

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use penstock::error::{Error, ErrorKind};
use penstock::machine::Machine;
use penstock::mqtt::connection::{Connection, Event};
use penstock::mqtt::packet::{Connect, Publish, SubscribeOptions};
use penstock::mqtt::session::{self, Session};
use penstock::mqtt::topic::Filter;
use penstock::mqtt::{Properties, Property, QoS, Version};

const PUBLISHED: u32 = 9;
const RECEIVE_MAXIMUM: u16 = 5;

fn open(now: Instant, version: Version) -> Connection {
    let mut connect = Connect::new(version, "fuzz");
    connect.keep_alive = 10;
    if version == Version::V5 {
        connect.properties = Properties::new()
            .with(Property::ReceiveMaximum(RECEIVE_MAXIMUM))
            .with(Property::TopicAliasMaximum(3))
            .with(Property::MaximumPacketSize(8192))
            .with(Property::AuthenticationMethod("m".into()));
    }
    Connection::new(now, connect, Duration::from_secs(30)).expect("it is short")
}

/// The outcomes of the publications, and the messages that wait to be acknowledged.
#[derive(Default)]
struct Seen {
    ended: u32,
    messages: usize,
    tokens: Vec<u64>,
}

impl Seen {
    fn collect(&mut self, session: &mut Session) {
        while let Some(event) = session.poll_event() {
            match event {
                session::Event::Published(outcome) => self.ended += outcome.count,
                session::Event::Message { publish, token } => {
                    assert!(!publish.topic.is_empty() && publish.properties.topic_alias().is_none());
                    assert_eq!(publish.qos == QoS::AtMostOnce, token == 0);
                    self.messages += 1;
                    self.tokens.push(token);
                }
                session::Event::Subscribed { .. } | session::Event::Unsubscribed { .. } => {}
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&[which, cut], data)) = data.split_first_chunk::<2>() else { return };
    let version = [Version::V3_1, Version::V3_1_1, Version::V5][usize::from(which % 3)];
    let mut now = Instant::now();
    let mut session = Session::new(4, RECEIVE_MAXIMUM);
    session.subscribe(1, vec![(Filter::parse("a/#").expect("a filter"), SubscribeOptions::default())]);
    for number in 0..PUBLISHED {
        let qos = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][number as usize % 3];
        let publish = Publish {
            qos,
            topic: ["a/b", "a/c"][number as usize % 2].into(),
            payload: Bytes::from_static(b"payload"),
            ..Publish::default()
        };
        session.producer().push(now, u64::from(number), publish);
    }
    let (mut seen, mut sent) = (Seen::default(), 0);
    // Two connections of the same session.
    for half in {
        let (head, tail) = data.split_at(data.len() * usize::from(cut) / 256);
        [head, tail]
    } {
        let mut connection = open(now, version);
        let mut input = BytesMut::new();
        let mut ended = false;
        for piece in half.chunks(61) {
            input.extend_from_slice(piece);
            ended |= connection.handle_input(now, &mut input).is_err();
            while let Some(event) = connection.poll_event() {
                match event {
                    Event::Connected(ack) => session.attach(ack.session_present),
                    Event::Auth(_) => {
                        let _ = connection.authenticate(now, Bytes::from_static(b"data"), false);
                    }
                    Event::Packet(packet) => {
                        if let Err(violation) = session.handle_packet(now, packet, &mut connection) {
                            connection.end_with_violation(now, &violation);
                            ended = true;
                        }
                    }
                }
                seen.collect(&mut session);
            }
            if connection.is_ready() && !ended {
                // Out of order, and not all.
                for token in seen.tokens.drain(seen.tokens.len() / 2..) {
                    session.ack(now, token, Some(&mut connection));
                }
                session.poll_transmit(now, &mut connection, 64);
                session.handle_written(connection.queued());
            }
            seen.collect(&mut session);
            now += Duration::from_secs(3);
            if connection.poll_timeout().is_some_and(|at| at <= now) {
                ended |= connection.handle_timeout(now).is_err();
            }
            if ended {
                break;
            }
        }
        sent += connection.transmit().len();
        session.detach();
        seen.collect(&mut session);
        seen.tokens.clear();
    }
    session.close(&Error::new(ErrorKind::Closed, "the end"));
    seen.collect(&mut session);
    assert_eq!(seen.ended, PUBLISHED, "each publication has one outcome");
    assert_eq!(session.pending_messages(), 0);
    assert!(seen.messages <= data.len() / 4, "a PUBLISH has at least four bytes behind its type");
    assert!(sent <= 1024 + 64 * data.len(), "{sent} bytes for {}", data.len());
});
