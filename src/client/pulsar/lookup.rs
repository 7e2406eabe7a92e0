//! Lookups: the broker that serves a topic, the number of its partitions, and the topics of a namespace.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::client::pulsar::connection::{Connection, Pool};
use crate::client::pulsar::options::ClientOptions;
use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::net::backoff::Backoff;
use crate::net::url::{Address, ServiceUrl};
use crate::pulsar::command::Command;
use crate::pulsar::connection::ServerInfo;
use crate::pulsar::pattern::Pattern;
use crate::pulsar::pb;
use crate::pulsar::pb::command_lookup_topic_response::LookupType;
use crate::pulsar::schema::SchemaInfo;

/// More redirects than this are a loop.
const MAX_REDIRECTS: usize = 20;

/// Largest believable number of partitions: a producer allocates memory for each.
const MAX_PARTITIONS: u32 = 1 << 16;

/// Finds brokers by a request to any of the service's addresses.
#[derive(Debug)]
pub(super) struct Lookup {
    options: ClientOptions,
    url: ServiceUrl,
    pool: Arc<Pool>,
    /// Index of the address that is tried first; moves on when one fails.
    preferred: AtomicUsize,
}

impl Lookup {
    pub(super) fn new(options: ClientOptions, url: ServiceUrl, pool: Arc<Pool>) -> Self {
        Self { options, url, pool, preferred: AtomicUsize::new(0) }
    }

    /// A connection to any address of the service.
    pub(super) async fn service(&self) -> Result<Arc<Connection>> {
        Ok(self.service_at().await?.0)
    }

