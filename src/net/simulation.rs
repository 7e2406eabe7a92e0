//! A network that tests put in the place of the system's, on their own thread.
//!
//! Only the feature `simulation` compiles this. A thread that called [`set_network`] resolves
//! names, connects and listens there, and runs functions of the application inline instead of on
//! threads of their own.

use std::cell::RefCell;
use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

/// A connected socket.
pub trait Socket: AsyncRead + AsyncWrite + Debug + Send + Unpin {}

/// A listening socket.
pub trait Listener: Debug {
    /// Accepts the next connection.
    fn accept(&mut self) -> Task<'_, io::Result<(Box<dyn Socket>, SocketAddr)>>;

    /// Port number.
    fn port(&self) -> u16;
}

/// Something that takes time.
pub type Task<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A network.
pub trait Network: Send + Sync {
    /// The addresses of a name.
    fn resolve(&self, host: &str, port: u16) -> Task<'_, io::Result<Vec<SocketAddr>>>;

    /// Connects to an address.
    fn connect(&self, address: SocketAddr) -> Task<'_, io::Result<Box<dyn Socket>>>;

    /// Listens on a port; 0 takes any free port.
    fn listen(&self, host: &str, port: u16) -> io::Result<Box<dyn Listener>>;
}

thread_local! {
    static NETWORK: RefCell<Option<Arc<dyn Network>>> = const { RefCell::new(None) };
}

/// Lets this thread use `network`, or the system's again.
pub fn set_network(network: Option<Arc<dyn Network>>) {
    NETWORK.set(network);
}

/// The network of this thread, unless that is the system's.
pub fn network() -> Option<Arc<dyn Network>> {
    NETWORK.with_borrow(Clone::clone)
}
