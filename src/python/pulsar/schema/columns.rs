//! The values of messages as a column.

use std::any::Any;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema as ArrowSchema};
use bytes::Bytes;
use pyo3::prelude::*;

use super::pair::{PairReader, raw_key};
use super::{Coder, Encoding, Reader, no_definition};
use crate::arrow::{ArrowBatch, batch};
use crate::convert::py_result;
use forebay_avro::{Plan, Schema as Avro};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_pulsar as core;
use forebay_pulsar::key_value::split;
use forebay_pulsar::schema::{Codec, SchemaInfo, Type};
use forebay_rows::arrow_error;
use forebay_rows::schema::{Cell, Gather, Plain, Types};

/// The type of the column.
enum Target {
    Avro(Arc<Avro>),
    Json(Arc<Avro>),
    /// JSON without a definition.
    Text,
    Plain(Plain),
    Bytes,
    /// Nothing is known of the type.
    Nulls,
    /// Keys and values, and whether keys are those of the messages unless a message's own schema
    /// says otherwise.
    Pair(Box<(Self, Self)>, bool),
}

impl Target {
    /// The type of the values of a consumer's schema.
    fn of_coder(coder: &Coder) -> Result<Self> {
        let avro = || {
            let structure = coder.structure.as_ref();
            structure.map(|structure| Arc::clone(&structure.avro)).ok_or_else(no_definition)
        };
        Ok(match coder.encoding {
            Encoding::Avro => Self::Avro(avro()?),
            Encoding::Json => Self::Json(avro()?),
            Encoding::Bytes | Encoding::Checked | Encoding::Auto => Self::Bytes,
            Encoding::Pair => {
                let pair = coder.pair.as_ref().ok_or_else(no_definition)?;
                let parts = (Self::of_coder(&pair.key)?, Self::of_coder(&pair.value)?);
                Self::Pair(Box::new(parts), pair.separated)
            }
            Encoding::Message => return Err(messages_of_protobuf()),
            Encoding::Other(kind) => {
                let text = format!("schemas of type {kind:?} are not supported: use decode=False");
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
            plain => Self::Plain(plain_of(plain).ok_or_else(no_definition)?),
        })
    }

    /// The type of the values that data become by their own schema.
    fn of_reader(reader: &Reader) -> Result<Self> {
        Ok(match reader {
            Reader::Pair(pair) => {
                let parts = (Self::of_reader(&pair.key)?, Self::of_reader(&pair.value)?);
                Self::Pair(Box::new(parts), pair.separated)
            }
            Reader::Message(_) => return Err(messages_of_protobuf()),
            Reader::Avro(plan, _) => Self::Avro(Arc::clone(plan.reader())),
            Reader::Json(_, Some(avro)) => Self::Json(Arc::clone(avro)),
            Reader::Json(_, None) => Self::Text,
            Reader::Plain(encoding) => plain_of(*encoding).map_or(Self::Bytes, Self::Plain),
        })
    }

    /// The type of the newest schema that the messages were written with: it can read the older
    /// ones.
    fn newest(messages: &[core::Message]) -> Result<Self> {
        let readers = messages.iter().filter_map(|message| Some((message, reader(message).ok()?)));
        let newest = readers.max_by_key(|(message, _)| message.entry.rare().schema_version.clone());
        newest.map_or(Ok(Self::Nulls), |(_, reader)| Self::of_reader(reader))
    }

    /// A column without values.
    fn column(&self, types: Types) -> Result<Gather> {
        Ok(match self {
            Self::Avro(avro) | Self::Json(avro) => Gather::of(avro, types)?,
            Self::Text => Gather::of_plain(Plain::Text, types),
            Self::Plain(plain) => Gather::of_plain(*plain, types),
            Self::Bytes => Gather::of_bytes(),
            Self::Nulls => Gather::of_nulls(),
            Self::Pair(parts, _) => Gather::of_pairs(parts.0.column(types)?, parts.1.column(types)?),
        })
    }
}

/// Makes the values of messages, one after the other.
struct Decoder<'a> {
    target: &'a Target,
    /// Whether a message without a schema is as if it were written with that of the target.
    adopts: bool,
    /// Those that were made so far, by the schemas of writer and reader.
    plans: Vec<(Arc<Avro>, Arc<Avro>, Result<Plan>)>,
}

