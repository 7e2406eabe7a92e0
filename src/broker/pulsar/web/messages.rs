//! Single messages: the n-th of a subscription or of a topic, or one by its id. The body is the
//! payload, decompressed; what belongs to it is in headers, by the names that Pulsar's Java client
//! reads.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use prost::Message as _;
use serde_json::{Map, Value, json};

use super::subscriptions::{missing, nth_unacked, number};
use super::{Refusal, Reply};
use crate::http::PROPERTY;
use crate::http::message::{Answer, Request};
use crate::log::Entry;
use crate::pulsar::Broker;
use crate::pulsar::names::Name;
use crate::pulsar::topic::is_stored;
use forebay_base::calendar;
use forebay_base::compression::{Compression, decompress};
use forebay_pulsar::frame::Payload;
use forebay_pulsar::pb;

impl Broker {
    /// The n-th message or batch that a subscription has not acknowledged.
    pub(super) fn peek(&mut self, name: &Name, subscription: &str, at: u64) -> Reply {
        let id = self.log_of(name, "Peek messages")?;
        let Some(topic) = self.topics.get(&id) else { return Ok(Answer::not_found()) };
        let found = topic.subscriptions.get(subscription);
        let found = found.ok_or_else(|| missing(subscription, name))?;
        let nth = nth_unacked(found, topic.log.committed(), topic.log.first(), at)?;
        match nth {
            Some(entry) => self.message(id, entry),
            None => Err(Refusal::not_found("Message not found")),
        }
    }

    /// The n-th message or batch of a topic, from its beginning or, unless that is asked for, from
    /// its end.
    pub(super) fn examine(&mut self, name: &Name, request: &Request) -> Reply {
        let id = self.log_of(name, "Examine messages")?;
        let Some(topic) = self.topics.get(&id).filter(|_| is_stored(id)) else {
            let text = "Examine messages on a non-persistent topic is not allowed";
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, text));
        };
        let at = request.query("messagePosition").map_or(Ok(1), |at| number(at, "position"))?.max(1);
        let (first, end) = (topic.log.first(), topic.log.committed());
        if first == end {
            let text = "Could not examine messages due to the total message is zero";
            return Err(Refusal::new(StatusCode::PRECONDITION_FAILED, text));
        }
        let entry = match request.query("initialPosition") {
            Some("earliest") => first.checked_add(at - 1),
            None | Some("latest") => end.checked_sub(at),
            Some(_) => {
                let text = "initialPosition is earliest or latest";
                return Err(Refusal::new(StatusCode::BAD_REQUEST, text));
            }
        };
        self.message(id, entry.ok_or_else(|| Refusal::not_found("Message not found"))?)
    }

    /// A message or batch by its id.
    pub(super) fn message_by_id(&mut self, name: &Name, ledger: &str, entry: &str) -> Reply {
        let id = self.log_of(name, "Get messages")?;
        match (ledger.parse::<u64>(), entry.parse::<u64>()) {
            (Ok(ledger), Ok(entry)) if ledger == id => self.message(id, entry),
            (Ok(_), Ok(_)) => Err(Refusal::not_found("Message id not found")),
            _ => Err(Refusal::new(StatusCode::BAD_REQUEST, "the message id is malformed")),
        }
    }

    /// The id of the first message that was published at a time, in milliseconds since 1970, or
    /// later.
    pub(super) fn id_by_time(&mut self, name: &Name, time: &str) -> Reply {
        let since = number(time, "time")?;
        let id = self.log_of(name, "Get message id by timestamp")?;
        let Some(topic) = self.topics.get(&id) else { return Ok(Answer::not_found()) };
        let at = topic.log.search(&mut self.source, |entry| entry.publish_ms >= since)?;
        let partition = topic.partition.map_or(-1, i64::from);
        Ok(Answer::json(&json!({"ledgerId": id, "entryId": at, "partitionIndex": partition})))
    }

    fn message(&mut self, topic: u64, entry: u64) -> Reply {
        let limit = self.settings.session.max_message_size;
        let Some(topic) = self.topics.get(&topic) else { return Ok(Answer::not_found()) };
        let committed = (topic.log.first()..topic.log.committed()).contains(&entry);
        let found = if committed { topic.log.peek(entry, &mut self.source)? } else { None };
        let found = found.ok_or_else(|| Refusal::not_found("Message not found"))?;
        described(topic.id, &found, limit)
    }
}

