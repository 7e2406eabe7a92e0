//! TubeMQ's side of HTTP: what is under `/forebay/v1/tubemq` for the page for operators, and `/webapi.htm`, the part of the real
//! master's web service that adds, changes and lists topics and groups, with its methods, parameters, codes and texts.
//!
//! * `operate`: the requests of the page; `peek`: messages that it shows
//! * `parameters`: what a request states; `object`: answers
//! * `topics`: topics; `groups`: groups, and which of them may consume a topic; `cluster`: this broker
//!
//! What the broker does not have is left out of answers, such as sizes of caches. A method that is not here is refused like one
//! that the real master does not know: nothing is claimed to be done that is not.

use std::time::Instant;

use hyper::{Method, StatusCode};

use super::Broker;
use super::partition::BROKER;
use crate::broker::http::message::{Answer, Request};
use crate::broker::record;
use crate::error::sanitise;
use crate::log::{self, Level, Record};

mod cluster;
mod groups;
mod object;
mod operate;
mod parameters;
mod peek;
mod topics;

use object::Object;
use parameters::{Checked, Parameters, date_of};

/// Code of what was done.
const DONE: i32 = 200;
/// Codes of what was not done, as the real master has them.
const NOT_FOUND: i32 = 401;
const EXISTS: i32 = 402;
const UNCHANGED: i32 = 403;
const LACKING: i32 = 405;
const WRONG_STATUS: i32 = 406;
const WRONG_VALUE: i32 = 407;
const STORE_FAILED: i32 = 501;

/// Result of a change of one thing.
#[derive(Debug)]
struct Outcome {
    code: i32,
    text: String,
}

impl Outcome {
    fn done() -> Self {
        Self { code: DONE, text: "Ok!".to_owned() }
    }

    fn refused(code: i32, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// Adds what became of it to the names of the thing.
    fn describe(&self, thing: Object) -> Object {
        thing
            .with("success", self.code == DONE)
            .with("errCode", self.code)
            .with("errInfo", self.text.as_str())
    }
}

/// An answer with a list of objects.
fn listed(items: &[Object]) -> Object {
    Object::default()
        .with("result", true)
        .with("errCode", 0)
        .with("errMsg", "OK")
        .list("data", items)
        .with("count", items.len())
}

impl Broker {
    /// Answers a request over HTTP, if its path is TubeMQ's.
    pub(super) fn answer_http(&mut self, now: Instant, request: &Request) -> Option<Answer> {
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        self.now = now;
        match path[..] {
            ["forebay", "v1", "tubemq", ref rest @ ..] => Some(self.operate(rest, request)),
            ["webapi.htm"] => Some(self.web_service(request)),
            _ => None,
        }
    }

    /// Answers a request to the master's web service, which takes queries and forms alike.
    fn web_service(&mut self, request: &Request) -> Answer {
        if ![Method::GET, Method::HEAD, Method::POST].contains(&request.method) {
            return Answer::wrong_method();
        }
        let rules = self.settings.permissions.as_ref();
        if rules.is_some_and(|rules| !rules.is_superuser(request.user.as_deref())) {
            self.counters.denied += 1;
            let text = "only superusers may administer the broker: superuser in acl_file allows it";
            return Answer::error(StatusCode::FORBIDDEN, text);
        }
        let given = match Parameters::of(request) {
            Ok(given) => given,
            Err(text) => return refused(&text),
        };
        let Some(name) = given.method() else { return refused("Please take with method parameter!") };
        if let Some(query) = query_named(name) {
            return answer(query(self, &given));
        }
        let Some(change) = change_named(name) else { return refused("unsupported method!") };
        // A page of another site can make any browser GET, and an old one does not tell where it comes from.
        if request.method != Method::POST && request.user.is_none() {
            let text = "changes are made by POST; by GET only with a token or a certificate";
            return Answer::error(StatusCode::METHOD_NOT_ALLOWED, text);
        }
        if request.method == Method::HEAD {
            return Answer::wrong_method();
        }
        if let Err(text) = given.require_token() {
            return refused(&text);
        }
        if let Some(error) = self.commits.failure() {
            return Answer::unavailable(error.message());
        }
        // Changes would pile up that no connection is charged for.
        if self.commits.is_stalled() {
            return stalled();
        }
        let result = change(self, &given);
        log::write(Level::Info, "forebay.broker.http", || {
            change_record(name, request, result.as_ref().err())
        });
        answer(result)
    }