impl Decoder<'_> {
    /// The value of a message.
    fn value(&mut self, message: &core::Message) -> Result<Cell> {
        let reader = match reader(message)? {
            Reader::Plain(Encoding::Bytes) if self.adopts => None,
            reader => Some(reader),
        };
        match self.target {
            Target::Pair(parts, separated) => self.pair(parts, *separated, reader, message),
            _ if message.null_value => Ok(Cell::Null),
            target => self.part(target, reader, &message.payload),
        }
    }

    fn pair(
        &mut self,
        parts: &(Target, Target),
        separated: bool,
        reader: Option<&Reader>,
        message: &core::Message,
    ) -> Result<Cell> {
        let of: Option<&PairReader> = match reader {
            None => None,
            Some(Reader::Pair(pair)) => Some(pair),
            Some(_) => return Err(of_another_type()),
        };
        let raw;
        let (key, value) = if of.map_or(separated, |pair| pair.separated) {
            raw = raw_key(message)?;
            (raw.as_deref(), (!message.null_value).then_some(&message.payload[..]))
        } else if message.null_value {
            return Ok(Cell::Null);
        } else {
            let cut = || Error::new(ErrorKind::Schema, "it is cut off, or is not that of a pair");
            split(&message.payload).ok_or_else(cut)?
        };
        let mut part = |target: &Target, reader, payload: Option<&[u8]>, what: &str| match payload {
            None => Ok(Cell::Null),
            Some(payload) => self.part(target, reader, payload).map_err(|error| {
                let text = format!("the {what}: {}", error.message());
                Error::new(error.kind(), text)
            }),
        };
        let key = part(&parts.0, of.map(|pair| &pair.key), key, "key")?;
        let value = part(&parts.1, of.map(|pair| &pair.value), value, "value")?;
        Ok(Cell::Record(vec![key, value]))
    }

    /// The value of a payload, or of a part of one. Without a reader it was written with the schema
    /// of the target.
    fn part(&mut self, target: &Target, reader: Option<&Reader>, payload: &[u8]) -> Result<Cell> {
        match (target, reader) {
            (Target::Avro(avro), None) => Cell::of_avro(self.plan(avro, avro)?, payload),
            (Target::Avro(avro), Some(Reader::Avro(plan, _))) => {
                if Arc::ptr_eq(plan.reader(), avro) {
                    return Cell::of_avro(plan, payload);
                }
                Cell::of_avro(self.plan(plan.writer(), avro)?, payload)
            }
            (Target::Json(avro), None | Some(Reader::Json(..))) => Cell::of_json(avro, payload),
            (Target::Text, None | Some(Reader::Json(..))) => Plain::Text.cell(payload),
            (Target::Plain(plain), None) => plain.cell(payload),
            (Target::Plain(plain), Some(Reader::Plain(encoding))) if plain_of(*encoding) == Some(*plain) => {
                plain.cell(payload)
            }
            (Target::Bytes, _) => Ok(Cell::Bytes(payload.to_vec())),
            _ => Err(of_another_type()),
        }
    }

    fn plan(&mut self, writer: &Arc<Avro>, reader: &Arc<Avro>) -> Result<&Plan> {
        let is_it = |(from, to, _): &(Arc<Avro>, Arc<Avro>, Result<Plan>)| {
            Arc::ptr_eq(from, writer) && Arc::ptr_eq(to, reader)
        };
        let at = self.plans.iter().position(is_it).unwrap_or_else(|| {
            let plan = Plan::new(Arc::clone(writer), Arc::clone(reader));
            self.plans.push((Arc::clone(writer), Arc::clone(reader), plan));
            self.plans.len() - 1
        });
        self.plans[at].2.as_ref().map_err(Clone::clone)
    }
}

/// The batch with the values of its messages in the column `value`; `None` if payloads are left to
/// the application. If `lenient`, the value of a message that cannot be decoded is null.
pub(in crate::pulsar) fn decode(
    codec: &dyn Codec,
    batch: &RecordBatch,
    messages: &[core::Message],
    lenient: bool,
) -> Result<Option<RecordBatch>> {
    let coder = (codec as &dyn Any).downcast_ref::<Coder>().ok_or_else(no_definition)?;
    if !coder.reads() {
        return Ok(None);
    }
    let target = match coder.encoding {
        Encoding::Auto => Target::newest(messages)?,
        _ => Target::of_coder(coder)?,
    };
    let mut column = target.column(Types::Arrow)?;
    let mut decoder = Decoder { target: &target, adopts: false, plans: Vec::new() };
    for message in messages {
        let pushed = decoder.value(message).and_then(|cell| column.push(cell));
        match pushed {
            Ok(()) => {}
            Err(_) if lenient => column.push(Cell::Null)?,
            Err(error) => {
                let text = format!(
                    "message {} cannot be decoded, and the rows of the frame are received again: {}; on_error=\"null\" gives it \
                     the value null, and decode=False leaves payloads as they are",
                    message.id,
                    error.message()
                );
                return Err(Error::new(error.kind(), text).with_topic(message.entry.topic().as_ref()));
            }
        }
    }
    let value = column.finish()?;
    let (schema, mut columns, _) = batch.clone().into_parts();
    let replaced = |field: &Arc<Field>| match field.name().as_str() {
        "value" => Field::new("value", value.data_type().clone(), true),
        _ => field.as_ref().clone(),
    };
    let fields: Vec<Field> = schema.fields().iter().map(replaced).collect();
    columns[schema.index_of("value").map_err(arrow_error)?] = value;
    RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns).map(Some).map_err(arrow_error)
}

