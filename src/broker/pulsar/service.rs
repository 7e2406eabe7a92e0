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

/// The value of `advertised_url` as clients of all kinds read it: with a port, and without a path.
fn advertised(url: &str) -> Result<String> {
    let parsed = ServiceUrl::parse(url).ok().filter(|parsed| {
        let is_of_broker = parsed.is_of_broker(false) || parsed.is_of_broker(true);
        is_of_broker && ["", "/"].contains(&parsed.path.as_str()) && !url.contains('?')
    });
    match parsed.as_ref().map(|parsed| (parsed.tls, &parsed.addresses[..])) {
        Some((tls, [address])) => Ok(format!("pulsar{}://{address}", if tls { "+ssl" } else { "" })),
        _ => {
            let url = shown(url);
            let text = format!("advertised_url is {url}: use pulsar://HOST:PORT or pulsar+ssl://HOST:PORT");
            Err(Error::new(ErrorKind::InvalidArgument, text))
        }
    }
}

/// Pulsar with its options.
pub(crate) fn service(options: &Options) -> Result<Box<dyn Service>> {
    let advertised_url = options.pulsar.advertised_url.as_deref().map(advertised).transpose()?;
    Ok(Box::new(Pulsar {
        options: PulsarOptions { advertised_url, ..options.pulsar.clone() },
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

#[cfg(test)]
mod tests {
    use super::advertised;

    #[test]
    fn an_advertised_url_may_end_with_a_slash_and_have_upper_case() {
        for (given, told) in [
            ("pulsar://a:6650", "pulsar://a:6650"),
            ("pulsar://a:6650/", "pulsar://a:6650"),
            ("PULSAR://a:7", "pulsar://a:7"),
            ("Pulsar+SSL://[::1]:7/", "pulsar+ssl://[::1]:7"),
            ("pulsar+ssl://a", "pulsar+ssl://a:6651"),
        ] {
            assert_eq!(advertised(given).unwrap(), told);
        }
        for url in
            ["pulsar://a:1,b:2", "pulsar://a/x", "pulsar://a//", "pulsar://a/?x", "http://a:8080", "a:1"]
        {
            assert!(advertised(url).unwrap_err().message().contains("advertised_url"), "{url}");
        }
    }
}
