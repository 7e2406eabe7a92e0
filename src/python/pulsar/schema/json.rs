//! JSON, with the structure that a definition gives it. As the Java client writes it: bytes as
//! base64 text, enums by name.

use std::cell::Cell;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use super::decode::meant;
use super::encode::{Result, branch, bytes, fields, plain, symbol};
use super::{Names, Structure, bad, float, helpers, instance, integer, text, type_of, wants};
use forebay_avro::decode::DEFAULT_BYTES_PER_VALUE;
use forebay_avro::schema::{Enum, Record};
use forebay_avro::{Kind, Logical, MAX_DEPTH, NodeId};

pub(super) fn encode(structure: &Structure, value: &Bound<'_, PyAny>) -> Result<Vec<u8>> {
    let names = structure.names(value.py())?;
    let mut out = Vec::with_capacity(128);
    let root = structure.avro.root();
    Encoder { structure, names, out: &mut out }.put(root, value, 0)?;
    Ok(out)
}

struct Encoder<'a> {
    structure: &'a Structure,
    names: &'a Names,
    out: &'a mut Vec<u8>,
}

impl Encoder<'_> {
    fn text(&mut self, text: &str) -> Result<()> {
        serde_json::to_writer(&mut *self.out, text).map_err(bad)
    }

    fn float(&mut self, value: &Bound<'_, PyAny>) -> Result<()> {
        let number = float(value)?;
        if !number.is_finite() {
            return Err(bad(format_args!("JSON has no {number}")));
        }
        serde_json::to_writer(&mut *self.out, &number).map_err(bad)
    }

    fn put(&mut self, id: NodeId, value: &Bound<'_, PyAny>, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(bad(format_args!("values are nested more than {MAX_DEPTH} deep")));
        }
        let node = self.structure.avro.node(id);
        match (&node.kind, node.logical) {
            (_, Some(Logical::Decimal(scale))) => {
                let py = value.py();
                let digits = helpers(py)?.call_method1(intern!(py, "decimal_text"), (scale, value))?;
                self.out.extend_from_slice(text(&digits)?.as_bytes());
            }
            (Kind::Fixed(_), Some(Logical::Uuid)) | (Kind::String, Some(_)) => {
                let uuid = plain(Logical::Uuid, 0, value)?;
                self.text(&text(&uuid)?)?;
            }
            (kind, Some(logical)) => {
                let number = plain(logical, 0, value)?;
                let size = if matches!(kind, Kind::Int) { 4 } else { 8 };
                self.out.extend_from_slice(integer(&number, size)?.to_string().as_bytes());
            }
            (Kind::Null, _) if value.is_none() => self.out.extend_from_slice(b"null"),
            (Kind::Null, _) => return Err(wants("None", value)),
            (Kind::Boolean, _) => {
                let flag = value.cast::<PyBool>().map_err(|_| wants("bool", value))?;
                self.out.extend_from_slice(if flag.is_true() { b"true" } else { b"false" });
            }
            (Kind::Int, _) => self.out.extend_from_slice(integer(value, 4)?.to_string().as_bytes()),
            (Kind::Long, _) => self.out.extend_from_slice(integer(value, 8)?.to_string().as_bytes()),
            (Kind::Float | Kind::Double, _) => self.float(value)?,
            (Kind::String, _) => self.text(&text(value)?)?,
            (Kind::Bytes, _) => self.text(&BASE64.encode(bytes(value)?.bytes()))?,
            (Kind::Fixed(fixed), _) => {
                let bytes = bytes(value)?;
                let length = bytes.bytes().len();
                if length != fixed.size {
                    return Err(bad(format_args!("expected {} bytes, got {length}", fixed.size)));
                }
                self.text(&BASE64.encode(bytes.bytes()))?;
            }
            (Kind::Array(items), _) => self.array(*items, value, depth)?,
            (Kind::Map(values), _) => self.map(*values, value, depth)?,
            (Kind::Enum(of), _) => {
                let index = symbol(self.structure, id, of, value)?;
                self.text(&of.symbols[index as usize])?;
            }
            (Kind::Union(branches), _) => {
                let index = branch(self.structure, branches, value)?;
                self.put(branches[index], value, depth)?;
            }
            (Kind::Record(record), _) => self.record(id, record, value, depth)?,
        }
        Ok(())
    }

    fn array(&mut self, items: NodeId, value: &Bound<'_, PyAny>, depth: usize) -> Result<()> {
        if !value.is_instance_of::<PyList>() && !value.is_instance_of::<PyTuple>() {
            return Err(wants("list or tuple", value));
        }
        self.out.push(b'[');
        for (index, item) in value.try_iter()?.enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            self.put(items, &item?, depth + 1).map_err(|fail| fail.within(format_args!("[{index}]")))?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn map(&mut self, values: NodeId, value: &Bound<'_, PyAny>, depth: usize) -> Result<()> {
        let dict = value.cast::<PyDict>().map_err(|_| wants("dict", value))?;
        self.out.push(b'{');
        for (index, (key, value)) in dict.iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            let name = text(&key)?;
            self.text(&name)?;
            self.out.push(b':');
            self.put(values, &value, depth + 1).map_err(|fail| fail.within(format_args!("[{name:?}]")))?;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn record(&mut self, id: NodeId, record: &Record, value: &Bound<'_, PyAny>, depth: usize) -> Result<()> {
        let given = fields(self.names, id, record, value)?;
        self.out.push(b'{');
        let mut first = true;
        for (field, given) in record.fields.iter().zip(given) {
            let Some(given) = given else {
                // Readers have the default themselves.
                if field.default.is_some() {
                    continue;
                }
                return Err(bad("the field is missing").within(&field.name));
            };
            if !std::mem::take(&mut first) {
                self.out.push(b',');
            }
            self.text(&field.name)?;
            self.out.push(b':');
            self.put(field.node, &given, depth + 1).map_err(|fail| fail.within(&field.name))?;
        }
        self.out.push(b'}');
        Ok(())
    }
}

/// The value of a payload. With `lenient`, for readers that get the structure from the topic, names
/// that it lacks and values that do not fit it are as JSON has them.
pub(super) fn decode<'py>(
    py: Python<'py>,
    structure: Option<&Structure>,
    lenient: bool,
    payload: &[u8],
) -> Result<Bound<'py, PyAny>> {
    let exact = structure.is_some_and(|structure| {
        structure.avro.any(|node| matches!(node.logical, Some(Logical::Decimal(_))))
    });
    let value = load(py, payload, exact)?;
    match structure {
        None => Ok(value),
        Some(structure) => {
            let names = structure.names(py)?;
            // Branches of unions are tried one after the other, each as deep as it fits.
            let left = Cell::new(payload.len().saturating_mul(16).saturating_add(1 << 16));
            let (lenient, spent, default) = (Cell::new(lenient), Cell::new(false), Cell::new(false));
            let decoder = Decoder { structure, names, exact, left, spent, lenient, default };
            decoder.value(structure.avro.root(), &value, 0)
        }
    }
}

