//! TubeMQ as a [`Service`] of the server.

use super::options::{MAX_MESSAGE_SIZE, Settings, TubeMqOptions};
use super::users::Users;
use super::{Broker, DOMAIN, PREFIX};
use crate::broker::options::Options;
use crate::broker::protocol::Protocol;
use crate::broker::service::{Context, Framing, Listen, Service};
use crate::broker::store::{self, Found};
use crate::error::{Error, ErrorKind, Result};

struct TubeMq {
    options: TubeMqOptions,
    users: Option<Users>,
    port: u16,
    host: String,
    auto_create: bool,
    max_topics: usize,
}

/// TubeMQ, if it has a port.
pub(in crate::broker) fn service(options: &Options) -> Result<Option<Box<dyn Service>>> {
    let own = &options.tubemq;
    let users = own.users.as_deref().map(Users::parse).transpose()?;
    let largest = own.max_message_size;
    if !(1..=MAX_MESSAGE_SIZE).contains(&largest) {
        let text =
            format!("tubemq_max_message_size must be between 1 and {MAX_MESSAGE_SIZE} bytes, not {largest}");
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    let Some(port) = own.port else { return Ok(None) };
    Ok(Some(Box::new(TubeMq {
        options: own.clone(),
        users,
        port,
        host: own.advertised_host.clone().unwrap_or_else(|| options.host.clone()),
        auto_create: options.auto_create,
        max_topics: options.max_topics,
    })))
}

impl Service for TubeMq {
    fn topic_prefix(&self) -> Option<&'static str> {
        Some(PREFIX)
    }

    fn listen(&self) -> Vec<Listen> {
        vec![Listen {
            port: self.port,
            schemes: ["tubemq", "tubemq+ssl"],
            path: "",
            framing: Framing::Bare,
            publish: |urls, url| urls.tubemq = Some(url),
        }]
    }

    fn missing_for_public_bind(&self) -> Option<&'static str> {
        self.admits_everyone()
    }

    fn admits_everyone(&self) -> Option<&'static str> {
        self.users.is_none().then_some("tubemq_user_file")
    }

    fn open(self: Box<Self>, context: &Context<'_>) -> Result<Box<dyn Protocol>> {
        let found = match context.database {
            Some(database) => store::load(database.connection(), DOMAIN, context.clock.run_ms(context.now))?,
            None => Found::default(),
        };
        let options = self.options;
        let settings = Settings {
            address: (self.host, context.ports.first().copied().unwrap_or(self.port)),
            clock: context.clock,
            stored: context.database.is_some(),
            auto_create: self.auto_create,
            partitions: options.partitions,
            max_message_size: options.max_message_size,
            retention: options.retention,
            offset_retention: options.offset_retention,
            usage: context.usage.clone(),
            max_store: context.max_store,
            max_topics: self.max_topics,
            client_timeout: options.client_timeout,
            seed: context.seed,
            users: self.users,
            topic_ids: context.topic_ids.clone(),
            permissions: context.permissions.cloned(),
        };
        Ok(Box::new(Broker::new(settings, found, context.source()?, context.now)))
    }
}
