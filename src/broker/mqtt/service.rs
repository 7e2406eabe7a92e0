//! MQTT as a [`Service`] of the server.

use super::Broker;
use super::options::{MqttOptions, Settings};
use super::passwords::Passwords;
use crate::listeners::{Listener, Missing};
use crate::options::Options;
use crate::protocol::Protocol;
use crate::service::{Context, Framing, ListenerSpec, Service};
use crate::store::mqtt::{self as tables, Found};
use forebay_base::error::Result;
use forebay_net::ws;

/// Limit on the bytes of QoS 1 and 2 that wait for sessions which are not stored.
const MAX_TRANSIENT: usize = 256 << 20;

struct Mqtt {
    options: MqttOptions,
    passwords: Option<Passwords>,
    /// Whether every client is admitted.
    open: bool,
}

/// MQTT with its options.
pub(crate) fn service(options: &Options) -> Result<Box<dyn Service>> {
    let own = &options.mqtt;
    let passwords = own.passwords.as_deref().map(Passwords::parse).transpose()?;
    let open = passwords.is_none() && options.token_key.is_none();
    Ok(Box::new(Mqtt { options: own.clone(), passwords, open }))
}

impl Service for Mqtt {
    fn topic_prefix(&self) -> Option<&'static str> {
        None
    }

    fn listener_spec(&self, listener: &Listener) -> Option<ListenerSpec> {
        if !listener.websocket {
            let schemes = ["mqtt", "mqtts"];
            return Some(ListenerSpec {
                name: "mqtt",
                schemes,
                path: "",
                framing: Framing::Bare,
                unix: true,
            });
        }
        let framing = Framing::WebSocket {
            // A page of any site could connect: it needs no password, and browsers show
            // certificates by themselves.
            local_pages_only: self.open || listener.anonymous || listener.asks_for_certificates(),
            max_packet_size: self.options.limits.max_packet_size as usize,
        };
        Some(ListenerSpec { name: "mqtt_ws", schemes: ["ws", "wss"], path: ws::PATH, framing, unix: true })
    }

    fn admits_everyone(&self) -> Missing {
        self.open.then_some("mqtt_password_file or token_key")
    }

    fn open(self: Box<Self>, context: &Context<'_>) -> Result<Box<dyn Protocol>> {
        let found = match context.database {
            Some(database) => tables::load(database.connection(), context.topic_ids)?,
            None => Found::default(),
        };
        let settings = Settings {
            limits: self.options.limits,
            clock: context.clock,
            stored: context.database.is_some(),
            usage: context.usage.clone(),
            max_store: context.max_store,
            max_transient: MAX_TRANSIENT,
            seed: context.seed,
            passwords: self.passwords,
            tokens: context.tokens.cloned(),
            permissions: context.permissions.cloned(),
            certificates: context.certificates,
        };
        Ok(Box::new(Broker::new(settings, found, context.source()?, context.now)))
    }
}
