//! Values as Avro data, and as JSON as the Java client writes it: bytes as Base64, enums by name,
//! times as numbers.

use std::io::Write as _;

use arrow_array::Array as _;
use arrow_schema::DataType;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::Flaw;
use super::column::{Bytes, Column, Decimals, Digits, Part, Source, Unit, Values};
use forebay_avro::encode::{put_bytes, put_long};
use forebay_avro::schema::Enum;
use forebay_base::random::HashMap;

type Result<T> = std::result::Result<T, Flaw>;

/// Writes a row whose columns are the fields of a record.
pub(super) fn row(parts: &[Part<'_>], row: usize, json: bool, out: &mut Vec<u8>) -> Result<()> {
    if json { json_record(parts, row, out) } else { avro_record(parts, row, out) }
}

fn avro_record(parts: &[Part<'_>], row: usize, out: &mut Vec<u8>) -> Result<()> {
    for part in parts {
        match &part.from {
            Source::Column(column) => column.avro(row, out).map_err(|flaw| flaw.within(part.name))?,
            Source::Default(encoded) => out.extend_from_slice(encoded),
        }
    }
    Ok(())
}

fn json_record(parts: &[Part<'_>], row: usize, out: &mut Vec<u8>) -> Result<()> {
    out.push(b'{');
    let mut first = true;
    for part in parts {
        // Readers have the default themselves.
        let Source::Column(column) = &part.from else { continue };
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        put_text(out, part.name)?;
        out.push(b':');
        column.json(row, out).map_err(|flaw| flaw.within(part.name))?;
    }
    out.push(b'}');
    Ok(())
}

fn null() -> Flaw {
    Flaw::new("it is null, and the field may not be")
}

fn not_null() -> Flaw {
    Flaw::new("it is a value, and null is the only one of the field")
}

impl Column<'_> {
    pub(super) fn is_null(&self, row: usize) -> bool {
        *self.array.data_type() == DataType::Null || self.array.is_null(row)
    }

    /// Writes the value of a row as Avro data.
    pub(super) fn avro(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        if let Values::Union(none, index, of) = &self.of {
            let branch = if of.is_null(row) { none.ok_or_else(null)? } else { *index };
            put_long(out, branch as i64);
            return if branch == *index && !of.is_null(row) { of.avro(row, out) } else { Ok(()) };
        }
        match (&self.of, self.is_null(row)) {
            (Values::Nothing, true) => return Ok(()),
            (Values::Nothing, false) => return Err(not_null()),
            (_, true) => return Err(null()),
            (_, false) => {}
        }
        match &self.of {
            Values::Null | Values::Nothing | Values::Union(..) => {}
            Values::Boolean(array) => out.push(u8::from(array.value(row))),
            Values::Integer(array, size) => put_long(out, sized(array.value(row), *size)?),
            Values::Float(array) => out.extend_from_slice(&single(array.value(row))?.to_le_bytes()),
            Values::Double(array) => out.extend_from_slice(&array.value(row).to_le_bytes()),
            Values::Text(bytes) => put_bytes(out, text(bytes, row)?.as_bytes()),
            Values::Bytes(bytes) => put_bytes(out, bytes.value(row)),
            Values::Fixed(bytes, size) => out.extend_from_slice(fixed(bytes, row, *size)?),
            Values::Enum(texts, of, symbols) => {
                put_long(out, symbol(texts, row, of, symbols)?.into());
            }
            Values::Time(array, unit, size) => put_long(out, time(array.value(row), *unit, *size)?),
            Values::Decimal(numbers, digits, None) => {
                put_bytes(out, shortest(&unscaled(numbers, row, *digits)?))
            }
            Values::Decimal(numbers, digits, Some(size)) => {
                let bytes = unscaled(numbers, row, *digits)?;
                let short = shortest(&bytes);
                let more = size.checked_sub(short.len()).ok_or_else(|| {
                    Flaw::new(format!("{} does not fit into {size} bytes", numbers.show(row)))
                })?;
                let sign = if bytes[0] & 0x80 == 0 { 0 } else { 0xff };
                out.resize(out.len() + more, sign);
                out.extend_from_slice(short);
            }
            Values::Uuid { from, is_text, to_text } => {
                let id = uuid(from, row, *is_text)?;
                if *to_text { put_bytes(out, hyphenated(id).as_bytes()) } else { out.extend_from_slice(&id) }
            }
            Values::Array(lists, items) => {
                let range = lists.range(row);
                if !range.is_empty() {
                    put_long(out, range.len() as i64);
                    for (index, at) in range.enumerate() {
                        items.avro(at, out).map_err(|flaw| flaw.within(format_args!("[{index}]")))?;
                    }
                }
                out.push(0);
            }
            Values::Map(lists, keys, values) => {
                let range = lists.range(row);
                if !range.is_empty() {
                    put_long(out, range.len() as i64);
                    for at in range {
                        let key = text(keys, at)?;
                        put_bytes(out, key.as_bytes());
                        values.avro(at, out).map_err(|flaw| flaw.within(format_args!("[{key:?}]")))?;
                    }
                }
                out.push(0);
            }
            Values::Record(parts) => avro_record(parts, row, out)?,
        }
        Ok(())
    }

    /// Writes the value of a row as JSON.
    pub(super) fn json(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        if let Values::Union(none, _, of) = &self.of {
            if of.is_null(row) {
                none.ok_or_else(null)?;
                out.extend_from_slice(b"null");
                return Ok(());
            }
            return of.json(row, out);
        }
        match (&self.of, self.is_null(row)) {
            (Values::Nothing, true) => {
                out.extend_from_slice(b"null");
                return Ok(());
            }
            (Values::Nothing, false) => return Err(not_null()),
            (_, true) => return Err(null()),
            (_, false) => {}
        }
        match &self.of {
            Values::Null | Values::Nothing | Values::Union(..) => {}
            Values::Boolean(array) => {
                out.extend_from_slice(if array.value(row) { b"true" } else { b"false" });
            }
            Values::Integer(array, size) => put_number(out, sized(array.value(row), *size)?),
            Values::Float(array) => put_float(out, single(array.value(row))?.into())?,
            Values::Double(array) => put_float(out, array.value(row))?,
            Values::Text(bytes) => put_text(out, text(bytes, row)?)?,
            Values::Bytes(bytes) => put_text(out, &BASE64.encode(bytes.value(row)))?,
            Values::Fixed(bytes, size) => put_text(out, &BASE64.encode(fixed(bytes, row, *size)?))?,
            Values::Enum(texts, of, symbols) => {
                let index = symbol(texts, row, of, symbols)?;
                put_text(out, &of.symbols[index as usize])?;
            }
            Values::Time(array, unit, size) => put_number(out, time(array.value(row), *unit, *size)?),
            Values::Decimal(numbers, digits, _) => {
                unscaled(numbers, row, *digits)?;
                out.extend_from_slice(numbers.show(row).as_bytes());
            }
            Values::Uuid { from, is_text, .. } => put_text(out, &hyphenated(uuid(from, row, *is_text)?))?,
            Values::Array(lists, items) => {
                out.push(b'[');
                for (index, at) in lists.range(row).enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    items.json(at, out).map_err(|flaw| flaw.within(format_args!("[{index}]")))?;
                }
                out.push(b']');
            }
            Values::Map(lists, keys, values) => {
                out.push(b'{');
                for (index, at) in lists.range(row).enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    let key = text(keys, at)?;
                    put_text(out, key)?;
                    out.push(b':');
                    values.json(at, out).map_err(|flaw| flaw.within(format_args!("[{key:?}]")))?;
                }
                out.push(b'}');
            }
            Values::Record(parts) => json_record(parts, row, out)?,
        }
        Ok(())
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) -> Result<()> {
    serde_json::to_writer(out, text).map_err(|error| Flaw::new(error.to_string()))
}

fn put_number(out: &mut Vec<u8>, number: i64) {
    let _ = write!(out, "{number}");
}

fn put_float(out: &mut Vec<u8>, number: f64) -> Result<()> {
    if !number.is_finite() {
        return Err(Flaw::new(format!("JSON has no {number}")));
    }
    serde_json::to_writer(out, &number).map_err(|error| Flaw::new(error.to_string()))
}

/// An integer that fits into this many bytes.
pub(super) fn sized(value: i128, size: usize) -> Result<i64> {
    let shift = 128 - 8 * size as u32;
    if (value << shift) >> shift != value {
        return Err(Flaw::new(format!("{value} does not fit into {} bits", size * 8)));
    }
    Ok(value as i64)
}

/// A float of 32 bits. Digits are lost, as in other clients; a number does not become an infinity.
pub(super) fn single(value: f64) -> Result<f32> {
    let single = value as f32;
    if value.is_finite() && single.is_infinite() {
        return Err(Flaw::new(format!("{value:e} does not fit into a float of 32 bits")));
    }
    Ok(single)
}

pub(super) fn text(bytes: &Bytes, row: usize) -> Result<&str> {
    std::str::from_utf8(bytes.value(row)).map_err(|_| Flaw::new("it is no UTF-8"))
}

fn fixed(bytes: &Bytes, row: usize, size: usize) -> Result<&[u8]> {
    let bytes = bytes.value(row);
    if bytes.len() != size {
        return Err(Flaw::new(format!("it has {} bytes, and the field has {size}", bytes.len())));
    }
    Ok(bytes)
}

fn symbol(texts: &Bytes, row: usize, of: &Enum, symbols: &HashMap<&str, u32>) -> Result<u32> {
    let name = text(texts, row)?;
    symbols.get(name).copied().ok_or_else(|| {
        let known = of.symbols.join(", ");
        Flaw::new(format!("{} has no symbol {name:?}: use one of {known}", of.name.full))
    })
}

fn time(value: i64, unit: Unit, size: usize) -> Result<i64> {
    let changed = match unit {
        Unit::Times(by) => i128::from(value) * i128::from(by),
        Unit::By(by) => value.div_euclid(by).into(),
    };
    sized(changed, size)
}

fn unscaled(numbers: &Decimals, row: usize, digits: Digits) -> Result<[u8; 32]> {
    let Digits { scale, precision, .. } = digits;
    let unscaled = numbers.unscaled(row, scale).ok_or_else(|| {
        let number = numbers.show(row);
        Flaw::new(format!("{number} has more than {scale} digits behind the point, or does not fit"))
    })?;
    if !digits.admit(unscaled) {
        let number = numbers.show(row);
        return Err(Flaw::new(format!(
            "{number} has more than {precision} digits, {scale} of them behind the point"
        )));
    }
    Ok(unscaled.to_be_bytes())
}

/// A big-endian number without the bytes that say nothing.
fn shortest(bytes: &[u8; 32]) -> &[u8] {
    let sign = if bytes[0] & 0x80 == 0 { 0 } else { 0xff };
    let is_needed = |at: usize| bytes[at] != sign || bytes[at + 1] & 0x80 != sign & 0x80;
    let start = (0..31).find(|at| is_needed(*at)).unwrap_or(31);
    &bytes[start..]
}

fn uuid(from: &Bytes, row: usize, is_text: bool) -> Result<[u8; 16]> {
    let bytes = from.value(row);
    if !is_text {
        return bytes.try_into().map_err(|_| Flaw::new("a UUID has 16 bytes"));
    }
    let unfit = || Flaw::new(format!("{:?} is no UUID", String::from_utf8_lossy(bytes)));
    parsed(bytes).ok_or_else(unfit)
}

/// The UUID of a text, with or without its hyphens.
pub(super) fn parsed(bytes: &[u8]) -> Option<[u8; 16]> {
    let places = if bytes.len() == 36 { &[8, 13, 18, 23][..] } else { &[] };
    let mut id = [0u8; 16];
    let mut digits = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if places.contains(&at) {
            if *byte != b'-' {
                return None;
            }
            continue;
        }
        let digit = char::from(*byte).to_digit(16)?;
        let place = id.get_mut(digits / 2)?;
        *place = *place << 4 | digit as u8;
        digits += 1;
    }
    (digits == 32).then_some(id)
}

pub(crate) fn hyphenated(id: [u8; 16]) -> String {
    let number = u128::from_be_bytes(id);
    let hex = format!("{number:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
