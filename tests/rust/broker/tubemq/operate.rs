//! Requests of the page for operators: groups that are moved and messages that are looked into,
//! beside clients, restarts and a store that fails.

use forebay_broker::http::message::{Answer, Request as HttpRequest};
use serde_json::{Value, json};

use super::*;

impl Bench {
    fn operate(&mut self, method: &str, path: &str, body: &str) -> Answer {
        let uri = format!("/forebay/v1/tubemq/{path}").parse().unwrap();
        let request = HttpRequest::new(method.parse().unwrap(), &uri).unwrap();
        let request = HttpRequest { body: body.to_owned().into(), ..request };
        let answer = self.broker.handle_http(self.now, &request).unwrap();
        self.settle();
        answer
    }

    fn reset(&mut self, body: &Value) -> (u16, Value) {
        read(&self.operate("POST", "groups/reset", &body.to_string()))
    }

    /// Moves the group to a place, and gives its offsets.
    fn moved(&mut self, to: &Value, partition: Option<u32>) -> Value {
        let body = json!({"group": "g", "topic": "demo", "partition": partition, "to": to});
        let (status, answer) = self.reset(&body);
        assert_eq!(status, 200, "{answer}");
        answer["partitions"].clone()
    }

    fn peek(&mut self, query: &str) -> (u16, Value) {
        read(&self.operate("GET", &format!("peek?topic=demo&{query}"), ""))
    }

    /// Partition and offset of the messages that a query finds, and whether there are more.
    fn found(&mut self, query: &str) -> (Vec<(u64, u64)>, bool) {
        let (status, answer) = self.peek(query);
        assert_eq!((status, &answer["partitions"]), (200, &json!(2)), "{query}: {answer}");
        let number = |message: &Value, name: &str| message[name].as_u64().unwrap();
        let messages = answer["messages"].as_array().unwrap().iter();
        let places = messages.map(|one| (number(one, "partition"), number(one, "offset"))).collect();
        (places, answer["more"].as_bool().unwrap())
    }

    /// Five messages in the first partition and one in the second, and a client that holds the
    /// first.
    fn filled() -> (Self, u64) {
        let (mut bench, seat) = Self::demo();
        (0..5).for_each(|n| assert!(bench.produce(seat, "demo", 0, &[b'0' + n]).success));
        assert!(bench.produce(seat, "demo", 1, b"5").success);
        assert!(bench.take(seat, "c", 0, |_| {}).success);
        (bench, seat)
    }
}

fn read(answer: &Answer) -> (u16, Value) {
    (answer.status.as_u16(), serde_json::from_slice(&answer.body).unwrap())
}

#[test]
fn a_group_is_moved_and_its_client_goes_on_from_there() {
    let (mut bench, seat) = Bench::filled();
    assert_eq!(bodies(&bench.get(seat, "c", 0, false, false)).len(), 5);
    assert_eq!(bench.commit(seat, "c", 0, true).curr_offset, Some(140));
    let at = |offset: u64, before: u64| json!([{"partition": 0, "offset": offset, "before": before}]);
    assert_eq!(bench.moved(&json!(56), Some(0)), at(56, 140));
    assert_eq!(bodies(&bench.get(seat, "c", 0, false, false)), ["2", "3", "4"]);
    // What it has now, it cannot confirm once it is moved again.
    assert_eq!(bench.moved(&json!("earliest"), Some(0)), at(0, 56));
    assert_eq!(bench.commit(seat, "c", 0, true).curr_offset, Some(0));
    assert_eq!(bodies(&bench.get(seat, "c", 0, false, false)).len(), 5);
    assert_eq!(bench.moved(&json!("latest"), Some(0)), at(140, 0));
    assert_eq!(bench.get(seat, "c", 0, true, false).err_code, 404);
    // Between two messages, and behind all of them.
    assert_eq!(bench.moved(&json!(29), Some(0)), at(28, 140));
    assert_eq!(bench.moved(&json!(u64::MAX), Some(0)), at(140, 28));
}

