//! What MQTT does not allow ends the connection: CONNECT and reason codes, byte by byte against
//! tables of the standard.

use forebay_broker::protocol::Protocol as _;
use forebay_mqtt::packet::{Connect, Will};
use forebay_mqtt::{Packet, Properties, Property, Reason, Version};

use crate::support::mqtt::*;

/// A packet of this first byte.
fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    [&[first, body.len() as u8], body].concat()
}

/// Whether the bytes end a new connection, and what it heard.
fn ends(bench: &mut Bench, bytes: &[u8], version: Version) -> (bool, Vec<Packet>) {
    let id = bench.open_peer();
    let failed = bench.bytes(id, bytes).is_err();
    let ended = bench.broker.finished(id);
    assert!(ended || !failed, "an error ends it");
    let heard = bench.hear_as(id, version);
    bench.drop_peer(id);
    (ended, heard)
}

/// A body of CONNECT with every field, and the places of its flags and properties.
fn full(version: Version) -> Vec<u8> {
    let will =
        Will { qos: Q1, retain: true, properties: Properties::new(), topic: "w".into(), payload: "p".into() };
    let connect = Connect {
        will: Some(will),
        user_name: Some("u".into()),
        password: Some("s".into()),
        ..Connect::new(version, "c")
    };
    encode(Packet::Connect(Box::new(connect)), version)[2..].to_vec()
}

const FLAGS: usize = 7;

#[test]
fn a_connect_that_is_not_as_the_standard_says_ends_the_connection() {
    for version in [Version::V3_1_1, Version::V5] {
        let mut bench = Bench::new();
        let whole = full(version);
        let (ended, heard) = ends(&mut bench, &packet(0x10, &whole), version);
        assert!(!ended && matches!(&heard[..], [Packet::ConnAck(ack)] if ack.reason == Reason::Success));
        let mut wrong: Vec<(String, Vec<u8>)> = Vec::new();
        for length in 0..whole.len() {
            wrong.push((format!("cut to {length} bytes"), packet(0x10, &whole[..length])));
        }
        wrong.push(("a byte too many".into(), packet(0x10, &[&whole[..], b"x"].concat())));
        for flags in 1..16 {
            wrong.push((format!("fixed header with flags {flags}"), packet(0x10 | flags, &whole)));
        }
        let mut change = |what: &str, at: usize, byte: u8| {
            let mut body = whole.clone();
            body[at] = byte;
            wrong.push((what.to_owned(), packet(0x10, &body)));
        };
        change("the reserved flag", FLAGS, whole[FLAGS] | 1);
        change("a will of QoS 3", FLAGS, whole[FLAGS] | 0x18);
        change("another protocol name", 2, b'm');
        // Four fields of three bytes follow it, and the will's properties.
        let client = whole.len() - 13 - usize::from(version == Version::V5);
        assert_eq!(whole[client], b'c');
        change("a client identifier with NUL", client, 0);
        change("a client identifier that is not UTF-8", client, 0xff);
        // Without a will, its QoS and its flag for retained messages are zero.
        let minimal = |flags: u8, rest: &[u8]| {
            let properties: &[u8] = if version == Version::V5 { &[0] } else { &[] };
            let head = [0, 4, b'M', b'Q', b'T', b'T', version.level(), flags, 0, 60];
            packet(0x10, &[&head[..], properties, &[0, 1, b'c'], rest].concat())
        };
        assert!(!ends(&mut bench, &minimal(2, &[]), version).0);
        for (what, flags) in [("QoS", 0x08), ("QoS", 0x10), ("retain", 0x20)] {
            wrong.push((format!("{what} of no will"), minimal(2 | flags, &[])));
        }
        if version == Version::V3_1_1 {
            wrong.push(("a password without a user name".into(), minimal(0x42, &[0, 1, b's'])));
        } else {
            let with = |properties: &[u8]| {
                let head = [0, 4, b'M', b'Q', b'T', b'T', 5, 2, 0, 60, properties.len() as u8];
                packet(0x10, &[&head[..], properties, &[0, 1, b'c']].concat())
            };
            assert!(!ends(&mut bench, &with(&[0x21, 0, 1]), version).0);
            for (what, properties) in [
                ("a property twice", &[0x21, 0, 1, 0x21, 0, 1][..]),
                ("a property of PUBLISH", &[0x23, 0, 1]),
                ("a property that there is not", &[0x7f, 0]),
                ("a receive maximum of 0", &[0x21, 0, 0]),
                ("a maximum packet size of 0", &[0x27, 0, 0, 0, 0]),
                ("a flag of 2", &[0x17, 2]),
                ("authentication data without a method", &[0x16, 0, 1, 1]),
                ("half a property", &[0x21, 0]),
            ] {
                wrong.push((what.into(), with(properties)));
            }
        }
        for (what, bytes) in wrong {
            let (ended, heard) = ends(&mut bench, &bytes, version);
            assert!(ended, "{version:?}: {what}: {heard:?}");
            let refused = |packet: &Packet| matches!(packet, Packet::ConnAck(ack) if ack.reason.is_error());
            assert!(heard.iter().all(refused), "{version:?}: {what}: {heard:?}");
            assert!(version == Version::V5 || heard.is_empty(), "without CONNACK: {what}: {heard:?}");
        }
    }
}

