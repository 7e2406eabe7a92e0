//! The rows of a frame as messages, for Python.

use std::any::Any;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyTuple};

use crate::arrow::{import, import_schema};
use crate::convert::{borrowed, py_result};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::sync::Mutex;
use forebay_rows::{BadRow, Columns, Cursor, Imported, Naming, RowRef, Rows, Topics, encode, schema};

/// The meaning of payloads, for protocols whose topics have schemas.
#[derive(Clone, Debug, Default)]
pub(super) enum Form {
    /// Payloads for a topic without a schema.
    #[default]
    Plain,
    /// Payloads without a schema, whatever the topic has.
    Unchecked,
    /// Values of a schema of the protocol.
    Schema(Arc<dyn Any + Send + Sync>),
}

/// The roles of the columns of a frame: a dictionary, of which all but `value` may be left out.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct Roles {
    value: Option<String>,
    #[pyo3(default)]
    key: Option<String>,
    #[pyo3(default)]
    ordering_key: Option<String>,
    #[pyo3(default)]
    topic: Option<String>,
    #[pyo3(default)]
    properties: Option<String>,
    #[pyo3(default)]
    event_time: Option<String>,
    #[pyo3(default)]
    deliver_at: Option<String>,
    #[pyo3(default)]
    message_type: Option<String>,
    #[pyo3(default)]
    qos_column: Option<String>,
    #[pyo3(default)]
    retain_column: Option<String>,
    /// Number of the frame's first row, for errors and ids.
    #[pyo3(default)]
    first_row: u64,
    /// Name of a property with an id of the row, and the text before the row's number in it.
    #[pyo3(default)]
    id: Option<(String, String)>,
    /// Sequence id of the row with number 0.
    #[pyo3(default)]
    sequence: Option<u64>,
    #[pyo3(default)]
    leaves_out: bool,
}

impl Roles {
    /// The roles, before it is known how payloads are encoded.
    pub(super) fn columns(self) -> Result<Columns> {
        Ok(Columns {
            value: self.value,
            json: false,
            schema: None,
            key: self.key,
            keys_of_bytes: false,
            ordering_key: self.ordering_key,
            topic: self.topic.as_deref().map(Topics::parse).transpose()?,
            naming: Naming::Plain,
            properties: self.properties,
            event_time: self.event_time,
            deliver_at: self.deliver_at,
            message_type: self.message_type,
            qos: self.qos_column,
            retain: self.retain_column,
            first_row: self.first_row,
            id: self.id,
            sequence: self.sequence,
            leaves_out: self.leaves_out,
        })
    }
}

/// Encoded rows, which a producer's `send_rows` takes once.
#[pyclass(frozen, module = "forebay._engine")]
pub(super) struct FrameRows {
    rows: Mutex<Option<Rows>>,
    bad: LeftOut,
    count: usize,
    payload_bytes: usize,
    form: Form,
}

/// The rows that were left out, of those that were encoded and of those that were pushed.
pub(super) type LeftOut = Arc<Mutex<Vec<BadRow>>>;

impl FrameRows {
    /// Encodes the rows of a frame.
    pub(super) fn encode(py: Python<'_>, frame: Imported, columns: &Columns, form: Form) -> PyResult<Self> {
        let rows = py_result(py, py.detach(|| encode(frame, columns)))?;
        Ok(Self::of(rows, form))
    }

    /// Messages that are encoded already.
    pub(super) fn of(mut rows: Rows, form: Form) -> Self {
        let (count, payload_bytes) = (rows.len(), rows.payload_bytes());
        let bad = Arc::new(Mutex::leaf(rows.take_bad()));
        Self { count, payload_bytes, rows: Mutex::leaf(Some(rows)), bad, form }
    }

    /// The meaning of the payloads.
    pub(super) fn form(&self) -> &Form {
        &self.form
    }

