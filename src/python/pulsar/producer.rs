//! The producer of Pulsar.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{EventTime, Payload, borrowed, foreign_receipt, of_argument, py_result, raise};
use crate::dataframe::{Form, FrameRows, Roles};
use crate::pulsar::message_id::{MessageId, MessageIds};
use crate::pulsar::schema::pair::{Separated, is_separated};
use crate::pulsar::schema::{self, PulsarSchema};
use crate::sender::{self, Sender, Sink, keys_for, pairs, producer_class};
use crate::sends::{Receipts, Waiting};
use crate::value::IntoPython;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_client::events::Receipt;
use forebay_client::pulsar as native;
use forebay_client::traffic::SendCounts;
use forebay_pulsar::Outgoing;
use forebay_pulsar::schema::Codec;
use forebay_pulsar::schema::SchemaInfo;
use forebay_rows::{Columns, Naming, NewRow, Rare, RowRef, Rows};

producer_class! {
    /// A producer of one topic.
    PulsarProducer(native::Producer), keys = keys, push = push,
    send(
        key: [Option<&str>] = None,
        ordering_key: [Option<&[u8]>] = None,
        properties: [Option<Bound<'_, PyDict>>] = None,
        event_time: [Option<EventTime>] = None,
        sequence_id: [Option<u64>] = None,
        deliver_at: [Option<i64>] = None,
        null_value: [bool] = false,
        replicate_to: [Option<Vec<String>>] = None,
        partition: [Option<u32>] = None,
        schema: [Option<Bound<'_, PulsarSchema>>] = None,
    );

    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.0.sink(py)?.name())
    }

    #[getter]
    fn partitions(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.0.sink(py)?.partitions())
    }

    #[getter]
    fn started_partitions(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.0.sink(py)?.started_partitions())
    }

    #[getter]
    fn last_sequence_id(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.0.sink(py)?.last_sequence_id())
    }

    /// Encodes the rows of a frame for this producer.
    #[pyo3(signature = (frame, roles, *, schema, encoding=None))]
    fn encode_frame(
        &self,
        py: Python<'_>,
        frame: &Bound<'_, PyAny>,
        roles: Roles,
        schema: Option<&Bound<'_, PyAny>>,
        encoding: Option<&str>,
    ) -> PyResult<FrameRows> {
        let columns = Columns { keys_of_bytes: true, ..py_result(py, roles.columns())? };
        let own = self.0.sink(py)?.codec().cloned();
        schema::dataframe::encode(py, frame, own.as_deref(), schema, encoding, columns)
    }

    /// Encodes values by a schema of their own.
    #[pyo3(signature = (values, keys, schema))]
    fn encode_values(
        &self,
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        keys: Option<&Bound<'_, PyAny>>,
        schema: &Bound<'_, PulsarSchema>,
    ) -> PyResult<FrameRows> {
        let own = &schema.get().0;
        py_result(py, of_many(&own.codec))?;
        let values = sender::values(values)?;
        let keys = keys_for(values.len(), keys, "keys")?;
        let mut rows = Rows::default();
        for (i, value) in values.iter().enumerate() {
            let payload = schema::payload(&*own.codec, value)?;
            rows.push(payload.bytes(), keys.as_ref().and_then(|keys| keys[i].as_deref()), None);
        }
        Ok(FrameRows::of(rows, Form::Schema(Arc::new(Arc::clone(&own.info)))))
    }

    /// Sends messages as a group. `rows` are those of a frame that they replace: their payloads are
    /// encoded already.
    #[pyo3(signature = (messages, partitions=None, schema=None, rows=None))]
    fn send_messages(
        &self,
        py: Python<'_>,
        messages: Vec<Bound<'_, PyAny>>,
        partitions: Option<Vec<Option<u32>>>,
        schema: Option<&Bound<'_, PulsarSchema>>,
        rows: Option<&FrameRows>,
    ) -> PyResult<Py<PyAny>> {
        let own = schema.map(|schema| &schema.get().0);
        if let Some(own) = own {
            py_result(py, of_many(&own.codec))?;
        }
        let codec = own.map(|own| &own.codec).or(self.0.sink(py)?.codec()).filter(|_| rows.is_none());
        let messages = messages.iter().enumerate().map(|(at, message)| Message::of(message, at));
        let messages: Vec<Message<'_>> = messages.collect::<PyResult<_>>()?;
        let mut payloads: Vec<Payload<'_>> = Vec::with_capacity(messages.len());
        for (at, message) in messages.iter().enumerate() {
            let payload = encode(codec, &message.payload, message.null_value);
            payloads.push(payload.map_err(|error| of_argument(py, format_args!("payloads[{at}]"), error))?);
        }
        let properties = messages.iter().map(|message| pairs(message.properties.as_ref()));
        let properties: Vec<_> = properties.collect::<PyResult<_>>()?;
        let add = |all: &mut Rows, numbers: &mut dyn Iterator<Item = u64>| {
            let parts = messages.iter().zip(&payloads).zip(&properties).zip(numbers).enumerate();
            for (at, (((message, payload), properties), number)) in parts {
                let partition = partitions.as_ref().and_then(|all| all.get(at).copied().flatten());
                all.push_row(message.row(number, payload.bytes(), properties, partition));
            }
        };
        if let Some(rows) = rows {
            return self.0.send_replaced(py, rows, |all| {
                let mut new = all.replacement();
                add(&mut new, &mut all.numbers());
                new
            });
        }
        let mut all = Rows::default();
        add(&mut all, &mut (0..));
        let form = own.map_or(Form::Plain, |own| Form::Schema(Arc::new(Arc::clone(&own.info))));
        self.0.send_made(py, all, form)
    }
}

