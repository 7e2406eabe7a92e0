//! MQTT's part of the page for operators, under `/forebay/v1/mqtt`: sessions, retained messages,
//! and a publication.
//!
//! | | |
//! |---|---|
//! | `GET sessions?filter=TEXT&after=NUMBER` | sessions in the order of their creation, a page of them |
//! | `DELETE sessions?client_id=ID` | ends a session with its connection, and deletes what waits for it |
//! | `GET retained?filter=FILTER&after=TOPIC` | retained messages in the order of their topics, a page of them |
//! | `DELETE retained?topic=TOPIC` | deletes one |
//! | `POST publish` | publishes `{"topic", "payload" or "payload_base64", "qos", "retain"}` |
//!
//! The answer of a list has the query of its next page as `next`; null if it is the last one.

use std::ops::Bound;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::Broker;
use super::message::Moment;
use super::retained::{self, Next, Slot};
use super::session::Session;
use crate::http::message::{Answer, Request};
use crate::http::publication::Publication;
use forebay_mqtt::packet::{PacketId, Publish};
use forebay_mqtt::topic::{self, Filter};
use forebay_mqtt::{QoS, Reason};

/// Sessions, and retained messages, on a page.
const PAGE: usize = 500;
/// Sessions, and retained topics, that are looked at for a page.
const STEPS: usize = 20_000;
/// Filters of a session, and bytes of a payload, that are shown.
const FILTERS: usize = 20;
const PAYLOAD: usize = 4 << 10;

fn refused(status: StatusCode, reason: impl AsRef<str>) -> Answer {
    Answer::error(status, reason.as_ref())
}

impl Broker {
    /// Answers a request over HTTP, if its path is MQTT's.
    pub(super) fn answer_http(&mut self, now: Instant, request: &Request) -> Option<Answer> {
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        let ["forebay", "v1", "mqtt", rest @ ..] = &path[..] else { return None };
        self.now = now;
        let method = if request.method == Method::HEAD { &Method::GET } else { &request.method };
        let changes = *method != Method::GET;
        let answer = match (method.as_str(), rest) {
            _ if changes && self.commits.is_stalled() => {
                // Changes would pile up that no connection is charged for.
                Answer::unavailable("the store cannot be written to at the moment")
            }
            ("GET", ["sessions"]) => self.list_sessions(request),
            ("DELETE", ["sessions"]) => self.delete_session(request),
            ("GET", ["retained"]) => self.list_retained(request),
            ("DELETE", ["retained"]) => self.delete_retained(request),
            ("POST", ["publish"]) => self.publish_request(request),
            (_, ["sessions" | "retained" | "publish"]) => Answer::wrong_method(),
            _ => Answer::not_found(),
        };
        self.pump();
        // The answer waits for the change.
        self.close_batch();
        Some(answer)
    }

    fn list_sessions(&self, request: &Request) -> Answer {
        let after = match request.query("after").map(str::parse) {
            None => 0,
            Some(Ok(number)) => number,
            Some(Err(_)) => return refused(StatusCode::BAD_REQUEST, "after is the number of a session"),
        };
        let wanted = request.query("filter").unwrap_or_default().to_lowercase();
        let (mut page, mut next, mut seen) = (Vec::new(), Value::Null, after);
        let rest = self.sessions.range((Bound::Excluded(after), Bound::Unbounded));
        for (steps, (number, session)) in rest.enumerate() {
            if page.len() == PAGE || steps == STEPS {
                next = json!({"after": seen});
                break;
            }
            seen = *number;
            let row = self.session_row(*number, session);
            let has = |part: &Value| part.as_str().is_some_and(|text| text.to_lowercase().contains(&wanted));
            if wanted.is_empty() || has(&row["client_id"]) || has(&row["user"]) {
                page.push(row);
            }
        }
        Answer::json(&json!({"total": self.sessions.len(), "sessions": page, "next": next}))
    }

    fn session_row(&self, number: u64, session: &Session) -> Value {
        let filters: Vec<&str> = session.subscriptions.keys().take(FILTERS).map(|filter| &**filter).collect();
        let ends = session.ends_at.map(|at| at.saturating_duration_since(self.now).as_secs());
        json!({
            "number": number,
            "client_id": &*session.client_id,
            "user": self.settings.client(session).user,
            "connection": session.connection,
            "expiry_seconds": (session.expiry != u32::MAX).then_some(session.expiry),
            "ends_in_seconds": ends,
            "subscriptions": session.subscriptions.len(),
            "filters": filters,
            "queued": session.queue.len() + session.pending,
            "in_flight": session.flights.len(),
            "bytes": session.bytes,
        })
    }

    fn delete_session(&mut self, request: &Request) -> Answer {
        let Some(client_id) = request.query("client_id") else {
            return refused(StatusCode::BAD_REQUEST, "client_id is missing in the query");
        };
        let Some(number) = self.clients.get(client_id).copied() else {
            return refused(StatusCode::NOT_FOUND, "there is no such session");
        };
        if let Some(connection) = self.sessions.get(&number).and_then(|session| session.connection) {
            self.end_connection(
                connection,
                Reason::AdministrativeAction,
                "an operator has deleted the session",
            );
        }
        // It may have ended with its connection.
        self.end_session(number);
        Answer::done()
    }

