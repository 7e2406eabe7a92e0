//! Packets recorded between clients and brokers of other authors: paho-mqtt, aiomqtt, gmqtt, the
//! npm client and Mosquitto's programs; Mosquitto and HiveMQ. `golden/record_mqtt.py` recorded
//! them, and each line of `golden/mqtt/*.jsonl` holds an independent reader's view of a packet. The
//! sessions of the client "raw" hold packets that no client sends.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use forebay_base::transmit::Transmit;
use forebay_mqtt::frame::{Decoder, Frame};
use forebay_mqtt::packet::{Ack, Will};
use forebay_mqtt::{Packet, Properties, Property, Reason, Sender, Version, Violation};
use serde_json::{Map, Value, json};

const MAX: usize = 1 << 20;

struct Line {
    sender: Sender,
    bytes: Bytes,
    said: Value,
}

impl Line {
    /// The first byte is already invalid, so the rest is not examined.
    fn is_absurd(&self) -> bool {
        Decoder::new(MAX).next(&mut BytesMut::from(&self.bytes[..1])).is_err()
    }
}

struct Connection {
    name: String,
    raw: bool,
    version: Option<Version>,
    lines: Vec<Line>,
}

impl Connection {
    fn at(&self, number: usize) -> String {
        format!("{} packet {number}: {}", self.name, self.lines[number].said)
    }

    /// All bytes that one side sent.
    fn stream(&self, sender: Sender) -> BytesMut {
        self.lines.iter().filter(|line| line.sender == sender).flat_map(|line| line.bytes.to_vec()).collect()
    }
}

static RECORDED: LazyLock<Vec<Connection>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/mqtt");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let mut connections = BTreeMap::<u64, Connection>::new();
        let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let raw = lines.next().unwrap()["client"] == "raw";
        for line in lines {
            let number = line["connection"].as_u64().unwrap();
            let connection = connections.entry(number).or_insert_with(|| Connection {
                name: format!("{name} connection {number}"),
                raw,
                version: None,
                lines: Vec::new(),
            });
            let Some(hex) = line["hex"].as_str() else { continue };
            let said = line["said"].clone();
            if let Some(level) = said["version"].as_u64() {
                connection.version = [Version::V3_1, Version::V3_1_1, Version::V5]
                    .into_iter()
                    .find(|version| u64::from(version.level()) == level);
            }
            let sender = if line["from"] == "client" { Sender::Client } else { Sender::Server };
            connection.lines.push(Line { sender, bytes: unhex(hex), said });
        }
        all.extend(connections.into_values());
    }
    all
});

