//! MQTT as a [`Service`] of the server.

use super::Broker;
use super::options::{MqttOptions, Settings};
use super::passwords::Passwords;
use crate::broker::options::Options;
use crate::broker::protocol::Protocol;
use crate::broker::service::{Context, Framing, Listen, Service};
use crate::broker::store::mqtt::{self as tables, Found};
use crate::error::Result;
use crate::net::ws;

struct Mqtt {
    options: MqttOptions,
    passwords: Option<Passwords>,
    /// Whether every client is admitted.
    open: bool,
}

/// MQTT, if it has a port.
pub(in crate::broker) fn service(options: &Options) -> Result<Option<Box<dyn Service>>> {
    let own = &options.mqtt;
    if own.port.is_none() && own.ws_port.is_none() {
        return Ok(None);
    }
    let passwords = own.passwords.as_deref().map(Passwords::parse).transpose()?;
    let open = passwords.is_none() && options.token_key.is_none();
    Ok(Some(Box::new(Mqtt { options: own.clone(), passwords, open })))
}

impl Service for Mqtt {
    fn topic_prefix(&self) -> Option<&'static str> {
        None
    }

    fn listen(&self) -> Vec<Listen> {
        let max_packet_size = self.options.limits.max_packet_size as usize;
        let tcp = self.options.port.map(|port| Listen {
            port,
            schemes: ["mqtt", "mqtts"],
            path: "",
            framing: Framing::Bare,
            publish: |urls, url| urls.mqtt = Some(url),
        });
        let ws = self.options.ws_port.map(|port| Listen {
            port,
            schemes: ["ws", "wss"],
            path: ws::PATH,
            framing: Framing::WebSocket { local_pages_only: self.open, max_packet_size },
            publish: |urls, url| urls.mqtt_ws = Some(url),
        });
        tcp.into_iter().chain(ws).collect()
    }

    fn admits_everyone(&self) -> Option<&'static str> {
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
            seed: context.seed,
            passwords: self.passwords,
            tokens: context.tokens.cloned(),
            permissions: context.permissions.cloned(),
        };
        Ok(Box::new(Broker::new(settings, found, context.source()?, context.now)))
    }
}
