//! A connection whose opener gives up before the broker has answered.

use std::io::Read;
use std::net::TcpListener;
use std::time::Duration;

use forebay_client::Engine;
use forebay_client::pulsar::Client;
use forebay_client::pulsar::options::ClientOptions;

/// Far beyond the time in which the test ends.
const NEVER: Duration = Duration::from_secs(600);

#[test]
fn a_connect_that_is_given_up_in_the_handshake_closes_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("pulsar://{}", listener.local_addr().unwrap());
    let engine = Engine::start(1).unwrap();
    let options = ClientOptions { url, connect_timeout: NEVER, ..ClientOptions::default() };
    let connecting = engine.handle().spawn(Client::connect(options));
    let (mut peer, _) = listener.accept().unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut bytes = [0; 4096];
    assert!(peer.read(&mut bytes).unwrap() > 0, "CONNECT has come");
    connecting.abort();
    let left = std::iter::repeat_with(|| peer.read(&mut bytes)).find(|read| !matches!(read, Ok(1..)));
    assert_eq!(left.unwrap().unwrap(), 0, "the connection has ended");
}
