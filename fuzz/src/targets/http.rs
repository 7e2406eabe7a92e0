//! Requests over HTTP to the three protocols of the embedded broker, with paths and bodies that
//! make sense and with others: each is answered by one of them or left alone by all, answers of
//! JSON can be decoded, and everything costs in proportion to the bytes.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Method;
use hyper::http::Uri;
use forebay_broker::http::message::{Answer, Request};
use forebay_broker::protocol::Protocol;
use forebay_broker::store::{Found, mqtt};
use forebay_broker::{mqtt as mqtt_broker, pulsar, tubemq};
use crate::hub::Hub;
use crate::rule::AFTER;
use crate::script::Script;
use crate::settings;
use serde_json::{Value, json};

/// Most topics of a protocol, and so most partitions that a few bytes can create.
const TOPICS: usize = 20;
const METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::HEAD];
/// Beginnings of paths.
const PLACES: [&str; 12] = [
    "/admin/v2/persistent/public/default/orders",
    "/admin/v2/persistent/public/default/split",
    "/admin/v2/persistent/public/default/split-partition-0",
    "/admin/v2/non-persistent/public/default/late",
    "/admin/v2/persistent/public/default",
    "/admin/v2/schemas/public/default/orders",
    "/admin/v2",
    "/lookup/v2/topic/persistent/public/default/orders",
    "/forebay/v1/pulsar",
    "/forebay/v1/mqtt",
    "/forebay/v1/tubemq",
    "",
];
/// Parts that follow.
const PARTS: [&str; 36] = [
    "partitions",
    "stats",
    "partitioned-stats",
    "internalStats",
    "partitioned-internalStats",
    "lastMessageId",
    "ledger",
    "entry",
    "terminate",
    "subscriptions",
    "subscription",
    "all_subscription",
    "expireMessages",
    "skip",
    "skip_all",
    "resetcursor",
    "position",
    "properties",
    "schema",
    "schemas",
    "clusters",
    "tenants",
    "namespaces",
    "brokers",
    "public",
    "default",
    "sub",
    "0",
    "7",
    "sessions",
    "retained",
    "publish",
    "peek",
    "groups",
    "reset",
    "examinemessage",
];
const QUERIES: [&str; 13] = [
    "",
    "?force=true",
    "?client_id=a",
    "?filter=%23",
    "?filter=a&after=1",
    "?after=0",
    "?messagePosition=3",
    "?metadata=true&checkAllowAutoCreation=true",
    "?initialPosition=earliest&messagePosition=1",
    "?topic=demo&limit=100",
    "?topic=demo&offset=latest",
    "?topic=tubemq:demo&partition=1&offset=28&limit=3",
    "?topic=demo&group=g",
];

struct World {
    pulsar: Hub<pulsar::Broker>,
    mqtt: Hub<mqtt_broker::Broker>,
    tubemq: Hub<tubemq::Broker>,
}

impl World {
    fn new(stored: bool) -> Self {
        let now = Instant::now();
        let of_pulsar = pulsar::options::Settings { stored, max_topics: TOPICS, ..settings::pulsar(now) };
        let mut of_pulsar = pulsar::Broker::new(of_pulsar, Found::default(), None, now);
        of_pulsar.create_topic("persistent://public/default/orders", 0).unwrap();
        of_pulsar.create_topic("persistent://public/default/split", 2).unwrap();
        let of_mqtt = mqtt_broker::Settings { stored, ..settings::mqtt(now) };
        let of_mqtt = mqtt_broker::Broker::new(of_mqtt, mqtt::Found::default(), None, now);
        let of_tubemq = tubemq::Settings { stored, max_topics: TOPICS, ..settings::tubemq(now) };
        let mut of_tubemq = tubemq::Broker::new(of_tubemq, Found::default(), None, now);
        of_tubemq.create_topic("demo", 2).unwrap();
        let mut world = Self {
            pulsar: Hub::new(of_pulsar, now, false),
            mqtt: Hub::new(of_mqtt, now, false),
            tubemq: Hub::new(of_tubemq, now, false),
        };
        world.write();
        world
    }

    fn ask(&mut self, request: &Request, bytes: usize) {
        let _ = ask(&mut self.pulsar, request, bytes)
            || ask(&mut self.mqtt, request, bytes)
            || ask(&mut self.tubemq, request, bytes);
    }