/// A message of a group: the fields of Python's `OutgoingMessage`.
struct Message<'py> {
    payload: Bound<'py, PyAny>,
    key: Option<String>,
    ordering_key: Option<Vec<u8>>,
    properties: Option<Bound<'py, PyDict>>,
    event_time: Option<EventTime>,
    sequence_id: Option<u64>,
    deliver_at: Option<i64>,
    null_value: bool,
    replicate_to: Option<Vec<String>>,
}

impl<'py> Message<'py> {
    /// Reads the message with the number `at`, for errors.
    fn of(object: &Bound<'py, PyAny>, at: usize) -> PyResult<Self> {
        Ok(Self {
            payload: object.getattr("payload")?,
            key: field(object, at, "key")?,
            ordering_key: field(object, at, "ordering_key")?,
            properties: field(object, at, "properties")?,
            event_time: field(object, at, "event_time")?,
            sequence_id: field(object, at, "sequence_id")?,
            deliver_at: field(object, at, "deliver_at")?,
            null_value: field(object, at, "null_value")?,
            replicate_to: field(object, at, "replicate_to")?,
        })
    }

    fn row<'a>(
        &'a self,
        number: u64,
        payload: &'a [u8],
        properties: &'a [(String, String)],
        partition: Option<u32>,
    ) -> NewRow<'a> {
        NewRow {
            number,
            payload,
            key: self.key.as_deref(),
            topic: None,
            event_time: self.event_time.as_ref().map_or(0, |time| time.0),
            null_value: self.null_value,
            properties,
            rare: Some(Rare {
                ordering_key: self.ordering_key.as_deref().map(Into::into),
                deliver_at: self.deliver_at,
                sequence_id: self.sequence_id,
                replicate_to: self.replicate_to.as_deref().map(Into::into),
                partition,
                ..Rare::default()
            }),
        }
    }
}

fn field<'py, T>(object: &Bound<'py, PyAny>, at: usize, name: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
{
    let named = |error: PyErr| of_argument(object.py(), format_args!("{name} of message {at}"), error);
    object.getattr(name)?.extract().map_err(Into::into).map_err(named)
}

/// Refuses a schema whose keys are those of the messages, which groups cannot have.
fn of_many(codec: &Arc<dyn Codec>) -> Result<()> {
    if !is_separated(Some(codec)) {
        return Ok(());
    }
    let text = "send_many() does not take a separated schema: send the values one by one with send(), or make it the \
                schema of a producer";
    Err(Error::new(ErrorKind::Unsupported, text))
}

