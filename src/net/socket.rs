//! Sockets that connect and listen.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

#[cfg(feature = "simulation")]
use crate::net::simulation;

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A socket of a simulated network.
    #[cfg(feature = "simulation")]
    Simulated(Box<dyn simulation::Listener>),
}

/// A connected socket.
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

impl Listener {
    /// Listens on `host`; port 0 takes any free port.
    pub async fn bind(host: &str, port: u16) -> io::Result<Self> {
        #[cfg(feature = "simulation")]
        if let Some(network) = simulation::network() {
            return network.listen(host, port).map(Self::Simulated);
        }
        TcpListener::bind((host, port)).await.map(Self::Tcp)
    }

    /// Port number.
    pub fn port(&self) -> io::Result<u16> {
        match self {
            Self::Tcp(listener) => Ok(listener.local_addr()?.port()),
            #[cfg(feature = "simulation")]
            Self::Simulated(listener) => Ok(listener.port()),
        }
    }

    /// Accepts the next connection.
    pub async fn accept(&mut self) -> io::Result<(Socket, SocketAddr)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                let _ = stream.set_nodelay(true);
                Ok((Socket::Tcp(stream), address))
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok((Socket::Simulated(stream), address))
            }
        }
    }
}