fn unhex(text: &str) -> Bytes {
    let digits: Vec<u8> = text.chars().map(|digit| digit.to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect::<Vec<u8>>().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn frame(bytes: &[u8]) -> Frame {
    let mut input = BytesMut::from(bytes);
    let frame = Decoder::new(MAX).next(&mut input).unwrap().expect("a whole packet");
    assert!(input.is_empty());
    frame
}

fn encode(packet: &Packet, version: Version) -> Bytes {
    let mut out = Transmit::default();
    packet.encode(version, &mut out).unwrap();
    let bytes = out.take().freeze();
    assert_eq!(bytes.len(), packet.encoded_len(version), "{packet:?}");
    bytes
}

// ------------------------------------------------------------------------------ in the recorder's
// terms

fn property(property: &Property) -> Value {
    use Property as P;
    let snake = format!("{property:?}")
        .split('(')
        .next()
        .unwrap()
        .replace("QoS", "Qos")
        .chars()
        .flat_map(|letter| letter.is_uppercase().then_some('_').into_iter().chain(letter.to_lowercase()))
        .skip(1)
        .collect::<String>();
    let value = match property {
        P::PayloadFormatIndicator(flag)
        | P::RequestProblemInformation(flag)
        | P::RequestResponseInformation(flag)
        | P::MaximumQoS(flag)
        | P::RetainAvailable(flag)
        | P::WildcardSubscriptionAvailable(flag)
        | P::SubscriptionIdentifierAvailable(flag)
        | P::SharedSubscriptionAvailable(flag) => json!(u8::from(*flag)),
        P::MessageExpiryInterval(number)
        | P::SubscriptionIdentifier(number)
        | P::SessionExpiryInterval(number)
        | P::WillDelayInterval(number)
        | P::MaximumPacketSize(number) => json!(number),
        P::ServerKeepAlive(number)
        | P::ReceiveMaximum(number)
        | P::TopicAliasMaximum(number)
        | P::TopicAlias(number) => json!(number),
        P::ContentType(text)
        | P::ResponseTopic(text)
        | P::AssignedClientIdentifier(text)
        | P::AuthenticationMethod(text)
        | P::ResponseInformation(text)
        | P::ServerReference(text)
        | P::ReasonString(text) => json!(&**text),
        P::CorrelationData(bytes) | P::AuthenticationData(bytes) => json!(hex(bytes)),
        P::User(name, value) => return json!(["user_property", [&**name, &**value]]),
    };
    json!([snake, value])
}

fn properties(all: &Properties) -> Value {
    all.iter().map(property).collect()
}

fn ack(name: &str, ack: &Ack) -> Value {
    json!({
        "type": name, "packet_id": ack.packet_id, "reason": ack.reason.code(), "properties": properties(&ack.properties)
    })
}

fn will(will: &Will, version: Version) -> Value {
    let mut said = json!({
        "qos": will.qos as u8, "retain": will.retain, "topic": &*will.topic, "payload": hex(&will.payload)
    });
    if version == Version::V5 {
        said["properties"] = properties(&will.properties);
    }
    said
}

/// The fields of a packet, named as in `tests/support/mqtt/wire.py`.
fn said(packet: &Packet, version: Version) -> Value {
    let v5 = version == Version::V5;
    match packet {
        Packet::Connect(connect) => {
            let mut said = json!({
                "type": "CONNECT",
                "protocol": connect.version.protocol_name(),
                "version": connect.version.level(),
                "clean": connect.clean_start,
                "keep_alive": connect.keep_alive,
                "client_id": &*connect.client_id,
                "properties": properties(&connect.properties),
            });
            if let Some(asked) = &connect.will {
                said["will"] = will(asked, version);
            }
            if let Some(name) = &connect.user_name {
                said["username"] = json!(&**name);
            }
            if let Some(password) = &connect.password {
                said["password"] = json!(hex(password));
            }
            said
        }
        Packet::ConnAck(connack) => json!({
            "type": "CONNACK",
            "session_present": connack.session_present,
            "reason": if v5 { connack.reason.code() } else { connack.reason.return_code() },
            "properties": properties(&connack.properties),
        }),
        Packet::Publish(publish) => {
            let mut said = json!({
                "type": "PUBLISH",
                "dup": publish.dup,
                "qos": publish.qos as u8,
                "retain": publish.retain,
                "topic": &*publish.topic,
                "properties": properties(&publish.properties),
                "payload": hex(&publish.payload),
            });
            if let Some(packet_id) = publish.packet_id {
                said["packet_id"] = json!(packet_id);
            }
            said
        }
        Packet::PubAck(one) => ack("PUBACK", one),
        Packet::PubRec(one) => ack("PUBREC", one),
        Packet::PubRel(one) => ack("PUBREL", one),
        Packet::PubComp(one) => ack("PUBCOMP", one),
        Packet::Subscribe(subscribe) => json!({
            "type": "SUBSCRIBE",
            "packet_id": subscribe.packet_id,
            "properties": properties(&subscribe.properties),
            "filters": subscribe.filters.iter()
                .map(|(filter, options)| json!([&**filter, options.to_byte(version)])).collect::<Value>(),
        }),
        Packet::SubAck(suback) => json!({
            "type": "SUBACK",
            "packet_id": suback.packet_id,
            "properties": properties(&suback.properties),
            "reasons": suback.reasons.iter().map(|reason| reason.suback_code(version)).collect::<Vec<_>>(),
        }),
        Packet::Unsubscribe(unsubscribe) => json!({
            "type": "UNSUBSCRIBE",
            "packet_id": unsubscribe.packet_id,
            "properties": properties(&unsubscribe.properties),
            "filters": unsubscribe.filters.iter().map(|filter| json!(&**filter)).collect::<Value>(),
        }),
        Packet::UnsubAck(unsuback) => json!({
            "type": "UNSUBACK",
            "packet_id": unsuback.packet_id,
            "properties": properties(&unsuback.properties),
            "reasons": unsuback.reasons.iter().map(|reason| reason.code()).collect::<Vec<_>>(),
        }),
        Packet::PingReq => json!({ "type": "PINGREQ" }),
        Packet::PingResp => json!({ "type": "PINGRESP" }),
        Packet::Disconnect(disconnect) => json!({
            "type": "DISCONNECT",
            "reason": disconnect.reason.code(),
            "properties": properties(&disconnect.properties),
        }),
        Packet::Auth(auth) => {
            json!({ "type": "AUTH", "reason": auth.reason.code(), "properties": properties(&auth.properties) })
        }
    }
}

/// Empty properties and absent ones are the same.
fn without_empty(mut said: Value) -> Value {
    let fields: &mut Map<String, Value> = said.as_object_mut().unwrap();
    if fields.get("properties").is_some_and(|all| all.as_array().unwrap().is_empty()) {
        fields.remove("properties");
    }
    said
}

// ------------------------------------------------------------------------------ packets of clients
// and brokers

/// All packets except those of the client "raw" and of brokers that answer an unknown version.
fn each_packet(mut visit: impl FnMut(&Connection, usize, &Line, Version, Packet)) {
    for connection in RECORDED.iter() {
        let Some(version) = connection.version else { continue };
        for (number, line) in connection.lines.iter().enumerate() {
            if connection.raw && line.sender == Sender::Client || connection.name.contains("wrong-name") {
                continue;
            }
            let packet = Packet::decode(&frame(&line.bytes), version, line.sender)
                .unwrap_or_else(|violation| panic!("{}: {violation:?}", connection.at(number)));
            visit(connection, number, line, version, packet);
        }
    }
}

#[test]
fn the_recording_holds_every_packet_of_every_version() {
    let mut seen = BTreeMap::<Version, BTreeSet<String>>::new();
    each_packet(|_, _, line, version, _| {
        seen.entry(version).or_default().insert(line.said["type"].as_str().unwrap().to_owned());
    });
    // Pings are the same in all versions.
    assert_eq!(seen[&Version::V5].len(), 15 - 2, "{seen:?}");
    assert_eq!(seen[&Version::V3_1_1].len(), 14, "{seen:?}");
    assert!(seen[&Version::V3_1].len() >= 12, "{seen:?}");
    assert!(RECORDED.len() > 230);
}

#[test]
fn every_packet_says_what_an_independent_reader_saw_in_it() {
    let mut compared = 0;
    each_packet(|connection, number, line, version, packet| {
        assert_eq!(
            without_empty(said(&packet, version)),
            without_empty(line.said.clone()),
            "{}",
            connection.at(number)
        );
        compared += 1;
    });
    assert!(compared > 1500, "only {compared}");
}

#[test]
fn every_packet_encodes_to_the_bytes_that_it_came_from() {
    let (mut same, mut longer) = (0, BTreeSet::new());
    each_packet(|connection, number, line, version, packet| {
        let bytes = encode(&packet, version);
        if bytes == line.bytes {
            same += 1;
            return;
        }
        // Some peers send "success, no properties" where the standard lets them omit it.
        assert!(bytes.len() < line.bytes.len(), "{}: {}", connection.at(number), hex(&bytes));
        assert_eq!(
            Packet::decode(&frame(&bytes), version, line.sender),
            Ok(packet),
            "{}",
            connection.at(number)
        );
        longer.insert(hex(&line.bytes[..1]) + line.said["type"].as_str().unwrap());
    });
    assert!(same > 1450, "only {same} are the same");
    let allowed = ["40PUBACK", "50PUBREC", "62PUBREL", "70PUBCOMP", "e0DISCONNECT"];
    assert!(longer.iter().all(|kind| allowed.contains(&kind.as_str())), "{longer:?}");
}

#[test]
fn a_connection_cut_anywhere_gives_the_same_packets() {
    let mut cuts = 0;
    for connection in RECORDED.iter() {
        for sender in [Sender::Client, Sender::Server] {
            let whole = connection.stream(sender);
            let expected = frames_of(&[&whole]);
            let sane = connection
                .lines
                .iter()
                .filter(|line| line.sender == sender)
                .take_while(|line| !line.is_absurd());
            assert_eq!(expected.0.len(), sane.count());
            for cut in 0..=whole.len() {
                let (head, tail) = whole.split_at(cut);
                assert_eq!(frames_of(&[head, tail]), expected, "{}: cut at {cut}", connection.name);
                cuts += 1;
            }
            let bytewise: Vec<&[u8]> = whole.chunks(1).collect();
            assert_eq!(frames_of(&bytewise), expected, "{}: byte by byte", connection.name);
        }
    }
    assert!(cuts > 35_000, "only {cuts} cuts");
}

fn frames_of(pieces: &[&[u8]]) -> (Vec<Frame>, Option<Violation>) {
    let (mut input, mut frames) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match Decoder::new(MAX).next(&mut input) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(violation) => return (frames, Some(violation)),
            }
        }
    }
    (frames, None)
}

