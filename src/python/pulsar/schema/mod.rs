//! Schemas of values: between Python objects and payloads, without anything in between.
//!
//! * `encode`: Python objects to the Avro encoding
//! * `decode`: the Avro encoding to Python objects
//! * `json`: the same for JSON
//! * `frame`: the rows of frames, which never become Python objects
//! * `pair`: pairs of a key and a value
//! * `columns`: the columns of frames, the same
//!
//! A schema is made once, by the Python side. A consumer resolves it against the schema of each
//! version that its messages were written with (`Codec::resolve`), which runs on the engine and
//! makes no Python objects.

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyModule, PyString};

use crate::convert::{Payload, py_result, raise};
use forebay_avro::{Kind, NodeId, Plan, Schema as Avro};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::random::HashMap;
use forebay_base::sync::Mutex;
use forebay_client::pulsar::options::SchemaOptions;
use forebay_pulsar::Message;
use forebay_pulsar::schema::{Codec, Resolved, SchemaInfo, Type};

pub(super) mod columns;
pub(super) mod dataframe;
mod decode;
mod encode;
mod json;
pub(super) mod pair;

/// A schema, as `forebay.pulsar.Schema` uses it.
#[pyclass(frozen, module = "forebay._engine")]
pub(crate) struct PulsarSchema(pub(super) SchemaOptions);

/// Form of payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Bytes,
    Text,
    Boolean,
    /// An integer of this many bytes.
    Integer(usize),
    Float,
    Double,
    /// Dates and times, by the name of their type.
    Temporal(&'static str),
    Json,
    Avro,
    /// A message of a class that protobuf has generated.
    Message,
    /// A key and a value.
    Pair,
    /// As the topic says.
    Auto,
    /// Bytes that must fit the schema of the topic.
    Checked,
    /// In a way that is not supported.
    Other(Type),
}

impl Encoding {
    fn of(kind: Type) -> Self {
        match kind {
            Type::None => Self::Bytes,
            Type::String => Self::Text,
            Type::Bool => Self::Boolean,
            Type::Int8 => Self::Integer(1),
            Type::Int16 => Self::Integer(2),
            Type::Int32 => Self::Integer(4),
            Type::Int64 => Self::Integer(8),
            Type::Float => Self::Float,
            Type::Double => Self::Double,
            Type::Date => Self::Temporal("date"),
            Type::Time => Self::Temporal("time"),
            Type::Timestamp => Self::Temporal("timestamp"),
            Type::Instant => Self::Temporal("instant"),
            Type::LocalDate => Self::Temporal("local_date"),
            Type::LocalTime => Self::Temporal("local_time"),
            Type::LocalDateTime => Self::Temporal("local_date_time"),
            Type::Json => Self::Json,
            Type::Avro => Self::Avro,
            Type::KeyValue => Self::Pair,
            Type::AutoConsume => Self::Auto,
            other => Self::Other(other),
        }
    }
}

/// Python classes of the named types of a definition.
type Classes = HashMap<NodeId, Py<PyAny>>;

/// Names of the fields of a record, and its class.
type RecordNames = (Vec<Py<PyString>>, Option<Py<PyAny>>);

/// Names and classes of a definition as Python objects, made when they are first needed.
struct Names {
    /// Of each record: the names of its fields and its class.
    records: HashMap<NodeId, RecordNames>,
    /// Of each enum: its symbols, as members of its class if it has one.
    enums: HashMap<NodeId, Vec<Py<PyAny>>>,
}

impl Names {
    fn new(py: Python<'_>, avro: &Avro, classes: &Classes) -> PyResult<Self> {
        let (mut records, mut enums) = (HashMap::default(), HashMap::default());
        for (id, _) in avro.named() {
            let class = classes.get(&id).map(|class| class.clone_ref(py));
            match &avro.node(id).kind {
                Kind::Record(record) => {
                    // Interned names may stay for good: those of a class are there anyway, those of
                    // strangers are not kept.
                    let name = |field: &forebay_avro::schema::Field| match &class {
                        Some(_) => PyString::intern(py, &field.name).unbind(),
                        None => PyString::new(py, &field.name).unbind(),
                    };
                    records.insert(id, (record.fields.iter().map(name).collect(), class));
                }
                Kind::Enum(of) => {
                    let symbol = |symbol: &String| {
                        let symbol = PyString::new(py, symbol);
                        match &class {
                            // A symbol that the class lacks stays a text.
                            Some(class) => {
                                Ok(class.bind(py).get_item(&symbol).unwrap_or(symbol.into_any()).unbind())
                            }
                            None => Ok(symbol.into_any().unbind()),
                        }
                    };
                    enums.insert(id, of.symbols.iter().map(symbol).collect::<PyResult<_>>()?);
                }
                _ => {}
            }
        }
        Ok(Self { records, enums })
    }
}