/// The values of a schema of a topic as a column: data of all versions become values of this one.
pub(in crate::pulsar) struct Values {
    target: Target,
    types: Types,
    /// Whether the value of a message that cannot be decoded is null.
    lenient: bool,
}

impl Values {
    /// The values of messages of a consumer that knows what each was written with.
    pub(in crate::pulsar) fn column(&self, messages: &[core::Message]) -> Result<ArrayRef> {
        let mut column = self.target.column(self.types)?;
        let mut decoder = Decoder { target: &self.target, adopts: true, plans: Vec::new() };
        for message in messages {
            match decoder.value(message).and_then(|cell| column.push(cell)) {
                Ok(()) => {}
                // That the schema could not be got says nothing of the payload.
                Err(_) if self.lenient && !is_lost(message) => column.push(Cell::Null)?,
                Err(error) => {
                    let hint = if self.lenient {
                        ""
                    } else {
                        "; on_error \"null\" gives it the value null, and decode=false leaves payloads as they are"
                    };
                    let (id, topic, why) = (&message.id, message.entry.topic(), error.message());
                    let text = format!("message {id} of {topic} cannot be decoded: {why}{hint}");
                    return Err(Error::new(error.kind(), text).with_topic(topic.as_ref()));
                }
            }
        }
        column.finish()
    }
}

/// The values of a schema as a column, for [`range`](crate::pulsar::range).
#[pyclass(frozen, module = "forebay._engine")]
pub(crate) struct PulsarValues(pub(in crate::pulsar) Arc<Values>);

#[pymethods]
impl PulsarValues {
    /// `stored` is a schema as a client gets it: type, name, definition, properties. `spark`:
    /// columns have Spark's types.
    #[new]
    #[allow(clippy::type_complexity, reason = "the fields of a tuple of Python")]
    fn new(
        py: Python<'_>,
        stored: (String, String, Vec<u8>, Vec<(String, String)>),
        spark: bool,
        lenient: bool,
    ) -> PyResult<Self> {
        let (kind, name, data, properties) = stored;
        let unknown = || Error::new(ErrorKind::InvalidArgument, format!("unknown type of schema {kind:?}"));
        let kind = py_result(py, Type::from_str_name(&kind).ok_or_else(unknown))?;
        let info = SchemaInfo { name, kind, data: Bytes::from(data), properties };
        let target = Coder::reader_of(&info).and_then(|reader| Target::of_reader(&reader));
        let types = if spark { Types::Spark } else { Types::Arrow };
        let values = Values { target: py_result(py, target)?, types, lenient };
        Ok(Self(Arc::new(values)))
    }

    /// A table without rows, whose column `value` has the type of the values.
    fn table(&self, py: Python<'_>) -> PyResult<ArrowBatch> {
        let column = py_result(py, self.0.column(&[]))?;
        Ok(ArrowBatch::new(py_result(py, batch(vec![("value", column)]))?, None))
    }
}

fn messages_of_protobuf() -> Error {
    let text = "messages of protobuf are not columns yet: decode=False leaves payloads as they are";
    Error::new(ErrorKind::Unsupported, text)
}

fn of_another_type() -> Error {
    let text = "it was written with a schema of another type than that of the column";
    Error::new(ErrorKind::IncompatibleSchema, text)
}

fn reader(message: &core::Message) -> Result<&Reader> {
    let unknown =
        || Error::new(ErrorKind::Schema, "the schema that the message was written with is not known");
    match message.entry.rare().writer.as_ref().and_then(|writer| writer.get()).ok_or_else(unknown)? {
        Ok(resolved) => resolved.downcast_ref().ok_or_else(unknown),
        Err(error) => Err(error.clone()),
    }
}

/// Whether the schema of a message could not be got.
fn is_lost(message: &core::Message) -> bool {
    message.entry.rare().writer.as_ref().is_some_and(|writer| writer.is_lost())
}

/// The type of single values of an encoding.
pub(super) fn plain_of(encoding: Encoding) -> Option<Plain> {
    Some(match encoding {
        Encoding::Text => Plain::Text,
        Encoding::Boolean => Plain::Boolean,
        Encoding::Integer(size) => Plain::Integer(size),
        Encoding::Float => Plain::Float,
        Encoding::Double => Plain::Double,
        Encoding::Temporal(name) => match name {
            "date" | "timestamp" => Plain::Millis,
            "instant" => Plain::Instant,
            "time" => Plain::Time,
            "local_date" => Plain::LocalDate,
            "local_time" => Plain::LocalTime,
            _ => Plain::LocalDateTime,
        },
        Encoding::Bytes
        | Encoding::Checked
        | Encoding::Message
        | Encoding::Pair
        | Encoding::Json
        | Encoding::Avro
        | Encoding::Auto
        | Encoding::Other(_) => return None,
    })
}
