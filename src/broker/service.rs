//! [`Service`]: a protocol that is configured but not open yet. The server goes through the services of all
//! protocols in one loop: it binds their ports, opens them on the store and runs what they give.

use std::sync::Arc;
use std::time::Instant;

use crate::broker::auth::TokenKey;
use crate::broker::log::{Source, TopicIds};
use crate::broker::options::Urls;
use crate::broker::permissions::Permissions;
use crate::broker::protocol::{Clock, Protocol};
use crate::broker::store::{Database, StoreUsage};
use crate::error::Result;

/// The framing between a socket and its protocol.
#[derive(Clone, Copy, Debug)]
pub(super) enum Framing {
    /// The protocol's bytes as they are.
    Bare,
    /// WebSocket.
    WebSocket {
        /// Refuses pages of other origins than this machine; see [`ws::accept`](crate::net::ws::accept).
        local_pages_only: bool,
        /// Largest packet of the protocol.
        max_packet_size: usize,
    },
}

/// A port that a protocol listens on.
#[derive(Debug)]
pub(super) struct Listen {
    /// Port number; 0 takes any free port.
    pub(super) port: u16,
    /// URL schemes without and with TLS.
    pub(super) schemes: [&'static str; 2],
    /// Path of the URL.
    pub(super) path: &'static str,
    /// Framing below the protocol.
    pub(super) framing: Framing,
    /// Publishes the URL.
    pub(super) publish: fn(&mut Urls, String),
}

/// The arguments with which every protocol opens.
pub(super) struct Context<'a> {
    /// The store; `None` keeps everything in memory.
    pub(super) database: Option<&'a Database>,
    /// URLs of all ports.
    pub(super) urls: &'a Urls,
    /// Port numbers, in the order of [`Service::listen`].
    pub(super) ports: Vec<u16>,
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
    pub(super) tokens: Option<&'a Arc<TokenKey>>,
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
    /// The name that starts its topics' names, with the colon; empty for the protocol whose names have none.
    fn topic_prefix(&self) -> Option<&'static str>;

    /// The ports that it listens on.
    fn listen(&self) -> Vec<Listen>;

    /// The option without which other machines may not connect, beside TLS and tokens.
    fn missing_for_public_bind(&self) -> Option<&'static str> {
        None
    }

    /// The options that would make clients show credentials; `None` if they have to.
    fn admits_everyone(&self) -> Option<&'static str>;

    /// Opens the protocol with what the store holds of it.
    fn open(self: Box<Self>, context: &Context<'_>) -> Result<Box<dyn Protocol>>;
}
