//! Values from data, by a plan.

use super::plan::{Make, Plan, Read, RecordStep, Step, StepId};
use super::schema::{Kind, Logical, NodeId, Schema};
use super::{MAX_DEPTH, MAX_PAIRS};
use forebay_base::error::{Error, ErrorKind};

/// Makes values of whatever kind from what the data hold.
pub trait Builder {
    /// A value.
    type Value;
    /// Why a value cannot be made.
    type Error: From<Error>;

    /// Nothing.
    fn null(&mut self) -> Self::Value;
    /// A boolean.
    fn boolean(&mut self, value: bool) -> Result<Self::Value, Self::Error>;
    /// An int or a long.
    fn long(&mut self, value: i64) -> Result<Self::Value, Self::Error>;
    /// A float or a double.
    fn double(&mut self, value: f64) -> Result<Self::Value, Self::Error>;
    /// Bytes.
    fn bytes(&mut self, value: &[u8]) -> Result<Self::Value, Self::Error>;
    /// A text.
    fn string(&mut self, value: &str) -> Result<Self::Value, Self::Error>;
    /// A value with a meaning, from the number that stands for it in the unit of the meaning.
    fn logical_number(&mut self, logical: Logical, value: i64) -> Result<Self::Value, Self::Error>;
    /// A value with a meaning, from the bytes that stand for it.
    fn logical_bytes(&mut self, logical: Logical, value: &[u8]) -> Result<Self::Value, Self::Error>;
    /// A symbol of an enum of the reader.
    fn symbol(&mut self, reader: NodeId, index: u32) -> Result<Self::Value, Self::Error>;
    /// An array.
    fn array(&mut self, items: Vec<Self::Value>) -> Result<Self::Value, Self::Error>;
    /// A map.
    fn map(&mut self, entries: Vec<(&str, Self::Value)>) -> Result<Self::Value, Self::Error>;
    /// A record of the reader, with all its fields in their order.
    fn record(&mut self, reader: NodeId, fields: Vec<Self::Value>) -> Result<Self::Value, Self::Error>;
}

/// Values that take no room in the data, beyond those that their length allows for.
const FREE_VALUES: usize = 1 << 16;
/// Values for each byte of the data: records of records need more than one.
const VALUES_PER_BYTE: usize = 8;
/// Bytes of a default, which no data hold, that cost as much as a value.
pub const DEFAULT_BYTES_PER_VALUE: usize = 64;

/// Reads the value that `data` hold, all of them.
pub fn decode<B: Builder>(plan: &Plan, data: &[u8], builder: &mut B) -> Result<B::Value, B::Error> {
    let left = data.len().saturating_mul(VALUES_PER_BYTE).saturating_add(FREE_VALUES);
    let mut decoder = Decoder { plan, builder, left };
    let mut input = Input(data);
    let value = decoder.step(plan.root, &mut input, 0)?;
    if !input.0.is_empty() {
        return Err(bad(format_args!("{} bytes are left behind the value", input.0.len())).into());
    }
    Ok(value)
}

fn bad(text: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Schema, format!("the payload does not fit its schema: {text}"))
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let taken = self.0.split_at_checked(length);
        let (taken, rest) = taken
            .ok_or_else(|| bad(format_args!("{length} bytes are stated, and {} are left", self.0.len())))?;
        self.0 = rest;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) =
            self.0.split_first_chunk::<N>().ok_or_else(|| bad("it ends in the middle of a number"))?;
        self.0 = rest;
        Ok(*taken)
    }

    fn long(&mut self) -> Result<i64, Error> {
        let (mut value, mut shift) = (0u64, 0);
        for (index, byte) in self.0.iter().enumerate() {
            if shift == 63 && *byte > 1 {
                return Err(bad("a number has more than 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                self.0 = &self.0[index + 1..];
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
            shift += 7;
        }
        Err(bad("it ends in the middle of a number"))
    }

    fn int(&mut self) -> Result<i64, Error> {
        let value = self.long()?;
        i32::try_from(value)
            .map(i64::from)
            .map_err(|_| bad(format_args!("{value} is beyond the range of an int")))
    }

    fn bytes(&mut self) -> Result<&'a [u8], Error> {
        let length = self.long()?;
        let length = usize::try_from(length).map_err(|_| bad(format_args!("{length} is no length")))?;
        self.take(length)
    }

    fn text(&mut self) -> Result<&'a str, Error> {
        std::str::from_utf8(self.bytes()?).map_err(|_| bad("a text is no UTF-8"))
    }

    /// Number of items of the next block of an array or a map; 0 at its end.
    fn block(&mut self) -> Result<u64, Error> {
        let count = self.long()?;
        if count < 0 {
            // The size of the block follows, for those that pass over it.
            let size = self.long()?;
            if size < 0 {
                return Err(bad(format_args!("{size} is no size of a block")));
            }
        }
        Ok(count.unsigned_abs())
    }
}