/// A definition with the classes of its types.
#[derive(Clone)]
struct Structure {
    avro: Arc<Avro>,
    classes: Arc<Classes>,
    names: Arc<PyOnceLock<Names>>,
}

impl Structure {
    fn new(avro: Arc<Avro>, classes: Arc<Classes>) -> Self {
        Self { avro, classes, names: Arc::new(PyOnceLock::new()) }
    }

    fn names<'a>(&'a self, py: Python<'_>) -> PyResult<&'a Names> {
        self.names.get_or_try_init(py, || Names::new(py, &self.avro, &self.classes))
    }
}

/// The schema of a producer or a consumer.
#[derive(Clone)]
pub(super) struct Coder {
    encoding: Encoding,
    info: Arc<SchemaInfo>,
    /// Of JSON and AVRO.
    structure: Option<Structure>,
    /// Of protobuf.
    class: Option<Arc<Py<PyAny>>>,
    /// Of KEY_VALUE.
    pair: Option<Arc<pair::Pair>>,
    /// Of a producer that takes the schema of its topic.
    check: Option<Arc<Reader>>,
}

impl std::fmt::Debug for Coder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coder").field("info", &self.info).finish_non_exhaustive()
    }
}

/// Reader of the payloads of one version.
enum Reader {
    /// A type without a definition.
    Plain(Encoding),
    /// JSON, with what it is made into, and the definition that it was written with if the reader
    /// has none of its own.
    Json(Option<Structure>, Option<Arc<Avro>>),
    /// AVRO, with the reader's structure.
    Avro(Plan, Structure),
    /// Messages of protobuf, of this class.
    Message(Arc<Py<PyAny>>),
    /// KEY_VALUE.
    Pair(Box<pair::PairReader>),
}

impl Codec for Coder {
    fn reads(&self) -> bool {
        self.encoding != Encoding::Bytes
    }

    fn resolve(&self, writer: Option<&SchemaInfo>) -> Result<Resolved> {
        Ok(Arc::new(self.reader(writer)?))
    }

