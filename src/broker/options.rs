//! Options of the broker. Each protocol adds its own.

use std::path::PathBuf;

use crate::listeners::Listener;
use crate::mqtt::options::{Limits, MqttOptions};
use crate::pulsar::options::PulsarOptions;
use crate::tubemq::options::TubeMqOptions;
use forebay_base::error::{Error, ErrorKind, Result};
use forebay_base::options;
use forebay_base::options::{FLAG, OptionSpec, SIZE, TEXT, WORD, at_least, own, whole};

/// When the broker acknowledges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Once the data are on disk.
    #[default]
    Fsync,
    /// Once the operating system has the data: they survive a kill of the process, but not a power
    /// failure.
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

options! {
    /// Options of the broker.
    #[derive(Clone)]
    pub struct Options {
        /// Directory of the store. Without it, the broker keeps everything in memory.
        custom data: Option<PathBuf> = None => own("path").common();
        /// Additional listeners, each a mapping of listener options: address, certificate, and
        /// permitted clients.
        custom listeners: Vec<Listener> = vec![Listener::local("pulsar")] => own("listeners");
        /// When a message counts as stored: on disk, in the operating system, or in memory.
        /// Default: `fsync` with `data`, else `memory`.
        words durability: Durability = Durability::Fsync => of [
            "fsync" = Durability::Fsync,
            "os" = Durability::Os,
            "memory" = Durability::Memory,
        ] WORD.unset();
        /// Key that verifies tokens: a secret (HS256), public keys in PEM or DER (RS256, ES256), or
        /// JSON Web Keys. Every client then needs a token. The log names the kinds of the keys.
        option token_key: Option<Vec<u8>> = None => own("key").common().secret();
        /// Name of this broker in the `aud` of tokens. Without it, the broker rejects tokens that
        /// have an `aud`.
        option token_audience: Option<String> = None => TEXT;
        /// Rules in the format of Mosquitto's `acl_file`. When set, clients may do what a rule
        /// allows, and nothing else.
        field acl: Option<String> = None;
        /// Reserve durable Pulsar subscriptions, names of Pulsar producers and TubeMQ groups to the
        /// user that created them.
        /// Other users are rejected unless the file of permissions allows them. Has no effect
        /// without users.
        option subscription_owners: bool = true => FLAG;
        /// Size limit of the store in bytes. Producers get an error above it. Default: 10 GiB, in
        /// memory 1 GiB.
        option max_store: Option<u64> = None => SIZE
            .at_limit("Messages that `retention` keeps are deleted: acknowledged ones, then those of topics without a \
            durable subscription. If that is not enough, producers get an error: `QuotaExceeded` (Pulsar), 0x97 \
            (MQTT 5.0; an MQTT 3.x client is disconnected and keeps its message), 419 (TubeMQ). `/readyz` fails.");
        /// Minimum free space on the disk of the store, in bytes. Producers get an error below it,
        /// as at `max_store`. 0 disables the limit.
        option min_disk_free: u64 = 64 << 20 => SIZE
            .at_limit("Producers get the errors of `max_store`; free pages of the store are used. `/readyz` fails.");
        /// Maximum number of connections, lowered to the free file descriptors of the process. With
        /// several protocols each may use three quarters of it, and one address three quarters of
        /// the share of a protocol.
        option max_connections: usize = 16_384 => at_least(1)
            .at_limit("A new connection is closed at once, counted and logged.");
        /// Maximum number of topics and partitions.
        option max_topics: usize = 10_000 => at_least(1)
            .at_limit("A new topic is refused with `TooManyRequests`, if no idle one can be removed for it.");
        /// Create topics on first use.
        option auto_create: bool = true => FLAG;
        /// Options of Pulsar.
        field pulsar: PulsarOptions = PulsarOptions::default();
        /// Options of MQTT.
        field mqtt: MqttOptions = MqttOptions::default();
        /// Options of TubeMQ.
        field tubemq: TubeMqOptions = TubeMqOptions::default();
        /// Address to listen on.
        row host => TEXT.word("127.0.0.1");
        /// Port for Pulsar. 0 selects a free port, `off` disables Pulsar. Default: 0, or `off` with
        /// `listeners`.
        row port => own("port").common();
        /// Certificate chain. Enables TLS.
        row tls_cert => own("pem");
        /// Private key of the certificate.
        row tls_key => own("pem").secret();
        /// Authorities of client certificates. Every client then needs a certificate, and its
        /// common name is the user.
        row tls_client_ca => own("pem");
        /// File of permissions in the format of Mosquitto's `acl_file`. The broker rejects
        /// everything that no rule allows, for every protocol.
        row acl_file => own("path");
        /// Accept clients without credentials, also from other machines. Credentials that a client
        /// sends are still checked. Without it, the broker listens for other machines only if
        /// clients need credentials.
        row allow_anonymous => FLAG.flag(false);
        /// Port for HTTP, or HTTPS with a certificate: health checks, metrics, and Pulsar's lookups
        /// and administration. 0 selects a free port. Without it, HTTP is disabled.
        row http_port => own("port").common();
        /// Port for MQTT. 0 selects a free port. Without it, MQTT is disabled.
        row mqtt_port => own("port").common();
        /// Port for MQTT over WebSocket, path `/mqtt`. 0 selects a free port.
        row mqtt_ws_port => own("port");
        /// File of MQTT users in the format of `mosquitto_passwd`.
        row mqtt_password_file => own("path");
        /// Port for TubeMQ. 0 selects a free port. Without it, TubeMQ is disabled.
        row tubemq_port => own("port").common();
        /// File of TubeMQ users, one `name:password` per line.
        row tubemq_user_file => own("path");
    }
}

options! {
    /// Options of a listener, which the bindings read.
    #[derive(Clone, Debug)]
    pub struct ListenerOptions {
        /// Protocol. Required.
        row protocol => WORD.words(&["pulsar", "mqtt", "tubemq", "http"]).common();
        /// Address to listen on. Default: the option `host` of the broker.
        row host => TEXT;
        /// Port. Default: 0, which selects a free port.
        row port => whole(0, 65_535).common();
        /// Unix socket to listen on instead of host and port (MQTT and HTTP). The broker removes
        /// the file when it stops.
        row unix => own("path");
        /// Permissions of the Unix socket in octal digits, such as "0660". Default: 0600.
        row mode => own("mode");
        /// Use MQTT over WebSocket, with the path `/mqtt`.
        row websocket => FLAG;
        /// `false` disables TLS although the broker has a certificate. A Unix socket never uses
        /// TLS.
        row tls => FLAG;
        /// Certificate chain. Default: the broker's.
        row tls_cert => own("pem");
        /// Private key of the certificate.
        row tls_key => own("pem").secret();
        /// Authorities of client certificates. Every client then needs a certificate, and its
        /// common name is the user; other credentials are ignored. Default: the broker's.
        row tls_client_ca => own("pem");
        /// Accept clients without credentials, also from other machines. Credentials that a client
        /// sends are still checked. Default: the option `allow_anonymous` of the broker.
        row anonymous => FLAG;
        /// Host name in the URL and in answers to clients. Default: `host`. If that is `0.0.0.0` or
        /// `::`, a TubeMQ client gets the address that it connected to.
        row advertised_host => TEXT;
    }
}

/// All options of the broker and its protocols.
pub fn specs() -> Vec<OptionSpec> {
    [Options::specs(), PulsarOptions::specs(), Limits::specs(), TubeMqOptions::specs()].concat()
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