/// Encodes the rows of a frame for producers without a schema of their own.
#[pyfunction]
#[pyo3(signature = (frame, roles, *, schema, encoding=None))]
pub(crate) fn encode_pulsar_frame(
    py: Python<'_>,
    frame: &Bound<'_, PyAny>,
    roles: Roles,
    schema: Option<&Bound<'_, PyAny>>,
    encoding: Option<&str>,
) -> PyResult<FrameRows> {
    let columns = Columns { keys_of_bytes: true, naming: Naming::Pulsar, ..py_result(py, roles.columns())? };
    schema::dataframe::encode(py, frame, None, schema, encoding, columns)
}

#[allow(clippy::too_many_arguments, reason = "the arguments of the Python method")]
fn push(
    sender: &Sender<native::Producer>,
    py: Python<'_>,
    waiting: Waiting<native::Producer>,
    payload: &Bound<'_, PyAny>,
    key: Option<&str>,
    ordering_key: Option<&[u8]>,
    properties: Option<Bound<'_, PyDict>>,
    event_time: Option<EventTime>,
    sequence_id: Option<u64>,
    deliver_at: Option<i64>,
    null_value: bool,
    replicate_to: Option<Vec<String>>,
    partition: Option<u32>,
    schema: Option<Bound<'_, PulsarSchema>>,
) -> PyResult<()> {
    let own = schema.as_ref().map(|schema| &schema.get().0);
    let codec = own.map(|own| &own.codec).or(sender.sink(py)?.codec());
    let payload = encode(codec, payload, null_value)?;
    let separated = is_separated(codec);
    if separated && key.is_some() {
        let text = "the key of the message is that of its value, as the schema is separated: leave key out";
        return Err(raise(py, &Error::new(ErrorKind::InvalidArgument, text)));
    }
    let pair = separated.then(|| Separated::of(payload.bytes()));
    let properties = pairs(properties.as_ref())?;
    let message = Outgoing {
        payload: payload.bytes(),
        key,
        ordering_key,
        properties: &borrowed(&properties),
        event_time: event_time.map_or(0, |time| time.0),
        sequence_id,
        deliver_at,
        null_value,
        replicate_to: replicate_to.as_deref().unwrap_or_default(),
        schema: own.map(|own| &own.info),
        ..Outgoing::default()
    };
    let message = pair.as_ref().map_or(message, |pair| pair.apply(message));
    sender.push(py, waiting, |native, park| native.push(&message, partition, park))
}

/// The payload of a message. A tombstone has none, and its value may be left out.
fn encode<'a>(
    codec: Option<&Arc<dyn Codec>>,
    value: &'a Bound<'_, PyAny>,
    null_value: bool,
) -> PyResult<Payload<'a>> {
    let Some(codec) = codec else { return Payload::of(value) };
    let is_empty = || value.is_none() || value.len().is_ok_and(|length| length == 0);
    if null_value && is_empty() {
        return Ok(Payload::Borrowed(b""));
    }
    schema::payload(&**codec, value)
}