    fn checking(&self, topic: &SchemaInfo) -> Result<Arc<dyn Codec>> {
        let reader = match topic.kind {
            Type::Json => {
                let avro = Arc::new(Avro::parse(&topic.data)?);
                Reader::Json(Some(Structure::new(avro, Arc::default())), None)
            }
            _ => self.reader(Some(topic))?,
        };
        let cannot = match &reader {
            Reader::Plain(Encoding::Other(_)) => Some("the program must know it"),
            Reader::Pair(pair) if pair.is_separated() => Some("payloads of its messages have no keys"),
            _ => None,
        };
        if let Some(why) = cannot {
            let text = format!(
                "schema=\"auto\" cannot check payloads by the {} schema of the topic: {why}, so give the producer the schema",
                topic.kind.as_str_name()
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let info = Arc::new(topic.clone());
        Ok(Arc::new(Self {
            encoding: Encoding::Checked,
            info,
            structure: None,
            class: None,
            pair: None,
            check: Some(Arc::new(reader)),
        }))
    }
}

impl Coder {
    fn reader(&self, writer: Option<&SchemaInfo>) -> Result<Reader> {
        Ok(match (self.encoding, writer) {
            (Encoding::Auto, None) => Reader::Plain(Encoding::Bytes),
            (Encoding::Auto, Some(writer)) => Self::reader_of(writer)?,
            (_, Some(writer)) if writer.kind != self.info.kind => {
                let text = format!(
                    "the message was written with a schema of type {:?}, and is read with one of type {:?}",
                    writer.kind, self.info.kind
                );
                return Err(Error::new(ErrorKind::IncompatibleSchema, text));
            }
            (Encoding::Avro, writer) => {
                let structure = self.structure.clone().ok_or_else(no_definition)?;
                let written = match writer {
                    Some(info) => Arc::new(Avro::parse(&info.data)?),
                    None => Arc::clone(&structure.avro),
                };
                Reader::Avro(Plan::new(written, Arc::clone(&structure.avro))?, structure)
            }
            (Encoding::Json, _) => Reader::Json(self.structure.clone(), None),
            (Encoding::Message, _) => match &self.class {
                Some(class) => Reader::Message(Arc::clone(class)),
                None => Reader::Plain(Encoding::Other(self.info.kind)),
            },
            (Encoding::Pair, writer) => match &self.pair {
                Some(pair) => Reader::Pair(Box::new(pair.reader(writer)?)),
                None => Reader::Plain(Encoding::Other(Type::KeyValue)),
            },
            (plain, _) => Reader::Plain(plain),
        })
    }

    /// The reader of a schema that the program does not know.
    fn reader_of(writer: &SchemaInfo) -> Result<Reader> {
        Ok(match Encoding::of(writer.kind) {
            Encoding::Json => {
                let avro = Avro::parse(&writer.data).ok().map(Arc::new);
                let structure = |avro: &Arc<Avro>| Structure::new(Arc::clone(avro), Arc::default());
                Reader::Json(avro.as_ref().map(structure), avro)
            }
            Encoding::Avro => {
                let avro = Arc::new(Avro::parse(&writer.data)?);
                let plan = Plan::new(Arc::clone(&avro), Arc::clone(&avro))?;
                Reader::Avro(plan, Structure::new(avro, Arc::default()))
            }
            Encoding::Pair => Reader::Pair(Box::new(pair::PairReader::of(writer)?)),
            plain => Reader::Plain(plain),
        })
    }
}

fn no_definition() -> Error {
    Error::new(ErrorKind::Schema, "the schema has no definition")
}

#[pymethods]
impl PulsarSchema {
    /// `classes` are the classes of the named types. With `raw` payloads are bytes, which the
    /// application encodes.
    #[new]
    #[pyo3(signature = (kind, name, definition, properties, classes, raw = false))]
    fn new(
        py: Python<'_>,
        kind: &str,
        name: String,
        definition: Option<&[u8]>,
        properties: Vec<(String, String)>,
        classes: Vec<(String, Py<PyAny>)>,
        raw: bool,
    ) -> PyResult<Self> {
        let kind = py_result(py, kind_of(kind))?;
        let is_protobuf = matches!(kind, Type::Protobuf | Type::ProtobufNative);
        let class = classes.first().filter(|_| is_protobuf && !raw);
        let class = class.map(|(_, class)| Arc::new(class.clone_ref(py)));
        let structure = match (kind, definition) {
            (Type::Json | Type::Avro, Some(definition)) if !raw => {
                let avro = py_result(py, Avro::parse(definition))?;
                let by_name: HashMap<_, _> = classes.into_iter().collect();
                let class = |(id, name): (NodeId, &str)| Some((id, by_name.get(name)?.clone_ref(py)));
                let classes = avro.named().filter_map(class).collect();
                Some(Structure::new(Arc::new(avro), Arc::new(classes)))
            }
            (Type::Json | Type::Avro, None) if !raw => return Err(raise(py, &no_definition())),
            _ => None,
        };
        let data = definition.map(Bytes::copy_from_slice).unwrap_or_default();
        let info = Arc::new(SchemaInfo { name, kind, data, properties });
        let encoding = match &class {
            _ if raw => Encoding::Bytes,
            Some(_) => Encoding::Message,
            None => Encoding::of(kind),
        };
        Ok(Self::of(Coder { encoding, info, structure, class, pair: None, check: None }))
    }

    /// The schema of a key and a value.
    #[staticmethod]
    fn key_value(py: Python<'_>, key: &Self, value: &Self, separated: bool) -> PyResult<Self> {
        Ok(Self::of(py_result(py, pair::coder(&*key.0.codec, &*value.0.codec, separated))?))
    }

    /// Encodes a value.
    fn encode<'py>(&self, py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let payload = payload(&*self.0.codec, value)?;
        Ok(PyBytes::new(py, payload.bytes()))
    }

    /// Decodes a payload that was written with this schema.
    fn decode<'py>(&self, py: Python<'py>, payload: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        value(py, &py_result(py, self.0.codec.resolve(None))?, payload)
    }
}