#[test]
fn a_packet_that_ends_early_is_never_taken_for_the_whole() {
    each_packet(|connection, number, line, version, packet| {
        let whole = frame(&line.bytes);
        for length in 0..whole.body.len() {
            let short = Frame { first: whole.first, body: whole.body.slice(..length) };
            if let Ok(read) = Packet::decode(&short, version, line.sender) {
                // The short forms, a shorter payload, fewer filters: another packet, or a shorter
                // form of the same.
                let shorter =
                    encode(&packet, version).len() <= line.bytes.len() - (whole.body.len() - length);
                assert!(read != packet || shorter, "{}: {length} bytes", connection.at(number));
            }
        }
    });
}

#[test]
fn a_byte_that_changes_never_makes_the_decoder_panic() {
    let mut read = 0;
    each_packet(|_, _, line, version, _| {
        let whole = frame(&line.bytes);
        for at in 0..whole.body.len() {
            for value in [0x00, 0x01, 0x7f, 0x80, 0xff, whole.body[at] ^ 0x20] {
                let mut body = whole.body.to_vec();
                body[at] = value;
                let changed = Frame { first: whole.first, body: body.into() };
                if let Ok(packet) = Packet::decode(&changed, version, line.sender) {
                    // A decoded packet can be encoded, and decodes to the same again.
                    let version =
                        if let Packet::Connect(connect) = &packet { connect.version } else { version };
                    let again = encode(&packet, version);
                    assert_eq!(Packet::decode(&frame(&again), version, line.sender), Ok(packet));
                    read += 1;
                }
            }
        }
    });
    assert!(read > 10_000, "only {read} of the changed packets can be read");
}

