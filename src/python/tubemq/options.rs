//! TubeMQ's options, from the dictionaries that the Python side has checked.

use std::collections::{BTreeMap, BTreeSet};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{Fields, raise, secret, tls};
use crate::tubemq::position::Position;
use forebay_base::error::{Error, ErrorKind};
use forebay_base::options::read_word;
use forebay_client::tubemq::options::{ClientOptions, ConsumerOptions, ProducerOptions};
use forebay_tubemq::balance::Balance;
use forebay_tubemq::consumer::Start;

/// Options of a client.
pub(super) fn client(url: String, options: &Bound<'_, PyDict>) -> PyResult<ClientOptions> {
    let fields = Fields(options);
    let mut to = ClientOptions { url, ..ClientOptions::default() };
    to.read(&fields)?;
    to.password = secret(&fields, "password")?;
    to.tls = tls(&fields)?;
    Ok(to)
}

/// Options of a producer.
pub(super) fn producer(options: &Bound<'_, PyDict>) -> PyResult<ProducerOptions> {
    let mut to = ProducerOptions::default();
    to.read(&Fields(options))?;
    Ok(to)
}

/// Options of a consumer.
pub(super) fn consumer(topics: &[String], options: &Bound<'_, PyDict>) -> PyResult<ConsumerOptions> {
    let py = options.py();
    let fields = Fields(options);
    let mut to = ConsumerOptions::default();
    to.read(&fields)?;
    if let Some(position) = fields.raw("position")? {
        if let Ok(positions) = position.extract::<Vec<Bound<'_, Position>>>() {
            to.offsets = positions.iter().map(|at| (at.get().place(), at.get().0.offset)).collect();
        } else {
            let words = [("latest", Start::Latest), ("first", Start::First), ("max", Start::Max)];
            read_word(&fields, "position", &words, &mut to.start)?;
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
    match (fields.get("source_count")?, fields.get("node_id")?) {
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
    Ok(to)
}
