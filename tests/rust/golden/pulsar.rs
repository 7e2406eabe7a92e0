//! Frames recorded between the official clients (C++ 4.2.0, Java 4.0.8) and a broker 4.0.8, and
//! between a script with odd frames and that broker. `golden/pulsar/index.json` holds the
//! recorder's reading of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use bytes::{Buf, Bytes, BytesMut};
use forebay_base::compression::{Compression, decompress};
use forebay_base::error::ErrorKind;
use forebay_pulsar::command::Command;
use forebay_pulsar::frame::{DEFAULT_MAX_MESSAGE_SIZE, Decoder, Frame};
use forebay_pulsar::{hot, pb};
use serde_json::Value;

struct Recorded {
    connection: String,
    client: String,
    /// Sent by the client; otherwise by the broker.
    from_client: bool,
    bytes: Bytes,
    /// Offset, length and entry of the index, in order.
    frames: Vec<(usize, usize, Value)>,
}

impl Recorded {
    fn at(&self, offset: usize) -> String {
        format!("{} {} at {offset}", self.connection, if self.from_client { "client" } else { "broker" })
    }

    fn odd(&self) -> bool {
        self.client == "raw" && self.from_client
    }
}

static RECORDED: LazyLock<Vec<Recorded>> = LazyLock::new(|| {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/pulsar");
    let index: Value = serde_json::from_slice(&std::fs::read(folder.join("index.json")).unwrap()).unwrap();
    let mut all = Vec::new();
    for connection in index["connections"].as_array().unwrap() {
        for direction in ["c2s", "s2c"] {
            // A peer that sent nothing has no file.
            let Some(file) = connection["files"][direction].as_str() else { continue };
            let mut frames: Vec<_> = connection["frames"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|frame| frame["dir"] == direction)
                .map(|frame| {
                    let number = |name: &str| frame[name].as_u64().unwrap() as usize;
                    (number("offset"), number("length"), frame.clone())
                })
                .collect();
            frames.sort_by_key(|(offset, ..)| *offset);
            all.push(Recorded {
                connection: connection["name"].as_str().unwrap().to_owned(),
                client: connection["client"].as_str().unwrap().to_owned(),
                from_client: direction == "c2s",
                bytes: unhex(&std::fs::read_to_string(folder.join(file)).unwrap()),
                frames,
            });
        }
    }
    all
});

fn unhex(text: &str) -> Bytes {
    let digits: Vec<u8> =
        text.bytes().filter_map(|byte| (byte as char).to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect::<Vec<u8>>().into()
}

/// `SEND_RECEIPT` for `SendReceipt`.
fn shouted(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_uppercase());
    }
    out
}

fn each_frame(mut visit: impl FnMut(&Recorded, usize, &Bytes, Frame, &Value)) {
    for recorded in RECORDED.iter() {
        for (offset, length, seen) in &recorded.frames {
            let bytes = recorded.bytes.slice(*offset..offset + length);
            let mut input = BytesMut::from(&bytes[..]);
            let frame = Decoder::new(DEFAULT_MAX_MESSAGE_SIZE)
                .next(&mut input)
                .unwrap_or_else(|error| panic!("{}: {error}", recorded.at(*offset)))
                .unwrap_or_else(|| panic!("{}: not a whole frame", recorded.at(*offset)));
            assert!(input.is_empty(), "{}: bytes are left over", recorded.at(*offset));
            visit(recorded, *offset, &bytes, frame, seen);
        }
    }
}

#[test]
fn the_recording_is_whole() {
    assert_eq!(RECORDED.len(), 2 * 136 - 1, "directions: one client was cut off without an answer");
    assert_eq!(RECORDED.iter().map(|recorded| recorded.frames.len()).sum::<usize>(), 3687, "frames");
}

#[test]
fn every_frame_decodes_to_the_command_that_was_recorded() {
    let mut unknown = 0;
    each_frame(|recorded, offset, _, frame, seen| {
        if let Command::Unknown(number) = frame.command {
            assert_eq!((recorded.connection.as_str(), number), ("95-raw-unknown-command-2", 99));
            unknown += 1;
            return;
        }
        assert_eq!(shouted(frame.command.name()), seen["type"].as_str().unwrap(), "{}", recorded.at(offset));
        for name in ["request_id", "producer_id", "consumer_id", "sequence_id"] {
            let (Some(expected), text) = (seen["cmd"][name].as_u64(), format!("{:?}", frame.command)) else {
                continue;
            };
            assert!(
                text.contains(&format!("{name}: {expected}"))
                    || text.contains(&format!("{name}: Some({expected})")),
                "{}: no {name} {expected} in {text}",
                recorded.at(offset)
            );
        }
    });
    assert_eq!(unknown, 1);
}