    /// The rows, or an error if they have been sent already.
    pub(super) fn take(&self) -> Result<(Rows, LeftOut)> {
        let taken = self.rows.lock().take();
        let taken = taken.ok_or_else(|| {
            let text = "these rows have been sent already: encode the frame again";
            Error::new(ErrorKind::InvalidArgument, text)
        });
        Ok((taken?, Arc::clone(&self.bad)))
    }
}

#[pymethods]
impl FrameRows {
    fn __len__(&self) -> usize {
        self.count
    }

    /// Bytes of all payloads, before compression.
    #[getter]
    fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Numbers of the rows that were left out so far, with the reasons, and the bytes of payloads
    /// that were not sent.
    fn bad_rows(&self) -> Vec<(u64, String, usize)> {
        self.bad.lock().iter().map(|bad| (bad.number, bad.error.message().to_owned(), bad.bytes)).collect()
    }

    /// The payloads of rows that have not been sent.
    fn payloads<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let rows = py_result(py, self.take())?.0;
        let properties = borrowed(rows.properties());
        let payloads = Cursor::default().rows(&rows, &properties);
        let payloads = payloads.map(|row| PyBytes::new(py, row.payload)).collect();
        *self.rows.lock() = Some(rows);
        Ok(payloads)
    }

    /// The fields of rows that have not been sent, in the order of `OutgoingMessage`.
    fn messages<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let rows = py_result(py, self.take())?.0;
        let properties = borrowed(rows.properties());
        let fields = |row: RowRef<'_>| {
            let ordering_key = row.rare.ordering_key.as_deref().map(|key| PyBytes::new(py, key));
            (
                PyBytes::new(py, row.payload),
                row.key,
                ordering_key,
                row.properties.iter().copied().into_py_dict(py)?,
                (row.event_time != 0).then_some(row.event_time),
                row.sequence_id,
                row.rare.deliver_at,
                row.null_value,
            )
                .into_pyobject(py)
        };
        let messages = Cursor::default().rows(&rows, &properties).map(fields).collect();
        *self.rows.lock() = Some(rows);
        messages
    }

    /// The first row, and the others.
    fn split_first(&self, py: Python<'_>) -> PyResult<(Self, Self)> {
        let (rows, _) = py_result(py, self.take())?;
        let (first, others) = py.detach(|| rows.split_first());
        Ok((Self::of(first, self.form.clone()), Self::of(others, self.form.clone())))
    }

    /// The rows of each topic, which has to be a role of a column.
    fn by_topic(&self, py: Python<'_>) -> PyResult<Vec<(String, Self)>> {
        let (rows, _) = py_result(py, self.take())?;
        let parts = py.detach(|| rows.by_topic());
        Ok(parts.into_iter().map(|(topic, rows)| (topic, Self::of(rows, self.form.clone()))).collect())
    }
}

/// Encodes the rows of an object with the Arrow PyCapsule interface.
#[pyfunction]
#[pyo3(signature = (frame, roles, *, encoding))]
pub(super) fn encode_frame(
    py: Python<'_>,
    frame: &Bound<'_, PyAny>,
    roles: Roles,
    encoding: &str,
) -> PyResult<FrameRows> {
    let imported = import(frame)?;
    let columns = Columns { json: encoding == "json", ..py_result(py, roles.columns())? };
    FrameRows::encode(py, imported, &columns, Form::default())
}

/// The Avro definition of rows with the columns of an Arrow schema.
#[pyfunction]
pub(super) fn avro_definition(py: Python<'_>, schema: &Bound<'_, PyAny>, name: &str) -> PyResult<String> {
    let columns = import_schema(schema)?;
    py_result(py, schema::define(&columns, name))
}

/// The columns that a topic template names, in order.
#[pyfunction]
pub(super) fn template_columns(py: Python<'_>, template: &str) -> PyResult<Vec<String>> {
    Ok(py_result(py, Topics::parse_template(template))?.columns().map(str::to_owned).collect())
}
