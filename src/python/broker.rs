//! The embedded broker as a Python object.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::convert::{Fields, files, py_result, seconds};
use crate::runtime::Native;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::options::Source;
use forebay_base::sync::{Mutex, Rank};
use forebay_broker as native;

/// Option that names the file of permissions.
const ACL_FILE: &str = "acl_file";

/// Reads a whole store, and gives the number of its entries and a line for everything that is
/// damaged.
#[pyfunction]
pub(super) fn check_store(py: Python<'_>, path: std::path::PathBuf) -> PyResult<(u64, Vec<String>)> {
    let checked = py.detach(|| native::store::check::check(&path));
    py_result(py, checked.map(|checked| (checked.entries, checked.damage)))
}

/// Copies a store, of a broker that runs or not, into a new file.
#[pyfunction]
pub(super) fn backup_store(py: Python<'_>, path: std::path::PathBuf, to: std::path::PathBuf) -> PyResult<()> {
    let copied = py.detach(|| native::store::backup(&path, &to));
    py_result(py, copied)
}

/// Makes a store of a backup; gives the number of its entries.
#[pyfunction]
pub(super) fn restore_store(
    py: Python<'_>,
    source: std::path::PathBuf,
    path: std::path::PathBuf,
) -> PyResult<u64> {
    let restored = py.detach(|| native::store::restore(&source, &path));
    py_result(py, restored)
}

/// Removes the free pages of a store; gives the size of its file before and after.
#[pyfunction]
pub(super) fn compact_store(py: Python<'_>, path: std::path::PathBuf) -> PyResult<(u64, u64)> {
    let compacted = py.detach(|| native::store::compact(&path));
    py_result(py, compacted)
}

/// Whether a token has the signature of a key, which is one as `token_key` takes them.
#[pyfunction]
pub(super) fn is_signed_with(py: Python<'_>, key: &[u8], token: &[u8]) -> PyResult<bool> {
    let keys = py_result(py, native::auth::TokenKeys::new(key))?;
    Ok(keys.is_signed(token))
}

/// Whether a key, which is one as `token_key` takes them, is a secret, which can sign.
#[pyfunction]
pub(super) fn is_secret(py: Python<'_>, key: &[u8]) -> PyResult<bool> {
    py_result(py, native::auth::TokenKeys::is_secret(key))
}

/// A hash of an MQTT user's password by Argon2id, with a new salt.
#[pyfunction]
pub(super) fn hash_password(py: Python<'_>, password: &[u8]) -> PyResult<String> {
    let hash = py.detach(|| native::mqtt::hash_password(password));
    py_result(py, hash)
}

/// A broker in this process, which runs on a thread of its own.
#[pyclass(frozen, module = "forebay._engine")]
pub(super) struct Broker {
    native: Native<Mutex<native::Broker>>,
    urls: native::Urls,
    /// Files of users by the name of their protocol, of those that have a listener.
    user_files: Vec<(&'static str, &'static str, String)>,
    acl_file: Option<String>,
}

impl Broker {
    /// Sends a request to the broker's thread and waits for the answer with the interpreter
    /// released.
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&native::Broker) -> Result<T> + Send,
    ) -> PyResult<T> {
        let broker = py_result(py, self.native.get())?;
        let answer = py.detach(|| ask(&broker.lock()));
        py_result(py, answer)
    }
}

#[pymethods]
impl Broker {
    #[staticmethod]
    fn start(py: Python<'_>, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let fields = Fields(options);
        let options = broker_options(options)?;
        let mut user_files = Vec::new();
        for (protocol, option) in [("mqtt", "mqtt_password_file"), ("tubemq", "tubemq_user_file")] {
            let served = options.listeners.iter().any(|listener| listener.protocol == protocol);
            user_files.extend(fields.text(option)?.filter(|_| served).map(|path| (protocol, option, path)));
        }
        let acl_file = fields.text(ACL_FILE)?;
        let started = py.detach(|| native::Broker::start(options));
        let broker = py_result(py, started)?;
        let urls = broker.urls().clone();
        Ok(Self { native: Native::new(Mutex::new(Rank::Broker, broker)), urls, user_files, acl_file })
    }

    /// Name and URL of each listener, and whether other machines send to it in the clear.
    #[getter]
    fn listening(&self) -> Vec<(&'static str, String, bool)> {
        self.urls.0.iter().map(|one| (one.name, one.url.clone(), one.in_the_clear)).collect()
    }