/// Pushes pairs, whose payloads are inline, with their keys as those of the messages.
fn push_separated<'a>(
    producer: &native::Producer,
    messages: impl Iterator<Item = (Outgoing<'a>, Option<u32>)>,
    each: &mut dyn FnMut(usize),
) -> Result<()> {
    let pairs: Vec<_> = messages.map(|message| (Separated::of(message.0.payload), message)).collect();
    if pairs.iter().any(|(_, (message, _))| message.key.is_some()) {
        let text =
            "the keys of the messages are those of their values, as the schema is separated: leave keys out";
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    let messages = pairs.iter().map(|(pair, (message, partition))| (pair.apply(*message), *partition));
    producer.push_many(&mut { messages }, each)
}

impl Receipts for native::Producer {
    fn one(py: Python<'_>, receipt: Receipt) -> PyResult<Py<PyAny>> {
        match receipt {
            Receipt::Id(id) => Ok(Py::new(py, MessageId::of(id, None))?.into_any()),
            Receipt::Chunked(receipt) => {
                let (id, first_chunk) = *receipt;
                Ok(Py::new(py, MessageId::of(id, Some(first_chunk)))?.into_any())
            }
            Receipt::Reason(_) | Receipt::Position(_) => Err(foreign_receipt()),
        }
    }

    /// All ids in one object: a list of a million Python objects would not fit into memory beside
    /// the messages.
    fn many(py: Python<'_>, receipts: Vec<Receipt>) -> PyResult<Py<PyAny>> {
        let mut ids = MessageIds::default();
        ids.all.reserve_exact(receipts.len());
        for receipt in receipts {
            match receipt {
                Receipt::Id(id) => ids.all.push(id),
                Receipt::Chunked(receipt) => {
                    ids.first_chunks.insert(ids.all.len(), receipt.1);
                    ids.all.push(receipt.0);
                }
                Receipt::Reason(_) | Receipt::Position(_) => return Err(foreign_receipt()),
            }
        }
        Ok(Py::new(py, ids)?.into_any())
    }
}

impl Sink for native::Producer {
    fn topic(&self) -> &str {
        self.topic()
    }

    fn pending(&self) -> usize {
        self.pending()
    }

    fn is_connected(&self) -> bool {
        self.is_connected()
    }

    fn counts(&self) -> SendCounts {
        self.counts()
    }

    fn payload<'a>(&self, value: &'a Bound<'_, PyAny>) -> PyResult<Payload<'a>> {
        match self.codec() {
            None => Payload::of(value),
            Some(codec) => schema::payload(&**codec, value),
        }
    }

    fn takes_rows(&self, form: &Form) -> Result<()> {
        match (form, self.codec()) {
            (Form::Plain, Some(codec)) if codec.reads() => {
                let text = "these rows are payloads without a schema, and this producer has one: use send_frame(), which \
                            encodes them by it";
                Err(Error::new(ErrorKind::Unsupported, text).with_topic(self.topic()))
            }
            _ => Ok(()),
        }
    }

    async fn check_rows(&self, form: &Form) -> Result<()> {
        match (form, self.codec()) {
            (Form::Plain, None) => self.check_has_no_schema().await,
            _ => Ok(()),
        }
    }

    fn slots(&self) -> usize {
        self.slots()
    }

    fn push_rows<'a>(
        &self,
        form: &'a Form,
        rows: impl Iterator<Item = RowRef<'a>>,
        each: &mut dyn FnMut(usize),
    ) -> Result<()> {
        /// The version of payloads without a schema.
        static NONE: Bytes = Bytes::new();
        let schema_version = matches!(form, Form::Unchecked).then_some(&NONE);
        let schema = match form {
            Form::Schema(schema) => schema.downcast_ref::<Arc<SchemaInfo>>(),
            Form::Plain | Form::Unchecked => None,
        };
        // That of the producer is stated anyway.
        let schema = schema.filter(|info| !self.codec().is_some_and(|own| schema::is_of(&**own, info)));
        let mut messages = rows.map(|row| {
            let message = Outgoing {
                payload: row.payload,
                key: row.key,
                key_is_base64: row.key_is_base64,
                ordering_key: row.rare.ordering_key.as_deref(),
                properties: row.properties,
                event_time: row.event_time,
                sequence_id: row.sequence_id,
                deliver_at: row.rare.deliver_at,
                null_value: row.null_value,
                replicate_to: row.rare.replicate_to.as_deref().unwrap_or_default(),
                schema_version,
                schema,
            };
            (message, row.rare.partition)
        });
        // Of send_many(): rows of a frame have been encoded by their schema.
        if matches!(form, Form::Plain) && is_separated(self.codec()) {
            return push_separated(self, messages, each);
        }
        self.push_many(&mut messages, each)
    }

    fn flush_batches(&self) {
        self.flush();
    }

    fn patience(&self) -> Option<Duration> {
        self.patience()
    }

    async fn close(&self, wait: bool) -> Result<()> {
        self.close(wait).await
    }
}
