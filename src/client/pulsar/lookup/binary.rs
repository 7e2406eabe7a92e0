//! Lookups by commands of the binary protocol, to any of the service's addresses.

use std::sync::Arc;

use bytes::Bytes;

use crate::pulsar::connection::{Connection, Pool};
use crate::pulsar::lookup::common::{MAX_REDIRECTS, Preferred, broker_address, partition_count};
use crate::pulsar::options::ClientOptions;
use forebay_base::error::{Error, Result};
use forebay_net::url::{Address, ServiceUrl};
use forebay_pulsar::command::Command;
use forebay_pulsar::connection::ServerInfo;
use forebay_pulsar::pattern::Pattern;
use forebay_pulsar::pb;
use forebay_pulsar::pb::command_lookup_topic_response::LookupType;
use forebay_pulsar::schema::SchemaInfo;

#[derive(Debug)]
pub(super) struct BinaryLookup {
    options: ClientOptions,
    url: ServiceUrl,
    pool: Arc<Pool>,
    preferred: Preferred,
}

impl BinaryLookup {
    pub(super) fn new(options: ClientOptions, url: ServiceUrl, pool: Arc<Pool>) -> Self {
        Self { options, url, pool, preferred: Preferred::default() }
    }

    /// A connection to any address of the service.
    pub(super) async fn service(&self) -> Result<Arc<Connection>> {
        Ok(self.service_at().await?.0)
    }

    async fn service_at(&self) -> Result<(Arc<Connection>, Address)> {
        let attempt = self.preferred.first(&self.url, |address| async move {
            Ok((self.pool.get(address, None, 0).await?, address.clone()))
        });
        attempt.await
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
                .await?;
            let Command::LookupResponse(response) = answer else {
                return Err(Error::protocol(format!("LOOKUP was answered by {}", answer.name())));
            };
            let named =
                if self.url.tls { &response.broker_service_url_tls } else { &response.broker_service_url };
            let address = broker_address(named.as_deref(), self.url.tls)?;
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
        Err(Error::protocol(format!("the lookup was redirected {MAX_REDIRECTS} times")))
    }

    fn properties(&self) -> Vec<pb::KeyValue> {
        let pairs = self.options.lookup_properties.iter().cloned();
        pairs.map(|(key, value)| pb::KeyValue { key, value }).collect()
    }

    /// Number of partitions, 0 for a topic without partitions. With `create`, a topic that does not
    /// exist is created if the broker allows it.
    pub(super) async fn partitions(&self, topic: &str, create: bool) -> Result<u32> {
        let answer = self
            .request(|info, request_id| {
                let can_ask = info.features.supports_get_partitioned_metadata_without_auto_creation();
                Command::PartitionedMetadata(pb::CommandPartitionedTopicMetadata {
                    topic: topic.into(),
                    request_id,
                    metadata_auto_creation_enabled: (can_ask && !create).then_some(false),
                    ..Default::default()
                })
            })
            .await?;
        match answer {
            Command::PartitionedMetadataResponse(response) => partition_count(response.partitions()),
            other => Err(Error::protocol(format!("PARTITIONED_METADATA was answered by {}", other.name()))),
        }
    }

    /// The schema of a version of `topic`, the latest if `None`. Any broker can tell.
    pub(super) async fn schema(&self, topic: &str, version: Option<Bytes>) -> Result<SchemaInfo> {
        let answer = self
            .request(|_, request_id| {
                Command::GetSchema(pb::CommandGetSchema {
                    request_id,
                    topic: topic.into(),
                    schema_version: version,
                })
            })
            .await?;
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
            .request(|_, request_id| {
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

    /// The topics and partitions of the pattern's namespace, or more, with their hash; `None` if
    /// they are those of `hash`.
    pub(super) async fn matching(
        &self,
        pattern: &Pattern,
        hash: Option<&str>,
    ) -> Result<Option<Vec<String>>> {
        let answer = self
            .request(|_, request_id| {
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

    async fn request(&self, command: impl FnOnce(&ServerInfo, u64) -> Command) -> Result<Command> {
        let connection = self.service().await?;
        connection.request(|id| command(connection.info(), id)).await
    }
}
