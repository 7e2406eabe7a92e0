//! The recorded requests of official clients to a real broker, sent to the embedded one: it must
//! answer each with the same command and the same error. [`different`] lists the exceptions and
//! their reasons.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use bytes::BytesMut;
use forebay_broker::protocol::Protocol as _;
use forebay_pulsar::NO_REQUEST;
use forebay_pulsar::command::Command;
use forebay_pulsar::frame::{Decoder, Frame};

use crate::support::pulsar::*;

/// Requests to which the embedded broker answers otherwise than the real one, on purpose.
fn different(connection: &str, request: &str) -> bool {
    let is = |part: &str| connection.contains(part);
    match request {
        // Explicitly not supported.
        _ if is("java-txn") => true,
        // Permissions, partitions, namespaces and termination were set by hand on the real one.
        _ if is("terminated") => true,
        "PartitionedMetadata" => is("forbidden") || is("lookup-missing") || is("java-partitioned"),
        // Two concurrent connections are replayed one after the other.
        _ if is("producer-busy-2") => true,
        "Subscribe" if is("java-reader") => true,
        _ => false,
    }
}

fn frames(path: &Path) -> Option<Vec<Frame>> {
    let text: Vec<u8> = std::fs::read(path).ok()?.into_iter().filter(|c| !c.is_ascii_whitespace()).collect();
    let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
    let mut bytes: BytesMut = text.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
    let (mut decoder, mut frames) = (Decoder::new(6 << 20), Vec::new());
    while let Some(frame) = decoder.next(&mut bytes).unwrap() {
        frames.push(frame);
    }
    Some(frames)
}

/// The command and the error in answer to each request.
fn answers(frames: &[Frame]) -> HashMap<u64, (&'static str, Option<i32>)> {
    let mut answers = HashMap::new();
    for frame in frames {
        let error = match &frame.command {
            Command::Error(error) => Some(error.error),
            Command::PartitionedMetadataResponse(response) => response.error,
            Command::LookupResponse(response) => response.error,
            Command::GetSchemaResponse(response) => response.error_code,
            Command::AckResponse(response) => response.error,
            _ => None,
        };
        if let Some(request) = frame.command.request_id().filter(|request| *request != NO_REQUEST) {
            answers.insert(request, (frame.command.name(), error));
        }
    }
    answers
}

#[test]
fn official_clients_get_the_answers_of_the_real_broker() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/pulsar");
    let mut scenarios: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(name) = name.strip_suffix(".c2s.hex").filter(|name| !name.contains("-raw-")) {
            // `12-cpp-scenario-2` is the second connection of a scenario.
            let scenario = name.split('-').skip(1).filter(|part| part.parse::<u32>().is_err());
            scenarios.entry(scenario.collect::<Vec<_>>().join("-")).or_default().push(name.to_owned());
        }
    }
    let mut compared = 0;
    for connections in scenarios.values_mut() {
        connections.sort();
        let mut bench = Bench::with(|settings| settings.namespaces = vec!["*".into()]);
        for connection in connections {
            let Some(real) = frames(&folder.join(format!("{connection}.s2c.hex"))) else { continue };
            let asked = frames(&folder.join(format!("{connection}.c2s.hex"))).unwrap();
            let peer = bench.broker.connect(bench.now, "x");
            let mut ours = Vec::new();
            for frame in &asked {
                if let Err(error) = bench.frame(peer, frame) {
                    assert!(
                        different(connection, ""),
                        "{connection}: closed at {}: {error}",
                        frame.command.name()
                    );
                    break;
                }
                ours.extend(bench.hear(peer));
            }
            let (real, ours) = (answers(&real), answers(&ours));
            for frame in asked {
                let name = frame.command.name();
                if let Some(request) = frame.command.request_id().filter(|_| !different(connection, name)) {
                    compared += 1;
                    assert_eq!(ours.get(&request), real.get(&request), "{connection}: {name} {request}");
                }
            }
            bench.broker.disconnect(bench.now, peer);
        }
    }
    assert!(compared > 500, "{compared}");
}
