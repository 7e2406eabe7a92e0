//! [`Service`]: a protocol that is configured but not open yet. The server binds the listeners,
//! opens the services that have one on the store, and runs what they give.

use std::sync::Arc;
use std::time::Instant;

use crate::auth::TokenKeys;
use crate::listeners::{Listener, Missing, Urls};
use crate::log::{Source, TopicIds};
use crate::permissions::Permissions;
use crate::protocol::{Clock, Protocol};
use crate::store::{Database, StoreUsage};
use forebay_base::error::Result;

/// The framing between a socket and its protocol.
#[derive(Clone, Copy, Debug)]
pub(super) enum Framing {
    /// The protocol's bytes as they are.
    Bare,
    /// WebSocket.
    WebSocket {
        /// Refuses pages of other origins than this machine; see
        /// [`ws::accept`](forebay_net::ws::accept).
        local_pages_only: bool,
        /// Largest packet of the protocol.
        max_packet_size: usize,
    },
}

/// A listener of a protocol, but for its address.
#[derive(Debug)]
pub(super) struct ListenerSpec {
    /// Name of the listener's URL.
    pub(super) name: &'static str,
    /// URL schemes without and with TLS.
    pub(super) schemes: [&'static str; 2],
    /// Path of the URL.
    pub(super) path: &'static str,
    /// Framing below the protocol.
    pub(super) framing: Framing,
    /// Whether clients can connect over a Unix socket: if not, they are told an address of TCP.
    pub(super) unix: bool,
}

/// The arguments with which every protocol opens.
pub(super) struct Context<'a> {
    /// The store; `None` keeps everything in memory.
    pub(super) database: Option<&'a Database>,
    /// URLs of all listeners.
    pub(super) urls: &'a Urls,
    /// Host and port of the protocol's first listener.
    pub(super) address: (String, u16),
    /// Whether a listener takes its clients' names from their certificates.
    pub(super) certificates: bool,
    /// Maps monotonic time to calendar time.
    pub(super) clock: Clock,
    /// Now.
    pub(super) now: Instant,
    /// Numbers for new topics.
    pub(super) topic_ids: &'a TopicIds,
    /// Bytes in use, over all protocols.
    pub(super) usage: &'a StoreUsage,
    /// Limit on those bytes.
    pub(super) max_store: u64,
    /// Different in each run.
    pub(super) seed: u64,
    /// Signs the tokens of clients.
    pub(super) tokens: Option<&'a Arc<TokenKeys>>,
    /// Rules about topics.
    pub(super) permissions: Option<&'a Arc<Permissions>>,
}

impl Context<'_> {
    /// A reader of stored entries.
    pub(super) fn source(&self) -> Result<Option<Box<dyn Source>>> {
        self.database.map(|database| Ok(Box::new(database.reader()?) as Box<dyn Source>)).transpose()
    }
}

/// A protocol that is configured but not open yet.
pub(super) trait Service {
    /// The name that starts its topics' names, with the colon; empty for the protocol whose names
    /// have none.
    fn topic_prefix(&self) -> Option<&'static str>;

    /// Returns the URL schemes and framing of a listener; `None` over WebSocket, if the protocol is
    /// not spoken over it.
    fn listener_spec(&self, listener: &Listener) -> Option<ListenerSpec>;

    /// The options that would make clients show credentials; `None` if they have to.
    fn admits_everyone(&self) -> Missing;

    /// Host name that clients are told, if it is not that of their listener.
    fn advertised_host(&self) -> Option<&str> {
        None
    }

    /// Opens the protocol with what the store holds of it.
    fn open(self: Box<Self>, context: &Context<'_>) -> Result<Box<dyn Protocol>>;
}
