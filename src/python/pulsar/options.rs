//! Pulsar's options, from the dictionaries that the Python side has checked.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{Fields, raise, seconds, secret, tls};
use crate::pulsar::message_id::MessageId;
use crate::pulsar::schema;
use forebay_base::compression::Compression;
use forebay_base::error::{Error, ErrorKind};
use forebay_client::pulsar::options::{
    AccessMode, Basic, ClientOptions, ConsumerOptions, DeadLetterPolicy, KeySharedPolicy, ProducerOptions,
};
use forebay_pulsar::MessageId as Id;
use forebay_pulsar::consumer::{Backoff, Unreadable};
use forebay_pulsar::pb::command_get_topics_of_namespace::Mode;
use forebay_pulsar::pb::command_subscribe::SubType;
use forebay_pulsar::topic::{HashingScheme, Routing};

/// Options of a client.
pub(super) fn client(url: String, options: &Bound<'_, PyDict>) -> PyResult<ClientOptions> {
    let fields = Fields(options);
    let mut to = ClientOptions { url, ..ClientOptions::default() };
    fields.seconds("connect_timeout", &mut to.connect_timeout)?;
    fields.seconds("operation_timeout", &mut to.operation_timeout)?;
    fields.seconds("keep_alive", &mut to.keep_alive)?;
    fields.seconds("max_backoff", &mut to.max_backoff)?;
    fields.size("memory_limit", &mut to.memory_limit)?;
    fields.size("connections_per_broker", &mut to.connections_per_broker)?;
    to.listener_name = fields.text("listener_name")?;
    to.token = secret(&fields, "token")?;
    to.lookup_properties = fields.pairs("lookup_properties")?;
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
    let mut to = ProducerOptions { name: fields.text("name")?, ..ProducerOptions::default() };
    fields.flag("batching", &mut to.batching)?;
    fields.size("batch_max_messages", &mut to.batch_max_messages)?;
    fields.size("batch_max_bytes", &mut to.batch_max_bytes)?;
    fields.seconds("batching_delay", &mut to.batching_delay)?;
    fields.flag("key_based_batching", &mut to.key_based_batching)?;
    fields.flag("stop_on_refusal", &mut to.stop_on_refusal)?;
    if let Some(name) = fields.text("compression")? {
        to.compression = Compression::from_name(&name).ok_or_else(|| {
            let text = format!("compression is {name:?}: use none, lz4, zlib, zstd or snappy");
            raise(options.py(), &Error::new(ErrorKind::InvalidArgument, text))
        })?;
    }
    fields.size("compression_min_size", &mut to.compression_min_size)?;
    let mut timeout = to.send_timeout.unwrap_or_default();
    fields.seconds("send_timeout", &mut timeout)?;
    to.send_timeout = (!timeout.is_zero()).then_some(timeout);
    fields.size("max_pending", &mut to.max_pending)?;
    let hashings = [
        ("java", HashingScheme::JavaStringHash),
        ("murmur3", HashingScheme::Murmur3),
        ("boost", HashingScheme::Boost),
    ];
    fields.word("hashing", &hashings, &mut to.hashing)?;
    let limit = fields.raw("routing_partitions")?.map(|value| value.extract()).transpose()?.unwrap_or(1);
    let routings = [
        ("round_robin", Routing::RoundRobin),
        ("single", Routing::Single),
        ("partial_round_robin", Routing::Partial(limit)),
    ];
    fields.word("routing", &routings, &mut to.routing)?;
    fields.flag("lazy_start", &mut to.lazy_start)?;
    to.initial_sequence_id = fields.raw("initial_sequence_id")?.map(|value| value.extract()).transpose()?;
    let modes = [
        ("shared", AccessMode::Shared),
        ("exclusive", AccessMode::Exclusive),
        ("wait_for_exclusive", AccessMode::WaitForExclusive),
        ("exclusive_with_fencing", AccessMode::ExclusiveWithFencing),
    ];
    fields.word("access_mode", &modes, &mut to.access_mode)?;
    fields.flag("chunking", &mut to.chunking)?;
    to.chunk_max_size = fields.raw("chunk_max_size")?.map(|value| value.extract()).transpose()?;
    fields.seconds("partitions_update_interval", &mut to.partitions_update_interval)?;
    to.properties = fields.pairs("properties")?;
    to.schema = schema::option(fields.raw("schema")?)?;
    Ok(to)
}

