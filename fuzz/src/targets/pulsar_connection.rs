//! A broker's bytes into the client's connection: events or an error, never more output than input
//! explains.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use forebay_base::machine::Machine;
use forebay_pulsar::command::Command;
use forebay_pulsar::connection::{Config, Connection};
use forebay_pulsar::pb;

/// Plays one input.
pub fn play(data: &[u8]) {
    let mut now = Instant::now();
    let mut connection = Connection::new(Config::default(), now);
    for _ in 0..3 {
        connection.request(now, |request_id| {
            Command::PartitionedMetadata(pb::CommandPartitionedTopicMetadata {
                topic: "t".into(),
                request_id,
                ..Default::default()
            })
        });
    }
    connection.transmit().clear();
    let mut input = BytesMut::new();
    let mut answered = 0;
    for piece in data.chunks(97) {
        input.extend_from_slice(piece);
        let ended = connection.handle_input(now, &mut input).is_err();
        while let Some(event) = connection.poll_event() {
            answered += usize::from(matches!(event, forebay_pulsar::connection::Event::Response { .. }));
        }
        if ended {
            break;
        }
        now += Duration::from_secs(7);
        if connection.poll_timeout().is_some_and(|at| at <= now) && connection.handle_timeout(now).is_err() {
            break;
        }
    }
    assert!(answered <= 3 + data.len() / 8, "a request is answered once");
    assert!(connection.transmit().len() <= 64 * (data.len() + 4));
}