#[test]
fn the_frames_of_the_official_clients_and_of_the_broker_encode_to_the_same_bytes() {
    let mut same = 0;
    each_frame(|recorded, offset, bytes, frame, _| {
        if !recorded.odd() {
            assert_eq!(frame.to_bytes(), bytes, "{}: {:?}", recorded.at(offset), frame.command);
            same += 1;
        }
    });
    assert!(same > 3400, "only {same} frames were compared");
}

#[test]
fn metadata_of_the_official_clients_encodes_to_the_same_bytes() {
    let mut same = 0;
    each_frame(|recorded, offset, _, frame, seen| {
        let Some(payload) = frame.payload else { return };
        assert_eq!(
            seen["crc"],
            match payload.checksum {
                None => "none",
                Some(_) if payload.checksum_ok() => "ok",
                Some(_) => "BAD",
            },
            "{}",
            recorded.at(offset)
        );
        if recorded.odd() || (recorded.client == "raw" && payload.metadata().is_err()) {
            return;
        }
        let (encoded, body) = payload.split().unwrap();
        let metadata = payload.metadata().unwrap();
        assert_eq!(metadata.sequence_id, seen["meta"]["sequence_id"].as_u64().unwrap());
        assert_eq!(metadata.producer_name, seen["meta"]["producer_name"].as_str().unwrap());
        assert_eq!(body.len() as u64, seen["payload_len"].as_u64().unwrap());
        let mut again = BytesMut::new();
        hot::encode_metadata(&metadata, &mut again);
        assert_eq!(again, encoded, "{}: {metadata:?}", recorded.at(offset));
        same += 1;
    });
    assert!(same > 450, "only {same} entries were compared");
}

#[test]
fn batches_of_the_official_clients_open_and_close_to_the_same_bytes() {
    let mut batches = BTreeMap::<String, usize>::new();
    each_frame(|recorded, offset, _, frame, seen| {
        let (Some(payload), Some(batch)) = (frame.payload, seen["batch"].as_array()) else { return };
        let metadata = payload.metadata().unwrap();
        if !metadata.encryption_keys.is_empty() {
            return;
        }
        let at = recorded.at(offset);
        let kind = Compression::from_number(metadata.compression() as i32).unwrap();
        let size = if kind == Compression::None {
            payload.body().unwrap().len()
        } else {
            metadata.uncompressed_size() as usize
        };
        let plain = decompress(kind, &payload.body().unwrap(), size, DEFAULT_MAX_MESSAGE_SIZE).unwrap();
        assert_eq!(plain.len(), size, "{at}");
        let mut rest = plain.clone();
        for expected in batch {
            let length = rest.get_u32() as usize;
            let encoded = rest.split_to(length);
            let single = hot::decode_single(&encoded).unwrap();
            assert_eq!(
                single.payload_size as u64,
                expected["meta"]["payload_size"].as_u64().unwrap(),
                "{at}"
            );
            assert_eq!(single.partition_key.as_deref(), expected["meta"]["partition_key"].as_str(), "{at}");
            let mut again = BytesMut::new();
            hot::encode_single(&single, &mut again);
            assert_eq!(again, encoded, "{at}: {single:?}");
            rest.advance(single.payload_size as usize);
        }
        assert!(rest.is_empty(), "{at}: bytes after the last message of the batch");
        *batches.entry(format!("{} {kind:?}", recorded.client)).or_default() += 1;
    });
    for client in ["cpp", "java"] {
        for kind in ["None", "Lz4", "Zlib", "Zstd", "Snappy"] {
            assert!(
                batches.contains_key(&format!("{client} {kind}")),
                "no {kind} batch of {client}: {batches:?}"
            );
        }
    }
}

#[test]
fn any_cut_of_a_connection_gives_the_same_frames() {
    let mut cuts = 0;
    for recorded in RECORDED.iter().filter(|recorded| (200..2500).contains(&recorded.bytes.len())) {
        let whole = frames_of(&[&recorded.bytes]);
        if cuts > 40_000 {
            break;
        }
        for cut in 0..=recorded.bytes.len() {
            let (head, tail) = recorded.bytes.split_at(cut);
            assert_eq!(frames_of(&[head, tail]), whole, "{}: cut at {cut}", recorded.connection);
            cuts += 1;
        }
        let bytewise: Vec<&[u8]> = recorded.bytes.chunks(1).collect();
        assert_eq!(frames_of(&bytewise), whole, "{}: byte by byte", recorded.connection);
    }
    assert!(cuts > 40_000, "only {cuts} cuts");
}