impl PulsarSchema {
    fn of(coder: Coder) -> Self {
        let info = Arc::clone(&coder.info);
        Self(SchemaOptions { info, codec: Arc::new(coder), version: Arc::new(Mutex::leaf(Bytes::new())) })
    }
}

fn kind_of(name: &str) -> Result<Type> {
    Ok(match name {
        "bytes" => Type::None,
        "string" => Type::String,
        "boolean" => Type::Bool,
        "int8" => Type::Int8,
        "int16" => Type::Int16,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "float" => Type::Float,
        "double" => Type::Double,
        "date" => Type::Date,
        "time" => Type::Time,
        "timestamp" => Type::Timestamp,
        "instant" => Type::Instant,
        "local_date" => Type::LocalDate,
        "local_time" => Type::LocalTime,
        "local_date_time" => Type::LocalDateTime,
        "json" => Type::Json,
        "avro" => Type::Avro,
        "auto" => Type::AutoConsume,
        "protobuf" => Type::Protobuf,
        "protobuf_native" => Type::ProtobufNative,
        "key_value" => Type::KeyValue,
        other => {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("unknown type of schema {other:?}")));
        }
    })
}

/// Why a value cannot be written or read: where in the value, and what is wrong; or an exception of
/// Python code.
enum Fail {
    At { path: String, text: String },
    Raised(PyErr),
}

impl From<PyErr> for Fail {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        bad(error.message())
    }
}

fn bad(text: impl std::fmt::Display) -> Fail {
    Fail::At { path: String::new(), text: text.to_string() }
}

impl Fail {
    /// Adds the part of the value that it was found in.
    fn within(self, part: impl std::fmt::Display) -> Self {
        match self {
            Self::At { path, text } => {
                let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
                Self::At { path: format!("{part}{dot}{path}"), text }
            }
            raised => raised,
        }
    }

    /// Whether a value does not fit; not an interrupt.
    fn is_of_value(&self, py: Python<'_>) -> bool {
        match self {
            Self::At { .. } => true,
            Self::Raised(error) => error.is_instance_of::<pyo3::exceptions::PyException>(py),
        }
    }

    /// The exception. `what` is what could not be done.
    fn raise(self, py: Python<'_>, what: &str) -> PyErr {
        match self {
            Self::At { path, text } => {
                let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
                raise(py, &Error::new(ErrorKind::Schema, format!("{what}: {path}{text}")))
            }
            // KeyboardInterrupt and the like pass.
            Self::Raised(error) if !error.is_instance_of::<pyo3::exceptions::PyException>(py) => error,
            Self::Raised(error) => {
                let outer = raise(py, &Error::new(ErrorKind::Schema, format!("{what}: {error}")));
                outer.set_cause(py, Some(error));
                outer
            }
        }
    }
}

/// Name of a value's type.
fn type_of(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "object".into(), |name| name.to_string())
}

fn wants(what: &str, value: &Bound<'_, PyAny>) -> Fail {
    bad(format_args!("expected {what}, got {}", type_of(value)))
}

/// The helpers for values that are easier to handle in Python.
fn helpers(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    PyModule::import(py, intern!(py, "forebay.pulsar._logical"))
}

fn integer(value: &Bound<'_, PyAny>, bytes: usize) -> std::result::Result<i64, Fail> {
    let what = || format!("an integer of {} bits", bytes * 8);
    if value.is_instance_of::<PyBool>()
        || value.is_instance_of::<PyFloat>()
        || value.is_instance_of::<PyString>()
    {
        return Err(wants(&what(), value));
    }
    let number: i64 = match value.extract() {
        Ok(number) => number,
        Err(_) if value.is_instance_of::<PyInt>() => {
            return Err(bad(format_args!("expected {}, got one that does not fit", what())));
        }
        Err(_) => return Err(wants(&what(), value)),
    };
    let shift = 64 - 8 * bytes as u32;
    if (number << shift) >> shift != number {
        return Err(bad(format_args!("expected {}, got {number}", what())));
    }
    Ok(number)
}