#[test]
fn all_partitions_of_a_topic_are_moved_and_it_outlives_a_kill() {
    let (mut bench, seat) = Bench::filled();
    assert_eq!(bench.commit(seat, "c", 0, true).curr_offset, Some(0));
    let moved = bench.moved(&json!("latest"), None);
    let expected = json!([
        {"partition": 0, "offset": 140, "before": 0},
        {"partition": 1, "offset": 28, "before": null},
    ]);
    assert_eq!(moved, expected);
    bench.kill(usize::MAX);
    let seat = bench.connect();
    assert_eq!(bench.take(seat, "c", 0, |_| {}).curr_offset, Some(140));
    assert_eq!(bench.take(seat, "c", 1, |_| {}).curr_offset, Some(28));
    bench.moved(&json!("earliest"), None);
    bench.kill(usize::MAX);
    let seat = bench.connect();
    assert_eq!(bench.take(seat, "c", 0, |_| {}).curr_offset, Some(0));
}

#[test]
fn a_reset_that_cannot_be_done_is_refused_and_changes_nothing() {
    let (mut bench, seat) = Bench::filled();
    let good = json!({"group": "g", "topic": "tubemq:demo", "partition": 0, "to": "latest"});
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        body
    };
    for (body, status, word) in [
        (json!([]), 400, "topic is missing"),
        (with("topic", json!("")), 400, "topic is missing"),
        (with("group", json!(null)), 400, "group is missing"),
        (with("group", json!(1)), 400, "group is not a text"),
        (with("to", json!(null)), 400, "to is missing"),
        (with("to", json!("first")), 400, "to is"),
        (with("to", json!(-28)), 400, "to is"),
        (with("to", json!(1.5)), 400, "to is"),
        (with("partition", json!("0")), 400, "partition is not"),
        (json!({"group": "g", "topic": "demo", "to": 28}), 400, "partition is missing"),
        (with("topic", json!("other")), 404, "topic other does not exist"),
        (with("partition", json!(2)), 404, "partition 2 of topic demo does not exist"),
        (with("group", json!("h")), 404, "an offset of group h in topic demo does not exist"),
    ] {
        let (found, answer) = bench.reset(&body);
        assert_eq!(found, status, "{body}: {answer}");
        assert!(answer["reason"].as_str().unwrap().contains(word), "{body}: {answer}");
    }
    assert_eq!(bench.operate("GET", "groups/reset", "").status.as_u16(), 405);
    assert_eq!(bench.operate("POST", "groups/reset", "{").status.as_u16(), 400);
    assert_eq!(bench.operate("POST", "groups", "").status.as_u16(), 404);
    assert_eq!(bench.commit(seat, "c", 0, false).curr_offset, Some(0));
    assert_eq!(bench.reset(&good).0, 200);
}

#[test]
fn an_offset_that_is_for_one_client_only_is_not_moved() {
    let (mut bench, seat) = Bench::demo();
    let passing = |request: &mut pb::RegisterRequestC2b| {
        request.session_key = Some("forebay: no offset".into());
    };
    bench.take(seat, "c", 0, passing);
    let (status, answer) = bench.reset(&json!({"group": "g", "topic": "demo", "to": "latest"}));
    assert_eq!(status, 409);
    assert!(answer["reason"].as_str().unwrap().contains("partition 0 of topic demo"), "{answer}");
}

