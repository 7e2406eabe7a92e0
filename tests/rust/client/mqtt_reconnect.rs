//! A session that is taken over: by another client, or by a CONNECT of the same client that the
//! network delivers late.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use forebay_client::Engine;
use forebay_client::mqtt::Client;
use forebay_client::mqtt::options::ClientOptions;

/// What a broker does with a connection.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Ends it without an answer to CONNECT.
    Swallow,
    /// Accepts it, and ends it.
    Cut,
    /// Accepts it, and says that another connection has taken over the session.
    TakeOver,
    Accept,
}

const CONNACK: [u8; 5] = [0x20, 3, 0, 0, 0];
const SESSION_TAKEN_OVER: [u8; 3] = [0xE0, 1, 0x8E];

/// Serves a connection. What follows CONNACK waits for `go`.
fn serve(mut stream: TcpStream, act: Act, go: impl FnOnce()) {
    let mut chunk = [0; 4096];
    // The client writes CONNECT at once.
    let _ = stream.read(&mut chunk);
    if matches!(act, Act::Swallow) {
        return;
    }
    let _ = stream.write_all(&CONNACK);
    go();
    if matches!(act, Act::TakeOver) {
        let _ = stream.write_all(&SESSION_TAKEN_OVER);
    }
    while !matches!(act, Act::Cut) && stream.read(&mut chunk).is_ok_and(|length| length > 0) {}
}

/// Follows the script, and lets the client either stay with its last connection or end for good.
fn follow(script: &'static [Act], ends: bool) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("mqtt://{}", listener.local_addr().unwrap());
    let served = Arc::new(AtomicUsize::new(0));
    let serving = Arc::clone(&served);
    let (up, is_up) = mpsc::channel();
    std::thread::spawn(move || {
        for act in script {
            let (stream, _) = listener.accept().unwrap();
            let number = serving.fetch_add(1, Ordering::SeqCst);
            serve(stream, *act, || {
                if number == 0 {
                    is_up.recv().unwrap();
                }
            });
        }
    });
    let engine = Engine::start(1).unwrap();
    let followed = async {
        let options = ClientOptions { url, client_id: "late".into(), ..ClientOptions::default() };
        let client = Client::connect(options).await.unwrap();
        up.send(()).unwrap();
        while served.load(Ordering::SeqCst) < script.len() || client.is_closed() != ends {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(client.is_closed(), ends, "{script:?}");
    };
    let limit = async { tokio::time::timeout(Duration::from_secs(60), followed).await };
    engine.handle().block_on(limit).unwrap_or_else(|_| panic!("{script:?}: it did not come to that"));
}

#[test]
fn a_session_taken_over_by_an_own_late_connect_is_taken_up_again() {
    follow(&[Act::Cut, Act::Swallow, Act::TakeOver, Act::Accept], false);
}

#[test]
fn each_connect_that_may_come_late_excuses_one_take_over() {
    follow(&[Act::Cut, Act::Swallow, Act::Swallow, Act::TakeOver, Act::TakeOver, Act::TakeOver], true);
}

#[test]
fn a_session_taken_over_by_another_client_ends_the_client() {
    follow(&[Act::TakeOver], true);
    follow(&[Act::Cut, Act::TakeOver], true);
}
