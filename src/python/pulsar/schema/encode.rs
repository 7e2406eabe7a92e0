//! Python objects to the Avro encoding.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMemoryView, PyString, PyTuple,
};

use super::{Fail, Names, Structure, bad, float, float32, helpers, integer, text, type_of, wants};
use crate::convert::Payload;
use forebay_avro::encode::{default_of, put_bytes, put_long};
use forebay_avro::schema::{Enum, Record};
use forebay_avro::{Kind, Logical, MAX_DEPTH, NodeId};

pub(super) type Result<T> = std::result::Result<T, Fail>;

pub(super) fn encode(structure: &Structure, value: &Bound<'_, PyAny>) -> Result<Vec<u8>> {
    let names = structure.names(value.py())?;
    let mut out = Vec::with_capacity(64);
    let root = structure.avro.root();
    Encoder { structure, names, out: &mut out }.put(root, value, 0)?;
    Ok(out)
}

struct Encoder<'a> {
    structure: &'a Structure,
    names: &'a Names,
    out: &'a mut Vec<u8>,
}

/// Name of a logical type for the helpers, and its scale.
pub(super) fn named(logical: Logical) -> (&'static str, u32) {
    match logical {
        Logical::Date => ("date", 0),
        Logical::TimeMillis => ("time-millis", 0),
        Logical::TimeMicros => ("time-micros", 0),
        Logical::TimestampMillis => ("timestamp-millis", 0),
        Logical::TimestampMicros => ("timestamp-micros", 0),
        Logical::LocalTimestampMillis => ("local-timestamp-millis", 0),
        Logical::LocalTimestampMicros => ("local-timestamp-micros", 0),
        Logical::Decimal(scale) => ("decimal", scale),
        Logical::Uuid => ("uuid", 0),
    }
}

/// The integer, bytes or text that stand for a value with a meaning. `size` is that of a fixed,
/// else 0.
pub(super) fn plain<'py>(
    logical: Logical,
    size: usize,
    value: &Bound<'py, PyAny>,
) -> Result<Bound<'py, PyAny>> {
    let py = value.py();
    let (name, scale) = named(logical);
    let made = helpers(py)?.call_method1(intern!(py, "encode"), (name, scale, size, value));
    made.map_err(|error| match error.is_instance_of::<pyo3::exceptions::PyException>(py) {
        true => bad(error.value(py)),
        false => error.into(),
    })
}