    fn list_retained(&self, request: &Request) -> Answer {
        let filter = match Filter::parse(request.query("filter").unwrap_or("#")) {
            Ok(filter) if filter.group().is_none() => filter,
            Ok(_) => {
                return refused(StatusCode::BAD_REQUEST, "a shared subscription gets no retained messages");
            }
            Err(error) => return refused(StatusCode::BAD_REQUEST, error.message()),
        };
        let place = match (request.query("after"), request.query("from")) {
            (Some(topic), _) => Bound::Excluded(topic.to_owned()),
            (None, Some(topic)) => Bound::Included(topic.to_owned()),
            (None, None) => retained::start(filter.as_str()),
        };
        let (messages, next) = self.retained_page(&filter, place);
        Answer::json(&json!({"total": self.retained.len(), "messages": messages, "next": next}))
    }

    /// A page of retained messages, and the query of the next page; null if there are no more.
    fn retained_page(&self, filter: &Filter, mut place: Bound<String>) -> (Vec<Value>, Value) {
        let (mut page, mut steps) = (Vec::new(), STEPS);
        loop {
            match self.retained.next(filter.as_str(), &mut place, &mut steps) {
                // One more than fits: there is a next page.
                Next::Found(_) if page.len() == PAGE => {
                    let last = page.last().map(|last: &Value| last["topic"].clone());
                    return (page, json!({"after": last}));
                }
                Next::Found(slot) => {
                    place = Bound::Excluded(slot.message.topic().to_string());
                    page.push(retained_row(&slot, self.moment()));
                }
                Next::Paused => {
                    let next = match place {
                        Bound::Included(topic) => json!({"from": topic}),
                        Bound::Excluded(topic) => json!({"after": topic}),
                        Bound::Unbounded => Value::Null,
                    };
                    return (page, next);
                }
                Next::End => return (page, Value::Null),
            }
        }
    }

    fn delete_retained(&mut self, request: &Request) -> Answer {
        match request.query("topic") {
            None => refused(StatusCode::BAD_REQUEST, "topic is missing in the query"),
            Some(topic) if self.retained.contains(topic) => {
                self.unretain(topic);
                Answer::done()
            }
            Some(_) => refused(StatusCode::NOT_FOUND, "the topic has no retained message"),
        }
    }

    fn publish_request(&mut self, request: &Request) -> Answer {
        let publish = match publication(&request.body) {
            Ok(publish) => publish,
            Err(answer) => return answer,
        };
        match self.publish_for_operator(publish) {
            Ok(matched) => Answer::json(&json!({"matched": matched})),
            Err((Reason::NotAuthorized, text)) => refused(StatusCode::FORBIDDEN, text),
            Err((Reason::TopicNameInvalid, text)) => refused(StatusCode::BAD_REQUEST, text),
            Err((Reason::QuotaExceeded, text)) => refused(StatusCode::TOO_MANY_REQUESTS, text),
            Err((_, text)) => Answer::unavailable(&text),
        }
    }
}

fn retained_row(slot: &Slot, now: Moment) -> Value {
    let publish = &slot.message.publish;
    let expires = slot.message.expires_run_ms.map(|at| now.wall_ms + at.saturating_sub(now.run_ms));
    let shown = publish.payload.slice(..publish.payload.len().min(PAYLOAD));
    json!({
        "topic": &*publish.topic,
        "qos": publish.qos as u8,
        "bytes": publish.payload.len(),
        "payload_base64": BASE64.encode(shown),
        "received_ms": slot.message.received.wall_ms,
        "expires_ms": expires,
    })
}

/// The message in a body.
fn publication(body: &Bytes) -> Result<Publish, Answer> {
    let given = Publication::read(body)?;
    topic::check_name(&given.topic).map_err(|error| Publication::refused(error.message()))?;
    let qos = match given.value("qos") {
        Value::Null => Some(QoS::AtMostOnce),
        value => value.as_u64().and_then(|bits| QoS::from_bits(u8::try_from(bits).ok()?)),
    };
    let qos = qos.ok_or_else(|| Publication::refused("qos is 0, 1 or 2"))?;
    let retain = match given.value("retain") {
        Value::Null => Some(false),
        value => value.as_bool(),
    };
    let retain = retain.ok_or_else(|| Publication::refused("retain is true or false"))?;
    let packet_id = (qos != QoS::AtMostOnce).then_some(PacketId::MIN);
    let Publication { topic, payload, .. } = given;
    Ok(Publish { qos, retain, topic: topic.into(), packet_id, payload, ..Publish::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &'static str) -> Result<Publish, Answer> {
        publication(&Bytes::from_static(body.as_bytes()))
    }

    #[test]
    fn a_publication_has_a_quality_of_service_and_may_be_retained() {
        let full = read(r#"{"topic": "a/b", "payload": "x", "qos": 1, "retain": true}"#).unwrap();
        assert_eq!((&*full.topic, &full.payload[..], full.qos), ("a/b", &b"x"[..], QoS::AtLeastOnce));
        assert!(full.retain && full.packet_id.is_some());
        let least = read(r#"{"topic": "a"}"#).unwrap();
        assert_eq!(least, Publish { topic: "a".into(), ..Publish::default() });
    }

    #[test]
    fn what_is_wrong_with_a_publication_is_named() {
        for (body, word) in [
            (r#"{"topic": "a/#"}"#, "filters"),
            (r#"{"topic": "a", "qos": 3}"#, "qos"),
            (r#"{"topic": "a", "qos": "1"}"#, "qos"),
            (r#"{"topic": "a", "qos": 257}"#, "qos"),
            (r#"{"topic": "a", "retain": "yes"}"#, "retain"),
        ] {
            let answer = read(body).unwrap_err();
            assert_eq!(answer.status, StatusCode::BAD_REQUEST);
            let text = String::from_utf8_lossy(&answer.body);
            assert!(text.contains(word), "{body}: {text}");
        }
    }
}
