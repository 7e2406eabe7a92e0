//! Service URLs: `scheme://host[:port][,host[:port]…]`.

use std::fmt;
use std::net::Ipv6Addr;

use forebay_base::error::{Error, ErrorKind, Result};

/// A broker's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Name or IP address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Protocol of a service URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Apache Pulsar.
    Pulsar,
    /// MQTT.
    Mqtt,
    /// Apache InLong TubeMQ; the addresses are its masters'.
    TubeMq,
}

/// Transport of the protocol's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// WebSocket over TCP.
    WebSocket,
    /// A Unix domain socket.
    Unix,
    /// HTTP, for lookups alone: the protocol has sockets of its own, to the brokers that are found.
    Http,
}

/// Scheme, protocol, transport, TLS, default port.
const SCHEMES: [(&str, Protocol, Transport, bool, u16); 11] = [
    ("pulsar", Protocol::Pulsar, Transport::Tcp, false, 6650),
    ("pulsar+ssl", Protocol::Pulsar, Transport::Tcp, true, 6651),
    ("http", Protocol::Pulsar, Transport::Http, false, 8080),
    ("https", Protocol::Pulsar, Transport::Http, true, 8443),
    ("mqtt", Protocol::Mqtt, Transport::Tcp, false, 1883),
    ("mqtts", Protocol::Mqtt, Transport::Tcp, true, 8883),
    ("ws", Protocol::Mqtt, Transport::WebSocket, false, 80),
    ("wss", Protocol::Mqtt, Transport::WebSocket, true, 443),
    ("mqtt+unix", Protocol::Mqtt, Transport::Unix, false, 0),
    ("tubemq", Protocol::TubeMq, Transport::Tcp, false, 8715),
    ("tubemq+ssl", Protocol::TubeMq, Transport::Tcp, true, 8716),
];

/// A parsed service URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceUrl {
    /// Protocol.
    pub protocol: Protocol,
    /// Transport.
    pub transport: Transport,
    /// Whether TLS is used.
    pub tls: bool,
    /// Addresses: at least one, except for a Unix socket, which has none.
    pub addresses: Vec<Address>,
    /// Path of a WebSocket or a Unix socket.
    pub path: String,
}

impl ServiceUrl {
    /// Whether it leads to a Pulsar broker, with TLS or without.
    pub fn is_of_broker(&self, tls: bool) -> bool {
        self.protocol == Protocol::Pulsar && self.transport == Transport::Tcp && self.tls == tls
    }

    /// Parses `pulsar://` (default port 6650), `pulsar+ssl://` (6651), `http://` (8080), `https://`
    /// (8443), `mqtt://` (1883), `mqtts://` (8883), `ws://` (80), `wss://` (443), `tubemq://`
    /// (8715), `tubemq+ssl://` (8716), each with one or several hosts, and
    /// `mqtt+unix:///path/of/socket`.
    pub fn parse(url: &str) -> Result<Self> {
        let bad = |why: &str| {
            Error::new(
                ErrorKind::InvalidArgument,
                format!("{url:?} is not a service URL: {why}; expected scheme://host:port"),
            )
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| bad("it has no scheme"))?;
        let known = SCHEMES.iter().find(|(name, ..)| name.eq_ignore_ascii_case(scheme));
        let (_, protocol, transport, tls, default_port) =
            *known.ok_or_else(|| bad("the scheme is not known"))?;
        if rest.contains('@') {
            return Err(bad("it contains credentials, which belong into the options"));
        }
        let rest = rest.split('?').next().unwrap_or_default();
        if transport == Transport::Unix {
            if !rest.starts_with('/') {
                return Err(bad("a Unix socket needs an absolute path, as in mqtt+unix:///run/broker.sock"));
            }
            let (addresses, path) = (Vec::new(), rest.to_owned());
            return Ok(Self { protocol, transport, tls, addresses, path });
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let addresses = authority
            .split(',')
            .map(|part| address(part, default_port).ok_or_else(|| bad("a host or port is wrong")))
            .collect::<Result<_>>()?;
        Ok(Self { protocol, transport, tls, addresses, path: path.to_owned() })
    }
}

/// Whether text is the name of a host or an IP address, without a port.
pub fn is_host(text: &str) -> bool {
    address(text, 1).is_some_and(|address| address.host == text) || text.parse::<Ipv6Addr>().is_ok()
}

fn address(text: &str, default_port: u16) -> Option<Address> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        match after.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if after.is_empty() => (host, None),
            None => return None,
        }
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    let port = match port {
        Some(port) => port.parse().ok().filter(|port| *port != 0)?,
        None => default_port,
    };
    let valid = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:%".contains(c));
    valid.then(|| Address { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_ports_and_schemes() {
        let url = ServiceUrl::parse("pulsar://a:1,b,[::1]:7,[::2]/x").unwrap();
        assert!(!url.tls);
        let text: Vec<_> = url.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["a:1", "b:6650", "[::1]:7", "[::2]:6650"]);
        for (scheme, port) in [
            ("pulsar+ssl", 6651),
            ("mqtt", 1883),
            ("mqtts", 8883),
            ("ws", 80),
            ("wss", 443),
            ("tubemq", 8715),
            ("http", 8080),
            ("https", 8443),
        ] {
            let url = ServiceUrl::parse(&format!("{scheme}://h/mqtt?x=1")).unwrap();
            assert_eq!((url.addresses[0].port, url.path.as_str()), (port, "/mqtt"), "{scheme}");
        }
        assert!(ServiceUrl::parse("Pulsar+SSL://h").unwrap().tls, "schemes have no case (RFC 3986, 3.1)");
        let unix = ServiceUrl::parse("mqtt+unix:///run/broker.sock").unwrap();
        assert_eq!((unix.transport, unix.path.as_str()), (Transport::Unix, "/run/broker.sock"));
    }

    #[test]
    fn a_host_is_a_name_or_an_address_and_nothing_else() {
        for host in ["broker", "broker-1.example", "10.0.0.1", "::1", "fe80::1"] {
            assert!(is_host(host), "{host}");
        }
        for other in
            ["", " ", "a b", "a:1", "[::1]", "mqtt://a", "10.0.0.0/8", "a,b", "a\0", "\u{feff}a", "::1:x"]
        {
            assert!(!is_host(other), "{other}");
        }
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for url in [
            "h:1",
            "ftp://h",
            "pulsar://",
            "pulsar://h:0",
            "pulsar://h:99999",
            "pulsar://a,,b",
            "pulsar://u:p@h",
            "pulsar://h h",
            "pulsar://[::1",
            "mqtt+unix://run/broker.sock",
        ] {
            assert_eq!(ServiceUrl::parse(url).unwrap_err().kind(), ErrorKind::InvalidArgument, "{url}");
        }
    }
}
