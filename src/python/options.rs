//! The declarations of all options, from which `tools/generate_options.py` writes the Python tables
//! and signatures.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use forebay_base::options::{Kind, Level, OptionSpec, Shown};
use forebay_broker as broker;
use forebay_client::options::SharedOptions;
use forebay_client::{mqtt, pulsar, tubemq};

/// The tables by their names in Python.
fn tables() -> [(&'static str, Vec<OptionSpec>); 11] {
    let client = |own: Vec<OptionSpec>| [own, SharedOptions::specs()].concat();
    [
        ("pulsar.client", client(pulsar::options::ClientOptions::specs())),
        ("pulsar.producer", pulsar::options::ProducerOptions::specs()),
        ("pulsar.consumer", pulsar::options::ConsumerOptions::specs()),
        ("mqtt.client", client(mqtt::options::ClientOptions::specs())),
        ("mqtt.producer", mqtt::options::ProducerOptions::specs()),
        ("mqtt.consumer", mqtt::options::SubscriptionOptions::specs()),
        ("tubemq.client", client(tubemq::options::ClientOptions::specs())),
        ("tubemq.producer", tubemq::options::ProducerOptions::specs()),
        ("tubemq.consumer", tubemq::options::ConsumerOptions::specs()),
        ("broker", broker::options::specs()),
        ("listener", broker::options::ListenerOptions::specs()),
    ]
}

/// The options of each table, each a dict.
#[pyfunction]
pub(super) fn option_specs(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let to = PyDict::new(py);
    for (name, specs) in tables() {
        let rows = specs.into_iter().map(|spec| row(py, spec)).collect::<PyResult<Vec<_>>>()?;
        to.set_item(name, PyList::new(py, rows)?)?;
    }
    Ok(to)
}

fn row(py: Python<'_>, spec: OptionSpec) -> PyResult<Bound<'_, PyDict>> {
    let to = PyDict::new(py);
    to.set_item("name", spec.name)?;
    to.set_item("kind", spec.kind.name())?;
    match spec.kind {
        Kind::Whole(low, high) => to.set_item("arguments", (low, high))?,
        Kind::Words(words) => to.set_item("arguments", words)?,
        _ => to.set_item("arguments", ())?,
    }
    let default = match spec.default {
        Shown::Unset => py.None().into_bound(py),
        Shown::Flag(value) => value.into_bound_py_any(py)?,
        Shown::Whole(value) => value.into_bound_py_any(py)?,
        Shown::Seconds(value) => value.into_bound_py_any(py)?,
        Shown::Text(value) => value.into_bound_py_any(py)?,
    };
    to.set_item("default", default)?;
    to.set_item("text", spec.text)?;
    to.set_item("common", spec.level == Level::Common)?;
    to.set_item("secret", spec.secret)?;
    to.set_item("face", spec.face)?;
    to.set_item("at_limit", spec.at_limit)?;
    to.set_item("least", spec.least.as_secs_f64())?;
    Ok(to)
}
