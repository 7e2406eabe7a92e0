//! The master's web service: topics and groups over HTTP, beside clients, restarts and a store that fails.

use std::sync::Arc;

use bytes::Bytes;
use forebay::broker::http::message::{Answer, Request as HttpRequest};
use forebay::broker::permissions::Permissions;
use forebay::broker::store::Found;
use forebay::broker::tubemq::Broker;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::support::settings;

const FORBIDDEN: i32 = 403;
const NOT_TO_CONSUME: i32 = 450;
const CONNECT: i32 = 10;
const DISCONNECT: i32 = 20;

impl Bench {
    fn http(&mut self, method: &str, query: &str, form: &str, user: Option<&str>) -> Answer {
        let request =
            HttpRequest::new(method.parse().unwrap(), &format!("/webapi.htm?{query}").parse().unwrap())
                .unwrap();
        let request = HttpRequest {
            body: Bytes::copy_from_slice(form.as_bytes()),
            user: user.map(Into::into),
            ..request
        };
        let answer = self.broker.handle_http(self.now, &request).unwrap();
        self.settle();
        answer
    }

    fn web(&mut self, method: &str, parameters: &str) -> Value {
        let form = format!("method={method}&confModAuthToken=abc&{parameters}");
        let answer = self.http("POST", "", &form, None);
        assert_eq!((answer.status.as_u16(), answer.content_type), (200, "application/json"));
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// Changes one thing, and gives the code and the text.
    fn change(&mut self, method: &str, parameters: &str) -> (i64, String) {
        let answer = self.web(method, parameters);
        assert_eq!((&answer["result"], &answer["count"]), (&json!(true), &json!(1)), "{answer}");
        let outcome = &answer["data"][0];
        assert_eq!(outcome["success"], json!(outcome["errCode"] == 200), "{answer}");
        (outcome["errCode"].as_i64().unwrap(), outcome["errInfo"].as_str().unwrap().to_owned())
    }

    fn topic_info(&mut self, name: &str) -> Value {
        self.web("admin_query_topic_info", &format!("topicName={name}"))["data"][0].clone()
    }
}

const MODIFY: &str = "topicName=demo&brokerId=1&modifyUser=bob";

#[test]
fn a_topic_is_added_listed_changed_and_deleted() {
    let mut bench = Bench::new();
    let added = "topicName=demo&brokerId=1&createUser=ann&createDate=20200102030405&numPartitions=3";
    assert_eq!(bench.change("admin_add_new_topic_record", added).0, 200);
    assert_eq!(bench.broker.topics(), [("tubemq:demo".to_owned(), 3)]);
    let (code, text) = bench.change("admin_add_new_topic_record", added);
    assert_eq!((code, &*text), (402, "Existed record found for brokerId-topicName(1:demo)!"));
    let info = bench.topic_info("demo");
    assert_eq!((&info["topicName"], &info["totalRunNumPartCount"]), (&json!("demo"), &json!(3)));
    let deployed = &info["topicInfo"][0];
    for (name, value) in [
        ("brokerId", json!(1)),
        ("topicStatusId", json!(0)),
        ("numTopicStores", json!(1)),
        ("deletePolicy", json!("delete,1h")),
        ("createUser", json!("ann")),
        ("createDate", json!("20200102030405")),
        ("modifyUser", json!("ann")),
    ] {
        assert_eq!(deployed[name], value, "{name}: {deployed}");
    }
    assert_eq!(deployed["runInfo"]["acceptPublish"], true);

    let unchanged = (403, "Topic deploy configure not changed!".to_owned());
    assert_eq!(bench.change("admin_modify_topic_info", &format!("{MODIFY}&numPartitions=3")), unchanged);
    let (code, text) = bench.change("admin_modify_topic_info", &format!("{MODIFY}&numPartitions=2"));
    assert_eq!(code, 407);
    assert!(text.starts_with("Partition number less than before, new value is 2"), "{text}");
    assert_eq!(bench.change("admin_modify_topic_info", &format!("{MODIFY}&numPartitions=5")).0, 200);
    assert_eq!(bench.broker.topics(), [("tubemq:demo".to_owned(), 5)]);
    let info = bench.topic_info("demo");
    assert_eq!(info["topicInfo"][0]["modifyUser"], "bob");
    assert_eq!(info["topicInfo"][0]["modifyDate"], "20231114221320");

    for method in ["admin_delete_topic_info", "admin_remove_topic_info"] {
        let (code, text) = bench.change(method, MODIFY);
        assert_eq!(code, 406);
        assert!(text.contains("acceptPublish and acceptSubscribe must be false"), "{text}");
    }
    let closed = format!("{MODIFY}&acceptPublish=false&acceptSubscribe=false");
    assert_eq!(bench.change("admin_modify_topic_info", &closed).0, 200);
    assert_eq!(bench.change("admin_remove_topic_info", MODIFY).0, 406, "it is not deleted softly");
    assert_eq!(bench.change("admin_delete_topic_info", MODIFY).0, 200);
    assert_eq!(bench.topic_info("demo")["topicInfo"][0]["topicStatusId"], 1);
    assert_eq!(bench.change("admin_delete_topic_info", MODIFY).0, 200, "it is");
    let (code, text) = bench.change("admin_modify_topic_info", &format!("{MODIFY}&acceptPublish=true"));
    assert_eq!(code, 406);
    assert!(text.starts_with("Softly deleted record cannot be changed"), "{text}");
    let (code, text) = bench.change("admin_add_new_topic_record", added);
    assert_eq!(code, 402);
    assert!(text.contains("please resume or remove it first"), "{text}");
    assert_eq!(bench.change("admin_redo_deleted_topic_info", MODIFY).0, 200);
    assert_eq!(bench.change("admin_modify_topic_info", &format!("{MODIFY}&acceptPublish=true")).0, 200);
    assert_eq!(bench.change("admin_modify_topic_info", &format!("{MODIFY}&acceptPublish=0")).0, 200);
    assert_eq!(bench.change("admin_delete_topic_info", MODIFY).0, 200);
    assert_eq!(bench.change("admin_remove_topic_info", MODIFY).0, 200);
    assert!(bench.broker.topics().is_empty());
    for method in ["admin_remove_topic_info", "admin_redo_deleted_topic_info", "admin_modify_topic_info"] {
        assert_eq!(bench.change(method, &format!("{MODIFY}&numPartitions=5")).0, 401, "{method}");
    }
}

#[test]
fn what_was_decided_outlives_a_restart_and_the_messages_do() {
    let (mut bench, seat) = Bench::demo();
    assert_eq!(bench.produce(seat, "demo", 0, b"kept").err_code, 200);
    let closed = format!("{MODIFY}&numPartitions=3&acceptPublish=false&acceptSubscribe=false");
    assert_eq!(bench.change("admin_modify_topic_info", &closed).0, 200);
    assert_eq!(bench.change("admin_delete_topic_info", MODIFY).0, 200);
    let control = "topicName=demo&isEnable=true&createUser=eve";
    assert_eq!(bench.change("admin_set_topic_authorize_control", control).0, 200);
    let granted = "topicName=demo&groupName=g,h&createUser=eve";
    assert_eq!(bench.web("admin_add_authorized_consumergroup_info", granted)["count"], 2);
    let dropped = "topicName=demo&groupName=h&modifyUser=bob";
    assert_eq!(bench.change("admin_delete_allowed_consumer_group_info", dropped).0, 200);
    let everything = |bench: &mut Bench| {
        let listed = [
            "admin_query_topic_info",
            "admin_query_topic_authorize_control",
            "admin_query_allowed_consumer_group_info",
            "admin_query_black_consumer_group_info",
        ];
        listed.map(|method| bench.web(method, ""))
    };
    let before = everything(&mut bench);
    assert_eq!(before[1]["data"][0]["groupCount"], 2);
    assert_eq!((&before[2]["count"], &before[3]["count"]), (&json!(1), &json!(1)));
    bench.kill(usize::MAX);
    assert_eq!(everything(&mut bench), before);

    let seat = bench.connect();
    assert_eq!(bench.change("admin_redo_deleted_topic_info", MODIFY).0, 200);
    let open = format!("{MODIFY}&acceptPublish=true&acceptSubscribe=true");
    assert_eq!(bench.change("admin_modify_topic_info", &open).0, 200);
    assert_eq!(bench.take(seat, "c", 0, |_| {}).err_code, 200);
    assert_eq!(bodies(&bench.get(seat, "c", 0, false, false)), ["kept"]);
}

#[test]
fn a_kill_in_the_middle_of_growth_leaves_a_topic_of_whole_partitions() {
    for written in 0..4 {
        let (mut bench, seat) = Bench::demo();
        assert_eq!(bench.produce(seat, "demo", 1, b"x").err_code, 200);
        bench.held = true;
        bench.change("admin_modify_topic_info", &format!("{MODIFY}&numPartitions=4"));
        bench.kill(written);
        let found = bench.broker.topics();
        assert!((2..=4).contains(&found[0].1), "{found:?}");
        assert_eq!(bench.change("admin_modify_topic_info", &format!("{MODIFY}&numPartitions=6")).0, 200);
        bench.kill(usize::MAX);
        assert_eq!(bench.broker.topics(), [("tubemq:demo".to_owned(), 6)], "{written}");
        let seat = bench.connect();
        assert_eq!(bench.produce(seat, "demo", 5, b"x").err_code, 200);
    }
}

#[test]
fn a_topic_that_takes_no_messages_refuses_producers() {
    let (mut bench, seat) = Bench::demo();
    assert_eq!(bench.register_producer(seat, "p").err_code, 200);
    assert_eq!(bench.beat_producer(seat, "p", &["demo"]).topic_infos.len(), 1);
    assert_eq!(bench.change("admin_modify_topic_info", &format!("{MODIFY}&acceptPublish=false")).0, 200);
    assert!(bench.beat_producer(seat, "p", &["demo"]).topic_infos.is_empty());
    let refused = bench.produce(seat, "demo", 0, b"x");
    assert_eq!(refused.err_code, FORBIDDEN);
    assert!(refused.err_msg.contains("acceptPublish is false"), "{refused:?}");
    let operator = HttpRequest::new("POST".parse().unwrap(), &"/forebay/v1/tubemq/publish".parse().unwrap());
    let operator = HttpRequest { body: r#"{"topic": "demo", "payload": "x"}"#.into(), ..operator.unwrap() };
    assert_eq!(bench.broker.handle_http(bench.now, &operator).unwrap().status.as_u16(), 409);
    assert_eq!(bench.change("admin_modify_topic_info", &format!("{MODIFY}&acceptPublish=true")).0, 200);
    assert_eq!(bench.produce(seat, "demo", 0, b"x").err_code, 200);
    assert_eq!(bench.broker.stats().messages_in, 1);
}

#[test]
fn a_topic_that_takes_no_consumers_is_taken_from_them() {
    let (mut bench, seat) = Bench::demo();
    bench.join(seat, "c", &["demo"], &[]);
    let event = bench.beat(seat, "c", None, None).event.unwrap();
    assert_eq!((event.op_type, event.subscribe_info.len()), (Some(CONNECT), 2));
    bench.beat(seat, "c", None, done(&event));
    assert_eq!(bench.take(seat, "c", 0, |_| {}).err_code, 200);
    assert_eq!(bench.change("admin_modify_topic_info", &format!("{MODIFY}&acceptSubscribe=false")).0, 200);
    assert_eq!(bench.get(seat, "c", 0, false, false).err_code, 411);
    assert_eq!(bench.take(seat, "c", 0, |_| {}).err_code, FORBIDDEN);
    let event = bench.beat(seat, "c", None, None).event.unwrap();
    assert_eq!((event.op_type, event.subscribe_info.len()), (Some(DISCONNECT), 2));
    bench.beat(seat, "c", None, done(&event));
    assert_eq!(bench.change("admin_modify_topic_info", &format!("{MODIFY}&acceptSubscribe=true")).0, 200);
    let event = bench.beat(seat, "c", None, None).event.unwrap();
    assert_eq!((event.op_type, event.subscribe_info.len()), (Some(CONNECT), 2));
    assert_eq!(bench.take(seat, "c", 0, |_| {}).err_code, 200);
}

#[test]
fn new_partitions_go_to_producers_and_to_the_members_of_groups() {
    let (mut bench, seat) = Bench::demo();
    bench.join(seat, "c", &["demo"], &[]);
    let event = bench.beat(seat, "c", None, None).event.unwrap();
    bench.beat(seat, "c", None, done(&event));
    assert_eq!(bench.change("admin_modify_topic_info", &format!("{MODIFY}&numPartitions=3")).0, 200);
    let event = bench.beat(seat, "c", None, None).event.unwrap();
    assert_eq!(event.subscribe_info.len(), 1, "{event:?}");
    assert!(event.subscribe_info[0].ends_with("#demo:2"), "{event:?}");
    bench.register_producer(seat, "p");
    assert!(bench.beat_producer(seat, "p", &["demo"]).topic_infos[0].contains("#1:3:1"));
    assert_eq!(bench.produce(seat, "demo", 2, b"x").err_code, 200);
}

#[test]
fn a_restricted_topic_is_for_the_groups_that_an_administrator_allows() {
    let (mut bench, seat) = Bench::demo();
    assert_eq!(bench.join(seat, "c", &["demo"], &[]).err_code, 200);
    assert_eq!(bench.take(seat, "c", 0, |_| {}).err_code, 200);
    let control = "topicName=demo&isEnable=true&createUser=eve";
    assert_eq!(bench.change("admin_set_topic_authorize_control", control).0, 200);
    assert_eq!(bench.get(seat, "c", 0, false, false).err_code, 411, "its partition is taken from it");
    assert_eq!(bench.take(seat, "c", 0, |_| {}).err_code, NOT_TO_CONSUME);
    assert_eq!(bench.beat(seat, "c", None, None).err_code, NOT_TO_CONSUME);
    let refused = bench.join(seat, "c", &["demo"], &[]);
    assert_eq!(refused.err_code, NOT_TO_CONSUME);
    assert!(refused.err_msg.contains("not allowed group g"), "{refused:?}");
    let authorized = bench.topic_info("demo")["authData"].clone();
    assert_eq!((&authorized["enableAuthControl"], &authorized["groupCount"]), (&json!(true), &json!(0)));

    let grant = "topicName=demo&groupName=g&createUser=eve";
    assert_eq!(bench.change("admin_add_authorized_consumergroup_info", grant).0, 200);
    assert_eq!(bench.join(seat, "c", &["demo"], &[]).err_code, 200);
    assert_eq!(bench.take(seat, "c", 0, |_| {}).err_code, 200);
    let dropped = "topicName=demo&modifyUser=bob";
    assert_eq!(bench.change("admin_delete_allowed_consumer_group_info", dropped).0, 200);
    assert_eq!(bench.take(seat, "c", 0, |_| {}).err_code, NOT_TO_CONSUME);
    let listed = bench.web("admin_query_black_consumer_group_info", "groupName=g");
    assert_eq!(listed["data"][0]["reason"], "Old API delete, disable consume");
    assert_eq!(bench.change("admin_delete_topic_authorize_control", dropped).0, 200);
    assert_eq!(bench.take(seat, "c", 0, |_| {}).err_code, 200, "the topic is open to all");
    assert!(bench.broker.stats().denied >= 4);
}

#[test]
fn groups_are_listed_with_their_members_and_partitions() {
    let (mut bench, seat) = Bench::demo();
    let nothing = bench.web("admin_query_consume_group_detail", "consumeGroup=g");
    assert_eq!((&nothing["count"], &nothing["topicSet"]), (&json!(0), &json!([])));
    bench.join(seat, "c", &["demo"], &["demo#a,b"]);
    bench.take(seat, "c", 1, |_| {});
    let listed = bench.web("admin_query_sub_info", "");
    assert_eq!(listed["data"], json!([{"consumeGroup": "g", "topicSet": ["demo"], "consumerNum": 1}]));
    for none in ["groupName=h", "consumeGroup=h", "topicName=other"] {
        assert_eq!(bench.web("admin_query_sub_info", none)["count"], 0, "{none}");
    }
    assert_eq!(bench.web("admin_query_sub_info", "topicName=demo,other")["count"], 1);
    let group = bench.web("admin_query_consume_group_detail", "groupName=g");
    assert_eq!(group["isBandConsume"], "unbound");
    assert_eq!(group["filterConds"], json!({"demo": ["a", "b"]}));
    let partition = json!({"partId": 1, "brokerAddr": "1:127.0.0.1:8123", "topicName": "demo"});
    assert_eq!(group["data"], json!([{"consumerId": "c", "parCount": 1, "parInfo": [partition]}]));
    let wrong = bench.web("admin_query_consume_group_detail", "");
    assert_eq!(wrong["errMsg"], "Parameter consumeGroup is missing or value is blank!");
}

#[test]
fn scripts_find_the_broker_online_and_its_texts_in_the_order_that_they_look_for() {
    let mut bench = Bench::new();
    let status = bench.http("GET", "type=op_query&method=admin_query_broker_run_status&brokerId=1", "", None);
    let text = std::str::from_utf8(&status.body).unwrap();
    let idle = text.find("\"subStatus\":\"idle\"").unwrap();
    assert!(text[idle..].contains("\"isConfLoaded\":\"true\""), "{text}");
    let query = "method=admin_query_master_group_info";
    assert!(
        bench
            .http("GET", query, "", None)
            .body
            .windows(17)
            .any(|part| part == b"Running-ReadWrite".as_slice())
    );
    assert_eq!(bench.web("admin_query_broker_run_status", "brokerId=2")["count"], 0);
    assert_eq!(bench.web("admin_query_broker_run_status", "onlyAbnormal=true")["count"], 0);
    assert_eq!(bench.web("admin_query_broker_configure", "")["data"][0]["numPartitions"], 2);
    assert_eq!(bench.change("admin_reload_broker_configure", "brokerId=1&modifyUser=bob").0, 200);
    assert_eq!(bench.change("admin_reload_broker_configure", "brokerId=2&modifyUser=bob").0, 401);
}

#[test]
fn several_topics_and_a_batch_are_answered_one_by_one() {
    let mut bench = Bench::new();
    let added = bench.web("admin_add_new_topic_record", "topicName=one,two&brokerId=1,2&createUser=ann");
    let codes = |answer: &Value| -> Vec<(String, i64, i64)> {
        let item = |one: &Value| {
            let number = |name: &str| one[name].as_i64().unwrap();
            (one["topicName"].as_str().unwrap().to_owned(), number("brokerId"), number("errCode"))
        };
        answer["data"].as_array().unwrap().iter().map(item).collect()
    };
    let expected = [("one", 1, 200), ("one", 2, 401), ("two", 1, 200), ("two", 2, 401)];
    assert_eq!(codes(&added), expected.map(|(name, id, code)| (name.to_owned(), id, code)));
    let items = json!([
        {"topicName": "one", "brokerId": 1},
        {"topicName": "three", "brokerId": "1", "numPartitions": 9},
        {"topicName": "three", "brokerId": 1, "numPartitions": 1, "createUser": "eve", "acceptSubscribe": false},
    ]);
    let batch = bench.web("admin_bath_add_new_topic_record", &format!("createUser=ann&topicJsonSet={items}"));
    let expected = [("one", 1, 402), ("three", 1, 200)];
    assert_eq!(codes(&batch), expected.map(|(name, id, code)| (name.to_owned(), id, code)));
    let three = bench.topic_info("three")["topicInfo"][0].clone();
    assert_eq!((&three["numPartitions"], &three["createUser"]), (&json!(1), &json!("eve")));
    assert_eq!(three["acceptSubscribe"], false);
    // One wrong item: none is added.
    let items = json!([{"topicName": "four", "brokerId": 1}, {"topicName": "5", "brokerId": 1}]);
    let batch = bench.web("admin_bath_add_new_topic_record", &format!("createUser=ann&topicJsonSet={items}"));
    assert_eq!((&batch["result"], &batch["errCode"]), (&json!(false), &json!(400)));
    let items = json!([{"topicName": "four", "brokerId": 1}, {"topicName": "five", "brokerId": 2}]);
    let batch = bench.web("admin_bath_add_new_topic_record", &format!("createUser=ann&topicJsonSet={items}"));
    assert!(batch["errMsg"].as_str().unwrap().starts_with("Not found broker configure by brokerId = 2"));
    assert_eq!(bench.broker.topics().len(), 3);
}

#[test]
fn queries_find_what_they_ask_for() {
    let mut bench = Bench::new();
    bench.broker.create_topic("plain", 1).unwrap();
    bench
        .change("admin_add_new_topic_record", "topicName=made&brokerId=1&createUser=ann&acceptPublish=false");
    for (query, names) in [
        ("", vec!["made", "plain"]),
        ("topicName=plain,other", vec!["plain"]),
        ("createUser=ann", vec!["made"]),
        ("modifyUser=bob", vec![]),
        ("brokerId=2", vec![]),
        ("brokerId=1,2&topicStatusId=0", vec!["made", "plain"]),
        ("brokerPort=8123&topicStatusId=-2", vec!["made", "plain"]),
        ("brokerPort=1", vec![]),
        ("topicStatusId=1", vec![]),
        ("numPartitions=1", vec!["plain"]),
        ("numTopicStores=2", vec![]),
        ("acceptPublish=true", vec!["plain"]),
        ("acceptSubscribe=true&deletePolicy=delete,60m", vec!["made", "plain"]),
        ("deletePolicy=delete,2h", vec![]),
        ("unflushThreshold=1000&memCacheMsgSizeInMB=2", vec!["made", "plain"]),
    ] {
        let listed = bench.web("admin_query_topic_info", query);
        let found: Vec<&str> = listed["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|topic| topic["topicName"].as_str().unwrap())
            .collect();
        assert_eq!(found, names, "{query}");
        assert_eq!(listed["count"], names.len());
    }
    let wrong = bench.web("admin_query_topic_info", "topicStatusId=7");
    assert!(wrong["errMsg"].as_str().unwrap().contains("unknown topic status code 7"), "{wrong}");
}

#[test]
fn what_this_broker_cannot_do_is_refused_and_changes_nothing() {
    let mut bench = Bench::with(|settings| settings.max_topics = 5);
    bench.broker.create_topic("demo", 2).unwrap();
    let create = "topicName=new&brokerId=1&createUser=ann";
    for (parameters, code, word) in [
        ("&numTopicStores=2", 407, "numTopicStores must be 1"),
        ("&deletePolicy=delete,2h", 407, "tubemq_retention"),
        ("&numPartitions=10001", 407, "1 to 10000 partitions"),
        ("&numPartitions=4", 405, "max_topics is 5"),
    ] {
        let (found, text) = bench.change("admin_add_new_topic_record", &format!("{create}{parameters}"));
        assert_eq!(found, code, "{text}");
        assert!(text.contains(word), "{text}");
    }
    for (parameters, code) in [("&numPartitions=2147483647", 407), ("&numPartitions=6", 405)] {
        assert_eq!(bench.change("admin_modify_topic_info", &format!("{MODIFY}{parameters}")).0, code);
    }
    for (method, parameters, word) in [
        ("admin_add_new_topic_record", "topicName=new&brokerId=1", "createUser is missing"),
        ("admin_add_new_topic_record", "brokerId=1&createUser=ann", "topicName is missing"),
        ("admin_add_new_topic_record", "topicName=new&createUser=ann", "brokerId is missing"),
        (
            "admin_add_new_topic_record",
            "topicName=%22&brokerId=1&createUser=ann",
            "illegal value for topicName",
        ),
        ("admin_modify_topic_info", "topicName=demo&brokerId=1", "modifyUser is missing"),
        ("admin_set_topic_authorize_control", "topicName=demo&isEnable=2x&createUser=ann", "isEnable"),
        (
            "admin_add_authorized_consumergroup_info",
            "topicName=no&groupName=g&createUser=ann",
            "is not configure",
        ),
        (
            "admin_add_authorized_consumergroup_info",
            "topicName=demo&groupName=1g&createUser=ann",
            "groupName",
        ),
        ("admin_add_broker_configure", "brokerId=2", "unsupported method!"),
        ("admin_offline_broker_configure", "brokerId=1&modifyUser=ann", "unsupported method!"),
        ("", "", "unsupported method!"),
    ] {
        let answer = bench.web(method, parameters);
        assert_eq!((&answer["result"], &answer["errCode"]), (&json!(false), &json!(400)), "{answer}");
        assert!(answer["errMsg"].as_str().unwrap().contains(word), "{method} {parameters}: {answer}");
    }
    assert_eq!(bench.broker.topics(), [("tubemq:demo".to_owned(), 2)]);
}

#[test]
fn a_request_names_a_method_and_a_code_and_takes_forms_and_queries() {
    let mut bench = Bench::new();
    let add = "method=admin_add_new_topic_record&topicName=demo&brokerId=1&createUser=ann";
    let text = |answer: Answer| serde_json::from_slice::<Value>(&answer.body).unwrap()["errMsg"].to_string();
    assert!(text(bench.http("GET", "", "", None)).contains("Please take with method parameter!"));
    assert!(text(bench.http("POST", add, "", None)).contains("confModAuthToken is missing"));
    assert!(text(bench.http("POST", "", "method=%", None)).contains("malformed"));
    assert!(text(bench.http("POST", "", "method=a&x=%ff", None)).contains("malformed"));
    assert!(bench.broker.topics().is_empty());
    assert_eq!(bench.http("PUT", add, "", None).status.as_u16(), 405);
    let whole = format!("{add}&confModAuthToken=abc");
    assert_eq!(bench.http("HEAD", &whole, "", None).status.as_u16(), 405);
    assert!(bench.broker.topics().is_empty());
    assert_eq!(bench.http("GET", &whole, "", None).status.as_u16(), 405, "it may come from a page");
    assert!(bench.broker.topics().is_empty());
    assert!(text(bench.http("GET", &whole, "", Some("ann"))).contains("OK"));
    assert_eq!(bench.broker.topics().len(), 1);
    assert_eq!(bench.http("HEAD", "method=admin_query_sub_info", "", None).status.as_u16(), 200);
}

#[test]
fn with_permissions_it_is_for_superusers() {
    let rules = "user ann\ntopic readwrite tubemq:#\nuser root\nsuperuser\n";
    let rules = Arc::new(Permissions::parse(rules).unwrap());
    let mut bench = Bench::with(|settings| settings.permissions = Some(rules));
    for query in ["method=admin_query_topic_info", "method=nonsense", ""] {
        for user in [None, Some("ann")] {
            assert_eq!(bench.http("GET", query, "", user).status.as_u16(), 403, "{query} {user:?}");
        }
        assert_eq!(bench.http("GET", query, "", Some("root")).status.as_u16(), 200, "{query}");
    }
    assert_eq!(bench.broker.stats().denied, 6);
}

#[test]
fn a_store_that_failed_is_told_and_nothing_is_claimed() {
    let (mut bench, _) = Bench::demo();
    bench.held = true;
    bench.change("admin_modify_topic_info", &format!("{MODIFY}&acceptPublish=false"));
    bench.fail();
    let form = format!("method=admin_modify_topic_info&confModAuthToken=abc&{MODIFY}&acceptSubscribe=false");
    let answer = bench.http("POST", "", &form, None);
    assert_eq!(answer.status.as_u16(), 503);
    assert!(std::str::from_utf8(&answer.body).unwrap().contains("no space left"));
    let status = bench.web("admin_query_broker_run_status", "");
    assert_eq!(status["data"][0]["acceptPublish"], "false");
}

#[test]
fn a_topic_names_a_thousand_groups_at_most() {
    let (mut bench, _) = Bench::demo();
    let mut refused = 0;
    for hundred in 0..11 {
        let groups: Vec<String> = (0..100).map(|number| format!("g{hundred}_{number}")).collect();
        let parameters = format!("topicName=demo&createUser=ann&groupName={}", groups.join(","));
        let answer = bench.web("admin_add_authorized_consumergroup_info", &parameters);
        let items = answer["data"].as_array().unwrap();
        refused += items.iter().filter(|item| item["errCode"] == 405).count();
    }
    assert_eq!(refused, 100);
    assert_eq!(bench.web("admin_query_allowed_consumer_group_info", "")["count"], 1000);
}

const NAMES: [&str; 24] = [
    "method",
    "confModAuthToken",
    "topicName",
    "topic",
    "brokerId",
    "createUser",
    "modifyUser",
    "createDate",
    "numPartitions",
    "numTopicStores",
    "acceptPublish",
    "acceptSubscribe",
    "deletePolicy",
    "topicStatusId",
    "topicJsonSet",
    "groupName",
    "consumeGroup",
    "isEnable",
    "brokerIp",
    "onlyAbnormal",
    "memCacheMsgCntInK",
    "modifyDate",
    "type",
    "callback",
];
const VALUES: [&str; 32] = [
    "admin_query_topic_info",
    "admin_add_new_topic_record",
    "admin_bath_add_new_topic_record",
    "admin_modify_topic_info",
    "admin_delete_topic_info",
    "admin_redo_deleted_topic_info",
    "admin_remove_topic_info",
    "admin_set_topic_authorize_control",
    "admin_add_authorized_consumergroup_info",
    "admin_delete_allowed_consumer_group_info",
    "admin_query_consume_group_detail",
    "admin_query_sub_info",
    "admin_query_broker_run_status",
    "admin_reload_broker_configure",
    "t",
    "p",
    "t,p",
    "1",
    "1,2",
    "0",
    "-1",
    "3",
    "2147483648",
    "true",
    "false",
    "delete,1h",
    "delete,",
    "%22%22",
    "%c3%a9",
    "20200101000000",
    "[{\"topicName\":\"n\",\"brokerId\":1,\"numPartitions\":1e9}]",
    "[[[",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_request_is_answered(
        requests in prop::collection::vec(
            prop::collection::vec(
                (prop::sample::select(&NAMES[..]), prop_oneof![
                    4 => prop::sample::select(&VALUES[..]).prop_map(str::to_owned),
                    1 => "[ -~]{0,20}",
                ]),
                0..8,
            ),
            1..40,
        ),
    ) {
        let now = std::time::Instant::now();
        let mut broker = Broker::new(settings::tubemq(now), Found::default(), None, now);
        broker.create_topic("t", 1).unwrap();
        broker.create_topic("p", 2).unwrap();
        for mut pairs in requests {
            pairs.insert(0, ("confModAuthToken", "abc".to_owned()));
            let form = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&");
            let request = HttpRequest::new("POST".parse().unwrap(), &"/webapi.htm".parse().unwrap()).unwrap();
            let request = HttpRequest { body: form.clone().into(), ..request };
            let answer = broker.handle_http(now, &request).unwrap();
            while let Some(_op) = broker.poll_op() {
                broker.handle_report(now, Report { jobs: 1, outcome: Outcome::Written(0) });
            }
            prop_assert_eq!(answer.status.as_u16(), 200, "{}", form);
            let object: Value = serde_json::from_slice(&answer.body).unwrap();
            prop_assert!(object["result"].is_boolean() && !object["errMsg"].as_str().unwrap().is_empty());
            prop_assert_eq!(object["result"] == json!(true), object["errCode"] == 0, "{}", form);
        }
        prop_assert!(broker.topics().iter().map(|(_, partitions)| partitions).sum::<u32>() <= 100);
    }
}