fn described(ledger: u64, entry: &Entry, limit: usize) -> Reply {
    let payload = Payload { entry: None, checksum: entry.checksum, covered: entry.body.clone() };
    let metadata = payload.metadata()?;
    let body = payload.body()?;
    let unknown =
        || Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the message has an unknown compression");
    // The real broker counts the whole entry but for its metadata: with its checksum, with the
    // lengths and numbers that begin its parts, and with what the broker has added.
    let of_broker =
        pb::BrokerEntryMetadata { broker_timestamp: Some(entry.stored_ms), index: Some(entry.last_index) };
    let batch_size = (2 + 4 + of_broker.encoded_len()) + (2 + 4) + 4 + body.len();
    let kind = Compression::from_number(metadata.compression.unwrap_or(0)).ok_or_else(unknown)?;
    // What is encrypted, only its consumers can read.
    let body = match metadata.encryption_keys.is_empty() {
        true => decompress(kind, &body, metadata.uncompressed_size.unwrap_or(0) as usize, limit)?,
        false => body,
    };
    let mut answer = Answer::new("application/octet-stream", body)
        .with_header("X-Pulsar-Message-ID", format!("{ledger}:{}", entry.sequence))
        .with_header("X-Pulsar-publish-time", time(metadata.publish_time))
        .with_header("X-Pulsar-producer-name", metadata.producer_name)
        .with_header("X-Pulsar-sequence-id", metadata.sequence_id.to_string());
    for (name, value) in [
        ("X-Pulsar-event-time", metadata.event_time.filter(|at| *at > 0).map(time)),
        ("X-Pulsar-deliver-at-time", metadata.deliver_at_time.map(|at| time(at.max(0) as u64))),
        ("X-Pulsar-partition-key", metadata.partition_key),
        ("X-Pulsar-uncompressed-size", metadata.uncompressed_size.map(|size| size.to_string())),
        ("X-Pulsar-batch-size", metadata.num_messages_in_batch.map(|_| batch_size.to_string())),
        ("X-Pulsar-num-batch-message", metadata.num_messages_in_batch.map(|count| count.to_string())),
        (
            "X-Pulsar-Base64-schema-version-b64encoded",
            metadata.schema_version.map(|version| STANDARD.encode(version)),
        ),
    ] {
        if let Some(value) = value {
            answer = answer.with_header(name, value);
        }
    }
    let properties: Map<String, Value> =
        metadata.properties.into_iter().map(|pair| (pair.key, pair.value.into())).collect();
    Ok(answer.with_header(PROPERTY, ascii(&Value::from(properties).to_string())))
}

/// JSON without characters that a header cannot have.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        // DEL is the only ASCII character that JSON leaves as it is and headers do not take.
        if character.is_ascii() && character != '\x7f' {
            text.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    text
}

/// A time as Java prints it, `2026-01-31T12:00:00.001Z`; without a fraction if that is 0.
fn time(ms: u64) -> String {
    let (days, rest) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = calendar::date(days);
    let (hours, minutes, seconds) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1_000 % 60);
    let fraction = match rest % 1_000 {
        0 => String::new(),
        ms => format!(".{ms:03}"),
    };
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}{fraction}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (951_868_800_000, "2000-03-01T00:00:00Z"),
            (1_767_225_599_000, "2025-12-31T23:59:59Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(time(ms), text);
        }
    }

    #[test]
    fn properties_of_any_text_fit_into_a_header() {
        let json = serde_json::json!({"\n\u{7f}ü": "😀\""}).to_string();
        let text = ascii(&json);
        assert!(hyper::header::HeaderValue::try_from(&text).is_ok(), "{text}");
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            serde_json::from_str::<Value>(&json).unwrap()
        );
    }
}
