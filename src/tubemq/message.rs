//! Outgoing and received messages: payloads with attributes.
//!
//! ```text
//! flag 0   [payload]
//! flag 1   [length of attributes u32][name=value,name=value...][payload]
//! ```
//! System attributes come first. `$msgType$` and `$msgTime$` are defined by the protocol; `$key$`
//! is a convention of this client, percent-encoded if the key contains separators. The checksum of
//! fetched data is the CRC-32 without its highest bit.

use std::borrow::Cow;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::pb;
use forebay_base::calendar;
use forebay_base::checksum::crc32;
use forebay_base::error::{Error, ErrorKind, Result};

/// Attribute with the message type, for filters.
pub const TYPE: &str = "$msgType$";
/// Attribute with the message time, to the minute.
pub const TIME: &str = "$msgTime$";
/// Attribute with the message key.
pub const KEY: &str = "$key$";

/// Maximum length of a message type; filters cannot name longer ones.
const MAX_TYPE: usize = 256;
/// Flag of data that begin with attributes.
pub const HAS_ATTRIBUTES: i32 = 1;

/// Characters that separate attributes, and names from values.
const SEPARATORS: [char; 2] = [',', '='];

const MINUTE_MS: u64 = 60_000;
/// Last millisecond that `yyyyMMddHHmm` can represent.
const LAST_MS: u64 = 253_402_300_799_999;
const DAY_MINUTES: u64 = 24 * 60;

/// A message to be packed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outgoing<'a> {
    /// Payload; must not be empty.
    pub payload: &'a [u8],
    /// Key.
    pub key: Option<&'a str>,
    /// Message type, for filters.
    pub message_type: Option<&'a str>,
    /// Event time in milliseconds since 1970; stored to the minute.
    pub time: Option<u64>,
    /// Properties as name and value pairs.
    pub properties: &'a [(&'a str, &'a str)],
}

/// A packed message, ready to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Attributes, if any, followed by the payload.
    pub data: Bytes,
    /// Flag that states whether there are attributes.
    pub flag: i32,
    /// Message type, by which brokers filter.
    pub message_type: Option<String>,
    /// Event time as `yyyyMMddHHmm`, by which brokers keep statistics.
    pub time: Option<String>,
}

/// Packs a message.
pub fn pack(message: &Outgoing<'_>) -> Result<Packed> {
    let invalid = |text: String| Err(Error::new(ErrorKind::InvalidArgument, text));
    if message.payload.is_empty() {
        return invalid("the payload is empty; TubeMQ requires at least one byte".into());
    }
    if let Some(ms) = message.time.filter(|ms| *ms > LAST_MS) {
        return invalid(format!(
            "event time {ms} is out of range: milliseconds since 1970, up to the year 9999"
        ));
    }
    let time = message.time.map(minute);
    let mut text = String::new();
    if let Some(message_type) = message.message_type {
        if message_type.is_empty() || message_type.len() > MAX_TYPE || message_type.trim() != message_type {
            return invalid(format!(
                "message type {message_type:?} must have 1 to {MAX_TYPE} bytes and no blanks at either end"
            ));
        }
        if message_type.contains(SEPARATORS) {
            return invalid(format!("message type {message_type:?} must not contain , or ="));
        }
        put(&mut text, TYPE, message_type);
    }
    if let Some(time) = &time {
        put(&mut text, TIME, time);
    }
    if let Some(key) = message.key {
        put(&mut text, KEY, &coded(key));
    }
    for (name, value) in message.properties {
        if [TYPE, TIME, KEY].contains(name) || name.is_empty() {
            return invalid(format!("{name:?} cannot be the name of a property"));
        }
        if name.contains(SEPARATORS) || value.contains(SEPARATORS) {
            return invalid(format!(
                "property {name:?} with value {value:?}: names and values must not contain , or ="
            ));
        }
        put(&mut text, name, value);
    }
    let (data, flag) = if text.is_empty() {
        (Bytes::copy_from_slice(message.payload), 0)
    } else {
        let mut data = BytesMut::with_capacity(4 + text.len() + message.payload.len());
        data.put_u32(text.len() as u32);
        data.put_slice(text.as_bytes());
        data.put_slice(message.payload);
        (data.freeze(), HAS_ATTRIBUTES)
    };
    Ok(Packed { data, flag, message_type: message.message_type.map(str::to_owned), time })
}

