//! Sockets that connect and listen.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

#[cfg(unix)]
use crate::unix::UnixSocket;

#[cfg(feature = "simulation")]
use crate::simulation;

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix socket.
    #[cfg(unix)]
    Unix(UnixSocket),
    /// A socket of a simulated network.
    #[cfg(feature = "simulation")]
    Simulated(Box<dyn simulation::Listener>),
}

/// A socket that has connected.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(TcpStream),
    /// A socket of a simulated network.
    #[cfg(feature = "simulation")]
    Simulated(Box<dyn simulation::Socket>),
}

impl Socket {
    /// Connects to an address.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        #[cfg(feature = "simulation")]
        if let Some(network) = simulation::network() {
            return network.connect(address).await.map(Self::Simulated);
        }
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let keepalive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(60));
        socket2::SockRef::from(&tcp).set_tcp_keepalive(&keepalive)?;
        Ok(Self::Tcp(tcp))
    }
}

/// Whether an error says that the peer has closed the connection.
pub fn is_end(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// A socket that was accepted.
#[derive(Debug)]
pub enum Accepted {
    /// TCP.
    Tcp(TcpStream),
    /// A Unix socket.
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
    /// A socket of a simulated network.
    #[cfg(feature = "simulation")]
    Simulated(Box<dyn simulation::Socket>),
}

impl Accepted {
    /// IP address of this end.
    pub fn local_ip(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(stream) => Some(stream.local_addr().ok()?.ip()),
            #[cfg(unix)]
            Self::Unix(_) => None,
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => None,
        }
    }
}

impl Listener {
    /// Listens on `host`; port 0 takes any free port.
    pub async fn bind(host: &str, port: u16) -> io::Result<Self> {
        #[cfg(feature = "simulation")]
        if let Some(network) = simulation::network() {
            return network.listen(host, port).map(Self::Simulated);
        }
        TcpListener::bind((host, port)).await.map(Self::Tcp)
    }

    /// Listens on a Unix socket, whose file has the permissions `mode`.
    #[cfg(unix)]
    pub async fn bind_unix(path: &Path, mode: u32) -> io::Result<Self> {
        UnixSocket::bind(path, mode).map(Self::Unix)
    }

    /// Unix sockets exist on Unix only.
    #[cfg(not(unix))]
    pub async fn bind_unix(_: &Path, _: u32) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no Unix sockets"))
    }

    /// Port number; 0 of a Unix socket.
    pub fn port(&self) -> io::Result<u16> {
        match self {
            Self::Tcp(listener) => Ok(listener.local_addr()?.port()),
            #[cfg(unix)]
            Self::Unix(_) => Ok(0),
            #[cfg(feature = "simulation")]
            Self::Simulated(listener) => Ok(listener.port()),
        }
    }

    /// Accepts the next connection. A Unix socket tells no address.
    pub async fn accept(&mut self) -> io::Result<(Accepted, Option<SocketAddr>)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                let _ = stream.set_nodelay(true);
                Ok((Accepted::Tcp(stream), Some(address)))
            }
            #[cfg(unix)]
            Self::Unix(listener) => Ok((Accepted::Unix(listener.accept().await?), None)),
            #[cfg(feature = "simulation")]
            Self::Simulated(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok((Accepted::Simulated(stream), Some(address)))
            }
        }
    }
}
