//! Pulsar as a [`Service`] of the server.

use super::options::{PulsarOptions, Settings};
use super::session::SessionConfig;
use super::{Broker, DOMAIN};
use crate::broker::options::Options;
use crate::broker::protocol::Protocol;
use crate::broker::service::{Context, Framing, Listen, Service};
use crate::broker::store::{self, Found};
use crate::error::Result;

struct Pulsar {
    options: PulsarOptions,
    auto_create: bool,
    max_topics: usize,
    /// Whether every client is admitted.
    open: bool,
}

/// Pulsar, which is always enabled.
pub(in crate::broker) fn service(options: &Options) -> Result<Option<Box<dyn Service>>> {
    Ok(Some(Box::new(Pulsar {
        options: options.pulsar.clone(),
        auto_create: options.auto_create,
        max_topics: options.max_topics,
        open: options.token_key.is_none(),
    })))
}

impl Service for Pulsar {
    fn topic_prefix(&self) -> Option<&'static str> {
        Some("")
    }

    fn listen(&self) -> Vec<Listen> {
        vec![Listen {
            port: self.options.port,
            schemes: ["pulsar", "pulsar+ssl"],
            path: "",
            framing: Framing::Bare,
            publish: |urls, url| urls.pulsar = url,
        }]
    }

    fn admits_everyone(&self) -> Option<&'static str> {
        self.open.then_some("token_key")
    }

    fn open(self: Box<Self>, context: &Context<'_>) -> Result<Box<dyn Protocol>> {
        let found = match context.database {
            Some(database) => store::load(database.connection(), DOMAIN, context.clock.run_ms(context.now))?,
            None => Found::default(),
        };
        let options = self.options;
        let settings = Settings {
            url: options.advertised_url.unwrap_or_else(|| context.urls.pulsar.clone()),
            web_url: context.urls.http.clone(),
            session: SessionConfig {
                max_message_size: options.max_message_size,
                keep_alive: options.keep_alive,
                tokens: context.tokens.cloned(),
            },
            clock: context.clock,
            stored: context.database.is_some(),
            auto_create: self.auto_create,
            partitions: options.default_partitions,
            deduplicate: options.deduplicate,
            schema_compatibility: options.schema_compatibility,
            retention: options.retention,
            retention_bytes: options.retention_bytes,
            usage: context.usage.clone(),
            max_store: context.max_store,
            max_topics: self.max_topics,
            namespaces: options.namespaces,
            topic_ids: context.topic_ids.clone(),
            permissions: context.permissions.cloned(),
        };
        Ok(Box::new(Broker::new(settings, found, context.source()?, context.now)))
    }
}
