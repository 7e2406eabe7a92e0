//! The other end of a connection, for limits and for the log.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Origin of a connection. Its display form is `192.0.2.1:50000` or `unix:/run/mqtt.sock`.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    address: SocketAddr,
    /// Path of the Unix socket that it came in by.
    socket: Option<Arc<str>>,
}

impl Peer {
    /// A client over TCP.
    pub(super) fn tcp(address: SocketAddr) -> Self {
        Self { address, socket: None }
    }

    /// A client of the Unix socket at `path`. It counts as one over the loopback interface: both
    /// are programs of this machine.
    pub(super) fn unix(path: Arc<str>) -> Self {
        Self { address: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0), socket: Some(path) }
    }

    /// Address that counts for limits on connections.
    pub(super) fn ip(&self) -> IpAddr {
        self.address.ip()
    }

    /// Address and port; port 0 of a Unix socket.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Display form without the port.
    pub(super) fn host(&self) -> String {
        match &self.socket {
            Some(_) => self.to_string(),
            None => self.address.ip().to_string(),
        }
    }
}

/// The address that pays for what a client costs: for IPv6 its network, whose addresses cost
/// nothing.
pub(super) fn payer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64))
        }
        address => address,
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            Some(path) => write!(f, "unix:{path}"),
            None => self.address.fmt(f),
        }
    }
}