/// Frames and, at the end, the kind of the error that ended the connection.
fn frames_of(pieces: &[&[u8]]) -> (Vec<Frame>, Option<ErrorKind>) {
    let (mut input, mut frames) = (BytesMut::new(), Vec::new());
    let mut decoder = Decoder::new(DEFAULT_MAX_MESSAGE_SIZE);
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match decoder.next(&mut input) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error.kind())),
            }
        }
    }
    (frames, None)
}

// ------------------------------------------------------------------------------ the odd frames

fn odd(name: &str) -> &'static Recorded {
    RECORDED
        .iter()
        .find(|recorded| recorded.from_client && recorded.connection.ends_with(name))
        .unwrap_or_else(|| panic!("no connection {name}"))
}

fn odd_sends(name: &str) -> Vec<Frame> {
    frames_of(&[&odd(name).bytes]).0.into_iter().filter(|frame| frame.payload.is_some()).collect()
}

#[test]
fn a_wrong_checksum_is_seen_and_a_missing_one_is_allowed() {
    let checks: Vec<_> = odd_sends("raw-bad-crc")
        .iter()
        .map(|frame| frame.payload.as_ref().map(|p| (p.checksum.is_some(), p.checksum_ok())).unwrap())
        .collect();
    assert_eq!(checks, [(true, false), (true, true), (false, true)]);
}

#[test]
fn a_frame_announced_as_six_mebibytes_is_refused_before_its_bytes_come() {
    let (frames, error) = frames_of(&[&odd("raw-frame-too-large").bytes]);
    assert!(matches!(frames[..], [Frame { command: Command::Connect(_), .. }]));
    assert_eq!(error, Some(ErrorKind::FrameTooLarge));
}

#[test]
fn garbage_as_metadata_is_an_error_of_the_entry_not_of_the_connection() {
    let sends = odd_sends("raw-metadata-missing");
    let kinds: Vec<_> = sends
        .iter()
        .map(|frame| frame.payload.as_ref().unwrap().metadata().map(|_| ()).map_err(|error| error.kind()))
        .collect();
    assert_eq!(kinds, [Ok(()), Err(ErrorKind::Protocol)]);
}

#[test]
fn a_command_of_a_newer_protocol_is_skipped() {
    let (frames, error) = frames_of(&[&odd("raw-unknown-command-2").bytes]);
    assert_eq!(error, None);
    assert!(matches!(
        frames[..],
        [
            Frame { command: Command::Connect(_), .. },
            Frame { command: Command::Unknown(99), .. },
            Frame { command: Command::PartitionedMetadata(_), .. },
        ]
    ));
}

#[test]
fn a_field_of_a_newer_protocol_is_skipped() {
    let (frames, error) = frames_of(&[&odd("raw-unknown-field").bytes]);
    assert_eq!(error, None);
    let Command::Lookup(lookup) = &frames[1].command else { panic!("{:?}", frames[1]) };
    assert_eq!(lookup.request_id, 5);
}

#[test]
fn a_subscription_type_of_a_newer_protocol_does_not_look_like_a_known_one() {
    let (frames, error) = frames_of(&[&odd("raw-odd-requests-3").bytes]);
    assert_eq!(error, None);
    let last = frames.iter().rev().find_map(|frame| match &frame.command {
        Command::Subscribe(subscribe) => Some(subscribe.sub_type),
        _ => None,
    });
    assert!(pb::command_subscribe::SubType::try_from(last.unwrap()).is_err());
}

#[test]
fn commands_before_or_after_their_time_decode_all_the_same() {
    // Their meaning depends on the state of the connection: the broker closed each of these.
    let (frames, error) = frames_of(&[&odd("raw-no-connect").bytes]);
    assert!(matches!(frames[..], [Frame { command: Command::Lookup(_), .. }]) && error.is_none());
    let (frames, error) = frames_of(&[&odd("raw-connect-twice").bytes]);
    assert!(error.is_none());
    assert_eq!(frames.iter().filter(|frame| matches!(frame.command, Command::Connect(_))).count(), 2);
}