    /// Reads the files of users again. Gives the number of users by protocol. An error in one file
    /// changes nothing.
    fn reload_users(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, usize)>> {
        let mut texts = Vec::new();
        for (protocol, option, path) in &self.user_files {
            let text = py_result(py, read_text(option, path))?;
            py_result(py, native::Broker::check_users(protocol, &text))?;
            texts.push((protocol, text));
        }
        let mut counts = Vec::new();
        for (protocol, text) in texts {
            counts.push((*protocol, self.ask(py, |broker| broker.set_users(protocol, &text))?));
        }
        Ok(counts)
    }

    /// Reads the file of permissions again, and gives the number of its rules; `None` without a
    /// file.
    fn reload_permissions(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        let Some(path) = &self.acl_file else { return Ok(None) };
        let text = py_result(py, read_text(ACL_FILE, path))?;
        self.ask(py, |broker| broker.set_permissions(&text)).map(Some)
    }

    /// Replaces certificates and token keys by those in the options. Gives the number of listeners
    /// with a certificate, and that of the keys.
    fn reload_keys(&self, py: Python<'_>, options: &Bound<'_, PyDict>) -> PyResult<(usize, usize)> {
        let fields = Fields(options);
        let certificates = listeners(&fields)?.into_iter().map(|listener| listener.tls).collect();
        let keys = native::Keys { certificates, token_key: fields.bytes("token_key")? };
        self.ask(py, |broker| broker.set_keys(keys))
    }

    fn stop(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let broker = py_result(py, self.native.get())?;
        let stopped = py.detach(|| broker.lock().stop(seconds(timeout)));
        let late = || {
            Error::new(ErrorKind::Timeout, "the broker is still writing: it ends by itself once that is done")
        };
        py_result(py, if stopped { Ok(()) } else { Err(late()) })
    }

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let status = self.ask(py, native::Broker::status)?;
        let to = PyDict::new(py);
        to.set_item("url", status.url)?;
        to.set_item("durability", status.durability.name())?;
        to.set_item("uptime", status.uptime.as_secs_f64())?;
        to.set_item("store_bytes", status.store_bytes)?;
        to.set_item("failure", status.total.failure.as_deref())?;
        to.set_item("stalled", status.total.stalled.as_deref())?;
        to.set_item("damage", status.total.damage.as_deref())?;
        set_figures(&to, &status.total)?;
        for (name, stats) in &status.protocols {
            let protocol = PyDict::new(py);
            set_figures(&protocol, stats)?;
            to.set_item(*name, protocol)?;
        }
        Ok(to)
    }

    fn create_topic(&self, py: Python<'_>, name: &str, partitions: u32) -> PyResult<()> {
        self.ask(py, |broker| broker.create_topic(name, partitions))
    }

    fn grow_topic(&self, py: Python<'_>, name: &str, partitions: u32) -> PyResult<()> {
        self.ask(py, |broker| broker.grow_topic(name, partitions))
    }

    fn delete_topic(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.ask(py, |broker| broker.delete_topic(name))
    }

    fn terminate_topic(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.ask(py, |broker| broker.terminate_topic(name))
    }

    fn topics(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.ask(py, native::Broker::topics)?.into_iter().map(|(name, _)| name).collect())
    }

    fn topic_stats<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.ask(py, |broker| broker.topic_stats(name))?;
        let to = PyDict::new(py);
        to.set_item("name", stats.name)?;
        to.set_item("partitions", stats.partitions)?;
        to.set_item("terminated", stats.terminated)?;
        to.set_item("entries", stats.entries)?;
        to.set_item("messages_in", stats.messages_in)?;
        to.set_item("producers", stats.producers)?;
        let subscriptions = PyList::empty(py);
        for subscription in stats.subscriptions {
            let one = PyDict::new(py);
            one.set_item("topic", subscription.topic)?;
            one.set_item("name", subscription.name)?;
            one.set_item("type", subscription.kind)?;
            one.set_item("durable", subscription.durable)?;
            one.set_item("owner", subscription.owner)?;
            one.set_item("backlog", subscription.backlog)?;
            one.set_item("delayed", subscription.delayed)?;
            one.set_item("replaying", subscription.replaying)?;
            one.set_item("dropped", subscription.dropped)?;
            one.set_item("properties", std::collections::BTreeMap::from_iter(subscription.properties))?;
            let consumers = PyList::empty(py);
            for consumer in subscription.consumers {
                let each = PyDict::new(py);
                each.set_item("name", consumer.name)?;
                each.set_item("address", consumer.address)?;
                each.set_item("permits", consumer.permits)?;
                each.set_item("unacked", consumer.unacked)?;
                each.set_item("delivered", consumer.delivered)?;
                each.set_item("active", consumer.active)?;
                consumers.append(each)?;
            }
            one.set_item("consumers", consumers)?;
            subscriptions.append(one)?;
        }
        to.set_item("subscriptions", subscriptions)?;
        Ok(to)
    }
}

