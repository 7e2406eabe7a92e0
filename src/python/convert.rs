//! Python values to plain data, and errors to exceptions.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use pyo3::buffer::PyBuffer;
use pyo3::create_exception;
use pyo3::exceptions::{
    PyAttributeError, PyException, PyOverflowError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyString, PyType};

use crate::exit::Call;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::options::Source;
use forebay_base::sync::Mutex;
use forebay_client::credentials::{Secret, SecretSupplier};
use forebay_net::tls::{TlsFiles, TlsOptions, fingerprint};

create_exception!(
    forebay._engine,
    EngineError,
    PyException,
    "An error of the engine: code, message, topic, whether a retry may help, the broker's own text."
);

/// A function of the Python package that the engine calls.
type Factory = Mutex<Option<Py<PyAny>>>;

/// Makes the exception for an engine error.
static ERROR_FACTORY: Factory = Mutex::leaf(None);

/// Makes the exception for an attribute that a class does not have.
static MISSING_FACTORY: Factory = Mutex::leaf(None);

/// Reads a duration in seconds; `None` is no limit.
static SECONDS_PARSER: Factory = Mutex::leaf(None);

fn registered(py: Python<'_>, factory: &Factory) -> Option<Py<PyAny>> {
    factory.lock().as_ref().map(|factory| factory.clone_ref(py))
}

/// Registers the function that makes an exception from `(code, message, topic, retriable,
/// broker_text)`.
#[pyfunction]
pub(super) fn set_error_factory(factory: Py<PyAny>) {
    let old = ERROR_FACTORY.lock().replace(factory);
    drop(old);
}

/// Registers the function that makes an exception from `(class_name, attribute)`.
#[pyfunction]
pub(super) fn set_missing_factory(factory: Py<PyAny>) {
    let old = MISSING_FACTORY.lock().replace(factory);
    drop(old);
}

/// Registers the function that turns what users give as a duration into seconds.
#[pyfunction]
pub(super) fn set_seconds_parser(parser: Py<PyAny>) {
    let old = SECONDS_PARSER.lock().replace(parser);
    drop(old);
}

/// A timeout in seconds; `None` is no limit. For methods that are called for each message: plain
/// numbers, the usual ones, do not call Python.
pub(super) fn timeout(given: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    const LONGEST: f64 = 1e9;
    if given.is_none() {
        return Ok(None);
    }
    let plain = if let Ok(number) = given.cast_exact::<PyFloat>() {
        Some(number.value())
    } else if given.is_exact_instance_of::<PyInt>() {
        // Not as a float, which would make a Python float on the way.
        given.extract::<u32>().ok().map(f64::from)
    } else {
        None
    };
    if let Some(seconds) = plain.filter(|seconds| (0.0..=LONGEST).contains(seconds)) {
        return Ok(Some(seconds));
    }
    match registered(given.py(), &SECONDS_PARSER) {
        Some(parser) => parser.bind(given.py()).call1((given,))?.extract(),
        None => given.extract().map(Some),
    }
}

/// The exception for an attribute that `class` does not have. Private names are looked up by copy,
/// pickle and others that expect no more than a plain AttributeError.
pub(super) fn missing(py: Python<'_>, class: &str, attribute: &str) -> PyErr {
    let factory = if attribute.starts_with('_') { None } else { registered(py, &MISSING_FACTORY) };
    match factory {
        None => PyAttributeError::new_err(format!("{class:?} object has no attribute {attribute:?}")),
        Some(factory) => match factory.call1(py, (class, attribute)) {
            Ok(exception) => PyErr::from_value(exception.into_bound(py)),
            Err(error) => error,
        },
    }
}

/// The exception for an object that cannot be acknowledged.
pub(super) fn wrong_target(object: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    let class = object.get_type();
    let text = format!("expected {expected}, not {class}");
    // Messages and ids of other protocols are refused as unsupported, as are verbs that a protocol
    // lacks.
    if class.module().is_ok_and(|module| module == "forebay._engine") {
        return raise(object.py(), &Error::new(ErrorKind::Unsupported, text));
    }
    PyTypeError::new_err(text)
}

/// The exception for a receipt of another protocol, which no producer returns.
pub(super) fn foreign_receipt() -> PyErr {
    PyRuntimeError::new_err("the receipt is of another protocol than its producer: please report this")
}

/// The exception for an error.
pub(super) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let factory = registered(py, &ERROR_FACTORY);
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

/// The name of an object's type, or `None`.
pub(super) fn type_name(value: &Bound<'_, PyAny>) -> String {
    if value.is_none() {
        return "None".into();
    }
    let class = value.get_type();
    class.name().map_or_else(|_| class.to_string(), |name| name.to_string())
}

/// The exception for a value of the wrong type, with the name of its argument.
pub(super) fn of_argument(py: Python<'_>, name: impl Display, error: PyErr) -> PyErr {
    let kind = error.get_type(py);
    if kind.is(py.get_type::<PyTypeError>()) || kind.is(py.get_type::<PyOverflowError>()) {
        return PyErr::from_type(kind, format!("{name}: {}", error.value(py)));
    }
    error
}

