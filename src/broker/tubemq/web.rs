//! TubeMQ's part of the page for operators: `POST /penstock/v1/tubemq/publish` with `topic`, `payload` or `payload_base64`, `key`
//! and `message_type`.

use std::time::Instant;

use hyper::{Method, StatusCode};
use serde_json::json;

use super::{Broker, PREFIX};
use crate::broker::http::message::{Answer, Request};
use crate::broker::http::publication::Publication;
use crate::error::ErrorKind;
use crate::tubemq::message::Outgoing;

impl Broker {
    /// Answers a request over HTTP, if its path is TubeMQ's.
    pub(super) fn answer_http(&mut self, now: Instant, request: &Request) -> Option<Answer> {
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        let ["penstock", "v1", "tubemq", rest @ ..] = &path[..] else { return None };
        self.now = now;
        Some(match rest {
            ["publish"] if request.method != Method::POST => Answer::wrong_method(),
            // Changes would pile up that no connection is charged for.
            ["publish"] if self.commits.is_stalled() => {
                Answer::unavailable("the store cannot be written to at the moment")
            }
            ["publish"] => self.publish_request(request).unwrap_or_else(|answer| answer),
            _ => Answer::not_found(),
        })
    }

    fn publish_request(&mut self, request: &Request) -> Result<Answer, Answer> {
        let given = Publication::read(&request.body)?;
        let message = Outgoing {
            payload: &given.payload,
            key: given.text("key")?,
            message_type: given.text("message_type")?,
            ..Outgoing::default()
        };
        let topic = given.topic.strip_prefix(PREFIX).unwrap_or(&given.topic);
        let (partition, offset) = self.publish_for_operator(topic, &message).map_err(|error| {
            let status = match error.kind() {
                ErrorKind::TopicNotFound => StatusCode::NOT_FOUND,
                ErrorKind::InvalidArgument | ErrorKind::MessageTooLarge => StatusCode::BAD_REQUEST,
                ErrorKind::QuotaExceeded => StatusCode::TOO_MANY_REQUESTS,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            Answer::error(status, error.message())
        })?;
        Ok(Answer::json(&json!({"topic": topic, "partition": partition, "offset": offset})))
    }
}