fn put(text: &mut String, name: &str, value: &str) {
    if !text.is_empty() {
        text.push(',');
    }
    text.push_str(name);
    text.push('=');
    text.push_str(value);
}

fn coded(key: &str) -> Cow<'_, str> {
    if !key.contains(['%', ',', '=']) {
        return Cow::Borrowed(key);
    }
    Cow::Owned(key.replace('%', "%25").replace(',', "%2C").replace('=', "%3D"))
}

fn decoded(key: &str) -> Cow<'_, str> {
    if !key.contains('%') {
        return Cow::Borrowed(key);
    }
    Cow::Owned(key.replace("%2C", ",").replace("%3D", "=").replace("%25", "%"))
}

/// Formats a time as `yyyyMMddHHmm` in UTC.
fn minute(ms: u64) -> String {
    let minutes = ms / MINUTE_MS;
    let (days, rest) = (minutes / DAY_MINUTES, minutes % DAY_MINUTES);
    let (year, month, day) = calendar::date(days);
    format!("{year:04}{month:02}{day:02}{:02}{:02}", rest / 60, rest % 60)
}

/// Parses `yyyyMMddHHmm` as UTC; returns milliseconds since 1970.
fn from_minute(text: &str) -> Option<u64> {
    let valid = text.len() == 12 && text.bytes().all(|b| b.is_ascii_digit());
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<u64>().ok();
    let (year, month, day) = valid.then_some((number(0..4)?, number(4..6)?, number(6..8)?))?;
    let (hour, minute) = (number(8..10)?, number(10..12)?);
    let sane =
        year >= 1970 && (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60;
    sane.then_some(())?;
    let days = calendar::days(year, month, day)?;
    Some((days * DAY_MINUTES + hour * 60 + minute) * MINUTE_MS)
}

/// Attributes of a received message, unparsed.
#[derive(Clone, Debug, Default)]
pub struct Attributes(Bytes);

impl Attributes {
    /// Bytes of them.
    pub fn size(&self) -> usize {
        self.0.len()
    }

    /// Names and values in order, including system attributes. Empty if the attributes are not
    /// UTF-8.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let text = std::str::from_utf8(&self.0).unwrap_or_default();
        text.split(',').filter_map(|pair| pair.split_once('='))
    }

    /// Value of an attribute.
    pub fn get(&self, name: &str) -> Option<&str> {
        if self.0.is_empty() {
            return None;
        }
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Message type, for filters.
    pub fn message_type(&self) -> Option<&str> {
        self.get(TYPE)
    }

    /// Key, if the message has one by this client's convention.
    pub fn key(&self) -> Option<Cow<'_, str>> {
        self.get(KEY).map(decoded)
    }

    /// Event time in milliseconds since 1970, to the minute. Official clients write their local
    /// time.
    pub fn time(&self) -> Option<u64> {
        self.get(TIME).and_then(from_minute)
    }

    /// Names and values, excluding system attributes.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &str)> {
        self.iter().filter(|(name, _)| ![TYPE, TIME, KEY].contains(name))
    }
}

/// Computes the checksum of a message's data: a CRC-32 without its highest bit. Producers may send
/// -1 instead.
pub fn checksum(data: &[u8]) -> i32 {
    (crc32(data) & 0x7fff_ffff) as i32
}