/// The value of an argument, or `default` without one.
pub(super) fn argument<'a, 'py, T>(
    py: Python<'py>,
    name: &str,
    given: Option<&'a Bound<'py, PyAny>>,
    default: T,
) -> PyResult<T>
where
    T: FromPyObject<'a, 'py, Error: Into<PyErr>>,
{
    match given {
        None => Ok(default),
        Some(given) => given.extract().map_err(|error: T::Error| of_argument(py, name, error.into())),
    }
}

/// A number of messages, at least 1.
pub(super) fn count(name: &str, given: &Bound<'_, PyAny>) -> PyResult<usize> {
    let py = given.py();
    match given.extract::<usize>() {
        Ok(0) => Err(PyValueError::new_err(format!("{name} must be at least 1"))),
        Ok(count) => Ok(count),
        Err(error) if error.is_instance_of::<PyOverflowError>(py) && given.lt(0)? => {
            Err(PyValueError::new_err(format!("{name} must be at least 1")))
        }
        Err(error) => Err(of_argument(py, name, error)),
    }
}

/// The objects of a sequence.
pub(super) fn each<'py>(name: &str, given: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let one = |_| PyTypeError::new_err(format!("{name} is a sequence, not {}", type_name(given)));
    given.try_iter().map_err(one)?.collect()
}

/// The bytes of a payload: borrowed from `bytes`, copied from any other buffer, because that may
/// change meanwhile.
pub(super) enum Payload<'a> {
    Borrowed(&'a [u8]),
    Owned(Vec<u8>),
}

impl<'a> Payload<'a> {
    pub(super) fn of(value: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        Self::named(value, "a payload")
    }

    /// The bytes of `what`.
    fn named(value: &'a Bound<'_, PyAny>, what: &str) -> PyResult<Self> {
        if let Ok(bytes) = value.cast::<PyBytes>() {
            return Ok(Self::Borrowed(bytes.as_bytes()));
        }
        if value.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err(format!(
                "{what} is bytes-like, not str: encode it, for example with .encode()"
            )));
        }
        let buffer = PyBuffer::<u8>::get(value)
            .map_err(|_| PyTypeError::new_err(format!("{what} is bytes-like, not {}", type_name(value))))?;
        Ok(Self::Owned(buffer.to_vec(value.py())?))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// An event time, in milliseconds since 1970.
pub(super) struct EventTime(pub(super) u64);

impl<'py> FromPyObject<'_, 'py> for EventTime {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        value.extract().map(Self).map_err(|error: PyErr| {
            if !error.is_instance_of::<PyOverflowError>(value.py()) {
                return error;
            }
            let text = format!(
                "event_time is {}: use milliseconds since 1970, neither negative nor beyond 64 bits, and leave it out \
                 for earlier events",
                *value
            );
            raise(value.py(), &Error::new(ErrorKind::InvalidArgument, text))
        })
    }
}

/// The fields of a dictionary of options, whose names the Python side has checked.
pub(super) struct Fields<'a, 'py>(pub(super) &'a Bound<'py, PyDict>);

impl<'py> Fields<'_, 'py> {
    pub(super) fn raw(&self, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.0.get_item(name)?.filter(|value| !value.is_none()))
    }

    pub(super) fn get<T>(&self, name: &str) -> PyResult<Option<T>>
    where
        T: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
    {
        let named = |error: PyErr| of_argument(self.0.py(), name, error);
        self.raw(name)?.map(|value| value.extract().map_err(Into::into)).transpose().map_err(named)
    }

    /// Whether an option is given as true.
    pub(super) fn is_set(&self, name: &str) -> PyResult<bool> {
        Ok(self.flag(name)?.unwrap_or_default())
    }
}

impl Source for Fields<'_, '_> {
    type Error = PyErr;

    fn invalid(&self, name: &str, text: String) -> PyErr {
        raise(self.0.py(), &Error::new(ErrorKind::InvalidArgument, format!("{name} is {text}")))
    }

    fn flag(&self, name: &str) -> PyResult<Option<bool>> {
        self.get(name)
    }

    fn whole(&self, name: &str) -> PyResult<Option<i64>> {
        self.get(name)
    }

    fn duration(&self, name: &str) -> PyResult<Option<Duration>> {
        Ok(self.get(name)?.map(seconds))
    }

    fn text(&self, name: &str) -> PyResult<Option<String>> {
        self.get(name)
    }

    fn bytes(&self, name: &str) -> PyResult<Option<Vec<u8>>> {
        let Some(value) = self.raw(name)? else { return Ok(None) };
        Ok(Some(Payload::named(&value, name)?.bytes().to_vec()))
    }

