//! The values of messages as a column.

use std::any::Any;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema as ArrowSchema};

use super::{Coder, Encoding, Reader, no_definition};
use crate::avro::{Plan, Schema as Avro};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::arrow_error;
use crate::frame::schema::{Cell, Gather, Plain};
use crate::pulsar as core;
use crate::pulsar::schema::Codec;

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
}

/// The batch with the values of its messages in the column `value`; `None` if payloads are left to the application. If `lenient`,
/// the value of a message that cannot be decoded is null.
pub(in crate::python::pulsar) fn decode(
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
        Encoding::Auto => newest(messages)?,
        encoding => target(encoding, coder.structure.as_ref().map(|structure| &structure.avro))?,
    };
    let mut column = match &target {
        Target::Avro(avro) | Target::Json(avro) => Gather::of(avro)?,
        Target::Text => Gather::of_plain(Plain::Text),
        Target::Plain(plain) => Gather::of_plain(*plain),
        Target::Bytes => Gather::of_bytes(),
        Target::Nulls => Gather::of_nulls(),
    };
    let mut plans = Vec::new();
    for message in messages {
        let cell = if message.null_value { Ok(Cell::Null) } else { cell(&target, message, &mut plans) };
        let pushed = cell.and_then(|cell| column.push(cell));
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

fn target(encoding: Encoding, avro: Option<&Arc<Avro>>) -> Result<Target> {
    let avro = || avro.map(Arc::clone).ok_or_else(no_definition);
    Ok(match encoding {
        Encoding::Avro => Target::Avro(avro()?),
        Encoding::Json => Target::Json(avro()?),
        Encoding::Bytes | Encoding::Checked | Encoding::Auto => Target::Bytes,
        Encoding::Pair => return Err(pairs()),
        Encoding::Message => return Err(messages_of_protobuf()),
        Encoding::Other(kind) => {
            let text = format!("schemas of type {kind:?} are not supported: use decode=False");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        plain => Target::Plain(plain_of(plain).ok_or_else(no_definition)?),
    })
}

/// The type of the newest schema that the messages were written with: it can read the older ones.
fn newest(messages: &[core::Message]) -> Result<Target> {
    let readers = messages.iter().filter_map(|message| Some((message, reader(message).ok()?)));
    let newest = readers.max_by_key(|(message, _)| message.entry.rare().schema_version.clone());
    Ok(match newest.map(|(_, reader)| reader) {
        Some(Reader::Pair(_)) => return Err(pairs()),
        Some(Reader::Message(_)) => return Err(messages_of_protobuf()),
        None => Target::Nulls,
        Some(Reader::Avro(plan, _)) => Target::Avro(Arc::clone(plan.reader())),
        Some(Reader::Json(_, Some(avro))) => Target::Json(Arc::clone(avro)),
        Some(Reader::Json(_, None)) => Target::Text,
        Some(Reader::Plain(encoding)) => plain_of(*encoding).map_or(Target::Bytes, Target::Plain),
    })
}

fn pairs() -> Error {
    let text = "pairs of a key and a value are not columns yet: decode=False leaves payloads as they are";
    Error::new(ErrorKind::Unsupported, text)
}

fn messages_of_protobuf() -> Error {
    let text = "messages of protobuf are not columns yet: decode=False leaves payloads as they are";
    Error::new(ErrorKind::Unsupported, text)
}

fn reader(message: &core::Message) -> Result<&Reader> {
    let unknown =
        || Error::new(ErrorKind::Schema, "the schema that the message was written with is not known");
    match message.entry.rare().writer.as_ref().and_then(|writer| writer.get()).ok_or_else(unknown)? {
        Ok(resolved) => resolved.downcast_ref().ok_or_else(unknown),
        Err(error) => Err(error.clone()),
    }
}

/// The value of a message. `plans` are those that were made for the frame, by the schema that data were written with.
fn cell(target: &Target, message: &core::Message, plans: &mut Vec<(Arc<Avro>, Plan)>) -> Result<Cell> {
    let payload = &message.payload;
    match (target, reader(message)?) {
        (Target::Avro(avro), Reader::Avro(plan, _)) => {
            if Arc::ptr_eq(plan.reader(), avro) {
                return Cell::of_avro(plan, payload);
            }
            let at = plans.iter().position(|(written, _)| Arc::ptr_eq(written, plan.writer()));
            let at = match at {
                Some(at) => at,
                None => {
                    let resolved = Plan::new(Arc::clone(plan.writer()), Arc::clone(avro))?;
                    plans.push((Arc::clone(plan.writer()), resolved));
                    plans.len() - 1
                }
            };
            Cell::of_avro(&plans[at].1, payload)
        }
        (Target::Json(avro), Reader::Json(..)) => Cell::of_json(avro, payload),
        (Target::Text, Reader::Json(..)) => Plain::Text.cell(payload),
        (Target::Plain(plain), Reader::Plain(encoding)) if plain_of(*encoding) == Some(*plain) => {
            plain.cell(payload)
        }
        (Target::Bytes, _) => Ok(Cell::Bytes(payload.to_vec())),
        _ => {
            let text = "it was written with a schema of another type than others of the frame";
            Err(Error::new(ErrorKind::IncompatibleSchema, text))
        }
    }
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
