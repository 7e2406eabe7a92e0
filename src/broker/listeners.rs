//! Listeners: addresses, what is spoken there, and who is admitted.
//!
//! | listener | admits |
//! |---|---|
//! | with a `client_ca` | clients with a certificate of that authority; the name in it is their user |
//! | of a protocol that has users or tokens | clients with valid credentials |
//! | `anonymous` | those, and clients without credentials |
//! | of a protocol that has neither | everyone |
//!
//! The last two do not listen on an address that other machines can reach, unless `anonymous` says
//! that it is meant.

use std::fmt;
use std::path::PathBuf;

use forebay_base::error::{Error, ErrorKind, Result, shown};
use forebay_net::resolve;
use forebay_net::tls::TlsFiles;
use forebay_net::url::is_host;

/// A listener.
#[derive(Clone, Debug)]
pub struct Listener {
    /// `pulsar`, `mqtt`, `tubemq` or `http`.
    pub protocol: String,
    /// Address.
    pub address: Address,
    /// Whether the protocol is spoken over WebSocket.
    pub websocket: bool,
    /// TLS, below everything else.
    pub tls: Option<ServerTls>,
    /// Whether clients without credentials are admitted, although the protocol has users or tokens.
    pub anonymous: bool,
    /// Host name that clients are told. Default: the host of the address.
    pub advertised_host: Option<String>,
}

/// Address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP.
    Tcp {
        /// Host name or IP address.
        host: String,
        /// Port; 0 takes any free one.
        port: u16,
    },
    /// A Unix socket.
    Unix {
        /// File of the socket. It is removed at the end.
        path: PathBuf,
        /// Permissions of the file.
        mode: u32,
    },
}

/// Certificates of a listener, PEM.
#[derive(Clone)]
pub struct ServerTls {
    /// Certificate chain.
    pub certificate: Vec<u8>,
    /// Private key.
    pub key: Vec<u8>,
    /// Authorities of the clients' certificates. When set, a client needs one, and the common name
    /// in it is its user.
    pub client_ca: Option<Vec<u8>>,
    /// Files that they were read from; `ca` is that of `client_ca`.
    pub files: TlsFiles,
}

/// Everything secret that can be replaced while a broker runs.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// Certificates of the listeners, in their order.
    pub certificates: Vec<Option<ServerTls>>,
    /// The option `token_key`.
    pub token_key: Option<Vec<u8>>,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("client_ca", &self.client_ca.is_some()).finish_non_exhaustive()
    }
}

impl Listener {
    /// A listener on TCP, without TLS.
    pub fn tcp(protocol: &str, host: &str, port: u16) -> Self {
        Self {
            protocol: protocol.to_owned(),
            address: Address::Tcp { host: host.to_owned(), port },
            websocket: false,
            tls: None,
            anonymous: false,
            advertised_host: None,
        }
    }

    /// A listener on any free port of the loopback interface.
    pub fn local(protocol: &str) -> Self {
        Self::tcp(protocol, "127.0.0.1", 0)
    }

    /// Whether clients show a certificate.
    pub(super) fn asks_for_certificates(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }

    /// Host and port, of TCP.
    pub(super) fn tcp_address(&self) -> Option<(&str, u16)> {
        match &self.address {
            Address::Tcp { host, port } => Some((host, *port)),
            Address::Unix { .. } => None,
        }
    }

    /// Whether other machines can reach it.
    pub(super) async fn is_public(&self) -> Result<bool> {
        let Some((host, _)) = self.tcp_address() else { return Ok(false) };
        let addresses = resolve(host, 0)
            .await
            .map_err(|error| Error::new(ErrorKind::InvalidArgument, format!("host {host:?}: {error}")))?;
        Ok(addresses.iter().any(|address| !address.ip().is_loopback()))
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let websocket = if self.websocket { " over WebSocket" } else { "" };
        write!(f, "the {} listener{websocket} on {}", self.protocol, self.address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(f, "{}:{port}", bracketed(host)),
            Self::Unix { path, .. } => write!(f, "{}", path.display()),
        }
    }
}

/// Refuses a value of an advertised host that is neither a name nor an address.
pub(super) fn check_advertised(option: &str, host: Option<&str>) -> Result<()> {
    match host.filter(|host| !is_host(host)) {
        None => Ok(()),
        Some(host) => {
            let text = format!("{option} is {}: use the name of a host or an IP address", shown(host));
            Err(Error::new(ErrorKind::InvalidArgument, text))
        }
    }
}

/// A host as it stands in a URL.
pub(super) fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// A listener that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// `pulsar`, `mqtt`, `mqtt_ws`, `tubemq` or `http`.
    pub name: &'static str,
    /// URL that clients connect to.
    pub url: String,
    /// Whether other machines can reach it and what they send can be read on the way, because it
    /// has no TLS.
    pub in_the_clear: bool,
}

/// The URLs of all listeners, in the order of the options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Urls(pub Vec<Listening>);

impl Urls {
    /// All URLs of this name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |one| one.name == name).map(|one| &*one.url)
    }

    /// The first URL of this name.
    pub fn of<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.all(name).next()
    }

    /// The first URL.
    pub fn first(&self) -> &str {
        self.0.first().map_or("", |one| &one.url)
    }
}

/// The options that would make clients of a protocol show credentials, if it admits everyone.
pub(super) type Missing = Option<&'static str>;

/// Refuses listeners that would let clients of other machines in without credentials, unless they
/// are meant to.
pub(super) async fn check_public<'a>(listeners: impl Iterator<Item = (&'a Listener, Missing)>) -> Result<()> {
    let mut refused = Vec::new();
    for (listener, missing) in listeners {
        if let Some(missing) = missing
            && !listener.anonymous
            && !listener.asks_for_certificates()
            && listener.is_public().await?
        {
            refused.push(format!("{listener}: set {missing}"));
        }
    }
    if refused.is_empty() {
        return Ok(());
    }
    let text = format!(
        "other machines could connect without credentials to {}. Or let it listen on 127.0.0.1, ask for certificates \
         (tls_client_ca), turn it off (off as its port), or set allow_anonymous if that is meant",
        refused.join("; and to ")
    );
    Err(Error::new(ErrorKind::InvalidArgument, text))
}