struct Decoder<'a, B> {
    plan: &'a Plan,
    builder: &'a mut B,
    /// Values that may still be made.
    left: usize,
}

impl<B: Builder> Decoder<'_, B> {
    fn pay(&mut self, values: usize) -> Result<(), Error> {
        let left = self.left.checked_sub(values);
        self.left = left.ok_or_else(|| bad("it stands for far more values than it has bytes"))?;
        Ok(())
    }

    fn step(&mut self, id: StepId, input: &mut Input<'_>, depth: usize) -> Result<B::Value, B::Error> {
        self.pay(1)?;
        if depth > MAX_DEPTH {
            return Err(bad(format_args!("its values are nested more than {MAX_DEPTH} deep")).into());
        }
        let plan = self.plan;
        let mut id = id;
        // Unions are passed through without a call, and each at most once: none is a branch of
        // another.
        for _ in 0..4 {
            match &plan.steps[id as usize] {
                Step::Same(step) => id = *step,
                Step::Union(branches) => {
                    let index = input.long()?;
                    let branch = usize::try_from(index).ok().and_then(|index| branches.get(index));
                    id = match branch {
                        Some(Ok(step)) => *step,
                        Some(Err(why)) => return Err(bad(why).into()),
                        None => return Err(bad(format_args!("a union has no branch {index}")).into()),
                    };
                }
                _ => break,
            }
        }
        match &plan.steps[id as usize] {
            Step::Scalar(read, make) => self.scalar(*read, *make, input),
            Step::Array(items) => {
                let mut values = Vec::new();
                loop {
                    let count = input.block()?;
                    if count == 0 {
                        return self.builder.array(values);
                    }
                    for _ in 0..count {
                        values.push(self.step(*items, input, depth + 1)?);
                    }
                }
            }
            Step::Map(values) => {
                let mut entries = Vec::new();
                loop {
                    let count = input.block()?;
                    if count == 0 {
                        return self.builder.map(entries);
                    }
                    for _ in 0..count {
                        let key = input.text()?;
                        entries.push((key, self.step(*values, input, depth + 1)?));
                    }
                }
            }
            Step::Enum(reader, symbols) => {
                let index = input.int()?;
                let symbol = usize::try_from(index).ok().and_then(|index| symbols.get(index));
                match symbol {
                    Some(Some(index)) => self.builder.symbol(*reader, *index),
                    Some(None) => Err(bad("it has a symbol that the reader's schema lacks").into()),
                    None => Err(bad(format_args!("an enum has no symbol {index}")).into()),
                }
            }
            Step::Record(record) => self.record(record, input, depth),
            Step::Skip(_) | Step::Pending | Step::Same(_) | Step::Union(_) => {
                Err(bad("its type has no values").into())
            }
        }
    }

    fn record(
        &mut self,
        record: &RecordStep,
        input: &mut Input<'_>,
        depth: usize,
    ) -> Result<B::Value, B::Error> {
        let mut values: Vec<Option<B::Value>> = Vec::with_capacity(record.size);
        values.resize_with(record.size, || None);
        for (target, step) in &record.fields {
            match (target, &self.plan.steps[*step as usize]) {
                (None, Step::Skip(node)) => self.skip(*node, input, depth + 1)?,
                (Some(index), _) => values[*index] = Some(self.step(*step, input, depth + 1)?),
                (None, _) => return Err(bad("a field has no place").into()),
            }
        }
        for (index, data, step) in &record.defaults {
            self.pay(data.len() / DEFAULT_BYTES_PER_VALUE)?;
            let mut input = Input(data);
            values[*index] = Some(self.step(*step, &mut input, depth + 1)?);
        }
        let fields: Option<Vec<_>> = values.into_iter().collect();
        self.builder.record(record.reader, fields.ok_or_else(|| bad("a field has no value"))?)
    }

    fn scalar(&mut self, read: Read, make: Make, input: &mut Input<'_>) -> Result<B::Value, B::Error> {
        match (read, make) {
            (Read::Null, _) => Ok(self.builder.null()),
            (Read::Boolean, _) => {
                let [byte] = input.fixed()?;
                if byte > 1 {
                    return Err(bad(format_args!("{byte} is no boolean")).into());
                }
                self.builder.boolean(byte == 1)
            }
            (Read::Int | Read::Long, make) => {
                let value = if read == Read::Int { input.int()? } else { input.long()? };
                match make {
                    // A float has fewer digits than the number: the value is that of the float.
                    Make::Float => self.builder.double(f64::from(value as f32)),
                    Make::Double => self.builder.double(value as f64),
                    Make::Logical(logical) => self.builder.logical_number(logical, value),
                    _ => self.builder.long(value),
                }
            }
            (Read::Float, _) => self.builder.double(f32::from_le_bytes(input.fixed()?).into()),
            (Read::Double, _) => self.builder.double(f64::from_le_bytes(input.fixed()?)),
            (Read::Bytes | Read::Fixed(_), make) => {
                let bytes = if let Read::Fixed(size) = read { input.take(size)? } else { input.bytes()? };
                match make {
                    Make::String => {
                        let text = std::str::from_utf8(bytes).map_err(|_| bad("a text is no UTF-8"))?;
                        self.builder.string(text)
                    }
                    Make::Logical(logical) => self.builder.logical_bytes(logical, bytes),
                    _ => self.builder.bytes(bytes),
                }
            }
        }
    }

    /// Passes over a value of the writer.
    fn skip(&mut self, node: NodeId, input: &mut Input<'_>, depth: usize) -> Result<(), Error> {
        self.pay(1)?;
        if depth > MAX_DEPTH {
            return Err(bad(format_args!("its values are nested more than {MAX_DEPTH} deep")));
        }
        let schema: &Schema = self.plan.writer();
        match &schema.node(node).kind {
            Kind::Null => {}
            Kind::Boolean => drop(input.fixed::<1>()?),
            Kind::Int | Kind::Enum(_) => drop(input.int()?),
            Kind::Long => drop(input.long()?),
            Kind::Float => drop(input.fixed::<4>()?),
            Kind::Double => drop(input.fixed::<8>()?),
            Kind::Bytes | Kind::String => drop(input.bytes()?),
            Kind::Fixed(fixed) => drop(input.take(fixed.size)?),
            Kind::Array(items) => loop {
                let count = input.block()?;
                if count == 0 {
                    break;
                }
                for _ in 0..count {
                    self.skip(*items, input, depth + 1)?;
                }
            },
            Kind::Map(values) => loop {
                let count = input.block()?;
                if count == 0 {
                    break;
                }
                for _ in 0..count {
                    input.bytes()?;
                    self.skip(*values, input, depth + 1)?;
                }
            },
            Kind::Union(branches) => {
                let index = input.long()?;
                let branch = usize::try_from(index).ok().and_then(|index| branches.get(index));
                let branch = branch.ok_or_else(|| bad(format_args!("a union has no branch {index}")))?;
                self.skip(*branch, input, depth + 1)?;
            }
            Kind::Record(record) => {
                for field in &record.fields {
                    self.skip(field.node, input, depth + 1)?;
                }
            }
        }
        Ok(())
    }
}

const _: () = assert!(MAX_PAIRS < u32::MAX as usize);
