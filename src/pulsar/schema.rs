//! Schemas: their definitions on the wire, and how a consumer gets at those that its messages were
//! written with.
//!
//! A message names the version of its schema. The consumer asks the broker for a version that it
//! does not know and hands out the message, and those behind it, once it has the answer: a
//! [`Writer`], which is for all messages of the version. If the answer is an error it is the error
//! of those messages alone.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::pb;
pub use crate::pb::schema::Type;
use forebay_base::error::{Error, ErrorKind, Result};

/// Versions that a consumer remembers, for each partition.
const VERSIONS: usize = 64;
/// Longest definition that is shown whole in an error.
const SHOWN: usize = 2000;

/// A schema as the broker stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaInfo {
    /// Name, which has no meaning.
    pub name: String,
    /// Type.
    pub kind: Type,
    /// Definition; empty for primitive types.
    pub data: Bytes,
    /// Properties.
    pub properties: Vec<(String, String)>,
}

impl From<&SchemaInfo> for pb::Schema {
    fn from(info: &SchemaInfo) -> Self {
        let pair = |(key, value): &(String, String)| pb::KeyValue { key: key.clone(), value: value.clone() };
        Self {
            name: info.name.clone(),
            schema_data: info.data.clone(),
            r#type: info.kind as i32,
            properties: info.properties.iter().map(pair).collect(),
        }
    }
}

impl TryFrom<pb::Schema> for SchemaInfo {
    type Error = Error;

    fn try_from(schema: pb::Schema) -> Result<Self> {
        let kind = Type::try_from(schema.r#type).map_err(|_| {
            Error::protocol(format!("the broker sent a schema of the unknown type {}", schema.r#type))
        })?;
        Ok(Self {
            name: schema.name,
            kind,
            data: schema.schema_data,
            properties: schema.properties.into_iter().map(|pair| (pair.key, pair.value)).collect(),
        })
    }
}

/// Type and definition.
impl fmt::Display for SchemaInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.as_str_name())?;
        if self.data.is_empty() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&self.data);
        let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN).collect();
        write!(f, " {shown}")?;
        if text.chars().nth(SHOWN).is_some() { f.write_str("…") } else { Ok(()) }
    }
}

/// Reader of the payloads of a consumer.
pub trait Codec: Any + fmt::Debug + Send + Sync {
    /// Prepares for the messages of a schema; of messages without one, if `None`. Called once for
    /// each version.
    fn resolve(&self, writer: Option<&SchemaInfo>) -> Result<Resolved>;

    /// Whether it has to know the schema of each message. If not, payloads are left to the
    /// application.
    fn reads(&self) -> bool {
        true
    }

    /// The codec of a producer that takes the schema of its topic, whose payloads are bytes that
    /// must fit it.
    fn checking(&self, topic: &SchemaInfo) -> Result<Arc<dyn Codec>> {
        let text = format!("this codec cannot check payloads of type {:?}", topic.kind);
        Err(Error::new(ErrorKind::Unsupported, text))
    }
}

/// Result of [`Codec::resolve`].
pub type Resolved = Arc<dyn Any + Send + Sync>;

/// The schema that messages were written with, once it is known.
#[derive(Default)]
pub struct Writer {
    resolved: OnceLock<Result<Resolved>>,
    /// It could not be got: later messages ask again.
    is_lost: AtomicBool,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Writer").field(&self.resolved.get().map(Result::is_ok)).finish()
    }
}

impl Writer {
    /// Result of [`Codec::resolve`]; `None` if the schema is not known yet.
    pub fn get(&self) -> Option<&Result<Resolved>> {
        self.resolved.get()
    }

    /// Notes the answer. A second one is ignored.
    pub fn set(&self, resolved: Result<Resolved>) {
        let _ = self.resolved.set(resolved);
    }

    /// Notes that the schema could not be got.
    pub fn fail(&self, error: Error) {
        self.is_lost.store(true, Ordering::Release);
        self.set(Err(error));
    }

    /// Whether the schema could not be got.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    fn is_known(&self) -> bool {
        self.resolved.get().is_some()
    }
}

/// A version that the broker is to be asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The version.
    pub version: Bytes,
    /// Place of the answer.
    pub writer: Arc<Writer>,
}

/// The versions that a consumer knows or asks for.
#[derive(Debug)]
pub(super) struct Writers {
    /// Of messages without a version.
    plain: Arc<Writer>,
    /// The oldest first. A topic that is deleted and made again counts its versions from the start,
    /// but its consumers are closed by that: so this is for one subscribing only.
    known: VecDeque<(Bytes, Arc<Writer>)>,
    wanted: VecDeque<Wanted>,
}

impl Writers {
    pub(super) fn new(codec: &dyn Codec) -> Self {
        let plain = Arc::new(Writer::default());
        plain.set(codec.resolve(None));
        Self { plain, known: VecDeque::new(), wanted: VecDeque::new() }
    }

    /// The writer of a version, which is asked for if it is new.
    pub(super) fn of(&mut self, version: Option<&Bytes>) -> Arc<Writer> {
        let Some(version) = version.filter(|version| !version.is_empty()) else {
            return Arc::clone(&self.plain);
        };
        if let Some(at) = self.known.iter().rposition(|(known, _)| known == version) {
            let writer = &self.known[at].1;
            if !writer.is_lost() {
                return Arc::clone(writer);
            }
            self.known.remove(at);
        }
        if self.known.len() >= VERSIONS {
            self.known.pop_front();
        }
        let writer = Arc::new(Writer::default());
        // A copy: the version is a slice of a whole frame.
        let version = Bytes::copy_from_slice(version);
        self.known.push_back((version.clone(), Arc::clone(&writer)));
        self.wanted.push_back(Wanted { version, writer: Arc::clone(&writer) });
        writer
    }

    pub(super) fn next_wanted(&mut self) -> Option<Wanted> {
        self.wanted.pop_front()
    }

    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.wanted.clear();
    }
}

/// Whether messages of this writer can be handed out.
pub(super) fn is_ready(writer: Option<&Arc<Writer>>) -> bool {
    writer.is_none_or(|writer| writer.is_known())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Any0;

    impl Codec for Any0 {
        fn resolve(&self, _: Option<&SchemaInfo>) -> Result<Resolved> {
            Ok(Arc::new(()))
        }
    }

    #[test]
    fn a_version_is_asked_for_once_and_again_after_a_failure() {
        let mut writers = Writers::new(&Any0);
        assert!(writers.of(None).is_known() && writers.of(Some(&Bytes::new())).is_known());
        let version = Bytes::from_static(b"1");
        let first = writers.of(Some(&version));
        assert!(Arc::ptr_eq(&first, &writers.of(Some(&version))));
        assert!(writers.next_wanted().is_some() && writers.next_wanted().is_none());
        first.fail(Error::protocol("lost"));
        assert!(!Arc::ptr_eq(&first, &writers.of(Some(&version))));
        assert!(writers.next_wanted().is_some());
    }

    #[test]
    fn the_versions_that_are_remembered_are_limited() {
        let mut writers = Writers::new(&Any0);
        for n in 0..10_000u32 {
            writers.of(Some(&Bytes::copy_from_slice(&n.to_be_bytes())));
            writers.next_wanted();
        }
        assert_eq!(writers.known.len(), VERSIONS);
    }
}