#[test]
fn each_packet_of_a_client_has_its_own_reason_codes_and_others_end_the_connection() {
    const ACCEPTED_OR_NOT: &[u8] = &[0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99];
    const FOUND_OR_NOT: &[u8] = &[0x00, 0x92];
    // What a server alone may say is not for clients (table of section 3.14.2.1).
    const DISCONNECT: &[u8] =
        &[0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99];
    const OF_SERVERS: std::ops::RangeInclusive<u8> = 0x87..=0xa2;
    for (name, first, codes) in [
        ("PUBACK", 0x40, ACCEPTED_OR_NOT),
        ("PUBREC", 0x50, ACCEPTED_OR_NOT),
        ("PUBREL", 0x62, FOUND_OR_NOT),
        ("PUBCOMP", 0x70, FOUND_OR_NOT),
        ("DISCONNECT", 0xe0, DISCONNECT),
    ] {
        let mut bench = Bench::new();
        for code in 0..=255_u8 {
            let is_disconnect = first == 0xe0;
            if is_disconnect && OF_SERVERS.contains(&code) && !codes.contains(&code) {
                continue;
            }
            let peer = bench.connect("a");
            let bytes = if is_disconnect { vec![first, 1, code] } else { vec![first, 3, 0, 9, code] };
            let ended = bench.bytes(peer.id, &bytes).is_err();
            assert_eq!(ended, !codes.contains(&code), "{name} with {code:#04x}");
            if ended {
                let reason = bench.ended(&peer);
                assert!(
                    matches!(reason, Reason::MalformedPacket | Reason::ProtocolError),
                    "{name} with {code:#04x}: {reason:?}"
                );
            }
            bench.drop_peer(peer.id);
        }
    }
}

#[test]
fn who_is_refused_while_it_authenticates_is_disconnected_and_nothing_behind_it_is_read() {
    let mut bench = Bench::new();
    let watcher = bench.connect("w");
    bench.subscribe(&watcher, "#", Q0);
    let properties = Properties::new().with(Property::AuthenticationMethod("SCRAM".into()));
    let connect = Connect { properties, ..Connect::new(Version::V5, "a") };
    let (alone, _) = bench.try_connect(connect.clone());
    assert!(bench.broker.finished(alone.id), "the connection is closed");
    let peer = Peer { id: bench.open_peer(), version: Version::V5 };
    let mut bytes = encode(Packet::Connect(Box::new(connect)), Version::V5);
    bytes.extend_from_slice(&encode(Packet::Publish(publish("t", Q0, 0, "x")), Version::V5));
    let _ = bench.bytes(peer.id, &bytes);
    let heard = bench.hear(&peer);
    assert!(matches!(&heard[..], [Packet::ConnAck(ack)] if ack.reason == Reason::BadAuthenticationMethod));
    assert!(bench.broker.finished(peer.id), "the connection is closed");
    let _ = bench.tell(&peer, Packet::Publish(publish("t", Q0, 0, "x")));
    assert!(bench.payloads(&watcher).is_empty());
}

#[test]
fn response_information_is_given_to_none_that_did_not_ask_for_it() {
    for asked in [None, Some(false)] {
        let properties = asked.into_iter().map(Property::RequestResponseInformation).collect();
        let mut bench = Bench::new();
        let (_, heard) = bench.try_connect(Connect { properties, ..Connect::new(Version::V5, "a") });
        let [Packet::ConnAck(ack)] = &heard[..] else { panic!("{heard:?}") };
        assert_eq!(ack.properties.response_information(), None, "asked: {asked:?}");
    }
}
