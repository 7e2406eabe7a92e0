//! The Arrow C data interface: tables in, record batches out, without pyarrow.

use std::any::Any;
use std::ffi::CStr;
use std::sync::Arc;

use arrow_array::builder::{MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchIterator, StructArray};
use arrow_schema::{DataType, Field, Schema};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::value::IntoPython;
use forebay_base::error::Result;
use forebay_base::sync::Mutex;
use forebay_rows::{Imported, arrow_error};

const ARRAY: &CStr = c"arrow_array";
const SCHEMA: &CStr = c"arrow_schema";
const STREAM: &CStr = c"arrow_array_stream";

/// Takes over anything with `__arrow_c_stream__` or `__arrow_c_array__`.
#[allow(unsafe_code, reason = "the C data interface is pointers in capsules")]
pub(super) fn import(value: &Bound<'_, PyAny>) -> PyResult<Imported> {
    let foreign = |error: arrow_schema::ArrowError| {
        PyValueError::new_err(format!("the Arrow data cannot be read: {error}"))
    };
    if value.hasattr("__arrow_c_stream__")? {
        let capsule = value.call_method0("__arrow_c_stream__")?;
        let capsule = capsule.cast::<PyCapsule>()?;
        let pointer = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
        // SAFETY: the capsule's name says what it points to, and it is alive; from_raw moves the
        // stream out and leaves an empty one behind, as the interface demands of a consumer.
        let reader = unsafe { RecordBatchStreamReader::from_raw(pointer.as_ptr()) }.map_err(foreign)?;
        return reader.collect::<std::result::Result<_, _>>().map_err(foreign).map(Imported::new);
    }
    if value.hasattr("__arrow_c_array__")? {
        let (schema, array): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
            value.call_method0("__arrow_c_array__")?.extract()?;
        let schema = schema.cast::<PyCapsule>()?.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
        let array = array.cast::<PyCapsule>()?.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
        // SAFETY: as above; the array is moved out, the schema is only looked at.
        let data = unsafe { from_ffi(FFI_ArrowArray::from_raw(array.as_ptr()), schema.as_ref()) }
            .map_err(foreign)?;
        // A record batch is a struct without nulls of its own; anything else is a single column.
        if !matches!(data.data_type(), DataType::Struct(_)) || data.null_count() > 0 {
            return Err(PyTypeError::new_err(format!(
                "an Arrow array of {} is a column, not a table: pass a table or a record batch",
                data.data_type()
            )));
        }
        return Ok(Imported::new(vec![RecordBatch::from(StructArray::from(data))]));
    }
    Err(PyTypeError::new_err(format!(
        "{} is not a table: pass an object with __arrow_c_stream__ or __arrow_c_array__ (pyarrow, polars, pandas, duckdb ...)",
        value.get_type()
    )))
}

/// The columns of anything with `__arrow_c_schema__`: a schema, or the type of a struct.
#[allow(unsafe_code, reason = "the C data interface is pointers in capsules")]
pub(super) fn import_schema(value: &Bound<'_, PyAny>) -> PyResult<Schema> {
    let capsule = value.call_method0("__arrow_c_schema__")?;
    let pointer = capsule.cast::<PyCapsule>()?.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    // SAFETY: the capsule's name says what it points to, and it is alive; the schema is only looked
    // at.
    let field = Field::try_from(unsafe { pointer.as_ref() });
    match field.map(|field| field.data_type().clone()) {
        Ok(DataType::Struct(fields)) => Ok(Schema::new(fields)),
        Ok(other) => {
            Err(PyTypeError::new_err(format!("an Arrow type of {other} is a column: pass a schema")))
        }
        Err(error) => Err(PyValueError::new_err(format!("the Arrow schema cannot be read: {error}"))),
    }
}

/// A builder of maps from text to text, one for each row.
pub(super) fn properties_builder() -> MapBuilder<StringBuilder, StringBuilder> {
    let names = MapFieldNames { entry: "entries".into(), key: "key".into(), value: "value".into() };
    MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new())
}

/// A batch of named columns, all nullable.
pub(super) fn batch(columns: Vec<(&str, ArrayRef)>) -> Result<RecordBatch> {
    let fields: Vec<Field> =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(arrow_error)
}

/// A record batch that other libraries read without a copy.
#[pyclass(frozen, module = "forebay._engine")]
pub(super) struct ArrowBatch(RecordBatch, Mutex<Option<Box<dyn Any + Send + Sync>>>);

impl ArrowBatch {
    /// `messages` are those of the rows, until their values are wanted.
    pub(super) fn new(batch: RecordBatch, messages: Option<Box<dyn Any + Send + Sync>>) -> Self {
        Self(batch, Mutex::leaf(messages))
    }

    pub(super) fn batch(&self) -> &RecordBatch {
        &self.0
    }

    /// The messages of the rows, once.
    pub(super) fn take_messages(&self) -> Option<Box<dyn Any + Send + Sync>> {
        self.1.lock().take()
    }
}

impl IntoPython for ArrowBatch {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, self)?.into_any())
    }
}

#[pymethods]
impl ArrowBatch {
    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        drop(requested_schema);
        let foreign = |error: arrow_schema::ArrowError| PyValueError::new_err(error.to_string());
        let data = StructArray::from(self.0.clone()).into_data();
        let schema = FFI_ArrowSchema::try_from(self.0.schema_ref().as_ref()).map_err(foreign)?;
        let array = FFI_ArrowArray::new(&data);
        Ok((PyCapsule::new_with_value(py, schema, SCHEMA)?, PyCapsule::new_with_value(py, array, ARRAY)?))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let batches = RecordBatchIterator::new([Ok(self.0.clone())], self.0.schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), STREAM)
    }
}
