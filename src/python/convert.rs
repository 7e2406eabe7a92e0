//! Python values to options and back, errors to exceptions.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::buffer::PyBuffer;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::client::credentials::{Secret, SecretSupplier};
use crate::client::pulsar::options::{AccessMode, ClientOptions, ConsumerOptions, ProducerOptions};
use crate::compression::Compression;
use crate::error::{Error, ErrorKind, Result};
use crate::net::tls::TlsOptions;
use crate::pulsar::pb::command_subscribe::SubType;
use crate::pulsar::topic::{HashingScheme, Routing};
use crate::python::message::MessageId;

create_exception!(
    penstock._engine,
    EngineError,
    PyException,
    "An error of the engine: code, message, topic, whether it may be retried, the broker's own words."
);

/// Makes the exception of the Python package from an engine error.
static FACTORY: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

/// Registers what turns `(code, message, topic, retriable, broker_text)` into an exception.
#[pyfunction]
pub(super) fn set_error_factory(factory: Py<PyAny>) {
    *FACTORY.lock().unwrap_or_else(PoisonError::into_inner) = Some(factory);
}

/// The exception for an error.
pub(super) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let factory = FACTORY.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|f| f.clone_ref(py));
    let fields = (error.kind().code(), error.message(), error.topic(), error.retriable(), error.peer_text());
    match factory {
        None => EngineError::new_err((
            error.kind().code(),
            error.message().to_owned(),
            error.topic().map(str::to_owned),
            error.retriable(),
            error.peer_text().map(str::to_owned),
        )),
        Some(factory) => match factory.call1(py, fields) {
            Ok(exception) => PyErr::from_value(exception.into_bound(py)),
            Err(error) => error,
        },
    }
}

/// The bytes of a payload: borrowed from `bytes`, copied from anything else with a buffer, for that may
/// change meanwhile.
pub(super) enum Payload<'a> {
    Borrowed(&'a [u8]),
    Owned(Vec<u8>),
}

impl<'a> Payload<'a> {
    pub(super) fn of(value: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = value.cast::<PyBytes>() {
            return Ok(Self::Borrowed(bytes.as_bytes()));
        }
        if value.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("a payload is bytes-like, not str: encode it first"));
        }
        let buffer = PyBuffer::<u8>::get(value).map_err(|_| {
            PyTypeError::new_err(format!("a payload is bytes-like, not {}", value.get_type()))
        })?;
        Ok(Self::Owned(buffer.to_vec(value.py())?))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// When something happened, in milliseconds since 1970.
pub(super) struct EventTime(pub(super) u64);

impl<'py> FromPyObject<'_, 'py> for EventTime {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        value.extract().map(Self).map_err(|error: PyErr| {
            if !error.is_instance_of::<PyOverflowError>(value.py()) {
                return error;
            }
            let text = format!(
                "event_time is {}: it is milliseconds since 1970, neither negative nor beyond 64 bits; leave it out \
                 for what happened earlier",
                *value
            );
            raise(value.py(), &Error::new(ErrorKind::InvalidArgument, text))
        })
    }
}

/// Fields of an option dictionary, by the names the Python side has checked.
pub(super) struct Fields<'a, 'py>(pub(super) &'a Bound<'py, PyDict>);

impl<'py> Fields<'_, 'py> {
    pub(super) fn raw(&self, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.0.get_item(name)?.filter(|value| !value.is_none()))
    }

    pub(super) fn text(&self, name: &str) -> PyResult<Option<String>> {
        self.raw(name)?.map(|value| value.extract()).transpose()
    }

    pub(super) fn flag(&self, name: &str, into: &mut bool) -> PyResult<()> {
        if let Some(value) = self.raw(name)? {
            *into = value.extract()?;
        }
        Ok(())
    }

    pub(super) fn size(&self, name: &str, into: &mut usize) -> PyResult<()> {
        if let Some(value) = self.raw(name)? {
            *into = value.extract()?;
        }
        Ok(())
    }

    pub(super) fn seconds(&self, name: &str, into: &mut Duration) -> PyResult<()> {
        if let Some(value) = self.raw(name)? {
            *into = seconds(value.extract()?);
        }
        Ok(())
    }

    pub(super) fn bytes(&self, name: &str) -> PyResult<Option<Vec<u8>>> {
        self.raw(name)?.map(|value| value.extract()).transpose()
    }

    pub(super) fn pairs(&self, name: &str) -> PyResult<Vec<(String, String)>> {
        match self.raw(name)? {
            None => Ok(Vec::new()),
            Some(value) => {
                value.cast::<PyDict>()?.iter().map(|(k, v)| Ok((k.extract()?, v.extract()?))).collect()
            }
        }
    }

    /// One of several words.
    pub(super) fn word<T: Copy>(&self, name: &str, words: &[(&str, T)], into: &mut T) -> PyResult<()> {
        let Some(text) = self.text(name)? else { return Ok(()) };
        match words.iter().find(|(word, _)| *word == text) {
            Some((_, value)) => {
                *into = *value;
                Ok(())
            }
            None => {
                let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
                let error = Error::new(
                    ErrorKind::InvalidArgument,
                    format!("{name} is {text:?}; it may be {}", known.join(", ")),
                );
                Err(raise(self.0.py(), &error))
            }
        }
    }
}

