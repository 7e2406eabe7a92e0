//! TubeMQ's options, from the dictionaries that the Python side has checked.

use std::collections::{BTreeMap, BTreeSet};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{Fields, raise, secret, tls};
use crate::tubemq::position::Position;
use forebay_base::error::{Error, ErrorKind};
use forebay_client::tubemq::options::{ClientOptions, ConsumerOptions, ProducerOptions};
use forebay_tubemq::balance::Balance;
use forebay_tubemq::consumer::Start;

/// Options of a client.
pub(super) fn client(url: String, options: &Bound<'_, PyDict>) -> PyResult<ClientOptions> {
    let fields = Fields(options);
    let mut to = ClientOptions { url, ..ClientOptions::default() };
    for (name, into) in [
        ("connect_timeout", &mut to.connect_timeout),
        ("operation_timeout", &mut to.operation_timeout),
        ("request_timeout", &mut to.request_timeout),
        ("heartbeat_interval", &mut to.heartbeat_interval),
        ("max_backoff", &mut to.max_backoff),
    ] {
        fields.seconds(name, into)?;
    }
    fields.size("memory_limit", &mut to.memory_limit)?;
    fields.size("receive_buffer", &mut to.receive_buffer)?;
    to.username = fields.text("username")?;
    to.password = secret(&fields, "password")?;
    to.tls = tls(&fields)?;
    Ok(to)
}

/// Options of a producer.
pub(super) fn producer(options: &Bound<'_, PyDict>) -> PyResult<ProducerOptions> {
    let fields = Fields(options);
    let mut to = ProducerOptions { message_type: fields.text("message_type")?, ..ProducerOptions::default() };
    fields.size("max_pending", &mut to.max_pending)?;
    let mut timeout = to.send_timeout.unwrap_or_default();
    fields.seconds("send_timeout", &mut timeout)?;
    to.send_timeout = (!timeout.is_zero()).then_some(timeout);
    Ok(to)
}

/// Options of a consumer.
pub(super) fn consumer(topics: &[String], options: &Bound<'_, PyDict>) -> PyResult<ConsumerOptions> {
    let py = options.py();
    let fields = Fields(options);
    let mut to = ConsumerOptions::default();
    if let Some(position) = fields.raw("position")? {
        if let Ok(positions) = position.extract::<Vec<Bound<'_, Position>>>() {
            to.offsets = positions.iter().map(|at| (at.get().place(), at.get().0.offset)).collect();
        } else {
            let words = [("latest", Start::Latest), ("first", Start::First), ("max", Start::Max)];
            fields.word("position", &words, &mut to.start)?;
        }
    }
    if let Some(filters) = fields.raw("filters")? {
        to.filters = match filters.extract::<BTreeMap<String, BTreeSet<String>>>() {
            Ok(by_topic) => by_topic,
            Err(_) => {
                let types: BTreeSet<String> = filters.extract()?;
                topics.iter().map(|topic| (topic.clone(), types.clone())).collect()
            }
        };
    }
    let balances = [("client", Balance::Client(None)), ("server", Balance::Server)];
    fields.word("balance", &balances, &mut to.balance)?;
    let number = |name: &str| fields.raw(name)?.map(|value| value.extract::<u32>()).transpose();
    match (number("source_count")?, number("node_id")?) {
        (None, None) => {}
        (Some(count), Some(node)) if node < count && to.balance != Balance::Server => {
            to.balance = Balance::Client(Some((count, node)));
        }
        _ => {
            let text = "source_count and node_id must be given together, with node_id below source_count and \
                        balance=\"client\"";
            return Err(raise(py, &Error::new(ErrorKind::InvalidArgument, text)));
        }
    }
    fields.flag("auto_ack", &mut to.auto_ack)?;
    fields.seconds("nack_delay", &mut to.nack_delay)?;
    fields.seconds("poll_interval", &mut to.poll_interval)?;
    Ok(to)
}