    fn write(&mut self) {
        write(&mut self.pulsar);
        write(&mut self.mqtt);
        write(&mut self.tubemq);
    }

    fn wait(&mut self) {
        let time = Duration::from_secs(7);
        self.pulsar.wait(time);
        self.mqtt.wait(time);
        self.tubemq.wait(time);
    }
}

fn write<B: Protocol>(hub: &mut Hub<B>) {
    hub.settle();
    hub.write();
}

/// Asks a broker; returns whether it answered.
fn ask<B: Protocol>(hub: &mut Hub<B>, request: &Request, bytes: usize) -> bool {
    hub.meter.came(bytes);
    let (broker, now) = (&mut hub.broker, hub.now);
    let answer = hub.meter.turn(|| (broker.handle_http(now, request), bytes));
    hub.settle();
    let Some(answer) = answer else { return false };
    hub.meter.went(answer.body.len());
    check(&answer);
    hub.meter.run(move || drop(answer));
    true
}

fn check(answer: &Answer) {
    if answer.content_type == "application/json" && !answer.body.is_empty() {
        serde_json::from_slice::<Value>(&answer.body).expect("JSON");
    }
    assert!(!answer.status.is_success() || answer.status.as_u16() < 300);
}

/// The method and the address of a request, of which the input chooses the parts.
fn head(script: &mut Script<'_>) -> (Method, String) {
    let byte = script.byte();
    let method = METHODS[usize::from(byte & 7) % METHODS.len()].clone();
    let mut address = PLACES[usize::from(byte >> 3) % PLACES.len()].to_owned();
    for _ in 0..script.byte() & 7 {
        let part = usize::from(script.byte());
        address.push('/');
        match PARTS.get(part & 63) {
            Some(part) => address.push_str(part),
            None => {
                let bytes = script.take(part >> 6);
                address.extend(bytes.iter().map(|byte| format!("%{byte:02X}")));
            }
        }
    }
    address.push_str(QUERIES[usize::from(script.byte()) % QUERIES.len()]);
    (method, address)
}

/// A body that makes sense for some path, or any bytes.
fn body(script: &mut Script<'_>) -> Bytes {
    let number = script.number();
    let text = script.text();
    let body = match script.byte() % 9 {
        0 => return Bytes::copy_from_slice(text.as_bytes()),
        1 => json!(number),
        2 => json!({"ledgerId": 7, "entryId": number, "partitionIndex": -1, "batchIndex": number & 3}),
        3 => json!({"type": "JSON", "schema": text, "properties": {"a": text}}),
        4 => json!({"topic": "orders", "payload": text, "key": "k", "properties": {"a": text}}),
        5 => json!({"topic": "split", "payload_base64": text, "qos": number & 3, "retain": number & 4 == 0}),
        6 => json!({"topic": text, "payload": text, "qos": 1, "retain": true}),
        7 => json!({"topic": "demo", "group": "g", "partition": number & 1, "to": number}),
        _ => json!({"topic": "demo", "payload": text, "message_type": "m"}),
    };
    body.to_string().into()
}

/// Plays one input.
pub fn play(data: &[u8]) {
    let mut script = Script(data);
    let Some(first) = script.next() else { return };
    let mut world = World::new(first & 1 == 1);
    while let Some(op) = script.next() {
        match op & 7 {
            0 => world.write(),
            1 => world.wait(),
            kind => {
                let method = METHODS[usize::from(op >> 3) % METHODS.len()].clone();
                let (method, address) = match kind {
                    2 => (method, script.text()),
                    _ => head(&mut script),
                };
                let Ok(uri) = Uri::try_from(&*address) else { continue };
                match Request::new(method, &uri) {
                    Ok(mut request) => {
                        request.body = if op & 8 == 0 { Bytes::new() } else { body(&mut script) };
                        let bytes = address.len() + request.body.len();
                        world.ask(&request, bytes);
                    }
                    Err(answer) => check(&answer),
                }
            }
        }
    }
    world.write();
    world.pulsar.check(AFTER);
    world.mqtt.check(AFTER);
    world.tubemq.check(AFTER);
}