    fn pairs(&self, name: &str) -> PyResult<Option<Vec<(String, String)>>> {
        let Some(value) = self.raw(name)? else { return Ok(None) };
        value
            .cast::<PyDict>()?
            .iter()
            .map(|(k, v)| Ok((k.extract()?, v.extract()?)))
            .collect::<PyResult<_>>()
            .map(Some)
    }
}

/// Seconds as a duration, clamped to the range from 0 to 30 years.
pub(super) fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 1e9))
}

/// The option `threads`: number of engine threads.
pub(super) fn threads(options: &Bound<'_, PyDict>) -> PyResult<usize> {
    Ok(Fields(options).get("threads")?.unwrap_or(1))
}

/// A secret: the text or the bytes themselves, or a function that returns them.
pub(super) fn secret(fields: &Fields<'_, '_>, name: &str) -> PyResult<Option<Secret>> {
    Ok(match fields.raw(name)? {
        None => None,
        Some(value) if value.is_callable() => {
            let is_told = value.hasattr("refused")?;
            Some(Secret::Supplier(supplier(value.unbind()), is_told))
        }
        Some(value) => match value.cast::<PyBytes>() {
            Ok(bytes) => Some(Secret::Bytes(bytes.as_bytes().to_vec())),
            Err(_) => Some(Secret::Text(value.extract()?)),
        },
    })
}

/// The TLS options, which are the same for every protocol.
pub(super) fn tls(fields: &Fields<'_, '_>) -> PyResult<TlsOptions> {
    let pins: Vec<String> = fields.get("tls_pin")?.unwrap_or_default();
    Ok(TlsOptions {
        ca: fields.bytes("tls_ca")?,
        certificate: fields.bytes("tls_cert")?,
        key: fields.bytes("tls_key")?,
        files: files(fields, "tls_ca")?,
        pins: pins.iter().filter_map(|pin| fingerprint(pin)).collect(),
        skip_hostname_check: fields.is_set("tls_skip_hostname_check")?,
        server_name: fields.text("tls_server_name")?,
    })
}

/// The files of the options of TLS, with that of the authorities in `ca`.
pub(super) fn files(fields: &Fields<'_, '_>, ca: &str) -> PyResult<TlsFiles> {
    Ok(TlsFiles {
        ca: file(fields, ca)?,
        certificate: file(fields, "tls_cert")?,
        key: file(fields, "tls_key")?,
    })
}

/// The file that the bytes of an option were read from, which its parser notes.
fn file(fields: &Fields<'_, '_>, name: &str) -> PyResult<Option<PathBuf>> {
    let path = fields.raw(name)?.and_then(|value| value.getattr("path").ok());
    path.map(|path| path.extract()).transpose()
}

/// Calls `callable`, or its method `refused`, if it has one, on a thread of its own.
fn supplier(callable: Py<PyAny>) -> SecretSupplier {
    SecretSupplier::new(move |refused| {
        let failed = |why: String| Error::new(ErrorKind::Authentication, why);
        let call = Call::begin().ok_or_else(|| failed("the interpreter is shutting down".into()))?;
        let supplied = Python::try_attach(|py| {
            let callable = callable.bind(py);
            match &refused {
                None => supplied_bytes(&callable.call0()?),
                Some(secret) => {
                    if let Some(tell) = callable.getattr_opt("refused")? {
                        tell.call1((String::from_utf8_lossy(secret),))?;
                    }
                    Ok(Vec::new())
                }
            }
        })
        .unwrap_or_else(|| Err(PyTypeError::new_err("the interpreter is shutting down")))
        .map_err(|error| {
            Python::try_attach(|py| failed(told(py, &error))).unwrap_or_else(|| failed("at exit".into()))
        });
        drop(call);
        supplied
    })
}

/// The text or bytes of a function that supplies a secret.
fn supplied_bytes(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    match value.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes().to_vec()),
        Err(_) => match value.extract::<String>() {
            Ok(text) => Ok(text.into_bytes()),
            Err(_) => {
                let text = format!("it returned {}, not text or bytes", name_of(&value.get_type()));
                Err(raise(value.py(), &Error::new(ErrorKind::Authentication, text)))
            }
        },
    }
}

/// The text of an error of this package, and of others the type only: their text may hold the
/// secret.
pub(super) fn told(py: Python<'_>, error: &PyErr) -> String {
    let class = error.get_type(py);
    let is_ours = class.module().is_ok_and(|module| module == "forebay.errors");
    if is_ours { error.value(py).to_string() } else { name_of(&class) }
}

/// The name of a type.
pub(super) fn name_of(class: &Bound<'_, PyType>) -> String {
    class.name().map_or_else(|_| class.to_string(), |name| name.to_string())
}

/// Names and values as the engine takes them.
pub(super) fn borrowed(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
    pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// An engine result as a Python one.
pub(super) fn py_result<T>(py: Python<'_>, result: Result<T>) -> PyResult<T> {
    result.map_err(|error| raise(py, &error))
}
