//! Pulsar's options, from the dictionaries that the Python side has checked.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{Fields, raise, seconds, secret, tls};
use crate::pulsar::message_id::MessageId;
use crate::pulsar::schema;
use forebay_base::error::{Error, ErrorKind};
use forebay_base::options::{Source, read_word};
use forebay_client::pulsar::options::{
    Basic, ClientOptions, ConsumerOptions, DeadLetterPolicy, KeySharedPolicy, ProducerOptions,
};
use forebay_pulsar::MessageId as Id;
use forebay_pulsar::consumer::Backoff;
use forebay_pulsar::pb::command_get_topics_of_namespace::Mode;
use forebay_pulsar::topic::Routing;

/// Options of a client.
pub(super) fn client(url: String, options: &Bound<'_, PyDict>) -> PyResult<ClientOptions> {
    let fields = Fields(options);
    let mut to = ClientOptions { url, ..ClientOptions::default() };
    to.read(&fields)?;
    to.token = secret(&fields, "token")?;
    to.basic = match (fields.text("username")?, secret(&fields, "password")?, fields.text("basic_method")?) {
        (Some(username), Some(password), method) => {
            Some(Basic { method: method.unwrap_or_else(|| "basic".into()), username, password })
        }
        (None, None, None) => None,
        _ => {
            let text = "username and password are set together, and basic_method beside them only";
            return Err(raise(options.py(), &Error::new(ErrorKind::InvalidArgument, text)));
        }
    };
    to.tls = tls(&fields)?;
    Ok(to)
}

/// Options of a producer.
pub(super) fn producer(options: &Bound<'_, PyDict>) -> PyResult<ProducerOptions> {
    let fields = Fields(options);
    let mut to = ProducerOptions::default();
    to.read(&fields)?;
    if let (Routing::Partial(limit), Some(given)) = (&mut to.routing, fields.get("routing_partitions")?) {
        *limit = given;
    }
    to.schema = schema::option(fields.raw("schema")?)?;
    Ok(to)
}

/// Options of a consumer.
pub(super) fn consumer(options: &Bound<'_, PyDict>) -> PyResult<ConsumerOptions> {
    let fields = Fields(options);
    let mut to = ConsumerOptions::default();
    to.read(&fields)?;
    if let Some(position) = fields.raw("position")? {
        match position.cast::<MessageId>() {
            Ok(id) => {
                to.position = id.get().position(to.start_inclusive);
                to.position_topic = Arc::clone(&id.get().topic);
            }
            Err(_) => {
                let words = [("latest", Id::LATEST), ("earliest", Id::EARLIEST)];
                read_word(&fields, "position", &words, &mut to.position)?;
            }
        }
    }
    to.nack_delay = backoff(&fields, "nack_delay")?.unwrap_or(to.nack_delay);
    to.ack_timeout = backoff(&fields, "ack_timeout")?.filter(|timeout| !timeout.max.is_zero());
    to.dead_letter = fields.raw("dead_letter")?.map(|policy| dead_letter(&policy)).transpose()?;
    to.key_shared = fields.raw("key_shared")?.map(|policy| key_shared(&policy)).transpose()?;
    to.creates_topic = fields.flag("creates_topic")?.unwrap_or(to.creates_topic);
    to.schema = schema::option(fields.raw("schema")?)?;
    Ok(to)
}

/// The domain of the topics of a pattern; `None` if the pattern says it.
pub(super) fn topics_domain(options: &Bound<'_, PyDict>) -> PyResult<Option<Mode>> {
    let domains = [
        ("persistent", Some(Mode::Persistent)),
        ("non-persistent", Some(Mode::NonPersistent)),
        ("all", Some(Mode::All)),
    ];
    let mut to = None;
    read_word(&Fields(options), "topics_domain", &domains, &mut to)?;
    Ok(to)
}

/// A number of seconds, or a `forebay.pulsar.Backoff`.
fn backoff(fields: &Fields<'_, '_>, name: &str) -> PyResult<Option<Backoff>> {
    let Some(value) = fields.raw(name)? else { return Ok(None) };
    if let Ok(fixed) = value.extract() {
        return Ok(Some(Backoff::fixed(seconds(fixed))));
    }
    Ok(Some(Backoff {
        min: seconds(value.getattr("min")?.extract()?),
        max: seconds(value.getattr("max")?.extract()?),
        multiplier: value.getattr("multiplier")?.extract()?,
    }))
}

/// A `forebay.pulsar.KeySharedPolicy`.
fn key_shared(policy: &Bound<'_, PyAny>) -> PyResult<KeySharedPolicy> {
    Ok(KeySharedPolicy {
        ranges: policy.getattr("ranges")?.extract()?,
        out_of_order: policy.getattr("out_of_order")?.extract()?,
    })
}

/// A `forebay.pulsar.DeadLetterPolicy`.
fn dead_letter(policy: &Bound<'_, PyAny>) -> PyResult<DeadLetterPolicy> {
    Ok(DeadLetterPolicy {
        max_redeliveries: policy.getattr("max_redeliveries")?.extract()?,
        topic: policy.getattr("topic")?.extract()?,
        subscription: policy.getattr("subscription")?.extract()?,
        retry: policy.getattr("retry")?.extract()?,
        retry_topic: policy.getattr("retry_topic")?.extract()?,
    })
}
