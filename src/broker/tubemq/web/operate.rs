//! Requests of the page for operators, under `/forebay/v1/tubemq`.
//!
//! | | |
//! |---|---|
//! | `POST publish` | publishes `{"topic", "payload" or "payload_base64", "key", "message_type"}` to one of the partitions |
//! | `POST groups/reset` | moves a group, `{"group", "topic", "partition", "to"}`: to `earliest`, `latest` or an offset |
//! | `GET peek?topic=TOPIC&...` | messages, as `peek` describes |
//!
//! As with the real server, a group is moved whether or not a client holds the partition: its next
//! get goes on from there.

use std::sync::Arc;

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::http::fields::Fields;
use crate::http::message::{Answer, Request};
use crate::http::publication::Publication;
use crate::logger::{self, Logger, Record};
use crate::tubemq::partition::{OFFSET_UNIT, offset_of};
use crate::tubemq::{Broker, PREFIX};
use forebay_base::error::ErrorKind;
use forebay_tubemq::message::Outgoing;
use tracing::Level;

/// Destination of a group that is moved.
#[derive(Clone, Copy, Debug)]
enum Destination {
    Earliest,
    Latest,
    /// A message, by its number in the partition.
    Message(u64),
}

impl Destination {
    fn read(given: &Value) -> Result<Self, String> {
        match given {
            Value::String(text) if text == "earliest" => Ok(Self::Earliest),
            Value::String(text) if text == "latest" => Ok(Self::Latest),
            Value::Number(offset) if offset.is_u64() => {
                Ok(Self::Message(offset.as_u64().unwrap_or_default() / OFFSET_UNIT))
            }
            Value::Null => Err("to is missing".to_owned()),
            _ => Err("to is earliest, latest or an offset".to_owned()),
        }
    }
}

/// A reset that a body asks for.
#[derive(Debug)]
struct Reset {
    group: Arc<str>,
    topic: String,
    /// Index of the partition; `None` for all.
    partition: Option<usize>,
    to: Destination,
}

impl Reset {
    fn read(request: &Request) -> Result<Self, String> {
        let given = Fields::read(&request.body)?;
        let topic = given.required("topic")?;
        let partition = match given.value("partition") {
            Value::Null => None,
            value => {
                let index = value.as_u64().and_then(|index| usize::try_from(index).ok());
                Some(index.ok_or("partition is not the number of a partition")?)
            }
        };
        let to = Destination::read(given.value("to"))?;
        if matches!(to, Destination::Message(_)) && partition.is_none() {
            return Err("an offset is one of a partition: partition is missing".to_owned());
        }
        let topic = topic.strip_prefix(PREFIX).unwrap_or(topic).to_owned();
        Ok(Self { group: given.required("group")?.into(), topic, partition, to })
    }
}

/// The answer to a request for something that does not exist.
pub(super) fn missing(what: &str) -> Answer {
    Answer::error(StatusCode::NOT_FOUND, &format!("{what} does not exist"))
}