/// Seconds as Python gives them. Negative and absurd ones are cut.
pub(super) fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 1e9))
}

/// Number of engine threads that a client asks for.
pub(super) fn threads(options: &Bound<'_, PyDict>) -> PyResult<usize> {
    let mut threads = 1;
    Fields(options).size("threads", &mut threads)?;
    Ok(threads)
}

/// Options of a Pulsar client.
pub(super) fn client_options(url: String, options: &Bound<'_, PyDict>) -> PyResult<ClientOptions> {
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
    to.tls = tls(&fields)?;
    Ok(to)
}

/// A secret: the text itself, or what gives it.
pub(super) fn secret(fields: &Fields<'_, '_>, name: &str) -> PyResult<Option<Secret>> {
    Ok(match fields.raw(name)? {
        None => None,
        Some(value) if value.is_callable() => Some(Secret::Supplier(supplier(value.unbind()))),
        Some(value) => Some(Secret::Text(value.extract()?)),
    })
}

/// TLS options of any client.
pub(super) fn tls(fields: &Fields<'_, '_>) -> PyResult<TlsOptions> {
    let mut tls = TlsOptions {
        ca: fields.bytes("tls_ca")?,
        certificate: fields.bytes("tls_cert")?,
        key: fields.bytes("tls_key")?,
        skip_hostname_check: false,
    };
    fields.flag("tls_skip_hostname_check", &mut tls.skip_hostname_check)?;
    Ok(tls)
}

/// Calls `callable` on whatever thread asks; that thread may wait.
fn supplier(callable: Py<PyAny>) -> SecretSupplier {
    Arc::new(move || {
        let failed = |why: String| {
            Error::new(ErrorKind::Authentication, format!("the supplier of a secret failed: {why}"))
        };
        Python::try_attach(|py| callable.call0(py).and_then(|token| token.extract::<String>(py)))
            .unwrap_or_else(|| Err(PyTypeError::new_err("the interpreter is ending")))
            // The exception's type says enough; its text may hold the secret.
            .map_err(|error| {
                Python::try_attach(|py| failed(error.get_type(py).to_string()))
                    .unwrap_or_else(|| failed("at exit".into()))
            })
    })
}

/// Options of a producer.
pub(super) fn producer_options(options: &Bound<'_, PyDict>) -> PyResult<ProducerOptions> {
    let fields = Fields(options);
    let mut to = ProducerOptions { name: fields.text("name")?, ..ProducerOptions::default() };
    fields.flag("batching", &mut to.batching)?;
    fields.size("batch_max_messages", &mut to.batch_max_messages)?;
    fields.size("batch_max_bytes", &mut to.batch_max_bytes)?;
    fields.seconds("batching_delay", &mut to.batching_delay)?;
    fields.flag("key_based_batching", &mut to.key_based_batching)?;
    if let Some(name) = fields.text("compression")? {
        to.compression = Compression::from_name(&name).ok_or_else(|| {
            let text = format!("compression is {name:?}; it may be none, lz4, zlib, zstd or snappy");
            raise(options.py(), &Error::new(ErrorKind::InvalidArgument, text))
        })?;
    }
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
    fields.word(
        "routing",
        &[("round_robin", Routing::RoundRobin), ("single", Routing::Single)],
        &mut to.routing,
    )?;
    to.initial_sequence_id = fields.raw("initial_sequence_id")?.map(|value| value.extract()).transpose()?;
    let modes = [
        ("shared", AccessMode::Shared),
        ("exclusive", AccessMode::Exclusive),
        ("wait_for_exclusive", AccessMode::WaitForExclusive),
        ("exclusive_with_fencing", AccessMode::ExclusiveWithFencing),
    ];
    fields.word("access_mode", &modes, &mut to.access_mode)?;
    fields.flag("chunking", &mut to.chunking)?;
    to.properties = fields.pairs("properties")?;
    Ok(to)
}

/// Options of a consumer.
pub(super) fn consumer_options(options: &Bound<'_, PyDict>) -> PyResult<ConsumerOptions> {
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
        use crate::pulsar::MessageId as Id;
        match position.cast::<MessageId>() {
            Ok(id) => to.position = id.get().0,
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
    fields.flag("batch_index_ack", &mut to.batch_index_ack)?;
    fields.seconds("ack_group_time", &mut to.ack_group_time)?;
    fields.seconds("nack_delay", &mut to.nack_delay)?;
    fields.flag("read_compacted", &mut to.read_compacted)?;
    if let Some(value) = fields.raw("priority")? {
        to.priority = value.extract()?;
    }
    to.properties = fields.pairs("properties")?;
    to.subscription_properties = fields.pairs("subscription_properties")?;
    Ok(to)
}

/// An engine result as a Python one.
pub(super) fn py_result<T>(py: Python<'_>, result: Result<T>) -> PyResult<T> {
    result.map_err(|error| raise(py, &error))
}
