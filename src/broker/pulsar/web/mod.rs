//! Pulsar's side of HTTP: the lookups of clients with an `http://` URL, and the part of the
//! administration that a developer needs, with the paths, statuses and fields of the real broker.
//!
//! * `cluster`: lookups, clusters, tenants and namespaces
//! * `topics`: topics and partitions; `subscriptions`: theirs, and their positions
//! * `stats`: figures; `messages`: single messages; `schemas`; `publish`: a message of an operator
//!
//! Figures that the broker does not have, such as rates, are left out.

use std::time::Instant;

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::Broker;
use super::names::Name;
use super::permitted::Operation;
use super::subscription::PEEKS;
use crate::http::message::{Answer, Request};
use forebay_base::error::{Error, ErrorKind};

mod cluster;
mod messages;
mod publish;
mod schemas;
mod stats;
mod subscriptions;
mod topics;

/// A refusal with its status.
#[derive(Debug)]
struct Refusal {
    status: StatusCode,
    reason: String,
}

type Reply = Result<Answer, Refusal>;

impl Refusal {
    fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into() }
    }

    fn not_found(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, reason)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::TopicNotFound | ErrorKind::SubscriptionNotFound => StatusCode::NOT_FOUND,
            ErrorKind::InvalidTopic => {
                return Self::new(StatusCode::PRECONDITION_FAILED, "Topic name is not valid");
            }
            ErrorKind::InvalidArgument
            | ErrorKind::IncompatibleSchema
            | ErrorKind::ProducerBusy
            | ErrorKind::TopicTerminated => StatusCode::CONFLICT,
            ErrorKind::MessageTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::Authorization => StatusCode::FORBIDDEN,
            ErrorKind::NotAllowed | ErrorKind::Unsupported => StatusCode::METHOD_NOT_ALLOWED,
            ErrorKind::TooManyRequests | ErrorKind::QuotaExceeded => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.message())
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Self::error(refusal.status, &refusal.reason)
    }
}

/// The JSON in a body.
fn body(request: &Request) -> Result<Value, Refusal> {
    serde_json::from_slice(&request.body).map_err(|error| {
        Refusal::new(StatusCode::BAD_REQUEST, format!("the body is not as expected: {error}"))
    })
}

/// The name of the topic that a path is about.
fn name(domain: &str, tenant: &str, namespace: &str, topic: &str) -> Result<Name, Refusal> {
    Ok(Name::parse(&format!("{domain}://{tenant}/{namespace}/{topic}"))?)
}

fn is_domain(text: &str) -> bool {
    ["persistent", "non-persistent"].contains(&text)
}

impl Broker {
    /// Answers a request over HTTP, if its path is Pulsar's.
    pub(super) fn answer_http(&mut self, now: Instant, request: &Request) -> Option<Answer> {
        self.now = now;
        self.peeks = PEEKS;
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        let method = if request.method == Method::HEAD { Method::GET } else { request.method.clone() };
        if !matches!(path[..], ["lookup" | "admin", "v2", ..] | ["forebay", "v1", "pulsar", ..]) {
            return None;
        }
        let answer = self.route(&method, &path, request).unwrap_or_else(Answer::from);
        self.pump();
        Some(answer)
    }

    fn route(&mut self, method: &Method, path: &[&str], request: &Request) -> Reply {
        if method != Method::GET {
            if let Some(error) = self.refusal() {
                return Err(error.into());
            }
            if self.commits.is_stalled() {
                // Changes would pile up that no connection is charged for.
                return Ok(Answer::unavailable("the store cannot be written to at the moment"));
            }
        }
        let reads = method == Method::GET;
        self.check_request(reads, path, request.user.as_deref())?;
        match path {
            ["lookup", "v2", "topic", domain, tenant, namespace, topic] if is_domain(domain) && reads => {
                self.look_up(&name(domain, tenant, namespace, topic)?)
            }
            ["admin", "v2", "brokers", "health"] if reads => Ok(Answer::new("text/plain", "ok")),
            ["admin", "v2", "brokers", "version"] if reads => {
                Ok(Answer::new("text/plain", concat!("Forebay ", env!("CARGO_PKG_VERSION"))))
            }
            // `pulsar-admin clusters list` marks the cluster that it is asked about.
            ["admin", "v2", "brokers", "configuration", "runtime"] if reads => {
                Ok(Answer::json(&json!({"clusterName": cluster::CLUSTER})))
            }
            ["admin", "v2", "clusters", rest @ ..] if reads => self.clusters(rest),
            ["admin", "v2", "tenants", rest @ ..] if reads => self.tenants(rest),
            ["admin", "v2", "namespaces", rest @ ..] if reads => self.namespaces(rest, request),
            ["admin", "v2", "brokers" | "clusters" | "tenants" | "namespaces", ..] | ["lookup", ..]
                if !reads =>
            {
                Ok(Answer::wrong_method())
            }
            ["admin", "v2", domain, tenant, namespace] if is_domain(domain) && reads => {
                self.topics_in(domain, tenant, namespace)
            }
            ["admin", "v2", domain, tenant, namespace, "partitioned"] if is_domain(domain) && reads => {
                self.partitioned_in(domain, tenant, namespace)
            }
            ["admin", "v2", domain, tenant, namespace, topic, rest @ ..] if is_domain(domain) => {
                self.topic_request(method, &name(domain, tenant, namespace, topic)?, rest, request)
            }
            ["admin", "v2", "schemas", tenant, namespace, topic, rest @ ..] => {
                self.schemas(method, &name("persistent", tenant, namespace, topic)?, rest, request)
            }
            ["forebay", "v1", "pulsar", "publish"] if *method == Method::POST => {
                Ok(self.publish(request).unwrap_or_else(|answer| answer))
            }
            ["forebay", "v1", "pulsar", "publish"] => Ok(Answer::wrong_method()),
            _ => Ok(Answer::not_found()),
        }
    }