/// Options of a consumer.
pub(super) fn consumer(options: &Bound<'_, PyDict>) -> PyResult<ConsumerOptions> {
    let fields = Fields(options);
    let mut to = ConsumerOptions { name: fields.text("name")?, ..ConsumerOptions::default() };
    let kinds = [
        ("exclusive", SubType::Exclusive),
        ("shared", SubType::Shared),
        ("failover", SubType::Failover),
        ("key_shared", SubType::KeyShared),
    ];
    fields.word("type", &kinds, &mut to.kind)?;
    if let Some(position) = fields.raw("position")? {
        match position.cast::<MessageId>() {
            Ok(id) => {
                to.position = id.get().id;
                to.position_topic = Arc::clone(&id.get().topic);
            }
            Err(_) => fields.word(
                "position",
                &[("latest", Id::LATEST), ("earliest", Id::EARLIEST)],
                &mut to.position,
            )?,
        }
    }
    fields.flag("start_inclusive", &mut to.start_inclusive)?;
    fields.flag("durable", &mut to.durable)?;
    if let Some(value) = fields.raw("receiver_queue")? {
        to.receiver_queue = value.extract()?;
    }
    fields.size("receive_buffer", &mut to.receive_buffer)?;
    fields.size("max_chunked_message", &mut to.max_chunked_message)?;
    fields.size("max_pending_chunked_messages", &mut to.max_pending_chunked_messages)?;
    fields.seconds("chunked_message_timeout", &mut to.chunked_message_timeout)?;
    fields.flag("ack_incomplete_chunks", &mut to.ack_incomplete_chunks)?;
    let policies = [("skip", Unreadable::Skip), ("fail", Unreadable::Fail), ("discard", Unreadable::Discard)];
    fields.word("unreadable", &policies, &mut to.unreadable)?;
    fields.flag("batch_index_ack", &mut to.batch_index_ack)?;
    fields.seconds("ack_group_time", &mut to.ack_group_time)?;
    to.nack_delay = backoff(&fields, "nack_delay")?.unwrap_or(to.nack_delay);
    to.ack_timeout = backoff(&fields, "ack_timeout")?.filter(|timeout| !timeout.max.is_zero());
    to.dead_letter = fields.raw("dead_letter")?.map(|policy| dead_letter(&policy)).transpose()?;
    to.key_shared = fields.raw("key_shared")?.map(|policy| key_shared(&policy)).transpose()?;
    fields.flag("read_compacted", &mut to.read_compacted)?;
    fields.flag("creates_topic", &mut to.creates_topic)?;
    if let Some(value) = fields.raw("priority")? {
        to.priority = value.extract()?;
    }
    fields.seconds("partitions_update_interval", &mut to.partitions_update_interval)?;
    fields.seconds("pattern_update_interval", &mut to.pattern_update_interval)?;
    fields.size("pattern_max_topics", &mut to.pattern_max_topics)?;
    to.properties = fields.pairs("properties")?;
    to.subscription_properties = fields.pairs("subscription_properties")?;
    to.schema = schema::option(fields.raw("schema")?)?;
    Ok(to)
}

/// The domain of the topics of a pattern; `None` if the pattern says it.
pub(super) fn topics_domain(options: &Bound<'_, PyDict>) -> PyResult<Option<Mode>> {
    let fields = Fields(options);
    let domains = [
        ("persistent", Some(Mode::Persistent)),
        ("non-persistent", Some(Mode::NonPersistent)),
        ("all", Some(Mode::All)),
    ];
    let mut to = None;
    fields.word("topics_domain", &domains, &mut to)?;
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
