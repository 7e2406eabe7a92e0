//! Directions of the brokers to a partition: a broker that closes a producer or consumer may name the one that serves its
//! topic from now on (PIP-307), and a topic may move to another cluster (PIP-188).
//!
//! A broker that was named is tried once, without a lookup. Later lookups for a topic that has moved ask the other cluster.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::client::log::{self, Level};
use crate::client::pulsar::connection::Connection;
use crate::client::pulsar::lookup::Lookup;
use crate::client::pulsar::shared::Shared;
use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::net::url::{Address, ServiceUrl};

/// Part of the logger that tells about directions.
const LOGGER: &str = "penstock.pulsar.connection";

/// Directions to one partition.
#[derive(Debug, Default)]
pub(super) struct Directions(watch::Sender<Told>);

#[derive(Debug, Default)]
struct Told {
    /// The broker to try next.
    assigned: Option<Address>,
    /// The cluster that the topic has moved to.
    cluster: Option<ServiceUrl>,
    /// For lookups in that cluster.
    lookup: Option<Arc<Lookup>>,
    /// The proxy through which the partition was served last.
    proxy: Option<Address>,
}

impl Directions {
    /// Notes the broker that was named when the partition was closed, if one was. One that cannot be used is passed over: there
    /// is the lookup.
    pub(super) fn assign(&self, url: Option<&str>, secure: bool) {
        let Some(url) = parsed(url, secure) else { return };
        let address = url.addresses.into_iter().next();
        log::record(Level::Debug, LOGGER, || {
            format!("a broker names another one for its topic: {address:?}")
        });
        self.0.send_modify(|told| told.assigned = address);
    }

    /// Notes the cluster that the topic has moved to.
    pub(super) fn migrate(&self, topic: &str, url: Option<&str>, secure: bool) {
        let Some(url) = parsed(url, secure) else {
            log::warn(&format!("{topic} has moved to a cluster whose URL cannot be used by this client"));
            return;
        };
        self.0.send_if_modified(|told| {
            if told.cluster.as_ref() == Some(&url) {
                return false;
            }
            log::record(Level::Info, LOGGER, || {
                format!("{topic} has moved to the cluster at {}", url.addresses[0])
            });
            (told.cluster, told.lookup, told.assigned) = (Some(url.clone()), None, None);
            true
        });
    }

    /// A connection to the broker that serves `topic`.
    pub(super) async fn connection(&self, shared: &Shared, topic: &str, id: u64) -> Result<Arc<Connection>> {
        let (mut assigned, mut proxy, mut lookup) = (None, None, None);
        self.0.send_if_modified(|told| {
            assigned = told.assigned.take();
            proxy.clone_from(&told.proxy);
            if let (None, Some(url)) = (&told.lookup, &told.cluster) {
                let pool = Arc::clone(&shared.pool);
                told.lookup = Some(Arc::new(Lookup::new(shared.options.clone(), url.clone(), pool)));
            }
            lookup.clone_from(&told.lookup);
            false
        });
        if let Some(address) = assigned {
            let found = match &proxy {
                Some(proxy) => shared.pool.get(proxy, Some(address.to_string()), id).await,
                None => shared.pool.get(&address, None, id).await,
            };
            match found {
                Ok(connection) => return Ok(connection),
                Err(error) => log::record(Level::Debug, LOGGER, || {
                    format!(
                        "{address}, which was named for {topic}, cannot be used, and the topic is looked up: {error}"
                    )
                }),
            }
        }
        let connection = lookup.as_deref().unwrap_or(&shared.lookup).broker(topic, id).await?;
        self.0.send_if_modified(|told| {
            told.proxy = connection.proxy().cloned();
            false
        });
        Ok(connection)
    }

    /// An attempt to open the partition that ends when there are new directions meanwhile: the broker that is asked may never
    /// answer then.
    pub(super) async fn until_changed<T>(&self, attempt: impl Future<Output = Result<T>>) -> Result<T> {
        let mut told = self.0.subscribe();
        tokio::select! {
            biased;
            result = attempt => result,
            Ok(()) = told.changed() => {
                Err(Error::new(ErrorKind::ServiceNotReady, "another broker serves the topic from now on"))
            }
        }
    }

    /// The pause before the next attempt for a partition that was open since `since`. None if a broker was named, but no more
    /// often than there would be attempts without that.
    pub(super) fn pause(&self, pause: Duration, since: std::time::Instant) -> Duration {
        match self.0.borrow().assigned {
            Some(_) => pause.saturating_sub(clock::now().saturating_duration_since(since)),
            None => pause,
        }
    }
}

fn parsed(url: Option<&str>, secure: bool) -> Option<ServiceUrl> {
    let url = ServiceUrl::parse(url.filter(|url| !url.is_empty())?).ok()?;
    (url.tls == secure && !url.addresses.is_empty()).then_some(url)
}