/// The figures that the whole broker and each of its protocols have.
fn set_figures(to: &Bound<'_, PyDict>, stats: &native::ProtocolStats) -> PyResult<()> {
    to.set_item("connections", stats.connections)?;
    to.set_item("connections_refused", stats.connections_refused)?;
    to.set_item("sessions", stats.sessions)?;
    to.set_item("topics", stats.topics)?;
    to.set_item("subscriptions", stats.subscriptions)?;
    to.set_item("producers", stats.producers)?;
    to.set_item("consumers", stats.consumers)?;
    to.set_item("retained", stats.retained)?;
    to.set_item("messages_in", stats.messages_in)?;
    to.set_item("messages_out", stats.messages_out)?;
    to.set_item("messages_dropped", stats.messages_dropped)?;
    to.set_item("messages_redelivered", stats.messages_redelivered)?;
    to.set_item("duplicates", stats.duplicates)?;
    to.set_item("denied", stats.denied)?;
    to.set_item("bytes_in", stats.bytes_in)?;
    to.set_item("bytes_out", stats.bytes_out)
}

fn broker_options(options: &Bound<'_, PyDict>) -> PyResult<native::Options> {
    let fields = Fields(options);
    let mut to = native::Options { data: fields.text("data")?.map(Into::into), ..native::Options::default() };
    to.read(&fields)?;
    to.listeners = listeners(&fields)?;
    to.acl = file(&fields, ACL_FILE)?;
    to.pulsar.read(&fields)?;
    to.mqtt.passwords = file(&fields, "mqtt_password_file")?;
    to.mqtt.limits.read(&fields)?;
    if let Some(seconds) = fields.get::<f64>("mqtt_max_session_expiry")? {
        // u32::MAX means forever, so a finite interval stays below it.
        to.mqtt.limits.max_session_expiry = seconds.clamp(0.0, f64::from(u32::MAX - 1)) as u32;
    }
    to.tubemq.users = file(&fields, "tubemq_user_file")?;
    to.tubemq.read(&fields)?;
    Ok(to)
}

/// The listeners, each a dict that the Python side has completed.
fn listeners(fields: &Fields<'_, '_>) -> PyResult<Vec<native::Listener>> {
    let Some(all) = fields.raw("listeners")? else { return Ok(Vec::new()) };
    let listener = |one: Bound<'_, PyAny>| {
        let one = Fields(one.cast::<PyDict>()?);
        let address = match one.text("unix")? {
            Some(path) => native::Address::Unix {
                path: path.into(),
                mode: one.raw("mode")?.map_or(Ok(0o600), |mode| mode.extract())?,
            },
            None => native::Address::Tcp {
                host: one.text("host")?.unwrap_or_default(),
                port: one.raw("port")?.map_or(Ok(0), |port| port.extract())?,
            },
        };
        let tls = match (one.bytes("tls_cert")?, one.bytes("tls_key")?) {
            (Some(certificate), Some(key)) => Some(native::ServerTls {
                certificate,
                key,
                client_ca: one.bytes("tls_client_ca")?,
                files: files(&one, "tls_client_ca")?,
            }),
            _ => None,
        };
        Ok(native::Listener {
            protocol: one.text("protocol")?.unwrap_or_default(),
            address,
            websocket: one.is_set("websocket")?,
            tls,
            anonymous: one.is_set("anonymous")?,
            advertised_host: one.text("advertised_host")?,
        })
    };
    all.try_iter()?.map(|one| listener(one?)).collect()
}

/// The contents of the file that an option names.
fn file(fields: &Fields<'_, '_>, name: &str) -> PyResult<Option<String>> {
    let Some(path) = fields.text(name)? else { return Ok(None) };
    py_result(fields.0.py(), read_text(name, &path)).map(Some)
}

fn read_text(name: &str, path: &str) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|error| Error::new(ErrorKind::InvalidArgument, format!("{name} {path:?}: {error}")))
}