#[test]
fn a_packet_above_the_limit_is_refused_before_its_body_has_come() {
    for connection in RECORDED.iter() {
        for line in &connection.lines {
            if line.bytes.len() <= 2 || line.is_absurd() {
                continue;
            }
            let mut header = BytesMut::from(&line.bytes[..if line.bytes[1] < 0x80 { 2 } else { 3 }]);
            let violation = Decoder::new(line.bytes.len() - 1).next(&mut header).unwrap_err();
            assert_eq!(violation.reason, Reason::PacketTooLarge, "{}", connection.name);
        }
    }
}

// ------------------------------------------------------------------------------ packets that no
// client sends

/// The violation in the packets of the client "raw", and the number of valid packets before it.
fn violation_in(session: &str) -> (usize, Option<Violation>) {
    let connection = RECORDED
        .iter()
        .find(|connection| connection.name.starts_with(&format!("hivemq-raw-{session} ")))
        .unwrap_or_else(|| panic!("no session {session}"));
    let version = connection.version.unwrap_or(Version::V3_1_1);
    let mut fine = 0;
    for line in connection.lines.iter().filter(|line| line.sender == Sender::Client) {
        let frame = Decoder::new(MAX)
            .next(&mut BytesMut::from(&line.bytes[..]))
            .map(|frame| frame.expect("a whole packet"));
        match frame.and_then(|frame| Packet::decode(&frame, version, Sender::Client)) {
            Ok(_) => fine += 1,
            Err(violation) => return (fine, Some(violation)),
        }
    }
    (fine, None)
}

#[test]
fn what_no_client_may_say_is_refused_with_the_reason_that_5_0_has_for_it() {
    for (session, fine, reason) in [
        ("311-bad-utf8", 1, Reason::MalformedPacket),
        ("311-qos-3", 1, Reason::MalformedPacket),
        ("311-reserved-flags", 1, Reason::MalformedPacket),
        ("311-wildcard-topic", 1, Reason::TopicNameInvalid),
        ("311-level-9", 0, Reason::UnsupportedProtocolVersion),
        ("311-wrong-name", 0, Reason::MalformedPacket),
        ("5-bad-utf8", 1, Reason::MalformedPacket),
        ("5-qos-3", 1, Reason::MalformedPacket),
        ("5-reserved-flags", 1, Reason::MalformedPacket),
        ("5-wildcard-topic", 1, Reason::TopicNameInvalid),
        ("5-alias-zero", 1, Reason::TopicAliasInvalid),
        ("5-property-twice", 1, Reason::ProtocolError),
        ("5-property-misplaced", 1, Reason::ProtocolError),
        ("5-subscription-identifier-of-client", 1, Reason::ProtocolError),
        ("5-no-local-shared", 1, Reason::ProtocolError),
        ("5-refused", 0, Reason::ProtocolError),
    ] {
        let (before, violation) = violation_in(session);
        assert_eq!(
            (before, violation.as_ref().map(|violation| violation.reason)),
            (fine, Some(reason)),
            "{session}: {violation:?}"
        );
    }
}

#[test]
fn what_is_only_out_of_place_can_be_read() {
    // Its meaning depends on the state of the connection or the session.
    for session in [
        "311-connect-twice",
        "311-no-connect",
        "311-pubrel-unknown",
        "311-publish-again",
        "311-not-subscribed",
        "5-alias-too-high",
        "5-alias-unknown",
        "5-auth-unasked",
        "5-expiry-from-zero",
        "5-long-acks",
        "5-disconnect-long",
        "5-disconnect-code",
        "5-aliases",
    ] {
        assert_eq!(violation_in(session).1, None, "{session}");
    }
}
