//! TubeMQ as a [`Service`] of the server.

use super::options::{MAX_MESSAGE_SIZE, Settings, TubeMqOptions};
use super::users::Users;
use super::{Broker, DOMAIN, PREFIX};
use crate::listeners::{Listener, Missing};
use crate::options::Options;
use crate::protocol::Protocol;
use crate::service::{Context, Framing, ListenerSpec, Service};
use crate::store::{self, Found};
use forebay_base::error::{Error, ErrorKind, Result};

struct TubeMq {
    options: TubeMqOptions,
    users: Option<Users>,
    auto_create: bool,
    max_topics: usize,
    owners: bool,
}

/// TubeMQ with its options.
pub(crate) fn service(options: &Options) -> Result<Box<dyn Service>> {
    let own = &options.tubemq;
    let users = own.users.as_deref().map(Users::parse).transpose()?;
    let largest = own.max_message_size;
    if !(1..=MAX_MESSAGE_SIZE).contains(&largest) {
        let text =
            format!("tubemq_max_message_size must be between 1 and {MAX_MESSAGE_SIZE} bytes, not {largest}");
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    Ok(Box::new(TubeMq {
        options: own.clone(),
        users,
        auto_create: options.auto_create,
        max_topics: options.max_topics,
        owners: options.subscription_owners,
    }))
}

impl Service for TubeMq {
    fn topic_prefix(&self) -> Option<&'static str> {
        Some(PREFIX)
    }

    fn listener_spec(&self, listener: &Listener) -> Option<ListenerSpec> {
        let schemes = ["tubemq", "tubemq+ssl"];
        let spec = ListenerSpec { name: "tubemq", schemes, path: "", framing: Framing::Bare, unix: false };
        (!listener.websocket).then_some(spec)
    }

    fn admits_everyone(&self) -> Missing {
        self.users.is_none().then_some("tubemq_user_file")
    }

    fn advertised_host(&self) -> Option<&str> {
        self.options.advertised_host.as_deref()
    }

    fn open(self: Box<Self>, context: &Context<'_>) -> Result<Box<dyn Protocol>> {
        let found = match context.database {
            Some(database) => store::load(database.connection(), DOMAIN, context.clock.run_ms(context.now))?,
            None => Found::default(),
        };
        let options = self.options;
        // Those whom certificates name are in no file.
        let users = self.users.or_else(|| context.certificates.then(Users::default));
        let settings = Settings {
            address: context.address.clone(),
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
            owners: self.owners && users.is_some(),
            certificates: context.certificates,
            users,
            topic_ids: context.topic_ids.clone(),
            permissions: context.permissions.cloned(),
        };
        Ok(Box::new(Broker::new(settings, found, context.source()?, context.now)))
    }
}
