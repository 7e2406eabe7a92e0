//! Options of the broker. Each protocol adds its own.

use std::path::PathBuf;

use crate::listeners::Listener;
use crate::mqtt::options::MqttOptions;
use crate::pulsar::options::PulsarOptions;
use crate::tubemq::options::TubeMqOptions;
use forebay_base::error::{Error, ErrorKind, Result};

/// When the broker acknowledges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Once the data are on disk.
    #[default]
    Fsync,
    /// Once the operating system has the data: they survive a kill of the process, but not a power failure.
    Os,
    /// Once the data are in memory: they end with the process.
    Memory,
}

impl Durability {
    /// `fsync`, `os` or `memory`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Os => "os",
            Self::Memory => "memory",
        }
    }

    /// Parses a [`Self::name`].
    pub fn parse(name: &str) -> Result<Self> {
        [Self::Fsync, Self::Os, Self::Memory]
            .into_iter()
            .find(|durability| durability.name() == name)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidArgument,
                    format!("durability {name:?} is not one of fsync, os, memory"),
                )
            })
    }
}

/// Options of the broker.
#[derive(Clone)]
pub struct Options {
    /// Directory of the store. `None` means [`Durability::Memory`].
    pub data: Option<PathBuf>,
    /// Listeners. A protocol without one is not spoken.
    pub listeners: Vec<Listener>,
    /// When the broker acknowledges.
    pub durability: Durability,
    /// Secret of HS256 tokens. When set, clients of Pulsar, MQTT and HTTP must present a token.
    pub token_key: Option<Vec<u8>>,
    /// Name of this broker in tokens: those for another audience (`aud`), or for none, are refused. Without it, those for any
    /// audience are.
    pub token_audience: Option<String>,
    /// Rules in the format of Mosquitto's `acl_file`. When set, clients may do what a rule allows, and nothing else.
    pub acl: Option<String>,
    /// Whether durable subscriptions of Pulsar and groups of TubeMQ belong to the user that made them, where there are users.
    pub subscription_owners: bool,
    /// Limit on the bytes stored by all protocols together, at which publishers are refused. Default: 10 GiB on
    /// disk, 1 GiB in memory.
    pub max_store: Option<u64>,
    /// Bytes that the disk of the store keeps free: with less left, publishers are refused as at `max_store`. 0 turns it off.
    pub min_disk_free: u64,
    /// Limit on the connections of all protocols together; the descriptors that are free at the start may lower it. With
    /// several protocols each has at most three quarters, and one address at most three quarters of a protocol's.
    pub max_connections: usize,
    /// Limit on topics and partitions.
    pub max_topics: usize,
    /// Whether a topic is created when a client first uses it.
    pub auto_create: bool,
    /// Options of Pulsar.
    pub pulsar: PulsarOptions,
    /// Options of MQTT.
    pub mqtt: MqttOptions,
    /// Options of TubeMQ.
    pub tubemq: TubeMqOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            data: None,
            listeners: vec![Listener::local("pulsar")],
            durability: Durability::Fsync,
            token_key: None,
            token_audience: None,
            acl: None,
            subscription_owners: true,
            max_store: None,
            min_disk_free: 64 << 20,
            max_connections: 16_384,
            max_topics: 10_000,
            auto_create: true,
            pulsar: PulsarOptions::default(),
            mqtt: MqttOptions::default(),
            tubemq: TubeMqOptions::default(),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("data", &self.data)
            .field("listeners", &self.listeners)
            .field("pulsar", &self.pulsar)
            .field("durability", &self.durability)
            .field("token", &self.token_key.is_some())
            .finish_non_exhaustive()
    }
}