#[test]
fn a_store_that_failed_refuses_a_reset() {
    let (mut bench, _) = Bench::filled();
    bench.held = true;
    bench.operate("POST", "publish", r#"{"topic": "demo", "payload": "x"}"#);
    bench.fail();
    let (status, answer) = bench.reset(&json!({"group": "g", "topic": "demo", "to": "latest"}));
    assert_eq!(status, 503);
    assert!(answer["reason"].as_str().unwrap().contains("no space left"), "{answer}");
}

#[test]
fn messages_are_looked_into_and_not_consumed() {
    let (mut bench, seat) = Bench::filled();
    let data = attributed("$msgType$=m,$msgTime$=202311142213,$key$=a%2Cb,colour=green", "x");
    let mut sent = message("demo", 1, &data);
    sent.flag = 1;
    bench.call(seat, Request::SendMessage(Box::new(sent)));
    let (_, answer) = bench.peek("partition=1&offset=latest&limit=1");
    let expected = json!({
        "partition": 1,
        "offset": 28,
        "stored_ms": WALL_MS,
        "event_ms": 1_699_999_980_000_u64,
        "key": "a,b",
        "message_type": "m",
        "properties": {"colour": "green"},
        "bytes": 1,
        "payload_base64": "eA==",
    });
    assert_eq!((&answer["messages"][0], &answer["more"]), (&expected, &json!(true)));

    let of = |partition: u64, numbers: std::ops::Range<u64>| numbers.map(move |n| (partition, n * 28));
    let all: Vec<_> = of(0, 0..5).chain(of(1, 0..2)).collect();
    assert_eq!(bench.found(""), (all.clone(), false));
    assert_eq!(bench.found("offset=earliest&limit=7"), (all, false));
    // Each partition has its share, and what the second does not have goes to the first.
    assert_eq!(bench.found("limit=3"), (of(0, 0..1).chain(of(1, 0..2)).collect(), true));
    assert_eq!(bench.found("limit=6"), (of(0, 0..4).chain(of(1, 0..2)).collect(), true));
    assert_eq!(bench.found("limit=3&offset=latest"), (of(0, 4..5).chain(of(1, 0..2)).collect(), true));
    assert_eq!(bench.found("partition=0&offset=84"), (of(0, 3..5).collect(), false));
    assert_eq!(bench.found("partition=0&offset=99999"), (Vec::new(), false));
    // The second partition has no offset of the group.
    assert_eq!(bench.found("group=g"), (of(0, 0..5).collect(), false));
    bench.moved(&json!(56), Some(0));
    assert_eq!(bench.found("group=g&limit=2"), (of(0, 2..4).collect(), true));
    assert_eq!(bodies(&bench.get(seat, "c", 0, false, false)), ["2", "3", "4"], "they are still there");
}

#[test]
fn what_is_not_there_to_be_looked_into_is_said() {
    let (mut bench, _) = Bench::filled();
    for (query, status) in [
        ("limit=0", 400),
        ("group=g&offset=latest", 400),
        ("offset=28", 400),
        ("partition=2", 404),
        ("partition=99999999999999999999", 400),
        ("group=h", 404),
    ] {
        let (found, answer) = bench.peek(query);
        assert_eq!(found, status, "{query}: {answer}");
        assert!(!answer["reason"].as_str().unwrap().is_empty());
    }
    assert_eq!(bench.operate("GET", "peek", "").status.as_u16(), 400);
    assert_eq!(bench.operate("GET", "peek?topic=other", "").status.as_u16(), 404);
    assert_eq!(bench.operate("POST", "peek?topic=demo", "").status.as_u16(), 405);
    assert_eq!(bench.operate("HEAD", "peek?topic=demo", "").status.as_u16(), 200);
}

#[test]
fn what_a_look_reads_and_answers_is_limited() {
    let mut bench = Bench::with(|settings| settings.max_message_size = 2 << 20);
    bench.broker.create_topic("demo", 2).unwrap();
    let seat = bench.connect();
    // A stranger's first message is short.
    assert!(bench.produce(seat, "demo", 0, b"x").success);
    let large = vec![b'x'; 2 << 20];
    (0..4).for_each(|_| assert!(bench.produce(seat, "demo", 1, &large).success));
    let (_, answer) = bench.peek("partition=1");
    let messages = answer["messages"].as_array().unwrap();
    assert_eq!((messages.len(), &answer["more"]), (2, &json!(true)), "4 MiB were read");
    assert_eq!(messages[0]["bytes"], 2 << 20);
    assert_eq!(messages[0]["payload_base64"].as_str().unwrap().len(), (16_usize << 10).div_ceil(3) * 4);
    let (_, rest) = bench.peek("partition=1&offset=56");
    assert_eq!((rest["messages"].as_array().unwrap().len(), &rest["more"]), (2, &json!(false)));
}
