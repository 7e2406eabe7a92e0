//! Requests over HTTP, made of parts that make sense and of parts that do not: each is answered,
//! whatever comes before it.

use std::time::Instant;

use forebay_broker::http::message::Request;
use forebay_broker::protocol::Protocol as _;
use forebay_broker::pulsar::Broker;
use forebay_broker::store::Found;
use forebay_sqlite::{Outcome, Report};
use proptest::prelude::*;

use crate::support::settings;

const PARTS: [&str; 41] = [
    "admin",
    "v2",
    "lookup",
    "topic",
    "persistent",
    "non-persistent",
    "public",
    "default",
    "t",
    "p",
    "p-partition-1",
    "partitions",
    "partitioned",
    "stats",
    "partitioned-stats",
    "internalStats",
    "partitioned-internalStats",
    "subscriptions",
    "subscription",
    "s",
    "skip_all",
    "skip",
    "resetcursor",
    "expireMessages",
    "all_subscription",
    "position",
    "examinemessage",
    "terminate",
    "schemas",
    "schema",
    "clusters",
    "tenants",
    "namespaces",
    "topics",
    "lastMessageId",
    "ledger",
    "entry",
    "0",
    "18446744073709551615",
    "%2F",
    "-1",
];
const BODIES: [&str; 12] = [
    "",
    "2",
    "0",
    "-1",
    "1e400",
    "null",
    "[]",
    "{\"ledgerId\":-1,\"entryId\":-1}",
    "{\"ledgerId\":9223372036854775807,\"entryId\":9223372036854775807,\"excluded\":true}",
    "{\"type\":\"AVRO\",\"schema\":\"{\\\"type\\\":\\\"int\\\"}\",\"properties\":{\"a\":1}}",
    "{\"type\":\"KEY_VALUE\",\"schema\":\"{\\\"key\\\":\\\"\\\",\\\"value\\\":{}}\"}",
    "{\"type\":\"STRING\"}",
];
const METHODS: [&str; 6] = ["GET", "PUT", "POST", "DELETE", "HEAD", "PATCH"];
const QUERIES: [&str; 7] = [
    "",
    "?force=true",
    "?checkAllowAutoCreation=true",
    "?mode=ALL",
    "?perPartition=false",
    "?initialPosition=earliest&messagePosition=18446744073709551615",
    "?messagePosition=0",
];

/// Paths: parts of any kind, or a topic and what may stand behind it.
fn path() -> impl Strategy<Value = String> {
    let parts = || prop::collection::vec(prop::sample::select(&PARTS[..]), 0..4);
    let topic = prop::sample::select(&["t", "p", "p-partition-1", "new"][..]);
    let domain = prop::sample::select(&["persistent", "non-persistent", "schemas"][..]);
    prop_oneof![
        1 => prop::collection::vec(prop::sample::select(&PARTS[..]), 0..9).prop_map(|parts| format!("/{}", parts.join("/"))),
        1 => "/[ -~]{0,40}",
        4 => (domain, topic, parts()).prop_map(|(domain, topic, rest)| {
            let rest: String = rest.into_iter().map(|part| format!("/{part}")).collect();
            format!("/admin/v2/{domain}/public/default/{topic}{rest}")
        }),
        2 => (prop::sample::select(&["t", "p"][..]), parts()).prop_map(|(topic, rest)| {
            format!("/admin/v2/persistent/public/default/{topic}/subscription/s/{}", rest.join("/"))
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_request_is_answered(
        requests in prop::collection::vec(
            (prop::sample::select(&METHODS[..]), path(), prop::sample::select(&QUERIES[..]), prop::sample::select(&BODIES[..])),
            1..40,
        ),
    ) {
        let now = Instant::now();
        let mut broker = Broker::new(settings::pulsar(now), Found::default(), None, now);
        broker.create_topic("persistent://public/default/t", 0).unwrap();
        broker.create_topic("persistent://public/default/p", 2).unwrap();
        for (method, path, query, body) in requests {
            let Ok(uri) = format!("{path}{query}").parse() else { continue };
            let request = match Request::new(method.parse().unwrap(), &uri) {
                Ok(request) => Request { body: body.into(), ..request },
                Err(answer) => {
                    prop_assert!(answer.status.is_client_error());
                    continue;
                }
            };
            let is_ours = matches!(request.path.first().map(String::as_str), Some("admin" | "lookup"))
                && request.path.get(1).is_some_and(|part| part == "v2");
            let answer = broker.handle_http(now, &request);
            prop_assert_eq!(answer.is_some(), is_ours, "{:?}", request);
            while let Some(_op) = broker.poll_op() {
                broker.handle_report(now, Report { jobs: 1, outcome: Outcome::Written(0) });
            }
            let Some(answer) = answer else { continue };
            prop_assert!(!answer.status.is_server_error(), "{request:?}: {answer:?}");
            if answer.status.is_client_error() {
                let reason: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
                prop_assert!(!reason["reason"].as_str().unwrap().is_empty());
            }
        }
        prop_assert!(broker.stats().topics <= 60);
    }
}
