//! Lookups: the broker that serves a topic, the number of its partitions, schemas, and the topics
//! of a namespace.
//!
//! * `binary`: by commands to any broker, for `pulsar://` and `pulsar+ssl://`
//! * `http`: by requests to the brokers' web service, for `http://` and `https://`
//! * `common`: what the two share

mod binary;
mod common;
mod http;

use std::sync::Arc;

use bytes::Bytes;

use crate::pulsar::connection::{Connection, Pool};
use crate::pulsar::counters::LookupCounters;
use crate::pulsar::options::ClientOptions;
use forebay_base::clock;
use forebay_base::error::{ErrorKind, Result};
use forebay_net::backoff::Backoff;
use forebay_net::url::{ServiceUrl, Transport};
use forebay_pulsar::pattern::Pattern;
use forebay_pulsar::schema::SchemaInfo;

use binary::BinaryLookup;
use http::HttpLookup;

/// Finds what a client has to know about topics.
#[derive(Debug)]
pub(super) struct Lookup {
    options: ClientOptions,
    way: Way,
    counters: Arc<LookupCounters>,
}

#[derive(Debug)]
enum Way {
    Binary(BinaryLookup),
    Http(HttpLookup),
}

impl Lookup {
    pub(super) fn new(
        options: ClientOptions,
        url: ServiceUrl,
        pool: Arc<Pool>,
        counters: Arc<LookupCounters>,
    ) -> Self {
        let way = match url.transport {
            Transport::Http => Way::Http(HttpLookup::new(options.clone(), url, pool)),
            _ => Way::Binary(BinaryLookup::new(options.clone(), url, pool)),
        };
        Self { options, way, counters }
    }

    /// Whether the service can be reached and accepts the credentials.
    pub(super) async fn check(&self) -> Result<()> {
        match &self.way {
            Way::Binary(lookup) => lookup.service().await.map(drop),
            Way::Http(lookup) => lookup.check().await,
        }
    }

    /// A connection over which any broker of the service tells of changes; `None` if there is none.
    pub(super) async fn watchable(&self) -> Result<Option<Arc<Connection>>> {
        match &self.way {
            Way::Binary(lookup) => lookup.service().await.map(Some),
            Way::Http(_) => Ok(None),
        }
    }

    /// A connection to the broker that serves `topic`.
    pub(super) async fn broker(&self, topic: &str, spread: u64) -> Result<Arc<Connection>> {
        let found = async {
            match &self.way {
                Way::Binary(lookup) => lookup.broker(topic, spread).await,
                Way::Http(lookup) => lookup.broker(topic, spread).await,
            }
        };
        self.counters.count(found).await.map_err(|error| error.with_topic(topic))
    }

    /// Number of partitions, 0 for a topic without partitions. With `create`, a topic that does not
    /// exist is created if the broker allows it.
    pub(super) async fn partitions(&self, topic: &str, create: bool) -> Result<u32> {
        let way = &self.way;
        let asked = self.retried(|| async move {
            match way {
                Way::Binary(lookup) => lookup.partitions(topic, create).await,
                Way::Http(lookup) => lookup.partitions(topic, create).await,
            }
        });
        asked.await.map_err(|error| error.with_topic(topic))
    }

    /// The schema of a version of `topic`, the latest if `None`. Any broker can tell.
    pub(super) async fn schema(&self, topic: &str, version: Option<Bytes>) -> Result<SchemaInfo> {
        let (way, version) = (&self.way, version.as_ref());
        let asked = self.retried(|| async move {
            match way {
                Way::Binary(lookup) => lookup.schema(topic, version.cloned()).await,
                Way::Http(lookup) => lookup.schema(topic, version.map(|version| &version[..])).await,
            }
        });
        asked.await.map_err(|error| error.with_topic(topic))
    }

    /// Full names of the topics of `tenant/namespace`.
    pub(super) async fn topics(&self, namespace: &str) -> Result<Vec<String>> {
        let way = &self.way;
        let asked = self.retried(|| async move {
            match way {
                Way::Binary(lookup) => lookup.topics(namespace).await,
                Way::Http(lookup) => lookup.topics(namespace).await,
            }
        });
        asked.await
    }

    /// The topics and partitions of the pattern's namespace, or more, with their hash; `None` if
    /// they are those of `hash`.
    pub(super) async fn matching(
        &self,
        pattern: &Pattern,
        hash: Option<&str>,
    ) -> Result<Option<Vec<String>>> {
        let way = &self.way;
        let asked = self.retried(|| async move {
            match way {
                Way::Binary(lookup) => lookup.matching(pattern, hash).await,
                Way::Http(lookup) => lookup.matching(pattern, hash).await,
            }
        });
        asked.await
    }

    /// Asks, and again after a pause while the error is retriable, until the operation timeout.
    async fn retried<T: Send, F: Future<Output = Result<T>> + Send>(
        &self,
        ask: impl Fn() -> F + Send + Sync,
    ) -> Result<T> {
        self.counters.count(self.repeated(ask)).await
    }

    async fn repeated<T: Send, F: Future<Output = Result<T>> + Send>(
        &self,
        ask: impl Fn() -> F + Send + Sync,
    ) -> Result<T> {
        let deadline = clock::now() + self.options.operation_timeout;
        let mut backoff = Backoff::new(self.options.max_backoff);
        loop {
            match ask().await {
                Err(error) if error.retriable() && error.kind() != ErrorKind::Timeout => {
                    let pause = backoff.pause();
                    if clock::now() + pause >= deadline {
                        return Err(error);
                    }
                    tokio::time::sleep(pause).await;
                }
                other => return other,
            }
        }
    }
}