impl Encoder<'_> {
    fn put(&mut self, id: NodeId, value: &Bound<'_, PyAny>, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(bad(format_args!("values are nested more than {MAX_DEPTH} deep")));
        }
        let node = self.structure.avro.node(id);
        let converted;
        let value = match (node.logical, &node.kind) {
            (None, _) => value,
            (Some(logical), kind) => {
                let size = if let Kind::Fixed(fixed) = kind { fixed.size } else { 0 };
                converted = plain(logical, size, value)?;
                &converted
            }
        };
        match &node.kind {
            Kind::Null if value.is_none() => {}
            Kind::Null => return Err(wants("None", value)),
            Kind::Boolean => {
                let flag = value.cast::<PyBool>().map_err(|_| wants("bool", value))?;
                self.out.push(u8::from(flag.is_true()));
            }
            Kind::Int => put_long(self.out, integer(value, 4)?),
            Kind::Long => put_long(self.out, integer(value, 8)?),
            Kind::Float => self.out.extend_from_slice(&float32(value)?.to_le_bytes()),
            Kind::Double => self.out.extend_from_slice(&float(value)?.to_le_bytes()),
            Kind::String => put_bytes(self.out, text(value)?.as_bytes()),
            Kind::Bytes => put_bytes(self.out, bytes(value)?.bytes()),
            Kind::Fixed(fixed) => {
                let bytes = bytes(value)?;
                if bytes.bytes().len() != fixed.size {
                    let got = bytes.bytes().len();
                    return Err(bad(format_args!("expected {} bytes, got {got}", fixed.size)));
                }
                self.out.extend_from_slice(bytes.bytes());
            }
            Kind::Array(items) => {
                let items = *items;
                self.array(items, value, depth)?;
            }
            Kind::Map(values) => {
                let dict = value.cast::<PyDict>().map_err(|_| wants("dict", value))?;
                if !dict.is_empty() {
                    put_long(self.out, dict.len() as i64);
                    for (key, value) in dict.iter() {
                        let name = text(&key)?;
                        put_bytes(self.out, name.as_bytes());
                        self.put(*values, &value, depth + 1)
                            .map_err(|fail| fail.within(format_args!("[{name:?}]")))?;
                    }
                }
                self.out.push(0);
            }
            Kind::Enum(of) => put_long(self.out, symbol(self.structure, id, of, value)?.into()),
            Kind::Union(branches) => {
                let index = branch(self.structure, branches, value)?;
                put_long(self.out, index as i64);
                self.put(branches[index], value, depth)?;
            }
            Kind::Record(record) => self.record(id, record, value, depth)?,
        }
        Ok(())
    }

    fn array(&mut self, items: NodeId, value: &Bound<'_, PyAny>, depth: usize) -> Result<()> {
        if !value.is_instance_of::<PyList>() && !value.is_instance_of::<PyTuple>() {
            return Err(wants("list or tuple", value));
        }
        let length = value.len()?;
        if length > 0 {
            put_long(self.out, length as i64);
            let mut count = 0;
            for item in value.try_iter()? {
                let index = count;
                self.put(items, &item?, depth + 1).map_err(|fail| fail.within(format_args!("[{index}]")))?;
                count += 1;
            }
            if count != length {
                return Err(bad("the list changed while it was encoded"));
            }
        }
        self.out.push(0);
        Ok(())
    }

    fn record(&mut self, id: NodeId, record: &Record, value: &Bound<'_, PyAny>, depth: usize) -> Result<()> {
        let names = self.names;
        let fields = fields(names, id, record, value)?;
        for (field, given) in record.fields.iter().zip(fields) {
            match (given, &field.default) {
                (Some(given), _) => {
                    self.put(field.node, &given, depth + 1).map_err(|fail| fail.within(&field.name))?;
                }
                (None, Some(default)) => {
                    let encoded = default_of(&self.structure.avro, field.node, default)?;
                    self.out.extend_from_slice(&encoded);
                }
                (None, None) => return Err(bad("the field is missing").within(&field.name)),
            }
        }
        Ok(())
    }
}

/// The values of the fields of a record, those that are not given as `None`.
pub(super) fn fields<'py>(
    names: &Names,
    id: NodeId,
    record: &Record,
    value: &Bound<'py, PyAny>,
) -> Result<Vec<Option<Bound<'py, PyAny>>>> {
    let py = value.py();
    let Some((keys, class)) = names.records.get(&id) else { return Err(bad("an unknown record")) };
    let class = class.as_ref().map(|class| class.bind(py));
    let Some(class) = class else {
        let dict =
            value.cast::<PyDict>().map_err(|_| wants(&format!("dict of {}", record.name.full), value))?;
        let found = keys.iter().map(|key| dict.get_item(key.bind(py))).collect::<PyResult<Vec<_>>>()?;
        if found.iter().flatten().count() != dict.len() {
            let is_known = |key: &Bound<'_, PyAny>| keys.iter().any(|known| key.eq(known).unwrap_or(false));
            let unknown = dict.keys().iter().find(|key| !is_known(key));
            let name = unknown.map(|key| key.to_string()).unwrap_or_default();
            return Err(bad(format_args!("{} has no such field", record.name.full)).within(name));
        }
        return Ok(found);
    };
    if !value.is_instance(class)? {
        return Err(wants(&class.getattr(intern!(py, "__name__"))?.to_string(), value));
    }
    keys.iter().map(|key| Ok(Some(value.getattr(key.bind(py))?))).collect()
}