impl Broker {
    /// Answers a request of the page.
    pub(super) fn operate(&mut self, path: &[&str], request: &Request) -> Answer {
        let method = if request.method == Method::HEAD { &Method::GET } else { &request.method };
        let answer = match (method.as_str(), path) {
            ("GET", ["peek"]) => self.peek_request(request),
            // Changes would pile up that no connection is charged for.
            ("POST", ["publish"] | ["groups", "reset"]) if self.commits.is_stalled() => {
                Ok(Answer::unavailable("the store cannot be written to at the moment"))
            }
            ("POST", ["publish"]) => self.publish_request(request),
            ("POST", ["groups", "reset"]) => self.reset_request(request),
            (_, ["peek"] | ["publish"] | ["groups", "reset"]) => Ok(Answer::wrong_method()),
            _ => Ok(Answer::not_found()),
        };
        answer.unwrap_or_else(|refusal| refusal)
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

    fn reset_request(&mut self, request: &Request) -> Result<Answer, Answer> {
        let reset = Reset::read(request).map_err(|reason| Publication::refused(&reason))?;
        if let Some(error) = self.commits.failure() {
            return Err(Answer::unavailable(error.message()));
        }
        let partitions = self.chosen(&reset.topic, reset.partition)?;
        self.check_reset(&reset, &partitions)?;
        let moved: Vec<Value> =
            partitions.into_iter().filter_map(|(index, id)| self.move_group(&reset, index, id)).collect();
        logger::write(Level::INFO, Logger::Http, || reset_record(&reset, request));
        Ok(Answer::json(&json!({"group": &*reset.group, "topic": reset.topic, "partitions": moved})))
    }

    /// Index and number of one partition of a topic, or of all.
    pub(super) fn chosen(&self, topic: &str, partition: Option<usize>) -> Result<Vec<(usize, u64)>, Answer> {
        let known = self.topics.get(topic).ok_or_else(|| missing(&format!("topic {topic}")))?;
        let all = known.partitions.iter().copied().enumerate();
        match partition {
            None => Ok(all.collect()),
            Some(wanted) => {
                let found: Vec<(usize, u64)> = all.filter(|(index, _)| *index == wanted).collect();
                let none = || missing(&format!("partition {wanted} of topic {topic}"));
                if found.is_empty() { Err(none()) } else { Ok(found) }
            }
        }
    }

    /// Whether a group has an offset in a topic.
    pub(super) fn has_offset(&self, topic: &str, group: &str) -> bool {
        let ids = self.topics.get(topic).into_iter().flat_map(|topic| &topic.partitions);
        ids.filter_map(|id| self.partitions.get(id)).any(|partition| partition.offsets.contains_key(group))
    }

    fn check_reset(&self, reset: &Reset, partitions: &[(usize, u64)]) -> Result<(), Answer> {
        let Reset { group, topic, .. } = reset;
        if !self.has_offset(topic, group) {
            // A name that is misspelt would come into being.
            return Err(missing(&format!("an offset of group {group} in topic {topic}")));
        }
        let passing = |id: &u64| self.partitions.get(id).is_some_and(|partition| partition.is_passing(group));
        match partitions.iter().find(|(_, id)| passing(id)) {
            None => Ok(()),
            Some((index, _)) => {
                let text = format!(
                    "a client reads partition {index} of topic {topic} as group {group} without storing offsets: \
                     there is none to reset"
                );
                Err(Answer::error(StatusCode::CONFLICT, &text))
            }
        }
    }

    /// Moves a group in a partition, and writes that. Offsets outside of the partition are taken
    /// for its ends.
    fn move_group(&mut self, reset: &Reset, index: usize, id: u64) -> Option<Value> {
        let partition = self.partitions.get_mut(&id)?;
        let (first, end) = (partition.log.first(), partition.log.committed());
        let before = partition.offset(&reset.group).map(offset_of);
        let next = match reset.to {
            Destination::Earliest => first,
            Destination::Latest => end,
            Destination::Message(number) => number.clamp(first, end),
        };
        partition.reset(&reset.group, next);
        self.write_offset(id, &reset.group);
        Some(json!({"partition": index, "offset": offset_of(next), "before": before}))
    }
}

fn reset_record(reset: &Reset, request: &Request) -> Record {
    let (group, topic) = (logger::cut(&reset.group), logger::cut(&reset.topic));
    let user = logger::cut(request.user.as_deref().unwrap_or_default());
    let by = if user.is_empty() { String::new() } else { format!(" by user {user:?}") };
    let partition = reset.partition.map(|index| format!(", partition {index}")).unwrap_or_default();
    let to = match reset.to {
        Destination::Earliest => "earliest".to_owned(),
        Destination::Latest => "latest".to_owned(),
        Destination::Message(number) => format!("offset {}", offset_of(number)),
    };
    let text = format!("tubemq: group {group:?} reset in topic {topic:?}{partition} to {to}{by}");
    logger::about("administration", "tubemq", &user, "", text)
        .with("method", "groups/reset")
        .with("group", group)
        .with("topic", topic)
}