    async fn service_at(&self) -> Result<(Arc<Connection>, Address)> {
        let mut last = None;
        for _ in 0..self.url.addresses.len() {
            let index = self.preferred.load(Ordering::Relaxed);
            let address = &self.url.addresses[index % self.url.addresses.len()];
            match self.pool.get(address, None, 0).await {
                Ok(connection) => return Ok((connection, address.clone())),
                Err(error) => {
                    let _ = self.preferred.compare_exchange(
                        index,
                        index.wrapping_add(1),
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                    last = Some(error);
                }
            }
        }
        Err(last.expect("a service URL has at least one address"))
    }

    /// A connection to the broker that serves `topic`.
    pub(super) async fn broker(&self, topic: &str, spread: u64) -> Result<Arc<Connection>> {
        let (mut connection, service) = self.service_at().await?;
        let mut authoritative = false;
        for _ in 0..MAX_REDIRECTS {
            let answer = connection
                .request(|request_id| {
                    Command::Lookup(Box::new(pb::CommandLookupTopic {
                        topic: topic.into(),
                        request_id,
                        authoritative: Some(authoritative),
                        advertised_listener_name: self.options.listener_name.clone(),
                        properties: self.properties(),
                        ..Default::default()
                    }))
                })
                .await
                .map_err(|error| error.with_topic(topic))?;
            let Command::LookupResponse(response) = answer else {
                return Err(Error::protocol(format!("LOOKUP was answered by {}", answer.name())));
            };
            let address = self.address(topic, &response)?;
            authoritative = response.authoritative();
            if response.response() == LookupType::Connect {
                return if address == service && spread == 0 {
                    Ok(connection)
                } else if address != service && response.proxy_through_service_url() {
                    self.pool.get(&service, Some(address.to_string()), spread).await
                } else {
                    self.pool.get(&address, None, spread).await
                };
            }
            connection = if response.proxy_through_service_url() {
                self.pool.get(&service, Some(address.to_string()), 0).await?
            } else {
                self.pool.get(&address, None, 0).await?
            };
        }
        Err(Error::protocol(format!("the lookup was redirected {MAX_REDIRECTS} times")).with_topic(topic))
    }

    fn properties(&self) -> Vec<pb::KeyValue> {
        let pairs = self.options.lookup_properties.iter().cloned();
        pairs.map(|(key, value)| pb::KeyValue { key, value }).collect()
    }

    /// Address of the broker in a response. A service with TLS never leads to a broker without.
    fn address(&self, topic: &str, response: &pb::CommandLookupTopicResponse) -> Result<Address> {
        let url = if self.url.tls { &response.broker_service_url_tls } else { &response.broker_service_url };
        let url = url.as_deref().filter(|url| !url.is_empty()).ok_or_else(|| {
            Error::protocol("the lookup response names no broker for the scheme of this client's URL")
                .with_topic(topic)
        })?;
        let url = ServiceUrl::parse(url).map_err(|error| {
            Error::protocol("the lookup response names an invalid broker URL").with_peer_text(error.message())
        })?;
        if url.tls != self.url.tls {
            return Err(Error::protocol("the lookup response leads to a broker with another scheme")
                .with_topic(topic));
        }
        Ok(url.addresses.into_iter().next().expect("a service URL has at least one address"))
    }

    /// Number of partitions, 0 for a topic without partitions. With `create`, a topic that does not exist is created
    /// if the broker allows it.
    pub(super) async fn partitions(&self, topic: &str, create: bool) -> Result<u32> {
        let answer = self
            .retried(|info, request_id| {
                let can_ask = info.features.supports_get_partitioned_metadata_without_auto_creation();
                Command::PartitionedMetadata(pb::CommandPartitionedTopicMetadata {
                    topic: topic.into(),
                    request_id,
                    metadata_auto_creation_enabled: (can_ask && !create).then_some(false),
                    ..Default::default()
                })
            })
            .await
            .map_err(|error| error.with_topic(topic))?;
        match answer {
            Command::PartitionedMetadataResponse(response) if response.partitions() <= MAX_PARTITIONS => {
                Ok(response.partitions())
            }
            Command::PartitionedMetadataResponse(response) => Err(Error::protocol(format!(
                "the broker states {} partitions: at most {MAX_PARTITIONS} are supported",
                response.partitions()
            ))),
            other => Err(Error::protocol(format!("PARTITIONED_METADATA was answered by {}", other.name()))),
        }
    }

    /// The schema of a version of `topic`, the latest if `None`. Any broker can tell.
    pub(super) async fn schema(&self, topic: &str, version: Option<Bytes>) -> Result<SchemaInfo> {
        let answer = self
            .retried(|_, request_id| {
                Command::GetSchema(pb::CommandGetSchema {
                    request_id,
                    topic: topic.into(),
                    schema_version: version.clone(),
                })
            })
            .await
            .map_err(|error| error.with_topic(topic))?;
        match answer {
            Command::GetSchemaResponse(response) => match response.schema {
                Some(schema) => schema.try_into(),
                None => Err(Error::protocol("the broker's answer to GET_SCHEMA has no schema")),
            },
            other => Err(Error::protocol(format!("GET_SCHEMA was answered by {}", other.name()))),
        }
    }

    /// Full names of the persistent topics of `tenant/namespace`.
    pub(super) async fn topics(&self, namespace: &str) -> Result<Vec<String>> {
        let answer = self
            .retried(|_, request_id| {
                Command::GetTopicsOfNamespace(Box::new(pb::CommandGetTopicsOfNamespace {
                    request_id,
                    namespace: namespace.into(),
                    mode: Some(pb::command_get_topics_of_namespace::Mode::All as i32),
                    ..Default::default()
                }))
            })
            .await?;
        match answer {
            Command::GetTopicsOfNamespaceResponse(response) => Ok(response.topics),
            other => {
                Err(Error::protocol(format!("GET_TOPICS_OF_NAMESPACE was answered by {}", other.name())))
            }
        }
    }

    /// The topics and partitions of the pattern's namespace, or more, with their hash; `None` if they are those of `hash`.
    pub(super) async fn matching(
        &self,
        pattern: &Pattern,
        hash: Option<&str>,
    ) -> Result<Option<Vec<String>>> {
        let answer = self
            .retried(|_, request_id| {
                Command::GetTopicsOfNamespace(Box::new(pb::CommandGetTopicsOfNamespace {
                    request_id,
                    namespace: pattern.namespace().into(),
                    mode: Some(pattern.domain() as i32),
                    topics_pattern: Some(pattern.wire().into()),
                    topics_hash: hash.map(Into::into),
                    ..Default::default()
                }))
            })
            .await?;
        match answer {
            Command::GetTopicsOfNamespaceResponse(response) => {
                Ok(response.changed.unwrap_or(true).then_some(response.topics))
            }
            other => {
                Err(Error::protocol(format!("GET_TOPICS_OF_NAMESPACE was answered by {}", other.name())))
            }
        }
    }

    /// Sends a request, again after a pause while the error is retriable, until the operation timeout.
    async fn retried(&self, command: impl Fn(&ServerInfo, u64) -> Command) -> Result<Command> {
        let deadline = clock::now() + self.options.operation_timeout;
        let mut backoff = Backoff::new(self.options.max_backoff);
        loop {
            let result = match self.service().await {
                Ok(connection) => connection.request(|id| command(connection.info(), id)).await,
                Err(error) => Err(error),
            };
            match result {
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
