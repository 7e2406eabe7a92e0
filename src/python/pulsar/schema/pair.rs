//! Pairs of a key and a value: `forebay.pulsar.KeyValue`.

use std::any::Any;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

use super::{Coder, Encoding, Fail, Reader, bad, wants};
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_pulsar::key_value::{KeyValueInfo, join, split};
use forebay_pulsar::schema::{Codec, SchemaInfo};
use forebay_pulsar::{Message, Outgoing};

/// The schemas of a key and its value.
pub(super) struct Pair {
    pub(super) key: Coder,
    pub(super) value: Coder,
    pub(super) separated: bool,
}

/// The reader of pairs.
pub(super) struct PairReader {
    pub(super) key: Reader,
    pub(super) value: Reader,
    pub(super) separated: bool,
}

/// A schema of pairs.
pub(super) fn coder(key: &dyn Codec, value: &dyn Codec, separated: bool) -> Result<Coder> {
    let part = |what: &str, codec: &dyn Codec| {
        let coder = (codec as &dyn Any).downcast_ref::<Coder>();
        let usable = coder.filter(|coder| !matches!(coder.encoding, Encoding::Pair | Encoding::Auto));
        usable.cloned().ok_or_else(|| {
            let text = format!("a {what} has a schema of its own: not that of a pair, and not \"auto\"");
            Error::new(ErrorKind::InvalidArgument, text)
        })
    };
    let (key, value) = (part("key", key)?, part("value", value)?);
    let info = KeyValueInfo { key: (*key.info).clone(), value: (*value.info).clone(), separated }.info();
    let pair = Some(Arc::new(Pair { key, value, separated }));
    Ok(Coder {
        encoding: Encoding::Pair,
        info: Arc::new(info),
        structure: None,
        class: None,
        pair,
        check: None,
    })
}

/// Whether messages have the keys of pairs as their own. Their payloads are inline until they are
/// sent.
pub(in crate::pulsar) fn is_separated(codec: Option<&Arc<dyn Codec>>) -> bool {
    let coder = codec.and_then(|codec| (&**codec as &dyn Any).downcast_ref::<Coder>());
    coder.and_then(|coder| coder.pair.as_ref()).is_some_and(|pair| pair.separated)
}

/// A separated pair on its way to the broker.
pub(in crate::pulsar) struct Separated<'a> {
    key: Option<String>,
    value: Option<&'a [u8]>,
}

impl<'a> Separated<'a> {
    /// Takes an inline pair apart.
    pub(in crate::pulsar) fn of(payload: &'a [u8]) -> Self {
        // A tombstone has an empty payload.
        let (key, value) = split(payload).unwrap_or_default();
        Self { key: key.map(|key| BASE64.encode(key)), value }
    }

    /// The message with the key and the payload of the pair.
    pub(in crate::pulsar) fn apply<'b>(&'b self, message: Outgoing<'b>) -> Outgoing<'b>
    where
        'a: 'b,
    {
        Outgoing {
            payload: self.value.unwrap_or_default(),
            key: self.key.as_deref(),
            key_is_base64: self.key.is_some(),
            null_value: message.null_value || self.value.is_none(),
            ..message
        }
    }
}

impl Pair {
    pub(super) fn encode(&self, pair: &Bound<'_, PyAny>) -> std::result::Result<Vec<u8>, Fail> {
        let part = |what: &str, coder: &Coder, part: &Bound<'_, PyAny>| {
            let encode = || coder.encode(part).map_err(|fail| fail.within(what));
            if part.is_none() { Ok(None) } else { encode().map(Some) }
        };
        let tuple = pair.cast::<PyTuple>().ok().filter(|tuple| tuple.len() == 2);
        let tuple = tuple.ok_or_else(|| wants("KeyValue or a tuple of two", pair))?;
        let key = part("key", &self.key, &tuple.get_item(0)?)?;
        let value = part("value", &self.value, &tuple.get_item(1)?)?;
        Ok(join(key.as_deref(), value.as_deref()))
    }

    pub(super) fn reader(&self, writer: Option<&SchemaInfo>) -> Result<PairReader> {
        let writer = writer.map(KeyValueInfo::of).transpose()?;
        Ok(PairReader {
            key: self.key.reader(writer.as_ref().map(|pair| &pair.key))?,
            value: self.value.reader(writer.as_ref().map(|pair| &pair.value))?,
            separated: writer.map_or(self.separated, |pair| pair.separated),
        })
    }
}

/// The key of a separated pair.
pub(super) fn raw_key(message: &Message) -> Result<Option<Vec<u8>>> {
    let Some(key) = message.key.as_deref() else { return Ok(None) };
    if !message.key_is_base64 {
        return Ok(Some(key.as_bytes().to_vec()));
    }
    let wrong = |_| Error::new(ErrorKind::Schema, "key: it is not base64");
    BASE64.decode(key).map(Some).map_err(wrong)
}

impl PairReader {
    /// The reader of a schema that the program does not know.
    pub(super) fn of(writer: &SchemaInfo) -> Result<Self> {
        let pair = KeyValueInfo::of(writer)?;
        Ok(Self {
            key: Coder::reader_of(&pair.key)?,
            value: Coder::reader_of(&pair.value)?,
            separated: pair.separated,
        })
    }

    pub(super) fn is_separated(&self) -> bool {
        self.separated
    }

    pub(super) fn decode<'py>(
        &self,
        py: Python<'py>,
        payload: &[u8],
    ) -> std::result::Result<Bound<'py, PyAny>, Fail> {
        let (key, value) = split(payload).ok_or_else(|| bad("it is cut off, or is not that of a pair"))?;
        self.pair(py, key, value)
    }

    /// The value of a message whose key is that of the pair.
    pub(super) fn value_of<'py>(
        &self,
        py: Python<'py>,
        message: &Message,
    ) -> std::result::Result<Bound<'py, PyAny>, Fail> {
        let raw = raw_key(message)?;
        self.pair(py, raw.as_deref(), (!message.null_value).then_some(&message.payload[..]))
    }

    fn pair<'py>(
        &self,
        py: Python<'py>,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> std::result::Result<Bound<'py, PyAny>, Fail> {
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let part = |what: &str, reader: &Reader, payload: Option<&[u8]>| {
            let decode = |payload| reader.decode(py, payload).map_err(|fail| fail.within(what));
            payload.map(decode).transpose()
        };
        let (key, value) = (part("key", &self.key, key)?, part("value", &self.value, value)?);
        Ok(CLASS.import(py, "forebay.pulsar", "KeyValue")?.call1((key, value))?)
    }
}
