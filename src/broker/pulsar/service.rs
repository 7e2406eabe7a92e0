//! Pulsar as a [`Service`] of the server.

use super::options::{PulsarOptions, Settings};
use super::session::SessionConfig;
use super::{Broker, DOMAIN};
use crate::listeners::{Listener, Missing};
use crate::options::Options;
use crate::protocol::Protocol;
use crate::service::{Context, Framing, ListenerSpec, Service};
use crate::store::{self, Found};
use forebay_base::error::{Error, ErrorKind, Result, shown};
use forebay_net::url::ServiceUrl;

struct Pulsar {
    options: PulsarOptions,
    auto_create: bool,
    max_topics: usize,
    /// Whether every client is admitted.
    open: bool,
    owners: bool,
}

/// Pulsar with its options.
pub(crate) fn service(options: &Options) -> Result<Box<dyn Service>> {
    if let Some(url) = &options.pulsar.advertised_url {
        let parsed = ServiceUrl::parse(url).ok();
        let is_of_broker = |parsed: &ServiceUrl| parsed.is_of_broker(false) || parsed.is_of_broker(true);
        let is_plain = |parsed: &ServiceUrl| parsed.addresses.len() == 1 && parsed.path.is_empty();
        if !parsed.is_some_and(|parsed| is_of_broker(&parsed) && is_plain(&parsed)) || url.contains('?') {
            let url = shown(url);
            let text = format!("advertised_url is {url}: use pulsar://HOST:PORT or pulsar+ssl://HOST:PORT");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
    }
    Ok(Box::new(Pulsar {
        options: options.pulsar.clone(),
        auto_create: options.auto_create,
        max_topics: options.max_topics,
        open: options.token_key.is_none(),
        owners: options.subscription_owners,
    }))
}

impl Service for Pulsar {
    fn topic_prefix(&self) -> Option<&'static str> {
        Some("")
    }

    fn listener_spec(&self, listener: &Listener) -> Option<ListenerSpec> {
        let schemes = ["pulsar", "pulsar+ssl"];
        let spec = ListenerSpec { name: "pulsar", schemes, path: "", framing: Framing::Bare, unix: false };
        (!listener.websocket).then_some(spec)
    }

    fn admits_everyone(&self) -> Missing {
        self.open.then_some("token_key")
    }

    fn open(self: Box<Self>, context: &Context<'_>) -> Result<Box<dyn Protocol>> {
        let found = match context.database {
            Some(database) => store::load(database.connection(), DOMAIN, context.clock.run_ms(context.now))?,
            None => Found::default(),
        };
        let options = self.options;
        let settings = Settings {
            urls: match options.advertised_url {
                Some(url) => vec![url],
                None => context.urls.all("pulsar").map(str::to_owned).collect(),
            },
            web_urls: context.urls.all("http").map(str::to_owned).collect(),
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
            owners: self.owners && (context.tokens.is_some() || context.certificates),
        };
        Ok(Box::new(Broker::new(settings, found, context.source()?, context.now)))
    }
}