    /// The present date.
    fn date(&self) -> String {
        date_of(self.wall_ms())
    }
}

/// Reads the state of the broker.
type Query = fn(&Broker, &Parameters) -> Checked<Object>;
/// Changes it.
type Change = fn(&mut Broker, &Parameters) -> Checked<Object>;

fn query_named(name: &str) -> Option<Query> {
    let query: Query = match name {
        "admin_query_topic_info" => Broker::list_topics,
        "admin_query_topic_authorize_control" => Broker::list_controls,
        "admin_query_allowed_consumer_group_info" => |broker, given| broker.list_grants(given, true),
        "admin_query_black_consumer_group_info" => |broker, given| broker.list_grants(given, false),
        "admin_query_sub_info" => Broker::list_groups,
        "admin_query_consume_group_detail" => Broker::describe_group,
        "admin_query_broker_run_status" => Broker::list_statuses,
        "admin_query_broker_configure" => Broker::list_brokers,
        "admin_query_master_group_info" => Broker::list_masters,
        _ => return None,
    };
    Some(query)
}

fn change_named(name: &str) -> Option<Change> {
    let change: Change = match name {
        "admin_add_new_topic_record" | "admin_add_topic_deploy_info" => Broker::add_topics,
        "admin_bath_add_new_topic_record" | "admin_bath_add_topic_deploy_info" => Broker::add_batch,
        "admin_modify_topic_info" | "admin_update_topic_deploy_info" => Broker::modify_topics,
        "admin_delete_topic_info" | "admin_delete_topic_deploy_info" => Broker::soft_delete_topics,
        "admin_redo_deleted_topic_info" | "admin_redo_deleted_topic_deploy_info" => Broker::restore_topics,
        "admin_remove_topic_info" | "admin_remove_topic_deploy_info" => Broker::remove_topics,
        "admin_set_topic_authorize_control" => Broker::set_controls,
        "admin_delete_topic_authorize_control" => Broker::drop_controls,
        "admin_add_authorized_consumergroup_info" => |broker, given| broker.add_grants(given, true),
        "admin_delete_allowed_consumer_group_info" => |broker, given| broker.drop_grants(given, true),
        "admin_add_black_consumergroup_info" => |broker, given| broker.add_grants(given, false),
        "admin_delete_black_consumergroup_info" => |broker, given| broker.drop_grants(given, false),
        "admin_reload_broker_configure" => Broker::reload,
        _ => return None,
    };
    Some(change)
}

fn answer(result: Checked<Object>) -> Answer {
    let wrong =
        |text: String| Object::default().with("result", false).with("errCode", 400).with("errMsg", text);
    Answer::new("application/json", result.unwrap_or_else(wrong).text())
}

/// The record of a change. Its parameters are left out: there is a token among them.
fn change_record(method: &str, request: &Request, error: Option<&String>) -> Record {
    let (method, user) = (log::cut(method), log::cut(request.user.as_deref().unwrap_or_default()));
    let by = if user.is_empty() { String::new() } else { format!(" by user {user:?}") };
    let reason = error.map(|text| sanitise(text)).unwrap_or_default();
    let end = if reason.is_empty() { String::new() } else { format!(", refused: {reason}") };
    record::about("administration", "tubemq", &user, "", format!("tubemq: {method}{by}{end}"))
        .with("method", method)
        .with("reason", reason)
}

/// The answer to a request that calls no method.
fn refused(text: &str) -> Answer {
    answer(Err(format!("Bad request from client, {text}")))
}

fn stalled() -> Answer {
    Answer::unavailable("the store cannot be written to at the moment")
}