/// The index of a symbol: the name of a member of an enumeration, or a text.
pub(super) fn symbol(structure: &Structure, id: NodeId, of: &Enum, value: &Bound<'_, PyAny>) -> Result<u32> {
    let py = value.py();
    let class = structure.classes.get(&id).map(|class| class.bind(py));
    let is_member = match class {
        Some(class) => value.is_instance(class)?,
        None => !value.is_exact_instance_of::<PyString>() && value.hasattr(intern!(py, "name"))?,
    };
    let named;
    let name = if is_member {
        named = value.getattr(intern!(py, "name"))?;
        text(&named)?
    } else if value.is_exact_instance_of::<PyString>() {
        text(value)?
    } else {
        return Err(wants(&of.name.full, value));
    };
    let index = of.symbols.iter().position(|symbol| *symbol == *name);
    index.map(|index| index as u32).ok_or_else(|| {
        bad(format_args!("{} has no symbol {name:?}: use one of {}", of.name.full, of.symbols.join(", ")))
    })
}

pub(super) fn bytes<'a>(value: &'a Bound<'_, PyAny>) -> Result<Payload<'a>> {
    if is_bytes(value) { Ok(Payload::of(value)?) } else { Err(wants("bytes", value)) }
}

fn is_bytes(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyByteArray>()
        || value.is_instance_of::<PyMemoryView>()
}

/// The branch of a union that a value is of.
pub(super) fn branch(structure: &Structure, branches: &[NodeId], value: &Bound<'_, PyAny>) -> Result<usize> {
    for (index, id) in branches.iter().enumerate() {
        if fits(structure, *id, value)? {
            return Ok(index);
        }
    }
    // An int where only floats are.
    let is_float = |id: &NodeId| {
        let node = structure.avro.node(*id);
        node.logical.is_none() && matches!(node.kind, Kind::Float | Kind::Double)
    };
    if value.is_instance_of::<PyInt>()
        && !value.is_instance_of::<PyBool>()
        && let Some(index) = branches.iter().position(is_float)
    {
        return Ok(index);
    }
    // The only branch besides null says best what is wrong.
    let kind = |id: &NodeId| &structure.avro.node(*id).kind;
    let others: Vec<_> = branches
        .iter()
        .enumerate()
        .filter(|(_, id)| **id < u32::MAX && !matches!(kind(id), Kind::Null))
        .collect();
    if let [(index, _)] = others[..]
        && !value.is_none()
    {
        return Ok(index);
    }
    let all: Vec<_> = branches.iter().map(|id| kind(id).describe()).collect();
    Err(bad(format_args!("expected one of {}, got {}", all.join(", "), type_of(value))))
}

/// Whether a value is of a type, from the outside.
fn fits(structure: &Structure, id: NodeId, value: &Bound<'_, PyAny>) -> Result<bool> {
    let py = value.py();
    let node = structure.avro.node(id);
    if let Some(logical) = node.logical {
        let answer = helpers(py)?.call_method1(intern!(py, "fits"), (named(logical).0, value))?;
        return Ok(answer.is_truthy()?);
    }
    let class = structure.classes.get(&id).map(|class| class.bind(py));
    Ok(match &node.kind {
        Kind::Null => value.is_none(),
        Kind::Boolean => value.is_instance_of::<PyBool>(),
        Kind::Int => integer(value, 4).is_ok(),
        Kind::Long => integer(value, 8).is_ok(),
        Kind::Float | Kind::Double => value.is_instance_of::<PyFloat>(),
        Kind::String => value.is_instance_of::<PyString>(),
        Kind::Bytes | Kind::Fixed(_) => is_bytes(value),
        Kind::Array(_) => value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>(),
        Kind::Map(_) => value.is_instance_of::<PyDict>(),
        Kind::Enum(of) => match class {
            Some(class) => value.is_instance(class)?,
            None => symbol(structure, id, of, value).is_ok(),
        },
        Kind::Record(record) => match (class, value.cast::<PyDict>()) {
            (Some(class), _) => value.is_instance(class)?,
            (None, Err(_)) => false,
            (None, Ok(dict)) => {
                let mut known = 0;
                for field in &record.fields {
                    match dict.contains(field.name.as_str())? {
                        true => known += 1,
                        false if field.default.is_none() => return Ok(false),
                        false => {}
                    }
                }
                known == dict.len()
            }
        },
        Kind::Union(_) => false,
    })
}
