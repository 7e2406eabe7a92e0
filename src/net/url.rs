//! Service URLs: `scheme://host[:port][,host[:port]…]`.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};

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

/// A parsed Pulsar service URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceUrl {
    /// `pulsar+ssl`.
    pub tls: bool,
    /// At least one.
    pub addresses: Vec<Address>,
}

impl ServiceUrl {
    /// Parses `pulsar://` (default port 6650) and `pulsar+ssl://` (6651).
    pub fn parse(url: &str) -> Result<Self> {
        let bad = |why: &str| {
            Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "{url:?} is not a service URL: {why}; expected pulsar://host:port or pulsar+ssl://host:port"
                ),
            )
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| bad("it has no scheme"))?;
        let (tls, default_port) = match scheme {
            "pulsar" => (false, 6650),
            "pulsar+ssl" => (true, 6651),
            _ => return Err(bad("the scheme is not known")),
        };
        if rest.contains('@') {
            return Err(bad("credentials do not belong in it, use token="));
        }
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let addresses = authority
            .split(',')
            .map(|part| address(part, default_port).ok_or_else(|| bad("a host or port is wrong")));
        Ok(Self { tls, addresses: addresses.collect::<Result<_>>()? })
    }
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
        assert_eq!(ServiceUrl::parse("pulsar+ssl://h").unwrap().addresses[0].port, 6651);
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for url in [
            "h:1",
            "http://h",
            "pulsar://",
            "pulsar://h:0",
            "pulsar://h:99999",
            "pulsar://a,,b",
            "pulsar://u:p@h",
            "pulsar://h h",
            "pulsar://[::1",
        ] {
            assert_eq!(ServiceUrl::parse(url).unwrap_err().kind(), ErrorKind::InvalidArgument, "{url}");
        }
    }
}