fn float(value: &Bound<'_, PyAny>) -> std::result::Result<f64, Fail> {
    if value.is_instance_of::<PyBool>() || value.is_instance_of::<PyString>() {
        return Err(wants("a float", value));
    }
    value.extract().map_err(|_| wants("a float", value))
}

/// A float of 32 bits. Digits are lost, as in other clients; a number does not become an infinity.
fn float32(value: &Bound<'_, PyAny>) -> std::result::Result<f32, Fail> {
    let double = float(value)?;
    let single = double as f32;
    if double.is_finite() && single.is_infinite() {
        return Err(bad(format_args!("expected a float of 32 bits, got {double:e}, which does not fit")));
    }
    Ok(single)
}

fn text<'a>(value: &'a Bound<'_, PyAny>) -> std::result::Result<std::borrow::Cow<'a, str>, Fail> {
    let string = value.cast::<PyString>().map_err(|_| wants("str", value))?;
    string.to_cow().map_err(|_| bad("the str has surrogates, which UTF-8 cannot hold"))
}

/// Whether a codec is that of a schema.
pub(super) fn is_of(codec: &dyn Codec, info: &Arc<SchemaInfo>) -> bool {
    let coder = (codec as &dyn Any).downcast_ref::<Coder>();
    coder.is_some_and(|coder| Arc::ptr_eq(&coder.info, info) || coder.info == *info)
}

/// The payload of a value.
pub(super) fn payload<'a>(codec: &dyn Codec, value: &'a Bound<'_, PyAny>) -> PyResult<Payload<'a>> {
    let coder = (codec as &dyn Any).downcast_ref::<Coder>();
    let py = value.py();
    let Some(coder) = coder else { return Payload::of(value) };
    if coder.encoding == Encoding::Bytes {
        return Payload::of(value);
    }
    if let Some(reader) = &coder.check {
        let payload = Payload::of(value)?;
        let what = "the payload does not fit the schema of the topic, and was not sent";
        return match reader.decode(py, payload.bytes()) {
            Ok(_) => Ok(payload),
            Err(fail) => Err(fail.raise(py, what)),
        };
    }
    let encoded = coder.encode(value);
    encoded
        .map(Payload::Owned)
        .map_err(|fail| fail.raise(py, "the value does not fit the schema, and was not sent"))
}

impl Coder {
    fn encode(&self, value: &Bound<'_, PyAny>) -> std::result::Result<Vec<u8>, Fail> {
        let py = value.py();
        match self.encoding {
            Encoding::Text => Ok(text(value)?.as_bytes().to_vec()),
            Encoding::Boolean => {
                let flag = value.cast::<PyBool>().map_err(|_| wants("bool", value))?;
                Ok(vec![u8::from(flag.is_true())])
            }
            Encoding::Integer(size) => {
                let number = integer(value, size)?.to_be_bytes();
                Ok(number[8 - size..].to_vec())
            }
            Encoding::Float => Ok(float32(value)?.to_be_bytes().to_vec()),
            Encoding::Double => Ok(float(value)?.to_be_bytes().to_vec()),
            Encoding::Temporal(name) => {
                let bytes = helpers(py)?.call_method1(intern!(py, "encode_primitive"), (name, value))?;
                Ok(bytes.extract()?)
            }
            Encoding::Json => {
                let structure = self.structure.as_ref().ok_or_else(no_definition)?;
                json::encode(structure, value)
            }
            Encoding::Avro => {
                let structure = self.structure.as_ref().ok_or_else(no_definition)?;
                encode::encode(structure, value)
            }
            Encoding::Bytes => Ok(Payload::of(value)?.bytes().to_vec()),
            Encoding::Message => {
                let class = self.class.as_ref().ok_or_else(no_definition)?.bind(py);
                if !value.is_instance(class)? {
                    let name: String = class.getattr(intern!(py, "__name__"))?.extract()?;
                    return Err(wants(&name, value));
                }
                Ok(value.call_method0(intern!(py, "SerializeToString"))?.extract()?)
            }
            Encoding::Pair => match &self.pair {
                Some(pair) => pair.encode(value),
                None => Err(bad("make the schema with Schema.key_value()")),
            },
            Encoding::Auto | Encoding::Checked => Err(bad("schema=\"auto\" has no values: give a schema")),
            Encoding::Other(kind) => Err(bad(format_args!("schemas of type {kind:?} are not supported"))),
        }
    }
}

