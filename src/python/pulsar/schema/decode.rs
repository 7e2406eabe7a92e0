//! The Avro encoding to Python objects.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyList, PyString};

use super::encode::named;
use super::{Fail, Names, Structure, bad, helpers, instance};
use forebay_avro::{Builder, Logical, NodeId, Plan};

type Result<T> = std::result::Result<T, Fail>;

pub(super) fn decode<'py>(
    py: Python<'py>,
    plan: &Plan,
    structure: &Structure,
    payload: &[u8],
) -> Result<Bound<'py, PyAny>> {
    let names = structure.names(py)?;
    forebay_avro::decode(plan, payload, &mut Objects { py, names })
}

/// Makes Python objects.
struct Objects<'a, 'py> {
    py: Python<'py>,
    names: &'a Names,
}

/// The value with a meaning that an integer, bytes or a text stand for.
pub(super) fn meant<'py>(logical: Logical, plain: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = plain.py();
    let (name, scale) = named(logical);
    helpers(py)?.call_method1(intern!(py, "decode"), (name, scale, plain))
}

impl<'py> Builder for Objects<'_, 'py> {
    type Value = Bound<'py, PyAny>;
    type Error = Fail;

    fn null(&mut self) -> Self::Value {
        self.py.None().into_bound(self.py)
    }

    fn boolean(&mut self, value: bool) -> Result<Self::Value> {
        Ok(PyBool::new(self.py, value).to_owned().into_any())
    }

    fn long(&mut self, value: i64) -> Result<Self::Value> {
        Ok(value.into_pyobject(self.py).map_err(PyErr::from)?.into_any())
    }

    fn double(&mut self, value: f64) -> Result<Self::Value> {
        Ok(PyFloat::new(self.py, value).into_any())
    }

    fn bytes(&mut self, value: &[u8]) -> Result<Self::Value> {
        Ok(PyBytes::new(self.py, value).into_any())
    }

    fn string(&mut self, value: &str) -> Result<Self::Value> {
        Ok(PyString::new(self.py, value).into_any())
    }

    fn logical_number(&mut self, logical: Logical, value: i64) -> Result<Self::Value> {
        let number = self.long(value)?;
        Ok(meant(logical, number)?)
    }

    fn logical_bytes(&mut self, logical: Logical, value: &[u8]) -> Result<Self::Value> {
        let plain = self.bytes(value)?;
        Ok(meant(logical, plain)?)
    }

    fn symbol(&mut self, reader: NodeId, index: u32) -> Result<Self::Value> {
        let symbols = self.names.enums.get(&reader);
        let symbol = symbols.and_then(|symbols| symbols.get(index as usize));
        symbol.map(|symbol| symbol.bind(self.py).clone()).ok_or_else(|| bad("an unknown symbol"))
    }

    fn array(&mut self, items: Vec<Self::Value>) -> Result<Self::Value> {
        Ok(PyList::new(self.py, items)?.into_any())
    }

    fn map(&mut self, entries: Vec<(&str, Self::Value)>) -> Result<Self::Value> {
        let dict = PyDict::new(self.py);
        for (key, value) in entries {
            dict.set_item(key, value)?;
        }
        Ok(dict.into_any())
    }

    fn record(&mut self, reader: NodeId, fields: Vec<Self::Value>) -> Result<Self::Value> {
        let Some((keys, class)) = self.names.records.get(&reader) else {
            return Err(bad("an unknown record"));
        };
        let dict = PyDict::new(self.py);
        for (key, value) in keys.iter().zip(fields) {
            dict.set_item(key.bind(self.py), value)?;
        }
        Ok(instance(class.as_ref(), dict)?)
    }
}
