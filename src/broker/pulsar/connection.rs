//! One connection: its session, and its producers and consumers by the ids that the client chose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::session::Session;
use forebay_base::random::HashMap;

/// A producer of a connection.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) topic: u64,
    pub(super) name: Arc<str>,
    /// The user that the name belongs to.
    pub(super) owner: Option<Arc<str>>,
    /// `false` while it waits to be exclusive. `request` is answered when it is admitted.
    pub(super) ready: bool,
    pub(super) request: u64,
    pub(super) schema_version: Option<Bytes>,
}

/// A consumer of a connection.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    pub(super) topic: u64,
    pub(super) subscription: Arc<str>,
}

/// A client's connection: its session, and the producers and consumers on it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) session: Session,
    pub(super) address: Arc<str>,
    pub(super) producers: BTreeMap<u64, Writer>,
    pub(super) consumers: BTreeMap<u64, Reader>,
    /// Producers that the broker closed, and until when messages that they had already sent are
    /// ignored.
    pub(super) dismissed: HashMap<u64, Instant>,
    /// Topics that stopped dispatching to it because its output was full.
    pub(super) starved: BTreeSet<u64>,
    /// Whether received commands wait until its output is written.
    pub(super) behind: bool,
    /// Bytes that were gone through for the answers of this turn, sent or not.
    pub(super) work: usize,
}