    /// Refuses what the permissions do not allow: who may use a topic may ask about it as clients
    /// do, and everything else is for superusers.
    fn check_request(&mut self, reads: bool, path: &[&str], user: Option<&str>) -> Result<(), Refusal> {
        if self.settings.permissions.as_ref().is_none_or(|rules| rules.is_superuser(user)) {
            return Ok(());
        }
        match path {
            ["lookup", "v2", "topic", domain, tenant, namespace, topic]
            | ["admin", "v2", domain, tenant, namespace, topic, "partitions"]
                if is_domain(domain) && reads =>
            {
                Ok(self.check_permission(
                    user,
                    Operation::LookUp,
                    &name(domain, tenant, namespace, topic)?,
                )?)
            }
            ["admin", "v2", "schemas", tenant, namespace, topic, "schema", ..] if reads => Ok(self
                .check_permission(user, Operation::LookUp, &name("persistent", tenant, namespace, topic)?)?),
            // The list has what its reader may see.
            ["admin", "v2", "namespaces", _, _, "topics"] | ["admin", "v2", "brokers", "health"] if reads => {
                Ok(())
            }
            _ => {
                self.counters.denied += 1;
                let user = user.map_or("without a user".to_owned(), |user| format!("{user:?}"));
                let text = format!(
                    "the client {user} may not administer the broker: superuser in acl_file allows it"
                );
                Err(Refusal::new(StatusCode::FORBIDDEN, text))
            }
        }
    }

    fn topic_request(&mut self, method: &Method, name: &Name, path: &[&str], request: &Request) -> Reply {
        match (method.as_str(), path) {
            ("PUT", []) => self.put_topic(name),
            ("DELETE", []) => self.remove_topic(name, false, request),
            ("GET", ["partitions"]) => self.partitions_of(name, request),
            ("PUT", ["partitions"]) => self.put_partitions(name, request),
            ("POST", ["partitions"]) => self.post_partitions(name, request),
            ("DELETE", ["partitions"]) => self.remove_topic(name, true, request),
            ("GET", ["stats"]) => self.stats_of(name),
            ("GET", ["partitioned-stats"]) => self.partitioned_stats_of(name, request),
            ("GET", ["internalStats"]) => self.internal_stats_of(name),
            ("GET", ["partitioned-internalStats"]) => self.partitioned_internal_stats_of(name),
            ("GET", ["lastMessageId"]) => self.last_id(name),
            ("GET", ["messageid", time]) => self.id_by_time(name, time),
            ("GET", ["ledger", ledger, "entry", entry]) => self.message_by_id(name, ledger, entry),
            ("GET", ["examinemessage"]) => self.examine(name, request),
            ("POST", ["terminate"]) => self.end_topic(name, false),
            ("POST", ["terminate", "partitions"]) => self.end_topic(name, true),
            ("GET", ["subscriptions"]) => self.subscriptions_of(name),
            ("POST", ["all_subscription", "expireMessages", seconds]) => self.expire_all(name, seconds),
            (_, ["subscription", subscription, rest @ ..]) => {
                self.subscription_request(method, name, subscription, rest, request)
            }
            (
                _,
                []
                | [
                    "partitions" | "stats" | "partitioned-stats" | "internalStats" | "subscriptions"
                    | "terminate" | "examinemessage",
                ]
                | ["messageid", _],
            ) => Ok(Answer::wrong_method()),
            _ => Ok(Answer::not_found()),
        }
    }
}