fn load<'py>(py: Python<'py>, json: &[u8], exact: bool) -> Result<Bound<'py, PyAny>> {
    let loads = helpers(py)?.getattr(intern!(py, "load_json"))?;
    Ok(loads.call1((PyBytes::new(py, json), exact))?)
}

struct Decoder<'a> {
    structure: &'a Structure,
    names: &'a Names,
    /// Whether numbers with a point are decimals.
    exact: bool,
    /// Values that may still be looked at.
    left: Cell<usize>,
    /// Whether there were more.
    spent: Cell<bool>,
    /// Whether what does not fit stays as it is.
    lenient: Cell<bool>,
    /// In the default of a field bytes are text with a character for each.
    default: Cell<bool>,
}

impl Decoder<'_> {
    fn value<'py>(&self, id: NodeId, json: &Bound<'py, PyAny>, depth: usize) -> Result<Bound<'py, PyAny>> {
        match self.fitting(id, json, depth) {
            Err(fail) if self.lenient.get() && !self.spent.get() && fail.is_of_value(json.py()) => {
                self.as_it_is(json, 0)
            }
            result => result,
        }
    }

    fn take(&self, values: usize) -> Result<()> {
        let left = self.left.get().checked_sub(values);
        self.spent.set(left.is_none());
        self.left.set(left.ok_or_else(|| bad("its values and the branches of its unions are too many"))?);
        Ok(())
    }

    /// A value of JSON as it would be without a structure.
    fn as_it_is<'py>(&self, json: &Bound<'py, PyAny>, depth: usize) -> Result<Bound<'py, PyAny>> {
        if !self.exact {
            return Ok(json.clone());
        }
        if depth > MAX_DEPTH {
            return Err(bad(format_args!("values are nested more than {MAX_DEPTH} deep")));
        }
        let py = json.py();
        if let Ok(list) = json.cast::<PyList>() {
            let items = list.iter().map(|item| self.as_it_is(&item, depth + 1));
            return Ok(PyList::new(py, items.collect::<Result<Vec<_>>>()?)?.into_any());
        }
        if let Ok(dict) = json.cast::<PyDict>() {
            let values = PyDict::new(py);
            for (key, item) in dict.iter() {
                values.set_item(key, self.as_it_is(&item, depth + 1)?)?;
            }
            return Ok(values.into_any());
        }
        let is_plain = json.is_none() || json.is_instance_of::<PyString>() || json.is_instance_of::<PyInt>();
        Ok(if is_plain { json.clone() } else { PyFloat::new(py, json.extract()?).into_any() })
    }

    fn fitting<'py>(&self, id: NodeId, json: &Bound<'py, PyAny>, depth: usize) -> Result<Bound<'py, PyAny>> {
        if depth > MAX_DEPTH {
            return Err(bad(format_args!("values are nested more than {MAX_DEPTH} deep")));
        }
        self.take(1)?;
        let py = json.py();
        let node = self.structure.avro.node(id);
        if let Some(logical) = node.logical {
            let is_of_bytes = matches!(node.kind, Kind::Bytes | Kind::Fixed(_));
            if self.default.get() && is_of_bytes && json.is_instance_of::<PyString>() {
                return Ok(meant(logical, self.bytes(json)?.into_any())?);
            }
            return Ok(meant(logical, json.clone())?);
        }
        match &node.kind {
            Kind::Null if json.is_none() => {}
            Kind::Null => return Err(wants("null", json)),
            Kind::Boolean if json.is_instance_of::<PyBool>() => {}
            Kind::Boolean => return Err(wants("true or false", json)),
            Kind::Int => drop(integer(json, 4)?),
            Kind::Long => drop(integer(json, 8)?),
            Kind::Float | Kind::Double => {
                let number = float(json)?;
                if !number.is_finite() {
                    return Err(bad("expected a float, got a number that is too large"));
                }
                return Ok(PyFloat::new(py, number).into_any());
            }
            Kind::String if json.is_instance_of::<PyString>() => {}
            Kind::String => return Err(wants("a text", json)),
            Kind::Bytes => return Ok(self.bytes(json)?.into_any()),
            Kind::Fixed(fixed) => {
                let bytes = self.bytes(json)?;
                let length = bytes.as_bytes().len();
                if length != fixed.size {
                    return Err(bad(format_args!("expected {} bytes, got {length}", fixed.size)));
                }
                return Ok(bytes.into_any());
            }
            Kind::Array(items) => return self.array(*items, json, depth),
            Kind::Map(of) => return self.map(*of, json, depth),
            Kind::Enum(of) => return self.symbol(id, of, json),
            Kind::Union(branches) => return self.union(branches, json, depth),
            Kind::Record(record) => return self.record(id, record, json, depth),
        }
        Ok(json.clone())
    }

    fn bytes<'py>(&self, json: &Bound<'py, PyAny>) -> Result<Bound<'py, PyBytes>> {
        let text = text(json)?;
        let bytes = if self.default.get() {
            let latin = text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect::<Option<Vec<u8>>>();
            latin.ok_or_else(|| bad("a character of the default is no byte"))?
        } else {
            let bytes = BASE64.decode(text.as_bytes());
            bytes.map_err(|error| bad(format_args!("bytes are base64 text: {error}")))?
        };
        Ok(PyBytes::new(json.py(), &bytes))
    }

    fn array<'py>(&self, items: NodeId, json: &Bound<'py, PyAny>, depth: usize) -> Result<Bound<'py, PyAny>> {
        let list = json.cast::<PyList>().map_err(|_| wants("an array", json))?;
        let mut values = Vec::with_capacity(list.len());
        for (index, item) in list.iter().enumerate() {
            let value = self.value(items, &item, depth + 1);
            values.push(value.map_err(|fail| fail.within(format_args!("[{index}]")))?);
        }
        Ok(PyList::new(json.py(), values)?.into_any())
    }

    fn map<'py>(&self, of: NodeId, json: &Bound<'py, PyAny>, depth: usize) -> Result<Bound<'py, PyAny>> {
        let dict = json.cast::<PyDict>().map_err(|_| wants("an object", json))?;
        let values = PyDict::new(json.py());
        for (key, item) in dict.iter() {
            let value = self.value(of, &item, depth + 1);
            values.set_item(&key, value.map_err(|fail| fail.within(format_args!("[{key}]")))?)?;
        }
        Ok(values.into_any())
    }

    /// The member of a symbol, or its text if the enum has no class.
    fn symbol<'py>(&self, id: NodeId, of: &Enum, json: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let py = json.py();
        let name = text(json)?;
        let index = of.symbols.iter().position(|symbol| *symbol == *name);
        let class = self.structure.classes.get(&id);
        let index = index.or(of.default.filter(|_| class.is_none()).map(|index| index as usize));
        let members = self.names.enums.get(&id);
        let member = index.and_then(|index| members?.get(index));
        if let Some(member) = member {
            return Ok(member.bind(py).clone());
        }
        // The official Python client writes the value of a member.
        if let Some(class) = class
            && let Ok(member) = class.bind(py).call1((json,))
        {
            return Ok(member);
        }
        Err(bad(format_args!("{} has no symbol {name:?}", of.name.full)))
    }

    /// The value of the first branch that has such values.
    fn union<'py>(
        &self,
        branches: &[NodeId],
        json: &Bound<'py, PyAny>,
        depth: usize,
    ) -> Result<Bound<'py, PyAny>> {
        let lenient = self.lenient.replace(false);
        let found = self.branch(branches, json, depth);
        self.lenient.set(lenient);
        let is_null = |id: &&NodeId| matches!(self.structure.avro.node(**id).kind, Kind::Null);
        let mut others = branches.iter().filter(|id| !is_null(id));
        match (found, others.next(), others.next()) {
            (Err(fail), Some(only), None) if lenient && !self.spent.get() && fail.is_of_value(json.py()) => {
                self.value(*only, json, depth + 1)
            }
            (found, ..) => found,
        }
    }

    fn branch<'py>(
        &self,
        branches: &[NodeId],
        json: &Bound<'py, PyAny>,
        depth: usize,
    ) -> Result<Bound<'py, PyAny>> {
        let mut last = None;
        // A double before a long would change integers of more than 53 bits.
        let is_whole = json.is_instance_of::<PyInt>();
        let is_float = |id: &&NodeId| {
            is_whole && matches!(self.structure.avro.node(**id).kind, Kind::Float | Kind::Double)
        };
        let whole_first = branches.iter().filter(|id| !is_float(id)).chain(branches.iter().filter(is_float));
        for branch in whole_first {
            match self.value(*branch, json, depth + 1) {
                Ok(value) => return Ok(value),
                Err(fail) => last = Some((*branch, fail)),
            }
        }
        let only = branches.iter().filter(|id| !matches!(self.structure.avro.node(**id).kind, Kind::Null));
        match last {
            Some((_, fail)) if only.count() == 1 => Err(fail),
            _ => Err(bad(format_args!("a {} is in no branch of the union", type_of(json)))),
        }
    }

    fn record<'py>(
        &self,
        id: NodeId,
        record: &Record,
        json: &Bound<'py, PyAny>,
        depth: usize,
    ) -> Result<Bound<'py, PyAny>> {
        let py = json.py();
        let dict =
            json.cast::<PyDict>().map_err(|_| wants(&format!("an object for {}", record.name.full), json))?;
        let Some((keys, class)) = self.names.records.get(&id) else {
            return Err(bad("an unknown record"));
        };
        let values = PyDict::new(py);
        let mut known = 0;
        for (field, key) in record.fields.iter().zip(keys) {
            let value = match (dict.get_item(key.bind(py))?, &field.default) {
                (Some(item), _) => {
                    known += 1;
                    self.value(field.node, &item, depth + 1)
                }
                // A class has its own defaults.
                (None, Some(default)) if class.is_none() => self.default_of(py, field.node, default, depth),
                (None, _) => continue,
            };
            values.set_item(key.bind(py), value.map_err(|fail| fail.within(&field.name))?)?;
        }
        // What the definition does not name is passed over by readers that have one of their own.
        if self.lenient.get() && known < dict.len() {
            for (key, item) in dict.iter() {
                if !values.contains(&key)? {
                    values.set_item(&key, self.as_it_is(&item, 0)?)?;
                }
            }
        }
        Ok(instance(class.as_ref(), values)?)
    }

    fn default_of<'py>(
        &self,
        py: Python<'py>,
        id: NodeId,
        default: &serde_json::Value,
        depth: usize,
    ) -> Result<Bound<'py, PyAny>> {
        let json = default.to_string();
        // A default is in no payload, and its text may be long.
        self.take(json.len() / DEFAULT_BYTES_PER_VALUE)?;
        let json = load(py, json.as_bytes(), self.exact)?;
        let around = self.default.replace(true);
        let value = self.value(id, &json, depth + 1);
        self.default.set(around);
        value
    }
}