/// The value of a payload.
fn value<'py>(py: Python<'py>, resolved: &Resolved, payload: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match resolved.downcast_ref::<Reader>() {
        None => Ok(PyBytes::new(py, payload).into_any()),
        Some(reader) => reader.decode(py, payload).map_err(|fail| fail.raise(py, UNDECODED)),
    }
}

/// The value of a message, `None` for a tombstone.
pub(super) fn value_of<'py>(
    py: Python<'py>,
    resolved: &Resolved,
    message: &Message,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match resolved.downcast_ref::<Reader>() {
        Some(Reader::Pair(pair)) if pair.is_separated() => {
            pair.value_of(py, message).map_err(|fail| fail.raise(py, UNDECODED)).map(Some)
        }
        _ if message.null_value => Ok(None),
        _ => value(py, resolved, &message.payload).map(Some),
    }
}

const UNDECODED: &str = "the payload cannot be decoded";

impl Reader {
    fn decode<'py>(&self, py: Python<'py>, payload: &[u8]) -> std::result::Result<Bound<'py, PyAny>, Fail> {
        let sized = |size: usize| {
            let fits = payload.len() == size;
            let text = format!("expected {size} bytes, got {}", payload.len());
            if fits { Ok(payload) } else { Err(bad(text)) }
        };
        Ok(match self {
            Self::Json(structure, written) => {
                return json::decode(py, structure.as_ref(), written.is_some(), payload);
            }
            Self::Avro(plan, structure) => return decode::decode(py, plan, structure, payload),
            Self::Plain(Encoding::Text) => {
                let text = std::str::from_utf8(payload).map_err(|_| bad("it is no UTF-8"))?;
                PyString::new(py, text).into_any()
            }
            Self::Plain(Encoding::Boolean) => PyBool::new(py, sized(1)?[0] != 0).to_owned().into_any(),
            Self::Plain(Encoding::Integer(size)) => {
                let bytes = sized(*size)?;
                let sign = if bytes[0] & 0x80 == 0 { 0 } else { 0xff };
                let mut number = [sign; 8];
                number[8 - size..].copy_from_slice(bytes);
                i64::from_be_bytes(number).into_pyobject(py).map_err(PyErr::from)?.into_any()
            }
            Self::Plain(Encoding::Float) => {
                let bytes = sized(4)?.try_into().unwrap_or_default();
                PyFloat::new(py, f32::from_be_bytes(bytes).into()).into_any()
            }
            Self::Plain(Encoding::Double) => {
                let bytes = sized(8)?.try_into().unwrap_or_default();
                PyFloat::new(py, f64::from_be_bytes(bytes)).into_any()
            }
            Self::Plain(Encoding::Temporal(name)) => helpers(py)?
                .call_method1(intern!(py, "decode_primitive"), (*name, PyBytes::new(py, payload)))?,
            Self::Plain(Encoding::Other(kind)) => {
                return Err(bad(format_args!(
                    "schemas of type {kind:?} are not supported: use message.data"
                )));
            }
            Self::Message(class) => {
                class.bind(py).call_method1(intern!(py, "FromString"), (PyBytes::new(py, payload),))?
            }
            Self::Pair(pair) => return pair.decode(py, payload),
            Self::Plain(
                Encoding::Bytes
                | Encoding::Json
                | Encoding::Avro
                | Encoding::Message
                | Encoding::Pair
                | Encoding::Auto
                | Encoding::Checked,
            ) => PyBytes::new(py, payload).into_any(),
        })
    }
}

/// An instance of the class of a record, or a dictionary.
fn instance<'py>(class: Option<&Py<PyAny>>, fields: Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
    match class {
        None => Ok(fields.into_any()),
        Some(class) => class.bind(fields.py()).call((), Some(&fields)),
    }
}

/// The schema of an option, if it is given.
pub(super) fn option(value: Option<Bound<'_, PyAny>>) -> PyResult<Option<SchemaOptions>> {
    let Some(value) = value else { return Ok(None) };
    let native = value.getattr(intern!(value.py(), "_native"))?;
    Ok(Some(native.cast::<PulsarSchema>()?.get().0.clone()))
}
