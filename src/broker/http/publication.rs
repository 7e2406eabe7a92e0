//! A message that an operator publishes: JSON with `topic`, `payload` or `payload_base64`, and what
//! the protocol knows besides.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::StatusCode;
use serde_json::Value;

use super::fields::Fields;
use super::message::Answer;

/// A message in the body of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Name of the topic, as the request has it.
    pub topic: String,
    /// Payload; empty if the request has none.
    pub payload: Bytes,
    given: Fields,
}

impl Publication {
    /// Reads a body. An answer says what is wrong with it.
    pub fn read(body: &Bytes) -> Result<Self, Answer> {
        Self::parse(body).map_err(|reason| Self::refused(&reason))
    }

    /// A text of the message, such as its key.
    pub fn text(&self, name: &str) -> Result<Option<&str>, Answer> {
        self.given.text(name).map_err(|reason| Self::refused(&reason))
    }

    /// Whatever else the message has by that name; null if nothing.
    pub fn value(&self, name: &str) -> &Value {
        self.given.value(name)
    }

    /// The answer to a message that is not as it should be.
    pub fn refused(reason: &str) -> Answer {
        Answer::error(StatusCode::BAD_REQUEST, reason)
    }

    fn parse(body: &Bytes) -> Result<Self, String> {
        let given = Fields::read(body)?;
        let topic = given.required("topic")?.to_owned();
        let payload = match (given.text("payload")?, given.text("payload_base64")?) {
            (Some(text), None) => Bytes::from(text.to_owned()),
            (None, Some(text)) => {
                STANDARD.decode(text).map_err(|error| format!("payload_base64 is malformed: {error}"))?.into()
            }
            (None, None) => Bytes::new(),
            (Some(_), Some(_)) => return Err("payload and payload_base64 exclude each other".to_owned()),
        };
        Ok(Self { topic, payload, given })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &'static str) -> Result<Publication, String> {
        Publication::parse(&Bytes::from_static(body.as_bytes()))
    }

    #[test]
    fn a_message_is_read_from_json() {
        let full = parse(r#"{"topic": "a/b", "payload": "ü", "key": "k", "qos": 1}"#).unwrap();
        assert_eq!((&*full.topic, &full.payload[..]), ("a/b", "ü".as_bytes()));
        assert_eq!((full.text("key"), full.text("type")), (Ok(Some("k")), Ok(None)));
        assert_eq!(full.value("qos"), 1);
        assert!(full.text("qos").is_err());
        assert_eq!(parse(r#"{"topic": "a", "payload_base64": "AP8="}"#).unwrap().payload, [0, 255][..]);
        assert!(parse(r#"{"topic": "a"}"#).unwrap().payload.is_empty());
    }

    #[test]
    fn what_is_wrong_with_a_message_is_named() {
        for (body, word) in [
            ("", "expected"),
            ("[]", "topic"),
            ("{}", "topic"),
            (r#"{"topic": ""}"#, "topic"),
            (r#"{"topic": 1}"#, "topic"),
            (r#"{"topic": "a", "payload": 1}"#, "payload"),
            (r#"{"topic": "a", "payload_base64": "?"}"#, "payload_base64"),
            (r#"{"topic": "a", "payload": "", "payload_base64": ""}"#, "exclude"),
        ] {
            let error = parse(body).unwrap_err();
            assert!(error.contains(word), "{body}: {error}");
        }
    }
}