/// Hash by which brokers filter: Java's hash of the message type, trimmed. Different types may have
/// the same hash, so a consumer compares the type itself as well.
pub fn type_hash(message_type: &str) -> i32 {
    // Java trims all characters up to and including the blank.
    let trimmed = message_type.trim_matches(|c| c <= ' ');
    trimmed.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// Extracts payload and attributes of a received message.
pub fn unpack(message: pb::TransferedMessage) -> Result<(Bytes, Attributes)> {
    let mut data = message.pay_load_data;
    if checksum(&data) != message.check_sum {
        return Err(Error::new(ErrorKind::Checksum, "the checksum of the received message does not match"));
    }
    if message.flag & HAS_ATTRIBUTES == 0 {
        return Ok((data, Attributes::default()));
    }
    // The Java client sets the flag for an empty attribute too, and sends neither attributes nor
    // their length. The checksum says that the bytes are what was sent.
    let length = data.get(..4).map(|mut length| length.get_u32() as usize);
    let Some(length) = length.filter(|length| *length <= data.len() - 4) else {
        return Ok((data, Attributes::default()));
    };
    data.advance(4);
    let attributes = data.split_to(length);
    Ok((data, Attributes(attributes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_there_and_back() {
        for (ms, text) in [
            (0, "197001010000"),
            (951_827_640_000, "200002291234"),
            (1_700_000_000_000, "202311142213"),
            (4_102_444_800_000, "210001010000"),
        ] {
            assert_eq!(minute(ms), text);
            assert_eq!(from_minute(text), Some(ms / MINUTE_MS * MINUTE_MS), "{text}");
        }
        for text in ["", "20231114221", "2023111422133", "202313142213", "20231114221x", "202311142460"] {
            assert_eq!(from_minute(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let properties = [("a", "b"), ("c", "")];
        let outgoing = Outgoing {
            payload: b"payload",
            key: Some("a,b=c%2C"),
            message_type: Some("till"),
            time: Some(1_700_000_000_000),
            properties: &properties,
        };
        let packed = pack(&outgoing).unwrap();
        assert_eq!((packed.flag, packed.message_type.as_deref()), (1, Some("till")));
        let check_sum = checksum(&packed.data);
        let came =
            pb::TransferedMessage { message_id: 1, check_sum, pay_load_data: packed.data, flag: packed.flag };
        let (payload, attributes) = unpack(came.clone()).unwrap();
        assert_eq!(payload, &b"payload"[..]);
        assert_eq!(attributes.key().as_deref(), Some("a,b=c%2C"));
        assert_eq!(attributes.message_type(), Some("till"));
        assert_eq!(attributes.time(), Some(1_699_999_980_000));
        assert_eq!(attributes.properties().collect::<Vec<_>>(), properties);
        let wrong = pb::TransferedMessage { check_sum: check_sum ^ 1, ..came };
        assert_eq!(unpack(wrong).unwrap_err().kind(), ErrorKind::Checksum);
    }

    #[test]
    fn a_message_that_only_claims_attributes_is_all_payload() {
        for data in [&b""[..], b"\0\0\0", b"\0\0\0\x05abcd", b"\xff\xff\xff\xff....", b"\x80\0\0\0...."] {
            let data = Bytes::copy_from_slice(data);
            let check_sum = checksum(&data);
            let came =
                pb::TransferedMessage { message_id: 1, check_sum, pay_load_data: data.clone(), flag: 1 };
            let (payload, attributes) = unpack(came).unwrap();
            assert_eq!((payload, attributes.properties().count()), (data, 0));
        }
    }

    #[test]
    fn the_checksum_has_no_sign() {
        assert_eq!(checksum(b"123456789"), 1_274_296_614);
        assert_eq!(checksum(b"hello"), 907_060_870);
    }

    #[test]
    fn different_types_may_have_the_same_hash() {
        assert_eq!(type_hash("Aa"), type_hash("BB"));
        assert_eq!((type_hash("Aa"), type_hash("till")), (2112, 3_560_117));
        // UTF-16 units, as in Java, around the overflow of 32 bits.
        assert_eq!(type_hash("\u{1f6b0}"), 0xd83d * 31 + 0xdeb0);
        assert_eq!(type_hash("a long message type"), java("a long message type"));
        assert_eq!(type_hash(" \ttill\n"), type_hash("till"));
        assert_eq!(type_hash(""), 0);
    }

    /// Java's definition: s[0]·31^(n-1) + ... + s[n-1] without overflow, reduced to its low 32
    /// bits.
    fn java(text: &str) -> i32 {
        let mut hash = 0_u128;
        for unit in text.encode_utf16() {
            hash = hash.checked_mul(31).unwrap() + u128::from(unit);
        }
        hash as u32 as i32
    }

    #[test]
    fn a_flag_is_set_only_when_attributes_are_there() {
        // The official client sets it for empty attributes too, without a length, which makes the
        // message unreadable.
        let packed = pack(&Outgoing { payload: b"plain", ..Outgoing::default() }).unwrap();
        assert_eq!(packed, Packed { data: Bytes::from_static(b"plain"), ..Packed::default() });
        let message = pb::TransferedMessage {
            message_id: 1,
            check_sum: checksum(&packed.data),
            pay_load_data: packed.data,
            flag: packed.flag,
        };
        let (payload, attributes) = unpack(message).unwrap();
        assert_eq!((&payload[..], attributes.iter().count()), (&b"plain"[..], 0));
    }

    #[test]
    fn the_type_is_in_the_field_and_in_the_attributes() {
        // Brokers filter by the field, receivers by the attribute.
        let outgoing = Outgoing {
            payload: b"x",
            message_type: Some("till"),
            time: Some(1_700_000_000_000),
            properties: &[("k", "v")],
            ..Outgoing::default()
        };
        let packed = pack(&outgoing).unwrap();
        assert_eq!(packed.message_type.as_deref(), Some("till"));
        assert_eq!(packed.time.as_deref(), Some("202311142213"));
        let text = b"$msgType$=till,$msgTime$=202311142213,k=v";
        assert_eq!(packed.data[..4], (text.len() as u32).to_be_bytes());
        assert_eq!(packed.data[4..4 + text.len()], text[..]);
    }

    #[test]
    fn what_a_receiver_would_read_as_something_else_is_not_sent() {
        let refused = |outgoing: Outgoing<'_>| {
            let error = pack(&Outgoing { payload: b"x", ..outgoing }).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            error.to_string()
        };
        let long = "t".repeat(257);
        for message_type in ["", " till", "a,b", "a=b", &long] {
            refused(Outgoing { message_type: Some(message_type), ..Outgoing::default() });
        }
        for property in
            [("a,b", "c"), ("a=b", "c"), ("a", "b,c"), ("a", "b=c"), ("", "c"), (TYPE, "t"), (KEY, "k")]
        {
            refused(Outgoing { properties: &[property], ..Outgoing::default() });
        }
        let error = pack(&Outgoing::default()).unwrap_err();
        assert!(error.to_string().contains("empty"), "{error}");
    }

    #[test]
    fn attributes_that_are_no_text_are_none_and_the_payload_stays() {
        let data = Bytes::from_static(b"\0\0\0\x02\xff\xfepayload");
        let check_sum = checksum(&data);
        let came = pb::TransferedMessage { message_id: 1, check_sum, pay_load_data: data, flag: 1 };
        let (payload, attributes) = unpack(came).unwrap();
        assert_eq!(
            (&payload[..], attributes.iter().count(), attributes.message_type()),
            (&b"payload"[..], 0, None)
        );
    }

    proptest::proptest! {
        #[test]
        fn whatever_can_be_packed_is_unpacked(
            payload in proptest::collection::vec(proptest::prelude::any::<u8>(), 1..200),
            key in proptest::option::of("\\PC{0,12}"),
            kind in proptest::option::of("[^,= ]{1,12}"),
            time in proptest::option::of(0_u64..253_402_300_800_000),
            properties in proptest::collection::vec(("[^,=$]{1,8}", "[^,=]{0,8}"), 0..5),
        ) {
            let properties: Vec<_> = properties.iter().map(|(name, value)| (&**name, &**value)).collect();
            let outgoing = Outgoing {
                payload: &payload,
                key: key.as_deref(),
                message_type: kind.as_deref().filter(|kind| kind.trim() == *kind),
                time,
                properties: &properties,
            };
            let packed = pack(&outgoing).unwrap();
            let check_sum = checksum(&packed.data);
            let came = pb::TransferedMessage {
                message_id: 1, check_sum, pay_load_data: packed.data, flag: packed.flag,
            };
            let (body, attributes) = unpack(came).unwrap();
            assert_eq!(body, payload);
            assert_eq!(attributes.key().as_deref(), outgoing.key);
            assert_eq!(attributes.message_type(), outgoing.message_type);
            assert_eq!(attributes.time(), time.map(|ms| ms / MINUTE_MS * MINUTE_MS));
            assert_eq!(attributes.properties().collect::<Vec<_>>(), properties);
        }
    }
}
