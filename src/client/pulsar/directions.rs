//! Directions of the brokers to a partition: a broker that closes a producer or consumer may name
//! the one that serves its topic from now on (PIP-307), and a topic may move to another cluster
//! (PIP-188).
//!
//! A broker that was named is tried once, without a lookup. Later lookups for a topic that has
//! moved ask the other cluster.

use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::logger;
use forebay_base::clock;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_net::url::{Address, ServiceUrl};
use tracing::{debug, info, warn};

/// Directions to one partition.
#[derive(Debug, Default)]
pub(super) struct Directions(watch::Sender<Redirect>);

#[derive(Debug, Default)]
struct Redirect {
    /// The broker to try next.
    assigned: Option<Address>,
    /// The cluster that the topic has moved to.
    cluster: Option<ServiceUrl>,
    /// The proxy through which the partition was served last.
    proxy: Option<Address>,
    /// Whether no attempt has followed the directions yet.
    untried: bool,
}

/// Directions for one attempt.
#[derive(Debug, Default)]
pub(super) struct Next {
    /// The broker that was named: an address, and the broker behind it if that is a proxy.
    pub(super) assigned: Option<(Address, Option<String>)>,
    /// The cluster in which the topic is looked up, if not in the client's.
    pub(super) cluster: Option<ServiceUrl>,
}

impl Directions {
    /// Notes the broker that was named when the partition was closed, if one was. One that cannot
    /// be used is passed over: there is the lookup.
    pub(super) fn assign(&self, named: &Named, secure: bool) {
        let Some(url) = usable(named, secure) else { return };
        let address = url.addresses.into_iter().next();
        debug!(target: logger::PULSAR_CONNECTION, "a broker names another one for its topic: {address:?}");
        self.0.send_modify(|redirect| (redirect.assigned, redirect.untried) = (address, true));
    }

    /// Notes the cluster that the topic has moved to.
    pub(super) fn migrate(&self, topic: &str, named: &Named, secure: bool) {
        let Some(url) = usable(named, secure) else {
            warn!(
                target: logger::PULSAR_CONNECTION,
                "{topic} has moved to a cluster whose URL cannot be used by this client",
            );
            return;
        };
        // Told again, it ends an attempt all the same: the broker that tells does not answer.
        self.0.send_modify(|redirect| {
            if redirect.cluster.as_ref() != Some(&url) {
                info!(
                    target: logger::PULSAR_CONNECTION,
                    "{topic} has moved to the cluster at {}",
                    url.addresses[0],
                );
            }
            (redirect.cluster, redirect.assigned, redirect.untried) = (Some(url), None, true);
        });
    }

    /// The directions for the next attempt. The broker that was named is not in those for the one
    /// after it.
    pub(super) fn take(&self) -> Next {
        let mut next = Next::default();
        self.0.send_if_modified(|redirect| {
            next.assigned = redirect.assigned.take().map(|address| match &redirect.proxy {
                Some(proxy) => (proxy.clone(), Some(address.to_string())),
                None => (address, None),
            });
            next.cluster.clone_from(&redirect.cluster);
            redirect.untried = false;
            false
        });
        next
    }

    /// Whether the topic has moved to another cluster.
    pub(super) fn has_moved(&self) -> bool {
        self.0.borrow().cluster.is_some()
    }

    /// Whether there are directions that no attempt has followed yet.
    pub(super) fn are_untried(&self) -> bool {
        self.0.borrow().untried
    }

    /// Notes the proxy through which the partition is served, if there is one.
    pub(super) fn note_proxy(&self, proxy: Option<&Address>) {
        self.0.send_if_modified(|redirect| {
            redirect.proxy = proxy.cloned();
            false
        });
    }

    /// An attempt to open the partition that ends when there are new directions meanwhile: the
    /// broker that is asked may never answer then.
    pub(super) async fn until_changed<T>(&self, attempt: impl Future<Output = Result<T>>) -> Result<T> {
        let mut redirects = self.0.subscribe();
        tokio::select! {
            biased;
            result = attempt => result,
            Ok(()) = redirects.changed() => {
                Err(Error::new(ErrorKind::ServiceNotReady, "another broker serves the topic from now on"))
            }
        }
    }

    /// The pause before the next attempt for a partition that was open since `since`. None if a
    /// broker was named, but no more often than there would be attempts without that.
    pub(super) fn pause(&self, pause: Duration, since: Instant) -> Duration {
        match self.0.borrow().assigned {
            Some(_) => pause.saturating_sub(clock::now().saturating_duration_since(since)),
            None => pause,
        }
    }
}

/// URLs of a broker or a cluster, as a broker states them: without and with TLS.
pub(super) type Named = (Option<String>, Option<String>);

/// The URL for connections with or without TLS, if it can be used.
fn usable((plain, tls): &Named, secure: bool) -> Option<ServiceUrl> {
    let url = if secure { tls } else { plain };
    let url = ServiceUrl::parse(url.as_deref()?).ok()?;
    url.is_of_broker(secure).then_some(url)
}
